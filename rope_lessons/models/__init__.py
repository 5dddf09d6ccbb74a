"""The models of the chapters: small, whole in one file each, trained in minutes on a CPU."""

from rope_lessons.models import byte_lm, masked_lm, pretrained, recall

__all__ = ["byte_lm", "masked_lm", "pretrained", "recall"]
