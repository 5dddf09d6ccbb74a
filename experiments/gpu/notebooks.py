"""The notebooks as a reader runs them: from the wheel, without the repository, on this machine's Python and device."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from experiments.gpu.step import Found, OutOfTime, Setting, absent

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "book" / "notebooks"
CELLS = Path(__file__).with_name("cells.py")
BUILT = ("rope_lessons", "pyproject.toml", "README.md", "LICENSE")  # what a wheel is made of


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def one(setting: Setting, name: str) -> Found:
    """All cells of a notebook, in a process of its own that sees the wheel and not the repository."""
    package, made_by = installed(setting.work)
    found = Found(about={"notebook": name, "package": made_by})
    with tempfile.TemporaryDirectory() as folder:
        program, notebook = (shutil.copy(path, folder) for path in (CELLS, FOLDER / f"{name}.ipynb"))
        report = Path(folder) / "report.json"
        line = [sys.executable, program, notebook, str(report), setting.device.type]
        most = setting.by_scale([], [], ["3"])  # the tests run all of them elsewhere
        own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONPATH": str(package)}
        if setting.device.type == "cpu":
            own["CUDA_VISIBLE_DEVICES"] = ""
        try:
            left = max(1.0, setting.left - 5)
            done = subprocess.run([*line, *most], cwd=folder, env=own, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired as error:
            raise OutOfTime from error
        if not report.exists():
            return Found(about=found.about, wrong=[done.stderr[-3000:] or f"status {done.returncode}"])
        said = json.loads(report.read_text("utf8"))
    cells, package_at = said.pop("cells"), said.pop("package")
    found.tables["cells"] = cells
    found.about |= {**said, "package_at": package_at, "seconds": round(sum(row["seconds"] for row in cells), 1)}
    needed = {row["needs"] for row in cells if row.get("needs")}
    found.about["missing"] = sorted(needed)
    found.wrong += [f"cell {row['cell']}: {row['error']}" for row in cells if row["error"] and not row.get("needs")]
    if not str(found.about["package_at"]).startswith(str(package)):
        found.wrong.append(f"it imported {found.about['package_at']}, not the wheel's package")
    if said["device"] not in (None, setting.device.type):
        found.wrong.append(f"the notebook's device is {said['device']}, not {setting.device.type}")
    if setting.device.type == "cuda" and said["device"] is not None and not said["peak_bytes"]:
        found.wrong.append("it found the card and put nothing on it")
    return found


def installed(work: Path) -> tuple[Path, str]:
    """A folder with this package as the wheel has it, and how it was made. It is made once on a machine."""
    target = work.resolve() / "wheel" / digest()
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=target.parent))
        (unfinished / "made_by").write_text(make(unfinished), "utf8")
        with contextlib.suppress(OSError):  # another process was faster
            unfinished.rename(target)
        shutil.rmtree(unfinished, ignore_errors=True)
    return target, (target / "made_by").read_text("utf8")


def digest() -> str:
    """Of the package: between two commands on a machine it may change."""
    found = hashlib.sha256()
    for path in sorted((ROOT / "rope_lessons").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


SKIPPED = shutil.ignore_patterns("__pycache__")


def make(target: Path) -> str:
    """Build the wheel and unpack it; where it cannot be built, copy the package's folder, and say why."""
    try:
        if absent(("setuptools",)):
            raise ImportError("setuptools is not here")
        return unpacked_wheel(target)
    except (ImportError, subprocess.CalledProcessError) as error:
        why = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]
        shutil.copytree(ROOT / "rope_lessons", target / "rope_lessons", ignore=SKIPPED)
        return f"a copy of the package, since the wheel could not be built: {why}"


def unpacked_wheel(target: Path) -> str:
    """Build the wheel and unpack it.

    Raises:
        CalledProcessError: it cannot be built.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in BUILT:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, f"{folder}/{name}", ignore=SKIPPED)
            else:
                shutil.copy(ROOT / name, folder)
        program = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, capture_output=True, text=True)
        [wheel] = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as file:
            file.extractall(target)
        return f"the wheel {wheel.name}"
