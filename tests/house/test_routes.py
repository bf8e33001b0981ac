"The table of routes names the code it was measured with: comments and docstrings do not make it older, statements do."
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT/"benchmarks"))
from all import COLUMNS, SCRIPTS, STAMP, bare


def test_code_is_what_runs(tmp_path):
    def code(text: str) -> str:
        path = tmp_path/f"{len(text)}.py"
        path.write_text(text)
        return bare(path)
    first = code('"A file."\ndef double(x): # of a number\n    "Twice."\n    return 2*x\n')
    assert first == code('"Another text."\n\n\ndef double(x):\n    """Two times it."""\n    return 2 * x # here\n')
    assert first != code('"A file."\ndef double(x):\n    "Twice."\n    return x*x\n')


def test_every_script_has_rows_of_one_run():
    table = pd.read_csv(ROOT/"nbs"/"results"/"routes.csv")
    assert [*table] == [*COLUMNS, *STAMP] and [*table["script"].unique()] == [*SCRIPTS]
    assert (table.groupby("script")[STAMP].nunique(dropna=False) == 1).all(axis=None)
    scripts = {name: pd.read_csv(ROOT/"nbs"/"results"/f"{name}.csv").dropna(subset=["required"]) for name in SCRIPTS}
    for name, rows in table.groupby("script"): assert rows["found"].tolist() == [float(f"{v:.4g}") for v in scripts[name]["found"]], name
