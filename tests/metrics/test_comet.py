"COMET by a process of its own: its numbers come over unchanged, and every way to fail is one line."
import math
import os
import sys
import time

import pytest
import torch

from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.comet import _PYTHON_VARIABLE, _REQUIREMENTS, CometProcess, _comet_scores
from invariant_metrics.metrics.comet import environment_recipe

STAND_IN = '''
import os, sys, time
print("printed while importing")
class Prediction:
    def __init__(self, scores): self.scores = scores
class Model:
    def __init__(self, way): self.way = way
    def predict(self, data, batch_size, gpus, progress_bar, devices=None):
        print("not JSON", flush=True)
        assert not progress_bar and gpus == (devices is not None) and os.environ["HF_HUB_OFFLINE"] == "1"
        if self.way == "raise": raise RuntimeError("the network\\nbroke down")
        if self.way == "exit": sys.stderr.write("Segmentation fault\\n"); os._exit(139)
        if self.way == "slow": time.sleep(60)
        scores = [len(d["src"]) + 100*len(d["mt"]) + 10000*len(d["ref"]) + 0.1 for d in data]
        return Prediction(scores[:-1] if self.way == "short" else scores + [1.] if self.way == "long" else ["x"]*len(data) if self.way == "words" else scores)
def load_from_checkpoint(path, local_files_only):
    assert local_files_only
    return Model(open(path).read())
'''


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    "A folder that looks like an environment with COMET in it, and an interpreter that uses it."
    home = tmp_path_factory.mktemp("comet")
    (home/"site"/"comet").mkdir(parents=True)
    (home/"site"/"comet"/"__init__.py").write_text(STAND_IN)
    for name in ("unbabel_comet-9.1", "torch-9.2", "transformers-9.3"):
        package, _, version = name.partition("-")
        (home/"site"/f"{name}.dist-info").mkdir()
        (home/"site"/f"{name}.dist-info"/"METADATA").write_text(f"Name: {package}\nVersion: {version}\n")
    script(home/"python", f'PYTHONPATH="{home}/site" exec "{sys.executable}" "$@"')
    for way in ("fine", "raise", "exit", "slow", "short", "long", "words"): (home/f"{way}.ckpt").write_text(way)
    return home


def script(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def opened(home, way, **options): return CometProcess.open(str(home/"python"), str(home/f"{way}.ckpt"), **options)


def expected(s, t, r): return len(s) + 100*len(t) + 10000*len(r) + 0.1


def refused(call, said):
    with pytest.raises(InputError, match=said) as error: call()
    assert "\n" not in str(error.value)


# --- what comes over

def test_scores_come_over_unchanged_and_in_order(home):
    triples = [("s"*i, "t"*(7*i % 11), "rüß"*(i % 3)) for i in range(700)] + [("", "", "")]*2
    assert opened(home, "fine")(triples).tolist() == [expected(*t) for t in triples]  # more than one portion, repeats, empty texts


def test_the_process_says_what_it_is(home):
    from hashlib import sha256
    assert opened(home, "fine").describe() == {"weights": sha256(b"fine").hexdigest()[:12], "comet": "9.1", "torch": "9.2", "transformers": "9.3"}


def test_a_folder_holds_its_checkpoint_where_comet_puts_it(home, tmp_path):
    (tmp_path/"checkpoints").mkdir()
    (tmp_path/"checkpoints"/"model.ckpt").write_text("fine")
    assert CometProcess.open(str(home/"python"), str(tmp_path)).describe() == opened(home, "fine").describe()


def test_the_device_goes_over(home):
    refused(lambda: opened(home, "fine", device="cuda")([("a", "b", "c")]), "AssertionError")  # the stand-in wants a number beside it
    assert len(opened(home, "fine", device="cuda:1")([("a", "b", "c")])) == 1


def test_this_sides_path_is_not_handed_on(home, monkeypatch, tmp_path):
    (tmp_path/"comet.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert len(opened(home, "fine")([("a", "b", "c")])) == 1


def test_registered(home, monkeypatch):
    monkeypatch.setenv(_PYTHON_VARIABLE, str(home/"python"))
    metric = get_metric("comet", weights=str(home/"fine.ckpt"))
    source, pred, target = ["ab", "c"], ["x", "yy"], [["one", "three"], ["two"]]
    rows = extract([metric], pred, target, source)["comet"]
    values = [max(expected("ab", "x", r) for r in target[0]), expected("c", "yy", "two")]
    assert rows.pred.tolist() == values and math.isclose(metric.statistic(rows), sum(values)/2)
    parts = dict(metric.signature.items)
    assert (parts["comet"], parts["torch"], parts["references"]) == ("9.1", "9.2", "max") and len(parts["weights"]) == 12
    assert metric.card["source"] == "texts" and "unverified" in metric.card["measures"]
    assert get_metric("comet", weights=str(home/"short.ckpt")).phi_key != metric.phi_key
    refused(lambda: extract([metric], pred, target), "needs the texts")


def test_mean_and_max_over_references():
    scorer = lambda triples: torch.tensor([float(len(r)) for _, _, r in triples], dtype=torch.float64)
    assert _comet_scores(["a", "b"], [["x", "xxx"], "xx"], ["s", "s"], scorer).tolist() == [3, 2]
    assert _comet_scores(["a", "b"], [["x", "xxx"], "xx"], ["s", "s"], scorer, "mean").tolist() == [2, 2]


# --- every way to fail

@pytest.mark.parametrize("way, said", [("raise", "RuntimeError: the network"), ("exit", "ended with code 139: Segmentation fault"), ("short", "gave 1 scores for 2"),
                                       ("long", "gave 3 scores for 2"), ("words", "ValueError: could not convert"), ("none", "fetch it there as environment_recipe")])
def test_failures_over_there(home, way, said):
    refused(lambda: opened(home, way)([("a", "b", "c"), ("d", "e", "f")]), said)


def test_no_end_in_time(home):
    start = time.monotonic()
    refused(lambda: opened(home, "slow", timeout=2)([("a", "b", "c")]), "within 2 s")
    assert time.monotonic() - start < 20


def test_a_description_that_leaves_something_out(tmp_path):
    python = script(tmp_path/"python", 'echo \'{"sha256": "0"}\'; cat > /dev/null')
    refused(lambda: CometProcess.open(python, "x").describe(), "did not say its 'unbabel-comet'")


def test_no_interpreter(monkeypatch, tmp_path):
    monkeypatch.delenv(_PYTHON_VARIABLE, raising=False)
    refused(lambda: get_metric("comet"), "environment of its own.*recipe.*python=")
    refused(lambda: get_metric("comet", python=str(tmp_path/"none")), "cannot start COMET's interpreter")
    (tmp_path/"data").write_text("not a program")
    refused(lambda: get_metric("comet", python=str(tmp_path/"data")), "cannot start COMET's interpreter")


def test_the_recipe_pins_what_was_found_to_work():
    assert all(r in environment_recipe("env") for r in _REQUIREMENTS) and environment_recipe("env").startswith("python3.11 -m venv env\n")
    assert f"export {_PYTHON_VARIABLE}=" in environment_recipe() and "setuptools<81" in _REQUIREMENTS


@pytest.mark.parametrize("pred, target, source, said", [(["a"], ["a"], [], "source: no texts"), (["a"], [[]], ["a"], "no reference"), ("a", ["a"], ["a"], "not one string"),
                                                        (["a"], [[None]], ["a"], "not texts: 1"), ([], [], [], "no texts")])
def test_lists_that_do_not_fit(pred, target, source, said):
    refused(lambda: _comet_scores(pred, target, source, lambda triples: torch.zeros(len(triples))), said)
    refused(lambda: _comet_scores(["a"], ["a"], ["a"], None, "best"), "way with references")


def test_comet_itself_on_random_weights():
    "With INVARIANT_METRICS_COMET_CHECKPOINT beside the interpreter's variable: numbers equal to COMET's own."
    import json
    import subprocess
    python, checkpoint = os.environ.get(_PYTHON_VARIABLE), os.environ.get("INVARIANT_METRICS_COMET_CHECKPOINT")
    if not (python and checkpoint): pytest.skip(f"{_PYTHON_VARIABLE} and INVARIANT_METRICS_COMET_CHECKPOINT are not set: no COMET to compare with")
    triples = [("der Hund", "the dog is old", "the dog"), ("die Katze ist da", "the cat", "the cat is there"), ("a", "", "b")]
    code = ("import json, sys; from comet import load_from_checkpoint; m = load_from_checkpoint(sys.argv[1], local_files_only=True); "
            "d = [dict(src=s, mt=t, ref=r) for s, t, r in json.loads(sys.argv[2])]; print('found', json.dumps(list(map(float, m.predict(d, gpus=0, progress_bar=False).scores))))")
    own = subprocess.run([python, "-c", code, checkpoint, json.dumps(triples)], capture_output=True, text=True, check=True).stdout
    line, = [x for x in own.splitlines() if x.startswith("found ")]
    assert CometProcess.open(python, checkpoint)(triples).tolist() == pytest.approx(json.loads(line[6:]), abs=1e-6)
