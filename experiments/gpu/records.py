"""The files of the queue: a zip for each group, with a sealed record for each step.

A file is written again, whole or not at all, as soon as a step is done: whoever is killed loses that step alone. A
record that is damaged is named, and its step is done again.
"""

from __future__ import annotations

import hashlib
import io
import platform
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from experiments.gpu.step import Found, Setting
from experiments.hardware import processor
from rope_lessons.stored import provenance, sealed, unsealed, write_whole

SCRIPT = "python -m experiments.gpu"
MOST_BYTES = 15 * 2**20  # of a file that leaves the machine
# "begun" stays where a process was killed; "stopped" is written nowhere: the step is as if it had not been tried.
STATES = ("done", "failed", "missing", "begun", "stopped")
Say = Callable[[str], object]


@dataclass(frozen=True)
class Record:
    """What is kept of a step: ``content`` is JSON, ``files`` is what is not."""

    content: Mapping[str, Any]
    files: Mapping[str, bytes]

    @property
    def step(self) -> str:
        return str(self.content["step"])

    @property
    def state(self) -> str:
        return str(self.content["state"])

    @property
    def made_for(self) -> tuple[str, str]:
        """Kind of device, and scale: results of a try are none of a card."""
        return self.content["device"], self.content["scale"]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Of a table; none if it has no such table."""
        return list(self.content["tables"].get(table, ()))


def record(
    step: str, state: str, setting: Setting, about: Mapping[str, Any], found: Found | None = None, **more: Any
) -> Record:
    """The record of a step.

    Args:
        step: its name.
        state: one of ``STATES``.
        setting: that it was done with.
        about: what :func:`machine` says.
        found: by the step.
        more: minutes, and what went wrong.
    """
    found = found or Found()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in found.files.items()}
    content = {
        "step": step, "state": state, "device": setting.device.type, "scale": setting.scale,
        "commit": setting.commit, **about, **more,
        "about": found.about, "tables": found.tables, "files": digests, "wrong": found.wrong,
    }  # fmt: skip
    return Record(content, found.files)


# --- where it was measured -------------------------------------------------------------------------------------------


def machine(device: torch.device) -> dict[str, Any]:
    """Hardware, driver, versions, date."""
    found: dict[str, Any] = {
        "script": SCRIPT, **provenance(device), "numpy": np.__version__, "cpu": processor(),
        "system": platform.platform(),
    }  # fmt: skip
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        found |= {
            "driver": driver(), "capability": f"{card.major}.{card.minor}", "card_bytes": card.total_memory,
            "cache_bytes": getattr(card, "L2_cache_size", None), "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }  # fmt: skip
    return found


def driver() -> str | None:
    """The version of the driver, as its own tool tells it; None where it does not."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(asked, check=True, capture_output=True, text=True, timeout=20).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return None


# --- files -----------------------------------------------------------------------------------------------------------


class Records:
    """The files of a run.

    Args:
        out: folder that they are written into.
    """

    def __init__(self, out: Path):
        self.out = out

    def keep(self, new: Record) -> Record:
        """Put a record into the file of its group; the one that was kept, which says so where it was too large.

        Raises:
            OSError: the disk is full. The file is as it was.
        """
        path = self.out / f"{new.step.partition('/')[0]}.zip"
        self.out.mkdir(parents=True, exist_ok=True)
        others = {name: old for name, old in members(path, lambda told: None).items() if name != new.step}
        content = packed({**others, new.step: new})
        if len(content) > MOST_BYTES:
            told = f"{path.name} would have {len(content):,} bytes with what it found, {MOST_BYTES:,} are the most"
            new = Record({**new.content, "state": "failed", "tables": {}, "files": {}, "wrong": [told]}, {})
            content = packed({**others, new.step: new})
        write_whole(path, partial(Path.write_bytes, data=content))
        return new

    def drop(self, step: str) -> None:
        """Take a record out again."""
        path = self.out / f"{step.partition('/')[0]}.zip"
        others = {name: old for name, old in members(path, lambda told: None).items() if name != step}
        write_whole(path, partial(Path.write_bytes, data=packed(others)))


def packed(records: Mapping[str, Record]) -> bytes:
    """A zip of records, with what is no JSON beside them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, one in records.items():
            file.writestr(f"{name}.json", sealed(one.content))
            for other, content in one.files.items():
                file.writestr(f"{name}/{other}", content)
    return buffer.getvalue()


def members(path: Path, say: Say) -> dict[str, Record]:
    """The good records of a file, by step. What is damaged is said, by its name; a file that is not there has none."""
    found: dict[str, Record] = {}
    if not path.exists():
        return found
    try:
        with zipfile.ZipFile(path) as file:
            names = [name for name in file.namelist() if name.endswith(".json")]
            for name in names:
                step = str(PurePosixPath(name).with_suffix(""))
                try:
                    found[step] = _member(file, step)
                except (ValueError, KeyError, TypeError, zipfile.BadZipFile, OSError) as error:
                    say(f"{path}: {name} is damaged and not taken: {error}. The step is done again")
    except (zipfile.BadZipFile, OSError) as error:
        say(f"{path} is damaged and not taken: {error}. Its steps are done again")
    return found


def _member(file: zipfile.ZipFile, step: str) -> Record:
    content = unsealed(file.read(f"{step}.json"))
    files = {name: file.read(f"{step}/{name}") for name in content["files"]}
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != content["files"][name]:
            raise ValueError(f"{name} is not what was packed")
    one = Record(content, files)
    if one.step != step or one.state not in STATES or not isinstance(content["tables"], dict):
        raise ValueError(f"it is the record of {one.step!r}, {one.state!r}")
    return one


def read(folders: list[Path], say: Say) -> list[Record]:
    """The records of all files in some folders and the folders in them, older ones first."""
    paths = sorted({path for folder in folders for path in folder.rglob("*.zip")})
    found = [one for path in paths for one in members(path, say).values()]
    return sorted(found, key=lambda one: str(one.content["date"]))


def best(records: list[Record], made_for: tuple[str, str]) -> dict[str, Record]:
    """For each step the record that counts: the last one that is done, or else the last one."""
    found: dict[str, Record] = {}
    for one in records:
        if one.made_for == made_for and (one.state == "done" or not _done(found.get(one.step))):
            found[one.step] = one
    return found


def _done(one: Record | None) -> bool:
    return one is not None and one.state == "done"
