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
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.core import rng
from invariant_metrics.edits.fluency import ENDS_OF_SCALE, TOLERANCE, _DRAWS, FormAuc, FormJudge, draw_candidates, form_judge, match_candidates, text_cases
from invariant_metrics.edits.language_models import TaggedNGrams
from invariant_metrics.edits.word_families import edits_of
from invariant_metrics.edits.word_edits import TextCase, word_edits
from invariant_metrics.files import atomic_write
from invariant_metrics.people.edit_sheets import _edits_signature

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"fluency.csv"


def lines(place: Path) -> list[dict]:
    with gzip.open(place, "rt", encoding="utf-8") as file: return [json.loads(line) for line in file]


MARGIN = 0.05  # of an AUC around one half


def is_told(*aucs: FormAuc) -> bool:
    "Whether one of these intervals lies beyond one half by more than the margin."
    return any(a.low > 0.5 + MARGIN or a.high < 0.5 - MARGIN for a in aucs)


def fluency_table(names: Sequence[str], cases: Sequence[TextCase], judge: FormJudge, task: str, others: dict[str, FormJudge]) -> pd.DataFrame:
    """A row for each family: n, whether it is matched, kept, and by each judge the AUC before and after with its interval.

    Families of form and the ends of the scale are not matched; `others` are judges that do not choose, such as one fit on other data."""
    bases, clusters, rows = [c.text for c in cases], np.arange(len(cases)), []
    for name in names:
        kind = word_edits[name].kind
        foils = kind != "form" and name not in ENDS_OF_SCALE
        made = draw_candidates(name, cases, range(len(cases)), 1, lambda i: rng(0, "foil", name, i, 0), _DRAWS if foils else 1, 0)
        found = match_candidates(name, made, [c.text for c in cases], judge, TOLERANCE)
        if not len(found.before[0]): continue
        if not foils: found = found._replace(after=found.before, told=found.told[:0])
        row = {"family": name, "kind": kind, "level": 1, "n": len(found.before[0]), "matched": foils, "kept": len(found.after[0])}
        judges = {"words": (judge, False), "tags": (judge, True), **{k: (j, False) for k, j in others.items()}}
        aucs = {k: found.aucs(j, bases, clusters, tags) for k, (j, tags) in judges.items()}
        for k, pair in aucs.items():
            for when, a in zip(("before", "after"), pair): row |= {f"{k}_{when}": a.auc, f"{k}_{when}_low": a.low, f"{k}_{when}_high": a.high}
        rows.append(row | {"told_before": is_told(aucs["words"][0], aucs["tags"][0]),
                           "told_after": is_told(*(pair[1] for k, pair in aucs.items() if k in others))})
    return pd.DataFrame(rows)


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
        table = fluency_table(edits_of(task), text_cases(right, source, judge.part), judge, task, {"elsewhere": other})
        tables.append(table.assign(task=task, edits=_edits_signature()))
        print(f"{task}: {len(right)} items, {fit:.1f} s for the models, {time.perf_counter() - began:.0f} s in all")
    whole = pd.concat(tables, ignore_index=True)
    shown = ["family", "kind", "n", "kept", *(f"{k}_{w}" for k in ("words", "tags", "elsewhere") for w in ("before", "after")), "told_before", "told_after"]
    for task, rows in whole.groupby("task"): print(task, rows.sort_values("words_before")[shown].round(2).to_string(index=False), sep="\n")
    if "--store" in sys.argv:
        with atomic_write(TABLE) as path: whole.to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
