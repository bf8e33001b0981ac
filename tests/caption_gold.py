"""What a reader found in 100 captions of COCO, and how near a graph comes to it.

`scene_graph_gold.json` holds, by image id and place of the caption, the things a caption names (dictionary form with compounds) and
what it says of them (subject, relation, object). A question mark marks what a reader may say or leave: where a preposition could hang
on two words. It never counts, found or not. A relation is found where both ends agree and the preposition does, with or without the
verb before it ("on" and "ride on"). The captions were read before the parser saw them, and the parser was tuned on others."""
import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np

GOLD = Path(__file__).with_name("scene_graph_gold.json")


def gold_captions(path: Path) -> list[tuple[str, dict]]: # path of val2017_1000.jsonl.gz
    "Caption and annotation of each."
    with gzip.open(path, "rt") as file: texts = {str(row["image_id"]): row["captions"] for row in map(json.loads, file)}
    return [(texts[(at := key.split("/"))[0]][int(at[1])].strip(), gold) for key, gold in json.loads(GOLD.read_text()).items()]


def same(said: list, gold: list, named: bool) -> bool: # named: the relation counts, not its ends alone
    ends = said[0] == gold[0].lstrip("?") and said[2] == gold[2]
    return ends and (not named or said[1] == gold[1] or said[1].endswith(" " + gold[1]) or gold[1].endswith(" " + said[1]))


def counts(graph, gold: dict) -> dict[str, tuple[int, int, int, int]]: # right and all that was said, found and all that is to be found
    heads = [e.head for e in graph.entities]
    need, free = (Counter(e.lstrip("?") for e in gold["entities"] if (e[0] == "?") == optional) for optional in (False, True))
    said, hit = Counter(heads), sum((Counter(heads) & need).values())
    out = {"things": (hit, sum(said.values()) - sum(((said - need) & free).values()), hit, sum(need.values()))}
    rows = [(heads[a], r, heads[b]) for a, r, b in graph.relations]
    need, free = ([g for g in gold["relations"] if (g[0][0] == "?") == optional] for optional in (False, True))
    for kind, named in (("relations", True), ("related pairs", False)):
        right = [any(same(row, g, named) for g in need) for row in rows]
        allowed = [not ok and any(same(row, g, named) for g in free) for row, ok in zip(rows, right)]
        out[kind] = sum(right), len(rows) - sum(allowed), sum(any(same(row, g, named) for row in rows) for g in need), len(need)
    return out


def accuracy(parse, path: Path) -> dict[str, np.ndarray]: # kind -> (captions, 4) counts
    "Counts of each caption; precision is the first column's sum over the second's, recall the third's over the fourth's."
    rows = [counts(parse(text), gold) for text, gold in gold_captions(path)]
    return {kind: np.array([row[kind] for row in rows]) for kind in rows[0]}
