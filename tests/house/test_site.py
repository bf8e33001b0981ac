"The documentation site: what its builder runs, reads and shows, checked without building it; the build itself is `slow`."
import ast
import builtins
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
NBS = ROOT/"nbs"
NOTEBOOKS = {p.relative_to(NBS).as_posix(): json.loads(p.read_text(encoding="utf-8"))["cells"]
             for p in sorted(NBS.rglob("*.ipynb")) if not any(part.startswith((".", "_")) for part in p.relative_to(NBS).parts)}
EXPORT = "nbdev.nbdev_export()"  # nbdev's last cell, which its builder leaves out


def cells(kind: str):
    "Every cell of a kind with a name to find it by."
    for name, all_cells in NOTEBOOKS.items():
        for k, cell in enumerate(all_cells):
            if cell["cell_type"] == kind: yield f"{name} cell {k}", "".join(cell["source"]), cell


def settings() -> configparser.SectionProxy:
    found = configparser.ConfigParser()
    found.read(ROOT/"settings.ini")
    return found["DEFAULT"]


def is_import(node: ast.AST) -> bool: return isinstance(node, (ast.Import, ast.ImportFrom))


def test_imports_stand_alone():
    "nbdev runs cells that are exported or contain an import, and no others: what stands beside an import may not have its names."
    mixed = []
    for where, source, _ in cells("code"):
        if EXPORT in source: continue
        tree = ast.parse(re.sub(r"^\s*[%!].*$", "", source, flags=re.MULTILINE))
        exported = re.search(r"^#\|\s*export", source, re.MULTILINE)
        imports = any(map(is_import, tree.body if exported else ast.walk(tree)))
        if imports and not all(map(is_import, tree.body)): mixed.append(where)
    assert not mixed, f"imports alone in a cell: {mixed}"


def test_quarto_reads_what_nbdev_writes():
    "nbdev puts title, addresses and output folder of settings.ini into nbs/nbdev.yml, which Quarto has to read."
    text = (ROOT/"_quarto.yml").read_text(encoding="utf-8")
    assert "metadata-files: [nbdev.yml, sidebar.yml]" in text
    for key in ("output-dir", "title", "site-url", "description", "repo-url", "repo-branch"):
        assert not re.search(rf"^\s+{key}:", text, re.MULTILINE), f"{key} is said in settings.ini"
    assert (NBS/"_quarto.yml").read_text(encoding="utf-8") == text


def test_footer_and_link_agree_with_the_settings():
    text = (ROOT/"_quarto.yml").read_text(encoding="utf-8")
    assert re.search(r"^\s+left: .*version (\S+) ", text, re.MULTILINE)[1] == settings()["version"]
    assert f"href: {settings()['git_url']}\n" in text
    for page in re.findall(r"href: (\S+\.ipynb)", text): assert (NBS/page).exists(), page


def test_the_settings_of_the_site_say_nothing_twice_and_the_version_is_on_every_page():
    class Once(yaml.SafeLoader): pass
    def mapping(loader, node):
        keys = [loader.construct_object(key) for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"said twice: {keys}"
        return loader.construct_mapping(node, deep=True)
    Once.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    found = yaml.load((ROOT/"_quarto.yml").read_text(encoding="utf-8"), Once)
    assert settings()["version"] in [entry.get("text") for entry in found["website"]["navbar"]["right"]]


@pytest.mark.parametrize("words, page", [
    ("LLM judge", "tutorials/110_my_judge.ipynb"), ("own metric", "tutorials/010_template_metric.ipynb"),
    ("custom text metric", "tutorials/010_template_metric.ipynb"), ("human judgments csv", "tutorials/100_captions_and_ratings.ipynb"),
    ("FID", "tutorials/090_two_folders.ipynb"), ("labeling page", "people/150_labeling.ipynb")])
def test_what_people_search_for_finds_the_page_they_should_read(words, page):
    "The site's search looks for the words as they are typed: they stand in the title, in its sentence, in a heading or in the first paragraph."
    prose = ["".join(cell["source"]) for cell in NOTEBOOKS[page] if cell["cell_type"] == "markdown"]
    first = re.split(r"\n\s*\n", "\n\n".join(prose).strip())[:3]
    headings = re.findall(r"^#+ (.+)$", "\n".join(prose), re.MULTILINE)
    assert words.lower() in " ".join([*first, *headings]).lower()


def test_titles_say_which_page_is_meant():
    "In a list of all pages a title stands alone, and two pages of one title are told apart by nobody."
    titles = ["".join(all_cells[0]["source"]).splitlines()[0] for all_cells in NOTEBOOKS.values()]
    assert all(title.startswith("# ") for title in titles)
    assert len(set(titles)) == len(titles)


def test_links_lead_to_notebooks_that_exist():
    "Jupyter, GitHub and the site all follow a relative link to a notebook; one to a page is followed nowhere."
    dead = []
    for where, source, _ in cells("markdown"):
        folder = (NBS/where.split(" ")[0]).parent
        for target in ("".join(found) for found in re.findall(r"""\]\(([^)\s]+)|^\[[^\]]+\]:\s*(\S+)|(?:href|src)=["']([^"']+)""", source, re.MULTILINE)):
            if re.match(r"\w+:|#", target): continue
            file = target.split("#")[0]
            if file.endswith(".html") or not (folder/file).exists(): dead.append(f"{where}: {target}")
    readme = (ROOT/"README.md").read_text(encoding="utf-8")
    places = {"#" + re.sub(r"[^\w-]", "", title.lower().replace(" ", "-")) for title in re.findall(r"^#+ (.+)$", readme, re.MULTILINE)}
    dead += [target for target in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", readme) if target not in places and not (ROOT/target.split("#")[0]).exists()]
    assert not dead, dead


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    "The pages that are written from cards and signatures."
    out = tmp_path_factory.mktemp("reference")
    done = subprocess.run([sys.executable, ROOT/".ci"/"reference", out], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def test_every_metric_has_a_page_and_a_line_in_the_table(reference):
    homes = json.loads((ROOT/"invariant_metrics"/"assets"/"index"/"cards.json").read_text(encoding="utf-8"))["homes"]
    table = (reference/"index.qmd").read_text(encoding="utf-8")
    assert {p.stem for p in reference.glob("*.qmd")} == {*homes, "index", "invariants", "networks", "api"}
    assert all(f"[{name}]({name}.qmd)" in table for name in homes)
    for name in homes:
        text = (reference/f"{name}.qmd").read_text(encoding="utf-8")
        assert re.search(r"\| Range \| \S", text) and f"invariant-metrics score {name} --pred" in text and "```python" in text
        for link in re.findall(r"\]\((\.\./\S+\.ipynb)\)", text): assert (NBS/"reference"/link).resolve().exists() or (NBS/link.removeprefix("../")).exists(), (name, link)
    sidebar = (NBS/"sidebar.yml").read_text(encoding="utf-8")
    assert all(f"href: reference/{page}.qmd" in sidebar for page in ("index", "invariants", "networks", "api"))


def test_examples_of_the_metrics_pages_run(reference):
    import invariant_metrics as im
    cards = {card["name"]: card for card in im.metric_cards()}
    for path in sorted(reference.glob("*.qmd")):
        card = cards.get(path.stem)
        if not card or card["inputs"] != "texts" or card["weights"] != "none" or card["kind"] == "set" or card.get("source") == "images": continue
        code = re.search(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.S)[1]
        exec(code.replace("im.score(", "found = im.score(", 1), there := {})
        assert there["found"][path.stem].n == 2, path.stem


def test_no_two_pages_of_a_folder_have_one_name():
    "nbdev drops the number of a notebook when it names its page."
    pages = [re.sub(r"(^|/)\d+_", r"\1", name) for name in NOTEBOOKS]
    assert len(set(pages)) == len(pages)


def test_prose_names_the_notebook_it_points_to():
    "Notebooks move: what is next or before today is elsewhere tomorrow."
    words = r"\b(previous|next|last|preceding|following) notebooks?\b|\bnotebook (before|after)\b|\bsection before\b|\bother notebook\b"
    vague = [f"{where}: {found[0]}" for where, source, _ in cells("markdown")
             if (found := re.search(words, " ".join(source.split()), re.IGNORECASE))]
    assert not vague, vague


def test_outputs_hold_neither_progress_bars_nor_errors():
    dirty = []
    for where, _, cell in cells("code"):
        for output in cell["outputs"]:
            texts = [output.get("text", ""), *(v for k, v in output.get("data", {}).items() if k.startswith("text/"))]
            text = "".join("".join(t) for t in texts)
            if output["output_type"] == "error" or output.get("name") == "stderr" or "\r" in text or "it/s]" in text: dirty.append(where)
    assert not dirty, f"run these again without standard error: {dirty}"


def test_every_figure_is_told_in_words():
    wordless, pictures = [], ("image/png", "image/jpeg", "image/svg+xml")
    for where, source, cell in cells("code"):
        data = [output.get("data", {}) for output in cell["outputs"]]
        told = re.search(r'^#\|\s*fig-alt:\s*"\S.{20,}"$', source, re.MULTILINE)
        html = "".join("".join(d.get("text/html", "")) for d in data)
        if any(kind in d for d in data for kind in pictures) and not told: wordless.append(where)
        if any(not re.search(r"""\balt=("[^"]|'[^'])""", image) for image in re.findall(r"<img[^>]*>", html)): wordless.append(where)
    wordless += [where for where, source, _ in cells("markdown") if re.search(r"!\[\]\(", source)]
    assert not wordless, f"say in one sentence what each shows (#| fig-alt: ...): {wordless}"
    readme = (ROOT/"README.md").read_text(encoding="utf-8")
    assert "![" in readme and "![](" not in readme


def place(heading: str) -> str:
    "The name by which a page's heading is found, as pandoc gives it."
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\s.-]", "", text).strip().lower()
    return re.sub(r"^[^a-z]+", "", re.sub(r"\s+", "-", text))


def test_links_to_a_place_lead_to_a_heading():
    places = {name: {place(heading) for cell in all_cells if cell["cell_type"] == "markdown"
                     for heading in re.findall(r"^#+ (.+)$", "".join(cell["source"]), re.MULTILINE)}
              for name, all_cells in NOTEBOOKS.items()}
    dead = []
    for where, source, _ in cells("markdown"):
        name = where.split(" ")[0]
        for page, anchor in re.findall(r"\]\(((?!\w+:)[^)\s#]*)#([^)\s]+)\)", source):
            target = ((NBS/name).parent/page).resolve().relative_to(NBS).as_posix() if page else name
            if anchor not in places.get(target, ()): dead.append(f"{where}: {page}#{anchor}")
    assert not dead, dead


def bound(statement: ast.stmt) -> set[str]:
    "The names that a statement of a module makes; those that only a type checker sees are left out."
    if isinstance(statement, (ast.Import, ast.ImportFrom)): return {(a.asname or a.name).split(".")[0] for a in statement.names}
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)): return {statement.name}
    if isinstance(statement, ast.If):
        seen = statement.orelse if "TYPE_CHECKING" in ast.unparse(statement.test) else statement.body + statement.orelse
        return set().union(*map(bound, seen))
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def annotations(body: list[ast.stmt]):
    "The annotations of a module's functions, of its classes' fields and of their methods."
    for node in body:
        if isinstance(node, ast.ClassDef): yield from annotations(node.body)
        if isinstance(node, ast.AnnAssign): yield node.annotation
        if isinstance(node, ast.FunctionDef):
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
            yield from (argument.annotation for argument in every if argument and argument.annotation)
            if node.returns: yield node.returns


def quoted_names(annotation: ast.expr) -> set[str]:
    "The names in what an annotation quotes, which is evaluated where a signature is shown."
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated": return set()
    class Values(ast.NodeTransformer): # of a Literal are texts and no names
        def visit_Subscript(self, node): return ast.Name("Literal") if ast.unparse(node.value) == "Literal" else self.generic_visit(node)
    plain = Values().visit(ast.parse(ast.unparse(annotation), mode="eval"))
    quoted = [node.value for node in ast.walk(plain) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {node.id for text in quoted for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}


def test_every_quoted_annotation_can_be_evaluated():
    """nbdev evaluates the signature of what a cell exports right after that cell: a type that is imported late or
    defined below needs its name before."""
    unknown = []
    for path in sorted((ROOT/"invariant_metrics").rglob("*.py")):
        names = set(dir(builtins))
        for cell in re.split(r"^# %% .*$", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            body = ast.parse(cell).body
            names = names.union(*map(bound, body))
            unknown += [f"{path.relative_to(ROOT)}: {name} in {ast.unparse(annotation)}" for annotation in annotations(body)
                        for name in quoted_names(annotation) - names]
    assert not unknown, unknown


def test_formulas_need_no_script():
    "Pages show formulas as MathML, which pandoc makes of all that it can read."
    import pypandoc
    prose = [re.sub(r"^```.*?^```", "", source, flags=re.DOTALL | re.MULTILINE) for _, source, _ in cells("markdown")] # a shell has dollars of its own
    formulas = [f for source in prose for f in re.findall(r"\$\$.*?\$\$|(?<!\$)\$[^$\n][^$]*?\$(?!\$)", source, re.DOTALL)]
    assert len(formulas) > 1500
    command = [pypandoc.get_pandoc_path(), "--from", "markdown", "--to", "html", "--mathml"]
    done = subprocess.run(command, input="\n\n".join(formulas), capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr[-2000:]


@pytest.fixture
def copy(tmp_path):
    "The project where a build may write."
    for name in ("nbs", "invariant_metrics", ".ci"):
        shutil.copytree(ROOT/name, tmp_path/name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    for name in ("settings.ini", "_quarto.yml", "README.md"): shutil.copy(ROOT/name, tmp_path/name)
    return tmp_path


def run(copy: Path, *command: str, **env: str):
    done = subprocess.run(command, cwd=copy, env={**os.environ, "HF_HUB_OFFLINE": "1", **env}, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done


QUARTO = """#!/bin/sh
[ "$1" = --version ] && { echo "${QUARTO_SAYS:-1.7.32}"; exit; }
echo "$@" >> "$CALLS"
[ "$1" = render ] && mkdir -p _docs && cat > _docs/page.html <<'END'
<html><head>
<script src="https://cdnjs.cloudflare.com/ajax/libs/require.js/2.3.6/require.min.js" integrity="sha512-x" crossorigin="anonymous"></script>
<script src="https://cdn.jsdelivr.net/npm/jquery@3.5.1/dist/jquery.min.js" integrity="sha384-x" data-relocate-top="true"></script>
<script type="application/javascript">define('jquery', [],function() {return window.jQuery;})</script>
</head><body><p>A page.</p></body></html>
END
true
"""  # says its version and notes what it is asked for; its page has the network's scripts in the form of 1.7 and in that of 1.8


@pytest.fixture
def quarto(copy):
    "The environment of a build: nbdev's commands and a stand-in for Quarto."
    (copy/"bin").mkdir()
    (copy/"bin"/"quarto").write_text(QUARTO)
    (copy/"bin"/"quarto").chmod(0o755)
    path = os.pathsep.join([str(copy/"bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {"PATH": path, "CALLS": str(copy/"calls"), "PYTHONPATH": str(copy)}


@pytest.mark.slow
def test_plain_nbdev_and_the_site_reach_quarto(copy, quarto):
    "Nothing of torch or pandas is imported by these rooms, and their pages show functions that take tensors and frames."
    kept = {"data/000_photos.ipynb", "scoring/20_score.ipynb"}
    for name in set(NOTEBOOKS) - kept: (copy/"nbs"/name).unlink()
    run(copy, "bash", ".ci/site", **quarto)
    pages = {name: json.loads((copy/"_proc"/name).read_text(encoding="utf-8")) for name in kept}
    shown = str(pages["data/000_photos.ipynb"])
    assert "small_picture" in shown and "Tensor" in shown
    assert "<script" not in (copy/"_docs"/"page.html").read_text()
    run(copy, "nbdev_docs", **quarto)
    run(copy, "nbdev_preview", "--port", "3001", "--no_browser", **quarto)
    assert (copy/"calls").read_text().splitlines() == [
        "render --no-execute --no-cache", "render --no-cache", "preview --port 3001 --no-browser"]


def test_a_quarto_of_another_form_is_refused(copy, quarto):
    done = subprocess.run(["bash", ".ci/site"], cwd=copy, env={**os.environ, **quarto, "QUARTO_SAYS": "1.6.42"}, capture_output=True, text=True)
    assert done.returncode == 1 and "Quarto 1.6.42 is on PATH" in done.stderr


@pytest.mark.slow
def test_nbdev_processes_every_notebook(copy, quarto):
    done = run(copy, "nbdev_proc_nbs", **quarto)
    assert "Error" not in done.stdout + done.stderr, (done.stdout + done.stderr)[-4000:]
    assert {p.relative_to(copy/"_proc").as_posix() for p in (copy/"_proc").rglob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("quarto") is None, reason="Quarto is not here")
def test_site_builds_and_its_pages_are_whole(copy):
    before = (copy/"README.md").read_text(encoding="utf-8")
    run(copy, "bash", ".ci/site")
    assert len(list((copy/"_docs").rglob("*.html"))) == len(NOTEBOOKS) + len(list((copy/"_proc"/"reference").glob("*.qmd")))
    assert (copy/"README.md").read_text(encoding="utf-8") == before


@pytest.mark.parametrize("broken, fault", [
    ('<a href="gone.html">x</a>', "dead link gone.html"), ('<a href="#gone">x</a>', "no such place #gone"),
    ('<img src="b.html">', "picture without words"), ("<pre>10it/s]</pre>", "holds 'it/s]'"),
    ('<script src="https://elsewhere.org/a.js"></script>', "loads https://elsewhere.org/a.js"),
    ('<a href="b.html#here">x</a><a href="https://elsewhere.org">y</a><img src="b.html" alt="A dog.">', "")])
def test_page_check_finds_what_is_broken(tmp_path, broken, fault):
    (tmp_path/"a.html").write_text(broken)
    (tmp_path/"b.html").write_text('<h1 id="here">x</h1>')
    done = subprocess.run([sys.executable, ROOT/".ci"/"check_site", tmp_path], capture_output=True, text=True)
    assert done.returncode == bool(fault), done.stderr
    assert (f"a.html: {fault}" if fault else "2 pages, 0 faults") in done.stdout
