"""What the text decides: by hand, and by loops that share no code with the package."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rope_lessons.lab.table.passkey import DIGITS, NEEDLE, QUESTION
from rope_lessons.scoreboard import metrics


def windows_of(*texts: bytes) -> torch.Tensor:
    return torch.tensor([list(text) for text in texts])


def far_by_hand(text: bytes, beyond: int, context: int) -> tuple[list[int], list[int]]:
    """Every earlier place is tried, the nearest first."""
    copies, contexts = [], []
    for place in range(context, len(text)):
        for earlier in range(place - 1, context - 1, -1):
            if text[earlier - context : earlier] == text[place - context : place]:
                if place - earlier > beyond:
                    contexts.append(place)
                    if text[earlier] == text[place]:
                        copies.append(place)
                break
    return copies, contexts


def test_a_text_by_hand() -> None:
    """The name comes again 21 bytes later, to be spelt otherwise: "answe" is copied, "x" stands where "r" stood, and
    after "(): " comes "1" where "pass" began."""
    text = b"def answer(): pass   def answex(): 1"
    copies, contexts = metrics.far_copies(windows_of(text), beyond=16, context=4)
    assert bytes(text[place + 1] for place in copies[0].nonzero()[:, 0]) == b"answe"
    assert bytes(text[place + 1] for place in contexts[0].nonzero()[:, 0]) == b"answex1"


@pytest.mark.parametrize(("beyond", "found"), [(20, True), (21, False)])
def test_the_training_length_is_seen(beyond: int, found: bool) -> None:
    """A copy from exactly ``beyond`` bytes back is in sight."""
    text = b"abcdefgh" + bytes(range(13)) + b"abcdefgh"
    assert bool(metrics.far_copies(windows_of(text), beyond, context=4)[0].any()) == found


def test_a_near_copy_beside_a_far_one() -> None:
    """What was said again just now is no far copy, whatever stands farther back."""
    text = b"abcdef" + b"." * 30 + b"abcdef" + b"--" + b"abcdef"
    copies, _ = metrics.far_copies(windows_of(text), beyond=16, context=4)
    assert bytes(text[place + 1] for place in copies[0, : 42 - 1].nonzero()[:, 0]) == b"ef"
    assert not copies[0, 42:].any()


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=12, max_size=80).map(lambda text: bytes(byte % 3 for byte in text)), st.integers(1, 30))
def test_far_copies_against_a_loop(text: bytes, beyond: int) -> None:
    copies, contexts = metrics.far_copies(windows_of(text), beyond, context=3)
    expected = far_by_hand(text, beyond, context=3)
    assert ([place + 1 for place in copies[0].nonzero()[:, 0].tolist()],
            [place + 1 for place in contexts[0].nonzero()[:, 0].tolist()]) == expected  # fmt: skip


def test_needles_can_be_answered() -> None:
    """The same line two or three times, and nothing else is changed."""
    windows = torch.full((200, 65), ord("."))
    found = metrics.with_needles(windows, 0.5, np.random.Generator(np.random.Philox(key=3)))
    changed = (found != windows).any(dim=1)
    assert 70 < int(changed.sum()) < 130
    digits, counts = set(), []
    for row in found[changed].tolist():
        text = bytes(row).decode()
        answer = text[text.index(QUESTION.format("")) + len(QUESTION.format("")) :][:DIGITS]
        line = NEEDLE.format(answer)
        counts.append(text.count(line))
        assert text.replace(line, "") == "." * (65 - counts[-1] * len(line))
        digits.add(answer)
    assert len(digits) > 60
    assert set(counts) == {2, 3}


@pytest.mark.parametrize(("size", "most"), [(30, 2), (44, 2), (45, 3)])
def test_needles_fill_a_window_to_its_ends(size: int, most: int) -> None:
    random = np.random.Generator(np.random.Philox(key=4))
    found = metrics.with_needles(torch.full((400, size), ord(".")), 1.0, random)
    lines = [bytes(row).decode().split(".") for row in found.tolist()]
    assert max("".join(row).count("key") for row in lines) == most
    assert any(row[0] for row in lines)  # a line begins the window
    assert any(row[-1] for row in lines)  # and one ends it


def test_no_room_for_a_needle() -> None:
    with pytest.raises(ValueError, match=r"windows must have at least 30 tokens, got 20"):
        metrics.with_needles(torch.zeros(1, 20, dtype=torch.int64), 0.5, np.random.default_rng(0))
    with pytest.raises(ValueError, match="share must be"):
        metrics.with_needles(torch.zeros(1, 65, dtype=torch.int64), 1.5, np.random.default_rng(0))
    with pytest.raises(ValueError, match="context must be an int of at least 1"):
        metrics.far_copies(torch.zeros(1, 20, dtype=torch.int64), 4, context=0)
