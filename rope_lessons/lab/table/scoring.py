"""Testing a trained model with a row of the table: what is counted. Chapter 12."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lessons._checks import check_count
from rope_lessons.lab import training
from rope_lessons.lab.rows import OWN, TableRow
from rope_lessons.lab.table.passkey import DIGITS, passkey_windows
from rope_lessons.lab.text import Corpus, natural_windows, repeated_windows

SETS = ("not repeated", "repeated")
BINS = 16  # of positions: the accuracy against position has this many points at every length


@dataclass(frozen=True)
class Evaluation:
    """What a row is tested with.

    Args:
        factors: lengths, as multiples of the training length.
        windows: pieces of held-out text, of the longest length each.
        depths: where the needle of the passkey test stands: 0 at the begin of the text, 1 before the question.

    Raises:
        TypeError, ValueError: values out of range.
    """

    factors: tuple[int, ...] = (1, 2, 4, 8, 16)
    windows: int = 64
    depths: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)

    def __post_init__(self) -> None:
        check_count("windows", self.windows, least=1)
        for factor in self.factors:
            check_count("factors", factor, 1, training.MOST, "more is no length")
        if not self.factors or self.factors[0] != 1 or any(self.factors[-1] % factor for factor in self.factors):
            raise ValueError(f"factors must begin with 1 and divide the last one, got {self.factors}")
        if not all(0 <= depth <= 1 for depth in self.depths):
            raise ValueError(f"depths must be from 0 to 1, got {self.depths}")


@torch.no_grad()
def score(model: nn.Module, row: TableRow, tokens: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Teacher-forced prediction of each next token with the test plan of a row.

    Args:
        model: a language model of the lab.
        row: of its table.
        tokens: int64 ``(windows, length + 1)``, on the device of the model.
        dtype: of the products.

    Returns:
        hits (has the right token the largest score?) and losses in nats, both float64 ``(windows, length)``.

    Chapter 12.
    """
    length = tokens.shape[1] - 1
    draw = row.method.test_positions
    positions = None if draw is None else draw(length, device=tokens.device)
    hits, losses = [], []
    for some in tokens.split(max(1, 2**15 // length)):  # a few at a time: long windows take memory
        with torch.autocast(tokens.device.type, dtype=dtype, enabled=dtype != torch.float32):
            scores = model(some[:, :-1], row.method.test, positions=positions, attend=row.attend)
        hits.append(scores.argmax(dim=-1) == some[:, 1:])
        losses.append(F.cross_entropy(scores.float().transpose(1, 2), some[:, 1:], reduction="none"))
    return torch.cat(hits).double(), torch.cat(losses).double()


def cut(windows: Tensor, length: int) -> Tensor:
    """Windows ``(windows, longest + 1)`` in pieces ``(windows · longest / length, length + 1)``, each with the token
    after it. So the same tokens are predicted at every length; what changes is how much comes before them.

    >>> cut(torch.arange(5).unsqueeze(0), length=2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    return windows.unfold(1, length + 1, length).flatten(0, 1)


Counts = dict[str, np.ndarray]


def count(
    model: nn.Module,
    row: TableRow,
    corpus: Corpus,
    train_length: int,
    tests: Evaluation,
    dtype: torch.dtype = torch.float32,
) -> Counts:
    """All counts of one model with one row, by document of the test text. The plan of training is tested at the
    training length alone, on the same tokens as the others.

    Returns:
        for each factor and each set of ``SETS``, ``"FACTOR SET hits"`` and ``"FACTOR SET losses"``: sums, float64
        ``(documents, BINS)``, and ``"FACTOR SET tokens"``: of how many predictions each is the sum; for each factor and
        depth, ``"FACTOR DEPTH found"`` (all digits right) and ``"FACTOR DEPTH tokens"`` of shape ``(documents, 1)``.

    Chapter 12.
    """
    longest = train_length * tests.factors[-1]
    windows, documents = natural_windows(corpus, longest, tests.windows)
    windows = windows.to(next(model.parameters()).device)
    _, document = documents.unique(return_inverse=True)
    found: Counts = {}

    def add(name: str, kind: str, values: Tensor, of: Tensor) -> None:
        """Sums of ``(pieces, positions)`` by document and, in equal parts of the positions, by bin."""
        bins = values.unflatten(1, (min(BINS, values.shape[1]), -1)).sum(dim=2).cpu()
        sums = torch.zeros(int(document.max()) + 1, bins.shape[1], dtype=torch.float64)
        found[f"{name} {kind}"] = sums.index_add(0, of, bins).numpy()

    for factor in factors_of(row, tests):
        length = factor * train_length
        natural = cut(windows, length)
        of = document.repeat_interleave(len(natural) // len(windows))
        for name, tokens in zip(SETS, (natural, repeated_windows(natural, train_length)), strict=True):
            hits, losses = score(model, row, tokens, dtype)
            for kind, values in (("hits", hits), ("losses", losses), ("tokens", torch.ones_like(hits))):
                add(f"{factor} {name}", kind, values, of)
        for depth in tests.depths:
            hits, _ = score(model, row, passkey_windows(windows[:, : length + 1], depth), dtype)
            right = hits[:, -DIGITS:].all(dim=1, keepdim=True).double()
            for kind, values in (("found", right), ("tokens", torch.ones_like(right))):
                add(f"{factor} depth {depth:g}", kind, values, document)
    return found


def factors_of(row: TableRow, tests: Evaluation) -> tuple[int, ...]:
    return (1,) if row.name == OWN else tests.factors
