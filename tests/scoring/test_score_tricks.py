"A score beside the best cheap trick: a hand-made winner and loser, the paired null, and what cannot be asked."
import json

import numpy as np
import pandas as pd
import pytest
import torch

from commands import cli
from invariant_metrics.color import scale_chroma
from invariant_metrics.core import InputError
from invariant_metrics.scoring.score import score
from invariant_metrics.worlds.scenes import make_scenes

REFERENCES = [(f"the {a} {b} sits on the {c} mat", f"a {b} that is {a} is on a mat of {c}")
              for a, b, c in zip(["red", "blue", "old"]*4, ["cat", "dog", "cow", "bird"]*3, ["wool", "straw", "silk", "cork", "felt", "reed"]*2)]
GOOD = [a.replace(("sits", "mat", "the", "")[k % 4], "it", 1) for k, (a, _) in enumerate(REFERENCES)]


def test_who_knows_the_answer_beats_every_trick_and_who_repeats_one_sentence_does_not():
    good = score(GOOD, REFERENCES, "rouge-l", tricks=True)
    assert all(t.beaten for t in good.tricks["rouge-l"].values())
    assert not any(n.code == "cheap-trick" for n in good["rouge-l"].notes)
    dull = score(["the cat"]*12, REFERENCES, "rouge-l", tricks=True)
    name, best = next(iter(dull.tricks["rouge-l"].items()))
    note, = [n for n in dull["rouge-l"].notes if n.code == "cheap-trick"]
    assert best.beaten is False and name in note and best.difference.ci.high < 0


def test_a_trick_that_scores_the_same_is_not_beaten():
    twice = score([f"{t} {t}" for t in GOOD], GOOD, "repetition", tricks=True)
    assert not all(t.beaten for t in twice.tricks["repetition"].values())


def test_the_lead_over_a_trick_is_the_paired_difference_of_two_systems():
    together = score({"good": GOOD, "said twice": [f"{t} {t}" for t in GOOD]}, REFERENCES, "rouge-l")
    gap = together.difference("rouge-l", "good", "said twice")
    found = score(GOOD, REFERENCES, "rouge-l", tricks=True).tricks["rouge-l"]["repeated"]
    assert (found.difference.value, found.difference.ci) == (gap.value, gap.ci)


def test_a_gain_stands_beside_the_tricks_done_to_the_other_system():
    short = [" ".join(t.split()[:3]) for t in GOOD]
    gap = score({"good": GOOD, "short": short}, REFERENCES, "rouge-l", tricks=True, paired=True)
    twice = [f"{t} {t}" for t in short]
    alone = score({"good": GOOD, "twice": twice}, REFERENCES, "rouge-l").difference("rouge-l", "good", "twice")
    assert gap.tricks["rouge-l"]["repeated"].difference.value == pytest.approx(alone.value)


def test_pictures_and_sets_have_tricks_too():
    scenes = make_scenes(24, 32, seed=5).rgb
    pale = scale_chroma(scenes, 0.5)
    of = score(pale, scenes, ["psnr", "fd"], tricks=True)
    assert next(iter(of.tricks["psnr"])) == "color-1.5"           # nearest to what was lost
    assert of.tricks["psnr"]["color-1.5"].beaten is False
    assert of.tricks["psnr"]["gray"].beaten and set(of.tricks["fd"]) == set(of.tricks["psnr"])
    frame = of.by_trick()
    assert len(frame) == 16 and frame[frame.metric == "psnr"].value.is_monotonic_decreasing


def test_three_systems_can_vote():
    draw = np.random.default_rng(0)
    scenes = make_scenes(10, 16, seed=6).rgb
    noisy = {f"system {k}": (scenes + 0.1*torch.from_numpy(draw.standard_normal(scenes.shape)).float()).clamp(0, 1) for k in range(3)}
    found = score(noisy, scenes, "psnr", tricks=True)
    assert all("vote" in by.tricks["psnr"] for by in found.values())


def test_what_has_no_tricks():
    with pytest.raises(InputError, match="features or statistics were given"): score(np.eye(9), np.eye(9), "fd", tricks=True)
    with pytest.raises(InputError, match="without a direction"): score(make_scenes(9, 16).rgb, None, "colorfulness", tricks=True)
    with pytest.raises(InputError, match="two items"): score(GOOD[:1], REFERENCES[:1], "rouge-l", tricks=True)


def test_without_intervals_nothing_is_beaten():
    found = score(GOOD, REFERENCES, "rouge-l", tricks=True, ci=False)
    assert {t.beaten for t in found.tricks["rouge-l"].values()} == {None}
    assert "not tested" in found["rouge-l"].notes[-1]


def test_command_json_and_file_of_items_say_the_same(tmp_path):
    for name, texts in {"good.txt": GOOD, "ref0.txt": [a for a, _ in REFERENCES], "ref1.txt": [b for _, b in REFERENCES]}.items():
        (tmp_path/name).write_text("".join(f"{t}\n" for t in texts))
    line = "score rouge-l --pred good.txt --target ref0.txt ref1.txt --tricks --per-item items.parquet".split()
    found = json.loads(cli(*line, "--json", cwd=tmp_path).stdout)["result"]
    name, best = next(iter(found["tricks"]["good"]["rouge-l"].items()))
    whole = found["scores"]["good"]["rouge-l"]["value"]
    assert best["difference"]["value"] == pytest.approx(whole - best["score"]["value"]) and best["meaning"]
    items = pd.read_parquet(tmp_path/"items.parquet").groupby("system").value.mean()
    assert items["good"] == pytest.approx(whole) and items[f"good, {name}"] == pytest.approx(best["score"]["value"])
    assert "beside cheap tricks" in cli(*line, cwd=tmp_path).stdout
