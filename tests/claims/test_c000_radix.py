"""Document 000 (article 11 and its extension): the radix view, the NTK forms, reading a position. Chapter 03.

Two claims of document 001 about interpolation and NTK are here too, because the same small model tries them.
"""

from __future__ import annotations

import math

import pytest
import torch
from claim_tools import interval, over_seeds

import rope_lessons as rl
from rope_lessons.stored import results


def speeds(dim: int, factor: float, variant: str) -> torch.Tensor:
    return rl.ntk_frequencies(dim, factor, variant=variant) / rl.rope_frequencies(dim)


def mean_accuracy(method: str, length: int) -> float:
    stored = results("radix")
    found = stored["rows"].where(method=method, length=length)
    assert found["seed"] == stored["seeds"]
    return found.mean("accuracy")


def test_rounding_is_not_the_only_difference():
    """Base 10: the tens digit repeats after 100 numbers; the hand with the same quotient after 62.8."""
    n = torch.arange(1000)
    tens = n // 10 % 10
    assert torch.equal(tens[100:], tens[:-100])
    angle = n.double() / 10  # the hand that shows n/10, before any rounding
    after_period = ((angle + 10) - angle) % (2 * math.pi)
    assert after_period.min() > 3  # 100 numbers later the hand stands somewhere else
    assert float(((angle + 2 * math.pi).sin() - angle.sin()).abs().max()) < 1e-12


def test_radix_of_real_models_is_near_one():
    """Not much larger than 1: 1.155 for 128 channels, so the hands of neighbouring pairs say nearly the same."""
    radix = 10_000 ** (2 / 128)
    assert radix == pytest.approx(1.1548, abs=1e-4)
    n = torch.arange(4096).double()
    slow, fast = (n * radix**-50).cos(), (n * radix**-51).cos()
    assert float(torch.corrcoef(torch.stack((slow, fast)))[0, 1]) > 0.5


def test_share_per_digit():
    for dim, factor in ((128, 8), (64, 4), (4, 8)):
        share = factor ** (2 / dim)
        assert share ** (dim // 2) == pytest.approx(factor)


def test_neighbours_keep_their_distance_in_the_first_pair_only():
    """NTK old keeps the step between neighbours exactly in pair 0, and in no other."""
    speed = speeds(128, 8, "old")
    assert speed[0] == 1
    assert (speed[1:] < 1).all()
    assert speed[-1].item() == pytest.approx(0.1291, abs=1e-4)


def test_pressure_is_not_spread_evenly_over_angles():
    """The share of each digit is equal, λ. The largest angle compared with training is not: from 8 down to 1."""
    stretch = 8 * speeds(128, 8, "fixed")
    assert stretch[0].item() == pytest.approx(7.74, abs=5e-3)
    assert stretch[-1].item() == pytest.approx(1)


def test_old_is_not_a_uniform_division():
    """The extension writes the old form as ω/λ for every pair. It is (βλ)^-t: the article's own equation."""
    share = 8 ** (2 / 128)
    speed = speeds(128, 8, "old")
    assert not torch.allclose(speed, torch.full_like(speed, 1 / share), atol=0.01)
    t = torch.arange(64, dtype=torch.float64)
    assert torch.allclose(speed, share**-t)


def test_fixed_to_old_is_one_constant_factor():
    """The extension's ratio λ^-t compares fixed with its own wrong form. The ratio to the article's form is 1/λ."""
    ratio = speeds(128, 8, "fixed") / speeds(128, 8, "old")
    assert torch.allclose(ratio, torch.full_like(ratio, 8 ** (-2 / 128)))


def test_two_pi_over_the_radix_is_not_one_over_lambda():
    """The extension sets (2π/(βλ)) n/(βλ)^t equal to n/(λ (βλ)^t): that needs β = 2π."""
    radix, share = 10_000 ** (2 / 128), 8 ** (2 / 128)
    assert 2 * math.pi / (radix * share) == pytest.approx(5.267, abs=1e-3)
    assert 1 / share == pytest.approx(0.968, abs=1e-3)


def test_arctan_reads_half_the_dial():
    """Reading the slowest hand by arctan(sin/cos), as written, fails from a quarter turn on; atan2 does not."""
    omega = 0.01
    angle = torch.tensor([50.0, 200.0]).double() * omega
    read = torch.atan(angle.sin() / angle.cos()) / omega
    assert read[0].item() == pytest.approx(50)
    assert read[1].item() == pytest.approx(200 - 100 * math.pi)
    assert torch.allclose(torch.atan2(angle.sin(), angle.cos()) / omega, torch.tensor([50.0, 200.0]).double())


def test_noise_below_the_bound_leaves_the_fastest_error_alone():
    """Inside, only the fastest hand's error counts. At the end of the range no constant times the noise bounds it."""
    frequencies = rl.rope_frequencies(8)
    noise = torch.tensor([0.01, -0.2, 0.2, -0.2], dtype=torch.float64)
    angles = 777 * frequencies + noise
    read = rl.radix.decode_position(torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2), frequencies)
    assert read.item() - 777 == pytest.approx(0.01, abs=1e-9)
    assert float((noise.abs() / frequencies).sum()) > 200
    for size in (1e-3, 1e-6):  # the slowest hand passes the half turn, however small its error
        position = (math.pi - size / 2) / frequencies[-1]
        angles = position * frequencies
        angles[-1] += size
        read = rl.radix.decode_position(torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2), frequencies)
        assert abs(read.item() - position.item()) > 6000


def test_changed_frequencies_keep_the_score_relative():
    """The extension says that another radix breaks relativity. Any fixed frequencies keep it to rounding."""
    q, k = torch.randn(2, 1, 16, dtype=torch.float64)
    frequencies = rl.ntk_frequencies(16, 8)
    scores = []
    for m, n in ((100, 40), (1100, 1040), (60, 0)):
        turned_q = rl.apply_rotary(q, torch.tensor([m]), frequencies, layout="half")
        scores.append((turned_q * rl.apply_rotary(k, torch.tensor([n]), frequencies, layout="half")).sum().item())
    assert max(scores) - min(scores) < 1e-10


def test_slowest_period_does_not_depend_on_the_training_length():
    """The extension's largest length N β^(d/2) is said to follow from one turn of the slowest hand. It does not."""
    slowest = 2 * math.pi / rl.rope_frequencies(128)[-1].item()
    assert slowest == pytest.approx(2 * math.pi * 10_000 ** (126 / 128))
    assert slowest == pytest.approx(54_410, abs=1)
    assert 700 * slowest < 4096 * 10_000


def test_ntk_speeds_of_the_survey_note():
    """λ^(2t/(d-2)) with λ = L_train/L_test: 1 at the first pair, λ at the last, and NTK-aware in between."""
    t = torch.arange(64, dtype=torch.float64)
    note = (1 / 8) ** (2 * t / 126)
    assert torch.allclose(note, speeds(128, 8, "aware"))
    assert note[0] == 1
    assert note[-1].item() == pytest.approx(1 / 8)


def test_interpolation_disturbs_the_neighbourhood():
    """PI without training costs accuracy even within the training length, where nothing is out of range."""
    assert mean_accuracy("pi", 64) < mean_accuracy("rope", 64) - 0.2
    assert mean_accuracy("ntk-aware", 64) > mean_accuracy("rope", 64) - 0.03


def test_ntk_extrapolates_without_training():
    """On the small model: NTK above plain RoPE at eight times the training length, and below the training length."""
    rows = results("radix")["rows"]
    plain = over_seeds(rows, "accuracy", method="rope", length=512)
    for method in ("ntk-old", "ntk-fixed", "ntk-aware"):
        gain, low, _ = interval(over_seeds(rows, "accuracy", method=method, length=512) - plain)
        assert low > 0
        assert 0.06 < gain < 0.075
        assert mean_accuracy(method, 512) < mean_accuracy("rope", 64)


def test_old_form_is_a_full_change_of_base():
    """RoPE with the base B κ; and the fixed form is the old one, all frequencies divided by λ."""
    old, fixed = (rl.ntk_frequencies(128, 8, variant=variant) for variant in ("old", "fixed"))
    torch.testing.assert_close(old, rl.rope_frequencies(128, base=8 * 10_000))
    torch.testing.assert_close(fixed, old / 8 ** (2 / 128))
