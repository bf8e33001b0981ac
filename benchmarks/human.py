"""Metrics beside people on public judgments: agreement, ranks and ceilings.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/human.py [--only NAME …]
(writes nbs/results/human.csv, human_ranks.csv and human_ceiling.csv; a few minutes)

NAME is one of the studies below; with --only the rows of the others stay as they are. Flickr8k-Expert: Kendall's tau_c over single
ratings, new images. TED MQM: systems by corpus values, new systems; systems within segments, new segments and systems. WMT17 de-en: the
published sentence BLEU over segments; systems by corpus values. REALSumm: the columns that came with the data. SummEval: n-gram metrics with
ten references; over single outputs with a ceiling. Set OMP_NUM_THREADS=1."""
import argparse
import os
from pathlib import Path

import pandas as pd

from invariant_metrics.files import atomic_write
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.people.human import agree
from invariant_metrics.people.metric_scores import metric_scores

PLACE = Path(__file__).parent.parent/"nbs"/"results"
SUMMARIES = ["bleu", "chrf", "rouge-1-f", "rouge-2-f", "rouge-l-f"]


def flickr(data: Path) -> list:
    judged = load_judgments(data/"flickr8k_expert")
    names = ["bleu-1", "bleu-2", "bleu-3", "bleu-4", "rouge-l", "cider-d", "scene-graph-f1", "METEOR", "fleur"]
    scores = metric_scores(judged, names)
    return [agree(judged, scores, statistics=["tau_c"], ratings="each"), agree(judged, scores, statistics=["tau_c", "spearman"])]


def ted(pair: str):
    def study(data: Path) -> list:
        judged = load_judgments(data/"wmt"/f"ted2021_{pair}_mqm.jsonl.gz")
        scores = metric_scores(judged, ["bleu", "chrf", "ter"])
        return [agree(judged, scores, "system", generalize="systems"), agree(judged, scores, "within-item", generalize="both", reps=300), agree(judged, scores, "item")]
    return study


def wmt_segments(data: Path) -> list: return [agree(load_judgments(data/"wmt"/"newstest2017_deen_seg_da.jsonl"), ["sentBLEU", "bleu", "chrf"], statistics=["pearson"])]


def wmt_systems(data: Path) -> list:
    judged = load_judgments(data/"wmt"/"newstest2017_deen_sys_da.csv", texts=data/"wmt"/"newstest2017_deen.jsonl.gz")
    return [agree(judged, ["bleu", "chrf"], "system", generalize="systems")]


def realsumm(data: Path) -> list:
    judged = load_judgments(data/"summarization"/"realsumm_outputs.jsonl.gz")
    return [agree(judged, None, "system", generalize="systems"), agree(judged, None, "within-item", statistics=["pearson"], generalize="items")]


def summeval(data: Path) -> list:
    judged = load_judgments(data/"summarization"/"summeval_thumb.jsonl.gz")
    scores = metric_scores(judged, SUMMARIES)
    return [agree(judged, scores, "system", generalize="systems"), agree(judged, scores, "within-item", statistics=["tau_b"], generalize="items"),
            agree(judged, scores, "item", statistics=["pearson"])]


STUDIES = {"Flickr8k-Expert": flickr, "TED MQM en-de": ted("ende"), "TED MQM zh-en": ted("zhen"), "WMT17 de-en segments": wmt_segments,
           "WMT17 de-en systems": wmt_systems, "REALSumm": realsumm, "SummEval": summeval}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    only = parser.parse_args().only
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    found = {name: STUDIES[name](Path(os.environ["INVARIANT_METRICS_DATA"])) for name in only}
    for file, part in (("human.csv", "table"), ("human_ranks.csv", "ranks"), ("human_ceiling.csv", "ceiling")):
        frames = [getattr(result, part).assign(ratings="each" if "ratings:each" in result.signature else "mean").pipe(lambda f: f.assign(data=name)[["data", *f]])
                  for name, results in found.items() for result in results if len(getattr(result, part))]
        if (PLACE/file).exists():
            old = pd.read_csv(PLACE/file)
            frames.append(old[~old["data"].isin(only)])
        if not frames: continue
        table = pd.concat(frames, ignore_index=True)
        table = table.assign(place=table["data"].map([*STUDIES].index)).sort_values("place", kind="stable").drop(columns="place")
        print(table.drop(columns="signature", errors="ignore").to_string(index=False, float_format=lambda v: f"{v:.4g}", na_rep=""))
        with atomic_write(PLACE/file) as path: table.to_csv(path, index=False, float_format="%.6g")


if __name__ == "__main__": main()
