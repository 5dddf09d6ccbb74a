"""A training step of a small transformer with InvLeaky ReRoPE beside the same with RoPE.

python -m experiments.benchmarks.training
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from experiments.benchmarks import table
from experiments.benchmarks.sides import Side, ours, plain_rope
from experiments.benchmarks.timing import in_turns, milliseconds, ratio
from rope_lessons.engine.targets import TRAINING_STEP

FACTOR = 8  # InvLeaky for a text FACTOR times longer: window length/4, slope 2 FACTOR


class Size(NamedTuple):
    """Of the model and its text."""

    width: int
    layers: int
    head_dim: int
    length: int
    dtype: torch.dtype


SIZES = {"cpu": Size(512, 2, 64, 1024, torch.float32), "cuda": Size(2048, 8, 128, 8192, torch.bfloat16)}


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and added to what comes in."""

    def __init__(self, width: int, head_dim: int, attend: Side):
        super().__init__()
        self.head_dim, self.attend = head_dim, attend
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.project, self.back = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(self.norms[0](x)).unflatten(-1, (3, -1, self.head_dim)).permute(2, 0, 3, 1, 4)
        x = x + self.back(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norms[1](x))


def rows(device: torch.device, size: Size | None = None) -> list[dict[str, Any]]:
    """One row: the step's time with InvLeaky, and with RoPE through SDPA."""
    width, layers, head_dim, length, dtype = size or SIZES[device.type]
    sides = {"rope": plain_rope, "invleaky": ours(head_dim, length // 4, 2.0 * FACTOR)}
    x = torch.randn(1, length, width, device=device, dtype=dtype)
    calls = {}
    for name, side in sides.items():
        model = nn.Sequential(*(Block(width, head_dim, side) for _ in range(layers))).to(device, dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
        calls[name] = partial(_step, model, optimizer, x)
    times = in_turns(calls, 8, device, warm_up=2)
    return [
        {
            "what": f"a training step with InvLeaky, w = {length // 4}, slope {2 * FACTOR}",
            "beside": "the same with RoPE through SDPA",
            "length": length,
            "shape": f"{layers} layers, width {width}, head_dim {head_dim}, {str(dtype).removeprefix('torch.')}",
            "milliseconds": milliseconds(times, "invleaky"),
            "beside_milliseconds": milliseconds(times, "rope"),
            "ratio": ratio(times, "invleaky", "rope"),
            "target": TRAINING_STEP,
        }
    ]


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    model(x).float().square().mean().backward()
    optimizer.step()


if __name__ == "__main__":
    table.show("experiments.benchmarks.training", __doc__, rows)
