"""Text metrics beside other packages: seconds, added memory, and the difference of the results, in one run.

Usage: python benchmarks/text.py [--quick] [--only NAME …]      (writes nbs/results/text.csv)
NAME is one of bleu, rouge-l, cider-d, memory, growth, bertscore; the last runs only when it is named, since it needs what
benchmarks/bertscore.py needs. --quick takes small sizes, asks for nothing and writes nothing. With --only the other rows of the
table stay as they are. Needs pycocoevalcap (its BLEU, ROUGE and CIDEr: no Java) and sacrebleu; about five minutes.

Both sides start from lists of strings and end with the corpus value; splitting at white space is in the time of both. Texts
are drawn from a vocabulary with Zipf frequencies: 5,000 hypotheses of about 11 words with 5 references each, which share
phrases with the hypothesis. Times are medians of five runs, after one that is not counted; packages take turns run by run.
Seconds are processor time of the process, so that other work on the machine counts little; set OMP_NUM_THREADS=1. Values are
compared before anything is timed. Added memory is measured in a process of its own."""
import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.cider import cider_d
from invariant_metrics.metrics.ngram import corpus_bleu
from invariant_metrics.metrics.rouge import rouge_l

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"text.csv"
COLUMNS = ["name", "work", "method", "n", "runs", "seconds", "added MB", "quantity", "required", "found", "ok", "value", "difference"]
OURS = {"bleu": lambda hyp, refs: corpus_bleu(hyp, refs, "none"), "rouge-l": lambda hyp, refs: float(rouge_l(hyp, refs, "none").mean()),
        "cider-d": lambda hyp, refs: float(cider_d(hyp, refs, "none").mean())}


def texts(n: int, references: int = 5, seed: int = 0, words: int = 12000) -> tuple[list[str], list[list[str]]]:
    "Hypotheses of 7 to 15 words and references that repeat a stretch of the hypothesis and go on with words of their own."
    rng = np.random.default_rng(seed)
    weight = 1/np.arange(1, words + 1)
    vocabulary = np.array([f"w{i}" for i in range(words)])
    def lengths(k): return rng.integers(7, 16, k)
    hyp = [list(x) for x in np.split(vocabulary[rng.choice(words, 15*n, p=weight/weight.sum())], n)]
    own = np.split(vocabulary[rng.choice(words, 15*n*references, p=weight/weight.sum())], n*references)
    size, low, kept = lengths(n*references), rng.integers(0, 6, n*references), rng.integers(2, 7, n*references)
    refs = [" ".join([*hyp[i//references][a:a + k], *own[i]][:s]) for i, (s, a, k) in enumerate(zip(size, low, kept))]
    return [" ".join(h[:s]) for h, s in zip(hyp, lengths(n))], [refs[i:i + references] for i in range(0, len(refs), references)]


def by_turns(functions: dict, runs: int = 5) -> dict[str, float]:
    "Median seconds of each, one after the other in every round, the first round not counted."
    seconds = {name: [] for name in functions}
    for turn in range(runs + 1):
        for name, function in functions.items():
            gc.collect()
            start = time.process_time()
            function()
            if turn: seconds[name].append(time.process_time() - start)
    return {name: statistics.median(s) for name, s in seconds.items()}


# other packages, from lists of strings

def by_sacrebleu(hyp: list[str], refs: list[list[str]]) -> float:
    import sacrebleu
    return sacrebleu.corpus_bleu(hyp, [*map(list, zip(*refs))], tokenize="none").score


def by_caption_code(scorer, hyp: list[str], refs: list[list[str]]) -> float:
    return float(scorer.compute_score(dict(enumerate(refs)), {i: [h] for i, h in enumerate(hyp)})[0])


def peers(name: str) -> tuple[str, object]:
    if name == "bleu": return "sacrebleu", by_sacrebleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge
    return "pycocoevalcap", lambda hyp, refs: by_caption_code({"rouge-l": Rouge, "cider-d": Cider}[name](), hyp, refs)


# sections

def beside(name: str, required: float, quick: bool) -> list[dict]:
    "One metric against one package on the same texts."
    n = 200 if quick else 5000
    hyp, refs = texts(n)
    package, theirs = peers(name)
    ours, work = OURS[name], f"{name}, 5 references each"
    value, other = ours(hyp, refs), theirs(hyp, refs)
    assert abs(value - other) < 1e-9, f"{name}: {value} here, {other} by {package}"
    seconds = by_turns({"invariant_metrics": lambda: ours(hyp, refs), package: lambda: theirs(hyp, refs)}, 3 if quick else 5)
    rows = [{"name": name, "work": work, "method": m, "n": n, "runs": 3 if quick else 5, "seconds": s, "value": v, "difference": abs(v - value)}
            for (m, s), v in zip(seconds.items(), (value, other))]
    ratio = seconds[package]/seconds["invariant_metrics"]
    return rows + [{"name": name, "work": work, "n": n, "quantity": f"times faster than {package}", "required": f"≥ {required:g}", "found": ratio,
                    "ok": "yes" if ratio >= required else "NO"}]


def alone(name: str, n: int) -> dict:
    "Seconds, then added memory (what Python and NumPy hold at their highest) of one metric, in this process, which has done nothing else."
    hyp, refs = texts(n)
    OURS[name](*texts(50))  # imports and first calls
    seconds, runs = [], 3
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        value = OURS[name](hyp, refs)
        seconds.append(time.process_time() - start)
    tracemalloc.start()
    OURS[name](hyp, refs)
    return {"runs": runs, "seconds": statistics.median(seconds), "added MB": tracemalloc.get_traced_memory()[1]/2**20, "value": value}


def measured_alone(name: str, n: int) -> dict:
    "The same in a process of its own."
    return json.loads(subprocess.run([sys.executable, __file__, "--alone", name, str(n)], capture_output=True, text=True, check=True).stdout)


def memory(quick: bool) -> list[dict]:
    n, rows = 200 if quick else 5000, []
    for name in OURS:
        found = measured_alone(name, n)
        rows += [{"name": "memory", "work": f"{name}, 5 references each", "method": "invariant_metrics", "n": n, **found},
                 {"name": "memory", "work": f"{name}, 5 references each", "n": n, "quantity": "MB added", "required": "≤ 300",
                  "found": found["added MB"], "ok": "yes" if found["added MB"] <= 300 else "NO"}]
    return rows


def growth(quick: bool) -> list[dict]:
    "Time over the number of hypotheses; ten times the texts may take little more than ten times as long."
    sizes, rows = [100, 200] if quick else [1000, 3000, 10000, 30000, 100000], []
    for name in OURS:
        found = [measured_alone(name, n) for n in sizes]
        work = f"{name}, growth"
        rows += [{"name": "growth", "work": work, "method": "invariant_metrics", "n": n, **f} for n, f in zip(sizes, found)]
        slope = float(np.polyfit(np.log(sizes), np.log([f["seconds"] for f in found]), 1)[0])
        rows.append({"name": "growth", "work": work, "quantity": "exponent of growth", "required": "≤ 1.15", "found": slope,
                     "ok": "yes" if slope <= 1.15 else "NO"})
    return rows


def bertscore(quick: bool) -> list[dict]:
    "The other script's rows in the columns of this table."
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("bertscore: set INVARIANT_METRICS_DATA to the folder of the real data")
    sys.path.insert(0, str(Path(__file__).parent))
    from bertscore import rows
    out = []
    for row in rows(Path(os.environ["INVARIANT_METRICS_DATA"])):
        out.append({"name": "bertscore", "work": f"bertscore, {row['work']}", "method": row["method"], "n": row["sentences"], "runs": 3,
                    "seconds": row["seconds"], "difference": row["difference"]})
        if row["method"] == "invariant_metrics":
            out.append({"name": "bertscore", "work": f"bertscore, {row['work']}", "quantity": "times faster than bert-score",
                        "found": row["times faster"]})
    return out


SECTIONS = {"bleu": lambda quick: beside("bleu", 5, quick), "rouge-l": lambda quick: beside("rouge-l", 5, quick),
            "cider-d": lambda quick: beside("cider-d", 8, quick), "memory": memory, "growth": growth, "bertscore": bertscore}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing asked, nothing written")
    usual = [s for s in SECTIONS if s != "bertscore"]
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=usual, metavar="NAME", help=", ".join(SECTIONS))
    parser.add_argument("--alone", nargs=2, metavar=("NAME", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone: return print(json.dumps(alone(options.alone[0], int(options.alone[1]))))
    rows = [row for name in options.only for row in SECTIONS[name](options.quick)]
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    print(table.to_string(index=False, float_format=lambda v: f"{v:.4g}", na_rep=""))
    if options.quick: return
    if TABLE.is_file(): table = pd.concat([(old := pd.read_csv(TABLE))[~old["name"].isin(options.only)], table])
    table = table.sort_values("name", key=lambda names: names.map(list(SECTIONS).index), kind="stable")
    with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
