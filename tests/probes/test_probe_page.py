"The page of a probe: hostile names stay names, nothing comes from elsewhere, older probes make a page, the sentinels are believed, a browser shows it well."
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pipe_browser import browser
from invariant_metrics.core import InputError, rng
from invariant_metrics.probes.probe_figures import example_strips
from invariant_metrics.probes.tables import kind_verdicts, summarize_probe
from invariant_metrics.probes.probe_task import ProbeResult
from invariant_metrics.probes.profile import Verdicts, empty_profile, profile
from invariant_metrics.runs import open_run
from invariant_metrics.probes.probe_report import _heat_maps, _split_profile, probe_report, _families_as_rows
from invariant_metrics.studies.study_report import write_report

EVIL = "<script>alert(1)</script>"


def render_probe(run, probe): return probe_report(probe, run).page()


def source_headline(probe, source, task): return summarize_probe(probe, task).sentences.get(source, [])


RUN = {"settings": {"command": "probe", "task": "captioning", "target": "refs.json", "pred": ["a.json", "b.json"], "seed": 0},
       "parts": {"probe": {"seconds": 90.0}}, "cores": 2, "peak_memory_bytes": 10**9, "versions": {"python": "3.11"}}
KINDS = {"negation": (1.0, -1.0), "color-replaced": (2.0, 0.0), "synonym": (0.5, 0.0)}  # cost to either metric, one edit


def made_up(source="captioning", metric="sees", constant=0.0) -> ProbeResult:
    "One metric that sees violations, one that prefers negations, three sentinels; twelve items, two severities, one right edit."
    noise, found, auc, nobody = np.linspace(-0.1, 0.1, 12), [], [], np.zeros(12)
    for name, k in ((metric, 0), ("prefers", 1), ("constant", None), ("length", 0), ("oracle", 0)):
        for family, costs in KINDS.items():
            cost = constant if k is None else costs[k]
            rows = np.stack([level * cost + (noise if k is not None and cost else nobody) for level in (1, 2)])
            views = (("paired", nobody),) if family == "synonym" else (("paired", nobody), ("item", nobody + (0 if k is None else 0.3)))
            found += [Verdicts(name, family, view, rows, good, np.arange(12), nobody) for view, good in views]
            auc += [dict(source=source, metric=name, family=family, view=view, level="all", auc=0.5 + cost / 4, ci_low=0.4 + cost / 4, ci_high=0.6 + cost / 4,
                         effect=0.0, n=24, n_clusters=12) for view, _ in views]
    ledger = pd.DataFrame([dict(source=source, family=f, kind="valid" if f == "synonym" else "violation", level=level, n=14, matched=12, no_partner=0,
                                not_applicable=2, unmatched=0, largest_gap_db=np.nan) for f in KINDS for level in (1.0, 2.0)])
    rows = profile(found, ledger, reps=60).assign(source=source)
    gap = rows[(rows["view"] == "item") & (rows["metric"] == metric)].assign(view=f"big{metric} - small")
    said = {"reference": f"a red ball of {metric}", "base": f"{metric} has a red ball", "negation": f"{metric} has no ball", "synonym": f"{metric} owns a red ball"}
    examples = {f"{source}/{name}": np.array([text]) for name, text in said.items()}
    tables = {"auc": pd.DataFrame(auc), "dose": pd.DataFrame(), "ledger": ledger, "profile": pd.concat([rows, gap])}
    return ProbeResult(tables, examples, {"signatures": {source: f"probe:{source}"}, "seconds": {source: 1.0}})


@pytest.fixture(scope="module")
def page(): return render_probe(RUN, made_up())


def body_of(page): return page[page.index("<body>"):]


def test_hostile_names_stay_names():
    run = {**RUN, "settings": {**RUN["settings"], "task": EVIL, "target": EVIL, "pred": [EVIL, '"><img src=x onerror=alert(1)>']}}
    page = render_probe(run, made_up(EVIL, EVIL))
    assert page.count("<script") == 1 and "<img src=x" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_nothing_comes_from_elsewhere(page):
    targets = re.findall(r"""(?:src|href|action|poster)=["']?([^"'\s>]*)""", page)
    own = ("data:image/png;base64,", "data:text/csv;", "#", "data:,", "probe/", "run.json")
    assert [t for t in targets if not t.startswith(own)] == []
    assert re.findall(r"url\((?!#)", page) == [] and not any(word in page for word in ("@import", "http://", "https://"))
    assert page.count("<script") == page.count("<link") == 1


def test_a_severity_without_items_leaves_no_nan_in_the_page():
    "Nor does a family with a single severity, which has no curve; other panels are drawn as before."
    probe = made_up()
    bare = probe.profile.copy()
    empty = bare["level"].astype(str).str.startswith("2") & (bare["family"] == "negation")
    assert empty.any()
    bare.loc[empty, [c for c in bare if c.startswith(("change", "isotonic"))]] = np.nan
    page = render_probe(RUN, replace(probe, tables={**probe.tables, "profile": bare}))
    figures = [re.findall(r"<svg.*?</svg>", text, re.DOTALL) for text in (page, render_probe(RUN, probe))]
    panels = [[len(re.findall(r">(?:negation|color-replaced)<", svg)) for svg in drawn if "dose and response" in svg] for drawn in figures]
    assert panels == [[1, 1], [2, 2]] and not [svg for drawn in figures for svg in drawn if "nan" in svg.lower()]


def test_the_answers_follow_the_numbers():
    said = dict(source_headline(made_up(), "captioning", "captioning"))
    assert said["With one edit apart,"] == "sees notices most kinds of violation and prefers none. Kinds noticed / preferred, of 2: sees 2/0, prefers 0/1."
    assert said["Natural variation is larger:"].startswith("1 of 2 metrics prefer some kind")
    assert "constant cannot tell, as it must" in said["The sentinels:"] and "length alone notices 2 and prefers 0 of 2 kinds one edit apart (negation and color-replaced)" in said["The sentinels:"]
    assert "this probe is broken, do not read on" in dict(source_headline(made_up(constant=1.0), "captioning", "captioning"))["The sentinels:"]


def test_an_edit_that_leaves_the_text_right_is_no_violation():
    probe = made_up()
    bad, right = _split_profile(probe)
    assert set(right["family"]) == {"synonym"} and "synonym" not in set(bad["family"])
    both = bad[(bad["metric"] == "prefers") & (bad["view"] == "paired") & (bad["level"] == "all")].set_index("family")
    assert both.loc["all", "accuracy_low"] <= both.loc["all", "accuracy"] <= both.loc["all", "accuracy_high"]
    both = both["accuracy"]
    assert both["all"] == pytest.approx((both["negation"] + both["color-replaced"]) / 2) == pytest.approx(0.25)
    assert set(kind_verdicts(probe)["family"]) == {"negation", "color-replaced"}


def test_few_items_have_no_verdict():
    probe = made_up()
    probe.profile.loc[probe.profile["family"] == "negation", "n_clusters"] = 5
    assert "of 1: sees 1/0, prefers 0/0." in dict(source_headline(probe, "captioning", "captioning"))["With one edit apart,"]


def test_psnr_is_not_counted_where_violations_are_matched_in_it():
    probe = made_up(metric="psnr")
    assert "psnr" in dict(source_headline(probe, "captioning", "images"))["With one edit apart,"]
    assert "psnr" not in dict(source_headline(probe, "captioning", "colorization"))["With one edit apart,"]


def test_the_page_has_its_parts(page):
    body = body_of(page)
    assert body.count('class="card"') == 2 and "Right, and objected to?" in body and "And the gap between two systems?" in body
    for word in ("accuracy", "AUC", "specificity", "sensitivity", "threshold", "saturation", "exchange rate", "judge", "sentinel"): assert f"<dt>{word}</dt>" in body
    assert '<mark class="broken">no</mark>' in body and '<mark class="kept">owns</mark>' in body and "synonym (still right)" in body and "12/14" in body
    assert "a.json and b.json" in body and "probe:captioning" in body and "version, python" in body
    assert page == render_probe(RUN, made_up())


def test_an_older_probe_falls_back_to_its_aucs():
    page = body_of(render_probe(RUN, made_up().with_tables(profile=empty_profile())))
    assert "without profiles" in page and 'class="card"' not in page and '<table class="heat sortable">' in page
    assert "constant cannot tell" in page and "Kinds noticed / preferred" in page


def test_many_kinds_are_rows_and_keep_their_cells():
    table = _heat_maps(made_up(), "captioning")[0]["accuracy"]
    aside = _families_as_rows(table, most=1)
    assert _families_as_rows(table) is table and aside["columns"] == [row["name"] for row in table["rows"]] and set(aside["quiet"]) == {"constant", "length", "oracle"}
    assert [[row["cells"][k] for row in aside["rows"]] for k in range(len(table["rows"]))] == [row["cells"] for row in table["rows"]]


def test_pictures_are_shown_as_pictures():
    probe = made_up("photos")
    pictures = {f"photos/{name}": rng(0).integers(0, 255, (1, 32, 32, 3)).astype(np.uint8) for name in ("truth", "any-valid", "negation")}
    page = body_of(render_probe({**RUN, "settings": {"task": "images"}}, replace(probe, arrays=pictures)))
    assert page.count("<img") == sum(len(row) for s in example_strips(pictures, ["photos"]) for row in s["rows"]) == 3
    assert "middle severity" in page and "Item 1" not in page and "independent pictures" in page


def test_the_picture_of_a_caption_stands_beside_its_texts():
    "Captions of painted scenes come with one picture; it is not one of the broken things."
    probe = made_up()
    examples = {key.replace("/base", "/valid"): held for key, held in probe.examples.items()} | {"captioning/picture": np.full((1, 32, 32, 3), 90, np.uint8)}
    page = body_of(render_probe(RUN, replace(probe, arrays=examples).with_tables(profile=empty_profile())))
    assert page.count("<img") == 1 and "middle severity" not in page and "independent texts" in page and "Against another right answer," in page


def test_digests_of_what_was_given_are_listed_one_by_one():
    run = {**RUN, "settings": {**RUN["settings"], "content": {"target": "abc123", "source": None, "pred": ["x1", "y2"]}, "version": "0.1"}}
    page = body_of(render_probe(run, made_up().with_tables(profile=empty_profile())))
    assert "<dt>content, target</dt><dd>abc123</dd>" in page and "<dd>x1 and y2</dd>" in page and "content, source" not in page


def test_a_run_folder_of_a_probe_gets_this_page(tmp_path):
    open_run(tmp_path, RUN["settings"])
    with pytest.raises(InputError, match="no results yet"): write_report(tmp_path)
    probe = made_up()
    probe.with_tables(dose=pd.DataFrame({"source": ["captioning"]})).save(tmp_path/"probe")
    assert "Probe of captioning: which metric notices?" in write_report(tmp_path).read_text(encoding="utf-8")


def test_a_real_browser_shows_it(page, tmp_path):
    path = tmp_path/"index.html"
    path.write_text(page, encoding="utf-8")
    with browser(path) as b:
        colors = {}
        for width, dark in ((400, False), (1200, False), (1200, True)):
            b.view(width, dark)
            assert b.script("return document.documentElement.scrollWidth") <= width, f"the page is wider than {width} pixels"
            colors[dark] = b.script("return getComputedStyle(document.body).backgroundColor")
        assert colors[False] != colors[True]
        assert b.script("return [...document.querySelectorAll('details.part')].some(e => e.open)") is False
        assert b.script("return [...document.querySelectorAll('details.card')].map(e => e.open)") == [True, True]
        b.script("document.querySelectorAll('details').forEach(e => e.open = true)")
        b.view(400)
        assert b.script("return document.documentElement.scrollWidth") <= 400, "the page with everything unfolded is wider than 400 pixels"
        assert b.script("const ids = [...document.querySelectorAll('[id]')].map(e => e.id); return ids.length - new Set(ids).size") == 0
        assert [entry for entry in b.console() if entry["level"] == "SEVERE"] == []


@pytest.mark.parametrize("weights, said", [(None, True), ({"bertscore": {"weights": "roberta-large", "revision": "722cf37b1afa"}}, False),
                                           ({"roberta-large": {"weights": "roberta-large", "revision": "722cf37b1afa"}}, False)])
def test_the_page_says_who_reads_for_a_metric_that_was_published_with_another_network(weights, said):
    run = {**RUN, "settings": {**RUN["settings"], "weights": weights}}
    page = render_probe(run, made_up(metric="bertscore"))
    assert ("bertscore is read by MiniLM here" in page and "calls it bertscore-minilm" in page) is said
    assert "read by MiniLM" not in render_probe(run, made_up(metric="bleu"))
    pictures = {**run, "settings": {**run["settings"], "task": "images"}}
    assert "read by MiniLM" not in render_probe(pictures, made_up(metric="psnr"))


def test_the_names_of_stand_ins_are_those_of_score():
    "What the note promises: `score` on MiniLM calls them so."
    from invariant_metrics.metrics.metric import get_metric
    from invariant_metrics.probes.probe_task import stand_in_readers
    assert stand_in_readers(["bleu", "bertscore", "fbd", "fbd-4", "violation-paraphrase", "no.such:metric"]) == dict.fromkeys(("bertscore", "fbd", "fbd-4"), "minilm")
    for name in ("bertscore", "fbd", "fbd-4"): assert get_metric(name, weights="minilm").name == f"{name}-minilm"
