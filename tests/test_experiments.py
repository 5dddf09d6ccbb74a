"""The experiments go on where they were, refuse what is not theirs, and say what they wrote."""

from __future__ import annotations

import importlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import rope_lessons as rl
from experiments import random_positions
from experiments.__main__ import NAMES, main, module
from experiments.result import Result
from experiments.trained import Models, training_text
from rope_lessons.models import byte_lm
from rope_lessons.stored import DATA, provenance, read_results
from tools.project import ROOT

# A stored result keeps the name that its program had when it was measured.
FORMER = {
    "python -m benchmarks": "benchmarks",
    "scripts/measure_chomsky_tasks.py": "chomsky",
    "scripts/measure_circles.py": "circles",
    "scripts/measure_entropy.py": "entropy",
    "scripts/measure_invleaky.py": "invleaky",
    "scripts/measure_lab_parts.py": "lab_parts",
    "scripts/measure_local.py": "local",
    "scripts/measure_mixed_radix.py": "mixed_radix",
    "scripts/measure_random_positions.py": "random_positions",
    "scripts/measure_rerope.py": "rerope",
    "scripts/measure_table.py": "table",
    "scripts/ship_table.py": "table",
    "scripts/train_radix_checkpoint.py": "radix",
}


def test_every_stored_result_names_its_experiment() -> None:
    named = {}
    for path in DATA.glob("*.json"):
        stored = json.loads(path.read_text("utf8"))
        if "script" in stored:
            named[path.stem] = FORMER.get(stored["script"]) or re.sub(
                "^python -m experiments[ .]", "", stored["script"]
            )
    own = {name: experiment for name, experiment in named.items() if experiment != "gpu"}  # which writes for several
    assert set(own.values()) == set(NAMES)
    assert all(name.startswith(experiment.removesuffix("marks")) for name, experiment in own.items())


@pytest.mark.parametrize("name", NAMES)
def test_each_module_says_what_it_measures_and_how_long_that_takes(name: str) -> None:
    text = importlib.import_module(module(name)).__doc__ or ""
    first, *others = text.splitlines()
    assert first.startswith("Chapter ")
    assert len([told for told in others if told.startswith("Takes ")]) == 1
    assert f"    python -m experiments{'.' if name == 'benchmarks' else ' '}{name}" in text


def test_all_modules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n{name} " in listed for name in NAMES)
    parts = {"__init__", "__main__", "command", "hardware", "packed", "result"}
    parts |= {"scoreboard_hits", "scoreboard_jobs", "scoreboard_table", "scoreboard_tuning", "trained"}
    assert {path.stem for path in (ROOT / "experiments").glob("*.py")} == {*NAMES, *parts} - {"benchmarks"}


def test_an_experiment_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["radix", "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("usage: python -m experiments radix ")


def test_the_names_from_before_are_gone() -> None:
    assert not [name for name in ("scripts", "benchmarks") if (ROOT / name).exists()]


# --- a file of results ---------------------------------------------------------------------------------------------


def result(path: Path, fresh: bool = False, **settings: Any) -> Result:
    return Result(path, "toy", {"length": 64, "pair": (1, 2), **settings}, {"rows": [], "cost": {}}, fresh)


def test_a_result_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "toy.json"
    first = result(path)
    first.add(rows=[{"seed": 3, "loss": 0.5, "parts": [1]}])
    second = result(path)
    assert not second.lacks("rows", seed=3)
    assert second.lacks("rows", seed=3, loss=1.0)
    second.set(cost={"step": 2.0})
    second.add(rows=[{"seed": 1, "loss": 0.25, "parts": [2]}])
    capsys.readouterr()
    second.close()
    assert capsys.readouterr().out == f"written: {path}\n"
    result(path).close()
    assert capsys.readouterr().out == f"all of this is in {path} already: --fresh measures it again\n"
    stored = read_results(path)
    assert list(stored) == ["script", *provenance(), "seeds", "length", "pair", "cost", "rows"]
    assert stored["script"] == "python -m experiments toy"
    assert stored["seeds"] == [1, 3]
    assert stored["rows"]["loss"] == [0.5, 0.25]
    assert stored["cost"] == {"step": 2.0}


def test_a_result_of_other_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    result(path).add(rows=[{"seed": 0}])
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"toy\.json was measured with another length: --fresh begins it anew"):
        result(path, length=128)
    assert path.read_bytes() == before
    assert result(path, fresh=True, length=128).lacks("rows", seed=0)


@pytest.mark.parametrize("content", ["", "{", "[1]", "{}", '{"length": 64, "pair": [1, 2], "rows": {}}', '"text"'])
def test_another_file_stays_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "toy.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"toy\.json is no result of this experiment, and stays as it is"):
        result(path)
    assert path.read_text() == content


# --- trained models ------------------------------------------------------------------------------------------------


def test_a_training_is_done_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = Models(tmp_path / "models", steps=2)
    one, same = models.byte_model(0), models.byte_model(0)
    assert capsys.readouterr().out.count("trained seed 0") == 1
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    wanted = byte_lm.build(replace(byte_lm.Config(), steps=2), 0)
    byte_lm.train(wanted, training_text(), replace(byte_lm.Config(), steps=2), 0)
    byte_lm.round_weights(wanted)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), wanted.parameters(), strict=True))
    models.byte_model(1)
    assert len(list((tmp_path / "models").iterdir())) == 2


def test_controls_of_random_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Hands that stand still do; a training at 512 reads as many bytes; what is tried is what is stored."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    controls = random_positions.CONTROLS
    still = {"fast hands still": range(12), "slow hands still": range(20, 32), "plain": ()}
    for name, stand in (still | {f"random, {name}": still[name] for name in list(still)[:2]}).items():
        (frequencies,) = {tuple(row.frequencies(64).tolist()) for row in controls[name].plan()}
        plain = rl.rope_frequencies(64)
        for pair, found in enumerate(frequencies):
            assert found == (pytest.approx(0, abs=1e-8) if pair in stand else pytest.approx(plain[pair].item()))
    at_512 = controls["plain at 512"].config
    assert at_512.length * at_512.batch == random_positions.CONFIG.length * random_positions.CONFIG.batch
    line = ["--only", "hands still", "--part", "controls", "--seeds", "0", "--steps", "2", "--windows", "1"]
    assert random_positions.main(line) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "written: results/random_positions.json"
    rows = read_results(Path("results/random_positions.json"))["controls"]
    names = ["fast hands still", "slow hands still"]
    assert list(rows["training"]) == [*names, *(f"random, {name}" for name in names for _ in random_positions.LENGTHS)]
    torch.set_num_threads(threads)


def test_a_try_of_a_whole_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """It writes into the folder results, and the same line measures nothing again."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    line = ["--only", "rope, beta", "--part", "models", "--seeds", "0", "--steps", "2", "--windows", "1"]
    assert random_positions.main(line) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "written: results/random_positions.json"
    assert set(os.listdir()) == {"results", ".models"}
    [written] = Path("results").iterdir()
    first = written.read_bytes()
    assert random_positions.main(line) == 0
    assert f"all of this is in {written} already" in capsys.readouterr().out
    assert random_positions.main([*line, "--steps", "3"]) == 1
    assert f"{written} was measured with another config" in capsys.readouterr().err
    assert written.read_bytes() == first
    torch.set_num_threads(threads)
