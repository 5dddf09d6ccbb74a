"""What was compared, and how a wrong answer is said."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

# By bytes of a number: an error may be so many times what rounding once gives (see oracle.py), since numbers go through
# a few roundings. In 16 bits the bound is that of the largest entry, and the roundings to 16 bits are two or three.
TIMES = {8: 8.0, 4: 8.0, 2: 2.0}


class Wrong(AssertionError):
    """An answer that is not what it must be. ``where`` says what is wrong without numbers: equal for equal causes."""

    def __init__(self, where: str, message: str):
        super().__init__(f"{where}: {message}")
        self.where = where


class Tally:
    """Counts, and for each kind of answer the largest error as a share of what is allowed."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()  # of (what was called, dtype, what was compared)
        self.nearest: dict[tuple[str, str], float] = {}

    def add(self, called: str, dtype: str, what: str, count: int = 1) -> None:
        self.counts[called, dtype, what] += count

    def of(self, what: str, called: str = "") -> int:
        """How many, of all dtypes."""
        return sum(n for (name, _, counted), n in self.counts.items() if counted == what and name.startswith(called))

    def near(self, called: str, dtype: str, share: float) -> None:
        self.nearest[called, dtype] = max(share, self.nearest.get((called, dtype), 0.0))

    def table(self) -> str:
        """A row for each thing called in each dtype."""
        whats = sorted({what for *_, what in self.counts})
        rows = [["", "dtype", *whats, "largest error / allowed"]]
        for name, dtype in sorted({key[:2] for key in self.counts}):
            counts = [str(self.counts[name, dtype, what] or "") for what in whats]
            share = self.nearest.get((name, dtype))
            rows.append([name, dtype, *counts, "" if share is None else f"{share:.3f}"])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def compare(
    tally: Tally, called: str, what: str, got: Tensor, wanted: Tensor, bound: Tensor, *,
    work: torch.dtype, angle: float = 0.0, eps: float | None = None,
) -> None:  # fmt: skip
    """Raise ``Wrong`` where ``got`` is further from ``wanted`` than rounding explains.

    Args:
        called: what gave the answer. ``what``: which part of it.
        bound: what one rounding of relative size 1 changes, an entry for each of ``wanted``.
        work: the dtype that the numbers were rounded to on the way.
        angle: error of the angles, in radians.
        eps: how far one rounding on the way goes, where that is not what ``work`` says.
    """
    where, dtype = f"{called}, {what}", str(got.dtype).removeprefix("torch.")
    if got.shape != wanted.shape:
        raise Wrong(f"{where}: shape", f"got {tuple(got.shape)}, wanted {tuple(wanted.shape)}")
    if not got.numel():
        return
    if got.dtype.itemsize == 2 or work.itemsize == 2:  # small entries are lost in sums with large ones
        bound = bound.amax().expand_as(bound)
    # A result is rounded once more when it is stored; below the normal numbers, by more.
    stored, rounded = torch.finfo(got.dtype), torch.finfo(work)
    times = TIMES[work.itemsize]
    smallest = max(stored.tiny, rounded.tiny)
    once = rounded.eps if eps is None else eps
    allowed = times * (once + angle) * bound + stored.eps * wanted.abs() + times * smallest
    got = got.detach().cpu().double()
    off = torch.where(got == wanted, 0.0, (got - wanted).abs())  # infinities are equal or wrong
    share = (off / torch.where(wanted.isinf(), 0.0, allowed)).nan_to_num(nan=torch.inf).masked_fill(off == 0, 0.0)
    worst = float(share.max())
    if worst > 1:
        at = tuple(int(n) for n in torch.unravel_index(share.argmax(), share.shape))
        kind = "NaN" if bool(got.isnan().any()) else "off"
        raise Wrong(
            f"{where}: {kind}",
            f"at {at} got {float(got[at]):.6g}, wanted {float(wanted[at]):.6g} within {float(allowed[at]):.2g}; "
            f"{int((share > 1).sum())} of {share.numel()} entries are off ({dtype})",
        )
    tally.near(called, dtype, worst)
