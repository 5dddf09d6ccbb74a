"""The seven context-sensitive tasks: a machine needs a tape as long as the string."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
import torch
from torch import Tensor

from rope_lessons.chomsky.task import BITS, DIGITS, MODULUS, Draw, Task, Terminated, add_end

OPERATOR = 2  # the token between two binary numbers


class DuplicateString(Task):
    """The string, twice.

    >>> DuplicateString().answer([1, 0, 1])
    [1, 0, 1, 1, 0, 1]
    """

    name, level = "duplicate_string", "context-sensitive"
    input_symbols = output_symbols = BITS

    def output_length(self, length: int) -> int:
        return 2 * length

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        bits = draw.below(2, batch, length)
        return bits, bits.repeat(1, 2)

    def answer(self, tokens: Sequence[int]) -> list[int]:
        return [*tokens, *tokens]


class MissingDuplicateString(Task):
    """Which bit is missing from a string that was written twice?

    A random string of ⌊ℓ/2⌋ bits, twice, one of the bits replaced by the blank ``_``; a padding token ``.`` makes an
    odd length full. At length 1 the published code gives the input 1 and the answer 1.

    ``01100_10``: 0110 twice, and where the blank is, the first copy has 1.

    >>> task = MissingDuplicateString()
    >>> task.answer(task.encode("01100_10")), task.answer(task.encode("1011_1."))
    ([1], [0])
    """

    name, level = "missing_duplicate_string", "context-sensitive"
    input_symbols = (*BITS, "_", ".")
    output_symbols = BITS
    blank, padding = 2, 3

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        if length == 1:
            ones = torch.ones(batch, 1, dtype=torch.int64, device=draw.device)
            return ones, ones.clone()
        half = draw.below(2, batch, length // 2)
        whole = torch.cat((half, half), dim=1)
        place = draw.below(whole.shape[1], batch, 1)
        pad = half.new_full((batch, length % 2), self.padding)
        return torch.cat((whole.scatter(1, place, self.blank), pad), dim=1), whole.gather(1, place)

    def answer(self, tokens: Sequence[int]) -> list[int]:
        if len(tokens) == 1:
            return [1]
        half, place = len(tokens) // 2, list(tokens).index(self.blank)
        return [tokens[place - half if place >= half else place + half]]


class OddsFirst(Task):
    """Every other symbol first, then the rest.

    The docstring, the paper and the article put the first, third, fifth … symbol first (variant "paper"). The
    published code puts the second, fourth, sixth … first (variant "code").

    ``aaabaa`` becomes ``abaaaa`` in the code and ``aaaaba`` in the paper.

    >>> tokens = [0, 0, 0, 1, 0, 0]
    >>> OddsFirst().answer(tokens), OddsFirst("paper").answer(tokens)
    ([0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0])
    """

    name, level = "odds_first", "context-sensitive"
    variants = ("code", "paper")
    input_symbols = output_symbols = BITS

    def output_length(self, length: int) -> int:
        return length

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        bits = draw.below(2, batch, length)
        first, second = bits[:, ::2], bits[:, 1::2]
        return bits, torch.cat((second, first) if self.variant == "code" else (first, second), dim=1)

    def answer(self, tokens: Sequence[int]) -> list[int]:
        def late(place: int) -> bool:
            return place % 2 == (0 if self.variant == "code" else 1)

        return [tokens[place] for place in sorted(range(len(tokens)), key=late)]  # a stable sort keeps the order


class _BinaryOperation(Terminated):
    """Two positive binary numbers and an operator between them; :class:`BinaryAddition` describes the strings."""

    level = "context-sensitive"
    variants = ("code", "big-endian")

    def operate(self, a: int, b: int) -> int:
        raise NotImplementedError

    def short(self, number: int, length: int) -> tuple[int, int]:
        """The published answer, and its number of bits, to one or two bits, which have no room for two numbers."""
        raise NotImplementedError

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        strings, results = zip(*self._strings(batch, length, draw), strict=True)
        tokens = to_bits([string for string, _ in strings], length)
        place = torch.tensor([place for _, place in strings])[:, None]
        tokens = torch.where(torch.arange(length) == place, OPERATOR, tokens)
        sizes = torch.tensor([size for _, size in results])
        answer = to_bits([result for result, _ in results], self.output_length(length))
        if self.variant == "big-endian":  # "a∘b" back to front is "b∘a", each number turned round
            back = sizes[:, None] - 1 - torch.arange(answer.shape[1])
            tokens, answer = tokens.flip(1), answer.gather(1, back.clamp(min=0))
        return tokens.to(draw.device), add_end(answer, sizes, self.end).to(draw.device)

    def _strings(self, batch: int, length: int, draw: Draw) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """For each row the input as an integer and the place of its operator, the result and its number of bits."""
        dice = _dice(draw)
        for _ in range(batch):
            if length < 3:
                number = dice.randrange(2**length - 1)  # never all ones, as in the published code
                yield (number, -1), self.short(number, length)
            else:
                place = dice.randrange(1, length - 1)
                a, b = dice.randrange(1, 1 << place), dice.randrange(1, 1 << length - 1 - place)
                result = self.operate(a, b)
                yield (a | b << place + 1, place), (result, result.bit_length())

    def answer(self, tokens: Sequence[int]) -> list[int]:
        order = 1 if self.variant == "big-endian" else -1
        numbers = "".join(self.input_symbols[token] for token in tokens).split(self.input_symbols[OPERATOR])
        values = [int(number[::order], 2) for number in numbers]
        if len(values) == 1:
            result, size = self.short(values[0], len(tokens))
            bits = f"{result:0{size}b}" if size else ""
        else:
            bits = f"{self.operate(*values):b}"
        return self.terminated([int(bit) for bit in bits[::order]], len(tokens))


class BinaryAddition(_BinaryOperation):
    """The sum of two binary numbers, least significant bit first.

    The operator stands at places 2 to ℓ - 1, each as often. Each number is uniform from 1 to the greatest that fits its
    side, with zeros in the places that it does not need. The answer has no such zeros: it ends at its highest one, then
    come the terminator ``#`` and zeros that are not counted, ℓ + 1 tokens in all. Strings of one or two bits are a
    single number, and never all ones, as in the published code.

    Variant "big-endian" writes all three numbers with the most significant bit first, as the article does.

    ``01001+011`` is 18 + 6 = 24: ``00011#``. Read the other way round it is 9 + 3 = 12: ``1100#``.

    >>> for task in (BinaryAddition(), BinaryAddition("big-endian")):
    ...     print(task.decode(task.answer(task.encode("01001+011"))))
    00011#0000
    1100#00000
    """

    name = "binary_addition"
    input_symbols = (*BITS, "+")

    def output_length(self, length: int) -> int:
        return length + 1

    def operate(self, a: int, b: int) -> int:
        return a + b

    def short(self, number: int, length: int) -> tuple[int, int]:
        return number, max(1, number.bit_length())


class BinaryMultiplication(_BinaryOperation):
    """The product of two binary numbers, least significant bit first; strings as in :class:`BinaryAddition`.

    The answer has ℓ tokens, terminator included. To one or two bits the published code answers ``#`` and ``0#``.

    ``01001*011`` is 18 · 6 = 108: ``0011011#``. (The published docstring has ``00110011`` here, which is 204.)

    >>> task = BinaryMultiplication()
    >>> task.decode(task.answer(task.encode("01001*011")))
    '0011011#0'
    """

    name = "binary_multiplication"
    input_symbols = (*BITS, "*")

    def output_length(self, length: int) -> int:
        return length

    def operate(self, a: int, b: int) -> int:
        return a * b

    def short(self, number: int, length: int) -> tuple[int, int]:
        return 0, length - 1


class ComputeSqrt(Task):
    """The square root of a binary number, rounded down, in ⌈ℓ/2⌉ bits.

    The number is uniform from 1 to 2^ℓ - 1, with leading zeros, and so has its root. The published code writes the most
    significant bit first (variant "code"), unlike in the other two tasks on numbers; the paper says least significant
    first (variant "paper").

    ``101001`` is 41, its root 6.4, so 6: ``110``. (The article has 101.)

    >>> task = ComputeSqrt()
    >>> task.decode(task.answer(task.encode("101001")))
    '110'
    """

    name, level = "compute_sqrt", "context-sensitive"
    variants = ("code", "paper")
    input_symbols = output_symbols = BITS

    def output_length(self, length: int) -> int:
        return (length + 1) // 2

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        dice = _dice(draw)
        numbers = [dice.randrange(1, 1 << length) for _ in range(batch)]
        bits = to_bits(numbers, length).to(draw.device)
        roots = to_bits([math.isqrt(number) for number in numbers], self.output_length(length)).to(draw.device)
        return (bits.flip(1), roots.flip(1)) if self.variant == "code" else (bits, roots)

    def answer(self, tokens: Sequence[int]) -> list[int]:
        order = 1 if self.variant == "code" else -1
        number = int("".join(map(str, tokens))[::order], 2)
        root = 0
        for bit in reversed(range(self.output_length(len(tokens)))):  # each bit is kept if the square still fits
            if (root + 2**bit) ** 2 <= number:
                root += 2**bit
        return [int(bit) for bit in f"{root:0{self.output_length(len(tokens))}b}"[::order]]


class BucketSort(Task):
    """The symbols 0 to 4 in increasing order.

    Sorted, a uniform string of length ℓ is nearly known beforehand: zeros up to about ℓ/5, then ones, and so on. So
    :func:`~rope_lessons.chomsky.blind.blind_accuracy` is far above chance here.

    ``10204112`` becomes ``00111224``.

    >>> task = BucketSort()
    >>> task.decode(task.answer(task.encode("10204112")))
    '00111224'
    """

    name, level, chance = "bucket_sort", "context-sensitive", 1 / MODULUS
    input_symbols = output_symbols = DIGITS

    def output_length(self, length: int) -> int:
        return length

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        tokens = draw.below(MODULUS, batch, length)
        return tokens, tokens.sort(dim=1).values

    def answer(self, tokens: Sequence[int]) -> list[int]:
        return [symbol for symbol in range(MODULUS) for token in tokens if token == symbol]


def _dice(draw: Draw) -> Random:
    """Python's generator, for integers of any size, seeded by ours."""
    return Random(int(draw.below(2**62, 1)))


def to_bits(numbers: Sequence[int], places: int) -> Tensor:
    """``(numbers, places)`` int64 on the CPU, least significant bit first; the numbers are of any size."""
    size = (places + 7) // 8
    packed = np.frombuffer(b"".join(number.to_bytes(size, "little") for number in numbers), dtype=np.uint8)
    bits = np.unpackbits(packed.reshape(len(numbers), size), axis=1, count=places, bitorder="little")
    return torch.from_numpy(bits.astype(np.int64))
