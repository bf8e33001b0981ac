"Metrics beside people: published numbers on real data, the same rows and directions on both sides, and bad input said in one line."
import json
import resource
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from handmade import fails
from real_data import data_path
from scipy.stats import kendalltau, pearsonr, spearmanr

from invariant_metrics.core import InputError
from invariant_metrics.data.judgment_tables import Choices, Judgments
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.people.human import AgreeResult, agree
from invariant_metrics.metrics.metric import Rows, get_metric
from invariant_metrics.people.judged_scores import judge_scores
from invariant_metrics.people.metric_scores import MetricChoice, metric_scores
from invariant_metrics.people.score_table import replicate_statistic
from invariant_metrics.scoring.score import score

sys.path.insert(0, str(Path(__file__).parents[2]/"benchmarks"))
from exchange import swap_test  # noqa: E402


def study(items: int = 30, systems: int = 6, raters: int = 3, seed: int = 0, **more) -> Judgments:
    g = np.random.default_rng(seed)
    quality = g.normal(size=(items, systems)) + g.normal(size=systems)
    rows = [(i, f"S{s}", f"r{r}", quality[i, s] + g.normal()) for i in range(items) for s in range(systems) for r in range(raters)]
    return Judgments("study", pd.DataFrame(rows, columns=["item", "system", "rater", "score"]), **more)


def scores_of(judged: Judgments, seed: int = 1, **noise: float) -> pd.DataFrame:
    g, means = np.random.default_rng(seed), judged.scores.groupby(["item", "system"], as_index=False)["score"].mean()
    return pd.concat([means[["item", "system"]].assign(metric=m, value=means["score"] + sd*g.normal(size=len(means))) for m, sd in noise.items()])


JUDGED = study()
SCORES = scores_of(JUDGED, good=0.5, fair=2.0)


# values

def values(result: AgreeResult) -> dict: return {(r.metric, r.statistic): r.value for r in result.table.itertuples()}


def test_values_over_every_unit_are_those_of_scipy():
    human = JUDGED.scores.groupby(["item", "system"])["score"].mean().unstack()
    good = SCORES[SCORES["metric"] == "good"].set_index(["item", "system"])["value"].unstack().loc[human.index, human.columns]
    x, y = human.to_numpy(), good.to_numpy()
    found = values(agree(JUDGED, SCORES, "item", ["pearson", "spearman", "tau_b"], reps=20))
    for name, reference in (("pearson", pearsonr), ("spearman", spearmanr), ("tau_b", kendalltau)):
        assert found["good", name] == pytest.approx(reference(x.ravel(), y.ravel()).statistic, abs=1e-12)
    assert values(agree(JUDGED, SCORES, "system", reps=20))["good", "tau_b"] == pytest.approx(kendalltau(x.mean(0), y.mean(0)).statistic)
    within = np.mean([kendalltau(a, b).statistic for a, b in zip(x, y)])
    assert values(agree(JUDGED, SCORES, "within-item", "tau-b", reps=20))["good", "tau_b"] == pytest.approx(within)


def test_ratings_one_by_one_repeat_the_metric():
    each = agree(_captions(), _lengths(), "item", ["tau_c"], ratings="each", reps=50)
    rows = _captions().scores.merge(_lengths()[["item", "value"]])
    assert each.table["value"][0] == pytest.approx(kendalltau(rows["score"], rows["value"], variant="c").statistic)
    assert each.table["n_rows"][0] == 60 and each.table["n_items"][0] == 20 and each.table["n_groups"][0] == 10
    assert "ratings:each" in each.signature and each.table["value"][0] != agree(_captions(), _lengths(), "item", ["tau_c"], reps=50).table["value"][0]


def _captions() -> Judgments: # 10 pictures, two captions each, three ratings of four grades
    g = np.random.default_rng(3)
    rows = [(f"{p}#{c}", f"{r}", int(np.clip(np.round(2.5 + q + g.normal()), 1, 4)), f"{p}") for p in range(10) for c in range(2) for q in [g.normal()] for r in range(3)]
    return Judgments("captions", pd.DataFrame(rows, columns=["item", "rater", "score", "group"]))


def _lengths() -> pd.DataFrame:
    items = _captions().scores["item"].unique()
    return pd.DataFrame({"item": items, "system": "", "metric": "m", "value": np.random.default_rng(4).normal(size=len(items))})


def test_the_better_metric_is_found_and_equal_ones_share_a_letter():
    table = pd.concat([SCORES, SCORES[SCORES["metric"] == "good"].assign(metric="again", value=lambda f: f["value"] + 1e-3*np.random.default_rng(0).normal(size=len(f)))])
    result = agree(JUDGED, table, "item", ["pearson"], reps=200)
    assert result.ranks.set_index("metric")["letters"].to_dict() == {"good": "a", "again": "a", "fair": "b"} and result.ranks["rank"].tolist() == [1, 2, 3]
    pair = result.comparisons.set_index(["metric_a", "metric_b"]).loc[("good", "fair")]
    assert pair["difference"] > 0 and pair["ci_low"] > 0 and 0 < pair["p"] <= pair["p_bh"] <= pair["p_holm"] < 0.05
    assert (result.table["ci_low"] < result.table["value"]).all() and (result.table["value"] < result.table["ci_high"]).all()


# directions

def test_a_penalty_and_a_metric_of_errors_are_turned_and_the_table_says_so():
    penalty = Judgments("p", JUDGED.scores.assign(score=-JUDGED.scores["score"]), higher_is_better=False)
    errors = SCORES[SCORES["metric"] == "good"].assign(metric="ter", value=lambda f: -f["value"])
    result, plain = agree(penalty, errors, statistics=["pearson"], reps=20), agree(JUDGED, SCORES, statistics=["pearson"], reps=20)
    assert result.table["turned"].tolist() == [True] and result.table["value"][0] == pytest.approx(values(plain)["good", "pearson"])
    assert "human scores are turned: less was better" in result.notes and result.ledger["direction"].tolist() == ["lower is better"]


def test_an_unknown_metric_that_points_the_wrong_way_is_reported_and_not_flipped():
    wrong = SCORES.assign(value=lambda f: np.where(f["metric"] == "good", -f["value"], f["value"]))
    result = agree(JUDGED, wrong, statistics=["pearson"], reps=50)
    assert values(result)["good", "pearson"] < -0.5 and not result.table["turned"].any()
    assert [n for n in result.notes if n.startswith("good points the wrong way: pearson -0.")] and not [n for n in result.notes if n.startswith("fair")]
    turned = agree(JUDGED, wrong, statistics=["pearson"], lower=["good"], reps=50)
    assert values(turned)["good", "pearson"] > 0.5 and turned.table.set_index("metric")["turned"].to_dict() == {"good": True, "fair": False} and not turned.notes
    assert "unknown metric 'goood'; did you mean good" in fails(agree, JUDGED, wrong, lower=["goood"])


def test_whoever_made_the_table_knows_its_direction_better_than_a_card():
    upward, down = (SCORES[SCORES["metric"] == "good"].assign(metric=name, value=lambda f: sign*f["value"]) for name, sign in (("ter", 1), ("bleu", -1)))
    table = pd.concat([upward, down])
    blind = values(agree(JUDGED, table, statistics=["pearson"], reps=20))
    assert blind["ter", "pearson"] < -0.5 and blind["bleu", "pearson"] < -0.5
    told = agree(JUDGED, table, statistics=["pearson"], lower=["bleu"], higher=["ter"], reps=20)
    assert values(told)["ter", "pearson"] > 0.5 and values(told)["bleu", "pearson"] > 0.5
    assert told.table.set_index("metric")["turned"].to_dict() == {"ter": False, "bleu": True}
    assert told.ledger.set_index("metric")["direction"].to_dict() == {"ter": "higher is better, as you said, against its card",
                                                                      "bleu": "lower is better, as you said, against its card"}
    assert told.notes[:2] == ["bleu: its card says that higher is better, and you say lower; yours is used",
                              "ter: its card says that lower is better, and you say higher; yours is used"]
    plain = agree(JUDGED, SCORES, statistics=["pearson"], higher=["good"], reps=20)
    assert plain.ledger["direction"].tolist() == ["higher is better, as you said", "not known, taken as higher"] and not plain.notes
    assert "ter is named in both lower and higher" in fails(agree, JUDGED, table, lower=["ter"], higher=["ter"])
    assert "unknown metric 'tre'; did you mean ter" in fails(agree, JUDGED, table, higher=["tre"])


def test_statistics_with_a_gap():
    found = values(agree(JUDGED, SCORES, statistics=["wmt-like:0.5"], reps=20))
    assert found["good", "wmt_like:0.5"] > found["fair", "wmt_like:0.5"] > 0
    assert "the gap of 'wmt_like:much' is not a positive number" in fails(agree, JUDGED, SCORES, statistics=["wmt_like:much"])


# the same outputs

def test_systems_are_averaged_over_the_same_items():
    "Judgments of systems: metric good lacks the items 3-9 of S0. Its mean would be one of other items than everybody else's."
    whole = Judgments("whole", JUDGED.scores.groupby("system", as_index=False)["score"].mean())
    holes = (SCORES["metric"] == "good") & (SCORES["system"] == "S0") & SCORES["item"].isin([str(i) for i in range(3, 10)])
    options = dict(unit="system", statistics=["pearson"], generalize="systems", reps=50)
    said = fails(agree, whole, SCORES[~holes], **options)
    assert "good lacks 7 of 180 outputs (3 of S0, 4 of S0" in said and "intersect=True (--intersect) keeps the 23 items that all have" in said
    found = agree(whole, SCORES[~holes], intersect=True, **options)
    same = agree(whole, SCORES[~SCORES["item"].isin([str(i) for i in range(3, 10)])], **options)
    assert values(found) == values(same) and "the 23 items that all have are used" in found.notes[0]
    absent = (SCORES["system"] == "S0") & (SCORES["item"] == "3")
    assert "good lacks 1 of 180 outputs (3 of S0); fair lacks 1" in fails(agree, whole, SCORES[~absent], **options), "missing from all metrics alike"
    means = SCORES[SCORES["metric"] == "fair"].groupby("system", as_index=False)["value"].mean().assign(item="", metric="mean")
    both = agree(whole, pd.concat([SCORES, means]), **options)
    assert values(both)["mean", "pearson"] == pytest.approx(values(both)["fair", "pearson"]), "means of systems beside scores of items"
    assert "fair has scores of items and of whole systems" in fails(agree, whole, pd.concat([SCORES, means.assign(metric="fair")]), **options)


def _written(items: int = 12, systems: int = 6) -> Judgments: # what systems wrote, and people who like the first ones
    g, words = np.random.default_rng(0), "a dog runs over the green grass and sleeps under a tree all day".split()
    rows = [(i, f"S{s}", " ".join(w if g.random() > 0.08*s else "x" for w in g.permutation(words)[:8])) for i in range(items) for s in range(systems)]
    outputs = pd.DataFrame(rows, columns=["item", "system", "output"])
    outputs["references"] = [(" ".join(words[i % 4:i % 4 + 8]),) for i in outputs["item"]]
    return Judgments("toy", outputs[["item", "system"]].assign(score=-outputs["system"].str[1:].astype(float) + g.normal(size=len(outputs))), outputs=outputs)


def _corpus_correlation(judged: Judgments, name: str, drawn) -> float: # with outputs written down as often as they were drawn, and scored afresh
    outputs, metric = judged.outputs.set_index(["item", "system"]), get_metric(name)
    human = judged.scores.set_index(["item", "system"])["score"]
    x, y = [], []
    for system in judged.outputs["system"].unique():
        kept = [(item, system) for item in drawn if (item, system) in human.index]
        rows = metric.compare(metric.phi(list(outputs.loc[kept, "output"]), [list(r) for r in outputs.loc[kept, "references"]]))
        x.append(human.loc[kept].mean())
        y.append(metric.statistic(Rows(rows))*(1 if metric.higher_is_better else -1))
    return pearsonr(x, y).statistic


def test_systems_have_one_statistic_whatever_the_interval_is_about():
    "Corpus values by default, recomputed exactly in each draw: as if the drawn outputs were scored afresh."
    judged = _written()
    options = dict(unit="system", statistics=["pearson"], reps=50)
    found = {about: agree(judged, ["bleu", "chrf", "ter"], generalize=about, **options) for about in ("items", "systems", "both")}
    assert values(found["items"]) == values(found["systems"]) == values(found["both"])
    means = {about: agree(judged, ["bleu", "chrf", "ter"], generalize=about, pool="mean", **options) for about in ("items", "systems", "both")}
    assert values(means["items"]) == values(means["systems"]) == values(means["both"]) != values(found["items"])
    for results, word, other in ((found, "corpus", "mean"), (means, "mean", "corpus")):
        for result in results.values():
            assert f"|pool:{word}|" in result.signature and any(f"pool='{other}' (--pool {other})" in note and "bleu, chrf, ter" in note for note in result.notes)
    judged_scores = judge_scores(judged, metric_scores(judged, ["bleu", "ter"]), "system")
    drawn = np.random.default_rng(1).integers(0, 12, (4, 12))
    weights = np.stack([np.bincount(row, minlength=12) for row in drawn])
    codes = {code: item for code, item in enumerate(sorted(map(str, range(12))))} # groups are numbered in the order of their names
    replicates = replicate_statistic(judged_scores.views["system"], "pearson", "system", groups=weights)
    for r, row in enumerate(drawn):
        names = [codes[c] for c in row]
        assert replicates[:, r] == pytest.approx([_corpus_correlation(judged, name, names) for name in ("bleu", "ter")], abs=1e-9)
    assert values(found["items"])["bleu", "pearson"] == pytest.approx(_corpus_correlation(judged, "bleu", list(codes.values())), abs=1e-9)


def test_corpus_values_are_of_the_outputs_that_people_judged():
    judged, options = _written(), dict(unit="system", statistics=["pearson"], generalize="systems", reps=50)
    part = Judgments("toy", judged.scores[(judged.scores["item"].astype(int) > 3) | (judged.scores["system"] != "S0")], outputs=judged.outputs)
    assert "4 outputs with scores were not judged (0 of S0, 1 of S0, 2 of S0, 3 of S0)" in fails(agree, part, ["chrf"], **options)
    kept = agree(part, ["chrf"], intersect=True, **options)
    assert "pool:corpus" in kept.signature and kept.table["n_rows"].tolist() == [68]
    assert kept.table["value"][0] == pytest.approx(_corpus_correlation(part, "chrf", [str(i) for i in range(12)]), abs=1e-9)
    whole = Judgments("whole", judged.scores.groupby("system", as_index=False)["score"].mean(), outputs=judged.outputs)
    assert values(agree(whole, ["chrf"], **options)) == pytest.approx(values(agree(judged, ["chrf"], **options)))
    assert "has no effect over unit 'item'" in fails(agree, judged, ["chrf"], pool="mean")
    assert "unknown way to pool items 'sum'" in fails(agree, judged, ["chrf"], "system", pool="sum")
    assert "none of these metrics has a corpus value" in fails(agree, JUDGED, SCORES, "system", pool="corpus")
    assert "corpus values have no part in it" in " ".join(agree(judged, ["chrf"], "system", ["soft-accuracy"], reps=20).notes)
    with pytest.raises(InputError, match="corpus values are made of more"):
        swap_test(judge_scores(judged, metric_scores(judged, ["chrf", "bleu"]), "system").views["system"], "chrf", "bleu", unit="system")


def test_document_frequencies_are_those_of_score():
    "CIDEr-D weighs words by the items whose references have them; six systems on the same items are not six times as many items."
    judged = _written()
    found = metric_scores(judged, ["cider-d"]).wide()["cider-d"]
    for system, part in judged.outputs.groupby("system"):
        scored = score(list(part["output"]), [list(r) for r in part["references"]], ["cider-d"])
        assert found.xs(system, level="system").mean() == pytest.approx(scored["cider-d"].value, abs=1e-9)


def test_single_ratings_of_systems():
    "Over items each rating is a row, drawn with its item; elsewhere an output counts once and one line says so."
    found = agree(JUDGED, SCORES, "item", ["spearman"], ratings="each", reps=50)
    rows = JUDGED.scores.merge(SCORES[SCORES["metric"] == "good"])
    assert values(found)["good", "spearman"] == pytest.approx(spearmanr(rows["score"], rows["value"]).statistic)
    assert found.table[["n_rows", "n_items", "n_systems", "n_groups"]].iloc[0].tolist() == [540, 30, 6, 30]
    assert agree(JUDGED, SCORES, "item", ["spearman"], "both", ratings="each", reps=50).table["n_rows"][0] == 540
    for unit in ("system", "within-item"):
        assert f"over unit '{unit}' each counts once; use ratings='mean' or unit='item'" in fails(agree, JUDGED, SCORES, unit, ratings="each")


def test_missing_scores_are_listed_and_refused():
    less = SCORES[~((SCORES["metric"] == "fair") & (SCORES["item"] == "3"))]
    said = fails(agree, JUDGED, less)
    assert "fair lacks 6 of 180 judged outputs (3 of S0, 3 of S1, 3 of S2, 3 of S3, 3 of S4, … (6 in all)); intersect=True (--intersect) keeps the 174" in said
    found = agree(JUDGED, less, intersect=True, reps=20)
    assert found.table["n_rows"].tolist() == [174]*6 and found.notes[0].endswith("the 174 that all have are used")
    more = pd.concat([SCORES, SCORES.head(1).assign(item="99")])
    assert "2 outputs with scores were not judged (99 of S0, 99 of S5)" in fails(agree, JUDGED, pd.concat([more, SCORES.tail(1).assign(item="99")]))
    assert "they have none in common" in fails(agree, JUDGED, SCORES.assign(item=SCORES["item"] + "x"), intersect=True)
    assert "no scores; all are blank" in fails(agree, JUDGED, SCORES.assign(value=np.nan))
    assert "a second row of item" in fails(agree, JUDGED, pd.concat([SCORES, SCORES.head(1)]))


# too little or nothing to compare

def test_bad_input_is_said_with_its_name():
    assert "good: all 180 scores are 1; a constant column" in fails(agree, JUDGED, SCORES.assign(value=np.where(SCORES["metric"] == "good", 1.0, SCORES["value"])))
    tied = Judgments("tied", JUDGED.scores.assign(score=3.0))
    assert "human: all 180 scores are 3" in fails(agree, tied, SCORES)
    three = study(items=3)
    assert "3 independent items are too few" in fails(agree, three, scores_of(three, m=1.0))
    few_systems = study(systems=3)
    assert "3 independent systems are too few" in fails(agree, few_systems, scores_of(few_systems, m=1.0), "system", generalize="systems")
    assert "study holds ratings, and unit 'choice' is for choices between two" in fails(agree, JUDGED, SCORES, "choice")
    assert "unknown unit 'segment'" in fails(agree, JUDGED, SCORES, "segment")
    assert "unknown statistic 'tau'" in fails(agree, JUDGED, SCORES, "item", ["tau"])
    assert "logistic_pearson has no unit within-item" in fails(agree, JUDGED, SCORES, "within-item", ["logistic-pearson"])
    assert "unknown way to treat ratings 'all'" in fails(agree, JUDGED, SCORES, ratings="all")
    assert "no metric scores came with study" in fails(agree, JUDGED)
    assert "study has no outputs to run bleu on" in fails(agree, JUDGED, ["bleu"])
    assert "the unit system needs systems" in fails(agree, _captions(), _lengths(), "system")


def test_judgments_of_whole_systems_have_one_unit():
    means = JUDGED.scores.groupby("system", as_index=False)["score"].mean()
    whole = Judgments("whole", means)
    found = agree(whole, SCORES, "system", ["pearson"], generalize="systems", reps=100)
    assert found.table["value"].tolist() == pytest.approx(agree(JUDGED, SCORES, "system", ["pearson"], generalize="systems", reps=100).table["value"].tolist())
    assert "judgments are of whole systems; unit='system'" in fails(agree, whole, SCORES)


# ceilings are an extra

def test_raters_who_disagree_cost_the_ceiling_and_not_the_result():
    spoken, expected = [], []
    for seed in range(20):
        g = np.random.default_rng(seed)
        rows = pd.DataFrame([(i, f"r{r}", g.normal()) for i in range(20) for r in range(3)], columns=["item", "rater", "score"])
        judged = Judgments("noise", rows)
        result = agree(judged, scores_of(judged, m=1.0, n=1.0), reps=20)
        assert len(result.table) == 6 and set(result.ceiling["what"]) >= {"ceiling", "one rater with the mean of the others"}
        spoken.append(any(n.startswith("no number of raters by pearson for m, n: the raters do not agree more than chance") for n in result.notes))
        x = rows["score"].to_numpy().reshape(20, 3)
        expected.append(3*x.mean(1).var(ddof=1) <= x.var(1, ddof=1).mean())
    assert spoken == expected and sum(spoken) > 4


def test_draws_of_ties_are_left_out_of_the_ceiling_and_counted():
    "Twelve items and three raters who say yes or no: in some draws a rater says one thing only."
    counted = 0
    for seed in range(6):
        g = np.random.default_rng(seed)
        rows = pd.DataFrame([(i, f"r{r}", float(g.random() < t)) for i in range(12) for t in [g.random()**2] for r in range(3)], columns=["item", "rater", "score"])
        judged = Judgments("yes or no", rows)
        for name in ("spearman", "tau_b"):
            try: result = agree(judged, scores_of(judged, m=0.3), statistics=[name], reps=200)
            except InputError as error:
                assert "replicate is not finite" not in str(error)
                continue
            counted += any(f"of 200 draws {name} is undefined; they are not used" in n for n in result.notes)
            assert result.ceiling[["value", "ci_low", "ci_high"]].notna().all(None)
    assert counted > 2


def test_three_items_of_ten_systems_have_a_result_and_no_ceiling():
    judged = study(items=3, systems=10, raters=2)
    result = agree(judged, scores_of(judged, m=1.0), generalize="systems", reps=50)
    assert len(result.table) == 3 and not len(result.ceiling)
    assert "no ceiling for pearson: 3 independent items are too few for an interval; at least 4 are needed" in result.notes


def test_a_metric_that_is_constant_where_raters_are_several():
    once = JUDGED.scores[(JUDGED.scores["rater"] == "r0") | JUDGED.scores["item"].isin(list("01234"))]
    flat = SCORES.assign(value=np.where(SCORES["item"].isin(list("01234")) & (SCORES["metric"] == "fair"), 1.0, SCORES["value"]))
    result = agree(Judgments("some twice", once), flat, statistics=["pearson"], reps=50)
    assert result.ceiling[result.ceiling["what"] == "worth raters"]["metric"].tolist() == ["good"]
    assert "no number of raters by pearson for fair: the metric is constant; it replaces nobody" in result.notes


# choices

def test_unanimous_choices_of_kinds_in_turn():
    "A, B, A, B, ...: turning every other row around would turn all of B and nothing of A."
    n, g = 40, np.random.default_rng(0)
    lead = g.normal(1, 1, n)
    table = pd.DataFrame({"item": np.arange(n), "first": "a", "second": "b", "category": np.tile(["A", "B"], n//2), "votes_first": 1, "votes": 1})
    scores = lambda v: pd.concat([pd.DataFrame({"item": np.arange(n).astype(str), "system": side, "metric": "m", "value": x}) for side, x in (("first", v), ("second", 0.0))])
    result = agree(Choices("pairs", table), scores(lead), statistics=["choice"], reps=50)
    assert result.table["unit"].tolist() == ["choice", "choice, A", "choice, B"] and not [n for n in result.notes if "not shown" in n]
    assert result.table["value"].tolist() == pytest.approx([(lead > 0).mean(), (lead[::2] > 0).mean(), (lead[1::2] > 0).mean()])
    in_turn = Choices("pairs", table.assign(votes_first=np.arange(n)//2 % 2))
    signed = scores(np.where(np.arange(n)//2 % 2, lead, -lead))
    assert agree(in_turn, signed, statistics=["choice"], reps=50).table["value"].tolist() == pytest.approx(result.table["value"].tolist()), "winners first in every other row of a kind"


def test_a_kind_of_pairs_that_says_nothing_is_left_out_with_a_note():
    n, g = 40, np.random.default_rng(0)
    table = pd.DataFrame({"item": np.arange(n), "first": "a", "second": "b", "category": np.where(np.arange(n) < 30, "A", "B"), "votes_first": 1, "votes": 1})
    lead = np.where(np.arange(n) < 30, g.normal(1, 1, n), 0.0)
    scores = pd.concat([pd.DataFrame({"item": np.arange(n).astype(str), "system": side, "metric": "m", "value": v}) for side, v in (("first", lead), ("second", 0.0))])
    result = agree(Choices("pairs", table), scores, statistics=["choice"], reps=50)
    assert result.table["unit"].tolist() == ["choice", "choice, A"]
    assert [n for n in result.notes if n.startswith("choice is not shown for choice, B: m: all 10 scores are")]
    assert "m: all 40 scores are 0" in fails(agree, Choices("pairs", table), scores.assign(value=0.0))


def test_choices_overall_and_by_kind():
    g = np.random.default_rng(0)
    n, truth = 80, np.random.default_rng(1).normal(size=80)
    votes = g.binomial(11, 1/(1 + np.exp(-2*truth)))
    choices = Choices("pairs", pd.DataFrame({"item": np.arange(n), "first": "a", "second": "b", "category": np.where(np.arange(n) < 40, "HC", "MM"), "votes_first": votes, "votes": 11}))
    lead = truth + 0.5*g.normal(size=n)
    scores = pd.concat([pd.DataFrame({"item": np.arange(n).astype(str), "system": side, "metric": "m", "value": v}) for side, v in (("first", lead), ("second", 0.0))])
    result = agree(choices, scores, reps=50)
    expected = np.mean(np.where(votes*2 > 11, lead > 0, lead < 0))
    found = {(r.unit, r.statistic): r.value for r in result.table.itertuples()}
    assert found["choice", "choice"] == pytest.approx(expected)
    assert found["choice", "two_afc"] == pytest.approx(np.mean(np.where(lead > 0, votes/11, 1 - votes/11)))
    assert found["choice", "choice"] == pytest.approx((found["choice, HC", "choice"] + found["choice, MM", "choice"])/2)
    assert (result.table["chance"] == 0.5).all()


def test_foils_with_a_metric_that_is_run():
    rows = [{"item": i, "first": f"a dog runs {i}", "second": f"a cat runs {i}", "votes_first": 1, "votes": 1, "references": (f"the dog runs {i}",)} for i in range(12)]
    result = agree(Choices("foil", pd.DataFrame(rows)), ["bleu-1", "ter"], reps=20)
    assert result.table["value"].tolist() == [1.0]*4 and result.table.set_index("metric")["turned"].to_dict() == {"bleu-1": False, "ter": True}


# keeping

def test_a_result_survives_its_folder_and_runs_repeat(tmp_path):
    result = agree(JUDGED, SCORES, reps=30)
    back = AgreeResult.load(result.save(tmp_path/"agreement"))
    for name in ("table", "comparisons", "ranks", "ceiling", "ledger"):
        pd.testing.assert_frame_equal(getattr(back, name), getattr(result, name), check_dtype=False)
    assert (back.signature, back.notes) == (result.signature, result.notes)
    again, other = agree(JUDGED, SCORES, reps=30), agree(JUDGED, SCORES, reps=30, seed=1)
    pd.testing.assert_frame_equal(again.table, result.table)
    assert other.signature != result.signature and other.table["value"].tolist() == result.table["value"].tolist()
    assert result.table["signature"].is_unique and "no finished agreement study in" in fails(AgreeResult.load, tmp_path)


def test_a_result_is_written_as_a_whole_or_not_at_all(tmp_path):
    "Files that may not grow beyond a size stand for a full disk: the first tables would fit and the last one would not."
    result = agree(JUDGED, SCORES, reps=30)
    sizes = sorted(p.stat().st_size for p in result.save(tmp_path/"whole").iterdir())
    before = {p.name: p.read_bytes() for p in (tmp_path/"whole").iterdir()}
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    other = agree(JUDGED, SCORES, reps=31)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[-1] - 1, old[1]))
        said = [fails(other.save, folder) for folder in (tmp_path/"new", tmp_path/"whole")]
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert all("cannot write the result into" in line and "File too large; nothing of it was written" in line for line in said), said
    assert not (tmp_path/"new").exists() and {p.name: p.read_bytes() for p in (tmp_path/"whole").iterdir()} == before


# real data

def test_flickr8k_from_the_captions_themselves():
    "tau_c x 100 over 16,992 single ratings: BLEU-1 32.324, BLEU-4 30.776, ROUGE-L 32.314, CIDEr-D 43.891."
    judged = load_judgments(data_path("flickr8k_expert"))
    result = agree(judged, ["bleu-1", "bleu-4", "rouge-l", "cider-d", "METEOR"], statistics=["tau_c"], ratings="each", reps=20)
    found = (100*result.table.set_index("metric")["value"]).to_dict()
    assert found == pytest.approx({"bleu-1": 32.324, "bleu-4": 30.776, "rouge-l": 32.314, "cider-d": 43.891, "METEOR": 41.822}, abs=0.03)
    assert result.ranks["metric"].tolist()[:2] == ["cider-d", "METEOR"] and result.table["n_groups"].unique().tolist() == [1000]


def test_wmt17_published_column():
    result = agree(load_judgments(data_path("wmt/newstest2017_deen_seg_da.jsonl")), None, statistics=["pearson"], reps=100)
    assert result.table["value"][0] == pytest.approx(0.4325, abs=5e-5) and result.table["n_rows"][0] == 560


def test_realsumm_means_and_agreement_of_systems():
    expected = json.loads(data_path("expected_parts.json").read_text())["realsumm_column_means"]
    judged = load_judgments(data_path("summarization/realsumm_outputs.jsonl.gz"))
    scores = metric_scores(judged)
    assert scores.table.groupby("metric")["value"].mean().round(6).to_dict() == {k: v for k, v in expected.items() if k != "litepyramid_recall"}
    result = agree(judged, scores, "system", ["tau_b"], generalize="systems", reps=100)
    assert result.table.set_index("metric")["value"].idxmax() == "rouge_2_recall"


def test_ted_systems_by_corpus_values():
    judged = load_judgments(data_path("wmt/ted2021_ende_mqm.jsonl.gz"))
    scores = metric_scores(judged, ["bleu"])
    found = {(about, pool): agree(judged, scores, "system", ["pearson"], generalize=about, pool=pool, reps=50)
             for about in ("items", "systems", "both") for pool in (None, "mean")}
    by = {key: result.table["value"][0] for key, result in found.items()}
    assert by["items", None] == by["systems", None] == by["both", None] > by["items", "mean"] + 0.1, "the mean over sentences is another metric"
    assert "pool:corpus" in found["items", None].signature and "pool:mean" in found["items", "mean"].signature
    assert found["items", None].table[["n_items", "n_systems"]].iloc[0].tolist() == [300, 13]


def test_options_reach_the_metrics_that_are_run_and_their_notes_come_back():
    table = pd.DataFrame([(i, s) for i in range(4) for s in "AB"], columns=["item", "system"])
    said = [f"a {w} on the {p} ." for w in ("dog", "cat", "boat", "child") for p in ("beach", "wall")]
    outputs = table.assign(output=said, references=[(text.replace("on", "near") if k % 3 else text,) for k, text in enumerate(said)])
    judged = Judgments("x", table.assign(score=range(len(table))), outputs=outputs)
    found = agree(judged, ["cider-d"], "item", ["pearson"], reps=20, metric_options={"sigma": 3.0})
    assert "sigma:3.0" in "".join(metric_scores(judged, MetricChoice(["cider-d"], options={"sigma": 3.0})).signatures.values())
    assert [note for note in found.notes if note.startswith("cider-d") and "frequencies are those of these 4 items" in note], found.notes
    assert "long has no effect: these scores come from a table" in fails(agree, JUDGED, SCORES, metric_options={"long": "cut"})
    assert "long has no effect on bleu" in fails(agree, judged, ["bleu"], metric_options={"long": "cut"})


def test_a_metric_without_references_or_sources_says_so():
    judged = Judgments("x", pd.DataFrame({"item": range(5), "score": range(5)}), outputs=pd.DataFrame({"item": range(5), "output": list("abcde")}))
    assert "5 of 5 outputs have no reference: 0, 1, 2, 3, 4; bleu needs them" in fails(metric_scores, judged, ["bleu"])
    assert "fbd compares whole sets" in fails(metric_scores, judged, ["fbd"]) and "psnr looks at images" in fails(metric_scores, judged, ["psnr"])
