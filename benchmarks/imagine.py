"""IMAGINE: scores from a full cache, pictures a second by batch size, and what fewer steps cost in agreement.

Usage: python benchmarks/imagine.py [--store] [--quick] [SECTION …]
SECTION is one of cache, pictures, steps. --store writes nbs/results/imagine_speed.csv (cache, pictures) and imagine_steps.csv (steps); rows of
sections that are not run stay as they are. --quick takes a few captions. Run it with OMP_NUM_THREADS=1.

cache: `invariant-metrics score` of two metrics on 1,000 pairs of captions, five seeds, in a process of its own, once with an empty folder and
then with everything kept; processor time, start of Python included. pictures: the embedded Stable Diffusion with guidance, processor time; the time
outside of the denoiser is everything that is not its U-Net. steps: the same 60 pairs of captions at the same seeds by every way of drawing, and how
far its scores are from those of DDIM in 50 steps; half of the pairs say one thing wrong, and `auc` is how often a right pair scores above a wrong one."""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]/"tests"))

import numpy as np
import pandas as pd
import torch
from scipy.stats import rankdata

from ranking import Rows
from invariant_metrics.encoders.image_text import image_text
from invariant_metrics.files import atomic_write
from invariant_metrics.generators.generator import derived_seeds, get_generator
from invariant_metrics.generators.kept_pictures import imagined
from invariant_metrics.metrics.imagined import ImagineModel, imagine_vectors
from invariant_metrics.training.text_to_image import _claims_found, found_things, unseen_captions
from invariant_metrics.worlds.foils import foil_rows
from invariant_metrics.worlds.scene_captions import relation_captions, scenes_with_captions

RESULTS = Path(__file__).parent.parent/"nbs"/"results"
SPEED, STEPS = RESULTS/"imagine_speed.csv", RESULTS/"imagine_steps.csv"
COLUMNS = ["section", "work", "method", "runs", "seconds", "pictures/s", "quantity", "required", "found", "ok"]
WAYS = [("ddim", 50, "fp32"), ("ddim", 20, "fp32"), ("ddim", 10, "fp32"), ("dpm-solver", 20, "fp32"), ("dpm-solver", 10, "fp32"), ("dpm-solver", 5, "fp32"),
        ("dpm-solver", 10, "bf16")] # the first is what others are compared with
FOILS = ("noun", "color", "side")
USUAL_BATCH, OUTSIDE = 16, "share of the time outside of the denoiser" # the generator's own default


def caption_pairs(n: int, seed: int = 7) -> tuple[list[str], list[str], np.ndarray]:
    "Predictions, targets, and which pairs are of one scene: every other prediction says a noun, a color or a side that is not there."
    scenes = scenes_with_captions(n, seed=seed)
    said = [relation_captions(scenes, i) for i in range(n)]
    wrong = {kind: {row.scene: row.foil for row in foil_rows(scenes, kind)} for kind in FOILS}
    foils = [wrong[FOILS[i//2 % 3]].get(i) if i % 2 else None for i in range(n)]
    pred = [foil or captions[1] for foil, captions in zip(foils, said)]
    return pred, [captions[0] for captions in said], np.array([foil is None for foil in foils])


# scores from a full cache

def busy_seconds(words: list, **options) -> float:
    "Processor seconds of a Python process."
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_score(folder: Path, seeds: int) -> float:
    "Processor seconds of a command."
    words = ["score", "imagine-image,imagine-text-image", "--pred", "hyp.txt", "--target", "ref.txt", "--option", f"seeds={seeds}", "--json"]
    environment = os.environ | {"INVARIANT_METRICS_CACHE": str(folder/"cache"), "INVARIANT_METRICS_QUIET": "1"}
    return busy_seconds(["-m", "invariant_metrics", *words], cwd=folder, env=environment)


def cache(quick: bool) -> list[dict]:
    "1,000 pairs through the command, drawn for the first time and kept."
    rows, n, seeds = Rows("cache"), 50 if quick else 1000, 5
    pred, target, _ = caption_pairs(n)
    work = f"{n:,} pairs, 2 metrics, {seeds} seeds, exact generator"
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        (folder/"hyp.txt").write_text("\n".join(pred) + "\n")
        (folder/"ref.txt").write_text("\n".join(target) + "\n")
        rows.add(work, "nothing kept yet", runs=1, seconds=run_score(folder, seeds))
        again = statistics.median(run_score(folder, seeds) for _ in range(3))
        rows.add(work, "everything kept", runs=3, seconds=again)
    libraries = "import torch, scipy.stats, pandas; from transformers import CLIPModel"
    rows.add("the libraries alone", "import", runs=1, seconds=busy_seconds(["-c", libraries]))
    rows.ask(work, "processor seconds of a command with a full cache", 10, again, at_most=True)
    return rows


# pictures a second

class Clock:
    "Processor seconds inside of some modules, by name."
    def __init__(self, **modules):
        self.seconds, self.began = defaultdict(float), {}
        for name, module in modules.items():
            module.register_forward_pre_hook(lambda *_, name=name: self.began.__setitem__(name, time.process_time()))
            module.register_forward_hook(lambda *_, name=name: self.stop(name))

    def stop(self, name: str) -> None: self.seconds[name] += time.process_time() - self.began[name]


def pictures(quick: bool) -> list[dict]:
    "The embedded model as it draws by default, by the number of pictures at once, and where the time goes."
    rows, texts = Rows("pictures"), unseen_captions(50)[1]
    torch.set_num_threads(1)
    for batch in (1, 4) if quick else (1, 4, 16, 50):
        generator = get_generator("diffusion", batch=batch)
        clock = Clock(unet=generator.pipeline.unet, text=generator.pipeline.text_encoder, decoder=generator.pipeline.vae.decoder)
        many = max(8, batch)
        generator(texts[:min(batch, 2)], [0]*min(batch, 2)) # warm up
        clock.seconds.clear()
        start = time.process_time()
        generator(texts[:many], range(many))
        seconds = time.process_time() - start
        work = f"{generator.scheduler}, {generator.steps} steps, guidance {generator.guidance:g}, {batch} at once"
        rows.add(work, "diffusion", runs=1, seconds=seconds, **{"pictures/s": many/seconds})
        for part in ("text", "decoder"): rows.add(work, "diffusion", quantity=f"share of the time in its {part}", found=clock.seconds[part]/seconds)
        outside = 1 - clock.seconds["unet"]/seconds
        if batch == USUAL_BATCH: rows.ask(work, OUTSIDE, .1, outside, at_most=True)
        else: rows.add(work, "diffusion", quantity=OUTSIDE, found=outside)
    return rows


# fewer steps

def drawn_scores(scheduler: str, steps: int, precision: str, pairs: tuple, seeds: int) -> dict:
    "Scores of pairs (N, S), what is found in the pictures of the targets, and pictures a second of processor time."
    pred, target, _ = pairs
    generator, judge = get_generator("diffusion", scheduler=scheduler, steps=steps, precision=precision), image_text("embedded-clip")
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        made = imagine_vectors(ImagineModel(generator, judge, seeds=seeds, folder=folder), pred, target)
        seconds = time.process_time() - start
        pictures = imagined(generator, target, derived_seeds(0, seeds, "target"), folder).flatten(0, 1)
    texts = [text for text in target for _ in range(seeds)]
    found = pd.DataFrame([_claims_found(text, things) for text, things in zip(texts, found_things(pictures/255))])
    rate = seeds*len({*pred} | {*target})/seconds # nearly: equal texts on one side are drawn once
    return {"image": made.image_scores().numpy(), "text-image": made.text_image_scores().numpy(), "found": found.mean(), "pictures/s": rate}


def auc(scores: np.ndarray, right: np.ndarray) -> float: # (N,)
    "How often a right pair scores above a wrong one."
    ranks = rankdata(scores)
    return float((ranks[right].sum() - right.sum()*(right.sum() + 1)/2)/(right.sum()*(~right).sum()))


def steps(quick: bool) -> list[dict]:
    "Every way of drawing beside DDIM in 50 steps, at the same seeds."
    torch.set_num_threads(1)
    n, seeds = (6, 2) if quick else (60, 2)
    pairs, usual, rows = caption_pairs(n), None, []
    for scheduler, many, precision in WAYS:
        made = drawn_scores(scheduler, many, precision, pairs, seeds)
        usual = usual or made
        row = {"scheduler": scheduler, "steps": many, "precision": precision, "pairs": n, "seeds": seeds, "pictures/s": made["pictures/s"]}
        for score in ("image", "text-image"):
            mine, theirs = made[score], usual[score]
            row |= {f"{score}: correlation": np.corrcoef(mine.ravel(), theirs.ravel())[0, 1], f"{score}: difference": np.abs(mine - theirs).mean(),
                    f"{score}: other seed": np.corrcoef(mine[:, 0], theirs[:, 1])[0, 1], f"{score}: auc": auc(mine.mean(1), pairs[2])}
        rows.append(row | made["found"].to_dict())
        print("  " + " ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in rows[-1].items()), flush=True)
    return rows


SECTIONS = {"cache": cache, "pictures": pictures, "steps": steps}


def store(path: Path, table: pd.DataFrame, chosen: list[str]) -> None:
    "Write a table; rows of sections that were not run stay."
    if "section" in table and path.is_file():
        old = pd.read_csv(path)
        table = pd.concat([old[~old["section"].isin(chosen)], table])
        table = table.sort_values("section", key=lambda names: names.map(list(SECTIONS).index), kind="stable")
    with atomic_write(path) as target: table.to_csv(target, index=False, float_format="%.4g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", action="store_true", help="write the tables")
    parser.add_argument("--quick", action="store_true", help="a few captions, nothing written")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    options = parser.parse_args()
    unknown = {*options.sections} - {*SECTIONS}
    if unknown: parser.error(f"unknown section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    chosen = options.sections or list(SECTIONS)
    measured = {}
    for name in chosen:
        print(name, flush=True)
        measured[name] = SECTIONS[name](options.quick)
    speed = [row for name in chosen if name != "steps" for row in measured[name]]
    if speed:
        table = pd.DataFrame(speed).reindex(columns=COLUMNS)
        if options.store and not options.quick: store(SPEED, table, chosen)
        asked = table.dropna(subset=["required"])[["work", "quantity", "required", "found", "ok"]]
        print("\n" + asked.to_string(index=False, float_format=lambda v: f"{v:.3g}"))
    if "steps" in measured and options.store and not options.quick: store(STEPS, pd.DataFrame(measured["steps"]), chosen)


if __name__ == "__main__": main()
