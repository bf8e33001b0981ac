"The two language models that come with the package: what their cards say is what they do, masks by hand, trainings that repeat."
import json
import math

import pytest
import torch
from transformers import AutoTokenizer, BertForMaskedLM, BertModel, GPT2LMHeadModel

from invariant_metrics.core import InputError
from invariant_metrics.encoders.weights import get_card, list_weights, load_pretrained, resolve, verify_weights
from invariant_metrics.models.text_networks import BOS, EOS, PAD, UNK, Vocabulary
from invariant_metrics.studies.plan import STUDY_WORLD
from invariant_metrics.training.embedded import RECIPES, train_embedded
from invariant_metrics.training.language_models import (LM_POSITIONS, LM_WORLDS, VOCABULARY_FILE, _bigram_perplexity, _caption_batches, _caption_vocabulary,
                                                        _masked_batches, _masked_loss, _piece_tokenizer, _pieced, _scene_captions, _train_captions,
                                                        _train_masked, _world_sentences, caption_perplexity, masked_word_accuracy)

MASKED = {"steps": 4, "sentences": 60, "batch": 8, "pieces": 300, "width": 16, "layers": 1}
CAUSAL = {"steps": 4, "scenes": 20, "batch": 4, "width": 16, "layers": 1}


@pytest.fixture(scope="module")
def bert():
    place = resolve("bilingual-lm")
    return load_pretrained(BertForMaskedLM, place).eval(), AutoTokenizer.from_pretrained(place.path)


@pytest.fixture(scope="module")
def gpt():
    place = resolve("caption-lm")
    return load_pretrained(GPT2LMHeadModel, place).eval(), Vocabulary.from_json((place.path/VOCABULARY_FILE).read_text("utf-8"))


# the packaged weights

def test_cards_are_listed_and_intact_and_small():
    listed = {row["name"]: row for row in list_weights()}
    for name, most in (("bilingual-lm", 1_500_000), ("caption-lm", 1_000_000)):
        assert listed[name]["present"] and listed[name]["size"] <= most and name in RECIPES
        assert [row["ok"] for row in verify_weights(name)] == [True] and get_card(name).command == f"invariant-metrics weights train {name}"


def test_a_sample_agrees_with_the_masked_models_card(bert):
    scores = get_card("bilingual-lm").scores
    for language, texts in _world_sentences(300, LM_WORLDS["test"]).items():
        found = masked_word_accuracy(*bert, texts)
        assert abs(found["accuracy"] - scores[f"masked word, {language}"]) < .08
        assert scores[f"masked word, {language}"] > scores[f"commonest word, {language}"] + .3


def test_a_sample_agrees_with_the_caption_models_card(gpt):
    scores = get_card("caption-lm").scores
    texts = [text for texts in _scene_captions(60, LM_WORLDS["test"]) for text in texts]
    assert abs(caption_perplexity(*gpt, texts)/scores["perplexity"] - 1) < .05
    assert 1 < scores["perplexity"] < scores["perplexity of bigrams"] - .5


def test_the_masked_model_opens_as_a_reader_and_knows_both_languages(bert):
    model, tokenizer = bert
    reader = load_pretrained(BertModel, resolve("bilingual-lm"), add_pooling_layer=False).eval()
    rows = tokenizer(["Nora <mask> Ernst.", "Am <mask> kaufte Nora 37 Koffer."], padding=True, return_tensors="pt")
    with torch.no_grad(): out = model(**rows, output_hidden_states=True)
    assert len(out.hidden_states) == 4 and torch.allclose(reader(**rows).last_hidden_state, out.hidden_states[-1], atol=1e-5)
    assert reader.dtype == torch.float32 and reader.config.hidden_size == 96 and reader.config.max_position_embeddings == LM_POSITIONS
    best = out.logits[rows["input_ids"] == tokenizer.mask_token_id].argmax(-1)
    said = [tokenizer.decode([i]) for i in best]
    assert said[1] in {"Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"}
    marks = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    assert marks == (PAD, BOS, EOS, UNK) and (tokenizer.cls_token_id, tokenizer.sep_token_id) == (BOS, EOS)
    config = reader.config
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (PAD, BOS, EOS) and len(tokenizer) == config.vocab_size


def test_sentences_of_a_study_are_known_to_the_masked_model(bert):
    _, tokenizer = bert
    for texts in _world_sentences(100, STUDY_WORLD).values():
        rows = tokenizer(texts)["input_ids"]
        assert UNK not in {i for row in rows for i in row} and max(map(len, rows)) <= LM_POSITIONS
        assert [tokenizer.decode(row, skip_special_tokens=True) for row in rows] == texts


def test_the_caption_model_repeats_what_its_prompt_has_named(gpt):
    model, words = gpt
    for color, noun in (("red", "car"), ("blue", "boat")):
        prompt = f"a {color} {noun} is behind a green tree. there is a green tree in front of a {color}"
        with torch.no_grad(): logits = model(input_ids=torch.tensor([[BOS, *words.encode(prompt)]])).logits[0, -1]
        assert words.words[logits.argmax()] == noun
    assert words.words[:4] == ("",)*4 and len(words) == model.config.vocab_size
    for text in ("Similar images show", "This image shows", "a red ball . !"): assert UNK not in words.encode(text)


def test_worlds_belong_to_no_study():
    others = {51_000, 53_000, 8001, 8003, 777_000, *range(STUDY_WORLD, STUDY_WORLD + 1000)}
    assert not others & {seed + more for seed in LM_WORLDS.values() for more in range(1000)}


# masks, batches, scores

def test_whole_words_are_masked_and_all_else_is_as_it_was():
    texts = [text for part in _world_sentences(200, 5).values() for text in part]
    tokenizer = _piece_tokenizer(texts, 300)
    data = _pieced(texts, tokenizer)
    known = {tuple(row[row != PAD].tolist()): i for i, row in enumerate(data.ids)}
    batch = _masked_batches(data, 200, 0, tokenizer)(3)
    guessed = batch["labels"] >= 0
    original = torch.where(guessed, batch["labels"], batch["ids"])
    whole = True
    for row, gone, shown in zip(original, guessed, batch["ids"]):
        words = data.words[known[tuple(row[row != PAD].tolist())]][:len(row)]
        for word in words.unique().tolist(): whole &= len(gone[words == word].unique()) == 1
        assert not gone[words < 0].any() and torch.equal(shown[~gone], row[~gone])
    assert whole and 0.1 < guessed.sum()/(original > UNK).sum() < 0.2
    assert torch.equal(batch["mask"], batch["ids"] != PAD) and not (batch["ids"][guessed] < 4).any()
    assert all(torch.equal(a, b) for a, b in zip(batch.values(), _masked_batches(data, 200, 0, tokenizer)(3).values()))


def test_the_masked_loss_is_torchs_over_the_guessed_pieces():
    model, tokenizer, _ = _train_masked(**{**MASKED, "steps": 1})
    batch = _masked_batches(_pieced(_world_sentences(20, 5)["en"], tokenizer), 8, 0, tokenizer)(0)
    with torch.no_grad():
        logits = model(input_ids=batch["ids"], attention_mask=batch["mask"]).logits
        wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)
        assert torch.isclose(_masked_loss(model, batch)["cross-entropy"], wanted, atol=1e-5)


class Oracle:
    "Says what the texts say, or one piece for everything."
    def __init__(self, ids, constant=None): self.ids, self.constant, self.at = ids, constant, 0
    def __call__(self, input_ids, attention_mask):
        truth = self.ids[self.at:self.at + len(input_ids)]
        self.at += len(input_ids)
        said = truth if self.constant is None else torch.full_like(truth, self.constant)
        return type("Out", (), {"logits": torch.nn.functional.one_hot(said, int(self.ids.max()) + 1).float()})


def test_accuracy_is_one_for_the_truth_and_the_share_of_a_word_for_a_constant():
    texts = ["Nora met Uwe.", "Uwe met Nora."]*60
    tokenizer = _piece_tokenizer(texts*5, 60)
    ids = _pieced(texts, tokenizer).ids
    assert masked_word_accuracy(Oracle(ids), tokenizer, texts)["accuracy"] == 1
    met, = tokenizer.encode("met", add_special_tokens=False)
    found = masked_word_accuracy(Oracle(ids, met), tokenizer, texts, "met")
    assert found["accuracy"] == found["baseline"] and .2 < found["baseline"] < .47 # one of three words, never the period


def test_bigrams_by_hand_and_a_uniform_model():
    words = Vocabulary.of(["a b", "a"])
    train = ["a b", "a"] # BOS a ×2, a b, b EOS, a EOS; four followers: EOS, UNK, a, b
    costs = [math.log(2.4/2.1), math.log(2.4/1.1), math.log(1.4/1.1)]
    assert math.isclose(_bigram_perplexity(train, ["a b"], words), math.exp(sum(costs)/3))
    assert math.isclose(_bigram_perplexity([], ["a b", "b"], words), 4)
    class Flat:
        def __call__(self, input_ids, attention_mask): return type("Out", (), {"logits": torch.zeros(*input_ids.shape, len(words))})
    assert math.isclose(caption_perplexity(Flat(), words, ["a b", "b a b a", "c"]), len(words), rel_tol=1e-6)


def test_rows_are_captions_and_paragraphs_of_one_scene():
    captions = _scene_captions(6, 5)
    words = _caption_vocabulary(captions)
    batches = _caption_batches(captions, words, 6, 0)
    for row_number, row in enumerate(batches(1)["tokens"]):
        parts = words.decode(row[1:].tolist()).split(". ")
        assert row[0] == BOS and EOS in row and (len(parts) == 1) == (row_number % 2 == 0) and len(parts) <= 8
        assert any({*parts} <= {*texts} for texts in captions)
    assert torch.equal(batches(1)["tokens"], _caption_batches(captions, words, 6, 0)(1)["tokens"])


# trainings

def test_trainings_repeat_and_go_on_after_an_interruption(tmp_path, monkeypatch):
    from invariant_metrics.training import language_models, loop
    real, step = loop.fit, loop.take_step
    monkeypatch.setattr(language_models, "fit", lambda *a, **k: real(*a, **k, save_every=1))
    for name, train, options in (("masked", _train_masked, MASKED), ("causal", _train_captions, CAUSAL)):
        whole = train(**options)
        taken = []
        def stopping(*args, **kwargs):
            if len(taken) == 2: raise KeyboardInterrupt
            taken.append(1)
            return step(*args, **kwargs)
        with monkeypatch.context() as m:
            m.setattr(loop, "take_step", stopping)
            with pytest.raises(KeyboardInterrupt): train(**options, folder=tmp_path/name)
        again = train(**options, folder=tmp_path/name)
        assert all(torch.equal(a, b) for a, b in zip(whole[0].parameters(), again[0].parameters())) and whole[-1].equals(again[-1])


def test_a_made_folder_is_a_card_that_opens(tmp_path):
    from invariant_metrics.encoders.weights import _local_place
    train_embedded("bilingual-lm", tmp_path, **MASKED, tests=10)
    train_embedded("caption-lm", tmp_path, **CAUSAL, tests=4)
    cards = {name: json.loads((tmp_path/f"{name}.json").read_text()) for name in ("bilingual-lm", "caption-lm")}
    assert cards["bilingual-lm"]["files"][-1] == "model.safetensors" and "seed 240000, 4 steps" in cards["bilingual-lm"]["data"]
    assert set(cards["caption-lm"]["files"]) == {"config.json", VOCABULARY_FILE, "model.safetensors"} and cards["caption-lm"]["scores"]["n"] == 20
    assert {row["name"]: row["ok"] for row in verify_weights(folder=tmp_path)}["bilingual-lm"]
    model = load_pretrained(GPT2LMHeadModel, _local_place(tmp_path/"caption-lm"))
    assert model.lm_head.weight is model.transformer.wte.weight # written once, and tied again
    load_pretrained(BertForMaskedLM, _local_place(tmp_path/"bilingual-lm"))
    (tmp_path/"caption-lm"/"model.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError): load_pretrained(GPT2LMHeadModel, _local_place(tmp_path/"caption-lm"))
