"""Where the intervals of a kernel distance cover the truth: pairs of Gaussian samples with a closed-form MMD², many times over.

Usage: python benchmarks/coverage_mmd.py [--reps 2000]      (writes nbs/results/coverage_mmd.csv; four minutes on one core)"""
import argparse
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from invariant_metrics.files import atomic_write
from invariant_metrics.core import progress, torch_rng
from invariant_metrics.metrics.kernel import RBF, pair_sums
from invariant_metrics.metrics.mmd import pair_estimate, _score_interval

OUT = Path(__file__).parent.parent/"nbs"/"results"/"coverage_mmd.csv"
GRID = [(2, 25), (2, 100), (64, 25), (64, 100), (64, 300), (1024, 25), (1024, 100)]  # d, n
SHIFTS = (0.0, 0.5, 2.0)  # distance of the means, in units of d^(1/4)


def truth(gap: float, d: int, sigma: float) -> float:
    "MMD² of two standard normal distributions whose means are `gap` apart."
    return 2*(1 + 2/sigma**2)**(-d/2)*(1 - np.exp(-gap**2/2/(sigma**2 + 2)))


def cell(d: int, n: int, shift: float, reps: int) -> dict:
    "Coverage of both 95 % intervals, and their mean width in standard deviations of the estimate."
    sigma, gap = d**0.5, shift*d**0.25
    kernel, exact, move = RBF(sigma, normalize=False), truth(gap, d, sigma), torch.zeros(d)
    move[0] = gap
    generator, rows = torch_rng(0, "coverage-mmd", d, n, shift), []
    for _ in range(reps):
        a, b = torch.randn(n, d, generator=generator) + move, torch.randn(n, d, generator=generator)
        sums = pair_sums(a, b, kernel)
        found, score = pair_estimate(sums, unbiased=True), _score_interval(sums, matched=False)
        rows.append((found.value, 1.959964*float(found.pred.var()/n + found.target.var()/n)**0.5, score.low, score.high))
    value, reach, low, high = np.array(rows).T
    return {"d": d, "n": n, "shift": shift, "truth": exact, "bias_in_se": (value.mean() - exact)/value.std(),
            "plain": (np.abs(value - exact) <= reach).mean(), "score": ((low <= exact) & (exact <= high)).mean(),
            "width_plain": 2*reach.mean()/value.std(), "width_score": (high - low).mean()/value.std(), "reps": reps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=2000)
    args = parser.parse_args()
    cells = [cell(d, n, shift, args.reps) for (d, n), shift in progress(list(product(GRID, SHIFTS)), desc="cells")]
    with atomic_write(OUT) as path: pd.DataFrame(cells).to_csv(path, index=False, float_format="%.6g")
    print(pd.DataFrame(cells).to_string(index=False))


if __name__ == "__main__": main()
