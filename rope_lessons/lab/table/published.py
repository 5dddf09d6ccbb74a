"""The tables that the articles published, beside ours. Chapter 12."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from rope_lessons.lab import training
from rope_lessons.lab.rows import hwfa_window
from rope_lessons.lab.table.lines import Line, pick
from rope_lessons.lab.table.scoring import SETS


class Published(NamedTuple):
    """A row of the sources' tables: accuracies in percent, and the row of ours that stands for it.

    ``trained`` is the accuracy at 512 tokens; ``repeated`` and ``natural`` are those at 4096. ``ours`` gives the name
    of our row for a training length, a factor and a number of layers.
    """

    name: str
    article: int
    trained: float
    repeated: float
    natural: float
    ours: Callable[[int, float, int], str]


def published_rows() -> list[Published]:
    """The tables of Su's articles 9 to 15, from 512 to 4096 tokens, each row once.

    The model has about 100 million parameters. The articles print one number each, and neither data nor code was
    published. Windows are turned into shares of the training length. Two rows of article 15, Baseline and Baseline-logn
    with NTK, are left out: the article does not say with which factor, and they equal no row of articles 10 and 11.
    HWFA2 stands for our rows without log n in the full layers; article 14 does not say whether it has it there.

    Source: spaces.ac.cn/archives/9603, 9675, 9706, 9708, 9728, 9731, 9859. Chapter 12.

    >>> rows = {row.name: row for row in published_rows()}
    >>> rows["ReRoPE-w256"].ours(64, 8.0, 4)
    'rerope-w32'
    """
    return [*_conversions(), *_rerope(), *_leaky(), *_others(), *_key_norms()]


def beside_published(lines: Iterable[Line], kind: str, times: int = 8) -> list[tuple[str, float, float]]:
    """Our row, the published accuracy and ours, in percent, for every published row.

    Args:
        lines: of a table of ``gau-0.3m``.
        kind: ``"not repeated"`` or ``"repeated"``.
        times: length as a multiple of the training length.
    """
    lines, recipe = list(lines), training.CONFIGS["gau-0.3m"]
    found = []
    for row in published_rows():
        name = row.ours(recipe.train_length, recipe.factor, recipe.config.layers)
        theirs = row.natural if kind == SETS[0] else row.repeated
        found.append((name, theirs, 100 * pick(lines, name, kind, times).value))
    return found


def _named(name: str) -> Callable[[int, float, int], str]:
    return lambda length, factor, layers: name


def _windowed(pattern: str, window: int) -> Callable[[int, float, int], str]:
    """``pattern`` with the window, which is a share of 512, and the base of the factor."""
    return lambda length, factor, layers: pattern.format(w=window * length // 512, base=f"{10_000 * factor:g}")


def _conversions() -> list[Published]:
    plain, log_n = 49.41, 49.40
    table: list[tuple[str, int, float, float, float, str]] = [
        ("Baseline", 10, plain, 24.17, 23.16, "rope"),
        ("Baseline-logn", 10, log_n, 24.60, 24.02, "rope-logn"),
        ("PI", 10, plain, 15.04, 13.54, "pi"),
        ("PI-logn", 10, log_n, 14.99, 16.51, "pi-logn"),
        ("NTK-old", 10, plain, 51.28, 39.27, "ntk-old"),
        ("NTK-logn-old", 10, log_n, 61.71, 43.75, "ntk-old-logn"),
        ("NTK-fixed", 11, plain, 51.86, 39.61, "ntk-fixed"),
        ("NTK-logn†-fixed", 11, plain, 55.94, 41.11, "ntk-fixed-logn-test"),
        ("NTK-logn-fixed", 11, log_n, 62.85, 44.14, "ntk-fixed-logn"),
        ("NTK-mixed", 11, plain, 53.09, 40.12, "ntk-mixed"),
        ("NTK-logn†-mixed", 11, plain, 59.11, 42.38, "ntk-mixed-logn-test"),
        ("NTK-logn-mixed", 11, log_n, 68.91, 45.41, "ntk-mixed-logn"),
        ("Baseline+YaRN", 15, plain, 80.10, 47.45, "yarn"),
        ("Baseline-logn+YaRN", 15, log_n, 82.57, 46.52, "yarn-logn"),
    ]
    return [
        Published(name, article, trained, repeated, natural, _named(ours))
        for name, article, trained, repeated, natural, ours in table
    ]


def _rerope() -> list[Published]:
    table = {
        64: ((69.39, 78.58, 84.38), (45.19, 47.42, 48.14)),
        128: ((76.11, 82.28, 85.47), (47.82, 48.78, 48.87)),
        256: ((77.90, 82.40, 85.12), (48.48, 48.85, 49.07)),
        384: ((70.72, 76.42, 83.24), (48.15, 48.31, 48.62)),
        512: ((7.09, 7.08, 15.84), (8.25, 8.25, 10.83)),
    }
    scales = (("", "", 49.41), ("-logn†", "-logn-test", 49.41), ("-logn", "-logn", 49.40))
    return [
        Published(
            f"ReRoPE-w{window}{theirs}", 12, trained, repeated, natural, _windowed(f"rerope-w{{w}}{ours}", window)
        )
        for window, both in table.items()
        for (theirs, ours, trained), repeated, natural in zip(scales, *both, strict=True)
    ]


def _leaky() -> list[Published]:
    table = {
        128: {64: (85.29, 48.96), 32: (85.31, 49.03), 16: (85.15, 49.10), 8: (80.00, 48.11)},
        256: {64: (84.60, 49.03), 32: (84.30, 48.97), 16: (83.59, 48.87), 8: (69.80, 45.72)},
    }
    return [
        Published(f"Leaky-w{window}-k{k}-logn", 12, 49.40, *both, _windowed(f"leaky-rerope-w{{w}}-k{k}-logn", window))
        for window, rows in table.items()
        for k, both in rows.items()
    ]


def _hwfa(length: int, factor: float, layers: int) -> str:
    return f"hwfa-w{hwfa_window(length, layers)}"


def _others() -> list[Published]:
    hwfa2 = {
        (32, 1): (49.29, 83.13, 49.34),
        (64, 1): (49.32, 82.41, 49.37),
        (128, 1): (49.21, 80.18, 48.99),
        (256, 1): (49.00, 54.94, 47.64),
        (32, 2): (49.50, 84.09, 49.35),
        (64, 2): (49.46, 84.43, 49.36),
        (128, 2): (49.35, 83.09, 48.97),
        (256, 2): (49.37, 75.24, 48.42),
    }
    inverse = "invleaky-w{w}-logn"
    return [
        Published("HWFA", 9, 48.70, 80.84, 48.15, _hwfa),
        Published("InvLeaky-w128-logn", 13, 49.38, 82.25, 48.32, _windowed(inverse, 128)),
        Published("InvLeaky-w128-b8-logn", 13, 49.62, 81.15, 48.85, _windowed(f"{inverse}-b{{base}}", 128)),
        *(
            Published(f"HWFA2-w{window}-f{full}", 14, *numbers, _windowed(f"hwfa2-w{{w}}-f{full}", window))
            for (window, full), numbers in hwfa2.items()
        ),
    ]


def _key_norms() -> list[Published]:
    """Article 15. Its two tables do not agree on CosA-logn on natural text: 48.95 in the first, 48.39 in the second."""
    table: list[tuple[str, float, float, float, str]] = [
        ("QNA", 49.55, 22.45, 22.18, "qna"),
        ("QNA-logn", 49.42, 19.55, 18.74, "qna-logn"),
        ("KNA", 49.60, 61.08, 47.69, "kna"),
        ("KNA-logn", 49.58, 63.17, 46.40, "kna-logn"),
        ("CosA", 49.73, 58.90, 46.98, "cosa"),
        ("CosA-logn", 49.67, 64.74, 48.95, "cosa-logn"),
        ("QNA+NTK", 49.55, 52.28, 39.88, "qna-ntk-fixed"),
        ("QNA+YaRN", 49.55, 82.53, 47.50, "qna-yarn"),
        ("QNA+ReRoPE", 49.55, 78.22, 47.72, "qna-rerope-w{w}"),
        ("QNA-logn+NTK", 49.42, 57.44, 41.56, "qna-logn-ntk-fixed"),
        ("QNA-logn+YaRN", 49.42, 80.08, 45.16, "qna-logn-yarn"),
        ("QNA-logn+ReRoPE", 49.42, 84.71, 48.31, "qna-logn-rerope-w{w}"),
        ("KNA+NTK", 49.60, 64.44, 43.02, "kna-ntk-fixed"),
        ("KNA+YaRN", 49.60, 84.19, 47.44, "kna-yarn"),
        ("KNA+ReRoPE", 49.60, 77.76, 47.73, "kna-rerope-w{w}"),
        ("KNA-logn+NTK", 49.58, 79.05, 47.43, "kna-logn-ntk-fixed"),
        ("KNA-logn+YaRN", 49.58, 83.95, 47.16, "kna-logn-yarn"),
        ("KNA-logn+ReRoPE", 49.58, 85.48, 48.78, "kna-logn-rerope-w{w}"),
        ("CosA+NTK", 49.73, 62.50, 42.77, "cosa-ntk-fixed"),
        ("CosA+YaRN", 49.73, 83.40, 47.80, "cosa-yarn"),
        ("CosA+ReRoPE", 49.73, 77.82, 47.80, "cosa-rerope-w{w}"),
        ("CosA-logn+NTK", 49.67, 78.97, 47.46, "cosa-logn-ntk-fixed"),
        ("CosA-logn+YaRN", 49.67, 82.28, 45.72, "cosa-logn-yarn"),
        ("CosA-logn+ReRoPE", 49.67, 85.67, 48.39, "cosa-logn-rerope-w{w}"),
    ]
    return [
        Published(name, 15, trained, repeated, natural, _windowed(ours, 128))
        for name, trained, repeated, natural, ours in table
    ]
