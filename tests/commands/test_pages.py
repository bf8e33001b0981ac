"What all pages share: first screen, contents, tables, policy, contrast in both modes, glossary, command; and hostile names in the page of a study."
import base64
import csv
import hashlib
import io
import re
import shlex
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import test_probe_page as of_probe
import test_report as of_study
from pipe_browser import browser
from invariant_metrics.core import InputError
from invariant_metrics.experiments.report import _csv_text, fill_template, glossary, _run_command
from invariant_metrics.probes.probe_figures import _FULL, _PALE, _heat_cell, line_look
from invariant_metrics.studies.study_figures import sensitivity_figures
from test_probe_page import render_probe
from test_report import render_study

PAGES = {"probe": lambda: render_probe(of_probe.RUN, of_probe.made_up()), "colors": lambda: of_study.page_of("colorization"),
         "texts": lambda: of_study.page_of("captioning")}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]: return {name: make() for name, make in PAGES.items()}


class Outline(HTMLParser):
    "Tags in their order with attributes and the text that follows; raises on an end tag without its start."
    VOID = {"meta", "link", "img", "br", "path", "use", "rect", "circle"}

    def __init__(self, html):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append([tag, dict(attrs), "", list(self.open)])
        if tag not in self.VOID: self.open.append(tag)

    def handle_startendtag(self, tag, attrs): self.tags.append([tag, dict(attrs), "", list(self.open)])

    def handle_endtag(self, tag):
        if tag in self.VOID: return
        assert self.open and self.open[-1] == tag, f"</{tag}> closes <{(self.open or ['nothing'])[-1]}>"
        self.open.pop()

    def handle_data(self, data):
        if self.tags: self.tags[-1][2] += data

    def all(self, tag): return [t for t in self.tags if t[0] == tag]


@pytest.mark.parametrize("name", PAGES)
def test_the_first_screen_is_a_sentence_a_figure_and_the_command(pages, name):
    out = Outline(pages[name])
    assert not out.open and len(out.all("main")) == 1
    (h1,) = out.all("h1")
    sentence = h1[2].strip()
    assert sentence.endswith(".") and 5 < len(sentence.split()) < 45 and "reliably" in sentence
    header = pages[name].split("<header>")[1].split("</header>")[0]
    assert header.count("<figure") == 1 and '<pre class="command"><code>invariant-metrics ' in header
    assert len(re.sub(r"<[^>]*>", " ", header).split()) < 170  # few words, few marks
    body = pages[name].split("</header>")[1]
    closed = [t for t in Outline(body.split("</main>")[0]).all("details") if "part" == t[1].get("class")]
    assert len(closed) > 6 and not any("open" in t[1] for t in closed)


@pytest.mark.parametrize("name", PAGES)
def test_contents_lead_to_every_section_and_every_link_has_its_goal(pages, name):
    out = Outline(pages[name])
    ids = [t[1]["id"] for t in out.tags if "id" in t[1]]
    assert len(ids) == len(set(ids))
    nav = pages[name].split('<nav class="contents"')[1].split("</nav>")[0]
    linked = re.findall(r'href="#([^"]*)"', nav)
    parts = [t[1]["id"] for t in out.tags if t[0] == "section" or t[0] == "details" and t[1].get("class") == "part"]
    assert sorted(linked) == sorted(parts)
    assert set(re.findall(r'href="#([^"]*)"', re.sub(r"<svg.*?</svg>", "", pages[name], flags=re.DOTALL))) <= set(ids)


@pytest.mark.parametrize("name", PAGES)
def test_every_table_of_numbers_has_a_caption_can_be_sorted_and_taken_along(pages, name):
    tables = re.findall(r"<table class=\"[^\"]*sortable.*?</table></div>\s*<p class=\"under.*?</p>", pages[name], re.DOTALL)
    assert len(tables) == len(re.findall(r'<table class="[^"]*sortable', pages[name])) >= 3
    for table in tables:
        assert re.search(r"<caption><span>[^<]{8,}</span></caption>", table)
        heads, rows = table.count('<th scope="col"'), table.count("<tr>") + table.count('<tr class') - 1
        link = re.search(r'download="([\w-]+\.csv)" href="data:text/csv;charset=utf-8;base64,([^"]*)"', table)
        read = list(csv.reader(io.StringIO(base64.b64decode(link[2]).decode())))
        assert len(read) == rows + 1 and len(read[0]) >= heads and all(len(row) == len(read[0]) for row in read)


def test_the_policy_lets_the_one_script_run_and_nothing_else(pages):
    for page in pages.values():
        policy = unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
        (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'" in policy and policy.startswith("default-src 'none'") and "unsafe-eval" not in policy
        assert "aria-sort" in script and not re.search(r"innerHTML|eval|fetch|import", script)
        assert not re.search(r"\son\w+=", re.sub(r"<script>.*?</script>|<style>.*?</style>", "", page, flags=re.DOTALL))


def luminance(rgb) -> float:
    c = np.asarray(rgb) / 255
    return float(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


def contrast(a, b) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def palettes() -> dict[str, dict]:
    "The colors of both modes, read from the style sheet."
    css = fill_template("page.css")
    light, dark = re.search(r":root \{(.*?)\}", css)[1], re.search(r"prefers-color-scheme: dark\) \{ :root \{(.*?)\}", css)[1]
    def read(text):
        found = {n: [int(v[k:k + 2], 16) for k in (1, 3, 5)] for n, v in re.findall(r"--(\w+): (#\w{6})", text)}
        return found | {n: [int(x) for x in v.split(",")] for n, v in re.findall(r"--(\w+): ([\d, ]+);", text)}
    return {"light": read(light), "dark": read(light) | read(dark)}


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_words_can_be_read_on_every_tint_in_both_modes(mode):
    "WCAG AA: 4.5 for text, 3 for bars; cells hold small figures in full ink."
    colors = palettes()[mode]
    over = lambda tint, hue: np.asarray(colors[hue]) * tint + np.asarray(colors["paper"]) * (1 - tint)
    worst = min(contrast(colors["ink"], over(tint, hue)) for hue in ("good", "bad") for tint in np.linspace(0, _FULL, 71))
    assert worst >= 4.5, worst
    for ground in ("paper", "card"):
        for text in ("ink", "soft", "link"): assert contrast(colors[text], colors[ground]) >= 4.5, (text, ground)
    for bar in ("good", "bad", "idle"): assert contrast(colors[bar], colors["paper"]) >= 3, bar
    marks = re.findall(r"mark\.\w+ \{ background: rgba\((?:var\(--(\w+)\)|([\d, ]+)), ([.\d]+)\)", fill_template("page.css"))
    assert len(marks) == 6
    for name, rgb, alpha in marks:
        hue = np.asarray(colors[name] if name else [int(x) for x in rgb.split(",")])
        assert contrast(colors["ink"], hue * float(alpha) + np.asarray(colors["paper"]) * (1 - float(alpha))) >= 4.5
    assert contrast((0, 0, 0), (128, 128, 128)) >= 4.5 and "opacity" not in fill_template("page.css")


@pytest.mark.parametrize("value, low, high, verdict", [(1.0, 1.0, 1.0, "notices"), (0.0, 0.0, 0.1, "prefers"), (0.9, 0.45, 1.0, "undecided")])
def test_no_cell_is_darker_than_the_test_of_contrast_assumes(value, low, high, verdict):
    tint = float(_heat_cell(value, low, high)["tint"])
    assert tint <= (_PALE if verdict == "undecided" else _FULL) <= _FULL


def test_a_bar_that_leaves_the_axis_says_so():
    "Of forty metrics one is far out: an arrow and its number; nothing is marked where all bars fit."
    names = [f"m{k}" for k in range(40)]
    rows = pd.DataFrame([dict(reading="best", system="+a", metric=m, improvement=v, ci_low=v - 0.01, ci_high=v + 0.01)
                         for m, v in zip(names, [9.0, *np.linspace(-0.1, 0.1, 39)])])
    svg = str(sensitivity_figures(rows, "best")[0]["svg"])
    assert ">+900<" in svg.replace("<!-- ", "")
    even = rows.assign(improvement=0.05, ci_low=0.04, ci_high=0.06)
    assert ">+5<" not in str(sensitivity_figures(even, "best")[0]["svg"])


def test_lines_differ_without_their_colors():
    looks = [line_look(k) for k in range(12)]
    assert len({(look["marker"], str(look["ls"])) for look in looks}) == 12
    assert len({look["marker"] for look in looks[:6]}) == 6


def test_a_gray_tile_says_why_it_is_gray():
    probe = of_study.made_up_probe()
    probe.examples["photos/bleeding"][:] = 128
    page = render_study(of_study.RUN, probe)
    assert page.count("not reachable at this PSNR</span>") == 2 and page.count('<span class="gone">') == 2
    css = fill_template("page.css")
    assert "image-rendering: pixelated" in css and not re.search(r"\.strip img[^}]*[{;] width: 100%", css)


def test_the_glossary_explains_words_metrics_and_systems(pages):
    for page in pages.values():
        body = page.split('id="glossary"')[1].split("</dl>")[0]
        for word in ("violation", "judge", "sentinel", "oracle", "exchange rate", "invariant", "family", "view", "saturation", "source-only"):
            assert f"<dt>{word}</dt>" in body
    assert "<dt>violation-depth</dt>" in pages["colors"] and "<dt>+depth</dt>" in pages["colors"]
    words = dict(glossary(["violation-depth-judge", "fd-untrained", "segmentation-random", "<script>"]))
    assert {"violation-depth-judge", "fd-untrained", "segmentation-random"} <= set(words) and "<script>" not in words


def test_notes_of_the_run_stand_below_the_sentence():
    note = "maps trained on scenes have no valid labels on <your> photographs"
    page = render_study({**of_study.RUN, "notes": [note]}, of_study.made_up_probe())
    assert page.index("</h1>") < page.index('class="note"') < page.index("<figure")
    assert note.replace("<your>", "&lt;your&gt;") in page and 'class="note"' not in render_study(of_study.RUN, of_study.made_up_probe())


def test_pages_of_own_photographs_say_first_that_maps_of_scenes_have_no_labels_there():
    "In a study and in a probe, unless the networks were named; never for the package's own pictures."
    said, first = "no valid labels", lambda page: page.split("</header>")[0]
    study = lambda **more: first(render_study({**of_study.RUN, "settings": {**of_study.RUN["settings"], **more}}, of_study.made_up_probe()))
    assert said in study(data="photos/") and said not in study()
    assert said not in study(data="photos/", weights={"segmentation": {"weights": "segformer"}, "depth": {"weights": "midas"}})
    photos = of_probe.made_up("photos", "violation-depth")
    probe = lambda **more: first(render_probe({**of_probe.RUN, "settings": {"command": "probe", "task": "images", **more}}, photos))
    assert "Depth is read here" in probe(target="photos/") and said not in probe() and said not in probe(target="photos/", weights={"depth": {"weights": "midas"}})


SETTINGS = {
    "probe": {"command": "probe", "task": "captioning", "metrics": ["bleu", "chrf"], "families": ["negation"], "recursive": False, "side": None,
              "base": "references", "scale": "quick", "seed": 3, "device": "cpu", "target": "my refs.json", "pred": ["a.json", "b.json"], "source": None,
              "foils": ["f.json", "g.json"], "regions": None, "weights": {"bertscore": {"weights": "minilm", "revision": "x"}}, "content": {"target": "x"}, "version": "0.1.0"},
    "study": {"task": "colorization", "data": "photos", "data_identity": "x", "recursive": True, "regions": "maps", "regions_identity": "y",
              "scale": "quick", "grid": "full", "alphas": [0.3, 1.0], "seeds": 2, "model": "unet", "metrics": ["psnr", "a:b"], "invariants": ["edges"],
              "select": "fd", "long": "drop", "seed": 1, "device": "cpu", "version": "0.1.0"}}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_printed_command_is_one_that_the_program_takes(name):
    "Parsed by the program's own parser, it gives back the settings."
    import typer
    import invariant_metrics.commands.judge_commands, invariant_metrics.commands.score_commands  # noqa: F401
    from invariant_metrics.commands.shell import app
    from invariant_metrics.experiments.command import parse_names
    words = shlex.split(_run_command(SETTINGS[name], "runs/here"))
    assert words[:2] == ["invariant-metrics", name]
    command = typer.main.get_command(app).commands[name]
    command = next(iter(getattr(command, "commands", {}).values()), command) # of a group the one that is meant where none is named
    read = command.make_context(name, words[2:]).params
    assert str(read["out"]) == "runs/here" and read["seed"] == SETTINGS[name]["seed"] and read["scale"] == "quick"
    given = read.get("metrics") or read.get("metric")
    assert [n for word in given for n in parse_names(word)] == SETTINGS[name]["metrics"]
    if name == "probe": assert [str(p) for p in read["pred"]] == ["a.json", "b.json"] and [str(p) for p in read["target"]] == ["my refs.json"]
    if name == "probe": assert "--weights bertscore=minilm" in " ".join(words) and "{" not in " ".join(words)
    else: assert read["recursive"] is True and str(read["regions"]) == "maps" and read["grid"] == "full"


def test_a_cell_that_a_spreadsheet_would_run_gets_a_quote():
    cell = lambda text: {"text": text, "interval": ""}
    table = {"columns": ["system", "x"], "rows": [[cell("+a\u200b+b"), cell("+3.2 %")], [cell("=HYPERLINK(1)"), cell("–")], [cell("@x"), cell("−4")]]}
    assert list(csv.reader(io.StringIO(_csv_text(table))))[1:] == [["'+a+b", "+3.2 %"], ["'=HYPERLINK(1)", ""], ["'@x", "-4"]]


EVIL = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "a\u2028alert(3)\u2029b", "--></style></script><script>alert(4)//", "{{7*7}}{% raw %}",
        "javascript:alert(5)", "=1+1|cmd", "<svg onload=alert(6)>", "']]>x", "\u202egnp.exe"]


def hostile_study() -> str:
    "Every name that a run can hold is an attack: metrics, systems, kinds, sources, settings, signatures, notes."
    probe, training = of_study.made_up_probe(EVIL[0], EVIL[1]), of_study.made_up_training(EVIL[2])
    kinds = dict(zip(of_study.KINDS, EVIL[3:6]))
    frames = {name: getattr(probe, name).replace({"family": kinds, "metric": {"psnr": EVIL[6]}}) for name in ("auc", "dose", "ledger")}
    probe = replace(probe.with_tables(**frames), meta={**probe.meta, "signatures": {EVIL[0]: EVIL[7]}})
    gains = training.improvements.replace({"metric": {"fd": EVIL[8]}, "system": {"segmentation-random": f"{EVIL[1]}-random"}})
    results = training.results.replace({"metric": {"fd": EVIL[8]}}).assign(signature=EVIL[9])
    training = training.with_tables(improvements=gains, results=results)
    training.meta["chosen"] = {EVIL[2]: 0.1}
    settings = {**of_study.RUN["settings"], "data": EVIL[3], "metrics": [EVIL[6]], "out": EVIL[1]}
    return render_study({**of_study.RUN, "settings": settings, "notes": EVIL, "digest": EVIL[0], "versions": {EVIL[0]: EVIL[1]}}, probe, training, out=EVIL[1])


def test_hostile_names_of_a_study_stay_names(tmp_path):
    page = hostile_study()
    bare = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", page, count=2, flags=re.DOTALL)
    assert page.count("<script") == 1 and "<script" not in bare and "{{7*7}}" in bare and ">49<" not in bare
    out = Outline(page)
    assert not out.open and len(out.all("h1")) == len(out.all("main")) == len(out.all("dialog")) + 1 == 1
    for tag, attrs, _, _ in out.tags:
        assert not any(a.startswith("on") for a in attrs), (tag, attrs)
        for target in (attrs.get("src"), attrs.get("href")):
            assert target is None or target.startswith(("data:image/png;base64,", "data:text/csv;", "data:,", "#", "probe/", "training/", "run.json")), target
        assert tag not in ("iframe", "object", "embed", "base", "form", "foreignobject")
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    assert "alert" not in script and "\u2028" not in script
    path = tmp_path/"index.html"
    path.write_text(page, encoding="utf-8")
    with browser(path) as b:
        assert b.script("return document.querySelectorAll('script').length") == 1 and b.script("return document.images.length") > 0
        assert [entry for entry in b.console() if entry["level"] == "SEVERE"] == []


def test_the_page_works_in_a_real_browser(pages, tmp_path):
    "Sorting, unfolding from the contents, whole multiples, nothing cut on a desk and no page wider than a phone."
    path = tmp_path/"index.html"
    path.write_text(pages["colors"], encoding="utf-8")
    with browser(path) as b:
        b.view(1400)
        b.script("document.querySelector('a[href=\"#who\"]').click()")
        assert b.script("return document.getElementById('who').open")
        b.script("document.querySelectorAll('details').forEach(e => e.open = true)")
        assert b.script("return document.querySelectorAll('.scroll.more').length") == 0
        column = "[...document.querySelector('table.heat').tBodies[0].rows].map(r => r.cells[1].querySelector('b').textContent)"
        b.script("document.querySelector('table.heat thead th:nth-child(2) button').click()")
        assert b.script(f"return {column}") == sorted(b.script(f"return {column}"), reverse=True)
        assert b.script("return document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "descending"
        assert b.script("return [...document.querySelectorAll('.strip img')].every(i => i.getBoundingClientRect().width % i.naturalWidth === 0)")
        b.script("document.querySelector('.strip img').click()")
        assert b.script("const i = document.querySelector('dialog img'); return [document.querySelector('dialog').open, i.width % i.naturalWidth]") == [True, 0]
        b.view(390)
        assert b.script("return document.documentElement.scrollWidth") <= 390


def test_a_run_without_results_is_refused():
    with pytest.raises(InputError): render_study(of_study.RUN)
