"""FlexAttention against the dense reference, which is another way to the same numbers.

On a CPU the calls run uncompiled and forward only, on small inputs. Where there is a GPU the same tests run there,
compiled, in float32 and with gradients.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import rope_lessons as rl
from rope_lessons import LogN, Scheme
from rope_lessons.engine import flex
from tests.test_attention import POSITIONS, ROPE, SETTINGS, inputs

OLD = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 6)
needs_new = pytest.mark.skipif(OLD, reason="FlexAttention of PyTorch 2.5 cannot read a tensor in a mask of any length")


def check(
    qkv: tuple[Tensor, Tensor, Tensor], scheme: Scheme, device: torch.device, *, atol: float = 1e-12, **options: Any
) -> None:
    """Output and log-sum-exp agree with the reference; on a GPU in float32, with the gradients."""
    if device.type == "cuda":
        return check_on_cuda(qkv, scheme, device, **options)
    output, lse = rl.attention(*qkv, scheme, backend="flex", **options, return_lse=True)
    wanted, wanted_lse = rl.attention(*qkv, scheme, backend="reference", **options, return_lse=True)
    assert (output.dtype, lse.dtype) == (wanted.dtype, wanted_lse.dtype)
    torch.testing.assert_close(output, wanted, atol=atol, rtol=0)
    torch.testing.assert_close(lse, wanted_lse, atol=10 * atol, rtol=0)
    return None


def check_on_cuda(qkv: tuple[Tensor, Tensor, Tensor], scheme: Scheme, device: torch.device, **options: Any) -> None:
    """FlexAttention's kernels multiply float32 numbers rounded to TF32 (10 bits)."""
    options = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in options.items()}
    sides = []
    for backend in ("flex", "reference"):
        q, k, v = (x.to(device, torch.float32).requires_grad_() for x in qkv)
        output, lse = rl.attention(q, k, v, scheme, backend=backend, **options, return_lse=True)
        (output.square().sum() + lse.masked_fill(lse == -torch.inf, 0.0).sum()).backward()
        sides.append((output, lse, q.grad, k.grad, v.grad))
    for got, wanted in zip(*sides, strict=True):
        torch.testing.assert_close(got, wanted, atol=0.02, rtol=0.01)


@needs_new
@pytest.mark.parametrize("name", SETTINGS)
def test_setting(name: str, device: torch.device) -> None:
    check(inputs(), SETTINGS[name], device)


@needs_new
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("window", [0, 1, 3, 6, 7, 100])
def test_distance_map(window: int, causal: bool, device: torch.device) -> None:
    for slope in (0, 16):
        check(inputs(batch=1), Scheme(ROPE, window=window, slope=slope, causal=causal), device)


@needs_new
@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_positions(name: str, causal: bool, device: torch.device) -> None:
    """Positions that no slice can follow: uneven, fractional, unsorted."""
    positions = POSITIONS[name]()
    given = {"q_positions": positions, "k_positions": positions}
    check(inputs(), SETTINGS["everything"], device, **given)
    check(inputs(), Scheme(ROPE, window=4, slope=0.0, causal=causal), device, **given)


@needs_new
@pytest.mark.parametrize("name", ["everything", "sinks", "log_n", "sinks_both_sides", "interleaved_rerope"])
def test_documents_and_lengths(name: str, device: torch.device) -> None:
    scheme, (q, k, v) = SETTINGS[name], inputs(batch=2, q_len=9)
    ids = torch.tensor([[4, 4, 4, 7, 7, 4, 4, 4, 4], [-1, -1, 0, 0, 0, 0, 2, 2, -1]])
    check((q, k, v), scheme, device, document_ids=ids)
    check((q, k, v), scheme, device, document_ids=ids[0])
    check((q, k, v), scheme, device, lengths=torch.tensor([9, 0]))
    check((q, k, v), scheme, device, document_ids=ids, lengths=torch.tensor([8, 7]))
    check((q[:, :, -3:], k, v), scheme, device, document_ids=ids)


@needs_new
def test_counts_of_documents_on_both_sides(device: torch.device) -> None:
    """log n counts what a query sees: window and sinks, within its document, on either side."""
    scheme = Scheme(ROPE, visible_window=2, sinks=4, causal=False, scale=LogN(3, floor=1))
    ids = torch.tensor([[0] * 6 + [1] * 3, [-1] + [2] * 8])
    check(inputs(q_len=9), scheme, device, document_ids=ids, lengths=torch.tensor([9, 7]))


@needs_new
def test_padding_may_hold_anything(device: torch.device) -> None:
    q, k, v = inputs(q_len=6)
    k[0, :, 3:], v[0, :, 3:] = torch.nan, torch.nan
    check((q, k, v), SETTINGS["interleaved_rerope"], device, lengths=torch.tensor([3, 6]))


@needs_new
@pytest.mark.parametrize("shape", [(7, 7), (2, 1, 1, 7), (2, 2, 7, 7), ()])
def test_bias(shape: tuple[int, ...], device: torch.device) -> None:
    check(inputs(), SETTINGS["everything"], device, bias=torch.randn(shape, dtype=torch.float64))


@needs_new
@pytest.mark.parametrize("q_len", [1, 3])
def test_chunk_of_queries(q_len: int, device: torch.device) -> None:
    q, k, v = inputs(heads=4, kv_heads=2, q_len=9)
    for name in ("everything", "alibi", "sinks"):
        check((q[:, :, -q_len:], k, v), SETTINGS[name], device)


@needs_new
def test_frequencies_per_head(device: torch.device) -> None:
    frequencies = torch.rand(4, 4, dtype=torch.float64)
    check(inputs(heads=4, kv_heads=2), Scheme(ROPE, window=2, slope=0.5), device, frequencies=frequencies)


@needs_new
@pytest.mark.parametrize("length", [127, 128, 129, 300])
def test_more_than_a_block(length: int, device: torch.device) -> None:
    """Blocks of 128: lengths about their edge, and windows within and across blocks."""
    for scheme in (Scheme(ROPE, window=130, slope=0.5), Scheme(ROPE, visible_window=20, sinks=2, window=5, slope=0.0)):
        check(inputs(batch=1, heads=2, kv_heads=1, q_len=length), scheme, device)


@needs_new
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    """Turned queries and keys, and the output of a part, are rounded to the dtype; scores are not."""
    q, k, v = (x.to(device, dtype) for x in inputs())
    scheme = Scheme(ROPE, window=2, slope=0.5)
    output, lse = rl.attention(q, k, v, scheme, backend="flex", return_lse=True)
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    exact = rl.attention(q.double(), k.double(), v.double(), scheme, backend="reference")
    eps = max(torch.finfo(dtype).eps, 2**-10 if device.type == "cuda" else 0.0)  # TF32
    norms = q.double().norm(dim=-1).max() * k.double().norm(dim=-1).max() * q.shape[-1] ** -0.5
    assert (output.double() - exact).abs().max() <= (4 * eps * norms + 2 * eps) * v.double().abs().max()


# --- when it is chosen ---------------------------------------------------------------------------------------------


@needs_new
def test_no_backward_on_a_cpu() -> None:
    q, k, v = (x.requires_grad_() for x in inputs())
    with pytest.raises(ValueError, match="FlexAttention has no backward on a CPU; it needs CUDA"):
        rl.attention(q, k, v, Scheme(ROPE), backend="flex")
    with torch.no_grad():
        check((q, k, v), Scheme(ROPE), torch.device("cpu"))


def test_not_inside_a_compiled_function() -> None:
    q, k, v = inputs()
    compiled = torch.compile(lambda q: rl.attention(q, k, v, Scheme(ROPE), backend="flex"), backend="eager")
    with pytest.raises(Exception, match=r"inside torch.compile it cannot be tried out first"):
        compiled(q)
    torch._dynamo.reset()


@needs_new
def test_a_failed_first_try_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the small call of the first use meets: an error, or wrong numbers."""

    def fail(*arguments: Any) -> Any:
        raise RuntimeError("no such kernel\nand more")

    cpu = torch.device("cpu")
    assert flex._probe.__wrapped__(cpu, torch.float32, 8, 5) is None
    assert flex._probe.__wrapped__(cpu, torch.bfloat16, 8, 5) is None
    monkeypatch.setattr(flex, "_attend", lambda q, k, v, *rest: (torch.zeros(2, 4, 200, 5), torch.zeros(2, 4, 200)))
    assert flex._probe.__wrapped__(cpu, torch.float32, 8, 5) == (
        "PyTorch's FlexAttention gave wrong numbers on a small call"
    )
    monkeypatch.setattr(flex, "_attend", fail)
    assert flex._probe.__wrapped__(cpu, torch.float32, 8, 5) == (
        "PyTorch's FlexAttention failed on a small call: RuntimeError: no such kernel"
    )
    monkeypatch.setattr(flex, "_fails", lambda call: "of something")
    with pytest.raises(ValueError, match="got 'flex': of something"):
        rl.attention(*inputs(), Scheme(ROPE), backend="flex")


@needs_new
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler, about itself
def test_pytorch_has_no_log_sum_exp_from_compiled_calls_on_a_cpu() -> None:
    """The day this fails, FlexAttention on a CPU need not compute every score any more."""
    attend = torch.compile(flex._module().flex_attention)
    q, k, v = (x.float() for x in inputs(head_dim=16, value_dim=16))
    with pytest.raises(Exception, match=r"only supports inference and .*lse"), torch.no_grad():
        attend(q, k, v, return_lse=True)
    torch._dynamo.reset()


@needs_new
def test_explain() -> None:
    q, k, v = inputs()
    explain = rl.explain_backend
    assert explain(q, k, v, Scheme(ROPE), backend="flex") == (
        "flex: one call of FlexAttention, uncompiled, every score is computed"
    )
    bent = Scheme(ROPE, window=2, slope=0.0)
    assert explain(q, k, v, bent, backend="flex").startswith("flex: 2 calls, by kind of distance, of FlexAttention")
    sides = Scheme(ROPE, window=2, slope=0.0, causal=False)
    assert explain(q, k, v, sides, backend="flex").startswith("flex: 3 calls")
    assert "not flex: on a CPU FlexAttention computes every score" in explain(q, k, v, Scheme(alibi=True))


def test_the_first_try_says_which_versions_can() -> None:
    q, k, v = inputs()
    if not OLD:
        assert flex._probe(torch.device("cpu"), torch.float32, 16, 8) is None
        return
    with pytest.raises(ValueError, match="got 'flex': PyTorch's FlexAttention failed on a small call"):
        rl.attention(q, k, v, Scheme(ROPE), backend="flex")
