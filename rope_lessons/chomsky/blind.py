"""What a predictor reaches that knows the task, the length and the position, but never sees the input."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache

import torch
from torch import Tensor

from rope_lessons._checks import check_count
from rope_lessons.chomsky.task import MODULUS, Task

TEST_LENGTHS = range(41, 501)  # the benchmark's score is the mean accuracy over these lengths


def blind_accuracy(task: Task, length: int, samples: int = 4096, generator: torch.Generator | None = None) -> float:
    r"""The accuracy of the best predictor that knows task, length and position only.

    At each position it says the token that is the most frequent there among those that count. Accuracy is the
    benchmark's: over all counted tokens of a large batch,

    .. math:: \frac{\sum_t \max_c P_{tc}}{\sum_t \sum_c P_{tc}},\qquad
       P_{tc} = P(\text{token } t \text{ counts and is } c).

    It is exact where :func:`token_table` is. Else (the binary multiplication, and the big-endian variants) the
    predictor is taken from a first sample and scored on a second, so that it is not flattered.

    Args:
        task: a task.
        length: of the input, at least 1.
        samples: how many strings are in each of the two samples.
        generator: of the samples.

    Raises:
        TypeError, ValueError: a length or number of samples that is not an int of at least 1.

    Source: chapter 11.

    The three sorted symbols of length 3: the middle one is 2 with probability 0.296, so the best guesses are right in
    (61 + 37 + 61) / 375 of all places.

    >>> from rope_lessons.chomsky import TASKS
    >>> round(blind_accuracy(TASKS["bucket_sort"], 3) * 375, 6)
    159.0
    >>> blind_accuracy(TASKS["reverse_string"], 100)
    0.5
    """
    table = token_table(task, length)
    if table is None:
        check_count("samples", samples, least=1)
        guess = counted_table(task, length, samples, generator).argmax(dim=1)
        table = counted_table(task, length, samples, generator)
    else:
        guess = table.argmax(dim=1)
    return (table.gather(1, guess[:, None]).sum() / table.sum()).item()


def blind_score(
    task: Task,
    lengths: Iterable[int] = TEST_LENGTHS,
    samples: int = 4096,
    generator: torch.Generator | None = None,
) -> float:
    """The mean of :func:`blind_accuracy` over the lengths: what the benchmark would report for that predictor.

    >>> from rope_lessons.chomsky import TASKS
    >>> blind_score(TASKS["parity_check"], range(41, 44))
    0.5
    """
    accuracies = [blind_accuracy(task, length, samples, generator) for length in lengths]
    return math.fsum(accuracies) / len(accuracies)


def token_table(task: Task, length: int) -> Tensor | None:
    """Row t, column c: the probability that token t of the answer counts and is c. None where it is not known exactly.

    Args:
        task: a task.
        length: of the input, at least 1.

    Returns:
        float64 ``(output_length, output_size)``.

    Raises:
        TypeError, ValueError: a length that is not an int of at least 1.

    Source: chapter 11.

    Two symbols, sorted: the smaller one is 0 in 9 of 25 cases.

    >>> from rope_lessons.chomsky import TASKS
    >>> (token_table(TASKS["bucket_sort"], 2)[0] * 25).round().tolist()
    [9.0, 7.0, 5.0, 3.0, 1.0]
    """
    check_count("length", length, least=1)
    if task.variant == "big-endian":
        return None
    known = _TABLES.get(task.name, _uniform)
    return known(task, length) if known else None


def counted_table(task: Task, length: int, samples: int, generator: torch.Generator | None = None) -> Tensor:
    """The table of :func:`token_table`, counted over that many strings."""
    counts = torch.zeros(task.output_length(length), task.output_size, dtype=torch.int64)
    for left in range(samples, 0, -1024):
        _, target, mask = task.sample(min(left, 1024), length, generator)
        for token in range(task.output_size):
            counts[:, token] += ((target == token) & mask).sum(dim=0).cpu()
    return counts.double() / samples


def _uniform(task: Task, length: int) -> Tensor:
    """Every bit of the answer is a bit of the input, or a sum with one that nothing else depends on."""
    shape = task.output_length(length), task.output_size
    return torch.full(shape, 1 / task.output_size, dtype=torch.float64)


def _fixed_below(least: int, token: int) -> Callable[[Task, int], Tensor]:
    """Uniform from length ``least`` on; below it, always the same answer."""

    def table(task: Task, length: int) -> Tensor:
        if length >= least:
            return _uniform(task, length)
        return torch.nn.functional.one_hot(torch.tensor([token]), task.output_size).double()

    return table


def _modular_arithmetic(task: Task, length: int) -> Tensor:
    """A chain whose state is the finished sum and the product under way, as in the sampler."""
    state = torch.zeros(MODULUS, MODULUS, dtype=torch.float64)  # sum, product
    state[0] = 1 / MODULUS
    digits = torch.arange(MODULUS)
    added = (digits[:, None] + digits) % MODULUS  # of sum and product
    times = torch.zeros(MODULUS, MODULUS, dtype=torch.float64)  # from product to product
    for digit in range(MODULUS):
        times[digits, digits * digit % MODULUS] += 1 / MODULUS
    for _ in range(task.input_length(length) // 2):
        total = _sums(state, added)
        # plus and minus do the same to the chances, since minus a uniform digit is a uniform digit
        state = state @ times / 3 + total[:, None] / MODULUS * 2 / 3
    return _sums(state, added)[None]


def _sums(chances: Tensor, result: Tensor) -> Tensor:
    """The chance of each residue, from the chance of each pair and the residue that the pair gives."""
    return torch.zeros(MODULUS, dtype=torch.float64).index_add(0, result.flatten(), chances.flatten())


def _cycle_navigation(task: Task, length: int) -> Tensor:
    place = torch.zeros(MODULUS, dtype=torch.float64)
    place[0] = 1
    for _ in range(length):
        place = (place.roll(-1) + place + place.roll(1)) / 3
    return place[None]


def _brackets(task: Task, length: int) -> Tensor:
    return torch.tensor(_values_of_brackets(length, task.variant == "code")[length])[None]


@cache
def _values_of_brackets(longest: int, multiplication: bool) -> list[list[float]]:
    """The chance of each value, for each length: pairs of two shorter lengths, then the operator."""
    digits = torch.arange(MODULUS)
    results = [digits[:, None] + digits, digits[:, None] - digits, digits[:, None] * digits]
    results = [result % MODULUS for result in (results if multiplication else results[:2])]
    chances = torch.full((longest + 1, MODULUS), 1 / MODULUS, dtype=torch.float64)
    for length in range(5, longest + 1):
        left = torch.arange(1, length - 3)
        pairs = chances[left].t() @ chances[length - 3 - left] / len(left)
        chances[length] = torch.stack([_sums(pairs, result) for result in results]).mean(dim=0)
    return chances.tolist()


def _stack_manipulation(task: Task, length: int) -> Tensor:
    """The final size of the stack is a walk that stops at 0, from a first size that is uniform; the bits are fair."""
    size = torch.zeros(length + 1, dtype=torch.float64)
    for read in range(1, length):  # the stack of size s begins after s tokens: so they all end together
        size[read] += 1 / (length - 1)
        moved = torch.zeros_like(size)
        moved[1:] += size[:-1] * 2 / 3  # two of three actions push
        moved[:-1] += size[1:] / 3
        moved[0] += size[0] / 3  # a pop of the empty stack
        size = moved
    if length == 1:
        size[1] = 1
    longer = 1 - size.cumsum(0)
    return torch.stack((longer / 2, longer / 2, size), dim=1)


def _binary_addition(task: Task, length: int) -> Tensor | None:
    """Counts of pairs of numbers, n below 2^a and m below 2^b with a ≤ b, for every a + b = length - 1."""
    if length < 3:
        return _short_addition(task, length)
    first = torch.arange(1, length - 1, dtype=torch.float64)[:, None]
    second = length - 1 - first
    place = torch.arange(length + 1, dtype=torch.float64)
    high = torch.maximum(first, second)
    few, many = torch.exp2(torch.minimum(first, second)), torch.exp2(high)
    pairs = (few - 1) * (many - 1)
    carry = few * (few - 1) / 2  # pairs whose sum reaches 2^b
    # A bit below b is fair over all pairs that begin at 0; those with a zero in them are taken away.
    fair = few * many / 2 - many / 2 - (torch.exp2(place) < few) * few / 2
    one = torch.where(place < high, fair, torch.where(place == high, carry, 0.0)) / pairs
    bound = torch.exp2(torch.minimum(place, high))
    most = torch.minimum(few, bound) - 1
    below = (most * (bound - 1) - most * (most + 1) / 2) / pairs  # the sum is below 2^place
    longer = torch.where(place <= high, 1 - below, 0.0)
    before = torch.cat((torch.ones_like(longer[:, :1]), longer[:, :-1]), dim=1)
    return torch.stack((longer - one, one, before - longer), dim=2).mean(dim=0)


def _short_addition(task: Task, length: int) -> Tensor:
    numbers = range(2**length - 1)
    table = torch.zeros(length + 1, 3, dtype=torch.float64)
    for number in numbers:
        for place, bit in enumerate(f"{number:b}"[::-1] + "2"):
            table[place, int(bit)] += 1 / len(numbers)
    return table


def _compute_sqrt(task: Task, length: int) -> Tensor:
    """The numbers whose root has bit t set lie between (k·2^t)² and ((k+1)·2^t)² for odd k."""
    end = 2**length
    ones = []
    for place in range(task.output_length(length)):
        last = math.isqrt(end - 1) >> place  # the last k, whose numbers the end cuts off
        odd = last // 2  # how many odd k lie below it; their numbers are Σ (2k + 1) · 4^t
        count = (2 * odd * odd + odd) << 2 * place
        if last % 2:
            count += end - ((last << place) ** 2)
        ones.append(count / (end - 1))
    one = torch.tensor(ones, dtype=torch.float64)
    table = torch.stack((1 - one, one), dim=1)
    return table.flip(0) if task.variant == "code" else table


def _bucket_sort(task: Task, length: int) -> Tensor:
    """Token t is at most c when more than t of the input tokens are: a binomial tail."""
    count = torch.arange(length + 1, dtype=torch.float64)
    ways = math.lgamma(length + 1) - torch.lgamma(count + 1) - torch.lgamma(length - count + 1)
    at_most = []
    for symbol in range(1, MODULUS):
        chance = symbol / MODULUS
        exactly = torch.exp(ways + count * math.log(chance) + (length - count) * math.log(1 - chance))
        at_most.append(exactly.flip(0).cumsum(0).flip(0)[1:])  # t + 1 or more
    ends = torch.stack([torch.zeros(length), *at_most, torch.ones(length)], dim=1).double()
    return ends.diff(dim=1)


#: Where the table is not uniform. None: it has to be counted.
_TABLES: dict[str, Callable[[Task, int], Tensor | None] | None] = {
    "even_pairs": _fixed_below(2, 0),
    "modular_arithmetic": _modular_arithmetic,
    "cycle_navigation": _cycle_navigation,
    "stack_manipulation": _stack_manipulation,
    "modular_arithmetic_brackets": _brackets,
    "solve_equation": _fixed_below(3, 0),
    "missing_duplicate_string": _fixed_below(2, 1),
    "binary_addition": _binary_addition,
    "binary_multiplication": None,
    "compute_sqrt": _compute_sqrt,
    "bucket_sort": _bucket_sort,
}
