"""A plain Transformer as most language models of today have it: pre norm, RMSNorm, SwiGLU, grouped-query heads, RoPE.

What the gated attention unit is compared with. Chapter 12.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lessons._checks import check_bool, check_choice, check_count, check_dim
from rope_lessons.models.initial import truncated_normal_
from rope_lessons.models.language_model import EPSILON, Attend, KeyShift, LanguageModel
from rope_lessons.models.position_bias import BIASES, PositionBias
from rope_lessons.nn import LearnedEmbedding, SinusoidalEmbedding
from rope_lessons.schemes import Plan

ENCODINGS = ("", "sinusoidal", "learned")


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of a Transformer. The defaults give 87.2M parameters, as many as the gated attention model has.

    Args:
        vocabulary: number of tokens.
        width: channels of the stream.
        layers: number of layers, each attention and a network.
        heads: of queries.
        kv_heads: of keys and values; a divisor of ``heads``.
        head_dim: channels of a head, even.
        hidden: channels of the network.
        shift_keys: mix each key with the previous token's.
        encoding: what is added to the embedded tokens: ``"sinusoidal"``, ``"learned"`` or, by default, nothing.
        table: rows of a learned table, 0 without one: the longest text that the model can read.
        bias: what is added to the scores: ``"t5"``, ``"kerple"``, ``"sandwich"``, ``"fire"``, ``"shaw"`` or, by
            default, nothing.
        bias_length: the length that the bias is set for, 0 without one.

    Raises:
        TypeError, ValueError: sizes below 1; an odd ``head_dim``; ``kv_heads`` that do not divide ``heads``; an unknown
            encoding, or an odd ``width`` for the sinusoidal one; a table without rows, or rows without a table; an
            unknown bias, one without a length, or a length without one.

    >>> TransformerConfig(heads=12, kv_heads=5)
    Traceback (most recent call last):
        ...
    ValueError: kv_heads must divide heads = 12, got 5
    """

    vocabulary: int = 256
    width: int = 768
    layers: int = 12
    heads: int = 12
    kv_heads: int = 4
    head_dim: int = 64
    hidden: int = 2464
    shift_keys: bool = False
    encoding: str = ""
    table: int = 0
    bias: str = ""
    bias_length: int = 0

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "kv_heads", "hidden"):
            check_count(name, getattr(self, name), least=1)
        check_dim(self.head_dim)
        check_bool("shift_keys", self.shift_keys)
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads must divide heads = {self.heads}, got {self.kv_heads}")
        check_choice("encoding", self.encoding, ENCODINGS)
        check_count("table", self.table)
        if bool(self.table) != (self.encoding == "learned"):
            raise ValueError(f"table must be positive with encoding 'learned', and 0 without it, got {self.table}")
        if self.encoding == "sinusoidal" and self.width % 2:
            raise ValueError(f"width must be even for a sinusoidal encoding, got {self.width}")
        check_choice("bias", self.bias, ("", *BIASES))
        check_count("bias_length", self.bias_length)
        if bool(self.bias_length) != bool(self.bias):
            raise ValueError(f"bias_length must be positive with a bias, and 0 without one, got {self.bias_length}")

    @property
    def embedded(self) -> float:
        """The standard deviation of an embedding's channel at the start. It is small, since it makes the scores too.
        What is added to the tokens has the same size, so that neither drowns the other."""
        return 0.5 / self.width**0.5


class GroupedQueryAttention(nn.Module):
    """Attention in which several heads of queries share a head of keys and values.

    Args:
        config: sizes.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.head_dim = config.head_dim
        self.parts = [heads * config.head_dim for heads in (config.heads, config.kv_heads, config.kv_heads)]
        self.project = nn.Linear(config.width, sum(self.parts), bias=False)  # queries, keys, values in one product
        self.key_shift = KeyShift(config.head_dim) if config.shift_keys else None
        self.out = nn.Linear(config.heads * config.head_dim, config.width, bias=False)
        own = (config.bias, config.heads, config.head_dim, config.bias_length)
        self.bias = PositionBias(*own) if config.bias else None

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """``(batch, seq, width)`` to the same."""
        split = self.project(x).split(self.parts, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in split)  # (batch, heads, seq, d)
        k = k if self.key_shift is None else self.key_shift(k)
        more = {} if self.bias is None else {"bias": self.bias(q)}
        return self.out(attend(q, k, v, **more).transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """The network of a layer: ``(swish(x W_gate) * x W_up) W_down``.

    Args:
        config: sizes.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(batch, seq, width)`` to the same."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class TransformerLayer(nn.Module):
    """Two branches, each behind a norm and added to the stream.

    Args:
        config: sizes.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=EPSILON)
        self.attention = GroupedQueryAttention(config)
        self.network_norm = nn.RMSNorm(config.width, eps=EPSILON)
        self.network = SwiGLU(config)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """``(batch, seq, width)`` to the same."""
        x = x + self.attention(self.attention_norm(x), attend)
        return x + self.network(self.network_norm(x))

    def initialise(self, branches: int, generator: torch.Generator) -> None:
        """Fill every weight: norms with 1, matrices with a variance of one over the number of inputs. What ends a
        branch is divided by the square root of the number of branches, so that the stream does not grow with the
        depth, as in GPT-2."""
        begin, end = (self.attention.project, self.network.gate_up), (self.attention.out, self.network.down)
        for linears, shares in ((begin, 1), (end, branches)):
            for linear in linears:
                truncated_normal_(linear.weight, (linear.in_features * shares) ** -0.5, generator)
        for norm in (self.attention_norm, self.network_norm):
            nn.init.ones_(norm.weight)
        if self.attention.key_shift is not None:
            self.attention.key_shift.initialise()


class TransformerLM(LanguageModel):
    """A causal pre-norm Transformer. Build it with its weights by :func:`~rope_lessons.lab.sizes.build`.

    Args:
        config: sizes.
        plan: one scheme per layer, for training; RoPE by default.

    Raises:
        TypeError, ValueError: a plan that is none, or of another number of layers.

    Chapter 12 compares it with the gated attention unit.
    """

    config: TransformerConfig

    def __init__(self, config: TransformerConfig, plan: Plan | None = None):
        super().__init__(config, (TransformerLayer(config) for _ in range(config.layers)), plan)
        self.norm = nn.RMSNorm(config.width, eps=EPSILON)
        self.encoding = _encoding(config)
        self.has_bias = bool(config.bias)

    def leave(self, x: Tensor) -> Tensor:
        """The stream was never normed: this is the last of the pre norms."""
        return self.norm(x)

    def initialise(self, generator: torch.Generator) -> None:
        """Fill every weight. What positions draw comes last: the other weights are those of a model without it."""
        truncated_normal_(self.embedding.weight, self.config.embedded, generator)
        for layer in cast(Iterable[TransformerLayer], self.layers):
            layer.initialise(2 * self.config.layers, generator)
        nn.init.ones_(self.norm.weight)
        if isinstance(self.encoding, LearnedEmbedding):
            truncated_normal_(self.encoding.weight, self.encoding.std, generator)
        for layer in cast(Iterable[TransformerLayer], self.layers):
            if layer.attention.bias is not None:
                layer.attention.bias.initialise(generator)


def _encoding(config: TransformerConfig) -> SinusoidalEmbedding | LearnedEmbedding | None:
    """Vectors as large as those of the tokens."""
    if config.encoding == "sinusoidal":  # whose channels have a mean square of 1/2
        return SinusoidalEmbedding(config.width, scale=2**0.5 * config.embedded)
    return LearnedEmbedding(config.table, config.width, std=config.embedded) if config.encoding == "learned" else None
