"""What cheap tricks reach on captions of COCO by people and by three captioners, each metric's best trick beside the caption it was done to.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/tricks.py      (writes nbs/results/tricks.csv; ten seconds)
FOLDER holds coco_captions/karpathy_captioners_500.jsonl.gz: 500 pictures, four references and four candidates each."""
import gzip
import json
import os
from pathlib import Path

import pandas as pd

from invariant_metrics.files import atomic_write
from invariant_metrics.scoring.score import score

OUT = Path(__file__).parent.parent/"nbs"/"results"/"tricks.csv"
METRICS = ("bleu-1", "bleu-4", "rouge-l", "cider-d", "chrf")


if __name__ == "__main__":
    with gzip.open(Path(os.environ["INVARIANT_METRICS_DATA"])/"coco_captions"/"karpathy_captioners_500.jsonl.gz") as file:
        rows = [json.loads(line) for line in file]
    references = [row["references"] for row in rows]
    systems = {kind: [row["candidates"][k] for row in rows] for k, kind in enumerate(rows[0]["candidate_kind"])}
    found = score(systems, references, METRICS, tricks=True)
    table = pd.concat([by.by_trick().assign(system=system, own=lambda t: t["metric"].map({m: s.value for m, s in by.items()}))
                       for system, by in found.items()])
    with atomic_write(OUT) as path: table.to_csv(path, index=False, float_format="%.5g")
    print(table[table["trick"] != "vote"].groupby(["metric", "system"]).first().round(3).to_string())
