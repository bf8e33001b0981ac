"""Are planted faults of a judge recovered, and how often do their intervals hold them? And what do judges that are here do?

Usage: python benchmarks/judge_faults.py [--only planted|real] [--sets N]      (writes nbs/results/judge_faults.csv and, with
INVARIANT_METRICS_DATA=FOLDER, judge_faults_real.csv). FOLDER holds coco_captions/val2017_1000.jsonl.gz: 1000 pictures, five captions each.
Simulated data sets have items with three texts of 5 to 15 words; every judge reads the same ones. A run goes on where it stopped."""
import argparse
import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.core import rng
from invariant_metrics.files import atomic_write
from invariant_metrics.probes.judge_faults import _answer_rows, _change_rows, _compare_layout, _lay_out, _score_layout, judge_faults
from invariant_metrics.probes.own_texts import ALTERNATIVE, open_own_texts
from invariant_metrics.probes.planted_faults import planted_pairs, planted_scores
from invariant_metrics.stats import normal

OUT = Path(__file__).parent.parent/"nbs"/"results"
SIZES = (24, 60, 120) # items
SCORING = (dict(per_word=0.0, noise=0.2), dict(per_word=0.05, noise=0.5), dict(per_word=0.15, noise=0.2), dict(step=0.5), dict(step=1.0))
PAIRWISE = (dict(position=0.0, per_word=0.05), dict(position=0.03), dict(position=0.08), dict(position=0.15, per_word=0.15), dict(position=0.3))
WORDS = np.arange(5, 16) # in a text, each as likely
LONGER = np.abs(np.subtract.outer(WORDS, WORDS)).ravel()
LONGER = LONGER[LONGER > 0] # words between two texts of unequal length
CHANGES = ("wordy", "capitals") # that are made here; the first adds words that say nothing
OPENING = 7 # of them


def dataset(n: int, seed: int) -> dict: # id -> three texts
    draw = rng(seed, "planted", n)
    def text(): return " ".join("".join(draw.choice(list("bdfgklmnprstvz")) + draw.choice(list("aeiou")) for _ in range(3)) for _ in range(draw.choice(WORDS)))
    return {str(k): [text() for _ in range(3)] for k in range(n)}


def truths_of_scores(per_word: float = 0.0, noise: float = 0.0, step: float = 0.0) -> dict: # (change, measure) -> planted size
    if step: # rounded opinions
        ends = np.arange(-40, 41)*step
        return {("pairs", "ties"): float((np.diff(normal.cdf(ends - step/2))**2).sum())}
    sd = np.sqrt(1 + per_word**2*WORDS.var() + noise**2)
    found = {("wordy", "effect"): OPENING*per_word/sd, ("longer-of-two", "effect"): LONGER.mean()*per_word/sd, ("capitals", "effect"): 0.0,
             ("repeats", "spread"): noise/sd, ("capitals", "wins"): 0.5}
    if not per_word: found["repeats", "turned"] = float(np.arccos(2/(2 + 2*noise**2))/np.pi)
    return found


def truths_of_pairs(position: float = 0.0, per_word: float = 0.0) -> dict:
    def wins(k): return (1 - 2*position)*float(np.mean(normal.cdf(per_word*np.asarray(k)/2**0.5))) + position
    return {("first-place", "wins"): 0.5 + position, ("first-place", "turned"): 2*position, ("longer-of-two", "wins"): wins(LONGER), ("wordy", "wins"): wins(OPENING)}


def measured(layout, seed: int) -> list[dict]: # by every judge
    judges = [("scoring", planted, truths_of_scores(**planted), lambda p: _score_layout(planted_scores(**p, seed=seed), layout, 2)) for planted in SCORING]
    judges += [("pairwise", planted, truths_of_pairs(**planted), lambda p: _compare_layout(planted_pairs(**p, seed=seed), layout, 1, "planted")) for planted in PAIRWISE]
    rows = []
    for kind, planted, truths, ask in judges:
        answers = ask(planted)
        found = {(r["change"], r["measure"]): r for r in [*_answer_rows(answers, layout), *_change_rows(answers, layout)]}
        rows += [{"judge": kind, "planted": " ".join(f"{k}={v:g}" for k, v in planted.items()), "change": change, "measure": measure, "size": truth,
                  **{k: found[change, measure][k] for k in ("value", "low", "high")}} for (change, measure), truth in truths.items()]
    return rows


def planted_table(sets: int) -> pd.DataFrame:
    store = Path(os.environ.get("TMPDIR", "/tmp"))/"judge_faults_planted.jsonl"
    done = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    there = {(d["n"], d["seed"]) for d in done}
    with store.open("a") as file:
        for seed in range(sets):
            for n in SIZES:
                if (n, seed) in there: continue
                layout = _lay_out(open_own_texts(dataset(n, seed), size=n), "captioning", [], "auto", seed)
                groups = {key: group for key, group in layout.texts.groups.items() if key[1] in (-1, ALTERNATIVE, *CHANGES)}
                layout = replace(layout, texts=replace(layout.texts, groups=groups), changes=list(CHANGES))
                done.append({"n": n, "seed": seed, "rows": measured(layout, seed)})
                print(json.dumps(done[-1]), file=file, flush=True)
    table = pd.DataFrame([{"n": d["n"], **row} for d in done if d["seed"] < sets for row in d["rows"]])
    table["held"] = (table["low"] <= table["size"] + 1e-12) & (table["size"] - 1e-12 <= table["high"])
    table["width"] = table["high"] - table["low"]
    keys = ["judge", "planted", "change", "measure", "n"]
    out = table.groupby(keys, sort=False).agg(size=("size", "first"), mean=("value", "mean"), width=("width", "mean"), coverage=("held", "mean"), sets=("held", "size"))
    return out.reset_index().sort_values(keys[:4], kind="stable")


REAL = ("bleu", "chrf", "cider-d", "bertscore-f", "violation-paraphrase") # the last is one minus the cosine of MiniLM's sentences


def real_table() -> pd.DataFrame:
    with gzip.open(Path(os.environ["INVARIANT_METRICS_DATA"])/"coco_captions"/"val2017_1000.jsonl.gz") as file:
        captions = {str(row["image_id"]): row["captions"] for row in map(json.loads, file)}
    parts = []
    for judge in REAL:
        for pairwise in (False, True):
            found = judge_faults(judge, captions, pairwise=pairwise)
            print(found, flush=True)
            plan = {"fault": "plan", "change": "items", "measure": "needed", "value": found.plan.n_needed, "n": found.items,
                    "verdict": "may rank" if found.may_rank else "should not"}
            parts.append(pd.concat([pd.DataFrame([plan]), found.table], ignore_index=True).assign(judge=judge, pairwise=pairwise))
    table = pd.concat(parts, ignore_index=True)
    return table[["judge", "pairwise", *(c for c in table if c not in ("judge", "pairwise"))]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("planted", "real"))
    parser.add_argument("--sets", type=int, default=400)
    asked = parser.parse_args()
    if asked.only != "real":
        table = planted_table(asked.sets)
        with atomic_write(OUT/"judge_faults.csv") as path: table.to_csv(path, index=False, float_format="%.4g")
        print(table.to_string())
    if asked.only != "planted":
        table = real_table()
        with atomic_write(OUT/"judge_faults_real.csv") as path: table.to_csv(path, index=False, float_format="%.4g")
