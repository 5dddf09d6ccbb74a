"""A masked language model of bytes: the small model of ``byte_lm``, reading in both directions. Chapter 10.

15 percent of the bytes are hidden behind a token of their own, and the model says what they were. It sees the whole
text at once, so it knows how long the text is, and may be given any positions: those of training are drawn by a
sampler, those of a test are whatever the test says.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lessons.engine import attention
from rope_lessons.methods import Positions
from rope_lessons.models import byte_lm
from rope_lessons.models.byte_lm import Block, Config
from rope_lessons.schemes import Plan, scheme
from rope_lessons.sinusoidal import sinusoidal_encoding

MASK, SHARE = 256, 0.15  # the token that hides a byte, and the share of bytes that it hides
SPREAD = 0.05  # of the embedding at the start: small, since it is the output layer too


class MaskedLM(nn.Module):
    """A transformer over bytes that sees in both directions.

    Positions enter through the plan (RoPE), or with ``additive`` through the sinusoidal encoding, which is added to
    the embedding once, about as large as the embedding is at the start.
    """

    def __init__(self, config: Config, plan: Plan | None = None, additive: bool = False):
        super().__init__()
        self.plan: Plan = plan or (scheme("rope", dim=config.head_dim, causal=False),) * config.layers
        if any(layer.causal for layer in self.plan):
            raise ValueError(f"plan must be of schemes with causal=False, got {self.plan!r}")
        self.additive = additive
        self.embedding = nn.Embedding(MASK + 1, config.width)
        nn.init.normal_(self.embedding.weight, std=SPREAD)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        plan: Plan | None = None,
        attend: Callable[..., Tensor] = attention,
        only: Tensor | None = None,
    ) -> Tensor:
        """Scores of the byte at each place, ``(batch, seq, 256)``, for tokens int64 ``(batch, seq)``.

        ``positions`` are ``(seq,)`` or ``(batch, seq)``, by default 0, 1, 2, …. ``plan`` replaces the plan of
        training. With ``only``, boolean ``(batch, seq)``, the scores of those places alone, ``(places, 256)``.
        """
        x = self.embedding(tokens)
        if self.additive:
            places = torch.arange(tokens.shape[1], device=tokens.device) if positions is None else positions
            x = x + 2**0.5 * SPREAD * sinusoidal_encoding(places, x.shape[-1]).to(x)
        where = {"q_positions": positions, "k_positions": positions, "length": tokens.shape[1]}
        for block, row in zip(self.blocks, plan or self.plan, strict=True):
            x = block(x, lambda q, k, v, s=row: attend(q, k, v, s, **where))
        x = x if only is None else x[only]
        return self.norm(x) @ self.embedding.weight[:MASK].T


def build(config: Config, seed: int, plan: Plan | None = None, additive: bool = False) -> MaskedLM:
    """A fresh model. The seed decides every weight, and the global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MaskedLM(config, plan, additive)


def hide(tokens: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The tokens with some bytes hidden, and which. Each byte is hidden with probability 0.15, on its own, and always
    by the mask token: none is kept or exchanged for another byte. Which, is drawn where the generator lives: on any
    device the same bytes are hidden for the same seed."""
    hidden = (torch.rand(tokens.shape, generator=generator, device=generator.device) < SHARE).to(tokens.device)
    return tokens.masked_fill(hidden, MASK), hidden


def train(
    model: MaskedLM, text: Tensor, config: Config, seed: int, sampler: Positions | None = None, steps: int | None = None
) -> list[float]:
    """Train in place, all steps or the first few; the loss of every step, in nats per hidden byte.

    ``sampler(length, generator=...)`` draws the positions of a step.
    """
    masks, draws = (torch.Generator().manual_seed(2 * seed + n) for n in (0, 1))

    def loss_of(model: nn.Module, windows: Tensor) -> Tensor:
        shown = windows[:, :-1]
        tokens, hidden = hide(shown, masks)
        positions = None if sampler is None else sampler(config.length, generator=draws).to(tokens.device)
        return F.cross_entropy(model(tokens, positions, only=hidden), shown[hidden])

    return byte_lm.train(model, text, config, seed, steps, loss_of)


@torch.no_grad()
def evaluate(
    model: MaskedLM,
    windows: Tensor,
    length: int,
    plan: Plan | None = None,
    sampler: Positions | None = None,
    attend: Callable[..., Tensor] = attention,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Hits and losses at the hidden bytes, each ``(bytes,)``.

    As in ``byte_lm.evaluate`` the windows are cut into pieces of ``length`` bytes that see nothing of each other. The
    same bytes are hidden at every length and for every model; what changes is how much stands around them.
    ``sampler`` is called once for every twelve windows; ``seed`` is that of its draws.
    """
    bytes_, draws = windows[:, :-1], torch.Generator().manual_seed(seed)
    tokens, hidden = hide(bytes_, torch.Generator().manual_seed(0))
    hits, losses = [], []
    for some, target, where in zip(tokens.split(12), bytes_.split(12), hidden.split(12), strict=True):
        positions = None if sampler is None else sampler(length, generator=draws).to(tokens.device)
        scores = model(some.reshape(-1, length), positions, plan, attend, only=where.reshape(-1, length))
        right = target[where]
        hits.append(scores.argmax(dim=-1) == right)
        losses.append(F.cross_entropy(scores, right, reduction="none"))
    return torch.cat(hits).double(), torch.cat(losses).double()


def load(path: Path, config: Config, plan: Plan | None = None, additive: bool = False) -> MaskedLM:
    """A stored model, in float32. A checkpoint holds weights only: give what it was trained with."""
    model = build(config, seed=0, plan=plan, additive=additive)
    byte_lm.fill(model, path)
    return model
