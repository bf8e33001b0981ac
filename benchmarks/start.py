"""How long commands take to begin: processor seconds of whole processes, beside sacrebleu's own command.

Usage: python benchmarks/start.py [--runs 5]      (writes nbs/results/start.csv)

Each command runs in a process of its own, in a folder with four lines of text and four small pictures; the commands take turns,
and the first round, which compiles, is not counted. Seconds are user and system time of the process, so that other work on the
machine counts little; set OMP_NUM_THREADS=1. `required` is what each command is allowed."""
import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from invariant_metrics.files import atomic_write

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"start.csv"
OURS = [sys.executable, "-m", "invariant_metrics"]
COMMANDS = { # what is typed -> the words, and the seconds that it may take
    "invariant-metrics --help": ([*OURS, "--help"], 0.4),
    "invariant-metrics score bleu --bogus": ([*OURS, "score", "bleu", "--bogus"], 0.4),
    "invariant-metrics metrics": ([*OURS, "metrics"], 1.0),
    "invariant-metrics invariants": ([*OURS, "invariants"], 1.0),
    "invariant-metrics score bleu --pred a.txt --target a.txt": ([*OURS, "score", "bleu", "--pred", "a.txt", "--target", "a.txt"], 1.5),
    "invariant-metrics score psnr --pred a/ --target a/": ([*OURS, "score", "psnr", "--pred", "a/", "--target", "a/"], 3.5),
    "sacrebleu a.txt -i a.txt": ([sys.executable, "-m", "sacrebleu", "a.txt", "-i", "a.txt"], None),
    "python -c 'import torch'": ([sys.executable, "-c", "import torch"], None),
}


def processor_seconds(words: list[str], place: Path) -> float:
    "User and system time of one process and of those that it waits for."
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = {**os.environ, "INVARIANT_METRICS_CACHE": str(place/"cache"), "INVARIANT_METRICS_QUIET": "1"}
    own.pop("PYTHONDONTWRITEBYTECODE", None) # installed packages are compiled
    done = subprocess.run(words, cwd=place, env=own, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2): raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def prepare(place: Path) -> None:
    "Four lines of text and four pictures."
    (place/"a.txt").write_text("".join(f"a dog runs on the grass {i}\n" for i in range(4)))
    (place/"a").mkdir()
    for i in range(4):
        pixels = np.random.default_rng(i).integers(0, 256, (48, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place/"a"/f"{i}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    place = Path(tempfile.mkdtemp())
    prepare(place)
    seconds = {name: [] for name in COMMANDS}
    for _ in range(runs + 1):
        for name, (words, _) in COMMANDS.items(): seconds[name].append(processor_seconds(words, place))
    shutil.rmtree(place)
    rows = []
    for name, (_, required) in COMMANDS.items():
        middle = statistics.median(seconds[name][1:])
        ok = "" if required is None else "yes" if middle <= required else "NO"
        rows.append({"work": name, "quantity": "processor seconds", "runs": runs, "found": round(middle, 2), "required": required, "ok": ok})
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    with atomic_write(TABLE) as tmp: table.to_csv(tmp, index=False)


if __name__ == "__main__": main()
