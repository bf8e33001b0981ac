"Plans keep their word: for every statistic, experiments of the planned size reject as often as was asked; and what a plan refuses."
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from invariant_metrics.core import InputError, rng
from invariant_metrics.stats import bootstrap_weights
from invariant_metrics.files import save_results
from invariant_metrics.studies.improvement import improvement_table
from invariant_metrics.scoring.pilots import file_pilots, plan_systems, power_figure
from invariant_metrics.scoring.power import detectable, equality_pilot, influence_pilot, mean_pilot, metric_pilot, power
from invariant_metrics.metrics.metric import Estimate
from invariant_metrics.experiments.contrast import mean_over_seeds, p_over_seeds
from invariant_metrics.scoring.inference import paired_difference
from invariant_metrics.scoring.power import _check_plan, detectable_at, estimate_pilot, items_needed, _detectable_errors
from invariant_metrics.scoring.score import score

sys.path.insert(0, str(Path(__file__).parents[2]/"benchmarks"))
import power as simulations  # noqa: E402
from binomial import not_above, not_below  # noqa: E402

CHEAP = [name for name in simulations.SIMULATIONS if name not in simulations.COSTLY]


def kept(name: str, reps: int, band: float = 0.03) -> None:
    "Rejections within the band of 80 %, by exact binomial bounds."
    n, share = simulations.SIMULATIONS[name](rng(1, "kept", name), reps)
    check_kept(f"{name}, planned n = {n}", round(share*reps), reps, band)


def check_kept(what: str, found: int, reps: int, band: float = 0.03) -> None:
    not_below(found, reps, 0.8 - band, what)
    not_above(found, reps, 0.8 + band, what)


@pytest.mark.parametrize("name", CHEAP)
def test_planned_n_is_found_eight_times_out_of_ten(name): kept(name, 4000)


@pytest.mark.parametrize("name", ["corpus BLEU-like, paired", "Fréchet, two systems", "MMD, two systems"])
def test_planned_n_is_kept_by_the_packages_own_intervals(name): kept(name, 200)


def test_the_stored_experiments_kept_their_word():
    "Thousands of experiments of every statistic, the slow ones too, from benchmarks/power.py; here their counts alone are looked at."
    table = pd.read_csv(Path(__file__).parents[2]/"nbs"/"results"/"power.csv")
    assert set(table["statistic"]) == set(simulations.SIMULATIONS) and table["experiments"].min() >= 3000
    for row in table.itertuples(): check_kept(f"{row.statistic}, stored", round(row.rejections*row.experiments), row.experiments)


def test_what_does_not_keep_its_word_is_seen():
    "Of 4,000 quick experiments 74 or 86 of 100 fail, of 3,000 stored ones too, of 200 by the package's own intervals 66 or 93."
    for reps, low, high in ((4000, 0.74, 0.86), (3000, 0.74, 0.86), (200, 0.66, 0.93)):
        for share in (low, high):
            with pytest.raises(AssertionError): check_kept("made up", round(share*reps), reps)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(simulations.SIMULATIONS))
def test_planned_n_in_full(name): kept(name, 1000 if name in simulations.COSTLY else 10_000)


def test_reach_is_the_definition():
    "The noncentral t exceeds its critical value as often as asked; the normal law is its limit."
    for df, p, alpha in ((4, 0.8, 0.05), (30, 0.9, 0.01), (2000, 0.6, 0.05)):
        assert stats.nct.sf(stats.t.ppf(1 - alpha/2, df), df, float(_detectable_errors(p, alpha, df))) == pytest.approx(p, abs=1e-6)
    assert float(_detectable_errors(0.8, 0.05, 1e8)) == pytest.approx(stats.norm.ppf(0.975) + stats.norm.ppf(0.8), abs=1e-6)


def test_textbook_numbers():
    "Cohen's tables: d = .5 unpaired needs 64 a group, paired 34; each at 80 % and .05."
    unit = stats.norm.ppf((np.arange(20000) + 0.5)/20000)
    unit /= unit.std(ddof=1)
    assert items_needed(mean_pilot(unit, rng(0, "shuffled").permutation(unit), paired=False), 0.5) == 64
    assert items_needed(mean_pilot(unit), 0.5) == 34


def test_paired_spread_is_the_formula():
    "σ² = σA² + σB² − 2 cov."
    a, b = rng(0, "pair").multivariate_normal([0, 0], [[1, 0.6], [0.6, 2]], 300).T
    cov = np.cov(a, b)
    assert mean_pilot(a, b).sd**2 == pytest.approx(cov[0, 0] + cov[1, 1] - 2*cov[0, 1])


def test_half_the_difference_takes_four_times_the_items():
    pilot = mean_pilot(rng(0, "x").normal(size=5000))
    assert items_needed(pilot, 0.02)/items_needed(pilot, 0.04) == pytest.approx(4, rel=0.01)
    assert (np.diff(detectable_at(pilot, np.arange(4, 400))) < 0).all()


def test_the_planned_interval_is_the_packages():
    "Pilot and `difference` agree about the standard error; for a function of sums up to what the gradient leaves out of leaving one out."
    draw = rng(0, "se")
    for metric, rows, quantile, close in ((simulations.RATIO, simulations.texts(draw, 400), stats.t.ppf(0.975, 399), 5e-3),
                                          (simulations.FD, simulations.clouds(draw, 300, (0.5, 0.8)), stats.norm.ppf(0.975), 1e-6)):
        pilot = metric_pilot(metric, *rows, same_items=True)
        ci = paired_difference(metric, *rows, method="influence", same_items=True).ci
        assert 2*quantile*pilot.sd/pilot.n**0.5 == pytest.approx(ci.high - ci.low, rel=close)


def test_stored_influences_alone_make_a_pilot():
    a, b = (Estimate(v, pred=torch.randn(200, generator=torch.Generator().manual_seed(k)).double()) for k, v in ((0, 1.0), (1, 0.7)))
    pilot = estimate_pilot("mine", a, b)
    assert pilot.value == pytest.approx(0.3) and pilot.sd == pytest.approx(float((a.pred - b.pred).std()))
    with pytest.raises(InputError, match="no influences"): estimate_pilot("mine", Estimate(1.0))


def test_more_comparisons_need_more_items():
    "Bonferroni's level for ten: n grows by ((2.807 + .842)/2.802)²."
    pilot = mean_pilot(rng(0, "many").normal(size=100_000))
    one, ten = (power(pilot, wished=0.01, comparisons=k).n_needed for k in (1, 10))
    assert ten/one == pytest.approx(((stats.norm.ppf(0.9975) + stats.norm.ppf(0.8))/2.8016)**2, rel=1e-3)
    assert _check_plan(0.8, 0.05, 10) == pytest.approx(0.005)


def test_clusters_count_as_one_each():
    a = rng(0, "c").normal(size=60)
    clusters = np.repeat(np.arange(60), 4)
    assert detectable_at(mean_pilot(np.repeat(a, 4), clusters=clusters), 240) == pytest.approx(float(detectable_at(mean_pilot(a), 60)))


def test_a_distance_against_zero_falls_like_one_over_n():
    rows, = simulations.clouds(rng(0, "zero"), 80, (0.3,))
    pilot = equality_pilot(simulations.MMD, rows, reps=199)
    assert detectable_at(pilot, 160) == pytest.approx(float(detectable_at(pilot, 80))/2)
    assert any("influences vanish" in note for note in power(pilot).notes)
    with pytest.raises(InputError, match="needs 1000 relabelings"): power(pilot, alpha=0.001)


def test_equal_sets_are_said_to_be_degenerate():
    "Two systems whose sets have the reference's own distribution: the plan says that influences vanish there."
    pilot = metric_pilot(simulations.FD, *simulations.clouds(rng(0, "equal"), 200, (0.0, 0.0)))
    assert any("influences vanish" in note for note in pilot.notes)


def test_a_small_pilot_says_so():
    assert any("known to ±" in note for note in power(mean_pilot(rng(0, "small").normal(size=30)), wished=0.1).notes)
    assert not power(mean_pilot(rng(0, "large").normal(size=5000)), wished=0.1).notes


@pytest.mark.parametrize("call, says", [
    (lambda: mean_pilot([1.0, 2.0, 4.0]), "four items"), (lambda: mean_pilot([1.0]*9), "nothing varies"), (lambda: mean_pilot([1, 2, np.nan, 3, 4.0]), "finite"),
    (lambda: mean_pilot([1, 2, 3, 4.0], [1, 2, 3.0]), "same items"),
    (lambda: power(mean_pilot([1, 2, 3, 5.0]), wished=-1), "greater than 0"), (lambda: power(mean_pilot([1, 2, 3, 5.0]), wished=1e-300), "more than 1,000,000,000,000 items"),
    (lambda: power(mean_pilot([1, 2, 3, 5.0]), wished=float("nan")), "greater than 0"), (lambda: power(mean_pilot([1, 2, 3, 5.0]), power=1.0), "share between"),
    (lambda: influence_pilot("x", 0.0, [(np.array([np.inf, 1, 2, 3]), None)], 4, "{}"), "not finite")])
def test_what_cannot_be_planned_is_said_in_one_line(call, says):
    with pytest.raises(InputError, match=says) as error: call()
    assert "\n" not in str(error.value)


def test_sentence_reads_aloud():
    pilot = influence_pilot("bleu", 0.0, [(np.tile([-6.4, 6.4], 250), None)], 500, "a difference in bleu of {}", paired=True)
    assert str(power(pilot, wished=0.3)) == ("With these 500 items a difference in bleu of 0.8 or more would be noticed 8 times out of 10; "
                                             "to notice 0.3 you need about 3,600.")
    assert "would do" in str(power(pilot, wished=2.0)) and "9 times out of 10 (among 4 comparisons)" in str(power(pilot, power=0.9, comparisons=4))


def test_curve_and_figure_hold_the_plan():
    plan = power(mean_pilot(rng(0, "curve").normal(size=200)), wished=0.05)
    at = plan.curve.set_index("n")["mdd"]
    assert at[plan.n] == pytest.approx(plan.mdd) and at[plan.n_needed] <= 0.05 and at.is_monotonic_decreasing
    assert plan.to_dict()["n_needed"] == plan.n_needed and "n:200" in plan.to_dict()["signature"]
    assert len(power_figure(plan).axes[0].lines) == 3


@pytest.fixture(scope="module")
def scores():
    draw = torch.Generator().manual_seed(0)
    truth = torch.rand(40, 3, 16, 16, generator=draw)
    return score({s: (truth + k*torch.randn(truth.shape, generator=draw)).clamp(0, 1) for s, k in (("a", 0.2), ("b", 0.21))}, truth,
                 ["psnr", "ssim", "mmd"], reps=100)


def test_detectable_beside_a_score(scores):
    rows = detectable(scores, "a", "b", wished=0.01)
    gap = scores["a"]["psnr"].per_item - scores["b"]["psnr"].per_item
    assert rows[0]["detectable"] == pytest.approx(gap.std(ddof=1)/40**0.5*float(_detectable_errors(0.8, 0.05, 39)))
    assert [r["metric"] for r in rows] == ["psnr", "ssim", "mmd"] and all(r["needed"] > 3 for r in rows)
    assert "nothing varies" in detectable(scores, "a", "a")[0]["sentence"]


def test_files_are_matched_by_name(tmp_path):
    def stored(name, names, seed):
        rows = [dict(system=name, metric="psnr", item=i, name=k, value=v) for i, (k, v) in enumerate(zip(names, rng(seed, "f").normal(size=len(names))))]
        save_results(pd.DataFrame(rows), tmp_path/f"{name}.parquet")
        return tmp_path/f"{name}.parquet"
    names = [f"{k}.png" for k in range(30)]
    a, b, c = stored("a", names, 0), stored("b", names[::-1], 1), stored("c", names[3:], 2)
    value = {f: pd.read_parquet(f).set_index("name")["value"] for f in (a, b)}
    assert file_pilots(a, b)[0].sd == pytest.approx((value[a] - value[b]).std())
    with pytest.raises(InputError, match="3 items are in one file only: 0.png, 1.png, 2.png"): file_pilots(a, c)
    assert file_pilots(a, c, paired=False)[0].paired is False
    with pytest.raises(InputError, match="bleu"): file_pilots(a, b, metrics=["bleu"])


def test_planned_from_texts():
    refs = [f"the {a} dog sees {b} cats near the {c} house" for a in ("old", "red", "big") for b in ("two", "three", "no") for c in ("tall", "small")]
    worse = [r.replace("near", "by") if i % 3 else r for i, r in enumerate(refs)]
    plan, = plan_systems({"a": refs, "b": worse}, refs, ["bleu"], wished=1.0)
    assert plan.paired and plan.n == 18 and plan.n_needed > 18
    with pytest.raises(InputError, match="one system or two"): plan_systems(dict.fromkeys("abc", refs), refs, ["bleu"])


def null_pair(draw, seeds: int, spread: float, n: int = 60, reps: int = 60):
    "Two equal recipes: one expected value, deviations of seeds, of items, and of both."
    hard, weights = draw.normal(size=n), bootstrap_weights(n, reps, draw)/n
    def recipe():
        d = hard + spread*draw.normal(size=(seeds, 1)) + draw.normal(size=(seeds, n))
        return np.concatenate([d.mean(1, keepdims=True), d @ weights.T], 1)
    return recipe(), recipe()


def alarms(seeds: int, spread: float, reps: int) -> int:
    draw = rng(0, "alarms", seeds, spread)
    found = [mean_over_seeds(a - b)[1] for a, b in (null_pair(draw, seeds, spread) for _ in range(reps))]  # p < .05 where 0 is outside: shown below
    return sum(not ci.low <= 0 <= ci.high for ci in found)


@pytest.mark.parametrize("seeds", [3, 5])
def test_equal_recipes_are_rarely_called_different(seeds):
    "False positives at most 5 %, for seeds that scatter much (the worst case)."
    not_above(alarms(seeds, 1.0, 1000), 1000, 0.05, f"{seeds} seeds")


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("spread", [0.0, 0.1, 0.5, 2.0])
def test_equal_recipes_in_full(seeds, spread): not_above(alarms(seeds, spread, 8000), 8000, 0.05, f"{seeds} seeds, {spread}")


def test_p_and_interval_say_the_same():
    "p < .05 exactly where the 95 % interval leaves 0 out."
    draw = rng(0, "same")
    for _ in range(60):
        a, b = null_pair(draw, 3, 0.3, reps=50)
        moved = mean_over_seeds(a + 0.4 - b)[1]
        assert (p_over_seeds(a + 0.4 - b) < 0.05) == (not moved.low <= 0 <= moved.high)
    assert np.isnan(p_over_seeds(a[:1])) and mean_over_seeds(a)[0] == pytest.approx(a[:, 0].mean())


def test_improvements_carry_p_and_holm():
    draw = rng(0, "bank")
    bank = {(system, alpha, seed, metric): value*(1 + 0.01*draw.normal(size=51)) for system, alpha, shift in (("baseline", 0.0, 1.0), ("+depth", 1.0, 0.9))
            for seed in range(3) for metric, value in (("fd", 10.0*shift), ("psnr", 24.0))}
    table = improvement_table(bank, bank, {"fd": False, "psnr": True})
    rows = table[table["reading"] == "selected"].set_index("metric")
    assert rows.loc["fd", "p"] < 0.01 < rows.loc["psnr", "p"]
    assert rows.loc["fd", "p_holm"] == pytest.approx(min(2*rows.loc["fd", "p"], 1)) and (table["p_holm"] >= table["p"]).all()
    alone = improvement_table({k: v for k, v in bank.items() if k[2] == 0}, bank, {"fd": False})
    assert alone["p"].isna().all()


def test_a_plan_of_many_items_is_still_a_plan():
    assert 10**9 < power(mean_pilot([1, 2, 3, 5.0]), wished=1e-4).n_needed < 10**10
