"""How well is each family of edits told by its form, before foils are matched and after? Captions and translations of real data.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/fluency.py [--store] [ITEMS]     (--store: into nbs/results/fluency.csv; some minutes)

Captions: 1,000 pictures of COCO with five captions each; one is edited at level 1. Translations: 700 sentences of Multi30k and 300 of TED
talks, one English text each. The judge that matches foils is fit on the right texts of other items. Judges that do not choose: the tags
alone, and for captions one fit on Multi30k's English captions, for translations one fit on COCO's. Set OMP_NUM_THREADS=1."""
import gzip
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.edits.fluency import FormJudge, fluency_table, form_judge, text_cases
from invariant_metrics.edits.language_models import TaggedNGrams
from invariant_metrics.edits.word_families import edits_of
from invariant_metrics.files import atomic_write
from invariant_metrics.people.edit_sheets import edits_signature

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"fluency.csv"


def lines(place: Path) -> list[dict]:
    with gzip.open(place, "rt", encoding="utf-8") as file: return [json.loads(line) for line in file]


def main() -> None:
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    place, items = Path(os.environ["INVARIANT_METRICS_DATA"]), int(next((a for a in sys.argv[1:] if a.isdigit()), 1000))
    coco = [row["captions"] for row in lines(place/"coco_captions"/"val2017_1000.jsonl.gz")][:items]
    multi, ted = lines(place/"multi30k"/"train_2000.jsonl.gz"), lines(place/"wmt"/"ted2021_zhen_mqm.jsonl.gz")
    flickr = [text for row in multi for text in row["captions_en"]]
    pairs = [(row["en"], row["de"]) for row in multi[:7 * items // 10]] + [(row["targets"]["ref-A"], row["src"]) for row in ted[:3 * items // 10]]
    sets = {"captioning": (coco, None, flickr), "translation": ([[text] for text, _ in pairs], [source for _, source in pairs], [t for own in coco for t in own])}
    tables = []
    for task, (right, source, elsewhere) in sets.items():
        began = time.perf_counter()
        judge, away = form_judge(right), TaggedNGrams(elsewhere)
        fit = time.perf_counter() - began
        other = FormJudge("elsewhere", np.zeros(len(right), int), [away])
        table = fluency_table(edits_of(task), text_cases(right, source, judge.part), judge, task, others={"elsewhere": other})
        tables.append(table.assign(task=task, edits=edits_signature()))
        print(f"{task}: {len(right)} items, {fit:.1f} s for the models, {time.perf_counter() - began:.0f} s in all")
    whole = pd.concat(tables, ignore_index=True)
    shown = ["family", "kind", "n", "kept", *(f"{k}_{w}" for k in ("words", "tags", "elsewhere") for w in ("before", "after")), "told_before", "told_after"]
    for task, rows in whole.groupby("task"): print(task, rows.sort_values("words_before")[shown].round(2).to_string(index=False), sep="\n")
    if "--store" in sys.argv:
        with atomic_write(TABLE) as path: whole.to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
