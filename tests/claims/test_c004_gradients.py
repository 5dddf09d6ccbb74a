"""Document 004, the extension: gradients, information and phases under a bent distance. Chapters 08 and 09."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from claim_tools import byte_model, frequencies, kernel, rotation
from torch import Tensor

import rope_lessons as rl
from rope_lessons.models import byte_lm

WINDOW, LENGTH, DIM = 4, 12, 8
DISTANCE = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
SEEN = DISTANCE >= 0


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scores(q: Tensor, k: Tensor, bent: Tensor) -> Tensor:
    """Score of every pair, (seq, seq), when token j is shown at ``bent[i, j]`` before token i. Any map will do."""
    angle = bent[..., None] * rl.rope_frequencies(DIM)  # (seq, seq, pairs)
    q0, q1, k0, k1 = q[:, None, 0::2], q[:, None, 1::2], k[None, :, 0::2], k[None, :, 1::2]
    return ((q0 * k0 + q1 * k1) * angle.cos() + (q1 * k0 - q0 * k1) * -angle.sin()).sum(-1)


def attend(q: Tensor, k: Tensor, v: Tensor, bent: Tensor) -> Tensor:
    return (scores(q, k, bent) / DIM**0.5).masked_fill(~SEEN, -torch.inf).softmax(-1) @ v


def leaky(slope: float) -> Tensor:
    return rl.rerope.leaky_distance(DISTANCE, WINDOW, slope)


def test_gradients_do_not_see_the_corner():
    """With a corner, with a jump of 3 at the window, and smooth: gradients are those of finite differences."""
    jump = torch.where(DISTANCE < WINDOW, DISTANCE.double(), DISTANCE + 3.0)
    smooth = rl.rerope.smooth_leaky_distance(DISTANCE, WINDOW, 1 / 4, 2)
    for bent in (leaky(1 / 4), jump, smooth):
        q, k, v = (draw(LENGTH, DIM, seed=s).requires_grad_() for s in range(3))
        assert torch.autograd.gradcheck(lambda q, k, v, f=bent: attend(q, k, v, f), (q, k, v))
    q, k, v = (draw(1, 1, LENGTH, DIM, seed=s) for s in range(3))  # the scores above are the package's
    scheme = rl.scheme("leaky-rerope", dim=DIM, window=WINDOW, slope=1 / 4, layout="interleaved")
    torch.testing.assert_close(attend(q[0, 0], k[0, 0], v[0, 0], leaky(1 / 4)), rl.attention(q, k, v, scheme)[0, 0])


def test_gradient_with_respect_to_the_map():
    """One number per distance: its gradient is the sum over the pairs at that distance."""
    q, k, v = (draw(LENGTH, DIM, seed=s) for s in range(3))
    by_distance = rl.rerope.leaky_distance(torch.arange(LENGTH), WINDOW, 1 / 4).requires_grad_()
    attend(q, k, v, by_distance[DISTANCE.abs()]).square().sum().backward()
    assert by_distance.grad is not None
    by_pair = leaky(1 / 4).requires_grad_()
    attend(q, k, v, by_pair).square().sum().backward()
    assert by_pair.grad is not None
    sums = torch.stack([by_pair.grad.diagonal(-m).sum() for m in range(LENGTH)])
    torch.testing.assert_close(by_distance.grad, sums)
    assert by_distance.grad[6].abs() > 1e-6


def test_far_gradients_are_not_scaled():
    """The gradient of a far score for its key is the turned query: as long at every slope."""
    q, k = draw(LENGTH, DIM), draw(LENGTH, DIM, seed=1)
    for slope in (0.0, 1 / 16, 1.0, 16.0):
        key = k.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(scores(q, key, leaky(slope))[LENGTH - 1, 0], key)
        torch.testing.assert_close(gradient[0].norm(), q[LENGTH - 1].norm())


def first_gradients(slope: float) -> list[Tensor]:
    """Of a fresh small model (seed 0) on the first eight test windows."""
    plan = (rl.scheme("leaky-rerope", dim=64, window=16, slope=slope),) * 2
    model, windows = byte_lm.build(byte_lm.Config(), 0, plan), byte_model()[1][:8, :65]
    loss = F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
    loss.backward()
    return [block.qkv.weight.grad.norm() for block in model.blocks]


def test_gradient_norm_does_not_grow_with_the_slope():
    plain, inverse, forward = first_gradients(1.0), first_gradients(16.0), first_gradients(1 / 16)
    for other in (inverse, forward):
        for a, b in zip(other, plain, strict=True):
            assert a / b == pytest.approx(1, abs=0.01)
    assert rl.METHODS["leaky-rerope"](layers=1, dim=64, window=16, slope=1 / 16).train[0].slope == 1


def two_layers(first: Tensor, second: Tensor) -> Tensor:
    x = draw(LENGTH, DIM)
    for layer, bent in enumerate((first, second)):
        q, k, v = (x @ draw(DIM, DIM, seed=3 * layer + s + 1) / DIM**0.5 for s in range(3))
        x = x + attend(q, k, v, bent)
    return x


def test_layers_are_not_independent():
    """What the map of layer 2 does to the output depends on that of layer 1."""
    one, other = leaky(1.0), leaky(16.0)
    effect = [two_layers(first, other) - two_layers(first, one) for first in (one, other)]
    assert effect[0].abs().max() > 0.1
    assert (effect[0] - effect[1]).abs().max() > 0.05


def test_maps_of_layers_are_not_functions_of_each_other():
    """Layer 2's map does not depend on layer 1's, so the document's sum is empty; the gradient is not 0."""
    first, second = leaky(1 / 4).requires_grad_(), leaky(1 / 4).requires_grad_()
    loss = two_layers(first, second).square().sum()
    assert torch.autograd.grad(second.sum(), first, allow_unused=True)[0] is None
    (gradient,) = torch.autograd.grad(loss, first)
    assert gradient[SEEN].abs().max() > 0.01


def test_one_step_of_training_moves_far_scores_no_faster():
    """One step of the query's weights up the gradient of one far score: it rises as much at slope 16 as at 1."""
    x = draw(200, 2, DIM)
    gains = []
    for slope in (1.0, 16.0):
        bent = rl.rerope.leaky_distance(torch.tensor([9]), WINDOW, slope).item()
        turn = torch.from_numpy(rotation(-bent, DIM))  # the key comes before
        gain = []
        for query, key in x:
            w = (draw(DIM, DIM, seed=5) / DIM**0.5).requires_grad_()
            score = (w @ query) @ turn @ key
            (gradient,) = torch.autograd.grad(score, w)
            step = 0.01 * gradient
            gain.append(((w + step) @ query @ turn @ key - score).item())
        gains.append(np.array(gain))
    np.testing.assert_allclose(gains[1], gains[0])
    assert gains[0].min() > 0


# --- information and phases -----------------------------------------------------------------------------------------


def test_minus_log_weight_falls_with_attention():
    """A key with weight 0.9 has 0.1 nats, one with 0.001 has 6.9: largest where nothing is read."""
    weights = np.array([0.9, 0.09, 0.009, 0.001])
    surprise = -np.log(weights)
    assert (np.diff(surprise) > 0).all()
    values = np.eye(4)
    moved = np.linalg.norm(weights[:, None] * values, axis=1)  # how much of each value arrives
    assert (np.diff(moved) < 0).all()
    entropy = rl.entropy.attention_entropy(torch.from_numpy(weights)).item()
    assert (weights * surprise).sum() == pytest.approx(entropy)


def test_score_is_not_one_cosine():
    """Query and key have phases, and there are many pairs: the best distance can be any, here 5."""
    omega = frequencies(2)
    k = np.array([1.0, 0.0])
    q = np.array([np.cos(5 * omega[0]), -np.sin(5 * omega[0])])
    values = [(rotation(m, 2) @ q) @ k for m in range(7)]
    assert int(np.argmax(values)) == 5
    assert values[5] == pytest.approx(1)
    two = np.array([rotation(m, 4)[0, 0] + rotation(m, 4)[2, 2] for m in range(40)]) / 2
    fits = [np.abs(two - np.cos(m * np.arange(40))).max() for m in np.linspace(0, np.pi, 2000)]
    assert min(fits) > 0.3


def test_slow_pairs_do_not_oscillate():
    omega = frequencies(128)
    open_pairs = 4096 * omega < 2 * np.pi
    assert open_pairs.sum() == 18
    phase = np.arange(4096)[:, None] * omega
    np.testing.assert_allclose(np.diff(phase[:10], axis=0).mean(0), np.diff(phase[-10:], axis=0).mean(0))
    slow = np.cos(phase[:, -1])
    assert (np.diff(slow) < 0).all()  # the slowest only falls
    assert slow[-1] > 0.8


def test_far_phases_run_k_times_slower():
    omega, k, w = frequencies(128), 16, 128
    far = rl.rerope.leaky_distance(torch.arange(1000, 1100), w, 1 / k).numpy()
    np.testing.assert_allclose(np.diff(far)[:, None] * omega, omega / k * np.ones((99, 1)))
    approximate = w + np.arange(1000, 1100) / k
    np.testing.assert_allclose(approximate - far, w / k)
    assert (w / k) * omega[0] > 2 * np.pi  # what the document drops is more than a turn of the first pair


def test_kernel_at_bent_distances():
    """d = 128, w = 128, k = 16, distances 128 to 4095: the kernel is higher on average, not at every distance."""
    distance = np.arange(128, 4096)
    gain = kernel(128 + (distance - 128) / 16, 128) - kernel(distance, 128)
    assert gain.mean() == pytest.approx(0.211, abs=1e-3)
    assert all(part.mean() > 0.05 for part in np.array_split(gain, 8))
    assert (gain < 0).mean() == pytest.approx(0.014, abs=1e-3)


def test_training_phase_of_invleaky():
    w, r, omega = 128, 16, frequencies(128)
    distance = np.arange(w, 512)
    trained = rl.rerope.leaky_distance(torch.from_numpy(distance), w, r).numpy()[:, None] * omega
    np.testing.assert_allclose(trained, w * omega * (1 - r) + r * distance[:, None] * omega)
    np.testing.assert_allclose(np.diff(trained, axis=0), np.broadcast_to(r * omega, (383, 64)))


def test_discrimination_is_gone_at_test():
    """How far the encodings of neighbours stand apart beyond the window: wide in training, RoPE's own at test."""

    def apart(step: float) -> float:
        return float(np.linalg.norm(np.exp(1j * step * frequencies(128)) - 1))

    method = rl.METHODS["invleaky"](layers=1, dim=128, window=128, slope=16)
    steps = [rl.rerope.leaky_distance(torch.tensor([300, 301]), p[0].window, p[0].slope).diff().item()
             for p in (method.train, method.test)]  # fmt: skip
    assert steps == [16, 1]
    assert apart(steps[1]) == apart(1)
    assert apart(steps[0]) / apart(1) == pytest.approx(3.57, abs=5e-3)  # not 16: turns go round
    folded = 16 * frequencies(128) > np.pi
    assert folded.sum() == 12


def test_near_weights_depend_on_the_far_map():
    """Scores inside the window stay; the softmax runs over near and far, so weights and gradients do not."""
    q, k, v = (draw(LENGTH, DIM, seed=s) for s in range(3))
    near = SEEN & (DISTANCE < WINDOW)
    found = []
    for slope in (1.0, 16.0):
        x = scores(q, k, leaky(slope)).requires_grad_()
        weights = (x / DIM**0.5).masked_fill(~SEEN, -torch.inf).softmax(-1)
        (gradient,) = torch.autograd.grad((weights @ v).square().sum(), x)
        found.append((x[near].detach(), weights[near].detach(), gradient[near]))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert (found[0][1] - found[1][1]).abs().max() > 0.05
    assert (found[0][2] - found[1][2]).abs().max() > 0.05
