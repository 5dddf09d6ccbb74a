"""Train byte models with InvLeaky ReRoPE (chapter 09), and test them with plain RoPE up to 8 times their length.

    python scripts/measure_invleaky.py            # everything: 90 to 200 s for each of 27 models on one CPU core
    python scripts/measure_invleaky.py --fresh    # not going on from what is stored

Writes rope_lessons/data/invleaky.json, again after every model: an interrupted run goes
on where it was. Three seeds of the main settings beside the RoPE models of chapters 03 and 06, and one seed of the
variants. The test text is every fourth piece of that of chapter 03, as in chapter 08.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import arguments
import torch
from common import MODELS, digest, measure, provenance, source, store, stored, train_and_keep, trained, training_text
from torch import Tensor

from rope_lessons import LogN, Plan, Scheme, apply_rotary, attention, log_n_scale, scheme
from rope_lessons.models import byte_lm
from rope_lessons.stored import DATA

SEEDS = (0, 1, 2)
CONFIG = byte_lm.Config()
DIM, N, LONG = CONFIG.head_dim, CONFIG.length, 512
LENGTHS = (64, 128, 256, 512)
WINDOW, SLOPE, BASE = 16, 16, 80_000.0  # the rule of article 13 for N = 64 and a factor of 8, and its larger base
LOG, AFTER = LogN(N), LogN(N, clip=True)  # log n in training and at test; at test only
FAST = partial(attention, backend="flash")


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
    "lower layer only": (bent(scale=LOG), rope(scale=LOG)),
    "rope, base 80000": same(rope(scale=LOG, base=BASE)),
    "w 16, slope 8": same(bent(slope=8, scale=LOG)),
    "w 16, slope 11": same(bent(slope=11, scale=LOG)),
    "w 32, slope 16": same(bent(32, scale=LOG)),
    "w 8, slope 16": same(bent(8, scale=LOG)),
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


def kept(name: str, recipe: tuple, config: byte_lm.Config, seed: int, build: Callable[[], Any], text: Any) -> Path:
    """Where the weights of a training are kept, which is done if it was not: as ``common.trained``."""
    whole = repr((*recipe, asdict(config), seed, digest(training_text()), torch.__version__, source()))
    path = MODELS / f"invleaky-{hashlib.sha256(whole.encode()).hexdigest()[:16]}.safetensors"
    if not path.exists():
        train_and_keep(path, build(), text, config, seed, f"{name}, seed {seed}")
    return path


def trained_scheduled(name: str, seed: int) -> byte_lm.ByteLM:
    def build() -> byte_lm.ByteLM:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Scheduled(SCHEDULES[name])

    recipe = (name, *(inspect.getsource(part) for part in (Scheduled, growing, following, moving)))
    return byte_lm.load(kept(name, recipe, CONFIG, seed, build, training_text()), CONFIG, same(bent(scale=LOG)))


# --- what is measured ---------------------------------------------------------------------------------------------


def attend_snapped(q: Tensor, k: Tensor, v: Tensor, row: Scheme) -> Tensor:
    """RoPE whose far distances are rounded to the nearest that training visited, 16 + 16 n: one product for each."""
    assert row.frequencies is not None
    index, frequencies = torch.arange(q.shape[2]), row.frequencies(q.shape[2])
    turn = partial(apply_rotary, frequencies=frequencies, layout=row.layout)
    ahead = index[:, None] - index
    snapped = torch.where(ahead < WINDOW, 0, WINDOW + (ahead - WINDOW + SLOPE // 2) // SLOPE * SLOPE)
    scores = turn(q, index) @ turn(k, index).mT
    for distance in range(WINDOW, len(index) + SLOPE, SLOPE):
        told = turn(q, torch.full_like(index, distance)) @ k.mT
        scores = torch.where(snapped == distance, told, scores)
    if row.scale is not None:
        scale = log_n_scale(index + 1, row.scale.train_length, row.scale.clip, row.scale.floor)
        scores = scores * scale.float().unsqueeze(-1)
    return (scores * DIM**-0.5).masked_fill(ahead < 0, -torch.inf).softmax(dim=-1) @ v


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
        attend = attend_snapped if method == "snapped" else FAST
        for length in LENGTHS:
            found = measure(model, windows, length, test, attend=attend)
            yield {"method": method, "scale": scale, "length": length, **found}


def jobs(seeds: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """Models in the order in which they are trained: what the chapter leans on first."""
    yield from ((name, seed) for seed in seeds for name in MAIN)
    first = ("moving window", "upper layer only", "growing slope", "following window", "rope, base 80000")
    yield from ((name, 0) for name in first)
    yield from (("moving window", seed) for seed in seeds[1:])
    yield from ((name, 0) for name in VARIANTS if name not in first)


def result_of(name: str, seed: int, windows: Tensor) -> list[dict]:
    """Train the model, or find it, and test it."""
    if name in SCHEDULES:
        # "own" is the first of each turn, after the growth
        plan, model = same(bent(*SCHEDULES[name](144 * CONFIG.steps)[1:], scale=LOG)), trained_scheduled(name, seed)
    else:
        given = {**MAIN, **VARIANTS}[name]
        plan, model = given or same(rope()), trained(seed, plan=given)
    return list(rows_of(model, windows, name, plan))


def main(seeds: tuple[int, ...], fresh: bool) -> None:
    windows = byte_lm.evaluation_windows()[::4]
    path = DATA / "invleaky.json"
    old = {} if fresh or not path.exists() else stored(path)
    rows = old.get("rows", [])
    settings = {
        "seeds": list(seeds),
        "config": asdict(CONFIG),
        "window": WINDOW,
        "slope": SLOPE,
        "test_text": {"windows": len(windows), "bytes_predicted": windows[:, 1:].numel(), "sha256": digest(windows)},
    }
    for name, seed in jobs(seeds):
        if any((row["model"], row["seed"]) == (name, seed) for row in rows):
            continue
        rows += [{"seed": seed, "model": name, **row} for row in result_of(name, seed, windows)]
        print(name, seed, rows[-1]["loss"], flush=True)
        store("invleaky", {**provenance(__file__), **settings, "rows": rows})


if __name__ == "__main__":
    parser = arguments.with_seeds(__doc__, SEEDS)
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored")
    options = parser.parse_args()
    torch.set_num_threads(1)
    main(options.seeds, options.fresh)
