"""Exercises of chapter 15."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rope_lessons.exercises import Exercise, Lab, WrongKind
from rope_lessons.hf import plan_from_hf

LAB_NEEDLES, LAB_COPIES, LAB_DOCUMENTS = 76.0, 74.0, 24  # percent at 512 bytes; of the test documents


def _lab(answer: Any) -> str:
    """What the first seed of the scoreboard's model gets right with the plan of this config."""
    if not isinstance(answer, Mapping):
        raise WrongKind("give a config: a dictionary that rl.plan_from_hf reads")
    plan = plan_from_hf(answer)  # what is wrong in it is said by the package
    if len(plan) != 4:
        return f"the model has four layers: num_hidden_layers must be 4, got {len(plan)}"
    from rope_lessons.scoreboard import live  # with PyTorch's models: only who does the lab waits for them

    model, texts = live.load(), live.windows()[-LAB_DOCUMENTS:]
    needles, copies = (live.percent(model, plan, texts, 512, metric) for metric in ("needle", "far copies"))
    told = f"{needles:.0f} % of the needles and {copies:.0f} % of the far copies"
    if copies < LAB_COPIES:
        return f"it does not copy enough: {told}; {LAB_COPIES:.0f} % of the far copies are wanted"
    if needles < LAB_NEEDLES:
        return f"it does not find enough: {told}; {LAB_NEEDLES:.0f} % of the needles are wanted"
    return ""


_PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
_YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 64}


def _config(types: str, full: Mapping[str, Any]) -> dict[str, Any]:
    """Windows of 64 in the layers marked ``s``; the others see everything."""
    names = {"s": "sliding_attention", "f": "full_attention"}
    ropes = {"sliding_attention": _PLAIN, "full_attention": dict(full)}
    layer_types = [names[letter] for letter in types]
    return {
        "num_hidden_layers": len(types), "head_dim": 32, "sliding_window": 64, "layer_types": layer_types,
        "rope_parameters": {name: ropes[name] for name in set(layer_types)},
    }  # fmt: skip


def _far_layers(layers: int, pattern: int) -> list[int]:
    return [number for number in range(layers) if (number + 1) % pattern == 0]


def _share_read(windows: Sequence[int | None], length: int) -> float:
    return sum(length if window is None else min(window, length) for window in windows) / (length * len(windows))


def _reaches(rope: Mapping[str, Any]) -> float:
    return rope["factor"] * rope["original_max_position_embeddings"]


def _keys_seen(length: int, chunk: int) -> float:
    whole, rest = divmod(length, chunk)
    return (whole * chunk * (chunk + 1) / 2 + rest * (rest + 1) / 2) / length


_LLAMA31 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_LLAMA32 = {**_LLAMA31, "factor": 32.0}

EXERCISES: dict[str, Exercise | Lab] = {
    "far_layers": Exercise(
        reference=_far_layers,
        cases=[(34, 6), (32, 4), (5, 2), (3, 4)],
        mistakes={
            "that counts from the first layer of a group: the last one sees far": (
                lambda layers, pattern: [number for number in range(layers) if number % pattern == 0]
            ),
            "those are the layers with the window": (
                lambda layers, pattern: [number for number in range(layers) if (number + 1) % pattern]
            ),
            "count from 0: the number of the first layer is 0": (
                lambda layers, pattern: [number + 1 for number in _far_layers(layers, pattern)]
            ),
        },
    ),
    "share_read": Exercise(
        reference=_share_read,
        cases=[([1024] * 29 + [None] * 5, 131_072), ([4, None], 8), ([8, None], 4), ([2, 2], 10), ([None], 7)],
        mistakes={
            "a window cannot read more keys than there are: the smaller of window and length": (
                lambda windows, length: (
                    sum(length if window is None else window for window in windows) / (length * len(windows))
                )
            ),
            "that is the share of the layers that see everything; the windows read something, too": (
                lambda windows, length: sum(window is None for window in windows) / len(windows)
            ),
            "as a share: divide by what all layers would read together": (
                lambda windows, length: _share_read(windows, length) * len(windows)
            ),
        },
    ),
    "reaches": Exercise(
        reference=_reaches,
        also=[lambda rope: 1 + rope["factor"] * (rope["original_max_position_embeddings"] - 1)],  # by distances
        cases=[(_LLAMA31,), (_LLAMA32,), ({**_LLAMA31, "original_max_position_embeddings": 64},)],
        mistakes={
            "the ramp's upper end is for hands that have been round: it does not make the road longer": (
                lambda rope: _reaches(rope) * rope["high_freq_factor"]
            ),
            "that is the length before; slowed hands go farther": (
                lambda rope: rope["original_max_position_embeddings"]
            ),
        },
    ),
    "keys_seen": Exercise(
        reference=_keys_seen,
        cases=[(16, 4), (18, 4), (3, 8), (8192, 8192), (7, 1)],
        mistakes={
            "that is a window: in a chunk the count begins again at 1": (
                lambda length, chunk: sum(min(place + 1, chunk) for place in range(length)) / length
            ),
            "the last block may be shorter": lambda length, chunk: (chunk + 1) / 2,
            "a token sees itself, too": lambda length, chunk: _keys_seen(length, chunk) - 1,
        },
    ),
    "lab": Lab(
        grade=_lab,
        reference=_config("sffs", {**_YARN, "beta_fast": 4.0, "attention_factor": 1.35}),
        mistakes={
            "it does not copy enough": _config("ffff", _YARN),  # the naive one
            "it does not find enough": _config("sffs", {**_YARN, "beta_fast": 4.0}),  # the best row of the table
            # Cheating: another attention than a config can say.
            "give a config: a dictionary that rl.plan_from_hf reads": ["rerope"] * 4,
        },
    ),
}
