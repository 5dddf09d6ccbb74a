"""What the 15 tasks share: an alphabet, a length of the answer, a batched sampler, a mask and a slow oracle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rope_lessons._checks import check_choice, check_count

BITS = ("0", "1")
DIGITS = ("0", "1", "2", "3", "4")
MODULUS = len(DIGITS)


@dataclass(frozen=True)
class Draw:
    """Uniform random integers from one generator, on its device."""

    generator: torch.Generator | None
    device: torch.device

    def below(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator, device=self.device)

    def below_each(self, high: Tensor) -> Tensor:
        """One integer below each entry of ``high``."""
        unit = torch.rand(high.shape, generator=self.generator, device=self.device, dtype=torch.float64)
        return (unit * high).long()  # the product stays below high: the largest double below 1 is 1 - 2⁻⁵³


@dataclass(frozen=True)
class Task(ABC):
    """One task of the benchmark: a string of symbols in, a string of symbols out.

    A task holds no tensors and no state. Those in :data:`~rope_lessons.chomsky.tasks.TASKS` are ready to use. Symbols
    are int64 tokens from 0; ``input_symbols`` and ``output_symbols`` say how each is printed.

    Args:
        variant: "code" does what the published code does. Where the paper or the article says something else, the
            task has a second variant, one of ``variants``: ``dataclasses.replace(task, variant="paper")``.

    Raises:
        ValueError: a variant that the task does not have.

    Source: Delétang et al., "Neural Networks and the Chomsky Hierarchy" (arXiv 2207.02098), and its code. Chapter 11.

    >>> from rope_lessons.chomsky import TASKS
    >>> task = TASKS["reverse_string"]
    >>> task.level, task.input_size, task.output_size, task.output_length(5), task.chance
    ('context-free', 2, 2, 5, 0.5)
    >>> input, target, mask = task.sample(3, 5, torch.Generator().manual_seed(0))
    >>> bool((target == input.flip(1)).all()), mask.dtype, mask.shape
    (True, torch.bool, torch.Size([3, 5]))
    >>> task.decode(task.answer(task.encode("01101")))
    '10110'
    """

    variant: str = "code"

    name: ClassVar[str]
    level: ClassVar[str]  # "regular", "context-free" (deterministic) or "context-sensitive"
    variants: ClassVar[tuple[str, ...]] = ("code",)
    chance: ClassVar[float] = 0.5  # the benchmark's figure; blind_accuracy says what is reached without the input

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, self.variants)

    @property
    @abstractmethod
    def input_symbols(self) -> tuple[str, ...]:
        """How each input token is printed."""

    @property
    @abstractmethod
    def output_symbols(self) -> tuple[str, ...]:
        """How each output token is printed."""

    @property
    def input_size(self) -> int:
        """How many input tokens there are."""
        return len(self.input_symbols)

    @property
    def output_size(self) -> int:
        """How many output tokens there are."""
        return len(self.output_symbols)

    def input_length(self, length: int) -> int:
        """How many tokens :meth:`sample` gives when asked for ``length``."""
        return length

    def output_length(self, length: int) -> int:
        """How many tokens the answer to an input of ``length`` tokens has, padding included."""
        return 1

    def sample(
        self,
        batch: int,
        length: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A batch of random strings, their answers, and which answer tokens count.

        Args:
            batch: how many strings, at least 1.
            length: of the input, at least 1.
            generator: where the numbers come from; they are drawn on its device. Torch's own one if not given.
            device: where the tensors end up; the generator's device, or the CPU, if not given.

        Returns:
            input ``(batch, input_length(length))`` int64, target ``(batch, output_length(length))`` int64, and mask
            like the target, bool: True on the tokens whose accuracy is averaged.

        Raises:
            TypeError, ValueError: a batch or length that is not an int of at least 1.
        """
        check_count("batch", batch, least=1)
        check_count("length", length, least=1)
        home = torch.device(device or "cpu") if generator is None else generator.device
        input, target = self._sample(batch, length, Draw(generator, home))
        device = device or home
        return input.to(device), target.to(device), self.mask(target).to(device)

    @abstractmethod
    def _sample(self, batch: int, length: int, draw: Draw) -> tuple[Tensor, Tensor]:
        """Input and target."""

    def mask(self, target: Tensor) -> Tensor:
        """Which tokens of a target count: all of them, or all up to the terminator."""
        return torch.ones_like(target, dtype=torch.bool)

    @abstractmethod
    def answer(self, tokens: Sequence[int]) -> list[int]:
        """The target of one input string, padding included, in plain Python: the oracle of :meth:`sample`.

        Lengths below 3 for which the published code makes up an answer are answered as it does.
        """

    def encode(self, symbols: Iterable[str]) -> list[int]:
        """The tokens of an input string, or of a list of symbols where one is longer than a character.

        Raises:
            ValueError: a symbol that the task does not have.
        """
        tokens = list(symbols)
        for symbol in tokens:
            check_choice("symbol", symbol, self.input_symbols)
        return [self.input_symbols.index(symbol) for symbol in tokens]

    def decode(self, tokens: Sequence[int]) -> str:
        """How the tokens of an answer are printed."""
        return "".join(self.output_symbols[token] for token in tokens)


class Terminated(Task):
    """A task whose answer ends in a terminator, the last output token; what follows it is not counted."""

    output_symbols = (*BITS, "#")
    end = 2

    def mask(self, target: Tensor) -> Tensor:
        ended = (target == self.end).cumsum(dim=1)
        return (ended == 0) | (target == self.end)  # the terminator itself counts

    def terminated(self, answer: Sequence[int], length: int) -> list[int]:
        """The answer, its terminator, and zeros up to the output length."""
        return [*answer, self.end, *[0] * (self.output_length(length) - len(answer) - 1)]


def add_end(answer: Tensor, size: Tensor, end: int) -> Tensor:
    """Write the terminator after the first ``size`` tokens of each row, and zeros after it."""
    place = torch.arange(answer.shape[1], device=answer.device)
    last = place == size[:, None]
    return torch.where(place < size[:, None], answer, torch.where(last, end, 0))
