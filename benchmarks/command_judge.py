"""What a judge by command loses: questions per second of a program by itself, by the package's pipes, and as a metric.

Usage: OMP_NUM_THREADS=1 python benchmarks/command_judge.py [--runs 4]      (writes nbs/results/command_judge.csv)

By itself a program reads a file of questions, with `left` as in batches of 64, and writes a file of answers. Its start is not
counted on either side: of a run on the file, the time of a run on its first batch is taken away; by the package, the program has
answered a trial question before the clock runs. The ways take turns, the fastest run of each counts, since other work on the machine
only slows down; `processor` is the program's own processor time by the package beside that by itself, which other work hardly moves.
The cheap judges count letters: one as simple programs do, and one that writes the answers of a batch at once. The network is the
program `minilm.py` of the notebook on judges by command. `required` is the share of a program's own speed that is asked for."""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from invariant_metrics.encoders.text_encoder import text_place
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.command_judge import CommandJudge, command_metric
from invariant_metrics.metrics.metric import extract

ROOT = Path(__file__).parents[1]
TABLE = ROOT/"nbs"/"results"/"command_judge.csv"
BATCH, REQUIRED = 64, 0.9
LINES = """
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps({"id": question["id"], "score": len(question["prediction"])}))
"""
BATCHES = """
import json, sys
answers = []
for line in sys.stdin:
    question = json.loads(line)
    answers.append(json.dumps({"id": question["id"], "score": len(question["prediction"])}))
    if question["left"]: continue
    sys.stdout.write("\\n".join(answers) + "\\n")
    sys.stdout.flush()
    answers = []
"""


def minilm_program() -> str: # as the notebook writes it
    cells = json.loads((ROOT/"nbs"/"metrics"/"310_command_judge.ipynb").read_text(encoding="utf-8"))["cells"]
    cell, = [source for c in cells if (source := "".join(c["source"])).startswith('Path("minilm.py")')]
    return cell.partition('"""')[2].partition('"""')[0]


def questions(n: int) -> list[dict]:
    words = "a red boat on the sea with two people and an old dog in the evening light".split()
    return [{"prediction": f"{i} " + " ".join(words[i % 5:5 + i % 11]), "references": [" ".join(words[i % 3:9]), " ".join(words[::2])]} for i in range(n)]


def write_lines(asked: list[dict], path: Path) -> None:
    last = len(asked) - 1
    path.write_text("".join(json.dumps({"id": str(i), "left": min(BATCH - 1 - i % BATCH, last - i), **q}) + "\n" for i, q in enumerate(asked)))


def seconds_alone(command: list[str], file: Path) -> tuple[float, float]: # of the wall, of the processor
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with open(file) as inlet, open(os.devnull, "w") as outlet: subprocess.run(command, stdin=inlet, stdout=outlet, stderr=outlet, check=True)
    took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def processor_of(pid: int) -> float: # seconds, until now
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12]))/os.sysconf("SC_CLK_TCK")


def measure(name: str, command: list[str], n: int, runs: int, place: Path) -> dict:
    asked = questions(n + BATCH)
    write_lines(asked, place/"all.jsonl")
    write_lines(asked[:BATCH], place/"first.jsonl")
    judge = CommandJudge(command, batch=BATCH)
    judge(asked[:BATCH])
    metric = command_metric(" ".join(command), batch=BATCH)
    pred, target = [q["prediction"] for q in asked[BATCH:]], [q["references"] for q in asked[BATCH:]]
    alone, first, piped, whole = [], [], [], []
    for _ in range(runs):
        first.append(seconds_alone(command, place/"first.jsonl"))
        alone.append(seconds_alone(command, place/"all.jsonl"))
        used, start = processor_of(judge._running[0].process.pid), time.perf_counter()
        found = judge(asked[BATCH:])
        piped.append((time.perf_counter() - start, processor_of(judge._running[0].process.pid) - used))
        start = time.perf_counter()
        rows = extract([metric], pred, target)[metric.name]
        whole.append(time.perf_counter() - start)
        assert (rows.pred.numpy() == found.values).all()
    judge.close()
    own, by_pipe = (min(a[0] for a in alone) - min(f[0] for f in first)), min(p[0] for p in piped)
    own_cpu, pipe_cpu = (min(a[1] for a in alone) - min(f[1] for f in first)), min(p[1] for p in piped)
    return {"judge": name, "questions": n, "alone": round(n/own), "by pipes": round(n/by_pipe), "as a metric": round(n/min(whole)),
            "found": round(own/by_pipe, 3), "required": REQUIRED, "ok": own/by_pipe >= REQUIRED, "metric": round(own/min(whole), 3), "processor": round(pipe_cpu/own_cpu, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--scale", type=float, default=1., help="of the numbers of questions")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, program in (("lines", LINES), ("batches", BATCHES), ("minilm", minilm_program())): (place/f"{name}.py").write_text(program)
        rows = [measure(name, [sys.executable, str(place/f"{file}.py"), *more], round(given.scale*n), given.runs, place)
                for name, file, more, n in (("letters, line by line", "lines", [], 100_000), ("letters, in batches", "batches", [], 100_000),
                                            ("MiniLM's cosine, in batches", "minilm", [str(text_place("minilm").path)], 300))]
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    with atomic_write(TABLE) as path: table.to_csv(path, index=False)


if __name__ == "__main__": main()
