"""Every exercise's checker: the solution passes, the blank stub does not, each wrong answer gets its own message."""

from __future__ import annotations

import copy
import functools
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from rope_lessons.exercises import CHAPTERS, Exercise, check, find
from tools.markdown import Directive, walk
from tools.project import ROOT, chapters

PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
CHECK = re.compile(r"""check\(\s*["']([\w.]+)["'],\s*(\w+)\s*\)""")


def registry() -> dict[str, Exercise]:
    modules = {chapter: importlib.import_module(f"rope_lessons.exercises.{chapter}") for chapter in CHAPTERS}
    return {f"{chapter}.{name}": e for chapter, module in modules.items() for name, e in module.EXERCISES.items()}


def tasks() -> list[tuple[str, str, str, str, Path]]:
    """(checker, name of the answer, the stub's cell, the solution's code, chapter) of every exercise in the text.

    After an exercise comes the cell with its ``check``, then its solution.
    """
    found = []
    for path in chapters(ROOT):
        label, stub = "", ""
        for block in walk(path.read_text("utf8"), 1, path):
            if not isinstance(block, Directive):
                continue
            if block.name == "exercise":
                label, stub = block.options["label"], ""
            elif block.name == "code-cell" and label and CHECK.search(block.body):
                stub = block.body
            elif block.name == "solution":
                assert block.argument == label, f"{path}:{block.line}: the solution belongs to another exercise"
                code, call = PYTHON_BLOCK.search(block.body), CHECK.search(stub)
                assert code, f"{path}:{block.line}: the solution of {label} has no Python block"
                assert call, f"{path}: no cell with check(…) after {label}"
                found.append((call[1], call[2], stub, code[1], path))
    return found


TASKS = tasks()
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task[0])


@functools.cache
def imports(path: Path) -> str:
    """The chapter's first cell."""
    cells = (block for block in walk(path.read_text("utf8"), 1, path) if isinstance(block, Directive))
    return next(block.body for block in cells if block.name == "code-cell")


def first_cell(path: Path) -> dict[str, Any]:
    """What the chapter's first cell, its imports, gives to every later cell."""
    names: dict[str, Any] = {}
    exec(imports(path), names)
    return names


@each_task
def test_solution_passes(task: tuple[str, str, str, str, Path]) -> None:
    name, answer, _, code, path = task
    names = first_cell(path)
    exec(code, names)
    verdict = check(name, names[answer])
    assert verdict, verdict


@each_task
def test_blank_stub_fails_as_blank(task: tuple[str, str, str, str, Path]) -> None:
    name, answer, stub, _, path = task
    names = first_cell(path)
    exec(CHECK.sub("None", stub), names)
    verdict = check(name, names[answer])
    assert not verdict
    assert not verdict.answered, verdict


@pytest.mark.parametrize(
    ("name", "exercise"), registry().items(), ids=lambda value: value if type(value) is str else ""
)
def test_wrong_answers_get_their_message(name: str, exercise: Exercise) -> None:
    assert len(exercise.mistakes) >= 2
    for message, wrong in exercise.mistakes.items():
        verdict = check(name, wrong)
        assert not verdict
        assert verdict.message == message
    assert check(name, exercise.reference)


def test_text_and_registry_agree() -> None:
    """Every checker belongs to one exercise of its own chapter."""
    used = [task[0] for task in TASKS]
    assert sorted(used) == sorted(registry())
    assert all(name.split(".")[0] == path.stem[3:] for name, _, _, _, path in TASKS)


@pytest.mark.parametrize("name", [name for name, exercise in registry().items() if exercise.cases])
def test_an_answer_that_works_in_place_spoils_nothing(name: str) -> None:
    """The cases are copied for every call: what an answer does to its arguments is its own affair."""
    exercise = find(name)

    def in_place(*arguments: Any) -> Any:
        answer = exercise.reference(*copy.deepcopy(arguments))
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
                argument.zero_()
            elif isinstance(argument, list):
                argument.clear()
        return answer

    assert check(name, in_place)
    assert check(name, in_place)
