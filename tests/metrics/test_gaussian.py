"Moments of streams: any cut, order, type and source gives one answer; files come back whole or not at all."
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from invariant_metrics.core import InputError, Signature
from invariant_metrics.encoders.store import FeatureStore, extract_features, save_features
from invariant_metrics.metrics import gaussian
from invariant_metrics.metrics.gaussian import GaussianStats, _part_labels, same_source

FEW = settings(max_examples=40)
SIGNED = Signature.of(encoder="embedded", layer="late")


def features(n: int, d: int, offset: float = 0.0, seed: int = 0) -> np.ndarray:
    "Correlated features of very different scales, some far from zero."
    g = np.random.default_rng(seed)
    return (g.standard_normal((n, d)) @ g.standard_normal((d, d)) + offset) * 10.0**g.integers(-3, 4, d)


def apart(a, b, scale) -> float:
    "Largest difference of two covariances, entry (i, j) relative to the deviations of features i and j."
    deviation = np.sqrt(np.diagonal(np.asarray(scale)))
    return float((np.abs(np.asarray(a) - np.asarray(b))/np.outer(deviation, deviation)).max())


@st.composite
def streams(draw):
    n, d = draw(st.integers(2, 300)), draw(st.integers(1, 12))
    x = features(n, d, draw(st.sampled_from([0.0, 1.0, 1e3])), draw(st.integers(0, 99)))
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=8)))
    return x, np.split(x, cuts)


@FEW
@given(streams(), st.integers(0, 99), st.sampled_from([0, 2, 8]))
def test_any_split_and_order_is_numpys_covariance(stream, seed, parts):
    x, batches = stream
    np.random.default_rng(seed).shuffle(batches)
    stats, wanted = GaussianStats(parts), np.atleast_2d(np.cov(x, rowvar=False))
    for batch in batches: stats.update(batch)
    merged = GaussianStats.merged(GaussianStats(parts).update(batch) for batch in batches)
    for found in (stats, merged):
        assert found.n == len(x) and torch.equal(found.cov, found.cov.T)
        assert apart(found.cov, wanted, wanted) < 1e-10
        assert np.abs((found.mean.numpy() - x.mean(0))/np.sqrt(wanted.diagonal())).max() < 1e-10


@FEW
@given(streams(), st.integers(0, 99), st.sampled_from([2, 8]))
def test_parts_add_up_to_the_total_and_do_not_know_the_batches(stream, seed, parts):
    x, batches = stream
    whole, cut = GaussianStats(parts, seed).update(x), GaussianStats(parts, seed)
    for batch in batches: cut.update(batch)
    labels = _part_labels(0, len(x), parts, seed)
    assert [p.n for p in whole.parts] == [p.n for p in cut.parts] == np.bincount(labels, minlength=parts).tolist()
    for k, (a, b) in enumerate(zip(whole.parts, cut.parts)):
        if a.n < 2: continue
        assert apart(a.cov, b.cov, whole.cov) < 1e-10
        assert apart(a.cov, np.atleast_2d(np.cov(x[labels == k], rowvar=False)), whole.cov) < 1e-10
    again = GaussianStats.merged(whole.parts)
    assert again.n == len(x) and apart(again.cov, whole.cov, whole.cov) < 1e-12 and whole.total().count == 0


@FEW
@given(st.integers(0, 99), st.integers(2, 40), st.integers(2, 40), st.integers(2, 40))
def test_merging_is_associative_and_commutes(seed, n, m, k):
    made = [GaussianStats(4).update(features(size, 5, 1e3, seed)*(1 + i) + 50*i) for i, size in enumerate((n, m, k))]
    before = [s.cov for s in made]
    left = GaussianStats.merged([GaussianStats.merged(made[:2]), made[2]])
    right = GaussianStats.merged([made[0], GaussianStats.merged(made[1:])])
    turned = GaussianStats.merged(made[::-1])
    for other in (right, turned):
        assert apart(left.cov, other.cov, left.cov) < 1e-10
        for a, b in zip(left.parts, other.parts):
            if a.n > 1: assert a.n == b.n and apart(a.cov, b.cov, left.cov) < 1e-10
    assert all(torch.equal(a, s.cov) for a, s in zip(before, made))  # those that were merged stay as they are


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_offset_does_not_hurt(offset):
    "Powers of two are added, so that the shifted features are the same numbers exactly."
    x = np.round(features(3000, 6, seed=3)/10.0**np.arange(-3, 3)*256)/256
    shift = 2.0**np.round(np.log2(offset)) if offset else 0.0
    assert apart(GaussianStats.of(x + shift).cov, np.cov(x, rowvar=False), np.cov(x, rowvar=False)) < 1e-10


def test_many_more_rows_than_the_buffer_and_single_rows():
    x = features(3*gaussian.BLOCK + 17, 3, 1e3)
    wanted = np.cov(x, rowvar=False)
    single = GaussianStats(8)
    for i in range(5000): single.update(x[i:i + 1])
    single.update(x[5000:])
    for stats in (single, GaussianStats().update(x), GaussianStats.of(x, parts=8), GaussianStats.of(iter(np.array_split(x, 7)))):
        assert stats.n == len(x) and apart(stats.cov, wanted, wanted) < 1e-10


def test_reading_between_updates_changes_nothing():
    x, read = features(900, 4, 10), GaussianStats(2)
    held = []
    for batch in np.array_split(x, 9):
        read.update(batch); held.append((read.mean, read.scatter, read.mean.clone(), read.scatter.clone()))
        assert read.cov.isfinite().all() and read.parts[0].cov.isfinite().all()
    plain = GaussianStats(2).update(x)
    assert apart(read.cov, plain.cov, plain.cov) < 1e-12 and all(torch.equal(a, b) and torch.equal(c, d) for a, c, b, d in held)
    part, total = plain.parts[1], GaussianStats().update(x).total()
    first = part.cov
    plain.update(x + 5); plain.cov
    assert torch.equal(part.cov, part.cov.T) and not torch.equal(part.cov, first)  # a view follows, and stays symmetric
    assert torch.equal(total.cov, total.cov.T)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int64])
def test_every_type_is_summed_in_float64(dtype):
    x = (torch.from_numpy(features(500, 4, seed=1)/10.0**np.arange(-3, 1)).clamp(-9, 9)*10 + 100).to(dtype)
    wanted = np.cov(x.double().numpy(), rowvar=False)
    found = GaussianStats.of(x)
    assert found.cov.dtype == torch.float64 and apart(found.cov, wanted, wanted) < 1e-12
    if dtype != torch.bfloat16: assert torch.equal(GaussianStats.of(x.numpy()).cov, found.cov)


def test_arrays_as_they_come():
    x = features(100, 4).astype(np.float32)
    wanted, readonly = GaussianStats.of(x).cov, x.copy()
    readonly.flags.writeable = False
    others = (np.asfortranarray(x), readonly, x[::-1], np.repeat(x, 2, 1)[:, ::2], x.astype(">f4"), torch.from_numpy(x).T.contiguous().T,
              torch.from_numpy(x).requires_grad_(), x.astype(np.longdouble))
    for other in others: assert apart(GaussianStats.of(other).cov, wanted, wanted) < 1e-13
    assert apart(GaussianStats.of([x[:30], torch.from_numpy(x[30:])]).cov, wanted, wanted) < 1e-13
    assert np.array_equal(x, features(100, 4).astype(np.float32))  # nothing was written into


def test_naive_float32_sums_fail_where_ours_do_not():
    "The trap of a peer: distances of uncentered float32 moments at offset 1000 are wrong by whole units."
    def naive(x): mean, n = x.mean(0), len(x); return mean.double(), ((x.T @ x - n*torch.outer(mean, mean))/(n - 1)).double()
    def ours(x): s = GaussianStats.of(x); return s.mean, s.cov
    def distance(a, b):
        return float((a[0] - b[0]).square().sum() + (a[1] + b[1]).trace() - 2*torch.linalg.eigvals(a[1] @ b[1]).sqrt().real.sum())
    errors = {naive: [], ours: []}
    for seed in range(6):
        g = torch.Generator().manual_seed(seed)
        one, two = torch.randn(1000, 32, generator=g), 1.1*torch.randn(1000, 32, generator=g)
        true = distance(ours(one.double()), ours(two.double()))
        for f in errors: errors[f].append(distance(f(one + 1000), f(two + 1000)) - true)
    assert min(map(abs, errors[naive])) > 1 and max(map(abs, errors[ours])) < 1e-3


def test_bad_rows_are_counted_from_the_start_and_left_out():
    stats, bad = GaussianStats().update(features(10, 3)), features(6, 3)
    bad[1, 2], bad[4, 0] = np.nan, -np.inf
    for wrong in (bad, torch.from_numpy(bad).half(), np.concatenate([bad[:1].repeat(9000, 0), bad])):
        with pytest.raises(InputError, match=r"not finite in 2 of \d+ rows: (11, 14|9011, 9014) \(from 0"): stats.update(wrong)
    assert stats.n == 10 and stats.cov.isfinite().all()


def test_errors_say_what_to_do():
    x = features(20, 3)
    signed = GaussianStats(signature=SIGNED).update(x)
    cases = [(lambda: GaussianStats().cov, "nothing has been taken in"), (lambda: GaussianStats().mean, "nothing has been taken in"),
             (lambda: GaussianStats().update(x[:1]).cov, "two samples at least, found 1"),
             (lambda: GaussianStats().update(x).update(x[:, :2]), "widths: 3 against 2"), (lambda: GaussianStats(1), "parts must be"),
             (lambda: GaussianStats.of([]), "source is empty"), (lambda: GaussianStats.of(x[:0]), "source is empty"),
             (lambda: GaussianStats.of(5), "not int"), (lambda: GaussianStats.of(x[0]), r"must be \(N, d\)"),
             (lambda: GaussianStats.of(x > 0), "real numbers, not bool"),
             (lambda: GaussianStats.of(torch.from_numpy(x)*1j), "real numbers"),
             (lambda: GaussianStats.of([[1.0, 2.0], [3.0]]), r"must be \(N, d\)"), (lambda: GaussianStats.of(x*1e200).cov, "overflows"),
             (lambda: GaussianStats(2).update(x).merge(GaussianStats(4).update(x)), "2 parts do not merge with 4"),
             (lambda: GaussianStats(2).update(x).merge(GaussianStats(2).update(x[:, :1])), "widths: 3 against 1"),
             (lambda: signed.merge(GaussianStats(signature=SIGNED.extended(layer="early")).update(x)), "layer is late against early"),
             (lambda: signed.merge(GaussianStats().update(x)), "no signature"),
             (lambda: GaussianStats.load("nowhere.safetensors"), "no statistics file")]
    for wrong, message in cases:
        with pytest.raises(InputError, match=message) as caught: wrong()
        assert "\n" not in str(caught.value)


def test_only_known_signatures_are_compared():
    assert all(same_source(*pair) is None for pair in ((SIGNED, None), (None, None), (SIGNED, SIGNED.extended(n=5, version="0.0.1"))))
    with pytest.raises(InputError, match="layer is late against early, pooling is None against mean$"):
        same_source(SIGNED, SIGNED.extended(layer="early", pooling="mean"))


def test_constant_features_are_noted():
    x = features(5000, 6)
    assert GaussianStats.of(x).notes() == () and not GaussianStats.of(x).constant()
    x[:, 1], x[:, 4] = 0.1, 1e3/3
    assert GaussianStats.of(x, parts=2).constant() == [1, 4]
    assert GaussianStats.of(x.astype(np.float32)).notes() == ("2 of 6 features are constant: 1, 4",)
    x[7, 1] += 1e-6
    assert GaussianStats.of(x).constant() == [4]


@pytest.mark.parametrize("parts", [0, 8])
def test_files_come_back_whole(tmp_path, parts):
    path, x = tmp_path/"shard.safetensors", features(300, 5, 1e3)
    made = GaussianStats(parts, seed=5, signature=SIGNED).update(x[:200])
    made.save(path)
    back = GaussianStats.load(path)
    assert (back.n, back.count, back.seed, back.signature) == (200, parts, 5, SIGNED) and torch.equal(back.cov, made.cov)
    assert all(torch.equal(a.scatter, b.scatter) and a.n == b.n for a, b in zip(made.parts, back.parts))
    both = [s.update(x[200:]) for s in (back, made)]  # goes on where it stopped, rows to the same parts
    assert apart(both[0].cov, both[1].cov, both[1].cov) < 1e-12 and [p.n for p in both[0].parts] == [p.n for p in both[1].parts]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    shards = [GaussianStats(parts, signature=SIGNED).update(part) for part in np.array_split(x, 3)]
    for i, shard in enumerate(shards): shard.save(tmp_path/f"{i}.safetensors")
    merged = GaussianStats.merged(GaussianStats.load(tmp_path/f"{i}.safetensors") for i in (2, 0, 1))
    assert merged.signature == SIGNED and apart(merged.cov, np.cov(x, rowvar=False), np.cov(x, rowvar=False)) < 1e-10


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path/"x.safetensors"
    GaussianStats(2).update(features(30, 3)).save(path)
    whole = path.read_bytes()
    broken = {"flipped": whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:], "cut short": whole[:-20], "empty": b"", "text": b"no such file"}
    for name, content in broken.items():
        path.write_bytes(content)
        with pytest.raises(InputError, match="damaged|not a readable") as caught: GaussianStats.load(path)
        assert "\n" not in str(caught.value), name
    save_file({"mean": torch.zeros(3)}, path)
    with pytest.raises(InputError, match="no statistics of this package"): GaussianStats.load(path)
    with pytest.raises(InputError): GaussianStats().save(tmp_path/"nothing.safetensors")
    assert not (tmp_path/"nothing.safetensors").exists()


def test_npz_of_the_peers_both_ways(tmp_path):
    from cleanfid.fid import frechet_distance as cleanfid_distance
    from pytorch_fid.fid_score import calculate_frechet_distance, compute_statistics_of_path
    x, y = features(200, 4, seed=1), features(150, 4, seed=2)
    theirs, ours = tmp_path/"theirs.npz", tmp_path/"ours.npz"
    np.savez_compressed(theirs, mu=np.mean(x, axis=0), sigma=np.cov(x, rowvar=False))  # the line of both
    found = GaussianStats.load(theirs)
    assert found.n is None and found.signature is None and found and torch.equal(found.cov, torch.from_numpy(np.cov(x, rowvar=False)))
    known = GaussianStats.of(x)
    for wrong in (lambda: found.update(x), lambda: found.merge(known), lambda: known.merge(found), lambda: found.scatter):
        with pytest.raises(InputError, match="without n"): wrong()
    assert torch.equal(GaussianStats.merged([found]).cov, found.cov)
    found.save(tmp_path/"again.safetensors")
    assert GaussianStats.load(tmp_path/"again.safetensors").n is None
    GaussianStats(4, signature=SIGNED).update(y).save(ours)
    mu, sigma = compute_statistics_of_path(str(ours), None, 1, 4, "cpu")  # pytorch-fid's own reader
    assert np.abs(mu - y.mean(0)).max() < 1e-9 and apart(sigma, np.cov(y, rowvar=False), np.cov(y, rowvar=False)) < 1e-12
    back = GaussianStats.load(ours)
    assert (back.n, back.signature, back.count) == (150, SIGNED, 0) and apart(back.cov, sigma, sigma) < 1e-14
    with np.load(theirs) as held: pair = held["mu"], held["sigma"], mu, sigma
    assert np.isclose(calculate_frechet_distance(*pair), cleanfid_distance(*pair))


def test_npz_that_cannot_be_is_refused(tmp_path):
    path, good = tmp_path/"x.npz", np.eye(3)
    skewed, negative = good.copy(), good.copy()
    skewed[0, 1], negative[1, 1] = 0.1, -1
    cases = {"no mu and sigma": dict(features=good), "expected": dict(mu=np.ones(3), sigma=np.ones((3, 2))),
             "expected (d,)": dict(mu=np.ones(2), sigma=good),
             "not symmetric": dict(mu=np.ones(3), sigma=skewed), "negative": dict(mu=np.ones(3), sigma=negative),
             "not finite": dict(mu=np.array([1, np.nan, 1]), sigma=good), "real numbers": dict(mu=np.ones(3), sigma=good*1j),
             "not a readable": dict(mu=np.ones(3), sigma=np.array([[None]*3]*3, dtype=object))}
    for message, arrays in cases.items():
        np.savez(path, **arrays)
        with pytest.raises(InputError) as caught: GaussianStats.load(path)
        assert message in str(caught.value) and "\n" not in str(caught.value) and "allow_pickle" not in str(caught.value)
    np.savez(path, mu=np.ones(30), sigma=np.eye(30))
    content = path.read_bytes()
    for broken in (content[:-300], b"", b"no zip at all", content[:200] + bytes([content[200] ^ 1]) + content[201:]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match="not a readable npz"): GaussianStats.load(path)


def test_from_items_and_from_files_of_features(tmp_path):
    from torchvision.utils import save_image
    store, images = FeatureStore(tmp_path/"cache", shard=4), torch.rand(11, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    stats = GaussianStats.of(images, "embedded", parts=2, store=store)
    rows = extract_features(images, "embedded")
    assert stats.n == 11 and dict(stats.signature.items)["encoder"] == "embedded"
    assert np.allclose(stats.cov, np.cov(rows.double().numpy(), rowvar=False), atol=2e-6) # features of another batch differ in float32
    (tmp_path/"folder").mkdir()
    for i, image in enumerate(images): save_image(image, tmp_path/"folder"/f"{i:02}.png")
    found = GaussianStats.of(tmp_path/"folder", "embedded", store=store)
    assert found.n == 11 and found.signature == stats.signature and torch.allclose(found.mean, stats.mean, atol=0.05)
    save_features(tmp_path/"f.safetensors", rows, stats.signature)
    read = GaussianStats.of(tmp_path/"f.safetensors")
    assert read.signature == stats.signature and read.n == 11 and torch.allclose(read.mean, stats.mean)
    with pytest.raises(InputError, match="folder; say with which encoder"): GaussianStats.of(tmp_path)


def test_copies_and_pickles_go_on():
    x = features(50, 3)
    stats = pickle.loads(pickle.dumps(GaussianStats(2).update(x[:30]))).update(x[30:])
    assert apart(stats.cov, np.cov(x, rowvar=False), np.cov(x, rowvar=False)) < 1e-12


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("parts", [0, 8])
def test_a_gpu_agrees_with_the_cpu(parts):
    x = torch.from_numpy(features(9000, 64, 1e3)).float()
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True  # must make no difference: the products are float64
    try: there = GaussianStats.of(x.cuda().split(700), parts=parts)
    finally: torch.backends.cuda.matmul.allow_tf32 = before
    here, twice = GaussianStats.of(x, parts=parts), GaussianStats.of(torch.cat([x, x]))
    assert there.cov.device.type == "cuda" and apart(there.cov.cpu(), here.cov, here.cov) < 1e-9
    assert apart(there.to("cpu").merge(here).cov, twice.cov, twice.cov) < 1e-9


def test_statistics_without_n_are_of_unknown_n_everywhere(tmp_path):
    import json
    from commands import cli
    from invariant_metrics.scoring.score import score
    draw = np.random.default_rng(0)
    for name in "ab":
        z = draw.normal(size=(60, 4))
        np.savez(tmp_path/f"{name}.npz", mu=z.mean(0), sigma=np.cov(z, rowvar=False))
    found = score(tmp_path/"a.npz", tmp_path/"b.npz", "fd")
    assert found["fd"].n is None and "n=unknown" in str(found["fd"]) and "n=unknown" in repr(found["fd"]) and "n:unknown" in str(found["fd"].signature)
    assert found["fd"].to_dict()["n"] is None and found.to_frame()["n"].isna().all() and "n=unknown" in found["fd"]._repr_html_()
    done = cli("score", "fd", "--pred", "a.npz", "--target", "b.npz", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["result"]["scores"]["a"]["fd"]["n"] is None
    shown = cli("score", "fd", "--pred", "a.npz", "--target", "b.npz", cwd=tmp_path).stdout
    assert " n " not in shown.splitlines()[1] # no empty column
    systems = score({"a": tmp_path/"a.npz", "b": draw.normal(size=(30, 4))}, tmp_path/"b.npz", "fd", ci=False).to_frame()
    assert systems["n"].tolist()[1] == 30 and systems["n"].isna().tolist() == [True, False]
