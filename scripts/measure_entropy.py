"""What log n scaling does to the byte model: accuracy up to 8 times its training length, entropy of its heads.

    python scripts/measure_entropy.py                 # everything: about 35 minutes on one CPU core
    python scripts/measure_entropy.py --train         # only train (or find) the models, 60 to 90 s each

Five seeds, trained with RoPE, and with RoPE and log n; three seeds with variants of attention. Tested with plain RoPE,
NTK-fixed (factor 8) and NTK-aware (factor 64). Writes rope_lessons/data/entropy.json.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import arguments
import torch
import torch.nn.functional as F
from common import MODELS, digest, measure, provenance, source, store, train_and_keep, trained, training_text
from torch import Tensor

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


def trained_normed(seed: int, kind: str) -> byte_lm.ByteLM:
    """As ``common.trained``: from ``.models/`` when the same training was done before."""
    from safetensors.torch import load_file

    text = training_text()
    recipe = repr((kind, NORMED[kind], asdict(CONFIG), seed, digest(text), torch.__version__, source()))
    path = MODELS / f"{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Normed(kind)
    if not path.exists():
        train_and_keep(path, model, text, CONFIG, seed, f"seed {seed}, {kind}")
    model.load_state_dict({name: value.float() for name, value in load_file(path).items()})
    return model.eval()


def model_of(kind: str, seed: int) -> byte_lm.ByteLM:
    plans = {"plain": None, "log-n": plan_of("rope", scale=TRAINED), "log-n-no-floor": plan_of("rope", scale=NO_FLOOR)}
    return trained(seed, plan=plans[kind]) if kind in plans else trained_normed(seed, kind)


# --- what is measured -------------------------------------------------------------------------------------------------


def accuracy_rows(windows: Tensor) -> list[dict]:
    """Every model with every method at every length."""
    cases: list[tuple[str, str, dict]] = [  # training, scale at test, knobs at test
        ("plain", "none", {}),
        ("plain", "log-n-after", {"scale": AFTER}),
        ("log-n", "log-n", {"scale": TRAINED}),
        ("log-n-no-floor", "log-n", {"scale": NO_FLOOR}),
        ("key-norm", "none", NORMED["key-norm"][1]),
        ("cosine", "none", NORMED["cosine"][1]),
        ("cosine-log-n", "log-n", NORMED["cosine-log-n"][1]),
    ]
    rows = []
    for kind, scale, knobs in cases:
        for seed in SEEDS if kind in ("plain", "log-n") else FEW:
            model = model_of(kind, seed)
            many = kind in ("plain", "log-n")
            for method in METHODS if many else ("rope", "ntk-aware-64"):
                for length in LENGTHS if many else (N, 512):
                    found = measure(model, windows, length, plan_of(method, **knobs))
                    rows.append(
                        {"trained": kind, "seed": seed, "method": method, "scale": scale, "length": length} | found
                    )
                say(rows[-1])
    return rows


def constant_rows(windows: Tensor) -> list[dict]:
    """All scores times one constant, whatever the length: is it the length that asks for sharper attention?"""
    rows = []
    for seed in FEW:
        model = model_of("plain", seed)
        for method, lengths in (("rope", (N,)), ("ntk-aware-64", (N, 512))):
            for length in lengths:
                for constant in CONSTANTS:
                    plan = plan_of(method, base_scale=constant / math.sqrt(DIM))
                    found = measure(model, windows, length, plan)
                    rows.append({"seed": seed, "method": method, "length": length, "constant": constant} | found)
        say(rows[-1])
    return rows


def strength_rows(windows: Tensor) -> list[dict]:
    """1 + strength · log(n/N) / log N beyond N: strength 0 is no scale, 1 is log n after training."""
    rows = []
    log_n = AFTER(torch.arange(1, 513))
    for seed in SEEDS:
        model = model_of("plain", seed)
        for strength in STRENGTHS:
            factor = (1 + strength * (log_n - 1)).float().unsqueeze(-1)  # (seq, 1)

            def attend(q: Tensor, k: Tensor, v: Tensor, row: Any, factor: Tensor = factor) -> Tensor:
                return attention(q * factor[: q.shape[2]], k, v, row)

            found = measure(model, windows, 512, plan_of("ntk-aware-64"), attend=attend)
            rows.append({"seed": seed, "method": "ntk-aware-64", "length": 512, "strength": strength} | found)
        say(rows[-1])
    return rows


@torch.no_grad()
def entropy_rows(windows: Tensor) -> list[dict]:
    """Entropy of each head by the number of keys, and the spread of its scores."""
    cases = [
        ("plain", "rope", "none", N, {}),
        ("log-n", "rope", "log-n", N, {"scale": TRAINED}),
        ("plain", "ntk-aware-64", "none", 512, {}),
        ("plain", "ntk-aware-64", "log-n-after", 512, {"scale": AFTER}),
        ("log-n", "ntk-aware-64", "log-n", 512, {"scale": TRAINED}),
    ]
    rows = []
    for kind, method, scale, length, knobs in cases:
        for seed in SEEDS:
            found: list[Tensor] = []

            def attend(q: Tensor, k: Tensor, v: Tensor, row: Any, found: list = found) -> Tensor:
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

            model, pieces = model_of(kind, seed), windows[:, :-1].reshape(-1, length)
            batches = pieces.split(48 * N // length)
            for some in batches:
                model(some, plan_of(method, **knobs), attend)
            # (batches, layers, 3, heads, seq) -> mean over batches, which are of (nearly) one size
            size = torch.tensor([len(some) for some in batches], dtype=torch.float64)
            per_layer = torch.stack(found).view(len(batches), CONFIG.layers, 3, CONFIG.heads, length)
            mean = (per_layer * (size / size.sum()).view(-1, 1, 1, 1, 1)).sum(0)
            counts = [n for n in COUNTS if n <= length]
            for layer in range(CONFIG.layers):
                for head in range(CONFIG.heads):
                    entropy, spread, largest = (mean[layer, i, head] for i in range(3))
                    rows.append(
                        {"trained": kind, "method": method, "scale": scale, "seed": seed, "layer": layer, "head": head}
                        | {"counts": counts, "entropy": at(entropy, counts), "spread": at(spread, counts)}
                        | {"largest_weight": at(largest, counts)}
                    )
            print(kind, method, scale, seed, [row["entropy"] for row in rows[-4:]], flush=True)
    return rows


def at(values: Tensor, counts: list[int]) -> list[float]:
    """Mean over the queries that see the last eighth of the keys up to each count."""
    return [round(values[n - max(1, n // 8) : n].mean().item(), 4) for n in counts]


def say(row: dict) -> None:
    print({key: value for key, value in row.items() if key != "accuracy_by_eighth"}, flush=True)


def train() -> None:
    for seed in SEEDS:
        for kind in ("plain", "log-n"):
            model_of(kind, seed)
    for seed in FEW:
        for kind in ("log-n-no-floor", *NORMED):
            model_of(kind, seed)


def main() -> None:
    windows = byte_lm.evaluation_windows()
    result = {
        **provenance(__file__),
        "seeds": list(SEEDS),
        "seeds_of_variants": list(FEW),
        "config": asdict(CONFIG),
        "training_text": {"bytes": len(training_text()), "sha256": digest(training_text())},
        "test_text": {"windows": len(windows), "bytes_predicted": windows[:, 1:].numel(), "sha256": digest(windows)},
        "entropy": entropy_rows(windows),
        "accuracy": accuracy_rows(windows),
        "constants": constant_rows(windows),
        "strengths": strength_rows(windows),
    }
    store("entropy", result)


if __name__ == "__main__":
    parser = arguments.parser(__doc__)
    parser.add_argument("--train", action="store_true", help="only train the models")
    options = parser.parse_args()
    torch.set_num_threads(1)
    train() if options.train else main()
