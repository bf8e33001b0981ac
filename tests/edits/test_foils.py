"Foils of captions: false of everything that shows, one place changed, and no likelier than the caption."

import pytest

from invariant_metrics.core import InputError, rng
from invariant_metrics.worlds.foils import FOIL_KINDS, foil_rows, foils, mentions, seen_things
from invariant_metrics.worlds.scene_captions import caption_truth, read_claims
from invariant_metrics.worlds.scenes import make_scenes


@pytest.fixture(scope="module")
def scenes(): return make_scenes(120, 64, seed=4)


@pytest.mark.parametrize("kind", ["noun", "color", "side"])
def test_captions_are_true_and_foils_false_by_the_exact_reader(scenes, kind):
    rows = foil_rows(scenes, kind)
    assert len(rows) > 40
    for row in rows:
        truth = caption_truth(scenes, row.scene)
        assert all(said <= true for said, true in zip(read_claims(row.caption), truth))
        assert any(said - true for said, true in zip(read_claims(row.foil), truth))


def test_noun_and_color_foils_are_false_of_hidden_things_too(scenes):
    for row in foil_rows(scenes, "noun") + foil_rows(scenes, "color"):
        there = {(t.noun, t.color) for t in seen_things(scenes, row.scene)} | {(t.noun, "") for t in seen_things(scenes, row.scene)}
        assert not all((m.noun, m.color) in there for m in mentions(row.foil))


def test_no_foil_calls_a_pine_a_tree(scenes):
    held = {i: {t.noun for t in seen_things(scenes, i)} for i in range(len(scenes))}
    pines = [row for seed in range(3) for row in foil_rows(scenes, "noun", seed) if held[row.scene] >= {"pine"} and "tree" not in held[row.scene]]
    assert len(pines) > 60 and not any(m.noun == "tree" for row in pines for m in mentions(row.foil))


def test_count_foils_miss_the_number_by_one_and_keep_the_total_consistent(scenes):
    up = []
    for row in foil_rows(scenes, "count"):
        right, wrong = ({(m.noun, m.color): m.count for m in mentions(text)} for text in (row.caption, row.foil))
        (thing, number), = set(wrong.items()) - set(right.items())
        there = sum(t.noun == thing[0] and thing[1] in ("", t.color) for t in seen_things(scenes, row.scene))
        assert abs(number - right[thing]) == 1 and number != there
        words = ("no", "one", "two", "three", "four", "five", "six")
        if row.foil.startswith("There"): assert words[sum(wrong.values())] == row.foil.split()[2]
        up.append(number > right[thing])
    assert .35 < sum(up) / len(up) < .65 # a reader who always takes the smaller number guesses


def test_foils_depend_on_the_scene_and_the_draw_alone(scenes):
    part = scenes[60:]
    assert [(r.scene + 60, r.caption, r.foil) for r in foil_rows(part, "color")] == \
           [tuple(r[i] for i in (0, 2, 3)) for r in foil_rows(scenes, "color") if r.scene >= 60]
    with pytest.raises(InputError, match="kind of foil"): foils(scenes, 0, "size", rng(0))
    with pytest.raises(InputError, match="no scene 120"): foils(scenes, 120, FOIL_KINDS[0], rng(0))
