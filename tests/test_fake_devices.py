"""Everything on a CUDA device that is not there: a tensor on the CPU beside one on CUDA is found without any GPU.

PyTorch's fake tensors have a device, a dtype and a shape, and no numbers. What they do not look at, ``Watch`` does: the
device of a generator and of an index, and values that are read, for which the host would wait. Where numbers decide
(``item``, an index by a mask) it makes some up.

Not covered: the backward of PyTorch's own operations (its engine wants a real device), and compilation, so
FlexAttention. The backward of ours is called by hand wherever its forward is.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import rope_lessons as rl
from experiments.radix import attend_stale
from rope_lessons import (
    METHODS,
    FrequencySpec,
    LogN,
    Scheme,
    axes,
    biases,
    circles,
    entropy,
    local,
    mixed_radix,
    radix,
    random_positions,
    rerope,
    sinusoidal,
)
from rope_lessons.chomsky import TASKS
from rope_lessons.chomsky.grid import CONFIGURATIONS, Job
from rope_lessons.chomsky.training import Protocol, Training
from rope_lessons.engine import flex, kernels
from rope_lessons.kinds import KINDS
from rope_lessons.lab import sizes, training
from rope_lessons.lab.rows import OWN
from rope_lessons.lab.table import finished, scoring
from rope_lessons.lab.table.passkey import passkey_windows
from rope_lessons.lab.text import repeated_windows
from rope_lessons.models import byte_lm, language_model, masked_lm, pictures, recall
from rope_lessons.models.position_bias import BIASES
from rope_lessons.schemes import SCHEMES
from rope_lessons.scoreboard.recipe import Recipe as ScoreboardRecipe
from rope_lessons.streaming import streaming_attention
from tests.public import PUBLIC

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
FOUND = 5  # how many places a mask is made up to have
VALUES = (aten._local_scalar_dense.default, aten.item.default, aten.is_nonzero.default, aten.equal.default)
INDEXED = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default)


class Watch(TorchDispatchMode):
    """Looks at every operation on fake tensors. ``reads`` lists the operations for which the host waits. ``answers`` is
    what the next questions for a truth get, then False; ``places`` how many places the next masks have, then FOUND."""

    done: ClassVar[set[Any]] = set()  # calls of our operations whose insides were looked at

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.answers: list[bool] = []
        self.places: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in VALUES:
            return self.value(func, args)
        if func is aten.nonzero.default:
            self.note(func, args)
            return args[0].new_zeros((FOUND, args[0].ndim), dtype=torch.int64)
        if func is aten.exponential_.default:  # PyTorch's fake one takes no generator
            return args[0]
        if func in INDEXED:
            args = (args[0], self.indices(func, *args[:2]), *args[2:])
        if func.namespace == "rope_lessons":
            self.own(func, args, kwargs)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.device.type == "cpu":
            self.note(func, args)
        return result

    def note(self, func: Any, args: Any) -> None:
        if any(isinstance(x, Tensor) and x.device.type == "cuda" for x in args):
            self.reads.append(str(func))

    def value(self, func: Any, args: Any) -> Any:
        self.note(func, args)
        if args[0].dtype == torch.bool or func in (aten.equal.default, aten.is_nonzero.default):
            return self.answers.pop(0) if self.answers else False
        return 1.0 if args[0].is_floating_point() else 1

    def indices(self, func: Any, x: Tensor, indices: Any) -> list[Any]:
        found: list[Any] = []
        for index in indices:
            if index is not None and index.device.type not in ("cpu", x.device.type):
                raise RuntimeError(f"{func}: an index on {index.device} for a tensor on {x.device}")
            if index is not None and index.dtype == torch.bool:
                self.note(func, (index,))
                places = self.places.pop(0) if self.places else FOUND
                found += [index.new_zeros(places, dtype=torch.int64) for _ in range(index.ndim)]
            else:
                found.append(index)
        return found

    def own(self, func: Any, args: Any, kwargs: Any) -> None:
        """An operation of the package: what it does inside, and its backward."""
        named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | dict(kwargs)
        key = repr({name: _shape(value) for name, value in named.items()}), kernels.KERNELS["flash"].slides()
        if key in self.done:
            return
        self.done.add(key)
        name = func._schema.name
        with self:
            output, lse = OPDEFS[name]._init_fn(*named.values())
            backward = getattr(torch.ops.rope_lessons, f"{func._opname}_backward").default
            known = {**named, "grad": output, "grad_lse": lse, "output": output, "lse": lse}
            wanted = [known[argument.name] for argument in backward._schema.arguments]
            assert_on_cuda([output, lse, *OPDEFS[f"{name}_backward"]._init_fn(*wanted)])


def _shape(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype, value.device
    return [_shape(item) for item in value] if isinstance(value, (list, tuple)) else value


class Sources(TorchFunctionMode):
    """A generator must live where it draws, which fake tensors do not look at."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for source in (x for x in (*args, *(kwargs or {}).values()) if isinstance(x, Generator)):
            if isinstance(result, Tensor) and source.device.type != result.device.type:
                raise RuntimeError(f"{func} draws on device {result.device} from a generator on {source.device}")
        return result


class Generator(torch.Generator):
    """Says that it is on the device that was asked for, whose own there is none of."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls)
        made.asked = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.asked


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Fake tensors, a card with FlashAttention, and gradients of zero."""
    with _guard():
        monkeypatch.setattr(kernels, "_card", lambda device: kernels.Card((8, 0)))
        for name in ("flash", "cudnn", "efficient"):
            monkeypatch.setitem(kernels.KERNELS, name, kernels.KERNELS[name]._replace(slides=lambda: False))
        monkeypatch.setattr(torch, "Generator", Generator)
        monkeypatch.setattr(nn.Module, "to_empty", lambda module, device: moved(module))
        monkeypatch.setattr(torch.autograd, "grad", lambda outputs, inputs: (torch.zeros_like(inputs),))
        monkeypatch.setattr(Tensor, "backward", lambda loss: None)
        with FakeTensorMode(allow_non_fake_inputs=True), Sources(), Watch() as watching:
            yield watching


class _guard:
    """A PyTorch without CUDA has no guard for its devices, and many operations ask for one. FakeTensorMode puts in an
    idle guard where PyTorch has CUDA and the machine has not; here the CPU's idle one is lent, and taken back."""

    def __enter__(self) -> None:
        self.registry = None
        if torch.version.cuda is None:
            library = ctypes.CDLL(str(next((Path(torch.__file__).parent / "lib").glob("libc10.*"))))
            symbol = "_ZN3c104impl26device_guard_impl_registryE"  # c10::impl::device_guard_impl_registry
            self.registry = (ctypes.c_void_p * 2).in_dll(library, symbol)  # by type of device: CPU, CUDA, …
            self.registry[1] = self.registry[0]

    def __exit__(self, *_: object) -> None:
        if self.registry is not None:
            self.registry[1] = None


def tensors(found: Any) -> Iterator[Tensor]:
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, dict):
        yield from tensors(list(found.values()))
    elif isinstance(found, (list, tuple)):
        for item in found:
            yield from tensors(item)


def assert_on_cuda(found: Any) -> None:
    some = list(tensors(found))
    assert some
    assert all(x.device == CUDA for x in some), [x.device for x in some]


def numbers(*shape: int, **options: Any) -> Tensor:
    return torch.empty(shape, **{"device": CUDA, **options})


def whole(*shape: int) -> Tensor:
    return torch.zeros(shape, device=CUDA, dtype=torch.int64)


def moved(module: nn.Module) -> nn.Module:
    """On CUDA: Module.to cannot exchange fake parameters."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            setattr(part, name, nn.Parameter(torch.empty_like(parameter, device=CUDA)))
    return module


def omega(dim: int = 8) -> Tensor:
    return numbers(dim // 2, dtype=torch.float64)


# --- public names ----------------------------------------------------------------------------------------------------

P = partial(whole, 9)  # positions, counts, indices
GIVEN: dict[str, dict[str, Any]] = {  # what each kind of frequencies needs
    "rope": {},
    **{kind: {"factor": 2} for kind in ("pi", "ntk-old", "ntk-fixed", "ntk-aware", "ntk-mixed")},
    **{kind: {"factor": 2, "train_length": 64} for kind in ("dynamic-ntk", "ntk-by-parts", "yarn", "llama3")},
    "proportional": {"share": 0.5, "factor": 2},
    "longrope": {"short_factor": [1] * 4, "long_factor": [2] * 4, "train_length": 64},
}
ROWS: dict[str, dict[str, Any]] = {  # and each name of the table
    **{kind: {"dim": 8, **options} for kind, options in GIVEN.items()},
    "longrope": {"dim": 8, **GIVEN["longrope"], "factor": 2},
    "nope": {},
    "alibi": {},
    "window": {"dim": 8, "visible_window": 4},
    "lambda": {"dim": 8, "visible_window": 4, "sinks": 1},
    "rerope": {"dim": 8, "window": 4},
    "leaky-rerope": {"dim": 8, "window": 4, "slope": 0.25},
    "invleaky": {"dim": 8, "window": 4, "slope": 16},
}
METHOD_ROWS: dict[str, dict[str, Any]] = {  # and each method that is more than a name of the table
    "random-positions": {"max_length": 64},
    "equal-mean": {},
    "skip-positions": {"max_length": 64},
    "hwfa": {"visible_window": 4, "train_length": 16},
    "hfwa": {"visible_window": 4, "train_length": 16},
    "hwfa2": {"visible_window": 4, "window": 8, "train_length": 16},
    "invleaky-moving": {"windows": (4, 5), "slopes": (16,)},
    "self-extend": {"window": 4, "group": 2},
    "streaming": {"visible_window": 4},
}


def qkv(length: int = 9, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(numbers(2, heads, length, 8, dtype=dtype) for heads in (4, 2, 2))  # type: ignore[return-value]


def drawn(sampler: Callable[..., Tensor], **options: Any) -> list[Tensor]:
    """From the global generator, and from one on the device."""
    return [sampler(5, batch=2, device=CUDA, **options), sampler(5, generator=torch.Generator(CUDA), **options)]


def cached(scheme: Scheme, **options: Any) -> list[Tensor]:
    """A prompt and two steps, a chunk, a refused draft, beams, and a new text."""
    q, k, v = qkv()
    cache, found = rl.KVCache(scheme, **options), []
    for low, high in ((0, 5), (5, 6), (6, 7), (7, 9)):
        new = (x[:, :, low:high] for x in (q, k, v))
        found.append(rl.attention(*new, scheme, cache=cache))
    if scheme.visible_window is None:
        cache.truncate(6)
    cache.reorder(whole(2))
    if options.get("max_length") is None:
        cache.extend(k[:, :, :1], v[:, :, :1])
        found.append(rl.attention(q[:, :, :1], k[:, :, :1], v[:, :, :1], scheme, cache=cache))
    cache.reset()
    return [*found, rl.attention(q[:, :, :5], k[:, :, :5], v[:, :, :5], scheme, cache=cache)]


def of_spec(kind: str) -> list[Tensor]:
    spec = FrequencySpec(kind, dim=8, **GIVEN[kind])
    return [spec(length, CUDA) for length in (9, 4096)]


def of_method(name: str) -> list[Tensor]:
    """Train and test plans, with the positions that the method draws."""
    method, found = METHODS[name](layers=2, dim=8, **METHOD_ROWS[name]), []
    for plan, draw in ((method.train, method.train_positions), (method.test, method.test_positions)):
        where = None if draw is None else draw(9, device=CUDA)
        given = {"q_positions": where, "k_positions": where, "length": None if where is None else 9}
        found += [rl.attention(*qkv(), layer, **given) for layer in plan]
    if method.attend is not None:
        found += [method.attend(*qkv(), layer) for layer in method.test]
    return found


def of_modules() -> list[Tensor]:
    rotary = moved(rl.nn.RotaryEmbedding(FrequencySpec("rope", dim=8), learned=True))
    attention = moved(rl.nn.Attention(rl.scheme("rerope", dim=8, window=4), learned_frequencies=True))
    grown = rl.nn.RotaryEmbedding(FrequencySpec("dynamic-ntk", dim=8, factor=2, train_length=4))
    sinusoids, table = (moved(m) for m in (rl.nn.SinusoidalEmbedding(8, learned=True), rl.nn.LearnedEmbedding(9, 8)))
    q, k, v = qkv()
    added = [module(q, where) for module in (sinusoids, table) for where in (None, P(), P().double())]
    table.resize(20)
    return [rotary(q), rotary(q, P()), grown(q), grown(q, P(), length=9), attention(q, k, v), *added, table(q)]


def called(function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
    """A call whose arguments are made when it is made: fake tensors live in their mode. What can be called makes an
    argument, unless it is wanted itself."""

    def call() -> Any:
        made = [x() if isinstance(x, partial) else x for x in arguments]
        return function(*made, **{name: x() if isinstance(x, partial) else x for name, x in options.items()})

    return call


OMEGA, X = partial(omega), partial(numbers, 2, 4, 9, 8)
AWAY, SLANTED = partial(whole, 9, 9), partial(numbers, 2, 4, dtype=torch.float64)
ON = {"device": CUDA}
CALLS: dict[str, Callable[[], Any]] = {
    "rope_frequencies": called(rl.rope_frequencies, 8, **ON),
    "proportional_frequencies": called(circles.proportional_frequencies, 8, 0.5, 2, **ON),
    "pi_frequencies": called(rl.pi_frequencies, 8, 2, **ON),
    "ntk_frequencies": lambda: [rl.ntk_frequencies(8, 2, variant=v, **ON) for v in ("old", "fixed", "aware")],
    "mixed_radix_frequencies": called(rl.mixed_radix_frequencies, 8, 2, **ON),
    "dynamic_ntk_frequencies": called(rl.dynamic_ntk_frequencies, 8, 9, 4, 2, **ON),
    "ntk_by_parts_frequencies": called(rl.ntk_by_parts_frequencies, 8, 2, 64, **ON),
    "yarn_frequencies": called(rl.yarn_frequencies, 8, 2, 64, **ON),
    "llama3_frequencies": called(rl.llama3_frequencies, 8, 2, 64, **ON),
    "longrope_frequencies": called(rl.longrope_frequencies, 8, [1] * 4, [2] * 4, 9, 4, **ON),
    "turns": called(circles.turns, OMEGA, 64),
    "sinusoidal_encoding": lambda: [
        rl.sinusoidal_encoding(P(), 8), rl.sinusoidal_encoding(P(), 8, frequencies=omega())
    ],
    "sinusoidal_kernel": called(sinusoidal.sinusoidal_kernel, P, OMEGA),
    "rotary_table": called(rl.rotary_table, P, OMEGA),
    "rotate": lambda: rl.rotary.rotate(X(), *rl.rotary_table(P(), omega()), layout="half"),
    "apply_rotary": lambda: [
        rl.apply_rotary(X(), where, omega(), layout=layout)
        for where in (P(), whole(2, 9).double()) for layout in ("half", "interleaved")
    ],
    "interleaved_to_half": called(rl.interleaved_to_half, partial(numbers, 16, 3), 2, rotary_dim=4),
    "half_to_interleaved": called(rl.half_to_interleaved, partial(numbers, 16, 3), 2),
    "digits": called(radix.digits, P, 10, 3),
    "from_digits": lambda: [radix.from_digits(P(), 5), radix.from_digits(whole(2, 3), (5, 6, 7))],
    "mixed_digits": called(mixed_radix.mixed_digits, P, (60, 60)),
    "decode_position": called(radix.decode_position, partial(numbers, 9, 8), OMEGA),
    "leaky_distance": called(rerope.leaky_distance, P, 4, 0.5),
    "smooth_leaky_distance": called(rerope.smooth_leaky_distance, P, 4, 0.5, 1),
    "random_positions": lambda: drawn(random_positions.random_positions, max_length=64),
    "grid_positions": lambda: drawn(random_positions.grid_positions, max_length=64),
    "skip_positions": lambda: drawn(random_positions.skip_positions, max_length=64),
    "equal_mean_positions": lambda: [
        *drawn(random_positions.equal_mean_positions),
        *drawn(random_positions.equal_mean_positions, distribution="beta", max_length=64, alpha=0.5),
    ],
    "log_n_scale": called(rl.log_n_scale, P, 64, clip=True),
    "LogN": lambda: LogN(64)(P()),
    "attention_entropy": called(entropy.attention_entropy, X),
    "alibi_slopes": called(rl.alibi_slopes, 6, **ON),
    "alibi_channels": lambda: [
        local.alibi_channels(*qkv()[:2]),
        local.alibi_channels(*qkv()[:2], k_positions=P(), digits=2),
    ],
    "axial_positions": called(axes.axial_positions, (2, 3), **ON),
    "multimodal_positions": called(axes.multimodal_positions, [2, (1, 2, 3)], **ON),
    "axial_frequencies": called(axes.axial_frequencies, 8, 2, **ON),
    "sectioned_frequencies": lambda: [
        axes.sectioned_frequencies(omega(), (2, 1, 1), interleaved=mixed) for mixed in (False, True)
    ],
    "axial_table": called(axes.axial_table, partial(whole, 9, 2), SLANTED),
    "apply_axial": lambda: [
        axes.apply_axial(X(), where, SLANTED(), layout=layout)
        for where in (whole(9, 2), whole(2, 9, 2).double()) for layout in ("half", "interleaved")
    ],
    "distances": called(biases.distances, 4, 9, **ON),
    "t5_buckets": lambda: [biases.t5_buckets(whole(9, 9), causal=causal) for causal in (False, True)],
    "t5_bias": called(biases.t5_bias, AWAY, partial(numbers, 32, 4)),
    "shaw_bias": called(biases.shaw_bias, X, partial(numbers, 5, 8), AWAY),
    "kerple_log_bias": called(biases.kerple_log_bias, AWAY, partial(numbers, 4), partial(numbers, 4)),
    "kerple_power_bias": called(biases.kerple_power_bias, AWAY, partial(numbers, 4), partial(numbers, 4)),
    "sandwich_bias": called(biases.sandwich_bias, AWAY, 4),
    "fire_bias": lambda: [
        biases.fire_bias(whole(9, 9), moved(nn.Linear(1, 4)), rate=rate, threshold=threshold)
        for rate, threshold in ((0.1, 8.0), (numbers(), numbers(1)))
    ],
    "apply_xpos": lambda: [
        biases.apply_xpos(X(), X(), P(), omega(), layout=layout) for layout in ("half", "interleaved")
    ],
    "causal_mask": lambda: local.dense_mask(local.causal_mask, P(), P()),
    "window_mask": lambda: local.dense_mask(local.window_mask(3), P(), P()),
    "lambda_mask": lambda: local.dense_mask(local.lambda_mask(3, 1), P(), P()),
    "dense_mask": lambda: local.dense_mask(local.causal_mask, whole(2, 9), whole(2, 9)),
    "FrequencySpec": lambda: [of_spec(kind) for kind in KINDS],
    "scheme": lambda: [rl.attention(*qkv(), rl.scheme(name, **ROWS[name])) for name in SCHEMES],
    "Scheme": lambda: rl.attention(*qkv(), Scheme(FrequencySpec("rope", dim=4), causal=False, scale=LogN(4))),
    "METHODS": lambda: [of_method(name) for name in METHOD_ROWS],
    "plan_from_hf": lambda: [
        rl.attention(*qkv(), layer)
        for layer in rl.plan_from_hf({"num_hidden_layers": 1, "head_dim": 8, "rope_theta": 1e4, "sliding_window": 4})
    ],
    "attention": lambda: [
        rl.attention(*qkv(), rl.scheme("nope"), q_positions=whole(1, 9, 2), frequencies=SLANTED()),
        *[rl.attention(*qkv(), scheme, **given)
        for scheme in (rl.scheme("rerope", dim=8, window=4), rl.scheme("alibi"), rl.scheme("window", **ROWS["window"]))
        for given in (
            {"q_positions": P()}, {"lengths": whole(2)}, {"document_ids": P()}, {"bias": numbers(9, 9)},
            {"frequencies": numbers(4, 4, dtype=torch.float64)},
        )],
    ],
    "scheme_from_hf": lambda: rl.attention(
        *qkv(), rl.scheme_from_hf({"rope_type": "default", "rope_theta": 1e4}, head_dim=8)
    ),
    "KVCache": lambda: [
        cached(rl.scheme(name, **ROWS[name]), **options)
        for name, options in (
            ("rope", {"max_length": 9}),
            ("leaky-rerope", {"padding": whole(2)}),
            ("lambda", {"rollback": 2}),
            ("dynamic-ntk", {}),
            ("longrope", {"length": 64}),
            ("alibi", {"padding": whole(2), "max_length": 9}),
        )
    ],
    "nn": of_modules,
}  # fmt: skip
NO_TENSORS = {  # Python's numbers and settings, and distances made on the CPU
    "SCHEMES", "Plan", "Method", "plan_to_hf", "scheme_to_hf", "explain_backend", "covered_length", "invleaky_rule",
    "slope_for",
    "receptive_field", "trained_distances", "yarn_attention_factor", "longrope_attention_factor",
}  # fmt: skip
READ = {
    "attention",
    "digits",
    "from_digits",
    "mixed_digits",
    "decode_position",
    "KVCache",
}  # they check values, or where documents end


def test_every_public_name_is_here() -> None:
    assert CALLS.keys() | NO_TENSORS == PUBLIC.keys()
    assert not CALLS.keys() & NO_TENSORS
    assert GIVEN.keys() == KINDS.keys()
    assert ROWS.keys() == set(SCHEMES)
    assert METHOD_ROWS.keys() | set(SCHEMES) == METHODS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_public_names(name: str, watch: Watch) -> None:
    watch.answers = [True] if name == "decode_position" else []  # the frequencies are positive
    assert_on_cuda(CALLS[name]())
    assert bool(watch.reads) is (name in READ), watch.reads


def test_a_stray_tensor_is_found(watch: Watch) -> None:
    """What this file is for: each of these would go unseen on a CPU."""
    x = numbers(3)
    for stray in (
        lambda: x + torch.ones(3),
        lambda: torch.cat((x, torch.ones(3))),
        lambda: torch.ones(5)[whole(2)],
        lambda: x.masked_fill(torch.ones(3) > 0, 0.0),
        lambda: torch.randn(3, generator=torch.Generator(CUDA)),
        lambda: torch.randn(3, generator=torch.Generator(), device=CUDA),
    ):
        with pytest.raises(RuntimeError, match=r"device|cpu"):
            stray()
    assert not watch.reads
    x.cpu(), bool(x.sum() > 0), x[x > 0]
    assert len(watch.reads) == 3


# --- attention -------------------------------------------------------------------------------------------------------

KERNELS = {"flash": kernels.Card((8, 0)), "cudnn": kernels.Card((8, 0), flash=False), "efficient": kernels.Card((7, 5))}
VARIANTS = {
    "plain": Scheme(FrequencySpec("rope", dim=8)),
    "rerope": rl.scheme("rerope", dim=8, window=20, scale=LogN(16)),
    "leaky window": rl.scheme("leaky-rerope", dim=8, window=20, slope=0.5, visible_window=33),
    "window": rl.scheme("window", dim=8, visible_window=16),
    "bidirectional": rl.scheme("rope", dim=8, causal=False),
}


@pytest.mark.parametrize(
    ("kernel", "name"),
    [*(("flash", name) for name in VARIANTS), ("flash, sliding", "leaky window"), ("flash, sliding", "window"),
     *((kernel, name) for kernel in ("cudnn", "efficient") for name in ("plain", "leaky window"))],
)  # fmt: skip
def test_flash(kernel: str, name: str, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel of a card, forward and backward, with and without a sliding window of its own."""
    kernel, _, slides = kernel.partition(", ")
    monkeypatch.setattr(kernels, "_card", lambda device: KERNELS[kernel])
    monkeypatch.setitem(kernels.KERNELS, kernel, kernels.KERNELS[kernel]._replace(slides=lambda: bool(slides)))
    assert kernels.choose_kernel(CUDA, torch.float16, 8)[0] == kernel
    q, k, v = qkv(45, torch.float16)
    for given in ({}, {"lengths": whole(2)}, {"frequencies": numbers(4, 4, dtype=torch.float64)}):
        assert_on_cuda(rl.attention(q[:, :, 10:], k, v, VARIANTS[name], backend="flash", **given, return_lse=True))
    if name != "bidirectional":  # there, padding is read as a document
        assert not watch.reads


@pytest.mark.parametrize("name", VARIANTS)
def test_reference(name: str, watch: Watch) -> None:
    q, k, v = qkv(70, torch.bfloat16)
    for given in ({}, {"lengths": whole(2)}, {"document_ids": whole(2, 70)}, {"bias": numbers(70, 70)}):
        assert_on_cuda(rl.attention(q, k, v, VARIANTS[name], backend="reference", **given, return_lse=True))
    assert not watch.reads


@pytest.mark.parametrize("name", ["rerope", "leaky window", "alibi"])
def test_flex(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uncompiled: without a GPU there is nothing to compile for. Its operator does not go through ``Watch``."""
    monkeypatch.setattr(flex, "_fails", lambda call: None)
    module = flex._module()
    monkeypatch.setattr(flex, "_compiled", lambda: (module.flex_attention, module.create_block_mask))
    scheme = VARIANTS.get(name, rl.scheme("alibi"))
    with _guard(), FakeTensorMode(allow_non_fake_inputs=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it says that an uncompiled call is slow
        assert_on_cuda(rl.attention(*qkv(70), scheme, backend="flex", return_lse=True))
        assert_on_cuda(rl.attention(*qkv(70), scheme, backend="flex", document_ids=whole(2, 70), return_lse=True))


# --- the models of the chapters --------------------------------------------------------------------------------------

SMALL = byte_lm.Config(width=32, heads=2, hidden=32, length=16, batch=4, steps=2)
ENCODER = (rl.scheme("rope", dim=16, causal=False),) * 2
SAMPLERS = {
    "none": None,
    "random": partial(random_positions.random_positions, max_length=64),
    "equal mean": random_positions.equal_mean_positions,
    "grid": partial(random_positions.grid_positions, max_length=64),
    "skip": partial(random_positions.skip_positions, max_length=64),
}


def bytes_of(*shape: int) -> Tensor:
    return numbers(*shape, dtype=torch.uint8)


def byte_model() -> Any:
    return moved(byte_lm.build(SMALL, 0))


def masked_model(additive: bool = False) -> Any:
    return moved(masked_lm.build(SMALL, 0, ENCODER, additive))


def zero_gradients(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of a backward pass."""

    def backward(loss: Tensor) -> None:
        assert loss.device == CUDA
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)

    monkeypatch.setattr(Tensor, "backward", backward)


def test_byte_model(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    made = byte_model()
    zero_gradients(made, monkeypatch)
    assert len(byte_lm.train(made, bytes_of(500), SMALL, seed=0)) == 2
    assert_on_cuda(byte_lm.evaluate(made, whole(3, 33), 16, byte_lm.plans(SMALL, 4)["dynamic-ntk"]))
    stale = rl.scheme("dynamic-ntk", dim=16, factor=2, train_length=4)
    for attend in (attend_stale, byte_lm.attend_raw):
        assert_on_cuda(byte_lm.evaluate(made, whole(1, 5), 4, (stale,) * 2, attend))
    byte_lm.round_weights(made)


@pytest.mark.parametrize(
    ("sampler", "additive"), [("none", False), ("random", True), ("equal mean", False), ("grid", True)]
)
def test_masked_model(sampler: str, additive: bool, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    made = masked_model(additive)
    zero_gradients(made, monkeypatch)
    assert_on_cuda(masked_lm.hide(whole(3, 16), torch.Generator()))
    assert len(masked_lm.train(made, bytes_of(500), SMALL, 0, SAMPLERS[sampler], steps=1)) == 1
    assert_on_cuda(masked_lm.evaluate(made, whole(3, 33), 16, sampler=SAMPLERS[sampler]))


def test_recall(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    made = byte_model()
    zero_gradients(made, monkeypatch)
    for start in (True, False):
        text: Any = recall.RecallText(bytes_of(500), 0, start)
        assert_on_cuda(text[whole(4, 17)])
    assert len(byte_lm.train(made, text, SMALL, seed=0, steps=1)) == 1
    assert_on_cuda(recall.answered(made, whole(3, 40), 8, 32))
    lam = (rl.scheme("lambda", dim=16, visible_window=8, sinks=2),) * 2
    assert_on_cuda(recall.attention_weights(made, whole(2, 20), lam))
    assert_on_cuda(byte_lm.evaluate(recall.started(made), whole(3, 33), 16, lam, streaming_attention))


@pytest.mark.parametrize(("axes", "told"), [(1, True), (2, False), (0, False)])
def test_pictures(axes: int, told: bool, watch: Watch) -> None:
    config = pictures.PictureConfig(steps=1, batch=2)
    turned = numbers(axes, config.head_dim // 2, dtype=torch.float64) if axes else None
    made = moved(pictures.PictureModel(config, turned, learned=True, told=told))
    assert_on_cuda(pictures.loss(made, whole(2, 4, 5)))
    assert_on_cuda(pictures.looks(made, 4, 5, at=(2, 3), count=2))


# --- the lab ---------------------------------------------------------------------------------------------------------

TINY: dict[str, sizes.ModelConfig] = {
    "gau": sizes.GAUConfig(width=16, layers=2, key_dim=8),
    "transformer": sizes.TransformerConfig(width=16, layers=2, heads=2, kv_heads=1, hidden=16),
}
ROWS_OF_THE_TABLE = (OWN, "rope-logn-test", "dynamic-ntk", "rerope-w16", "lambda")
CORPUS: Any = SimpleNamespace(train=np.zeros(5000, np.uint8))


@pytest.mark.parametrize(
    ("size", "optimizer", "scheme"),
    [
        ("gau", "tiger", "rope"),
        ("transformer", "adamw", "equal-mean-logn"),
        ("transformer", "tiger", "random-positions"),
        ("gau", "adamw", "cosa"),
    ],
)
def test_lab_training(size: str, optimizer: str, scheme: str, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sizes.SIZES, "tiny", TINY[size])
    recipe = training.Recipe("tiny", scheme, train_length=32, batch=4, optimizer=optimizer, shift_keys=True)
    made = sizes.build(recipe.config, 0, recipe.row.method.train, CUDA)
    assert_on_cuda(list(made.parameters()))
    zero_gradients(made, monkeypatch)
    optimizing = training.OPTIMIZERS[optimizer](made, recipe)
    run = training.Run(recipe, CORPUS, training.Team(CUDA), training.Objective(made, recipe.row), optimizing)
    assert_on_cuda([run.step(number) for number in range(2)])
    assert not watch.reads  # losses are read a few steps at a time
    assert training._shared([numbers()], False, training.Team(CUDA)) == ([1.0], True)
    held = [value for value in training.state(made, optimizing).values() if value.ndim]
    assert_on_cuda(held)


FAKE_ROWS = ("sinusoidal-shifted", "learned-pi", "rope-per-head", "random-positions", *BIASES, "xpos")


@pytest.mark.parametrize("name", FAKE_ROWS)
def test_rows_of_the_scoreboard(name: str, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that no plan says whole, in training and at test."""
    tiny = replace(TINY["transformer"], kv_heads=2)
    monkeypatch.setitem(sizes.SIZES, "tiny", tiny)
    recipe = ScoreboardRecipe("tiny", name, home=32, train_length=32, batch=4)
    made = sizes.build(recipe.config, 0, recipe.row.method.train, CUDA)
    zero_gradients(made, monkeypatch)
    optimizing = training.OPTIMIZERS["adamw"](made, recipe)
    run = training.Run(recipe, CORPUS, training.Team(CUDA), training.Objective(made, recipe.row), optimizing)
    assert_on_cuda([run.step(number) for number in range(2)])
    assert not watch.reads
    assert_on_cuda(scoring.score(made, recipe.row, whole(3, 129)))


@pytest.mark.parametrize("size", TINY)
def test_lab_evaluation(size: str, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sizes.SIZES, "tiny", TINY[size])
    recipe = training.Recipe("tiny", train_length=32)
    made: Any = sizes.build(recipe.config, 0, recipe.row.method.train, CUDA)
    windows = whole(3, 129)
    some = [row for row in finished.rows_of(recipe) if row.name in ROWS_OF_THE_TABLE]
    assert len(some) == len(ROWS_OF_THE_TABLE)
    for row in some:
        assert_on_cuda(scoring.score(made, row, windows))
    drawing = training.Recipe("tiny", "random-positions", train_length=32).row
    assert_on_cuda(scoring.score(made, drawing, windows))
    natural = scoring.cut(windows, 64)
    assert_on_cuda([natural, repeated_windows(natural, 32), passkey_windows(windows, 0.5)])
    assert_on_cuda(language_model.generate(made, whole(2, 5), 3))
    assert_on_cuda(language_model.generate(made, whole(2, 5), 3, temperature=1.0, generator=torch.Generator(CUDA)))


# --- the Chomsky benchmark -------------------------------------------------------------------------------------------

PROTOCOL = Protocol(
    longest=6, batch=3, steps=6, max_position=64, test_lengths=(7,), samples=5, test_batch=4, width=16, layers=2,
    heads=4, feed_forward=24, hidden=8, cell_width=4, tape_cells=8, test_positions=("random", "grid"),
)  # fmt: skip


@pytest.mark.parametrize("configuration", [c for c in CONFIGURATIONS if c[2] != "random"], ids="-".join)
def test_chomsky_training(configuration: tuple[str, str, str], watch: Watch) -> None:
    jobs = [Job("reverse_string", *configuration, seed=seed, learning_rate=1e-3) for seed in (0, 1)]
    run = Training(jobs, PROTOCOL, CUDA)
    assert_on_cuda([run.weights, run.first_moment, run.advance(), run.weights])
    assert len(run.evaluate()) == 2 * (1 + ("random" in configuration[2]))


@pytest.mark.parametrize("name", TASKS)
def test_chomsky_tasks(name: str, watch: Watch) -> None:
    """Drawn on the device by a generator there, or on the CPU and moved."""
    for source in (torch.Generator(CUDA), torch.Generator(), None):
        watch.places = [FOUND] * 6 + [0, 0]  # brackets are split in rounds, until none is left
        assert_on_cuda(TASKS[name].sample(3, 12, source, device=CUDA))
