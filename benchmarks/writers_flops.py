"""What an invariant adds to a training step of the published translators and captioners at full size, counted in floating-point operations.

Usage: python benchmarks/writers_flops.py [--batch 4] [--words 24] [--out nbs/results/writers_flops.csv]
Forward and backward of the published loss on random weights of the published sizes, sentences of one length, on the CPU. The frozen readers are a
BERT of base size for names (`entities`) and a DistilBERT for moods (`sentiment`), which read the expected word vectors at every position; what they
say of the true texts is taken as known from before. Of BiBERT the frozen language model of base size counts too, of SmallCap and ClipCap the frozen
GPT-2; the CLIP in front of both is taken as known from before. Operations of a step do not depend on the machine, so there is nothing to repeat."""
import argparse
import string
import tempfile
from pathlib import Path

import pandas as pd
import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from invariant_metrics.files import atomic_write
from invariant_metrics.invariants.invariant import get_invariant
from invariant_metrics.models.bibert import BiBERT, LanguageModel
from invariant_metrics.models.bisimcut import BiSimCut
from invariant_metrics.models.generators import captioners
from invariant_metrics.models.text_networks import BOS, EOS, Vocabulary
from invariant_metrics.training.caption_recipes import caption_recipe
from invariant_metrics.training.loop import total
from invariant_metrics.training.text_recipes import translation_recipe

ENTRIES = {"bisimcut": 10_152, "bibert": 8_000, "smallcap": 50_257, "clipcap": 50_257} # of the vocabulary that is written in
PROMPT = 70 # entries of a prompt with four captions
READERS = {"none": (), "entities": ("entities",), "sentiment": ("sentiment",), "both": ("entities", "sentiment")}


def words(entries: int) -> Vocabulary:
    letters = string.ascii_lowercase
    return Vocabulary(("",)*4 + tuple(f"{letters[i % 26]}{letters[i//26 % 26]}{letters[i//676 % 26]}{letters[i//17576]}" for i in range(entries - 4)))


def save_readers(folder: Path) -> dict[str, str]: # invariant -> its folder
    "Random readers of the published sizes, with tokenizers that know the letters."
    letters = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.ascii_lowercase, *(f"##{c}" for c in string.ascii_lowercase)]
    tags = ("O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
    made = {"entities": transformers.BertForTokenClassification(transformers.BertConfig(vocab_size=28_996, id2label=dict(enumerate(tags)))),
            "sentiment": transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(id2label={0: "NEGATIVE", 1: "POSITIVE"}))}
    for name, network in made.items():
        network.save_pretrained(folder/name)
        transformers.BertTokenizerFast(vocab={w: i for i, w in enumerate(letters)}).save_pretrained(folder/name)
    return {name: str(folder/name) for name in made}


class Pieces:
    "As much of a tokenizer as renumbering needs."
    pad_token_id, cls_token_id, sep_token_id, unk_token_id = 1, 0, 2, 3
    bos_token_id = eos_token_id = None
    def __len__(self): return 30_000
    def convert_ids_to_tokens(self, ids): return [f"piece{i}" for i in ids]


def step(name: str, batch: int, length: int): # network, its recipe, a batch
    "A published writer at full size with random weights, and texts of one length for it."
    torch.manual_seed(0)
    vocabulary = words(ENTRIES[name])
    ends = torch.full((batch, 1), BOS), torch.full((batch, 1), EOS)
    def texts(entries: int) -> torch.Tensor: return torch.cat([ends[0], torch.randint(4, entries, (batch, length - 1)), ends[1]], 1)
    tokens = texts(len(vocabulary))
    if name == "bisimcut": network, inputs = BiSimCut(vocabulary, vocabulary, "full"), {"source": texts(len(vocabulary))}
    elif name == "bibert":
        model = transformers.BertModel(transformers.BertConfig(vocab_size=30_000), add_pooling_layer=False)
        network, inputs = BiBERT(LanguageModel(model, Pieces()), vocabulary, "full"), {"source": texts(30_000)}
    elif name == "smallcap":
        network = captioners[name](768, vocabulary, size="full")
        inputs = {"features": torch.randn(batch, 50, 768), "prompt": torch.randint(4, len(vocabulary), (batch, PROMPT))}
    else: network, inputs = captioners[name](640, vocabulary, size="full"), {"features": torch.randn(batch, 640)}
    recipe = (translation_recipe if "source" in inputs else caption_recipe)(name, "full")
    return network.train(), recipe, vocabulary, {**inputs, "tokens": tokens, "entries": len(vocabulary)}


def count(name: str, readers: dict, batch: int, length: int) -> list[dict]:
    "Operations of a step with each set of readers, for each text."
    network, recipe, vocabulary, texts = step(name, batch, length)
    rows = []
    for label, names in READERS.items():
        loss = recipe.loss(vocabulary, {n: (readers[n], 1.0) for n in names})
        with torch.no_grad():
            truth = {n: loss.invariants[n][0].value(loss.truth(texts)) for n in names}
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            total(loss(network, {**texts, "targets": truth})).backward()
        rows.append({"model": name, "parameters": sum(p.numel() for p in network.parameters() if p.requires_grad), "invariants": label,
                     "entries": length, "GFLOPs": round(counter.get_total_flops()/1e9/batch, 2)})
    plain = rows[0]["GFLOPs"]
    return [{**row, "times plain": round(row["GFLOPs"]/plain, 2), "entries per TFLOP": round(1e3*length/row["GFLOPs"])} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--words", type=int, default=24, help="entries of every text, its end included")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent/"nbs"/"results"/"writers_flops.csv")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        readers = {name: get_invariant(name, weights=place) for name, place in save_readers(Path(folder)).items()}
        frame = pd.DataFrame([row for name in ENTRIES for row in count(name, readers, given.batch, given.words)])
    print(frame.to_string(index=False))
    with atomic_write(given.out) as path: frame.to_csv(path, index=False)


if __name__ == "__main__": main()
