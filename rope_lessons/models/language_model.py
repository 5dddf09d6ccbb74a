"""What the language models of the lab share: tokens in, scores out, one scheme per layer in between.

A model gives a layer, :class:`~rope_lessons.lab.gau.GatedAttentionLM` and
:class:`~rope_lessons.models.transformer.TransformerLM`; what is around the layers is here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rope_lessons._checks import check_count, check_int64, check_positive
from rope_lessons.engine import KVCache, attention
from rope_lessons.schemes import Plan, Scheme, scheme

EPSILON = 1e-7  # of the norms, as in bert4keras
Attend = Callable[..., Tensor]  # queries, keys and values, and a bias where a layer has one, to outputs


class ModelConfig(Protocol):
    """What every configuration has."""

    @property
    def vocabulary(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def shift_keys(self) -> bool: ...


class LanguageModel(nn.Module):
    """Embedding, layers, scores by the same embedding. Positions enter through the plan, and through the encoding of a
    model that has one.

    The weights are memory without content until :func:`~rope_lessons.lab.sizes.build` fills them.

    Args:
        config: sizes.
        layers: the layers, called as ``layer(x, attend)`` with ``x`` of ``(batch, seq, width)``.
        plan: one scheme per layer, for training; RoPE on all channels of a key by default.

    Raises:
        TypeError, ValueError: a plan that is none, or of another number of layers.

    Chapter 12.
    """

    has_bias = False  # whether layers add a bias of their own to the scores
    recompute = False  # activation checkpointing: keep only what enters a layer, and run it again for the gradients

    def __init__(self, config: ModelConfig, layers: Iterable[nn.Module], plan: Plan | None = None):
        super().__init__()
        self.config = config
        default = (scheme("rope", dim=config.head_dim),) * config.layers
        self.plan: Plan = check_plan(default if plan is None else plan, config.layers)
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.encoding: nn.Module | None = None  # adds to the embedded tokens what their positions say
        self.layers = nn.ModuleList(layers)

    def forward(
        self,
        tokens: Tensor,
        plan: Plan | None = None,
        attend: Callable[..., Tensor] = attention,
        *,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
        **options: Any,
    ) -> Tensor:
        """Scores of the next token, ``(batch, seq, vocabulary)``.

        Args:
            tokens: int64 ``(batch, seq)``; with a cache, the new ones.
            plan: replaces the plan of training.
            attend: replaces the attention itself; called as ``attend(q, k, v, scheme, **options)``.
            positions: as for :func:`~rope_lessons.attention`, of queries and keys alike; 0, 1, 2, … by default.
            cache: a :class:`~rope_lessons.KVCache` for the same plan.
            options: further arguments of every attention: ``length``, ``document_ids``, ``backend``, ….

        Raises:
            TypeError, ValueError: tokens of another dtype or shape; a plan of another number of layers; a cache or
                document ids for a model that mixes keys with the ones before them, adds an encoding or has a bias;
                positions for one with a bias.
        """
        check_int64("tokens", tokens)
        if tokens.ndim != 2:
            raise ValueError(f"tokens must have shape (batch, seq), got {tuple(tokens.shape)}")
        plan = self.plan if plan is None else check_plan(plan, self.config.layers)
        for name, value in (("cache", cache), ("document_ids", options.get("document_ids"))):
            if self.config.shift_keys and value is not None:
                raise ValueError(f"{name} must be None for a model with shift_keys: a key needs the token before it")
            if self.encoding is not None and value is not None:
                raise ValueError(f"{name} must be None for a model with an encoding: it counts every text from 0")
            if self.has_bias and value is not None:
                raise ValueError(f"{name} must be None for a model with a bias: it counts every text from 0")
        if self.has_bias and positions is not None:
            raise ValueError("positions must be None for a model with a bias: it counts every text from 0")
        if positions is not None:
            options.update(q_positions=positions, k_positions=positions)
        x = self.embedding(tokens)
        if self.encoding is not None:
            x = self.encoding(x, torch.arange(tokens.shape[1], device=x.device) if positions is None else positions)
        x = self.enter(x)
        for number, (layer, layer_scheme) in enumerate(zip(self.layers, plan, strict=True)):
            held = {} if cache is None else {"cache": cache, "layer": number}
            here = _bound(attend, layer_scheme, {**options, **held})
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, here, use_reentrant=False)
            else:
                x = layer(x, here)
        return self.leave(x) @ self.embedding.weight.T

    def compile_layers(self, **options: Any) -> None:
        """``torch.compile`` layer by layer, in place. Layers with the same scheme share one compilation, so a deep
        model takes no longer to compile than a shallow one.

        Args:
            options: of ``torch.compile``.
        """
        for layer in self.layers:
            layer.compile(**options)

    def enter(self, x: Tensor) -> Tensor:
        """What happens to the embedded tokens before the first layer."""
        return x

    def leave(self, x: Tensor) -> Tensor:
        """What happens to the stream after the last layer."""
        return x

    def initialise(self, generator: torch.Generator) -> None:
        """Fill every weight."""
        raise NotImplementedError


def _bound(attend: Callable[..., Tensor], scheme: Scheme, options: dict[str, Any]) -> Attend:
    """The attention of one layer."""

    def here(q: Tensor, k: Tensor, v: Tensor, **more: Tensor) -> Tensor:
        return attend(q, k, v, scheme, **options, **more)

    return here


def check_plan(plan: Any, layers: int) -> Plan:
    if not isinstance(plan, tuple) or not all(isinstance(layer, Scheme) for layer in plan):
        raise TypeError(f"plan must be a tuple of one Scheme per layer, got {type(plan).__name__}")
    if len(plan) != layers:
        raise ValueError(f"plan must have one scheme for each of {layers} layers, got {len(plan)}")
    return plan


class KeyShift(nn.Module):
    """Keys mixed with the previous token's, channel by channel: a layer can then ask "what came after this?" at once.

    The first token has none before it and keeps its own. The shares start at one, so that asking this is what a layer
    begins with.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.share = nn.Parameter(torch.empty(channels))

    def initialise(self) -> None:
        """Fill every weight."""
        nn.init.ones_(self.share)

    def forward(self, k: Tensor) -> Tensor:
        """Keys ``(batch, kv_heads, seq, channels)`` to mixed ones."""
        before = torch.cat((k[:, :, :1], k[:, :, :-1]), dim=2)
        return torch.lerp(k, before, self.share.to(k.dtype))


def materialise(make: Callable[[], LanguageModel], seed: int, device: torch.device | str = "cpu") -> LanguageModel:
    """A model with its weights. They depend on the seed alone: not on the device, and not on PyTorch's random state,
    which stays as it was.

    Args:
        make: builds the model, as a class with its arguments; called without memory for the weights.
        seed: of the weights.
        device: where the model lives.

    Returns:
        the model, in float32.

    Raises:
        TypeError, ValueError: a seed that is no int from 0 to 2**63 - 1.
    """
    check_count("seed", seed)
    with torch.device("meta"):
        model = make()
    model.to_empty(device=device)
    model.initialise(torch.Generator().manual_seed(seed))
    return model


def count_parameters(make: Callable[[], nn.Module]) -> int:
    """How many weights a model would have, without memory for them."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in make().parameters())


@torch.no_grad()
def generate(
    model: LanguageModel,
    tokens: Tensor,
    count: int,
    plan: Plan | None = None,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    cache: KVCache | None = None,
) -> Tensor:
    """Continue a text, one token at a time, with a key-value cache.

    Args:
        model: a language model of the lab, without shifted keys.
        tokens: int64 ``(batch, seq)``, the prompt.
        count: how many tokens to add.
        plan: replaces the plan of training.
        temperature: 0 takes the token with the largest score; else scores are divided by it and one is drawn.
        generator: of random numbers.
        cache: a fresh cache for the plan, where one with other settings than the default is wanted.

    Returns:
        int64 ``(batch, seq + count)``.

    Raises:
        TypeError, ValueError: as the model; a negative count or temperature.

    Chapter 12.

    >>> from rope_lessons.lab import sizes
    >>> model = sizes.build("gau-0.3m", seed=0)
    >>> generate(model, torch.tensor([[72, 105]]), count=3).shape
    torch.Size([1, 5])
    """
    check_count("count", count)
    if temperature:
        check_positive("temperature", temperature)
    plan = model.plan if plan is None else plan
    cache = KVCache(plan, max_length=max(1, tokens.shape[1] + count)) if cache is None else cache
    new = tokens
    for _ in range(count):
        scores = model(new, plan, cache=cache)[:, -1].float()
        if temperature:
            new = torch.multinomial((scores / temperature).softmax(dim=-1), 1, generator=generator)
        else:
            new = scores.argmax(dim=-1, keepdim=True)
        tokens = torch.cat((tokens, new), dim=1)
    return tokens
