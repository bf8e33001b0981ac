"The probe on a user's own texts: who is compared with what, sentinels, clusters, foils of others, and what is refused."
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from real_data import data_path

from invariant_metrics.core import InputError, Signature, rng
from invariant_metrics.worlds.bilingual import make_sentences
from invariant_metrics.worlds.scene_captions import relation_captions
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.probes.own_texts import ALTERNATIVE, OWN_SIZES, _deal_references, edit_foils, edit_items, _foil_items
from invariant_metrics.probes.own_texts import open_own_texts, _oracle_scores, own_probe, _read_foils, _text_wrongness
from invariant_metrics.probes.tables import TOLD_BY_WORDS, MATCHED, NOT_APPLICABLE, UNMATCHED
from invariant_metrics.probes.probe_task import ProbeResult, ProbeSize
from invariant_metrics.edits.word_families import edits_of
from invariant_metrics.edits.word_edits import TextCase, word_edits
from invariant_metrics.metrics.metric import SetMetric, TextMetric

SCENES = make_scenes(24, 64, seed=5)
CAPTIONS = {str(i): list(relation_captions(SCENES, i)) for i in range(24)}
SYSTEMS = {name: {k: CAPTIONS[str((int(k) + shift) % 24)][0] for k in CAPTIONS} for name, shift in (("right", 0), ("shifted", 1))}
FAMILIES = ["color-replaced", "noun-swapped", "object-added", "repetition", "synonym", "reference-itself"]


def colors(text): return {w for w in text.lower().replace(".", "").split() if w in "red green blue yellow orange purple pink brown black white gray teal".split()}


COLORS = TextMetric("colors", lambda p, t, s=None: torch.tensor([float(not colors(a) <= {c for r in refs for c in colors(r)}) for a, refs in zip(p, t)]),
                lambda rows: rows, False, Signature.of(metric="colors"), "colors")
SETS = SetMetric("sets", lambda texts: torch.tensor([[float(len(t)), 1.] for t in texts]),
              lambda p, t, w=None, v=None: float((np.average(p, axis=0, weights=w) - np.average(t, axis=0, weights=v))[0] ** 2), False, Signature.of(metric="sets"), "sets")


@pytest.fixture(scope="module", autouse=True)
def small():
    OWN_SIZES["test"] = ProbeSize(24, 12, 100, 12)
    yield
    del OWN_SIZES["test"]


@pytest.fixture(scope="module")
def result():
    return own_probe("captioning", CAPTIONS, SYSTEMS, metrics=["bleu", "chrf", COLORS, SETS], families=FAMILIES, levels=(1, 2), scale="test", progress=False)


def rows(result, **wanted):
    frame = result.auc
    for column, value in wanted.items(): frame = frame[frame[column] == value]
    return frame


def test_references_are_dealt_out_and_never_compared_with_themselves():
    for seed in range(20):
        item = _deal_references("1", ["A cat.", "One cat!", "a cat", "Some cat", "The cat."], rng(seed))
        parts = [item.base, item.other, *item.targets]
        assert len({p.lower().rstrip(".") for p in parts}) == len(parts) == 4
    said = _deal_references("1", ["A cat.", "One cat."], rng(0), base="a cat")
    assert said.base == "a cat" and said.targets == ("One cat.",) and said.other == ""


def test_one_reference_makes_predictions_the_base():
    single = {k: v[:1] for k, v in CAPTIONS.items()}
    own = open_own_texts(single, {"shifted": SYSTEMS["shifted"]}, size=24)
    items = own.items(0, own.bases("auto")[0])
    assert sum(x.base == SYSTEMS["shifted"][x.name] for x in items) >= 22
    own = open_own_texts(CAPTIONS, SYSTEMS, size=24)
    items = own.items(0, own.bases("predictions")[0])
    assert all(x.base == SYSTEMS["right"][x.name] and x.base not in x.targets for x in items)


def test_sentinels(result):
    assert (rows(result, metric="constant").auc == 0.5).all() and len(rows(result, metric="constant")) > 10
    oracle = rows(result, metric="oracle")
    wrong = oracle.family.isin(["color-replaced", "noun-swapped", "object-added", "repetition"])
    assert (oracle[wrong].auc == 1).all() and (oracle[~wrong].auc == 0.5).all()
    assert {"random", "length"} <= {*result.auc.metric} and "source-only" not in {*result.auc.metric}


def test_the_oracle_does_not_know_which_edit_made_a_text():
    items = open_own_texts(CAPTIONS, size=24).items()
    p = edit_items(items, ["color-replaced", "synonym", "punctuation", "repetition"], (1, 2))
    found = _oracle_scores(items, p)
    told = {name: np.concatenate([found["edit", f, l] for l in range(2) if ("edit", f, l) in found]) for f, name in enumerate(p.families)}
    assert told["color-replaced"].mean() >= 0.95 and told["repetition"].mean() >= 0.95, {k: v.mean() for k, v in told.items()}
    assert not told["synonym"].any() and not told["punctuation"].any() and not told[ALTERNATIVE].any() and not found["base", -1, -1].any()
    p = replace(p, families=p.families[::-1], kinds=["valid" if k == "violation" else "violation" for k in p.kinds])
    again = _oracle_scores(items, p)
    assert all(np.array_equal(again[key], rows_) for key, rows_ in found.items())


def test_truth_of_single_texts():
    case, valid = TextCase("A large cat and a dog sit.", ("Two pets sit.",)), edits_of("captioning", "valid")
    for right in ("a large cat and a dog sit", "two pets sit !", "A big cat and a dog sit."): assert _text_wrongness(case, right, valid) == 0, right
    for wrong in ("", "A small cat and a dog do not sit.", "A small dog and a cat sit.", "Sit dog a and cat small a.", "Two cats sit."): assert _text_wrongness(case, wrong, valid) == 1, wrong


def test_the_item_view_of_a_family_does_not_depend_on_the_others():
    ask = lambda families, levels: rows(own_probe("captioning", CAPTIONS, metrics=["chrf"], families=families, levels=levels, scale="test", progress=False),
                                        metric="chrf", view="item", family="color-replaced", level="2").auc.item()
    assert ask(["color-replaced"], (1, 2)) == ask(FAMILIES, (1, 2)) == ask(["color-replaced", "synonym"], (2,))
    items = open_own_texts(CAPTIONS, size=24).items()
    assert edit_items(items, ["empty"]).alternatives == edit_items(items, ["synonym", "empty"]).alternatives
    assert {ALTERNATIVE, "synonym"} <= {name for _, name, _ in edit_items(items, ["empty"]).alternatives}


def test_every_system_is_edited_and_has_tables_of_its_own():
    ask = lambda **options: own_probe("captioning", CAPTIONS, SYSTEMS, metrics=["chrf"], families=["color-replaced", "object-added"], levels=(1,), scale="test",
                                      progress=False, **options)
    both, auto = ask(base="predictions"), ask()
    assert list(both.signatures) == ["right", "shifted"] == list(dict.fromkeys(both.auc.source)) and {*both.profile.source} == {*both.ledger.source} == {*SYSTEMS}
    assert all(f"edited:{s}" in both.signatures[s] for s in SYSTEMS) and "edited:references" in auto.signatures["captioning"] and {*auto.auc.source} == {"captioning"}
    assert {*both.examples["shifted/base"]} <= {*SYSTEMS["shifted"].values()}
    own = open_own_texts(CAPTIONS, SYSTEMS, size=24)
    assert all(own.items(0, s)[3].base == SYSTEMS[s][own.items(0)[3].name] for s in SYSTEMS)
    single = own_probe("captioning", {k: v[:1] for k, v in CAPTIONS.items()}, {"shifted": SYSTEMS["shifted"]}, metrics=["chrf"], families=["object-added"], scale="test", progress=False)
    assert list(single.signatures) == ["shifted"]
    with pytest.raises(InputError, match="there are no predictions to edit"): own_probe("captioning", CAPTIONS, metrics=["chrf"], base="predictions", progress=False)
    with pytest.raises(InputError, match="may be called source or foils"): open_own_texts(CAPTIONS, {"foils": SYSTEMS["right"]})


def test_items_without_predictions_are_counted_aloud(capsys):
    some = {k: v for k, v in SYSTEMS["right"].items() if int(k) < 10}
    assert len(open_own_texts(CAPTIONS, {"a": some}, size=24).items()) == 10
    assert capsys.readouterr().err == "note: 10 of 24 items have predictions; the others are left out\n"
    open_own_texts(CAPTIONS, SYSTEMS, size=24)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("line, why", [("[1,2]", "no foil"), ("null", "no foil"), ("", "not JSON"),
    ('{"type": "a", "caption": null, "negative_caption": "x", "image_id": 1}', "caption is None"),
    ('{"type": "a", "caption": "x", "negative_caption": "x", "image_id": [1]}', "image_id is"),
    ('{"piece": "a", "caption": "x", "foil": 3, "image_file": "1.jpg"}', "foil is 3"),
    ('{"piece": "a", "caption": "x", "foil": "y", "image_file": null}', "image_file is None"),
    ('{"piece": "a", "caption": "x", "foil": "y", "image_file": "1.jpg", "mturk": null}', "mturk is None"),
    ('{"piece": "a", "caption": "x", "foil": "y", "image_file": "1.jpg", "mturk": {"caption": null}}', "mturk is")])
def test_a_line_that_is_no_foil_is_named(tmp_path, line, why):
    file = tmp_path/"foils.jsonl"
    file.write_text('{"type": "a", "caption": "x", "negative_caption": "y", "image_id": 1}\n' + line + "\n")
    with pytest.raises(InputError, match="line 2: " + why): _read_foils(file)


def test_a_metric_of_colors_sees_colors_only(result):
    paired = rows(result, metric="colors", view="paired", level="1").set_index("family").auc
    assert paired["color-replaced"] > 0.75 and abs(paired["repetition"] - 0.5) < 1e-9


def test_valid_edits_and_the_reference_itself(result):
    paired = rows(result, metric="chrf", view="paired", level="1").set_index("family").auc
    assert paired["reference-itself"] == 0 and 0.2 < paired[ALTERNATIVE] < 0.8 and paired["object-added"] > 0.8
    assert {*rows(result, view="item").family} == {"color-replaced", "noun-swapped", "object-added", "repetition"}


def test_metrics_of_sets_have_one_view_and_all_are_aggregated_over_the_same_sets(result):
    assert {*rows(result, metric="sets").view} == {"set"} and {*rows(result, metric="bleu").view} == {"item", "paired", "set"}


def test_the_ledger_counts_every_item_and_agrees_with_the_table(result):
    ledger = result.ledger
    assert (ledger[["matched", "no_partner", "not_applicable", "unmatched"]].sum(axis=1) == 24).all()
    one = rows(result, metric="chrf", view="paired", level="1").set_index("family").n
    held = ledger[(ledger.level == 1) & (ledger.matched > 0)].set_index("family").matched
    assert (one == held[one.index]).all() and {*one.index} == {*held.index}


def test_profiles_and_the_gap_between_systems(result):
    profile = result.profile
    assert {"paired", "item", "set", "right - shifted"} <= {*profile.view}
    gaps = profile[(profile.view == "right - shifted") & (profile.level == "all") & (profile.metric == "chrf")].set_index("family").exchange
    change = result.dose[(result.dose.metric == "chrf") & (result.dose.level == 1)].set_index("family").score
    assert gaps["object-added"] > 0 and gaps.idxmax() in change.index
    assert gaps["color-replaced"] < 1 # the other system describes other pictures: one color is less than that


def test_doses_start_at_nothing_and_grow(result):
    dose = result.dose[(result.dose.metric == "chrf") & (result.dose.family == "object-added")].sort_values("level")
    assert dose.score.iloc[0] == 0 and dose.score.is_monotonic_increasing and (np.diff(dose.isotonic) >= 0).all()


def test_round_trip(result, tmp_path):
    result.save(tmp_path); back = ProbeResult.load(tmp_path)
    assert back.auc.equals(result.auc) and back.signatures == result.signatures and "own-captioning" in back.signatures["captioning"]
    assert back.examples["captioning/base"].tolist() == result.examples["captioning/base"].tolist()


def test_same_seed_same_numbers_and_one_metric_more_changes_none(result):
    again = own_probe("captioning", CAPTIONS, SYSTEMS, metrics=["chrf"], families=FAMILIES, levels=(1, 2), scale="test", progress=False)
    a, b = (rows(r, metric="chrf").reset_index(drop=True) for r in (again, result))
    assert a.equals(b)


def test_translation_with_sources():
    made = make_sentences(16, seed=1)
    refs = {str(i): list(r) for i, r in enumerate(made.references)}
    source, pred = ({str(i): t for i, t in enumerate(side)} for side in (made.source, made.english))
    found = own_probe("translation", refs, {"a": pred}, source, metrics=["chrf"], families=["untranslated", "negation", "entity-replaced"], scale="test", levels=(1, 5), progress=False)
    assert (rows(found, metric="source-only", view="paired").auc == 0.5).all() and len(rows(found, metric="source-only"))
    assert rows(found, metric="chrf", family="untranslated", view="paired", level="1").auc.item() > 0.9


def test_foils_of_others(tmp_path):
    file = tmp_path/"foils.jsonl"
    lines = [{"type": "swap_att", "idx": i, "image_id": i, "caption": CAPTIONS[str(i)][0], "negative_caption": "A thing that is not there."} for i in range(24)]
    lines += [{"piece": "plurals", "caption": CAPTIONS[str(i)][1], "foil": "Many things.", "image_file": f"{i:012d}.jpg", "mturk": {"caption": i % 4}} for i in range(24)]
    file.write_text("\n".join(map(json.dumps, lines)))
    foils = _read_foils(file)
    assert len(foils) == 24 + 12 # what VALSE's raters did not accept is not used
    items, kept = _foil_items(foils, open_own_texts(CAPTIONS).refs, 100)
    p = edit_foils(items, kept)
    assert all(x.base.lower() not in {t.lower() for t in x.targets} for x in items)
    assert len(np.unique(p.cluster)) == 24 and (p.status[:2] == MATCHED).sum() == len(items)
    found = own_probe("captioning", CAPTIONS, metrics=["chrf"], families=["synonym"], foils=[file], scale="test", progress=False)
    both = rows(found, source="foils", metric="chrf", view="paired", level="all").set_index("family")
    assert (both.loc[["sugarcrepe:swap_att", "valse:plurals"], "auc"] > 0.9).all() and both.n_clusters["sugarcrepe:swap_att"] == 24
    file.write_text('{"a": 1}')
    with pytest.raises(InputError, match="line 1: no foil"): _read_foils(file)


def test_what_is_refused():
    ask = lambda *args, **options: own_probe(*args, scale="test", progress=False, **options)
    with pytest.raises(InputError, match="did you mean captioning"): ask("captions", CAPTIONS)
    with pytest.raises(InputError, match="did you mean negation"): ask("captioning", CAPTIONS, metrics=["chrf"], families=["negations"])
    with pytest.raises(InputError, match="unit-changed applies to none of the 24 items"): ask("captioning", CAPTIONS, metrics=["chrf"], families=["unit-changed", "synonym"])
    with pytest.raises(InputError, match="no id is on both sides: a has zebra"): ask("captioning", CAPTIONS, {"a": {"zebra": "A zebra."}}, metrics=["chrf"])
    with pytest.raises(InputError, match="do not answer the same items: 3"): ask("captioning", CAPTIONS, {"a": SYSTEMS["right"], "b": {k: v for k, v in SYSTEMS["right"].items() if k != "3"}}, metrics=["chrf"])
    with pytest.raises(InputError, match="give --pred, or more references"): ask("captioning", {k: v[0] for k, v in CAPTIONS.items()}, metrics=["chrf"])
    with pytest.raises(InputError, match="psnr looks at images"): ask("captioning", CAPTIONS, metrics=["psnr"])
    with pytest.raises(InputError, match="unknown base"): ask("captioning", CAPTIONS, metrics=["chrf"], base="reference")


def test_unproved_edits_are_counted_and_not_used():
    items = open_own_texts(CAPTIONS, size=24).items()
    p = edit_items(items, ["unrelated", "addition"], (1,))
    for f in range(2):
        assert (p.status[f, 0] == MATCHED).sum() == len(p.at(("edit", f, 0)))
    assert (p.status == UNMATCHED).sum() + (p.status == NOT_APPLICABLE).sum() + (p.status == MATCHED).sum() == p.status.size


def test_real_captions_with_foils():
    place = data_path("coco_captions/val2017_1000.jsonl.gz")
    OWN_SIZES["test-real"] = ProbeSize(40, 12, 60, 16)
    try: found = own_probe("captioning", place, metrics=["chrf", "rouge-l"], families=["noun-swapped", "negation", "synonym"], levels=(1,), scale="test-real",
                           foils=[data_path("sugarcrepe/sugarcrepe.jsonl.gz")], progress=False)
    finally: del OWN_SIZES["test-real"]
    nouns = rows(found, metric="chrf", family="noun-swapped", view="paired", level="1").auc.item()
    assert nouns > 0.75 and len({*rows(found, source="foils").family}) == 8


def test_texts_that_equal_their_only_reference_are_refused():
    single = {k: v[:1] for k, v in CAPTIONS.items()}
    with pytest.raises(InputError, match="no text can be edited"):
        own_probe("captioning", single, {"right": SYSTEMS["right"]}, metrics=["chrf"], families=["negation"], scale="test", progress=False)


def test_an_edit_of_ones_own_is_one_function(tmp_path, monkeypatch):
    "By module and function, as a command would say it."
    (tmp_path/"edits_of_a_test.py").write_text("""
from invariant_metrics.edits.word_edits import word_edit
def proof(case, after, level): return after.lower().replace("maybe ", "", 1) == case.text.lower()
@word_edit("hedged-by-test", "minor", "one maybe put in", proof, steps=1, tasks=("captioning",))
def hedged(case, level, generator): return "Maybe " + case.text[:1].lower() + case.text[1:]
""")
    monkeypatch.syspath_prepend(tmp_path)
    found = own_probe("captioning", CAPTIONS, metrics=["chrf"], families=["edits_of_a_test:hedged"], scale="test", progress=False)
    word_edits.entries.pop("hedged-by-test")
    assert rows(found, metric="chrf", view="paired", family="hedged-by-test", level="1").auc.item() > 0.7
    with pytest.raises(InputError, match="is no edit"): own_probe("captioning", CAPTIONS, metrics=["chrf"], families=["edits_of_a_test:proof"], scale="test", progress=False)


def test_a_valid_edit_of_ones_own_is_known_in_every_process(tmp_path, monkeypatch):
    "The oracle, which may work in another process, finds its texts as right as the others."
    (tmp_path/"valid_edits_of_a_test.py").write_text("""
from invariant_metrics.edits.word_edits import word_edit
def proof(case, after, level): return after.lower().replace("indeed ", "", 1) == case.text.lower()
@word_edit("indeed-by-test", "minor", "one indeed put in", proof, kind="valid", steps=1, tasks=("captioning",))
def indeed(case, level, generator): return "Indeed " + case.text[:1].lower() + case.text[1:]
""")
    monkeypatch.syspath_prepend(tmp_path)
    found = {}
    try:
        for workers in (1, 2):
            found[workers] = own_probe("captioning", CAPTIONS, metrics=["bleu", "chrf"], families=["negation", "valid_edits_of_a_test:indeed"],
                                       scale="test", workers=workers, progress=False)
    finally: word_edits.entries.pop("indeed-by-test", None)
    assert found[2].auc.equals(found[1].auc)
    oracle = {family: rows(found[2], metric="oracle", view="paired", family=family, level="1").auc.item() for family in ("negation", "indeed-by-test")}
    assert oracle == {"negation": 1.0, "indeed-by-test": 0.5}


def test_the_ledger_says_what_words_alone_tell_and_all_counts_it():
    ask = lambda **options: own_probe("captioning", CAPTIONS, metrics=["chrf"], levels=(1,), scale="test", progress=False, **options).ledger.set_index("family")
    three = ["negation", "color-replaced", "misspelling"]
    headline, every, named = ask(), ask(all_families=True), ask(families=three)
    assert headline.loc["negation", "told_by_words"] > TOLD_BY_WORDS > headline.loc["color-replaced", "told_by_words"]
    assert headline.loc[["negation", "color-replaced", "misspelling"], "counted"].to_list() == [False, True, True] and every["counted"].all()
    assert every["told_by_words"].equals(headline["told_by_words"])
    assert named.loc[three, "counted"].all() # who names families wants them counted


def test_metrics_of_a_run_may_be_objects_of_other_libraries(tmp_path):
    import sacrebleu
    from invariant_metrics.probes.run_probe import run_probe
    refs = {str(i): [f"a {c} {t} is here", f"there is a {c} {t}", f"the {t} is {c}"] for i, (c, t) in enumerate((c, t) for c in ("red", "blue") for t in ("dog", "cat", "car"))}
    folder, found = run_probe("captioning", refs, metrics=["chrf", sacrebleu.metrics.CHRF()], families=["negation"], scale="quick", out=tmp_path/"run", workers=1, progress=False)
    assert {"chrf", "sacrebleu:CHRF"} <= {*found.auc["metric"]}
    ours, theirs = (found.auc[found.auc["metric"] == name].drop(columns="metric").reset_index(drop=True) for name in ("chrf", "sacrebleu:CHRF"))
    assert (ours["auc"] - theirs["auc"]).abs().max() < 1e-9
