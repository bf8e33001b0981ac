"Studies of published colorizers: their critics, starts and full sizes, what is refused, and what is read from several of them."
import json

import pandas as pd
import pytest
import torch

from commands import cli
from invariant_metrics.core import InputError
from invariant_metrics.invariants.invariant import get_invariant
from invariant_metrics.models.colorizer import colorizers
from invariant_metrics.studies.colorizers import Colorization
from invariant_metrics.studies.findings import FINDINGS, compare_networks, findings_answers, study_findings
from invariant_metrics.studies.plan import Start, StudySize
from invariant_metrics.studies.search import train_systems
from invariant_metrics.studies.tasks import make_plan, pretrain_network, pull
from invariant_metrics.training.augmented import color_batches
from invariant_metrics.training.checkpoint import read_state
from invariant_metrics.training.color_recipes import color_recipe, start_colorizer
from invariant_metrics.training.loop import Optim, fit
from invariant_metrics.worlds.scenes import make_scenes

TINY = StudySize(side=32, train=24, validation=8, test=10, pretrain=4, steps=4, batch=4, reps=10)
PUBLISHED = ("chromagan", "colorformer", "ddcolor")


@pytest.fixture(scope="module")
def study(tmp_path_factory, one_thread):
    settings = {"model": "chromagan", "alphas": [1.0], "seeds": 1, "systems": ["segmentation"]}
    folder = tmp_path_factory.mktemp("published")/"a"
    return folder, settings, train_systems(folder, settings, size=TINY, workers=0)


def test_a_critic_is_trained_and_forks_with_its_colorizer(study):
    folder, _, result = study
    start, _ = read_state(folder/"pretrained"/"s0"/"checkpoint.safetensors")
    assert {"critic/model/convs.0.weight", "model/model/features.0.weight"} <= set(start)
    log = pd.read_parquet(folder/"pretrained"/"s0"/"log.parquet")
    assert set(log["turn"]) == {"model", "critic"} and {"task", "classes", "critic", "gap", "slope"} <= set(log["term"])
    assert set(result.results["system"]) >= {"baseline", "+segmentation", "+segmentation-random", "gray"}
    told = result.meta["pulls"]["+segmentation-random"] # its weight is that at which it pulls as hard as the real one
    assert abs(told["alpha"] - told["real_gradient"]/told["random_gradient"]) < 1e-6 and told["task_gradient"] > 0


def test_a_start_made_again_is_the_same_to_the_bit(study, tmp_path, one_thread):
    folder, settings, _ = study
    pretrain_network(Colorization(make_plan({"task": "colorization", **settings}, TINY), tmp_path), Start(0))
    first, again = (read_state(place/"pretrained"/"s0"/"checkpoint.safetensors")[0] for place in (folder, tmp_path))
    assert first.keys() == again.keys() and all(torch.equal(value, again[name]) for name, value in first.items())


def test_a_pull_is_of_what_was_added_alone_and_changes_nothing(study):
    folder, settings, _ = study
    task = Colorization(make_plan({"task": "colorization", **settings}, TINY), folder)
    network, critic = pretrain_network(task, Start(0)), task.critic(0)
    before = {k: v.clone() for k, v in critic.state_dict().items()}
    alone, added = pull(task, network, (), 0, critic), pull(task, network, ("segmentation",), 0, critic)
    assert alone > 0 and added > 0 and alone != added
    assert all(torch.equal(v, before[k]) for k, v in critic.state_dict().items())


@pytest.mark.parametrize("model", PUBLISHED)
def test_every_recipe_lowers_what_it_minimizes_and_no_invariant_is_trained(model, one_thread):
    scenes = make_scenes(16, size=32, seed=3)
    recipe, network = color_recipe(model), start_colorizer(model, rgb=scenes.rgb)
    g = get_invariant("depth")
    frozen = {k: v.clone() for k, v in g.state_dict().items()}
    log = fit(recipe.turns(network, recipe.critic(0), recipe.loss(None, {"depth": (g, 1.0)}), Optim(lr=3e-3)), color_batches(scenes.rgb, 8), 40)
    weights = log[(log["turn"] == "model") & (log["term"] != "gradient")]
    total = (weights["weight"]*weights["value"]).groupby(weights["step"]).sum()
    assert total.iloc[-5:].mean() < total.iloc[:5].mean()
    assert all(torch.equal(v, frozen[k]) for k, v in g.state_dict().items())


def test_a_term_that_is_not_a_number_is_named(one_thread):
    scenes = make_scenes(4, size=32, seed=3)
    recipe, network = color_recipe("ddcolor"), start_colorizer("ddcolor")
    loss = recipe.loss(None)
    loss.others["perceptual"] = (lambda made, batch: made.rgb.mean()*float("nan"), 5.0)
    with pytest.raises(InputError, match="perceptual"):
        fit(recipe.turns(network, recipe.critic(0), loss, Optim()), color_batches(scenes.rgb, 4), 2)


def test_full_scale_is_as_published():
    for model, side, batch in (("chromagan", 224, 10), ("colorformer", 256, 16), ("ddcolor", 256, 16)):
        size = make_plan({"task": "colorization", "model": model, "scale": "full"}).size
        assert (size.side, size.batch) == (side, batch)
    assert make_plan({"task": "colorization", "scale": "full"}).size.side == 64 # the U-Net's


@pytest.mark.parametrize("words, says", [
    (["--model", "ddcolour"], "did you mean ddcolor"),
    (["--model", "ddcolor", "--weights", "colorformer=net.pth"], "weights of 'colorformer' have no effect"),
    (["--model", "unet", "--weights", "ddcolor=net.pth"], "weights of 'ddcolor' have no effect"),
    (["--model", "ddcolor", "--weights", "ddcolor=absent.pth"], "absent.pth"),
    (["--model", "ddcolor", "--scale", "full"], "--weights vgg16-bn=vgg16_bn-6c64b313.pth"),
    (["--invariants", "san"], "san"),
    (["--test-data", "."], "give what to train on")])
def test_what_does_not_belong_together_is_refused_before_any_work(words, says, tmp_path):
    torch.save({}, tmp_path/"net.pth")
    done = cli("study", "colorization", "--parts", "training", "--out", "a", *words, cwd=tmp_path)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and says in errors[0] and not (tmp_path/"a").exists(), done.stderr


def test_weights_of_another_network_name_the_tensors_that_differ(tmp_path):
    torch.save({"params": colorizers["unet"]().state_dict()}, tmp_path/"net.pth")
    with pytest.raises(InputError, match="DDColor of size tiny"): start_colorizer("ddcolor", weights=str(tmp_path/"net.pth"))


def test_findings_by_hand():
    rows = [("gray", "violation-segmentation-judge", .20, .15, .25), ("gray", "violation-depth-judge", .2, .15, .25), ("saturation", "fd", .02, -.01, .05),
            ("+segmentation", "violation-segmentation-judge", .1, .05, .15), ("+segmentation", "violation-depth-judge", .16, .1, .2),
            ("+segmentation", "fd", .01, 0, .02), ("+segmentation-random", "fd", .03, 0, .06)]
    table = pd.DataFrame([(*r, 1.5, "selected") for r in rows], columns=["system", "metric", "improvement", "ci_low", "ci_high", "alpha", "reading"])
    found = study_findings(table, "by-hand")
    assert found["holds"].tolist()[:3] == ["not shown"]*3 # .15 is not above .16; -.01 is below 0; 0 is not above .01
    assert found["holds"].isna().tolist() == [False, False, False, True, True, True, True] and found["gain"][0] == .2
    paler = table.assign(alpha=.7, ci_low=table["ci_low"] + .05)
    assert study_findings(paler, "by-hand")["holds"][1] == "no" and study_findings(paler.assign(alpha=1.5), "by-hand")["holds"][1] == "yes" # less is not more
    assert findings_answers(found)[1] == f"{FINDINGS['colorization'][1].name}: holds in 0 of 1 (not shown: by-hand)"


def test_findings_of_writers_by_hand():
    rows = [("selected", "+entities", "fbd", .1, .02, .03, .01), ("selected", "+sentiment", "fbd", .1, .02, .05, -.01),
            ("selected", "+entities+sentiment", "fbd", .1, .02, .05, -.01), ("selected", "+entities-random", "fbd", .1, .03, .05, .01),
            ("selected", "copied-source", "kept-entities", 0, .1, .2, .05),
            ("selected", "+sentiment", "kept-sentiment", .1, .03, .05, .02), ("best", "+sentiment", "kept-sentiment", 1, .06, .08, .04)]
    table = pd.DataFrame(rows, columns=["reading", "system", "metric", "alpha", "improvement", "ci_high", "ci_low"])
    found = study_findings(table, "by-hand", "translation")
    assert found["holds"].tolist() == ["not shown", "yes", "yes", "yes", "yes"] # .01 is not above the random network's .03; all the others are
    assert found[["at", "gain"]].values.tolist()[4] == [1, .06]
    weaker = table.assign(improvement=table["improvement"].where(table["system"] != "+entities-random", .005))
    assert study_findings(weaker, "by-hand", "translation")["holds"].tolist() == ["yes", "not shown", "yes", "yes", "yes"]
    same = table.assign(alpha=.1)
    assert study_findings(same, "by-hand", "translation")["holds"][4] == "no" # the best weight is the chosen one


def test_two_studies_of_one_network_and_folders_of_other_things_are_refused(tmp_path):
    with pytest.raises(InputError, match="holds no run"): compare_networks([tmp_path])
    (tmp_path/"run.json").write_text(json.dumps({"schema": 1, "digest": "", "settings": {"task": "probe"}, "parts": {"training": {}}}))
    with pytest.raises(InputError, match="no finished training part of a study"): compare_networks([tmp_path])


def test_published_splits_are_lists_and_the_test_set_has_a_folder_of_its_own(tmp_path):
    from PIL import Image
    import numpy as np
    draw = np.random.default_rng(0)
    for part, n in (("train", 8), ("val", 3)):
        (tmp_path/part).mkdir()
        for k in range(n): Image.fromarray(draw.integers(0, 256, (48, 48, 3), dtype=np.uint8)).save(tmp_path/part/f"{k}.png")
    (tmp_path/"train.txt").write_text("".join(f"train/{k}.png\n" for k in range(6)))
    settings = {"task": "colorization", "data": str(tmp_path/"train.txt"), "test_data": str(tmp_path/"val")}
    photos = Colorization(make_plan(settings, TINY)).photos()
    assert {part: len(found) for part, found in photos.items()} == {"train": 4, "validation": 2, "test": 3}
    assert {p.name for p in photos["train"]} | {p.name for p in photos["validation"]} == {f"train/{k}.png" for k in range(6)}
    few = Colorization(make_plan(settings, StudySize(32, 3, 1, 2, 4, 4, 4, 10))).photos() # fewer tiles than photographs
    assert {part: len(found) for part, found in few.items()} == {"train": 3, "validation": 1, "test": 2}
    wrong = cli("study", "colorization", "--data", tmp_path/"absent.txt", "--out", "a", cwd=tmp_path)
    assert wrong.returncode == 2 and "absent.txt" in wrong.stderr
