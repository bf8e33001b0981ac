"""Ranks, failures and attacks on real captions: TF-IDF, word pieces and MiniLM.

    python benchmarks/ranking_data.py DATA [SET…]     (sets: coco_mini, multi30k, coco_captions; needs the extra minilm)

DATA holds coco_mini/instances.json with its images and lvis_sample/coco_to_synset.json (118 photographs with boxes),
multi30k/train_2000.jsonl.gz (2,000 pictures with five captions) and coco_captions/val2017_1000.jsonl.gz (1,000).
The first caption asks, the others are searched. Of pictures without boxes, things are read from their captions.
Kept in nbs/results/ranking_data/, a table each; sets that are not asked for keep their rows."""
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

import invariant_metrics as im
from invariant_metrics.core import few_threads
from invariant_metrics.files import atomic_write
from invariant_metrics.ranking.classes import compare_classes

OUT = Path(__file__).parents[1]/"nbs"/"results"/"ranking_data"
MODELS = ("tfidf", "embedded", "minilm")
SETS = {"coco_mini": (("coco_mini/instances.json",), {"synsets": "lvis_sample/coco_to_synset.json", "images": "coco_mini/images"}),
        "multi30k": (("multi30k/train_2000.jsonl.gz",), {}),
        "coco_captions": (("coco_captions/val2017_1000.jsonl.gz",), {})}


def frames_of(found) -> dict[str, pd.DataFrame]: # name of a table -> rows
    best = found.models[-1]
    classes = [compare_classes(best.classes, model.classes, found.task).assign(model=best.name, against=model.name) for model in found.models[:-1]]
    attacks = {part: pd.concat([getattr(a, part).assign(model=name) for name, a in found.attacks.items()]) for part in ("table4", "table5", "contrast")}
    return {"scores": found.scores, "comparison": found.comparison, "shares": found.shares, "class_differences": pd.concat(classes),
            "table": found.table, "rules": found.rules, **attacks}


def kept(name: str, rows: pd.DataFrame, data: str) -> pd.DataFrame: # with the rows of other sets
    path = OUT/f"{name}.csv"
    rows = rows.assign(data=data)[["data", *rows]]
    old = pd.read_csv(path) if path.exists() else pd.DataFrame()
    return pd.concat([old[old["data"] != data], rows], ignore_index=True) if len(old) else rows


def main(place: str, *names: str) -> None:
    few_threads()
    for name in names or SETS:
        (files, options), begun = SETS[name], time.process_time()
        options = {option: Path(place)/value for option, value in options.items()}
        with tempfile.TemporaryDirectory() as folder:
            found = im.rank([str(Path(place)/f) for f in files], MODELS, out=Path(folder)/"run", **options)
        frames = frames_of(found)
        frames["seconds"] = pd.DataFrame([{"queries": len(found.task), "cpu": round(time.process_time() - begun, 1)}])
        frames["findings"] = found.cleaning.groupby(["kind", "check"]).size().rename("n").reset_index()
        for table, rows in frames.items():
            with atomic_write(OUT/f"{table}.csv") as path: kept(table, rows, name).round(5).to_csv(path, index=False)
        print(name, *found.sentences(), sep="\n")


if __name__ == "__main__": main(*sys.argv[1:])
