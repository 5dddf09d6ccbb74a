"""The models of the table that travel with the package, and a part of its test text.

``python -m experiments table --ship`` writes them. Chapter 12.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from rope_lessons._checks import check_choice
from rope_lessons._extras import extra
from rope_lessons.lab import sizes, training
from rope_lessons.lab.checkpoint import CheckpointError, read_tensors
from rope_lessons.lab.table.scoring import SETS, cut, score
from rope_lessons.lab.text import repeated_windows
from rope_lessons.lab.training import Recipe
from rope_lessons.stored import DATA, read_results

SHIPPED_TEXT = DATA / "table_eval_text.json"
FORMAT = "rope_lessons shipped model 2"


def names() -> list[str]:
    """The trainings whose model travels with the package."""
    return sorted(path.stem.removeprefix("table_") for path in DATA.glob("table_*.safetensors"))


def load(name: str, folder: Path = DATA) -> tuple[nn.Module, Recipe]:
    """A shipped model, in float32, and the recipe of its training. Its weights were rounded to bfloat16.

    Args:
        name: of the training, one of :func:`names`.
        folder: of the files.

    Raises:
        CheckpointError: no such file, one that is no shipped model, or one of another version of this package.

    Chapter 12.
    """
    with extra("book", "a stored model"):
        import safetensors  # noqa: F401 - a reader of the book has that extra, and not the lab's

    path = folder / f"table_{name}.safetensors"
    if not path.exists():
        there = ", ".join(sorted(file.stem.removeprefix("table_") for file in folder.glob("table_*.safetensors")))
        raise CheckpointError(f"no model is shipped for {name!r}; there are {there or 'none'}")
    weights, about, _ = read_tensors(path, FORMAT)
    try:
        made_for = json.loads(about["recipe"])
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} has no recipe: {error!r}") from error
    recipe = training.recipe_from(made_for, path)
    model = sizes.build(recipe.config, recipe.seed, recipe.row.method.train)
    try:
        model.load_state_dict({key: value.float() for key, value in weights.items()})
    except RuntimeError as error:
        told = " ".join(str(error).split())  # it has lines
        raise CheckpointError(f"{path} does not hold the weights of its recipe: {told}") from error
    return model.eval(), recipe


def retest(model: nn.Module, recipe: Recipe, row: str, windows: Tensor, times: int = 8) -> dict[str, Tensor]:
    """Test a model with a row of the table again.

    Args:
        model, recipe: as :func:`load` gives them.
        row: one that the model serves.
        windows: int64 ``(windows, longest + 1)``, as the table's test text.
        times: length of the pieces as a multiple of the training length.

    Returns:
        the share of right tokens of each window, float64 ``(windows,)``, for both sets.

    Raises:
        ValueError: a row of another training.

    Chapter 12.
    """
    known = [name for name, other in recipe.rows.items() if other.training == recipe.row.training]
    check_choice("row", row, known)
    natural = cut(windows, times * recipe.train_length)
    found = {}
    for kind, tokens in zip(SETS, (natural, repeated_windows(natural, recipe.train_length)), strict=True):
        hits, _ = score(model, recipe.rows[row], tokens)
        found[kind] = hits.view(len(windows), -1).mean(dim=1)
    return found


def windows(path: Path = SHIPPED_TEXT) -> Tensor:
    """The shipped part of the table's test text, int64 ``(windows, length + 1)``: each window of a document of its own.

    Args:
        path: of the file that ``python -m experiments table --ship`` wrote.

    Chapter 12.
    """
    return torch.tensor([list(window.encode("latin-1")) for window in read_results(path)["windows"]])


def accuracies(path: Path = SHIPPED_TEXT) -> dict[str, dict[str, float]]:
    """What seed 0 had on the shipped windows at 8 times the training length, before its weights were rounded.

    Args:
        path: as for :func:`windows`.

    Returns:
        ``{row: {set: accuracy}}``.
    """
    accuracies: dict[str, dict[str, float]] = read_results(path)["accuracies"]
    return accuracies
