"""Every exercise's checker: the solution passes, the blank stub does not, each wrong answer gets its own message."""

from __future__ import annotations

import copy
import functools
import importlib
import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rope_lessons.exercises import CHAPTERS, Exercise, Lab, check, find, plain
from tools.myst import Directive, walk
from tools.project import ROOT, chapter_pages

PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
CHECK = re.compile(r"""check\(\s*["']([\w.]+)["'],\s*(\w+)\s*\)""")


def registry() -> dict[str, Exercise | Lab]:
    modules = {chapter: importlib.import_module(f"rope_lessons.exercises.{chapter}") for chapter in CHAPTERS}
    return {f"{chapter}.{name}": e for chapter, module in modules.items() for name, e in module.EXERCISES.items()}


def tasks() -> list[tuple[str, str, str, str, Path]]:
    """(checker, name of the answer, the stub's cell, the solution's code, page) of every exercise in the text.

    After an exercise comes the cell with its ``check``, then its solution.
    """
    found = []
    others = [ROOT / "book" / f"{name}.md" for name in ("quickstart", "articles_model", "bug_museum")]
    for path in [*chapter_pages(ROOT), *others]:
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
    """The page's first cell; that of the quickstart comes after a picture."""
    cells = (block for block in walk(path.read_text("utf8"), 1, path) if isinstance(block, Directive))
    return next(block.body for block in cells if block.name == "code-cell" and "import torch" in block.body)


def first_cell(path: Path) -> dict[str, Any]:
    """What the page's first cell, its imports, gives to every later cell."""
    names: dict[str, Any] = {}
    exec(imports(path), names)
    return names


@each_task
def test_solution_passes(task: tuple[str, str, str, str, Path]) -> None:
    name, answer, stub, code, path = task
    names = first_cell(path)
    exec(CHECK.sub("None", stub), names)  # what the cell defines besides the answer need not be printed again
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
def test_wrong_answers_get_their_message(name: str, exercise: Exercise | Lab) -> None:
    assert len(exercise.mistakes) >= 2
    for message, wrong in exercise.mistakes.items():
        verdict = check(name, wrong)
        assert not verdict
        # What comes out of a lab is said in numbers, which are the model's.
        said = verdict.message[: len(message)] if isinstance(exercise, Lab) else verdict.message
        assert said == message
    assert check(name, exercise.reference)


def test_text_and_registry_agree() -> None:
    """Every checker belongs to one exercise of its own chapter, or of the quickstart."""
    used = [task[0] for task in TASKS]
    assert sorted(used) == sorted(registry())
    assert all(name.split(".")[0] == re.sub(r"^\d\d_", "", path.stem) for name, _, _, _, path in TASKS)


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


# Answers that are nearly right, each with what the verdict has to say.
NEARLY = {
    "no floor": ("radix.digits", lambda n, base, length: [n / base**t % base for t in range(length)], "whole number"),
    "no floor, mixed": (
        "mixed_radix.digits",
        lambda n, bases: [n / math.prod(bases[:t]) % base for t, base in enumerate(bases)],
        "whole number",
    ),
    "a base with decimals": (
        "radix.smallest_base",
        lambda limit, length: limit ** (1 / length) + 0.999,
        "you returned 13.598",
    ),
    "half a channel": ("rotary.reorder", lambda dim: [2 * c % dim + 2 * c / dim for c in range(dim)], "divide with //"),
    "a window with decimals": (
        "local.largest_window",
        lambda layers, length: (0.75 * length - 1) / (layers - 1) + 1,
        "round down",
    ),
    "half a group": (
        "rerope.grouped",
        lambda i, j, w, g: i - j if i - j < w else i / g - j // g + w - w // g,
        "expected",
    ),
    "rounded up": (
        "invleaky.slope_needed",
        lambda n, w, factor: math.ceil((factor * n - 1 - w) / (n - 1 - w)),
        "the slope need not be whole: do not round it up",
    ),
    "padding that counts": (
        "entropy.counts",
        lambda real, window: [sum(real[max(0, i - window + 1) : i + 1]) for i in range(len(real))],
        "padding sees nothing",
    ),
    "float32": (
        "sinusoidal.power_frequencies",
        lambda dim, alpha: (1 - torch.arange(0, dim, 2) / dim) ** (1 / alpha),
        "asked is a float64 tensor, you returned float32",
    ),
    "float32 angles": (
        "rotary.half_layout",
        lambda x, positions, frequencies: torch.cat(
            (
                x.chunk(2, -1)[0] * (positions[:, None] * frequencies.float()).cos()
                - x.chunk(2, -1)[1] * (positions[:, None] * frequencies.float()).sin(),
                x.chunk(2, -1)[0] * (positions[:, None] * frequencies.float()).sin()
                + x.chunk(2, -1)[1] * (positions[:, None] * frequencies.float()).cos(),
            ),
            dim=-1,
        ),
        "float32",
    ),
    "0**0": (
        "mixed_radix.shares",
        lambda pairs, factor, b: [factor ** (((t + 1) / pairs) ** b - (t / pairs) ** b) for t in range(pairs)],
        "0**0",
    ),
    "2 + π for 2π": (
        "mixed_radix.stability",
        lambda frequencies, length: sum(length < (2 + math.pi) / w for w in frequencies) / len(frequencies),
        "expected",
    ),
    "a pop without a look": ("chomsky.stack", lambda stack, actions: [].pop(), "; a pop of an empty stack does"),
    "tasks by name": ("chomsky.states", lambda answer, symbols, longest: 2, "(ends_differ, (0, 1), 4)"),
    "no distance 0": ("rerope.bent", lambda x, w, s: min(abs(x), w + s * (abs(x) - w)) * x / abs(x), "ZeroDivision"),
    "rows up for rows away": (
        "axes.mirage",
        lambda omega, hands, away: max(sum(math.cos(w * (a - 1)) for w in omega[:hands]) / hands for a in away),
        "expected",
    ),
    "opposite hands agree": (
        "axes.mirage",
        lambda omega, hands, away: max(abs(sum(math.cos(w * a) for w in omega[:hands])) / hands for a in away),
        "you returned 0.971",
    ),
    "one pair too many": ("gpu.pairs", lambda n, w: _pairs_and_one(n, w), "expected"),
    "the running maximum forgotten": ("gpu.online", lambda *case: _block_maximum(*case), "OverflowError"),
    "half a token": ("gpu.largest", lambda memory, heads, item: (memory / (2 * heads * item)) ** 0.5, "expected"),
    "a mask of sums": (
        "local.lambda_mask",
        lambda length, window, sinks: _summed_mask(length, window, sinks),
        "is 2.0000; expected 1.0000",
    ),
    "one case forgotten": (
        "rerope.bent",
        lambda x, w, s: math.copysign(min(abs(x), w + s * (abs(x) - w)), x) if x else None,
        "you returned None",
    ),
    "not a function": ("radix.digits", 6202, "expected a function of 3 arguments, got 6202"),
    "a string": ("rotary.direction", "6.0", "not the right value"),
    "one tensor": ("local.extra_channel", lambda q, k, slope: q, "return both"),
}


def _pairs_and_one(length: int, window: int) -> list[int]:
    diagonal, before, far = find("gpu.pairs").reference(length, window)
    return [diagonal, before, far + (length > 1000)]


def _block_maximum(scores: list[float], values: list[float], block: int) -> tuple[float, float]:
    top, total, output = -math.inf, 0.0, 0.0
    for start in range(0, len(scores), block):
        piece = scores[start : start + block]
        new = max(piece)
        shrink, weights = math.exp(top - new), [math.exp(x - new) for x in piece]
        total = total * shrink + sum(weights)
        output = output * shrink + sum(w * v for w, v in zip(weights, values[start:], strict=False))
        top = new
    return output / total, top + math.log(total)


def _summed_mask(length: int, window: int, sinks: int) -> torch.Tensor:
    i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
    return (j <= i) * ((i - j < window).int() + (j < sinks).int())


@pytest.mark.parametrize("case", NEARLY)
def test_what_is_nearly_right_is_refused(case: str) -> None:
    name, answer, says = NEARLY[case]
    verdict = check(name, answer)
    assert not verdict, case
    assert says in verdict.message


ALSO_RIGHT = {
    "the factor by the largest distances": (
        "circles.served_factor",
        lambda prompt, max_new, seen, declared: max(1.0, (prompt + max_new - 1) / (seen - 1)),
    ),
    "the places of the smallest keys": (
        "random_positions.subset",
        lambda keys, length: keys.argsort(dim=-1)[:, :length].sort(dim=-1).values,
    ),
    "a fraction": ("mixed_radix.far_share", lambda n, d: Fraction((n - d) * (n - d + 1), n * (n + 1))),
    "a truth value for a bit": ("chomsky.even_pairs", lambda bits: bits[0] != bits[-1]),
    "a mask of ones": ("local.lambda_mask", lambda *case: find("local.lambda_mask").reference(*case).int()),
    "whole tokens": ("gpu.long_enough", lambda *case: math.ceil(find("gpu.long_enough").reference(*case))),
    "float64 from NumPy": (
        "sinusoidal.power_frequencies",
        lambda dim, alpha: (1 - np.arange(0, dim, 2) / dim) ** (1 / alpha),
    ),
}


@pytest.mark.parametrize("case", ALSO_RIGHT)
def test_what_is_right_in_another_way_is_accepted(case: str) -> None:
    assert check(*ALSO_RIGHT[case])


def _as_array(answer: Any) -> Any:
    return answer.numpy() if isinstance(answer, torch.Tensor) else np.array(answer)


def _as_tuple(answer: Any) -> Any:
    return tuple(answer) if isinstance(answer, list) else answer


def _as_tensor(answer: Any) -> Any:
    return answer if isinstance(answer, torch.Tensor) else torch.tensor(answer, dtype=torch.float64)


def _more(answer: Any) -> Any:
    """Every number larger by 0.4, which ``int()`` would take off again."""
    if isinstance(answer, list):
        return [_more(value) for value in answer]
    return answer.double() + 0.4 if isinstance(answer, torch.Tensor) else answer + 0.4


def changed(exercise: Exercise, change: Callable[[Any], Any]) -> Any:
    """The right answer with its result changed."""
    if not exercise.cases:
        return change(exercise.reference)
    return lambda *arguments: change(exercise.reference(*arguments))


# One returns a pair of tensors and one a name, which is neither an array nor a number; and what a lab asks for, it says
# itself.
ONE_RESULT = {
    name: exercise
    for name, exercise in registry().items()
    if name not in ("local.extra_channel", "shootout.choose") and isinstance(exercise, Exercise)
}


@pytest.mark.parametrize("name", ONE_RESULT)
@pytest.mark.parametrize("form", [_as_array, _as_tuple, _as_tensor])
def test_the_form_of_an_answer_does_not_matter(name: str, form: Callable[[Any], Any]) -> None:
    verdict = check(name, changed(ONE_RESULT[name], form))
    assert verdict, verdict


@pytest.mark.parametrize("name", ONE_RESULT)
def test_no_answer_is_rounded(name: str) -> None:
    assert not check(name, changed(ONE_RESULT[name], lambda answer: _more(plain(answer))))


def test_the_exact_factor_has_mistakes_too() -> None:
    """A mistake made with the exact factor is no right answer either."""
    for wrong in (
        lambda prompt, max_new, seen, declared: (prompt + max_new - 1) / (seen - 1),
        lambda prompt, max_new, seen, declared: max(1.0, (prompt + max_new - 1) / (declared - 1)),
        lambda prompt, max_new, seen, declared: max(1.0, (prompt - 1) / (seen - 1)),
    ):
        assert not check("circles.served_factor", wrong)


def test_a_message_shows_enough_digits_to_differ() -> None:
    verdict = check(
        "sinusoidal.power_frequencies",
        lambda dim, alpha: find("sinusoidal.power_frequencies").reference(dim, alpha) + 1e-9,
    )
    assert "is 1.000000001000; expected 1.000000000000" in verdict.message
