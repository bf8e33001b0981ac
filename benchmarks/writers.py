"""A step of the tiny published translators here, beside the same step of the authors' code, on the same sentences in the same process.

Usage: python benchmarks/writers.py --originals FOLDER [--rounds 15] [--out nbs/results/writers_speed.csv]
FOLDER holds checkouts of the authors' repositories, Bi-SimCut/ and BiBERT/ (both with a fairseq of their own, which needs omegaconf, hydra-core
and bitarray). A step is forward and backward of the published loss in training mode, 32 sentence pairs of 12 to 20 words, one CPU thread; the two
take turns, and the medians of processor time are compared. Each translator runs in a process of its own, since both forks are called fairseq."""
import argparse
import collections
import collections.abc
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch
from transformers import BertConfig, BertModel

from invariant_metrics.files import atomic_write
from invariant_metrics.models.bibert import BiBERT, LanguageModel
from invariant_metrics.models.bisimcut import BiSimCut
from invariant_metrics.models.text_networks import BOS, EOS, PAD, Vocabulary
from invariant_metrics.training.loop import total
from invariant_metrics.training.text_recipes import translation_recipe

ENTRIES, PIECES = 1000, 1600
TINY = {"bisimcut": {"embed_dim": 64, "ffn_embed_dim": 128, "attention_heads": 4, "layers": 2},
        "bibert": {"embed_dim": 96, "ffn_embed_dim": 192, "attention_heads": 4, "layers": 2}}
FOLDERS = {"bisimcut": "Bi-SimCut", "bibert": "BiBERT"}


def open_fairseq(folder: Path) -> None:
    "Let `fairseq` mean the fork in a checkout, and give it what newer versions of Python and numpy no longer have."
    np.float, np.int = float, int
    for name in ("Collection", "Iterable", "Mapping", "Sequence"): setattr(collections, name, getattr(collections.abc, name))
    plain = dataclasses.dataclass
    def hashable(cls=None, /, **options): # a default that is a configuration has to be one
        def wrap(kind):
            made = plain(kind, **options)
            if made.__hash__ is None: made.__hash__ = object.__hash__
            return made
        return wrap if cls is None else wrap(cls)
    dataclasses.dataclass = hashable
    inside = folder/"fairseq"
    sys.path.insert(0, str(inside if (inside/"fairseq").is_dir() else folder))


class Dictionary:
    "As much of fairseq's dictionary as networks and criteria ask for."
    def __init__(self, entries: int, pad: int, bos: int): self.entries, self.pad_, self.bos_ = entries, pad, bos
    def __len__(self): return self.entries
    def pad(self): return self.pad_
    def bos(self): return self.bos_
    def eos(self): return 2
    def unk(self): return 3


class Pieces:
    "As much of a tokenizer as renumbering needs."
    pad_token_id, cls_token_id, sep_token_id, unk_token_id = 1, 0, 2, 3
    bos_token_id = eos_token_id = None
    def __len__(self): return PIECES
    def convert_ids_to_tokens(self, ids): return [f"piece{i}" for i in ids]


def language_model() -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(vocab_size=PIECES, hidden_size=96, num_hidden_layers=3, num_attention_heads=4, intermediate_size=192,
                                max_position_embeddings=128)).eval()


def original(name: str): # the network, and what a step of it minimizes, from (source, target, previous)
    args = argparse.Namespace(dropout=.1, share_all_embeddings=name == "bisimcut", max_source_positions=1024, max_target_positions=1024)
    for side in ("encoder", "decoder"):
        for key, value in TINY[name].items(): setattr(args, f"{side}_{key}", value)
    dictionary = Dictionary(ENTRIES, 1, 0)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    if name == "bisimcut":
        from fairseq.criterions.label_smoothed_cross_entropy_with_simcut import LabelSmoothedCrossEntropyWithSimCutCriterion as Criterion
        from fairseq.models.transformer import TransformerModel
        from fairseq.models.transformer.transformer_legacy import transformer_iwslt_de_en
        criterion = Criterion(task, False, .1, alpha=3., p=.05)
    else:
        from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion as Criterion
        import fairseq.models.transformer as code
        model = language_model()
        code.get_pretrained_model = lambda name: setattr(code, "PRETRAINED_MODEL", model)
        TransformerModel, transformer_iwslt_de_en = code.TransformerModel, code.transformer_iwslt_de_en
        task.source_dictionary = Dictionary(PIECES, 1, 0)
        args.pretrained_model, args.use_drop_embedding = "bert", 3
        criterion = Criterion(task, False, .1)
    transformer_iwslt_de_en(args)
    network = TransformerModel.build_model(args, task).train()
    def loss(source, target, previous):
        words = int((target != 1).sum())
        batch = {"net_input": {"src_tokens": source, "src_lengths": (source != 1).sum(1), "prev_output_tokens": previous}, "target": target, "ntokens": words}
        return criterion(network, batch)[0]/words
    return network, loss


def ours(name: str): # the same of this package, from (source, tokens)
    words = Vocabulary(("",)*4 + tuple(f"w{i}" for i in range(4, ENTRIES)))
    network = BiSimCut(words, words) if name == "bisimcut" else BiBERT(LanguageModel(language_model(), Pieces()), words)
    published = translation_recipe(name).loss(words)
    return network.train(), lambda source, tokens: total(published(network, {"source": source, "tokens": tokens}))


def sentences(name: str):
    "The same texts in the order of both: ours with padding on the right, fairseq's sources with padding on the left."
    draw = torch.Generator().manual_seed(0)
    here, there = [], []
    for entries in (PIECES if name == "bibert" else ENTRIES, ENTRIES):
        rows = [torch.randint(4, entries, (int(n),), generator=draw) for n in torch.randint(12, 21, (32,), generator=draw)]
        here.append(torch.nn.utils.rnn.pad_sequence([torch.cat([torch.tensor([BOS]), r, torch.tensor([EOS])]) for r in rows], True, PAD))
        there.append([torch.cat([r, torch.tensor([2])]) for r in rows])
    def padded(rows, side): return torch.nn.utils.rnn.pad_sequence(rows, True, 1, side)
    previous = [torch.cat([torch.tensor([2]), r[:-1]]) for r in there[1]]
    return here, [padded(there[0], "left"), padded(there[1], "right"), padded(previous, "right")]


def step_seconds(network: torch.nn.Module, loss, x) -> float:
    network.zero_grad()
    begun = time.process_time()
    loss(*x).backward()
    return time.process_time() - begun


def compare(name: str, originals: Path, rounds: int) -> dict:
    torch.set_num_threads(1)
    open_fairseq(originals/FOLDERS[name])
    texts = sentences(name)
    sides = {"here": (*ours(name), texts[0]), "authors": (*original(name), texts[1])}
    seconds = {side: [] for side in sides}
    for _ in range(rounds):
        for side, (network, loss, x) in sides.items(): seconds[side].append(step_seconds(network, loss, x))
    here, authors = (float(np.median(seconds[side][2:])) for side in ("here", "authors"))
    return {"model": name, "parameters": sum(p.numel() for p in sides["here"][0].parameters()), "ms here": round(1e3*here, 1),
            "ms authors": round(1e3*authors, 1), "ratio": round(authors/here, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--originals", type=Path, required=True, help="folder with the checkouts Bi-SimCut/ and BiBERT/")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent/"nbs"/"results"/"writers_speed.csv")
    parser.add_argument("--one", choices=FOLDERS, help=argparse.SUPPRESS) # one translator, as JSON into --out
    given = parser.parse_args()
    if given.one: return given.out.write_text(json.dumps(compare(given.one, given.originals, given.rounds)))
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name in FOLDERS:
            out = Path(place)/f"{name}.json"
            subprocess.run([sys.executable, __file__, "--originals", given.originals.resolve(), "--rounds", str(given.rounds), "--one", name, "--out", out], check=True)
            rows.append(json.loads(out.read_text()))
    frame = pd.DataFrame(rows)
    print(frame.to_string(index=False))
    with atomic_write(given.out) as path: frame.to_csv(path, index=False)


if __name__ == "__main__": main()
