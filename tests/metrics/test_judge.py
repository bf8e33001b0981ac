"""A judge's answers as a metric: asked once, silent on some items, left out of numbers and counted."""
import numpy as np
import pytest
import torch

from invariant_metrics.core import InputError, Signature
from invariant_metrics.metrics.judge import Replies, judge_metric, question_id
from invariant_metrics.metrics.metric import extract
from invariant_metrics.scoring.inference import paired_difference, score_rows


def by_length(silent=()):
    def ask(questions):
        mute = np.array([q["prediction"] in silent for q in questions])
        return Replies(np.where(mute, np.nan, [float(len(q["prediction"])) for q in questions]), mute)
    return judge_metric("length-judge", ask, Signature.of(metric="length-judge"))


def test_the_same_texts_beside_the_same_references_are_one_question():
    assert question_id({"a": "x", "b": "y"}) == question_id({"b": "y", "a": "x"})
    assert question_id({"a": "xb 1", "b": ""}) != question_id({"a": "x", "b": "1"})
    picture = np.zeros((2, 3, 3), np.uint8)
    assert question_id({"prediction": picture}) != question_id({"prediction": picture.reshape(3, 2, 3)})


def test_a_score_leaves_out_silent_items_and_equals_the_score_of_the_others():
    texts = [f"text {'x'*k}" for k in range(30)]
    silent = set(texts[::7])
    whole = extract([by_length(silent)], texts, ["r"]*30)["length-judge"]
    some = [t for t in texts if t not in silent]
    clusters = np.arange(30)//2
    kept = np.array([t not in silent for t in texts])
    for method in ("influence", "bootstrap", "jackknife"):
        left = score_rows(by_length(silent), whole, method=method, clusters=clusters)
        alone = score_rows(by_length(), extract([by_length()], some, ["r"]*len(some))["length-judge"], method=method, clusters=clusters[kept])
        assert (left.value, left.ci, left.n) == (alone.value, alone.ci, alone.n)
        assert len(left.per_item) == 30 and np.isnan(left.per_item[0])
        assert "the judge refused 5 of 30 answers" in left.notes and "5 of 30 items have no value and are left out" in left.notes


def test_a_paired_difference_needs_a_value_on_both_sides():
    texts = [f"text {'x'*k}" for k in range(20)]
    a = extract([by_length({texts[0]})], texts, ["r"]*20)["length-judge"]
    b = extract([by_length({texts[5] + "!"})], [t + "!" for t in texts], ["r"]*20)["length-judge"]
    found = paired_difference(by_length(), a, b)
    assert (found.value, found.n) == (-1, 18) and found.notes[0] == "2 of 20 items have no value and are left out"


def test_a_judge_that_answers_nothing_is_refused():
    rows = extract([by_length({"a", "b"})], ["a", "b"], ["x", "y"])["length-judge"]
    with pytest.raises(InputError, match="length-judge has no value for any of 2 items"): score_rows(by_length(), rows)
