"What every registered metric must do, and a user's own one as well: the same test for all."
from functools import lru_cache

import numpy as np
import pytest
import torch

from invariant_metrics.core import InputError, Signature
from invariant_metrics.metrics.base import KINDS, ItemMetric, Rows, SetMetric, TextMetric, extract, get_metric, metric_cards, metrics
from invariant_metrics.scoring.inference import bootstrap_counts, paired_difference, score_rows

N = 40
FROM_THE_HUB = {"violation-segformer", "violation-mask2former", "violation-midas",  # weights do not come with the package
                "fid", "fid-pytorch", "fid-clean", "fdd", "kid", "kid-full", "inception-score", "lpips-alex", "lpips-vgg", "lpips-squeeze"}
LARGER = {"ms-ssim"}  # than these small images; tests/test_image_battery.py
OF_TEXTS = {name for name in metrics.names() if (getattr(metrics[name], "card", None) or {}).get("inputs", "").startswith("text")}
UNBIASED = {"mmd", "mmd-poly", "cmmd-unbiased", "fd-inf"}  # of identical sets not 0 but below it
OWN = ["own_metric:sharpness_gap", "own_metric:mean_gap"]
NAMES = [*metrics.names(), *OWN]
SATURATED = {"precision", "recall", "coverage"}  # shares that light damage may leave at 1


@lru_cache
def images() -> tuple[torch.Tensor, ...]:
    "Targets (soft colored blobs), a slightly and a badly damaged version of them."
    g = torch.Generator().manual_seed(5)
    coarse = torch.rand(2, N, 3, 5, 5, generator=g)
    target, other = (torch.nn.functional.interpolate(x, 32, mode="bicubic").clamp(0, 1) for x in coarse)
    return target, 0.9*target + 0.1*other, 0.3*target + 0.7*other


@lru_cache
def built(name: str):
    return get_metric(name, **({"runs": 2} if name.startswith("prd-") else {}))  # ten clusterings each time take long


@lru_cache
def rows(name: str, which: int) -> Rows:
    metric = built(name)
    return extract([metric], images()[which], images()[0])[metric.name]


@pytest.fixture(params=[n for n in NAMES if n not in OF_TEXTS])  # those have tests/test_text_contract.py and tests/test_text_encoder.py
def name(request):
    if request.param in FROM_THE_HUB: pytest.skip("needs hub weights, which no default test has")
    if request.param in LARGER: pytest.skip("needs larger images: tests/test_image_battery.py")
    return request.param


def close(a, b, relative=1e-4, absolute=1e-6):
    assert np.allclose(np.asarray(a, float), np.asarray(b, float), rtol=relative, atol=absolute), (a, b)


def test_card_says_what_it_measures(name):
    metric = built(name)
    assert all(metric.card.get(k) for k in ("measures", "range", "inputs", "weights", "cite")), metric.card
    if name not in OWN:
        card, = [c for c in metric_cards() if c["name"] == name]
        assert (isinstance(metric, TextMetric if card.get("inputs") == "texts" and card["kind"] != "set" else KINDS[card["kind"]]), card["higher_is_better"]) == (True, metric.higher_is_better)


def test_identical_items_are_best_and_damage_goes_the_stated_way(name):
    metric, (same, light, heavy) = built(name), (built(name).statistic(rows(name, i)) for i in range(3))
    if metric.higher_is_better is None: return
    sign = 1 if metric.higher_is_better else -1
    assert sign*same > sign*light > sign*heavy or name in SATURATED and same == light > heavy, (same, light, heavy)
    if not metric.higher_is_better and name not in UNBIASED: assert same == 0 or isinstance(metric, ItemMetric) and same < 1e-6


def test_unbiased_and_paired_values_in_range_on_identical_items():
    for name in UNBIASED: assert built(name).statistic(rows(name, 0)) <= 0
    assert built("psnr").statistic(rows("psnr", 0)) == 100 and built("ssim").statistic(rows("ssim", 0)) == 1


def test_signature_names_the_metric_and_survives_print(name):
    score = score_rows(built(name), rows(name, 1), reps=20)
    assert Signature.parse(str(score.signature)) == score.signature
    parts = dict(score.signature.items)
    assert parts["metric"] == built(name).name and parts["n"] == str(N) and "version" in parts
    assert score.n == N and score.higher_is_better == built(name).higher_is_better


def test_batch_size_does_not_matter(name):
    metric, (target, light, _) = built(name), images()
    close(metric.statistic(extract([metric], light, target, batch=7)[metric.name]), metric.statistic(rows(name, 1)))


def test_order_does_not_matter(name):
    metric, (target, light, _) = built(name), images()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    close(metric.statistic(extract([metric], light[order], target[order])[metric.name]), metric.statistic(rows(name, 1)))


def test_weights_are_repetitions(name):
    metric, (target, light, _) = built(name), images()
    counts = np.ones(N); counts[:9] = 3; counts[9:14] = 0
    index = torch.from_numpy(np.repeat(np.arange(N), counts.astype(int)))
    close(metric.statistic(rows(name, 1), counts), metric.statistic(extract([metric], light[index], target[index])[metric.name]))


def test_replicates_equal_the_statistic_one_by_one(name):
    metric, r = built(name), rows(name, 2)
    draws = bootstrap_counts(r, 6, seed=3)
    close(metric.replicates(r, draws), [metric.statistic(r, w) for w in draws], relative=1e-6, absolute=1e-6)


def test_interval_is_reproducible_and_holds_the_value(name):
    metric, r = built(name), rows(name, 1)
    first, again = (score_rows(metric, r, reps=60, seed=4) for _ in range(2))
    assert first.ci == again.ci
    assert first.ci.low <= (first.value if first.corrected is None else first.corrected) <= first.ci.high
    assert score_rows(metric, r, reps=60, seed=4, method="bootstrap").ci != score_rows(metric, r, reps=60, seed=5, method="bootstrap").ci
    assert (first.per_item is None) == isinstance(metric, SetMetric)


def test_difference_of_a_system_with_itself_is_nothing(name):
    gap = paired_difference(built(name), rows(name, 1), rows(name, 1), reps=30)
    assert gap.value == 0 and gap.ci.low == gap.ci.high == 0


def test_torchmetrics_class_equals_the_function_and_shards_merge(name):
    from invariant_metrics.scoring.torch_metric import TorchMetric
    metric, (target, light, _) = built(name), images()
    shards = [TorchMetric(metric) for _ in range(3)]
    for i, (p, t) in enumerate(zip(light.split(8), target.split(8))): shards[i % 3].update(p, t)
    shards[0].merge_state(shards[1]); shards[0].merge_state(shards[2])
    close(shards[0].compute(), metric.statistic(rows(name, 1)))
    assert shards[0].higher_is_better == metric.higher_is_better and shards[0].score(reps=10).n == N
    shards[0].reset(); shards[0].update(target, target)
    close(shards[0].compute(), metric.statistic(rows(name, 0)))


def test_values_that_are_not_finite_are_refused(name):
    metric, (target, light, _) = built(name), images()
    with pytest.raises(InputError): extract([metric], light.index_fill(0, torch.tensor([2]), torch.nan), target)


def test_a_collection_of_all_keeps_them_apart():
    "torchmetrics shares states that look alike after one batch; on identical images many are 0 at once."
    from invariant_metrics.scoring.torch_metric import TorchMetric
    import torchmetrics
    target, light, _ = images()
    here = [n for n in NAMES if n not in FROM_THE_HUB | OF_TEXTS | LARGER]
    together = torchmetrics.MetricCollection({n.replace(":", "-").replace(".", "-"): TorchMetric(built(n)) for n in here})
    together.update(target[:20], target[:20]); together.update(light[20:], target[20:])
    found = together.compute()
    for n in here:
        mixed = extract([built(n)], torch.cat([target[:20], light[20:]]), target)[built(n).name]
        close(found[n.replace(":", "-").replace(".", "-")], built(n).statistic(mixed))


def test_all_at_once_equals_one_by_one_and_shares_the_work():
    target, light, _ = images()
    here = [built(n) for n in NAMES if n not in FROM_THE_HUB | OF_TEXTS | LARGER]
    cache = {}
    together = extract(here, light, target, cache=cache)
    again = extract(here, light, target, cache=cache)
    for metric, n in zip(here, [n for n in NAMES if n not in FROM_THE_HUB | OF_TEXTS | LARGER]):
        close(metric.statistic(together[metric.name]), metric.statistic(rows(n, 1)))
        assert metric.statistic(again[metric.name]) == metric.statistic(together[metric.name])
