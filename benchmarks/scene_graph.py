"""How right the built-in parser of captions is, how scene-graph F agrees with people, and how fast both are.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/scene_graph.py      (writes nbs/results/scene_graph.csv; half a minute)

Accuracy: 100 captions of COCO that a reader annotated (tests/scene_graph_gold.json), intervals by resampling captions; 1,500 captions
of the package's own scenes, of which everything is known; 2,000 sentences of its German and English world, for the two ends of
a relation. Agreement: Kendall's tau_c with the 16,992 ratings of Flickr8k-Expert. Speed: captions a second of one process, every
caption new, WordNet open; a reward is a caption and its five references. Set OMP_NUM_THREADS=1."""
import gzip
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]/"tests"))

import numpy as np
import pandas as pd
from caption_gold import accuracy
from scipy.stats import kendalltau

from invariant_metrics.files import atomic_write
from invariant_metrics.core import rng
from invariant_metrics.worlds.bilingual import make_sentences, meaning_relation
from invariant_metrics.worlds.scene_captions import WORDS, relation_captions, read_claims
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.invariants.parse import pattern_parse
from invariant_metrics.invariants.scene_graph import SceneGraph, graph_of, parse
from invariant_metrics.metrics.scene_graph_match import _scene_graph_rows

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"scene_graph.csv"


def row(name: str, data: str, n: int, value: float, low: float = np.nan, high: float = np.nan) -> dict:
    return {"name": name, "data": data, "n": n, "value": value, "low": low, "high": high}


def read_captions(place: Path) -> list[dict]: # shares of counts with intervals
    found, out = accuracy(parse, place/"coco_captions"/"val2017_1000.jsonl.gz"), []
    draws = rng(0, "captions").integers(0, 100, (2000, 100))
    for kind, table in found.items():
        for name, (a, b) in {"precision": (0, 1), "recall": (2, 3)}.items():
            many = table[draws].sum(1)
            low, high = np.quantile(many[:, a]/many[:, b], (0.025, 0.975))
            out.append(row(f"{kind}, {name}", "COCO, read by eye", int(table[:, b].sum()), table[:, a].sum()/table[:, b].sum(), low, high))
    return out


def own_captions(scenes: int = 300) -> list[dict]:
    "Shares of captions of which all things, all colors, all relations are right; other words for a relation count as that relation."
    batch, rows, means = make_scenes(scenes, 64, seed=2), [], {word: key for key, words in WORDS.items() for word in (key, *words)}
    short = lambda words: " ".join(w for w in words.split() if w not in ("the", "a"))
    means |= {short(word): key for word, key in means.items()} | {short(word).removeprefix("on ").removeprefix("to "): key for word, key in means.items()}
    means |= {"under": "below"}
    for text in (text for i in range(scenes) for text in relation_captions(batch, i)):
        graph, truth = parse(text), read_claims(text)
        heads = [e.head for e in graph.entities]
        relations = {(heads[a], means.get(r, r), heads[b]) for a, r, b in graph.relations}
        rows.append((set(heads) == truth.objects, {(e.head, m) for e in graph.entities for m in e.modifiers} == truth.attributes,
                     relations == truth.relations))
    return [row(f"all {kind} right", "own scenes", len(rows), share) for kind, share in zip(("things", "colors", "relations"), np.mean(rows, 0))]


def own_sentences(n: int = 2000) -> list[dict]:
    "Share of sentences in whose graph the two names of the truth are related in their direction."
    sentences, right = make_sentences(n, seed=3), []
    for meaning, text in zip(sentences.meanings, sentences.english):
        subject, _, other = meaning_relation(meaning)
        graph = parse(text)
        right.append(any((graph.entities[a].head, graph.entities[b].head) == (subject.lower(), other.lower()) for a, _, b in graph.relations))
    return [row("subject and object related", "own sentences", n, float(np.mean(right)))]


def agreement(place: Path) -> list[dict]:
    with open(place/"flickr8k_expert"/"images.jsonl") as file: images = {r["image_id"]: r["references"] for r in map(json.loads, file)}
    with open(place/"flickr8k_expert"/"judgments.jsonl") as file: rated = [json.loads(line) for line in file]
    texts, references, out = [r["candidate"] for r in rated], [images[r["image_id"]] for r in rated], []
    ratings = [x for r in rated for x in r["ratings"]]
    tau = lambda values: 100*kendalltau(np.repeat(values, 3), ratings, variant="c").statistic
    for synonyms in (False, True):
        values = _scene_graph_rows(texts, references, synonyms)
        names = [f"scene-graph-{part}{', synonyms' if synonyms else ''}" for part in ("p", "r", "f1")]
        out += [row(name, "Flickr8k-Expert", len(texts), tau(column)) for name, column in zip(names, values.T)]
    return out + [row("scene-graph reward", "Flickr8k-Expert", len(texts), tau(SceneGraph().reward(texts, references)))]


def speed(place: Path) -> list[dict]:
    with gzip.open(place/"coco_captions"/"val2017_1000.jsonl.gz", "rt") as file: rows = [json.loads(line)["captions"] for line in file]
    texts = [f"{text.strip()} " for captions in rows for text in captions] # with a blank: not remembered from before
    pattern_parse(texts[0])
    seconds, start = {}, time.process_time()
    graphs = [graph_of(pattern_parse(text)) for text in texts]
    seconds["captions a second, parsed"] = time.process_time() - start, len(graphs)
    reward, hyps, refs = SceneGraph(), [c[0] + "  " for c in rows], [c[1:] for c in rows]
    for name in ("rewards a second, references new", "rewards a second, captions new"):
        start = time.process_time()
        reward.reward(hyps, refs)
        seconds[name] = time.process_time() - start, len(hyps)
        hyps = [h + " " for h in hyps]
    return [row(name, "COCO", n, n/s) for name, (s, n) in seconds.items()]


def main() -> None:
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    place = Path(os.environ["INVARIANT_METRICS_DATA"])
    table = pd.DataFrame([*speed(place), *read_captions(place), *own_captions(), *own_sentences(), *agreement(place)])
    print(table.to_string(index=False, float_format=lambda v: f"{v:.4g}", na_rep=""))
    with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
