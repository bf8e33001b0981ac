"""Hostile calls drawn from a seed: right calls of `im.score` and of the commands, in which one thing or several are made wrong.

    python tests/fuzz.py 20000 --seed 7      # counts, and the first case of every kind of failure
    python tests/fuzz.py --case 7:1234       # one case again, with its traceback
    python tests/fuzz.py 10000 --family tables # one known table of judgments in every form, read back: the same, or refused
    python tests/fuzz.py 10000 --texts       # one table of texts in every format: the same number, or a refusal
"""
import argparse
import gzip
import io
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image

import invariant_metrics as im
from invariant_metrics.core import InputError
from invariant_metrics.scoring.sides import open_comparison

LONGEST = 500     # letters of a message
SECONDS = 20      # of CPU that a case may take
MEMORY = 4*2**30  # bytes that a case may ask for beyond what is in use

# What is known of a kind of input. A wrong one must be refused, or its number must come with a note; ALONE if that
# holds only while nothing else is changed; a RIGHT one must give the number of the plain call; of others we only ask
# that no foreign error comes out.
WRONG, ALONE, RIGHT, ODD = "wrong", "alone", "right", "odd"


class Unreadable:
    "An object that raises when anybody looks at it."
    def __array__(self, *_, **__): raise RuntimeError("no array\nover two lines")
    def __iter__(self): raise RuntimeError("not to be iterated")
    def __len__(self): raise RuntimeError("no length")


class Liar:
    "A sequence that says it is longer than it is."
    def __init__(self, items): self.items = items
    def __len__(self): return len(self.items) + 5
    def __getitem__(self, i): return self.items[i]


def endless() -> list:
    "A list that holds itself."
    out = []
    out.append(out)
    return out


LONG, NUL = "n"*5000, "a\0b"
OBJECTS = { # that are no data of any kind
    "None": lambda: None, "an integer": lambda: 5, "NaN": lambda: float("nan"), "True": lambda: True, "an object": object, "a class": lambda: int,
    "a function": lambda: len, "bytes": lambda: b"abc", "a bytearray": lambda: bytearray(b"abc"), "a memoryview": lambda: memoryview(b"abc"), "Ellipsis": lambda: ...,
    "an empty list": list, "an empty tuple": tuple, "an empty set": set, "an empty text": lambda: "", "a list of None": lambda: [None, None],
    "an endless list": endless, "an unreadable object": Unreadable, "a complex number": lambda: 1j, "a slice": lambda: slice(3),
    "a zero-dimensional array": lambda: np.array(1.0), "an array of objects": lambda: np.array([object(), None], dtype=object), "a date": lambda: pd.Timestamp("2020-01-01"),
    "a missing path": lambda: "no/such/place", "a path with NUL": lambda: NUL, "a Path with NUL": lambda: Path(NUL), "a long path": lambda: LONG,
    "the root": lambda: Path("/"), "an open file": lambda: io.BytesIO(b"x"), "an exception": lambda: ValueError("x"), "a lone surrogate": lambda: "\ud800", "an empty array": lambda: np.zeros(0),
    "an empty frame": pd.DataFrame, "nested lists": lambda: [[[[[]]]]], "a structured array": lambda: np.zeros(3, dtype=[("a", "f4"), ("b", "i4")]),
    "a meta tensor": lambda: torch.empty(4, 3, 16, 16, device="meta"), "a sparse tensor": lambda: torch.eye(4).to_sparse()}
OBJECTS = {f"{name}": (make, WRONG) for name, make in OBJECTS.items()}


def with_value(value) -> Callable: # a copy of an array with one number of it changed
    def change(x, draw):
        x = np.array(x, copy=True)
        x.flat[draw.randrange(x.size)] = value
        return x
    return change


def masked(x, draw):
    mask = np.zeros(x.shape, bool)
    mask.flat[draw.randrange(mask.size)] = True
    return np.ma.masked_array(x, mask)


def reverse_view(x): return np.ascontiguousarray(x[..., ::-1])[..., ::-1]


def with_item(value) -> Callable: # a list with one item changed
    def change(items, draw):
        items = list(items)
        items[draw.randrange(len(items))] = value() if callable(value) else value
        return items
    return change


ARRAYS = { # of images and of features: name -> (function of the right array and of a generator, what is known)
    "negative strides": (lambda x, _: reverse_view(x), RIGHT), "all strides negative": (lambda x, _: np.flip(np.flip(x).copy()), RIGHT),
    "Fortran order": (lambda x, _: np.asfortranarray(x), RIGHT), "a broadcast": (lambda x, _: np.broadcast_to(x, (1, *x.shape))[0], RIGHT),
    "a list of arrays": (lambda x, _: list(x), RIGHT), "a tuple of reversed views": (lambda x, _: tuple(map(reverse_view, x)), RIGHT), "nested lists": (lambda x, _: x.tolist(), ODD),
    "a tensor": (lambda x, _: torch.from_numpy(x.copy()), RIGHT), "a tensor with gradient": (lambda x, _: torch.from_numpy(x.copy()).requires_grad_(), RIGHT),
    "a list of tensors": (lambda x, _: [torch.from_numpy(r.copy()) for r in x], RIGHT), "big-endian": (lambda x, _: x.astype(x.dtype.newbyteorder(">")), RIGHT),
    "masked": (masked, WRONG), "a list with a masked array": (lambda x, draw: [*x[1:], masked(x[0], draw)], WRONG), "a mask over nothing": (lambda x, _: np.ma.masked_array(x), RIGHT), "a view as memory": (lambda x, _: memoryview(x), ODD),
    "a NaN": (with_value(np.nan), WRONG), "an infinity": (with_value(np.inf), WRONG), "a negative infinity": (with_value(-np.inf), WRONG),
    "complex": (lambda x, _: x.astype(complex), WRONG), "objects": (lambda x, _: x.astype(object), ODD), "texts": (lambda x, _: x.astype(str), WRONG),
    "booleans": (lambda x, _: x > 0.5, WRONG), "None inside": (with_item(None), WRONG), "a text inside": (with_item("x"), WRONG), "bytes inside": (with_item(b"abc"), WRONG),
    "an object inside": (with_item(object), WRONG), "rows of two lengths": (lambda x, _: [*x[1:], x[0][..., :-1]], ALONE), "a liar": (lambda x, _: Liar(x), ODD),
    "flat": (lambda x, _: x.ravel(), WRONG), "one more axis": (lambda x, _: x[None, None], WRONG), "nobody": (lambda x, _: x[:0], WRONG), "no width": (lambda x, _: x[..., :0], WRONG),
    "dates": (lambda x, _: x.astype("datetime64[s]"), WRONG), "a generator": (lambda x, _: (r for r in x), ODD), "an iterator of a set": (lambda x, _: iter({1.0, 2.0}), ODD),
    "a set": (lambda x, _: {float(v) for v in x.flat[:9]}, WRONG), "a frozen set": (lambda x, _: frozenset(map(float, x.flat[:9])), WRONG), "a frame": (lambda x, _: pd.DataFrame(x.reshape(len(x), -1)), ODD),
    "a series": (lambda x, _: pd.Series(x.ravel()), ODD), "a mapping of rows": (lambda x, _: dict(enumerate(x)), ODD), "half precision": (lambda x, _: torch.from_numpy(x.copy()).bfloat16(), ODD)}
IMAGES = {**ARRAYS, "channels last": (lambda x, _: x.transpose(0, 2, 3, 1), RIGHT), "BGR views of channels last": (lambda x, _: np.ascontiguousarray(x.transpose(0, 2, 3, 1)[..., ::-1])[..., ::-1], RIGHT),
          "from -1 to 1": (lambda x, _: 2*x - 1, WRONG), "from 0 to 255": (lambda x, _: 255*x, WRONG), "integers": (lambda x, _: (255*x).astype(np.int64), WRONG),
          "one image": (lambda x, _: x[0], WRONG), "four channels": (lambda x, _: x[:, [0, 1, 2, 2]], WRONG),
          "one too few": (lambda x, _: x[1:], ALONE), "smaller": (lambda x, _: x[..., 1:, 1:], ALONE), "one pixel": (lambda x, _: x[..., :1, :1], ALONE)}
FEATURES = {**ARRAYS, "huge": (lambda x, _: x.astype(float)*1e160, ODD), "tiny": (lambda x, _: x.astype(float)*1e-160, ODD), "a large offset": (lambda x, _: x + 1e8, ODD), "integers": (lambda x, _: np.round(9*x).astype(int), ODD),
            "one row": (lambda x, _: x[:1], WRONG), "narrower": (lambda x, _: x[:, 1:], ALONE), "constant": (lambda x, _: np.repeat(x[:1], len(x), 0), ODD), "few": (lambda x, _: x[:3], ODD)}
TEXTS = {"a tuple": (lambda x, _: tuple(x), RIGHT), "an array": (lambda x, _: np.array(x), RIGHT), "a series": (lambda x, _: pd.Series(x), RIGHT), "an array of objects": (lambda x, _: np.array(x, dtype=object), RIGHT),
         "reversed views": (lambda x, _: np.array(x[::-1])[::-1], RIGHT), "by id": (lambda x, _: dict(enumerate(x)), ODD), "lists of one by id": (lambda x, _: {i: [t] for i, t in enumerate(x)}, ODD),
         "a generator": (lambda x, _: (t for t in x), RIGHT), "a set": (lambda x, _: set(x), WRONG), "a frozen set": (lambda x, _: frozenset(x), WRONG), "keys of a dict": (lambda x, _: dict.fromkeys(x).keys(), ODD),
         "masked": (lambda x, draw: np.ma.masked_array(x, [k == 1 for k in range(len(x))]), WRONG), "bytes inside": (with_item(b"abc"), WRONG), "None inside": (with_item(None), WRONG), "NaN inside": (with_item(float("nan")), WRONG),
         "a number inside": (with_item(5), WRONG), "an object inside": (with_item(object), WRONG), "an empty list inside": (with_item(list), WRONG), "a set inside": (with_item(lambda: {"a", "b"}), WRONG),
         "a dict inside": (with_item(lambda: {"a": "b"}), WRONG), "a list of None inside": (with_item(lambda: [None]), WRONG), "one text": (lambda x, _: x[0], WRONG), "texts as bytes": (lambda x, _: [t.encode() for t in x], WRONG),
         "one too few": (lambda x, _: x[1:], ALONE), "one too many": (lambda x, _: [*x, "more"], ALONE), "an empty text": (with_item(""), ODD), "only blanks": (lambda x, _: ["  \t"]*len(x), ODD), "all empty": (lambda x, _: [""]*len(x), ODD),
         "a lone surrogate inside": (with_item("a \ud800 b"), ODD), "NUL inside": (with_item("a \0 b"), ODD), "all of Unicode": (with_item("".join(map(chr, range(1, 3000)))), ODD), "a long word": (with_item("x"*3000), ODD),
         "a frame": (lambda x, _: pd.DataFrame({"text": x}), ODD), "two streams": (lambda x, _: [list(x), list(x)], ODD), "a mixture of pairs": (with_item(("a", "b")), ODD), "numbers": (lambda x, _: list(range(len(x))), WRONG), "a liar": (lambda x, _: Liar(x), ODD)}

SWITCHES = ("no", 2, [], "", 0.5, None, object())
NUMBERS = ("x", None, [], {}, "", float("nan"), float("inf"), -1, object(), b"1", 1j, np.array([1, 2]), (), lambda: 1)
NAMES = (5, [], {}, b"x", object(), 1.5, ["a"], NUL, LONG, "nope", ":", ":x", "x:", "../x:y", "a b:c", "os:nope", "no.module:x", "..:x", "os:path", "\n", "\ud800", lambda: 1, int)
OPTIONS = { # name -> wrong values
    "confidence": (*NUMBERS, 0, 1, 2, 95, True, "0.95"), "seed": ("x", None, [], {}, 1.5, float("nan"), object(), "1", (), b"1"),
    "device": ([1], "gpu", "cuda:99", {}, object(), "", "meta", 5, "cpu:x", 1.5, NUL, "☃", (), b"cpu"), "ci": ("bogus", 5, [], {}, object(), "", float("nan"), ("auto",), b"auto", 1.5),
    "reps": (*NUMBERS, 1, 1.5, 10**12, "5"), "permutations": (*NUMBERS, 1.5, 10**12, "5"), "batch": (*NUMBERS, 0, 1.5, "5"),
    "paired": SWITCHES, "skip_bad": SWITCHES, "recursive": SWITCHES, "intersect": SWITCHES, "cache": SWITCHES,
    "clusters": ("x", 5, [1], [], [[1]], {}, object(), {1, 2, 3}, float("nan"), b"x", [object()]*3, lambda: 1, "abcdef"), "query": (5, object(), [], ["a"], "nope.txt", b"x", {}),
    "metric_options": ("x", [], 5, {1: 2}, {"nope": 1}, {"": 1}, {None: 1}, object(), [("a", 1)], b"x", {"device": 5}, {LONG: 1}),
    "encoder": NAMES, "layer": NAMES, "weights": [name for name in NAMES if name != {} and name != []], "source": (5, object(), [], "nope.txt", b"x", {}, ["a"]), "options": (5, "x", {}, [], object()), "no_such_option": (1, None),
    "metrics": (*NAMES, None, [None], [5], [[]], [""], ["nope", "nope"], [object()], [LONG], [NUL], [b"psnr"], {}, (), "os:getcwd", "json:dumps", ["violation-"], ["violation-:x"], [float("nan")], ["psnr", "psnr"], ["psnr", "bleu-4"], True)}

BASES = { # kind of data -> metrics
    "images": ("psnr", "ssim", "colorfulness", "ciede2000", "violation-edges", "fd"), "features": ("fd", "mmd", "kid", "cmmd", "precision", "density", "fd-inf"),
    "texts": ("bleu-4", "bleu", "chrf", "rouge-l", "cider-d", "diversity", "distinct-2", "ter", "meteor-nltk", "repetition")}
ALONE_METRICS = ("colorfulness", "diversity", "distinct-2", "repetition")
KINDS = {"images": IMAGES, "features": FEATURES, "texts": TEXTS}
_RNG = np.random.default_rng(0)
DATA = {"images": [_RNG.random((8, 3, 16, 16)).astype(np.float32) for _ in range(2)], "features": [_RNG.standard_normal((20, 4)).astype(np.float32) for _ in range(2)],
        "texts": [[f"{who} {i} runs {'fast '*i}over the green grass" for i in range(8)] for who in ("a dog number", "the black cat")]}


@dataclass
class Outcome:
    "What came of a call."
    value: object = None             # numbers that were returned
    notes: tuple = ()                # that came with them
    error: BaseException | None = None
    message: str = ""                # of the error, as a user sees it
    fault: str = ""                  # what is wrong already with the way it ended


@dataclass
class Case:
    "A call, and what is known of it."
    told: str                        # in words
    run: Callable[[], Outcome]
    known: str                       # WRONG, RIGHT or ODD
    key: tuple                       # of the kinds of failures that are one


def _values(scores) -> list[float]: return [s.value for s in scores.values()]


def _score_outcome(call: dict) -> Outcome:
    try:
        found = im.score(**call)
        nested = [by for by in found.values()] if found and all(isinstance(v, dict) for v in found.values()) else [found]
        return Outcome([v for by in nested for v in _values(by)], tuple(n for by in nested for s in by.values() for n in s.notes))
    except InputError as error: return Outcome(error=error, message=str(error))
    except (KeyboardInterrupt, Slow): raise
    except BaseException as error: return Outcome(error=error, message=str(error), fault="foreign")


_plain: dict = {} # what the right calls give


def plain_outcome(kind: str, metric: str) -> Outcome:
    "The number of the right call."
    if (kind, metric) not in _plain: _plain[kind, metric] = _score_outcome(right_call(kind, metric))
    return _plain[kind, metric]


def right_call(kind: str, metric: str) -> dict:
    "A call of `im.score` in which nothing is wrong."
    pred, target = DATA[kind]
    return dict(pred=pred, target=None if metric in ALONE_METRICS else target, metrics=[metric], cache=False, reps=20)


def score_case(draw: random.Random) -> Case:
    "A call of `im.score` with one to three things changed."
    kind = draw.choice([*BASES])
    metric = draw.choice(BASES[kind])
    call, known, told = right_call(kind, metric), [], []
    sides = ["pred"] if call["target"] is None else ["pred", "target"]
    many = draw.choices((1, 2, 3), (7, 2, 1))[0]
    for place in dict.fromkeys(draw.sample([*sides*6, *OPTIONS], many)):
        if place in sides:
            kinds = {**KINDS[kind], **(OBJECTS if draw.random() < 0.4 else {})}
            name = draw.choice([*kinds])
            make, what = kinds[name]
            call[place] = make() if name in OBJECTS and make is OBJECTS[name][0] else make(DATA[kind][sides.index(place)], draw)
            if place == "target" and name == "None": what = WRONG
            if kind == "texts" and place == "target" and name in ("an empty list inside", "one text"): what = WRONG
            if name == "an empty text" and kind == "texts": what = ODD
        else:
            name = draw.randrange(len(OPTIONS[place]))
            call[place], what = OPTIONS[place][name], WRONG
        known.append(what)
        told.append((place, name if isinstance(name, str) else f"{OPTIONS[place][name]!r:.40}"))
    fits = WRONG if WRONG in known or known == [ALONE] else RIGHT if set(known) == {RIGHT} else ODD
    if kind == "images" and metric == "fd" and "one too few" in dict(told).values(): fits = ODD if fits is WRONG and WRONG not in known else fits
    if kind == "texts" and metric in ALONE_METRICS and known == [ALONE]: fits = ODD
    if metric in ("colorfulness",) and known == [ALONE]: fits = ODD
    case = Case(f"score {metric} of {kind}: " + "; ".join(f"{p} is {n}" for p, n in told), lambda: _score_outcome(call), fits, tuple(sorted(told)))
    case.plain = lambda: plain_outcome(kind, metric)
    return case


# ---- commands

def _images(folder: Path, seed: int, n: int = 8) -> None:
    folder.mkdir()
    draw = np.random.default_rng(seed)
    for i in range(n): Image.fromarray(draw.integers(0, 256, (18, 16, 3)).astype(np.uint8)).save(folder/f"{i}.png")


def make_place(folder: Path) -> None:
    "Small files of every kind, all right."
    _images(folder/"a", 1)
    _images(folder/"b", 2)
    (folder/"items").mkdir()
    for name in ("real", "generated"): _images(folder/"items"/name, 3)
    pred, target = DATA["texts"]
    (folder/"hyp.txt").write_text("\n".join(pred) + "\n")
    (folder/"hyp2.txt").write_text("\n".join(t.replace("runs", "walks") for t in pred) + "\n")
    (folder/"ref.txt").write_text("\n".join(target) + "\n")
    (folder/"hyp.txt.gz").write_bytes(gzip.compress((folder/"hyp.txt").read_bytes()))
    (folder/"hyp.json").write_text(json.dumps([{"image_id": i, "caption": t} for i, t in enumerate(pred)]))
    (folder/"refs.json").write_text(json.dumps({str(i): [t, t + " today"] for i, t in enumerate(target)}))
    (folder/"hyp.jsonl").write_text("".join(json.dumps({"id": i, "caption": t}) + "\n" for i, t in enumerate(pred)))
    x, y = DATA["features"]
    np.save(folder/"x.npy", x)
    np.savez(folder/"y.npz", features=y)
    np.savez(folder/"t.npz", mu=y.mean(0), sigma=np.cov(y.T))
    assert run_words(["stats", "x.npy", "--out", "s.safetensors", "--random-parts", "4"], folder)[0] == 0
    rows = [(f"i{i}", f"s{s}", f"r{r}", (3*i + 5*s + 7*r) % 5) for i in range(5) for s in range(3) for r in range(2)]
    (folder/"judged.csv").write_text("item,system,rater,score\n" + "".join(f"{i},{s},{r},{v}\n" for i, s, r, v in rows))
    marks = [(f"i{i}", f"s{s}", (3*i + 4*s) % 7 / 7) for i in range(5) for s in range(3)]
    (folder/"marks.csv").write_text("item,system,mine\n" + "".join(f"{i},{s},{v}\n" for i, s, v in marks))
    (folder/"pairs.csv").write_text("item,first,second\n" + "".join(f"q{i},{a},{b}\n" for i, (a, b) in enumerate(zip(pred, target))))
    assert run_words(["score", "psnr", "--pred", "a", "--target", "b", "--per-item", "v.parquet", "--reps", "20"], folder)[0] == 0


COMMAND_BASES = [line.split() for line in """
score psnr --pred a --target b --reps 20
score psnr,ssim --pred a --pred b --target b --reps 20
score bleu-4,rouge-l --pred hyp.txt --target ref.txt --reps 20
score chrf --pred hyp.txt.gz --target ref.txt --reps 20 --json
score cider-d --pred hyp.json --target refs.json --reps 20
score bleu-1 --pred hyp.jsonl --target refs.json --reps 20
score fd,kid --pred x.npy --target y.npz
score fd --stats s.safetensors --target t.npz
score fd --pred a --target b --no-cache
score diversity --pred hyp.txt --reps 20
stats a --out o.safetensors
stats x.npy --out o.npz
stats a --out f.safetensors --features --shard 1/2
power chrf --pred hyp.txt --pred hyp2.txt --target ref.txt --wish 0.5
power --values v.parquet
agree judged.csv --metrics marks.csv --reps 20
agree judged.csv --metrics marks.csv --unit system --generalize systems --reps 20 --json
agree collect items --task realism --out page.html
agree labels nothing --out o.csv
metrics caption
weights verify segmentation
weights list
report a
wordnet build a --out o.npz
cache list""".strip().splitlines()]
SLOW_BASES = [line.split() for line in """
probe translation --target ref.txt --pred hyp.txt --metrics bleu --scale quick
probe captioning --target refs.json --pred hyp.json --metrics bleu-1 --scale quick
probe images --target a --metrics psnr --scale quick
study colorization --parts probe --scale quick --data a
study translation --data a --scale quick""".strip().splitlines()]
ADDED = {"--confidence": ("nan", "2", "x", "", "-1", "1e309"), "--reps": ("0", "-5", "x", "1.5", "99999999999", ""), "--ci": ("bogus", "", "5"), "--device": ("gpu", "cuda:99", "", "meta", "5"),
         "--seed": ("x", "1.5", ""), "--batch": ("0", "x", "-1"), "--option": ("nope=1", "x", "tokenizer=[]", "tokenizer={}", "=1", "=", "", "max_order=nan", NUL), "--encoder": ("nope", ":", "../x:y", NUL, LONG, ""),
         "--weights": ("nope", "a@b@c", NUL, LONG, "/", "hyp.txt", "x.npy", "a"), "--layer": ("nope", "", LONG), "--permutations": ("x", "-1", "99999999999", "1.5"), "--scale": ("huge", "", "1"), "--against": ("nope.json", "hyp.json", "hyp.txt", "a", "/"),
         "--per-item": ("x.txt", "/proc/x.parquet", ""), "--query": ("nope.txt", "a", "x.npy"), "--source": ("nope.txt", "/", LONG), "--random-parts": ("x", "-1", "1"), "--shard": ("9/2", "x", "0/1", "1/999999"), "--wish": ("nan", "x", "inf", "-1", "0"),
         "--power": ("2", "x"), "--alpha": ("0", "x", "2"), "--comparisons": ("0", "x", "1.5"), "--unit": ("bogus", ""), "--generalize": ("bogus", ""), "--statistic": ("bogus", LONG), "--ratings": ("bogus",), "--kind": ("bogus", ""),
         "--task": ("bogus", ""), "--aspect": ("nope",), "--evaluators": ("0", "x", "-1", "999999999"), "--side": ("0", "x", "1"), "--quality": ("0", "101", "x"), "--workers": ("0", "x"), "--families": ("nope",), "--base": ("nope",),
         "--figure": ("x.txt", "/proc/x.svg", "/"), "--nonsense": ("1",), "--metric": ("nope", ":x", "../x:y", LONG), "--grid": ("nope",), "--alphas": ("a,b", "nan", "-1"), "--lower": ("nope",), "--least-right": ("2", "x", "nan")}
OF_COMMAND = {"--" + name for name in "confidence reps ci device seed batch option encoder weights layer permutations against per-item query source".split()}
WORDS = ("", " ", "-", "--", "---", "-x", LONG, NUL, "../x:y", ":x", "x:", "a:b:c", "nan", "inf", "-1", "0", "1e309", "1e-300", "99999999999999999999", "[]", "{}", "null", "true", "☃", "\udcff", "/dev/null", "/", ".", "..", "~", "*", "a[", "?",
         "loop", "hyp.txt", "x.npy", "a", "judged.csv", "refs.json", "psnr", "psnr,psnr", ",", ",,", "bleu-4", "\n", "a\nb", "%s", "{x}", "$(x)", "x=y", "=", "nowhere.npz", "nowhere.safetensors", "empty.txt", "empty.json", "empty.npy", "empty", "locked.txt")
JSONS = {"a key twice": ('{"1": "a b c", "1": "d e f", "2": "g h"}', WRONG), "a field twice": ('[{"id": 1, "id": 2, "caption": "a b"}]', WRONG), "NaN": ('{"1": NaN}', WRONG), "null": ('{"1": null}', WRONG), "numbers": ("[1, 2, 3]", WRONG),
         "deep": ("["*3000 + "]"*3000, WRONG), "an empty object": ("{}", WRONG), "an empty list": ("[]", WRONG), "a text": ('"x"', WRONG), "a number": ("1", WRONG), "half": ('{"1": "a', WRONG), "a huge number": ('[{"id": ' + "9"*5000 + ', "caption": "a"}]', WRONG),
         "an id that is a list": ('[{"id": [1], "caption": "a b"}]', WRONG), "an id that is null": ('[{"id": null, "caption": "a b"}, {"id": 1, "caption": "a b"}]', WRONG), "an id that is NaN": ('[{"id": NaN, "caption": "a b"}]', WRONG),
         "an id that is true": ('[{"id": true, "caption": "a b"}]', WRONG), "a caption that is an object": ('[{"id": 1, "caption": {"a": 1}}]', WRONG), "annotations": ('{"annotations": 5}', WRONG), "surrogates": (r'{"1": "\ud800 a"}', ODD), "NUL": (r'{"\u0000": "a"}', ODD)}
TABLES = {"a duplicate row": ("item,system,rater,score\ni1,s1,r1,1\ni1,s1,r1,2\n", WRONG), "a column twice": ("item,item,score\na,b,1\n", WRONG), "NaN": ("item,system,score\ni1,s1,nan\ni2,s1,1\n", WRONG), "infinity": ("item,system,score\ni1,s1,inf\ni2,s2,1\n", WRONG),
          "a comma for a point": ('item,system,score\ni1,s1,"1,5"\n', WRONG), "ragged": ("item,system,score\ni1,s1\n", WRONG), "no column": ("a,b\n1,2\n", WRONG), "one row": ("item,system,score\ni1,s1,1\n", ODD), "a quote": ('item,system,score\n"i1,s1,1\n', WRONG),
          "huge numbers": ("item,system,score\n" + "".join(f"i{i},s{i % 2},{v}\n" for i, v in enumerate(("1e308", "-1e308", "1e308", "-1e308"))), ODD), "head alone": ("item,system,rater,score\n", WRONG), "NUL": ("item,system,score\ni\0,s1,1\ni2,s2,2\n", ODD)}


def _damaged(data: bytes, draw: random.Random) -> tuple[str, bytes]:
    how = draw.choice(("cut", "a byte changed", "bytes changed", "a piece lost", "twice", "nothing", "noise", "zeros"))
    k = draw.randrange(max(1, len(data)))
    if how == "cut": return how, data[:k]
    if how == "a byte changed": return how, data[:k] + bytes([draw.randrange(256)]) + data[k + 1:]
    if how == "bytes changed": return how, bytes(b if draw.random() > 0.05 else draw.randrange(256) for b in data)
    if how == "a piece lost": return how, data[:k] + data[k + draw.randrange(1, 50):]
    if how == "twice": return how, data + data
    if how == "noise": return how, draw.randbytes(draw.randrange(1, 400))
    return how, b"" if how == "nothing" else bytes(draw.randrange(1, 400))


def hostile_place(place: Path, draw: random.Random) -> tuple[str, str, str]: # a place in it, how it was made, what is known
    "A file or folder beside the right ones that is not as it should be."
    sources = ("hyp.txt", "hyp.txt.gz", "hyp.json", "refs.json", "hyp.jsonl", "x.npy", "y.npz", "t.npz", "s.safetensors", "judged.csv", "marks.csv", "v.parquet", "pairs.csv")
    what = draw.choice(("file", "file", "file", "pictures", "pictures", "json", "table", "other"))
    if what == "file":
        source = draw.choice(sources)
        how, data = _damaged((place/source).read_bytes(), draw)
        (place/f"odd{''.join(Path(source).suffixes)}").write_bytes(data)
        wrong = how in ("nothing",) or how in ("noise", "zeros") and Path(source).suffix not in (".txt", ".csv")
        return f"odd{''.join(Path(source).suffixes)}", f"{source} {how}", WRONG if wrong else ODD
    if what in ("json", "table"):
        name = draw.choice([*(JSONS if what == "json" else TABLES)])
        text, known = (JSONS if what == "json" else TABLES)[name]
        file = f"odd.{'json' if what == 'json' else 'csv'}"
        (place/file).write_text(text)
        return file, f"{what} with {name}", known
    if what == "pictures":
        folder = place/"odd"
        folder.mkdir()
        for file in sorted((place/"a").iterdir()): (folder/file.name).write_bytes(file.read_bytes())
        how = draw.choice(("damaged", "loop", "dangling", "named twice", "text", "another size", "one missing", "a folder", "a long name", "no letters", "nothing"))
        if how == "damaged": how, data = _damaged((folder/"1.png").read_bytes(), draw); (folder/"1.png").write_bytes(data); return "odd", f"a picture {how}", ODD if how in ("twice", "a byte changed", "bytes changed", "cut", "a piece lost") else WRONG
        (folder/"1.png").unlink()
        if how == "loop": (folder/"1.png").symlink_to("1.png")
        elif how == "dangling": (folder/"1.png").symlink_to("nowhere")
        elif how == "text": (folder/"1.png").write_text("no picture")
        elif how == "a folder": (folder/"1.png").mkdir()
        elif how == "another size": Image.new("RGB", (9, 7)).save(folder/"1.png")
        elif how == "a long name": Image.new("RGB", (16, 18)).save(folder/f"{'n'*250}.png")
        elif how == "no letters": Image.new("RGB", (16, 18)).save(folder/"\n\t\x07.png")
        elif how == "named twice": [Image.new("RGB", (16, 18)).save(folder/f"2.{e}") for e in ("bmp", "jpg")]
        elif how == "nothing": [f.unlink() for f in folder.iterdir()]
        return "odd", f"a picture {how}", WRONG if how in ("loop", "dangling", "text", "nothing") else ODD
    name = draw.choice(("a folder called .npy", "a folder called .json", "a link to itself", "not readable", "an array of objects", "an archive of objects", "a large claim"))
    if name.startswith("a folder"): (place/f"odd{name.split()[-1]}").mkdir(); return f"odd{name.split()[-1]}", name, WRONG
    if name == "a link to itself": (place/"odd.txt").symlink_to("odd.txt"); return "odd.txt", name, WRONG
    if name == "not readable": (place/"odd.json").symlink_to("/proc/self/mem"); return "odd.json", name, WRONG
    if name == "an array of objects": np.save(place/"odd.npy", np.array([{}, None], dtype=object), allow_pickle=True); return "odd.npy", name, WRONG
    if name == "an archive of objects": np.savez(place/"odd.npz", mu=np.array([{}], dtype=object), sigma=np.eye(1)); return "odd.npz", name, WRONG
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 4), }"
    (place/"odd.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return "odd.npy", name, WRONG


_kept = ("a", "b", "items")
_files_of = re.compile(r"\.(txt|json|jsonl|csv|npy|npz|gz|parquet|safetensors)$")


def run_words(words: list[str], folder: Path) -> tuple[int, str, str]: # exit code, standard output, standard error
    "What a command returns and prints, in this process."
    from invariant_metrics.commands.shell import main
    out, err, before = io.StringIO(), io.StringIO(), os.getcwd()
    known = {name: os.environ.get(name) for name in ("COLUMNS", "INVARIANT_METRICS_CACHE", "HF_HUB_OFFLINE")}
    os.environ |= {"COLUMNS": "120", "INVARIANT_METRICS_CACHE": str(folder/"cache"), "HF_HUB_OFFLINE": "1"}
    os.chdir(folder)
    try:
        with redirect_stdout(out), redirect_stderr(err): code = main(list(words))
    finally:
        os.chdir(before)
        for name, value in known.items():
            if value is None: os.environ.pop(name, None)
            else: os.environ[name] = value
    return code, out.getvalue(), err.getvalue()


def _command_outcome(words: list[str], place: Path) -> Outcome:
    before = set(os.listdir(place))
    try: code, out, err = run_words(words, place)
    except (KeyboardInterrupt, Slow): raise
    except BaseException as error: return Outcome(error=error, message=str(error), fault="traceback")
    errors = [line for line in err.split("\n") if line.startswith("error: ")]
    if "Traceback" in err or "Traceback" in out: return Outcome(error=RuntimeError(), message=err[-400:], fault="traceback")
    if "Warning: " in err: return Outcome(error=RuntimeError(), message=err[:400], fault="warning")
    if code == 0: return Outcome([code], tuple(line for line in err.splitlines() if "note" in line) + tuple(line for line in out.splitlines() if "note" in line))
    last = err.rstrip("\n").split("\n")[-1] if err else ""
    if code != 2 or len(errors) != 1 or last != errors[0]: return Outcome(error=RuntimeError(), message=f"exit {code}: {err[-400:]}", fault="shape")
    made = set(os.listdir(place)) - before - {"cache"}
    fault = "foreign" if "(--debug shows where)" in errors[0] else "left behind" if made else ""
    return Outcome(error=InputError(), message=f"{errors[0]} {sorted(made) if fault == 'left behind' else ''}", fault=fault)


def command_case(draw: random.Random, place: Path) -> Case:
    "A command with one to three words changed."
    slow = draw.random() < 0.06
    words, known, told = list(draw.choice(SLOW_BASES if slow else COMMAND_BASES)), [], []
    base = " ".join(words[:2])
    if slow: # these take long where nothing is wrong, so something always is
        option = draw.choice(("--scale", "--device", "--seed", "--workers", "--nonsense"))
        words += [option, draw.choice(ADDED[option])]
        known.append(WRONG); told.append((option, words[-1][:30]))
    for _ in range(draw.choices((1, 2, 3), (7, 2, 1))[0]):
        how = draw.choice(("word", "file", "file", "file", "add", "add", "drop", "twice", "swap"))
        if how == "add":
            option = draw.choice(sorted(OF_COMMAND & set(ADDED)) if draw.random() < 0.6 else [*ADDED])
            value = draw.choice(ADDED[option])
            words += [option, value]
            known.append(WRONG); told.append((option, f"{value!r:.30}"))
            continue
        if how == "file":
            at = [i for i, w in enumerate(words) if (w in _kept or _files_of.search(w)) and words[i - 1] not in ("--out",)]
            if not at: continue
            i = draw.choice(at)
            if any(f.name.startswith("odd") for f in place.iterdir()): continue
            words[i], name, what = hostile_place(place, draw)
            known.append(what); told.append((f"word {i}", name))
            continue
        i = draw.randrange(1, len(words))
        if how == "word": words[i] = draw.choice(WORDS); told.append((f"word {i}", f"{words[i]!r:.30}"))
        elif how == "drop": told.append(("drop", words.pop(i)[:30]))
        elif how == "twice": words.insert(i, words[i]); told.append(("twice", words[i][:30]))
        else: j = draw.randrange(1, len(words)); words[i], words[j] = words[j], words[i]; told.append(("swap", f"{words[i][:20]} {words[j][:20]}"))
        known.append(ODD)
        if len(words) < 2: break
    fits = WRONG if WRONG in known else ODD
    if ODD in known and not slow: fits = ODD # another word may have made the wrong one harmless
    return Case(" ".join(f"{w!r:.60}" if len(w) > 60 or not w.isprintable() or not w else w for w in words) + "   # " + "; ".join(f"{a} {b}" for a, b in told),
                lambda: _command_outcome(words, place), fits, (base, *sorted(f"{b}" for _, b in told)))


class Slow(Exception):
    "A case took too long."


def draw_case(seed: int, number: int, place: Path) -> Case:
    "The same case for the same seed and number, whatever came before it."
    draw = random.Random(f"{seed}:{number}")
    return score_case(draw) if draw.random() < 0.65 else command_case(draw, place)


def _clean(place: Path, kept: set[str]) -> None:
    import shutil
    for name in set(os.listdir(place)) - kept:
        path = place/name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def fault_of(case: Case, outcome: Outcome) -> str: # "" where all is well
    "What is wrong with the way a call ended."
    if outcome.fault: return outcome.fault
    if outcome.error is not None:
        if len(outcome.message) > LONGEST: return "long"
        if "\n" in outcome.message.rstrip() or "\0" in outcome.message: return "lines"
        return "refused" if case.known == RIGHT else ""
    numbers = [v for v in outcome.value if isinstance(v, float)]
    if not all(np.isfinite(numbers)): return "not finite"
    if case.known == WRONG:
        plain = case.plain() if hasattr(case, "plain") else Outcome()
        return "" if set(outcome.notes) - set(plain.notes) else "silent"
    if case.known == RIGHT and not np.allclose(outcome.value, case.plain().value, rtol=1e-5, atol=1e-9): return "another number"
    return ""


def run_case(case: Case) -> Outcome:
    "A case under limits of time and memory; warnings count as faults."
    def late(*_): raise Slow()
    old = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=ResourceWarning)
            outcome = case.run()
        if seen and not outcome.fault: outcome.fault, outcome.message = "warning", f"{seen[0].category.__name__}: {str(seen[0].message)[:200]}"
        return outcome
    except Slow: return Outcome(fault="slow")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def fuzz(count: int,              # cases
         seed: int = 0,
         start: int = 0,          # number of the first
         tell: Callable = lambda *_: None, # of (number, case, outcome, fault), after each
        ) -> Counter:             # fault -> cases; "" those that are fine
    "Draw and run cases; how many ended in which way."
    found, soft = Counter(), resource.getrlimit(resource.RLIMIT_AS)
    found.told = Counter() # WRONG, ALONE, RIGHT, ODD -> cases
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)/"place"
        place.mkdir()
        make_place(place)
        kept = set(os.listdir(place)) | {"cache"}
        used = int(Path("/proc/self/statm").read_text().split()[0])*resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, soft[1]))
        try:
            for number in range(start, start + count):
                case = draw_case(seed, number, place)
                outcome = run_case(case)
                fault = fault_of(case, outcome)
                found[fault] += 1
                found.told[case.known.upper()] += 1
                tell(number, case, outcome, fault)
                _clean(place, kept)
        finally: resource.setrlimit(resource.RLIMIT_AS, soft)
    return found


def summary(found: Counter) -> str:
    "One line."
    bad = {fault: n for fault, n in found.items() if fault}
    return f"{sum(found.values())} hostile calls: " + (", ".join(f"{n} {fault}" for fault, n in sorted(bad.items())) or "0 tracebacks, 0 foreign errors, 0 silent")


def fuzz_tables(count: int, seed: int = 0, tell: Callable = lambda *_: None) -> Counter: # "same", "refused", "different" -> files
    "Known tables written and read back; `tell` gets number, what came of it, and how the file was written."
    import known_tables
    found: Counter = Counter()
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder: came, told = known_tables.check(seed, number, Path(folder))
        found[came] += 1
        tell(number, came, told)
    return found


# ---- one table of texts in every format: the same number, or a refusal

WORDS = ('a dog runs over the wet grass', 'two men, sitting at a table; talking', '"Stop," she said, and left', '"We will see', 'a sign that says "no | parking" 7#2', "naïve café owners — über alles", "一只 猫 sits on 5 mats",
         "a cat's tail & an <old> hat", "the bus, the \"red\" one, is late", "он 2 bikes\u2028in a row", "#hashtag: what's up?", "1. first of all", "12, rue de Rivoli", "caption", "text, text and text", "[music] people clap", "{a brace} in a text", "a man rides a horse",
         "a red bus drives down the street", "some people stand around", "an e\u0301clair on a plate", "- a dash begins it", "two\twords with a tab", "two\nlines of text", "", "  blanks around  ", "0.5", "NaN", "null", "a = b, c = d")


@dataclass
class Table:
    "Items with a prediction and references each; what every format has to say."
    ids: list
    preds: list
    refs: list # of lists


def draw_table(draw: random.Random) -> Table:
    "A few items, in the order of their ids."
    n = draw.randrange(2, 8)
    ids = sorted(draw.sample(range(1, 40) if draw.random() < 0.5 else range(1, 600_000), n))
    pool = WORDS if draw.random() < 0.5 else [w for w in WORDS if w.strip() and "\n" not in w and "\t" not in w]
    full = [w for w in pool if w.strip()]
    many = draw.choice((1, 1, 2, 3))
    refs = [[draw.choice(full) for _ in range(many if draw.random() < 0.8 else draw.randrange(1, many + 1))] for _ in ids]
    return Table(ids, [draw.choice(pool) if draw.random() < 0.4 else draw.choice(r) + draw.choice(("", " today", " now, then")) for r in refs], refs)


NAMED = { # an id as files write it
    "number": lambda i: i, "text": str, "padded": lambda i: f"{i:012d}", "file": lambda i: f"{i}.jpg", "coco file": lambda i: f"COCO_val2014_{i:012d}.jpg", "in a folder": lambda i: f"val2014/COCO_val2014_{i:012d}.jpg",
    "composed": lambda i: f"caf\u00e9_{i}.png", "decomposed": lambda i: f"cafe\u0301_{i}.png", "video": lambda i: f"video{i}"}
ID_NAMES = ("image_id", "id", "video_id", "question_id", "doc_id", "image", "file_name", "name", "Image ID", "videoID", "key", "segment", "utt")
PRED_NAMES = ("caption", "prediction", "output", "text", "generated_text", "response", "hypothesis", "filtered_resps", "Caption", "answer")
REF_NAMES = ("references", "caption", "captions", "refs", "target", "reference", "text")
EXTRA = {"split": "val", "score": 0.5, "model": "m", "n": 3, "url": "http://x.org/1,2"}


def _shuffled(rows: list, draw: random.Random) -> list: return draw.sample(rows, len(rows))


def _parquet(rows: list[dict], names: list[str]) -> bytes:
    out = io.BytesIO()
    pd.DataFrame([{k: row[k] for k in names} for row in rows]).to_parquet(out, index=False)
    return out.getvalue()


def _sheet(rows: list[dict], names: list[str], draw: random.Random) -> bytes | None: # None: some cell cannot stand in a spreadsheet
    import openpyxl
    from openpyxl.utils.exceptions import IllegalCharacterError
    book, out = openpyxl.Workbook(), io.BytesIO()
    for _ in range(draw.choice((0, 0, 2))): book.active.append([])
    try:
        for cells in (names, *([row[k] for k in names] for row in rows)): book.active.append(cells)
    except IllegalCharacterError: return None
    for row in book.active: # a text that begins with = is a text, not a formula
        for cell in row: cell.data_type = "s" if isinstance(cell.value, str) else cell.data_type
    if draw.random() < 0.3: book.create_sheet("empty")
    book.save(out)
    return out.getvalue()


def _cells(rows: list[dict], draw: random.Random) -> tuple[str, str | bytes]: # ending, text
    import csv as table
    how = draw.choice((",", ";", "\t", "raw tabs", "all quoted", "parquet", "xlsx"))
    out, names = io.StringIO(), [*rows[0]]
    if draw.random() < 0.5: draw.shuffle(names)
    if how == "parquet": return ".parquet", _parquet(rows, names)
    if how == "xlsx":
        if (sheet := _sheet(rows, names, draw)) is not None: return ".xlsx", sheet
        how = ","
    if how == "raw tabs":
        text = "\n".join("\t".join(str(v) for v in ([*names] if row is None else [row[k] for k in names])) for row in [None, *rows]) + "\n"
        clean = all(not set("\t\n\r\u2028") & set(str(v)) for row in rows for v in row.values())
        if clean: return ".tsv", text
        how = "\t"
    writer = table.writer(out, delimiter="," if how == "all quoted" else how, lineterminator="\n", quoting=table.QUOTE_ALL if how == "all quoted" else table.QUOTE_MINIMAL)
    writer.writerow(names)
    for row in rows: writer.writerow([row[k] for k in names])
    return {"\t": ".tsv"}.get(how, draw.choice((".csv", ".csv", ".txt"))), out.getvalue()


def _records(rows: list[dict], draw: random.Random) -> tuple[str, str | bytes]: # rows of JSON in one of its shapes
    how = draw.choice(("list", "lines", "results", "data", "columns", "split", "index", "lists", "indented lines", "parquet"))
    names = [*rows[0]]
    alike = all([*row] == names for row in rows)
    if how == "parquet" and alike: return ".parquet", _parquet(rows, names)
    if how == "lines" or how == "indented lines" and draw.random() < 0.5: return draw.choice((".jsonl", ".json", ".txt", ".ndjson", ".log")), "".join(json.dumps(r, ensure_ascii=draw.random() < 0.5) + "\n" for r in rows)
    if how in ("results", "data"): return ".json", json.dumps({"version": "1.0", how: rows, "external_data": {"used": False}})
    if how == "columns" and alike: return ".json", json.dumps({k: {str(i): r[k] for i, r in enumerate(rows)} for k in names})
    if how == "split" and alike: return ".json", json.dumps({"columns": names, "index": [*range(len(rows))], "data": [[r[k] for k in names] for r in rows]})
    if how == "index": return ".json", json.dumps({str(i): r for i, r in enumerate(rows)})
    if how == "lists" and alike and len(names) > 1: return ".json", json.dumps({k: [r[k] for r in rows] for k in names})
    return draw.choice((".json", ".json", ".txt")), json.dumps(rows, indent=draw.choice((None, 1)), ensure_ascii=draw.random() < 0.5)


def _more(row: dict, draw: random.Random, extra: list[str]) -> dict: return {**{k: EXTRA[k] for k in extra[:1]}, **row, **{k: EXTRA[k] for k in extra[1:]}}


def _one_line(text: str) -> str: return re.sub("[ \t\n]+", " ", text).strip()


def _escaped(text: str) -> str: return text.replace("&", "&amp;").replace("<", "&lt;")


def pred_file(table: Table, draw: random.Random, by: Callable) -> tuple[str, str, str | bytes, bool]: # format, name of the file, text, whether it has ids
    "Predictions in a format drawn."
    form = draw.choice(("lines", "cells", "records", "records", "by id", "texts", "sgm", "tabbed", "lm-eval", "twice"))
    name, text_name = draw.choice(ID_NAMES), draw.choice(PRED_NAMES)
    rows = [*zip(table.ids, table.preds)]
    if form == "lines": return form, "hyp" + draw.choice((".txt", ".hyp", ".out", ".en", "")), "".join(" ".join(t.split("\n")) + "\n" for _, t in rows), False
    if form == "texts": return form, "hyp.json", json.dumps(draw.choice((lambda x: x, lambda x: {"predictions": x}, lambda x: {"values": x, "language": "en"}))([t for _, t in rows])), False
    if form == "sgm":
        return form, draw.choice(("hyp.sgm", "hyp.xml", "hyp.txt")), '<tstset setid="s" srclang="de" trglang="en"><doc docid="d" sysid="m">\n' + "".join(f'<seg id="{i}">{_escaped(t)}</seg>\n' for i, t in rows) + "</doc></tstset>\n", True
    rows = _shuffled(rows, draw)
    if form == "by id": return form, "hyp.json", json.dumps({str(by(i)): draw.choice((t, [t], [{"caption": t}])) for i, t in rows}), True
    if form == "tabbed": return form, "hyp.txt", "".join(f"{by(i)}\t{_one_line(t)}\n" for i, t in rows), True
    if form == "lm-eval": return form, "samples.jsonl", "".join(json.dumps({"doc_id": i, "doc": {"x": "…"}, "target": table.refs[table.ids.index(i)][0], "resps": [[t]], "filtered_resps": [t]}) + "\n" for i, t in rows), True
    extra = draw.sample([*EXTRA], draw.choice((0, 0, 1, 2)))
    made = [_more({name: by(i), text_name: t}, draw, extra) for i, t in rows]
    if form == "twice": made += [made[0]]
    ending, text = _cells(made, draw) if form == "cells" else _records(made, draw)
    return f"{form} {ending}", f"hyp{ending}", text, True


def target_file(table: Table, draw: random.Random, by: Callable) -> tuple[str, str, str | bytes, bool]:
    "References in a format drawn."
    single = all(len(refs) == 1 for refs in table.refs)
    form = draw.choice(("lines", "lines", "cells", "columns", "records", "records", "by id", "texts", "sgm", "tabbed", "blocks", "coco", "karpathy", "token", "flickr", "msrvtt", "vatex", "gem", "vizwiz", "tab refs"))
    name, text_name = draw.choice(ID_NAMES), draw.choice(REF_NAMES)
    rows = [*zip(table.ids, table.refs)]
    flat = [(i, r) for i, refs in rows for r in refs]
    clean = all(not set("\t\n") & set(r) for _, r in flat)
    if form == "lines" and single: return form, "ref.txt", "".join(" ".join(r.split("\n")) + "\n" for _, r in flat), False
    if form == "blocks" and clean: return form, "ref.txt", "\n".join("".join(r + "\n" for r in refs) for _, refs in rows), False
    if form == "tab refs" and clean: return form, "ref.tsv" if draw.random() < 0.1 else "ref.txt", "".join("\t".join(refs) + "\n" for _, refs in rows), False
    if form == "texts": return form, "ref.json", json.dumps(draw.choice((lambda x: x, lambda x: {"references": x}))([refs for _, refs in rows])), False
    if form == "gem": return form, "ref.json", json.dumps({"language": "en", "values": [{"target": refs} for _, refs in rows]}), False
    if form == "sgm":
        most = max(len(refs) for _, refs in rows)
        sets = (f'<refset setid="s" refid="{k}"><doc docid="d">\n' + "".join(f'<seg id="{i}">{_escaped(refs[k])}</seg>\n' for i, refs in rows if k < len(refs)) + "</doc></refset>\n" for k in range(most))
        return form, "ref.sgm", "".join(sets), True
    if form == "vizwiz": flat += [(table.ids[0], "Quality issues are too severe"), (table.ids[-1], "asdf")]
    notes = {"is_rejected": False, "is_precanned": False}
    rows, flat = _shuffled(rows, draw), _shuffled(flat, draw)
    if form in ("coco", "vizwiz"):
        images = [{"id": i, "file_name": NAMED["coco file"](i)} for i in table.ids]
        marks = (lambda r: {**notes, "is_precanned": r.startswith("Quality"), "is_rejected": r == "asdf"}) if form == "vizwiz" else (lambda r: {})
        return form, "ref.json", json.dumps({"info": {}, "images": images if draw.random() < 0.7 else [], "annotations": [{"image_id": i, "id": k, "caption": r, **marks(r)} for k, (i, r) in enumerate(flat)]}), True
    if form == "karpathy":
        return form, "dataset_coco.json", json.dumps({"dataset": "coco", "images": [{"filename": NAMED["coco file"](i), "cocoid": i, "imgid": k, "split": "test", "sentences": [{"raw": r, "tokens": r.split()} for r in refs]} for k, (i, refs) in enumerate(rows)]}), True
    if form == "msrvtt": return form, "ref.json", json.dumps({"info": {}, "videos": [{"video_id": by(i), "split": "test"} for i in table.ids], "sentences": [{"caption": r, "video_id": by(i), "sen_id": k} for k, (i, r) in enumerate(flat)]}), True
    if form == "vatex": return form, "ref.json", json.dumps([{"videoID": str(by(i)), "enCap": refs, "chCap": ["一只猫"]} for i, refs in rows]), True
    if form in ("token", "flickr") and clean:
        line = "{}#{}\t{}\n" if form == "token" else "{}| {}| {}\n"
        head = "image_name| comment_number| comment\n" if form == "flickr" and draw.random() < 0.7 else ""
        count = Counter()
        def at(i): count[i] += 1; return count[i] - 1
        return form, draw.choice(("results.token", "results.txt", "results.csv")), head + "".join(line.format(NAMED["file"](i), at(i), r) for i, r in flat), True
    if form == "tabbed": return form, "ref.txt", "".join(f"{by(i)}\t{_one_line(r)}\n" for i, r in flat), True
    if form == "by id": return form, "ref.json", json.dumps({str(by(i)): refs if draw.random() < 0.8 or len(refs) > 1 else refs[0] for i, refs in rows}), True
    extra = draw.sample([*EXTRA], draw.choice((0, 0, 1, 2)))
    if form == "columns":
        most, stem = max(len(refs) for refs in table.refs), draw.choice(("caption_", "reference", "ref", "Caption "))
        ending, text = _cells([_more({name: by(i), **{f"{stem}{k + 1}": refs[k] if k < len(refs) else "" for k in range(most)}}, draw, extra) for i, refs in rows], draw)
    elif form == "cells": ending, text = _cells([_more({name: by(i), text_name: r}, draw, extra) for i, r in flat], draw)
    elif draw.random() < 0.5: ending, text = _records([_more({name: by(i), text_name: refs}, draw, extra) for i, refs in rows], draw)
    else: ending, text = _records([_more({name: by(i), text_name: r}, draw, extra) for i, r in flat], draw)
    return f"{form} {ending}", f"ref{ending}", text, True


def _written(folder: Path, name: str, text: str | bytes, draw: random.Random) -> Path:
    if isinstance(text, bytes):
        (folder/name).write_bytes(text)
        return folder/name
    data = text.encode()
    if draw.random() < 0.2: data = data.replace(b"\n", b"\r\n") if "\r" not in text and '"' not in text else data
    if draw.random() < 0.2: data = b"\xef\xbb\xbf" + data
    if draw.random() < 0.1 and data.endswith(b"\n") and not name.endswith("txt"): data = data[:-1]
    path = folder/(name + ".gz" if draw.random() < 0.1 else name)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def text_file_case(seed: int, number: int, folder: Path) -> tuple[str, str]: # what it was; "same", "refused: …", "noted: …" or "silent: …"
    "One table in two files; whether the score of the files is that of the table."
    draw = random.Random(f"texts {seed}:{number}")
    table = draw_table(draw)
    names = [draw.choice([*NAMED.values()])]*2 if draw.random() < 0.6 else draw.choices([*NAMED.values()], k=2)
    pred_form, pred_name, pred_text, ided = pred_file(table, draw, names[0])
    for _ in range(9): # most pairs are of one kind: by id, or by order
        form, name, text, also = target_file(table, draw, names[1])
        if also == ided or draw.random() < 0.1: break
    files = _written(folder, pred_name, pred_text, draw), _written(folder, name, text, draw)
    told = f"{pred_form} ({files[0].name}) against {form} ({files[1].name})"
    try: found, sides = im.score(*files, ["rouge-l"], ci=False, cache=False)["rouge-l"], open_comparison(*files, ["rouge-l"])
    except InputError as error: return told, f"refused: {str(error).replace(str(folder), '')}"
    finally:
        for file in files: file.unlink()
    plain = im.score(dict(zip(table.ids, table.preds)), dict(zip(table.ids, table.refs)), ["rouge-l"], ci=False, cache=False)["rouge-l"]
    if np.isclose(found.value, plain.value) and _pairs(sides.systems[""].items, sides.target.items) == _pairs(table.preds, table.refs): return told, "same"
    return told, f"{'noted' if found.notes else 'silent'}: {found.value} for {plain.value} {found.notes[:1]}"


def _pairs(preds: list, refs: list) -> list: # who answers whom, in any order
    return sorted((_one_line(p), sorted(map(_one_line, r))) for p, r in zip(preds, refs))


def fuzz_text_files(count: int, seed: int = 0, start: int = 0, tell: Callable = lambda *_: None) -> Counter: # "same", "refused", … -> cases
    "Draw tables and formats; how many files gave the same number, were refused, or gave another."
    found, quiet = Counter(), os.environ.get("INVARIANT_METRICS_QUIET")
    os.environ["INVARIANT_METRICS_QUIET"] = "1"
    try:
        with tempfile.TemporaryDirectory() as name:
            for number in range(start, start + count):
                told, outcome = text_file_case(seed, number, Path(name))
                found[outcome.partition(":")[0]] += 1
                tell(number, told, outcome)
    finally:
        if quiet is None: del os.environ["INVARIANT_METRICS_QUIET"]
        else: os.environ["INVARIANT_METRICS_QUIET"] = quiet
    return found


def _main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("count", nargs="?", type=int, default=2000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--start", type=int, default=0)
    words.add_argument("--case")
    words.add_argument("--family", choices=("calls", "tables"), default="calls")
    words.add_argument("--most", type=int, default=60)
    words.add_argument("--texts", action="store_true", help="files of one table of texts in every format")
    given = words.parse_args()
    if given.family == "tables":
        print(fuzz_tables(given.count, given.seed, lambda number, came, told: came == "different" and print(f"[{given.seed}:{number}] {told}", flush=True)))
        return
    if given.texts:
        def show(number, told, outcome):
            if outcome.startswith(("silent", "noted")): print(f"[{number}] {told} -> {outcome}", flush=True)
        print(dict(fuzz_text_files(given.count, given.seed, given.start, show)))
        return
    if given.case:
        seed, number = map(int, given.case.split(":"))
        with tempfile.TemporaryDirectory() as name:
            make_place(Path(name))
            case = draw_case(seed, number, Path(name))
            outcome = run_case(case)
            print(case.told, "\nknown:", case.known, "\nfault:", fault_of(case, outcome) or "none", "\nvalue:", outcome.value, "\nmessage:", outcome.message)
            if outcome.error is not None: traceback.print_exception(outcome.error)
        return
    kinds: dict = {}
    def tell(number, case, outcome, fault):
        if not fault: return
        deepest = traceback.extract_tb(outcome.error.__traceback__)[-1] if outcome.error is not None and outcome.error.__traceback__ else None
        kind = (fault, type(outcome.error).__name__, outcome.message[:60] if fault != "silent" else case.key)
        kinds.setdefault(kind, []).append(number)
        if len(kinds[kind]) == 1: print(f"[{given.seed}:{number}] {fault} | {case.told[:200]} | {type(outcome.error).__name__}: {' '.join(outcome.message.split())[:160]}"
                                        + (f" @{Path(deepest.filename).name}:{deepest.lineno}" if deepest else ""), flush=True)
    found = fuzz(given.count, given.seed, given.start, tell)
    print(summary(found))


if __name__ == "__main__": _main()
