"Files of texts: each known format gives what it holds, what looks like another format is refused, and items meet their own references."
import json
import unicodedata
from pathlib import Path

import pandas as pd
import pytest
from handmade import put

import invariant_metrics as im
from commands import cli
from invariant_metrics.commands.shell import main
from invariant_metrics.core import InputError
from invariant_metrics.data.annotation_files import load_annotations
from invariant_metrics.data.parallel import load_captions, load_parallel
from invariant_metrics.data.text_files import read_text_file
from invariant_metrics.data.text_sides import load_references, load_texts

IDS = (21, 22, 23)
PRED = ("a dog runs over the wet grass", "two men are sitting at a table, talking", "a red bus drives down the street")
REFS = (("a brown dog runs across wet grass", "the dog is running on a lawn"), ("two men sit at a table and talk", "two men talking at a table"),
        ("a red bus on a street", "a double decker bus drives down the road"))
FIRST = {i: refs[0] for i, refs in zip(IDS, REFS)}
FLAT = [(i, text) for i, refs in zip(IDS, REFS) for text in refs]
TURNED = [*zip(IDS, PRED)][::-1]


def dumps(held) -> str: return json.dumps(held, ensure_ascii=False)


def lines(rows) -> str: return "".join(f"{row}\n" for row in rows)


def refused(call, *args, **named) -> str:
    with pytest.raises(InputError) as error: call(*args, **named)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500
    return str(error.value)


def rouge(pred, target, **more): return im.score(pred, target, ["rouge-l"], ci=False, cache=False, **more)["rouge-l"]


ONE, BOTH = 0.6544, 0.7110 # against the first reference, against both


PREDICTIONS = { # formats with ids, in another order than the references
    "a.csv": "image_id,caption\n" + lines(f'{i},"{t}"' for i, t in TURNED), "b.csv": "caption;image_id\n" + lines(f"{t};{i}" for i, t in TURNED),
    "c.tsv": "Image ID\tGenerated Text\n" + lines(f"{i}\t{t}" for i, t in TURNED), "d.csv.gz": "n,model,image_id,prediction\n" + lines(f'{k},m,{i},"{t}"' for k, (i, t) in enumerate(TURNED)),
    "e.txt": "image_id,caption\r\n" + "".join(f'{i},"{t}"\r\n' for i, t in TURNED), "f.csv": "\ufeffimage_id,caption\n" + lines(f'"{i}","{t}"' for i, t in TURNED),
    "pandas.csv": ",image_id,caption\n" + lines(f'{k},{i}.0,"{t}"' for k, (i, t) in enumerate(TURNED)), "g.txt": lines(f"{i}\t{t}" for i, t in TURNED),
    "list.json": dumps([{"image_id": i, "caption": t} for i, t in TURNED]), "output.json": dumps([{"image_id": i, "instruction": "describe", "output": t, "generator": "m"} for i, t in TURNED]),
    "lines.jsonl": lines(dumps({"image_id": i, "generated_text": t}) for i, t in TURNED), "lines.json": lines(dumps({"image_id": i, "response": t}) for i, t in TURNED),
    "lines.txt": lines(dumps({"question_id": i, "prompt": "describe", "text": t}) for i, t in TURNED), "pretty.jsonl": json.dumps([{"image_id": i, "caption": t} for i, t in TURNED], indent=1),
    "dict.json": dumps({str(i): t for i, t in TURNED}), "dicts.json": dumps({str(i): [{"caption": t}] for i, t in TURNED}), "results.json": dumps({"version": "1.0", "results": [{"image_id": i, "caption": t} for i, t in TURNED]}),
    "columns.json": dumps({"image_id": {str(k): i for k, (i, _) in enumerate(TURNED)}, "caption": {str(k): t for k, (_, t) in enumerate(TURNED)}}),
    "split.json": dumps({"columns": ["image_id", "caption"], "index": [0, 1, 2], "data": [[i, t] for i, t in TURNED]}), "index.json": dumps({str(k): {"image_id": i, "caption": t} for k, (i, t) in enumerate(TURNED)}),
    "table.json": dumps({"schema": {"fields": []}, "data": [{"index": k, "image_id": i, "caption": t} for k, (i, t) in enumerate(TURNED)]}), "lists.json": dumps({"image_id": [i for i, _ in TURNED], "caption": [t for _, t in TURNED]}),
    "samples.jsonl": lines(dumps({"doc_id": i, "target": "x", "resps": [[t]], "filtered_resps": [t]}) for i, t in TURNED), "lmms.json": dumps({"args": {}, "logs": [{"doc_id": i, "target": "x", "filtered_resps": [t]} for i, t in TURNED]}),
    "names.json": dumps([{"image": f"val2014/COCO_val2014_{i:012d}.jpg", "caption": t} for i, t in TURNED]), "video.json": dumps([{"video_id": str(i), "caption": t} for i, t in TURNED]),
    "twice.json": dumps([{"image_id": i, "caption": t} for i, t in (*TURNED, TURNED[0])]), "system.sgm": '<tstset setid="s" sysid="m"><DOC docid="d">' + lines(f'<seg id="{i}">{t}</seg>' for i, t in TURNED) + "</DOC></tstset>"}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions_of_every_format_meet_their_references(name, tmp_path):
    ref = '<refset refid="r"><doc docid="d">' + lines(f'<seg id="{i}">{FIRST[i]}</seg>' for i in IDS) + "</doc></refset>"
    target = put(tmp_path, "ref.sgm", ref) if name.endswith(".sgm") else {i: [t] for i, t in FIRST.items()}
    found = rouge(put(tmp_path, name, PREDICTIONS[name]), target)
    assert found.n == 3 and found.value == pytest.approx(ONE, abs=1e-4)


REFERENCES = {
    "coco.json": dumps({"images": [{"id": i, "file_name": f"COCO_{i:012d}.jpg"} for i in IDS], "annotations": [{"image_id": i, "id": k, "caption": t} for k, (i, t) in enumerate(FLAT)]}),
    "dataset_coco.json": dumps({"dataset": "coco", "images": [{"filename": f"COCO_{i:012d}.jpg", "cocoid": i, "imgid": 23 - k, "split": "test", "sentences": [{"raw": t} for t in r]} for k, (i, r) in enumerate(zip(IDS, REFS))]}),
    "flickr30k.json": dumps({"images": [{"filename": f"{i}.jpg", "imgid": 23 - k, "split": "test", "sentences": [{"tokens": t.split()} for t in r]} for k, (i, r) in enumerate(zip(IDS, REFS))]}),
    "results.token": lines(f"{i}.jpg#{k % 2}\t{t}" for k, (i, t) in enumerate(FLAT)), "token.txt": lines(f"{i}.jpg#{k % 2}\t{t}" for k, (i, t) in enumerate(FLAT)),
    "results.csv": "image_name| comment_number| comment\n" + lines(f"{i}.jpg| {k % 2}| {t}" for k, (i, t) in enumerate(FLAT)), "captions.txt": "image,caption\n" + lines(f"{i}.jpg,{t}" for i, t in FLAT),
    "clotho.csv": "file_name,caption_1,caption_2,caption_3\n" + lines(f"{i}.wav,{r[0]},{r[1]}," for i, r in zip(IDS, REFS)), "blip.json": dumps([{"image": f"val2014/COCO_val2014_{i:012d}.jpg", "caption": list(r)} for i, r in zip(IDS, REFS)]),
    "lavis.json": dumps([{"caption": t, "image": f"val/{i}.jpg", "image_id": f"coco_{i}"} for i, t in FLAT]), "msrvtt.json": dumps({"videos": [{"video_id": f"video{i}"} for i in IDS], "sentences": [{"caption": t, "video_id": f"video{i}", "sen_id": k} for k, (i, t) in enumerate(FLAT)]}),
    "vatex.json": dumps([{"videoID": f"v_{i}", "enCap": list(r), "chCap": ["一"]} for i, r in zip(IDS, REFS)]), "activitynet.json": dumps({f"v_{i}": {"duration": 3.5, "timestamps": [[0, 1], [1, 2]], "sentences": list(r)} for i, r in zip(IDS, REFS)}),
    "log.jsonl": lines(dumps({"id": i, "references": r}) for i, r in zip(IDS, REFS)), "refs.tsv": "caption\tid\n" + lines(f"{t}\t{i}" for i, t in FLAT), "tabs.txt": lines(f"{i}\t{t}" for i, t in FLAT),
    "vizwiz.json": dumps({"images": [], "annotations": [{"image_id": i, "caption": t, "is_rejected": False, "is_precanned": False} for i, t in FLAT]
                          + [{"image_id": 21, "caption": PRED[0], "is_rejected": True, "is_precanned": False}, {"image_id": 22, "caption": PRED[1], "is_rejected": False, "is_precanned": True}]}),
    "squad.json": dumps({"data": [{"id": i, "answers": {"text": list(r), "answer_start": [0, 0]}} for i, r in zip(IDS, REFS)]})}


@pytest.mark.parametrize("name", REFERENCES)
def test_references_of_every_format_meet_their_predictions(name, tmp_path):
    pred = [{"image_id": i, "caption": t} for i, t in TURNED]
    found = rouge(pred, put(tmp_path, name, REFERENCES[name]))
    assert found.n == 3 and found.value == pytest.approx(BOTH, abs=1e-4)


BY_ORDER = { # predictions -> references
    ("hyp.txt", lines(PRED)): [("ref.txt", "\n".join(lines(r) for r in REFS)), ("ref.tsv.txt", lines("\t".join(r) for r in REFS)), ("ref.json", dumps({"language": "en", "values": [{"target": r} for r in REFS]}))],
    ("gem.json", dumps({"values": PRED, "language": "en"})): [("gem_ref.json", dumps({"values": [{"target": r} for r in REFS]})), ("ref.json", dumps([list(r) for r in REFS])), ("both.json", dumps({"predictions": PRED, "references": REFS}))],
    ("both.json", dumps({"predictions": PRED, "references": REFS})): [("both.json", dumps({"predictions": PRED, "references": REFS}))]}


@pytest.mark.parametrize("pred, target", [(pred, target) for pred, targets in BY_ORDER.items() for target in targets], ids=lambda file: file[0])
def test_what_has_no_ids_goes_by_order_and_says_so(pred, target, tmp_path):
    found = rouge(put(tmp_path, *pred), put(tmp_path, *target))
    assert found.n == 3 and found.value == pytest.approx(BOTH, abs=1e-4)
    records = "target" in target[1] or pred[0] == "gem.json" and target[0] == "both.json" # objects, in which no key is an id
    assert bool([n for n in found.notes if "paired by their order" in n]) == records


def test_segments_of_xml_go_by_order_where_the_other_side_is_lines(tmp_path):
    xml = ('<?xml version="1.0"?><dataset id="newstest2021"><doc id="d" origlang="en"><src lang="en"><p>' + lines(f'<seg id="{i}">Quelle {i}</seg>' for i in (1, 2, 3)) + '</p></src><ref lang="de" translator="A"><p>'
           + lines(f'<seg id="{i}">{r[0]}</seg>' for i, r in enumerate(REFS, 1)) + '</p></ref><ref lang="de" translator="B"><p>' + lines(f'<seg id="{i}">{r[1]}</seg>' for i, r in enumerate(REFS, 1))
           + '</p></ref><hyp system="X" language="de"><p>' + lines(f'<seg id="{i}">{t}</seg>' for i, t in enumerate(PRED, 1)) + "</p></hyp></doc></dataset>")
    file = put(tmp_path, "wmt.xml", xml)
    found = rouge(put(tmp_path, "hyp.txt", lines(PRED)), file)
    assert found.value == pytest.approx(BOTH, abs=1e-4) and "paired by their order" in found.notes[0]
    assert rouge(file, file).value == pytest.approx(BOTH, abs=1e-4) and rouge(file, file, field="target=A").value == pytest.approx(ONE, abs=1e-4)
    assert load_texts(file, "source").items == ["Quelle 1", "Quelle 2", "Quelle 3"]
    assert "1 without a prediction" not in refused(rouge, put(tmp_path, "short.txt", lines(PRED[:2])), file)


STRANGE = { # what looks like another format, and is none that can be read
    "a headless table": ("hyp.csv", lines(f"{i},{t.replace(',', '')}" for i, t in TURNED), "a table without a heading that names texts"), "names of pictures": ("hyp.txt", lines(f"{i}.jpg {t}" for i, t in TURNED), "the name of a file"),
    "numbers and commas": ("hyp.txt", lines(f"{i},{t}" for i, t in TURNED), "a number and a separator"), "quoted lines": ("hyp.txt", lines(f'"{t}"' for t in PRED), "in quotation marks"), "ids of videos": ("hyp.txt", lines(f"vid{i}_5_15 {t}" for i, t in TURNED), "something like an id"),
    "ids at the end": ("hyp.txt", lines(f"{t} (utt_{i})" for i, t in TURNED), "ends with something like an id"), "fairseq": ("gen.txt", lines(f"{x}-{i}\t{t}" for i, t in enumerate(PRED) for x in "STH"), "a log of fairseq"), "an unknown heading": ("hyp.csv", "photo,words\n21,a dog\n", "name the column: --field pred=NAME"),
    "a heading alone?": ("hyp.txt", lines(("caption", *PRED)), "a heading, or a text?"), "cut JSON": ("hyp.txt", '[{"image_id": 21, "caption": "a', "not JSON"), "a tag in a segment": ("hyp.sgm", '<tstset><seg id="1">an <unk> dog</seg></tstset>', "a tag <unk> in segment 1"),
    "an unclosed quotation": ("hyp.csv", 'image_id,caption\n21,"a dog\n22,a cat\n', "line 3"), "two texts in a record": ("hyp.json", dumps([{"image_id": 21, "output": "a", "response": "b"}]), "both hold texts; say which is meant: --field pred=output"),
    "no texts": ("hyp.json", dumps({"accuracy": 0.5, "config": {"a": 1}}), "which is no known format"), "scores": ("hyp.jsonl", dumps({"image_id": 21, "score": 1}), "no text in it that is known by its name; it has image_id, score"),
    "columns of tabs": ("hyp.txt", lines(f"{t}\tx" for t in PRED), "say which holds the text: --field pred=2"), "a key twice": ("hyp.json", '{"21": "a", "21": "b"}', "stands there twice"), "pairs": ("hyp.json", dumps([["21", "a dog"], ["22", "a cat"]]), "pairs of an id and a text?"),
    "two texts": ("hyp.json", dumps([{"image_id": 21, "caption": "a"}, {"image_id": 21, "caption": "b"}]), "21 has two texts"), "some ids": ("hyp.json", dumps([{"image_id": 21, "caption": "a"}, {"caption": "b"}]), "record 2 has none"), "numbers": ("hyp.json", "[1, 2]", "number 1 is int")}


@pytest.mark.parametrize("name, text, says", STRANGE.values(), ids=STRANGE)
def test_what_looks_like_another_format_is_refused(name, text, says, tmp_path):
    assert says in refused(load_texts, put(tmp_path, name, text))


def test_lines_that_are_lines_stay_lines(tmp_path):
    for text in (["[music] people clap", "a dog"], ["2 dogs run", "3 cats sit"], ['"Stop," she said.', "a dog"], ["a, b and c", "d, e"], ["", "a dog"], ["{x} in a set", "b"]):
        assert load_texts(put(tmp_path, "hyp.txt", lines(text))).items == text


def test_ids_meet_however_they_are_written(tmp_path):
    refs = {i: [t] for i, t in FIRST.items()}
    for write in (str, lambda i: f"{i:012d}", lambda i: f"{i}.jpg", lambda i: f"a/b/{i}.png", lambda i: f"COCO_val2014_{i:012d}.jpg"):
        assert rouge({write(i): t for i, t in TURNED}, refs).value == pytest.approx(ONE, abs=1e-4)
    composed, apart = (lambda i: unicodedata.normalize("NFC", f"café {i}.jpg")), (lambda i: unicodedata.normalize("NFD", f"café {i}.jpg"))
    found = rouge({composed(i): t for i, t in TURNED}, {apart(i): [t] for i, t in FIRST.items()})
    assert found.value == pytest.approx(ONE, abs=1e-4) and "Unicode form" in found.notes[0]
    assert "no id is on both sides: pred has x_21, x_22, x_23, target has y_21, y_22, y_23" in refused(rouge, {f"x_{i}": t for i, t in TURNED}, {f"y_{i}": [t] for i, t in FIRST.items()})


@pytest.mark.parametrize("pred, target", [({"a": "a dog runs"}, {21: ["a dog"]}), ({"a": ["a dog runs"]}, {"b": ["a dog"]}), ({21: [{"caption": "a dog runs"}]}, {22: [{"caption": "a dog"}]}), ({"a b": "a dog runs"}, [["a dog"]])])
def test_dicts_without_a_common_id_are_no_files(pred, target):
    assert "No such file" not in (message := refused(rouge, pred, target)) and ("no id is on both sides" in message or "an id is no number" in message)


def test_another_shared_key_names_the_items_and_is_said(tmp_path):
    pred = put(tmp_path, "p.json", dumps([{"segment": f"s{i}", "caption": t} for i, t in TURNED]))
    found = rouge(pred, put(tmp_path, "t.json", dumps([{"segment": f"s{i}", "caption": t} for i, t in FLAT])))
    assert found.value == pytest.approx(BOTH, abs=1e-4) and "paired by segment" in found.notes[0]
    other = put(tmp_path, "o.json", dumps([{"target": r} for r in REFS]))
    assert "its records differ in 'segment'" in refused(rouge, pred, other)
    assert rouge(put(tmp_path, "q.json", dumps([{"segment": f"s{i}", "caption": t} for i, t in TURNED[::-1]])), other, key="pred=order").value == pytest.approx(BOTH, abs=1e-4)


def test_the_field_and_the_id_can_be_named(tmp_path):
    pred = put(tmp_path, "p.csv", "photo,words,text\n" + lines(f'{i},"{t}",nothing' for i, t in TURNED))
    refs = {i: [t] for i, t in FIRST.items()}
    assert rouge(pred, refs, field="pred=words", key={"pred": "photo"}).value == pytest.approx(ONE, abs=1e-4)
    nested = put(tmp_path, "n.jsonl", lines(dumps({"id": i, "doc": {"answer": t}}) for i, t in TURNED))
    assert rouge(nested, refs, field=["pred=doc.answer"]).value == pytest.approx(ONE, abs=1e-4)
    assert rouge(put(tmp_path, "t.txt", lines(f"{i}\tx\t{t}" for i, t in TURNED)), refs, field="pred=3", key="pred=1").value == pytest.approx(ONE, abs=1e-4)
    assert "no 'nope' in it; it has photo, words, text" in refused(rouge, pred, refs, field="pred=nope")
    assert "the sides are pred, target, source" in refused(rouge, pred, refs, field="left=words")
    assert "without names; leave out" in refused(rouge, put(tmp_path, "h.txt", lines(PRED)), refs, field="pred=words")


def test_equal_texts_of_one_id_count_once_with_a_note():
    found = rouge([{"image_id": i, "caption": t} for i, t in (*TURNED, TURNED[0])], {i: [t] for i, t in FIRST.items()})
    assert found.n == 3 and "1 ids come twice with the same text and count once: 23" in found.notes[0]


def test_what_people_rejected_is_left_out_and_counted(tmp_path):
    target = put(tmp_path, "v.json", REFERENCES["vizwiz.json"])
    assert load_references(target).notes == ("2 of 8 captions are left out, as VizWiz does: 1 rejected and 1 precanned",)
    assert load_captions(target).references == [*REFS]


def test_a_command_says_what_it_recognized(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "p.csv", PREDICTIONS["a.csv"]), put(tmp_path, "r.json", REFERENCES["coco.json"]), put(tmp_path, "h.txt", lines(PRED))
    assert main("score rouge-l --pred p.csv --target r.json --ci none --id pred=image_id".split()) == 0
    assert capsys.readouterr().err.splitlines() == ["p.csv: CSV, 3 captions by image_id", "r.json: COCO annotations, 6 captions by image_id"]
    assert main("score diversity --pred h.txt --ci none".split()) == 0 and "lines" not in capsys.readouterr().err


@pytest.mark.parametrize("words", ["probe captioning --pred p.csv --target r.json --metrics rouge-l --scale quick", "advise captioning --pred p.csv --target r.json --metrics rouge-l --scale quick", "power rouge-l --pred p.csv --target r.json"])
def test_the_other_commands_have_the_same_door(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "p.csv", "21,a dog\n22,a cat\n"), put(tmp_path, "r.json", REFERENCES["coco.json"])
    assert main(words.split()) == 2 and "a table without a heading that names texts" in capsys.readouterr().err
    put(tmp_path, "p.csv", "image_id,words\n21,a dog\n22,a cat\n")
    assert main([*words.split(), "--field", "pred=nope"]) == 2 and "no 'nope' in it; it has image_id, words" in capsys.readouterr().err


def test_a_file_of_a_million_brackets_is_refused_quickly(tmp_path):
    assert "not JSON" in refused(read_text_file, put(tmp_path, "deep.json", "["*1_000_000))


@pytest.mark.parametrize("name", ["captions.txt", "blip.json", "msrvtt.json", "clotho.csv", "vizwiz.json", "dataset_coco.json"])
def test_annotations_of_rankings_have_the_same_door(name, tmp_path):
    held = load_annotations(put(tmp_path, name, REFERENCES[name]))
    assert held.captions == REFS and any("people rejected, left out: 2" in note for note in held.notes) == (name == "vizwiz.json")


def test_ids_that_look_like_numbered_columns_are_ids():
    for stem in ("sentence-", "caption", "ref_", "text"):
        held = {f"{stem}{k}": [f"a cat {k}", "a dog"] for k in range(3)}
        found = load_references(held)
        assert list(found.names) == list(held) and [tuple(refs) for refs in found.items] == [tuple(refs) for refs in held.values()]
    columns = {"image_id": [7, 8], "caption_1": ["a cat", "a dog"], "caption_2": ["the cat", "the dog"]}
    assert dict(zip((found := load_references(columns)).names, map(tuple, found.items))) == {"7": ("a cat", "the cat"), "8": ("a dog", "the dog")}


def test_what_the_door_did_has_a_code(tmp_path):
    from invariant_metrics.scoring.score import score
    refs = {"21.jpg": ["a cat sat"], "7.jpg": ["a dog ran"]}
    for pred, code in (({"21": "a cat sat", "7": "a dog ran"}, "matched"), ([{"caption": "a cat sat"}, {"caption": "a dog ran"}], "by-order")):
        target = refs if code == "matched" else [{"references": r} for r in refs.values()]
        notes = score(pred, target, ["rouge-l"], ci=False)["rouge-l"].notes
        assert code in {note.code for note in notes}, (code, notes)
    flags = {"is_rejected": True, "is_precanned": False}
    held = [{"image_id": 1, "caption": "a cat", **flags}, {"image_id": 1, "caption": "a gray cat", **dict.fromkeys(flags, False)}]
    (tmp_path/"vizwiz.json").write_text(json.dumps({"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"id": k, **row} for k, row in enumerate(held)]}))
    note, = [note for note in score({"1": "a cat"}, tmp_path/"vizwiz.json", ["rouge-l"], ci=False)["rouge-l"].notes if "left out" in note]
    assert note.code == "left-out"


# ---- spreadsheets and parquet

def sheet(path, *rows, **more):
    openpyxl = pytest.importorskip("openpyxl", reason="spreadsheets need the extra `xlsx`")
    book = openpyxl.Workbook()
    for row in rows: book.active.append(row)
    for name, cells in more.items(): book.create_sheet(name).append(cells)
    book.save(path)
    return path


@pytest.mark.parametrize("ending", ["xlsx", "parquet"])
def test_a_spreadsheet_and_a_parquet_file_give_the_number_of_their_csv(ending, tmp_path):
    "Texts with commas, quotes and line breaks, ids as text with zeros and as numbers: as in the CSV, on either side and in a command."
    rows = [("007", 'A cat, a "big" one.'), ("8", "A dog\nruns."), ("9", "a bird, by the sea")]
    pred, refs = (pd.DataFrame([(i, text, 5) for i, text in side], columns=["image_id", "caption", "votes"]) for side in (rows, [(i, f"{t} Yes.") for i, t in rows[::-1]]))
    for name, frame in (("pred", pred), ("refs", refs)):
        frame.to_csv(tmp_path/f"{name}.csv", index=False)
        if ending == "parquet": frame.to_parquet(tmp_path/f"{name}.parquet")
        else: sheet(tmp_path/f"{name}.xlsx", [*frame], *frame.itertuples(index=False))
    plain = im.score(tmp_path/"pred.csv", tmp_path/"refs.csv", ["bleu"], ci=False, cache=False)["bleu"].value
    for a, b in ((ending, ending), ("csv", ending), (ending, "csv")):
        assert im.score(tmp_path/f"pred.{a}", tmp_path/f"refs.{b}", ["bleu"], ci=False, cache=False)["bleu"].value == plain
    done = cli("score", "bleu", "--pred", f"pred.{ending}", "--target", f"refs.{ending}", "--ci", "none", cwd=tmp_path)
    assert done.returncode == 0 and f"pred.{ending}: {'spreadsheet' if ending == 'xlsx' else 'parquet'}, 3 captions by image_id" in done.stderr
    named = cli("score", "bleu", "--pred", f"pred.{ending}", "--target", f"refs.{ending}", "--ci", "none", "--field", "votes", cwd=tmp_path)
    assert named.returncode == 2 and "not texts" in named.stderr # numbers are no texts
    lost = cli("score", "bleu", "--pred", f"pred.{ending}", "--target", f"refs.{ending}", "--ci", "none", "--field", "vots", cwd=tmp_path)
    assert lost.returncode == 2 and f"pred.{ending}, row {2 if ending == 'xlsx' else 1}: no 'vots' in it; it has image_id, caption, votes" in lost.stderr


def test_lists_of_references_and_pictures_in_parquet(tmp_path):
    "A data set as it is published: references in lists, pictures as bytes beside them, which are not read."
    frame = pd.DataFrame({"image": [{"bytes": b"x"*1000, "path": f"{i}.jpg"} for i in range(3)], "filename": [f"{i}.jpg" for i in range(3)], "captions": [[f"a cat {i}", f"the cat {i}"] for i in range(3)]})
    frame.to_parquet(tmp_path/"refs.parquet")
    file = read_text_file(tmp_path/"refs.parquet", "target")
    assert str(file) == "parquet, 6 captions by filename" and [r.texts for r in file.records] == frame["captions"].map(list).tolist()
    assert "image" not in file.records[0].ids and load_captions(tmp_path/"refs.parquet").names == ["0.jpg", "1.jpg", "2.jpg"]


@pytest.mark.parametrize("rows, more, says", [
    ([["image_id", "caption"], [1, "a cat"]], {"two": ["by Ada"]}, "2 sheets with something in them: Sheet, two; keep one, or save the one that is meant as CSV"),
    ([["image_id", None], [1, "a cat"]], {}, "row 1: a heading is a text, and one of them is empty"),
    ([["image_id", 3], [1, "a cat"]], {}, "row 1: a heading is a text, and one of them is 3"),
    ([["caption", "caption"], ["a", "b"]], {}, "two columns are called 'caption'"),
    ([["image_id", "votes"], [1, "a cat"]], {}, "row 2: no text in it that is known by its name; it has image_id, votes; name it: --field pred=NAME"),
    ([["image_id", "caption"], [1, None]], {}, "1 items are not texts"), ([["image_id", "caption"], [1, 2020]], {}, "1 items are not texts"),
    ([["image_id", "caption"]], {}, "it is empty"), ([[]], {}, "it is empty")])
def test_sheets_that_are_no_table_of_texts_are_refused_in_a_line(rows, more, says, tmp_path):
    sheet(tmp_path/"s.xlsx", *rows, **more)
    with pytest.raises(InputError) as refused: load_texts(tmp_path/"s.xlsx")
    assert says in str(refused.value) and "\n" not in str(refused.value), refused.value


def test_damaged_and_huge_files_of_cells_are_refused_in_a_line(tmp_path, monkeypatch):
    good = sheet(tmp_path/"good.xlsx", ["caption"], *[["a cat"]]*50)
    pd.DataFrame({"caption": ["a cat"]*50}).to_parquet(tmp_path/"good.parquet")
    for path in (good, tmp_path/"good.parquet"):
        data = path.read_bytes()
        for k, part in enumerate((b"", data[:4], data[:len(data)//2], data[:-9], b"a cat\na dog\n")):
            (tmp_path/f"bad{k}{path.suffix}").write_bytes(part)
            with pytest.raises(InputError, match="is not a readable") as refused: load_texts(tmp_path/f"bad{k}{path.suffix}")
            assert "\n" not in str(refused.value)
        monkeypatch.setattr("invariant_metrics.data.texts._UNPACKED", 10)
        with pytest.raises(InputError, match="unpacks to more than .*; give a part of it"): load_texts(path)
        monkeypatch.undo()
        path.rename(path.with_suffix(".csv"))
        with pytest.raises(InputError, match="not UTF-8"): load_texts(path.with_suffix(".csv"))
    for name in ("a.xls", "a.ods"):
        (tmp_path/name).write_bytes(b"x")
        with pytest.raises(InputError, match="of spreadsheets .xlsx is read; save it as that, or as CSV"): load_texts(tmp_path/name)


def test_pairs_of_sentences_in_parquet(tmp_path):
    rows = [{"id": f"s{i}", "translation": {"de": f"Satz {i}.", "en": f"Sentence {i}."}} for i in range(3)]
    pd.DataFrame(rows).to_parquet(tmp_path/"train.parquet")
    found = load_parallel(tmp_path/"train.parquet")
    assert found.source == ["Satz 0.", "Satz 1.", "Satz 2."] and found.names == ["s0", "s1", "s2"] and found.split == ["train"]*3
