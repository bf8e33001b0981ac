"The profile: planted thresholds, saturations and exchange rates are recovered, and sentinels get what they must."
import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from invariant_metrics.core import InputError, rng
from invariant_metrics.stats import auc
from invariant_metrics.probes.preference import draw_sets
from invariant_metrics.probes.profile import COLUMNS, Verdicts, crossing, empty_profile, _fieller, isotonic
from invariant_metrics.probes.profile import profile, thresholds

N = 60


def planted(response, seed=0, n=N, spread=1.0, valid=1.0, metric="m", sign=1):
    "Verdicts of a metric whose mean change at severity s is response(s); its valid alternatives change it by `valid`."
    draw = rng(seed, "planted", metric)
    noise = lambda *shape: spread * draw.standard_normal(shape)
    own, change = draw.standard_normal(n), np.array([response(s) for s in range(1, 6)], float)[:, None]
    return Verdicts(metric, "f", "item", own + sign * change + noise(5, n), own + valid + noise(n), np.arange(n), untouched=own)


def row(*verdicts, reps=300, seed=0):
    found = profile(verdicts, reps=reps, seed=seed)
    return found[(found.level == "all") & (found.family == "f")].set_index("metric").loc[verdicts[0].metric]


def need(n=N): return (student.ppf(0.975, n - 1) + student.ppf(0.8, n - 1)) / np.sqrt(n)


def recovered(true, reps):
    "Estimates, and how often the interval holds the truth, of a straight line that crosses what is needed at `true`."
    rows = [row(planted(lambda s: s * need() / true, seed=k), reps=150, seed=k) for k in range(reps)]
    held = np.mean([r.threshold_low <= true <= r.threshold_high for r in rows])
    return np.median([r.threshold for r in rows]), held


def test_a_planted_threshold_is_recovered():
    middle, held = recovered(3, 40)
    assert abs(middle - 3) < 0.45 and held >= 0.85


@pytest.mark.slow
@pytest.mark.parametrize("true", [2, 3, 4])
def test_a_planted_threshold_is_recovered_in_full(true):
    """400 simulations: the median is right and 95 % intervals hold the truth 95 times of 100, within Monte-Carlo error."""
    middle, held = recovered(true, 400)
    assert abs(middle - true) < 0.15 and abs(held - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 400)


def test_a_step_is_found_at_the_severity_where_it_happens():
    found = row(planted(lambda s: 5 * (s >= 3)))
    assert found.detected_from == 3 and 2 < found.threshold <= 3


def test_more_items_tell_milder_violations():
    few, many = (row(planted(lambda s: 0.3 * s, n=n)).threshold for n in (30, 480))
    assert many < few / 2


def test_a_saturating_curve():
    """1 − exp(−s/τ) has covered 90 % of what it covers by severity 5 where the formula says."""
    tau = 1.0
    true = -tau * np.log(1 - 0.9 * (1 - np.exp(-5 / tau)))
    found = row(planted(lambda s: 10 * (1 - np.exp(-s / tau)), spread=0.5))
    assert abs(found.saturation - true) < 0.35 and found.saturation_low < true + 0.2 < found.saturation_high + 0.4
    assert row(planted(lambda s: 3.0 * s)).saturation == pytest.approx(4.5, abs=0.15)  # a straight line never bends


def test_the_exchange_rate_is_the_ratio_of_means_and_its_interval_holds_it():
    held = [r.exchange_low <= 3 <= r.exchange_high for r in (row(planted(lambda s: 3.0, seed=k, valid=1.0), seed=k) for k in range(40))]
    assert np.mean(held) > 0.85
    assert np.isinf(row(planted(lambda s: 3.0, valid=0.05)).exchange_high)       # natural variation that cannot be told from none
    assert np.isnan(row(planted(lambda s: 3.0, valid=-2.0)).exchange)            # alternatives that score better than the item itself


def test_fieller_by_hand():
    assert _fieller(6, 2, np.zeros((2, 2))) == (3, 3, 3)
    rate, low, high = _fieller(6, 2, np.diag([0.04, 0.04]))
    for edge in (low, high): assert abs(6 - edge * 2) == pytest.approx(1.96 * np.sqrt(0.04 + edge**2 * 0.04))
    assert _fieller(0.1, 0.3, np.diag([0.04, 0.04]))[1:] == (-np.inf, np.inf)
    assert _fieller(6, 0.3, np.diag([0.04, 0.04]))[2] == np.inf and _fieller(6, 0.3, np.diag([0.04, 0.04]))[1] > 0


def test_sentinels():
    """The constant has exactly ½ and no threshold, the oracle 1, dice what dice have."""
    zero, dice = np.zeros((5, N)), rng(3).random((7, N))
    found = profile([Verdicts("constant", "f", "item", zero, zero[0], np.arange(N), untouched=zero[0]), planted(lambda s: s, spread=0, valid=0, metric="oracle"),
                     Verdicts("dice", "f", "item", dice[:5], dice[5], np.arange(N), untouched=dice[6])], reps=200)
    total = found[(found.level == "all") & (found.family == "f")].set_index("metric")
    for name in ("auc", "accuracy", "specificity"):
        assert total.loc["constant", [name, f"{name}_low", f"{name}_high"]].tolist() == [0.5] * 3
        assert total[f"{name}_low"]["dice"] <= 0.5 <= total[f"{name}_high"]["dice"]
    assert total.sensitivity["constant"] == 0 and np.isnan(total.exchange["constant"]) and np.isinf(total.threshold[["constant", "dice"]]).all()
    assert total.accuracy["oracle"] == 1 and 0.9 < total.accuracy_low["oracle"] < 1 and np.isinf(total.sensitivity["oracle"])


def test_equal_to_plain_formulas():
    """AUC is that of `core.auc`; sensitivity, effect and accuracy are what numpy says, level by level."""
    v = planted(lambda s: 0.4 * s)
    found = profile([v], reps=50)
    for l, at in enumerate(found[found.severity.notna()].itertuples()):
        bad, good, start = v.violation[l], v.valid[l], v.untouched[l]
        assert at.auc == pytest.approx(auc(bad, good)) and at.accuracy == (bad > good).mean() and at.n == N
        assert at.sensitivity == pytest.approx((bad - start).mean() / (bad - start).std()) and at.effect == pytest.approx((bad - good).mean() / (bad - good).std())
        assert at.specificity == (good < np.median(bad)).mean() and at.change == pytest.approx((bad - start).mean())
    total = found[(found.level == "all") & (found.family == "f")].iloc[0]
    assert total.auc == pytest.approx(found[found.severity.notna()].auc.mean())


def test_a_metric_in_the_other_direction_is_not_flipped():
    """Damage that a metric likes gives accuracies below ½, a falling trend and no threshold: it is said, never turned."""
    found = row(planted(lambda s: 1.0 * s, sign=-1))
    assert found.accuracy < 0.1 and found.trend_high < 0 and np.isinf(found.threshold) and found.sensitivity < -1


def test_intervals_of_auc_cover():
    """A metric without any preference: its AUC's interval holds ½ in about 95 of 100 draws, items in clusters included."""
    def one(k):
        draw, cluster = rng(k, "cover"), np.repeat(np.arange(20), 3)
        common = draw.standard_normal((2, 20))[:, cluster]                       # items of a cluster are alike
        values = common[:, None] + 0.5 * draw.standard_normal((2, 5, 60))
        found = profile([Verdicts("m", "f", "item", values[0], values[1], cluster)], reps=200, seed=k)
        at = found[(found.level == "all") & (found.family == "f")].iloc[0]
        return at.auc_low <= 0.5 <= at.auc_high, at.accuracy_low <= 0.5 <= at.accuracy_high
    held = np.mean([one(k) for k in range(60)], axis=0)
    assert (held > 0.85).all(), held


def test_sets():
    """A metric of sets: a shift grows with severity; thresholds refer to one set, and overlapping sets do not feign precision."""
    draw, cluster = rng(0, "sets"), np.arange(40)
    counts, drawn = draw_sets(cluster, 60, draw)
    own = draw.standard_normal(40)
    means = lambda x: counts @ x / counts.sum(1)
    bad = np.stack([means(own + 0.5 * s + 0.2 * draw.standard_normal(40)) for s in range(1, 6)])
    v = Verdicts("m", "f", "set", bad, means(own + 0.4), cluster, means(own), drawn)
    found = row(v)
    assert found.accuracy > 0.9 and np.isfinite(found.threshold) and found.exchange_low < 3.75 < found.exchange_high
    once, twice = (row(Verdicts("m", "f", "set", np.tile(bad, (1, k)), np.tile(v.valid, (1, k)), cluster, np.tile(v.untouched, (1, k)), np.tile(drawn, (k, 1))))
                   for k in (1, 4))
    width = lambda r: r.trend_high - r.trend_low + r.exchange_high - r.exchange_low
    assert width(twice) > 0.5 * width(once)  # the same sets again are no new clusters


def test_missing_verdicts():
    """A level without items is left out; a family without any has NaN and no invented threshold."""
    v = planted(lambda s: 1.0 * s)
    holes, none = v.violation.copy(), np.full((5, N), np.nan)
    holes[2] = np.nan; holes[:, ::3] = np.nan
    found = profile([Verdicts("m", "f", "item", holes, v.valid, v.cluster, v.untouched), Verdicts("m", "empty", "item", none, v.valid, v.cluster, v.untouched)], reps=100)
    rows = found.set_index(["family", "level"])
    assert rows.n["f", "3"] == 0 and np.isnan(rows.auc["f", "3"]) and np.isfinite(rows.threshold["f", "all"]) and rows.n_clusters["f", "all"] == 40
    assert np.isnan(rows.threshold["empty", "all"]) and np.isnan(rows.accuracy["empty", "all"]) and np.isfinite(rows.accuracy["all", "all"])


def test_without_an_untouched_score_the_dose_counts_from_the_alternative():
    v = planted(lambda s: 1.0 * s)
    found = row(Verdicts("m", "f", "item", v.violation, v.valid, v.cluster))
    assert np.isnan(found.exchange) and found.sensitivity == pytest.approx(found.effect)


def test_the_row_of_all_families():
    found = profile([Verdicts("m", f, "item", v.violation, v.valid, v.cluster, v.untouched) for f, v in
                     (("a", planted(lambda s: 3.0 * s)), ("b", planted(lambda s: 0.0)), ("c", planted(lambda s: 2.0 * s)))], reps=100).set_index(["family", "level"])
    each = found.loc[[("a", "all"), ("b", "all"), ("c", "all")]]
    assert found.accuracy["all", "all"] == pytest.approx(each.accuracy.mean()) and found.detected["all", "all"] == pytest.approx(2 / 3)
    assert found.threshold["all", "all"] == sorted(each.threshold)[1]


def test_curves():
    from scipy.optimize import isotonic_regression
    curves = rng(0).standard_normal((30, 6))
    assert np.allclose(isotonic(curves), [isotonic_regression(c).x for c in curves])
    assert crossing(np.arange(4.0), np.array([[-1.0, -1, 1, 2], [-1, 1, -1, 1], [1, 1, 1, 1], [-1, 1, 1, -1]])).tolist() == [1.5, 2.5, 0, np.inf]
    told, full, _ = thresholds(np.arange(1.0, 6), np.zeros((1, 5)), np.zeros(5), 60)
    assert np.isinf(told[0]) and np.isnan(full[0])


def test_same_seed_same_profile_of_one_source():
    v = planted(lambda s: 1.0 * s)
    assert profile([v], reps=50).equals(profile([v], reps=50)) and list(profile([v], reps=50)) == COLUMNS == list(empty_profile())[1:]
    with pytest.raises(InputError, match="one source at a time"): profile([v, planted(lambda s: s, n=50)], reps=50)


def test_a_level_of_one_cluster_is_no_detection():
    "What one cluster reaches has no known noise: the metric has not been seen to notice it."
    draw = rng(3, "lonely")
    own, bad = draw.standard_normal(N), np.full((3, N), np.nan)
    bad[:2] = own + 0.01*draw.standard_normal((2, N))
    bad[2, 0] = own[0] + 5
    assert np.isinf(row(Verdicts("m", "f", "item", bad, own, np.arange(N), untouched=own)).threshold)


def test_the_row_over_all_families_leaves_valid_edits_out():
    draw = rng(4, "valid edits")
    own = draw.standard_normal(N)
    made = [Verdicts("m", family, "paired", own[None] + change, own, np.arange(N), untouched=own) for family, change in (("f", 1.0), ("synonym", -1.0))]
    ledger = pd.DataFrame(dict(family=["f", "synonym"], kind=["violation", "valid"], n=N, matched=N, not_applicable=0))
    found = profile(made, ledger, reps=50).query("level == 'all'").set_index("family")["accuracy"]
    assert found["all"] == found["f"] == 1 and found["synonym"] == 0


def test_every_kind_has_a_row_of_its_own():
    "The mean over families is taken within a kind: false, less, worse in form."
    made = [Verdicts("m", family, "item", np.full((1, N), value), np.zeros(N), np.arange(N)) for family, value in (("f", 1.0), ("g", -1.0), ("h", 1.0), ("i", -1.0))]
    ledger = pd.DataFrame(dict(family=["f", "g", "h", "i"], kind=["violation", "less", "less", "form"], n=N, matched=N, not_applicable=0))
    found = profile(made, ledger, reps=50).query("level == 'all'").set_index("family")["accuracy"]
    assert (found["all"], found["all less"], found["all form"]) == (1, 0.5, 0)
