"Cheap tricks: what they may look at, and that a picture's trick reads nothing before it is asked."
import numpy as np
import pytest
import torch

from invariant_metrics.core import InputError
from invariant_metrics.data.items import load_images
from invariant_metrics.data.tricks import picture_tricks, text_tricks, trick_meaning, vote_of_pictures, vote_of_texts
from invariant_metrics.worlds.scenes import make_scenes

PRED = [f"text number {k} of many" for k in range(8)]
REFERENCES = [(f"right answer {k} is here", f"{k} is right") for k in range(8)]


def test_no_trick_sees_the_reference_of_its_own_item():
    before = text_tricks(PRED, REFERENCES)
    for i in range(8):
        changed = list(REFERENCES)
        changed[i] = ("altogether different words", "altogether different words")
        after = text_tricks(PRED, changed)
        assert all(before[name][i] == after[name][i] for name in before)
        assert any(before[name] != after[name] for name in before)


def test_items_of_a_cluster_do_not_teach_each_other():
    clusters = [k//4 for k in range(8)]
    before = text_tricks(PRED, REFERENCES, clusters=clusters)
    changed = [("altogether different words",)]*4 + REFERENCES[4:]
    after = text_tricks(PRED, changed, clusters=clusters)
    assert all(before[name][:4] == after[name][:4] for name in before)
    assert before["typical-text"][4:] != after["typical-text"][4:]


@pytest.mark.parametrize("clusters", [None, [0]*8])
def test_there_is_something_to_learn_from(clusters):
    few = (PRED[:1], REFERENCES[:1]) if clusters is None else (PRED, REFERENCES)
    with pytest.raises(InputError, match="two items" if clusters is None else "two clusters"):
        text_tricks(*few, clusters=clusters)


def test_pictures_of_all_sizes_and_types_are_changed_as_they_are_read():
    scenes = make_scenes(4, 32, seed=1).rgb
    mixed = load_images([(255*scenes[0]).round().byte(), scenes[1][:, :20], scenes[2], scenes[3][:, :, :24]])
    tricks = picture_tricks(mixed, mixed)
    for name, side in tricks.items():
        assert trick_meaning(name)
        for i in range(4):
            x = side[i]
            assert x.shape == mixed[i].shape and x.dtype == torch.float32 and 0 <= x.min() and x.max() <= 1
    part = tricks["constant-color"].part(1, 3)
    assert torch.equal(part[0], tricks["constant-color"][1])


def test_the_color_of_a_picture_is_that_of_others():
    scenes = make_scenes(4, 16, seed=2).rgb
    before, after = (picture_tricks(load_images(scenes), load_images(target))["constant-color"]
                     for target in (scenes, torch.cat([1 - scenes[:1], scenes[1:]])))
    assert torch.equal(before[0], after[0]) and not torch.allclose(before[1], after[1])


def test_a_vote_is_the_answer_most_like_the_others():
    assert vote_of_texts([["b a"], ["a b c"], ["x"]]) == ["b a"]
    x = torch.full((1, 3, 8, 8), 0.5)
    chosen = vote_of_pictures([load_images(x), load_images(x + 0.1), load_images(x + 0.4)])
    assert torch.equal(chosen[0], x[0] + 0.1)
