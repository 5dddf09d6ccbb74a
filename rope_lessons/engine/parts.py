"""How a band of distances splits into the calls that every stock kernel knows: full, causal, or causal reversed.

A band is the set of pairs with ``low <= i - j < high``, where i counts the query and j the key. Distances that turn
by one rule (near, or far) form one band. A kernel without a sliding window still does a band exactly, in blocks::

    i                                 one band of width w, in blocks of w queries:
    | D            D  the diagonal block: an ordinary causal call
    | P D          P  the block before it: it keeps key c for query a where c > a, a *strict upper* triangle.
    |   P D           Count rows and columns from the other end, and it is a strict lower one: causal again,
    |     P D         without the last row (it sees nothing) and the first column (nobody sees it).
    +--------- j

With a sliding window it is one part.

Only integers here: the tests lay the parts over a small matrix and count that each pair is covered once.
"""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """One kernel call, over ``blocks`` pairs of a block of rows and a block of keys.

    ``kind``: ``"full"`` (each row of a block sees all its keys), ``"causal"`` (row a sees keys c <= a),
    ``"reversed"`` (row a sees keys c > a; the kernel gets rows and keys in reverse), or ``"sliding"`` (the last
    ``window`` keys up to the row's own). ``rows`` and ``keys``: start of the first block, and length of each.
    ``pitch``: from the start of a block to that of the next.
    """

    kind: str
    rows: tuple[int, int]
    keys: tuple[int, int]
    blocks: int = 1
    pitch: int = 0
    window: int = 0

    @property
    def pairs(self) -> int:
        """How many pairs of query and key it scores.

        >>> Part("causal", (0, 3), (0, 3)).pairs, Part("reversed", (0, 3), (0, 3)).pairs
        (6, 3)
        """
        rows, keys = self.rows[1], self.keys[1]
        if self.kind == "sliding":
            first = keys - rows + 1  # keys up to the first row's own; each row has one more
            short = min(rows, max(self.window - first, 0))  # rows that see less than a window
            return short * first + short * (short - 1) // 2 + (rows - short) * self.window
        each = {"full": rows * keys, "causal": rows * (rows + 1) // 2, "reversed": rows * (rows - 1) // 2}
        return self.blocks * each[self.kind]


def causal_band(
    q_len: int, k_len: int, low: int = 0, high: int | None = None, *, grain: int = 0, slides: bool = False
) -> list[Part]:
    """The parts of the pairs with ``low <= i - j < high`` (no upper end: None); queries are the last tokens.

    Of the band from 0 on, the causal parts (or the sliding one) come first and hold each row once. ``grain``: see
    ``_halved``. ``slides``: the kernel has a sliding window.

    >>> causal_band(6, 6)
    [Part(kind='causal', rows=(0, 6), keys=(0, 6), blocks=1, pitch=0, window=0)]
    >>> causal_band(6, 6, low=0, high=2)[-1]
    Part(kind='reversed', rows=(2, 2), keys=(0, 2), blocks=2, pitch=2, window=0)
    """
    # Shift the band to the diagonal: rows before `low` see nothing of it, and nobody sees the last `low` keys.
    first = max(0, low - (k_len - q_len))
    rows, keys = q_len - first, k_len - low
    if rows <= 0 or keys <= 0:
        return []
    before = keys - rows  # keys before the first row's own
    width = keys if high is None else min(high - low, keys)
    if width <= 0:
        return []
    if width == keys:
        found = _triangle(rows, before)
    elif slides:
        start = max(0, before - width + 1)  # nobody sees the keys before it
        found = [Part("sliding", (0, rows), (start, keys - start), window=width)]
    else:
        found = _band(rows, before, width)
    found = [part._replace(rows=(part.rows[0] + first, part.rows[1])) for part in found]
    return sorted((half for part in found for half in _halved(part, grain)), key=lambda part: part.kind != "causal")


def _triangle(rows: int, before: int) -> list[Part]:
    """All keys up to the row's own. Kernels disagree on how `causal` lines up when lengths differ, so: a square,
    and the rectangle before it."""
    square = Part("causal", (0, rows), (before, rows))
    return [square, Part("full", (0, rows), (0, before))] if before else [square]


def _band(rows: int, before: int, width: int) -> list[Part]:
    """The last ``width`` keys up to the row's own, in blocks of ``width`` rows from the first row on."""
    blocks, tail = divmod(rows, width)
    whole = blocks * width
    found = []
    if blocks:
        found.append(Part("causal", (0, width), (before, width), blocks, width))
    if tail:
        found.append(Part("causal", (whole, tail), (before + whole, tail)))
    head = 0 if before >= width else 1  # the first block that has a whole block of keys before it
    if blocks > head and width > 1:
        key = before + (head - 1) * width
        found.append(Part("reversed", (head * width, width), (key, width), blocks - head, width))
    if head and before:
        found += _upper((0, min(rows, width)), (0, before), width)
    if tail and blocks >= head:
        found += _upper((whole, tail), (before + whole - width, width), width)
    return found


def _upper(rows: tuple[int, int], keys: tuple[int, int], width: int) -> list[Part]:
    """A piece of the block before the diagonal: its first rows, its last keys. Row a sees keys c > a of the whole."""
    (row, n_rows), (key, n_keys) = rows, keys
    found = []
    free = min(n_rows, width - n_keys)  # these rows come before every key: they see all of them
    if free:
        found.append(Part("full", (row, free), keys))
    side = n_rows - free
    if 0 < side < n_keys:
        found.append(Part("full", (row + free, side), (key + side, n_keys - side)))
    if side > 1:
        found.append(Part("reversed", (row + free, side), (key, side)))
    return found


def _halved(part: Part, grain: int) -> list[Part]:
    """A triangle as two of half the side and a square, down to sides between ``grain`` and twice that.

    For kernels that work less well on a triangle than on a square. 0 leaves it whole.
    """
    kind, (row, size), (key, _), blocks, *_ = part
    if kind in ("full", "sliding") or not grain or size < 2 * grain or size % 2:
        return [part]
    half = size // 2
    corner = (row + half, half), (key, half)
    if kind == "reversed":
        corner = (row, half), (key + half, half)
    triangles = part._replace(rows=(row, half), keys=(key, half), blocks=2 * blocks, pitch=half)
    return [*_halved(triangles, grain), Part("full", *corner, blocks, size)]
