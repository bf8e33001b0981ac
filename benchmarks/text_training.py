"""What a training step of a translator costs with each text invariant, and one of a captioner with self-critical training.

Usage: python benchmarks/text_training.py [--rounds 40] [--batch 32] [--words 20] [--pictures 16] [--only translator,captioner]
       [--invariants entities,sentiment,entities+sentiment,paraphrase] [--out nbs/results/text_training.csv]
All settings live in one process of one torch thread and take their steps in turns, so that a loaded machine slows all of them
alike: "busy ms" is the median processor time of a step after a fifth of the rounds to warm up, "times plain" the median over
rounds of the ratio to the plain step of the same round. A translation step is forward, backward and update of the small translator on sentences of exactly
that many words, with g of the truth cached. A self-critical one draws 5 captions for each picture and
judges them by CIDEr-D with stored document frequencies. Invariants whose weights are not here are left out, with a note."""
import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
import torch

from invariant_metrics.core import InputError
from invariant_metrics.files import atomic_write
from invariant_metrics.worlds.bilingual import make_sentences
from invariant_metrics.worlds.scene_captions import relation_captions
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.encoders.grid import grid_features
from invariant_metrics.invariants.invariant import get_invariant
from invariant_metrics.models.generators import captioners, translators
from invariant_metrics.models.text_networks import BOS, EOS, Vocabulary
from invariant_metrics.training.augmented import fork
from invariant_metrics.training.loop import Optim, FitPlan, Turn, take_turn
from invariant_metrics.training.self_critical import SelfCriticalLoss
from invariant_metrics.metrics.cider import cider_reward
from invariant_metrics.training.text_training import TextTargets, augmented_text, text_batches


class Lane:
    "One setting: its own copy of the network, and a step at a time."
    def __init__(self, model, loss, batches):
        self.turn, self.batches, self.busy = Turn(fork(model).train(), loss), batches, []
        self.optimizer = torch.optim.AdamW(self.turn.parameters().values(), Optim().lr)

    def step(self, i: int) -> None:
        begun = time.process_time()
        take_turn(self.turn, self.turn.model, self.optimizer, {i: self.batches(i)}, i, FitPlan(10**6))
        self.busy.append(1e3*(time.process_time() - begun))


def blocks(texts: list[str], vocabulary: Vocabulary, words: int) -> torch.Tensor: # (N, words + 2)
    "Sentences one after the other, cut into rows of exactly this many words."
    tape = [i for text in texts for i in vocabulary.encode(text)]
    n = len(tape) // words
    return torch.tensor([[BOS, *tape[k*words:(k + 1)*words], EOS] for k in range(n)])


def translator_lanes(names: list[str], batch: int, words: int) -> dict[str, Lane]:
    "The plain translator, and one with each set of invariants."
    world = make_sentences(16*batch, seed=0)
    vocabulary = Vocabulary.of([*world.source, *world.english])
    source, tokens = (blocks(texts, vocabulary, words)[:8*batch] for texts in (world.source, world.english))
    n, model, out = min(len(source), len(tokens)), translators["small"](vocabulary, vocabulary), {}
    for name in ["", *names]:
        try: terms = {g: (get_invariant(g), 0.1) for g in name.split("+") if g}
        except InputError as error: print(f"left out: {name} ({error})"); continue
        loss = augmented_text(vocabulary, terms)
        caches = {g: TextTargets(invariant, tokens[:n], len(vocabulary)) for g, (invariant, _) in loss.invariants.items()}
        out[name or "plain"] = Lane(model, loss, text_batches({"source": source[:n]}, tokens[:n], vocabulary, batch, caches=caches))
    return out


def captioner_lanes(pictures: int) -> dict[str, Lane]:
    "The plain captioner, and self-critical ones."
    scenes = make_scenes(8*pictures, size=64, seed=0)
    references = [relation_captions(scenes, i) for i in range(len(scenes))]
    vocabulary = Vocabulary.of([text for texts in references for text in texts])
    features, first = grid_features(get_encoder("embedded"), scenes.rgb), [texts[0] for texts in references]
    model, rewards = captioners["small"](features.shape[-1], vocabulary), {"cider-d": (cider_reward(references), 1.0)}
    losses = {"plain": augmented_text(vocabulary), **{f"self-critical, {kind}": SelfCriticalLoss(rewards, baseline=kind) for kind in ("greedy", "leave-one-out")}}
    batches = text_batches({"features": features}, vocabulary.batch(first, 24), vocabulary, pictures, references=references)
    return {name: Lane(model, loss, batches) for name, loss in losses.items()}


def measured(task: str, lanes: dict[str, Lane], rounds: int, batch: int) -> list[dict]:
    "A row per setting."
    for i in range(rounds):
        for lane in lanes.values(): lane.step(i)
    times = pd.DataFrame({name: lane.busy[rounds // 5:] for name, lane in lanes.items()})
    ratios = times.div(times["plain"], axis=0).median()
    return [{"task": task, "terms": name, "batch": batch, "busy ms": times[name].median(), "times plain": ratios[name], "rounds": rounds} for name in lanes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batch", type=int, default=32, help="sentences in a batch")
    parser.add_argument("--words", type=int, default=20, help="in every sentence")
    parser.add_argument("--pictures", type=int, default=16, help="in a batch of the captioner")
    parser.add_argument("--only", default="translator,captioner")
    parser.add_argument("--invariants", default="entities,sentiment,entities+sentiment,paraphrase", help="comma-separated; + joins")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent/"nbs"/"results"/"text_training.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    if "translator" in given.only:
        lines += measured("translation", translator_lanes(given.invariants.split(","), given.batch, given.words), given.rounds, given.batch)
    if "captioner" in given.only: lines += measured("captioning", captioner_lanes(given.pictures), given.rounds, given.pictures)
    frame = pd.DataFrame(lines)
    print(frame.round({"busy ms": 1, "times plain": 2}).to_string(index=False))
    with atomic_write(given.out) as path: frame.to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
