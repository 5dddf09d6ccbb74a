"""Chapter 04: test the byte model with mixed-radix frequencies at 8 times its training length.

    python -m experiments mixed_radix

Takes about 15 minutes on one CPU core, and 90 s for each of two models a seed if not trained yet.

Writes mixed_radix.json. Nothing is chosen by the results: every exponent and every factor that was tried is a row.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments import command
from experiments.result import Result
from experiments.trained import Models, about, evaluation_windows, measure
from rope_lessons import LogN, Scheme, apply_rotary, attention, scheme
from rope_lessons.models import byte_lm

SEEDS = (0, 1, 2, 3, 4)
FACTOR, LENGTH = 8, 512
EXPONENTS = (0, 0.25, 0.5, 0.625, 0.75, 0.875, 1, 1.25, 1.5, 2)
OTHER_FACTORS = (16, 32, 64, 128)
# Pair 9 is the first that does not go round within 64 bytes. With this factor NTK-fixed slows it as much as b = 0.625
# does with FACTOR, so that the two reach equally far.
SAME_REACH = round(FACTOR ** ((10 / 32) ** (0.625 - 1)), 2)
REPEATED = (64, 256)  # a repeated piece is this long: shortest, longest

Scale = LogN | None


def schemes(scale: Scale) -> dict[str, Scheme]:
    """The rows of the source's tables and the sweep over b, by name."""
    turn: dict[str, Any] = {"dim": byte_lm.Config().head_dim, "scale": scale}
    rows = {"rope": scheme("rope", **turn)}
    rows |= {name: scheme(name, factor=FACTOR, **turn) for name in ("pi", "ntk-old", "ntk-fixed", "ntk-aware")}
    rows["same-reach"] = scheme("ntk-fixed", factor=SAME_REACH, **turn)
    return rows | {f"mixed-{b:g}": scheme("ntk-mixed", factor=FACTOR, exponent=b, **turn) for b in EXPONENTS}


def repeat_windows(windows: Tensor) -> Tensor:
    """Of window i only the first P bytes, over and over, with P from 64 (i = 0) to 256 (the last one)."""
    low, high = REPEATED
    periods = [low + i * (high - low) // (len(windows) - 1) for i in range(len(windows))]
    offsets = torch.arange(windows.shape[1])
    return torch.stack([window[offsets % period] for window, period in zip(windows, periods, strict=True)])


def attend(q: Tensor, k: Tensor, v: Tensor, layer: Scheme) -> Tensor:
    """The package's attention for these schemes, on PyTorch's fused kernel: the same numbers in half the time."""
    assert layer.frequencies is not None
    positions = torch.arange(q.shape[2])
    q, k = (apply_rotary(x, positions, layer.frequencies(), layout=layer.layout) for x in (q, k))
    if layer.scale is not None:
        q = q * layer.scale(positions + 1).to(q.dtype).unsqueeze(-1)  # query i sees i + 1 tokens
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def check_attend() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, LENGTH, byte_lm.Config().head_dim)
    for scale in (None, LogN(64), LogN(64, clip=True)):
        for layer in schemes(scale).values():
            assert torch.allclose(attend(q, k, v, layer), attention(q, k, v, layer), atol=1e-5), layer


def mean_of(found: dict) -> dict:
    """Without the eighths of the text: the chapter needs the means only, and the rows are many."""
    return {key: found[key] for key in ("accuracy", "loss")}


def rows_of(seed: int, models: Models, windows: Tensor) -> list[dict]:
    """Three settings of the scale: none, log n† at test only, log n in training and at test."""
    config = byte_lm.Config()
    n = config.length
    settings: dict[str, tuple[Scale, Scale]] = {  # in training, at test
        "plain": (None, None),
        "dagger": (None, LogN(n, clip=True)),
        "logn": (LogN(n), LogN(n)),
    }
    texts = (("plain", n, windows), ("plain", LENGTH, windows), ("repeated", LENGTH, repeat_windows(windows)))
    rows = []
    for setting, (in_training, at_test) in settings.items():
        plan = (scheme("rope", dim=config.head_dim, scale=in_training),) * config.layers
        model = models.byte_model(seed, plan if in_training else None)
        for name, layer in schemes(at_test).items():
            factor = SAME_REACH if name == "same-reach" else FACTOR
            base = {"seed": seed, "scale": setting, "method": name, "factor": factor}
            for text, length, what in texts:
                if setting == "dagger" and length == n:
                    continue  # log n† is 1 up to the training length
                found = measure(model, what, length, (layer,) * config.layers, attend=attend)
                rows.append({**base, "text": text, "length": length, **mean_of(found)})
    return rows


def sweep_of(seed: int, models: Models, windows: Tensor) -> list[dict]:
    """Every exponent with every other factor: no scale, text of 512 bytes."""
    model, config = models.byte_model(seed), byte_lm.Config()
    rows = []
    for factor in OTHER_FACTORS:
        for b in EXPONENTS:
            layer = scheme("ntk-mixed", dim=config.head_dim, factor=factor, exponent=b)
            found = measure(model, windows, LENGTH, (layer,) * config.layers, attend=attend)
            base = {"seed": seed, "scale": "plain", "method": f"mixed-{b:g}", "factor": factor}
            rows.append({**base, "text": "plain", "length": LENGTH, **mean_of(found)})
    return rows


def measure_all(seeds: Sequence[int], models: Models, windows: Tensor, out: Path, fresh: bool) -> None:
    check_attend()
    settings = {
        "factor": FACTOR,
        "same_reach": SAME_REACH,
        "exponents": list(EXPONENTS),
        "factors": sorted((FACTOR, *OTHER_FACTORS)),
        "repeated": "the first P bytes of a window over and over; P from 64 for the first window to 256 for the last",
        "test_text": about(windows),
    }
    result = Result(out / "mixed_radix.json", "mixed_radix", settings, {"rows": []}, fresh)
    for seed in seeds:
        if result.lacks("rows", seed=seed):
            result.add(rows=rows_of(seed, models, windows) + sweep_of(seed, models, windows))
    result.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.trained_parser("experiments mixed_radix", __doc__, SEEDS)
    options = command.parse(parser, arguments)
    models, windows = Models(options.models, options.steps), evaluation_windows(options.windows)
    return command.run(parser.prog, lambda: measure_all(options.seeds, models, windows, options.out, options.fresh))


if __name__ == "__main__":
    sys.exit(main())
