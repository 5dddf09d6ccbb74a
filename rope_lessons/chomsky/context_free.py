"""The four deterministic context-free tasks: a pushdown automaton, a machine with a stack, solves them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from rope_lessons.chomsky.task import BITS, DIGITS, MODULUS, Draw, Task, Terminated, add_end

A, B = torch.arange(MODULUS)[:, None], torch.arange(MODULUS)
RESULTS = torch.stack((A + B, A - B, A * B)) % MODULUS  # (operator, left value, right value)
POP = 2  # the tokens 0, 1 stand in the first stack, 3 and 4 push 0 and 1


class StackManipulation(Terminated):
    """What is on the stack in the end?

    The input is a stack of bits, bottom to top, then actions: POP, PUSH 0, PUSH 1. The stack has 1 to ℓ - 1 bits, each
    number as often. The answer is the final stack from top to bottom, then the terminator ``#``; a POP of an empty
    stack does nothing. The answer has room for ℓ + 1 tokens; zeros fill it and are not counted.

    ``0110 PUSH 1 POP POP`` leaves 011, bottom to top: the answer is ``110#0000``.

    >>> task = StackManipulation()
    >>> task.decode(task.answer(task.encode([*"0110", "PUSH 1", "POP", "POP"])))
    '110#0000'
    """

    name, level = "stack_manipulation", "context-free"
    input_symbols = (*BITS, "POP", "PUSH 0", "PUSH 1")

    def output_length(self, length: int) -> int:
        return length + 1

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        first = 1 + draw.below(max(1, length - 1), batch, 1)  # the size of the first stack
        stacked = torch.arange(length, device=draw.device) < first
        tokens = torch.where(stacked, draw.below(2, batch, length), POP + draw.below(3, batch, length))
        return tokens, self._run(tokens)

    def _run(self, tokens: Tensor) -> Tensor:
        """Every token is a push or a pop: the bits of the first stack are pushes too."""
        batch, length = tokens.shape
        moves = torch.where(tokens == POP, -1, 1).cumsum(dim=1)
        size = moves - moves.cummin(dim=1).values.clamp(max=0)  # a walk that does not go below 0
        time = torch.arange(length, device=tokens.device).expand(batch, length)
        # What lies on level s is what the last push to size s put there; level 0 takes in the pops.
        level = torch.where(tokens == POP, 0, size)
        last = tokens.new_zeros(batch, length + 1).scatter_reduce(1, level, time, "amax")
        bits = torch.where(tokens < POP, tokens, tokens - 3)
        top = size[:, -1]
        down = top[:, None] - torch.arange(length + 1, device=tokens.device)
        return add_end(bits.gather(1, last.gather(1, down.clamp(min=0))), top, self.end)

    def answer(self, tokens: Sequence[int]) -> list[int]:
        stack: list[int] = []
        for token in tokens:
            if token != POP:
                stack.append(token if token < POP else token - 3)
            elif stack:
                stack.pop()
        return self.terminated(stack[::-1], len(tokens))


class ReverseString(Task):
    """The string, back to front.

    >>> ReverseString().answer([0, 1, 1, 0, 1])
    [1, 0, 1, 1, 0]
    """

    name, level = "reverse_string", "context-free"
    input_symbols = output_symbols = BITS

    def output_length(self, length: int) -> int:
        return length

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        bits = draw.below(2, batch, length)
        return bits, bits.flip(1)

    def answer(self, tokens: Sequence[int]) -> list[int]:
        return list(reversed(tokens))


class _Bracketed(Task):
    """Expressions whose every operation of two terms stands in brackets: ``(left+right)``.

    Up to length 4 an expression is ``d``, ``-d``, ``(d)`` or ``(-d)`` with a uniform digit. A longer one is
    ``(left∘right)``: the length of ``left`` is uniform from 1 to length - 4, the operator uniform too.
    """

    chance = 1 / MODULUS
    output_symbols = DIGITS

    @property
    @abstractmethod
    def operators(self) -> tuple[str, ...]:
        """Of ``+``, ``-``, ``*``, in this order, those that are drawn."""

    def expressions(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        """``(batch, length)`` expressions and their ``(batch,)`` values modulo 5.

        All rows are split together, one round for each level of their trees. A node is known by where it begins in the
        batch laid out flat. Its value is kept there, and computed from the last round to the first.
        """
        begin = torch.arange(batch, device=draw.device) * length
        size = torch.full_like(begin, length)
        rounds, leaves = [], []
        while len(begin):
            small = size < 5
            leaves.append((begin[small], size[small]))
            begin, size = begin[~small], size[~small]
            left_size = 1 + draw.below_each(size - 4)
            left, right = begin + 1, begin + 2 + left_size
            rounds.append((begin, left, right, begin + size - 1, draw.below(len(self.operators), len(begin))))
            begin, size = torch.cat((left, right)), torch.cat((left_size, size - 3 - left_size))

        tokens = torch.empty(batch * length, dtype=torch.int64, device=draw.device)
        values = torch.empty_like(tokens)
        begin, size = (torch.cat(parts) for parts in zip(*leaves, strict=True))
        self._write_leaves(tokens, values, begin, size, draw)
        node, _, right, last, operator = (torch.cat(parts) for parts in zip(*rounds, strict=True))
        tokens[node], tokens[last] = self.token("("), self.token(")")
        tokens[right - 1] = self.token(self.operators[0]) + operator  # their tokens follow each other
        results = RESULTS.to(draw.device)
        for node, left, right, _, operator in reversed(rounds):
            values[node] = results[operator, values[left], values[right]]
        return tokens.view(batch, length), values.view(batch, length)[:, 0]

    def _write_leaves(self, tokens: Tensor, values: Tensor, begin: Tensor, size: Tensor, draw: Draw) -> None:
        digit = draw.below(MODULUS, len(begin))
        negative, bracketed = size % 2 == 0, size > 2  # 1: d, 2: -d, 3: (d), 4: (-d)
        last = begin + size - 1
        tokens[begin[bracketed]], tokens[last[bracketed]] = self.token("("), self.token(")")
        place = last - bracketed.long()
        tokens[place] = digit
        tokens[place[negative] - 1] = self.token("-")
        values[begin] = torch.where(negative, -digit, digit) % MODULUS

    def token(self, symbol: str) -> int:
        return self.input_symbols.index(symbol)

    def value(self, tokens: Sequence[int]) -> int:
        """The value of one expression: a parser that reads it left to right."""
        value, end = self._parse([self.input_symbols[token] for token in tokens], 0)
        if end != len(tokens):
            raise ValueError(f"tokens must be one expression, got {end} of {len(tokens)} tokens that are")
        return value % MODULUS

    def _parse(self, symbols: list[str], place: int) -> tuple[int, int]:
        """The value of the expression that begins at ``place``, and where it ends."""
        if symbols[place] == "-":
            value, end = self._parse(symbols, place + 1)
            return -value, end
        if symbols[place] != "(":
            return int(symbols[place]), place + 1
        value, end = self._parse(symbols, place + 1)
        if symbols[end] != ")":
            operator = symbols[end]
            right, end = self._parse(symbols, end + 1)
            value = {"+": value + right, "-": value - right, "*": value * right}[operator] % MODULUS
        return value, end + 1


class ModularArithmeticBrackets(_Bracketed):
    """The value modulo 5 of an expression with brackets.

    Every operation of two terms has its own brackets, and a minus sign stands before a digit only: what the article
    writes as ``-(1-2)*(4-3*(-2))`` is never drawn. The benchmark uses ``+``, ``-`` and ``*``. The published class
    leaves ``*`` out unless asked; so does the variant "no-multiplication". The alphabet of 11 has a symbol, ``x``, that
    no string contains.

    ``((1-2)*(-4))`` is 4.

    >>> task = ModularArithmeticBrackets()
    >>> task.answer(task.encode("((1-2)*(-4))"))
    [4]
    """

    name, level = "modular_arithmetic_brackets", "context-free"
    variants = ("code", "no-multiplication")
    input_symbols = (*DIGITS, "+", "-", "*", "(", ")", "x")

    @property
    def operators(self) -> tuple[str, ...]:
        return ("+", "-", "*") if self.variant == "code" else ("+", "-")

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        tokens, values = self.expressions(batch, length, draw)
        return tokens, values[:, None]

    def answer(self, tokens: Sequence[int]) -> list[int]:
        return [self.value(tokens)]


class SolveEquation(_Bracketed):
    """Which digit does ``x`` stand for, modulo 5?

    An expression with brackets of length ℓ - 2, one of its digits replaced by ``x``, then ``=`` and its value. A place
    is drawn uniformly, and the first digit from there on (beginning again at the end) becomes ``x``: digits after many
    brackets are drawn more often. Below length 3 the published code gives zeros.

    The article, which follows the paper, has ``*`` in these equations too; the published code has not, because
    ``0*x=0`` is true for every digit (variant "code"). With ``*`` (variant "paper", 12 input symbols) the target is the
    digit that was replaced, and an equation has one solution or all five: its left side is a·x + b, and a may be 0.
    ``solutions`` lists them, ``answer`` takes the first.

    ``(2-x)=4`` holds for x = 3: 2 - 3 is -1, and that is 4.

    >>> task = SolveEquation()
    >>> task.answer(task.encode("(2-x)=4"))
    [3]
    >>> task = SolveEquation("paper")
    >>> task.solutions(task.encode("(0*x)=0"))
    [0, 1, 2, 3, 4]
    """

    name, level = "solve_equation", "context-free"
    variants = ("code", "paper")

    @property
    def operators(self) -> tuple[str, ...]:
        return ("+", "-") if self.variant == "code" else ("+", "-", "*")

    @property
    def input_symbols(self) -> tuple[str, ...]:
        return (*DIGITS, *self.operators, "(", ")", "x", "=")

    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        if length < 3:
            zeros = torch.zeros(batch, length, dtype=torch.int64, device=draw.device)
            return zeros, zeros[:, :1]
        tokens, values = self.expressions(batch, length - 2, draw)
        place = draw.below(length - 2, batch, 1)
        digits = tokens < MODULUS
        before = digits.cumsum(dim=1).gather(1, place) - digits.gather(1, place).long()  # digits before the place
        index = before % digits.sum(dim=1, keepdim=True)
        chosen = digits & (digits.cumsum(dim=1) == index + 1)
        solution = tokens[chosen]
        equals = torch.full_like(place, self.token("="))
        equation = torch.cat((tokens.masked_fill(chosen, self.token("x")), equals, values[:, None]), dim=1)
        return equation, solution[:, None]

    def solutions(self, tokens: Sequence[int]) -> list[int]:
        """All digits that make the equation true."""
        *left, _, right = tokens
        unknown = left.index(self.token("x"))
        return [
            digit for digit in range(MODULUS) if self.value([*left[:unknown], digit, *left[unknown + 1 :]]) == right
        ]

    def answer(self, tokens: Sequence[int]) -> list[int]:
        return self.solutions(tokens)[:1] if len(tokens) > 2 else [0]
