"""Checkpoints of a training, in safetensors: whole or not there, and refused when damaged or of another training.

A file holds tensors by name, and as metadata the format, the number of the step, the recipe of the training and a
SHA-256 of all of it. Chapter 12.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rope_lessons._checks import check_count
from rope_lessons._extras import extra
from rope_lessons.stored import Refusal, tidy, write_whole

FORMAT = "rope_lessons training 2"
NAME = re.compile(r"step-[0-9]{8,}\.safetensors")


class CheckpointError(Refusal):
    """A checkpoint that cannot be used: damaged, of another program, or of another training."""


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Args:
        path: of the file.
        step: how many steps were done; the next batch is that of this number.
        tensors: weights, state of the optimizer and losses, by name.
        recipe: everything that decides the losses, as JSON has it.
        sha256: of all of it.
    """

    path: Path
    step: int
    tensors: dict[str, Tensor]
    recipe: dict[str, Any]
    sha256: str


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.safetensors"


def stored(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted((path for path in folder.glob("step-*.safetensors") if NAME.fullmatch(path.name)), key=step_of)


def step_of(path: Path) -> int:
    """The number in the name of a checkpoint."""
    return int(path.stem.removeprefix("step-"))


def save(
    folder: Path, step: int, tensors: Mapping[str, Tensor], recipe: Mapping[str, Any], good: int | None = None
) -> Path:
    """Write a checkpoint, and delete the older ones but for one, in case that the new one is damaged.

    A process that is killed meanwhile, or a full disk, leaves the older files as they were.

    Args:
        folder: made if it is not there.
        step: how many steps were done.
        tensors: by name, on any device.
        recipe: what JSON can hold.
        good: step of the older one that stays: the last that was read or written, and so is known to be good. By
            default the newest of them.

    Returns:
        the path of the file.

    Raises:
        OSError: the file cannot be written.

    Chapter 12.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tidy(folder)  # there may be no room for both
    path = path_of(folder, step)
    write(path, step, tensors, recipe)
    keep(folder, step, good)
    return path


def write(path: Path, step: int, tensors: Mapping[str, Tensor], recipe: Mapping[str, Any]) -> None:
    """Write one checkpoint: what :func:`load` reads.

    Raises:
        OSError: the file cannot be written.
    """
    metadata = {"format": FORMAT, "step": str(step), "recipe": json.dumps(recipe, sort_keys=True)}
    write_tensors(path, tensors, metadata)


def keep(folder: Path, step: int, good: int | None = None) -> None:
    """Delete the checkpoints before a step but for one, and what killed processes have left.

    Args:
        folder: of the checkpoints.
        step: of the newest one that is good.
        good: as for :func:`save`.
    """
    tidy(folder)
    older = [path for path in stored(folder) if step_of(path) < step]
    kept = older[-1:] if good is None else [path_of(folder, good)]
    for path in older:
        if path not in kept and not path.is_dir():  # a folder that somebody put there is not ours
            path.unlink()


def load(path: Path, recipe: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a checkpoint and check all of it.

    Args:
        path: of the file.
        recipe: of the training that wants to go on with it; None takes any.

    Raises:
        CheckpointError: a file that is not there, is damaged, or was not written by :func:`save`; another recipe.

    Chapter 12.
    """
    tensors, metadata, digest = read_tensors(path, FORMAT)
    try:
        step, found = int(metadata["step"]), dict(json.loads(metadata["recipe"]))
        check_count("step", step)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} was not written by this package: no step and recipe in it, {error!r}") from error
    if recipe is not None and (different := differences(found, recipe)):
        raise CheckpointError(f"{path} is of another training: {different}")
    return Checkpoint(path, step, tensors, found, digest)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata with a SHA-256 of all of it, whole or not at all.

    Args:
        path: of the file, in a folder that is there.
        tensors: by name, on any device.
        metadata: with a ``"format"``, and without ``"sha256"``.

    Raises:
        OSError: the file cannot be written.
    """
    with extra("lab", "a checkpoint"):
        import safetensors.torch as safetensors

    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    sealed = {**metadata, "sha256": _digest(on_cpu, metadata)}
    content = safetensors.save(on_cpu, sealed)  # its save_file leaves files of other names where it is killed
    write_whole(path, lambda unfinished: unfinished.write_bytes(content))


def read_tensors(path: Path, wanted: str) -> tuple[dict[str, Tensor], dict[str, str], str]:
    """What :func:`write_tensors` wrote.

    Args:
        path: of the file.
        wanted: its format.

    Returns:
        tensors, metadata and the SHA-256.

    Raises:
        CheckpointError: a file that is not there, is damaged, or of another format.
    """
    with extra("lab", "a checkpoint"):
        from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names}
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is not there") from error
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is damaged, or no safetensors file: {error}") from error
    digest = metadata.pop("sha256", "")
    if metadata.get("format") != wanted:
        raise CheckpointError(f"{path} is foreign: its format is {metadata.get('format')!r}, not {wanted!r}")
    if digest != _digest(tensors, metadata):
        raise CheckpointError(f"{path} is damaged: its content does not have the SHA-256 that it was written with")
    return tensors, metadata, digest


def check_tensors(found: Checkpoint, wanted: Mapping[str, Tensor]) -> None:
    """Compare what is in a checkpoint with what is to take it, before any of it is used. A shape that PyTorch would
    broadcast, or a dtype that it would convert, is refused as any other.

    Args:
        found: a checkpoint.
        wanted: by name, tensors of the right shape and dtype.

    Raises:
        CheckpointError: a tensor that is missing, that nothing takes, or of another shape or dtype.
    """
    there, here = (
        {name: f"{tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors.items()}
        for tensors in (found.tensors, wanted)
    )
    if different := differences(there, here):
        raise CheckpointError(f"{found.path} does not hold the tensors of this training: {_brief(different)}")


def newest(folder: Path, recipe: Mapping[str, Any], say: Callable[[str], None] = print) -> Checkpoint | None:
    """The newest checkpoint of a training that can be used; None where there is none at all.

    Args:
        folder: of the checkpoints.
        recipe: of the training.
        say: takes a message about each file that is refused.

    Raises:
        CheckpointError: there are files, and none can be used. A training does not begin anew over them in silence.

    Chapter 12.
    """
    paths = stored(folder)
    refused = []
    for path in reversed(paths):
        try:
            found = load(path, recipe)
        except CheckpointError as error:
            refused.append(str(error))
            continue
        for message in refused:
            say(f"{message}. Going on from {path.name}, the one before.")
        return found
    if paths:
        raise CheckpointError(
            f"no checkpoint in {folder} can be used: {'; '.join(refused)}. Delete the folder to begin anew, or choose "
            f"another one"
        )
    return None


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What two recipes do not agree on, in words; empty where they agree.

    >>> differences({"batch": 32, "seed": 0}, {"batch": 64, "seed": 0})
    'batch is 32 there and 64 here'
    """
    here = json.loads(json.dumps(here))  # tuples become lists, as in the file
    names = sorted(there.keys() | here.keys())
    missing = "missing"
    pairs = [(name, there.get(name, missing), here.get(name, missing)) for name in names]
    return ", ".join(f"{name} is {_brief(a)} there and {_brief(b)} here" for name, a, b in pairs if a != b)


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    found = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
