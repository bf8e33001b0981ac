"What notebooks define in open cells: functions of a paper that no module needs, with their tests."
import ast
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

DEFINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def _defines(node: ast.stmt) -> bool: # also a constant
    if isinstance(node, ast.Assign): return all(isinstance(t, ast.Name) and (t.id.isupper() or t.id[0] == "_" or t.id[0].isupper()) for t in node.targets)
    return isinstance(node, DEFINES)


def open_cells(name: str) -> ModuleType: # of a notebook, such as "papers/60_imagine_analyses"
    "The cells that define and do nothing else, run in their order, beside what the notebook exports."
    notebook = json.loads((Path(__file__).parent.parent/"nbs"/f"{name}.ipynb").read_text(encoding="utf-8"))
    module = sys.modules[name] = ModuleType(name)
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if exported := re.match(r"#\| default_exp (\S+)", source): module.__dict__.update(vars(import_module(f"invariant_metrics.{exported[1]}")))
        elif cell["cell_type"] == "code" and not source.startswith("#| export") and all(map(_defines, ast.parse(source).body)): exec(compile(source, name, "exec"), module.__dict__)
    return module
