"""Published encoders at the sizes people use them: how far they move with hue and position, what distances on them say.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/real_encoders.py tiles                 the pictures, once
                                     python benchmarks/real_encoders.py check    [NAME ...]   every loader against its oracle
                                     python benchmarks/real_encoders.py features [NAME ...]   of each network and input size, once
                                     python benchmarks/real_encoders.py judge                 verdicts and ratios from the features
                                     python benchmarks/real_encoders.py --store               into nbs/results and the package
FOLDER holds bsds500, imagenet_sample and networks. What is in the cache is not made again; remove the folder
real-encoders there to begin anew. The networks are built in real_networks.py beside this file.
Writes nbs/results/real_encoders.csv, real_encoders_check.csv there and invariant_metrics/assets/encoder_rule.csv."""
import os
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from invariant_metrics.core import few_threads, rng
from invariant_metrics.data.photos import cut_tiles, folder_photos
from invariant_metrics.edits.colors import Items, match_dose, perturbations
from invariant_metrics.encoders.cache import cache_folder
from invariant_metrics.files import atomic_write
from invariant_metrics.probes.encoders import _hue_turn, _moved_colors
from invariant_metrics.probes.images import COLOR_SIZES, TILE, color_items, photo_reach

RESULTS, CACHE = Path(__file__).parent.parent/"nbs"/"results", cache_folder()/"real-encoders"
DATA = Path(os.environ.get("INVARIANT_METRICS_DATA", "."))
LEVEL, MISS = 31.0, 0.1 # dB to the truth, and by how much an edit may miss it
COLLECTIONS = {"bsds": ("bsds500/images", "bsds500/segmentations"), "imagenet": ("imagenet_sample/images", None)}
VALID = ("recoloring", "wide-recoloring")
VIOLATIONS = ("bleeding", "misregistration", "chroma-shift", "desaturation") # the last two: tint, fading
EDITS = ("truth", *VALID, *VIOLATIONS, "hue")
PER_COLLECTION, CANDIDATES = 60, 8 # photographs with a tile, and tiles tried of each


def edited(items: Items, seed: int = 0) -> tuple: # (E, N, 3, H, W) in the order of EDITS, (N,) whether all reach the level
    "Every edit of each tile at the level."
    target, usable = torch.full((len(items),), LEVEL), torch.ones(len(items), dtype=torch.bool)
    pictures = [items.rgb]
    for name in EDITS[1:]:
        edit = _hue_turn if name == "hue" else perturbations[name]
        dose, applies = edit(items, rng(seed, "real encoders", name))
        match = match_dose(items, dose, target)
        usable &= applies & ((match.decibels - LEVEL).abs() <= MISS)
        pictures.append(match.rgb)
    return torch.stack(pictures), usable


def make_tiles(collection: str) -> None:
    "One tile of each of so many photographs on which every edit reaches the level."
    images, regions = COLLECTIONS[collection]
    regions = None if regions is None else DATA/regions
    photos = folder_photos(DATA/images, regions=regions)
    cut = cut_tiles(photos, size=TILE, per_photo=CANDIDATES, seed=0, regions=regions)
    items = Items(cut.rgb, cut.regions, cut.cluster.numpy(), reach=photo_reach(photos)[cut.cluster])
    parts = [edited(items[i:i + 200], seed=i) for i in range(0, len(items), 200)]
    rgb, usable = torch.cat([p[0] for p in parts], dim=1), torch.cat([p[1] for p in parts]).numpy()
    good = np.flatnonzero(usable)
    first = good[np.unique(items.cluster[good], return_index=True)[1]]
    kept = np.sort(rng(0, "tiles", collection).permutation(first)[:PER_COLLECTION])
    print(f"{collection}: all edits reach {LEVEL:g} dB on {len(good)} of {len(items)} tiles, "
          f"of {len(first)} of {len(photos)} photographs; kept {len(kept)}", flush=True)
    np.savez_compressed(CACHE/f"{collection}.npz", rgb=(255*rgb[:, kept]).round().byte().numpy(), cluster=items.cluster[kept])


def make_packaged() -> None:
    "The tiles of the package's photographs on which `probe encoder` measures its ratio."
    items, _ = color_items("photos", COLOR_SIZES["default"], 0)
    moved = _moved_colors(items)
    rgb = torch.stack([moved.truth, moved.slip, moved.hue])
    print(f"packaged: {len(moved)} of {moved.of} tiles, of {len(np.unique(moved.cluster))} photographs", flush=True)
    np.savez_compressed(CACHE/"packaged.npz", rgb=(255*rgb).round().byte().numpy(), cluster=moved.cluster)


def tiles() -> None:
    "All pictures, into the cache."
    CACHE.mkdir(parents=True, exist_ok=True)
    if not (CACHE/"packaged.npz").exists(): make_packaged()
    for collection in COLLECTIONS:
        if not (CACHE/f"{collection}.npz").exists(): make_tiles(collection)


if __name__ == "__main__":
    few_threads()
    what, names = (sys.argv[1] if len(sys.argv) > 1 else "--store"), sys.argv[2:]
    if what == "tiles": tiles()
