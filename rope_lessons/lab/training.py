"""Training of the lab's models: on one core, on one card, or on many by ``torchrun``; stopped and gone on with at will.

Nothing but the recipe, the corpus and the number of the step decides a step: a training that was killed goes on from
its last checkpoint with the losses that it would have had. Chapter 12.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lessons._checks import (
    check_choice,
    check_count,
    check_not_negative,
    check_positive,
    check_share,
)
from rope_lessons._extras import extra
from rope_lessons.lab import checkpoint, sizes
from rope_lessons.lab.rows import TableRow, own_row, rows
from rope_lessons.lab.text import Corpus, batch_of
from rope_lessons.lab.tiger import Tiger, parameter_groups
from rope_lessons.methods import Positions
from rope_lessons.models import byte_lm
from rope_lessons.schemes import Plan
from rope_lessons.stored import Refusal, flush, locked, naming, write_whole

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PARALLEL = ("ddp", "fsdp")
TOGETHER = 10  # steps whose losses are read from the device at once
MOST = 2**31  # of steps, and of tokens in a step
LARGEST_RATE = 1e30  # and a step of it is still a float32
LOCK = ".lock"  # in the folder of a training: one process at a time writes there
LOSSES = "losses"  # in a checkpoint, beside weights and optimizer


class TrainingError(Refusal):
    """A training that cannot go on."""


@dataclass(frozen=True)
class Recipe:
    """A training: everything that decides its losses, but for the text.

    Args:
        size: one of ``lab.sizes.SIZES``.
        scheme: a row of :func:`~rope_lessons.lab.rows.rows`.
        seed: of the weights, the batches and the positions.
        train_length: :math:`N`, tokens that the model reads in a window.
        factor: :math:`\\kappa` of the rows.
        batch: windows of a step, those of all processes together.
        steps: of the whole training.
        optimizer: ``"tiger"`` or ``"adamw"``.
        learning_rate: the largest; ``warmup`` steps up, then a cosine down to a tenth.
        warmup, weight_decay: as they say.
        copies: share of the windows in which a later piece is a copy of an earlier one.
        shift_keys: keys mixed with the previous token's.
        dtype: ``"float32"``, or ``"bfloat16"`` for products in 16 bits (weights stay in float32).

    Raises:
        TypeError, ValueError: values out of range; unknown names.

    Chapter 12.
    """

    size: str
    scheme: str = "rope"
    seed: int = 0
    train_length: int = 64
    factor: float = 8.0
    batch: int = 32
    steps: int = 1000
    optimizer: str = "adamw"
    learning_rate: float = 3e-3
    warmup: int = 50
    weight_decay: float = 0.1
    copies: float = 0.5
    shift_keys: bool = False
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_choice("size", self.size, sizes.SIZES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("dtype", self.dtype, DTYPES)
        check_count("seed", self.seed)
        for name, least in (("batch", 1), ("steps", 1), ("warmup", 0), ("train_length", 1)):
            check_count(name, getattr(self, name), least, MOST, "more is no training")
        if self.batch * self.train_length > MOST:
            raise ValueError(f"batch times train_length must be at most {MOST}, got {self.batch * self.train_length}")
        check_positive("learning_rate", self.learning_rate)
        check_not_negative("weight_decay", self.weight_decay)
        for name in ("learning_rate", "weight_decay"):
            if getattr(self, name) > LARGEST_RATE:
                raise ValueError(f"{name} must be at most {LARGEST_RATE:g}, got {getattr(self, name)}")
        check_share("copies", self.copies)
        check_choice("scheme", self.scheme, self.rows)

    @property
    def config(self) -> sizes.ModelConfig:
        """Of the model, made for the optimizer and with what the row adds to the tokens."""
        config = replace(sizes.SIZES[self.size], shift_keys=self.shift_keys)
        if isinstance(config, sizes.GAUConfig):
            return replace(config, optimizer="lamb" if self.optimizer == "tiger" else "adam")
        names = ("encoding", "table", "bias", "bias_length")
        return replace(config, **{name: getattr(self.row, name) for name in names})

    @property
    def rows(self) -> dict[str, TableRow]:
        """The table for this model."""
        size = sizes.SIZES[self.size]
        return rows(size.layers, size.head_dim, self.train_length, self.factor)

    @property
    def row(self) -> TableRow:
        return self.rows[self.scheme]

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        return byte_lm.learning_rate(step, self.learning_rate, self.warmup, self.steps)

    def windows(self, text: np.ndarray, step: int, rows: slice = slice(None)) -> Tensor:
        """What a step reads, int64 ``(rows, train_length + 1)``; see :func:`~rope_lessons.lab.text.batch_of`."""
        return batch_of(
            text, step, seed=self.seed, batch=self.batch, length=self.train_length, copies=self.copies, rows=rows
        )

    def plan(self, step: int) -> Plan:
        """What a step is trained with: one scheme per layer."""
        return self.row.method.train_plan(step)


def folder_of(recipe: Recipe, config: str, out: Path) -> Path:
    """Where a training is kept: one folder for each config, row and seed."""
    return out / config / recipe.scheme / f"seed-{recipe.seed}"


def identity(recipe: Recipe, corpus_sha256: str) -> dict[str, Any]:
    """What a checkpoint is compared by: the recipe, the plan that its row stands for, and the text."""
    row = recipe.row
    drawn = row.method.train_positions
    return {
        **asdict(recipe),
        "plan": repr(row.method.schedule or row.method.train),
        "positions": None if drawn is None else f"{drawn.func.__name__} {drawn.keywords}",  # type: ignore[attr-defined]
        "corpus": corpus_sha256,
        **row.outside,
    }


# --- the pieces of a step ------------------------------------------------------------------------------------------


class Objective(nn.Module):
    """The loss of some windows. What is compiled, copied to other processes or split over them is this.

    Args:
        model: a language model of the lab.
        row: says how queries and keys are normalized.
    """

    def __init__(self, model: nn.Module, row: TableRow):
        super().__init__()
        self.model, self.row = model, own_row(row)

    def forward(self, windows: Tensor, positions: Tensor | None = None, plan: Plan | None = None) -> Tensor:
        """Windows ``(batch, length + 1)`` to nats per token."""
        scores = self.model(windows[:, :-1], plan, positions=positions, attend=self.row.attend)
        return F.cross_entropy(scores.flatten(0, 1).float(), windows[:, 1:].flatten())


def _adamw(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=recipe.learning_rate, betas=(0.9, 0.98))


def _tiger(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    return Tiger(parameter_groups(model), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)


OPTIMIZERS: dict[str, Callable[[nn.Module, Recipe], torch.optim.Optimizer]] = {"adamw": _adamw, "tiger": _tiger}


def positions_of(draw: Positions, recipe: Recipe, step: int) -> Tensor:
    """The positions of a step, ``(batch, train_length)``: a function of the seed and the step, as the text is."""
    bits = np.random.Philox(key=recipe.seed + 2**64, counter=[0, 0, 0, step])  # another key than that of the text
    generator = torch.Generator().manual_seed(int(bits.random_raw()) >> 1)
    return draw(recipe.train_length, batch=recipe.batch, generator=generator)


# --- processes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Team:
    """The processes of a training, seen from one of them."""

    device: torch.device
    rank: int = 0
    size: int = 1


def device_of(name: str | None = None) -> torch.device:
    """A device by its name, after a try: PyTorch takes many names that it cannot compute on.

    Args:
        name: ``"cuda"`` is the process's own card. That is the default too, or the CPU where there is no card.

    Raises:
        ValueError: an unknown name; a device that is not there, or that this PyTorch cannot use.
    """
    chosen = name if name is not None else "cuda" if torch.cuda.is_available() else "cpu"
    if chosen == "cuda":
        chosen = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    usable = ("cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count())))
    told = f"device must be one that PyTorch can use here ({', '.join(usable)}), got {name or chosen!r}"
    try:
        device = torch.device(chosen)
    except RuntimeError as error:  # its message lists devices that are not here
        raise ValueError(told) from error
    try:
        _compute_on(device)
    except (RuntimeError, AssertionError, ImportError) as error:  # each kind of device has its own
        raise ValueError(f"{told}: {str(error).partition(chr(10))[0][:200]}") from error
    return device


def _compute_on(device: torch.device) -> None:
    torch.ones(1, device=device).item()


@contextlib.contextmanager
def team(device: str | None = None) -> Iterator[Team]:
    """This process alone, or with those that ``torchrun`` started beside it.

    Args:
        device: as :func:`device_of` has it.

    Raises:
        ValueError: a device that cannot be used.
    """
    chosen = device_of(device)
    if "RANK" not in os.environ:
        yield Team(chosen)
        return
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    try:
        yield Team(chosen, dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def one_at_a_time(make: Callable[[], Corpus], own: Team) -> Corpus:
    """Open a corpus in the first process of each machine and then in the others, which find it prepared."""
    if own.size == 1:
        return make()
    first = os.environ["LOCAL_RANK"] == "0"
    corpus = make() if first else None
    dist.barrier()
    corpus = corpus or make()
    digests: list[Any] = [None] * own.size
    dist.all_gather_object(digests, corpus.about["sha256"])
    if len(set(digests)) > 1:
        raise TrainingError(
            f"the processes must have the same corpus, got those with the SHA-256 {sorted(set(digests))}"
        )
    return corpus


def _first_has(read: Callable[[], checkpoint.Checkpoint | None], own: Team) -> checkpoint.Checkpoint | None:
    """What the first process reads, in all of them: other machines need not see its folder."""
    if own.size == 1:
        return read()
    found = [read() if own.rank == 0 else None]
    dist.broadcast_object_list(found)
    return found[0]


def _spread(objective: Objective, own: Team, parallel: str) -> nn.Module:
    """One process: as it is. Several: a copy in each (DDP), or the weights of each layer split over all (FSDP)."""
    if not dist.is_initialized():
        return objective
    if parallel == "ddp":
        return nn.parallel.DistributedDataParallel(objective)
    from torch.distributed import fsdp

    if not hasattr(fsdp, "fully_shard"):
        raise TrainingError(f"parallel='fsdp' needs PyTorch 2.6 or newer, got {torch.__version__}; 'ddp' works here")
    layers: Any = objective.model.layers
    for layer in layers:
        fsdp.fully_shard(layer)
    return fsdp.fully_shard(objective)  # type: ignore[return-value]


# --- what is kept --------------------------------------------------------------------------------------------------


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights and state of the optimizer by name, whole also where they are split over processes."""
    names = _names(model, optimizer)
    found: dict[str, Tensor] = {**_weights(model)}
    for number, values in optimizer.state_dict()["state"].items():
        found.update({f"optimizer.{kind}.{names[number]}": value for kind, value in values.items()})
    return {name: _whole(tensor) for name, tensor in found.items()}


@torch.no_grad()
def restore(model: nn.Module, optimizer: torch.optim.Optimizer, found: checkpoint.Checkpoint) -> list[float]:
    """Put a :func:`state` back; the losses until then.

    Args:
        model, optimizer: as they were made for the first step.
        found: a checkpoint of them.

    Raises:
        CheckpointError: other tensors than these weights and this optimizer have. Nothing is changed then.
    """
    _check_fits(model, optimizer, found)
    _fill(model, found)
    values: dict[int, dict[str, Tensor]] = {}
    numbers = {name: number for number, name in enumerate(_names(model, optimizer))}
    for key, like in _moments(model, optimizer).items():
        _, kind, name = key.split(".", 2)
        tensor = found.tensors[key]
        values.setdefault(numbers[name], {})[kind] = _split_like(like, tensor) if like.ndim else tensor
    optimizer.load_state_dict({"state": values, "param_groups": optimizer.state_dict()["param_groups"]})
    return found.tensors[LOSSES].tolist()


def _check_fits(model: nn.Module, optimizer: torch.optim.Optimizer, found: checkpoint.Checkpoint) -> None:
    losses = torch.zeros((), dtype=torch.float64).expand(found.step)
    checkpoint.check_tensors(found, {**_weights(model), **_moments(model, optimizer), LOSSES: losses})


@torch.no_grad()
def _fill(model: nn.Module, found: checkpoint.Checkpoint) -> None:
    """Give a model the weights of a checkpoint, which was found to fit."""
    for name, parameter in _weights(model).items():
        parameter.copy_(_split_like(parameter, found.tensors[name]))


def _weights(model: nn.Module) -> dict[str, nn.Parameter]:
    return {f"model.{name}": parameter for name, parameter in model.named_parameters()}


def _moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the state of an optimizer is like after a step, by the names that :func:`state` gives."""
    kinds: dict[str, Tensor | None] = {"momentum": None}  # like the parameter
    if isinstance(optimizer, torch.optim.AdamW):
        kinds = {"step": torch.zeros(()), "exp_avg": None, "exp_avg_sq": None}
    return {
        f"optimizer.{kind}.{name}": parameter if like is None else like
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
        for kind, like in kinds.items()
    }


def _names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """The names of the optimizer's parameters, in its order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _split_like(parameter: Any, tensor: Tensor) -> Tensor:
    tensor = tensor.to(parameter.device)
    if not hasattr(parameter, "placements"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, parameter.device_mesh, parameter.placements)


class LossFile:
    """The loss of every step, ``losses.csv`` in the folder of a training. A checkpoint has the losses too: the file is
    for those who look, and is written anew from the checkpoint whenever a training goes on.

    Args:
        folder: of the training; made if it is not there.
        losses: those of the checkpoint.
    """

    def __init__(self, folder: Path, losses: Sequence[float] = ()):
        self.path, self.losses = folder / "losses.csv", list(losses)
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["step,loss\n", *map(_line, range(len(losses)), losses)]
        write_whole(self.path, lambda path: path.write_text("".join(lines)))

    def append(self, losses: Sequence[float]) -> None:
        begin = len(self.losses)
        with naming(self.path), self.path.open("a") as file:
            file.writelines(map(_line, range(begin, begin + len(losses)), losses))
        self.losses += losses

    def flush(self) -> None:
        """Wait until the disk has all of it."""
        with naming(self.path):
            flush(self.path)


def _line(step: int, loss: float) -> str:
    return f"{step},{loss!r}\n"


def read_losses(folder: Path) -> list[float]:
    """The losses of a training so far; none where it has not begun.

    A last line that was not written to its end is left out.

    Raises:
        TrainingError: a damaged file, with the number of the line.
    """
    path = folder / "losses.csv"
    if not path.exists():
        return []
    losses: list[float] = []
    try:
        with path.open(encoding="ascii") as file:
            if (head := file.readline()) != "step,loss\n":
                raise ValueError(f"line 1 is {head[:40]!r} and not 'step,loss'")
            for line in file:
                if line.endswith("\n"):
                    losses.append(_loss(line, len(losses)))
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"{path} is damaged: {error}. The checkpoint has the losses too: the same training command writes the file "
            f"anew"
        ) from error
    return losses


def _loss(line: str, step: int) -> float:
    """The loss of a line, which must be that of a step: a number that is read from a file makes no list of its size."""
    with contextlib.suppress(ValueError):
        loss = float(line.partition(",")[2])
        if math.isfinite(loss) and line == _line(step, loss):
            return loss
    raise ValueError(f"line {step + 2} is {line[:40]!r} and not the loss of step {step}")


# --- training ------------------------------------------------------------------------------------------------------


def train(
    recipe: Recipe,
    corpus: Corpus,
    folder: Path,
    own: Team | None = None,
    *,
    compiler: str | None = None,
    parallel: str = "ddp",
    save_every: int = 250,
    minutes: float = math.inf,
    quiet: bool = False,
    tuned_from: checkpoint.Checkpoint | None = None,
) -> int:
    """Train, or go on with a training, until it is done or the time is over.

    Args:
        recipe: what to train.
        corpus: what to train on.
        folder: of this training: checkpoints and ``losses.csv``.
        own: the processes; this one alone by default.
        compiler: a backend of ``torch.compile``, ``"inductor"`` for speed; None runs the model as it is.
        parallel: how several processes share the work: ``"ddp"`` (each holds the whole model) or ``"fsdp"`` (each
            holds a part, for models that do not fit).
        save_every: steps between checkpoints. There is one at the end of every call too.
        minutes: after which to stop, with a checkpoint; at least 0.
        quiet: without progress bar.
        tuned_from: a checkpoint whose weights are those before the first step, for a model that is tuned further; by
            default they are drawn from the seed. Its optimizer and its losses are left behind.

    Returns:
        how many steps are done, ``recipe.steps`` if all.

    Raises:
        TypeError, ValueError: arguments out of range; a batch that does not divide into equal parts.
        CheckpointError: there are checkpoints in the folder, and none is of this training; a ``tuned_from``
            of another model.
        InUseError: another process trains in the folder, or tests what is there.
        OSError: the disk is full. What is kept stays good.
        TrainingError: the loss is no number any more.

    Chapter 12.
    """
    own = own or Team(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    check(recipe, own, parallel, save_every, minutes)
    if recipe.train_length >= (most := len(corpus.train)):
        raise ValueError(f"train_length must be below the bytes of training text, {most}, got {recipe.train_length}")
    with only_one(folder) if own.rank == 0 else contextlib.nullcontext():
        end = time.monotonic() + 60 * minutes
        say: Callable[[str], None] = _say if own.rank == 0 else _say_nothing
        model = sizes.build(recipe.config, recipe.seed, recipe.row.method.train, own.device)
        objective = Objective(model, recipe.row)
        spread = _spread(objective, own, parallel)
        optimizer = OPTIMIZERS[recipe.optimizer](model, recipe)
        if tuned_from is not None:
            _check_fits(model, optimizer, tuned_from)
            _fill(model, tuned_from)
        made_for = identity(recipe, corpus.about["sha256"])
        found = _first_has(lambda: checkpoint.newest(folder, made_for, say), own)
        losses = [] if found is None else restore(model, optimizer, found)
        good = start = len(losses)
        if own.rank == 0:
            checkpoint.keep(folder, start)
        if compiler is not None:
            model.compile_layers(backend=compiler)  # layer by layer: a deep model compiles no longer than a shallow one

        log = LossFile(folder, losses) if own.rank == 0 else None

        def save(step: int) -> None:
            tensors = state(model, optimizer)  # all processes take part
            if log is not None:
                log.flush()  # first: a checkpoint never has steps whose losses are lost
                tensors[LOSSES] = torch.tensor(log.losses, dtype=torch.float64)
                checkpoint.save(folder, step, tensors, made_for, good)

        run = Run(recipe, corpus, own, spread, optimizer)
        with _progress(recipe, start, quiet or own.rank > 0) as bar:
            begin, step = time.perf_counter(), start
            while step < recipe.steps:
                # The losses of a few steps at a time, never across a checkpoint.
                until = min(recipe.steps, step + TOGETHER, (step // save_every + 1) * save_every)
                losses, over = _shared([run.step(number) for number in range(step, until)], time.monotonic() > end, own)
                if not all(map(math.isfinite, losses)):
                    kept = f"the checkpoint of step {good} is good" if good else "there is no checkpoint yet"
                    raise TrainingError(f"the loss is {losses} in steps {step} to {until - 1}; {kept}")
                step = until
                if log is not None:
                    log.append(losses)
                rate = (step - start) * recipe.batch * recipe.train_length / (time.perf_counter() - begin)
                bar.set_postfix_str(f"loss {losses[-1]:.4f}, {rate:,.0f} tokens/s", refresh=False)
                bar.update(len(losses))
                if step % save_every == 0 or step == recipe.steps or over:
                    save(step)
                    good = step
                if over:
                    break
        if step < recipe.steps:
            say(f"Stopped after step {step} of {recipe.steps}: the time is over. The same command goes on from there.")
        return step


def check(recipe: Recipe, own: Team, parallel: str = "ddp", save_every: int = 250, minutes: float = 0.0) -> None:
    """Refuse what :func:`train` cannot do, before anything is read or written. Arguments are those of it.

    Raises:
        TypeError, ValueError: arguments out of range; a batch that does not divide into equal parts.
    """
    check_count("save_every", save_every, least=1)
    check_choice("parallel", parallel, PARALLEL)
    check_minutes(minutes)
    if recipe.batch % own.size:
        raise ValueError(f"batch must be a multiple of the {own.size} processes, got {recipe.batch}")


def check_minutes(minutes: float) -> None:
    """At least 0, also infinitely many; NaN would never be over."""
    if minutes != math.inf:
        check_not_negative("minutes", minutes)


def only_one(folder: Path) -> contextlib.AbstractContextManager[None]:
    """The lock of a folder: who trains or tests there is alone.

    Raises:
        InUseError: another process does.
    """
    return locked(
        folder / LOCK,
        f"another process trains or tests in {folder}: wait until it ends, or choose another folder",
    )


class Run:
    """What the steps of a training have in common.

    Args:
        recipe: of the training.
        corpus: with the training text.
        own: this process.
        objective: the loss of some windows, compiled or spread over processes as it may be.
        optimizer: of its weights.
    """

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        own: Team,
        objective: nn.Module,
        optimizer: torch.optim.Optimizer,
    ):
        self.recipe, self.corpus, self.own = recipe, corpus, own
        self.objective, self.optimizer = objective, optimizer
        self.draw = recipe.row.method.train_positions

    def step(self, number: int) -> Tensor:
        """One step; its loss, still on the device, of this process's windows."""
        recipe, mine = self.recipe, slice(self.own.rank, None, self.own.size)
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.rate(number)
        windows = recipe.windows(self.corpus.train, number, mine).to(self.own.device)
        positions = None
        if self.draw is not None:
            positions = positions_of(self.draw, recipe, number)[mine].to(self.own.device)
        with torch.autocast(self.own.device.type, dtype=torch.bfloat16, enabled=recipe.dtype == "bfloat16"):
            loss = self.objective(windows, positions, recipe.plan(number))
        loss.backward()
        if recipe.optimizer == "adamw":  # Tiger takes signs: the size of a gradient does nothing
            nn.utils.clip_grad_norm_(self.objective.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def _shared(losses: list[Tensor], over: bool, own: Team) -> tuple[list[float], bool]:
    """The mean of each loss over the processes, and whether any of them has no time left."""
    values = torch.stack([*losses, torch.tensor(float(over), device=own.device)])
    if own.size > 1:
        dist.all_reduce(values)
        values[:-1] /= own.size
    *means, votes = values.tolist()
    return means, votes > 0


def _progress(recipe: Recipe, start: int, hidden: bool) -> Any:
    with extra("lab", "a training"):
        from tqdm import tqdm

    often = 0.2 if sys.stderr.isatty() else 30.0  # seconds: a log file does not get a line at every step
    return tqdm(total=recipe.steps, initial=start, unit="step", desc=recipe.scheme, disable=hidden, mininterval=often)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _say_nothing(message: str) -> None:
    pass


# --- recipes by name -----------------------------------------------------------------------------------------------

# The small ones take AdamW: in a thousand steps Tiger, whose steps are a thousandth of a weight, does not get far. A
# copy in every window, for they are to learn to copy in 500 steps. Steps, rate and copies were chosen on seed 0.
_TIGER: dict[str, Any] = {"optimizer": "tiger", "learning_rate": 1.5e-3, "weight_decay": 0.01}
_SMALL: dict[str, Any] = {"batch": 16, "steps": 500, "copies": 1.0, "shift_keys": True}
_LARGE = Recipe("gau-25m", train_length=512, batch=128, steps=4000, warmup=100, dtype="bfloat16", **_TIGER)
CONFIGS: dict[str, Recipe] = {
    "gau-0.3m": Recipe("gau-0.3m", learning_rate=6e-3, **_SMALL),
    "transformer-0.3m": Recipe("transformer-0.3m", learning_rate=3e-3, **_SMALL),
    "gau-25m": _LARGE,
    "transformer-25m": replace(_LARGE, size="transformer-25m"),
    "gau-87m": replace(_LARGE, size="gau-87m", steps=2000),
    "transformer-87m": replace(_LARGE, size="transformer-87m", steps=2000),
}


def recipe_from(stored: Any, path: Path, kind: type[Recipe] = Recipe) -> Recipe:
    """The recipe of what :func:`identity` gave, as it was stored in a file.

    Raises:
        CheckpointError: it is none; this version of the package has another recipe, or another plan for its row.
    """
    other = f"{path} is of another version of this package"
    if not isinstance(stored, dict) or not stored.keys() >= {"plan", "corpus"}:
        raise checkpoint.CheckpointError(f"{other}: it has no recipe with plan and corpus")
    names = kind.__dataclass_fields__.keys()
    try:
        recipe = kind(**{name: value for name, value in stored.items() if name in names})
    except (TypeError, ValueError) as error:
        raise checkpoint.CheckpointError(f"{other}: {error}") from error
    if stored["plan"] != repr(recipe.row.method.schedule or recipe.row.method.train):
        raise checkpoint.CheckpointError(f"{other}: its row {recipe.scheme!r} had the plan {stored['plan']}")
    return recipe


def load(
    path: Path, device: torch.device | str = "cpu", kind: type[Recipe] = Recipe
) -> tuple[nn.Module, Recipe, checkpoint.Checkpoint]:
    """The model of a checkpoint, ready to be tested.

    Args:
        path: of the file.
        device: where the model lives.
        kind: of its recipe.

    Returns:
        the model, the recipe of its training, and the checkpoint.

    Raises:
        CheckpointError: a file that cannot be used; a recipe of another version of this package.

    Chapter 12.
    """
    found = checkpoint.load(path)
    recipe = recipe_from(found.recipe, path, kind)
    model = sizes.build(recipe.config, recipe.seed, recipe.row.method.train, device)
    _check_fits(model, OPTIMIZERS[recipe.optimizer](model, recipe), found)
    _fill(model, found)
    return model.eval(), recipe, found
