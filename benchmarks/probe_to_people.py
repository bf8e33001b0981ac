"""From the probe to people: does the profile of a metric tell how well it agrees with people on a collection that was left out?

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/probe_to_people.py [--only NAME …] [--again profile] [--store]
(with --store writes nbs/results/probe_to_people*.csv; half an hour on one core)

Eight sets of judgments of seven collections: Flickr8k-Expert, Nebula, WMT17 de-en segments, TED MQM en-de and zh-en, SummEval (consistency
and relevance: one group, for they share their texts), REALSumm (share of facts). More than thirty metrics, controls among them. Large
collections are sampled with a seed, and of an item five references are used at most (SummEval has ten); summaries are not given to TER, which takes too long. Agreement: Kendall's tau-b, within items where several systems answered each item, else over
items, as people's room computes it. The profile is measured on references where an item has several, else on outputs of random
systems, with the edits of the package at their mildest; of German text only with edits that need no English. Every part is kept in
INVARIANT_METRICS_CACHE/probe_to_people and taken from there by the next call. Set OMP_NUM_THREADS=1; needs the package of MiniLM."""
import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.advice.people import axis_profile, by_collection, compare_strategies, edit_profile, metric_bank
from invariant_metrics.advice.people import order_agreement, people_study, predictions_of, regret, relatives
from invariant_metrics.core import few_threads, rng
from invariant_metrics.data.judgment_tables import Judgments
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.edits.word_families import edits_of
from invariant_metrics.files import atomic_write
from invariant_metrics.people.agreement import agreement
from invariant_metrics.people.judged_scores import judge_scores
from invariant_metrics.people.metric_scores import MetricScores, score_outputs
from invariant_metrics.probe.own_texts import OwnItem, deal_references, edit_items
from invariant_metrics.probe.worlds import score_texts

PLACE = Path(__file__).parent.parent/"nbs"/"results"
KEPT = Path(os.environ.get("INVARIANT_METRICS_CACHE", "runs"))/"probe_to_people"
LEVELS, REPLICATES, REFERENCES = (1,), 200, 5                  # references of an item at most
NO_ENGLISH = ["number-changed", "omission", "addition"]       # edits that need no English
TOO_PLAIN = {"unrelated", "empty", "reference-itself", "untranslated"} # everything finds them, or they need what is not there
FLICKR, NEBULA = Path("flickr8k_expert")/"judgments.jsonl", Path("nebula")/"nebula_test_part.jsonl.gz"
WMT, SUMMARIES = Path("wmt"), Path("summarization")
# file, options of its reader, task of its edits, items that are judged, items that are edited, what it shares its texts with
COLLECTIONS = {
    "Flickr8k-Expert": (FLICKR, {}, "captioning", 600, 60, "Flickr8k"),
    "Nebula": (NEBULA, {}, "captioning", 600, 60, "Nebula"),
    "WMT17 de-en": (WMT/"newstest2017_deen_seg_da.jsonl", {}, "translation", 560, 60, "WMT17"),
    "TED en-de": (WMT/"ted2021_ende_mqm.jsonl.gz", {}, "translation", 60, 50, "TED en-de"),
    "TED zh-en": (WMT/"ted2021_zhen_mqm.jsonl.gz", {}, "translation", 60, 50, "TED zh-en"),
    "SummEval consistency": (SUMMARIES/"summeval_thumb.jsonl.gz", {"aspect": "consistency"}, "summarization", 25, 24, "SummEval"),
    "SummEval relevance": (SUMMARIES/"summeval_thumb.jsonl.gz", {"aspect": "relevance"}, "summarization", 25, 24, "SummEval"),
    "REALSumm": (SUMMARIES/"realsumm_outputs.jsonl.gz", {}, "summarization", 20, 30, "REALSumm")}


def some_of(judged: Judgments, size: int) -> Judgments: # so many items of it, all of their outputs
    items = sorted(judged.outputs["item"].unique())
    chosen = {items[k] for k in rng(0, "probe-to-people", judged.name).permutation(len(items))[:size]}
    scores, outputs = (f[f["item"].isin(chosen)].reset_index(drop=True) for f in (judged.scores, judged.outputs))
    outputs = outputs.assign(references=[tuple(r)[:REFERENCES] for r in outputs["references"]])
    return Judgments(judged.name, scores, judged.higher_is_better, outputs, None, judged.scale)


def items_of(judged: Judgments, size: int, most: int = 4) -> list[OwnItem]: # most: references of an item
    generator, found, seen = rng(0, "probe-to-people", "items"), [], set()
    outputs = judged.outputs.iloc[generator.permutation(len(judged.outputs))]
    for row in outputs.itertuples():
        references = tuple(row.references)
        if references in seen: continue
        seen.add(references)
        several = len({r.strip().lower() for r in references}) > 1
        drawn = [references[k] for k in generator.permutation(len(references))[:most + 1]]
        item = deal_references(row.item, drawn, generator, None if several else row.output)
        if item.base: found.append(item)
        if len(found) == size: break
    return found


def keep(name: str, make: Callable, again: bool = False) -> pd.DataFrame: # what was made once
    path = KEPT/f"{name}.parquet"
    if path.exists() and not again: return pd.read_parquet(path)
    began = time.process_time()
    found = make()
    print(f"{name}: {time.process_time() - began:.0f} s of processor, {len(found)} rows", flush=True)
    with atomic_write(path) as place: found.to_parquet(place)
    return found


def bank_of(judged: Judgments, items: list[OwnItem], task: str): # both parts of a collection count documents in the same references
    every = dict.fromkeys(tuple(r) for r in judged.outputs["references"])
    bank = metric_bank([*every, *(i.targets for i in items)])
    return [m for m in bank if task != "summarization" or m.name != "ter"] # TER takes a second for a summary


def scored(judged: Judgments, bank) -> pd.DataFrame: # item, system, metric, value, higher
    found = score_outputs(judged, bank)
    return found.table.assign(higher=found.table["metric"].map(found.higher))


def agreements(judged: Judgments, table: pd.DataFrame) -> pd.DataFrame: # metric, replicate (-1: the value itself), value
    spread = table.groupby("metric", sort=False)["value"].agg(np.ptp)
    told = table[table["metric"].map(spread) > 0] # the others say the same of every output
    higher = {m: bool(h) for m, h in told.groupby("metric", sort=False)["higher"].first().items()}
    scores = MetricScores(told.drop(columns="higher"), higher, dict.fromkeys(higher, ""))
    unit = "within-item" if judged.outputs.groupby("item").size().min() > 1 else "item"
    table = judge_scores(judged, scores, unit).views[unit]
    rows = []
    for name, values in zip(table.names, table.metrics):
        found = agreement(table.human, values[None], "tau_b", unit=unit, reps=REPLICATES, names=(name,), item=table.item, system=table.system, group=table.group)
        rows += [(name, -1, float(found.value[0])), *((name, r, float(v)) for r, v in enumerate(found.replicates[0]))]
    return pd.DataFrame(rows, columns=["metric", "replicate", "value"])


def profiles(items: list[OwnItem], bank, task: str, names: list[str]) -> pd.DataFrame: # as of `edit_profile`
    texts = edit_items(items, names, LEVELS, 0, task)
    texts.groups = {key: group for key, group in texts.groups.items() if key[0] != "valid"} # those of the probe itself are not needed
    texts.scores = score_texts(bank, texts)
    return edit_profile(texts, bank)


def measure_parts(name: str, data: Path, again: bool, only_agreement: bool) -> None:
    file, options, task, judged_items, edited_items, group = COLLECTIONS[name]
    judged = some_of(load_judgments(data/file, **options), judged_items)
    items, bank = items_of(judged, edited_items), None
    names = NO_ENGLISH if name == "TED en-de" else [n for n in edits_of(task) if n not in TOO_PLAIN]
    def with_bank():
        nonlocal bank
        bank = bank or bank_of(judged, items, task)
        return bank
    table = keep(f"scores {group}", lambda: scored(judged, with_bank()))
    keep(f"agreement {name}", lambda: agreements(judged, table))
    if only_agreement: return
    keep(f"profile {group}", lambda: profiles(items, with_bank(), task, names), again)
    keep(f"size {name}", lambda: pd.DataFrame([{"outputs": len(judged.outputs), "items": judged.outputs["item"].nunique(), "edited": len(items)}]))


def variants(metrics: tuple[str, ...]) -> dict[str, list[str]]: # which metrics take part
    plain = [m for m in metrics if relatives(m) != "control"]
    first = {"bleu": "bleu-4", "chrf": "chrf", "rouge": "rouge-l", "bertscore": "bertscore-f-layer6", "scene-graph": "scene-graph-f1"}
    return {"all": list(metrics), "without controls": plain, "one of each family": [m for m in plain if first.get(relatives(m), m) == m]}


def store(frame: pd.DataFrame, name: str) -> None:
    with atomic_write(PLACE/name) as path: frame.to_csv(path, index=False, float_format="%.3g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(COLLECTIONS), default=list(COLLECTIONS))
    parser.add_argument("--again", choices=["profile"], help="measure this part anew")
    parser.add_argument("--agreement", action="store_true", help="only this part")
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    few_threads()
    data, done = Path(os.environ["INVARIANT_METRICS_DATA"]), set()
    for name in asked.only:
        group = COLLECTIONS[name][-1]
        measure_parts(name, data, asked.again is not None and group not in done, asked.agreement)
        done.add(group)
    if not asked.store: return
    there = [name for name in COLLECTIONS if (KEPT/f"size {name}.parquet").exists()]
    print("without", [name for name in COLLECTIONS if name not in there])
    found = {name: pd.read_parquet(KEPT/f"agreement {name}.parquet").pivot(index="replicate", columns="metric", values="value") for name in there}
    profile = {name: pd.read_parquet(KEPT/f"profile {COLLECTIONS[name][-1]}.parquet") for name in there}
    sizes = {name: pd.read_parquet(KEPT/f"size {name}.parquet").iloc[0] for name in there}
    group = {name: COLLECTIONS[name][-1] for name in there}
    long = pd.concat([pd.DataFrame({"collection": c, "metric": f.columns, "value": f.loc[-1].to_numpy(), "low": f.drop(-1).quantile(.025).to_numpy(),
                                    "high": f.drop(-1).quantile(.975).to_numpy()}) for c, f in found.items()])
    axes = {measure: {c: axis_profile(p, measure) for c, p in profile.items()} for measure in ("auc", "effect")}
    beside = [long.merge(pd.concat([f.assign(collection=c) for c, f in by.items()]).rename_axis("metric").reset_index(), on=["collection", "metric"], how="left")
              for by in axes.values()]
    columns = [c for c in beside[0] if c not in long]
    table = beside[0].merge(beside[1][["collection", "metric", *columns]], on=["collection", "metric"], suffixes=("", "_effect"))
    table = table.assign(group=table["collection"].map(group), relatives=table["metric"].map(relatives),
                         **{k: table["collection"].map({c: s[k] for c, s in sizes.items()}) for k in ("outputs", "items", "edited")})
    store(table, "probe_to_people.csv")
    wide = pd.concat([p.groupby(["metric", "family"], sort=False)["auc"].mean().unstack("family").assign(group=g)
                      for g, p in {group[c]: p for c, p in profile.items()}.items()]).reset_index()
    store(wide[["group", "metric", *(c for c in wide if c not in ("group", "metric"))]], "probe_to_people_profile.csv")
    summaries, each = [], []
    for measure, by in axes.items():
        whole = people_study(long, by, group)
        for variant, metrics in variants(whole.metrics).items():
            study = whole.only(metrics)
            head = {"measure": measure, "variant": variant, "metrics": len(metrics)}
            summaries.append(compare_strategies(study).assign(**head))
            predicted, part = predictions_of(study), by_collection(study)
            ends = {}
            for c, name in enumerate(study.collections):
                again = found[name].drop(-1).reindex(columns=metrics).to_numpy()
                for strategy, p in predicted.items():
                    taus = order_agreement(np.broadcast_to(p[c], again.shape), again)
                    ends[name, strategy] = np.quantile(taus, [.025, .975])
            others = []
            for c, name in enumerate(study.collections): # what an order measured on another sample of items would reach
                again = found[name].drop(-1).reindex(columns=metrics).to_numpy()
                own = np.broadcast_to(study.agreement[c], again.shape)
                taus, lost = order_agreement(again, own), regret(again, own)
                others.append({"collection": name, "strategy": "another sample", "kendall": taus.mean(), "kendall_low": np.quantile(taus, .025),
                               "kendall_high": np.quantile(taus, .975), "regret": lost.mean(), **head})
            each.append(pd.DataFrame(others))
            low, high = np.array([ends[r.collection, r.strategy] for r in part.itertuples()]).T
            each.append(part.assign(kendall_low=np.where(part["kendall"].isna(), np.nan, low), kendall_high=np.where(part["kendall"].isna(), np.nan, high), **head))
    store(pd.concat(summaries), "probe_to_people_strategies.csv")
    store(pd.concat(each), "probe_to_people_collections.csv")
    print(pd.concat(summaries).to_string(index=False, float_format="%.2f"))


if __name__ == "__main__": main()
