"""A tiny model for the tests of the scoreboard, and a text for it."""

from __future__ import annotations

import numpy as np
import pytest

from rope_lessons.lab import sizes, text
from rope_lessons.lab.text import Corpus, Piece
from rope_lessons.models.transformer import TransformerConfig
from rope_lessons.scoreboard.recipe import Recipe
from rope_lessons.scoreboard.scoring import Settings

TINY = TransformerConfig(width=8, layers=2, heads=2, kv_heads=2, head_dim=4, hidden=8)
TESTS = Settings(home=32, lengths=(32, 64, 128), windows=3, depths=(0.0, 1.0))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A recipe of a model that the registry knows as "tiny"."""
    monkeypatch.setitem(sizes.SIZES, "tiny", TINY)
    return Recipe("tiny", home=32, train_length=32, batch=4, steps=3, warmup=1)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Nonsense: 20 kB to train on, and documents for tests and for choices."""
    random = np.random.Generator(np.random.Philox(key=7))
    texts = [random.integers(97, 123, size=size, dtype=np.uint8).tobytes() for size in (20_000, *[400] * 8)]
    pieces = [Piece(content, held_out=bool(number)) for number, content in enumerate(texts)]
    return text.prepare("tiny", "scoreboard", lambda: pieces, tmp_path_factory.mktemp("corpus"))
