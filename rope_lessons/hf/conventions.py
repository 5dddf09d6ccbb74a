"""Adjacent pairs or halves? Which way do they turn? Found by turning unit vectors, not by a model's name."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rope_lessons._checks import check_count, shown
from rope_lessons.hf.state import state_of, unwrapped

Turn = Callable[[Tensor, Tensor], Tensor]
# From 2**bits on, neighbouring positions have the same angle.
BITS = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24}


@dataclass(frozen=True)
class Convention:
    """How queries and keys are turned.

    Args:
        layout: which channels form a pair: ``"half"`` (t and t + rotary_dim/2) or ``"interleaved"`` (2t and 2t + 1).
        sign: 1 where a pair (x, y) turns from x towards y as in this package, -1 for the other way.
        head_dim: channels of a head.
        rotary_dim: how many of them turn at position 1.
        scale: factor on what is turned (the attention factor).
        angles: what the angles are computed in.
        frequencies: of the pairs, in radians per token, as they are at position 1.
    """

    layout: str
    sign: int
    head_dim: int
    rotary_dim: int
    scale: float
    angles: torch.dtype
    frequencies: tuple[float, ...] = field(repr=False)


def identify(model: Any, *, head_dim: int | None = None, layer_type: str | None = None) -> Convention:
    """How a model turns its queries and keys, found by trying: its code is called with unit vectors.

    The model itself stays as it is. Which of its layers turn at all is not asked.

    Args:
        model: a model of transformers; or a function of vectors ``(1, 1, tokens, head_dim)`` and their positions
            ``(1, tokens)`` that returns them turned.
        head_dim: channels of a head, for a function.
        layer_type: of which layers, in a model whose layer types turn differently; that of the first layer by default.

    Returns:
        the convention.

    Raises:
        TypeError, ValueError: no model or function; a model without a rotary module; turning that is not by pairs of
            channels, all one way.

    Chapter 02.

    >>> from rope_lessons import apply_rotary, rope_frequencies
    >>> def turn(x, positions):
    ...     return apply_rotary(x, positions, rope_frequencies(8), layout="interleaved")
    >>> identify(turn, head_dim=8)
    Convention(layout='interleaved', sign=1, head_dim=8, rotary_dim=8, scale=1.0, angles=torch.float64)
    """
    if isinstance(model, nn.Module):
        turn, head_dim = _turn_of(model, layer_type)
    elif callable(model):
        turn = model
    else:
        raise TypeError(
            f"model must be a model of transformers or a function of vectors and positions, got {shown(model)}"
        )
    if head_dim is None:
        raise ValueError("head_dim must be given with a function, got None")
    check_count("head_dim", head_dim, least=2)
    images = _images(turn, head_dim, 1)
    partners = _partners(images)
    first = [channel for channel, partner in partners.items() if channel < partner]
    sines = torch.stack([images[channel, partners[channel]] for channel in first])
    cosines = torch.stack([images[channel, channel] for channel in first])
    angles, scales = torch.atan2(sines, cosines), torch.hypot(sines, cosines)
    if not bool((angles > 0).all() | (angles < 0).all()):
        raise ValueError(f"all pairs of model must turn the same way, got angles {angles.tolist()} at position 1")
    return Convention(
        layout=_layout(partners),
        sign=1 if bool((angles > 0).all()) else -1,
        head_dim=head_dim,
        rotary_dim=len(partners),
        scale=round(float(scales.mean()), 6),
        angles=_dtype(turn, head_dim),
        frequencies=tuple(angles.abs().tolist()),
    )


def _turn_of(model: nn.Module, layer_type: str | None) -> tuple[Turn, int]:
    """What the attention of a model does to queries, and the channels of its heads."""
    model = unwrapped(model)
    base = getattr(model, "base_model", None)
    state = state_of(model)
    rotary = getattr(base, "rotary_emb", None)
    if state is not None and state.through == "attention":  # it was replaced by one that turns nothing
        rotary = state.rotary
    apply = getattr(sys.modules[type(rotary).__module__], "apply_rotary_pos_emb", None)
    layers: list[Any] = [its for its in model.modules() if hasattr(its, "layer_idx") and _head_dim(its)]
    if not isinstance(rotary, nn.Module) or apply is None or not layers:
        raise ValueError(
            f"model must turn queries and keys by a rotary_emb and an apply_rotary_pos_emb of its own, got "
            f"{type(model).__name__}: give a function that turns vectors instead"
        )
    together = "k" in inspect.signature(apply).parameters  # queries and keys in one call
    rotary, options = copy.deepcopy(rotary).cpu(), {}  # some rope types remember a length
    if "layer_type" in inspect.signature(rotary.forward).parameters:
        options["layer_type"] = layer_type or base.config.layer_types[0]  # type: ignore[union-attr]
        if base.config.rope_parameters.get(options["layer_type"]) is None:  # type: ignore[union-attr]
            raise ValueError(f"layer_type must be of layers that turn, got {options['layer_type']!r}")
    elif layer_type is not None:
        raise ValueError(f"layer_type must be None for a model that turns all layers alike, got {layer_type!r}")

    def applied(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return apply(x, x, cos, sin)[0] if together else apply(x, cos, sin)

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = rotary(x, positions, **options)
        try:
            return applied(x, cos, sin)
        except RuntimeError:  # the caller hands over what turns of a head, as wide as the cosines
            turned = applied(x[..., : cos.shape[-1]], cos, sin)
            return torch.cat((turned, x[..., cos.shape[-1] :]), dim=-1)

    alike = [its for its in layers if getattr(its, "layer_type", None) == options.get("layer_type")] or layers
    return turn, _head_dim(alike[0])


def _head_dim(attention: Any) -> int:
    """Channels of a head; 0 for what is no attention."""
    return getattr(attention, "head_dim", 0) or getattr(attention, "head_size", 0)


@torch.no_grad()
def _images(turn: Turn, head_dim: int, position: int) -> Tensor:
    """What becomes of each unit vector at a position: a row for each."""
    vectors = torch.eye(head_dim)[None, None]
    return turn(vectors, torch.full((1, head_dim), position))[0, 0].double()


def _partners(images: Tensor) -> dict[int, int]:
    """For each channel that turns, the other one of its pair."""
    others = images - images.diag().diag()
    partners = {}
    for channel, row in enumerate(others):
        found = row.nonzero().flatten().tolist()
        if len(found) > 1:
            raise ValueError(f"model must turn channels by pairs, got channel {channel} turned into {found}")
        if found:
            partners[channel] = found[0]
    if not partners or any(partners.get(other) != channel for channel, other in partners.items()):
        raise ValueError(f"model must turn channels by pairs, got {partners or 'nothing turned at position 1'}")
    return partners


def _layout(partners: dict[int, int]) -> str:
    distances = {abs(channel - other) for channel, other in partners.items()}
    if len(distances) > 1:
        raise ValueError(f"model must have pairs of channels at one distance, got {sorted(distances)}")
    return "interleaved" if distances == {1} and len(partners) > 2 else "half"  # of one pair, both are the same


def _dtype(turn: Turn, head_dim: int) -> torch.dtype:
    for dtype, bits in BITS.items():
        if torch.equal(_images(turn, head_dim, 2**bits), _images(turn, head_dim, 2**bits + 1)):
            return dtype
    return torch.float64
