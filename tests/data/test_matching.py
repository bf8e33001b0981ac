"Results whose names have suffixes find their partners by a pattern or in order, and never in silence."
import numpy as np
import pytest
from PIL import Image

from commands import cli
from invariant_metrics.core import InputError
from invariant_metrics.data.items import Images
from invariant_metrics.data.matching import match_names
from invariant_metrics.scoring.score import score


def save(folder, names, seed=0):
    "Pictures of which number k is as bright as 20 k, so that a wrong partner costs decibels."
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(seed)
    for k, name in enumerate(names):
        Image.fromarray((20*k + draw.integers(0, 6, (16, 16, 3))).astype(np.uint8)).save(folder/f"{name}.png")
    return folder


FORMS = {"x4": ("img{}_x4_SwinIR", "img{}"), "fake": ("{}_fake_B", "{}_real_B"), "padded": ("{:04}_out", "{:04}"), "words": ("out-{}-final", "gt-{}")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("match", ["order", r"\d+"])
def test_a_pattern_or_the_order_pairs_folders(tmp_path, form, match):
    made, true = FORMS[form]
    numbers = range(12) # 10 comes after 9, not after 1
    pred, target = save(tmp_path/"p", [made.format(i) for i in numbers]), save(tmp_path/"t", [true.format(i) for i in numbers], 1)
    with pytest.raises(InputError, match="--match"): score(pred, target, "psnr", ci=False)
    if form == "x4" and match == r"\d+": match = r"^\D*(\d+)" # the 4 of x4 is a number, too
    found = score(pred, target, "psnr", ci=False, match=match)["psnr"]
    assert found.value > 38 and any("paired by" in n and f"{made.format(0)} answers {true.format(0)}" in n for n in found.notes)


@pytest.mark.parametrize("form", FORMS)
def test_two_lists_of_files_need_nothing(tmp_path, form):
    made, true = FORMS[form]
    pred, target = save(tmp_path/"p", [made.format(i) for i in range(12)]), save(tmp_path/"t", [true.format(i) for i in range(12)], 1)
    found = score(sorted(pred.iterdir()), sorted(target.iterdir(), reverse=True), "psnr", ci=False)["psnr"] # by part, whatever the order
    assert found.value > 38 and any("the part in which their names differ" in n for n in found.notes)


def test_lists_of_other_names_go_by_their_order_and_say_so(tmp_path):
    pred, target = save(tmp_path/"p", ["cat", "dog", "emu"]), save(tmp_path/"t", ["x", "y", "z"], 1)
    order = [target/f"{n}.png" for n in "zyx"]
    found = score([pred/f"{n}.png" for n in ("emu", "dog", "cat")], order, "psnr", ci=False)["psnr"]
    assert found.value > 38 and any("the order of the lists: cat answers x" in n or "emu answers z" in n for n in found.notes)


def test_lists_of_which_some_names_agree_are_no_order(tmp_path):
    pred, target = save(tmp_path/"p", ["0_fake", "1_fake", "3_fake"]), save(tmp_path/"t", ["0", "1", "2"])
    with pytest.raises(InputError, match="--match"): score(sorted(pred.iterdir()), sorted(target.iterdir()), "psnr", ci=False)


@pytest.mark.parametrize("match, says", [("(", "is no pattern"), ("zzz", "12 of 12 names have no part like zzz"), ("img", "finds img in 12 names"), (r"\d+$", "without a target")])
def test_patterns_that_name_no_pairs_are_one_line(tmp_path, match, says):
    pred, target = save(tmp_path/"p", [f"img{i}" for i in range(12)]), save(tmp_path/"t", [f"img{i + 1}" for i in range(12)])
    with pytest.raises(InputError, match=says) as error: score(pred, target, "psnr", ci=False, match=match)
    assert "\n" not in str(error.value)


def test_an_order_of_unequal_numbers_or_with_gaps_is_refused(tmp_path):
    pred, target = save(tmp_path/"p", list("abc")), save(tmp_path/"t", list("wxyz"))
    with pytest.raises(InputError, match="holds 3 images and .* 4"): score(pred, target, "psnr", match="order")
    (target/"z.png").unlink(); (target/"w.png").write_bytes(b"")
    (pred/"c.png").unlink()
    with pytest.raises(InputError, match="images were left out"): score(pred, target, "psnr", match="order", skip_bad=True)


def test_match_is_for_images_with_targets(tmp_path):
    with pytest.raises(InputError, match="there are none"): score(save(tmp_path/"p", ["a"]), None, "colorfulness", match="order")
    with pytest.raises(InputError, match="something else"): score(["a b"], ["a c"], "rouge-l", match="order")


def test_several_systems_take_the_names_of_the_target():
    sides = [Images([f"{i}{s}" for i in range(3)], [np.full(1, i) for i in range(3)], s) for s in ("_a", "_b", "")]
    systems, target, notes = match_names(sides[:2], sides[2], r"^\d+")
    assert all(side.names == target.names == list("012") for side in systems) and len(notes) == 1
    assert match_names(sides[:2], sides[2])[2] == ()


def test_the_command_names_a_pattern_that_works(tmp_path):
    save(tmp_path/"p", [f"img{i}_x4" for i in range(3)]), save(tmp_path/"t", [f"img{i}" for i in range(3)], 1)
    refused = cli("score", "psnr", "--pred", "p", "--target", "t", "--ci", "none", cwd=tmp_path)
    assert refused.returncode == 2
    pattern = refused.stderr.split("--match '")[1].split("'")[0]
    done = cli("score", "psnr", "--pred", "p", "--target", "t", "--ci", "none", "--match", pattern, cwd=tmp_path)
    assert done.returncode == 0 and "img0_x4 answers img0" in done.stderr
