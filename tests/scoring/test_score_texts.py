"Texts through the door: files of every kind, sources, options; what does not fit is one line before any work."
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from invariant_metrics.commands.shell import main
from invariant_metrics.core import InputError, Signature
from invariant_metrics.data.items import Images, align_items, load_images, sources_of
from invariant_metrics.data.text_sides import check_sides, load_references, load_texts
from invariant_metrics.metrics.metric import TextMetric, get_metric
from invariant_metrics.metrics.ngram import corpus_bleu
from invariant_metrics.scoring.score import score

HYP = {"7": "a brown dog runs on the beach", "12": "two children on a red bench", "31": "a cat sleeps on a couch", "40": "a man rides a bicycle"}
REF = {"7": ["a dog runs along the beach", "the dog runs on sand"], "12": ["two kids sit on a bench"], "31": ["a cat sleeps on the couch"],
       "40": ["a man rides a bicycle down the street", "someone cycles"]}
SEEN = TextMetric("brightness-of-source", lambda pred, target, source: source, lambda source: torch.tensor([float(x.mean()) for x in source]).double(),
              None, Signature.of(metric="brightness-of-source"), card={"inputs": "texts", "source": "images"}, compares=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hyp.json").write_text(json.dumps([{"image_id": int(k), "caption": v} for k, v in HYP.items()]))
    Path("coco.json").write_text(json.dumps({"annotations": [{"image_id": int(k), "caption": r} for k, refs in REF.items() for r in refs]}))
    Path("log.jsonl").write_text("".join(json.dumps({"id": k, "references": v}) + "\n" for k, v in reversed(REF.items())))
    Path("hyp.txt").write_text("".join(v + "\n" for v in HYP.values()))
    for i in range(2): Path(f"ref{i}.txt").write_text("".join((refs[i] if i < len(refs) else "") + "\n" for refs in REF.values()))
    Path("photos").mkdir()
    for k in HYP: Image.new("RGB", (20 + int(k), 16), (int(k), 0, 0)).save(f"photos/COCO_val2014_{int(k):012d}.png")
    return tmp_path


def run(words: str, capsys) -> tuple[int, str, str]:
    code = main(words.split())
    out = capsys.readouterr()
    return code, out.out, "\n".join(line for line in out.err.splitlines() if "it/s" not in line and "%|" not in line)


def values(out: str) -> dict: return {m: x["value"] for m, x in next(iter(json.loads(out)["result"]["scores"].values())).items()}


def test_every_shape_of_file_gives_the_same_number(folder, capsys):
    expected = score({"": HYP}, REF, ["bleu-4", "cider-d"], ci=False)[""]
    for words in ("--pred hyp.json --target coco.json", "--pred hyp.json --target log.jsonl", "--pred hyp.txt --target ref0.txt ref1.txt",
                  "--pred hyp.txt --target ref1.txt ref0.txt"):
        code, out, err = run(f"score bleu-4,cider-d --json {words}", capsys)
        assert code == 0, err
        assert values(out) == pytest.approx({m: s.value for m, s in expected.items()}, abs=1e-12)


def test_references_in_two_files_of_records_are_joined(folder):
    halves = [{k: refs[:1] for k, refs in REF.items()}, {k: refs[1:] for k, refs in REF.items() if refs[1:]}]
    for i, half in enumerate(halves): Path(f"half{i}.json").write_text(json.dumps(half))
    assert load_references([Path("half0.json"), Path("half1.json")]).items == load_references(REF).items
    with pytest.raises(InputError, match="goes by id and other files by line"): load_references([Path("ref0.txt"), Path("half0.json")])


def test_the_order_of_references_is_not_in_the_signature(folder, capsys):
    first, second = (run(f"score rouge-l --json --pred hyp.txt --target {refs}", capsys)[1] for refs in ("ref0.txt ref1.txt", "ref1.txt ref0.txt"))
    assert json.loads(first)["result"]["scores"] == json.loads(second)["result"]["scores"]


def test_values_per_item_carry_ids(folder, capsys):
    assert run("score bleu-1 --pred hyp.json --target coco.json --per-item out.parquet", capsys)[0] == 0
    frame = pd.read_parquet("out.parquet")
    assert frame["name"].tolist() == ["7", "12", "31", "40"] and frame["value"].between(0, 1).all()


@pytest.mark.parametrize("words, says", [
    ("score bleu-4 --pred hyp.txt --target coco.json", "coco.json goes by id and hyp.txt by line"),
    ("score bleu --pred counted.json --target ref0.txt --intersect", "counted.json goes by id and ref0.txt by line"),
    ("score bleu --pred counted.json --target ref0.txt", "counted.json goes by id and ref0.txt by line"),
    ("score inception-score --pred photos --encoder embedded", "inception-score is defined on inception .* takes no other encoder"),
    ("score bleu-4 --pred hyp.txt --target ref0.txt missing.txt", "no file missing.txt"),
    ("score bleu-4 --pred hyp.txt --target short.txt", "1 without a prediction|without a target: 4"),
    ("score bleu-4 --pred hyp.txt --target ref0.txt short.txt", "first missing line is 4"),
    ("score bleu-4 --pred hyp.txt --target latin.txt", "latin.txt, line 3: not UTF-8"),
    ("score bleu-4 --pred hyp.txt --target broken.txt.gz", "broken.txt.gz is not a readable gzip file"),
    ("score bleu-4 --pred twice.json --target coco.json", "do not have exactly one text: 7"),
    ("score bleu-4 --pred hyp.json --target none.json", "1 items have no reference: 12"),
    ("score bleu-4 --pred late.json --target coco.json", "1 items are not texts: 40"),
    ("score bleu-4 --pred nokey.jsonl --target coco.json", "nokey.jsonl, line 2: no text in it"),
    ("score bleu-4 --pred hyp.txt --target ref0.txt --query hyp.txt", "queries are for metrics of sets of texts"),
    ("score bleu-4 --pred hyp.txt --target ref0.txt --source photos", "source has no effect on bleu-4"),
    ("score bleu --pred hyp.txt --target ref0.txt --option smothing=floor", "smothing has no effect on bleu; leave it out, they take tokenizer"),
    ("score bleu --pred hyp.txt --target ref0.txt --option order=x", "option order takes int, not 'x'"),
    ("score bleu --pred hyp.txt --target ref0.txt --option tokenizer=intll", "did you mean intl"),
    ("score bleu --pred hyp.txt --target ref0.txt --option language=tlh", "no tokenizer is set for language 'tlh'"),
    ("score cider-d --pred hyp.txt --target ref0.txt --option sigma=-1", "option sigma is 0.001 to 1,000,000"),
    ("score clipscore --pred hyp.json", "weights fetch clip-vit-b-32|give --source"),
    ("score bleu-4 --pred hyp.txt --target ref0.txt --per-item x.txt", "name the file x.csv"),
    ("score psnr --pred hyp.txt --target ref0.txt", "is a text file, and psnr looks at images"),
    ("score bleu-4,psnr --pred hyp.txt --target ref0.txt", "do not look at the same kind of thing"),
    ("score bleu-4 --pred hyp.txt --pred hyp.json --target ref0.txt --paired --ci none", "leave one of them out"),
])
def test_a_mistake_is_one_line_and_exit_code_2(words, says, folder, capsys):
    Path("short.txt").write_text("a\nb\nc\n"); Path("latin.txt").write_bytes("a\nb\nna\u00efve\nd\n".encode("latin-1"))
    Path("broken.txt.gz").write_bytes(gzip.compress(b"a\n"*99)[:20] + b"\x00"*30)
    Path("twice.json").write_text(json.dumps([{"image_id": 7, "caption": "a"}, {"image_id": 7, "caption": "b"}]))
    Path("none.json").write_text(json.dumps(REF | {"12": []})); Path("late.json").write_text(json.dumps(HYP | {"40": 3}))
    Path("counted.json").write_text(json.dumps([{"image_id": i, "caption": text} for i, text in enumerate(HYP.values())]))
    Path("nokey.jsonl").write_text('{"id": 7, "caption": "a"}\n{"id": 12}\n')
    code, out, err = run(words, capsys)
    assert code == 2 and len(err.splitlines()) == 1 and err.startswith("error: "), err
    assert re.search(says, err), err


def test_words_for_yes_and_no_are_what_they_say(folder, capsys):
    found = {said: values(run(f"score ter --json --pred hyp.txt --target ref0.txt --option normalized={said}", capsys)[1])["ter"] for said in ("no", "false", "False")}
    assert len(set(found.values())) == 1
    assert get_metric("bleu", lowercase="no").signature == get_metric("bleu").signature != get_metric("bleu", lowercase="yes").signature


def test_options_of_pixel_metrics_reach_them_through_the_door():
    x = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    gray, plain = (score(0.9*x, x, "ssim", ci=False, metric_options=o)["ssim"] for o in ({"channels": "luma"}, {}))
    assert gray.value != plain.value and "channels:luma" in str(gray.signature)
    with pytest.raises(InputError, match="cap has no effect on ssim; leave it out, they take channels"): score(x, x, "ssim", metric_options={"cap": 3})


def test_ids_are_compared_wherever_texts_meet():
    from invariant_metrics.scoring.torch_metric import TorchMetric
    with pytest.raises(InputError, match="one side only"): corpus_bleu({"1": "a b", "2": "c"}, {"7": ["a b"], "9": ["c"]})
    with pytest.raises(InputError, match="one side only"): TorchMetric("bleu").update({"9": "a", "10": "b"}, {"9": ["a"], "10a": ["b"]})
    with pytest.raises(InputError, match="compares with a target"): TorchMetric("cider-d").update(["a", "b"])


def test_a_text_that_is_called_like_a_file_is_a_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hello.txt").write_text("something else\n")
    assert corpus_bleu(["hello.txt"], ["hello.txt"], order=1) == pytest.approx(100)


def test_intersect_keeps_what_all_have_in_one_order(folder, capsys):
    Path("more.json").write_text(json.dumps({**{k: v[0] for k, v in REF.items()}, "x": "a bird"}))
    Path("some.json").write_text(json.dumps({k: HYP[k] for k in ("31", "7", "12")}))
    code, out, err = run("score bleu-1 --pred some.json --target more.json --intersect", capsys)
    assert code == 0 and "2 items of more.json were left out" not in out, err
    expected = score({"": {k: HYP[k] for k in ("7", "12", "31")}}, {k: REF[k][0] for k in ("7", "12", "31")}, "bleu-1", ci=False)[""]["bleu-1"].value
    assert values(run("score bleu-1 --json --pred some.json --target more.json --intersect", capsys)[1])["bleu-1"] == pytest.approx(expected)


def test_sources_are_found_by_the_number_of_the_image_and_stand_in_the_signature(folder):
    found = score({"": HYP}, None, [SEEN], source="photos", ci=False)[""][SEEN.name]
    assert found.per_item == pytest.approx([int(k)/255/3 for k in HYP], abs=1e-6) and "source:" in str(found.signature)
    Image.new("RGB", (16, 16), (99, 0, 0)).save("photos/COCO_val2014_000000000007.png")
    assert score({"": HYP}, None, [SEEN], source="photos", ci=False)[""][SEEN.name].signature != found.signature
    Image.new("RGB", (16, 16)).save("photos/COCO_train2014_000000000007.png")
    with pytest.raises(InputError, match="7 could be any of"): score({"": HYP}, None, [SEEN], source="photos")
    with pytest.raises(InputError, match="lines of a text have no names"): score(["a", "b"], None, [SEEN], source="photos")
    with pytest.raises(InputError, match="needs the images"): score({"": HYP}, None, [SEEN])


def test_predictions_without_a_source_are_named_or_left_out(folder):
    Path("photos/COCO_val2014_000000000012.png").write_bytes(b"\x89PNG no more")
    with pytest.raises(InputError, match="cannot be read"): score({"": HYP}, None, [SEEN], source="photos")
    kept = score({"": HYP}, None, [SEEN], source="photos", skip_bad=True, ci=False)[""][SEEN.name]
    assert kept.n == 3 and any("left out" in note for note in kept.notes)
    with pytest.raises(InputError, match="99; --intersect leaves them out"): score({"": {"99": "a", "7": "b"}}, None, [SEEN], source=str(make_one()))
    assert score({"": {"99": "a", "7": "b"}}, None, [SEEN], source=str(make_one()), intersect=True, ci=False)[""][SEEN.name].n == 1


def make_one() -> Path:
    Path("one").mkdir(exist_ok=True)
    Image.new("RGB", (16, 16)).save("one/7.png")
    return Path("one")


def test_one_item_has_a_value_and_says_that_it_has_no_interval():
    found = score(["a dog"], [["a dog", "the dog"]], ["cider-d", "rouge-l"])
    assert found["cider-d"].value == 0 and any("log 1 = 0" in n for n in found["cider-d"].notes)
    assert found["rouge-l"].ci is None and "no interval: there is one item" in found["rouge-l"].notes


def test_document_frequencies_from_a_file_of_references(folder):
    chosen = score({"": HYP}, REF, "cider-d", metric_options={"df": "coco.json"}, ci=False)[""]["cider-d"]
    own = score({"": HYP}, REF, "cider-d", ci=False)[""]["cider-d"]
    assert chosen.value == pytest.approx(own.value, abs=1e-12) and chosen.signature != own.signature


def test_state_of_many_updates_is_read_in_one_pass():
    from invariant_metrics.scoring.torch_metric import TorchMetric
    metric, texts = TorchMetric("cider-d"), [f"a {w} cat" for w in "red green blue small large old young wet dry thin".split()]*40
    for t in texts: metric.update([t], [[t, "a cat"]])
    whole = TorchMetric("cider-d"); whole.update(texts, [[t, "a cat"] for t in texts])
    assert metric.compute() == pytest.approx(float(whole.compute()), abs=1e-12)


def test_captions_named_as_files_find_their_pictures(tmp_path):
    (tmp_path/"photos").mkdir()
    for name in ("a b.png", "7.png"): Image.fromarray(np.full((8, 8, 3), 99, np.uint8)).save(tmp_path/"photos"/name)
    photos = load_images(tmp_path/"photos")
    found = sources_of(load_texts({"a b.png": "a dog", "7.jpg": "a cat"}), photos)
    assert found.names == ["7.jpg", "a b.png"] and [photo.path.name for photo in found.items] == ["7.png", "a b.png"]
    with pytest.raises(InputError, match="no source there: c.png"): sources_of(load_texts({"c.png": "a dog", "7": "a cat"}), photos)
    with pytest.raises(InputError, match="no prediction has a source: pred has c.png, .*photos has 7, a b"):
        align_items([load_texts({"c.png": "a dog"}, "pred")], source=photos, common=True)
