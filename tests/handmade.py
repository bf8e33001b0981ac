"Files as tests write them, and refusals as they read them."
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from invariant_metrics.core import InputError


def put(folder: Path, name: str, held) -> Path: # held: a text, rows of a .jsonl, or what JSON holds; packed where the name ends so
    "A file with its folders."
    path = folder/name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(held, list): held = "".join(json.dumps(row) + "\n" for row in held)
    content = (held if isinstance(held, str) else json.dumps(held)).encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def fails(call: Callable, *args, **options) -> str:
    "The one line with which a call is refused."
    with pytest.raises(InputError) as error: call(*args, **options)
    assert "\n" not in str(error.value)
    return str(error.value)
