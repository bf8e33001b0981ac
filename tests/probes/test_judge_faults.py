"""A judge's own faults: planted ones are found with their size, and what cannot be asked is refused."""
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from invariant_metrics.core import InputError, Signature
from invariant_metrics.metrics.judge import Replies, ask_pairs, judge_metric, pair_questions, pairwise_judge
from invariant_metrics.metrics.metric import SetMetric, extract, get_metric, pixels
from invariant_metrics.probes.judge_faults import (FAULT_COLUMNS, _change, _on_some, _share, _spread, _tied, faults_report,
                                                   judge_faults)
from invariant_metrics.probes.planted_faults import likes_first, planted_pairs, planted_scores
from invariant_metrics.stats import normal, wilson
from invariant_metrics.worlds.scene_captions import relation_captions, scenes_with_captions

SCENES = scenes_with_captions(120)
CAPTIONS = {str(k): relation_captions(SCENES, k) for k in range(120)}


def holds(found, change, measure, truth):
    row = found.row(change, measure)
    assert row["low"] <= truth <= row["high"], (row, truth)
    assert row["high"] - row["low"] < 1 # and says something


def test_a_share_is_wilsons_between_the_values_that_occur():
    assert _share(np.r_[np.ones(9), 0., np.nan])[:3] == pytest.approx(wilson(.9, 10))
    assert _share(np.r_[np.ones(6), np.full(6, .5)])[1:3] == pytest.approx([.5 + end/2 for end in wilson(.5, 12)[1:]])
    value, low, high, n = _share(np.full(50, .5))
    assert value == .5 and n == 50 and .45 < low < .5 < high < .55
    assert _share(np.array([np.nan]))[1:] == (0, 1, 0) and _share(np.ones(40)).high == 1


def test_the_influences_of_a_change_are_those_of_leaving_items_out():
    draw = np.random.default_rng(0)
    texts, d = draw.normal(size=(2, 200)), draw.normal(.4, 1, 200)
    d[::3] = np.nan
    whole = _change(d, texts)
    apart = [_change(np.delete(d, i), np.delete(texts, i, 1)).value for i in range(200)]
    jackknife = np.sqrt(199/200*np.sum((np.array(apart) - np.mean(apart))**2))
    assert (whole.high - whole.low)/2/1.972 == pytest.approx(jackknife, rel=.05)
    assert whole.n == np.isfinite(d).sum() and whole.value == pytest.approx(np.nanmean(d)/texts.std(ddof=1), rel=.01)
    assert _on_some(d)[::3].tolist() == [0]*67


def test_a_spread_beyond_noise_may_be_nothing():
    draw = np.random.default_rng(2)
    texts = draw.normal(size=(1, 400))
    assert _spread(np.zeros(400), texts)[:3] == (0, 0, 0)
    nothing = _spread(draw.normal(0, 1, 400)**2 - 1, texts)
    assert nothing.low == 0 < nothing.high < .6
    some = _spread(.09*draw.normal(size=400)**2, texts)
    assert some.low < .3 < some.high


def test_ties_are_counted_over_pairs_of_texts():
    assert _tied(np.array([1, 1, 2, 3.]), np.arange(4)).value == pytest.approx(1/6)
    assert _tied(np.arange(30.), np.arange(30))[0] == 0 and _tied(np.ones(30), np.arange(30))[0] == 1


def test_planted_faults_of_a_scoring_judge_are_found():
    found = judge_faults(planted_scores(per_word=.15, noise=.3), CAPTIONS, families=["noun-swapped"])
    words = np.array([len(c.split()) for texts in CAPTIONS.values() for c in texts])
    sd = np.sqrt(1 + .15**2*words.var() + .3**2)
    holds(found, "wordy", "effect", 7*.15/sd)
    holds(found, "repeats", "spread", .3/sd)
    holds(found, "capitals", "effect", 0)
    assert found.row("references-turned", "spread")["low"] == 0 # it does not look at them, and noise is taken off
    assert not found.may_rank and "of violations, and guessing would notice 50 %" in found.sentence
    assert "likes words in front that say nothing" in found.sentence
    holds(judge_faults(planted_scores(step=1.), CAPTIONS, families=[], repeats=1), "pairs", "ties",
          (np.diff(normal.cdf(np.arange(-9, 10) - .5))**2).sum())


def test_planted_faults_of_a_pairwise_judge_are_found():
    found = judge_faults(planted_pairs(position=.1, per_word=.2), CAPTIONS, pairwise=True, families=[])
    holds(found, "first-place", "wins", .6)
    holds(found, "first-place", "turned", .2)
    holds(found, "wordy", "wins", .8*normal.cdf(1.4/2**.5) + .1)
    assert found.row("repeats", "turned")["value"] == 0
    liked = judge_faults(likes_first, CAPTIONS, pairwise=True, scale="quick")
    assert liked.name == "likes-first" and "prefers the first of two in" in liked.sentence


def test_a_judge_that_always_says_the_first_is_found_out():
    def first(questions): return Replies(np.ones(len(questions)), np.zeros(len(questions), bool))
    found = judge_faults(first, CAPTIONS, pairwise=True, scale="quick")
    assert found.row("first-place", "wins")["value"] == 1 and found.row("first-place", "turned")["value"] == 1
    assert not found.may_rank and found.plan is None


def test_numbers_of_a_plain_metric_are_those_of_its_scores():
    found = judge_faults("chrf", CAPTIONS, scale="quick")
    pairs = judge_faults("chrf", CAPTIONS, scale="quick", pairwise=True)
    for change in ("wordy", "bold", "no-text", "halved"): # a difference of scores decides, in both orders
        assert pairs.row(change, "wins")["value"] == pytest.approx(found.row(change, "wins")["value"])
    assert pairs.row("first-place", "wins")["value"] == .5 and found.row("repeats", "spread")["value"] == 0
    assert found.row("copied-reference", "effect")["verdict"] == "better" and found.row("no-text", "effect")["verdict"] == "worse"
    assert list(found.table) == FAULT_COLUMNS and found.may_rank and f"from {found.plan.n_needed:,} items" in found.sentence
    page = faults_report(found).page()
    assert found.sentence.split(";")[0] in page and "quotation-marks" in page and "<svg" in page


def test_two_systems_are_the_right_pair_and_their_gap_is_planned():
    systems = {"A": {k: c[0] for k, c in CAPTIONS.items()}, "B": {k: " ".join(c[1].split()[:5]) for k, c in CAPTIONS.items()}}
    refs = {k: c[2:] for k, c in CAPTIONS.items()}
    found = judge_faults("chrf", refs, systems, scale="quick", families=[])
    assert found.gap == "that of A and B" and found.plan.n_needed > 3
    row = found.row("wordy", "effect")
    assert row["n"] == 24 and found.plan.n == 24 # references are edited, and systems are compared
    metric, names = get_metric("chrf"), list(refs)
    scores = [metric.values(extract([metric], [t[k] for k in names], [refs[k] for k in names])["chrf"].pred).mean() for t in systems.values()]
    assert scores[0] > scores[1] and found.plan.wished == pytest.approx(float(scores[0] - scores[1]), rel=.5) # of 24 of the 120 items, and of fewer references
    with pytest.raises(InputError, match="give a target"): judge_faults("chrf", pred=systems)


def test_silent_answers_are_left_out_and_counted():
    def ask(questions):
        mute = np.array([len(q["prediction"]) % 5 == 0 for q in questions])
        return Replies(np.where(mute, np.nan, [float(len(q["prediction"])) for q in questions]), mute)
    found = judge_faults(judge_metric("some", ask, Signature.of(metric="some")), CAPTIONS, scale="quick")
    assert "questions have no answer and are left out" in found.notes[0]
    assert found.row("wordy", "effect")["n"] < 24 and not found.may_rank # it prefers what is long, whatever it says


def test_what_cannot_be_judged_is_refused():
    two = {str(k): [f"a red boat on lake {k}", f"lake {k} with a boat"] for k in range(8)}
    with pytest.raises(InputError, match="three references, or two --pred"): judge_faults("chrf", two, pairwise=True)
    sets = SetMetric("sets", pixels, lambda p, t, w=None, v=None: 0., False, Signature.of(metric="sets"), card={"inputs": "texts"})
    with pytest.raises(InputError, match="sets judges sets of texts"): judge_faults(sets, two)
    lost = replace(get_metric("chrf"), name="lost", higher_is_better=None)
    for pairwise in (False, True):
        with pytest.raises(InputError, match="lost says of no direction"): judge_faults(lost, CAPTIONS, pairwise=pairwise, scale="quick")
    with pytest.raises(InputError, match="no texts of translation"): judge_faults("chrf", task="translation")
    with pytest.raises(InputError, match="at least 1"): judge_faults("chrf", two, repeats=0)
    with pytest.raises(InputError, match="lies in \\[0, 1\\]"):
        ask_pairs(lambda asked: Replies(np.full(len(asked), 7.), np.zeros(len(asked), bool)), pair_questions(["a"], ["b"], None))


def test_a_judge_that_is_asked_answers_pairs_itself():
    seen = []
    def ask(questions):
        seen.extend(questions)
        return Replies(np.full(len(questions), .5), np.zeros(len(questions), bool))
    judge = judge_metric("asked", ask, Signature.of(metric="asked"))
    assert pairwise_judge(judge) is ask
    found = judge_faults(judge, CAPTIONS, pairwise=True, scale="quick", families=[])
    assert {*seen[0]} == {"first", "second", "references"} and found.row("pairs", "ties")["value"] == 1
    asked = {(q["first"], q["second"]) for q in seen}
    assert all((b, a) in asked for a, b in asked) # in both orders


def test_a_judge_by_command_is_asked_about_pairs(tmp_path):
    program = tmp_path/"longer.py"
    program.write_text("import json, sys\nfor line in sys.stdin:\n    q = json.loads(line)\n"
                       "    pair = 'first' in q\n" # the trial question has none
                       "    said = {'score': float(len(q['first']) > len(q['second']))} if pair else {'refused': 'no pair'}\n"
                       "    print(json.dumps({'id': q['id'], **said}), flush=True)\n")
    found = judge_faults(f"cmd:python {program}", CAPTIONS, pairwise=True, scale="quick", families=[], repeats=1)
    assert found.name == "longer" and found.row("wordy", "wins")["value"] == 1 and found.row("no-text", "wins")["value"] == 0
    assert found.row("first-place", "wins")["value"] <= .5 # of equally long ones it says the second


def test_stored_coverage_is_near_what_it_says():
    table = pd.read_csv(Path(__file__).parents[2]/"nbs"/"results"/"judge_faults.csv")
    assert (table["sets"] >= 400).all() and table["coverage"].between(.9, 1).all()
    assert (table["coverage"].between(.93, .985)).mean() > .8
