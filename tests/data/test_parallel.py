"Parallel texts and captions: every format by hand, the real files, and everything that does not fit said in one line."
import json

import pytest

from invariant_metrics.data.parallel import CaptionSet, ParallelTexts, load_captions, load_parallel, parallel_files
from handmade import fails, put
from real_data import data_path


@pytest.fixture
def corpus(tmp_path):
    for split, n in (("train", 3), ("valid", 2), ("test", 1)):
        put(tmp_path, f"{split}.de", "".join(f"{split} deutsch {i}\n" for i in range(n)))
        put(tmp_path, f"{split}.en", "".join(f"{split} english {i}\n" for i in range(n)))
    return tmp_path


# parallel

def test_a_folder_has_its_splits_and_names_of_lines(corpus):
    pairs = load_parallel(corpus)
    assert isinstance(pairs, ParallelTexts) and len(pairs) == 6 and pairs.notes == ()
    assert sorted(pairs.names) == ["test:1", "train:1", "train:2", "train:3", "valid:1", "valid:2"]
    train = pairs.part("train")
    assert train.source == [f"train deutsch {i}" for i in range(3)] and train.references == [(f"train english {i}",) for i in range(3)]
    assert len(pairs.part("validation")) == 2 and len(pairs.part("test")) == 1
    assert fails(load_parallel(corpus).part, "extra") == f"{corpus}: no 'extra' in it; there is test, train, validation"


def test_languages_go_either_way_and_gzip_is_read(corpus):
    (corpus/"test.en").unlink()
    put(corpus, "test.en.gz", "test english 0\n")
    put(corpus, "readme.md", "hello")
    there, back = load_parallel(corpus), load_parallel(corpus, "en", "de")
    assert [(s,) for s in there.source] == back.references and [(s,) for s in back.source] == there.references


@pytest.mark.parametrize("stem, split", [("train", "train"), ("val", "validation"), ("dev", "validation"), ("test_2016_flickr", "test"), ("europarl-v7.de-en", "train"),
                                         ("commoncrawl.de-en", "train"), ("newstest2013", "validation"), ("newstest2014", "test"),
                                         ("IWSLT14.TED.tst2012.de-en", "test"), ("tst2013", "test"), ("IWSLT14.TED.dev2010", "validation"),
                                         ("device", ""), ("values", ""), ("testament", ""), ("other", "")])
def test_splits_by_the_names_they_go_by(tmp_path, stem, split):
    put(tmp_path, f"{stem}.de", "a\n"), put(tmp_path, f"{stem}.en", "b\n")
    assert load_parallel(tmp_path).split == [split]


def test_the_files_that_are_read_are_named(corpus):
    put(corpus, "readme.md", "hello")
    assert [f.name for f in parallel_files(corpus)] == ["test.de", "test.en", "train.de", "train.en", "valid.de", "valid.en"]
    assert [f.name for f in parallel_files(corpus, "en", "de")][:2] == ["test.en", "test.de"]
    assert parallel_files((corpus/"train.de", corpus/"test.en")) == [corpus/"train.de", corpus/"test.en"] and parallel_files(corpus/"readme.md") == [corpus/"readme.md"]
    assert fails(parallel_files, corpus/"gone.tsv") == f"{corpus/'gone.tsv'}: no such file or folder"
    assert "no files that end in .fr" in fails(parallel_files, corpus, "fr", "it")


def test_iwslt_as_it_is_unpacked(tmp_path):
    put(tmp_path, "train.tags.de-en.de", "<url>http://x</url>\n<title>Titel</title>\n Hallo.\nDanke.\n")
    put(tmp_path, "train.tags.de-en.en", "<url>http://x</url>\n<title>Title</title>\n Hello.\nThanks.\n")
    for name, a, b in (("TED.dev2010", "Ja.", "Yes."), ("TEDX.dev2012", "Nein.", "No."), ("TED.tst2010", "Gut.", "Good.")):
        for language, text in (("de", a), ("en", b)):
            put(tmp_path, f"IWSLT14.{name}.de-en.{language}.xml", f'<?xml version="1.0"?>\n<mteval>\n<srcset><doc docid="1">\n<seg id="1"> {text} </seg>\n</doc></srcset>\n</mteval>\n')
    pairs = load_parallel(tmp_path)
    assert pairs.part("train").source == ["Hallo.", "Danke."] and pairs.part("train").references == [("Hello.",), ("Thanks.",)]
    assert sorted(pairs.part("validation").source) == ["Ja.", "Nein."] and pairs.part("test").references == [("Good.",)]


def test_two_files_and_windows_lines(tmp_path):
    pairs = load_parallel((put(tmp_path, "a.txt", "\ufeffeins\r\nzwei\r\n"), put(tmp_path, "b.txt", "one\ntwo")))
    assert (pairs.names, pairs.source, pairs.references, pairs.split) == (["1", "2"], ["eins", "zwei"], [("one",), ("two",)], ["", ""])


def test_segments_of_evaluation_campaigns(tmp_path):
    put(tmp_path, "newstest2014-deen-src.de.sgm", '<srcset><doc id="1">\n<seg id="1">Eins &amp; zwei</seg>\n<seg id="2">drei</seg></doc></srcset>')
    put(tmp_path, "newstest2014-deen-ref.en.sgm", '<refset>\n<seg id="1">One &amp; two</seg>\n<seg id="2">three</seg></refset>')
    put(tmp_path, "train.tags.de-en.de", "<url>http://x</url>\nHallo\n<title>T</title>\nDanke\n")
    put(tmp_path, "train.tags.de-en.en", "<url>http://x</url>\nHello\n<keywords>k</keywords>\nThanks\n")
    pairs = load_parallel(tmp_path)
    assert pairs.part("test").source == ["Eins & zwei", "drei"] and pairs.part("train").references == [("Hello",), ("Thanks",)]


def test_tables_and_objects(tmp_path):
    table = load_parallel(put(tmp_path, "t.tsv", "eins\tone\tsingle\nzwei\ttwo\n"))
    assert table.references == [("one", "single"), ("two",)] and table.source == ["eins", "zwei"]
    assert load_parallel(put(tmp_path, "h.tsv.gz", "en\tde\none\teins\n")).source == ["eins"]
    rows = [{"id": "x", "de": "eins", "en": ["one", "single"], "split": "train"}, {"translation": {"de": "zwei", "en": "two"}}]
    pairs = load_parallel(put(tmp_path, "o.jsonl.gz", "\n".join(map(json.dumps, rows))))
    assert (pairs.names, pairs.source, pairs.references, pairs.split) == (["x", "2"], ["eins", "zwei"], [("one", "single"), ("two",)], ["train", ""])


def test_empty_lines_are_left_out_and_counted(tmp_path):
    pairs = load_parallel((put(tmp_path, "a", "eins\n\ndrei\nvier\n"), put(tmp_path, "b", "one\ntwo\n \nfour\n")))
    assert pairs.names == ["1", "4"] and pairs.notes == ("2 of 4 left out, empty on a side: 2, 3",)
    assert "all 2 of its items are empty on a side" in fails(load_parallel, (put(tmp_path, "c", "\n\n"), put(tmp_path, "d", "one\ntwo\n")))
    assert "it is empty" in fails(load_parallel, (put(tmp_path, "e", ""), put(tmp_path, "f", "")))


def test_files_that_do_not_fit_are_named(corpus):
    put(corpus, "train.en", "one\ntwo\n")
    assert "train.de has 3 lines and train.en has 2; they go line by line, and train.en lacks one at or before line 3" in fails(load_parallel, corpus)
    put(corpus, "train.en", "one\n\ntwo\nthree\n")
    assert fails(load_parallel, corpus).endswith("train.de lacks one at or before line 4; line 2 is the first that is empty in one of them only, train.en")
    (corpus/"train.en").unlink()
    assert "train.de without the other language" in fails(load_parallel, corpus)
    put(corpus, "train.en", "1\n2\n3\n"), put(corpus, "train.en.gz", "1\n2\n3\n")
    assert "train in en twice" in fails(load_parallel, corpus)
    (corpus/"train.en.gz").unlink()
    put(corpus, "train.lc.norm.de", "a\n"), put(corpus, "train.lc.norm.en", "a\n")
    assert "train and train.lc.norm look like one text in two versions" in fails(load_parallel, corpus)


def test_what_is_no_parallel_text_is_said_so(tmp_path):
    assert "no files that end in .de or .en" in fails(load_parallel, tmp_path)
    assert "no such file or folder" in fails(load_parallel, tmp_path/"gone")
    assert "unknown format" in fails(load_parallel, put(tmp_path, "x.docx", "hello"))
    assert "a pair of files is two" in fails(load_parallel, (tmp_path,))
    assert "line 2: no tab in it" in fails(load_parallel, put(tmp_path, "x.tsv", "a\tb\nc\n"))
    assert "line 2: not JSON" in fails(load_parallel, put(tmp_path, "x.jsonl", '{"de": "a", "en": "b"}\n{\n'))
    assert "line 1: no 'de'; it has fr, en" in fails(load_parallel, put(tmp_path, "y.jsonl", '{"fr": "a", "en": "b"}\n'))
    assert "line 1: expected a text or a list of them" in fails(load_parallel, put(tmp_path, "z.jsonl", '{"de": 3, "en": "b"}\n'))
    assert "line 1: expected an object, not list" in fails(load_parallel, put(tmp_path, "w.jsonl", '["de"]\n'))
    (tmp_path/"latin").write_bytes("schön\n".encode("latin-1"))
    assert "line 1: not UTF-8" in fails(load_parallel, (tmp_path/"latin", put(tmp_path, "u", "nice\n")))


def test_multi30k_as_it_is():
    pairs = load_parallel(data_path("multi30k/train_2000.jsonl.gz"))
    assert len(pairs) == 2000 and set(pairs.split) == {"train"} and pairs.notes == ()
    assert pairs.names[0] == "10002456.jpg" and pairs.references[0] == ("Several men in hard hats are operating a giant pulley system.",)
    assert pairs.source[0] == "Mehrere Männer mit Schutzhelmen bedienen ein Antriebsradsystem."


# captions

PETS = {"dog.jpg": ("A dog runs.", "A brown dog."), "cat.jpg": ("A cat sleeps.",)}


def coco(**more):
    return {"images": [{"id": 5, "file_name": "dog.jpg"}, {"id": 2, "file_name": "cat.jpg"}],
            "annotations": [{"image_id": i, "caption": c} for i, c in ((5, "A dog runs."), (2, "A cat sleeps."), (5, "A brown dog."))], **more}


@pytest.mark.parametrize("name, text", [
    ("captions_val2014.json", json.dumps(coco())),
    ("dataset_val.json.gz", json.dumps({"images": [{"filename": f, "split": "val", "sentences": [{"raw": c} for c in cs]} for f, cs in PETS.items()]})),
    ("val.token", "dog.jpg#0\tA dog runs.\ndog.jpg#1\tA brown dog.\ncat.jpg#0\tA cat sleeps.\n"),
    ("val_results.csv", "image_name| comment_number| comment\ndog.jpg| 0| A dog runs.\ndog.jpg| 1   A brown dog.\ncat.jpg| 0| A cat sleeps.\n"),
    ("val.jsonl.gz", "\n".join(json.dumps({"image_id": i, "file_name": f, "captions": cs}) for i, (f, cs) in enumerate(PETS.items())))])
def test_every_format_of_captions_holds_the_same(tmp_path, name, text):
    held = load_captions(put(tmp_path, name, text))
    assert isinstance(held, CaptionSet) and dict(zip(held.names, held.references)) == PETS and held.split == ["validation"] * 2


def test_karpathys_split_and_its_rest(tmp_path):
    images = [{"filename": f"{i}.jpg", "split": s, "sentences": [{"tokens": ["a", s]}]} for i, s in enumerate(("train", "restval", "val", "test"))]
    held = load_captions(put(tmp_path, "dataset_coco.json", json.dumps({"images": images})))
    assert held.split == ["train", "train", "validation", "test"] and held.references[1] == ("a restval",)


def two_parts(*splits): return {"images": [{"filename": f"{i}.jpg", "split": s, "sentences": [{"raw": f"{s} caption"}]} for i, s in splits]}


def test_a_picture_in_two_parts_is_refused_or_kept_for_the_later_one(tmp_path):
    twice = two_parts((0, "train"), (1, "restval"), (1, "test"), (2, "val"), (0, "val"), (3, "train"))
    file = put(tmp_path, "dataset_flickr8k.json", json.dumps(twice))
    assert "2 of 4 pictures are in two parts, 0.jpg in train and validation; take each out of one" in fails(load_captions, file)
    held = load_captions(file, skip_shared=True)
    assert dict(zip(held.names, held.split)) == {"0.jpg": "validation", "1.jpg": "test", "2.jpg": "validation", "3.jpg": "train"}
    assert dict(zip(held.names, held.references))["1.jpg"] == ("test caption",)
    assert held.notes == ("2 of 4 pictures are in two parts, and each is kept in the later one alone: 0.jpg, 1.jpg",)


def test_a_picture_that_comes_twice_in_one_part_is_one_picture(tmp_path):
    file = put(tmp_path, "dataset_coco.json", json.dumps(two_parts((0, "train"), (0, "restval"), (1, "val"))))
    for held in (load_captions(file), load_captions(file, skip_shared=True)):
        assert held.references == [("train caption", "restval caption"), ("val caption",)] and held.notes == ()


def test_commas_and_bars_inside_a_caption_stay(tmp_path):
    held = load_captions(put(tmp_path, "results.csv", "a.jpg| 0| Two dogs, one | red, run .\na.jpg| 1|  3 cats\n"))
    assert held.references == [("Two dogs, one | red, run .", "3 cats")]


@pytest.mark.parametrize("name, text", [
    ("a.csv", "image,caption\na.jpg,A dog.\nb.jpg,\"A cat, \"\"sleeping\"\".\"\na.jpg,One dog.\n"),
    ("a.csv", "\ufeffid;Caption;image;by\n1;A dog.;a.jpg;x\n2;A cat, \"sleeping\".;b.jpg;y\n3;One dog.;a.jpg;x\n"),
    ("a.tsv", "caption\tfile_name\r\nA dog.\ta.jpg\r\n\r\nA cat, \"sleeping\".\tb.jpg\r\nOne dog.\ta.jpg\r\n")])
def test_a_table_of_captions_is_read_by_its_headings(tmp_path, name, text):
    held = load_captions(put(tmp_path, name, text))
    assert (held.names, held.references) == (["a.jpg", "b.jpg"], [("A dog.", "One dog."), ('A cat, "sleeping".',)])
    assert held.split == ["", ""]


def test_a_table_of_captions_names_its_parts_and_the_line_that_is_none(tmp_path):
    held = load_captions(put(tmp_path, "a.csv", "split,image,caption\nval,a.jpg,A dog.\ntrain,b.jpg,A cat.\n"))
    assert held.split == ["validation", "train"]
    assert "line 3: 3 cells under 2 names of columns; put a text with a comma in it into double quotes" in fails(
        load_captions, put(tmp_path, "b.csv", "image,caption\na.jpg,A dog.\na.jpg,A dog, running.\n"))
    assert "line 3 has none" in fails(load_captions, put(tmp_path, "c.csv", "image,caption\na.jpg,A dog.\n,A dog.\n"))
    assert "it is empty" in fails(load_captions, put(tmp_path, "d.csv", "image,caption\n"))
    assert "nothing in it names pictures" in fails(load_captions, put(tmp_path, "e.csv", "scene,caption\na.jpg,A dog.\n"))
    assert load_captions(tmp_path/"e.csv", key="scene").names == ["a.jpg"]


def test_coco_without_file_names_goes_by_id(tmp_path):
    held = load_captions(put(tmp_path, "x.json", json.dumps(coco(images=[]))))
    assert held.names == ["5", "2"] and held.split == ["", ""]


def test_empty_captions_are_left_out_and_counted(tmp_path):
    held = load_captions(put(tmp_path, "a.token", "a.jpg#0\tA dog.\na.jpg#1\t \nb.jpg#0\t\n"))
    assert held.names == ["a.jpg"] and held.notes == ("1 of 2 left out, empty on a side: b.jpg", "2 of 3 captions are empty and left out")
    assert "all 1 of its items are empty" in fails(load_captions, put(tmp_path, "b.token", "b.jpg#0\t\n"))


def test_what_is_no_caption_is_named(tmp_path):
    assert "line 2: expected image.jpg#0" in fails(load_captions, put(tmp_path, "a.token", "a.jpg#0\tA dog.\nA cat.\n"))
    assert "a table without a heading that names texts" in fails(load_captions, put(tmp_path, "a.csv", "a.jpg,0,A dog.\n"))
    assert "a table without a heading that names texts" in fails(load_captions, put(tmp_path, "a.tsv", "a dog\thttps://example.org/a.jpg\n"))
    assert "expected texts or records, and number 1 is int" in fails(load_captions, put(tmp_path, "a.json", "[1]"))
    assert "not JSON" in fails(load_captions, put(tmp_path, "b.json", "{"))
    assert "annotation 1: needs image_id and caption" in fails(load_captions, put(tmp_path, "c.json", '{"annotations": [{"id": 1}]}'))
    assert "image 1: needs filename, sentences and split" in fails(load_captions, put(tmp_path, "d.json", '{"images": [{"id": 1}]}'))
    assert "1: expected a caption, not 3" in fails(load_captions, put(tmp_path, "e.json", '{"annotations": [{"image_id": 1, "caption": 3}]}'))
    assert "line 1: no text in it that is known by its name; it has id" in fails(load_captions, put(tmp_path, "f.jsonl", '{"id": 1}\n'))
    assert "it is empty" in fails(load_captions, put(tmp_path, "g.jsonl", ""))
    assert "nothing in it names pictures" in fails(load_captions, put(tmp_path, "g.txt", "hello"))
    assert "No such file" in fails(load_captions, tmp_path/"gone.xml")
    assert "cannot read" in fails(load_captions, tmp_path/"gone.json")


KARPATHY = {"filename": "a.jpg", "split": "val", "sentences": [{"raw": "A dog."}]}


@pytest.mark.parametrize("held, said", [
    (coco(images=[1, 2]), "image 1: expected an object with an id, not 1"), (coco(images=None), "expected a list of images, not None"),
    (coco(images=[{"id": [1], "file_name": "a.jpg"}]), "image 1: an id is a text or a number, not [1]"),
    (coco(images=[{"id": 5, "file_name": ["a"]}]), "image 1: expected a file_name, not ['a']"),
    ({"annotations": [{"image_id": [1], "caption": "a"}]}, "annotation 1: an id is a text or a number, not [1]"),
    ({"images": [KARPATHY | {"sentences": ["A dog."]}]}, "image 1, sentence 1: expected an object with a raw text or a list of tokens, not 'A dog.'"),
    ({"images": [KARPATHY | {"sentences": [{"tokens": [1]}]}]}, "image 1, sentence 1: expected an object"),
    ({"images": [KARPATHY | {"sentences": None}]}, "image 1: expected a list of sentences, not None"),
    ({"images": [KARPATHY | {"split": None}]}, "image 1: expected a split, not None"),
    ({"images": [KARPATHY, KARPATHY | {"filename": ["a.jpg"]}]}, "image 2: expected a filename, not ['a.jpg']")])
def test_a_malformed_record_is_named(tmp_path, held, said):
    assert said in fails(load_captions, put(tmp_path, "x.json", json.dumps(held)))


def test_a_caption_with_a_list_for_its_id_is_named(tmp_path):
    assert "line 1: an id is a text or a number, not [1]" in fails(load_captions, put(tmp_path, "x.jsonl", json.dumps({"image_id": [1], "captions": ["a"]})))


@pytest.mark.parametrize("row, said", [({"image_id": [1], "captions": ["a"]}, "line 1: expected a name, not [1]"),
                                       ({"id": 1, "captions": ["a"], "split": None}, "line 1: expected the name of a split, not None")])
def test_a_malformed_object_is_named(tmp_path, row, said):
    pair = {"id": row.get("image_id", 1), "de": "a", "en": "b", "split": row.get("split", "train")}
    assert said in fails(load_parallel, put(tmp_path, "y.jsonl", json.dumps(pair)))


def test_coco_captions_as_they_are():
    held = load_captions(data_path("coco_captions/val2017_1000.jsonl.gz"))
    assert len(held) == 1000 and held.names[0] == "000000000139.jpg" and set(held.split) == {"validation"} and min(map(len, held.references)) >= 5
    assert held.references[0][0] == "A woman stands in the dining area at the table."
