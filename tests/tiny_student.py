"A student of random weights in a folder as `lclip distill` leaves it; its tokenizer knows single letters."
from pathlib import Path

import torch
import transformers

from invariant_metrics.encoders.encoder import CLIP, Preprocess
from invariant_metrics.encoders.lclip_student import save_lclip
from invariant_metrics.models.colorizer import fixed_seed
from invariant_metrics.models.multiplexed import LClip, TowerConfig, tiny_lclip

LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789.,:"]


def tiny_student(folder: Path, fit: str = "crop", **changes) -> Path:
    "Cosines are above 0: pictures lean toward a text."
    ends = ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {w: i for i, w in enumerate([*ends, *LETTERS, *(c + "</w>" for c in LETTERS)])}
    transformers.CLIPTokenizer(vocab=vocabulary, merges=[]).save_pretrained(folder/"teacher")
    sizes = dict(vision=TowerConfig(32, 4, 1), text=TowerConfig(32, 4, 1, qkv_bias=False), vocabulary=len(vocabulary), context=80, end=1, image=48)
    with fixed_seed(0): student = LClip(tiny_lclip(**{**sizes, **changes})).eval()
    with torch.no_grad(): student.vision.head.bias += student.text(torch.tensor([[0, 2, 1]]))[0]
    return save_lclip(folder/"student", student, folder/"teacher", Preprocess(student.config.image, fit, "bicubic", CLIP))
