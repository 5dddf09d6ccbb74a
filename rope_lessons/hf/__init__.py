"""Models of Hugging Face: their configs as schemes and plans and back, and a plan in a model that is loaded.

A config: :func:`~rope_lessons.plan_from_hf` and :func:`~rope_lessons.plan_to_hf`, one layer
:func:`~rope_lessons.scheme_from_hf` and :func:`~rope_lessons.scheme_to_hf`. A model: :func:`extend`, :func:`using`,
:func:`restore`; what to give it: :func:`advise`. Which channels it turns, and which way: :func:`identify`. What files
of released models say: :func:`models`, :func:`known`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rope_lessons.hf.advice import advise
    from rope_lessons.hf.configs import plan_from_hf, plan_to_hf, scheme_from_hf, scheme_to_hf
    from rope_lessons.hf.conventions import Convention, identify
    from rope_lessons.hf.live import extend, load, plan_of, restore, using
    from rope_lessons.hf.released import known, models

__all__ = [
    "Convention",
    "advise",
    "extend",
    "identify",
    "known",
    "load",
    "models",
    "plan_from_hf",
    "plan_of",
    "plan_to_hf",
    "restore",
    "scheme_from_hf",
    "scheme_to_hf",
    "using",
]

# Imported on first use, from these modules: only programs with a model need them.
_LATER = {
    "advise": "advice",
    **dict.fromkeys(("plan_from_hf", "plan_to_hf", "scheme_from_hf", "scheme_to_hf"), "configs"),
    **dict.fromkeys(("extend", "load", "plan_of", "restore", "using"), "live"),
    **dict.fromkeys(("Convention", "identify"), "conventions"),
    **dict.fromkeys(("known", "models"), "released"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
