"""Which metrics of torchmetrics, piq, pyiqa and sacrebleu are taken as they are, and do they give the libraries' own numbers?

Usage: python benchmarks/other_libraries.py [--only WORD | --probe]     (writes nbs/results/other_libraries.csv; needs pip install piq pyiqa)

Every name below that needs no download, and some that do, is built by `get_metric` and scored on 16 painted scenes with noise of different
strength (192 pixels, for some need so many), or on 60 captions of scenes with five references each, of which metrics that take one get the
first. Beside each stands the same number by the library's own call, written here without the adapter: the largest of the difference of
the values on all items. `ratio` is the time of the adapter over that of the library's own calls for the same numbers of items (batches
of eight where the library gives a number for each item, else calls of one), the median of five rounds in turn, on eight pictures or all texts. `--probe` adds to the
table, for a few, the same ratio within `probe images` at its quick scale, on the very batches that the probe shows. Three minutes each."""
import argparse
import contextlib
import inspect
import io
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from invariant_metrics.core import InputError, torch_rng
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.metric import SetMetric, TextMetric, extract, get_metric
from invariant_metrics.metrics.other_libraries import split_options
from invariant_metrics.probes.own_images import image_probe
from invariant_metrics.worlds.scene_captions import relation_captions, scenes_with_captions

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"other_libraries.csv"
PICTURES = """StructuralSimilarityIndexMeasure MultiScaleStructuralSimilarityIndexMeasure PeakSignalNoiseRatio
    PeakSignalNoiseRatioWithBlockedEffect ErrorRelativeGlobalDimensionlessSynthesis SpectralAngleMapper UniversalImageQualityIndex
    VisualInformationFidelity RelativeAverageSpectralError RootMeanSquaredErrorUsingSlidingWindow SpatialCorrelationCoefficient
    TotalVariation TotalVariation(reduction=mean) SpectralDistortionIndex QualityWithNoReference
    LearnedPerceptualImagePatchSimilarity FrechetInceptionDistance MemorizationInformedFrechetInceptionDistance
    KernelInceptionDistance(subset_size=10,key=0) KernelInceptionDistance(subset_size=10,key=0,average=5)
    InceptionScore(key=0,average=5) MeanSquaredError MeanSquaredError(takes=pictures) MeanAbsoluteError(takes=pictures)
    PearsonCorrCoef(takes=pictures) Accuracy
    functional.structural_similarity_index_measure functional.multiscale_structural_similarity_index_measure
    functional.peak_signal_noise_ratio functional.universal_image_quality_index functional.visual_information_fidelity
    functional.spectral_angle_mapper functional.root_mean_squared_error_using_sliding_window functional.relative_average_spectral_error
    functional.total_variation(reduction=mean) functional.image_gradients""".split()
TEXTS = """text.BLEUScore text.SacreBLEUScore text.CHRFScore text.TranslationEditRate text.ExtendedEditDistance text.WordErrorRate
    text.CharErrorRate text.MatchErrorRate text.WordInfoLost text.WordInfoPreserved text.EditDistance text.Perplexity text.SQuAD
    functional.bleu_score functional.word_error_rate functional.edit_distance functional.translation_edit_rate""".split()
PIQ = """psnr ssim SSIMLoss multi_scale_ssim information_weighted_ssim vif_p fsim gmsd multi_scale_gmsd vsi haarpsi mdsi srsim dss
    total_variation FID KID IS PR PR(key=1,better=higher) MSID MSID(average=3) GS brisque""".split()
PYIQA = "psnr psnry ssim ssimc ms_ssim cw_ssim fsim vif gmsd nlpd vsi entropy piqe dists niqe fid".split()
NAMES = [*(f"torchmetrics:{n}" for n in (*PICTURES, *TEXTS)), *(f"piq:{n}" for n in PIQ), *(f"pyiqa:{n}" for n in PYIQA),
         "sacrebleu:bleu", "sacrebleu:chrf(word_order=2)", "sacrebleu:ter"]
TOLD = ("takes", "range", "better", "key", "average", "references") # what the adapter is told, and no library
PROBED = ("torchmetrics:StructuralSimilarityIndexMeasure", "torchmetrics:SpatialCorrelationCoefficient", "piq:haarpsi", "pyiqa:gmsd")


class Same(torch.nn.Module):
    num_features = 0
    def forward(self, x): return x


def own_object(name: str, each: bool = False):
    "The library's own way to its number, and to one for each item: a function of the sides."
    library, _, rest = name.partition(":")
    bare, options = split_options(rest)
    options = {k: v for k, v in options.items() if k not in TOLD}
    title = bare.rpartition(".")[2]
    if library == "pyiqa":
        from pyiqa.models.inference_model import InferenceModel
        return InferenceModel(bare, device=torch.device("cpu"))
    if library == "sacrebleu":
        import sacrebleu.metrics
        found = getattr(sacrebleu.metrics, bare.upper())(**options)
        return lambda pred, target: found.corpus_score(pred, [*zip(*target)]).score
    if library == "piq":
        import piq
        thing = getattr(piq, title)
        more = {"reduction": "none"} if each else {}
        return thing(**options) if isinstance(thing, type) else lambda *x: thing(*x, **more, **options)
    import torchmetrics
    import torchmetrics.functional.image
    import torchmetrics.functional.text
    import torchmetrics.image
    import torchmetrics.text
    places = [torchmetrics.functional.image, torchmetrics.functional.text] if "functional" in bare else \
        [torchmetrics.image, torchmetrics.text, torchmetrics]
    thing = next(getattr(p, title) for p in places if hasattr(p, title))
    if "psnr" in title or "signal" in title.lower() or "similarity_index" in title or "SimilarityIndex" in title: options["data_range"] = 1.0
    known = inspect.signature(thing).parameters
    if each: options |= {"reduction": "none"} if "reduction" in known else {"return_sentence_level_score": True}
    if "functional" in bare: return lambda *x: thing(*x, **options)
    if "Inception" in title: options["feature"] = Same()
    metric = thing(**options)
    def run(*sides):
        metric.reset()
        if "InceptionDistance" in title:
            metric.update(sides[0], real=False)
            metric.update(sides[1], real=True)
        else: metric.update(*sides)
        return metric.compute()
    return run


def pictures() -> tuple[torch.Tensor, torch.Tensor]:
    scenes, draw = scenes_with_captions(16, seed=0), torch_rng(0, "noise")
    truth = torch.nn.functional.interpolate(scenes.rgb, (192, 192), mode="bilinear")
    strength = torch.linspace(0.02, 0.5, 16)[:, None, None, None]
    return ((1 - strength)*truth + strength*torch.rand(truth.shape, generator=draw)), truth


def texts() -> tuple[list[str], list[tuple[str, ...]]]:
    scenes = scenes_with_captions(60, seed=1)
    captions = [relation_captions(scenes, i) for i in range(60)]
    return [c[0] for c in captions], [tuple(c[1:]) for c in captions]


def number(found, name: str) -> float:
    key = split_options(name.partition(":")[2])[1].get("key")
    if key is not None: found = found[key]
    return float(torch.as_tensor(found, dtype=torch.float64).mean())


def averaged(call, sides, name: str) -> float: # as average= says: the same draws
    times = split_options(name.partition(":")[2])[1].get("average", 1)
    if times == 1: return number(call(*sides), name)
    found = []
    for k in range(times):
        torch.manual_seed(k)
        np.random.seed(k)
        found.append(number(call(*sides), name))
    return float(np.mean(found))


def seconds(one, other, rounds: int = 5) -> float: # median of the ratio of their times, in turn
    began, found = time.process_time(), []
    other()
    times = min(20, 1 + int(0.03/max(time.process_time() - began, 1e-4))) # 30 ms at least
    for k in range(rounds):
        took = {}
        for call in ((one, other) if k % 2 else (other, one)):
            began = time.process_time()
            for _ in range(times): call()
            took[call] = time.process_time() - began
        found.append(took[one]/max(took[other], 1e-9))
    return float(np.median(found))


def row(name: str, data: dict) -> dict:
    options = split_options(name.partition(":")[2])[1]
    out = {"name": name, "taken": "with an option" if options else "as is"}
    try: metric = get_metric(name)
    except InputError as error:
        reason = str(error).partition(" (/")[0].replace(str(Path.home()), "~")
        return out | {"taken": "refused", "reason": reason.removeprefix(f"{name.partition('(')[0]} ")[:160]}
    parts = dict(metric.signature.items)
    kind = "texts" if isinstance(metric, TextMetric) else "pictures"
    pred, target = data[kind]
    single = kind == "texts" and "references" in parts
    if single: target = [refs[:1] for refs in target]
    rows = extract([metric], pred, target)[metric.name]
    out |= {"kind": "set" if isinstance(metric, SetMetric) else "paired" if metric.compares else "single",
            "takes": "features" if "encoder" in parts else kind,
            "direction": {True: "higher", False: "lower", None: "not said"}[metric.higher_is_better], "items": parts["items"]}
    sides = [pred, [refs[0] for refs in target] if single else target]
    if "encoder" in parts: sides = [rows.pred, *([] if rows.target is None else [rows.target])]
    elif not metric.compares: sides = sides[:1]
    Same.num_features = rows.pred.shape[-1]
    value, theirs = metric.statistic(rows), averaged(own_object(name), sides, name)
    out["difference"] = abs(value - theirs)/max(1, abs(theirs))
    out["ratio"] = round(seconds(*timed(metric, name, parts["items"], pred, target, sides)), 3)
    return out


def timed(metric, name: str, way: str, pred, target, sides: list) -> tuple:
    "The adapter and the library's own calls, for the same numbers."
    if way != "set" and not isinstance(metric, TextMetric): sides = [side[:8] for side in sides]
    n = len(sides[0])
    if way == "set":
        own = own_object(name)
        return (lambda: metric.compare(*sides, *([None]*(2 - len(sides))))), lambda: averaged(own, sides, name)
    step = 8 if way in ("own", "each") else 1
    own = own_object(name, each=way == "each")
    def of_library():
        for i in range(0, n, step): own(*(side[i:i + step] for side in sides))
    if isinstance(metric, TextMetric):
        size = 8 if way in ("own", "each") else n
        return (lambda: [metric.phi(pred[i:i + size], target[i:i + size]) for i in range(0, n, size)]), of_library
    return (lambda: [metric.compare(*(side[i:i + 8] for side in sides)) for i in range(0, n, 8)]), of_library


def probe_ratio(name: str) -> float:
    "Seconds inside the adapter during a quick probe of images, over those of the library's own calls on the same batches."
    metric, shown, took = get_metric(name), [], []
    own = own_object(name, each=dict(metric.signature.items)["items"] == "each")
    alone = dict(metric.signature.items)["items"] not in ("own", "each")
    def compare(*sides):
        began = time.process_time()
        found = metric.compare(*sides)
        took.append(time.process_time() - began)
        began = time.process_time()
        for i in range(len(sides[0])) if alone else [slice(None)]: own(*(x[i:i + 1] if alone else x for x in sides))
        shown.append(time.process_time() - began)
        return found
    image_probe("photos", metrics=[replace(metric, compare=compare)], scale="quick", progress=False)
    return sum(took)/sum(shown)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="names with this word in them; prints, and writes nothing")
    parser.add_argument("--probe", action="store_true", help="measure the probe's ratios, for the table as stored")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if args.probe:
        frame = pd.read_csv(TABLE)
        frame["probe_ratio"] = [round(probe_ratio(n), 3) if n in PROBED else np.nan for n in frame["name"]]
    else:
        data, out = {"pictures": pictures(), "texts": texts()}, []
        for name in [n for n in NAMES if not args.only or args.only in n]:
            with contextlib.redirect_stderr(io.StringIO()): out.append(row(name, data))
            print(*out[-1].values(), flush=True)
        frame = pd.DataFrame(out)
    if not args.only:
        with atomic_write(TABLE) as path: frame.to_csv(path, index=False, float_format="%.3g")
    print(frame.to_string())
