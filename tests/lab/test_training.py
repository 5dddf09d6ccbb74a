"""Training: stopped anywhere and gone on with, in small batches, and in several processes, the losses are the same."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from rope_lessons import stored
from rope_lessons.lab import __main__ as command
from rope_lessons.lab import checkpoint, sizes, text, training
from rope_lessons.lab.checkpoint import CheckpointError
from rope_lessons.lab.training import Recipe, Team, TrainingError, read_losses
from rope_lessons.stored import InUseError
from tools.project import ROOT

CPU = Team(torch.device("cpu"))
FSDP = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)
NEEDS_FSDP = pytest.mark.skipif(not FSDP, reason="needs PyTorch 2.6")


def run(recipe: Recipe, corpus, folder: Path, **options) -> list[float]:
    """Train to the end; the losses."""
    assert training.train(recipe, corpus, folder, CPU, **{"save_every": 5, "quiet": True, **options}) == recipe.steps
    return read_losses(folder)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(checkpoint.stored(folder)[-1]).tensors


def assert_same(first: Path, second: Path, tolerance: float = 0.0, strays: int = 0) -> None:
    """The same losses, weights and state of the optimizer; ``strays`` numbers of the last two may be any."""
    assert read_losses(first) == pytest.approx(read_losses(second), rel=tolerance, abs=0)
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    apart = {}
    for name, tensor in ours.items():
        assert tensor.shape == theirs[name].shape, name
        apart[name] = int((~tensor.isclose(theirs[name], rtol=tolerance, atol=tolerance)).sum())
    assert sum(apart.values()) <= strays, {name: number for name, number in apart.items() if number}


class Killed(BaseException):
    """Not an Exception: nothing may catch it."""


@pytest.fixture
def kill_at(monkeypatch):
    """From now on a training dies in the given step."""

    def kill(step: int) -> None:
        real = training.Run.step

        def dying(self, number: int) -> torch.Tensor:
            if number == step:
                monkeypatch.setattr(training.Run, "step", real)
                raise Killed
            return real(self, number)

        monkeypatch.setattr(training.Run, "step", dying)

    return kill


# --- stopping and going on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("optimizer", "scheme"), [("tiger", "rope"), ("adamw", "equal-mean-logn"), ("adamw", "cosa")])
def test_killed_in_any_step_and_resumed_is_uninterrupted(
    tiny, corpus, tmp_path, monkeypatch, kill_at, optimizer, scheme
):
    """Bit for bit: losses, weights, and the state of the optimizer. Checkpoints come after 5 and 10 steps, losses are
    written after 2, 4, 5, 7, 9 and 10: some that a killed training wrote are of steps after its checkpoint."""
    monkeypatch.setattr(training, "TOGETHER", 2)
    recipe = replace(tiny, optimizer=optimizer, scheme=scheme)
    run(recipe, corpus, tmp_path / "whole")
    for step, written in enumerate((0, 0, 2, 2, 4, 5, 5, 7, 7, 9, 10, 10)):
        folder = tmp_path / str(step)
        kill_at(step)
        with pytest.raises(Killed):
            run(recipe, corpus, folder)
        assert read_losses(folder) == read_losses(tmp_path / "whole")[:written]
        assert [path.stem for path in checkpoint.stored(folder)] == ["step-00000005", "step-00000010"][: step // 5]
        run(recipe, corpus, folder)
        assert_same(tmp_path / "whole", folder)
        assert (folder / "losses.csv").read_text() == (tmp_path / "whole" / "losses.csv").read_text()


def test_killed_while_a_checkpoint_is_written(tiny, corpus, tmp_path, monkeypatch):
    """The new file is not there, the old ones are, and the training goes on."""
    run(tiny, corpus, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(stored, "flush", lambda path: (_ for _ in ()).throw(Killed) if "10" in path.name else None)
        with pytest.raises(Killed):
            run(tiny, corpus, tmp_path / "cut")
    assert [path.stem for path in checkpoint.stored(tmp_path / "cut")] == ["step-00000005"]
    run(tiny, corpus, tmp_path / "cut")
    assert_same(tmp_path / "whole", tmp_path / "cut")


def test_a_damaged_checkpoint_is_passed_over(tiny, corpus, tmp_path, kill_at, capsys):
    run(tiny, corpus, tmp_path / "whole")
    kill_at(11)
    with pytest.raises(Killed):
        run(tiny, corpus, tmp_path / "cut")
    newest = checkpoint.stored(tmp_path / "cut")[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    run(tiny, corpus, tmp_path / "cut", quiet=False)
    assert "step-00000010.safetensors is damaged" in (said := capsys.readouterr().err)
    assert "Going on from step-00000005.safetensors, the one before." in said
    assert_same(tmp_path / "whole", tmp_path / "cut")


def test_the_time_is_over_and_the_next_call_goes_on(tiny, corpus, tmp_path, capsys):
    run(tiny, corpus, tmp_path / "whole")
    folder = tmp_path / "pieces"
    assert training.train(tiny, corpus, folder, CPU, save_every=7, minutes=0.0) == 7
    assert "Stopped after step 7 of 12" in capsys.readouterr().err
    assert run(tiny, corpus, folder, save_every=7) == read_losses(tmp_path / "whole")
    assert training.train(tiny, corpus, folder, CPU, quiet=True) == 12  # done: nothing is trained again
    assert len(read_losses(folder)) == 12


def test_a_checkpoint_of_another_training_is_refused(tiny, corpus, tmp_path):
    run(tiny, corpus, tmp_path)
    changes = (
        ({"batch": 8}, "batch is 4 there and 8 here"),
        ({"scheme": "alibi"}, "plan is .* there and .* here, scheme is rope there and alibi here"),
    )
    for change, told in changes:
        with pytest.raises(CheckpointError, match=rf"is of another training: {told}"):
            run(replace(tiny, **change), corpus, tmp_path)
    other = replace(corpus, about={**corpus.about, "sha256": "of another text"})
    with pytest.raises(CheckpointError, match=r"corpus is .* there and of another text here"):
        run(tiny, other, tmp_path)
    assert len(read_losses(tmp_path)) == 12  # and nothing was lost by asking


def test_a_training_holds_its_folder(tiny, corpus, tmp_path, monkeypatch):
    """A second one is refused before it reads or writes, and the first ends as it would have."""
    run(tiny, corpus, tmp_path / "alone")
    real, told = training.Run.step, []

    def second(self, number: int) -> torch.Tensor:
        if number == 7:
            with pytest.raises(InUseError) as raised:
                training.train(tiny, corpus, tmp_path / "both", CPU, quiet=True)
            told.append(str(raised.value))
        return real(self, number)

    monkeypatch.setattr(training.Run, "step", second)
    run(tiny, corpus, tmp_path / "both")
    wanted = f"another process trains or tests in {tmp_path / 'both'}: wait until it ends, or choose another folder"
    assert told == [wanted]
    assert_same(tmp_path / "alone", tmp_path / "both")
    run(tiny, corpus, tmp_path / "both")  # nobody holds it now


@pytest.mark.parametrize("optimizer", ["adamw", "tiger"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model.layers.0.*": None}, r"model\.layers\.0\.\S+ is missing there and"),
        ({"optimizer.*": None}, r"optimizer\.\S+ is missing there and"),
        ({"model.*": torch.zeros(1)}, r"model\.\S+ is torch\.float32 \(1,\) there and"),
        ({"optimizer.*": torch.zeros(())}, r"optimizer\.\S+ is torch\.float32 \(\) there and"),
        ({"losses": torch.zeros(3).double()}, r"losses is torch\.float64 \(3,\) there and torch\.float64 \(12,\) here"),
        ({"losses": None}, "losses is missing there"),
        ({"model.strange": torch.zeros(1)}, r"model\.strange is torch\.float32 \(1,\) there and missing here"),
    ],
)
def test_a_forged_checkpoint(tiny, corpus, tmp_path, optimizer, change, told):
    """With the right SHA-256, but without a tensor, or with one that PyTorch would broadcast: nothing is trained."""
    recipe = replace(tiny, optimizer=optimizer)
    run(recipe, corpus, tmp_path)
    path = checkpoint.stored(tmp_path)[-1]
    found = checkpoint.load(path)
    [(pattern, tensor)] = change.items()
    names = [name for name in sorted(found.tensors) if fnmatch(name, pattern) and found.tensors[name].ndim]
    name = names[0] if names else pattern
    forged = {**found.tensors, name: tensor}
    checkpoint.save(tmp_path, 12, {key: value for key, value in forged.items() if value is not None}, found.recipe)
    for use in (lambda: training.load(path), lambda: run(recipe, corpus, tmp_path)):
        with pytest.raises(CheckpointError, match=rf"000012\.safetensors does not hold the tensors of .*: {told}"):
            use()


def test_times_that_no_clock_reaches(tiny, corpus, tmp_path):
    for minutes in (math.nan, -1.0, -math.inf):
        with pytest.raises(ValueError, match=f"minutes must be a finite number of at least 0, got {minutes}"):
            training.train(tiny, corpus, tmp_path, CPU, minutes=minutes)
    assert not list(tmp_path.iterdir())


def test_a_half_written_line_of_losses_is_forgotten(tmp_path):
    (tmp_path / "losses.csv").write_text("step,loss\n0,5.5\n1,5.25\n2,5.1")
    assert read_losses(tmp_path) == [5.5, 5.25]
    log = training.LossFile(tmp_path, [5.5])
    log.append([4.0, 3.0])
    assert (tmp_path / "losses.csv").read_text() == "step,loss\n0,5.5\n1,4.0\n2,3.0\n"
    assert log.losses == read_losses(tmp_path) == [5.5, 4.0, 3.0]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "line 1 is '' and not 'step,loss'"),
        ("0,5.5\n", r"line 1 is '0,5.5\\n' and not 'step,loss'"),
        ("step,loss\n0,5.5\n99999999999,1.0\n", r"line 3 is '99999999999,1.0\\n' and not the loss of step 1"),
        ("step,loss\n0,5.5\n0,5.5\n", r"line 3 is '0,5.5\\n' and not the loss of step 1"),
        ("step,loss\n0,5.5\n2,5.5\n", r"line 3 is '2,5.5\\n' and not the loss of step 1"),
        ("step,loss\nabc\n", r"line 2 is 'abc\\n' and not the loss of step 0"),
        ("step,loss\n0,nan\n", r"line 2 is '0,nan\\n' and not the loss of step 0"),
        ("step,loss\n0, 5.5\n", r"line 2 is '0, 5.5\\n' and not the loss of step 0"),
        ("step,loss\n0,5.5ä\n", "'ascii' codec can't decode byte"),
    ],
)
def test_damaged_losses_are_refused_and_written_anew(tmp_path, content, told):
    """Also a line with a large number: it makes no list of that size."""
    (tmp_path / "losses.csv").write_text(content, "utf8")
    with pytest.raises(TrainingError, match=rf"losses\.csv is damaged: {told}.*\. The checkpoint has the losses too"):
        read_losses(tmp_path)
    training.LossFile(tmp_path, [5.5, 4.0])
    assert read_losses(tmp_path) == [5.5, 4.0]


def test_losses_that_are_lost_come_back_with_the_checkpoint(tiny, corpus, tmp_path):
    """After a checkpoint of 7 steps, their losses are gone but for two; when all is done, the file is damaged."""
    losses = run(tiny, corpus, tmp_path / "whole", save_every=7)
    folder = tmp_path / "lost"
    training.train(tiny, corpus, folder, CPU, save_every=7, minutes=0.0, quiet=True)
    (folder / "losses.csv").write_text(f"step,loss\n0,{losses[0]}\n2,{losses[2]}\n")
    assert run(tiny, corpus, folder, save_every=7) == losses
    (folder / "losses.csv").write_bytes(bytes(100))
    assert run(tiny, corpus, folder, save_every=7) == losses


def test_killed_while_the_losses_are_cut(tmp_path, monkeypatch):
    """The file is the one before or the one after, never an empty one."""
    log = training.LossFile(tmp_path)
    log.append([5.5, 5.25, 5.0])
    for name in ("write_text", "replace"):
        with monkeypatch.context() as patch:
            real = getattr(Path, name)

            def dying(self, *arguments, real=real):
                if arguments and isinstance(arguments[0], str):
                    real(self, arguments[0][:3])
                raise Killed

            patch.setattr(Path, name, dying)
            with pytest.raises(Killed):
                training.LossFile(tmp_path, [5.5])
        assert read_losses(tmp_path) == [5.5, 5.25, 5.0]
    training.LossFile(tmp_path, [5.5])
    assert read_losses(tmp_path) == [5.5]


def test_losses_are_on_the_disk_before_their_checkpoint(tiny, corpus, tmp_path, monkeypatch):
    flushed = []
    for module in (stored, training):
        monkeypatch.setattr(module, "flush", lambda path: flushed.append(path.name))
    run(tiny, corpus, tmp_path / "one", save_every=12)
    assert flushed == ["losses.csv.unfinished", "one", "losses.csv", "step-00000012.safetensors.unfinished", "one"]


# --- the step ------------------------------------------------------------------------------------------------------


def test_a_batch_that_does_not_divide(tiny, corpus, tmp_path):
    with pytest.raises(ValueError, match="batch must be a multiple of the 3 processes, got 4"):
        training.train(tiny, corpus, tmp_path, Team(torch.device("cpu"), size=3))


def test_it_learns(tiny, corpus, tmp_path):
    """A text of 26 letters: from log 256 towards log 26."""
    recipe = replace(tiny, optimizer="adamw", learning_rate=1e-2, steps=80, batch=8, copies=0.0)
    losses = run(recipe, corpus, tmp_path, save_every=80)
    assert losses[0] == pytest.approx(math.log(256), abs=0.5)
    assert math.log(26) - 0.05 < sum(losses[-10:]) / 10 < math.log(26) + 0.15


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # PyTorch's own, while it traces
def test_sixteen_bits_and_the_compiler_stay_close(tiny, corpus, tmp_path):
    """The compiler's front end without code generation, which takes long and needs a C++ compiler."""
    torch._dynamo.reset()
    recipe = replace(tiny, steps=3)
    exact = run(recipe, corpus, tmp_path / "exact")
    compiled = run(recipe, corpus, tmp_path / "compiled", compiler="eager")
    assert compiled == pytest.approx(exact, rel=1e-5)
    short = run(replace(recipe, dtype="bfloat16"), corpus, tmp_path / "short")
    assert short != exact
    assert short == pytest.approx(exact, rel=1e-2)


def test_a_loss_that_is_no_number_stops_the_training(tiny, corpus, tmp_path, monkeypatch):
    """It says which checkpoint is good, if there is one."""
    recipe = replace(tiny, optimizer="adamw", learning_rate=1e30, warmup=0)
    with pytest.raises(TrainingError, match=r"the loss is \[.*nan.*\] in steps 0 to 4; there is no checkpoint yet$"):
        run(recipe, corpus, tmp_path / "first")
    with monkeypatch.context() as patch:
        real = training.Run.step
        patch.setattr(training.Run, "step", lambda run, number: real(run, number) / (number != 8))
        with pytest.raises(TrainingError, match=r"in steps 5 to 9; the checkpoint of step 5 is good$"):
            run(tiny, corpus, tmp_path / "later")
    assert [path.stem for path in checkpoint.stored(tmp_path / "later")] == ["step-00000005"]
    run(tiny, corpus, tmp_path / "whole")
    run(tiny, corpus, tmp_path / "later")
    assert_same(tmp_path / "whole", tmp_path / "later")


def test_positions_depend_on_seed_and_step_alone(tiny):
    draw = tiny.rows["equal-mean"].method.train_positions
    first = training.positions_of(draw, tiny, 3)
    assert first.shape == (4, 32)
    torch.randn(5)
    assert torch.equal(training.positions_of(draw, tiny, 3), first)
    assert not torch.equal(training.positions_of(draw, tiny, 4), first)
    assert not torch.equal(training.positions_of(draw, replace(tiny, seed=1), 3), first)


def test_learning_rate(tiny):
    recipe = replace(tiny, warmup=4, steps=104, learning_rate=2.0)
    rates = [recipe.rate(step) for step in range(105)]
    assert rates[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert rates[54] == pytest.approx(1.1)
    assert rates[104] == pytest.approx(0.2)


def test_the_model_of_a_checkpoint(tiny, corpus, tmp_path):
    run(tiny, corpus, tmp_path)
    path = checkpoint.stored(tmp_path)[-1]
    model, recipe, found = training.load(path)
    assert recipe == tiny
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, found.tensors[f"model.{name}"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sizes.SIZES, "tiny", replace(sizes.SIZES["tiny"], layers=3))
        with pytest.raises(CheckpointError, match="is of another version of this package: its row 'rope' had the plan"):
            training.load(path)


def test_bad_recipes():
    wrong = (
        ({"size": "huge"}, "size must be one of 'gau-0.3m'"),
        ({"scheme": "x"}, "scheme must be one of 'rope'"),
        ({"batch": 0}, "batch must be an int of at least 1, got 0"),
        ({"batch": 2**31}, f"batch times train_length must be at most {2**31}, got {2**37}"),
        ({"seed": -1}, "seed must be an int of at least 0, got -1"),
        ({"seed": 2**63}, f"seed must be an int of at least 0 and at most {2**63 - 1} .*, got {2**63}"),
        ({"learning_rate": 1e300}, r"learning_rate must be at most 1e\+30, got 1e\+300"),
        ({"factor": 0.5}, f"factor must be from 1 to {2**25} for a train_length of 64, got 0.5"),
        ({"dtype": "int8"}, "dtype must be one of 'float32', 'bfloat16', got 'int8'"),
        ({"train_length": 40}, "train_length must be a multiple of 16, got 40"),
        ({"copies": 3.0}, "copies must be a number from 0 to 1, got 3.0"),
        ({"copies": -0.5}, "copies must be a number from 0 to 1, got -0.5"),
    )
    for change, told in wrong:
        with pytest.raises(ValueError, match=told):
            Recipe(**{"size": "gau-0.3m", **change})
    assert sizes.build("gau-0.3m", seed=2**63 - 1)
    for make in (lambda seed: sizes.build("gau-0.3m", seed), lambda seed: batch_of_seed(seed)):
        with pytest.raises(ValueError, match=f"seed must be an int .* at most {2**63 - 1} .*, got {2**70}"):
            make(2**70)


def batch_of_seed(seed: int) -> torch.Tensor:
    return text.batch_of(np.zeros(100, np.uint8), 0, seed=seed, batch=1, length=8)


# --- many processes ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def group_of_one(folder: Path):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@NEEDS_FSDP
def test_weights_that_are_split_over_processes(tiny, corpus, tmp_path, kill_at):
    """FSDP, stopped and gone on with: the checkpoint holds whole tensors, and is that of one process."""
    run(tiny, corpus, tmp_path / "one")
    with group_of_one(tmp_path):
        kill_at(8)
        with pytest.raises(Killed):
            run(tiny, corpus, tmp_path / "split", parallel="fsdp")
        run(tiny, corpus, tmp_path / "split", parallel="fsdp")
    assert_same(tmp_path / "one", tmp_path / "split", tolerance=1e-5)


def test_a_card_by_torchrun_is_the_processes_own(monkeypatch):
    """``--device cuda`` gives every process the card of its number, as no ``--device`` does; another number stays."""
    chosen, groups = [], []
    monkeypatch.setattr(training, "_compute_on", lambda device: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(dist, "init_process_group", groups.append)
    for name, value in (("destroy_process_group", None), ("get_rank", 3), ("get_world_size", 4)):
        monkeypatch.setattr(dist, name, lambda value=value: value)
    for name, value in (("RANK", "3"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    for name, index in (("cuda", 1), (None, 1), ("cuda:0", 0)):
        with training.team(name) as own:
            assert own == Team(torch.device("cuda", index), rank=3, size=4)
        assert chosen.pop() == own.device
    with training.team("cpu") as own:
        assert own.device == torch.device("cpu")
    assert not chosen
    assert groups == ["nccl", "nccl", "nccl", "gloo"]


LINE = ["--steps", "8", "--batch", "4", "--train-length", "32", "--save-every", "3", "--device", "cpu"]


def line(folder_of_text: Path, out: Path, *more: str) -> list[str]:
    places = ["--corpus", str(folder_of_text), "--cache", str(out / "cache"), "--out", str(out)]
    return ["train", *LINE, *places, *more]


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
SEED = Path("gau-0.3m") / "rope" / "seed-0"


@pytest.mark.parametrize(
    ("parallel", "optimizer"),
    [("ddp", "adamw"), *(pytest.param("fsdp", name, marks=NEEDS_FSDP) for name in ("adamw", "tiger"))],
)
def test_two_processes_are_one(folder_of_text, tmp_path, parallel, optimizer):
    """The same command by torchrun: the losses and the weights of one process.

    Tiger moves by signs, and the sign of a momentum that is nearly 0 is decided by rounding: of 291,968 weights one
    went another way when this was written.
    """
    own = ["--quiet", "--optimizer", optimizer]
    assert command.main(line(folder_of_text, tmp_path / "one", *own)) == 0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = line(folder_of_text, tmp_path / "two", *own, "--parallel", parallel)
    done = subprocess.run(
        [*torchrun, "-m", "rope_lessons.lab", *arguments],
        env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    strays = 30 if optimizer == "tiger" else 0
    assert_same(tmp_path / "one" / SEED, tmp_path / "two" / SEED, tolerance=1e-5, strays=strays)


def test_killed_for_real_and_resumed(folder_of_text, tmp_path):
    """kill -9 in the middle of a training of another process."""
    longer = ["--steps", "400", "--save-every", "4"]
    begun = subprocess.Popen(
        [sys.executable, "-m", "rope_lessons.lab", *line(folder_of_text, tmp_path, *longer)],
        env=ENVIRONMENT, cwd=ROOT, stderr=subprocess.PIPE,
    )  # fmt: skip
    folder = tmp_path / SEED
    while len(read_losses(folder)) < 5:
        assert begun.poll() is None, begun.communicate()
        time.sleep(0.02)
    begun.send_signal(signal.SIGKILL)
    begun.communicate()
    assert begun.returncode == -signal.SIGKILL
    before = read_losses(folder)
    assert 5 <= len(before) < 400
    recipe = command.recipe_of(command.parse([*line(folder_of_text, tmp_path), *longer]))
    corpus = text.open_corpus(folder_of_text, tmp_path / "cache")

    def longer_than_before(where: Path) -> list[float]:
        while len(read_losses(where)) <= len(before):
            training.train(recipe, corpus, where, CPU, save_every=4, minutes=0.0, quiet=True)
        return read_losses(where)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        resumed, alone = longer_than_before(folder), longer_than_before(tmp_path / "alone")
    finally:
        torch.set_num_threads(threads)
    shared = min(len(resumed), len(alone))
    assert resumed[:shared] == pytest.approx(alone[:shared], rel=1e-6)
    assert before == pytest.approx(alone[: len(before)], rel=1e-6)


# --- the command line ----------------------------------------------------------------------------------------------


def test_the_command_shows_its_progress(tiny, folder_of_text, tmp_path, capsys):
    assert command.main([*line(folder_of_text, tmp_path), "--config", "tiny", "--scheme", "pi-logn"]) == 0
    said = capsys.readouterr().err
    assert "rope-logn: 100%" in said  # pi acts at test only: this is the model that it takes
    assert "8/8" in said
    assert "tokens/s" in said
    assert "loss " in said
    assert len(read_losses(tmp_path / "tiny" / "rope-logn" / "seed-0")) == 8


def test_the_command_ends_with_where_the_training_is(tiny, folder_of_text, tmp_path, capsys):
    """Also when its time is over, and when there was nothing left to do."""
    own = [*line(folder_of_text, tmp_path), "--config", "tiny", "--quiet"]
    folder = tmp_path / "tiny" / "rope" / "seed-0"
    assert command.main([*own, "--minutes", "0"]) == 0
    assert capsys.readouterr().out == f"{folder}: 3 of 8 steps are done. The same command goes on from there.\n"
    for _ in range(2):
        assert command.main(own) == 0
        assert capsys.readouterr().out == f"{folder}: 8 of 8 steps are done.\n"


def test_the_command_refuses_without_a_traceback(tiny, folder_of_text, tmp_path, capsys):
    own = ["--config", "tiny", "--quiet"]
    assert command.main([*line(folder_of_text, tmp_path), *own]) == 0
    assert command.main([*line(folder_of_text, tmp_path), *own, "--batch", "8"]) == 1
    assert "is of another training: batch is 4 there and 8 here" in capsys.readouterr().err
    assert command.main(["train", "--corpus", str(tmp_path / "nothing"), *own]) == 1
    assert "train: corpus must be one of stdlib" in capsys.readouterr().err
    assert command.main(["train", "--scheme", "nonsense", *own]) == 1
    assert "train: scheme must be one of 'rope'" in capsys.readouterr().err


@pytest.fixture
def refused(capsys):
    """Runs a command that must refuse, and returns the one line that it says."""

    def run_it(*arguments: str) -> str:
        assert command.main(arguments) == 1
        said = capsys.readouterr().err
        begin = f"python -m rope_lessons.lab {arguments[0]}: "
        assert said.startswith(begin)
        assert said.count("\n") == 1, said
        return said.removeprefix(begin)

    return run_it


@pytest.mark.parametrize("name", ["foo", "", "cuda:x", "meta", "cuda:99"])
@pytest.mark.parametrize("arguments", [["train", "--quiet"], ["table", "runs"]], ids=["train", "table"])
def test_the_command_refuses_a_device(refused, arguments, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = refused(*arguments, "--device", name)
    assert said.startswith("device must be one that PyTorch can use here (cpu")
    assert f"), got '{name}'" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a card")
def test_the_command_refuses_a_card_that_is_not_there(refused):
    for arguments in (["train"], ["table", "runs"]):
        said = refused(*arguments, "--device", "cuda")
        assert said.startswith("device must be one that PyTorch can use here (cpu), got 'cuda': ")


def test_the_command_refuses_places_that_cannot_be_written_to(refused, tiny, folder_of_text, tmp_path):
    (tmp_path / "file").write_text("no folder")
    own = ["--corpus", str(folder_of_text), "--cache", str(tmp_path / "cache"), "--device", "cpu"]
    for place in (tmp_path / "file", tmp_path / "file" / "runs", Path("/proc/nowhere")):
        said = refused("train", *own, "--config", "tiny", "--quiet", "--out", str(place))
        assert said.startswith(f"out must be a folder that can be written to, got '{place}/tiny/rope/seed-0': [Errno ")
    for place in (tmp_path, tmp_path / "file" / "table.json", Path("/proc/nowhere/table.json")):
        said = refused("table", "runs", *own, "--results", str(place))
        assert said.startswith(f"results must be a file that can be written, got '{place}': ")
    said = refused("train", "--config", "tiny", "--corpus", str(folder_of_text), "--cache", str(tmp_path / "file"))
    assert said.startswith(f"cache must be a folder that can be written to, got '{tmp_path / 'file'}': [Errno ")


def test_the_command_refuses_what_the_system_refuses(refused, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "a-file")

    monkeypatch.setattr(text, "open_corpus", full)
    assert refused("train", "--device", "cpu") == "[Errno 28] No space left on device: 'a-file'\n"


def test_the_command_refuses_rows_that_no_model_serves(refused, tiny, folder_of_text, tmp_path):
    assert command.main([*line(folder_of_text, tmp_path, "--quiet"), "--config", "tiny"]) == 0
    own = ["--corpus", str(folder_of_text), "--cache", str(tmp_path / "cache"), "--device", "cpu", "--quiet"]
    result = tmp_path / "table.json"
    said = refused("table", str(tmp_path / "tiny"), *own, "--results", str(result), "--rows", "hwfa-w16")
    assert "hwfa-w16" in said
    assert not result.exists()


def test_the_command_refuses_numbers_out_of_range(refused):
    assert refused("train", "--copies", "3") == "copies must be a number from 0 to 1, got 3.0\n"
    wrong = (
        ("--factor", "0", "factor must be a positive finite number, got 0.0\n"),
        ("--train-length", "40", "train_length must be a multiple of 16, got 40\n"),
        ("--copies", "3", "copies must be a number from 0 to 1, got 3.0\n"),
    )
    for name, value, told in wrong:  # a list is made for all changes of the config, not for some
        assert refused("train", "--scheme", "list", name, value) == told


def test_the_command_lists_the_rows(tiny, capsys):
    assert command.main(["train", "--config", "tiny", "--scheme", "list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].startswith("rope: rope, rope-logn-test, pi, pi-logn-test, ")
    assert any(entry == "alibi: alibi" for entry in listed)
    assert " rerope-w8-logn," in listed[1]
    assert command.main(["train", "--config", "tiny", "--scheme", "list", "--train-length", "128"]) == 0
    longer = capsys.readouterr().out.splitlines()
    assert " rerope-w8-logn," not in longer[1]
    assert " rerope-w128-logn," in longer[1]
