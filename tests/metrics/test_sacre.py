"chrF and TER: sacreBLEU's numbers from sums that can be weighted, and its published values on real systems."
import gzip
import json
from itertools import zip_longest

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.sacre import _chrf_rows, _chrf_score, _ter_rows, _ter_score
from real_data import data_path

words = st.lists(st.sampled_from("a ab Ab the cat, sat. on (mat) ß 漢字 :".split()), max_size=7).map(" ".join)
corpora = st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=3)), min_size=1, max_size=5)
CHRF_OPTIONS = [{}, dict(word_order=2), dict(char_order=3, beta=1), dict(lowercase=True), dict(whitespace=True), dict(eps_smoothing=True),
                dict(word_order=2, eps_smoothing=True, beta=3)]
TER_OPTIONS = [{}, dict(normalized=True), dict(no_punct=True), dict(case_sensitive=True), dict(normalized=True, no_punct=True, asian_support=True)]


def both(name: str, options: dict, pred: list[str], target: list[list[str]]) -> tuple[float, np.ndarray]:
    "Corpus value and values per item, by the registered metric."
    metric = get_metric(name, **options)
    rows = extract([metric], pred, target)[name]
    return metric.statistic(rows), metric.per_item(rows.pred).numpy()


@pytest.mark.parametrize("name,library,options", [*(("chrf", "CHRF", o) for o in CHRF_OPTIONS), *(("ter", "TER", o) for o in TER_OPTIONS)])
@settings(max_examples=25)
@given(corpus=corpora)
def test_equal_to_the_library_with_any_number_of_references(name, library, options, corpus):
    import sacrebleu.metrics
    pred, target = [p for p, _ in corpus], [t for _, t in corpus]
    value, items = both(name, options, pred, target)
    theirs = getattr(sacrebleu.metrics, library)(**options)
    assert value == pytest.approx(theirs.corpus_score(pred, list(zip_longest(*target))).score, abs=1e-9)
    assert items == pytest.approx([theirs.sentence_score(p, t).score for p, t in corpus], abs=1e-9)


@pytest.mark.parametrize("name", ["chrf", "chrf++", "ter"])
def test_weights_are_repetitions_and_shards_add_up(name):
    pred, target = ["the cat sat", "a dog", "", "on the mat"], [["the cat sat down"], ["a dog", "the dog"], ["x"], ["on a mat", "mat"]]
    metric, counts = get_metric(name), [2, 0, 1, 3]
    rows = extract([metric], pred, target)[name]
    again = extract([metric], [p for p, n in zip(pred, counts) for _ in range(n)], [t for t, n in zip(target, counts) for _ in range(n)])[name]
    assert metric.replicates(rows, np.array([counts]))[0] == pytest.approx(metric.statistic(again), abs=1e-9)
    parts = [extract([metric], pred[i:i + 2], target[i:i + 2])[name].pred for i in (0, 2)]
    assert torch.equal(torch.cat(parts), rows.pred)


@pytest.mark.parametrize("name", ["chrf", "chrf++", "ter"])
def test_derivatives_are_those_of_the_pool(name):
    metric = get_metric(name)
    sums = extract([metric], ["the cat sat", "a dog"], [["the cat sat down"], ["the dog"]])[name].pred.sum(0, keepdim=True).requires_grad_()
    assert torch.autograd.gradcheck(metric.pool, (sums,))
    empty = torch.zeros_like(sums).requires_grad_()
    assert torch.autograd.grad(metric.pool(empty).sum(), empty)[0].isfinite().all()


def test_empty_texts_have_defined_values():
    pred, target = ["", "a", ""], [["a"], [""], [""]]
    assert _chrf_score(_chrf_rows(pred, target)).tolist() == [0, 0, 0]
    assert _ter_score(_ter_rows(pred, target)).tolist() == [100, 100, 0]
    assert both("chrf", {}, [""], [[""]])[0] == 0 and both("ter", {}, [""], [[""]])[0] == 0


def test_sacrebleus_own_cases():
    cases = json.loads(data_path("parity/sacrebleu_small.json").read_text())
    eps = dict(char_order=6, word_order=0, beta=3, eps_smoothing=True)
    for pred, target, expected in cases["chrf_corpus_eps_smoothing(char6,word0,beta3)"]:
        assert both("chrf", eps, pred, [[t] for t in target])[0] == pytest.approx(expected, abs=1e-4)
    for pred, target, expected in cases["chrf_corpus_effective_order"]:
        assert both("chrf", dict(beta=3), pred, [[t] for t in target])[0] == pytest.approx(expected, abs=1e-4)
    for pred, target, expected in cases["chrf_keep_whitespace"]:
        assert both("chrf", dict(beta=3, whitespace=True), pred, [[t] for t in target])[0] == pytest.approx(expected, abs=1e-4)
    for pred, target, expected in cases["chrf_sentence(eps_smoothing)"]:
        assert both("chrf", dict(eps_smoothing=True), [pred], [target])[1][0] == pytest.approx(expected, abs=1e-6)
    for pred, target, expected in cases["ter_fraction(times 100 in score)"]:
        assert both("ter", {}, pred, [[t] for t in target])[0] == pytest.approx(100*expected, abs=0.06)


def test_published_chrf_of_translation_systems():
    folder = data_path("parity/sacrebleu_wmt17_ende")
    expected = json.loads((folder/"expected.json").read_text())
    with gzip.open(folder/"newstest2017_ende.jsonl.gz", "rt", encoding="utf-8") as file: rows = [json.loads(line) for line in file]
    target = [[row["ref"]] for row in rows]
    for name, key in (("chrf", "chrF_official_script"), ("chrf++", "chrFpp_official_script")):
        for system, value in expected[key].items():
            pred = [row["sys"][expected["systems"].index(system)] for row in rows]
            found = (metric := get_metric(name, eps_smoothing=True)).statistic(extract([metric], pred, target)[name])
            assert round(found, 4) == value, (name, system, found)


def test_what_is_refused():
    with pytest.raises(InputError, match="no reference: 2"): _chrf_rows(["a", "b"], [["a"], []])
    with pytest.raises(InputError, match="not texts: 2"): _ter_rows(["a", "b"], [["a"], [None]])
    with pytest.raises(InputError, match="not texts: 1"): _chrf_rows([3], [["a"]])
    with pytest.raises(InputError, match="not one string"): _chrf_rows(["a"], "a")
    with pytest.raises(InputError, match="no texts"): _ter_rows([], [])
    with pytest.raises(InputError, match="char_order is 1 to 32"): get_metric("chrf", char_order=0)
    with pytest.raises(InputError, match="beta"): get_metric("chrf", beat=1)


def test_the_signature_names_every_option():
    assert len({str(get_metric("chrf", **o).signature) for o in CHRF_OPTIONS}) == len(CHRF_OPTIONS)
    assert len({get_metric("ter", **o).phi_key for o in TER_OPTIONS}) == len(TER_OPTIONS)
    assert "sacrebleu:" in str(get_metric("chrf++").signature)


def scrambled(generator: np.random.Generator, words: int, kinds: int) -> tuple[str, str]: # of one vocabulary: phrases moved, words lost
    text = generator.integers(0, kinds, words)
    a, b, c = np.sort(generator.integers(0, words + 1, 3))
    other = np.concatenate([text[b:c], text[:a], text[c:], text[a:b]])
    return " ".join(map(str, text)), " ".join(map(str, other[generator.random(words) > 0.1]))


@pytest.mark.parametrize("words,kinds,pairs", [(12, 5, 20), (30, 40, 8), (60, 200, 3), (22, 3, 1)]) # the last: more shifts than TER tries
def test_moved_phrases_and_long_sentences_have_sacrebleus_edits(words, kinds, pairs, monkeypatch):
    from sacrebleu.metrics import TER
    generator = np.random.default_rng(words)
    pred, target = zip(*[scrambled(generator, words, kinds) for _ in range(pairs)])
    target = [[t, target[i - 1]] for i, t in enumerate(target)] if words < 30 else [[t] for t in target]
    theirs = TER()._extract_corpus_statistics(pred, list(zip_longest(*target)))
    assert _ter_rows(pred, target).tolist() == theirs
    monkeypatch.setattr("invariant_metrics.metrics.sacre._TABLE_CELLS", 2000) # in portions
    assert _ter_rows(pred, target).tolist() == theirs


def test_equal_whatever_the_alphabet_the_order_and_the_portions(monkeypatch):
    from sacrebleu.metrics import CHRF
    generator = np.random.default_rng(0)
    letters = np.array([*map(chr, range(0x4e00, 0x4e00 + 3000)), "\u2003", "\ud800", "\U0001f600", ".", "("])
    pred, target = (["".join(generator.choice(letters[-500:], n)) for n in generator.integers(0, 40, 60)] for _ in "pt")
    target = [[t, p[3:] + t[:5], p[:9]] for p, t in zip(pred, target)]
    for options in (dict(char_order=6), dict(char_order=15, word_order=4, whitespace=True)):
        theirs = CHRF(**options)._extract_corpus_statistics(pred, list(zip_longest(*target)))
        assert _chrf_rows(pred, target, **options).tolist() == theirs
        monkeypatch.setattr("invariant_metrics.metrics.sacre._shared_grams.__defaults__", (50,))
        assert _chrf_rows(pred, target, **options).tolist() == theirs
        monkeypatch.undo()
