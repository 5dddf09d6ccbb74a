"""The finished trainings that a table is made of, and what is known of a tested one. Chapter 12."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rope_lessons.lab import checkpoint, training
from rope_lessons.lab.rows import TableRow, own_row
from rope_lessons.lab.training import Recipe
from rope_lessons.stored import Refusal, read_sealed, write_sealed

ABOUT = "trained.json"  # in the folder of a training: what the table says of it, once its weights are gone too


class TableError(Refusal):
    """Models that cannot be put into one table."""


@dataclass(frozen=True)
class Trained:
    """A finished training: its folder and its checkpoint."""

    folder: Path
    recipe: Recipe
    sha256: str
    corpus: str

    @property
    def group(self) -> Recipe:
        """Models that differ in nothing but the seed stand in one line."""
        return replace(self.recipe, seed=0)

    @property
    def weights(self) -> Path | None:
        """Its last checkpoint; None where only what was counted is left."""
        return max(checkpoint.stored(self.folder), key=checkpoint.step_of, default=None)

    def load(self, device: torch.device | str = "cpu") -> nn.Module:
        """The model, ready to be tested, where the weights are here."""
        path = self.weights
        if path is None:
            raise TableError(f"{self.folder} has no weights")
        return training.load(path, device)[0]

    def keep_about(self, tested: Mapping[str, str]) -> None:
        """Write down where it is tested: what :func:`about_of` reads."""
        identity = training.identity(self.recipe, self.corpus)
        write_sealed(self.folder / ABOUT, {"recipe": identity, "sha256": self.sha256, "tested": tested})


def find(places: Iterable[Path]) -> list[Trained]:
    """The finished trainings in some folders and the folders in them, those of packed files too.

    Raises:
        TableError: a place without one; a training that is not finished, or that is there twice.
        CheckpointError: a checkpoint that cannot be used.
    """
    found: dict[Path, Trained] = {}
    for place in places:
        with_weights = {path.parent for path in place.rglob("step-*.safetensors") if checkpoint.stored(path.parent)}
        folders = sorted(with_weights | {path.parent for path in place.rglob(ABOUT)})
        if not folders:
            raise TableError(f"{place} must hold a training, but there is no checkpoint in it")
        found.update({folder.resolve(): _trained(folder) for folder in folders if folder.resolve() not in found})
    trainings: dict[Recipe, Trained] = {}
    for model in found.values():
        if (other := trainings.setdefault(model.recipe, model)) is not model:
            raise TableError(f"{other.folder} and {model.folder} hold the same training: its seed would count twice")
    return list(found.values())


def _trained(folder: Path) -> Trained:
    if checkpoint.stored(folder):
        _, recipe, stored = training.load(checkpoint.stored(folder)[-1])
        if stored.step < recipe.steps:
            raise TableError(f"{folder} is not finished: step {stored.step} of {recipe.steps}. Train on first")
        return Trained(folder, recipe, stored.sha256, stored.recipe["corpus"])
    try:
        about = about_of(folder)
    except ValueError as error:
        raise TableError(f"{error}. There are no weights beside it: delete {folder}") from error
    recipe = training.recipe_from(about["recipe"], folder / ABOUT)
    return Trained(folder, recipe, about["sha256"], about["recipe"]["corpus"])


def about_of(folder: Path) -> dict[str, Any]:
    """What is known of a tested model.

    Raises:
        FileNotFoundError: it is not tested.
        ValueError: a damaged file.
    """
    try:
        about = read_sealed(folder / ABOUT)
        if missing := {"recipe", "sha256", "tested"} - about.keys():
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / ABOUT} is damaged: {error}") from error
    return about


def rows_of(recipe: Recipe, wanted: Sequence[str] | None = None) -> list[TableRow]:
    """The rows that a model is tested with, the plan of its training first.

    Args:
        recipe: of the model.
        wanted: names of rows; all if None.
    """
    shared = [row for row in recipe.rows.values() if row.training == recipe.row.training]
    kept = [row for row in shared if wanted is None or row.name in wanted]
    return [own_row(shared[0]), *kept] if kept else []
