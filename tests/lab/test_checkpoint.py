"""Checkpoints: what is read is what was written; damaged and foreign files are refused, and the one before is used."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
import torch

from rope_lessons.lab import checkpoint
from rope_lessons.lab.checkpoint import CheckpointError

RECIPE = {"batch": 4, "plan": ["rope", "rope"], "learning_rate": 0.001}


def tensors(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        "model.weight": torch.randn(8, 6, generator=generator).T,  # not contiguous
        "optimizer.momentum": torch.randn(48, generator=generator).bfloat16(),
        "optimizer.step": torch.tensor(float(step)),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in (10, 20):
        checkpoint.save(tmp_path, step, tensors(step), RECIPE)
    return tmp_path


def test_what_is_read_is_what_was_written(folder):
    found = checkpoint.newest(folder, RECIPE)
    assert found is not None
    assert found.step == 20
    assert found.recipe == RECIPE
    assert found.tensors.keys() == tensors(20).keys()
    for name, tensor in tensors(20).items():
        assert torch.equal(found.tensors[name], tensor)
        assert found.tensors[name].dtype == tensor.dtype


def test_the_newest_two_are_kept(folder):
    (folder / "step-00000025.unfinished").write_bytes(b"of a process that was killed")
    checkpoint.save(folder, 100_000_000, tensors(3), RECIPE)
    assert [path.name for path in sorted(folder.iterdir())] == [
        "step-00000020.safetensors",
        "step-100000000.safetensors",
    ]
    assert checkpoint.newest(folder, RECIPE).step == 100_000_000


def test_a_damaged_newer_file_is_none_of_the_two(tmp_path):
    """Steps 10 and 20 are there, 20 is damaged: a training that goes on from 10 keeps it until it has another good one,
    also when it passes step 20."""
    for step in (10, 20):
        checkpoint.save(tmp_path, step, tensors(step), RECIPE)
    checkpoint.path_of(tmp_path, 20).write_bytes(b"damaged")
    for step, good, kept in ((17, 10, [10, 17, 20]), (24, 17, [17, 24]), (31, 24, [24, 31])):
        checkpoint.save(tmp_path, step, tensors(step), RECIPE, good)
        assert [checkpoint.step_of(path) for path in checkpoint.stored(tmp_path)] == kept


def test_what_a_killed_process_left_goes(folder):
    """Safetensors writes under a name of its own before that of ours."""
    for name in ("step-00000025.safetensors.unfinished", ".tmpaB3xYz", "losses.csv.unfinished"):
        (folder / name).write_bytes(b"half")
    (folder / "a folder.unfinished").mkdir()
    checkpoint.keep(folder, 20)
    assert {path.name for path in folder.iterdir()} == {
        "step-00000010.safetensors", "step-00000020.safetensors", "a folder.unfinished",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"step": None}, "KeyError('step')"),
        ({"step": "ten"}, "ValueError("),
        ({"step": "-1"}, "step must be an int of at least 0, got -1"),
        ({"recipe": None}, "KeyError('recipe')"),
        ({"recipe": "{"}, "JSONDecodeError("),
        ({"recipe": "17"}, "TypeError("),
    ],
)
def test_a_file_without_step_or_recipe(tmp_path, change, told):
    """As nobody but this package's own digest can make it."""
    from safetensors.torch import save_file

    metadata = {"format": checkpoint.FORMAT, "step": "10", "recipe": "{}", **change}
    metadata = {name: value for name, value in metadata.items() if value is not None}
    path = checkpoint.path_of(tmp_path, 10)
    one = {"weight": torch.ones(3)}
    save_file(one, path, metadata={**metadata, "sha256": checkpoint._digest(one, metadata)})
    wanted = rf"00010\.safetensors was not written by this package: no step and recipe in it, .*{re.escape(told)}"
    with pytest.raises(CheckpointError, match=wanted):
        checkpoint.load(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model.weight": None}, r"model\.weight is missing there and torch\.float32 \(8, 6\) here"),
        ({"model.new": torch.zeros(2)}, r"model\.new is torch\.float32 \(2,\) there and missing here"),
        ({"model.weight": torch.zeros(6)}, r"model\.weight is torch\.float32 \(6,\) there and .* \(8, 6\) here"),
        ({"model.weight": torch.zeros(1, 6)}, r"model\.weight is torch\.float32 \(1, 6\) there and .* \(8, 6\) here"),
        ({"model.weight": torch.zeros(8, 6).double()}, r"model\.weight is torch\.float64 .* there and torch\.float32"),
    ],
)
def test_other_tensors_are_refused(tmp_path, change, told):
    """Missing, strange, of a shape that would be broadcast, of a dtype that would be converted."""
    wanted = {"model.weight": torch.zeros(8, 6), "optimizer.step": torch.tensor(0.0)}
    changed = {name: tensor for name, tensor in {**wanted, **change}.items() if tensor is not None}
    found = checkpoint.load(checkpoint.save(tmp_path, 10, changed, RECIPE))
    with pytest.raises(CheckpointError, match=rf"00010\.safetensors does not hold the tensors of .*: {told}"):
        checkpoint.check_tensors(found, wanted)
    checkpoint.check_tensors(checkpoint.load(checkpoint.save(tmp_path, 20, wanted, RECIPE)), wanted)


def test_an_empty_folder_has_none(tmp_path):
    assert checkpoint.newest(tmp_path, RECIPE) is None
    assert checkpoint.newest(tmp_path / "not-there", RECIPE) is None
    with pytest.raises(CheckpointError, match="is not there"):
        checkpoint.load(tmp_path / "step-00000001.safetensors")


def flip(path: Path, place: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["cut", "empty", "half", "last byte", "a weight", "recipe", "text"])
def test_damage_is_refused_and_the_one_before_is_used(folder, damage):
    path = checkpoint.path_of(folder, 20)
    content = path.read_bytes()
    header = int.from_bytes(content[:8], "little")
    match damage:
        case "cut":
            path.write_bytes(content[:-1])
        case "empty":
            path.write_bytes(b"")
        case "half":
            path.write_bytes(content[: len(content) // 2])
        case "last byte":
            flip(path, -1)
        case "a weight":
            flip(path, 8 + header + 3)
        case "recipe":
            path.write_bytes(content.replace(b"0.001", b"0.002"))
        case "text":
            path.write_text("not a checkpoint at all")
    with pytest.raises(CheckpointError, match=r"step-00000020\.safetensors is damaged"):
        checkpoint.load(path, RECIPE)
    said: list[str] = []
    found = checkpoint.newest(folder, RECIPE, said.append)
    assert found.step == 10
    assert torch.equal(found.tensors["model.weight"], tensors(10)["model.weight"])
    assert len(said) == 1
    assert said[0].endswith("Going on from step-00000010.safetensors, the one before.")


def test_every_bit_counts(tmp_path):
    """Wherever one bit of the file changes, the file is refused."""
    path = checkpoint.save(tmp_path, 5, {"w": torch.arange(3.0)}, {"seed": 1})
    for place, bit in product(range(path.stat().st_size), range(8)):
        flip(path, place, bit)
        try:
            found = checkpoint.load(path)
        except CheckpointError:
            pass
        else:  # a space of the padding, or a name of nothing: the content must be the same
            assert (found.step, found.recipe) == (5, {"seed": 1})
            assert torch.equal(found.tensors["w"], torch.arange(3.0))
        flip(path, place, bit)
    checkpoint.load(path)


def test_another_training_is_refused_and_named(folder):
    other = {**RECIPE, "batch": 8, "plan": ["rope", "nope"]}
    wanted = "batch is 4 there and 8 here, plan is .* there and .* here"
    with pytest.raises(CheckpointError, match=rf"is of another training: {wanted}"):
        checkpoint.load(checkpoint.path_of(folder, 20), other)
    with pytest.raises(
        CheckpointError, match=r"no checkpoint in .* can be used: .*another training.*Delete the folder"
    ):
        checkpoint.newest(folder, other)
    checkpoint.load(checkpoint.path_of(folder, 20))  # without a recipe, any


def test_a_file_of_another_program_is_refused(folder):
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(3)}, checkpoint.path_of(folder, 30))
    said: list[str] = []
    assert checkpoint.newest(folder, RECIPE, said.append).step == 20
    assert "is foreign: its format is None, not 'rope_lessons training 2'" in said[0]


def test_tuples_and_lists_of_a_recipe_are_the_same():
    assert not checkpoint.differences(RECIPE, {**RECIPE, "plan": ("rope", "rope")})
    assert checkpoint.differences({}, {"new": 1}) == "new is missing there and 1 here"
