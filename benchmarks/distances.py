"""Distances between sets and SSIM beside other packages: CPU seconds, added memory, and the difference of the results, in one run.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/distances.py [--quick] [--only NAME …]      (writes nbs/results/distances.csv)
NAME is one of frechet-500, frechet-2000, frechet-10000, interval, kid, cmmd, neighbors, ssim, streaming, accuracy. --quick takes small
sizes, asks for nothing and writes nothing. The table is written after each work, and with --only the other rows stay as they are. Needs
torch-fidelity, pytorch-fid and prdc; all of it takes about half an hour. Seconds are CPU seconds of this process (user and system, all
threads); methods take turns, and the median of three runs counts (of 15 for SSIM), for what is short after one run that is not counted. With OMP_NUM_THREADS=1 every
package has one thread, which is steadier on few cores.

Crops: FOLDER holds bsds500/images and imagenet_sample/images; 32-pixel crops of these photographs go through a frozen random network of
two ReLU layers to 2048 features, with dead and nearly dead columns and a steep spectrum. EfficientNet-Lite0: 64-pixel crops go through this network, trained on ImageNet,
to 1280 features; it comes with the extra photos. Without FOLDER random fields stand in for
photographs, and the name of the work says so."""
import argparse
import ctypes
import gc
import os
import statistics
import threading
import time
from functools import cache
from pathlib import Path

import mpmath
import numpy as np
import pandas as pd
import scipy
import torch
from PIL import Image
from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
from torch_fidelity.metric_kid import kid_features_to_metric
from torchmetrics.functional.image import structural_similarity_index_measure
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

from invariant_metrics.files import atomic_write
from invariant_metrics.core import progress
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.metrics.cmmd import _both_moments, cmmd_distance, moment_value
from invariant_metrics.metrics.frechet import frechet_distance, frechet_terms
from invariant_metrics.metrics.frechet_interval import frechet_estimate
from invariant_metrics.metrics.gaussian import GaussianStats, add_product
from invariant_metrics.metrics.metric import get_metric
from invariant_metrics.metrics.image_metrics import ssim
from invariant_metrics.metrics.kernel import RBF
from invariant_metrics.metrics.mmd import kid_subsets, mmd2
from invariant_metrics.metrics.neighbors import _PAPER_K, neighbor_estimate, neighbor_scores

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"distances.csv"
COLUMNS = ["name", "work", "method", "runs", "seconds", "added MB", "quantity", "required", "found", "ok", "value", "difference"]


# time and memory

def resident(peak: bool = False) -> float:
    "Memory of this process in MB, now or at its highest since the last `forget_peak`."
    with open("/proc/self/status") as file: lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmHWM" if peak else "VmRSS"].split()[0])/1024


def forget_peak() -> bool:
    "Let the peak start from now; False where the system does not allow it."
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except OSError: return False
    return True


def added_memory(function) -> float:
    "MB that the process has at its highest while the function runs, over what it had before."
    exact, before, highest, done = forget_peak(), resident(), [0.], threading.Event()

    def watch():
        while not done.wait(0.002): highest[0] = max(highest[0], resident())
    watcher = threading.Thread(target=watch)
    if not exact: watcher.start()
    function()
    done.set()
    if exact: return max(0., resident(peak=True) - before)
    watcher.join()
    return max(0., highest[0] - before)


def measure(runs: int = 3, **functions) -> dict[str, dict]: # name of a method -> its cells
    "Median CPU seconds, added memory and value of each method; methods take turns."
    found = {name: {"added MB": 0., "runs": runs, "seconds": [], "value": None} for name in functions}

    def once(name):
        start = time.process_time()
        value = functions[name]()
        found[name]["seconds"].append(time.process_time() - start)
        found[name]["value"] = value
    for name in functions: found[name]["added MB"] = added_memory(lambda: once(name))
    if runs > 1:
        for cells in found.values():
            if cells["seconds"][0] < 1: cells["seconds"].clear() # what is short still paid for fresh memory
        for _ in range(runs):
            for name in functions:
                if len(found[name]["seconds"]) < runs: once(name)
    for cells in found.values(): cells["seconds"] = statistics.median(cells["seconds"])
    return found


def features(n: int, d: int, power: float, seed: int, scale: float = 1., shift: float = 0.) -> torch.Tensor:
    "(n, d) float32 features with scales i^-power, as an encoder would hand them over."
    g = torch.Generator().manual_seed(seed)
    scales = torch.arange(1, d + 1, dtype=torch.float32)**-power
    return torch.randn(n, d, generator=g)*scales*scale + shift*scales


SIDE = 32 # pixels of a crop


@cache
def photographs() -> list[np.ndarray]: # (H, W, 3) uint8
    "Those of the data folder; without one, random fields whose spectrum falls as that of photographs does."
    root = os.environ.get("INVARIANT_METRICS_DATA")
    if root:
        files = [file for folder in ("bsds500", "imagenet_sample") for file in sorted((Path(root)/folder/"images").iterdir())]
        return [np.asarray(Image.open(file).convert("RGB")) for file in files]
    generator, out = np.random.default_rng(0), []
    far = np.hypot(np.fft.fftfreq(256)[:, None], np.fft.fftfreq(256)) + 1/256
    for _ in range(60):
        field = np.fft.ifft2(np.fft.fft2(generator.standard_normal((3, 256, 256)))/far).real
        field = (field - field.min())/(field.max() - field.min())
        out.append((255*field.transpose(1, 2, 0)).astype(np.uint8))
    return out


CROPS = "crops" if os.environ.get("INVARIANT_METRICS_DATA") else "crops of random fields"


def crops(n: int, side: int, seed: int): # yields (≤500, side, side, 3) uint8
    "Random crops of photographs that are large enough."
    pictures, generator = [p for p in photographs() if min(p.shape[:2]) >= side], np.random.default_rng(seed)
    for start in range(0, n, 500):
        cut = []
        for _ in range(min(500, n - start)):
            p = pictures[generator.integers(len(pictures))]
            y, x = generator.integers(p.shape[0] - side + 1), generator.integers(p.shape[1] - side + 1)
            cut.append(p[y:y + side, x:x + side])
        yield torch.from_numpy(np.stack(cut))


def crop_features(n: int, d: int = 2048, seed: int = 0) -> torch.Tensor: # (n, d) float32
    "Features of random crops of photographs under a frozen random network of two ReLU layers."
    g = torch.Generator().manual_seed(0)
    first = torch.randn(3*SIDE*SIDE, 1024, generator=g)*(2/(3*SIDE*SIDE))**0.5
    second = torch.randn(1024, d, generator=g)*(2/1024)**0.5
    return torch.cat([((rows.float().flatten(1)/255 @ first).relu() @ second).relu() for rows in crops(n, SIDE, seed)])


NETWORK, NETWORK_SIDE, NETWORK_WIDTH = "EfficientNet-Lite0", 64, 1280


def network_features(n: int) -> torch.Tensor: # (n, 1280) float32
    "Features of random crops of photographs, 64 pixels wide, under a published network trained on ImageNet."
    encoder = get_encoder("efficientnet-lite0", size=NETWORK_SIDE)
    read = progress([*crops(n, NETWORK_SIDE, 0)], desc="network's features")
    return torch.cat([encoder.encode(rows.permute(0, 3, 1, 2).float()/255) for rows in read])


def two_sets(kind: str, n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    "Two sets of n features: white noise, i^-1, crops, or the network's, which has its own width."
    if kind == CROPS: return crop_features(2*n, d).split(n)
    if kind == NETWORK: return network_features(2*n).split(n)
    power = 0 if kind == "white" else 1
    return features(n, d, power, 0), features(n, d, power, 1, 1.1, 0.1)


class Rows(list):
    "Measured rows of one work, and what is asked of them."
    def __init__(self, name: str, work: str): self.name, self.work = name, work

    def add(self, method: str, **cells) -> dict:
        self.append({"name": self.name, "work": self.work, "method": method, **cells})
        print(f"  {self.work}: {method} " + " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in cells.items()), flush=True)
        return self[-1]

    def ask(self, quantity: str, required: float, found: float, at_most: bool = False, **cells) -> None:
        self.add(cells.pop("method", ""), quantity=quantity, required=f"{'≤' if at_most else '≥'} {required:g}", found=float(found),
                 ok="yes" if (found <= required if at_most else found >= required) else "NO", **cells)


# other packages, from features on

class Features(torch.nn.Module):
    "Stands in for Inception in torchmetrics: images are features already."
    def __init__(self, width: int):
        super().__init__()
        self.num_features = width

    def forward(self, x): return x


def by_torchmetrics(a: torch.Tensor, b: torch.Tensor) -> float:
    metric = FrechetInceptionDistance(feature=Features(a.shape[1]))
    metric.update(a, real=True)
    metric.update(b, real=False)
    return float(metric.set_dtype(torch.float64).compute())


def by_torch_fidelity(a: torch.Tensor, b: torch.Tensor) -> float:
    return fid_statistics_to_metric(*map(fid_features_to_statistics, (a, b)), verbose=False)["frechet_inception_distance"]


def by_pytorch_fid(a: torch.Tensor, b: torch.Tensor) -> float:
    "Its own function; where scipy does not know sqrtm's disp any more, its formula with the sqrtm that there is."
    (p, s), (q, t) = ((x.mean(0), np.cov(x, rowvar=False)) for x in (a.double().numpy(), b.double().numpy()))
    if tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 18):
        from pytorch_fid.fid_score import calculate_frechet_distance
        return float(calculate_frechet_distance(p, s, q, t))
    root = scipy.linalg.sqrtm(s @ t)
    return float((p - q) @ (p - q) + np.trace(s) + np.trace(t) - 2*np.trace(root.real))


def published_cmmd(x: torch.Tensor, y: torch.Tensor, sigma: float = 10.) -> float:
    "The published estimator as its ports compute it: mean Gaussian kernels of unit vectors, whole matrices in float32, diagonals included."
    x, y = (z/z.norm(dim=1, keepdim=True) for z in (x.float(), y.float()))

    def mean_kernel(p, q): return torch.exp(-((p*p).sum(1)[:, None] + (q*q).sum(1)[None] - 2*(p @ q.T))/(2*sigma**2)).mean()
    return 1000*float(mean_kernel(x, x) + mean_kernel(y, y) - 2*mean_kernel(x, y))


def pair_products(a: torch.Tensor, b: torch.Tensor, tile: int = 1024) -> None:
    "The floor of a kernel distance: the float32 products of all pairs, each once, and nothing done with them."
    rows = torch.cat([a, b]).numpy()
    out = np.empty((tile, tile), np.float32)
    for i in range(0, len(rows), tile):
        for j in range(i, len(rows), tile):
            left, right = rows[i:i + tile], rows[j:j + tile]
            np.matmul(left, right.T, out=out[:len(left), :len(right)])


def moment_products(a: torch.Tensor, b: torch.Tensor) -> None:
    "The floor of a moment form: the products of columns in float64, half of them, and nothing done with them."
    for x in (a, b):
        second = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
        for part in x.double().split(2048): add_product(second, part)


# the works

def frechet(n: int, quick: bool) -> list[dict]:
    "Plain distance from float32 features, for white noise, a falling spectrum, crops and a trained network."
    name, out = f"frechet-{n}", []
    required = {500: 50, 2000: 2.5, 10000: 1.5}[n]
    for kind in ("white", "i^-1", CROPS, NETWORK):
        count = n//8 if quick else n
        d = NETWORK_WIDTH if kind == NETWORK else 256 if quick else 2048
        rows = Rows(name, f"Fréchet n={count} d={d} {kind}")
        a, b = two_sets(kind, count, d)
        exact = frechet_terms(a, b, route="svd")
        found = measure(invariant_metrics=lambda: frechet_distance(a, b), torchmetrics=lambda: by_torchmetrics(a, b),
                        **{"torch-fidelity": lambda: by_torch_fidelity(a, b)})
        if n == 500 and kind == "white": found |= measure(1, **{"pytorch-fid": lambda: by_pytorch_fid(a, b)})
        for method, cells in found.items(): rows.add(method, **cells, difference=abs(cells["value"] - exact.value)/exact.size)
        ours = found["invariant_metrics"]["seconds"]
        if "pytorch-fid" in found: rows.ask("times faster than pytorch-fid", 250, found.pop("pytorch-fid")["seconds"]/ours)
        rows.ask("times faster than the faster of the others", required, min(found[p]["seconds"] for p in ("torchmetrics", "torch-fidelity"))/ours)
        out += rows
    return out


def interval(quick: bool) -> list[dict]:
    "What the distance with an interval costs, in plain distances."
    out = []
    for n in (500, 2000, 10000):
        for kind in ("white", CROPS):
            count, d = (n//8, 256) if quick else (n, 2048)
            rows = Rows("interval", f"Fréchet with interval n={count} d={d} {kind}")
            a, b = two_sets(kind, count, d)
            found = measure(plain=lambda: frechet_distance(a, b), interval=lambda: frechet_estimate(a, b).value)
            rows.add("plain", **found["plain"])
            rows.add("with interval", **found["interval"], difference=abs(found["interval"]["value"] - found["plain"]["value"]))
            rows.ask("time with interval over plain time", 3, found["interval"]["seconds"]/found["plain"]["seconds"], at_most=True)
            out += rows
    return out


def kid(quick: bool) -> list[dict]:
    "100 subsets of 1000 with torch-fidelity's draws, all from float32 features as people have them."
    return kid_of(CROPS, quick) + kid_of(NETWORK, quick)


def kid_of(kind: str, quick: bool) -> list[dict]:
    n, d, subsets, size = (400, 128, 10, 100) if quick else (5000, 2048, 100, 1000)
    if kind == NETWORK: d = NETWORK_WIDTH
    rows = Rows("kid", f"KID {subsets}×{size} n={n} d={d} {kind}")
    a, b = two_sets(kind, n, d)
    options = dict(kid_subsets=subsets, kid_subset_size=size, verbose=False)
    def fidelity(x, y): return kid_features_to_metric(x, y, **options)["kernel_inception_distance_mean"]
    found = measure(invariant_metrics=lambda: kid_subsets(a, b, subsets, size).mean, **{"torch-fidelity, float32": lambda: fidelity(a, b)})
    found |= measure(1, **{"torch-fidelity, float64": lambda: fidelity(a.double(), b.double())})

    def by_torchmetrics_kid():
        metric = KernelInceptionDistance(feature=Features(d), subsets=subsets, subset_size=size)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            for x, real in zip((a, b), (True, False)): metric.update(x, real=real)
            return float(metric.compute()[0])
    found |= measure(1, **{"torchmetrics, its own draws": by_torchmetrics_kid})
    exact = found["torch-fidelity, float64"]["value"]
    for method, cells in found.items(): rows.add(method, **cells, difference=abs(cells["value"] - exact) if "own" not in method else None)
    rows.add("floor: float32 products of all pairs, each once", **measure(floor=lambda: pair_products(a, b))["floor"])
    rows.ask("times faster than torch-fidelity on the same features", 4, found["torch-fidelity, float32"]["seconds"]/found["invariant_metrics"]["seconds"])
    twice = two_sets(kind, 2*n, d)
    more = rows.add(f"invariant_metrics, n={2*n}", **measure(1, more=lambda: kid_subsets(*twice, subsets, size).mean)["more"])
    rows.ask("MB added when n doubles", 50, more["added MB"] - found["invariant_metrics"]["added MB"], at_most=True)
    return rows


def cmmd(quick: bool) -> list[dict]:
    "The published estimator ×1000: tiled and from moments."
    n, d = (1500, 96) if quick else (14000, 768)
    rows = Rows("cmmd", f"CMMD n={n} d={d}")
    a, b = features(n, d, 0.3, 0, shift=0.2), features(n, d, 0.3, 1, 1.05, 0.25)
    found = measure(**{"invariant_metrics": lambda: cmmd_distance(a, b), "invariant_metrics, moments": lambda: moment_value(*_both_moments(a, b)),
                       "published algorithm, float32": lambda: published_cmmd(a, b)})
    exact = measure(1, exact=lambda: mmd2(a, b, kernel=RBF(10.), unbiased=False, scale=1000.))["exact"]
    rows.add("every pair in float64, tiled", **exact)
    for method, cells in found.items(): rows.add(method, **cells, difference=abs(cells["value"] - exact["value"]))
    rows.add("floor: float32 products of all pairs, each once", **measure(1, floor=lambda: pair_products(a, b))["floor"])
    rows.add("floor of the moments: float64 products of columns", **measure(floor=lambda: moment_products(a, b))["floor"])
    tiled, moments, port = found.values()
    rows.ask("tiled: times faster than the published algorithm", 5, port["seconds"]/tiled["seconds"])
    rows.ask("moments: times faster than the published algorithm", 80, port["seconds"]/moments["seconds"])
    rows.ask("MB added by tiled or moments", 200, max(tiled["added MB"], moments["added MB"]), at_most=True)
    return rows


def neighbors(quick: bool) -> list[dict]:
    "Precision, recall, density and coverage at k = 5, which is what prdc computes; and each with its interval."
    from prdc import compute_prdc
    n, d = (800, 32) if quick else (10000, 256)
    rows = Rows("neighbors", f"neighbors n={n} d={d} {CROPS}")
    whole = crop_features(2*n + n//4, d)
    whole = whole[np.unique(whole.numpy(), axis=0, return_index=True)[1].tolist()]  # white crops are alike, and prdc leaves copies out of balls of radius 0
    pred, target = whole[torch.randperm(len(whole), generator=torch.Generator().manual_seed(0))[:2*n]].split(n)
    def by_prdc(x, y): return compute_prdc(real_features=y.numpy(), fake_features=x.numpy(), nearest_k=5)
    found = measure(invariant_metrics=lambda: neighbor_scores(pred, target, 5), prdc=lambda: by_prdc(pred, target))
    ours, theirs = found["invariant_metrics"]["value"], by_prdc(pred.double(), target.double())
    for method, cells in found.items(): rows.add(method, **(cells | {"value": float(cells["value"]["coverage"])}))
    rows.ask("times faster than prdc", 3, found["prdc"]["seconds"]/found["invariant_metrics"]["seconds"],
             difference=max(abs(ours[name] - float(theirs[name])) for name in ours))
    def estimates(): return [neighbor_estimate(pred, target, matched=False, clusters=None, seed=0, name=name, k=5).value for name in _PAPER_K][-1]
    whole = rows.add("invariant_metrics, four intervals", **measure(1, whole=estimates)["whole"])
    rows.ask("MB added", 300, max(whole["added MB"], found["invariant_metrics"]["added MB"]), at_most=True)
    return rows


def images(quick: bool) -> list[dict]:
    "SSIM, of pairs and against a target whose moments are known already."
    shape = (4, 3, 48, 48) if quick else (24, 3, 96, 96)
    rows = Rows("ssim", f"SSIM {'×'.join(map(str, shape))}")
    g = torch.Generator().manual_seed(0)
    pred, target = torch.rand(shape, generator=g), torch.rand(shape, generator=g)
    metric = get_metric("ssim")
    kept = metric.phi(target)
    def again(): return float(metric.compare(metric.phi(pred), kept).mean())
    found = measure(15, **{"invariant_metrics": lambda: float(ssim(pred, target).mean()), "invariant_metrics, target known": again,
                           "torchmetrics, float32, mirrored borders": lambda: float(structural_similarity_index_measure(pred, target, data_range=1.))})
    for method, cells in found.items(): rows.add(method, **cells)
    ours, _, theirs = found.values()
    rows.ask("times faster than torchmetrics", 3, theirs["seconds"]/ours["seconds"])
    return rows


def gemm_rate(d: int) -> float:
    "Float64 operations a second of a (2d, d) by (d, d) matrix product, the best of five."
    x, y, times = torch.randn(2*d, d, dtype=torch.float64), torch.randn(d, d, dtype=torch.float64), []
    for _ in range(6):
        start = time.process_time()
        x @ y
        times.append(time.process_time() - start)
    return 4*d**3/min(times[1:])


def stream(n: int, d: int, parts: int, batch: int = 4096) -> tuple[float, GaussianStats]:
    "Seconds spent in updates alone, and the statistics."
    block, spent, stats = features(batch, d, 0.5, 0), 0., GaussianStats(parts=parts)
    for start in progress(range(0, n, batch), desc=f"streaming, parts={parts}"):
        x = block[:n - start].add_(0.01)  # another batch in the same memory
        begin = time.process_time()
        stats.update(x)
        spent += time.process_time() - begin
    begin = time.process_time()
    assert len(stats) == n and torch.isfinite(stats.cov.diagonal()).all()
    return spent + time.process_time() - begin, stats


def streaming(quick: bool) -> list[dict]:
    "Mean and scatter of a stream; the scatter is symmetric: n·d² operations are all it needs."
    n, d = (20000, 256) if quick else (1_000_000, 2048)
    rows = Rows("streaming", f"streaming {n}×{d}")
    for parts, limit in ((0, 400), (8, 700)):
        rate, kept = gemm_rate(d), []
        memory = added_memory(lambda: kept.append(stream(n, d, parts)[0]))
        found = rows.add(f"GaussianStats(parts={parts})", runs=1, seconds=kept[0], **{"added MB": memory}, value=n*d**2/kept[0]/1e9)
        rows.ask(f"parts={parts}: MB added", limit, memory, at_most=True)
        if not parts:
            share = found["value"]*1e9/rate # the target was first missed in the stricter reading, so both stand in the table
            rows.ask("share of the rate of a matrix product, counting half of its operations", 0.7, share)
            rows.ask("share of the rate of a matrix product, counting all of its operations", 0.7, 2*share)
    return rows


def by_mpmath(a: torch.Tensor, b: torch.Tensor, digits: int = 40) -> float:
    "The squared distance in many digits: eigenvalues of (ABᵀ)(ABᵀ)ᵀ."
    with mpmath.workdps(digits):
        sets = [mpmath.matrix(x.double().tolist()) for x in (a, b)]
        means = [[mpmath.fsum(x[:, j])/x.rows for j in range(x.cols)] for x in sets]
        A, B = [mpmath.matrix([[(x[i, j] - m[j])/mpmath.sqrt(x.rows - 1) for j in range(x.cols)] for i in range(x.rows)]) for x, m in zip(sets, means)]
        cross = A*B.T if A.rows <= B.rows else B*A.T
        overlap = mpmath.fsum(mpmath.sqrt(max(v, 0)) for v in mpmath.eigsy(cross*cross.T, eigvals_only=True))
        squares = [mpmath.fsum(v*v for v in F) for F in (A, B)]
        return float(mpmath.fsum((p - q)**2 for p, q in zip(*means)) + sum(squares) - 2*overlap)


def accuracy(quick: bool) -> list[dict]:
    "Error over the sum of the traces: against many digits, and against QR with singular values."
    out, d = [], 128 if quick else 2048
    small = [(30, 26, 16), (40, 100, 64), (100, 40, 64)]
    for n, m, width in small[:1] if quick else small:
        for power in (0, 1, 2):
            rows = Rows("accuracy", f"accuracy n={n} m={m} d={width} i^-{power}")
            a, b = features(n, width, power, 0), features(m, width, power, 1, 1.1, 0.1)
            exact, terms = by_mpmath(a, b), frechet_terms(a, b)
            rows.ask("error against 40 digits, over the traces", 1e-9, abs(terms.value - exact)/terms.size, at_most=True, method=terms.route)
            out += rows
    for n in (500, 2000, 10000):
        for kind in (0, 1, 2, CROPS):
            count = n//16 if quick else n
            rows = Rows("accuracy", f"accuracy n={count} d={d} {kind if kind == CROPS else f'i^-{kind}'}")
            a, b = two_sets(CROPS, count, d) if kind == CROPS else (features(count, d, kind, 0), features(count, d, kind, 1, 1.1, 0.1))
            terms, exact = frechet_terms(a, b), frechet_terms(a, b, route="svd")
            rows.ask("error against QR and singular values, over the traces", 1e-9, abs(terms.value - exact.value)/terms.size, at_most=True, method=terms.route)
            out += rows
    return out


WORKS = {**{f"frechet-{n}": (lambda quick, n=n: frechet(n, quick)) for n in (500, 2000, 10000)}, "interval": interval, "kid": kid, "cmmd": cmmd,
         "neighbors": neighbors, "ssim": images, "streaming": streaming, "accuracy": accuracy}


def store(rows: list[dict], name: str) -> None:
    "Put the rows of a work into the table, in place of those that it had."
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    if TABLE.is_file():
        old = pd.read_csv(TABLE)
        table = pd.concat([old[~old["name"].isin([name])], table])
    table = table.sort_values("name", key=lambda names: names.map(list(WORKS).index), kind="stable")
    with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.4g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing asked, nothing written")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS), metavar="NAME", help=", ".join(WORKS))
    options = parser.parse_args()
    print(f"torch {torch.__version__} ({torch.get_num_threads()} threads), numpy {np.__version__}, scipy {scipy.__version__}", flush=True)
    rows = []
    for name in options.only:
        rows += WORKS[name](options.quick)
        if not options.quick: store([row for row in rows if row["name"] == name], name)
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    asked = table.dropna(subset=["required"])[["work", "quantity", "required", "found", "ok"]]
    if options.quick: asked = asked.assign(ok="(quick)")
    print("\n" + asked.to_string(index=False, float_format=lambda v: f"{v:.3g}"))


if __name__ == "__main__": main()
