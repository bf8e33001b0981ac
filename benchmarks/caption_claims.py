"""What the captioners of a study claim about where things stand, counted from the texts that they wrote.

    python benchmarks/caption_claims.py RUN        (the run folder of a study of captioning in the package's own world)

A relation is a *side* if it lies between two things (left of a boat), and a *ground* if it says what a thing stands on or in.
A share of true relations rises when grounds are claimed, which are true of most things. Kept as nbs/results/caption_claims.csv:
for each system, weight and seed the claims and true claims of both kinds, and the false claims of any kind, each per caption."""
import json
import sys
from pathlib import Path

import pandas as pd

from invariant_metrics.training.text_corpora import scene_blocks
from invariant_metrics.studies.plan import STUDY_WORLD
from invariant_metrics.worlds.scene_captions import MIRROR, caption_truth, read_claims

OUT = Path(__file__).parents[1]/"nbs"/"results"/"caption_claims.csv"


def counted(texts: list[str], truths: list) -> dict: # means per caption
    rows = []
    for text, truth in zip(texts, truths, strict=True):
        claims = read_claims(text)
        kinds = {"sides": {r for r in claims.relations if r[1] in MIRROR}}
        kinds["grounds"] = claims.relations - kinds["sides"]
        row = {"words": len(text.split()), "false": sum(len(c - t) for c, t in zip(claims, truth)), "claims": sum(map(len, claims)),
               "relates": bool(claims.relations)}
        for kind, said in kinds.items(): row |= {kind: len(said), f"true {kind}": len(said & truth.relations)}
        rows.append(row)
    return pd.DataFrame(rows).astype(float).mean().round(4).to_dict()


def main():
    folder = Path(sys.argv[1])/"training"
    settings = json.loads((folder/"settings.json").read_text())
    size = settings["size"]
    first = size["train"] + size["validation"]
    blocks = scene_blocks(size["side"], STUDY_WORLD + settings["settings"]["seed"], first, size["test"])
    truths = [caption_truth(block, i) for block in blocks for i in range(len(block))]
    rows = []
    for path in sorted(folder.glob("runs/*/test.txt")):
        if not (path.parent/"result.safetensors").exists(): continue
        unit, _, seed = path.parent.name.rpartition("-s")
        system, _, alpha = unit.partition("@")
        rows.append({"system": system, "alpha": float(alpha), "seed": int(seed), **counted(path.read_text().splitlines(), truths)})
    table = pd.DataFrame(rows).sort_values(["system", "alpha", "seed"])
    table.to_csv(OUT, index=False)
    print(table.groupby(["system", "alpha"]).mean().round(3).to_string())


if __name__ == "__main__": main()
