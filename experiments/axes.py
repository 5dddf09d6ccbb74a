"""Chapter 14: what a second axis buys: models that look for the pixel above, in pictures of other shapes.

    python -m experiments axes

Takes about 8 minutes on one CPU core: 5 s for each of 55 trainings, and the tests.

Writes axes.json. Pictures of 8 rows and 8 columns in training; at test as many, more rows, more of both. Then what some
hands say of far pixels is taken away from the models with two axes: nothing is farther than 7. The control: a window.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments import command
from experiments.result import Result
from rope_lessons.axes import axial_frequencies, axial_positions
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
CLIPPED_PICTURES = 8  # as scores of all pairs are large
TWO_AXES = ("two axes", "two axes, base 10")
WIDTHS = (6, 7, 8, 9, 10, 11)  # in training, for the controls; 12 is in none but the last


def mixed(seed: int) -> Tensor:
    """Every pair turns along a direction of its own, drawn at random, in which training may turn it further."""
    ladder = rope_frequencies(DIM, base=100.0)
    angle = math.pi * torch.rand(PAIRS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.stack((ladder * angle.sin(), ladder * angle.cos()))


LINE = rope_frequencies(DIM).unsqueeze(0)
STRIDE = 64  # places in a row, however many pixels it has: the pixel above is as many back in every picture
# What is trained, by name: a function from the seed to the model, given the sizes.
KINDS: dict[str, Callable[..., pictures.PictureModel]] = {
    "line by line": partial(pictures.train, LINE),
    "line by line, base 100": partial(
        pictures.train, rope_frequencies(DIM, base=100.0).unsqueeze(0)
    ),  # that of the axes
    "two axes": partial(pictures.train, axial_frequencies(DIM, 2, base=100.0)),
    "two axes, base 10": partial(pictures.train, axial_frequencies(DIM, 2, base=10.0)),
    "two axes, base 10,000": partial(pictures.train, axial_frequencies(DIM, 2)),
    "rows of 64 places": partial(pictures.train, torch.cat((STRIDE * LINE, LINE))),
    "mixed": lambda seed, **options: pictures.train(mixed(seed), seed, learned=True, **options),
    "learned table": partial(pictures.train, None),
    "line by line, six widths": partial(pictures.train, LINE, columns=WIDTHS),
    "line by line, told the width": partial(pictures.train, LINE, columns=WIDTHS, told=True),
    "line by line, told, 12 too": partial(pictures.train, LINE, columns=(*WIDTHS, 12), told=True),
}


def scores(model: pictures.PictureModel, q: Tensor, k: Tensor, away: Tensor, hands: Sequence[int]) -> Tensor:
    """Scores of all pairs of pixels, where for some hands nothing is farther than in training, on any axis.

    A hand turns by the sum, over the axes, of its frequency times the difference of query and key, ``away`` of shape
    ``(queries, keys, axes)``; if it is one of ``hands``, that difference is clipped first.
    """
    assert model.frequencies is not None
    turning_q, turning_k = (torch.complex(*x.double().chunk(2, dim=-1)) for x in (q, k))
    found = torch.zeros(*q.shape[:3], k.shape[2], dtype=torch.float64)
    for t, speed in enumerate(model.frequencies.detach().T):
        angle = (away.clamp(-FARTHEST, FARTHEST) if t in hands else away) @ speed
        product_of_pair = turning_q[..., :, None, t] * turning_k[..., None, :, t].conj()
        found += (product_of_pair * torch.polar(torch.ones_like(angle), angle)).real
    return found / q.shape[-1] ** 0.5


@torch.no_grad()
def right_clipped(
    model: pictures.PictureModel, rows: int, columns: int, hands: Sequence[int] = (), window: bool = False
) -> float:
    """As :func:`pictures.right`, with some hands clipped; ``window`` hides what is farther instead."""
    places = axial_positions((rows, columns)).double()
    away = places[:, None] - places
    hidden = (away.abs() > FARTHEST).any(dim=-1) & torch.tensor(window)
    generator = torch.Generator().manual_seed(2**32 + rows * columns)
    correct = []
    for some in pictures.draw(model.config, rows, columns, CLIPPED_PICTURES, generator).split(2):
        q, k, v = model.heads(some)
        weights = scores(model, q, k, away, hands).masked_fill(hidden, -torch.inf).softmax(dim=-1).to(v.dtype)
        answers = model.answer((weights @ v).transpose(1, 2).flatten(2)).argmax(dim=-1).unflatten(1, (rows, columns))
        correct.append((answers[:, 1:] == some[:, :-1]).double().mean())
    return float(torch.stack(correct).mean())


def tested(model: pictures.PictureModel) -> Iterator[dict[str, Any]]:
    for rows, columns in SHAPES:
        yield {"rows": rows, "columns": columns, "right": round(pictures.right(model, rows, columns), 4)}


def clipped(model: pictures.PictureModel) -> Iterator[dict[str, Any]]:
    """On the pictures in which pixels are farther apart than in training, and the control that does not see those."""
    for rows, columns in ((18, 8), (24, 24)):
        ways = {name: right_clipped(model, rows, columns, hands) for name, hands in CLIPPED.items()}
        ways["window"] = right_clipped(model, rows, columns, window=True)
        for name, right in ways.items():
            yield {"rows": rows, "columns": columns, "hands": name, "right": round(right, 4)}


def measure_all(seeds: Sequence[int], config: pictures.PictureConfig, out: Path, fresh: bool) -> None:
    settings = {"config": asdict(config), "shapes": SHAPES, "widths": WIDTHS}
    result = Result(out / "axes.json", "axes", settings, {"rows": [], "clipped": []}, fresh)
    for seed, (kind, trained) in product(seeds, KINDS.items()):
        labels: dict[str, Any] = {"seed": seed, "kind": kind}
        asked = {"rows": tested, "clipped": clipped} if kind in TWO_AXES else {"rows": tested}
        missing = {table: measure for table, measure in asked.items() if result.lacks(table, **labels)}
        if missing:
            model = trained(seed=seed, config=config)
            result.add(**{table: [labels | row for row in measure(model)] for table, measure in missing.items()})
    result.close()


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
