"""The table behind `advise`: which metric would show 5 % more errors of a kind with 500 items, in the package's worlds and on COCO captions.

Usage: [INVARIANT_METRICS_DATA=FOLDER] python benchmarks/advise.py [--only NAME …]     (writes nbs/results/advice.csv; five minutes)

Sources: the bilingual world, the world of painted scenes, the packaged photographs, and, if the folder of real data is there, 200 of the
1,000 pictures of COCO val2017 with five captions each, and 200 sentences (700 for names) of newstest2017 de-en with one reference and two systems, which
differ as these systems do. 500 items, 5 % more errors, 400 simulated comparisons, of systems that
differ as two right answers do, and of systems that differ in nothing but the errors (FBD: five families, by redrawing sets). With
--only the rows of the other sources stay as they are. Set OMP_NUM_THREADS=1; BERTScore and FBD need the package of MiniLM."""
import argparse
import gzip
import json
import os
import time
from pathlib import Path

import pandas as pd

from invariant_metrics.advice.run_advice import _ADVISE_METRICS, advise
from invariant_metrics.files import atomic_write

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"advice.csv"
COCO = "coco_captions/val2017_1000.jsonl.gz"
WMT, RIVALS = "wmt/newstest2017_deen.jsonl.gz", ("online-B.0", "uedin-nmt.4723")
NAMES = ["entity-replaced", "number-changed", "predicate-replaced"] # rare in news: looked for in 700 sentences
PLAIN = ["entity-replaced", "number-changed", "negation", "noun-swapped", "antonym", "color-replaced", "relation-reversed", "object-added", "addition",
         "predicate-replaced", "entity-removed", "modifier-removed", "noun-removed", "phrase-removed", "omission", "tense-changed", "function-word-removed",
         "misspelling", "shuffle", "repetition"]
OF_SETS = ["entity-replaced", "number-changed", "noun-swapped", "omission", "misspelling"] # for FBD, of which each set takes a tenth of a second
SOURCES = {"bilingual world": ("translation", None), "painted scenes": ("captioning", None), "packaged photographs": ("images", None), "COCO captions": ("captioning", COCO), "WMT17 de-en": ("translation", WMT)}


def families(task: str) -> list[str] | None: # those of PLAIN that the task has
    from invariant_metrics.edits.colors import AXES
    from invariant_metrics.edits.word_families import edits_of
    return None if task == "images" else [f for f in PLAIN if f in edits_of(task, list(AXES))]


def translated(path: Path) -> tuple[dict, dict]: # references; system -> outputs
    with gzip.open(path, "rt", encoding="utf8") as file: rows = [json.loads(line) for line in file]
    return {str(i): [row["ref"]] for i, row in enumerate(rows[:700])}, {s: {str(i): row["sys"][s] for i, row in enumerate(rows[:700])} for s in RIVALS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    data, frames = os.environ.get("INVARIANT_METRICS_DATA"), []
    for name in parser.parse_args().only:
        task, file = SOURCES[name]
        if file and not data: continue
        began = time.process_time()
        plans = [(list(_ADVISE_METRICS[task]), families(task))] if task == "images" else [
            ([*_ADVISE_METRICS[task], "bertscore"], families(task)), (["fbd"], [f for f in OF_SETS if f in families(task)])]
        plans = [(*plan, "references" if task != "images" else "auto") for plan in plans]
        if task != "images": plans.append((*plans[0][:2], "nothing")) # the other end
        target, pred = Path(data)/file if file else None, ()
        if file == WMT:
            target, pred = translated(target)
            plans = [(plans[0][0], [f for f in plans[0][1] if f not in NAMES], "systems"), (["bleu", "chrf", "bertscore"], NAMES, "systems")]
        for metrics, names, differ in plans:
            found = advise(task, target, pred, metrics=metrics, families=names, differ=differ, progress=False, scale="full" if names == NAMES else "default")
            table = found.table.drop(columns="what").assign(source=name, differ=differ, items=500, more=.05)
            frames.append(table[(table["family"] != "mix") | (metrics != ["fbd"])]) # a mix is of all families
            print(*found.sentences, *found.notes, sep="\n", flush=True)
        print(f"{name}: {time.process_time() - began:.0f} s of processor", flush=True)
    made = {f["source"].iloc[0] for f in frames}
    if TABLE.exists(): frames += [part for source, part in pd.read_csv(TABLE).groupby("source") if source not in made]
    table = pd.concat(frames, ignore_index=True)
    table = table.assign(place=table["source"].map([*SOURCES].index)).sort_values("place", kind="stable").drop(columns="place")
    with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.3g")


if __name__ == "__main__": main()
