"Kernel distances against definitions, public implementations, closed forms and higher precision; their intervals by simulation."
import resource

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from commands import elsewhere
from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import Estimate, get_metric
from invariant_metrics.metrics.cmmd import _both_moments, cmmd_distance, _cmmd_estimate, _cmmd_from_stats, _moment_bound, moment_value
from invariant_metrics.metrics.gaussian import GaussianStats
from invariant_metrics.metrics.estimate import standard_error
from invariant_metrics.metrics.kernel import SubsetDraws, Polynomial, RBF, kernel_forms, unit_rows
from invariant_metrics.metrics.mmd import _kid_draws, kid_subsets, mmd2, mmd_estimate
from invariant_metrics.metrics.mmd import mmd_replicates

RAW = RBF(2.0, normalize=False)
KERNELS = [RBF(1.0), RBF(10.0), RAW, Polynomial(), Polynomial(2, gamma=0.3, coef=2.0), Polynomial(4, normalize=True)]
sizes, seeds = st.integers(2, 40), st.integers(0, 10**6)


def sets(n, m, d, seed=0, shift=0.3, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    scale = torch.arange(1, d + 1, dtype=torch.float64)**-0.5
    return (torch.randn(n, d, generator=g)*scale).to(dtype), ((1.2*torch.randn(m, d, generator=g) + shift)*scale).to(dtype)


def matrix(kernel, x, y):
    "The kernel between all rows, by scikit-learn."
    from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
    x, y = ((z/z.norm(dim=1, keepdim=True) if kernel.normalize else z).double().numpy() for z in (x, y))
    if isinstance(kernel, RBF): return rbf_kernel(x, y, gamma=1/(2*kernel.sigma**2))
    return polynomial_kernel(x, y, degree=kernel.degree, gamma=kernel.gamma, coef0=kernel.coef)


def definition(kernel, x, y, unbiased):
    "Sums over pairs in two plain loops of the formula."
    less = int(unbiased)
    inside = [(k.sum() - less*np.trace(k))/(len(k)*(len(k) - less)) for k in (matrix(kernel, z, z) for z in (x, y))]
    return sum(inside) - 2*matrix(kernel, x, y).mean()


@pytest.mark.parametrize("n, m", [(50, 30), (30, 50), (1500, 20), (2, 2)])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_mmd_equals_the_definition(n, m, kernel):
    a, b = sets(n, m, 8)
    for unbiased in (True, False):
        expected = definition(kernel, a, b, unbiased)
        for tile in (n//4 + 1, 1024): assert mmd2(a, b, kernel=kernel, unbiased=unbiased, tile=tile) == pytest.approx(expected, abs=2e-12)
        found = mmd_estimate(a, b, kernel=kernel, unbiased=unbiased, tile=n//3 + 1)
        assert found.value == pytest.approx(expected, abs=2e-12)
        center = found.value if found.corrected is None else found.corrected
        assert center == pytest.approx(definition(kernel, a, b, True), abs=2e-12)


def test_a_double_loop_and_cases_by_hand():
    a, b = sets(5, 4, 3)
    k = lambda x, y: (float(x @ y)/3 + 1)**3
    inside = lambda z: sum(k(z[i], z[j]) for i in range(len(z)) for j in range(len(z)) if i != j)/(len(z)*(len(z) - 1))
    assert mmd2(a, b, kernel=Polynomial()) == pytest.approx(inside(a) + inside(b) - 2*sum(k(x, y) for x in a for y in b)/20, abs=1e-13)
    X, Y = torch.tensor([[1., 0.], [0., 1.]]), torch.tensor([[1., 1.], [2., 0.]])
    assert mmd2(X, Y, kernel=Polynomial()) == 1.125 and kid_subsets(X, Y, size=2).mean == pytest.approx(1.125, abs=1e-6)


@settings(max_examples=30)
@given(sizes, sizes, st.integers(1, 6), seeds, st.sampled_from(KERNELS))
def test_symmetric_invariant_to_rotation_and_tiling_and_zero_on_identity(n, m, d, seed, kernel):
    a, b = sets(n, m, d, seed)
    turn = torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))[0]
    for unbiased in (True, False):
        value = mmd2(a, b, kernel=kernel, unbiased=unbiased)
        close = pytest.approx(value, abs=1e-11, rel=1e-11)
        assert mmd2(b, a, kernel=kernel, unbiased=unbiased) == close
        assert mmd2(a @ turn, b @ turn, kernel=kernel, unbiased=unbiased) == close
        assert mmd2(a, b, kernel=kernel, unbiased=unbiased, tile=3) == close
        assert mmd2(a[torch.randperm(n, generator=torch.Generator().manual_seed(seed))], b, kernel=kernel, unbiased=unbiased) == close
    assert mmd2(a, a, kernel=kernel, unbiased=False) == mmd2(a, a.clone(), kernel=kernel, unbiased=False) == 0
    assert mmd2(a, b, kernel=kernel, unbiased=False) >= 0 and mmd2(a, a, kernel=kernel) <= 1e-12


@settings(max_examples=20)
@given(seeds, st.sampled_from([RBF(2.0, normalize=False), Polynomial()]))
def test_grows_with_an_added_shift(seed, kernel):
    a = sets(40, 2, 3, seed)[0]
    values = [mmd2(a, a + torch.tensor([s, 0., 0.]), kernel=kernel, unbiased=False) for s in (0, 0.5, 1, 2)]
    assert all(x < y for x, y in zip(values, values[1:]))


@settings(max_examples=20)
@given(sizes, sizes, seeds, st.sampled_from(KERNELS), st.booleans())
def test_weights_are_copies_and_rows_of_weights_are_values(n, m, seed, kernel, pooled):
    a, b = sets(n, m, 4, seed)
    if pooled: a = b = torch.cat([a, b])
    r = np.random.default_rng(seed)
    u, v = (torch.from_numpy(r.integers(0, 3, (3, len(z)))) for z in (a, b))
    u[:, :2] += 1; v[:, :2] += 1
    for unbiased in (True, False):
        rows = mmd_replicates(a, b, u, v, kernel=kernel, unbiased=unbiased, tile=11)
        copies = [definition(kernel, a.repeat_interleave(p, 0), b.repeat_interleave(q, 0), unbiased) for p, q in zip(u, v)]
        assert np.allclose(rows, copies, atol=1e-10)


def test_one_walk_serves_a_permutation_test():
    pool = torch.cat(sets(30, 20, 4))
    part = torch.stack([torch.randperm(50, generator=torch.Generator().manual_seed(i)) < 30 for i in range(40)])
    rows = mmd_replicates(pool, pool, part, ~part, kernel=RAW, tile=16)
    for mask, value in zip(part, rows): assert float(value) == pytest.approx(definition(RAW, pool[mask], pool[~mask], True), abs=1e-12)


# KID

@pytest.mark.parametrize("n, m, d, subsets, size", [(300, 250, 32, 12, 100), (60, 60, 200, 5, 60), (1100, 1300, 8, 3, 1000)])
def test_kid_equals_torch_fidelity_on_its_draws(n, m, d, subsets, size):
    from torch_fidelity.metric_kid import kid_features_to_metric
    g = torch.Generator().manual_seed(n)
    a, b = torch.rand(n, d, generator=g).double()**2, torch.rand(m, d, generator=g).double()**2.2
    ours = kid_subsets(a, b, subsets, size, draws=_kid_draws(n, m, subsets, size), kernel=Polynomial(), tile=128)
    theirs = kid_features_to_metric(a, b, kid_subsets=subsets, kid_subset_size=size, verbose=False)
    assert (ours.mean, ours.std) == pytest.approx(tuple(theirs.values()), abs=1e-12)
    fast = kid_subsets(a, b, subsets, size, tile=128)  # the same draws by default
    assert (fast.mean, fast.std) == pytest.approx(tuple(theirs.values()), abs=3e-8) and fast.mean != ours.mean
    single = kid_features_to_metric(a.float(), b.float(), kid_subsets=subsets, kid_subset_size=size, verbose=False)
    assert ours.mean == pytest.approx(single["kernel_inception_distance_mean"], abs=1e-6)


def test_kid_equals_torchmetrics_given_draws():
    from torchmetrics.image.kid import poly_mmd
    a, b = sets(90, 80, 16)
    draws = _kid_draws(90, 80, 6, 50, seed=1)
    ours = kid_subsets(a, b, draws=draws, kernel=Polynomial())
    theirs = torch.stack([poly_mmd(a[i], b[j]) for i, j in zip(*draws)])
    assert torch.allclose(ours.values, theirs, atol=1e-12) and ours.parts["draws"] == "given" and ours.size == 50


def test_kid_of_few_items_says_so_and_is_the_whole_statistic():
    a, b = sets(25, 25, 8)
    few = kid_subsets(a, b)
    assert few.mean == pytest.approx(mmd2(a, b, kernel=Polynomial()), abs=1e-7) and few.std == 0
    assert few.parts == {"estimator": "subsets", "subsets": 1, "subset_size": 25, "draws": "RandomState(2020)"}
    assert any("25 instead of 1000" in note for note in few.notes) and any("not the standard error" in note for note in few.notes)
    assert kid_subsets(*sets(25, 30, 8), subsets=7).values.shape == (7,)


def test_deviation_over_subsets_is_about_three_standard_errors():
    a, b = sets(1000, 1000, 64)
    e = mmd_estimate(a, b, kernel=Polynomial())
    assert 2 < kid_subsets(a, b, 50, 100).std/standard_error(e)[0] < 4.5


def test_drawn_equals_its_rows_written_out():
    index = torch.from_numpy(np.random.default_rng(0).integers(0, 30, (5, 12)))
    whole = torch.zeros(5, 30).index_put_((torch.arange(5).repeat_interleave(12), index.flatten()), torch.ones(1), accumulate=True).double()
    a, b = sets(30, 30, 4)
    drawn, written = (kernel_forms(a, b, w, w, Polynomial(), tile) for w, tile in ((SubsetDraws(index, 30), 7), (whole, 9)))
    assert torch.allclose(drawn, written, atol=1e-8)


# CMMD

def forty_digits(a, b, unbiased=False):
    import mpmath
    with mpmath.workdps(40):
        rows = [[[mpmath.mpf(float(v)) for v in row] for row in z] for z in (a, b)]
        rows = [[[v/mpmath.sqrt(mpmath.fsum(w*w for w in row)) for v in row] for row in z] for z in rows]
        k = lambda x, y: mpmath.exp(-mpmath.fsum((p - q)**2 for p, q in zip(x, y))/200)
        inside = [mpmath.fsum(k(x, y) for i, x in enumerate(z) for j, y in enumerate(z) if i != j or not unbiased) for z in rows]
        inside = [total/(len(z)*(len(z) - unbiased)) for total, z in zip(inside, rows)]
        return float(1000*(sum(inside) - 2*mpmath.fsum(k(x, y) for x in rows[0] for y in rows[1])/(len(a)*len(b))))


def moment_form(a, b):
    p, q = _both_moments(a, b)
    return SimpleNamespace(value=moment_value(p, q), bound=_moment_bound(p, q))


@pytest.mark.parametrize("n, m, d", [(30, 20, 5), (12, 10, 30)]) # through moments, through pairs
@pytest.mark.parametrize("shift", [0.0, 0.05, 1.0])
def test_cmmd_equals_forty_digits(n, m, d, shift):
    a, b = sets(n, m, d, shift=shift, dtype=torch.float32)
    assert cmmd_distance(a, b) == pytest.approx(forty_digits(a, b), abs=1e-9)
    assert cmmd_distance(a, b, unbiased=True) == pytest.approx(forty_digits(a, b, True), abs=1e-9)
    form = moment_form(a, b)
    assert -1e-12 <= forty_digits(a, b) - form.value <= form.bound


def test_cmmd_is_nearly_ten_times_the_distance_of_means_and_the_tiles_agree():
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(1200, 64, generator=g) + .1, torch.randn(900, 64, generator=g) - .1
    cheap = 10*float((unit_rows(a).mean(0) - unit_rows(b).mean(0)).square().sum())
    plain = mmd2(a, b, kernel=RBF(10.0), unbiased=False, scale=1000)
    assert cmmd_distance(a, b) == pytest.approx(plain, abs=1e-9) and cmmd_distance(a, b, tile=100) == pytest.approx(plain, abs=1e-9)
    assert cmmd_distance(a, b) == pytest.approx(cheap, rel=0.02)
    form = moment_form(a, b)
    assert 0 <= plain - form.value <= min(form.bound, 1e-5*plain)
    assert cmmd_distance(a, a.clone()) == moment_form(a, a).value == 0


@settings(max_examples=40)
@given(sizes, sizes, st.integers(1, 8), seeds, st.floats(0, 4), st.sampled_from([0.0, 0.3, 3.0]))
def test_the_bound_of_the_moment_form_holds(n, m, d, seed, shift, common):
    a, b = sets(n, m, d, seed, shift)
    form, true = moment_form(a + common, b + common), mmd2(a + common, b + common, kernel=RBF(10.0), unbiased=False, scale=1000)
    assert -1e-11 <= true - form.value <= form.bound + 1e-11
    mirrored, true = moment_form(a, -a), mmd2(a, -a, kernel=RBF(10.0), unbiased=False, scale=1000)  # all odd moments differ
    assert -1e-11 <= true - mirrored.value <= mirrored.bound + 1e-11


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("matched, clusters", [(False, None), (True, None), (True, np.arange(60)//4), (False, np.arange(60)//4)])
def test_cmmd_estimate_equals_the_one_by_pairs(unbiased, matched, clusters):
    a, b = sets(60, 60, 6)
    found = _cmmd_estimate(a, b, matched=matched, clusters=clusters, unbiased=unbiased)
    pairs = mmd_estimate(a, b, matched=matched, clusters=clusters, unbiased=unbiased, kernel=RBF(10.0), scale=1000)
    short = _cmmd_estimate(a, b, matched=matched, clusters=clusters, unbiased=unbiased, form="moments")
    assert found.value == pytest.approx(pairs.value, abs=1e-9) and (found.corrected is None) == (pairs.corrected is None)
    if pairs.corrected is not None: assert found.corrected == pytest.approx(pairs.corrected, abs=1e-9)
    for other in (found, short):
        for ours, theirs in ((other.pred, pairs.pred), (other.target, pairs.target)):
            assert torch.allclose(ours, theirs, atol=2e-3*float(pairs.pred.abs().max()))


def test_cmmd_from_streamed_statistics():
    a, b = sets(500, 400, 12)
    parts = [GaussianStats(parts=8, seed=i).update(unit_rows(x)) for i, x in enumerate(a.split(125))]
    p, q = GaussianStats.merged(parts), GaussianStats(parts=8, seed=9).update(unit_rows(b))
    found, rows = _cmmd_from_stats(p, q), _cmmd_estimate(a, b, form="moments")
    assert (found.value, found.corrected) == pytest.approx((rows.value, rows.corrected), abs=1e-11)
    assert 0.4 < found.se/standard_error(rows)[0] < 2.5 and 7 <= found.df <= 14
    plain = _cmmd_from_stats(GaussianStats().update(unit_rows(a)), q)
    assert plain.se is None and any("no interval" in note for note in plain.notes)
    assert _cmmd_from_stats(p, p).value == 0
    with pytest.raises(InputError, match="mean square length"): _cmmd_from_stats(GaussianStats().update(a), q)
    with pytest.raises(InputError, match="widths"): _cmmd_from_stats(p, GaussianStats().update(unit_rows(b[:, :5])))


# Intervals

def closed_form(gap, var_x, var_y, d, sigma):
    k = lambda s, delta: (1 + s/sigma**2)**(-d/2)*np.exp(-delta**2/2/(sigma**2 + s))
    return k(2*var_x, 0) + k(2*var_y, 0) - 2*k(var_x + var_y, gap)


def test_unbiased_mmd_is_right_on_average_and_biased_is_not():
    g, found = torch.Generator().manual_seed(0), []
    for _ in range(300):
        a, b = torch.randn(30, 4, generator=g), 1.5*torch.randn(20, 4, generator=g) + 0.2
        found.append((mmd2(a, b, kernel=RAW), mmd2(a, b, kernel=RAW, unbiased=False)))
    exact, mean, error = closed_form(0.4, 1, 2.25, 4, 2.0), np.mean(found, 0), np.std(found, 0)/300**.5
    assert abs(mean[0] - exact) < 4*error[0] and mean[1] > exact + 20*error[1]


@pytest.mark.parametrize("clusters", [None, np.arange(24)//3])
def test_corrected_value_is_right_for_items_that_belong_together(clusters):
    g, found = torch.Generator().manual_seed(1), []
    for _ in range(400):
        if clusters is None: base = torch.randn(24, 3, generator=g)
        else: base = (torch.randn(8, 3, generator=g).repeat_interleave(3, 0) + torch.randn(24, 3, generator=g))/2**.5
        e = mmd_estimate(base, base + 0.7*torch.randn(24, 3, generator=g), matched=True, clusters=clusters, kernel=RAW)
        found.append((e.corrected, e.value))
    exact, mean, error = closed_form(0, 1, 1.49, 3, 2.0), np.mean(found, 0), np.std(found, 0)/400**.5
    assert abs(mean[0] - exact) < 4*error[0]
    assert abs(mean[1] - exact) > 8*error[1]  # all cross pairs: not right


@pytest.mark.parametrize("matched", [False, True])
def test_intervals_cover(matched):
    g, reps, d, n = torch.Generator().manual_seed(2), 250, 20, 60
    for gap in (0.0, 3.0):
        hit, exact = np.zeros(2), closed_form(gap, 1, 1, d, d**.5)
        for _ in range(reps):
            a = torch.randn(n, d, generator=g)
            b = (0.6*a + 0.8*torch.randn(n, d, generator=g)) if matched else torch.randn(n, d, generator=g)
            b = b + gap*torch.eye(1, d)
            kernel = RBF(d**.5, normalize=False)
            e, score = mmd_estimate(a, b, matched=matched, kernel=kernel), mmd_estimate(a, b, matched=matched, kernel=kernel).interval(0.95)
            center = e.value if e.corrected is None else e.corrected
            hit += (abs(center - exact) <= 1.96*standard_error(e, matched)[0], score.low <= exact <= score.high)
        assert 0.90 <= hit[1]/reps <= 0.99 and 0.90 <= hit[0]/reps, (gap, hit/reps)


def test_influences_are_what_leaving_an_item_out_does():
    a, b = sets(120, 150, 5)
    e = mmd_estimate(a, b, kernel=RAW)
    without = torch.ones(150, 150) - torch.eye(150)
    change = mmd_replicates(a, b, torch.ones(150, 120), without, kernel=RAW) - e.value
    assert torch.allclose(-149*change, e.target, atol=0.06*float(e.target.abs().max()))
    assert abs(float(e.pred.mean())) < 1e-14 and abs(float(e.target.mean())) < 1e-14


def test_an_estimate_of_a_swap_is_the_swapped_estimate():
    a, b = sets(40, 50, 5)
    there, back = mmd_estimate(a, b, kernel=Polynomial(), unbiased=False), mmd_estimate(b, a, kernel=Polynomial(), unbiased=False)
    assert there.corrected == pytest.approx(back.corrected, abs=1e-12) and torch.allclose(there.pred, back.target, atol=1e-11)


# What is refused, and what it costs

@pytest.mark.parametrize("distance", [mmd2, cmmd_distance, mmd_estimate, _cmmd_estimate, kid_subsets])
def test_what_is_refused(distance):
    a, b = sets(20, 20, 4)
    holes = b.index_fill(0, torch.tensor([3, 8]), torch.inf)
    for wrong, words in ((b[:, :3], "different widths"), (b[:1], "two items"), (holes, r"2 of 20 rows are not finite: 3, 8")):
        with pytest.raises(InputError, match=words): distance(a, wrong)
    if distance is not kid_subsets:
        with pytest.raises(InputError, match="1 of 20 feature vectors are zero.*: 5"): distance(a, b.index_fill(0, torch.tensor([5]), 0.))


def test_what_else_is_refused():
    a, b = sets(20, 20, 4)
    for wrong in (lambda: mmd_estimate(a, b[:9], matched=True), lambda: mmd_estimate(a, b, clusters=np.zeros(7)),
                  lambda: mmd_estimate(a, b, clusters=np.zeros(20)),
                  lambda: RBF(-1.0), lambda: Polynomial(0), lambda: kid_subsets(a, b, subsets=0), lambda: mmd2(a[0], b)):
        with pytest.raises(InputError): wrong()


@pytest.mark.parametrize("name", ["mmd", "mmd-biased", "mmd-poly", "mmd-poly-biased", "cmmd", "cmmd-unbiased", "cmmd-moments"])
def test_the_metrics_say_what_they_are(name):
    metric = get_metric(name, encoder="mean-color")
    parts = dict(metric.signature.items)
    assert parts["metric"] == metric.name == (f"{name}-mean-color" if name.startswith("cmmd") else name) and parts["kernel"] in ("rbf", "poly3") and parts["dtype"] == "float64"
    assert parts["estimator"].startswith("biased" if name in ("cmmd", "cmmd-moments") or name.endswith("-biased") else "unbiased")
    a, b = sets(30, 30, 3)
    found = metric.estimate(a, b, matched=True, clusters=None, seed=0)
    assert isinstance(found, Estimate) and found.value == pytest.approx(metric.compare(a, b), abs=1e-9)
    assert float(metric.many(a, b, torch.ones(1, 30), torch.ones(1, 30))[0]) == pytest.approx(found.value, abs=1e-9)


def megabytes_grown() -> float:
    "By how much the peak of the memory of this process grows."
    def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1024
    x, y = torch.randn(3600, 16), torch.randn(3600, 16) + .1
    mmd_estimate(x[:1500], y[:1500])
    before = peak()
    mmd_estimate(x, y, unbiased=False)
    cmmd_distance(x, y)
    return peak() - before


def test_memory_does_not_grow_with_the_pairs(): # three matrices of 3600² would be 310 MB
    assert elsewhere(megabytes_grown) < 60
