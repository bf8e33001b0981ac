"""The default colorization study before judges that never saw the scenes' generator: two networks trained on photographs without labels.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/encoders.py train photographs photographs-hue-180
       python benchmarks/photograph_judge.py OUT        (writes nbs/results/photograph_judge.csv; seven minutes on two cores)
The first command trains the networks on the photographs of imagenet_sample/images, into the cache; their second form turns hues at
random and so learns to look past them. OUT is the run folder of the study, which goes on where it was stopped. Every number that the
study has without the judges must come out as it is stored, else nothing is written. Set OMP_NUM_THREADS=1."""
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.encoders.cache import cache_folder
from invariant_metrics.files import atomic_write, load_results
from invariant_metrics.metrics.metric import Metric, get_metric
from invariant_metrics.studies.run_study import study

RESULTS = Path(__file__).parent.parent/"nbs"/"results"
JUDGES = {"photograph-distance": "photographs", "photograph-distance-hue": "photographs-hue-180"} # metric -> network
KEYS = ["reading", "system", "metric"]


def judge(name: str, device: str | None) -> Metric:
    "The cosine distance on one of the networks: between the picture that is judged and its truth, in [0, 2]."
    weights = cache_folder()/"encoder-series"/f"{JUDGES[name]}.safetensors"
    if not weights.is_file(): raise SystemExit(f"{weights}: train it first, with benchmarks/encoders.py train {JUDGES[name]}")
    return replace(get_metric("encoder-distance", encoder=get_encoder("embedded", weights, device=device or "cpu")), name=name)


def photograph_distance(device: str | None = None) -> Metric: return judge("photograph-distance", device)
def photograph_distance_hue(device: str | None = None) -> Metric: return judge("photograph-distance-hue", device)


def main() -> None:
    if len(sys.argv) != 2: raise SystemExit(__doc__)
    sys.path.insert(0, str(Path(__file__).parent)) # where the study's processes find the judges
    study("colorization", parts=["training"], out=sys.argv[1],
          metrics=["photograph_judge:photograph_distance", "photograph_judge:photograph_distance_hue"])
    found = load_results(Path(sys.argv[1])/"training"/"improvements.parquet")
    stored = load_results(RESULTS/"colorization"/"improvements.parquet")
    both = stored.merge(found, on=KEYS, suffixes=("", "_again"))
    if len(both) != len(stored): raise SystemExit(f"of {len(stored)} stored numbers {len(both)} were found again")
    furthest = np.nanmax(np.abs(both["improvement"] - both["improvement_again"]))
    print(f"{len(both)} numbers of the stored study again, the furthest by {furthest:.1e}")
    if furthest > 1e-6: raise SystemExit("this is not the stored study")
    rows = found[~found["metric"].isin(stored["metric"])]
    print(rows[rows["reading"] == "selected"].drop(columns="reading").to_string(index=False, float_format="%.4f"))
    with atomic_write(RESULTS/"photograph_judge.csv") as path: rows.to_csv(path, index=False, float_format="%.5g")


if __name__ == "__main__": main()
