"""How often the 95 % intervals of a probe over sets hold the true value, on fresh collections of pictures.

Usage: python benchmarks/coverage_probe.py [COLLECTIONS] [--store]
Eight families at five levels, three of them matched in a falling share of the pictures (75 to 22 %), as bleeding is; sixty sets. Of every collection: a metric
that says random numbers, whose true share is one half, and a planted one, whose photographs differ in how much they show and whose true share is the mean over
all collections. How: `now`, the package's interval, with PARTNERS valid partners in turn; `tables before` and `profile before`, the two intervals it replaces,
all families compared with one partner. Coverage with its error over collections; `misses` is how many of the eight families miss, its mean and variance over
collections (independent families: a variance a little below the mean). With --store: nbs/results/coverage_probe.csv."""
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.core import rng
from invariant_metrics.files import atomic_write
from invariant_metrics.probes.preference import draw_sets, share_interval, wins
from invariant_metrics.stats import student, wilson

COLLECTIONS = ((10, 16), (60, 2), (176, 1)) # photographs and tiles of each: packaged, sixty of a folder, scenes
FAMILIES, LEVELS, SETS, PARTNERS = 8, 5, 60, 2
LOST = np.array([.25, .35, .5, .65, .78]) # share of pictures that cannot be matched, by level


def variance_before(t: np.ndarray, drawn: np.ndarray) -> float:
    "The jackknife minus what chance adds, cut off at zero."
    slope = ((drawn - drawn.mean(0)) * (t - t.mean())[:, None]).mean(0)
    return max((slope**2).sum() - drawn[0].sum() * (1 - 1 / drawn.shape[1]) * t.var() / len(t), 0) + t.var() / len(t)


def tables_before(t: np.ndarray, drawn: np.ndarray) -> tuple:
    variance = variance_before(t, drawn)
    return wilson(t.mean(), np.clip(t.var() / variance if variance > 0 else np.inf, 1, min(drawn.shape)))


def profile_before(t: np.ndarray, drawn: np.ndarray) -> tuple:
    reach = student.ppf(0.975, drawn.shape[1] - 1) * variance_before(t, drawn)**.5
    return t.mean(), t.mean() - reach, t.mean() + reach


HOW = {"now": share_interval, "tables before": tables_before, "profile before": profile_before}


def over_sets(counts: np.ndarray, scores: np.ndarray, ok: np.ndarray) -> np.ndarray: # (B, N), (L, N), (L, N) -> (L, B)
    "Mean scores of sets, NaN where fewer than 8 pictures are left."
    number = ok @ counts.T
    return np.where(number >= 8, (np.where(ok, scores, 0) @ counts.T) / np.maximum(number, 1), np.nan)


def collection(metric: str, seed: int, photos: int, tiles: int, how: str) -> list[dict]:
    "The share and its interval of every family of one fresh collection."
    g, cluster = rng(seed, "fresh", metric, photos), np.repeat(np.arange(photos), tiles)
    n, partners, rows = len(cluster), PARTNERS if how == "now" else 1, []
    counts, draws = draw_sets(cluster, SETS, rng(seed, "sets"), 48)
    reach, own = g.random(n), g.standard_normal(photos)[cluster]
    valid = g.random((PARTNERS, LEVELS, n)) if metric == "random" else own + g.standard_normal((PARTNERS, LEVELS, n))
    for f in range(FAMILIES):
        there = reach > LOST[:, None] if f < 3 else np.ones((LEVELS, n), bool)
        shown = .6 * g.standard_normal(photos)[cluster] + .1 * (f - 3)              # a photograph's own effect of this family
        bad = g.random((LEVELS, n)) if metric == "random" else own + shown + g.standard_normal((LEVELS, n))
        verdicts = wins(over_sets(counts, bad, there), over_sets(counts, valid[f % partners], there))
        known = np.isfinite(verdicts)
        t = np.where(known, verdicts, 0).sum(0) / np.maximum(known.sum(0), 1)
        value, low, high = HOW[how](t[known.any(0)], draws[known.any(0)])
        rows.append(dict(collection=seed, family=f, value=value, low=low, high=high))
    return rows


if __name__ == "__main__":
    words = [w for w in sys.argv[1:] if w != "--store"]
    count, rows = int(words[0]) if words else 400, []
    for metric in ("random", "planted"):
        for photos, tiles in COLLECTIONS:
            for how in HOW:
                frame = pd.DataFrame([row for seed in range(count) for row in collection(metric, seed, photos, tiles, how)])
                true = 0.5 if metric == "random" else frame.groupby("family")["value"].transform("mean")
                hit = (frame["low"] <= true) & (true <= frame["high"])
                misses = (~hit).groupby(frame["collection"]).sum()
                rows.append(dict(metric=metric, photographs=photos, tiles=tiles, how=how, collections=count, coverage=hit.mean(),
                                 error=hit.groupby(frame["collection"]).mean().std() / count**.5, width=(frame["high"] - frame["low"]).mean(),
                                 misses=misses.mean(), misses_variance=misses.var(), three_or_more=(misses >= 3).mean()))
                print({k: round(v, 3) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
    if "--store" in sys.argv:
        with atomic_write(Path(__file__).parent.parent/"nbs"/"results"/"coverage_probe.csv") as path: pd.DataFrame(rows).round(4).to_csv(path, index=False)
