"Generators: what the protocol owes, what the exact one reads and draws, and a diffusion model of random weights."
import hashlib
import warnings

import numpy as np
import pytest
import torch

from open_cells import open_cells
from invariant_metrics.core import InputError
from invariant_metrics.encoders.weights import MissingWeights
from invariant_metrics.generators import diffusion
from invariant_metrics.generators.generator import (SIDES, Batcher, check_language, derived_seeds, drawn_pieces, foreign_texts,
                                               generators, get_generator)
from invariant_metrics.generators.exact import ExactPictures, _read_scene
from invariant_metrics.generators.kept_pictures import imagined
from invariant_metrics.worlds.foils import seen_things
from invariant_metrics.worlds.scene_captions import WORDS, named_relations, relation_holds, scene_relations

TEXTS = ["a red ball is left of a blue boat", "two green trees on tan sand", "a red ball is left of a blue boat"]
PLAIN = ["exact", "noise", "one-picture"] # without weights


@pytest.fixture(scope="module")
def tiny(tmp_path_factory): return open_cells("generators/20_diffusion").random_pipeline(tmp_path_factory.mktemp("models")/"tiny")


@pytest.mark.parametrize("name", PLAIN)
def test_a_picture_depends_on_text_and_seed_alone(name):
    generator = get_generator(name)
    pictures = generator(TEXTS, [1, 2, 3])
    assert pictures.shape == (3, 3, *generator.size) and pictures.dtype == torch.uint8
    for i in range(3): assert torch.equal(get_generator(name)(TEXTS[i:i + 1], [i + 1])[0], pictures[i])
    assert torch.equal(pictures[0], pictures[2]) == (name == "one-picture")
    assert generator([], []).shape == (0, 3, *generator.size)
    assert generator.describe()["generator"] == generator.name == name
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in generator.describe().items())


@pytest.mark.parametrize("name", PLAIN)
def test_what_shapes_a_picture_is_in_its_description(name):
    small, large = get_generator(name, size=16), get_generator(name)
    assert small.size == (16, 16) and small.describe() != large.describe()


@pytest.mark.parametrize("texts, seeds, says", [
    (["a ball", ""], [1, 2], "1 of 2 texts say nothing that can be drawn: 1"), (["a ball"], [1, 2], "1 texts and 2 seeds"), ("a ball", [1], "a list of texts"),
    (["a ball"], [-1], "seeds are whole numbers"), (["a ball"], [1.5], "seeds are whole numbers"), ([b"a ball"], [1], "texts is a list")])
def test_what_no_generator_draws(texts, seeds, says):
    for name in PLAIN:
        with pytest.raises(InputError, match=says): get_generator(name)(texts, seeds)


def test_the_registry_says_what_there_is():
    cards = {name: generators[name].card for name in generators.names() if hasattr(generators[name], "card")}
    assert {*PLAIN, "diffusion"} <= set(cards) == set(generators.names())
    assert all(card["what"] for card in cards.values()) and cards["diffusion"]["weights"] == "embedded-diffusion"
    ready = get_generator("exact")
    assert get_generator(ready) is ready
    with pytest.raises(InputError, match="made already"): get_generator(ready, size=32)


def test_seeds_of_sides_never_meet_unless_shared():
    found = {(seed, side): derived_seeds(seed, 40, side) for seed in range(5) for side in SIDES}
    everything = [s for seeds in found.values() for s in seeds]
    assert len(set(everything)) == len(everything)
    for (seed, side), seeds in found.items(): assert derived_seeds(seed, 7, side) == seeds[:7]
    assert len({tuple(derived_seeds(3, 5, side, shared=True)) for side in SIDES}) == 1
    with pytest.raises(InputError, match="n is 1 or more"): derived_seeds(0, 0)


def test_languages():
    english = ["A man rides a bicycle down the street.", "The company reported profits of $3 million.", "Un ballon rouge est sur la table."]
    assert foreign_texts(english) == [2] and foreign_texts(["123", "$"]) == []
    exact = get_generator("exact")
    with pytest.warns(UserWarning, match="1 of 3 texts are probably not English"): assert check_language(exact, english) == [2]
    with pytest.raises(InputError, match="language='ignore'"): check_language(exact, english, "refuse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_language(exact, english, "ignore") == [] == check_language(get_generator("noise"), english)
    with pytest.raises(InputError, match="way with other languages"): check_language(exact, english, "wran")


def test_a_full_device_gets_smaller_batches(tmp_path):
    class Crowded:
        name, size, tokens, language, batch = "crowded", (8, 8), None, "", 8
        sizes = []
        def describe(self): return {"generator": self.name}
        def __call__(self, texts, seeds):
            self.sizes.append(len(texts))
            if len(texts) > 2: raise torch.OutOfMemoryError("CUDA out of memory")
            return torch.zeros(len(texts), 3, 8, 8, dtype=torch.uint8)
    with pytest.warns(UserWarning, match="going on with 2 pictures at once"): imagined(Crowded(), ["a"], range(12), tmp_path)
    assert Crowded.sizes == [8, 4, 2, 2, 2, 2, 2, 2]
    with pytest.warns(UserWarning), pytest.raises(InputError, match="one picture of sd does not fit"):
        Batcher(2, "sd")(lambda texts, seeds: (_ for _ in ()).throw(torch.OutOfMemoryError("full")), ["a", "b"], [1, 2])


READINGS = { # written by hand: things, number of claims, what is left out, words not understood
    "two red balls left of a car": ((("ball", "red"),) * 2 + (("car", ""),), 1, (), ()),
    "a red ball and another red ball": ((("ball", "red"),) * 2, 0, (), ()),
    "a ball on green grass, the ball is red": ((("ball", ""),), 0, (), ("red",)),
    "a ball, and the red ball is left of a boat": ((("ball", "red"), ("boat", "")), 1, (), ()),
    "birds in the sky": ((("bird", ""),) * 2, 0, (), ()),
    "9 red balls": ((("ball", "red"),) * 6, 0, ("3 more red balls",), ()),
    "no balls": ((), 0, (), ()),
    "a car in the sky": ((("car", ""),), 0, ("car in sky",), ()),
    "an orange under an orange tree": ((("orange", "orange"), ("tree", "orange")), 1, (), ()),
    "The nearest thing is a pine.": ((("pine", ""),), 1, (), ()),
    "Dilma Rousseff resigned on Monday": ((), 0, (), ("dilma", "rousseff", "resigned", "on", "monday"))}


@pytest.mark.parametrize("text", READINGS)
def test_the_exact_reader(text):
    reading, (things, claims, left_out, unknown) = _read_scene(text), READINGS[text]
    assert (reading.things, len(reading.claims), reading.left_out, reading.unknown) == (things, claims, left_out, unknown)


@pytest.mark.parametrize("words", [words for all_ in list(WORDS.values())[:6] for words in all_])
def test_every_relation_word_is_drawn(words):
    birds = "above" if words in WORDS["above"] else "below" if words in WORDS["below"] else ""
    text = {"above": f"a red bird {words} a blue boat", "below": f"a blue boat {words} a red bird"}.get(birds, f"a red ball {words} a blue boat")
    for one in ExactPictures().drawn([text] * 3, [1, 2, 3]):
        assert one.unmet == () and one.hidden == 0
        assert all(relation_holds(claim, scene_relations(one.scene, 0)) for claim in named_relations(text))
        assert len(seen_things(one.scene, 0)) == 2


def test_what_is_not_said_comes_from_the_seed():
    one, two = ExactPictures().drawn(["a red ball"] * 2, [1, 2])
    assert [(t.noun, t.color) for t in seen_things(one.scene, 0)] == [("ball", "red")] == [(t.noun, t.color) for t in seen_things(two.scene, 0)]
    assert seen_things(one.scene, 0)[0].x != seen_things(two.scene, 0)[0].x
    assert seen_things(ExactPictures().drawn(["the economy grew"], [1])[0].scene, 0) == []


def test_a_contradiction_is_drawn_as_far_as_it_goes_and_said():
    one, = ExactPictures().drawn(["a ball is left of a car, and the car is left of the ball"], [0])
    assert [str(claim) for claim in one.unmet] == ["left of"] and len(seen_things(one.scene, 0)) == 2


def test_the_exact_pictures_are_those_of_their_recipe():
    "Whoever changes what is drawn changes `recipe` in `describe`, or kept pictures of the old rules are taken for new ones."
    pictures = ExactPictures().drawn(TEXTS, [1, 2, 3])
    rows = np.concatenate([one.scene.regions.class_id.numpy() for one in pictures])
    places = np.concatenate([one.scene.regions.center.numpy().round(3) for one in pictures])
    assert hashlib.sha256(rows.tobytes() + places.tobytes()).hexdigest()[:16] == "c307eadcbf6a4ce3" and ExactPictures().describe()["recipe"] == "1"


def test_diffusion_draws_by_text_and_seed(tiny):
    generator = get_generator("diffusion", weights=tiny, steps=2, guidance=3)
    pictures = generator(TEXTS, [1, 2, 3])
    assert pictures.shape == (3, 3, 32, 32) and torch.equal(generator(TEXTS, [1, 2, 3]), pictures)
    for i in range(3): assert (generator(TEXTS[i:i + 1], [i + 1])[0].int() - pictures[i].int()).abs().max() <= 1
    assert all((pictures[i] != pictures[j]).any() for i, j in ((0, 1), (0, 2), (1, 2)))
    small = get_generator("diffusion", weights=tiny, steps=2, guidance=3, batch=2)
    assert (small(TEXTS, [1, 2, 3]).int() - pictures.int()).abs().max() <= 1


def test_every_choice_of_drawing_is_described_and_seen(tiny):
    usual = get_generator("diffusion", weights=tiny, steps=2)
    first = usual(TEXTS[:1], [1])
    for options in (dict(steps=3), dict(guidance=2.0), dict(scheduler="heun"), dict(eta=1.0), dict(negative="a boat"), dict(size=48)):
        other = get_generator("diffusion", weights=tiny, **{"steps": 2, **options})
        assert other.describe() != usual.describe(), options
        drawn = other(TEXTS[:1], [1])
        assert drawn.shape != first.shape or (drawn != first).any(), options
    assert torch.equal(usual(TEXTS[:1], [1]), first)


def test_other_weights_are_another_generator(tiny, tmp_path):
    other = open_cells("generators/20_diffusion").random_pipeline(tmp_path/"tiny", seed=1)
    assert get_generator("diffusion", weights=other).describe()["weights"] != get_generator("diffusion", weights=tiny).describe()["weights"]


def test_diffusion_reads_each_text_of_a_batch_once(tiny):
    generator = get_generator("diffusion", weights=tiny, steps=1)
    rows, pictures = [], generator(["a ball", "a boat", "a ball"], [1, 2, 3])
    generator.pipeline.text_encoder.register_forward_pre_hook(lambda _, args, kwargs: rows.append(len((args or [kwargs["input_ids"]])[0])), with_kwargs=True)
    again = generator(["a ball", "a boat", "a ball"], [1, 2, 3])
    assert rows == [3] and torch.equal(again, pictures)     # two texts, and what should not be drawn
    words = dict(prompt=["a ball", "a boat"], negative_prompt=["", ""], num_inference_steps=1, guidance_scale=7.5, height=32, width=32, output_type="pt")
    plain = generator.pipeline(**words, latents=diffusion._starting_noise(generator, [1, 2])).images
    assert ((255*plain).round() - pictures[:2]).abs().max() <= 1 # as the library alone draws them


def test_the_embedded_model_has_settings_of_its_own(tiny):
    for options, way in (({}, ("10", "3", "dpm-solver")), ({"steps": 7}, ("7", "3", "dpm-solver")), ({"scheduler": "ddim", "guidance": 1}, ("10", "1", "ddim")), ({"eta": .5}, ("10", "3", "ddim"))):
        about = get_generator("diffusion", **options).describe()
        assert (about["steps"], about["guidance"], about["scheduler"]) == way
    about = get_generator("diffusion", weights=tiny).describe()
    assert (about["steps"], about["guidance"], about["scheduler"]) == ("50", "7.5", "ddim")


def test_long_texts_and_words_of_diffusion(tiny):
    generator = get_generator("diffusion", weights=tiny, steps=1)
    long = "a red ball " * 20
    with pytest.raises(InputError, match="more than 40 tokens"): drawn_pieces(generator, ["a boat", long])
    pieces, over = drawn_pieces(generator, ["a boat", long], long="split")
    assert over == 1 and pieces[0] == ["a boat"] and len(pieces[1]) == 2
    start = generator.tokens.rows([long])[0]
    assert len(start) == 40
    assert torch.equal(generator([long], [1]), generator(["a red ball " * 12 + "a red"], [1])) # 38 words and two ends
    assert generator.understood(["a red ball", "inflation ball"]).tolist() == [1, 0.5]


def test_weights_that_are_not_here_and_folders_that_are_no_model(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(diffusion, "all_cards", lambda: {})
    with pytest.raises(MissingWeights, match="invariant-metrics weights train embedded-diffusion"): get_generator("diffusion")
    for content, says in (("{", "cannot be read"), ('{"_class_name": "FluxPipeline"}', "is a FluxPipeline")):
        (tmp_path/"model_index.json").write_text(content)
        with pytest.raises(InputError, match=says): get_generator("diffusion", weights=tmp_path)
    broken = open_cells("generators/20_diffusion").random_pipeline(tmp_path/"broken")
    next((broken/"unet").glob("*.safetensors")).write_bytes(b"no tensors")
    with pytest.raises(InputError, match="cannot load Stable Diffusion from broken"): get_generator("diffusion", weights=broken)
