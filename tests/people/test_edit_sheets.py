"Sheets of edits: hostile texts stay texts, careless readers are dropped, counts come back as they were put in, and cards say who has read."
import json
import unicodedata

import pytest

from commands import cli
from invariant_metrics.core import InputError
from invariant_metrics.data.judgment_tables import load_table
from invariant_metrics.edits.word_families import edits_of
from invariant_metrics.people.edit_sheets import _BAD, CARD, _NEITHER, _OLD, _STORED, _UNREAD, _WRONG, edit_cards, edit_readings
from invariant_metrics.people.edit_sheets import _edit_sample, edit_sheet, _edits_signature, _stored_readings
from invariant_metrics.people.labeling import collect
from invariant_metrics.people.labels import answer_sheet, label_key, read_labels, write_answers
from invariant_metrics.stats import wilson

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
THINGS = ["dog", "cat", "horse", "bus", "boat", "car", "sheep", "train"]
REFERENCES = {str(k): [f"A {thing} stands near a red wall.", f"There is one {thing} by a wall. {EVIL}" if not k else f"One {thing} by a wall."]
              for k, thing in enumerate(THINGS * 2)}
FAMILIES = ["noun-swapped", "color-replaced", "misspelling"]


def filled(place, page, readers: dict) -> None:
    "Answers of each reader: (family, how many of its edits in the key's order) -> box; the rest is right and good."
    key = label_key(page)["entries"]
    for number, (reader, (boxes, careful)) in enumerate(readers.items(), 1):
        sheet, left, said = answer_sheet(page, str(number), reader), dict(boxes), {}
        for code in sorted(set(sheet["item"])):
            family = key[code]["system"]
            if family == "check": said[code] = _WRONG if careful else _NEITHER
            elif left.get(family, (0, ""))[0]: said[code], left[family] = left[family][1], (left[family][0] - 1, left[family][1])
            else: said[code] = _NEITHER
        write_answers(sheet.assign(answer=[str(int(said[c] == a)) for c, a in zip(sheet["item"], sheet["aspect"])], seconds=3.0), place/f"{number}.csv")


def test_a_sheet_is_a_page_that_holds_texts_as_texts(tmp_path):
    "Nothing is loaded or run; each edit stands there with its base and its claim, and the key names family, kind and what the edits are made of."
    page = edit_sheet("captioning", REFERENCES, tmp_path/"page.html", families=FAMILIES, sample=8, evaluators=2, seed=2)
    html, key = page.path.read_text(), label_key(page.path)
    assert EVIL not in html and "default-src &#39;none&#39;" in html
    drawn = _edit_sample("captioning", REFERENCES, families=FAMILIES, sample=8, seed=2)
    shown = {(e["system"], e["texts"]["source"], e["texts"]["output"]) for e in key["entries"].values() if e["system"] != "check"}
    assert shown == {(r.family, r.base, r.edited) for r in drawn.itertuples()} and any(EVIL in base for _, base, _ in shown)
    assert key["edits"] == {"task": "captioning", "signature": _edits_signature(), "kinds": {"noun-swapped": "violation", "color-replaced": "violation", "misspelling": "form"}}
    assert all(e["references"] for e in key["entries"].values()) and page.counts["tutorial"] == 2 and page.counts["attention"] == 4


def test_counts_come_back_and_careless_readers_do_not(tmp_path):
    page = edit_sheet("captioning", REFERENCES, tmp_path/"page.html", families=FAMILIES, sample=6, evaluators=3)
    careful = {"noun-swapped": (3, _WRONG), "misspelling": (6, _BAD)}
    filled(tmp_path, page.path, {"Ada": (careful, True), "Ben": ({**careful, "noun-swapped": (1, _WRONG)}, True), "Tim": ({"color-replaced": (6, _WRONG)}, False)})
    found, notes = edit_readings(tmp_path, page.path, tmp_path/"kept")
    by = found.set_index("family")
    assert by["wrong"].to_dict() == pytest.approx({"noun-swapped": 2/6, "color-replaced": 0, "misspelling": 0}) # three by Ada, one by Ben
    assert by.loc["misspelling", ["edits", "readers", "bad"]].tolist() == [6, 2, 1] and any("dropped Tim" in note for note in notes)
    assert by.loc["noun-swapped", ["wrong_low", "wrong_high"]].tolist() == pytest.approx(wilson(2/6, 6)[1:])
    assert _stored_readings(tmp_path/"kept")["wrong"].tolist() == pytest.approx(found["wrong"].tolist(), abs=1e-4)


def test_cards_say_who_has_read_and_whether_the_edits_are_still_those(tmp_path):
    assert tuple(_stored_readings().columns) == CARD # those of the package
    assert set(edit_cards("captioning")["family"]) == set(edits_of("captioning"))
    row = dict(zip(CARD, ["negation", "captioning", "violation", 60, 2, 0.05, 0.02, 0.14, 0, 0, 0.06, _edits_signature()]))
    for signature, told in ((row["signature"], "60 edits, read by 2"), ("older", f"60 edits, read by 2; {_OLD}")):
        (tmp_path/_STORED).write_text(",".join(CARD) + "\n" + ",".join(str(v) for v in {**row, "signature": signature}.values()) + "\n")
        cards = edit_cards("captioning", tmp_path).set_index("family")
        assert cards.loc["negation", ["wrong_labels", "bad_english", "read"]].tolist() == ["5 % (2–14)", "0 % (0–6)", told]
        assert cards.loc["noun-swapped", ["wrong_labels", "read"]].tolist() == ["", _UNREAD]
        assert edit_cards("translation", tmp_path)["read"].eq(_UNREAD).all()
    (tmp_path/_STORED).write_text("family,share\nnegation,1\n")
    with pytest.raises(InputError, match="no table of readings"): edit_cards("captioning", tmp_path)


def test_the_command_writes_a_sheet_and_reads_it_back(tmp_path):
    (tmp_path/"refs.json").write_text(json.dumps(REFERENCES))
    made = cli("probe", "edits", "captioning", "--target", "refs.json", "--families", ",".join(FAMILIES), "--sample", 6, "--evaluators", 1, "--out", "page.html", "--json", cwd=tmp_path)
    assert made.returncode == 0 and json.loads(made.stdout)["result"]["counts"]["main"] == 18, made.stderr
    (tmp_path/"answers").mkdir()
    filled(tmp_path/"answers", tmp_path/"page.html", {"Ada": ({"color-replaced": (3, _WRONG)}, True)})
    read = cli("probe", "edits", "captioning", "--answers", "answers/", "--page", "page.html", "--out", "kept", "--json", cwd=tmp_path)
    rows = {row["family"]: row for row in json.loads(read.stdout)["result"]["families"]}
    assert rows["color-replaced"]["wrong"] == 0.5 and rows["noun-swapped"]["wrong"] == 0 and rows["misspelling"]["edits"] == 6
    listed = cli("probe", "edits", "captioning", "--readings", "kept", cwd=tmp_path)
    assert listed.returncode == 0 and "50 %" in listed.stdout and _UNREAD in listed.stdout
    for words, says in ((["--answers", "answers/", "--target", "refs.json"], "give one of them"), (["--target", "refs.json"], "name it page.html"),
                        (["--out", "x.html"], "--target (a sheet) or --answers"), (["--families", "negation"], "give --target as well")):
        done = cli("probe", "edits", "captioning", *words, cwd=tmp_path)
        assert done.returncode == 2 and says in done.stderr, done.stderr


def test_answers_to_another_page_are_refused(tmp_path):
    page = collect([dict(item=str(k), output=f"text {k}") for k in range(4)], "failures", tmp_path/"page.html", evaluators=1, tutorial=0)
    sheet = answer_sheet(page.path, "1", "Ada")
    write_answers(sheet.assign(answer=[int(a.startswith("none")) for a in sheet["aspect"]], seconds=3.0), tmp_path/"1.csv")
    assert len(read_labels(tmp_path/"1.csv", page.path).frame)
    with pytest.raises(InputError, match="no sheet of edits"): edit_readings(tmp_path/"1.csv", page.path)


@pytest.mark.parametrize("written", [lambda n: n, lambda n: f" {n} ", lambda n: unicodedata.normalize("NFD", n)])
def test_sources_are_found_whatever_the_spelling_of_their_ids(written):
    "Blanks and Unicode forms, as the door of texts matches them: each reference keeps its own source."
    names = [f"Caf\u00e9 {k}" for k in range(len(THINGS))]
    refs = [{"id": name, "reference": f"A {thing} stands near a red wall."} for name, thing in zip(names, THINGS)]
    sources = [{"id": written(name), "source": f"Ein {thing} vor der Wand {k}."} for k, (name, thing) in enumerate(zip(names, THINGS))]
    rows = _edit_sample("translation", refs, sources[::-1], families=["negation"], sample=8)
    assert set(rows["item"]) <= set(names) and len(rows) and len(set(rows["base"])) == len(rows)
    assert written(names[0]).strip() == names[0] or any("Unicode form" in note for note in rows.attrs["notes"])


def test_ids_with_leading_zeros_are_the_same_numbers():
    refs = [{"id": str(k), "reference": f"A {thing} stands near a red wall."} for k, thing in enumerate(THINGS)]
    sources = [{"id": f"{k:04d}", "source": f"Ein {thing}."} for k, thing in enumerate(THINGS)]
    rows = _edit_sample("translation", refs, sources, families=["negation"], sample=8)
    assert set(rows["item"]) <= {str(k) for k in range(8)} and any("matched by number" in note for note in rows.attrs["notes"])


def test_ids_in_another_case_are_two_ids_and_refused_in_a_line(tmp_path):
    "Names of people's files differ in case and mean two things, here as at the door of texts."
    refs = [{"id": f"doc{'abcdefgh'[k]}", "reference": f"A {thing} stands near a red wall."} for k, thing in enumerate(THINGS)]
    sources = [{"id": row["id"].upper(), "source": "Ein Hund."} for row in refs]
    with pytest.raises(InputError, match="no id is on both sides: target has doca, .*source has DOCA") as refused:
        edit_sheet("translation", refs, tmp_path/"page.html", source=sources)
    assert "\n" not in str(refused.value) and not (tmp_path/"page.html").exists()
    sources[1:] = [{**row, "id": name["id"]} for row, name in zip(sources[1:], refs[1:])]
    with pytest.raises(InputError, match="1 references have no source: doca"): _edit_sample("translation", refs, sources)


def test_a_sheet_of_texts_under_other_names(tmp_path):
    rows = [{"nr": f"s{k}", "deutsch": "Ein Hund.", "english": f"A {thing} stands near a red wall."} for k, thing in enumerate(THINGS)]
    (tmp_path/"pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["probe", "edits", "translation", "--target", "pairs.jsonl", "--source", "pairs.jsonl", "--families", "negation", "--sample", 4, "--evaluators", 1, "--out", "page.html"]
    assert "name it: --field target=NAME" in cli(*words, cwd=tmp_path).stderr
    done = cli(*words, "--field", "target=english", "--field", "source=deutsch", "--id", "nr", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "give --target as well" in cli("probe", "edits", "translation", "--id", "nr", cwd=tmp_path).stderr


SPELLINGS = {"blanks": lambda cell: f" {cell} ", "capitals": str.upper, "two signs": lambda cell: unicodedata.normalize("NFD", cell)}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_answers_that_a_spreadsheet_has_spelled_otherwise_are_the_same_answers(tmp_path, spelling):
    page = edit_sheet("captioning", REFERENCES, tmp_path/"page.html", families=FAMILIES, sample=4, evaluators=2)
    filled(tmp_path, page.path, {"Ad\u00e8le": ({"misspelling": (2, _BAD)}, True)})
    before = edit_readings(tmp_path/"1.csv", page.path)[0]
    sheet = load_table(tmp_path/"1.csv")
    column = "rater" if spelling == "two signs" else "item"
    sheet[column] = sheet[column].map(SPELLINGS[spelling])
    sheet.to_csv(tmp_path/"1.csv", index=False)
    assert edit_readings(tmp_path/"1.csv", page.path)[0].equals(before)
    assert read_labels(tmp_path/"1.csv", page.path).raters["rater"].tolist() == ["Ad\u00e8le"]


def test_a_code_without_its_zeros_is_refused_in_a_line(tmp_path):
    page = edit_sheet("captioning", REFERENCES, tmp_path/"page.html", families=FAMILIES, sample=4, evaluators=2)
    filled(tmp_path, page.path, {"Ada": ({}, True)})
    sheet = load_table(tmp_path/"1.csv")
    sheet["item"] = sheet["item"].str.replace("q0*", "q", regex=True)
    sheet.to_csv(tmp_path/"1.csv", index=False)
    with pytest.raises(InputError, match=r"1.csv: q\d+ \(Ada, evaluator 1\) is not in the page for this evaluator \(\d+ rows like this\)"):
        edit_readings(tmp_path/"1.csv", page.path)
