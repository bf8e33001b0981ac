"Odd sets of features at the door of `score`: copies, offsets, overflow, missing labels. A right number, or a line; never a number that cannot be."
import warnings

import numpy as np
import pytest
import torch

import invariant_metrics as im
from invariant_metrics.core import InputError
from invariant_metrics.metrics.estimate import near_copies
from invariant_metrics.metrics.gaussian import GaussianStats

G = np.random.default_rng(0)
X, Y = G.normal(size=(40, 6)), G.normal(size=(40, 6)) + 0.3
DISTANCES = ["fd", "fd-inf", "mmd", "mmd-biased", "mmd-poly", "mmd-poly-biased", "cmmd", "cmmd-unbiased", "cmmd-moments"]
SHARES = ["precision", "recall", "density", "coverage", "prd-f1", "prd-recall", "prd-precision"]


def one_line(error: BaseException) -> str:
    "What a user reads."
    assert isinstance(error, InputError) and "\n" not in str(error), repr(error)
    return str(error)


@pytest.mark.parametrize("ci", [True, "jackknife", "bootstrap"])
def test_near_copies_get_no_interval(ci):
    order = np.random.default_rng(1).permutation(40)
    names = DISTANCES if ci is True else ["fd", "mmd-poly", "cmmd"]
    for copy in (X.astype(np.float16), X.astype(np.float16)[order], X + 1e-6*G.normal(size=X.shape)):
        for name, score in im.score(X, copy, names, ci=ci, reps=20).items():
            assert score.ci is None and score.corrected is None and sum("no interval" in n for n in score.notes) == 1, name
    for name, score in im.score(X, Y, names, ci=ci, reps=20).items():
        assert score.ci is not None and not any("copies" in n for n in score.notes), name


def test_no_distance_has_an_interval_beyond_what_it_can_be():
    "From copies to independent sets: the interval of a distance on unit vectors stays below its largest value."
    for noise in np.geomspace(1e-8, 3, 18):
        scores = im.score(X, X + noise*np.random.default_rng(7).normal(size=X.shape), ["mmd", "mmd-biased", "cmmd"])
        for name, most in (("mmd", 2), ("mmd-biased", 2), ("cmmd", 40)):
            assert scores[name].ci is None or scores[name].ci.high <= most, (name, noise)


def test_copies_in_statistics_get_no_interval():
    x = np.random.default_rng(5).normal(size=(400, 6))
    stats = [GaussianStats.of(z, parts=8, seed=k) for k, z in enumerate((x, x.astype(np.float16)))]
    score = im.score(*stats, ["fd"])["fd"]
    assert score.ci is None and score.corrected is None and "near copies" in score.notes[-1]


def test_independent_sets_are_never_called_copies():
    draws = {"normal": lambda g, n, d: g.normal(size=(n, d)), "heavy": lambda g, n, d: g.standard_t(2, size=(n, d)), "grid": lambda g, n, d: g.integers(0, 3, (n, d)),
             "wide": lambda g, n, d: g.normal(size=(n, d))*10**g.uniform(-2, 2)}
    for n, m in ((4, 4), (9, 9), (60, 60), (20, 300), (300, 20)):
        for d in (1, 2, 16):
            for i in range(5):
                g = np.random.default_rng([n, m, d, i])
                for name, draw in draws.items():
                    assert not near_copies(torch.from_numpy(draw(g, n, d)), torch.from_numpy(draw(g, m, d))), (name, n, m, d)


def test_features_are_compared_as_given():
    "An offset of 1e8 or time stamps round to equal float32 numbers; the items are not the same."
    far, near = im.score(X + 1e8, Y + 1e8, ["fd"])["fd"], im.score(X, Y, ["fd"])["fd"]
    assert far.value == pytest.approx(near.value, rel=1e-6) and far.ci.high == pytest.approx(near.ci.high, rel=1e-4)
    stamps = [1_700_000_000 + G.integers(0, k, (40, 3)) for k in (60, 40)]
    assert im.score(*stamps, ["fd"])["fd"].value > 1
    for pred, target in ((X, X[::-1].copy()), (X.astype("f4"), X.astype("f4").astype("f8")), (np.zeros((5, 2)), -np.zeros((5, 2)))):
        assert any("hold the same items" in n for n in im.score(pred, target, ["fd"])["fd"].notes)


@pytest.mark.parametrize("scale", [1e160, 1e300])
def test_overflow_is_refused_by_neighbors_as_by_distances(scale):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in [*SHARES, "fd"]:
            for pred, target in ((X*scale, Y), (X, Y*scale)):
                with pytest.raises(InputError, match="overflow float64; scale the features down") as caught: im.score(pred, target, [name])
                one_line(caught.value)


@pytest.mark.parametrize("ci", [True, "jackknife", "bootstrap"])
def test_shares_and_their_intervals_stay_in_their_range(ci):
    for pred, target in ((X, Y), (X[:14], Y + 2)):
        scores = im.score(pred, target, SHARES[:4], ci=ci, reps=30) | im.score(pred, target, ["prd-f1"], ci=ci, reps=5, metric_options={"runs": 1})
        for name, score in scores.items():
            low, high = (0, np.inf) if name == "density" else (0, 1)
            assert score.ci is None or low <= score.ci.low <= score.ci.high <= high, (name, score.ci)
            assert score.ci is not None or any("no interval" in n for n in score.notes), name


@pytest.mark.parametrize("labels, said", [([1, np.nan, np.nan, 2], "missing"), ([1, None, "a", 2], "missing"), (["a", None, "a", "b"], "missing"),
                                          (np.array([1, "a", 2, "b"], dtype=object), "give one kind"), ([[1], [2], [3], [4]], "clusters"),
                                          ([1, 2, 3], "cluster labels for 40 items")])
def test_clusters_that_are_none_are_refused(labels, said):
    clusters = labels if len(labels) == 3 else np.tile(np.asarray(labels, dtype=object), (10, *[1]*(np.ndim(labels) - 1))) if not isinstance(labels, np.ndarray) else np.tile(labels, 10)
    pictures = np.random.default_rng(0).random((2, 40, 16, 16, 3)).astype("f4")
    for take in [lambda ci=ci: im.score(X, Y, ["fd", "mmd", "precision"], ci=ci, clusters=clusters, reps=20) for ci in (True, "bootstrap", "jackknife")] \
            + [lambda: im.score(*pictures, ["psnr"], clusters=clusters, reps=20)]:
        with pytest.raises(InputError, match=said) as caught: take()
        one_line(caught.value)


@pytest.mark.parametrize("ci", [True, "jackknife", "bootstrap"])
def test_constant_rows_have_a_distance_of_their_means(ci):
    for n, m in ((3, 5), (30, 50)):
        one, other = np.repeat(X[:1], n, 0), np.repeat(Y[:1], m, 0)
        score = im.score(one, other, ["fd"], ci=ci, reps=20)["fd"]
        assert score.value == pytest.approx(np.square(X[0] - Y[0]).sum()) and (score.ci is None or score.ci.high - score.ci.low < 1e-6)


def test_few_samples_in_the_parts_of_shards_give_no_interval():
    def shards(x, k): return GaussianStats.merged([GaussianStats.of(part, parts=8) for part in np.array_split(x, k)])
    scale = np.arange(1, 65)**-0.5
    for seed in range(4):
        g = np.random.default_rng(seed)
        x, y = g.normal(size=(35, 64))*scale, g.normal(size=(35, 64))*scale*1.2
        for k in (1, 2, 3, 5):
            score = im.score(shards(x, k), shards(y, 1), ["fd"])["fd"]
            assert score.ci is None and any("random part of the statistics holds" in n for n in score.notes)
    x, y = np.random.default_rng(9).normal(size=(2, 800, 16))
    found = [im.score(shards(x, k), shards(y*1.2, 1), ["fd"])["fd"] for k in (1, 2, 8)]
    assert all(s.ci.low < found[0].corrected < s.ci.high for s in found)


def test_a_near_copy_among_systems_is_not_ranked_by_an_interval():
    boards = im.score({"copy": X.astype(np.float16), "other": Y}, X, ["fd", "mmd"])
    table = im.ranking(boards)
    assert table[table.system == "copy"].ci_low.isna().all() and table[table.system == "other"].ci_low.notna().all()
    assert (table[(table.metric == "fd") & (table["rank"] == 2)].verdict == "not tested").all()
