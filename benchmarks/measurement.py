"""Measurement theory's four questions on SummEval: beside the program MetricEval on its own table, and for metrics of this package.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/measurement.py [METRICEVAL]
(writes nbs/results/measurement.csv; with METRICEVAL, the folder `metric_eval` of github.com/isle-dev/MetricEval, also
nbs/results/measurement_metriceval.csv; a minute each)

Both programs get the two runs as they are stored. MetricEval's example normalizes the first run once more and not the second; that
is not done here. Its table of traits and methods is compared in the two digits that it prints. Set OMP_NUM_THREADS=1."""
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.core import few_threads
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.metric import get_metric
from invariant_metrics.people.agreement import AgreementDesign
from invariant_metrics.people.measurement import _AGAIN, MEASURED, ScoreCube, _check_methods, _concurrent_rows, _consistency_rows
from invariant_metrics.people.measurement import _construct_rows, load_criteria, measurement, _score_cube, _stability_rows
from invariant_metrics.people.metric_scores import score_outputs
from invariant_metrics.people.statistics import AGREEMENTS

PLACE = Path(__file__).parent.parent/"nbs"/"results"
ASPECTS = ["coherence", "consistency", "fluency", "relevance"]
METRICS = ["bleu-1", "bleu", "rouge-1-f", "rouge-2-f", "rouge-l", "chrf", "meteor-nltk", "cider-d"]
TRAITS = ["COH", "CON", "FLU", "REL"]
EXPERTS = [f"Expert.{k}.{trait}" for k in (1, 2, 3) for trait in TRAITS]


def store(frame: pd.DataFrame, name: str) -> None:
    with atomic_write(PLACE/name) as path: frame.to_csv(path, index=False, float_format="%.6g")


def summeval(data: Path) -> pd.DataFrame: # the table of `measurement` for metrics of this package and two controls
    criteria = load_criteria(data/"summarization"/"summeval_thumb.jsonl.gz", ASPECTS)
    outputs = criteria["relevance"].outputs
    scores = score_outputs(criteria["relevance"], [get_metric(name) for name in METRICS])
    texts = outputs["output"]
    controls = outputs[["item", "system"]].assign(characters=texts.map(len), capitals=[np.mean([w[:1].isupper() for w in t.split()]) for t in texts])
    wide = scores.wide().reset_index().merge(controls, on=["item", "system"])
    return measurement(criteria, wide).table


def ours_for(generalize: str, cube: ScoreCube, metrics: list[str], methods: pd.DataFrame) -> pd.DataFrame: # MEASURED
    design = AgreementDesign(AGREEMENTS["tau_b"], "system", generalize, 1000, 0, 0.95)
    stable = [row for row in _stability_rows(cube, metrics, design) if row["unit"] == "system"]
    pairs = _construct_rows(cube, _check_methods(methods, cube.names), design)[1]
    pairs = [dict(zip(MEASURED, ("construct", p["first"], p["second"], "tau_b", "system", generalize, p["value"], p["ci_low"], p["ci_high"], p["kind"])))
             for p in pairs if p["kind"] != "reliability"]
    near = _concurrent_rows(cube, metrics, EXPERTS[:4], design)
    return pd.DataFrame([*stable, *_consistency_rows(cube, [*metrics, *EXPERTS], design), *pairs, *near])


def metriceval(folder: Path) -> pd.DataFrame: # MEASURED and what MetricEval says
    sys.path.insert(0, str(folder))
    import metric_eval as theirs
    first, second = (pd.read_csv(folder/"data"/f"{name}.csv") for name in ("metric_scores_long", "metric_scores_long_2nd_run"))
    metrics = [c for c in first if c not in ("test_id", "model_id", *EXPERTS)]
    runs = [run.rename(columns={"test_id": "item", "model_id": "system"}).set_index(["item", "system"]) for run in (first, second)]
    cube, _ = _score_cube(runs[0].join(runs[1][metrics].add_suffix(_AGAIN)))
    methods = pd.DataFrame({"score": EXPERTS, "trait": TRAITS*3, "method": [f"Expert_{k}" for k in (1, 2, 3) for _ in TRAITS]})
    ours = pd.concat([ours_for(generalize, cube, metrics, methods) for generalize in ("items", "both")], ignore_index=True)
    stability, (alphas, errors) = theirs.metric_stability(first, second), theirs.metric_consistency(first)
    agreed = theirs.concurrent_validity(first, EXPERTS[:4])
    printed = theirs.MTMM(first, methods.rename(columns={"score": "metric"}), method="kendall")
    sorted_ = list(methods.sort_values(["trait", "method"])["score"])
    cells = {(a, b): float(printed.iloc[i + 2, j + 2].strip("*()")) for i, a in enumerate(sorted_) for j, b in enumerate(sorted_) if i < j}

    def said(row) -> float:
        if row.question == "stable": return stability[row.score]
        if row.question == "consistent": return (alphas if row.statistic == "alpha" else errors)[row.score]
        return agreed.loc[row.score, row.against] if row.question == "concurrent" else cells[row.score, row.against]

    return ours.assign(theirs=[said(row) for row in ours.itertuples()])


def main() -> None:
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    few_threads()
    found = summeval(Path(os.environ["INVARIANT_METRICS_DATA"]))
    print(found.drop(columns="note").to_string(index=False))
    store(found, "measurement.csv")
    if len(sys.argv) < 2: return
    beside = metriceval(Path(sys.argv[1]))
    print((beside["value"] - beside["theirs"]).abs().groupby(beside["question"]).max())
    store(beside, "measurement_metriceval.csv")


if __name__ == "__main__": main()
