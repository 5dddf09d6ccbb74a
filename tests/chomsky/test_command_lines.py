"""Bad command lines of ``python -m rope_lessons.chomsky``: one line that names the argument, and nothing is done."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from rope_lessons.chomsky import results
from rope_lessons.chomsky.__main__ import main
from rope_lessons.chomsky.grid import jobs
from rope_lessons.chomsky.training import Protocol, Training
from rope_lessons.stored import write_results
from tools.project import ROOT

SMALL = ["longest=6", "batch=3", "test_lengths=7+9", "samples=4", "hidden=8", "steps=2"]
PROTOCOL = Protocol(longest=6, batch=3, test_lengths=(7, 9), samples=4, hidden=8, steps=2)
JOB = ["--task", "even_pairs", "--model", "rnn", "--seeds", "0", "--learning-rate", "1e-3"]
HERE = ["--results", "a.json", "--checkpoints", "unfinished", "--device", "cpu", "--quiet", "--set", *SMALL]
GOOD = [*JOB, *HERE]
ROPE = ["--model", "transformer", "--positions"]  # a model whose positions can run out

# What is added to a good command line (a later argument counts) or, in a tuple, the whole of it; what is said.
WRONG: list[tuple[list[str] | tuple[str, ...], str]] = [
    # which jobs
    ((), "9000 jobs: choose some with --task, .*--learning-rate, see them with --list, or take all of them with --all"),
    (("--protocol", "reduced", "--minutes", "5"), "choose some with --task"),
    (("--results", "a.json", "--quiet"), "choose some with --task"),
    (["--all"], "--all takes the whole grid: leave it out or leave out --task, --model, --seeds, --learning-rate"),
    (["--task", "parity"], "argument --task: invalid choice: 'parity'"),
    (["--task", "all", "even_pairs"], "--task must be all, or some of the tasks, got all even_pairs"),
    (["--task"], "argument --task: expected at least one argument"),
    (["--task", "even_pairs", "even_pairs"], "--task has even_pairs twice"),
    (["--model", "gpt"], "argument --model: invalid choice: 'gpt'"),
    (["--model", "rnn", "rnn"], "--model has rnn twice"),
    (["--positions", "roper"], "argument --positions: invalid choice: 'roper'"),
    (["--positions", "rope"], "no configuration of the grid has --model rnn, --positions rope"),
    (["--variant", "randomly"], "argument --variant: invalid choice: 'randomly'"),
    (["--variant", "random"], "no configuration of the grid has --model rnn, .*--variant random"),
    (["--seeds", "-1"], "--seeds must be an int of at least 0, got -1"),
    (["--seeds", "1.5"], "argument --seeds: invalid int value: '1.5'"),
    (["--seeds", "zero"], "argument --seeds: invalid int value: 'zero'"),
    (["--seeds", "9" * 5000], "argument --seeds: invalid int value"),
    (["--seeds", "0", "1", "0"], "--seeds has 0 twice"),
    (["--seeds"], "argument --seeds: expected at least one argument"),
    (["--learning-rate", "nan"], "--learning-rate must be a positive finite number, got nan"),
    (["--learning-rate", "inf"], "--learning-rate must be a positive finite number, got inf"),
    (["--learning-rate", "0"], "--learning-rate must be a positive finite number, got 0"),
    (["--learning-rate", "-1e-3"], "--learning-rate.*"),
    (["--learning-rate", "fast"], "argument --learning-rate: invalid float value: 'fast'"),
    (["--learning-rate", "1e-3", "0.001"], "--learning-rate has 0.001 twice"),
    # the protocol
    (["--protocol", "mine"], "argument --protocol: invalid choice: 'mine'"),
    (["--set", "size=3"], "--set must name one of longest, batch, .*, got size=3"),
    (["--set", "steps"], "--set steps must be an int, got ''"),
    (["--set", "=5"], "--set must name one of"),
    (["--set", "steps=many"], "--set steps must be an int, got 'many'"),
    (["--set", "steps=0"], "steps must be an int of at least 1, got 0"),
    (["--set", "steps=-5"], "steps must be an int of at least 1, got -5"),
    (["--set", "steps=1e3"], "--set steps must be an int, got '1e3'"),
    (["--set", f"batch={2**63}"], "batch must be an int of at least 1 and at most 2147483647 .* got 92233"),
    (["--set", "clip=nan"], "clip must be a positive finite number, got nan"),
    (["--set", "clip=0"], "clip must be a positive finite number, got 0"),
    (["--set", "dropout=1"], "dropout must be below 1, got 1"),
    (["--set", "dropout=nan"], "dropout must be a finite number of at least 0, got nan"),
    (["--set", "masked_loss=yes"], "--set masked_loss must be True or False, got 'yes'"),
    (["--set", "draw=model"], "draw must be one of 'forward', 'layer', got 'model'"),
    (["--set", "test_positions=plain"], "test_positions must be one of 'random', 'grid', got 'plain'"),
    (["--set", "test_positions=grid+grid"], "test_positions must be one or more, each of them once, got grid, grid"),
    (["--set", "test_lengths="], "test_lengths must be an int of at least 1, got ''"),
    (["--set", "test_lengths=7+0"], "test_lengths must be an int of at least 1, got 0"),
    (["--set", "test_lengths=7+7"], "test_lengths must be one or more, each of them once, got 7, 7"),
    (["--set", "width=65"], "width must be heads times an even number, got 65 and 8 heads"),
    (["--set", "embedding_std=-1"], "embedding_std must be a positive finite number, got -1"),
    # texts that are longer than there are positions: known before the first step and not after the last one
    ([*ROPE, "rope", "--variant", "random", "--set", "max_position=64"], "max_position must be at least 501"),
    ([*ROPE, "alibi", "--variant", "random", "--set", "max_position=64"], "max_position must be at least 501"),
    ([*ROPE, "learned", "--variant", "plain", "--set", "max_position=64"], "max_position must be at least 501"),
    # the run
    (["--device", "banana"], "device must be one that PyTorch can use here .*, got 'banana'"),
    (["--device", "meta"], "device must be one that PyTorch can use here .*, got 'meta'"),
    (["--device", "cuda:99"], "device must be one that PyTorch can use here .*, got 'cuda:99'"),
    (["--device", ""], "device must be one that PyTorch can use here .*, got ''"),
    (["--minutes", "nan"], "--minutes must be a positive number, got nan"),
    (["--minutes", "0"], "--minutes must be a positive number, got 0"),
    (["--minutes", "-5"], "--minutes must be a positive number, got -5"),
    (["--minutes", "soon"], "argument --minutes: invalid float value: 'soon'"),
    (["--save-every", "nan"], "--save-every must be a finite number of at least 0, got nan"),
    (["--save-every", "-1"], "--save-every must be a finite number of at least 0, got -1"),
    (["--side-by-side", "0"], "--side-by-side must be an int of at least 1, got 0"),
    (["--side-by-side", "-3"], "--side-by-side must be an int of at least 1, got -3"),
    (["--side-by-side", "2.5"], "argument --side-by-side: invalid int value: '2.5'"),
    (["--shard", "4"], "--shard must be i/n with i from 0 to n-1, got '4'"),
    (["--shard", "2/2"], "--shard must be i/n with i from 0 to n-1, got '2/2'"),
    (["--shard", "0/0"], "--shard must be i/n with i from 0 to n-1, got '0/0'"),
    (["--shard", "-1/2"], "--shard.*"),
    (["--shard", "a/b"], "--shard must be i/n with i from 0 to n-1, got 'a/b'"),
    # files
    (["--results", "a.json", "./a.json"], r"--results has a\.json twice"),
    (["--results", "folder"], "--results must be a file that can be written, got 'folder': it is a folder"),
    (["--results", "a.json", "folder"], "--results must be a file that can be written, got 'folder': it is a folder"),
    (["--results", "file/a.json"], "--results must be a file that can be written, got 'file/a.json': .*"),
    (["--results", "/proc/a.json"], "--results must be a file that can be written, got '/proc/a.json': .*"),
    (["--results", f"{'x' * 300}.json"], "--results must be a file that can be written, got 'xxx"),
    (["--results", "garbage.json"], "garbage.json is no file of results, or damaged: .*can't decode"),
    (["--results", "nul.json"], "nul.json is no file of results, or damaged: Expecting value"),
    (["--results", "empty.json"], "empty.json is no file of results, or damaged: Expecting value"),
    (["--results", "foreign.json"], "foreign.json must have a table 'rows' with task, .*; it lacks task, "),
    (["--results", "a.json", "foreign.json"], "foreign.json must have a table 'rows' with task, .*; it lacks task, "),
    (["--results", "lacking.json"], "lacking.json must have a table 'rows' with .*; it lacks accuracy, seconds$"),
    (["--results", "cut.json"], "cut.json is no file of results, or damaged: "),
    (["--results", "short.json"], "short.json is no file of results, or damaged: "),
    (["--results", "number.json"], "number.json is damaged: row 2: accuracy must be a number .* got 'much'"),
    (["--results", "share.json"], "share.json is damaged: row 2: accuracy must be a number from 0 to 1, got 1.5"),
    (["--results", "exact.json"], "exact.json is damaged: row 2: exact must be a number from 0 to 1, got 2"),
    (["--results", "reduced.json"], "reduced.json is damaged: row 2: reduced must be True or False, got 1"),
    (["--results", "task.json"], "task.json is damaged: row 2: task must be one of .*, got 'chess'"),
    (["--results", "a.json", "cut.json"], "cut.json is no file of results, or damaged: "),
    (["--checkpoints", "file"], "--checkpoints must be a folder that can be written to, got 'file': .*"),
    (["--checkpoints", "file/deeper"], "--checkpoints must be a folder that can be written to, got 'file/deeper': .*"),
    (["--checkpoints", "/proc/unfinished"], "--checkpoints must be a folder that can be written to, got '/proc/.*"),
    # what is none
    (["--tasks", "even_pairs", "--banana"], "unrecognized arguments: .*--banana"),
    (("even_pairs",), "unrecognized arguments: even_pairs"),
    (["--list=yes"], "argument --list: ignored explicit argument 'yes'"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files of every bad kind in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    first, second = good_lines()
    results.append(Path("good.json"), [first, second])
    good = Path("good.json").read_text()
    for name, content in {
        "file": "a file\n",
        "empty.json": "",
        "cut.json": good[:-5],
        "short.json": re.sub(r"\[[^[]*, (.*\]\])", r"[\1", good),
    }.items():
        Path(name).write_text(content)
    Path("garbage.json").write_bytes(bytes(range(128, 256)) * 9)
    Path("nul.json").write_bytes(bytes(40))
    write_results(Path("foreign.json"), {"rows": [{"task": 1}]}, others=[first])
    lacking = {name: value for name, value in first.items() if name not in ("accuracy", "seconds")}
    write_results(Path("lacking.json"), {}, rows=[lacking])
    changes = {
        "number": ("accuracy", "much"),
        "share": ("accuracy", 1.5),
        "exact": ("exact", 2),
        "reduced": ("reduced", 1),
        "task": ("task", "chess"),
    }
    for name, (column, value) in changes.items():
        write_results(Path(f"{name}.json"), {}, rows=[first, {**second, column: value}])
    Path("folder").mkdir()
    return tmp_path


@cache
def good_lines() -> list[dict[str, Any]]:
    """What a results file has in it."""
    training = Training(jobs(["even_pairs"], ["rnn"], seeds=[3], learning_rates=[1e-3]), PROTOCOL)
    return results.lines_of(training.evaluate(), PROTOCOL, "regular", {training.jobs[0]: 0.5}, 1.0, training.device)


def files(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def code_of(arguments: list[str]) -> int:
    """What the process would end with."""
    try:
        return main(arguments)
    except SystemExit as end:  # argparse's own
        return int(str(end.code))


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    def advance(self: Training) -> None:
        pytest.fail("a training was begun")

    monkeypatch.setattr(Training, "advance", advance)


def test_the_good_command_line_is_good(folder, capsys):
    """So it is what the others add to it that is refused."""
    assert code_of(GOOD) == 0
    assert len(results.read("a.json")) == 2
    assert "1 jobs, 1 in this part, 1 left" in capsys.readouterr().out


def test_a_good_file_is_read(folder, capsys):
    """So it is what was done to the bad ones that is refused."""
    assert code_of([*GOOD, "--results", "good.json", "--seeds", "3", "--list"]) == 0
    assert "1 jobs, 1 in this part, 0 left" in capsys.readouterr().out


@pytest.mark.parametrize(("added", "said"), WRONG, ids=[" ".join(added)[:60] or "nothing" for added, _ in WRONG])
def test_bad_command_line(folder, untrained, capsys, added, said):
    before = files(folder)
    assert code_of(list(added) if isinstance(added, tuple) else [*GOOD, *added]) in (1, 2)
    errors = capsys.readouterr().err
    last = errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert errors.startswith(("usage: ", "python -m rope_lessons.chomsky: "))
    assert re.search(said, last), f"{last!r} does not say {said!r}"
    assert files(folder) == before


def test_the_last_line_says_what_is_left(folder, capsys):
    """Also when the time is over, and when there was nothing left to do."""
    for minutes, told in (
        ("1e-9", "a.json: 0 of these jobs are done, 1 left. The same command goes on from there."),
        ("inf", "a.json: 1 of these jobs are done, 0 left."),
        ("inf", "a.json: 1 of these jobs are done, 0 left."),
    ):
        assert code_of([*GOOD, "--minutes", minutes]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == told


def test_a_missing_extra_is_one_line(folder, untrained, capsys, monkeypatch):
    for module in ("tqdm", "filelock", "safetensors"):  # the others are there
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            assert code_of(GOOD) == 1
        told = f"this command needs {module}, of the extra [lab]: pip install {module}"
        assert capsys.readouterr().err == f"python -m rope_lessons.chomsky: {told}\n"


def test_too_little_memory_is_one_line(folder, capsys, monkeypatch):
    """An error of PyTorch's that is none of the user's keeps its traceback."""
    words = "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4e12"
    for error in (RuntimeError(words), torch.OutOfMemoryError("CUDA out of memory"), MemoryError("no more")):
        monkeypatch.setattr(Training, "advance", lambda self, error=error: (_ for _ in ()).throw(error))
        assert code_of(GOOD) == 1
        assert f"this takes too much memory: {error}" in capsys.readouterr().err
    monkeypatch.setattr(Training, "advance", lambda self: (_ for _ in ()).throw(RuntimeError("another")))
    with pytest.raises(RuntimeError, match="another"):
        main(GOOD)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_what_torchrun_says_is_read_with_care(folder, untrained, capsys, monkeypatch, name):
    monkeypatch.setenv(name, "x")
    assert code_of(GOOD) == 1
    assert "RANK/WORLD_SIZE must be i/n with i from 0 to n-1, got" in capsys.readouterr().err


def test_nothing_is_made_by_a_list(folder, untrained, capsys):
    before = files(folder)
    assert code_of(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].startswith("9000 jobs, 9000 in this part, 9000 left")
    assert len(listed) == 9001
    assert files(folder) == before


def test_real_processes(folder):
    """A few of the table: there is nothing between ``python -m`` and what the other tests call."""
    chosen = [case for case in WRONG if case[0] in ((), ["--minutes", "nan"], ["--device", "banana"])]
    chosen += [case for case in WRONG if case[0] in (["--seeds", "-1"], ["--results", "cut.json"])]
    assert len(chosen) == 5
    before = files(folder)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "rope_lessons.chomsky", *([] if added == () else [*GOOD, *added])],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for added, _ in chosen
    ]  # fmt: skip
    for process, (_, said) in zip(processes, chosen, strict=True):
        errors = process.communicate()[1]
        assert process.returncode == 1
        assert re.fullmatch(f"python -m rope_lessons.chomsky: .*{said}.*\n", errors), errors
    assert files(folder) == before
