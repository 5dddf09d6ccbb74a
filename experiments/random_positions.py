"""Chapter 10: train masked language models on 64 bytes with random positions, and test them on up to 512.

    python -m experiments random_positions
    python -m experiments random_positions --only rope      # only the models with "rope" in their names
    python -m experiments random_positions --part controls  # what else could explain it

Takes about 35 minutes on one CPU core for the models, one to two for each of 21, and about an hour for the controls.

Writes random_positions.json. The test text is every third piece of that of chapter 03.

There are no models trained with log n: in an encoder every query of a training window sees all 64 bytes, so the scale
log_64(n) is 1 throughout, and the training is the same with and without it. It is a choice at test only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import rope_lessons as rl
from experiments import command
from experiments.result import Result
from experiments.trained import Models, attend_fast, digest, evaluation_windows, surroundings, training_text
from rope_lessons import LogN, scheme
from rope_lessons.methods import Positions
from rope_lessons.models import byte_lm, masked_lm
from rope_lessons.schemes import Plan

SEEDS = (0, 1, 2)
CONFIG = replace(byte_lm.Config(), batch=16)  # half that of chapter 03, so that 21 trainings fit into an hour
N, LENGTHS, L = CONFIG.length, (64, 128, 256, 512), 2048
SPACINGS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


# --- samplers ------------------------------------------------------------------------------------------------------


def even(length: int, *, step: float, **ignored: Any) -> Tensor:
    """0, step, 2 step, …"""
    return step * torch.arange(length, dtype=torch.float64)


def squeezed(length: int, **ignored: Any) -> Tensor:
    """As many positions as there are bytes, within those of training: position interpolation."""
    return even(length, step=N / length)


RANDOM: Positions = partial(rl.random_positions.random_positions, max_length=L)
GRID: Positions = partial(rl.random_positions.grid_positions, max_length=L)
# One n for each sequence of a batch: the reason is in the chapter.
EXPONENTIAL: Positions = partial(rl.random_positions.equal_mean_positions, batch=CONFIG.batch)
BETA: Positions = partial(EXPONENTIAL, distribution="beta", max_length=512, alpha=0.25)
TRAINING: dict[str, Positions | None] = {"plain": None, "random": RANDOM, "equal-mean": EXPONENTIAL, "beta": BETA}
AT_TEST: dict[str, dict[str, Positions | None]] = {
    "plain": {"0, 1, 2": None, "squeezed": squeezed},
    "random": {"random": RANDOM, "grid": GRID, "0, 1, 2": None},
    "equal-mean": {"0, 1, 2": None},
    "beta": {"0, 1, 2": None},
}


@dataclass(frozen=True)
class Row:
    """What a model is trained with."""

    encoding: str  # "rope", or "sinusoidal": added to the embedding, and attention without position
    training: str

    def plan(self, scale: LogN | None = None) -> Plan:
        rope = scheme("rope", dim=CONFIG.head_dim, causal=False, scale=scale)
        return (rope if self.encoding == "rope" else rope.replace(frequencies=None),) * CONFIG.layers

    @property
    def name(self) -> str:
        return f"{self.encoding}, {self.training}"


ROWS = [
    Row(encoding, training) for training in ("plain", "random", "equal-mean") for encoding in ("rope", "sinusoidal")
]
ROWS.append(Row("rope", "beta"))


@dataclass(frozen=True)
class Control:
    """A training that could explain what the others show, and how it is tested. All have RoPE.

    Args:
        name: of the training.
        tests: name of each test, what its plan changes, and its positions.
        sampler: of the positions in training; None for 0, 1, 2, ….
        config: of the model.
        still: pairs that do not turn, in training and at test.
        lengths: of the test texts.
    """

    name: str
    tests: Mapping[str, tuple[Mapping[str, Any], Positions | None]]
    sampler: Positions | None = None
    config: byte_lm.Config = CONFIG
    still: tuple[int, ...] = ()
    lengths: tuple[int, ...] = LENGTHS

    def plan(self, **changes: Any) -> Plan:
        dim = CONFIG.head_dim
        rope = scheme("rope", dim=dim, causal=False)
        if self.still:  # slowed until they stand, by the lists of LongRoPE
            factors = tuple(1e9 if pair in self.still else 1.0 for pair in range(dim // 2))
            lists: dict[str, Any] = {"short_factor": factors, "long_factor": factors, "train_length": N}
            rope = scheme("longrope", dim=dim, causal=False, factor=1.0, rotary_scale=1.0, **lists)
        return (rope.replace(**changes),) * CONFIG.layers


ORDINARY: dict[str, tuple[dict[str, Any], Positions | None]] = {"0, 1, 2": ({}, None)}
BENT = {"window": N // 2, "slope": 0.0}
AWAY: dict[str, tuple[dict[str, Any], Positions | None]] = {
    **ORDINARY,
    **{f"window {size}": ({"visible_window": size}, None) for size in (8, 16, 64)},  # on both sides
    "ReRoPE": (BENT, None),
    "ReRoPE, log n": (BENT | {"scale": LogN(N)}, None),
}
BLIND = (
    12  # pairs that a gap of mean 31.5 turns by about a radian or more: what they say of the next token averages out
)


def _subset(largest: int) -> tuple[Positions, Positions]:
    """The random subset of so many positions, and the grid over them."""
    return (
        partial(rl.random_positions.random_positions, max_length=largest),
        partial(rl.random_positions.grid_positions, max_length=largest),
    )


def _controls() -> Iterator[Control]:
    # 1. What forgetting, bending and training at the long length do.
    yield Control("plain", AWAY)
    at_512 = replace(CONFIG, length=LENGTHS[-1], batch=CONFIG.batch * N // LENGTHS[-1])  # as many bytes
    yield Control("plain at 512", ORDINARY, config=at_512)
    # 2. Is the price that of random gaps, of wide ones, or of hands that no longer tell neighbours apart?
    wide: Positions = partial(even, step=32.0)
    yield Control("steps of 32", {"steps of 32": ({}, wide)}, wide, lengths=(N,))
    pairs = CONFIG.head_dim // 2
    yield Control("fast hands still", ORDINARY, still=tuple(range(BLIND)), lengths=(N,))
    yield Control("slow hands still", ORDINARY, still=tuple(range(pairs - BLIND, pairs)), lengths=(N,))
    grid_alone: dict[str, tuple[dict[str, Any], Positions | None]] = {"grid": ({}, GRID)}
    yield Control("random, fast hands still", grid_alone, RANDOM, still=tuple(range(BLIND)))
    yield Control("random, slow hands still", grid_alone, RANDOM, still=tuple(range(pairs - BLIND, pairs)))
    # 3. Does the range matter?
    for largest in (512, 1024, 4096, 8192):
        sampler, grid = _subset(largest)
        yield Control(f"random, {largest}", {"grid": ({}, grid)}, sampler)
    # 4. Its descendant: true distances within two chunks, and one jump between them.
    jump: Positions = partial(rl.random_positions.skip_positions, max_length=LENGTHS[-1], batch=CONFIG.batch)
    yield Control("one jump", ORDINARY, jump)
    # 5. Is it a matter of time?
    longer = replace(CONFIG, steps=3 * CONFIG.steps)
    yield Control("plain, three times", {**ORDINARY, "window 16": AWAY["window 16"]}, config=longer)
    yield Control("random, three times", grid_alone, RANDOM, config=longer)
    yield Control("equal-mean, three times", ORDINARY, EXPONENTIAL, config=longer)
    # 6. Does a longer text that keeps the step of training fare better than on the grid?
    kept: dict[str, tuple[dict[str, Any], Positions | None]] = {
        "grid": ({}, GRID),
        "steps of 32": ({}, wide),
        "steps of 32, window 64": ({"visible_window": N}, wide),
    }
    yield Control("random, step kept", kept, RANDOM)


CONTROLS = {control.name: control for control in _controls()}


# --- training ------------------------------------------------------------------------------------------------------


def trained(models: Models, row: Row, seed: int) -> masked_lm.MaskedLM:
    """The model after its training, weights rounded to bfloat16 as a stored file holds them."""
    config = models.config(CONFIG)
    options: Any = {"plan": row.plan(), "additive": row.encoding == "sinusoidal"}
    train = partial(masked_lm.train, sampler=TRAINING[row.training])
    build = partial(masked_lm.build, config, seed, **options)
    # The losses of two steps stand for the code of the model and of the sampler: a change of either trains anew.
    rehearsal = train(build(), training_text(), config, seed, steps=2)
    recipe = (asdict(config), row, seed, *surroundings(), rehearsal)
    path = models.path(recipe, build, config, seed, f"{row.name}, seed {seed}", kind="masked-", train=train)
    return masked_lm.load(path, config, **options)


def trained_control(models: Models, control: Control, seed: int) -> masked_lm.MaskedLM:
    """As :func:`trained`."""
    config = models.config(control.config)
    train = partial(masked_lm.train, sampler=control.sampler)
    build = partial(masked_lm.build, config, seed, control.plan())
    rehearsal = train(build(), training_text(), config, seed, steps=2)
    recipe = (asdict(config), control.name, control.still, seed, *surroundings(), rehearsal)
    path = models.path(recipe, build, config, seed, f"{control.name}, seed {seed}", kind="masked-", train=train)
    return masked_lm.load(path, config, control.plan())


# --- what is measured ----------------------------------------------------------------------------------------------


def measured(
    model: masked_lm.MaskedLM, windows: Tensor, length: int, attend: Callable[..., Tensor] = attend_fast, **options: Any
) -> dict[str, float]:
    hits, losses = masked_lm.evaluate(model, windows, length, attend=attend, **options)
    return {"accuracy": round(hits.mean().item(), 5), "loss": round(losses.mean().item(), 5)}


def rows_of(row: Row, model: masked_lm.MaskedLM, windows: Tensor) -> Iterator[dict]:
    """Every length, with the positions that make sense at test, without and with log n."""
    for positions, sampler in AT_TEST[row.training].items():
        for scale in (None, LogN(N)):
            for length in LENGTHS:
                if scale is None or length > N:  # at N the scale is 1
                    found = measured(model, windows, length, plan=row.plan(scale), sampler=sampler)
                    yield {"positions": positions, "log_n": scale is not None, "length": length, **found}


def controls_of(control: Control, model: masked_lm.MaskedLM, windows: Tensor) -> Iterator[dict]:
    """Every test of a control at every length."""
    for name, (changes, sampler) in control.tests.items():
        for length in control.lengths:
            plan = control.plan(**changes)  # a window to both sides is none of the fast kernels'
            found = measured(model, windows, length, attend=rl.attention, plan=plan, sampler=sampler)
            yield {"test": name, "length": length, **found}


def spacings_of(model: masked_lm.MaskedLM, windows: Tensor) -> Iterator[dict]:
    """The same 64 bytes at positions that are further apart, or closer: does the value matter, or the order?"""
    for step in SPACINGS:
        yield {"spacing": step, **measured(model, windows, N, sampler=partial(even, step=step))}


def microseconds(function: Callable[[], Any], repeats: int) -> float:
    function()
    begin = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - begin) / repeats * 1e6


def cost() -> dict[str, float]:
    """A draw against a step of training without one, in turns, so that a loaded machine slows both; the medians."""
    draws: dict[str, Positions] = {
        "random, one for the batch": RANDOM,
        "random, one for each sequence": partial(RANDOM, batch=CONFIG.batch),
        "equal-mean, one for each sequence": EXPONENTIAL,
        "beta, one for each sequence": BETA,
    }
    model, generator = masked_lm.build(CONFIG, 0), torch.Generator().manual_seed(0)
    steps: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in draws}
    for _ in range(15):
        steps.append(microseconds(lambda: masked_lm.train(model, training_text(), CONFIG, 0, steps=2), 1) / 2)
        for name, draw in draws.items():
            times[name].append(microseconds(partial(draw, N, generator=generator), 20))

    def middle(values: list[float]) -> float:
        return sorted(values)[len(values) // 2]

    shares = {name: round(middle(found) / middle(steps), 5) for name, found in times.items()}
    return {"step_ms": round(middle(steps) / 1000, 1), **shares}


# --- all of it -----------------------------------------------------------------------------------------------------


def measure_all(
    seeds: Sequence[int], only: str, part: str, models: Models, windows: Tensor, out: Path, fresh: bool
) -> None:
    hidden = masked_lm.hide(windows[:, :-1], torch.Generator().manual_seed(0))[1].sum().item()
    settings = {
        "config": asdict(models.config(CONFIG)),
        "share": masked_lm.SHARE,
        "max_length": L,
        "beta": {"max_length": 512, "alpha": 0.25},
        "test_text": {"windows": len(windows), "hidden": hidden, "sha256": digest(windows)},
    }
    empty: dict[str, Any] = {"cost": {}, "rows": [], "spacings": [], "controls": []}
    result = Result(out / "random_positions.json", "random_positions", settings, empty, fresh)
    for seed in seeds if part in ("models", "all") else []:
        for row in ROWS:
            labels = {"seed": seed, **asdict(row)}
            if only in row.name and result.lacks("rows", **labels):
                model = trained(models, row, seed)
                rows, spacings = rows_of(row, model, windows), spacings_of(model, windows)
                result.add(rows=[labels | new for new in rows], spacings=[labels | new for new in spacings])
    for seed in seeds if part in ("controls", "all") else []:
        for control in CONTROLS.values():
            labels = {"seed": seed, "training": control.name}
            if only in control.name and result.lacks("controls", **labels):
                model = trained_control(models, control, seed)
                result.add(controls=[labels | new for new in controls_of(control, model, windows)])
    if part in ("cost", "all") and not result.found["cost"]:
        result.set(cost=cost())
    result.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.trained_parser("experiments random_positions", __doc__, SEEDS)
    parser.add_argument("--only", default="", help="part of the name of the models, such as 'rope' or 'rope, random'")
    told = "the models, their controls, what a draw costs, or all"
    parser.add_argument("--part", choices=("models", "controls", "cost", "all"), default="all", help=told)
    options = command.parse(parser, arguments)
    names = [*(row.name for row in ROWS), *CONTROLS]
    if not any(options.only in name for name in names):
        parser.error(f"argument --only: {options.only!r} is in none of {'; '.join(names)}")
    models, windows = Models(options.models, options.steps), evaluation_windows(options.windows, every=3)
    chosen = options.seeds, options.only, options.part
    return command.run(parser.prog, lambda: measure_all(*chosen, models, windows, options.out, options.fresh))


if __name__ == "__main__":
    sys.exit(main())
