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
