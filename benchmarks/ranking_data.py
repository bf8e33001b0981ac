"""Ranks, failures and attacks on real captions: TF-IDF, word pieces and MiniLM.

    python benchmarks/ranking_data.py DATA [SET…]     (sets: coco_mini, multi30k, coco_captions, scenes; needs the extra minilm)

DATA holds coco_mini/instances.json with its images and lvis_sample/coco_to_synset.json (118 photographs with boxes),
multi30k/train_2000.jsonl.gz (2,000 pictures with five captions) and coco_captions/val2017_1000.jsonl.gz (1,000).
MiniLM was trained on captions of COCO and Flickr30k. It has not seen `scenes`, 1,000 painted scenes with five captions written by
rule and every thing marked, nor, where you have it, pascal50s=FILE (the first five captions of each picture of Pascal-50S).
The first caption asks, the others are searched. Of pictures without boxes, things are read from their captions.
Kept in nbs/results/ranking_data/, a table each; sets that are not asked for keep their rows."""
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

import invariant_metrics as im
from invariant_metrics.core import few_threads
from invariant_metrics.data.annotations import annotate, scene_annotations
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.files import atomic_write
from invariant_metrics.rankings.failure_classes import CLASSES
from invariant_metrics.rankings.table import _ratio_influence
from invariant_metrics.rankings.rank_task import RankingTask
from invariant_metrics.stats import student, student_interval

OUT = Path(__file__).parents[1]/"nbs"/"results"/"ranking_data"
MODELS = ("tfidf", "embedded", "minilm")
SETS = {"coco_mini": (("coco_mini/instances.json",), {"synsets": "lvis_sample/coco_to_synset.json", "images": "coco_mini/images"}),
        "multi30k": (("multi30k/train_2000.jsonl.gz",), {}),
        "coco_captions": (("coco_captions/val2017_1000.jsonl.gz",), {}),
        "scenes": ((), {})}


def _marks_of(classes: pd.DataFrame, name: str, queries: int) -> np.ndarray: # (3, Q) class, judged, failed
    at = classes["query"].to_numpy(int)
    verdict = classes[name]
    out = np.zeros((3, queries))
    out[0, at] = verdict.fillna(False).astype(float)
    out[1, at] = verdict.notna()
    out[2, at] = 1
    return out


def _compared(a: pd.DataFrame, b: pd.DataFrame, name: str, of: str, queries: int):
    "Both shares of a class, and (Q,) by how much each query moves their difference."
    found = []
    for side in (a, b):
        x, judged, failed = _marks_of(side, name, queries)
        found.append(_ratio_influence(x, judged if of == "failures" else np.maximum(judged, 1 - failed)))
    (one, moved), (two, other) = found
    return one, two, moved - other


def compare_classes(a: pd.DataFrame, b: pd.DataFrame, # of `classify_failures`, for two models on one task
                    task: RankingTask,
                    confidence: float = 0.95,
                   ) -> pd.DataFrame: # class, of ("failures", "queries"), a, b, difference, interval, p, n
    "Shares among failures and rates per query of two models; paired intervals of a − b over n pictures."
    pictures, cluster = np.unique(task.query_image, return_inverse=True)
    rows = []
    scale = len(pictures)/len(task)
    for name, of in product((*CLASSES, "alternative"), ("failures", "queries")):
        one, two, moved = _compared(a, b, name, of, len(task))
        found = _difference(one - two, scale*np.bincount(cluster, moved), confidence)
        rows.append({"class": name, "of": of, "a": one, "b": two, **found, "n": len(pictures)})
    return pd.DataFrame(rows)


def _difference(value: float, moves: np.ndarray, confidence: float) -> dict:
    if not np.isfinite(value): return dict.fromkeys(("difference", "ci_low", "ci_high", "p"), np.nan)
    ci = student_interval(value, moves, confidence)
    se = moves.std(ddof=1)/len(moves)**0.5
    p = 2*student.sf(abs(value)/se, len(moves) - 1) if se > 0 else float(value == 0)
    return {"difference": value, "ci_low": ci.low, "ci_high": ci.high, "p": float(p)}


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


def pictures_of(place: str, files: tuple[str, ...], pascal: str): # what `rank` takes
    "The pictures of a set: files, Pascal-50S, or painted scenes."
    if not pascal: return [str(Path(place)/f) for f in files] if files else scene_annotations(1000)
    pairs = load_judgments(pascal, "pascal50s").table.drop_duplicates("group")
    return annotate([{"id": str(row.group), "captions": list(row.references[:5])} for row in pairs.itertuples()])


def main(place: str, *names: str) -> None:
    few_threads()
    for name in names or SETS:
        name, _, pascal = name.partition("=")
        (files, options), begun = SETS.get(name, ((), {})), time.process_time()
        options = {option: Path(place)/value for option, value in options.items()}
        with tempfile.TemporaryDirectory() as folder:
            found = im.rank(pictures_of(place, files, pascal), MODELS, out=Path(folder)/"run", **options)
        frames = frames_of(found)
        frames["seconds"] = pd.DataFrame([{"queries": len(found.task), "cpu": round(time.process_time() - begun, 1)}])
        frames["findings"] = found.cleaning.groupby(["kind", "check"]).size().rename("n").reset_index()
        for table, rows in frames.items():
            with atomic_write(OUT/f"{table}.csv") as path: kept(table, rows, name).round(5).to_csv(path, index=False)
        print(name, *found.sentences(), sep="\n")


if __name__ == "__main__": main(*sys.argv[1:])
