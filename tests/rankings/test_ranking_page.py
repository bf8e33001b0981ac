"The page of a ranking: its columns are the frames, hostile texts stay texts, and a browser filters, sorts, opens and links without a network."
import json
import re
import time
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from drawn_ranking import drawn_annotations, drawn_ranking
from pipe_browser import browser
from invariant_metrics.core import InputError
from invariant_metrics.rankings.ranking_report import _MEASURES, _PER_BLOCK, _all_failures, _class_bits, _pack_columns, _picture_sources, ranking_report, _unpack_columns, write_ranking_page

HOSTILE = ["</script><script>window.hurt = 1</script>", '"><img src=x onerror="window.hurt = 1">', "a\u2028b\u2029c", "\u202eright to left", "<!--<script>", "quote ' \" ` ${1}",
           "\ud800 alone", "{{ 7 * 7 }} {% raw %}", "nul \x00 end", "&lt;b&gt; &amp;"]


def render_ranking(result, folder=".", pictures="reference"): return ranking_report(result, folder, pictures).page(str(folder))


def blocks_of(page: str) -> dict: # name -> columns
    return {name: _unpack_columns(text) for name, text in re.findall(r'<script type="application/octet-stream" id="data-([^"]*)">([^<]*)</script>', page)}


@pytest.fixture(scope="module")
def result(): return drawn_ranking(drawn_annotations(60))


@pytest.fixture(scope="module")
def page(result, tmp_path_factory): return write_ranking_page(result, tmp_path_factory.mktemp("page"))


def test_columns_come_back_as_they_went_in():
    arrays = {f"{kind}{n}": np.arange(n).astype(kind) for kind in ("u1", "u2", "u4", "i2", "f4", "f8") for n in (0, 1, 7, 8)}
    text = _pack_columns(arrays, {"texts": HOSTILE, "one": 1.5})
    back = _unpack_columns(text)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text) and back["texts"] == HOSTILE and back["one"] == 1.5
    for name, array in arrays.items(): assert back[name].dtype == array.dtype and np.array_equal(back[name], array), name
    assert text == _pack_columns(arrays, {"texts": HOSTILE, "one": 1.5})


def test_numbers_of_the_page_are_those_of_the_frames(result, page):
    blocks, failures, frames = blocks_of(page.read_text(encoding="utf-8")), _all_failures(result.models), [m.explanations for m in result.models]
    held = blocks["list"]
    for name in _MEASURES: np.testing.assert_array_equal(held[name], np.concatenate([f.frame[name].to_numpy(np.float32) for f in frames]))
    for name in ("rank", "common", "only_truth", "only_retrieved", "matched", "sizes"): assert held[name].tolist() == failures[name].tolist()
    assert [held["queries"][q] for q in held["query"]] == [result.task.queries[q][0] for q in failures["query"]]
    assert held["bits"].tolist() == _class_bits(failures)[0].tolist() and held["models"] == ["tfidf", "minilm"]
    names, at, detail = blocks["concepts"]["names"], len(frames[0].frame) + 3, blocks["failures-0"]  # the fourth failure of the second model
    rows = frames[1].matches[frames[1].matches["failure"] == 3]
    a, b = detail["matches_start"][at:at + 2]
    assert [names[c] for c in detail["matches_truth_concept"][a:b]] == rows["truth_concept"].tolist()
    np.testing.assert_array_equal(detail["matches_similarity"][a:b], rows["similarity"].to_numpy(np.float32))
    a, b = detail["counts_start"][at:at + 2]
    assert detail["counts_truth_count"][a:b].tolist() == frames[1].counts.query("failure == 3")["truth_count"].tolist()
    said = blocks["concepts"]
    roles = [(names[e // 4], e % 4) for e in said["entry"][said["start"][at]:said["start"][at + 1]]]
    assert [name for name, role in roles if role == 0] == frames[1].counts.query("failure == 3")["concept"].tolist()
    assert sum(role == 1 for _, role in roles) == failures["only_truth"][at] and sum(role == 2 for _, role in roles) == failures["only_retrieved"][at]


def test_pictures_of_the_page_are_those_of_the_annotations(result, page):
    held, annotations = blocks_of(page.read_text(encoding="utf-8"))["pictures-0"], result.task.annotations
    used = np.unique(_all_failures(result.models)[["truth", "retrieved"]].to_numpy())
    assert held["ids"] == [annotations.ids[p] for p in used]
    bounds = annotations.bounds()
    rows = slice(bounds[used[5]], bounds[used[5] + 1])
    mine = slice(held["object_start"][5], held["object_start"][6])
    assert [held["names"][k] for k in held["object_name"][mine]] == [annotations.objects.names[k] for k in annotations.objects.name[rows]]
    assert np.abs(held["box"].reshape(-1, 4)[mine] - annotations.objects.box[rows]).max() <= 0.5
    assert (held["object_concept"][mine].astype(int) - 1).tolist() == result.concepts.of_object[rows].tolist()


def test_everything_else_is_split_into_blocks(monkeypatch, result):
    whole = blocks_of(render_ranking(result))
    monkeypatch.setitem(_PER_BLOCK, "failures", 7)
    monkeypatch.setitem(_PER_BLOCK, "pictures", 4)
    split = blocks_of(render_ranking(result))
    assert np.concatenate([split[f"failures-{k}"]["matches_similarity"] for k in range(len(split)) if f"failures-{k}" in split]).tolist() == whole["failures-0"]["matches_similarity"].tolist()
    assert sum((split[f"pictures-{k}"]["ids"] for k in range(len(split)) if f"pictures-{k}" in split), []) == whole["pictures-0"]["ids"]


def test_no_model_fails_and_no_page_breaks(tmp_path):
    text = render_ranking(drawn_ranking(drawn_annotations(12), {"perfect": 1.1}), tmp_path)
    assert "No query failed" in text and 'id="finder"' not in text and "perfect puts the right picture first for 100\u00a0% of 12 queries." in text


def test_frames_become_tables(result):
    text = render_ranking(result)
    assert "minilm puts the right picture first for" in re.search("<h1>(.*?)</h1>", text)[1]
    for word in ("Differences on the same queries", "Rules", "Findings in the data", "violations against edits that keep the meaning", "0.400 – 0.500", "-0.100<small>-0.150 – -0.0500</small>", "a &lt;b&gt;", "a note &lt;of&gt; the run", "antonym: 45\u00a0% against 12\u00a0% after synonym, +33 points [28, 38]."): assert word in text
    assert "cannot be judged" in text.split("</header>")[1] and "cannot be judged" not in text.split("</header>")[0]
    assert "invariant-metrics rank --data drawn --models tfidf,minilm" in text and "<dt>CA</dt>" in text and "<dt>sentinel</dt>" not in text


def test_pictures_are_referred_to_embedded_or_left_out(tmp_path):
    photo = tmp_path/"ph otos"/"http:#?%.png"
    photo.parent.mkdir()
    Image.new("RGB", (640, 320), "teal").save(photo)
    (tmp_path/"broken.jpg").write_bytes(b"no picture")
    paths = [str(photo), "", str(tmp_path/"gone.png"), str(tmp_path/"broken.jpg")]
    sources, notes = _picture_sources(paths, tmp_path/"run")
    assert sources == ["../ph%20otos/http%3A%23%3F%25.png", "", "", "../broken.jpg"] and "1 of 4 pictures" in notes[0]
    small, notes = _picture_sources(paths, tmp_path/"run", "thumbnails")
    assert small[0].startswith("data:image/jpeg;base64,") and small[1:] == ["", "", ""] and "1 of 4 pictures have no thumbnail" in notes[1]
    assert _picture_sources(paths, tmp_path/"run", "none") == ([""] * 4, [])
    with pytest.raises(InputError, match="thumbnails"): _picture_sources(paths, tmp_path, "inline")


def rows(b): return b.script("return [...document.querySelectorAll('#rows a')].map(a => Number(a.id.slice(4)) - 1)")
def type_in(b, id, text): b.script(f"const e = document.getElementById('{id}'); e.focus(); e.value = {json.dumps(text)}; e.dispatchEvent(new Event('input', {{ bubbles: true }}))")
def choose(b, id, value): b.script(f"const e = document.getElementById('{id}'); e.value = '{value}'; e.dispatchEvent(new Event('change', {{ bubbles: true }}))")


def key(b, name):
    for kind in ("keyDown", "keyUp"):
        extra = {"text": "\r"} if name == "Enter" and kind == "keyDown" else {"text": name} if len(name) == 1 and kind == "keyDown" else {}
        b.cdp("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode={"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38}.get(name, ord(name[0].upper())), **extra)


def until(b, condition):
    "Waits for the page to have done what was asked."
    for _ in range(200):
        if b.script(f"return Boolean({condition})"): return
        time.sleep(0.02)
    raise AssertionError(f"never: {condition}")


def opened(b, f): until(b, f"document.querySelector('#opened h3') && location.hash === '#failure-{f + 1}' && document.querySelector('#opened [href=\"#failure-{f + 1}\"]')")


def severe(b): return [entry for entry in b.console() if entry["level"] in ("SEVERE", "WARNING")]


def test_a_browser_filters_and_sorts(result, page):
    failures = _all_failures(result.models)
    with browser(page) as b:
        b.view(1280)
        until(b, "document.querySelectorAll('#rows a').length")
        of = failures[failures["model"] == 1]  # minilm is the better one and is shown first
        assert rows(b) == of.sort_values("rank", ascending=False, kind="stable").index[:25].tolist()
        assert b.script("return document.getElementById('found').textContent") == f"{len(of)} failures "
        for name, rising in (("ca", True), ("ncs", True), ("ce", False), ("sd", False)):
            choose(b, "sort", name)
            assert rows(b) == of.sort_values(name, ascending=rising, kind="stable", na_position="last").index[:25].tolist(), name
        b.script("document.getElementById('turn').click()")
        assert rows(b) == of.sort_values("sd", kind="stable", na_position="last").index[:25].tolist()
        choose(b, "sort", "rank")
        b.script("document.querySelectorAll('#kinds button')[0].click(); document.querySelectorAll('#kinds button')[1].click()")
        both = of[of["object"] & of["count"]].sort_values("rank", ascending=False, kind="stable")
        assert len(both) and rows(b) == both.index.tolist() and b.script("return document.querySelector('#kinds button').getAttribute('aria-pressed')") == "true"
        b.script("document.querySelector('#found button').click()")
        choose(b, "model", "-1")
        type_in(b, "words", "NUMBER picture 1")
        wanted = [f for f in failures.sort_values("rank", ascending=False, kind="stable").index if "1" in result.task.queries[failures["query"][f]][0]]
        assert rows(b) == wanted[:25]
        type_in(b, "words", "no such words")
        assert rows(b) == [] and "No failure fits" in b.script("return document.getElementById('found').textContent")
        b.script("document.querySelector('#found button').click()")
        type_in(b, "concept", "w2")
        until(b, "!document.getElementById('offers').hidden && document.querySelector('#offers [data-concept]')")
        key(b, "ArrowDown")
        assert b.script("return document.activeElement.getAttribute('aria-activedescendant')") == "offer-0"
        key(b, "Enter")
        name = b.script("return document.getElementById('concept').value")
        assert name == "w2.n.01"
        choose(b, "role", "1")
        objects, start, held = result.concepts, result.concepts.start, result.concepts.concept
        has = lambda p: 2 in held[start[p]:start[p + 1]]
        missing = failures[[has(t) and not has(r) for t, r in zip(failures["truth"], failures["retrieved"])]]
        assert sorted(b.script("return [...Array(1)].map(() => document.getElementById('found').textContent)")) == [f"{len(missing)} of {len(failures)} failures Clear all filters"]
        assert set(rows(b)) <= set(missing.index) and len(rows(b)) == min(25, len(missing))
        assert severe(b) == []


def test_a_browser_opens_by_keyboard_link_and_history(result, page):
    failures = _all_failures(result.models)
    order = failures[failures["model"] == 1].sort_values("rank", ascending=False, kind="stable").index.tolist()
    with browser(page) as b:
        b.view(1280)
        until(b, "document.querySelector('#glance h3')")  # the first of the list stands beside it, and nothing else has happened
        assert b.script("return document.querySelector('#glance h3').textContent") == result.task.queries[failures.loc[order[0], "query"]][0]
        assert b.script("return [location.hash, document.activeElement.tagName, document.querySelectorAll('#rows [aria-current]').length]") == ["", "BODY", 0]
        b.script("document.querySelector('#glance button.tag').click()")
        assert b.script("return document.querySelectorAll('#glance .box.strong').length > 0 && document.getElementById('opened').hidden")
        choose(b, "sort", "ca")
        first = failures.loc[failures[failures["model"] == 1].sort_values("ca", kind="stable", na_position="last").index[0], "query"]
        until(b, f"document.querySelector('#glance h3').textContent === {json.dumps(result.task.queries[first][0])}")
        b.view(800)
        until(b, "document.getElementById('glance').hidden")
        b.view(1280)
        choose(b, "sort", "rank")
        key(b, "j")
        assert b.script("return document.activeElement.id") == f"row-{order[0] + 1}"
        assert b.script("return getComputedStyle(document.activeElement).outlineStyle") != "none"
        key(b, "j"), key(b, "ArrowDown"), key(b, "k")
        assert b.script("return document.activeElement.id") == f"row-{order[1] + 1}"
        key(b, "Enter")
        opened(b, order[1])
        assert b.script("return document.getElementById('glance').hidden && document.getElementById('glance').childElementCount === 0")
        row, minilm = failures.loc[order[1]], result.models[1].explanations
        text = b.script("return document.getElementById('opened').innerText")
        query = result.task.queries[row["query"]][0]
        assert query in text and f"Rank of the truth: {row['rank']:,}" in text and result.task.annotations.ids[row["retrieved"]] in text and "two dogs; red ball" in text
        assert "missing in the retrieved picture" in text and "[object" not in text and "undefined" not in text
        assert f"{row['common']} of {row['common'] + row['only_truth']} concepts" in text
        assert b.script("return document.activeElement.tagName") == "H3" and b.script("return document.querySelector('#rows [aria-current]').id") == f"row-{order[1] + 1}"
        k = order[1] - (failures["model"] == 0).sum()
        shown = b.script("return [...document.querySelectorAll('#opened table')].map(t => [t.caption.textContent, t.tBodies[0].rows.length])")
        assert ["Pairs of concepts that stand in for one another", (minilm.matches["failure"] == k).sum()] in shown
        boxes = b.script("return [...document.querySelectorAll('.two svg')].map(s => s.querySelectorAll('.box').length)")
        assert boxes == [int((result.task.annotations.objects.image == row[side]).sum()) for side in ("truth", "retrieved")]
        assert b.script("return document.querySelectorAll('.two svg')[0].querySelectorAll('.box.both').length > 0 || " + str(row["common"] == 0).lower())
        b.script("document.querySelector('#opened button.tag').click()")
        assert b.script("const c = document.querySelector('#opened button.tag').dataset.concept; return [...document.querySelectorAll('.box.strong')].every(e => e.dataset.concept === c) && document.querySelectorAll('.box.strong').length > 0")
        key(b, "j")
        opened(b, order[2])
        key(b, "Escape")
        until(b, "document.getElementById('opened').hidden")
        assert b.script("return [location.hash, document.activeElement.id]") == ["#failures", f"row-{order[2] + 1}"]
        b.script("history.back()")
        opened(b, order[2])
        b.script("location.hash = '#failure-1'")
        opened(b, 0)  # of the other model: a link leads there whatever the filters say
        b.script("location.hash = '#failure-99999'")
        until(b, "document.getElementById('opened').innerText.includes('There is no failure 99999')")
        assert severe(b) == []


def test_a_browser_shows_it_dark_small_and_from_a_link_without_a_network(result, tmp_path):
    photo = tmp_path/"photo <b>.png"
    Image.new("RGB", (320, 240), "teal").save(photo)
    annotations = replace(result.task.annotations, pictures=(str(photo),) * 60)
    path = write_ranking_page(SimpleNamespace(**{**vars(result), "task": SimpleNamespace(annotations=annotations, queries=result.task.queries)}), tmp_path/"run")
    with browser(path) as b:
        b.view(390)
        b.cdp("Network.enable")
        b.heard.clear()
        b.script("location.hash = '#failure-4'")
        b.cdp("Page.reload")
        b.wait("Page.loadEventFired")
        opened(b, 3)
        until(b, "[...document.querySelectorAll('.two image')].length === 2")
        assert b.script("return document.documentElement.scrollWidth") <= 390
        assert b.script("return getComputedStyle(document.getElementById('listed')).display") == "none"  # the list gives way on a phone
        b.script("document.querySelectorAll('details').forEach(e => e.open = true); document.querySelector('#opened button').click()")
        until(b, "document.getElementById('opened').hidden")
        assert b.script("return document.documentElement.scrollWidth") <= 390
        grounds = []
        for dark in (False, True):
            b.view(1280, dark)
            grounds.append(b.script("return getComputedStyle(document.body).backgroundColor"))
            assert b.script("return document.documentElement.scrollWidth") <= 1280
        assert grounds[0] != grounds[1]
        assert b.script("const ids = [...document.querySelectorAll('[id]')].map(e => e.id); return ids.length - new Set(ids).size") == 0
        asked = {said["params"]["request"]["url"].split(":")[0] for said in b.heard if said.get("method") == "Network.requestWillBeSent"}
        assert asked <= {"file", "data"} and "file" in asked
        assert severe(b) == []


def test_hostile_texts_are_shown_as_texts(tmp_path):
    captions = tuple((HOSTILE[k % len(HOSTILE)], HOSTILE[(k + 1) % len(HOSTILE)]) for k in range(20))
    made = drawn_annotations(20, captions=captions)
    marked = replace(made.objects, names=tuple(f"{HOSTILE[k % 6]} {k}" for k in range(60)), synsets=tuple(f"{HOSTILE[k % 6]}.{k}" for k in range(60)))
    annotations = replace(made, objects=marked, ids=tuple(f"{HOSTILE[k % len(HOSTILE)]} {k}" for k in range(20)))
    hostile = drawn_ranking(annotations, {HOSTILE[0]: 0.1, HOSTILE[1]: 0.2})
    for model in hostile.models: model.classes["missing"] = HOSTILE[0]
    path = write_ranking_page(hostile, tmp_path)
    text = path.read_text(encoding="utf-8")
    assert len(re.findall(r"<script(?! type=\"application/octet-stream\")", text)) == 2 and "<img src=x" not in text
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
    assert policy.count("sha256-") == 2 and "unsafe-eval" not in policy and "http" not in policy
    with browser(path) as b:
        b.view(1280)
        until(b, "document.querySelectorAll('#rows a').length")
        shown = b.script("return [...document.querySelectorAll('#rows .said')].map(e => e.textContent)")
        for wanted in HOSTILE[:6] + HOSTILE[7:8]: assert any(wanted in said for said in shown) or len(shown) < 15, wanted
        for f in (0, 1, 2, 3, 4):
            b.script(f"location.hash = '#failure-{f + 1}'")
            opened(b, f)
        assert HOSTILE[0] in b.script("return document.getElementById('opened').textContent")
        type_in(b, "concept", "script")
        until(b, "document.querySelector('#offers [data-concept]')")
        assert b.script("return [window.hurt === undefined, document.querySelectorAll('#failures img, #failures script').length]") == [True, 0]
        assert severe(b) == []
