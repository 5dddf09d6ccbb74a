"""The experiment of the results table: passes over the text, trainings that are chosen, what is said of each."""

from __future__ import annotations

import argparse
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments import table
from rope_lessons.lab import checkpoint, sizes, text, training
from rope_lessons.lab.rows import OWN
from rope_lessons.lab.table.lines import read_table
from rope_lessons.lab.training import Recipe
from rope_lessons.stored import InUseError, read_results


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """As many as before: the experiment sets one."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def line(tiny: Recipe, folder_of_text: Path, tmp_path: Path) -> list[str]:
    """A tiny table on a CPU, in folders of its own."""
    return [
        "--config", "tiny", "--seeds", "0", "--corpus", str(folder_of_text), "--windows", "2", "--device", "cpu",
        "--out", str(tmp_path / "results"), "--models", str(tmp_path / "models"), "--cache", str(tmp_path / "cache"),
    ]  # fmt: skip


@pytest.fixture
def options(line: list[str]) -> argparse.Namespace:
    return table.parse([*line, "--trainings", "alibi"])


def test_trainings_one_after_the_other(options, tmp_path, capsys):
    """The first on a machine, the second on another, which has the files of the results alone."""
    table.measure_all(options)
    result = tmp_path / "results" / "table_tiny_trainings.json"
    first = read_results(result)
    assert "0.10 passes" in capsys.readouterr().out
    assert rows_of(tmp_path) == {OWN, "alibi"}

    shutil.rmtree(tmp_path / "models")
    options.trainings, options.join = ["nope"], True
    table.measure_all(options)
    second = read_results(result)
    assert rows_of(tmp_path) == {OWN, "alibi", "nope"}
    assert [line["training"] for line in second["trainings"]] == ["alibi", "nope"]
    before, line = second["trainings"]
    assert [before] == list(first["trainings"])
    with zipfile.ZipFile(tmp_path / "results" / "table_tiny" / "seed-0.zip") as file:
        assert {name.split("/")[1] for name in file.namelist() if "/" in name} == {"alibi", "nope"}

    [weights] = checkpoint.stored(tmp_path / "models" / "table" / "tiny" / "nope" / "seed-0")
    assert line["checkpoint"] == checkpoint.load(weights).sha256
    assert line["tokens"] == 12 * 4 * 32
    assert line["gap"] == pytest.approx(line["test_loss"] - line["train_loss"], abs=2e-5)
    assert {"script", "date", "hardware", "torch", "tokens_per_second", "matrix_rate", "utilisation"} <= line.keys()


def rows_of(root: Path) -> set[str]:
    return {line.row for line in read_table(root / "results" / "table_tiny.json")}


def test_too_many_passes(options, tiny, monkeypatch):
    monkeypatch.setitem(training.CONFIGS, "tiny", replace(tiny, steps=1000))
    with pytest.raises(ValueError, match=r"corpus must have at least 42,667 bytes of training text.* has 15,000"):
        table.measure_all(options)


@pytest.mark.parametrize("argument", ["rows", "trainings"])
def test_unknown_names(options, argument):
    setattr(options, argument, ["rope", "rop"])
    with pytest.raises(ValueError, match=f"^{argument} must be among rope, .*; got rop$"):
        table.measure_all(options)


def test_time_is_over(options, tmp_path, capsys):
    options.minutes = 0
    table.measure_all(options)
    assert "The time is over" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()


def test_gap_of_windows_that_were_read(tiny, corpus):
    """Without pasted copies, with the loss of the plan of training; both texts in windows of the same steps."""
    recipe = replace(tiny, copies=1.0, steps=2)
    model = sizes.build(recipe.config, seed=0)
    found = table.gap(model, recipe, corpus)
    for name, content in (("train", corpus.train), ("test", corpus.test)):
        windows = torch.cat([text.batch_of(content, step, seed=0, batch=4, length=32) for step in (0, 1)])
        with torch.no_grad():
            wanted = training.Objective(model, recipe.row)(windows)
        assert found[f"{name}_loss"] == pytest.approx(wanted.item(), abs=1e-4)
    assert found["gap"] == pytest.approx(found["test_loss"] - found["train_loss"], abs=2e-5)


def test_damaged_files_of_a_table(options, tiny, tmp_path, capsys):
    """The last checkpoint is trained again, what was measured of it is measured again, and the results are refused."""
    result, folder = (
        tmp_path / "results" / "table_tiny_trainings.json",
        tmp_path / "models" / "table" / "tiny" / "alibi" / "seed-0",
    )
    corpus = text.open_corpus(options.corpus, options.cache)
    training.train(replace(tiny, scheme="alibi"), corpus, folder, save_every=5, quiet=True)
    older, last = checkpoint.stored(folder)
    kept = older.read_bytes()
    table.measure_all(options)
    first = list(read_results(result)["trainings"])
    assert checkpoint.stored(folder) == [last]
    capsys.readouterr()
    older.write_bytes(kept)
    last.write_bytes(b"damaged")
    (folder / "measured.json").write_bytes(b"damaged")
    table.measure_all(options)
    said = capsys.readouterr()
    assert "00000012.safetensors is damaged" in said.err
    assert "measured.json is damaged: Expecting value" in said.out
    again = list(read_results(result)["trainings"])
    assert [line["checkpoint"] for line in again] == [line["checkpoint"] for line in first]
    assert again[0]["test_loss"] == first[0]["test_loss"]

    before = {path: path.read_bytes() for path in result.parent.iterdir() if path.is_file()}
    for content in (b"damaged", b"{}", b"[1]", b""):
        result.write_bytes(content)
        with pytest.raises(ValueError, match=r"table_tiny_trainings\.json is damaged: .*\. Delete it"):
            table.measure_all(options)
        assert result.read_bytes() == content
    assert before.keys() == {path for path in result.parent.iterdir() if path.is_file()}


def test_a_table_is_measured_by_one_process(options, tmp_path):
    told = f"another process trains or tests in {tmp_path}/models/table/tiny"
    with training.only_one(tmp_path / "models" / "table" / "tiny"), pytest.raises(InUseError, match=told):
        table.measure_all(options)


def test_the_command(line, tmp_path, capsys):
    own = [*line, "--trainings", "alibi"]
    assert table.main([*own, "--minutes", "0"]) == 0
    assert "The time is over" in capsys.readouterr().out
    with training.only_one(tmp_path / "models" / "table" / "tiny"):
        assert table.main(own) == 1
    assert capsys.readouterr().err.startswith("python -m experiments table: another process trains or tests in ")
