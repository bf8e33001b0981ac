"BLEU: equal to sacreBLEU and to the caption code on everything they define, whatever the order of references."
import json
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import clipscore_example, data_path, lines, nlg_eval_example

from invariant_metrics.core import InputError
from invariant_metrics.data.tokens import tokenizer_of
from invariant_metrics.metrics.metric import get_metric
from invariant_metrics.metrics.ngram import _bleu_of_sums, bleu_rows, coco_bleu, _coco_bleu_of_sums, corpus_bleu
from invariant_metrics.metrics.ngram import intern, _stable_sort

SMOOTHINGS = [("none", None), ("exp", None), ("floor", None), ("floor", 0.3), ("add-k", None), ("add-k", 2.0)]
WORDS = "a b c d the cat . , It's café ÜBER 3.5 don't (x) \"q\" 日本 &amp; well-known".split()

WORDS_ABC = st.lists(st.sampled_from("abc"), max_size=12)


def corpus(seed: int, n: int = 40, longest: int = 9) -> tuple[list[str], list[list[str]]]:
    "Texts with unequal numbers of references, ties in length, repeated words, and empty texts on both sides."
    draw = random.Random(seed)
    def text(): return " ".join(draw.choices(WORDS, k=draw.choice([0, 1, 2, 3, *range(4, longest)])))
    return [text() for _ in range(n)], [[text() for _ in range(draw.randint(1, 5))] for _ in range(n)]


def streams(references: list[list[str]]) -> list[list]:
    "sacreBLEU's form: the k-th reference of every item, None where there is none."
    return [[refs[k] if k < len(refs) else None for refs in references] for k in range(max(map(len, references)))]


def sums(hypotheses, references, tokenizer="none", order=4) -> torch.Tensor:
    return torch.from_numpy(bleu_rows(intern(hypotheses, references, tokenizer), order))


@pytest.mark.parametrize("tokenizer", ["none", "13a", "intl", "char", "zh"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_corpus_equals_sacrebleu_for_its_tokenizers_and_smoothings(tokenizer, lowercase):
    import sacrebleu
    for seed, longest in ((0, 9), (1, 30), (2, 3)):
        hypotheses, references = corpus(seed, longest=max(longest, 5))
        for smoothing, value in SMOOTHINGS:
            theirs = sacrebleu.corpus_bleu(hypotheses, streams(references), tokenize=tokenizer, lowercase=lowercase, smooth_method=smoothing,
                                           smooth_value=value)
            ours = corpus_bleu(hypotheses, references, tokenizer, lowercase, smoothing=smoothing, smooth_value=value)
            assert abs(ours - theirs.score) < 1e-9
        theirs = sacrebleu.corpus_bleu(hypotheses, streams(references), tokenize=tokenizer, lowercase=lowercase)
        rows = bleu_rows(intern(hypotheses, references, tokenizer, lowercase)).sum(0)
        assert rows.tolist() == [*theirs.counts, *theirs.totals, theirs.sys_len, theirs.ref_len]


@pytest.mark.parametrize("smoothing,value", SMOOTHINGS)
def test_sentences_equal_sacrebleu(smoothing, value):
    "With and without effective order, for every sentence, empty ones included."
    import sacrebleu
    hypotheses, references = corpus(3, 80)
    rows = sums(hypotheses, references)
    for effective in (True, False):
        bleu = sacrebleu.BLEU(tokenize="none", smooth_method=smoothing, smooth_value=value, effective_order=effective)
        theirs = [bleu.sentence_score(h, refs).score for h, refs in zip(hypotheses, references)]
        np.testing.assert_allclose(_bleu_of_sums(rows, smoothing, value, effective), theirs, atol=1e-9, rtol=0)
    metric = get_metric("bleu", smoothing=smoothing, smooth_value=value, tokenizer="none")
    theirs = [sacrebleu.sentence_bleu(h, refs, smoothing, value, tokenize="none").score for h, refs in zip(hypotheses, references)]
    np.testing.assert_allclose(metric.per_item(rows), theirs, atol=1e-9, rtol=0)


@pytest.mark.parametrize("order", [1, 2, 3, 6])
def test_other_orders_equal_sacrebleu(order):
    import sacrebleu
    hypotheses, references = corpus(4, 60, 20)
    theirs = sacrebleu.BLEU(tokenize="none", max_ngram_order=order).corpus_score(hypotheses, streams(references)).score
    assert abs(corpus_bleu(hypotheses, references, "none", order=order) - theirs) < 1e-9


def test_published_small_cases_of_sacrebleu():
    cases = json.loads(data_path("parity/sacrebleu_small.json").read_text())
    c = cases["bleu_corpus"]
    references = [list(refs) for refs in zip(*c["refs"])]
    for name, options in (("default(13a)", {}), ("tokenize=none", {"tokenizer": "none"}), ("tokenize=intl", {"tokenizer": "intl"}),
                          ("smooth_method=none", {"smoothing": "none"})):
        assert abs(corpus_bleu(c["hyps"], references, **options) - c["expected"][name]) < c["eps"]
    s = cases["bleu_sentence"]
    for smoothing, value, lowercase, tokenizer, expected in s["cases"]:
        found = corpus_bleu([s["hyp"]], [[s["ref"]]], tokenizer, lowercase, smoothing=smoothing, smooth_value=value, effective_order=True)
        assert abs(found - expected) < s["eps"]


def test_wmt17_bleu_of_16_systems():
    "mteval-v13a and the international tokenizer, as published with sacreBLEU."
    expected = json.loads(data_path("parity/sacrebleu_wmt17_ende/expected.json").read_text())
    rows = lines("parity/sacrebleu_wmt17_ende/newstest2017_ende.jsonl.gz")
    systems = expected["systems"]
    each = sums([h for k in range(len(systems)) for h in (row["sys"][k] for row in rows)], [[row["ref"]] for row in rows]*len(systems), "13a")
    for name, found in zip(systems, _bleu_of_sums(each.view(len(systems), len(rows), -1).sum(1)).tolist(), strict=True):
        assert expected["mteval_v13a_bleu"][name] in (round(found, 2), round(found, 1)), name
    lium = systems.index("newstest2017.LIUM-NMT.4900.en-de")
    assert round(corpus_bleu([row["sys"][lium] for row in rows], [[row["ref"]] for row in rows], "intl"), 2) == 26.89


def coco(hypotheses, references) -> tuple[list, list]:
    "pycocoevalcap on texts that are tokenized already."
    from pycocoevalcap.bleu.bleu import Bleu
    return Bleu(4).compute_score(dict(enumerate(references)), {i: [h] for i, h in enumerate(hypotheses)}, verbose=0)


@pytest.mark.parametrize("seed", [0, 1])
def test_caption_form_equals_pycocoevalcap(seed):
    "Corpus and every item, bleu-1 to bleu-4, with ties in length and empty texts."
    hypotheses, references = corpus(seed)
    theirs, each = coco(hypotheses, references)
    for order in (1, 2, 3, 4):
        assert abs(coco_bleu(hypotheses, references, "none", order) - theirs[order - 1]) < 1e-9
        found = get_metric(f"bleu-{order}", tokenizer="none")
        np.testing.assert_allclose(found.per_item(found.compare(found.phi(hypotheses, references))), each[order - 1], atol=1e-9, rtol=0)


def test_caption_form_on_the_demo_captions():
    rows = lines("coco_captions/fakecap_partial_pycocoevalcap.jsonl.gz")
    raw = lines("coco_captions/fakecap_partial.jsonl")
    tokenized = [row["ptb_candidate"] for row in rows], [row["ptb_references"] for row in rows]
    published = json.loads(data_path("coco_captions/fakecap_partial_corpus_scores.json").read_text())
    theirs, each = coco(*tokenized)
    rows = sums(*tokenized)
    np.testing.assert_allclose(_coco_bleu_of_sums(rows), each[3], atol=1e-9, rtol=0)
    for order in (1, 2, 3, 4):
        assert abs(coco_bleu(*tokenized, "none", order) - published[f"Bleu_{order}"]) < 1e-9
        assert abs(coco_bleu([r["caption"] for r in raw], [r["references"] for r in raw], order=order) - published[f"Bleu_{order}"]) < 1e-3


def test_other_published_examples():
    "nlg-eval's two sentences and the two captions of CLIPScore's example, from raw text."
    hyp, refs, expected = nlg_eval_example()
    for order in (1, 2, 3, 4): assert abs(coco_bleu(hyp, refs, "none", order) - expected["corpus"][f"Bleu_{order}"]) < 1e-5
    for case in expected["single"]:
        for order in range(1, 5):
            if f"Bleu_{order}" in case: assert abs(coco_bleu([case["hyp"]], [case["ref"]], "none", order) - case[f"Bleu_{order}"]) < 1e-5
    for captions, refs, expected in clipscore_example():
        for order in (1, 2, 3, 4):
            assert round(coco_bleu(captions, refs, order=order), 4) == expected[f"BLEU-{order}"]


def test_references_may_stand_in_any_order():
    "Unlike implementations that take the first of two equally close lengths."
    hypotheses, references = corpus(5)
    rows, draw = sums(hypotheses, references), random.Random(0)
    for _ in range(5): assert torch.equal(sums(hypotheses, [draw.sample(refs, len(refs)) for refs in references]), rows)


def test_rows_do_not_depend_on_the_batch_and_states_add():
    hypotheses, references = corpus(6)
    rows = sums(hypotheses, references)
    parts = [sums(hypotheses[k:k + 7], references[k:k + 7]) for k in range(0, len(hypotheses), 7)]
    assert torch.equal(torch.cat(parts), rows)


@pytest.mark.parametrize("form", [_bleu_of_sums, _coco_bleu_of_sums])
def test_pool_takes_weighted_sums_and_has_the_gradient_of_its_differences(form):
    rows = sums(*corpus(7, longest=25))
    weights = torch.rand(len(rows), dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: form((w @ rows)[None]), weights)
    double = form(2*rows.sum(0, keepdim=True))
    torch.testing.assert_close(double, form(rows.sum(0, keepdim=True)), rtol=1e-9, atol=0)
    for value in (torch.zeros(1, 10), torch.eye(10)[9:], torch.eye(10)[8:9]):  # nothing, only a reference, only a hypothesis
        x = value.double().requires_grad_()
        form(x).sum().backward()
        assert form(x).isfinite().all() and form(x).abs() < 2e-6 and x.grad.isfinite().all()


def test_empty_texts_have_defined_values():
    import sacrebleu
    for hypothesis, reference in (("", "a b c d e"), ("", ""), ("a b c d e", "")):
        rows = sums([hypothesis], [[reference]])
        assert _bleu_of_sums(rows).item() == 0 and _coco_bleu_of_sums(rows).item() < 1e-8
        assert corpus_bleu([hypothesis], [[reference]]) == sacrebleu.corpus_bleu([hypothesis], [[reference]]).score == 0


@settings(max_examples=40)
@given(st.lists(st.tuples(WORDS_ABC, st.lists(WORDS_ABC, min_size=1, max_size=4)), min_size=1, max_size=6))
def test_any_texts_equal_sacrebleu(items):
    import sacrebleu
    hypotheses, references = [" ".join(h) for h, _ in items], [[" ".join(r) for r in refs] for _, refs in items]
    theirs = sacrebleu.corpus_bleu(hypotheses, streams(references), tokenize="none").score
    assert abs(corpus_bleu(hypotheses, references, "none") - theirs) < 1e-9


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2**62), max_size=50), st.integers(0, 55))
def test_order_of_keys_is_stable_for_keys_of_any_width(keys, shift):
    keys = np.array(keys, np.int64) >> shift
    ordered, place = _stable_sort(keys)
    assert np.array_equal(place, np.argsort(keys, kind="stable")) and np.array_equal(ordered, keys[place])


def test_metrics_share_their_words():
    "The same tokenizer is the same phi; another one, or another case, is not."
    key = {name: get_metric(name).phi_key for name in ("bleu-1", "bleu-4", "rouge-l", "cider-d", "cider")}
    assert len(set(key.values())) == 1
    assert len({get_metric("bleu", **o).phi_key for o in ({}, {"lowercase": True}, {"tokenizer": "intl"})} | {*key.values()}) == 4


def test_signature_tells_what_shapes_the_number():
    changes = [{}, {"tokenizer": "intl"}, {"smoothing": "floor"}, {"smoothing": "floor", "smooth_value": 0.5}, {"lowercase": True}, {"order": 2},
               {"effective_order": True}]
    assert len({str(get_metric("bleu", **o).signature) for o in changes}) == len(changes)
    assert str(get_metric("bleu", smoothing="add-k").signature) == str(get_metric("bleu", smoothing="add-k", smooth_value=1.0).signature)


@pytest.mark.parametrize("sides,said", [
    (("a", [["a"]]), "not one string"), ((["a"], [[]]), "no reference: 1"), (([], []), "no texts"),
    ((["a", "b"], [["a"]]), "2 predictions against references of 1"), (([None], [["a"]]), "not texts: 1"), ((["a"], [["a", None]]), "not texts: 1")])
def test_sides_that_cannot_be_meant_are_refused(sides, said):
    for score in (corpus_bleu, coco_bleu):
        with pytest.raises(InputError, match=said): score(*sides)


def test_unknown_options_are_refused():
    for options in ({"smoothing": "linear"}, {"smooth_value": 1.0}, {"tokenizer": "13b"}, {"order": 0}):
        with pytest.raises(InputError): get_metric("bleu", **options)


PIECES = st.sampled_from(["a", "the", "dog.", "No.", "5", ".", "...", "isn't", "x-\n", "(see", "it)", "café", "ΣΑΣ", "\0", "b\x07c", "U.S.", "Army", "<b", '"so"'])


@settings(max_examples=100)
@given(st.lists(st.lists(st.tuples(PIECES, st.sampled_from([" ", "  ", "\t", "\n", "\xa0", ""])), max_size=6), min_size=2, max_size=5),
       st.sampled_from(["none", "13a", "ptb"]), st.booleans())
def test_words_of_a_corpus_are_those_of_its_texts(texts, name, lowercase):
    "However texts are cut; nothing is in the vocabulary that no text says."
    texts = ["".join(map("".join, text)) for text in texts]
    found = intern(texts[:1], [texts[1:] + texts[:1]], name, lowercase)
    expected = [tokenizer_of(name)[0](text.lower() if lowercase else text) for text in texts + texts[:1]]
    assert [[found.vocabulary[w] for w in words] for words in np.split(found.words, found.starts[1:-1])] == expected
    assert sorted(found.vocabulary) == sorted({word for words in expected for word in words})
