"What all tests share: one way to draw examples, things that are made once, and two ways to run a part of the tests."
import ast
import ctypes
import gc
import hashlib
import json
import multiprocessing
import os
import pkgutil
import re
import subprocess
import sys
import time
from collections import Counter
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import pytest
import tqdm # noqa: F401 (it looks at TQDM_DISABLE once; some tests set it)
from hypothesis import settings

from commands import READY

ROOT = Path(__file__).parent.parent
sys.path += [str(folder) for folder in sorted({path.parent for path in (ROOT/"tests").rglob("test_*.py")})] # a test may use what another one prepares
SMOKE = { # `pytest -m smoke`: one case of every contract; all tests of a file, or those whose names begin so
    "test_contract.py": ("test_card", "test_identical", "test_signature", "test_weights", "test_torchmetrics", "test_values", "test_what_is", "test_empty"),
    "test_invariants.py": (), "test_weights.py": (), "test_core.py": (),
    "test_encoders.py": ("test_it_is_frozen"),
    "test_text_invariants.py": ("test_every_kind", "test_decided_truth", "test_equal_texts", "test_what_it_refuses", "test_its_signature"),
    "test_score.py": ("test_folder_features", "test_against"),
    "test_probe.py": ("test_labels", "test_matching"),
    "test_own_probe.py": ("test_same_seed",),
    "test_study.py": ("test_signs", "test_bad_settings", "test_no_scene"),
    "test_text_study.py": ("test_own_parallel_text",),
    "test_training.py": ("test_ctrl_c", "test_alpha_zero"),
    "test_agreement.py": ("test_published",),
    "test_cli.py": ("test_every_help", "test_a_mistake", "test_score_ranks"),
    "test_house.py": ("test_package", "test_rooms", "test_readme", "test_numbers")}

os.environ.setdefault("OMP_NUM_THREADS", "1") # as many processes as cores: a second thread of each only waits, and burns its core meanwhile

sys.modules.setdefault("rfc3987_syntax", None) # jsonschema takes it where it is: 3.5 s to import, for forms of addresses, which no schema here asks for

sys.dont_write_bytecode = False # what one process compiles, asserts rewritten by pytest before all, the others need not compile again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("fixed", derandomize=True, deadline=None) # the same examples at every run
settings.register_profile("free", deadline=None, print_blob=True)   # new ones at every run: --hypothesis-profile free
settings.load_profile("fixed")


@pytest.fixture(scope="module")
def one_thread():
    "One torch thread, as in the worker processes whose numbers are compared."
    import torch
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", autouse=True)
def one_server():
    "Whoever forks processes of a server, a test or the package, finds the one that has imported what most need."
    with pytest.MonkeyPatch.context() as patch:
        multiprocessing.set_forkserver_preload(READY)
        patch.setattr("multiprocessing.forkserver.set_forkserver_preload", lambda modules: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def hashed_once():
    "A large file, such as a network that a package brings, is hashed once as long as it stays as it is; the package does so at every load."
    known, real = {}, hashlib.file_digest
    def remembered(file, digest, /, **options):
        about = os.stat(file.fileno()) if hasattr(file, "fileno") else None
        if about is None or about.st_size < 2**22: return real(file, digest, **options)
        key = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns, digest)
        if key not in known: known[key] = real(file, digest, **options)
        return known[key].copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashlib, "file_digest", remembered)
        yield


@pytest.fixture(scope="session", autouse=True)
def made_once(tmp_path_factory):
    """What is always the same and takes long, for how many ask for it: the regions of a photograph, such as the packaged ones, which
    workers share as files, the facts of a world's scenes, and what cuts words into the package's pieces. Each gets a copy or only reads."""
    import numpy as np
    from invariant_metrics.data import annotations, photos
    from invariant_metrics.models import tagger
    home = tmp_path_factory.getbasetemp()
    shared = (home.parent if "PYTEST_XDIST_WORKER" in os.environ else home)/"regions"
    shared.mkdir(exist_ok=True)
    records, found_regions, scene_records = {}, photos.found_regions, annotations._scene_records
    def regions_of(rgb, **parameters):
        place = shared/(hashlib.sha256(rgb.tobytes() + repr((rgb.shape, rgb.dtype, sorted(parameters.items()))).encode()).hexdigest() + ".npy")
        if not place.exists():
            unfinished = place.with_suffix(f".{os.getpid()}.npy")
            np.save(unfinished, found_regions(rgb, **parameters))
            unfinished.replace(place)
        return np.load(place)
    def records_of(n, seed, size, start, folder, sized):
        if folder is not None: return scene_records(n, seed, size, start, folder, sized) # draws pictures as well
        key = (n, seed, size, start, sized)
        if key not in records: records[key] = [*scene_records(n, seed, size, start, None, sized)]
        return iter(records[key])
    wordpiece = lru_cache(maxsize=2)(tagger._wordpiece)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tagger, "_wordpiece", lambda vocabulary: wordpiece(tuple(vocabulary)))
        patch.setattr(photos, "found_regions", regions_of)
        patch.setattr(annotations, "_scene_records", records_of)
        yield


def open_registries() -> list:
    "Those of all modules that are imported by now."
    found = [value for name, module in list(sys.modules.items()) if name.startswith("invariant_metrics.")
             for value in list(vars(module).values()) if hasattr(type(value), "_open_room")]
    return list({id(registry): registry for registry in found}.values())


def give_memory_back() -> None:
    "What is free leaves the process; else much of it stays for good, a little more with every file."
    if sys.platform == "linux": ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="module", autouse=True)
def only_registered_here():
    "What a test file registers of its own, or puts into the environment, is gone when the next one begins."
    before, around = {id(registry): set(registry.entries) for registry in open_registries()}, dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(around)
    for registry in open_registries():
        new = set(registry.entries) - before.get(id(registry), set())
        for name in new:
            if not str(getattr(registry.entries[name], "__module__", "")).startswith("invariant_metrics."): del registry.entries[name]
    give_memory_back()


def is_everything(config) -> bool:
    "Whether all files are run, and not a part that was asked for."
    return [Path(place).resolve() for place in config.args] == [ROOT/"tests"] and config.option.markexpr != "smoke" and config.changed is None


def pytest_collection(session):
    """Two workers share the rewriting of asserts, which takes half of the collection: one begins with the first file and
    one with the last, and from where they meet each reads what the other has stored. Both import the package's modules first,
    in one order, since registries list their entries as they came and tests are named after them."""
    config = session.config
    if not hasattr(config, "workerinput") or not is_everything(config): return
    for module in pkgutil.walk_packages([str(ROOT/"invariant_metrics")], "invariant_metrics."):
        if not module.name.endswith("__main__"): import_module(module.name)
    if config.workerinput["workerid"] != "gw1": return
    for path in sorted((ROOT/"tests").rglob("test_*.py"), reverse=True):
        try: import_module(path.stem)
        except (Exception, pytest.skip.Exception): continue # the collection says so


def pytest_collection_finish(session):
    "All that the tests import is there to stay: the collector of garbage need not look through it again."
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000, 20, 20)
    config = session.config
    if hasattr(config, "workerinput") and is_everything(config) and not config.option.whole: config.pace = Pace(session.items)


class Pace:
    """The whole suite has a quarter of an hour. On a machine, or at a moment, that is too slow for it, the tests that take more than .7 s are left
    out as long as a worker is behind its time, and say so; `--whole` leaves out none. pace.json lists them, and the seconds of each file in a
    run on two quick cores; what a test takes counts as the mean of its file."""
    seconds, late = 620.0, 10.0 # for all tests, by two workers, and by how much one of them may be behind

    def __init__(self, items):
        stored = json.loads((ROOT/"tests"/"pace.json").read_text(encoding="utf-8"))
        numbers = Counter(item.path.stem for item in items)
        self.share = {name: stored["files"].get(name, 0.0)/number for name, number in numbers.items()}
        self.heavy, self.whole = set(stored["heavy"]), sum(self.share[name]*number for name, number in numbers.items())
        self.began, self.done = time.monotonic(), 0.0

    def is_late_for(self, item) -> bool:
        "Whether a heavy test is to be left out; the tests before it are counted."
        behind = time.monotonic() - self.began - self.seconds*self.done/(self.whole/2)
        self.done += self.share[item.path.stem]
        return behind > self.late and f"{item.path.stem}::{item.name}" in self.heavy


def pytest_runtest_setup(item):
    pace = getattr(item.config, "pace", None)
    if pace is not None and pace.is_late_for(item): pytest.skip("a heavy test, and this machine is behind the suite's time: --whole runs it")


def pytest_sessionfinish(session): gc.unfreeze() # else extension modules tell of leaks at the end


def pytest_addoption(parser):
    parser.addoption("--whole", action="store_true", help="leave out no heavy test, however slow the machine is")
    parser.addoption("--changed", nargs="?", const="main", metavar="BRANCH",
                     help="only notebooks that differ from BRANCH (main), and test files that differ or import a module that does")


def changed_paths(branch: str) -> set[str]:
    "Files that differ from where this branch left the other one, committed or not."
    def git(*words): return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    base = git("merge-base", "HEAD", branch)
    if base.returncode: raise pytest.UsageError(f"--changed: {base.stderr.strip()}")
    return {*git("diff", "--name-only", base.stdout.strip()).stdout.split(), *git("ls-files", "-o", "--exclude-standard").stdout.split()}


def imported_modules(path: Path) -> set[str]:
    "Names that a file imports anywhere, each `from a import b` as `a` and as `a.b`."
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import): found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom): found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def touched_tests(changed: set[str]) -> set[str]:
    "Names of the test files that differ or import something that does."
    modules = {"invariant_metrics." + re.search(r"default_exp ([\w.]+)", text).group(1) for name in changed
               if name.endswith(".ipynb") and (ROOT/name).exists() and "default_exp" in (text := (ROOT/name).read_text(encoding="utf-8"))}
    helpers = {Path(name).stem for name in changed if re.fullmatch(r"tests/[\w/]+\.py", name)}
    return {path.name for path in sorted((ROOT/"tests").rglob("test_*.py")) if path.stem in helpers or imported_modules(path) & (modules | helpers)}


def pytest_configure(config):
    config.changed = changed_paths(config.option.changed) if config.option.changed else None
    config.touched = touched_tests(config.changed) if config.option.changed else None


def pytest_ignore_collect(collection_path, config):
    "Files of which nothing would be run are not even imported."
    if not collection_path.name.startswith("test_"): return None
    if config.changed is not None and collection_path.name not in {*config.touched, "test_notebooks.py"}: return True
    if config.option.markexpr == "smoke" and collection_path.name not in SMOKE: return True
    return None


def pytest_collection_modifyitems(config, items):
    for item in items:
        names = SMOKE.get(item.path.name)
        if names is not None and (not names or item.name.startswith(names)): item.add_marker("smoke")
    items.sort(key=lambda item: item.path.name != "test_notebooks.py") # the longest first
    if config.changed is None: return
    def stays(item): return item.path.name in config.touched or f"nbs/{item.callspec.id.removesuffix('-slow')}" in config.changed
    config.hook.pytest_deselected(items=[item for item in items if not stays(item)])
    items[:] = [item for item in items if stays(item)]
