"""Document 004 (article 13 and its extension): what a bent distance costs. Chapters 08, 09 and 13.

Products are counted by PyTorch's counter on tensors without memory (device "meta"), pairs at the calls of the kernels.
"""

from typing import Any

import pytest
import sympy as sp
import torch
from torch.utils.flop_counter import FlopCounterMode

import rope_lessons as rl
from rope_lessons.engine import cache as cache_module
from rope_lessons.engine import kernels
from rope_lessons.stored import results

LENGTH, WINDOW, DIM = 96, 16, 16
ROPE = rl.scheme("rope", dim=DIM)


def inputs(length: int = LENGTH) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, 2, length, DIM, generator=generator, dtype=torch.float64) for _ in range(3)]


def bent(slope: float) -> rl.Scheme:
    return rl.scheme("leaky-rerope", dim=DIM, window=WINDOW, slope=slope)


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Pairs of query and key in each call of a kernel, forward and backward."""
    found: dict[str, list[int]] = {"forward": [], "backward": []}

    def counting(name: str, first: int) -> Any:
        inner = getattr(kernels, name)

        def call(kernel: str, *arguments: Any) -> Any:
            q, k = arguments[first : first + 2]
            causal = arguments[3 if name == "forward" else 6]
            rows, keys = q.shape[2], k.shape[2]
            found[name].append(q.shape[0] * q.shape[1] * (rows * (rows + 1) // 2 if causal else rows * keys))
            return inner(kernel, *arguments)

        return call

    for name, first in (("forward", 0), ("backward", 1)):
        monkeypatch.setattr(kernels, name, counting(name, first))
    return found


def test_no_pair_is_scored_twice(scored):
    """ReRoPE and Leaky over 96 tokens score the 96 · 97 / 2 pairs of a plain causal attention, each once."""
    counts = []
    for scheme in (ROPE, bent(0.0), bent(1 / 8)):
        scored["forward"].clear()
        rl.attention(*inputs(), scheme, backend="flash")
        counts.append(sum(scored["forward"]))
    assert counts == [2 * LENGTH * (LENGTH + 1) // 2] * 3


def test_decoding_turns_no_old_key(monkeypatch):
    """A step turns the new query and key, for near and for far, and nothing that was there before."""
    turned: list[int] = []
    inner = cache_module.apply_rotary

    def counting(x: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        turned.append(x.shape[2])
        return inner(x, *arguments, **options)

    monkeypatch.setattr(cache_module, "apply_rotary", counting)
    q, k, v = inputs()
    for slope in (0.0, 1 / 8):
        cache = rl.KVCache(bent(slope))
        per_step = []
        for i in range(LENGTH):
            turned.clear()
            last = rl.attention(
                q[:, :, i : i + 1], k[:, :, i : i + 1], v[:, :, i : i + 1], bent(slope), cache=cache, layer=0
            )
            per_step.append(sum(turned))
        assert per_step[-1] == per_step[WINDOW + 1] <= 4
        assert per_step[-1] >= 2
        whole = rl.attention(q, k, v, bent(slope), backend="reference")
        torch.testing.assert_close(last, whole[:, :, -1:])


def test_bent_distance_through_stock_kernels():
    """Slopes of ReRoPE, Leaky and InvLeaky: the fused kernels give the dense result and its gradients, in float64."""
    for slope in (0.0, 1 / 8, 16.0):
        found = []
        for backend in ("flash", "reference"):
            tensors = [x.requires_grad_() for x in inputs()]
            output = rl.attention(*tensors, bent(slope), backend=backend)
            weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view_as(output)
            found.append([output, *torch.autograd.grad((output * weights).sum(), tensors)])
        for fused, dense in zip(*found, strict=True):
            torch.testing.assert_close(fused, dense, atol=1e-11, rtol=1e-11)
    stored = results("bench_cpu")  # slower they are, less the longer the text is
    for part in ("forward", "forward_and_backward"):
        for name in ("rerope", "leaky-rerope"):
            ratios = [row["ratio"] for row in stored[part] if row["what"].startswith(f"{name}, ")]
            assert ratios == sorted(ratios, reverse=True)
            assert 1.05 < min(ratios) < max(ratios) < 1.31


def test_bent_only_at_test():
    plain = rl.METHODS["rope"](layers=2, dim=DIM).train
    for name, options in (("rerope", {}), ("leaky-rerope", {"slope": 1 / 16})):
        method = rl.METHODS[name](layers=2, dim=DIM, window=WINDOW, **options)
        assert method.train == plain
        assert method.test != plain


def test_invleaky_infers_as_plain_rope(scored):
    method = rl.METHODS["invleaky"](layers=1, dim=DIM, window=WINDOW, slope=16)
    assert method.test == rl.METHODS["rope"](layers=1, dim=DIM).test
    q, k, v = inputs()
    assert torch.equal(rl.attention(q, k, v, method.test[0]), rl.attention(q, k, v, ROPE))
    scored["forward"].clear()
    rl.attention(q, k, v, method.test[0], backend="flash")
    assert len(scored["forward"]) == 1
    rl.attention(q, k, v, method.train[0], backend="flash")
    assert len(scored["forward"]) > 2


def test_the_slowdown_of_training(scored):
    """The stored benchmark: a step costs more than with plain RoPE, by far less than a half. The test plan is RoPE, and
    the pairs of training are those of plain attention."""
    (step,) = results("bench_cpu")["training_step"]
    assert 1.02 < step["ratio"] < 1.2
    (test,) = set(rl.METHODS["invleaky"](layers=2, dim=64, window=16, slope=16).test)
    assert test == rl.scheme("rope", dim=64)
    counts = []
    for slope in (1.0, 16.0):
        for calls in scored.values():
            calls.clear()
        tensors = [x.requires_grad_() for x in inputs()]
        rl.attention(*tensors, bent(slope), backend="flash").sum().backward()
        counts.append({name: sum(calls) for name, calls in scored.items()})
    assert counts[0] == counts[1]
    assert counts[0]["forward"] == counts[0]["backward"] == 2 * LENGTH * (LENGTH + 1) // 2


# --- floating-point operations of a layer ---------------------------------------------------------------------------


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


def core_flops(length: int, heads: int, key_dim: int, value_dim: int, score_matrices: int = 1) -> int:
    """Scores and weighted values, all pairs."""
    with FlopCounterMode(display=False) as counter:
        for _ in range(score_matrices):
            empty(heads, length, key_dim) @ empty(heads, key_dim, length)
        empty(heads, length, length) @ empty(heads, length, value_dim)
    return counter.get_total_flops()


def linear_flops(length: int, shapes: list[tuple[int, int]]) -> int:
    with FlopCounterMode(display=False) as counter:
        for fan_in, fan_out in shapes:
            empty(length, fan_in) @ empty(fan_in, fan_out)
    return counter.get_total_flops()


def gau_flops(length: int, score_matrices: int = 1) -> int:
    """Two gated attention units of GAU-alpha's base size: width 768, one head of 128, values of 1536."""
    linear = linear_flops(length, [(768, 2 * 1536 + 128), (1536, 768)])
    return 2 * (linear + core_flops(length, 1, 128, 1536, score_matrices))


def block_flops(length: int, score_matrices: int = 1) -> int:
    """What two units stand for: attention with 12 heads of 64, and a network of width 4 · 768."""
    linear = linear_flops(length, [(768, 768)] * 4 + [(768, 4 * 768), (4 * 768, 768)])
    return linear + core_flops(length, 12, 64, 64, score_matrices)


def overhead(layer, length: int) -> float:
    """What a second matrix of scores adds to the layer."""
    return layer(length, 2) / layer(length) - 1


def test_attention_of_gau_takes_more_products():
    """Attention alone, without the linear maps: two units against one block of 12 heads."""
    for length in (512, 4096):
        units = 2 * core_flops(length, 1, 128, 1536)
        heads = core_flops(length, 12, 64, 64)
        assert units / heads == pytest.approx(2.17, abs=5e-3)
    assert 2 * core_flops(512, 1, 128, 0) / core_flops(512, 12, 64, 0) == pytest.approx(1 / 3)


def test_overhead_grows_with_heads_and_length():
    lengths = (512, 4096, 32_768)
    units, block = ([overhead(layer, length) for length in lengths] for layer in (gau_flops, block_flops))
    assert units == sorted(units)
    assert block == sorted(block)
    assert all(b > 3 * u for b, u in zip(block, units, strict=True))
    assert (units[0], block[0]) == (pytest.approx(0.0146, abs=1e-4), pytest.approx(0.05, abs=1e-3))


def test_second_score_product_adds_at_most_half():
    length, width = sp.symbols("L d", positive=True)
    attention = 2 * length**2 * width  # scores, and values of the same width
    share = (length**2 * width) / (attention + 12 * width**2 * length)
    assert sp.limit(share, length, sp.oo) == sp.Rational(1, 2)
    assert sp.simplify(sp.Rational(1, 2) - share).subs({length: 10**9, width: 1}) > 0
    assert float(share.subs({length: 4096, width: 768})) == pytest.approx(overhead(block_flops, 4096))


def test_two_score_matrices_are_one_and_a_half_attentions():
    assert core_flops(512, 12, 64, 64, 2) / core_flops(512, 12, 64, 64) == pytest.approx(1.5)
    length, c = sp.symbols("L c", positive=True)
    assert sp.simplify(2 * c * length**2 - (2 * c) * length**2) == 0  # O(2 L² d) is O(L² d): twice the constant
    near = length * WINDOW - sp.Rational(WINDOW * (WINDOW - 1), 2)
    far = (length - WINDOW) * (length - WINDOW + 1) / 2
    assert sp.simplify(near + far - length * (length + 1) / 2) == 0


def test_overhead_of_the_gau_model():
    """A second score matrix at 512 tokens: 1.5 % of a GAU layer's products, 7.7 % of its attention. Not 100 %."""
    assert overhead(gau_flops, 512) == pytest.approx(0.0146, abs=1e-4)
    assert core_flops(512, 1, 128, 1536, 2) / core_flops(512, 1, 128, 1536) == pytest.approx(1 + 128 / 1664)
    share = 2 * core_flops(512, 1, 128, 1536) / gau_flops(512)
    assert share == pytest.approx(0.190, abs=1e-3)


def test_relative_increase_of_the_step_time():
    before, after = 330, 350  # seconds for 1000 steps
    increase = (after - before) / before
    assert increase == pytest.approx(0.0606, abs=5e-5)
    assert increase < 0.10


def test_share_of_attention_formula():
    """From the document's own first line: L²d of attention, d d_ff L of the network. L d divides out, d does not."""
    length, d, d_ff, h = sp.symbols("L d d_ff h", positive=True)
    attention = h * length**2 * d / h
    share = sp.simplify(attention / (attention + d * d_ff * length))
    assert sp.simplify(share - length / (length + d_ff)) == 0
    theirs = length * d / (length * d + d_ff)
    assert sp.simplify(theirs - share) != 0
    assert sp.simplify(share.subs(d_ff, 4 * d) - length / (length + 4 * d)) == 0
    assert sp.simplify(theirs.subs(d_ff, 4 * d) - length / (length + 4)) == 0


def test_width_of_the_network():
    from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM

    gpt2, llama = GPT2Config(), LlamaConfig()
    assert gpt2.n_inner is None  # Hugging Face's GPT-2 then takes 4 times the width
    assert llama.intermediate_size / llama.hidden_size == pytest.approx(2.69, abs=5e-3)
    small = LlamaConfig(vocab_size=8, hidden_size=16, intermediate_size=43, num_hidden_layers=1, num_attention_heads=1)
    network = LlamaForCausalLM(small).model.layers[0].mlp
    assert sorted(tuple(weight.shape) for weight in network.parameters()) == [(16, 43), (43, 16), (43, 16)]


def test_share_of_attention_at_512_and_2048():
    for length, theirs, counted, more in ((512, 0.992, 0.10, 0.05), (2048, 0.998, 0.308, 0.154)):
        assert length / (length + 4) == pytest.approx(theirs, abs=5e-4)
        assert core_flops(length, 12, 64, 64) / block_flops(length) == pytest.approx(counted, abs=1e-3)
        assert overhead(block_flops, length) == pytest.approx(more, abs=1e-3)


def test_training_overhead_never_reaches_half():
    for length in (512, 2048, 32_768, 2**20):
        assert overhead(gau_flops, length) < overhead(block_flops, length) < 0.5
    assert overhead(block_flops, 2**20) > 0.49


def test_inference_time_is_not_doubled():
    """4096 tokens, GAU-alpha's size. Dense with two score matrices: 5 % more products. In two bands: none."""
    assert overhead(gau_flops, 4096) == pytest.approx(0.0502, abs=1e-3)
    assert overhead(block_flops, 4096) == pytest.approx(0.2353, abs=1e-3)
    length, window = 4096, 256
    near, far = length * window - window * (window - 1) // 2, (length - window) * (length - window + 1) // 2
    assert near + far == length * (length + 1) // 2
    quotients = [85.12 / time for time in (2, 1 + overhead(gau_flops, 4096), 1)]  # ReRoPE; InvLeaky has 82.25
    assert quotients == pytest.approx([42.56, 81.05, 85.12], abs=0.01)
