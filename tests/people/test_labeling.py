"The labeling page in a real browser: clicks and keys, a reload, the file read back; hostile texts stay texts; the filter drops who clicks at random."
import json
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from browser import Page, browser
from commands import cli
from invariant_metrics.core import InputError, rng
from invariant_metrics.people.labeling import FAILURES, collect, _deal_questions, _label_entries
from invariant_metrics.people.labels import answer_sheet, hype, label_choices, label_judgments
from invariant_metrics.people.labels import rater_rate, read_labels, write_answers
from invariant_metrics.data.judgment_tables import plain_cell, safe_cell

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
ELEMENT, BACK, ON, ENTER, TAB = "element-6066-11e4-a52e-4f735466cecf", "\ue012", "\ue014", "\ue007", "\ue004"


class Rater:
    "A hand on an open page."
    def __init__(self, page: Page, downloads: Path): self.page, self.downloads = page, downloads

    def click(self, css: str, at: int = 0):
        found = self.page.send("POST", "/elements", {"using": "css selector", "value": css})
        self.page.send("POST", f"/element/{found[at][ELEMENT]}/click", {})

    def press(self, *keys: str):
        steps = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.page.send("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": steps}]})

    def text(self, css: str) -> str: return self.page.script(f"return document.querySelector({json.dumps(css)}).innerText")
    def there(self, css: str) -> bool: return self.page.script(f"return !document.querySelector({json.dumps(css)}).hidden")

    def open(self, place: Path, width: int = 1200, dark: bool = False) -> None:
        self.page.view(width, dark)
        self.page.send("POST", "/url", {"url": place.as_uri()})
        self.page.console()

    def begin(self, name: str, evaluator: str = ""):
        if evaluator: self.page.script(f"document.getElementById('evaluator').value = {json.dumps(evaluator)}")
        self.page.script("document.getElementById('rater').focus()")
        self.press(*name, ENTER)

    def reload(self, fragment: str = ""):
        if fragment: self.page.script(f"history.replaceState(null, '', {json.dumps(fragment)})")
        self.page.send("POST", "/refresh", {})

    def save(self) -> Path:
        before = set(self.downloads.glob("*.csv"))
        self.click("#save")
        for _ in range(100):
            if new := set(self.downloads.glob("*.csv")) - before: return new.pop()
            time.sleep(0.05)
        raise AssertionError("nothing was saved")

    def quiet(self) -> None:
        "Nothing was asked of any network, and nothing was complained about."
        loaded = self.page.script("return performance.getEntriesByType('resource').map(e => e.name)")
        assert [name for name in loaded if not name.startswith(("data:", "blob:"))] == []
        assert [entry for entry in self.page.console() if entry["level"] in ("SEVERE", "WARNING")] == []


@pytest.fixture(scope="module")
def rater(tmp_path_factory):
    "One browser for all pages of this file."
    downloads, blank = tmp_path_factory.mktemp("downloads"), tmp_path_factory.mktemp("blank")/"blank.html"
    blank.write_text("<!doctype html><title>blank</title>")
    with browser(blank) as page:
        page.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
        yield Rater(page, downloads)


def colors(folder: Path, n: int, size: int = 48) -> Path:
    "Pictures in real/ and in generated/a and generated/b."
    for k, name in enumerate(("real", "generated/a", "generated/b")):
        (folder/name).mkdir(parents=True)
        for i in range(n): Image.fromarray(rng(k, i).integers(0, 255, (size, size, 3), np.uint8)).save(folder/name/f"{i:02}.png")
    return folder


SENTENCES = [dict(item=f"s{i}", system=s, source=f"Satz {i}", output=f"sentence {i} of {s}", references=[f"reference {i}", EVIL])
             for i in range(3) for s in ("x", "y")]


# --- the page at work ---------------------------------------------------------------------------------------------------------------

def test_pictures_are_judged_by_clicks_and_keys_over_a_reload(rater, tmp_path):
    "What was clicked and pressed is what is read back, also after a reload in the middle and a step back; pictures look right at 400 and 1200 pixels."
    page = collect(colors(tmp_path/"pictures", 6), "realism", tmp_path/"page.html", evaluators=3, per_evaluator=6, tutorial=2, attention=2, seed=2)
    key = json.loads(page.key.read_text())
    codes, wanted = [*key["tutorial"], *key["evaluators"]["2"]], {}
    r, b = rater, rater.page
    r.open(page.path, 400)
    r.reload("#e=2")
    assert b.script("return document.getElementById('evaluator').value") == "2"
    r.begin("=Ada  O'Hara")
    for k, code in enumerate(codes):
        button = k % 2
        wanted[code] = ("real", "generated")[button]
        if k == 5: r.reload()
        assert r.text("#who").endswith(f"tutorial {k + 1} of 2" if k < 2 else f"{k - 1} of {len(codes) - 2}")
        if k % 3: r.press("12"[button])
        else: r.click("#answers button", button)
        if k < 2:
            assert r.there("#told") and key["entries"][code]["known"][0][0] in r.text("#told")
            r.press("12"[1 - button])                                # too late: the answer has been told
            r.press(ENTER) if k else r.click("#next")
        if k == 3:                                                  # a slip, corrected
            r.press(BACK, BACK)
            assert b.script("return document.querySelector('[aria-pressed=true]').value") == wanted[codes[2]]
            r.press("2", ON)
            wanted[codes[2]] = "generated"
        if k == 4:
            for width, dark in ((400, False), (1200, True)):
                b.view(width, dark)
                assert b.script("return document.documentElement.scrollWidth") <= width
                assert b.script("return [...document.images].every(i => i.complete && i.naturalWidth === 48 && i.width >= 300)")
            b.view(400)
    assert r.text("#thanks").startswith("Thank you") and r.there("#copy")
    file = r.save()
    assert b.script("return document.getElementById('text').value") == file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    r.quiet()
    frame = pd.read_csv(file, dtype=str, keep_default_na=False)
    assert list(frame["item"]) == codes and dict(zip(frame["item"], frame["answer"])) == wanted
    assert set(frame["rater"]) == {"'=Ada O'Hara"} and list(frame["shown"]) == ["1", "1"] + ["0"] * (len(codes) - 2)
    labels = read_labels(file, page.path, least_right=0, least_seconds=0)
    assert list(labels.raters["rater"]) == ["=Ada O'Hara"] and labels.raters["assigned"].item() == labels.raters["answered"].item() == len(codes)
    main = {c: a for c, a in wanted.items() if key["entries"][c]["part"] == "main"}
    assert dict(zip(labels.frame["code"], labels.frame["score"])) == {c: float(a == "real") for c, a in main.items()}


def shown(page: Page) -> list[dict]:
    "Of every picture: its own pixels, those of the screen, whether neighbors are mixed, and what stands below it."
    for _ in range(100): # until they are there: a picture is sized when it has been read
        if page.script("return [...document.images].every(i => i.style.width)"): break
        time.sleep(0.02)
    return page.script("""return [...document.images].map(i => { const box = i.getBoundingClientRect(); return {
        own: i.naturalWidth, width: box.width * devicePixelRatio / i.naturalWidth, height: box.height * devicePixelRatio / i.naturalHeight,
        mixed: getComputedStyle(i).imageRendering, says: i.closest('figure').querySelector('.size').innerText }; })""")


def test_pictures_are_shown_at_whole_factors_and_the_factor_is_said(rater, tmp_path):
    "Small ones enlarged without mixing pixels, middle ones 1:1, large ones shrunk by a whole number until 1:1 is asked for; pairs alike."
    folder, r = tmp_path/"pictures", rater
    for size, name in ((48, "small"), (160, "half"), (300, "middle"), (2500, "large")):
        folder.mkdir(exist_ok=True)
        Image.fromarray(rng(size).integers(0, 255, (size//2, size, 3), np.uint8)).save(folder/f"{name}.png")
    rows = [dict(item=name, output_image=str(folder/f"{name}.png"), part="main") for name in ("small", "half", "middle", "large")]
    page = collect(rows, "likert", tmp_path/"page.html", aspects=["sharp"], evaluators=1, quality=90)
    for width, ratio, expected in ((1200, 1, {48: 10, 160: 3, 300: 1, 2500: 1/3}), (400, 2, {48: 15, 160: 4, 300: 2, 2500: 1/4}), (400, 1.5, {48: 11, 160: 3, 300: 1, 2500: 1/5})):
        r.open(page.path, width)
        r.page.script("localStorage.clear()")
        r.reload()
        r.page.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=ratio, mobile=False)
        r.begin(f"{width} {ratio}")
        seen = {}
        for k in range(4):
            one, = shown(r.page)
            factor = seen[one["own"]] = expected[one["own"]]
            assert one["width"] == pytest.approx(factor, rel=2e-3) and one["height"] == pytest.approx(factor, rel=2e-3), one
            assert one["mixed"] == ("pixelated" if factor > 1 else "auto")
            says = f"each shown as {factor} × {factor}" if factor > 1 else "shown at 1:1" if factor == 1 else f"shrunk to 1/{round(1/factor)}"
            assert one["says"].startswith(f"{one['own']} × {one['own']//2} pixels, {says}")
            if factor < 1:
                r.click(".size button")
                assert shown(r.page)[0]["width"] == pytest.approx(1, rel=2e-3) and "shown at 1:1" in shown(r.page)[0]["says"]
                assert r.page.script("return document.documentElement.scrollWidth") <= width
                r.click(".size button")
                assert shown(r.page)[0]["width"] == pytest.approx(factor, rel=2e-3)
            r.press("3", ENTER)
        assert seen == expected
    r.page.cdp("Emulation.setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False)
    pair = [dict(item="both", first_image=str(folder/"small.png"), second_image=str(folder/"half.png"), first_system="a", second_system="b", part="main")]
    r.open(collect(pair, "choice", tmp_path/"pair.html", evaluators=1).path)
    r.begin("Eve")
    assert [one["width"] for one in shown(r.page)] == pytest.approx([2, 2], rel=2e-3), "two pictures of a pair have one factor"
    r.quiet()


def test_progress_moves_in_the_tutorial_and_saving_steps_back_until_the_end(rater, tmp_path):
    page, r = collect(colors(tmp_path/"pictures", 8), "realism", tmp_path/"page.html", evaluators=1, per_evaluator=8, tutorial=4, seed=3), rater
    total, each = len(json.loads(page.key.read_text())["evaluators"]["1"]), []
    r.open(page.path)
    r.begin("Ann")
    bar = lambda: r.page.script("const p = document.getElementById('progress'); return [p.value, p.max]")
    dress = lambda of: r.page.script(f"const s = getComputedStyle(document.getElementById('{of}')); return [s.backgroundColor, s.borderTopWidth]")
    assert bar() == [0, 4] and dress("save")[1] == "0px" and dress("next")[1] != "0px" and dress("save")[0] != dress("next")[0]
    for k in range(4):
        r.press("1")
        each.append(bar())
        r.press(ENTER)
    assert each == [[1, 4], [2, 4], [3, 4], [4, 4]] and bar() == [0, total]
    r.press("1")
    assert bar() == [1, total] and r.text("#save").startswith("save the answers so far")
    for _ in range(total - 1): r.press("1")
    assert r.text("#save") == "Save answers (CSV)" and dress("save")[1] != "0px"


def test_texts_are_rated_by_keys_alone_and_hostile_ones_stay_texts(rater, tmp_path):
    "Aspects, items and raters that are markup, formulas or names of the language itself come through unchanged."
    aspects = {"=SUM(1)": EVIL, "__proto__": "", EVIL: "the third"}
    rows = [dict(item=f"{EVIL}{i}", system="@x", source=f"</script>{EVIL}", output=f"=cmd {i} {EVIL}", references=[EVIL, "b"]) for i in range(3)]
    rows += [dict(item="t", output="", answer="1|2", part="tutorial", why=EVIL), dict(item="h", output="plain", answer=5)]
    page = collect(rows, "likert", tmp_path/"page.html", aspects=aspects, evaluators=1, words={"title": EVIL, "question": EVIL, "high": EVIL})
    rater.open(page.path, 400, dark=True)
    rater.begin("'-Bob")
    assert "(empty text)" in rater.text("#content") and rater.there("#work")
    rater.press("3", "2", "4", ENTER)                                    # the aspects one after the other, then the button in focus
    assert rater.text("#told").startswith("Not so.") and EVIL in rater.text("#told")
    rater.press(ENTER)
    rater.press(ENTER)
    assert rater.text("#said") == "Please answer first."
    for k in range(4):
        rater.press("1", "2", str(k + 1), ENTER)
    assert rater.text("#thanks").startswith("Thank you")
    rater.click("#again")
    assert rater.page.script("return [...document.querySelectorAll('#answers :checked')].map(e => e.value)") == ["1", "2", "4"]
    rater.press(TAB)
    assert rater.page.script("return getComputedStyle(document.activeElement.closest('label, button, summary')).outlineStyle") == "solid"
    assert rater.page.script("return document.scripts.length + document.images.length") == 2
    file = rater.save()
    rater.quiet()
    labels = read_labels(file, page.path, least_right=0, least_seconds=0)
    key = labels.key
    order = [c for c in key["evaluators"]["1"] if key["entries"][c]["part"] == "main"]
    assert list(labels.raters["rater"]) == ["'-Bob"] and set(labels.frame["aspect"]) == set(aspects)
    assert set(labels.frame["item"]) == {f"{EVIL}{i}" for i in range(3)}
    said = {c: list(g["score"]) for c, g in labels.frame.groupby("code", sort=False)}
    assert said == {c: [1, 2, key["evaluators"]["1"].index(c) + 1] for c in order}
    assert not labels.known.loc[labels.known["item"] == key["tutorial"][0], "right"].item()
    outputs = label_judgments(labels, "__proto__").outputs
    assert set(outputs["output"]) == {f"=cmd {i} {EVIL}" for i in range(3)} and outputs["references"].iloc[0] == (EVIL, "b")


def test_failures_are_ticked_and_the_last_box_stands_alone(rater, tmp_path):
    page = collect([dict(item=str(i), output=f"text {i}") for i in range(3)], "failures", tmp_path/"page.html", evaluators=1)
    rater.open(page.path)
    rater.begin("Cy")
    ticked = "return [...document.querySelectorAll('#answers :checked')].map(e => +e.dataset.aspect)"
    rater.press("2", "5")
    assert rater.page.script(ticked) == [1, 4]
    rater.press("7")
    assert rater.page.script(ticked) == [6]
    rater.click("#answers input", 2)
    assert rater.page.script(ticked) == [2]
    rater.press("3", ENTER)
    assert rater.text("#said").startswith("Please tick")
    rater.press("3", "6", ENTER, "7", ENTER, "1", ENTER)
    labels = read_labels(rater.save(), page.path, least_seconds=0)
    rater.quiet()
    wide = labels.frame.pivot(index="position", columns="aspect", values="score")[[*FAILURES, labels.key["aspects"][-1]]]
    assert wide.to_numpy().tolist() == [[0, 0, 1, 0, 0, 1, 0], [0] * 6 + [1], [1] + [0] * 6]
    judged = label_judgments(labels)
    assert not judged.higher_is_better and sorted(judged.scores["score"]) == [0, 1, 2]


def test_failures_are_rated_from_one_to_ten_below_the_boxes(rater, tmp_path):
    "Enter leads from the boxes to the rating, a digit answers it (0 for 10); neither alone is an answer; a page without a rating is as it was."
    rows = [dict(item=str(i), output=f"text {i}") for i in range(3)] + [dict(item="t", output="easy", answer="size", part="tutorial", why=EVIL)]
    page = collect(rows, "failures", tmp_path/"page.html", evaluators=1, rating=f"How well does it answer? {EVIL}")
    rater.open(page.path, 400, dark=True)
    rater.begin("Di")
    assert EVIL in rater.text("#answers") and rater.page.script("return document.documentElement.scrollWidth") <= 400
    rater.press("5", ENTER, "3")
    assert rater.page.script("return document.activeElement.id") == "next"
    rater.press(ENTER)
    assert rater.text("#told").startswith("Right. The answer is size.")            # any rating is right
    rater.press(ENTER)
    rater.page.script("document.querySelector('#answers [type=radio]').focus()")
    rater.press("1", ENTER)
    assert rater.text("#said").startswith("Please tick")                            # a rating of 1 is no tick
    rater.page.script("document.activeElement.blur()")
    rater.press("2", "6", ENTER)
    rater.reload()
    rater.press(BACK)
    assert rater.page.script("return [...document.querySelectorAll('#answers :checked')].map(e => e.value)") == ["1", "1", "1"]
    rater.press(ON, "7", ENTER)
    assert rater.text("#said").startswith("Now the rating")
    rater.press("0", ENTER, "1", ENTER, "8", ENTER)
    file = rater.save()
    rater.quiet()
    labels = read_labels(file, page.path, least_seconds=0)
    wide = labels.frame.pivot(index="position", columns="aspect", values="score")[labels.key["aspects"]]
    assert wide.to_numpy().tolist() == [[0, 1, 0, 0, 0, 1, 0, 1], [0] * 6 + [1, 10], [1] + [0] * 6 + [8]]
    rated, judged = label_judgments(labels, "rating"), label_judgments(labels)
    assert rated.higher_is_better and sorted(rated.scores["score"]) == [1, 8, 10] and sorted(judged.scores["score"]) == [0, 1, 2]
    sheet = answer_sheet(page.path, "1", "Ed")
    sheet["answer"], sheet.loc[sheet["aspect"] == "rating", "answer"] = "0", "11"
    write_answers(sheet, tmp_path/"bad.csv")
    with pytest.raises(InputError, match="no whole number from 1 to 10"): read_labels(tmp_path/"bad.csv", page.path)
    with pytest.raises(InputError, match="further question of failures"): collect(rows[:3], "likert", tmp_path/"x.html", aspects=["a"], rating="?")
    with pytest.raises(InputError, match="no class is called 'rating'"): collect(rows[:3], "failures", tmp_path/"x.html", aspects=["rating"])


def test_sides_are_random_by_rater_and_recorded(rater, tmp_path):
    "Raters who always take A have taken first and second about equally often, and what was shown on A is what is recorded."
    rows = [dict(item=f"i{i}", system=s, output=f"{s} of {i}") for i in range(12) for s in ("x", "y")]
    page, firsts, files = collect(rows, "choice", tmp_path/"page.html", evaluators=2), [], []
    for name in ("Dan", "Eve"):
        rater.open(page.path)
        if name == "Eve": rater.click("#change")
        rater.begin(name, "2")
        shown = []
        for _ in range(12):
            shown.append(rater.page.script("return document.querySelector('blockquote').textContent[0]"))
            rater.press("1")
        files.append(rater.save())
        frame = pd.read_csv(files[-1])
        assert list(frame["side_a"]) == list(frame["answer"]) == [{"x": "first", "y": "second"}[s] for s in shown]
        firsts.append(list(frame["answer"] == "first"))
    rater.quiet()
    assert firsts[0] != firsts[1] and 6 <= np.sum(firsts) <= 18
    labels = read_labels(files, page.path, least_seconds=0)
    table = label_choices(labels).table
    assert table["votes"].tolist() == [2] * 12 and table["votes_first"].sum() == np.sum(firsts)
    assert {(f, s) for f, s in zip(table["first"], table["second"])} == {(f"x of {i}", f"y of {i}") for i in range(12)}


def test_equally_good_is_half_a_vote_and_a_context_stands_above_the_two(rater, tmp_path):
    "The third button is pressed by its digit, a known answer may be it, and a hostile context stays text above both."
    rows = [dict(item=f"i{i}", system=s, output=f"{s} of {i}", context=f"caption {i} {EVIL}") for i in range(4) for s in ("x", "y")]
    rows += [dict(item="known", first="same", second="same", answer="equal", part="tutorial", why="They are the same.")]
    page, r = collect(rows, "choice", tmp_path/"page.html", evaluators=1, equal=True), rater
    assert payload(page.path)["checked"], "a tutorial has known answers"
    r.open(page.path, 400)
    assert r.there("#hidden-known")
    r.begin("Ann")
    r.press("3")
    assert r.text("#told").startswith("Right. The answer is Equally good.")
    r.press(ENTER)
    for digit in "3132":
        above = "return [...document.querySelectorAll('#content figcaption')].map(e => e.innerText)"
        assert r.page.script(above) == ["Context", "A", "B"] and EVIL in r.text("#content blockquote")
        r.press(digit)
    assert r.page.script("return document.documentElement.scrollWidth") <= 400
    file = r.save()
    r.quiet()
    found = label_choices(read_labels(file, page.path, least_seconds=0))
    assert sorted(pd.read_csv(file)["answer"])[:3] == ["equal"] * 3
    assert found.table["ties"].sum() == 2 and (found.table["votes_first"] == 0.5).sum() == 2
    assert "2 of 4 answers are ties, half a vote for each" in found.notes
    plain = collect(rows[:8], "choice", tmp_path/"plain.html", evaluators=1)
    assert not payload(plain.path)["checked"] and not payload(plain.path)["equal"]
    r.open(plain.path)
    assert not r.there("#hidden-known")
    r.begin("Ann")
    assert r.page.script("return document.querySelectorAll('#answers button').length") == 2


def test_without_storage_the_page_says_so_and_still_saves(rater, tmp_path):
    page = collect([dict(item=str(i), output=f"text {i}") for i in range(2)], "likert", tmp_path/"page.html", aspects=["good"], evaluators=1)
    refuse = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('refused', 'SecurityError'); } })"
    added = rater.page.cdp("Page.addScriptToEvaluateOnNewDocument", source=refuse)
    try:
        rater.open(page.path)
        assert rater.there("#refused") and "before you have saved" in rater.text("#refused")
        rater.begin("Fay")
        rater.press("4", ENTER)
        half = read_labels(rater.save(), page.path, least_seconds=0)
    finally: rater.page.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])
    assert half.frame["score"].tolist() == [4] and half.raters["answered"].item() == 1 and half.raters["assigned"].item() == 2
    rater.open(page.path)
    assert not rater.there("#refused")


# --- the page as a file -------------------------------------------------------------------------------------------------------------

def payload(path: Path) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)[1])


def test_nothing_comes_from_elsewhere_and_nothing_else_may_run(tmp_path):
    page = collect([dict(item=EVIL, output=f"</script>{EVIL}<!--")], "likert", tmp_path/"page.html", aspects=[EVIL], evaluators=1, words={"title": EVIL})
    html = page.path.read_text(encoding="utf-8")
    assert "http://" not in html and "https://" not in html and "@import" not in html and "url(" not in html
    assert re.findall(r"""(?:src|href)=["']([^"']*)""", html) == ["data:,"]
    assert html.count("<script") == 2 and "<img" not in html and "&lt;script&gt;alert(1)" in html
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)[1]
    assert policy.startswith("default-src &#39;none&#39;; img-src data:;") and "unsafe" not in policy and "connect-src" not in policy
    assert payload(page.path)["items"]["q0001"]["output"]["text"] == f"</script>{EVIL}<!--"


def test_the_key_of_hidden_questions_is_not_in_the_page(tmp_path):
    "Nor are names of items, of systems and of files, from which an answer could be guessed; pictures are all encoded alike."
    page = collect(colors(tmp_path/"pictures", 6), "realism", tmp_path/"page.html", evaluators=2, per_evaluator=6, tutorial=2, attention=2)
    html, data, key = page.path.read_text(), payload(page.path), json.loads(page.key.read_text())
    hidden = [c for c, e in key["entries"].items() if e["part"] == "attention"]
    assert len(hidden) == 2 and not set(hidden) & {*data["known"], *data["why"], *data["tutorial"]}
    for codes in data["evaluators"].values():
        assert set(hidden) <= set(codes) and codes[0] not in hidden
        assert sum(key["entries"][c]["real"] for c in codes) == len(codes) / 2
    assert set(map(frozenset, data["items"].values())) == {frozenset({"output"})}
    assert not any(word in json.dumps(data) for word in ("attention", "part", "system", str(tmp_path), ".png"))
    assert {uri.split(",")[0] for uri in data["images"]} == {"data:image/png;base64"}
    small = collect(tmp_path/"pictures", "realism", tmp_path/"small.html", tutorial=0, side=8, quality=80)
    assert {uri.split(",")[0] for uri in payload(small.path)["images"]} == {"data:image/jpeg;base64"}
    assert small.path.stat().st_size < page.path.stat().st_size / 3 and small.digest != page.digest


def test_same_items_same_page(tmp_path):
    pages = [collect(SENTENCES, "likert", tmp_path/f"{k}.html", aspects=["good"], seed=seed) for k, seed in enumerate((0, 0, 1))]
    assert pages[0].path.read_bytes() == pages[1].path.read_bytes() and pages[0].digest == pages[1].digest != pages[2].digest


@pytest.mark.parametrize("layout", [("real", "generated"), ("real", "a", "b"), ("real", "generated/a", "generated/b")], ids="+".join)
def test_every_layout_of_folders_that_the_help_names_is_read(tmp_path, layout):
    for name in layout:
        (tmp_path/"in"/name).mkdir(parents=True)
        for i in range(8): Image.fromarray(np.full((20, 20, 3), 9*i, np.uint8)).save(tmp_path/"in"/name/f"{i}.png")
    made = cli("agree", "collect", "in", "--task", "realism", "--out", "page.html", "--per-evaluator", 4, "--tutorial", 2, "--json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    entries = json.loads((tmp_path/"page.html.key.json").read_text())["entries"].values()
    assert {e["system"] for e in entries} == {name.rpartition("/")[2] for name in layout}
    assert all(e["real"] == (e["system"] == "real") for e in entries)
    alone = cli("agree", "collect", "in/real", "--task", "realism", "--out", "other.html", cwd=tmp_path)
    assert alone.returncode == 2 and "realism needs real items, in a folder real/ beside the others" in alone.stderr


def test_tables_in_files_are_items_too(tmp_path):
    "CSV, JSON lines and frames of one content make the same questions; pictures are found beside the table."
    frame = pd.DataFrame(SENTENCES).drop(columns="references")
    frame.to_csv(tmp_path/"items.csv", index=False)
    frame.to_json(tmp_path/"items.jsonl", orient="records", lines=True)
    same = [_label_entries(source, "likert", ["good"])[0] for source in (frame, tmp_path/"items.csv", tmp_path/"items.jsonl")]
    assert same[0] == same[1] == same[2]
    colors(tmp_path/"p", 2)
    (tmp_path/"pictures.csv").write_text("item,image\na,p/real/00.png\nb,p/real/01.png\n")
    page = collect(tmp_path/"pictures.csv", "likert", tmp_path/"page.html", aspects=["good"], evaluators=1)
    assert len(payload(page.path)["images"]) == 2


@pytest.mark.parametrize("change, message", [
    (dict(task="likerd"), "did you mean likert"), (dict(items=[]), "it is empty"), (dict(aspects=[]), "needs the aspects"), (dict(aspects=["a", "a"]), "must differ"),
    (dict(items=[dict(output="x")]), "row 1: no item"), (dict(items=[dict(item="a")]), r"row 1 \(a\): nothing to show"), (dict(items=["a"]), "expected an object"),
    (dict(items=[*SENTENCES, SENTENCES[0]]), "come twice"), (dict(items=[dict(item="a", output="x", answer=9)]), "known answer 9 is not one of 1, 2"),
    (dict(items=[dict(item="a", output="x", part="later")]), "part must be"), (dict(items=[dict(item="a", output="x", part="tutorial")]), "needs an answer"),
    (dict(items=[dict(item="a", output="x", answer=1)]), "no item is left"), (dict(words={"titel": "x"}), "did you mean title"), (dict(evaluators=0), "1 to 1000 plans"), (dict(evaluators=100_000), "1 to 1000 plans"),
    (dict(equal=True), "is an answer of choice; likert has none"),
    (dict(task="choice", items=[dict(item="a", first="x", second="y", answer="equal")], aspects=None), "'equal' is not one of first, second"),
    (dict(task="choice"), "choice has one question"), (dict(task="realism"), "realism has one question"),
    (dict(task="choice", items=SENTENCES[:1], aspects=None), "one output only"), (dict(task="realism", aspects=None), "realism needs real items"), (dict(attention=2), "drawn for realism only"),
    (dict(task="realism", items=[dict(item="a", output="x", real=1)], aspects=None), "both real and generated"), (dict(items="nowhere.csv"), "no file at nowhere.csv"),
    (dict(items=[dict(item="a", image="nowhere.png")]), "nowhere.png")])
def test_what_cannot_be_a_page_is_refused_in_one_line(tmp_path, change, message):
    with pytest.raises(InputError, match=message) as error: collect(**{"items": SENTENCES, "task": "likert", "out": tmp_path/"page.html", "aspects": ["good"], **change})
    assert "\n" not in str(error.value) and not (tmp_path/"page.html").exists()


def test_uneven_outputs_are_still_dealt_evenly():
    "Systems with different inputs: loads are equal, nobody sees an input twice, counts of items differ by one at most."
    entries = [dict(code=f"{s}{i}", input=str(i), system=s, first_system="", second_system="", real=False) for s, n in (("x", 30), ("y", 20)) for i in range(n)]
    plan = _deal_questions(entries, [str(k) for k in range(7)], 12, seed=0)
    counts = pd.Series([c for row in plan.values() for c in row]).value_counts()
    assert all(len({c[1:] for c in row}) == len(row) == 12 for row in plan.values()) and counts.max() - counts.min() <= 1 and len(counts) == 50


# --- reading back -------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    "A page of realism for twelve evaluators with tutorial and attention questions, and its key."
    items = [dict(item=f"r{i}", input=f"real/{i}", real=1, output=f"r{i}") for i in range(80)]
    items += [dict(item=f"g{i}", system=s, real=0, output=f"g{i}{s}") for i in range(40) for s in "ab"]
    page = collect(items, "realism", tmp_path_factory.mktemp("asked")/"page.html", evaluators=12, per_evaluator=40, tutorial=8, attention=16)
    return page, json.loads(page.key.read_text())


def answered(asked, evaluator: str, rater: str, skill: float, seconds: float = 4.0, seed: int = 0) -> pd.DataFrame:
    "A rater who is right with some chance, three times as often wrong on system b as on others."
    (page, key), draw = asked, rng(seed, rater)
    sheet = answer_sheet(page.path, evaluator, rater)
    right = draw.random(len(sheet)) < [1 - (1 - skill) * (3 if key["entries"][c]["system"] == "b" and key["entries"][c]["part"] == "main" and skill > 0.5 else 1) for c in sheet["item"]]
    real = np.array([key["entries"][c]["real"] for c in sheet["item"]])
    return sheet.assign(answer=np.where(right == real, "real", "generated"), seconds=draw.gamma(8, seconds / 8, len(sheet)).round(2))


def test_who_clicks_at_random_is_dropped_and_who_looks_is_kept(asked, tmp_path):
    "Of 24 honest raters (85 % right) at least 22 stay, of 24 random ones at most 6 (16 known answers, 65 % asked); all hasty ones go."
    for name, skill, seconds in (("honest", 0.85, 4), ("random", 0.5, 4), ("hasty", 0.95, 0.4)):
        write_answers(pd.concat([answered(asked, str(k % 12 + 1), f"{name}-{k}", skill, seconds) for k in range(24)]), tmp_path/f"{name}.csv")
    labels = read_labels(tmp_path, asked[0].path)
    kept = labels.raters.groupby(labels.raters["rater"].str.split("-").str[0])["kept"].mean()
    assert kept["honest"] >= 22 / 24 and kept["random"] <= 6 / 24 and kept["hasty"] == 0
    assert set(labels.frame["rater"]) == set(labels.raters.loc[labels.raters["kept"], "rater"])
    assert "16 known answers right, 65% asked" in labels.raters.loc[labels.raters["rater"].str.startswith("random") & ~labels.raters["kept"], "why"].iloc[0]
    assert labels.raters.loc[labels.raters["rater"] == "hasty-0", "why"].str.contains("s for the median question, 1 s asked").all()
    rates = hype(labels).set_index(["system", "of"])
    assert rates.loc[("b", "generated"), "error"] > rates.loc[("a", "generated"), "error"] + 0.15
    judged = label_judgments(labels).scores.groupby("system")["score"].mean()
    assert judged["a"] == rates.loc[("a", "generated"), "error"]
    assert rates.loc[("a", "both"), "error"] == pytest.approx(rates.loc[[("a", "generated"), ("a", "real")], "error"].mean())


def test_the_interval_of_a_rate_covers_over_raters():
    "Raters with error rates of mean .3 and sd .1: 95 % intervals of 8 raters hold .3 in 95 ± 3 % of 500 trials."
    hits = 0
    for k in range(500):
        draw = rng(1, "cover", k)
        wrong = draw.random((8, 25)) < draw.beta(6, 14, 8)[:, None]
        _, low, high = rater_rate([(wrong.ravel().astype(float), np.repeat(np.arange(8), 25))])
        hits += low <= 0.3 <= high
    assert 0.92 <= hits / 500 <= 0.98


def test_files_that_do_not_fit_are_refused(asked, tmp_path):
    page, key = asked
    good = answered(asked, "1", "Gil", 0.9)
    other = next(c for c in key["evaluators"]["2"] if c not in key["evaluators"]["1"])
    bad = {"of another page": good.assign(page="0" * 16), "has schema 2": good.assign(schema=2), "of another task": good.assign(task="likert"),
           "not in the page for this evaluator": good.assign(item=other), "has an aspect": good.assign(aspect="x"),
           "not one of real, generated": good.assign(answer="maybe"), "no name of a rater": good.assign(rater=""),
           "seconds that are no number": good.assign(seconds="soon"), "no column": good.drop(columns="answer")}
    for message, frame in bad.items():
        frame.to_csv(tmp_path/"bad.csv", index=False)
        with pytest.raises(InputError, match=message): read_labels(tmp_path/"bad.csv", page.path)
    write_answers(good, tmp_path/"bad.csv")
    write_answers(good.iloc[:5], tmp_path/"half.csv")
    with pytest.raises(InputError, match="no key of page"): read_labels(tmp_path)
    assert any("came twice with the same answer" in note for note in read_labels(tmp_path, page.path).notes)
    write_answers(good.iloc[:5].assign(answer="real"), tmp_path/"half.csv")
    with pytest.raises(InputError, match="in two ways, in bad.csv, half.csv"): read_labels(tmp_path, page.path)
    (tmp_path/"half.csv").unlink()
    saved = pd.read_csv(tmp_path/"bad.csv", dtype=str, keep_default_na=False)
    saved.to_csv(tmp_path/"bad.csv", sep=";", index=False, encoding="utf-8-sig")     # saved again by a spreadsheet
    assert read_labels(tmp_path, page.key).raters["answered"].item() == len(good)
    with pytest.raises(InputError, match="no rater is left: Gil"): read_labels(tmp_path, page.path, least_seconds=100)


def test_cells_come_back_equal_and_none_begins_as_a_formula():
    draw, letters = rng(0, "cells"), np.array([*"'=+-@a\t\"＝,"])
    texts = ["".join(draw.choice(letters, draw.integers(0, 6))) for _ in range(3000)]
    cells = [safe_cell(t) for t in texts]
    assert [plain_cell(c) for c in cells] == texts and len(set(cells)) == len(set(texts))
    assert not any(c and c[0] in "=+-@\t＝" for c in cells)
