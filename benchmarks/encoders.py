"""Encoders as the variable: one network, trained to different ends, and what distances on it say of misplaced color.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/encoders.py train     [NAME ...]   each network of the series, weights into the cache
                                     python benchmarks/encoders.py measure   [SOURCE ...] responses and verdicts, into the cache
                                     python benchmarks/encoders.py moderate  [SOURCE ...] verdicts beside the moderate recoloring
                                     python benchmarks/encoders.py --store                from there into nbs/results
FOLDER holds bsds500/images, bsds500/segmentations and imagenet_sample/images. A network or a source that is in the cache
is not made again, and an interrupted training goes on; remove the folder encoder-series there to begin anew.
Writes nbs/results/encoder_series.csv, encoder_series_moderate.csv and encoder_responses.csv. The rule that comes with the
package is fitted by real_encoders.py, on other networks."""
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from invariant_metrics.core import InputError, few_threads, rng, torch_rng
from invariant_metrics.data.photos import _TILES_ACROSS, Photo, folder_photos, packaged_photos, shrink, split_photos
from invariant_metrics.encoders.encoder import Encoder, get_encoder
from invariant_metrics.encoders.cache import cache_folder
from invariant_metrics.encoders.weights import Card, save_embedded
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.metric import Metric, get_metric
from invariant_metrics.probes.encoders import _encoder_responses, _moved_colors
from invariant_metrics.probes.images import COLOR_SIZES, color_items, color_probe
from invariant_metrics.models.vision import VisionNet
from invariant_metrics.training.batches import batch_indices
from invariant_metrics.training.image_encoder import _contrast_loss, _random_views, train_image_encoder
from invariant_metrics.training.loop import Optim, Turn, fit

RESULTS, CACHE = Path(__file__).parent.parent/"nbs"/"results", cache_folder()/"encoder-series"
STEPS = 600 # as the encoder that ships
SERIES = { # name -> how it is trained; hue-0 is the encoder that ships, trained by the same call
    "hue-30": dict(hue=30), "hue-90": dict(hue=90), "hue-180": dict(hue=180), "classes": dict(targets="classes"),
    "photographs": dict(photos=True), "photographs-hue-180": dict(photos=True, hue=180)}
OTHERS = {"mean-color": dict(name="mean-color"), "embedded-clip": dict(name="clip", weights="embedded-clip"),
          "embedded-lclip": dict(name="lclip", weights="embedded-lclip")} # not of the series: the rule is tested on them, never fitted
FAMILIES, LEVELS = ("misregistration", "bleeding", "edge-leakage"), (34.0, 31.0, 28.0)
FEATURES_OF = {"fd": "vector", "cmmd": "vector", "lpips": "maps"}
WIDE, MODERATE = "wide-recoloring", "recoloring" # the valid partner: any hue, or a hue that stays within the photograph's colors
FIT, TESTS = "photographs A", ("photographs B", "bsds", "scenes")
PHOTOGRAPHS = TESTS[:2] # what the rule is for; on scenes, where a valid recoloring stays inside the world's distribution, it does not hold


class Twins(nn.Module):
    "The image encoder for two views of the same pictures, and the temperature of their comparison."
    def __init__(self):
        super().__init__()
        self.net = VisionNet()
        self.log_scale = nn.Parameter(torch.tensor(2.7))

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor: # (N, 3, H, W) twice -> (N, N)
        one, two = F.normalize(self.net(torch.cat([first, second])), dim=1).chunk(2)
        return one @ two.T * self.log_scale.clamp(max=4.6).exp()


def photo_patches(photos: list[Photo], n: int, size: int = 96, seed: int = 0) -> torch.Tensor: # (n, 3, size, size) uint8
    "Square patches at random places, equally many of each photograph, shrunk as the probe shrinks them."
    draw, parts = rng(seed, "photo patches"), []
    for k, photo in enumerate(photos):
        small = shrink(photo.rgb, round(_TILES_ACROSS*64))
        corners = draw.integers((small.shape[0] - size + 1, small.shape[1] - size + 1), size=(len(range(k, n, len(photos))), 2))
        parts += [small[y:y + size, x:x + size] for y, x in corners]
    return torch.from_numpy(np.stack(parts)).permute(0, 3, 1, 2).contiguous()


def train_photo_encoder(photos: list[Photo], steps: int, folder: Path, hue: float = 0, seed: int = 0, patches: int = 4000, batch: int = 48):
    "The same network on photographs without labels: two views of a patch find each other (Chen et al. 2020)."
    few_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Twins()
    rgb = photo_patches(photos, patches, seed=seed)
    items = batch_indices(len(rgb), batch, seed)
    def views(i: int) -> tuple[torch.Tensor, ...]:
        part = rgb[items(i)]
        return tuple(_random_views(part, part[:, 0], (64, 32)[i % 2], torch_rng(seed, "varied", i, view), hue)[0] for view in range(2))
    turn = Turn(model, _contrast_loss, Optim(lr=3e-3, weight_decay=0.02, warmup=min(40, steps//5 + 1)))
    log = fit(turn, views, steps, folder=folder, seed=seed, precision="fp32", desc="photo encoder", settings={"hue": hue, "patches": patches})
    return model.eval(), log


def metrics_on(encoder: Encoder,
               label: str,  # after the metric's name
              ) -> list[Metric]:
    "Fréchet distance, CMMD and, where there are feature maps, LPIPS's formula on one encoder."
    found = [replace(get_metric(name, encoder=encoder), name=f"{name}@{label}") for name in ("fd", "cmmd")]
    place = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    try: encoder.feature_maps(torch.full((1, 3, 64, 64), 0.5, device=place))
    except InputError: return found
    return [*found, replace(get_metric("lpips-maps", encoder=encoder), name=f"lpips@{label}")]


def train(name: str) -> None:
    "One network of the series, stored with a card."
    how = dict(SERIES[name])
    photos = how.pop("photos", False)
    root = os.environ.get("INVARIANT_METRICS_DATA")
    own = folder_photos(Path(root)/"imagenet_sample"/"images") if photos and root else None
    began, make = time.time(), train_photo_encoder if photos else train_image_encoder
    options = {**how, **({"photos": own or packaged_photos()} if photos else {})}
    model, log = make(steps=STEPS, folder=CACHE/f"{name}-checkpoint", **options)
    data = f"{len(own) if own else 'packaged'} photographs" if photos else "scenes"
    loss = float(log.loc[log["term"] == "contrast", "value"].tail(20).mean())
    card = Card(name, f"the network of embedded-image, {how}", command="python benchmarks/encoders.py", data=f"{data}, {STEPS} steps",
                scores={"loss": round(loss, 3)})
    save_embedded(name, model.net.state_dict(), card, CACHE)
    print(name, f"loss {loss:.3f}, {time.time() - began:.0f} s", flush=True)


def series() -> dict[str, Encoder]:
    "All encoders, those of the series first."
    found = {"hue-0": get_encoder("embedded")}
    found |= {name: get_encoder("embedded", CACHE/f"{name}.safetensors") for name in SERIES if (CACHE/f"{name}.safetensors").exists()}
    found |= {"untrained": get_encoder("embedded", untrained=True)}
    return found | {name: get_encoder(**how) for name, how in OTHERS.items()}


def halves() -> dict[str, list[Photo]]:
    "The packaged photographs in two parts, one of each cluster."
    photos = list({p.cluster: p for p in packaged_photos()}.values())
    return split_photos(photos, {"photographs A": 1, "photographs B": 1}, seed=0)


def some(folder: Path, count: int, place: Path) -> Path:
    "A folder with so many of the photographs, drawn at random."
    files = sorted(p for p in folder.iterdir() if p.suffix == ".jpg")
    for i in rng(0, "encoder series").choice(len(files), count, replace=False): (place/files[i].name).symlink_to(files[i].resolve())
    return place


def opened(source: str, place: Path) -> tuple: # what `color_probe` takes, and its label maps
    if source == "scenes": return "scenes", None
    if source == "bsds":
        root = Path(os.environ["INVARIANT_METRICS_DATA"])/"bsds500"
        return some(root/"images", 60, place), root/"segmentations"
    for photo in halves()[source]: Image.fromarray(photo.rgb).save(place/f"{photo.name}.png")
    return place, None


def measure(source: str, encoders: dict[str, Encoder]) -> None:
    "Responses and verdicts of all encoders on one source."
    with tempfile.TemporaryDirectory() as folder:
        place, regions = opened(source, Path(folder))
        items, _ = color_items(place, COLOR_SIZES["default"], 0, regions)
        moved = _moved_colors(items)
        told = {"source": source, "n": len(moved), "of": moved.of}
        parts = [_encoder_responses(e, moved).assign(encoder=name, **told) for name, e in encoders.items()]
        verdicts = judge(source, place, regions, encoders, WIDE)
    for name, frame in (("responses", pd.concat(parts)), ("series", verdicts)):
        with atomic_write(CACHE/f"{source}-{name}.csv") as path: frame.to_csv(path, index=False, float_format="%.5g")


def measure_moderate(source: str, encoders: dict[str, Encoder]) -> None:
    "The verdicts of all encoders on one source, beside the partner that the probe takes by itself."
    with tempfile.TemporaryDirectory() as folder: verdicts = judge(source, *opened(source, Path(folder)), encoders, MODERATE)
    with atomic_write(CACHE/f"{source}-moderate.csv") as path: verdicts.to_csv(path, index=False, float_format="%.5g")


def judge(source: str, place, regions, encoders: dict[str, Encoder], valid: str) -> pd.DataFrame:
    "What the probe says of every distance on every encoder; in scenes the valid partner is always the world's own."
    judged = [metric for name, e in encoders.items() for metric in metrics_on(e, name)]
    partner = None if source == "scenes" else valid
    found = color_probe(place, judged, families=FAMILIES, valid=partner, levels=LEVELS, regions=regions, progress=False)
    print(source, valid, found.seconds, flush=True)
    auc = found.auc[found.auc["level"] == "all"]
    names = auc["metric"].str.split("@", expand=True)
    auc = auc.assign(source=source, metric=names[0], encoder=names[1])
    auc = auc[(auc["view"] == "item") == (auc["metric"] == "lpips")]
    matched = found.ledger.groupby("family")[["matched", "n"]].sum().eval("matched / n")
    auc = auc[auc["metric"].isin(FEATURES_OF)].assign(matched=auc["family"].map(matched))
    columns = ["source", "encoder", "metric", "family", "view", "auc", "ci_low", "ci_high", "n", "n_clusters", "matched"]
    return auc[columns]


def with_ratio(verdicts: pd.DataFrame, responses: pd.DataFrame) -> pd.DataFrame:
    "Verdicts beside the ratio that was measured on the photographs of the fit, and the one of their own pictures."
    ratios = responses[responses["response"] == "ratio"].set_index(["source", "encoder", "features"])["value"]
    features = verdicts["metric"].map(FEATURES_OF)
    def of(sources) -> list: return [ratios.get(key) for key in zip(sources, verdicts["encoder"], features)]
    return verdicts.assign(ratio=of([FIT]*len(verdicts)), own_ratio=of(verdicts["source"]))


def store() -> None:
    "From the cache into the results, and the rule into the package."
    sources = [FIT, *TESTS]
    responses = pd.concat([pd.read_csv(CACHE/f"{s}-responses.csv") for s in sources], ignore_index=True)
    def verdicts(kind: str, sources: list) -> pd.DataFrame:
        return with_ratio(pd.concat([pd.read_csv(CACHE/f"{s}-{kind}.csv") for s in sources], ignore_index=True), responses)
    for frame, name in ((verdicts("series", sources), "encoder_series"), (responses, "encoder_responses"),
                        (verdicts("moderate", [FIT, *PHOTOGRAPHS]), "encoder_series_moderate")):
        with atomic_write(RESULTS/f"{name}.csv") as tmp: frame.to_csv(tmp, index=False, float_format="%.4g")


if __name__ == "__main__":
    few_threads()
    what, names = (sys.argv[1] if len(sys.argv) > 1 else "--store"), sys.argv[2:]
    if what == "train":
        for name in names or SERIES:
            if not (CACHE/f"{name}.safetensors").exists(): train(name)
    elif what == "measure":
        for source in names or [FIT, *TESTS]:
            if not (CACHE/f"{source}-series.csv").exists(): measure(source, series())
    elif what == "moderate":
        for source in names or [FIT, *PHOTOGRAPHS]:
            if not (CACHE/f"{source}-moderate.csv").exists(): measure_moderate(source, series())
    else: store()
