"""No bad command line ends in a traceback: it is refused in words that name the argument, and nothing is written."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from experiments import table
from rope_lessons.lab import __main__ as lab
from rope_lessons.lab import training

TOO_LARGE = str(2**63)
HUGE = "9" * 5000  # more digits than Python turns into an int
BAD_NUMBERS = ("", "x", "1.5", "nan", HUGE)

# Arguments and the name that the message must have. What argparse itself refuses ends with status 2, the rest with 1.
TRAIN: list[tuple[list[str], str]] = [
    *((["--seed", value], "seed") for value in (*BAD_NUMBERS, "-1", TOO_LARGE, str(2**70))),
    *((["--steps", value], "steps") for value in (*BAD_NUMBERS, "0", "-3", TOO_LARGE)),
    *((["--batch", value], "batch") for value in (*BAD_NUMBERS, "0", "-4", "1000000000", TOO_LARGE)),
    *((["--train-length", value], "train.length") for value in ("x", "0", "-16", "40", "8", TOO_LARGE, str(2**31))),
    *((["--warmup", value], "warmup") for value in ("x", "-1", TOO_LARGE)),
    *((["--factor", value], "factor") for value in ("", "x", "0", "-2", "nan", "inf", "1e300", "1e-300", "0.5", "1e8")),
    *((["--learning-rate", value], "learning.rate") for value in ("x", "0", "-1", "nan", "inf", "1e300")),
    *((["--weight-decay", value], "weight.decay") for value in ("x", "-1", "nan", "inf", "1e300")),
    *((["--copies", value], "copies") for value in ("x", "-0.1", "1.1", "nan")),
    *((["--minutes", value], "minutes") for value in ("", "x", "nan", "-1", "-inf")),
    *((["--save-every", value], "save.every") for value in ("x", "0", "-1")),
    *((["--device", value], "device") for value in ("", "foo", "cuda:x", "cuda:99", "meta")),
    *((["--config", value], "config") for value in ("", "huge")),
    *((["--scheme", value], "scheme") for value in ("", "nonsense", "rope-logn-test-test")),
    *((["--optimizer", value], "optimizer") for value in ("", "sgd")),
    *((["--dtype", value], "dtype") for value in ("", "float16")),
    *((["--parallel", value], "parallel") for value in ("", "both")),
    *((["--corpus", value], "corpus") for value in ("", "nothing", "file", "runs/nothing")),
    (["--corpus", "empty"], "corpus must have at least two files of text"),
    (["--corpus", "short"], "corpus short has no text left"),
    (["--corpus", "strange"], r"corpus must have files whose names are text, got 'caf\\udce9\.txt'"),
    (["--batch", "4", "--train-length", "32768"], "train_length must be below the bytes of training text"),
    *((["--cache", value], "cache") for value in ("file", "file/cache", "/proc/nowhere")),
    *((["--out", value], "out") for value in ("file", "file/runs", "/proc/nowhere")),
    (["--nonsense"], "--nonsense"),
    (["--ste", "3"], "--ste"),
    (["extra"], "extra"),
    (["--seed"], "--seed"),
    (["--quiet", "yes"], "yes"),
    (["--scheme", "list", "--factor", "nan"], "factor"),
]

TABLE: list[tuple[list[str], str]] = [
    ([], "runs"),
    *(([value], value or "runs") for value in ("nothing", "file", "empty")),
    *(
        (["runs", "--factors", *values], "factors")
        for values in ([], ["x"], ["0"], ["1", "-2"], ["2"], ["1", "3", "4"], ["1", TOO_LARGE], ["1", str(10**30)])
    ),
    (["runs", "--factors", "1", str(2**20)], "no held-out document has .* Test at shorter lengths"),
    *((["runs", "--windows", value], "windows") for value in (*BAD_NUMBERS, "0", "-1")),
    *((["runs", "--minutes", value], "minutes") for value in ("x", "nan", "-1", "-inf")),
    *((["runs", "--rows", *values], "rows") for values in ([], [""], ["nonsense"], ["rope", "rop"], ["kna"])),
    *((["runs", "--device", value], "device") for value in ("", "foo", "cuda:99", "meta")),
    *((["runs", "--results", value], "results") for value in (".", "runs", "file/table.json", "/proc/nowhere/a.json")),
    *((["runs", "--corpus", value], "corpus") for value in ("", "nothing", "file")),
    (["runs", "--corpus", "other"], "was trained on another corpus"),
    *((["runs", "--cache", value], "cache") for value in ("file", "/proc/nowhere")),
    (["runs", "copy"], "hold the same training"),
    (["runs", "unfinished"], "is not finished: step 1 of 2"),
    (["runs", "--nonsense"], "--nonsense"),
    (["runs", "--fact", "1"], "--fact"),
]

MEASURE: list[tuple[list[str], str]] = [
    *((["--config", value], "config") for value in ("", "huge")),
    *((["--seeds", *values], "seeds") for values in ([], [""], ["x"], ["1.5"], ["-1"], [TOO_LARGE], ["0", "0"])),
    *((["--rows", *values], "rows") for values in ([], ["nonsense"], ["rope", "rop"])),
    *((["--trainings", *values], "trainings") for values in ([], ["nonsense"], ["pi"])),
    (["--rows", "rope", "--trainings", "rope"], "not allowed with argument --rows"),
    *((["--corpus", value], "corpus") for value in ("", "nothing", "file", "empty")),
    *((["--windows", value], "windows") for value in ("x", "0", "-1")),
    *((["--minutes", value], "minutes") for value in ("x", "nan", "-1")),
    *((["--processes", value], "processes") for value in ("x", "0", "-1")),
    *((["--cache", value], "cache") for value in ("file", "/proc/nowhere")),
    (["--nonsense"], "--nonsense"),
    (["--seed", "0"], "--seed"),
]

NEITHER: list[tuple[list[str], str]] = [([], "command"), (["nonsense"], "command"), (["--seed", "1"], "command")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, folder_of_text: Path) -> Path:
    """A folder with everything that the command lines speak of; they share it, for none changes it."""
    root = tmp_path_factory.mktemp("place")
    (root / "file").write_text("no folder")
    (root / "texts").symlink_to(folder_of_text)
    names = {"empty": (), "short": ("a", "b"), "strange": ("a", "b", "caf\udce9.txt"), "other": ("a", "b")}
    for folder, files in names.items():
        (root / folder).mkdir()
        for file in files:
            content = hashlib.shake_256(ascii(file).encode()).hexdigest(2000)
            (root / folder / file).write_text(content if folder == "other" else "a little")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        small = ["train", *OWN, "--steps", "2", "--batch", "4", "--train-length", "32"]
        assert lab.main([*small, "--out", "runs"]) == 0
        assert lab.main([*small, "--out", "unfinished", "--minutes", "0", "--save-every", "1"]) == 0
    shutil.copytree(root / "runs", root / "copy")
    return root


OWN = ["--corpus", "texts", "--cache", "cache", "--device", "cpu", "--quiet"]


def contents(place: Path) -> dict[Path, int]:
    """All files but those of the cache, where texts that can be had are prepared."""
    return {path: path.lstat().st_mtime_ns for path in place.rglob("*") if "cache" not in path.parts}


def refuse(main: Callable[[Sequence[str]], int], arguments: list[str], place: Path, capsys) -> str:
    """What a command says that must refuse."""
    before = contents(place)
    try:
        status = main(arguments)
    except SystemExit as error:  # of argparse
        status = error.code
        assert status == 2
    else:
        assert status == 1
    assert contents(place) == before
    said = capsys.readouterr()
    assert not said.out
    assert "Traceback" not in said.err
    *usage, told = said.err.splitlines()
    assert not usage or status == 2
    return told


@pytest.mark.parametrize(("arguments", "named"), TRAIN)
def test_train_refuses(place, capsys, monkeypatch, arguments, named):
    monkeypatch.chdir(place)
    own = [*OWN, "--batch", "4", "--steps", "2", "--train-length", "32", "--out", "new"]
    told = refuse(lab.main, ["train", *own, *arguments], place, capsys)
    assert re.search(rf"^python -m rope_lessons\.lab( train)?: .*({named})", told), told


@pytest.mark.parametrize(("arguments", "named"), TABLE)
def test_table_refuses(place, capsys, monkeypatch, arguments, named):
    monkeypatch.chdir(place)
    own = [*OWN, "--results", "new.json", "--factors", "1", "2", "--windows", "2", "--rows", "rope"]
    told = refuse(lab.main, ["table", *own, "--quiet", *arguments], place, capsys)
    assert re.search(rf"^python -m rope_lessons\.lab( table)?: .*({named})", told), told


@pytest.mark.parametrize(("arguments", "named"), NEITHER)
def test_what_is_no_command_is_refused(place, capsys, monkeypatch, arguments, named):
    monkeypatch.chdir(place)
    told = refuse(lab.main, arguments, place, capsys)
    assert re.search(rf"^python -m rope_lessons\.lab: .*({named})", told), told


@pytest.mark.parametrize(("arguments", "named"), MEASURE)
def test_the_experiment_refuses(place, capsys, monkeypatch, arguments, named):
    monkeypatch.chdir(place)
    own = ["--corpus", "texts", "--cache", "cache", "--models", "models"]
    told = refuse(table.main, [*own, *arguments], place, capsys)
    assert re.search(rf"^python -m experiments table: .*({named})", told), told


# --- what is no fault of the command line --------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["train", "table"])
@pytest.mark.parametrize("missing", [("safetensors",), ("tqdm",), ("safetensors", "tqdm")])
def test_missing_packages_are_named(place, capsys, monkeypatch, command, missing):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(place)
    told = refuse(lab.main, [command, *OWN, *(["runs"] if command == "table" else [])], place, capsys)
    wanted = f"this command needs {missing[0]}, of the extra [lab]: pip install {' '.join(missing)}"
    assert told == f"python -m rope_lessons.lab {command}: {wanted}"


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (MemoryError("Unable to allocate 3 TiB"), 1, "this takes too much memory: Unable to allocate 3 TiB"),
        (torch.OutOfMemoryError("CUDA out of memory"), 1, "this takes too much memory: CUDA out of memory"),
        (KeyboardInterrupt(), 130, "interrupted. The same command goes on from what is kept"),
    ],
)
def test_what_ends_a_training_is_told_in_a_line(place, capsys, monkeypatch, error, status, told):
    def ending(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.chdir(place)
    monkeypatch.setattr(training, "train", ending)
    assert lab.main(["train", *OWN]) == status
    assert capsys.readouterr().err == f"python -m rope_lessons.lab train: {told}\n"
