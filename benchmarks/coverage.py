"""How often a 95 % interval of the Fréchet distance holds the true distance, where the truth is known.

Usage: python benchmarks/coverage.py [--reps 2000] [--out nbs/results/coverage.csv] [--only WORD]
One row a cell of the map: width d, spectrum (eigenvalues of the covariance fall as i^-decay), n samples on either side. Rows are
written as they are done and a run resumes where the last one stopped. One thread; every cell has its own seed, whatever the order.
Estimates: "plain" the plug-in value, "one side" extrapolated by halving the first set alone, "halved" both sets halved, all with the
standard error of the influence function; "bootstrap" the percentiles of `draws` resamples (cells of small d); "shifted" the halved one
moved by the skewness of the influences, "wide" with the variance from split to split added. Biases, the mean standard error and the mean
spread from split to split are in units of the halved estimate's spread. "below": the interval ends below the truth. "rank", "root rank",
"evenness": medians of (Σσ)²/Σσ², (Σ√σ)²/Σσ and (mean‖c‖²)²/mean‖c‖⁴; "skewness": of the mean of the influences; "shaky": relative
error of the squared standard error."""
import argparse
import time
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from invariant_metrics.files import atomic_write
from invariant_metrics.core import torch_rng
from invariant_metrics.metrics.frechet import frechet_distance
from invariant_metrics.metrics.frechet_interval import frechet_influence

PARTS, Z = 8, 1.959964
SIZES = {8: (8, 16, 32, 64, 128, 256, 1024), 32: (16, 32, 48, 64, 128, 256, 1024), 64: (32, 64, 96, 128, 256, 1024),
         128: (64, 128, 256, 512)}


def cells() -> list[dict]:
    "The map, and the cells beside it: closer sets, equal sets, other distributions, matched rows, clusters; cheap ones first."
    usual = {"data": "gauss", "gap": 1.0, "draws": 0}
    grid = [dict(usual, d=d, decay=p, n=n) for d in SIZES for p, n in product((0, 1, 2), SIZES[d])]
    beside = [dict(usual, d=32, decay=p, n=n, gap=gap) for gap in (0.1, 0.0) for p in (0, 1, 2) for n in (128, 1024)]
    beside += [dict(usual, d=32, decay=1, n=256, data=data) for data in ("exponential", "elliptical", "matched", "clustered")]
    beside += [dict(usual, d=32, decay=0, n=n, data=data) for data in ("exponential", "elliptical") for n in (64, 128, 256, 1024)]
    drawn = [dict(usual, d=8, decay=p, n=n, draws=200) for p in (0, 1, 2) for n in (64, 256)]
    cheap, dear = ([c for c in grid if (c["d"] >= 128) == big] for big in (False, True))
    return [c for c in cheap if c["d"] <= 32] + beside + [c for c in cheap if c["d"] > 32] + drawn + dear


@lru_cache
def problem(d: int, decay: float, gap: float) -> tuple[Tensor, Tensor, Tensor, float]:
    "Factors A, B with AᵀA = Σ₁, BᵀB = Σ₂, the shift of the means, and the squared Fréchet distance; gap 0: equal distributions."
    g = torch_rng(0, "coverage", d)
    variances = torch.arange(1, d + 1, dtype=torch.float64)**-decay
    turn = torch.randn(d, d, generator=g, dtype=torch.float64) / d**0.5
    other = variances * (1 + 0.6*gap*torch.rand(d, generator=g, dtype=torch.float64))
    a, b = torch.diag(variances.sqrt()), torch.diag(other.sqrt()) @ torch.matrix_exp(0.2*gap*(turn - turn.T)).T
    shift = variances.sqrt() * torch.randn(d, generator=g, dtype=torch.float64).sign() * (0.1**0.5 * gap)
    truth = shift.square().sum() + a.square().sum() + b.square().sum() - 2*torch.linalg.svdvals(a @ b.T).sum()
    return a, b, shift, float(truth) if gap else 0.0


def noise(shape: tuple, data: str, g: torch.Generator) -> Tensor:
    "(R, n, d) samples with mean 0 and covariance I: Gaussian, skewed (exponential), heavy-tailed (elliptical), or four alike (clustered)."
    z = torch.randn(shape, generator=g, dtype=torch.float64)
    if data == "exponential": return -torch.rand(shape, generator=g, dtype=torch.float64).log() - 1
    if data == "elliptical": return z * torch.where(torch.rand(*shape[:2], 1, generator=g) < 0.8, 0.5, 2.0)
    if data != "clustered": return z
    return (z + torch.randn(shape[0], shape[1]//4, shape[2], generator=g, dtype=torch.float64).repeat_interleave(4, 1)) / 2**0.5


def draw(cell: dict, count: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    "`count` pairs of sample sets."
    a, b, shift, _ = problem(cell["d"], cell["decay"], cell["gap"])
    z, w = (noise((count, cell["n"], cell["d"]), cell["data"], g) for _ in "ab")
    if cell["data"] == "matched": w = 0.8*z + 0.6*w
    return z @ a, w @ b + shift


def scatter(x: Tensor) -> Tensor: return x.mT @ x


def trace(x: Tensor) -> Tensor: return x.diagonal(dim1=-2, dim2=-1).sum(-1)


def root(cov: Tensor) -> Tensor:
    "Cholesky factor, with a ridge far below any standard error."
    return torch.linalg.cholesky(cov + 1e-13 * trace(cov)[..., None, None] * torch.eye(cov.shape[-1], dtype=cov.dtype))


def distance(gap: Tensor, cov: Tensor, other: Tensor) -> Tensor:
    "Fréchet distances of a batch of covariances; gap is the difference of the means."
    factor = root(cov)
    overlap = torch.linalg.eigvalsh(factor.mT @ other @ factor).clamp(min=0).sqrt().sum(-1)
    return gap.square().sum(-1) + trace(cov) + trace(other) - 2*overlap


def small(x: Tensor, y: Tensor) -> Tensor:
    "The same from rows, where there are fewer of them than features."
    (mx, a), (my, b) = ((m := z.mean(-2, keepdim=True), (z - m) / (z.shape[-2] - 1)**0.5) for z in (x, y))
    cross = a @ b.mT
    overlap = torch.linalg.eigvalsh(cross @ cross.mT).clamp(min=0).sqrt().sum(-1)
    return (mx - my).square().sum((-1, -2)) + a.square().sum((-1, -2)) + b.square().sum((-1, -2)) - 2*overlap


def halves(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    "(R, splits) mean distance of complementary halves, both sets halved; (R,) the first set alone halved, one split."
    count, n, d = x.shape
    signs = torch.ones(1, 1)
    while len(signs) < PARTS: signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
    parts_x, parts_y = (z.view(count, PARTS, n//PARTS, d) for z in (x, y))
    def rows(z, sel): return z if sel is None else z[:, sel].flatten(1, 2)
    if n//2 > d: sums_x, sums_y, outer_x, outer_y = parts_x.sum(2), parts_y.sum(2), scatter(parts_x), scatter(parts_y)
    def moments(sums, outer, sel):
        size = n//PARTS * int(sel.sum())
        mean = sums[:, sel].sum(1) / size
        return mean, (outer[:, sel].sum(1) - size*mean[:, :, None]*mean[:, None]) / (size - 1)
    def one(sx, sy):
        if n//2 <= d: return small(rows(parts_x, sx), rows(parts_y, sy))
        (mx, cx), (my, cy) = moments(sums_x, outer_x, sx), moments(sums_y, outer_y, sy)
        return distance(mx - my, cx, cy)
    every = torch.ones(PARTS, dtype=torch.bool)
    both = torch.stack([(one(s > 0, s > 0) + one(s < 0, s < 0)) / 2 for s in signs[1:]], 1)
    return both, (one(signs[1] > 0, every) + one(signs[1] < 0, every)) / 2


def plain(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    "(R,) plug-in distances, (R, n) influences of either set, (R, k) singular values of the overlap."
    n, d, gap = x.shape[1], x.shape[2], x.mean(1) - y.mean(1)
    a, b = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    if n > d:
        factor = root(scatter(a) / (n - 1))
        values, vectors = torch.linalg.eigh(factor.mT @ (scatter(b) / (n - 1)) @ factor)
        sigma = values.clamp(min=1e-30).sqrt()
        u, v = torch.linalg.solve_triangular(factor, a.mT, upper=False).mT @ vectors, b @ (factor @ vectors) / sigma[:, None]
    else:
        left, sigma, right = torch.linalg.svd(a @ b.mT / (n - 1), full_matrices=False)
        u, v = left * (n - 1)**0.5, right.mT * (n - 1)**0.5
    value = gap.square().sum(-1) + (a.square().sum((1, 2)) + b.square().sum((1, 2))) / (n - 1) - 2*sigma.sum(-1)
    one = 2*(a @ gap[..., None])[..., 0] + a.square().sum(-1) - (u.square() @ sigma[..., None])[..., 0]
    two = -2*(b @ gap[..., None])[..., 0] + b.square().sum(-1) - (v.square() @ sigma[..., None])[..., 0]
    return value, one, two, sigma


def standard_error(one: Tensor, two: Tensor, data: str) -> tuple[Tensor, Tensor, Tensor]:
    "(R,) from the influences of independent sets, matched rows or clusters of four; skewness; relative error of the square."
    parts = [one + two] if data == "matched" else [one, two]
    if data == "clustered": parts = [z.unflatten(1, (-1, 4)).mean(2) for z in parts]
    n = parts[0].shape[1]
    parts = [z - z.mean(1, keepdim=True) for z in parts]
    variance = sum(z.var(1) / n for z in parts)
    skewness = sum(z.pow(3).mean(1) / n**2 for z in parts) / variance**1.5
    return variance.sqrt(), skewness, sum((z.pow(4).mean(1) - z.var(1)**2) / n**3 for z in parts).clamp(min=0).sqrt() / variance


def evenness(x: Tensor) -> Tensor:
    "(R,) share of the samples that carry the trace: 1 where all are as far from the mean, small for heavy tails."
    far = (x - x.mean(1, keepdim=True)).square().sum(-1)
    return far.mean(1)**2 / far.square().mean(1)


def percentiles(x: Tensor, y: Tensor, g: torch.Generator, draws: int) -> tuple[Tensor, Tensor]:
    "Ends of the percentile bootstrap of each pair of sets."
    n, ends = x.shape[1], []
    for p, q in zip(x, y):
        i, j = torch.randint(n, (2, draws, n), generator=g)
        p, q = p[i], q[j]
        mp, mq = p.mean(1, keepdim=True), q.mean(1, keepdim=True)
        values = distance((mp - mq)[:, 0], scatter(p - mp) / (n - 1), scatter(q - mq) / (n - 1))
        ends.append(torch.quantile(values, torch.tensor([0.025, 0.975], dtype=torch.float64)))
    return tuple(torch.stack(ends, 1))


def simulate(cell: dict, reps: int) -> dict:
    "One row of the table."
    g = torch_rng(1, "coverage", *({**cell, "draws": bool(cell["draws"])}).values())
    truth = problem(cell["d"], cell["decay"], cell["gap"])[3]
    at_once, found = max(1, min(100, int(5e5 / (cell["n"] * cell["d"])))), []
    while sum(len(f["plain"]) for f in found) < reps:
        x, y = draw(cell, at_once, g)
        value, one, two, sigma = plain(x, y)
        both, single = halves(x, y)
        (se, skewness, shaky), halved, alone = standard_error(one, two, cell["data"]), 2*value - both.mean(1), 2*value - single
        row = {"plain": value, "halved": halved, "alone": alone, "se": se, "split": both.std(1), "skewness": skewness, "shaky": shaky,
               "rank": sigma.sum(1)**2 / sigma.square().sum(1), "root rank": sigma.sqrt().sum(1)**2 / sigma.sum(1), "evenness": evenness(x)}
        row |= {f"in {k}": (v - truth).abs() <= Z*se for k, v in (("plain", value), ("one side", alone), ("halved", halved))}
        if cell["draws"]: low, high = percentiles(x, y, g, cell["draws"]); row["in bootstrap"] = (low <= truth) & (truth <= high)
        found.append({k: v.double().numpy() for k, v in row.items()})
    return {**cell, "reps": reps, "truth": truth, **summary({k: np.concatenate([f[k] for f in found])[:reps] for k in found[0]}, truth)}


def summary(found: dict, truth: float) -> dict:
    "Coverage of each interval, and what decides it: bias in units of the spread, standard error over spread, effective widths."
    spread, off, shift = found["halved"].std(), found["halved"] - truth, found["se"] * found["skewness"] * (1 + 2*Z**2) / 6
    table = {k.removeprefix("in "): v.mean() for k, v in found.items() if k.startswith("in ")}
    p = table["halved"]
    return {**table, "margin": Z * (p*(1 - p)/len(off))**0.5, "bias plain": (found["plain"].mean() - truth) / spread,
            "bias one side": (found["alone"].mean() - truth) / spread, "bias halved": off.mean() / spread,
            "se ratio": found["se"].mean() / spread, "split ratio": found["split"].mean() / spread, "spread": spread,
            "below": (off + Z*found["se"] < 0).mean(), "shifted": (np.abs(off + shift) <= Z*found["se"]).mean(),
            "wide": (np.abs(off) <= Z*(found["se"]**2 + found["split"]**2)**0.5).mean(),
            **{k: np.median(found[k]) for k in ("rank", "root rank", "evenness", "skewness", "shaky")}}


def agree() -> None:
    "The batched plug-in value and influences are those of the package."
    cell = cells()[20] | {"n": 96}
    x, y = draw(cell, 2, torch_rng(2, "coverage"))
    for route in ((x, y), (x[:, :8], y[:, :8])):
        value, one, two, _ = plain(*route)
        for i in range(2):
            theirs = frechet_influence(route[0][i], route[1][i])
            assert abs(float(value[i]) - frechet_distance(route[0][i], route[1][i])) < 1e-8
            assert all(torch.allclose(z[i] - z[i].mean(), t, atol=1e-6) for z, t in zip((one, two), theirs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent/"nbs"/"results"/"coverage.csv")
    parser.add_argument("--only", default="", help="a distribution: gauss, exponential, elliptical, matched, clustered")
    args = parser.parse_args()
    torch.set_num_threads(1)
    agree()
    done = pd.read_csv(args.out).to_dict("records") if args.out.exists() else []
    known = {tuple(str(r[k]) for k in cells()[0]) for r in done}
    todo = [c for c in cells() if tuple(str(v) for v in c.values()) not in known and args.only in c["data"]]
    for i, cell in enumerate(todo):
        begun = time.perf_counter()
        done.append(simulate(cell, args.reps))
        with atomic_write(args.out) as path: pd.DataFrame(done).to_csv(path, index=False, float_format="%.5g")
        found = f"halved {done[-1]['halved']:.3f} ± {done[-1]['margin']:.3f}, {time.perf_counter() - begun:.0f} s"
        print(f"{i + 1}/{len(todo)} {cell} {found}", flush=True)


if __name__ == "__main__": main()
