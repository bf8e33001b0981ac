"""Measurement theory's four questions: every coefficient computed a second time in plain steps, on drawn and on real judgments;
intervals beside leaving one out by hand; what does not fit; and the command."""
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import f as fisher
from scipy.stats import kendalltau, pearsonr
from scipy.stats import t as student

from commands import cli
from handmade import fails
from real_data import data_path
from invariant_metrics.core import rng
from invariant_metrics.data.judgment_tables import Choices, Judgments
from invariant_metrics.people.agreement import AgreementDesign
from invariant_metrics.people.measurement import _AGAIN, consistency, _construct_rows, _check_methods, cronbach_alpha
from invariant_metrics.people.measurement import load_criteria, measurement, _score_cube, _stability_rows
from invariant_metrics.people.statistics import AGREEMENTS

RESULTS = Path(__file__).parents[2]/"nbs"/"results"


def spearman_brown(r: float, n: float) -> float: return n*r/(1 + (n - 1)*r) # alpha of a test n times as long


def design(statistic="tau_b", generalize="items", reps=60, confidence=0.95) -> AgreementDesign:
    return AgreementDesign(AGREEMENTS[statistic], "system", generalize, reps, 0, confidence)


@pytest.fixture(scope="module")
def drawn() -> pd.DataFrame:
    "Ten systems on thirty items: two traits by two raters with a halo, three metrics."
    draw, keys = rng(0, "drawn"), pd.MultiIndex.from_product([[f"i{i:02d}" for i in range(30)], [f"s{s}" for s in range(10)]], names=["item", "system"])
    traits, halo = {t: draw.normal(0, 0.7, 10) for t in ("form", "sense")}, {r: draw.normal(0, 0.6, 10) for r in "AB"}
    frame = {f"{t}/{r}": (traits[t] + halo[r] + draw.normal(0, 1, (30, 10))).ravel() for t in traits for r in halo}
    frame |= {"near": (traits["sense"] + draw.normal(0, 1, (30, 10))).ravel(), "chance": draw.normal(0, 1, 300), "length": (draw.normal(0, 1, 10) + draw.normal(0, .3, (30, 10))).ravel()}
    return pd.DataFrame(frame, keys)


def criteria(drawn) -> dict[str, Judgments]:
    def long(trait): return pd.concat([drawn[f"{trait}/{r}"].rename("score").reset_index().assign(rater=r) for r in "AB"])
    return {trait: Judgments(trait, long(trait)) for trait in ("form", "sense")}


def matrix(column: pd.Series) -> np.ndarray: return column.unstack("system").to_numpy() # (I, S)


# alpha

def by_covariances(x: np.ndarray) -> float: # (I, S)
    C = np.cov(x)
    return len(x)/(len(x) - 1)*(1 - np.trace(C)/C.sum())


def test_alpha_is_that_of_the_covariances_and_does_not_mind_units_or_orders(drawn):
    g = rng(0, "orders")
    for name in drawn:
        x = matrix(drawn[name])
        assert cronbach_alpha(x) == pytest.approx(by_covariances(x), abs=1e-12)
        assert cronbach_alpha(3*x - 7 + g.normal(0, 5, (30, 1))) == pytest.approx(cronbach_alpha(x), abs=1e-9) # hard and easy items
        assert cronbach_alpha(x[:1].repeat(5, 0)) == pytest.approx(1) # five times the same question
        assert cronbach_alpha(x[g.permutation(30)][:, g.permutation(10)]) == pytest.approx(cronbach_alpha(x), abs=1e-12)


def test_alpha_of_groups_is_that_of_their_sums(drawn):
    x, group = matrix(drawn["near"]), np.repeat(np.arange(10), 3)
    assert cronbach_alpha(x, group) == pytest.approx(by_covariances(x.reshape(10, 3, 10).sum(1)), abs=1e-12)
    copies = np.repeat(x, 4, 0) # four copies of an item agree with one another, and tell nothing new
    assert cronbach_alpha(copies) > cronbach_alpha(x) + 0.02
    assert cronbach_alpha(copies, np.repeat(np.arange(30), 4)) == pytest.approx(cronbach_alpha(x), abs=1e-12)


def test_items_for_a_goal_are_those_of_shorter_tests(drawn):
    x, g = matrix(drawn["near"]), rng(1, "short")
    alpha = cronbach_alpha(x)
    for n in (10, 20):
        short = np.mean([cronbach_alpha(x[g.permutation(30)[:n]]) for _ in range(400)])
        assert short == pytest.approx(spearman_brown(alpha, n/30), abs=0.02)
    found = consistency(x)
    assert spearman_brown(alpha, found.items_for(0.9)/30) == pytest.approx(0.9)
    turned = np.vstack([x, -x[:25]]) # questions that contradict one another
    assert cronbach_alpha(turned) < 0 and consistency(turned).items_for(0.9) == np.inf
    assert "between 0 and 1" in fails(found.items_for, 1)


def left_out(x: np.ndarray, axis: int, of) -> np.ndarray: return np.array([of(np.delete(x, k, axis)) for k in range(x.shape[axis])])


@pytest.mark.parametrize("generalize", ["items", "systems", "both"])
def test_intervals_are_those_of_leaving_one_out_by_hand(drawn, generalize):
    def error(x): return x.mean(0).std()*np.sqrt(1 - by_covariances(x))
    for name in ("near", "length"):
        x = matrix(drawn[name])
        found = consistency(x, generalize=generalize, confidence=0.9)
        assert found.error == pytest.approx(error(x))
        for value, ends, of in ((1 - found.alpha, (1 - found.ci[1], 1 - found.ci[0]), lambda x: 1 - by_covariances(x)), (found.error, found.error_ci, error)):
            axes = {"items": [0], "systems": [1], "both": [0, 1]}[generalize]
            parts = [np.log(left_out(x, axis, of)) for axis in axes]
            v, n = np.array([((p - p.mean())**2).sum()*(len(p) - 1)/len(p) for p in parts]), np.array([len(p) - 1 for p in parts])
            reach = np.sqrt(v.sum())*student.ppf(0.95, v.sum()**2/(v**2/n).sum())
            assert np.log(ends) == pytest.approx([np.log(value) - reach, np.log(value) + reach])


def test_the_interval_for_new_systems_is_near_that_of_normal_theory():
    "Feldt 1965: (1 − alpha)/(1 − truth) has an F distribution; a median over studies, for a single jackknife varies."
    g, ratio = rng(2, "feldt"), []
    for _ in range(200):
        x = g.normal(0, 0.5, 20) + g.normal(0, 1, (30, 20))
        found = consistency(x, generalize="systems")
        exact = np.log(fisher.ppf(0.975, 19, 19*29)/fisher.ppf(0.025, 19, 19*29))
        ratio.append(np.log((1 - found.ci[0])/(1 - found.ci[1]))/exact)
    assert np.median(ratio) == pytest.approx(1, abs=0.12)


def test_alpha_refuses_what_says_nothing(drawn):
    x = matrix(drawn["near"])
    assert "the same sum" in fails(cronbach_alpha, x - x.mean(0)) and "two of each" in fails(cronbach_alpha, x[:1])
    assert "with holes" in fails(cronbach_alpha, np.where(x > 2, np.nan, x)) and "four of each" in fails(consistency, x[:3])
    assert "did you mean systems" in fails(consistency, x, generalize="system")


# stability

def test_stability_is_the_correlation_of_means_and_of_scores(drawn):
    second = drawn["near"] + rng(3, "second").normal(0, 0.5, 300)
    cube, _ = _score_cube(drawn[["near", "length"]].assign(**{"near" + _AGAIN: second, "length" + _AGAIN: drawn["length"]}))
    rows = pd.DataFrame(_stability_rows(cube, ["near", "length"], design())).set_index(["score", "unit"])
    a, b = matrix(drawn["near"]), matrix(second)
    assert rows.loc[("near", "system"), "value"] == pytest.approx(pearsonr(a.mean(0), b.mean(0))[0])
    assert rows.loc[("near", "item"), "value"] == pytest.approx(pearsonr(a.ravel(), b.ravel())[0])
    near = rows.loc[("near", "system")]
    assert near["ci_low"] < near["value"] < near["ci_high"] <= 1
    assert rows.loc[("length", "system"), ["value", "ci_low", "ci_high", "note"]].tolist() == [1, 1, 1, "identical in both runs"]


# traits and methods

def plain_table(drawn, names) -> np.ndarray:
    means = drawn.groupby("system")[list(names)].mean()
    return np.array([[kendalltau(means[a], means[b])[0] for b in names] for a in names])


@pytest.mark.parametrize("statistic", ["tau_b", "pearson"])
def test_the_table_of_traits_and_methods(drawn, statistic):
    names = ["form/A", "form/B", "sense/A", "sense/B"]
    methods = _check_methods(pd.DataFrame([(n, *n.split("/")) for n in reversed(names)], columns=["score", "trait", "method"]), names)
    rows, pairs = _construct_rows(_score_cube(drawn)[0], methods, design(statistic))
    means = drawn.groupby("system")[names].mean()
    R = means.corr("kendall" if statistic == "tau_b" else "pearson").to_numpy()
    pairs = pd.DataFrame(pairs)
    assert len(pairs) == 10
    for p in pairs.itertuples():
        i, j = names.index(p.first), names.index(p.second)
        assert p.value == pytest.approx(by_covariances(matrix(drawn[p.first])) if p.kind == "reliability" else R[i, j]) and p.ci_low <= p.value <= p.ci_high
    kinds = pairs.set_index(["first", "second"])["kind"]
    assert kinds["form/A", "form/B"] == "convergent" and kinds["form/A", "sense/A"] == "heterotrait-monomethod" and kinds["form/A", "sense/B"] == "heterotrait-heteromethod"
    told = pd.DataFrame(rows).set_index(["score", "against"])
    same, mono, hetero = (R[0, 1] + R[2, 3])/2, (R[0, 2] + R[1, 3])/2, (R[0, 3] + R[1, 2])/2
    assert told["value"]["convergent", ""] == pytest.approx(same)
    assert told["value"]["convergent", "heterotrait-monomethod"] == pytest.approx(same - mono)
    assert told["value"]["heterotrait-monomethod", "heterotrait-heteromethod"] == pytest.approx(mono - hetero)
    larger = sum(r > v for r in (R[0, 1], R[2, 3]) for v in (R[0, 2], R[1, 3]))
    assert told["note"]["convergent", "heterotrait-monomethod"] == f"larger in {larger} of 4 comparisons"
    assert told["value"]["heterotrait-monomethod", "heterotrait-heteromethod"] > 0 # the halo


def test_tables_of_traits_and_methods_are_checked():
    def table(*rows): return pd.DataFrame(rows, columns=["score", "trait", "method"])
    assert "two at least" in fails(_check_methods, table(("a", "t", "m"), ("b", "t", "n")), "ab")
    assert "two at least" in fails(_check_methods, table(("a", "t", "m"), ("b", "u", "m")), "ab")
    assert "occurs twice" in fails(_check_methods, table(("a", "t", "m"), ("b", "t", "m"), ("c", "u", "n")), "abc")
    assert "unknown score 'd'" in fails(_check_methods, table(("d", "t", "m"), ("b", "u", "n")), ["a", "b"])
    assert "no column 'trait'" in fails(_check_methods, table(("a", "t", "m")).drop(columns="trait"), "a")


# the whole

def test_one_call_holds_all_four(drawn, tmp_path):
    wide = drawn[["near", "chance", "length"]].reset_index()
    second = wide.assign(near=wide["near"] + rng(4, "again").normal(0, 1, 300))
    found = measurement(criteria(drawn), wide, second, reps=60)
    table = found.table.set_index(["question", "score", "against", "statistic", "unit"])["value"]
    assert set(found.table["question"]) == {"stable", "consistent", "construct", "concurrent"}
    means = drawn.groupby("system").mean()
    for metric in ("near", "chance", "length"):
        for trait in ("form", "sense"):
            expected = kendalltau(means[metric], means[[f"{trait}/A", f"{trait}/B"]].mean(axis=1))[0]
            assert table["concurrent", metric, trait, "tau_b", "system"] == pytest.approx(expected)
        assert table["consistent", metric, "", "alpha", "system"] == pytest.approx(by_covariances(matrix(drawn[metric])))
    rated = drawn[["form/A", "form/B"]].mean(axis=1)
    assert table["consistent", "form", "", "alpha", "system"] == pytest.approx(by_covariances(matrix(rated)))
    assert (found.table["ci_low"] <= found.table["value"] + 1e-9).all() and (found.table["value"] <= found.table["ci_high"] + 1e-9).all()
    assert any("10 systems are few" in note for note in found.notes)
    shown = found.by_score().set_index("score")
    assert shown.loc["chance", "stability"] == "1.00" and shown.loc["form", "stability"] == "" and "[" in shown.loc["near", "tau-b with sense"]
    folder = found.save(tmp_path/"run")
    assert sorted(p.name for p in folder.iterdir()) == ["measurement.json", "pairs.parquet", "table.parquet"]
    again = measurement(criteria(drawn), wide, second, reps=60)
    pd.testing.assert_frame_equal(found.table, again.table)


def test_less_is_better_is_turned_and_methods_may_be_named(drawn):
    wide = drawn[["near", "length"]].reset_index()
    plain, turned = (measurement(criteria(drawn), wide, lower=lower, reps=20).table.set_index(["question", "score", "against"]) for lower in ((), ["near"]))
    assert plain.loc[("concurrent", "near", "sense"), "value"] == -turned.loc[("concurrent", "near", "sense"), "value"]
    penalty = {"form": Judgments("form", criteria(drawn)["form"].scores, higher_is_better=False)}
    table = measurement(penalty, wide, reps=20).table.set_index(["question", "score", "against"])
    assert table.loc[("concurrent", "near", "form"), "value"] == -plain.loc[("concurrent", "near", "form"), "value"]
    methods = pd.DataFrame([("sense", "sense", "people"), ("near", "sense", "metric"), ("form", "form", "people"), ("length", "form", "metric")], columns=["score", "trait", "method"])
    found = measurement(criteria(drawn), wide, methods=methods, reps=20)
    assert found.by_trait().shape == (4, 4) and set(found.pairs["method_first"]) == {"people", "metric"}


def test_what_cannot_be_asked_is_left_open_and_said(drawn):
    one = criteria(drawn)["form"]
    found = measurement(one, drawn[["near"]].reset_index(), reps=20)
    assert any(note.startswith("construct validity is not shown") for note in found.notes) and any(note.startswith("stability is not shown") for note in found.notes)
    assert set(measurement(one, reps=20).table["question"]) == {"consistent"}
    unnamed = {t: Judgments(t, j.scores.assign(rater="").drop_duplicates(["item", "system"])) for t, j in criteria(drawn).items()}
    assert not len(measurement(unnamed, drawn[["near"]].reset_index(), reps=20).pairs)


def test_what_does_not_fit_is_said(drawn):
    both, wide = criteria(drawn), drawn[["near"]].reset_index()
    assert "near lacks 2; intersect=True (--intersect) keeps the 29 items" in fails(measurement, both, wide.iloc[2:], reps=20)
    kept = measurement(both, wide.iloc[2:], intersect=True, reps=20)
    assert kept.table["n_items"].eq(29).all() and any("29 items that are complete are used" in note for note in kept.notes)
    assert "no item is left that is complete" in fails(measurement, both, wide[wide["system"] < "s3"], intersect=True, reps=20)
    few = {t: Judgments(t, j.scores[j.scores["system"] < "s3"]) for t, j in both.items()}
    assert "3 systems are too few to be tested" in fails(measurement, few, wide[wide["system"] < "s3"], reps=20)
    assert "no correlation of systems" in fails(measurement, both, wide, statistic="accuracy", reps=20)
    assert "rename one" in fails(measurement, both, wide.rename(columns={"near": "form"}), reps=20)
    assert "none of the metrics" in fails(measurement, both, wide, wide.rename(columns={"near": "far"}), reps=20)
    assert "no first one" in fails(measurement, both, None, wide, reps=20)
    assert "near: all systems have the same sum" in fails(measurement, both, wide.assign(near=1.0), reps=20)
    pairs = Choices("pairs", pd.DataFrame(dict(item=list("abcd"), first="x", second="y", votes_first=1, votes=2)))
    whole = Judgments("whole", pd.DataFrame(dict(system=list("abcde"), score=range(5))))
    assert "whole systems" in fails(measurement, whole, reps=20)
    assert "choices between two" in fails(load_criteria, {"pairs": pairs})


# real judgments

def test_realsumm_is_measured_as_in_plain_steps():
    "Fourteen published metrics and the people's share of content, fifty articles, twenty-five systems."
    found = measurement(data_path("summarization/realsumm_outputs.jsonl.gz"), reps=20)
    judged = load_criteria(data_path("summarization/realsumm_outputs.jsonl.gz"))["realsumm"]
    people = judged.scores.pivot(index="item", columns="system", values="score")
    table = found.table.set_index(["question", "score", "statistic"])["value"]
    assert table["consistent", "realsumm", "alpha"] == pytest.approx(by_covariances(people.to_numpy()))
    names = judged.metrics["metric"].unique()
    assert len(names) >= 14
    for name in names:
        x = judged.metrics.query("metric == @name").pivot(index="item", columns="system", values="value").loc[people.index, people.columns]
        assert table["consistent", name, "alpha"] == pytest.approx(by_covariances(x.to_numpy()))
        assert abs(table["concurrent", name, "tau_b"]) == pytest.approx(abs(kendalltau(x.mean(), people.mean())[0]), abs=1e-9)


def test_summeval_has_four_traits_by_three_experts():
    place = data_path("summarization/summeval_thumb.jsonl.gz")
    judged = load_criteria(place, ["coherence", "consistency", "fluency", "relevance"])
    found = measurement(judged, reps=50)
    assert len(found.pairs) == 78 and found.by_trait().shape == (12, 12)
    lines = {t: j.scores.pivot(index=["item", "system"], columns="rater", values="score") for t, j in judged.items()}
    means = pd.concat({t: f.groupby("system").mean() for t, f in lines.items()}, axis=1)
    for p in found.pairs.query("kind != 'reliability'").sample(12, random_state=0).itertuples():
        assert p.value == pytest.approx(kendalltau(means[p.trait_first, p.method_first], means[p.trait_second, p.method_second])[0])
    told = found.table.query("question == 'construct'").set_index(["score", "against"])["value"]
    assert told["convergent", ""] > told["heterotrait-heteromethod", ""]


def test_the_stored_numbers_are_those_of_metriceval():
    "Both programs on the same table, as `benchmarks/measurement.py` stored them; the table itself is not here."
    beside = pd.read_csv(RESULTS/"measurement_metriceval.csv")
    exact = beside[beside["question"] != "construct"]
    assert len(exact) > 500 and (exact["value"] - exact["theirs"]).abs().max() < 1e-5
    cells = beside[beside["question"] == "construct"]
    assert len(cells) == 132 and (cells["value"] - cells["theirs"]).abs().max() < 0.0051
    assert (beside["ci_low"] <= beside["value"]).all() and (beside["value"] <= beside["ci_high"]).all()


# from a shell

@pytest.fixture
def files(drawn, tmp_path):
    rated = drawn[["form/A", "form/B", "sense/A", "sense/B"]].reset_index()
    parts = [rated[["item", "system"]].assign(rater=r, form=rated[f"form/{r}"], sense=rated[f"sense/{r}"]) for r in "AB"]
    pd.concat(parts).to_csv(tmp_path/"rated.csv", index=False)
    drawn[["near", "length"]].to_csv(tmp_path/"scores.csv")
    (drawn[["near", "length"]] + [0.0, 1.0]).to_csv(tmp_path/"second.csv")
    return tmp_path


def test_the_command_prints_one_table_and_keeps_it(files, drawn):
    words = ["agree", "measurement", "rated.csv", "--aspect", "form,sense", "--metrics", "scores.csv", "--again", "second.csv", "--reps", 30]
    done = cli(*words, "--out", "run", cwd=files)
    assert done.returncode == 0 and "four questions" in done.stdout and "tau-b with sense" in done.stdout and "(same method)" in done.stdout, done.stderr
    assert (files/"run"/"measurement.json").is_file()
    told = json.loads(cli(*words, "--json", cwd=files).stdout)
    assert told["kind"] == "measurement" and {row["question"] for row in told["result"]["table"]} == {"stable", "consistent", "construct", "concurrent"}
    expected = measurement(criteria(drawn), drawn[["near", "length"]].reset_index(), reps=30).table.query("question == 'concurrent'")["value"].tolist()
    assert [row["value"] for row in told["result"]["table"] if row["question"] == "concurrent"] == pytest.approx(expected)
    done = cli(*words, "--format", "csv", cwd=files)
    assert done.stdout.startswith("question,score,against,statistic,unit,generalize,value,ci_low,ci_high,note,n_items,n_groups,n_systems")
    two = cli("agree", "measurement", "rated.csv", "rated.csv", "--reader", "score=form", "--reps", 20, cwd=files)
    assert two.returncode == 2 and "two judgments are called rated" in two.stderr


def test_the_command_refuses_in_one_line(files):
    for words, says in ((["rated.csv", "--aspect", "forn"], "forn"), (["gone.csv"], "gone.csv"), (["rated.csv", "--aspect", "form", "--statistic", "tau"], "unknown statistic"),
                        (["rated.csv", "--aspect", "form", "--metrics", "gone.csv"], "no file gone.csv"), (["rated.csv", "scores.csv", "--aspect", "form"], "aspects are of one file"),
                        (["rated.csv", "--aspect", "form", "--again", "second.csv"], "no first one"), ([], "Missing argument")):
        done = cli("agree", "measurement", *words, cwd=files)
        said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert done.returncode == 2 and len(said) == 1 and says in said[0] and done.stdout == "", (words, done.stderr)
