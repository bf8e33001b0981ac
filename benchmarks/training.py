"""How fast the colorizer trains with and without each invariant, what memory it takes, and how much of the time goes into data.

python benchmarks/training.py --flops counts, exactly and without weights or a GPU, what a step of the published colorizers costs at
full size with MiDaS 2.1 and SAN in the loss (targets cached): floating-point operations of forward and backward, and the memory of what
backward needs.

Usage: python benchmarks/training.py [--steps 30] [--sizes 32,64] [--batch 16] [--width 20] [--device cpu] [--out nbs/results/training.csv]
Each row runs in a process of its own, one torch thread on the CPU. On an accelerator (--device cuda, the default where
there is one) every row is run in float32 and bfloat16, plain and compiled. Times are medians over steps, after a fifth of
them to warm up. "busy ms" is the processor time of a step, which a loaded machine disturbs less than the clock on the wall; on the
CPU "times plain" compares it. Memory is the process's peak on the CPU (libraries included), the allocator's peak on an accelerator."""
import argparse
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import pandas as pd

from invariant_metrics.files import atomic_write

INVARIANTS = ["", "segmentation", "depth", "edges", "segmentation+depth"]


def rows(sizes: list[int], device: str) -> list[dict]:
    "The settings of every row of the table."
    modes = product(("fp32", "bf16"), (False, True)) if device == "cuda" else [("fp32", False)]
    return [{"device": device, "size": size, "precision": precision, "compiled": compiled, "invariants": names, "cached": cached}
            for size, (precision, compiled) in product(sizes, list(modes)) for names in INVARIANTS
            for cached in ((True, False) if names == "segmentation" else (bool(names),))]


def measure(size: int, invariants: str, cached: bool, device: str, precision: str, compiled: bool, steps: int, batch: int,
            width: int) -> dict:
    "Steps per second, share of data loading and peak memory of one setting."
    import torch

    from invariant_metrics.worlds.scenes import make_scenes
    from invariant_metrics.invariants.invariant import get_invariant
    from invariant_metrics.models.colorizer import UNetColorizer
    from invariant_metrics.training.augmented import AugmentedLoss, TargetCache, color_batches
    from invariant_metrics.training.loop import Turn, fit
    if device == "cpu": torch.set_num_threads(1)
    rgb = make_scenes(16 * batch, size=size, seed=0).rgb
    terms = {name: (get_invariant(name, device=device), 1.0) for name in invariants.split("+") if name}
    begun = time.perf_counter()
    batches = color_batches(rgb, batch, caches={name: TargetCache(g, rgb) for name, (g, _) in terms.items()} if cached else None)
    preparing, starts, loading = time.perf_counter() - begun, [], []
    def clocks(): return {"wall": time.perf_counter(), "busy": time.process_time()}
    def timed(i):
        starts.append(clocks())
        made = batches(i)
        loading.append(time.perf_counter() - starts[-1]["wall"])
        return made
    fit(Turn(UNetColorizer(width).to(device), AugmentedLoss(terms)), timed, steps, precision=precision, compile=compiled)
    starts.append(clocks())
    warm = steps // 5
    step, busy = pd.DataFrame(starts).diff().iloc[1 + warm:].median()
    peak = torch.cuda.max_memory_allocated() / 1e6 if device == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    share = pd.Series(loading[warm:]).median() / step
    return {"steps/s": 1 / step, "ms/step": 1e3 * step, "busy ms": 1e3 * busy, "data share": share, "peak MB": peak, "targets s": preparing}


def table(settings: list[dict], steps: int, batch: int, width: int) -> pd.DataFrame:
    "One line per setting, with its time relative to training without invariants."
    lines = []
    for setting in settings:
        job = json.dumps({**setting, "steps": steps, "batch": batch, "width": width})
        command = [sys.executable, __file__, "--one", job]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TQDM_DISABLE": "1"})
        if done.returncode: sys.exit(f"{setting} failed:\n{done.stderr[-2000:]}")
        lines.append({**setting, **json.loads(done.stdout.splitlines()[-1])})
        print(".", end="", file=sys.stderr, flush=True)
    frame = pd.DataFrame(lines)
    same = ["device", "size", "precision", "compiled"]
    clock = "busy ms" if settings[0]["device"] == "cpu" else "ms/step"
    alone = frame[frame["invariants"] == ""].set_index(same)[clock]
    frame["times plain"] = frame[clock] / alone.loc[pd.MultiIndex.from_frame(frame[same])].to_numpy()
    return frame.assign(invariants=frame["invariants"].replace("", "none"), batch=batch, width=width)


PUBLISHED = {"ddcolor": 256, "colorformer": 256, "chromagan": 224} # colorizer -> side of its training pictures, pixels
FROZEN = {"none": (), "depth": ("midas",), "depth (small)": ("midas-small",), "segmentation": ("san",), "both": ("midas", "san"),
          "both (small depth)": ("midas-small", "san")}


def frozen_invariant(name: str):
    "A published invariant's network at full size on the meta device; its distance costs nothing beside it."
    import torch
    from invariant_metrics.invariants.invariant import Invariant
    from invariant_metrics.models.midas import MiDaS, MiDaSConfig
    from invariant_metrics.models.san import SAN
    small = name == "midas-small"
    with torch.device("meta"):
        network = SAN() if name == "san" else MiDaS(MiDaSConfig(small=True, features=64) if small else MiDaSConfig())

    class Frozen(Invariant):
        side = 640 if name == "san" else 256 if small else 384 # pixels of its input

        def forward(self, rgb):
            return self.network(torch.nn.functional.interpolate(rgb, (self.side, self.side), mode="bicubic", antialias=True))

        def distance(self, prediction, target): return prediction.flatten(1).mean(1)
    return Frozen(name, network=network)


def count_step(model: str, frozen: tuple[str, ...], batch: int) -> dict:
    "Operations and saved memory of one step of a colorizer and its critic at full size, for each picture."
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from invariant_metrics.models.colorizer import colorizers
    from invariant_metrics.training import color_recipes
    from invariant_metrics.training.loop import only, total
    side = PUBLISHED[model]
    invariants = {name: (frozen_invariant(name), 1.0) for name in frozen}
    with torch.device("meta"):
        colorizer = colorizers[model](size="full").train()
        perceptual = color_recipes.PerceptualDistance("full")
        pictures = {"L": torch.empty(batch, 1, side, side), "ab": torch.empty(batch, 2, side, side),
                    "targets": {name: torch.empty(batch, 1) for name in frozen}} # kept from before
        classes = torch.empty(batch, 1000) # of the frozen classifier, kept likewise
        color_recipes.perceptual_distance = lambda size, weights: perceptual
        color_recipes._classes_by_vgg = lambda weights: lambda L: classes
        recipe = color_recipes.color_recipe(model, "full")
        critic = recipe.critic(0)
    torch.autocast = lambda *args, **options: nullcontext() # which does not know the meta device; all is float32
    saved = {}
    def keep(x): # a tensor that backward needs; views of one memory count once, weights not at all
        if not isinstance(x, torch.nn.Parameter):
            memory = x.untyped_storage()
            saved[memory._cdata] = memory # kept, so that its number is not given away
        return x
    counter = FlopCounterMode(display=False)
    with torch.device("meta"), counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        turns = recipe.turns(colorizer, critic, recipe.loss(critic, invariants))
        for turn in turns:
            with only(turn, turns): total(turn.loss(turn.model, pictures)).backward()
    count = sum(p.numel() for p in colorizer.parameters())
    return {"parameters": count, "GFLOPs": counter.get_total_flops()/1e9/batch, "saved MB": sum(m.nbytes() for m in saved.values())/1e6/batch}


def flops(batch: int) -> pd.DataFrame:
    "What each invariant adds to a step, at full size."
    found = [{"model": model, "side": side, "invariants": name, **count_step(model, frozen, batch)}
             for model, side in PUBLISHED.items() for name, frozen in FROZEN.items()]
    frame = pd.DataFrame(found)
    plain = frame[frame["invariants"] == "none"].set_index("model")[["GFLOPs", "saved MB"]]
    for column in plain: frame[f"times plain {column}"] = frame[column]/frame["model"].map(plain[column])
    return frame


def main() -> None:
    import torch
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--sizes", default="32,64", help="picture sizes, comma-separated")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--width", type=int, default=20, help="of the colorizer")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent/"nbs"/"results"/"training.csv")
    parser.add_argument("--flops", action="store_true", help="count operations of the published colorizers instead")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flops:
        frame = flops(2).round({"GFLOPs": 1, "saved MB": 0, "times plain GFLOPs": 2, "times plain saved MB": 2})
        print(frame.to_string(index=False))
        with atomic_write(given.out.with_name("training_flops.csv")) as path: frame.to_csv(path, index=False)
        return
    if given.one: return print(json.dumps(measure(**json.loads(given.one))))
    frame = table(rows([int(s) for s in given.sizes.split(",")], given.device), given.steps, given.batch, given.width)
    digits = {"steps/s": 1, "ms/step": 1, "busy ms": 1, "data share": 3, "peak MB": 0, "targets s": 2, "times plain": 2}
    print("\n" + frame.round(digits).to_string(index=False))
    with atomic_write(given.out) as path: frame.to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
