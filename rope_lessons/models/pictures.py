"""Pictures of random symbols in which every pixel asks for the one above it: what a second axis buys.

The smallest task that two axes decide. A picture has rows and columns of symbols, drawn at random, so nothing can be
guessed; the answer at a pixel is the symbol one row up. The model is one layer of attention with nothing around it,
and it is told where a pixel stands by rotation alone. Chapter 14.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lessons.axes import axial_positions
from rope_lessons.engine import attention
from rope_lessons.schemes import scheme
from rope_lessons.sinusoidal import sinusoidal_encoding

ASKED = scheme("nope", causal=False)  # queries and keys are turned by the frequencies of the call


@dataclass(frozen=True)
class PictureConfig:
    symbols: int = 16  # so one answer in 16 is right by chance
    width: int = 64  # channels of a pixel
    heads: int = 2
    side: int = 8  # rows and columns in training
    steps: int = 300
    batch: int = 32
    rate: float = 3e-3  # of learning, falling to 0 in a straight line

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


class PictureModel(nn.Module):
    """One layer of attention over all pixels.

    Args:
        config: its sizes.
        frequencies: ``(axes, head_dim/2)``. With one row a picture is read line by line; with two a pixel has a row and
            a column. None turns nothing, and a learned table of ``side`` by ``side`` vectors is added to the pixels;
            for a larger picture it is stretched, as vision models stretch theirs.
        learned: frequencies that training may change.
        told: a sinusoidal vector of the number of columns is added to every pixel.
    """

    def __init__(self, config: PictureConfig, frequencies: Tensor | None, learned: bool = False, told: bool = False):
        super().__init__()
        self.config, self.told = config, told
        self.symbols = nn.Embedding(config.symbols, config.width)
        self.norm = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)  # its bias lets a query ask without saying what for
        self.answer = nn.Linear(config.width, config.symbols)
        self.frequencies, self.table = None, None
        if frequencies is None:
            self.table = nn.Parameter(torch.randn(1, config.width, config.side, config.side))
        else:
            self.frequencies = nn.Parameter(frequencies.clone(), requires_grad=learned)

    def heads(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, ``(batch, heads, rows * columns, head_dim)``, before they are turned."""
        x = self.symbols(pixels.flatten(1))  # (batch, rows * columns, width)
        if self.table is not None:
            size = (pixels.shape[1], pixels.shape[2])
            table = F.interpolate(self.table, size, mode="bilinear", align_corners=True)
            x = x + table.flatten(2).movedim(1, 2)
        if self.told:
            columns = torch.tensor(pixels.shape[2], device=pixels.device)
            x = x + sinusoidal_encoding(columns, self.config.width)
        x = self.qkv(self.norm(x)).unflatten(-1, (3, self.config.heads, -1))
        q, k, v = x.permute(2, 0, 3, 1, 4)
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rows: int, columns: int) -> Tensor:
        if self.frequencies is None:
            return attention(q, k, v, ASKED)
        by_line = len(self.frequencies) == 1
        places = axial_positions((rows * columns,) if by_line else (rows, columns), device=q.device)[None]
        return attention(q, k, v, ASKED, q_positions=places, k_positions=places, frequencies=self.frequencies)

    def forward(self, pixels: Tensor) -> Tensor:
        """Scores of the symbols, ``(batch, rows, columns, symbols)``, for int64 pixels ``(batch, rows, columns)``."""
        rows, columns = pixels.shape[1:]
        found = self.attend(*self.heads(pixels), rows, columns).transpose(1, 2).flatten(2)
        return self.answer(found).unflatten(1, (rows, columns))


def draw(config: PictureConfig, rows: int, columns: int, count: int, generator: torch.Generator) -> Tensor:
    """Pictures, int64 ``(count, rows, columns)``."""
    return torch.randint(config.symbols, (count, rows, columns), generator=generator)


def loss(model: PictureModel, pixels: Tensor) -> Tensor:
    """Cross entropy, in nats, of what stands one row up; the first row has nothing above it."""
    return F.cross_entropy(model(pixels)[:, 1:].flatten(0, 2), pixels[:, :-1].flatten())


def train(
    frequencies: Tensor | None,
    seed: int,
    *,
    config: PictureConfig | None = None,
    columns: Sequence[int] = (),
    learned: bool = False,
    told: bool = False,
    device: torch.device | str = "cpu",
) -> PictureModel:
    """A model after its training, about three seconds on one CPU core.

    Args:
        frequencies, learned, told: as for :class:`PictureModel`.
        seed: of weights and pictures.
        config: sizes and steps.
        columns: how many columns the pictures of training have, one of these for each step; ``side`` if none.
        device: where it trains; weights and pictures are drawn on the CPU.
    """
    config = config or PictureConfig()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = PictureModel(config, frequencies, learned, told)
    model.to(device)
    generator, widths = torch.Generator().manual_seed(seed), tuple(columns) or (config.side,)
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=config.rate)
    for step in range(config.steps):
        optimizer.param_groups[0]["lr"] = config.rate * (1 - step / config.steps)
        width = widths[int(torch.randint(len(widths), (), generator=generator))]
        pixels = draw(config, config.side, width, config.batch, generator).to(device)
        optimizer.zero_grad()
        loss(model, pixels).backward()
        optimizer.step()
    return model


@torch.no_grad()
def right(model: PictureModel, rows: int, columns: int, count: int = 64) -> float:
    """The share of pixels, of all rows but the first, that answer with the symbol above them. Always the same pictures
    for a size, which no training has seen."""
    generator = torch.Generator().manual_seed(2**32 + rows * columns)
    pixels = draw(model.config, rows, columns, count, generator).to(model.answer.weight.device)
    found = torch.cat([model(some).argmax(dim=-1) for some in pixels.split(16)])
    return float((found[:, 1:] == pixels[:, :-1]).double().mean())


@torch.no_grad()
def looks(model: PictureModel, rows: int, columns: int, at: tuple[int, int], count: int = 16) -> Tensor:
    """Where a pixel looks: its weight on every pixel, ``(rows, columns)``, mean over the heads and some pictures."""
    generator = torch.Generator().manual_seed(2**32 + rows * columns)
    pixels = draw(model.config, rows, columns, count, generator).to(model.answer.weight.device)
    q, k, v = model.heads(pixels)
    each = torch.eye(rows * columns, dtype=v.dtype, device=v.device).expand(*v.shape[:2], -1, -1)
    weights = model.attend(q, k, each, rows, columns)  # (count, heads, pixels, pixels)
    return weights[:, :, at[0] * columns + at[1]].mean(dim=(0, 1)).unflatten(0, (rows, columns))


@torch.no_grad()
def by_hand(model: PictureModel, reach: int) -> Tensor:
    """What each hand of the rows adds to the score of a pixel 0, 1, … rows up, on average: ``(hands, reach)``."""
    assert model.frequencies is not None
    side, generator = model.config.side, torch.Generator().manual_seed(2**32)
    pixels = draw(model.config, side, side, 16, generator).to(model.answer.weight.device)
    q, k = (torch.complex(*x.double().mean((0, 2)).chunk(2, dim=-1)).cpu() for x in model.heads(pixels)[:2])
    speeds = model.frequencies[0].double().cpu()
    angles = speeds * torch.arange(reach)[:, None]
    added = (q * k.conj()).mean(0) * torch.polar(torch.ones_like(angles), angles) / model.config.head_dim**0.5
    return added.real.T[speeds != 0]
