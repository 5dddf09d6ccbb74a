"""Models by name, from one that trains on one CPU core in about a minute to one that needs a large card. Chapter 12."""

from __future__ import annotations

from functools import partial

import torch

from rope_lessons._checks import check_choice
from rope_lessons.lab.gau import GatedAttentionLM, GAUConfig
from rope_lessons.models.language_model import LanguageModel, count_parameters, materialise
from rope_lessons.models.transformer import TransformerConfig, TransformerLM
from rope_lessons.schemes import Plan

ModelConfig = GAUConfig | TransformerConfig
MODELS: dict[type, type] = {GAUConfig: GatedAttentionLM, TransformerConfig: TransformerLM}

# The first two are the models of the scoreboard. The others are pairs of about the same number of parameters. The
# smallest have four layers, so that methods that differ between layers (HWFA) have layers to differ in.
SIZES: dict[str, ModelConfig] = {
    "gau-0.3m": GAUConfig(width=100, layers=4, key_dim=64),
    "gau-25m": GAUConfig(width=576, layers=12),
    "gau-87m": GAUConfig(),
    "gau-96m": GAUConfig(vocabulary=12_000),  # GAU-α base with its characters
    "plain-0.3m": TransformerConfig(width=96, layers=4, heads=4, kv_heads=4, head_dim=32, hidden=96),
    "plain-2m": TransformerConfig(width=192, layers=6, heads=6, kv_heads=6, head_dim=32, hidden=320),
    "transformer-0.3m": TransformerConfig(width=96, layers=4, heads=2, kv_heads=1, hidden=104),
    "transformer-25m": TransformerConfig(width=512, layers=8, heads=8, kv_heads=2, hidden=1600),
    "transformer-87m": TransformerConfig(),
}


def config_of(size: str | ModelConfig) -> ModelConfig:
    """The configuration of a name; a configuration is its own.

    Args:
        size: one of ``SIZES``, or a configuration.

    Raises:
        ValueError: an unknown name.

    >>> config_of("transformer-0.3m").layers
    4
    """
    if isinstance(size, (GAUConfig, TransformerConfig)):
        return size
    check_choice("size", size, SIZES)
    return SIZES[size]


def build(
    size: str | ModelConfig, seed: int, plan: Plan | None = None, device: torch.device | str = "cpu"
) -> LanguageModel:
    """A model with its weights, in float32. They depend on the seed alone, and PyTorch's random state stays as it was.

    Args:
        size: one of ``SIZES``, or a configuration.
        seed: of the weights.
        plan: one scheme per layer, for training; RoPE by default. That of a method is
            ``METHODS[name](layers=config.layers, dim=config.head_dim, …).train``.
        device: where the model lives.

    Returns:
        the model.

    Raises:
        TypeError, ValueError: an unknown size; a plan that is none, or of another number of layers.

    Chapter 12.

    >>> model = build("gau-0.3m", seed=0)
    >>> model(torch.tensor([[82, 111, 80, 69]])).shape
    torch.Size([1, 4, 256])
    """
    config = config_of(size)
    return materialise(partial(MODELS[type(config)], config, plan), seed, device)


def parameters(size: str | ModelConfig) -> int:
    """How many weights a model has. Takes no memory for them.

    Args:
        size: one of ``SIZES``, or a configuration.

    Raises:
        ValueError: an unknown name.

    >>> parameters("gau-87m"), parameters("gau-96m")
    (87496704, 96516096)
    """
    config = config_of(size)
    return count_parameters(partial(MODELS[type(config)], config))
