"""How much of a collection of human judgments can be told without comparing anything: three sentinels and a held-out rater beside metrics.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/sentinels.py [--thumb FILE] [--pascal FOLDER]    (writes nbs/results/sentinels.csv; two minutes)

Flickr8k-Expert, Nebula, WMT17 de-en, TED MQM, REALSumm, SummEval of INVARIANT_METRICS_DATA; THumB 1.0 (github.com/jungokasai/THumB: mscoco) and
Pascal-50S (Vedantam et al. 2015) by path, whose rows stay as they are if no path is given. Human judgments of generated pictures
have no texts and no sentinels. Each with its usual statistic, intervals for new items of 1,000 draws; the metrics are the n-gram metrics of
the package, or the published scores that came with the data. A row for each metric, sentinel and `human`; `beaten`: of a
metric, whether it agrees surely better than the best sentinel (Holm over all pairs, 5 %)."""
import argparse
import os
import time
from pathlib import Path

import pandas as pd

from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.files import atomic_write
from invariant_metrics.people.human import agree
from invariant_metrics.people.sentinels import HUMAN, SENTINELS

OUT = Path(__file__).parent.parent/"nbs"/"results"/"sentinels.csv"
CAPTIONS = ["bleu-1", "bleu-4", "rouge-l", "meteor-nltk", "cider-d"]
SUMMARIES = ["rouge-1-f", "rouge-2-f", "rouge-l-f", "bleu", "chrf"]
LITE = "summarization/realsumm_outputs.jsonl.gz"


def studies(data: Path, thumb: Path | None, pascal: Path | None) -> dict: # name -> (file, options of the reader, of agree)
    wmt, summeval = data/"wmt", data/"summarization"/"summeval_thumb.jsonl.gz"
    out = {"Flickr8k-Expert": (data/"flickr8k_expert", {}, dict(metrics=CAPTIONS, statistics=["tau_c"])),
           "Nebula": (data/"nebula"/"nebula_test_part.jsonl.gz", {}, dict(metrics=CAPTIONS, statistics=["pearson"])),
           "WMT17 de-en": (wmt/"newstest2017_deen_seg_da.jsonl", {}, dict(metrics=["bleu", "chrf", "ter"], statistics=["pearson"]))}
    for pair in ("ende", "zhen"):
        for unit, statistic in (("item", "pearson"), ("within-item", "tau_b")):
            out[f"TED MQM {pair[:2]}-{pair[2:]}, {unit}"] = (wmt/f"ted2021_{pair}_mqm.jsonl.gz", {}, dict(metrics=["bleu", "chrf", "ter"], unit=unit, statistics=[statistic]))
    for unit, statistic in (("within-item", "tau_b"), ("system", "pearson")): out[f"REALSumm, {unit}"] = (data/LITE, {}, dict(unit=unit, statistics=[statistic]))
    for aspect in ("consistency", "coherence", "fluency", "relevance"):
        out[f"SummEval {aspect}"] = (summeval, dict(aspect=aspect), dict(metrics=SUMMARIES, statistics=["pearson"]))
        out[f"SummEval {aspect}, within-item"] = (summeval, dict(aspect=aspect), dict(metrics=SUMMARIES, unit="within-item", statistics=["tau_b"]))
    if thumb: out |= {f"THumB {aspect}": (thumb, dict(aspect=aspect), dict(metrics=CAPTIONS, statistics=["pearson"])) for aspect in ("P", "R", "human_score")}
    if pascal: out["Pascal-50S"] = (pascal, {}, dict(metrics=CAPTIONS, unit="choice", statistics=["choice"]))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thumb", type=Path)
    parser.add_argument("--pascal", type=Path)
    args = parser.parse_args()
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    frames = []
    for name, (path, reading, asked) in studies(Path(os.environ["INVARIANT_METRICS_DATA"]), args.thumb, args.pascal).items():
        began = time.process_time()
        found = agree(load_judgments(path, **reading), sentinels=True, **asked)
        table = found.table.assign(kind=["sentinel" if m in SENTINELS else "human" if m == HUMAN else "metric" for m in found.table["metric"]])
        for unit, own in table.groupby("unit", sort=False):
            best = own[own["kind"] == "sentinel"].set_index("metric")["value"].idxmax()
            pairs = found.comparisons[found.comparisons["unit"] == unit]
            sure = {a if b == best else b for a, b, d, p in pairs[["metric_a", "metric_b", "difference", "p_holm"]].itertuples(index=False)
                    if best in (a, b) and p < .05 and (d > 0) == (b == best)}
            own = own.assign(data=name, beaten=[m in sure if k == "metric" else None for m, k in zip(own["metric"], own["kind"])])
            frames.append(own[["data", "kind", "metric", "statistic", "unit", "value", "ci_low", "ci_high", "beaten", "n_rows", "n_items", "n_systems"]])
        print(f"{name}: {time.process_time() - began:.0f} s of processor\n", frames[-1].drop(columns="data").to_string(index=False, float_format="%.3f"), flush=True)
    made = {f["data"].iloc[0] for f in frames}
    if OUT.exists(): frames += [part for name, part in pd.read_csv(OUT).groupby("data", sort=False) if name not in made]
    with atomic_write(OUT) as path: pd.concat(frames, ignore_index=True).to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
