"""Distances between sets beside other packages: seconds, added memory, and the difference of the results, in one run.

Usage: python benchmarks/distances.py [--quick] [--only NAME …]      (writes nbs/results/distances.csv)
NAME is one of frechet-500, frechet-2000, frechet-10000, interval, kid, cmmd, streaming, accuracy. --quick takes small sizes, asks
for nothing and writes nothing. With --only the other rows of the table stay as they are. Needs torch-fidelity and pytorch-fid;
all of it takes about half an hour. Times are medians of three runs (nine of what is short) after warm-up, unless `runs` says
otherwise: what takes a minute or is only there to be compared with runs once. With OMP_NUM_THREADS=1 every package has one thread, which is
steadier on few cores."""
import argparse
import ctypes
import gc
import statistics
import threading
import time
from pathlib import Path

import mpmath
import numpy as np
import pandas as pd
import scipy
import torch
from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
from torch_fidelity.metric_kid import kid_features_to_metric
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

from invariant_metrics.files import atomic_write
from invariant_metrics.core import progress
from invariant_metrics.metrics.cmmd import cmmd_distance, cmmd_moments
from invariant_metrics.metrics.frechet import frechet_distance, frechet_terms
from invariant_metrics.metrics.frechet_interval import frechet_estimate
from invariant_metrics.metrics.gaussian import GaussianStats
from invariant_metrics.metrics.kernel import RBF
from invariant_metrics.metrics.mmd import kid_subsets, mmd2

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


def measure(function, runs: int = 3) -> dict:
    "Median seconds, added memory and value of a call; one run is both for what runs once."
    seconds, kept = [], []

    def once():
        start = time.perf_counter()
        kept.append(function())
        seconds.append(time.perf_counter() - start)
    if runs == 1: return {"added MB": added_memory(once), "runs": 1, "seconds": seconds[0], "value": kept[0]}
    memory = added_memory(once)  # the first run: not counted in the time, and neither are those that still pay for fresh memory
    while len(seconds) < 8 and (len(seconds) < 2 or seconds[-1] < 0.8*seconds[-2]) and sum(seconds) < 2: once()
    runs = runs if seconds[-1] > 0.5 else 9
    seconds.clear()
    for _ in range(runs): once()
    return {"added MB": memory, "runs": runs, "seconds": statistics.median(seconds), "value": kept[-1]}


def features(n: int, d: int, power: float, seed: int, scale: float = 1., shift: float = 0.) -> torch.Tensor:
    "(n, d) float32 features with scales i^-power, as an encoder would hand them over."
    g = torch.Generator().manual_seed(seed)
    scales = torch.arange(1, d + 1, dtype=torch.float32)**-power
    return torch.randn(n, d, generator=g)*scales*scale + shift*scales


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


# the works

def frechet(n: int, quick: bool) -> list[dict]:
    "Plain distance from float32 features, for white noise and for a falling spectrum."
    name, d, out = f"frechet-{n}", 256 if quick else 2048, []
    required = {500: 50, 2000: 2, 10000: 1.5}[n]
    for power in (0, 1):
        count = n//8 if quick else n
        rows = Rows(name, f"Fréchet n={count} d={d} i^-{power}")
        a, b = features(count, d, power, 0), features(count, d, power, 1, 1.1, 0.1)
        size = frechet_terms(a, b, route="svd")
        ours = rows.add("invariant_metrics", **measure(lambda: frechet_distance(a, b)))
        ours["difference"] = abs(ours["value"] - size.value)/size.size
        peers = {"torchmetrics": (by_torchmetrics, 3), "torch-fidelity": (by_torch_fidelity, 3), "pytorch-fid": (by_pytorch_fid, 1)}
        if n != 500 or power: del peers["pytorch-fid"]
        times = {}
        for peer, (function, runs) in peers.items():
            found = rows.add(peer, **measure(lambda: function(a, b), runs))
            found["difference"], times[peer] = abs(found["value"] - size.value)/size.size, found["seconds"]
        if slow := times.pop("pytorch-fid", None): rows.ask("times faster than pytorch-fid", 250, slow/ours["seconds"])
        rows.ask("times faster than the faster of the others", required, min(times.values())/ours["seconds"])
        out += rows
    return out


def interval(quick: bool) -> list[dict]:
    "What an interval adds to the plain distance."
    out = []
    for n in (500, 2000, 10000):
        count, d = (n//8, 256) if quick else (n, 2048)
        rows = Rows("interval", f"Fréchet with interval n={count} d={d}")
        a, b = features(count, d, 0, 0), features(count, d, 0, 1, 1.1, 0.1)
        plain = rows.add("plain", **measure(lambda: frechet_distance(a, b)))
        full = rows.add("with interval", **measure(lambda: frechet_estimate(a, b).value))
        full["difference"] = abs(full["value"] - plain["value"])
        rows.ask("added time over plain time", 4, full["seconds"]/plain["seconds"] - 1, at_most=True)
        out += rows
    return out


def kid(quick: bool) -> list[dict]:
    "100 subsets of 1000, in float64, with torch-fidelity's draws."
    n, d, subsets, size = (400, 128, 10, 100) if quick else (5000, 2048, 100, 1000)
    rows = Rows("kid", f"KID {subsets}×{size} n={n} d={d}")
    a, b = features(n, d, 0, 0), features(n, d, 0, 1, 1.1, 0.1)
    options = dict(kid_subsets=subsets, kid_subset_size=size, verbose=False)
    ours = rows.add("invariant_metrics", **measure(lambda: kid_subsets(a, b, subsets, size).mean))
    wide = a.double(), b.double()
    theirs = rows.add("torch-fidelity, float64", **measure(lambda: kid_features_to_metric(*wide, **options)["kernel_inception_distance_mean"]))
    theirs["difference"] = abs(theirs["value"] - ours["value"])
    single = rows.add("torch-fidelity, float32", **measure(lambda: kid_features_to_metric(a, b, **options)["kernel_inception_distance_mean"], 1))
    single["difference"] = abs(single["value"] - ours["value"])

    def by_torchmetrics_kid():
        metric = KernelInceptionDistance(feature=Features(d), subsets=subsets, subset_size=size)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            for x, real in zip(wide, (True, False)): metric.update(x, real=real)
            return float(metric.set_dtype(torch.float64).compute()[0])
    rows.add("torchmetrics, its own draws, float64", **measure(by_torchmetrics_kid, 1))
    rows.ask("times faster than torch-fidelity", 3.5, theirs["seconds"]/ours["seconds"])
    twice = features(2*n, d, 0, 0), features(2*n, d, 0, 1, 1.1, 0.1)
    more = rows.add(f"invariant_metrics, n={2*n}", **measure(lambda: kid_subsets(*twice, subsets, size).mean, 1))
    rows.ask("MB added when n doubles", 50, more["added MB"] - ours["added MB"], at_most=True)
    return rows


def cmmd(quick: bool) -> list[dict]:
    "The published estimator ×1000: tiled and from moments."
    n, d = (1500, 96) if quick else (20000, 768)
    rows = Rows("cmmd", f"CMMD n={n} d={d}")
    a, b = features(n, d, 0.3, 0, shift=0.2), features(n, d, 0.3, 1, 1.05, 0.25)
    exact = rows.add("every pair in float64, tiled", **measure(lambda: mmd2(a, b, kernel=RBF(10.), unbiased=False, scale=1000.), 1))
    tiled = rows.add("invariant_metrics", **measure(lambda: cmmd_distance(a, b)))
    moments = rows.add("invariant_metrics, moments", **measure(lambda: cmmd_moments(a, b).value))
    port = rows.add("published algorithm, float32", **measure(lambda: published_cmmd(a, b), 3 if quick else 1))
    for row in (tiled, moments, port): row["difference"] = abs(row["value"] - exact["value"])
    rows.ask("tiled: times faster than the published algorithm", 3, port["seconds"]/tiled["seconds"])
    rows.ask("moments: times faster than the published algorithm", 50, port["seconds"]/moments["seconds"])
    rows.ask("MB added by tiled or moments", 200, max(tiled["added MB"], moments["added MB"]), at_most=True)
    return rows


def gemm_rate(d: int) -> float:
    "Float64 operations a second of a (2d, d) by (d, d) matrix product, the best of five."
    x, y, times = torch.randn(2*d, d, dtype=torch.float64), torch.randn(d, d, dtype=torch.float64), []
    for _ in range(6):
        start = time.perf_counter()
        x @ y
        times.append(time.perf_counter() - start)
    return 4*d**3/min(times[1:])


def stream(n: int, d: int, parts: int, batch: int = 4096) -> tuple[float, GaussianStats]:
    "Seconds spent in updates alone, and the statistics."
    block, spent, stats = features(batch, d, 0.5, 0), 0., GaussianStats(parts=parts)
    for start in progress(range(0, n, batch), desc=f"streaming, parts={parts}"):
        x = block[:n - start].add_(0.01)  # another batch in the same memory
        begin = time.perf_counter()
        stats.update(x)
        spent += time.perf_counter() - begin
    begin = time.perf_counter()
    assert len(stats) == n and torch.isfinite(stats.cov.diagonal()).all()
    return spent + time.perf_counter() - begin, stats


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
        for power in (0, 1, 2):
            count = n//16 if quick else n
            rows = Rows("accuracy", f"accuracy n={count} d={d} i^-{power}")
            a, b = features(count, d, power, 0), features(count, d, power, 1, 1.1, 0.1)
            terms, exact = frechet_terms(a, b), frechet_terms(a, b, route="svd")
            rows.ask("error against QR and singular values, over the traces", 1e-9, abs(terms.value - exact.value)/terms.size, at_most=True, method=terms.route)
            out += rows
    return out


WORKS = {**{f"frechet-{n}": (lambda quick, n=n: frechet(n, quick)) for n in (500, 2000, 10000)}, "interval": interval, "kid": kid, "cmmd": cmmd,
         "streaming": streaming, "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing asked, nothing written")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS), metavar="NAME", help=", ".join(WORKS))
    options = parser.parse_args()
    print(f"torch {torch.__version__} ({torch.get_num_threads()} threads), numpy {np.__version__}, scipy {scipy.__version__}", flush=True)
    rows = [row for name in options.only for row in WORKS[name](options.quick)]
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    if not options.quick:
        if TABLE.is_file(): table = pd.concat([(old := pd.read_csv(TABLE))[~old["name"].isin(options.only)], table])
        table = table.sort_values("name", key=lambda names: names.map(list(WORKS).index), kind="stable")
        with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.4g")
    asked = table.dropna(subset=["required"])[["work", "quantity", "required", "found", "ok"]]
    if options.quick: asked = asked.assign(ok="(quick)")
    print("\n" + asked.to_string(index=False, float_format=lambda v: f"{v:.3g}"))


if __name__ == "__main__": main()
