r"""Deep Norm: how small a deep network has to start, so that its first steps do not move it too far. Chapter 12.

A residual branch has ``order`` weight matrices in a row, each of scale :math:`\lambda`, and is added to
:math:`\alpha` times its input:

.. math:: \mathbf{x}_{l+1} = \operatorname{Norm}(\alpha\,\mathbf{x}_l + F(\mathbf{x}_l)).

The gradient of one matrix has the scale of the other ones over :math:`\alpha`, that is
:math:`g = \lambda^{\text{order}-1}/\alpha`. One step of the optimizer changes the loss, to first order, by a sum over
the branches :math:`M` of gradient times step, and what the step is depends on the optimizer:

==================  =================  ======================================  =============================
optimizer           step               change of the loss                      bounded for every depth with
==================  =================  ======================================  =============================
``"sgd"``           :math:`g`          :math:`M g^2`                           :math:`g = M^{-1/2}`
``"adam"``          1 (a sign)         :math:`M g`                             :math:`g = M^{-1}`
``"lamb"``          :math:`\lambda`    :math:`M \lambda g`                     :math:`\lambda g = M^{-1}`
==================  =================  ======================================  =============================

One equation for two unknowns: for the first two Deep Norm takes :math:`\lambda = 1/\alpha`. The third needs no
:math:`\alpha`, since the relative size of its steps is given. Tiger is of the third kind.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rope_lessons._checks import check_choice, check_count
from rope_lessons.models.initial import truncated_normal_


class DeepNorm(NamedTuple):
    """Two numbers: what multiplies the input of a branch, and what multiplies its weights at the start."""

    alpha: float
    gain: float


def deep_norm(branches: int, optimizer: str, order: int = 2) -> DeepNorm:
    r"""The factor :math:`\alpha` on the residual stream and the gain :math:`\lambda` of the weights.

    With :math:`M` branches of ``order`` :math:`r`: for SGD :math:`\alpha = 1/\lambda = M^{1/(2r)}`, for Adam
    :math:`\alpha = 1/\lambda = M^{1/r}`, for LAMB and Tiger :math:`\alpha = 1` and :math:`\lambda = M^{-1/r}`.

    Args:
        branches: number of residual branches: two a layer in a Transformer, one a layer with gated attention units.
        optimizer: ``"sgd"``; ``"adam"`` (steps of the size of the learning rate, as Adam, AdamW, Lion); ``"lamb"``
            (steps relative to the size of the weights, as LAMB, Tiger); or ``"none"`` for 1 and 1.
        order: how many matrices a branch multiplies: 2 in attention (values, output) and in a two-layer network; 3 in
            a gated attention unit (gate, values, output).

    Returns:
        ``DeepNorm(alpha, gain)``.

    Raises:
        TypeError, ValueError: counts below 1; an unknown optimizer.

    Source: Su, articles 8978 (order 2) and 9052 (order 3, in code) of spaces.ac.cn, after Wang et al. 2022 (DeepNet).
    Chapter 12 derives it.

    >>> deep_norm(16, "sgd")
    DeepNorm(alpha=2.0, gain=0.5)
    >>> deep_norm(27, "lamb", order=3).gain  # 27 gated attention units
    0.3333333333333333
    """
    check_count("branches", branches, least=1)
    check_count("order", order, least=1)
    check_choice("optimizer", optimizer, ("sgd", "adam", "lamb", "none"))
    if optimizer == "none":
        return DeepNorm(1.0, 1.0)
    root = branches ** (1 / (2 * order if optimizer == "sgd" else order))
    return DeepNorm(1.0 if optimizer == "lamb" else root, 1 / root)


class FirstStep(NamedTuple):
    """What one step of an optimizer does to a network."""

    loss: float  # how much the loss falls to first order, for a learning rate of 1
    output: float  # root mean square of the change of the outputs


def first_step(
    branches: int,
    optimizer: str,
    start: str,
    order: int = 2,
    learning_rate: float = 1e-3,
    width: int = 32,
    seed: int = 0,
) -> FirstStep:
    r"""Take one step of an optimizer in a stack of residual branches, and see how far it goes.

    A branch is ``swish(x A) B``, or ``(swish(x A) * swish(x B)) C`` for order 3, with square matrices, and the norm has
    no parameters. The loss is a random linear function of the outputs for 32 random inputs.

    Args:
        branches: how many.
        optimizer: ``"sgd"``, ``"adam"`` or ``"lamb"``: a step is the gradient, its sign, or its sign times the root
            mean square of the matrix.
        start: the optimizer for which the weights start, as in :func:`deep_norm`, or ``"none"``.
        order: 2 or 3.
        learning_rate: of the step that changes the outputs.
        width: channels.
        seed: of weights, inputs and loss.

    Returns:
        ``FirstStep(loss, output)``.

    Raises:
        TypeError, ValueError: counts out of range; an unknown optimizer.

    Chapter 12.

    >>> falls = [first_step(branches, "adam", "none").loss for branches in (4, 16)]
    >>> round(falls[1] / falls[0])  # four times the depth
    4
    >>> falls = [first_step(branches, "adam", "adam").loss for branches in (4, 16)]
    >>> round(falls[1] / falls[0])
    1
    """
    check_choice("optimizer", optimizer, ("sgd", "adam", "lamb"))
    if order not in (2, 3):
        raise ValueError(f"order must be 2 or 3, got {order!r}")
    alpha, gain = deep_norm(branches, start, order)
    generator = torch.Generator().manual_seed(seed)
    inputs, direction = torch.randn(2, 32, width, generator=generator, dtype=torch.float64)
    weights = torch.empty(branches, order, width, width, dtype=torch.float64)
    truncated_normal_(weights, gain / width**0.5, generator).requires_grad_()

    def outputs(weights: Tensor) -> Tensor:
        x = inputs
        for branch in weights:
            first = nn.functional.silu(x @ branch[0])
            inner = first if order == 2 else first * nn.functional.silu(x @ branch[1])
            x = nn.functional.rms_norm(alpha * x + inner @ branch[-1], (width,))
        return x

    before = outputs(weights)
    (gradient,) = torch.autograd.grad((before * direction).mean() * width**0.5, weights)
    with torch.no_grad():
        sizes = weights.square().mean(dim=(-2, -1), keepdim=True).sqrt()
        step = {"sgd": gradient, "adam": gradient.sign(), "lamb": sizes * gradient.sign()}[optimizer]
        change = outputs(weights - learning_rate * step) - before
        return FirstStep((gradient * step).sum().item(), change.square().mean().sqrt().item())
