"""A step of the tiny DDColor and ColorFormer here, beside the same step of the authors' code, on the same pictures in the same process.

Usage: python benchmarks/colorizers.py --originals FOLDER [--rounds 15] [--out nbs/results/colorizers_speed.csv]
FOLDER holds checkouts of the authors' repositories, DDColor/ and ColorFormer/. A step is forward and backward of a mean in training mode,
16 pictures of 64 × 64, one CPU thread; the two take turns, and the medians of processor time are compared."""
import argparse
import importlib
import inspect
import sys
import tempfile
import time
import types
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from invariant_metrics.files import atomic_write
from invariant_metrics.models.colorizer import colorizers


def open_package(folder: Path) -> None:
    "Let `basicsr` mean the networks of one checkout, without what its package imports beside them."
    for name in [name for name in sys.modules if name.split(".")[0] == "basicsr"]: del sys.modules[name]
    for name in ("basicsr", "basicsr.archs", "basicsr.utils", "basicsr.archs.ddcolor_arch_utils"):
        module = types.ModuleType(name)
        module.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = module
    import timm.layers
    sys.modules.setdefault("timm.models.layers", timm.layers)
    try: import einops # noqa: F401
    except ImportError: # the two patterns that are asked for
        stand_in = types.ModuleType("einops")
        stand_in.rearrange = lambda x, pattern: x.transpose(1, 2) if pattern.startswith("n ") else x.reshape(-1, *x.shape[2:])
        sys.modules["einops"] = stand_in


def original_ddcolor(folder: Path) -> torch.nn.Module:
    "The authors' DDColor in the tiny size of this package."
    open_package(folder)
    code = importlib.import_module("basicsr.archs.ddcolor_arch")
    encoder, decoder = code.ConvNeXt, code.MultiScaleColorDecoder
    code.ConvNeXt = lambda **options: encoder(depths=[1, 1, 1, 1], dims=[8, 16, 24, 32])
    code.MultiScaleColorDecoder = lambda in_channels, **options: decoder(
        in_channels=[32, 32, 16], hidden_dim=16, nheads=2, dim_feedforward=64, color_embed_dim=16, **options)
    return code.DDColor("convnext-t", input_size=(64, 64), nf=32, num_output_channels=2, last_norm="Spectral", do_normalize=False, num_queries=6,
                        num_scales=3, dec_layers=3)


def original_colorformer(folder: Path) -> torch.nn.Module:
    "The authors' ColorFormer in the tiny size of this package."
    open_package(folder)
    code = importlib.import_module("basicsr.archs.colorformer_arch")
    encoder = importlib.import_module("basicsr.archs.GLHTransformer").GLHTransformer.__init__
    named = [p.name for p in inspect.signature(encoder).parameters.values() if p.default is not p.empty]
    small = {"embed_dim": 12, "depths": [2, 2, 2, 2], "num_heads": [1, 2, 2, 4], "window_size": 4}
    encoder.__defaults__ = tuple((dict(zip(named, encoder.__defaults__)) | small)[name] for name in named)
    memory = code.ColorMemory
    code.ColorMemory = lambda input_dim, embed_dim, n_color, color_embed, **options: memory(
        input_dim, embed_dim=32, n_color=16, color_embed=16, **options)
    with tempfile.TemporaryDirectory() as place:
        draw = np.random.default_rng(0)
        np.save(f"{place}/colors.npy", draw.integers(-100, 100, (4, 16, 2)).astype(float))
        np.save(f"{place}/keys.npy", draw.standard_normal((16, 8)).astype(np.float32))
        torch.save({}, f"{place}/encoder.pth")
        return code.ColorFormer("GLHTransformer", f"{place}/encoder.pth", input_size=(64, 64), nf=32, num_output_channels=2, last_norm="Spectral",
                                do_normalize=False, color_centers_path=f"{place}/colors.npy", semantic_centers_path=f"{place}/keys.npy")


ORIGINALS = {"ddcolor": ("DDColor", original_ddcolor), "colorformer": ("ColorFormer", original_colorformer)}


def step_seconds(network: torch.nn.Module, x: torch.Tensor) -> float:
    begun = time.process_time()
    network(x).mean().backward()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--originals", type=Path, required=True, help="folder with the checkouts DDColor/ and ColorFormer/")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent/"nbs"/"results"/"colorizers_speed.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    L = 100*torch.rand(16, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    rows = []
    for name, (folder, make) in ORIGINALS.items():
        sides = {"here": (colorizers[name]().train(), L), "authors": (make(given.originals/folder).train(), L.expand(-1, 3, -1, -1)/100)}
        seconds = {side: [] for side in sides}
        for _ in range(given.rounds):
            for side, (network, x) in sides.items(): seconds[side].append(step_seconds(network, x))
        here, authors = (float(np.median(seconds[side][2:])) for side in ("here", "authors"))
        sizes = {side: sum(p.numel() for p in network.parameters()) for side, (network, _) in sides.items()}
        rows.append({"model": name, "parameters": sizes["here"], "parameters of authors": sizes["authors"], "ms here": 1e3*here,
                     "ms authors": 1e3*authors, "ratio": authors/here})
    frame = pd.DataFrame(rows).round({"ms here": 1, "ms authors": 1, "ratio": 2})
    print(frame.to_string(index=False))
    with atomic_write(given.out) as path: frame.to_csv(path, index=False)


if __name__ == "__main__": main()
