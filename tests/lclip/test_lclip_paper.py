"The notebook on L-CLIP's paper: what it prints may be run, what was typed from the paper is consistent, and it survives tables that come later."
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from test_printed_commands import PRINTED

ROOT = Path(__file__).parents[2]
CELLS = json.loads((ROOT/"nbs"/"papers"/"40_lclip.ipynb").read_text(encoding="utf-8"))["cells"]


def test_commands_are_those_that_are_run_as_printed():
    "README's and the help's are run by their own test; a benchmark is a file whose help names the options."
    text = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
    lines = [line.split("  #")[0].strip() for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines()]
    assert len(lines) >= 2
    for line in lines:
        if not line.startswith("python "): assert line in PRINTED, line
        else:
            path, *options = line.split()[1:]
            assert (ROOT/path).is_file() and all(f'"{option}"' in (ROOT/path).read_text(encoding="utf-8") for option in options), line


def test_the_typed_tables_agree_with_themselves():
    paper = pd.read_csv(ROOT/"nbs"/"results"/"lclip_paper.csv", dtype={"system": str}).fillna("")
    held = paper.set_index(["table", "system", "references", "metric"])["value"]
    assert held.index.is_unique and len(held) == 265
    for references in ("with", "without"): # means of Table IV are of two columns, in the third digit
        part = paper[(paper["table"] == "IV") & (paper["references"] == references)].pivot(index="system", columns="metric", values="value")
        assert (part[["1 reference", "4 references"]].mean(axis=1) - part["mean"]).abs().max() < .011
    pascal = paper[paper["table"] == "III"].assign(row=lambda f: f["system"] + f["references"]).pivot(index="row", columns="metric", values="value")
    assert (pascal[["HC", "HI", "HM", "MM"]].mean(axis=1) - pascal["mean"]).abs().max() < .4
    for alpha, system in (("0", "CIDEr (BU)"), ("1", "L-CLIPScore (BU)")):
        for metric in ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr", "SPICE", "L-CLIPScore"): assert held["VI", alpha, "", metric] == held["V", system, "", metric]
    assert held["II", "L-CLIP", "with", "Flickr8k-Expert"] == 53.8 and held["III", "WP&SR", "with", "mean"] == 83.8 and held["VI", "0.7", "", "CIDEr"] == 116.7


def drawn_tables(folder: Path) -> None:
    "Tables in the form of the two studies, with drawn numbers."
    from invariant_metrics.lclip.compression_study import CLIP_MEASURES, _CONTRASTS, STUDENT_ROWS, TEACHER
    draw = np.random.default_rng(0)
    def numbers(value): return {"value": value, "ci_low": value - .1, "ci_high": value + .1, "seed_low": value - .05, "seed_high": value + .05, "seeds": 2}
    systems = [TEACHER, *(row.name for row in STUDENT_ROWS)]
    tables = {"compression_summary": [{"system": s, "measure": m, **numbers(draw.random())} for s in systems for m in CLIP_MEASURES],
              "compression_differences": [{"system": a, "against": b, "measure": m, **numbers(draw.normal(0, .2)), "verdict": draw.choice(["better", "worse", "not shown"])}
                                          for a, b in _CONTRASTS for m in CLIP_MEASURES],
              "compression_sizes": [{"system": s, "parameters": 10, "megabytes": .1, "ms_128": 5., "ms_1": .1} for s in (TEACHER, "WP", "WP+MD")]}
    rewards = ["likelihood", "cider-d", "l-clipscore", "refl-clipscore", "mix-refl", "mix-0.3", "mix-0.5", "mix-0.7", "twin-l-clipscore", "clipscore"]
    metrics = ["cider-d", "bleu-4", "l-clipscore", "repetition", "words", "true-all", "true-relations", "kept-relations", "false-claims"]
    tables["rewards_results"] = [{"task": "captioning", "system": s, "seed": k, "metric": m, "value": draw.random()} for s in rewards for k in (0, 1) for m in metrics]
    tables["rewards_answers"] = [{"question": q, "system": s, "against": against, "metric": m, "base": .1, "n": 9, **{k: v for k, v in numbers(draw.normal()).items() if k != "seeds"},
                                  "difference": draw.normal()} for q, against in (("collapse", "likelihood"), ("relations", "cider-d")) for s in rewards[1:] for m in metrics]
    tables["rewards_cross"] = [{"trained_on": s, "judge": j, "gain": draw.normal(), "ci_low": 0., "ci_high": 1., "seed_low": 0., "seed_high": 1.}
                               for s in rewards[1:] for j in ("student", "twin", "teacher", "exact")]
    folder.mkdir(parents=True)
    for name, rows in tables.items(): pd.DataFrame(rows).to_csv(folder/f"{name}.csv", index=False)


@pytest.mark.parametrize("there", [True, False])
def test_it_reads_whatever_the_studies_store(there, tmp_path, monkeypatch):
    "Every cell, with tables that hold other numbers than today's and without any."
    import matplotlib
    matplotlib.use("agg")
    results = tmp_path/"results"
    results.mkdir()
    for path in (ROOT/"nbs"/"results").glob("lclip_*.csv"): os.symlink(path, results/path.name)
    if there: drawn_tables(results/"lclip")
    (tmp_path/"papers").mkdir()
    monkeypatch.chdir(tmp_path/"papers")
    names: dict = {}
    for cell in CELLS:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "nbdev_export" not in source: exec(compile(source, "papers/40_lclip", "exec"), names)
    assert (names["waiting"] == []) == there
    assert len(names["lines"]) >= (5 if there else 2) and not any("nan" in line for line in names["lines"])
