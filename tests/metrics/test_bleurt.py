"BLEURT: the network's own number on (reference, candidate), whatever the batch; what cannot be read is refused in one line."
import json

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from tiny_networks import WORDS, save_tiny

from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.bleurt import PairScorer, _bleurt_scores

LOOSE = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
sentence = st.lists(st.sampled_from(WORDS[5:] + ["zebra"]), max_size=24).map(" ".join)
PAIRS = [("a red ball", "the ball is red"), ("", "a dog"), ("the cat sees a dog", ""), ("a dog "*15, "the old tree "*15), ("two", "a cat under the tree")]


def save(folder, kind="bert", labels=1):
    more = {"pad_token_id": 0} if kind == "roberta" else {}
    return save_tiny(folder, kind, layers=2, positions=42, labels=labels, longest=40, initializer_range=0.3, **more)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bleurt")
    return (folder, *save(folder))


@pytest.fixture(scope="module")
def scorer(checkpoint): return PairScorer.open(checkpoint[0])


def plain(net, tokenizer, pairs, length=40):
    with torch.no_grad():
        return torch.cat([net(**tokenizer([a], [b], truncation="longest_first", max_length=length, return_tensors="pt")).logits[:, 0] for a, b in pairs])


def test_equal_to_a_plain_loop_of_the_library(checkpoint, scorer):
    found = scorer(PAIRS)
    torch.testing.assert_close(found, plain(*checkpoint[1:], PAIRS), rtol=0, atol=1e-5)
    assert found.std() > 1e-2  # the network tells them apart
    torch.testing.assert_close(PairScorer.open(checkpoint[0], 12)(PAIRS), plain(*checkpoint[1:], PAIRS, 12), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["roberta", "distilbert", "electra"])
def test_other_families_of_classifiers(kind, tmp_path):
    net, tokenizer = save(tmp_path, kind)
    found = PairScorer.open(tmp_path)(PAIRS)
    rows = [tokenizer([a], [b], truncation="longest_first", max_length=40, return_tensors="pt") for a, b in PAIRS]
    if kind != "electra":
        for row in rows: row.pop("token_type_ids")
    with torch.no_grad(): own = torch.cat([net(**row).logits[:, 0] for row in rows])
    torch.testing.assert_close(found, own, rtol=0, atol=1e-5)


def test_the_reference_comes_first(checkpoint, scorer):
    found = _bleurt_scores(["the ball is red"], ["a red ball"], scorer).values
    torch.testing.assert_close(found, plain(*checkpoint[1:], [("a red ball", "the ball is red")]), rtol=0, atol=1e-5)
    assert (found - plain(*checkpoint[1:], [("the ball is red", "a red ball")])).abs() > 1e-2


@LOOSE
@given(st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=3)), min_size=1, max_size=12), st.randoms(use_true_random=False), st.sampled_from(["max", "mean"]))
def test_an_item_does_not_know_its_batch(scorer, items, random, references):
    pred, target = [p for p, _ in items], [t for _, t in items]
    together = _bleurt_scores(pred, target, scorer, references).values
    apart = torch.cat([_bleurt_scores([p], [t], scorer, references).values for p, t in items])
    order = random.sample(range(len(items)), len(items))
    torch.testing.assert_close(together, apart, rtol=0, atol=2e-5)
    torch.testing.assert_close(_bleurt_scores([pred[i] for i in order], [target[i] for i in order], scorer, references).values, together[order], rtol=0, atol=2e-5)


def test_several_references(scorer):
    pred, target = ["a cat"], [["the cat", "a dog", "two"]]
    each = scorer([(r, "a cat") for r in target[0]])
    assert _bleurt_scores(pred, target, scorer).values[0] == each.max()
    torch.testing.assert_close(_bleurt_scores(pred, target, scorer, "mean").values[0], each.mean())


def test_registered(checkpoint):
    metric = get_metric("bleurt", weights=str(checkpoint[0]))
    pred, target = [b for _, b in PAIRS], [[a] for a, _ in PAIRS]
    rows = extract([metric], pred, target)["bleurt"]
    assert metric.statistic(rows) == pytest.approx(plain(*checkpoint[1:], PAIRS).double().mean().item(), abs=1e-5)
    assert "1 of 5 pairs have more than 40 tokens and were cut" in rows.notes
    for options in ({"references": "mean"}, {"length": 20}):
        other = get_metric("bleurt", weights=str(checkpoint[0]), **options)
        assert len(metric.signature.differences(other.signature)) == 1 and other.phi_key != metric.phi_key
    assert "unverified" in metric.card["measures"]


@pytest.mark.parametrize("config, said", [({"model_type": "bleurt", "auto_map": {"AutoModel": "model.Bleurt"}}, "'bleurt' model.*checkpoints that work"),
                                          ({"model_type": "bert", "num_labels": 1, "id2label": {"0": "x"}, "auto_map": {"AutoModel": "code.py"}}, "code of its own"),
                                          ({"model_type": "bert", "id2label": {"0": "a", "1": "b"}}, "2 labels")])
def test_what_cannot_be_read_is_refused(tmp_path, config, said):
    (tmp_path/"config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=said) as error: get_metric("bleurt", weights=str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_checkpoint_without_its_head_is_refused(tmp_path, checkpoint):
    import transformers
    save(tmp_path)
    checkpoint[1].bert.save_pretrained(tmp_path)
    config = json.loads((tmp_path/"config.json").read_text()) | {"id2label": {"0": "score"}}
    (tmp_path/"config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="lacks .* tensors.*would be random"): PairScorer.open(tmp_path)(PAIRS)
    (tmp_path/"model.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match="cannot load"): PairScorer.open(tmp_path)(PAIRS)


@pytest.mark.parametrize("pred, target, said", [(["a"], [], "no texts"), (["a"], [[]], "no reference"), ("a", ["a"], "not one string"),
                                                ([1], ["a"], "not texts: 1")])
def test_refused(scorer, pred, target, said):
    with pytest.raises(InputError, match=said): _bleurt_scores(pred, target, scorer)
    with pytest.raises(InputError, match="way with references"): _bleurt_scores(["a"], ["a"], scorer, "median")


def test_missing_weights_say_so(monkeypatch):
    monkeypatch.setattr("invariant_metrics.encoders.weights._find", lambda *_: None)
    with pytest.raises(InputError, match="weights fetch bleurt-base-128@COMMIT, then --weights bleurt-base-128@COMMIT"): get_metric("bleurt")
