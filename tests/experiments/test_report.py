"The page, of colors and of texts: hostile names stay names, nothing comes from elsewhere, half a run makes a page, and a real browser shows it well."
import json
import re
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from pipe_browser import browser
from invariant_metrics.core import InputError, rng
from invariant_metrics.files import save_results
from invariant_metrics.studies.study_figures import results_table_rows
from invariant_metrics.probes.probe_task import ProbeResult
from invariant_metrics.probes.profile import empty_profile
from invariant_metrics.runs import open_run
from invariant_metrics.studies.search import StudyResult
from invariant_metrics.studies.study_report import study_report, write_report

EVIL = "<script>alert(1)</script>"


def render_study(run, probe=None, training=None, out=None): return study_report(probe, training, run).page(out)


@contextmanager
def undrawn():
    "Pages with empty figures, for what stands in words: drawing takes half of the time."
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, file, **options: file.write("<svg></svg>"))
        yield


@pytest.fixture
def words():
    with undrawn(): yield


RUN = {"settings": {"task": "colorization", "scale": "quick", "seed": 0},
       "parts": {"probe": {"seconds": 30.0}, "training": {"seconds": 60.0}}, "cores": 2, "peak_memory_bytes": 10**9}
KINDS = ("bleeding", "blotches", "misregistration")


def stored_probe(auc, dose, ledger, examples, source) -> ProbeResult:
    tables = {"auc": pd.DataFrame(auc), "dose": pd.DataFrame(dose), "ledger": pd.DataFrame(ledger), "profile": empty_profile()}
    return ProbeResult(tables, examples, {"signatures": {source: f"probe:{source}"}, "seconds": {source: 1.0}})


def made_up_probe(source="photos", metric="violation-depth") -> ProbeResult:
    "Three metrics with AUCs of .8, .5 and .2, five levels, two pictures."
    auc, dose, ledger, draw = [], [], [], rng(0)
    for name, value in ((metric, 0.8), ("psnr", 0.5), ("a-rather-long-name-of-a-distance", 0.2), ("constant", 0.5)):
        for family in KINDS:
            auc += [dict(source=source, metric=name, family=family, view=view, level="all", auc=value, ci_low=value - 0.1,
                         ci_high=value + 0.1, effect=0.0, n=40, n_clusters=10) for view in ("item", "set")]
            dose += [dict(source=source, metric=name, family=family, level=level, score=value * k, score_low=0.0, score_high=1.0,
                          isotonic=0.0, trend=1.0, trend_low=0.9, trend_high=1.0, n=40) for k, level in enumerate((37.0, 31.0, 25.0))]
    for family in KINDS:
        ledger += [dict(source=source, family=family, kind="violation", level=level, n=40, matched=31, no_partner=2, not_applicable=3,
                        unmatched=4, largest_gap_db=0.1) for level in (37.0, 31.0, 25.0)]
    images = {f"{source}/{name}": draw.integers(0, 255, (2, 64, 64, 3)).astype(np.uint8) for name in ("truth", "recoloring", *KINDS)}
    return stored_probe(auc, dose, ledger, images, source)


def made_up_training(system="+depth") -> StudyResult:
    "A baseline, one system at two alphas, and saturation; three seeds."
    rows, gains = [], []
    values = {("baseline", 0.0): (24.0, 20.0), (system, 0.1): (24.1, 18.0), (system, 1.0): (23.0, 17.0), ("saturation", 1.0): (24.0, 20.0),
              ("saturation", 1.3): (22.0, 16.0)}
    for (name, alpha), pair in values.items():
        rows += [dict(task="colorization", dataset="scenes/test", system=name, model="unet", invariants=name, alpha=alpha, seed=seed,
                      metric=metric, value=v + 0.1 * seed, ci_low=v - 1, ci_high=v + 1,
                      n=100, higher_is_better=up, signature=f"metric:{metric}")
                 for seed in range(3) for metric, v, up in zip(("psnr", "fd", "colorfulness"), (*pair, 30.0), (True, False, None))]
    for reading in ("selected", "best", "beyond saturation"):
        gains += [dict(reading=reading, system=name, metric=metric, alpha=0.1, improvement=v, ci_low=v - 0.05, ci_high=v + 0.05,
                       higher_is_better=metric == "psnr")
                  for metric, v in (("fd", 0.1), ("psnr", 0.0)) for name in (system, "segmentation-random")]
    panels = {f"{row}/rgb": np.full((2, 3, 32, 32), 100, np.uint8) for row in ("truth", "baseline", "gray", system)}
    panels |= {f"{row}/depth": np.full((2, 32, 32), 0.5, np.float32) for row in ("truth", "baseline", system)}
    panels |= {f"{row}/segmentation": np.full((2, 32, 32), 3, np.uint8) for row in ("truth", "baseline", system)}
    frame = pd.DataFrame(rows)
    return StudyResult({"results": frame, "validation": frame, "improvements": pd.DataFrame(gains)}, panels, {"chosen": {system: 0.1}, "select": "fd", "seeds": 3})


def assert_alone(page: str) -> None:
    "Nothing is loaded from elsewhere, and the only script is the page's own."
    targets = re.findall(r"""(?:src|href|action|poster)=["']?([^"'\s>]*)""", page)
    own = ("data:image/png;base64,", "data:text/csv;", "#", "data:,", "probe/", "training/", "run.json")
    assert [t for t in targets if not t.startswith(own)] == []
    assert re.findall(r"url\((?!#)", page) == [] and not any(word in page for word in ("@import", "http://", "https://"))
    assert page.count("<script") == page.count("<link") == 1


def test_hostile_names_stay_names():
    run = {**RUN, "settings": {**RUN["settings"], "data": EVIL, "out": '"><img src=x onerror=alert(1)>'}}
    page = render_study(run, made_up_probe(EVIL, EVIL), made_up_training(EVIL))
    assert page.count("<script") == 1 and "<img src=x" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_nothing_comes_from_elsewhere():
    assert_alone(page_of("colorization"))


def test_same_results_same_page():
    assert render_study(RUN, made_up_probe(), made_up_training()) == page_of("colorization")


def test_the_headline_follows_the_numbers(words):
    probe = made_up_probe()
    page = render_study(RUN, probe)
    assert "violation-depth notices most kinds of violation without preferring any" in page and "a-rather-long-name-of-a-distance 0/3" in page
    probe.auc.loc[probe.auc["metric"] == "violation-depth", ["auc", "ci_low", "ci_high"]] = [0.2, 0.1, 0.3]
    assert "none notices most kinds of violation" in render_study(RUN, probe)


def test_each_part_alone_makes_a_page_and_none_does_not(words):
    probe_only, training_only = render_study(RUN, made_up_probe()), render_study(RUN, training=made_up_training())
    assert 'id="probe"' in probe_only and 'id="training"' not in probe_only
    assert 'id="probe"' not in training_only and 'id="training"' in training_only
    whole = made_up_training()
    bare = replace(whole.with_tables(improvements=whole.improvements.iloc[:0]), arrays={}, meta={})
    assert 'id="training"' in render_study(RUN, training=bare)
    with pytest.raises(InputError, match="neither probe nor training"): render_study(RUN)


def test_the_best_of_each_column_is_marked_by_its_direction():
    results = made_up_training().results
    table = results_table_rows(results[results["system"] != "saturation"], {"+depth": 0.1})
    best = {column: row[0]["text"] for k, column in enumerate(table["columns"]) for row in table["rows"] if k and row[k]["best"]}
    assert best == {"psnr ↑": "+depth (α\u00a0=\u00a00.1)", "fd ↓": "+depth (α\u00a0=\u00a00.1)"}


def text_run(task: str) -> dict:
    return {**RUN, "settings": {"task": task, "scale": "quick", "seed": 0}}


def made_up_text_probe(task="translation", metric="bertscore", word="Ben") -> ProbeResult:
    "One metric that sees facts, one that prefers what is wrong, three doses, two items."
    kinds, auc, dose, ledger = ("entity-replaced", "negation", "several-facts"), [], [], []
    for name, paired, item in ((metric, 0.8, 0.2), ("bleu", 0.2, 0.1), ("length", 0.5, 0.5), ("oracle", 1.0, 1.0)):
        for family in kinds:
            auc += [dict(source=task, metric=name, family=family, view=view, level=level, auc=value, ci_low=max(value - 0.1, 0), ci_high=min(value + 0.1, 1),
                         effect=0.0, n=40, n_clusters=40) for level in ("1", "2", "all") for view, value in (("paired", paired), ("item", item), ("set", paired))]
            dose += [dict(source=task, metric=name, family=family, level=level, score=paired * level, score_low=0.0, score_high=1.0, isotonic=0.0,
                          trend=1.0, trend_low=0.9, trend_high=1.0, n=40) for level in (0.0, 1.0, 2.0)]
    ledger += [dict(source=task, family=family, kind="violation", level=level, n=40, matched=31, no_partner=2, not_applicable=3, unmatched=4,
                    largest_gap_db=np.nan) for family in kinds for level in (1.0, 2.0)]
    texts = {"reference": f"Anna met {word} in Rome.", "valid": f"In Rome, Anna met {word}.", "entity-replaced": f"In Rome, Clara met {word}.", "negation": ""}
    examples = {f"{task}/{name}": np.array([text, text]) for name, text in texts.items()}
    if task == "captioning": examples[f"{task}/picture"] = np.full((2, 32, 32, 3), 90, np.uint8)
    return stored_probe(auc, dose, ledger, examples, task)


def made_up_text_training(task="translation", system="+entities", said="Anna visited Ben in Rome.") -> StudyResult:
    "A baseline, a system at two alphas, its controls and the length curve; three seeds."
    exact = "kept-entities" if task == "translation" else "true-relations"
    metrics = (("bleu" if task == "translation" else "cider-d", True), ("fbd", False), ("length", None), (exact, True))
    values = {("baseline", 0.0): (30.0, 4.0, 9.0, 0.8), (system, 0.1): (30.3, 3.8, 9.1, 0.85), (system, 1.0): (28.0, 4.5, 8.0, 0.9),
              (f"{system}-shuffled", 0.1): (30.0, 4.1, 9.0, 0.8), ("length", -1.0): (29.0, 4.2, 9.8, 0.8), ("length", 1.0): (27.0, 4.8, 8.1, 0.7)}
    rows = [dict(task=task, dataset="bilingual/test", system=name, model="small", invariants=name, alpha=alpha, seed=seed, metric=metric,
                 value=v + 0.01 * seed, ci_low=v - 0.2, ci_high=v + 0.2, n=100, higher_is_better=up, signature=f"metric:{metric}")
            for (name, alpha), row in values.items() for seed in range(3) for (metric, up), v in zip(metrics, row)]
    gains = [dict(reading=reading, system=name, metric=metric, alpha=0.1, improvement=v, ci_low=v - 0.02, ci_high=v + 0.02, higher_is_better=up)
             for reading in ("selected", "best", "beyond length") for name in (system, f"{system}-shuffled")
             for (metric, up), v in zip(metrics, (0.01, 0.05, None, 0.06)) if up is not None]
    example = {"source": "Anna besuchte Ben in Rom." if task == "translation" else "", "references": [said, said], "outputs": {"baseline": said, system: said}}
    panels = {"image/rgb": np.full((1, 3, 32, 32), 80, np.uint8)} if task == "captioning" else {}
    frame, meta = pd.DataFrame(rows), {"chosen": {system: 0.1}, "select": "fbd", "seeds": 3, "examples": [example]}
    return StudyResult({"results": frame, "validation": frame, "improvements": pd.DataFrame(gains)}, panels, meta)


CAPTION = "a red ball is to the left of a blue boat"
TASKS = {"translation": {}, "captioning": {"system": "+scene-graph", "said": CAPTION}}


@cache
def page_of(task: str) -> str:
    "The page that several tests look at."
    if task == "colorization": return render_study(RUN, made_up_probe(), made_up_training())
    return render_study(text_run(task), made_up_text_probe(task), made_up_text_training(task, **TASKS[task]))


@pytest.mark.parametrize("task", TASKS)
def test_a_text_run_makes_a_page_in_words_for_texts(task):
    page = page_of(task)
    body = page[page.index("<body>"):]
    assert page.count("<section") == 4 and not re.search(r"PSNR|recoloring|saturation|colorizer", body.split('id="about"')[0])
    assert "length alone" in body and "Is it more than length?" in body and "(control)" in body
    assert '<mark class="broken">Clara</mark>' in body and ("<h3>What they write</h3>" in body)
    assert ('<mark class="PER">Anna</mark>' in body) == (task == "translation") and ("scene graphs of example 1" in body) == (task == "captioning")
    assert "Most metrics prefer" not in body and "dwarfs a single edit: 2 of 2" in body
    bare = replace(made_up_text_training(task), arrays={}, meta={})
    with undrawn():
        for alone in (render_study(text_run(task), made_up_text_probe(task)), render_study(text_run(task), training=made_up_text_training(task, **TASKS[task]))):
            assert alone.count("<section") == 3
        page = render_study(text_run(task), training=bare)
    assert 'id="training"' in page and "What they write" not in page


@pytest.mark.parametrize("task", TASKS)
def test_hostile_texts_stay_texts(task):
    training = made_up_text_training(task, EVIL, EVIL)
    training.meta["examples"][0]["source"] = EVIL
    page = render_study(text_run(task), made_up_text_probe(task, EVIL, EVIL), training)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert_alone(page)
    assert page == render_study(text_run(task), made_up_text_probe(task, EVIL, EVIL), training)


def test_columns_of_texts_stand_as_in_the_papers(words):
    page = render_study(text_run("translation"), training=made_up_text_training())
    places = [page.index(f'<th scope="col">{name}') for name in ("system", "fbd ↓", "bleu ↑", "kept-entities ↑")]
    assert places == sorted(places)


def test_shares_change_in_points_and_what_is_undefined_is_neither_gain_nor_zero():
    training = made_up_text_training()
    gains = training.improvements
    assert "points" not in render_study(text_run("translation"), training=training).split('id="training"')[0] # an older frame: all relative
    gains["unit"] = np.where(gains["metric"] == "kept-entities", "points", "relative")
    gains.loc[(gains["metric"] == "bleu") & (gains["reading"] == "beyond length"), ["improvement", "ci_low", "ci_high"]] = np.nan
    page = render_study(text_run("translation"), training=training)
    assert "kept-entities +6.0 points [+4.0, +8.0]" in page and "fbd +5.0 %" in page and "better by (% or points)" in page
    assert "of 2 differences 2 are gains" in page and "0 cannot be told from zero; 1 more are undefined" in page
    assert "Undefined and not drawn: 2 of 6 (no point of the curve has that length, or its value is 0)" in page and "+entities (1 undefined)" in page


def test_costs_of_a_step_are_printed_where_they_were_measured(words):
    training = made_up_text_training()
    assert "A training step" not in render_study(text_run("translation"), training=training)
    training.meta["step_cost"] = {"baseline": 1.0, "+entities": 1.38}
    assert "A training step of +entities cost 1.4 times the baseline&#39;s." in render_study(text_run("translation"), training=training)


def test_what_a_kept_invariant_costs_is_drawn_where_it_was_measured(words):
    "Task metric against violation, for the pairs whose two metrics the study has."
    assert "kept invariant cost" not in render_study(RUN, training=made_up_training())
    page = render_study(text_run("translation"), training=made_up_text_training())
    assert "What does a kept invariant cost?" in page and "kept-entities against bleu over alpha" in page and 'aria-label="key of baseline in trade-offs"' in page
    training = made_up_training()
    frames = [training.results, training.results[training.results["metric"] == "fd"].assign(metric="violation-depth")]
    assert "violation-depth against psnr over alpha" in render_study(RUN, training=training.with_tables(results=pd.concat(frames, ignore_index=True)))


def test_few_items_have_no_verdict_and_doses_no_column(words):
    probe = made_up_text_probe()
    probe.auc.loc[probe.auc["family"] == "negation", "n_clusters"] = 5
    page = render_study(text_run("translation"), probe)
    assert "Kinds noticed / preferred, of 1: bertscore 1/0, bleu 0/1." in page and "n&nbsp;=&nbsp;5" in page
    assert '<th scope="col">several-facts' not in page


def test_the_limits_say_whose_world_the_probe_uses(words):
    run = text_run("translation")
    own = {**run, "settings": {**run["settings"], "data": "folder"}}
    said = "The probe uses the package&#39;s own world"
    assert said in render_study(own, made_up_text_probe()) and said not in render_study(run, made_up_text_probe())


def test_names_of_foreign_texts_are_read_by_the_invariant(words, monkeypatch):
    training = made_up_text_training(said="Zygmunt tickled Ben.")
    monkeypatch.setattr("invariant_metrics.studies.text_figures._tagged_names", lambda text: [("Zygmunt", "PER")])
    page = render_study(text_run("translation"), training=training)
    assert '<mark class="PER">Zygmunt</mark>' in page and "the entity invariant, which can be wrong" in page


def stored_run(folder: Path) -> Path:
    open_run(folder, RUN["settings"])
    made_up_probe().save(folder/"probe")
    training = made_up_training()
    for name in ("results", "validation", "improvements"): save_results(getattr(training, name), folder/"training"/f"{name}.parquet")
    np.savez(folder/"training"/"panels.npz", **training.panels)
    (folder/"training"/"study.json").write_text(json.dumps(training.meta))
    return folder


def test_a_run_folder_becomes_a_page(words, tmp_path):
    folder = stored_run(tmp_path/"run")
    page = write_report(folder)
    assert page == folder/"index.html" and page.read_text(encoding="utf-8").count("<section") == 4
    assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == [] # no temporary file stays


def test_no_run_folder(tmp_path):
    with pytest.raises(InputError, match="is no run folder"): write_report(tmp_path)
    open_run(tmp_path/"new", RUN["settings"])
    with pytest.raises(InputError, match="neither probe nor training"): write_report(tmp_path/"new")


@pytest.mark.parametrize("task", ["colorization", *TASKS])
def test_a_real_browser_shows_it(task, tmp_path):
    page = tmp_path/"index.html"
    page.write_text(page_of(task), encoding="utf-8")
    with browser(page) as b:
        colors = {}
        for width in (375, 1200):
            for dark in (False, True):
                b.view(width, dark)
                assert b.script("return document.documentElement.scrollWidth") <= width, f"the page is wider than {width} pixels"
                colors[dark] = b.script("const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]")
                ink = b.script("return getComputedStyle(document.querySelector('svg text')).fill")
                assert ink == colors[dark][0], "the ink of a figure is not that of the page"
        assert colors[False] != colors[True]
        assert b.script("return [...document.images].every(i => i.complete && i.naturalWidth > 0)")
        assert b.script("const ids = [...document.querySelectorAll('[id]')].map(e => e.id); return ids.length - new Set(ids).size") == 0
        smallest = b.script("const all = [...document.querySelectorAll('p, li, td, th, figcaption')];"
                            "return Math.min(...all.map(e => parseFloat(getComputedStyle(e).fontSize)))")
        assert smallest >= 11
        assert [entry for entry in b.console() if entry["level"] == "SEVERE"] == []
