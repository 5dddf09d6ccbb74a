"""Document 000 (article 11 and its extension): what is not about one form of the frequencies.

Digits and hands, reading positions, bounds on the error, rounding, cost. Chapters 03 to 07.
"""

import math

import numpy as np
import pytest
import torch
from claim_tools import (
    B,
    encoding,
    frequencies,
    is_toeplitz,
    mean_over_seeds,
    rotation,
    score_bytes,
)
from torch.utils._python_dispatch import TorchDispatchMode

import rope_lessons as rl
from rope_lessons.stored import results

DIM, FACTOR = 128, 8


def mixed(factor: float = FACTOR, dim: int = DIM) -> np.ndarray:
    """NTK-RoPE-mixed with b = 0.625, written apart from the package."""
    place = np.arange(1, dim // 2 + 1) / (dim // 2)
    return frequencies(dim) * factor ** -(place**0.625)


# --- digits and hands ---------------------------------------------------------------------------------------------


def test_digits_and_angles_share_their_quotient():
    """n / β^t: rounded down and taken mod β it is Python's own digit; as an angle it is that of the encoding."""
    n = np.arange(4096)
    written = np.array([[int(c) for c in reversed(f"{i:04o}")] for i in n])
    np.testing.assert_array_equal(np.stack([n // 8**t % 8 for t in range(4)], axis=-1), written)
    radix = B ** (2 / DIM)
    angles = n[:, None] / radix ** np.arange(DIM // 2)
    code = encoding(n, DIM)
    np.testing.assert_allclose(np.sin(angles), code[:, 0::2], atol=1e-8)
    np.testing.assert_allclose(np.cos(angles), code[:, 1::2], atol=1e-8)


def test_sine_and_cosine_are_one_digit():
    """From both the angle is known; from the cosine alone it is not. So d channels are d/2 digits."""
    angle = np.linspace(-3, 3, 101)
    np.testing.assert_allclose(np.arctan2(np.sin(angle), np.cos(angle)), angle)
    assert np.abs(np.arccos(np.cos(angle)) - angle).max() > 5
    pairs = encoding(np.arange(100), 8).reshape(100, 4, 2)
    np.testing.assert_allclose((pairs**2).sum(-1), 1)


def test_direct_extrapolation_changes_the_high_digit_only():
    """Numbers to 999 in four digits, then to 7999: units to hundreds show what they showed, the thousands are new."""
    short, long = np.arange(1000), np.arange(8000)
    for t in range(4):
        seen, met = np.unique(short // 10**t % 10), np.unique(long // 10**t % 10)
        assert np.array_equal(seen, met) is (t < 3)


def test_interpolation_crowds_the_low_digit():
    """On the dials neighbours stand about an eighth as far apart; with whole digits, eight of them share one."""
    step = np.linalg.norm(encoding(np.arange(100) / 8 + 1 / 8, DIM) - encoding(np.arange(100) / 8, DIM), axis=1)
    plain = np.linalg.norm(encoding(np.arange(100) + 1, DIM) - encoding(np.arange(100), DIM), axis=1)
    np.testing.assert_allclose(plain / step, 7.9, atol=0.1)
    units = np.unique(np.floor(np.arange(80) / 8 % 10))
    assert len(units) == 10


def test_old_form_is_a_larger_base():
    t = np.arange(DIM // 2)
    share = FACTOR ** (2 / DIM)
    np.testing.assert_allclose((B ** (2 / DIM) * share) ** -t, frequencies(DIM, FACTOR * B))
    np.testing.assert_allclose(rl.ntk_frequencies(DIM, FACTOR, variant="old").numpy(), frequencies(DIM, FACTOR * B))


# --- phases, and reading a position -------------------------------------------------------------------------------


def phases(n: np.ndarray, dim: int) -> np.ndarray:
    return n[:, None] * frequencies(dim) % (2 * np.pi)


def test_period_is_two_pi_times_the_radix_power():
    radix = B ** (2 / DIM)
    np.testing.assert_allclose(2 * np.pi / frequencies(DIM), 2 * np.pi * radix ** np.arange(DIM // 2))


def test_phases_times_their_periods_do_not_add_up():
    """Σ φ_t T_t / 2π is n counted once per pair, less the whole turns. At d = 4 position 5 gives 10."""
    n = np.arange(1, 600)
    total = (phases(n, 4) / frequencies(4)).sum(1)
    assert total[4] == pytest.approx(10)
    assert (np.abs(total - n) > 5e-3).all()
    first = phases(n, 4)[:, 0] + np.floor(n / (2 * np.pi)) * 2 * np.pi  # one pair and its turns are enough
    np.testing.assert_allclose(first, n)


def test_phases_of_slow_pairs_are_not_independent():
    correlation = np.corrcoef(phases(np.arange(4096), DIM).T)
    assert correlation[62, 63] == pytest.approx(1)
    assert correlation[40, 41] > 0.4
    assert abs(correlation[0, 1]) < 0.02
    wide = np.corrcoef(phases(np.arange(100_000), 4).T)  # radix 100, and many turns of both
    assert abs(wide[0, 1]) < 0.02


def information(codes: np.ndarray) -> float:
    """I(code; n) in nats for n uniform: the entropy of the code, since the code is a function of n."""
    _, counts = np.unique(codes.round(9), axis=0, return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log(share)).sum())


def test_information_is_complete_exactly_for_distinct_codes():
    n = np.arange(64)
    assert information(encoding(n, 4)) == pytest.approx(math.log(64))
    circle = 2 * np.pi * n / 16  # a hand with period 16 repeats
    repeated = np.stack((np.sin(circle), np.cos(circle)), -1)
    assert len(np.unique(repeated.round(9), axis=0)) == 16
    assert information(repeated) == pytest.approx(math.log(16))


def test_entropies_of_pairs_do_not_add_up():
    """Every pair alone tells the 64 positions apart, so the sum counts the same 4.16 nats once per pair."""
    angles = np.arange(64)[:, None] * mixed(dim=8)
    parts = [information(np.stack((np.cos(a), np.sin(a)), -1)) for a in angles.T]
    whole = information(np.concatenate((np.cos(angles), np.sin(angles)), -1))
    assert whole == pytest.approx(math.log(64))
    assert sum(parts) == pytest.approx(4 * math.log(64))


def test_score_is_a_sum_over_pairs():
    q, k = np.random.default_rng(0).standard_normal((2, 16))
    for omega in (frequencies(16), mixed(dim=16)):
        n, m = 9, 4  # positions of query and key, in the document's letters
        parts = []
        for t, w in enumerate(omega):
            c, s = np.cos((m - n) * w), np.sin((m - n) * w)
            pair = slice(2 * t, 2 * t + 2)
            parts.append(q[pair] @ np.array([[c, -s], [s, c]]) @ k[pair])
        tensors = (torch.from_numpy(x)[None] for x in (q, k))
        turned = [
            rl.apply_rotary(x, torch.tensor([p]), torch.from_numpy(omega), layout="interleaved")
            for x, p in zip(tensors, (n, m), strict=True)
        ]
        assert (turned[0] * turned[1]).sum().item() == pytest.approx(sum(parts))


def test_position_is_read_back_within_half_a_turn():
    omega = rl.rope_frequencies(DIM)
    half_turn = math.pi / omega[-1].item()
    assert half_turn == pytest.approx(27_205, abs=1)
    for positions, right in ((torch.arange(27_205), True), (torch.arange(27_206, 40_000), False)):
        read = rl.radix.decode_position(rl.sinusoidal_encoding(positions, DIM, dtype=torch.float64), omega)
        error = (read - positions).abs()
        assert (error.max() < 1e-6) if right else (error.min() > 6)


def test_score_is_relative_and_not_free_of_scale():
    q, k = np.random.default_rng(0).standard_normal((2, 8))
    scores = np.array([[(rotation(n, 8) @ q) @ (rotation(m, 8) @ k) for m in range(12)] for n in range(12)])
    assert is_toeplitz(scores)
    assert abs(scores[8, 4] - scores[4, 2]) > 0.1


# --- bounds on the error ------------------------------------------------------------------------------------------


def test_bound_on_the_error_says_nothing():
    """The frequency cancels: one sum for every method. Read with the trained frequencies it is 0 for PI: false too."""
    plain = frequencies(64)
    sums = [np.maximum(0, np.log(w * 512 / (w * 64))).sum() for w in (plain, plain / 8, mixed(8, 64))]
    np.testing.assert_allclose(sums, 32 * math.log(8))
    against_training = np.maximum(0, np.log(plain / 8 * 512 / (plain * 64))).sum()
    assert against_training == pytest.approx(0)
    rows = results("radix")["rows"]
    trained = mean_over_seeds(rows, "loss", method="rope", length=64)
    error = mean_over_seeds(rows, "loss", method="pi", length=512) - trained
    assert error > 1


def test_a_model_beyond_its_length_can_be_better():
    """The small model with windows of 64 gets more bytes right in texts of 512 than of 64."""
    long, short = score_bytes(512, rl.scheme("window", dim=64, visible_window=64)), score_bytes(64)
    assert long[0] > short[0] + 0.003


def test_error_below_the_lower_bound():
    """½ ln(L/N) = 1.04 nats for 8 times the length. The small model with windows of 64 has none to show."""
    error = score_bytes(512, rl.scheme("window", dim=64, visible_window=64))[1] - score_bytes(64)[1]
    assert 0.5 * math.log(8) == pytest.approx(1.04, abs=5e-4)
    assert error < 0


def test_accuracy_falls_long_before_the_slowest_turn():
    """d = 64, trained on 64: the slowest pair goes round after 47 117 positions. At 512 the accuracy has collapsed."""
    slowest = 2 * math.pi / frequencies(64)[-1]
    assert slowest == pytest.approx(47_117, abs=1)
    rows = results("radix")["rows"].where(method="rope", length=512)
    assert len(rows) == 5
    for row in rows:
        assert row["accuracy_by_eighth"][-1] < 0.5 * row["accuracy_by_eighth"][0]


# --- norms, rounding, cost ----------------------------------------------------------------------------------------


def test_size_of_the_derivative():
    """Pairs stand side by side, so the norm is the root of Σ ω² for every n. Added as written it exceeds the bound."""
    omega = frequencies(DIM)
    bound = np.sqrt((omega**2).sum())
    for n in (0.0, 5.0, 1000.0):
        each = omega[:, None] * np.stack((-np.sin(n * omega), np.cos(n * omega)), -1)
        assert np.linalg.norm(each) == pytest.approx(bound)
    at_zero = np.linalg.norm((omega[:, None] * np.array([0.0, 1.0])).sum(0))
    assert at_zero > 3 * bound


def test_rotation_leaves_the_gradients_as_long_as_they_are():
    """Whatever the frequencies: turning is orthogonal, and no position is trained."""
    generator = torch.Generator().manual_seed(0)
    upstream = torch.randn(1, 2, 30, 16, generator=generator, dtype=torch.float64)
    for omega in (frequencies(16), mixed(dim=16)):
        q = torch.randn(1, 2, 30, 16, generator=generator, dtype=torch.float64, requires_grad=True)
        rl.apply_rotary(q, torch.arange(30), torch.from_numpy(omega), layout="half").backward(upstream)
        assert q.grad is not None
        torch.testing.assert_close(q.grad.norm(dim=-1), upstream.norm(dim=-1))
    assert np.linalg.norm(mixed()) < 0.9 * np.linalg.norm(frequencies(DIM))  # what the document counts does fall


def lipschitz(omega: np.ndarray) -> float:
    return float(np.sqrt((omega**2).sum()))


def test_lipschitz_constant():
    for omega in (frequencies(DIM), mixed()):
        for delta in (1e-4, 0.3, 1, 40):
            moved = np.linalg.norm(np.exp(1j * delta * omega) - 1)
            assert moved <= lipschitz(omega) * delta
        assert np.linalg.norm(np.exp(1e-4j * omega) - 1) == pytest.approx(1e-4 * lipschitz(omega), rel=1e-6)
    assert lipschitz(mixed()) == pytest.approx(0.731 * lipschitz(frequencies(DIM)), rel=1e-3)


def test_smaller_constant_is_no_better_model():
    """PI has an eighth of RoPE's constant, mixed less than RoPE: at the training length the order is the reverse."""
    order = [frequencies(64) / 8, mixed(8, 64), frequencies(64)]
    constants = [lipschitz(omega) for omega in order]
    assert constants[0] < constants[1] < constants[2]
    accuracy = [score_bytes(64, frequencies=torch.from_numpy(omega))[0] for omega in order]
    assert accuracy[0] < accuracy[1] - 0.1 < accuracy[2] - 0.15


def float32_error(omega: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Relative and absolute error of the angle nω in float32 arithmetic."""
    exact = n[:, None] * omega
    rounded = (n[:, None].astype(np.float32) * omega.astype(np.float32)).astype(np.float64)
    return np.abs(rounded / exact - 1), np.abs(rounded - exact)


def test_angles_are_rounded_twice():
    """The frequency is rounded, then the product: up to nearly 2u. And the absolute error grows with the position."""
    relative, absolute = float32_error(mixed(4), np.arange(1, 8192))
    u = 2.0**-24
    assert 1.8 * u < relative.max() <= 2 * u + u**2
    assert absolute[4096:].max() > 3 * absolute[:1024].max()


def test_lower_frequencies_round_no_better():
    """Pair 0 of plain RoPE, ω = 1, is exact. Of all angles up to 8191, a quarter has the larger error under mixed."""
    n = np.arange(1, 8192)
    plain, changed = float32_error(frequencies(DIM), n)[1], float32_error(mixed(4), n)[1]
    assert plain[:, 0].max() == 0
    assert (changed[:, 0] > 0).mean() > 0.9
    assert (changed > plain).mean() == pytest.approx(0.26, abs=0.005)


class Counted(TorchDispatchMode):
    """Names and sizes of all tensor operations."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.operations.append((str(func), result.numel() if isinstance(result, torch.Tensor) else 0))
        return result


def test_mixed_does_the_same_operations():
    counts = []
    for omega in (rl.rope_frequencies(64), rl.mixed_radix_frequencies(64, 8)):
        x = torch.randn(1, 2, 100, 64)
        positions = torch.arange(100)
        with Counted() as counted:
            rl.apply_rotary(x, positions, omega, layout="half")
        counts.append(counted.operations)
    assert counts[0] == counts[1]
    assert len(counts[0]) > 5
    x, positions = torch.randn(1, 2, 200, 64), torch.arange(200)
    with Counted() as longer:
        rl.apply_rotary(x, positions, omega, layout="half")
    work = [sum(size for _, size in operations) for operations in (counts[0], longer.operations)]
    assert work[1] == 2 * work[0]  # grows with n, not with n²


def test_alibi_score_of_the_comparison_lacks_the_root():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 12, 16, generator=generator, dtype=torch.float64) for _ in range(3))
    position = torch.arange(12)
    distance = position[:, None] - position
    penalty = (rl.alibi_slopes(2)[:, None, None] * distance).masked_fill(distance < 0, torch.inf)
    package = rl.attention(q, k, v, rl.scheme("alibi"))
    torch.testing.assert_close((q @ k.mT / 4 - penalty).softmax(-1) @ v, package)
    assert ((q @ k.mT - penalty).softmax(-1) @ v - package).abs().max() > 0.1
