"""What sharded statistics cost on this machine, what a million images would cost, and how each family grows.

Usage: python benchmarks/scale.py [--images 20000]      (writes nbs/results/scale.csv)

measured    small images made on the spot go through `invariant-metrics stats` in one part and in two, and the parts are merged by
            `score`. Processor seconds and peak memory are those of each process, with the time in which the command begins.
on paper    the same for a million of these images, from the seconds per image of two runs of unequal size; and the memory that an
            interval from samples would need with 2048 features.
growth      processor seconds of whole scores at three sizes, and the exponent k of seconds ~ n^k. What has a part that does not grow
            stays below the exponent of its algorithm at these sizes.

Each `stats` runs in a process of its own; set OMP_NUM_THREADS=1."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image

import invariant_metrics as im
from invariant_metrics.core import rng
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.gaussian import GaussianStats
from invariant_metrics.people.agreement import agreement

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"scale.csv"
COLUMNS = ["part", "work", "n", "seconds", "peak MB", "disk MB", "exponent"]
MILLION = 1_000_000


def pictures(folder: Path, count: int, side: int = 32) -> None:
    "PNG files of smooth noise."
    folder.mkdir()
    draw = rng(0, "scale.pictures")
    for i in range(count):
        coarse = Image.fromarray(draw.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(folder/f"{i:06d}.png")


def bytes_in(path: Path) -> int: return sum(p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file())


def command(words: list[str], place: Path) -> tuple[float, float]: # processor seconds, peak MB
    "One process of the command line; raises SystemExit where it fails."
    settings = {**os.environ, "INVARIANT_METRICS_CACHE": str(place/"cache"), "INVARIANT_METRICS_QUIET": "1"}
    started = subprocess.Popen([sys.executable, "-m", "invariant_metrics", *words], cwd=place, env=settings, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = status
    if status: raise SystemExit(f"{' '.join(words)} ended with {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss/1024


def measured(images: int, place: Path) -> list[dict]:
    "Rows of `stats` on all images in one part and in two, of the merge, and of a tenth of the images."
    pictures(place/"made", images)
    (place/"few").mkdir()
    for path in sorted((place/"made").iterdir())[:images//10]: os.link(path, place/"few"/path.name)
    rows = []
    def run(work: str, count: int, words: list[str], made: Path) -> None:
        seconds, peak = command(words, place)
        cache = bytes_in(place/"cache") if (place/"cache").is_dir() else 0
        rows.append({"part": "measured", "work": work, "n": count, "seconds": seconds, "peak MB": peak, "disk MB": bytes_in(made)/1e6})
        if cache: rows.append({"part": "measured", "work": f"{work}: features kept", "n": count, "disk MB": cache/1e6})
        shutil.rmtree(place/"cache", ignore_errors=True)
    run("stats, a tenth", images//10, ["stats", "few", "--out", "few.safetensors"], place/"few.safetensors")
    run("stats, one part", images, ["stats", "made", "--out", "whole.safetensors"], place/"whole.safetensors")
    for k in (1, 2):
        run(f"stats, part {k} of 2", images//2, ["stats", "made", "--shard", f"{k}/2", "--out", f"part-{k}.safetensors"], place/f"part-{k}.safetensors")
    run("score of two merged parts", images, ["score", "fd", "--stats", "part-1.safetensors", "part-2.safetensors", "--target", "few.safetensors"], place/"part-1.safetensors")
    whole, parts = GaussianStats.load(place/"whole.safetensors"), [GaussianStats.load(place/f"part-{k}.safetensors") for k in (1, 2)]
    gap = (GaussianStats.merged(parts).cov - whole.cov).abs().max()/whole.cov.abs().max()
    rows.append({"part": "measured", "work": f"largest difference of merged and whole covariance: {gap:.0e} of the largest entry", "n": images})
    return rows


def on_paper(rows: list[dict]) -> list[dict]:
    "A million images, by the cost per image."
    by = {row["work"]: row for row in rows}
    few, whole = by["stats, a tenth"], by["stats, one part"]
    each = (whole["seconds"] - few["seconds"])/(whole["n"] - few["n"])
    begin = max(few["seconds"] - each*few["n"], 0.0)
    grown = (whole["peak MB"] - few["peak MB"])/(whole["n"] - few["n"])
    kept = by["stats, one part: features kept"]["disk MB"]/whole["n"]
    def row(work, seconds=None, peak=None, disk=None): return {"part": "on paper", "work": work, "n": MILLION, "seconds": seconds, "peak MB": peak, "disk MB": disk}
    return [row("stats, one part", begin + each*MILLION, few["peak MB"] + grown*(MILLION - few["n"]), whole["disk MB"]),
            row("stats, each of 16 parts", begin + each*MILLION/16, few["peak MB"] + grown*(MILLION/16 - few["n"]), whole["disk MB"]),
            row("features kept, all parts", disk=kept*MILLION),
            row("score of 16 merged parts", by["score of two merged parts"]["seconds"], by["score of two merged parts"]["peak MB"], 16*whole["disk MB"]),
            row("2048 features of both sides in float32, in one process", peak=2*MILLION*2048*4/2**20),
            row("an interval from them: 1.6 to 2.7 times both sides in float64, and the features", peak=(2 + 2*2*2.15)*MILLION*2048*4/2**20)]


def moments(n): x = torch.randn(n, 256, generator=torch.Generator().manual_seed(0)); return lambda: GaussianStats.of(x, parts=8)


def kernel(n):
    x, y = torch.randn(2, n, 256, generator=torch.Generator().manual_seed(0))
    return lambda: im.score(x, y, ["mmd-poly"], ci=False)


def texts(metric):
    def of(n):
        draw, words = rng(0, "scale.texts"), [f"w{i}" for i in range(4000)]
        def text(): return " ".join(words[int(i)] for i in 4000*draw.random(11)**3)
        pred, target = [text() for _ in range(n)], [[text() for _ in range(3)] for _ in range(n)]
        return lambda: im.score(pred, target, [metric], ci=False)
    return of


def people(n):
    draw = rng(0, "scale.people")
    human = draw.integers(0, 5, n).astype(float)
    metric = human[:, None] + draw.normal(size=(n, 4))
    return lambda: agreement(human, metric.T, "tau_b", reps=100)


FAMILIES = {"moments of 256 features, 8 parts": (moments, (8_000, 32_000, 128_000)), "KID's kernel, all pairs": (kernel, (1_000, 2_000, 4_000)),
            "BLEU-4, 3 references": (texts("bleu-4"), (1_000, 4_000, 16_000)), "CIDEr-D, 3 references": (texts("cider-d"), (1_000, 4_000, 16_000)),
            "ROUGE-L, 3 references": (texts("rouge-l"), (1_000, 4_000, 16_000)), "agreement, tau_b, 4 metrics, 100 replicates": (people, (1_000, 4_000, 16_000))}


def growth() -> list[dict]:
    "Median seconds of three runs at three sizes, and the exponent over all of them."
    rows = []
    for work, (make, sizes) in FAMILIES.items():
        middle = []
        for n in sizes:
            call, seconds = make(n), []
            for _ in range(3):
                begun = time.process_time()
                call()
                seconds.append(time.process_time() - begun)
            middle.append(sorted(seconds)[1])
        exponent = np.polyfit(np.log(sizes), np.log(middle), 1)[0]
        rows += [{"part": "growth", "work": work, "n": n, "seconds": s, "exponent": exponent} for n, s in zip(sizes, middle)]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000)
    images = parser.parse_args().images
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as top: rows = measured(images, Path(top))
    table = pd.DataFrame([*rows, *on_paper(rows), *growth()]).reindex(columns=COLUMNS)
    print(table.to_string(index=False, float_format=lambda v: f"{v:.3g}", na_rep=""))
    with atomic_write(TABLE) as tmp: table.to_csv(tmp, index=False, float_format="%.4g")


if __name__ == "__main__": main()
