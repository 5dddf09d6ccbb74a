"""Chapter 14: what a second axis buys: models that look for the pixel above, in pictures of other shapes.

    python -m experiments axes

Takes about 8 minutes on one CPU core: 5 s for each of 45 trainings, and the tests.

Writes axes.json. Pictures of 8 rows and 8 columns in training; at test as many, more rows, more of both. Then, at three
times the size, what some hands say of far pixels is taken away from the model with two axes: nothing is farther than 7.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from experiments import command
from experiments.result import Result
from rope_lessons.axes import axial_frequencies
from rope_lessons.models import pictures
from rope_lessons.sinusoidal import rope_frequencies

SEEDS = (0, 1, 2, 3, 4)
CONFIG = pictures.PictureConfig()
DIM, PAIRS = CONFIG.head_dim, CONFIG.head_dim // 2
SHAPES = ((8, 8), (18, 8), (12, 12), (24, 24))  # rows and columns; the second and third have as many pixels
FARTHEST = CONFIG.side - 1  # rows and columns between two pixels of training
HANDS = PAIRS // 2  # of an axis
FAST = 2  # hands of an axis that go halfway round and more within a picture of training, with a base of 100
CLIPPED = {
    "none": (),
    "all": tuple(range(PAIRS)),
    "fast": tuple(t for t in range(PAIRS) if t % HANDS < FAST),
    "slow": tuple(t for t in range(PAIRS) if t % HANDS >= FAST),
}  # which hands are told that no pixel is farther than that
WIDTHS = (6, 7, 8, 9, 10, 11)  # in training, for the controls; 12 is in none but the last


def mixed(seed: int) -> Tensor:
    """Every pair turns along a direction of its own, drawn at random, in which training may turn it further."""
    ladder = rope_frequencies(DIM, base=100.0)
    angle = math.pi * torch.rand(PAIRS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.stack((ladder * angle.sin(), ladder * angle.cos()))


LINE = rope_frequencies(DIM).unsqueeze(0)
# What is trained, by name: a function from the seed to the model, given the sizes.
KINDS: dict[str, Callable[..., pictures.PictureModel]] = {
    "line by line": partial(pictures.train, LINE),
    "line by line, base 100": partial(
        pictures.train, rope_frequencies(DIM, base=100.0).unsqueeze(0)
    ),  # that of the axes
    "two axes": partial(pictures.train, axial_frequencies(DIM, 2, base=100.0)),
    "two axes, base 10": partial(pictures.train, axial_frequencies(DIM, 2, base=10.0)),
    "mixed": lambda seed, **options: pictures.train(mixed(seed), seed, learned=True, **options),
    "learned table": partial(pictures.train, None),
    "line by line, six widths": partial(pictures.train, LINE, columns=WIDTHS),
    "line by line, told the width": partial(pictures.train, LINE, columns=WIDTHS, told=True),
    "line by line, told, 12 too": partial(pictures.train, LINE, columns=(*WIDTHS, 12), told=True),
}


def measure_all(seeds: Sequence[int], config: pictures.PictureConfig, out: Path, fresh: bool) -> None:
    settings = {"config": asdict(config), "shapes": SHAPES, "widths": WIDTHS}
    result = Result(out / "axes.json", "axes", settings, {"rows": [], "clipped": []}, fresh)
    for seed in seeds:
        for kind, trained in KINDS.items():
            if result.lacks("rows", seed=seed, kind=kind):
                model = trained(seed=seed, config=config)
                result.add(
                    rows=[
                        {"seed": seed, "kind": kind, "rows": rows, "columns": columns,
                         "right": round(pictures.right(model, rows, columns), 4)}
                        for rows, columns in SHAPES
                    ]
                )  # fmt: skip
        clip(result, seed, config)
    result.close()


def clip(result: Result, seed: int, config: pictures.PictureConfig) -> None:
    """At three times the size, nothing is farther than in training: for all hands, or for some."""
    side = 3 * config.side
    for kind in ("two axes", "two axes, base 10"):
        if result.lacks("clipped", seed=seed, kind=kind):
            model = KINDS[kind](seed=seed, config=config)
            found = {
                name: pictures.right_clipped(model, side, side, FARTHEST, hands) for name, hands in CLIPPED.items()
            }
            result.add(
                clipped=[
                    {"seed": seed, "kind": kind, "hands": name, "right": round(right, 4)}
                    for name, right in found.items()
                ]
            )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("experiments axes", __doc__)
    command.add_seeds(parser, SEEDS)
    command.add_places(parser, models=False)
    command.add_fresh(parser)
    command.add_try(parser, "steps")
    options = command.parse(parser, arguments)
    config = CONFIG if options.steps is None else replace(CONFIG, steps=options.steps)
    return command.run(parser.prog, lambda: measure_all(options.seeds, config, options.out, options.fresh))


if __name__ == "__main__":
    sys.exit(main())
