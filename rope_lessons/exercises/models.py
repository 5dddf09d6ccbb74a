"""Exercises of chapter 15."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rope_lessons.exercises import Exercise, Lab, WrongKind
from rope_lessons.hf import known, plan_from_hf

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
    ropes = {"sliding_attention": _PLAIN, "full_attention": full}
    layer_types = [next(name for name in ropes if name[0] == letter) for letter in types]
    return {
        "num_hidden_layers": len(types), "head_dim": 32, "sliding_window": 64, "layer_types": layer_types,
        "rope_parameters": {name: ropes[name] for name in set(layer_types)},
    }  # fmt: skip


def _five_rows(config: Mapping[str, Any], layer: int, means: int = 1, on: bool = False, *rules: str) -> list[float]:
    turns = "no_rope_layers" not in config or config["no_rope_layers"][layer] == means
    scaled = config.get("rope_scaling", {}).get("rope_type") in ("yarn", *rules)
    window = config.get("sliding_window") if on or config.get("use_sliding_window", True) else 0
    return [config["rope_theta"] * turns, 0, int(scaled), window or 0, 0]


def _share_read(windows: Sequence[int | None], length: int) -> float:
    return sum(min(window or length, length) for window in windows) / (length * len(windows))


def _reaches(rope: Mapping[str, Any]) -> float:
    return rope["factor"] * rope["original_max_position_embeddings"]


def _keys_seen(length: int, chunk: int) -> float:
    whole, rest = divmod(length, chunk)
    return (whole * chunk * (chunk + 1) / 2 + rest * (rest + 1) / 2) / length


_LLAMA31, _LLAMA32 = (known(name).config["rope_scaling"] for name in ("Llama 3.1 8B", "Llama 3.2 1B"))
_COLUMNS = (
    ("SmolLM3 3B", 2), ("SmolLM3 3B", 3), ("Mistral 7B v0.1", 0), ("Qwen2.5 7B", 5), ("Llama 3.1 8B", 9),
    ("Qwen3 8B, YaRN on", 7),
)  # fmt: skip

EXERCISES: dict[str, Exercise | Lab] = {
    "five_rows": Exercise(
        reference=_five_rows,
        cases=[(known(name).config, layer) for name, layer in _COLUMNS],
        mistakes={
            "in `no_rope_layers` 0 means no positions": lambda config, layer: _five_rows(config, layer, 0),
            "a window that is switched off hides nothing": lambda config, layer: _five_rows(config, layer, 1, True),
            "Llama's rule leaves the scale alone": lambda config, layer: _five_rows(config, layer, 1, False, "llama3"),
        },
    ),
    "share_read": Exercise(
        reference=_share_read,
        cases=[([1024] * 29 + [None] * 5, 131_072), ([4, None], 8), ([8, None], 4), ([2, 2], 10), ([None], 7)],
        mistakes={
            "a window cannot read more keys than there are: the smaller of window and length": (
                lambda windows, length: sum(window or length for window in windows) / (length * len(windows))
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
