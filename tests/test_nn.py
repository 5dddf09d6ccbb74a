"""The modules as PyTorch handles them: made on the meta device, reset, split over processes by FSDP."""

from __future__ import annotations

import copy
import pickle
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


# --- added to the tokens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learned", [False, True])
def test_sinusoids_are_added(learned: bool) -> None:
    x = torch.randn(2, 5, 8)
    embed = rl.nn.SinusoidalEmbedding(8, base=100.0, scale=0.5, learned=learned)
    for positions in (None, torch.arange(5), torch.tensor([0, 7, 3, 90_000, 2]), torch.rand(2, 5).double()):
        vectors = rl.sinusoidal_encoding(torch.arange(5) if positions is None else positions, 8, 100.0)
        assert torch.equal(embed(x, positions), x + 0.5 * vectors)
    assert [name for name, _ in embed.named_parameters()] == ["scale"] * learned
    assert list(embed.state_dict()) == ["scale"] * learned


def test_a_scale_is_learned_and_reset() -> None:
    """Its gradient is the encoding's share in that of the sum, also after a call without gradients made the table."""
    embed, x = rl.nn.SinusoidalEmbedding(8, scale=0.5, learned=True), torch.randn(2, 5, 8)
    with torch.inference_mode():
        embed(x)
    embed(x).square().sum().backward()
    vectors = rl.sinusoidal_encoding(torch.arange(5), 8)
    assert embed.scale.grad is not None
    assert torch.allclose(embed.scale.grad, (2 * (x + 0.5 * vectors) * vectors).sum().reshape(1))
    torch.optim.SGD(embed.parameters(), lr=0.1).step()
    assert embed.scale.item() != 0.5
    embed.reset_parameters()
    assert embed.scale.item() == 0.5


def test_the_table_doubles_and_stays_out_of_the_way() -> None:
    embed = rl.nn.SinusoidalEmbedding(8)
    rows = []
    for length in (10, 11, 20, 21, 100, 7):
        assert torch.equal(embed(torch.zeros(length, 8)), rl.sinusoidal_encoding(torch.arange(length), 8))
        rows.append(len(embed._table))
    assert rows == [10, 20, 20, 40, 100, 100]
    embed.to(torch.bfloat16)
    assert embed._table.dtype == torch.float32
    assert embed(torch.zeros(9, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert embed(torch.zeros(9, 8, device="meta")).is_meta
    assert embed(torch.zeros(9, 8)).device.type == "cpu"
    for copied in (copy.deepcopy(embed), pickle.loads(pickle.dumps(embed))):
        assert copied._table is None
        assert torch.equal(copied(torch.zeros(9, 8)), embed(torch.zeros(9, 8)))


def test_no_fake_table_stays_behind() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    embed = rl.nn.SinusoidalEmbedding(8)
    with FakeTensorMode():
        assert embed(torch.zeros(9, 8)).shape == (9, 8)
    assert torch.equal(embed(torch.zeros(9, 8)), rl.sinusoidal_encoding(torch.arange(9), 8))


def test_rows_are_added() -> None:
    embed, x = rl.nn.LearnedEmbedding(9, 8), torch.randn(2, 5, 8)
    assert embed.weight.std().item() == pytest.approx(0.02, rel=0.3)
    assert torch.equal(embed(x), x + embed.weight[:5])
    places = torch.tensor([[0, 8, 3, 3, 1], [1, 2, 3, 4, 5]])
    assert torch.equal(embed(x, places), x + embed.weight[places])
    between = embed(x[:, :2], torch.tensor([0.25, 8.0], dtype=torch.float64))
    wanted = torch.stack((0.75 * embed.weight[0] + 0.25 * embed.weight[1], embed.weight[8]))
    assert torch.allclose(between, x[:, :2] + wanted)
    embed(x).sum().backward()
    assert torch.equal(embed.weight.grad, 2.0 * (torch.arange(9) < 5)[:, None].expand(9, 8))


@pytest.mark.parametrize("rows", [1, 5, 9, 17, 40])
def test_a_stretched_table_is_that_of_interpolate(rows: int) -> None:
    embed = rl.nn.LearnedEmbedding(9, 8)
    old = embed.weight.detach().double()
    embed.resize(rows)
    peer = nn.functional.interpolate(old.T[None], size=rows, mode="linear", align_corners=True)[0].T
    assert embed.weight.shape == (rows, 8)
    assert torch.allclose(embed.weight.double(), peer, atol=1e-7)
    assert embed(torch.zeros(rows, 8)).shape == (rows, 8)


def test_a_table_keeps_its_rows() -> None:
    embed = rl.nn.LearnedEmbedding(9, 8, std=0.5)
    old = embed.weight.detach().clone()
    embed.weight.requires_grad_(False)
    embed.resize(2000, "keep")
    assert torch.equal(embed.weight[:9], old)
    assert embed.weight[9:].std().item() == pytest.approx(0.5, rel=0.05)
    assert not embed.weight.requires_grad
    embed.resize(4, "keep")
    assert torch.equal(embed.weight, old[:4])


def test_added_modules_are_printed() -> None:
    assert repr(rl.nn.SinusoidalEmbedding(8)) == "SinusoidalEmbedding(8)"
    assert repr(rl.nn.SinusoidalEmbedding(8, base=100.0)) == "SinusoidalEmbedding(8, base=100.0)"
    assert repr(rl.nn.LearnedEmbedding(9, 8, std=0.1)) == "LearnedEmbedding(9, 8, std=0.1)"


@pytest.mark.parametrize("embed", [rl.nn.SinusoidalEmbedding(8, learned=True), rl.nn.LearnedEmbedding(9, 8)])
def test_added_modules_compile(embed: nn.Module) -> None:
    compiled, x = torch.compile(embed, backend="eager", fullgraph=True), torch.randn(2, 5, 8)
    for positions in (None, torch.arange(5), torch.arange(5).double() / 2):
        assert torch.equal(compiled(x, positions), embed(x, positions))


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
