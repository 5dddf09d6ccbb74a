"""What a model was trained on, what it claims, and what to set for a length: :func:`~rope_lessons.hf.advise`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from rope_lessons._checks import check_count
from rope_lessons.circles import turns
from rope_lessons.hf.configs import plan_from_hf
from rope_lessons.hf.state import as_loaded
from rope_lessons.kinds import KINDS
from rope_lessons.schemes import FrequencySpec, LogN, Plan, Scheme
from rope_lessons.stored import results


@dataclass(frozen=True, repr=False)
class Advice:
    """What to set for a length, and why. Prints itself as five lines.

    Args:
        length: that was asked for.
        trained: tokens that the frequencies were made for, before any stretching that the config says.
        claimed: tokens that the config says the model takes.
        plan: for :func:`~rope_lessons.hf.extend`; the model's own where nothing is to be set.
        lines: why.
    """

    length: int
    trained: int
    claimed: int
    plan: Plan
    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)


def advise(model_or_config: Any, length: int) -> Advice:
    """What a model was trained on, what it claims, and what to set for texts of a length, in five lines.

    Within what the config claims: nothing. Beyond it: ReRoPE with a window of half of that and the log n scale that
    begins there, as chapter 12 measured and advises, in each layer that turns and sees farther. A config does not say
    how well a model does what it claims, and the shares of right predictions are those of the book's small model, not
    of this one.

    Args:
        model_or_config: a causal model of transformers, or a config as for :func:`~rope_lessons.plan_from_hf`, with
            ``max_position_embeddings``. Of a model with a plan, the model as it was loaded counts.
        length: of the longest text, in tokens.

    Returns:
        the advice. Print it, and give its ``plan`` to :func:`~rope_lessons.hf.extend`.

    Raises:
        TypeError, ValueError: as :func:`~rope_lessons.plan_from_hf`; a ``length`` below 1; a config without
            ``max_position_embeddings``; a model none of whose layers turns.

    Chapters 05, 08 and 12.

    >>> config = {"num_hidden_layers": 2, "head_dim": 128, "rope_theta": 10000.0, "max_position_embeddings": 4096}
    >>> advise(config, 4096).plan == plan_from_hf(config)
    True
    >>> print(advise(config, 16384).lines[1])
    Within 4096 tokens the fastest of 64 pairs turns 651.9 times, the slowest 0.075; 18 make no full turn.
    >>> print(advise(config, 16384).lines[2])
    Set ReRoPE, window 2048, with log n† in 2 of 2 layers: no distance turns a pair farther than 2048 tokens do.
    """
    check_count("length", length, least=1)
    own, config = _read(model_or_config)
    trained, claimed = _lengths(own, config)
    turning = [its for its in own if its.frequencies is not None]
    if not turning:
        raise ValueError("model_or_config must have a layer that turns queries and keys, got one without positions")
    far = [_sees_beyond(its, claimed) for its in own] if length > claimed else [False] * len(own)
    bent = [its for its, is_far in zip(own, far, strict=True) if is_far]
    plan = tuple(_bent(its, claimed, trained) if is_far else its for its, is_far in zip(own, far, strict=True))
    kinds = {its.frequencies.kind for its in bent if its.frequencies is not None}
    kept = {
        its.frequencies.kind for its, is_far in zip(plan, far, strict=True) if is_far and its.frequencies is not None
    }
    if bent:
        told = (
            f"Set ReRoPE, window {_window(claimed)}, with log n† in {len(bent)} of {len(own)} "
            f"layers{_stretched(kinds, kept)}: no distance turns a pair farther than {_window(claimed)} tokens do."
        )
    elif length <= claimed:
        told = f"Set nothing: {length} is within the claim, and the usual changes of frequencies cost something there."
    else:
        told = f"Set nothing: no layer that turns sees farther than {claimed} tokens."
    measured = _beside_a_window() if bent else _cost_at_home()
    if kept - {"rope"}:
        measured += f" On frequencies of kind {_listed(kept)} it was not measured."
    others = _others(length, claimed, kinds == {"rope"}) if bent else _no_log_n(length, claimed)
    lines = (_claim(length, trained, claimed), _circles(turning, trained), told, measured, others)
    return Advice(length, trained, claimed, plan, lines)


def _read(model_or_config: Any) -> tuple[Plan, Mapping[str, Any]]:
    if isinstance(model_or_config, nn.Module):
        loaded, config = as_loaded(model_or_config), model_or_config.config
        return loaded.own, {**config.to_dict(), **loaded.config}  # type: ignore[operator, union-attr]
    own = plan_from_hf(model_or_config)
    return own, model_or_config.to_dict() if hasattr(model_or_config, "to_dict") else model_or_config


def _lengths(own: Plan, config: Mapping[str, Any]) -> tuple[int, int]:
    """What the frequencies were made for, and what is claimed."""
    claimed = config.get("max_position_embeddings")
    if claimed is None:
        raise ValueError(f"config must contain 'max_position_embeddings', got {sorted(map(str, config))}")
    check_count("max_position_embeddings", claimed, least=1)
    specs = [its.frequencies for its in own if its.frequencies is not None]
    options = [dict(spec.options) for spec in specs]
    trained = min([claimed, *(its["train_length"] for its in options if its.get("train_length"))])
    stretched = [
        int(its["train_length"] * its["factor"])
        for spec, its in zip(specs, options, strict=True)
        if spec.kind != "llama3" and {"train_length", "factor"} <= its.keys()  # Llama 3.2: 32 times 8192, half claimed
    ]
    return trained, max([claimed, *stretched])


def _sees_beyond(its: Scheme, claimed: int) -> bool:
    return its.frequencies is not None and (its.visible_window is None or its.visible_window > claimed)


def _window(claimed: int) -> int:
    return max(claimed // 2, 1)


def _bent(its: Scheme, claimed: int, trained: int) -> Scheme:
    """ReRoPE with log n† in a layer. Frequencies that a longer text stretches, and that are plain up to the training
    length, are plain in it: it needs no stretching."""
    spec = its.frequencies
    assert spec is not None
    if spec.needs_length:
        plain = FrequencySpec("rope", dim=spec.dim, base=dict(spec.options)["base"])
        spec = plain if torch.allclose(spec(length=trained), plain()) else spec
    scale = LogN(max(claimed, 2), clip=True)
    return replace(its, frequencies=spec, window=_window(claimed), slope=0.0, scale=scale)


def _stretched(before: set[str], after: set[str]) -> str:
    """What becomes of frequencies that the config stretches."""
    gone, kept = before - after, after - {"rope"}
    said = f", in place of {_listed(gone)}, which stretches what is near too" if gone else ""
    return said + (f", on top of {_listed(kept)}, by which the config stretches them" if kept else "")


def _listed(kinds: set[str]) -> str:
    return ", ".join(KINDS[kind].label for kind in sorted(kinds))


def _claim(length: int, trained: int, claimed: int) -> str:
    return (
        f"By its config: frequencies made for {trained} tokens, claims {claimed}; you want {length}, "
        f"{length / claimed:.3g} times the claim."
    )


def _circles(turning: list[Scheme], trained: int) -> str:
    """Turns of the frequencies before any stretching, in the layer that sees farthest."""
    its = next((its for its in turning if its.visible_window is None), turning[0])
    assert its.frequencies is not None
    plain = FrequencySpec("rope", dim=its.rotary_dim, base=dict(its.frequencies.options)["base"])
    made = turns(plain(), trained)
    return (
        f"Within {trained} tokens the fastest of {len(made)} pairs turns {made[0]:.1f} times, the slowest "
        f"{made[-1]:.2g}; {int((made < 1).sum())} make no full turn."
    )


def _cost_at_home() -> str:
    """What a change of frequencies cost the small model at the training length."""
    pi, yarn, rope = (f"{_right(row)[0]:.1f}%" for row in ("pi", "yarn", "rope"))
    return (
        f"Measured on the book's small model (chapter 5), bytes right at the training length: {rope} with plain RoPE, "
        f"{yarn} with YaRN and {pi} with PI, both by {_times()}."
    )


def _beside_a_window() -> str:
    """What ReRoPE brought the small model, and what a plain window did, which only hides what is far."""
    rows = ("rerope-w32-logn-test", "rope", "rope-window")
    bent, plain, window = (_both(row) for row in rows)
    found = ", ".join(f"{_right(row, 'needle')[1]:.1f}%" for row in rows)
    return (
        f"Measured on the book's small model (chapters 8 and 12), bytes right at the training length and at {_times()} "
        f"times that: {bent} with it, {plain} as trained, {window} with a plain window; numbers found in the long "
        f"text: {found}. Where nothing far has to be found, the window is enough."
    )


def _no_log_n(length: int, claimed: int) -> str:
    if length <= claimed:
        return "Not in the plan: log n†, which is about texts beyond the training length."
    return "Not in the plan: log n†, which was measured in layers that turn and see everything."


def _others(length: int, claimed: int, plain: bool) -> str:
    """How much log n† is, the control, and the other way, by frequencies alone."""
    scale = math.log(length) / math.log(max(claimed, 2))
    control = (
        f"Log n† scales the scores of the last token by {scale:.2f}. A large model has other numbers: compare, on "
        "texts of yours, short ones too, and on something to be found, with "
        f'rl.hf.extend(model, "window", visible_window={claimed}).'
    )
    return control + _yarn(math.ceil(length / claimed)) * plain


def _yarn(factor: int) -> str:
    return (
        f' If frequencies are all that may change: rl.hf.extend(model, "yarn", factor={factor}), which every cache and '
        f"other programs serve, for long texts only (chapter 5): by {_times()} it had {_both('yarn')} of the bytes, "
        f"and {_both('yarn', 'needle')} of the numbers."
    )


def _both(row: str, metric: str = "natural") -> str:
    return " and ".join(f"{share:.1f}%" for share in _right(row, metric))


def _right(row: str, metric: str = "natural") -> list[float]:
    """What a row of the scoreboard has at the training length and at the longest, in percent."""
    lines = results("scoreboard")["rows"].where(rung="small", row=row, metric=metric)
    return [100 * lines.where(length=end(lines["length"]))["mean"][0] for end in (min, max)]


def _times() -> int:
    """By how much the longest texts of the scoreboard are longer than those of training."""
    lengths = results("scoreboard")["rows"].where(rung="small", row="rope", metric="natural")["length"]
    return int(max(lengths) // min(lengths))
