"""Text metrics beside other packages on real captions: processor seconds, added memory, and the difference of the results, in one run.

Usage: OMP_NUM_THREADS=1 INVARIANT_METRICS_DATA=FOLDER python benchmarks/text.py [--quick] [--only NAME …]      (writes nbs/results/text.csv)
NAME is one of bleu, rouge-l, cider-d, chrf, chrf++, ter, long, intervals, memory, growth. --quick takes small sizes, asks for nothing and
writes nothing. With --only the other rows of the table stay as they are. FOLDER holds coco_captions/val2017_1000.jsonl.gz. Needs sacrebleu
and pycocoevalcap (BLEU, ROUGE, CIDEr; the tokenizer of its captions needs Java); about five minutes.

The halves of two captions of two pictures make a text, so that 5,000 hypotheses with 5 references each differ nearly all from one another.
Both sides start from lists of strings and end with the corpus value. "warm": both in this process, taking turns, medians of three rounds
after one that is not counted. "cold": a process for each of three runs, the packages imported and nothing else done, so that no text, no
word and no rule is known yet: what a user waits for. Seconds are processor time of the process and of its children (Java), so that other
work on the machine counts little. Values are compared before anything is timed. Added memory is measured in a process of its own."""
import argparse
import gc
import gzip
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.cider import cider_d
from invariant_metrics.metrics.ngram import corpus_bleu
from invariant_metrics.metrics.rouge import rouge_l
from invariant_metrics.metrics.sacre import _chrf_rows, _chrf_score, _ter_rows, _ter_score

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"text.csv"
COLUMNS = ["name", "work", "method", "n", "runs", "seconds", "added MB", "quantity", "required", "found", "ok", "value", "difference"]
BATTERY = ("bleu-1", "bleu-2", "bleu-3", "bleu-4", "rouge-l", "cider-d")


def texts(n: int) -> tuple[list[str], list[list[str]]]:
    "Hypotheses and five references each, made of the halves of real captions of two pictures."
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    path = Path(os.environ["INVARIANT_METRICS_DATA"])/"coco_captions"/"val2017_1000.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file: groups = [json.loads(line)["captions"][:5] for line in file]
    words = [[caption.split() for caption in group] for group in groups]
    def spliced(a, b): return " ".join(a[:len(a)//2] + b[len(b)//2:])
    hyp, refs = [], []
    for i in range(n):
        a = i % len(words)
        first, second = words[a], words[(a + 1 + 37*(i//len(words))) % len(words)]
        hyp.append(spliced(first[0], second[0]))
        refs.append([spliced(first[p], second[q]) for p, q in ((1, 2), (2, 3), (3, 4), (4, 1), (1, 3))])
    return hyp, refs


def seconds_used() -> float: # of this process and the children it has waited for
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def by_turns(functions: dict, runs: int = 3) -> dict[str, float]:
    "Median seconds of each, one after the other in every round, the first round not counted."
    seconds = {name: [] for name in functions}
    for turn in range(runs + 1):
        for name, function in functions.items():
            gc.collect()
            start = seconds_used()
            function()
            if turn: seconds[name].append(seconds_used() - start)
    return {name: statistics.median(s) for name, s in seconds.items()}


# ours and theirs, from lists of strings; a name with ":raw" begins with untokenized text

def by_sacrebleu(make, hyp: list[str], refs: list[list[str]]) -> float:
    import sacrebleu.metrics
    return make(sacrebleu.metrics).corpus_score(hyp, [*map(list, zip(*refs))]).score


def by_caption_code(name: str, raw: bool, hyp: list[str], refs: list[list[str]]) -> float:
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge
    candidates, targets = {i: [h] for i, h in enumerate(hyp)}, dict(enumerate(refs))
    if raw:
        from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
        candidates, targets = (PTBTokenizer().tokenize({i: [{"caption": t} for t in group] for i, group in side.items()}) for side in (candidates, targets))
    return float({"rouge-l": Rouge, "cider-d": Cider}[name]().compute_score(targets, candidates)[0])


WORKS = {
    "bleu": (lambda hyp, refs: corpus_bleu(hyp, refs, "none"), "sacrebleu", partial(by_sacrebleu, lambda m: m.BLEU(tokenize="none"))),
    "bleu:raw": (corpus_bleu, "sacrebleu", partial(by_sacrebleu, lambda m: m.BLEU())),
    "rouge-l": (lambda hyp, refs: float(rouge_l(hyp, refs, "none").mean()), "pycocoevalcap", partial(by_caption_code, "rouge-l", False)),
    "rouge-l:raw": (lambda hyp, refs: float(rouge_l(hyp, refs).mean()), "pycocoevalcap", partial(by_caption_code, "rouge-l", True)),
    "cider-d": (lambda hyp, refs: float(cider_d(hyp, refs, "none").mean()), "pycocoevalcap", partial(by_caption_code, "cider-d", False)),
    "cider-d:raw": (lambda hyp, refs: float(cider_d(hyp, refs).mean()), "pycocoevalcap", partial(by_caption_code, "cider-d", True)),
    "chrf:raw": (lambda hyp, refs: _chrf_score(_chrf_rows(hyp, refs).sum(0)[None]).item(), "sacrebleu", partial(by_sacrebleu, lambda m: m.CHRF())),
    "chrf++:raw": (lambda hyp, refs: _chrf_score(_chrf_rows(hyp, refs, word_order=2).sum(0)[None]).item(), "sacrebleu",
                   partial(by_sacrebleu, lambda m: m.CHRF(word_order=2))),
    "ter:raw": (lambda hyp, refs: _ter_score(_ter_rows(hyp, refs).sum(0)[None]).item(), "sacrebleu", partial(by_sacrebleu, lambda m: m.TER()))}


# sections

def verdict(name: str, work: str, n: int, package: str, required: float, ratio: float) -> dict:
    return {"name": name, "work": work, "n": n, "quantity": f"times faster than {package}", "required": f"≥ {required:g}", "found": ratio,
            "ok": "yes" if ratio >= required else "NO"}


def beside(key: str, n: int, required: float, quick: bool, close: float = 1e-9) -> list[dict]:
    "One metric against one package on the same texts, in one process."
    (name, _, raw), n = key.partition(":"), 100 if quick else n
    hyp, refs = texts(n)
    ours, package, theirs = WORKS[key]
    work = f"{name} of {'raw text' if raw else 'tokens'}, 5 references each, warm"
    value, other = ours(hyp, refs), theirs(hyp, refs)
    assert abs(value - other) <= close*max(1, abs(other)), f"{key}: {value} here, {other} by {package}"
    seconds = by_turns({"invariant_metrics": lambda: ours(hyp, refs), package: lambda: theirs(hyp, refs)}, 1 if quick else 3)
    rows = [{"name": name, "work": work, "method": m, "n": n, "runs": 3, "seconds": s, "value": v, "difference": abs(v - value)}
            for (m, s), v in zip(seconds.items(), (value, other))]
    return rows + [verdict(name, work, n, package, required, seconds[package]/seconds["invariant_metrics"])]


def first_run(key: str, side: str, n: int) -> dict:
    "Seconds of the first call in this process, which has imported the packages and done nothing else."
    hyp, refs = texts(n)
    ours, package, theirs = WORKS[key]
    if package == "sacrebleu": import sacrebleu.metrics
    else: import pycocoevalcap.cider.cider, pycocoevalcap.rouge.rouge, pycocoevalcap.tokenizer.ptbtokenizer # noqa
    start = seconds_used()
    (ours if side == "ours" else theirs)(hyp, refs)
    return {"seconds": seconds_used() - start}


def in_its_own_process(*arguments) -> dict:
    done = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode: raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def cold(key: str, n: int, required: float, quick: bool) -> list[dict]:
    "The same, each side in processes of its own."
    (name, _, raw), n, package = key.partition(":"), 100 if quick else n, WORKS[key][1]
    work = f"{name} of {'raw text' if raw else 'tokens'}, 5 references each, cold"
    taken = {"ours": [], "theirs": []}
    for _ in range(1 if quick else 3):
        for side, seconds in taken.items(): seconds.append(in_its_own_process("--first", key, side, n)["seconds"])
    ours, theirs = map(statistics.median, taken.values())
    rows = [{"name": name, "work": work, "method": m, "n": n, "runs": 3, "seconds": s} for m, s in (("invariant_metrics", ours), (package, theirs))]
    return rows + [verdict(name, work, n, package, required, theirs/ours)]


def cider(quick: bool) -> list[dict]:
    rows = beside("cider-d", 5000, 25, quick)
    return rows + (cold("cider-d:raw", 5000, 12, quick) if shutil.which("java") else [])


def long_text(quick: bool) -> list[dict]:
    "ROUGE-L of one long text: captions one after the other."
    words = 500 if quick else 5000
    hyp, refs = texts(1000)
    a, b = (" ".join(" ".join(side).split()[:words]) for side in (hyp, [r[0] for r in refs]))
    seconds = by_turns({"invariant_metrics": lambda: rouge_l([a], [[b]], "none")}, 3)["invariant_metrics"]
    work = f"rouge-l of one text of {words:,} words"
    return [{"name": "long", "work": work, "method": "invariant_metrics", "n": 1, "runs": 3, "seconds": seconds},
            {"name": "long", "work": work, "n": 1, "quantity": "seconds", "required": "≤ 0.05", "found": seconds, "ok": "yes" if seconds <= .05 else "NO"}]


def intervals(quick: bool) -> list[dict]:
    "Six caption metrics of raw text by `score`, with intervals and without."
    from invariant_metrics import score
    n = 100 if quick else 5000
    hyp, refs = texts(n)
    seconds = by_turns({"with intervals": lambda: score(hyp, refs, BATTERY), "without": lambda: score(hyp, refs, BATTERY, ci=False)}, 3)
    work, ratio = "six caption metrics by score, warm", seconds["with intervals"]/seconds["without"]
    rows = [{"name": "intervals", "work": work, "method": m, "n": n, "runs": 3, "seconds": s} for m, s in seconds.items()]
    return rows + [{"name": "intervals", "work": work, "n": n, "quantity": "with intervals / without", "required": "≤ 1.5", "found": ratio,
                    "ok": "yes" if ratio <= 1.5 else "NO"}]


def alone(name: str, n: int) -> dict:
    "Seconds, then added memory (what Python and NumPy hold at their highest) of one metric, in this process, which has done nothing else."
    hyp, refs = texts(n)
    ours = WORKS[name][0]
    ours(*texts(50)) # imports and first calls
    seconds, runs = [], 3
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        value = ours(hyp, refs)
        seconds.append(time.process_time() - start)
    tracemalloc.start()
    ours(hyp, refs)
    return {"runs": runs, "seconds": statistics.median(seconds), "added MB": tracemalloc.get_traced_memory()[1]/2**20, "value": value}


GROWING = ("bleu", "rouge-l", "cider-d", "chrf:raw", "ter:raw")


def memory(quick: bool) -> list[dict]:
    n, rows = 200 if quick else 5000, []
    for key in GROWING:
        found, work = in_its_own_process("--alone", key, n), f"{key.partition(':')[0]}, 5 references each"
        rows += [{"name": "memory", "work": work, "method": "invariant_metrics", "n": n, **found},
                 {"name": "memory", "work": work, "n": n, "quantity": "MB added", "required": "≤ 300", "found": found["added MB"],
                  "ok": "yes" if found["added MB"] <= 300 else "NO"}]
    return rows


def growth(quick: bool) -> list[dict]:
    "Time over the number of hypotheses; ten times the texts may take little more than ten times as long."
    sizes, rows = [100, 200] if quick else [1000, 5000, 20000, 50000], []
    for key in GROWING:
        found = [in_its_own_process("--alone", key, n) for n in sizes]
        work = f"{key.partition(':')[0]}, growth"
        rows += [{"name": "growth", "work": work, "method": "invariant_metrics", "n": n, **f} for n, f in zip(sizes, found)]
        slope = float(np.polyfit(np.log(sizes), np.log([f["seconds"] for f in found]), 1)[0])
        rows.append({"name": "growth", "work": work, "quantity": "exponent of growth", "required": "≤ 1.15", "found": slope,
                     "ok": "yes" if slope <= 1.15 else "NO"})
    return rows


# Where a target is missed (by cProfile, and step by step with timeit). rouge-l, 9.3 of 10: interning the words takes more than half of it, the
# subsequences a third, half of that the search for each reference word among those of its hypothesis. cider-d of tokens, 22.7 of 25 (27.9 in
# another run; the machine was busy): interning 0.3 of the time, counting n-grams of four lengths 0.6 (a third of it sorts), weights and cosines 0.1.
SECTIONS = {"bleu": lambda quick: beside("bleu:raw", 5000, 8, quick) + cold("bleu:raw", 5000, 4, quick),
            "rouge-l": lambda quick: beside("rouge-l", 5000, 10, quick), "cider-d": cider,
            "chrf": lambda quick: beside("chrf:raw", 5000, 5, quick) + cold("chrf:raw", 5000, 5, quick),
            "chrf++": lambda quick: beside("chrf++:raw", 5000, 5, quick), "ter": lambda quick: beside("ter:raw", 1000, 3, quick),
            "long": long_text, "intervals": intervals, "memory": memory, "growth": growth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing asked, nothing written")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="NAME", help=", ".join(SECTIONS))
    parser.add_argument("--alone", nargs=2, metavar=("NAME", "N"), help=argparse.SUPPRESS)
    parser.add_argument("--first", nargs=3, metavar=("NAME", "SIDE", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone: return print(json.dumps(alone(options.alone[0], int(options.alone[1]))))
    if options.first: return print(json.dumps(first_run(options.first[0], options.first[1], int(options.first[2]))))
    rows = [row for name in options.only for row in SECTIONS[name](options.quick)]
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    print(table.to_string(index=False, float_format=lambda v: f"{v:.4g}", na_rep=""))
    if options.quick: return
    if TABLE.is_file(): table = pd.concat([(old := pd.read_csv(TABLE))[~old["name"].isin(options.only) & old["name"].isin(SECTIONS)], table])
    table = table.sort_values("name", key=lambda names: names.map(list(SECTIONS).index), kind="stable")
    with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
