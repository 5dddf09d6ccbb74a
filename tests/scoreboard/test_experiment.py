"""The experiment itself, with a few steps and two test windows: it goes on, and tests new rows alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from experiments import scoreboard, scoreboard_jobs
from experiments import scoreboard_hits as hits
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.stored import read_results


def line(folder: Path, *more: str, steps: int = 3) -> list[str]:
    places = ["--out", str(folder / "out"), "--models", str(folder / "models")]
    small = ["--rungs", "small", "--trainings", "rope", "--seeds", "0", "--steps", str(steps), "--windows", "2"]
    return [*places, *small, *more]


def read(folder: Path) -> tuple[dict, dict]:
    return hits.read(folder / "out" / "small" / "rope" / "seed-0.npz")


def test_a_new_row_is_tested_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scoreboard.main(line(tmp_path, "--rows", "rope")) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("small, rope, seed 0: step 3, ")
    assert said[1].startswith("small, rope, seed 0: 1 rows tested, ")
    assert said[2] == f"written: {tmp_path / 'out' / 'scoreboard.json'}, 33 lines"
    first = read(tmp_path)
    assert scoreboard.main(line(tmp_path, "--rows", "rope", "rope-window")) == 0
    assert "step 3" not in capsys.readouterr().out
    about, measured = read(tmp_path)
    assert measured.keys() == {"rope", "rope-window"}
    assert about["checkpoint"] == first[0]["checkpoint"]
    assert all(np.array_equal(measured["rope"][name], first[1]["rope"][name]) for name in first[1]["rope"])
    stored = read_results(tmp_path / "out" / "scoreboard.json")
    own = stored["rows"].where(row="rope", metric="natural", length=64)
    assert own["mean"] == [round(float(measured["rope"]["natural 64"].mean()), 5)]
    assert own["ahead_mean"] == [0.0]  # at home a window of the training length sees all
    # Nothing is missing: the same line does nothing but write the table again.
    before = (tmp_path / "out" / "small" / "rope" / "seed-0.npz").read_bytes()
    assert scoreboard.main(line(tmp_path, "--rows", "rope", "rope-window")) == 0
    assert (tmp_path / "out" / "small" / "rope" / "seed-0.npz").read_bytes() == before


def test_the_weights_do_without_the_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new row of a training whose checkpoint is gone has the hits that it would have had; other steps train anew."""
    assert scoreboard.main(line(tmp_path, "--rows", "rope", "pi")) == 0
    weights = (tmp_path / "out" / "small" / "rope" / "seed-0.safetensors").read_bytes()
    first = read(tmp_path)
    shutil.rmtree(tmp_path / "models")
    (tmp_path / "out" / "small" / "rope" / "seed-0.npz").unlink()
    capsys.readouterr()
    assert scoreboard.main(line(tmp_path, "--rows", "rope", "pi")) == 0
    assert "step 3" not in capsys.readouterr().out
    about, measured = read(tmp_path)
    assert about["checkpoint"] == first[0]["checkpoint"]
    assert all(np.array_equal(measured["pi"][name], first[1]["pi"][name]) for name in first[1]["pi"])
    assert (tmp_path / "out" / "small" / "rope" / "seed-0.safetensors").read_bytes() == weights
    assert scoreboard.main(line(tmp_path, "--rows", "rope", steps=4)) == 0
    assert "step 4" in capsys.readouterr().out


def test_an_interrupted_training_has_the_same_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped as soon as it has begun, and gone on with."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert scoreboard.main(line(whole, "--rows", "rope", steps=12)) == 0
    assert scoreboard.main(line(parts, "--rows", "rope", "--minutes", "1e-9", steps=12)) == 0
    assert "The time is over. The same line goes on from there." in capsys.readouterr().out
    assert not (parts / "out" / "small").exists()
    assert scoreboard.main(line(parts, "--rows", "rope", steps=12)) == 0
    one, other = read(whole), read(parts)
    assert one[0]["checkpoint"] == other[0]["checkpoint"]
    assert all(np.array_equal(one[1]["rope"][name], other[1]["rope"][name]) for name in one[1]["rope"])


def test_a_damaged_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scoreboard.main(line(tmp_path, "--rows", "rope")) == 0
    path = tmp_path / "out" / "small" / "rope" / "seed-0.npz"
    path.write_bytes(path.read_bytes()[:-50])
    assert scoreboard.main(line(tmp_path, "--rows", "rope")) == 1
    assert f"{path} is damaged" in capsys.readouterr().err


def test_what_is_of_another_recipe_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not used, and never in silence: neither where it is measured again, nor where only a table is written."""
    assert scoreboard.main(line(tmp_path, "--rows", "rope")) == 0
    assert "not used" not in capsys.readouterr().out
    others = "recipe: steps is 3 there and 4 here"
    named = f"small, rope, seed 0: what is kept is not used, as it is of another one ({others})"
    assert scoreboard.main(line(tmp_path, "--rows", "rope", "--minutes", "1e-9", steps=4)) == 0  # a table alone
    assert named in capsys.readouterr().out.splitlines()
    shutil.rmtree(tmp_path / "models")  # another recipe does not go on from these, which has its own error
    for times in (1, 0):  # measured again, it is its own
        assert scoreboard.main(line(tmp_path, "--rows", "rope", steps=4)) == 0
        assert capsys.readouterr().out.splitlines().count(named) == times


def test_the_plan_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--plan", "--rungs", "small", "--trainings", "rope", "alibi", "--out", str(tmp_path)]
    assert scoreboard.main([*options, "--models", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("small, rope, seed 0: not trained, ")
    assert len(said) == 5 + 3 + 1  # five seeds of a main training, three of another
    assert said[-1].startswith("8 trainings in all; ")
    assert not list(tmp_path.iterdir())


def test_the_plan_of_the_second_rung(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two seeds of five trainings, and some rows of each."""
    options = ["--plan", "--rungs", "second", "--out", str(tmp_path), "--models", str(tmp_path)]
    assert scoreboard.main(options) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("second, rope, seed 0: not trained, 8 rows missing, ")
    assert said[-1].startswith("10 trainings in all; ")
    job = scoreboard_jobs.Job("second", "rope", 0)
    assert scoreboard_jobs.lengths_of(job, job.rows["yarn"]) == (256, 2048)


def test_a_row_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        scoreboard.main(["--rows", "rop"])
    told = capsys.readouterr().err
    assert "'rop'" in told
    assert "rerope-w32" in told


def test_a_test_is_described_without_addresses() -> None:
    """Where a function lies in memory is no part of a test; the positions of a test are."""
    table = RUNGS["small"].rows
    told = {name: scoreboard_jobs.described(row) for name, row in table.items()}
    assert not any(" at 0x" in text for text in told.values())
    assert "streaming_attention" in told["streaming"]
    assert len({told[name] for name in ("sinusoidal", "sinusoidal-pi", "sinusoidal-shifted", "nope")}) == 4
    assert told["rope"] == f"{table['rope'].method.test!r} None "


def test_a_learned_table_is_tested_as_far_as_it_goes() -> None:
    job = scoreboard_jobs.Job("small", "learned", 0)
    assert scoreboard_jobs.lengths_of(job, job.rows["learned"]) == (64,)
    assert scoreboard_jobs.lengths_of(job, job.rows["learned-pi"]) == (64, 128, 256, 512)


def test_what_is_stored_has_the_weights_of_these_trainings_and_at_most_25_megabytes() -> None:
    kept = {path.parent.name for path in scoreboard.STORED.rglob("*.safetensors")}
    assert kept == set(scoreboard_jobs.WEIGHTS)
    assert sum(path.stat().st_size for path in scoreboard.STORED.rglob("*") if path.is_file()) <= 25e6


def test_weights_are_kept_of_the_first_seed_alone() -> None:
    kept = [
        job
        for rung in RUNGS
        for seed in (0, 1)
        for job in [scoreboard_jobs.Job(rung, "rope", seed)]
        if job.keeps_weights
    ]
    assert [str(job) for job in kept] == ["small, rope, seed 0"]
    assert not scoreboard_jobs.Job("small", "nope", 0).keeps_weights
