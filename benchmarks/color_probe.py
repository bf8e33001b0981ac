"""The probe of colors at its default size: with the usual valid recoloring, with the wide one, and matched in CIEDE2000.

Usage: python benchmarks/color_probe.py [PART…]
Parts: moderate (photographs and scenes), wide (photographs), ciede2000 (photographs and scenes). Each writes
nbs/results/color_probe/PART_{auc,ledger,profile}.parquet and its seconds; `moderate` is the probe of the stored study as well
(nbs/results/colorization/auc.parquet)."""
import json
import sys
from pathlib import Path

import numpy as np

from invariant_metrics.core import few_threads
from invariant_metrics.files import atomic_write, save_results
from invariant_metrics.probes.images import color_probe

RESULTS = Path(__file__).parent.parent/"nbs"/"results"
PARTS = {"moderate": dict(source=["photos", "scenes"]), "wide": dict(source="photos", valid="wide-recoloring"),
         "ciede2000": dict(source=["photos", "scenes"], matched="ciede2000")}


def short(frame):
    "The same in single precision: a table to be read, not to be computed with."
    return frame.astype({c: np.float32 for c in frame if frame[c].dtype == np.float64})


if __name__ == "__main__":
    few_threads()
    for part in sys.argv[1:] or PARTS:
        found = color_probe(**PARTS[part], progress=False)
        folder = RESULTS/"color_probe"
        for name in ("auc", "ledger", "profile"): save_results(short(getattr(found, name)), folder/f"{part}_{name}.parquet")
        if part == "moderate": save_results(found.auc, RESULTS/"colorization"/"auc.parquet")
        seconds = json.loads((folder/"seconds.json").read_text()) if (folder/"seconds.json").exists() else {}
        with atomic_write(folder/"seconds.json") as path: path.write_text(json.dumps(seconds | {part: found.seconds}, indent=1))
        print(part, found.seconds, flush=True)
