"""Attention that knows how long the text is: log n scaling, and the entropy of attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rope_lessons._checks import check_bool, check_count, check_int64, check_tensor
from rope_lessons._float64 import exact


def log_n_scale(counts: Tensor, train_length: int, clip: bool = False, floor: int = 16) -> Tensor:
    r"""The scale :math:`s_i = \log_N n_i` on the scores of query :math:`i` that sees :math:`n_i` keys.

    With ``clip`` it is :math:`\max(1, \log_N n_i)`, for models trained without it: unchanged up to the training
    length :math:`N`.

    Args:
        counts: int64 ``(...)``: how many keys each query can see. Tokens are counted, never position values.
        train_length: :math:`N`, at least 2.
        clip: never below 1.
        floor: counts below it are treated as ``floor``, since :math:`\log 1 = 0` would switch attention off.

    Returns:
        float64 tensor ``(...)``.

    Raises:
        TypeError, ValueError: counts that are not int64; a ``train_length`` below 2; a ``floor`` below 1.

    Source: Su, articles 8823 and 9706 of spaces.ac.cn; the floor of 16 is that of bert4keras. Chapter 06 derives it.

    >>> log_n_scale(torch.tensor([1, 512, 4096]), train_length=512)
    tensor([0.4444, 1.0000, 1.3333], dtype=torch.float64)
    >>> log_n_scale(torch.tensor([1, 512, 4096]), train_length=512, clip=True)
    tensor([1.0000, 1.0000, 1.3333], dtype=torch.float64)
    """
    check_int64("counts", counts)
    check_count("train_length", train_length, least=2)
    check_count("floor", floor, least=1)
    check_bool("clip", clip)
    scale = exact(counts.clamp(min=floor)).log() / math.log(train_length)
    return scale.clamp(min=1.0) if clip else scale


def attention_entropy(weights: Tensor) -> Tensor:
    r"""Entropy :math:`-\sum_j a_{ij} \log a_{ij}` of each row of attention weights, in nats; 0 log 0 is 0.

    Args:
        weights: ``(..., keys)``, rows that sum to 1.

    Returns:
        tensor ``(...)`` of the same dtype.

    Raises:
        TypeError: weights that are not a floating-point tensor.

    Chapter 06 derives how it grows with the number of keys.

    >>> attention_entropy(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
    tensor([0.6931, 0.0000])
    """
    check_tensor("weights", weights)
    return torch.special.entr(weights).sum(dim=-1)
