"Published translators: numbers of the authors' own code, names of their tensors, the second pass, layers that are drawn, and what is refused."
import argparse
import json
import re
from pathlib import Path

import pytest
import torch
from published_state import filled, sampled
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertModel

from invariant_metrics.core import InputError, torch_rng
from invariant_metrics.models.bibert import BiBERT, LanguageModel
from invariant_metrics.models.bisimcut import _ASIDE, _RULES, BiSimCut, _Apart, cutoff, load_fairseq, read_fairseq
from invariant_metrics.models.colorizer import published_name, seeded
from invariant_metrics.models.generators import translators
from invariant_metrics.models.text_networks import BOS, EOS, PAD, UNK, Vocabulary
from invariant_metrics.training.text_training import text_loss

ORIGINALS = json.loads((Path(__file__).parent/"translators.json").read_text())
# authors' numbers of the four specials: of fairseq's own dictionary, and of the pieces that BiBERT's tokenizers make
FIRST = {"bisimcut": [1, 0, 2, 3], "bibert": [0, 2, 3, 1]}


class Pieces:
    "As much of a tokenizer as the renumbering needs: padding, unknown, beginning, end, 36 pieces."
    pad_token_id, unk_token_id, cls_token_id, sep_token_id = range(4)
    bos_token_id = eos_token_id = None
    def __len__(self): return 40
    def convert_ids_to_tokens(self, ids): return [f"piece{i}" for i in ids]


def entries(n): return Vocabulary(tuple(map(str, range(n))))


def reader(width: int, layers: int, **options) -> LanguageModel:
    "A BERT with the weights of the rule."
    network = BertModel(BertConfig(**{"vocab_size": 40, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 4,
                                      "intermediate_size": 2*width, "max_position_embeddings": 40} | options), add_pooling_layer=False)
    drawn = filled({f"lm.{k}": tuple(v.shape) for k, v in network.state_dict().items() if v.is_floating_point()})
    network.load_state_dict({k[3:]: v for k, v in drawn.items()}, strict=False)
    return LanguageModel(network, Pieces())


def made(name: str, size: str, n: int, seed: int = 0):
    if name == "bisimcut": return BiSimCut(entries(n), entries(n), size, seed)
    return BiBERT(reader(*{"tiny": (96, 4), "full": (768, 9)}[size]), entries(n), size, seed)


def order(name: str, n: int): return torch.tensor([*FIRST[name], *range(4, n)])


def loaded(name: str, size: str):
    "Our network with the weights of the rule, through the loader of fairseq's checkpoints, and the authors' numbers."
    original = ORIGINALS[name][size]
    network = made(name, size, original["V"])
    tensors = filled({published_name(k, _RULES): tuple(v.shape) for k, v in _Apart(network).state_dict().items()})
    if name == "bisimcut":
        for table in ("encoder.embed_tokens.weight", "decoder.output_projection.weight"): tensors[table] = tensors["decoder.embed_tokens.weight"]
    return load_fairseq(network, {"model": tensors}, name, order(name, original["V"])).eval(), original


def texts(original, side):
    rows = [torch.tensor([BOS, *row[:n], EOS]) for row, n in zip(original[side], original[f"{side}_words"])]
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


def near(found, wanted, tolerance=1e-5):
    return torch.allclose(sampled(found, len(wanted)), torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["bisimcut", "bibert"])
def test_names_are_those_of_the_original(name):
    network, original = loaded(name, "tiny")
    ours = {published_name(k, _RULES): list(v.shape) for k, v in _Apart(network).state_dict().items()}
    theirs = {k: shape for k, shape in original["names"].items() if k != "decoder.output_projection.weight" or name == "bibert"}
    assert ours == {k: shape for k, shape in theirs.items() if not re.fullmatch(_ASIDE, k)}


@pytest.mark.parametrize("size", ["tiny", "full"])
def test_bisimcut_says_what_the_original_says(size):
    network, original = loaded("bisimcut", size)
    source, tokens = texts(original, "source"), texts(original, "target")
    real = tokens[:, 1:] != PAD
    logits = network({"source": source}, tokens)
    cut = network.cut({"source": source}, tokens, *(torch.tensor(original[f"kept_{side}"]).bool() for side in ("source", "target")))
    assert near(logits[real], original["logits"]) and near(cut[real], original["cut"])
    assert abs(text_loss(logits, tokens).item() - original["smoothed"]) < 1e-5 and real.sum() == original["ntokens"]
    copies = sum(p.numel() for name, p in network.encoder.named_parameters() if "norms" not in name) # of fairseq's shortcut
    assert sum(p.numel() for p in network.parameters()) + copies == original["parameters"]
    apart = F.kl_div(cut.log_softmax(-1), logits.softmax(-1), reduction="none").sum(-1)[real].mean()
    assert abs(apart.item() - original["simcut"]) < 1e-6
    apart.backward() # through both passes
    slope = network.embedding.weight.grad[4:]
    assert abs(slope.norm().item() - original["gradient"][0]) < 1e-5 and near(slope, original["gradient"][1:], 1e-6)


@pytest.mark.parametrize("beams, penalty", [(5, 1.0), (4, 0.6)])
def test_a_text_of_the_original_search_has_the_score_it_was_given(beams, penalty):
    network, original = loaded("bisimcut", "tiny")
    source = texts(original, "source")
    for row, (words, score) in zip(source, original[f"beam {beams}"]):
        tokens = torch.tensor([[BOS, *words]])
        with torch.no_grad(): each = network({"source": row[None, :int((row != PAD).sum())]}, tokens).log_softmax(-1)[0]
        total = each.gather(1, tokens[0, 1:, None]).sum().item()
        assert abs(total/len(words)**penalty - score) < 1e-5 # the end of the text counts as a word


@pytest.mark.parametrize("size", ["tiny", pytest.param("full", marks=pytest.mark.slow)])
def test_bibert_says_what_the_original_says_from_each_layer(size):
    network, original = loaded("bibert", size)
    source, tokens = texts(original, "source"), texts(original, "target")
    theirs = torch.argsort(order("bibert", original["V"])) # our number of each of their pieces
    def say(rows=slice(None), until=None):
        with torch.no_grad(): logits = network({"source": source[rows]}, tokens[rows, :until])
        return logits[..., theirs][tokens[rows, 1:until] != PAD]
    assert sum(p.numel() for p in network.parameters()) == original["parameters"]
    assert near(say(), original["eval"]) and near(say(slice(1), 7), original["alone"])
    for n in range(1, min(8, network.source.layers) + 1):
        network.vectors = lambda states, n=n: states[-n]
        assert near(say(), original[f"layer -{n}"]), n


def test_new_weights_are_drawn_as_the_original_draws_them():
    network = BiSimCut(entries(2000), entries(2000), "full", 3)
    table, layer = network.embedding.weight, network.decoder[0]
    assert not table[PAD].any() and abs(table[4:].std().item() - 512**-.5) < 1e-3
    assert abs(layer.self_attn.query.weight.std().item() - (1/1024)**.5) < 1e-3 # half of 2/(512 + 512)
    assert abs(layer.self_attn.pair.weight.std().item() - (1/1024)**.5) < 1e-3
    assert abs(layer.self_attn.out.weight.std().item() - (2/1024)**.5) < 1e-3 and not layer.self_attn.out.bias.any()
    other, same = (BiSimCut(entries(9), entries(9), seed=s).state_dict() for s in (1, 0))
    again = BiSimCut(entries(9), entries(9)).state_dict()
    assert all(torch.equal(v, again[k]) for k, v in same.items()) and not torch.equal(other["embedding.weight"], again["embedding.weight"])


@pytest.mark.parametrize("name", ["bisimcut", "bibert"])
def test_writing_with_a_cache_is_decoding_again(name):
    network, original = loaded(name, "tiny")
    inputs = {"source": texts(original, "source")}
    with torch.no_grad():
        for sampled_texts in (network.generate(inputs, length=9, sample=torch_rng(2)), network.generate(inputs, length=9)):
            tokens = F.pad(sampled_texts.tokens, (1, 0), value=BOS)
            logits = network.eval()(inputs, tokens)
            logits[..., [PAD, BOS]] = -torch.inf
            again = logits.log_softmax(-1).gather(2, sampled_texts.tokens[..., None])[..., 0]
            assert torch.allclose(again[sampled_texts.mask], sampled_texts.log_probs[sampled_texts.mask], atol=1e-4)


def test_both_dropouts_are_in_the_published_bibert_and_none_in_evaluation():
    network = made("bibert", "full", 50)
    part = network.decoder[2]
    assert part.drop.p == .3 and part.cross_attn.dropout == .1 and part.ffn[1][1].p == .1
    x = torch.randn(2, 5, 768, generator=torch_rng(0))
    pair = part.self_attn.keys_values(x)
    with torch.no_grad():
        assert not torch.equal(part.self_attn(x, pair), part.self_attn(x, pair))
        part.eval()
        assert torch.equal(part.self_attn(x, pair), part.self_attn(x, pair))


def test_one_layer_is_drawn_for_a_whole_batch_and_never_what_enters_the_first():
    network = made("bibert", "tiny", 20).train()
    states = [torch.full((3, 2, 96), float(i)) for i in range(5)]
    with seeded(0, "layers"): drawn = [network.vectors(states).unique() for _ in range(400)]
    assert {len(d) for d in drawn} == {1} and {d.item() for d in drawn} == {1., 2., 3., 4.}
    assert torch.equal(network.eval().vectors(states), torch.full((3, 2, 96), 2.5))
    network.source.network.config.num_hidden_layers = 12
    many = [torch.tensor(float(i)) for i in range(13)]
    with seeded(0, "layers"): deep = {network.train().vectors(many).item() for _ in range(400)}
    assert deep == set(map(float, range(5, 13))) # the last eight of twelve


def test_a_language_model_is_not_trained_not_copied_and_not_stored():
    import copy
    network = made("bibert", "tiny", 20)
    frozen = {k: v.clone() for k, v in network.source.network.state_dict().items()}
    network.train()({"source": torch.tensor([[BOS, 7, 8, EOS]])}, torch.tensor([[BOS, 5, EOS]])).sum().backward()
    assert all(p.grad is None for p in network.source.network.parameters()) and not network.source.network.training
    assert all(torch.equal(v, frozen[k]) for k, v in network.source.network.state_dict().items())
    assert copy.deepcopy(network).source is network.source
    assert not any("network" in k or "order" in k for k in network.state_dict())


def test_positions_of_roberta_begin_after_its_padding():
    model = reader(96, 2)
    assert model.positions == 40
    model.network.config.model_type, model.network.config.pad_token_id = "roberta", 1
    assert model.positions == 38


def test_words_are_cut_at_random_and_two_never_are():
    ids = torch.tensor([[7, 8, 9, EOS, PAD]]).repeat(4000, 1)
    kept = cutoff(ids, EOS, .3, torch_rng(1))
    assert kept[:, 3].all() and abs(kept[:, :3].float().mean().item() - .7) < .01
    assert not torch.equal(kept, cutoff(ids, EOS, .3, torch_rng(2)))
    assert cutoff(ids, EOS, 0.).all()


def test_a_checkpoint_opens_without_running_code(tmp_path):
    network = made("bisimcut", "tiny", 12, seed=5).eval()
    state = {published_name(k, _RULES): v for k, v in _Apart(network).state_dict().items()}
    swapped = {k: v[[1, 0, *range(2, 12)]] if "embed_tokens" in k else v for k, v in state.items()}
    swapped |= {"encoder.version": torch.tensor([3.]), "decoder.embed_positions._float_tensor": torch.zeros(1),
                "encoder.layers.1.in_proj_weight": torch.zeros(192, 64)}
    torch.save({"model": swapped, "args": argparse.Namespace(arch="transformer_iwslt_de_en"), "cfg": None}, tmp_path/"best.pt")
    again = translators["bisimcut"](entries(12), entries(12), weights=tmp_path/"best.pt").eval()
    inputs, tokens = {"source": torch.tensor([[BOS, 7, 8, EOS]])}, torch.tensor([[BOS, 5, EOS]])
    with torch.no_grad(): assert torch.equal(again(inputs, tokens), network(inputs, tokens))
    class Harm:
        def __reduce__(self): return (Path.touch, (tmp_path/"ran",))
    torch.save({"model": {}, "extra": Harm()}, tmp_path/"harm.pt")
    with pytest.raises(InputError, match="harm.pt is not a readable checkpoint"): read_fairseq(tmp_path/"harm.pt")
    assert not (tmp_path/"ran").exists()
    with pytest.raises(InputError, match="absent.pt is not a readable checkpoint: FileNotFoundError"): read_fairseq(tmp_path/"absent.pt")


def test_what_does_not_fit_is_named():
    tensors = {published_name(k, _RULES): v for k, v in _Apart(made("bisimcut", "tiny", 12)).state_dict().items()}
    def load(tensors): return load_fairseq(made("bisimcut", "tiny", 12), tensors, "Bi-SimCut")
    with pytest.raises(InputError, match="no Bi-SimCut: 1 tensors are missing, encoder.layers.0.self_attn.k_proj.weight among them"):
        load({k: v for k, v in tensors.items() if k != "encoder.layers.0.self_attn.k_proj.weight"})
    with pytest.raises(InputError, match="have no place in it: decoder.layer_norm.weight"): load(tensors | {"decoder.layer_norm.weight": torch.ones(64)})
    with pytest.raises(InputError, match=r"decoder.layers.1.fc1.weight is \(256, 64\), not \(128, 64\)"):
        load(tensors | {"decoder.layers.1.fc1.weight": torch.zeros(256, 64)})
    with pytest.raises(InputError, match="one table for both"): load(tensors | {"decoder.output_projection.weight": torch.zeros(12, 64)})
    with pytest.raises(InputError, match="unknown size of bisimcut 'huge'"): made("bisimcut", "huge", 9)
    with pytest.raises(InputError, match="a language model 64 wide does not fit BiBERT of size tiny, which is 96 wide"): BiBERT(reader(64, 1), entries(9))
    with pytest.raises(InputError, match="a sentence of 41 pieces is longer than the 40 positions"):
        made("bibert", "tiny", 9).memory({"source": torch.full((1, 41), UNK)})
    with pytest.raises(InputError, match="a text of 1025 entries is longer than the 1024 positions"):
        made("bisimcut", "tiny", 9).memory({"source": torch.full((1, 1026), UNK)})
    class NoEnd(Pieces): sep_token_id = None
    with pytest.raises(InputError, match="needs padding, a beginning, an end"): LanguageModel(reader(96, 1).network, NoEnd())
