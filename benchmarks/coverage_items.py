"""How often a 95 % interval of a metric with a row per item holds the value of all items, on real rows.

Usage: python benchmarks/coverage_items.py [--draws 2000] [--only METRIC]      (writes nbs/results/coverage_items.csv; about a quarter of an hour on one core)
The real data (INVARIANT_METRICS_DATA) give pools: newstest2017 de-en (3,004 sentences, three systems), 500 COCO images with captions of people
and of three systems (CIDEr-D with the document frequencies of 1,000 other images' references), and photographs with JPEG and two
kinds of blur. The truth is the value of the whole pool; a draw takes n of its items with replacement; the interval is the package's own.
what: "value" of one system, "difference" of two systems on the same items, "equal" the same with the two systems swapped at random item by
item, so that the truth is 0 and 1 − covered are false alarms; "frequencies of the data" CIDEr-D that counts documents in the n items at hand,
drawn without replacement from 1,000, with its mean beside the value of all. covered: of the draws that have an interval; intervals: their share;
low, high: the truth lies below, above; width: median, in units of 2 × 1.96 standard deviations of the value. Other forms on the same
draws: symmetric (Student's without, "skewed" with the cubic for skewness everywhere), gradient (along the gradient of the sums instead of
leaving items out), percentile (bootstrap of 1,000 replicates, an eighth of the draws). All draws of a cell are computed at once; the first
eight of each are held against the package's own `score_rows` and `paired_difference`."""
import argparse
import gzip
import io
import json
import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from scipy import stats

from invariant_metrics.core import progress, rng
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.metric import Metric, Rows, extract, get_metric
from invariant_metrics.metrics.cider import document_frequencies
from invariant_metrics.scoring.inference import FEWEST, paired_difference, score_rows, _value_range

OUT = Path(__file__).parent.parent/"nbs"/"results"/"coverage_items.csv"
SIZES = (8, 10, 15, 20, 30, 50, 100, 200, 500)
DRAWN = 50 # items up to which the percentile interval is held beside ours


def lines(path: Path) -> list[dict]:
    with gzip.open(path, "rt", encoding="utf8") as file: return [json.loads(line) for line in file]


def sentences(data: Path) -> dict:
    found, chosen = lines(data/"wmt"/"newstest2017_deen.jsonl.gz"), ("online-B.0", "uedin-nmt.4723", "SYSTRAN.4846")
    metrics, target = [get_metric(m) for m in ("bleu", "chrf", "ter")], [[x["ref"]] for x in found]
    return by_metric(metrics, {s: extract(metrics, [x["sys"][s] for x in found], target) for s in chosen})


def captions(data: Path) -> dict:
    found, others = lines(data/"coco_captions"/"karpathy_captioners_500.jsonl.gz"), lines(data/"coco_captions"/"val2017_1000.jsonl.gz")
    metrics = [get_metric("cider-d", df=document_frequencies([x["captions"] for x in others])), *map(get_metric, ("rouge-l", "bleu-4"))]
    target, names = [x["references"] for x in found], ("people", "system 1", "system 2", "system 3")
    return by_metric(metrics, {s: extract(metrics, [x["candidates"][k] for x in found], target) for k, s in enumerate(names)})


def photographs(data: Path, side: int = 96) -> dict:
    def square(path):
        picture = Image.open(path).convert("RGB")
        edge = min(picture.size)
        left, top = ((x - edge)//2 for x in picture.size)
        return picture.crop((left, top, left + edge, top + edge)).resize((side, side), Image.LANCZOS)
    def jpeg(picture):
        picture.save(kept := io.BytesIO(), "JPEG", quality=30)
        return Image.open(kept).convert("RGB")
    def blurred(picture, by): return picture.resize((side//by, side//by), Image.BICUBIC).resize((side, side), Image.BICUBIC)
    def tensor(pictures): return torch.stack([torch.from_numpy(np.array(p)).permute(2, 0, 1) for p in pictures])
    folders = [data/"bsds500"/"images", data/"imagenet_sample"/"images", data/"coco_mini"/"images"]
    kept = [square(path) for folder in folders for path in sorted(folder.glob("*.*"))]
    systems = {"jpeg": map(jpeg, kept), "half": (blurred(p, 2) for p in kept), "quarter": (blurred(p, 4) for p in kept)}
    metrics = [get_metric(m) for m in ("psnr", "ssim", "psnr-pooled")]
    return by_metric(metrics, {s: extract(metrics, tensor(pictures), tensor(kept)) for s, pictures in systems.items()})


def by_metric(metrics: list[Metric], rows: dict) -> dict: # metric -> system -> rows
    return {m: {s: found[m.name] for s, found in rows.items()} for m in metrics}


def influences(metric: Metric, rows: torch.Tensor) -> tuple[torch.Tensor, ...]: # (R, n[, k]) -> value (R,), by leaving one out (R, n), by gradient (R, n)
    "What `leave_one_out` and `estimate_rows` say of every draw, all draws at once."
    n = rows.shape[1]
    if metric.pool is None: return rows.mean(1), (moved := rows - rows.mean(1, keepdim=True)), moved
    with torch.enable_grad():
        sums = rows.sum(1).requires_grad_()
        value = metric.pool(sums)
        slope, = torch.autograd.grad(value.sum(), sums)
    straight = n*torch.einsum("rnk,rk->rn", rows, slope)
    left = torch.cat([metric.pool((r.sum(1, keepdim=True) - r).flatten(0, 1)).view(len(r), n) for r in rows.split(max(1, 100_000//n))])
    return value.detach(), (n - 1)*(value.detach()[:, None] - left), straight - straight.mean(1, keepdim=True)


def student(value: torch.Tensor, moved: torch.Tensor, skewed: bool) -> tuple[torch.Tensor, torch.Tensor]: # ends (R,)
    "`student_interval` of every draw."
    n, away = moved.shape[1], moved - moved.mean(1, keepdim=True)
    se, reach = moved.std(1)/n**0.5, stats.t.ppf(0.975, n - 1)
    a = torch.nan_to_num((away**3).mean(1)/away.square().mean(1)**1.5)/n**0.5
    def bent(t): return torch.where(a.abs() < 1e-6, torch.full_like(a, t), torch.from_numpy(3/a.numpy()*(np.cbrt((1 + a*(t - a/6)).numpy()) - 1)))
    if not skewed: return value - reach*se, value + reach*se
    with np.errstate(divide="ignore", invalid="ignore"): return value - bent(reach)*se, value - bent(-reach)*se


def telling(moved: torch.Tensor) -> torch.Tensor: # (R,) bool
    "Where eight items at least tell something: where more than half share a value, it is the median."
    common = ((moved - moved.median(1, keepdim=True)[0]).abs() <= 1e-12*moved.abs().amax(1, keepdim=True)).sum(1)
    return torch.where(2*common > moved.shape[1], moved.shape[1] - common, moved.shape[1]) >= FEWEST


def percentiles(metric: Metric, sides: list[torch.Tensor], generator: np.random.Generator, reps: int = 1000) -> tuple[torch.Tensor, torch.Tensor]:
    "The percentile bootstrap of every draw, each with replicates of its own."
    n, ends = sides[0].shape[1], []
    for draw in zip(*sides):
        counts = torch.from_numpy(generator.multinomial(n, np.full(n, 1/n), size=reps)).double()
        drawn = [metric.pool(counts @ rows) if metric.pool else counts @ rows/n for rows in draw]
        ends.append(torch.quantile(drawn[0] - (drawn[1] if len(drawn) == 2 else 0), torch.tensor([0.025, 0.975]).double()))
    return tuple(torch.stack(ends, 1))


def check(metric: Metric, sides: list[torch.Tensor], low: torch.Tensor, high: torch.Tensor, has: torch.Tensor) -> None:
    "The package's own intervals of these draws are the ones computed here at once."
    for k, draw in enumerate(zip(*sides)):
        rows = [Rows(x) for x in draw]
        ci = (score_rows(metric, *rows) if len(rows) == 1 else paired_difference(metric, *rows)).ci
        assert (ci is not None) == bool(has[k]), (metric.name, k)
        bounds = _value_range(metric) if len(rows) == 1 else (-np.inf, np.inf)
        if ci and ci.low > bounds[0] and ci.high < bounds[1]: np.testing.assert_allclose([ci.low, ci.high], [low[k], high[k]], rtol=1e-6, atol=1e-9)


def cell(metric: Metric, what: str, systems: dict, key: tuple, n: int, draws: int) -> dict:
    "One row of the map."
    generator, pools = rng(0, "coverage", metric.name, what, *key, n), [systems[s].pred for s in key]
    index = torch.from_numpy(generator.integers(0, len(pools[0]), (draws, n)))
    sides = [pool[index] for pool in pools]
    if what == "equal":
        other = torch.from_numpy(generator.random((draws, n)) < 0.5).view(draws, n, *[1]*(pools[0].ndim - 1))
        sides = [torch.where(other, sides[1], sides[0]), torch.where(other, sides[0], sides[1])]
    whole = [metric.statistic(systems[s]) for s in key]
    truth = 0.0 if what == "equal" else whole[0] - (whole[1] if len(whole) == 2 else 0)
    found = [influences(metric, side) for side in sides]
    value, moved, straight = (x - y for x, y in zip(*found)) if len(found) == 2 else found[0]
    has = telling(moved)
    if metric.unsettled:
        for side in sides: has &= torch.tensor([metric.unsettled(sums) is None for sums in side.sum(1)])
    def holds(low, high, where=has): return float(((low <= truth) & (truth <= high))[where].double().mean())
    low, high = student(value, moved, len(sides) == 1 and metric.pool is None)
    check(metric, [side[:8] for side in sides], low, high, has)
    few = slice(0, draws//8 if n <= DRAWN else 0)
    return {"metric": metric.name, "what": what, "systems": " − ".join(key), "n": n, "draws": draws, "truth": truth,
            "intervals": float(has.double().mean()), "covered": holds(low, high), "low": float((truth < low)[has].double().mean()),
            "high": float((truth > high)[has].double().mean()), "width": float((high - low)[has].median()/(2*1.959964*value.std())),
            "symmetric": holds(*student(value, moved, False)), "skewed": holds(*student(value, moved, True)),
            "gradient": holds(*student(value, straight, len(sides) == 1 and metric.pool is None)),
            "percentile": holds(*percentiles(metric, [side[few] for side in sides], generator), has[few]) if few.stop else np.nan}


def own_frequencies(data: Path, n: int, draws: int) -> dict:
    "CIDEr-D with the document frequencies of the n items at hand, as it is printed: what it is on average, and whether its interval holds the value of all."
    found, metric = lines(data/"coco_captions"/"val2017_1000.jsonl.gz"), get_metric("cider-d")
    def rows(index): return extract([metric], [found[i]["captions"][0] for i in index], [found[i]["captions"][1:] for i in index])["cider-d"]
    generator, truth = rng(0, "coverage", "own frequencies", n), metric.statistic(rows(range(len(found))))
    scores = [score_rows(metric, rows(generator.choice(len(found), n, replace=False))) for _ in range(draws)]
    ends, values = np.array([(s.ci.low, s.ci.high) for s in scores]), np.array([s.value for s in scores])
    return {"metric": "cider-d", "what": "frequencies of the data", "systems": "people", "n": n, "draws": draws, "truth": truth, "intervals": 1.0,
            "covered": float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()), "low": float((truth < ends[:, 0]).mean()),
            "high": float((truth > ends[:, 1]).mean()), "width": float(np.median(np.diff(ends))/(2*1.959964*values.std())), "mean": values.mean()}


def cells(pools: dict) -> list[tuple]: # metric, what, systems
    out = []
    for metric, systems in pools.items():
        out += [(metric, "value", (s,)) for s in systems]
        pairs = list(combinations(systems, 2))
        out += [(metric, what, pair) for pair in (pairs[0], pairs[-1]) for what in ("difference", "equal")]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", default="", help="a metric")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = Path(os.environ["INVARIANT_METRICS_DATA"])
    pools = {m: found for part in (sentences, captions, photographs) for m, found in part(data).items() if args.only in m.name}
    rows = []
    for metric, what, systems in progress(cells(pools), desc="cells"):
        rows += [cell(metric, what, pools[metric], systems, n, args.draws) for n in SIZES]
        with atomic_write(OUT) as path: pd.DataFrame(rows).to_csv(path, index=False, float_format="%.4g")
    if args.only in "cider-d":
        rows += [own_frequencies(data, n, args.draws//8) for n in SIZES]
        with atomic_write(OUT) as path: pd.DataFrame(rows).to_csv(path, index=False, float_format="%.4g")
    table = pd.DataFrame(rows)
    print(table.groupby(["what", "n"])[["covered", "intervals", "symmetric", "skewed", "gradient", "percentile"]].agg(["min", "mean", "max"]).round(3).to_string())


if __name__ == "__main__": main()
