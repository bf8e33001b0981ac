"The one loop in several processes and on several machines: whole networks and networks in parts, other numbers of processes, processes that die."
import os
import signal
import socket
from pathlib import Path

import pytest
import torch
from torch import nn

from commands import HUNG, started
from invariant_metrics.core import InputError
from invariant_metrics.models.colorizer import seeded
from invariant_metrics.training.checkpoint import load_weights, read_state
from invariant_metrics.training.loop import Optim, Turn, fit

STEPS = 8


def network() -> nn.Sequential:
    with seeded(0, "network"): return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))


def loss(model, batch): return {"task": 0.1*(model(batch) - 1 - 0.1*torch.randn_like(batch)).square().mean()}


def rows(i: int) -> torch.Tensor: return torch.randn(2, 3, generator=torch.Generator().manual_seed(i))


def train(folder: Path, parts: bool = False, turns: int = 1, batches=rows, precision: str = "fp32", **options) -> None:
    "A run of two batches a step, by one process or two."
    world = int(os.environ.get("WORLD_SIZE", "1"))
    networks = [network() for _ in range(turns)]
    if parts:
        from torch.distributed.fsdp import fully_shard
        for net in networks: fully_shard(net)
    optims = [Optim(lr=1e-2, warmup=2), Optim(lr=1e-3, warmup=2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TQDM_DISABLE", "1")
        fit([Turn(net, loss, optim, f"{k}") for k, (net, optim) in enumerate(zip(networks, optims))], batches, STEPS, folder=folder, save_every=3,
            accumulate=2//world, precision=precision, **options)


def cut(at: int):
    "Batches during whose `at` somebody presses Ctrl-C."
    def batches(i):
        if i == at: signal.raise_signal(signal.SIGINT)
        return rows(i)
    return batches


def cut_run(folder: Path, **options) -> None:
    with pytest.raises(KeyboardInterrupt): train(folder, batches=cut(8), **options)


def same(one: Path, other: Path, atol: float = 1e-6) -> None:
    (tensors, header), (others, about) = (read_state(folder/"checkpoint.safetensors") for folder in (one, other))
    assert header["step"] == about["step"] == STEPS and header["settings"] == about["settings"] and tensors.keys() == others.keys()
    for name in tensors: assert torch.allclose(tensors[name], others[name], atol=atol), name
    assert [path.name for path in other.iterdir()] == ["checkpoint.safetensors"]


def in_two(place: Path) -> None:
    "What each of two processes does."
    train(place/"parts", parts=True)
    train(place/"turns-parts", parts=True, turns=2)
    train(place/"rare-parts", parts=True, look_every=4)
    train(place/"half-parts", parts=True, precision="fp16")
    cut_run(place/"two-one", parts=True)
    cut_run(place/"whole-two-one")
    train(place/"one-two", parts=True)
    train(place/"whole-one-two")
    train(place/"died")


def dies(i: int) -> torch.Tensor:
    "Batches in whose eleventh the machine is lost: its agent, which started this process, and the process."
    if i == 11:
        for process in (os.getppid(), os.getpid()): os.kill(process, signal.SIGKILL)
    return rows(i)


def agent(machine: int, port: int, function, *words) -> None:
    "What torchrun does on one of two machines, with a process on each."
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch
    config = LaunchConfig(2, 2, 1, run_id="machines", rdzv_backend="c10d", rdzv_endpoint=f"127.0.0.1:{port}", local_addr=f"127.0.0.{machine + 1}",
                          max_restarts=0, monitor_interval=0.05, start_method="fork")
    elastic_launch(config, function)(*words)


def on_two_machines(function, *words) -> list[int]:
    "The exit codes of two machines that do a call together, each with a network address of its own."
    port = free_port()
    machines = [started(agent, machine, port, function, *words) for machine in (0, 1)]
    for machine in machines: machine.join(HUNG)
    return [machine.exitcode for machine in machines]


def test_two_machines_equal_one_process_also_where_one_is_lost_or_the_number_changes(tmp_path):
    for name in ("one-two", "whole-one-two"): cut_run(tmp_path/name)
    assert on_two_machines(said, tmp_path, dies) == [1, -signal.SIGKILL]
    assert [*tmp_path.glob("dies-*.txt")] == [tmp_path/"dies-0.txt"] and (tmp_path/"dies-0.txt").read_text().startswith("InputError: another process of this run ended")
    assert read_state(tmp_path/"died"/"checkpoint.safetensors", header_only=True)[1]["step"] == 3
    assert on_two_machines(in_two, tmp_path) == [0, 0]
    assert sorted(path.name for path in (tmp_path/"two-one"/"checkpoint-parts").rglob("*.*")) == [
        "run.json", "shard-00001-model-00001-of-00001.safetensors", "shard-00002-model-00001-of-00001.safetensors"]
    for name in ("two-one", "whole-two-one"): train(tmp_path/name)
    for name, options in {"plain": {}, "turns": {"turns": 2}, "rare": {"look_every": 4}, "half": {"precision": "fp16"}}.items(): train(tmp_path/name, **options)
    for name in ("parts", "two-one", "whole-two-one", "one-two", "whole-one-two", "died"): same(tmp_path/"plain", tmp_path/name)
    for name in ("turns", "rare", "half"): same(tmp_path/name, tmp_path/f"{name}-parts", atol=2e-3 if name == "half" else 1e-6)
    assert load_weights(network(), tmp_path/"parts"/"checkpoint.safetensors", "0")[0].weight.isfinite().all()


def refuses(i: int) -> torch.Tensor:
    if i == 11: raise InputError("batch 11 has no picture")
    return rows(i)


def nan(i: int) -> torch.Tensor: return rows(i)*(float("nan") if i == 11 else 1)


def said(place: Path, batches) -> None:
    "Leave in a file what a process says when it ends."
    try: train(place/batches.__name__.replace("dies", "died"), batches=batches)
    except BaseException as error:
        (place/f"{batches.__name__}-{os.environ['RANK']}.txt").write_text(f"{type(error).__name__}: {error}")
        raise


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize("batches, says", [(refuses, "batch 11 has no picture"), (nan, "training stopped at step 5: 'task' of turn '0' is nan; the last good state is in")])
def test_one_process_fails_and_one_line_is_said(batches, says, tmp_path):
    meet = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{free_port()}"}
    both = [started(said, tmp_path, batches, RANK=f"{rank}", **meet) for rank in (0, 1)]
    for process in both: process.join(HUNG)
    line, other = sorted(path.read_text() for path in tmp_path.iterdir() if path.suffix == ".txt")
    assert line.startswith(f"InputError: {says}") and "\n" not in line and other == "SystemExit: 1"
