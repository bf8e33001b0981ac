"Precision, recall, density and coverage against their definitions, other packages, known laws and points placed by hand."
import resource

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.spatial.distance import cdist

from commands import elsewhere
from invariant_metrics.core import InputError
from invariant_metrics.metrics import neighbors
from invariant_metrics.metrics.metric import Estimate, Rows, extract, get_metric
from invariant_metrics.scoring.inference import paired_difference, score_rows
from invariant_metrics.metrics.estimate import standard_error
from invariant_metrics.metrics.neighbors import _PAPER_K, _ball_radii, _half_radii
from invariant_metrics.metrics.neighbors import _half_scores, neighbor_estimate, _neighbor_influences
from invariant_metrics.metrics.neighbors import _neighbor_score, neighbor_scores, _distance_tiles

NAMES = list(_PAPER_K)


def cloud(n, d=6, seed=0, scale=1.0, shift=0.0):
    return scale*torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


def naive(p, t, k):
    "The definitions on full distance matrices, nothing shared with the package."
    p, t = np.asarray(p, float), np.asarray(t, float)
    def radii(x):
        d = cdist(x, x); np.fill_diagonal(d, np.inf)
        return np.sort(d, 1)[:, k - 1]
    d, rp, rt = cdist(p, t), radii(p), radii(t)
    return dict(precision=(d <= rt).any(1).mean(), recall=(d.T <= rp).any(1).mean(),
                density=(d < rt).sum(1).mean()/k, coverage=(d < rt).any(0).mean())


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(8, 40), st.integers(8, 40), st.integers(1, 5), st.floats(0, 3), st.floats(.3, 2))
def test_definition(seed, d, n, m, k, shift, scale):
    p, t = cloud(n, d, seed, scale, shift/d**.5), cloud(m, d, seed + 1)
    assert neighbor_scores(p, t, k) == pytest.approx(naive(p, t, k), abs=1e-12)


LAWS = {"cloud": lambda: (cloud(60, 5), cloud(70, 5, 1, 1.2)), "copies": lambda: (cloud(30, 5).repeat(2, 1), torch.cat([cloud(30, 5), cloud(40, 5, 1)])),
        "ties": lambda: (cloud(60, 3).mul(2).round(), cloud(70, 3, 1).mul(2).round()), "far": lambda: (cloud(60, 5) + 1e4, cloud(70, 5, 1) + 1e4),
        "stray": lambda: (cloud(60, 5), torch.cat([cloud(69, 5, 1), torch.full((1, 5), 1e6).double()])), "line": lambda: (cloud(60, 1), cloud(70, 1, 1)),
        "tiny": lambda: (1e-150*cloud(60, 5), 1e-150*cloud(70, 5, 1)), "huge": lambda: (1e150*cloud(60, 5), 1e150*cloud(70, 5, 1))}


@pytest.mark.parametrize("law", LAWS)
def test_bounds_in_float32_change_no_number(law, monkeypatch):
    p, t = LAWS[law]()
    found = {}
    for small in (0, 10**9):
        monkeypatch.setattr(neighbors, "SMALL", small)
        found[small] = [neighbor_scores(p, t), *(_neighbor_score(name, p, t) for name in NAMES)]
        for name in NAMES:
            estimate = neighbor_estimate(p, t, matched=False, clusters=None, seed=0, name=name, k=_PAPER_K[name])
            found[small] += [estimate.value, estimate.se] + ([] if law in ("ties", "copies") else [estimate.pred.tolist(), estimate.target.tolist()])
    assert found[0] == found[10**9] and list(found[0][0].values()) == found[0][1:5]


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 4), min_size=25, max_size=25), st.lists(st.integers(0, 4), min_size=30, max_size=30),
       st.sampled_from(NAMES))
def test_weights_are_copies(seed, u, v, name):
    p, t, u, v = cloud(25, 4, seed), cloud(30, 4, seed + 1), torch.tensor(u), torch.tensor(v)
    if min(int(u.sum()), int(v.sum())) < 6: return
    copied = _neighbor_score(name, p.repeat_interleave(u, 0), t.repeat_interleave(v, 0))
    assert _neighbor_score(name, p, t, u.double(), v.double()) == pytest.approx(copied, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_order_tile_and_rotation_change_nothing(name, monkeypatch):
    p, t = cloud(60, 5), cloud(70, 5, 1, 1.2)
    value = _neighbor_score(name, p, t)
    turn = torch.linalg.qr(cloud(5, 5, 9))[0]
    assert _neighbor_score(name, p[torch.randperm(60, generator=torch.Generator().manual_seed(0))], t.flip(0)) == pytest.approx(value, abs=1e-12)
    assert _neighbor_score(name, 3*p @ turn + 50, 3*t @ turn + 50) == pytest.approx(value, abs=1e-12)
    monkeypatch.setattr(neighbors, "TILE", 350)
    assert max(len(square) for _, square, _ in _distance_tiles(p, t)) == 5
    assert _neighbor_score(name, p, t) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("split", ["full", "part"])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_torch_fidelity(split, k):
    from torch_fidelity import metric_prc
    p, t = cloud(200, 16, 3, .9, .2).float(), cloud(150, 16, 4).float()
    precision, recall = getattr(metric_prc, f"calculate_precision_recall_{split}")(p, t, k)
    ours = neighbor_scores(p, t, k)
    assert (ours["precision"], ours["recall"]) == pytest.approx((precision, recall), abs=1e-6)
    assert 0.1 < precision < 0.99 and 0.1 < recall < 0.99


def test_scikit_learn():
    from sklearn.neighbors import NearestNeighbors
    x, k = cloud(150, 10, 5), 4
    far, index = NearestNeighbors(n_neighbors=k).fit(x.numpy()).kneighbors()        # without a query, itself is left out
    assert np.allclose(_ball_radii(x, k).sqrt(), far[:, -1], rtol=1e-12)
    with_self = NearestNeighbors(n_neighbors=k).fit(x.numpy()).kneighbors(x.numpy())[0]
    assert np.allclose(_ball_radii(x, k - 1).sqrt(), with_self[:, -1], rtol=1e-12)      # the off-by-one: with a query, k means k − 1


def test_by_hand():
    t = torch.tensor([[0.], [1.], [3.], [7.]])
    assert np.allclose(_ball_radii(t.double(), 1).sqrt(), [1, 1, 2, 4])
    p = torch.tensor([[2.], [4.5], [11.], [-5.]])       # in 3 (radius 2), on the rim of 1 (1); in 3 and 7 (4); on the rim of 7; nowhere
    assert _neighbor_score("precision", p, t, k=1) == 3/4
    assert _neighbor_score("density", p, t, k=1) == (1 + 2 + 0 + 0)/4                   # open balls: 2 is in 3's only, and 5 away from 7
    assert _neighbor_score("coverage", p, t, k=1) == 2/4
    assert _neighbor_score("recall", p, t, k=1) == 4/4                                  # radii of 2, 4.5, 11, −5 are 2.5, 2.5, 6.5, 7


def test_a_stray_target_makes_precision_and_not_coverage():
    t, p = .4*cloud(60, 2), .4*cloud(60, 2, 1) + torch.tensor([7., 0.])
    stray = torch.cat([t, torch.tensor([[14., 0.]])])
    assert _neighbor_score("precision", p, t, k=3) == 0 and _neighbor_score("precision", p, stray, k=3) == 1
    assert _neighbor_score("density", p, stray, k=3) == pytest.approx(1/3) and _neighbor_score("coverage", p, stray, k=3) == pytest.approx(1/61)


def test_roles():
    p, t = .5*cloud(80), cloud(90, seed=1)              # timid: precise, without recall
    found = neighbor_scores(p, t)
    assert found["precision"] > .95 and found["recall"] < .6 and found["density"] > 1.2
    assert _neighbor_score("recall", t, p) == _neighbor_score("precision", p, t)


def test_equal_sets_and_copies_of_one_point():
    x = cloud(50)
    assert neighbor_scores(x, x, 4) == dict(precision=1, recall=1, density=1, coverage=1)
    pile = torch.cat([x[:1].expand(10, -1), x])         # ten copies: radius 0, and yet inside its own ball
    assert _ball_radii(pile, 4)[:10].tolist() == [0.0]*10
    found = neighbor_scores(x[:20], pile, 4)
    assert found["precision"] == 1 and found["coverage"] == naive_closed_coverage(x[:20], pile, 4)


def naive_closed_coverage(p, t, k):
    d, own = cdist(p, t), cdist(t, t); np.fill_diagonal(own, np.inf)
    r = np.sort(own, 1)[:, k - 1]
    return ((d < r - 1e-12) | (d == 0)).any(0).mean()


def test_float32_far_from_the_origin():
    x, y = cloud(150, 16).float() + 3000, cloud(150, 16, 1, 1.1).float() + 3000
    assert neighbor_scores(x, y) == neighbor_scores(x.double(), y.double())
    exact = {k: v for name in NAMES for k, v in naive(x.double(), y.double(), _PAPER_K[name]).items() if k == name}
    assert neighbor_scores(x, y) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("n, m, k, d", [(20, 30, 3, 2), (40, 15, 5, 5)])
def test_laws_of_equal_distributions(n, m, k, d):
    g = torch.Generator().manual_seed(n)
    pairs = [(torch.rand(n, d, generator=g), torch.rand(m, d, generator=g)) for _ in range(300)]
    found = np.array([[_neighbor_score(s, *pair, k=k) for s in ("density", "coverage")] for pair in pairs])
    error = found.std(0)/300**.5
    assert abs(found[:, 0].mean() - 1) < 4*error[0]
    expected = 1 - np.prod([(m - i)/(m + n - i) for i in range(1, k + 1)]) # Naeem et al. 2020, lemma 2
    assert abs(found[:, 1].mean() - expected) < 4*error[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [1, 3])
def test_influences_are_removals(name, k):
    p, t = cloud(25, 3), cloud(22, 3, 1, 1.3)
    x, y = (t, p) if name == "recall" else (p, t)
    score = lambda x, y: _neighbor_score(name, *((y, x) if name == "recall" else (x, y)), k=k)
    value, parts, less = score(x, y), _neighbor_influences(name, x, y, k), lambda z, i: torch.cat([z[:i], z[i + 1:]])
    for found, removed in zip(parts, ([score(less(x, i), y) for i in range(len(x))], [score(x, less(y, i)) for i in range(len(y))])):
        lost = (len(found) - 1)*(value - np.array(removed))
        assert np.allclose(found, lost - lost.mean(), atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_half_scores_equal_the_score_of_each_half(name, monkeypatch):
    p, t = cloud(50, 4), cloud(60, 4, 1)
    g = torch.Generator().manual_seed(1)
    cut_p, cut_t = torch.rand(4, 50, generator=g) < .5, torch.rand(4, 60, generator=g) < .5
    sides = [(p, cut_p), (t, cut_t)][::-1 if name == "recall" else 1]
    (x, cx), (y, cy) = sides
    expected = [[_neighbor_score(name, p[a], t[b], k=4) for a, b in ((u, v), (~u, ~v))] for u, v in zip(cut_p, cut_t)]
    assert np.allclose(_half_scores(name, x, y, 4, cx, cy), expected, atol=1e-12)
    monkeypatch.setattr(neighbors, "TILE", 700)
    assert np.allclose(_half_scores(name, x, y, 4, cx, cy), expected, atol=1e-12)


def test_half_radii_look_further_where_neighbors_are_in_the_other_half():
    left, right = cloud(100, 2, 0, .01), cloud(6, 2, 1, .01, 5)
    y, cut = torch.cat([left, right]), torch.ones(1, 106, dtype=torch.bool)
    cut[0, 2:100] = False                               # a pair far from the others of its half, all of its near ones in the other
    found = _half_radii(y, 3, cut)[0]
    for half in (cut[0], ~cut[0]): assert np.allclose(found[half], _ball_radii(y[half], 3), rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_standard_error_is_that_of_repeated_draws(name):
    values, errors = [], []
    for i in range(60):
        p, t = cloud(80, 3, 1000 + i, 1.0, .4), cloud(80, 3, 5000 + i)
        found = neighbor_estimate(p, t, matched=False, clusters=None, seed=i, name=name, k=_PAPER_K[name])
        values.append(found.value); errors.append(found.se)
    assert .7 < np.sqrt(np.mean(np.square(errors)))/np.std(values) < 1.5


def test_estimate_reproducible_scaled_and_clustered():
    p, t = cloud(100, 3, 0, 1.3), cloud(100, 3, 1)
    options = dict(name="precision", k=3, matched=True)
    one = neighbor_estimate(p, t, clusters=None, seed=1, **options)
    same, other = (neighbor_estimate(p, t, clusters=None, seed=s, **options) for s in (1, 2))
    assert one.se == same.se != other.se
    scaled = standard_error(Estimate(one.value, pred=one.pred, target=one.target), matched=True)[0]
    assert scaled == pytest.approx(one.se)
    labels = np.arange(100)//5
    alike = cloud(20, 3, 4, 1.6)[torch.from_numpy(labels)] + 1e-3*cloud(100, 3, 2)        # twenty different points, five near copies of each
    options = dict(name="precision", k=3, matched=False, seed=1)
    together, apart = (neighbor_estimate(alike, t, clusters=c, **options) for c in (labels, None))
    assert .3 < apart.value == together.value < .9 and together.se > 1.15*apart.se


def test_saturated_and_too_small():
    x = cloud(40)
    found = neighbor_estimate(x + 1e-6, x, matched=False, clusters=None, seed=0, name="precision", k=3)
    assert found.value == 1 and found.se > 0 and "bound" in found.notes[0]
    few = neighbor_estimate(x[:7], x[:7] + .1, matched=False, clusters=None, seed=0, name="precision", k=3)
    assert few.se is None and few.pred is None and "no interval" in few.notes[0]


@pytest.mark.parametrize("name", NAMES)
def test_metric(name):
    metric = get_metric(name, encoder="mean-color", k=4)
    g = torch.Generator().manual_seed(0)
    target = torch.rand(60, 3, 8, 8, generator=g)*torch.rand(60, 3, 1, 1, generator=g)
    rows = extract([metric], .8*target + .1, target)[name]
    assert metric.statistic(rows) == pytest.approx(naive(rows.pred.double(), rows.target.double(), 4)[name])
    assert metric.statistic(Rows(rows.target, rows.target)) == 1
    score = score_rows(metric, rows)
    assert score.ci.low <= score.value <= score.ci.high and score.ci.method.startswith("half-splits") and dict(score.signature.items)["k"] == "4"
    assert paired_difference(metric, rows, rows).ci.high == 0
    assert metric.higher_is_better is (None if name == "density" else True)


@pytest.mark.parametrize("change, message", [
    (dict(p=torch.full((20, 6), torch.nan)), "predictions are not finite in 20 of 20 rows: 0, 1, 2, 3, 4, …"),
    (dict(t=cloud(30, 5)), "predictions 6, targets 5"), (dict(t=cloud(3)), "need 4 items, found 3"), (dict(p=cloud(1)), "two items"),
    (dict(k=0), "k must be 1"), (dict(p=cloud(20)[0]), "must be (N, d)"),
    (dict(w=-torch.ones(20)), "not negative"), (dict(w=torch.ones(7)), "one weight each")])
def test_bad_input(change, message):
    given_ = dict(p=cloud(20), t=cloud(30, seed=1), k=3, w=None) | change
    with pytest.raises(InputError) as error: _neighbor_score("precision", given_["p"], given_["t"], given_["w"], k=given_["k"])
    assert message in str(error.value) and "\n" not in str(error.value)


def test_bad_names_and_rows_are_named_as_they_were_given():
    with pytest.raises(InputError, match="did you mean"): _neighbor_score("precison", cloud(20), cloud(20))
    t = cloud(20); t[11] = torch.inf
    weights = torch.ones(20); weights[:5] = 0
    with pytest.raises(InputError, match="targets are not finite in 1 of 20 rows: 11"): _neighbor_score("recall", cloud(20), t, None, weights)
    with pytest.raises(InputError, match="option k takes int, not 2.5"): get_metric("recall", encoder="mean-color", k=2.5)


def kibibytes_grown() -> int:
    "By how much the peak of the memory of this process grows."
    g = torch.Generator().manual_seed(0)
    p, t = torch.randn(5000, 8, generator=g), torch.randn(5000, 8, generator=g)
    _neighbor_score("density", p[:1000], t[:1000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _neighbor_score("density", p, t)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def test_memory_does_not_grow_with_pairs(): assert elsewhere(kibibytes_grown) < 130_000 # all pairs in float64 would be 195,000 KiB a matrix
