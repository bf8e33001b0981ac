"What `import invariant_metrics as im` offers, what `help` says of it, and how its scores are shown."
import ast
import html
import inspect
import json
from dataclasses import fields
from operator import attrgetter

import numpy as np
import pytest
import torch
import typer
from PIL import Image

import invariant_metrics as im
from invariant_metrics.commands import imagine_commands, judge_commands, lclip_commands, score_commands # put their commands on the application
from invariant_metrics.commands.shell import app
from invariant_metrics.core import Interval, Score, Signature
from invariant_metrics.files import assets_folder, word_table
from invariant_metrics.metrics.metric import metrics
from invariant_metrics.scoring.score import ScoreOptions

# function of the package -> its command, arguments for which the shell has no option, or has one by another name
COMMANDS = {
    "score": ("score", set()), "probe": ("probe metrics", {"progress"}), "agree": ("agree people", set()), "study": ("study", set()), "power": ("power", {"alpha"}),
    "styles": ("styles rank", set()), "advise": ("advise", {"progress"}), "probe_encoder": ("probe encoder", {"encoder"}), # the command's `name`
    "judge_faults": ("probe judge", set()),
    "lclip.study": ("lclip study", set()), "lclip.supervise": ("lclip supervise", {"reps", "references"}), # --with-references
    "imagine.study": ("imagine study", set()), "imagine.draw": ("imagine draw", set()),
}


def example(**more) -> Score:
    signature = Signature.of(metric="fd", encoder="embedded", layer="embedding", weights="398389101e24", normalized="no", dtype="float64",
                             n=200, n_target=240, reference="364844ab81fb", version="1.2")
    return Score(26.84, Interval(18.39, 29.5, 0.9, "influence"), 200, False, signature, corrected=23.94, **more)


def test_a_score_is_a_number_and_says_itself_shortly():
    score = example()
    assert float(score) == 26.84 and f"{score:.3f}" == "26.840" and f"{score:>8.1f}" == "    26.8" and f"{score}" == str(score)
    assert repr(score) == "Score(fd 26.84 corrected 23.94 [18.39, 29.5] n=200)"
    assert score.signature.short == "fd|embedded|embedding|n:200/240|v1.2"
    assert score.caption == "fd|embedded|embedding|n:200/240|v1.2; 90 % interval, influence"
    assert round(sum(map(float, [score, score])), 2) == 53.68


def test_what_a_notebook_shows_is_escaped():
    bad = "<script>alert(1)</script>"
    shown = example(notes=(bad,))._repr_html_()
    assert "<script" not in shown and html.escape(bad) in shown and "↓" in shown


def test_dir_shows_what_is_for_users():
    shown = [name for name in dir(im) if not (name.startswith("__") and name.endswith("__"))]
    assert not [name for name in shown if name.startswith("_")] and set(im.__all__) <= set(shown)
    assert {"score", "probe", "study", "agree", "power", "advise", "styles", "rank", "ranking", "TorchMetric", "get_metric", "metric_cards", "paired_metric",
            "single_metric", "set_metric", "Score", "Scores"} <= set(im.__all__)
    rooms = {name: getattr(im, name) for name in ("lclip", "imagine")}
    entries = {name: getattr(im, name) for name in im.__all__ if name not in rooms}
    entries |= {f"{room}.{name}": getattr(opened, name) for room, opened in rooms.items() for name in opened.__all__}
    for name, entry in entries.items(): assert callable(entry) and (entry.__doc__ or "").strip(), name
    for room in rooms.values(): assert set(room.__all__) <= set(dir(room)) and room.__doc__
    with pytest.raises(AttributeError, match="no attribute 'distil'"): im.lclip.distil


EXAMPLES = word_table(assets_folder()/"examples.tsv", "where", "line")
FUNCTIONS = [name for name in im.__all__ if inspect.isfunction(getattr(im, name))]
FOR_LONGER = ("im.probe", "im.study", "im.rank(", "im.advise", "im.styles", "im.edit_readings", "im.load_results") # what they name is checked, the run is not


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_shows_every_parameter_what_comes_back_and_an_example(name):
    function = getattr(im, name)
    told = function.__doc__
    words = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    assert all(f"\n{word} : " in told for word in words)
    if name == "score": assert all(f"\n{f.name} : " in told for f in fields(ScoreOptions))
    assert "Example\n-------\n>>> " in told


def test_examples_of_the_help_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = np.random.default_rng(0)
    for folder in ("truth", "ours", "theirs"):
        (tmp_path/folder).mkdir()
        for i in range(3): Image.fromarray(drawn.integers(0, 256, (16, 16, 3), np.uint8)).save(tmp_path/folder/f"{i}.png")
    texts = [f"a {color} {thing} is left of a tree" for color in ("red", "blue", "green") for thing in ("boat", "car", "dog", "house")]
    for name in ("truth", "ours", "theirs"): (tmp_path/f"{name}.txt").write_text("\n".join(t.replace("left", "right") if name == "theirs" else t for t in texts))
    (tmp_path/"refs.json").write_text(json.dumps({str(i): [t, t + " now"] for i, t in enumerate(texts)}))
    rows = [(i, s, drawn.random()) for i in range(12) for s in ("a", "b")]
    (tmp_path/"judgments.csv").write_text("item,system,score\n" + "\n".join(f"{i},{s},{x:.3f}" for i, s, x in rows))
    (tmp_path/"scores.csv").write_text("item,system,metric,value\n" + "\n".join(f"{i},{s},bleu,{x + .1:.3f}" for i, s, x in rows))
    there = {"im": im, "torch": torch}
    for where, line in EXAMPLES:
        calls = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func).startswith("im.")]
        if not calls: # a second line on what the first has made
            exec(line, there)
            continue
        call = calls[0]
        function = attrgetter(ast.unparse(call.func).removeprefix("im."))(im)
        module, _, name = where.partition(":")
        assert (function.__module__, inspect.unwrap(function).__name__) == (f"invariant_metrics.{module}", name)
        if line.startswith(FOR_LONGER) or " = im.probe" in line:
            inspect.signature(function).bind(*(ast.literal_eval(a) for a in call.args), **{k.arg: ast.literal_eval(k.value) for k in call.keywords})
        else: exec(line, there)
        for name in ("darkness", "brightness", "gap", "words"): metrics.entries.pop(name, None) # what decorators registered
    assert {f"{inspect.unwrap(getattr(im, n)).__module__.partition('.')[2]}:{inspect.unwrap(getattr(im, n)).__name__}" for n in FUNCTIONS} <= {w for w, _ in EXAMPLES}


def test_a_function_stays_a_function_when_the_rooms_are_open():
    from invariant_metrics.lclip import compress, run_lclip # noqa: F401
    from invariant_metrics.probes import run_probe # noqa: F401
    from invariant_metrics.studies import run_study # noqa: F401
    assert all(inspect.isfunction(f) for f in (im.probe, im.study, im.rank, im.ranking, im.lclip.distill, im.lclip.study, im.imagine.draw))
    assert list(inspect.signature(im.lclip.distill).parameters)[:2] == ["data", "out"]


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_and_functions_of_the_package_take_the_same_words(name):
    path, missing = COMMANDS[name]
    command = typer.main.get_command(app)
    for part in path.split(): command = command.commands[part]
    own = {p.name for p in inspect.signature(attrgetter(name)(im)).parameters.values() if p.kind is not p.VAR_KEYWORD}
    if "options" in own: own = own - {"options"} | {f.name for f in fields(ScoreOptions)}
    lost = own - {p.name for p in command.params}
    assert lost == missing, f"{path}: no option for {lost - missing}, and one for {missing - lost}"


def test_scores_are_a_frame_and_a_table_in_a_notebook():
    target = np.random.default_rng(0).random((12, 16, 16, 3))
    one = im.score(0.9*target, target, ["psnr", "ssim"])
    assert list(one.to_frame().metric) == ["psnr", "ssim"] and one.to_frame().value[0] == one["psnr"].value
    both = im.score({"<script>a</script>": 0.9*target, "b": 0.8*target}, target, ["psnr", "fd"], encoder="mean-color")
    frame = both.to_frame()
    assert list(frame.columns[:6]) == ["system", "metric", "value", "corrected", "ci_low", "ci_high"] and len(frame) == 4
    row = frame[(frame.system == "b") & (frame.metric == "fd")].iloc[0]
    score = both["b"]["fd"]
    assert (row.value, row.corrected, row.ci_low, row.n, row.signature) == (score.value, score.corrected, score.ci.low, 12, str(score.signature))
    shown = both._repr_html_()
    assert "<script" not in shown and "&lt;script&gt;a" in shown and "psnr ↑" in shown and "fd ↓" in shown
    assert all(note in html.unescape(shown) for note in score.notes)  # never cut
    assert "corrected" not in one._repr_html_() and "p_value" not in shown  # no empty columns
    gap = im.score({"a": 0.9*target, "b": 0.8*target}, target, ["psnr"], paired=True)
    assert gap.to_frame().value[0] == pytest.approx(both["<script>a</script>"]["psnr"].value - both["b"]["psnr"].value)
