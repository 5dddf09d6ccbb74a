"""Positions to train on: sorted random subsets, equal-mean random positions, two chunks with a jump between them, and
the even grid for tests.

A sampler is called as ``sampler(length, batch=..., generator=..., device=...)`` and gives the positions of one training
step. It draws on the device, without a loop over the batch and without waiting for the device.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rope_lessons._checks import (
    LARGEST,
    check_choice,
    check_count,
    check_not_negative,
    check_positive,
    check_size,
    device_named,
    shown,
)
from rope_lessons._float64 import float64_device

DISTRIBUTIONS = ("exponential", "beta")
MOST_MEAN = 2**53  # whole numbers up to it are float64's, and beyond it neighbouring positions are one
SHAPES = 1e-280, 1e280  # of beta distributions whose draws float64 can hold the logarithms of
PROPOSALS = 12  # for one gamma draw. Each is accepted with probability above 0.95: all fail once in 10^15 draws


def random_positions(
    length: int,
    max_length: int,
    *,
    batch: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""``length`` different positions out of :math:`0, \dots, P - 1`, in increasing order; every subset is equally
    likely.

    Args:
        length: number of tokens :math:`N`, at least 1.
        max_length: :math:`P`, at least ``length``.
        batch: None for one draw that the whole batch shares, as published; a number for that many independent draws.
        generator: source of the randomness, on ``device``; PyTorch's global one if None.
        device: of the positions; by default that of the generator.

    Returns:
        int64 tensor ``(length,)``, or ``(batch, length)``.

    Raises:
        TypeError, ValueError: counts that are not ints or too small; a ``max_length`` below ``length``; a generator
            that is none, or lives on another device.

    Source: Ruoss et al., "Randomized Positional Encodings Boost Length Generalization of Transformers", ACL 2023
    (arXiv 2305.16843). Chapter 10 derives the distribution of every position.

    >>> random_positions(5, 2048, generator=torch.Generator().manual_seed(0)).diff().min() >= 1
    tensor(True)
    >>> random_positions(4, 4, batch=2)
    tensor([[0, 1, 2, 3],
            [0, 1, 2, 3]])
    """
    _check_lengths(length, max_length)
    check_size("max_length", max_length)  # one key is drawn for each
    device, rows = _device(generator, device), _rows(batch)
    # Whole numbers of 62 bits and not floats: two equal keys would favour the position that comes first.
    keys = torch.randint(2**62, (rows, max_length), generator=generator, device=device)
    positions = keys.topk(length, dim=1, sorted=False).indices.sort(dim=1).values
    return positions[0] if batch is None else positions


def grid_positions(
    length: int,
    max_length: int,
    *,
    batch: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""``length`` evenly spaced positions out of :math:`0, \dots, P - 1`: position :math:`i` is
    :math:`\lfloor iP/L \rfloor`. At test, for a model trained on
    :func:`~rope_lessons.random_positions.random_positions`.

    Args:
        length: number of tokens :math:`L`, at least 1; beyond :math:`3\cdot 10^9`, one that divides ``max_length``.
        max_length: :math:`P`, at least ``length``.
        batch, generator, device: as in :func:`~rope_lessons.random_positions.random_positions`, so that one can stand
            for the other. Nothing is drawn.

    Returns:
        int64 tensor ``(length,)``, or ``(batch, length)``.

    Raises:
        TypeError, ValueError: as :func:`~rope_lessons.random_positions.random_positions`.

    Source: Su, article 8 (spaces.ac.cn/archives/9444). Chapter 10 compares it with random positions at test.

    >>> grid_positions(5, 20)
    tensor([ 0,  4,  8, 12, 16])
    """
    _check_lengths(length, max_length)
    device, rows = _device(generator, device), _rows(batch)
    # i P / L with P = a L + b: the product i P itself can be too large for int64.
    a, b = divmod(max_length, length)
    if b * (length - 1) > LARGEST:
        raise ValueError(f"length must be at most {math.isqrt(LARGEST)}, whose square is an int64, got {length}")
    token = torch.arange(length, device=device)
    positions = token * a + token * b // length
    return positions if batch is None else positions.expand(rows, length)


def skip_positions(
    length: int,
    max_length: int,
    *,
    batch: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""Positions 0, 1, 2, … with one jump: the tokens are cut into two chunks at a random place, and all positions of
    the second are larger by a random :math:`u`,

    .. math:: p_i = \begin{cases} i & i < c \\ i + u & i \ge c \end{cases}, \qquad
              c \in \{1, \dots, N - 1\}, \quad u \in \{0, \dots, P - N\},

    both drawn uniformly. Within a chunk every distance is the true one, and the jump shows the far ones: training sees
    all distances up to :math:`P - 1`, and at test the model is given 0, 1, 2, ….

    Args:
        length: number of tokens :math:`N`, at least 2.
        max_length: :math:`P`, the longest text at test, at least ``length``.
        batch, generator, device: as in :func:`~rope_lessons.random_positions.random_positions`.

    Returns:
        int64 tensor ``(length,)``, or ``(batch, length)``.

    Raises:
        TypeError, ValueError: as :func:`~rope_lessons.random_positions.random_positions`; a single token, which
            cannot be cut.

    Source: Zhu et al., "PoSE: Efficient Context Window Extension of LLMs via Positional Skip-wise Training", ICLR 2024
    (arXiv 2309.10400), with two chunks. Chapter 10.

    >>> one = skip_positions(8, 100, generator=torch.Generator().manual_seed(0))
    >>> one.diff().tolist().count(1) >= 6, bool(one[0] == 0), bool(one[-1] < 100)
    (True, True, True)
    """
    _check_lengths(length, max_length)
    if length < 2:
        raise ValueError(f"length must be at least 2, or there is nothing to cut, got {length}")
    device, rows = _device(generator, device), _rows(batch)
    cut = torch.randint(1, length, (rows, 1), generator=generator, device=device)
    skip = torch.randint(max_length - length + 1, (rows, 1), generator=generator, device=device)
    token = torch.arange(length, device=device)
    positions = token + skip * (token >= cut)
    return positions[0] if batch is None else positions


def equal_mean_positions(
    length: int,
    *,
    batch: int | None = None,
    distribution: str = "exponential",
    mean: float | None = None,
    max_length: int | None = None,
    alpha: float | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""``length`` evenly spaced points from 0 to :math:`n`, where :math:`n` is drawn with a given mean.

    With the default mean, :math:`N - 1`, the mean of position :math:`i` is :math:`i`: at test the model is given
    0, 1, 2, …. The article has the mean :math:`N`.

    - ``"exponential"``: :math:`\Pr(n > t) = e^{-t/\text{mean}}`, without an upper end;
    - ``"beta"``: :math:`n = (L - 1)\,x` with :math:`x \sim \text{Beta}(\alpha, \beta)` and
      :math:`\beta = \alpha\,\bigl(\tfrac{L - 1}{\text{mean}} - 1\bigr)`, which makes the mean right. The smaller
      :math:`\alpha`, the more often :math:`n` is near 0 and near :math:`L - 1`.

    Args:
        length: number of tokens :math:`N`, at least 1.
        batch: None for one :math:`n` that the whole batch shares; a number for one :math:`n` in each sequence, which
            is what chapter 10 trains with.
        distribution: ``"exponential"`` or ``"beta"``.
        mean: of :math:`n`, from 0 to :math:`2^{53}`; :math:`N - 1` by default. For beta it lies between 0
            and ``max_length - 1``.
        max_length: for beta: the longest text at test, :math:`L`.
        alpha: for beta: :math:`\alpha`, positive.
        generator: source of the randomness, on ``device``; PyTorch's global one if None.
        device: of the positions; by default that of the generator. Positions for MPS, which has no float64, are drawn
            on the CPU and stay there.

    Returns:
        float64 tensor ``(length,)``, or ``(batch, length)``.

    Raises:
        TypeError, ValueError: values outside of these; ``max_length`` or ``alpha`` missing for beta, or given for
            exponential; a generator that is none, or lives on another device.

    Source: Su, article 8 (spaces.ac.cn/archives/9444), who leaves open :math:`\alpha` and whether :math:`n` is drawn
    once per batch. Chapter 10 derives the reach of both, and how beta is drawn.

    >>> equal_mean_positions(4, batch=2, generator=torch.Generator().manual_seed(0)).diff().std(dim=1) < 1e-12
    tensor([True, True])
    >>> equal_mean_positions(64, distribution="beta", max_length=512, alpha=0.25).max() <= 511
    tensor(True)
    """
    check_size("length", length)
    check_equal_mean(distribution, mean, max_length, alpha)
    mean = length - 1 if mean is None else mean
    rows, device = _rows(batch), _device(generator, float64_device(device))
    if distribution == "exponential":
        draws = torch.empty(rows, dtype=torch.float64, device=device).exponential_(generator=generator)
        end = mean * draws
    else:
        end = _beta_end(mean, max_length, alpha, rows, generator, device)
    positions = end.unsqueeze(1) * torch.linspace(0, 1, length, dtype=torch.float64, device=device)
    return positions[0] if batch is None else positions


def check_equal_mean(distribution: str, mean: float | None, max_length: int | None, alpha: float | None) -> None:
    """The arguments of :func:`equal_mean_positions` that are its distribution, before a length is known."""
    check_choice("distribution", distribution, DISTRIBUTIONS)
    if mean is not None:
        check_not_negative("mean", mean)
        if mean > MOST_MEAN:
            raise ValueError(f"mean must be at most {MOST_MEAN}, where positions become too coarse, got {mean}")
    if distribution == "exponential":
        for name, value in (("max_length", max_length), ("alpha", alpha)):
            if value is not None:
                raise ValueError(f"{name} must be left out: it belongs to distribution 'beta', got {shown(value)}")
        return
    check_count("max_length", max_length, least=2)
    check_positive("alpha", alpha)
    if mean is not None and max_length is not None:
        _check_beta_mean(mean, max_length - 1)


def _check_beta_mean(mean: float, largest: int) -> None:
    if not 0 < mean < largest:
        raise ValueError(f"mean must be above 0 and below max_length - 1 = {largest}, got {mean}")


def _beta_end(
    mean: float,
    max_length: int | None,
    alpha: float | None,
    rows: int,
    generator: torch.Generator | None,
    device: torch.device | None,
) -> Tensor:
    """The last position, ``(rows,)``: a beta variable, stretched to 0 … max_length - 1."""
    assert max_length is not None
    assert alpha is not None
    largest = max_length - 1
    _check_beta_mean(mean, largest)  # the default mean, which depends on the length
    beta = alpha * (largest / mean - 1)
    if not (SHAPES[0] <= alpha <= SHAPES[1] and SHAPES[0] <= beta <= SHAPES[1]):
        raise ValueError(
            f"alpha, and beta = alpha * (max_length - 1 - mean) / mean, must be from {SHAPES[0]} to {SHAPES[1]}, got "
            f"alpha = {alpha} and beta = {beta}"
        )
    # x = a / (a + b) for gamma variables a and b. The logarithms of tiny ones are numbers where they are 0 themselves.
    a, b = (_log_gamma_draw(float(shape), rows, generator, device) for shape in (alpha, beta))
    return largest * torch.sigmoid(a - b)


def _log_gamma_draw(shape: float, rows: int, generator: torch.Generator | None, device: torch.device | None) -> Tensor:
    """Logarithms of ``rows`` draws from the gamma distribution, float64.

    The method of Marsaglia and Tsang (2000) accepts or rejects. Here every row gets all its proposals at once and takes
    the first that is accepted, so there is no loop that waits for the device. It wants a shape of at least 1: a draw
    of shape + 1, times u^(1/shape), has the shape itself.
    """
    options: Any = {"dtype": torch.float64, "device": device, "generator": generator}
    d = shape + 1 - 1 / 3
    z, u = torch.randn(rows, PROPOSALS, **options), torch.rand(rows, PROPOSALS, **options)
    log_v = 3 * (1 + z / (3 * d**0.5)).log()  # NaN where 1 + ... is negative, and comparing with NaN rejects
    accepted = u.log() < z.square() / 2 + d * (1 - log_v.exp() + log_v)
    first = accepted.int().argmax(dim=1, keepdim=True)
    log_boost = torch.log1p(-torch.rand(rows, **options)) / shape  # 1 - rand is never 0
    return math.log(d) + log_v.gather(1, first).squeeze(1) + log_boost


def _check_lengths(length: int, max_length: int) -> None:
    check_size("length", length)
    check_count("max_length", max_length, least=1)
    if max_length < length:
        raise ValueError(f"max_length must be at least length = {length}: no position is used twice, got {max_length}")


def _rows(batch: int | None) -> int:
    if batch is not None:
        check_size("batch", batch)
    return 1 if batch is None else batch


def _device(generator: torch.Generator | None, device: torch.device | str | None) -> torch.device | None:
    """Where to draw: the device asked for, else that of the generator."""
    wanted = device_named(device)
    if generator is None:
        return wanted
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator or None, got {type(generator).__name__}")
    if wanted is not None and generator.device.type != wanted.type:
        raise ValueError(f"generator must be on {wanted.type} like the positions, got one on {generator.device}")
    return generator.device if wanted is None else wanted
