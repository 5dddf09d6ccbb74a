"""The table: what is counted, the intervals, the tax, and the command that makes the table."""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from experiments.packed import CONTENTS, pack, unpack
from rope_lessons.lab import __main__ as command
from rope_lessons.lab import sizes, text, training
from rope_lessons.lab.rows import OWN
from rope_lessons.lab.table import counts, finished, jobs, scoring, summary
from rope_lessons.lab.table.finished import TableError
from rope_lessons.lab.table.intervals import interval
from rope_lessons.lab.table.passkey import passkey_windows
from rope_lessons.lab.table.scoring import Evaluation
from rope_lessons.lab.training import Team
from rope_lessons.stored import InUseError, read_results, read_sealed, sealed, write_sealed

CPU = Team(torch.device("cpu"))
TESTS = Evaluation(factors=(1, 2, 4), windows=6, depths=(0.0, 0.5, 1.0))
N = 32


class Copier(nn.Module):
    """Predicts what came after the latest earlier place with the same last four tokens; else token 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, tokens, plan=None, positions=None, attend=None):
        scores = torch.zeros(*tokens.shape, 256)
        for scored, row in zip(scores, tokens.tolist(), strict=True):
            after: dict[tuple[int, ...], int] = {}
            for i in range(len(row)):
                last = tuple(row[max(0, i - 3) : i + 1])
                scored[i, after.get(last, 0)] = 10.0
                if i >= 4:
                    after[tuple(row[i - 4 : i])] = row[i]
        return scores


@pytest.fixture
def row(tiny):
    return tiny.rows["rope"]


# --- what is counted -----------------------------------------------------------------------------------------------


def test_score_by_its_definition(tiny, corpus):
    model = sizes.build(tiny.config, seed=0)
    tokens, _ = text.natural_windows(corpus, 64, 3)
    row = tiny.rows["ntk-fixed"]
    hits, losses = scoring.score(model, row, tokens)
    with torch.no_grad():
        chances = model(tokens[:, :-1], row.method.test, attend=row.attend).double().softmax(dim=-1)
    assert torch.equal(hits.bool(), chances.argmax(dim=-1) == tokens[:, 1:])
    right = chances.gather(2, tokens[:, 1:, None])[..., 0]
    torch.testing.assert_close(losses, -right.log(), atol=1e-5, rtol=1e-5)
    assert not torch.equal(losses, scoring.score(model, tiny.rows["rope"], tokens)[1])  # the test plan counts


def test_positions_of_the_row_are_used(tiny, corpus):
    """The grid of random positions stretches the distances, so the losses are others than at 0, 1, 2, …"""
    model = sizes.build(replace(tiny.config, width=32), seed=0)
    tokens, _ = text.natural_windows(corpus, 64, 2)
    row = tiny.rows["random-positions"]
    stretched = scoring.score(model, row, tokens)[1]
    positions = row.method.test_positions(64)
    assert positions[1] == 8
    with torch.no_grad():
        scores = model(tokens[:, :-1], row.method.test, positions=positions, attend=row.attend)
    wanted = nn.functional.cross_entropy(scores.transpose(1, 2), tokens[:, 1:], reduction="none").double()
    torch.testing.assert_close(stretched, wanted)


def test_counts_are_the_scores_by_document_and_position(tiny, corpus, row):
    model = sizes.build(tiny.config, seed=0)
    counts = scoring.count(model, row, corpus, N, TESTS)
    windows, documents = text.natural_windows(corpus, 4 * N, TESTS.windows)
    assert len(documents.unique()) == 3
    for factor in TESTS.factors:
        hits, losses = scoring.score(model, row, scoring.cut(windows, factor * N))
        assert counts[f"{factor} not repeated hits"].sum() == hits.sum()
        found = counts[f"{factor} not repeated losses"]
        assert found.shape == (3, 16)
        bins = losses.view(TESTS.windows, -1, 16, factor * N // 16).sum(dim=(1, 3))  # of each window
        for number, document in enumerate(documents.unique()):
            np.testing.assert_allclose(found[number], bins[documents == document].sum(dim=0))
        assert counts[f"{factor} not repeated tokens"].sum() == windows[:, 1:].numel()
        assert counts[f"{factor} repeated tokens"].sum() == windows[:, 1:].numel()


def test_the_same_tokens_are_predicted_at_every_length():
    windows = torch.arange(3 * 129).view(3, 129)
    for length in (32, 64, 128):
        assert torch.equal(scoring.cut(windows, length)[:, 1:].flatten(), windows[:, 1:].flatten())


def test_one_who_copies_masters_the_repeated_set_and_the_passkey(corpus, row):
    counts = scoring.count(Copier(), row, corpus, N, TESTS)
    for factor in TESTS.factors:
        repeated = counts[f"{factor} repeated hits"] / counts[f"{factor} repeated tokens"]
        assert repeated[:, -4:].min() == 1  # the last quarter has been there before
        assert counts[f"{factor} not repeated hits"].sum() / counts[f"{factor} not repeated tokens"].sum() < 0.05
        for depth in ("0", "0.5", "1"):
            assert counts[f"{factor} depth {depth} found"].sum() == counts[f"{factor} depth {depth} tokens"].sum() == 6


def test_passkey_windows(corpus):
    windows, _ = text.natural_windows(corpus, 127, 4)
    for depth, begin in ((0.0, 0), (0.5, 50), (1.0, 100)):
        for found, window in zip(passkey_windows(windows, depth).tolist(), windows.tolist(), strict=True):
            digits = bytes(found[-5:])
            assert digits.isdigit()
            assert bytes(found[begin : begin + 15]) == b'\nkey = "' + digits + b'"\n'
            assert bytes(found[-13:]) == b'\nkey = "' + digits
            kept = [i for i in range(128 - 13) if not begin <= i < begin + 15]
            assert [found[i] for i in kept] == [window[i] for i in kept]
    with pytest.raises(ValueError, match="windows must have at least 28 tokens for needle and question, got 20"):
        passkey_windows(windows[:, :20], 0.5)


# --- intervals -----------------------------------------------------------------------------------------------------


def test_interval_over_documents_is_that_of_a_mean():
    values = np.random.default_rng(0).normal(size=(1, 200))
    mean, low, high = interval(values, np.ones(200))
    assert mean == pytest.approx(values.mean())
    width = 2 * 1.96 * values.std() / 200**0.5
    assert high - low == pytest.approx(width, rel=0.08)
    assert (low + high) / 2 == pytest.approx(mean, abs=0.1 * width)


def test_interval_over_seeds_and_documents():
    """Where all documents are alike, what is left is the seeds, and the other way round; counts are weights."""
    seeds = np.random.default_rng(1).normal(size=(40, 1)) * np.ones((1, 50))
    _, low, high = interval(seeds, np.ones(50))
    assert high - low == pytest.approx(2 * 1.96 * seeds[:, 0].std() / 40**0.5, rel=0.08)
    assert interval(np.full((3, 5), 2.0), np.full(5, 4.0)) == (0.5, 0.5, 0.5)
    assert interval(np.array([[1.0, 8.0]]), np.array([2.0, 8.0]))[0] == 0.9


# --- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(tiny, corpus, tmp_path, monkeypatch):
    """Two seeds of plain RoPE and one HWFA model, and the command's arguments for a small table of them."""
    monkeypatch.setattr(text, "open_corpus", lambda *_: corpus)
    for recipe in (tiny, replace(tiny, seed=1), replace(tiny, scheme="hwfa-w16")):
        training.train(recipe, corpus, training.folder_of(recipe, "tiny", tmp_path / "runs"), CPU, quiet=True)
    rows = ["rope", "pi", "rerope-w16-logn-test", "hwfa-w16"]
    return ["table", str(tmp_path / "runs"), "--results", str(tmp_path / "table.json"), "--rows", *rows,
            "--factors", "1", "2", "4", "--windows", "6", "--device", "cpu", "--quiet"]  # fmt: skip


def test_the_table(runs, tiny, corpus, tmp_path, monkeypatch, capsys):
    assert command.main([*runs, "--minutes", "0"]) == 0
    assert "The time is over" in capsys.readouterr().err
    assert not (tmp_path / "table.json").exists()
    assert command.main(runs) == 0
    lines = read_results(tmp_path / "table.json")["lines"]
    assert set(lines["row"]) == {OWN, "rope", "pi", "rerope-w16-logn-test", "hwfa-w16"}

    def find(row: str, **where: Any) -> dict[str, Any]:
        (line,) = lines.where(**{"row": row, "training": "rope", **where})
        return line

    for row in ("rope", "pi", "rerope-w16-logn-test"):
        for times in (1, 2, 4):
            for kind in scoring.SETS:
                line = find(row, times=times, set=kind, metric="accuracy")
                assert line["low"] <= line["value"] <= line["high"]
                assert (line["seeds"], line["documents"], line["predictions"]) == (2, 3, 768)
                assert len(line["along"]) == 16
                assert sum(line["along"]) / 16 == pytest.approx(line["value"], abs=1e-4)
            found = find(row, times=times, set="passkey", metric="found")
            assert len(found["along"]) == 5
            assert (found["depths"], found["predictions"]) == ("0 0.25 0.5 0.75 1", 30)
        own = find(OWN, times=1, set="not repeated", metric="accuracy")["value"]
        here = find(row, times=1, set="not repeated", metric="accuracy")["value"]
        assert find(row, metric="tax")["value"] == pytest.approx(own - here, abs=2e-6)
    assert find("rope", metric="tax")["value"] == 0
    line = find("pi", metric="tax")
    assert (line["training"], line["seed_list"], line["steps"], line["size"]) == ("rope", "0 1", 12, "tiny")
    assert line["corpus_sha256"] == corpus.about["sha256"]
    for column in ("parameters", "checkpoints", "torch", "python", "rope_lessons", "hardware", "date", "learning_rate"):
        assert line[column]
    assert find("hwfa-w16", training="hwfa-w16", metric="tax")["seeds"] == 1

    with monkeypatch.context() as patch:  # nothing is counted a second time
        patch.setattr(jobs, "count", lambda *_: pytest.fail("counted again"))
        assert command.main(runs) == 0
    assert list(read_results(tmp_path / "table.json")["lines"]) == list(lines)
    assert set(lines["script"]) == {"python -m rope_lessons.lab table"}
    assert set(lines["windows"]) == {6}
    folder = tmp_path / "runs" / "tiny" / "rope" / "seed-1"
    for path in folder.glob("*.*"):
        path.unlink()
    training.train(replace(tiny, seed=1, learning_rate=1e-2), corpus, folder, CPU, quiet=True)
    models = finished.find([tmp_path / "runs"])
    with pytest.raises(TableError, match="seed-1 is not tested yet"):
        list(summary.records(models, corpus, Evaluation(factors=(1, 2, 4), windows=6), ["rope"]))


def test_packed_counts_come_into_one_table_without_weights(runs, tiny, corpus, tmp_path):
    """Seed 0 is here, seed 1 comes from a packed file: the table is the one of both."""
    assert command.main(runs) == 0
    tests, rows = Evaluation(factors=(1, 2, 4), windows=6), ["rope", "pi"]
    here, there = tmp_path / "runs", tmp_path / "there"
    models = finished.find([here / "tiny" / "rope"])
    whole = list(summary.records(models, corpus, tests, rows))
    packed = [tmp_path / "packed" / f"seed-{model.recipe.seed}.zip" for model in models]
    for model, path in zip(models, packed, strict=True):
        pack(here, [model], path)
    twice = tmp_path / "twice.zip"
    pack(here, models[:1], twice)
    assert twice.read_bytes() == packed[0].read_bytes()

    for path in packed:
        unpack(path, there)
    about = there / "tiny" / "rope" / "seed-1" / finished.ABOUT
    other = read_sealed(about)
    other["tested"]["hardware"] = "another card"
    write_sealed(about, other)
    whole = [{**line, "hardware": f"another card / {line['hardware']}"} for line in whole]
    joined = finished.find([there])
    assert [model.recipe.seed for model in joined] == [0, 1]
    assert not list(there.rglob("*.safetensors"))
    assert list(summary.records(joined, corpus, tests, rows)) == whole
    assert jobs.count_all(joined, corpus, tests, rows)
    with pytest.raises(TableError, match="seed-0 is not tested with 'yarn' yet, and its weights are not here"):
        jobs.count_all(joined, corpus, tests, ["yarn"])

    counts = there / "tiny" / "rope" / "seed-1" / "tests" / "pi.npz"
    counts.write_bytes(b"of a newer test")
    unpack(packed[1], there)
    assert counts.read_bytes() == b"of a newer test"  # what is there stays
    about.unlink()  # as an interrupted call leaves it
    with pytest.raises(TableError, match=r"tests/pi\.npz is there already, and is not what .*seed-1\.zip has for it"):
        unpack(packed[1], there)
    assert not about.exists()
    counts.unlink()
    unpack(packed[1], there)
    again = list(summary.records(finished.find([there]), corpus, tests, rows))
    assert [line["value"] for line in again] == [line["value"] for line in whole]


def test_what_is_no_packed_file_is_refused(tmp_path):
    (tmp_path / "seed-0.zip").write_bytes(b"no zip")
    for name in ("seed-0.zip", "seed-1.zip"):
        with pytest.raises(TableError, match=f"{name} must be a file of packed counts: "):
            unpack(tmp_path / name, tmp_path / "there")


def packed_file(path, files: dict[str, bytes], listed: dict[str, bytes] | None = None):
    """A packed file with any files in it, and a list of some."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in (listed or files).items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in (*files.items(), (CONTENTS, sealed(digests).encode())):
            file.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "name",
    ["../tests/x.npz", "a/../../tests/x.npz", "/tests/x.npz", "a/tests/../../../x.npz", "a\\tests/x.npz",
     "C:/tests/x.npz", "tests/x.npz", "x.npz", "a/tests/x.py", "a/tests/", "a/other.json", "a//trained.json",
     "trained.json"],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    path = packed_file(tmp_path / "seed-0.zip", {"a/tests/fine.npz": b"fine", name: b"strange"})
    with pytest.raises(TableError, match=rf"must be a file of packed counts: it has {re.escape(repr(name))}"):
        unpack(path, tmp_path / "there" / "inside")
    assert [path.name for path in tmp_path.iterdir()] == ["seed-0.zip"]


def test_unpacking_has_a_limit(tmp_path, monkeypatch):
    """Also where a file says less than it holds: no more is read than it says, and that has another checksum."""
    monkeypatch.setattr(counts, "LARGEST", 2000)
    path = packed_file(tmp_path / "seed-0.zip", {"a/tests/x.npz": bytes(2000)})
    with pytest.raises(TableError, match=r"zip must be a file of packed counts: it has 2,\d+ bytes, more than 2,000"):
        unpack(path, tmp_path / "there")
    content = path.read_bytes()
    assert content.count((2000).to_bytes(4, "little")) == 2
    path.write_bytes(content.replace((2000).to_bytes(4, "little"), (20).to_bytes(4, "little")))
    with pytest.raises(TableError, match=r"seed-0\.zip must be a file of packed counts: Bad CRC-32"):
        unpack(path, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_files_that_were_not_packed_are_refused(tmp_path):
    fine = {"a/tests/x.npz": b"x", "a/tests/y.npz": b"y"}
    for listed in ({"a/tests/x.npz": b"x"}, {**fine, "a/tests/z.npz": b"z"}, {**fine, "a/tests/y.npz": b"other"}):
        path = packed_file(tmp_path / "seed-0.zip", fine, listed)
        with pytest.raises(TableError, match="its files are not those that were packed"):
            unpack(path, tmp_path / "there")
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as file:
        file.writestr("a/tests/x.npz", b"again")
    with pytest.raises(TableError, match="it has a name twice"):
        unpack(path, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_link_does_not_lead_out(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "there" / "a").symlink_to(tmp_path / "elsewhere")
    path = packed_file(tmp_path / "seed-0.zip", {"b/tests/x.npz": b"x", "a/tests/x.npz": b"x"})
    with pytest.raises(TableError, match=r"'.*/there/a/tests/x\.npz' would be outside of .*/there"):
        unpack(path, tmp_path / "there")
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "there" / "b").exists()


def test_who_trains_or_tests_is_alone(runs, tmp_path, corpus):
    """Refused before anything is counted; what is counted already needs no lock."""
    models, tests = finished.find([tmp_path / "runs"]), Evaluation(factors=(1,), windows=2)
    with training.only_one(models[1].folder):
        with pytest.raises(InUseError, match=f"another process trains or tests in {models[1].folder}: wait"):
            jobs.count_all(models, corpus, tests, ["rope"])
        assert not list(tmp_path.rglob("*.npz"))
        assert jobs.count_all([models[0]], corpus, tests, ["rope"]) is not None
    with training.only_one(models[0].folder):
        assert jobs.count_all([models[0]], corpus, tests, ["rope"])


def test_what_cannot_stand_in_a_table_is_refused(runs, tiny, corpus, tmp_path, monkeypatch, capsys):
    def told(arguments: list[str]) -> str:
        assert command.main(arguments) == 1
        return capsys.readouterr().err

    assert "rows must be among those of the table, got nonsense" in told([*runs, "--rows", "nonsense"])
    assert "none serves kna" in told([*runs, "--rows", "rope", "kna"])
    assert "factors must be an int of at least 1, got 0" in told([*runs, "--factors", "1", "0"])
    (tmp_path / "empty").mkdir()
    assert "must hold a training, but there is no checkpoint in it" in told(["table", str(tmp_path / "empty")])
    other = replace(corpus, about={**corpus.about, "sha256": "0" * 64})
    with monkeypatch.context() as patch:
        patch.setattr(text, "open_corpus", lambda *_: other)
        assert "was trained on another corpus" in told(runs)
    unfinished = replace(tiny, seed=2, steps=100)
    folder = tmp_path / "runs" / "unfinished"
    training.train(unfinished, corpus, folder, CPU, save_every=5, minutes=0.0, quiet=True)
    assert "is not finished: step 5 of 100" in told(runs)


def test_bad_tests():
    with pytest.raises(ValueError, match=r"factors must begin with 1 and divide the last one, got \(1, 3, 4\)"):
        Evaluation(factors=(1, 3, 4))
    with pytest.raises(ValueError, match=f"factors must be an int of at least 1 and at most {2**31} .*, got {2**32}"):
        Evaluation(factors=(1, 2**32))
    with pytest.raises(ValueError, match="minutes must be a finite number of at least 0, got nan"):
        jobs.count_all([], None, Evaluation(), minutes=float("nan"))
    with pytest.raises(ValueError, match="depths must be from 0 to 1, got"):
        Evaluation(depths=(2.0,))
