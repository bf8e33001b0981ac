"TorchMetric as torchmetrics and training loops use it: names, options, empty loaders, figures, copies."
import pickle

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import torchmetrics
from PIL import Image

import invariant_metrics as im
from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import get_metric

TARGET = torch.rand(12, 3, 16, 16, generator=torch.Generator().manual_seed(0))
PRED = (0.9*TARGET + 0.02).clamp(0, 1)


def test_each_metric_has_a_class_of_its_name_and_says_its_options():
    metric = im.TorchMetric("psnr", cap=30.)
    assert repr(metric) == "TorchMetric('psnr', cap=30.0)" and type(metric).__name__ == "psnr" and isinstance(metric, im.TorchMetric)
    assert type(im.TorchMetric("psnr")) is type(metric) is not type(im.TorchMetric("ssim"))
    assert repr(im.TorchMetric("fd", encoder="mean-color", streamed=True, parts=4)) == "TorchMetric('fd', encoder='mean-color', streamed=True, parts=4)"
    assert repr(im.TorchMetric("psnr", {"cap": 30.})) == repr(metric)
    metric.update(TARGET, TARGET)
    assert float(metric) == 30.  # the option reached the metric
    with pytest.raises(InputError, match="takes no option 'colour'"): im.TorchMetric("psnr", colour=1)
    with pytest.raises(InputError, match="built already; give cap"): im.TorchMetric(get_metric("psnr"), cap=30.)
    assert im.TorchMetric("psnr", compute_on_cpu=True, cap=30.).compute_on_cpu  # torchmetrics' own argument goes to it


def test_a_collection_is_made_from_a_list():
    names = ["psnr", "ssim", "fd", "violation-edges"]
    together = torchmetrics.MetricCollection([im.TorchMetric("fd", encoder="mean-color") if n == "fd" else im.TorchMetric(n) for n in names])
    for part in (slice(0, 5), slice(5, 12)): together.update(PRED[part], TARGET[part])
    found = together.compute()
    assert set(found) == set(names)
    for name in ("psnr", "ssim"): assert float(found[name]) == pytest.approx(float(im.score(PRED, TARGET, name)[name]), rel=1e-6)
    assert "(fd): TorchMetric('fd', encoder='mean-color')" in repr(together)
    together.reset()
    tracker = torchmetrics.MetricTracker(together)
    for pred in (PRED, TARGET): tracker.increment(); tracker.update(pred, TARGET)
    assert tracker.best_metric()["ssim"] == 1.


@pytest.mark.parametrize("options", [dict(metric="psnr"), dict(metric="bleu"), dict(metric="cider-d"), dict(metric="fd", encoder="mean-color"),
                                     dict(metric="fd", encoder="mean-color", streamed=True, parts=4)], ids=str)
def test_nothing_seen_warns_as_torchmetrics_does_and_gives_nan(options):
    metric = im.TorchMetric(**options)
    with pytest.warns(UserWarning, match="called before the ``update``"): value = metric.compute()
    assert value.isnan() and value.ndim == 0
    with pytest.raises(InputError, match="call update first"): metric.score()
    texts = (["a red cat sat", "the dog ran off"], [["a red cat sat down"], ["the dog ran away"]])
    metric.reset(); metric.update(*(texts if metric.metric.inputs == "texts" else (PRED, TARGET)))
    assert metric.compute().isfinite()


def test_it_draws_itself():
    metric = im.TorchMetric("psnr")
    metric.update(PRED, TARGET)
    fig, ax = metric.plot()
    assert ax.get_ylabel() == "psnr" and float(ax.lines[0].get_ydata()[0]) == pytest.approx(float(metric))
    _, ax = metric.plot([metric.compute(), metric.compute()])
    assert len(ax.lines[0].get_ydata()) == 2
    plt.close("all")


def test_arrays_and_pictures_are_taken_as_tensors_are():
    pixels = (255*PRED).round().byte(), (255*TARGET).round().byte()
    forms = {"tensor": pixels, "numpy": tuple(x.movedim(1, -1).numpy() for x in pixels)}
    forms["pictures"] = tuple([Image.fromarray(x) for x in side] for side in forms["numpy"])
    found = {}
    for form, (pred, target) in forms.items():
        metric = im.TorchMetric("psnr")
        metric.update(pred, target)
        found[form] = float(metric)
    assert len(set(found.values())) == 1, found
    with pytest.raises(InputError, match="images"): im.TorchMetric("psnr").update(np.zeros(3), np.zeros(3))


def test_copies_keep_class_and_value():
    metric = im.TorchMetric("fd", encoder="mean-color", streamed=True)
    metric.update(PRED, TARGET)
    for same in (metric.clone(), pickle.loads(pickle.dumps(metric))):
        assert type(same) is type(metric) and repr(same) == repr(metric)
        same.update(PRED, TARGET)
        assert same.stats()[0].n == 24 and metric.stats()[0].n == 12

    class Mine(im.TorchMetric):
        def __init__(self): super().__init__("psnr")
    assert type(Mine().clone()) is Mine


def test_only_the_same_metric_is_merged():
    one, other = im.TorchMetric("psnr"), im.TorchMetric("psnr")
    other.update(PRED, TARGET)
    one.merge_state(other)
    assert float(one) == float(other)  # and without the warning that nothing was seen
    for wrong in (im.TorchMetric("psnr", cap=30.), im.TorchMetric("ssim")):
        with pytest.raises(InputError, match="same metric with the same options"): one.merge_state(wrong)


class NoFloat64(torch.Tensor):
    "Stands for a tensor on an Apple GPU, which knows no float64; `cpu()` gives a plain one."
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        out = super().__torch_function__(function, types, args, kwargs or {})
        if function is torch.Tensor.cpu: return out.as_subclass(torch.Tensor)
        if isinstance(out, NoFloat64) and out.dtype == torch.float64: raise TypeError("mps has no float64")
        return out


@pytest.mark.parametrize("name", ["psnr", "psnr-pooled", "ssim", "fd", "mmd", "cmmd-embedded", "encoder-distance", "lpips-embedded", "ciede2000",
                                  "colorfulness", "violation-edges", "violation-depth", "precision"])
def test_pictures_of_a_device_without_float64(name):
    pred, target = torch.rand(2, 24, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    expected, metric = im.TorchMetric(name), im.TorchMetric(name)
    expected.update(pred, target)
    metric.update(pred.as_subclass(NoFloat64), target.as_subclass(NoFloat64))
    assert float(metric) == pytest.approx(float(expected), rel=1e-12)


def test_a_metric_on_such_a_device_keeps_rows_elsewhere(monkeypatch):
    "There is no such device here: the place is made to say that it is one."
    metric = im.TorchMetric("psnr")
    monkeypatch.setattr(type(metric), "device", property(lambda self: torch.device("mps")))
    metric.update(PRED, TARGET)
    assert all(x.device.type == "cpu" for name in metric._defaults for x in metric._state(name)) and metric.score().n == 12
    with pytest.raises((RuntimeError, NotImplementedError), match="(?i)mps"): metric.compute()  # a float32 on mps, which this torch has not




@pytest.mark.parametrize("name, options", [("clipscore", {"weights": "embedded-clip"}), ("refclipscore", {"weights": "embedded-clip"}),
                                           ("refl-clipscore", {}), ("imagine-image", {"seeds": 2}), ("imagine-text-image-source", {"seeds": 2})])
def test_texts_with_pictures_and_sources_equal_score(name, options):
    from invariant_metrics.worlds.scene_text import captions
    from invariant_metrics.worlds.scenes import make_scenes
    scenes = make_scenes(12, 64, 0)
    texts = [captions(scenes, i)[0] for i in range(12)]
    pred, refs = texts[:6] + texts[:5:-1], [[text, text.replace("a ", "one ")] for text in texts]
    metric = im.TorchMetric(name, **options)
    source = {"images": scenes.rgb.half(), "texts": texts}.get(metric.metric.card.get("source"))
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for part in (slice(0, 5), slice(5, 12)): metric.update(pred[part], refs[part], None if source is None else source[part])
        found = metric.score()
    more = {k: v for k, v in options.items() if k == "weights"}
    rest = {k: v for k, v in options.items() if k != "weights"}
    expected, = im.score(pred, refs if metric.metric.compares else None, [name], source=source, metric_options=rest, **more).values()
    assert expected.value > 0 and found.value == float(metric) == pytest.approx(expected.value, rel=1e-5) and found.n == 12
    assert (found.deviation is None) == (expected.deviation is None)


def test_sets_of_texts_have_every_reference():
    pred, refs = ["a red cat sat", "the dog ran off", "two cats"], [["a red cat sat down", "a cat"], ["the dog ran away"], ["two small cats"]]
    metric = im.TorchMetric("fbd", weights="minilm")
    for i in range(3): metric.update(pred[i:i + 1], refs[i:i + 1])
    expected, = im.score(pred, [text for several in refs for text in several], ["fbd"], weights="minilm", ci=False).values()
    assert float(metric) == pytest.approx(expected.value, rel=1e-6)


def test_items_that_repeat_are_said():
    metric = im.TorchMetric("psnr")
    for some in ([0, 1, 2], [3, 0]): metric.update(PRED[some], TARGET[some])
    note, = [note for note in metric.score().notes if note.code == "repeated-items"]
    assert note.startswith("1 of 5 items repeat another one") and "names=" in note
    other = im.TorchMetric("psnr")
    other.update(PRED[:3], TARGET[:3], names=["a", "b", "c"]); other.update(TARGET[:1], TARGET[:1], names=["a"])
    note, = [note for note in other.score().notes if note.code == "repeated-items"]
    assert "(a)" in note and "1 of them with other content, of which the first counts" in note and other.score().n == 3
    with pytest.raises(InputError, match="2 names for 3 items"): other.update(PRED[:3], TARGET[:3], names=[1, 2])
    other.update(PRED[:3], TARGET[:3])
    with pytest.raises(InputError, match="1 of 3 batches came without names"): other.compute()


def test_equal_sets_are_0_as_in_score():
    for name in ("fd", "mmd"):
        metric = im.TorchMetric(name, encoder="mean-color")
        metric.update(TARGET[:7], TARGET.flip(0)[:7]); metric.update(TARGET[7:], TARGET.flip(0)[7:])
        found = metric.score()
        assert float(metric) == found.value == 0 and found.ci is None and found.notes[0].code == "same-items"
