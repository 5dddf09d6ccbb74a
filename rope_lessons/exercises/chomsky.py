"""Exercises of chapter 11."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from rope_lessons.chomsky.play import playground
from rope_lessons.exercises import Exercise, Lab, NotAnswered, WrongKind

Bits = Sequence[int]


def _changes(bits: Bits) -> int:
    return sum(a != b for a, b in itertools.pairwise(bits))


def _manipulate(stack: Bits, actions: Sequence[int | str]) -> list[int]:
    """The stack, bottom first."""
    found = list(stack)
    for action in actions:
        if not isinstance(action, str):
            found.append(action)
        elif found:
            found.pop()
    return found


def _pop_from_the_bottom(stack: Bits, actions: Sequence[int | str]) -> list[int]:
    found = list(stack)
    for action in actions:
        if not isinstance(action, str):
            found.append(action)
        elif found:
            found.pop(0)
    return found[::-1]


def _top_first(stack: Bits, actions: Sequence[int | str]) -> list[int]:
    """As if the given list had its top at the beginning."""
    return _manipulate(stack[::-1], actions)[::-1]


def _layers(length: int, window: int) -> int:
    return math.ceil((2 * length - 1) / (window - 1))


def _mix(pushed: list[float], popped: list[float], kept: list[float], shares: Sequence[float]) -> list[float]:
    return [
        sum(s * x for s, x in zip(shares, places, strict=True)) for places in zip(pushed, popped, kept, strict=True)
    ]


def _soft(stack: list[float], push: float, pop: float, keep: float, value: float) -> list[float]:
    return _mix([value, *stack[:-1]], [*stack[1:], 0.0], stack, (push, pop, keep))


def _chances(length: int, t: int, least: int) -> list[float]:
    """Of each digit at place t, if token t is at most c when at least ``least`` digits are."""
    at_most = [0.0]
    for p in (0.2, 0.4, 0.6, 0.8, 1.0):
        ways = (math.comb(length, n) * p**n * (1 - p) ** (length - n) for n in range(least, length + 1))
        at_most.append(sum(ways))
    return [b - a for a, b in itertools.pairwise(at_most)]


def _guess(length: int, t: int) -> tuple[int, float]:
    chances = _chances(length, t, t + 1)
    return chances.index(max(chances)), max(chances)


def _guess_off_by_one(length: int, t: int) -> tuple[int, float]:
    chances = _chances(length, t, t)
    return chances.index(max(chances)), max(chances)


def _strings(symbols: Bits, low: int, high: int) -> list[list[int]]:
    return [list(s) for n in range(low, high + 1) for s in itertools.product(symbols, repeat=n)]


Answer = Callable[[list[int]], int]


def _states(answer: Answer, symbols: Bits, longest: int, least: int = 0, most: int = 3, shortest: int = 1) -> int:
    ahead = _strings(symbols, least, most)
    return len({tuple(answer(past + more) for more in ahead) for past in _strings(symbols, shortest, longest)})


def _states_turned_round(answer: Answer, symbols: Bits, longest: int) -> int:
    """With the continuation before the past."""
    ahead = _strings(symbols, 0, 3)
    return len({tuple(answer(more + past) for more in ahead) for past in _strings(symbols, 1, longest)})


def _parity(bits: Bits) -> int:
    return sum(bits) % 2


def _ends_differ(symbols: Bits) -> int:
    return int(len(symbols) > 0 and symbols[0] != symbols[-1])


def _last_four_are_ones(bits: Bits) -> int:
    return int(list(bits[-4:]) == [1, 1, 1, 1])


def _number_modulo_three(bits: Bits) -> int:
    """Highest bit first."""
    return int("0" + "".join(map(str, bits)), 2) % 3


def _at_least_three_symbols(bits: Bits) -> int:
    return int(len(bits) >= 3)


def _cycle(steps: Bits) -> int:
    return sum(step - 1 for step in steps) % 5


LAB_MOST = {"longest": 20, "steps": 1500, "batch": 64, "hidden": 128}  # what a training may have
LAB_MODELS = ("rnn", "lstm", "stack_rnn", "tape_rnn")
LAB_SEEDS, LAB_LENGTH, LAB_RIGHT = (0, 1), 100, 0.95


def _lab(settings: Any) -> str:
    """What trainings with these settings reach far beyond their lengths."""
    if settings is None or settings is ...:
        raise NotAnswered
    _check_settings(settings)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a model only waits for more
    try:
        return _trained(settings)
    finally:
        torch.set_num_threads(threads)


def _trained(settings: Mapping[str, Any]) -> str:
    for seed in LAB_SEEDS:
        found = playground("even_pairs", "none", "plain", seed=seed,
                           test_lengths=(settings["longest"], LAB_LENGTH),
                           **{"learning_rate": 1e-3, "batch": 32, **settings})  # fmt: skip
        home, far = found[settings["longest"]], found[LAB_LENGTH]
        if home < LAB_RIGHT:
            return f"not learned: with seed {seed} {home:.0%} at {settings['longest']} symbols, the longest of training"
        if far < LAB_RIGHT:
            return f"learned, but not the rule: with seed {seed} {home:.0%} at home and {far:.0%} at {LAB_LENGTH}"
    return ""


def _check_settings(settings: Any) -> None:
    known = ("model", "learning_rate", *LAB_MOST)
    if not isinstance(settings, dict) or not {"model", "longest", "steps"} <= set(settings):
        raise WrongKind("give a dictionary with model, longest and steps, as in the cell")
    if other := set(settings) - set(known):
        raise WrongKind(f"leave out {', '.join(sorted(map(str, other)))}: settings are {', '.join(known)}")
    if settings["model"] not in LAB_MODELS:
        raise WrongKind(f"model must be one of {', '.join(LAB_MODELS)}")
    for name, most in LAB_MOST.items():
        value = settings.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise WrongKind(f"{name} must be a whole number from 1 to {most}, got {value!r}")
    rate = settings.get("learning_rate", 1e-3)
    if not isinstance(rate, float) or not 0 < rate < 1:
        raise WrongKind(f"learning_rate must be a number between 0 and 1, got {rate!r}")


EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference={"model": "lstm", "longest": 20, "steps": 800},
        mistakes={
            "learned, but not the rule: with seed 0 100% at home": {
                "model": "rnn",
                "longest": 10,
                "steps": 500,
            },
            # Naive: more of the same training.
            "learned, but not the rule": {"model": "rnn", "longest": 10, "steps": 1500},
            "not learned": {"model": "rnn", "longest": 20, "steps": 20},
            # Cheating: train where it is tested, or longer than is allowed.
            "longest must be a whole number from 1 to 20, got 100": {"model": "rnn", "longest": 100, "steps": 500},
            "steps must be a whole number from 1 to 1500": {"model": "rnn", "longest": 20, "steps": 100_000},
            "leave out test_lengths": {"model": "rnn", "longest": 20, "steps": 500, "test_lengths": (5,)},
            "model must be one of rnn": {"model": "transformer", "longest": 20, "steps": 500},
            "learning_rate must be": {"model": "rnn", "longest": 20, "steps": 500, "learning_rate": 3},
            "give a dictionary": "lstm",
        },
    ),
    "even_pairs": Exercise(
        reference=lambda bits: bits[0] ^ bits[-1],
        cases=[([0, 0, 1, 1, 1, 0],), ([0, 1, 0, 1, 0, 0, 1],), ([1],), ([1, 0],), ([1, 1, 0, 1],), ([0, 1, 0, 1],)],
        mistakes={
            "the two classes are exchanged: an even number of changes is 0": lambda bits: 1 - (bits[0] ^ bits[-1]),
            "this is parity: it counts ones, not changes": lambda bits: sum(bits) % 2,
            "you counted the changes; the task asks only whether their number is even": _changes,
            "you counted the changes from 0 to 1 only": (
                lambda bits: sum(a < b for a, b in itertools.pairwise(bits)) % 2
            ),
        },
    ),
    "score": Exercise(
        reference=lambda accuracies, trained: sum(accuracies[trained:]) / len(accuracies[trained:]),
        cases=[([1.0, 0.9, 0.8, 0.5, 0.3], 2), ([1.0, 1.0, 1.0, 0.25, 0.5, 0.5], 3), ([0.9, 0.2, 0.4], 1)],
        mistakes={
            "the first length beyond training is missing: it has the index `trained`": (
                lambda accuracies, trained: sum(accuracies[trained + 1 :]) / len(accuracies[trained + 1 :])
            ),
            "this begins with the last trained length": (
                lambda accuracies, trained: sum(accuracies[trained - 1 :]) / len(accuracies[trained - 1 :])
            ),
            "the lengths of training are in the mean": (lambda accuracies, trained: sum(accuracies) / len(accuracies)),
            "divide by the number of lengths that you added up, not by that of all": (
                lambda accuracies, trained: sum(accuracies[trained:]) / len(accuracies)
            ),
        },
    ),
    "stack": Exercise(
        reference=lambda stack, actions: _manipulate(stack, actions)[::-1],
        cases=[
            ([0, 1, 1], [0, "pop", "pop"]),
            ([0, 1], ["pop", "pop", "pop", 1, 0]),
            ([1, 0, 0], []),
            ([1], [0, 1, "pop", 1, 1]),
        ],
        mistakes={
            "this is bottom first; the answer is read from the top": _manipulate,
            "you popped from the bottom: the top is where the last push went": _pop_from_the_bottom,
            "the stack is given bottom first: its top is at the end": _top_first,
            "the actions are pushes and pops on top of the given stack, which is missing": (
                lambda stack, actions: _manipulate([], actions)[::-1]
            ),
        },
        raises={IndexError: "a pop of an empty stack does nothing: look whether there is anything on it"},
    ),
    "layers": Exercise(
        reference=_layers,
        cases=[(8, 4), (500, 17), (40, 17), (10, 20), (16, 2)],
        mistakes={
            "a window of w counts the token itself: it sees w - 1 back": (
                lambda length, window: math.ceil((2 * length - 1) / window)
            ),
            "the answer stands behind the string: the farthest symbol is 2 L - 1 away, not L - 1": (
                lambda length, window: math.ceil((length - 1) / (window - 1))
            ),
            "round up: a part of a layer does not reach": lambda length, window: (2 * length - 1) // (window - 1),
            "L / w layers cross L places; the farthest symbol is 2 L - 1 away": lambda length, window: math.ceil(
                length / window
            ),
            "one too far: from position 2 L - 1 to 0 it is 2 L - 1 steps": (
                lambda length, window: math.ceil(2 * length / (window - 1))
            ),
        },
    ),
    "soft": Exercise(
        reference=_soft,
        cases=[
            ([1.0, 2.0, 3.0], 1.0, 0.0, 0.0, 7.0),
            ([1.0, 2.0, 3.0], 0.0, 1.0, 0.0, 7.0),
            ([1.0, 2.0, 3.0, 0.0], 0.5, 0.25, 0.25, -1.0),
            ([4.0, 0.0], 0.1, 0.6, 0.3, 2.0),
        ],
        mistakes={
            "push and pop are exchanged": (
                lambda s, push, pop, keep, v: _mix([v, *s[:-1]], [*s[1:], 0.0], s, (pop, push, keep))
            ),
            "a pop brings every place up by one: place i gets what was at i + 1": (
                lambda s, push, pop, keep, v: _mix([v, *s[:-1]], [0.0, *s[:-1]], s, (push, pop, keep))
            ),
            "a push moves everything down by one; it does not write over the top": (
                lambda s, push, pop, keep, v: _mix([v, *s[1:]], [*s[1:], 0.0], s, (push, pop, keep))
            ),
            "keep is missing: a share of the stack stays as it is": (
                lambda s, push, pop, keep, v: _mix([v, *s[:-1]], [*s[1:], 0.0], s, (push, pop, 0.0))
            ),
        },
    ),
    "guess": Exercise(
        reference=_guess,
        cases=[(2, 0), (2, 1), (3, 1), (10, 4), (10, 9), (40, 11), (40, 20)],
        mistakes={
            "token t is at most c when at least t + 1 digits are; with t digits they end just before it": (
                _guess_off_by_one
            ),
            "give two numbers: the digit, and the probability that it is right": lambda length, t: _guess(length, t)[0],
            "first the digit, then its probability": lambda length, t: _guess(length, t)[::-1],
            "this is the digit that stands there on average, with the probability of chance": (
                lambda length, t: (5 * t // length, 0.2)
            ),
            "the digit is right; the second number is the probability that the token is that digit, not at most it": (
                lambda length, t: (_guess(length, t)[0], sum(_chances(length, t, t + 1)[: _guess(length, t)[0] + 1]))
            ),
        },
    ),
    "states": Exercise(
        reference=_states,
        cases=[
            (_parity, (0, 1), 4),
            (_ends_differ, (0, 1), 4),
            (_cycle, (0, 1, 2), 4),
            (_ends_differ, (0, 1, 2), 3),
            (_last_four_are_ones, (0, 1), 4),
            (_number_modulo_three, (0, 1), 4),
            (_at_least_three_symbols, (0, 1), 4),
        ],
        mistakes={
            "these are the different answers; two pasts with one answer may still need two states": (
                lambda answer, symbols, longest: _states(answer, symbols, longest, 0, 0)
            ),
            "you counted the pasts; those that no continuation tells apart share a state": (
                lambda answer, symbols, longest: len(_strings(symbols, 1, longest))
            ),
            "the continuation comes after the past: the answer to past + continuation": _states_turned_round,
            "pasts begin at one symbol: leave the empty one out": (
                lambda answer, symbols, longest: _states(answer, symbols, longest, shortest=0)
            ),
            "shorter pasts count, too: take those of 1 to `longest` symbols": (
                lambda answer, symbols, longest: _states(answer, symbols, longest, shortest=longest)
            ),
            "the empty continuation is missing: it asks for the answer now": (
                lambda answer, symbols, longest: _states(answer, symbols, longest, least=1)
            ),
            "the continuations of one symbol are not all: take those of 0 to 3": (
                lambda answer, symbols, longest: _states(answer, symbols, longest, 1, 1)
            ),
        },
    ),
}
