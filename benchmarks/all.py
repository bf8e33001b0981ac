"""Every route that has a target, in one table: what is required, what was found, and with which versions.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/all.py [--again] [--only SCRIPT …] [--table]
Runs the scripts below one after the other, each in a process of its own with one thread, and writes nbs/results/routes.csv from the
tables they store. A script whose source, package and libraries are the same as at its last run is not run again, so after Ctrl-C the
same command goes on; --again runs it all the same. --table runs nothing and gathers what is stored."""
import argparse
import json
import os
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd

from invariant_metrics.encoders.cache import cache_folder
from invariant_metrics.files import atomic_write, digest, file_sha256

HERE = Path(__file__).parent
RESULTS = HERE.parent/"nbs"/"results"
SCRIPTS = {"start": (), "scale": (), "text": (), "agreement": (), "distances": (), "bertscore": (), "ranking": ()} # the shortest first; options of each
LIBRARIES = ("torch", "numpy", "scipy", "torchmetrics", "torch-fidelity", "sacrebleu", "pycocoevalcap", "bert-score", "prdc", "scikit-learn")
COLUMNS = ["script", "work", "quantity", "required", "found", "ok"]


def versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in LIBRARIES:
        try: found[name] = version(name)
        except PackageNotFoundError: found[name] = "absent"
    return found


def state_of(script: str) -> str:
    "What shapes the script's numbers: its own source, the package, the libraries, its options."
    package = {p.relative_to(HERE.parent).as_posix(): file_sha256(p) for p in sorted((HERE.parent/"invariant_metrics").rglob("*.py"))}
    return digest([file_sha256(HERE/f"{script}.py"), package, versions(), SCRIPTS[script]])


def gather() -> pd.DataFrame:
    "The rows of all stored tables that have a target."
    parts = []
    for script in SCRIPTS:
        path = RESULTS/f"{script}.csv"
        if not path.is_file(): continue
        table = pd.read_csv(path)
        if "required" not in table: continue
        asked = table.dropna(subset=["required"])
        if "work" not in asked: asked = asked.assign(work=asked.iloc[:, 0])
        parts.append(asked.assign(script=script).reindex(columns=COLUMNS))
    return pd.concat(parts, ignore_index=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="also what has not changed since its last run")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=list(SCRIPTS), metavar="SCRIPT", help=", ".join(SCRIPTS))
    parser.add_argument("--table", action="store_true", help="run nothing, gather what is stored")
    options = parser.parse_args()
    absent = [] if options.table else [name for name, number in versions().items() if number == "absent"]
    if absent: parser.error(f"not installed: {', '.join(absent)}; every peer is timed beside its route: pip install {' '.join(absent)}")
    notes = cache_folder()/"benchmarks.json"
    done = json.loads(notes.read_text()) if notes.is_file() else {}
    for script in () if options.table else options.only:
        state = state_of(script)
        if done.get(script, {}).get("state") == state and not options.again:
            print(f"{script}: as at its last run ({done[script]['seconds']:.0f} s)", flush=True)
            continue
        print(f"{script} …", flush=True)
        began = time.perf_counter()
        subprocess.run([sys.executable, HERE/f"{script}.py", *SCRIPTS[script]], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        done[script] = {"state": state, "seconds": time.perf_counter() - began}
        notes.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(notes) as path: path.write_text(json.dumps(done, indent=1))
    table = gather().assign(versions=" ".join(f"{name}-{number}" for name, number in versions().items()))
    with atomic_write(RESULTS/"routes.csv") as path: table.to_csv(path, index=False, float_format="%.4g")
    print("\n" + table.drop(columns="versions").to_string(index=False, float_format=lambda v: f"{v:.3g}"))
    missed = (table["ok"] == "NO").sum()
    print(f"\n{len(table)} targets, {missed} missed; seconds: " + ", ".join(f"{s} {done[s]['seconds']:.0f}" for s in SCRIPTS if s in done))


if __name__ == "__main__": main()
