"The MUNIT of floods: its recipe, its card, its answers, and what opens as a MUNIT."
import pytest
import torch

from invariant_metrics.core import InputError
from invariant_metrics.encoders.weights import get_card, load_embedded
from invariant_metrics.files import save_tensors
from invariant_metrics.models.munit import MUNIT, MUNITConfig, draw_styles, translate
from invariant_metrics.training.flood_munit import _flood_scores, make_flood_munit, open_munit, style_spread, style_truth, unseen_scenes
from invariant_metrics.training.network_answers import TOLERANCE, compare_answers
from invariant_metrics.worlds.floods import FLOOD_VIOLATIONS, draw_water, flood, flood_violation


def test_recipe_writes_weights_and_card_and_repeats(tmp_path):
    options = dict(steps=2, alone=3, pictures=16, tests=4)
    first, second = (make_flood_munit(tmp_path/name, **options) for name in ("one", "two"))
    assert first.sha256 == second.sha256 and first.scores == second.scores and first.command == "invariant-metrics weights train munit-flood"
    assert make_flood_munit(tmp_path/"three", seed=1, **options).sha256 != first.sha256
    scores = first.scores
    assert scores["violation, exact floods"] == 0 and scores["water where it must lie, exact floods"] == 1 and scores["spread of styles, left dry"] == 0
    assert scores["violation, best style"] <= scores["violation, trained"] <= scores["violation, worst style"] and scores["n"] == 4
    own = open_munit(tmp_path/"one"/"munit-flood.safetensors")
    assert {k: v.shape for k, v in own.state_dict().items()} == {k: v.shape for k, v in load_embedded("munit-flood").items()}


def test_packaged_network_is_small_answers_as_stored_and_floods():
    card = get_card("munit-flood")
    assert card.size < 3e6 and max(compare_answers("munit-flood").values()) < TOLERANCE
    scenes, codes = unseen_scenes(8), draw_styles(4)
    wet = {name: 1 - style_truth(scenes, translate(network, scenes.rgb, codes))["water"].mean().item()
           for name, network in (("trained", open_munit()), ("untrained", MUNIT(MUNITConfig.of("small"))))}
    assert wet["trained"] > wet["untrained"] + .3


@pytest.mark.slow
def test_scores_of_the_card_are_those_of_the_network():
    scores = dict(get_card("munit-flood").scores)
    found = _flood_scores(open_munit(), MUNIT(MUNITConfig.of("small")), scores["n"], scores["styles"])
    assert found == pytest.approx(scores, abs=.005) # the weights are stored in 16 bits, the card is of 32


def test_truth_of_styles_is_that_of_single_pictures():
    scenes = unseen_scenes(6)
    right = flood(scenes, draw_water(0)).rgb
    found = style_truth(scenes, [right, *(flood_violation(scenes, draw_water(0), kind) for kind in FLOOD_VIOLATIONS)], tolerance=6.)
    assert found["violation"].shape == (4, 6) and found["violation"][0].max() == 0
    for k, kind in enumerate(FLOOD_VIOLATIONS, 1): assert found[kind][k].mean() > .3
    lightness = torch.stack([torch.full((2, 3, 4, 4), v) for v in (.2, .2, .6)])
    pairs = [style_spread(lightness[[i, j]]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert pairs[0] == 0 and style_spread(lightness) == pytest.approx(sum(pairs)/3) and style_spread(lightness[:1]) == 0


@pytest.mark.parametrize("size", ["small", "tiny"])
def test_files_of_every_size_open(size, tmp_path):
    network = MUNIT(MUNITConfig.of(size), seed=3)
    save_tensors(tmp_path/"own.safetensors", network.state_dict())
    again = open_munit(tmp_path/"own.safetensors")
    assert again.config == network.config and not again.training
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in network.state_dict().items())


def test_other_files_are_refused_in_a_line(tmp_path):
    state = MUNIT(MUNITConfig.of("small")).state_dict()
    save_tensors(tmp_path/"gray.safetensors", state | {"a.content.0.conv.weight": torch.zeros(24, 1, 7, 7)})
    save_tensors(tmp_path/"half.safetensors", {k: v for k, v in state.items() if k.startswith("a.")})
    torch.save({"a": {}, "b": {}}, tmp_path/"dis.pt")
    for weights, says in (("gray.safetensors", "holds no MUNIT"), ("half.safetensors", "holds no MUNIT"), ("dis.pt", "no MUNIT of size full")):
        with pytest.raises(InputError, match=says) as error: open_munit(tmp_path/weights)
        assert "\n" not in str(error.value)
    for weights in ("depth", "munit-floods"):
        with pytest.raises(InputError): open_munit(weights)
