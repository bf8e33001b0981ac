"Hostile calls: each that was once answered wrongly, and thousands drawn from a seed."
import gzip
import inspect
import os
import random
import resource
from pathlib import Path
from types import UnionType
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image

import fuzz
import invariant_metrics as im
from commands import cli
from invariant_metrics.core import InputError, check_path, check_source, check_type
from invariant_metrics.data import texts as reading
from invariant_metrics.data.items import as_images, load_images
from invariant_metrics.data.parallel import load_captions
from invariant_metrics.data.text_sides import load_references, load_texts
from invariant_metrics.encoders.encoder import check_rgb
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.gaussian import GaussianStats

IMAGES, FEATURES, TEXTS = (fuzz.DATA[kind] for kind in ("images", "features", "texts"))


def says(call, *words) -> str:
    "The message of a call that must be refused in one line."
    with pytest.raises(InputError) as caught: call()
    message = str(caught.value)
    assert "\n" not in message and "\0" not in message and len(message) <= fuzz.LONGEST, message
    for word in words: assert word in message, message
    return message


def pictures(folder: Path, n: int = 3) -> Path:
    folder.mkdir()
    for i in range(n): Image.fromarray(np.random.default_rng(i).integers(0, 256, (20, 18, 3)).astype(np.uint8)).save(folder/f"{i}.png")
    return folder


# ---- thousands

def ended(count: int, seed: int) -> None:
    failed: dict = {}
    def tell(number, case, outcome, fault):
        if fault: failed.setdefault(fault, []).append(f"{seed}:{number} {case.told[:150]} -> {outcome.message[:150]}")
    found = fuzz.fuzz(count, seed, tell=tell)
    print(f"\n{fuzz.summary(found)}")
    assert sum(found.values()) == count and not failed, "\n".join(f"{fault}: {line}" for fault, lines in failed.items() for line in lines[:5])
    assert found.told["WRONG"] > count/4 and found.told["RIGHT"] > count/40, found.told # most are wrong, some are right in an odd way


def test_one_table_of_texts_in_every_format():
    odd = []
    found = fuzz.fuzz_text_files(100, 3, tell=lambda *case: odd.append(case) if case[2].startswith(("silent", "noted")) else None)
    assert not odd and found["same"] > 55, (found, odd)


def test_two_thousand_hostile_calls(capsys):
    with capsys.disabled(): ended(2000, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_hundred_thousand_hostile_calls(seed, capsys):
    with capsys.disabled(): ended(10_000, seed)


def test_the_fuzz_sees_what_is_wrong(monkeypatch):
    "A harness that finds nothing in a broken package would be worth nothing: with a door taken away it finds what comes in."
    from invariant_metrics.scoring import score, sides
    def faults() -> set:
        cases = [fuzz.score_case(random.Random(k)) for k in range(250)]
        return {fuzz.fault_of(case, fuzz.run_case(case)) for case in cases}
    assert faults() == {""}
    for module in (score, sides, reading): monkeypatch.setattr(module, "check_source", lambda *_: None)
    monkeypatch.setattr(score, "check_type", lambda *_: None)
    assert {"silent", "foreign"} <= faults()


# ---- one known table in every form

def read_back(count: int, seed: int) -> None:
    different = []
    found = fuzz.fuzz_tables(count, seed, lambda number, came, told: came == "different" and different.append(f"{seed}:{number} {told}"))
    assert not different and found["same"] > 0.9*count, different[:5] or found


def test_a_known_table_is_the_same_in_every_form(): read_back(100, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_ten_thousand_known_tables(seed): read_back(1000, seed)


@pytest.mark.parametrize("door, stand_in", [("_without_quoting", lambda *_: False), ("is_blank", lambda cell: False), ("is_human", lambda name: False)])
def test_known_tables_see_what_is_wrong(door, stand_in, monkeypatch):
    from invariant_metrics.data import judgment_tables, judgments, rating_tables
    def right() -> int: return fuzz.fuzz_tables(40, 3)["same"]
    before = right()
    for module in (judgment_tables, judgments, rating_tables): monkeypatch.setattr(module, door, stand_in, raising=False)
    assert right() < before


# ---- what has no order, what is masked, what is not one thing

@pytest.mark.parametrize("odd", [set, frozenset])
def test_a_set_of_texts_is_refused(odd):
    says(lambda: im.score(odd(TEXTS[0]), TEXTS[1], ["bleu-1"]), "pred: a set has no order")
    says(lambda: im.score(TEXTS[0], odd(TEXTS[1]), ["bleu-1"]), "target: a set has no order")
    says(lambda: im.score(odd(TEXTS[0]), None, ["diversity"]), "a set has no order")
    assert load_texts(dict.fromkeys(TEXTS[0]).keys()).items == TEXTS[0] # keys of a dict have one


@pytest.mark.parametrize("kind, metric", [("images", "psnr"), ("images", "fd"), ("features", "fd"), ("features", "precision")])
def test_a_masked_array_is_refused_and_one_without_a_mask_is_read(kind, metric):
    x, y = fuzz.DATA[kind]
    mask = np.zeros(x.shape, bool)
    mask[1] = True
    says(lambda: im.score(np.ma.masked_array(x, mask), y, [metric], ci=False), "pred: a part of the array is masked")
    says(lambda: im.score(x, np.ma.masked_array(y, mask), [metric], ci=False), "target: a part of the array is masked")
    plain, unmasked = (im.score(side, y, [metric], ci=False, cache=False)[metric].value for side in (x, np.ma.masked_array(x)))
    assert plain == unmasked


def test_a_masked_batch_of_features_is_refused():
    says(lambda: GaussianStats().update(np.ma.masked_array(FEATURES[0], FEATURES[0] > 1)), "masked")


def test_a_json_object_with_a_key_twice_is_refused(tmp_path):
    for name, text in {"a.json": '{"1": "a b c", "1": "d e f"}', "b.jsonl": '{"id": 1, "caption": "a", "caption": "b"}\n', "c.json": '[{"id": 1, "id": 2, "caption": "a"}]'}.items():
        (tmp_path/name).write_text(text)
        says(lambda: load_texts(tmp_path/name), "stands there twice")
    (tmp_path/"coco.json").write_text('{"annotations": [{"image_id": 1, "caption": "a", "caption": "b"}]}')
    says(lambda: load_captions(tmp_path/"coco.json"), "the key 'caption' stands there twice")
    (tmp_path/"j.jsonl").write_text('{"item": 1, "score": 2, "score": 3}\n')
    done = cli("agree", "j.jsonl", cwd=tmp_path)
    assert done.returncode == 2 and "line 1: the key 'score' stands there twice" in done.stderr


def test_an_id_is_the_same_however_it_is_written(tmp_path):
    (tmp_path/"a.json").write_text('[{"image_id": 1.0, "caption": "a b"}, {"image_id": 2, "caption": "c d"}]')
    (tmp_path/"b.json").write_text('{"1": ["a b"], "2": ["c d e"]}')
    assert load_texts(tmp_path/"a.json").names == ["1", "2"]
    assert im.score(tmp_path/"a.json", tmp_path/"b.json", ["bleu-1"], ci=False)["bleu-1"].n == 2
    assert load_texts({1.0: "a", 2: "b"}).names == ["1", "2"] and load_references({np.int64(3): ["a"]}).names == ["3"]
    (tmp_path/"c.jsonl").write_text('{"image_id": 7.0, "captions": ["a b"]}\n')
    assert load_captions(tmp_path/"c.jsonl").names == ["7"]
    for odd in ("null", "true", "[1]", "NaN", '{"a": 1}'):
        (tmp_path/"odd.json").write_text(f'[{{"image_id": {odd}, "caption": "a"}}, {{"image_id": 1, "caption": "b"}}]')
        says(lambda: load_texts(tmp_path/"odd.json"))


# ---- arrays as they lie in memory

def test_reversed_views_are_read_everywhere():
    x, y = IMAGES
    rgb = x.transpose(0, 2, 3, 1)
    bgr = np.ascontiguousarray(rgb[..., ::-1])
    assert bgr[..., ::-1].strides[-1] < 0
    assert torch.equal(as_images(bgr[..., ::-1]), as_images(x)) and torch.equal(as_images(x[::-1]), as_images(x).flip(0))
    for metric in ("psnr", "fd"):
        assert im.score(bgr[..., ::-1], y, [metric], ci=False, cache=False)[metric].value == im.score(x, y, [metric], ci=False, cache=False)[metric].value
    f, g = FEATURES
    flipped = np.ascontiguousarray(f[::-1, ::-1])[::-1, ::-1]
    for metric in ("fd", "mmd", "precision"):
        assert im.score(flipped, g, [metric], ci=False)[metric].value == im.score(f, g, [metric], ci=False)[metric].value
    a, b = GaussianStats().update(f), GaussianStats().update(flipped)
    assert torch.equal(a.mean, b.mean) and torch.equal(a.cov, b.cov)
    assert load_texts(np.array(TEXTS[0][::-1])[::-1]).items == TEXTS[0]


def test_bytes_of_another_machine_are_read():
    assert torch.equal(as_images(IMAGES[0].astype(">f4")), as_images(IMAGES[0]))
    assert im.score(FEATURES[0].astype(">f8"), FEATURES[1], ["fd"], ci=False)["fd"].value == pytest.approx(im.score(*FEATURES, ["fd"], ci=False)["fd"].value, rel=1e-6)


def test_what_is_no_array_of_numbers_is_refused():
    for odd in (memoryview(b"abc"), b"abc", [IMAGES[0][0], None], [b"abc"], torch.eye(4).to_sparse(), torch.empty(4, 3, 16, 16, device="meta"), np.array([None]), 5, object()):
        says(lambda: im.score(odd, IMAGES[1], ["psnr"]))
        says(lambda: im.score(FEATURES[0], odd, ["fd"]))
    assert torch.equal(as_images(memoryview(IMAGES[0])), as_images(IMAGES[0]))


# ---- messages that know the usual mistakes

def test_nan_is_called_nan_with_the_items_that_hold_it():
    x = IMAGES[0].copy()
    x[2, 0, 3, 3] = x[5] = np.nan
    for metric in ("psnr", "fd", "colorfulness"):
        says(lambda: im.score(x, None if metric == "colorfulness" else IMAGES[1], [metric]), "pred: NaN or infinite values in 2 of 8 images: 2, 5 (counted from 0)")
    says(lambda: check_rgb(torch.full((2, 3, 4, 4), torch.nan)), "2 of 2 images: 0, 1")
    f = FEATURES[0].copy()
    f[7, 1] = np.inf
    says(lambda: im.score(f, FEATURES[1], ["fd"]), "1 of 20 rows hold NaN or infinite numbers: 7")


def test_ranges_of_images_come_with_the_remedy():
    says(lambda: im.score(2*IMAGES[0] - 1, IMAGES[1], ["psnr"]), "if they go from -1 to 1, give (x + 1)/2")
    says(lambda: im.score(255*IMAGES[0], IMAGES[1], ["psnr"]), "if they go from 0 to 255, give x/255, or uint8")
    assert "if they go" not in says(lambda: im.score(IMAGES[0]*1e6, IMAGES[1], ["psnr"]))


def test_lists_of_streams_are_known():
    streams = [TEXTS[1], [t + " today" for t in TEXTS[1]]]
    for metric in ("bleu", "chrf", "cider-d"): says(lambda: im.score(TEXTS[0], streams, [metric]), "2 lists of 8: give one list of references for each item, zip(*references)")
    assert im.score(TEXTS[0], [*zip(*streams)], ["bleu"], ci=False)["bleu"].n == 8


def test_dicts_of_captions_by_id_are_no_systems():
    pred, target = {i: [t] for i, t in enumerate(TEXTS[0])}, {i: [t, t + " today"] for i, t in enumerate(TEXTS[1])}
    found = im.score(pred, target, ["cider-d", "bleu-4"], ci=False)
    assert found["bleu-4"].n == 8 and found["bleu-4"].value == im.score(TEXTS[0], [*target.values()], ["bleu-4"], ci=False)["bleu-4"].value
    assert im.score({str(i): t for i, (t,) in pred.items()}, target, ["bleu-4"], ci=False)["bleu-4"].n == 8
    assert list(im.score({"a": pred, "b": pred}, target, ["bleu-4"], ci=False)) == ["a", "b"] # systems, each of which has captions by id


def test_metrics_in_one_text():
    found = im.score(*IMAGES, "psnr, ssim", ci=False)
    assert list(found) == ["psnr", "ssim"] and list(im.score(*IMAGES, ["psnr,ssim"], ci=False)) == ["psnr", "ssim"]
    for odd in ([], None, 5, b"psnr", "psnr,", [None], {"psnr": 1}): says(lambda: im.score(*IMAGES, odd), "metrics")


def test_an_image_too_small_is_named(tmp_path):
    folder = pictures(tmp_path/"a")
    Image.new("RGB", (1, 1)).save(folder/"dot.png")
    for metric in ("fd", "lpips-embedded"):
        done = cli("score", metric, "--pred", "a", "--target", "a", "--no-cache", cwd=tmp_path)
        assert done.returncode == 2 and "dot" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


# ---- arguments

@pytest.mark.parametrize("name, values", fuzz.OPTIONS.items())
def test_an_argument_of_another_kind_is_refused(name, values):
    for value in values:
        if name in ("source", "query", "metrics", "encoder", "layer", "weights"): continue # drawn above
        says(lambda: im.score(*FEATURES, **{"metrics": ["fd"], name: value}))


def test_names_that_are_no_names():
    for odd in (":x", "x:", "../x:y", "..math:pi", "a b:c"): says(lambda: im.score(*IMAGES, [odd]), "is not like package.module:object")
    for odd in ("os:path", "os:getcwd", "json:dumps", "builtins:int"): says(lambda: im.score(*IMAGES, [odd]))
    says(lambda: im.score(*IMAGES, ["n"*5000]), "unknown metric 'nnn")
    assert len(says(lambda: im.score(*IMAGES, ["zzzz"]))) < 400
    for odd in (5, ["bert"], "os:path"): says(lambda: im.score(*IMAGES, ["fd"], encoder=odd))


def test_a_module_that_fails_is_named(tmp_path, monkeypatch):
    (tmp_path/"broken_one.py").write_text("import nothing_like_it.at_all\n")
    (tmp_path/"broken_two.py").write_text("def f(:\n")
    (tmp_path/"broken_three.py").write_text("1/0\n")
    monkeypatch.syspath_prepend(tmp_path)
    says(lambda: im.score(*IMAGES, ["broken_one:f"]), "no module 'nothing_like_it'")
    says(lambda: im.score(*IMAGES, ["broken_two:f"]), "SyntaxError")
    says(lambda: im.score(*IMAGES, ["broken_three:f"]), "ends in ZeroDivisionError")


def test_checks_of_the_door():
    for path in ("a\0b", "n"*300, "\ud800", "/".join(["n"*200]*30)): says(lambda: check_path(path), "path")
    check_path("n"*255), check_path(Path("a")/"b"), check_path("\udcff")
    says(lambda: check_source(Path("n"*300), "pred"), "pred")
    for value in (True, 1.5, "1", None, float("nan")): says(lambda: check_type("reps", value, int), "reps is a whole number")
    check_type("reps", np.int32(3), int), check_type("wish", 3, float | None), check_type("encoder", object(), object)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "Small files of every kind."
    folder = tmp_path_factory.mktemp("fuzz")/"place"
    folder.mkdir()
    fuzz.make_place(folder)
    return folder


WRONG = {int: ("x", None, [], float("nan"), 1.5, True, object()), float: ("x", None, [], {}, float("nan"), object()), bool: ("no", 2, None, []), str: (5, None, [], object()),
         Path: (5, [], {}, object())}


@pytest.mark.parametrize("name", ["agree", "power", "styles", "probe", "study"])
def test_arguments_of_the_other_functions_are_looked_at_first(name, place, monkeypatch):
    monkeypatch.chdir(place)
    checked = getattr(im, name)
    function = inspect.unwrap(checked)
    right = {"agree": dict(judgments="judged.csv", metrics="marks.csv", reps=20), "power": dict(pred=TEXTS[0], target=TEXTS[1], metrics=["chrf"]),
             "styles": dict(folder="items", real="a", labels="judged.csv"), "probe": dict(task="images", source="a"), "study": {}}[name]
    tried = 0
    for parameter in inspect.signature(function).parameters.values():
        kinds = set(get_args(parameter.annotation)) if isinstance(parameter.annotation, UnionType) else {parameter.annotation}
        if not kinds - {type(None)} or not kinds <= {*WRONG, type(None)}: continue
        for value in [v for kind in kinds & set(WRONG) for v in WRONG[kind]]:
            if value is None and type(None) in kinds or str in kinds and Path in kinds and isinstance(value, str): continue
            message = says(lambda: checked(**{**right, parameter.name: value}))
            assert parameter.name in message, (parameter.name, value, message)
            tried += 1
    assert tried > 8
    for odd in (5, object(), float("nan")):
        if name == "agree":
            for argument in ("judgments", "metrics", "lower", "statistics"): says(lambda: checked(**{**right, argument: odd}))
        if name == "styles": says(lambda: checked(**{**right, "labels": odd}))


# ---- files and commands

def test_a_link_to_itself_is_one_bad_picture(tmp_path):
    folder = pictures(tmp_path/"a")
    (folder/"loop.png").symlink_to("loop.png")
    says(lambda: load_images(folder), "1 of 4 images", "loop.png (no such file)")
    assert load_images(folder, skip_bad=True).names == ["0", "1", "2"]
    done = cli("score", "colorfulness", "--pred", "a", "--skip-bad", "--reps", 20, cwd=tmp_path)
    assert done.returncode == 0 and "loop.png" in done.stderr, done.stderr


def test_a_packed_file_unpacks_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_UNPACKED", 10_000)
    (tmp_path/"bomb.txt.gz").write_bytes(gzip.compress(b"\n"*10_001))
    (tmp_path/"fine.txt.gz").write_bytes(gzip.compress(b"\n"*10_000))
    says(lambda: load_texts(tmp_path/"bomb.txt.gz"), "bomb.txt.gz unpacks to more than", "gunzip --keep bomb.txt.gz")
    assert len(load_texts(tmp_path/"fine.txt.gz")) == 10_000


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    import signal
    old, before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    pictures(tmp_path/"a", 8)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
        done = cli("stats", "a", "--out", "made/s.safetensors", INVARIANT_METRICS_CACHE=tmp_path/"cache", cwd=tmp_path)
        with pytest.raises(InputError, match="cannot write s.npy"):
            with atomic_write(tmp_path/"made"/"s.npy") as path: np.save(path, np.zeros(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert done.returncode == 2 and "Error:" not in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not [*(tmp_path/"made").glob("*")] and not [*(tmp_path/"made").glob(".*")]


COMMAND_LINES = {
    "score ../x:y --pred a --target a": "is not like package.module:object", "score :x --pred a --target a": "is not like package.module:object",
    "score " + "a"*5000 + " --pred a --target a": "File name too long: aaa", "score psnr --pred " + "b"*5000 + " --target a": "File name too long: bbb",
    "score psnr --pred a\0b --target a": "null byte", "score fd --pred a --target a --permutations 1000000000": "less than or equal to 1000000",
    "score psnr --pred a --target a --device meta": "device 'meta' cannot be used", "score psnr --pred a --target a --ci bogus": "unknown interval method 'bogus'",
    "score psnr --pred a --target a --option tokenizer=[]": "tokenizer has no effect", "stats " + "b"*5000 + " --out s.npz": "", "report " + "b"*5000: "", "agree " + "b"*5000: "",
    "weights verify " + "b"*5000: "", "agree collect " + "b"*5000 + " --task realism --out p.html": "", "wordnet build " + "b"*5000 + " --out w.npz": "", "styles " + "b"*5000 + " --real a --labels b": "",
    "study colorization --data " + "b"*5000: "", "probe images --target " + "b"*5000: "", "power psnr --pred " + "b"*5000 + " --target a": ""}


@pytest.mark.parametrize("line, words", COMMAND_LINES.items(), ids=[line[:30].replace("\0", "0") for line in COMMAND_LINES])
def test_a_hostile_word_of_a_command_is_one_line(line, words, tmp_path):
    pictures(tmp_path/"a")
    done = cli(*line.split(" "), cwd=tmp_path)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1 and len(lines[0]) <= fuzz.LONGEST and words in lines[0] and "Error: " not in lines[0], done.stderr
    assert sorted(os.listdir(tmp_path)) in (["a"], ["a", "cache"])


def test_damaged_tables_of_parquet_are_refused(place, tmp_path):
    data = (place/"v.parquet").read_bytes()
    draw = np.random.default_rng(0)
    for k in draw.integers(0, len(data), 60):
        (tmp_path/"odd.parquet").write_bytes(data[:k] + bytes([draw.integers(256)]) + data[k + 1:])
        try: im.load_results(tmp_path/"odd.parquet")
        except InputError as error: assert "odd.parquet" in str(error)


def test_a_layer_without_a_name_is_no_layer(place, tmp_path):
    for line in (f"stats {place/'a'} --out o.npz --layer=", f"stats {place/'x.npy'} --out o.npz --layer=", f"stats {place/'a'} --out o.npz --encoder="):
        done = cli(*line.split(), cwd=tmp_path)
        assert done.returncode == 2 and not (tmp_path/"o.npz").exists(), line


def test_blank_texts_of_a_probe_are_refused_and_leave_nothing(tmp_path):
    (tmp_path/"blank.txt").write_text("\n"*20)
    done = cli(*"probe translation --target blank.txt --pred blank.txt --metrics bleu --scale quick".split(), cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1 and "Error: " not in done.stderr, done.stderr
    assert sorted(os.listdir(tmp_path)) in (["blank.txt"], ["blank.txt", "cache"])
