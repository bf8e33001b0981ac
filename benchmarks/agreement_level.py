"""Type I error of tests between two equally good metrics, by procedure and by what is drawn again.

Usage: python benchmarks/agreement_level.py [replicates] -> nbs/results/agreement_level.csv
       python benchmarks/agreement_level.py family [worlds] -> nbs/results/family_error.csv: how often Holm's adjustment lets anything
       through among twenty equally good metrics, in 19 comparisons with a baseline and in all 190 (a minute)
12 systems x 60 items; each world has system and item effects of people and of each metric. Three nulls: new items (system
effects fixed), new systems (item effects fixed), both; where effects are fixed they are either equal for both metrics, or
different with the same true agreement. Simulated: needs no data.
"""
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.files import atomic_write
from invariant_metrics.core import progress, rng
from invariant_metrics.people.draws import GENERALIZATIONS, draw_replicates, p_value, standard_errors
from invariant_metrics.people.score_table import score_table
from exchange import swap_test
from invariant_metrics.people.statistics import AGREEMENTS
from invariant_metrics.stats import holm

OUT = Path(__file__).parent.parent/"nbs"/"results"/"agreement_level.csv"
SD = (.5, .5, 1, .5, .5, 1)  # people: system, item, cell; metric: system, item, cell
NULLS = [("items", "equal"), ("items", "different"), ("systems", "equal"), ("systems", "different"), ("both", "random")]  # what is drawn again, fixed effects
CASES = [("pearson", "item"), ("pearson", "system"), ("tau_b", "system"), ("pearson", "within-item")]


def fixed_effects(effect: np.ndarray, drawn: np.ndarray, kind: str, scale: float) -> np.ndarray:
    "One profile for both metrics, or two that are as large and as unrelated to people's."
    if kind == "equal": return np.repeat(drawn[:1], len(drawn), 0)
    q = np.linalg.qr(np.stack([np.ones(len(effect)), effect, *drawn]).T)[0]
    return q[:, 2:].T*scale*len(effect)**0.5


def world(seed: int, target: str, kind: str, items: int = 60, systems: int = 12, metrics: int = 2) -> tuple[np.ndarray, np.ndarray]:
    "Scores of people (I, S) and of equally good metrics (M, I, S)."
    g, still, (sa, sb, sc, su, sv, sw) = rng(seed, "world", target, kind), rng(0, "fixed"), SD
    a, b, u, v = (f.normal(0, s, n) for f, s, n in ((g, sa, systems), (g, sb, items), (g, su, (metrics, systems)), (g, sv, (metrics, items))))
    if target == "items":
        a = still.normal(0, sa, systems)
        u = fixed_effects(a, still.normal(0, su, (metrics, systems)), kind, su)
    if target == "systems":
        b = still.normal(0, sb, items)
        v = fixed_effects(b, still.normal(0, sv, (metrics, items)), kind, sv)
    human = a + b[:, None] + g.normal(0, sc, (items, systems))
    return human, human + u[:, None, :] + v[:, :, None] + g.normal(0, sw, (metrics, items, systems))


def rejections(seed: int, null: tuple[str, str], case: tuple[str, str], reps: int = 200, swaps: int = 0) -> dict[str, bool]:
    "What each procedure says at 5 %."
    statistic, unit = case
    table, out = score_table(*world(seed, *null)), {}
    draws = draw_replicates(table, statistic, unit, "both", reps, seed)
    gap = lambda part: draws.parts[part][0] - draws.parts[part][1]
    for target in GENERALIZATIONS:
        parts = draws.parts if target == "both" else {target: draws.parts[target]}
        own = type(draws)(draws.full, parts, draws.without, {k: n for k, n in draws.counts.items() if k in parts})
        out[f"new {target}" if target != "both" else "new items and systems"] = p_value(*standard_errors(own, AGREEMENTS[statistic], np.array([[1., -1]])))[0] <= 0.05
    low, high = np.nanquantile(gap("both"), [0.025, 0.975])
    out["two-way bootstrap, percentile"] = low > 0 or high < 0
    low, high = np.nanquantile(gap("items"), [0.025, 0.975])
    out["item bootstrap, percentile"] = low > 0 or high < 0
    if swaps:
        for part in ("cell", "item", "system"): out[f"swap each {part}"] = swap_test(table, *table.names, statistic, unit, part, reps=swaps, seed=seed) <= 0.05
    return out


def family(worlds: int, metrics: int = 20) -> None:
    "How often Holm lets any comparison of equally good metrics through."
    i, j = np.triu_indices(metrics, 1)
    pairs, rows = np.eye(metrics)[i] - np.eye(metrics)[j], []
    for target in GENERALIZATIONS:
        kind, found = "random" if target == "both" else "equal", []
        for seed in progress(range(worlds), desc=f"new {target}"):
            draws = draw_replicates(score_table(*world(seed, target, kind, metrics=metrics)), "pearson", "item", target, 300, seed)
            p = p_value(*standard_errors(draws, AGREEMENTS["pearson"], pairs))
            found.append([(holm(p[i == 0]) <= 0.05).any(), (holm(p) <= 0.05).any()])
        for rate, what in zip(np.mean(found, 0), ("with a baseline", "all pairs")):
            rows.append(dict(generalize=target, comparisons=what, metrics=metrics, rejected=rate, worlds=worlds))
    with atomic_write(OUT.with_name("family_error.csv")) as place: pd.DataFrame(rows).to_csv(place, index=False, float_format="%.4f")
    print(pd.DataFrame(rows).to_string(index=False))


def main() -> None:
    if sys.argv[1:2] == ["family"]: return family(int(sys.argv[2]) if len(sys.argv) > 2 else 2000)
    count, rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1000, []
    for case in CASES:
        for null in NULLS:
            n, swapped = (count//4, 0) if case[1] == "within-item" else (count, count//5 if case[0] == "pearson" else 0)
            found = pd.DataFrame([rejections(seed, null, case, swaps=99*(seed < swapped)) for seed in progress(range(n), desc=f"{case} {null}")])
            for procedure, said in found.items():
                rows.append(dict(statistic=case[0], unit=case[1], null=null[0], effects=null[1], procedure=procedure, rejected=said.dropna().mean(), replicates=said.count()))
            with atomic_write(OUT) as place: pd.DataFrame(rows).to_csv(place, index=False, float_format="%.4f")


if __name__ == "__main__": main()
