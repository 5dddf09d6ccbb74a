"""A tiny model and a tiny corpus for the tests of the lab."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rope_lessons.lab import sizes, text, training
from rope_lessons.lab.gau import GAUConfig
from rope_lessons.lab.text import Corpus, Piece
from rope_lessons.lab.training import Recipe

TINY = GAUConfig(width=16, layers=2, key_dim=8)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A recipe of a model of a few thousand weights, which the registries know as "tiny"."""
    monkeypatch.setitem(sizes.SIZES, "tiny", TINY)
    recipe = Recipe("tiny", train_length=32, batch=4, steps=12, warmup=3, shift_keys=True)
    monkeypatch.setitem(training.CONFIGS, "tiny", recipe)
    return recipe


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Two kinds of nonsense: 20 kB to train on, three documents to test with."""
    random = np.random.Generator(np.random.Philox(key=5))
    texts = [random.integers(97, 123, size=size, dtype=np.uint8).tobytes() for size in (20_000, 1500, 1300, 1100)]
    pieces = [Piece(content, held_out=bool(number)) for number, content in enumerate(texts)]
    return text.prepare("tiny", "1", lambda: pieces, tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def folder_of_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the command line: files to be given as ``--corpus``."""
    root = tmp_path_factory.mktemp("texts")
    random = np.random.Generator(np.random.Philox(key=6))
    for number in range(4):
        (root / f"{number}.txt").write_bytes(random.integers(97, 123, size=5000, dtype=np.uint8).tobytes())
    return root
