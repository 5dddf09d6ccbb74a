"""Models of Hugging Face: their configs as schemes and plans and back, and a plan in a model that is loaded.

A config: :func:`~rope_lessons.plan_from_hf` and :func:`~rope_lessons.plan_to_hf`, one layer
:func:`~rope_lessons.scheme_from_hf` and :func:`~rope_lessons.scheme_to_hf`. A model: :func:`extend`, :func:`using`,
:func:`restore`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rope_lessons.hf.configs import plan_from_hf, plan_to_hf, scheme_from_hf, scheme_to_hf

if TYPE_CHECKING:
    from rope_lessons.hf.live import extend, load, plan_of, restore, using

__all__ = [
    "extend",
    "load",
    "plan_from_hf",
    "plan_of",
    "plan_to_hf",
    "restore",
    "scheme_from_hf",
    "scheme_to_hf",
    "using",
]

_LIVE = ("extend", "load", "plan_of", "restore", "using")  # imported on first use: only programs with a model need them


def __dir__() -> list[str]:
    return sorted({*globals(), *_LIVE})


def __getattr__(name: str) -> Any:
    if name in _LIVE:
        return getattr(importlib.import_module(f"{__name__}.live"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
