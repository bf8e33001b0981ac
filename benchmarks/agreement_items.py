"""How often an interval for agreement of systems holds the value of all items: the plain one, and the one with the noise of few items taken away.

Usage: [INVARIANT_METRICS_DATA=FOLDER] python benchmarks/agreement_items.py [draws]    (default 100; writes nbs/results/agreement_items.csv; some minutes)

REALSumm: n of the 50 documents, drawn with replacement; the truth is the value of all of them, for 14 metrics of 25 systems. simulated: 2,000
items, systems whose true values differ by half the spread of a single score, four metrics of true agreement .95, .8, .5, 0 and
errors that people and metrics share by .3; new items of 12 systems, or new items and 20 new systems of a world where agreement is known.
which: metrics with more than .6 (high), all others (low). plain, corrected: coverage of 95 % intervals where there are any; `has` their share."""
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.core import rng
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.files import atomic_write
from invariant_metrics.people.agreement import AgreementDesign, metric_agreement
from invariant_metrics.people.attenuation import all_items
from invariant_metrics.people.score_table import replicate_statistic, score_table
from invariant_metrics.people.statistics import AGREEMENTS

OUT = Path(__file__).parent.parent/"nbs"/"results"/"agreement_items.csv"
TRUE = (.95, .8, .5, 0.)


def realsumm(data: Path) -> tuple[np.ndarray, np.ndarray]: # (I, S) people, (M, I, S) metrics
    judged = load_judgments(data/"summarization"/"realsumm_outputs.jsonl.gz")
    human = judged.scores.groupby(["item", "system"])["score"].mean().unstack()
    metrics = [part.set_index(["item", "system"])["value"].unstack().loc[human.index, human.columns].to_numpy() for _, part in judged.metrics.groupby("metric")]
    return human.to_numpy(), np.stack(metrics)


def world(seed: int, items: int, systems: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]: # and (1 + M, S) true values
    g = rng(seed, "agreement of systems")
    quality = g.normal(size=systems)
    true = np.stack([quality, *(r*quality + (1 - r*r)**.5*g.normal(size=systems) for r in TRUE)])/2
    errors = g.normal(size=(1 + len(TRUE), items, systems))
    errors[1:] = .3*errors[0] + (1 - .09)**.5*errors[1:]
    scores = true[:, None] + errors
    return scores[0], scores[1:], true


def asked(human, metrics, name: str, generalize: str, seed: int) -> tuple: # ends (M,) of both intervals
    table = score_table(human, metrics)
    design = AgreementDesign(AGREEMENTS[name], "system", generalize, 100, seed, .95)
    plain, corrected = metric_agreement(table, design.draws(table), design), all_items(table, design)
    return np.array([c.low for c in plain.ci]), np.array([c.high for c in plain.ci]), plain.value, corrected


def row(found: list, what: dict) -> list[dict]: # found: (truth, low, high, value, AllItems) of each draw
    frame = pd.DataFrame([dict(truth=t, plain=lo <= t <= hi, bias=v - t, has=np.isfinite(c), corrected=np.nan if np.isnan(c) else cl <= t <= ch, after=c - t, width=ch - cl)
                          for truth, low, high, value, e in found for t, lo, hi, v, c, cl, ch in zip(truth, low, high, value, e.value, e.low, e.high)])
    return [{**what, "which": which, "draws": len(found), **part.drop(columns="truth").astype(float).mean()}
            for which, part in frame.groupby(np.where(frame["truth"] > .6, "high", "low"))]


def main() -> None:
    draws, rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100, []
    data = os.environ.get("INVARIANT_METRICS_DATA")
    pool = realsumm(Path(data)) if data else None
    for name in ("pearson", "tau_b"):
        for n in (10, 20, 50):
            if pool:
                truth = replicate_statistic(score_table(*pool), name, "system")[:, 0]
                at = [rng(i, "documents", n).integers(0, len(pool[0]), n) for i in range(draws)]
                rows += row([(truth, *asked(pool[0][k], pool[1][:, k], name, "items", i)) for i, k in enumerate(at)],
                            dict(data="REALSumm", statistic=name, generalize="items", n=n))
            for generalize, systems in (("items", 12), ("both", 20)):
                found = []
                for i in range(draws):
                    human, metrics, true = world(i, n, systems)
                    truth = AGREEMENTS[name].many(true[0], true[1:], np.ones((1, systems)))[:, 0]
                    if generalize == "both": truth = np.array(TRUE) if name == "pearson" else 2/np.pi*np.arcsin(TRUE)
                    found.append((truth, *asked(human, metrics, name, generalize, i)))
                rows += row(found, dict(data="simulated", statistic=name, generalize=generalize, n=n))
            print(pd.DataFrame(rows).tail(6).round(3).to_string(index=False), flush=True)
            with atomic_write(OUT) as path: pd.DataFrame(rows).to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
