"""The exercise of the bug museum: a test of a rotation, graded by which mistakes it finds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rope_lessons.circles import yarn_attention_factor, yarn_frequencies
from rope_lessons.exercises import Exercise, Lab, NotAnswered, WrongKind
from rope_lessons.radix import dynamic_ntk_frequencies
from rope_lessons.rotary import apply_rotary
from rope_lessons.sinusoidal import rope_frequencies

Rotate = Callable[[Tensor, Tensor], Tensor]  # vectors (tokens, 64) and their int64 positions (tokens,): turned vectors

HEAD, DIM, BASE, SEEN = 64, 32, 500_000.0, 4096  # channels, how many of them turn, and the length of the training
OMEGA = rope_frequencies(DIM, BASE)


def _turn(x: Tensor, angles: Tensor) -> Tensor:
    """Channel t with t + DIM/2 by angles ``(tokens, DIM/2)``, in the type of the angles."""
    a, b = x[:, :DIM].to(angles.dtype).chunk(2, dim=-1)
    turned = torch.cat((a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()), dim=-1)
    return torch.cat((turned.to(x.dtype), x[:, DIM:]), dim=-1)


# --- right ----------------------------------------------------------------------------------------------------------


def _exact() -> Rotate:
    return lambda x, positions: apply_rotary(x, positions, OMEGA, layout="half")


def _complex() -> Rotate:
    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        pairs = torch.complex(*x[:, :DIM].double().chunk(2, dim=-1))
        turned = pairs * torch.exp(1j * positions[:, None] * OMEGA)
        return torch.cat((turned.real, turned.imag, x[:, DIM:]), dim=-1).to(x.dtype)

    return rotate


def _float32() -> Rotate:
    """As most libraries have it: the angles in float32, in a table that grows."""
    angles = torch.empty(0, DIM // 2)

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        nonlocal angles
        if int(positions.max()) >= len(angles):
            angles = torch.arange(int(positions.max()) + 1).float()[:, None] * OMEGA.float()
        return _turn(x, angles[positions])

    return rotate


RIGHT: dict[str, Callable[[], Rotate]] = {
    "computed in float64": _exact,
    "done with complex numbers": _complex,
    "whose angles are float32, off by less than a hundredth up to position 100,000": _float32,
}


# --- wrong ----------------------------------------------------------------------------------------------------------


def _rounded_angle() -> Rotate:
    return lambda x, positions: _turn(x, (positions[:, None] * OMEGA).bfloat16().double())


def _rounded() -> Rotate:
    """A wrong base, so to speak: as relative as the right one."""
    return lambda x, positions: _turn(x, positions[:, None] * OMEGA.bfloat16().double())


def _merged() -> Rotate:
    return lambda x, positions: _turn(x, positions.bfloat16().double()[:, None] * OMEGA)


def _wrong_partner() -> Rotate:
    """Angles for halves, partners for neighbours."""

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[:, None] * torch.cat((OMEGA, OMEGA))
        work = x[:, :DIM].double()
        partner = torch.stack((-work[:, 1::2], work[:, 0::2]), dim=-1).flatten(1)
        return torch.cat((work * angles.cos() + partner * angles.sin(), x[:, DIM:]), dim=-1).to(x.dtype)

    return rotate


def _head_width() -> Rotate:
    """Frequencies of the whole head for the part of it that turns."""
    return lambda x, positions: _turn(x, positions[:, None] * rope_frequencies(HEAD, BASE)[: DIM // 2])


def _lost_base() -> Rotate:
    return lambda x, positions: _turn(x, positions[:, None] * rope_frequencies(DIM))


def _yarn() -> Rotate:
    """YaRN's frequencies and factor, in a layer that has none."""
    omega, factor = yarn_frequencies(DIM, 8.0, 8192, BASE), yarn_attention_factor(8.0)
    return lambda x, positions: torch.cat((factor * _turn(x, positions[:, None] * omega)[:, :DIM], x[:, DIM:]), dim=-1)


def _scaled() -> Rotate:
    """An attention factor that nobody asked for."""
    return lambda x, positions: torch.cat((1.2 * _turn(x, positions[:, None] * OMEGA)[:, :DIM], x[:, DIM:]), dim=-1)


def _remembering() -> Rotate:
    """A text longer than those of the training comes out right, and leaves its frequencies to the shorter ones."""
    longest = SEEN

    def rotate(x: Tensor, positions: Tensor) -> Tensor:
        nonlocal longest
        length, before = int(positions.max()) + 1, longest
        longest = max(longest, length)
        left = length <= before and before > SEEN
        return _turn(x, positions[:, None] * (dynamic_ntk_frequencies(DIM, before, SEEN, 2.0, BASE) if left else OMEGA))

    return rotate


def _misfiled() -> Rotate:
    """A cache of angles by the number of tokens alone."""
    known: dict[int, Tensor] = {}
    return lambda x, positions: _turn(x, known.setdefault(len(positions), positions[:, None] * OMEGA))


def _unwritten() -> Rotate:
    """Memory that holds zeros where the frequencies should be."""
    return lambda x, positions: _turn(x, positions[:, None] * torch.zeros_like(OMEGA))


WRONG: dict[str, Callable[[], Rotate]] = {
    "the rounded angle": _rounded_angle,
    "the rounded frequencies": _rounded,
    "the merged positions": _merged,
    "the wrong partner": _wrong_partner,
    "the width of the head": _head_width,
    "the lost base": _lost_base,
    "YaRN in a plain layer": _yarn,
    "the factor too many": _scaled,
    "the long text that stays": _remembering,
    "the table under a wrong name": _misfiled,
    "the memory that nobody wrote": _unwritten,
}


# The exhibit of the museum that each comes from.
EXHIBIT_OF = dict(zip(WRONG, (1, 1, 2, 3, 4, 5, 6, 7, 9, 10, 12), strict=True))


# --- the grading ----------------------------------------------------------------------------------------------------


def _refuses(test: Callable[[Rotate], Any], make: Callable[[], Rotate]) -> tuple[bool, bool]:
    """Whether the test fails on a rotation made anew, and whether it tried it at all."""
    turn, tried = make(), False

    def rotate(x: Tensor, positions: Tensor) -> Tensor:  # all that a test is given: it cannot see which one it has
        nonlocal tried
        tried = True
        if x.shape != (len(positions), HEAD) or positions.dtype != torch.int64:
            raise WrongKind(
                f"rotate takes vectors of shape (tokens, {HEAD}) and as many int64 positions; your test gave it "
                f"{tuple(x.shape)} and {positions.dtype} {tuple(positions.shape)}"
            )
        return turn(x.clone(), positions.clone())

    try:
        answer = test(rotate)
    except AssertionError:
        return True, tried
    if answer is not None and answer is not ...:
        raise WrongKind(f"let the test assert, as pytest wants it, and return nothing; it returned {answer!r}")
    return False, tried


def _grade(test: Any) -> str:
    """Which mistakes slip through a test, and whether it refuses what is right."""
    if not callable(test):
        raise WrongKind("give a function of one argument, rotate, that asserts what holds for a right one")
    rotations = [*RIGHT.items(), *WRONG.items()] * 2
    random.Random().shuffle(rotations)  # not by any seed: a test that counts its calls learns nothing
    found = [(name, *_refuses(test, make)) for name, make in rotations]
    if not any(refused or tried for _, refused, tried in found):
        raise NotAnswered
    refused = {name for name, fails, _ in found if fails}
    passed = {name for name, fails, _ in found if not fails}
    for name in RIGHT:
        if name in refused:
            return f"your test refuses a right rotation, one {name}"
    slipped = [name for name in WRONG if name in passed]
    return f"{len(slipped)} of {len(WRONG)} slipped through: {', '.join(slipped)}" if slipped else ""


def _vectors(tokens: int) -> Tensor:
    return torch.randn(tokens, HEAD, generator=torch.Generator().manual_seed(tokens))


def _good(rotate: Rotate) -> None:
    for start in (0, 1, 65_537, 3):
        positions, x = start + torch.arange(4), _vectors(4)
        pairs = torch.complex(*x[:, :DIM].double().chunk(2, dim=-1)) * torch.exp(1j * positions[:, None] * OMEGA)
        wanted = torch.cat((pairs.real, pairs.imag, x[:, DIM:].double()), dim=-1)
        assert (rotate(x, positions) - wanted).norm(dim=-1).max() < 0.01 * HEAD**0.5


def _at_home(rotate: Rotate) -> None:
    """A golden value, near the start alone."""
    x, positions = _vectors(8), torch.arange(8)
    assert (rotate(x, positions) - _exact()(x, positions)).abs().max() < 0.01


def _relative(rotate: Rotate, shift: int = 65_535) -> None:
    """Only the difference counts, and lengths are kept: true of any frequencies."""
    q, k = _vectors(2)
    scores = [
        float((rotate(q[None], torch.tensor([start + 9])) * rotate(k[None], torch.tensor([start]))).sum())
        for start in (0, shift)
    ]
    assert abs(scores[0] - scores[1]) < 0.01 * HEAD
    assert abs(rotate(q[None], torch.tensor([shift])).norm() / q.norm() - 1) < 0.01


def _too_exact(rotate: Rotate) -> None:
    _good(rotate)
    x, positions = _vectors(8), 65_536 + torch.arange(8)
    assert torch.equal(rotate(x, positions), _exact()(x, positions))


def _by_name(rotate: Rotate) -> None:
    rotate(_vectors(1), torch.tensor([0]))
    assert not any(word in repr(rotate) + (rotate.__doc__ or "") for word in ("merged", "rounded", "wrong", "lost"))


def _refuse_all(rotate: Rotate) -> None:
    raise AssertionError("whatever it is")


class _Counting:
    """Takes the first three for the right ones."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, rotate: Rotate) -> None:
        self.calls += 1
        rotate(_vectors(1), torch.tensor([0]))
        assert (self.calls - 1) % (len(RIGHT) + len(WRONG)) < len(RIGHT)


EXERCISES: dict[str, Exercise | Lab] = {
    "test": Lab(
        grade=_grade,
        reference=_good,
        mistakes={
            "5 of 11 slipped through: the rounded angle, the rounded frequencies": _at_home,
            "5 of 11 slipped through: the rounded frequencies, the width of the head, the lost base": _relative,
            "your test refuses a right rotation, one done with complex numbers": _too_exact,
            # Cheating: whatever it is, by what it is called, and by counting.
            "your test refuses a right rotation, one computed in float64": _refuse_all,
            "11 of 11 slipped through": _by_name,
            "your test refuses a right rotation": _Counting(),
            "let the test assert, as pytest wants it": lambda rotate: rotate(_vectors(1), torch.tensor([0])) is None,
            "give a function of one argument, rotate": "all of them but the first three",
        },
    ),
}
