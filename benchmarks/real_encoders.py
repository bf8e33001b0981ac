"""Published encoders at the sizes people use them: how far they move with hue and position, what distances on them say.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/real_encoders.py tiles                 the pictures, once
                                     python benchmarks/real_encoders.py check    [NAME ...]   every loader against its oracle
                                     python benchmarks/real_encoders.py features [NAME ... SIZE ...] of networks at input sizes, once
                                     python benchmarks/real_encoders.py judge                 verdicts and ratios from the features
                                     python benchmarks/real_encoders.py --store               into nbs/results and the package
FOLDER holds bsds500, imagenet_sample and networks. What is in the cache is not made again; remove the folder
real-encoders there to begin anew. Of networks and sizes that the cache does not hold the stored rows are kept: a network is
added, or read at another size, by its own features alone. The networks are built in real_networks.py beside this file.
Writes real_encoders.csv and real_encoders_rule, _check and _picture.csv in nbs/results, and
invariant_metrics/assets/encoder_rule.csv."""
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from scipy import ndimage
from scipy.optimize import least_squares
from scipy.special import expit
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional as F

from invariant_metrics.core import few_threads, rng
from invariant_metrics.data.photos import cut_tiles, folder_photos, packaged_photos, read_photo
from invariant_metrics.edits.colors import Items, match_dose, perturbations, psnr_to
from invariant_metrics.encoders.any_network import NetworkEncoder
from invariant_metrics.encoders.cache import cache_folder
from invariant_metrics.encoders.encoder import Encoder, Preprocess, get_encoder
from invariant_metrics.files import assets_folder, atomic_write
from invariant_metrics.metrics.image_metrics import map_distance, unit_maps
from invariant_metrics.metrics.metric import Rows, get_metric
from invariant_metrics.probes.encoders import _hue_turn, _mean_ratio, _moved_colors
from invariant_metrics.probes.images import COLOR_SIZES, TILE, color_items, photo_reach
from invariant_metrics.probes.preference import draw_sets
from invariant_metrics.probes.tables import rounded_wins, share_of_items, share_of_sets
from invariant_metrics.stats import cluster_means

from real_networks import NETWORKS, taesd_flux2_decoder

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
OWN = {"embedded": dict(name="embedded"), "untrained": dict(name="embedded", untrained=True)} # the package's, beside them
PER_PHOTO = 4 # tiles of each of the package's photographs


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


def features(names: list[str], sizes: list[int]) -> None:
    "Networks at input sizes, smallest first, into the cache; large sizes of slow networks are the user's time."
    for size in sizes:
        for name in names:
            path = CACHE/"features"/f"{name}-{size}.npz"
            if path.exists(): continue
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


# verdicts and ratios

PARTNERS = {"moderate": "recoloring", "wide": "wide-recoloring"}
SETS = {"fd": "fd", "cmmd": "cmmd", "kid": "mmd-poly"} # the name here, and of the distance with that kernel over whole sets
FEATURES_OF = {"fd": "vector", "cmmd": "vector", "kid": "vector", "lpips": "maps"}
COUNT = 300 # random sets


def moves(found: dict, source: str, features: str, edit: int) -> np.ndarray: # (N,) how far features move with an edit
    if features == "maps": return np.sqrt(found[f"{source} maps"][edit].astype(float))
    vector = found[f"{source} vector"].astype(float)
    return np.linalg.norm(vector[edit] - vector[0], axis=1)


def ratio(found: dict, source: str, features: str) -> tuple[float, float, float]: # value, low, high
    "Response to position over response to hue, with an interval over photographs."
    slip, hue = (1, 2) if source == "packaged" else (EDITS.index("misregistration"), EDITS.index("hue"))
    cluster = found[f"{source} cluster"]
    kept = some_packaged(cluster) if source == "packaged" else np.arange(len(cluster))
    return _mean_ratio(*(cluster_means(moves(found, source, features, edit)[kept], cluster[kept]) for edit in (slip, hue)))


def verdicts(found: dict, source: str) -> list[dict]: # of one network at one size on one collection
    vector, cluster = found[f"{source} vector"], found[f"{source} cluster"]
    counts, draws = draw_sets(cluster, COUNT, rng(0, "sets", source), len(np.unique(cluster))//3)
    truth, rows = torch.from_numpy(vector[0]), []
    for metric, name in SETS.items():
        judge_by = get_metric(name, encoder="mean-color") # the distance alone; the rows are there already
        over = {edit: np.asarray(judge_by.replicates(Rows(torch.from_numpy(vector[k]), truth), counts.astype(float)))
                for k, edit in enumerate(EDITS) if edit in (*VALID, *VIOLATIONS)}
        rows += [(metric, partner, family, *share_of_sets(rounded_wins(over[family] - over[valid])[None], draws))
                 for partner, valid in PARTNERS.items() for family in VIOLATIONS]
    apart = found[f"{source} maps"].astype(float)
    each = {edit: apart[k] for k, edit in enumerate(EDITS)}
    rows += [("lpips", partner, family, *share_of_items(rounded_wins(each[family] - each[valid])[None], cluster))
             for partner, valid in PARTNERS.items() for family in VIOLATIONS]
    columns = ("metric", "partner", "family", "auc", "ci_low", "ci_high")
    return [dict(zip(columns, row)) | {"collection": source, "n": len(cluster)} for row in rows]


def judge() -> None:
    "Everything that is said of each network at each size, a file each."
    for path in sorted((CACHE/"features").glob("*.npz")):
        out = CACHE/"verdicts"/f"{path.stem}.csv"
        if out.exists(): continue
        name, size = path.stem.rsplit("-", 1)
        with np.load(path) as file: found = dict(file)
        table = pd.DataFrame([row for source in COLLECTIONS for row in verdicts(found, source)])
        ratios = {(s, f): ratio(found, s, f) for s in (*COLLECTIONS, "packaged") for f in ("vector", "maps")}
        features = table["metric"].map(FEATURES_OF)
        for k, column in enumerate(("ratio", "ratio_low", "ratio_high")): table[column] = [ratios["packaged", f][k] for f in features]
        table["own_ratio"] = [ratios[s, f][0] for s, f in zip(table["collection"], features)]
        with atomic_write(out) as tmp: table.assign(encoder=name, size=int(size)).to_csv(tmp, index=False, float_format="%.4g")
        print(path.stem, {f: round(ratios["packaged", f][0], 2) for f in ("vector", "maps")}, flush=True)


# the rule

RULE_FAMILY = "misregistration" # what the ratio is made of
PLACE = (RULE_FAMILY, "bleeding") # colors in the wrong place; tint and fading have none, and get no interval


def predicted(r: np.ndarray, offset: float, steepness: float) -> np.ndarray: return expit(offset + steepness*np.log(r))


def fit_rule(table: pd.DataFrame) -> tuple[float, float]: # offset, steepness
    "logit AUC = a + k log r by least squares of the AUC, every network counting the same."
    weight = np.sqrt(1/table.groupby("encoder")["auc"].transform("size").to_numpy())
    r, auc = table["ratio"].to_numpy(), table["auc"].to_numpy()
    error = lambda p: weight*(predicted(r, *p) - auc)
    return tuple(least_squares(error, (0, 3), bounds=((-10, 0), (10, 30))).x)


def left_out(table: pd.DataFrame) -> pd.DataFrame:
    "The prediction for each network by a rule, and by one number, fitted on all others."
    parts = []
    for name, part in table.groupby("encoder", sort=False):
        rest = table[table["encoder"] != name]
        constant = rest.groupby("encoder")["auc"].mean().mean()
        parts.append(part.assign(predicted=predicted(part["ratio"].to_numpy(), *fit_rule(rest)), constant=constant))
    return pd.concat(parts)


def quality(table: pd.DataFrame) -> dict: # of what `left_out` gives; means of networks
    told = table.assign(error=(table["auc"] - table["predicted"]).abs(), error_constant=(table["auc"] - table["constant"]).abs())
    each = told.groupby("encoder")[["error", "error_constant"]].mean()
    sure = table[(table["ci_low"] > 0.5) | (table["ci_high"] < 0.5)]
    means = table.groupby("encoder")[["ratio", "auc"]].mean()
    above = sure["auc"] > 0.5
    return {"error": each["error"].mean(), "error_constant": each["error_constant"].mean(),
            "order": means.corr("spearman").iloc[0, 1],
            "right_side": ((sure["predicted"] > 0.5) == above).mean(), "commoner_side": max(above.mean(), 1 - above.mean()),
            "sure": len(sure), "above": int(above.sum()), "networks": len(each)}


def with_interval(table: pd.DataFrame, value, reps: int) -> dict: # name -> value, low, high over networks
    names, draw = table["encoder"].unique(), rng(0, "networks")
    groups = dict(list(table.groupby("encoder")))
    again = pd.DataFrame([value(pd.concat([groups[names[i]].assign(encoder=j) for j, i in enumerate(draw.integers(len(names), size=len(names)))]))
                          for _ in range(reps)])
    return {k: (v, *again[k].quantile([0.025, 0.975])) for k, v in value(table).items()}


def rules(table: pd.DataFrame, reps: int = 60) -> pd.DataFrame:
    "For each distance, partner and family: the rule, and how it does on networks that it was not fitted on."
    rows = []
    for (metric, partner, family), part in table.groupby(["metric", "partner", "family"], sort=False):
        offset, steepness = fit_rule(part)
        found, row = quality(left_out(part)), {"metric": metric, "partner": partner, "family": family, "offset": offset}
        row |= {"steepness": steepness} | found
        if family in PLACE:
            fitted = with_interval(part, lambda t: {"steepness": fit_rule(t)[1]}, reps)
            told = with_interval(left_out(part), quality, reps)
            row |= {f"{k}_{end}": (fitted | told)[k][i] for k in ("steepness", "error", "error_constant", "order")
                    for i, end in ((1, "low"), (2, "high"))}
        rows.append(row)
    return pd.DataFrame(rows)


@torch.no_grad()
def picture() -> pd.DataFrame: # encoder, size, family, lpips
    "LPIPS's formula on published encoders for the two pictures that the first page shows, both 25 dB from the photograph."
    photo = next(photo for photo in packaged_photos() if photo.name == "astronaut")
    cut = cut_tiles([photo], size=128, per_photo=1, seed=3)
    item = Items(cut.rgb, cut.regions, cut.cluster.numpy(), reach=photo_reach([photo])[cut.cluster])
    rows = []
    for name, size in (("embedded", 128), ("efficientnet-lite0", 224), ("mobilenet-v2", 224)):
        encoder = encoder_at(name, size)
        own = read(encoder, item.rgb)[1]
        for family in ("recoloring", "misregistration"):
            dose, _ = perturbations[family](item, rng(1, family, 0))
            edit = match_dose(item, dose, torch.full((1,), 25.0)).rgb
            rows.append({"encoder": name, "size": size, "family": family, "lpips": float(map_distance(read(encoder, edit)[1], own))})
    return pd.DataFrame(rows)


def renewed(name: str, folder: str, key: list[str]) -> pd.DataFrame:
    "The rows in a folder of the cache, and the stored ones of what is not there."
    stored = pd.read_csv(RESULTS/name)
    made = [pd.read_csv(path) for path in sorted((CACHE/folder).glob("*.csv"))]
    if not made: return stored
    fresh = pd.concat(made, ignore_index=True)[list(stored)]
    old = stored.set_index(key).drop(index=fresh.set_index(key).index.unique(), errors="ignore").reset_index()
    return pd.concat([old[list(stored)], fresh]).sort_values(key, kind="stable", ignore_index=True)


def store() -> None:
    "From the cache into the results, and the rule into the package; stored rows stand for what the cache lacks."
    table = renewed("real_encoders.csv", "verdicts", ["encoder", "size"])
    with atomic_write(RESULTS/"real_encoders.csv") as tmp: table.to_csv(tmp, index=False, float_format="%.3g")
    table = pd.read_csv(RESULTS/"real_encoders.csv") # the rule is fitted on what is stored
    checks = renewed("real_encoders_check.csv", "checks", ["network"])
    checks = checks[~checks["check"].isin(["n", "photographs", "norms"])]
    told = rules(table)
    usual = told[(told["family"] == RULE_FAMILY) & (told["partner"] == "moderate") & (told["metric"] != "kid")]
    networks = f"{int(usual['networks'].iloc[0])} networks at {'/'.join(map(str, sorted(table['size'].unique())))} px"
    rule = pd.DataFrame({"metric": usual["metric"], "features": usual["metric"].map(FEATURES_OF), "offset": usual["offset"],
                         "steepness": usual["steepness"], "ci_low": usual["steepness_low"], "ci_high": usual["steepness_high"],
                         "error": usual["error"], "constant": usual["error_constant"], "sure": usual["sure"], "above": usual["above"],
                         "fitted_on": networks, "tested_on": "each network left out of its own rule"})
    if not (CACHE/"picture.csv").exists(): picture().to_csv(CACHE/"picture.csv", index=False)
    shown = pd.read_csv(CACHE/"picture.csv")
    for frame, path, digits in ((checks, RESULTS/"real_encoders_check.csv", "%.4g"), (told, RESULTS/"real_encoders_rule.csv", "%.3g"),
                                (shown, RESULTS/"real_encoders_picture.csv", "%.3g"), (rule, assets_folder()/"encoder_rule.csv", "%.4g")):
        with atomic_write(path) as tmp: frame.to_csv(tmp, index=False, float_format=digits)
    print(told.to_string())


# every loader against something that it was not made from

def photographs(count: int = 150) -> list[tuple[str, torch.Tensor]]: # (WordNet id, (3, H, W) in [0, 1])
    "Photographs of ImageNet, one a class."
    index = pd.read_csv(DATA/"imagenet_sample"/"index.csv")[:count]
    return [(row.wordnet_offset_id, torch.from_numpy(read_photo(DATA/"imagenet_sample"/"images"/row.file)[0]).permute(2, 0, 1)/255)
            for row in index.itertuples()]


def prepared(net, rgb: torch.Tensor, size: int) -> torch.Tensor: # (3, H, W) -> (1, 3, size, size) as the network wants it
    "The middle of a photograph, an eighth cut off as classifiers do."
    fit = Preprocess(size, "crop", "bilinear", net.stats, share=0.875)
    return fit(rgb[None])


@torch.no_grad()
def accuracy(net) -> dict: # of a classifier of ImageNet
    from timm.data import ImageNetInfo
    place = {wnid: i for i, wnid in enumerate(ImageNetInfo().label_names())}
    photos = [(wnid, rgb) for wnid, rgb in photographs() if wnid in place]
    best = torch.stack([net.classes(prepared(net, rgb, net.size))[0].topk(5).indices for _, rgb in photos])
    hit = best == torch.tensor([place[wnid] for wnid, _ in photos])[:, None]
    return {"top-1": float(hit[:, 0].float().mean()), "top-5": float(hit.any(1).float().mean()), "photographs": len(photos)}


@torch.no_grad()
def edge_auc(net, count: int = 8) -> dict: # of a detector of edges
    "How often a pixel on an outline that a person drew beats one far from all outlines; of Sobel's filter too."
    own, sobel = [], []
    for path in sorted((DATA/"bsds500"/"images").glob("*.jpg"))[:count]:
        rgb = torch.from_numpy(read_photo(path)[0]).permute(2, 0, 1)[None]/255
        drawn = sum(outline(np.array(Image.open(p))) for p in (DATA/"bsds500"/"segmentations").glob(f"{path.stem}_a*.png"))
        near = F.max_pool2d(torch.from_numpy(drawn > 0)[None, None].float(), 7, 1, 3)[0, 0].bool().numpy()
        mean, std = (torch.tensor(s).view(3, 1, 1) for s in net.stats)
        gray = rgb[0].mean(0).numpy()
        for found, said in ((own, net.module((rgb - mean)/std)[0, 0].numpy()), (sobel, np.hypot(ndimage.sobel(gray, 0), ndimage.sobel(gray, 1)))):
            found.append(roc_auc_score(np.r_[np.ones((drawn > 1).sum()), np.zeros((~near).sum())], np.r_[said[drawn > 1], said[~near]]))
    return {"outline AUC": float(np.mean(own)), "of Sobel": float(np.mean(sobel))}


def outline(regions: np.ndarray) -> np.ndarray: # (H, W) labels -> (H, W) 0 or 1
    found = np.zeros(regions.shape[:2], int)
    found[:-1] |= regions[:-1] != regions[1:]
    found[:, :-1] |= regions[:, :-1] != regions[:, 1:]
    return found


@torch.no_grad()
def statistics_kept(net, count: int = 40) -> dict: # of a network with batch norms
    "Rank correlation of the means that each norm stored in training with those of photographs here, middle one of all norms."
    norms = {name: m for name, m in net.module.named_modules() if isinstance(m, nn.BatchNorm2d)}
    sums = {name: 0 for name in norms}
    def note(name):
        def hook(module, inputs): sums[name] = sums[name] + inputs[0].mean((0, 2, 3))
        return hook
    hooks = [m.register_forward_pre_hook(note(name)) for name, m in norms.items()]
    for _, rgb in photographs(count): net.module(prepared(net, rgb, net.size))
    for hook in hooks: hook.remove()
    return {"stored means, r": float(np.median([np.corrcoef(sums[n], norms[n].running_mean)[0, 1] for n in norms])), "norms": len(norms)}


@torch.no_grad()
def interpreter_agrees(net, file: str, tensor: str | None, count: int = 6) -> dict: # of a network out of a TFLite file
    "Correlation of the last map (or of class scores) with what the 8-bit interpreter gives."
    from ai_edge_litert.interpreter import Interpreter, OpResolverType
    own = Interpreter(str(DATA/"networks"/"coral"/file), experimental_preserve_all_tensors=True,
                      experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    own.allocate_tensors()
    side = own.get_input_details()[0]["shape"][1]
    place = own.get_output_details()[0]["index"] if tensor is None else next(
        t["index"] for t in own.get_tensor_details() if t["name"].startswith(tensor) and t["dtype"] == np.uint8 and len(t["shape"]) == 4 and t["shape"][1] > 1)
    said, theirs = [], []
    for _, rgb in photographs(count):
        small = Preprocess(int(side), "squash", "bilinear")(rgb[None])
        mean, std = (torch.tensor(s).view(3, 1, 1) for s in net.stats)
        out = net.module((small - mean)/std)
        own.set_tensor(own.get_input_details()[0]["index"], (255*small).round().byte().permute(0, 2, 3, 1).numpy())
        own.invoke()
        theirs.append(own.get_tensor(place).ravel().astype(float))
        said.append((out.softmax(1) if tensor is None else out.permute(0, 2, 3, 1)).numpy().ravel())
    return {"interpreter, r": float(np.corrcoef(np.concatenate(said), np.concatenate(theirs))[0, 1])}


@torch.no_grad()
def decoded(net, count: int = 20) -> dict: # of an autoencoder whose other half is there
    photos = [Preprocess(net.size, "crop", "bilinear")(rgb[None]) for _, rgb in photographs(count)]
    decode = taesd_flux2_decoder()
    return {"PSNR decoded": float(np.mean([float(psnr_to(x, decode(net.module(x)).clamp(0, 1))) for x in photos]))}


TFLITE = {"mobilenet-v2": ("mobilenet_v2_1.0_224_quant.tflite", None), "mobilenet-v1-.25": ("mobilenet_v1_0.25_128_quant.tflite", None),
          "mobilenet-v2-birds": ("mobilenet_v2_1.0_224_inat_bird_quant.tflite", None),
          "mobilenet-v2-insects": ("mobilenet_v2_1.0_224_inat_insect_quant.tflite", None),
          "deeplab-mobilenet-v2": ("deeplabv3_mnv2_pascal_quant.tflite", "concat_projection")}


def check(names: list[str]) -> None:
    "Each network's own oracle, into the cache."
    for name in names:
        path = CACHE/"checks"/f"{name}.csv"
        if path.exists(): continue
        net, found = NETWORKS[name](), {}
        net.module.eval()
        if net.classes: found |= accuracy(net)
        if name in TFLITE: found |= interpreter_agrees(net, *TFLITE[name])
        if "edges" in net.trained: found |= edge_auc(net)
        if name == "taesd-flux2": found |= decoded(net)
        if any(isinstance(m, nn.BatchNorm2d) for m in net.module.modules()) and not net.classes: found |= statistics_kept(net)
        parameters = sum(p.numel() for p in net.module.parameters())
        rows = [{"network": name, "trained": net.trained, "size": net.size, "parameters": parameters, "check": k, "value": v}
                for k, v in (found or {"loads whole": 1}).items()]
        print(name, {k: round(v, 3) for k, v in found.items()}, flush=True)
        with atomic_write(path) as tmp: pd.DataFrame(rows).to_csv(tmp, index=False, float_format="%.4g")


if __name__ == "__main__":
    few_threads()
    what, names = (sys.argv[1] if len(sys.argv) > 1 else "--store"), sys.argv[2:]
    if what == "tiles": tiles()
    elif what == "check": check(names or [*NETWORKS])
    elif what == "features":
        sizes = [int(name) for name in names if name.isdecimal()]
        features([name for name in names if not name.isdecimal()] or [*OWN, *NETWORKS], sizes or list(SIZES))
    elif what == "judge": judge()
    else: store()
