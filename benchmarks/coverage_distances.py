"""How often 95 % intervals of Fréchet distance, KID and CMMD hold the truth where these are used: wide features, few and many samples.

Usage: python benchmarks/coverage_distances.py [--minutes 60] [--most 500] [--known] [--draws runs/coverage_distances.csv]
       (writes nbs/results/coverage_distances.csv; stops after the minutes, and resumes where it stopped)
       python benchmarks/coverage_distances.py --splits       (writes nbs/results/coverage_splits.csv, four minutes)
       INVARIANT_METRICS_DATA=FOLDER python benchmarks/coverage_distances.py --features [--minutes 25]
       (writes nbs/results/coverage_features.csv; draws are kept in runs/coverage_features.csv, and it resumes)
Value and interval of every draw are those of `score`, on float32 features as an encoder hands them over. The truth is not: for `fd`
NumPy's eigenvalues on the exact moments of the two laws, for `kid` (kernel (x·y/d + 1)³ over all pairs) their exact third moments,
for `cmmd` the means of 200,000 unit vectors a side for the normal law at d = 768 and of 50,000 elsewhere (second moments of 10,000),
summed here and without their bias; they add 0.5 % to the spread of an estimate from 500 items, 3 % to one from 3,000.

Laws, each with variances i^-decay (of the sum 0.15 d) around a mean of 0.45, as pooled features of Inception have it:
  gauss       normal                                t5          elliptical, Student's t with 5 degrees of freedom
  log-normal  independent, exp of a standard normal mixture     ten classes, which hold half of the variance
  relu        ten classes of rectified normal features, a third to two thirds of them zero
The second set has other variances (up to 1 + 0.6 gap times), other axes (for the symmetric laws), and a mean that is off by a tenth of the
trace times gap²; classes have other shares. The rule that says when an interval may not cover was chosen on other cells, those of
coverage.csv with 8 to 128 features; here it is judged.

Draws go round: every cell gets some, then every cell gets more. A row a cell and metric: `covered` of `draws` intervals, with the exact
95 % bounds of that share (Clopper and Pearson), bias and standard error in units of the spread, the share of
intervals that say they may not cover, and medians of what the rule sees.

--features: the same for features of networks. 6,000 squares of 96 pixels are cut from photographs (BSDS, ImageNet, COCO), and 6,000 others of the
same photographs are compressed to JPEG 60 (`near`), or shrunk to half and compressed to 30 (`far`); `nearer` is half as they are and half near.
All features of a side are the population, whose distance is known exactly, and a draw takes n of each side with replacement. Networks: two
random convolutions with ReLU and a mean over places (`random`, 512, 1024 and 2048 features), EfficientNet-Lite0 (`lite0`, the 320 features of
its last block and the 1280 after it), MobileNetV2 (1280) and SqueezeNet 1.1 (512), as real_networks.py loads them. The rule's third case (more than
three standard errors of bias taken away) was made when the first draws of `random` and `lite0` were known; `fresh` counts draws made after it,
which are all of the other two networks and all at n = 20,000.
A row a cell: coverage, and medians of what the rule sees: the bias that was taken away and the standard error beside the corrected value.

--splits: 385 to 1024 samples of wider features are halved by 3 splits, and not by 7 as fewer samples are. Both are taken of the same
draws here, with normal quantiles: how often the interval holds the truth, and how far the corrected value scatters."""
import argparse
import json
import os
import time
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.stats
import torch

import invariant_metrics as im
from invariant_metrics.core import torch_rng
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics import frechet_interval
from invariant_metrics.metrics.estimate import standard_error
from invariant_metrics.metrics.gaussian import GaussianStats

from real_networks import NETWORKS

HOME = Path(__file__).parent.parent
CLASSES, CENTER, VARIANCE = 10, 0.45, 0.15
KEY = ["law", "decay", "gap", "d", "n"]
KERNELS = 5000 # samples above which pairs are left to others: they grow with n²


# laws: components (share, mean, variances or covariance, third central moments of independent features), and samples

@cache
def constants(d: int, decay: float) -> dict[str, np.ndarray]:
    "What both sets of a cell are made from, the same in every run."
    g = np.random.default_rng([d, int(10*decay)])
    variance = np.arange(1, d + 1, dtype=float)**-decay
    return {"variance": variance*(VARIANCE*d/variance.sum()), "more": g.random(d), "sign": g.choice([-1., 1.], d), "turn": g.normal(size=(2, d)),
            "center": g.normal(size=(CLASSES, d)), "share": g.normal(size=CLASSES), "bias": 0.7*g.normal(size=(CLASSES, d))}


def rotated(x: np.ndarray, turn: np.ndarray, angle: float) -> np.ndarray:
    "(n, d) rows, turned in planes of neighbors and of features half the width apart."
    for stride, sign in zip((1, x.shape[1]//2), np.sign(turn)):
        left = np.flatnonzero((np.arange(x.shape[1]) // stride) % 2 == 0)
        c, s = np.float32(np.cos(angle)), (np.sin(angle)*sign[left]).astype(x.dtype)
        p, q = x[:, left], x[:, left + stride]
        x = x.copy()
        x[:, left], x[:, left + stride] = c*p - s*q, s*p + c*q
    return x


def rectified(bias: np.ndarray) -> np.ndarray:
    "(4, ...) moments 0 … 3 about zero of max(z + bias, 0) for a standard normal z."
    density, below = scipy.stats.norm.pdf(bias), scipy.stats.norm.cdf(bias)
    return np.stack([np.ones_like(bias), density + bias*below, (1 + bias**2)*below + bias*density, (bias**3 + 3*bias)*below + (bias**2 + 2)*density])


class Law:
    "One of the two distributions of a cell."
    def __init__(self, law: str, decay: float, gap: float, d: int, second: bool):
        self.law, self.d, self.second = law, d, second
        self.c, self.gap = constants(d, decay), gap*second
        self.scale = np.sqrt(self.c["variance"]*(1 + 0.6*self.gap*self.c["more"]))
        self.shift = CENTER + self.gap*np.sqrt(0.1*self.c["variance"])*self.c["sign"]
        self.shares = np.exp(0.5*self.gap*self.c["share"])
        self.shares /= self.shares.sum()

    @property
    def turned(self) -> bool: return self.law in ("gauss", "t5") and self.gap > 0

    def _rotated(self, x: np.ndarray) -> np.ndarray: return rotated(x, self.c["turn"], 0.3*self.gap) if self.turned else x

    def components(self) -> list[tuple]:
        "(share, mean (d,), variances (d,) or covariance (d, d), third moments (d,)) of each component."
        if self.law == "relu":
            one, two, three = rectified(self.c["bias"] + 0.1*self.gap*self.c["sign"])[1:]
            parts = zip(self.shares, self.scale*one, self.scale**2*(two - one**2), self.scale**3*(three - 3*one*two + 2*one**3))
            return [(w, mean + CENTER/10, var, third) for w, mean, var, third in parts]
        if self.law == "mixture":
            return [(w, self.shift + self.scale*center/2**0.5, self.scale**2/2, 0*self.scale) for w, center in zip(self.shares, self.c["center"])]
        e = np.e
        third = self.scale**3*(e + 2)*(e - 1)**0.5 if self.law == "log-normal" else 0*self.scale
        cov = self._rotated(self._rotated(np.diag(self.scale**2)).T) if self.turned else self.scale**2
        return [(1., self.shift, cov, third)]

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        "Mean (d,) and covariance (d, d)."
        parts = self.components()
        mean = sum(w*m for w, m, _, _ in parts)
        cov = sum(w*((v if v.ndim == 2 else np.diag(v)) + np.outer(m - mean, m - mean)) for w, m, v, _ in parts)
        return mean, cov

    def sample(self, n: int, g: torch.Generator) -> np.ndarray:
        "(n, d) float32."
        z = torch.randn(n, self.d, generator=g).numpy()
        scale, shift = self.scale.astype(np.float32), self.shift.astype(np.float32)
        if self.law in ("relu", "mixture"):
            label = torch.multinomial(torch.from_numpy(self.shares), n, replacement=True, generator=g).numpy()
            if self.law == "mixture": return shift + scale*(self.c["center"].astype(np.float32)[label] + z)/np.float32(2**0.5)
            bias = (self.c["bias"] + 0.1*self.gap*self.c["sign"]).astype(np.float32)
            return scale*np.maximum(z + bias[label], 0) + np.float32(CENTER/10)
        if self.law == "log-normal":
            e = np.e
            return shift + scale*((np.exp(z) - np.float32(e**0.5))/np.float32((e**2 - e)**0.5))
        if self.law == "t5":
            chi = torch.randn(n, 5, generator=g).square().sum(1, keepdim=True).numpy()
            z = z*np.sqrt(3/chi)
        return shift + self._rotated(scale*z)


# truths

def frechet_truth(p: Law, q: Law) -> float:
    "From exact moments, by NumPy's eigenvalues."
    (m, s), (k, t) = p.moments(), q.moments()
    root = np.linalg.cholesky(s)
    overlap = np.sqrt(np.linalg.eigvalsh(root.T @ t @ root).clip(min=0)).sum()
    return float(((m - k)**2).sum() + np.trace(s) + np.trace(t) - 2*overlap)


def inner_moments(x: tuple, y: tuple) -> tuple[float, float, float]:
    "E(x·y), E(x·y)², E(x·y)³ of independent x and y of two components."
    (_, m, s, u), (_, k, t, v) = x, y
    full = lambda z: z if z.ndim == 2 else np.diag(z)
    if s.ndim == t.ndim == 1: both, along, back, cross = s @ t, m @ (t*m), k @ (s*k), m @ (t*s*k)
    else: both, along, back, cross = (full(s)*full(t)).sum(), m @ full(t) @ m, k @ full(s) @ k, m @ full(t) @ full(s) @ k
    dot, diagonal = m @ k, lambda z: z if z.ndim == 1 else z.diagonal()
    third = dot**3 + 3*dot*(along + back) + 3*dot*both + 6*cross
    third += u @ v + u @ (k**3 + 3*k*diagonal(t)) + v @ (m**3 + 3*m*diagonal(s))  # u, v ≠ 0 with diagonal covariances alone
    return dot, dot**2 + along + back + both, third


def kid_truth(p: Law, q: Law) -> float:
    "E k(x, x') + E k(y, y') − 2 E k(x, y), exactly."
    def mean_kernel(one: list, two: list) -> float:
        total = 0.
        for x in one:
            for y in two:
                first, second, third = inner_moments(x, y)
                total += x[0]*y[0]*(1 + 3*first/p.d + 3*second/p.d**2 + third/p.d**3)
        return total
    a, b = p.components(), q.components()
    return float(mean_kernel(a, a) + mean_kernel(b, b) - 2*mean_kernel(a, b))


def cmmd_truth(p: Law, q: Law, squares: int = 10_000, block: int = 10_000) -> float:
    "1000 times the two leading orders of the MMD² of unit vectors with σ = 10 (the others add less than a thousandth), from a huge sample."
    sums, seconds, count = [], [], 200_000 if p.law == "gauss" and p.d == 768 else 50_000
    for k, law in enumerate((p, q)):
        g, total, second = torch_rng(7, "truth", k, law.law, law.d), np.zeros(law.d), np.zeros((law.d, law.d), np.float32)
        for start in range(0, count, block):
            x = law.sample(block, g)
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            total += x.sum(0, dtype=np.float64)
            if start < squares: second += x.T @ x
        sums.append(total/count)
        seconds.append(second.astype(np.float64)/squares)
    c, (m, k), (s, t) = 0.01, sums, seconds
    first = ((m - k)**2).sum() - sum((1 - z @ z)/count for z in sums)
    second = ((s - t)**2).sum() - sum((1 - (z**2).sum())/squares for z in seconds)
    return float(1000*np.exp(-c)*(c*first + c**2/2*second))


TRUTHS = {"fd": frechet_truth, "kid": kid_truth, "cmmd": cmmd_truth}


# cells

def cell(law: str, decay: float, d: int, n: int, draws: int, gap: float = 1.) -> dict:
    return dict(law=law, decay=decay, gap=gap, d=d, n=n, wanted=draws)


def cells() -> list[dict]:
    "What is simulated, with as many draws as can be paid for."
    out = [cell("gauss", p, 768, n, k) for p in (0, 1, 2) for n, k in ((500, 100), (1000, 50), (2000, 40), (10_000, 12))]
    out += [cell(law, 1, 768, n, k) for law in ("t5", "relu") for n, k in ((500, 100), (2000, 40))]
    out += [cell(law, 1, 768, n, k) for law in ("log-normal", "mixture") for n, k in ((500, 100), (2000, 40))]
    out += [cell("gauss", p, 1024, n, k) for p in (0, 1, 2) for n, k in ((500, 100), (3000, 12))]
    out += [cell(law, 1, 2048, 500, 100) for law in ("t5", "log-normal", "relu", "mixture")]
    out += [cell("gauss", p, 2048, n, k) for p in (0, 1, 2) for n, k in ((500, 100), (1000, 24), (2000, 14))]
    out += [cell("gauss", p, 2048, 10_000, k) for p, k in ((0, 3), (1, 4), (2, 3))] + [cell("gauss", 1, 768, 50_000, 6), cell("gauss", 1, 2048, 50_000, 2)]
    out += [cell("gauss", 1.5, d, 500, 60) for d in (768, 1024, 2048)] + [cell("gauss", 1.75, d, 500, 40) for d in (1024, 2048)]
    out += [cell("gauss", 1, 768, 500, 60, gap=0.3), cell("gauss", 1, 2048, 500, 60, gap=0.3)]
    return out


@cache
def laws(law: str, decay: float, gap: float, d: int) -> tuple[Law, Law]: return tuple(Law(law, decay, gap, d, second) for second in (False, True))


seen = {} # what the rule of the warnings was handed for the last interval


def watch_rule() -> None:
    "Keep what the package hands to its rule."
    rule = frechet_interval.small_sample_note
    def watched(sigma, n, d, tail=1.0, removed=0.0):
        total = float(sigma.sum())
        seen.update(wide=float(sigma.sqrt().sum())**2/total, steep=total**2/float(sigma.square().sum()), tail=tail, removed=removed)
        return rule(sigma, n, d, tail, removed)
    frechet_interval.small_sample_note = watched


def one_draw(c: dict, number: int) -> list[dict]:
    "A row for each metric: value, center and interval of one pair of sets, by the package."
    g = torch_rng(number, "coverage-distances", *(c[k] for k in KEY))
    x, y = (law.sample(c["n"], g) for law in laws(*(c[k] for k in KEY[:4])))
    names = {"fd": "fd", "mmd-poly": "kid", "cmmd": "cmmd"} if c["n"] <= KERNELS else {"fd": "fd"}
    seen.clear()
    found = {names[k]: s for k, s in im.score(x, y, list(names)).items()}
    if KERNELS < c["n"] and c["d"] < 1024:
        stats = [GaussianStats.of(z, parts=8) for z in (x, y)]
        found["fd streamed"] = im.score(*stats, ["fd"])["fd"]
        found["cmmd-moments"] = im.score(x, y, ["cmmd-moments"])["cmmd-moments"]
    out = []
    for name, s in found.items():
        center = s.value if s.corrected is None else s.corrected
        low, high = (s.ci.low, s.ci.high) if s.ci else (np.nan, np.nan)
        out.append({**{k: c[k] for k in KEY}, "draw": number, "metric": name, "value": s.value, "center": center, "low": low, "high": high,
                    "note": " | ".join(s.notes), **(seen if name == "fd" else {})})
    return out


def truth(c: dict, metric: str, kept: dict, known: bool = False) -> float | None:
    "The truth of a cell, remembered in `kept`; with `known`, None where it has not been computed."
    name = metric.split(" ")[0].split("-")[0]
    key = "/".join(str(c[k]) for k in KEY[:4]) + f"/{name}"
    if key not in kept and known and name == "cmmd": return None
    if key not in kept:
        kept[key] = TRUTHS[name](*laws(*(c[k] for k in KEY[:4])))
        print(f"truth of {key}: {kept[key]:.6g}", flush=True)
    return kept[key]


def flagged(removed: pd.Series, se: pd.Series, found: pd.DataFrame, n: int, d: int) -> pd.Series: # bool
    "By today's rule, from what it was handed."
    heavy = (found["tail"]/(1 + 2/found["steep"])).clip(lower=1)
    return (n < np.minimum(2*d, frechet_interval.DIRECTIONS*found["wide"])*heavy) | ((n < 2*d*heavy) & (removed > frechet_interval.REMOVED*se))


def summary(drawn: pd.DataFrame, kept: dict, known: bool = False) -> pd.DataFrame:
    "A row for each cell and metric that has draws."
    rows = []
    for c in cells():
        mine = drawn[np.logical_and.reduce([drawn[k] == c[k] for k in KEY])]
        for metric, found in mine.groupby("metric", sort=False):
            exact = truth(c, metric, kept, known)
            if exact is None: continue
            spread, have = found["center"].std(), found["low"].notna()
            held = int(((found["low"] <= exact) & (exact <= found["high"]) & have).sum())
            bounds = scipy.stats.binomtest(held, int(have.sum())).proportion_ci(0.95, "exact") if have.any() else (np.nan, np.nan)
            half = (found["high"] - found["low"])/2/1.959964
            warned = found["note"].str.contains("may not cover").mean()
            if metric == "fd": warned = flagged(found["value"] - found["center"], half, found, c["n"], c["d"]).mean()
            rows.append({**{k: c[k] for k in KEY}, "metric": metric, "draws": len(found), "truth": exact, "intervals": int(have.sum()),
                         "covered": held/max(int(have.sum()), 1), "least": bounds[0], "most": bounds[1],
                         "below": (found["high"] < exact).sum()/max(int(have.sum()), 1),
                         "bias plain": (found["value"].mean() - exact)/spread, "bias": (found["center"].mean() - exact)/spread,
                         "se ratio": half.mean()/spread, "relative spread": spread/exact, "warned": warned,
                         **{k: found[k].median() for k in ("wide", "steep", "tail") if k in found}})
    return pd.DataFrame(rows)


SPLITS = [("gauss", 1, 512, 400, 200), ("gauss", 1.5, 512, 400, 200), ("gauss", 2, 512, 400, 200), ("relu", 1.5, 512, 400, 200)]


def splits(out: Path) -> None:
    "A row for each law and number of parts: coverage, spread of the corrected value, mean standard error, and the spread between the two."
    rows = []
    for law, decay, d, n, draws in SPLITS:
        p, q = laws(law, decay, 1., d)
        exact, found = frechet_truth(p, q), {4: [], 8: []}
        for i in range(draws):
            g = torch_rng(i, "splits", law, decay, d, n)
            x, y = p.sample(n, g), q.sample(n, g)
            for parts, kept in found.items():
                e = frechet_interval.frechet_estimate(x, y, parts=parts)
                kept.append((e.corrected, standard_error(e)[0]))
        center = {parts: np.array(kept)[:, 0] for parts, kept in found.items()}
        for parts, kept in found.items():
            value, se = np.array(kept).T
            held = int((np.abs(value - exact) <= 1.959964*se).sum())
            least, most = scipy.stats.binomtest(held, draws).proportion_ci(0.95, "exact")
            rows.append({"law": law, "decay": decay, "d": d, "n": n, "splits": parts - 1, "draws": draws, "covered": held/draws, "least": least, "most": most,
                         "bias": (value.mean() - exact)/value.std(), "spread": value.std(), "se ratio": se.mean()/value.std(),
                         "between": (center[4] - center[8]).std()/center[8].std()})
            print(rows[-1], flush=True)
    with atomic_write(out) as path: pd.DataFrame(rows).to_csv(path, index=False, float_format="%.4g")


# features of networks

SIDE, POPULATION = 96, 6000
PUBLISHED = {"efficientnet-lite0": {"bn2": "lite0-1280", "blocks.6": "lite0-320"}, "mobilenet-v2": {"last": "mobilenet-v2"},
             "squeezenet-1.1": {"features.12": "squeezenet-1.1"}} # network -> layer -> what it is called here
UNSEEN = ("mobilenet-v2", "squeezenet-1.1") # no draw of these was looked at when the rule was made
FEATURES = [(name, gap) for name in ("random512", "random1024", "random2048", "lite0-320", "lite0-1280", *UNSEEN) for gap in ("nearer", "near", "far")]
DRAWN, ROUNDS = {500: 40, 1000: 40, 2000: 32, 5000: 8, 20_000: 8}, 8
LOOKED_AT = {500: 6, 1000: 5, 2000: 3, 5000: 1} # draws of a cell of the other networks that were known then


def squares(data: Path, seed: int, spoil) -> torch.Tensor: # (POPULATION, 3, SIDE, SIDE) uint8
    from PIL import Image
    g, out = np.random.default_rng(seed), []
    pictures = [Image.open(p).convert("RGB") for f in ("bsds500", "imagenet_sample", "coco_mini") for p in sorted((data/f/"images").glob("*.*"))]
    for _ in range(POPULATION):
        picture = pictures[g.integers(len(pictures))]
        least = min(picture.size)
        edge = int(g.integers(min(SIDE, least), least + 1))
        left, top = (int(g.integers(0, side - edge + 1)) for side in picture.size)
        part = picture.crop((left, top, left + edge, top + edge)).resize((SIDE, SIDE), Image.BILINEAR)
        if g.random() < 0.5: part = part.transpose(Image.FLIP_LEFT_RIGHT)
        out.append(np.asarray(spoil(part)))
    return torch.from_numpy(np.stack(out)).permute(0, 3, 1, 2)


def compressed(picture, quality: int, smaller: int = 1):
    import io
    from PIL import Image
    if smaller > 1: picture = picture.resize((SIDE//smaller, SIDE//smaller), Image.BILINEAR).resize((SIDE, SIDE), Image.BILINEAR)
    picture.save(kept := io.BytesIO(), "JPEG", quality=quality)
    return Image.open(kept).convert("RGB")


def random_network(x: torch.Tensor, width: int = 2048) -> torch.Tensor: # (N, width)
    g, conv = torch.Generator().manual_seed(0), torch.nn.functional.conv2d
    first, second = torch.randn(32, 3, 7, 7, generator=g)/147**0.5, torch.randn(width, 32, 3, 3, generator=g)/288**0.5
    parts = [conv(conv((p.float()/255 - 0.5)*4, first, stride=4).relu(), second, stride=2).relu().mean((2, 3)) for p in x.split(64)]
    return torch.cat(parts)


def published(name: str, layers: tuple[str, ...], x: torch.Tensor) -> list[torch.Tensor]: # means over places (N, d), one a layer
    net, kept = NETWORKS[name](), {}
    mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in net.stats)
    for layer in layers: net.module.get_submodule(layer).register_forward_hook(lambda module, given, out, at=layer: kept.update({at: out.mean((2, 3))}))
    rows = []
    for part in x.split(64):
        net.module((part.float()/255 - mean)/deviation)
        rows.append([kept[layer] for layer in layers])
    return [torch.cat(found) for found in zip(*rows)]


@cache
def populations(data: Path, kept: Path) -> dict[str, torch.Tensor]: # "network/side" -> (POPULATION, d)
    if kept.is_file(): return torch.load(kept, weights_only=True)
    out, spoils = {}, {"base": lambda p: p, "near": lambda p: compressed(p, 60), "far": lambda p: compressed(p, 30, 2)}
    with torch.no_grad():
        for seed, (side, spoil) in enumerate(spoils.items(), 1):
            x = squares(data, seed, spoil)
            wide = random_network(x)
            out |= {f"random{d}/{side}": wide[:, :d].clone() for d in (512, 1024, 2048)}
            for name, layers in PUBLISHED.items(): out |= {f"{label}/{side}": rows for label, rows in zip(layers.values(), published(name, (*layers,), x))}
            print(f"features of {side}", flush=True)
    for name in [key.split("/")[0] for key in out if key.endswith("/base")]:
        base, near = out[f"{name}/base"], out[f"{name}/near"]
        out[f"{name}/nearer"] = torch.cat([base[:POPULATION//2], near[POPULATION//2:]])
    kept.parent.mkdir(exist_ok=True)
    torch.save(out, kept)
    return out


def exact_distance(a: torch.Tensor, b: torch.Tensor) -> float:
    "Of two populations of which every row is known."
    (m, s), (k, t) = ((x.mean(0), np.cov(x.T, bias=True)) for x in (a.double().numpy(), b.double().numpy()))
    values, turn = np.linalg.eigh(s)
    root = turn*np.sqrt(values.clip(min=0))
    overlap = np.sqrt(np.linalg.eigvalsh(root.T @ t @ root).clip(min=0)).sum()
    return float(((m - k)**2).sum() + np.trace(s) + np.trace(t) - 2*overlap)


def draw_features(minutes: float, most: int, out: Path, kept_at: Path) -> None:
    "Draws of every cell, round by round, and their table."
    begun, held = time.monotonic(), populations(Path(os.environ["INVARIANT_METRICS_DATA"]), kept_at.with_name("features.pt"))
    drawn = pd.read_csv(kept_at) if kept_at.is_file() else pd.DataFrame(columns=["network", "gap", "n", "draw"])
    done, rows = set(drawn[["network", "gap", "n", "draw"]].itertuples(index=False, name=None)), drawn.to_dict("records")
    cells = [(name, gap, n) for name, gap in FEATURES for n in DRAWN if n <= (2000 if name in ("random1024", "random2048") else most)]
    for r in range(ROUNDS):
        for name, gap, n in sorted(cells, key=lambda cell: -cell[2]):
            for i in range(DRAWN[n]*r//ROUNDS, DRAWN[n]*(r + 1)//ROUNDS):
                if (name, gap, n, i) in done or (time.monotonic() - begun)/60 > minutes: continue
                a, b, g = held[f"{name}/base"], held[f"{name}/{gap}"], torch_rng(i, "features", name, gap, n)
                x, y = (side[torch.randint(len(side), (n,), generator=g)] for side in (a, b))
                e = frechet_interval.frechet_estimate(x, y)
                rows.append({"network": name, "gap": gap, "d": a.shape[1], "n": n, "draw": i, "value": e.value, "corrected": e.corrected,
                             "se": standard_error(e)[0], **{k: seen[k] for k in ("wide", "steep", "tail")}})
            if rows:
                with atomic_write(kept_at) as path: pd.DataFrame(rows).to_csv(path, index=False, float_format="%.8g")
        print(f"round {r}: {time.monotonic() - begun:.0f} s", flush=True)
    table = feature_table(pd.DataFrame(rows), held)
    with atomic_write(out) as path: table.to_csv(path, index=False, float_format="%.5g")
    print(table.round(3).to_string(index=False))


def feature_table(drawn: pd.DataFrame, held: dict) -> pd.DataFrame:
    "A row for each cell: coverage with exact bounds, and what the rule says."
    rows, truths = [], {}
    for (name, gap, n), mine in drawn.groupby(["network", "gap", "n"], sort=False):
        if (name, gap) not in truths: truths[name, gap] = exact_distance(held[f"{name}/base"], held[f"{name}/{gap}"])
        truth = truths[name, gap]
        inside = (mine["corrected"] - truth).abs() <= 1.959964*mine["se"]
        least, most = scipy.stats.binomtest(int(inside.sum()), len(mine)).proportion_ci(0.95, "exact")
        d = int(mine["d"].iloc[0])
        said = flagged(mine["value"] - mine["corrected"], mine["se"], mine, n, d)
        heavy = (mine["tail"]/(1 + 2/mine["steep"])).clip(lower=1)
        before = n < np.minimum(2*d, frechet_interval.DIRECTIONS*mine["wide"])*heavy
        fresh = (mine["draw"] >= LOOKED_AT.get(n, 0)) | (name in UNSEEN)
        told = {"flagged": said.mean(), "flagged before": before.mean()}
        for label, chosen in (("silent", ~said), ("silent before", ~before), ("fresh", fresh), ("fresh silent", fresh & ~said)):
            told |= {label: int(chosen.sum()), f"{label} covered": int((inside & chosen).sum())}
        told["removed"] = ((mine["value"] - mine["corrected"])/mine["se"]).median()
        rows.append({"network": name, "gap": gap, "d": int(mine["d"].iloc[0]), "n": n, "draws": len(mine), "truth": truth, "covered": inside.mean(),
                     "least": least, "most": most, "value": mine["value"].median(), "corrected": mine["corrected"].median(), "se": mine["se"].median(),
                     "bias": (mine["corrected"] - truth).mean()/mine["corrected"].std(), **told, **mine[["wide", "steep", "tail"]].median()})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="stop after so many")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--known", action="store_true", help="leave out CMMD where its truth has not been computed")
    parser.add_argument("--only", type=float, default=None, help="a decay")
    parser.add_argument("--most", type=int, default=10**9, help="samples a side, at most, of the cells that get more draws")
    parser.add_argument("--draws", type=Path, default=HOME/"runs"/"coverage_distances.csv", help="where single draws are kept")
    parser.add_argument("--out", type=Path, default=HOME/"nbs"/"results"/"coverage_distances.csv")
    parser.add_argument("--features", action="store_true", help="features of networks instead of simulated laws")
    parser.add_argument("--splits", action="store_true", help="only compare three splits with seven")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.splits: return splits(args.out.with_name("coverage_splits.csv"))
    watch_rule()
    if args.features:
        return draw_features(args.minutes, args.most, args.out.with_name("coverage_features.csv"), args.draws.resolve().with_name("coverage_features.csv"))
    begun, args.draws = time.monotonic(), args.draws.resolve()
    kept_at = args.draws.with_suffix(".truth.json")
    kept = json.loads(kept_at.read_text()) if kept_at.is_file() else {}
    drawn = pd.read_csv(args.draws, keep_default_na=True).fillna({"note": ""}) if args.draws.is_file() else pd.DataFrame(columns=[*KEY, "draw", "metric"])
    name = lambda law, *numbers: (law, *map(float, numbers))
    done = {name(*row) for row in drawn[[*KEY, "draw"]].itertuples(index=False)}
    todo = [(c, i) for r in range(args.rounds) for c in cells() if c["n"] <= args.most and args.only in (None, c["decay"])
            for i in range(-(-c["wanted"]*r//args.rounds), -(-c["wanted"]*(r + 1)//args.rounds))]
    for c, i in todo:
        if (time.monotonic() - begun)/60 > args.minutes: break
        if name(*(c[k] for k in KEY), i) in done: continue
        start = time.monotonic()
        drawn = pd.concat([drawn, pd.DataFrame(one_draw(c, i))], ignore_index=True) if len(drawn) else pd.DataFrame(one_draw(c, i))
        with atomic_write(args.draws) as path: drawn.to_csv(path, index=False, float_format="%.9g")
        print(" ".join(f"{k}={c[k]}" for k in KEY), f"draw {i}: {time.monotonic() - start:.1f} s", flush=True)
    try: table = summary(drawn, kept, args.known)
    finally:
        with atomic_write(kept_at) as path: path.write_text(json.dumps(kept, indent=0))
    with atomic_write(args.out) as path: table.to_csv(path, index=False, float_format="%.5g")
    print(table[[*KEY, "metric", "draws", "covered", "least", "most", "bias", "se ratio", "warned"]].round(3).to_string(index=False))


if __name__ == "__main__": main()
