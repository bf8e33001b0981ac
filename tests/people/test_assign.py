"""Assignments: nobody sees one input twice, everything is shown equally often, and what is wrong is named."""
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from invariant_metrics.core import InputError
from invariant_metrics.people.assign import assign, _latin_plan

sizes = dict(inputs=st.integers(1, 12), styles=st.integers(1, 9), evaluators=st.integers(1, 30), share=st.floats(0, 1), seed=st.integers(0, 99))


def is_balanced(frame: pd.DataFrame) -> None:
    "No evaluator sees a picture or an input twice; positions have no gaps; styles, pairs and loads differ by one at most."
    made = frame[~frame["real"].astype(bool)]
    assert not frame.duplicated(["evaluator", "item"]).any() and not made.duplicated(["evaluator", "input"]).any()
    assert all(sorted(p) == list(range(len(p))) for _, p in frame.groupby("evaluator")["position"])
    grid = pd.MultiIndex.from_product([made["input"].unique(), made["style"].unique()])
    for counts in (made.groupby("evaluator").size().reindex(frame["evaluator"].unique(), fill_value=0), made.groupby("style").size(),
                   made.groupby(["input", "style"]).size().reindex(grid, fill_value=0)):
        assert counts.max() - counts.min() <= 1


def even(counts) -> bool:
    return max(counts) - min(counts) <= 1


@settings(max_examples=150)
@given(**{k: v for k, v in sizes.items() if k != "seed"})
def test_the_plan_is_balanced_for_all_numbers(inputs, styles, evaluators, share):
    "No input twice for one evaluator; styles overall and within an evaluator, inputs and pairs differ by one at most."
    each = 1 + round(share*(inputs - 1))
    i, s = _latin_plan(inputs, styles, evaluators, each)
    assert all(len(set(row)) == each for row in i)
    assert all(even(np.bincount(row, minlength=styles)) for row in s)
    for counts in (np.bincount(i.ravel(), minlength=inputs), np.bincount(s.ravel(), minlength=styles),
                   np.bincount((i*styles + s).ravel(), minlength=inputs*styles)): assert even(counts)


@settings(max_examples=25)
@given(**sizes, real=st.integers(0, 8))
def test_assign_passes_its_own_check(inputs, styles, evaluators, share, seed, real):
    "With names, shuffles and real pictures; the same seed gives the same frame."
    each = 1 + round(share*(inputs - 1))
    frame = assign(inputs, styles, evaluators, each, seed, real=real)
    is_balanced(frame)
    assert len(frame) == evaluators*(each + min(real, each)) and int(frame["real"].sum()) == evaluators*min(real, each)
    pd.testing.assert_frame_equal(frame, assign(inputs, styles, evaluators, each, seed, real=real))


def test_the_published_design_is_a_latin_square():
    "20 evaluators, 25 inputs, 20 styles: each of the 500 pictures exactly once, and 50 pictures for each evaluator."
    frame = assign(25, 20, 20, 25, seed=0, real=25)
    made = frame[~frame["real"]]
    assert set(made.groupby(["input", "style"]).size()) == {1} and len(made) == 500
    assert set(frame.groupby("evaluator").size()) == {50}


def test_seeds_change_the_order_and_reals_are_mixed_in():
    one, two = (assign(25, 20, 20, 25, seed=s, real=50) for s in (0, 1))
    assert not one["item"].equals(two["item"])
    first = one[one["position"] == 0]["real"].mean()
    assert 0.2 < first < 0.8
    assert even(one.loc[one["real"], "item"].value_counts())


@pytest.mark.parametrize("given_, word", [
    (dict(inputs=5, styles=2, evaluators=2, per_evaluator=6), "per_evaluator is 6"),
    (dict(inputs=5, styles=2, evaluators=2, per_evaluator=0), "per_evaluator is 0"),
    (dict(inputs=["a", "a"], styles=2, evaluators=2, per_evaluator=1), "named twice"),
    (dict(inputs="abc", styles=2, evaluators=2, per_evaluator=1), "not the text"),
    (dict(inputs=2, styles=0, evaluators=2, per_evaluator=1), "style: none given"),
    (dict(inputs=["a", "b"], styles=2, evaluators=2, per_evaluator=1, real=["b", "c"]), "must not show the inputs"),
    (dict(inputs=3, styles=2, evaluators=2, per_evaluator=3, real=2, real_each=3), "3 real pictures")])
def test_impossible_requests_are_one_clear_line(given_, word):
    with pytest.raises(InputError, match=word) as caught: assign(**given_)
    assert "\n" not in str(caught.value)
