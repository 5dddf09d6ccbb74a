"""The grid of the benchmark, in one place: which model is trained on which task, with which positions and seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rope_lessons._checks import check_choice, check_count, check_positive
from rope_lessons.chomsky.encoder import POSITIONS
from rope_lessons.chomsky.recurrent import CELLS
from rope_lessons.chomsky.tasks import TASKS

MODELS = (*CELLS, "transformer")
#: What is done to the positions, and to the scale of attention. The source asks for the last one.
VARIANTS = ("plain", "random", "random+logn")

#: Every model of the benchmark: (model, positions, variant). 20 of them.
CONFIGURATIONS: tuple[tuple[str, str, str], ...] = (
    *((cell, "none", "plain") for cell in CELLS),
    ("transformer", "none", "plain"),  # without positions there is nothing to draw
    *(("transformer", kind, variant) for kind in POSITIONS if kind != "none" for variant in VARIANTS),
)

#: The published search: every one of these learning rates, ten seeds each, and the best of the thirty counts.
LEARNING_RATES = (1e-4, 3e-4, 5e-4)
SEEDS = tuple(range(10))


@dataclass(frozen=True)
class Job:
    """One model to train and test: a cell of the grid.

    Args:
        task: name of a task.
        model: one of ``MODELS``.
        positions: one of the encoder's ``POSITIONS``; "none" for a recurrent model.
        variant: one of ``VARIANTS``.
        seed: decides weights, data, positions and dropout.
        learning_rate: of Adam.

    Raises:
        TypeError, ValueError: a value that is none of these, or a combination that is not in the grid.

    >>> Job("even_pairs", "transformer", "rope", "random+logn", 0, 3e-4).name
    'even_pairs/transformer/rope/random+logn/0.0003/0'
    """

    task: str
    model: str
    positions: str
    variant: str
    seed: int
    learning_rate: float

    def __post_init__(self) -> None:
        check_choice("task", self.task, TASKS)
        check_choice("model", self.model, MODELS)
        check_choice("positions", self.positions, POSITIONS)
        check_choice("variant", self.variant, VARIANTS)
        check_count("seed", self.seed)
        check_positive("learning_rate", self.learning_rate)
        if (self.model, self.positions, self.variant) not in CONFIGURATIONS:
            raise ValueError(
                f"model {self.model!r} with positions {self.positions!r} and variant {self.variant!r} is no "
                f"configuration of the grid; see CONFIGURATIONS"
            )

    @property
    def random(self) -> bool:
        """Whether positions are drawn."""
        return self.variant != "plain"

    @property
    def log_n(self) -> bool:
        """Whether attention scores are multiplied by log n / log N."""
        return self.variant == "random+logn"

    @property
    def name(self) -> str:
        """What tells it from all other jobs."""
        parts = (self.task, self.model, self.positions, self.variant, repr(float(self.learning_rate)), str(self.seed))
        return "/".join(parts)


def jobs(
    tasks: Iterable[str] | None = None,
    models: Sequence[str] = MODELS,
    positions: Sequence[str] = POSITIONS,
    variants: Sequence[str] = VARIANTS,
    seeds: Sequence[int] = SEEDS,
    learning_rates: Sequence[float] = LEARNING_RATES,
) -> list[Job]:
    """The jobs of a part of the grid, all of it by default, in the order in which they are done: task by task, and
    the seeds and learning rates of a configuration one after the other.

    Args:
        tasks, models, positions, variants: names; a configuration is kept when all its names are given.
        seeds, learning_rates: every configuration is done with each pair of them.

    Returns:
        list of :class:`Job`.

    Raises:
        TypeError, ValueError: an unknown name.

    Chapter 11.

    >>> len(jobs())  # 15 tasks, 20 configurations, 3 learning rates, 10 seeds
    9000
    >>> [job.name for job in jobs(["parity_check"], ["transformer"], ["rope"], ["plain"], [0, 1], [3e-4])]
    ['parity_check/transformer/rope/plain/0.0003/0', 'parity_check/transformer/rope/plain/0.0003/1']
    """

    for name, values, known in (("models", models, MODELS), ("positions", positions, POSITIONS)):
        for value in values:
            check_choice(name, value, known)
    for value in variants:
        check_choice("variants", value, VARIANTS)
    kept = [c for c in CONFIGURATIONS if c[0] in models and c[1] in positions and c[2] in variants]
    return [
        Job(task, *configuration, seed=seed, learning_rate=rate)
        for task in (TASKS if tasks is None else tasks)
        for configuration in kept
        for rate in learning_rates
        for seed in seeds
    ]


def groups(some: Iterable[Job], most: int) -> Iterator[tuple[Job, ...]]:
    """Jobs that train side by side in one process: same task, model and kind of positions, at most ``most`` of them.

    Only the values of positions, the scale, the seed and the learning rate may differ inside a group.

    >>> part = jobs(["parity_check"], ["transformer"], ["rope"], seeds=[0, 1], learning_rates=[3e-4])
    >>> [len(group) for group in groups(part, most=4)]
    [4, 2]
    """
    check_count("most", most, least=1)
    for _, alike in groupby(some, key=lambda job: (job.task, job.model, job.positions)):
        run = list(alike)
        for start in range(0, len(run), most):
            yield tuple(run[start : start + most])
