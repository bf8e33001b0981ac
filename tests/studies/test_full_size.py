"What makes a study real work: sizes, batches gathered, averages, blocks computed twice, kept targets, held-out data meanwhile."
import json

import pandas as pd
import pytest
import torch

from commands import cli
from invariant_metrics.encoders.cache import cache_folder
from invariant_metrics.invariants.invariant import get_invariant
from invariant_metrics.studies.colorizers import Colorization
from invariant_metrics.studies.plan import Start, StudySize
from invariant_metrics.studies.search import train_systems
from invariant_metrics.studies.tasks import make_plan, pretrain_network
from invariant_metrics.training import loop
from invariant_metrics.training.augmented import KeptTargets, TargetCache
from invariant_metrics.training.checkpoint import read_state
from invariant_metrics.worlds.scenes import make_scenes

TINY = StudySize(side=32, train=48, validation=6, test=10, pretrain=3, steps=4, batch=16, reps=5)


def started(folder, **settings) -> tuple[dict, Colorization]:
    "The weights of a pretrained start, and its task."
    task = Colorization(make_plan({"task": "colorization", "systems": ["segmentation"], **settings}, TINY), folder)
    pretrain_network(task, Start(0))
    return read_state(folder/"pretrained"/"s0"/"checkpoint.safetensors")[0], task


def test_two_batches_of_8_are_one_of_16_and_blocks_computed_twice_are_the_plain_ones(tmp_path, one_thread):
    whole, _ = started(tmp_path/"whole")
    gathered, task = started(tmp_path/"gathered", batch=8, accumulate=2, checkpointing=True, ema=0.9)
    assert task.plan.size.batch == 8 and task.plan.size.side == 32
    names = [name for name in whole if name.startswith("model/model/")]
    assert names and all(torch.allclose(whole[name], gathered[name], atol=1e-5) for name in names)
    assert any(name.startswith("model/average/") for name in gathered)


@pytest.mark.slow
def test_what_is_measured_meanwhile_is_the_same_in_a_thread(tmp_path, one_thread):
    logs = []
    for background in (False, True):
        task = Colorization(make_plan({"task": "colorization", "systems": ["depth"], "validate_every": 2}, TINY), tmp_path/str(background))
        task.background, task.loaders = background, int(background)
        pretrain_network(task, Start(0))
        logs.append(pd.read_parquet(tmp_path/str(background)/"pretrained"/"s0"/"log.parquet"))
    pd.testing.assert_frame_equal(*logs, check_exact=True)
    held_out = logs[0][logs[0]["turn"] == "validation"]
    assert held_out["step"].unique().tolist() == [1, 2] and {"psnr", "fd", "violation-depth"} <= set(held_out["term"])


@pytest.mark.slow
def test_a_study_says_its_waiting_and_what_it_measured_meanwhile(tmp_path, one_thread):
    settings = {"seeds": 1, "alphas": [1.0], "systems": ["segmentation"], "validate_every": 2, "ema": 0.9}
    here, aside = (train_systems(tmp_path/name, settings, size=TINY, workers=0, loaders=loaders, background=background)
                   for name, loaders, background in (("here", 0, False), ("aside", 2, True)))
    pd.testing.assert_frame_equal(here.tables["held_out"], aside.tables["held_out"], check_exact=True)
    pd.testing.assert_frame_equal(here.results, aside.results, check_exact=True)
    assert set(here.meta["waiting"]) == {"baseline", "+segmentation", "+segmentation-random"} and all(0 < x < 1 for x in here.meta["waiting"].values())
    last = here.held_out.query("system == 'baseline' and metric == 'psnr' and step == 3")["value"].item()
    told = here.validation.query("system == 'baseline' and metric == 'psnr'")["value"].item()
    assert last == pytest.approx(told, abs=1e-9) # the same weights on the same pictures
    assert sorted(here.held_out["step"].unique()) == [1, 3]


def test_targets_beyond_the_limit_are_kept_by_picture_and_train_the_same_network(tmp_path, monkeypatch, one_thread):
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    task = Colorization(make_plan({"task": "colorization", "keep_targets": True}, TINY), tmp_path)
    kept, whole = task.truth_values("depth", limit=0.0), task.truth_values("depth")
    assert isinstance(kept, KeptTargets) and isinstance(whole, torch.Tensor)
    index = torch.tensor([3, 40, 3])
    assert torch.allclose(kept[index], whole[index].float(), atol=1e-2) # alone or among others: float16
    assert len(list(cache_folder().glob("target-*"))) == 2
    plain = Colorization(make_plan({"task": "colorization"}, TINY), tmp_path)
    assert plain.truth_values("depth", limit=0.0) is None


def test_a_file_of_another_network_another_crop_or_a_damaged_one_is_not_read(tmp_path):
    rgb = make_scenes(4, size=32, seed=1).rgb
    index = torch.arange(4)
    g, judge = get_invariant("depth"), get_invariant("depth-judge")
    exact = TargetCache(g, rgb)[index]
    assert torch.equal(KeptTargets(g, rgb, tmp_path)[index], exact) and len([*tmp_path.iterdir()]) == 4
    assert torch.equal(KeptTargets(judge, rgb, tmp_path)[index], TargetCache(judge, rgb)[index])
    KeptTargets(g, rgb[..., 1:, :], tmp_path)[index[:1]]
    assert len([*tmp_path.iterdir()]) == 9
    for path in tmp_path.iterdir(): path.write_bytes(path.read_bytes()[:-1] + b"?") # a bit somewhere
    with pytest.warns(UserWarning, match="damaged"): found = KeptTargets(g, rgb, tmp_path)[index]
    assert torch.allclose(found, exact, atol=1e-2) and torch.equal(KeptTargets(g, rgb, tmp_path)[index], found)


def test_every_option_reaches_the_loop(tmp_path, monkeypatch, one_thread):
    seen = {}
    real = loop.fit
    def noted(*given, **options):
        seen.update(options)
        return real(*given, **options | {"compile": False})
    monkeypatch.setattr("invariant_metrics.studies.tasks.fit", noted)
    asked = dict(accumulate=2, precision="bf16", ema=0.5, checkpointing=True, compile=True)
    task = Colorization(make_plan({"task": "colorization", "systems": ["segmentation"], "side": 16, "batch": 2, **asked}, TINY), tmp_path)
    task.loaders = 1
    pretrain_network(task, Start(0))
    assert {name: seen[name] for name in asked} == asked and seen["workers"] == 1 and task.pictures["train"].rgb.shape[-1] == 16


@pytest.mark.parametrize("words, says", [
    (["translation", "--parts", "training", "--side", "256"], "--side has no effect on translation"),
    (["captioning", "--keep-targets"], "--keep-targets has no effect on captioning"),
    (["colorization", "--parts", "probe", "--ema", "0.9"], "--ema has no effect without the training part"),
    (["colorization", "--validate-aside"], "--validate-aside has no effect without --validate-every"),
    (["colorization", "--ema", "1"], "--ema lies between 0 and 1"),
    (["colorization", "--compile", "--model", "chromagan"], "--compile has no effect on chromagan")])
def test_what_a_network_cannot_do_is_refused_before_any_work(words, says, tmp_path):
    done = cli("study", *words, "--out", "a", cwd=tmp_path)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and says in errors[0] and not (tmp_path/"a").exists(), done.stderr


@pytest.mark.slow
def test_the_command_says_the_share_of_waiting(tmp_path):
    done = cli("study", "colorization", "--parts", "training", "--scale", "quick", "--seeds", "1", "--systems", "depth", "--alphas", "1",
               "--side", "16", "--batch", "4", "--accumulate", "2", "--out", "a", "--workers", "1", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-1000:]
    run = json.loads((tmp_path/"a"/"run.json").read_text())
    assert 0 < run["parts"]["training"]["waiting"] < 1 and run["settings"]["side"] == 16 and "ema" not in run["settings"]
    assert json.loads(done.stdout)["result"]["parts"]["training"]["waiting"] == run["parts"]["training"]["waiting"]
