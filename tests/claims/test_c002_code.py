"""Document 002, section 5: its code samples, each reduced to the construct in question."""

import warnings

import numpy as np
import pytest
import torch
from claim_tools import B, encoding, frequencies, is_toeplitz, kernel, rms, spread_along_diagonals
from torch import nn

import rope_lessons as rl


def test_exponential_form_of_the_frequencies():
    for dim in (8, 768):
        written = np.exp(-np.arange(0, dim, 2) * np.log(B) / dim)
        np.testing.assert_allclose(written, frequencies(dim), rtol=1e-12)
        angles = np.arange(512)[:, None] * written
        np.testing.assert_allclose(np.sin(angles), encoding(np.arange(512), dim)[:, 0::2], atol=1e-10)


def test_norm_at_768():
    norms = np.linalg.norm(encoding(np.arange(512), 768), axis=1)
    np.testing.assert_allclose(norms, 19.596, atol=5e-4)
    assert abs(norms.mean() - 19.7) > 0.1


class Additive(nn.Module):
    """A module of the document's kind: a stored table, times an optional trained factor."""

    def __init__(self, dim, length, learnable=False, persistent=True):
        super().__init__()
        table = rl.sinusoidal_encoding(torch.arange(length), dim)
        self.register_buffer("table", table[None], persistent=persistent)
        self.factor = nn.Parameter(torch.ones(1)) if learnable else 1.0

    def forward(self, x):
        return x + self.table[:, : x.shape[1]] * self.factor


def test_learnable_scale_is_the_only_parameter():
    module = Additive(8, 16, learnable=True)
    module(torch.zeros(1, 4, 8)).square().sum().backward()
    assert [name for name, _ in module.named_parameters()] == ["factor"]
    assert module.factor.grad.abs() > 0
    assert not module.table.requires_grad


def test_buffer_is_saved_and_not_trained():
    module = Additive(8, 16)
    assert not list(module.parameters())
    assert "table" in module.state_dict()
    assert "table" not in Additive(8, 16, persistent=False).state_dict()


def test_encoder_attends_across_the_batch():
    torch.manual_seed(0)
    x = torch.randn(4, 10, 16)  # (batch, length, channels)
    changed = x.clone()
    changed[1] += 1  # another sequence of the batch
    for batch_first, leaks in ((False, True), (True, False)):
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=batch_first)
        difference = (layer(x)[0] - layer(changed)[0]).abs().max()
        assert (difference > 1e-3) == leaks


def test_attribute_before_buffer_of_the_same_name():
    module = nn.Module()
    module._table = None
    with pytest.raises(KeyError, match="already exists"):
        module.register_buffer("_table", torch.zeros(1, 4, 8))
    grown, fresh = Additive(8, 16), Additive(8, 16)
    grown.register_buffer(
        "table", torch.zeros(1, 32, 8)
    )  # a buffer may replace a buffer; its shape is in the checkpoint
    with pytest.raises(RuntimeError, match="size mismatch"):
        fresh.load_state_dict(grown.state_dict())


def test_half_input_and_float_table():
    module, x = Additive(8, 16), torch.randn(1, 4, 8)
    out = module(x.half())
    assert out.dtype == torch.float32
    assert torch.equal(out, x.half().float() + module.table[:, :4])
    assert not torch.equal(out, module(x))


def test_cuda_autocast_does_nothing_on_the_cpu():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from torch.cuda.amp import autocast

        decorated = autocast()(torch.mm)
    assert any("deprecated" in str(warning.message) for warning in caught)
    x = torch.randn(4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without CUDA it also warns that it is off
        assert decorated(x, x).dtype == torch.float32
    with torch.amp.autocast("cpu", dtype=torch.bfloat16):
        assert torch.mm(x, x).dtype == torch.bfloat16


def test_start_of_the_learnable_frequencies():
    dim = 512
    start = np.logspace(0, -np.log10(B), dim // 2)
    np.testing.assert_allclose(start, B ** (-np.arange(dim // 2) / (dim // 2 - 1)))
    shortfall = 1 - start / frequencies(dim)
    assert shortfall.max() == pytest.approx(0.035, abs=1e-3)
    difference = np.abs(np.sin(np.arange(512)[:, None] * start) - encoding(np.arange(512), dim)[:, 0::2])
    assert difference.max() == pytest.approx(0.71, abs=0.01)


def test_gradient_of_the_frequencies():
    omega = rl.rope_frequencies(8).requires_grad_()
    sizes = []
    for position in (10, 100, 1000):
        table = rl.sinusoidal_encoding(torch.tensor([position]), 8, frequencies=omega, dtype=torch.float64)
        jacobian = [torch.autograd.grad(table[0, c], omega, retain_graph=True)[0] for c in range(8)]
        sizes.append(torch.stack(jacobian).norm().item())
    np.testing.assert_allclose(sizes, [10 * 2, 100 * 2, 1000 * 2])  # position times sqrt(number of pairs)
    stored = torch.arange(512.0)[:, None]  # positions stored up to 512, a text of 600
    table = torch.zeros(600, 8)
    with pytest.raises(RuntimeError, match="must match"):
        table[:, 0::2] = torch.sin(stored[:600] * omega.detach().float())


def stretched(table, length):
    """The document's interpolation of a table (old length, dim) to a new length."""
    rows = torch.from_numpy(table).T[None]  # (1, dim, old length)
    return nn.functional.interpolate(rows, size=length, mode="linear", align_corners=True)[0].T.numpy()


def test_scale_of_the_interpolation():
    old, new = 512, 1024
    ramp = np.arange(old, dtype=float)[:, None]  # a "table" that holds the position itself
    got = stretched(ramp, new)[:, 0]
    np.testing.assert_allclose(got, np.arange(new) * (old - 1) / (new - 1), atol=1e-9)
    assert np.abs(got - np.arange(new) * old / new).max() > 0.4


def test_interpolated_vectors_leave_the_circle():
    table = encoding(np.arange(5), 16)
    halfway = stretched(table, 9)  # rows 0, 1/2, 1, ...
    assert np.hypot(halfway[1, 0], halfway[1, 1]) == pytest.approx(np.cos(0.5))
    assert np.cos(0.5) == pytest.approx(0.878, abs=5e-4)
    exact = rl.sinusoidal_encoding(torch.arange(9, dtype=torch.float64) / 2, 16, dtype=torch.float64).numpy()
    np.testing.assert_allclose(np.hypot(exact[:, 0], exact[:, 1]), 1)
    assert np.abs(halfway - exact).max() > 0.1


def power_of_two_slopes(heads):
    first = 2 ** (-(2 ** -(np.log2(heads) - 3)))
    return [first * first**h for h in range(heads)]


def test_alibi_slopes_for_powers_of_two():
    for heads in (2, 4, 8, 16, 32, 64):
        np.testing.assert_allclose(power_of_two_slopes(heads), 2.0 ** (-8 * np.arange(1, heads + 1) / heads))


def test_alibi_slopes_for_twelve_heads():
    below = 2 ** np.floor(np.log2(12))
    with pytest.raises(TypeError, match="integer"):
        power_of_two_slopes(below)
    repaired = power_of_two_slopes(int(below)) + power_of_two_slopes(2 * int(below))[0::2][:4]
    np.testing.assert_allclose(repaired[:8], 2.0 ** -np.arange(1, 9))
    np.testing.assert_allclose(repaired[8:], 2.0 ** -np.array([0.5, 1.5, 2.5, 3.5]))


def test_alibi_module_takes_heads_for_length():
    def biased(q, k, heads):
        positions = torch.arange(q.shape[1])  # the document's sequence length
        bias = -torch.ones(heads, 1, 1) * (positions[:, None] - positions).abs()
        return q @ k.mT / q.shape[-1] ** 0.5 + bias

    q = torch.randn(2, 8, 10, 4)  # (batch, heads, length, channels)
    with pytest.raises(RuntimeError, match="size of tensor"):
        biased(q, q, heads=8)
    q = torch.randn(8, 10, 4)  # (heads, length, channels)
    weights = biased(q, q, heads=8).softmax(-1)
    assert weights.shape == (8, 10, 10)
    assert weights[:, 0, 1:].min() > 0  # the first token sees the later ones
    single = torch.randn(2, 1, 10, 4)  # one head: runs, and the bias is 0 everywhere
    torch.testing.assert_close(biased(single, single, heads=1), single @ single.mT / 2)


def test_logarithm_fits_better_than_power_law():
    distances = np.arange(1, 128)
    values = kernel(distances, 512)
    fits = []
    for exponent in np.arange(0.05, 1.5, 0.001):
        curve = distances**-exponent
        scale = (curve @ values) / (curve @ curve)
        fits.append((np.square(values - scale * curve).sum(), exponent))
    power_error, exponent = min(fits)
    line = np.polyfit(np.log(distances), values, 1)
    log_error = np.square(values - np.polyval(line, np.log(distances))).sum()
    assert exponent == pytest.approx(0.18, abs=0.005)
    assert power_error / log_error == pytest.approx(3.7, abs=0.1)
    assert line[0] == pytest.approx(-0.111, abs=5e-4)
    assert -1 / np.log(B) == pytest.approx(-0.109, abs=5e-4)


def test_axes_of_the_spectrum():
    length, dim = 128, 16
    image = np.square(np.abs(np.fft.rfft(encoding(np.arange(length), dim), axis=0))).T
    assert image.shape == (dim, length // 2 + 1)  # rows: channels; columns: frequencies, not the 128 positions
    for channel in range(0, 4):
        wanted = frequencies(dim)[channel // 2] * length / (2 * np.pi)
        assert abs(image[channel].argmax() - wanted) <= 1


def test_division_by_the_norm_is_one_factor():
    e = encoding(np.arange(100), 64)
    normalised = e / np.linalg.norm(e, axis=1, keepdims=True)
    np.testing.assert_allclose(normalised, e * np.sqrt(2 / 64), atol=1e-12)


def test_tanh_shrinks_the_encoding():
    e = encoding(np.arange(1000), 64)
    assert np.abs(e).max() == 1
    shrunk = np.tanh(0.1 * e)
    assert np.abs(shrunk).max() == pytest.approx(0.0997, abs=5e-5)
    assert is_toeplitz(e @ e.T, tolerance=1e-8)
    assert spread_along_diagonals(shrunk @ shrunk.T) / (shrunk @ shrunk.T)[0, 0] > 1e-4


def test_added_encoding_does_not_change_gradients():
    x = torch.randn(5, 8, dtype=torch.float64)
    for positions in ([0, 1, 2, 3, 4], [10**6 + i for i in range(5)]):
        added = torch.from_numpy(encoding(np.array(positions), 8))
        jacobian = torch.func.jacrev(lambda y, added=added: y + added)(x).reshape(40, 40)
        torch.testing.assert_close(jacobian, torch.eye(40, dtype=torch.float64))


def test_transfer_moves_every_position():
    ramp = np.arange(5000, dtype=float)[:, None]
    assert stretched(ramp, 1024)[100, 0] == pytest.approx(488.7, abs=0.1)
    assert stretched(ramp[:512], 1024)[100, 0] == pytest.approx(100 * 511 / 1023)
    longer = rl.sinusoidal_encoding(torch.arange(1024), 64)
    assert torch.equal(longer[:512], rl.sinusoidal_encoding(torch.arange(512), 64))
    squeezed = stretched(encoding(np.arange(512), 64), 1024)
    assert rms(squeezed[:512] - encoding(np.arange(512), 64)) > 0.3
