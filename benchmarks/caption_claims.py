"""What the captioners of a study claim about where things stand, counted from the texts that they wrote.

    python benchmarks/caption_claims.py RUN        (the run folder of a study of captioning in the package's own world)

A relation is a *side* if it lies between two things (left of a boat), and a *ground* if it says what a thing stands on or in.
A share of true relations rises when grounds are claimed, which are true of most things. Kept as nbs/results/caption_claims.csv:
a row for each system, weight and measure, per caption, with the difference from the baseline over pictures and seeds and Holm's p.
Stored are the networks of
    invariant-metrics study captioning --parts training --alphas 10 --seeds 3 \\
        --systems scene-graph,scene-graph-shuffled,scene-graph-single"""
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.core import rng
from invariant_metrics.experiments.contrast import holm_p, mean_over_seeds, p_over_seeds
from invariant_metrics.stats import bootstrap_weights
from invariant_metrics.studies.plan import STUDY_WORLD
from invariant_metrics.training.text_corpora import scene_blocks
from invariant_metrics.worlds.scene_captions import MIRROR, caption_truth, count_claims, judge_captions, read_claims

OUT = Path(__file__).parents[1]/"nbs"/"results"/"caption_claims.csv"
MEASURES = ("true-relations", "true-sides", "sides", "grounds", "true-grounds", "kept-relations", "false-claims", "claims-relation", "words")


def counted(texts: list[str], truths: list) -> dict[str, np.ndarray]: # measure -> (N,)
    found = {"true-relations": judge_captions(texts, truths)["relations"], **count_claims(texts, truths)}
    claims = [read_claims(text).relations for text in texts]
    grounds = [{r for r in said if r[1] not in MIRROR} for said in claims]
    found["grounds"] = np.array([len(g) for g in grounds], float)
    found["sides"] = np.array([len(said) for said in claims], float) - found["grounds"]
    found["true-grounds"] = np.array([len(g & truth.relations) for g, truth in zip(grounds, truths)], float)
    found["words"] = np.array([len(text.split()) for text in texts], float)
    return {name: found[name] for name in MEASURES}


def main():
    folder = Path(sys.argv[1])/"training"
    settings = json.loads((folder/"settings.json").read_text())
    size, seed = settings["size"], settings["settings"]["seed"]
    blocks = scene_blocks(size["side"], STUDY_WORLD + seed, size["train"] + size["validation"], size["test"])
    truths = [caption_truth(block, i) for block in blocks for i in range(len(block))]
    weights = bootstrap_weights(size["test"], 1000, rng(seed, "study"))
    drawn = np.vstack([np.ones(size["test"]), weights])
    drawn /= drawn.sum(1, keepdims=True)
    means: dict = {} # (system, alpha) -> seed -> measure -> (1 + R,)
    for path in sorted(folder.glob("runs/*/test.txt")):
        if not (path.parent/"result.safetensors").exists(): continue
        unit, _, run = path.parent.name.rpartition("-s")
        system, _, alpha = unit.partition("@")
        values = counted(path.read_text().splitlines(), truths)
        means.setdefault((system, float(alpha)), {})[int(run)] = {name: drawn @ v for name, v in values.items()}
    base = means.pop(("baseline", 0.0))
    rows = []
    for (system, alpha), runs in means.items():
        seeds = sorted({*runs} & {*base})
        if len(seeds) < 3: continue # two seeds have no interval worth the name
        for name in MEASURES:
            own, plain = (np.stack([side[k][name] for k in seeds]) for side in (runs, base))
            value, ci = mean_over_seeds(own - plain)
            rows.append({"system": system, "alpha": alpha, "measure": name, "baseline": plain[:, 0].mean(), "value": own[:, 0].mean(),
                         "difference": value, "ci_low": ci.low, "ci_high": ci.high, "p": p_over_seeds(own - plain), "seeds": len(seeds)})
    table = pd.DataFrame(rows)
    table["p_holm"] = table.groupby(["system", "alpha"])["p"].transform(holm_p)
    table.round(5).to_csv(OUT, index=False)
    print(table.round(3).to_string())


if __name__ == "__main__": main()
