"""The model of the articles with its trainer, and the table of what such models do at eight times their length."""

from rope_lessons.lab import (
    checkpoint,
    deep_norm,
    gau,
    rows,
    sizes,
    speed,
    table,
    text,
    tiger,
    training,
)

__all__ = [
    "checkpoint",
    "deep_norm",
    "gau",
    "rows",
    "sizes",
    "speed",
    "table",
    "text",
    "tiger",
    "training",
]
