"""NTK-by-parts, YaRN, Llama-3 and LongRoPE: what each does to which pair, and where paper and code differ."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import rope_lessons as rl
from tests.public import PUBLIC

DIM, FACTOR, TRAINED = 128, 8.0, 4096  # of the measured differences between paper and code


def kept(frequencies: Tensor, factor: float, base: float = 10_000.0) -> Tensor:
    """The share of its own speed that each pair keeps: 1 for RoPE, 0 for PI."""
    speed = frequencies / rl.rope_frequencies(2 * frequencies.shape[0], base)
    return (speed - 1 / factor) / (1 - 1 / factor)


def done(dim: int = DIM, length: int = TRAINED, base: float = 10_000.0) -> Tensor:
    return rl.circles.turns(rl.rope_frequencies(dim, base), length)


# --- turns --------------------------------------------------------------------------------------------------------


def test_turns_counts_round_trips(device: torch.device) -> None:
    """Walk along the positions and count how often the angle passes a whole turn."""
    frequencies = rl.rope_frequencies(16, device=device)
    angles = torch.arange(1001, device=device)[:, None] * frequencies
    passed = (angles / (2 * math.pi)).floor().diff(dim=0).sum(dim=0)
    found = rl.circles.turns(frequencies, 1000)
    assert found.dtype == torch.float64
    assert found.device.type == device.type
    assert torch.equal(found.floor(), passed)


def test_turns_per_head() -> None:
    heads = torch.stack((rl.rope_frequencies(8), rl.rope_frequencies(8, 100.0)))
    assert torch.equal(rl.circles.turns(heads, 64)[1], rl.circles.turns(heads[1], 64))


def test_first_pair_that_does_not_go_round() -> None:
    """The count of pairs that go round is where N = 2π B^(2t/d)."""
    found = done(length=512)
    assert int((found >= 1).sum()) == 1 + math.floor(64 * math.log(512 / (2 * math.pi)) / math.log(10_000))


# --- NTK-by-parts, the paper's ramp -------------------------------------------------------------------------------


def test_parts(device: torch.device) -> None:
    found = rl.ntk_by_parts_frequencies(DIM, FACTOR, TRAINED, device=device)
    assert found.dtype == torch.float64
    assert found.device.type == device.type
    share, tau = kept(found.cpu(), FACTOR), done()
    fast, slow = tau >= 32, tau <= 1
    middle = ~(fast | slow)
    assert all(part.any() for part in (fast, slow, middle))
    torch.testing.assert_close(share[fast], torch.ones_like(share[fast]), rtol=0, atol=1e-14)
    torch.testing.assert_close(share[slow], torch.zeros_like(share[slow]), rtol=0, atol=1e-14)
    torch.testing.assert_close(share[middle], (tau[middle] - 1) / 31, rtol=0, atol=1e-14)  # linear in the turns


def test_parts_in_one_piece() -> None:
    """All turns above beta: RoPE. All below alpha: PI."""
    all_fast = rl.ntk_by_parts_frequencies(8, FACTOR, 10**7)
    all_slow = rl.ntk_by_parts_frequencies(8, FACTOR, 6)
    torch.testing.assert_close(all_fast, rl.rope_frequencies(8), rtol=1e-14, atol=0)
    torch.testing.assert_close(all_slow, rl.pi_frequencies(8, FACTOR), rtol=1e-14, atol=0)


def test_llama3_is_the_papers_ramp_with_other_limits(device: torch.device) -> None:
    """Written with wavelengths as in Llama 3.1's code, and as NTK-by-parts with 1 and 4 turns."""
    base, length = 500_000.0, 8192
    found = rl.llama3_frequencies(DIM, FACTOR, length, base, device=device).cpu()
    assert torch.equal(found, rl.ntk_by_parts_frequencies(DIM, FACTOR, length, base, alpha=1, beta=4))
    wanted = []
    for omega in rl.rope_frequencies(DIM, base).tolist():
        wavelength = 2 * math.pi / omega
        if wavelength < length / 4:
            wanted.append(omega)
        elif wavelength > length / 1:
            wanted.append(omega / FACTOR)
        else:
            smooth = (length / wavelength - 1) / (4 - 1)
            wanted.append((1 - smooth) * omega / FACTOR + smooth * omega)
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64), rtol=1e-14, atol=0)


def test_default_base_is_that_of_all_functions() -> None:
    for name, thing in PUBLIC.items():
        parameters = inspect.signature(thing).parameters if name.endswith("_frequencies") else {}
        if "base" in parameters:
            assert parameters["base"].default == 10_000.0, name


# --- YaRN, the code's ramp ----------------------------------------------------------------------------------------


def test_code_ramp_is_linear_in_the_logarithm_of_the_turns(device: torch.device) -> None:
    found = rl.yarn_frequencies(DIM, FACTOR, TRAINED, truncate=False, device=device)
    assert found.dtype == torch.float64
    assert found.device.type == device.type
    wanted = (done().log() / math.log(32)).clamp(0, 1)  # 0 at 1 turn, 1 at 32
    torch.testing.assert_close(kept(found.cpu(), FACTOR), wanted, rtol=0, atol=1e-13)


def test_paper_and_code_differ_by() -> None:
    """LLaMA-2's numbers (d = 128, N = 4096) and a factor of 8: pair 36 runs 2.3 times as fast in the code."""
    paper = rl.ntk_by_parts_frequencies(DIM, FACTOR, TRAINED)
    code = rl.yarn_frequencies(DIM, FACTOR, TRAINED)
    exact = rl.yarn_frequencies(DIM, FACTOR, TRAINED, truncate=False)
    tau = done()
    radix = 10_000 ** (2 / DIM)
    flat = (tau >= 32 * radix) | (tau <= 1 / radix)  # rounding moves the ends by less than a pair
    torch.testing.assert_close(paper[flat], code[flat], rtol=1e-14, atol=0)
    ratio = code / paper
    assert round(float(ratio.max()), 2) == 2.3
    assert int(ratio.argmax()) == 36
    assert round(float((kept(code, FACTOR) - kept(paper, FACTOR)).abs().max()), 2) == 0.37
    assert (exact >= paper * (1 - 1e-14)).all()  # a logarithm lies above its chord
    assert round(float((code / exact - 1).abs().max()), 3) == 0.259  # what truncate does


def test_truncate_rounds_outwards() -> None:
    """With truncate the ramp starts and ends at whole pairs, at least as far out."""
    share, exact = (kept(rl.yarn_frequencies(DIM, FACTOR, TRAINED, truncate=t), FACTOR) for t in (True, False))
    ramp, inner = ((s > 1e-12) & (s < 1 - 1e-12) for s in (share, exact))
    assert (ramp | ~inner).all()
    steps = share[ramp].diff()
    torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-10, atol=0)
    assert round(1 / float(-steps[0]), 9) == int(ramp.sum()) + 1  # the two ends are pairs of their own


def test_pair_0_keeps_its_speed_in_code() -> None:
    """Trained on 64 positions no pair makes 32 turns. The paper slows all of them, the code spares pair 0."""
    tau = done(dim=32, length=64)
    assert 10 < tau[0] < 11
    code, paper = rl.yarn_frequencies(32, FACTOR, 64), rl.ntk_by_parts_frequencies(32, FACTOR, 64)
    assert kept(code, FACTOR)[0] == 1
    assert abs(float(kept(paper, FACTOR)[0]) - (float(tau[0]) - 1) / 31) < 1e-14


def test_equal_ends_make_a_step() -> None:
    """Where both ends of the ramp are cut to 0 (six positions), or one number of turns is asked for."""
    share = kept(rl.yarn_frequencies(8, FACTOR, 6), FACTOR)
    torch.testing.assert_close(share, torch.tensor([1.0, 0, 0, 0], dtype=torch.float64), rtol=0, atol=1e-14)
    share = kept(rl.yarn_frequencies(DIM, FACTOR, TRAINED, beta_fast=4, beta_slow=4, truncate=False), FACTOR)
    torch.testing.assert_close(share, (done() >= 4).double(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("length", [3, 10**5])
def test_backward_ramp_is_an_error(length: int) -> None:
    with pytest.raises(ValueError, match="ramp does not run backwards"):
        rl.yarn_frequencies(64, FACTOR, length, base=10.0 if length > 3 else 10_000.0)


@given(
    st.integers(4, 64),
    st.floats(1, 64),
    st.integers(16, 100_000),
    st.floats(1000, 1e6),
    st.booleans(),
)
def test_between_pi_and_rope(pairs: int, factor: float, length: int, base: float, truncate: bool) -> None:
    """Every pair runs between 1/κ and its own speed, and no pair is slowed less than a faster one."""
    plain = rl.rope_frequencies(2 * pairs, base)
    for frequencies in (
        rl.ntk_by_parts_frequencies(2 * pairs, factor, length, base),
        rl.yarn_frequencies(2 * pairs, factor, length, base, truncate=truncate),
        rl.llama3_frequencies(2 * pairs, factor, length, base),
    ):
        speed = frequencies / plain
        assert (speed <= 1 + 1e-12).all()
        assert (speed >= 1 / factor - 1e-12).all()
        assert (speed.diff() <= 1e-12).all()


# --- attention factors --------------------------------------------------------------------------------------------


def test_yarn_attention_factor() -> None:
    assert rl.yarn_attention_factor(1) == rl.yarn_attention_factor(0.5) == 1
    assert math.isclose(rl.yarn_attention_factor(math.e), 1.1)
    assert math.isclose(rl.yarn_attention_factor(math.e, mscale=0.7), 1.07)


def test_logits_get_the_square_once() -> None:
    scheme = rl.scheme("yarn", dim=8, factor=FACTOR, train_length=16)
    assert scheme.rotary_scale == rl.yarn_attention_factor(FACTOR)
    q, k = torch.randn(2, 1, 1, 9, 8, dtype=torch.float64)
    v = torch.eye(9, dtype=torch.float64)[None, None]
    turned = [rl.apply_rotary(x, torch.arange(9), scheme.frequencies(), layout="half") for x in (q, k)]
    logits = turned[0] @ turned[1].mT / 8**0.5 * (0.1 * math.log(FACTOR) + 1) ** 2
    hidden = ~torch.ones(9, 9, dtype=torch.bool).tril()
    wanted = logits.masked_fill(hidden, -torch.inf).softmax(-1)
    torch.testing.assert_close(rl.attention(q, k, v, scheme), wanted, rtol=1e-12, atol=1e-14)


def test_attention_factors_can_be_replaced() -> None:
    assert rl.scheme("yarn", dim=8, factor=4, train_length=16, rotary_scale=1.0).rotary_scale == 1
    ones = (1.0,) * 4
    options = {"dim": 8, "short_factor": ones, "long_factor": ones, "train_length": 16}
    assert rl.scheme("longrope", **options, factor=4).rotary_scale == rl.longrope_attention_factor(4, 16)
    assert rl.scheme("longrope", **options, rotary_scale=1.5).rotary_scale == 1.5


def test_longrope_attention_factor_is_log_n_at_the_extended_length() -> None:
    assert rl.longrope_attention_factor(1, 512) == rl.longrope_attention_factor(0.5, 512) == 1
    squared = rl.longrope_attention_factor(8, 512) ** 2
    assert math.isclose(squared, float(rl.log_n_scale(torch.tensor([8 * 512]), 512)))


# --- LongRoPE -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "factors"), [(1, "short"), (512, "short"), (513, "long"), (9999, "long")])
def test_longrope_switches_past_the_training_length(length: int, factors: str, device: torch.device) -> None:
    options = {"short": [1.0, 1.5, 2.0, 2.5], "long": (1.0, 3.0, 9.0, 27.0)}
    found = rl.longrope_frequencies(8, options["short"], options["long"], length, 512, device=device)
    assert found.dtype == torch.float64
    assert found.device.type == device.type
    wanted = rl.rope_frequencies(8) / torch.tensor(options[factors], dtype=torch.float64)
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-15, atol=0)


def test_longrope_lists_become_tuples() -> None:
    spec = rl.FrequencySpec("longrope", dim=4, short_factor=[1, 2], long_factor=[3, 4], train_length=8)
    assert spec == rl.FrequencySpec("longrope", dim=4, short_factor=(1, 2), long_factor=(3, 4), train_length=8)
    assert len({spec}) == 1
    assert spec.needs_length
