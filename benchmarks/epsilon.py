"""What invariants of texts and metrics of texts are worth on real captions: how far apart two right ones are, and who notices a wrong one.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/epsilon.py [--only NAME …] [--quick]     (writes nbs/results/epsilon.csv)

Every measure is turned into a distance of a caption to references: an invariant's violation, or minus a score. Three views.
COCO (val2017_1000): the first caption of an image against its second (right) and against the second of another image (wrong):
largest and 95 % quantile of right pairs, and AUC. SugarCrepe and VALSE where the image is one of those 1,000: a true caption and its foil,
both against the image's other captions, at most 200 of a piece: how often the foil is further away, ties count half. Captions that
share more than 60 % of their words with the true one are no references there, for foils are made from one of the five. Without other
captions (100 of each piece): the share of foils that differ from their own caption by more than the 95 % quantile of right pairs, and by
anything at all. Intervals by resampling images, 500 times. --only keeps the other measures' rows; Measures on large networks
are given a share of all this (SHARE); --quick takes a tenth and writes nothing. Set OMP_NUM_THREADS=1; about three minutes."""
import argparse
import gzip
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from invariant_metrics.core import InputError, rng
from invariant_metrics.files import atomic_write
from invariant_metrics.stats import auc
from invariant_metrics.invariants.invariant import get_invariant
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.cider import document_frequencies

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"epsilon.csv"
INVARIANTS = ("scene-graph", "entities", "sentiment", "paraphrase", "entities-random", "sentiment-random")
METRICS = ("scene-graph-f1", "bleu-4", "rouge-l", "cider-d", "bertscore")
PAIRS, APART, PIECE, REPS = 1000, 200, 100, 500
SHARE = {"paraphrase": 0.2, "bertscore": 0.4} # of all these, for what rests on a large network


def rows_of(path: Path) -> list[dict]:
    with gzip.open(path, "rt") as file: return [json.loads(line) for line in file]


def measure(name: str, corpus: list[list[str]]) -> Callable: # (texts, references) -> (N,) distances
    if name in INVARIANTS:
        found = get_invariant(name)
        return lambda texts, references: found.violation(texts, references).double().numpy()
    options = {"cider-d": {"df": document_frequencies(corpus)}, "bertscore": {"weights": "minilm"}}.get(name, {})
    metric = get_metric(name, **options)
    return lambda texts, references: 0.0 - metric.values(extract([metric], texts, references)[metric.name].pred).double().numpy()


def interval(statistic: Callable, clusters: np.ndarray, name: str) -> tuple[float, float]: # of a function of indices, by resampling clusters
    order, draw = [np.flatnonzero(clusters == c) for c in np.unique(clusters)], rng(0, name)
    values = [statistic(np.concatenate([order[k] for k in draw.integers(0, len(order), len(order))])) for _ in range(REPS)]
    return tuple(np.quantile(values, (0.025, 0.975)))


def right_and_wrong(distance: Callable, images: list[dict], share: float) -> tuple[list[dict], float]:
    images = images[:int(PAIRS*share)]
    texts, seconds = [r["captions"][0].strip() for r in images], [r["captions"][1].strip() for r in images]
    others = seconds[1:] + seconds[:1]
    both = distance(texts*2, [(t,) for t in (*seconds, *others)])
    near, far = both[:len(texts)], both[len(texts):]
    rows, ids = [], np.arange(len(texts))
    for name, f in {"largest of right pairs": lambda i: near[i].max(), "95 % of right pairs": lambda i: np.quantile(near[i], 0.95),
                    "AUC": lambda i: auc(far[i], near[i])}.items():
        low, high = interval(f, ids, name)
        rows.append({"data": "COCO", "piece": "other image", "quantity": name, "n": len(texts), "images": len(texts), "value": f(ids),
                     "low": low, "high": high})
    return rows, float(np.quantile(near, 0.95))


def foils(place: Path) -> list[dict]: # data, piece, image, caption, foil
    out = [{"data": "SugarCrepe", "piece": r["type"], "image": str(r["image_id"]), "caption": r["caption"], "foil": r["negative_caption"]}
           for r in rows_of(place/"sugarcrepe"/"sugarcrepe.jsonl.gz")]
    for r in rows_of(place/"valse"/"valse.jsonl.gz"):
        coco = re.search(r"0*(\d+)\.jpg$", r["image_file"]) if "coco" in (r["image_file"] + r["dataset"]).lower() else None
        out.append({"data": "VALSE", "piece": r["piece"], "image": coco[1] if coco else r["image_file"], "caption": r["caption"], "foil": r["foil"]})
    return [{**r, "caption": r["caption"].strip(), "foil": r["foil"].strip()} for r in out]


def alike(a: str, b: str) -> bool: # the same caption, perhaps in another writing
    one, two = (set(re.findall("[a-z0-9]+", text.lower())) for text in (a, b))
    return len(one & two) > 0.6*len(one | two)


def told_apart(distance: Callable, part: list[dict], known: dict, data: str, piece: str, share: float) -> list[dict]:
    "Share of foils further from the image's other captions than the true caption is."
    part = [{**r, "others": tuple(c for c in known.get(r["image"], ()) if not alike(c, r["caption"]))} for r in part]
    part = [r for r in part if r["others"]]
    part = [part[i] for i in rng(1, piece).permutation(len(part))[:int(APART*share)]]
    if len(part) < 20: return []
    both = distance([r["caption"] for r in part] + [r["foil"] for r in part], [r["others"] for r in part]*2)
    gap = both[len(part):] - both[:len(part)]
    won, images = (gap > 1e-9) + 0.5*(np.abs(gap) <= 1e-9), np.array([r["image"] for r in part])
    low, high = interval(lambda i: won[i].mean(), images, piece)
    return [{"data": data, "piece": piece, "quantity": "foil further away", "n": len(part), "images": len(set(images)), "value": won.mean(),
             "low": low, "high": high}]


def noticed(distance: Callable, part: list[dict], epsilon: float, data: str, piece: str, share: float) -> list[dict]:
    "Share of foils that differ from their own caption, at all and by more than right captions do."
    part = [part[i] for i in rng(0, piece).permutation(len(part))[:int(PIECE*share)]]
    both = distance([r["foil"] for r in part] + [r["caption"] for r in part], [(r["caption"],) for r in part]*2)
    gap, images, out = both[:len(part)] - both[len(part):], np.array([r["image"] for r in part]), []
    for name, seen in {"foil differs": gap > 1e-6, "foil differs beyond ε": both[:len(part)] > epsilon}.items():
        low, high = interval(lambda i, seen=seen: seen[i].mean(), images, piece)
        out.append({"data": data, "piece": piece, "quantity": name, "n": len(part), "images": len(set(images)), "value": seen.mean(),
                    "low": low, "high": high})
    return out


def measured(name: str, place: Path, share: float) -> list[dict]:
    images = rows_of(place/"coco_captions"/"val2017_1000.jsonl.gz")
    known = {str(r["image_id"]): [c.strip() for c in r["captions"]] for r in images}
    distance, all_foils = measure(name, [list(captions) for captions in known.values()]), foils(place)
    rows, epsilon = right_and_wrong(distance, images, share)
    for data, piece in dict.fromkeys((r["data"], r["piece"]) for r in all_foils):
        part = [r for r in all_foils if (r["data"], r["piece"]) == (data, piece)]
        rows += told_apart(distance, part, known, data, piece, share) + noticed(distance, part, epsilon, data, piece, share)
    return [{"measure": name, "kind": "invariant" if name in INVARIANTS else "metric", **row} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[*INVARIANTS, *METRICS], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="few pairs, nothing written")
    options = parser.parse_args()
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    place = Path(os.environ["INVARIANT_METRICS_DATA"])
    torch.set_num_threads(1)
    for name in options.only:
        start = time.process_time()
        try: table = pd.DataFrame(measured(name, place, 0.1 if options.quick else SHARE.get(name, 1)))
        except InputError as error: print(f"{name}: left out ({error})"); continue
        print(f"{name}: {time.process_time() - start:.0f} s", flush=True)
        if options.quick: print(table.to_string(index=False, float_format=lambda v: f"{v:.3g}"))
        else: store(table)


def store(table: pd.DataFrame) -> None:
    "Rows of one measure in place of its old ones."
    if TABLE.is_file(): table = pd.concat([(old := pd.read_csv(TABLE))[~old["measure"].isin(table["measure"])], table])
    table = table.sort_values("measure", key=lambda names: names.map([*INVARIANTS, *METRICS].index), kind="stable")
    with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
