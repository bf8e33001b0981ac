"The shape of the house: notebooks and package in step, rooms in their order, a wheel that finds its assets, README and CI alike."
import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import yaml
from commands import HUNG

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT/"invariant_metrics"
BY_HAND = ("__init__.py", "__main__.py", "lclip/__init__.py", "imagine/__init__.py")  # the package's own front doors; everything else is exported


def run(*command, cwd=ROOT, **options):
    return subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=HUNG, **options)


def generated(folder: Path) -> dict[str, str]:
    found = {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in sorted(folder.rglob("*.py"))}
    return {name: text for name, text in found.items() if name not in BY_HAND}


def test_package_equals_its_notebooks(tmp_path):
    "Cleaning and exporting afresh changes nothing, and no module outlives its notebook."
    for name in ("nbs", "invariant_metrics"):
        shutil.copytree(ROOT/name, tmp_path/name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "_proc"))
    for name in ("settings.ini", "_quarto.yml", "README.md", "setup.py", "pyproject.toml"): shutil.copy(ROOT/name, tmp_path/name)
    for p in (tmp_path/"invariant_metrics").rglob("*.py"):
        if p.relative_to(tmp_path/"invariant_metrics").as_posix() not in BY_HAND: p.unlink()
    bin = Path(sys.executable).parent
    for tool in ("nbdev_clean", "nbdev_export"):
        done = run(bin/tool, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert generated(tmp_path/"invariant_metrics") == generated(PACKAGE), "run nbdev_export and delete modules without a notebook"
    for notebook in sorted((ROOT/"nbs").rglob("*.ipynb")):
        if "_proc" in notebook.parts or ".ipynb_checkpoints" in notebook.parts: continue
        assert (tmp_path/notebook.relative_to(ROOT)).read_text() == notebook.read_text(), f"run nbdev_clean on {notebook.name}"


def test_rooms_import_only_the_rooms_before_them():
    done = run(Path(sys.executable).parent/"lint-imports", "--config", ROOT/"pyproject.toml", "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_linter_finds_nothing():
    done = run(sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise", "invariant_metrics", "tests", "benchmarks")
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_call_lacks_an_argument_and_no_function_forgets_to_return(tmp_path):
    "Loosely: see pyproject.toml. Unpacked lists and functions that are passed on seem to have arguments too many, so these are no findings."
    done = run(sys.executable, "-m", "mypy", "--no-site-packages", "--cache-dir", tmp_path)
    found = [line for line in done.stdout.splitlines() if " error: " in line and not re.search("Too many arguments for|Unexpected keyword argument", line)]
    assert done.returncode in (0, 1) and found == [], done.stdout + done.stderr


def test_wheel_installed_elsewhere_finds_its_assets(tmp_path):
    source = tmp_path/"source"
    source.mkdir()
    for name in ("settings.ini", "README.md", "setup.py", "pyproject.toml", "LICENSE"): shutil.copy(ROOT/name, source/name)
    shutil.copytree(PACKAGE, source/"invariant_metrics", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source)
    assert built.returncode == 0, built.stderr
    wheel, = tmp_path.glob("*.whl")
    installed = run(*pip, "install", "--no-deps", "--no-index", "--target", tmp_path/"site", wheel)
    assert installed.returncode == 0, installed.stderr
    code = ("import invariant_metrics, sys; from invariant_metrics.encoders.weights import verify_weights; "
            "print(invariant_metrics.__file__); rows = verify_weights(); assert rows; print(len(rows))")
    found = run(sys.executable, "-c", code, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path/"site"), "PATH": ""})
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(str(tmp_path/"site")), found.stdout
    assert (tmp_path/"site"/"invariant_metrics"/"py.typed").is_file(), "type checkers read the annotations only where it is"
    editable = run(sys.executable, "-c", f"from setuptools.build_meta import build_editable; build_editable({str(tmp_path)!r})", cwd=source)
    assert editable.returncode == 0, editable.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*editable*.whl"))) as wheel:
        path, = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".pth")]
    assert path.strip() == str(source), "beside a clone, a finder would be asked after the clone's folder"


def test_readme_and_ci_run_the_same_test_command():
    readme = (ROOT/"README.md").read_text(encoding="utf-8")
    command, = re.findall(r"^pip install -e '\.\[dev\]'.*$", readme, re.MULTILINE)
    assert command in (ROOT/".ci"/"run").read_text().splitlines()


def test_readme_is_written_from_the_index_notebook(tmp_path):
    done = run(sys.executable, ROOT/".ci"/"readme", tmp_path/"README.md")
    assert done.returncode == 0, done.stderr
    assert (tmp_path/"README.md").read_text() == (ROOT/"README.md").read_text(), "run `python .ci/readme` and commit README.md"


def test_documents_beside_the_readme_lead_somewhere_and_name_this_version():
    text = (ROOT/"CONTRIBUTING.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert links and not [link for link in links if not (ROOT/link).is_file()]
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    for name in re.findall(r"`@?(\w+)(?:\.add)?\(", text): assert re.search(rf"^(def {name}\(|{name} = )", code, re.MULTILINE), name
    cited = yaml.safe_load((ROOT/"CITATION.cff").read_text(encoding="utf-8"))
    version = re.search(r"^version = (\S+)$", (ROOT/"settings.ini").read_text(), re.MULTILINE)[1]
    assert cited["version"] == version and len(cited["references"]) == 5
    assert f"({version})" in (ROOT/"CHANGELOG.md").read_text(encoding="utf-8")


def test_readme_main_command_is_the_programs():
    readme = (ROOT/"README.md").read_text(encoding="utf-8")
    assert "pip install -e '.[study]' && invariant-metrics study colorization" in readme


def test_no_path_of_a_machine():
    found = {}
    for folder in ("nbs", "invariant_metrics", "tests", "benchmarks"):
        for path in sorted((ROOT/folder).rglob("*")):
            if path.suffix not in (".ipynb", ".py", ".json", ".md") or "_proc" in path.parts: continue
            paths = re.findall(r"(?:/home|/root|/Users|/tmp|/work)/[\w./-]+", path.read_text(encoding="utf-8"))
            if paths: found[path.relative_to(ROOT).as_posix()] = paths[:3]
    assert not found


def test_every_sidebar_entry_exists_and_every_notebook_is_reachable():
    listed = set(re.findall(r"[\w/]+\.ipynb", (ROOT/"nbs"/"sidebar.yml").read_text()))
    have = {p.relative_to(ROOT/"nbs").as_posix() for p in (ROOT/"nbs").rglob("*.ipynb") if "_proc" not in p.parts}
    assert listed == have


def parsed(source: str) -> ast.Module:
    "A cell's code without what only a notebook understands."
    return ast.parse("\n".join("pass" if line.lstrip().startswith(("!", "%")) else line for line in source.split("\n")))


def notebooks() -> list[Path]:
    return sorted(p for p in (ROOT/"nbs").rglob("*.ipynb") if not any(part.startswith((".", "_")) for part in p.relative_to(ROOT).parts))


def modules() -> dict[str, Path]:
    "Module -> the notebook it is written in, without the package's name."
    found = {}
    for path in notebooks():
        if named := re.search(r"#\|\s*default_exp ([\w.]+)", path.read_text(encoding="utf-8")): found[named.group(1)] = path
    return found


def layers() -> list[list[str]]:
    "Rooms and single modules in their order, those nobody may import first, as the import contract has them."
    contract, = tomllib.loads((ROOT/"pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [re.findall(r"invariant_metrics\.(\w+)", line) for line in contract["layers"]]


def test_numbers_are_steps_of_ten_unique_and_of_one_width():
    folders = {}
    for path in notebooks():
        if path.name != "index.ipynb": folders.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path.name.split("_")[0])
    for folder, numbers in folders.items():
        assert all(n.isdigit() and int(n) % 10 == 0 for n in numbers), (folder, numbers)
        assert len(set(numbers)) == len(numbers) and len({len(n) for n in numbers}) == 1, (folder, numbers)


def test_a_notebook_imports_only_notebooks_that_stand_before_it():
    "Before it: in an earlier layer, or in its folder with a smaller number. Papers and tutorials export nothing and come last."
    level = {name: -k for k, names in enumerate(layers()) for name in names}
    by_module, late = modules(), []
    place = {name: (level[name.split(".")[0]], path.parent, path.name) for name, path in by_module.items()}
    for name, path in by_module.items():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
            for node in ast.walk(parsed(source)):
                if not isinstance(node, (ast.Import, ast.ImportFrom)): continue
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or "", *(f"{node.module}.{a.name}" for a in node.names)]
                for other in {n.removeprefix("invariant_metrics.") for n in names} & set(place) - {name}:
                    same_room = other.split(".")[0] == name.split(".")[0] or by_module[other].parent == path.parent
                    before = place[other][2] < place[name][2] if same_room else place[other][0] <= place[name][0]
                    if not before: late.append(f"{path.relative_to(ROOT/'nbs')} imports {by_module[other].relative_to(ROOT/'nbs')}")
    assert sorted(set(late)) == []


def test_no_public_function_or_class_is_in_two_notebooks():
    "But for methods; what another module takes over by assignment is no definition."
    homes = {}
    for name, path in modules().items():
        tree = ast.parse((PACKAGE/Path(*name.split("."))).with_suffix(".py").read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                if not any("patch" in ast.unparse(d) for d in node.decorator_list): homes.setdefault(node.name, set()).add(name)
    twice = {name: sorted(where) for name, where in homes.items() if len(where) > 1}
    assert twice == {}
