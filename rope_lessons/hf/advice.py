"""What a model was trained on, what it claims, and what to set for a length: :func:`~rope_lessons.hf.advise`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import nn

from rope_lessons._checks import check_count
from rope_lessons.circles import turns
from rope_lessons.hf.configs import plan_from_hf
from rope_lessons.hf.state import as_loaded
from rope_lessons.kinds import KINDS
from rope_lessons.schemes import FrequencySpec, Plan, Scheme
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

    Within what the config claims: nothing. Beyond it: ReRoPE with a window of a quarter of that, the method and the
    window that chapter 8 measured, in each layer that turns and sees farther. A config does not say how well a model
    does what it claims, and the shares of right predictions are those of the book's small models, not of this one.

    Args:
        model_or_config: a causal model of transformers, or a config as for :func:`~rope_lessons.plan_from_hf`, with
            ``max_position_embeddings``. Of a model with a plan, the model as it was loaded counts.
        length: of the longest text, in tokens.

    Returns:
        the advice. Print it, and give its ``plan`` to :func:`~rope_lessons.hf.extend`.

    Raises:
        TypeError, ValueError: as :func:`~rope_lessons.plan_from_hf`; a ``length`` below 1; a config without
            ``max_position_embeddings``; a model none of whose layers turns.

    Chapters 03 to 08.

    >>> config = {"num_hidden_layers": 2, "head_dim": 128, "rope_theta": 10000.0, "max_position_embeddings": 4096}
    >>> advise(config, 4096).plan == plan_from_hf(config)
    True
    >>> print(advise(config, 16384).lines[1])
    Within 4096 tokens the fastest of 64 pairs turns 651.9 times, the slowest 0.075; 18 make no full turn.
    >>> print(advise(config, 16384).lines[2])
    Set ReRoPE with a window of 1024 in 2 of 2 layers: no distance turns a pair farther than 1024 tokens do.
    """
    check_count("length", length, least=1)
    own, config = _read(model_or_config)
    trained, claimed = _lengths(own, config)
    turning = [its for its in own if its.frequencies is not None]
    if not turning:
        raise ValueError("model_or_config must have a layer that turns queries and keys, got one without positions")
    window = max(claimed // 4, 1)
    far = [_sees_beyond(its, claimed) for its in own] if length > claimed else [False] * len(own)
    plan = tuple(_bent(its, window, trained) if bent else its for its, bent in zip(own, far, strict=True))
    kinds = {its.frequencies.kind for its, bent in zip(own, far, strict=True) if bent and its.frequencies is not None}
    kept = {its.frequencies.kind for its, bent in zip(plan, far, strict=True) if bent and its.frequencies is not None}
    if any(far):
        told = (
            f"Set ReRoPE with a window of {window} in {sum(far)} of {len(own)} layers{_stretched(kinds, kept)}: no "
            f"distance turns a pair farther than {window} tokens do."
        )
    elif length <= claimed:
        told = f"Set nothing: {length} is within the claim, and every change of frequencies costs something there."
    else:
        told = f"Set nothing: no layer that turns sees farther than {claimed} tokens."
    measured = _beside_a_window() if any(far) else _cost_at_home()
    if kept - {"rope"}:
        measured += f" On frequencies of kind {_listed(kept)} it was not measured."
    others = _log_n(length, claimed) + (_yarn(length, claimed) if kinds == {"rope"} else "")
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
    options = [dict(its.frequencies.options) for its in own if its.frequencies is not None]
    trained = min([claimed, *(its["train_length"] for its in options if its.get("train_length"))])
    stretched = [
        int(its["train_length"] * its["factor"]) for its in options if {"train_length", "factor"} <= its.keys()
    ]
    return trained, max([claimed, *stretched])


def _sees_beyond(its: Scheme, claimed: int) -> bool:
    return its.frequencies is not None and (its.visible_window is None or its.visible_window > claimed)


def _bent(its: Scheme, window: int, trained: int) -> Scheme:
    """ReRoPE in a layer. Frequencies that a longer text stretches, and that are plain up to the training length, are
    plain in it: it needs no stretching."""
    spec = its.frequencies
    assert spec is not None
    if spec.needs_length:
        plain = FrequencySpec("rope", dim=spec.dim, base=dict(spec.options)["base"])
        spec = plain if torch.allclose(spec(length=trained), plain()) else spec
    return replace(its, frequencies=spec, window=window, slope=0.0)


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
    """What a change of all frequencies cost the small models of chapter 8 at the training length."""
    found = results("rerope")
    rows = found["rows"].where(model="plain", length=found["config"]["length"])
    pi, rope = (f"{rows.where(method=method).mean('accuracy'):.1%}" for method in ("pi", "rope"))
    return (
        f"Measured on the book's small models (chapter 8), right predictions at the training length: {pi} with PI by "
        f"8, {rope} with plain RoPE."
    )


def _beside_a_window() -> str:
    """What ReRoPE brought the small models of chapter 8, and what a plain window did, which only hides what is far."""
    found = results("rerope")
    home, windows = found["config"]["length"], found["relatives"].where(method="window-64", length=512)
    rows = found["rows"].where(model="plain", length=8 * home, seed=windows["seed"])
    near = [rows.where(method=method).mean("accuracy") for method in ("rerope-16", "rope")]
    far = [
        fmean(shares["384"] for shares in found["recall"].where(method=method, scale=False)["recall"])
        for method in ("rerope-32", "rope", "window-64")
    ]
    return (
        f"Measured on the book's small models (chapter 8), right predictions at 8 times the training length: "
        f"{near[0]:.1%} with ReRoPE, {near[1]:.1%} with plain RoPE, {windows.mean('accuracy'):.1%} with a plain "
        f"window; questions about what stands 6 training lengths away: {far[0]:.1%}, {far[1]:.1%}, {far[2]:.1%}. "
        "A window does better where nothing far is needed."
    )


def _log_n(length: int, claimed: int) -> str:
    if length <= claimed:
        return "Not in the plan: log n, which is about texts beyond the training length."
    scale = math.log(length) / math.log(max(claimed, 2))
    return (
        f"Not in the plan: log n, which would scale scores by {scale:.2f} at the last token. To compare, extend by "
        f"name with scale=rl.LogN({claimed}, clip=True), which leaves texts within the claim as they are."
    )


def _yarn(length: int, claimed: int) -> str:
    """The other way, by frequencies alone, and what it cost the small models of chapter 5 at the training length."""
    found = results("circles")
    home, factor = found["config"]["length"], found["factor"]
    near, far = (
        [found["rows"].where(method=method, length=at).mean("accuracy") for method in ("yarn", "rope")]
        for at in (home, factor * home)
    )
    return (
        f' Nor YaRN, rl.hf.extend(model, "yarn", factor={math.ceil(length / claimed)}), which every cache and other '
        f"programs serve: by {factor}, on the small models of chapter 5, it had {near[0]:.1%} right at the training "
        f"length (plain RoPE {near[1]:.1%}) and {far[0]:.1%} at {factor} times that (plain RoPE {far[1]:.1%})."
    )
