"""Bad command lines of the experiments and the tools: refused in words, and nothing is begun."""

from __future__ import annotations

import contextlib
import http.server
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from experiments.__main__ import NAMES
from experiments.benchmarks import decode, pretrained, rotary, speed, timing
from experiments.benchmarks import training as benchmarks_training
from rope_lessons import figures, stored
from rope_lessons.lab import training
from rope_lessons.models import byte_lm, masked_lm
from rope_lessons.stored import check_writable
from tools.project import ROOT

BENCHMARKS = "experiments/benchmarks"
SEEDED = ["circles", "entropy", "invleaky", "local", "mixed_radix", "radix", "random_positions", "rerope", "table"]
TABLES = ["__main__", "decode", "memory", "pretrained", "rotary", "speed", "training"]
TOOLS = ["address", "build", "notebooks", "picture", "release", "serve"]
PROGRAMS = [
    "experiments/__main__.py",
    *(f"experiments/{name}.py" for name in NAMES if name != "benchmarks"),
    *(f"{BENCHMARKS}/{name}.py" for name in TABLES),
    *(f"tools/{name}.py" for name in TOOLS),
]

# The program, what it is given, what it says.
WRONG: list[tuple[str, list[str], str]] = [
    *((program, ["--banana"], "unrecognized arguments: --banana") for program in PROGRAMS),
    *((f"tools/{name}.py", ["html"], "unrecognized arguments: html") for name in ("address", "build", "picture")),
    *((f"{BENCHMARKS}/{name}.py", ["cpu"], "unrecognized arguments: cpu") for name in ("decode", "rotary", "training")),
    (f"{BENCHMARKS}/__main__.py", ["banana"], "argument TABLE: 'banana' is none of forward, .*, rotary"),
    (
        f"{BENCHMARKS}/__main__.py",
        ["rotary", "banana"],
        "argument TABLE: 'banana' is none of forward, .*, rotary",
    ),
    (f"{BENCHMARKS}/__main__.py", ["rotary", "rotary"], "argument TABLE: 'rotary' is there twice"),
    (f"{BENCHMARKS}/__main__.py", ["--stor"], "unrecognized arguments: --stor"),
    *(
        (f"experiments/{name}.py", given, told)
        for name in (*(name for name in NAMES if name != "benchmarks"), "benchmarks/__main__")
        for given, told in (
            (["--out"], "argument --out: expected one argument"),
            (["--out", "a", "--store"], "argument --store: not allowed with argument --out"),
            (["--out", "README.md"], "argument --out: it must be a folder that can be written to, got 'README.md': .*"),
            (["--out", "README.md/a"], "argument --out: it must be a folder that can be written to, got 'README.md/a'"),
            (["--out", "rope_lessons/data"], "argument --out: rope_lessons/data is in the package; --store writes the"),
        )
    ),
    ("experiments/circles.py", ["--models", "README.md"], "argument --models: it must be a folder that can be written"),
    ("experiments/circles.py", ["--steps", "0"], "argument --steps: must be an int from 1 to"),
    ("experiments/circles.py", ["--windows", "3", "--store"], "argument --store: not allowed with --windows, which is"),
    ("experiments/__main__.py", ["banana"], "argument NAME: 'banana' is none of radix, .*, benchmarks"),
    (
        "experiments/__main__.py",
        ["circles", "--seeds", "-1"],
        "experiments circles: .*argument --seeds: must be",
    ),
    ("experiments/radix.py", ["--text", "--seeds", "1"], "argument --text: not allowed with --seeds"),
    ("experiments/radix.py", ["--text", "--store", "--fresh"], "argument --text: not allowed with --fresh"),
    ("experiments/entropy.py", ["--train", "--out", "a"], "argument --train: not allowed with --out"),
    ("experiments/local.py", ["--train", "rope", "0", "--store"], "argument --train: not allowed with --store"),
    (f"{BENCHMARKS}/memory.py", ["both"], "argument side: invalid choice: 'both'"),
    (f"{BENCHMARKS}/memory.py", ["rerope"], "argument length: must be an int of at least 1, got None"),
    (f"{BENCHMARKS}/memory.py", ["rerope", "0"], "argument length: must be an int of at least 1, got 0"),
    (f"{BENCHMARKS}/memory.py", ["rerope", "long"], "argument length: invalid int value: 'long'"),
    (f"{BENCHMARKS}/memory.py", ["rerope", "64", "banana"], "argument device: invalid choice: 'banana'"),
    *((f"experiments/{name}.py", ["0"], "unrecognized arguments: 0") for name in SEEDED),
    *(
        (f"experiments/{name}.py", ["--seeds", *seeds], f"argument --seeds: {told}")
        for name in SEEDED
        for seeds, told in (
            (["-1"], r"must be an int from 0 to 2\*\*63 - 1, got '-1'"),
            (["0", "one"], r"must be an int from 0 to 2\*\*63 - 1, got 'one'"),
            ([str(2**63)], r"must be an int from 0 to 2\*\*63 - 1, got '9223372036854775808'"),
            (["1", "0", "1"], "1 is there twice"),
            ([], "expected at least one argument"),
        )
    ),
    ("experiments/radix.py", ["--seeds", "-1"], "argument --seeds: must be an int from 0"),
    ("experiments/radix.py", ["--texts"], "unrecognized arguments: --texts"),
    ("experiments/radix.py", ["--tex"], "unrecognized arguments: --tex"),
    ("experiments/chomsky.py", ["--fres"], "unrecognized arguments: --fres"),
    ("experiments/entropy.py", ["--trian"], "unrecognized arguments: --trian"),
    ("experiments/entropy.py", ["train"], "unrecognized arguments: train"),
    ("experiments/invleaky.py", ["--fresh=1"], "argument --fresh: ignored explicit argument '1'"),
    ("experiments/lab_parts.py", ["--steps", "0"], "argument --steps: must be an int from 1 to"),
    ("experiments/lab_parts.py", ["--steps", "many"], "argument --steps: must be an int from 1 to .*, got 'many'"),
    ("experiments/local.py", ["--train", "window"], "argument --train: expected 2 arguments"),
    ("experiments/local.py", ["--train", "banana", "0"], "argument --train: 'banana' is none of rope, window"),
    ("experiments/local.py", ["--train", "rope", "x"], "argument --train: SEED must be an int from 0 to"),
    ("experiments/random_positions.py", ["--only", "banana"], "argument --only: 'banana' is in none of rope"),
    ("experiments/random_positions.py", ["--part", "half"], "argument --part: invalid choice: 'half'"),
    ("experiments/rerope.py", ["--only", "half"], "argument --only: invalid choice: 'half'"),
    ("experiments/rerope.py", ["--only", "recall", "--seeds", "9"], "argument --seeds: the questions have seeds"),
    ("experiments/table.py", ["--config", "banana"], "argument --config: invalid choice: 'banana'"),
    ("experiments/table.py", ["--rows", "rope", "--trainings", "rope"], "not allowed with argument"),
    ("experiments/table.py", ["--ship", "--rows", "rope"], "argument --ship: not allowed with --rows"),
    ("tools/notebooks.py", ["banana"], "no notebook is called banana; there are "),
    ("tools/notebooks.py", ["--check", "02_rotary", "banana"], "no notebook is called banana"),
    ("tools/release.py", ["v0"], r"argument tag: must be v[\d.]+, as rope_lessons.__version__ says, got 'v0'"),
    ("tools/serve.py", ["banana"], "argument port: invalid int value: 'banana'"),
    ("tools/serve.py", ["-1"], "argument port: must be an int from 0 to 65535, got -1"),
    ("tools/serve.py", ["65536"], "argument port: must be an int from 0 to 65535, got 65536"),
    ("tools/serve.py", ["8000", "8001"], "unrecognized arguments: 8001"),
]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was begun of what takes long, or was written; none of it does what it is for."""
    found: list[str] = []

    def refuse(name: str) -> Callable[..., None]:
        def called(*given: object, **options: object) -> None:
            found.append(name)
            pytest.fail(f"{name} was begun")

        return called

    for owner, name in (
        (byte_lm, "train"), (masked_lm, "train"), (training, "train"), (stored, "write_whole"), (subprocess, "run"),
        (http.server, "ThreadingHTTPServer"), (Path, "write_text"), (Path, "write_bytes"),
        (figures.Figure, "save"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, refuse(name))
    for module in (timing, decode, pretrained, rotary, speed, benchmarks_training):
        monkeypatch.setattr(module, "in_turns", refuse("in_turns"))
    monkeypatch.chdir(ROOT)
    yield found
    assert found == []


def run(monkeypatch: pytest.MonkeyPatch, program: str, arguments: list[str]) -> object:
    """As ``python PROGRAM ARGUMENTS`` does, in this process; what it ends with."""
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / program), run_name="__main__")
    return end.value.code


@pytest.mark.parametrize(("program", "arguments", "said"), WRONG, ids=[" ".join([a, *b])[:70] for a, b, _ in WRONG])
def test_bad_command_line(monkeypatch, capsys, begun, program, arguments, said):
    assert run(monkeypatch, program, arguments) in (1, 2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(said, captured.err.splitlines()[-1]), captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_is_all_that_it_does(monkeypatch, capsys, begun, program):
    assert run(monkeypatch, program, ["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_there_are_many():
    assert len(WRONG) > 80
    assert {program for program, *_ in WRONG} == set(PROGRAMS)


def test_a_port_in_use_and_a_book_that_is_not_built(monkeypatch, tmp_path):
    from tools import serve

    monkeypatch.setattr(serve, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"there is no book in .*html: make book builds it"):
        serve.serve(0)
    (tmp_path / "_build" / "html").mkdir(parents=True)
    (tmp_path / "_build" / "html" / "index.html").write_text("a book")
    with http.server.ThreadingHTTPServer(("localhost", 0), http.server.SimpleHTTPRequestHandler) as taken:
        told = f"port {taken.server_port} cannot be used: Address already in use"
        with pytest.raises(SystemExit, match=told):
            serve.serve(taken.server_port)


def test_check_writable_makes_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    check_writable("--out", tmp_path / "new" / "deeper" / "a.csv")
    check_writable("--out", tmp_path / "file")
    check_writable("--runs", tmp_path / "new" / "deeper", folder=True)
    for path, folder in ((tmp_path, False), (tmp_path / "file" / "a", False), (tmp_path / "file", True)):
        what = "a folder that can be written to" if folder else "a file that can be written"
        with pytest.raises(ValueError, match=f"--out must be {what}, got '{path}': "):
            check_writable("--out", path, folder)
    with pytest.raises(ValueError, match=r"--out must be a file that can be written, .*name too long"):
        check_writable("--out", tmp_path / ("x" * 300))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_real_processes():
    """A few of the table: a package, an experiment by its name, a tool."""
    chosen = [
        (["-m", "experiments.benchmarks", "banana"], "argument TABLE: 'banana' is none of"),
        (["-m", "experiments", "circles", "--seeds", "-1"], "argument --seeds: must be an int"),
        (["-m", "tools.serve", "banana"], "argument port: invalid int value: 'banana'"),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen([sys.executable, *words], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
            )
            for words, _ in chosen
        ]
        for process, (_, said) in zip(processes, chosen, strict=True):
            errors = process.communicate()[1]
            assert process.returncode == 2
            assert said in errors.splitlines()[-1]
