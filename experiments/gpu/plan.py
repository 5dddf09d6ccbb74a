"""The queue: every step, the most valuable first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from experiments.gpu import ceilings, decode, engine, grammars, notebooks, right, rotation, trainings
from experiments.gpu.engine import Shape
from experiments.gpu.step import Step

FASTER = {"full": 1.0, "small": 0.1, "tiny": 0.01}  # minutes of a step at each scale, beside those of a card


def queue(scale: str, device: str) -> list[Step]:
    """All steps of a scale, in the order in which they are done.

    Args:
        scale: one of ``step.SCALES``.
        device: ``"cuda"``, or ``"cpu"``, where all steps are done one by one.
    """
    found = [*of_right(scale), *of_notebooks(scale), *of_engine(scale)]
    if scale != "small":
        found += [*of_table(scale), *of_chomsky(scale)]
    found = [replace(step, minutes=step.minutes * FASTER[scale]) for step in found]
    return found if device == "cuda" else [replace(step, lane="quiet") for step in found]


def of_right(scale: str) -> Iterator[Step]:
    yield Step("right/kernels", 0.5, right.kernel_checks, lane="several")
    dense = ("reference", "flash", "auto")
    for dtype in ("float32", "bfloat16", "float16"):
        drawn = partial(right.random_calls, dtype=dtype, backends=dense)
        yield Step(f"right/calls/{dtype}", 1.5, drawn, lane="several")
    yield Step("right/caches", 1.0, right.caches, lane="several")
    yield Step("right/lab", 1.5, right.lab_models, lane="several")
    yield Step("right/chomsky", 0.7, right.chomsky_models, lane="several")
    flex = partial(right.random_calls, dtype="float32", backends=("flex",), plain=True, seconds=220.0)
    yield Step("right/flex", 4.0, flex, lane="several")
    if scale != "small":
        yield Step("right/tests", 7.0, right.tests, needs=("pytest", "hypothesis", "yaml"))


def of_notebooks(scale: str) -> Iterator[Step]:
    names = notebooks.names() if scale != "tiny" else ["quickstart", "13_gpu"]
    for name in names:
        yield Step(f"notebooks/{name}", 1.0, partial(notebooks.one, name=name), lane="several")


def shapes(scale: str) -> list[Shape]:
    """Those that have a target first: 8k, 16k and 32k tokens with a key head to each head."""
    if scale == "tiny":
        return [Shape(64, 8, 2, 2), Shape(48, 8, 4, 2)]
    if scale == "small":
        return [Shape(1024, 64, 2, 2), Shape(2048, 64, 2, 2), Shape(1024, 64, 4, 2)]
    k = 1024
    heads = ((16, 16), (32, 8))
    with_target = [Shape(length, dim, *heads[0]) for length in (8 * k, 16 * k, 32 * k) for dim in (128, 64)]
    grouped = [Shape(length, dim, *heads[1]) for length in (8 * k, 16 * k, 32 * k) for dim in (128, 64)]
    others = [Shape(length, dim, *some) for some in heads for length in (4 * k, 64 * k) for dim in (128, 64)]
    return [*with_target, *grouped, *others]


def of_engine(scale: str) -> Iterator[Step]:
    tiny, small = scale == "tiny", scale == "small"
    yield Step("engine/ceilings", 0.7, ceilings.measure)
    yield Step("engine/rotation", 0.7, rotation.speed)
    yield Step("engine/merge", 0.4, engine.merging)
    # one sequence each first: that is where a step is shortest, and what surrounds the kernel weighs most
    pairs = (
        [(48, 1)]
        if tiny
        else [(2048, 1), (4096, 2)]
        if small
        else [(n * 1024, b) for b in (1, 16) for n in (16, 64, 256)]
    )
    decodes = [
        Step(f"engine/decode/{length}/{batch}", 0.6, partial(decode.step, length=length, batch=batch))
        for length, batch in pairs
    ]
    speeds = [Step(f"engine/speed/{shape.name}", 1.2, partial(engine.speed, shape=shape)) for shape in shapes(scale)]
    lengths = [64] if tiny else [1024] if small else [n * 1024 for n in (8, 16, 32, 4, 64)]
    steps = [Step(f"engine/training/{n}", 0.6, partial(engine.training_step, length=n)) for n in lengths]
    yield from speeds[:6]
    yield steps[0]
    yield from decodes
    yield Step("engine/memory", 2.0, engine.memory)
    yield from (*speeds[6:], *steps[1:])


def of_table(scale: str) -> Iterator[Step]:
    def one(size: str, scheme: str, seed: int, minutes: float, lane: str = "card") -> Step:
        run = partial(trainings.one, size=size, scheme=scheme, seed=seed)
        return Step(f"table/{size}/{seed}/{scheme}", minutes, run, trainings.NEEDS, lane, pauses=True)

    tests = {"rope": 2.5, "rope-logn": 2.0}  # minutes of the rows that these serve
    if scale == "tiny":  # what is trained alike in all layers, and what is not
        yield from (one("gau-25m", row, 0, 1.0) for row in trainings.ROWS[::4])
        return
    for seed in (0, 1):
        yield from (one("gau-25m", row, seed, 3.5 + tests.get(row, 0.3)) for row in trainings.ROWS)
    for seed in (0, 1, 2):
        yield from (one("gau-0.3m", row, seed, 4.0, "cores") for row in trainings.SMALL_ROWS)
    yield from (one("gau-87m", row, 0, 9.0 + 2 * tests.get(row, 0.3)) for row in trainings.LARGEST_ROWS)


def of_chomsky(scale: str) -> Iterator[Step]:
    some = list(grammars.cells())
    if scale == "tiny":  # each kind of model once, on tasks of all levels
        some = some[:3] + some[:: len(some) // len(grammars.KINDS)][1:]
    for task, model, positions in some:
        run = partial(grammars.one, task=task, model=model, positions=positions)
        name = f"chomsky/{task}/{model}/{positions}"
        yield Step(name, 2.5, run, trainings.NEEDS, "shared", pauses=True)
