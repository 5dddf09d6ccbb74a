"""Chapter 06: what log n does to the byte model up to 8 times its training length, and to the entropy of its heads.

    python -m experiments entropy
    python -m experiments entropy --train       # only train the models

Takes about 35 minutes on one CPU core, and 60 to 90 s for each of 22 models if not trained yet.

Writes entropy.json. Five seeds, trained with RoPE, and with RoPE and log n; three seeds with variants of attention.
Tested with plain RoPE, NTK-fixed (factor 8) and NTK-aware (factor 64).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments import command
from experiments.result import Result
from experiments.trained import Models, about, digest, evaluation_windows, measure, surroundings, training_text
from rope_lessons import LogN, Plan, attention, scheme
from rope_lessons.entropy import attention_entropy
from rope_lessons.models import byte_lm

SEEDS, FEW = (0, 1, 2, 3, 4), (0, 1, 2)
CONFIG = byte_lm.Config()
N, DIM = CONFIG.length, CONFIG.head_dim
LENGTHS = (64, 128, 256, 512)
METHODS: dict[str, dict[str, Any]] = {
    "rope": {"name": "rope"},
    "ntk-fixed-8": {"name": "ntk-fixed", "factor": 8},
    "ntk-aware-64": {"name": "ntk-aware", "factor": 64},
}
TRAINED, AFTER, NO_FLOOR = LogN(N), LogN(N, clip=True), LogN(N, floor=1)  # log n; log n after training; log n, no floor
CONSTANTS = (0.8, 1.0, 1.1, 1.2, 1.35, 1.5, 2.0)
STRENGTHS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
COUNTS = (8, 16, 32, 64, 128, 256, 512)  # entropies are read at the queries that see so many keys


def plan_of(method: str, **knobs: Any) -> Plan:
    return (scheme(**METHODS[method], dim=DIM, **knobs),) * CONFIG.layers


# --- attention with keys, or queries and keys, of length 1: cousins of log n scaling ----------------------------------


def attend_normed(q: Tensor, k: Tensor, v: Tensor, row: Any, queries: bool) -> Tensor:
    return attention(F.normalize(q, dim=-1) if queries else q, F.normalize(k, dim=-1), v, row)


# Whether queries are normed too, and the scale: 1 for keys alone, 4 log(N/2) for the cosine, 4 log n with log n.
NORMED: dict[str, tuple[bool, dict[str, Any]]] = {
    "key-norm": (False, {"base_scale": 1.0}),
    "cosine": (True, {"base_scale": 4 * math.log(N / 2)}),
    "cosine-log-n": (True, {"base_scale": 4 * math.log(N), "scale": TRAINED}),
}


class Normed(byte_lm.ByteLM):
    """The byte model with ``attend_normed`` in place of attention, in training and at test."""

    def __init__(self, kind: str):
        self.queries, knobs = NORMED[kind]
        super().__init__(CONFIG, plan_of("rope", **knobs))

    def forward(self, tokens: Tensor, plan: Plan | None = None, attend: Callable[..., Tensor] = attention) -> Tensor:
        return super().forward(tokens, plan, partial(attend_normed, queries=self.queries))


def trained_normed(models: Models, seed: int, kind: str) -> byte_lm.ByteLM:
    config = models.config(CONFIG)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Normed(kind)
    recipe = (kind, NORMED[kind], asdict(config), seed, *surroundings())
    path = models.path(recipe, lambda: model, config, seed, f"seed {seed}, {kind}")
    byte_lm.fill(model, path)
    return model


def model_of(models: Models, kind: str, seed: int) -> byte_lm.ByteLM:
    plans = {"plain": None, "log-n": plan_of("rope", scale=TRAINED), "log-n-no-floor": plan_of("rope", scale=NO_FLOOR)}
    return models.byte_model(seed, plans[kind]) if kind in plans else trained_normed(models, seed, kind)


# --- what is measured -------------------------------------------------------------------------------------------------


Rows = list[dict[str, Any]]
# training, scale at test, knobs at test
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("plain", "none", {}),
    ("plain", "log-n-after", {"scale": AFTER}),
    ("log-n", "log-n", {"scale": TRAINED}),
    ("log-n-no-floor", "log-n", {"scale": NO_FLOOR}),
    ("key-norm", "none", NORMED["key-norm"][1]),
    ("cosine", "none", NORMED["cosine"][1]),
    ("cosine-log-n", "log-n", NORMED["cosine-log-n"][1]),
]
MANY = ("plain", "log-n")  # these have all seeds, methods and lengths


def accuracy_rows(model: byte_lm.ByteLM, windows: Tensor, labels: dict[str, Any], knobs: dict[str, Any]) -> Rows:
    """A model with every method at every length."""
    many = labels["trained"] in MANY
    return [
        {**labels, "method": method, "length": length} | measure(model, windows, length, plan_of(method, **knobs))
        for method in (METHODS if many else ("rope", "ntk-aware-64"))
        for length in (LENGTHS if many else (N, 512))
    ]


def constant_rows(model: byte_lm.ByteLM, windows: Tensor, seed: int) -> Rows:
    """All scores times one constant, whatever the length: is it the length that asks for sharper attention?"""
    rows = []
    for method, lengths in (("rope", (N,)), ("ntk-aware-64", (N, 512))):
        for length in lengths:
            for constant in CONSTANTS:
                plan = plan_of(method, base_scale=constant / math.sqrt(DIM))
                found = measure(model, windows, length, plan)
                rows.append({"seed": seed, "method": method, "length": length, "constant": constant} | found)
    return rows


def strength_rows(model: byte_lm.ByteLM, windows: Tensor, seed: int) -> Rows:
    """1 + strength · log(n/N) / log N beyond N: strength 0 is no scale, 1 is log n after training."""
    rows = []
    log_n = AFTER(torch.arange(1, 513))
    for strength in STRENGTHS:
        factor = (1 + strength * (log_n - 1)).float().unsqueeze(-1)  # (seq, 1)

        def attend(q: Tensor, k: Tensor, v: Tensor, row: Any, factor: Tensor = factor) -> Tensor:
            return attention(q * factor[: q.shape[2]], k, v, row)

        found = measure(model, windows, 512, plan_of("ntk-aware-64"), attend=attend)
        rows.append({"seed": seed, "method": "ntk-aware-64", "length": 512, "strength": strength} | found)
    return rows


# training, method, scale at test, length, knobs
ENTROPIES: list[tuple[str, str, str, int, dict[str, Any]]] = [
    ("plain", "rope", "none", N, {}),
    ("log-n", "rope", "log-n", N, {"scale": TRAINED}),
    ("plain", "ntk-aware-64", "none", 512, {}),
    ("plain", "ntk-aware-64", "log-n-after", 512, {"scale": AFTER}),
    ("log-n", "ntk-aware-64", "log-n", 512, {"scale": TRAINED}),
]


@torch.no_grad()
def entropy_rows(model: byte_lm.ByteLM, windows: Tensor, labels: dict[str, Any], length: int, plan: Plan) -> Rows:
    """Entropy of each head by the number of keys, and the spread of its scores."""
    found: list[Tensor] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, row: Any) -> Tensor:
        """The weights are what attention returns for the values (1, 0, 0, …), (0, 1, 0, …), …"""
        keys = torch.eye(k.shape[2]).expand(*k.shape[:3], -1)
        weights = attention(q, k, keys, row, backend="reference")
        ratio = torch.where(weights > 0, weights, 1).log()  # scores but for a constant of the row
        seen = (weights > 0).double()
        mean = (ratio * seen).sum(-1) / seen.sum(-1)
        spread = (((ratio - mean.unsqueeze(-1)) ** 2 * seen).sum(-1) / seen.sum(-1)).sqrt()
        largest = weights.amax(-1).double()
        found.append(torch.stack((attention_entropy(weights).double(), spread, largest)).mean(1))
        return weights @ v

    batches = windows[:, :-1].reshape(-1, length).split(48 * N // length)
    for some in batches:
        model(some, plan, attend)
    # (batches, layers, 3, heads, seq) -> mean over batches, which are of (nearly) one size
    size = torch.tensor([len(some) for some in batches], dtype=torch.float64)
    per_layer = torch.stack(found).view(len(batches), CONFIG.layers, 3, CONFIG.heads, length)
    mean = (per_layer * (size / size.sum()).view(-1, 1, 1, 1, 1)).sum(0)
    counts = [n for n in COUNTS if n <= length]
    rows = []
    for layer, head in product(range(CONFIG.layers), range(CONFIG.heads)):
        entropy, spread, largest = (at(mean[layer, i, head], counts) for i in range(3))
        values = {"counts": counts, "entropy": entropy, "spread": spread, "largest_weight": largest}
        rows.append({**labels, "layer": layer, "head": head, **values})
    return rows


def at(values: Tensor, counts: list[int]) -> list[float]:
    """Mean over the queries that see the last eighth of the keys up to each count."""
    return [round(values[n - max(1, n // 8) : n].mean().item(), 4) for n in counts]


def train(models: Models, seeds: Sequence[int]) -> None:
    for seed in seeds:
        for kind in MANY if seed not in FEW else (*MANY, "log-n-no-floor", *NORMED):
            model_of(models, kind, seed)


def measure_all(seeds: Sequence[int], models: Models, windows: Tensor, out: Path, fresh: bool) -> None:
    settings = {
        "seeds_of_variants": list(FEW),
        "config": asdict(models.config(CONFIG)),
        "training_text": {"bytes": len(training_text()), "sha256": digest(training_text())},
        "test_text": about(windows),
    }
    empty: dict[str, Rows] = {"entropy": [], "accuracy": [], "constants": [], "strengths": []}
    result = Result(out / "entropy.json", "entropy", settings, empty, fresh)
    few = [seed for seed in seeds if seed in FEW]
    for (kind, method, scale, length, knobs), seed in product(ENTROPIES, seeds):
        labels = {"trained": kind, "method": method, "scale": scale, "seed": seed}
        if result.lacks("entropy", **labels):
            model, plan = model_of(models, kind, seed), plan_of(method, **knobs)
            result.add(entropy=entropy_rows(model, windows, labels, length, plan))
    for kind, scale, knobs in CASES:
        for seed in seeds if kind in MANY else few:
            labels = {"trained": kind, "seed": seed, "scale": scale}
            if result.lacks("accuracy", **labels):
                result.add(accuracy=accuracy_rows(model_of(models, kind, seed), windows, labels, knobs))
    for seed in few:
        if result.lacks("constants", seed=seed):
            result.add(constants=constant_rows(models.byte_model(seed), windows, seed))
    for seed in seeds:
        if result.lacks("strengths", seed=seed):
            result.add(strengths=strength_rows(models.byte_model(seed), windows, seed))
    result.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.trained_parser("experiments entropy", __doc__, SEEDS)
    parser.add_argument("--train", action="store_true", help="only train the models")
    options = command.parse(parser, arguments)
    command.check_alone(parser, options, "train", ("seeds", "models", "steps"))
    models, windows = Models(options.models, options.steps), evaluation_windows(options.windows)
    if options.train:
        return command.run(parser.prog, lambda: train(models, options.seeds))
    return command.run(parser.prog, lambda: measure_all(options.seeds, models, windows, options.out, options.fresh))


if __name__ == "__main__":
    sys.exit(main())
