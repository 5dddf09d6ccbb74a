"""The four regular tasks: a finite automaton that reads the string once solves them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from rope_lessons.chomsky.task import BITS, DIGITS, MODULUS, Draw, Task

PLUS, MINUS, TIMES = 5, 6, 7  # tokens after the five digits
ABSENT = 2**32  # more than any sum of exponents: the exponent of 0, and of a product that is not there
EXPONENTS = (ABSENT, 0, 1, 3, 2)  # of 2, modulo 5: 2⁰ = 1, 2¹ = 2, 2³ = 8 = 3, 2² = 4


class EvenPairs(Task):
    """Is the number of places where the bit changes even (0) or odd (1)?

    A string that changes an even number of times ends where it began, so the first and the last bit decide.

    ``001110`` changes twice: 0. ``0101001`` changes five times: 1.

    >>> EvenPairs().answer([0, 0, 1, 1, 1, 0]), EvenPairs().answer([0, 1, 0, 1, 0, 0, 1])
    ([0], [1])
    """

    name, level = "even_pairs", "regular"
    input_symbols = output_symbols = BITS

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        bits = draw.below(2, batch, length)
        return bits, bits[:, :1] ^ bits[:, -1:]

    def answer(self, tokens: Sequence[int]) -> list[int]:
        return [sum(a != b for a, b in pairwise(tokens)) % 2]


class ModularArithmetic(Task):
    """The value modulo 5 of digits joined by ``+``, ``-`` and ``*``, where ``*`` binds first.

    An expression without brackets has an odd length. Asked for an even length ℓ, the published code makes ℓ - 1
    tokens (variant "code"), the paper says ℓ + 1 (variant "paper"). The alphabet has a blank, ``_``, that no string
    contains.

    ``1+2*3`` is 7, so 2.

    >>> task = ModularArithmetic()
    >>> task.answer(task.encode("1+2*3")), task.answer(task.encode("0*1+4*3-2"))
    ([2], [0])
    >>> task.input_length(8), ModularArithmetic("paper").input_length(8)
    (7, 9)
    """

    name, level, chance = "modular_arithmetic", "regular", 1 / MODULUS
    variants = ("code", "paper")
    input_symbols = (*DIGITS, "+", "-", "*", "_")
    output_symbols = DIGITS

    def input_length(self, length: int) -> int:
        return length - 1 + length % 2 if self.variant == "code" else length + 1 - length % 2

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        operators = self.input_length(length) // 2
        tokens = torch.empty(batch, 2 * operators + 1, dtype=torch.int64, device=draw.device)
        tokens[:, ::2] = draw.below(MODULUS, batch, operators + 1)
        tokens[:, 1::2] = PLUS + draw.below(3, batch, operators)
        return tokens, self._value(tokens)[:, None]

    @staticmethod
    def _value(tokens: Tensor) -> Tensor:
        """A sum of products. Modulo 5 every digit but 0 is a power of 2, so a product is a sum of exponents."""
        exponent = torch.tensor(EXPONENTS, device=tokens.device)[tokens[:, ::2]]
        exponent[:, 1:] += 2 * (tokens[:, 1::2] == MINUS)  # -1 is 2² modulo 5
        starts = torch.zeros_like(exponent)
        starts[:, 1:] = tokens[:, 1::2] != TIMES
        product = starts.cumsum(dim=1)  # which product a digit belongs to
        exponents = torch.full_like(exponent, ABSENT).scatter_reduce(1, product, exponent, "sum", include_self=False)
        powers = torch.tensor((1, 2, 4, 3), device=tokens.device)[exponents % 4]
        return powers.masked_fill(exponents >= ABSENT, 0).sum(dim=1) % MODULUS

    def answer(self, tokens: Sequence[int]) -> list[int]:
        total, product = 0, tokens[0]
        for operator, digit in zip(tokens[1::2], tokens[2::2], strict=True):
            if operator == TIMES:
                product *= digit
            else:
                total += product
                product = -digit if operator == MINUS else digit
        return [(total + product) % MODULUS]


class ParityCheck(Task):
    """Is the number of ones even (0) or odd (1)?

    ``1010100`` has three ones: 1.

    >>> ParityCheck().answer([1, 0, 1, 0, 1, 0, 0])
    [1]
    """

    name, level = "parity_check", "regular"
    input_symbols = output_symbols = BITS

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        bits = draw.below(2, batch, length)
        return bits, bits.sum(dim=1, keepdim=True) % 2

    def answer(self, tokens: Sequence[int]) -> list[int]:
        return [list(tokens).count(1) % 2]


class CycleNavigation(Task):
    """Where does a walk on a circle of five places end that begins at 0?

    In the published code the tokens 0, 1, 2 step by -1, 0, +1 (variant "code"). The paper and the article say 0 is
    stay, 1 is +1, 2 is -1 (variant "paper"): the same task with the tokens renamed.

    ``010211`` steps by -1, 0, -1, +1, 0, 0: it ends at -1, which is 4. As the paper reads it, by 0, 1, 0, -1, 1, 1: 2.

    >>> tokens = CycleNavigation().encode("010211")
    >>> CycleNavigation().answer(tokens), CycleNavigation("paper").answer(tokens)
    ([4], [2])
    """

    name, level, chance = "cycle_navigation", "regular", 1 / MODULUS
    variants = ("code", "paper")
    input_symbols = ("0", "1", "2")
    output_symbols = DIGITS

    @property
    def steps(self) -> tuple[int, ...]:
        """What each token adds to the place."""
        return (-1, 0, 1) if self.variant == "code" else (0, 1, -1)

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        tokens = draw.below(3, batch, length)
        steps = torch.tensor(self.steps, device=draw.device)
        return tokens, steps[tokens].sum(dim=1, keepdim=True) % MODULUS

    def answer(self, tokens: Sequence[int]) -> list[int]:
        place = 0
        for token in tokens:
            place = (place + self.steps[token]) % MODULUS
        return [place]
