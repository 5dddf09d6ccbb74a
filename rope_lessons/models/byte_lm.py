"""A language model of bytes, small enough to train on one CPU core in about a minute. Used from chapter 03 on.

Everything is here: the text, the model, the training, the evaluation. The attention is the package's own, so a
trained model is tested with another position method by handing ``forward`` another plan.
"""

from __future__ import annotations

import math
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lessons._extras import extra
from rope_lessons.engine import attention
from rope_lessons.schemes import Plan, Scheme, scheme
from rope_lessons.stored import DATA, results


@dataclass(frozen=True)
class Config:
    """The model and its training. With these values it has 295 552 parameters."""

    width: int = 128
    layers: int = 2
    heads: int = 2  # of 64 channels, all of which turn
    hidden: int = 256
    length: int = 64  # bytes of a training window: the N of the book
    batch: int = 32
    steps: int = 1000
    learning_rate: float = 3e-3  # the largest value; 50 steps up, then a cosine down to a tenth
    warmup: int = 50
    weight_decay: float = 0.1

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


# --- the text -----------------------------------------------------------------------------------------------------

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


def stdlib_files() -> list[tuple[str, bytes]]:
    """Name and content of the Python files of the running Python's standard library, without its tests."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    # _sysconfigdata describes the machine and not the language.
    kept = [name for name in sorted(paths) if not SKIPPED & set(name.split("/")) and "_sysconfigdata" not in name]
    return [(name, paths[name].read_bytes()) for name in kept]


def is_held_out(name: str, share: int = 1) -> bool:
    """One file in twenty is for testing, or ``share`` in twenty. It depends on the name alone, so it is the same in
    every Python, and what a smaller share holds out a larger one does too."""
    return zlib.crc32(name.encode()) % 20 < share


def training_text() -> Tensor:
    """All training files in one row of bytes, uint8."""
    return as_bytes(b"".join(content for name, content in stdlib_files() if not is_held_out(name)))


def as_bytes(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def evaluation_windows() -> Tensor:
    """The shipped test text, int64 ``(windows, 513)``: every window is one piece of one held-out file."""
    return torch.stack([as_bytes(window.encode()) for window in results("radix_eval_text")["windows"]]).long()


# --- the model ----------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention, then a two-layer network, each behind a norm and added to the stream."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads = config.heads
        self.attention_norm, self.network_norm = nn.RMSNorm(config.width), nn.RMSNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        batch, seq, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, seq, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, seq, head_dim)
        mixed = attend(q, k, v).transpose(1, 2).reshape(batch, seq, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.network_norm(x))))


class ByteLM(nn.Module):
    """A causal transformer over bytes. Positions enter through the plan alone: one scheme per layer."""

    def __init__(self, config: Config, plan: Plan | None = None):
        super().__init__()
        self.plan: Plan = plan or (scheme("rope", dim=config.head_dim),) * config.layers
        self.embedding = nn.Embedding(256, config.width)
        nn.init.normal_(self.embedding.weight, std=0.05)  # it is the output layer too: keep the first scores small
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width)

    def forward(self, tokens: Tensor, plan: Plan | None = None, attend: Callable[..., Tensor] = attention) -> Tensor:
        """Scores of the next byte, ``(batch, seq, 256)``, for tokens int64 ``(batch, seq)``.

        ``plan`` replaces the plan of training; ``attend(q, k, v, scheme)`` replaces the attention itself.
        """
        x = self.embedding(tokens)
        for block, layer_scheme in zip(self.blocks, plan or self.plan, strict=True):
            x = block(x, lambda q, k, v, s=layer_scheme: attend(q, k, v, s))
        return self.norm(x) @ self.embedding.weight.T


def build(config: Config, seed: int, plan: Plan | None = None) -> ByteLM:
    """A fresh model; the plan of training is RoPE unless given. The seed decides every weight, and the global random
    state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ByteLM(config, plan)


# --- training -----------------------------------------------------------------------------------------------------


def batches(text: Tensor, config: Config, seed: int) -> Iterator[Tensor]:
    """Random windows of the text without end, int64 ``(batch, length + 1)``."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.arange(config.length + 1)
    while True:
        starts = torch.randint(len(text) - config.length, (config.batch, 1), generator=generator)
        yield text[starts + offsets].long()


def learning_rate(step: int, largest: float, warmup: int, steps: int) -> float:
    """Up in a straight line, then down along a cosine to a tenth."""
    if step < warmup:
        return largest * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return largest * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)


def next_byte_loss(model: nn.Module, windows: Tensor) -> Tensor:
    """Nats per byte, each byte predicted from those before it."""
    scores = model(windows[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())


def train(
    model: nn.Module,
    text: Tensor,
    config: Config,
    seed: int,
    steps: int | None = None,
    loss_of: Callable[[nn.Module, Tensor], Tensor] = next_byte_loss,
) -> list[float]:
    """Train in place, all steps or the first few; the loss of every step."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=config.weight_decay)
    losses = []
    for step, windows in enumerate(islice(batches(text, config, seed), config.steps if steps is None else steps)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config.learning_rate, config.warmup, config.steps)
        loss = loss_of(model, windows)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


# --- evaluation ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def evaluate(
    model: ByteLM, windows: Tensor, length: int, plan: Plan | None = None, attend: Callable[..., Tensor] = attention
) -> tuple[Tensor, Tensor]:
    """Teacher-forced next-byte prediction: hits and losses, each ``(windows, 512)``, one entry per predicted byte.

    The windows are cut into pieces of ``length`` bytes, and a piece sees nothing of the others. So the same bytes
    are predicted at every length; what changes is how much comes before them.
    """
    inputs, targets = windows[:, :-1], windows[:, 1:]
    hits, losses = [], []
    for some_inputs, some_targets in zip(inputs.split(12), targets.split(12), strict=True):
        scores = model(some_inputs.reshape(-1, length), plan, attend)
        flat = some_targets.reshape(-1, length)
        hits.append((scores.argmax(dim=-1) == flat).view_as(some_targets))
        losses.append(F.cross_entropy(scores.transpose(1, 2), flat, reduction="none").view_as(some_targets))
    return torch.cat(hits).double(), torch.cat(losses).double()


def plans(config: Config, factor: float) -> dict[str, Plan]:
    """The methods of chapter 03 at test, by name; the same scheme in every layer."""
    dim = config.head_dim
    rows = {name: scheme(name, dim=dim, factor=factor) for name in ("pi", "ntk-old", "ntk-fixed", "ntk-aware")}
    rows["dynamic-ntk"] = scheme("dynamic-ntk", dim=dim, factor=factor, train_length=config.length)
    return {name: (row,) * config.layers for name, row in {"rope": scheme("rope", dim=dim), **rows}.items()}


# Two ways to decode token by token when the frequencies grow with the text. Each is an attend(q, k, v, scheme) for
# ``forward``: one pass over the whole text that gives what the steps with a key-value cache would give.


def attend_raw(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme) -> Tensor:
    """The cache holds *raw* keys: at every step all of them are turned by the frequencies of the present length."""
    steps = [attention(q[:, :, i : i + 1], k[:, :, : i + 1], v[:, :, : i + 1], scheme) for i in range(q.shape[2])]
    return torch.cat(steps, dim=2)


# --- checkpoints --------------------------------------------------------------------------------------------------


def round_weights(model: nn.Module) -> None:
    """Round every weight to bfloat16, as the shipped file stores it. The model computes in float32 as before."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.to(torch.bfloat16))


def save(model: nn.Module, path: Path) -> None:
    with extra("book", "a stored model"):
        from safetensors.torch import save_file

    save_file({name: value.to(torch.bfloat16).contiguous() for name, value in model.state_dict().items()}, path)


def load(
    path: Path = DATA / "radix_byte_lm.safetensors", config: Config | None = None, plan: Plan | None = None
) -> ByteLM:
    """A stored model, in float32; by default the shipped one (seed 0) that ``python -m experiments radix`` made.

    A checkpoint holds weights only: give the configuration and the plan of training if they are not the default ones.
    """
    model = build(config or Config(), seed=0, plan=plan)
    fill(model, path)
    return model


def fill(model: nn.Module, path: Path) -> None:
    """Put stored weights into a model, which is ready to be tested then."""
    with extra("book", "a stored model"):
        from safetensors.torch import load_file

    model.load_state_dict({name: value.float() for name, value in load_file(path).items()})
    model.eval()
