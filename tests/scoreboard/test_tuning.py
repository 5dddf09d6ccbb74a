"""Models that are tuned: from the plain model of the same seed, with a rate that is chosen, and all of it goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments import scoreboard, scoreboard_jobs, scoreboard_tuning, tuned_window
from experiments import scoreboard_hits as hits
from rope_lessons.lab import training
from rope_lessons.lab.text import Corpus
from rope_lessons.scoreboard import recipe, rows
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.stored import read_results


@pytest.fixture(autouse=True)
def two_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoreboard_tuning, "RATES", (1e-3, 1e-2))


def line(folder: Path, *more: str, seed: int = 0) -> list[str]:
    places = ["--out", str(folder / "out"), "--models", str(folder / "models")]
    small = ["--rungs", "small-tuned-1", "--trainings", "pi", "--rows", "pi", "--steps", "2", "--windows", "2"]
    return [*places, *small, "--seeds", str(seed), *more]


def test_tuned_tested_and_nothing_done_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scoreboard.main(line(tmp_path, "--choose")) == 0
    said = capsys.readouterr().out.splitlines()
    first = next(text for text in said if "on validation text" in text)
    assert first.startswith("small-tuned-1, pi, seed 0: rate 0.001, loss ")
    stored = read_results(tmp_path / "out" / "small-tuned-1" / "pi" / "rates.json")["rates"]
    best = min(stored, key=lambda row: row["loss"])["rate"]
    assert said[-1] == f"small-tuned-1, pi: the rate is {best:g}"
    assert scoreboard.main(line(tmp_path)) == 0
    said = capsys.readouterr().out.splitlines()
    assert not [text for text in said if "step 2" in text]  # what was chosen from is trained already
    table = read_results(tmp_path / "out" / "scoreboard.json")["rows"]
    assert set(table["rung"]) == {"small", "small-tuned-1"}
    assert set(table.where(rung="small-tuned-1")["length"]) == {64, 128, 256, 512}
    about, _ = hits.read(tmp_path / "out" / "small-tuned-1" / "pi" / "seed-0.npz")
    base, _ = hits.read(tmp_path / "out" / "small" / "rope" / "seed-0.npz")
    assert about["recipe"]["start"] == base["checkpoint"]
    assert about["recipe"]["learning_rate"] == best
    assert "FrequencySpec('pi'" in about["recipe"]["plan"]
    assert scoreboard.main(line(tmp_path)) == 0
    assert "rows tested" not in capsys.readouterr().out
    # Another seed begins with its own model, with the rate of seed 0.
    assert scoreboard.main(line(tmp_path, seed=1)) == 0
    own, _ = hits.read(tmp_path / "out" / "small-tuned-1" / "pi" / "seed-1.npz")
    assert own["recipe"]["start"] != about["recipe"]["start"]
    assert own["recipe"]["learning_rate"] == best


def test_an_interrupted_choice_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed after the first rate; the losses are those of a choice in one go."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert scoreboard.main(line(whole, "--choose")) == 0
    assert scoreboard.main(line(parts, "--choose", "--minutes", "1e-9")) == 0
    assert "The time is over. The same line goes on from there." in capsys.readouterr().out
    scored = scoreboard_tuning._loss

    def killed(job: scoreboard_jobs.Job, *more: object) -> float:
        if killed.calls:  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        killed.calls += 1  # type: ignore[attr-defined]
        return scored(job, *more)  # type: ignore[arg-type]

    killed.calls = 0  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoreboard_tuning, "_loss", killed)
        scoreboard.main(line(parts, "--choose"))
    capsys.readouterr()
    assert scoreboard.main(line(parts, "--choose")) == 0
    assert capsys.readouterr().out.count("on validation text") == 1
    one, other = (read_results(folder / "out/small-tuned-1/pi/rates.json")["rates"] for folder in (whole, parts))
    assert list(one) == list(other)


def test_a_base_that_changed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scoreboard.main(line(tmp_path, "--choose")) == 0
    options = scoreboard.parser().parse_args(line(tmp_path))
    job = scoreboard_jobs.Job("small-tuned-1", "yarn", 0, 2, 2, rate=1e-3, start="0" * 64)
    corpus = scoreboard.text.open_corpus("stdlib", options.cache, held_out=recipe.HELD_OUT)
    with pytest.raises(scoreboard_jobs.Refusal, match=r"must be the checkpoint 000000000000 that small-tuned-1, yarn"):
        scoreboard_jobs.trained(job, options, corpus, np.inf)


def test_the_plan_counts_the_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--plan", "--rungs", "small-tuned-10", "--trainings", "pi", "--out", str(tmp_path)]
    assert scoreboard.main([*options, "--models", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("small-tuned-10, pi, seed 0: not trained, no rate is chosen, 1 rows missing, ")
    assert said[1].startswith("small-tuned-10, pi, seed 1: not trained, 1 rows missing, ")
    assert said[-1].startswith("3 trainings in all; ")


def test_shares_of_the_bytes() -> None:
    small = RUNGS["small"]
    for percent in recipe.SHARES:
        own = RUNGS[f"small-tuned-{percent:g}"]
        read, whole = (each.steps * each.batch * each.train_length for each in (own, small))
        assert read / whole == pytest.approx(percent / 100)
        assert own.home == small.train_length
    assert set(rows.TUNED) - {"longrope"} <= set(scoreboard_jobs.trainings_of("small-tuned-1"))
    assert {name for rung in RUNGS for name in scoreboard_jobs.trainings_of(rung)
            if RUNGS[rung].tuned and scoreboard_jobs.seeds_of(rung, name)} <= set(rows.TUNED)  # fmt: skip


def test_a_tuned_model_begins_with_the_weights_of_its_base(
    tiny: recipe.Recipe, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a rate of almost nothing it is the base; and a base of another size is refused."""
    from dataclasses import replace

    import torch

    from rope_lessons.lab import checkpoint, sizes
    from tests.scoreboard.conftest import TINY

    cpu = training.Team(torch.device("cpu"))
    training.train(tiny, corpus, tmp_path / "base", cpu, quiet=True)
    base = checkpoint.load(tmp_path / "base" / "step-00000003.safetensors")
    own = replace(recipe.tuned(tiny, 64, percent=100), learning_rate=1e-12, scheme="pi", seed=5)
    training.train(own, corpus, tmp_path / "tuned", cpu, quiet=True, tuned_from=base)
    found = checkpoint.load(tmp_path / "tuned" / "step-00000003.safetensors")
    weights = [name for name in base.tensors if name.startswith("model.")]
    assert all(torch.allclose(found.tensors[name], base.tensors[name], atol=1e-9) for name in weights)
    monkeypatch.setitem(sizes.SIZES, "tiny", replace(TINY, hidden=12))
    with pytest.raises(checkpoint.CheckpointError, match="does not hold the tensors of this training"):
        training.train(own, corpus, tmp_path / "other", cpu, quiet=True, tuned_from=base)


def test_a_window_tuned_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One base for all, a line for every method and metric, leads over the window in pairs; stopped, it goes on."""
    monkeypatch.setattr(tuned_window, "PERCENTS", (0.0, 1.0))
    monkeypatch.setattr(tuned_window, "METHODS", ("rope-window", "yarn"))
    places = ["--out", str(tmp_path), "--models", str(tmp_path / "models")]
    small = [*places, "--steps", "2", "--windows", "2"]
    assert tuned_window.main([*small, "--minutes", "1e-9"]) == 0
    assert "The time is over. The same line goes on from there." in capsys.readouterr().out
    assert tuned_window.main(small) == 0
    rows = read_results(tmp_path / "tuned_window.json")["rows"]
    asked = [(percent, row, metric) for percent in (0.0, 1.0) for row in tuned_window.METHODS
             for metric in ("natural", "far copies", "needle")]  # fmt: skip
    assert list(zip(rows["percent"], rows["row"], rows["metric"], strict=True)) == asked
    kept = tmp_path / "models" / "tuned_window"
    base = hits.read(kept / "small" / "rope" / "seed-0.npz")[0]["checkpoint"]
    for name in tuned_window.METHODS:
        about, own = hits.read(kept / "small-tuned-1" / name / "seed-0.npz")
        assert about["recipe"]["start"] == base
        share = rows.where(percent=1.0, row=name, metric="natural")
        assert share["mean"] == [pytest.approx(own[name]["natural 512"].mean(), abs=1e-5)]
        lead = share["mean"][0] - rows.where(percent=1.0, row="rope-window", metric="natural")["mean"][0]
        assert share["ahead_mean"] == ([None] if name == "rope-window" else [pytest.approx(lead, abs=2e-5)])
    assert "visible_window=64" in hits.read(kept / "small-tuned-1" / "rope-window" / "seed-0.npz")[0]["recipe"]["plan"]
    capsys.readouterr()
    assert tuned_window.main(small) == 0
    assert "--fresh measures it again" in capsys.readouterr().out
