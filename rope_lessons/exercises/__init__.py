"""Exercises that grade themselves: ``check("radix.digits", my_digits)`` says ✓ or names the mistake.

Each chapter has a module here with a dictionary ``EXERCISES``. An exercise is its right answer, the arguments to
try it on, and the mistakes that people make, each as *the wrong answer itself* with the message meant for it.
"""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from types import FunctionType
from typing import Any

import numpy as np
import torch

CHAPTERS = (
    "quickstart",
    "sinusoidal",
    "rotary",
    "radix",
    "mixed_radix",
    "circles",
    "entropy",
    "local",
    "rerope",
    "invleaky",
    "random_positions",
    "chomsky",
    "shootout",
    "articles_model",
    "gpu",
    "bug_museum",
    "axes",
    "models",
)
WHOLE = 1e-9  # the tolerance for whole numbers: one more or less is wrong, however large the number is


NO_ORDER = "a set has no order: give a list"


class WrongKind(Exception):
    """What an answer is, where something different is asked for: the message is all that the reader sees."""


def plain(answer: Any) -> Any:
    """``answer`` in Python's numbers and lists, so that a tuple, a range or an array is as right as a list.

    Tensors that have axes stay tensors. No number is rounded: 4.9 is not 4. A set is refused: it may come in any order.
    """
    if isinstance(answer, (set, frozenset)):
        raise WrongKind(NO_ORDER)
    if isinstance(answer, (torch.Tensor, np.ndarray, np.generic)):
        tensor = torch.as_tensor(answer)
        return tensor.item() if tensor.ndim == 0 else tensor
    if isinstance(answer, Integral):
        return int(answer)
    if hasattr(answer, "__float__"):
        return float(answer)
    if isinstance(answer, Iterable) and not isinstance(answer, (str, Mapping)):
        return [plain(value) for value in answer]
    return answer


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    ``reference`` is the right answer, a function when ``cases`` lists arguments to call it with, else a value.
    ``mistakes`` maps a message to the wrong function (or value) that earns it. ``also`` are other right answers, where
    the question has more than one. ``normalise`` is applied to every answer before it is compared with another.
    ``raises`` says what to do about an error that a mistake raises, by the error.
    """

    reference: Any
    mistakes: Mapping[str, Any]
    cases: Sequence[tuple] = ()
    tolerance: float = 1e-6
    normalise: Callable[[Any], Any] = plain
    also: Sequence[Any] = ()
    raises: Mapping[type[Exception], str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lab:
    """A task that is graded by what comes out of an answer, whatever it looks like.

    ``grade`` says what is missing, or ``""``; it raises :class:`WrongKind` for what is no answer. ``reference`` is a
    good answer; ``mistakes`` maps how a message begins to an answer that earns it, the naive one and one that cheats
    among them. ``reached`` says what a good answer has reached.
    """

    grade: Callable[[Any], str]
    reference: Any
    mistakes: Mapping[str, Any]
    cases: Sequence[tuple] = ()
    reached: Callable[[Any], str] | None = None


@dataclass(frozen=True)
class Verdict:
    """What ``check`` found. True when the answer is right."""

    name: str
    right: bool
    message: str
    answered: bool = True

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        mark = "✓" if self.right else "✗" if self.answered else "…"
        return f"{mark} {self.name}: {self.message}"


class NotAnswered(Exception):
    """The stub is still there."""


def find(name: str) -> Exercise | Lab:
    """The exercise called ``"chapter.exercise"``."""
    chapter, _, short = name.partition(".")
    if chapter not in CHAPTERS:
        raise ValueError(f"name must begin with one of {', '.join(CHAPTERS)}, got {name!r}")
    exercises = importlib.import_module(f"{__name__}.{chapter}").EXERCISES
    if short not in exercises:
        raise ValueError(f"name must be one of {', '.join(f'{chapter}.{key}' for key in exercises)}, got {name!r}")
    return exercises[short]


def check(name: str, answer: Any) -> Verdict:
    """Grade ``answer`` (a function, or a value) for the exercise ``name``.

    >>> check("radix.digits", lambda n, base, length: [n // base**t % base for t in range(length)])
    ✓ radix.digits: correct
    """
    exercise = find(name)
    try:
        if isinstance(exercise, Lab):
            return _graded(name, exercise, answer)
        got = _results(exercise, answer)
    except NotAnswered:
        return Verdict(name, False, "not answered yet: replace the ... and run the cell again", answered=False)
    except WrongKind as error:
        return Verdict(name, False, str(error))
    except Exception as error:  # the reader's own code may raise anything: say what, and go on
        told = f"your answer raised {type(error).__name__}: {error}"
        hint = exercise.raises.get(type(error)) if isinstance(exercise, Exercise) else None
        return Verdict(name, False, f"{told}; {hint}" if hint else told)
    right = [_results(exercise, answer) for answer in (exercise.reference, *exercise.also)]
    if any(_same(got, expected, exercise.tolerance) for expected in right):
        return Verdict(name, True, "correct")
    for message, wrong in exercise.mistakes.items():
        if _earns(exercise, wrong, got):
            return Verdict(name, False, message)
    return Verdict(name, False, _first_difference(exercise, got, right[0]))


def _earns(exercise: Exercise, wrong: Any, got: list) -> bool:
    """Whether an answer makes this mistake. One that the cases themselves refuse has said so before."""
    try:
        return _same(got, _results(exercise, wrong), exercise.tolerance)
    except WrongKind:
        return False


def _graded(name: str, lab: Lab, answer: Any) -> Verdict:
    if answer is None or answer is ...:
        raise NotAnswered
    message = lab.grade(answer)
    if message:
        return Verdict(name, False, message)
    return Verdict(name, True, f"correct: {lab.reached(answer)}" if lab.reached else "correct")


def _results(exercise: Exercise, answer: Any) -> list:
    """The answer's value on every case (or the answer itself), normalised."""
    # Copies: an answer that works in place must not change the cases for the next one.
    values = (
        [answer(*copy.deepcopy(case)) for case in exercise.cases] if exercise.cases and callable(answer) else [answer]
    )
    if all(value is None or value is ... for value in values):
        raise NotAnswered
    if exercise.cases and not callable(answer):
        raise WrongKind(f"expected a function of {len(exercise.cases[0])} arguments, got {answer!r}")
    return [exercise.normalise(value) for value in values]


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if a is None or b is None or isinstance(a, str) or isinstance(b, str):
        return bool(a == b) if type(a) is type(b) else False
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if isinstance(a, int) or isinstance(b, int):
            tolerance = min(tolerance, WHOLE)
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return _same_tensor(a, b, tolerance)


def _same_tensor(a: Any, b: Any, tolerance: float) -> bool:
    try:
        a, b = (x if isinstance(x, torch.Tensor) else torch.as_tensor(x, dtype=torch.float64) for x in (a, b))
    except (TypeError, ValueError, RuntimeError):
        return False
    if a.shape != b.shape and (a.numel() != 1 or b.numel() != 1):
        return False
    if not (a.is_floating_point() and b.is_floating_point()):
        tolerance = min(tolerance, WHOLE)
    dtype = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    return torch.allclose(a.to(dtype), b.to(dtype), rtol=tolerance, atol=tolerance, equal_nan=True)


def _first_difference(exercise: Exercise, got: list, expected: list) -> str:
    if not exercise.cases:
        return f"got {_short(got[0])}, which is not the right value"
    for case, value, right in zip(exercise.cases, got, expected, strict=True):
        if not _same(value, right, exercise.tolerance):
            arguments = ", ".join(_short(argument) for argument in case)
            return f"for the arguments ({arguments}) {_contrast(value, right, exercise.tolerance)}"
    raise AssertionError("no difference found")  # pragma: no cover - check() calls this only when they differ


def _contrast(value: Any, right: Any, tolerance: float) -> str:
    """For tensors of one shape the first entry that differs, else both values."""
    tensors = isinstance(value, torch.Tensor) and isinstance(right, torch.Tensor)
    if not tensors or value.shape != right.shape or value.ndim == 0:
        return f"you returned {_short(value)}; expected {_short(right)}"
    differs = ~torch.isclose(value.double(), right.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    where = tuple(differs.nonzero()[0].tolist())
    got, expected = float(value[where]), float(right[where])
    digits = 4 if abs(got - expected) > 1e-4 else 12  # enough of them to show a difference
    return (
        f"entry {list(where)} of what you returned is {got:.{digits}f}; expected {expected:.{digits}f} "
        f"({int(differs.sum())} of {differs.numel()} entries differ)"
    )


def _short(value: Any, limit: int = 120) -> str:
    if isinstance(value, torch.Tensor):
        text = f"a tensor of shape {tuple(value.shape)}" if value.numel() > 8 else str(value.tolist())
    elif isinstance(value, FunctionType):
        text = value.__name__.strip("_")
    else:
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
