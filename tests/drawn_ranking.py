"A made-up ranking with the columns of a real one, of any size: for tests of its page and for its speed."
from types import SimpleNamespace

import numpy as np
import pandas as pd

from invariant_metrics.core import Interval, Score, Signature, rng
from invariant_metrics.data.annotations import Annotations, Objects, annotate

CLASS_SHARES = {"object": 0.62, "count": 0.2, "size": 0.08, "attribute": 0.15, "relation": 0.05, "alternative": 0.12}


def drawn_annotations(n=40, words=60, seed=0, objects=12, captions=None) -> Annotations:
    "Pictures without files: names w0, w1, …, whose synsets are w0.n.01, …, the early ones in most pictures."
    draw = rng(seed)
    count = draw.integers(1, 2 * objects, n)
    name = np.minimum(draw.geometric(8 / words, count.sum()) - 1, words - 1).astype(np.int32)
    size = np.stack([draw.integers(300, 640, n), draw.integers(300, 640, n)], 1).astype(np.int32)
    image = np.repeat(np.arange(n), count).astype(np.int32)
    corner = draw.random((len(image), 2)) * 0.7
    box = np.concatenate([corner, 0.05 + draw.random((len(image), 2)) * 0.25], 1) * np.tile(size[image], 2)
    names = tuple(f"w{k}" for k in range(words))
    told = captions or tuple((f"a picture of w{name[k]} number {k}", "and another sentence") for k in range(n))
    marked = Objects(image, name, box.astype(np.float32), np.arange(len(image) + 1), name, names, tuple(f"{w}.n.01" for w in names))
    return Annotations("drawn", tuple(f"picture {k}" for k in range(n)), size, told, ((),) * n, marked, (), (), ("",) * n)


def concepts_of_all(annotations):
    "The first synset of each object, as columns."
    objects, size = annotations.objects, len(annotations.objects.synsets)
    of_object = np.where(np.diff(objects.start) > 0, objects.sense[np.minimum(objects.start[:-1], len(objects.sense) - 1)], -1)
    known = of_object >= 0
    keys, count = np.unique(objects.image[known].astype(np.int64) * size + of_object[known], return_counts=True)
    start = np.searchsorted(keys, np.arange(len(annotations) + 1) * size)
    return SimpleNamespace(vocabulary=objects.synsets, start=start, concept=keys % size, count=count, of_object=of_object, choice=SimpleNamespace(area_unit="share"))


def drawn_explanations(concepts, query, truth, retrieved, rank, draw):
    "Sets and counts as they are; similarities and areas are drawn."
    def sides(pictures):
        rows = pd.DataFrame({"failure": np.repeat(np.arange(len(pictures)), np.diff(concepts.start)[pictures])})
        place = np.concatenate([np.arange(concepts.start[p], concepts.start[p + 1]) for p in pictures]) if len(pictures) else np.zeros(0, int)
        return rows.assign(concept=concepts.concept[place], n=concepts.count[place])
    both = sides(truth).merge(sides(retrieved), on=["failure", "concept"], how="outer", suffixes=("_truth", "_retrieved"))
    both = both.sort_values(["failure", "concept"], ignore_index=True)
    left, right = both["n_truth"].notna(), both["n_retrieved"].notna()
    names = np.asarray(concepts.vocabulary)
    common = both[left & right].reset_index(drop=True)
    counts = pd.DataFrame({"failure": common["failure"], "concept": names[common["concept"]], "truth_count": common["n_truth"].astype(int), "retrieved_count": common["n_retrieved"].astype(int)})
    sizes = counts[["failure", "concept"]].assign(truth_area=draw.random(len(counts)), retrieved_area=draw.random(len(counts)))
    sizes["difference"] = (sizes["truth_area"] - sizes["retrieved_area"]).abs() / sizes["truth_area"]
    lone = [rows.assign(turn=rows.groupby("failure").cumcount()) for rows in (both[left & ~right], both[right & ~left])]
    pairs = lone[0].merge(lone[1], on=["failure", "turn"], suffixes=("_a", "_b"))
    matches = pd.DataFrame({"failure": pairs["failure"], "truth_concept": names[pairs["concept_a"]], "retrieved_concept": names[pairs["concept_b"]], "similarity": 1 / draw.integers(2, 12, len(pairs))})
    of = lambda rows: np.bincount(rows["failure"], minlength=len(truth))
    frame = pd.DataFrame({"query": query, "truth": truth, "retrieved": retrieved, "rank": rank, "common": of(common), "only_truth": of(lone[0]), "only_retrieved": of(lone[1]),
                          "matched": of(matches), "sizes": of(sizes)})
    frame["ca"] = frame["common"] / (frame["common"] + frame["only_truth"]).where(lambda n: n > 0)
    frame["ncs"] = matches.groupby("failure")["similarity"].mean().reindex(frame.index)
    frame["ce"] = (counts["truth_count"] - counts["retrieved_count"]).abs().groupby(counts["failure"]).sum().reindex(frame.index, fill_value=0).astype(float)
    frame["sd"] = (sizes["difference"] >= 1).groupby(sizes["failure"]).mean().reindex(frame.index)
    return SimpleNamespace(frame=frame, matches=matches, counts=counts, sizes=sizes)


def drawn_model(name, annotations, concepts, right, seed):
    "Each picture is a query of its own; a share of them is right."
    draw, n = rng(seed), len(annotations)
    rank = np.where(draw.random(n) < right, 1, 1 + draw.geometric(0.03, n)).astype(np.int64)
    failed = np.flatnonzero(rank > 1)
    retrieved = (failed + draw.integers(1, n, len(failed))) % n
    explanations = drawn_explanations(concepts, failed, failed, retrieved, rank[failed], draw)
    classes = pd.DataFrame({"query": failed, **{c: pd.array(draw.random(len(failed)) < s, "boolean") for c, s in CLASS_SHARES.items()}})
    classes.loc[draw.random(len(failed)) < 0.1, "attribute"] = pd.NA
    for measure in ("ca", "ncs", "ce", "sd"): classes[f"{measure}_query"] = explanations.frame[measure]
    classes = classes.assign(coverage=draw.random(len(failed)), query_concepts=2, missing="two dogs; red ball", extra="")
    shares = pd.DataFrame([{"class": c, "share": s, "ci_low": s - 0.03, "ci_high": s + 0.03, "n": len(failed)}
                           for c, s in ((c, classes[c].astype(float).mean()) for c in CLASS_SHARES)])
    def score(metric, value): return Score(float(value), Interval(float(value) * 0.9, float(value) * 1.1), n, True, Signature.of(metric=metric, n=n, system=name))
    scores = {f"recall@{k}": score(f"recall@{k}", (rank <= k).mean()) for k in (1, 5, 10)}
    scores |= {"mrr": score("mrr", (1 / rank).mean()), "median-rank": score("median-rank", np.median(rank)), "fails": score("fails", (rank > 1).mean())}
    table = pd.DataFrame([{"failures": len(failed), "mean_ca": explanations.frame["ca"].mean(), "counts_off_per_failure": explanations.frame["ce"].mean()}])
    return SimpleNamespace(name=name, ranks=SimpleNamespace(rank=rank, failed=rank > 1, size=n), scores=scores, explanations=explanations, classes=classes, shares=shares, table=table)


def drawn_ranking(annotations, models={"tfidf": 0.15, "minilm": 0.4}, queries=None):
    "A whole result: models by their recall@1."
    concepts = concepts_of_all(annotations)
    ranked = [drawn_model(name, annotations, concepts, right, 10 + k) for k, (name, right) in enumerate(models.items())]
    attacked = SimpleNamespace(
        table4=pd.DataFrame([{"kind": "antonym", "valid": False, "changed": 30, "lower": 0.45, "lower_low": 0.4, "lower_high": 0.5}]),
        table5=pd.DataFrame([{"kind": "antonym", "mrr": 0.3, "mrr_change": -0.1, "mrr_low": -0.15, "mrr_high": -0.05}]), moves=pd.DataFrame([{"kind": "antonym", "cosine": -0.04}]),
        contrast=pd.DataFrame([{"kind": "antonym", "control": "synonym", "measure": "lowered", "dose": "any", "n_valid": 90, "violation": 0.45, "valid": 0.12,
                                "difference": 0.33, "ci_low": 0.28, "ci_high": 0.38, "p": 0.001}]))
    task = SimpleNamespace(annotations=annotations, queries=queries or tuple((c[0],) for c in annotations.captions))
    run = {"settings": {"command": "rank", "data": "drawn", "models": list(models), "seed": 0}, "parts": {"rank": {"seconds": 61.0}}, "versions": {"python": "3"}}
    return SimpleNamespace(task=task, models=tuple(ranked), concepts=concepts, run=run, notes=("a note <of> the run",), remarks=("minilm: 2 of 9 cannot be judged",), attacks={"minilm": attacked},
                           comparison=pd.DataFrame([{"metric": "recall@1", "a": 0.4, "b": 0.15, "difference": 0.25, "ci_low": 0.2, "ci_high": 0.3, "p": 0.001}]),
                           rules=pd.DataFrame([{"if": "object", "then": "count", "support": 0.1, "confidence": 0.3, "ci_low": 0.2, "ci_high": 0.4, "lift": 1.4, "n": 50}]),
                           cleaning=pd.DataFrame([{"kind": "caption fits no picture", "id": "picture 3", "what": "a <b>", "evidence": "rank 900"}]))


_ZEBRA_TRUTH = ("trunk", "hill", "tree", "sky", "field", "branch", "head", "leg", "leaf", "mane")
_ZEBRA_RETRIEVED = ("grassland", "field", "grass")
_FIELD = (100, 100) # width and height of the right picture's boxes
_MANE = (40, 25)


def _things(name: str, sizes) -> list[dict]: # one object for each (width, height)
    return [{"name": name, "synsets": [f"{name}.n.01"], "box": (0, 0, *size)} for size in sizes]


def zebra_pictures(zebras: int = 5, # in the right picture: 5 to count, 4 to compare sizes
                  ) -> Annotations:
    "The right and the retrieved picture of the failure worked out in Lymperaiou et al. (2022)."
    sizes = {"field": _FIELD, "mane": _MANE}
    right = [thing for name in _ZEBRA_TRUTH for thing in _things(name, [sizes.get(name, (30, 30))])]
    right += _things("zebra", [(60 + 4*k, 40) for k in range(zebras)])
    sizes = {"field": (_FIELD[0], 2.369*_FIELD[1])}
    wrong = [thing for name in _ZEBRA_RETRIEVED for thing in _things(name, [sizes.get(name, (30, 30))])]
    wrong += _things("mane", [(_MANE[0], (3.3 + k/5)*_MANE[1]) for k in range(5)])
    wrong += _things("zebra", [(58 + 4*k, 40) for k in range(7)])
    frame = {"width": 500, "height": 375}
    sides = {"right": right, "retrieved": wrong}
    return annotate({"id": name, **frame, "objects": objects} for name, objects in sides.items())
