"Metrics of other libraries: the libraries' own numbers, by name and as objects, and a line for those that cannot be trusted."
import sys
from itertools import zip_longest

import numpy as np
import pytest
import sacrebleu
import torch
import torchmetrics
import torchmetrics.functional.image
import torchmetrics.functional.text
import torchmetrics.image
import torchmetrics.text

import invariant_metrics as im
from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import TextMetric, extract, get_metric, library_of, metric_card, metrics
from invariant_metrics.metrics.other_libraries import other_metric, split_options
from invariant_metrics.scoring.sides import listed_metrics

draw = torch.Generator().manual_seed(0)
TRUTH = torch.nn.functional.interpolate(torch.rand(10, 3, 6, 6, generator=draw), (48, 48), mode="bilinear")
GUESS = (TRUTH + torch.linspace(0.01, 0.3, 10)[:, None, None, None]*torch.randn(TRUTH.shape, generator=draw)).clamp(0.02, 1)
PRED = ["a red bird sits on the fence", "two boats lie near the shore", "the children play a game", "he reads"]*3
REFS = [("a red bird sat on the old fence", "one bird"), ("two boats are near a shore",), ("children play in a park", "they play a game"), ("she reads",)]*3

SPAN = {"data_range": 1.0}
# name, its own options there, how it has a number for each item
OF_PICTURES = [("StructuralSimilarityIndexMeasure", SPAN, "each"), ("PeakSignalNoiseRatio", SPAN, "whole"), ("SpectralAngleMapper", {}, "each"),
               ("UniversalImageQualityIndex", {}, "each"), ("VisualInformationFidelity", {}, "each"),
               ("ErrorRelativeGlobalDimensionlessSynthesis", {}, "each"), ("RelativeAverageSpectralError", {}, "whole"),
               ("RootMeanSquaredErrorUsingSlidingWindow", {}, "calls"), ("SpatialCorrelationCoefficient", {}, "calls"), ("TotalVariation", {}, "whole")]
OF_TEXTS = [("BLEUScore", "whole"), ("SacreBLEUScore", "whole"), ("CHRFScore", "whole"), ("TranslationEditRate", "whole"), ("ExtendedEditDistance", "each"),
            ("WordErrorRate", "whole"), ("CharErrorRate", "whole"), ("MatchErrorRate", "whole"), ("WordInfoLost", "whole"),
            ("WordInfoPreserved", "whole"), ("EditDistance", "each")]
FUNCTIONS = [("structural_similarity_index_measure", SPAN), ("peak_signal_noise_ratio", SPAN), ("spectral_angle_mapper", {}),
             ("universal_image_quality_index", {}), ("relative_average_spectral_error", {})]


def value(name, pred=GUESS, target=TRUTH, **options) -> float:
    metric = get_metric(name, **options)
    return metric.statistic(extract([metric], pred, target if metric.compares else None)[metric.name])


@pytest.mark.parametrize("name,options,way", OF_PICTURES)
def test_pictures_by_torchmetrics_classes(name, options, way):
    metric = get_metric(f"torchmetrics:{name}")
    theirs = getattr(torchmetrics.image, name)(**options)
    theirs.update(*((GUESS, TRUTH) if metric.compares else (GUESS,)))
    assert value(f"torchmetrics:{name}") == pytest.approx(float(theirs.compute()), rel=1e-6, abs=1e-6)
    assert dict(metric.signature.items)["items"] == way
    assert metric.higher_is_better == type(theirs).higher_is_better


@pytest.mark.parametrize("name,way", OF_TEXTS)
def test_texts_by_torchmetrics_classes(name, way):
    metric = get_metric(f"torchmetrics:text.{name}")
    theirs, one = getattr(torchmetrics.text, name)(), "references" in str(metric.signature)
    refs = [r[:1] for r in REFS]
    theirs.update(PRED, [r[0] for r in refs] if one else REFS)
    assert value(f"torchmetrics:text.{name}", PRED, refs if one else REFS) == pytest.approx(float(theirs.compute()), rel=1e-6)
    assert isinstance(metric, TextMetric) and dict(metric.signature.items)["items"] == way


@pytest.mark.parametrize("name,options", FUNCTIONS)
def test_functions_are_as_their_classes(name, options):
    theirs = getattr(torchmetrics.functional.image, name)(GUESS, TRUTH, **options)
    assert value(f"torchmetrics:functional.{name}") == pytest.approx(float(theirs), rel=1e-6)
    assert get_metric(f"torchmetrics:functional.{name}").higher_is_better is not None


@pytest.mark.parametrize("name,kind", [("bleu", "BLEU"), ("chrf", "CHRF"), ("TER", "TER")])
def test_sacrebleu(name, kind):
    theirs = getattr(sacrebleu, kind)().corpus_score(PRED, [*zip_longest(*REFS)]).score
    assert value(f"sacrebleu:{name}", PRED, REFS) == pytest.approx(theirs)
    assert im.score(PRED, REFS, [getattr(sacrebleu, kind)()], ci=False)[f"sacrebleu:{kind}"].value == pytest.approx(theirs)


def test_objects_functions_and_classes_are_known_by_their_module():
    ssim = torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=1.0)
    ssim.update(GUESS[:2], TRUTH[:2]) # what it has seen stays where it is
    found, = im.score(GUESS, TRUTH, ssim, ci=False).values()
    assert found.value == pytest.approx(value("torchmetrics:StructuralSimilarityIndexMeasure"))
    assert float(ssim.total) == 2
    assert other_metric(torchmetrics.functional.image.spectral_angle_mapper).higher_is_better is False
    for thing, library in ((ssim, "torchmetrics"), (sacrebleu.BLEU, "sacrebleu"), (print, None), ("psnr", None), (im.TorchMetric("psnr"), None)):
        assert library_of(thing) == library


def test_one_number_for_all_has_its_interval_by_calls():
    score = im.score(GUESS, TRUTH, "torchmetrics:PeakSignalNoiseRatio", reps=30)["torchmetrics:PeakSignalNoiseRatio"]
    assert score.ci.method.startswith("bootstrap") and score.ci.low < score.value < score.ci.high
    alone = [float(torchmetrics.functional.image.peak_signal_noise_ratio(p, t, data_range=1.0)) for p, t in zip(GUESS, TRUTH)]
    assert score.per_item == pytest.approx(alone, rel=1e-6)
    assert any("takes a call for each replicate" in note for note in score.notes)


def test_batches_and_torch_metric_keep_what_is_needed():
    for name, pred, target in (("torchmetrics:PeakSignalNoiseRatio", GUESS, TRUTH), ("torchmetrics:text.BLEUScore", PRED, REFS)):
        metric = get_metric(name)
        whole = metric.statistic(extract([metric], pred, target)[name])
        assert metric.statistic(extract([metric], pred, target, batch=3)[name]) == pytest.approx(whole)
        kept = im.TorchMetric(metric)
        for start in (0, 5): kept.update(pred[start:start + 5], target[start:start + 5])
        assert float(kept.compute()) == pytest.approx(metric.statistic(extract([metric], pred[:10], target[:10])[name]))
        assert metric.values(kept.rows().pred).shape == (10,)


def test_best_mean_or_first_reference():
    refs = [("abc", "xyz"), ("x", "de")]
    by = {how: value("torchmetrics:EditDistance", ["abd", "de"], refs, references=how) for how in ("best", "mean", "first")}
    assert by == {"best": 0.5, "mean": pytest.approx((2 + 1)/2), "first": 1.5} # distances 1, 3 and 2, 0
    with pytest.raises(InputError, match="references=best or references=first"): get_metric("torchmetrics:WordErrorRate(references=mean)")


def test_sets_of_features():
    from torchmetrics.image.fid import FrechetInceptionDistance
    metric = get_metric("torchmetrics:FrechetInceptionDistance", encoder="mean-color")
    same = torch.nn.Identity()
    same.num_features = 3
    theirs = FrechetInceptionDistance(feature=same)
    theirs.update(GUESS.mean((2, 3)), real=False)
    theirs.update(TRUTH.mean((2, 3)), real=True)
    assert value(metric) == pytest.approx(float(theirs.compute()), rel=1e-5)
    assert metric.is_distance and metric_card(metrics["torchmetrics:FrechetInceptionDistance"])["kind"] == "set"


class Counting(torchmetrics.Metric):
    "Forgets to forget."
    higher_is_better = False

    def __init__(self):
        super().__init__()
        self.calls = 0
    def update(self, preds, target): self.calls += 1
    def compute(self): return torch.tensor(float(self.calls))


class Clamping(Counting):
    def update(self, preds, target): preds.clamp_(0.3, 0.6)
    def compute(self): return torch.tensor(1.0)


class Drawing(Counting):
    def update(self, preds, target): self.error = (preds - target).abs().mean()
    def compute(self): return self.error + torch.rand(())


class Failing(Counting):
    def update(self, preds, target): raise KeyError("nothing here")


class Sorting(Counting):
    "Ranks in the batch."
    def update(self, preds, target): self.order = (preds - target).abs().mean((1, 2, 3)).argsort().argsort().float()
    def compute(self): return self.order


@pytest.mark.parametrize("kind,said", [(Counting, "another number at its second call: 1 then 2; it remembers"), (Clamping, "changes what it is given"),
                                       (Drawing, "average=K takes the mean of K calls"), (Failing, "ends in KeyError.*nothing here")])
def test_what_cannot_be_trusted_is_refused_in_one_line(kind, said):
    with pytest.raises(InputError, match=said) as error: other_metric(kind(), takes="pictures")
    assert "\n" not in str(error.value)


def test_chance_is_averaged_by_choice():
    averaged = other_metric(Drawing(), takes="pictures", average=5)
    first, again = (extract([averaged], GUESS, TRUTH)[averaged.name].pred for _ in range(2))
    assert torch.equal(first, again) and "average:5" in str(averaged.signature)
    state = torch.get_rng_state()
    other_metric(Drawing(), takes="pictures", average=2)
    assert torch.equal(torch.get_rng_state(), state)


def test_items_that_depend_on_each_other_are_called_alone():
    metric = other_metric(Sorting(), takes="pictures", better="lower")
    rows = extract([metric], GUESS, TRUTH)[metric.name]
    assert (rows.pred == 0).all() and "depends on the other items" in rows.notes[0]


@pytest.mark.parametrize("name,said", [
    ("torchmetrics:SSIMM", "unknown metric of torchmetrics"), ("torchmetrics:text.BLEUScor", "did you mean BLEUScore"),
    ("torchmetrics:MeanSquaredError", "tell it: takes=pictures"), ("torchmetrics:MeanSquaredError(takes=boxes)", "unknown choice of takes"),
    ("torchmetrics:StructuralSimilarityIndexMeasure(window=3)", "unknown option of torchmetrics:Struc"), ("sacrebleu:bleu(=)", "not like NAME"),
    ("torchmetrics:PeakSignalNoiseRatio(infinite=yes)", "infinite is a number"), ("torchmetrics:PeakSignalNoiseRatio(range=9)", "range is like 0-255"), ("torchmetrics:functional.image_gradients", "key=0")])
def test_names_and_options_that_mean_nothing(name, said):
    with pytest.raises(InputError, match=said): get_metric(name)


def test_a_library_that_is_absent_says_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyiqa", None)
    with pytest.raises(InputError, match="pip install pyiqa"): get_metric("pyiqa:dists")


def test_options_in_a_name():
    assert split_options("ssim(sigma=(1, 2), range=-1-1)") == ("ssim", {"sigma": (1, 2), "range": "-1-1"})
    assert listed_metrics("psnr,torchmetrics:A(a=1,b=(2,3)), ssim") == ["psnr", "torchmetrics:A(a=1,b=(2,3))", "ssim"]
    low, high = (value(f"torchmetrics:PeakSignalNoiseRatio{told}") for told in ("", "(range=0-255)"))
    assert low == pytest.approx(high, rel=1e-4) # the range goes to the library with the pictures
    assert value("torchmetrics:StructuralSimilarityIndexMeasure", data_range=2.0, range="0-2") == pytest.approx(
        value("torchmetrics:StructuralSimilarityIndexMeasure"), rel=1e-4)


def test_infinite_numbers_are_told():
    with pytest.raises(InputError, match="infinite=100"): value("torchmetrics:PeakSignalNoiseRatio", GUESS, GUESS)
    metric = get_metric("torchmetrics:PeakSignalNoiseRatio(infinite=100)")
    rows = extract([metric], torch.cat([GUESS[:1], TRUTH[1:2]]), TRUTH[:2])[metric.name]
    assert metric.values(rows.pred)[1] == 100 and metric.statistic(rows) < 50 # twice the pixels, half the error: 3 dB more


def test_text_metric_decorator():
    @im.text_metric("test-shared", higher_is_better=True, range="[0, 1]")
    def shared(pred, references, source=None, power: float = 1.):
        return [max(len({*p.split()} & {*r.split()})/len({*p.split()}) for r in refs)**power for p, refs in zip(pred, references)]
    @im.text_metric("test-length", higher_is_better=None)
    def length(pred): return np.array([len(p.split()) for p in pred])
    @im.text_metric("test-kept", higher_is_better=True)
    def kept(pred, references, source): return [float(s in p) for p, s in zip(pred, source)]
    pred, refs = ["a b", "c"], [("a c", "a b"), ("d",)]
    assert value("test-shared", pred, refs) == 0.5 and value("test-length", pred) == 1.5
    assert "power:2.0" in str(get_metric("test-shared", power=2).signature)
    assert not get_metric("test-length").compares
    with pytest.raises(InputError, match="needs the texts"): im.score(pred, refs, "test-kept", ci=False)
    assert im.score(pred, refs, "test-kept", source=["b", "x"], ci=False)["test-kept"].value == 0.5
    with pytest.raises(InputError, match="'target' is neither"): im.text_metric("test-strange", higher_is_better=True)(lambda pred, target: pred)
    with pytest.raises(InputError, match="is a function of pred, target; put @im.text_metric"): get_metric(lambda pred, target: pred)
    for name in ("test-shared", "test-length", "test-kept"): del metrics.entries[name]
