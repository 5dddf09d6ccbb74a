"""What a model of transformers is, with a plan or without: what :func:`~rope_lessons.hf.extend` has changed of it, its
own plan, its attentions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from rope_lessons._checks import shown
from rope_lessons.hf.configs import plan_from_hf
from rope_lessons.schemes import Plan, Scheme

IN_CONFIG = ("rope_parameters", "max_position_embeddings")  # what a plan may change there


@dataclass
class Extended:
    """What :func:`~rope_lessons.hf.extend` has changed of a model."""

    own: Plan  # the model's as it was loaded, and below what else was there
    plan: Plan
    through: str
    rotary: Any
    implementation: str
    config: dict[str, Any]
    hook: Any = None


def unwrapped(model: Any) -> Any:
    """The model of transformers in one of PEFT, which is around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def state_of(model: Any) -> Extended | None:
    """What was changed of a model, None if nothing was."""
    return getattr(getattr(unwrapped(model), "base_model", None), "rope_lessons", None)


def attentions(model: Any) -> list[Any]:
    """The attention of each layer, in order."""
    found: list[Any] = [module for module in model.modules() if hasattr(module, "layer_idx")]
    return sorted((module for module in found if hasattr(module, "scaling")), key=lambda module: module.layer_idx)


def own_plan(model: Any) -> Plan:
    """What the config of a model says.

    Raises:
        TypeError, ValueError: no model of transformers; a config that :func:`~rope_lessons.plan_from_hf` does not read.
    """
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise TypeError(f"model must be a model of transformers, got {shown(model)}")
    if not getattr(model.config, "model_type", None):
        raise ValueError("model must have a model_type in its config, by which it is known here; got none")
    return plan_from_hf(model.config)


def as_loaded(model: Any) -> Extended:
    """What a model was before any plan of ours."""
    model = unwrapped(model)
    state = state_of(model)
    if state is not None:
        return state
    own = own_plan(model)
    base, config = model.base_model, model.config
    said = {key: getattr(config, key) for key in IN_CONFIG if hasattr(config, key)}
    return Extended(own, own, "", getattr(base, "rotary_emb", None), config._attn_implementation, said)


def in_words(plan: Plan) -> str:
    """Each scheme of a plan, after the layers that have it.

    >>> from rope_lessons.schemes import scheme
    >>> in_words((scheme("nope"), scheme("rope", dim=8), scheme("nope")))
    "layers 0, 2: Scheme(None); layers 1: Scheme(FrequencySpec('rope', dim=8))"
    """
    layers: dict[Scheme, list[int]] = {}
    for number, its in enumerate(plan):
        layers.setdefault(its, []).append(number)
    return "; ".join(f"layers {_spans(numbers)}: {its!r}" for its, numbers in layers.items())


def _spans(numbers: list[int]) -> str:
    """Numbers in order, neighbours as a span."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True))
