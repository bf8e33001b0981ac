"Work in several processes, started where the folder of a clone lies, which has the package's name."
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands import HUNG

ROOT = Path(__file__).parents[2]
FINDER = f"""
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location
class Finder: # as an editable install may leave it: asked after the path
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "invariant_metrics": return None
        home = {str(ROOT/"invariant_metrics")!r}
        return spec_from_file_location(name, home + "/__init__.py", submodule_search_locations=[home])
sys.meta_path.insert(sys.meta_path.index(PathFinder) + 1, Finder)
"""
BEGIN = """
import sys
from invariant_metrics.commands.shell import main
def run(line):
    code = main(line.split())
    assert code == 0, code
if __name__ == "__main__":
"""
OWN = """
def assets(tick=None):
    import invariant_metrics
    from invariant_metrics.files import assets_folder
    return str(assets_folder()), invariant_metrics.__file__
"""
ANYWHERE = """
sys.path.append("")
from types import SimpleNamespace
from own_parts import assets
from invariant_metrics.runs import share_out
bar = SimpleNamespace(update=print)
here, beside = share_out([assets]*2, 2)
forked, = share_out([assets], 1, bar, ["own_parts", "invariant_metrics.studies.search"])
assert here == beside == forked and here[1], (here, beside, forked)
"""
COMMANDS = {
    "probe": """
from invariant_metrics.probes.worlds import _WORLD_SIZES, ProbeSize
_WORLD_SIZES["quick"] = ProbeSize(8, 4, 20, 4)
run("probe translation --metrics rouge-l,chrf --families negation --scale quick --workers 2 --out run")
""",
    "study": """
from invariant_metrics.studies.colorizers import _COLORIZATION, StudySize
from invariant_metrics.probes.images import COLOR_SIZES, ProbeSize
COLOR_SIZES["quick"] = ProbeSize(4, 4, 20)
_COLORIZATION.sizes["quick"] = StudySize(side=32, train=48, validation=8, test=12, pretrain=8, steps=4, batch=4, reps=20)
run("study colorization --metrics psnr --invariants segmentation --alphas 0.3 --seeds 1 --scale quick --workers 2 --out run")
""",
    "imagine": """
from invariant_metrics.imagine.imagine_study import _IMAGINE_SIZES, ImagineSize
_IMAGINE_SIZES["quick"] = ImagineSize(5, 1)
run("imagine study --generator exact --scale quick --workers 2 --out run")
""",
    "lclip": """
from invariant_metrics.lclip.compression_study import _COMPRESSION_SIZES, CompressionSize
_COMPRESSION_SIZES["quick"] = CompressionSize(scenes=12, steps=2, pair_steps=2, batch=4, test=12, graded=10, reps=30, rounds=1)
run("lclip study --parts compression --seeds 1 --scale quick --workers 2 --out run")
"""}


@pytest.fixture
def place(tmp_path) -> Path:
    "Where the folder of a clone lies, and a module of one's own."
    clone = tmp_path/"invariant_metrics"
    (clone/"nbs").mkdir(parents=True)
    shutil.copy(ROOT/"setup.py", clone)
    shutil.copytree(ROOT/"invariant_metrics", clone/"invariant_metrics", ignore=shutil.ignore_patterns("assets", "__pycache__"))
    (tmp_path/"own_parts.py").write_text(OWN)
    (tmp_path/"site").mkdir()
    (tmp_path/"site"/"sitecustomize.py").write_text(FINDER)
    (tmp_path/"bin").mkdir()
    return tmp_path


def run_there(place: Path, lines: str) -> None:
    script = place/"bin"/"program.py"
    script.write_text(BEGIN + "".join(f"    {line}\n" for line in lines.strip().split("\n")))
    env = {**os.environ, "PYTHONPATH": str(place/"site"), "INVARIANT_METRICS_CACHE": str(place/"cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, script], cwd=place, env=env, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("name", ["probe", *(pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS if name != "probe")])
def test_every_command_with_processes_runs_beside_a_clone(name, place): run_there(place, COMMANDS[name])


def test_processes_beside_a_clone_find_the_package_and_modules_that_lie_there(place): run_there(place, ANYWHERE)
