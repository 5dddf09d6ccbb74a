"""How a tensor lies in memory. No answer may depend on it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor


def shown(self: object) -> str:
    """The repr of a dataclass, without what is as usual: short to read, and Python that makes it again."""
    given = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default]  # type: ignore[arg-type]
    return f"{type(self).__name__}({', '.join(given)})"


@dataclass(frozen=True, repr=False)
class Memory:
    """The order of the axes in memory, slowest first (for four; a bias may have fewer), and more:

    Args:
        order: ``(0, 1, 2, 3)`` is contiguous, ``(0, 2, 1, 3)`` what a projection gives (heads next to their
            channels), ``(0, 1, 3, 2)`` a transposed matrix, ``(0, 2, 3, 1)`` channels last.
        shared: axes along which all entries are one, with stride 0. The values are made equal there.
        step: of the last axis in memory: 2 takes every second number.
        offset: numbers before the first one, and rows before and behind on every axis: a slice of a larger tensor.
        flipped: an axis along which it was flipped on the way, or None.
    """

    order: tuple[int, ...] = (0, 1, 2, 3)
    shared: tuple[int, ...] = ()
    step: int = 1
    offset: int = 0
    flipped: int | None = None

    __repr__ = shown

    def same(self, x: Tensor) -> Tensor:
        """The values that a tensor of this kind can have: equal along the shared axes."""
        for axis in self.shared:
            if axis < x.ndim and x.shape[axis]:
                x = x.narrow(axis, 0, 1).expand_as(x)
        return x.contiguous()

    def lay(self, x: Tensor) -> Tensor:
        """A tensor equal to ``x``, which came through ``same``, that lies so in memory."""
        whole = x.shape
        for axis in self.shared:
            if axis < x.ndim and x.shape[axis]:
                x = x.narrow(axis, 0, 1)
        order = [axis for axis in self.order if axis < x.ndim]
        back = sorted(range(x.ndim), key=lambda axis: order[axis])
        flipped = self.flipped if self.flipped is not None and self.flipped < x.ndim else None
        dense = (x if flipped is None else x.flip(flipped)).permute(order).contiguous()
        if self.offset:
            room = dense.new_full([n + 2 * self.offset for n in dense.shape], 7)
            room = room[tuple(slice(self.offset, self.offset + n) for n in dense.shape)]
            dense = room.copy_(dense)
        if self.step > 1 and dense.ndim:
            room = dense.new_full((*dense.shape[:-1], self.step * dense.shape[-1]), 7)
            dense = room[..., :: self.step].copy_(dense)
        x = dense.permute(back)
        return (x if flipped is None else x.flip(flipped)).expand(whole)


PLAIN = Memory()
# Channels last twice: a kernel that looks at strides may take that order on purpose.
ORDERS = (
    (0, 1, 2, 3),
    (0, 2, 1, 3),
    (0, 1, 3, 2),
    (0, 2, 3, 1),
    (0, 2, 3, 1),
    (2, 0, 1, 3),
    (1, 0, 2, 3),
    (3, 2, 1, 0),
    (1, 3, 0, 2),
)
