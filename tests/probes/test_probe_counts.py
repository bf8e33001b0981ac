"Counts of a probe: one function for page and shell, both directions, every view, few items, the sentinels at their worst."
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from invariant_metrics.commands.judge_commands import _probe_payload, _probe_tables
from invariant_metrics.probes.probe_report import _heat_maps, probe_report
from invariant_metrics.probes.profile import empty_profile
from invariant_metrics.probes.tables import LEAST_ITEMS, count_kinds, interval_verdict, kind_verdicts, summarize_probe
from invariant_metrics.probes.probe_task import ProbeResult

KINDS = [f"kind-{k:02d}" for k in range(40)]
RUN = {"settings": {"command": "probe", "task": "captioning", "seed": 0}, "parts": {"probe": {"seconds": 1.0}}}
VERDICTS = {  # metric -> view -> kinds noticed and preferred, of the first 33
    "bleu": {"paired": (24, 2), "item": (8, 0), "set": (30, 0)}, "random": {"paired": (0, 4), "item": (8, 1), "set": (3, 0)},
    "constant": {"paired": (0, 0), "item": (0, 0), "set": (0, 0)}, "length": {"paired": (12, 0), "item": (9, 1), "set": (10, 0)},
    "oracle": {"paired": (33, 0), "item": (31, 0), "set": (33, 0)}}


def intervals(metric, view):
    notices, prefers = VERDICTS[metric][view]
    if metric == "constant": return [(0.5, 0.5, 0.5)] * len(KINDS)
    sure, wrong, open_ = (0.8, 0.7, 0.9), (0.2, 0.1, 0.3), (0.6, 0.4, 0.8)
    return [sure] * notices + [wrong] * prefers + [open_] * (33 - notices - prefers) + [sure] * (len(KINDS) - 33)


def stored_probe() -> ProbeResult:
    "Forty kinds of which seven have five items only; paired and item in the profile, AUCs for all three views, which say something else."
    profile, auc = [], []
    for metric, views in VERDICTS.items():
        for view in views:
            for k, (value, low, high) in enumerate(intervals(metric, view)):
                few = dict(source="captioning", metric=metric, family=KINDS[k], view=view, level="all", n_clusters=12 if k < 33 else 5, n=40)
                if view != "set": profile.append(few | dict(accuracy=value, accuracy_low=low, accuracy_high=high, auc=value, auc_low=low, auc_high=high))
                wide = 0.0 if view == "set" or metric == "constant" else 0.25 # AUCs of the other views decide nothing
                auc.append(few | dict(auc=value, ci_low=low - wide, ci_high=high + wide, effect=0.0))
    names = [column for column in empty_profile().columns if column not in profile[0]]
    profile = pd.DataFrame(profile).assign(**{name: np.nan for name in names})
    ledger = pd.DataFrame([dict(source="captioning", family=f, kind="violation", level=1.0, n=40, matched=12, no_partner=0, not_applicable=28,
                                unmatched=0, largest_gap_db=np.nan) for f in KINDS])
    tables = {"auc": pd.DataFrame(auc), "dose": pd.DataFrame({"source": ["captioning"]}), "ledger": ledger, "profile": profile}
    return ProbeResult(tables, {}, {"signatures": {"captioning": "probe:captioning"}, "seconds": {"captioning": 1.0}})


@pytest.fixture(scope="module")
def probe(): return stored_probe()


def test_every_view_is_counted_in_both_directions(probe):
    counts = summarize_probe(probe).counts.set_index(["metric", "view"])
    for metric, views in VERDICTS.items():
        for view, (notices, prefers) in views.items():
            assert counts.loc[(metric, view), ["notices", "prefers", "of", "too_few"]].tolist() == [notices, prefers, 33, 7], (metric, view)
    quantity = kind_verdicts(probe).groupby("view")["quantity"].unique().map(list)
    assert quantity.to_dict() == {"paired": ["accuracy"], "item": ["accuracy"], "set": ["auc"]}


def test_the_shell_prints_the_counts_and_sentences_of_the_page(probe, monkeypatch, capsys, tmp_path):
    "One stored probe, its page, its table and its JSON."
    monkeypatch.setattr("invariant_metrics.probes.run_probe.run_probe", lambda *args, **settings: (tmp_path, probe))
    monkeypatch.setattr("invariant_metrics.probes.probe_report.write_probe_page", lambda folder: folder/"index.html")
    monkeypatch.setattr("invariant_metrics.runs.read_run", lambda folder: {"settings": {}})
    from invariant_metrics.commands.shell import main
    assert main(["probe", "captioning"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert main(["probe", "captioning", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    page = re.sub(r"<[^>]*>", "", probe_report(probe, RUN).page()).replace("&#39;", "'")
    page = " ".join(page.split())
    lines = summarize_probe(probe, "captioning").sentences["captioning"]
    assert len(lines) == 7
    for what, sentence in lines:
        assert f"{what} {sentence}" in said and f"{what} {sentence}" in page
    assert "bleu 24 2 7 33 7" in said and "of 33: bleu 24/2." in page
    by = {(row["metric"], row["view"]): row for row in result["counts"]}
    assert (by["bleu", "paired"]["notices"], by["bleu", "paired"]["prefers"], by["bleu", "paired"]["of"]) == (24, 2, 33)


def test_the_sentinel_speaks_in_its_worst_view_and_in_both_directions(probe):
    said = dict(summarize_probe(probe).sentences["captioning"])["The sentinels:"]
    assert "a random number seems to notice 8 and prefers 1 of 33 kinds one by one (by chance about 0.8 in each direction, in bunches; " \
           "elsewhere one edit apart 0/4 and over sets 3/0)" in said
    assert "length alone notices 12 and prefers 0 of 33 kinds one edit apart" in said
    assert "notices 31 and prefers 0 of 33 kinds one by one" in said  # the oracle, where it sees least
    assert "constant cannot tell, as it must" in said


def test_the_rule_names_the_number_of_items_and_the_kinds_without_it(probe):
    said = dict(summarize_probe(probe).sentences["captioning"])["What counts:"]
    assert f"needs {LEAST_ITEMS} independent items; fewer have kind-33" in said and "kind-32" not in said
    assert "compared with the same right answers" in said


@pytest.mark.parametrize("low, high, verdict", [(0.5, 0.9, "undecided"), (0.501, 0.9, "notices"), (0.1, 0.5, "undecided"), (0.1, 0.499, "prefers"),
                                                (.49999999999999994, .49999999999999994, "undecided"), (np.nan, np.nan, "undecided")])
def test_an_interval_decides(low, high, verdict): assert interval_verdict(low, high) == verdict


def test_what_is_known_beforehand_stands_last_and_nothing_makes_nothing(probe):
    counts = summarize_probe(probe.with_tables(profile=probe.profile.replace({"metric": {"bleu": "psnr"}}), auc=probe.auc.iloc[:0]), "colorization").counts
    assert counts["known"].all()
    assert not len(count_kinds(kind_verdicts(probe.with_tables(profile=empty_profile(), auc=probe.auc.iloc[:0]))))


def three_axes(probe: ProbeResult) -> ProbeResult:
    "The same with five kinds that say less and four of form."
    kinds = {**dict.fromkeys(KINDS[:5], "less"), **dict.fromkeys(KINDS[5:9], "form")}
    return probe.with_tables(ledger=probe.ledger.assign(kind=[kinds.get(f, "violation") for f in probe.ledger["family"]]))


def test_nothing_is_counted_over_kinds(probe):
    apart = three_axes(probe)
    said = summarize_probe(apart, "captioning")
    counts = said.counts.set_index(["metric", "view", "kind"])
    assert counts.loc[("bleu", "paired"), "of"].to_dict() == {"violation": 24, "less": 5, "form": 4}
    assert counts.loc[("bleu", "paired"), "notices"].to_dict() == {"violation": 15, "less": 5, "form": 4}
    sentences = dict(said.sentences["captioning"])
    assert "of 5 families that leave something out and say nothing false, one edit apart are marked down by bleu 5" in sentences["Said less:"]
    assert "of 4 families" in sentences["Said worse:"] and "of 24: bleu 15/2." in sentences["With one edit apart,"]
    assert "notices 3 and prefers 0 of 24 kinds" in sentences["The sentinels:"]  # length, over sets: only what is false counts here


def test_page_and_shell_keep_the_axes_apart(probe):
    apart = three_axes(probe)
    maps = _heat_maps(apart, "captioning")
    assert len(maps) == 9 and [m["auc"]["title"].count("completeness") for m in maps] == [0, 1, 0] * 3
    rows = [{row["name"] for row in (m["accuracy"] or m["auc"])["rows"]} | {*(m["accuracy"] or m["auc"])["columns"]} for m in maps]
    assert {*KINDS[:5]} <= rows[1] and not {*KINDS[:5]} & rows[0] and not {*KINDS[9:]} & rows[1]
    titles = [table.title for table in _probe_tables(summarize_probe(apart, "captioning"))]
    assert len(titles) == 9 and sum("say less" in t for t in titles) == 3 and sum("say it worse" in t for t in titles) == 3
    auc = pd.DataFrame(_probe_payload(summarize_probe(apart, "captioning"), apart)["auc"])
    assert auc.groupby("kind")["family"].nunique().to_dict() == {"form": 4, "less": 5, "violation": 31}


def test_what_words_tell_is_in_the_tables_and_not_in_the_counts(probe):
    told = probe.with_tables(ledger=probe.ledger.assign(told_by_words=0.9, counted=~probe.ledger["family"].isin(KINDS[:2])))
    was, now = (summarize_probe(found, "captioning") for found in (probe, told))
    of = lambda summary: summary.counts.set_index(["metric", "view"]).loc[("bleu", "paired")]
    assert (of(was)["of"], of(now)["of"], of(was)["notices"] - of(now)["notices"]) == (33, 31, 2)
    assert dict(now.sentences["captioning"])["Told by their words alone:"].startswith("kind-00 and kind-01")
    assert "Told by their words alone:" not in dict(was.sentences["captioning"]) and len(told.profile) == len(probe.profile)
    nothing = probe.with_tables(ledger=probe.ledger.assign(told_by_words=0.9, counted=False))
    assert not len(kind_verdicts(nothing))


def test_what_is_unsupported_or_implausible_enters_no_average(probe):
    kinds = {KINDS[0]: "unsupported", KINDS[1]: "implausible"}
    apart = probe.with_tables(ledger=probe.ledger.assign(kind=[kinds.get(f, "violation") for f in probe.ledger["family"]]))
    counts = summarize_probe(apart, "captioning").counts.set_index(["metric", "view", "kind"])
    assert counts.loc[("bleu", "paired"), "of"].to_dict() == {"unsupported": 1, "implausible": 1, "violation": 31}
