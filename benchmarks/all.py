"""Every route that has a target, in one table: what is required, what was found, of which code and with which versions.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/all.py [--again] [--only SCRIPT …] [--table]
Runs the scripts below one after the other, each in a process of its own with one thread, and writes nbs/results/routes.csv from the
tables they store, after each. A script whose code and libraries are those of its rows is not run, so after Ctrl-C the same command goes
on; --again runs it all the same. Its code is its own source and that of all modules of the package it imports, or they import, without
comments and docstrings. --table runs nothing and gathers what is stored."""
import argparse
import ast
import os
import subprocess
import sys
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import grimp
import pandas as pd

from invariant_metrics.files import atomic_write, digest

HERE = Path(__file__).parent
RESULTS = HERE.parent/"nbs"/"results"
SCRIPTS = ("start", "text", "agreement", "distances", "bertscore", "ranking") # the shortest first
LIBRARIES = ("torch", "numpy", "scipy", "torchmetrics", "torch-fidelity", "sacrebleu", "pycocoevalcap", "bert-score", "prdc", "scikit-learn")
COLUMNS = ["script", "work", "quantity", "required", "found", "ok"]
STAMP = ["seconds", "code", "versions"] # of a script's last run, on each of its rows


def versions() -> str:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in LIBRARIES:
        try: found[name] = version(name)
        except PackageNotFoundError: found[name] = "absent"
    return " ".join(f"{name}-{number}" for name, number in found.items())


@cache
def bare(path: Path) -> str:
    "The code of a file without its comments and docstrings."
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant): body[0].value.value = ""
    return ast.unparse(tree)


@cache
def package_graph() -> grimp.ImportGraph: return grimp.build_graph("invariant_metrics", cache_dir=None)


def place_of(module: str) -> Path:
    path = HERE.parent.joinpath(*module.split("."))
    return path/"__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def code_of(script: str) -> str: # 16 hexadecimal digits
    "What shapes the script's numbers, but for libraries; one that starts commands depends on the whole package."
    lines = ast.walk(ast.parse((HERE/f"{script}.py").read_text(encoding="utf-8")))
    imported = {node.module for node in lines if isinstance(node, ast.ImportFrom) and node.module}
    graph = package_graph()
    begun = imported & graph.modules - {"invariant_metrics.files", "invariant_metrics.core"} # all scripts write files
    needed = {*begun, *(deeper for module in begun for deeper in graph.find_upstream_modules(module))} or graph.modules
    helpers = {name for name in imported if (HERE/f"{name}.py").is_file()}
    return digest([bare(HERE/f"{name}.py") for name in sorted({script, *helpers})] + [bare(place_of(module)) for module in sorted(needed)])


def stored() -> pd.DataFrame:
    "The table as it is."
    path = RESULTS/"routes.csv"
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=[*COLUMNS, *STAMP])


def stamps() -> dict[str, dict]: # script -> seconds, code and versions of its last run
    "What the table says about each script."
    return stored().groupby("script")[STAMP].first().to_dict("index")


def gather(found: dict[str, dict]) -> pd.DataFrame:
    "The rows of all stored tables that have a target, with the stamp of their script."
    parts = []
    for script, stamp in found.items():
        table = pd.read_csv(RESULTS/f"{script}.csv")
        asked = table.dropna(subset=["required"])
        if "work" not in asked: asked = asked.assign(work=asked.iloc[:, 0])
        parts.append(asked.assign(script=script, **stamp).reindex(columns=[*COLUMNS, *STAMP]))
    return pd.concat(parts, ignore_index=True)


def write(found: dict[str, dict]) -> pd.DataFrame:
    table = gather({script: found[script] for script in SCRIPTS if script in found})
    with atomic_write(RESULTS/"routes.csv") as path: table.to_csv(path, index=False, float_format="%.4g")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", action="store_true", help="also what has not changed since its last run")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=list(SCRIPTS), metavar="SCRIPT", help=", ".join(SCRIPTS))
    parser.add_argument("--table", action="store_true", help="run nothing, gather what is stored")
    options = parser.parse_args()
    today = versions()
    absent = [] if options.table else [name.removesuffix("-absent") for name in today.split() if name.endswith("-absent")]
    if absent: parser.error(f"not installed: {', '.join(absent)}; every peer is timed beside its route: pip install {' '.join(absent)}")
    found = stamps()
    for script in () if options.table else options.only:
        last = found.get(script, {})
        if (last.get("code"), last.get("versions")) == (code_of(script), today) and not options.again:
            print(f"{script}: as at its last run ({last['seconds']:.0f} s)", flush=True)
            continue
        print(f"{script} …", flush=True)
        began = time.perf_counter()
        subprocess.run([sys.executable, HERE/f"{script}.py"], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        found[script] = {"seconds": time.perf_counter() - began, "code": code_of(script), "versions": today}
        write(found)
    table = write(found)
    print("\n" + table.drop(columns=STAMP).to_string(index=False, float_format=lambda v: f"{v:.3g}"))
    missed, older = (table["ok"] == "NO").sum(), [script for script in found if found[script]["code"] != code_of(script)]
    print(f"\n{len(table)} targets, {missed} missed; seconds: " + ", ".join(f"{s} {found[s]['seconds']:.0f}" for s in found))
    if older: print(f"measured on older code: {', '.join(older)}")


if __name__ == "__main__": main()
