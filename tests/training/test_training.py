"Training: killed runs end as undisturbed ones, bad losses stop with a name, many small steps equal one big one, turns keep to themselves."
import os
import signal
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from commands import HUNG, started, torchrun
from invariant_metrics.core import InputError
from invariant_metrics.color import join_lab
from invariant_metrics.invariants.invariant import Invariant, get_invariant
from invariant_metrics.models.colorizer import UNetColorizer, seeded
from invariant_metrics.training.augmented import AugmentedLoss, TargetCache, color_batches
from invariant_metrics.training.batches import batch_indices
from invariant_metrics.training import loop
from invariant_metrics.training.checkpoint import load_weights, read_state, save_state
from invariant_metrics.training.loop import Optim, Turn, fit

STEPS = 24


def pictures(n=40, size=16):
    "Random Lab pictures, as RGB: what they show does not matter here."
    draw = torch.Generator().manual_seed(0)
    L, ab = 20 + 60 * torch.rand(n, 1, size, size, generator=draw), 40 * torch.rand(n, 2, 1, 1, generator=draw) - 20
    return join_lab(L, ab.expand(n, 2, size, size))


def duel():
    "A generator and a critic with an invariant, dropout-like noise included: everything a checkpoint has to carry."
    generator = UNetColorizer(8)
    with seeded(0, "critic"): critic = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 1))
    def scores(L, ab): return critic(torch.cat([L/50 - 1, ab/110], 1)).float()
    exact = AugmentedLoss({"edges": (get_invariant("edges"), 0.5)}, others={"critic": (lambda ab, batch: -scores(batch["L"], ab).mean(), 0.05)})
    def noisy(model, batch):
        return exact(lambda L: model(L) + torch.randn(len(L), 2, 1, 1), batch)
    def of_critic(model, batch):
        with torch.no_grad(): made = generator(batch["L"])
        return {"real": (1 - scores(batch["L"], batch["ab"])).relu().mean(), "made": (1 + scores(batch["L"], made)).relu().mean()}
    return [Turn(generator, noisy, Optim(lr=1e-3), "generator"), Turn(critic, of_critic, Optim(lr=1e-3, betas=(0.5, 0.99), weight_decay=0.0), "critic")]


def flat(*models): return torch.cat([t.detach().flatten().double() for m in models for t in m.state_dict().values()])


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    yield
    torch.set_num_threads(before)


def killed_run(folder: Path, precision: str) -> None:
    "A run that is killed in its step 17."
    batches = color_batches(pictures(), 8)
    def kill(i):
        if i == 17: os.kill(os.getpid(), signal.SIGKILL)
        return batches(i)
    fit(duel(), kill, STEPS, folder=folder, save_every=5, precision=precision)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_run_killed_by_signal_9_ends_bit_for_bit_as_the_undisturbed_one(tmp_path, precision):
    whole = duel()
    log = fit(whole, color_batches(pictures(), 8), STEPS, precision=precision)
    process = started(killed_run, tmp_path/"run", precision)
    process.join(HUNG)
    assert process.exitcode == -signal.SIGKILL
    assert read_state(tmp_path/"run"/"checkpoint.safetensors")[1]["step"] == 15
    resumed = duel()
    log_resumed = fit(resumed, color_batches(pictures(), 8), STEPS, folder=tmp_path/"run", save_every=5, precision=precision)
    for a, b in zip(whole, resumed): assert torch.equal(flat(a.model), flat(b.model))
    assert log.equals(log_resumed)
    assert [p.name for p in (tmp_path/"run").iterdir()] == ["checkpoint.safetensors"]
    assert (log["value"][log["term"] == "skipped"].sum() > 0) == (precision == "fp16")  # a scale that has moved is restored


def test_ctrl_c_finishes_the_step_and_leaves_a_state_that_goes_on(tmp_path):
    whole, cut, batches = duel(), duel(), color_batches(pictures(), 8)
    fit(whole, batches, STEPS)
    def press(i):
        if i == 9: signal.raise_signal(signal.SIGINT)
        return batches(i)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt): fit(cut, press, STEPS, folder=tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    assert read_state(tmp_path/"checkpoint.safetensors")[1]["step"] == 10
    resumed = duel()
    fit(resumed, batches, STEPS, folder=tmp_path)
    for a, b in zip(whole, resumed): assert torch.equal(flat(a.model), flat(b.model))


def test_ctrl_c_while_the_last_state_is_written_is_not_lost(tmp_path, monkeypatch):
    def pressed_meanwhile(*words):
        save_state(*words)
        signal.raise_signal(signal.SIGINT)
    monkeypatch.setattr(loop, "save_state", pressed_meanwhile)
    with pytest.raises(KeyboardInterrupt): fit(duel(), color_batches(pictures(), 8), STEPS, folder=tmp_path)
    assert read_state(tmp_path/"checkpoint.safetensors")[1]["step"] == STEPS


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_term_that_is_not_finite_stops_with_step_and_name_and_keeps_the_checkpoint(tmp_path, bad):
    batches = color_batches(pictures(), 8)
    def loss(model, batch):
        return AugmentedLoss()(model, batch) | {"shaky": (0.0, torch.tensor(bad if batch["number"] == 7 else 1.0))}
    net = UNetColorizer(8)
    with pytest.raises(InputError, match=r"step 7: 'shaky' of turn 'model' is (nan|inf).*last good state") as error:
        fit(Turn(net, loss), lambda i: batches(i) | {"number": i}, STEPS, folder=tmp_path, save_every=4)
    assert "\n" not in str(error.value)
    assert read_state(tmp_path/"checkpoint.safetensors")[1]["step"] == 4
    assert flat(load_weights(UNetColorizer(8), tmp_path/"checkpoint.safetensors")).isfinite().all() and flat(net).isfinite().all()


def test_a_gradient_that_is_not_finite_stops_before_anything_moves():
    net = nn.Linear(1, 1)
    before = flat(net)
    def loss(model, batch): return {"task": (model(batch) * 0).sqrt().sum()}  # the root has no slope at 0
    with pytest.raises(InputError, match="step 0: 'gradient' of turn 'model' is nan; no checkpoint"):
        fit(Turn(net, loss), lambda i: torch.ones(2, 1), 3)
    assert torch.equal(flat(net), before)


def test_four_small_batches_are_one_big_one():
    def run(size, accumulate):
        net = UNetColorizer(8)
        fit(Turn(net, AugmentedLoss(), Optim(lr=1e-3)), color_batches(pictures(), size), 10, accumulate=accumulate)
        return flat(net)
    big, small, other = run(16, 1), run(4, 4), run(4, 1)
    assert torch.allclose(big, small, atol=2e-5) and not torch.allclose(big, other, atol=2e-5)


def distributed_run(out: str) -> None:
    "What each process of the next test runs: as many batches a step as two processes take together."
    world = int(os.environ.get("WORLD_SIZE", "1"))
    net = UNetColorizer(8, seed=int(os.environ.get("RANK", "0")))  # other weights in each: the first one's have to win
    log = fit(Turn(net, AugmentedLoss()), color_batches(pictures(), 4), 8, folder=out, accumulate=2 // world)
    assert len(log) == 8 * 2
    half = UNetColorizer(8)
    fit(Turn(half, AugmentedLoss()), color_batches(pictures(), 4), 8, folder=f"{out}-half", accumulate=2 // world, precision="fp16")
    rare = UNetColorizer(8)
    fit(Turn(rare, AugmentedLoss()), color_batches(pictures(), 4), 8, folder=f"{out}-rare", accumulate=2 // world, look_every=5)


def test_two_processes_equal_one(tmp_path):
    torchrun(distributed_run, str(tmp_path/"two"))
    distributed_run(str(tmp_path/"one"))
    (two, header), (one, alone) = (read_state(tmp_path/name/"checkpoint.safetensors") for name in ("two", "one"))
    assert header["settings"] == alone["settings"] and header["step"] == 8
    for name in one: assert torch.allclose(one[name], two[name], atol=1e-5), name
    (two, header), (one, alone) = (read_state(tmp_path/f"{name}-half"/"checkpoint.safetensors") for name in ("two", "one"))
    assert header["settings"] == alone["settings"] and header["scalers"] == alone["scalers"] and header["scalers"]["model"]["_growth_tracker"] == 8
    for name in one: assert torch.allclose(one[name], two[name], atol=2e-3), name  # gradients have three digits
    two, one = (read_state(tmp_path/f"{name}-rare"/"checkpoint.safetensors")[0] for name in ("two", "one"))
    for name in one: assert torch.allclose(one[name], two[name], atol=1e-5), name


@pytest.mark.parametrize("still", ["generator", "critic"])
def test_a_turn_moves_only_its_own_parameters(still):
    turns = duel()
    start = {t.name: flat(t.model) for t in turns}
    for t in turns:
        if t.name == still: t.optim = Optim(lr=0.0)
    fit(turns, color_batches(pictures(), 8), 3)
    for t in turns:
        assert torch.equal(start[t.name], flat(t.model)) == (t.name == still)
        assert all(p.requires_grad for p in t.model.parameters())


def test_alpha_zero_is_plain_training_bit_for_bit():
    nets = []
    for invariants in ({}, {"edges": (get_invariant("edges"), 0.0)}):
        nets.append(UNetColorizer(8))
        log = fit(Turn(nets[-1], AugmentedLoss(invariants)), color_batches(pictures(), 8), 10)
    assert torch.equal(flat(nets[0]), flat(nets[1]))
    assert (log.loc[log["term"] == "edges", "value"] > 0).all()


@pytest.mark.parametrize("change, says", [
    (dict(optim=Optim(lr=5e-4)), "model.lr = 0.002, not 0.0005"), (dict(steps=30), "steps = 10, not 30"),
    (dict(alpha=2.0), "alpha edges = 1.0, not 2.0"),
    (dict(width=12), "model.parameters"), (dict(seed=1), "seed = 0, not 1"), (dict(accumulate=2), "batches per step = 1, not 2")])
def test_other_settings_are_refused_in_one_line(tmp_path, change, says):
    def run(steps=10, width=8, alpha=1.0, optim=Optim(), **options):
        loss = AugmentedLoss({"edges": (get_invariant("edges"), alpha)})
        turn = Turn(UNetColorizer(width), loss, optim)
        return fit(turn, color_batches(pictures(), 8), steps, folder=tmp_path, settings=loss.settings, **options)
    run()
    with pytest.raises(InputError, match=says) as error: run(**change)
    assert "\n" not in str(error.value)
    run(**change, resume=False)  # asked for, it starts over


def test_a_damaged_checkpoint_is_refused_and_another_network_does_not_fit(tmp_path):
    fit(Turn(nn.Linear(2, 1), lambda m, b: {"task": m(b).square().mean()}), lambda i: torch.ones(1, 2), 2, folder=tmp_path)
    path = tmp_path/"checkpoint.safetensors"
    with pytest.raises(InputError, match="do not fit this Linear"): load_weights(nn.Linear(3, 1), path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="not a readable checkpoint"): load_weights(nn.Linear(2, 1), path)


def test_a_full_disk_leaves_the_earlier_checkpoint(tmp_path, monkeypatch):
    import safetensors.torch
    real, calls = safetensors.torch.save_file, []
    def full(*args, **kwargs):
        calls.append(1)
        if len(calls) > 1: raise OSError(28, "No space left on device")
        real(*args, **kwargs)
    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(InputError, match="No space left"):
        fit(Turn(UNetColorizer(8), AugmentedLoss()), color_batches(pictures(), 8), 10, folder=tmp_path, save_every=4)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.safetensors"]
    assert read_state(tmp_path/"checkpoint.safetensors")[1]["step"] == 4


def test_batches_in_advance_are_the_same_batches():
    def run(workers):
        net = UNetColorizer(8)
        fit(Turn(net, AugmentedLoss()), color_batches(pictures(), 8), 10, workers=workers)
        return flat(net)
    assert torch.equal(run(0), run(3))


def test_bf16_trains_and_keeps_float_weights():
    net = UNetColorizer(8)
    log = fit(Turn(net, AugmentedLoss({"edges": (get_invariant("edges"), 1.0)})), color_batches(pictures(), 8), 30, precision="bf16")
    task = log[log["term"] == "task"]["value"]
    assert task.iloc[-5:].mean() < task.iloc[:5].mean() and next(net.parameters()).dtype == torch.float32


# float16 and its scale

def small_net():
    with seeded(0, "small"): return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))


def squares(model, batch): return {"task": (model(batch) - batch.sum(1, keepdim=True)).square().mean()}


def gentle(model, batch): return {"task": squares(model, batch)["task"]/100} # never overflows here


def rows_of(i: int) -> torch.Tensor: return torch.randn(8, 3, generator=torch.Generator().manual_seed(i))


def values(log, term: str) -> list[float]: return log["value"][log["term"] == term].tolist()


def test_a_step_in_float16_is_the_one_by_hand():
    "At scale 1 every bit; at 1024 the same up to numbers too small for float16, which are kept there."
    mine, theirs = small_net(), small_net()
    optim = Optim(lr=1e-2, warmup=1, clip=0.5, schedule="constant")
    adamw = [torch.optim.AdamW(net.parameters(), 1e-2, optim.betas, weight_decay=optim.weight_decay) for net in (mine, theirs)]
    plan, scaler = loop.FitPlan(5, precision="fp16"), GradScaler("cpu", init_scale=1.)
    for i in range(5):
        found = loop.take_turn(Turn(mine, squares, optim), mine, adamw[0], {i: rows_of(i)}, i, plan, None, scaler)
        adamw[1].zero_grad()
        with torch.autocast("cpu", torch.float16): loss = squares(theirs, rows_of(i))["task"]
        loss.backward()
        length = nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        adamw[1].step()
        assert found.named() == {"task": loss.item(), "gradient": length.item(), "loss scale": 1, "skipped": 0}
    assert torch.equal(flat(mine), flat(theirs))
    large, steady = small_net(), torch.optim.AdamW
    large_adamw = steady(large.parameters(), 1e-2, optim.betas, weight_decay=optim.weight_decay)
    scaler = GradScaler("cpu", init_scale=1024.)
    for i in range(5): loop.take_turn(Turn(large, squares, optim), large, large_adamw, {i: rows_of(i)}, i, plan, None, scaler)
    assert torch.allclose(flat(large), flat(mine), atol=1e-4)


def two_turns() -> list[Turn]:
    return [Turn(small_net(), squares, Optim(lr=1e-2), "one"), Turn(small_net(), gentle, Optim(lr=1e-3), "two")]


def test_looking_rarely_is_the_same_run(tmp_path):
    "A step that is looked at later is the same step, also where Ctrl-C comes between two looks."
    def run(every, **more):
        turns = two_turns()
        return fit(turns, more.pop("batches", rows_of), 25, look_every=every, **more), [flat(t.model) for t in turns]
    log, weights = run(10)
    other, same = run(7)
    assert log.equals(other) and all(torch.equal(a, b) for a, b in zip(weights, same))
    plain, near = run(1) # AdamW without its fused kernel
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(weights, near))
    assert (log["value"] - plain["value"]).abs().max() < 1e-5 and log.drop(columns="value").equals(plain.drop(columns="value"))
    def pressed_at_13(i):
        if i == 13: signal.raise_signal(signal.SIGINT)
        return rows_of(i)
    with pytest.raises(KeyboardInterrupt): run(10, batches=pressed_at_13, folder=tmp_path)
    assert read_state(tmp_path/"checkpoint.safetensors")[1]["step"] == 14
    again, resumed = run(10, folder=tmp_path)
    assert log.equals(again) and all(torch.equal(a, b) for a, b in zip(weights, resumed))


def test_a_later_turn_that_breaks_between_looks_leaves_the_checkpoint_only(tmp_path):
    "Its first turn has moved; both stand still from there on, and no state of that step is kept."
    def breaks(model, batch): return {"task": squares(model, batch)["task"] / (0 if batch is broken else 1)}
    broken = rows_of(5)
    turns = two_turns()
    turns[1].loss = breaks
    with pytest.raises(InputError, match="step 5: 'task' of turn 'two' is inf; the last good state is in .*checkpoint"):
        fit(turns, lambda i: broken if i == 5 else rows_of(i), 20, look_every=10, save_every=4, folder=tmp_path)
    assert read_state(tmp_path/"checkpoint.safetensors")[1]["step"] == 4 and not (tmp_path/"stopped.safetensors").exists()


def test_float16_is_the_published_loop_and_an_overflow_skips_its_step(monkeypatch):
    "Against the loop that PyTorch documents; the gradient of step 3 is made infinite, and after 4 good steps the scale doubles."
    monkeypatch.setattr(loop, "GradScaler", lambda *words, **more: GradScaler(*words, **more, init_scale=256., growth_interval=4))
    now = []
    def broken(net):
        net[0].weight.register_hook(lambda g: torch.full_like(g, torch.inf) if now[-1] == 3 else g)
        return net
    def batches(i):
        now.append(i)
        return rows_of(i)
    before = {}
    def noted(model, batch):
        before[now[-1]] = flat(model)
        return squares(model, batch)
    mine, theirs = broken(small_net()), broken(small_net())
    optim = Optim(lr=1e-2, clip=1.0)
    log = fit(Turn(mine, noted, optim), batches, 10, precision="fp16")
    adamw = torch.optim.AdamW(theirs.parameters(), 1e-2, optim.betas, weight_decay=optim.weight_decay)
    scaler, scales = GradScaler("cpu", init_scale=256., growth_interval=4), []
    for i in range(10):
        batch = batches(i)
        adamw.zero_grad()
        with torch.autocast("cpu", torch.float16): loss = squares(theirs, batch)["task"]
        scaler.scale(loss).backward()
        scaler.unscale_(adamw)
        nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        adamw.param_groups[0]["lr"] = loop._learning_rate(optim, i, 10)
        scales.append(scaler.get_scale())
        scaler.step(adamw)
        scaler.update()
    assert torch.equal(flat(mine), flat(theirs))
    assert values(log, "loss scale") == scales == [256.]*4 + [128.]*4 + [256.]*2
    assert values(log, "skipped") == [0.]*3 + [1.] + [0.]*6 and log["weight"][log["term"] == "skipped"].eq(0).all()
    assert torch.equal(before[3], before[4]) and not torch.equal(before[2], before[3])
    assert values(log, "gradient")[3] == float("inf")


def test_each_turn_has_its_own_scale():
    one, two = small_net(), small_net()
    two[0].weight.register_hook(lambda g: g*torch.inf)  # at any scale
    turns = [Turn(one, gentle, name="one"), Turn(two, gentle, name="two")]
    log = fit(turns, rows_of, 5, precision="fp16")
    assert [sum(values(log[log["turn"] == name], "skipped")) for name in ("one", "two")] == [0, 5]
    assert torch.equal(flat(two), flat(small_net())) and not torch.equal(flat(one), flat(two))
    with pytest.raises(InputError, match="step 16: 'gradient' of turn 'two' is (nan|inf)"):  # no overflow: the scale has come down to 1
        fit([Turn(small_net(), gentle, name="one"), turns[1]], rows_of, 20, precision="fp16")


def test_a_term_that_is_no_number_stops_in_float16_too(tmp_path):
    def loss(model, batch): return {"task": gentle(model, batch)["task"]*(float("nan") if batch[0, 0] == 7 else 1)}
    def batches(i): return torch.full((2, 3), 7.) if i == 4 else rows_of(i)
    with pytest.raises(InputError, match="step 4: 'task' of turn 'model' is nan.*stopped.safetensors"):
        fit(Turn(small_net(), loss), batches, 6, folder=tmp_path, save_every=2, precision="fp16")
    assert read_state(tmp_path/"stopped.safetensors")[1]["scalers"]["model"]["_growth_tracker"] == 4
    with pytest.raises(InputError, match="bf16 = False, not True"): fit(Turn(small_net(), loss), batches, 6, folder=tmp_path, precision="bf16")
    with pytest.raises(InputError, match="fp16 = True, not None"): fit(Turn(small_net(), loss), batches, 6, folder=tmp_path)


def test_training_outside_the_main_thread_and_without_touching_global_chance():
    state, done = torch.get_rng_state(), []
    worker = threading.Thread(target=lambda: done.append(fit(duel(), color_batches(pictures(), 8), 2)))
    worker.start(); worker.join()
    assert len(done) == 1 and torch.equal(torch.get_rng_state(), state)


def test_batch_indices_cover_every_item_once_an_epoch():
    items = batch_indices(10, 4, seed=3)
    tape = torch.cat([items(i) for i in range(5)])
    assert sorted(tape[:10].tolist()) == sorted(tape[10:].tolist()) == list(range(10)) and not torch.equal(tape[:10], tape[10:])
    assert torch.equal(batch_indices(10, 4, seed=3)(4), items(4)) and not torch.equal(batch_indices(10, 4, seed=4)(4), items(4))
    assert batch_indices(3, 8)(0).shape == (8,)


class Counted(Invariant):
    looked = 0
    def forward(self, rgb): self.looked += len(rgb); return rgb.mean((2, 3))
    def distance(self, prediction, target): return (prediction - target).abs().mean(1)


@pytest.mark.parametrize("kept", [0, 1, 25, 40])
def test_cached_targets_are_bounded_and_equal(kept):
    rgb, g = pictures(), Counted("counted")
    cache = TargetCache(g, rgb, limit=kept * 3 * 2 / 1e6 + 1e-9)
    assert cache.kept == kept and cache.values.numel() == kept * 3
    index = torch.tensor([39, 0, 24, 25, 24])
    assert torch.allclose(cache[index], rgb[index].mean((2, 3)), atol=1e-3) and cache[index].dtype == torch.float32


def test_frozen_targets_are_computed_once_for_a_whole_run():
    rgb, g = pictures(), Counted("counted")
    batches = color_batches(rgb, 8, caches={"counted": TargetCache(g, rgb)})
    before = g.looked
    fit(Turn(UNetColorizer(8), AugmentedLoss({"counted": (g, 1.0)})), batches, 10)
    assert g.looked - before == 10 * 8  # the predictions alone


@pytest.mark.parametrize("size", [(8, 8), (9, 15), (33, 17), (1, 1)])
def test_colorizers_take_any_size(size):
    with seeded(0, "lightness"): L = 100 * torch.rand(2, 1, *size)
    net = UNetColorizer(8)
    nn.init.ones_(net.coarse.weight)
    assert net(L).shape == (2, 2, *size) and net.colorize(L).shape == (2, 3, *size)
    assert torch.allclose(net(L)[:1], net(L[:1]), atol=1e-3) and net(L).abs().sum() > 0


def test_compiled_networks_train_the_same_parameters(monkeypatch):
    made, real = [], torch.compile  # traced for real, run by the backend that needs no C++ compiler
    monkeypatch.setattr(torch, "compile", lambda model: made.append(model) or real(model, backend="eager"))
    nets = [UNetColorizer(8), UNetColorizer(8)]
    for net, compile in zip(nets, (True, False)): fit(Turn(net, AugmentedLoss()), color_batches(pictures(), 8), 3, compile=compile)
    assert made == [nets[0]] and torch.allclose(flat(nets[0]), flat(nets[1]), atol=1e-6)
