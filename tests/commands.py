"""Commands for tests, in this process, which is fast; and calls in processes of their own.

A server that has imported what most of them need, once, forks those processes: they begin at once, are as fresh as
any, can be killed, and torchrun's own agent can start them."""
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pytest

HUNG = 1800 # seconds after which a process hangs, on any machine
READY = ["pytest", "hypothesis", "torch._dynamo", "torch.distributed", "invariant_metrics.scoring.torch_metric", "invariant_metrics.commands.shell", "invariant_metrics.lclip.compress",
         "invariant_metrics.studies.writers", "invariant_metrics.studies.colorizers"] # what the server imports


def _settings(cwd, env) -> dict:
    return {"COLUMNS": "120", "INVARIANT_METRICS_CACHE": str(Path(cwd)/"cache"), "HF_HUB_OFFLINE": "1", **env}


def cli(*words, cwd, **env) -> subprocess.CompletedProcess:
    "What a command prints and returns, run in this process."
    from invariant_metrics.commands.shell import main
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        for name, value in _settings(cwd, env).items(): patch.setenv(name, str(value))
        code = main([str(w) for w in words])
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def _call(function: Callable, words: tuple, env: dict):
    import torch
    os.environ.update(env)
    torch.set_num_threads(1)
    return function(*words)


def started(function: Callable, *words, **env) -> multiprocessing.Process:
    "A call in a process of its own, with one thread; `kill`, `join(HUNG)` and `exitcode` as of any."
    process = multiprocessing.get_context("forkserver").Process(target=_call, args=(function, words, {**os.environ, **env}))
    process.start()
    return process


def elsewhere(function: Callable, *words, **env):
    "What a call returns in a process of its own."
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as pool: return pool.submit(_call, function, words, {**os.environ, **env}).result(HUNG)


def all_ended() -> None:
    "Wait until every process has ended that the server forked, also those whose own parent was killed."
    from invariant_metrics.runs import _children
    begun = time.monotonic()
    while _children(multiprocessing.forkserver._forkserver._forkserver_pid):
        assert time.monotonic() - begun < HUNG
        time.sleep(0.02)


def torchrun(function: Callable, *words) -> list:
    "What the two processes return that torchrun's agent starts for a call, in the order of their ranks."
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch
    config = LaunchConfig(1, 1, 2, run_id="tests", rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.05, start_method="forkserver")
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)} # the agent sets its own
    try: returned = elastic_launch(config, _call)(function, words, dict(os.environ))
    finally:
        for number, handler in before.items(): signal.signal(number, handler)
    return [returned[rank] for rank in sorted(returned)]


@cache
def _validator(): # of jsonschema
    import jsonschema
    from invariant_metrics.files import assets_folder
    described = json.loads((assets_folder()/"schemas"/"output.json").read_text(encoding="utf-8"))
    kind = jsonschema.validators.validator_for(described)
    kind.check_schema(described)
    return kind(described)


def check_output(answer: dict) -> None:
    "Raises jsonschema's error where what a command prints as JSON is not as the package's schema says."
    _validator().validate(answer)
