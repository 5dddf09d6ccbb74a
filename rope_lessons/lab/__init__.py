"""The model of the articles with its trainer, and the table of what such models do at eight times their length."""

from rope_lessons.lab import (
    checkpoint,
    deep_norm,
    evaluation,
    gau,
    model,
    rows,
    shootout,
    sizes,
    speed,
    text,
    tiger,
    training,
    transformer,
)

__all__ = [
    "checkpoint",
    "deep_norm",
    "evaluation",
    "gau",
    "model",
    "rows",
    "shootout",
    "sizes",
    "speed",
    "text",
    "tiger",
    "training",
    "transformer",
]
