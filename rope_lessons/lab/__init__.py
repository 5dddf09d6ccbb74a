"""Small experiments that anybody can repeat: models, text, training and evaluation."""

from rope_lessons.lab import byte_lm, recall

__all__ = ["byte_lm", "recall"]
