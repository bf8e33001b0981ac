"Two processes under torchrun equal one, for rows and for moments, with uneven batches, and where a process has seen nothing."
import os
import pickle

import pytest
import torch
import torch.distributed as dist

from commands import torchrun
from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import get_metric
from invariant_metrics.metrics.gaussian import GaussianStats

COLOR = {"encoder": "mean-color", "layer": "quarters"}
KINDS = {"psnr": {}, "fd": dict(options=COLOR), "fd streamed": dict(options=COLOR, streamed=True),
         "fd parts": dict(options=COLOR, streamed=True, parts=4, seed=3), "cmmd": dict(options=COLOR), "violation-edges": {}}


def images(start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    target = torch.nn.functional.interpolate(torch.rand(94, 3, 4, 4, generator=g), 16, mode="bicubic").clamp(0, 1)
    pred = (0.8*target + 0.2*torch.rand(94, 3, 16, 16, generator=g)).clamp(0, 1)
    return pred[start:stop], target[start:stop]


def shares(rank: int) -> dict[str, list]:
    "What each process is fed: batches of different numbers and sizes, and once all for the first."
    uneven = [[(0, 7), (7, 40)], [(40, 41), (41, 71), (71, 90)]][rank]
    return {"uneven": [images(*cut) for cut in uneven], "alone": [images(*cut) for cut in ([(0, 50), (50, 90)] if rank == 0 else [])]}


def made(name: str): # TorchMetric
    from invariant_metrics.scoring.torch_metric import TorchMetric
    return TorchMetric(name.split()[0], **KINDS[name])


def scored(metric) -> list[float]:
    score = metric.score() if metric.streamed else metric.score(reps=40)
    return [score.value, score.n, *((score.ci.low, score.ci.high) if score.ci else (0, 0))]


def one(name: str, *cuts): # TorchMetric
    metric = made(name)
    for cut in cuts: metric.update(*images(*cut))
    return metric


def gathered() -> dict: # case -> value, score, and the value after one batch more
    "What one of the processes computes."
    rank, found = int(os.environ["RANK"]), {}
    dist.init_process_group("gloo")
    for name in KINDS:
        for case, mine in shares(rank).items():
            metric = made(name)
            for p, t in mine: metric.update(p, t)
            value = float(metric.compute())
            score = scored(metric)
            assert not metric._is_synced and float(metric.compute()) == value
            metric.update(*images(90, 94))  # goes on with what is its own
            found[f"{name} {case}"] = [value, *score, float(metric.compute())]
    for name in ("psnr", "fd"): # the second process is padded with the first items
        metric = made(name)
        for i in [[0, 2, 4, 6, 8], [1, 3, 5, 7, 0]][rank]: metric.update(*images(i, i + 1), names=[i])
        score = metric.score(reps=40)
        found[f"{name} named"] = [float(metric.compute()), score.value, score.n, [note.code for note in score.notes].count("repeated-items")]
    dist.destroy_process_group()
    return found


@pytest.fixture(scope="module")
def found() -> list[dict]: return torchrun(gathered)


@pytest.mark.parametrize("case", ["uneven", "alone"])
@pytest.mark.parametrize("name", KINDS)
def test_two_processes_equal_one(found, name, case):
    whole = one(name, (0, 90))
    value, low_high = float(whole.compute()), scored(whole)[2:]
    whole.update(*images(90, 94))
    for rank, result in enumerate(found):
        together, scored_value, n, *ends, after = result[f"{name} {case}"]
        assert abs(together - value) <= 1e-10*abs(value) and scored_value == pytest.approx(value, rel=1e-10) and n == 90
        if name == "psnr" or case == "alone": assert ends == pytest.approx(low_high, rel=1e-8)  # rows in the same order
        assert (name == "fd streamed") == (ends == [0, 0]) and (ends == [0, 0] or ends[0] < ends[1])
        twice = one(name, (0, 90), (90, 94), (90, 94))
        assert after == pytest.approx(float(twice.compute()), rel=1e-10), rank
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["psnr", "fd"])
def test_padding_counts_once_where_items_have_names(found, name):
    value = float(one(name, (0, 9)).compute())
    for result in found:
        assert result[f"{name} named"][:2] == [pytest.approx(value, rel=1e-10)]*2 and result[f"{name} named"][2:] == [9, 1]


@pytest.mark.parametrize("name", ["fd streamed", "fd parts"])
def test_moments_instead_of_rows(name, monkeypatch):
    monkeypatch.setattr("invariant_metrics.scoring.torch_metric.BLOCK", 16)  # folds several times
    kept, cuts = one("fd", (0, 90)), [(0, 3), (3, 20), (20, 21), (21, 60), (60, 90)]
    whole, shards = one(name, *cuts), [one(name, *cuts[:2]), one(name, *cuts[2:4]), one(name, cuts[4])]
    value = float(kept.compute())
    for other in shards[1:]:
        before = float(other.compute())
        shards[0].merge_state(other)
        shards[0].compute()
        assert float(other.compute()) == before  # what was merged is not written into
    for same in (whole, shards[0]): assert float(same.compute()) == pytest.approx(value, rel=1e-10)
    assert shards[0].stats()[0].n == 90 and all(len(x) < 16 for name in whole._rows for x in whole._state(name))
    merged = made(name)
    merged.merge_state(whole)
    merged.update(*images(90, 94)); whole.compute()
    assert merged.stats()[1].n == 94 and whole.stats()[1].n == 90
    step = whole(*images(90, 94))  # forward: the batch alone, and taken in
    assert float(step) == pytest.approx(float(one("fd", (90, 94)).compute()), rel=1e-9) and whole.stats()[0].n == 94
    assert float(whole.compute()) == pytest.approx(float(one("fd", (0, 94)).compute()), rel=1e-10)
    whole.reset(); whole.update(*images(0, 90))
    assert float(whole.compute()) == pytest.approx(value, rel=1e-10)


def test_the_interval_is_from_the_parts():
    pair = [images(0, 90)[side] for side in (0, 1)]
    metric, net = made("fd parts"), get_metric("fd", **COLOR)
    metric.update(*pair)
    stats = [GaussianStats.of(net.phi(x), parts=4, seed=3) for x in pair]
    estimate, score = net.from_stats(*stats), metric.score()
    assert score.value == pytest.approx(estimate.value) and score.ci and score.corrected == estimate.corrected
    assert [p.n for p in metric.stats()[0].parts] == [p.n for p in metric.stats()[1].parts] == [p.n for p in stats[0].parts]
    assert one("fd streamed", (0, 90)).score().ci is None
    wider, narrower = metric.score(confidence=0.99).ci, metric.score(confidence=0.5).ci
    assert wider.low < narrower.low < narrower.high < wider.high


@pytest.mark.parametrize("name", KINDS)
def test_copies_pickles_and_types(name):
    metric = one(name, (0, 40))
    value = float(metric.compute())
    again = pickle.loads(pickle.dumps(metric))
    for same in (metric.clone(), again, metric.set_dtype(torch.float16), metric.to(torch.float32), metric.half()):
        assert float(same.compute()) == value
        same = same.clone(); same._computed = None
        assert float(same.compute()) == pytest.approx(value, rel=1e-12)
        same.update(*images(40, 90))
        assert float(same.compute()) == pytest.approx(float(one(name, (0, 90)).compute()), rel=1e-10)
    assert metric.clone().metric is metric.metric


def test_a_collection_keeps_rows_and_moments_apart():
    import torchmetrics
    both = torchmetrics.MetricCollection({"kept": made("fd"), "streamed": made("fd streamed"), "parts": made("fd parts")})
    same = images(0, 30)[1]
    both.update(same, same); both.update(*images(30, 90))
    found = both.compute()
    assert found["kept"] > 0
    for key in ("streamed", "parts"): assert found[key] == pytest.approx(float(found["kept"]), rel=1e-10)
    other = both.clone()
    other.reset(); other.update(*images(0, 90))
    assert other.compute()["parts"] == pytest.approx(float(one("fd", (0, 90)).compute()), rel=1e-10)


def test_what_cannot_be_is_said():
    from invariant_metrics.scoring.torch_metric import TorchMetric
    for wrong, message in ((lambda: TorchMetric("psnr", streamed=True), "more than mean and covariance"),
                           (lambda: TorchMetric("fd", parts=8), "streamed=True only"),
                           (lambda: TorchMetric("fd", streamed=True, parts=1), "parts must be"),
                           (lambda: made("fd parts").score(), "call update first"),
                           (lambda: one("fd parts", (0, 30)).rows(), "keeps no rows"),
                           (lambda: one("fd parts", (0, 30)).score(reps=10), "reps cannot be used")):
        with pytest.raises(InputError, match=message): wrong()
