"""How the weights of the models start."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rope_lessons._checks import check_positive

# Standard deviation of a standard normal variable that is drawn again until it is within ±2.
TRUNCATED_STD = math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))


@torch.no_grad()
def truncated_normal_(weight: Tensor, std: float, generator: torch.Generator | None = None) -> Tensor:
    r"""Fill a tensor with a normal distribution cut off at two of its standard deviations.

    ``std`` is that of the result. The normal distribution that is cut has :math:`1.1368\ldots` times as much, which is
    the factor in the published code of GAU-α.

    Args:
        weight: any shape; changed in place. On another device than the generator, it is filled on the generator's,
            so the numbers do not depend on where the model lives.
        std: of the result, positive.
        generator: of random numbers; PyTorch's own by default.

    Returns:
        ``weight``.

    Raises:
        TypeError, ValueError: ``std`` not positive.

    Chapter 12.

    >>> weight = truncated_normal_(torch.empty(300, 300), 0.5, torch.Generator().manual_seed(0))
    >>> round(weight.std().item(), 2), round(weight.abs().max().item(), 2)
    (0.5, 1.14)
    """
    check_positive("std", std)
    before = std / TRUNCATED_STD
    drawn = weight if generator is None or generator.device == weight.device else torch.empty(weight.shape)
    nn.init.trunc_normal_(drawn, std=before, a=-2 * before, b=2 * before, generator=generator)
    return weight if drawn is weight else weight.copy_(drawn)
