"""From the probe to people: does the profile of a metric tell how well it agrees with people on a collection that was left out?

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/probe_to_people.py [--only NAME …] [--again profile] [--store]
(with --store writes nbs/results/probe_to_people*.csv; ten minutes on one core)

Eight sets of judgments of seven collections: Flickr8k-Expert, Nebula, WMT17 de-en segments, TED MQM en-de and zh-en, SummEval (consistency
and relevance: one group, for they share their texts), REALSumm (share of facts). More than thirty metrics, controls among them. Large
collections are sampled with a seed, and of an item five references are used at most (SummEval has ten); summaries are not given to TER, which takes too long. Agreement: Kendall's tau-b, within items where several systems answered each item, else over
items, as people's room computes it. The profile is measured on references where an item has several, else on outputs of random
systems, with the edits of the package at their mildest: of each several are drawn, and one is taken that a judge of form (n-grams of the
other items) cannot tell from the text before it; families that words alone give away are left out. German text gets only edits that need no
English, as they come. Both sides are measured on random halves of the items as well. Every part is kept in
INVARIANT_METRICS_CACHE/probe_to_people and taken from there by the next call. Set OMP_NUM_THREADS=1; needs the package of MiniLM."""
import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import kendalltau

from invariant_metrics.core import InputError, Signature, few_threads, rng, unknown
from invariant_metrics.data.judgment_tables import Judgments
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.edits.colors import AXES
from invariant_metrics.edits.fluency import form_judge
from invariant_metrics.edits.word_edits import word_edits
from invariant_metrics.edits.word_families import edits_of
from invariant_metrics.encoders.text_encoder import RememberingEncoder, bert
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.metric import Metric, TextMetric, get_metric
from invariant_metrics.metrics.cider import document_frequencies
from invariant_metrics.metrics.violation import paraphrase_from_memory
from invariant_metrics.people.agreement import agreement
from invariant_metrics.people.edit_sheets import _told
from invariant_metrics.people.judged_scores import judge_scores
from invariant_metrics.people.metric_scores import MetricScores, score_outputs
from invariant_metrics.probes.own_texts import _OwnItem, _deal_references, edit_items
from invariant_metrics.probes.tables import is_told_by_words
from invariant_metrics.probes.worlds import EditedTexts, _as_references, text_sentinels
from invariant_metrics.stats import auc, student_interval

PLACE = Path(__file__).parent.parent/"nbs"/"results"
KEPT = Path(os.environ.get("INVARIANT_METRICS_CACHE", "runs"))/"probe_to_people"
LEVELS, REPLICATES, REFERENCES, SPLITS = (1,), 200, 5, 10      # references of an item at most; halves drawn so often
NO_ENGLISH = ["number-changed", "omission", "addition", "character-replaced", "case-changed", "tokenization", "shuffle", "adjacent-swap",
              "repetition"] # edits that need no English
TOO_PLAIN = {"unrelated", "empty", "reference-itself", "untranslated"} # everything finds them, or they need what is not there
FLICKR, NEBULA = Path("flickr8k_expert")/"judgments.jsonl", Path("nebula")/"nebula_test_part.jsonl.gz"
WMT, SUMMARIES = Path("wmt"), Path("summarization")
# file, options of its reader, task of its edits, items that are judged, texts that are edited, what it shares its texts with
COLLECTIONS = {
    "Flickr8k-Expert": (FLICKR, {}, "captioning", 600, 80, "Flickr8k"),
    "Nebula": (NEBULA, {}, "captioning", 600, 80, "Nebula"),
    "WMT17 de-en": (WMT/"newstest2017_deen_seg_da.jsonl", {}, "translation", 560, 80, "WMT17"),
    "TED en-de": (WMT/"ted2021_ende_mqm.jsonl.gz", {}, "translation", 60, 80, "TED en-de"),
    "TED zh-en": (WMT/"ted2021_zhen_mqm.jsonl.gz", {}, "translation", 60, 80, "TED zh-en"),
    "SummEval consistency": (SUMMARIES/"summeval_thumb.jsonl.gz", {"aspect": "consistency"}, "summarization", 25, 40, "SummEval"),
    "SummEval relevance": (SUMMARIES/"summeval_thumb.jsonl.gz", {"aspect": "relevance"}, "summarization", 25, 40, "SummEval"),
    "REALSumm": (SUMMARIES/"realsumm_outputs.jsonl.gz", {}, "summarization", 20, 40, "REALSumm")}


LENGTH_SHARE = 0.5 # the bonus for a text as long as its reference

def _mixture(metric: Metric, whole: float) -> Metric: # whole: the best value of the metric
    def share(pred, target): # of the length of the first reference, at most 1
        counts = [(len(p.split()), max(len(_as_references(t)[0].split()), 1)) for p, t in zip(pred, target)]
        return torch.tensor([min(a/b, 1.0) for a, b in counts], dtype=torch.float64)
    def phi(pred, target, source=None):
        rows = metric.check_rows(metric.compare(metric.phi(pred, target, source)), len(pred))
        return metric.values(rows)/whole + LENGTH_SHARE*share(pred, target)
    name = f"{metric.name}+length"
    return _of_texts(name, phi)

def _of_texts(name: str, phi) -> Metric:
    return TextMetric(name, phi, lambda rows: rows, True, Signature.of(metric=name), phi_key=name,
                      card={"inputs": "texts"})

def _words(pred, target, source=None) -> torch.Tensor:
    return torch.tensor([float(len(p.split())) for p in pred])

def control_metrics() -> list[Metric]:
    "Metrics that know nothing of meaning: words, difference in length, a random number, bonuses for length."
    plain = [replace(m, card={"inputs": "texts"}) for m in text_sentinels() if m.name != "constant"]
    mixed = [_mixture(get_metric(name), whole)
             for name, whole in (("bleu-1", 1.0), ("chrf", 100.0), ("rouge-l", 1.0))]
    return [_of_texts("words", _words), *plain, *mixed]

BERT_LAYERS = (2, 4, 6) # of the six of MiniLM
_NAMES = ("bleu-1", "bleu-2", "bleu-3", "bleu-4", "chrf", "chrf++", "ter", "rouge-1-p", "rouge-1-r",
          "rouge-1-f", "rouge-2-f", "rouge-l", "meteor-nltk", "scene-graph-p", "scene-graph-r",
          "scene-graph-f1", "violation-entities", "violation-sentiment")

def _renamed(metric: Metric, name: str) -> Metric:
    return replace(metric, name=name, signature=metric.signature.extended(metric=name))

def metric_bank(references: Sequence, # a reference or several of each item: what CIDEr counts in
                encoder: RememberingEncoder | None = None, # for BERTScore and paraphrases; None: MiniLM
               ) -> list[Metric]:
    "More than thirty metrics of texts, controls among them; InputError if the encoder's package is missing."
    encoder = encoder or RememberingEncoder(bert("minilm"), most=None)
    found = [get_metric(name) for name in _NAMES]
    # chrf itself has 2
    found += [_renamed(get_metric("chrf", beta=beta), f"chrf-beta{beta}") for beta in (1, 3)]
    found.append(get_metric("cider-d", df=document_frequencies([_as_references(r) for r in references])))
    for layer in BERT_LAYERS:
        for part in "prf":
            metric = get_metric(f"bertscore-{part}", weights=encoder, layer=layer)
            found.append(_renamed(metric, f"bertscore-{part}-layer{layer}"))
    meaning = paraphrase_from_memory(get_metric("violation-paraphrase"), encoder)
    return [*found, _renamed(meaning, "violation-paraphrase"), *control_metrics()]

def relatives(metric: str) -> str: # of the bank
    "The family of a metric of the bank: bleu, chrf, …, or `control`."
    if metric in ("words", "random", "length") or metric.endswith("+length"): return "control"
    if metric.startswith("violation"): return metric
    if metric.startswith("scene-graph"): return "scene-graph"
    return metric.replace("++", "").split("-")[0]

PROFILE_COLUMNS = ["metric", "family", "kind", "level", "n", "auc", "effect"]

def text_values(texts: EditedTexts, # scored
                metrics: Sequence[Metric],
               ) -> pd.DataFrame:   # metric, family ("" before the edit), kind, level, item, value; higher is worse
    "What every metric says of every text, before and after each edit."
    parts = []
    for metric in metrics:
        groups = {("", "", 0): ("base", -1, -1)}
        groups |= {(texts.families[f], texts.kinds[f], level): ("edit", f, l) for f in range(len(texts.families)) for l, level in enumerate(texts.levels)}
        for (family, kind, level), value in zip(groups, texts.item_scores(metric, [*groups.values()])):
            there = np.flatnonzero(np.isfinite(value))
            parts.append(pd.DataFrame({"metric": metric.name, "family": family, "kind": kind, "level": level, "item": texts.cluster[there], "text": there, "value": value[there]}))
    return pd.concat(parts, ignore_index=True)

def edit_profile(values: pd.DataFrame, # as of `text_values`
                 least: int = 8,       # edited texts of a family and level; those with fewer are left out
                ) -> pd.DataFrame:     # PROFILE_COLUMNS
    "How every metric reacts to each family of edits at each level."
    rows = []
    for metric, own in values.groupby("metric", sort=False):
        before = own[own["family"] == ""].set_index("text")["value"]
        for (family, kind, level), part in own[own["family"] != ""].groupby(["family", "kind", "level"], sort=False):
            if len(part) < least: continue
            after, spread = part["value"].to_numpy(), before.std(ddof=0)
            effect = float((after - before.loc[part["text"]].to_numpy()).mean())/spread if spread > 0 else 0.0
            rows.append((metric, family, kind, level, len(part), auc(after, before.to_numpy()), effect))
    return pd.DataFrame(rows, columns=PROFILE_COLUMNS)

CALM = "calm" # the axis of edits that leave a text as right as it was

def axis_profile(profile: pd.DataFrame, # as of `edit_profile`
                 measure: str = "auc",  # or "effect"
                ) -> pd.DataFrame:      # a row for each metric, a column for each axis
    "The profile by axes: every family counts once, and kinds are never averaged together."
    if measure not in ("auc", "effect"): raise unknown("measure", measure, ("auc", "effect"))
    axes = profile["kind"].map({**AXES, "valid": CALM})
    families = profile.assign(axis=axes).groupby(["metric", "axis", "family"], sort=False)[measure].mean()
    wide = families.groupby(["metric", "axis"], sort=False).mean().unstack("axis")
    return wide.reindex(columns=[a for a in (*AXES.values(), CALM) if a in wide],
                        index=profile["metric"].unique())

@dataclass(frozen=True, eq=False)
class PeopleStudy:
    "Metrics beside people and beside the probe, over several collections."
    collections: tuple[str, ...]  # (C,)
    metrics: tuple[str, ...]      # (M,)
    axes: tuple[str, ...]         # (K,)
    agreement: np.ndarray         # (C, M), NaN where it is not defined
    profile: np.ndarray           # (C, M, K), NaN where a collection has no family of that axis
    group: np.ndarray             # (C,) integers: collections that share their texts

    def only(self, metrics: Sequence[str]) -> "PeopleStudy":
        "The same study with some of the metrics."
        at = [self.metrics.index(m) for m in metrics]
        return replace(self, metrics=tuple(metrics), agreement=self.agreement[:, at],
                       profile=self.profile[:, at])

def people_study(
    agreement: pd.DataFrame,                # collection, metric, value
    profiles: Mapping[str, pd.DataFrame],   # collection -> a row for each metric, a column for each axis
    group: Mapping[str, str] | None = None, # collection -> what it shares its texts with; None: each alone
) -> PeopleStudy:
    "A study of these collections; raises InputError on fewer than three groups or four metrics."
    wide = agreement.pivot(index="collection", columns="metric", values="value").reindex(list(profiles))
    metrics = [m for m in dict.fromkeys(agreement["metric"]) if any(m in p.index for p in profiles.values())]
    axes = list(dict.fromkeys(a for p in profiles.values() for a in p.columns))
    labels = [(group or {}).get(c, c) for c in wide.index]
    if len(set(labels)) < 3:
        raise InputError("leaving one collection out needs three groups of them at "
                         f"least, not {len(set(labels))}")
    if len(metrics) < 4:
        raise InputError(f"{len(metrics)} metrics have both a profile and an agreement; "
                         "an order of them needs four")
    stacked = np.stack([p.reindex(index=metrics, columns=axes).to_numpy(float) for p in profiles.values()])
    return PeopleStudy(tuple(wide.index), tuple(metrics), tuple(axes), wide[metrics].to_numpy(float), stacked,
                       np.unique(labels, return_inverse=True)[1])

def standard_scores(values: np.ndarray) -> np.ndarray: # (C, M, …) -> the same
    "Standard scores of the metrics within each collection; 0 if they do not differ, or for unknown values."
    there = np.isfinite(values)
    count = np.maximum(there.sum(1, keepdims=True), 1)
    away = np.where(there, values, 0) - np.where(there, values, 0).sum(1, keepdims=True)/count
    away = np.where(there, away, 0)
    spread = np.sqrt((away**2).sum(1, keepdims=True)/count)
    return away/np.where(spread > 1e-12, spread, 1)

RIDGE = 0.1 # of standard scores

def axis_weights(x: np.ndarray,  # (n, K) standard scores
                 y: np.ndarray,  # (n,)
                 ridge: float = RIDGE,
                ) -> np.ndarray: # (K,)
    "Weights of the axes by ridge regression without an intercept."
    return np.linalg.solve(x.T @ x/len(y) + ridge*np.eye(x.shape[1]), x.T @ y/len(y))

def predict_left_out(study: PeopleStudy, ridge: float = RIDGE,
                     profile: np.ndarray | None = None, # (C, M, K) instead of the study's own
                    ) -> np.ndarray:                    # (C, M) standard scores
    "The agreement that the profile predicts in each collection, with weights from the other groups."
    x = standard_scores(study.profile if profile is None else profile) # (C, M, K)
    y = standard_scores(study.agreement)                               # (C, M)
    known = np.isfinite(study.agreement)
    out = np.full(y.shape, np.nan)
    for g in np.unique(study.group):
        train = known & (study.group != g)[:, None]
        out[study.group == g] = x[study.group == g] @ axis_weights(x[train], y[train], ridge)
    return out

def order_agreement(predicted: np.ndarray, true: np.ndarray) -> np.ndarray: # (C, M) each -> (C,)
    "Kendall's tau-b of two orders of the metrics, in each collection; 0 if one of them is constant."
    def tau(p, t):
        there = np.isfinite(p) & np.isfinite(t)
        found = kendalltau(p[there], t[there]).statistic
        return 0.0 if np.isnan(found) else float(found)
    return np.array([tau(p, t) for p, t in zip(predicted, true)])

def regret(predicted: np.ndarray, true: np.ndarray) -> np.ndarray: # (C, M) each -> (C,)
    "The agreement lost by taking the metric with the best prediction; a mean over metrics that tie."
    def lost(p, t):
        best = np.flatnonzero(np.isfinite(t) & (p >= np.nanmax(np.where(np.isfinite(t), p, np.nan)) - 1e-12))
        return float(np.nanmax(t) - t[best].mean())
    return np.array([lost(p, t) for p, t in zip(predicted, true)])

def predict_elsewhere(study: PeopleStudy) -> np.ndarray: # (C, M)
    "The mean standing of each metric with people in the other groups."
    y = standard_scores(study.agreement)
    known = np.isfinite(study.agreement)
    out = np.full(y.shape, np.nan)
    for g in np.unique(study.group):
        train = known & (study.group != g)[:, None]
        out[study.group == g] = np.where(train, y, 0).sum(0)/np.maximum(train.sum(0), 1)
    return out

def group_interval(values: np.ndarray, # (C,)
                   group: np.ndarray,  # (C,)
                   confidence: float = 0.95,
                  ) -> tuple[float, float, float]: # mean, low, high
    "A mean over groups with Student's interval, which is about new collections; NaN if a value is missing."
    means = np.array([values[group == g].mean() for g in np.unique(group)])
    center = float(means.mean())
    if not np.isfinite(center): return np.nan, np.nan, np.nan # a pick orders nothing
    if len(means) < 2: return center, -np.inf, np.inf
    found = student_interval(center, means, confidence)
    return center, found.low, found.high

def dealt_anew(
    study: PeopleStudy, reps: int = 999, seed: int = 0, ridge: float = RIDGE
) -> tuple[np.ndarray, np.ndarray]: # (reps, C) order agreement, regret
    "Order agreement and regret if the profiles are permuted among the metrics."
    generator = rng(seed, "dealt-anew")
    found = []
    for _ in range(reps):
        deal = generator.permutation(len(study.metrics))
        predicted = predict_left_out(study, ridge, study.profile[:, deal])
        found.append((order_agreement(predicted, study.agreement), regret(predicted, study.agreement)))
    tau, lost = zip(*found)
    return np.array(tau), np.array(lost)

def _over_groups(values: np.ndarray, group: np.ndarray) -> np.ndarray: # (R, C) -> (R,)
    return np.mean([values[:, group == g].mean(1) for g in np.unique(group)], axis=0)

def predictions_of(
    study: PeopleStudy, takes: Sequence[str] = ("cider-d",), ridge: float = RIDGE
) -> dict[str, np.ndarray]: # strategy -> (C, M)
    "What each strategy predicts of every metric: the profile, single axes, other people, a metric by name."
    found = {"profile": predict_left_out(study, ridge), "elsewhere": predict_elsewhere(study)}
    found |= {f"{axis} alone": standard_scores(study.profile[:, :, k]) for k, axis in enumerate(study.axes)}
    for name in takes:
        if name not in study.metrics: continue
        found[f"take {name}"] = np.broadcast_to(np.array([float(m == name) for m in study.metrics]),
                                                study.agreement.shape)
    return found

def by_collection(
    study: PeopleStudy, takes: Sequence[str] = ("cider-d",), ridge: float = RIDGE
) -> pd.DataFrame:
    "A row for each collection and strategy: collection, strategy, kendall (NaN for a pick), picked, regret."
    rows = []
    for strategy, predicted in predictions_of(study, takes, ridge).items():
        tau = order_agreement(predicted, study.agreement)
        lost = regret(predicted, study.agreement)
        measured = np.where(np.isfinite(study.agreement), predicted, np.nan)
        for c, name in enumerate(study.collections):
            picked = study.metrics[int(np.nanargmax(measured[c]))]
            kendall = np.nan if strategy.startswith("take ") else tau[c]
            rows.append({"collection": name, "strategy": strategy, "kendall": kendall, "picked": picked,
                         "regret": lost[c]})
    return pd.DataFrame(rows)

def compare_strategies(study: PeopleStudy, takes: Sequence[str] = ("cider-d",),
                       reps: int = 999, # permutations of the profiles
                       seed: int = 0, ridge: float = RIDGE, confidence: float = 0.95) -> pd.DataFrame:
    "A row for each strategy and for chance: means over groups with intervals; for the profile also p."
    table = by_collection(study, takes, ridge)
    rows = []
    for strategy, part in table.groupby("strategy", sort=False):
        row = {"strategy": strategy}
        for name, least in (("kendall", -1.0), ("regret", 0.0)):
            ends = np.clip(group_interval(part[name].to_numpy(), study.group, confidence), least, 1.0)
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), ends))
        rows.append(row)
    deals = [_over_groups(x, study.group) for x in dealt_anew(study, reps, seed, ridge)] # (reps,) each
    rows[0]["kendall_p"] = (1 + (deals[0] >= rows[0]["kendall"]).sum())/(reps + 1)
    rows[0]["regret_p"] = (1 + (deals[1] <= rows[0]["regret"]).sum())/(reps + 1)
    tails = [(1 - confidence)/2, (1 + confidence)/2]
    chance = {"strategy": "chance"}
    for name, values in zip(("kendall", "regret"), deals):
        chance |= dict(zip((name, f"{name}_low", f"{name}_high"),
                           (values.mean(), *np.quantile(values, tails))))
    return pd.DataFrame([*rows, chance])


def some_of(judged: Judgments, size: int) -> Judgments: # so many items of it, all of their outputs
    items = sorted(judged.outputs["item"].unique())
    chosen = {items[k] for k in rng(0, "probe-to-people", judged.name).permutation(len(items))[:size]}
    scores, outputs = (f[f["item"].isin(chosen)].reset_index(drop=True) for f in (judged.scores, judged.outputs))
    outputs = outputs.assign(references=[tuple(r)[:REFERENCES] for r in outputs["references"]])
    return Judgments(judged.name, scores, judged.higher_is_better, outputs, None, judged.scale)


def items_of(judged: Judgments, size: int, most: int = 4) -> list[_OwnItem]: # most: references of an item
    "So many texts to edit, spread evenly over the items: references where an item has several, else outputs."
    generator, found, seen = rng(0, "probe-to-people", "items"), [], {}
    outputs = judged.outputs.iloc[generator.permutation(len(judged.outputs))]
    of_one = -(-size//outputs["references"].map(tuple).nunique())
    for row in outputs.itertuples():
        references = tuple(row.references)
        own = seen.setdefault(references, set())
        if len(own) == of_one: continue
        several = len({r.strip().lower() for r in references}) > 1
        drawn = [references[k] for k in generator.permutation(len(references))[:most + 1]]
        item = _deal_references(row.item, drawn, generator, None if several else row.output)
        if not item.base or item.base in own: continue
        own.add(item.base)
        found.append(item)
    return found[:size]


def keep(name: str, make: Callable, again: bool = False) -> pd.DataFrame: # what was made once
    path = KEPT/f"{name}.parquet"
    if path.exists() and not again: return pd.read_parquet(path)
    began = time.process_time()
    found = make()
    print(f"{name}: {time.process_time() - began:.0f} s of processor, {len(found)} rows", flush=True)
    with atomic_write(path) as place: found.to_parquet(place)
    return found


def bank_of(judged: Judgments, items: list[_OwnItem], task: str): # both parts of a collection count documents in the same references
    every = dict.fromkeys(tuple(r) for r in judged.outputs["references"])
    bank = metric_bank([*every, *(i.targets for i in items)])
    return [m for m in bank if task != "summarization" or m.name != "ter"] # TER takes a second for a summary


def scored(judged: Judgments, bank) -> pd.DataFrame: # item, system, metric, value, higher
    found = score_outputs(judged, bank)
    return found.table.assign(higher=found.table["metric"].map(found.higher))


def agreements(judged: Judgments, table: pd.DataFrame, replicates: int = REPLICATES) -> pd.DataFrame: # metric, replicate (-1: the value itself), value
    spread = table.groupby("metric", sort=False)["value"].agg(np.ptp)
    told = table[table["metric"].map(spread) > 0] # the others say the same of every output
    higher = {m: bool(h) for m, h in told.groupby("metric", sort=False)["higher"].first().items()}
    scores = MetricScores(told.drop(columns="higher"), higher, dict.fromkeys(higher, ""))
    unit = "within-item" if judged.outputs.groupby("item").size().min() > 1 else "item"
    table = judge_scores(judged, scores, unit).views[unit]
    rows = []
    for name, values in zip(table.names, table.metrics):
        found = agreement(table.human, values[None], "tau_b", unit=unit, reps=replicates, names=(name,), item=table.item, system=table.system, group=table.group)
        rows += [(name, -1, float(found.value[0])), *((name, r, float(v)) for r, v in enumerate(found.replicates[0]))]
    return pd.DataFrame(rows, columns=["metric", "replicate", "value"])


def edited_values(items: list[_OwnItem], bank, task: str, names: list[str], english: bool) -> pd.DataFrame: # as of `text_values`
    "Edits that form does not give away; of German, whose form no judge here knows, all of them."
    documents = [item.name for item in items]
    judge = form_judge([[t for t in (item.base, item.other, *item.targets) if t] for item in items], documents) if english else None
    texts = edit_items(items, names, LEVELS, 0, task, judge=judge)
    groups = {key: group for key, group in texts.groups.items() if key[0] != "valid"} # those of the probe itself are not needed
    cluster = np.unique(documents, return_inverse=True)[1]
    print("edited texts:", {texts.families[f]: len(group[0]) for (side, f, _), group in groups.items() if side == "edit"}, flush=True)
    return text_values(replace(texts, groups=groups, source=None, cluster=cluster).scored(bank), bank)


def half_of(labels: Sequence, split: int) -> np.ndarray: # (n,) bool: in the first half of the items
    "A half of the items, at random, the same for the same items."
    names, place = np.unique(np.asarray(labels), return_inverse=True)
    return rng(0, "probe-to-people", "halves", split).permutation(len(names))[place] < len(names)//2


def agreement_of_halves(judged: Judgments, table: pd.DataFrame) -> pd.DataFrame: # metric, split, half, value
    parts = []
    for split in range(SPLITS):
        first = half_of(judged.outputs["item"], split)
        for half, chosen in enumerate((first, ~first)):
            items = set(judged.outputs["item"][chosen])
            scores, outputs = (f[f["item"].isin(items)].reset_index(drop=True) for f in (judged.scores, judged.outputs))
            own = replace(judged, scores=scores, outputs=outputs)
            found = agreements(own, table[table["item"].isin(items)], replicates=10)
            parts.append(found[found["replicate"] == -1].drop(columns="replicate").assign(split=split, half=half))
    return pd.concat(parts, ignore_index=True)


def profile_of_halves(values: pd.DataFrame) -> pd.DataFrame: # split, half, metric, and a column for each axis
    parts = []
    for split in range(SPLITS):
        first = half_of(values["item"], split)
        for half, chosen in enumerate((first, ~first)):
            found = axis_profile(edit_profile(values[chosen], least=4))
            parts.append(found.rename_axis("metric").reset_index().assign(split=split, half=half))
    return pd.concat(parts, ignore_index=True)


def order_of_halves(study: PeopleStudy, of_people: Mapping[str, pd.DataFrame], # collection -> as of `agreement_of_halves`
                    of_probe: Mapping[str, pd.DataFrame],                      # as of `profile_of_halves`
                   ) -> pd.DataFrame: # collection, what, kendall, low, high, whole
    """How well the order of the metrics on a half of the items repeats that on the other half, for people, each axis and the prediction;
    `whole`: the correlation that all items would reach (Spearman and Brown)."""
    rows = []
    for c, name in enumerate(study.collections):
        pairs: dict[str, list] = {}
        for split in range(SPLITS):
            own = of_people[name].query("split == @split").pivot(index="half", columns="metric", values="value")
            pairs.setdefault("people", []).append(own.reindex(columns=study.metrics).to_numpy(float))
            halves = of_probe[name].query("split == @split").groupby("half")
            halves = [part.set_index("metric").reindex(index=study.metrics, columns=study.axes).to_numpy(float) for _, part in halves]
            for k, axis in enumerate(study.axes): pairs.setdefault(axis, []).append(np.stack([half[:, k] for half in halves]))
            told = [predict_left_out(study, profile=np.r_[study.profile[:c], half[None], study.profile[c + 1:]])[c] for half in halves]
            pairs.setdefault("profile", []).append(np.stack(told))
        for what, found in pairs.items():
            there = [np.isfinite(pair).all(0) for pair in found]
            if not all(some.sum() > 3 for some in there): continue
            taus = np.array([order_agreement(*pair[:, None])[0] for pair in found])
            r = np.mean([np.corrcoef(pair[:, some])[0, 1] for pair, some in zip(found, there)])
            rows.append({"collection": name, "what": what, "kendall": taus.mean(), "low": taus.min(), "high": taus.max(), "whole": 2*r/(1 + r)})
    return pd.DataFrame(rows)


def headline_families(task: str) -> list[str]: # on the axes that are averaged, and not told by their words alone
    told = _told(task)
    kept = [n for n in edits_of(task, ("violation", "less", "form", "valid")) if n not in TOO_PLAIN]
    return [n for n in kept if not is_told_by_words(word_edits[n].kind, float(told.get(n, "nan")))]


def measure_parts(name: str, data: Path, again: bool, only_agreement: bool) -> None:
    file, options, task, judged_items, edited_texts, group = COLLECTIONS[name]
    whole = load_judgments(data/file, **options)
    judged, bank = some_of(whole, judged_items), None
    items = items_of(some_of(whole, whole.outputs["item"].nunique()), edited_texts)
    english = name != "TED en-de"
    names = headline_families(task) if english else NO_ENGLISH
    def with_bank():
        nonlocal bank
        bank = bank or bank_of(judged, items, task)
        return bank
    table = keep(f"scores {group}", lambda: scored(judged, with_bank()))
    keep(f"agreement {name}", lambda: agreements(judged, table))
    keep(f"agreement of halves {name}", lambda: agreement_of_halves(judged, table))
    if only_agreement: return
    values = keep(f"values {group}", lambda: edited_values(items, with_bank(), task, names, english), again)
    keep(f"profile {group}", lambda: edit_profile(values), again)
    keep(f"profile of halves {group}", lambda: profile_of_halves(values), again)
    edits = int((values["metric"].eq(values["metric"].iloc[0]) & values["family"].ne("")).sum())
    keep(f"size {name}", lambda: pd.DataFrame([{"outputs": len(judged.outputs), "items": judged.outputs["item"].nunique(), "edited": len(items), "edits": edits}]), again)


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
    of_people = {name: pd.read_parquet(KEPT/f"agreement of halves {name}.parquet") for name in there}
    of_probe = {name: pd.read_parquet(KEPT/f"profile of halves {group[name]}.parquet") for name in there}
    long = pd.concat([pd.DataFrame({"collection": c, "metric": f.columns, "value": f.loc[-1].to_numpy(), "low": f.drop(-1).quantile(.025).to_numpy(),
                                    "high": f.drop(-1).quantile(.975).to_numpy()}) for c, f in found.items()])
    axes = {measure: {c: axis_profile(p, measure) for c, p in profile.items()} for measure in ("auc", "effect")}
    beside = [long.merge(pd.concat([f.assign(collection=c) for c, f in by.items()]).rename_axis("metric").reset_index(), on=["collection", "metric"], how="left")
              for by in axes.values()]
    columns = [c for c in beside[0] if c not in long]
    table = beside[0].merge(beside[1][["collection", "metric", *columns]], on=["collection", "metric"], suffixes=("", "_effect"))
    table = table.assign(group=table["collection"].map(group), relatives=table["metric"].map(relatives),
                         **{k: table["collection"].map({c: s[k] for c, s in sizes.items()}) for k in ("outputs", "items", "edited", "edits")})
    store(table, "probe_to_people.csv")
    wide = pd.concat([p.groupby(["metric", "family"], sort=False)["auc"].mean().unstack("family").assign(group=g)
                      for g, p in {group[c]: p for c, p in profile.items()}.items()]).reset_index()
    store(wide[["group", "metric", *(c for c in wide if c not in ("group", "metric"))]], "probe_to_people_profile.csv")
    summaries, each, repeated = [], [], []
    for measure, by in axes.items():
        whole = people_study(long, by, group)
        for variant, metrics in variants(whole.metrics).items():
            study = whole.only(metrics)
            head = {"measure": measure, "variant": variant, "metrics": len(metrics)}
            summaries.append(compare_strategies(study).assign(**head))
            if measure == "auc": repeated.append(order_of_halves(study, of_people, of_probe).assign(variant=variant))
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
    store(pd.concat(repeated), "probe_to_people_halves.csv")
    print(pd.concat(summaries).to_string(index=False, float_format="%.2f"))


if __name__ == "__main__": main()
