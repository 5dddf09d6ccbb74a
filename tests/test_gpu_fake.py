"""Every step of the GPU queue on a CUDA device that is not there: fake tensors have a device and no numbers.

What they cannot show stays open until a card runs it: compiled code, PyTorch's own backward, and processes of their
own (pytest, memory, a notebook), which the queue starts as it does on a CPU.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import rope_lessons as rl
from experiments.benchmarks import timing as clock
from experiments.gpu import draws, engine, grammars, right, rotation, timing
from experiments.gpu.plan import queue
from experiments.gpu.step import Setting
from rope_lessons.engine import kernels
from rope_lessons.lab import speed as rates
from tests import on_device
from tests.test_fake_devices import CUDA, Watch, assert_on_cuda, watch

__all__ = ["watch"]
CARDS = {"H200": kernels.Card((9, 0)), "T4": kernels.Card((7, 5))}
# Where else the rest is tried: a notebook and pytest by test_gpu_queue.py, peaks of memory by test_benchmarks.py; the
# trainings by test_lab_training and test_lab_evaluation of test_fake_devices.py, since a checkpoint wants numbers.
ELSEWHERE = {"notebooks.one", "right.tests", "engine.memory", "trainings.one"}


def name_of(run: Callable[..., Any]) -> str:
    function = run.func if isinstance(run, partial) else run
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


STEPS = {step.name: step for step in queue("tiny", "cuda") if name_of(step.run) not in ELSEWHERE}


def zeros(outputs: Any, inputs: Any, *more: Any, **options: Any) -> tuple[Tensor, ...]:
    """In place of PyTorch's own backward, which wants a real device."""
    return tuple(torch.zeros_like(x) for x in ([inputs] if isinstance(inputs, Tensor) else inputs))


def moved(module: torch.nn.Module, device: torch.device, dtype: torch.dtype | None = None) -> torch.nn.Module:
    """Module.to cannot exchange fake parameters."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            own = torch.empty_like(parameter, device=device, dtype=dtype)
            setattr(part, name, torch.nn.Parameter(own))
    return module


@pytest.fixture
def compared() -> list[Tensor]:
    """What was held against an oracle."""
    return []


@pytest.fixture
def setting(tmp_path: Path, watch: Watch, compared: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> Setting:
    """A card in fake tensors: nothing is compiled, nothing is waited for, and no number is compared."""

    def compare(tally: Any, called: str, what: str, got: Tensor, *rest: Any, **how: Any) -> None:
        compared.append(got)

    answer = SimpleNamespace(output=None, lse=None, angle=0.0, grads=Everything(), bounds=Everything())
    card = SimpleNamespace(total_memory=2**37, name="a card")
    for owner, name, value in (
        (torch.autograd, "grad", zeros), (torch.nn.Module, "to", moved), (torch, "compile", lambda f, **options: f),
        (torch, "equal", lambda a, b: True), (torch.cuda, "get_device_properties", lambda device: card),
        (torch.cuda, "set_sync_debug_mode", lambda mode: None),
        (torch.cuda, "get_device_name", lambda device: "a card"),
        *((owner, name, lambda device: None) for owner, name in ((clock, "wait"), (timing, "wait"), (rates, "_wait"))),
        (timing, "peak_bytes", lambda call, device: 0), (timing, "profile", lambda call, device, what: []),
        (engine, "by_flex", lambda dim: engine.plain_rope), (kernels, "_flash_slides", lambda: True),
        (right.calls, "expected", lambda case, inputs: answer), (right.calls, "compare", compare),
        (right.oracle, "attention", lambda *q, **options: answer), (right, "compare", compare),
        (right.on_device, "close", lambda found, wanted, dtype: compared.extend(found)),
        (right, "check_step", lambda found, what, step, device: step(device)), (draws, "case", without_documents),
        (kernels, "_card", lambda device: with_switches(CARDS["H200"])),
        (grammars, "train", lambda training, *rest, **options: training.advance() is not None),
        (grammars.Training, "resume", lambda training, path: False),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, value)
    return Setting(CUDA, "tiny", tmp_path, time.time() + 600)


def with_switches(card: kernels.Card) -> kernels.Card:
    """As ``sdpa_kernel`` has set them."""
    on = torch.backends.cuda
    switches = on.flash_sdp_enabled(), on.cudnn_sdp_enabled(), on.mem_efficient_sdp_enabled()
    return kernels.Card(card.capability, *switches)


draw = draws.case


def without_documents(*arguments: Any, **options: Any) -> Any:
    """Where one ends is a matter of numbers; test_fake_devices.py makes some up."""
    return replace(draw(*arguments, **options), documents=None, padding=None)


class Everything(dict[str, Any]):
    """Any name has None."""

    def __missing__(self, name: str) -> None:
        return None


def test_every_kind_of_step_is_here_or_elsewhere() -> None:
    kinds = {name_of(step.run) for step in queue("full", "cuda")}
    assert kinds == {name_of(step.run) for step in STEPS.values()} | ELSEWHERE


# FlexAttention is compiled, or runs without going through Watch, and the other dtypes take the same way as bfloat16 or
# that of a T4: test_flex and test_flash of test_fake_devices.py have them.
LEFT_OUT = ("right/flex", "right/calls/float16", "right/calls/float32", "chomsky/")
TRIED = [*(name for name in STEPS if not name.startswith(LEFT_OUT)), "chomsky/even_pairs/rnn/none"]


@pytest.mark.parametrize("name", TRIED)
def test_a_step(name: str, setting: Setting, compared: list[Tensor]) -> None:
    found = STEPS[name].run(setting)
    assert found.wrong == []
    json.dumps(found.tables)
    reasons = {row["what"]: row["why"] for row in found.tables.get("could_not", ())}
    for library in rotation.PEERS:
        reasons.pop(library, None)
    assert reasons == {}
    if name.startswith("right/") and name.split("/")[1] in ("kernels", "calls", "caches"):
        assert len(compared) > 10
        assert_on_cuda([x for x in compared if x is not None])


@pytest.mark.parametrize("name", ["engine/speed/64/d8/2-2", "engine/decode/48/1"])
def test_a_step_on_a_t4(name: str, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute capability 7.5: 16 bits are float16."""
    monkeypatch.setattr(kernels, "_card", lambda device: with_switches(CARDS["T4"]))
    assert engine.half(CUDA) == torch.float16
    found = STEPS[name].run(setting)
    assert found.wrong == []
    rows = [row for rows in found.tables.values() for row in rows if "dtype" in row]
    assert {row["dtype"] for row in rows} == {"torch.float16"}


def test_what_a_t4_cannot_do_is_said(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_card", lambda device: with_switches(CARDS["T4"]))
    for name in ("flash kernel, float16", "cudnn kernel, bfloat16", "efficient kernel, bfloat16", "near band, sliding"):
        assert on_device.CHECKS[name](CUDA) is not None


@pytest.mark.parametrize(("dtype", "kernel"), [(torch.float16, "efficient"), (torch.float32, "efficient")])
def test_what_a_notebook_gets_on_a_t4(dtype: torch.dtype, kernel: str, setting: Setting, monkeypatch: Any) -> None:
    """Colab's card: what ``auto`` takes for a long text there, and what it says of bfloat16."""
    monkeypatch.setattr(kernels, "_card", lambda device: CARDS["T4"])
    x = torch.empty(1, 2, 2048, 64, device=CUDA, dtype=dtype)
    for scheme in (rl.scheme("rope", dim=64), rl.scheme("rerope", dim=64, window=256)):
        assert rl.explain_backend(x, x, x, scheme).startswith("flash: ")
        assert "memory-efficient kernel" in rl.explain_backend(x, x, x, scheme)
        assert_on_cuda(rl.attention(x, x, x, scheme))
    assert kernels.choose_kernel(CUDA, dtype, 64)[0] == kernel
    wrong = x.to(torch.bfloat16)
    with pytest.raises(
        ValueError, match=r"bfloat16 kernels need compute capability 8.0, this card has 7.5; use float16"
    ):
        rl.attention(wrong, wrong, wrong, rl.scheme("rope", dim=64), backend="flash")
