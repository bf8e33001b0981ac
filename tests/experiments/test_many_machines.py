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

from commands import HUNG, cli, started
from test_study import Doubling, equal
from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.experiments import work
from invariant_metrics.metrics.gaussian import GaussianStats
from invariant_metrics.studies.search import train_systems
from invariant_metrics.studies.tasks import register_task, study_tasks

ROOT = Path(__file__).parents[2]
NOTEBOOK = json.loads((ROOT/"nbs"/"tutorials"/"120_many_machines.ipynb").read_text(encoding="utf-8"))
PROSE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "markdown"]
CALLS = """invariant-metrics() { printf '%s\\n' "$CUDA_VISIBLE_DEVICES" "$@" | python -c 'import json, sys; sys.stdout.write(json.dumps(sys.stdin.read().splitlines()) + chr(10))'; }
"""


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


def calls(script: str, folder: Path, **env) -> list[list[str]]:
    "The calls of the command that a script makes, each after the GPUs that it may see."
    done = subprocess.run(["bash", "-c", CALLS + script], cwd=folder, env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **env}, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_studies_of_an_array_and_of_eight_gpus_are_the_same_command(tmp_path):
    (_, *one), = calls(block("--array=1-16 --gpus=1\ninvariant-metrics study"), tmp_path, SLURM_ARRAY_TASK_ID="3")
    eight = calls(block("for gpu in"), tmp_path)
    assert sorted(eight) == [[str(gpu), *one] for gpu in range(8)]
    said = cli(*one[:-1], tmp_path/"run", cwd=tmp_path)
    assert torch.cuda.is_available() or said.returncode == 2 and "cuda" in said.stderr and not (tmp_path/"run").exists(), said.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    "A folder of pictures, and one beside it."
    home = tmp_path_factory.mktemp("pictures")
    draw = torch.Generator().manual_seed(0)
    for name in ("made", "truth"):
        (home/name).mkdir()
        for k, rgb in enumerate(torch.randint(256, (60, 16, 16, 3), generator=draw, dtype=torch.uint8)): Image.fromarray(rgb.numpy()).save(home/name/f"{k:02d}.png")
    return home


def here(words: list[str]) -> list[str]:
    "The same words for this machine: no GPU, no downloaded network."
    return " ".join(words).replace("--encoder inception --device cuda", "--encoder embedded").split()


def test_statistics_by_an_array_by_torchrun_and_merged(made, tmp_path):
    assert cli("stats", made/"truth", "--out", "truth.safetensors", cwd=tmp_path).returncode == 0
    shutil.copytree(made/"made", tmp_path/"made")
    script = block("--shard").replace("/16", "/3")
    for k in (1, 2, 3):
        (_, *words), = calls(script, tmp_path, SLURM_ARRAY_TASK_ID=f"{k}")
        assert cli(*here(words), cwd=tmp_path).returncode == 0
    (_, *words), = calls(block("score fd"), tmp_path)
    def merged() -> dict:
        done = cli(*words, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["result"]["scores"]["--stats"]["fd"]
    by_array = merged()
    shutil.rmtree(tmp_path/"parts")
    words = shlex.split(block("-m invariant_metrics").split("-m invariant_metrics ")[1])
    for rank in (0, 1): assert cli(*here(words), cwd=tmp_path, RANK=rank, WORLD_SIZE=2).returncode == 0
    (_, *words), = calls(block("score fd"), tmp_path)
    by_torchrun = merged()
    assert by_array["n"] == by_torchrun["n"] == 60 and by_array["value"] == pytest.approx(by_torchrun["value"], rel=1e-6)


RAY = """
import ray
ray.init(num_cpus=2, include_dashboard=False)
{lines}
made.save("made.safetensors")
"""


def test_ray_data_deals_out_blocks(made, tmp_path):
    pytest.importorskip("ray.data", reason="pip install 'ray[data]'")
    lines = block("ray.data", "python")
    for ours, theirs in {"inception": "embedded", "made/": str(made/"made"), "4096": "25"}.items():
        assert ours in lines
        lines = lines.replace(ours, theirs)
    (tmp_path/"parts").mkdir()
    (tmp_path/"program.py").write_text(RAY.format(lines=lines))
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stderr[-2000:]
    found, whole = GaussianStats.load(tmp_path/"made.safetensors"), GaussianStats.of(made/"made", get_encoder("embedded"))
    assert found.n == whole.n == 60 and torch.allclose(found.cov, whole.cov, rtol=1e-9)


@pytest.mark.slow
def test_the_launcher_of_accelerate_starts_the_same_script(tmp_path):
    pytest.importorskip("accelerate", reason="pip install accelerate")
    prose, = (text for text in PROSE if "accelerate launch" in text)
    printed = re.search(r"`accelerate (launch [^`]+)`", prose)[1]
    assert "--num_processes 8" in printed
    lines = block("# train.py", "python")
    assert "batches, 200, " in lines
    (tmp_path/"train.py").write_text(lines.replace("batches, 200, ", "batches, 25, "))
    said = []
    for words in (["-m", "accelerate.commands.accelerate_cli", *printed.replace("8", "2").split()], ["train.py"]):
        shutil.rmtree(tmp_path/"run", ignore_errors=True)
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env={**os.environ, "TQDM_DISABLE": "1"}, capture_output=True, text=True, timeout=HUNG)
        assert done.returncode == 0, done.stderr[-2000:]
        said.append(done.stdout.splitlines()[-1])
    assert said[0] == said[1].replace("1 processes", "2 processes") and said[0].startswith("2 processes, last loss ")


# two network namespaces with a cable between them: what begins here ends with the process that holds the first one
NODES = """
set -e
ip link set lo up
unshare -n sleep {patience} &
other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
ip link add here type veth peer name there
ip link set there netns $other
ip addr add 10.77.0.1/24 dev here
ip link set here up
nsenter -t $other -n sh -c "ip link set lo up; ip addr add 10.77.0.2/24 dev there; ip link set there up"
export PATH={place}/bin:$PATH OTHER=$other SLURM_NNODES=2 SLURM_JOB_NODELIST=nodes
code=0
sh {place}/job.sh || code=$?
kill $other
exit $code
"""
SRUN = """#!/bin/sh
PET_LOCAL_ADDR=10.77.0.2 PET_RDZV_CONF=is_host=0 GLOO_SOCKET_IFNAME=there nsenter -t $OTHER -n "$@" & second=$!
PET_LOCAL_ADDR=10.77.0.1 PET_RDZV_CONF=is_host=1 GLOO_SOCKET_IFNAME=here "$@" & first=$!
code=0
wait $first || code=1
wait $second || code=1
exit $code
""" # no name is known between the two, so it is said which one is the host
HOSTS = "#!/bin/sh\nprintf '10.77.0.1\\n10.77.0.2\\n'\n"
KILLED = """def batches(i):
    if i == 1003 and os.environ["KILLED"]: os.kill(os.getpid(), 9) # by the last process, in step 62
    return"""


def on_nodes(place: Path, script: str, **env) -> subprocess.CompletedProcess:
    (place/"job.sh").write_text(script)
    program = NODES.format(place=place, patience=HUNG)
    return subprocess.run(["unshare", "-n", "bash", "-c", program], cwd=place, env={**os.environ, "TQDM_DISABLE": "1", **env}, capture_output=True, text=True, timeout=HUNG)


@pytest.mark.slow
def test_a_job_of_two_nodes_trains_is_killed_resumes_and_equals_one_process(tmp_path):
    if not shutil.which("ip") or subprocess.run(["unshare", "-n", "ip", "link", "add", "one", "type", "veth", "peer", "name", "two"], capture_output=True).returncode:
        pytest.skip("no network namespaces may be made here")
    (tmp_path/"bin").mkdir()
    for name, text in {"srun": SRUN, "scontrol": HOSTS}.items():
        (tmp_path/"bin"/name).write_text(text)
        (tmp_path/"bin"/name).chmod(0o755)
    lines = block("# train.py", "python")
    assert "def batches(i): return" in lines
    (tmp_path/"train.py").write_text("import os\n" + lines.replace("def batches(i): return", KILLED))
    job = block("#SBATCH --nodes=2").replace("--nproc-per-node 8", "--nproc-per-node 2")
    killed = on_nodes(tmp_path, job, KILLED="1")
    assert killed.returncode and "another process of this run ended without a word" in killed.stderr, killed.stderr[-3000:]
    assert [path.name for path in (tmp_path/"run"/"checkpoint-parts").iterdir()] == ["60"]
    done = on_nodes(tmp_path, job, KILLED="")
    assert done.returncode == 0, done.stderr[-3000:]
    (tmp_path/"run").rename(tmp_path/"nodes")
    alone = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env={**os.environ, "TQDM_DISABLE": "1", "KILLED": ""}, capture_output=True, text=True, timeout=HUNG)
    assert done.stdout.replace("4 processes", "1 processes") == alone.stdout != "", (done.stdout, alone.stdout, alone.stderr[-2000:])
    nodes, one = (load_file(tmp_path/name/"checkpoint.safetensors") for name in ("nodes", "run"))
    for name in one: assert torch.allclose(nodes[name], one[name], atol=1e-5), name


@pytest.mark.slow
def test_one_worker_and_eight_write_the_same_page(tmp_path, monkeypatch):
    from invariant_metrics.probes.images import COLOR_SIZES, ProbeSize
    from invariant_metrics.studies.colorizers import _COLORIZATION, StudySize
    monkeypatch.setitem(COLOR_SIZES, "quick", ProbeSize(4, 4, 20))
    monkeypatch.setitem(_COLORIZATION.sizes, "quick", StudySize(side=32, train=48, validation=8, test=12, pretrain=8, steps=4, batch=4, reps=20))
    words = "study colorization --metrics psnr --invariants segmentation --alphas 0.3 --seeds 2 --scale quick --workers".split()
    pages = []
    for workers in (1, 8):
        done = cli(*words, workers, "--out", f"run-{workers}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        pages.append((tmp_path/f"run-{workers}"/"index.html").read_text(encoding="utf-8").replace(f"run-{workers}", "run"))
    one, eight = (re.sub(r"\d+(\.\d+)? (s|minutes?|hours?|[kMG]B)\b|--workers \d", "", page).split() for page in pages)
    assert one == eight and len(one) > 1000
