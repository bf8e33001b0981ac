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
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from invariant_metrics.core import few_threads, rng
from invariant_metrics.data.photos import cut_tiles, folder_photos
from invariant_metrics.edits.colors import Items, match_dose, perturbations
from invariant_metrics.encoders.any_network import NetworkEncoder
from invariant_metrics.encoders.cache import cache_folder
from invariant_metrics.encoders.encoder import Encoder, Preprocess, get_encoder
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.image_metrics import map_distance, unit_maps
from invariant_metrics.probes.encoders import _hue_turn, _moved_colors
from invariant_metrics.probes.images import COLOR_SIZES, TILE, color_items, photo_reach

from real_networks import NETWORKS

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


SIZES = (64, 96, 128, 224, 299)
LARGEST = {1: 299, 2: 224, 3: 128} # of a network by its cost: what two slow cores do in half an hour
OWN = {"embedded": dict(name="embedded"), "untrained": dict(name="embedded", untrained=True)} # the package's, beside them
PER_PHOTO = 5 # tiles of each of the package's photographs


def encoder_at(name: str, size: int) -> Encoder:
    "An encoder of the table that reads pictures of this side."
    if name in OWN:
        found = get_encoder(**OWN[name])
        found.prepare = replace(found.prepare, size=size)
        return found
    made = NETWORKS[name]()
    return Encoder.of(made.module, made.layers, size, Preprocess(stats=made.stats), name)


def read(encoder: Encoder, rgb: torch.Tensor) -> tuple: # (n, 3, H, W) -> (n, d), unit maps
    "The vector and the maps of pictures, by one pass where the vector is the mean of the last map."
    if isinstance(encoder, NetworkEncoder):
        maps = encoder.feature_maps(rgb)
        return maps[-1].mean((2, 3)), unit_maps(maps)
    return encoder.encode(rgb), unit_maps(encoder.feature_maps(rgb))


@torch.no_grad()
def features_of(encoder: Encoder, rgb: np.ndarray, batch: int = 6) -> tuple[np.ndarray, np.ndarray]: # (E, N, d), (E, N)
    "Vectors of all pictures, and LPIPS's formula between each edit and its truth."
    vectors, apart = [], []
    for start in range(0, rgb.shape[1], batch):
        part = torch.from_numpy(rgb[:, start:start + batch]).float()/255
        own, own_maps = read(encoder, part[0])
        rows, distances = [own], [torch.zeros(len(own))]
        for edit in part[1:]:
            vector, maps = read(encoder, edit)
            rows.append(vector)
            distances.append(map_distance(maps, own_maps))
        vectors.append(torch.stack(rows))
        apart.append(torch.stack(distances))
    return torch.cat(vectors, dim=1).numpy(), torch.cat(apart, dim=1).numpy()


def some_packaged(cluster: np.ndarray) -> np.ndarray: # positions
    "So many tiles of each of the package's photographs, the first."
    return np.concatenate([np.flatnonzero(cluster == c)[:PER_PHOTO] for c in np.unique(cluster)])


def features(names: list[str]) -> None:
    "Every network at every size, smallest first, into the cache."
    for size in SIZES:
        for name in names:
            path = CACHE/"features"/f"{name}-{size}.npz"
            if path.exists() or (name in NETWORKS and size > LARGEST[NETWORKS[name]().cost]): continue
            path.parent.mkdir(exist_ok=True)
            encoder, began, found = encoder_at(name, size), time.process_time(), {}
            for source in (*COLLECTIONS, "packaged"):
                tiles = np.load(CACHE/f"{source}.npz")
                rgb, cluster = tiles["rgb"], tiles["cluster"]
                if source == "packaged": rgb, cluster = rgb[:, (kept := some_packaged(cluster))], cluster[kept]
                vector, maps = features_of(encoder, rgb)
                found |= {f"{source} vector": vector, f"{source} maps": maps, f"{source} cluster": cluster}
            with atomic_write(path) as tmp, open(tmp, "wb") as file: np.savez(file, **found)
            print(f"{name} {size} px: {time.process_time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    few_threads()
    what, names = (sys.argv[1] if len(sys.argv) > 1 else "--store"), sys.argv[2:]
    if what == "tiles": tiles()
    elif what == "features": features(names or [*OWN, *NETWORKS])
