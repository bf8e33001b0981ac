"""What this package does on one GPU, in under eight minutes: tests, agreement with the CPU, speed, memory, resumption and overflow.

Usage: python benchmarks/gpu.py [--out FOLDER] [--only NAME,NAME] [--again] [--store NAME] [--dry]
Each finding runs in a process of its own with a time limit, and prints and writes every row as soon as it is there (FOLDER/NAME.jsonl);
what fails leaves the last line of its error, and the others go on. The same command runs only what is not there yet; --again runs it all
the same. At the end all of it is in FOLDER/gpu.json, and with --store in nbs/results/gpu/NAME.json. --dry runs the same code on the CPU
with tiny sizes. Nothing is downloaded: networks have random weights, or those that are part of the package.
It runs from the folder of the package, without an installation of it."""
import argparse
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent/"tests")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("INVARIANT_METRICS_QUIET", "1")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8") # without it cuBLAS has no deterministic algorithms

import numpy as np
import torch
import torch.nn.functional as F

RESULTS = HERE.parent/"nbs"/"results"/"gpu"
MODES = {"float32": "fp32", "bfloat16": "bf16"} # as `fit` names them


# what all findings share

@dataclass
class Kit:
    "Where a finding runs, at which size, and where its rows go."
    name: str
    out: Path
    dry: bool
    device: torch.device = field(init=False)

    def __post_init__(self): self.device = torch.device("cpu" if self.dry else "cuda")

    def size(self, full, tiny): return tiny if self.dry else full

    def tell(self, what: str, **numbers) -> None:
        "Print and write one row."
        there = {k: v for k, v in numbers.items() if not (isinstance(v, float) and math.isnan(v))}
        row = {"what": what, **{k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in there.items()}}
        print(f"{self.name:9} {what}: " + ", ".join(f"{k} {v}" for k, v in row.items() if k != "what"), flush=True)
        with open(self.out/f"{self.name}.jsonl", "a", encoding="utf-8") as file: file.write(json.dumps(row) + "\n")

    @contextmanager
    def part(self, what: str):
        "A part of a finding: what it raises is a row, and the finding goes on."
        try: yield
        except Exception as error:
            traceback.print_exc()
            self.tell(what, error=last_line(error))

    def wait(self) -> None:
        if self.device.type == "cuda": torch.cuda.synchronize()

    def seconds(self, call: Callable, repeats: int = 1, warm: int = 1) -> float:
        "Median wall time of a call, the device waited for, after `warm` calls."
        for _ in range(warm): call()
        times = []
        for _ in range(repeats):
            self.wait()
            begun = time.perf_counter()
            call()
            self.wait()
            times.append(time.perf_counter() - begun)
        return float(np.median(times))

    def forget(self) -> None:
        "From here on the peak of memory counts anew."
        if self.device.type != "cuda": return
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    @property
    def peak(self) -> float: # GB
        return torch.cuda.max_memory_allocated()/1e9 if self.device.type == "cuda" else math.nan


def last_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def draws(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pictures(n: int, side: int, seed: int = 0) -> torch.Tensor: # (n, 3, side, side) in [0, 1]
    "Soft random pictures."
    small = torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(small, size=(side, side), mode="bilinear").clamp(0, 1)


def rates(out: Path) -> dict[str, float]: # kind of product -> FLOP/s
    "What the finding `rates` measured."
    path = out/"rates.jsonl"
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
    return {row["what"]: row["TFLOP/s"]*1e12 for row in rows if "TFLOP/s" in row}


# findings

def card(kit: Kit) -> None:
    "Which card and which versions."
    import torchmetrics
    import transformers

    import invariant_metrics
    versions = dict(package=invariant_metrics.__version__, torch=torch.__version__,
                    transformers=transformers.__version__, torchmetrics=torchmetrics.__version__,
                    python=".".join(map(str, sys.version_info[:3])))
    if kit.device.type == "cpu": return kit.tell("card", name="no card", date=str(date.today()), **versions)
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    shape = torch.cuda.get_device_properties(0)
    kit.tell("card", name=shape.name, memory_GB=shape.total_memory/1e9, driver=driver, cuda=torch.version.cuda,
             cudnn=torch.backends.cudnn.version(), processors=os.cpu_count(), date=str(date.today()), **versions)


def rates_found(kit: Kit) -> None:
    "What the card reaches: matrix products, and copies."
    n = kit.size(8192, 64)
    def product(name, kind, tf32=False, n=n):
        a, b = (draws(n, n, seed=seed).to(kit.device, kind) for seed in (0, 1))
        torch.backends.cuda.matmul.allow_tf32 = tf32
        seconds = kit.seconds(lambda: a @ b, 10, 3)
        torch.backends.cuda.matmul.allow_tf32 = False
        kit.tell(name, **{"TFLOP/s": 2*n**3/seconds/1e12, "ms": 1e3*seconds})
    product("bfloat16", torch.bfloat16)
    product("float16", torch.float16)
    product("float32", torch.float32)
    product("float32 with TF32", torch.float32, tf32=True)
    product("float64", torch.float64)
    x = torch.empty(kit.size(2**30, 2**10), dtype=torch.float32, device=kit.device)
    y = torch.empty_like(x)
    seconds = kit.seconds(lambda: y.copy_(x), 10, 3)
    kit.tell("copy on the device", **{"TB/s": 2*x.nbytes/seconds/1e12})
    from_memory = torch.empty(kit.size(2**28, 2**10), dtype=torch.uint8)
    for name, source in {"pageable": from_memory, "pinned": from_memory if kit.dry else from_memory.pin_memory()}.items():
        seconds = kit.seconds(lambda: source.to(kit.device, non_blocking=True), 5, 2)
        kit.tell(f"copy to the device, {name}", **{"GB/s": source.nbytes/seconds/1e9})


def tests(kit: Kit) -> None:
    "Every test marked `cuda`."
    marked = [str(p.relative_to(HERE.parent)) for p in sorted((HERE.parent/"tests").rglob("test_*.py"))
              if "mark.cuda" in p.read_text(encoding="utf-8")]
    report = kit.out/"tests.xml"
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "-o", "addopts=", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", "--tb=short",
               "--durations=5", f"--junitxml={report}", *kit.size(marked, ["tests/house/test_cuda.py", "-k", "replicates"])]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    print(done.stdout[-6000:], done.stderr[-1000:], flush=True)
    counts = dict(passed=0, failed=0, skipped=0)
    for case in ET.parse(report).iter("testcase"):
        wrong = next((part for part in case if part.tag in ("failure", "error")), None)
        kind = "failed" if wrong is not None else "skipped" if case.find("skipped") is not None else "passed"
        counts[kind] += 1
        if wrong is not None: kit.tell(case.get("name"), error=" ".join(wrong.get("message", "").split())[-300:])
    kit.tell("all tests", **counts)


def agreement_measures(kit: Kit) -> dict[str, Callable]:
    "By name: a device to numbers."
    import invariant_metrics as im
    from invariant_metrics.encoders.encoder import get_encoder
    from invariant_metrics.encoders.store import extract_features
    from invariant_metrics.metrics.cmmd import cmmd_distance, moment_value, _unit_moments
    from invariant_metrics.metrics.frechet import frechet_distance
    from invariant_metrics.metrics.gaussian import GaussianStats
    from invariant_metrics.metrics.inception_score import inception_score
    from invariant_metrics.metrics.kernel import RBF, Polynomial
    from invariant_metrics.metrics.mmd import mmd2
    from invariant_metrics.metrics.named import kid_distance
    from invariant_metrics.metrics.neighbors import neighbor_scores
    from invariant_metrics.worlds.scenes import make_scenes
    n, d = kit.size((5000, 2048), (60, 8))
    mix = draws(d, d, seed=3)/d**0.5
    a, b = draws(n, d)@mix, draws(n, d, seed=1)@mix*1.1 + 0.1
    few = n//3
    rgb = make_scenes(kit.size(256, 12), size=64, seed=0).rgb
    faded = (0.9*rgb + 0.02).clamp(0, 1)
    def both(device): return a.to(device), b.to(device)
    def of_rows(device): return frechet_distance(a[:few].to(device), b[:few].to(device))
    def of_all_rows(device): return frechet_distance(*both(device))
    def of_moments(device): return frechet_distance(*(GaussianStats.of(x.split(1000)) for x in both(device)))
    def neighbors(device): return [*neighbor_scores(*both(device)).values()]
    def features(name, device, **options): return extract_features(rgb[:24] if options else rgb, get_encoder(name, device=device, **options))
    def scored(name, device):
        found = im.score(faded, rgb, [name], ci=False, device=device, cache=False)
        return float(found[name])
    names = ("psnr", "fd", "ssim", "lpips-embedded", "encoder-distance", "cmmd-embedded", "precision", "recall", "violation-segmentation",
             "violation-depth", "violation-edges", "colorfulness")[:kit.size(12, 2)]
    return {"fd, few rows": of_rows, "fd, rows": of_all_rows, "fd, moments": of_moments,
            "kid": lambda device: kid_distance(*both(device)), "mmd, polynomial": lambda device: mmd2(*both(device), kernel=Polynomial()),
            "mmd, RBF": lambda device: mmd2(*both(device), kernel=RBF(d**0.5)), "cmmd": lambda device: cmmd_distance(*both(device)),
            "cmmd, moments": lambda device: moment_value(*map(_unit_moments, both(device))), "precision, recall, density, coverage": neighbors,
            "inception score": lambda device: inception_score(a.to(device)),
            "features, embedded": partial(features, "embedded"),
            **({} if kit.dry else {f"features, {name}": partial(features, name, untrained=True) for name in ("inception",)}),
            **{f"score, {name}": partial(scored, name) for name in names}}


def same(kit: Kit) -> None:
    "How far the GPU is from the CPU, without the shortened products of TF32 and with those that torch allows in convolutions."
    def numbers(found) -> torch.Tensor:
        if isinstance(found, torch.Tensor): return found.detach().double().cpu().flatten()
        return torch.tensor(found, dtype=torch.float64).flatten()
    for name, measure in agreement_measures(kit).items():
        with kit.part(name):
            began = time.perf_counter()
            here = numbers(measure("cpu"))
            mid = time.perf_counter()
            found = {}
            for tf32 in (False, True):
                torch.backends.cudnn.allow_tf32 = tf32
                begun = time.perf_counter()
                there = numbers(measure(str(kit.device)))
                again = time.perf_counter() - begun
                found[tf32] = float((there - here).norm()/here.norm().clamp(min=1e-300)), float((there - here).abs().max())
            kit.tell(name, **{"relative difference": found[False][0], "largest": found[False][1],
                              "relative difference with TF32": found[True][0], "CPU s": mid - began, "GPU s": again})


# training

@dataclass
class Task:
    "A network with its loss and its data."
    make: Callable    # -> network on the CPU
    loss: Callable    # (network, batch) -> terms
    batches: Callable # number -> batch
    items: int        # in a batch
    moved: Callable | None = None # (network on its device) -> turns; None: the network alone

    def turns(self, model) -> list:
        from invariant_metrics.training.loop import Turn
        return self.moved(model) if self.moved else [Turn(model, self.loss)]


def step_flops(kit: Kit, task: Task, precision: str) -> float: # floating-point operations of matrix products and convolutions
    from torch.utils.flop_counter import FlopCounterMode

    from invariant_metrics.training.batches import to_device
    from invariant_metrics.training.loop import PRECISIONS, total, weighted
    model = task.make().to(kit.device).train()
    batch = to_device(task.batches(0), kit.device)
    half = PRECISIONS[precision]
    with FlopCounterMode(display=False) as counter, torch.autocast(kit.device.type, half, enabled=half is not None):
        for turn in task.turns(model): total(weighted(turn.loss(turn.model, batch))).backward()
    return float(counter.get_total_flops())


def train(kit: Kit, task: Task, steps: int, warm: int, change: Callable = lambda model: model, **options) -> dict:
    "Steps a second of `fit` after `warm` steps, the share of waiting for batches, and the peak of memory."
    from invariant_metrics.training import loop
    clock = {"waited": 0.0}
    prepare = loop.prepare_ahead
    def watched(batches, numbers, workers):
        coming = prepare(batches, numbers, workers)
        for i in range(steps):
            if i == warm:
                kit.wait()
                clock.update(waited=0.0, begun=time.perf_counter())
            begun = time.perf_counter()
            batch = next(coming)
            clock["waited"] += time.perf_counter() - begun
            yield batch
    kit.forget()
    model = change(task.make().to(kit.device))
    with mock.patch.object(loop, "prepare_ahead", watched): loop.fit(task.turns(model), task.batches, steps, **options)
    kit.wait()
    taken = time.perf_counter() - clock["begun"]
    rate = (steps - warm)/taken
    return {"steps/s": rate, "items/s": rate*task.items, "share of waiting": clock["waited"]/taken, "peak GB": kit.peak}


def tell_training(kit: Kit, what: str, task: Task, steps: int, warm: int, flops: float | None = None, **options) -> None:
    with kit.part(what):
        found = train(kit, task, steps, warm, **options)
        full = rates(kit.out).get("bfloat16")
        if flops is not None:
            found["TFLOP/s"] = flops*found["steps/s"]/1e12
            if full: found["share of the bfloat16 rate"] = flops*found["steps/s"]/full
        kit.tell(what, **found)


def colorizer_task(kit: Kit, side: int, batch: int, width: int, invariants: tuple[str, ...] = (), cached: bool = False) -> Task:
    from invariant_metrics.invariants.invariant import get_invariant
    from invariant_metrics.models.colorizer import UNetColorizer
    from invariant_metrics.training.augmented import AugmentedLoss, TargetCache, color_batches
    rgb = pictures(kit.size(8, 2)*batch, side)
    terms = {name: (get_invariant(name, device=str(kit.device)), 0.1) for name in invariants}
    caches = {name: TargetCache(g, rgb, limit=4000.0) for name, (g, _) in terms.items()} if cached else None
    return Task(lambda: UNetColorizer(width), AugmentedLoss(terms), color_batches(rgb, batch, caches=caches), batch)


def pupil_task(kit: Kit, stage: str) -> Task:
    from invariant_metrics.models.multiplexed import LClip, LClipConfig, tiny_lclip
    from invariant_metrics.training.distillation import PairData, _Pupil, StagePlan, _stage_batches, _stage_loss, teacher_heads
    config = kit.size(LClipConfig(), tiny_lclip())
    batch = kit.size(1024 if stage == "vision" else 512, 4)
    n = 2*batch
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n, 3, config.image, config.image), generator=generator, dtype=torch.uint8)
    tokens = torch.randint(1, config.vocabulary - 1, (n, config.context), generator=generator)
    tokens[:, -1] = config.vocabulary - 1
    data = PairData(pixels, tokens, tuple(f"text {i}" for i in range(n)), {"teacher": draws(1, n, config.dim)}, {"teacher": draws(n, config.dim)})
    plan = StagePlan(batch=batch, freeze_text=False)
    def make():
        torch.manual_seed(0)
        pupil = _Pupil(LClip(config), teacher_heads(data.teachers, config.dim))
        pupil.log_scale.requires_grad_(False)
        if stage == "vision": pupil.student.text.requires_grad_(False)
        return pupil
    return Task(make, _stage_loss(stage, plan), _stage_batches(data, stage, batch, 0, 1, int), batch)


def words_of(entries: int):
    from invariant_metrics.models.text_networks import Vocabulary
    return Vocabulary(("",)*4 + tuple(f"w{i}" for i in range(entries - 4)))


def some_texts(n: int, words: int, entries: int, seed: int) -> torch.Tensor: # (n, words + 2) BOS … EOS
    from invariant_metrics.models.text_networks import BOS, EOS
    ids = torch.randint(4, entries, (n, words), generator=torch.Generator().manual_seed(seed))
    return F.pad(F.pad(ids, (1, 0), value=BOS), (0, 1), value=EOS)


def translator_task(kit: Kit, size: str, entries: int, batch: int, words: int) -> Task:
    from invariant_metrics.models.generators import translators
    from invariant_metrics.training.text_training import augmented_text, text_batches
    vocabulary = words_of(entries)
    source, tokens = (some_texts(8*batch, words, entries, seed) for seed in (0, 1))
    return Task(lambda: translators[size](vocabulary, vocabulary), augmented_text(vocabulary),
                text_batches({"source": source}, tokens, vocabulary, batch), batch)


def captioner_task(kit: Kit, size: str, entries: int, batch: int, words: int) -> Task:
    from invariant_metrics.models.generators import captioners
    from invariant_metrics.training.text_training import augmented_text, text_batches
    vocabulary = words_of(entries)
    width, regions = kit.size((2048, 49), (16, 4))
    features, tokens = draws(4*batch, regions, width), some_texts(4*batch, words, entries, 1)
    return Task(lambda: captioners[size](width, vocabulary), augmented_text(vocabulary),
                text_batches({"features": features}, tokens, vocabulary, batch), batch)


def some_invariants(kit: Kit, names: tuple[str, ...]) -> dict: # name -> (g, weight)
    from invariant_metrics.invariants.invariant import get_invariant
    return {name: (get_invariant(name, device=str(kit.device)), 0.1) for name in names}


def ddcolor_task(kit: Kit, names: tuple[str, ...]) -> Task:
    "DDColor with its critic and its losses; the perceptual one has random weights."
    from invariant_metrics.color import split_lab
    from invariant_metrics.models.colorizer import colorizers
    from invariant_metrics.training import color_recipes
    side, batch = kit.size((256, 16), (32, 2))
    size = kit.size("full", "tiny")
    perceptual = color_recipes.PerceptualDistance(size).to(kit.device)
    with mock.patch.object(color_recipes, "perceptual_distance", lambda *given: perceptual): recipe = color_recipes.color_recipe("ddcolor", size)
    rgb = pictures(4*batch, side)
    def batches(i): # as a study makes them
        L, ab = split_lab(rgb[torch.arange(i*batch, (i + 1)*batch) % len(rgb)])
        return {"L": L, "ab": ab}
    added = some_invariants(kit, names)
    def turns(model):
        critic = recipe.critic(0).to(kit.device)
        return recipe.turns(model, critic, recipe.loss(critic, added))
    return Task(lambda: colorizers["ddcolor"](seed=0, size=size), None, batches, batch, turns)


def bisimcut_task(kit: Kit, names: tuple[str, ...]) -> Task:
    from invariant_metrics.models.generators import translators
    from invariant_metrics.training.text_recipes import translation_recipe
    from invariant_metrics.training.text_training import text_batches
    entries, batch, words = kit.size((10_000, 160, 25), (20, 4, 5))
    size, vocabulary = kit.size("full", "tiny"), words_of(entries)
    source, tokens = (some_texts(8*batch, words, entries, seed) for seed in (0, 1))
    loss = translation_recipe("bisimcut", size).loss(vocabulary, some_invariants(kit, names))
    return Task(lambda: translators["bisimcut"](vocabulary, vocabulary, size=size), loss, text_batches({"source": source}, tokens, vocabulary, batch), batch)


def smallcap_task(kit: Kit, names: tuple[str, ...]) -> Task:
    from invariant_metrics.models.generators import captioners
    from invariant_metrics.training.caption_recipes import caption_recipe
    from invariant_metrics.training.text_training import text_batches
    entries, batch, words = kit.size((50_257, 64, 12), (20, 4, 5))
    width, places, prompt = kit.size((768, 50, 60), (16, 4, 6))
    size, vocabulary = kit.size("full", "tiny"), words_of(entries)
    inputs = {"features": draws(4*batch, places, width), "prompt": some_texts(4*batch, prompt, entries, 2)}
    loss = caption_recipe("smallcap", size).loss(vocabulary, some_invariants(kit, names))
    return Task(lambda: captioners["smallcap"](width, vocabulary, size=size), loss,
                text_batches(inputs, some_texts(4*batch, words, entries, 1), vocabulary, batch), batch)


PUBLISHED = { # network -> its task with some invariants, and the two it may have
    "DDColor": (ddcolor_task, ("segmentation", "depth")), "Bi-SimCut": (bisimcut_task, ("entities", "sentiment")),
    "SmallCap": (smallcap_task, ("entities", "paraphrase"))}


def published(kit: Kit) -> None:
    "A step of published networks with none, one and both of their invariants; and of the plain one in each way."
    steps, warm = kit.size((30, 10), (2, 1))
    def in_layout(model): return model.to(memory_format=torch.channels_last)
    ways = {"bfloat16": dict(precision="bf16"), "float32": dict(precision="fp32"), "float16": dict(precision="fp16"),
            "bfloat16, averaged": dict(precision="bf16", ema=0.999),
            "bfloat16, blocks computed twice": dict(precision="bf16", checkpointing=True)}
    for name, (make, names) in PUBLISHED.items():
        with kit.part(name):
            task = make(kit, ())
            flops = kit.size(step_flops, lambda *given: None)(kit, task, "fp32")
            for way, options in kit.size(ways, {}).items(): tell_training(kit, f"{name}, {way}", task, steps, warm, flops, **options)
            if name == "DDColor" and not kit.dry:
                tell_training(kit, f"{name}, bfloat16, channels-last", task, steps, warm, flops, precision="bf16", change=in_layout)
                tell_training(kit, f"{name}, bfloat16, no threads", task, steps, warm, flops, precision="bf16", workers=0)
        for added in kit.size((names[:1], names), (names,)):
            with kit.part(f"{name} with {' and '.join(added)}"):
                task = make(kit, added)
                tell_training(kit, f"{name}, bfloat16, with {' and '.join(added)}", task, steps, warm, step_flops(kit, task, "fp32"),
                              precision="bf16", checkpointing=kit.dry)


def aside(kit: Kit) -> None:
    "Held-out pictures measured while a colorizer trains: never, between steps, and in a thread."
    from invariant_metrics.models.beside import Watch
    side, batch = kit.size((256, 32), (16, 2))
    task = colorizer_task(kit, side, batch, kit.size(20, 4))
    held_out = pictures(kit.size(256, 4), side, seed=1)
    def measure(model):
        from invariant_metrics.color import split_lab
        L, ab = split_lab(held_out)
        found = torch.cat([model(part.to(kit.device)).cpu() for part in L.split(32)])
        return {"error": float((found - ab).abs().mean())}
    steps, every = kit.size((80, 20), (4, 2))
    logs = {}
    for what, watch in {"no look at held-out data": None, "between steps": Watch(every, measure), "in a thread": Watch(every, measure, True)}.items():
        with kit.part(what):
            begun = time.perf_counter()
            from invariant_metrics.training.loop import fit
            logs[what] = log = fit(task.turns(task.make().to(kit.device)), task.batches, steps, precision="fp32", watch=watch)
            kit.tell(what, **{"seconds": time.perf_counter() - begun, "share of waiting": log.attrs["waiting"]})
    here, there = (logs[what].query("turn == 'validation'")["value"].to_numpy() for what in ("between steps", "in a thread"))
    kit.tell("held-out numbers", **{"largest relative difference": float(np.abs(here/there - 1).max())})


def full_size_tasks(kit: Kit) -> dict[str, Callable]: # name -> () -> Task
    side, batch = kit.size((256, 32), (16, 2))
    return {"colorizer of width 20": lambda: colorizer_task(kit, side, batch, kit.size(20, 4)),
            "colorizer of width 128": lambda: colorizer_task(kit, side, batch, kit.size(128, 6)),
            "L-CLIP, pictures": lambda: pupil_task(kit, "vision"), "L-CLIP, pairs": lambda: pupil_task(kit, "pair"),
            "translator iwslt": lambda: translator_task(kit, kit.size("iwslt", "small"), *kit.size((10_000, 128, 32), (20, 4, 5))),
            "captioner base": lambda: captioner_task(kit, kit.size("base", "small"), *kit.size((10_000, 64, 20), (20, 4, 5)))}


def training(kit: Kit) -> None:
    "A step of each network at full size, in float32 and in bfloat16, and of the colorizer in another layout."
    steps, warm = kit.size((40, 15), (4, 2))
    for name, make in full_size_tasks(kit).items():
        with kit.part(name):
            task = make()
            flops = step_flops(kit, task, "fp32")
            for mode in ("float32", "bfloat16"): tell_training(kit, f"{name}, {mode}", task, steps, warm, flops, precision=MODES[mode])
            if "colorizer" in name:
                def plain(model): return model.to(memory_format=torch.contiguous_format)
                tell_training(kit, f"{name}, bfloat16, not channels-last", task, steps, warm, flops, precision="bf16", change=plain)
                torch.backends.cudnn.benchmark = True
                tell_training(kit, f"{name}, bfloat16, cudnn.benchmark", task, steps, warm, flops, precision="bf16")
                torch.backends.cudnn.benchmark = False


def invariants(kit: Kit) -> None:
    "A step of the colorizer with one invariant and with both, whose targets are kept or computed."
    steps, warm = kit.size((40, 15), (4, 2))
    side, batch = kit.size((256, 32), (16, 2))
    for names in (("segmentation",), ("depth",), ("segmentation", "depth")):
        for cached in (False, True):
            what = f"colorizer of width 20, bfloat16, {' and '.join(names)}, targets {'kept' if cached else 'computed'}"
            with kit.part(what):
                task = colorizer_task(kit, side, batch, kit.size(20, 4), names, cached)
                tell_training(kit, what, task, steps, warm, precision="bf16")


def compiled(kit: Kit) -> None:
    "The same through torch.compile, the time of compiling aside."
    steps, warm = kit.size((60, 30), (4, 2))
    whole = {} if kit.dry else {name: partial(make, kit, ()) for name, (make, _) in PUBLISHED.items()}
    for name, make in {**whole, **full_size_tasks(kit)}.items():
        with kit.part(name):
            task = make()
            flops = step_flops(kit, task, "fp32")
            begun = time.perf_counter()
            tell_training(kit, f"{name}, bfloat16, compiled", task, steps, warm, flops, precision="bf16", compile=not kit.dry)
            kit.tell(f"{name}, all of it", seconds=time.perf_counter() - begun)


def looks(kit: Kit) -> None:
    "The loop of a study: a look at every step or at every tenth, and batches prepared ahead or not."
    steps, warm = kit.size((200, 60), (12, 2))
    tasks = {"colorizer, 64 pixels": lambda: colorizer_task(kit, *kit.size((64, 32, 20), (16, 2, 4))),
             "translator small": lambda: translator_task(kit, "small", *kit.size((500, 32, 12), (20, 4, 5)))}
    for name, make in tasks.items():
        with kit.part(name):
            task = make()
            for precision in kit.size(("fp32", "bf16"), ("bf16",)):
                for look in (1, 10):
                    for workers in (0, 2):
                        what = f"{name}, {precision}, a look every {look}, {workers} threads"
                        tell_training(kit, what, task, steps, warm, precision=precision, look_every=look, workers=workers)


def step(kit: Kit) -> None:
    "Where the time of a step of a small network goes: its parts, each alone."
    from invariant_metrics.models.colorizer import seeded
    from invariant_metrics.training.batches import to_device
    from invariant_metrics.training.loop import FitPlan, Turn, take_turn, _take_turn_unseen, total, weighted
    tasks = {"colorizer, 64 pixels": lambda: colorizer_task(kit, *kit.size((64, 32, 20), (16, 2, 4))),
             "translator small": lambda: translator_task(kit, "small", *kit.size((500, 32, 12), (20, 4, 5)))}
    repeats = kit.size(30, 2)
    for name, make in tasks.items():
        task = make()
        turn = Turn(task.make().to(kit.device).train(), task.loss)
        optimizer = torch.optim.AdamW(turn.parameters().values(), 1e-4, fused=True)
        batch, broken = task.batches(0), torch.zeros((), device=kit.device)
        here = to_device(batch, kit.device)
        def slope(half=None):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(kit.device.type, half, enabled=half is not None): value = total(weighted(task.loss(turn.model, here)))
            value.backward()
        def seed():
            with seeded(0, "model", 1, device=kit.device): pass
        plan = FitPlan(10**6)
        parts = {"batch": lambda: task.batches(0), "to the device": lambda: to_device(batch, kit.device), "seed": seed, "slope": slope,
                 "slope, bfloat16": lambda: slope(torch.bfloat16), "clip": lambda: torch.nn.utils.clip_grad_norm_([*turn.parameters().values()], 1.0),
                 "optimizer": optimizer.step, "whole turn, looked at": lambda: take_turn(turn, turn.model, optimizer, {0: here}, 5, plan),
                 "whole turn, not looked at": lambda: _take_turn_unseen(turn, turn.model, optimizer, {0: here}, 5, plan, broken)}
        for part, call in parts.items():
            with kit.part(f"{name}, {part}"): kit.tell(f"{name}, {part}", ms=1e3*kit.seconds(call, repeats, 3))
        with kit.part(f"{name}, ten turns"):
            def ten():
                for _ in range(10): parts["whole turn, not looked at"]()
            kit.tell(f"{name}, ten turns not looked at", ms=1e3*kit.seconds(ten, 3, 1))


# resumption and overflow

RUNS = {"colorizer, float32": ("colorizer", "fp32", False), "translator with dropout, float32": ("translator", "fp32", False),
        "translator with dropout, bfloat16": ("translator", "bf16", False), "translator with dropout, float16": ("translator", "fp16", False),
        "colorizer, float32, deterministic": ("colorizer", "fp32", True), "translator with dropout, bfloat16, deterministic": ("translator", "bf16", True)}


def runs(kit: Kit) -> list[str]: return list(RUNS)[-1:] if kit.dry else list(RUNS)


def run_once(kit: Kit, name: str, folder: Path, kill: bool = False) -> None:
    "Train into a folder; with `kill` the process dies in the middle of it."
    from invariant_metrics.training.loop import Turn, fit
    kind, precision, deterministic = RUNS[name]
    torch.use_deterministic_algorithms(deterministic)
    make = {"colorizer": lambda: colorizer_task(kit, *kit.size((64, 16, 20), (16, 2, 4)), ("segmentation",)),
            "translator": lambda: translator_task(kit, "small", *kit.size((500, 32, 12), (20, 4, 5)))}[kind]
    task = make()
    def batches(i):
        if kill and i == 27: os.kill(os.getpid(), signal.SIGKILL)
        return task.batches(i)
    fit(Turn(task.make().to(kit.device), task.loss), batches, 40, folder=folder, save_every=10, precision=precision)
    torch.use_deterministic_algorithms(False)


def run_many(kit: Kit, home: Path, which: tuple[str, ...]) -> None:
    for name in runs(kit):
        for kind in which:
            with kit.part(f"{name}, {kind}"): run_once(kit, name, home/kind/name)


def in_process(call: Callable, *args) -> int: # its exit code
    child = multiprocessing.get_context("fork").Process(target=call, args=args)
    child.start()
    child.join()
    return child.exitcode


def resume(kit: Kit) -> None:
    "Runs that are killed and go on, against undisturbed ones; and these against each other."
    from safetensors.torch import load_file
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        in_process(run_many, kit, home, ("whole", "again"))
        codes = {name: in_process(run_once, kit, name, home/"killed"/name, True) for name in runs(kit)}
        in_process(run_many, kit, home, ("killed",))
        for name in runs(kit):
            with kit.part(name):
                whole, again, killed = (load_file(home/kind/name/"checkpoint.safetensors") for kind in ("whole", "again", "killed"))
                def apart(other): return max(float((whole[k].double() - other[k].double()).abs().max()) for k in whole if whole[k].numel())
                kit.tell(name, exit_code=codes[name], **{"resumed, largest difference": apart(killed), "repeated, largest difference": apart(again)})


def overflow(kit: Kit) -> None:
    "What the loop does where float16 overflows, and where a loss is not a number."
    from invariant_metrics.core import InputError
    from invariant_metrics.training.loop import Optim, Turn, fit
    def network():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(kit.device)
    def loss(model, batch):
        error = (model(batch["x"]) - batch["x"].sum(1, keepdim=True)).float().square().mean()
        return {"task": error*batch["factor"]}
    def batches_with(odd: dict[int, float]):
        def at(i): return {"x": draws(32, 8, seed=i), "factor": torch.tensor(odd.get(i, 1.0))}
        return at
    with kit.part("float16 overflows at steps 5, 6 and 20"):
        model = network()
        log = fit(Turn(model, loss, Optim(warmup=1)), batches_with({5: 1e6, 6: 1e6, 20: 1e6}), 40, precision="fp16")
        terms = log.pivot(index="step", columns="term", values="value")
        skipped = [int(step) for step in terms.index[terms["skipped"] > 0]]
        kit.tell("float16 overflows at steps 5, 6 and 20", skipped=skipped, scale_first=float(terms["loss scale"].iloc[0]),
                 scale_last=float(terms["loss scale"].iloc[-1]), finite=all(bool(p.isfinite().all()) for p in model.parameters()),
                 loss_first=float(terms["task"].iloc[0]), loss_last=float(terms["task"].iloc[-1]))
    for look in (1, 10):
        what = f"a loss that is not a number at step 13, a look every {look}"
        with kit.part(what), tempfile.TemporaryDirectory() as folder:
            model, before = network(), network()
            fit(Turn(before, loss, Optim(warmup=1, schedule="constant")), batches_with({}), 13, precision="fp32", look_every=look)
            turn, options = Turn(model, loss, Optim(warmup=1, schedule="constant")), dict(precision="fp32", look_every=look, folder=folder)
            try: fit(turn, batches_with({13: math.nan}), 40, **options)
            except InputError as error: says = str(error).replace(str(folder), "FOLDER")
            moved = max(float((p - q).abs().max()) for p, q in zip(model.parameters(), before.parameters()))
            kit.tell(what, says=says, moved=moved)


# speed of metrics

def stream(kit: Kit) -> None:
    "A million rows of 2048 features through GaussianStats, against plain products of as many operations."
    from invariant_metrics.metrics.frechet import frechet_distance, frechet_terms
    from invariant_metrics.metrics.gaussian import GaussianStats
    n, d, chunk = kit.size((1_000_000, 2048, 20_000), (400, 16, 100))
    mix = (draws(d, d, seed=3)/d**0.5).to(kit.device)
    generator = torch.Generator(kit.device)
    def chunks(seed):
        generator.manual_seed(seed)
        for _ in range(n//chunk): yield torch.randn(chunk, d, generator=generator, device=kit.device)
    def correlated(seed): return (x @ mix + 0.01*seed for x in chunks(seed))
    with kit.part("drawing alone"): kit.tell("drawing alone", seconds=kit.seconds(lambda: [None for _ in chunks(0)]))
    with kit.part("statistics"):
        kit.forget()
        x = next(iter(chunks(0)))
        def absorb(parts=0):
            stats = GaussianStats(parts)
            for _ in range(n//chunk): stats.update(x)
            return stats.cov
        for parts in (0, 8):
            seconds = kit.seconds(lambda: absorb(parts))
            kit.tell(f"statistics, {parts} parts", seconds=seconds, **{"rows/s": n/seconds, "TFLOP/s": 2*n*d*d/seconds/1e12, "peak GB": kit.peak})
    for kind in (torch.float64, torch.float32):
        with kit.part(f"plain products, {kind}"):
            x = next(iter(chunks(0))).to(kind)
            def products():
                total = torch.zeros(d, d, dtype=kind, device=kit.device)
                for _ in range(n//chunk): total.addmm_(x.T, x)
            seconds = kit.seconds(products)
            kit.tell(f"plain products, {str(kind).removeprefix('torch.')}", seconds=seconds, **{"TFLOP/s": 2*n*d*d/seconds/1e12})
    a, b = (GaussianStats.of(correlated(seed)) for seed in (1, 2))
    with kit.part("the distance of two statistics"):
        here = kit.seconds(lambda: frechet_distance(a, b), 3)
        p, q = a.to("cpu"), b.to("cpu")
        cpu = kit.seconds(lambda: frechet_distance(p, q), 1)
        there, value = frechet_terms(a, b), frechet_distance(p, q)
        kit.tell("the distance of two statistics", **{"GPU s": here, "CPU s": cpu, "relative difference": abs(there.value/value - 1), "way": there.route})
    cov = a.cov
    with kit.part("eigenvalues"):
        for name, call in {"eigenvalues": torch.linalg.eigvalsh, "eigenvectors": torch.linalg.eigh, "Cholesky": torch.linalg.cholesky}.items():
            there = kit.seconds(lambda: call(cov), 3)
            here = kit.seconds(lambda: call(cov.cpu()), 1)
            kit.tell(f"{name} of {d}", **{"GPU s": there, "CPU s": here})


def bert_folder(kit: Kit, folder: Path) -> Path:
    from tiny_networks import WORDS, save_tiny
    if kit.dry: save_tiny(folder, longest=40)
    else:
        import transformers
        transformers.AutoModel.from_config(transformers.AutoConfig.for_model("bert")).save_pretrained(folder)
        transformers.BertTokenizerFast(vocab={w: i for i, w in enumerate(WORDS)}, model_max_length=512).save_pretrained(folder)
    return folder


def clip_folder(kit: Kit, folder: Path) -> Path:
    from tiny_networks import save_clip
    save_clip(folder)
    if kit.dry: return folder
    import transformers
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    ids = dict(bos_token_id=1, eos_token_id=len(tokenizer) - 1, pad_token_id=0)
    config = transformers.CLIPConfig(text_config=dict(max_position_embeddings=96, **ids)) # else ViT-B/32
    transformers.CLIPModel(config).save_pretrained(folder)
    (folder/"preprocessor_config.json").write_text('{"size": {"height": 224, "width": 224}}')
    return folder


class Features(torch.nn.Module):
    "transformers' CLIP as torchmetrics expects it: features as tensors."
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.config = net.config

    def get_image_features(self, x): return self.net.get_image_features(x).pooler_output

    def get_text_features(self, ids, mask): return self.net.get_text_features(ids, mask).pooler_output


def captions(kit: Kit) -> None:
    "BERTScore and CLIPScore of networks of the usual size with random weights, beside other programs."
    import transformers

    import invariant_metrics as im
    from invariant_metrics.metrics.metric import get_metric
    from invariant_metrics.worlds.scene_text import captions as said
    from invariant_metrics.worlds.scenes import make_scenes
    from tiny_networks import WORDS
    device = str(kit.device)
    n = kit.size(4000, 8)
    rng = np.random.default_rng(0)
    def sentence(): return " ".join(rng.choice(WORDS[5:], rng.integers(8, 16)))
    pred, target = ([sentence() for _ in range(n)] for _ in range(2))
    with tempfile.TemporaryDirectory() as home:
        folder = bert_folder(kit, Path(home)/"bert")
        layer = kit.size(9, 2)
        metric = get_metric("bertscore", weights=str(folder), layer=layer, device=device)
        def only(found): return float([*found.values()][0])
        def ours(): return only(im.score(pred, target, [metric], ci=False, cache=False))
        with kit.part("BERTScore, this package"):
            seconds = kit.seconds(ours)
            kit.tell("BERTScore, this package", **{"pairs/s": n/seconds, "mean": ours()})
        with kit.part("BERTScore, bert-score"):
            import bert_score
            scorer = bert_score.BERTScorer(model_type=str(folder), num_layers=layer, batch_size=64, device=device)
            seconds = kit.seconds(lambda: scorer.score(pred, target))
            kit.tell("BERTScore, bert-score", **{"pairs/s": n/seconds, "mean": float(scorer.score(pred, target)[2].mean())})
        m = kit.size(1000, 6)
        scenes = make_scenes(m, size=64, seed=5)
        texts = [said(scenes, i)[0] for i in range(m)]
        side = kit.size(224, 64)
        rgb = F.interpolate(scenes.rgb, size=(side, side))
        folder = clip_folder(kit, Path(home)/"clip")
        for name, images in {"float": rgb, "uint8": (255*rgb).round().byte()}.items():
            with kit.part(f"CLIPScore, this package, {name}"):
                metric = get_metric("clipscore", weights=str(folder), device=device)
                def ours(): return only(im.score(texts, None, [metric], source=images, ci=False, cache=False))
                seconds = kit.seconds(ours)
                kit.tell(f"CLIPScore, this package, {name}", **{"pairs/s": m/seconds, "mean": ours()})
        with kit.part("CLIPScore, torchmetrics"):
            from torchmetrics.multimodal.clip_score import CLIPScore
            network = Features(transformers.CLIPModel.from_pretrained(folder))
            shape = dict(size={"height": side, "width": side}, crop_size={"height": side, "width": side})
            tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
            processor = transformers.CLIPProcessor(transformers.CLIPImageProcessor(**shape), tokenizer)
            metric = CLIPScore(lambda: (network, processor)).to(device)
            images = [*(255*rgb).round().byte()]
            def theirs():
                metric.reset()
                for i in range(0, m, 64): metric.update(images[i:i + 64], texts[i:i + 64])
                return metric.compute()
            seconds = kit.seconds(theirs)
            kit.tell("CLIPScore, torchmetrics", **{"pairs/s": m/seconds, "mean": float(theirs())})
        with kit.part("BERTScore, torchmetrics"):
            from torchmetrics.functional.text import bert_score as theirs
            few = n//4
            def run(): return theirs(pred[:few], target[:few], model_name_or_path=str(Path(home)/"bert"), num_layers=layer, batch_size=64, device=device)
            seconds = kit.seconds(run, warm=0)
            kit.tell("BERTScore, torchmetrics", **{"pairs/s": few/seconds})


def encoders(kit: Kit) -> None:
    "Pictures a second of encoders with random weights: as they come, in bfloat16, in another layout, and through the store."
    from invariant_metrics.encoders.encoder import FasterEncoder, get_encoder
    from invariant_metrics.encoders.store import extract_features
    full = (("inception", 299, 512), ("embedded", 64, 4096))
    for name, side, n in kit.size(full, (("embedded", 64, 6),)):
        with kit.part(name):
            untrained = {} if name == "embedded" else dict(untrained=True)
            encoder = get_encoder(name, device=str(kit.device), **untrained)
            x = encoder.prepare(pictures(min(n, 256), side)).to(kit.device)
            layer = encoder.layers[-1]
            with torch.no_grad(): plain = encoder.embed(x, layer)
            ways = {"as it comes": None, "channels-last": dict(channels_last=True), "bfloat16": dict(autocast="bfloat16"),
                    "bfloat16, channels-last": dict(autocast="bfloat16", channels_last=True)}
            for way, options in ways.items():
                with kit.part(f"{name}, {way}"):
                    faster = encoder if options is None else FasterEncoder(encoder, **options)
                    def run():
                        with torch.no_grad(): return faster.embed(x, layer)
                    seconds = kit.seconds(run, 5, 3)
                    away = float((run() - plain).norm()/plain.norm())
                    kit.tell(f"{name}, {way}, the network alone", **{"pictures/s": len(x)/seconds, "relative difference": away})
            images = (255*pictures(n, side)).byte()
            for kind, items in {"uint8": images, "float": images.float()/255}.items():
                seconds = kit.seconds(lambda: extract_features(items, encoder))
                kit.tell(f"{name}, all the way, {kind}", **{"pictures/s": n/seconds})


def study(kit: Kit) -> None:
    "The command line's quick studies, with one process and with two."
    device = str(kit.device)
    for task, counts in kit.size({"colorization": (2, 1), "captioning": (2,)}, {"colorization": (1,)}).items():
        for workers in counts:
            what = f"{task} --scale quick, {workers} processes"
            with kit.part(what), tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "invariant_metrics", "study", task, "--scale", "quick", "--parts", "training",
                           "--workers", str(workers), "--debug", "--device", device, "--out", f"{folder}/run"]
                begun = time.perf_counter()
                if kit.dry: command[3:] = ["study", "--help"]
                done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=150,
                                      env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])})
                if done.returncode: print(done.stderr[-3000:], flush=True)
                last = (done.stderr.strip().splitlines() or [""])[-1][-300:]
                kit.tell(what, seconds=time.perf_counter() - begun, exit_code=done.returncode, **({"error": last} if done.returncode else {}))


FINDINGS = { # name -> function, seconds at most; in this order
    "card": (card, 60), "rates": (rates_found, 60), "published": (published, 150), "aside": (aside, 30), "tests": (tests, 120), "overflow": (overflow, 30), "same": (same, 75),
    "resume": (resume, 80), "looks": (looks, 75), "step": (step, 30), "stream": (stream, 60), "captions": (captions, 110),
    "training": (training, 100), "invariants": (invariants, 40), "encoders": (encoders, 45), "study": (study, 200),
    "compiled": (compiled, 180)}


# running them

def is_done(out: Path, name: str) -> bool:
    path = out/f"{name}.jsonl"
    return path.exists() and '"what": "done"' in path.read_text(encoding="utf-8")


def run_finding(name: str, out: Path, dry: bool) -> None: # in a process of its own
    os.setsid() # a group of its own, which ends with it
    warnings.filterwarnings("ignore")
    kit = Kit(name, out, dry)
    begun = time.perf_counter()
    try:
        FINDINGS[name][0](kit)
        kit.tell("done", seconds=time.perf_counter() - begun)
    except BaseException as error:
        traceback.print_exc()
        kit.tell("stopped", error=last_line(error), seconds=time.perf_counter() - begun)


def collect(out: Path, dry: bool) -> dict:
    "All rows that are there, by finding."
    found = {}
    for name in FINDINGS:
        path = out/f"{name}.jsonl"
        if path.exists(): found[name] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    about = next((row for row in found.pop("card", []) if row["what"] == "card"), {})
    return {"about": {k: v for k, v in about.items() if k != "what"}, "dry": dry, "findings": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="folder of the rows and of gpu.json")
    parser.add_argument("--only", default=",".join(FINDINGS), help="findings, comma-separated")
    parser.add_argument("--again", action="store_true", help="also what is there already")
    parser.add_argument("--seconds", type=float, default=470, help="no finding begins after this many")
    parser.add_argument("--store", metavar="NAME", help="write nbs/results/gpu/NAME.json")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU")
    given = parser.parse_args()
    names = given.only.split(",")
    unknown = [name for name in names if name not in FINDINGS]
    if unknown: parser.error(f"no finding {unknown[0]}; there are {', '.join(FINDINGS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    out = given.out.resolve()
    import invariant_metrics.metrics.frechet  # imported once, before the processes are forked; nothing here may touch the GPU
    import invariant_metrics.scoring.torch_metric
    import invariant_metrics.training.color_recipes
    import invariant_metrics.training.distillation
    begun = time.monotonic()
    for name in names:
        left = given.seconds - (time.monotonic() - begun)
        if is_done(out, name) and not given.again or left < 5: continue
        (out/f"{name}.jsonl").unlink(missing_ok=True)
        child = multiprocessing.get_context("fork").Process(target=run_finding, args=(name, out, given.dry))
        child.start()
        child.join(min(FINDINGS[name][1], left))
        if child.is_alive():
            os.killpg(child.pid, signal.SIGKILL)
            child.join()
            Kit(name, out, given.dry).tell("stopped", error="out of time")
        elif child.exitcode: Kit(name, out, given.dry).tell("stopped", error=f"the process ended with {child.exitcode}")
        (out/"gpu.json").write_text(json.dumps(collect(out, given.dry), indent=1) + "\n", encoding="utf-8")
    (out/"gpu.json").write_text(json.dumps(collect(out, given.dry), indent=1) + "\n", encoding="utf-8")
    if given.store:
        RESULTS.mkdir(parents=True, exist_ok=True)
        shutil.copy(out/"gpu.json", RESULTS/f"{given.store}.json")


if __name__ == "__main__": main()
