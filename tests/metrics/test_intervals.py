"Intervals of means and of functions of sums: how often they hold the truth, when there is none, and that they stay in range."
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from binomial import not_above, not_below

import invariant_metrics as im
from invariant_metrics.core import Signature, rng
from invariant_metrics.metrics.metric import PairedMetric, Rows, extract, get_metric, metric_cards
from invariant_metrics.metrics.ngram import _bleu_of_sums
from invariant_metrics.scoring.inference import FEWEST, _item_interval, _leave_one_out, paired_difference, score_rows, _value_range

MEAN = PairedMetric("mean", None, None, True, Signature.of(metric="mean"))
SHARE = PairedMetric("share", None, None, True, Signature.of(metric="share"), card={"range": "[0, 1]"})
RATIO = PairedMetric("ratio", None, None, True, Signature.of(metric="ratio"), pool=lambda sums: sums[:, 0]/sums[:, 1], per_item=lambda rows: rows[:, 0]/rows[:, 1])


def holds(intervals: list, truth: float, least: float = 0.92, most: float = 0.97) -> None:
    "The share that holds the truth may be one within the bounds: neither bound is refuted at one in a thousand."
    found, n = sum(ci.low <= truth <= ci.high for ci in intervals), len(intervals)
    not_below(found, n, least, "intervals that hold the truth")
    not_above(found, n, most, "intervals that hold the truth")


def test_the_count_can_fail():
    "The bounds of the next tests let neither the percentile bootstrap's 87 of 100 at ten items nor an interval twice as wide pass."
    ci = _item_interval(MEAN, [Rows(torch.arange(9.).double())])[0]
    for share in (0.87, 0.995):
        hit = [ci]*int(share*1000)
        with pytest.raises(AssertionError): holds(hit + [_item_interval(MEAN, [Rows(torch.arange(9.).double() + 99)])[0]]*(1000 - len(hit)), 4.0)


@pytest.mark.parametrize("n", [8, 20])
def test_the_mean_of_skewed_values(n):
    draw = torch.from_numpy(rng(0, "skewed", n).gamma(2.0, size=(1000, n)))
    holds([_item_interval(MEAN, [Rows(x)])[0] for x in draw], 2.0)


@pytest.mark.parametrize("n", [8, 20])
def test_the_difference_of_two_systems_on_the_same_items(n):
    generator = rng(0, "pairs", n)
    hard = generator.gamma(2.0, size=(1000, n, 1))
    draw = torch.from_numpy(hard*generator.lognormal(0, 0.4, size=(1000, n, 2)))
    holds([_item_interval(MEAN, [Rows(x[:, 0]), Rows(x[:, 1])])[0] for x in draw], 0.0)


def test_a_function_of_sums_over_clusters():
    generator = rng(0, "ratio")
    words = generator.integers(5, 30, (800, 12, 4))
    found = generator.binomial(words, generator.beta(6, 3, (800, 12, 1)))
    rows, labels = torch.from_numpy(np.stack([found, words], -1).astype(float)), np.repeat(np.arange(12), 4)
    holds([_item_interval(RATIO, [Rows(x.flatten(0, 1))], labels)[0] for x in rows], 2/3)


def test_leaving_out_is_what_it_says():
    generator = rng(0, "left out")
    text = torch.from_numpy(generator.integers(1, 40, (30, 10)).astype(float))
    metric = get_metric("bleu")
    def of(keep): return float(_bleu_of_sums(text[keep].sum(0, keepdim=True)))
    expected = [29*(of(np.arange(30)) - of(np.delete(np.arange(30), i))) for i in range(30)]
    np.testing.assert_allclose(_leave_one_out(metric, Rows(text)), expected, rtol=1e-9)
    labels = np.arange(30) % 7
    expected = [6*(of(np.arange(30)) - of(np.flatnonzero(labels != c))) for c in range(7)]
    np.testing.assert_allclose(_leave_one_out(metric, Rows(text), labels), expected, rtol=1e-9)


def test_ends_do_not_depend_on_the_order_of_items_or_on_a_seed():
    x = torch.from_numpy(rng(0, "order").normal(size=40))
    first, turned = (score_rows(MEAN, Rows(y), seed=s).ci for y, s in ((x, 0), (x.flip(0), 7)))
    np.testing.assert_allclose([first.low, first.high], [turned.low, turned.high], rtol=1e-12)


@pytest.mark.parametrize("values, clusters, says", [
    ([0.5], None, "there is one item"), (np.arange(7), None, "7 items are too few, 8 are the least"), ([0.3]*50, None, "nothing varies between the 50 items"),
    ([1.0]*43 + [0.0]*7, None, "rest on 7 of 50 items"), (np.arange(40), [1]*40, "there is one cluster"),
    (np.arange(40), np.arange(40) % 5, "5 clusters are too few")])
def test_no_interval_where_too_little_is_told(values, clusters, says):
    rows = Rows(torch.as_tensor(np.asarray(values, float)))
    score = score_rows(MEAN, rows, clusters=clusters)
    assert score.ci is None and f"no interval: {says}" in score.notes[-1].replace("it would ", "") and score.value == pytest.approx(np.mean(values))
    same = paired_difference(MEAN, rows, rows, clusters=clusters)
    assert same.ci is None and same.notes and same.value == 0


def test_eight_of_fifty_are_enough(): assert _item_interval(MEAN, [Rows(torch.tensor([1.0]*42 + [0.0]*8).double())])[0] is not None


def test_the_range_of_the_metric_holds_for_ends_too():
    "For every card: the ends of shares stay in [0, 1], of differences in [−1, 1]; values beyond the card's range show that it does not bind."
    near = torch.tensor([0.2, *[1.0]*4, 0.99, 0.98, 0.97, 0.96, 0.95]).double()
    assert _item_interval(SHARE, [Rows(near)])[0].high == 1.0 and _item_interval(MEAN, [Rows(near)])[0].high > 1.0
    assert _item_interval(SHARE, [Rows(1 - near)])[0].low == 0.0
    far, none = (_item_interval(SHARE, [Rows(near), Rows(torch.zeros(10).double() + k)])[0] for k in (0.0, 0.5))
    assert far.high == 1.0 and none.high > 0.5 and _item_interval(SHARE, [Rows(2*near)])[0].high > 2
    for card in metric_cards():
        low, high = _value_range(PairedMetric("x", None, None, True, Signature.of(), card=card))
        assert low < high and (np.isfinite(low) or not re.match(r"\[-?\d", card.get("range", ""))), card["name"]


def test_bleu_without_a_shared_4_gram_has_no_interval():
    pred, target = ["a b c x", "d e f y", "a b x x f", "d e y"]*3, [["a b c z q"], ["d e f w q"]]*6
    found = im.score(pred, target, ["bleu", "bleu-4", "bleu-1"])
    assert all(found[m].ci is None and any("no 4-gram is shared" in note for note in found[m].notes) for m in ("bleu", "bleu-4"))


def test_the_bootstrap_by_name_is_there_and_says_that_it_is_short():
    x = Rows(torch.from_numpy(rng(0, "named").gamma(1.0, size=12)))
    drawn, ours = score_rows(MEAN, x, method="bootstrap"), score_rows(MEAN, x)
    assert "too short" in drawn.notes[0] and drawn.ci.method.startswith("bootstrap") and ours.ci.method == "student-skewness"
    assert drawn.ci.high - drawn.ci.low < ours.ci.high - ours.ci.low
    assert not score_rows(MEAN, Rows(torch.arange(60.).double()), method="bootstrap").notes


def test_the_stored_map_is_of_these_intervals_and_holds():
    "One cell of the stored map is found again; and all but a few cells hold 92 to 97 of 100."
    table = pd.read_csv(Path(__file__).parents[2]/"nbs"/"results"/"coverage_items.csv")
    table = table[table["what"].isin(["value", "difference", "equal"])]
    assert {"bleu", "chrf", "cider-d", "rouge-l", "psnr", "ssim"} <= set(table["metric"]) and table["n"].min() == FEWEST and table["draws"].min() >= 2000
    named = table[table["metric"].isin(["bleu", "chrf", "cider-d", "rouge-l", "psnr", "ssim"])]
    assert named["covered"].between(0.92, 0.971).all() and table["covered"].between(0.92, 0.97).mean() > 0.975


def test_one_path_for_score_rows_systems_and_torchmetrics():
    "score of one system and of two, a paired difference, and the torchmetrics form have the same ends."
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(12, 3, 16, 16, generator=generator)
    a, b = ((target + s*torch.randn(target.shape, generator=generator)).clamp(0, 1) for s in (0.1, 0.12))
    rows = [extract([get_metric("psnr")], x, target)["psnr"] for x in (a, b)]
    ours = _item_interval(get_metric("psnr"), rows[:1])[0]
    class_form = im.TorchMetric("psnr")
    class_form.update(a, target)
    assert im.score(a, target, "psnr")["psnr"].ci == im.score({"a": a, "b": b}, target, "psnr")["a"]["psnr"].ci == class_form.score().ci == ours
    assert im.score({"a": a, "b": b}, target, "psnr", paired=True)["psnr"].ci == _item_interval(get_metric("psnr"), rows)[0]


def test_ranking_says_why_two_systems_are_not_told_apart():
    target = [[f"the {a} dog sees a cat"] for a in ("old", "red", "big", "small", "wet", "dry", "mad", "sad", "new")]
    worse = [refs[0].replace("sees", "bites") if i % 2 else refs[0] + " now" for i, refs in enumerate(target)]
    board = im.ranking(im.score({"a": worse, "b": list(worse), "c": [w + " and then"*(1 + i % 3) for i, w in enumerate(worse)]}, target, ["rouge-l"]))
    assert dict(zip(board["system"], board["verdict"], strict=True)) == {"a": "best", "b": "the same on every item", "c": "worse"}
    few = im.ranking(im.score({"a": worse[:5], "c": [w + " and then" for w in worse[:5]]}, target[:5], ["rouge-l"]))
    assert few["verdict"].iloc[1] == "not tested"
