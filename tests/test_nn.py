"""The modules as PyTorch handles them: made on the meta device, reset, split over processes by FSDP."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import rope_lessons as rl
from rope_lessons.kinds import KINDS
from tests.test_bad_inputs import OPTIONS

ROPE = rl.scheme("rope", dim=8)
LEARNABLE = [kind for kind, row in KINDS.items() if not row.needs_length]


class Model(nn.Module):
    """A projection, and attention that learns its frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48, bias=False)
        self.attention = rl.nn.Attention(ROPE, learned_frequencies=True)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return self.attention(q, k, v)


def test_printed() -> None:
    """``print(model)`` shows the schemes."""
    rerope, spec = rl.scheme("rerope", dim=8, window=4), rl.FrequencySpec("pi", dim=8, factor=2)
    assert repr(rl.nn.Attention(rerope)) == f"Attention({rerope!r})"
    learned = f"  {rerope!r}\n  (learned): LearnedFrequencies(FrequencySpec('rope', dim=8))\n"
    assert repr(rl.nn.Attention(rerope, learned_frequencies=True)) == f"Attention(\n{learned})"
    assert repr(rl.nn.RotaryEmbedding(spec)) == f"RotaryEmbedding({spec!r})"
    rotary = rl.nn.RotaryEmbedding(spec, layout="interleaved", scale=1.5)
    assert repr(rotary) == f"RotaryEmbedding({spec!r}, layout='interleaved', scale=1.5)"
    assert repr(rl.nn.LearnedFrequencies(spec)) == f"LearnedFrequencies({spec!r})"


# --- without data, and with it again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LEARNABLE)
def test_frequencies_come_back_from_the_meta_device(kind: str) -> None:
    """``to_empty`` gives memory that holds anything; zeros in it would be no positions at all, without a word."""
    spec = rl.FrequencySpec(kind, dim=8, **OPTIONS[kind])
    with torch.device("meta"):
        made = rl.nn.RotaryEmbedding(spec, learned=True)
    moved = rl.nn.RotaryEmbedding(spec, learned=True).to("meta")
    for module in (made, moved):
        assert module.learned.value.is_meta
        module.to_empty(device="cpu")
        assert torch.equal(module.learned.value, spec())
        assert module.learned.value.requires_grad


def test_a_state_is_loaded_after_the_meta_device() -> None:
    trained = Model()
    with torch.no_grad():
        trained.attention.learned.value.mul_(0.5)
    for assign in (False, True):
        with torch.device("meta"):
            model = Model()
        if not assign:
            model.to_empty(device="cpu")
        model.load_state_dict(trained.state_dict(), assign=assign)
        assert torch.equal(model.attention.learned.value, 0.5 * ROPE.frequencies())


def test_reset_parameters() -> None:
    """The frequencies that training began with, in the same parameter, as optimizers hold it."""
    model, x = Model(), torch.randn(2, 5, 16)
    value = model.attention.learned.value
    model(x).square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert not torch.equal(value, ROPE.frequencies())
    model.apply(lambda module: module.reset_parameters() if hasattr(module, "reset_parameters") else None)
    assert model.attention.learned.value is value
    assert torch.equal(value, ROPE.frequencies())


# --- split over processes --------------------------------------------------------------------------------------------


@pytest.fixture
def _group_of_one(tmp_path: Path) -> Iterator[None]:
    if not dist.is_available():
        pytest.skip("this PyTorch is built without torch.distributed")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        pytest.skip("needs PyTorch 2.6")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.usefixtures("_group_of_one")
def test_fully_sharded() -> None:
    """A module with learned frequencies is a group of its own: its parameter is float64, and a group has one dtype."""
    from torch.distributed.fsdp import fully_shard

    model, x = Model(), torch.randn(2, 5, 16)
    alone, whole = copy.deepcopy(model), fully_shard(copy.deepcopy(model))
    with pytest.raises(AssertionError, match="uniform original parameter dtype"):
        whole(x)
    fully_shard(model.attention)
    fully_shard(model)
    for trained in (model, alone):
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        for _ in range(3):
            trained(x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert not torch.equal(alone.attention.learned.value, ROPE.frequencies())
    for found, wanted in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.equal(found.full_tensor(), wanted)


@pytest.mark.usefixtures("_group_of_one")
def test_fully_sharded_without_data() -> None:
    """As large models are made: on the meta device, split, and only then given memory."""
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = Model()
    fully_shard(model.attention)
    fully_shard(model)
    model.to_empty(device="cpu")
    learned = model.attention.learned
    assert torch.equal(learned.value.full_tensor(), ROPE.frequencies())
    with torch.no_grad():
        learned.value.mul_(0.5)
    learned.reset_parameters()
    assert torch.equal(learned.value.full_tensor(), ROPE.frequencies())
