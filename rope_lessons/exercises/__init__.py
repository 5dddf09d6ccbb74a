"""Exercises that grade themselves: ``check("radix.digits", my_digits)`` says ✓ or names the mistake.

Each chapter has a module here with a dictionary ``EXERCISES``. An exercise is its right answer, the arguments to
try it on, and the mistakes that people make, each as *the wrong answer itself* with the message meant for it.
"""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

CHAPTERS = (
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
    "gpu",
)


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    ``reference`` is the right answer, a function when ``cases`` lists arguments to call it with, else a value.
    ``mistakes`` maps a message to the wrong function (or value) that earns it. ``normalise`` is applied to both
    sides before they are compared, for answers that may be right in more than one form.
    """

    reference: Any
    mistakes: Mapping[str, Any]
    cases: Sequence[tuple] = ()
    tolerance: float = 1e-6
    normalise: Callable[[Any], Any] = field(default=lambda answer: answer)


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


class _NotAnswered(Exception):
    pass


def find(name: str) -> Exercise:
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
        got = _results(exercise, answer)
    except _NotAnswered:
        return Verdict(name, False, "not answered yet: replace the ... and run the cell again", answered=False)
    except Exception as error:  # the reader's own code may raise anything: say what, and go on
        return Verdict(name, False, f"your answer raised {type(error).__name__}: {error}")
    expected = _results(exercise, exercise.reference)
    if _same(got, expected, exercise.tolerance):
        return Verdict(name, True, "correct")
    for message, wrong in exercise.mistakes.items():
        if _same(got, _results(exercise, wrong), exercise.tolerance):
            return Verdict(name, False, message)
    return Verdict(name, False, _first_difference(exercise, got, expected))


def _results(exercise: Exercise, answer: Any) -> list:
    """The answer's value on every case (or the answer itself), normalised."""
    # Copies: an answer that works in place must not change the cases for the next one.
    values = (
        [answer(*copy.deepcopy(case)) for case in exercise.cases] if exercise.cases and callable(answer) else [answer]
    )
    if any(value is None or value is ... for value in values):
        raise _NotAnswered
    if exercise.cases and not callable(answer):
        raise TypeError(f"expected a function of {len(exercise.cases[0])} arguments, got {answer!r}")
    return [exercise.normalise(value) for value in values]


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    if isinstance(a, bool) or isinstance(b, bool):
        return type(a) is type(b) and a == b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return _same_tensor(a, b, tolerance)
    if isinstance(a, Sequence) and isinstance(b, Sequence):
        return len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return _same_tensor(a, b, tolerance)


def _same_tensor(a: Any, b: Any, tolerance: float) -> bool:
    try:
        a, b = torch.as_tensor(a), torch.as_tensor(b)
    except (TypeError, ValueError, RuntimeError):
        return False
    if a.shape != b.shape:
        return False
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
    return (
        f"entry {list(where)} of what you returned is {float(value[where]):.4f}; expected {float(right[where]):.4f} "
        f"({int(differs.sum())} of {differs.numel()} entries differ)"
    )


def _short(value: Any, limit: int = 120) -> str:
    if isinstance(value, torch.Tensor):
        text = f"a tensor of shape {tuple(value.shape)}" if value.numel() > 8 else str(value.tolist())
    else:
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
