"The first seconds of a command: Ctrl-C ends in one line, and nothing is imported that the command does not use."
import configparser
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import HUNG

ROOT = Path(__file__).parents[2]


def entry() -> str:
    "The script that pip makes of the entry point."
    config = configparser.ConfigParser(delimiters=["="])
    config.read(ROOT/"settings.ini", encoding="utf-8")
    module, name = config["DEFAULT"]["console_scripts"].partition("=")[2].split(":")
    return f"import sys; sys.path.remove(''); from {module} import {name}; sys.exit({name}())"


@pytest.mark.parametrize("moment, metric", [("numpy", "bleu"), ("rich.table", "bleu"), ("torch", "psnr")])
def test_ctrl_c_while_libraries_are_imported_is_one_line(moment, metric, tmp_path):
    (tmp_path/"a.txt").write_text("a dog\n"*12)
    words = [sys.executable, "-X", "importtime", "-c", entry(), "score", metric, "--pred", "a.txt", "--target", "a.txt"]
    def hear_ctrl_c() -> None: signal.signal(signal.SIGINT, signal.SIG_DFL) # what runs in the background would inherit deafness
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=hear_ctrl_c, env={**os.environ, "INVARIANT_METRICS_CACHE": str(tmp_path)})
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("import time:") and line.split("|")[-1].strip() == moment: break
    else: pytest.fail(f"{moment} was not imported: {''.join(said[-5:])}")
    os.killpg(process.pid, signal.SIGINT) # as a terminal does
    out, rest = process.communicate(timeout=HUNG)
    lines = [line for line in [*said, *rest.splitlines()] if not line.startswith("import time:")]
    assert process.returncode == 130 and out == "" and len(lines) == 1 and lines[0].startswith("interrupted"), (process.returncode, lines)


RUNS = """
import json, os, sys
from contextlib import redirect_stderr, redirect_stdout
from invariant_metrics.commands.shell import main
found = {}
for line in json.loads(sys.argv[1]):
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere): code = main(line.split())
    found[line] = [code, sorted(sys.modules)]
print(json.dumps(found))
"""
HEAVY = {"numpy", "pandas", "pyarrow", "scipy", "torch", "huggingface_hub.file_download", "matplotlib", "jinja2"}
COUNTED = "bleu,bleu-4,rouge-l,rouge-2-f,cider-d,chrf,ter,distinct-2,diversity,repetition" # texts are counted, no network looks at them
NEVER = {"transformers", "diffusers", "open_clip", "torch_fidelity", "torchmetrics", "torchvision", "sklearn", "scipy.stats", "matplotlib", "seaborn", "networkx", "optuna", "nltk", "datasets"}


def test_a_command_imports_what_it_uses(tmp_path):
    "Commands one after the other in a new process, each with the modules that are there when it ends."
    (tmp_path/"a.txt").write_text("a dog\n"*12)
    (tmp_path/"b.txt").write_text("a brown dog\n"*12)
    for i in range(2):
        (tmp_path/"a").mkdir(exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (24, 24, 3), dtype=np.uint8)).save(tmp_path/"a"/f"{i}.png")
    texts = ["score bleu --pred a.txt --target a.txt", f"score {COUNTED} --pred a.txt --target b.txt"]
    lines = ["--help", "score bleu --bogus", "score --help", "metrics", "invariants --json", *texts, "score psnr,fd --pred a/ --target a/"]
    own = {**os.environ, "INVARIANT_METRICS_CACHE": str(tmp_path), "HF_HOME": str(tmp_path/"hub")}
    done = subprocess.run([sys.executable, "-c", RUNS, json.dumps(lines)], cwd=tmp_path, env=own, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {line: code for line, (code, _) in found.items()} == {line: 2*("bogus" in line) for line in lines}
    for line in lines[:5]: assert not HEAVY & set(found[line][1]), line
    for line in lines[5:]: assert not NEVER & set(found[line][1]), line
    for line in texts: assert not {"torch", "pandas", "PIL.PngImagePlugin"} & set(found[line][1]), line


def test_metrics_of_counts_are_the_same_from_arrays_and_tensors():
    import torch
    from invariant_metrics.metrics.metric import extract, get_metric
    pred, target = ["a dog runs", "", "the cat", "a"], [["a dog ran", "the dog runs"], ["a cat"], ["the cat"], ["b"]]
    for metric in map(get_metric, COUNTED.split(",")):
        rows, arrays = (extract([metric], pred, target, tensors=kind)[metric.name] for kind in (True, False))
        assert torch.is_tensor(rows.pred) and isinstance(arrays.pred, np.ndarray) and np.array_equal(rows.pred, arrays.pred)
        np.testing.assert_allclose(metric.values(rows.pred), metric.values(arrays.pred), rtol=1e-14)
        weights = np.random.default_rng(0).integers(0, 4, (5, 4)) + .5
        np.testing.assert_allclose(metric.replicates(rows, weights), metric.replicates(arrays, weights), rtol=1e-14)
        assert metric.statistic(rows) == pytest.approx(metric.statistic(arrays), rel=1e-14)
        influences = [metric.estimate_rows(kind).pred for kind in (rows, arrays)] # by automatic differentiation, by a complex step
        assert isinstance(influences[1], np.ndarray)
        np.testing.assert_allclose(influences[0], influences[1], rtol=1e-12, atol=1e-12)


def test_the_index_says_what_the_registries_say(monkeypatch):
    from invariant_metrics.commands import score_commands as score
    from invariant_metrics.invariants.invariant import invariant_cards, invariants
    from invariant_metrics.metrics.metric import metric_cards, metric_homes, metrics
    present = score._weights_present()
    assert json.loads(score._index_path().read_text())["homes"] == metric_homes(), "run write_index of invariant_metrics.commands.score_commands in a new process"
    for kind, registry, cards in (("metrics", metrics, metric_cards()), ("invariants", invariants, invariant_cards())):
        def ours(row): return str(getattr(registry.entries[row["name"]], "__module__", "invariant_metrics.")).startswith("invariant_metrics.")
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, f"invariant_metrics.{kind}.{kind[:-1]}") # as in a new process
            stored = score._every_card(kind, present)
        assert sorted(stored, key=str) == sorted(filter(ours, cards), key=str), "run write_index of invariant_metrics.commands.score_commands in a new process"
