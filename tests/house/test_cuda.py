"""What only a GPU can show: the paths of the package that differ there. Each is run on the CPU as well, so that the test itself is known to work."""
import math

import numpy as np
import pytest
import torch

import invariant_metrics as im
from invariant_metrics.core import InputError
from invariant_metrics.data.items import load_images
from invariant_metrics.encoders.encoder import FasterEncoder, get_encoder
from invariant_metrics.encoders.image_text import image_text, write_random_clip
from invariant_metrics.encoders.store import FeatureStore, _image_rows, extract_features
from invariant_metrics.invariants.invariant import get_invariant
from invariant_metrics.metrics.cmmd import cmmd_distance, moment_value, _unit_moments
from invariant_metrics.metrics.frechet import frechet_distance, frechet_replicates
from invariant_metrics.metrics.gaussian import GaussianStats
from invariant_metrics.metrics.inception_score import inception_score
from invariant_metrics.metrics.kernel import RBF, Polynomial
from invariant_metrics.metrics.mmd import mmd2, mmd_estimate
from invariant_metrics.metrics.named import kid_distance, _kid_estimate
from invariant_metrics.metrics.neighbors import neighbor_scores
from invariant_metrics.models.colorizer import UNetColorizer, seeded
from invariant_metrics.models.generators import translators
from invariant_metrics.models.text_networks import Vocabulary
from invariant_metrics.training.augmented import AugmentedLoss, TargetCache, color_batches
from invariant_metrics.training.loop import _LOOK_EVERY, Optim, Turn, fit
from invariant_metrics.training.text_training import augmented_text, text_batches
from invariant_metrics.worlds.scenes import make_scenes
from tiny_networks import save_tiny

GPU = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]
on_both = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
trained_on_both = pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=GPU)]) # the loop on a CPU: tests/training


@pytest.fixture(autouse=True)
def full_precision():
    "No shortened products, which torch otherwise allows in convolutions."
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(scope="module")
def scenes(): return make_scenes(24, size=64, seed=0)


def features(n: int, d: int, seed: int = 0) -> torch.Tensor:
    drawn = np.random.default_rng(seed).standard_normal((n, d))@np.random.default_rng(9).standard_normal((d, d))/d**0.5
    return torch.from_numpy(drawn + 0.1*seed).float()


# metrics of features

MEASURES = {"fd": frechet_distance, "fd, statistics": lambda a, b: frechet_distance(GaussianStats.of(a.split(70)), GaussianStats.of(b.split(70))),
            "kid": lambda a, b: kid_distance(a, b, subsets=20, size=50), "kid, value": lambda a, b: _kid_estimate(a, b, drawing=dict(subsets=20, size=50)).corrected,
            "mmd": lambda a, b: mmd2(a, b, kernel=RBF(6.0)), "mmd, polynomial": lambda a, b: mmd2(a, b, kernel=Polynomial()),
            "mmd, estimate": lambda a, b: mmd_estimate(a, b, kernel=RBF(6.0)).value, "cmmd": cmmd_distance, "cmmd, moments": lambda a, b: moment_value(_unit_moments(a), _unit_moments(b)),
            "inception score": lambda a, b: inception_score(a)}


@on_both
@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("n, d", [(300, 24), (60, 130)])
def test_metrics_of_features_agree(name, n, d, device):
    a, b = features(n, d), features(n, d, 1)
    found = MEASURES[name](a.to(device), b.to(device))
    assert float(found) == pytest.approx(float(MEASURES[name](a, b)), rel=1e-6, abs=1e-9)


@on_both
def test_neighbors_agree_and_count_the_same(device):
    a, b = features(300, 24), features(250, 24, 1)
    assert neighbor_scores(a.to(device), b.to(device)) == pytest.approx(neighbor_scores(a, b), rel=1e-12)


@on_both
def test_replicates_agree(device):
    a, b = features(120, 20), features(100, 20, 1)
    weights, weights_b = (torch.from_numpy(np.random.default_rng(n).multinomial(n, [1/n]*n, 6)).double() for n in (120, 100))
    there = frechet_replicates(a.to(device), b.to(device), weights.to(device), weights_b.to(device))
    torch.testing.assert_close(there.cpu(), frechet_replicates(a, b, weights, weights_b), rtol=1e-6, atol=1e-8)


@on_both
def test_statistics_travel_between_devices(device, tmp_path):
    from invariant_metrics.metrics.gaussian import _load_stats, _save_stats
    a = features(200, 12)
    there = GaussianStats(4).update(a[:90].to(device))
    _save_stats(there, tmp_path/"s.safetensors")
    there.update(a[90:])  # rows on the CPU go where the statistics are
    assert there.cov.device.type == device and _load_stats(tmp_path/"s.safetensors").n == 90
    torch.testing.assert_close(there.cov.cpu(), GaussianStats.of(a).cov, rtol=1e-9, atol=1e-12)


# encoders and the store

@on_both
@pytest.mark.parametrize("kind", ["uint8", "float"])
def test_features_agree_whatever_was_sent_ahead(scenes, device, kind):
    images = (255*scenes.rgb).round().byte()
    if kind == "float": images = images.float()/255
    plain = extract_features(images, "embedded")
    encoder = get_encoder("embedded", device=device)
    for batch in (5, 64): torch.testing.assert_close(extract_features(images, encoder, batch=batch), plain, rtol=1e-4, atol=1e-4*float(plain.abs().max()))
    items = load_images(images)
    for ahead in (0, 1, 3):
        rows = torch.zeros_like(plain)
        with torch.no_grad():
            for at, part in _image_rows(items, encoder, encoder.layers[-1], 5, [range(len(images))], ahead): rows[at] = part.cpu()
        torch.testing.assert_close(rows, plain, rtol=1e-4, atol=1e-4*float(plain.abs().max()))


@on_both
def test_the_store_keeps_devices_apart(scenes, device, tmp_path):
    store = FeatureStore(tmp_path, shard=7)
    first = store.features(scenes.rgb, get_encoder("embedded"))
    there = store.features(scenes.rgb, get_encoder("embedded", device=device))
    assert store.found["absent"] == (4 if device == "cpu" else 8)
    again = FeatureStore(tmp_path, shard=7).features(scenes.rgb, get_encoder("embedded", device=device))
    assert torch.equal(again, there) and first.shape == there.shape


@on_both
@pytest.mark.parametrize("options", [dict(channels_last=True), dict(autocast="bfloat16"), dict(autocast="bfloat16", channels_last=True)], ids=str)
def test_faster_encoders_stay_near(scenes, device, options):
    encoder = get_encoder("embedded", device=device)
    plain, faster = extract_features(scenes.rgb, encoder), extract_features(scenes.rgb, FasterEncoder(encoder, **options))
    assert (faster - plain).norm() < (0.05 if "autocast" in options else 1e-4)*plain.norm()


@on_both
def test_pictures_and_texts_of_a_clip_agree(scenes, device, tmp_path):
    folder = write_random_clip(tmp_path)
    here, there = image_text(folder), image_text(folder, device)
    texts = ["a red ball", "two dogs", "a cat"]
    torch.testing.assert_close(there.images([*scenes.rgb]).cpu(), here.images([*scenes.rgb]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(there.texts(texts, "", "cut")[0].cpu(), here.texts(texts, "", "cut")[0], rtol=1e-4, atol=1e-5)


# scores

PAIRED = ["psnr", "ssim", "lpips-embedded", "encoder-distance", "fd", "fd-untrained", "kid-embedded", "cmmd-embedded", "precision", "recall", "density", "coverage",
          "violation-segmentation", "violation-depth", "violation-edges", "colorfulness"]


def known(names: list[str]) -> list[str]:
    from invariant_metrics.metrics.metric import metrics
    return [name for name in names if name in metrics]


@on_both
def test_scores_agree(scenes, device):
    pred, names = (0.9*scenes.rgb + 0.03).clamp(0, 1), known(PAIRED)
    here = im.score(pred, scenes.rgb, names, reps=20, cache=False)
    there = im.score(pred, scenes.rgb, names, reps=20, cache=False, device=device)
    for name in names: assert float(there[name]) == pytest.approx(float(here[name]), rel=1e-3, abs=1e-5), name


@on_both
def test_scores_of_pictures_that_lie_on_the_device(scenes, device):
    pred, names = (0.9*scenes.rgb + 0.03).clamp(0, 1), ["psnr", "ssim", "fd"]
    here = im.score(pred, scenes.rgb, names, ci=False, cache=False)
    there = im.score(pred.to(device), scenes.rgb.to(device), names, ci=False, cache=False, device=device)
    for name in names: assert float(there[name]) == pytest.approx(float(here[name]), rel=1e-3, abs=1e-5), name


@on_both
def test_clipscore_and_bertscore(scenes, device, tmp_path):
    (tmp_path/"bert").mkdir()
    (tmp_path/"clip").mkdir()
    save_tiny(tmp_path/"bert")
    folder = write_random_clip(tmp_path/"clip")
    texts = ["a red ball", "two dogs", "a cat"]*8
    others = ["a blue ball", "two dogs", "the cat"]*8
    def scored(place):
        found = im.score(texts, None, ["clipscore"], source=scenes.rgb, weights=str(folder), ci=False, cache=False, device=place)
        again = im.score(texts, others, ["bertscore"], weights=str(tmp_path/"bert"), ci=False, cache=False, device=place)
        return [float(value) for one in (found, again) for value in one.values()]
    assert scored(device) == pytest.approx(scored("cpu"), rel=1e-4)


@on_both
@pytest.mark.parametrize("options", [dict(metric="psnr"), dict(metric="lpips-embedded"), dict(metric="fd"), dict(metric="fd", streamed=True)], ids=str)
def test_torch_metrics_move(scenes, device, options):
    pred = (0.9*scenes.rgb + 0.03).clamp(0, 1)
    here, there = im.TorchMetric(**options), im.TorchMetric(**options).to(device)
    for part in (slice(0, 10), slice(10, 24)):
        here.update(pred[part], scenes.rgb[part])
        there.update(pred[part].to(device), scenes.rgb[part].to(device))
    assert float(there.compute()) == pytest.approx(float(here.compute()), rel=1e-3)
    there.reset()


# training

def color_turn(device: str, scenes, names=(), width: int = 4):
    terms = {name: (get_invariant(name, device=device), 0.1) for name in names}
    caches = {name: TargetCache(g, scenes.rgb) for name, (g, _) in terms.items()}
    return Turn(UNetColorizer(width).to(device), AugmentedLoss(terms)), color_batches(scenes.rgb, 8, caches=caches)


def text_turn(device: str):
    vocabulary = Vocabulary.of(["a red ball is on the old house", "two dogs see a cat"])
    texts = vocabulary.batch(["a red ball", "two dogs see a cat", "the old house", "a cat is on a ball"]*4, 12)
    with seeded(0, "text_turn"): model = translators["small"](vocabulary, vocabulary)
    return Turn(model.to(device), augmented_text(vocabulary)), text_batches({"source": texts}, texts, vocabulary, 4)


def weights(turn: Turn) -> torch.Tensor: return torch.cat([p.detach().cpu().flatten() for p in turn.model.parameters()])


@trained_on_both
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("names", [(), ("segmentation", "depth")], ids=["plain", "invariants"])
def test_a_colorizer_learns(scenes, device, precision, names):
    turn, batches = color_turn(device, scenes, names)
    log = fit(turn, batches, 24, precision=precision)
    task = log[log["term"] == "task"]["value"]
    assert len(task) == 24 and task.iloc[-6:].mean() < task.iloc[:6].mean() and weights(turn).isfinite().all()


@trained_on_both
def test_looking_rarely_changes_nothing(device, scenes):
    logs = {}
    for look in (1, _LOOK_EVERY):
        turn, batches = color_turn(device, scenes)
        logs[look] = fit(turn, batches, 23, precision="fp32", look_every=look, save_every=7), weights(turn)
    (a, p), (b, q) = logs.values()
    assert list(a["step"]) == list(b["step"])
    torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)


@trained_on_both
@pytest.mark.parametrize("look", [1, 4, _LOOK_EVERY])
def test_nothing_moves_after_a_value_that_is_not_finite(device, look, tmp_path, scenes):
    def broken(model, batch): return {"task": model(batch["L"]).square().mean()*batch["factor"]}
    plain = color_batches(scenes.rgb, 8)
    def batches(i, bad=13): return {**plain(i), "factor": torch.tensor(math.nan if i == bad else 1e-4)}
    turn = Turn(color_turn(device, scenes)[0].model, broken, Optim(schedule="constant"))
    with pytest.raises(InputError, match="stopped at step 13"): fit(turn, batches, 30, precision="fp32", look_every=look, folder=tmp_path)
    good = Turn(color_turn(device, scenes)[0].model, broken, Optim(schedule="constant"))
    fit(good, lambda i: batches(i, None), 13, precision="fp32", look_every=look)
    assert weights(turn).isfinite().all()
    torch.testing.assert_close(weights(turn), weights(good), rtol=1e-3, atol=1e-5)


@trained_on_both
def test_an_overflow_is_skipped_and_counted(device, scenes):
    def loss(model, batch): return {"task": (model(batch["L"])/110 - batch["ab"]/110).square().mean()*batch["factor"]}
    plain = color_batches(scenes.rgb, 8)
    def batches(i): return {**plain(i), "factor": torch.tensor(1e9 if i in (5, 9) else 1.0)}
    turn = Turn(color_turn(device, scenes)[0].model, loss)
    log = fit(turn, batches, 20, precision="fp16").pivot(index="step", columns="term", values="value")
    assert {5, 9} <= set(log.index[log["skipped"] == 1]) and weights(turn).isfinite().all()
    assert log["loss scale"].iloc[-1] < log["loss scale"].iloc[0] and log["skipped"].iloc[10:].sum() == 0


@trained_on_both
@pytest.mark.parametrize("make", [text_turn, None], ids=["translator with dropout", "colorizer"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_run_goes_on(device, make, precision, tmp_path, scenes):
    def fresh(): return color_turn(device, scenes) if make is None else make(device)
    whole, batches = fresh()
    fit(whole, batches, 20, precision=precision, folder=tmp_path/"whole")
    first, _ = fresh()
    def stops(i):
        if i == 13: raise RuntimeError("power cut")
        return batches(i)
    with pytest.raises(RuntimeError, match="power cut"): fit(first, stops, 20, precision=precision, folder=tmp_path/"parts", save_every=5)
    second, _ = fresh()
    log = fit(second, batches, 20, precision=precision, folder=tmp_path/"parts", save_every=5)
    assert sorted(set(log["step"])) == list(range(20))
    torch.testing.assert_close(weights(second), weights(whole), rtol=1e-3, atol=1e-4)


@trained_on_both
def test_networks_write_the_same_texts(device):
    turn, batches = text_turn(device)
    fit(turn, batches, 30, precision="fp32")
    inputs = {"source": batches(0)["source"].to(device)}
    texts = turn.model.texts(inputs)
    turn.model.to("cpu")
    assert turn.model.texts({"source": inputs["source"].cpu()}) == texts


# a study

@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_quick_study(tmp_path, workers):
    run = im.study("colorization", parts=("training",), out=tmp_path/"run", scale="quick", seeds=1, device="cuda", workers=workers, systems=("segmentation",))
    assert (tmp_path/"run").is_dir() and run is not None
