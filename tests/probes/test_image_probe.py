"The probe of pictures: damage stays inside its mask, grows with severity, is proved by an oracle that knows no names; own predictions take part."
import numpy as np
import pytest
import torch
from PIL import Image

from invariant_metrics.core import InputError, Signature, rng
from invariant_metrics.worlds.classes import CLASS_ID
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.edits.pictures import SEVERITIES, _sky_mask, windows
from invariant_metrics.probes.own_images import image_probe, open_pictures, _picture_oracle
from invariant_metrics.edits.colors import Items, at_strength, families, perturbations, psnr_to
from invariant_metrics.probes.probe_task import ProbeResult
from invariant_metrics.metrics.metric import PairedMetric, SetMetric
from real_data import data_path

PSNR = PairedMetric("pixel-psnr", lambda rgb: rgb, lambda p, t: psnr_to(t, p), True, Signature.of(metric="pixel-psnr"))
MEANS = SetMetric("means", lambda rgb: rgb.mean((2, 3)),
               lambda p, t, w=None, v=None: float(torch.as_tensor(np.average(p, axis=0, weights=w) - np.average(t, axis=0, weights=v)).square().sum()),
               False, Signature.of(metric="means"), "means")
FEW = ["noise", "local-noise", "sky-stain"]
LOCAL = ("occlusion", "local-noise", "local-motion-blur", "patch-shuffle")


@pytest.fixture(scope="module")
def items():
    made = make_scenes(16, size=48, seed=11)
    return Items(made.rgb, made.instances, np.arange(16), made)


@pytest.fixture(scope="module")
def result(): return image_probe("scenes", metrics=[PSNR, MEANS], families=FEW, scale="quick", progress=False)


def shown(items, name, severity, seed=0):
    dose, applies = perturbations[name](items, rng(seed, name))
    return at_strength(items, dose, torch.full((len(items),), severity / 5)), applies


def test_nothing_done_nothing_changed_and_more_is_never_less(items):
    for name in families("images"):
        error = torch.stack([(shown(items, name, k)[0] - items.rgb).square().mean((1, 2, 3)) for k in (0, *SEVERITIES)])
        applies = shown(items, name, 1)[1]
        assert error[0].max() < 1e-12 and applies.sum() >= 12, name
        if perturbations[name].kind == "violation": assert (error.diff(dim=0) >= -0.1 * error[1:])[:, applies].float().mean() > 0.95, name


def test_local_damage_stays_inside_its_mask(items):
    """Not one pixel outside: of the sky exactly, of windows a quarter of the picture."""
    sky, there = _sky_mask(items)
    assert torch.equal(sky[:, 0], items.scenes.segmentation == CLASS_ID["sky"]) and there.any()
    for name in ("sky-stain", "sky-noise"):
        touched = (shown(items, name, 5)[0] != items.rgb).any(1, keepdim=True)
        assert not (touched & ~sky).any() and (touched & sky)[there].float().sum() > 0
    for name in LOCAL:
        touched = (shown(items, name, 5)[0] != items.rgb).any(1).float().mean((1, 2))
        assert touched.max() <= 0.26, name
    assert windows(items, rng(0)).float().mean((1, 2, 3)).sub(0.25).abs().max() < 1e-6


def test_the_same_generator_gives_the_same_pictures(items):
    for name in families("images"): assert torch.equal(shown(items, name, 3)[0], shown(items, name, 3)[0]), name


def test_labels_are_proved_by_an_oracle_that_asks_no_names(items):
    """Every right picture is explained by a small move, another light or allowed colors; no damage of severity 5 is."""
    every = torch.arange(16)
    for name in families("images"):
        if name == "mirror": continue  # right for some tasks only
        rgb, applies = shown(items, name, 5)
        wrong = _picture_oracle(items, 0, rgb, every)[applies]
        assert wrong.max() < 1e-2 if perturbations[name].kind == "valid" else wrong.min() > 0.05, (name, wrong)


def test_sentinels(result):
    total = result.profile.query("level == 'all' and family != 'all'").set_index(["metric", "view"])
    assert (result.auc.query("metric == 'constant'").auc == 0.5).all() and (total.auc["constant", "item"] == 0.5).all()
    assert (total.accuracy["oracle", "item"] >= 0.98).all() and np.isinf(total.threshold["constant", "item"]).all()
    assert {"constant", "random", "source-only", "oracle"} <= set(result.auc.metric)


def test_nothing_is_dropped_in_silence(result):
    ledger = result.ledger
    assert (ledger[["matched", "no_partner", "not_applicable", "unmatched"]].sum(axis=1) == ledger.n).all()
    local = ledger[(ledger.family == "local-noise") & (ledger.matched > 0)]
    assert local.pixels.between(0.2, 0.26).all() and (local.psnr.diff().dropna() < 0).all()


def test_profile_has_both_views_and_comes_back(result, tmp_path):
    assert set(result.profile[result.profile.metric == "means"]["view"]) == {"set"} and set(result.profile[result.profile.metric == "pixel-psnr"]["view"]) == {"item", "set"}
    result.save(tmp_path)
    assert ProbeResult.load(tmp_path).profile.equals(result.profile)


@pytest.mark.slow
def test_two_processes_say_what_one_says():
    """Every random number comes from the seed, so sharing the metrics out changes nothing."""
    one, two = (image_probe("scenes", metrics=["psnr", "violation-edges", "fd"], families=FEW, scale="quick", workers=w, progress=False) for w in (1, 2))
    assert one.profile.equals(two.profile) and one.auc.equals(two.auc) and one.ledger.equals(two.ledger) and one.signatures == two.signatures


def write(folder, rgb, names):
    folder.mkdir()
    for name, x in zip(names, rgb): Image.fromarray((255 * x).round().byte().permute(1, 2, 0).numpy()).save(folder / f"{name}.png")
    return folder


def test_own_predictions_are_broken_and_compared_with_themselves(tmp_path):
    """A model that blurs: its untouched score is that of the blurred picture, and a stain costs on top of it."""
    world = make_scenes(10, size=48, seed=2)
    names, soft = [f"im{i}" for i in range(10)], torch.nn.functional.avg_pool2d(world.rgb, 3, 1, 1, count_include_pad=False)
    truth, pred = write(tmp_path / "truth", world.rgb, names), write(tmp_path / "sysA", soft, names)
    found = image_probe(truth, [pred], [PSNR], families=["noise"], side=48, scale="quick", progress=False)
    assert set(found.profile["source"]) == {"sysA"} and "oracle" not in set(found.auc.metric)
    assert (found.examples["sysA/prediction"] != found.examples["sysA/truth"]).any()
    rows = found.profile.query("metric == 'pixel-psnr' and view == 'item' and family == 'noise' and severity == 5")
    untouched = psnr_to(world.rgb, soft).mean()
    assert 5 < rows.change.item() < untouched + 1  # in dB below what the prediction had, not below 100
    shown_ = open_pictures(truth, pred, side=48)["sysA"]
    assert (shown_.target - world.rgb).abs().max() < 0.01 and (shown_.items.rgb - soft).abs().max() < 0.01
    with pytest.raises(InputError, match="without"): image_probe(truth, [write(tmp_path / "part", soft[:8], names[:8])], [PSNR], scale="quick", progress=False)


def test_own_colorizations(tmp_path):
    world = make_scenes(8, size=48, seed=4)
    names, faded = [f"im{i}" for i in range(8)], 0.6 * world.rgb + 0.4 * world.rgb.mean(1, keepdim=True)
    found = image_probe(write(tmp_path / "truth", world.rgb, names), {"faded": write(tmp_path / "pred", faded, names)}, [PSNR], task="colorization",
                        families=["chroma-shift", "bleeding"], side=48, scale="quick", progress=False)
    assert set(found.auc.family) == {"chroma-shift", "bleeding"} and set(found.auc.level) == {"37", "34", "31", "28", "25", "all"}
    assert (found.auc.query("metric == 'constant'").auc.dropna() == 0.5).all()


def test_bad_input(tmp_path):
    with pytest.raises(InputError, match="did you mean noise"): image_probe("scenes", metrics=[PSNR], families=["nois"], progress=False)
    with pytest.raises(InputError, match="did you mean quick"): image_probe("scenes", metrics=[PSNR], scale="quik", progress=False)
    with pytest.raises(InputError, match="scenes take none"): image_probe("scenes", [tmp_path], [PSNR], progress=False)
    with pytest.raises(InputError, match="valid alternative"): image_probe("scenes", metrics=[PSNR], valid="nothing", progress=False)
    with pytest.raises(InputError, match="unknown task"): image_probe("scenes", metrics=[PSNR], task="sounds", progress=False)
    small = write(tmp_path / "small", torch.rand(3, 3, 20, 20), "abc")
    with pytest.raises(InputError, match="smaller than 96"): image_probe(small, metrics=[PSNR], progress=False)


def test_photographs_with_human_regions():
    images, labels = data_path("bsds500/images"), data_path("bsds500/segmentations")
    few = sorted(images.glob("*.jpg"))[:12]
    made = open_pictures(few, regions=labels)["target"]
    assert len(made.items) == 12 and "labels" in str(made.signature) and made.items.regions.flatten(1).amax(1).min() >= 1
    assert _sky_mask(made.items)[1].sum() >= 3


def test_what_applies_to_nobody_and_metrics_of_texts_are_refused():
    flat = torch.full((8, 3, 64, 64), 0.4)
    with pytest.raises(InputError, match="blur applies to none of the 8 pictures"): image_probe(flat, metrics=["psnr"], families=["blur"], side=64, scale="quick", progress=False)
    with pytest.raises(InputError, match="choose metrics of images"): image_probe("scenes", metrics=["bleu"], scale="quick", progress=False)
