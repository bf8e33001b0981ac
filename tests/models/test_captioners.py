"Published captioners: numbers of the authors' own code, names of their tensors, prompts, caches, and what is refused."
import csv
import gzip
import hashlib
import json
from pathlib import Path

import pytest
import torch
from published_state import drawn_ids, drawn_vectors, filled, sampled
from torch import nn
from torch.nn import functional as F

from invariant_metrics.core import InputError
from invariant_metrics.encoders.weights import read_tensors, resolve
from invariant_metrics.models.clipcap import ClipCap, ClipCapConfig, load_clipcap
from invariant_metrics.models.generators import captioners
from invariant_metrics.models.gpt2 import gpt2_vocabulary, new_gpt2, open_gpt2
from invariant_metrics.models.smallcap import SmallCap, SmallCapConfig, load_smallcap, prompt_rows, prompt_text, prompt_words
from invariant_metrics.models.text_networks import BOS, EOS, PAD, TextGenerator, Vocabulary

HERE = Path(__file__).parent
ORIGINALS = json.loads((HERE/"captioner_originals.json").read_text())
BUFFERS = (".attn.bias", "crossattention.bias", "masked_bias", "position_ids")
CLIPCAP = {"tiny": "tiny", "tiny-mlp": ClipCapConfig("tiny", 4, "mlp", tuned=True), "full": "full", "tuned": "tuned"}
WORDS = Vocabulary(("",)*4 + tuple(f"w{i}" for i in range(46)))
heavy = pytest.mark.slow # 124 million numbers are drawn


def entries(size: str) -> Vocabulary: return WORDS if size.startswith("tiny") else Vocabulary(("",)*50_257)


def published_tensors(network: str, size: str) -> dict[str, tuple[int, ...]]:
    "Name -> shape, of the original's own state."
    with gzip.open(HERE/"captioner_names.csv.gz", "rt") as file:
        return {row["name"]: tuple(map(int, row["shape"].split())) for row in csv.DictReader(file)
                if (row["network"], row["size"]) == (network, size)}


def as_published(network: str, size: str) -> dict[str, torch.Tensor]:
    "The original's state with the numbers of the rule, its masks included."
    shapes = published_tensors(network, size)
    tensors = filled({k: s for k, s in shapes.items() if not k.endswith((*BUFFERS, "lm_head.weight"))})
    tensors |= {k: torch.zeros(s) for k, s in shapes.items() if k.endswith(BUFFERS)}
    table = next(k for k in tensors if k.endswith("wte.weight"))
    return tensors | {k: tensors[table] for k in shapes if k.endswith("lm_head.weight")}


@pytest.mark.parametrize("size", ["tiny", pytest.param("full", marks=heavy)])
def test_smallcap_says_what_the_original_says(size):
    vocabulary = entries(size)
    width = 64 if size == "tiny" else 768
    net = load_smallcap(as_published("smallcap", size), vocabulary, size, width).eval()
    prompt = F.pad(drawn_ids(2, 9, 4, len(vocabulary), "prompt"), (0, 1), value=1)
    inputs = {"prompt": prompt, "features": drawn_vectors(2, 50, width, key="features")}
    text = drawn_ids(2, 6, 4, len(vocabulary), "text")
    tokens = torch.cat([torch.full((2, 1), BOS), text, torch.full((2, 1), EOS), torch.full((2, 2), PAD)], 1)
    with torch.no_grad(): logits = net(inputs, tokens)
    found, wanted = logits[:, :7], ORIGINALS[f"smallcap {size}"]
    assert list(found.shape) == wanted["shape"]
    assert (sampled(found) - torch.tensor(wanted["numbers"], dtype=torch.float64)).abs().max() < 1e-5
    assert abs(F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=PAD).item() - wanted["loss"]) < 1e-5


@pytest.mark.parametrize("size", ["tiny", "tiny-mlp", pytest.param("full", marks=heavy), pytest.param("tuned", marks=heavy)])
def test_clipcap_says_what_the_original_says(size):
    vocabulary = entries(size)
    net = load_clipcap(as_published("clipcap", size), vocabulary, CLIPCAP[size]).eval()
    features = {"tiny": 16, "tiny-mlp": 16, "full": 640, "tuned": 512}[size]
    wanted = ORIGINALS[f"clipcap {size}"]
    assert sum(p.numel() for p in net.parameters() if p.requires_grad) == wanted["trained"]
    text = drawn_ids(3, 8, 4, len(vocabulary), "text")
    text[0, 3] = text[0, 6:] = text[1, 7] = 0 # a word that is read and not learned, and padding
    tokens = F.pad(text, (1, 0), value=BOS)
    with torch.no_grad(): logits = net({"features": drawn_vectors(3, features, key="features")}, tokens)
    found = torch.cat([logits[0, :6], logits[1, :7], logits[2]])
    assert list(found.shape) == wanted["shape"]
    assert (sampled(found) - torch.tensor(wanted["numbers"], dtype=torch.float64)).abs().max() < 1e-5
    assert abs(F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=PAD).item() - wanted["loss"]) < 1e-5


@pytest.mark.parametrize("network, size", [("smallcap", "full"), ("clipcap", "full"), ("clipcap", "tuned")])
def test_names_of_the_full_networks_are_those_of_the_originals(network, size):
    with torch.device("meta"):
        gpt = new_gpt2(50_257, "full")
        made = (SmallCap(gpt, entries(size)) if network == "smallcap"
                else ClipCap(gpt, entries(size), 640 if size == "full" else 512, ClipCapConfig.of(size)))
    ours = {("decoder." + k.removeprefix("gpt.") if network == "smallcap" else k): tuple(v.shape) for k, v in made.state_dict().items()}
    theirs = {k: s for k, s in published_tensors(network, size).items() if not k.endswith(BUFFERS) and not k.startswith("encoder.")}
    assert ours == theirs


def test_prompts_are_the_published_ones():
    def sha(text): return hashlib.sha256(text.encode()).hexdigest()
    known = ORIGINALS["prompt"]
    assert (sha(prompt_text(known["captions"])), sha(prompt_text())) == (known["four"], known["none"])


def test_a_public_tokenizer_reads_prompt_and_caption_as_one_text(byte_tokenizer):
    vocabulary = gpt2_vocabulary(byte_tokenizer, len(byte_tokenizer))
    captions = ["a red boat", "two boats, wow!"]
    row = prompt_rows(vocabulary, [captions])[0].tolist()
    whole = [*row, *vocabulary.batch(["a dog"], 25)[0, 1:].tolist()] # without BOS, which is not read
    ids = byte_tokenizer(prompt_text(captions))["input_ids"] + byte_tokenizer("a dog")["input_ids"] + byte_tokenizer(".")["input_ids"]
    assert [vocabulary.order[n] for n in whole] == [i for i in ids if i != byte_tokenizer("!")["input_ids"][0]]


def test_prompts_with_holes_are_refused(byte_tokenizer):
    words = Vocabulary.of([*prompt_words(), "a boat"])
    with pytest.raises(InputError, match=r"1 prompts have words that GPT-2's vocabulary lacks: zebra; retrieve"): prompt_rows(words, [["a boat"], ["a zebra"]])
    with pytest.raises(InputError, match="lacks: This, image, shows"): prompt_rows(Vocabulary.of(["a boat"]), [()])
    small = gpt2_vocabulary(byte_tokenizer, len(byte_tokenizer) - 1) # the last piece has no vector
    last = byte_tokenizer.decode([len(byte_tokenizer) - 1])
    with pytest.raises(InputError, match="vocabulary lacks"): prompt_rows(small, [[last]])


@pytest.fixture(scope="module")
def byte_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=270, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(["a red boat on blue water"]*3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>"))


def sharp(name: str) -> nn.Module: # a writer whose words differ from each other
    net = captioners[name](6, WORDS, seed=3).eval()
    with torch.no_grad():
        for p in net.parameters(): p.mul_(3.)
    return net


def given(name: str, n: int = 3) -> dict[str, torch.Tensor]:
    if name == "clipcap": return {"features": drawn_vectors(n, 6, key="one")}
    prompt = drawn_ids(n, 8, 4, 50, "prompt")
    prompt[1, 5:] = PAD
    return {"features": drawn_vectors(n, 5, 6, key="some"), "prompt": prompt}


@pytest.mark.parametrize("name", ["smallcap", "clipcap"])
@pytest.mark.parametrize("options", [{}, {"beams": 3}, {"beams": 5, "length_penalty": 1.}, {"samples": 2, "sample": 0}], ids=str)
def test_writing_with_a_cache_changes_nothing(name, options):
    net = sharp(name)
    def write():
        drawn = {"sample": torch.Generator().manual_seed(0)} if "sample" in options else {}
        return net.generate(given(name), length=12, **{**options, **drawn})
    kept = write()
    net.__class__ = type("Slow", (type(net),), {"begin": TextGenerator.begin, "step": TextGenerator.step})
    again = write()
    assert torch.equal(kept.tokens, again.tokens) and torch.allclose(kept.log_probs, again.log_probs, atol=1e-4)


@pytest.mark.parametrize("name", ["smallcap", "clipcap"])
def test_a_caption_does_not_depend_on_its_batch(name):
    net, inputs = sharp(name), given(name)
    together = net.generate(inputs, length=12)
    for i in range(3):
        alone = net.generate({k: v[i:i + 1] for k, v in inputs.items()}, length=12)
        assert torch.equal(alone.tokens[0][alone.mask[0]], together.tokens[i][together.mask[i]])


@pytest.mark.parametrize("name", ["smallcap", "clipcap"])
def test_no_step_moves_what_is_frozen(name):
    net, inputs = sharp(name).train(), given(name)
    before = {k: v.clone() for k, v in net.named_parameters()}
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
    net(inputs, WORDS.batch(["w1 w2", "w3", "w4 w5 w6"], 5)).square().mean().backward()
    optimizer.step()
    moved = {k for k, v in net.named_parameters() if not torch.equal(v, before[k])}
    part = "crossattention" if name == "smallcap" else "clip_project"
    assert moved and all(part in k for k in moved)


@pytest.mark.parametrize("name", ["smallcap", "clipcap"])
def test_a_folder_gives_its_words_and_vectors(name, tmp_path, byte_tokenizer):
    gpt = new_gpt2(len(WORDS), seed=7)
    gpt.save_pretrained(tmp_path/"words")
    (tmp_path/"words"/"words.json").write_text(WORDS.to_json())
    other = Vocabulary.of(["w3 w1 new"])
    net = captioners[name](6, other, weights=tmp_path/"words")
    assert torch.equal(net.gpt.transformer.wte.weight[other.encode("w3")], gpt.transformer.wte.weight[WORDS.encode("w3")])
    assert captioners[name](6, weights=tmp_path/"words").vocabulary == WORDS
    public = new_gpt2(len(byte_tokenizer), seed=7)
    public.save_pretrained(tmp_path/"public")
    byte_tokenizer.save_pretrained(tmp_path/"public")
    net = captioners[name](6, weights=tmp_path/"public").eval()
    inputs = {"features": drawn_vectors(1, 6, key="one")}
    if name == "smallcap": inputs = {"features": inputs["features"][:, None], "prompt": prompt_rows(net.vocabulary, [["a red boat"]])}
    assert isinstance(net.texts(inputs, length=5)[0], str)
    assert open_gpt2(tmp_path/"public")[1].order == captioners["smallcap"](6, weights=tmp_path/"public").vocabulary.order
    with pytest.raises(InputError, match="writes in its own pieces"): captioners[name](6, WORDS, weights=tmp_path/"public")
    with pytest.raises(InputError, match="no pinned revision"): captioners[name](6, WORDS, weights="openai/gpt2")


def test_files_open_without_running_code(tmp_path):
    tensors = as_published("clipcap", "tiny")
    torch.save(tensors, tmp_path/"coco-009.pt")
    net = load_clipcap(read_tensors(resolve(tmp_path/"coco-009.pt")), WORDS, "tiny")
    assert torch.equal(net.clip_project.prefix_const, tensors["clip_project.prefix_const"])
    class Evil:
        def __reduce__(self): return print, ("run",)
    torch.save({"clip_project.linear.weight": Evil()}, tmp_path/"evil.pt")
    with pytest.raises(InputError, match="not a readable weights file"): read_tensors(resolve(tmp_path/"evil.pt"))


def test_checkpoints_of_another_configuration_name_what_differs():
    smallcap, clipcap = as_published("smallcap", "tiny"), as_published("clipcap", "tiny")
    narrow = {k: (v[:, :32] if k.endswith("crossattention.c_attn.weight") else v) for k, v in smallcap.items()}
    with pytest.raises(InputError, match=r"another shape: decoder.transformer.h.0.crossattention.c_attn.weight is \(64, 32\), not \(64, 64\)"):
        load_smallcap(narrow, WORDS, "tiny", 64)
    plain = {k: v for k, v in smallcap.items() if "cross" not in k}
    with pytest.raises(InputError, match="16 tensors are missing, decoder.transformer.h.0.crossattention.q_attn.weight"): load_smallcap(plain, WORDS, "tiny", 64)
    with pytest.raises(InputError, match=r"clip_project.prefix_const is \(4, 64\), not \(6, 64\)"):
        load_clipcap(clipcap, WORDS, ClipCapConfig("tiny", 6, length=4, layers=2))
    with pytest.raises(InputError, match="no ClipCap with mapper mlp: clip_project.model.0.weight is missing"): load_clipcap(clipcap, WORDS, CLIPCAP["tiny-mlp"])
    with pytest.raises(InputError, match=r"gpt.transformer.wte.weight is \(50, 64\), not \(7, 64\)"): load_clipcap(clipcap, Vocabulary.of(["a b c"]), "tiny")


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="5 times narrower"): SmallCap(new_gpt2(50), WORDS, 6, SmallCapConfig("tiny", 5))
    net = sharp("smallcap")
    inputs = {"features": drawn_vectors(1, 5, 6, key="some"), "prompt": drawn_ids(1, 125, 4, 50, "long")}
    with pytest.raises(InputError, match="128 positions, and prompt and caption need 129"): net.generate(inputs, length=9)
    for name in ("smallcap", "clipcap"):
        with pytest.raises(InputError, match=f"unknown size of {name} 'huge'"): captioners[name](6, WORDS, size="huge")
