"""Exercises of chapter 01."""

from __future__ import annotations

import math

import torch

from rope_lessons.exercises import Exercise, Lab, WrongKind, plain
from rope_lessons.sinusoidal import rope_frequencies, sinusoidal_kernel

EULER_GAMMA = 0.5772156649015329


def _encoding(positions, dim, u=None, cosine_first=False, halves=False, dtype=torch.float64):
    u = torch.arange(0, dim, 2) / dim if u is None else u
    angles = positions.to(dtype).unsqueeze(-1) * 10_000.0 ** -u.to(dtype)
    parts = (angles.cos(), angles.sin()) if cosine_first else (angles.sin(), angles.cos())
    return torch.cat(parts, dim=-1) if halves else torch.stack(parts, dim=-1).flatten(-2)


def _shift(k, frequencies, sign=1):
    blocks = []
    for angle in (sign * k * frequencies).tolist():
        blocks.append(torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]).double())
    return torch.block_diag(*blocks)


def _shift_of_halves(k, frequencies):
    c, s = torch.diag((k * frequencies).cos()), torch.diag((k * frequencies).sin())
    return torch.cat((torch.cat((c, s), dim=1), torch.cat((-s, c), dim=1)))


def _split(block):
    (p, q), (r, s) = torch.as_tensor(block).tolist()
    return (p + s) / 2, (q - r) / 2, (s - p) / 2, (q + r) / 2


def _swap(order, signs=(1, 1, 1, 1)):
    return lambda block: tuple(sign * _split(block)[k] for k, sign in zip(order, signs, strict=True))


def _first_return(frequencies, tolerance, limit, start=1, none=-1, kernel=sinusoidal_kernel, past=False):
    distance = torch.arange(start, limit + 1)
    similarity = kernel(distance, frequencies)
    hits = distance[similarity > (tolerance if past else 1 - tolerance)]
    return int(hits[0]) if len(hits) else none


def _return_with(**changes):
    return lambda frequencies, tolerance, limit: _first_return(frequencies, tolerance, limit, **changes)


def _power_frequencies(dim, exponent):
    u = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    return (1 - u) ** exponent


def _channels(G, check_sign=True):
    places = torch.arange(len(G))
    sizes = torch.linalg.eigvalsh(torch.tensor(G, dtype=torch.float64)[(places[:, None] - places).abs()])
    return -1 if check_sign and sizes.min() < -1e-9 else int((sizes > 1e-9).sum())


def _float64(answer):
    answer = plain(answer)
    if isinstance(answer, torch.Tensor) and answer.dtype != torch.float64:
        raise WrongKind(f"asked is a float64 tensor, you returned {str(answer.dtype).removeprefix('torch.')}")
    return answer


LAB_FAR, LAB_LAST = 200, 20_000  # distances: from where on only noise is left, and how far it is looked at


def _lab(answer):
    """What the kernel of 64 frequencies does."""
    try:
        frequencies = torch.as_tensor(answer, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise WrongKind("give 64 frequencies, as a tensor or a list of numbers") from None
    if frequencies.shape != (64,) or not bool(frequencies.isfinite().all()):
        raise WrongKind("give 64 frequencies, as a tensor or a list of numbers")
    kernel = sinusoidal_kernel(torch.arange(LAB_LAST + 1), frequencies)
    below = (kernel < 0.5).nonzero().flatten()
    first = int(below[0]) if len(below) else LAB_LAST + 1
    if not 18 <= first <= 22:
        where = f"at distance {first}" if len(below) else "nowhere"
        return f"the kernel falls below one half {where}; from 18 to 22 is wanted"
    if bool((kernel[first:] > 0.5).any()):
        return f"it comes back: above one half again at distance {first + int((kernel[first:] > 0.5).nonzero()[0])}"
    if kernel[5] < 0.75:
        return f"5 apart is not alike enough: K(5) is {float(kernel[5]):.2f}; at least 0.75 is wanted"
    if kernel[1] - kernel[2] < 0.02:
        return f"the distances 1 and 2 look too much alike: K(1) - K(2) is {float(kernel[1] - kernel[2]):.3f}"
    noise = float(kernel[LAB_FAR:].abs().max())
    return "" if noise <= 0.3 else f"too much is left from {LAB_FAR} on: up to {noise:.2f} in size; 0.3 is allowed"


EXERCISES: dict[str, Exercise | Lab] = {
    "lab": Lab(
        grade=_lab,
        reference=0.5 * rope_frequencies(128, 317),
        mistakes={
            "5 apart is not alike enough: K(5) is 0.66": rope_frequencies(128, 1270),  # the base alone
            "the kernel falls below one half at distance 46": rope_frequencies(128),
            "the kernel falls below one half at distance 2;": 1 - torch.arange(64) / 64,
            # Cheating: one frequency for all falls to one half where it should.
            "it comes back": [0.05] * 64,
            "the distances 1 and 2 look too much alike": (
                torch.special.ndtri((torch.arange(64) + 0.5) / 64).abs().double() * 0.06
            ),
            "too much is left from 200 on": 0.5 * rope_frequencies(64, 317).repeat(2),  # no more than 32 pairs
            "give 64 frequencies": rope_frequencies(64),
        },
    ),
    "inner_product": Exercise(
        reference=math.cos(60) + math.cos(0.6),
        tolerance=1e-3,
        mistakes={
            "this is the kernel K, already divided by d/2 = 2": (math.cos(60) + math.cos(0.6)) / 2,
            "you used m + n = 66; the two cosines take the difference m − n": math.cos(66) + math.cos(0.66),
            "this is the fast pair alone; the slow pair adds cos(0.6)": math.cos(60),
            "the slow pair has the frequency B^(−2/4) = 1/100, not 1/10000": math.cos(60) + math.cos(0.006),
            "the angles are in radians, not in degrees": math.cos(math.radians(60)) + math.cos(math.radians(0.6)),
        },
    ),
    "encoding": Exercise(
        reference=_encoding,
        cases=((torch.arange(5), 4), (torch.tensor([[0, 7], [100, 4095]]), 8), (torch.tensor([100_003]), 8)),
        mistakes={
            "sine and cosine are swapped: the even channel 2t is the sine": lambda p, d: _encoding(
                p, d, cosine_first=True
            ),
            "the exponent is 2t/d, not t/d: with d = 4 the second pair has the frequency 1/100": lambda p, d: _encoding(
                p, d, u=torch.arange(d // 2) / d
            ),
            "every position is one too large: they count from 0, and position 0 is sin 0 = 0, cos 0 = 1": (
                lambda p, d: _encoding(p + 1, d)
            ),
            "your last pair has the frequency 1/10000: the exponent is 2t/d, not t/(d/2 − 1)": lambda p, d: _encoding(
                p, d, u=torch.arange(d // 2).double() / (d // 2 - 1)
            ),
            "right up to rounding: position 100,003 shows that the angles are in float32; use double": lambda p, d: (
                _encoding(p, d, dtype=torch.float32)
            ),
            "all sines come first here; the book's order is sine, cosine, sine, cosine, …": lambda p, d: _encoding(
                p, d, halves=True
            ),
        },
    ),
    "shift_matrix": Exercise(
        reference=_shift,
        cases=(
            (1, rope_frequencies(4)),
            (5, rope_frequencies(6)),
            (-3, rope_frequencies(4)),
            (2, torch.tensor([0.7, 0.3, 0.2], dtype=torch.float64)),
        ),
        normalise=_float64,
        mistakes={
            "k may be negative, and then the step goes back: k keeps its sign": lambda k, w: _shift(abs(k), w),
            "this goes k positions back: transpose it (sin(a + b) = sin a cos b + cos a sin b)": lambda k, w: _shift(
                k, w, sign=-1
            ),
            "this moves one position whatever k is: the angle is k times the frequency": lambda k, w: _shift(1, w),
            "this is for all sines first; the book's order is sine, cosine, sine, cosine, …": lambda k, w: (
                _shift_of_halves(k, w)
            ),
            "right for the base 10,000 only: use the frequencies that are given": lambda k, w: _shift(
                k, rope_frequencies(2 * len(w))
            ),
        },
    ),
    "base_for_half": Exercise(
        reference=lambda half: (half * math.exp(EULER_GAMMA)) ** 2,
        cases=((8.0,), (56.0,), (500.0,)),
        tolerance=1e-3,
        mistakes={
            "1/0.56 is e^γ, rounded: compute math.exp(0.5772156649)": lambda half: (half / 0.56) ** 2,
            "nearly: you left out Euler's γ": lambda half: half**2,
            "nearly: γ stands with ln Δ on one side, so it makes the base larger": lambda half: (
                (half * math.exp(-EULER_GAMMA)) ** 2
            ),
            "nearly: ln B is twice the sum of ln Δ and γ, so γ is doubled, too": lambda half: (
                half**2 * math.exp(EULER_GAMMA)
            ),
            "with this base the law is 0 there, not one half": lambda half: half * math.exp(EULER_GAMMA),
            "with twice the distance for a base the law is not one half: it is linear in ln Δ, not in Δ": lambda half: (
                2 * half
            ),
        },
    ),
    "split_block": Exercise(
        reference=_split,
        cases=(
            (torch.tensor([[1.0, 2.0], [3.0, 5.0]]),),
            (torch.tensor([[2.0, -1.0], [1.0, 2.0]]),),
            (torch.tensor([[1.0, 0.5], [0.5, -1.0]]),),
            (torch.tensor([[0.5, 2.0], [-1.0, 1.75]]),),
        ),
        mistakes={
            "the term with sin((m − n)ω) has the wrong sign: sin mω cos nω carries +1/2 of it": _swap(
                (0, 1, 2, 3), (1, -1, 1, 1)
            ),
            "the term with cos((m + n)ω) has the wrong sign: sin mω sin nω carries −1/2 of it": _swap(
                (0, 1, 2, 3), (1, 1, -1, 1)
            ),
            "m − n and m + n are swapped: the difference comes first": _swap((2, 3, 0, 1)),
            "twice too large: every product of two sines or cosines carries 1/2 of each term": _swap(
                (0, 1, 2, 3), (2, 2, 2, 2)
            ),
        },
    ),
    "first_return": Exercise(
        reference=_first_return,
        cases=(
            (rope_frequencies(4), 0.05, 1000),
            (rope_frequencies(4), 0.002, 1000),
            (rope_frequencies(6, 100.0), 0.05, 20_000),
            (rope_frequencies(2), 1.5, 10),
            (rope_frequencies(4), 0.002, 621),  # the first return is at 622: none, and just one
            (rope_frequencies(4), 0.002, 622),
        ),
        mistakes={
            "you found distance 0, which every kernel starts from: begin at 1": _return_with(start=0),
            "K near −1 is as far from 1 as it gets: don't take the absolute value": _return_with(
                kernel=lambda distance, w: sinusoidal_kernel(distance, w).abs()
            ),
            "compare K with 1 − tolerance, not with tolerance": _return_with(past=True),
            "divide the sum of the cosines by d/2, so that K(0) = 1": _return_with(
                kernel=lambda distance, w: sinusoidal_kernel(distance, w) * len(w)
            ),
            "if there is no such distance up to the limit, return −1, not 0": _return_with(none=0),
            "limit itself counts: torch.arange(1, limit + 1)": lambda w, e, limit: _first_return(w, e, limit - 1),
            "you look past the limit": lambda w, e, limit: _first_return(w, e, 100_000),
        },
    ),
    "power_frequencies": Exercise(
        reference=lambda dim, alpha: _power_frequencies(dim, 1 / alpha),
        cases=((8, 0.5), (16, 0.25), (64, 0.125), (16, 0.4)),
        tolerance=1e-12,
        normalise=_float64,
        mistakes={
            "the exponent is upside down: frequencies v**a give a decay with power 1/a": lambda dim, alpha: (
                _power_frequencies(dim, alpha)
            ),
            "right power, but the slowest pair comes first: pair 0 should have frequency 1": lambda dim, alpha: (
                _power_frequencies(dim, 1 / alpha).flip(0)
            ),
        },
    ),
    "channels": Exercise(
        reference=_channels,
        cases=(
            ([math.cos(0.7 * k) for k in range(8)],),
            ([2.0 + (-1) ** k for k in range(8)],),
            ([math.cos(k) + math.cos(0.1 * k) + 0.5 for k in range(8)],),
            ([1.0, 0.9, 0.0],),
            ([1 - k / 6 for k in range(6)],),
            ([1.0],),
        ),
        mistakes={
            "inner products of 1, 0.9, 0 at the distances 0, 1, 2 are impossible: return −1 there": lambda G: _channels(
                G, check_sign=False
            ),
            "one for each eigenvalue: those that are zero need no channel": lambda G: (
                len(G) if _channels(G) > 0 else -1
            ),
            "this is the number of positions: fewer channels may do, and with some wishes none do": len,
            "this is the number of pairs; count channels": lambda G: (
                (_channels(G) + 1) // 2 if _channels(G) > 0 else -1
            ),
        },
    ),
}
