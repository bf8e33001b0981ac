"""A training step of the tiny MUNIT here, beside the same step of the authors' code, on the same pictures in the same process.

Usage: python benchmarks/munit.py --originals FOLDER [--rounds 15] [--out nbs/results/munit_speed.csv]
FOLDER holds a checkout of the authors' repository, MUNIT/. A step is the critics' turn and the generators' turn, with both optimizers and
the published weights; here with all that the loop does beside them. One CPU thread; the two take turns, and the medians of processor time
are compared."""
import argparse
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.utils.serialization

from invariant_metrics.files import atomic_write
from invariant_metrics.models.munit import MUNIT, MUNITConfig, MUNITCritics
from invariant_metrics.training.loop import FitPlan, take_step
from invariant_metrics.training.munit_recipe import MUNITRecipe

SIZES = ((1, 64), (4, 32), (4, 64)) # pictures of each domain, pixels a side


def original_step(folder: Path, config: MUNITConfig, batch: dict) -> tuple[Callable, int]:
    "The authors' step on a CPU, in the sizes of this package, and how many parameters it trains."
    torch.utils.serialization.load_lua = None # of an older torch, for weights that are not asked for here
    torch.Tensor.cuda = lambda tensor, *args: tensor
    sys.path.insert(0, str(folder))
    code = importlib.import_module("trainer")
    gen = dict(dim=config.channels, mlp_dim=config.hidden, style_dim=config.style, activ="relu", n_downsample=config.halvings,
               n_res=config.blocks, pad_type="reflect")
    dis = dict(dim=config.critic, norm="none", activ="lrelu", n_layer=config.layers, gan_type="lsgan", num_scales=config.scales, pad_type="reflect")
    settings = dict(lr=1e-4, beta1=.5, beta2=.999, weight_decay=1e-4, init="kaiming", lr_policy="step", step_size=100_000, gamma=.5,
                    display_size=1, gan_w=1, recon_x_w=10, recon_s_w=1, recon_c_w=1, recon_x_cyc_w=0, vgg_w=0, input_dim_a=3, input_dim_b=3,
                    gen=gen, dis=dis)
    trainer = code.MUNIT_Trainer(settings)
    def step() -> None:
        trainer.dis_update(batch["a"], batch["b"], settings)
        trainer.gen_update(batch["a"], batch["b"], settings)
    return step, sum(p.numel() for p in trainer.parameters())


def own_step(config: MUNITConfig, batch: dict) -> tuple[Callable, int]:
    network, critics = MUNIT(config), MUNITCritics(config)
    turns = MUNITRecipe().turns(network, critics)
    networks = [turn.model for turn in turns]
    optimizers = [torch.optim.AdamW(turn.parameters().values(), turn.optim.lr, turn.optim.betas, weight_decay=0.) for turn in turns]
    done = iter(range(1_000_000))
    plan = FitPlan(1_000_000)
    def step() -> None: take_step(turns, networks, optimizers, {0: batch}, next(done), plan)
    return step, sum(p.numel() for model in networks for p in model.parameters())


def seconds(step: Callable) -> float:
    begun = time.process_time()
    step()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--originals", type=Path, required=True, help="folder with the checkout MUNIT/")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent/"nbs"/"results"/"munit_speed.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    config = MUNITConfig.of("tiny")
    rows = []
    for n, side in SIZES:
        draw = torch.Generator().manual_seed(0)
        batch = {domain: 2*torch.rand(n, 3, side, side, generator=draw) - 1 for domain in "ab"}
        steps = {"here": own_step(config, batch), "authors": original_step(given.originals/"MUNIT", config, batch)}
        found = {who: [] for who in steps}
        for _ in range(given.rounds):
            for who, (step, _) in steps.items(): found[who].append(seconds(step))
        here, authors = (float(np.median(found[who][2:])) for who in ("here", "authors"))
        rows.append({"pictures": n, "side": side, "parameters": steps["here"][1], "parameters of authors": steps["authors"][1],
                     "ms here": 1e3*here, "ms authors": 1e3*authors, "ratio": authors/here})
    frame = pd.DataFrame(rows).round({"ms here": 1, "ms authors": 1, "ratio": 2})
    print(frame.to_string(index=False))
    with atomic_write(given.out) as path: frame.to_csv(path, index=False)


if __name__ == "__main__": main()
