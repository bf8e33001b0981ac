"The small Stable Diffusion: what it is trained on, what it is asked to guess, its folder, and the judge of its pictures."

import json
import math
import shutil

import pytest
import torch
from torch import nn

from invariant_metrics.core import InputError
from invariant_metrics.encoders.weights import Card, all_cards, _local_place, resolve, save_embedded_folder, verify_weights
from invariant_metrics.training import text_to_image as own
from invariant_metrics.training.embedded import RECIPES
from invariant_metrics.worlds.foils import SeenThing, seen_things
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.color import rgb_to_lab

TINY = dict(pictures=dict(steps=2, scenes=8, batch=4), steps=2, scenes=8, batch=4, painting={"steps": 2})


@pytest.fixture(scope="module")
def tower(): return own.text_tower()


@pytest.fixture(scope="module")
def made(tmp_path_factory, tower):
    torch.manual_seed(0)
    parts = own._small_autoencoder(8), own._new_painter(tower[0], 0, (16, 32)), tower[1]
    return own._save_pipeline(tmp_path_factory.mktemp("pipeline"), own._pipeline_of(*parts))


def test_the_word_tower_says_what_the_whole_clip_says(tower):
    from transformers import CLIPModel
    clip, (text, tokenizer) = CLIPModel.from_pretrained(resolve("embedded-clip").path, dtype=torch.float32).eval(), tower
    tokens = own.tokens_of(["a red car left of a tree", ""], tokenizer)
    torch.testing.assert_close(text(input_ids=tokens.long()).last_hidden_state, clip.text_model(input_ids=tokens.long()).last_hidden_state)
    assert not any(p.requires_grad for p in text.parameters())


def test_the_average_is_the_mean_at_first_and_then_slow(tower):
    painter = own._new_painter(tower[0], 0, (16, 32))
    weight, first = painter.unet.conv_in.weight, painter.unet.conv_in.weight.detach().clone()
    weight.data += 1
    painter.follow() # keeps 1/10
    torch.testing.assert_close(painter.average.conv_in.weight, first + .9)
    painter.followed += 1e9
    painter.follow() # keeps .999
    torch.testing.assert_close(painter.average.conv_in.weight, first + .9 + .1 * .001)


def test_the_velocity_gives_back_picture_and_noise():
    x, noise, signal = torch.randn(3, 4, 16, 16), torch.randn(3, 4, 16, 16), torch.tensor([.999, .5, .001])
    noisy, v = own._add_noise(x, noise, signal)
    a, b = (s.view(-1, 1, 1, 1).sqrt() for s in (signal, 1 - signal))
    torch.testing.assert_close(a*noisy - b*v, x, atol=1e-5, rtol=0)
    torch.testing.assert_close(b*noisy + a*v, noise, atol=1e-5, rtol=0)
    weights = own._time_weights(torch.tensor([.01, .5, 5/6, .99]))
    torch.testing.assert_close(weights, torch.tensor([.01, .5, 5/6, .05])) # SNR/(SNR+1) = ᾱ up to a ratio of 5, then 5(1 − ᾱ)


class _Known(nn.Module): # guesses the velocity of latents that it knows
    def __init__(self, x):
        super().__init__()
        self.x, self.w, self.seen = x, nn.Parameter(torch.zeros(())), []
    def forward(self, noisy, times, encoder_hidden_states):
        self.seen.append(times)
        a = own._small_scheduler().alphas_cumprod[times].view(-1, 1, 1, 1)
        noise = (noisy - a.sqrt()*self.x) / (1 - a).sqrt()
        return type("Out", (), {"sample": a.sqrt()*noise - (1 - a).sqrt()*self.x + self.w})


def test_the_loss_is_nothing_for_who_knows_and_its_times_are_spread_evenly(tower):
    data = torch.randn(10, 4, 16, 16)
    painter = own._Painter(_Known(data), tower[0], own._small_scheduler().alphas_cumprod)
    batch = {"latents": data, "tokens": own.tokens_of(["a car"]*10, tower[1])}
    terms = own._painting_loss(painter, batch)
    assert terms["velocity"] < 1e-6 and terms["unweighted"][0] == 0
    assert sorted((painter.unet.seen[0] // 100).tolist()) == list(range(10)) # one in each tenth
    painter.unet.w.data += .5
    assert own._painting_loss(painter, batch)["velocity"].item() == pytest.approx(.25, abs=1e-4)


def test_a_pipeline_is_read_again_and_pictures_do_not_depend_on_their_batch(made, tmp_path):
    pipeline = own._read_pipeline(made)
    assert all(p.dtype == torch.float32 for part in (pipeline.vae, pipeline.unet, pipeline.text_encoder) for p in part.parameters())
    texts, seeds = ["a red car", "a green pine", "a teal ball"], [3, 4, 5]
    whole, parts = (own._paint_texts(pipeline, texts, seeds, steps=3, batch=b) for b in (3, 2))
    torch.testing.assert_close(whole, parts, atol=1e-4, rtol=0)
    assert (whole[0] - own._paint_texts(pipeline, texts[:1], [4], steps=3)[0]).abs().max() > .01 # other noise, other picture
    index = json.loads((made/"model_index.json").read_text())
    assert index["tokenizer"][1] == "PreTrainedTokenizerFast" and index["safety_checker"] == [None, None]
    assert type(pipeline.scheduler).__name__ == "DDIMScheduler" # the other one is a copy
    broken = shutil.copytree(made, tmp_path/"broken")
    (broken/"unet"/"config.json").write_text("{")
    with pytest.raises(InputError, match="cannot load pipeline"): own._read_pipeline(broken)


def test_things_are_found_with_the_color_they_were_given():
    scenes = make_scenes(40, 64, seed=12)
    r, right, many = scenes.regions, 0, 0
    lab = rgb_to_lab(scenes.rgb)
    for i in range(40):
        for k in range(3, 9):
            where = scenes.instances[i] == k
            if where.sum() < 30: continue
            right, many = right + (own._pigment_color(lab[i][:, where]) == [*own.COLORS][r.color_id[i, k]]), many + 1
    assert many > 80 and right / many > .97
    found, true = own.found_things(scenes.rgb), [seen_things(scenes, i) for i in range(40)]
    there = [any(t.noun == f.noun and abs(f.x - t.x) < .12 for f in b) for a, b in zip(true, found) for t in a]
    chance = [any(t.noun == f.noun and abs(f.x - t.x) < .12 for f in b) for a, b in zip(true, found[1:] + found[:1]) for t in a]
    assert sum(there) / len(there) > .7 and sum(chance) / len(chance) < .2
    assert own.found_things(torch.full((1, 3, 64, 64), .5)) == [[]]


@pytest.mark.parametrize("text, noun, color, side", [
    ("A red car and two green trees on tan sand.", 1, 1, None), ("a blue car", 1, 0, None), ("a bird and a car", .5, None, None),
    ("a car left of a tree", 1, None, 1), ("a tree is to the left of a car", 1, None, 0), ("a blue car left of a tree", 1, 0, 0),
    ("to the left of a green tree there is a red car", 1, 1, 1), ("Gray sea under a blue sky.", None, None, None)])
def test_what_a_caption_claims_is_looked_for(text, noun, color, side):
    things = [SeenThing("car", "red", .2), SeenThing("tree", "green", .7), SeenThing("tree", "orange", .1)]
    found = own._claims_found(text, things[:2])
    for key, value in (("noun", noun), ("color", color), ("side", side)):
        assert math.isnan(found[key]) if value is None else found[key] == value, key


def test_the_recipe_ends_in_a_card_and_a_killed_run_can_be_stored(tmp_path):
    card = own.make_text_to_image(tmp_path/"a", checkpoints=tmp_path/"ck", tests=4, **TINY)
    assert card.size == sum(p.stat().st_size for p in (tmp_path/"a"/"embedded-diffusion").rglob("*.safetensors")) < 8e6
    assert "2 steps" in card.data and set(card.scores) >= {"painted, noun", "true scenes, noun", "no text, noun", "way, noun"}
    assert own.make_text_to_image(tmp_path/"b", checkpoints=tmp_path/"ck", go_on=False, tests=4, painting={"steps": 2}).sha256 == card.sha256
    assert verify_weights("embedded-diffusion", tmp_path/"a")[0]["ok"] is True
    with pytest.raises(InputError, match="no checkpoint"): own.make_text_to_image(tmp_path/"c", checkpoints=tmp_path/"c", go_on=False)


def test_a_pipeline_s_folder_is_checked_as_a_whole(tmp_path, made, monkeypatch):
    monkeypatch.setattr("invariant_metrics.encoders.weights.assets_folder", lambda: tmp_path)
    home = tmp_path/"embedded-diffusion"
    card = save_embedded_folder("embedded-diffusion", made, Card("", "a pipeline", command="invariant-metrics weights train embedded-diffusion"))
    assert resolve("embedded-diffusion").revision == card.sha256[:12] and "unet/config.json" in card.files
    before = _local_place(home).revision
    weights = home/"vae"/"diffusion_pytorch_model.safetensors" # not the last of its files in the card
    assert card.files[-1] == "vae/diffusion_pytorch_model.safetensors" and len([f for f in card.files if f.endswith("ors")]) == 3
    other = home/"unet"/"diffusion_pytorch_model.safetensors"
    other.write_bytes(other.read_bytes()[:-1] + b"?")
    assert _local_place(home).revision != before and weights.exists()
    with pytest.raises(InputError, match="damaged"): resolve("embedded-diffusion")
    assert verify_weights("embedded-diffusion")[0]["ok"] is False


def test_what_ships_is_small_and_its_card_is_honest():
    assert "embedded-diffusion" in RECIPES
    card = all_cards()["embedded-diffusion"]
    folder = resolve("embedded-diffusion").path
    assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) <= 8_000_000
    for claim in own.CLAIMS: assert card.scores[f"true scenes, {claim}"] > card.scores[f"painted, {claim}"]
