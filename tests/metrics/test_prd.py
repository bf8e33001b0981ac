"Precision-recall curves for distributions: discrete cases by hand, symmetry, weights, order, error, and the metric."
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog

from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import Rows, extract, get_metric
from invariant_metrics.scoring.inference import paired_difference, score_rows
from invariant_metrics.metrics.estimate import standard_error
from invariant_metrics.metrics.prd import _BETAS, _assign_clusters, _max_f, prd, _prd_curve, _prd_estimate
from invariant_metrics.metrics.prd import _prd_score, _cluster_shares, _angle_slopes

share_lists = st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda x: sum(x) > .1).map(lambda x: np.array(x)/sum(x))


def cloud(n, d=4, seed=0, scale=1.0, shift=0.0):
    return scale*torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


def test_slopes_are_the_published_grid():
    assert len(_angle_slopes()) == 1001 and _angle_slopes()[500] == pytest.approx(1, abs=1e-12) and _angle_slopes()[0] == pytest.approx(1e-6)


@settings(max_examples=25)
@given(share_lists, share_lists, st.floats(.05, 20))
def test_definition_as_a_linear_program(p, q, slope):
    "Largest α such that a distribution μ exists with α·μ ≤ P and (α/λ)·μ ≤ Q: what the paper defines before it has a formula."
    found = linprog(-np.ones(4), bounds=[(0, min(a, slope*b)) for a, b in zip(p, q)])   # m = α·μ, to be as heavy as P and λ·Q allow
    alpha, beta = _prd_curve(p, q, 2001)
    nearest = np.abs(np.log(_angle_slopes(2001)) - np.log(slope)).argmin()
    assert alpha[nearest] == pytest.approx(-found.fun, abs=2e-2) and beta[nearest] == pytest.approx(-found.fun/slope, abs=2e-2)


@settings(max_examples=40)
@given(share_lists, share_lists)
def test_curve_is_monotone_bounded_and_mirrored(p, q):
    alpha, beta = _prd_curve(p, q)
    assert (np.diff(alpha) >= -1e-12).all() and (np.diff(beta) <= 1e-12).all()
    assert 0 <= min(alpha.min(), beta.min()) and max(alpha.max(), beta.max()) <= 1
    assert alpha[-1] == pytest.approx(p[q > 0].sum(), abs=1e-3) or q[q > 0].min() < 1e-3
    mirrored = _prd_curve(q, p)
    assert np.allclose(alpha[::-1], mirrored[1], atol=1e-9) and _max_f(alpha, beta, 8) == pytest.approx(_max_f(*mirrored, 1/8), abs=1e-9)
    assert _max_f(*_prd_curve(p, p)) == pytest.approx(1, abs=1e-9)


def test_by_hand():
    half = _prd_curve([.5, .5, 0], [0, .5, .5])
    for b in _BETAS.values(): assert _max_f(*half, b) == pytest.approx(.5, abs=1e-6)
    dropped = _prd_curve([1., 0], [.5, .5])               # α = min(λ/2, 1), β = min(1/2, 1/λ): corner (1, 1/2) at λ = 2
    assert _max_f(*dropped, 1) == pytest.approx(2/3, abs=5e-4)
    assert _max_f(*dropped, 8) == pytest.approx(65*.5/(64 + .5), abs=1e-3)
    assert _max_f(*dropped, 1/8) == pytest.approx((1 + 1/64)*.5/(1/64 + .5), abs=1e-3)
    assert _max_f(*_prd_curve([1., 0], [0, 1.])) == 0


@pytest.mark.parametrize("p, q", [([.5, .6], [.5, .5]), ([.5, .5], [1.]), ([1.5, -.5], [.5, .5]), ([np.nan, 1], [.5, .5])])
def test_no_shares(p, q):
    with pytest.raises(InputError, match="sum to 1 each"): _prd_curve(p, q)


def both(p, t, u=None, v=None, **options):
    return [_cluster_shares(label, w, 20) for label, w in _assign_clusters(p, t, u, v, **options)]


def test_order_and_copies_change_nothing():
    p, t = cloud(90), cloud(70, seed=1, shift=.3)
    w = torch.ones(90); w[:20], w[20:30] = 3, 0
    plain = both(p, t, w, runs=3)
    mixed = torch.randperm(90, generator=torch.Generator().manual_seed(2))
    for other in (both(p[mixed], t.flip(0), w[mixed], runs=3), both(p.repeat_interleave(w.long(), 0), t, runs=3)):
        for x, y in zip(plain, other): assert np.allclose(x, y, atol=1e-12)
    near = both(p.repeat_interleave(w.long(), 0) + 1e-9*cloud(120, seed=5), t, runs=3)     # copies that differ in the last digits
    for x, y in zip(plain, near): assert np.allclose(x, y, atol=1e-9)
    again, other = both(p, t, w, runs=3), both(p, t, w, runs=3, seed=1)
    assert (again[0] == plain[0]).all() and (other[0] != plain[0]).any()


def test_clusters_are_good_ones_and_both_sides_weigh_alike():
    from sklearn.cluster import KMeans
    centers = 40*cloud(20, seed=3)
    p, t = (centers.repeat(k, 1) + cloud(20*k, seed=k) for k in (10, 4))
    (label_p, u), (label_t, v) = _assign_clusters(p, t, runs=5)
    best = KMeans(20, n_init=30, random_state=0).fit(torch.cat([p, t]).numpy()).inertia_
    for a, b in zip(label_p, label_t):
        rows, label = torch.cat([p, t]).numpy(), np.concatenate([a, b])
        inertia = sum(((rows[label == c] - rows[label == c].mean(0))**2).sum() for c in range(20))
        assert inertia < 30*best and (u.sum(), v.sum()) == pytest.approx((1, 1))
    assert _prd_score(p, t) > .9                           # same modes, same shares, other numbers of items


def test_equal_and_disjoint_and_partial():
    x = cloud(100)
    assert _prd_score(x, x) == pytest.approx(1, abs=1e-12) and _prd_score(x + 100, x) == 0
    timid = prd(cloud(400, 4, 7, .4), cloud(400, seed=8))
    assert _max_f(*timid, 1/8) > _max_f(*timid, 8) + .1


def test_influences_are_slopes_of_the_value_with_clusters_held():
    p, t = cloud(80, shift=.5), cloud(60, seed=1)
    for b in _BETAS.values():
        found = _prd_estimate(p, t, matched=False, clusters=None, seed=0, b=b, kmeans=20, runs=4)
        assert found.value == pytest.approx(_prd_score(p, t, b=b, runs=4), abs=1e-12)
        (label_p, u), (label_t, v) = _assign_clusters(p, t, runs=4)
        def value(u, v):
            curves = [_prd_curve(x, y) for x, y in zip(_cluster_shares(label_p, u, 20), _cluster_shares(label_t, v, 20))]
            return float(_max_f(*np.mean(curves, axis=0), b))
        for i in range(8):
            nudge = lambda w: (w + 1e-7*(np.arange(len(w)) == i))/(w.sum() + 1e-7)
            assert (value(nudge(u), v) - found.value)/1e-7 == pytest.approx(float(found.pred[i]), abs=2e-4)
            assert (value(u, nudge(v)) - found.value)/1e-7 == pytest.approx(float(found.target[i]), abs=2e-4)


def test_standard_error_is_that_of_repeated_draws():
    options = dict(matched=False, clusters=None, seed=0, b=1.0, kmeans=20, runs=2)
    found = [_prd_estimate(cloud(200, 4, 100 + i, shift=.5), cloud(200, 4, 900 + i), **options) for i in range(50)]
    errors = [standard_error(e)[0] for e in found]
    assert .7 < np.sqrt(np.mean(np.square(errors)))/np.std([e.value for e in found]) < 1.5


@pytest.mark.parametrize("name", _BETAS)
def test_metric(name):
    metric = get_metric(name, encoder="mean-color", runs=2)
    g = torch.Generator().manual_seed(0)
    target = torch.rand(80, 3, 8, 8, generator=g)*torch.rand(80, 3, 1, 1, generator=g)
    rows = extract([metric], .5*target + .2, target)[name]
    score = score_rows(metric, rows)
    assert score.ci.low <= score.value <= score.ci.high and 0 < score.value < 1 == pytest.approx(metric.statistic(Rows(rows.target, rows.target)))
    assert paired_difference(metric, rows, rows).ci.high == 0
    assert {"kmeans", "runs", "seed", "angles"} <= dict(score.signature.items).keys()


@pytest.mark.parametrize("p, t, message", [
    (cloud(5), cloud(5, seed=1), "20 clusters need as many different items, found 10"),
    (cloud(30), cloud(30, 5), "predictions 4, targets 5"), (cloud(1), cloud(30), "two predictions"),
    (cloud(30).index_fill(0, torch.tensor([3]), torch.nan), cloud(30), "predictions are not finite in 1 of 30 rows: 3")])
def test_bad_input(p, t, message):
    with pytest.raises(InputError) as error: _prd_score(p, t)
    assert message in str(error.value) and "\n" not in str(error.value)
