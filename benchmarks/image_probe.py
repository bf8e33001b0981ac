"""What metrics notice on real photographs whose regions people have drawn: damage of all kinds, and faults of color.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/image_probe.py [PHOTOGRAPHS]
FOLDER holds bsds500/images and bsds500/segmentations. Writes nbs/results/image_probe/{profile,auc,ledger}.parquet and seconds.json."""
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.files import atomic_write, save_results
from invariant_metrics.probes.own_images import image_probe
from invariant_metrics.probes.images import color_probe
from invariant_metrics.probes.probe_task import combine_results

OUT = Path(__file__).parent.parent/"nbs"/"results"/"image_probe"


def some(folder: Path, count: int, place: Path) -> Path:
    "A folder with so many of the photographs, evenly spread over their names."
    files = sorted(p for p in folder.iterdir() if p.suffix == ".jpg")
    for i in np.unique(np.linspace(0, len(files) - 1, count).round().astype(int)): (place/files[i].name).symlink_to(files[i].resolve())
    return place


def short(frame: pd.DataFrame) -> pd.DataFrame:
    "The same in single precision: a table to be read, not to be computed with."
    return frame.astype({c: np.float32 for c in frame if frame[c].dtype == np.float64})


if __name__ == "__main__":
    root, count = Path(os.environ["INVARIANT_METRICS_DATA"])/"bsds500", int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as place:
        photos, regions = some(root/"images", count, Path(place)), root/"segmentations"
        damage = image_probe(photos, regions=regions, workers=2, progress=False)
        color = color_probe(photos, regions=regions, progress=False)
    for result, name in ((damage, "damage"), (color, "color")):
        for frame in (result.profile, result.auc, result.ledger): frame["source"] = name
    both = combine_results([damage, color])
    for name in ("profile", "auc", "ledger"): save_results(short(getattr(both, name)), OUT/f"{name}.parquet")
    seconds = {"damage": sum(damage.seconds.values()), "color": sum(color.seconds.values()), "photographs": count}
    with atomic_write(OUT/"seconds.json") as path: path.write_text(json.dumps(seconds, indent=1))
    print(seconds)
    total = both.profile[(both.profile["level"] == "all")]
    for source in ("damage", "color"):
        for view in ("item", "set"):
            print(source, view)
            print(total[(total["source"] == source) & (total["view"] == view)].pivot(index="metric", columns="family", values="accuracy").round(2).to_string())
