"""New environments, with nothing but what is put into them."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

THIRD_PARTY = Path(sysconfig.get_path("purelib"))


def new_environment(folder: Path) -> Path:
    """The Python of an environment with nothing in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def install(python: Path, wheel: Path) -> None:
    """Install a wheel alone."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-compile", str(wheel)], check=True)


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


def run(python: Path, *arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new environment that does not see this checkout."""
    own = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in own} | variables
    return subprocess.run([str(python), *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
