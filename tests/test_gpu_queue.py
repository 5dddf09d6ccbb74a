"""The GPU queue without a GPU: what is done, kept, skipped, and done again; what dies takes nothing with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import table
from experiments.gpu import cells, notebooks, records, trainings, work
from experiments.gpu.__main__ import listed, main
from experiments.gpu.draws import case
from experiments.gpu.notebooks import FOLDER
from experiments.gpu.plan import queue
from experiments.gpu.records import MOST_BYTES, Records, best, members, read, record
from experiments.gpu.step import LANES, SCALES, Found, OutOfTime, Setting, Step
from rope_lessons.lab import training
from rope_lessons.schemes import SCHEMES
from tests import fresh, gpu_steps
from tests.fuzz.case import Case
from tools.project import ROOT

CPU = torch.device("cpu")
ABOUT = {"date": "2026-11-23T00:00Z"}


def setting(tmp_path: Path, seconds: float = 60.0) -> Setting:
    return Setting(CPU, "tiny", tmp_path, time.time() + seconds, "abc")


# --- the queue -------------------------------------------------------------------------------------------------------


def test_the_queue_has_every_step_once_and_few_files() -> None:
    for scale in SCALES:
        names = [step.name for step in queue(scale, "cuda")]
        assert len(set(names)) == len(names)
        assert len({step.group for step in queue(scale, "cuda")}) <= 6
    assert {step.lane for step in queue("full", "cuda")} == set(LANES)
    assert {step.lane for step in queue("tiny", "cpu")} == {"quiet"}


def test_the_order_is_that_of_what_is_most_valuable() -> None:
    groups = list(dict.fromkeys(step.group for step in queue("full", "cuda")))
    assert groups == ["right", "notebooks", "engine", "table", "chomsky"]
    names = [step.name for step in queue("full", "cuda")]
    assert {name for name in names if name.startswith("notebooks/")} == {
        f"notebooks/{path.stem}" for path in FOLDER.glob("*.ipynb")
    }
    sizes = [name.split("/")[1] for name in names if name.startswith("table/")]
    assert list(dict.fromkeys(sizes)) == ["gau-25m", "gau-0.3m", "gau-87m"]
    trained = [name.split("/", 3)[2:] for name in names if name.startswith("table/gau-25m")]
    assert trained == [[seed, row] for seed in "01" for row in trainings.ROWS]
    assert sum(name.startswith("chomsky/") for name in names) == 15 * 10


def test_tiny_has_every_kind_of_step() -> None:
    def kinds(scale: str) -> set[Any]:
        return {step.run.func if isinstance(step.run, partial) else step.run for step in queue(scale, "cuda")}

    assert kinds("tiny") == kinds("full")


def test_what_needs_more_than_torch_and_numpy() -> None:
    needing = {step.group for step in queue("full", "cuda") if step.needs}
    assert needing == {"right", "table", "chomsky"}
    assert [step.name for step in queue("full", "cuda") if step.needs and step.group == "right"] == ["right/tests"]
    assert not any(step.needs for step in queue("small", "cpu"))


def test_drawn_calls_have_every_scheme_and_edge() -> None:
    drawn = [case(number, "bfloat16") for number in range(40 * len(SCHEMES))]
    assert drawn == [case(number, "bfloat16") for number in range(40 * len(SCHEMES))]
    usual = Case()
    for name in ("documents", "lengths", "positions", "frequencies", "padding", "q", "grad", "strided"):
        assert any(getattr(one, name) != getattr(usual, name) for one in drawn), name
    assert {one.group for one in drawn} >= {1, 2, 4}
    assert any(one.scheme.window == one.k_len for one in drawn)
    assert any(one.k_len % 2 for one in drawn)
    assert any(one.scheme.alibi for one in drawn)


# --- who works beside whom -------------------------------------------------------------------------------------------


def steps_of(*lanes: str) -> list[Step]:
    return [Step(f"a/{number}", 1.0, gpu_steps.wrong, lane=lane) for number, lane in enumerate(lanes)]


MOST = {"quiet": 1, "several": 2, "card": 1, "shared": 2, "cores": 2}


@pytest.mark.parametrize(
    ("pending", "running", "next_one"),
    [
        (("quiet", "card"), (), 0),
        (("quiet",), ("cores",), None),  # it waits for quiet
        (("quiet", "cores"), ("card",), 1),  # and meanwhile, beside a training, the cores work
        (("card", "cores"), ("quiet",), None),
        (("card",), ("card",), None),
        (("card",), ("cores",), 0),
        (("shared",), ("shared",), 0),
        (("shared",), ("shared", "shared"), None),
        (("shared", "cores"), ("card",), 1),
        (("cores",), ("cores",), 0),  # nothing else is left
        (("cores",), ("cores", "cores"), None),
        (("quiet", "cores"), (), 0),
        (("several",), ("several",), 0),
        (("several", "cores"), ("several", "several"), None),
        (("quiet", "cores"), ("several",), None),
        (("card", "cores"), ("several",), None),
        (("several",), ("card",), None),
    ],
)
def test_who_begins(pending: tuple[str, ...], running: tuple[str, ...], next_one: int | None) -> None:
    left = steps_of(*pending)
    found = work.startable(left, steps_of(*running), MOST, lambda step: True)
    assert found is (None if next_one is None else left[next_one])


def test_a_step_that_does_not_fit_is_passed_over(tmp_path: Path) -> None:
    long, short = Step("a/long", 20.0, gpu_steps.wrong), Step("a/short", 0.5, gpu_steps.wrong)
    here = setting(tmp_path, 100)
    assert work.startable([long, short], [], MOST, lambda step: work.fits(step, here)) is short
    assert work.fits(Step("a/pauses", 20.0, gpu_steps.wrong, pauses=True), here)
    assert not work.fits(Step("a/pauses", 20.0, gpu_steps.wrong, pauses=True), setting(tmp_path, 30))


def test_cores_beside_a_card_alone() -> None:
    assert work.limits(torch.device("cuda"), 16) == {
        "quiet": 1, "several": 8, "card": 1, "shared": 8, "cores": 12,
    }  # fmt: skip
    assert work.limits(CPU, 16)["cores"] == 1


# --- what comes of a step --------------------------------------------------------------------------------------------


def test_steps_that_end_in_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, out = tmp_path / "log", Records(tmp_path / "out")
    some = [
        Step("a/first", 0.0, partial(gpu_steps.good, log=log, name="first")),
        Step("a/raises", 0.0, gpu_steps.raises),
        Step("b/dies", 0.0, gpu_steps.dies),
        Step("b/wrong", 0.0, gpu_steps.wrong),
        Step("b/stops", 0.0, gpu_steps.stops),
        Step("c/needs", 0.0, gpu_steps.wrong, needs=("torch", "no_such_package")),
        Step("c/last", 0.0, partial(gpu_steps.good, log=log, name="last")),
    ]
    said: list[str] = []
    states = work.work(some, {}, setting(tmp_path), out, said.append)
    assert states == {
        "a/first": "done", "a/raises": "failed", "b/dies": "failed", "b/wrong": "failed", "b/stops": "stopped",
        "c/needs": "missing", "c/last": "done",
    }  # fmt: skip
    known = best(read([tmp_path / "out"], pytest.fail), ("cpu", "tiny"))
    assert known.keys() == states.keys() - {"b/stops"}
    why = {name: one.content["wrong"][-1] for name, one in known.items() if one.content["wrong"]}
    assert "an illegal memory access was encountered" in why["a/raises"]
    assert why["b/dies"] == "its process ended with status 7"
    assert why["c/needs"] == "it needs no_such_package, not installed here"
    assert known["b/wrong"].rows("rows") == [{"name": "wrong"}]  # what it found is kept
    first = known["a/first"]
    assert (first.content["commit"], first.content["about"], first.files) == (
        "abc",
        {"seeds": [0]},
        {"more.bin": b"\0\1"},
    )
    assert {"hardware", "torch", "python", "numpy", "date", "cpu", "script"} <= first.content.keys()
    done = [line.split() for line in log.read_text().splitlines()]
    assert [name for name, _ in done] == ["first", "last"]
    assert done[0][1] != done[1][1]  # after an error another process goes on
    assert [step.name for step in work.in_order(some, known)] == [
        "b/stops", "a/raises", "b/dies", "b/wrong", "c/needs",
    ]  # fmt: skip
    assert "a/first: done, 0.0 minutes" in said


def test_several_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other, so they are done at the same time; what comes after is done alone."""
    monkeypatch.setattr(work, "limits", lambda device: MOST)
    one, two, log = (tmp_path / name for name in ("one", "two", "log"))
    some = [
        Step("a/one", 0.0, partial(gpu_steps.meets, own=one, other=two), lane="several"),
        Step("a/two", 0.0, partial(gpu_steps.meets, own=two, other=one), lane="several"),
        Step("a/last", 0.0, partial(gpu_steps.good, log=log, name="last")),
    ]
    said: list[str] = []
    states = work.work(some, {}, setting(tmp_path), Records(tmp_path / "out"), said.append)
    assert states == dict.fromkeys(("a/one", "a/two", "a/last"), "done")
    assert said[-1].startswith("a/last: ")


def test_a_step_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "GRACE", 1.0)
    begun = time.monotonic()
    here = setting(tmp_path, 8)
    states = work.work([Step("c/hangs", 0.0, gpu_steps.hangs)], {}, here, Records(tmp_path / "out"), lambda told: None)
    assert states == {"c/hangs": "failed"}
    assert time.monotonic() - begun < 60
    [one] = read([tmp_path / "out"], pytest.fail)
    assert one.content["wrong"] == ["it did not stop when the minutes were over, and was killed"]


def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    """The whole program is killed in the middle of its second step."""
    program = f"""
import time
from functools import partial
from pathlib import Path
import torch
from experiments.gpu import work
from experiments.gpu.records import Records
from experiments.gpu.step import Setting, Step
from tests import gpu_steps
log = Path({str(tmp_path)!r}) / "log"
steps = [Step("a/good", 0.0, partial(gpu_steps.good, log=log, name="good")), Step("a/hangs", 0.0, gpu_steps.hangs),
         Step("a/next", 0.0, partial(gpu_steps.good, log=log, name="next"))]
if __name__ == "__main__":
    setting = Setting(torch.device("cpu"), "tiny", log.parent, time.time() + 600, None)
    work.work(steps, {{}}, setting, Records(log.parent / "out"))
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    own = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, str(script)], env=own, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while (found := members(tmp_path / "out" / "a.zip", lambda told: None)).keys() != {"a/good", "a/hangs"}:
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.2)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert (found["a/good"].state, found["a/hangs"].state) == ("done", "begun")
    log = tmp_path / "log"
    some = [
        Step("a/good", 0.0, gpu_steps.dies),
        Step("a/hangs", 0.0, partial(gpu_steps.good, log=log, name="hangs")),
        Step("a/next", 0.0, partial(gpu_steps.good, log=log, name="next")),
    ]
    known = best(read([tmp_path / "out"], pytest.fail), ("cpu", "tiny"))
    assert "a/hangs  killed " in "\n".join(listed(some, known))
    assert set(work.work(some, known, setting(tmp_path), Records(tmp_path / "next")).values()) == {"done"}
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["good", "next", "hangs"]
    known = best(read([tmp_path / "out", tmp_path / "next"], pytest.fail), ("cpu", "tiny"))
    assert {one.state for one in known.values()} == {"done"}


# --- files -----------------------------------------------------------------------------------------------------------


def kept(folder: Path, *steps: str, state: str = "done", **about: Any) -> Path:
    files = Records(folder)
    for step in steps:
        found = Found({"rows": [{"of": step}]}, files={"counts.bin": step.encode()})
        files.keep(record(step, state, setting(folder), {**ABOUT, **about}, found, minutes=0.1))
    return folder / f"{steps[0].partition('/')[0]}.zip"


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = kept(tmp_path, "a/one", "a/two/three")
    found = members(path, pytest.fail)
    assert {name: one.rows("rows") for name, one in found.items()} == {
        "a/one": [{"of": "a/one"}], "a/two/three": [{"of": "a/two/three"}],
    }  # fmt: skip
    assert found["a/two/three"].files == {"counts.bin": b"a/two/three"}
    Records(tmp_path).drop("a/one")
    assert members(path, pytest.fail).keys() == {"a/two/three"}


def test_a_damaged_file_is_named_and_its_steps_are_done_again(tmp_path: Path) -> None:
    path = kept(tmp_path, "a/one", "a/two")
    path.write_bytes(path.read_bytes()[:-30])
    said: list[str] = []
    assert members(path, said.append) == {}
    assert said[0].startswith(f"{path} is damaged and not taken: ")
    assert kept(tmp_path, "a/one") == path
    assert members(path, pytest.fail).keys() == {"a/one"}


@pytest.mark.parametrize("name", ["a/one.json", "a/one/counts.bin"])
def test_a_damaged_record_is_named_and_the_others_stay(tmp_path: Path, name: str) -> None:
    path = kept(tmp_path, "a/one", "a/two")
    with zipfile.ZipFile(path) as file:
        content = {one: file.read(one) for one in file.namelist()}
    content[name] = content[name].replace(b"a/one", b"a/six")
    with zipfile.ZipFile(path, "w") as file:
        for one, data in content.items():
            file.writestr(one, data)
    said: list[str] = []
    assert members(path, said.append).keys() == {"a/two"}
    [told] = said
    assert told.startswith(f"{path}: a/one.json is damaged and not taken: ")
    assert told.endswith("The step is done again")


def test_a_file_never_grows_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_BYTES <= 15 * 2**20
    kept(tmp_path, "a/one")
    monkeypatch.setattr(records, "MOST_BYTES", 2**11)
    new = Records(tmp_path).keep(record("a/two", "done", setting(tmp_path), ABOUT, gpu_steps.large(setting(tmp_path))))
    assert (new.state, new.files) == ("failed", {})
    assert "2,048 are the most" in new.content["wrong"][0]
    assert {name: one.state for name, one in members(tmp_path / "a.zip", pytest.fail).items()} == {
        "a/one": "done", "a/two": "failed",
    }  # fmt: skip


def test_which_record_counts(tmp_path: Path) -> None:
    """One that is done, whenever that was; results of a try are none of a card."""
    kept(tmp_path / "1", "a/one", state="done", date="2026-01-01T00:00Z")
    kept(tmp_path / "2", "a/one", state="failed", date="2026-02-01T00:00Z")
    kept(tmp_path / "3", "a/two", state="failed", date="2026-02-01T00:00Z")
    kept(tmp_path / "4" / "deeper", "a/two", state="begun", date="2026-03-01T00:00Z")
    found = read([tmp_path], pytest.fail)
    assert {name: one.state for name, one in best(found, ("cpu", "tiny")).items()} == {
        "a/one": "done",
        "a/two": "begun",
    }
    assert best(found, ("cuda", "full")) == {}


# --- the command -----------------------------------------------------------------------------------------------------


def test_all_of_it_in_tiny(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every step, with all of its results in a few files; the same line does nothing again."""
    out, places = tmp_path / "out", ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert main(["--dry", "--commit", "abc", *places]) == 0
    found = read([out], pytest.fail)
    assert {one.step: one.content["wrong"] for one in found if one.state != "done"} == {}
    assert {one.step for one in found} == {step.name for step in queue("tiny", "cpu")}
    assert {one.content["commit"] for one in found} == {"abc"}
    assert len(list(out.iterdir())) <= 6
    by_name = {one.step: one for one in found}
    [speed] = [one for one in found if one.step.startswith("engine/speed/64")]
    times = speed.rows("times")
    assert {row["what"] for row in times} == {"plain, SDPA", "rerope", "leaky-rerope", "invleaky", "eager rerope"}
    assert all(len(row["seconds"]) == 2 and min(row["seconds"]) > 0 for row in times)
    assert {row["what"] for row in by_name["engine/ceilings"].rows("ceilings")} >= {
        "copy",
        "copy in the cache",
        "exponentials",
    }
    assert by_name["engine/rotation"].rows("could_not")  # flash-attn and Liger are not here
    assert not any(path.suffix == ".safetensors" for path in out.rglob("*"))
    trained = by_name["table/gau-25m/0/rope"]
    assert trained.files.keys() == {"counts.zip"}
    assert trained.rows("trainings")[0]["tokens_per_second"] > 0
    assert {row["metric"] for row in trained.rows("lines")} == {"accuracy", "loss", "found", "tax"}
    capfd.readouterr()
    assert main(["--dry", "--have", str(out), "--out", str(tmp_path / "second"), "--work", str(tmp_path / "work")]) == 0
    assert capfd.readouterr().out == "nothing is left to do\n"
    assert not (tmp_path / "second").exists()
    assert main(["--list", "--dry", *places]) == 0
    listing = capfd.readouterr().out.splitlines()
    assert listing[-1] == f"0 of {len(by_name)} steps are left, about 0 minutes"
    assert main(["--list"]) == 0
    assert "table/gau-87m/0/rope" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ([], "--minutes: how long may it take?"),
        (["--minutes", "0"], "minutes must be a positive finite number, got 0.0"),
        (["--minutes", "1", "--have", "no/such/folder"], "argument --have: no/such/folder is no folder"),
        (["--dry", "--only", "rigth"], "only must be the beginning of a step's name, of right, notebooks, engine, "),
        (["--minutes", "1", "--device", "cpu"], "small or dry must be given for a CPU"),
        (
            ["--minutes", "1", "--out", str(ROOT / "rope_lessons" / "data")],
            "is in the package; --store writes the book's own data",
        ),
    ],
)
def test_what_cannot_be_is_said(
    line: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    try:
        status = main(line)
    except SystemExit as end:
        status = int(end.code or 0)
    assert status in (1, 2)
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a card")
def test_without_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--minutes", "1"]) == 1
    assert "got 'cuda': only --dry and --device cpu --small need no card" in capsys.readouterr().err


def test_a_bare_machine_and_a_plain_copy(tmp_path: Path) -> None:
    """PyTorch and NumPy alone, and no git: the first four kinds of steps work, the others name what is missing."""
    copy = tmp_path / "copy"
    for name in ("experiments", "rope_lessons", "tests", "book/notebooks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    python = fresh.new_environment(tmp_path / "environment")
    fresh.add(python, "torch", "numpy")
    only = [
        "right/calls/float32", "right/caches", "right/tests", "right/kernels", "notebooks/quickstart", "engine/merge",
        "engine/rotation", "engine/decode", "engine/training", "table/gau-25m/0/rope", "chomsky/even_pairs/rnn",
    ]  # fmt: skip
    line = ["-m", "experiments.gpu", "--dry", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    done = fresh.run(python, *line, "--only", *only, cwd=copy, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr[-3000:]
    found = {one.step: one for one in read([tmp_path / "out"], pytest.fail)}
    missing = {name: one.content["wrong"][0] for name, one in found.items() if one.state == "missing"}
    assert missing.keys() == {"right/tests", "table/gau-25m/0/rope", "chomsky/even_pairs/rnn/none"}
    assert missing["chomsky/even_pairs/rnn/none"] == "it needs tqdm, safetensors, not installed here"
    assert {one.state for name, one in found.items() if name not in missing} == {"done"}, done.stdout
    assert {one.content["commit"] for one in found.values()} == {None}
    assert found["notebooks/quickstart"].content["about"]["missing"] in ([], ["matplotlib"])


# --- a training over several runs ------------------------------------------------------------------------------------


def test_a_training_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The minutes end after the first steps; the next run goes on from the checkpoint, and only counts leave."""
    done: list[int] = []
    step, recipe_of = training.Run.step, trainings.recipe_of

    def counting(run: Any, number: int) -> Any:
        done.append(number)
        return step(run, number)

    monkeypatch.setattr(training.Run, "step", counting)
    monkeypatch.setattr(trainings, "recipe_of", lambda *given: replace(recipe_of(*given), steps=12))
    with monkeypatch.context() as short:
        short.setattr(table, "minutes_until", lambda end: 0.0)
        with pytest.raises(OutOfTime):
            trainings.one(setting(tmp_path), "gau-25m", "rope", 0)
    assert done == list(range(10))
    found = trainings.one(setting(tmp_path), "gau-25m", "rope", 0)
    assert done[10:12] == [10, 11]
    assert found.files.keys() == {"counts.zip"}


def test_text_of_the_packages(tmp_path: Path) -> None:
    """As many Python files as are asked for, the same ones each time."""
    source = tmp_path / "source"
    for name in ("b/two.py", "a/one.py", "c.txt", "d.py"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x" * 100)
    trainings.copy(source, tmp_path / "target", 250)
    copied = sorted(str(path.relative_to(tmp_path / "target")) for path in (tmp_path / "target").rglob("*.py"))
    assert copied == ["a/one.py", "b/two.py"]


def test_the_package_of_a_notebook_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each state of the package; and a process that was faster is left its own."""
    made: list[Path] = []

    def make(target: Path) -> str:
        made.append(target)
        (target / "rope_lessons").touch()
        faster = tmp_path / "wheel" / "faster"
        if notebooks.digest() == "faster":
            faster.mkdir()
            (faster / "made_by").write_text("another process")
        return "this one"

    monkeypatch.setattr(notebooks, "make", make)
    first, said = notebooks.installed(tmp_path)
    assert notebooks.installed(tmp_path) == (first, said)
    assert (said, len(made)) == ("this one", 1)
    monkeypatch.setattr(notebooks, "digest", lambda: "faster")
    assert notebooks.installed(tmp_path)[1] == "another process"
    assert len(list((tmp_path / "wheel").iterdir())) == 2


def test_the_wheel_or_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert notebooks.make(tmp_path / "wheel").startswith("the wheel rope_lessons-")
    copied = "a copy of the package, since the wheel could not be built: "

    def fails(target: Path) -> str:
        raise subprocess.CalledProcessError(1, "build", stderr="Traceback …\nan old setuptools\n")

    monkeypatch.setattr(notebooks, "unpacked_wheel", fails)
    assert notebooks.make(tmp_path / "copy") == f"{copied}an old setuptools"
    monkeypatch.setattr(notebooks, "absent", list)
    assert notebooks.make(tmp_path / "none") == f"{copied}setuptools is not here"
    for made in ("wheel", "copy", "none"):
        assert (tmp_path / made / "rope_lessons" / "data" / "bench_cpu.json").exists()


def test_the_cells_of_a_notebook(tmp_path: Path) -> None:
    """Errors are named by cell, a missing package by its name; the network is left alone; values are displayed."""
    shown: list[str] = []

    class Picture:
        def _repr_png_(self) -> bytes:
            shown.append("png")
            return b""

    def cell(source: str, *tags: str) -> dict[str, Any]:
        return {"cell_type": "code", "source": source.splitlines(keepends=True), "metadata": {"tags": list(tags)}}

    found = cells.run({
        "cells": [
            cell("if False:\n    %pip install nothing\n"), {"cell_type": "markdown", "source": [], "metadata": {}},
            cell("raise OSError('no network')", "skip-execution"), cell("x = 1\nx / 0\n"),
            cell("import no_such_package"), cell("device = 'cuda'\nprint(x)\npicture()"),
        ],
    }, names={"picture": Picture})  # fmt: skip
    assert found["device"] == "cuda"
    assert shown == ["png"]
    rows = {row["cell"]: row for row in found["cells"]}
    assert [number for number, row in rows.items() if row["error"]] == [3, 4]
    assert (rows[3]["error"], rows[3]["line"], rows[4]["needs"]) == (
        "ZeroDivisionError: division by zero",
        2,
        "no_such_package",
    )
    assert rows[2]["skipped"]
    assert rows[5]["printed"] == 2


def test_no_module_hides_one_of_python() -> None:
    """A program that is run from its folder finds the modules beside it before Python's own."""
    names = {path.stem for path in Path(work.__file__).parent.glob("*.py")}
    assert not names & set(sys.stdlib_module_names)
