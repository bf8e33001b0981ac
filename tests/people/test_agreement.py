"Tests between metrics: the closed forms, published p-values, and the error rates that were promised for each inference target."
import json
import math
import re
import sys
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from binomial import largest_count, not_above
from scipy import stats

from invariant_metrics.core import InputError, rng
from invariant_metrics.stats import bootstrap_weights
from invariant_metrics.people.score_table import UNITS, score_table
from invariant_metrics.people.draws import GENERALIZATIONS
from invariant_metrics.people.agreement import agreement, compare
from invariant_metrics.stats import benjamini_hochberg
from invariant_metrics.people.draws import draw_replicates, p_value, standard_errors
from invariant_metrics.people.score_table import replicate_statistic
from invariant_metrics.stats import holm
from invariant_metrics.people.agreement import _compact_letters
from invariant_metrics.people.statistics import AGREEMENTS, calibrated_accuracy
from invariant_metrics.metrics.metric import Rows, get_metric
from invariant_metrics.scoring.inference import _bootstrap_replicates
from real_data import data_path, lines

sys.path.insert(0, str(Path(__file__).parents[2]/"benchmarks"))
from exchange import swap_test, williams  # noqa: E402

SD = (.5, .5, 1, .5, .5, 1)  # people: system, item, cell; metric: system, item, cell
NULLS = [("items", "equal"), ("items", "different"), ("systems", "equal"), ("systems", "different"), ("both", "random")]


def alike(effect, drawn, kind, scale):
    "Fixed effects of metrics: one profile for all, or two that are as large and as unrelated to people's."
    if kind == "equal": return np.repeat(drawn[:1], len(drawn), 0)
    q = np.linalg.qr(np.stack([np.ones(len(effect)), effect, *drawn]).T)[0]
    return q[:, 2:].T*scale*len(effect)**0.5


def world(seed, target="both", kind="random", items=60, systems=12, metrics=2):
    "Equally good metrics on a complete table; what the target does not draw again is the same for every seed."
    g, still, (sa, sb, sc, su, sv, sw) = rng(seed, "null", target, kind), rng(0, "still"), SD
    a, b = g.normal(0, sa, systems), g.normal(0, sb, items)
    u, v = g.normal(0, su, (metrics, systems)), g.normal(0, sv, (metrics, items))
    if target == "items":
        a = still.normal(0, sa, systems)
        u = alike(a, still.normal(0, su, (metrics, systems)), kind, su)
    if target == "systems":
        b = still.normal(0, sb, items)
        v = alike(b, still.normal(0, sv, (metrics, items)), kind, sv)
    human = a + b[:, None] + g.normal(0, sc, (items, systems))
    return human, human + u[:, None, :] + v[:, :, None] + g.normal(0, sw, (metrics, items, systems))


def p_values(table, statistic, unit, target, contrasts, reps, seed=0):
    "What `compare` computes, without its frame."
    draws = draw_replicates(table, statistic, unit, target, reps, seed)
    return p_value(*standard_errors(draws, AGREEMENTS[statistic], contrasts))


def check_rate(statistic, unit, null, n, reps):
    pair = np.array([[1.0, -1.0]])
    p = np.array([p_values(score_table(*world(seed, *null)), statistic, unit, null[0], pair, reps)[0] for seed in range(n)])
    not_above((p <= 0.05).sum(), n, 0.055, f"{statistic}, unit {unit}, new {null[0]}, effects {null[1]}")


@pytest.mark.parametrize("unit, null", [*(("item", null) for null in NULLS), ("system", NULLS[-1])], ids=str)
@pytest.mark.parametrize("n", [200, pytest.param(500, marks=pytest.mark.slow)])
def test_type_one_error(unit, null, n):
    check_rate("pearson", unit, null, n, 100)


@pytest.mark.slow
@pytest.mark.parametrize("null", NULLS, ids="-".join)
@pytest.mark.parametrize("statistic, unit", [("pearson", "item"), ("pearson", "system"), ("pearson", "within-item"), ("spearman", "system"), ("tau_b", "system"), ("tau_b", "within-item")])
def test_type_one_error_in_full(statistic, unit, null):
    check_rate(statistic, unit, null, 2000, 300)


def test_the_wrong_target_rejects_far_too_often():
    "Metrics with favorites among the systems: to test new items when new systems were meant."
    pair, n = np.array([[1.0, -1.0]]), 100
    p = np.array([p_values(score_table(*world(seed)), "pearson", "system", "items", pair, 100)[0] for seed in range(n)])
    assert (p <= 0.05).mean() > 0.25


def family(n, target, reps, metrics=20):
    "How often Holm lets any of 19 comparisons with a baseline through, or any of all 190."
    i, j = np.triu_indices(metrics, 1)
    pairs, kind, found = np.eye(metrics)[i] - np.eye(metrics)[j], "random" if target == "both" else "equal", []
    for seed in range(n):
        p = p_values(score_table(*world(seed, target, kind, metrics=metrics)), "pearson", "item", target, pairs, reps, seed)
        found.append([(holm(p[i == 0]) <= 0.05).any(), (holm(p) <= 0.05).any()])
    for count, what in zip(np.sum(found, 0), ("against a baseline", "all pairs")):
        not_above(count, n, 0.05, f"family-wise error, new {target}, {what}")


@pytest.mark.parametrize("n", [200, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", GENERALIZATIONS)
def test_family_wise_error_of_twenty_null_metrics(target, n):
    family(n, target, 150)


def test_stored_family_wise_errors():
    "Two thousand worlds of each target, from benchmarks/agreement_level.py; here their counts alone are looked at."
    table = pd.read_csv(Path(__file__).parents[2]/"nbs"/"results"/"family_error.csv")
    assert set(table["generalize"]) == set(GENERALIZATIONS) and table["worlds"].min() >= 2000 and len(table) == 6
    for row in table.itertuples(): not_above(round(row.rejected*row.worlds), row.worlds, 0.05, f"new {row.generalize}, {row.comparisons}")


def test_an_error_rate_that_is_too_high_is_seen():
    "Quick tests see 11 of 100 where 5 were promised, slow ones 9, stored counts 6.6."
    assert largest_count(200, 0.05)/200 < 0.11 and largest_count(200, 0.055)/200 < 0.115
    assert largest_count(500, 0.05)/500 < 0.085 and largest_count(500, 0.055)/500 < 0.09 and largest_count(2000, 0.05)/2000 < 0.067
    with pytest.raises(AssertionError): not_above(round(0.09*500), 500, 0.05, "made up")
    with pytest.raises(AssertionError): not_above(round(0.11*200), 200, 0.05, "made up")


@pytest.mark.slow
@pytest.mark.parametrize("target", GENERALIZATIONS)
def test_family_wise_error_in_full(target):
    family(2000, target, 1000)


def test_a_random_metric_stays_at_chance_after_calibration():
    "Cross-fitted accuracy with ties: the mean over worlds is not above chance, though the optimistic calibration is."
    excess, optimistic = [], []
    for seed in range(60):
        g = rng(seed, "random metric")
        x, y = g.integers(0, 3, 120).astype(float), g.normal(size=120)
        found = calibrated_accuracy(x, y)
        excess.append(found.value - found.chance); optimistic.append(found.optimistic - found.chance)
    excess = np.array(excess)
    assert excess.mean() <= 2*excess.std()/60**0.5 + 1e-9, f"above chance by {excess.mean():.4f} ± {excess.std()/60**.5:.4f}"
    assert np.mean(optimistic) > excess.mean()


@pytest.mark.parametrize("n", [60, pytest.param(600, marks=pytest.mark.slow)])
def test_intervals_cover(n):
    "The truth of the pooled correlation in the null world is known: sd of people over sd of the metric."
    truth = (1.5/3)**0.5
    inside = np.array([(lambda c: c.low <= truth <= c.high)(agreement(*world(seed, metrics=1), generalize="both", reps=150).ci[0]) for seed in range(n)])
    margin = 2*(0.95*0.05/n)**0.5
    assert inside.mean() >= 0.93 - margin, f"covers in {inside.mean():.3f} of {n}; .93 - margin {margin:.3f}"


def test_units_have_their_plain_definitions():
    x, Y = world(0)
    table = score_table(x, Y)
    for name, plain in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr), ("tau_b", stats.kendalltau)):
        assert np.isclose(replicate_statistic(table, name)[1, 0], plain(x.ravel(), Y[1].ravel())[0])
        assert np.isclose(replicate_statistic(table, name, "system")[1, 0], plain(x.mean(0), Y[1].mean(0))[0])
        assert np.isclose(replicate_statistic(table, name, "within-item")[1, 0], np.mean([plain(a, b)[0] for a, b in zip(x, Y[1])]))


@pytest.mark.parametrize("name", ["pearson", "spearman", "tau_b", "tau_c"])
@pytest.mark.parametrize("unit", ["item", "system", "within-item"])
def test_multiplicities_are_copies(name, unit):
    "A replicate is the statistic on a table with repeated rows and columns."
    x, Y = world(1, items=8, systems=6)
    a, b = bootstrap_weights(8, 1, rng(2)), np.array([[2, 1, 1, 1, 1, 0]])
    long = np.repeat(np.repeat(np.stack([x, *Y]), a[0], 1), b[0], 2)
    found = replicate_statistic(score_table(x, Y), name, unit, a, b)[:, 0]
    expected = replicate_statistic(score_table(long[0], long[1:]), name, unit)[:, 0]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_rows_of_a_table_and_a_table_agree():
    x, Y = world(3)
    i, s = (v.ravel() for v in np.indices(x.shape))
    order = rng(0).permutation(x.size)
    rows = score_table(x.ravel()[order], Y.reshape(2, -1)[:, order], item=i[order], system=s[order])
    for unit in UNITS[:3]:
        for target in GENERALIZATIONS:
            one, two = (compare(t, generalize=target, unit=unit, reps=40).frame for t in (score_table(x, Y), rows))
            np.testing.assert_allclose(one[["difference", "p"]], two[["difference", "p"]], rtol=1e-6)


def test_clusters_of_items_are_drawn_together():
    "Five identical rows per cluster give the interval of one row per cluster."
    g = rng(4)
    x, y = g.normal(size=(2, 80))
    y = x + y
    one = agreement(x, y, reps=500).ci[0]
    five = agreement(np.repeat(x, 5), np.repeat(y, 5), group=np.repeat(np.arange(80), 5), reps=500).ci[0]
    loose = agreement(np.repeat(x, 5), np.repeat(y, 5), reps=500).ci[0]
    assert np.isclose(one.low, five.low, atol=0.01) and np.isclose(one.high, five.high, atol=0.01)
    assert loose.high - loose.low < 0.6*(one.high - one.low)


def test_silence_is_chance_and_human_ties_are_left_out():
    x, Y = world(5, items=10, systems=5)
    each = [stats.pearsonr(a, b)[0] for a, b in zip(x, Y[0])]
    Y[0, 3], x[7] = 1.0, 2.0
    expected = (sum(v for k, v in enumerate(each) if k not in (3, 7)) + 0)/9
    assert np.isclose(replicate_statistic(score_table(x, Y), "pearson", "within-item")[0, 0], expected)


def test_result_says_unit_population_and_signature():
    found = compare(*world(6), "tau_b", "both", "within-item", reps=20, seed=3)
    for part in ("statistic:tau_b", "unit:within-item", "generalize:both", "reps:20", "seed:3", "items:60", "systems:12", "missing:none", "comparisons:1"):
        assert part in str(found.signature)
    assert set(found.agreed.table().unit) == {"within-item"}
    again = compare(*world(6), "tau_b", "both", "within-item", reps=20, seed=3)
    assert again.frame.equals(found.frame)


def test_interval_and_test_of_a_difference_agree():
    for seed in range(20):
        row = compare(*world(seed), generalize="items", reps=60).frame.iloc[0]
        assert (row.p <= 0.05) == (not row.low <= 0 <= row.high)


def test_holm_and_benjamini_hochberg():
    "By hand, and scipy's own for the second."
    np.testing.assert_allclose(holm([0.04, 0.01, 0.03, 0.005]), [0.06, 0.03, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.5, 0.9]), [1, 1])
    for seed in range(5):
        p = rng(seed).random(12)**2
        np.testing.assert_allclose(benjamini_hochberg(p), stats.false_discovery_control(p))
        assert (holm(p) >= benjamini_hochberg(p)).all() and (benjamini_hochberg(p) >= p - 1e-12).all()
    with pytest.raises(InputError, match="between 0 and 1"): holm([0.5, 1.2])


def test_williams_by_hand_and_in_simulation():
    "K = .62, so t = .2·√(102·1.4/(2·.62·1.02 + .16·.216)); and 5 % of equally correlated triples are rejected."
    t, p = williams(.5, .3, .4, 103)
    assert np.isclose(t, 0.2*(142.8/(1.2648 + 0.03456))**0.5) and np.isclose(p, 2*stats.t.sf(t, 100))
    root = np.linalg.cholesky(np.array([[1, .6, .6], [.6, 1, .5], [.6, .5, 1]]))
    rejected = 0
    for seed in range(1000):
        r = np.corrcoef(root @ rng(seed, "williams").normal(size=(3, 20)))
        rejected += williams(r[0, 1], r[0, 2], r[1, 2], 20)[1] <= 0.05
    not_above(rejected, 1000, 0.05, "Williams")
    with pytest.raises(InputError, match="no three variables"): williams(.9, -.9, .9, 20)


@pytest.mark.parametrize("n", [80, pytest.param(200, marks=pytest.mark.slow)])
def test_swaps(n):
    "Never 0; and swapping whole systems is right for the averages over items, swapping cells is not."
    x, Y = world(0)
    sure = np.stack([x, rng(1).normal(size=x.shape)])
    assert swap_test(score_table(x, sure), "metric 1", "metric 2", exchange="item", reps=49) == 1/50
    p = np.array([[swap_test(score_table(*world(seed)), "metric 1", "metric 2", unit="system", exchange=u, reps=39) for u in ("system", "cell")] for seed in range(n)])
    not_above((p[:, 0] <= 0.05).sum(), n, 0.05, "swapping systems")
    assert (p[:, 1] <= 0.05).mean() > 0.2


@pytest.mark.parametrize("n", [100, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("systems", [4, 5, 6])
def test_a_random_metric_on_few_systems(systems, n):
    "Of 100 or 250 tables: no more than 5 % rejected, nothing surer than the best of all orders, and interval and test agree."
    single, difference = [], []
    for seed in range(n):
        g = rng(seed, systems)
        found = compare(g.normal(size=(20, systems)), g.normal(size=(2, 20, systems)), "tau_b", "systems", "system", reps=12)
        single.append(found.agreed.p); difference.append(found.frame.p)
        for p, ci in zip(found.agreed.p, found.agreed.ci): assert (p <= 0.05) == (not ci.low <= 0 <= ci.high) and ci.high > ci.low
    single, least = np.array(single), 2/math.factorial(systems)
    assert single.min() >= least*(1 - 1e-9)
    not_above((single[:, 0] <= 0.05).sum(), n, 0.05, f"tau_b of a random metric on {systems} systems")
    not_above((np.array(difference) <= 0.05).sum(), n, 0.05, f"difference of two random metrics on {systems} systems")


@pytest.mark.parametrize("target", ["systems", "both"])
def test_a_right_order_of_four_systems_is_no_certainty(target):
    "The best and the worst order are 2 of 24; items that change nothing do not make it surer; the order 2143 is by far not as good."
    four, e = np.add.outer(np.linspace(0, .1, 20), [1., 2, 3, 4]), np.array([0, .3, -.3, 0])
    found = agreement(four, np.stack([four + e, four[:, [1, 0, 3, 2]]]), "tau_b", target, "system", reps=50)
    np.testing.assert_allclose(found.value, [1, 1/3])
    assert 2/24 - 1e-9 <= found.p[0] < 0.1 and found.p[1] > 0.3
    assert all(c.low < 0 < v for c, v in zip(found.ci, found.value)) and any("no draw of systems changed" in note for note in found.notes)


def test_a_difference_without_spread_is_no_certainty():
    "A perfect order against a reversed one, four systems: not below 2/2^4, and one letter. Equal ones differ by nothing, but not surely."
    four = np.add.outer(np.linspace(0, .1, 20), [1., 2, 3, 4])
    for statistic in ("tau_b", "spearman"):
        found = compare(four, np.stack([four**2, -four, np.exp(four)]), statistic, "systems", "system", reps=50)
        row = found.frame.iloc
        assert (found.frame.p >= 2/2**4 - 1e-9).all() and len(set(found.letters.values())) == 1
        assert row[0].difference == 2 and row[0].low <= 0 and row[0].high == 2
        assert row[1].difference == 0 and row[1].low < 0 < row[1].high and row[1].p == 1
    copy = compare(four, np.stack([four**2, 3*four**2 + 1]), "tau_b", "systems", "system", reps=50).frame.iloc[0]
    assert copy.low == copy.high == 0 and copy.p == 1


def test_items_that_never_change_an_order_are_as_sure_as_their_draws():
    four = np.add.outer(np.linspace(0, .1, 30), [1., 2, 3, 4])
    found = compare(four, np.stack([four**2, four[:, [0, 1, 3, 2]]]), "tau_b", "items", "system", reps=99)
    np.testing.assert_allclose(found.agreed.p, 1/100); np.testing.assert_allclose(found.frame.p, 1/100)
    assert all(0 < c.low < v <= c.high for c, v in zip(found.agreed.ci, found.agreed.value))
    few = agreement(four[:5], four[:5]**2, "tau_b", "items", "system", reps=99)
    np.testing.assert_allclose(few.p, 2/2**5)


@pytest.mark.parametrize("n, p", [(4, 2/16), (20, 2/2**20)])
def test_all_choices_right_is_a_binomial_count(n, p):
    "n of n pairs right: the exact binomial p-value and the interval of Clopper and Pearson."
    share = np.where(np.arange(n) % 3 > 0, 0.9, 0.2)
    for sign in (1, -1):
        found = agreement(share, sign*(share - 0.5), "choice", "items", "choice", reps=50)
        exact = stats.binomtest(n*(sign > 0), n)
        ci = exact.proportion_ci(0.95, "exact")
        assert np.isclose(found.p[0], p) and np.isclose(found.p[0], exact.pvalue)
        np.testing.assert_allclose([found.ci[0].low, found.ci[0].high], [ci.low, ci.high], atol=1e-12)
    assert compare(share, np.stack([share - 0.5, 0.5 - share]), "choice", "items", "choice", reps=50).frame.p[0] >= max(2/2**n, 1/51)*0.999


def test_differences_end_where_a_difference_does():
    g = rng(0)
    x = g.normal(size=(20, 4)) + np.arange(4)
    frame = compare(x, np.stack([x + g.normal(size=x.shape), -x - g.normal(size=x.shape)]), "tau_b", "systems", "system", reps=50).frame
    share = g.random(6)
    shares = compare(share, np.stack([share - .5, g.normal(size=6)]), "two_afc", "items", "choice", reps=50, confidence=.999).frame
    for found, most in ((frame, 2), (shares, 1)): assert found.low.min() >= -most and found.high.max() <= most


def test_swaps_keep_the_sign_of_a_lead():
    "Leads that are all positive: both metrics choose the first everywhere, and an exchange changes nothing."
    g = rng(0)
    share, leads = g.random(30), g.random((2, 30)) + 0.1
    table = score_table(share, leads, names=("a", "b"))
    for statistic in ("two_afc", "choice"): assert swap_test(table, "a", "b", statistic, "choice", "cell", reps=49) == 1
    leads[1] *= -1
    found = score_table((share > .5)*1., np.stack([1000*(share - .5), g.normal(size=30)]), names=("a", "b"))
    assert swap_test(found, "a", "b", "choice", "choice", "cell", reps=49) == 1/50


def test_swaps_that_are_undefined_count_as_extreme():
    "Every exchange mixes two halves into a constant, or nothing is exchanged: no draw is below the observed gap."
    four = np.arange(4.)
    table = score_table(four, np.array([[0, 0, 0, 1.], [1, 0, 0, 0]]), names=("a", "b"))
    reps, gaps = 199, []
    swap = rng(0, "swap", "cell").integers(0, 2, (reps, 4)).astype(bool)
    for s in swap:
        a, b = np.where(s, table.metrics[1], table.metrics[0]), np.where(s, table.metrics[0], table.metrics[1])
        gaps.append(np.nan if np.ptp(a) == 0 or np.ptp(b) == 0 else abs(stats.pearsonr(four, a)[0] - stats.pearsonr(four, b)[0]))
    gaps, seen = np.array(gaps), abs(stats.pearsonr(four, table.metrics[0])[0] - stats.pearsonr(four, table.metrics[1])[0])
    assert np.isnan(gaps).any()
    assert np.isclose(swap_test(table, "a", "b", exchange="cell", reps=reps), (1 + (~(gaps < seen - 1e-9)).sum())/(reps + 1))
    x = np.arange(8.).reshape(4, 2)
    silent = score_table(x, np.stack([x**2, np.array([[0, 1], [1, 0]]*2) + 0.]), names=("a", "b"))
    with pytest.raises(InputError, match="no difference to test"): swap_test(silent, "a", "b", unit="system", reps=9)


def test_equal_means_stay_equal_in_every_path():
    "Ratings in thirds: systems with equal means are tied, whether they are averaged as one table or as a replicate."
    for seed in range(20):
        g = rng(seed, "thirds")
        x, y = g.integers(3, 16, (2, 30, 8))/3
        exact = stats.kendalltau(np.round(x*3).sum(0), np.round(y*3).sum(0))[0]
        table = score_table(x, y)
        for kind in ({}, dict(groups=np.ones((1, 30))), dict(systems=np.ones((1, 8))), dict(groups=np.ones((1, 30)), systems=np.ones((1, 8)))):
            assert np.isclose(replicate_statistic(table, "tau_b", "system", **kind)[0, 0], exact, atol=1e-12)


def test_units_of_a_metric_do_not_matter():
    x, Y = world(2, items=20, systems=8)
    for unit in ("system", "within-item"):
        one, small = (agreement(x, Y*size, "pearson", "items", unit, reps=20) for size in (1, 1e-12))
        np.testing.assert_allclose(one.value, small.value, atol=1e-9); np.testing.assert_allclose(one.p, small.p, rtol=1e-6)


def test_the_gap_of_the_wmt_statistic_is_said_and_asked_for():
    x, Y = world(0)
    with pytest.raises(InputError, match=r"no two human scores are 25 apart \(they span .*wmt_like:"): agreement(x, Y, "wmt_like", reps=20)
    with pytest.raises(InputError, match="25 apart"): agreement(x, Y, "wmt_like", unit="within-item", reps=20)
    with pytest.raises(InputError, match="25 apart"): agreement(x, Y, "wmt_like", unit="system", reps=20)
    found, other = (agreement(x, Y, name, reps=20) for name in ("wmt_like:0.5", "wmt_like:3"))
    assert "statistic:wmt_like_0.5|" in str(found.signature) != str(other.signature) and found.table().statistic[0] == "wmt_like_0.5"
    i, j = np.triu_indices(x.size, 1)
    lead, own = x.ravel()[i] - x.ravel()[j], Y[0].ravel()[i] - Y[0].ravel()[j]
    for result, gap in ((found, 0.5), (other, 3)):
        clear = np.abs(lead) >= gap
        assert np.isclose(result.value[0], np.mean(np.where(np.sign(lead) == np.sign(own), 1, -1)[clear]))


def test_two_metrics_share_a_letter_exactly_if_they_do_not_differ():
    "Every table of up to five metrics, and random ones of up to 30; no letter is held by a part of those who hold another one."
    def check(differ):
        letters = [set(re.findall(r"[a-zA-Z]\d*", found)) for found in _compact_letters(differ)]
        share = np.array([[bool(a & b) for b in letters] for a in letters])
        assert (share == ~differ).all()
        held = [frozenset(row for row, own in enumerate(letters) if letter in own) for letter in set().union(*letters)]
        assert not any(a < b for a in held for b in held)
        return letters
    for count in range(1, 6):
        places = np.triu_indices(count, 1)
        for yes in product([False, True], repeat=len(places[0])):
            differ = np.zeros((count, count), bool)
            differ[places] = yes
            check(differ | differ.T)
    g, most = np.random.default_rng(0), 0
    for count in (12, 30, 30, 30):
        differ = np.triu(g.random((count, count)) < g.uniform(.1, .7), 1)
        most = max(most, len(set().union(*check(differ | differ.T))))
    assert most > 52, "more letters than there are in the alphabet"


def test_a_league_of_metrics_one_a_little_better_than_the_next():
    "The pairs that differ are among neighbors of one cluster of the WMT kind, which would hide them."
    g = rng(5)
    truth = g.normal(size=(300, 1))
    found = compare(truth.ravel(), np.stack([truth.ravel() + g.normal(0, .5 + .04*k, 300) for k in range(8)]), reps=300)
    significant = {frozenset((row.a, row.b)) for row in found.frame.itertuples() if row.p_holm < .05}
    best = list(found.letters)
    assert best == [found.agreed.names[k] for k in np.argsort(-found.agreed.value)] and 0 < len(significant) < 28
    for a, b in combinations(best, 2): assert bool(set(found.letters[a]) & set(found.letters[b])) == (frozenset((a, b)) not in significant)
    assert max(len(found.letters[a]) for a in best) > 1, "some stand between two letters"


def test_bad_input_is_said():
    x, Y = world(0)
    for mistake, words in ((lambda: agreement(x, Y[:, :5]), "do not belong together"), (lambda: agreement(np.ones(9), np.arange(9.)), "constant"),
                           (lambda: agreement(np.arange(3.), np.arange(3.)), "too few"), (lambda: agreement(x, Y, "peason"), "did you mean pearson"),
                           (lambda: agreement(x, Y, unit="segment"), "unknown unit"), (lambda: agreement(x[:, :3], Y[:, :, :3], generalize="systems"), "too few"),
                           (lambda: compare(x, Y, baseline="zero"), "unknown baseline"), (lambda: compare(x, Y[:1]), "two metrics")):
        with pytest.raises(InputError, match=words): mistake()
    x[2, 3] = np.nan
    with pytest.raises(InputError, match="human: 1 of 720 scores are missing"): agreement(x, Y)


def wmt17():
    "Summands of BLEU without tokenization of every system, and the published p-values."
    expected = json.loads(data_path("parity/sacrebleu_wmt17_ende/expected.json").read_text())
    segments = lines("parity/sacrebleu_wmt17_ende/newstest2017_ende.jsonl.gz")
    bleu, references = get_metric("bleu", tokenizer="none"), [[segment["ref"]] for segment in segments]
    rows = {name: bleu.compare(bleu.phi([segment["sys"][k] for segment in segments], references)) for k, name in enumerate(expected["systems"])}
    return bleu, rows, expected


def test_published_bootstrap_and_randomization_of_wmt17():
    """sacreBLEU's published table for en-de: paired bootstrap (Moses) and approximate randomization (MultEval), within Monte-Carlo error.

    The first is one-sided in effect: the share of |difference| - mean |difference| above the observed one; the second two-sided."""
    bleu, rows, expected = wmt17()
    base, B = rows.pop(expected["baseline"]), 1000
    own = _bootstrap_replicates(bleu, Rows(base), B, 7)
    swap = rng(7, "randomization").integers(0, 2, (B, len(base))).astype(float)
    for name, other in rows.items():
        observed = abs(bleu.pool(other.sum(0)[None])[0] - bleu.pool(base.sum(0)[None])[0])
        gaps = np.abs(_bootstrap_replicates(bleu, Rows(other), B, 7) - own)
        moved = swap @ (other - base)
        changed = np.abs(bleu.pool(base.sum(0) + moved) - bleu.pool(other.sum(0) - moved))
        share = lambda found: (1 + (found > observed).sum())/(B + 1)
        for found, published in ((share(gaps - gaps.mean()), expected["moses_bootstrap_p"][name]), (share(changed), expected["multeval_ar_p_bleu_ter"][name][0])):
            margin = 3.5*(published*(1 - published)/B)**0.5 + 2/B
            assert abs(found - published) <= margin, f"{name}: {found:.4f} against {published:.4f} ± {margin:.4f}"
