"Many processes and machines at one folder: studies share pieces, one that dies gives its piece back, and the recipes of the tutorial are run as printed."
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from commands import HUNG, cli, started, torchrun
from test_study import Doubling, equal
from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.experiments import work
from invariant_metrics.metrics.gaussian import GaussianStats
from invariant_metrics.studies.search import train_systems
from invariant_metrics.studies.tasks import register_task, study_tasks

ROOT = Path(__file__).parents[2]
PROSE = ["".join(cell["source"]) for cell in json.loads((ROOT/"nbs"/"tutorials"/"120_many_machines.ipynb").read_text(encoding="utf-8"))["cells"]
         if cell["cell_type"] == "markdown"] if (ROOT/"nbs"/"tutorials"/"120_many_machines.ipynb").exists() else []


def block(word: str, kind: str = "sh") -> str:
    "The block of the tutorial with this word in it."
    found = [text for prose in PROSE for text in re.findall(rf"```\s*{kind}\n(.*?)```", prose, re.S) if word in text]
    assert len(found) == 1, (word, len(found))
    return found[0]


def take_part(folder: Path, workers: int = 0, dies: str = "") -> None:
    "A machine that works at a study, notes each unit that it begins, and may die in one of them."
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_tasks, "entries", {name: study_tasks[name] for name in study_tasks.names()})
        patch.setattr(work, "_PAUSE", 0.1)
        real = Doubling.training
        def noted(task, invariants, alpha, seed):
            with open(folder/"begun.txt", "a") as file: file.write(f"{os.getpid()} {invariants} {alpha} {seed}\n")
            if dies and invariants and alpha == 5:
                (folder/dies).touch()
                time.sleep(0.5)  # while others work
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.02)
            return real(task, invariants, alpha, seed)
        if not workers: patch.setattr(Doubling, "training", noted)
        register_task(Doubling)
        train_systems(folder, {"task": "doubling"}, workers=workers)


def begun(folder: Path) -> pd.DataFrame:
    return pd.Series((folder/"begun.txt").read_text().splitlines()).str.split(" ", n=1, expand=True).set_axis(["process", "unit"], axis=1)


def test_one_worker_eight_workers_and_machines_of_which_one_dies_have_the_same_numbers(tmp_path):
    for name in ("one", "eight", "machines"): (tmp_path/name).mkdir()
    take_part(tmp_path/"one")
    take_part(tmp_path/"eight", workers=8)
    machines = [started(take_part, tmp_path/"machines", 0, "died")]
    while not (tmp_path/"machines"/"died").exists() and machines[0].is_alive(): time.sleep(0.01)
    machines += [started(take_part, tmp_path/"machines") for _ in range(3)]
    for machine in machines: machine.join(HUNG)
    assert [machine.exitcode for machine in machines] == [-signal.SIGKILL, 0, 0, 0]
    for name in ("eight", "machines"): equal(tmp_path/"one", tmp_path/name)
    alone, shared = begun(tmp_path/"one"), begun(tmp_path/"machines")
    lost = shared["unit"][shared["process"] == str(machines[0].pid)].iloc[-1] # begun by the one that died, and once more
    assert sorted(shared["unit"]) == sorted([*alone["unit"], lost]) and shared["process"].nunique() >= 3


def test_processes_that_train_together_are_refused_a_study(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="start the same command several times"): train_systems(tmp_path/"run", {}, workers=0)
    assert not (tmp_path/"run").exists()
