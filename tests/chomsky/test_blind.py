"""The blind predictor: exact tables against full enumeration and against samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
import torch

from rope_lessons.chomsky import TASKS, Task, blind_accuracy, blind_score
from rope_lessons.chomsky.blind import counted_table, token_table

EXACT = [
    replace(task, variant=variant)
    for task in TASKS.values()
    for variant in task.variants
    if task.name != "binary_multiplication" and variant != "big-endian"
]
every_exact = pytest.mark.parametrize("task", EXACT, ids=lambda task: f"{task.name}-{task.variant}")

# Tasks whose inputs of a length are all the strings over an alphabet, each as often (but for those that are refused).
ENUMERATED = {
    "even_pairs": "01",
    "parity_check": "01",
    "cycle_navigation": "012",
    "reverse_string": "01",
    "duplicate_string": "01",
    "odds_first": "01",
    "compute_sqrt": "01",
    "bucket_sort": "01234",
}


def strings(task: Task, length: int) -> list[tuple[list[int], Fraction]]:
    """All inputs with their chances."""
    if task.name in ENUMERATED:
        words = [task.encode(word) for word in product(ENUMERATED[task.name], repeat=length)]
        words = [word for word in words if any(word) or task.name != "compute_sqrt"]
        return [(word, Fraction(1, len(words))) for word in words]
    if task.name == "modular_arithmetic":
        columns = [range(5) if place % 2 == 0 else (5, 6, 7) for place in range(task.input_length(length))]
        words = [list(word) for word in product(*columns)]
        return [(word, Fraction(1, len(words))) for word in words]
    found = []
    if task.name == "stack_manipulation":
        for first in range(1, length):
            for word in product(*[(0, 1)] * first, *[(2, 3, 4)] * (length - first)):
                found.append((list(word), Fraction(1, (length - 1) * 2**first * 3 ** (length - first))))
    if task.name == "binary_addition":
        for first in range(1, length - 1):
            sides = [
                [word for word in product((0, 1), repeat=size) if any(word)] for size in (first, length - 1 - first)
            ]
            for a, b in product(*sides):
                found.append(([*a, 2, *b], Fraction(1, (length - 2) * len(sides[0]) * len(sides[1]))))
    return found


@pytest.mark.parametrize("length", [3, 4, 5, 6])
@pytest.mark.parametrize("name", [*ENUMERATED, "modular_arithmetic", "stack_manipulation", "binary_addition"])
def test_tables_by_enumeration(name: str, length: int) -> None:
    for task in (task for task in EXACT if task.name == name):
        expected = torch.zeros(task.output_length(length), task.output_size, dtype=torch.float64)
        chances: Counter[tuple[int, int]] = Counter()
        for tokens, chance in strings(task, length):
            answer = task.answer(tokens)
            counted = answer.index(2) + 1 if task.output_size == 3 else len(answer)
            for place, token in enumerate(answer[:counted]):
                chances[place, token] += chance
        for (place, token), chance in chances.items():
            expected[place, token] = float(chance)
        torch.testing.assert_close(token_table(task, length), expected, rtol=0, atol=1e-12)


@every_exact
@pytest.mark.parametrize("length", [1, 2, 5, 24])
def test_tables_by_counting(task: Task, length: int) -> None:
    table = token_table(task, length)
    assert table is not None
    counted = counted_table(task, length, 2000, torch.Generator().manual_seed(length))
    sigma = (table * (1 - table) / 2000).clamp(min=0).sqrt()
    assert ((table - counted).abs() <= 5 * sigma + 1e-9).all()


@every_exact
def test_tables_at_length_500(task: Task) -> None:
    """Chances still, after 500 steps and 250-bit counts; the first token always counts."""
    table = token_table(task, 500)
    assert table is not None
    assert table.min() >= -1e-9
    assert table.max() <= 1 + 1e-9
    torch.testing.assert_close(table[0].sum().item(), 1.0, rtol=0, atol=1e-9)


def test_bucket_sort_is_nearly_known_beforehand() -> None:
    """Far above the 20% of chance, and above the 90% at which the benchmark calls a task solved."""
    sort = TASKS["bucket_sort"]
    accuracies = [blind_accuracy(sort, length) for length in (1, 40, 100, 200, 500)]
    assert accuracies == sorted(accuracies)
    assert accuracies[0] == pytest.approx(0.2)
    assert accuracies[1] > 0.75
    assert accuracies[3] < 0.9 < accuracies[4]
    assert blind_score(sort) == pytest.approx(0.9013, abs=1e-4)


def test_brackets_are_zero_more_often() -> None:
    task = TASKS["modular_arithmetic_brackets"]
    assert blind_accuracy(task, 500) > 0.3
    assert blind_accuracy(replace(task, variant="no-multiplication"), 500) == pytest.approx(0.2)


def test_uniform_answers_stay_at_chance() -> None:
    for name in ("parity_check", "even_pairs", "reverse_string", "duplicate_string", "missing_duplicate_string",
                 "odds_first", "solve_equation", "modular_arithmetic", "cycle_navigation"):  # fmt: skip
        assert blind_score(TASKS[name], (41, 100)) == pytest.approx(TASKS[name].chance, abs=1e-3)


def test_counted_predictor_is_scored_on_other_strings() -> None:
    """Fitted to one string and scored on itself it would be perfect."""
    task = TASKS["binary_multiplication"]
    assert token_table(task, 60) is None
    one = [blind_accuracy(task, 60, 1, torch.Generator().manual_seed(seed)) for seed in range(20)]
    assert 0.3 < sum(one) / 20 < 0.7
    assert blind_accuracy(task, 60, 4096, torch.Generator().manual_seed(0)) == pytest.approx(0.51, abs=0.01)


def test_errors() -> None:
    for length, error in [(0, ValueError), (2.0, TypeError)]:
        with pytest.raises(error, match="length must be an int of at least 1"):
            token_table(TASKS["bucket_sort"], length)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="samples must be an int of at least 1, got 0"):
        blind_accuracy(TASKS["binary_multiplication"], 9, samples=0)
