"Networks that write text: the cache, padding, beams and draws change nothing they must not; vocabularies go there and back; public models fit in."
import copy
from itertools import product
from types import MethodType

import pytest
import torch
import torch.nn.functional as F

from invariant_metrics.core import InputError, torch_rng
from invariant_metrics.worlds.bilingual import make_sentences
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.encoders.base import get_encoder
from invariant_metrics.encoders.grid import grid_features
from invariant_metrics.models.generators import Captioner, Shape, Translator, captioners, translators, twins
from invariant_metrics.models.text import BOS, EOS, PAD, UNK, UNKNOWN, TextGenerator, Vocabulary, policy
from invariant_metrics.training.text import text_loss

SENTENCES = make_sentences(60, seed=3, names="all")
GERMAN, ENGLISH = Vocabulary.of(SENTENCES.source), Vocabulary.of(SENTENCES.english)
LENGTH = 12


def translator(**shape):
    "A network with opinions: new weights, made larger."
    net = Translator(GERMAN, ENGLISH, Shape(width=32, hidden=48, **shape), seed=1)
    for p in net.parameters(): p.data.mul_(1.5)
    return net


def captioner():
    net = Captioner(10, ENGLISH, Shape(encoder=1, width=32, hidden=48), seed=2)
    for p in net.parameters(): p.data.mul_(1.5)
    return net, {"features": torch.randn(5, 9, 10, generator=torch_rng(0))}


def either():
    "A translator of each kind of normalization and a captioner, each with inputs."
    nets = [translator(), translator(pre_norm=False, decoder=1)]
    return [*((net, net.read(SENTENCES.source[:5])) for net in nets), captioner()]


def without_cache(net):
    net.begin, net.step = MethodType(TextGenerator.begin, net), MethodType(TextGenerator.step, net)
    return net


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("options", [{}, {"sample": 5}, {"beams": 3}, {"beams": 3, "length_penalty": 1.0}, {"sample": 2, "samples": 3, "temperature": .7}])
def test_generating_with_and_without_cache_is_the_same(which, options):
    net, inputs = either()[which]
    def run(): return net.generate(inputs, LENGTH, **{**options, **({"sample": torch_rng(options["sample"])} if "sample" in options else {})})
    kept = run()
    without_cache(net)
    slow = run()
    assert torch.equal(kept.tokens, slow.tokens) and torch.equal(kept.mask, slow.mask)
    assert torch.allclose(kept.log_probs, slow.log_probs, atol=1e-4)


@pytest.mark.parametrize("which", range(3))
def test_a_drawn_text_has_the_log_probabilities_of_feeding_it_in(which):
    net, inputs = either()[which]
    drawn = net.generate(inputs, LENGTH, sample=torch_rng(1), temperature=1.3, eos_bias=0.5)
    forced = policy(net.eval()(inputs, F.pad(drawn.tokens, (1, 0), value=BOS)), 1.3, 0.5).gather(2, drawn.tokens[..., None])[..., 0]
    assert torch.allclose(forced[drawn.mask], drawn.log_probs[drawn.mask], atol=1e-4)
    assert (drawn.log_probs[~drawn.mask] == 0).all() and not torch.isin(drawn.tokens[drawn.mask], torch.tensor([PAD, BOS])).any()


def test_sampling_is_reproducible_and_leaves_the_network_in_its_mode():
    net, inputs = either()[0]
    state = torch.get_rng_state()
    first, again, other = (net.train().generate(inputs, LENGTH, sample=torch_rng(s)) for s in (1, 1, 2))
    assert torch.equal(first.tokens, again.tokens) and torch.equal(first.log_probs, again.log_probs) and net.training
    assert first.tokens.shape != other.tokens.shape or not torch.equal(first.tokens, other.tokens)
    assert torch.equal(torch.get_rng_state(), state)
    assert not first.log_probs.requires_grad


def test_several_samples_of_an_item_stand_together():
    net, inputs = either()[2]
    three = net.generate(inputs, LENGTH, sample=torch_rng(1), samples=3, temperature=1e-4)  # so cold that all are greedy
    greedy = net.generate(inputs, LENGTH)
    assert len(three.tokens) == 15
    assert all(net.vocabulary.decode(three.tokens[3*i + j]) == net.vocabulary.decode(greedy.tokens[i]) for i in range(5) for j in range(3))


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_one_beam_is_greedy_and_more_never_score_below_it(which, penalty):
    net, inputs = either()[which]
    def score(g): return g.log_probs.sum(1)/g.mask.sum(1)**penalty
    greedy = net.generate(inputs, LENGTH)
    assert torch.equal(net.generate(inputs, LENGTH, beams=1, length_penalty=penalty).tokens, greedy.tokens)
    for beams in (2, 4):
        found = net.generate(inputs, LENGTH, beams=beams, length_penalty=penalty)
        assert (score(found) >= score(greedy) - 1e-5).all()
        after = [row[row.index(EOS) + 1:] for row in found.tokens.tolist() if EOS in row]
        assert all(set(rest) <= {PAD} for rest in after)


def test_a_wide_beam_finds_the_likeliest_of_all_texts():
    "Enumerated: all texts of at most three entries of a vocabulary of six."
    net = Translator(GERMAN, Vocabulary(("",)*4 + ("a", "b")), Shape(width=16, hidden=16, heads=2), seed=5).eval()
    for p in net.parameters(): p.data.mul_(2)
    inputs = net.read(SENTENCES.source[:3])
    said = [[*first, last] for n in (0, 1, 2) for first in product((UNK, 4, 5), repeat=n) for last in (EOS, UNK, 4, 5) if last == EOS or n == 2]
    scores = torch.stack([policy(net(inputs, torch.tensor([[BOS, *t]]*3))).gather(2, torch.tensor([t]*3)[..., None]).sum((1, 2)) for t in said])
    found = net.generate(inputs, 3, beams=30)
    assert torch.allclose(found.log_probs.sum(1), scores.amax(0), atol=1e-4)


@pytest.mark.parametrize("which", range(2))
def test_padding_changes_nothing(which):
    "Neither more padding in the source nor longer neighbors in the batch, nor padding after the target."
    net, inputs = either()[which]
    net.eval()
    tokens = ENGLISH.batch(SENTENCES.english[:5], 24)
    wide = {"source": F.pad(inputs["source"], (0, 6), value=PAD)}
    there = tokens[:, 1:] != PAD
    assert torch.allclose(net(inputs, tokens)[there], net(wide, F.pad(tokens, (0, 4), value=PAD))[:, :-4][there], atol=1e-4)
    alone = net.read(SENTENCES.source[2:3])
    one, all_ = net.generate(alone, LENGTH), net.generate(wide, LENGTH)
    assert torch.equal(one.tokens[0], all_.tokens[2][:one.tokens.shape[1]]) and not all_.mask[2][one.tokens.shape[1]:].any()


def test_a_bonus_for_the_end_makes_texts_shorter():
    net = translators["small"](GERMAN, ENGLISH)  # new: no word is much likelier than another
    inputs = net.read(SENTENCES.source[:5])
    lengths = [net.generate(inputs, 12, sample=torch_rng(3), samples=20, eos_bias=b).mask.sum(1).float().mean() for b in (0., 2., 4., 6.)] # beyond, every text is its end alone
    assert all(a > b for a, b in zip(lengths, lengths[1:]))
    assert net.generate(inputs, 7, eos_bias=-1e4).mask.all() and net.generate(inputs, 7, eos_bias=1e4).mask.sum() == 5


@pytest.mark.parametrize("size", [None, 400])
def test_vocabularies_give_back_the_sentences_of_the_world(size):
    texts = [*SENTENCES.english, *SENTENCES.source]
    vocabulary = Vocabulary.of(texts) if size is None else Vocabulary.bpe(texts, size)
    assert [vocabulary.decode(vocabulary.encode(t)) for t in texts] == texts
    back = Vocabulary.from_json(vocabulary.to_json())
    assert back == vocabulary and [back.encode(t) for t in texts] == [vocabulary.encode(t) for t in texts]
    assert len(set(vocabulary.words[4:])) == len(vocabulary) - 4 or size
    assert vocabulary.words[:4] == ("",)*4 and [vocabulary.decode(row) for row in vocabulary.batch(texts, 99).tolist()] == texts


def test_unknown_words_are_shown_and_rare_ones_can_be_left_out():
    vocabulary = Vocabulary.of(["a a b b c", "a b d"], least=2)
    assert vocabulary.words[4:] == ("a", "b") and vocabulary.encode("a c b") == [4, UNK, 5]
    assert vocabulary.decode(vocabulary.encode("a c b")) == f"a {UNKNOWN} b"
    assert len(Vocabulary.of(["a a b b c"], most=5)) == 5


def test_a_text_longer_than_the_length_is_counted_and_cut():
    long, short = max(SENTENCES.english, key=lambda t: len(ENGLISH.encode(t))), min(SENTENCES.english, key=lambda t: len(ENGLISH.encode(t)))
    n = len(ENGLISH.encode(short)) + 1
    assert ENGLISH.too_long([short, long], n) == [1]
    rows = ENGLISH.batch([short, long], n)
    assert rows.shape == (2, n + 1) and rows[0, -1] == EOS and EOS not in rows[1]
    assert rows[1, 1:].tolist() == ENGLISH.encode(long)[:n]


def test_sizes_have_the_parameters_that_are_printed_about_them():
    def count(make):
        with torch.device("meta"): return sum(p.numel() for p in make().parameters())
    ten, many, words = (Vocabulary(tuple(map(str, range(n)))) for n in (10_152, 37_000, 9_488))
    assert count(lambda: translators["iwslt"](ten, ten)) == 36_741_120          # 36.7 million
    assert count(lambda: translators["base"](many, many)) == 63_082_496         # 63.1 million
    assert count(lambda: captioners["base"](2048, words)) == 54_914_832         # 54.9 million
    assert count(lambda: translators["small"](GERMAN, ENGLISH)) < 600_000


def test_the_same_seed_makes_the_same_network_whatever_was_drawn_before():
    a, b, c = (translators["small"](GERMAN, ENGLISH, seed=s) for s in (0, 0, 1))
    torch.rand(3)
    assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values()))
    assert not torch.equal(a.embedding.weight, c.embedding.weight)


def test_grid_features_say_where_things_are():
    rgb, encoder = make_scenes(6, 64, seed=2).rgb, get_encoder("embedded")
    grid = grid_features(encoder, rgb, (2, 3))
    assert grid.shape == (6, 64, 48 + 96 + 2) and torch.equal(grid, grid_features(encoder, rgb, (3, 2), batch=4))
    assert torch.allclose(grid_features(encoder, rgb, (4,))[..., :-2].mean(1), encoder.encode(rgb, "stage4"), atol=1e-5)
    moved = grid_features(encoder, rgb.flip(3), (3,))
    assert torch.equal(moved[..., -2:], grid[..., -2:]) and not torch.allclose(moved[..., :-2], grid[..., 48:-2], atol=.1)
    with pytest.raises(InputError, match="stages 1 to 4"): grid_features(encoder, rgb, (3, 7))


@pytest.fixture(scope="module", params=["t5", "marian"])
def public(request, tmp_path_factory):
    "A folder as a public model has one, with random weights, and its texts."
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration
    texts, folder = SENTENCES.english[:12], tmp_path_factory.mktemp(request.param)
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=90, special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    ids = dict(vocab_size=len(tokenizer) + 2, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    torch.manual_seed(0)
    if request.param == "t5": net = T5ForConditionalGeneration(T5Config(**ids, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2))
    else:
        net = MarianMTModel(MarianConfig(**ids, d_model=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=32, decoder_ffn_dim=32, init_std=.5,
                                         encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=64, bos_token_id=0))
    net.save_pretrained(folder), tokenizer.save_pretrained(folder)
    return folder, texts, net.eval(), tokenizer


def test_a_public_model_writes_what_its_library_writes(public):
    folder, texts, theirs, tokenizer = public
    net = translators["hub"](weights=folder)
    inputs = net.read(texts)
    assert [net.vocabulary.decode(net.vocabulary.encode(t)) for t in texts] == texts
    tokens = net.vocabulary.batch(texts, 40)
    given = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    labels = torch.tensor(net.vocabulary.order)[tokens]
    logits = theirs(**given, decoder_input_ids=labels[:, :-1]).logits[..., list(net.vocabulary.order)]
    there = tokens[:, 1:] != PAD
    assert net.twins.tolist() == [BOS]
    once = [n for n in range(len(net.vocabulary)) if n != BOS]
    assert torch.allclose(net.eval()(inputs, tokens)[there][:, once], logits[there][:, once], atol=1e-4)
    mine = net.generate(inputs, 8)
    hf = theirs.generate(**given, max_new_tokens=8, do_sample=False, num_beams=1, bad_words_ids=[[0], [len(tokenizer)], [len(tokenizer) + 1]], forced_eos_token_id=None, eos_token_id=1)
    clean = [tokenizer.decode(row, skip_special_tokens=True) for row in hf]
    assert [net.vocabulary.decode(row) for row in mine.tokens] == clean


def test_a_public_model_has_the_cache_the_draws_and_the_beams_of_the_others(public):
    net = translators["hub"](weights=public[0])
    inputs = net.read(public[1][:4])
    drawn = net.generate(inputs, 8, sample=torch_rng(0))
    forced = policy(net.eval()(inputs, F.pad(drawn.tokens, (1, 0), value=BOS))).gather(2, drawn.tokens[..., None])[..., 0]
    assert torch.allclose(forced[drawn.mask], drawn.log_probs[drawn.mask], atol=1e-3)
    greedy, beams = net.generate(inputs, 8), net.generate(inputs, 8, beams=3)
    assert (beams.log_probs.sum(1) >= greedy.log_probs.sum(1) - 1e-4).all()
    without_cache(net)
    assert torch.equal(net.generate(inputs, 8, beams=3).tokens, beams.tokens)


def test_what_is_no_public_model_says_so(tmp_path):
    for weights, says in ((None, "needs weights"), ("someone/model", "no pinned revision"), (f"someone/model@{'0'*40}", "weights fetch"), (tmp_path, "no translator")):
        with pytest.raises(InputError, match=says) as error: translators["hub"](weights=weights)
        assert "\n" not in str(error.value)


def test_the_loss_of_a_public_model_is_its_own(public, tmp_path):
    "Padding and start are one entry of it, and count once."
    _, texts, theirs, tokenizer = public
    theirs = copy.deepcopy(theirs)
    theirs.resize_token_embeddings(len(tokenizer))
    theirs.save_pretrained(tmp_path), tokenizer.save_pretrained(tmp_path)
    net = translators["hub"](weights=tmp_path).eval()
    tokens = net.vocabulary.batch(texts, 40)
    labels = torch.tensor(net.vocabulary.order)[tokens[:, 1:]].masked_fill(tokens[:, 1:] == PAD, -100)
    given = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    inputs = net.read(texts)
    assert torch.isclose(text_loss(net(inputs, tokens), tokens, smoothing=0), theirs.eval()(**given, labels=labels).loss, atol=1e-5)
    state = net.begin(*net.memory(inputs))
    assert torch.allclose(net.step(tokens[:, 0], state)[0], net(inputs, tokens)[:, 0], atol=1e-4)


def test_of_specials_that_are_one_entry_one_is_left():
    assert twins((0, 1, 2, 3)) == [] and twins((0, 0, 1, 2)) == [BOS] and twins((0, 0, 1, 0)) == [BOS, UNK]
    assert twins((1, 2, 2, 3)) == [BOS] and twins((5, 6, 5, 7)) == [PAD]  # EOS has to be said


def test_pickles_and_missing_tensors_are_refused(public, tmp_path):
    from safetensors.torch import load_file, save_file
    folder, _, theirs, tokenizer = public
    for name in ("pickle", "lacking"): theirs.save_pretrained(tmp_path/name), tokenizer.save_pretrained(tmp_path/name)
    weights = load_file(tmp_path/"lacking"/"model.safetensors")
    torch.save(weights, tmp_path/"pickle"/"pytorch_model.bin")
    (tmp_path/"pickle"/"model.safetensors").unlink()
    lost = next(k for k in weights if "decoder" in k and "weight" in k and weights[k].ndim == 2 and "embed" not in k)
    save_file({k: v for k, v in weights.items() if k != lost}, tmp_path/"lacking"/"model.safetensors", metadata={"format": "pt"})
    for name, says in (("pickle", "holds no translator"), ("lacking", "lacks 1 tensors")):
        with pytest.raises(InputError, match=says) as error: translators["hub"](weights=tmp_path/name)
        assert "\n" not in str(error.value)


def test_text_says_no_specials():
    "What is spelled like a special is unknown: it ends no text."
    for vocabulary in (Vocabulary.bpe(SENTENCES.english, 300), Vocabulary.of(SENTENCES.english)):
        ids = vocabulary.encode("dogs <eos> and <pad> and <bos>")
        assert UNK in ids and not {PAD, BOS, EOS} & {*ids}
        row = vocabulary.batch(["dogs <eos> and <pad>"], 40)[0].tolist()
        assert row.count(EOS) == 1 and row[-1] == EOS
