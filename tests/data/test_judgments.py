"Human judgments: every layout by hand, the real files with their published numbers, and everything that does not fit said in one line."
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from handmade import fails, put
from real_data import data_path
from scipy.io import savemat
from scipy.stats import kendalltau, pearsonr

from invariant_metrics.files import save_results
from invariant_metrics.data.judgment_tables import READERS, Choices, Judgments, load_table, metric_table
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.people.correlation import pearson
from invariant_metrics.people.human import agree
from invariant_metrics.people.score_table import score_table


# tables of one's own

ROWS = "item,system,rater,score\n1,A,x,3\n1,B,x,2\n2,A,x,1\n"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.jsonl", "t.json", "t.parquet", "t.xlsx"])
def test_a_table_is_the_same_in_every_kind_of_file(tmp_path, name):
    frame = pd.DataFrame([line.split(",") for line in ROWS.split()[1:]], columns=ROWS.split()[0].split(","))
    records = frame.astype({"score": float}).to_dict("records")
    if name.endswith("parquet"): frame.astype({"score": float}).to_parquet(tmp_path/name)
    elif name.endswith("xlsx"):
        pytest.importorskip("openpyxl", reason="spreadsheets need the extra `xlsx`")
        frame.astype({"score": float}).to_excel(tmp_path/name, index=False)
    elif name.endswith("json"): (tmp_path/name).write_text(json.dumps(records))
    else: put(tmp_path, name, records if name.endswith("jsonl") else ROWS.replace(",", "\t") if name.endswith("tsv") else ROWS)
    found = load_judgments(tmp_path/name)
    assert found.name == "t" and found.scores["score"].tolist() == [3, 2, 1] and found.scores["item"].tolist() == ["1", "1", "2"]
    assert found.scores["group"].tolist() == ["1", "1", "2"] and found.higher_is_better and found.outputs is None
    assert str(found) == "t: 3 judgments of 2 items, 2 systems, 1 rater"


def test_columns_may_have_other_names_and_outputs_come_along(tmp_path):
    path = put(tmp_path, "own.csv", 'seg,mt,DA,hyp,ref\n1,A,70,the cat,"[""a cat"", ""the cat""]"\n2,A,50,a dog,dog\n')
    found = load_judgments(path, item="seg", system="mt", score="DA", output="hyp", references="ref", higher_is_better=False, scale="0-100")
    assert found.outputs["references"].tolist() == [("a cat", "the cat"), ("dog",)] and not found.higher_is_better and found.scale == "0-100"
    assert "no column 'score'; it has seg, mt, DA, hyp, ref; say which it is" in fails(load_judgments, path, item="seg")
    assert "no column 'da'" in fails(load_judgments, path, score="da")
    assert "no column 'hue' to name" in fails(load_judgments, path, hue="DA")


@pytest.mark.parametrize("text, message", [
    ("item,score\n1,\n2,\n", "score is blank in all rows"),
    ("item,score\n1,3\n2,high\n", "line 3: score is high, not a number"),
    ("item,score\n1,nan\n", "score is blank in all rows"),
    ("item,score\n1,inf\n", "line 2: score is inf, not a number"),
    ("item,score\n1,3\n1,4\n", "line 3: a second row of item 1; keep one; name the column of raters"),
    ("item,rater,score\n1,a,3\n1,b,3\n1,a,4\n", "line 4: a second row of item 1, rater a; keep one"),
    ("item,score\n1,3,4\n", "line 2: 3 cells under 2 names of columns"),
    ("item,item\n1,3\n", "two columns are called 'item'"),
    ("item,score\n", "no rows; it is empty"),
    ("", "no table in it; it is empty"),
    ("who,score\na,3\n", "neither 'item' nor 'system' is among its columns who, score"),
])
def test_what_a_table_must_not_have_is_said_with_its_line(tmp_path, text, message): assert message in fails(load_judgments, put(tmp_path, "t.csv", text))


def test_quotes_hold_separators_and_lines_and_the_line_is_still_right(tmp_path):
    frame = load_table(put(tmp_path, "q.csv", 'item,score\n"a,\nb",3\n"c ""d""",x\n'))
    assert frame["item"].tolist() == ["a,\nb", 'c "d"'] and frame.index.tolist() == [3, 4]
    assert "line 4: score is x" in fails(load_judgments, tmp_path/"q.csv")


def test_files_that_cannot_be_read_are_named(tmp_path):
    assert "no file or folder at" in fails(load_judgments, tmp_path/"gone")
    assert "no judgments in it among no tables" in fails(load_judgments, tmp_path)
    assert "not a readable gzip file" in fails(load_judgments, _raw(tmp_path/"x.csv.gz", b"\x1f\x8bxx"))
    assert "line 1: not UTF-8" in fails(load_judgments, _raw(tmp_path/"l.csv", "schön".encode("latin-1")))
    assert "no readable" not in fails(load_judgments, _raw(tmp_path/"x.parquet", b"PAR")) and "readable parquet" in fails(load_judgments, tmp_path/"x.parquet")
    assert "line 2: not JSON" in fails(load_judgments, put(tmp_path, "j.jsonl", '{"item": 1, "score": 2}\n{\n'))
    assert "unknown judgment format 'flicker8k'" in fails(load_judgments, put(tmp_path, "t.csv", ROWS), "flicker8k")


def _raw(path, data: bytes):
    path.write_bytes(data)
    return path


def test_names_that_went_through_a_spreadsheet_still_match():
    scores = pd.DataFrame({"item": [1.0, 2.0], "score": [3, 4]})
    assert Judgments("s", scores).scores["item"].tolist() == metric_table(pd.DataFrame({"item": ["1", "2"], "m": [0, 1]}))["item"].tolist()


def test_judgments_made_by_hand_are_checked_too():
    frame = pd.DataFrame({"item": ["a", "b"], "score": [1.0, 2.0]})
    assert "row 2: a second row of item a" in fails(Judgments, "x", frame.assign(item="a"))
    assert "outputs, row 2: a second row" in fails(Judgments, "x", frame, outputs=pd.DataFrame({"item": "a", "output": ["t", "u"]}))
    assert "metrics, row 1: value is nan" in fails(Judgments, "x", frame, metrics=pd.DataFrame({"item": ["a"], "metric": "m", "value": np.nan}))
    choices = pd.DataFrame({"item": ["a"], "first": "x", "second": "y", "votes_first": [2.0], "votes": [3]})
    assert Choices("c", choices).table["group"].tolist() == ["a"] and "row 1: 2 of 1 votes" in fails(Choices, "c", choices.assign(votes=1))


# metric scores

def test_metric_scores_long_wide_and_as_the_command_writes_them(tmp_path):
    wide = pd.DataFrame({"system": "A", "item": ["x", "y"], "bleu": [1.0, 2.0], "chrf": [3.0, 4.0]})
    long = metric_table(wide)
    assert len(long) == 4 and long.equals(metric_table(long))
    per_item = pd.DataFrame([("A", m, i, n, v) for m, vs in (("bleu", (1., 2.)), ("chrf", (3., 4.))) for i, (n, v) in enumerate(zip("xy", vs))],
                            columns=["system", "metric", "item", "name", "value"])
    save_results(per_item, tmp_path/"values.parquet")
    wide.to_csv(tmp_path/"w.csv", index=False)
    assert metric_table(tmp_path/"values.parquet").equals(long) and metric_table(tmp_path/"w.csv").equals(long)
    holes = metric_table(put(tmp_path, "b.csv", "item,bleu\nx,1\ny,\n"))
    assert len(holes) == 1 and holes.attrs["notes"] == ("b.csv: bleu is blank in 1 rows, left out",)
    assert "all are blank" in fails(metric_table, put(tmp_path, "c.csv", "item,bleu\nx,\ny,\n"))
    assert "line 3: a second row of item x, metric bleu" in fails(metric_table, put(tmp_path, "d.csv", "item,metric,value\nx,bleu,1\nx,bleu,2\n"))
    assert "line 2: remark is hello, not a number" in fails(metric_table, put(tmp_path, "e.csv", "item,remark\nx,hello\n"))
    assert "no metric in it; it has item, text" in fails(metric_table, put(tmp_path, "t.csv", "item,text\nx,hello\n"))
    assert "no metric in it" in fails(metric_table, put(tmp_path, "f.csv", "item,system\nx,A\n"))


# public layouts, by hand

REFERENCES = ["A dog runs .", "A brown dog ."]


def test_flickr8k_in_its_three_layouts(tmp_path):
    put(tmp_path, "Flickr8k.token.txt", "a.jpg#0\tA dog runs .\na.jpg#1\tA brown dog .\nb.jpg#0\tA cat .\n")
    put(tmp_path, "ExpertAnnotations.txt", "a.jpg\tb.jpg#0\t1\t1\t2\nb.jpg\tb.jpg#0\t4\t4\t4\n")
    lines = load_judgments(tmp_path)
    assert lines.notes[0] == "1 pairs left out: the caption is one of the image's own references" and "not identified" in lines.notes[1]
    judged = [{"caption": "A cat .", "rating": r} for r in (1, 1, 2, float("nan"))]
    held = load_judgments(put(tmp_path/"..", f"{tmp_path.name}.json", {"a.jpg": {"ground_truth": REFERENCES, "human_judgement": judged}}))
    (tmp_path/"objects").mkdir()
    put(tmp_path/"objects", "images.jsonl", [{"image_id": "a.jpg", "references": REFERENCES}])
    put(tmp_path/"objects", "x_scores.jsonl", [{"row": 0, "bleu": 0.5}])
    rows = load_judgments(put(tmp_path/"objects", "judgments.jsonl", [{"image_id": "a.jpg", "candidate": "A cat .", "ratings": [1, 1, 2], "clip": 0.1}]))
    assert lines.scores.equals(held.scores) and lines.scores.equals(rows.scores)
    assert rows.outputs["references"].iloc[0] == tuple(REFERENCES) == lines.outputs["references"].iloc[0]
    assert dict(zip(rows.metrics["metric"], rows.metrics["value"])) == {"clip": 0.1, "bleu": 0.5}
    assert "line 1: row 7 of 1" in fails(lambda: [put(tmp_path/"objects", "y_scores.jsonl", [{"row": 7}]), load_judgments(tmp_path/"objects")])
    assert "line 1: caption c.jpg#0 is not in Flickr8k.token.txt" in fails(lambda: [put(tmp_path, "ExpertAnnotations.txt", "a.jpg\tc.jpg#0\t1\t1\t2\n"), load_judgments(tmp_path)])


def test_an_own_caption_is_told_by_its_text(tmp_path):
    "Not by its number: a caption of another image may read like a reference of this one."
    put(tmp_path, "Flickr8k.token.txt", "a.jpg#0\tA dog .\na.jpg#1\tA cat .\nb.jpg#0\tA dog .\nb.jpg#1\tA bird .\n")
    put(tmp_path, "ExpertAnnotations.txt", "a.jpg\tb.jpg#0\t4\t4\t4\na.jpg\tb.jpg#1\t1\t1\t2\n")
    found = load_judgments(tmp_path)
    assert found.outputs["output"].tolist() == ["A bird ."] and found.notes[0].startswith("1 pairs left out")


def test_the_crowd_keeps_the_pair_and_loses_the_reference(tmp_path):
    put(tmp_path, "Flickr8k.token.txt", "a.jpg#0\tA dog .\na.jpg#1\tA dog .\na.jpg#2\tDogs run .\nb.jpg#0\tA dog .\nb.jpg#1\tA bird .\n")
    path = put(tmp_path, "CrowdFlowerAnnotations.txt", "a.jpg\tb.jpg#0\t0.6666667\t2\t1\na.jpg\ta.jpg#2\t1\t3\t0\nb.jpg\ta.jpg#2\t0\t0\t3\n")
    found = load_judgments(path)
    assert found.name == "flickr8k-cf" and found.scores["score"].tolist() == [0.6666667, 1, 0] and found.scores["group"].tolist() == ["a.jpg", "a.jpg", "b.jpg"]
    assert found.outputs["references"].tolist() == [("A dog .",), ("A dog .",), ("A dog .", "A bird .")] and found.notes == ("2 judged captions taken out of the references of their image",)
    held = {"a.jpg": {"ground_truth": ["A dog ."], "human_judgement": [{"caption": "A dog .", "rating": 2/3}, {"caption": "Dogs run .", "rating": 1}]}}
    for name in ("crowdflower_flickr8k.json", f"{tmp_path.name}.json"): assert load_judgments(put(tmp_path/"..", name, held)).name == "flickr8k-cf"
    assert "line 2: 0.5 is not the share of 2 yes and 1 no" in fails(load_judgments, put(tmp_path, "CrowdFlowerAnnotations.txt", "a.jpg\tb.jpg#0\t1\t3\t0\na.jpg\ta.jpg#2\t0.5\t2\t1\n"))
    put(tmp_path, "ExpertAnnotations.txt", "a.jpg\tb.jpg#1\t1\t1\t2\n")
    assert "several judgments in it" in fails(load_judgments, tmp_path) and load_judgments(tmp_path, "flickr8k-expert").name == "flickr8k-expert"


def test_composite_keeps_own_captions_where_the_published_numbers_do(tmp_path):
    for name, images in (("8k", "ab"), ("30k", "cd")):
        rows = "".join(f"h;http://x/{i}.jpg;Own {i}.;A bird;{5 - k};{k + 1}\n" for k, i in enumerate(images))
        put(tmp_path, f"{name}_correctness.csv", "HITId;Input.image_url;Input.text1;Input.text2;Answer.Q1Answer;Answer.Q2Answer\n" + rows)
    captions = put(tmp_path/"..", f"{tmp_path.name}.token", "".join(f"{i}.jpg#0\tOwn {i}.\n{i}.jpg#1\tA dog\n" for i in "abcd"))
    assert len(load_judgments(tmp_path, captions=captions)) == 4
    found = load_judgments(tmp_path, captions=captions, drop_own="flickr8k")
    assert sorted(found.outputs["output"]) == ["A bird"]*4 + ["Own c.", "Own d."] and "2 ratings left out" in found.notes[0]
    assert "unknown way with an image's own captions 'own'" in fails(load_judgments, tmp_path, drop_own="own")


def test_composite_by_aspect_and_with_captions(tmp_path):
    head = "HITId;Input.image_url;Input.text1;Input.text2;Answer.Q1Answer;Answer.Q2Answer\n"
    put(tmp_path, "8k_correctness.csv", head + "h;http://x/a.jpg;A dog runs .;A bird;5;2\nh;;;;;\n")
    put(tmp_path, "8k_throughness.csv", head + "h;http://x/a.jpg;A dog runs .;A bird;4;1\n")
    found = load_judgments(tmp_path)
    assert found.scores["score"].tolist() == [5, 2] and found.notes == ("1 lines without an image left out", "no captions given: read without references")
    put(tmp_path/"..", f"{tmp_path.name}.token", "a.jpg#0\tA dog runs .\na.jpg#1\tA brown dog .\n")
    less = load_judgments(tmp_path, aspect="throughness", captions=tmp_path.parent/f"{tmp_path.name}.token")
    assert less.scores["score"].tolist() == [1] and less.outputs["references"].iloc[0] == tuple(REFERENCES) and less.scale == "1–5, throughness"
    assert "line 2: Answer.Q2Answer is many" in fails(load_judgments, put(tmp_path, "one.csv", head + "h;http://x/a.jpg;t;u;1;many\n"))


def test_mqm_marks_are_summed_by_rater(tmp_path):
    head = "system\tdoc\tdoc_id\tseg_id\trater\tsource\ttarget\tcategory\tseverity\n"
    row = "{}\td\t1\t{}\t{}\tHund\tThe <v>cat</v>\t{}\t{}\n".format
    text = head + row("A", 1, "r", "Accuracy", "Major") + row("A", 1, "r", "Fluency/Punctuation", "Minor") + row("A", 1, "s", "Style", "minor") \
        + row("A", 2, "r", "Non-translation!", "Major") + row("B", 1, "r", "No-error", "no-error") + row("B", 2, "r", "Style", "Neutral")
    found = load_judgments(put(tmp_path, "mqm.tsv", text))
    assert {tuple(r[:3]): r[3] for r in found.scores.itertuples(index=False)} == {
        ("1", "A", "r"): -5.1, ("1", "A", "s"): -1, ("2", "A", "r"): -25, ("1", "B", "r"): 0, ("2", "B", "r"): 0}
    assert set(found.outputs["output"]) == {"The cat"} and found.higher_is_better
    assert "line 2: severity 'Big'" in fails(load_judgments, put(tmp_path, "bad.tsv", head + row("A", 1, "r", "Style", "Big")))


def test_mqm_references_and_human_translations(tmp_path):
    rows = [{"seg_id": i, "doc": "d", "src": "s", "targets": {"A": "x", "ref-A": "y", "ref-B": "z"}, "mqm": {"A": -1, "ref-A": 0, "ref-B": -2}} for i in (1, 2)]
    path = put(tmp_path, "m.jsonl", rows)
    found, all_, one = load_judgments(path), load_judgments(path, humans=True), load_judgments(path, references=["ref-B"], documents=True)
    assert found.notes == ("human translations left out of the systems: ref-A, ref-B",) and len(found) == 2 and len(all_) == 6
    assert found.outputs["references"].iloc[0] == ("y", "z") and dict(zip(all_.outputs["system"], all_.outputs["references"]))["ref-A"] == ("z",)
    assert one.outputs["references"].iloc[0] == ("z",) and set(one.scores["group"]) == {"d"}
    assert "no translation by ref-C" in fails(load_judgments, path, references=["ref-C"])
    assert "line 1: B in only one of targets and mqm" in fails(load_judgments, put(tmp_path, "n.jsonl", [{**rows[0], "mqm": {**rows[0]["mqm"], "B": 0}}]))


def pascal(folder, votes, category=2):
    def cells(rows, names):
        out = np.empty((1, len(rows)), dtype=[(n, object) for n in names])
        for i, row in enumerate(rows): out[0, i] = row
        return out
    savemat(folder/"pair_pascal.mat", {"new_input": cells([("x.jpg", "A dog. ", "A cat.")], "iab"), "category": [[category]]})
    savemat(folder/"consensus_pascal.mat", {"triplets": cells(votes, "abcd")})


def test_pascal_votes_go_by_the_text_and_ties_stay(tmp_path):
    pascal(tmp_path, [("r1", "A dog.", "A cat.", 1), ("r2", "A cat.", "A dog.", 1), ("r3", "A dog.", "A cat.", -1), ("r4", "A dog.", "A cat.", 1)])
    found = load_judgments(tmp_path)
    assert isinstance(found, Choices) and found.table.iloc[0].tolist() == ["x.jpg#1", "A dog.", "A cat.", "HI", 2, 4, ("r1", "r2", "r3", "r4"), "x.jpg"]
    assert found.notes == ("1 of 1 pairs have as many votes for one as for the other",)
    assert load_judgments(tmp_path/"pair_pascal.mat").table.equals(found.table)
    pascal(tmp_path, [("r1", "A cow.", "A cat.", 1)])
    assert "pair 1: a vote for 'A cow.', which is neither of the two" in fails(load_judgments, tmp_path)
    _raw(tmp_path/"pair_pascal.mat", b"MATLAB 7.3 MAT-file" + b" "*200)
    assert "is no MATLAB file that can be read" in fails(load_judgments, tmp_path)
    (tmp_path/"consensus_pascal.mat").unlink()
    assert "needs consensus_pascal.mat beside it" in fails(load_judgments, tmp_path/"pair_pascal.mat")


def test_foils_are_choices_nobody_made(tmp_path):
    right = {"id": 1, "image_id": 5, "caption": "A dog.", "foil": False, "foil_word": "ORIG", "target_word": "ORIG"}
    wrong = {**right, "caption": "A cat.", "foil": True, "foil_word": "cat", "target_word": "dog", "foil_id": 3}
    held = {"images": [{"id": 5, "file_name": "COCO_5.jpg"}], "annotations": [wrong, right]}
    captions = put(tmp_path, "captions.json", {"images": held["images"], "annotations": [{"image_id": 5, "caption": c} for c in ("A dog.", "Some dog.")]})
    found = load_judgments(put(tmp_path, "foil.json", held), captions=captions)
    assert found.table.iloc[0].tolist() == ["1#3", "A dog.", "A cat.", "dog→cat", 1, 1, ("Some dog.",), "5"]
    assert "annotation 1: no caption of id 1 that is not a foil" in fails(load_judgments, put(tmp_path, "f.json", {**held, "annotations": [wrong]}))
    assert "annotation 1: foil is 1, not bool" in fails(load_judgments, put(tmp_path, "g.json", {"annotations": [{**wrong, "foil": 1}]}))


def test_pictures_taken_for_real(tmp_path):
    path = put(tmp_path, "p.csv", "model,generated,image_path,number_guesses,number_guesses_generated\nM,1,a.png,3,1\nM,0,b.png,2,0\n")
    found = load_judgments(path)
    assert found.scores["score"].tolist() == [1, 1, 0] and found.scores["rater"].tolist() == ["1", "2", "3"] and found.notes[0] == "1 real pictures left out"
    assert "line 2: 4 of 3 guesses" in fails(load_judgments, put(tmp_path, "q.csv", path.read_text().replace("3,1", "3,4")))


def test_a_hole_in_a_published_column_is_counted_and_the_file_is_read(tmp_path):
    "null, nothing at all, NaN, and the words that stand for none; what is no number and no hole is still refused."
    rows = [{"sid": i, "system": "A", "src": "s", "ref": "r", "hyp": f"h{i}", "human_da": i, "published_bleu": i/2, "published_chrF": c}
            for i, c in enumerate((.5, None, float("nan"), "NA", .7))]
    del rows[0]["published_chrF"]
    found = load_judgments(put(tmp_path, "newstest_lv.jsonl", rows))
    assert found.notes == ("chrF has no score for 4 of 5 outputs",) and len(found) == 5
    assert found.metrics.groupby("metric")["value"].agg(list).to_dict() == {"bleu": [0, .5, 1, 1.5, 2], "chrF": [.7]}
    assert agree(found, ["bleu"], statistics=["pearson"], reps=20).table["value"].tolist() == [pytest.approx(1)]
    assert "chrF lacks 4 of 5 judged outputs" in fails(agree, found, statistics=["pearson"])
    assert "line 1: published_bleu is 'high', not int or float" in fails(load_judgments, put(tmp_path, "bad.jsonl", [{**rows[0], "published_bleu": "high"}]))
    assert load_judgments(put(tmp_path, "none.jsonl", [{**r, "published_bleu": None, "published_chrF": None} for r in rows])).metrics is None
    summaries = [{"doc_id": k, "system": "A", "summary": ["x"], "scores": {"litepyramid_recall": .5, "rouge_1": None if k else .3}} for k in range(3)]
    found = load_judgments(put(tmp_path, "realsumm_outputs.jsonl", summaries))
    assert "rouge_1 has no score for 2 of 3 outputs" in found.notes and found.metrics["value"].tolist() == [.3]
    (tmp_path/"f").mkdir()
    rated = [{"image_id": f"{k}.jpg", "candidate": "A cat .", "ratings": [1, k, 2], **({"clip": .1*k} if k else {})} for k in range(3)]
    found = load_judgments(put(tmp_path/"f", "judgments.jsonl", rated))
    assert "clip has no score for 1 of 3 outputs" in found.notes and found.metrics["value"].tolist() == [.1, .2]


def test_choices_from_objects_and_tables(tmp_path):
    "Pascal-50S taken out of MATLAB; choices under one's own names of columns."
    pascal(tmp_path, [("r1", "A dog.", "A cat.", 1), ("r2", "A dog.", "A cat.", -1)], category=3)
    whole = load_judgments(tmp_path)
    row = {"image": "x.jpg", "first": "A dog.", "second": "A cat.", "category": 3, "votes_first": 1, "references": ["r1", "r2"]}
    for k, votes in enumerate(({"votes": 2}, {"votes_second": 1}, {"votes_second": 1, "category": "HM"})):
        found = load_judgments(put(tmp_path, f"{k}.jsonl.gz", [{**row, **votes}]))
        assert (found.name, found.notes) == ("pascal50s", whole.notes) and found.table.equals(whole.table)
    twice = load_judgments(put(tmp_path, "two.jsonl", [{**row, "votes": 3}, {**row, "votes": 5}]))
    assert twice.table["item"].tolist() == ["x.jpg#1", "x.jpg#2"] and twice.table["group"].tolist() == ["x.jpg"]*2
    assert "how many voted? give 'votes' or 'votes_second'" in fails(load_judgments, put(tmp_path, "none.jsonl", [row]))
    assert "line 2: 4 of 3 votes are for the first" in fails(load_judgments, put(tmp_path, "many.jsonl", [{**row, "votes": 3}, {**row, "votes_first": 4, "votes": 3}]))
    own = put(tmp_path, "own.csv", 'pair,A,B,votes_first,votes\n1,tea,coffee,2,5\n2,tea,water,4,5\n')
    found = load_judgments(own, "choices", item="pair", first="A", second="B")
    assert found.table[["item", "first", "second", "votes_first"]].values.tolist() == [["1", "tea", "coffee", 2], ["2", "tea", "water", 4]]
    assert "no column 'A2'" in fails(load_judgments, own, "choices", item="pair", first="A2")
    assert "there is no column 'score' to name" in fails(load_judgments, own, "choices", score="A")


def test_numbers_too_large_to_square_are_refused_without_a_warning(tmp_path):
    g = np.random.default_rng(0)
    rows = pd.DataFrame({"item": range(20), "score": g.normal(size=20)})
    judged = load_judgments(put(tmp_path, "people.csv", rows.to_csv(index=False)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (1e101, 1e308):
            large = put(tmp_path, "large.csv", rows.assign(score=np.sign(rows["score"])*size).rename(columns={"score": "m"}).to_csv(index=False))
            assert "large.csv, line 2: m is 1e+" in (said := fails(metric_table, large)) and "squares of such numbers overflow" in said
            assert "overflow" in fails(score_table, rows["score"], np.sign(rows["score"])*size) and "overflow" in fails(pearson, rows["score"], np.sign(rows["score"])*size)
        assert "are within 4e-200 of one another" in fails(agree, judged, rows.assign(item=rows["item"].astype(str), m=rows["score"]*1e-200)[["item", "m"]])


@pytest.mark.parametrize("name, row, message", [
    ("n.jsonl", {"imgid": "a", "candidate": "x", "references": ["y"], "score": "1"}, "score is '1', not int or float"),
    ("s.jsonl", {"seg_id": "a", "system": "A", "hyp": "x", "expert_annotations": [{"coherence": 1}]}, "expert 1: no 'consistency'"),
    ("d.jsonl", {"sid": 1, "system": "A", "hyp": "x", "human_da": None}, "human_da is None"),
    ("r.jsonl", {"doc_id": 1, "system": "A", "summary": ["x"], "scores": {"rouge": 1}}, "no 'litepyramid_recall'; it has rouge"),
    ("f.jsonl", {"image_id": "a", "candidate": 3, "ratings": [1]}, "candidate is 3, not str"),
])
def test_records_are_named_by_line(tmp_path, name, row, message):
    found = fails(load_judgments, put(tmp_path, name, [row]))
    assert f"{name}, line 1" in found and message in found


def test_options_are_checked_and_several_files_not_chosen_from(tmp_path):
    rows = [{"seg_id": "a", "system": "A", "hyp": "x", "expert_annotations": [dict.fromkeys(("coherence", "consistency", "fluency", "relevance"), 3)]}]
    path = put(tmp_path, "s.jsonl", rows)
    assert load_judgments(tmp_path, "summeval", aspect="fluency").scale == "1–5, fluency, three experts"
    assert "unknown aspect 'fluent'; did you mean fluency" in fails(load_judgments, path, aspect="fluent")
    assert "summeval takes no option 'humans'; it takes aspect" in fails(load_judgments, path, humans=True)
    put(tmp_path, "t.jsonl", rows)
    assert "several judgments in it: s.jsonl, t.jsonl; give the file" in fails(load_judgments, tmp_path)


def test_every_format_says_where_it_is_from():
    assert {"flickr8k-expert", "flickr8k-cf", "nebula", "mqm", "wmt-da-seg", "wmt-da-sys", "realsumm", "summeval", "dgm-realism", "pascal50s", "foil", "composite", "table", "choices",
            "aspects", "label-studio", "thumb", "xsum", "psqm", "score-file", "gigaword", "duc2004", "activitynet", "hellaswag", "wmt-news", "wmt-darr", "wmt-table"} == {*READERS.names()}
    assert all(READERS[n].cite or n in ("table", "choices") for n in READERS.names())


# real data

def test_flickr8k_ngram_metrics_agree_as_published():
    "tau_c x 100 over 16,992 single ratings; BLEU of higher orders is not among them, because its stored values were rounded to six digits."
    found = load_judgments(data_path("flickr8k_expert"))
    assert len(found) == 16992 and found.scores["group"].nunique() == 1000
    expected = {"ROUGE_L": 32.314, "CIDEr": 43.891, "METEOR": 41.822, "fleur": 53.026, "fleur_raw": 34.911}
    wide = found.metrics.pivot(index="item", columns="metric", values="value").loc[found.scores["item"]]
    for name, tau in expected.items():
        assert 100*kendalltau(wide[name], found.scores["score"], variant="c").statistic == pytest.approx(tau, abs=1e-3), name


@pytest.mark.parametrize("pair", ["ende", "zhen"])
def test_ted_mqm_system_means(pair):
    expected = json.loads(data_path("expected_parts.json").read_text())[f"ted2021_{pair}_mean_penalty"]
    found = load_judgments(data_path(f"wmt/ted2021_{pair}_mqm.jsonl.gz"), humans=True)
    assert (-found.scores.groupby("system")["score"].mean()).round(6).to_dict() == expected


def test_wmt17_published_segment_metric():
    found = load_judgments(data_path("wmt/newstest2017_deen_seg_da.jsonl"))
    both = found.scores.merge(found.metrics, on=["item", "system"])
    assert len(both) == 560 and pearsonr(both["score"], both["value"]).statistic == pytest.approx(0.4325, abs=5e-5)


def test_wmt17_systems_with_their_texts():
    found = load_judgments(data_path("wmt/newstest2017_deen_sys_da.csv"), texts=data_path("wmt/newstest2017_deen.jsonl.gz"))
    assert len(found) == 11 and set(found.outputs["system"]).issuperset({"online-A.0"}) and len(found.outputs) == 33044


def test_realsumm_columns_as_expected():
    expected = json.loads(data_path("expected_parts.json").read_text())["realsumm_column_means"]
    found = load_judgments(data_path("summarization/realsumm_outputs.jsonl.gz"))
    means = found.metrics.groupby("metric")["value"].mean().to_dict() | {"litepyramid_recall": found.scores["score"].mean()}
    assert {k: round(v, 6) for k, v in means.items()} == expected
    assert found.notes == ("the same outputs under two names: abs/bart_out and ext/bart_out; they count as two systems",)


def test_summeval_has_three_experts_and_ten_references():
    found = load_judgments(data_path("summarization/summeval_thumb.jsonl.gz"))
    assert len(found) == 2700 and found.outputs["references"].map(len).unique().tolist() == [10]


@pytest.mark.parametrize("name, expected", [("imagenet256", {"DiT-XL-2-guided": .330, "LDM": .309, "StyleGAN-XL": .153}), ("ffhq256", {"stylenat": .299, "efficient-vdvae": .088})])
def test_errors_of_participants_as_published(name, expected):
    found = load_judgments(data_path(f"human_realism/{name}_participants.csv")).scores.groupby("system")["score"].mean().round(3)
    assert {s: found[s] for s in expected} == expected and found.idxmax() == next(iter(expected))


def test_pictures_of_dgm_eval():
    found = load_judgments(data_path("human_realism/ffhq_per_image.csv.gz"))
    assert found.scores["system"].nunique() == 9 and set(found.scores["score"]) == {0.0, 1.0} and "real pictures left out" in found.notes[0]


def test_nebula_as_it_is():
    found = load_judgments(data_path("nebula"))
    assert len(found) == 1561 and found.scores["score"].between(0, 1).all() and set(found.scores["rater"]) == {""}
