"The interval of the Fréchet distance against derivatives, closed forms, simulated spreads and known distances."
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from invariant_metrics.core import InputError, Signature, torch_rng
from invariant_metrics.metrics.metric import Rows, get_metric
from invariant_metrics.metrics.frechet import frechet_distance
from invariant_metrics.metrics.frechet_interval import _deal_parts, frechet_estimate, _frechet_from_stats
from invariant_metrics.metrics.frechet_interval import _tail, _frechet_infinite, frechet_influence
from invariant_metrics.metrics.frechet_interval import _halving_signs, small_sample_note
from invariant_metrics.metrics.frechet_interval import _transport_factors
from invariant_metrics.metrics.gaussian import GaussianStats
from invariant_metrics.scoring.inference import score_rows
from invariant_metrics.metrics.estimate import standard_error


def draw(n, m, d, seed, decay=0.0, scale=1.3, shift=0.2):
    g = torch_rng(seed, "test interval", n, m, d)
    root = torch.arange(1, d + 1, dtype=torch.float64)**(-decay/2)
    a, b = (torch.randn(k, d, generator=g, dtype=torch.float64)*root for k in (n, m))
    return a, scale*b + shift*root


def slopes(a, b, step=1e-4):
    "n times the derivative of the weighted distance by each weight of the first set, less the mean."
    up, down = (1 + s*torch.eye(len(a), dtype=torch.float64) for s in (step, -step))
    found = [frechet_distance(a, b, u) - frechet_distance(a, b, v) for u, v in zip(up, down)]
    found = torch.tensor(found, dtype=torch.float64)*len(a)/(2*step)
    return found - found.mean()


def dense_influence(a, b):
    "The definition, with matrix roots by eigenvectors."
    def root(s, power):
        w, v = torch.linalg.eigh(s)
        return (v*w**power) @ v.T
    (m, s), (k, t) = ((z.mean(0), torch.cov(z.T)) for z in (a, b))
    out = []
    for z, mean, gap, one, two in ((a, m, m - k, s, t), (b, k, k - m, t, s)):
        c, half, inverse = z - mean, root(one, 0.5), root(one, -0.5)
        rest = torch.eye(len(s), dtype=torch.float64) - inverse @ root(half @ two @ half, 0.5) @ inverse
        psi = 2*c @ gap + ((c @ rest)*c).sum(1) - (rest @ one).trace()
        out.append(psi - psi.mean())
    return out


@pytest.mark.parametrize("n, m, d", [(50, 40, 4), (40, 60, 39), (15, 20, 30), (50, 12, 20), (12, 50, 20)])
@pytest.mark.parametrize("decay", [0, 1, 2])
def test_influence_is_the_derivative(n, m, d, decay):
    a, b = draw(n, m, d, 1, decay)
    for psi, x, y in zip(frechet_influence(a, b), (a, b), (b, a)):
        linear = 2*(x - x.mean(0)) @ (x.mean(0) - y.mean(0))
        exact = linear + (psi - linear)*len(x)/(len(x) - 1)      # covariances over n - 1
        assert torch.allclose(slopes(x, y), exact, atol=1e-5*float(exact.abs().max()))
        assert abs(float(psi.mean())) < 1e-12


@pytest.mark.parametrize("decay", [0, 1, 2])
def test_influence_is_the_dense_formula(decay):
    a, b = draw(200, 150, 12, 2, decay)
    for ours, theirs in zip(frechet_influence(a, b), dense_influence(a, b)): assert torch.allclose(ours, theirs, atol=1e-8)


def test_influence_along_one_axis_by_hand():
    g = torch_rng(3, "axis")
    a, b = 1.5*torch.randn(30, 1, generator=g, dtype=torch.float64), torch.randn(20, 1, generator=g, dtype=torch.float64) + 2
    (m, s), (k, t) = ((float(z.mean()), float(z.std())) for z in (a, b))
    assert frechet_distance(a, b) == pytest.approx((m - k)**2 + (s - t)**2, abs=1e-12)
    for psi, z, gap, ratio in zip(frechet_influence(a, b), (a - m, b - k), (m - k, k - m), (t/s, s/t)):
        expected = (2*gap*z + (1 - ratio)*z.square())[:, 0]
        assert torch.allclose(psi, expected - expected.mean(), atol=1e-10)


def test_both_routes_meet_where_samples_and_features_are_equally_many():
    a, b = draw(41, 41, 40, 4, 1)
    wide = frechet_influence(torch.cat([a, torch.zeros(41, 5)], 1), torch.cat([b, torch.zeros(41, 5)], 1)) # 45 features: by the Gram matrix
    for x, y in zip(frechet_influence(a, b), wide): assert torch.allclose(x, y, rtol=1e-5, atol=1e-5)


def test_transport_factors_transport():
    a, b = draw(100, 100, 8, 5, 1)
    one, two = torch.cov(a.T), torch.cov(b.T)
    there, back, sigma = _transport_factors(one, two)
    t, back = there @ there.T, back @ back.T
    assert torch.allclose(t @ one @ t, two, atol=1e-9) and torch.allclose(back @ two @ back, one, atol=1e-9)
    assert torch.allclose(t @ back, torch.eye(8, dtype=torch.float64), atol=1e-8)
    assert float(sigma.sum()) == pytest.approx(float(torch.linalg.eigvals(one @ two).real.sqrt().sum()), rel=1e-9)


def test_wide_features_in_float32_change_no_standard_error():
    "Above 512 features the quadratic forms are taken in float32."
    a, b = draw(700, 700, 520, 6, 1)
    for ours, theirs in zip(frechet_influence(a, b), dense_influence(a, b)):
        assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=1e-4)


@pytest.mark.parametrize("parts", [2, 4, 8, 16])
def test_halving_is_balanced(parts):
    signs = _halving_signs(parts)
    assert signs.shape == (parts - 1, parts) and (signs.sum(1) == 0).all()
    together = signs.T @ signs                                   # any two parts: together in half of the splits, less one
    assert (together - (parts*torch.eye(parts) - 1)).abs().max() == 0


@pytest.mark.parametrize("parts", [0, 1, 3, 6])
def test_parts_are_a_power_of_two(parts):
    with pytest.raises(InputError, match="power of two"): _halving_signs(parts)


@settings(max_examples=25)
@given(st.integers(8, 40), st.integers(0, 1000), st.sampled_from([2, 4, 8]))
def test_dealing_is_even_and_blind_to_order(n, seed, parts):
    x = torch.randn(n, 3, generator=torch_rng(seed, "deal"))
    part, order = _deal_parts(x, parts, np.random.default_rng(seed)), torch.randperm(n, generator=torch_rng(seed, "order"))
    counts = part.bincount(minlength=parts)
    assert counts.max() - counts.min() <= 1
    assert torch.equal(_deal_parts(x[order], parts, np.random.default_rng(seed)), part[order])


@settings(max_examples=15)
@given(st.integers(8, 30), st.integers(2, 12), st.integers(0, 100), st.booleans())
def test_estimate_is_a_function_of_the_sets(n, d, seed, matched):
    "Another order, another rotation, another origin: the same numbers."
    a, b = draw(n, n, d, seed)
    turn = torch.linalg.qr(torch.randn(d, d, generator=torch_rng(seed, "turn"), dtype=torch.float64))[0]
    order = torch.randperm(n, generator=torch_rng(seed, "order"))
    first, again = (frechet_estimate(*x, matched=matched, seed=1) for x in ((a, b), (a[order], b[order])))
    assert again.corrected == pytest.approx(first.corrected, rel=1e-6, abs=1e-6)
    assert standard_error(again, matched)[0] == pytest.approx(standard_error(first, matched)[0], rel=1e-6)
    turned = frechet_influence(a @ turn + 3, b @ turn + 3)
    for x, y in zip(turned, frechet_influence(a, b)): assert torch.allclose(x, y, atol=1e-6*float(y.abs().max()))


@pytest.mark.parametrize("n, d", [(40, 4), (20, 30)])
def test_correction_is_twice_whole_less_halves(n, d):
    "With two parts: 2 D(n) - the mean of the two halves, recomputed from the rows."
    a, b = draw(n, n, d, 7)
    estimate = frechet_estimate(a, b, matched=True, seed=3, parts=2)
    from invariant_metrics.core import rng
    part = _deal_parts(a, 2, rng(3, "halves"))
    halves = [frechet_distance(a[part == k], b[part == k]) for k in (0, 1)]
    assert estimate.value == frechet_distance(a, b)
    assert estimate.corrected == pytest.approx(2*estimate.value - sum(halves)/2, abs=1e-8)


def simulated(pairs, matched=False, clusters=None, **options):
    found = [frechet_estimate(a, b, matched=matched, clusters=clusters, seed=i, parts=8, **options) for i, (a, b) in enumerate(pairs)]
    se = np.array([standard_error(e, matched, clusters)[0] for e in found])
    return np.array([e.value for e in found]), np.array([e.corrected for e in found]), se


def test_bias_is_gone_error_is_the_spread_and_intervals_cover():
    truth = 8*(0.3**2 + 0.2**2)
    value, corrected, se = simulated(draw(120, 150, 8, i) for i in range(300))
    spread = corrected.std()
    assert value.mean() - truth > 1.2*spread                                        # what is removed is there
    assert abs(corrected.mean() - truth) < 4*spread/300**0.5
    assert 0.95 < se.mean()/spread < 1.25
    held = (abs(corrected - truth) < 1.96*se).mean()
    assert 0.90 <= held and held > (abs(value - truth) < 1.96*se).mean() + 0.2


def matched_pair(i):
    a, b = draw(100, 100, 6, i, scale=1.0, shift=0.0)
    return a, 1.3*(0.8*a + 0.6*b) + 0.2


def test_matched_sets_have_a_smaller_error_and_it_is_right():
    truth = 6*(0.3**2 + 0.2**2)
    _, corrected, se = simulated((matched_pair(i) for i in range(250)), matched=True)
    _, _, independent = simulated(matched_pair(i) for i in range(5))
    assert abs(corrected.mean() - truth) < 4*corrected.std()/250**0.5
    assert 0.9 < se.mean()/corrected.std() < 1.2 and se[:5].mean() < 0.9*independent.mean()


def test_clusters_widen_and_are_right():
    "Groups of four that share three quarters of their variance."
    labels, truth = np.arange(160)//4, 5*(0.3**2 + 0.2**2)
    def pair(i):
        (a, b), (c, e) = draw(160, 160, 5, i, scale=1, shift=0), draw(40, 40, 5, i + 5000, scale=1, shift=0)
        return 0.5*a + 0.75**0.5*c.repeat_interleave(4, 0), 1.3*(0.5*b + 0.75**0.5*e.repeat_interleave(4, 0)) + 0.2
    _, corrected, se = simulated((pair(i) for i in range(250)), matched=True, clusters=labels)
    _, _, naive = simulated((pair(i) for i in range(5)), matched=True)
    assert abs(corrected.mean() - truth) < 4*corrected.std()/250**0.5
    assert 0.85 < se.mean()/corrected.std() < 1.3 and naive.mean() < 0.75*se[:5].mean()


def test_every_row_twice_is_no_news():
    a, b = draw(90, 90, 6, 8)
    labels = np.tile(np.arange(90), 2)
    once, twice = frechet_estimate(a, b, matched=True), frechet_estimate(a.repeat(2, 1), b.repeat(2, 1), matched=True, clusters=labels)
    assert standard_error(twice, True, labels)[0] == pytest.approx(standard_error(once, True)[0], rel=0.02)
    assert standard_error(twice, True)[0] < 0.75*standard_error(once, True)[0]
    gap = abs(once.value - once.corrected)
    assert twice.corrected == pytest.approx(once.corrected, abs=0.25*gap)


def test_statistics_with_parts_say_what_rows_say():
    a, b = draw(3000, 2500, 10, 9, 1)
    rows, ratios = frechet_estimate(a, b), []
    for seed in range(20):
        stats = [GaussianStats(parts=8, seed=2*seed + k).update(x) for k, x in enumerate((a, b))]
        found = _frechet_from_stats(*stats)
        assert found.value == pytest.approx(rows.value, rel=1e-9)
        assert found.corrected == pytest.approx(rows.corrected, abs=0.25*standard_error(rows)[0])
        assert 7 <= found.df <= 14
        ratios.append((found.se/standard_error(rows)[0])**2)
    assert 0.75 < np.mean(ratios) < 1.25                          # the variance from eight parts is unbiased


def test_statistics_without_samples_have_no_interval(tmp_path):
    a, b = draw(100, 100, 4, 10)
    np.savez(tmp_path/"mu_sigma.npz", mu=a.mean(0).numpy(), sigma=torch.cov(a.T).numpy())
    file, plain, parts = GaussianStats.load(tmp_path/"mu_sigma.npz"), GaussianStats().update(a), GaussianStats(parts=8).update(b)
    for one, word in ((file, "mu/sigma"), (plain, "parts=8"), (GaussianStats(parts=6).update(a), "power of two")):
        found = _frechet_from_stats(one, parts)
        assert found.value == pytest.approx(frechet_distance(a, b), rel=1e-8)
        assert found.corrected is None and found.se is None and found.pred is None
        assert any(n.startswith("no interval: ") and word in n for n in found.notes)


def test_notes():
    def notes(n, d, decay=0.0, **how): return " ".join(frechet_estimate(*draw(n, n, d, 11, decay, **how)).notes)
    assert "n = 60 is small for d = 64" in notes(60, 64)
    assert "small" not in notes(140, 64) and "small" not in notes(300, 64, 2)
    assert "small for a spectrum this steep" in notes(100, 64, 3)
    harmonic = torch.arange(1, 65)**-1.0                          # root width 46
    assert "may not cover" in small_sample_note(harmonic, 90, 64) and "may not cover" in small_sample_note(harmonic, 127, 64)
    steep = torch.arange(1, 257)**-1.8                            # root width 34
    assert "may not cover" in small_sample_note(steep, 330, 256) and "compare corrected ones" in small_sample_note(steep, 400, 256)
    assert small_sample_note(harmonic, 128, 64) is None
    a, b = draw(100, 100, 5, 12)
    flat = torch.cat([a, torch.zeros(100, 2), torch.ones(100, 1)], 1), torch.cat([b, torch.zeros(100, 2), b[:, :1]], 1)
    found = frechet_estimate(*flat)
    assert any("2 of 8 features are constant in both sets" in n for n in found.notes)
    assert any("1 of 8 features are constant in one set only" in n for n in found.notes)
    assert np.isfinite(found.corrected) and torch.isfinite(found.pred).all() and torch.isfinite(found.target).all()
    assert any("permutation_test" in n for n in frechet_estimate(*draw(300, 300, 4, 13, scale=1, shift=0)).notes)
    assert not any("permutation_test" in n for n in frechet_estimate(*draw(300, 300, 4, 13, shift=1)).notes)


def test_heavy_tails_count():
    assert _tail(torch.ones(2)) == 1 and _tail(torch.zeros(4)) == 1
    g = torch_rng(14, "tails")
    x = torch.randn(4000, 20, generator=g)
    assert _tail((x - x.mean(0)).double().square().sum(1)) == pytest.approx(1 + 2/20, rel=0.05)
    sigma = torch.ones(32)
    assert small_sample_note(sigma, 128, 32, 1.1) is None and "tails count" in small_sample_note(sigma, 128, 32, 3.2)


def test_identical_sets():
    a, _ = draw(50, 50, 6, 15)
    found = frechet_estimate(a, a, matched=True)
    assert (found.value, found.corrected) == (0.0, 0.0) and standard_error(found, True)[0] < 1e-10
    assert any("same rows" in n for n in found.notes)


def test_the_same_items_have_no_interval_but_when_matched():
    "Neither in another order, nor unmatched: halves of unmatched sets differ where the sets do not."
    z, order = torch.randn(200, 8, generator=torch_rng(21, "same")), torch.randperm(200, generator=torch_rng(21, "order"))
    fd, infinite = (get_metric(name, encoder="mean-color") for name in ("fd", "fd-inf"))
    for other, matched in ((z[order], False), (z[order], True), (z.clone(), False)):
        found = frechet_estimate(z, other, matched=matched)
        assert found.value == 0 and found.corrected is None and found.pred is None and found.se is None
        assert found.notes[-1].startswith("no interval: means and covariances agree")
        score = score_rows(fd, Rows(z, other, matched=matched))
        assert (score.value, score.corrected, score.ci) == (0.0, None, None) and score.notes == found.notes
    for other, matched in ((z[order], False), (z, True)): assert score_rows(infinite, Rows(z, other, matched=matched)).ci is None
    exact = score_rows(fd, Rows(z, z.clone(), matched=True))
    assert (exact.value, exact.corrected) == (0.0, 0.0) and exact.ci.high - exact.ci.low < 1e-9
    streams = [GaussianStats(parts=8, seed=k).update(x) for k, x in enumerate((z, z[order]))]
    assert _frechet_from_stats(*streams).se is None and "do both sets hold the same items" in _frechet_from_stats(*streams).notes[-1]


@pytest.mark.parametrize("noise", [1e-6, 1e-4, 1e-2])
def test_near_copies_are_told(noise):
    "A corrected value where no distance can be says that the sets are not independent."
    z, w = torch.randn(2, 200, 8, generator=torch_rng(22, "near"), dtype=torch.float64)
    near = z + noise*w
    found = frechet_estimate(z, near)
    assert 0 < found.value < 0.01 and found.corrected < -3*standard_error(found)[0]
    assert found.refused and found.notes[-1].endswith("far below 0, where no distance can be: the sets share items, are near copies, or are matched (matched=True)")
    assert not any("far below 0" in n for n in frechet_estimate(z, near, matched=True).notes)
    reordered = frechet_estimate(z, near[torch.randperm(200, generator=torch_rng(22, "order"))], matched=True)
    assert any("share items in another order" in n for n in reordered.notes)
    streams = [GaussianStats(parts=8, seed=k).update(x) for k, x in enumerate((z, near))]
    assert any("far below 0" in n for n in _frechet_from_stats(*streams).notes)


def test_independent_sets_of_one_distribution_are_not_told_so():
    for n, d, decay in ((40, 8, 0), (100, 8, 1), (60, 30, 0), (200, 16, 2)):
        found = [frechet_estimate(*draw(n, n, d, i, decay, scale=1, shift=0)) for i in range(20)]
        assert not any("far below 0" in note for e in found for note in e.notes) and all(e.pred is not None for e in found)


def test_statistics_of_two_encoders_are_refused():
    x = draw(40, 40, 3, 23)[0]
    one, two = (GaussianStats(8, signature=Signature.of(encoder="embedded", layer=layer)).update(x) for layer in ("late", "early"))
    with pytest.raises(InputError, match="layer is late against early"): _frechet_from_stats(one, two)


@pytest.mark.parametrize("convert", [lambda x: x.numpy(), lambda x: x.numpy().astype(np.int32), lambda x: x.long(), lambda x: x.half()])
def test_arrays_and_integers_are_features_too(convert):
    a, b = ((5*x).round() for x in draw(60, 50, 4, 24))
    p, q = convert(a), convert(b)
    found, wanted = frechet_estimate(p, q), frechet_estimate(a, b)
    assert (found.value, found.corrected) == (wanted.value, wanted.corrected) and torch.equal(found.pred, wanted.pred)
    assert _frechet_infinite(p, q) == _frechet_infinite(a, b)
    assert _frechet_infinite(p, q, np.arange(60) % 3) == _frechet_infinite(a, b, torch.arange(60) % 3)


@pytest.mark.parametrize("n", [2, 3])
def test_too_few_to_halve(n):
    a, b = draw(n, 20, 3, 16)
    found = frechet_estimate(a, b)
    assert found.value == frechet_distance(a, b) and found.corrected is None and found.pred is None
    assert any(f"no interval: four samples or clusters are needed to halve the sets, found {n}" in x for x in found.notes)
    with pytest.raises(InputError, match="four samples"): _frechet_infinite(a, b)


def test_bad_input():
    a, b = draw(20, 30, 3, 17)
    with pytest.raises(InputError, match="widths"): frechet_influence(a, b[:, :2])
    with pytest.raises(InputError, match="not finite"): frechet_estimate(a.index_fill(0, torch.tensor([1]), torch.inf), b)
    with pytest.raises(InputError, match="matched sets"): frechet_estimate(a, b, matched=True)
    with pytest.raises(InputError, match="cluster labels"): frechet_estimate(a, b, clusters=np.arange(5))
    with pytest.raises(InputError, match="whole numbers"): _frechet_infinite(a, b, torch.full((20,), 0.5))


def test_infinite_is_order_free_and_takes_multiplicities():
    a, b = draw(60, 80, 5, 18)
    order, counts = torch.randperm(60, generator=torch_rng(18, "order")), torch.arange(60) % 3
    assert _frechet_infinite(a[order], b) == pytest.approx(_frechet_infinite(a, b), abs=1e-9)
    assert _frechet_infinite(a, b, counts) == pytest.approx(_frechet_infinite(a.repeat_interleave(counts, 0), b), abs=1e-9)
    assert _frechet_infinite(a, b) < frechet_distance(a, b)


def test_registered_metrics():
    fd, infinite = get_metric("fd", encoder="mean-color"), get_metric("fd-inf", encoder="mean-color")
    assert fd.estimate is not None and fd.from_stats is not None and fd.encoder is not None
    a, b = draw(50, 50, 3, 20)
    found, other = fd.estimate(a, b, matched=False, clusters=None, seed=0), infinite.estimate(a, b, matched=False, clusters=None, seed=0)
    assert found.value == fd.compare(a, b) and other.value == infinite.compare(a, b)
    assert other.value == pytest.approx(found.corrected, abs=1e-12)


def test_the_rule_of_the_warning_on_wide_features():
    "Stored cells of 768 to 2048 features: none that is silent is shown to cover less than 90 %, and what covers nothing is flagged."
    import pandas as pd
    from pathlib import Path
    table = pd.read_csv(Path(__file__).parents[2]/"nbs"/"results"/"coverage_distances.csv")
    fd = table[table.metric == "fd"]
    silent = fd[fd.warned < 0.5]
    assert len(silent) >= 8 and (silent.most >= 0.9).all() and (fd[fd.most < 0.9].warned > 0.5).all()
    assert {768, 1024, 2048} <= set(fd.d) and {"t5", "log-normal", "relu", "mixture"} <= set(fd.law) and fd.n.max() == 50_000
    for name in ("kid", "cmmd"):
        found = table[table.metric == name]
        assert len(found) >= 20 and (found.most >= 0.9).all(), found[found.most < 0.9]


def test_few_directions_seen_in_few_samples_are_not_enough():
    "A mixture of classes with 500 samples: 146 directions are seen, more are there, and the interval covers nothing."
    g = torch_rng(0, "mixture")
    centers, scale = torch.randn(10, 512, generator=g), torch.arange(1, 513)**-0.5
    a, b = (scale*(centers[torch.randint(10, (400,), generator=g)] + torch.randn(400, 512, generator=g)) for _ in "ab")
    assert any("may not cover" in note for note in frechet_estimate(a, b).notes)
