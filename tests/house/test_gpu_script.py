"The script that measures a GPU, in its dry form: the same code on the CPU with tiny sizes."
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import elsewhere

ROOT = Path(__file__).parents[2]


def run(out: Path, *words: str) -> subprocess.CompletedProcess:
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, str(ROOT/"benchmarks"/"gpu.py"), "--dry", "--out", str(out), *words], env=settings, capture_output=True, text=True, cwd=out)


def said_by(out: Path, *words: str) -> str:
    "What the script prints, its processes included, in a process that has most of its imports already."
    sys.path.insert(0, str(ROOT/"benchmarks"))
    sys.argv = ["gpu.py", "--dry", "--out", str(out), *words]
    from gpu import main
    with open(out/"said.txt", "w+", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
        main()
        sys.stdout.flush()
    return (out/"said.txt").read_text(encoding="utf-8")


def errors(found: dict) -> list: return [(name, row) for name, rows in found["findings"].items() for row in rows if "error" in row]


@pytest.mark.slow
def test_every_finding_runs_and_a_second_run_adds_what_is_missing(tmp_path):
    done = run(tmp_path, "--seconds", "1800")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path/"gpu.json").read_text())
    assert not errors(found)
    assert list(found["findings"]) == ["rates", "published", "aside", "tests", "overflow", "same", "resume", "looks", "step", "stream", "captions", "training", "invariants",
                                       "encoders", "study", "compiled"]
    assert all(rows[-1]["what"] == "done" for rows in found["findings"].values())
    assert found["dry"] and found["about"]["name"] == "no card" and found["about"]["torch"]
    by_name = {row["what"]: row for rows in found["findings"].values() for row in rows}
    assert by_name["fd, moments"]["relative difference"] == 0
    assert all(row["exit_code"] == -9 and row["resumed, largest difference"] == 0 for row in found["findings"]["resume"][:-1])
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.jsonl")}
    (tmp_path/"rates.jsonl").unlink()
    lines = [line for line in elsewhere(said_by, tmp_path, "--only", "rates,overflow").splitlines() if line.startswith(("rates ", "overflow "))]
    assert lines and all(line.startswith("rates ") for line in lines)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.jsonl") if path.name != "rates.jsonl"} == {k: v for k, v in before.items() if k != "rates.jsonl"}


def test_a_name_that_does_not_exist_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [str(ROOT/"benchmarks"), *sys.path])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry", "--out", str(tmp_path), "--only", "speed"])
    from gpu import main
    with pytest.raises(SystemExit) as ended: main()
    assert ended.value.code == 2 and "no finding speed" in capsys.readouterr().err and not [*tmp_path.iterdir()]
