"Every notebook runs from top to bottom, without network; cells marked `slow` or `cuda` are left to those who ask for them."
import atexit
import gc
import os
import pkgutil
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import invariant_metrics
from conftest import give_memory_back, open_registries

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(p for p in (ROOT/"nbs").rglob("*.ipynb")
                   if not any(part.startswith((".", "_")) for part in p.relative_to(ROOT).parts))


@pytest.fixture(scope="module")
def registries():
    "Of all modules, imported and with their entries registered; else those a notebook is the first to import would leave with it."
    for module in pkgutil.walk_packages(invariant_metrics.__path__, "invariant_metrics."):
        if not module.name.endswith("__main__"): import_module(module.name)
    found = open_registries()
    for registry in found: registry.names()
    gc.freeze() # half a million objects that stay; looking through them again and again took a sixth of the time
    return found


@pytest.fixture(autouse=True)
def registries_as_they_were(registries):
    "A notebook's definitions stand in for its module's while it runs, and not for the tests after it."
    before = [(registry, {**registry.entries}, {**getattr(registry, "prefixes", {})}) for registry in registries]
    yield
    for registry, entries, prefixes in before:
        registry.entries = entries
        if prefixes: registry.prefixes = prefixes


@pytest.fixture(autouse=True)
def environment_as_it_was():
    "A notebook is a process of its own for its reader: some set a cache or silence for good, which would reach the tests after them."
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def shells(monkeypatch, request):
    """Of a notebook's variables those of its module alone stay, since a command that it has put on the application may be called
    again; IPython holds on to all of them until the process ends, and those of two hundred notebooks take five gigabytes.
    Each figure is drawn once, on few pixels: one that cannot be drawn fails as it does on many."""
    from IPython.core.history import HistoryManager
    from matplotlib_inline.backend_inline import set_matplotlib_formats
    from nbdev import test as runner
    made, CaptureShell = [], runner.CaptureShell
    monkeypatch.setattr(HistoryManager.enabled, "default_value", False) # else each shell opens a database of what was typed
    def remembered(*args, **kwargs):
        made.append(CaptureShell(*args, **kwargs))
        set_matplotlib_formats("png", dpi=20, bbox_inches=None)
        return made[-1]
    monkeypatch.setattr(runner, "CaptureShell", remembered)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"]) # IPython puts the notebook there
    yield made
    for shell in made:
        atexit.unregister(shell.atexit_operations)
        for name in shell.user_ns.keys() - exported(request.node.callspec.params["path"]): del shell.user_ns[name]
    give_memory_back()


def exported(path: Path) -> set[str]:
    "The names that the notebook's module has."
    named = re.search(r"default_exp ([\w.]+)", path.read_text(encoding="utf-8"))
    module = sys.modules.get(f"invariant_metrics.{named[1]}") if named else None # a template names one that is not there
    return {*vars(module)} if module else set()


def named(path: Path) -> str: return path.relative_to(ROOT/"nbs").as_posix()


SLOW = [pytest.param(path, marks=pytest.mark.slow, id=f"{named(path)}-slow") for path in NOTEBOOKS if "#| slow" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", [*(pytest.param(path, id=named(path)) for path in NOTEBOOKS), *SLOW])
def test_notebook(path, monkeypatch, capsys, request, shells):
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
