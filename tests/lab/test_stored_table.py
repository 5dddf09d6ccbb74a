"""The table as the chapter reads it: the lines, the published rows, the knobs in words, and the shipped models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments import table
from rope_lessons.lab import checkpoint, text, training
from rope_lessons.lab.checkpoint import CheckpointError
from rope_lessons.lab.rows import OWN, rows
from rope_lessons.lab.table import finished, jobs, scoring, shipped, summary
from rope_lessons.lab.table.documents import difference, document_hits
from rope_lessons.lab.table.knobs import KNOBS, knobs
from rope_lessons.lab.table.lines import PACKAGED, Line, pick, read_table, recipe_of, row_names
from rope_lessons.lab.table.published import published_rows
from rope_lessons.lab.table.scoring import Evaluation
from rope_lessons.lab.training import Team
from rope_lessons.stored import read_results, write_results

CPU = Team(torch.device("cpu"))
TESTS = Evaluation(factors=(1, 2, 4), windows=3, depths=(0.0, 1.0))
TABLE = rows(layers=4, dim=64, train_length=64)


@pytest.fixture
def trained(tiny, corpus, tmp_path) -> Path:
    """The folder of a training of two steps."""
    training.train(replace(tiny, steps=2, warmup=1), corpus, tmp_path / "run", CPU, quiet=True)
    return tmp_path / "run"


# --- the stored table ----------------------------------------------------------------------------------------------


def test_read_gives_what_was_written(trained, corpus, tmp_path):
    models = finished.find([trained])
    names = ["rope", "rerope-w16"]
    jobs.count_all(models, corpus, TESTS, names)
    written = list(summary.records(models, corpus, TESTS, names))
    summary.write_table(written, tmp_path / "table.json")
    lines = read_table(tmp_path / "table.json")
    assert len(lines) == len(written)
    for line, record in zip(lines, written, strict=True):
        assert line.along == tuple(record["along"])
        assert {name: getattr(line, name) for name in set(Line._fields) - {"along"}}.items() <= record.items()
    assert row_names(lines) == names
    assert pick(lines, "rope", "repeated", 4, "loss").length == 128
    assert pick(lines, OWN, times=1).value == pick(lines, "rope", times=1).value
    about = recipe_of(tmp_path / "table.json")
    assert about["steps"] == 2
    assert "row" not in about


def test_a_line_that_is_not_there():
    with pytest.raises(ValueError, match="no line for row 'rope', repeated, 3 times the length, loss"):
        pick([], "rope", "repeated", 3, "loss")


def test_another_file_is_no_table(tmp_path):
    for tables in ({}, {"lines": []}, {"lines": [{"row": "rope", "value": 1.0}]}):
        write_results(tmp_path / "x.json", {}, **tables)
        with pytest.raises(ValueError, match=r"x\.json must have a table 'lines' with row, .*; it lacks .*low"):
            read_table(tmp_path / "x.json")


def test_a_damaged_table_is_named_with_its_line(tmp_path):
    first, second, *others = read_results(PACKAGED)["lines"]
    for value, told in (("0.7x", "could not convert string to float: '0.7x'"), (None, "float.* must be .* number")):
        write_results(tmp_path / "x.json", {}, lines=[first, {**second, "value": value}, *others[:3]])
        with pytest.raises(ValueError, match=rf"x\.json is damaged: line 2 of the table, {told}"):
            read_table(tmp_path / "x.json")


# --- the published table -------------------------------------------------------------------------------------------


def test_every_published_row_has_one_of_ours():
    table = published_rows()
    ours = [row.ours(64, 8.0, 4) for row in table]
    assert set(ours) <= set(TABLE)
    assert len(set(ours)) == len(ours), "a row of ours stands for two"
    assert len({row.name for row in table}) == len(table)
    large = rows(layers=24, dim=128, train_length=512)
    named = {row.name: row.ours(512, 8.0, 24) for row in table}
    assert set(named.values()) <= set(large)
    assert named["HWFA"] == "hwfa-w16"  # the source's own setting
    assert named["ReRoPE-w384-logn†"] == "rerope-w384-logn-test"
    assert named["Leaky-w256-k16-logn"] == "leaky-rerope-w256-k16-logn"
    assert named["InvLeaky-w128-b8-logn"] == "invleaky-w128-logn-b80000"
    assert named["HWFA2-w64-f2"] == "hwfa2-w64-f2"


def test_our_row_does_what_the_published_name_says():
    """The scale and the window of each."""
    for row in published_rows():
        ours = rows(layers=24, dim=128, train_length=512)[row.ours(512, 8.0, 24)]
        scale = ours.method.test[-1].scale
        if row.article not in (9, 14):
            assert (scale is not None) == ("logn" in row.name), row.name
            assert (scale is not None and scale.clip) == ("†" in row.name), row.name
        if row.name.startswith(("ReRoPE-w", "Leaky-w")):
            assert f"-w{ours.method.test[0].window}" in row.name
        if row.name.startswith("Leaky"):
            assert f"-k{1 / ours.method.test[0].slope:g}-" in row.name


KEY_NORMS = """
    Baseline 49.41 24.17 23.16 / 60.57 42.20 / 80.10 47.45 / 76.11 47.82
    Baseline-logn 49.40 24.60 24.02 / 75.86 47.06 / 82.57 46.52 / 85.47 48.87
    QNA 49.55 22.45 22.18 / 52.28 39.88 / 82.53 47.50 / 78.22 47.72
    QNA-logn 49.42 19.55 18.74 / 57.44 41.56 / 80.08 45.16 / 84.71 48.31
    KNA 49.60 61.08 47.69 / 64.44 43.02 / 84.19 47.44 / 77.76 47.73
    KNA-logn 49.58 63.17 46.40 / 79.05 47.43 / 83.95 47.16 / 85.48 48.78
    CosA 49.73 58.90 46.98 / 62.50 42.77 / 83.40 47.80 / 77.82 47.80
    CosA-logn 49.67 64.74 48.95 / 78.97 47.46 / 82.28 45.72 / 85.67 48.39
"""


def test_the_second_table_of_article_15():
    """All of its 32 rows but Baseline with NTK; 512, repeated, not repeated / NTK / YaRN / ReRoPE. For CosA-logn the
    number of the first table, which is not that of the second."""
    published = {row.name: row for row in published_rows()}
    elsewhere = {"Baseline+ReRoPE": "ReRoPE-w128", "Baseline-logn+ReRoPE": "ReRoPE-w128-logn"}
    for line in KEY_NORMS.split("\n")[1:-1]:
        plain, *tricks = (part.split() for part in line.split("/"))
        name, trained, *both = plain
        wanted = {name: both, **{f"{name}+{t}": x for t, x in zip(("NTK", "YaRN", "ReRoPE"), tricks, strict=True)}}
        for row, numbers in wanted.items():
            if row.startswith("Baseline") and row.endswith("NTK"):
                assert row not in published
                continue
            found = published[elsewhere.get(row, row)]
            assert [found.trained, found.repeated, found.natural] == [float(x) for x in (trained, *numbers)], row
    ours = [published[f"QNA-logn+{trick}"].ours(64, 8.0, 4) for trick in ("NTK", "YaRN", "ReRoPE")]
    assert ours == ["qna-logn-ntk-fixed", "qna-logn-yarn", "qna-logn-rerope-w16"]


def test_published_numbers():
    """How many rows each article has, and the sums of their columns, added up from the articles."""
    sums: dict[int, list[float]] = {}
    for row in published_rows():
        numbers = (1, row.trained, row.repeated, row.natural)
        sums[row.article] = [a + b for a, b in zip(sums.get(row.article, [0] * 4), numbers, strict=True)]
    assert len(published_rows()) == 72
    for article, wanted in {
        9: [1, 48.70, 80.84, 48.15],
        10: [6, 296.43, 191.79, 160.25],
        11: [6, 296.44, 351.76, 252.77],
        12: [23, 1136.30, 1640.06, 992.82],
        13: [2, 99.00, 163.40, 97.17],
        14: [8, 394.50, 627.51, 391.44],
        15: [26, 1289.01, 1833.33, 1156.54],
    }.items():
        assert sums.pop(article) == pytest.approx(wanted), article
    assert not sums


# --- knobs in words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("rope", {"frequencies": "RoPE", "distance": "true", "scale": "1", "positions": "0, 1, 2, …"}),
        ("ntk-mixed-logn-test", {"frequencies": "RoPE → NTK-mixed", "scale": "1 → log n†"}),
        ("yarn-logn", {"frequencies": "RoPE → YaRN", "scale": "log n → 1.46 × log n"}),
        ("leaky-rerope-w16-k8-logn", {"distance": "true → from 16 in steps of 1/8", "scale": "log n"}),
        ("invleaky-w16-logn-b80000", {"frequencies": "RoPE, base 80000", "distance": "from 16 in steps of 16 → true"}),
        ("hwfa-w16", {"visible": "3 × last 16; 1 × all before", "scale": "3 × 1; 1 × log n"}),
        ("hwfa2-w8-f2", {"distance": "true → 2 × true; 2 × 32 at most", "visible": "2 × last 8; 2 × all before"}),
        ("lambda", {"visible": "all before → last 60 and first 4"}),
        ("alibi", {"frequencies": "none", "distance": "none", "visible": "all before, ALiBi"}),
        ("kna-logn", {"scale": "unit k × log n"}),
        ("cosa", {"scale": "13.9 cos"}),
        ("random-positions", {"positions": "random below 1024 → even grid"}),
        ("equal-mean", {"positions": "random step → 0, 1, 2, …"}),
    ],
)
def test_knobs(row, words):
    found = knobs(TABLE[row])
    assert tuple(found) == KNOBS
    assert {name: found[name] for name in words} == words


def test_rows_differ_in_their_knobs():
    """No two rows have the same words."""
    said = [tuple(knobs(row).values()) for row in TABLE.values()]
    assert len(set(said)) == len(said)


# --- shipped models ------------------------------------------------------------------------------------------------


def test_export_and_load(trained, tiny, tmp_path):
    path = table.export(checkpoint.stored(trained)[-1], tmp_path)
    assert path.name == "table_rope.safetensors"
    assert {tensor.dtype for tensor in load_file(path).values()} == {torch.bfloat16}
    model, recipe = shipped.load("rope", tmp_path)
    assert recipe == replace(tiny, steps=2, warmup=1)
    assert not model.training
    original = dict(training.load(checkpoint.stored(trained)[-1])[0].named_parameters())
    for name, weight in model.named_parameters():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, original[name].to(torch.bfloat16).float())


def test_files_that_are_no_shipped_model(trained, tmp_path):
    with pytest.raises(CheckpointError, match="no model is shipped for 'alibi'; there are none"):
        shipped.load("alibi", tmp_path)
    save_file({"x": torch.zeros(1)}, tmp_path / "table_x.safetensors")
    with pytest.raises(CheckpointError, match="foreign: its format is None"):
        shipped.load("x", tmp_path)
    path = table.export(checkpoint.stored(trained)[-1], tmp_path)
    weights = load_file(path)
    recipe = json.loads(json.dumps(checkpoint.load(checkpoint.stored(trained)[-1]).recipe))
    for change in ({"plan": "(another,)"}, {"scheme": "gone"}):
        about = {"format": shipped.FORMAT, "recipe": json.dumps({**recipe, **change})}
        checkpoint.write_tensors(path, weights, about)
        with pytest.raises(CheckpointError, match="another version of this package"):
            shipped.load("rope", tmp_path)
    about = {"format": shipped.FORMAT, "recipe": json.dumps(recipe)}
    checkpoint.write_tensors(path, dict(list(weights.items())[1:]), about)
    with pytest.raises(CheckpointError, match=r"rope\.safetensors does not hold the weights of its .*Missing key"):
        shipped.load("rope", tmp_path)
    checkpoint.write_tensors(path, weights, {"format": shipped.FORMAT, "recipe": "{"})
    with pytest.raises(CheckpointError, match=r"rope\.safetensors has no recipe: JSONDecodeError"):
        shipped.load("rope", tmp_path)
    save_file(weights, path, metadata={"format": shipped.FORMAT, "recipe": json.dumps(recipe)})
    with pytest.raises(CheckpointError, match=r"rope\.safetensors is damaged: its content does not have the SHA-256"):
        shipped.load("rope", tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"rope\.safetensors is damaged, or no safetensors file: "):
        shipped.load("rope", tmp_path)


def test_retest_finds_what_the_table_counted(trained, corpus):
    """By window, both sets, the same numbers as the table's own counts."""
    model, recipe, _ = training.load(checkpoint.stored(trained)[-1])
    windows, documents = text.natural_windows(corpus, 4 * 32, TESTS.windows)
    assert len(documents.unique()) == len(windows)
    counts = scoring.count(model, recipe.rows["rerope-w16"], corpus, 32, TESTS)
    found = shipped.retest(model, recipe, "rerope-w16", windows, times=4)
    order = documents.argsort()
    for kind, values in found.items():
        shares = counts[f"4 {kind} hits"].sum(axis=1) / counts[f"4 {kind} tokens"].sum(axis=1)
        torch.testing.assert_close(values[order], torch.from_numpy(shares))
    with pytest.raises(ValueError, match="row"):
        shipped.retest(model, recipe, "rope-logn", windows)


def test_text_goes_out_and_back(corpus, tmp_path):
    windows, _ = text.natural_windows(corpus, 128, 2)
    windows[0, :3] = torch.tensor([0, 200, 255])  # any byte
    accuracies = {"rope": {"not repeated": 0.5, "repeated": 0.25}}
    table.export_text(tmp_path / "text.json", corpus, windows, accuracies, "PSF")
    assert torch.equal(shipped.windows(tmp_path / "text.json"), windows)
    assert shipped.accuracies(tmp_path / "text.json") == accuracies


# --- differences ---------------------------------------------------------------------------------------------------


def test_difference_is_that_of_the_accuracies(trained, corpus, tmp_path):
    models = finished.find([trained])
    names = ["rope", "rerope-w16"]
    jobs.count_all(models, corpus, TESTS)
    summary.write_table(summary.records(models, corpus, TESTS, names), tmp_path / "table.json")
    lines = read_table(tmp_path / "table.json")
    stored = json.loads(json.dumps(document_hits(models, corpus, TESTS, times=4)))
    for kind in ("not repeated", "repeated"):
        first, second = (pick(lines, name, kind, 4).value for name in names)
        value, low, high = difference(*names, kind, stored)
        assert value == pytest.approx(first - second, abs=1e-6)
        assert low <= value <= high
    assert difference("rope", "rope", stored=stored) == (0, 0, 0)


def test_what_all_documents_share_drops_out():
    """Documents differ by 50 points, the rows by 10 in each: the interval of the difference has no width."""
    hits = {"a": {"repeated": [[10, 60], [20, 70]]}, "b": {"repeated": [[0, 50], [10, 60]]}}
    found = difference("a", "b", "repeated", {"tokens": [100, 100], "hits": hits})
    assert found == pytest.approx((0.1, 0.1, 0.1))
