"The training part of a study: interrupted, resumed, shared, refused, repeated; and what it says about itself."
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from commands import HUNG, all_ended, started
from real_data import data_path
from invariant_metrics.color import scale_chroma
from invariant_metrics.core import InputError, Signature, progress, torch_rng
from invariant_metrics.data.photos import cut_tiles, folder_photos
from invariant_metrics.experiments import work
from invariant_metrics.invariants.invariant import Invariant
from invariant_metrics.studies.improvement import _relative_improvement
from invariant_metrics.studies.search import StudyResult, _steps_done, train_systems
from invariant_metrics.studies.plan import ControlCurve, MetricValues, StudyDesign, StudyGrid, StudySize, item_ranges, read_unit, start_of
from invariant_metrics.studies.tasks import StudyTask, make_plan, register_task, study_tasks
from invariant_metrics.data.tricks import blurred_color
from invariant_metrics.studies.colorizers import _outline_auc, _scene_pictures
from invariant_metrics.training.augmented import AugmentedLoss
from invariant_metrics.training.dense_training import WORLDS
from invariant_metrics.worlds.scenes import make_scenes

TINY = StudySize(side=32, train=48, validation=8, test=12, pretrain=4, steps=8, batch=4, reps=20)
SETTINGS = {"alphas": [1.0], "seeds": 2, "invariants": ["own_parts:roundness"], "metrics": ["own_parts:darkness_gap"]}
TABLES = ("results", "validation", "improvements", "safe_columns")
TRICKS = ("gray", "blurred-color", "constant-color")
OWN = '''
from invariant_metrics.core import Signature
from invariant_metrics.invariants.invariant import Invariant
from invariant_metrics.metrics.metric import paired_metric

class Roundness(Invariant):
    def __init__(self): super().__init__("roundness", Signature.of(invariant="roundness"))
    def forward(self, rgb): return rgb.mean((2, 3))
    def distance(self, prediction, target): return (prediction - target).abs().mean(1)

def roundness(weights="embedded", **options): return Roundness()

@paired_metric("darkness-gap", higher_is_better=False)
def darkness_gap(pred, target): return (pred.mean((1, 2, 3)) - target.mean((1, 2, 3))).abs()
'''


@pytest.fixture(scope="module")
def own_parts(tmp_path_factory, one_thread):
    folder = tmp_path_factory.mktemp("own")
    (folder/"own_parts.py").write_text(OWN)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def study(own_parts, tmp_path_factory) -> StudyResult:
    return train_systems(tmp_path_factory.mktemp("study")/"a", SETTINGS, size=TINY, workers=0)


def equal(a: Path, b: Path) -> None:
    for name in TABLES: pd.testing.assert_frame_equal(pd.read_parquet(a/f"{name}.parquet"), pd.read_parquet(b/f"{name}.parquet"), check_exact=True)


def test_a_study_holds_every_system_control_metric_and_reading(study):
    systems = ["baseline", "saturation", *TRICKS, "+segmentation", "+depth", "+segmentation+depth", "+roundness", "+more-data", "+more-data+segmentation+depth",
               "+segmentation-random", "+depth-random", "+segmentation-random+depth-random"]
    assert set(study.results["system"]) == set(systems)
    measured = set(study.results["metric"])
    assert {"fd", "cmmd-embedded", "psnr", "ssim", "lpips-embedded", "encoder-distance", "colorfulness", "colorfulness-gap", "fd-untrained", "oracle",
            "violation-segmentation", "violation-segmentation-judge", "violation-depth", "violation-depth-judge",
            "violation-roundness", "violation-edges", "outlines", "darkness-gap"} <= measured
    rows = study.results.groupby(["system", "alpha", "metric"])["seed"].nunique()
    assert (rows == 2).all() and (study.results["n"] == TINY.test).all()
    assert (study.results["ci_low"] <= study.results["value"] + 1e-9).mean() > 0.95
    assert set(study.improvements["reading"]) == {"selected", "best", "beyond saturation", "beyond desaturation", "at equal colorfulness", "beyond more-data"}
    assert not study.improvements["metric"].isin(["colorfulness"]).any()
    assert study.meta["chosen"]["+segmentation-random"] == study.meta["chosen"]["+segmentation"] == 1.0


def test_improvements_follow_from_the_results(study):
    value = study.results.set_index(["system", "alpha", "seed", "metric"])["value"]
    for row in study.improvements[study.improvements["reading"] == "selected"].itertuples():
        per_seed = [_relative_improvement(value["baseline", 0.0, s, row.metric], value[row.system, row.alpha, s, row.metric], row.higher_is_better) for s in (0, 1)]
        assert row.improvement == pytest.approx(np.mean(per_seed), abs=1e-12)
        assert row.ci_low <= row.improvement <= row.ci_high


@pytest.mark.parametrize("base, new, higher, says", [(10.0, 8.0, False, 0.2), (10.0, 12.0, False, -0.2), (20.0, 21.0, True, 0.05), (-2.0, -1.0, True, 0.5)])
def test_signs_by_hand(base, new, higher, says):
    assert _relative_improvement(base, new, higher) == pytest.approx(says)


def test_the_saturation_curve_passes_through_the_baseline(study):
    value = study.results.set_index(["system", "alpha", "seed", "metric"])["value"]
    assert value["saturation", 1.0, 1, "fd"] == value["baseline", 0.0, 1, "fd"]
    curve = study.curve
    assert curve["colorfulness"].is_monotonic_increasing and len(curve) == 10 and curve.index[0] == 0


def test_gray_is_the_pale_end_of_the_curve_and_the_same_for_every_seed(study):
    value = study.results.set_index(["system", "alpha", "seed", "metric"])["value"]
    for metric in ("fd", "oracle", "violation-segmentation-judge", "outlines"):
        assert value["gray", 0.0, 0, metric] == value["gray", 0.0, 1, metric] == pytest.approx(value["saturation", 0.0, 0, metric], rel=1e-9)
    assert value["gray", 0.0, 0, "colorfulness"] == pytest.approx(0, abs=0.05) and value["gray", 0.0, 0, "outlines"] == pytest.approx(0.5, abs=0.01)
    assert value["blurred-color", 0.0, 0, "fd"] != value["blurred-color", 0.0, 1, "fd"] # made from each seed's baseline


def test_a_system_is_held_against_both_ends_of_the_curve(study):
    value = study.results.set_index(["system", "alpha", "metric", "seed"])["value"].sort_index()
    rows = study.improvements.set_index(["reading", "system", "metric"])["base"]
    for metric in ("violation-depth-judge", "fd"):
        base = value["baseline", 0.0, metric].mean()
        for reading in ("beyond saturation", "beyond desaturation"): assert rows[reading, "+depth", metric] <= base + 1e-12
    at = value["saturation"].unstack("metric").groupby("alpha").mean()
    own = value["+depth", 1.0, "colorfulness"].mean()
    assert np.interp(own, at["colorfulness"], at["psnr"]) == pytest.approx(rows["at equal colorfulness", "+depth", "psnr"], rel=2e-3)


def test_safe_columns_say_whether_a_trick_does_as_well(study):
    safe = study.safe.set_index(["metric", "system"])
    gains = study.improvements[study.improvements["reading"] == "best"].set_index(["metric", "system"])
    assert not study.safe["system"].str.contains("random").any() and set(study.safe["verdict"]) <= {"safe", "beyond every trick", "not safe"}
    for (metric, system), row in safe.iterrows():
        tricks = gains.loc[metric].loc[[*TRICKS, "saturation"]]
        assert row["trick_improvement"] == pytest.approx(tricks["improvement"].max()) and row["trick"].split(" at ")[0] in tricks.index
        assert (row["verdict"] == "safe") == (tricks["ci_high"] <= 0).all()
        if row["verdict"] == "beyond every trick": assert row["margin_low"] > 0 and row["improvement"] > row["trick_improvement"]
    assert study.meta["safe"] and set(study.meta["optimum"].values()) <= {"interior", "lower edge", "upper edge", "none"}


def test_a_random_control_pulls_as_hard_as_the_real_one(study):
    pull = json.loads(json.dumps(study.meta["pulls"]["+segmentation-random"]))
    assert pull["alpha"]*pull["random_gradient"] == pytest.approx(pull["real_gradient"], rel=0.05) and pull["task_gradient"] > 0


def test_systems_are_held_against_the_baseline_with_what_g_has_seen(study):
    value = study.results.set_index(["system", "metric", "seed"])["value"].sort_index()
    rows = study.improvements[study.improvements["reading"] == "beyond more-data"].set_index(["system", "metric"])
    assert set(rows.index.get_level_values("system")) == {s for s in study.meta["chosen"] if s != "+more-data"} # no trick, and not itself
    for system in ("+depth", "+more-data+segmentation+depth"):
        given, own = (value[s, "oracle"].to_numpy() for s in ("+more-data", system))
        assert rows.at[(system, "oracle"), "improvement"] == pytest.approx(np.mean(1 - own/given), abs=1e-9) and rows.at[(system, "oracle"), "p_holm"] <= 1
    assert study.meta["chosen"]["+more-data"] == 0 and "+more-data" not in study.meta["optimum"]
    assert "+more-data" not in set(study.safe["system"]) and "+more-data+segmentation+depth" in set(study.safe["system"])


def test_what_g_has_seen_comes_without_labels_or_at_a_second_head(tmp_path):
    task = study_tasks["colorization"](make_plan({"seeds": 1, "alphas": [.5], "systems": ["more-data", "multi-task"]}, TINY), tmp_path)
    seen = task.seen
    assert len(seen.rgb) == TINY.batch*(TINY.pretrain + TINY.steps) # each of them about once
    assert torch.equal(seen.rgb[:8], (255*make_scenes(8, TINY.side, WORLDS["invariant"]).rgb).round().byte())
    plain, labelled = task.network(0), task.widened(task.network(0), ["multi-task"])
    L = 100*torch.rand(2, 1, 32, 32, generator=torch_rng(0, "L"))
    assert torch.equal(plain(L), labelled(L)) and not hasattr(plain, "labels") # a head changes no color
    more, batches = task.training(["more-data"], 0.0, 3)
    both, same = task.training(["multi-task"], .5, 3)
    assert torch.equal(batches(1)["ab"], same(1)["ab"])
    assert list(more(plain, batches(1))) == ["task"]
    terms = both(labelled, same(1))
    assert {name: terms[name][0] for name in terms} == {"task": 1.0, "classes": .5, "depth": .5}
    assert terms["task"][1].item() == pytest.approx(more(plain, batches(1))["task"][1].item(), rel=1e-5)
    (terms["classes"][1] + terms["depth"][1]).backward()
    assert labelled.labels.weight.grad.abs().sum() > 0 and labelled.stem.weight.grad.abs().sum() > 0 # labels teach the shared layers
    assert labelled.fine[0].weight.grad is None
    assert [*dict.fromkeys(start_of(u, task.plan.systems[u.system]).name for u in task.plan.units(list(task.plan.systems)))] == ["s0", "s0-more-data", "s0-multi-task@0.5"]


def test_a_pair_of_random_networks_is_drawn_anew_together():
    plan = make_plan({"random_networks": 2})
    assert plan.controls["+segmentation+depth"] == ("segmentation-random+depth-random", "segmentation-random-2+depth-random-2", "more-data+segmentation+depth")
    assert plan.copied["+segmentation-random-2+depth-random-2"] == "+segmentation+depth"
    alone = make_plan({"systems": ["segmentation+depth"]})
    assert alone.controls == {"+segmentation+depth": ("segmentation-random+depth-random",)} # nothing to hold the other one against
    assert not any("more-data" in name for name in make_plan({"data": "photos"}).systems)


def test_panels_belong_together(study):
    assert study.panels["truth/rgb"].shape == study.panels["+depth/rgb"].shape == (6, 3, 32, 32)
    assert study.panels["baseline/segmentation"].dtype == np.uint8 and study.panels["+depth/depth"].shape == (6, 32, 32)
    assert (study.panels["gray/rgb"][:, 0] == study.panels["gray/rgb"][:, 2]).all()


def test_a_finished_study_is_read_not_run(study):
    before = {p: p.stat().st_mtime_ns for p in study.folder.rglob("*.parquet")}
    start = time.perf_counter()
    again = train_systems(study.folder, SETTINGS, size=TINY, workers=0)
    assert time.perf_counter() - start < 5
    assert {p: p.stat().st_mtime_ns for p in study.folder.rglob("*.parquet")} == before
    pd.testing.assert_frame_equal(again.results, study.results)


def test_other_settings_are_refused(study):
    with pytest.raises(InputError, match="other settings"): train_systems(study.folder, SETTINGS | {"seed": 1}, size=TINY)
    with pytest.raises(InputError, match="no finished training part"): StudyResult.load(study.folder.parent)


@pytest.mark.parametrize("settings, says", [({"model": "unnet"}, "did you mean unet"), ({"select": "pnsr"}, "did you mean psnr"),
                                            ({"select": "colorfulness"}, "colorfulness-gap"), ({"invariants": ["segmentatoin"]}, "did you mean segmentation"),
                                            ({"metrics": ["no_such:thing"]}, "no module"), ({"alphas": [0.0]}, "positive"),
                                            ({"systems": ["multi-task"], "model": "ddcolor"}, "multi-task is not there")])
def test_bad_settings_are_found_before_the_first_step(settings, says, tmp_path):
    with pytest.raises(InputError, match=says): train_systems(tmp_path/"run", settings, size=TINY, workers=0)
    assert not (tmp_path/"run").exists()


def test_unwritable_folder_is_one_line(tmp_path):
    (tmp_path/"file").write_text("")
    with pytest.raises(InputError, match="cannot write"): train_systems(tmp_path/"file"/"run", {"seeds": 1}, size=TINY, workers=0)


def test_no_scene_is_in_two_parts():
    plan = make_plan({"seeds": 1}, TINY)
    parts = _scene_pictures(plan, list(item_ranges(TINY)))
    numbers = [set(p.names) for p in parts.values()]
    assert sum(map(len, numbers)) == len(set.union(*numbers)) == TINY.train + TINY.validation + TINY.test
    flat = torch.cat([p.rgb.flatten(1) for p in parts.values()])
    assert len(torch.unique(flat, dim=0)) == len(flat)


def run_tiny(folder: Path, handler) -> None: # of SIGINT
    signal.signal(signal.SIGINT, handler)
    train_systems(folder, SETTINGS, size=TINY, workers=2)


@pytest.mark.slow
def test_killed_twice_in_two_workers_it_ends_with_the_same_numbers(study, own_parts, tmp_path):
    results = lambda: list((tmp_path/"b").glob("runs/*/result.safetensors"))
    for sign, handler, units in ((signal.SIGKILL, signal.SIG_IGN, 1), (signal.SIGINT, signal.default_int_handler, 3)): # in the background Ctrl-C is ignored
        process = started(run_tiny, tmp_path/"b", handler)
        while process.is_alive() and len(results()) < units: time.sleep(0.05)
        assert process.is_alive(), process.exitcode
        os.kill(process.pid, sign)
        process.join(HUNG)
        all_ended() # its workers too
        assert not (tmp_path/"b"/"study.json").exists() and units <= len(results()) < units + 3
    done = {p: p.stat().st_mtime_ns for p in results()}
    begun, bars = _steps_done(tmp_path/"b"), []
    def noted(**options):
        bar = progress(**options)
        bars.append((bar, bar.n))
        return bar
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "progress", noted)
        train_systems(tmp_path/"b", SETTINGS, size=TINY, workers=0)
    assert begun >= TINY.pretrain + len(done)*TINY.steps and bars[0][1] == begun # the bar goes on where it was,
    assert bars[0][0].n == bars[0][0].total == _steps_done(tmp_path/"b")            # and comes to its end
    assert len(done) >= 3 and all(p.stat().st_mtime_ns == t for p, t in done.items())
    equal(study.folder, tmp_path/"b")


def test_a_folder_of_photographs_is_split_by_photograph(tmp_path, capsys):
    (tmp_path/"photos").mkdir()
    draw = np.random.default_rng(0)
    for i in range(8):
        coarse = draw.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        if i == 7: coarse = np.repeat(coarse[..., :1], 3, axis=2) # gray, in the form of a color picture
        Image.fromarray(coarse).resize((120, 110), Image.Resampling.NEAREST).save(tmp_path/"photos"/f"{i}.png")
    size = StudySize(side=32, train=24, validation=12, test=24, pretrain=3, steps=3, batch=4, reps=10)
    settings = {"data": str(tmp_path/"photos"), "data_identity": "eight", "seeds": 1, "alphas": [1.0]}
    found = train_systems(tmp_path/"run", settings, size=size, workers=0)
    names = [set(v) for v in found.meta["splits"].values()]
    assert sum(map(len, names)) == len(set.union(*names)) == 8
    assert "note: 1 of 8 photographs are gray and left out: 7.png" in capsys.readouterr().err
    assert set(found.results["dataset"]) == {"photos/test"} and "oracle" not in set(found.results["metric"])
    assert "regions:felzenszwalb" in found.results.set_index("metric")["signature"]["outlines"].iloc[0] and set(TRICKS) < set(found.results["system"])
    assert len(found.meta["safe"][0]) > 20 and set(found.safe["metric"]) >= {"outlines", "violation-edges"}
    for extra in (4, 5, 6, 7): (tmp_path/"photos"/f"{extra}.png").unlink()
    with pytest.raises(InputError, match="4 photographs are fewer than the split needs: 2 to train on"):
        train_systems(tmp_path/"other", settings, size=size, workers=0)


def test_outlines_that_people_drew_are_where_color_changes():
    root = data_path("bsds500/images").parent
    photos = folder_photos(root/"images", False, root/"segmentations")[:12]
    tiles = cut_tiles(photos, 32, 4, 0, root/"segmentations")
    made = {"truth": tiles.rgb, "pale": scale_chroma(tiles.rgb, 0.6), "blurred": blurred_color(tiles.rgb), "gray": scale_chroma(tiles.rgb, 0.0)}
    found = {name: _outline_auc(rgb, tiles.regions).mean().item() for name, rgb in made.items()}
    assert found["truth"] == pytest.approx(found["pale"], abs=0.01) and found["gray"] == pytest.approx(0.5, abs=0.01)
    assert found["truth"] > found["blurred"] + 0.02 > 0.52


def test_settings_are_on_record(study):
    meta = json.loads((study.folder/"study.json").read_text())
    assert meta["splits"]["test"] == [TINY.train + TINY.validation, TINY.test] and meta["seconds"] > 0 and meta["select"] == "fd"


class Total(Invariant):
    def __init__(self): super().__init__("total", Signature.of(invariant="total"))
    def forward(self, numbers): return numbers.sum(1, keepdim=True)
    def value(self, numbers): return self(numbers).detach()
    def distance(self, prediction, target): return (prediction - target).abs().mean(1)


class Weighted(Total):
    "A sum with weights drawn at random."
    def __init__(self, seed):
        super().__init__()
        self.weights = 3*torch.randn(2, 1, generator=torch_rng(seed, "weights"))
    def forward(self, numbers): return numbers @ self.weights


class Doubling(StudyTask):
    "A fourth task: two numbers in, twice the numbers out."
    design = StudyDesign("doubling", "linear", "error", {"default": StudySize(0, 32, 8, 16, 20, 10, 8, 20)},
                         {"default": StudyGrid((0.5, 5.0), 2, (("total",),))}, {"+total": ("total-random",)}, ControlCurve("shrinking", 1.0, (0.5, 1.0)),
                         ("numbers", "own"), {"gray": False, "repeated": True})
    more_controls = ("total-random",)

    def numbers(self, part): return torch.rand(item_ranges(self.plan.size)[part][1], 2, generator=torch_rng(7, part))
    def check(self): return {"error": False, "exact": True}
    def shares(self): return ("exact",)
    def invariant(self, spec): return Weighted(self.form(spec)[1].get("seed", 0)) if "random" in spec else Total()
    def trick(self, name, part, pred): return 2*pred if name == "repeated" else torch.ones_like(pred)

    def network(self, seed):
        layer = torch.nn.Linear(2, 2)
        for p in layer.parameters(): torch.nn.init.normal_(p, generator=torch_rng(seed, "layer"))
        return layer

    def training(self, invariants, alpha, seed):
        x = self.numbers("train")
        def at(i):
            self.tick()
            return {"x": x[torch.randint(32, (8,), generator=torch_rng(seed, i))]}
        terms = {i: (self.invariant(i), alpha) for i in invariants}
        return AugmentedLoss(terms, lambda pred, batch: (pred - 2*batch["x"]).square().mean(), lambda net, batch: net(batch["x"]),
                             lambda pred, batch: pred, lambda batch: 2*batch["x"]), at

    def predict(self, network, part, point):
        with torch.no_grad(): return point*network(self.numbers(part))

    def measure(self, pred, part, reps):
        error = (pred - 2*self.numbers(part)).norm(dim=1).double().numpy()
        drawn = np.random.default_rng(0).integers(len(error), size=(reps, len(error)))
        values = {"error": error, "exact": (error < 0.5).astype(float)}
        return MetricValues({k: np.r_[v.mean(), v[drawn].mean(1)] for k, v in values.items()}, values)

    def signatures(self): return {"error": "metric:error", "exact": "metric:exact"}


@pytest.fixture
def doubling(monkeypatch):
    monkeypatch.setattr(study_tasks, "entries", {name: study_tasks[name] for name in study_tasks.names()})
    return register_task(Doubling)


def test_a_fourth_task_is_registered_and_studied(doubling, tmp_path):
    assert {"colorization", "translation", "captioning", "doubling"} <= set(study_tasks.names())
    here = train_systems(tmp_path/"run", {"task": "doubling"}, workers=0) # with several: test_many_machines.py
    assert set(here.results["system"]) == {"baseline", "shrinking", "gray", "repeated", "+total", "+total-random"} and set(here.results["dataset"]) == {"numbers/test"}
    assert list(here.curve.index) == [0.5, 1.0] and here.meta["chosen"]["+total"] in (0.5, 5.0)
    assert set(here.improvements.loc[here.improvements["metric"] == "exact", "unit"]) == {"points"}
    assert not len(here.chance) and set(here.results.loc[here.results["system"] == "+total-random", "alpha"]) == {here.meta["chosen"]["+total"]}
    with pytest.raises(InputError, match="registered already"): register_task(type("Other", (Doubling,), {"__module__": "elsewhere"}))
    with pytest.raises(InputError, match="did you mean doubling"): make_plan({"task": "doublign"})


def test_several_random_networks_give_the_distribution_of_chance(doubling, tmp_path):
    found = train_systems(tmp_path/"run", {"task": "doubling", "random_networks": 4}, workers=0)
    draws = [f"+total-random{k}" for k in ("", "-2", "-3", "-4")]
    results = found.results.set_index(["system", "alpha", "seed", "metric"])["value"]
    assert {(s, a) for s, a, _, _ in results.index if s in draws} == {(s, a) for s in draws for a in (0.5, 5.0)} # over the whole grid
    for draw in draws:
        for seed in (0, 1):
            about = read_unit(tmp_path/"run"/"runs"/f"{draw}@5-s{seed}"/"result.safetensors")[1]["pull"]
            assert about["alpha"]*about["random_gradient"] == pytest.approx(5*about["real_gradient"], rel=1e-5)
    best = found.improvements[(found.improvements["reading"] == "best") & (found.improvements["metric"] == "error")].set_index("system")["improvement"]
    row = found.chance.set_index(["reading", "metric"]).loc[("best", "error")]
    assert row["improvement"] == pytest.approx(best["+total"]) and row["draws"] == 4 and row["q50"] == pytest.approx(best[draws].median())
    assert row["p"] == (1 + (best[draws] >= best["+total"]).sum())/5
