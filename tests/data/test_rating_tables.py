"Tables of judgments and of metric scores as people have them: each kind is read as what it is, or refused in one line; what was left out is said."
import json

import numpy as np
import pandas as pd
import pytest
from test_judgments import fails, put

from commands import cli
from invariant_metrics.data.judgment_tables import Choices, load_table, metric_table, rating_column
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.people.human import agree


def scores(found) -> dict: return {(r.item, r.system, r.rater): r.score for r in found.scores.itertuples()}


def csv(*rows) -> str: return "\n".join(rows) + "\n"


# quoting

HEAD = "system\tdoc\tdoc_id\tseg_id\trater\tsource\ttarget\tcategory\tseverity"


def marks(*rows: tuple, head: str = HEAD) -> str: return csv(head, *("\t".join((s, "d", "1", str(i), "r", "Hund", t, c, v)) for s, i, t, c, v in rows))


DIRECT = [("A", 1, '"Yes, he said', "Style", "Minor"), ("A", 2, "plain", "Style", "Major"), ("A", 3, 'and left."', "Style", "Minor"), ("B", 1, '"Yes"', "No-error", "No-error")]


def test_marks_of_a_table_without_quoting_are_text(tmp_path):
    found = load_judgments(put(tmp_path, "mqm.tsv", marks(*DIRECT)))
    assert len(found) == 4 and found.outputs["output"].tolist() == [row[2] for row in DIRECT]
    assert scores(found)["2", "A", "r"] == -5


@pytest.mark.parametrize("quoting", [0, 1, 2])
def test_what_pandas_wrote_between_tabs_goes_on_working(tmp_path, quoting):
    texts = ['"Yes", he said', 'a\nb', "a\tb", "plain", '"all of it"']
    frame = pd.DataFrame([("A", "d", 1, i, "r", "Hund", t, "Style", "Minor") for i, t in enumerate(texts)], columns=HEAD.split("\t"))
    frame.to_csv(tmp_path/"mqm.tsv", sep="\t", index=False, quoting=quoting)
    assert load_judgments(tmp_path/"mqm.tsv").outputs["output"].tolist() == texts


@pytest.mark.parametrize("text, message", [
    ('item,text,score\n1,"He said,4\n2,She left",3\n3,plain,2\n', "line 2: a quotation mark opens a cell that ends in line 3 and holds whole rows"),
    ('item,text,score\n1,"He said,4\n2,She left,3\n', "opens a cell and does not close it"),
    ('item,text,score\n1,"He" said,4\n', "opens a cell and does not close it"),
])
def test_a_mark_that_swallows_rows_is_refused(tmp_path, text, message): assert message in fails(load_judgments, put(tmp_path, "t.csv", text))


def test_quoted_cells_over_lines_are_no_swallowed_rows(tmp_path):
    frame = load_table(put(tmp_path, "t.csv", 'item,text,score\n1,"Hello, world\nbye, now",3\n2,"a",4\n'))
    assert frame["text"].tolist() == ["Hello, world\nbye, now", "a"] and frame["score"].tolist() == ["3", "4"]


def test_blanks_between_columns_and_a_comment_in_the_heading(tmp_path):
    assert load_table(put(tmp_path, "a.tsv", "system score seg_id\nA -1.5 1\nB None 2\n")).values.tolist() == [["A", "-1.5", "1"], ["B", "None", "2"]]
    assert list(load_table(put(tmp_path, "b.tsv", "item\tscore\t# made by hand\n1\t3\n"))) == ["item", "score"]
    assert list(load_table(put(tmp_path, "c.tsv", "item\t#\n1\t3\n"))) == ["item", "#"]
    assert "line 2: 2 cells under 3 names" in fails(load_table, put(tmp_path, "d.csv", "item,system,score\n1,3\n"))


# MQM from 2020 to 2024

@pytest.mark.parametrize("names", [("doc_id", "seg_id"), ("docSegId", "globalSegId")])
@pytest.mark.parametrize("end", ["", "\tmetadata", "\tmetadata\t# Documentation: https://example.org"])
def test_mqm_of_every_year(tmp_path, names, end):
    head = HEAD.replace("doc_id", names[0]).replace("seg_id", names[1]) + end
    cell = "\t{}" if "metadata" in end else ""
    text = marks(("A", 1, "x", "Style", "Minor"), ("A", 1, "x", "Found", "HOTW-test"), ("refA", 1, "y", "No-error", "no-error"), head=head)
    text = csv(head, *(line + cell for line in text.splitlines()[1:]))
    for kind in (None, "mqm"):
        found = load_judgments(put(tmp_path, "mqm.tsv", text), kind)
        assert scores(found) == {("1", "A", "r"): -1} and found.outputs["references"].tolist() == [("y",)]
        assert found.notes == ("1 marks of HOTW-test, tests of the raters, cost nothing", "human translations left out of the systems: refA")


def test_segments_that_are_counted_in_a_document(tmp_path):
    head = HEAD.replace("doc_id", "n").replace("seg_id", "docSegId")
    text = marks(("A", 1, "x", "Style", "Minor"), head=head) + "A\te\t1\t1\tr\tHund\tz\tStyle\tMajor\n"
    assert scores(load_judgments(put(tmp_path, "mqm.tsv", text))) == {("d#1", "A", "r"): -1, ("e#1", "A", "r"): -5}
    assert "no column 'seg_id'" in fails(load_judgments, put(tmp_path, "no.tsv", marks(("A", 1, "x", "Style", "Minor"), head=HEAD.replace("seg_id", "nr"))), "mqm")


@pytest.mark.parametrize("people", [["Human-A.0", "Human-P.0"], ["refA"], ["ref"], ["reference"], ["ref.B", "human"]])
def test_human_translations_are_no_systems_and_can_be_references(tmp_path, people):
    rows = [(s, i, f"{s} {i}", "Style", "Minor") for s in ("Online-A.1", "reflect", *people) for i in (1, 2)]
    path = put(tmp_path, "mqm.tsv", marks(*rows))
    found = load_judgments(path)
    assert set(found.scores["system"]) == {"Online-A.1", "reflect"} and f"left out of the systems: {', '.join(people)}" in found.notes[0]
    assert found.outputs["references"].iloc[0] == tuple(f"{p} 1" for p in people)
    assert load_judgments(path, references=people[:1]).outputs["references"].iloc[0] == (f"{people[0]} 1",)
    assert "all its systems are human translations" in fails(load_judgments, put(tmp_path, "all.tsv", marks(*rows[4:])))
    assert set(load_judgments(path, humans=True).scores["system"]) == {"Online-A.1", "reflect", *people}


def test_a_mark_without_severity_is_left_out_and_counted(tmp_path):
    found = load_judgments(put(tmp_path, "mqm.tsv", marks(("A", 1, "x", "Style", "Minor"), ("A", 2, "x", "Style", ""))))
    assert len(found) == 1 and found.notes == ("1 of 2 rows left out: severity is blank",)


def test_scalar_quality_leaves_people_out(tmp_path):
    text = csv("system\tdoc\tdoc_id\tseg_id\trater\tsource\ttarget\tscore", 'A\td\t1\t1\tr\ts\t"Ja\t4', "Human-A.0\td\t1\t1\tr\ts\tNein\t6")
    found = load_judgments(put(tmp_path, "psqm.tsv", text))
    assert scores(found) == {("1", "A", "r"): 4} and found.outputs["references"].tolist() == [("Nein",)] and found.outputs["output"].tolist() == ['"Ja']


def test_a_file_of_human_scores_alone(tmp_path):
    found = load_judgments(put(tmp_path, "en-de.mqm.seg.score", "A\t-1\nA\tNone\nB\t-3\nB\t0\nrefA\t0\nrefA\t0\n"))
    assert scores(found) == {("1", "A", ""): -1, ("1", "B", ""): -3, ("2", "B", ""): 0} and found.notes[-1].endswith("refA")
    assert "line 1: expected a system and a score" in fails(load_judgments, put(tmp_path, "x.seg.score", "A 1 2\n"))


# collections as published

def rated(*values): return [dict.fromkeys(("coherence", "consistency", "fluency", "relevance"), v) for v in values]


def test_summeval_as_published(tmp_path):
    rows = [{"id": f"dm-{k}", "decoded": f"text {k}", "model_id": m, "references": ["a", "b"], "expert_annotations": rated(k, 5, 5), "turker_annotations": rated(1, 2)} for k in (1, 2) for m in ("M0", "M1")]
    path = put(tmp_path, "model_annotations.aligned.jsonl", rows)
    for kind in (None, "summeval"):
        found = load_judgments(path, kind)
        assert len(found) == 12 and scores(found)["dm-2", "M1", "1"] == 2 and found.outputs["references"].iloc[0] == ("a", "b") and "without" not in str(found.notes)
    assert len(load_judgments(path, raters="turker")) == 8 and "five workers" in load_judgments(path, raters="turker").scale
    assert "unknown group of raters" in fails(load_judgments, path, raters="nobody")


def test_thumb_as_published(tmp_path):
    rows = [{"SYS": s, "seg_id": "974", "set_id": 5, "hyp": f"by {s}", "image": "x.jpg", "P": p, "R": 3.0, "Fl": -0.0, "human_score": p - 1} for s, p in (("Up-Down", 4.0), ("Human", 5.0))]
    found = load_judgments(put(tmp_path, "mscoco_THumB-1.0.jsonl", rows))
    assert found.name == "thumb" and scores(found) == {("974", "Up-Down", ""): 3} and found.outputs["references"].tolist() == [("by Human",)] and "Human" in found.notes[0]
    assert scores(load_judgments(tmp_path, aspect="P", humans=True))["974", "Human", ""] == 5
    with_refs = put(tmp_path, "refs.jsonl", [{**rows[0], "refs": ["x", "y"]}])
    assert load_judgments(with_refs).outputs["references"].tolist() == [("x", "y")]


def test_xsum_true_or_not(tmp_path):
    path = put(tmp_path, "factuality_annotations_xsum_summaries.csv", csv("bbcid,system,summary,is_factual,worker_id", "7,A,one,no,wid_0", "7,A,one,yes,wid_1", "7,A,one,,wid_2", "7,Gold,two,yes,wid_0"))
    found = load_judgments(path)
    assert scores(found) == {("7", "A", "wid_0"): 0, ("7", "A", "wid_1"): 1} and found.outputs["references"].tolist() == [("two",)]
    assert found.notes == ("is_factual: words are read as no 0, yes 1", "1 of 4 rows left out: is_factual is blank", "summaries by people left out of the systems: Gold")
    head = "bbcid,system,summary,hallucination_type,hallucinated_span,hallucinated_span_start,hallucinated_span_end,worker_id"
    path = put(tmp_path, "hallucination.csv", csv(head, "7,A,one,extrinsic,one,1,3,wid_0", "7,A,one,intrinsic,o,1,1,wid_0", "7,A,one,NULL,,,,wid_1", "8,A,two,intrinsic,o,1,1,wid_0"))
    assert scores(load_judgments(path)) == {("7", "A", "wid_0"): 0, ("7", "A", "wid_1"): 1, ("8", "A", "wid_0"): 0}
    assert scores(load_judgments(path, kind=None))["7", "A", "wid_0"] == 0
    assert "hallucination_type is odd" in fails(load_judgments, put(tmp_path, "odd.csv", csv(head, "7,A,one,odd,one,1,3,wid_0")))


# ratings that are no plain numbers

@pytest.mark.parametrize("cells, expected, note", [
    (["no", "yes", "Yes "], [0, 1, 1], "words are read as no 0, yes 1"), (["TRUE", "FALSE"], [1, 0], "false 0, true 1"), ([True, False], [1, 0], "false 0"), (["nein", "ja"], [0, 1], "nein 0, ja 1"),
    (["4 - Good", "2 - Bad", "3"], [4, 2, 3], "labels"), (["4: Good", "5: Very good"], [4, 5], "labels"), (["5 (excellent)", "1 (bad)"], [5, 1], "labels"), (["Good (4)", "Bad - 2"], [4, 2], "labels"), (["3 stars", "1 star"], [3, 1], "labels"),
    (["2,5", "3"], [2.5, 3], "commas are read as points"), (["4/5", "3/5"], [4, 3], "out of 5"), (["4 out of 5", "5 out of 5"], [4, 5], "out of 5"), (["85%", "7.5 %"], [85, 7.5], "percents"),
    (['[{"rating": 2}]', '{"rating": 3}'], [2, 3], ""), ([[{"rating": 2}], {"number": 3.5}], [2, 3.5], ""), ([{"choices": ["2 - Bad"]}, {"choices": ["4 - Good"]}], [2, 4], "labels"),
    (["strongly agree", "neutral", "Disagree"], [5, 3, 2], "disagree 2, neutral 3, strongly agree 5"), (["bad", "good"], [2, 4], "bad 2, good 4"), ([" 3 ", "−1", "1e1"], [3, -1, 10], ""),
])
def test_a_rating_is_read_as_what_it_is(tmp_path, cells, expected, note):
    values, notes = rating_column(pd.DataFrame({"score": cells}), "score", "t.csv")
    assert values.tolist() == expected and (not note and not notes or note in notes[0])


@pytest.mark.parametrize("cells, message", [
    (["good", "fine"], "row 1: score is good, not a number; say what words mean: values="), (["4 - Good", "4 - Bad"], "score is 4 - Good"), (["1 - 2", "3"], "score is 1 - 2"), (["4-May", "3-May"], "score is 4-May"),
    (["1,250", "2,000"], "score is 1,250"), (["2,5", "2.5"], "row 1: score is 2,5"), (["yes", "maybe"], "score is yes"), (["yes", "1"], "score is yes"), (["4/5", "4/10"], "score is 4/5"), (["6/5", "4/5"], "score is 6/5"),
    (["85%", "85"], "row 1: score is 85%"), (["good", "excellent"], "score is good"), (["1_000"], "score is 1_000"), ([[{"rating": 2}, {"rating": 3}]], "not one answer"), ([{"rating": 2, "score": 3}], "not one answer"), (["inf", "1"], "score is inf"), (["", "-"], "blank in all rows"),
])
def test_a_rating_that_could_be_several_things_is_refused(cells, message): assert message in fails(rating_column, pd.DataFrame({"score": cells}), "score", "t.csv")


def test_blanks_are_left_out_and_counted_and_never_filled(tmp_path):
    found = load_judgments(put(tmp_path, "t.csv", csv("item,system,rater,score", "1,A,r,2", "1,A,s,", "2,A,r,n/a", "2,A,s,4", "3,A,r,-")))
    assert scores(found) == {("1", "A", "r"): 2, ("2", "A", "s"): 4} and found.notes == ("3 of 5 rows left out: score is blank",)
    assert "blank in all rows" in fails(load_judgments, put(tmp_path, "u.csv", csv("item,score", "1,", "2,NA")))


def test_words_of_ones_own(tmp_path):
    path = put(tmp_path, "t.csv", csv("item,score", "1,meh", "2,wow", "3,skip"))
    found = load_judgments(path, values={"meh": 1, "wow": 2, "skip": None})
    assert found.scores["score"].tolist() == [1, 2] and found.notes == ("score: words are read as meh 1, wow 2", "1 of 3 rows left out: score is blank")
    assert "no value was given for 'skip'" in fails(load_judgments, path, values={"meh": 1, "wow": 2})
    assert "the value of 'meh' is 'x', not a number" in fails(load_judgments, path, values={"meh": "x", "wow": 2, "skip": 1})


@pytest.mark.parametrize("metric", ["0,1", "0,157"])
def test_decimal_commas_between_semicolons(tmp_path, metric):
    found = load_judgments(put(tmp_path, "t.csv", csv("item;system;score;bleu", f"1;A;2,5;{metric}", "1;B;3;0,2", "2;A;1,250;0,3")))
    assert found.scores["score"].tolist() == [2.5, 3, 1.25] and found.metrics["value"].tolist() == [float(metric.replace(",", ".")), .2, .3]
    assert metric_table(put(tmp_path, "m.csv", csv("item;bleu", f"1;{metric}", "2;1"))).value.tolist() == [float(metric.replace(",", ".")), 1]


def test_points_of_thousands_beside_decimal_commas_are_refused(tmp_path):
    path = put(tmp_path, "t.csv", csv("item;score;bleu", "1;1.250;0,5", "2;2.500;0,5"))
    assert "score is 1.250 in a table with decimal commas, which may be thousands" in fails(load_judgments, path)
    assert "m is 1.250" in fails(metric_table, put(tmp_path, "m.csv", csv("item;m;n", "1;1.250;0,5")))
    assert load_judgments(put(tmp_path, "u.csv", csv("item;score", "1;1.250", "2;2.5"))).scores["score"].tolist() == [1.25, 2.5]


# columns

def test_columns_are_known_by_their_headings(tmp_path):
    found = load_judgments(put(tmp_path, "t.csv", csv("Question ID,Model,PROLIFIC_PID,Score (1-5),Hypothesis", "1,A,p,3,x", "1,B,p,4,y")))
    assert scores(found) == {("1", "A", "p"): 3, ("1", "B", "p"): 4} and found.outputs["output"].tolist() == ["x", "y"]
    assert found.notes == ("columns by their headings: item is Question ID, system is Model, rater is PROLIFIC_PID, score is Score (1-5), output is Hypothesis",)
    assert "seg_id, segment may each be the item" in fails(load_judgments, put(tmp_path, "u.csv", csv("seg_id,segment,score", "1,2,3")))
    assert scores(load_judgments(tmp_path/"u.csv", item="segment")) == {("2", "", ""): 3}
    assert "line 3: no item" in fails(load_judgments, put(tmp_path, "v.csv", csv("item,score", "1,2", ",3")))
    assert "a second output of 1 of A" in fails(load_judgments, put(tmp_path, "w.csv", csv("item,system,rater,score,output", "1,A,r,3,x", "1,A,s,3,y")))


@pytest.mark.parametrize("names", [("rater_1", "rater_2"), ("Annotator A", "Annotator B"), ("judge1", "judge2"), ("score_rater1", "score_rater2"), ("rating1", "rating2"), ("r1", "r2")])
def test_a_column_for_each_rater(tmp_path, names):
    path = put(tmp_path, "t.csv", csv(f"item,system,{names[0]},{names[1]},bleu", "1,A,1,3,0.1", "1,B,,5,0.2"))
    found = load_judgments(path)
    assert scores(found) == {("1", "A", names[0]): 1, ("1", "A", names[1]): 3, ("1", "B", names[1]): 5}
    assert found.notes[0] == f"a column for each rater: {', '.join(names)}" and found.notes[1] == "1 of 4 rows left out: score is blank" and found.metrics["value"].tolist() == [.1, .2]


def test_columns_that_only_the_caller_knows(tmp_path):
    path = put(tmp_path, "t.csv", csv("item,Ann,Bo", "1,1,3", "2,2,5"))
    assert "no column 'score'; it has item, Ann, Bo; say which it is" in fails(load_judgments, path)
    assert "say what they are: each=" in fails(load_judgments, path, score="Ann,Bo")
    assert scores(load_judgments(path, score="Ann,Bo", each="rater")) == {("1", "", "Ann"): 1, ("1", "", "Bo"): 3, ("2", "", "Ann"): 2, ("2", "", "Bo"): 5}
    assert scores(load_judgments(path, score=["Ann", "Bo"], each="system"))["2", "Bo", ""] == 5 and scores(load_judgments(path, score="Ann"))["2", "", ""] == 2
    assert "no column 'Al'" in fails(load_judgments, path, score="Ann,Al") and "unknown kind of column" in fails(load_judgments, path, score="Ann,Bo", each="aspect")
    assert scores(load_judgments(put(tmp_path, "s.csv", csv("item,sysA,sysB", "1,1,3"))))["1", "sysB", ""] == 3


def test_a_batch_of_mturk(tmp_path):
    head = "HITId,WorkerId,AssignmentStatus,Input.item,Answer.sysA,Answer.sysB,Answer.comment"
    path = put(tmp_path, "batch.csv", csv(head, "H,w,Approved,1,4 - Good,2 - Bad,", "H,v,Rejected,1,1 - Awful,1 - Awful,no", "G,w,Submitted,2,,2 - Bad,x"))
    for options in ({}, {"item": "Input.item", "rater": "WorkerId"}, {"score": "Answer.sys*", "each": "system"}):
        found = load_judgments(path, **options)
        assert scores(found) == {("1", "sysA", "w"): 4, ("1", "sysB", "w"): 2, ("2", "sysB", "w"): 2} or "each" in options and len(found) == 3
        assert "1 of 3 rows left out: AssignmentStatus is Rejected" in found.notes and any("score is blank" in n for n in found.notes)
    aspects = put(tmp_path, "aspects.csv", csv("WorkerId,Input.item,Answer.fluency,Answer.adequacy", "w,1,3,4"))
    assert "Answer.fluency, Answer.adequacy may each be the score" in fails(load_judgments, aspects)
    assert scores(load_judgments(aspects, score="Answer.fluency")) == {("1", "", "w"): 3}
    words = put(tmp_path, "words.csv", csv("WorkerId,Input.item,Answer.age,Answer.quality", "w,1,34,so-so", "v,1,51,so-so"))
    assert "Answer.age, Answer.quality may each be the score" in fails(load_judgments, words)
    for columns, cells in (("WorkerId,Input.text1,Input.text2", "w,x,y"), ("WorkerId,Input.item", "w,1")):
        counted = put(tmp_path, "counted.csv", csv(f"{columns},Answer.Choice1,Answer.Choice2", f"{cells},3,4"))
        assert "Answer.Choice1, Answer.Choice2 may each be the score" in fails(load_judgments, counted)
    assert "is Rejected in all rows" in fails(load_judgments, put(tmp_path, "none.csv", csv("item,AssignmentStatus,score", "1,Rejected,3")))


def test_several_answers_of_a_hit(tmp_path):
    for dash in ("", "_", "."):
        head = f"WorkerId,Input.item{dash}1,Input.item{dash}2,Answer.Choice{dash}1,Answer.Choice{dash}2"
        found = load_judgments(put(tmp_path, "hit.csv", csv(head, "w,a,b,3,4", "v,c,d,1,")))
        assert scores(found) == {("a", "", "w"): 3, ("b", "", "w"): 4, ("c", "", "v"): 1} and "each row holds 2" in found.notes[0]
    form = csv("WorkerId,Input.item,Input.system,Answer.q.1,Answer.q.2,Answer.q.3", "w,a,A,false,false,true", "v,a,A,true,false,false", "u,a,A,false,false,false")
    assert scores(load_judgments(put(tmp_path, "form.csv", form))) == {("a", "A", "w"): 3, ("a", "A", "v"): 1}
    assert "line 2: several answers in Answer.q" in fails(load_judgments, put(tmp_path, "two.csv", form.replace("false,false,true", "true,false,true")))
    held = json.dumps([{"quality": {"1": False, "2": True}}]).replace('"', '""')
    assert scores(load_judgments(put(tmp_path, "crowd.csv", csv("WorkerId,Input.item,Answer.taskAnswers", f'w,a,"{held}"')))) == {("a", "", "w"): 2}


def test_submissions_that_do_not_count(tmp_path):
    text = csv("Participant id,Status,item,rating", "p,APPROVED,1,3", "q,RETURNED,1,5", "r,TIMED-OUT,1,5", "s,AWAITING REVIEW,1,4")
    found = load_judgments(put(tmp_path, "prolific.csv", text))
    assert scores(found) == {("1", "", "p"): 3, ("1", "", "s"): 4} and found.notes[0] == "2 of 4 rows left out: Status is RETURNED, TIMED-OUT"
    text = csv("ResponseId,item,rater,score", "Response ID,Which,Who,How good", '"{""ImportId"":""_id""}",,,', "R1,1,a,4", "R2,1,b,2")
    found = load_judgments(put(tmp_path, "qualtrics.csv", text))
    assert scores(found) == {("1", "", "a"): 4, ("1", "", "b"): 2} and found.notes == ("2 rows of headings left out",)


def test_label_studio(tmp_path):
    def task(item, system, *values, kind="rating", **more):
        return {"id": 1, "data": {"item": item, "system": system, "text": "t"}, "annotations": [{"completed_by": k, "result": [{"from_name": "q", "to_name": "t", "type": kind, "value": v}], **more} for k, v in enumerate(values)]}
    found = load_judgments(put(tmp_path, "export.json", json.dumps([task("1", "A", {"rating": 4}, {"rating": 2}), task("1", "B", {"rating": 5}), task("2", "A", {"rating": 1}, was_cancelled=True)])))
    assert scores(found) == {("1", "A", "0"): 4, ("1", "A", "1"): 2, ("1", "B", "0"): 5} and "was_cancelled" in found.notes[0]
    two = [{**task("1", "A", {"rating": 4}), "annotations": [{"result": [{"from_name": n, "type": "rating", "value": {"rating": 3}} for n in ("fluency", "meaning")]}]}]
    path = put(tmp_path, "two.json", json.dumps(two))
    assert "several answers, fluency, meaning; say which" in fails(load_judgments, path) and load_judgments(path, aspect="meaning").scale == "meaning"
    pairs = [{"data": {"item": "1", "text1": "x", "text2": "y"}, "annotations": [{"completed_by": k, "result": [{"from_name": "best", "type": "pairwise", "value": {"selected": s}}]} for k, s in enumerate(("left", "left", "right"))]}]
    found = load_judgments(put(tmp_path, "pairs.json", json.dumps(pairs)))
    assert isinstance(found, Choices) and found.table[["first", "second", "votes_first", "votes"]].values.tolist() == [["x", "y", 2, 3]]
    small = [{"id": k, "item": 1, "system": s, "rating": [{"rating": r}], "annotator": 1} for k, (s, r) in enumerate((("A", 3), ("B", 4)))]
    assert scores(load_judgments(put(tmp_path, "min.json", json.dumps(small)))) == {("1", "A", "1"): 3, ("1", "B", "1"): 4}


def test_one_table_of_people_and_metrics(tmp_path):
    rows = [(i, s, r, (3*i + 5*k + j) % 5 + 1, (i + k) / 10, (i * k) % 7) for i in range(1, 7) for k, s in enumerate("AB") for j, r in enumerate("xy")]
    path = put(tmp_path, "one.csv", csv("item,system,rater,score,BLEU,mine", *(",".join(map(str, r)) for r in rows)))
    found = load_judgments(path)
    assert set(found.metrics["metric"]) == {"BLEU"} and len(found.metrics) == 12 and found.notes == ("scores of metrics in the same table: BLEU",)
    assert set(load_judgments(path, metrics="BLEU,mine").metrics["metric"]) == {"BLEU", "mine"}
    one = agree(found, reps=20).table["value"].tolist()
    for words in (("--metrics", path), ()):
        done = cli("agree", path, *words, "--reps", 20, "--json", cwd=tmp_path)
        assert done.returncode == 0 and [r["value"] for r in json.loads(done.stdout)["result"]["table"]] == pytest.approx(one), done.stderr
    assert "a second value of bleu for one output" in fails(load_judgments, put(tmp_path, "two.csv", csv("item,rater,score,bleu", "1,a,3,0.1", "1,b,3,0.2")))


# votes

def votes(found) -> list: return found.table[["group", "votes_first", "votes"]].values.tolist()


VOTES = csv("question_id,model_a,model_b,winner,judge", "1,A,B,model_a,x", "1,B,A,model_a,y", "1,A,B,tie,z", "2,A,B,model_b,x", "2,A,B,,y", "2,A,B,tie (bothbad),z")


def test_a_vote_in_each_row(tmp_path):
    found = load_judgments(put(tmp_path, "votes.csv", VOTES))
    assert votes(found) == [["1", 1.5, 3], ["2", 0.5, 2]] and "1 of 6 rows left out: winner is blank" in found.notes and "2 of 5 votes are ties, half a vote for each" in found.notes
    assert found.table[["first_system", "second_system"]].values.tolist() == [["A", "B"]]*2
    named = put(tmp_path, "named.csv", csv("pair,left_one,right_one,who", "1,A,B,A", "1,A,B,B", "1,A,B,A"))
    assert votes(load_judgments(named, "choices", item="pair", first_system="left_one", second_system="right_one", vote="who")) == [["1", 2, 3]]
    once = put(tmp_path, "hot.csv", csv("question_id,model_a,model_b,winner_model_a,winner_model_b,winner_tie", "1,A,B,1,0,0", "1,A,B,0,0,1"))
    assert votes(load_judgments(once)) == [["1", 1.5, 2]] and "do not hold one 1" in fails(load_judgments, put(tmp_path, "cold.csv", once.read_text().replace("1,0,0", "1,1,0")))


def test_preferences_by_number(tmp_path):
    rows = [{"instruction": q, "output_1": "x", "generator_1": "A", "output_2": "y", "generator_2": "B", "annotator": "a", "preference": p} for q, p in (("sing", 1), ("sing", 1.5), ("sing", None), ("dance", 2), ("dance", 1.25))]
    found = load_judgments(put(tmp_path, "annotations.json", json.dumps(rows)))
    assert votes(found) == [["1", 1.5, 2], ["2", 0.75, 2]] and "no column names the items: they are numbered in the order of instruction" in found.notes
    zero = put(tmp_path, "zero.csv", csv("item,output_1,output_2,preference", "1,x,y,0", "1,x,y,1"))
    assert "votes are 0, 1; say which number" in fails(load_judgments, zero) and votes(load_judgments(zero, values={"0": 1, "1": 0})) == [["1", 1, 2]]
    assert "the vote 'maybe' is not understood" in fails(load_judgments, put(tmp_path, "odd.csv", csv("item,model_a,model_b,winner", "1,A,B,maybe")))
    assert "names of systems and of sides, and they differ" in fails(load_judgments, put(tmp_path, "swap.csv", csv("item,model_a,model_b,winner", "1,B,A,A")))
    assert "the vote '-1' is not understood" in fails(load_judgments, put(tmp_path, "minus.csv", csv("item,model_a,model_b,winner", "1,A,B,-1", "2,A,B,1")))
    turns = csv("question_id,model_a,model_b,winner,turn", "1,A,B,model_a,1", "1,A,B,model_b,2")
    assert votes(load_judgments(put(tmp_path, "turns.csv", turns))) == [["1, turn 1", 1, 1], ["1, turn 2", 0, 1]] and votes(load_judgments(put(tmp_path, "turn.csv", turns.replace(",2\n", ",1\n")))) == [["1", 1, 2]]
    assert "no column names the items" in fails(load_judgments, put(tmp_path, "none.csv", csv("model_a,model_b,winner", "A,B,tie")))


def test_votes_beside_scores_of_systems(tmp_path):
    put(tmp_path, "votes.csv", csv("question_id,model_a,model_b,winner", *(f"{i},A,B,{w}" for i in range(1, 9) for w in ("model_a", ("model_b", "tie", "model_a")[i % 3], "model_a" if i % 2 else "model_b"))))
    put(tmp_path, "scores.csv", csv("item,system,bleu", *(f"{i},{s},{(i*k) % 5}" for i in range(1, 9) for k, s in enumerate("ABC", 1))))
    done = cli("agree", "votes.csv", "--metrics", "scores.csv", "--unit", "choice", "--reps", 20, cwd=tmp_path)
    assert done.returncode == 0 and "8 of 24 scores are of no pair" in done.stderr + done.stdout, done.stderr
    done = cli("agree", "votes.csv", "--metrics", "chrf", "--reps", 20, cwd=tmp_path)
    assert done.returncode == 2 and "votes has no outputs to run chrf on" in done.stderr


# scores of tools

SCORES = {("1", "sysA"): 0.5, ("2", "sysA"): 0.25, ("1", "sysB"): -0.125, ("2", "sysB"): 1.0}
FILES = {
    "FOO-refA.seg.score": "sysA\t0.5\nsysA\t0.25\nsysB\t-0.125\nsysB\t1.0\n",
    "comet.json": {"out/sysA.txt": [{"src": "s", "mt": "m", "COMET": 0.5, "errors": []}, {"src": "s", "mt": "m", "COMET": 0.25, "errors": [{"severity": "minor"}]}], "out/sysB.txt": [{"COMET": -0.125}, {"COMET": 1.0}]},
    "comet.txt": "sysA.txt\tSegment 0\tscore: 0.5000\nsysA.txt\tSegment 1\tscore: 0.2500\nsysA.txt\tscore: 0.3750\nsysB.txt\tSegment 0\tscore: -0.1250\nsysB.txt\tSegment 1\tscore: 1.0\nsysB.txt\tscore: 0.4\n",
    "metricx.jsonl": [{"source": "5", "hypothesis": "h", "reference": "r", "system_id": s, "segment_id": i, "prediction": v} for (i, s), v in SCORES.items()],
    "x.avg_seg_scores.tsv": "system mqm_avg_score seg_id\n" + "".join(f"{s} {v} {i}\n" for (i, s), v in SCORES.items()) + "sysB\tNone 3\n",
    "wide.csv": "system_id,segment_id,src,mt,comet\n" + "".join(f'{s},{i},5,"a, b",{v}\n' for (i, s), v in SCORES.items()).replace(",5,", ",s,"),
    "long.tsv": "item\tsystem\tmetric\tvalue\n" + "".join(f"{i}\t{s}\tm\t{v}\n" for (i, s), v in SCORES.items())}


@pytest.mark.parametrize("name", FILES)
def test_scores_as_tools_write_them(tmp_path, name):
    table = metric_table(put(tmp_path, name, FILES[name]))
    assert {(r.item, r.system): r.value for r in table.itertuples()} == SCORES and table["metric"].nunique() == 1
    assert table.attrs.get("lower", ()) == (("MetricX",) if name == "metricx.jsonl" else ())
    counted = name.startswith(("FOO", "comet"))
    assert any("numbered from 1" in n for n in table.attrs.get("notes", ())) == counted and ("blank in 1 rows" in str(table.attrs)) == ("avg" in name)


def test_scores_in_parquet_with_named_rows(tmp_path):
    frame = pd.DataFrame([(i, s, v) for (i, s), v in SCORES.items()], columns=["item", "system", "bleu"])
    frame.set_index(["item", "system"]).to_parquet(tmp_path/"a.parquet")
    frame.to_parquet(tmp_path/"b.parquet")
    assert metric_table(tmp_path/"a.parquet").equals(metric_table(tmp_path/"b.parquet"))


def test_columns_of_scores_by_name(tmp_path):
    path = put(tmp_path, "t.csv", "nr,sys,year,remark,a,b\n1,A,1999,x,0.5,0.1\n1,B,1999,y,0.25,0.2\n")
    assert "neither 'item' nor 'system' is among its columns" in fails(metric_table, path)
    assert "remark is x, not a number" in fails(metric_table, path, item="nr", system="sys")
    assert metric_table(path, item="nr", system="sys", value="a,b")["value"].tolist() == [.5, .25, .1, .2]
    assert metric_table(put(tmp_path, "long.csv", "item,metric,score\n1,bleu,0.5\n"))["value"].tolist() == [.5]
    assert set(metric_table(put(tmp_path, "ids.csv", "item,segment_id,worker,bleu\n1,7,3,0.5\n"))["metric"]) == {"bleu"}
    assert "which column holds the values" in fails(metric_table, put(tmp_path, "two.csv", "item,metric,a,b\n1,bleu,0.5,1\n"))
    assert "no column 'c'" in fails(metric_table, path, item="nr", value="c") and "no column 'hue' to name in metric scores" in fails(metric_table, path, hue="a")
    put(tmp_path, "judged.csv", csv("item,system,score", "1,A,4", "1,B,2"))
    many = csv("nr,sys,remark,a", *(f"{i},{s},x,{(i*k) % 7}" for i in range(1, 7) for k, s in enumerate("AB", 1)))
    put(tmp_path, "many.csv", many), put(tmp_path, "people.csv", csv("item,system,score", *(f"{i},{s},{(i*k) % 5}" for i in range(1, 7) for k, s in enumerate("AB", 1))))
    words = ("--metric-columns", "item=nr", "--metric-columns", "system=sys", "--metric-columns", "value=a", "--reps", 20)
    done = cli("agree", "people.csv", "--metrics", "many.csv", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--metric-columns names columns of a file" in cli("agree", "people.csv", "--metrics", "bleu", *words, cwd=tmp_path).stderr
    assert "no file x.seg.score" in cli("agree", "people.csv", "--metrics", "x.seg.score", cwd=tmp_path).stderr


@pytest.mark.parametrize("name, held, message", [
    ("c.json", {"sysA.txt": [{"mt": "x"}]}, "segment 1: no score"), ("d.json", {"sysA": ["x"]}, "segment 1: expected an object, not str"), ("e.txt", "sysA.txt\tSegment 0\tscore: 0.5\nGPU available\n", "line 2: expected what COMET prints"),
    ("f.seg.score", "A\tNone\n", "no scores; it is empty"), ("g.seg.score", "A\thigh\n", "line 1: value is high, not a number"), ("h.csv", "item,bleu\n1,\n", "no scores; all are blank"), ("i.json", {"item": [1, 2], "bleu": [1, 2]}, "expected an object, not int"),
])
def test_files_of_tools_that_are_none(tmp_path, name, held, message): assert message in fails(metric_table, put(tmp_path, name, json.dumps(held) if isinstance(held, dict) else held))


def test_less_is_better_for_metricx_however_it_is_given(tmp_path):
    g = np.random.default_rng(0)
    quality = g.normal(size=(8, 3))
    people = put(tmp_path, "people.csv", csv("item,system,score", *(f"{i},s{s},{quality[i, s]}" for i in range(8) for s in range(3))))
    path = put(tmp_path, "mx.jsonl", [{"source": "s", "hypothesis": "h", "system_id": f"s{s}", "segment_id": i, "prediction": 5 - quality[i, s]} for i in range(8) for s in range(3)])
    for metrics in (path, metric_table(path)):
        found = agree(load_judgments(people), metrics, statistics=["pearson"], reps=20)
        assert found.table["value"].tolist() == [pytest.approx(1)] and found.ledger["direction"].tolist() == ["lower is better"]
