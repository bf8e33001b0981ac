"""How often intervals of precision, recall, density and coverage hold the true value: a simulation with a known answer.

Usage: python benchmarks/coverage_neighbors.py [--reps 300] [--seed 0]      (writes nbs/results/neighbors_coverage.csv)
Clouds are normal; predictions are shifted along one axis and scaled. The true value of a statistic is its expectation at
these numbers of items, taken as the mean over all replicates, whose error is a seventeenth of one replicate's. Methods:
half-splits is what the metrics give, delete-one the same influences not scaled, binomial takes the balls for known,
bootstrap is the normal interval from 25 resamplings of every tenth replicate. The row "difference" compares two systems
on the same targets by paired intervals."""
import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from invariant_metrics.core import Signature, progress, rng
from invariant_metrics.files import atomic_write
from invariant_metrics.stats import bootstrap_weights
from invariant_metrics.metrics.metric import Estimate, Rows, SetMetric
from invariant_metrics.scoring.inference import paired_difference
from invariant_metrics.metrics.estimate import standard_error
from invariant_metrics.metrics.neighbors import _PAPER_K, neighbor_estimate, _neighbor_influences
from invariant_metrics.metrics.neighbors import _neighbor_score

SETTINGS = [dict(n=100, m=100, d=2, shift=1.0, scale=1.0), dict(n=200, m=200, d=8, shift=0.5, scale=1.0),
            dict(n=200, m=400, d=8, shift=0.5, scale=0.8), dict(n=200, m=200, d=64, shift=2.0, scale=1.0),
            dict(n=400, m=400, d=8, shift=0.0, scale=0.5)]
RESAMPLINGS, EVERY = 25, 10


def clouds(setting: dict, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    "Predictions of two systems (the second shifted a little further) and targets."
    normal = lambda n: torch.randn(n, setting["d"], generator=generator, dtype=torch.float64)
    direction = torch.zeros(setting["d"], dtype=torch.float64); direction[0] = 1
    pred = setting["scale"]*normal(setting["n"]) + setting["shift"]*direction
    return pred, pred + 0.3*direction + 0.3*setting["scale"]*normal(setting["n"]), normal(setting["m"])


def errors(name: str, k: int, pred: torch.Tensor, target: torch.Tensor, seed: int) -> dict[str, tuple[float, float, float]]:
    "Value, standard error and half-width in standard errors, by each method."
    found = neighbor_estimate(pred, target, matched=False, clusters=None, seed=seed, name=name, k=k)
    units = len(target if name in ("recall", "coverage") else pred)
    swap = name == "recall"
    parts = _neighbor_influences(name, *((target, pred) if swap else (pred, target)), k)
    raw = standard_error(Estimate(found.value, pred=parts[swap], target=parts[not swap]))[0]
    conditional = float(parts[0].var()/units)**0.5 if name == "density" else (found.value*(1 - found.value)/units)**0.5
    out = {"half-splits": (found.value, found.se, 2.086), "delete-one": (found.value, raw, 1.96),
           "binomial": (found.value, conditional, 1.96)}
    if seed % EVERY == 0:
        weights = [bootstrap_weights(len(z), RESAMPLINGS, rng(seed, "simulated", side)) for side, z in enumerate((pred, target))]
        drawn = [_neighbor_score(name, pred, target, torch.from_numpy(u), torch.from_numpy(v), k) for u, v in zip(*weights)]
        out["bootstrap"] = (found.value, float(np.std(drawn, ddof=1)), 2.064)
    return out


def gap(name: str, k: int, pred: torch.Tensor, other: torch.Tensor, target: torch.Tensor, seed: int) -> tuple[float, float, float]:
    "The paired difference of two systems, its standard error and half-width."
    def estimate(p, t, **options): return neighbor_estimate(p, t, **options, name=name, k=k)
    metric = SetMetric(name, None, None, None, Signature.of(metric=name), estimate=estimate)
    score = paired_difference(metric, Rows(pred, target, matched=False), Rows(other, target, matched=False), seed=seed)
    return score.value, (score.ci.high - score.ci.low)/2, 1.0


def simulate(setting: dict, reps: int, seed: int) -> list[dict]:
    "One row per statistic and method."
    generator, kept, label = torch.Generator().manual_seed(seed), {}, " ".join(f"{key}={value}" for key, value in setting.items())
    for i in progress(range(reps), desc=label):
        pred, other, target = clouds(setting, generator)
        for name, k in _PAPER_K.items():
            for method, triple in errors(name, k, pred, target, i).items(): kept.setdefault((name, method), []).append(triple)
            if i % EVERY < 3: kept.setdefault((name, "difference"), []).append(gap(name, k, pred, other, target, i))
    rows = []
    for (name, method), triples in kept.items():
        value, se, width = np.array(triples).T
        center = value if method == "difference" else np.array(kept[name, "half-splits"])[:, 0]
        spread, covered = center.std(ddof=1), np.abs(value - center.mean()) <= width*se
        ratio = np.square(se).mean()**0.5/(1.96 if method == "difference" else 1)/spread
        rows.append(dict(setting=label, statistic=name, method=method, true=center.mean(), sd=spread, ratio=ratio,
                         covered=covered.mean(), reps=len(se)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=300); parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = pd.DataFrame([row for setting in SETTINGS for row in simulate(setting, given.reps, given.seed)])
    place = Path(__file__).parent.parent/"nbs"/"results"/"neighbors_coverage.csv"
    with atomic_write(place) as path: table.to_csv(path, index=False, float_format="%.4g")
    print(table.pivot_table(index=["setting", "statistic"], columns="method", values="covered", sort=False).round(3).to_string())
    print(table.pivot_table(index=["setting", "statistic"], columns="method", values="ratio", sort=False).round(2).to_string())


if __name__ == "__main__": main()
