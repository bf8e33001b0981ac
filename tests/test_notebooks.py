"Every notebook runs from top to bottom, without network; cells marked `slow` or `cuda` are left to those who ask for them."
import gc
import os
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

import invariant_metrics
from invariant_metrics.core import Registry

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(p for p in (ROOT/"nbs").rglob("*.ipynb")
                   if not any(part.startswith((".", "_")) for part in p.relative_to(ROOT).parts))


@pytest.fixture(scope="module")
def every_module():
    "All modules, imported and with their entries registered; else those a notebook is the first to import would leave with it."
    for module in pkgutil.walk_packages(invariant_metrics.__path__, "invariant_metrics."):
        if not module.name.endswith("__main__"): import_module(module.name)
    for registry in (r for r in gc.get_objects() if issubclass(type(r), Registry)): registry.names()


@pytest.fixture(autouse=True)
def registries_as_they_were(every_module):
    "A notebook's definitions stand in for its module's while it runs, and not for the tests after it."
    registries = [r for r in gc.get_objects() if issubclass(type(r), Registry)]
    before = [(r, {name: r.entries[name] for name in r.names() if name in r.entries}) for r in registries]
    yield
    for registry, entries in before: registry.entries = entries


def named(path: Path) -> str: return path.relative_to(ROOT/"nbs").as_posix()


SLOW = [pytest.param(path, marks=pytest.mark.slow, id=f"{named(path)}-slow") for path in NOTEBOOKS if "#| slow" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", [*(pytest.param(path, id=named(path)) for path in NOTEBOOKS), *SLOW])
def test_notebook(path, monkeypatch, capsys, request):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("TQDM_DISABLE", "1")
    monkeypatch.setenv("IN_TEST", "1") # set by what runs the notebook, and never taken back; nbdev_export does nothing under it
    monkeypatch.setattr(sys, "path", [*sys.path])
    forced = os.environ.get("INVARIANT_METRICS_RUN", "").split()  # e.g. "cuda"
    if request.node.get_closest_marker("slow"): forced.append("slow")
    monkeypatch.chdir(path.parent)
    from nbdev.test import test_nb as run_notebook
    passed, _ = run_notebook(path, skip_flags=[f for f in ("slow", "cuda") if f not in forced], force_flags=forced, basepath=ROOT)
    assert passed, "".join(capsys.readouterr())[-4000:]
