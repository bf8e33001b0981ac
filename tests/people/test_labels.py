"What raters' answers become: tables that `agree` reads, outputs that were judged, notes that name who was dropped; bad cells are refused in one line."
import json

import pandas as pd
import pytest

from invariant_metrics.core import InputError
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.people.human import agree
from invariant_metrics.people.labeling import collect, _label_entries
from invariant_metrics.data.judgment_tables import safe_cell
from invariant_metrics.people.labels import answer_sheet, judgment_table, label_choices, label_judgments
from invariant_metrics.people.labels import read_labels, write_answers

PLACES = ["beach", "street", "lawn", "wall", "river", "hill"]
ROWS = [dict(item=f"i{i}", system=s, output=f"a dog near the {p}" if s == "A" else f"dog {p} {p}", references=[f"a dog is near the {p}"])
        for i, p in enumerate(PLACES) for s in "AB"]


def answers(folder, task, aspects=None, raters=("=Ada", "Ben"), each=6, seconds=3.0, rows=ROWS, **options):
    "A page, a plan for each rater, and what they said of it: A is better, and the second rater is kinder."
    page = collect(rows, task, folder/"page.html", aspects=aspects, evaluators=len(raters), per_evaluator=each, tutorial=0, **options)
    key, out = json.loads(page.key.read_text()), folder/"answers"
    out.mkdir()
    for k, rater in enumerate(raters):
        sheet = answer_sheet(page.path, str(k + 1), rater)
        good = [key["entries"][c]["system"] == "A" or key["entries"][c]["first_system"] == "A" for c in sheet["item"]]
        said = {"likert": [str(3 + k if g else 1 + k) for g in good], "choice": ["first"] * len(sheet), "failures": ["0" if g else "1" for g in good]}[task]
        write_answers(sheet.assign(answer=said, seconds=seconds if isinstance(seconds, float) else seconds[k]), out/f"{k}.csv")
    return page, out


def test_the_table_for_agree_is_read_back(tmp_path):
    "One aspect at a time; a name that a spreadsheet would run is quoted in the file; scores and groups are those of the labels."
    page, out = answers(tmp_path, "likert", ["fluency", "truth"])
    labels = read_labels(out, page.path)
    with pytest.raises(InputError, match="2 aspects were rated: fluency, truth") as error: judgment_table(labels)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="did you mean truth"): judgment_table(labels, "trut")
    judgment_table(labels, "truth").to_csv(tmp_path/"table.csv", index=False)
    assert "'=Ada" in (tmp_path/"table.csv").read_text()
    found, wanted = load_judgments(tmp_path/"table.csv").scores, label_judgments(labels, "truth").scores
    assert found.equals(wanted) and set(wanted["rater"]) == {"=Ada", "Ben"}


def test_no_cell_of_the_table_is_a_formula_and_metrics_still_find_their_items(tmp_path):
    "Items, systems and inputs come from the asker's own table, and are quoted as raters are."
    nasty = ["=HYPERLINK(1)", "'=1+1", "-5", "@x", "\tplain", "+2"]
    rows = [dict(item=i, system=s, input=f"={i}", output=f"{s} {k}") for k, i in enumerate(nasty) for s in ("+A", "B")]
    page, out = answers(tmp_path, "likert", ["good"], each=6, rows=rows, raters=("=Ada", "Ben", "Eva", "Tim"))
    labels = read_labels(out, page.path)
    table = judgment_table(labels)
    assert not [v for c in ("item", "system", "rater", "group") for v in table[c] if v[:1] in "=+-@\t"]
    table.to_csv(tmp_path/"table.csv", index=False)
    found, wanted = load_judgments(tmp_path/"table.csv"), label_judgments(labels)
    assert found.scores.equals(wanted.scores) and set(found.scores["item"]) == set(nasty)
    scores = wanted.scores.drop_duplicates(["item", "system"])[["item", "system"]].assign(m=range(12))
    scores.assign(item=scores["item"].map(safe_cell), system=scores["system"].map(safe_cell)).to_csv(tmp_path/"scores.csv", index=False)
    options = dict(statistics=["pearson"], reps=20)
    assert agree(found, tmp_path/"scores.csv", **options).table["value"][0] == agree(wanted, scores, **options).table["value"][0]


def test_choices_have_no_table_of_scores(tmp_path):
    page, out = answers(tmp_path, "choice")
    with pytest.raises(InputError, match="choices have no table .* give `agree` the answers"): judgment_table(read_labels(out, page.path))


def test_an_equal_answer_is_half_a_vote_in_agree_and_refused_where_it_was_not_offered(tmp_path):
    "Half of the raters take the first, half say equal: three quarters; scores by the names of systems find their pairs."
    for name, equal in (("with", True), ("without", False)):
        (tmp_path/name).mkdir()
        page, out = answers(tmp_path/name, "choice", equal=equal)
        sheet = answer_sheet(page.path, "2", "Ben")
        write_answers(sheet.assign(answer="equal", seconds=3.0), out/"1.csv")
        if not equal:
            with pytest.raises(InputError, match="has an answer that is not one of first, second"): read_labels(out, page.path)
            continue
        choices = label_choices(read_labels(out, page.path))
        assert choices.table["votes_first"].tolist() == [1.5] * 6 and choices.table["ties"].tolist() == [1] * 6
        scores = pd.DataFrame([dict(item=r["item"], system=r["system"], good=float(r["system"] == "A")) for r in ROWS])
        found = agree(choices, scores, statistics=["two_afc"], unit="choice", reps=20)
        assert found.table["value"].tolist() == [0.75] and "6 of 12 answers are ties, half a vote for each" in found.notes


def test_ticked_classes_are_counted_in_the_table(tmp_path):
    page, out = answers(tmp_path, "failures", ["size", "color"])
    labels = read_labels(out, page.path)
    assert set(judgment_table(labels).groupby("system")["score"].first().to_dict().items()) == {("A", 0.0), ("B", 2.0)}
    assert judgment_table(labels, "size")["score"].max() == 1


@pytest.mark.parametrize("position", ["", "two", "1.5", "-1", "1e300"])
def test_a_position_that_is_none_is_refused(tmp_path, position):
    page, out = answers(tmp_path, "likert", ["good"])
    write_answers(answer_sheet(page.path, "1", "=Ada").assign(answer=3, seconds=2.0).astype({"position": str}).replace({"position": {"2": position}}), out/"0.csv")
    with pytest.raises(InputError, match=r"0\.csv: q\d+ .*has a position that is no place in a row") as error: read_labels(out, page.path)
    assert "\n" not in str(error.value)


def test_references_in_a_cell_may_be_a_list(tmp_path):
    "As in the tables of judgments: a list of JSON is many, a bracket that is none is one text, and an empty cell none."
    (tmp_path/"items.csv").write_text('item,output,references\na,x,"[""ref one"",""ref two""]"\nb,y,[sic] a text\nc,z,\n')
    entries, _ = _label_entries(tmp_path/"items.csv", "likert", ["good"])
    assert [[r["text"] for r in e["references"]] for e in entries] == [["ref one", "ref two"], ["[sic] a text"], []]
    entries, _ = _label_entries([dict(item="a", output="x", references=7), dict(item="b", output="y", references=("p", "q"))], "likert", ["good"])
    assert [[r["text"] for r in e["references"]] for e in entries] == [["7"], ["p", "q"]]


def test_outputs_that_nobody_judged_are_left_out(tmp_path):
    "Three of six inputs are seen; a metric that is run on the outputs then has nothing to say about the others."
    page, out = answers(tmp_path, "likert", ["good"], raters=("Ada", "Ben"), each=3)
    found = label_judgments(read_labels(out, page.path))
    seen = set(zip(found.scores["item"], found.scores["system"]))
    assert set(zip(found.outputs["item"], found.outputs["system"])) == seen and 0 < len(seen) < len(ROWS)
    assert len(agree(found, ["chrf"], statistics=["pearson"], reps=20).table) == 1


def test_dropped_raters_are_in_the_notes_of_the_result(tmp_path):
    "Whoever reads a saved result sees who was left out and why, once."
    page, out = answers(tmp_path, "likert", ["good"], raters=("Ada", "Ben", "Tim"), seconds=[3.0, 3.0, 0.1])
    labels = read_labels(out, page.path)
    why = "dropped Tim: 0.1 s for the median question, 1 s asked"
    assert labels.notes.count(why) == 1 and "\n" not in str(labels) and "dropped Tim" not in str(labels) and "Tim" in str(labels)
    found = agree(label_judgments(labels), ["chrf"], statistics=["pearson"], reps=20)
    assert found.notes.count(why) == 1
    found.save(tmp_path/"saved")
    assert why in type(found).load(tmp_path/"saved").notes
