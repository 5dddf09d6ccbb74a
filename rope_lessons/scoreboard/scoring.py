"""Testing a trained model with a row of the scoreboard: which bytes it has right. Chapter 12."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rope_lessons._checks import check_choice, check_count
from rope_lessons.lab.rows import TableRow
from rope_lessons.lab.table.passkey import DIGITS, passkey_windows
from rope_lessons.lab.table.scoring import cut, score
from rope_lessons.lab.text import Corpus, repeated_windows

SETS = ("natural", "repeated")
Hits = dict[str, np.ndarray]


@dataclass(frozen=True)
class Settings:
    """What a row is tested with.

    Args:
        home: :math:`N`, the training length that the test is about.
        lengths: of the tests; the first is ``home``, each divides the last.
        windows: pieces of held-out text, each of a document of its own and of the last length.
        depths: where a needle stands: 0 at the begin of the text, 1 before the question.

    Raises:
        TypeError, ValueError: values out of range.
    """

    home: int = 64
    lengths: tuple[int, ...] = (64, 128, 256, 512)
    windows: int = 64
    depths: tuple[float, ...] = (0.0, 0.5, 1.0)

    def __post_init__(self) -> None:
        check_count("home", self.home, least=1)
        check_count("windows", self.windows, least=2)
        if not self.lengths or self.lengths[0] != self.home or any(self.lengths[-1] % each for each in self.lengths):
            raise ValueError(f"lengths must begin with home = {self.home} and divide the last, got {self.lengths}")
        if not all(0 <= depth <= 1 for depth in self.depths):
            raise ValueError(f"depths must be from 0 to 1, got {self.depths}")


def texts(corpus: Corpus, tests: Settings, which: str = "test") -> Tensor:
    """The held-out windows, int64 ``(windows, longest + 1)``, one of each document, from anywhere in it: the heads of
    source files are much alike.

    Args:
        corpus: one that holds out enough documents for both.
        tests: how many, how long.
        which: ``"test"``, or ``"validation"`` for the documents on which every choice is made.

    Raises:
        ValueError: another ``which``; too few documents.
    """
    check_choice("which", which, ("test", "validation"))
    size, random = tests.lengths[-1] + 1, np.random.Generator(np.random.Philox(key=0))
    room = np.diff(corpus.starts) - size
    documents = random.permutation(np.flatnonzero(room >= 0))
    begins = corpus.starts[documents] + (random.random(len(documents)) * (room[documents] + 1)).astype(np.int64)
    chosen = begins[: tests.windows] if which == "test" else begins[tests.windows : 2 * tests.windows]
    if len(chosen) < (tests.windows if which == "test" else 2):
        raise ValueError(f"corpus must hold out more documents of {size} bytes than {len(documents)}")
    return torch.from_numpy(np.stack([corpus.test[begin : begin + size] for begin in chosen]).astype(np.int64))


def hits_of(model: nn.Module, row: TableRow, windows: Tensor, tests: Settings, lengths: tuple[int, ...]) -> Hits:
    """Everything that is asked of one model with one row.

    Args:
        model: a language model.
        row: of the scoreboard.
        windows: of :func:`texts`.
        tests: as there.
        lengths: those to test at.

    Returns:
        for each length and set of ``SETS``, ``"SET LENGTH"``: bool ``(windows, longest)``, whether each byte was
        predicted; the windows are cut into pieces of that length, so the same bytes are predicted at every length, and
        repeated text has the same beginning in every piece. ``"loss LENGTH"``: float32 ``(windows,)``, nats per byte of
        natural text. ``"needle LENGTH DEPTH"``: bool ``(windows,)``, whether all digits were right.
    """
    windows = windows.to(next(model.parameters()).device)
    found: Hits = {}
    for length in lengths:
        natural = cut(windows, length)
        for name, tokens in zip(SETS, (natural, repeated_windows(natural, tests.home)), strict=True):
            hits, losses = score(model, row, tokens)
            found[f"{name} {length}"] = hits.bool().reshape(len(windows), -1).cpu().numpy()
            if name == "natural":
                found[f"loss {length}"] = losses.reshape(len(windows), -1).mean(dim=1).float().cpu().numpy()
        for depth in tests.depths:
            hits, _ = score(model, row, passkey_windows(windows[:, : length + 1], depth))
            found[f"needle {length} {depth:g}"] = hits[:, -DIGITS:].bool().all(dim=1).cpu().numpy()
    return found
