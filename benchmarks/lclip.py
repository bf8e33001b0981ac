"""L-CLIP beside CLIP ViT-B/32 and small CLIPs of today: time, memory, what each part of its fast form is worth, and a step of training.

Usage: python benchmarks/lclip.py [--store] [--quick] [--pairs 128] [--rounds 3] [--no-compile] [SECTION …]
--store writes nbs/results/lclip_speed.csv; rows of sections that are not run stay as they are. --quick takes 16 pairs and one round, compiles
nothing and leaves out half of the small networks. SECTION is one of pairs, forms, memory, training. Full-size networks with random weights on the
CPU; pictures of each network's own size, texts of 9 to 17 tokens in rows of 77. Needs open_clip and transformers, and g++ for what is compiled.

Each network is timed in several forms, all in this process and in turns: as it comes (inference mode, the whole batch or parts of 16), with its
linear layers by oneDNN, and compiled with frozen weights. All forms run once; L-CLIP and CLIP run again in their best way as they come and in their
fastest, and with two threads as well. On two quiet cores all of it takes half an hour. "ms" is wall time of a pair, "busy ms" processor time of all
threads: with one thread only the second is free of other work on the machine, and ratios are of it; with two threads they are of wall time. Memory
is the highest of a process of its own above that of the loaded libraries, while it scores a batch; the pictures are in it."""
import argparse
import contextlib
import gc
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[1]/"tests"))

import open_clip
import pandas as pd
import torch
import transformers
from timm.utils.model import reparameterize_model
from torch.nn import functional as F

from plain_lclip import plain_text, plain_vision
from ranking import forget_peak, resident
from invariant_metrics.files import atomic_write
from invariant_metrics.models import multiplexed
from invariant_metrics.models.multiplexed import LClip, LClipConfig, _MultiplexedTower, _MultiplexedVision, PART, _SharedAttention, _fast_linear, _pick_places
from invariant_metrics.training.distillation import _cosine_matrix, similarity_regulator, _tower_loss

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"lclip_speed.csv"
COLUMNS = ["section", "network", "form", "threads", "parameters", "ms", "busy ms", "pairs/s", "pairs/s per million", "one pair ms", "difference", "memory MB",
           "fastest", "required", "found", "ok"]
TINY = dict(context_length=77, vocab_size=49408, width=512, heads=8)
TINY_CLIPS = {"TinyCLIP ViT-40M/32 Text-19M": (512, 6), "TinyCLIP ViT-61M/32 Text-29M": (640, 9)} # vision width, text layers, as microsoft/Cream has them
SMALL = {"MobileCLIP2-S0": "MobileCLIP2-S0", "MobileCLIP-S1": "MobileCLIP-S1", "MobileCLIP-S2": "MobileCLIP-S2", "ViT-S/32": "ViT-S-32", "ViT-S/16": "ViT-S-16"}
TEACHERS = {"CLIP ViT-B/32 (open_clip)": "open_clip", "CLIP ViT-B/32 (transformers)": "transformers"}
STUDENTS = {"L-CLIP": 256, "L-CLIP, full word table": None}


# networks

@dataclass
class Network:
    "Two functions to embeddings, and what they need."
    images: object # pixels -> (B, d)
    texts: object  # tokens -> (B, d)
    side: int      # pixels
    parameters: int
    module: torch.nn.Module


def count(module) -> int: return sum(p.numel() for p in module.parameters())


def open_network(name: str) -> Network:
    "A network with random weights, in evaluation mode."
    torch.manual_seed(0)
    if name in STUDENTS:
        student = LClip(LClipConfig(factor=STUDENTS[name])).eval()
        return Network(student.vision, student.text, 224, count(student), student)
    if name == "CLIP ViT-B/32 (transformers)":
        model = transformers.CLIPModel(transformers.CLIPConfig()).eval()
        return Network(lambda x: model.get_image_features(pixel_values=x).pooler_output, lambda x: model.get_text_features(input_ids=x).pooler_output, 224, count(model) - 1, model)
    if name in TINY_CLIPS:
        width, layers = TINY_CLIPS[name]
        model = open_clip.CLIP(512, dict(image_size=224, layers=12, width=width, patch_size=32), dict(TINY, layers=layers)).eval()
        side = 224
    else:
        model = open_clip.create_model({**SMALL, "CLIP ViT-B/32 (open_clip)": "ViT-B-32"}[name], require_pretrained=False).eval()
        side = model.visual.image_size if isinstance(model.visual.image_size, int) else model.visual.image_size[0]
        if name.startswith("Mobile"): model = reparameterize_model(model)
    return Network(model.encode_image, model.encode_text, side, count(model) - 1, model) # CLIP's own count leaves out the scale


def items(pairs: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    "Pictures, and texts of 9 to 17 tokens with CLIP's start and end."
    generator = torch.Generator().manual_seed(1)
    tokens = torch.zeros(pairs, 77, dtype=torch.long)
    for i, row in enumerate(tokens):
        end = 8 + i % 9
        row[:end] = torch.randint(1, 49000, (end,), generator=generator)
        row[0], row[end] = 49406, 49407
    return torch.randn(pairs, 3, side, side, generator=generator), tokens


# forms

def in_parts(function, x: torch.Tensor, part: int = PART) -> torch.Tensor: return torch.cat([function(rows) for rows in x.split(part)])


@contextlib.contextmanager
def by_onednn():
    "Linear layers of any network by the operation that L-CLIP's towers use, those inside nn.MultiheadAttention too."
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    with mock.patch.object(F, "linear", faster): yield
    torch.backends.mha.set_fastpath_enabled(fast)


plain_linear = F.linear


def faster(x, weight, bias=None):
    if x.dtype != torch.float32 or x.dim() < 2: return plain_linear(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def compiled(function):
    "Compiled with the weights frozen in, for batches of one size."
    from torch._inductor import config
    config.freezing = True
    return torch.compile(function, dynamic=False)


def forms_of(name: str, network: Network, compile_it: bool) -> dict:
    "Form -> function of pictures and texts that gives both embeddings."
    def both(run, images=network.images, texts=network.texts): return lambda pixels, tokens: (run(images, pixels), run(texts, tokens))
    def whole(function, x): return function(x)
    def fast(function, x):
        with by_onednn(): return in_parts(function, x)
    if name in STUDENTS: forms = {"plain": both(whole, lambda x: plain_vision(network.images, x), lambda x: plain_text(network.texts, x)), "as it comes": both(whole)}
    else: forms = {"as it comes, whole": both(whole), "as it comes, in parts": both(in_parts), "oneDNN, in parts": both(fast)}
    if name in (*TINY_CLIPS, *SMALL): del forms["as it comes, whole"]
    if compile_it: forms["compiled, in parts"] = both(in_parts, compiled(network.images), compiled(network.texts))
    return forms


def timed(function, *args) -> tuple[float, float, object]:
    "Wall seconds, processor seconds, value."
    with torch.no_grad() if "compiled" in getattr(function, "form", "") else torch.inference_mode():
        wall, busy = time.perf_counter(), time.process_time()
        value = function(*args)
        return time.perf_counter() - wall, time.process_time() - busy, value


def apart(a, b) -> float:
    "The largest difference of embeddings of length 1."
    return max(float((F.normalize(x.float(), dim=-1) - F.normalize(y.float(), dim=-1)).abs().max()) for x, y in zip(a, b))


class Lane:
    "One network in one form, and its times."
    def __init__(self, name: str, form: str, network: Network, function):
        self.name, self.form, self.network, self.function = name, form, network, function
        self.function.form = form
        self.walls, self.busies, self.ones, self.value = [], [], [], None

    def step(self, pairs: int) -> None:
        given = items(pairs, self.network.side)
        if not self.walls: timed(self.function, *(x[:PART if "compiled" in self.form else 2] for x in given)) # to warm up
        wall, busy, self.value = timed(self.function, *given)
        self.walls.append(1e3*wall/pairs)
        self.busies.append(1e3*busy/pairs)
        print(f"    {self.name}, {self.form}: {self.busies[-1]:.1f} ms busy, {self.walls[-1]:.1f} ms", flush=True)
        if "compiled" not in self.form: self.ones += [1e3*timed(self.function, *(x[:1] for x in given))[1 if torch.get_num_threads() == 1 else 0] for _ in range(3)]

    @property
    def cost(self) -> float: return statistics.median(self.busies if torch.get_num_threads() == 1 else self.walls)

    def row(self) -> dict:
        n = self.network.parameters
        return {"network": self.name, "form": self.form, "threads": torch.get_num_threads(), "parameters": n, "ms": statistics.median(self.walls),
                "busy ms": statistics.median(self.busies), "pairs/s": 1e3/self.cost, "pairs/s per million": 1e3/self.cost/(n/1e6),
                "one pair ms": statistics.median(self.ones) if self.ones else None}


class Rows(list):
    "Measured rows of one section, and what is asked of them."
    def __init__(self, section: str): self.section = section

    def add(self, **cells) -> None:
        self.append({"section": self.section, **cells})
        print("  " + ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in cells.items() if v is not None), flush=True)

    def ask(self, network: str, form: str, required: float, found: float, at_most: bool = False, threads: int | None = None) -> None:
        fine = found <= required if at_most else found >= required
        self.add(network=network, form=form, threads=threads, required=f"{'≤' if at_most else '≥'} {required:g}", found=found, ok="yes" if fine else "NO")


# time of pairs

def networks(names, compile_it: bool) -> dict[str, tuple[Network, dict]]:
    "Networks with their forms; the compiler gets those that the goals are about, and the smallest of today."
    worth = ("L-CLIP", "CLIP ViT-B/32 (open_clip)", "MobileCLIP2-S0") if compile_it else ()
    found = {name: open_network(name) for name in names}
    return {name: (network, forms_of(name, network, name in worth)) for name, network in found.items()}


def best(lanes: list[Lane], name: str, start: str = "") -> Lane:
    "The fastest lane of a network among forms of this beginning, with the numbers of the network as it comes."
    own = [lane for lane in lanes if lane.name == name]
    return min((lane for lane in own if lane.form.startswith(start) and apart(lane.value, own[0].value) < 1e-5), key=lambda lane: lane.cost)


def runs(lane: Lane, pairs: int) -> bool:
    "One round; a form that cannot be compiled here is told, and False."
    try: lane.step(pairs)
    except Exception as error:
        if "compiled" not in lane.form: raise
        print(f"    {lane.name} is not compiled here: {type(error).__name__}: {str(error).strip().splitlines()[0]}", flush=True)
        return False
    return True


def raced(lanes: list[Lane], pairs: int, rounds: int) -> list[Lane]:
    "All lanes run once; of what has a goal, the best as it comes, the fastest and the plain form run in all rounds, and are returned."
    lanes[:] = [lane for lane in lanes if runs(lane, pairs)]
    asked = (*STUDENTS, *TEACHERS)
    chosen = [lane for lane in lanes if lane.name in asked and (lane in (best(lanes, lane.name), best(lanes, lane.name, "as it comes")) or lane.form == "plain")]
    for _ in range(rounds - 1):
        for lane in chosen: lane.step(pairs)
    return chosen


def pairs(options) -> list[dict]:
    "Pairs a second of all networks, with one thread and with two."
    rows, worth = Rows("pairs"), None
    for threads in (1, 2):
        if threads > os.cpu_count(): continue
        torch.set_num_threads(threads)
        torch._dynamo.reset()
        small = (*TINY_CLIPS, *SMALL) if not options.quick else ("TinyCLIP ViT-40M/32 Text-19M", "MobileCLIP2-S0", "ViT-S/32")
        held = networks((*STUDENTS, *TEACHERS, *(small if threads == 1 else ())), options.compile)
        lanes = [Lane(name, form, network, function) for name, (network, forms) in held.items() for form, function in forms.items()
                 if worth is None or (name, form) in worth]
        chosen = raced(lanes, options.pairs, options.rounds)
        worth = {(lane.name, lane.form) for lane in chosen} | {(name, "compiled, in parts") for name in (*STUDENTS, *TEACHERS)}
        first, names = {lane.name: lane for lane in reversed(lanes)}, dict.fromkeys(lane.name for lane in lanes)
        compared = [lane for lane in lanes if lane in chosen or lane.name not in (*STUDENTS, *TEACHERS)] # the others had one round
        fastest, known = ({name: best(compared, name, start) for name in names} for start in ("", "as it comes"))
        for lane in lanes: rows.add(**lane.row(), difference=apart(lane.value, first[lane.name].value), fastest="yes" if lane is fastest[lane.name] else "")
        for name in STUDENTS:
            for other in TEACHERS:
                design = known[other].cost/first[name].cost
                rows.ask(name, f"pairs/s of the plain form, over {other} as it comes: the design alone", 1.8, design, threads=threads)
                rows.ask(name, f"pairs/s, over {other}, both as they come", 1.8, known[other].cost/known[name].cost, threads=threads)
                rows.ask(name, f"pairs/s, over {other}, both in their fastest form", 1.8, fastest[other].cost/fastest[name].cost, threads=threads)
    torch.set_num_threads(1)
    return rows


# what each part of the fast form is worth

def folded_attention(self, x, own, mask=None, at=None):
    "Mixing folded into a fused kernel: queries of all heads side by side, and values weighted for every head."
    q = self.project(_pick_places(x, at), 0, 1)[0]
    k, v = self.project(x, 1, 3)
    batch, heads, places, size = k.shape
    before, after = own.mix_scores.weight*size**-.5, own.mix_weights.weight
    wide_q = (q.unsqueeze(1)*before[None, :, :, None, None]).permute(0, 1, 3, 2, 4).flatten(3)           # (B, i, R, h·d)
    wide_k = k.transpose(1, 2).flatten(2).unsqueeze(1).expand(-1, heads, -1, -1)                         # (B, i, T, h·d)
    wide_v = (v.unsqueeze(1)*after.T[None, :, :, None, None]).permute(0, 1, 3, 2, 4).flatten(3)          # (B, j, T, i·d)
    out = F.scaled_dot_product_attention(wide_q, wide_k, wide_v, scale=1.).sum(1)                        # (B, R, i·d)
    return _fast_linear(out, self.proj.weight, self.proj.bias)


def slow_linear(x, weight, bias=None, gelu=False):
    out = F.linear(x, weight, bias)
    return F.gelu(out) if gelu else out


def all_places(self, x, mask=None, at=None, forward=_MultiplexedTower.forward): return _pick_places(forward(self, x, mask), at)


def convolved(self, pixels): return self.patch(pixels).flatten(2).transpose(1, 2)


PATCHES = {"without oneDNN": [(multiplexed, "_fast_linear", slow_linear)],
           "all places in the last layer": [(_MultiplexedTower, "forward", all_places)],
           "the whole batch at once": [(multiplexed, "_in_parts", lambda x: False)],
           "patches by convolution": [(_MultiplexedVision, "patches", convolved)],
           "mixing folded into fused attention": [(_SharedAttention, "forward", folded_attention)]}


def patched(student: LClip, changes: list):
    def run(pixels, tokens):
        with contextlib.ExitStack() as stack:
            for place, name, value in changes: stack.enter_context(mock.patch.object(place, name, value))
            return student.vision(pixels), student.text(tokens)
    return run


def bfloat16(student: LClip):
    def run(pixels, tokens):
        with torch.autocast("cpu", torch.bfloat16): return in_parts(student.vision, pixels), in_parts(student.text, tokens)
    return run


def forms(options) -> list[dict]:
    "The fast form without one of its parts at a time, and other forms; one thread."
    torch.set_num_threads(1)
    rows, network = Rows("forms"), open_network("L-CLIP")
    student = network.module
    lanes = {"fast": patched(student, []), **{name: patched(student, changes) for name, changes in PATCHES.items()}}
    unmixed = LClipConfig(vision=replace(LClipConfig().vision, mix_heads=False), text=replace(LClipConfig().text, mix_heads=False))
    lanes["heads not mixed, fused attention (other numbers)"] = patched(LClip(unmixed).eval(), [])
    if options.compile: lanes["compiled, in parts"] = forms_of("L-CLIP", network, True)["compiled, in parts"]
    lanes["bfloat16 (other numbers)"] = bfloat16(student)
    lanes["plain"] = forms_of("L-CLIP", network, False)["plain"]
    lanes = [Lane("L-CLIP", name, network, function) for name, function in lanes.items()]
    for _ in range(options.rounds): lanes = [lane for lane in lanes if runs(lane, options.pairs)]
    for lane in lanes: rows.add(**lane.row(), difference=apart(lane.value, lanes[-1].value), found=lane.cost/lanes[0].cost)
    return rows


# memory

def child(name: str, form: str, pairs: int) -> None:
    "In a process of its own: prints the MB above the loaded libraries."
    torch.set_num_threads(1)
    gc.collect()
    before = resident()
    network = open_network(name)
    given = items(pairs, network.side)
    function = forms_of(name, network, form.startswith("compiled"))[form]
    forget_peak()
    function.form = form
    timed(function, *given)
    print("MB", resident(peak=True) - before)


def memory(options) -> list[dict]:
    "Peak memory of a batch."
    rows, found = Rows("memory"), {}
    for name in (*STUDENTS, *TEACHERS) if options.quick else (*STUDENTS, *TEACHERS, *TINY_CLIPS, *SMALL):
        of_teachers = ("as it comes, whole", "as it comes, in parts", "oneDNN, in parts")
        for form in ("plain", "as it comes") if name in STUDENTS else of_teachers if name in TEACHERS else ("as it comes, in parts",):
            command = [sys.executable, __file__, "--child", json.dumps([name, form, options.pairs])]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found[name, form] = float(told.split("MB")[-1])
            rows.add(network=name, form=form, threads=1, **{"memory MB": found[name, form]})
    for name in STUDENTS:
        for other in TEACHERS:
            for form in ("as it comes, whole", "oneDNN, in parts"):
                rows.ask(name, f"memory, over {other}, {form}", .6, found[name, "as it comes"]/found[other, form], at_most=True, threads=1)
    return rows


# training

def training(options, batch: int = 8) -> list[dict]:
    "A step of the second stage (both towers, the similarity regulator, AdamW) with the teacher's vectors kept, and with the teacher run."
    torch.set_num_threads(1)
    rows, student, teacher = Rows("training"), open_network("L-CLIP").module.train(), open_network("CLIP ViT-B/32 (transformers)")
    optimizer = torch.optim.AdamW(student.parameters(), 1e-4)
    pixels, tokens = items(batch, 224)

    def taught():
        with torch.inference_mode(): return teacher.images(pixels).clone(), teacher.texts(tokens).clone()
    kept = tuple(x.clone() for x in taught())

    def step(teach, changes=()):
        with contextlib.ExitStack() as stack:
            for place, name, value in changes: stack.enter_context(mock.patch.object(place, name, value))
            images, texts = teach()
            own_images, own_texts = student.vision(pixels), student.text(tokens)
            regulator = similarity_regulator(_cosine_matrix(own_images, own_texts), _cosine_matrix(images.clone(), texts.clone()))
            (_tower_loss(own_images, images.clone()) + _tower_loss(own_texts, texts.clone()) + regulator).backward()
            optimizer.step()
            optimizer.zero_grad()
    ways = {"teacher's vectors kept": lambda: step(lambda: kept), "teacher run": lambda: step(taught),
            "kept, all places in the last layer": lambda: step(lambda: kept, PATCHES["all places in the last layer"] + PATCHES["patches by convolution"])}
    seconds = {name: [] for name in ways}
    for _ in range(options.rounds + 1):
        for name, way in ways.items():
            start = time.process_time()
            way()
            seconds[name].append(time.process_time() - start)
    cost = {name: 1e3*statistics.median(s[1:])/batch for name, s in seconds.items()}
    for name, ms in cost.items(): rows.add(network="L-CLIP", form=name, threads=1, **{"busy ms": ms, "pairs/s": 1e3/ms}, found=ms/cost["teacher's vectors kept"])
    return rows


SECTIONS = {"pairs": pairs, "forms": forms, "memory": memory, "training": training}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="store_true", help="write the table")
    parser.add_argument("--quick", action="store_true", help="16 pairs, one round, nothing compiled, memory of the large networks only")
    parser.add_argument("--pairs", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if options.child: return child(*json.loads(options.child))
    if unknown := {*options.sections} - {*SECTIONS}: parser.error(f"unknown section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    if options.quick: options.pairs, options.rounds, options.compile = 16, 1, False
    options.compile = options.compile and shutil.which("g++") is not None
    measured, chosen = [], options.sections or list(SECTIONS)
    for name in chosen:
        print(name, flush=True)
        measured += SECTIONS[name](options)
    table = pd.DataFrame(measured).reindex(columns=COLUMNS)
    if options.store:
        if TABLE.is_file():
            old = pd.read_csv(TABLE)
            table = pd.concat([old[~old["section"].isin(chosen)], table])
        table = table.sort_values("section", key=lambda names: names.map(list(SECTIONS).index), kind="stable")
        with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.4g")
    asked = table.dropna(subset=["required"])[["network", "form", "threads", "required", "found", "ok"]]
    print("\n" + asked.to_string(index=False, float_format=lambda v: f"{v:.3g}"))


if __name__ == "__main__": main()
