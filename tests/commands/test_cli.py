"The command line, end to end: help, one-line errors, score, study and its run folder."
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import check_output, cli
from invariant_metrics.probes.images import COLOR_SIZES
from invariant_metrics.worlds.scenes import make_scenes

COMMANDS = ["study", "score", "metrics", "invariants", "report", "stats", "weights list", "weights verify", "weights fetch", "weights train",
            "cache list", "cache clear", "wordnet build", "rank", "rank grid", "rank collect", "rank labels", "lclip distill",
            "lclip supervise", "lclip study", "lclip export", "imagine draw", "imagine study", "imagine table", "probe edits"]


def images(folder: Path, seed: int, n: int = 6, noise: float = 0.0) -> Path:
    folder.mkdir()
    base, draw = np.random.default_rng(0), np.random.default_rng(seed)
    for i in range(n):
        pixels = base.integers(0, 256, (48, 40, 3)) + noise * draw.standard_normal((48, 40, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder/f"{i}.png")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_an_example(command, tmp_path):
    done = cli(*command.split(), "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"Example: invariant-metrics {command}" in " ".join(done.stdout.split())


@pytest.mark.parametrize("words, says", [
    ("study colourization", "did you mean colorization"),
    ("study", "Missing argument"),
    ("study colorization --scale hug", "unknown scale 'hug'"),
    ("study colorization --grid fll", "did you mean full?"),
    ("study colorization --parts prob", "did you mean probe?"),
    ("study colorization --sede 3", "No such option"),
    ("study colorization --alphas a,b", "is not a list of numbers"),
    ("study colorization --data nowhere", "no file or folder at nowhere"),
    ("study translation --data nowhere", "no file or folder at nowhere"),
    ("study translation --long chop", "unknown way with long texts 'chop'"),
    ("study colorization --metrics fddd", "unknown metric 'fddd'"),
    ("study colorization --metrics no_module_of_mine:thing", "no module 'no_module_of_mine'"),
    ("study colorization --invariants segmentatio", "did you mean segmentation"),
    ("study colorization --model unnet", "did you mean unet?"),
    ("study colorization --select pnsr", "psnr"),
    ("score pnsr --pred a --target a", "did you mean psnr?"),
    ("score psnr --pred nowhere --target nowhere", "nowhere"),
    ("weights verify segmentatoin", "did you mean segmentation"),
    ("weights fetch no-such-network", "unknown weights"),
    ("report nowhere", "nowhere"),
    ("nonsense", "No such command"),
])
def test_a_mistake_is_one_line_and_exit_code_2(words, says, tmp_path):
    if "score pnsr" in words: images(tmp_path/"a", 0)
    done = cli(*words.split(), cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    assert says in lines[0], lines[0]


def test_debug_shows_the_traceback(tmp_path):
    done = cli("score", "psnr", "--pred", "nowhere", "--target", "nowhere", "--debug", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" in done.stderr


def test_score_ranks_systems_and_prints_json(tmp_path):
    truth, near, far = images(tmp_path/"truth", 0), images(tmp_path/"near", 1, noise=5), images(tmp_path/"far", 2, noise=25)
    done = cli("score", "psnr,violation-edges", "--pred", far, "--pred", near, "--target", truth, "--json", "--reps", 50,
               "--per-item", tmp_path/"items.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    scores = answer["result"]["scores"]
    assert answer["schema"] == 1 and scores["near"]["psnr"]["value"] > scores["far"]["psnr"]["value"]
    assert (tmp_path/"items.parquet").exists()
    again = cli("score", "psnr", "--pred", near, "--target", truth, "--reps", 50, cwd=tmp_path)
    assert again.returncode == 0 and "psnr" in again.stdout


def test_scores_of_items_go_from_score_to_agree_and_power_as_csv(tmp_path):
    drawn = np.random.default_rng(0)
    words = "a red blue small boat car dog tree is left right of the near sees under".split()
    refs = [" ".join(drawn.choice(words, 8)) for _ in range(20)]
    hyps = {"sysA": [r.replace("red", "green") for r in refs], "sysB": [r.replace("a ", "the ").replace("boat", "ship") for r in refs]}
    (tmp_path/"refs.txt").write_text("\n".join(refs))
    for name, texts in hyps.items(): (tmp_path/f"{name}.txt").write_text("\n".join(texts))
    people = [f"{i},{s},{drawn.integers(1, 6)}" for s in hyps for i in range(1, 21)]
    (tmp_path/"judgments.csv").write_text("\n".join(["item,system,score", *people]))
    scored = cli("score", "chrf", "--pred", "sysA.txt", "--pred", "sysB.txt", "--target", "refs.txt", "--per-item", "scores.csv", cwd=tmp_path)
    agreed = cli("agree", "judgments.csv", "--metrics", "scores.csv", "--json", cwd=tmp_path)
    planned = cli("power", "--values", "scores.csv", cwd=tmp_path)
    assert [done.returncode for done in (scored, agreed, planned)] == [0, 0, 0], scored.stderr + agreed.stderr + planned.stderr
    first = json.loads(agreed.stdout)["result"]["table"][0]
    assert (first["metric"], first["n_rows"], first["n_systems"]) == ("chrf", 40, 2)


def test_texts_are_read_from_standard_input(tmp_path):
    (tmp_path/"refs.txt").write_text("a red boat\na blue car\n")
    done = subprocess.run([sys.executable, "-m", "invariant_metrics", "score", "chrf", "--pred", "-", "--target", "refs.txt", "--ci", "none", "--json"],
                          input="a red boat\na blue car\n", text=True, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["scores"]["-"]["chrf"]["value"] == pytest.approx(100)


@pytest.mark.parametrize("command", ["metrics", "invariants", "weights list", "cache list"])
def test_lists_as_table_and_json(command, tmp_path):
    table, data = cli(*command.split(), cwd=tmp_path), cli(*command.split(), "--json", cwd=tmp_path)
    assert table.returncode == data.returncode == 0, table.stderr + data.stderr
    assert isinstance(json.loads(data.stdout)["result"], list)


def test_study_writes_a_page_refuses_another_run_and_returns_the_same_one(tmp_path, monkeypatch):
    monkeypatch.setitem(COLOR_SIZES, "quick", replace(COLOR_SIZES["quick"], items=8, sets=4, reps=20, per_photo=1))
    (tmp_path/"photos").mkdir()
    for i, x in enumerate((255*make_scenes(6, 96, seed=3).rgb).byte().movedim(1, -1).numpy()): Image.fromarray(x).save(tmp_path/"photos"/f"{i}.png")
    quick = ["study", "colorization", "--parts", "probe", "--scale", "quick", "--data", "photos", "--out", "run", "--workers", 1]
    done = cli(*quick, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = tmp_path/"run"/"index.html"
    assert page.exists() and "page: " in done.stdout
    written = page.stat().st_mtime
    again = cli(*quick, cwd=tmp_path)
    assert again.returncode == 0 and "page: " in again.stdout and page.stat().st_mtime >= written
    check_output(json.loads(cli(*quick, "--json", cwd=tmp_path).stdout))
    other = cli(*quick, "--seed", 1, cwd=tmp_path)
    assert other.returncode == 2 and "holds another run (seed 0 instead of 1)" in other.stderr


def test_an_installed_package_announces_a_metric(tmp_path, monkeypatch):
    info = tmp_path/"colleague-1.0.dist-info"
    info.mkdir()
    (info/"METADATA").write_text("Metadata-Version: 2.1\nName: colleague\nVersion: 1.0\n")
    (info/"entry_points.txt").write_text("[invariant_metrics.metrics]\nbrightness-gap = colleague:brightness_gap\n")
    (tmp_path/"colleague.py").write_text("from invariant_metrics import paired_metric\n\n"
                                         "@paired_metric('brightness-gap', higher_is_better=False)\n"
                                         "def brightness_gap(pred, target): return (pred.amax((1, 2, 3)) - target.amax((1, 2, 3))).abs()\n")
    truth, near = images(tmp_path/"truth", 0), images(tmp_path/"near", 1, noise=9)
    monkeypatch.syspath_prepend(tmp_path)
    listed = cli("metrics", "--json", cwd=tmp_path)
    assert "brightness-gap" in [row["name"] for row in json.loads(listed.stdout)["result"]], listed.stderr
    done = cli("score", "brightness-gap", "--pred", near, "--target", truth, "--reps", 20, "--json", cwd=tmp_path)
    assert done.returncode == 0 and "brightness-gap" in done.stdout, done.stderr


def test_an_interval_and_a_p_of_another_test_are_told_apart(tmp_path):
    draw = np.random.default_rng(0)
    for name in ("p", "t"): np.save(tmp_path/f"{name}.npy", draw.normal(size=(40, 4)).astype(np.float32))
    line = "a permutation test that both sides have one distribution; the interval beside it is of the distance"
    shown = cli("score", "mmd", "--pred", "p.npy", "--target", "t.npy", "--permutations", "50", cwd=tmp_path)
    plain = cli("score", "mmd", "--pred", "p.npy", "--target", "t.npy", cwd=tmp_path)
    assert shown.returncode == plain.returncode == 0 and line in " ".join(shown.stdout.split()) and line not in " ".join(plain.stdout.split())
