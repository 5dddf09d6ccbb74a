"""The 15 tasks against brute force that shares nothing with them: Python's own parser, ``int``, ``sorted``, lists."""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rope_lessons.chomsky import TASKS, Task

ALL = [replace(task, variant=variant) for task in TASKS.values() for variant in task.variants]
every_task = pytest.mark.parametrize("task", ALL, ids=lambda task: f"{task.name}-{task.variant}")

lengths = st.integers(1, 60)
seeds = st.integers(0, 2**32)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(task: Task, length: int, seed: int, batch: int = 12) -> list[tuple[list[int], list[int], list[bool]]]:
    return list(zip(*(tensor.tolist() for tensor in task.sample(batch, length, seeded(seed))), strict=True))


# --- brute force ----------------------------------------------------------------------------------------------------


def residue(expression: str) -> int:
    """Modulo 5 by Python's parser, checked to hold nothing but digits and the three operations."""
    tree = ast.parse(expression, mode="eval")
    allowed = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.USub)
    assert all(isinstance(node, allowed) for node in ast.walk(tree))
    return eval(compile(tree, "", "eval")) % 5


def spelled(tokens: list[int], alphabet: str) -> str:
    return "".join(alphabet[token] for token in tokens)


def roots(equation: str) -> list[int]:
    left, right = equation.split("=")
    return [digit for digit in range(5) if residue(left.replace("x", str(digit))) == int(right)]


def ended(bits: list[int], size: int) -> list[int]:
    return (bits + [2] + [0] * size)[:size]


def final_stack(tokens: list[int]) -> list[int]:
    stack: list[int] = []
    for token in tokens:
        match token:
            case 2:
                stack = stack[:-1]
            case 0 | 1:
                stack = [*stack, token]
            case 3 | 4:
                stack = [*stack, {3: 0, 4: 1}[token]]
    return ended(stack[::-1], len(tokens) + 1)


def on_numbers(operation: Callable[[int, int], int], extra: int, order: int) -> Callable[[list[int]], list[int]]:
    """Both numbers written out and read by ``int(…, 2)``; order -1 is least significant first."""

    def answer(tokens: list[int]) -> list[int]:
        size = len(tokens) + extra
        a, b = "".join(map(str, tokens)).split("2")
        result = operation(int(a[::order], 2), int(b[::order], 2))
        return ended([int(bit) for bit in bin(result)[2:][::order]], size)

    return answer


def root(order: int) -> Callable[[list[int]], list[int]]:
    def answer(tokens: list[int]) -> list[int]:
        number = int("".join(map(str, tokens))[::order], 2)
        bits = bin(math.isqrt(number))[2:].zfill(math.ceil(len(tokens) / 2))
        return [int(bit) for bit in bits[::order]]

    return answer


def missing(tokens: list[int]) -> list[int]:
    """Of the two ways to fill the blank, the one that makes a string written twice."""
    fits = []
    for bit in (0, 1):
        filled = [bit if token == 2 else token for token in tokens if token != 3]
        if filled[: len(filled) // 2] * 2 == filled:
            fits.append(bit)
    return fits


# The task, its variant, the shortest length that is not made up, the answer to a string.
BRUTE: list[tuple[str, str, int, Callable[[list[int]], list[int]]]] = [
    ("even_pairs", "code", 1, lambda t: [("".join(map(str, t)).count("01") + "".join(map(str, t)).count("10")) % 2]),
    ("modular_arithmetic", "code", 1, lambda t: [residue(spelled(t, "01234+-*"))]),
    ("modular_arithmetic", "paper", 1, lambda t: [residue(spelled(t, "01234+-*"))]),
    ("parity_check", "code", 1, lambda t: [sum(t) & 1]),
    ("cycle_navigation", "code", 1, lambda t: [(t.count(2) - t.count(0)) % 5]),
    ("cycle_navigation", "paper", 1, lambda t: [(t.count(1) - t.count(2)) % 5]),
    ("stack_manipulation", "code", 1, final_stack),
    ("reverse_string", "code", 1, lambda t: t[::-1]),
    ("modular_arithmetic_brackets", "code", 1, lambda t: [residue(spelled(t, "01234+-*()"))]),
    ("modular_arithmetic_brackets", "no-multiplication", 1, lambda t: [residue(spelled(t, "01234+-*()"))]),
    ("solve_equation", "code", 3, lambda t: roots(spelled(t, "01234+-()x="))),
    ("duplicate_string", "code", 1, lambda t: t + t),
    ("missing_duplicate_string", "code", 2, missing),
    ("odds_first", "code", 1, lambda t: t[1::2] + t[::2]),
    ("odds_first", "paper", 1, lambda t: t[::2] + t[1::2]),
    ("binary_addition", "code", 3, on_numbers(int.__add__, 1, -1)),
    ("binary_addition", "big-endian", 3, on_numbers(int.__add__, 1, 1)),
    ("binary_multiplication", "code", 3, on_numbers(int.__mul__, 0, -1)),
    ("binary_multiplication", "big-endian", 3, on_numbers(int.__mul__, 0, 1)),
    ("compute_sqrt", "code", 1, root(1)),
    ("compute_sqrt", "paper", 1, root(-1)),
    ("bucket_sort", "code", 1, sorted),
]
NO_UNIQUE_ANSWER = {("solve_equation", "paper")}


def test_brute_force_covers_every_variant() -> None:
    assert {(name, variant) for name, variant, *_ in BRUTE} | NO_UNIQUE_ANSWER == {(t.name, t.variant) for t in ALL}


@pytest.mark.parametrize(("name", "variant", "least", "brute"), BRUTE, ids=[f"{row[0]}-{row[1]}" for row in BRUTE])
@given(length=lengths, seed=seeds)
def test_targets_by_brute_force(
    name: str, variant: str, least: int, brute: Callable[[list[int]], list[int]], length: int, seed: int
) -> None:
    task = replace(TASKS[name], variant=variant)
    for tokens, target, _ in rows(task, max(length, least), seed):
        assert target == brute(tokens)


@every_task
@given(length=lengths, seed=seeds)
def test_answer_is_the_target(task: Task, length: int, seed: int) -> None:
    """``answer`` is written apart from the sampler."""
    for tokens, target, _ in rows(task, length, seed, batch=4):
        if (task.name, task.variant) in NO_UNIQUE_ANSWER:
            continue
        assert task.answer(tokens) == target


@every_task
def test_answer_is_the_target_at_length_500(task: Task) -> None:
    """250-bit numbers, deep brackets: no integer overflows, no float rounds."""
    for tokens, target, _ in rows(task, 500, seed=1, batch=8):
        if (task.name, task.variant) not in NO_UNIQUE_ANSWER:
            assert task.answer(tokens) == target


@pytest.mark.parametrize(
    ("name", "form"), [("modular_arithmetic", "{}{}{}{}{}"), ("modular_arithmetic_brackets", "({}{}({}{}{}))")]
)
def test_all_values_of_short_expressions(name: str, form: str) -> None:
    task = TASKS[name]
    for parts in product("01234", "+-*", "01234", "+-*", "01234"):
        expression = form.format(*parts)
        assert task.answer(task.encode(expression)) == [residue(expression)]


# --- what the strings are like --------------------------------------------------------------------------------------


def test_order_levels_and_chance() -> None:
    """The published grouping (4, 4, 7), and 20% where there are five classes."""
    levels = [task.level for task in TASKS.values()]
    assert levels == ["regular"] * 4 + ["context-free"] * 4 + ["context-sensitive"] * 7
    assert all(name == task.name and task.variant == "code" for name, task in TASKS.items())
    fifths = {name for name, task in TASKS.items() if task.chance == 0.2}
    assert fifths == {
        "modular_arithmetic", "cycle_navigation", "modular_arithmetic_brackets", "solve_equation", "bucket_sort",
    }  # fmt: skip
    assert {task.chance for task in TASKS.values()} == {0.2, 0.5}


# Published: input size, output size, answer length at ℓ = 7 and 8.
SIZES = {
    "even_pairs": (2, 2, 1, 1),
    "modular_arithmetic": (9, 5, 1, 1),
    "parity_check": (2, 2, 1, 1),
    "cycle_navigation": (3, 5, 1, 1),
    "stack_manipulation": (5, 3, 8, 9),
    "reverse_string": (2, 2, 7, 8),
    "modular_arithmetic_brackets": (11, 5, 1, 1),
    "solve_equation": (11, 5, 1, 1),
    "duplicate_string": (2, 2, 14, 16),
    "missing_duplicate_string": (4, 2, 1, 1),
    "odds_first": (2, 2, 7, 8),
    "binary_addition": (3, 3, 8, 9),
    "binary_multiplication": (3, 3, 7, 8),
    "compute_sqrt": (2, 2, 4, 4),
    "bucket_sort": (5, 5, 7, 8),
}


@pytest.mark.parametrize("name", TASKS)
def test_published_sizes(name: str) -> None:
    task = TASKS[name]
    sizes = (task.input_size, task.output_size, task.output_length(7), task.output_length(8))
    assert sizes == SIZES[name]


@every_task
@given(length=lengths, seed=seeds)
def test_shapes_alphabets_masks(task: Task, length: int, seed: int) -> None:
    input, target, mask = task.sample(5, length, seeded(seed))
    assert (input.dtype, target.dtype, mask.dtype) == (torch.int64, torch.int64, torch.bool)
    assert input.shape == (5, task.input_length(length))
    assert target.shape == mask.shape == (5, task.output_length(length))
    assert 0 <= input.min() <= input.max() < task.input_size == len(task.input_symbols)
    assert 0 <= target.min() <= target.max() < task.output_size == len(task.output_symbols)
    if task.output_size != 3:
        assert mask.all()
        return
    for answer, counted in zip(target.tolist(), mask.tolist(), strict=True):  # up to the terminator, zeros behind it
        end = answer.index(2)
        assert counted == [True] * (end + 1) + [False] * (len(answer) - end - 1)
        assert not any(answer[end + 1 :])


@every_task
def test_every_symbol_is_used(task: Task) -> None:
    """The blank of the simple arithmetic and the x of the brackets are in the published alphabets, but never drawn."""
    input, target, mask = task.sample(1500, 12, seeded())
    unused = {
        "modular_arithmetic": {8},
        "modular_arithmetic_brackets": {10} if task.variant == "code" else {7, 10},
        "missing_duplicate_string": {3},  # at odd lengths only
    }
    assert set(range(task.input_size)) - set(input.flatten().tolist()) == unused.get(task.name, set())
    assert set(target[mask].tolist()) == set(range(task.output_size))


@every_task
def test_same_generator_same_batch(task: Task) -> None:
    first, again, other = (task.sample(16, 23, seeded(seed)) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    generator = seeded(3)
    assert torch.equal(task.sample(16, 23, generator)[0], first[0])
    assert not torch.equal(task.sample(16, 23, generator)[0], first[0]), "the generator moves on"


@every_task
def test_without_a_generator_torch_s_own_is_used(task: Task) -> None:
    torch.manual_seed(5)
    first = task.sample(1, 30)
    torch.manual_seed(5)
    assert all(torch.equal(a, b) for a, b in zip(task.sample(1, 30), first, strict=True))


@every_task
def test_device(task: Task, device: torch.device) -> None:
    for generator in (None, seeded(), torch.Generator(device).manual_seed(0)):
        for tensor in task.sample(3, 20, generator, device):
            assert tensor.device.type == device.type
    input, target, _ = task.sample(3, 20, torch.Generator(device).manual_seed(0))
    assert input.device.type == target.device.type == device.type
    if (task.name, task.variant) not in NO_UNIQUE_ANSWER:
        assert [task.answer(row) for row in input.tolist()] == target.tolist()


# --- the shortest strings, where the published code makes something up -----------------------------------------------


def pairs(task: Task, length: int) -> set[tuple[str, str]]:
    """All inputs and answers that come up."""
    return {
        ("".join(task.input_symbols[token] for token in tokens), task.decode(target))
        for tokens, target, _ in rows(task, length, seed=0, batch=600)
    }


def test_lengths_one_and_two_as_published() -> None:
    assert pairs(TASKS["even_pairs"], 1) == {("0", "0"), ("1", "0")}
    assert pairs(TASKS["stack_manipulation"], 1) == {("0", "0#"), ("1", "1#")}
    assert pairs(TASKS["solve_equation"], 1) == {("0", "0")}
    assert pairs(TASKS["solve_equation"], 2) == {("00", "0")}
    assert pairs(TASKS["missing_duplicate_string"], 1) == {("1", "1")}
    assert pairs(TASKS["missing_duplicate_string"], 2) == {("_0", "0"), ("0_", "0"), ("_1", "1"), ("1_", "1")}
    assert pairs(TASKS["binary_addition"], 1) == {("0", "0#")}
    assert pairs(TASKS["binary_addition"], 2) == {("00", "0#0"), ("10", "1#0"), ("01", "01#")}
    assert pairs(replace(TASKS["binary_addition"], variant="big-endian"), 2) == {
        ("00", "0#0"), ("01", "1#0"), ("10", "10#"),
    }  # fmt: skip
    assert pairs(TASKS["binary_multiplication"], 1) == {("0", "#")}
    assert pairs(TASKS["binary_multiplication"], 2) == {("00", "0#"), ("10", "0#"), ("01", "0#")}
    assert pairs(TASKS["compute_sqrt"], 1) == {("1", "1")}
    assert pairs(TASKS["compute_sqrt"], 2) == {("01", "1"), ("10", "1"), ("11", "1")}


def test_length_three() -> None:
    """The first length with two numbers, an equation, a padding token and a bracket."""
    assert pairs(TASKS["binary_addition"], 3) == {("1+1", "01#0")}
    assert pairs(TASKS["binary_multiplication"], 3) == {("1*1", "1#0")}
    assert pairs(TASKS["solve_equation"], 3) == {(f"x={digit}", str(digit)) for digit in range(5)}
    assert pairs(TASKS["modular_arithmetic_brackets"], 3) == {(f"({digit})", str(digit)) for digit in range(5)}
    assert {string for string, _ in pairs(TASKS["missing_duplicate_string"], 3)} == {"_0.", "0_.", "_1.", "1_."}


def test_expressions_of_one_digit() -> None:
    negative = {0: 0, 1: 4, 2: 3, 3: 2, 4: 1}
    for length, form, value in [(1, "{}", int), (2, "-{}", negative.get), (4, "(-{})", negative.get)]:
        expected = {(form.format(digit), str(value(digit))) for digit in range(5)}
        assert pairs(TASKS["modular_arithmetic_brackets"], length) == expected


def test_even_lengths_of_the_simple_arithmetic() -> None:
    code, paper = TASKS["modular_arithmetic"], replace(TASKS["modular_arithmetic"], variant="paper")
    assert [code.input_length(length) for length in (1, 2, 3, 4, 40, 41)] == [1, 1, 3, 3, 39, 41]
    assert [paper.input_length(length) for length in (1, 2, 3, 4, 40, 41)] == [1, 3, 3, 5, 41, 41]


# --- how the strings are distributed --------------------------------------------------------------------------------


def shares(tokens: Tensor, size: int) -> list[float]:
    return (torch.bincount(tokens.flatten(), minlength=size) / tokens.numel()).tolist()


def near(got: list[float], expected: list[float]) -> bool:
    """Within five standard deviations of 4000 draws."""
    return all(abs(a - p) <= 5 * math.sqrt(p * (1 - p) / 4000) for a, p in zip(got, expected, strict=True))


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.output_length(21) == 1])
def test_classes_of_one_token_answers(name: str) -> None:
    """Uniform, but for the brackets: a product is 0 more often than a sum."""
    task = TASKS[name]
    got = shares(task.sample(4000, 21, seeded())[1], task.output_size)
    uniform = [1 / task.output_size] * task.output_size
    assert near(got, uniform) == (name != "modular_arithmetic_brackets")


def test_first_stack_and_actions() -> None:
    input = TASKS["stack_manipulation"].sample(4000, 6, seeded())[0]
    first = (input < 2).sum(dim=1)
    assert near(shares(first, 6), [0, 0.2, 0.2, 0.2, 0.2, 0.2])
    assert ((input < 2).int().diff(dim=1) <= 0).all(), "the stack comes before the actions"
    assert near(shares(input[:, 0], 2), [0.5, 0.5])
    assert near(shares(input[:, 5] - 2, 3), [1 / 3] * 3)


@pytest.mark.parametrize("name", ["binary_addition", "binary_multiplication"])
def test_operands(name: str) -> None:
    """The operator is at each inner place as often; each number is uniform from 1 to the greatest that fits."""
    input = TASKS[name].sample(4000, 6, seeded())[0]
    split = (input == 2).int().argmax(dim=1)
    assert near(shares(split, 5), [0, 0.25, 0.25, 0.25, 0.25])
    input = TASKS[name].sample(16_000, 6, seeded(1))[0]
    rows_of_two = input[input[:, 2] == 2]  # two places, then three
    first = rows_of_two[:, 0] + 2 * rows_of_two[:, 1]
    second = rows_of_two[:, 3] + 2 * rows_of_two[:, 4] + 4 * rows_of_two[:, 5]
    assert len(first) > 3500
    assert near(shares(first, 4), [0] + [1 / 3] * 3)
    assert near(shares(second, 8), [0] + [1 / 7] * 7)


def test_roots_of_uniform_numbers() -> None:
    input = TASKS["compute_sqrt"].sample(4000, 3, seeded())[0]
    assert near(shares(input @ torch.tensor([4, 2, 1]), 8), [0] + [1 / 7] * 7)


def test_trees_of_brackets() -> None:
    """At length 8, ``(left∘right)`` with 5 = 1 + 4 = 2 + 3 = …: every split and operator as often."""
    task = TASKS["modular_arithmetic_brackets"]
    forms: dict[str, int] = {}
    for tokens in task.sample(4000, 8, seeded())[0].tolist():
        form = "".join("d" if token < 5 else task.input_symbols[token] for token in tokens)
        forms[form] = forms.get(form, 0) + 1
    splits = [("d", "(-d)"), ("-d", "(d)"), ("(d)", "-d"), ("(-d)", "d")]
    assert set(forms) == {f"({left}{operator}{right})" for left, right in splits for operator in "+-*"}
    assert near([count / 4000 for count in forms.values()], [1 / 12] * 12)


def test_where_a_tree_is_split() -> None:
    """The left part of ``(left∘right)`` is as often of each length from 1 to length - 4."""
    task, lengths = TASKS["modular_arithmetic_brackets"], []
    opening, closing = task.encode("()")
    for tokens in task.sample(4000, 14, seeded())[0].tolist():
        depths = accumulate((token == opening) - (token == closing) for token in tokens)
        places = [place for place, depth in enumerate(depths) if depth == 1 and tokens[place] in task.encode("+-*")]
        # A minus sign right after the opening bracket or after the operator belongs to a digit.
        lengths.append(next(place for place in places if place > 1) - 1)
    assert near(shares(torch.tensor(lengths), 11), [0] + [0.1] * 10)


def test_which_digit_becomes_the_unknown() -> None:
    """A uniform place, then on to the next digit: in ``(d∘d)`` the places 0, 1 lead to the first digit (and place 4,
    round the end), 2, 3 to the second."""
    task = TASKS["solve_equation"]
    input = task.sample(4000, 7, seeded())[0]
    unknown = (input == task.encode("x")[0]).int()
    assert (unknown.sum(dim=1) == 1).all()
    assert near(shares(unknown.argmax(dim=1), 4), [0, 0.6, 0, 0.4])


def test_where_the_blank_is() -> None:
    input = TASKS["missing_duplicate_string"].sample(4000, 9, seeded())[0]
    assert near(shares((input == 2).int().argmax(dim=1), 8), [1 / 8] * 8)
    assert (input[:, 8] == 3).all()


# --- the variants ---------------------------------------------------------------------------------------------------


@given(length=st.integers(3, 60), seed=seeds)
def test_equations_with_products_hold(length: int, seed: int) -> None:
    """With ``*`` the digit that was replaced is a solution, not always the only one."""
    task = replace(TASKS["solve_equation"], variant="paper")
    for tokens, target, _ in rows(task, length, seed):
        fits = roots(spelled(tokens, "01234+-*()x="))
        assert target[0] in fits
        assert len(fits) in (1, 5), "a·x + b takes a value once, or is constant"
        assert task.solutions(tokens) == fits
        assert task.answer(tokens) == fits[:1]


def test_equations_with_products_have_several_solutions() -> None:
    paper = replace(TASKS["solve_equation"], variant="paper")
    several = [len(paper.solutions(tokens)) > 1 for tokens, *_ in rows(paper, 40, seed=0, batch=200)]
    assert 0.2 < sum(several) / 200 < 0.8
    code = TASKS["solve_equation"]
    assert all(len(code.solutions(tokens)) == 1 for tokens, *_ in rows(code, 40, seed=0, batch=200))


def test_big_endian_is_the_same_task_back_to_front() -> None:
    for name in ("binary_addition", "binary_multiplication"):
        code, other = TASKS[name], replace(TASKS[name], variant="big-endian")
        for little, big in zip(rows(code, 20, seed=2), rows(other, 20, seed=2), strict=True):
            assert big[0] == little[0][::-1]
            end = little[1].index(2)
            assert big[1] == [*little[1][:end][::-1], *little[1][end:]]


# --- errors ---------------------------------------------------------------------------------------------------------


@every_task
def test_errors(task: Task) -> None:
    with pytest.raises(ValueError, match="batch must be an int of at least 1, got 0"):
        task.sample(0, 5)
    with pytest.raises(ValueError, match="length must be an int of at least 1, got 0"):
        task.sample(5, 0)
    with pytest.raises(TypeError, match=r"length must be an int of at least 1, got 5\.0"):
        task.sample(5, 5.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="variant must be one of 'code'"):
        replace(task, variant="mine")
    with pytest.raises(ValueError, match="symbol must be one of '0'"):
        task.encode("0?")


def test_not_one_expression() -> None:
    task = TASKS["modular_arithmetic_brackets"]
    with pytest.raises(ValueError, match="one expression, got 1 of 3 tokens"):
        task.answer(task.encode("1+2"))


# --- speed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.level == "regular"])
def test_sampling_keeps_up_with_training(name: str) -> None:
    """The measured figures, all above 10⁶ tokens a second, are in chomsky_tasks.json; a busy machine gets a margin."""
    task, threads = TASKS[name], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        task.sample(128, 40)
        speeds = []
        for _ in range(20):
            before = time.perf_counter()
            task.sample(128, 40)
            speeds.append(128 * 40 / (time.perf_counter() - before))
    finally:
        torch.set_num_threads(threads)
    assert max(speeds) >= 3e5
