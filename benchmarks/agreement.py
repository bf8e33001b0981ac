"""Rank agreement of a thousand bootstrap replicates beside a loop over scipy.stats.kendalltau: seconds, ratio, equal values.

    INVARIANT_METRICS_DATA=FOLDER python benchmarks/agreement.py [REPLICATES]     (default 1000)

Flickr8k-Expert: 5,664 candidates rated three times, 16,992 rows, four grades; the published n-gram scores and noisy copies of them make ten
metrics. Further rows have as many distinct human scores as rows. scipy is measured on a few replicates of three metrics and multiplied; it needs
one call for each variant of tau. The exchange of two metrics: 3,600 rows of 15 systems, 200 exchanges, beside 402 calls of scipy's
function, and beside PermutationSigDiff of mt-metrics-eval (github.com/google-research/mt-metrics-eval: mt_metrics_eval/stats.py, on
PYTHONPATH; the row says "absent" without it, and PyPI's package of that name is another one). Seconds are CPU seconds of one process,
ours medians of three, the replicates' weights are drawn beforehand.
"""
import gzip
import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from invariant_metrics.files import atomic_write
from invariant_metrics.stats import bootstrap_weights
from invariant_metrics.core import rng
from invariant_metrics.people.kendall import pair_counts_many
from exchange import swap_test
from invariant_metrics.people.score_table import score_table
from invariant_metrics.people.statistics import AGREEMENTS, tau_b, tau_c

TABLE = Path(__file__).parents[1]/"nbs"/"results"/"agreement.csv"
NAMES, LOOPED = ("Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4", "ROUGE_L", "CIDEr", "METEOR"), 4


def flickr(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    "Ratings (16992,), ten metrics (10, 16992)."
    ratings = np.array([json.loads(line)["ratings"] for line in open(folder/"judgments.jsonl")], float)
    with gzip.open(folder/"pycocoevalcap_scores.jsonl.gz", "rt") as file: scored = {s["row"]: s for s in map(json.loads, file)}
    metrics = [np.array([scored[i][name] for i in range(len(ratings))]) for name in NAMES]
    metrics += [m + m.std()*rng(0, i).normal(size=len(m)) for i, m in enumerate(metrics[-3:])]
    return ratings.ravel(), np.repeat(np.stack(metrics), 3, axis=1)


def seconds(run):
    start = time.process_time()
    out = run()
    return time.process_time() - start, out


def looped(x, Y, W, which, variant) -> np.ndarray: # (len(which), LOOPED)
    drawn = [np.repeat(np.arange(len(x)), w) for w in W[:LOOPED]]
    return np.array([[kendalltau(x[d], Y[m][d], variant=variant).statistic for d in drawn] for m in which])


def kendall_rows(data: str, x, Y, W, rows) -> list[dict]:
    wide, which = W if rows is None else W[:, rows], (0, len(Y)//2, len(Y) - 1)
    taken = [seconds(lambda: pair_counts_many(x, Y, W, rows)) for _ in range(3)]
    ours, pairs = statistics.median(t for t, _ in taken), taken[0][1]
    out, difference, total = [], 0.0, 0.0
    for variant, tau in (("b", tau_b), ("c", tau_c)):
        taken, values = seconds(lambda: looped(x, Y, wide, which, variant))
        difference = max(difference, np.abs(values - tau(pairs)[list(which), :LOOPED]).max())
        each = taken/values.size*len(Y)*len(W)
        total += each
        out.append((f"tau-{variant}", each))
    assert difference < 1e-12, f"{data}: values differ by {difference}"
    return [{"data": data, "statistic": name, "metrics": len(Y), "replicates": len(W), "seconds": ours, "scipy seconds": s, "times faster": s/ours,
             "difference": difference} for name, s in (*out, ("both", total))]


def exchange_rows(systems: int = 15, items: int = 240, exchanges: int = 200) -> list[dict]:
    "Two metrics exchanged system by system: seconds of the test, and of 402 calls of scipy on the very columns."
    human = rng(4).normal(size=(items, systems))
    pair = np.stack([human + rng(5, i).normal(size=human.shape) for i in range(2)])
    table = score_table(human, pair, names=("a", "b"))
    ours = statistics.median(seconds(lambda: swap_test(table, "a", "b", "tau_b", reps=exchanges))[0] for _ in range(3))
    x, (a, b) = human.ravel(), pair.reshape(2, -1)
    def looped(): return [kendalltau(x, y).statistic for _ in range(exchanges + 1) for y in (a, b)]
    theirs = statistics.median(seconds(looped)[0] for _ in range(3))
    row = {"data": "two metrics exchanged 200 times, 3,600 rows", "statistic": "tau-b", "metrics": 2, "replicates": exchanges, "seconds": ours}
    peer = by_mt_metrics_eval(x, a, b, systems, exchanges)
    asked = {"work": "Kendall's tau-b, two metrics exchanged 200 times", "quantity": "times faster than mt-metrics-eval", "required": "≥ 15"}
    found = {"found": peer/ours, "ok": "yes" if peer/ours >= 15 else "NO"} if peer else {"ok": "absent"}
    return [{**row, "scipy seconds": theirs, "times faster": theirs/ours}, {**row, "data": "the same, by mt-metrics-eval", "seconds": peer, **asked, **found}]


def by_mt_metrics_eval(x: np.ndarray, a: np.ndarray, b: np.ndarray, systems: int, exchanges: int) -> float | None: # seconds; None: not installed
    try: from mt_metrics_eval import stats
    except ImportError: return None
    pair = [stats.Correlation(systems, list(x), list(y)) for y in (a, b)]
    params = stats.PermutationSigDiffParams(block_size=exchanges)
    return seconds(lambda: stats.PermutationSigDiff(*pair, stats.KendallVariants, k=exchanges, params=params))[0]


REQUIRED = {"four grades, candidates drawn": 20, "16,992 distinct scores, rows drawn": 15, "two metrics exchanged 200 times, 3,600 rows": 1}


def with_targets(table: pd.DataFrame) -> pd.DataFrame:
    asked = table["data"].map(REQUIRED).where(table["statistic"].eq("tau-b"))
    which = asked.notna()
    table.loc[which, "work"] = "Kendall's tau-b, " + table["data"]
    table.loc[which, "quantity"] = "times faster than scipy"
    table.loc[which, "required"] = asked.map("≥ {:g}".format, na_action="ignore")
    table.loc[which, "found"] = table["times faster"]
    table.loc[which, "ok"] = np.where(table["times faster"] >= asked, "yes", "NO")[which]
    return table


def main() -> None:
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    reps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    x, Y = flickr(Path(os.environ["INVARIANT_METRICS_DATA"])/"flickr8k_expert")
    rows, n = np.repeat(np.arange(len(x)//3), 3), len(x)
    by_candidate, by_row = bootstrap_weights(n//3, reps, rng(0)), bootstrap_weights(n, reps, rng(1))
    out = kendall_rows("four grades, candidates drawn", x, Y, by_candidate, rows)
    out += kendall_rows("four grades, rows drawn", x, Y, by_row, None)
    out += kendall_rows("16,992 distinct scores, rows drawn", x + rng(2).normal(size=n), Y + 1e-3*rng(3).normal(size=Y.shape), by_row, None)
    for name in ("pearson", "spearman", "tau_23", "accuracy", "logistic_pearson"):
        taken, _ = seconds(lambda: AGREEMENTS[name].many(x, Y, by_candidate, rows))
        out.append({"data": "four grades, candidates drawn", "statistic": name, "metrics": len(Y), "replicates": reps, "seconds": taken})
    out += exchange_rows()
    table = pd.DataFrame(out)
    table["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1e3
    table = with_targets(table)
    print(table.to_string(float_format="%.3g"))
    with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
