"""The graph of imports within the package, read from its sources: what stands below what, and no circle."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import rope_lessons as rl
from tools.project import ROOT

PACKAGE = Path(__file__).parents[1] / "rope_lessons"
# From the bottom up. A module may import its own floor and those below; "" is the package itself, the front door.
FLOORS = (
    ("_checks", "_extras", "_float64"),
    ("sinusoidal", "rotary", "radix", "mixed_radix", "circles", "entropy", "local", "rerope", "invleaky"),
    ("random_positions", "stored", "axes", "biases"),
    ("kinds",),
    ("schemes",),
    ("methods", "self_extend", "streaming", "hf", "engine"),
    ("nn",),
    ("",),
    ("models",),
    ("lab", "chomsky"),
    ("scoreboard",),
    ("exercises", "figures"),
)


def modules(package: Path) -> dict[str, Path]:
    """Dotted names within the package; a folder is the name of its ``__init__``."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path], package: str) -> set[str]:
    """All that a file imports of the package, also inside functions and only for types. No import is relative."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            # ``from package import x`` imports package.x, if that is a module, and else what package defines
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name != package and not name.startswith(f"{package}."):
                continue
            inside = name.removeprefix(package).removeprefix(".")
            found.add(inside if inside in known else inside.rpartition(".")[0])
    return found


def graph(root: Path) -> dict[str, set[str]]:
    known = modules(root)
    return {name: imported(path, known, root.name) for name, path in known.items()}


def test_there_is_no_circle() -> None:
    TopologicalSorter(graph(PACKAGE)).prepare()


def test_a_circle_is_found(tmp_path: Path) -> None:
    """Through a function, and through an import for types only."""
    package = tmp_path / "toy"
    package.mkdir()
    (package / "__init__.py").write_text("from toy.low import f\n", "utf8")
    (package / "low.py").write_text("def f():\n    from toy.high import g\n    return g\n", "utf8")
    (package / "high.py").write_text("if TYPE_CHECKING:\n    from toy.low import f\n", "utf8")
    with pytest.raises(CycleError, match="cycle"):
        TopologicalSorter(graph(package)).prepare()
    (package / "high.py").write_text("import os\n", "utf8")
    assert graph(package) == {"": {"low"}, "low": {"high"}, "high": set()}
    TopologicalSorter(graph(package)).prepare()


def test_each_module_imports_what_stands_below() -> None:
    floor = {name: level for level, names in enumerate(FLOORS) for name in names}
    found = graph(PACKAGE)
    assert {name.partition(".")[0] for name in found} == floor.keys()
    above = {
        f"{name or '__init__'} imports {other or '__init__'}"
        for name, others in found.items()
        for other in others
        if floor[other.partition(".")[0]] > floor[name.partition(".")[0]]
    }
    assert not above


def test_the_trainer_does_not_know_the_table() -> None:
    """The lab is two things, and the table stands above the model with its trainer. The command line knows both."""
    found = {name: others for name, others in graph(PACKAGE).items() if name.startswith("lab.")}
    table = {name for name in found if name.startswith("lab.table")}
    assert {name for name in found.keys() - table if found[name] & table} == {"lab.__main__"}


def test_no_module_has_the_name_of_a_function() -> None:
    """``import rope_lessons.x as x`` gives what stands in ``rope_lessons`` under that name."""
    names = {name.partition(".")[0] for name in modules(PACKAGE)} - {""}
    for name in names:  # or the outcome would hang on what other tests have imported
        importlib.import_module(f"rope_lessons.{name}")
    assert {name for name in names if not inspect.ismodule(getattr(rl, name))} == set()


def test_the_tools_leave_the_environment_alone() -> None:
    """A variable that a tool sets would be inherited by every process that its tests start."""
    program = "import os; before = dict(os.environ); import tools.build, tools.execution; assert os.environ == before"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_the_front_door_is_narrow() -> None:
    """About thirty names; what else a chapter shows lives in the module of the chapter."""
    assert len([name for name in rl.__all__ if not inspect.ismodule(getattr(rl, name))]) <= 33
