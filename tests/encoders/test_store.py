"Features on disk: keyed by all that shapes them and nothing else, resumed where they stopped, never believed when damaged."
import json
import os
import threading

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image

from commands import HUNG, elsewhere, started
from invariant_metrics.core import InputError, Signature
from invariant_metrics.data.items import Images, load_images
from invariant_metrics.data.text_sides import load_texts
from invariant_metrics.encoders.encoder import Encoder, FasterEncoder, Preprocess, get_encoder
from invariant_metrics.files import digest
from invariant_metrics.metrics.metric import get_metric
from invariant_metrics.encoders.cache import cached_tensors, clear_cache, list_cache
from invariant_metrics.encoders.store import FeatureStore, _from_bytes, _image_rows, _stacks, checked_features, _encoder_settings
from invariant_metrics.encoders.store import extract_features, load_features, save_features

N, SHARD, BATCH = 20, 8, 4


def picture(seed: int, height: int = 24, width: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


@pytest.fixture
def folder(tmp_path):
    for i in range(N): save(tmp_path/"images"/f"{i:02}.png", picture(i))
    return tmp_path/"images"


def counting(stop: int | None = None, size: int = 16, **options):
    "The embedded encoder, counting what its network sees; it raises KeyboardInterrupt when `stop` images were seen."
    encoder, seen = get_encoder("embedded", size=size, **options), []
    def embed(x, layer, embed=encoder.embed):
        if stop is not None and sum(seen) >= stop: raise KeyboardInterrupt
        seen.append(len(x))
        return embed(x, layer)
    encoder.embed = embed
    return encoder, seen


def run(source, cache, stop=None, layer=None, **options):
    (encoder, seen), store = counting(stop, **options), FeatureStore(cache, SHARD)
    rows = store.features(load_images(source), encoder, layer, BATCH)
    return rows, sum(seen), store.found


# extraction

def test_rows_are_those_of_one_image_at_a_time_in_order(folder):
    images, encoder = load_images(folder), get_encoder("embedded", size=16)
    rows = extract_features(images, encoder, batch=7)
    alone = torch.cat([encoder.encode(images[i][None]) for i in range(N)])
    assert rows.shape == (N, 64) and rows.dtype == torch.float32 and not rows.requires_grad
    torch.testing.assert_close(rows, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(extract_features(folder, encoder, "stage2"), torch.cat([encoder.encode(images[i][None], "stage2") for i in range(N)]), rtol=1e-4, atol=1e-5)


@given(st.lists(st.tuples(st.sampled_from([16, 20, 24]), st.sampled_from([16, 20])), min_size=1, max_size=10), st.integers(1, 4))
@settings(max_examples=15)
def test_mixed_sizes_come_out_in_order(shapes, batch):
    g = torch.Generator().manual_seed(0)
    images = Images([str(i) for i in range(len(shapes))], [torch.rand(3, *s, generator=g) for s in shapes], "made")
    rows = extract_features(images, "mean-color", batch=batch)
    torch.testing.assert_close(rows, torch.stack([x.mean((1, 2)) for x in images.items]))


def test_like_sizes_share_a_batch_and_pixels_are_bounded(monkeypatch):
    images = Images([str(i) for i in range(12)], [torch.rand(3, 16 + 8*(i % 2), 16) for i in range(12)], "made")
    encoder, seen = counting(size=None)
    extract_features(images, encoder)
    assert sorted(seen) == [6, 6]
    monkeypatch.setattr("invariant_metrics.encoders.store.PIXELS", 3*24*16)
    seen.clear(); extract_features(images, encoder)
    assert sum(seen) == 12 and max(seen) <= 5


class Odd(Encoder):
    "One number per image, in the precision asked for; what is not finite stays so."
    def __init__(self, dtype=torch.float32, size_limit=1, **options):
        super().__init__("odd", "none", ("mean",), Preprocess(**options), size_limit)
        self.dtype = dtype
    def embed(self, x, layer): return (1/(x.mean((1, 2, 3)) - 0.5)).to(self.dtype)[:, None]


def test_not_finite_features_name_their_items_and_keep_nothing(tmp_path):
    images = Images(["ant", "bee", "cow"], [torch.full((3, 8, 8), v) for v in (0.1, 0.5, 0.5)], "made")
    with pytest.raises(InputError, match="NaN or infinite features for 2 of 3 items: bee, cow"): FeatureStore(tmp_path/"c").features(images, Odd())
    assert not [*(tmp_path/"c").iterdir()]


def test_precision_of_the_rows(folder):
    kinds = {torch.float64: torch.float64, torch.float32: torch.float32, torch.float16: torch.float32, torch.bfloat16: torch.float32}
    for given_type, kept in kinds.items(): assert extract_features(folder, Odd(given_type)).dtype == kept
    with torch.autocast("cpu", torch.bfloat16): inside = extract_features(folder, get_encoder("embedded", size=16))
    torch.testing.assert_close(inside, extract_features(folder, get_encoder("embedded", size=16)), rtol=0, atol=0)


def test_an_encoder_that_cannot_take_an_image_names_it(tmp_path):
    save(tmp_path/"i"/"big.png", picture(0)), save(tmp_path/"i"/"tiny.png", picture(1, 4, 9))
    with pytest.raises(InputError, match="tiny: 9×4 pixels, and encoder odd needs 8 a side"): extract_features(tmp_path/"i", Odd(size_limit=8))
    with pytest.raises(InputError, match="odd: 1: .*values in"): extract_features(Images(["0", "1"], [torch.zeros(3, 8, 8), torch.full((3, 8, 8), 255.)], "odd"), Odd())
    with pytest.raises(InputError, match="unknown layer of odd"): extract_features(tmp_path/"i", Odd(), "no")
    with pytest.raises(InputError, match="did you mean embedded"): extract_features(tmp_path/"i", "embeded")


def test_an_encoder_with_its_own_encode_gets_whole_images(folder):
    class Own(Odd):
        def encode(self, rgb, layer=None): return rgb.flatten(2).amax(2)
    assert torch.equal(extract_features(folder, Own())[0], load_images(folder)[0].flatten(1).amax(1))


class Lengths(Encoder):
    "Letters of a text or pair, and how many texts it was asked about at once."
    inputs = "texts"
    def __init__(self): super().__init__("lengths", "none", ("letters",), Preprocess()); self.asked = []
    def encode(self, texts, layer=None):
        self.asked.append(list(texts))
        return torch.tensor([[float(len(t)) if isinstance(t, str) else 100*len(t[0]) + len(t[1])] for t in texts])


def test_texts_in_order_long_ones_together(tmp_path):
    encoder, texts = Lengths(), ["a"*k for k in (3, 1, 4, 1, 5, 9, 2, 6)]
    store = FeatureStore(tmp_path, 8)
    assert store.features(texts, encoder, batch=3)[:, 0].tolist() == [3, 1, 4, 1, 5, 9, 2, 6]
    assert [len(x) for x in encoder.asked] == [3, 3, 2] and [len(t) for t in encoder.asked[0]] == [9, 6, 5]
    assert store.features(load_texts(texts, query=["q"]*8), encoder)[0].item() == 103
    assert store.features(texts, encoder)[5].item() == 9 and store.found == {"kept": 1, "absent": 2, "damaged": 0}
    with pytest.raises(InputError, match="holds images, and texts are needed"): store.features(load_images(torch.rand(1, 3, 8, 8)), encoder)


# what is kept

def test_cold_warm_and_moved(folder, tmp_path):
    cold, warm = run(folder, tmp_path/"c"), run(folder, tmp_path/"c")
    assert cold[1:] == (N, {"kept": 0, "absent": 3, "damaged": 0}) and warm[1:] == (0, {"kept": 3, "absent": 0, "damaged": 0})
    moved = folder.rename(tmp_path/"elsewhere")
    for file in [*moved.iterdir()]: file.rename(moved/f"x{file.name}")
    assert run(moved, tmp_path/"c")[1] == 0 and torch.equal(warm[0], cold[0])
    for path in (tmp_path/"c").iterdir():
        assert str(tmp_path) not in safetensors.safe_open(path, "pt").metadata()["settings"]


@pytest.mark.parametrize("where", [0, 7, 8, 19])
def test_one_pixel_costs_one_shard_and_changes_one_row(folder, tmp_path, where):
    before = run(folder, tmp_path/"c")[0]
    touched = picture(where); touched[3, 4, 1] ^= 1
    save(folder/f"{where:02}.png", touched)
    after, seen, found = run(folder, tmp_path/"c")
    assert seen == (4 if where >= 16 else 8) and found == {"kept": 2, "absent": 1, "damaged": 0}
    fresh = run(folder, tmp_path/"d")[0]
    assert torch.equal(after, fresh) and (after != before).any(1).nonzero().flatten().tolist() in ([where], [])


def test_order_within_a_shard_matters_and_place_of_a_shard_does_not(tmp_path):
    x, store, encoder = torch.rand(16, 3, 16, 16), FeatureStore(tmp_path, 8), get_encoder("embedded", size=16)
    rows = store.features(x, encoder)
    assert torch.equal(store.features(torch.cat([x[8:], x[:8]]), encoder), torch.cat([rows[8:], rows[:8]])) and store.found["absent"] == 2
    assert torch.allclose(store.features(x.flip(0), encoder), rows.flip(0), atol=1e-5) and store.found["absent"] == 4


@pytest.mark.parametrize("flip", [8, 200, -1])
def test_a_damaged_shard_is_reported_and_made_again(folder, tmp_path, capsys, flip):
    clean = run(folder, tmp_path/"c")[0]
    path = sorted((tmp_path/"c").iterdir())[0]
    content = bytearray(path.read_bytes()); content[flip] ^= 1; path.write_bytes(content)
    again, seen, found = run(folder, tmp_path/"c")
    assert torch.equal(again, clean) and found == {"kept": 2, "absent": 0, "damaged": 1} and seen in (4, 8)
    assert f"{path.name} in the cache is damaged" in capsys.readouterr().err
    assert run(folder, tmp_path/"c")[1] == 0


@pytest.mark.parametrize("harm", ["cut", "empty", "another", "folder of another shard's numbers"])
def test_shards_that_are_not_what_they_should_be_are_not_read(folder, tmp_path, harm):
    clean = run(folder, tmp_path/"c")[0]
    one, two, _ = sorted((tmp_path/"c").iterdir())
    whole = one.read_bytes()
    one.write_bytes({"cut": whole[:-10], "empty": b"", "another": b"not a shard"}.get(harm, two.read_bytes()))
    again, _, found = run(folder, tmp_path/"c")
    assert torch.equal(again, clean) and found["damaged"] == 1


def test_an_interrupted_extraction_goes_on_where_it_stopped(folder, tmp_path):
    with pytest.raises(KeyboardInterrupt): run(folder, tmp_path/"c", stop=12)
    assert len([*(tmp_path/"c").iterdir()]) == 1          # the first shard; the second had half of its images
    rows, seen, found = run(folder, tmp_path/"c")
    assert seen == N - SHARD and found == {"kept": 1, "absent": 2, "damaged": 0}
    assert torch.equal(rows, run(folder, tmp_path/"d")[0])


def killed_run(folder, cache) -> None:
    "An extraction whose process ends after twelve images."
    encoder, seen = counting()
    keep = encoder.embed
    def embed(x, layer):
        if sum(seen) >= 12: os._exit(9)
        return keep(x, layer)
    encoder.embed = embed
    FeatureStore(cache, SHARD).features(folder, encoder, batch=BATCH)


def test_another_process_resumes_what_a_killed_one_left(folder, tmp_path):
    process = started(killed_run, folder, tmp_path/"c")
    process.join(HUNG)
    assert process.exitcode == 9
    rows, seen, found = run(folder, tmp_path/"c")
    assert seen == N - SHARD and found["kept"] == 1 and found["damaged"] == 0


def test_chunks_are_the_shards_and_are_made_one_at_a_time(folder, tmp_path):
    encoder, seen = counting()
    chunks = FeatureStore(tmp_path/"c", SHARD).chunks(folder, encoder, batch=BATCH)
    first = next(chunks)
    assert first.shape == (8, 64) and sum(seen) == 8
    rest = [*chunks]
    assert [len(r) for r in rest] == [8, 4]
    assert torch.equal(torch.cat([first, *rest]), FeatureStore(tmp_path/"c", SHARD).features(folder, encoder))


def test_a_folder_that_changes_while_it_is_read_leaves_nothing_false(folder, tmp_path):
    images = load_images(folder)
    save(folder/"09.png", picture(99))
    store = FeatureStore(tmp_path/"c", SHARD)
    with pytest.raises(InputError, match="09.png was changed"): store.features(images, get_encoder("embedded", size=16))
    assert len([*(tmp_path/"c").iterdir()]) == 1
    assert torch.equal(run(folder, tmp_path/"c")[0], run(folder, tmp_path/"d")[0])


def test_a_cache_that_cannot_be_written_is_said_before_the_work(folder, tmp_path):
    (tmp_path/"file").write_text("")
    encoder, seen = counting()
    with pytest.raises(InputError, match="cannot make the cache folder"): FeatureStore(tmp_path/"file"/"c").features(folder, encoder)
    assert not seen
    with pytest.raises(InputError, match="at least one item"): FeatureStore(tmp_path, 0)


def test_the_users_cache_is_the_default(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"mine"))
    FeatureStore(shard=SHARD).features(folder, get_encoder("embedded", size=16))
    listed = list_cache()
    assert [(r["kind"], r["files"]) for r in listed] == [("features", 3)] and "shard" not in json.loads(listed[0]["settings"])
    assert clear_cache() == 3 and list_cache() == []


# what the key holds

class Plain(Encoder):
    def __init__(self, prepare=None): super().__init__("plain", "none", ("mean",), prepare or Preprocess(8))
    def embed(self, x, layer): return x.mean((2, 3))


class Other(Plain):
    def embed(self, x, layer): return x.amax((2, 3))


class Opaque:
    def __init__(self, size): self.size = size
    def __call__(self, rgb): return rgb[..., :self.size, :self.size]


def keys(encoder, layer=None): return _encoder_settings(encoder, layer)


def test_the_key_holds_what_shapes_a_feature():
    def stats(v): return Plain(Preprocess(8, stats=((v,)*3, (1.,)*3)))
    tuned = get_encoder("embedded")
    with torch.no_grad(): next(tuned.parameters()).view(-1)[0] += 1e-6
    pairs = {"resize": (get_encoder("embedded", size=16), get_encoder("embedded", size=24)), "filter": (Plain(Preprocess(8)), Plain(Preprocess(8, interpolation="bilinear"))),
             "statistics": (stats(.1), stats(.2)), "weights in memory": (get_encoder("embedded"), tuned), "dtype": (get_encoder("embedded"), get_encoder("embedded").double()),
             "code": (Plain(), Other()), "untrained": (get_encoder("embedded"), get_encoder("embedded", untrained=True)),
             "seed": tuple(get_encoder("embedded", untrained=True, seed=s) for s in (0, 1)), "opaque preprocessing": (Plain(Opaque(4)), Plain(Opaque(5)))}
    for what, (a, b) in pairs.items(): assert keys(a) != keys(b), what
    assert keys(tuned, "stage1") != keys(tuned, "stage2")


def two_keys() -> list: return [keys(Plain(Opaque(4))), keys(get_encoder("embedded", size=16)), hash("a text")]


def test_the_key_is_the_same_in_every_process():
    *here, hashed = two_keys()
    *there, other = elsewhere(two_keys)
    assert here == there and hashed != other


@pytest.mark.parametrize("change", [dict(size=24), dict(layer="stage2"), dict(untrained=True)])
def test_a_changed_encoder_is_asked_again(folder, tmp_path, change):
    run(folder, tmp_path/"c")
    assert run(folder, tmp_path/"c", **change)[1] == N


def test_another_decoder_is_asked_again(folder, tmp_path, monkeypatch):
    run(folder, tmp_path/"c")
    monkeypatch.setattr("PIL.__version__", "99.0")
    assert run(folder, tmp_path/"c")[1] == N


# the cache beneath

def test_a_damaged_file_of_any_kind_is_a_warning(tmp_path):
    make = lambda: {"x": torch.arange(3)}
    cached_tensors("things", {"n": 3}, make, tmp_path)
    path, = tmp_path.iterdir(); path.write_bytes(b"x")
    with pytest.warns(UserWarning, match="is damaged"): assert cached_tensors("things", {"n": 3}, make, tmp_path)["x"].tolist() == [0, 1, 2]


# files of features

@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
def test_files_keep_rows_signature_and_names(tmp_path, ending):
    rows, signature, names = torch.rand(5, 3, dtype=torch.float64), Signature.of(encoder="x", layer="y"), ["a", "é", "c|d", "", "e\n"]
    save_features(tmp_path/f"f{ending}", rows, signature, names)
    back = load_features(tmp_path/f"f{ending}")
    assert torch.equal(back.rows, rows) and back.rows.dtype == torch.float64 and back.signature == signature and back.names == names and len(back) == 5
    save_features(tmp_path/f"g{ending}", rows)
    assert load_features(tmp_path/f"g{ending}").signature is None and load_features(tmp_path/f"g{ending}").names is None
    with pytest.raises(InputError, match="2 names for 5 rows"): save_features(tmp_path/f"h{ending}", rows, None, ["a", "b"])
    assert not (tmp_path/f"h{ending}").exists()


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
def test_any_changed_byte_is_found(tmp_path, ending):
    path = tmp_path/f"f{ending}"
    save_features(path, torch.rand(4, 3), Signature.of(encoder="x"), list("abcd"))
    whole, rows = path.read_bytes(), load_features(path)
    for at in range(0, len(whole), 7):
        content = bytearray(whole); content[at] ^= 4; path.write_bytes(content)
        try: found = load_features(path)
        except InputError: continue
        assert torch.equal(found.rows, rows.rows) and (found.signature, found.names) in ((rows.signature, rows.names), (None, None)), at


def test_files_of_others(tmp_path):
    x = np.random.default_rng(0).random((4, 3))
    np.save(tmp_path/"a.npy", x.astype(np.float16)); np.save(tmp_path/"b.npy", x.astype(">f8")); np.savez(tmp_path/"c.npz", anything=x)
    np.savez(tmp_path/"d.npz", features=x, labels=np.arange(4)); np.save(tmp_path/"e.npy", np.arange(6).reshape(2, 3)); np.save(tmp_path/"f.npy", np.asfortranarray(x))
    assert load_features(tmp_path/"a.npy").rows.dtype == torch.float32 and load_features(tmp_path/"e.npy").rows.dtype == torch.float64
    for name in ("b.npy", "c.npz", "d.npz", "f.npy"): assert np.array_equal(load_features(tmp_path/name).rows.numpy(), x)
    safetensors.torch.save_file({"emb": torch.from_numpy(x).bfloat16()}, tmp_path/"g.safetensors")
    assert load_features(tmp_path/"g.safetensors").rows.shape == (4, 3)


def test_files_that_hold_no_features_are_one_line(tmp_path):
    x = np.ones((4, 3)); bad = x.copy(); bad[1, 0], bad[3, 2] = np.nan, np.inf
    np.save(tmp_path/"object.npy", np.array([{}, []], dtype=object), allow_pickle=True); np.savez(tmp_path/"stats.npz", mu=np.zeros(3), sigma=np.eye(3))
    np.savez(tmp_path/"two.npz", a=x, b=x); np.savez(tmp_path/"none.npz"); np.save(tmp_path/"flat.npy", x[0]); np.save(tmp_path/"bad.npy", bad)
    np.save(tmp_path/"empty.npy", x[:0]); np.save(tmp_path/"complex.npy", x*1j); (tmp_path/"text.npy").write_text("1 2 3"); (tmp_path/"zero.npz").write_bytes(b"")
    safetensors.torch.save_file({"n": torch.ones(1), "mean": torch.ones(3), "scatter": torch.eye(3)}, tmp_path/"s.safetensors")
    (tmp_path/"text.safetensors").write_text("hello")
    for name, says in {"object.npy": "not a readable .npy", "stats.npz": "GaussianStats.load", "s.safetensors": "GaussianStats.load", "two.npz": "holds a, b; expected one",
                       "none.npz": "holds nothing", "flat.npy": "must be \\(items, width\\)", "bad.npy": "2 of 4 rows .*: 1, 3", "empty.npy": "no features", "complex.npy": "real numbers",
                       "text.npy": "not a readable", "zero.npz": "not a readable", "text.safetensors": "not a readable", "gone.npy": "no file", "x.csv": "unknown ending"}.items():
        with pytest.raises(InputError, match=says) as error: load_features(tmp_path/name)
        assert "\n" not in str(error.value), name
    with pytest.raises(InputError, match="1 of 2 rows"): save_features(tmp_path/"new.npz", np.array([[1., np.nan], [0, 0]]))
    with pytest.raises(InputError, match="nothing but numbers"): save_features(tmp_path/"new.npy", x, Signature.of(a="b"))
    assert not [*tmp_path.glob("*new*")]


@given(st.integers(1, 5), st.integers(1, 4), st.sampled_from([np.float16, np.float32, np.float64, np.int32]))
@settings(max_examples=20)
def test_checked_features_change_no_number(n, d, kind):
    x = (10*np.random.default_rng(n*7 + d).standard_normal((n, d))).astype(kind)
    assert np.array_equal(checked_features(x, "x").numpy(), x.astype(np.float64))


def test_an_encoder_of_ones_own_is_seen_as_a_whole(tmp_path, monkeypatch):
    "A constant beside the class, a helper or a plain attribute changes the features, and so the shard."
    import importlib
    monkeypatch.syspath_prepend(tmp_path)
    source = ("from invariant_metrics.encoders.encoder import Encoder, Preprocess\nFACTOR = {}\ndef helper(x): return x.mean((2, 3))*FACTOR\n"
              "class Mine(Encoder):\n    def __init__(self, power=1):\n        super().__init__('mine', 'none', ('out',), Preprocess()); self.power = power\n"
              "    def embed(self, x, layer): return helper(x)**self.power\n")
    images, store, rows = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)), FeatureStore(tmp_path/"store"), []
    for factor, power in ((1, 1), (10, 1), (10, 2), (10, 2)):
        (tmp_path/"my_encoder.py").write_text(source.format(factor))
        importlib.invalidate_caches()
        module = importlib.reload(importlib.import_module("my_encoder"))
        rows.append(store.features(load_images(images), module.Mine(power)))
    assert torch.allclose(rows[1], 10*rows[0]) and torch.allclose(rows[2], rows[1]**2) and torch.equal(rows[3], rows[2])
    assert store.found == {"kept": 1, "absent": 3, "damaged": 0}


def test_an_interrupted_small_folder_keeps_its_whole_shards(tmp_path, monkeypatch):
    images, store = load_images(torch.rand(300, 3, 8, 8, generator=torch.Generator().manual_seed(0))), FeatureStore(tmp_path/"store")
    chunks = store.chunks(images, "mean-color")
    assert len(next(chunks)) == 128
    chunks.close()
    again = FeatureStore(tmp_path/"store")
    assert len(again.features(images, "mean-color")) == 300 and again.found == {"kept": 1, "absent": 2, "damaged": 0}


def test_a_key_is_made_of_a_routine_without_a_module():
    half = torch.full((1,), 0.5)
    assert half.mul.__module__ is None and keys(Plain(half.mul)) != keys(Plain(half.add))


@pytest.mark.parametrize("harm", ["cut", "start", "empty", "stream"])
@pytest.mark.parametrize("ending", [".npz", ".npy"])
def test_damaged_arrays_are_one_line_with_the_path_as_given(tmp_path, monkeypatch, ending, harm):
    (tmp_path/"sub").mkdir(); monkeypatch.chdir(tmp_path)
    path, x = f"sub/f{ending}", np.random.default_rng(0).random((200, 50))
    np.savez_compressed(path, features=x) if ending == ".npz" else np.save(path, x)
    content = (tmp_path/path).read_bytes()
    stream = content[:300] + b"\xff"*200 + content[500:] if ending == ".npz" else content[:20]
    (tmp_path/path).write_bytes({"cut": content[:len(content)//2], "start": content[:4], "empty": b"", "stream": stream}[harm])
    with pytest.raises(InputError, match=f"^{path} is not a readable {ending} file: .") as error: load_features(path)
    assert "\n" not in str(error.value)


def test_messages_and_features_name_the_path_as_given(tmp_path, monkeypatch):
    (tmp_path/"sub").mkdir(); monkeypatch.chdir(tmp_path)
    x = np.ones((4, 3))
    for ending in (".npz", ".npy", ".safetensors"):
        save_features(f"sub/f{ending}", x)
        assert load_features(f"sub/f{ending}").where == f"sub/f{ending}"
    with np.load("sub/f.npz") as file: sealed = dict(file)
    np.savez("sub/seal.npz", **{**sealed, "features": x + 1}); np.savez("sub/stats.npz", mu=x[0], sigma=np.eye(3)); np.savez("sub/two.npz", a=x, b=x); np.save("sub/nan.npy", x*np.nan)
    for name in ("seal.npz", "stats.npz", "two.npz", "nan.npy"):
        with pytest.raises(InputError, match=f"^sub/{name}"): load_features(f"sub/{name}")
    with pytest.raises(InputError, match="^sub/new.npz: 2 names"): save_features("sub/new.npz", x, None, ["a", "b"])


def test_preparation_goes_ahead_over_the_border_of_a_shard(tmp_path):
    looked, ahead = [], threading.Event()
    class Watched(Images):
        def stored(self, i):
            looked.append(i)
            if i == 8: ahead.set() # of the third shard
            return super().stored(i)
    class Waiting(type(get_encoder("mean-color"))):
        def embed(self, x, layer):
            assert ahead.wait(30) # so the first shard's batch is read only once the third shard is being prepared
            return super().embed(x, layer)
    images = Watched([str(i) for i in range(60)], torch.rand(60, 3, 8, 8), "tiles")
    rows = FeatureStore(tmp_path/"c", shard=4).features(images, Waiting(), batch=4)
    assert sorted(looked) == list(range(60)) and torch.equal(rows, extract_features(images.items, Waiting(), batch=4))


def test_shards_of_two_at_once_stay_in_their_places(tmp_path):
    images, net = load_images(torch.rand(40, 3, 8, 8)), get_encoder("mean-color")
    FeatureStore(tmp_path/"c", shard=4).features(images, net)
    whole = extract_features(images, net)
    for k, path in enumerate(sorted((tmp_path/"c").iterdir())):
        if k % 3 == 0: path.unlink()
        if k % 3 == 1: path.write_bytes(path.read_bytes()[:-8])
    mine, other, out = FeatureStore(tmp_path/"c", shard=4), FeatureStore(tmp_path/"c", shard=4), []
    for rows in mine.chunks(images, net):
        out.append(rows)
        if len(out) == 2: assert torch.equal(other.features(images, net), whole) # another process makes what is still missing
    assert torch.equal(torch.cat(out), whole) and sum(mine.found.values()) == 10


@pytest.mark.parametrize("size", [None, 16, 24])
def test_stacks_sent_ahead_as_bytes_give_the_same_rows(size, tmp_path):
    for k in range(7): Image.fromarray(np.random.default_rng(k).integers(0, 256, (16 + 8*(k % 2), 16 + 8*(k % 2), 3), dtype=np.uint8)).save(tmp_path/f"{k}.png")
    images, net = load_images(tmp_path), get_encoder("embedded", **({"size": size} if size else {}))
    groups, layer = [range(0, 3), range(3, 7)], net.layers[-1]
    with torch.no_grad():
        plain, ahead = ([*_image_rows(images, net, layer, 2, iter(groups), n)] for n in (0, 2))
        kinds = {x.dtype for _, x in _stacks(images, net, 2, 2**20, iter(groups), as_bytes=True)}
    by_place = [dict((i, row) for at, rows in found for i, row in zip(at, rows)) for found in (plain, ahead)]
    assert torch.uint8 in kinds and all(torch.allclose(by_place[0][i], by_place[1][i], atol=1e-6) for i in range(7))
    whole = [x for at, x in _stacks(images, net, 1, 2**20)]
    bytes_ = [x for at, x in _stacks(images, net, 1, 2**20, as_bytes=True)]
    assert all(torch.equal(x, _from_bytes(y, net.prepare) if y.dtype == torch.uint8 else y) for x, y in zip(whole, bytes_, strict=True))


def test_faster_ways_are_in_keys_and_signatures_and_the_encoder_stays_as_it_is(folder, monkeypatch):
    from invariant_metrics.scoring.sides import _check_origin
    net, compiled = get_encoder("embedded", size=16), []
    before, exact = _encoder_settings(net), extract_features(folder, net)
    monkeypatch.setattr(torch, "compile", lambda f: (compiled.append(f), f)[1])
    ways = [FasterEncoder(net, "bfloat16"), FasterEncoder(net, channels_last=True), FasterEncoder(net, compiled=True)]
    keys = [digest(_encoder_settings(x)) for x in ways]
    assert len({*keys, digest(before)}) == 4 and len(compiled) == 1 and _encoder_settings(net) == before
    for way, far in zip(ways, (.05, 1e-5, 0)):
        assert (extract_features(folder, way) - exact).abs().max() <= far*exact.abs().max()
        with pytest.raises(InputError, match="another encoder"): _check_origin(get_metric("fd", encoder=net), way.signature, "rows.safetensors")
    trained = get_encoder("embedded", size=16)
    with torch.no_grad(): next(trained.parameters()).view(-1)[0] += 1e-4
    assert digest(_encoder_settings(FasterEncoder(trained, "bfloat16"))) != keys[0]
    with pytest.raises(InputError, match="unknown precision"): FasterEncoder(net, "int8")
