"CIDEr-D per image as the caption code has it, CIDEr as its formula has it, and document frequencies that can be kept."
import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from commands import cli
from real_data import clipscore_example, lines, nlg_eval_example
from scipy.stats import kendalltau

from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.cider import cider, cider_d, document_frequencies


def corpus(seed: int, n: int = 50, words: int = 12) -> tuple[list[str], list[list[str]]]:
    "Texts with unequal numbers of references, repeated words, empty texts, and words that only hypotheses have."
    draw = random.Random(seed)
    def text(more=()): return " ".join(draw.choices([*map(str, range(words)), *more], k=draw.choice([0, 1, 2, 3, *range(4, 14)])))
    return [text("xyz") for _ in range(n)], [[text() for _ in range(draw.randint(1, 5))] for _ in range(n)]


def caption_code(hypotheses, references) -> np.ndarray:
    from pycocoevalcap.cider.cider import Cider
    return Cider().compute_score(dict(enumerate(references)), {i: [h] for i, h in enumerate(hypotheses)})[1]


def by_formula(hypotheses, references) -> list[float]:
    "CIDEr of each item, word for word: tf-idf vectors, cosines, means over references and lengths, times 10."
    def grams(text, n): return Counter(zip(*[text.split()[k:] for k in range(n)]))
    scores = [0.]*len(hypotheses)
    for n in (1, 2, 3, 4):
        df = Counter(g for refs in references for g in set().union(*(grams(r, n) for r in refs)))
        def vector(text): return {g: c*(math.log(len(references)) - math.log(max(1, df[g]))) for g, c in grams(text, n).items()}
        for i, (h, refs) in enumerate(zip(hypotheses, references)):
            v = vector(h)
            for w in map(vector, refs):
                size = math.sqrt(sum(x*x for x in v.values())*sum(x*x for x in w.values()))
                if size: scores[i] += 10/4/len(refs)*sum(v[g]*w.get(g, 0.) for g in v)/size
    return scores


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cider_d_equals_pycocoevalcap_per_item(seed):
    hypotheses, references = corpus(seed, words=(4, 12, 60)[seed])
    np.testing.assert_allclose(cider_d(hypotheses, references, "none"), caption_code(hypotheses, references), atol=1e-9, rtol=0)


@pytest.mark.parametrize("seed", [0, 1])
def test_plain_cider_equals_its_formula(seed):
    hypotheses, references = corpus(seed)
    np.testing.assert_allclose(cider(hypotheses, references, "none"), by_formula(hypotheses, references), atol=1e-9, rtol=0)


def test_demo_captions():
    "Per image on tokenized text, the whole from raw text."
    rows = lines("coco_captions/fakecap_partial_pycocoevalcap.jsonl.gz")
    raw = lines("coco_captions/fakecap_partial.jsonl")
    tokenized = [row["ptb_candidate"] for row in rows], [row["ptb_references"] for row in rows]
    found = cider_d(*tokenized, tokenizer="none")
    np.testing.assert_allclose(found, caption_code(*tokenized), atol=1e-9, rtol=0)
    np.testing.assert_allclose(found, [row["CIDEr"] for row in rows], atol=1e-6, rtol=0)
    np.testing.assert_allclose(cider(*tokenized, tokenizer="none"), by_formula(*tokenized), atol=1e-9, rtol=0)
    assert abs(found.mean() - 0.559715) < 1e-4
    assert abs(cider_d([r["caption"] for r in raw], [r["references"] for r in raw]).mean() - 0.559715) < 1e-3


def test_other_published_examples():
    hyp, refs, expected = nlg_eval_example()
    assert abs(cider_d(hyp, refs, "none").mean() - expected["corpus"]["CIDEr"]) < 1e-5
    for case in expected["single"]: assert cider_d([case["hyp"]], [case["ref"]], "none")[0] == case["CIDEr"]
    for captions, refs, expected in clipscore_example():
        assert round(cider_d(captions, refs).mean(), 4) == expected["CIDER"]


def test_flickr8k_agreement_with_people_from_raw_text():
    "tau_c x 100 over 16,992 ratings, as published: BLEU-1 32.3, BLEU-4 30.8, ROUGE-L 32.3, CIDEr-D 43.9."
    images = {r["image_id"]: r["references"] for r in lines("flickr8k_expert/images.jsonl")}
    rows = lines("flickr8k_expert/judgments.jsonl")
    candidates, references = [r["candidate"] for r in rows], [images[r["image_id"]] for r in rows]
    ratings = [x for r in rows for x in r["ratings"]]
    metrics = [get_metric(name) for name in ("bleu-1", "bleu-4", "rouge-l", "cider-d")]
    found = extract(metrics, candidates, references)
    assert len(ratings) == 16992
    for metric, expected in zip(metrics, (32.32, 30.78, 32.31, 43.89)):
        scores = np.repeat(metric.values(found[metric.name].pred).numpy(), 3)
        assert abs(100*kendalltau(scores, ratings, variant="c").statistic - expected) < 0.03, metric.name


def test_frequencies_of_the_data_given_as_a_corpus_change_nothing():
    hypotheses, references = corpus(3)
    df = document_frequencies(references, "none")
    for score in (cider_d, cider):
        np.testing.assert_allclose(score(hypotheses, references, "none", df), score(hypotheses, references, "none"), atol=1e-12)


def test_frequencies_are_of_any_order():
    references = corpus(4)[1]
    whole = document_frequencies(references, "none")
    assert document_frequencies(references[::-1], "none").digest() == whole.digest() != document_frequencies(references[:11], "none").digest()


def test_with_frequencies_of_a_corpus_each_item_stands_alone():
    "And the metric says so: only without them does a row depend on the other items."
    hypotheses, references = corpus(5)
    df = document_frequencies(corpus(6)[1], "none")
    together = cider_d(hypotheses, references, "none", df)
    alone = np.concatenate([cider_d([h], [r], "none", df) for h, r in zip(hypotheses, references)])
    np.testing.assert_allclose(together, alone, atol=1e-12, rtol=0)
    assert not get_metric("cider-d", tokenizer="none", df=df).corpus and get_metric("cider-d").corpus


def test_one_image_scores_zero_and_says_why():
    "Twice in a row, too; with frequencies from a corpus there is a score and nothing to explain."
    metric, one = get_metric("cider-d"), (["a cat on a mat"], [["a cat on a mat", "a cat"]])
    for _ in range(2):
        rows = extract([metric], *one)["cider-d"]
        assert metric.statistic(rows) == 0 and "df=" in rows.notes[0] and "log 1 = 0" in rows.notes[0]
    df = document_frequencies([["a cat on a mat", "a cat"], ["two dogs"]])
    rows = extract([get_metric("cider-d", df=df)], *one)["cider-d"]
    assert rows.pred[0] > 1 and rows.notes == ()
    note, = (n for n in extract([metric], *corpus(7))["cider-d"].notes if "df=FILE" in n)
    assert "frequencies are those of these 50 items" in note and "--option df=FILE" in note
    assert extract([metric], ["a b", "c"], [["a b"], ["a b"]])["cider-d"].notes, "all references are alike: no weight either"


def test_empty_texts_score_zero_and_an_empty_reference_counts():
    assert cider_d(["", "", "a b", "a b"], [["a b"], [""], [""], ["a b"]], "none")[:3].tolist() == [0, 0, 0]
    full, with_empty = cider_d(["a b", "c"], [["a b"], ["c d"]], "none")[0], cider_d(["a b", "c"], [["a b", ""], ["c d"]], "none")[0]
    assert full > 0 and abs(with_empty - full/2) < 1e-12


def test_order_of_references_does_not_matter():
    hypotheses, references = corpus(8)
    for score in (cider_d, cider):
        np.testing.assert_allclose(score(hypotheses, [r[::-1] for r in references], "none"), score(hypotheses, references, "none"), atol=1e-12)


def test_signature_names_the_frequencies():
    a, b = (document_frequencies(corpus(seed)[1]) for seed in (0, 1))
    signatures = [str(get_metric("cider-d", **o).signature) for o in ({}, {"df": a}, {"df": b}, {"tokenizer": "13a"}, {"sigma": 3.0})]
    assert len(set(signatures)) == 5 and a.digest() in signatures[1] and "df:data" in signatures[0]


def test_wrong_frequencies_are_refused(tmp_path):
    df = document_frequencies([["a cat"]], "none")
    with pytest.raises(InputError, match="counted with tokenizer 'none'"): get_metric("cider-d", df=df)
    with pytest.raises(InputError, match="file of references.*not .*none"): get_metric("cider", df=tmp_path/"none")
    with pytest.raises(InputError, match="not dict"): get_metric("cider", df={})


def test_a_reference_corpus_ends_the_fall_with_n(tmp_path):
    "With frequencies of the data the number of a part is larger than that of the whole, and says so; with df it is that of its items."
    hypotheses, references = corpus(11, 80, 40)
    whole = document_frequencies(references, "none")
    (tmp_path/"refs.json").write_text(json.dumps({str(i): refs for i, refs in enumerate(references)}))
    (tmp_path/"hyp.json").write_text(json.dumps({str(i): h for i, h in enumerate(hypotheses[:20])}))
    (tmp_path/"few.json").write_text(json.dumps({str(i): refs for i, refs in enumerate(references[:20])}))
    def score(*options):
        done = cli("score", "cider-d", "--pred", "hyp.json", "--target", "few.json", "--json", "--option", "tokenizer=none", *options, cwd=tmp_path)
        return next(iter(json.loads(done.stdout)["result"]["scores"].values()))["cider-d"]
    own, counted = (score(*x) for x in ((), ("--option", "df=refs.json")))
    assert own["value"] != counted["value"] == pytest.approx(cider_d(hypotheses, references, "none", whole)[:20].mean())
    assert any("df=FILE" in note for note in own["notes"]) and not any("df=FILE" in note for note in counted["notes"])
    assert "df:data" in own["signature"] and f"df:80-{whole.digest()}" in counted["signature"]


def test_portions_count_the_documents_of_all(monkeypatch):
    from functools import partial
    from invariant_metrics.metrics import cider as module
    hypotheses, references = corpus(5)
    whole, plain = cider_d(hypotheses, references, "none"), cider(hypotheses, references, "none")
    notes = [module._cider_notes(module.intern(hypotheses, references))]
    monkeypatch.setattr(module, "ITEMS", 7)
    monkeypatch.setattr(module, "item_batches", partial(module.item_batches, items=7))
    assert (cider_d(hypotheses, references, "none") == whole).all() and (cider(hypotheses, references, "none") == plain).all()
    assert [module._cider_notes(module.intern(hypotheses, references))] == notes
    kept = document_frequencies(references, "none")
    assert cider_d(hypotheses, references, "none", df=kept) == pytest.approx(whole, abs=1e-12)
