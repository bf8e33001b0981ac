"""Does a planned number of items keep its word? For every statistic: plan from a pilot, draw experiments of that size, test, count.

Usage: python benchmarks/power.py [--reps 4000]      (writes nbs/results/power.csv; about ten minutes on one core)"""
import argparse
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats

from invariant_metrics.core import Signature, progress, rng
from invariant_metrics.files import atomic_write
from invariant_metrics.scoring.power import mean_pilot, metric_pilot, power
from invariant_metrics.metrics.metric import Metric, PairedMetric, Rows, SetMetric
from invariant_metrics.metrics.frechet import frechet_distance, frechet_replicates
from invariant_metrics.metrics.frechet_interval import frechet_estimate
from invariant_metrics.scoring.inference import paired_difference, permutation_test
from invariant_metrics.metrics.kernel import RBF
from invariant_metrics.metrics.mmd import mmd2, mmd_estimate, mmd_replicates

OUT = Path(__file__).parent.parent/"nbs"/"results"/"power.csv"
PILOT, SETS = 20_000, 4000  # items of a pilot, so that its own error is small beside 3 %


def identity(x): return x


def set_metric(name: str, **functions) -> Metric:
    return SetMetric(name, identity, higher_is_better=False, signature=Signature.of(metric=name), **functions)


KERNEL = dict(kernel=RBF(2.0, normalize=False), unbiased=True, scale=1.0)
FD = set_metric("fd", compare=frechet_distance, many=frechet_replicates, estimate=frechet_estimate)
MMD = set_metric("mmd", compare=partial(mmd2, **KERNEL), many=partial(mmd_replicates, **KERNEL), estimate=partial(mmd_estimate, **KERNEL))


def bleu_like(sums: torch.Tensor) -> torch.Tensor:
    "Geometric mean of two precisions with a brevity penalty, from summed (matches, matches, words, words − 1, reference words)."
    one, two, words, pairs, reference = sums.unbind(1)
    return 100*(one/words*two/pairs).sqrt()*torch.exp((1 - reference/words).clamp(max=0))


RATIO = PairedMetric("bleu-like", identity, identity, True, Signature.of(metric="bleu-like"), pool=bleu_like, per_item=lambda rows: rows[:, 0]/rows[:, 2])


def rejects(metric: Metric, a: Rows, b: Rows) -> bool:
    "Whether the package's own interval of a paired difference leaves out 0."
    ci = paired_difference(metric, a, b, method="influence").ci
    return not ci.low <= 0 <= ci.high


def paired_mean(draw, reps: int) -> tuple[int, float]:
    hard, each = (lambda n: draw.gamma(2, size=n)), (lambda n: draw.exponential(size=n))
    z = hard(PILOT)
    n = power(mean_pilot(z + each(PILOT) + 0.4, z + each(PILOT)), wished=0.4).n_needed
    return n, float((stats.ttest_1samp(each((reps, n)) + 0.4 - each((reps, n)), 0, axis=1).pvalue < 0.05).mean())


def unpaired_mean(draw, reps: int) -> tuple[int, float]:
    n = power(mean_pilot(draw.normal(0.8, 1, PILOT), draw.normal(0, 2, PILOT), paired=False), wished=0.8).n_needed
    return n, float((stats.ttest_ind(draw.normal(0.8, 1, (reps, n)), draw.normal(0, 2, (reps, n)), axis=1, equal_var=False).pvalue < 0.05).mean())


def few_items(draw, reps: int) -> tuple[int, float]:
    n = power(mean_pilot(draw.normal(size=PILOT)), wished=1.0).n_needed  # ten: Student's law matters
    return n, float((stats.ttest_1samp(draw.normal(1.0, 1, (reps, n)), 0, axis=1).pvalue < 0.05).mean())


def clustered_mean(draw, reps: int) -> tuple[int, float]:
    def values(shape): return (draw.normal(size=(*shape, 1)) + draw.normal(size=(*shape, 5))).reshape(*shape[:-1], -1) + 0.5
    n = power(mean_pilot(values((PILOT//5,)), clusters=np.repeat(np.arange(PILOT//5), 5)), wished=0.5).n_needed
    clusters = -(-n//5)
    means = values((reps, clusters)).reshape(reps, clusters, 5).mean(2)
    return 5*clusters, float((stats.ttest_1samp(means, 0, axis=1).pvalue < 0.05).mean())


def texts(draw, n: int) -> tuple[Rows, Rows]:
    "Two systems' sums on the same sentences; the second drops 1 % more of the words."
    words, easy = draw.integers(6, 25, n), draw.beta(6, 3, n)
    def system(kept):
        said = words - draw.binomial(words, 1 - kept)
        one = draw.binomial(said, easy)
        return Rows(torch.from_numpy(np.stack([one, draw.binomial(np.maximum(one - 1, 0), 0.8*easy), said, np.maximum(said - 1, 1), words], 1).astype(float)))
    return system(0.99), system(0.97)


def corpus_ratio(draw, reps: int) -> tuple[int, float]:
    big, pilot = texts(draw, 400_000), texts(draw, PILOT)
    truth = [float(bleu_like(rows.pred.sum(0)[None])) for rows in big]
    n = power(metric_pilot(RATIO, *pilot), wished=truth[0] - truth[1]).n_needed
    return n, float(np.mean([rejects(RATIO, *texts(draw, n)) for _ in range(reps)]))


def clouds(draw, n: int, shifts: tuple, d: int = 4) -> tuple[Rows, ...]:
    "Systems that answer the same inputs with an error of their own and a shift, against one reference of other items."
    inputs, target = 0.8*draw.normal(size=(n, d)), torch.from_numpy(draw.normal(size=(n, d)))
    def system(shift): return torch.from_numpy(inputs + 0.6*draw.normal(size=(n, d)) + np.r_[shift, np.zeros(d - 1)])
    return tuple(Rows(system(s), target, matched=False) for s in shifts)


def frechet_pair(draw, reps: int) -> tuple[int, float]:
    n = power(metric_pilot(FD, *clouds(draw, SETS, (0.9, 0.7))), wished=0.9**2 - 0.7**2).n_needed  # equal covariances: squared shifts
    return n, float(np.mean([rejects(FD, *clouds(draw, n, (0.9, 0.7))) for _ in range(reps)]))


def mmd_of(shift: float, d: int = 4, sigma: float = 2.0) -> float:
    return 2*(1 + 2/sigma**2)**(-d/2)*(1 - np.exp(-shift**2/2/(sigma**2 + 2)))


def mmd_pair(draw, reps: int) -> tuple[int, float]:
    n = power(metric_pilot(MMD, *clouds(draw, SETS, (0.9, 0.7))), wished=mmd_of(0.9) - mmd_of(0.7)).n_needed
    return n, float(np.mean([rejects(MMD, *clouds(draw, n, (0.9, 0.7))) for _ in range(reps)]))


def against_zero(metric: Metric, truth: float, draw, reps: int, shift: float = 0.45) -> tuple[int, float]:
    n = power(metric_pilot(metric, *clouds(draw, 600, (shift,))), wished=truth).n_needed
    tests = [permutation_test(metric, *clouds(draw, n, (shift,)), reps=199, seed=k) for k in range(reps)]
    return n, float((np.array(tests) <= 0.05).mean())


def frechet_zero(draw, reps: int) -> tuple[int, float]: return against_zero(FD, 0.45**2, draw, reps)


def mmd_zero(draw, reps: int) -> tuple[int, float]: return against_zero(MMD, mmd_of(0.45), draw, reps)


SIMULATIONS = {"mean, paired": paired_mean, "mean, unpaired": unpaired_mean, "mean, few items": few_items, "mean, clusters": clustered_mean,
               "corpus BLEU-like, paired": corpus_ratio, "Fréchet, two systems": frechet_pair, "MMD, two systems": mmd_pair,
               "Fréchet against 0": frechet_zero, "MMD against 0": mmd_zero}
COSTLY = ("corpus BLEU-like, paired", "Fréchet, two systems", "MMD, two systems", "Fréchet against 0", "MMD against 0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=4000, help="experiments; a quarter of it for the costly ones")
    args = parser.parse_args()
    rows = []
    for name, simulate in progress(SIMULATIONS.items(), desc="statistics"):
        reps = args.reps//4 if name in COSTLY else args.reps
        n, share = simulate(rng(0, "power", name), reps)
        rows.append({"statistic": name, "planned_n": n, "rejections": share, "margin": 1.96*(share*(1 - share)/reps)**0.5, "experiments": reps})
    with atomic_write(OUT) as path: pd.DataFrame(rows).to_csv(path, index=False, float_format="%.4g")
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__": main()
