r"""The language model of articles 9 to 15: gated attention units with post norm, started so that no warm-up is needed.

A gated attention unit is attention and the network behind it in one. From the stream :math:`\mathbf{x}` it makes a
gate, values and one small vector for queries and keys together:

.. math:: [\mathbf{u}, \mathbf{v}, \mathbf{z}] = \operatorname{swish}(\mathbf{x}\mathbf{W}), \quad
          \mathbf{q} = \boldsymbol\gamma_q \odot \mathbf{z}, \quad \mathbf{k} = \boldsymbol\gamma_k \odot \mathbf{z},
          \quad \mathbf{o} = (\mathbf{u} \odot \mathbf{A}\mathbf{v})\,\mathbf{W}_o

with one head of softmax attention :math:`\mathbf{A}` and RoPE on all channels of :math:`\mathbf{q}, \mathbf{k}`. Two
units have about the parameters of one Transformer layer. Chapter 12.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lessons._checks import check_bool, check_count, check_dim
from rope_lessons.lab.deep_norm import deep_norm
from rope_lessons.models.initial import truncated_normal_
from rope_lessons.models.language_model import EPSILON, Attend, KeyShift, LanguageModel
from rope_lessons.schemes import Plan


@dataclass(frozen=True)
class GAUConfig:
    """Sizes of a model of gated attention units. The defaults are GAU-α base with bytes: 87.5M parameters.

    The published model has 12 000 characters and 96.5M. Its dropout of 0.1 is left out: it belongs to many passes over
    one corpus.

    Args:
        vocabulary: number of tokens.
        width: channels of the stream.
        layers: number of units.
        key_dim: channels of a query and of a key, even.
        expansion: channels of gate and values over the width.
        optimizer: for which the start is made, as in :func:`~rope_lessons.lab.deep_norm.deep_norm`. ``"lamb"`` is also
            for Tiger.
        shift_keys: mix each key with the previous token's.

    Raises:
        TypeError, ValueError: sizes below 1; an odd ``key_dim``; an unknown optimizer.

    >>> GAUConfig(layers=12, width=576).head_dim
    128
    """

    vocabulary: int = 256
    width: int = 768
    layers: int = 24
    key_dim: int = 128
    expansion: int = 2
    optimizer: str = "lamb"
    shift_keys: bool = False

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "expansion"):
            check_count(name, getattr(self, name), least=1)
        check_dim(self.key_dim)
        check_bool("shift_keys", self.shift_keys)
        deep_norm(self.layers, self.optimizer)  # an unknown one fails here

    @property
    def hidden(self) -> int:
        """Channels of gate and values."""
        return self.expansion * self.width

    @property
    def head_dim(self) -> int:
        """All channels of a key turn."""
        return self.key_dim


class GatedAttentionUnit(nn.Module):
    """One unit, without norm and residual.

    Args:
        config: sizes.
    """

    def __init__(self, config: GAUConfig):
        super().__init__()
        self.parts = [config.hidden, config.hidden, config.key_dim]
        self.project = nn.Linear(config.width, sum(self.parts), bias=False)  # gate, values and z in one product
        self.query_scale = nn.Parameter(torch.empty(config.key_dim))
        self.key_scale = nn.Parameter(torch.empty(config.key_dim))
        self.key_shift = KeyShift(config.key_dim) if config.shift_keys else None
        self.out = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """``(batch, seq, width)`` to the same."""
        u, v, z = F.silu(self.project(x)).split(self.parts, dim=-1)
        q, k = ((z * scale).to(v) for scale in (self.query_scale, self.key_scale))  # under autocast, back to 16 bits
        q, k, v = (part.unsqueeze(1) for part in (q, k, v))  # one head: (batch, 1, seq, channels)
        k = k if self.key_shift is None else self.key_shift(k)
        return self.out(u * attend(q, k, v).squeeze(1))

    def initialise(self, gain: float, generator: torch.Generator) -> None:
        """Fill every weight: matrices with a variance of gain² over the number of inputs, scales with 1."""
        for linear in (self.project, self.out):
            truncated_normal_(linear.weight, gain / linear.in_features**0.5, generator)
        for scale in (self.query_scale, self.key_scale):
            nn.init.ones_(scale)
        if self.key_shift is not None:
            self.key_shift.initialise()


class GAULayer(nn.Module):
    """Post norm around a unit: ``norm(alpha x + unit(x))``, the norm without parameters.

    Args:
        config: sizes.
    """

    def __init__(self, config: GAUConfig):
        super().__init__()
        self.unit = GatedAttentionUnit(config)
        self.alpha = deep_norm(config.layers, config.optimizer, order=3).alpha

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """``(batch, seq, width)`` to the same."""
        return rms_norm(self.alpha * x + self.unit(x, attend))


class GatedAttentionLM(LanguageModel):
    """A causal language model of gated attention units. Build it with its weights by
    :func:`~rope_lessons.lab.sizes.build`.

    Args:
        config: sizes.
        plan: one scheme per layer, for training; RoPE by default.

    Raises:
        TypeError, ValueError: a plan that is none, or of another number of layers.

    Source: Hua et al. 2022 (the unit); Su, articles 8934 and 9019 of spaces.ac.cn, and the published code of GAU-α (the
    model). Chapter 12 derives it.
    """

    config: GAUConfig

    def __init__(self, config: GAUConfig, plan: Plan | None = None):
        super().__init__(config, (GAULayer(config) for _ in range(config.layers)), plan)

    def enter(self, x: Tensor) -> Tensor:
        """The embedding has a norm of its own."""
        return rms_norm(x)

    def initialise(self, generator: torch.Generator) -> None:
        """Fill every weight, with the gain of Deep Norm. The embedding counts as a matrix that reads the width."""
        gain = deep_norm(self.config.layers, self.config.optimizer, order=3).gain
        truncated_normal_(self.embedding.weight, gain / self.config.width**0.5, generator)
        for layer in cast(Iterable[GAULayer], self.layers):
            layer.unit.initialise(gain, generator)


def rms_norm(x: Tensor) -> Tensor:
    """Each vector divided by its root mean square. No parameters."""
    return F.rms_norm(x, (x.shape[-1],), eps=EPSILON)
