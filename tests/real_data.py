"Real data for tests: read where INVARIANT_METRICS_DATA points, never copied into the project."
import gzip
import json
import os
from functools import lru_cache
from pathlib import Path

import pytest


def data_path(relative: str) -> Path:
    "A file or folder of the real data; skips the test where there is none, fails where INVARIANT_METRICS_REQUIRE_DATA=1 promised it."
    root = os.environ.get("INVARIANT_METRICS_DATA")
    required = os.environ.get("INVARIANT_METRICS_REQUIRE_DATA") == "1"
    if root and (Path(root)/relative).exists(): return Path(root)/relative
    reason = f"{relative} is not in INVARIANT_METRICS_DATA" if root else "INVARIANT_METRICS_DATA is unset: no real data to test on"
    if required: pytest.fail(reason)
    pytest.skip(reason)


@lru_cache
def lines(relative: str) -> list: # what each line holds; read once, so not to be changed
    "The content of a .jsonl or .jsonl.gz."
    path = data_path(relative)
    with (gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8")) as file: return [json.loads(line) for line in file]


def nlg_eval_example() -> tuple[list[str], list[tuple[str, ...]], dict]: # predictions, references, published values
    "Two tokenized sentences with two references each."
    folder = data_path("parity/nlg_eval_example")
    hyp, *refs = [(folder/f"{name}.txt").read_text().splitlines() for name in ("hyp", "ref1", "ref2")]
    return hyp, [*zip(*refs)], json.loads((folder/"expected.json").read_text())


def clipscore_example() -> list[tuple[list[str], list[list[str]], dict]]: # captions, references, published values; good captions and bad ones
    folder = data_path("parity/clipscore_example")
    refs, expected = (json.loads((folder/name).read_text()) for name in ("refs.json", "expected.json"))
    captions = {kind: json.loads((folder/f"{kind}_captions.json").read_text()) for kind in ("good", "bad")}
    return [([said[k] for k in refs], [*refs.values()], expected[kind]) for kind, said in captions.items()]
