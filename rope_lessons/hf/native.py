"""A plan through transformers' own rope parameters, where it changes frequencies and nothing else.

The model's rotary module is built anew from a config that says the plan, and its frequencies are compared with the
plan's. Attention, caches and masks stay transformers' own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from rope_lessons._extras import extra
from rope_lessons.hf.configs import in_hf_words, plan_from_hf, scheme_to_hf
from rope_lessons.kinds import KINDS, PARTIAL
from rope_lessons.schemes import Plan, Scheme


def depends_on_length(plan: Plan) -> bool:
    """Whether frequencies change with the text. Cached keys of transformers keep those that they were turned by."""
    return any(its.frequencies is not None and its.frequencies.needs_length for its in plan)


def rope_parameters(config: Any, own: Plan, wanted: Plan) -> dict[str, Any]:
    """What the config of a model says with a plan.

    Args:
        config: the model's.
        own: what it says now.
        wanted: the plan.

    Returns:
        ``rope_parameters``, flat or by layer type, as the model's own are.

    Raises:
        ValueError: a plan that changes more than frequencies and attention factors; frequencies that transformers does
            not know, or that differ between layers with the same parameters.

    >>> from transformers import LlamaConfig
    >>> from rope_lessons import plan_from_hf, scheme
    >>> config = LlamaConfig(num_hidden_layers=2, head_dim=8)
    >>> rope_parameters(config, plan_from_hf(config), (scheme("pi", dim=8, factor=4),) * 2)
    {'rope_type': 'linear', 'rope_theta': 10000.0, 'factor': 4}
    """
    with extra("hf", "a plan in a model of Hugging Face"):
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    said = config.rope_parameters
    kinds = _kinds(config)
    ropes: dict[str | None, dict[str, Any]] = {}
    for number, (kind, its, new) in enumerate(zip(kinds, own, wanted, strict=True)):
        _check_layer(its, new, number)
        if new.frequencies is None:
            continue
        rope = scheme_to_hf(Scheme(new.frequencies, rotary_scale=new.rotary_scale))
        if rope["rope_type"] not in ("default", *ROPE_INIT_FUNCTIONS):
            raise ValueError(f"plan must have frequencies that transformers knows, got {new!r} in layer {number}")
        before = (said if kind is None else said[kind]) or {}
        if before.get(PARTIAL) is not None and not _spans_head(its) and not _spans_head(new):
            rope[PARTIAL] = before[PARTIAL]
        if ropes.setdefault(kind, rope) != rope:
            raise ValueError(
                f"plan must have the same frequencies in all layers {f'of type {kind!r}' if kind else 'that turn'} to "
                f"go into transformers' config, got {new!r} in layer {number}"
            )
    return ropes.get(None, dict(said)) if None in kinds else {**said, **{str(kind): ropes[kind] for kind in ropes}}


def rebuilt(rotary: nn.Module, config: Any, own: Plan, wanted: Plan) -> tuple[nn.Module, dict[str, Any]]:
    """A rotary module of transformers with a plan, and the values in the config that say it.

    Args:
        rotary: the model's own.
        config, own, wanted: as for :func:`rope_parameters`.

    Raises:
        ValueError: as :func:`rope_parameters`; or what is read back from the config, or the module, is not the plan.
    """
    said: dict[str, Any] = {"rope_parameters": rope_parameters(config, own, wanted)}
    if longest := _longest(wanted):
        said["max_position_embeddings"] = longest
    try:  # as from a file
        config = type(config).from_dict({**config.to_dict(), **copy.deepcopy(said)})
        made = type(rotary)(config)
    except Exception as error:  # whatever transformers says of this model
        raise ValueError(
            f"plan must be one that transformers' {config.model_type!r} allows, got {wanted!r}: {error}"
        ) from error
    read = plan_from_hf(config)
    if read != tuple(_as_read(its) for its in wanted):
        raise ValueError(
            f"plan must be one that a config of {config.model_type!r} can say, got {wanted!r}, not {read!r}"
        )
    for number, (kind, new) in enumerate(zip(_kinds(config), wanted, strict=True)):
        if new.frequencies is not None and not _turns(made, "" if kind is None else f"{kind}_", new):
            raise ValueError(
                f"plan must be frequencies that transformers' {type(made).__name__} takes from a config, got {new!r} "
                f"in layer {number}"
            )
    return made.to(next(rotary.buffers()).device), said


def _longest(plan: Plan) -> int | None:
    """What ``max_position_embeddings`` has to be where it says the stretched length, by whose ratio to the training
    length transformers checks the factor; None where it is none of the plan's business."""
    specs = [its.frequencies for its in plan if its.frequencies is not None]
    hfs = [KINDS[spec.kind].hf for spec in specs]
    said = [dict(spec.options) for spec, hf in zip(specs, hfs, strict=True) if hf and hf.longest == "extended"]
    return max((int(its["train_length"] * its["factor"]) for its in said if "factor" in its), default=None)


def _kinds(config: Any) -> list[str | None]:
    """Which rope parameters each layer has: those of its type, or None for the only ones."""
    by_type = any(isinstance(value, Mapping) for value in config.rope_parameters.values())
    return list(config.layer_types) if by_type else [None] * config.num_hidden_layers


def _spans_head(its: Scheme) -> bool:
    return its.frequencies is not None and KINDS[its.frequencies.kind].spans_head


def _as_read(its: Scheme) -> Scheme:
    return its if its.frequencies is None else replace(its, frequencies=in_hf_words(its.frequencies))


def _check_layer(its: Scheme, new: Scheme, number: int) -> None:
    other = replace(new, frequencies=its.frequencies, rotary_scale=its.rotary_scale)
    if other != its or new.rotary_dim != its.rotary_dim:
        raise ValueError(
            f"plan must change frequencies and rotary_scale alone to go into transformers' config, got {new!r} for "
            f"{its!r} in layer {number}"
        )


def _turns(made: nn.Module, prefix: str, new: Scheme) -> bool:
    """Whether a rotary module of transformers has the frequencies of a layer and its attention factor."""
    found, factor = (getattr(made, prefix + name, None) for name in ("inv_freq", "attention_scaling"))
    if new.frequencies is None or found is None or factor is None:
        return False
    wanted = new.frequencies(length=1).to(found)
    near = wanted.shape == found.shape and torch.allclose(found, wanted, rtol=1e-5, atol=0)
    return bool(near) and abs(factor - new.rotary_scale) < 1e-6
