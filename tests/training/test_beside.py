"What runs beside the steps of a training: averaged weights, blocks computed twice, held-out data, the share of waiting."
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from invariant_metrics.core import InputError
from invariant_metrics.models.colorizer import colorizers
from invariant_metrics.models.generators import translators
from invariant_metrics.models.text_networks import Vocabulary
from invariant_metrics.training import loop
from invariant_metrics.training.augmented import AugmentedLoss, color_batches
from invariant_metrics.models.beside import Watch, computed_twice
from invariant_metrics.training.checkpoint import load_weights, read_state
from invariant_metrics.training.loop import Optim, Turn, fit
from invariant_metrics.training.text_training import augmented_text, text_batches

STEPS = 6
WORDS = Vocabulary(("", "", "", "", *"abcdef"))


def batches(i: int) -> dict: return {"x": torch.randn(8, 4, generator=torch.Generator().manual_seed(i))}


def line(model, batch) -> dict: return {"task": (model(batch["x"]) - batch["x"].sum(1, keepdim=True)).square().mean()}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 1)


def numbers(model: nn.Module) -> torch.Tensor: return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_averaged_weights_are_those_by_hand_also_after_a_stop(tmp_path):
    weights, model = [], net()
    def noting(i):
        weights.append(numbers(model).double()) # before step i
        return batches(i)
    fit(Turn(model, line, Optim(0.05, warmup=1)), noting, STEPS)
    weights.append(numbers(model).double())
    wanted = weights[0]
    for t, now in enumerate(weights[1:]):
        share = 1 - min(0.5, (1 + t)/(10 + t))
        wanted = (1 - share)*wanted + share*now
    whole = net()
    log = fit(Turn(whole, line, Optim(0.05, warmup=1)), batches, STEPS, ema=0.5)
    assert torch.allclose(numbers(whole).double(), wanted, atol=1e-6) and not torch.allclose(wanted, weights[-1], atol=1e-3)
    def dark(i):
        if i == 4: raise RuntimeError("dark")
        return batches(i)
    given = dict(folder=tmp_path, save_every=2, ema=0.5)
    with pytest.raises(RuntimeError, match="dark"): fit(Turn(net(), line, Optim(0.05, warmup=1)), dark, STEPS, **given)
    for _ in range(2): # goes on, and is found finished
        again = net()
        assert fit(Turn(again, line, Optim(0.05, warmup=1)), batches, STEPS, **given).equals(log) and torch.equal(numbers(again), numbers(whole))
    assert torch.equal(numbers(load_weights(net(), tmp_path/"checkpoint.safetensors")), numbers(whole))
    assert torch.allclose(read_state(tmp_path/"checkpoint.safetensors")[0]["model/model/weight"].flatten().double(), weights[-1][:4])
    with pytest.raises(InputError, match="ema = 0.5, not None"): fit(Turn(net(), line, Optim(0.05, warmup=1)), batches, STEPS, folder=tmp_path)


def test_averages_stand_still_once_a_run_is_broken(tmp_path):
    def broken(i): return {"x": batches(i)["x"]*(float("nan") if i == 3 else 1.0)}
    found = []
    for look in (1, 6):
        folder = tmp_path/str(look)
        with pytest.raises(InputError, match="step 3"): fit(Turn(net(), line), broken, STEPS, folder=folder, ema=0.5, look_every=look)
        found.append(read_state(folder/"stopped.safetensors")[0])
    assert torch.allclose(found[0]["model/average/weight"], found[1]["model/average/weight"], atol=1e-7)


def colorizing(name: str) -> tuple:
    pictures = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return colorizers[name](), AugmentedLoss(), color_batches(pictures, 2)


def translating() -> tuple:
    texts = torch.tensor([[1, 4, 5, 6, 2], [1, 7, 8, 9, 2], [1, 5, 5, 4, 2], [1, 9, 8, 6, 2]])
    return translators["small"](WORDS, WORDS, seed=0), augmented_text(WORDS), text_batches({"source": texts}, texts, WORDS, 2)


@pytest.mark.parametrize("make", [lambda: colorizing("unet"), lambda: colorizing("ddcolor"), lambda: colorizing("colorformer"), translating],
                         ids=["unet", "ddcolor", "colorformer", "translator with dropout"])
def test_blocks_computed_twice_train_the_same_network(make, one_thread):
    found = []
    for twice in (False, True):
        model, loss, coming = make()
        log = fit(Turn(model, loss), coming, 2, checkpointing=twice)
        found.append((log, model.state_dict()))
    (plain, one), (again, other) = found
    assert plain.equals(again) and all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_block_that_changes_its_own_numbers_is_computed_once():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), nn.Linear(4, 1))
    with pytest.raises(InputError, match="Sequential has no blocks"), computed_twice(model): pass
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_held_out_numbers_are_the_same_in_the_background_and_after_a_stop(tmp_path):
    def measure(model):
        time.sleep(0.002)
        return {"size": float(model.weight.norm()), "training": float(model.training)}
    logs = {}
    for background in (False, True):
        logs[background] = fit(Turn(net(), line), batches, STEPS, watch=Watch(2, measure, background), ema=0.5)
    assert logs[True].equals(logs[False])
    rows = logs[True][logs[True]["turn"] == "validation"]
    assert rows["step"].tolist() == [1, 1, 3, 3, 5, 5] and not rows.loc[rows["term"] == "training", "value"].any()
    model = net()
    fit(Turn(model, line), batches, STEPS, ema=0.5)
    assert rows["value"].iloc[-2] == float(model.weight.detach().norm()) # of the averaged weights
    plain = fit(Turn(net(), line), batches, STEPS, ema=0.5)
    assert logs[True][logs[True]["turn"] == "model"].reset_index(drop=True).equals(plain) # nothing is disturbed
    def dark(i):
        if i == 5: raise RuntimeError("dark")
        return batches(i)
    given = dict(folder=tmp_path, save_every=4, watch=Watch(2, measure, True), ema=0.5)
    with pytest.raises(RuntimeError, match="dark"): fit(Turn(net(), line), dark, STEPS, **given)
    assert fit(Turn(net(), line), batches, STEPS, **given).equals(logs[True])


def test_what_measuring_raises_ends_the_run():
    def wrong(model): raise InputError("no pictures")
    with pytest.raises(InputError, match="no pictures"): fit(Turn(net(), line), batches, STEPS, watch=Watch(2, wrong, True))


def test_the_share_of_waiting_by_a_clock_of_its_own(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    def slow(i):
        clock.now += 1
        return batches(i)
    def loss(model, batch):
        clock.now += 3
        return line(model, batch)
    assert fit(Turn(net(), loss), slow, 5).attrs["waiting"] == 0.25
    assert fit(Turn(net(), loss), slow, 5, accumulate=2).attrs["waiting"] == 0.25
