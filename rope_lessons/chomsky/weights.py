"""The weights of several models of one shape in one tensor, a row for each model.

A model's weights are a flat row, and a name is a slice of it. So the optimiser, the gradient clipping and the
checkpoint see one tensor ``(models, weights)``, and each model's numbers depend on its own row alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.init import trunc_normal_


class Weight(NamedTuple):
    """One named weight: its shape in a single model, and how it starts."""

    shape: tuple[int, ...]
    std: float = 0.0  # of a normal distribution that is cut off at two of them
    mean: float = 0.0


def matrix(fan_in: int, fan_out: int) -> Weight:
    """A linear map as the published code starts it: standard deviation :math:`1/\\sqrt{\\text{inputs}}`."""
    return Weight((fan_in, fan_out), std=fan_in**-0.5)


def zeros(*shape: int) -> Weight:
    return Weight(shape)


def ones(*shape: int) -> Weight:
    return Weight(shape, mean=1.0)


def size(spec: Mapping[str, Weight]) -> int:
    """How many numbers one model has."""
    return sum(math.prod(weight.shape) for weight in spec.values())


def initial(spec: Mapping[str, Weight], seeds: Sequence[int]) -> Tensor:
    """Fresh models, float32 ``(models, weights)`` on the CPU: each row is decided by its seed alone."""
    rows = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        parts = []
        for weight in spec.values():
            part = torch.full(weight.shape, weight.mean)
            if weight.std:
                low, high = weight.mean - 2 * weight.std, weight.mean + 2 * weight.std
                trunc_normal_(part, weight.mean, weight.std, low, high, generator=generator)
            parts.append(part.flatten())
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def unpack(flat: Tensor, spec: Mapping[str, Weight]) -> dict[str, Tensor]:
    """Each weight by its name, ``(models, *shape)``: views of the flat tensor, through which gradients flow."""
    parts = flat.split([math.prod(weight.shape) for weight in spec.values()], dim=1)
    return {name: part.view(len(flat), *spec[name].shape) for name, part in zip(spec, parts, strict=True)}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Each model's own linear map: x ``(models, rows, in)``, weight ``(models, in, out)``, bias ``(models, out)``."""
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)
