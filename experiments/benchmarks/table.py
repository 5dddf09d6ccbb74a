"""What the command lines of the single tables share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from experiments.command import parser

Rows = Callable[[torch.device], list[dict[str, Any]]]


def device_here() -> torch.device:
    """CUDA if there is a card."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def one_thread(device: torch.device) -> None:
    """On the CPU one thread works from here on."""
    if device.type == "cpu":
        torch.set_num_threads(1)


def show(module: str, text: str | None, rows: Rows, arguments: Sequence[str] | None = None) -> None:
    """The command line of one table, which takes no arguments: measure it and print it."""
    parser(module, text).parse_args(arguments)
    device = device_here()
    one_thread(device)
    for row in rows(device):
        print(row)
