"Files of features and statistics: equal content has equal bytes, a shard given twice is seen, and what cannot be is refused in a line."
import ast
import json
import resource
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import invariant_metrics as im
from invariant_metrics.core import InputError, Signature
from invariant_metrics.encoders.cache import cached_tensors
from invariant_metrics.encoders.store import load_features, save_features
from invariant_metrics.files import file_sha256, save_tensors
from invariant_metrics.metrics.gaussian import GaussianStats, same_moments

PACKAGE = Path(im.__file__).parent
SIGNED = Signature.of(encoder="embedded", weights="1a2b", layer="late", input="32-squash")


def rows(n: int = 200, d: int = 6, seed: int = 0) -> np.ndarray: return np.random.default_rng(seed).normal(size=(n, d))


def one_line(error: BaseException) -> str:
    "What a user reads."
    assert isinstance(error, InputError) and "\n" not in str(error), repr(error)
    return str(error)


@contextmanager
def small_disk(size: int):
    "No file may grow beyond `size` bytes."
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try: yield
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_equal_content_has_equal_bytes(tmp_path):
    stats, x = GaussianStats.of(rows(), parts=2, signature=SIGNED), rows().astype(np.float32)
    writers = {"statistics": lambda path: stats.save(path), "features": lambda path: save_features(path, x, SIGNED, list(map(str, range(200)))),
               "tensors": lambda path: save_tensors(path, {"x": torch.ones(3)}, {f"key {i}": "…" for i in range(8)})}
    for name, write in writers.items():
        for i in range(8): write(tmp_path/f"{name}-{i}.safetensors")
        assert len({file_sha256(tmp_path/f"{name}-{i}.safetensors") for i in range(8)}) == 1, name
    assert same_moments(GaussianStats.load(tmp_path/"statistics-0.safetensors"), stats)
    assert torch.equal(load_features(tmp_path/"features-0.safetensors").rows, torch.from_numpy(x))


def test_metadata_come_back_whatever_they_hold(tmp_path):
    from safetensors import safe_open
    meta = {"z": "\x00\x01\x1f\x7f\u2028 é 漢 \"\\/\b\f\n\r\t", "é": json.dumps({"a": ["\n"]}), "a": "", "\x02": "x"}
    save_tensors(tmp_path/"x", {"t": torch.ones(2), "u": torch.ones(1, dtype=torch.bfloat16)}, meta)
    with safe_open(tmp_path/"x", "pt") as file:
        assert file.metadata() == meta and sorted(file.keys()) == ["t", "u"] and torch.equal(file.get_tensor("t"), torch.ones(2))
    save_tensors(tmp_path/"y", {"t": np.ones(2)})
    with safe_open(tmp_path/"y", "np") as file: assert not file.metadata() and file.get_tensor("t").tolist() == [1, 1]


def test_every_safetensors_file_of_the_package_is_written_in_one_place():
    writers = {"save_file", "serialize", "serialize_file", "save"}
    for path in PACKAGE.rglob("*.py"):
        if "safetensors" not in (text := path.read_text()): continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("safetensors"):
                assert path.name == "files.py" or not writers & {a.name for a in node.names}, path
            if isinstance(node, ast.Attribute) and node.attr in writers and "safetensors" in ast.unparse(node.value):
                raise AssertionError(f"{path} writes safetensors by itself")


def test_a_full_disk_is_one_line_and_leaves_the_old_file(tmp_path):
    path, big = tmp_path/"kept.safetensors", rows(4000, 16)
    writers = [lambda: GaussianStats.of(rows(300, 128)).save(path), lambda: save_features(path, big), lambda: save_tensors(path, {"x": big}),
               lambda: save_features(path.with_suffix(".npz"), big),
               lambda: cached_tensors("kept", {}, lambda: {"x": torch.from_numpy(big)}, tmp_path)]
    save_features(path, rows())
    before = path.read_bytes()
    for write in writers:
        with small_disk(2**15), pytest.raises(InputError, match="cannot write .*: File too large") as caught: write()
        one_line(caught.value)
        assert [p.name for p in tmp_path.iterdir()] == ["kept.safetensors"] and path.read_bytes() == before


def test_a_shard_extracted_twice_is_refused(tmp_path):
    x, y = rows(400), rows(400, seed=1)
    for name, parts, batch in (("a", 0, 400), ("b", 8, 7), ("c", 0, 64)): GaussianStats.of(np.array_split(x, -(-400//batch)), parts=parts).save(tmp_path/f"{name}.safetensors")
    GaussianStats.of(x).save(tmp_path/"d.npz")
    GaussianStats.of(y).save(tmp_path/"y.safetensors")
    for twin in ("b.safetensors", "c.safetensors", "d.npz", "a.safetensors"):
        with pytest.raises(InputError, match="same shard") as caught: im.score([tmp_path/"a.safetensors", tmp_path/"y.safetensors", tmp_path/twin], y, ["fd"])
        assert twin in one_line(caught.value)
    assert im.score([tmp_path/"a.safetensors", tmp_path/"y.safetensors"], y, ["fd"])["fd"].n == 800


def test_close_shards_are_two():
    x = rows(400) + 1e6
    moved, other = x.copy(), x[::-1].copy()
    moved[0, 0] += 1e-3
    assert same_moments(GaussianStats.of(x), GaussianStats.of(other)) and not same_moments(GaussianStats.of(x), GaussianStats.of(moved))
    assert not same_moments(GaussianStats.of(x), GaussianStats.of(x[:, :3])) and not same_moments(GaussianStats.of(x), GaussianStats.of(x[:399]))


def test_a_matrix_that_is_no_covariance_is_refused(tmp_path):
    sigma, good, path = np.eye(6), rows(), tmp_path/"s.npz"
    np.savez(tmp_path/"good.npz", mu=good.mean(0), sigma=np.cov(good, rowvar=False))
    sigma[0, 1] = sigma[1, 0] = 3
    np.savez(path, mu=np.zeros(6), sigma=sigma)
    with pytest.raises(InputError, match="sigma is no covariance; it has eigenvalues") as caught: im.score(path, tmp_path/"good.npz", ["fd"])
    one_line(caught.value)
    few = np.cov(rows(20, 64).astype(np.float32), rowvar=False).astype(np.float32)  # singular, rounded, on scales far apart
    for kept in (np.zeros((3, 3)), few, few*1e-12, few*1e12, np.outer(2.0**-np.arange(64), 2.0**-np.arange(64))*few):
        np.savez(path, mu=np.zeros(len(kept)), sigma=kept)
        assert GaussianStats.load(path).width == len(kept)


@pytest.mark.parametrize("n, kept", [(-5, False), ("abc", False), (0, False), (1, False), (2.5, False), (np.nan, False), ([7, 8], False), (True, False),
                                     (2, True), (50_000, True), (50_000.0, True), ([9], True), (None, True)])
def test_the_number_of_samples_is_one_or_is_refused(tmp_path, n, kept):
    np.savez(tmp_path/"s.npz", mu=np.zeros(3), sigma=np.eye(3), **({} if n is None else {"n": n}))
    if kept: assert GaussianStats.load(tmp_path/"s.npz").n == (n[0] if isinstance(n, list) else n)
    else:
        with pytest.raises(InputError, match="s.npz: n is") as caught: GaussianStats.load(tmp_path/"s.npz")
        one_line(caught.value)


def test_masked_features_are_refused(tmp_path):
    x = np.ma.masked_greater(rows(), 2)
    for take in (lambda: im.score(x, rows(), ["fd"]), lambda: im.score(rows(), x, ["mmd"]), lambda: GaussianStats.of(x), lambda: GaussianStats.of(iter([x])),
                 lambda: save_features(tmp_path/"x.npy", x)):
        with pytest.raises(InputError, match="masked") as caught: take()
        one_line(caught.value)
    whole = np.ma.masked_array(rows(), mask=np.zeros((200, 6)))
    assert im.score(whole, rows(seed=1), ["fd"], ci=False)["fd"].value == im.score(rows(), rows(seed=1), ["fd"], ci=False)["fd"].value
