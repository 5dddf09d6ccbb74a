"""The script of the results table: passes over the text, trainings that are chosen, what is said of each."""

from __future__ import annotations

import argparse
import csv
import importlib
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rope_lessons.lab import checkpoint, sizes, text, training
from rope_lessons.lab.rows import OWN
from rope_lessons.stored import InUseError, read_results

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def script(tiny, tmp_path, monkeypatch) -> ModuleType:
    """The script, on a CPU, in this process, with folders of its own."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    common, script = (importlib.import_module(name) for name in ("common", "measure_table"))
    for module, name, value in (
        (common, "DATA", tmp_path / "data"),
        (script, "DATA", tmp_path / "data"),
        (script, "OUT", tmp_path / "models"),
        (script, "DEVICE", "cpu"),
        (script, "ProcessPoolExecutor", lambda *arguments: ThreadPoolExecutor(1)),
    ):
        monkeypatch.setattr(module, name, value)
    (tmp_path / "data").mkdir()
    threads = torch.get_num_threads()
    yield script
    torch.set_num_threads(threads)


@pytest.fixture
def options(folder_of_text, tmp_path) -> argparse.Namespace:
    return argparse.Namespace(
        config="tiny", seeds=[0], rows=None, trainings=["alibi"], corpus=str(folder_of_text),
        windows=2, minutes=10.0, join=False, processes=1, compile=False, cache=tmp_path / "cache",
    )  # fmt: skip


def test_trainings_one_after_the_other(script, options, tmp_path, capsys):
    """The first on a machine, the second on another, which has the files of the results alone."""
    script.measure_all(options)
    result = tmp_path / "data" / "table_tiny_trainings.json"
    first = read_results(result)
    assert "0.10 passes" in capsys.readouterr().out
    assert rows_of(tmp_path) == {OWN, "alibi"}

    shutil.rmtree(script.OUT)
    options.trainings, options.join = ["nope"], True
    script.measure_all(options)
    second = read_results(result)
    assert rows_of(tmp_path) == {OWN, "alibi", "nope"}
    assert [line["training"] for line in second["trainings"]] == ["alibi", "nope"]
    before, line = second["trainings"]
    assert [before] == list(first["trainings"])
    with zipfile.ZipFile(tmp_path / "data" / "table_tiny" / "seed-0.zip") as file:
        assert {name.split("/")[1] for name in file.namelist() if "/" in name} == {"alibi", "nope"}

    assert line["checkpoint"] == checkpoint.load(checkpoint.stored(script.OUT / "tiny" / "nope" / "seed-0")[-1]).sha256
    assert line["tokens"] == 12 * 4 * 32
    assert line["gap"] == pytest.approx(line["test_loss"] - line["train_loss"], abs=2e-5)
    assert {"script", "date", "hardware", "torch", "tokens_per_second", "matrix_rate", "utilisation"} <= line.keys()


def rows_of(root: Path) -> set[str]:
    with (root / "data" / "table_tiny.csv").open() as file:
        return {line["row"] for line in csv.DictReader(file)}


def test_too_many_passes(script, options, tiny, monkeypatch):
    monkeypatch.setitem(training.CONFIGS, "tiny", replace(tiny, steps=1000))
    with pytest.raises(ValueError, match=r"corpus must have at least 42,667 bytes of training text.* has 15,000"):
        script.measure_all(options)


@pytest.mark.parametrize("argument", ["rows", "trainings"])
def test_unknown_names(script, options, argument):
    setattr(options, argument, ["rope", "rop"])
    with pytest.raises(ValueError, match=f"^{argument} must be among rope, .*; got rop$"):
        script.measure_all(options)


def test_time_is_over(script, options, tmp_path, capsys):
    options.minutes = 0
    script.measure_all(options)
    assert "The time is over" in capsys.readouterr().out
    assert not list((tmp_path / "data").iterdir())


def test_gap_of_windows_that_were_read(script, tiny, corpus):
    """Without pasted copies, with the loss of the plan of training; both texts in windows of the same steps."""
    recipe = replace(tiny, copies=1.0, steps=2)
    model = sizes.build(recipe.config, seed=0)
    found = script.gap(model, recipe, corpus)
    for name, content in (("train", corpus.train), ("test", corpus.test)):
        windows = torch.cat([text.batch_of(content, step, seed=0, batch=4, length=32) for step in (0, 1)])
        with torch.no_grad():
            wanted = training.Objective(model, recipe.row)(windows)
        assert found[f"{name}_loss"] == pytest.approx(wanted.item(), abs=1e-4)
    assert found["gap"] == pytest.approx(found["test_loss"] - found["train_loss"], abs=2e-5)


def test_damaged_files_of_a_table(script, options, tiny, tmp_path, capsys):
    """The last checkpoint is trained again, what was measured of it is measured again, and the results are refused."""
    result, folder = tmp_path / "data" / "table_tiny_trainings.json", script.OUT / "tiny" / "alibi" / "seed-0"
    corpus = text.open_corpus(options.corpus, options.cache)
    training.train(replace(tiny, scheme="alibi"), corpus, folder, save_every=5, quiet=True)
    older, last = checkpoint.stored(folder)
    kept = older.read_bytes()
    script.measure_all(options)
    first = list(read_results(result)["trainings"])
    assert checkpoint.stored(folder) == [last]
    capsys.readouterr()
    older.write_bytes(kept)
    last.write_bytes(b"damaged")
    (folder / "measured.json").write_bytes(b"damaged")
    script.measure_all(options)
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
            script.measure_all(options)
        assert result.read_bytes() == content
    assert before.keys() == {path for path in result.parent.iterdir() if path.is_file()}


def test_a_table_is_measured_by_one_process(script, options):
    told = f"another process trains or tests in {script.OUT}/tiny"
    with training.only_one(script.OUT / "tiny"), pytest.raises(InUseError, match=told):
        script.measure_all(options)


def test_the_command(script, options, folder_of_text, tmp_path, capsys):
    own = ["--config", "tiny", "--seeds", "0", "--trainings", "alibi", "--corpus", str(folder_of_text)]
    assert script.main([*own, "--cache", str(tmp_path / "cache"), "--minutes", "0"]) == 0
    assert "The time is over" in capsys.readouterr().out
    with training.only_one(script.OUT / "tiny"):
        assert script.main([*own, "--cache", str(tmp_path / "cache")]) == 1
    assert capsys.readouterr().err.startswith("scripts/measure_table.py: another process trains or tests in ")
