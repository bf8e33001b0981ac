"""A step of the tiny SmallCap and ClipCap here, beside the same step of the authors' code, on the same batch.

Usage: python benchmarks/captioners.py --originals FOLDER --transformers FOLDER [--rounds 15] [--out nbs/results/captioners_speed.csv]
The first folder holds checkouts of the authors' repositories, smallcap/ and CLIP_prefix_caption/; the second transformers 4.21.1 and
huggingface_hub 0.8.1, for which they were written (pip install --no-deps --target FOLDER). So they run in a process of their own, and the two
processes take turns. A step is forward and backward of the loss in training mode, 16 captions of 12 words, prompts of 60, one CPU thread;
the medians of processor time are compared."""
import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

BATCH, WORDS, PROMPT, ENTRIES, WIDTH = 16, 12, 60, 60, 64
TINY = dict(n_layer=2, n_embd=WIDTH, n_head=4, n_positions=128, vocab_size=ENTRIES, resid_pdrop=0., embd_pdrop=0., attn_pdrop=0.)


def drawn(model: str) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    places = (50,) if model == "smallcap" else ()
    return {"features": torch.randn(BATCH, *places, WIDTH, generator=draw), "prompt": torch.randint(4, ENTRIES, (BATCH, PROMPT), generator=draw),
            "tokens": torch.randint(4, ENTRIES, (BATCH, WORDS), generator=draw)}


def step_here(model: str):
    from invariant_metrics.models.generators import captioners
    from invariant_metrics.models.text_networks import Vocabulary
    from invariant_metrics.models import clipcap, smallcap # noqa: F401
    from invariant_metrics.training.text_training import text_loss
    network = captioners[model](WIDTH, Vocabulary(("",)*ENTRIES)).train()
    given = drawn(model)
    tokens = F.pad(given["tokens"], (1, 0), value=1)
    return network, lambda: text_loss(network(given, tokens), tokens, 0.)


def step_authors(model: str, originals: Path):
    given = drawn(model)
    tokens = given["tokens"]
    if model == "smallcap":
        sys.path.insert(0, str(originals/"smallcap"))
        from src.gpt2 import ThisGPT2Config, ThisGPT2LMHeadModel
        network = ThisGPT2LMHeadModel(ThisGPT2Config(**TINY, add_cross_attention=True, is_decoder=True, cross_attention_reduce_factor=2)).train()
        for name, p in network.named_parameters(): p.requires_grad_("crossattention" in name)
        ids = torch.cat([given["prompt"], tokens], 1)
        def loss():
            logits = network(ids, encoder_hidden_states=given["features"]).logits
            return F.cross_entropy(logits[:, PROMPT - 1:-1].reshape(-1, ENTRIES), tokens.flatten(), ignore_index=-100)
        return network, loss
    sys.path.insert(0, str(originals/"CLIP_prefix_caption"))
    import train
    from transformers import GPT2Config, GPT2LMHeadModel
    train.GPT2LMHeadModel = type("Made", (), {"from_pretrained": staticmethod(lambda name: GPT2LMHeadModel(GPT2Config(**TINY)))})
    network = train.ClipCaptionPrefix(4, clip_length=4, prefix_size=WIDTH, num_layers=2, mapping_type=train.MappingType.Transformer).train()
    mask = torch.ones(BATCH, 4 + WORDS)
    def loss():
        logits = network(tokens, given["features"], mask).logits[:, 3:-1]
        return F.cross_entropy(logits.reshape(-1, ENTRIES), tokens.flatten(), ignore_index=0)
    return network, loss


def seconds(loss) -> float:
    begun = time.process_time()
    loss().backward()
    return time.process_time() - begun


def work(model: str, originals: Path, library: Path) -> None:
    "In the authors' process: a step for every line that comes in."
    import importlib.metadata as about
    known, old = about.version, {"tokenizers": "0.12.1", "huggingface-hub": "0.8.1", "numpy": "1.23.0", "transformers": "4.21.1"}
    about.version = lambda name: old.get(name) or known(name)
    sys.path.insert(0, str(library))
    network, loss = step_authors(model, originals)
    print(sum(p.numel() for p in network.parameters() if p.requires_grad), flush=True)
    for _ in sys.stdin: print(seconds(loss), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--originals", type=Path, required=True, help="folder with the checkouts smallcap/ and CLIP_prefix_caption/")
    parser.add_argument("--transformers", type=Path, required=True, help="folder with transformers 4.21.1 and huggingface_hub 0.8.1")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent/"nbs"/"results"/"captioners_speed.csv")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.work: return work(given.work, given.originals, given.transformers)
    import pandas as pd

    from invariant_metrics.files import atomic_write
    rows = []
    for model in ("smallcap", "clipcap"):
        network, loss = step_here(model)
        command = [sys.executable, __file__, "--originals", given.originals, "--transformers", given.transformers, "--work", model]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as other:
            theirs = int(other.stdout.readline())
            times = {"here": [], "authors": []}
            for _ in range(given.rounds):
                times["here"].append(seconds(loss))
                print(file=other.stdin, flush=True)
                times["authors"].append(float(other.stdout.readline()))
            other.stdin.close()
        here, authors = (float(np.median(times[side][2:])) for side in ("here", "authors"))
        trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
        rows.append({"model": model, "trained": trained, "trained of authors": theirs, "ms here": 1e3*here, "ms authors": 1e3*authors,
                     "ratio": authors/here})
    frame = pd.DataFrame(rows).round({"ms here": 1, "ms authors": 1, "ratio": 2})
    print(frame.to_string(index=False))
    with atomic_write(given.out) as path: frame.to_csv(path, index=False)


if __name__ == "__main__": main()
