"""What the best of n candidates by a metric is really worth, n = 1 … 512, in three worlds whose truth is exact.

Usage: python benchmarks/best_of_n.py [--items 40] [--keep FOLDER]      (writes nbs/results/best_of_n.csv; seven minutes on one core)"""
import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from invariant_metrics.color import join_lab, split_lab
from invariant_metrics.core import progress, rng
from invariant_metrics.edits.language_models import TaggedNGrams
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.cider import document_frequencies
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.probes.best_of_n import goodhart_curve
from invariant_metrics.worlds.bilingual import edits, make_sentences, preserved, write_sentence
from invariant_metrics.worlds.classes import CLASSES, COLORS
from invariant_metrics.worlds.scene_captions import WORDS, caption_truth, judge_captions, relation_captions, scenes_with_captions
from invariant_metrics.worlds.scene_text import captions, phrase
from invariant_metrics.worlds.scenes import color_truth, make_scenes, oracle_violation, recolored, wrong_color

OUT = Path(__file__).parent.parent/"nbs"/"results"/"best_of_n.csv"
SIZES = [2**k for k in range(10)]
MANY = SIZES[-1]
SIDE = 32 # pixels, as in the study of colorization
WORLD = 91 # a seed that nothing was trained on
EDITS = ("entity", "place", "number", "sentiment", "relation") # of a meaning


def scored(names: dict, pred, target=None, source=None) -> dict[str, np.ndarray]: # metric -> (N,), higher is better
    "Values per candidate of some metrics, under names of their own, those of faults with their sign turned."
    built = {name: get_metric(spec, **options) for name, (spec, options) in names.items()}
    out = {}
    for name, metric in built.items():
        rows, = extract([metric], pred, target if metric.compares else None, source if metric.card.get("source") else None).values()
        out[name] = np.asarray(metric.values(rows.pred), float)*(-1 if metric.higher_is_better is False else 1)
    return out


def plain(*names: str) -> dict: return {name: (name, {}) for name in names}


# ---- pictures: colorings of a gray scene

def colorings(scene, generator: np.random.Generator) -> torch.Tensor: # (MANY, 3, H, W)
    "Right and wrong colors in all degrees, paler and stronger than they are, some of them smeared."
    parts = []
    for share in (0.05, 0.15, 0.3, 0.5, 0.7, 0.9, 1.0, 1.0):
        many = recolored(scene[torch.zeros(MANY//8, dtype=torch.long)], generator)
        strength = torch.from_numpy(generator.random(MANY//8)).float()
        L, ab = split_lab(wrong_color(many, generator, share, strength))
        ab = ab*torch.from_numpy(np.exp(generator.uniform(np.log(0.2), np.log(2.2), MANY//8))).float()[:, None, None, None]
        wide = 2
        smeared = F.avg_pool2d(F.pad(ab, (wide,)*4, mode="replicate"), 2*wide + 1, stride=1)
        ab = torch.where(torch.from_numpy(generator.random(MANY//8) < 0.2)[:, None, None, None], smeared, ab)
        parts.append(join_lab(L, ab))
    return torch.cat(parts)


class Density:
    "How usual the features of a picture are among a thousand scenes: the distance that a Fréchet distance knows."
    def __init__(self):
        self.encoder = get_encoder("embedded")
        made = self.features(make_scenes(1000, SIDE, WORLD + 1).rgb)
        self.mean = made.mean(0)
        self.inverse = torch.linalg.pinv(torch.cov(made.T) + 1e-3*made.var(0).mean()*torch.eye(made.shape[1]))

    def features(self, rgb: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(): return torch.cat([self.encoder.encode(x, self.encoder.layers[-1]) for x in rgb.split(64)]).double()

    def __call__(self, rgb: torch.Tensor) -> np.ndarray:
        away = self.features(rgb) - self.mean
        return -((away@self.inverse.to(away))*away).sum(1).numpy()


def pictures(items: int):
    "Each scene: what metrics say of its candidates, and minus the exact violation."
    of = make_scenes(items, SIDE, WORLD)
    density = Density()
    against = ("lpips-embedded", "violation-segmentation", "violation-depth")
    def ask(i: int) -> tuple[dict, np.ndarray]:
        scene = of[i:i + 1]
        made = colorings(scene, rng(0, "best of n", "pictures", i))
        truth = scene.rgb.expand(MANY, -1, -1, -1)
        gray = join_lab(scene.L, torch.zeros_like(scene.lab[:, 1:])).expand(MANY, -1, -1, -1)
        found = {("target", k): v for k, v in scored(plain("psnr", "ssim", *against), made, truth).items()}
        found |= {("input", f"{k} to the gray input"): v for k, v in scored(plain(*against), made, gray).items()}
        prompt = [captions(scene, 0)[0]]*MANY
        named = {"clipscore of the caption": ("clipscore", {"weights": "embedded-clip", "long": "cut"}), "l-clipscore of the caption": ("l-clipscore", {"long": "cut"})}
        found |= {("prompt", k): v for k, v in scored(named, prompt, source=made).items()}
        found["nothing", "colorfulness"], = scored(plain("colorfulness"), made).values()
        found["nothing", "density of features"] = density(made)
        found["nothing", "consensus (near the mean)"] = -(made - made.mean(0)).square().mean((1, 2, 3)).numpy().astype(float)
        return found, -oracle_violation(color_truth(scene[torch.zeros(MANY, dtype=torch.long)]), made).numpy().astype(float)
    return ask


# ---- texts

def consensus(texts: list[str]) -> np.ndarray: # (N,) mean overlap of words with all others
    words = sorted({w for t in texts for w in t.split()})
    at = {w: k for k, w in enumerate(words)}
    has = np.zeros((len(texts), len(words)))
    for i, t in enumerate(texts): has[i, [at[w] for w in t.split()]] = 1
    return (2*has@has.T/np.add.outer(has.sum(1), has.sum(1)).clip(1)).mean(1)


def length(texts: list[str]) -> np.ndarray: return np.array([len(t.split()) for t in texts], float)


def disturbed(text: str, others: list[str], generator: np.random.Generator) -> str:
    "Words lost, said twice, exchanged, or a clause of another text added."
    words = text.split()
    for _ in range(generator.poisson(0.7)):
        k = int(generator.integers(len(words)))
        kind = generator.integers(4)
        if kind == 0 and len(words) > 2: del words[k]
        elif kind == 1: words[k:k] = words[k:k + 1 + int(generator.integers(3))]
        elif kind == 2 and k: words[k - 1:k + 1] = words[k - 1:k + 1][::-1]
        elif kind == 3: words += ["and", *others[int(generator.integers(len(others)))].rstrip(".").split()]
    return " ".join(words)


NOUNS = [c.name for c in CLASSES]
RELATIONS = sorted({w for wordings in WORDS.values() for w in wordings}, key=len, reverse=True)


def misstated(caption: str, generator: np.random.Generator) -> str:
    "Another noun, color or relation here and there, or a thing more."
    for _ in range(generator.poisson(1.2)):
        kind = int(generator.integers(4))
        if kind == 3:
            caption = f"{caption.rstrip('.')} and {phrase(str(generator.choice(NOUNS)), str(generator.choice([*COLORS])))}"
            continue
        pool = (NOUNS, [*COLORS], RELATIONS)[kind]
        there = [w for w in pool if f" {w} " in f" {caption} "]
        if there: caption = f" {caption} ".replace(f" {generator.choice(there)} ", f" {generator.choice(pool)} ", 1).strip()
    return caption


REFERENCE_METRICS = ("bleu-4", "rouge-l", "chrf", "meteor-nltk")


def written(items: int):
    "Each painted scene: what metrics say of captions, and the share of true facts among those that they claim."
    of = scenes_with_captions(items, 64, WORLD)
    other = scenes_with_captions(300, 8, WORLD + 1)
    foreign = [t for i in range(300) for t in (captions(other, i)[0], relation_captions(other, i)[0])]
    likely = TaggedNGrams(foreign)
    rare = document_frequencies([relation_captions(other, i) for i in range(300)]) # of words, in other scenes
    def ask(i: int) -> tuple[dict, np.ndarray]:
        draw = rng(0, "best of n", "captions", i)
        right = captions(of, i)
        made = [disturbed(misstated(str(draw.choice(right)), draw), foreign + right*40, draw) for _ in range(MANY)]
        references = [tuple(relation_captions(of, i))]*MANY
        of_references = plain(*REFERENCE_METRICS, "scene-graph-f1") | {"cider-d": ("cider-d", {"df": rare})}
        found = {("target", k): v for k, v in scored(of_references, made, references).items()}
        named = {"clipscore": ("clipscore", {"weights": "embedded-clip", "long": "cut"}), "l-clipscore": ("l-clipscore", {"long": "cut"})}
        found |= {("input", k): v for k, v in scored(named, made, source=of.rgb[i:i + 1].expand(MANY, -1, -1, -1)).items()}
        found |= {("nothing", "likelihood"): likely(made), ("nothing", "length"): length(made), ("nothing", "consensus of words"): consensus(made)}
        return found, judge_captions(made, [caption_truth(of, i)]*MANY)["all"]
    return ask


def translated(items: int):
    "Each German sentence: what metrics say of translations, and the mean of the four facts that they keep."
    of = make_sentences(items, seed=WORLD, names="all")
    foreign = make_sentences(600, seed=WORLD + 1, names="all").english
    likely = TaggedNGrams(foreign)
    def ask(i: int) -> tuple[dict, np.ndarray]:
        draw = rng(0, "best of n", "translations", i)
        made = []
        while len(made) < MANY:
            meaning = of.meanings[i]
            for _ in range(draw.poisson(1.0)): meaning = edits(meaning, str(draw.choice(EDITS)), draw) or meaning
            made.append(disturbed(write_sentence(meaning, draw), foreign, draw))
        references = [of.references[i][:4]]*MANY
        found = {("target", k): v for k, v in
                 scored(plain(*REFERENCE_METRICS, "ter", "violation-entities"), made, references).items()}
        copied = set(of.source[i].rstrip(".").split())
        share = [2*len(copied & (own := {*t.rstrip(".").split()}))/(len(copied) + len(own)) for t in made]
        found |= {("input", "words of the source"): np.array(share), ("nothing", "likelihood"): likely(made),
                  ("nothing", "length"): length(made), ("nothing", "consensus of words"): consensus(made)}
        kept = preserved(made, [of.meanings[i]]*MANY)
        return found, np.mean([kept[k] for k in ("entities", "numbers", "sentiment", "relation")], 0)
    return ask


# ---- the curves

def ranks(x: np.ndarray) -> np.ndarray: return pd.DataFrame(x.T).rank().to_numpy().T


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float: # mean over items; 0 where one side is constant
    a, b = (x - x.mean(1, keepdims=True) for x in (ranks(a), ranks(b)))
    size = ((a**2).sum(1)*(b**2).sum(1))**0.5
    return float(((a*b).sum(1)/np.where(size > 0, size, np.inf)).mean())


def asked(world: str, ask, items: int, folder: Path) -> list: # of each item, from the folder where it is there
    out = []
    for i in progress(range(items), desc=world):
        place = folder/f"{world}-{i}.npz"
        if not place.exists():
            found, truth = ask(i)
            np.savez(place, truth=truth, **{"|".join(key): v for key, v in found.items()})
        with np.load(place) as kept:
            out.append(({tuple(key.split("|")): kept[key] for key in kept if key != "truth"}, kept["truth"]))
    return out


def curves(world: str, found: list) -> pd.DataFrame:
    "The curve of each metric and of the truth itself."
    truth = np.stack([t for _, t in found])
    columns = {("truth", "the truth itself"): truth} | {key: np.stack([m[key] for m, _ in found]) for key in found[0][0]}
    return pd.concat([goodhart_curve(values, truth, SIZES).assign(world=world, looks_at=looks, metric=name, items=len(truth),
                                                                  rank_correlation=rank_correlation(values, truth))
                      for (looks, name), values in columns.items()])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir())/"best_of_n", help="what was measured, to go on from there")
    asked_for = parser.parse_args()
    items = asked_for.items
    asked_for.keep.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    worlds = {"captions": written, "translations": translated, "colorings": pictures}
    table = pd.concat([curves(world, asked(world, make(items), items, asked_for.keep)) for world, make in worlds.items()], ignore_index=True)
    with atomic_write(OUT) as path: table.to_csv(path, index=False, float_format="%.5g")
    print(table[table["n"].isin((1, 16, 128, 512))].pivot_table(index=["world", "looks_at", "metric"], columns="n", values="truth").round(3).to_string())
