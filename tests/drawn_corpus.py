"""A collection of pictures drawn so that its failures have the sizes that Lymperaiou et al. (2022) report for 34,000 pictures of Visual Genome.

28,817 failures in the paper have 110,839 synsets in common, 627,833 that only one side holds, 184,747 matched pairs, and CE is 8.6 on average. Concepts
are real nouns of WordNet, drawn with frequencies that fall by a power law; two of three names have a synset. Region phrases and captions speak
of the objects, attributes and relations of their picture, so that a ranking by words works, and often fails.

    python tests/drawn_corpus.py FOLDER [PICTURES]     writes it as files of Visual Genome (default 34000), captions beside them in captions.json
"""
import json
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np

from invariant_metrics.core import rng, spans
from invariant_metrics.data.annotations import Annotations, Objects
from invariant_metrics.data.wordnet import _ancestor_columns, synset_name, synset_number, wordnet
from invariant_metrics.rankings.concepts import Concepts
from invariant_metrics.rankings.explain import concept_overlap

PICTURES, FAILURES = 34_026, 28_817
COMMON, EXCLUSIVE, MATCHED = 110_839, 627_833, 184_747 # synsets of all failures in the paper
WORDS = 6000
EVERYDAY = ("man woman sky tree shirt wall window grass building fence leg head hand table sign car plate street cloud dog person shoe pole road leaf chair "
            "flower horse hat field train light bag water bus snow boat cat zebra bench bird ball glass bowl bed giraffe clock elephant truck hill kite").split()
COLORS, SIZES = "white black green brown red blue gray yellow".split(), ("large", "small")
RELATIONS = ("on", "near", "behind", "next to", "under", "in front of")
MANY = {1: "a", 2: "two", 3: "three", 4: "four"}


@lru_cache
def drawn_words(seed: int) -> tuple[list[str], list[str]]: # names, synset of each, "" for every third
    "Everyday things first, then other things and beings by chance."
    wn = wordnet()
    nouns = np.flatnonzero(wn.parts["kind"] == 0)
    columns = _ancestor_columns(wn, nouns)
    held = np.add.reduceat((columns.above == synset_number(wn, "whole.n.02")).astype(int), columns.start[:-1]) > 0
    names = dict.fromkeys(EVERYDAY)
    for i in rng(seed, "nouns").permutation(nouns[held]).tolist():
        word = wn._forms[wn._lemma[wn._first[i]]]
        if word.isalpha() and word.islower() and synset_name(wn, i) == f"{word}.n.01": names[word] = None
        if len(names) == WORDS: break
    names = list(names)
    lacks = rng(seed, "lacks").random(WORDS) < np.where(np.arange(WORDS) < len(EVERYDAY), 0, .33)
    return names, ["" if lack else f"{name}.n.01" for name, lack in zip(names, lacks)]


def _objects(n: int, seed: int, names: list, synsets: list, sizes: np.ndarray) -> Objects:
    g = rng(seed, "objects")
    odds = np.cumsum(1/(np.arange(len(names)) + 8)**1.5)
    many = np.maximum(1, g.gamma(1.4, 18.5/1.4, n)).astype(int)
    kind = np.searchsorted(odds/odds[-1], g.random(many.sum()))
    key, _ = np.unique(np.repeat(np.arange(n), many)*len(names) + kind, return_index=True) # each kind once in a picture, then repeated
    times = np.where(g.random(len(key)) < .62, 1, 1 + g.geometric(.25, len(key)))
    image, name = np.divmod(np.repeat(key, times), len(names))
    share = np.exp(g.normal(np.repeat(g.normal(-3.5, 1, len(key)), times), .5)).clip(1e-4, .9)
    stretch = np.exp(g.normal(0, .3, len(image)))
    side = (np.sqrt(share)[:, None]*np.stack([stretch, 1/stretch], 1)).clip(.005, 1)*sizes[image]
    place = g.random((len(image), 2))*(sizes[image] - side)
    has = np.array([bool(s) for s in synsets])[name]
    used = np.cumsum([bool(s) for s in synsets]) - 1
    return Objects(image.astype(np.int32), name.astype(np.int32), np.concatenate([place, side], 1).astype(np.float32), np.concatenate([[0], np.cumsum(has)]),
                   used[name[has]].astype(np.int32), tuple(names), tuple(s for s in synsets if s))


def _sentences(kinds: list, counts: list, words: list, g) -> tuple[tuple, tuple, frozenset, frozenset]: # captions, regions, attributes, relations
    "What is said of a picture: two captions and up to eight region phrases, as many as things, each of which has an attribute of its own."
    chosen = g.integers(len(kinds), size=(2 + min(8, max(2, len(kinds))), 2)).tolist()
    color, size, tie = (g.integers(len(options), size=len(kinds)).tolist() for options in (COLORS, SIZES, RELATIONS))
    def thing(k: int, kind: str) -> str:
        if kind == "count" and counts[k] > 1: return f"{MANY.get(counts[k], 'several')} {words[k]}s"
        return f"a {(COLORS[color[k]] if kind != 'size' else SIZES[size[k]])} {words[k]}"
    def told(a: int, b: int, kind: str) -> str: return thing(a, kind) if a == b else f"{thing(a, kind)} {RELATIONS[tie[a]]} a {words[b]}"
    regions = tuple(told(a, b, ("color", "count", "size")[i % 3]) for i, (a, b) in enumerate(chosen[2:]))
    captions = tuple(told(a, b, ("count", "color")[i]) for i, (a, b) in enumerate(chosen[:2]))
    attributes = frozenset((words[a], COLORS[color[a]]) for a, _ in chosen)
    return captions, regions, attributes, frozenset((words[a], RELATIONS[tie[a]], words[b]) for a, b in chosen if a != b)


def drawn_annotations(n: int = PICTURES, seed: int = 0) -> Annotations:
    "The collection as `load_annotations` would give it, with the captions of captions.json."
    names, synsets = drawn_words(seed)
    sizes = np.array([(500, 375), (640, 480), (800, 600)], np.int32)[rng(seed, "sizes").integers(3, size=n)]
    objects = _objects(n, seed, names, synsets, sizes)
    key, times = np.unique(objects.image.astype(np.int64)*len(names) + objects.name, return_counts=True)
    image, kind = np.divmod(key, len(names))
    bounds, g, said = np.searchsorted(image, np.arange(n + 1)).tolist(), rng(seed, "sentences"), []
    kind, times = kind.tolist(), times.tolist()
    for a, b in zip(bounds, bounds[1:]): said.append(_sentences(kind[a:b], times[a:b], [names[k] for k in kind[a:b]], g))
    captions, regions, attributes, relations = zip(*said)
    return Annotations("visual-genome", tuple(str(i + 1) for i in range(n)), sizes, captions, regions, objects, attributes, relations, ("",)*n)


def drawn_failures(concepts: Concepts, many: int = FAILURES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    "Right and retrieved pictures: of two by chance the one that shares more is placed first."
    g, n = rng(seed, "failures"), len(concepts)
    truth = np.concatenate([g.permutation(n) for _ in range(-(-many//n))])[:many]
    others = (truth + g.integers(1, n, size=(2, many))) % n
    shared = np.stack([concept_overlap(concepts, truth, other).counts()["common"] for other in others])
    return truth, np.where(shared[0] >= shared[1], *others)


def write_visual_genome(drawn: Annotations, folder: str | Path) -> Path:
    "Files as Visual Genome has them, an entry a line, and captions.json in the form of COCO; the folder."
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    o, bounds = drawn.objects, drawn.bounds()
    box = o.box.round(2).tolist()
    def marked(j): return {"object_id": j, "names": [o.names[o.name[j]]], "synsets": [o.synsets[k] for k in o.sense[o.start[j]:o.start[j + 1]]], **dict(zip("xywh", box[j]))}
    def size(i): return dict(zip(("width", "height"), drawn.sizes[i].tolist()))
    def named(words): return {"names": [words]}
    entries = {
        "objects": lambda i: {"objects": [marked(j) for j in range(bounds[i], bounds[i + 1])]},
        "region_descriptions": lambda i: {"regions": [{"region_id": 100*i + k, "phrase": phrase, **dict.fromkeys(("x", "y"), 0), **size(i)} for k, phrase in enumerate(drawn.regions[i])]},
        "image_data": lambda i: {**size(i), "url": f"https://example.org/VG_100K/{drawn.ids[i]}.jpg", "coco_id": int(drawn.ids[i]), "flickr_id": None},
        "attributes": lambda i: {"attributes": [{**named(name), "attributes": [value]} for name, value in sorted(drawn.attributes[i])]},
        "relationships": lambda i: {"relationships": [{"predicate": tie, "subject": named(a), "object": named(b)} for a, tie, b in sorted(drawn.relations[i])]}}
    for name, entry in entries.items():
        with (folder/f"{name}.json").open("w") as file:
            for i in range(len(drawn)): file.write(("[" if i == 0 else ",\n") + json.dumps({"image_id": int(drawn.ids[i]), **entry(i)}))
            file.write("]\n")
    captions = [{"id": 10*i + k, "image_id": int(drawn.ids[i]), "caption": text} for i, texts in enumerate(drawn.captions) for k, text in enumerate(texts)]
    (folder.parent/f"{folder.name}_captions.json").write_text(json.dumps({"images": [{"id": int(i)} for i in drawn.ids], "annotations": captions}))
    return folder


if __name__ == "__main__":
    if len(sys.argv) < 2: raise SystemExit(__doc__)
    print(write_visual_genome(drawn_annotations(int(sys.argv[2]) if len(sys.argv) > 2 else PICTURES), sys.argv[1]))
