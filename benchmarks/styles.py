"""Correlations between distances and HYPE-Style: how fast, how often the intervals hold, and the published design on scenes.

Usage: python benchmarks/styles.py [speed] [study] [coverage] [scenes] [INCEPTION_WEIGHTS]   (no word: all four)
Writes nbs/results/styles_speed.csv, styles_study.csv, styles_coverage.csv, styles_scenes.csv, styles_scenes_hype.csv. INCEPTION_WEIGHTS, a local file of
FID's network, adds its four layers to those of the embedded encoder and of the same network with random weights."""
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from invariant_metrics.files import atomic_write
from invariant_metrics.stats import bootstrap_weights, interval, normal_interval
from invariant_metrics.core import rng
from invariant_metrics.worlds.scenes import make_scenes, oracle_violation, recolored
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.people.assign import assign
from invariant_metrics.edits.colors import Items, at_strength, perturbations
from invariant_metrics.people.styles import _corrected_interval, _corrected_replicates, _distance_replicates
from invariant_metrics.people.styles import _real_side, _row_correlation, style_agreement
from invariant_metrics.people.styles import _style_features, _style_images
from invariant_metrics.metrics.frechet import frechet_distance
from invariant_metrics.metrics.kernel import Polynomial
from invariant_metrics.metrics.mmd import mmd2

RESULTS = Path(__file__).parent.parent/"nbs"/"results"


def simulate_labels(
    plan: pd.DataFrame,          # from `assign`
    chance: Mapping[str, float], # style -> probability in (0, 1) that a typical evaluator calls it real
    seed: int = 0,
    leniency: float = 0.5,       # spread of evaluators, in logits
    difficulty: float = 0.5,     # spread of inputs, in logits
) -> pd.DataFrame: # evaluator, input, style, label, of the generated pictures
    """Labels from evaluators whose probability of saying real is known; raises InputError for a style without
    a probability."""
    made = plan[~plan["real"].astype(bool)]
    def effects(column, spread): # name -> logits
        return {name: spread * rng(seed, column, name).standard_normal() for name in made[column].unique()}
    quality = {style: np.log(p / (1 - p)) for style, p in chance.items()}
    logit = made["style"].map(quality).astype(float)
    logit = logit + made["evaluator"].map(effects("evaluator", leniency)).astype(float)
    logit = logit + made["input"].map(effects("input", difficulty)).astype(float)
    real = rng(seed, "labels").random(len(made)) < 1 / (1 + np.exp(-logit))
    return made[["evaluator", "input", "style"]].assign(label=real.astype(int)).reset_index(drop=True)


def speed(styles: int = 20, inputs: int = 25, photos: int = 100, reps: int = 1000, few: int = 2) -> pd.DataFrame:
    "Processor seconds for all replicates at once, and for a loop over replicates (timed on a few of them)."
    rows, torch_rng = [], torch.Generator().manual_seed(0)
    u, v = (torch.from_numpy(bootstrap_weights(n, reps, rng(0, n))).double() for n in (inputs, photos))
    for layer, width in (("pool1", 64), ("pool2", 192), ("pre-aux", 768), ("pool3", 2048)):
        x, y = (torch.randn(*size, width, generator=torch_rng).double() for size in ((styles, inputs), (photos,)))
        for metric, one in (("FID", frechet_distance), ("KID", lambda a, b, w, z: mmd2(a, b, w, z, kernel=Polynomial()))):
            start = time.process_time()
            at_once = _distance_replicates(metric, x, _real_side(y, v, "keep"), u, "keep")
            middle = time.process_time()
            loop = np.array([[one(rows, y, a, b) for rows in x] for a, b in zip(u[:few], v[:few])])
            looped = (time.process_time() - middle)*reps/few
            rows.append((layer, metric, middle - start, looped, looped/(middle - start), np.abs(at_once[:few]/loop - 1).max()))
    return pd.DataFrame(rows, columns=["layer", "metric", "seconds", "loop", "ratio", "largest relative difference"])


def study(size: int = 64, reps: int = 25) -> pd.DataFrame:
    "Processor seconds of a study on the embedded network's five layers and its untrained twin: features once, then all distances."
    rows, scenes = [], make_scenes(500, size=size, seed=3).rgb
    for styles, inputs in ((20, 500), (20, 250), (20, 125), (10, 500), (5, 500)):
        made = {f"s{k}": (scenes[:inputs] + 0.02*k*torch.from_numpy(rng(0, k).standard_normal((inputs, 3, 1, 1))).float()).clamp(0, 1) for k in range(styles)}
        pictures = _style_images(made, scenes)
        chance = dict(zip(made, np.linspace(0.9, 0.1, styles)))
        labels = simulate_labels(assign(pictures.inputs, pictures.styles, max(60, inputs), 25, seed=1), chance, seed=1)
        start = time.process_time()
        features, plain = (_style_features(pictures, get_encoder("embedded", untrained=twin)) for twin in (False, True))
        middle = time.process_time()
        style_agreement(features, labels, pictures.styles, pictures.inputs, reps=reps, control=plain)
        rows.append((styles, inputs, len(scenes), reps, middle - start, time.process_time() - middle))
    found = pd.DataFrame(rows, columns=["styles", "inputs", "real", "reps", "seconds, features", "seconds, distances"])
    return found.assign(quantity=[f"distances after features, {s} styles of {n}" for s, n in zip(found["styles"], found["inputs"])],
                        required=[60 if (s, n) == (20, 500) else None for s, n in zip(found["styles"], found["inputs"])])


def world(seed: int, styles: int, blind: float, width: int = 16) -> dict:
    "Styles that move all features by a known amount; people see that amount and something else."
    g = rng(seed, "world")
    direction = g.standard_normal((styles, width))
    amount = g.uniform(0, 1.5, styles)
    return dict(shift=amount[:, None]*direction/np.linalg.norm(direction, axis=1, keepdims=True), amount=amount, scale=0.7**np.arange(width),
                logit=1 - 2*amount + blind*g.standard_normal(styles))


def truth(w: dict, metric: str) -> tuple[np.ndarray, np.ndarray]:
    "Population HYPE-Style and scores: minus FID in closed form (less a constant), minus KID from a large sample."
    hard = np.linspace(-3, 3, 601)
    mass = np.exp(-hard**2/2)/np.exp(-hard**2/2).sum()
    people = (mass/(1 + np.exp(-(w["logit"][:, None] + 0.5*hard)))).sum(1)
    g = rng(0, "population")
    real, made = (w["scale"]*g.standard_normal((500, len(w["scale"]))) for _ in range(2))
    made = made + 0.3*g.standard_normal(made.shape)
    if metric == "FID": return people, -(w["shift"]**2).sum(1)
    return people, -np.array([mmd2(torch.from_numpy(made + s), torch.from_numpy(real), kernel=Polynomial()) for s in w["shift"]])


def sample(w: dict, seed: int, inputs: int, photos: int, labels: int) -> tuple:
    "Features and labels of one study."
    g, (styles, width) = rng(seed, "study"), w["shift"].shape
    content, hard = w["scale"]*g.standard_normal((inputs, width)), 0.5*g.standard_normal(inputs)
    x = content + w["shift"][:, None] + 0.3*g.standard_normal((styles, inputs, width))
    y = w["scale"]*g.standard_normal((photos, width))
    said = g.binomial(labels, 1/(1 + np.exp(-(w["logit"][:, None] + hard))))
    return torch.from_numpy(x), torch.from_numpy(y), said/labels


def covered(seed: int, blind: float, inputs: int, metric: str = "FID", reps: int = 200, styles: int = 20, photos: int = 100) -> list[dict]:
    "For one study, which intervals hold the correlation that infinitely many inputs would give."
    w = world(seed, styles, blind)
    people, score = truth(w, metric)
    x, y, said = sample(w, seed, inputs, photos, labels=3)
    u, v = (np.concatenate([np.ones((1, n)), bootstrap_weights(n, reps, rng(seed, n, "boot"))]) for n in (inputs, photos))
    drawn = -_distance_replicates(metric, x, _real_side(y, torch.from_numpy(v)), torch.from_numpy(u))
    r, less = _row_correlation(u @ said.T/inputs, drawn), _corrected_replicates(u @ said.T/inputs, drawn)
    first, r, few = r[0], r[1:], r[1:26]
    goal = float(_row_correlation(people, score))
    forms = {"percentile": interval(first, r), "normal, at the median": normal_interval(np.median(r), r.std(ddof=1)),
             "normal, at r": normal_interval(first, r.std(ddof=1)), "corrected": _corrected_interval(less[1:]),
             "percentile of 25": interval(first, few), "normal of 25": normal_interval(np.median(few), few.std(ddof=1)), "25, spread/√25": normal_interval(np.median(few), few.std(ddof=1)/5)}
    return [dict(metric=metric, inputs=inputs, blind=blind, form=form, truth=goal, r=first, median=np.median(r), corrected=less[0],
                 hit=ci.low <= goal <= ci.high, below=ci.high < goal, width=ci.high - ci.low) for form, ci in forms.items()]


def coverage(studies: int = 80) -> pd.DataFrame:
    "Shares of intervals that hold the truth, with Monte-Carlo errors."
    designs = [("FID", 0.3, 25), ("FID", 1.0, 25), ("KID", 0.3, 25), ("KID", 1.0, 25), ("KID", 1.0, 100)]
    rows = [row for metric, blind, inputs in designs for seed in range(studies) for row in covered(seed, blind, inputs, metric)]
    groups = pd.DataFrame(rows).groupby(["metric", "blind", "inputs", "form"], sort=False)
    table = groups[["truth", "r", "median", "corrected", "width", "hit", "below"]].mean().rename(columns={"hit": "coverage", "below": "wholly below"})
    return table.assign(error=np.sqrt(table["coverage"]*(1 - table["coverage"])/groups.size()), studies=groups.size()).reset_index()


def at_violation(items: Items, family: str, target: float, seed: int = 0) -> torch.Tensor:
    "Pictures of all items, the family's strength such that the mean Lab distance to the nearest right coloring is `target`."
    dose, _ = perturbations[family](items, rng(seed, family))
    paint, low, high = lambda s: at_strength(items, dose, torch.full((len(items),), s)), 0.0, 1.0
    for _ in range(12):
        middle = (low + high)/2
        low, high = (middle, high) if float(oracle_violation(items.scenes, paint(middle)).mean()) < target else (low, middle)
    return paint(low)


def made_styles(inputs: int = 25, size: int = 64, seed: int = 3) -> tuple[dict, dict]:
    "Twenty styles: four valid recolorings and four ways to be wrong at four strengths; and how wrong each is, in Lab units."
    scenes = make_scenes(inputs, size=size, seed=seed)
    items = Items(scenes.rgb, scenes.instances, np.arange(inputs), scenes)
    styles = {f"valid-{k}": recolored(scenes, rng(seed, "valid", k)).rgb for k in range(4)}
    for family in ("desaturation", "bleeding", "chroma-shift", "blotches"):
        styles |= {f"{family}-{goal}": at_violation(items, family, goal) for goal in (2, 4, 6, 8)}
    return styles, {name: float(oracle_violation(scenes, rgb).mean()) for name, rgb in styles.items()}


def scenes(weights: str | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    "The published design, 25 inputs, 20 styles, 60 evaluators, on scenes: the rows of Table 1 for several networks; the styles."
    styles, wrong = made_styles()
    pictures = _style_images(styles, make_scenes(100, size=64, seed=4).rgb)
    chance = {name: 1/(1 + np.exp(-(1.5 - 0.35*v))) for name, v in wrong.items()}
    labels = simulate_labels(assign(pictures.inputs, pictures.styles, 60, 25, seed=1), chance, seed=1)
    nets = {"embedded": get_encoder("embedded"), "embedded, random weights": get_encoder("embedded", untrained=True)}
    if weights: nets = {"Inception": get_encoder("inception", weights=weights), **nets}
    tables, hype = [], None
    for name, net in nets.items():
        features = _style_features(pictures, net, batch=25)
        for reps, target in ((1000, "inputs"), (25, "inputs"), (1000, "styles too")):
            found = style_agreement(features, labels, pictures.styles, pictures.inputs, reps=reps, new_styles=target != "inputs")
            tables.append(found.table.assign(network=name, reps=reps, target=target))
        scores = {f"{name}|{metric}|{layer}": score for (metric, layer), score in found.scores.items()}
        hype = (pd.DataFrame({"style": found.styles, "violation": list(wrong.values()), "chance": list(chance.values()), "HYPE-Style": found.hype})
                if hype is None else hype).assign(**scores)
    return pd.concat(tables), hype


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = {"speed": speed, "study": study, "coverage": coverage, "scenes": lambda: scenes(*files)}
    words = [w for w in sys.argv[1:] if w in known] or [*known]
    files = [w for w in sys.argv[1:] if w not in known]
    for word in words:
        found = known[word]()
        for name, table in zip((f"styles_{word}", f"styles_{word}_hype"), found if isinstance(found, tuple) else (found,)):
            with atomic_write(RESULTS/f"{name}.csv") as path: table.to_csv(path, index=False, float_format="%.4g")
            print(name, table.round(3).to_string(index=False), sep="\n")
