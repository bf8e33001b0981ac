"ROUGE: equal to the caption code and to `rouge_score`, on short texts and on long ones."
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import clipscore_example, lines, nlg_eval_example

from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import get_metric
from invariant_metrics.metrics.ngram import intern
from invariant_metrics.metrics import rouge as rouge_module
from invariant_metrics.metrics.rouge import lcs_lengths, rouge, rouge_l, rouge_lsum, _rouge_words
from invariant_metrics.scoring.score import score

KINDS = {"1": "rouge1", "2": "rouge2", "l": "rougeL"}
NAMES = {**KINDS, "lsum": "rougeLsum"}
WORDS = "a b c running runs Run cats 12 don't it's well-known über 日本 , . (x)".split()


def table(a: list, b: list) -> int:
    "The textbook's longest common subsequence."
    row = [0]*(len(b) + 1)
    for x in a:
        old = row[:]
        for j, y in enumerate(b): row[j + 1] = old[j] + 1 if x == y else max(old[j + 1], row[j])
    return row[-1]


def corpus(seed: int, n: int = 60, longest: int = 12, words=tuple(WORDS)) -> tuple[list[str], list[list[str]]]:
    "Texts with unequal numbers of references, some of them empty."
    draw = random.Random(seed)
    def text(): return " ".join(draw.choices(words, k=draw.randint(0, longest)))
    return [text() for _ in range(n)], [[text() for _ in range(draw.randint(1, 4))] for _ in range(n)]


def google(hypotheses, references, kind: str, stemmer: bool = False) -> list[list[float]]:
    from rouge_score.rouge_scorer import RougeScorer
    scorer = RougeScorer([NAMES[kind]], use_stemmer=stemmer)
    found = [scorer.score_multi(refs, h)[NAMES[kind]] for h, refs in zip(hypotheses, references)]
    return [[s.precision, s.recall, s.fmeasure] for s in found]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 140), st.lists(st.integers(0, 200), min_size=1, max_size=3)), min_size=1, max_size=5), st.integers(1, 40),
       st.integers(0, 1000))
def test_subsequence_equals_the_textbook_for_any_lengths(sizes, kinds, seed):
    "One, two, three blocks of 64 words, small and large vocabularies."
    draw = random.Random(seed)
    def text(k): return " ".join(draw.choices([str(i) for i in range(kinds)], k=k))
    hypotheses, references = [text(h) for h, _ in sizes], [[text(r) for r in refs] for _, refs in sizes]
    expected = [table(h.split(), r.split()) for h, refs in zip(hypotheses, references) for r in refs]
    for step in (rouge_module._STEP, 0, 10**9): # by what is faster, all by blocks of words, long ones by integers
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rouge_module, "_STEP", step)
            assert lcs_lengths(intern(hypotheses, references)).tolist() == expected


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 128, 129, 640])
def test_subsequence_at_the_borders_of_blocks(length):
    "A text with itself, with itself but for one word, and with its reverse."
    words = [str(i) for i in range(length)]
    others = [words, words[:-1], words[1:], words[::-1], words + ["x"], ["x"] + words]
    found = lcs_lengths(intern([" ".join(words)], [[" ".join(o) for o in others]]))
    assert found.tolist() == [length, length - 1, length - 1, 1, length, length]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stemmer", [False, True])
def test_lins_rouge_equals_rouge_score(kind, stemmer):
    "Precision, recall and F against the best of several references, empty texts included, texts of 150 words too."
    for seed, longest in ((0, 12), (1, 150)):
        hypotheses, references = corpus(seed, longest=longest)
        found = rouge(hypotheses, references, kind, stemmer=stemmer)
        np.testing.assert_allclose(found, google(hypotheses, references, kind, stemmer), atol=1e-12, rtol=0)
        for column, part in enumerate("prf"):
            metric = get_metric(f"rouge-{kind}-{part}", stemmer=stemmer)
            assert np.array_equal(metric.compare(metric.phi(hypotheses, references)), found[:, column])


@pytest.mark.parametrize("stemmer", [False, True])
def test_rouge_lsum_equals_rouge_score(stemmer):
    "Summaries of none to six lines, some of them empty, one to three references, few words so that subsequences tie; by name as well."
    draw = random.Random(3)
    def summary(): return "\n".join(" ".join(draw.choices(WORDS, k=draw.choice([0, 1, 3, 8, 20]))) for _ in range(draw.randint(0, 6)))
    hypotheses, references = [summary() for _ in range(150)], [[summary() for _ in range(draw.randint(1, 3))] for _ in range(150)]
    expected = google(hypotheses, references, "lsum", stemmer)
    np.testing.assert_allclose(rouge_lsum(hypotheses, references, stemmer=stemmer), expected, atol=1e-12, rtol=0)
    found = score(hypotheses, references, [f"rouge-lsum-{part}" for part in "prf"], metric_options={"stemmer": stemmer}, ci=False)
    np.testing.assert_allclose(np.stack([found[f"rouge-lsum-{part}"].per_item for part in "prf"], 1), expected, atol=1e-12)
    alone = score(["one line"]*8, [["one line or two"]]*8, ["rouge-lsum-f"], ci=False)["rouge-lsum-f"]
    assert "no text has two lines" in alone.notes[0] and not any("no text has two lines" in note for note in found["rouge-lsum-f"].notes)


def test_lins_rouge_on_summaries():
    "Of 60 words against a reference, and captions in several references with ties."
    rows = lines("coco_captions/val2017_1000.jsonl.gz")[:300]
    captions = [row["captions"] for row in rows]
    hypotheses, references = [c[0] for c in captions], [c[1:] for c in captions]
    for kind in KINDS:
        np.testing.assert_allclose(rouge(hypotheses, references, kind), google(hypotheses, references, kind), atol=1e-12, rtol=0)
        text = rouge([" ".join(c) for c in captions], [[" ".join(c[::-1])] for c in captions], kind)
        np.testing.assert_allclose(text, google([" ".join(c) for c in captions], [[" ".join(c[::-1])] for c in captions], kind), atol=1e-12, rtol=0)


def test_ties_by_recall_do_not_depend_on_the_order_of_references():
    hypotheses, references = corpus(2, 300, 6)
    turned = [refs[::-1] for refs in references]
    for kind in KINDS:
        assert np.array_equal(rouge(hypotheses, references, kind, ties="recall"), rouge(hypotheses, turned, kind, ties="recall"))
        np.testing.assert_allclose(rouge(hypotheses, references, kind)[:, 2], rouge(hypotheses, turned, kind)[:, 2], atol=1e-12)
    assert not np.array_equal(rouge(hypotheses, references, "1"), rouge(hypotheses, turned, "1")), "no tie in this corpus"


@pytest.mark.parametrize("text", ["", "Don't!", "İstanbul ÜBER 3.5%", "日本", "running, RUNS; ran", "a_b-c"])
@pytest.mark.parametrize("stemmer", [False, True])
def test_words_equal_those_of_rouge_score(text, stemmer):
    from rouge_score.tokenizers import DefaultTokenizer
    assert _rouge_words(text, stemmer) == DefaultTokenizer(stemmer).tokenize(text)


def caption_code(hypotheses, references) -> np.ndarray:
    from pycocoevalcap.rouge.rouge import Rouge
    return Rouge().compute_score(dict(enumerate(references)), {i: [h] for i, h in enumerate(hypotheses)})[1]


def test_caption_form_equals_pycocoevalcap():
    "All but empty texts: its split leaves one empty word there, which an empty reference then matches."
    for longest in (12, 90):
        hypotheses, references = corpus(3, longest=longest)
        hypotheses, references = [h or "nothing" for h in hypotheses], [[r or "nothing else" for r in refs] for refs in references]
        np.testing.assert_allclose(rouge_l(hypotheses, references, "none"), caption_code(hypotheses, references), atol=1e-9, rtol=0)
    assert caption_code([""], [[""]]).tolist() == [1] and rouge_l([""], [[""]]).tolist() == [0]
    assert rouge_l(["", "a b", "a b"], [["a b"], [""], ["", "a b"]], "none").tolist() == [0, 0, 1]


def test_caption_form_on_the_demo_captions():
    rows = lines("coco_captions/fakecap_partial_pycocoevalcap.jsonl.gz")
    raw = lines("coco_captions/fakecap_partial.jsonl")
    tokenized = [row["ptb_candidate"] for row in rows], [row["ptb_references"] for row in rows]
    found = rouge_l(*tokenized, tokenizer="none")
    np.testing.assert_allclose(found, caption_code(*tokenized), atol=1e-9, rtol=0)
    np.testing.assert_allclose(found, [row["ROUGE_L"] for row in rows], atol=1e-6, rtol=0)
    assert abs(found.mean() - 0.392449) < 1e-4
    assert abs(rouge_l([r["caption"] for r in raw], [r["references"] for r in raw]).mean() - 0.392449) < 1e-3


def test_other_published_examples():
    hyp, refs, expected = nlg_eval_example()
    assert abs(rouge_l(hyp, refs, "none").mean() - expected["corpus"]["ROUGE_L"]) < 1e-5
    for case in expected["single"]: assert abs(rouge_l([case["hyp"]], [case["ref"]], "none")[0] - case["ROUGE_L"]) < 1e-5
    for captions, refs, expected in clipscore_example():
        assert round(rouge_l(captions, refs).mean(), 4) == expected["ROUGE"]


def test_order_of_references_does_not_matter_to_the_caption_form():
    hypotheses, references = corpus(4)
    assert np.array_equal(rouge_l(hypotheses, references), rouge_l(hypotheses, [refs[::-1] for refs in references]))


def test_values_do_not_depend_on_the_batch():
    hypotheses, references = corpus(5, longest=100)
    for score in (rouge_l, rouge):
        apart = [score(hypotheses[k:k + 9], references[k:k + 9]) for k in range(0, len(hypotheses), 9)]
        assert np.array_equal(np.concatenate(apart), score(hypotheses, references))


def test_signatures_and_refusals():
    options = [{}, {"stemmer": True}, {"tokenizer": "13a"}, {"ties": "recall"}]
    assert len({str(get_metric("rouge-2-f", **o).signature) for o in options}) == 4
    assert len({get_metric("rouge-2-f", **o).phi_key for o in options}) == 3 and get_metric("rouge-2-f").phi_key == get_metric("rouge-l-p").phi_key
    assert str(get_metric("rouge-l", beta=1.0).signature) != str(get_metric("rouge-l").signature)
    for wrong in ({"ties": "last"}, {"tokenizer": "ptb", "stemmer": True}, {"tokenizer": "rogue"}):
        with pytest.raises(InputError): get_metric("rouge-1-f", **wrong)
    for score in (rouge, rouge_l):
        with pytest.raises(InputError, match="no reference"): score(["a"], [[]])
    with pytest.raises(InputError, match="kind of ROUGE"): rouge(["a"], [["a"]], "3")
