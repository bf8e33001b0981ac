"What an encoder responds to: training variants, the two numbers, the rule, encoders by name and folder, and the command's refusals."
import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from skimage.color import lab2lch, rgb2lab

from commands import cli
from invariant_metrics.color import join_lab, split_lab, turn_hue
from invariant_metrics.core import InputError, torch_rng
from invariant_metrics.encoders.encoder import Encoder, Preprocess, get_encoder
from invariant_metrics.encoders.weights import Card, save_embedded
from invariant_metrics.models.vision import VisionNet
from invariant_metrics.probes.encoders import _MovedColors, _encoder_responses, _moved_colors, _named_encoder, _predict_verdicts
from invariant_metrics.probes.encoders import probe_encoder, _stored_rule, strangers
from invariant_metrics.probes.images import color_probe
from invariant_metrics.training.image_encoder import _picture_pool, train_image_encoder, _random_views
from invariant_metrics.worlds.scenes import make_scenes

sys.path.insert(0, str(Path(__file__).parents[2]/"benchmarks"))
import real_encoders  # noqa: E402
from encoders import metrics_on  # noqa: E402


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    "Six painted scenes as files."
    place = tmp_path_factory.mktemp("photographs")
    for i, x in enumerate((255*make_scenes(6, 96, seed=3).rgb).byte().movedim(1, -1).numpy()): Image.fromarray(x).save(place/f"{i}.png")
    return place


class Scaled(Encoder):
    "Another encoder's vector times a number."
    def __init__(self, base, factor):
        super().__init__("scaled", "none", ("all",), Preprocess())
        self.base, self.factor = base, factor
        self.freeze()
    def embed(self, x, layer): return self.factor*self.base.encode(x)


def test_turned_hues_are_those_of_skimage():
    rgb = make_scenes(2, 32, seed=4).rgb.double()
    L, ab = split_lab(rgb)
    turned = join_lab(L, turn_hue(0.3*ab, torch.tensor([40., -100.])))  # little chroma: nothing leaves the gamut
    before, after = (lab2lch(rgb2lab(x.movedim(1, -1).numpy())) for x in (join_lab(L, 0.3*ab), turned))
    colored = before[..., 1] > 2
    gap = np.degrees(after[..., 2] - before[..., 2])
    for i, angle in enumerate((40, -100)): assert np.abs((gap[i][colored[i]] - angle + 180) % 360 - 180).max() < 1
    assert np.allclose(before[..., :2], after[..., :2], atol=1e-2)


def test_hue_jitter_leaves_crops_and_the_shipped_recipe_alone():
    rgb, pairs = _picture_pool(4, seed=5)
    (plain, one), (again, two), (turned, three) = (_random_views(rgb, pairs, 32, torch_rng(1, "x"), *hue) for hue in ((), (0,), (180,)))
    assert torch.equal(plain, again) and torch.equal(one, two) and torch.equal(one, three)
    gap = [(a - b).abs().mean() for a, b in zip(split_lab(plain), split_lab(turned))]
    assert gap[0] < 1 < gap[1]  # hue is another, lightness but for the gamut the same


def test_variants_train_and_repeat():
    options = dict(steps=2, scenes=16, batch=8)
    nets = {name: train_image_encoder(**options, **more)[0].net.state_dict() for name, more in
            {"plain": {}, "hue": {"hue": 90}, "again": {"hue": 90}, "classes": {"targets": "classes"}}.items()}
    weight = {name: state["head.weight"] for name, state in nets.items()}
    assert torch.equal(weight["hue"], weight["again"])
    assert not torch.equal(weight["hue"], weight["plain"]) and not torch.equal(weight["classes"], weight["plain"])
    for wrong in (-1, 181):
        with pytest.raises(InputError, match="at most 180"): train_image_encoder(hue=wrong)


@pytest.fixture(scope="module")
def moved() -> _MovedColors:
    from invariant_metrics.edits.colors import Items
    scenes = make_scenes(12, 64, seed=90_001)
    return _moved_colors(Items(scenes.rgb, scenes.instances, np.arange(12), scenes))


def test_responses_do_not_depend_on_the_scale_of_features(moved):
    base = get_encoder("embedded")
    one, ten = (_encoder_responses(e, moved) for e in (base, Scaled(base, 1000.0)))
    vector = one[one["features"] == "vector"].reset_index(drop=True)
    assert np.allclose(vector["value"], ten["value"], rtol=1e-4) and set(ten["features"]) == {"vector"}
    assert ((one["ci_low"] <= one["value"]) & (one["value"] <= one["ci_high"])).all()


def test_an_encoder_that_sees_nothing_has_no_ratio(moved):
    said = _predict_verdicts(_encoder_responses(Scaled(get_encoder("embedded"), 0.0), moved))
    assert set(said["verdict"]) == {"sees no such change"} and said["auc"].isna().all()


def test_the_ratio_is_that_of_means_by_hand(moved):
    base, same = get_encoder("embedded"), _MovedColors(moved.truth, moved.hue, moved.hue, moved.cluster, moved.of)
    found = _encoder_responses(base, same).query("response == 'ratio'")
    assert np.allclose(found[["value", "ci_low", "ci_high"]], 1)  # the same edit twice
    rows = _encoder_responses(base, moved).set_index(["features", "response"])["value"]
    far = [(base.encode(x) - base.encode(moved.truth)).norm(dim=1).mean().item() for x in (moved.hue, moved.slip)]
    assert rows["vector", "ratio"] == pytest.approx(far[1]/far[0], rel=1e-4)
    assert rows["vector", "position"]/rows["vector", "hue"] == pytest.approx(rows["vector", "ratio"])


def test_strangers_are_of_another_cluster():
    cluster = np.repeat(np.arange(3), 4)
    assert (cluster[strangers(cluster, np.random.default_rng(0))] != cluster).all()


def test_the_stored_rule_is_whole():
    rule = _stored_rule()
    assert list(rule["metric"]) == ["fd", "cmmd", "lpips"] and list(rule["features"]) == ["vector", "vector", "maps"]
    assert (rule["ci_low"] <= rule["steepness"]).all() and (rule["steepness"] <= rule["ci_high"]).all() and rule["error"].between(0, 0.5).all()
    assert (rule["error"] < rule["constant"]).all() and np.exp(-rule["offset"]/rule["steepness"]).between(0.5, 2).all()


def test_the_stored_rule_is_that_of_the_stored_table():
    table = pd.read_csv(Path(__file__).parents[2]/"nbs"/"results"/"real_encoders.csv")
    for line in _stored_rule().itertuples():
        part = table[(table["metric"] == line.metric) & (table["partner"] == "moderate") & (table["family"] == real_encoders.RULE_FAMILY)]
        assert np.allclose(real_encoders.fit_rule(part), (line.offset, line.steepness), rtol=0.02, atol=0.02)


NETWORKS = Path(os.environ.get("INVARIANT_METRICS_DATA", "nowhere"))/"networks"

@pytest.mark.skipif(not NETWORKS.is_dir(), reason="needs INVARIANT_METRICS_DATA with networks")
@pytest.mark.parametrize("name, width", [("squeezenet-1.0", 512), ("squeezenet-1.1", 512), ("resnet-20-cifar", 64), ("pidinet-tiny-l", 80),
                                         ("espnetv2", 512), ("taesd-sana", 64)])
def test_published_networks_load_whole_and_are_encoders(name, width):
    found = real_encoders.encoder_at(name, 64)
    rgb = make_scenes(2, 64, seed=5).rgb
    with torch.no_grad(): vector, maps = real_encoders.read(found, rgb)
    assert vector.shape == (2, width) and torch.allclose(vector, found.encode(rgb), atol=1e-5)
    sides = [m.shape[-1] for m in maps]
    assert sides == sorted(sides, reverse=True) and all(torch.allclose(m.norm(dim=1), torch.ones(()), atol=1e-3) for m in maps)


def test_own_weights_in_a_folder_are_an_encoder(photographs, tmp_path):
    torch.manual_seed(0)
    save_embedded("mine", VisionNet().state_dict(), Card("mine", "a test"), tmp_path/"mine")
    own = _named_encoder(tmp_path/"mine")
    assert own.revision == _named_encoder(tmp_path/"mine"/"mine.safetensors").revision and own.revision.startswith("local-")
    found = probe_encoder(str(tmp_path/"mine"), photographs, scale="quick")
    assert own.revision in found.signature and list(found.predictions["metric"]) == ["fd", "cmmd", "lpips"]
    again = probe_encoder(own, photographs, scale="quick")
    assert np.array_equal(found.responses["value"], again.responses["value"])
    assert _named_encoder("embedded-clip").name == "clip" and _named_encoder("embedded-lclip").name == "lclip"
    (tmp_path/"none").mkdir()
    for wrong, says in ((tmp_path/"none", "no weights in"), ("all-of-it", "unknown encoder 'all-of-it'")):
        with pytest.raises(InputError, match=says): _named_encoder(wrong)


def test_metrics_of_any_encoder_go_through_the_probe(photographs):
    judged = [m for name in ("embedded", "mean-color") for m in metrics_on(get_encoder(name), name)]
    found = color_probe(photographs, judged, families=["misregistration"], levels=[31.0], valid="wide-recoloring", scale="quick", progress=False)
    assert {f"{m}@{e}" for m in ("fd", "cmmd", "lpips") for e in ("embedded", "mean-color")} <= set(found.auc["metric"])


@pytest.mark.parametrize("line, says", [
    ("embeded", "did you mean embedded"), ("dinov2-large", "weights fetch dinov2-large"), ("inception", "weights fetch inception"),
    ("bert --weights minilm", "choose an encoder of pictures"), ("untrained --weights embedded-image", "leave weights out"),
    ("embedded-image --weights embedded-image", "names weights already"), ("embedded --layer stage9", "unknown layer of embedded 'stage9'"),
    ("embedded --target nowhere", "nowhere"), ("embedded --target a --target b", "one folder of photographs"), ("embedded --scale hug", "unknown scale 'hug'"), ("", "Missing argument")])
def test_the_command_refuses_in_one_line(line, says, tmp_path):
    if "bert" in line: pytest.importorskip("transformers")
    done = cli("probe", "encoder", *line.split(), cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and says in done.stderr, done.stderr


def test_gray_photographs_are_refused_and_color_ones_answered(photographs, tmp_path):
    (tmp_path/"one").mkdir()
    (tmp_path/"one"/"0.png").write_bytes((photographs/"0.png").read_bytes())
    done = cli("probe", "encoder", "embedded", "--target", tmp_path/"one", cwd=tmp_path)
    assert done.returncode == 2 and "give two or more" in done.stderr
    answer = json.loads(cli("probe", "encoder", "embedded", "--target", photographs, "--scale", "quick", "--json", cwd=tmp_path).stdout)
    assert answer["kind"] == "encoder" and [r["metric"] for r in answer["result"]["predictions"]] == ["fd", "cmmd", "lpips"]
    assert pd.DataFrame(answer["result"]["responses"]).set_index(["features", "response"]).loc[("vector", "ratio"), "value"] > 0
