"""Small experiments that anybody can repeat: models, text, training and evaluation."""

from rope_lessons.lab import (
    byte_lm,
    checkpoint,
    deep_norm,
    evaluation,
    gau,
    masked_lm,
    model,
    recall,
    rows,
    shootout,
    sizes,
    text,
    tiger,
    training,
    transformer,
)

__all__ = [
    "byte_lm",
    "checkpoint",
    "deep_norm",
    "evaluation",
    "gau",
    "masked_lm",
    "model",
    "recall",
    "rows",
    "shootout",
    "sizes",
    "text",
    "tiger",
    "training",
    "transformer",
]
