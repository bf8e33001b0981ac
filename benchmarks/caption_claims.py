"""What the captioners of a study claim about where things stand, counted from the texts that they wrote.

    python benchmarks/caption_claims.py RUN…       (run folders of studies of captioning in the package's own world)

A relation is a *side* if it lies between two things (left of a boat), and a *ground* if it says what a thing stands on or in.
A share of true relations rises when grounds are claimed, which are true of most things. Kept as nbs/results/caption_claims.csv:
a row for each system, weight and measure, per caption, with the difference from the baseline, and of the scene graph from its two
controls at the same weight, over pictures and seeds, and Holm's p over the measures. Stored are the networks of
    invariant-metrics study captioning --parts training --alphas 10,30,100 --seeds 5 \\
        --systems scene-graph,scene-graph-shuffled,scene-graph-single,paraphrase
which take 11 minutes on two cores."""
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.core import rng
from invariant_metrics.experiments.contrast import holm_p, mean_over_seeds, p_over_seeds
from invariant_metrics.stats import bootstrap_weights
from invariant_metrics.studies.plan import STUDY_WORLD, read_unit
from invariant_metrics.training.text_corpora import scene_blocks
from invariant_metrics.worlds.scene_captions import MIRROR, caption_truth, read_claims

OUT = Path(__file__).parents[1]/"nbs"/"results"/"caption_claims.csv"
MEASURED = ("true-relations", "true-sides", "kept-relations", "false-claims", "claims-relation", "fbd", "cider-d") # by the study
GRAPH = "+scene-graph"
CONTROLS = ("+scene-graph-shuffled", "+scene-graph-single")


def counted(texts: list[str], truths: list) -> dict[str, np.ndarray]: # measure -> (N,)
    claims = [read_claims(text).relations for text in texts]
    grounds = [{r for r in said if r[1] not in MIRROR} for said in claims]
    return {"grounds": np.array([len(g) for g in grounds], float),
            "true-grounds": np.array([len(g & truth.relations) for g, truth in zip(grounds, truths)], float),
            "words": np.array([len(text.split()) for text in texts], float)}


def measured(unit: Path, truths: list, drawn: np.ndarray) -> dict[str, np.ndarray]: # measure -> (1 + R,)
    stored = read_unit(unit/"result.safetensors")[0]
    own = counted((unit/"test.txt").read_text().splitlines(), truths)
    return {name: stored[f"test@0/{name}"] for name in MEASURED} | {name: drawn @ values for name, values in own.items()}


def compared(system: str, alpha: float, runs: dict, against: str, others: dict) -> list[dict]:
    seeds = sorted({*runs} & {*others})
    if len(seeds) < 3: return [] # two seeds have no interval worth the name
    rows = []
    for name in runs[seeds[0]]:
        own, other = (np.stack([side[k][name] for k in seeds]) for side in (runs, others))
        value, ci = mean_over_seeds(own - other)
        rows.append({"system": system, "alpha": alpha, "against": against, "measure": name, "other": other[:, 0].mean(),
                     "value": own[:, 0].mean(), "difference": value, "ci_low": ci.low, "ci_high": ci.high,
                     "p": p_over_seeds(own - other), "seeds": len(seeds)})
    return rows


def main():
    folders = [Path(run)/"training" for run in sys.argv[1:]]
    settings = json.loads((folders[0]/"settings.json").read_text())
    size, seed = settings["size"], settings["settings"]["seed"]
    blocks = scene_blocks(size["side"], STUDY_WORLD + seed, size["train"] + size["validation"], size["test"])
    truths = [caption_truth(block, i) for block in blocks for i in range(len(block))]
    weights = bootstrap_weights(size["test"], size["reps"], rng(seed, "study"))
    drawn = np.vstack([np.ones(size["test"]), weights])
    drawn /= drawn.sum(1, keepdims=True)
    means: dict = {} # (system, alpha) -> seed -> measure -> (1 + R,)
    for path in sorted(path for folder in folders for path in folder.glob("runs/*/result.safetensors")):
        unit, _, run = path.parent.name.rpartition("-s")
        system, _, alpha = unit.partition("@")
        means.setdefault((system, float(alpha)), {})[int(run)] = measured(path.parent, truths, drawn)
    base = means.pop(("baseline", 0.0))
    rows = []
    for (system, alpha), runs in sorted(means.items()):
        rows += compared(system, alpha, runs, "baseline", base)
        if system != GRAPH: continue
        for control in CONTROLS: rows += compared(system, alpha, runs, control, means.get((control, alpha), {}))
    table = pd.DataFrame(rows)
    table["p_holm"] = table.groupby(["system", "alpha", "against"])["p"].transform(holm_p)
    table.round(5).to_csv(OUT, index=False)
    print(table.round(3).to_string())


if __name__ == "__main__": main()
