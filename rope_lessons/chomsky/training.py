"""The protocol of the benchmark, training of several models side by side, and their evaluation beyond the length.

Everything random in a step is decided by a job's seed and the number of the step, and nothing else. So a run that is
killed and resumed, or that trains in other company, gives the same losses. The length of a step is the same for every
job of a protocol: that is what lets them share a tensor.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lessons._checks import check_bool, check_choice, check_count, check_not_negative, check_positive
from rope_lessons.chomsky.encoder import Encoder
from rope_lessons.chomsky.grid import Job
from rope_lessons.chomsky.recurrent import Recurrent
from rope_lessons.chomsky.task import Task
from rope_lessons.chomsky.tasks import TASKS
from rope_lessons.chomsky.weights import initial, unpack
from rope_lessons.lab import checkpoint
from rope_lessons.lab.checkpoint import CheckpointError
from rope_lessons.random_positions import grid_positions, random_positions
from rope_lessons.schemes import LogN

DRAWS = ("forward", "layer")
TEST_POSITIONS = ("random", "grid")
KEPT = 100  # losses of the last steps
MOST = 2**31 - 1  # of any count of a protocol


@dataclass(frozen=True)
class Protocol:
    """How models are trained and tested. The defaults are what was published; learning rates and seeds are in the grid.

    Args:
        longest: training lengths are drawn from 1 to it, one for each step.
        batch, steps: of training.
        clip: largest norm of a model's gradient.
        masked_loss: leave what follows the terminator out of the loss. The published loss has it in.
        dropout: share of channels dropped.
        dropout_at_test: keep it on when testing, as the published code does.
        max_position: random positions are drawn below it; rows of the table of learned positions.
        draw: random positions are drawn once per "forward" pass, or anew in each "layer". The published code does
            the second for RoPE, and for ALiBi and relative positions, which draw distances; those that are added are
            drawn once either way.
        test_positions: how models trained on random positions are tested, one or more: on "random" draws as
            published, or on the even "grid" that the article prefers.
        descending: plain sinusoidal positions count down to 1, as in the code of the first paper.
        test_lengths, samples, test_batch: which lengths are tested, on how many strings, how many at once.
        width, layers, heads, feed_forward: of the encoder.
        embedding_std: of its embeddings at the start. They are multiplied by the root of the width and then get
            positions of root mean square 0.71 added. The published 0.02, cut off at two deviations, begins with a
            symbol that weighs 0.14.
        hidden, cell_width, tape_cells: of the recurrent models.

    Raises:
        TypeError, ValueError: a value outside what the argument takes.

    Source: Delétang et al. 2022 (arXiv 2207.02098), appendix A.4; Ruoss et al. 2023 (arXiv 2305.16843); the code of
    both. Chapter 11.

    >>> Protocol(steps=2000).changes()
    'steps=2000'
    """

    longest: int = 40
    batch: int = 128
    steps: int = 1_000_000
    clip: float = 1.0
    masked_loss: bool = False
    dropout: float = 0.1
    dropout_at_test: bool = True
    max_position: int = 2048
    draw: str = "layer"
    test_positions: tuple[str, ...] = ("random",)
    descending: bool = False
    test_lengths: tuple[int, ...] = tuple(range(41, 501))
    samples: int = 512
    test_batch: int = 64
    width: int = 64
    layers: int = 5
    heads: int = 8
    feed_forward: int = 256
    embedding_std: float = 0.02
    hidden: int = 256
    cell_width: int = 8
    tape_cells: int = 256

    def __post_init__(self) -> None:
        for name in ("test_positions", "test_lengths"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        counts = ("longest", "batch", "steps", "max_position", "samples", "test_batch", "width", "layers", "heads",
                  "feed_forward", "hidden", "cell_width", "tape_cells")  # fmt: skip
        for name in counts:
            check_count(name, getattr(self, name), least=1, most=MOST, why="PyTorch's sizes overflow beyond")
        for length in self.test_lengths:
            check_count("test_lengths", length, least=1)
        for name in ("test_positions", "test_lengths"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                told = ", ".join(map(str, values)) or "none"
                raise ValueError(f"{name} must be one or more, each of them once, got {told}")
        check_positive("clip", self.clip)
        check_positive("embedding_std", self.embedding_std)
        check_not_negative("dropout", self.dropout)
        if self.dropout >= 1:
            raise ValueError(f"dropout must be below 1, got {self.dropout}")
        for name in ("masked_loss", "dropout_at_test", "descending"):
            check_bool(name, getattr(self, name))
        check_choice("draw", self.draw, DRAWS)
        for value in self.test_positions:
            check_choice("test_positions", value, TEST_POSITIONS)
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(f"width must be heads times an even number, got {self.width} and {self.heads} heads")

    def digest(self) -> str:
        """A short name for exactly these values."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]

    def tests(self, random: bool) -> list[tuple[str, int]]:
        """How a job is tested: pairs of a way to draw positions, "plain" where a job draws none, and a length."""
        return [
            (way, length) for length in self.test_lengths for way in (self.test_positions if random else ("plain",))
        ]

    def changes(self) -> str:
        """What differs from the published protocol."""
        differing = [f for f in fields(self) if getattr(self, f.name) != f.default]
        return " ".join(f"{f.name}={_short(getattr(self, f.name))}" for f in differing)


def _short(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


PUBLISHED = Protocol()
#: 2000 steps instead of a million, a quarter of the batch, a dozen lengths instead of 460. A result of it is marked
#: reduced. Its embeddings start larger: the published ones weigh a fifth of the sinusoidal positions added to them.
REDUCED = Protocol(
    batch=32,
    steps=2000,
    embedding_std=1 / 8,  # times 8, the root of the width, and cut off: a symbol begins with root mean square 0.88
    dropout_at_test=False,
    draw="forward",
    test_positions=("random", "grid"),
    test_lengths=(40, 41, 51, 65, 81, 102, 128, 160, 201, 253, 317, 398, 500),
    samples=128,
)
#: For the whole grid on a GPU: the published batch and draw, 2000 steps.
REDUCED_GPU = replace(REDUCED, batch=128, draw="layer", samples=256, test_batch=16)
#: For the ladder of chapter 11 on a CPU: strings of up to 20 symbols, small recurrent models, tests up to 100.
LADDER = replace(REDUCED, longest=20, steps=6000, hidden=64, test_lengths=(20, 21, 25, 30, 40, 50, 65, 80, 100))
PROTOCOLS = {"published": PUBLISHED, "reduced": REDUCED, "reduced-gpu": REDUCED_GPU, "ladder": LADDER}


def seed_of(*parts: Any) -> int:
    """A seed from a few names and numbers: different ones for different parts.

    >>> seed_of("data", 0, 7) == seed_of("data", 0, 7), seed_of("data", 0, 7) == seed_of("data", 0, 8)
    (True, False)
    """
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:7], "big")


def generator(*parts: Any, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_of(*parts))


def build(jobs: Sequence[Job], protocol: Protocol) -> Encoder | Recurrent:
    """The models of a group of jobs: those of one task, model and kind of positions.

    Raises:
        ValueError: jobs that cannot train side by side; texts longer than there are positions.
    """
    first = jobs[0]
    for job in jobs:
        if (job.task, job.model, job.positions) != (first.task, first.model, first.positions):
            raise ValueError(f"jobs must share task, model and positions, got {first.name} and {job.name}")
    task, p = task_of(first), protocol
    if first.model != "transformer":
        return Recurrent(task.input_size, task.output_size, first.model, p.hidden, p.cell_width, p.tape_cells)
    # N is the longest text of training, answer included. Another N would only multiply all scores by one number.
    longest = max(task.input_length(n) + task.output_length(n) for n in (p.longest, *p.test_lengths))
    if longest > p.max_position and (first.positions == "learned" or any(job.random for job in jobs)):
        raise ValueError(
            f"max_position must be at least {longest}, the longest text of {first.task} with these training and test "
            f"lengths, got {p.max_position}"
        )
    scale = LogN(p.longest + task.output_length(p.longest))
    scales = tuple(scale if job.log_n else None for job in jobs)
    return Encoder(
        task.input_size, task.output_size, first.positions, scales, p.max_position,
        p.width, p.layers, p.heads, p.feed_forward, p.embedding_std,
    )  # fmt: skip


def task_of(job: Job) -> Task:

    return TASKS[job.task]


class Training:
    """A group of models that train side by side, each as it would alone.

    Args:
        jobs: of one task, model and kind of positions.
        protocol: how.
        device: where.
        dtype: float32, or float64 for tests.

    Raises:
        ValueError: jobs that cannot train side by side.

    Chapter 11.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        protocol: Protocol,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        self.jobs, self.protocol, self.device = tuple(jobs), protocol, torch.device(device)
        self.task, self.model = task_of(jobs[0]), build(jobs, protocol)
        self.spec = self.model.spec()
        start = initial(self.spec, [seed_of("weights", job.seed) for job in jobs])
        self.weights = start.to(self.device, dtype).requires_grad_()  # (models, weights)
        self.rates = torch.tensor([[job.learning_rate] for job in jobs], device=self.device, dtype=dtype)
        self.first_moment, self.second_moment = (torch.zeros_like(self.weights.detach()) for _ in range(2))
        self.step = 0
        self.seconds = 0.0  # spent on the steps so far, kept by whoever calls
        self.recent: list[Tensor] = []  # losses of the last steps, KEPT at most, each (models,)

    # --- a step --------------------------------------------------------------------------------------------------

    def length(self) -> int:
        """The length of the next step, the same for all jobs."""
        return int(torch.randint(1, self.protocol.longest + 1, (), generator=generator("length", self.step)))

    def advance(self) -> Tensor:
        """One step of every model; their losses before it, ``(models,)``."""
        p, length = self.protocol, self.length()
        samples = [self.task.sample(p.batch, length, generator("data", job.seed, self.step)) for job in self.jobs]
        inputs, targets, mask = (torch.stack(parts).to(self.device) for parts in zip(*samples, strict=True))
        scores = self.scores(inputs, targets.shape[2], ("train", self.step), p.dropout > 0, "random")
        losses = self.losses(scores, targets, mask)
        (gradient,) = torch.autograd.grad(losses.sum(), self.weights)
        self.update(gradient)
        self.recent = [*self.recent, losses.detach()][-KEPT:]
        return losses.detach()

    def losses(self, scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
        """Cross entropy of each model, over the whole answer, or what the mask keeps of it."""
        each = F.cross_entropy(scores.flatten(0, 2), targets.flatten(), reduction="none").view(targets.shape)
        if not self.protocol.masked_loss:
            return each.mean(dim=(1, 2))
        return (each * mask).sum(dim=(1, 2)) / mask.sum(dim=(1, 2))

    def scores(self, inputs: Tensor, outputs: int, draw: tuple[Any, ...], dropout: bool, test_positions: str) -> Tensor:
        """Scores ``(models, batch, outputs, output_size)`` for inputs ``(models, batch, length)``; ``draw`` names
        the random numbers."""
        empty = inputs.new_full((*inputs.shape[:2], outputs), self.task.input_size)
        tokens = torch.cat((inputs, empty), dim=2)
        positions = self.positions(tokens.shape[2], draw, test_positions)
        masks = self.masks(tokens.shape[1] * tokens.shape[2], draw) if dropout else None
        return self.model(unpack(self.weights, self.spec), tokens, outputs, positions, masks)

    @torch.no_grad()
    def update(self, gradient: Tensor) -> None:
        """Clip each model's gradient by its norm, then Adam."""
        gradient = gradient * (self.protocol.clip / gradient.norm(dim=1, keepdim=True)).clamp(max=1.0)
        self.step += 1
        self.first_moment.lerp_(gradient, 0.1)
        self.second_moment.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        mean = self.first_moment / (1 - 0.9**self.step)
        root = (self.second_moment / (1 - 0.999**self.step)).sqrt_().add_(1e-8)
        self.weights.addcdiv_(mean.mul_(self.rates), root, value=-1.0)

    def positions(self, seq: int, draw: tuple[Any, ...], test_positions: str = "random") -> Tensor:
        """Int64 ``(layers, models, seq)``: row by row each model's positions, or the distances of "alibi" and
        "relative"."""
        layers = self.protocol.layers
        each = layers if self.protocol.draw == "layer" else 1
        rows = [self.positions_of(job, seq, draw, each, test_positions) for job in self.jobs]
        return torch.stack(rows, dim=1).expand(layers, -1, -1).to(self.device)

    def positions_of(self, job: Job, seq: int, draw: tuple[Any, ...], each: int, test_positions: str) -> Tensor:
        p = self.protocol
        if not job.random:
            counting = torch.arange(seq)
            plain = seq - counting if p.descending and job.positions == "sinusoidal" else counting
            return plain.expand(each, seq)
        sampler = grid_positions if test_positions == "grid" else random_positions
        source = generator("positions", job.seed, *draw)
        if job.positions not in ("alibi", "relative"):
            return sampler(seq, p.max_position, batch=each, generator=source)
        distances = torch.zeros(each, seq, dtype=torch.int64)  # of a token from itself 0, of others drawn from 1 on
        if seq > 1:
            distances[:, 1:] = 1 + sampler(seq - 1, p.max_position - 1, batch=each, generator=source)
        return distances

    def masks(self, rows: int, draw: tuple[Any, ...]) -> Tensor | None:
        """What dropout multiplies, ``(models, sites, rows, width)``: 0, or 1 over the share that is kept."""
        sites, rate = self.model.dropout_sites, self.protocol.dropout
        if not sites:
            return None
        shape = (sites, rows, self.protocol.width)
        # 16 random bits for each channel, four from each draw: several times faster than bernoulli_ on a CPU.
        threshold = round(rate * 2**16) - 2**15
        masks = torch.empty(len(self.jobs), *shape, dtype=self.weights.dtype, device=self.device)
        for mask, job in zip(masks, self.jobs, strict=True):
            source = generator("dropout", job.seed, *draw, device=self.device)
            bits = torch.empty(-(-math.prod(shape) // 4), dtype=torch.int64, device=self.device)
            bits.random_(-(2**63), None, generator=source)
            torch.ge(bits.view(torch.int16)[: math.prod(shape)].view(shape), threshold, out=mask)
        return masks.mul_(1 / (1 - rate))

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have been written for: these jobs, in this order, under this protocol."""
        names = [job.name for job in self.jobs]
        return {"protocol": self.protocol.digest(), "dtype": str(self.weights.dtype), "jobs": names}

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all; the one before it is kept beside it.

        Raises:
            OSError: it cannot be written. What was written before is still there.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.replace(previous(path))
        checkpoint.write(path, self.step, self.state(), self.identity())

    def state(self) -> dict[str, Tensor]:
        """All that changes from step to step."""
        return {
            "weights": self.weights,
            "first_moment": self.first_moment,
            "second_moment": self.second_moment,
            "recent": torch.stack(self.recent) if self.recent else self.weights.new_empty(0, len(self.jobs)),
            "seconds": torch.tensor(self.seconds, dtype=torch.float64),
        }

    def load(self, path: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            CheckpointError: the file is not what was written, or of other jobs or another protocol.
        """
        found = checkpoint.load(path, self.identity())
        kept = self.weights.new_empty(min(found.step, KEPT), len(self.jobs))
        checkpoint.check_tensors(found, {**self.state(), "recent": kept})
        state = {name: tensor.to(self.device) for name, tensor in found.tensors.items()}
        with torch.no_grad():
            self.weights.copy_(state["weights"])
        self.first_moment, self.second_moment = state["first_moment"], state["second_moment"]
        self.step, self.seconds, self.recent = found.step, float(state["seconds"]), list(state["recent"])

    def resume(self, path: Path) -> bool:
        """Go on from the checkpoint, or, if it cannot be used, from the one before it; False if there is none at all.

        Raises:
            CheckpointError: none that is there can be used.
        """
        refused = []
        for candidate in filter(Path.exists, (path, previous(path))):
            try:
                self.load(candidate)
            except CheckpointError as error:
                refused.append(str(error))
                continue
            if refused:
                warnings.warn(f"{refused[0]}; going on from the one before it", stacklevel=2)
            if candidate != path:
                candidate.replace(path)  # otherwise the next one would take the place of the only good one
            return True
        if refused:
            raise CheckpointError(f"{'; '.join(refused)}. Delete what is damaged to begin this training anew")
        return False

    # --- evaluation ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def shares(self, length: int, test_positions: str = "random") -> dict[str, Tensor]:
        """What each model has right on strings of one length, float64 ``(models,)``: ``"accuracy"``, the share of
        answer tokens, and ``"exact"``, the share of strings whose whole answer is right. All models see the same
        strings."""
        p = self.protocol
        right, whole = (torch.zeros(len(self.jobs), dtype=torch.float64, device=self.device) for _ in range(2))
        counted = 0
        for start in range(0, p.samples, p.test_batch):
            draw = ("test", length, start)
            size = min(p.test_batch, p.samples - start)
            sampled = self.task.sample(size, length, generator("data", *draw))
            inputs, targets, mask = (part.to(self.device) for part in sampled)
            several = inputs.expand(len(self.jobs), -1, -1)
            dropout = p.dropout > 0 and p.dropout_at_test
            scores = self.scores(several, targets.shape[1], draw, dropout, test_positions)
            hits = scores.argmax(dim=-1) == targets
            right += (hits & mask).sum(dim=(1, 2))
            whole += (hits | ~mask).all(dim=2).sum(dim=1)
            counted += int(mask.sum())
        return {"accuracy": (right / counted).cpu(), "exact": (whole / p.samples).cpu()}

    def evaluate(self, progress: Callable[[int], Any] | None = None) -> list[dict[str, Any]]:
        """What every job has right at every test length: rows of job, test_positions, length, accuracy and exact."""
        rows = []
        for length in self.protocol.test_lengths:
            for kind in self.protocol.test_positions if any(job.random for job in self.jobs) else ("plain",):
                found = self.shares(length, "random" if kind == "plain" else kind)
                for place, job in enumerate(self.jobs):
                    first = kind in ("plain", self.protocol.test_positions[0])
                    if job.random or first:  # how positions are drawn makes no difference to a plain job
                        shown = kind if job.random else "plain"
                        shares = {name: share[place].item() for name, share in found.items()}
                        rows.append({"job": job, "test_positions": shown, "length": length, **shares})
            if progress is not None:
                progress(length)
        return rows


def previous(path: Path) -> Path:
    """Where the checkpoint before the newest one is."""
    return path.with_suffix(".previous")
