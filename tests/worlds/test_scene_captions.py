"Captions with relations: true, five, told apart from false ones by a judge that reads them exactly."
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from invariant_metrics.core import InputError, rng
from invariant_metrics.worlds.classes import CLASSES, COLORS
from invariant_metrics.edits.captions import caption_items
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.training.text_corpora import scene_texts
from invariant_metrics.worlds.scene_captions import _INSTEAD, MIRROR, WORDS, SceneTruth, caption_truth, scenes_with_captions, count_claims, judge_captions
from invariant_metrics.worlds.scene_captions import relation_captions, read_claims, subject_of
from invariant_metrics.worlds.layout import STUFF, layout_draws, make_layout
from invariant_metrics.worlds.scene_text import captions, scene_entities, scene_graph, thing_traits
from invariant_metrics.worlds.scenes import make_scenes, recolored

SCENES = make_scenes(150, size=64, seed=21)
NOUNS = [c.name for c in CLASSES]


def test_five_different_references_that_say_nothing_but_the_truth():
    for i in range(150):
        five, truth = relation_captions(SCENES, i), caption_truth(SCENES, i)
        assert len(set(five)) == 5 and all(text == text.lower() and not text.endswith(".") for text in five)
        for text in five:
            claims = read_claims(text)
            assert claims.objects <= truth.objects and claims.attributes <= truth.attributes and claims.relations <= truth.relations
            assert claims.relations


def test_the_five_are_about_the_same_two_things():
    for i in range(150):
        s = subject_of(SCENES, i)
        for text in relation_captions(SCENES, i):
            assert {s.first.noun, s.second.noun} <= read_claims(text).objects


def test_truth_is_the_scene_graph_with_nouns_for_names():
    for i in range(40):
        truth, graph = caption_truth(SCENES, i), scene_graph(SCENES, i)
        noun = lambda name: name.split(" ")[0]
        assert truth.relations == {(noun(t.subject), t.relation, noun(t.object)) for t in graph if t.relation != "is"}
        assert truth.attributes == {(noun(t.subject), t.object) for t in graph if t.relation == "is"}
        assert all((c, MIRROR[r], a) in truth.relations for a, r, c in truth.relations if r in MIRROR)


def test_references_are_a_function_of_the_scene():
    one = make_scenes(1, size=64, seed=21, start=7)
    assert relation_captions(one, 0) == relation_captions(SCENES, 7)
    other = recolored(SCENES, rng(0, "captions"), share=1.)
    moved = [i for i in range(150) if relation_captions(other, i) != relation_captions(SCENES, i)]
    assert len(moved) > 100 and all(read_claims(relation_captions(other, i)[0]).relations == read_claims(relation_captions(SCENES, i)[0]).relations for i in range(150))


@pytest.mark.parametrize("relation", WORDS)
def test_every_word_for_a_relation_is_read_in_every_construction(relation):
    for words in WORDS[relation]:
        claim = {("ball", relation, "boat")}
        for text in (f"a red ball is {words} a blue boat", f"there is a red ball {words} a blue boat", f"{words} a blue boat there is a red ball",
                     f"{words.capitalize()} the blue boat, there is a ball.", f"two red balls are {words} boats"):
            assert read_claims(text).relations == claim, text
        assert read_claims(f"a ball on grass, {words} a boat").relations == claim | {("ball", "on", "grass")}
        assert read_claims(f"a ball on grass and {words} a boat").relations == claim | {("ball", "on", "grass")}


def test_a_false_caption_is_found_out():
    found = 0
    for i in range(150):
        text, truth = relation_captions(SCENES, i)[0], caption_truth(SCENES, i)
        (a, relation, b), = read_claims(text).relations
        if relation in MIRROR and (a, MIRROR[relation], b) not in truth.relations:
            wrong = next(text.replace(f" {w} ", f" {WORDS[MIRROR[relation]][0]} ") for w in sorted(WORDS[relation], key=len, reverse=True) if f" {w} " in text)
            held = judge_captions([text, wrong], [truth] * 2)
            found += 1
            assert held["relations"].tolist() == [1, 0] and held["objects"].tolist() == [1, 1] and held["all"][1] < 1
    assert found > 50


def test_oranges_are_things_and_orange_is_a_color():
    assert read_claims("an orange") == SceneTruth(frozenset({"orange"}), frozenset(), frozenset())
    assert read_claims("an orange tree behind an orange").attributes == {("tree", "orange")}
    assert read_claims("an orange tree behind an orange").relations == {("tree", "behind", "orange")}


def test_silence_counts_nothing_and_lengths_must_agree():
    held = judge_captions(["", "what a day", "a ball"], [read_claims("a red ball")] * 3)
    assert held["objects"].tolist() == [0, 0, 1] and held["relations"].tolist() == [0, 0, 0] and not any(np.isnan(v).any() for v in held.values())
    assert judge_captions([], [])["all"].shape == (0,)
    red = read_claims("a red ball is left of a blue boat")
    told = count_claims(["", "a red ball", "a red ball is right of a green boat", "a red ball is left of a blue boat"], [red]*4)
    assert [told[k].tolist() for k in ("kept-relations", "false-claims", "claims-relation", "true-sides")] == [[0, 0, 0, 1], [0, 0, 2, 0], [0, 0, 1, 1], [0, 0, 0, 1]]
    assert count_claims(["a red ball on grass"], [read_claims("a red ball on grass")])["true-sides"][0] == 0 # a ground is no side
    with pytest.raises(InputError, match="2 captions for 1 scenes"): judge_captions(["a", "b"], [read_claims("a ball")])
    with pytest.raises(InputError, match="give one for each"): judge_captions("a", [read_claims("a ball")])
    with pytest.raises(InputError, match="no scene 150"): relation_captions(SCENES, 150)


WORDS_OF_CAPTIONS = [*NOUNS, *COLORS, *{w for all_ in WORDS.values() for words in all_ for w in words.split()}, "a", "the", "is", "there", "and", ",", "it", "its"]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(WORDS_OF_CAPTIONS), max_size=20).map(" ".join))
def test_whatever_is_said_is_judged_between_zero_and_one(text):
    held = judge_captions([text], [caption_truth(SCENES, 0)])
    assert all(0 <= v[0] <= 1 for v in held.values())
    assert {n for a, _, b in read_claims(text).relations for n in (a, b)} <= read_claims(text).objects


def test_scenes_without_captions_are_replaced_and_the_others_are_the_same():
    "Scene 2 of this seed has no two things to tell of; it stopped every reader of captions."
    plain = make_scenes(4, 32, seed=53_001)
    with pytest.raises(InputError, match="scenes_with_captions"): relation_captions(plain, 2)
    told = scenes_with_captions(4, 32, seed=53_001)
    assert [len(relation_captions(told, i)) for i in range(4)] == [5]*4
    assert told.index.tolist() == [0, 1, 2 + _INSTEAD, 3] and torch.equal(told.rgb[[0, 1, 3]], plain.rgb[[0, 1, 3]])
    later = scenes_with_captions(2, 32, seed=53_001, start=2) # the same whoever asks
    assert torch.equal(later.rgb, told.rgb[2:]) and torch.equal(later.regions.class_id, told.regions.class_id[2:])
    assert torch.equal(scenes_with_captions(4, 32, seed=1).rgb, make_scenes(4, 32, seed=1).rgb)


def test_texts_and_items_of_such_a_world_are_made():
    texts = scene_texts(get_encoder("embedded"), 32, 53_001, 0, 4)
    assert texts.names == [0, 1, 2 + _INSTEAD, 3] and len(texts.features) == len(texts.truth) == len(texts.relations) == 4
    assert len(caption_items(4, 53_001 - 95_000).cases) == 4


def test_traits_are_those_of_the_draws_behind_the_layout():
    "The oracle reads the uniform numbers that the layout began with; the region table has only heights and depths."
    drawn, slot = layout_draws(21, 0, 150), make_layout(21, 0, 150)["slot"].numpy()
    seen = set()
    for i in range(150):
        traits = thing_traits(SCENES, i)
        for k in range(slot.shape[1]):
            if not SCENES.regions.present[i, STUFF + k]: continue
            scale, row = drawn["scale"][i, slot[i, k]], drawn["row"][i, slot[i, k]]
            if min(abs(scale - 1/3), abs(scale - 2/3), abs(.3 + .75*row - .5), abs(.3 + .75*row - 1)) < 1e-3: continue # on a border
            size = "small" if scale < 1/3 else "large" if scale > 2/3 else "distant" if .3 + .75*row < .5 else ""
            expected = "" if .3 + .75*row > 1 else size
            assert traits.get(STUFF + k, "") == expected
            seen.add(expected)
    assert seen == {"small", "large", "distant", ""}


def test_sized_captions_say_of_each_thing_what_is_so_and_nothing_else_anew():
    words = {"small", "large", "distant"}
    said = 0
    for i in range(150):
        traits = thing_traits(SCENES, i)
        true = {(traits.get(e.region, ""), e.color, e.noun) for e in scene_entities(SCENES, i) if e.thing}
        for k, (plain, sized) in enumerate(zip(captions(SCENES, i), captions(SCENES, i, sized=True))):
            if k in (1, 3): assert sized == plain
            if k in (2, 4): # one thing at a time, each with its own trait
                found = sized.lower().rstrip(".").split()
                for at, word in enumerate(found):
                    if word not in words: continue
                    said += 1
                    color, noun = found[at + 1:at + 3] if found[at + 2:at + 3] and found[at + 2] in NOUNS else ["orange", found[at + 1]]
                    assert (word, color, noun) in true, (sized, true)
            articles = {"a", "an", "another"} # two that are told apart by a size need no *another*
            assert [w for w in sized.lower().split() if w not in words | articles] == [w for w in plain.lower().split() if w not in articles]
    assert said > 150
