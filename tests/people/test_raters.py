"Raters: ceilings without bias, agreement among raters, and metrics of known worth."
import numpy as np
import pytest

from invariant_metrics.core import InputError, rng
from invariant_metrics.people.raters import _agreeing_pairs, _vote_ceiling, _variance_components
from invariant_metrics.people.raters import _held_out_agreement
from invariant_metrics.people.raters import krippendorff, _noise_ceiling, _rater_curve
from invariant_metrics.people.raters import rating_matrix, _worth_raters

NAN = np.nan


def spearman_brown(r: float, n: float) -> float: return n*r/(1 + (n - 1)*r) # reliability of the mean of n raters


PUBLISHED = np.array([[1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN], [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
                      [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN], [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN]]).T  # Krippendorff 2011


def panel(seed, items=300, raters=4, noise=1.0):
    g = rng(seed, "test panel")
    truth = g.normal(size=items)
    return truth, truth[:, None] + g.normal(0, noise, (items, raters))


def metric_of(truth, raters, seed, noise=1.0):
    "What the mean of so many raters would say."
    return truth + rng(seed, "test metric").normal(0, noise/raters**0.5, len(truth))


def within(values, truth, what, bias=0.0):
    margin = 3*np.std(values)/len(values)**0.5 + bias
    assert abs(np.mean(values) - truth) <= margin, f"{what}: {np.mean(values):.4f} for {truth:.4f}, margin {margin:.4f}"


@pytest.mark.parametrize("m", [2, 3, 5])
def test_rater_ceiling_is_unbiased(m):
    "Shares that differ between items; the plug-in is above the truth by the mean of 2g(1−g)/m, .680 for .600 at five raters."
    g = rng(m).beta(2, 1, 200_000)
    votes, truth = rng(m, "votes").binomial(m, g), (g**2 + (1 - g)**2).mean()
    within(_agreeing_pairs(votes, m), truth, f"{m} raters")
    plugged = (votes/m)**2 + (1 - votes/m)**2
    within(plugged, truth + (2*g*(1 - g)/m).mean(), "plug-in")
    share = (1 + 0.2**0.5)/2
    votes = rng(5, "share").binomial(5, share, 400_000)
    within((votes/5)**2 + (1 - votes/5)**2, 0.68, "plug-in at .6")
    within(_agreeing_pairs(votes, 5), 0.6, "unbiased at .6")


def test_rater_ceiling_by_hand_and_its_interval():
    "3 of 5: three agreeing pairs and one of ten. Clusters of equal items widen the interval."
    assert _agreeing_pairs([3], 5)[0] == 0.4
    g = rng(1).random(50)
    votes = rng(2).binomial(4, g)
    one, ten = _vote_ceiling(votes, 4), _vote_ceiling(np.repeat(votes, 10), 4, clusters=np.repeat(np.arange(50), 10))
    loose = _vote_ceiling(np.repeat(votes, 10), 4)
    assert np.isclose(one.value, ten.value) and np.isclose(one.ci.low, ten.ci.low, atol=0.02)
    assert loose.ci.high - loose.ci.low < 0.5*(ten.ci.high - ten.ci.low)
    assert "raters:4" in str(one.signature) and "clusters:50" in str(ten.signature)


def test_ceiling_interval_covers():
    "E[g² + (1−g)²] = 1 − 2·2/3 + 2·1/2 = 2/3 for g from Beta(2, 1)."
    inside = []
    for seed in range(200):
        ci = _vote_ceiling(rng(seed, "v").binomial(3, rng(seed).beta(2, 1, 80)), 3, reps=200).ci
        inside.append(ci.low <= 2/3 <= ci.high)
    margin = 2*(0.95*0.05/200)**0.5
    assert np.mean(inside) >= 0.94 - margin, f"covers in {np.mean(inside):.3f}; .94 - margin {margin:.3f}"


def test_noise_ceiling_is_unbiased_for_unequal_panels():
    "One to four ratings of an item; the truth's correlation with a panel's mean is what is said."
    said, seen = [], []
    for seed in range(60):
        truth, X = panel(seed)
        X[rng(seed, "holes").random(X.shape) < 0.4] = NAN
        kept = np.isfinite(X).any(1)
        said.append([v.value for v in _noise_ceiling(X[kept], reps=5).values()])
        seen.append(np.corrcoef(truth[kept], np.nanmean(X[kept], 1))[0, 1])
    within(np.array(said)[:, 0], 0.5, "one rater with another", 0.003)
    within(np.array(said)[:, 2] - seen, 0, "truth with the panel", 0.004)


def test_components_are_those_of_the_analysis_of_variance():
    "Balanced: (MSB − MSW)/m and MSW."
    _, X = panel(3, 40, 3)
    X = X + [0, 2, 5]
    mean = X.mean(1, keepdims=True)
    within_, between = ((X - mean)**2).sum()/80, 3*mean.var(ddof=1)
    signal, noise, share = (v[0] for v in _variance_components(X))
    assert np.isclose(noise, within_) and np.isclose(signal, (between - within_)/3) and np.isclose(share, 1/3)
    twice = np.ones((1, 40)); twice[0, 5] = 2
    np.testing.assert_allclose([v[0] for v in _variance_components(X, twice)], [v[0] for v in _variance_components(np.vstack([X, X[5:6]]))])


def test_spearman_brown_by_hand():
    assert np.isclose(spearman_brown(0.5, 2), 2/3) and np.isclose(spearman_brown(spearman_brown(0.3, 2), 3), spearman_brown(0.3, 6))


def test_leave_one_out_has_no_rater_in_his_own_mean():
    "Raters without a truth agree with nobody; a mean that held them would correlate by 1/√m."
    curve = np.mean([_rater_curve(rng(seed).normal(size=(300, 4)), turns=4)[:, 0] for seed in range(40)], 0)
    assert np.abs(curve).max() < 0.02
    truth, X = panel(5, 3000)
    np.testing.assert_allclose(_rater_curve(X, turns=4)[:, 0], [(0.5*spearman_brown(0.5, n))**0.5 for n in (1, 2, 3)], atol=0.03)


@pytest.mark.parametrize("raters", [0.5, 1, 3])
def test_a_metric_of_so_many_raters_is_worth_so_many(raters):
    "Pearson: recovered in the median, and the interval holds it in at least 90 of 100 worlds within Monte-Carlo error."
    found = []
    for seed in range(100):
        truth, X = panel(seed)
        found.append(_worth_raters(metric_of(truth, raters, seed), X, reps=150))
    middle, inside = np.median([f.raters for f in found]), np.mean([f.ci.low <= raters <= f.ci.high for f in found])
    assert abs(middle/raters - 1) < 0.08, f"median {middle:.3f} for {raters}"
    assert inside >= 0.93 - 2*(0.95*0.05/100)**0.5, f"interval holds {raters} in {inside:.2f} of 100"


@pytest.mark.parametrize("statistic", ["tau_b", "spearman"])
def test_worth_by_rank_statistics(statistic):
    "Two raters' worth, read off the curve of held-out raters; the truth itself is above its end."
    found = [_worth_raters(metric_of(truth, 2, seed), X, statistic, turns=6, reps=4).raters for seed in range(12) for truth, X in [panel(seed, 400, 6)]]
    assert 1.6 < np.median(found) < 2.5, np.median(found)
    truth, X = panel(1, 400, 4)
    sure = _worth_raters(truth, X, statistic, turns=4, reps=20)
    assert sure.raters == np.inf and "more than 3" in str(sure)


def test_a_metric_that_points_the_wrong_way_is_worth_nobody():
    truth, X = panel(2)
    assert _worth_raters(-truth, X, reps=20).raters == 0
    assert _worth_raters(-truth, X, "tau_b", reps=20, turns=2).raters == 0


def binary(seed, items=12, raters=3):
    return (panel(seed, items, raters)[1] > 0.8).astype(float)


def test_draws_without_a_value_are_left_out_and_no_metric_gains_by_them():
    "The metric is the opposite of the truth: no draw makes it worth all raters, and those without a value are counted."
    seen = 0
    for seed in range(30):
        X = binary(seed)
        if (np.ptp(X, 0) == 0).any(): continue
        y = -X.mean(1) + 0.01*rng(seed).normal(size=len(X))
        try: found = _worth_raters(y, X, "tau_b", turns=4, reps=200)
        except InputError as error:
            assert "undefined" in str(error) or "more than chance" in str(error)
            continue
        assert found.raters == 0 and found.ci.high < np.inf, f"{seed}: {found}"
        seen += any("of 200 draws tau_b is undefined; they are not used" in n for n in found.notes)
    assert seen > 5
    truth, X = panel(1, 400, 4)
    assert not _worth_raters(truth, X, "tau_b", turns=2, reps=10).notes and not _held_out_agreement(X, "tau_b", turns=2, reps=10).notes


def test_raters_without_a_truth_are_no_measure_of_a_metric():
    "Scores that contradict one another: every metric would be above the end of a curve that never rises."
    X = np.array([[0.0, 1], [1, 0], [2, 3], [3, 2], [0, 3], [3, 0], [1, 2], [2, 1]])
    for statistic in ("pearson", "tau_b"):
        with pytest.raises(InputError, match="do not agree more than chance"): _worth_raters(np.arange(8), np.hstack([X, 3 - X])[:, [0, 2]], statistic, reps=20)


def test_one_rater_with_the_others():
    truth, X = panel(5, 3000)
    found = _held_out_agreement(X, turns=4, reps=20)
    assert np.isclose(found.value, _rater_curve(X, turns=4)[-1, 0]) and found.ci.low < (0.5*spearman_brown(0.5, 3))**0.5 < found.ci.high
    same = np.ones((12, 3)); same[0] = 0, 1, 1
    with pytest.raises(InputError, match="undefined"): _held_out_agreement(same, "tau_b", turns=4, reps=20)
    with pytest.raises(InputError, match="undefined"): _worth_raters(np.arange(12), same, "tau_b", turns=4, reps=20)


def test_krippendorff_published_example():
    "Krippendorff 2011, four observers, missing data: .743 nominal, .815 ordinal, .849 interval."
    for scale, value in (("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)):
        found = krippendorff(PUBLISHED, scale, reps=100)
        assert abs(found.value - value) < 0.0006 and found.ci.low < value < found.ci.high
    assert "1 items with one rating do not count" in found.notes


def test_krippendorff_extremes_and_chance():
    same = np.repeat(rng(0).integers(0, 5, (50, 1)), 3, 1)
    assert krippendorff(same, "ordinal", reps=20).value == 1
    within([krippendorff(rng(s).integers(0, 4, (60, 3)), "interval", reps=5).value for s in range(80)], 0, "random ratings", 0.003)


def test_rating_matrix():
    "Named raters have a column each; nameless ones take turns."
    X, items = rating_matrix(["a", "a", "b"], ["r", "s", "s"], [1, 2, 3])
    np.testing.assert_array_equal(X, [[1, 2], [NAN, 3]])
    assert list(items) == ["a", "b"]
    assert rating_matrix(["a", "a", "b", "b"], [""]*4, [1, 2, 3, 4])[0].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match="repeat an item and rater"): rating_matrix(["a", "a"], ["r", "r"], [1, 2])


def test_bad_input_is_said():
    truth, X = panel(0, 30, 3)
    for mistake, words in ((lambda: _agreeing_pairs([1], 1), "two raters"), (lambda: _agreeing_pairs([4], 3), "whole numbers"),
                           (lambda: _worth_raters(truth[:5], X), "one for each"), (lambda: _worth_raters(np.ones(30), X), "replaces nobody"),
                           (lambda: _worth_raters(truth, X, "tau"), "unknown statistic"), (lambda: _noise_ceiling(np.ones((30, 3))), "nothing to agree on"),
                           (lambda: krippendorff(X, "ratio"), "unknown scale"), (lambda: _noise_ceiling(X[:, :1]), "two ratings"),
                           (lambda: _rater_curve(np.where(np.arange(30)[:, None] > 3, X, [[NAN, NAN, 1]])), "hold out"), (lambda: _vote_ceiling([1, 1], 2), "too few")):
        with pytest.raises(InputError, match=words): mistake()
