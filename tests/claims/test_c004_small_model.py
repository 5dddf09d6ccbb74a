"""Document 004, what the small model of chapter 03 can decide without training. Chapters 08 and 09.

Seed 0, trained on 64 bytes with plain RoPE; accuracy and loss (nats) on 9 pieces of 512 bytes.
"""

from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from claim_tools import byte_model, contains_zero, interval, over_seeds
from torch import Tensor

import rope_lessons as rl
from rope_lessons.models import byte_lm
from rope_lessons.stored import results

TRAIN = 64


def evaluate(length: int, scheme: rl.Scheme | None = None, **options: Any) -> tuple[float, float]:
    model, windows = byte_model()
    hits, losses = byte_lm.evaluate(model, windows[::3], length, (scheme,) * 2 if scheme else None, **options)
    return hits.mean().item(), losses.mean().item()


@cache
def score(length: int, window: int = 0, slope: float = 1.0) -> tuple[float, float]:
    """Accuracy and loss with this map of the distance at test."""
    scheme = rl.scheme("leaky-rerope", dim=64, window=window, slope=slope)
    return evaluate(length, scheme, attend=partial(rl.attention, backend="flash"))  # the faster one here


def test_rerope_gets_worse_with_length():
    """Window 16, five seeds: a higher loss at 512 than at 256, with log n in training as well."""
    rows = results("rerope")["rows"].where(method="rerope-16")
    for model, more in (("plain", (0.11, 0.09, 0.13)), ("log n", (0.03, 0.02, 0.03))):
        middle, long = (over_seeds(rows, "loss", model=model, length=length) for length in (256, 512))
        assert tuple(round(x, 2) for x in interval(long - middle)) == more


def test_windows_between_an_eighth_and_the_whole():
    plain = score(512)[0]
    accuracy = {window: score(512, window, 0.0)[0] for window in (8, 16, 24, 32, 48)}
    assert all(accuracy[window] > plain + 0.15 for window in (16, 24, 32, 48))
    assert accuracy[8] < plain + 0.1
    assert max(accuracy, key=accuracy.__getitem__) == 48


def test_far_corner_beyond_half_is_better():
    """Window 16, 512 bytes: k = 32 puts the corner at 31.5, k = 16 at 46.9. The second is better."""
    corner = {k: rl.rerope.leaky_distance(torch.tensor([511]), 16, 1 / k).item() for k in (16, 32)}
    assert corner[32] < TRAIN / 2 < corner[16]
    assert score(512, 16, 1 / 16)[0] > score(512, 16, 1 / 32)[0] + 0.01
    assert score(512, 16, 1 / 16)[1] < score(512, 16, 1 / 32)[1] - 0.03


def test_window_matters_and_not_smoothly():
    """ReRoPE at 512, three seeds: 48 is best; 32 and 64, well within a factor of 2, are behind, and 24 is not."""
    rows = results("rerope")["windows"].where(model="plain", length=512)
    accuracy = {window: over_seeds(rows, "accuracy", window=window) for window in (24, 32, 48, 64)}
    assert max(accuracy, key=lambda window: accuracy[window].mean()) == 48
    for better, worse, points in ((48, 32, 5), (48, 64, 6), (24, 32, 3)):
        mean, low, _ = interval(accuracy[better] - accuracy[worse])
        assert low > 0
        assert round(100 * mean) == points


def test_window_matters_more_in_longer_texts():
    gaps = [abs(score(length, 16, 0.0)[1] - score(length, 24, 0.0)[1]) for length in (128, 256, 512)]
    assert gaps[2] > 2 * gaps[1] > 2 * gaps[0]


def test_more_reach_helps_until_it_is_enough():
    covered = {k: 32 + 1 + k * (TRAIN - 1 - 32) for k in (8, 16)}
    assert covered == {8: 281, 16: 529}
    assert tuple(round(100 * x) for x in interval(by_k(32, 16) - by_k(32, 8))) == (6, 3, 10)
    assert 0 < (by_k(16, 16) - by_k(16, 8)).mean() < 0.01


def test_k_beyond_coverage_still_matters():
    """Three seeds: beyond the reach that is needed a larger k costs something with window 16, not surely."""
    covered = {(window, k): window + 1 + k * (TRAIN - 1 - window) for window in (16, 32) for k in (8, 16)}
    assert covered[16, 8] == 393 < 512 < min(covered[16, 16], covered[32, 16])
    for window, points in ((16, -2.3), (32, -0.5)):
        step = by_k(window, 64) - by_k(window, 16)
        assert 100 * step.mean() == pytest.approx(points, abs=0.051)
        assert contains_zero(step)
    assert (by_k(16, 64) < by_k(16, 16)).all()
    assert 100 * (by_k(16, 16) - by_k(16, 8)).mean() == pytest.approx(0.8, abs=0.05)


def by_k(window: int, k: int) -> np.ndarray:
    return over_seeds(results("rerope")["factors"], "accuracy", window=window, k=k)


def mismatch(length: int, window: int, slope: float) -> float:
    """Mean over all pairs of how far the distance shown at test is from the one in training."""
    distance = torch.arange(length)
    pairs = length - distance
    bent = rl.rerope.leaky_distance(distance, window, slope)
    return (((bent - distance).abs() * pairs).sum() / pairs.sum()).item()


def test_less_mismatch_is_not_better():
    assert mismatch(512, 0, 1.0) == 0
    assert mismatch(512, 16, 1 / 16) > 100
    assert score(512)[1] > score(512, 16, 1 / 16)[1] + 0.8


def test_far_mismatch_hurts_less_than_near():
    """Length 64: the same mean mismatch, all beyond 32 (ReRoPE) or spread from 0 on (PI with factor 8/7)."""
    assert mismatch(64, 32, 0.0) == pytest.approx(mismatch(64, 0, 7 / 8), rel=2e-3)
    plain, far, near = score(64)[1], score(64, 32, 0.0)[1], score(64, 0, 7 / 8)[1]
    assert far - plain < 0.01
    assert near - plain > 0.08


@cache
def attention_weights() -> tuple[Tensor, ...]:
    """Weights of both layers at length 64, each (pieces, heads, query, key)."""
    model, windows = byte_model()
    found = []

    def attend(q: Tensor, k: Tensor, v: Tensor, scheme: rl.Scheme) -> Tensor:
        assert scheme.frequencies is not None
        q, k = (rl.apply_rotary(x, torch.arange(64), scheme.frequencies(), layout=scheme.layout) for x in (q, k))
        unseen = torch.ones(64, 64).triu(1).bool()
        found.append((q @ k.mT / 8).masked_fill(unseen, -torch.inf).softmax(-1))
        return found[-1] @ v

    byte_lm.evaluate(model, windows[:12], 64, attend=attend)
    return tuple(found)


DISTANCE = torch.arange(64)[:, None] - torch.arange(64)


def test_far_weights_are_small():
    """Of the last 16 queries, 43 % of the keys are at distance 32 or more; they get under 5 % of the weight."""
    far = DISTANCE[48:] >= 32
    keys = (far.sum(-1) / (DISTANCE[48:] >= 0).sum(-1)).mean().item()
    assert keys == pytest.approx(0.43, abs=0.005)
    for weights in attention_weights():
        assert ((weights[:, :, 48:] * far).sum(-1).mean((0, 2)) < 0.05).all()


def test_position_explains_half_of_the_weights():
    """Share of the variance of log p that the distance explains, in each of the four heads."""
    seen = DISTANCE >= 0
    distance = DISTANCE[seen]
    shares = []
    for weights in attention_weights():
        for head in range(2):
            logs = weights[:, head][:, seen].log()
            mean = torch.zeros(64).scatter_add_(0, distance, logs.mean(0)) / torch.bincount(distance)
            shares.append(1 - ((logs - mean[distance]).square().mean() / logs.var()).item())
    assert len(shares) == 4
    assert all(0.35 < share < 0.65 for share in shares)


def test_smoothing_changes_next_to_nothing():
    """w = 32, k = 16, σ = 0.05 w, 256 bytes: three distances change, and the loss by less than 0.005 nats."""
    window, slope, sigma = 32, 1 / 16, 1.6
    sharp, smooth = (
        f(torch.arange(256), window, slope, *more)
        for f, more in ((rl.rerope.leaky_distance, ()), (rl.rerope.smooth_leaky_distance, (sigma,)))
    )
    changed = (sharp != smooth).nonzero().flatten().tolist()
    assert changed == [31, 32, 33]

    def attend(q: Tensor, k: Tensor, v: Tensor, scheme: rl.Scheme) -> Tensor:
        """The map of the scheme, but for the distances that smoothing changes: those turn query by query."""
        assert scheme.frequencies is not None
        omega, length = scheme.frequencies(), q.shape[2]
        index = torch.arange(length)
        slow = slope * index.double()
        far_q = rl.apply_rotary(q, slow + window * (1 - slope), omega, layout=scheme.layout)
        far_k = rl.apply_rotary(k, slow, omega, layout=scheme.layout)
        near_q, near_k = (rl.apply_rotary(x, index, omega, layout=scheme.layout) for x in (q, k))
        distance = index[:, None] - index
        scores = torch.where(distance < window, near_q @ near_k.mT, far_q @ far_k.mT)
        for m in changed:
            turned = rl.apply_rotary(q[:, :, m:], smooth[m].expand(length - m), omega, layout=scheme.layout)
            scores[:, :, index[m:], index[: length - m]] = (turned * k[:, :, : length - m]).sum(-1)
        return (scores / 8).masked_fill(distance < 0, -torch.inf).softmax(-1) @ v

    scheme = rl.scheme("leaky-rerope", dim=64, window=window, slope=slope)
    loss = evaluate(256, scheme, attend=attend)[1]
    assert 0 < abs(loss - score(256, window, slope)[1]) < 0.005
