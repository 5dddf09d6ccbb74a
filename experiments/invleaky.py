"""Chapter 09: train byte models with InvLeaky ReRoPE, and test them with plain RoPE up to 8 times their length.

    python -m experiments invleaky

Takes about 45 minutes on one CPU core: 90 to 200 s for each of 20 models.

Writes invleaky.json. Three seeds of the main settings beside the RoPE models of chapters 03 and 06, and one seed of the
variants; and what rounding costs, to the distances that training visited and to others as coarse, on these models and
on one of the scoreboard, which reads sixteen of its own test texts; and what every seed of the scoreboard's rows finds.
Of two trainings of the scoreboard, with gaps and without, the head that copies a needle from right before the question:
where it looks, with all keys, with the far ones rounded, and with the near ones alone.
The other test text is every fourth piece of that of chapter 03, as in chapter 08.
"""

from __future__ import annotations

import inspect
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
from experiments import scoreboard_hits as hits
from experiments import scoreboard_table as table
from experiments.result import Result
from experiments.scoreboard_jobs import STORED, kept_model
from experiments.trained import Models, about, attend_fast, evaluation_windows, measure, surroundings
from rope_lessons import LogN, Plan, Scheme, apply_rotary, attention, log_n_scale, scheme
from rope_lessons.lab.table.passkey import DIGITS
from rope_lessons.models import byte_lm
from rope_lessons.scoreboard import live
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.scoreboard.scoring import Settings

SEEDS = (0, 1, 2)
CONFIG = byte_lm.Config()
DIM, N, LONG = CONFIG.head_dim, CONFIG.length, 512
LENGTHS = (64, 128, 256, 512)
WINDOW, SLOPE, BASE = 16, 16, 80_000.0  # the rule of article 13 for N = 64 and a factor of 8, and its larger base
SHIFTS = (0, 2, 4, 6, 8)  # of the staircases
ROUNDED, TEXTS = "invleaky-w16-logn", 16  # its training that is rounded, and on how many of its texts
FILLED, DIGIT = "invleaky-moving-logn", 14  # that without gaps; how far back the nearest needle's digits are
BY_SEED = {
    "invleaky-w16-logn": "invleaky-w16-logn",
    "invleaky-moving-logn": "invleaky-moving-logn",
    "invleaky-same-residue-logn": "invleaky-same-residue-logn",
    "invleaky-slopes-logn": "invleaky-slopes-logn",
    "invleaky-quarter-gaps-logn": "invleaky-quarter-gaps-logn",
    "invleaky-four-slopes-logn": "invleaky-four-slopes-logn",
    "invleaky-moving": "invleaky-moving",
    "invleaky-moving-logn-window": "invleaky-moving-logn",
    "rerope-w32-logn-test": "rope",
}  # its rows of which the chapter draws each seed, and their trainings
PLACES = ("needle 0", "needle 0.5", "needle 1")  # farthest, in the middle, and right before the question
LOG, AFTER = LogN(N), LogN(N, clip=True)  # log n in training and at test; at test only


def same(row: Scheme) -> Plan:
    return (row,) * CONFIG.layers


def rope(**knobs: Any) -> Scheme:
    return scheme("rope", dim=DIM, **knobs)


def bent(window: int = WINDOW, slope: float = SLOPE, **knobs: Any) -> Scheme:
    return scheme("invleaky", dim=DIM, window=window, slope=slope, **knobs)


MAIN: dict[str, Plan | None] = {
    "rope": None,
    "rope log n": same(rope(scale=LOG)),
    "invleaky": same(bent()),
    "invleaky log n": same(bent(scale=LOG)),
    "invleaky log n, base 80000": same(bent(scale=LOG, base=BASE)),
}

# One seed each, all with log n.
VARIANTS: dict[str, Plan] = {
    "upper layer only": (rope(scale=LOG), bent(scale=LOG)),
    "rope, base 80000": same(rope(scale=LOG, base=BASE)),
}


# --- variants whose distance map changes while they are trained ---------------------------------------------------


def growing(step: int) -> tuple[int, int, float]:
    """Length, window, slope: the slope grows from 1 to 16 in the first half of the training."""
    return N, WINDOW, 1 + (SLOPE - 1) * min(step / (CONFIG.steps / 2), 1)


def following(step: int) -> tuple[int, int, float]:
    """Texts of 64, 32 and 16 bytes in turn; the window a quarter of the length, the slope 1.5 times 512 by it."""
    length = (N, N // 2, N // 4)[step % 3]
    return length, length // 4, 1.5 * LONG / length


def moving(step: int) -> tuple[int, int, float]:
    """Windows of 16 to 31 in turn: sixteen steps visit every whole distance. Not in the document."""
    return N, WINDOW + step % SLOPE, SLOPE


SCHEDULES: dict[str, Callable[[int], tuple[int, int, float]]] = {
    "growing slope": growing,
    "following window": following,
    "moving window": moving,
}


class Scheduled(byte_lm.ByteLM):
    """The byte model with a length and a distance map for every step of its training.

    A batch of windows is cut into pieces of that length, so every step reads the same number of bytes.
    """

    def __init__(self, setting: Callable[[int], tuple[int, int, float]]):
        super().__init__(CONFIG)
        self.setting, self.step = setting, 0

    def forward(self, tokens: Tensor, plan: Plan | None = None, attend: Callable[..., Tensor] = attention) -> Tensor:
        length, window, slope = self.setting(self.step)
        self.step += 1
        scores = super().forward(tokens.reshape(-1, length), same(bent(window, slope, scale=LOG)), attend)
        return scores.reshape(*tokens.shape, -1)


def trained_scheduled(models: Models, name: str, seed: int) -> byte_lm.ByteLM:
    def build() -> byte_lm.ByteLM:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Scheduled(SCHEDULES[name])

    config = models.config(CONFIG)
    code = (inspect.getsource(part) for part in (Scheduled, growing, following, moving))
    recipe = (name, *code, asdict(config), seed, *surroundings())
    path = models.path(recipe, build, config, seed, f"{name}, seed {seed}", kind="invleaky-")
    return byte_lm.load(path, config, same(bent(scale=LOG)))


# --- what is measured ---------------------------------------------------------------------------------------------


def attend_snapped(q: Tensor, k: Tensor, v: Tensor, row: Scheme, shift: int = 0, **_: Any) -> Tensor:
    """RoPE whose far distances are rounded to the nearest of 16 + shift + 16 n.

    With a shift of 0 (or 16, which is the same) these are the distances that training visited; with 8 they are as far
    from them as can be. No shift shows a distance more than 8 too far or too near. Queries whose indices leave one
    remainder by 16 meet every key at one place of its own, so 16 small products are enough.
    """
    assert row.frequencies is not None
    index, frequencies = torch.arange(q.shape[2]), row.frequencies(q.shape[2])
    turn = partial(apply_rotary, frequencies=frequencies, layout=row.layout)
    first, far = WINDOW + shift, q.new_empty(*q.shape[:3], len(index))
    for rest in range(SLOPE):
        places = -first - (rest - index - first + SLOPE // 2) // SLOPE * SLOPE
        some = slice(rest, None, SLOPE)
        far[..., some, :] = turn(q[..., some, :], index[some] - rest) @ turn(k, places).mT
    ahead = index[:, None] - index
    scores = torch.where(ahead < WINDOW, turn(q, index) @ turn(k, index).mT, far)
    if row.scale is not None:
        scale = log_n_scale(index + 1, row.scale.train_length, row.scale.clip, row.scale.floor)
        scores = scores * scale.float().unsqueeze(-1)
    return (scores * q.shape[-1] ** -0.5).masked_fill(ahead < 0, -torch.inf).softmax(dim=-1) @ v


def tests(name: str, plan: Plan) -> Iterator[tuple[str, str, Plan]]:
    """What a model is tested with: (method, scale, plan). "own" is bent as in training."""
    base = BASE if "80000" in name else 10_000.0
    plain = partial(rope, base=base)
    scales = {"log n": LOG} if plan[0].scale else {"none": None, "log n†": AFTER}
    for said, scale in scales.items():
        yield "rope", said, same(plain(scale=scale))
        if any(row.slope > 1 for row in plan):
            yield "own", said, tuple(replace(row, scale=scale) for row in plan)
            yield "rerope-16", said, same(scheme("rerope", dim=DIM, base=base, window=16, scale=scale))
        if name.startswith("invleaky"):
            yield "snapped", said, same(plain(scale=scale))
        if name in ("rope", "rope log n"):
            yield "ntk-fixed-8", said, same(scheme("ntk-fixed", dim=DIM, factor=8, scale=scale))
            yield "rerope-32", said, same(scheme("rerope", dim=DIM, window=32, scale=scale))
            yield "leaky-32-16", said, same(scheme("leaky-rerope", dim=DIM, window=32, slope=1 / 16, scale=scale))
            yield "window-64", said, same(scheme("window", dim=DIM, visible_window=N, scale=scale))


def rows_of(model: byte_lm.ByteLM, windows: Tensor, name: str, plan: Plan) -> Iterator[dict]:
    for method, scale, test in tests(name, plan):
        attend = attend_snapped if method == "snapped" else attend_fast
        for length in LENGTHS:
            found = measure(model, windows, length, test, attend=attend)
            yield {"method": method, "scale": scale, "length": length, **found}


def staircases_of(model: byte_lm.ByteLM, windows: Tensor) -> Iterator[dict]:
    """Far distances rounded to staircases of the same steps, in their places and out of them."""
    for shift in SHIFTS:
        for length in (N, LONG):
            attend = partial(attend_snapped, shift=shift)
            yield {
                "shift": shift,
                "length": length,
                **measure(model, windows, length, same(rope(scale=LOG)), attend=attend),
            }


def of_the_scoreboard(training: str, texts: Tensor) -> Iterator[dict]:
    """Seed 0 of a training of the scoreboard, with RoPE at test, rounded or not, with ReRoPE, and its cut."""
    recipe = RUNGS["small"]
    model = kept_model(training)
    knobs: dict[str, Any] = {"dim": recipe.config.head_dim, "scale": LOG}
    plain = scheme("rope", **knobs)
    ways: dict[str, tuple[Scheme, Callable[..., Tensor] | None]] = {
        "rope": (plain, None),
        **{f"rounded, {shift}": (plain, partial(attend_snapped, shift=shift)) for shift in SHIFTS},
        "rerope-16": (scheme("rerope", window=WINDOW, **knobs), None),
        "own-64": (scheme("invleaky", window=WINDOW, slope=SLOPE, visible_window=N, **knobs), None),  # the control
    }
    for (way, (row, attend)), length in product(ways.items(), (N, LONG)):
        metrics = live.METRICS if length == LONG else ("natural",)
        found = {metric: round(live.percent(model, row, texts, length, metric, attend=attend), 2) for metric in metrics}
        yield {"seed": 0, "training": training, "way": way, "documents": len(texts), "length": length, **found}


def attend_and_note(
    q: Tensor, k: Tensor, v: Tensor, row: Scheme, attend: Callable[..., Tensor], seen: list[Tensor], **_: Any
) -> Tensor:
    """Attention, and into ``seen`` what each head gives, when digits are asked for, to the needle and to far keys."""
    shares = []
    for some in range(0, len(q), TEXTS):  # weights take memory
        asked, keys = q[some : some + TEXTS], k[some : some + TEXTS]
        units = torch.eye(LONG).to(v).expand(*keys.shape[:3], -1)  # values that are unit vectors: out come weights
        given = attend(asked, keys, units, row)
        for at in range(LONG - DIGITS, LONG):
            back = given[:, :, at, : at + 1].flip(-1)  # by distance
            shares.append(torch.stack([back[..., DIGIT : DIGIT + 2].sum(-1), back[..., N:].sum(-1)], -1))
    seen.append(torch.cat([share.mean(dim=0, keepdim=True) for share in shares]).mean(dim=0))
    return attend(q, k, v, row)


def looking(training: str, texts: Tensor) -> Iterator[dict]:
    """Where seed 0 of a training looks when it is asked for the needle right before the question, in percent.

    Of all heads that one which gives the most to the digit that is asked for, or to the byte before it, when it sees no
    key farther than 63 back; and the mean of all heads.
    """
    model, plain = kept_model(training), scheme("rope", dim=RUNGS["small"].config.head_dim, scale=LOG)
    ways: dict[str, tuple[Scheme, Callable[..., Tensor]]] = {
        "cut": (replace(plain, visible_window=N), attention),  # first: it chooses the head
        "rope": (plain, attention),
        "rounded, 0": (plain, attend_snapped),
        "rounded, 8": (plain, partial(attend_snapped, shift=SLOPE // 2)),
    }
    most = 0
    for way, (row, attend) in ways.items():
        seen: list[Tensor] = []
        noted = partial(attend_and_note, attend=attend, seen=seen)
        right = live.digits(model, row, texts, LONG, (1.0,), attend=noted).all(dim=2).double().mean().item()
        heads = torch.stack(seen).flatten(0, 1)
        if way == "cut":
            most = int(heads[:, 0].argmax())
        shares = [round(100 * x, 1) for x in (*heads[most].tolist(), heads[:, 1].mean().item())]
        layer, head = divmod(most, len(seen[0]))
        yield {
            "seed": 0, "training": training, "way": way, "documents": len(texts), "layer": layer, "head": head,
            **dict(zip(("needle", "far", "far, all heads"), shares, strict=True)), "right": round(100 * right, 1),
        }  # fmt: skip


def each_seed(folder: Path = STORED / "small") -> Iterator[dict]:
    """Percent right at 512 for every seed of the scoreboard's rows, from its stored bits."""
    questions = table.questions(live.windows(), Settings(), Settings().lengths)
    for row, training in BY_SEED.items():
        for path in sorted((folder / training).glob("seed-*.npz")):
            bits = hits.read(path)[1][row]
            asked = (*live.METRICS, *PLACES)
            sums = {metric: table.sums(bits, questions[metric, LONG]) for metric in asked}
            found = {metric: round(100 * float(right.sum() / of.sum()), 2) for metric, (right, of) in sums.items()}
            yield {"seed": int(path.stem.removeprefix("seed-")), "row": row, **found}


def jobs(seeds: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Models in the order in which they are trained: what the chapter leans on first."""
    yield from ((name, seed) for seed in seeds for name in MAIN)
    yield from ((name, 0) for name in (*VARIANTS, *SCHEDULES))


def result_of(models: Models, name: str, seed: int, windows: Tensor) -> list[dict]:
    """Train the model, or find it, and test it."""
    if name in SCHEDULES:
        # "own" is the first of each turn, after the growth
        plan = same(bent(*SCHEDULES[name](144 * CONFIG.steps)[1:], scale=LOG))
        model = trained_scheduled(models, name, seed)
    else:
        given = {**MAIN, **VARIANTS}[name]
        plan, model = given or same(rope()), models.byte_model(seed, given)
    return list(rows_of(model, windows, name, plan))


def measure_all(seeds: Sequence[int], models: Models, windows: Tensor, every: Tensor, out: Path, fresh: bool) -> None:
    settings = {
        "config": asdict(models.config(CONFIG)),
        "window": WINDOW,
        "slope": SLOPE,
        "test_text": about(windows),
    }
    result = Result(
        out / "invleaky.json",
        "invleaky",
        settings,
        {"rows": [], "staircases": [], "rounded": [], "looking": [], "each_seed": []},
        fresh,
    )
    for name, seed in jobs(seeds):
        labels = {"seed": seed, "model": name}
        if result.lacks("rows", **labels):
            result.add(rows=[{**labels, **row} for row in result_of(models, name, seed, windows)])
    for seed in seeds:
        for name in ("invleaky log n", "rope log n"):
            labels = {"seed": seed, "model": name}
            if result.lacks("staircases", **labels):
                model = models.byte_model(seed, MAIN[name])
                result.add(staircases=[{**labels, **row} for row in staircases_of(model, windows)])
    if result.lacks("rounded", training=ROUNDED):
        result.add(rounded=of_the_scoreboard(ROUNDED, every[:TEXTS]))
    for training in (ROUNDED, FILLED):
        if result.lacks("looking", training=training):
            result.add(looking=looking(training, every))
    for row in each_seed():
        if result.lacks("each_seed", row=row["row"], seed=row["seed"]):
            result.add(each_seed=[row])
    result.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.trained_parser("experiments invleaky", __doc__, SEEDS)
    options = command.parse(parser, arguments)
    models, windows = Models(options.models, options.steps), evaluation_windows(options.windows, every=4)
    every = live.windows()[: options.windows]
    return command.run(
        parser.prog, lambda: measure_all(options.seeds, models, windows, every, options.out, options.fresh)
    )


if __name__ == "__main__":
    sys.exit(main())
