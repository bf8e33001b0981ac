"Annotations of pictures: the checked way in, every reader, streams that do not fill the memory, and the real files."
import gzip
import json
import tracemalloc
from zipfile import ZipFile

import numpy as np
import pytest
from real_data import data_path

from invariant_metrics.core import InputError
from invariant_metrics.data.annotation_files import AnnotationFile, load_annotations, _recognize_annotations, _stream_json
from invariant_metrics.data.annotations import annotate, _clip_boxes, scene_annotations
from invariant_metrics.data.wordnet import synset_number, wordnet
from invariant_metrics.worlds.scenes import make_scenes

NAN = float("nan")
UNKNOWN = {"stop_sign.n.01"} # the one synset of LVIS's map for COCO that WordNet 3.0 does not have


def error_of(action, *args, **options) -> str:
    "The message of the InputError that a call must raise; one line."
    with pytest.raises(InputError) as caught: action(*args, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def known(net, name: str) -> bool:
    try: return synset_number(net, name) >= 0
    except InputError: return False


def rows_of(held, i: int) -> list[tuple]: # name, synsets, box of the objects of a picture
    o, (low, high) = held.objects, held.bounds()[i:i + 2]
    return [(o.names[o.name[k]], [o.synsets[s] for s in o.sense[o.start[k]:o.start[k + 1]]], o.box[k].tolist()) for k in range(low, high)]


def records(n: int, seed: int = 0) -> list[dict]:
    "Pictures with everything, of random sizes; some have nothing."
    random, out = np.random.default_rng(seed), []
    for i in range(n):
        objects = [{"name": f"thing {random.integers(5)}", "synsets": [f"thing.n.0{k + 1}" for k in range(random.integers(3))],
                    "box": random.uniform(0, 50, 4).tolist()} for _ in range(random.integers(4))]
        out.append({"id": i, "width": 100, "height": 100, "captions": [f"caption {i}"] * int(random.integers(3)), "objects": objects,
                    "attributes": [("thing", f"color {i}")], "relations": [("a", "on", f"b {i}")], "picture": f"{i}.jpg"})
    return out


def test_columns_hold_what_the_records_say_and_take_keeps_it_together():
    made = records(40)
    held = annotate(iter(made))
    assert held.ids == tuple(str(i) for i in range(40)) and held.objects.box.dtype == np.float32
    expected = [[(o["name"], o["synsets"], np.float32(o["box"]).tolist()) for o in r["objects"]] for r in made]
    assert [rows_of(held, i) for i in range(40)] == expected
    order = np.random.default_rng(1).permutation(40)[:25]
    some = held.take(order)
    assert [rows_of(some, k) for k in range(25)] == [expected[i] for i in order]
    assert some.captions == tuple(held.captions[i] for i in order) and some.pictures == tuple(f"{i}.jpg" for i in order)
    assert some.attributes == tuple(frozenset({("thing", f"color {i}")}) for i in order)
    assert (np.diff(some.objects.image) >= 0).all()
    assert str(some.signature) == str(annotate([made[i] for i in order]).signature) # content alone, not the way it came
    mask = np.arange(40) % 3 == 0
    assert held.take(mask).ids == tuple(np.array(held.ids)[mask]) and len(held.take([])) == 0


def test_signature_changes_with_each_part_of_the_content_but_not_with_paths():
    base = {"id": 1, "width": 9, "height": 9, "captions": ["a"], "regions": ["b"], "objects": [{"name": "c", "synsets": ["c.n.01"], "box": [1, 2, 3, 4]}],
            "attributes": [("c", "d")], "relations": [("c", "on", "c")], "picture": "x.jpg"}
    changes = [{"id": 2}, {"width": 8}, {"captions": ["A"]}, {"regions": []}, {"attributes": [("c", "e")]}, {"relations": [("c", "in", "c")]},
               *({"objects": [{**base["objects"][0], **part}]} for part in ({"name": "e"}, {"synsets": ["c.n.02"]}, {"box": [1, 2, 3, 3]}))]
    signatures = {str(annotate([{**base, **change}]).signature) for change in ({}, *changes)}
    assert len(signatures) == len(changes) + 1
    assert str(annotate([{**base, "picture": "y.jpg"}]).signature) == str(annotate([base]).signature)


def test_what_cannot_be_meant_is_one_line_with_its_place():
    box = lambda held: [{"id": 7, "objects": [{"name": "dog", "box": held}]}]
    cases = [([{"id": 7}, {"id": "7"}], "record 2 (id 7): record 1 has the same id"), ([{"id": 7, "caption": ["A"]}], "unknown key 'caption'"),
             ([{"id": 7, "captions": "A dog."}], "(id 7), captions: expected a list"), ([{"id": 7, "captions": [3]}], "expected texts, not 3"),
             (["A dog."], "record 1: expected a dict"), ([{"captions": []}], "no id"), ([{"id": NAN}], "an id is a text or a number"), ([], "no pictures"),
             (box([1, 2, 3]), "object 1: a box is left, top, width, height"), (box([1, 2, 3, NAN]), "a box is"), (box("1234"), "a box is"),
             (box([1, 2, 3, None]), "a box is"), (box([1e308, 1, 1e308, 1]), "a box is"), ([{"id": 7, "objects": ["dog"]}], "object 1: expected an object"),
             ([{"id": 7, "objects": [{"name": 3}]}], "name: expected a text"), ([{"id": 7, "objects": [{"name": "dog", "synsets": "dog.n.01"}]}], "synsets: expected a list"),
             ([{"id": 7, "width": -5}], "width and height are whole numbers"), ([{"id": 7, "width": 1.5}], "whole numbers"), ([{"id": 7, "width": NAN}], "whole numbers"),
             ([{"id": 7, "attributes": [("dog",)]}], "expected (name, attribute)"), ([{"id": 7, "relations": [("a", "b")]}], "expected (subject, predicate, object)"),
             ([{"id": 7, "captions": ["a \ud800 dog"]}], "(id 7), captions: character 3 is half a character"), ([{"id": 7, "objects": [{"name": "\udfff"}]}], "half a character"),
             ([{"id": 7, "picture": 3}], "expected the path"), ({"id": 7}, "expected a list of records"), ("a.json", "expected a list of records")]
    for wrong, part in cases: assert part in error_of(annotate, wrong), part
    held = annotate(records(3))
    assert "named twice" in error_of(held.take, [0, 0]) and "between 0 and 2" in error_of(held.take, [3])


def test_boxes_are_cut_or_lost_and_counted_and_what_was_mended_is_told():
    boxes = np.array([[0, 0, 10, 8], [-3, -2, 5, 5], [8, 6, 9, 9], [10, 0, 3, 3], [1, 1, 0, 4], [1, 1, -2, 4], [9.7, 0, .6, 1], [NAN] * 4])
    out, cut, lost = _clip_boxes(boxes, np.array([[10, 8]] * 8))
    assert np.array_equal(out[:3], np.float32([[0, 0, 10, 8], [0, 0, 2, 3], [8, 6, 2, 2]]))
    assert cut.tolist() == [False, True, True, False, False, False, False, False]  # 0.3 of a pixel is a rounding
    assert lost.tolist() == [False, False, False, True, True, True, False, False] and np.isnan(out[lost | np.isnan(boxes[:, 0])]).all()
    free, *_ = _clip_boxes(boxes[2:4], np.zeros((2, 2), int)) # no size known: nothing to be cut at the right
    assert np.array_equal(free, np.float32(boxes[2:4]))
    many = np.random.default_rng(0).uniform(-20, 120, (2**18 + 5, 4))
    parts = [_clip_boxes(many[rows], np.full((len(many[rows]), 2), 100)) for rows in (slice(0, 2**17), slice(2**17, None))]
    for whole, *halves in zip(_clip_boxes(many, np.full((len(many), 2), 100)), *parts): assert np.array_equal(whole, np.concatenate(halves), equal_nan=True)
    held = annotate([{"id": 1, "width": 10, "height": 8, "captions": ["a", " "], "attributes": [("dog", "")],
                      "objects": [{"name": "Big  Dog", "box": [8, 0, 9, 9]}, {"name": "dog", "box": [50, 0, 1, 1]}, {"name": " "}]}, {"id": 2}])
    assert held.notes == ("left out, empty captions: 1", "left out, attributes with an empty word: 1", "left out, objects without a name: 1",
                          "boxes that reach out of their picture and were cut: 1", "boxes outside of their picture or without area, whose objects have no box now: 1",
                          "pictures without a sentence: 1", "pictures without an object: 1")
    assert [name for name, _, _ in rows_of(held, 0)] == ["big dog", "dog"] and held.attributes == (frozenset(), frozenset()) and held.relations == ()


def test_scenes_are_annotated_exactly(tmp_path):
    held = scene_annotations(60, seed=3, size=48, start=10, folder=tmp_path)
    scenes = make_scenes(60, 48, 3, 10)
    assert held.ids == tuple(f"3-{i}" for i in range(10, 70)) and held.notes == () and held.source == "scenes"
    assert {len(five) for five in held.captions} == {5} and not any(held.regions)
    for i in range(60):
        named = rows_of(held, i)
        for name, senses, (left, top, width, height) in named:
            part = scenes.instances[i][int(top):int(top + height), int(left):int(left + width)]
            assert len(senses) == 1 and width > 0 and height > 0
            rows = {int(k) for k in part.unique()}
            whole = [k for k in rows if tuple(scenes.regions.box[i, k].tolist()) == (left, top, left + width, top + height)]
            assert whole # some region fills exactly this box
        nouns = {name for name, _, _ in named}
        assert {name for name, _ in held.attributes[i]} == nouns and {n for a, _, b in held.relations[i] for n in (a, b)} <= nouns
    assert all(len(open(path, "rb").read()) > 100 for path in held.pictures)
    assert str(held.take(range(5)).signature) == str(scene_annotations(5, 3, 48, 10).signature)
    assert "n >= 1" in error_of(scene_annotations, 0) and "whole number" in error_of(scene_annotations, 2.5)


# ---- streams

def test_streams_equal_json_on_every_layout_and_any_size_of_pieces(tmp_path, monkeypatch):
    values = [{"a": [1, 2, {"b": "x]}\\\"é\n"}]}, [], {}, "text", -1.5e3, 12, True, None, ["é" * 50], {"id": 3}]
    layouts = {"list": (values, [(None, v) for v in values]), "empty": ([], []), "none": ({}, []),
               "mixed": ({"info": {"a": [1]}, "n": 12, "many": values, "no": []}, [("info", {"a": [1]}), ("n", 12), *(("many", v) for v in values)])}
    for pieces in (1, 7, 2**18):
        monkeypatch.setattr("invariant_metrics.data.annotation_files._PIECE", pieces)
        for name, (content, expected) in layouts.items():
            for looks in ({}, {"indent": 2}, {"separators": (",", ":"), "ensure_ascii": False}):
                path = tmp_path/f"{name}.json"
                path.write_text(json.dumps(content, **looks), encoding="utf-8")
                assert [*_stream_json(path)] == expected, (pieces, name, looks)
        (tmp_path/"lines.jsonl").write_text("\n".join(json.dumps(v) for v in values) + "\n\n")
        assert [v for _, v in _stream_json(tmp_path/"lines.jsonl")] == values


def test_streaming_does_not_hold_the_tree(tmp_path):
    "Three megabytes of objects of Visual Genome, 23 as a tree, are streamed in a few windows; annotations of two thirds of them take little more."
    marked = [{"object_id": k, "names": ["tree"], "synsets": ["tree.n.01"], "x": 1, "y": 2, "w": 3, "h": 4} for k in range(400)]
    entries = [json.dumps({"image_id": i, "objects": marked}) for i in range(84)]
    (tmp_path/"long.json").write_text("[" + ",".join(entries) + "]")
    (tmp_path/"objects.json").write_text("[" + ",".join(entries[:56]) + "]")
    assert (tmp_path/"long.json").stat().st_size > 3 * 2**20
    peaks = []
    for read in (lambda: sum(1 for _ in _stream_json(tmp_path/"long.json")), lambda: load_annotations(tmp_path/"objects.json")):
        tracemalloc.start()
        read()
        peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
        tracemalloc.stop()
    assert peaks[0] < 5 and peaks[1] < 8, peaks


def test_broken_files_are_named_with_the_place(tmp_path, monkeypatch):
    def file(text, name="a.json"):
        (tmp_path/name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path/name
    read = lambda path: [*_stream_json(path)]
    whole = json.dumps([{"id": 1, "objects": []}, {"id": 2}])
    for cut in range(1, len(whole)): assert "a.json: " in error_of(read, file(whole[:cut])) # truncated anywhere
    assert "character 13" in error_of(read, file('[{"id": 1}, {"id" 2}]')) and "keep one value" in error_of(read, file("[1] 2"))
    assert "not UTF-8" in error_of(read, file(b'["\xff"]')) and "nested too deeply" in error_of(read, file("[" * 2 + "[" * 200_000))
    packed = gzip.compress(whole.encode())
    assert [*_stream_json(file(packed, "a.json.gz"))] == [(None, item) for item in json.loads(whole)]
    assert "damaged" in error_of(read, file(packed[:-12], "a.json.gz")) and "damaged" in error_of(read, file(b"no", "a.json.gz"))
    assert "no readable zip" in error_of(load_annotations, file(b"no", "a.zip")) and "cannot read" in error_of(read, tmp_path)
    monkeypatch.setattr("invariant_metrics.data.annotation_files._LONGEST_ENTRY", 1000)
    monkeypatch.setattr("invariant_metrics.data.annotation_files._PIECE", 100)
    assert "more than 64 MB" in error_of(read, file('["' + "a" * 5000 + '"]'))


# ---- formats

def genome_files(folder):
    tree = {"object_id": 5, "names": ["Trees"], "synsets": ["tree.n.01"], "x": 0, "y": 0, "w": 300, "h": 4, "merged_object_ids": [8]}
    marked = [tree, tree, {**tree, "object_id": 8}, {**tree, "object_id": 9, "names": ["dog"], "synsets": [], "x": 900, "merged_object_ids": []}]
    image = lambda k, coco: {"image_id": k, "width": 200, "height": 100, "coco_id": coco, "flickr_id": None, "url": f"https://x/VG_100K/{k}.jpg"}
    files = {"objects": [{"image_id": 1, "objects": marked, "image_url": "u"}, {"image_id": 2, "objects": []}],
             "region_descriptions": [{"regions": [], "id": 2}, {"regions": [{"phrase": "a dog", "region_id": 1, "x": 1, "y": 1, "width": 2, "height": 2}], "id": 1}],
             "image_data": [image(1, 70), image(2, None), image(3, 71)],
             "attributes": [{"image_id": 1, "attributes": [{"names": ["trees"], "attributes": ["Green", "tall"]}, {"names": ["dog"]}]}],
             "relationships": [{"image_id": 1, "relationships": [{"predicate": "UNDER", "subject": {"name": "dog"}, "object": {"names": ["trees"]}}]}],
             "question_answers": [{"id": 1, "qas": [{"question": "why?"}]}], "scene_graphs": [{"image_id": 1, "objects": [], "relationships": []}]}
    for name, content in files.items(): (folder/f"{name}.json").write_text(json.dumps(content))
    (folder/"object_alias.txt").write_text("tree,trees,tree's\nman,men\n")
    return folder


def test_visual_genome_from_a_folder_a_list_and_zip_archives(tmp_path):
    folder = genome_files(tmp_path)
    held = load_annotations(folder)
    assert held.source == "visual-genome" and held.ids == ("1", "2", "3") and held.sizes.tolist() == [[200, 100]] * 3
    assert rows_of(held, 0)[0] == ("trees", ["tree.n.01"], [0, 0, 200, 4]) and len(rows_of(held, 0)) == 2 and np.isnan(rows_of(held, 0)[1][2]).all()
    assert held.regions == (("a dog",), (), ()) and held.attributes[0] == {("trees", "green"), ("trees", "tall")} and held.attributes[1] == frozenset()
    assert held.relations[0] == {("dog", "under", "trees")}
    assert "recognized as visual-genome" in held.notes[0] and "it has no captions" in held.notes[0]
    assert "objects marked twice and taken once: 2" in held.notes and "pictures without an object: 2" in held.notes
    named = load_annotations(folder, aliases=folder/"object_alias.txt")
    assert named.objects.names == ("tree", "dog") and named.relations[0] == {("dog", "under", "tree")} and ("tree", "tall") in named.attributes[0]
    both = load_annotations(folder, captions={70: "A dog.", "99": ["Another."]})
    assert both.ids == ("1",) and both.captions == (("A dog.",),) and "left out: 2" in " ".join(both.notes)
    assert error_of(load_annotations, folder/"objects.json", captions={"70": ["A dog."]}).endswith("which pictures are in COCO")
    archives = []
    for name in ("objects", "region_descriptions", "image_data", "attributes", "relationships"):
        archives.append(folder/f"{name}.json.zip")
        with ZipFile(archives[-1], "w") as archive: archive.write(folder/f"{name}.json", f"{name}.json")
    assert str(load_annotations(archives).signature) == str(held.signature)
    (folder/"VG_100K").mkdir()
    (folder/"VG_100K"/"1.jpg").touch()
    linked = load_annotations(archives, images=folder)
    assert linked.pictures == (str(folder/"VG_100K"/"1.jpg"), "", "") and f"pictures without a file in {folder.name}: 2" in linked.notes
    assert "several files hold objects" in error_of(load_annotations, [folder/"objects.json", archives[0]])


def coco_files(folder):
    boxes = [{"id": k, "image_id": image, "category_id": category, "bbox": [k, 1, 2, 3], "iscrowd": k % 2, "segmentation": [[0] * 6]}
             for k, (image, category) in enumerate([(9, 3), (7, 1), (9, 1), (8, 1)])]
    images = [{"id": k, "width": 60, "height": 40, "file_name": f"{k:012}.jpg"} for k in (7, 9)]
    categories = [{"id": 1, "name": "person"}, {"id": 3, "name": "traffic_light"}]
    (folder/"instances_val.json").write_text(json.dumps({"annotations": [*boxes, boxes[0]], "images": images, "categories": categories}))
    (folder/"captions_val.json").write_text(json.dumps({"images": images, "annotations": [{"image_id": 9, "id": k, "caption": text} for k, text in enumerate("ab")]}))
    return folder


def test_coco_and_lvis_with_the_map_of_synsets(tmp_path):
    folder = coco_files(tmp_path)
    held = load_annotations(folder, synsets={"person": "person.n.01"})
    assert held.source == "coco" and held.ids == ("7", "9") and held.captions == ((), ("a", "b"))
    assert rows_of(held, 0) == [("person", ["person.n.01"], [1, 1, 2, 3])]
    assert rows_of(held, 1) == [("traffic light", [], [0, 1, 2, 3]), ("person", ["person.n.01"], [2, 1, 2, 3])]
    for note in ("boxes of pictures that are not listed, left out: 1", "objects marked twice and taken once: 1", "objects whose name is not in the map of synsets: 1"):
        assert note in held.notes
    forms = {"lvis": {"traffic light": {"coco_cat_id": 3, "synset": "traffic_light.n.01"}, "person": {"coco_cat_id": 1, "synset": "person.n.01"}},
             "names": {"traffic light": "traffic_light.n.01", "person": "person.n.01"}, "numbers": {"3": "traffic_light.n.01", "1": "person.n.01"}}
    for name, form in forms.items(): (folder/f"map_{name}.json.txt").write_text(json.dumps(form))
    maps = [load_annotations(folder, synsets=folder/f"map_{name}.json.txt") for name in forms]
    assert {held.objects.synsets for held in maps} == {("person.n.01", "traffic_light.n.01")}
    assert load_annotations(folder, split="val").ids == ("7", "9") and "no file of 'train'" in error_of(load_annotations, folder, split="train")
    joined = load_annotations(folder/"instances_val.json", captions=folder/"captions_val.json")
    assert joined.ids == ("9",) and joined.captions == (("a", "b"),)
    content = json.loads((folder/"instances_val.json").read_text())
    for part, change in {"not listed": {"categories": content["categories"][:1]}, "bbox is": {"annotations": [{**content["annotations"][0], "bbox": [1, 2, 3]}]},
                         "category_id is a whole number": {"annotations": [{**content["annotations"][0], "category_id": "x"}]},
                         "a second picture 7": {"images": [content["images"][0]] * 2}, "bbox is missing": {"annotations": [{"image_id": 7, "category_id": 1}]}}.items():
        (folder/"wrong.json").write_text(json.dumps({**content, **change}))
        assert part in error_of(load_annotations, folder/"wrong.json"), part
    (folder/"wrong.json").unlink()
    assert "not as lvis" in error_of(load_annotations, folder, format="lvis")
    assert "expected a synset" in error_of(load_annotations, folder, synsets={"person": 3})


def test_flickr_karpathy_and_plain_captions_with_their_splits(tmp_path):
    (tmp_path/"flickr").mkdir()
    flickr = {"Flickr8k.token.txt": "a.jpg#0\tA dog.\na.jpg#1\tA brown dog.\nb.jpg#0\tA cat.\n", "Flickr8k.lemma.token.txt": "a.jpg#0\tdog\n",
              "Flickr_8k.testImages.txt": "b.jpg\nnone.jpg\n", "Flickr_8k.trainImages.txt": "a.jpg\n", "Flickr_8k.devImages.txt": "a.jpg\n", "readme.txt": "About.\n"}
    for name, text in flickr.items(): (tmp_path/"flickr"/name).write_text(text)
    held = load_annotations(tmp_path/"flickr")
    assert (held.source, held.ids, held.captions) == ("flickr", ("a.jpg", "b.jpg"), (("A dog.", "A brown dog."), ("A cat.",)))
    tested = load_annotations(tmp_path/"flickr", split="test")
    assert load_annotations(tmp_path/"flickr", split="val").ids == ("a.jpg",)
    assert tested.ids == ("b.jpg",) and "pictures that the list of the split test names and nothing describes: 1" in tested.notes
    assert load_annotations(tmp_path/"flickr"/"Flickr8k.token.txt", split=str(tmp_path/"flickr"/"Flickr_8k.trainImages.txt")).ids == ("a.jpg",)
    (tmp_path/"results.csv").write_text("image_name| comment_number| comment\na.jpg| 0| A dog.\n")
    assert load_annotations(tmp_path/"results.csv").captions == (("A dog.",),)
    image = lambda name, split, **more: {"filename": name, "split": split, "sentences": [{"raw": f"About {name}.", "tokens": []}], **more}
    splits = {"dataset": "coco", "images": [image("a.jpg", "train", cocoid=7, filepath="val2014"), image("b.jpg", "restval"), image("c.jpg", "test")]}
    (tmp_path/"dataset_coco.json").write_text(json.dumps(splits))
    assert load_annotations(tmp_path/"dataset_coco.json").ids == ("7", "b.jpg", "c.jpg")
    for split, ids in {"train": ("7",), "restval": ("b.jpg",), "test": ("c.jpg",)}.items(): assert load_annotations(tmp_path/"dataset_coco.json", split=split).ids == ids
    assert "there is restval, test, train" in error_of(load_annotations, tmp_path/"dataset_coco.json", split="val")
    (tmp_path/"val2014").mkdir()
    (tmp_path/"val2014"/"a.jpg").touch()
    assert load_annotations(tmp_path/"dataset_coco.json", images=tmp_path).pictures == (str(tmp_path/"val2014"/"a.jpg"), "", "")
    (tmp_path/"by_id.json").write_text(json.dumps({"7": ["A dog.", "A brown dog."], "8": "A cat."}))
    assert load_annotations(tmp_path/"by_id.json").captions == (("A dog.", "A brown dog."), ("A cat.",))
    rows = {"rows": '{"image": "a.jpg", "caption": "A dog."}\n{"image": "a.jpg", "caption": "A brown dog."}', "twice": '{"id": 1, "text": ["a"]}\n{"id": 1, "text": ["b"]}',
            "none": '{"image_id": 1, "caption": "a"}\n{"image_id": 2}', "far": '{"image_id": 1, "file_name": "../a.jpg", "caption": "a"}'}
    for name, text in rows.items(): (tmp_path/f"{name}.jsonl").write_text(text)
    assert load_annotations(tmp_path/"rows.jsonl").captions == (("A dog.", "A brown dog."),)
    assert "entry 2: 1 has captions already" in error_of(load_annotations, tmp_path/"twice.jsonl") and "it has image_id" in error_of(load_annotations, tmp_path/"none.jsonl")
    assert "leads out of its folder" in error_of(load_annotations, tmp_path/"far.jsonl", images=tmp_path)
    assert "no picture has a split" in error_of(load_annotations, tmp_path/"rows.jsonl", split="test")


def test_own_records_and_foreign_files(tmp_path):
    made = annotate(records(5))
    (tmp_path/"own.jsonl").write_text("\n".join(map(json.dumps, records(5))))
    (tmp_path/"own.json").write_text(json.dumps(records(5)))
    assert {str(load_annotations(source).signature) for source in (tmp_path/"own.jsonl", tmp_path/"own.json", records(5))} == {str(made.signature)}
    assert load_annotations(made) is made and "are for files" in error_of(load_annotations, records(5), images=tmp_path)
    assert repr(made).startswith("<Annotations records: 5 pictures, ")
    (tmp_path/"other.json").write_text('[{"question": "why?"}]')
    for name in ("/etc/objects.json", "..\\a.json", "a/../../b.json", "C:\\a.json"):
        with ZipFile(tmp_path/"far.zip", "w") as archive: archive.writestr(name, "[]")
        assert "leads out of its folder" in error_of(load_annotations, tmp_path/"far.zip")
    assert "no annotations recognized" in error_of(load_annotations, tmp_path/"other.json")
    assert "no such file" in error_of(load_annotations, tmp_path/"none.json") and "unknown format" in error_of(load_annotations, tmp_path/"own.json", format="voc")
    assert "recognized as records, not as coco" in error_of(load_annotations, tmp_path/"own.json", format="coco")
    for wrong in ({"name": "dog"}, ["dog"], "dog"):
        (tmp_path/"bad.json").write_text(json.dumps([{"id": 1, "captions": ["a dog"], "objects": wrong}]))
        assert "bad.json, record 1: expected a record, its objects as a list" in error_of(load_annotations, tmp_path/"bad.json"), wrong
    (tmp_path/"bad.json").write_text(json.dumps([{"id": 1, "captions": ["a dog"], "objects": None, "regions": []}, "b"]))
    assert "bad.json, record 2: expected a record" in error_of(load_annotations, tmp_path/"bad.json")
    assert "is no folder" in error_of(load_annotations, tmp_path/"own.json", images=tmp_path/"none")
    (tmp_path/"other.json").unlink()
    (tmp_path/"far.zip").unlink()
    coco_files(tmp_path)
    assert "several formats: coco, records" in error_of(load_annotations, tmp_path) and _recognize_annotations(tmp_path, "coco").format == "coco"
    assert AnnotationFile(tmp_path/"a.zip", "b/objects.json.gz").name == "objects.json"


# ---- real files

def test_real_coco_and_lvis():
    held = load_annotations(data_path("coco_mini/instances.json"), synsets=data_path("lvis_sample/coco_to_synset.json"), images=data_path("coco_mini/images"))
    assert (len(held), len(held.objects), sum(map(len, held.captions))) == (118, 715, 590)
    assert all(held.pictures) and np.diff(held.objects.start).tolist() == [1] * 715 and "boxes that mark a crowd and count as one object: 8" in held.notes
    frames = held.sizes[held.objects.image]
    assert (held.objects.box[:, :2] + held.objects.box[:, 2:] <= frames + .01).all() and (held.objects.box[:, 2:] > 0).all() # pixels of the original
    net = wordnet()
    synsets = [made["synset"] for made in json.loads(data_path("lvis_sample/coco_to_synset.json").read_text()).values()]
    assert len(synsets) == 80 and {name for name in synsets if not known(net, name)} == UNKNOWN
    lvis = load_annotations(data_path("lvis_sample/lvis_val_sample.json"), captions=data_path("coco_captions/val2017_1000.jsonl.gz"))
    assert (lvis.source, len(lvis), len(lvis.objects), len(np.unique(lvis.objects.name))) == ("lvis", 52, 534, 103)
    assert min(map(len, lvis.captions)) >= 5 and (np.diff(lvis.objects.start) == 1).all()


def test_real_captions():
    english = load_annotations(data_path("multi30k/train_2000.jsonl.gz"))
    german = load_annotations(data_path("multi30k/train_2000.jsonl.gz"), caption_key="captions_de")
    assert english.ids == german.ids and english.captions[0][1] == "Workers look down from up above on a piece of equipment."
    assert german.captions[0][0].startswith("Die Männer") and {len(five) for five in english.captions} == {5}
    assert len(load_annotations(data_path("coco_captions/val2017_1000.jsonl.gz"))) == 1000
