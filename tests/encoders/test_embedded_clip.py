"The embedded CLIP: its card's scores, its recipe, its tokenizer, and the command that scores with it."

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from commands import cli
from invariant_metrics.encoders.image_text import image_text
from invariant_metrics.encoders.weights import get_card, resolve
from invariant_metrics.training.image_text_training import _FACTS, TEST_SCENES, TextFacts, _contrast_terms, image_text_report
from invariant_metrics.training.image_text_training import make_image_text, right_ranks, _train_image_text, _word_tokenizer, caption_words
from invariant_metrics.worlds.scene_text import captions
from invariant_metrics.worlds.scenes import make_scenes

CARD = get_card("embedded-clip")
TINY = dict(steps=4, words=2, scenes=24, batch=8, width=16, layers=(2, 1))


@pytest.fixture(scope="module")
def clip(): return image_text("embedded-clip")


def test_a_part_of_the_unseen_scenes_agrees_with_the_card(clip):
    numbers = image_text_report(clip, make_scenes(100, 64, TEST_SCENES)).numbers()
    assert numbers["image to text R@1"] >= CARD.scores["image to text R@1"] - .05 # 100 captions are easier than 500
    for kind in ("noun", "color", "count"): assert abs(numbers[f"foil {kind}"] - CARD.scores[f"foil {kind}"]) < .13


@pytest.mark.slow
def test_the_card_s_scores_are_what_the_weights_do(clip):
    report = image_text_report(clip, make_scenes(500, 64, TEST_SCENES))
    told = {k: v for k, v in CARD.scores.items() if k != "n"}
    assert report.numbers() == pytest.approx(told, abs=.005)
    assert report.foils["kind"].value_counts().to_dict() == CARD.scores["n"]


def test_the_card_keeps_the_size_and_the_aims_are_measured():
    assert CARD.size <= 4_000_000 and CARD.command == "invariant-metrics weights train embedded-clip"
    config = json.loads((resolve("embedded-clip").path/"config.json").read_text())
    assert config["text_config"]["eos_token_id"] == config["text_config"]["vocab_size"] - 1 # pooled at the end, not at 0
    assert CARD.scores["image to text R@1"] >= .8
    for kind in ("noun", "color", "side"): assert CARD.scores[f"foil {kind}"] >= .9, kind
    assert CARD.scores["foil count"] >= .88 # the aim of .9 is missed for numbers, and the notebook says so


def test_the_sentences_alone_give_little_away():
    blind = {kind: CARD.scores[f"foil {kind}, blind"] for kind in ("noun", "color", "count", "side")}
    assert max(blind["noun"], blind["color"], blind["side"]) < .65
    assert blind["count"] < .72 # "two" is commoner than "three", and than "one" where several are named


def test_texts_are_read_to_their_end_and_unknown_words_are_one_token(clip):
    vectors, _ = clip.texts(["a red ball", "a red ball is to the left of a blue car", "a red ball is to the left of a blue mug"])
    assert (vectors @ vectors.T)[~torch.eye(3, dtype=torch.bool)].max() < .999
    tokenizer = _word_tokenizer(caption_words(50))
    ids = tokenizer("A UNICORN, and a platypus!")["input_ids"]
    assert ids[2] == ids[5] == tokenizer.unk_token_id and ids[-1] == len(tokenizer) - 1


def test_recipes_repeat_and_go_on_after_an_interruption(tmp_path, monkeypatch):
    whole, _, log = _train_image_text(**TINY)
    from invariant_metrics.training import loop
    taken = []
    def stopping(*args, **kwargs):
        if len(taken) == 4: raise KeyboardInterrupt
        taken.append(1)
        return step(*args, **kwargs)
    step = loop.take_step
    real = loop.fit
    monkeypatch.setattr("invariant_metrics.training.image_text_training.fit", lambda *a, **k: real(*a, **k, save_every=1))
    with monkeypatch.context() as m:
        m.setattr(loop, "take_step", stopping)
        with pytest.raises(KeyboardInterrupt): _train_image_text(**TINY, folder=tmp_path)
    resumed, _, again = _train_image_text(**TINY, folder=tmp_path)
    assert len(taken) == 4 and all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters()))
    assert log.equals(again)


def test_a_made_folder_is_a_card_that_opens(tmp_path):
    card = make_image_text(tmp_path, **TINY, tests=20)
    assert card.where == "embedded-clip" and card.scores["n"]["noun"] > 10 and "seed 51000, 4 steps" in card.data
    assert image_text(tmp_path/"embedded-clip").texts(["a red ball"])[0].shape == (1, 16)


def test_counts_and_sides_are_read_from_tokens():
    tokenizer = _word_tokenizer(caption_words(200))
    rows = tokenizer(["three red apples and an orange", "an orange tree", "right of a tree there is a mug"], padding=True)["input_ids"]
    facts = TextFacts(tokenizer)(torch.tensor(rows))
    assert facts.shape == (3, _FACTS)
    assert sorted(facts[0][facts[0] != 0].tolist()) == [1, 1, 3, 3] and sorted(facts[1][facts[1] != 0].tolist()) == [1, 1]
    assert sorted(facts[2][facts[2] < 0].tolist()) == [-1] # the tree stands to the left


def test_repeated_captions_are_no_negatives_and_ranks_count_ties_against_the_model():
    eye, none = torch.eye(4), torch.zeros(4, 2, dtype=torch.bool)
    texts = eye[[0, 0, 2, 3]]
    masked, naive = (_contrast_terms(eye, texts, torch.tensor(n), eye[:0], none, torch.tensor(5.)) for n in ([0, 0, 2, 3], [0, 1, 2, 3]))
    assert masked["to pictures"] < naive["to pictures"]
    assert right_ranks(torch.ones(3, 3), ["a", "b", "a"]) == [2, 3, 2]


def test_the_command_scores_offline_with_it(tmp_path):
    scenes = make_scenes(3, 64, TEST_SCENES)
    lines = []
    for i, picture in enumerate(scenes.rgb):
        Image.fromarray((255 * picture).round().byte().permute(1, 2, 0).numpy()).save(tmp_path/f"{i}.png")
        lines.append(captions(scenes, i)[0])
    (tmp_path/"captions.txt").write_text("\n".join(lines) + "\n")
    done = cli("score", "clipscore", "--weights", "embedded-clip", "--pred", "captions.txt", "--source", tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "embedded-clip" in done.stdout or "clip" in done.stdout
