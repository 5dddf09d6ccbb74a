"""What an index, a citation and an installation are told: each fact stands once, and the files that repeat it agree."""

from __future__ import annotations

import ast
import re
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import rope_lessons as rl
from rope_lessons._extras import EXTRAS
from tools import project
from tools.project import ROOT

PYTHONS = ("3.10", "3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """What the wheel says of itself."""
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_one_version(metadata: Message) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf8"), re.MULTILINE)
    assert newest is not None
    assert {metadata["Version"], str(citation["version"]), newest[1]} == {rl.__version__}
    assert str(Version(rl.__version__)) == rl.__version__


def test_versions_of_python(metadata: Message) -> None:
    """Those of the classifiers are those that installation allows, the tests run on, and the tools check for."""
    told = [line.rpartition(" ")[2] for line in metadata.get_all("Classifier", []) if "Python :: 3." in line]
    assert tuple(told) == PYTHONS
    allowed = SpecifierSet(metadata["Requires-Python"])
    assert [version for version in ("3.9", *PYTHONS) if version in allowed] == list(PYTHONS)
    pyproject = (ROOT / "pyproject.toml").read_text("utf8")
    assert f'target-version = "py{PYTHONS[0].replace(".", "")}"' in pyproject
    assert f'python_version = "{PYTHONS[0]}"' in pyproject


def test_the_oldest_python_reads_it() -> None:
    """What a later Python added to the language is not there. (mypy does the same for the standard library.)"""
    files = sorted((ROOT / "rope_lessons").rglob("*.py"))
    assert len(files) > 90
    for path in files:
        ast.parse(path.read_text("utf8"), str(path), feature_version=(3, 10))


def test_a_later_python_is_seen() -> None:
    with pytest.raises(SyntaxError, match=r"only supported in Python 3[.]11"):
        ast.parse("try:\n    f()\nexcept* OSError:\n    pass", feature_version=(3, 10))


def test_extras_are_those_of_the_project(metadata: Message) -> None:
    found: dict[str, list[str]] = {name: [] for name in metadata.get_all("Provides-Extra", []) if name != "dev"}
    for requirement in map(Requirement, metadata.get_all("Requires-Dist", [])):
        for name, names in found.items():
            if requirement.marker is not None and requirement.marker.evaluate({"extra": name}):
                names.append(requirement.name)
    assert {name: tuple(names) for name, names in found.items()} == EXTRAS


def test_addresses(metadata: Message) -> None:
    """Of this project, and each of a page that there is."""
    addresses = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    here = project.address()
    assert addresses == {
        "Documentation": project.pages_address(),
        "Repository": here,
        "Issues": f"{here}/issues",
        "Changelog": f"{here}/blob/{project.branch()}/CHANGELOG.md",
    }
    assert (ROOT / "CHANGELOG.md").exists()


def test_what_an_index_shows(metadata: Message) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["License-Expression"] == "MIT AND PSF-2.0"
    assert len(metadata["Keywords"].split(",")) >= 5
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


def test_size(wheel: Path) -> None:
    """As CONTRIBUTING.md says it: what is not the book's data is small."""
    with ZipFile(wheel) as archive:
        data = sum(one.compress_size for one in archive.infolist() if "/data/" in one.filename)
    whole = wheel.stat().st_size
    assert whole < 4.5e6  # until the chapters that load older models take the scoreboard's
    assert 0.2e6 < whole - data < 0.6e6
