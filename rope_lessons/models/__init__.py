"""The models of the chapters: small, whole in one file each, trained in minutes on a CPU."""

from rope_lessons.models import (
    byte_lm,
    initial,
    language_model,
    llama,
    masked_lm,
    pictures,
    position_bias,
    pretrained,
    recall,
    transformer,
)

__all__ = [
    "byte_lm",
    "initial",
    "language_model",
    "llama",
    "masked_lm",
    "pictures",
    "position_bias",
    "pretrained",
    "recall",
    "transformer",
]
