"A student taken away: the files compute what the network does at any size, score alone, and are refused where they do not."
import json
import shlex
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from tiny_student import tiny_student

from commands import cli
from open_cells import open_cells
from invariant_metrics.core import InputError
from invariant_metrics.encoders.lclip_student import read_lclip
from invariant_metrics.lclip import exported as export
from invariant_metrics.lclip.exported import ExportedTowers, export_lclip, _onnx_model, quantize_export, read_settings
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.models.multiplexed import LClip, TowerConfig, tiny_lclip

HUNG = 120 # seconds


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    "A student, its export, and that with 8 bits: made once, nobody writes there."
    home = tmp_path_factory.mktemp("student")
    student = tiny_student(home)
    plain = export_lclip(student, home/"onnx")
    return SimpleNamespace(student=student, plain=plain, small=quantize_export(plain, home/"small"), home=home)


def inputs(config, n: int, length: int | None = None):
    draw = torch.Generator().manual_seed(n)
    if length is None: return torch.randn(n, 3, config.image, config.image, generator=draw)
    rows = torch.randint(2, config.vocabulary, (n, length), generator=draw)
    rows[:, 0], rows[:, -1] = 0, 1
    return rows


def test_files_compute_what_the_student_does_at_any_batch_and_length(made):
    student, record = read_lclip(made.student)
    towers = ExportedTowers(made.plain)
    for n in (1, 3, 7):
        x = inputs(record.config, n)
        with torch.no_grad(): expected = student.vision(x).numpy()
        assert np.abs(towers.sessions["vision"].run(None, {"pixels": x.numpy()})[0] - expected).max() < 1e-5
        for length in (2, 5, record.config.context):
            x = inputs(record.config, n, length)
            with torch.no_grad(): expected = student.text(x).numpy()
            assert np.abs(towers.sessions["text"].run(None, {"tokens": x.numpy()})[0] - expected).max() < 1e-5


@pytest.mark.parametrize("changes", [dict(mask_padding=True), dict(causal=True, mean_pool=True, factor=None), dict(text=TowerConfig(32, 4, 1, mix_bias=True))])
def test_every_kind_of_text_tower_is_exported(changes):
    config = tiny_lclip(**{"text": TowerConfig(32, 4, 1, repeats=1, qkv_bias=False), "context": 20, **changes})
    torch.manual_seed(0)
    tower = LClip(config).text.eval()
    graph = _onnx_model(tower, torch.ones(2, 6, dtype=torch.long), "tokens", {0: ("batch", None), 1: ("length", 20)})
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    for n, length in ((1, 3), (3, 20)):
        x = inputs(config, n, length)
        x[0, 1] = x.max() + 1 if config.end is None and x.max() + 1 < config.vocabulary else x[0, 1]  # texts end at different places
        with torch.no_grad(): expected = tower(x).numpy()
        found = session.run(None, {"tokens": x.numpy()})[0]
        assert np.isfinite(found).all() and np.abs(found - expected).max() < 1e-5


def test_shared_weights_are_stored_once_and_nothing_tells_where_the_file_was_made(made):
    graph = onnx.load(made.plain/"vision.onnx")
    held = [t.raw_data for t in graph.graph.initializer if len(t.raw_data) > 64]
    assert len(held) == len(set(held))
    student, _ = read_lclip(made.student)
    weights = sum(p.numel() for p in student.vision.parameters())*4
    block = sum(p.numel() for p in student.vision.blocks[0].attention.parameters())*4
    assert sum(map(len, held)) < weights + block  # small matrices that are read in parts may stand twice, a block never
    for file in made.plain.iterdir():
        content = file.read_bytes()
        assert b"/work" not in content and str(made.home).encode() not in content, file
    assert b".py" not in graph.SerializeToString() and not graph.metadata_props


def scored_alone(folder, home, lines: str):
    "What the script of a folder prints; it must import neither PyTorch nor this package."
    (home/"pairs.tsv").write_text(lines, encoding="utf-8")
    alone = ("import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); "
             "assert not {'torch', 'transformers', 'invariant_metrics', 'onnx'} & {*sys.modules}")
    return subprocess.run([sys.executable, "-c", alone, str(folder/"score.py"), "pairs.tsv"], cwd=home, capture_output=True, text=True, timeout=HUNG)


def test_the_script_scores_as_the_metric_does(made, tmp_path):
    draw = np.random.default_rng(0)
    sizes = [(48, 48), (90, 61), (61, 90), (200, 48), (30, 40)]  # width, height
    captions = ["a cat looks up", "A red circle, left of 2 blue squares.", "x", "two dogs", "a cat looks up"]
    for i, (w, h) in enumerate(sizes): # soft pictures: what resizing does to noise is no picture's matter
        Image.fromarray(draw.integers(0, 256, (6, 6, 3), np.uint8)).resize((w, h), Image.Resampling.BICUBIC).save(tmp_path/f"{i}.png")
    done = scored_alone(made.plain, tmp_path, "".join(f"{i}.png\t{c}\n" for i, c in enumerate(captions)))
    assert done.returncode == 0, done.stderr
    printed = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[1:] for row in printed] == [[f"{i}.png", c] for i, c in enumerate(captions)]
    tensors = [torch.from_numpy(np.array(Image.open(tmp_path/f"{i}.png"))).movedim(-1, 0).float()/255 for i in range(5)]
    metric = get_metric("l-clipscore", weights=made.student, resize="pillow")
    expected = extract([metric], captions, source=tensors)[metric.name].pred
    assert np.abs([float(row[0]) for row in printed] - expected.numpy()).max() < 1e-4 and expected.std() > 1e-3


def test_the_script_refuses_what_the_metric_refuses(made, tmp_path):
    Image.new("RGB", (48, 48)).save(tmp_path/"0.png")
    for caption, says in (("a "*90, "fit"), ("a <|endoftext|> b", "end token")):
        done = scored_alone(made.plain, tmp_path, f"0.png\t{caption}\n")
        assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
        with pytest.raises(InputError, match="more than 80 tokens|end token as a word"): ExportedTowers(made.plain).tokens([caption])


def test_settings_say_all_that_a_score_depends_on(made):
    _, record = read_lclip(made.student)
    found = read_settings(made.plain)
    assert (found["size"], found["fit"], found["interpolation"], found["context"], found["end"]) == (48, "crop", "bicubic", 80, 1)
    assert (found["mean"], found["std"]) == tuple(map(list, record.prepare.stats)) and (found["prefix"], found["weight"]) == ("A photo depicts ", 2.5)
    assert found["student"] == record.sha256[:12] and 0 < found["difference"] < 1e-5 and found["numbers"] == "float32"
    assert {p.name for p in made.plain.iterdir()} == {"vision.onnx", "text.onnx", "tokenizer.json", "settings.json", "score.py"}


def test_eight_bits_are_smaller_and_close(made):
    config = read_lclip(made.student)[1].config
    pixels = inputs(config, 12).numpy()
    captions = [f"a {color} {thing}" for color in ("red", "blue", "green") for thing in ("circle", "square", "dog", "tree")]
    foils = [c.replace("a ", "two ") for c in captions]
    table = open_cells("lclip/10_exported").compare_exports({"float32": made.plain, "int8": made.small}, pixels, range(12), captions, foils, threads=1, repeats=1).set_index("form")
    plain, small = table.loc["float32"], table.loc["int8"]
    assert small["megabytes"] < .7*plain["megabytes"] and read_settings(made.small)["numbers"] == "int8"
    assert plain["largest change"] == plain["decisions turned"] == 0 and plain["tau"] == pytest.approx(1)
    assert 0 < small["mean change"] < small["largest change"] < .15 and small["tau"] > .5
    assert (table["pairs per second"] > 0).all() and 0 <= small["right above foil"] <= 1
    kinds = {node.op_type for tower in ("vision", "text") for node in onnx.load(made.small/f"{tower}.onnx").graph.node}
    assert "MatMulInteger" in kinds
    table = {t.name: t for t in onnx.load(made.small/"text.onnx").graph.initializer}
    assert any(t.data_type in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8) and list(t.dims)[:1] == [config.vocabulary] for t in table.values())  # the words, too


def test_a_file_that_computes_something_else_is_refused_and_leaves_nothing(made, tmp_path, monkeypatch):
    def another(tower, example, name, free): # of the same student with another head
        graph = onnx.load(made.plain/("vision.onnx" if name == "pixels" else "text.onnx"))
        head = next(t for t in graph.graph.initializer if list(t.dims) == [16])
        head.raw_data = (np.frombuffer(head.raw_data, np.float32) + wrong).tobytes()
        return graph
    monkeypatch.setattr(export, "_onnx_model", another)
    for wrong in (2e-4, np.nan):
        with pytest.raises(InputError, match="the exported vision tower differs from the network by"): export_lclip(made.student, tmp_path/"onnx")
        assert [*tmp_path.iterdir()] == []
    wrong = 5e-5
    shutil.copytree(made.small, tmp_path/"onnx")
    with pytest.raises(InputError, match="--overwrite"): export_lclip(made.student, tmp_path/"onnx")
    assert read_settings(tmp_path/"onnx")["numbers"] == "int8"
    (tmp_path/"onnx"/"mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other files"): export_lclip(made.student, tmp_path/"onnx", overwrite=True)
    assert (tmp_path/"onnx"/"mine.txt").read_text() == "mine"  # nothing of the user's is ever replaced
    (tmp_path/"onnx"/"mine.txt").unlink()
    export_lclip(made.student, tmp_path/"onnx", overwrite=True)  # within what is allowed, and it says how far
    assert 4e-5 < read_settings(tmp_path/"onnx")["difference"] < 1e-4
    assert [p.name for p in tmp_path.iterdir()] == ["onnx"] and read_settings(tmp_path/"onnx")["numbers"] == "float32"


def test_what_is_no_export_is_one_line(made, tmp_path):
    with pytest.raises(InputError, match="8 bits already"): quantize_export(made.small, tmp_path/"a")
    with pytest.raises(InputError, match="is no exported student: it has no"): ExportedTowers(tmp_path)
    with pytest.raises(InputError, match="no weights in"): export_lclip(tmp_path, tmp_path/"b")
    (tmp_path/"file").write_text("")
    with pytest.raises(InputError, match="is a file"): export_lclip(made.student, tmp_path/"file")
    for content in ("no JSON", "[]", json.dumps({"format": 2})):
        (tmp_path/"settings.json").write_text(content)
        with pytest.raises(InputError, match="holds no settings of an exported student"): read_settings(tmp_path)
    for name in ("vision.onnx", "text.onnx", "tokenizer.json", "settings.json", "score.py"): (tmp_path/name).write_bytes((made.plain/name).read_bytes())
    (tmp_path/"text.onnx").write_bytes(b"no graph")
    with pytest.raises(InputError, match="is no network that onnxruntime reads"): ExportedTowers(tmp_path)


def test_the_command_writes_a_folder_or_one_line(made, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_onnx_model", lambda tower, example, name, free: onnx.load(made.plain/("vision.onnx" if name == "pixels" else "text.onnx")))
    done = cli("lclip", "export", made.student, "--out", tmp_path/"it's small", "--int8", cwd=tmp_path)
    assert done.returncode == 0 and "int8" in done.stdout and "largest difference" in done.stdout, done.stderr
    assert read_settings(tmp_path/"it's small")["numbers"] == "int8"
    assert (tmp_path/"it's small"/"text.onnx").stat().st_size == (made.small/"text.onnx").stat().st_size
    pasted = shlex.split(done.stdout.splitlines()[-1])
    assert pasted == ["try", "it:", "python", str(tmp_path/"it's small"/"score.py"), "PAIRS.tsv"]
    done = cli("lclip", "export", made.student, "--out", tmp_path/"it's small", "--overwrite", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)["result"]
    assert [row["file"] for row in found["files"]] == ["text.onnx", "vision.onnx"] and found["numbers"] == "float32" and 0 <= found["difference"] < 1e-4
    done = cli("lclip", "export", made.student, "--out", tmp_path/"it's small", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.strip().endswith("choose another folder, or --overwrite (overwrite=True)")
