"""The first cell of a notebook, as on Colab: IPython and pip without the package. Git finds the address in a folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import rope_lessons as rl
from tests import fresh
from tools import notebooks, project
from tools.release import copy_checkout

CELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
ran = InteractiveShell.instance(colors="NoColor").run_cell(sys.argv[1])
print("ended with", repr(ran.error_in_exec))
"""
WHEEL = f"rope_lessons-{rl.__version__}-py3-none-any.whl[book]"
MISSING = f'Not installed, see above. From a file: %pip install "{WHEEL}"'


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout, without the book, as a repository of one commit."""
    folder = tmp_path_factory.mktemp("published") / "repository"
    copy_checkout(project.ROOT, folder, without=("book", "tests"))
    git = ["git", "-C", str(folder), "-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "all"]):
        subprocess.run([*git, *command], check=True)
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A new environment with what Colab has."""
    python = fresh.new_environment(tmp_path / "environment")
    fresh.add(python, "torch", "numpy", "ipython", "pip", "wheel")
    return python


def run_cell(python: Path, folder: Path, repository: Path) -> list[str]:
    """What the cell says where git finds the repository's address in a folder."""
    settings = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{repository.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": project.address(),
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it so: no isolation, so nothing is fetched to build with
        "PIP_NO_DEPS": "1",
    }
    done = fresh.run(python, "-c", CELL, notebooks.install_cell(), cwd=folder, **settings)
    assert done.returncode == 0, done.stderr
    return [*done.stderr.splitlines(), *done.stdout.splitlines()]


def test_it_installs_the_package(python: Path, repository: Path, tmp_path: Path) -> None:
    assert run_cell(python, tmp_path, repository)[-1] == "ended with None"
    found = fresh.run(python, "-c", "import rope_lessons; print(rope_lessons.__file__)", cwd=tmp_path)
    assert Path(found.stdout.strip()).parent == fresh.site_packages(python) / "rope_lessons", found.stderr


def test_it_says_how_to_install_from_a_file(python: Path, wheel: Path, tmp_path: Path) -> None:
    """Where the address does not exist; and what it says does it."""
    said = run_cell(python, tmp_path, tmp_path / "nowhere")
    assert said[-1] == f"ended with {ImportError(MISSING)!r}"
    assert any("does not exist" in line or "does not appear to be a git repository" in line for line in said), said
    installed = fresh.run(python, "-m", "pip", "install", WHEEL, cwd=wheel.parent, PIP_NO_DEPS="1")
    assert installed.returncode == 0, installed.stderr
    assert fresh.run(python, "-c", "import rope_lessons", cwd=tmp_path).returncode == 0


def test_where_the_package_is_there_it_does_nothing(python: Path, wheel: Path, tmp_path: Path) -> None:
    fresh.install(python, wheel)
    assert run_cell(python, tmp_path, tmp_path / "nowhere") == ["ended with None"]
