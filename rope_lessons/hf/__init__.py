"""Models of Hugging Face: their configs as schemes and plans and back, and a plan in a model that is loaded.

A config: :func:`~rope_lessons.plan_from_hf` and :func:`~rope_lessons.plan_to_hf`, one layer
:func:`~rope_lessons.scheme_from_hf` and :func:`~rope_lessons.scheme_to_hf`. A model: :func:`extend`, :func:`using`,
:func:`restore`.
"""

from __future__ import annotations

from rope_lessons.hf.configs import plan_from_hf, plan_to_hf, scheme_from_hf, scheme_to_hf
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
