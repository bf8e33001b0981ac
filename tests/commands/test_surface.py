"What `import invariant_metrics as im` offers, and how its scores are shown."
import html
import inspect
from dataclasses import fields
from operator import attrgetter

import numpy as np
import pytest
import typer

import invariant_metrics as im
from invariant_metrics.commands import imagine_commands, judge_commands, lclip_commands, score_commands # put their commands on the application
from invariant_metrics.commands.shell import app
from invariant_metrics.core import Interval, Score, Signature
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
