"""The wheel, alone: in a new environment with PyTorch, NumPy and what these two require, and nothing else."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rope_lessons._extras import EXTRAS, extra
from tests import fresh
from tools.project import ROOT

PACKAGE = ROOT / "rope_lessons"
BARE = ROOT / "tests" / "bare.py"
CHOMSKY = (
    "rope_lessons.chomsky --task even_pairs --model rnn --seeds 0 --learning-rate 1e-3 --results a.json --checkpoints "
    "unfinished --device cpu --quiet --set longest=6 batch=3 test_lengths=7+9 samples=4 hidden=8 steps=2"
)
HELPS = ("rope_lessons.lab", "rope_lessons.lab train", "rope_lessons.lab table", "rope_lessons.chomsky")
WORK = ("rope_lessons.lab train --corpus absent", "rope_lessons.lab table --corpus absent absent", CHOMSKY)


def files_of_the_package() -> set[str]:
    return {
        path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"
    }


def modules(names: set[str]) -> list[str]:
    """Dotted names of the Python files; a folder is the name of its ``__init__``."""
    dotted = [name.removesuffix(".py").replace("/", ".") for name in names if name.endswith(".py")]
    return sorted(name.removesuffix(".__init__") for name in dotted)


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment without any extra."""
    python = fresh.new_environment(tmp_path_factory.mktemp("bare") / "environment")
    fresh.install(python, wheel)
    fresh.add(python, "torch", "numpy")
    return python


def what_it_does(python: Path, folder: Path, **asked: list[Any]) -> dict[str, Any]:
    """tests/bare.py in an environment."""
    done = fresh.run(python, str(BARE), json.dumps(asked), cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def found(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return what_it_does(
        bare,
        tmp_path_factory.mktemp("here"),
        modules=modules(files_of_the_package()),
        commands=[[*line.split(), "--help"] for line in HELPS] + [line.split() for line in WORK],
        doctests=[str(ROOT / "README.md")],
    )


# --- the files ----------------------------------------------------------------------------------------------------


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    """It is built from the source archive, so that has them too."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == files_of_the_package()


def test_the_source_archive_is_the_package_and_no_tests(release: tuple[Path, Path]) -> None:
    """The tests need the book, the notebooks and their tools: they run in a checkout."""
    with tarfile.open(release[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if not archive.getmember(name).isdir()}
    made = {name for name in names if name in ("PKG-INFO", "setup.cfg") or name.startswith("rope_lessons.egg-info/")}
    assert names - made - files_of_the_package() == {"pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"}


# --- without extras -----------------------------------------------------------------------------------------------


def test_everything_but_the_figures_is_imported(found: dict[str, Any]) -> None:
    assert len(found["modules"]) > 90
    refused = {name for name, told in found["modules"].items() if told is not None}
    needy = r"rope_lessons\.(figures\b|hf\.cache$)"  # the second is a class of transformers with another inside
    assert refused == {name for name in found["modules"] if re.match(needy, name)}
    told = {
        "ImportError: rope_lessons.figures needs matplotlib, of the extra [book]: pip install matplotlib safetensors",
        "ImportError: a plan in a model of Hugging Face needs transformers, "
        "of the extra [hf]: pip install transformers",
    }
    assert {found["modules"][name] for name in refused} == told


def test_the_readme_needs_no_extra(found: dict[str, Any]) -> None:
    failed, said = found["doctests"]
    assert failed == 0, said


def test_no_help_needs_an_extra(found: dict[str, Any]) -> None:
    """Of any module of the wheel that is a command."""
    commands = {name.removesuffix(".__main__") for name in found["modules"] if name.endswith("__main__")}
    assert commands == {line.split()[0] for line in HELPS}
    for line in HELPS:
        status, said = found["commands"][f"{line} --help"]
        assert status == 0, said
        assert said.startswith("usage: "), said


@pytest.mark.parametrize("line", ["rope_lessons.lab train", "rope_lessons.chomsky"])
def test_help_as_a_user_asks_for_it(bare: Path, tmp_path: Path, line: str) -> None:
    done = fresh.run(bare, "-m", *line.split(), "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: python -m {line}")


def test_every_refusal_is_one_line_with_a_command(found: dict[str, Any]) -> None:
    book, lab, hf = (
        "of the extra [book]: pip install matplotlib safetensors",
        "of the extra [lab]: pip install safetensors tqdm",
        "of the extra [hf]: pip install transformers",
    )
    assert found["calls"] == {
        "figures": f"ImportError: rope_lessons.figures needs matplotlib, {book}",
        "byte_lm.load": f"ImportError: a stored model needs safetensors, {book}",
        "byte_lm.save": f"ImportError: a stored model needs safetensors, {book}",
        "masked_lm.load": f"ImportError: a stored model needs safetensors, {book}",
        "shipped.load": f"ImportError: a stored model needs safetensors, {book}",
        "checkpoint.save": f"ImportError: a checkpoint needs safetensors, {lab}",
        "checkpoint.load": f"ImportError: a checkpoint needs safetensors, {lab}",
        "hf.extend": f"ImportError: a plan in a model of Hugging Face needs transformers, {hf}",
        "download": f"ImportError: a model of Hugging Face needs transformers, {hf}",
    }
    for line in WORK:
        status, said = found["commands"][line]
        name = " ".join(line.split()[: 2 if "lab" in line else 1])
        assert (status, said.splitlines()[-1]) == (1, f"python -m {name}: this command needs safetensors, {lab}")


def test_the_commands_help(wheel: Path, found: dict[str, Any], tmp_path: Path) -> None:
    """In an environment with what the messages name (as links, not from an index) nothing is refused."""
    messages = [*found["calls"].values(), *(found["commands"][line][1] for line in WORK)]
    named = {name for told in messages for name in told.strip().partition("pip install ")[2].split()}
    assert named == {"matplotlib", "safetensors", "tqdm", "transformers"}
    python = fresh.new_environment(tmp_path / "environment")
    fresh.install(python, wheel)
    fresh.add(python, "torch", "numpy", *named)
    with_extras = what_it_does(python, tmp_path, modules=[], commands=[line.split() for line in WORK], doctests=[])
    done = ("figures", "byte_lm.load", "byte_lm.save", "checkpoint.save", "shipped.load")
    assert {name: with_extras["calls"][name] for name in done} == dict.fromkeys(done)
    others = {name: told for name, told in with_extras["calls"].items() if name not in done}
    assert {name for name, told in others.items() if told is None or "extra" in told} == set()
    assert [with_extras["commands"][line][0] for line in WORK] == [1, 1, 0], "the first two lack their corpus"
    assert not [line for line in WORK if "extra" in with_extras["commands"][line][1]]


# --- the helper ---------------------------------------------------------------------------------------------------

ALWAYS = {"torch", "numpy", "rope_lessons", *sys.stdlib_module_names}
BROUGHT_BY = {"cycler": "matplotlib", "PIL": "matplotlib"}


def imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [str(node.module).partition(".")[0]] if isinstance(node, ast.ImportFrom) else []


def unguarded(node: ast.AST, inside: str | None = None) -> Iterator[str]:
    """Imports of packages that are not always there, outside of ``with extra(NAME, …)`` of an extra that has them.

    A running program imports nothing below ``if TYPE_CHECKING``.
    """
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.With) and ast.unparse(node.items[0]).startswith("extra("):
        inside = ast.literal_eval(node.items[0].context_expr.args[0])
    for name in imports(node):
        if name not in ALWAYS and BROUGHT_BY.get(name, name) not in EXTRAS.get(inside or "", ()):
            yield name
    for child in ast.iter_child_nodes(node):
        yield from unguarded(child, inside)


def test_every_import_of_an_extra_is_guarded() -> None:
    """``figures`` itself is refused without matplotlib, so its modules may import it."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in unguarded(ast.parse(path.read_text("utf8")))
    }
    assert {(file, name) for file, name in found if not (file.startswith("figures/") and name == "matplotlib")} == set()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import tqdm", ["tqdm"]),
        ("def f():\n    from safetensors.torch import load_file", ["safetensors"]),
        ('with extra("book", "it"):\n    import tqdm', ["tqdm"]),
        ("if TYPE_CHECKING:\n    import tqdm", []),
        ("with suppress(ImportError):\n    import tqdm", ["tqdm"]),
        ('with extra("lab", "it"):\n    from tqdm import tqdm\nimport json, torch.nn', []),
    ],
)
def test_unguarded_imports_are_seen(source: str, names: list[str]) -> None:
    assert list(unguarded(ast.parse(source))) == names


def test_other_import_errors_stay_what_they_are() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'matplotlib\.nothing'$"), extra("book", "it"):
        importlib.import_module("matplotlib.nothing")
    with pytest.raises(ImportError, match=r"^cannot import name 'nothing' from 'tqdm'"), extra("lab", "it"):
        from tqdm import nothing  # noqa: F401
