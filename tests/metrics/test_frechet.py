"The Fréchet distance: against public implementations and 60-digit arithmetic, its routes against each other, and what must hold for any sets."
import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from invariant_metrics.core import InputError, Signature
from invariant_metrics.metrics import frechet
from invariant_metrics.metrics import frechet
from invariant_metrics.metrics.frechet import _split_off, frechet_distance, frechet_replicates, frechet_terms
from invariant_metrics.metrics.frechet import column_products, root_sum, _singular_directions
from invariant_metrics.metrics.gaussian import GaussianStats

SHAPES = [(300, 200, 16), (40, 60, 48), (20, 30, 64), (20, 200, 64)]  # n above d, around d, below d, one of each
POWERS = [0, 1, 2]
F64 = torch.float64


def rotation(d, seed=0): return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=F64))[0]


def sets(n, m, d, power, shift=0.3, turned=False):
    "Two samples with scales i^-power, along the axes or turned away from them."
    g = torch.Generator().manual_seed(n + d + power)
    scale = torch.arange(1, d + 1, dtype=F64)**-power
    a, b = torch.randn(n, d, generator=g, dtype=F64)*scale, 1.2*torch.randn(m, d, generator=g, dtype=F64)*scale + shift*scale
    return (a @ rotation(d), b @ rotation(d)) if turned else (a, b)


def stats(x): return GaussianStats().update(x)


def moments(x): return x.mean(0), torch.from_numpy(np.cov(x.numpy(), rowvar=False))


def size(a, b): return float(a.var(0).sum() + b.var(0).sum())


def by_mpmath(a, b, digits=60):
    "The distance from the definition of mean and factor, in many digits."
    import mpmath
    with mpmath.workdps(digits):
        def factor(x):
            x = mpmath.matrix(x.tolist())
            mean = [mpmath.fsum(x[i, j] for i in range(x.rows))/x.rows for j in range(x.cols)]
            return mean, mpmath.matrix([[(x[i, j] - mean[j])/mpmath.sqrt(x.rows - 1) for j in range(x.cols)] for i in range(x.rows)])
        (p, A), (q, B) = factor(a), factor(b)
        cross = A*B.T
        values = mpmath.eigsy(cross*cross.T if cross.rows <= cross.cols else cross.T*cross, eigvals_only=True)
        overlap = mpmath.fsum(mpmath.sqrt(max(v, 0)) for v in values)
        return float(mpmath.fsum((x - y)**2 for x, y in zip(p, q)) + mpmath.fsum(v*v for v in A) + mpmath.fsum(v*v for v in B) - 2*overlap)


# other implementations and exact arithmetic

@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("n, m, d", SHAPES)
def test_equal_to_the_definition_and_torchmetrics(n, m, d, power):
    from torchmetrics.image.fid import _compute_fid
    a, b = sets(n, m, d, power)
    (p, s), (q, t) = moments(a), moments(b)
    near = dict(abs=1e-6*size(a, b))
    root = np.asarray(scipy.linalg.sqrtm((s @ t).numpy())).real
    ours = frechet_distance(a, b)
    assert ours == pytest.approx(float((p - q).square().sum() + s.trace() + t.trace() - 2*np.trace(root)), **near)
    assert ours == pytest.approx(float(_compute_fid(p, s, q, t)), **near)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("n, m, d", SHAPES)
def test_equal_to_torch_fidelity(n, m, d, power):
    theirs = pytest.importorskip("torch_fidelity.metric_fid")
    a, b = sets(n, m, d, power)
    found = theirs.fid_statistics_to_metric(theirs.fid_features_to_statistics(a), theirs.fid_features_to_statistics(b), verbose=False)
    assert frechet_distance(a, b) == pytest.approx(found["frechet_inception_distance"], abs=1e-6*size(a, b))


@pytest.mark.parametrize("n, m, d", SHAPES)
def test_equal_to_pytorch_fid_and_clean_fid(n, m, d):
    if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 18): pytest.skip("both call sqrtm(disp=False), which this scipy does not know")
    a, b = sets(n, m, d, 1)
    (p, s), (q, t) = ([x.numpy() for x in moments(z)] for z in (a, b))
    for name, function in (("pytorch_fid.fid_score", "calculate_frechet_distance"), ("cleanfid.fid", "frechet_distance")):
        theirs = getattr(pytest.importorskip(name), function)
        assert frechet_distance(a, b) == pytest.approx(float(theirs(p, s, q, t)), abs=1e-6*size(a, b))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("n, m, d", [(12, 10, 6), (6, 5, 9), (5, 20, 9)])
def test_equal_to_sixty_digits_on_every_route(n, m, d, power, turned):
    a, b = sets(n, m, d, power, turned=turned)
    exact, scale = by_mpmath(a, b), size(a, b)
    for route in ("auto", "svd", *(["cholesky"] if max(n, m) > d else [])): assert abs(frechet_distance(a, b, route=route) - exact) <= 1e-12*scale
    for terms in (frechet_terms(a, b, route="roots"), frechet_terms(stats(a), stats(b)), frechet_terms(a, stats(b))):
        assert abs(terms.value - exact) <= terms.error
        assert abs(terms.value - exact) <= 1e-9*scale


def test_equal_to_forty_digits_with_64_features():
    a, b = sets(24, 20, 64, 2, turned=True)
    assert abs(frechet_distance(a, b) - by_mpmath(a, b, 40)) <= 1e-12*size(a, b)


def by_mpmath_covariances(a, b, digits=40):
    "The same from covariances, for more samples than features."
    import mpmath
    with mpmath.workdps(digits):
        def moments(x):
            x = mpmath.matrix(x.tolist())
            mean = [mpmath.fsum(x[:, j])/x.rows for j in range(x.cols)]
            c = mpmath.matrix([[x[i, j] - mean[j] for j in range(x.cols)] for i in range(x.rows)])
            return mean, (c.T*c)/(x.rows - 1)
        (p, s), (q, t) = moments(a), moments(b)
        lower = mpmath.cholesky(s)
        overlap = mpmath.fsum(mpmath.sqrt(v) for v in mpmath.eigsy(lower.T*t*lower, eigvals_only=True))
        traces = mpmath.fsum(s[i, i] + t[i, i] for i in range(s.rows))
        return float(mpmath.fsum((x - y)**2 for x, y in zip(p, q)) + traces - 2*overlap)


@pytest.mark.parametrize("d", [32, pytest.param(64, marks=pytest.mark.slow)])
def test_equal_to_forty_digits_with_more_samples_than_features(d):
    a, b = sets(80, 70, d, 2, turned=True)
    exact, scale = by_mpmath_covariances(a, b), size(a, b)
    for route in ("auto", "cholesky", "svd"): assert abs(frechet_distance(a, b, route=route) - exact) <= 1e-12*scale
    terms = frechet_terms(stats(a), stats(b), route="cholesky")
    assert abs(terms.value - exact) <= min(terms.error, 1e-12*scale)


def test_known_gaussians_converge_to_the_closed_form():
    g = torch.Generator().manual_seed(0)
    scale, shift = torch.tensor([1., 2., .5, 3.]), torch.tensor([0., 1., -1., .5])
    a, b = torch.randn(40000, 4, generator=g), torch.randn(40000, 4, generator=g)*scale + shift
    exact = float(shift.square().sum() + (scale - 1).square().sum())
    assert frechet_distance(a, b) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("route", ["auto", "svd", "cholesky", "roots"])
def test_samples_with_given_moments_give_the_closed_form(route):
    x = torch.cat([torch.eye(3, dtype=F64), -torch.eye(3, dtype=F64)])*(5/2)**0.5    # mean 0, covariance I
    scale, shift = torch.tensor([1., 2., 4.]).double(), torch.tensor([3., 0., 4.]).double()
    assert frechet_distance(x, x*scale + shift, route=route) == pytest.approx(25 + 1 + 9, rel=1e-13)
    turned = x @ rotation(3)
    assert frechet_distance(turned, 2*turned, route=route) == pytest.approx(3, rel=1e-13)


# routes and their bounds

@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("n, m, d", [(400, 300, 64), (60, 300, 64), (50, 40, 64)])
def test_routes_agree_within_their_bounds(n, m, d, power, turned):
    a, b = sets(n, m, d, power, turned=turned)
    exact = frechet_terms(a, b, route="svd")
    for terms in (frechet_terms(a, b), frechet_terms(a, b, route="roots"), frechet_terms(stats(a), b), frechet_terms(stats(a), stats(b))):
        assert abs(terms.value - exact.value) <= terms.error + exact.error
        assert abs(terms.value - exact.value) <= 1e-9*exact.size
    assert frechet_terms(a, b).error <= 1e-9*exact.size


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(-9, 0), st.integers(1, 19), st.floats(-3, 3))
@example(1, -6.0, 1, 0.0)
def test_the_loss_of_cholesky_covers_its_error_next_to_singular(seed, depth, low, scale):
    g = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(60, 20, generator=g, dtype=F64) for _ in range(2))
    a[:, low:] = a[:, :low] @ torch.randn(low, 20 - low, generator=g, dtype=F64) + 10**depth*a[:, low:]
    a, b = a @ rotation(20, seed), 10**scale*b
    exact = frechet_terms(a, b, route="svd")
    try: found = frechet_terms(a, b, route="cholesky")
    except InputError: return                                      # not positive definite: nothing is claimed
    assert abs(found.value - exact.value) <= found.error + exact.error
    best = frechet_terms(stats(a), stats(b))
    assert abs(best.value - exact.value) <= best.error + exact.error
    try: alone = frechet_terms(stats(a), stats(b), route="cholesky")   # of the same covariances: those of rows differ by their rounding
    except InputError: return
    assert best.error <= 1.01*alone.error


def test_cholesky_is_left_when_its_loss_is_too_large(monkeypatch):
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randn(900, 300, generator=g, dtype=F64) for _ in range(2))
    assert frechet_terms(a, b).route.startswith("cholesky and cholesky")
    a[:, 150:] = a[:, :150] @ torch.randn(150, 150, generator=g, dtype=F64)/12 + 3e-7*a[:, 150:]
    terms = frechet_terms(a, b)
    assert terms.route.startswith("qr and cholesky") and abs(terms.value - frechet_distance(a, b, route="svd")) <= 1e-10*terms.size
    assert frechet_terms(b, a).route.startswith("cholesky and qr")


def singular_values(values, n, m, seed=0):
    "A matrix with these singular values."
    g = torch.Generator().manual_seed(seed)
    u, v = (torch.linalg.qr(torch.randn(k, len(values), generator=g, dtype=F64))[0] for k in (n, m))
    return (u*values) @ v.T


SPECTRA = {"flat": torch.ones(150).double(), "falling": torch.arange(1, 151).double()**-2., "steep": torch.arange(1, 151).double()**-5.,
           "two scales": torch.cat([torch.ones(75), torch.full((75,), 1e-7)]).double(), "one large": torch.cat([torch.tensor([1e6]), torch.ones(149)]).double(),
           "geometric": 0.8**torch.arange(150).double(), "rank 10": torch.cat([torch.ones(10), torch.zeros(140)]).double()}


@pytest.mark.parametrize("shape", [(150, 180), (180, 150), (150, 150)])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_fast_sum_of_singular_values_is_within_its_bound(name, shape):
    values = SPECTRA[name]
    c, exact = singular_values(values, *shape), float(values.sum())
    value, bound, how, *_ = _singular_directions(c, 150, 1e-10*exact, large=16, vectors=False)
    assert abs(value - exact) <= bound + 1e-14*exact and bound <= 1e-10*exact
    if name in ("flat", "falling", "steep", "one large"): assert how != "singular values"
    if name == "two scales": assert how == "singular values"       # nothing else reaches the bound, and that is noticed
    assert _singular_directions(c, 150).how == "singular values"


@pytest.mark.parametrize("rounds", [0, 1, 3, 6])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_bound_of_a_deflation_holds_however_few_rounds_it_had(name, rounds):
    values = SPECTRA[name]
    _, top, coupling, rest = _split_off(singular_values(values, 150, 180), keep=10, rounds=rounds)
    top = float(top.sum())
    left = float(torch.linalg.svdvals(rest).sum())
    assert -1e-13 <= (float(values.sum()) - top - left)/float(values.sum()) <= coupling/float(values.sum()) + 1e-13


@pytest.mark.parametrize("name", SPECTRA)
def test_the_bound_of_the_gram_form_covers_its_error(name):
    c = singular_values(SPECTRA[name], 150, 180)
    value, bound = root_sum(column_products(c.T), 150)
    assert abs(value - float(SPECTRA[name].sum())) <= bound + 1e-14*value


@pytest.mark.parametrize("power", POWERS)
def test_large_matrices_take_the_fast_route_and_keep_the_digits(power):
    a, b = sets(800, 790, 820, power)
    fast, exact = frechet_terms(a, b), frechet_terms(a, b, route="svd")
    assert "eigenvalues" in fast.route and abs(fast.value - exact.value) <= min(fast.error, 1e-10*exact.size)
    assert frechet_distance(a, a.flip(0)) == 0


def test_a_few_dead_features_do_not_change_the_route(monkeypatch):
    monkeypatch.setattr(frechet, "LARGE", 16)
    a, b = sets(24, 24, 22, 1)
    terms, exact = frechet_terms(a, b), frechet_terms(a, b, route="svd")
    assert terms.route.startswith("rows and rows") and terms.value == pytest.approx(exact.value, abs=1e-12*exact.size)
    assert frechet_terms(torch.cat([a, a]), b).route.startswith("qr and rows")


# zero, sign, and what does not change the value

@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("n, m, d", SHAPES)
def test_zero_on_equal_sets_and_never_negative(n, m, d, power):
    a, _ = sets(n, m, d, power)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    for x in (a, a.float(), a.half(), 1000 + a.float(), 1e6 + a):
        assert frechet_distance(x, x.clone()) == 0
        assert frechet_distance(x, x.double()) == 0
        for route in ("auto", "svd", "roots"): assert frechet_distance(x, x[order], route=route) == 0
        assert frechet_distance(stats(x), stats(x[order])) == 0
        assert frechet_distance(x, stats(x)) == 0
    assert frechet_distance(a, a + 1e-6) == pytest.approx(d*1e-12, rel=1e-6)
    assert frechet_distance(torch.cat([a, a]), a, weights_b=torch.full((n,), 2)) == 0


case = st.tuples(st.integers(2, 40), st.integers(2, 40), st.integers(1, 20), st.integers(0, 2), st.integers(0, 10**6))


def drawn(n, m, d, power, seed):
    g = torch.Generator().manual_seed(seed)
    scale = torch.arange(1, d + 1, dtype=F64)**-power
    return torch.randn(n, d, generator=g, dtype=F64)*scale, torch.randn(m, d, generator=g, dtype=F64)*scale + 0.2


@settings(max_examples=60)
@given(case)
def test_symmetric_nonnegative_and_unchanged_by_order_rotation_and_offset(case):
    a, b = drawn(*case)
    value, near = frechet_distance(a, b), dict(abs=1e-12*size(a, b), rel=1e-9)
    turn, order = rotation(a.shape[1], case[-1]), torch.randperm(len(a), generator=torch.Generator().manual_seed(case[-1]))
    assert value >= 0
    assert frechet_distance(b, a) == pytest.approx(value, **near)
    assert frechet_distance(a[order], b) == pytest.approx(value, **near)
    assert frechet_distance(a @ turn, b @ turn) == pytest.approx(value, **near)
    assert frechet_distance(a + 3, b + 3) == pytest.approx(value, **near)
    assert frechet_distance(7*a, 7*b) == pytest.approx(49*value, rel=1e-9, abs=49*near["abs"])


@settings(max_examples=40)
@given(case, st.lists(st.integers(0, 256).map(lambda k: k/64), min_size=2, max_size=5)) # apart by more than rounding, or equal
def test_grows_with_an_added_shift(case, shifts):
    a, b = drawn(*case)
    b = b - b.mean(0) + a.mean(0)
    values = [frechet_distance(a, b + s) for s in sorted(shifts)]
    assert all(x <= y for x, y in zip(values, values[1:]))
    assert values[-1] == pytest.approx(frechet_distance(a, b) + a.shape[1]*max(shifts)**2, rel=1e-9, abs=1e-9)


@settings(max_examples=40)
@given(case)
def test_a_weight_is_a_number_of_copies(case):
    a, b = drawn(*case)
    r = np.random.default_rng(case[-1])
    counts = torch.from_numpy(r.integers(0, 4, len(a)))
    if counts.sum() < 2: return
    found, exact = frechet_distance(a, b, counts), frechet_distance(a.repeat_interleave(counts, 0), b)
    assert found == pytest.approx(exact, rel=1e-10, abs=1e-11*size(a, b))
    assert frechet_distance(b, a, None, counts) == pytest.approx(exact, rel=1e-10, abs=1e-11*size(a, b))


@settings(max_examples=30)
@given(case, st.integers(1, 39))
def test_batches_do_not_matter_to_statistics(case, cut):
    a, b = drawn(*case)
    in_two = GaussianStats().update(a[:cut]).update(a[cut:]) if cut < len(a) else stats(a)
    merged = GaussianStats.merged([stats(b[:1]), stats(b[1:])])
    terms = frechet_terms(in_two, merged)
    assert abs(terms.value - frechet_distance(a, b)) <= terms.error


def test_a_constant_feature_costs_nothing():
    a, b = sets(60, 50, 12, 1)
    value = frechet_distance(a, b)
    for fill in (0., 3.7, -1e4):
        p, q = (torch.cat([x, torch.full((len(x), 1), fill, dtype=F64)], 1) for x in (a, b))
        for x, y in ((p, q), (stats(p), stats(q))): assert frechet_distance(x, y) == pytest.approx(value, rel=1e-9)
    constant = torch.full((5, 3), 2.)
    assert frechet_distance(constant, constant) == 0 and frechet_distance(constant, constant + 1) == 3
    assert frechet_distance(torch.randn(5, 3), torch.full((2, 3), 7.)) > 0


def test_far_from_the_origin_in_float32():
    a, b = sets(2000, 2000, 8, 0)
    assert frechet_distance(a.float() + 1000, b.float() + 1000) == pytest.approx(frechet_distance(a, b), rel=1e-3)


@pytest.mark.parametrize("n, m, d, power", [(300, 200, 16, 0), (300, 200, 16, 2), (20, 30, 64, 1), (700, 600, 5, 1)])
def test_replicates_equal_the_distance(n, m, d, power):
    a, b = sets(n, m, d, power)
    r = np.random.default_rng(0)
    u, v = (torch.from_numpy(r.multinomial(k, np.full(k, 1/k), size=5)) for k in (n, m))
    one_by_one = torch.tensor([frechet_distance(a, b, x, y) for x, y in zip(u, v)], dtype=F64)
    assert torch.allclose(frechet_replicates(a, b, u, v), one_by_one, atol=1e-6, rtol=1e-6)
    assert torch.allclose(frechet_replicates(a, b, u, v, at_once=2), one_by_one, atol=1e-6, rtol=1e-6)


# what is refused

def test_what_is_refused():
    a, b = sets(20, 20, 4, 0)
    bad = b.clone(); bad[3] = torch.nan; bad[7, 1] = torch.inf
    for call, words in ((lambda: frechet_distance(a, b[:, :3]), "different widths: 4 against 3"), (lambda: frechet_distance(a, b[:1]), "two samples"),
                        (lambda: frechet_distance(a, b[:0]), "two samples"), (lambda: frechet_distance(a, bad), "2 of 20 rows: 3, 7"),
                        (lambda: frechet_distance(a, b[0]), r"\(N, d\)"), (lambda: frechet_distance(a, b, route="sqrtm"), "unknown route"),
                        (lambda: frechet_distance(a, b, torch.ones(3)), "one weight per sample"), (lambda: frechet_distance(a, b, -torch.ones(20)), "not negative"),
                        (lambda: frechet_distance(stats(a), b, torch.ones(20)), "cannot be weighted"), (lambda: frechet_distance(stats(a), b, route="svd"), "no samples"),
                        (lambda: frechet_distance(a, torch.cat([b[:, :3], b[:, :1]], 1), route="cholesky"), "not positive definite"),
                        (lambda: frechet_distance(1e200*a, b), "overflow"), (lambda: frechet_distance(stats(a), stats(b[:, :3])), "different widths")):
        with pytest.raises(InputError, match=words): call()
    assert frechet_distance(a, bad, weights_b=torch.isfinite(bad).all(1)) == pytest.approx(frechet_distance(a, bad[torch.isfinite(bad).all(1)]), rel=1e-12)


def test_statistics_of_two_encoders_are_refused():
    x = sets(30, 30, 4, 0)[0]
    def signed(**more): return GaussianStats(signature=Signature.of(**{"encoder": "embedded", "layer": "late", **more})).update(x)
    with pytest.raises(InputError, match="layer is late against early"): frechet_distance(signed(), signed(layer="early"))
    with pytest.raises(InputError, match="encoder is embedded against dinov2"): frechet_distance(signed(), signed(encoder="dinov2"))
    with pytest.raises(InputError, match="resize is None against 64"): frechet_distance(signed(), signed(resize=64))
    for other in (signed(), signed(n=7), signed(version="0.0.1"), stats(x), x): assert frechet_distance(signed(), other) == 0


def test_numpy_arrays_are_features_too():
    a, b = sets(30, 20, 6, 1)
    assert frechet_distance(a.numpy(), b.numpy()) == frechet_distance(a, b)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("n, d", [(300, 64), (40, 64), (900, 1000)])
def test_a_gpu_agrees_and_keeps_the_work(n, d):
    a, b = sets(n, n, d, 1)
    value = frechet_distance(a, b)
    assert frechet_distance(a.cuda(), b.cuda()) == pytest.approx(value, rel=1e-8)
    assert frechet_distance(stats(a.cuda()), stats(b.cuda())) == pytest.approx(frechet_distance(stats(a), stats(b)), rel=1e-6)
    assert frechet.open_sample(a.cuda()).factor("rows").rows.is_cuda
