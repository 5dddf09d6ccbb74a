"""How fast a training runs, beside how fast it could: its steps, the operations that they need, and the rate at which
the device multiplies matrices.

A product and a sum are two operations. On a CPU a second is one of the processor's time, all threads together, so that
other programs do not count; on CUDA it passes until the device is done. Chapter 12.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from math import prod
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from rope_lessons.engine.visibility import visible_keys
from rope_lessons.lab import sizes, training
from rope_lessons.lab.text import Corpus
from rope_lessons.lab.training import Recipe, Team
from rope_lessons.schemes import Plan, Scheme, scheme

SIDES = {"cpu": (256, 512, 1024), "cuda": (4096, 8192, 16384)}  # of the square matrices


def training_flops(size: str | sizes.ModelConfig, length: int, plan: Plan | None = None) -> float:
    r"""Operations that a model needs for one token of a training, forward and backward.

    .. math:: 3 \left( 2 P + \sum_{\text{layers}} 2 \, \bar n \, c \right)

    :math:`P` is the number of weights in matrices, each a product and a sum for every token. The embedding counts once:
    it makes the scores; looking up a row of it is no product. :math:`\bar n` is how many keys a query sees in the mean,
    and :math:`c` how many channels each such pair multiplies, in queries and in values, all heads together. Three: for
    each product forward there are two backward, one for either factor.

    What an engine does beyond that (scores that nobody sees, or scores made again for the gradients) is not in it, nor
    are norms, activations, the turns of RoPE, the softmax and the optimizer.

    Args:
        size: one of ``lab.sizes.SIZES``, or a configuration.
        length: of the windows, :math:`N`.
        plan: of the training; RoPE in every layer by default. It says which keys are seen.

    Raises:
        ValueError: an unknown size.

    Chapter 12. The tests compare it with PyTorch's own counter.

    >>> round(training_flops("gau-87m", length=512) / sizes.parameters("gau-87m"), 1)
    6.7
    """
    config = sizes.config_of(size)
    plan = (scheme("rope", dim=config.head_dim),) * config.layers if plan is None else plan
    weights = sum(prod(shape) * count for shape, count in matrices(config).items())
    pairs = sum(_seen(layer, length) * count for layer, count in Counter(plan).items())  # most layers are alike
    return 3 * 2 * (weights + pairs * _pair_channels(config))


def _seen(layer: Scheme, length: int) -> float:
    """How many keys a query sees in the mean."""
    return float(visible_keys(layer, length, length, 1, torch.device("cpu")).sum()) / length


def matrices(config: sizes.ModelConfig) -> Counter[tuple[int, ...]]:
    """The shapes of a model's matrices, and how many there are of each."""
    with torch.device("meta"):
        model = sizes.MODELS[type(config)](config)
    return Counter(tuple(weight.shape) for weight in model.parameters() if weight.ndim == 2)


def _pair_channels(config: sizes.ModelConfig) -> int:
    """Channels that a pair of query and key multiplies: those of a query, and those of a value."""
    if isinstance(config, sizes.GAUConfig):
        return config.key_dim + config.hidden
    return config.heads * 2 * config.head_dim


# --- measured ------------------------------------------------------------------------------------------------------


def matrix_rate(device: torch.device, dtype: torch.dtype, sides: tuple[int, ...] | None = None) -> dict[int, float]:
    """Operations a second in products of square matrices: what a training on this device is held against.

    Args:
        device: of type ``"cpu"`` or ``"cuda"``.
        dtype: of the matrices.
        sides: of the matrices; three that suit the device by default.

    Returns:
        the median rate for each side.
    """
    rates = {}
    for side in sides or SIDES[device.type]:
        left, right = (_random((side, side), device, dtype) for _ in range(2))
        rates[side] = 2 * side**3 / _seconds(lambda left=left, right=right: left @ right, device)  # type: ignore[misc]
    return rates


def products_seconds(config: sizes.ModelConfig, tokens: int, device: torch.device, dtype: torch.dtype) -> float:
    """Time of the products of all weights alone, forward and backward. What a step takes beyond it, attention, the
    optimizer and everything between the products take.

    Args:
        config: of the model.
        tokens: of a step.
        device, dtype: as for :func:`matrix_rate`.

    Returns:
        seconds.
    """
    total = 0.0
    for (rows, inputs), count in matrices(config).items():
        weight, x, y = (_random(shape, device, dtype) for shape in ((rows, inputs), (tokens, inputs), (tokens, rows)))

        def products(weight: Tensor = weight, x: Tensor = x, y: Tensor = y) -> None:
            x @ weight.T  # the output; then the gradients of the input and of the weight, where y is that of the output
            y @ weight
            y.T @ x

        total += count * _seconds(products, device)
    return total


def step_seconds(
    model: nn.Module, recipe: Recipe, corpus: Corpus, device: torch.device, compiler: str | None = None
) -> float:
    """Time of a training step in one process, without compilation and checkpoints.

    Args:
        model: of the recipe, on the device. These steps train it on.
        recipe: of the training.
        corpus: with the training text.
        device: of type ``"cpu"`` or ``"cuda"``.
        compiler: as for :func:`~rope_lessons.lab.training.train`.

    Returns:
        seconds, the median.
    """
    optimizer = training.OPTIMIZERS[recipe.optimizer](model, recipe)
    if compiler is not None:
        model.compile_layers(backend=compiler)  # type: ignore[operator]
    run = training.Run(recipe, corpus, Team(device), training.Objective(model, recipe.row), optimizer)
    numbers = itertools.count()
    together = 1 if device.type == "cpu" else training.TOGETHER  # a card falls behind, as it does in a training

    def steps() -> None:
        for _ in range(together):
            run.step(next(numbers))

    return _seconds(steps, device) / together


def measure(
    model: nn.Module, recipe: Recipe, corpus: Corpus, device: torch.device, compiler: str | None = None
) -> dict[str, Any]:
    """The speed of a training.

    Args:
        model, recipe, corpus, device, compiler: as for :func:`step_seconds`.

    Returns:
        ``tokens_per_second``; ``flops_per_token``, by :func:`training_flops`; ``matrix_rate``, the largest that was
        measured, and ``matrix_side``, at which; ``utilisation``, the share of that rate that the steps use; and
        ``products_share``, the share of a step's time that the products of the weights take by themselves, at the
        shapes that they have.

    Chapter 12.
    """
    dtype, tokens = training.DTYPES[recipe.dtype], recipe.batch * recipe.train_length
    step = step_seconds(model, recipe, corpus, device, compiler)
    flops = training_flops(recipe.config, recipe.train_length, recipe.row.method.train)
    rates = matrix_rate(device, dtype)
    side = max(rates, key=rates.__getitem__)
    return {
        "tokens_per_second": round(tokens / step),
        "flops_per_token": round(flops),
        "matrix_rate": round(rates[side]),
        "matrix_side": side,
        "utilisation": round(tokens * flops / step / rates[side], 4),
        "products_share": round(products_seconds(recipe.config, tokens, device, dtype) / step, 4),
    }


def _random(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Numbers that are not alike: a card multiplies zeros faster than it trains."""
    return torch.randn(shape, generator=torch.Generator(device).manual_seed(0), device=device).to(dtype)


def _seconds(call: Callable[[], Any], device: torch.device, rounds: int = 5, warm_up: int = 2) -> float:
    """The median time of a call."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    times = []
    for _ in range(warm_up + rounds):
        _wait(device)
        begin = clock()
        call()
        _wait(device)
        times.append(clock() - begin)
    return median(times[warm_up:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
