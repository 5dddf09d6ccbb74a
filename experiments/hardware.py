"""What a measurement ran on, in more words than a stored result's ``provenance``."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch


def processor() -> str:
    """The name of the CPU, its cores, and what PyTorch uses of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"
