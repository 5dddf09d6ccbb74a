"""Every scheme, on every backend, inside everything that PyTorch can wrap around a call.

The numbers are those outside, or there is a refusal by name; ``auto`` and ``reference`` can do the same things.
"""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

import rope_lessons as rl
from rope_lessons import FrequencySpec, LogN, Scheme
from rope_lessons.engine import flash
from tests.test_attention import ROPE
from tests.test_schemes import OPTIONS

SCHEMES = {
    "rope": Scheme(ROPE),
    "nope_log_n": Scheme(scale=LogN(5, floor=2)),
    "rerope_log_n": Scheme(ROPE, window=3, slope=0.0, scale=LogN(5, floor=2)),
    "leaky_interleaved": Scheme(ROPE, window=4, slope=0.25, layout="interleaved"),
    "invleaky_partial": Scheme(FrequencySpec("rope", dim=4), window=2, slope=4.0),
    "window": Scheme(ROPE, visible_window=4),
    "sinks": Scheme(ROPE, visible_window=3, sinks=2),
    "alibi": Scheme(alibi=True),
    "bidirectional_rerope": Scheme(ROPE, window=3, slope=0.0, causal=False),
    "dynamic_ntk": Scheme(FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=3)),
    "yarn": rl.scheme("yarn", dim=8, factor=2, train_length=5),
}
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def _fast_path_for_short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "auto" takes flash wherever it can, as it does for long texts."""
    monkeypatch.setattr(flash, "CPU_SCORES", 0)


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, 4, 7, 8).double(), torch.randn(2, 2, 9, 8).double(), torch.randn(2, 2, 9, 5).double()


def pull(attend: Attend, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Output and gradients."""
    qkv = [x.detach().requires_grad_() for x in (q, k, v)]
    output = attend(*qkv)
    weighted(output).backward()
    return [output.detach(), *(x.grad for x in qkv)]


def weighted(output: Tensor) -> Tensor:
    return (output * torch.arange(1.0, output.numel() + 1, dtype=output.dtype).cos().view(output.shape)).sum()


# --- contexts: what is computed inside, and the same without it ------------------------------------------------------


def no_grad(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return [attend(*(x.requires_grad_() for x in qkv))]


def inference_mode(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    with torch.inference_mode():
        return [attend(*qkv).clone()]


def autocast(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    """The precision is that of the inputs."""

    def inside(*qkv: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return attend(*qkv)

    return pull(inside, *qkv)


def vmap(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    """Over the batch, each row a batch of one."""
    return [torch.vmap(lambda *row: attend(*(x.unsqueeze(0) for x in row)).squeeze(0))(*qkv)]


def func_grad(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    grads, output = torch.func.grad_and_value(lambda *qkv: weighted(attend(*qkv)), argnums=(0, 1, 2))(*qkv)
    return [output, *grads]


def jacrev(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    return [torch.func.jacrev(lambda s: attend(s * qkv[0], *qkv[1:]))(torch.tensor(1.0, dtype=torch.float64))]


def jvp(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    return list(torch.func.jvp(attend, qkv, tuple(x.cos() for x in qkv)))


def dual_numbers(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    with forward_ad.dual_level():
        output = attend(*(forward_ad.make_dual(x, x.cos()) for x in qkv))
        return list(forward_ad.unpack_dual(output))


def double_backward(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    qkv = tuple(x.detach().requires_grad_() for x in qkv)
    first = torch.autograd.grad(weighted(attend(*qkv)), qkv, create_graph=True)
    return list(torch.autograd.grad(sum(g.square().sum() for g in first), qkv))


def checkpointed(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    return pull(lambda *qkv: checkpoint(attend, *qkv, use_reentrant=False), *qkv)


def checkpointed_by_reentry(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    return pull(lambda *qkv: checkpoint(attend, *qkv, use_reentrant=True), *qkv)


def threads(attend: Attend, *qkv: Tensor) -> list[Tensor]:
    """Several at once; they agree to the bit."""
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: pull(attend, *qkv), range(8)))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))
    return found[0]


# The second one computes what is wanted, from the reference.
CONTEXTS: dict[str, tuple[Callable[..., list[Tensor]], Callable[..., list[Tensor]]]] = {
    "no_grad": (no_grad, lambda attend, *qkv: [attend(*qkv)]),
    "inference_mode": (inference_mode, lambda attend, *qkv: [attend(*qkv)]),
    "autocast": (autocast, pull),
    "vmap": (vmap, lambda attend, *qkv: [attend(*qkv)]),
    "func_grad": (func_grad, lambda attend, *qkv: [weighted(attend(*qkv)), *pull(attend, *qkv)[1:]]),
    "jacrev": (
        jacrev,
        lambda attend, q, k, v: [torch.autograd.functional.jvp(lambda x: attend(x, k, v), q, q)[1]],
    ),
    "jvp": (jvp, lambda attend, *qkv: list(torch.autograd.functional.jvp(attend, qkv, tuple(x.cos() for x in qkv)))),
    "dual_numbers": (
        dual_numbers,
        lambda attend, *qkv: list(torch.autograd.functional.jvp(attend, qkv, tuple(x.cos() for x in qkv))),
    ),
    "double_backward": (double_backward, double_backward),
    "checkpoint": (checkpointed, pull),
    "checkpoint_by_reentry": (checkpointed_by_reentry, pull),
    "threads": (threads, pull),
}
TRANSFORMS = {"vmap", "func_grad", "jacrev", "jvp", "dual_numbers"}
FORWARD_ONLY = {"no_grad", "inference_mode"}


def refusal(backend: str, context: str, scheme: Scheme) -> str | None:
    """What a backend that is asked for by name says to a call that it cannot do; None where it must do it."""
    if backend in ("auto", "reference"):
        return None
    if context in TRANSFORMS:
        return "forward-mode differentiation" if context == "dual_numbers" else "torch.func transforms"
    if backend == "flex":
        return None if context in FORWARD_ONLY else "no backward on a CPU"
    if scheme.sinks:
        return "sinks are keys outside"
    if scheme.alibi:
        return "ALiBi adds to every score"
    return None if scheme.causal or scheme.slope == 1.0 else "both sides"


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own, in forward mode
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", SCHEMES)
def test_context(name: str, context: str) -> None:
    scheme, (inside, outside) = SCHEMES[name], CONTEXTS[context]
    qkv = inputs()
    wanted = outside(lambda *qkv: rl.attention(*qkv, scheme, backend="reference"), *qkv)
    for backend in ("auto", "reference", "flash", "flex"):
        reason = refusal(backend, context, scheme)
        arguments = tuple(x.clone() for x in qkv)

        def attend(*qkv: Tensor, backend: str = backend) -> Tensor:
            return rl.attention(*qkv, scheme, backend=backend)

        if reason is not None:
            with pytest.raises(ValueError, match=f"backend must be 'auto' or another one.*'{backend}': .*{reason}"):
                inside(attend, *arguments)
            continue
        found = inside(attend, *arguments)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


def test_auto_takes_the_fast_path_outside() -> None:
    """Otherwise nothing above would be about it."""
    assert rl.explain_backend(*inputs(), SCHEMES["rerope_log_n"]).startswith("flash")


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_vmap_over_what_is_visible(backend: str) -> None:
    """Lengths and documents of each row, too."""
    q, k, v = inputs()
    scheme, lengths = SCHEMES["rerope_log_n"], torch.tensor([[5], [9]])
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, -1, -1], [-1, 0, 0, 0, 0, 0, 0, 2, 2]])
    for options in ({"lengths": lengths}, {"document_ids": ids}, {"lengths": lengths, "document_ids": ids}):

        def attend(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Tensor]) -> Tensor:
            q, k, v = (x.unsqueeze(0) for x in (q, k, v))
            return rl.attention(q, k, v, scheme, backend=backend, **options).squeeze(0)

        wanted = rl.attention(
            q, k, v, scheme, **{name: x.flatten() if name == "lengths" else x for name, x in options.items()}
        )
        torch.testing.assert_close(torch.vmap(attend)(q, k, v, options), wanted, atol=1e-12, rtol=0)


# --- mixed dtypes under autocast -------------------------------------------------------------------------------------

WIDE, HALF = torch.float32, torch.bfloat16
DTYPES = (torch.float64, WIDE, HALF, torch.float16)


@pytest.mark.parametrize("dtypes", [(WIDE, WIDE, HALF), (HALF, WIDE, HALF), (WIDE, HALF, torch.float16)])
@pytest.mark.parametrize("backend", ["auto", "reference", "flash", "flex"])
def test_mixed_dtypes_under_autocast(backend: str, dtypes: tuple[torch.dtype, ...]) -> None:
    """Queries and keys are normed in float32, values come from a layer: all are computed in autocast's dtype, and each
    gets its gradient in its own."""
    scheme, qkv = SCHEMES["rerope_log_n"], [x.to(dtype) for x, dtype in zip(inputs(), dtypes, strict=True)]

    def attend(*qkv: Tensor) -> Tensor:
        return rl.attention(*qkv, scheme, backend=backend)

    def cast(*qkv: Tensor) -> list[Tensor]:
        return [x.to(HALF) for x in qkv]

    told = rl.explain_backend(*cast(*qkv), scheme, backend=backend)
    wanted = attend(*cast(*qkv))
    with torch.autocast("cpu", dtype=HALF):
        assert torch.equal(attend(*qkv), wanted)
        assert rl.explain_backend(*qkv, scheme, backend=backend) == told
    if backend != "flex":  # which has no backward on a CPU
        found = autocast(attend, *qkv)
        assert [x.dtype for x in found] == [HALF, *dtypes]
        for a, b in zip(found, pull(lambda *qkv: attend(*cast(*qkv)), *qkv), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dtypes", list(itertools.permutations(DTYPES, 3)))
def test_mixed_dtypes_are_those_that_pytorch_mixes(dtypes: tuple[torch.dtype, ...]) -> None:
    """``F.scaled_dot_product_attention`` under autocast leaves float64 alone; without autocast it mixes nothing."""
    q, k, v = (torch.randn(1, 2, 5, 8).to(dtype) for dtype in dtypes)
    message = "must have the dtype and device of q"
    for attend in (rl.attention, rl.explain_backend):
        with pytest.raises(ValueError, match=message):
            attend(q, k, v, Scheme())
    with pytest.raises(RuntimeError):
        scaled_dot_product_attention(q, k, v, is_causal=True)
    with torch.autocast("cpu", dtype=HALF):
        if torch.float64 in dtypes:
            with pytest.raises(RuntimeError):
                scaled_dot_product_attention(q, k, v, is_causal=True)
            with pytest.raises(ValueError, match=message):
                rl.attention(q, k, v, Scheme())
        else:
            wanted = scaled_dot_product_attention(q, k, v, is_causal=True)
            found = rl.attention(q, k, v, Scheme())
            assert found.dtype == wanted.dtype
            torch.testing.assert_close(found, wanted)


@pytest.mark.usefixtures("_fresh_compiler")
def test_compiled_under_autocast() -> None:
    scheme, (q, k, v) = SCHEMES["rerope_log_n"], (x.float() for x in inputs())

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return rl.attention(q, k, v, scheme)

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=HALF):
        torch.testing.assert_close(compiled(q, k, v.to(HALF)), attend(q, k, v.to(HALF)))
    with pytest.raises(Exception, match="must have the dtype and device of q"):
        compiled(q, k, v.to(HALF))


# --- compilers -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("name", ["rerope_log_n", "window", "dynamic_ntk"])
def test_compiled(name: str) -> None:
    """For one length. For any: test_compile.py, and with the backward of the kernels test_flash.py."""
    scheme = SCHEMES[name]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return rl.attention(q, k, v, scheme)

    compiled = torch.compile(attend, fullgraph=True, dynamic=False, backend="aot_eager")
    qkv = inputs()
    for a, b in zip(pull(compiled, *qkv), pull(attend, *qkv), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("backend", ["flash", "reference"])
def test_compiled_transforms(backend: str) -> None:
    """A transform inside what is compiled: the same choice as outside, the same refusal."""
    scheme, qkv = SCHEMES["rerope_log_n"], inputs()

    def gradient(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.func.grad(lambda x: weighted(rl.attention(x, k, v, scheme, backend=backend)))(q)

    compiled = torch.compile(gradient, backend="aot_eager")
    if backend == "flash":
        with pytest.raises(Exception, match=r"torch\.func transforms"):
            compiled(*qkv)
    else:
        torch.testing.assert_close(compiled(*qkv), gradient(*qkv), atol=1e-12, rtol=0)


class Layer(torch.nn.Module):
    def __init__(self, scheme: Scheme):
        super().__init__()
        self.scheme = scheme

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return rl.attention(q, k, v, self.scheme)


@pytest.mark.parametrize("name", ["rerope_log_n", "window", "alibi", "yarn"])
def test_exported(name: str) -> None:
    """A program for other lengths than the one it was traced with."""
    layer = Layer(SCHEMES[name])
    tokens = torch.export.Dim("tokens", min=4, max=64)
    shapes = {x: {2: tokens} for x in "qkv"}
    q, k, v = torch.randn(3, 2, 4, 11, 8)
    program = torch.export.export(layer, (q, k, v), dynamic_shapes=shapes)
    for length in (11, 17):
        qkv = torch.randn(3, 2, 4, length, 8).unbind()
        torch.testing.assert_close(program.module()(*qkv), layer(*qkv), atol=2e-6, rtol=1e-5)


# --- tensors without data, copies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["auto", "reference", "flash"])
@pytest.mark.parametrize("name", SCHEMES)
def test_meta_and_fake_tensors(name: str, backend: str) -> None:
    """Shape, dtype and device of the true result. There is no kernel for "meta", so flash says so."""
    scheme = SCHEMES[name]
    for dtype in (torch.float32, torch.bfloat16):
        qkv = [x.to("meta", dtype) for x in inputs()]
        if backend == "flash":
            with pytest.raises(ValueError, match="backend must be 'auto' or another one for this call, got 'flash'"):
                rl.attention(*qkv, scheme, backend=backend)
        else:
            output, lse = rl.attention(*qkv, scheme, backend=backend, return_lse=True)
            assert (output.shape, output.dtype, output.device.type) == ((2, 4, 7, 5), dtype, "meta")
            assert (lse.shape, lse.dtype, lse.device.type) == ((2, 4, 7), torch.float32, "meta")
        if refusal(backend, "fake", scheme) is None:
            with FakeTensorMode() as mode:
                fake = [mode.from_tensor(x.to(dtype)) for x in inputs()]
                output, lse = rl.attention(*fake, scheme, backend=backend, return_lse=True)
                assert (output.shape, output.dtype, output.device.type) == ((2, 4, 7, 5), dtype, "cpu")
                assert (lse.shape, lse.dtype, lse.device.type) == ((2, 4, 7), torch.float32, "cpu")


@pytest.mark.parametrize("name", SCHEMES)
def test_copies_are_the_same_scheme(name: str) -> None:
    scheme, qkv = SCHEMES[name], inputs()
    for other in (copy.copy(scheme), copy.deepcopy(scheme), pickle.loads(pickle.dumps(scheme))):
        assert other == scheme
        assert hash(other) == hash(scheme)
        assert torch.equal(rl.attention(*qkv, other), rl.attention(*qkv, scheme))


@pytest.mark.parametrize("name", rl.METHODS)
def test_copies_are_the_same_method(name: str) -> None:
    windows = {"dim": 8, "visible_window": 4, "train_length": 8}
    rows: dict[str, dict[str, Any]] = {"hwfa": windows, "hfwa": windows, "hwfa2": {**windows, "window": 4}}
    rows["invleaky-moving"] = {"dim": 8, "windows": (4, 5), "slopes": (4,)}
    rows["self-extend"] = {"dim": 8, "window": 4, "group": 2}
    rows["streaming"] = {"dim": 8, "visible_window": 4}
    method = rl.METHODS[name](layers=2, **(rows.get(name) or {"dim": 8, **OPTIONS.get(name, {})}))
    for other in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert other == method
        assert hash(other) == hash(method)


# --- nothing to do ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["auto", "reference", "flash"])
@pytest.mark.parametrize("name", SCHEMES)
def test_no_queries_and_no_rows(name: str, backend: str) -> None:
    scheme = SCHEMES[name]
    if refusal(backend, "nothing", scheme) is not None:
        return
    q, k, v = inputs()
    for empty, options in (
        ((q[:, :, :0], k, v), {}),
        ((q[:, :, :0], k, v), {"lengths": torch.tensor([3, 9]), "document_ids": torch.arange(9) // 4}),
        ((q[:0], k[:0], v[:0]), {}),
        ((q[:0], k[:0], v[:0]), {"lengths": torch.tensor([], dtype=torch.int64)}),
    ):
        with pytest.raises(ValueError, match="'flex': PyTorch's FlexAttention takes no call without queries or rows"):
            rl.attention(*empty, scheme, backend="flex", **options)
        found = pull(lambda *qkv, options=options: rl.attention(*qkv, scheme, backend=backend, **options), *empty)
        assert found[0].shape == (*empty[0].shape[:3], 5)
        assert all(not x.any() for x in found)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((1, 2, 3, 0), (1, 2, 3, 0), (1, 2, 3, 4)), "q must have at least one head and one channel"),
        (((1, 0, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)), "q must have at least one head and one channel"),
        (((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 0)), "v must have at least one channel"),
        (((1, 2, 0, 4), (1, 2, 0, 4), (1, 2, 0, 4)), "k must have at least one head and one token"),
    ],
)
def test_sizes_that_mean_nothing(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    for backend in ("auto", "reference", "flash", "flex"):
        with pytest.raises(ValueError, match=message):
            rl.attention(*(torch.zeros(shape) for shape in shapes), Scheme(), backend=backend)
