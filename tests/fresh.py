"""The files of a release, built as a release builds them, and new environments with nothing but what is put in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tools.project import ROOT

SOURCES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "tests", "tools")
THIRD_PARTY = Path(sysconfig.get_path("purelib"))


def copy_sources(folder: Path) -> Path:
    """The checkout as far as it could have a part in a release, without what earlier builds left in it."""
    for name in ("rope_lessons", *SOURCES):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(folder: Path) -> tuple[Path, Path]:
    """The source archive, and the wheel that is built from the archive alone."""
    sources = folder / "sources"
    sources.mkdir(parents=True)
    _setuptools("build_sdist", copy_sources(sources), folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "archive", filter="data")
    (unpacked,) = (folder / "archive").iterdir()
    _setuptools("build_wheel", unpacked, folder)
    (wheel,) = folder.glob("*.whl")
    return archive, wheel


def _setuptools(what: str, sources: Path, out: Path) -> None:
    program = f"import sys; from setuptools import build_meta; build_meta.{what}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(out)], cwd=sources, check=True, capture_output=True)


def new_environment(folder: Path, wheel: Path) -> Path:
    """The Python of an environment with the wheel and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-compile", str(wheel)], check=True)
    return python


def site_packages(python: Path) -> Path:
    (found,) = python.parents[1].glob("lib/python*/site-packages")
    return found


def add(python: Path, *names: str) -> None:
    """Put packages of this environment and all that they require into a new one, as links."""
    for distribution in closure(*names).values():
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = site_packages(python) / top
            if not link.is_symlink():
                link.symlink_to(THIRD_PARTY / top)


def closure(*names: str) -> dict[str, metadata.Distribution]:
    """Packages and all that they require here, without their extras."""
    found: dict[str, metadata.Distribution] = {}
    left = [Requirement(name) for name in names]
    while left:
        requirement = left.pop()
        name = requirement.name.lower().replace("_", "-")
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found[name] = metadata.distribution(name)
            left += [Requirement(text) for text in found[name].requires or ()]
    return found


def run(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a new environment that does not see this checkout."""
    own = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    return subprocess.run([str(python), *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
