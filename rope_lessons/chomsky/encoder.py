"""The Transformer encoder of the benchmark, several models side by side.

It is the published one: five blocks of width 64 with 8 heads, a feed-forward layer of 256 with ReLU, each norm after
its branch, embeddings times the root of the width, no causal mask. The input is followed by as many empty tokens as
the answer has, and the answer is read off there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lessons._checks import check_choice
from rope_lessons.chomsky.weights import Weight, linear, matrix, ones, zeros
from rope_lessons.engine import attention
from rope_lessons.local import alibi_slopes
from rope_lessons.schemes import FrequencySpec, LogN, Scheme
from rope_lessons.sinusoidal import sinusoidal_encoding

POSITIONS = ("none", "sinusoidal", "learned", "relative", "alibi", "rope")


@dataclass(frozen=True)
class Encoder:
    """A group of encoders of one shape, one for each entry of ``scales``. Holds no weights.

    Args:
        input_size: number of input tokens; the token of that number is the empty one.
        output_size: number of output tokens.
        positions: one of ``POSITIONS``. "rope" is a setting of the five knobs; "sinusoidal" and "learned" are added to
            the embeddings; "alibi" and Transformer-XL's "relative" take a distance for each rank, as published, and
            stand outside the knobs.
        scales: for each model the scale of its attention, a :class:`~rope_lessons.LogN` or None.
        max_position: rows of the table of learned positions.
        width, layers, heads, feed_forward: the shape.
        embedding_std: of the embeddings at the start, before they are multiplied by the root of the width.
    """

    input_size: int
    output_size: int
    positions: str
    scales: tuple[LogN | None, ...] = (None,)
    max_position: int = 2048
    width: int = 64
    layers: int = 5
    heads: int = 8
    feed_forward: int = 256
    embedding_std: float = 0.02

    def __post_init__(self) -> None:
        check_choice("positions", self.positions, POSITIONS)

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def dropout_sites(self) -> int:
        """How often dropout is applied, after each branch and where positions are added."""
        return 2 * self.layers + (self.positions in ("sinusoidal", "learned"))

    def schemes(self) -> tuple[Scheme, ...]:
        """The five knobs of each model. Only RoPE is a setting of them; the others turn no knob but the scale."""
        frequencies = FrequencySpec("rope", dim=self.head_dim) if self.positions == "rope" else None
        return tuple(Scheme(frequencies, scale=scale, causal=False) for scale in self.scales)

    def spec(self) -> dict[str, Weight]:
        """Every weight of one model."""
        d, hidden = self.width, self.feed_forward
        spec = {"embedding": Weight((self.input_size + 1, d), std=self.embedding_std)}
        if self.positions == "learned":
            spec["positions"] = Weight((self.max_position, d), std=1.0)
        for i in range(self.layers):
            # Without biases in the attention, as published; the three projections are one matrix.
            spec |= {f"{i}.qkv": matrix(d, 3 * d), f"{i}.out": matrix(d, d)}
            if self.positions == "relative":
                spec |= {f"{i}.relative": matrix(d, d)}
                spec |= {f"{i}.{name}": Weight((self.heads, self.head_dim), std=0.02) for name in ("u", "v")}
            spec |= {f"{i}.gain1": ones(d), f"{i}.shift1": zeros(d), f"{i}.gain2": ones(d), f"{i}.shift2": zeros(d)}
            spec |= {f"{i}.up": matrix(d, hidden), f"{i}.up_bias": zeros(hidden)}
            spec |= {f"{i}.down": matrix(hidden, d), f"{i}.down_bias": zeros(d)}
        return spec | {"readout": matrix(d, self.output_size), "readout_bias": zeros(self.output_size)}

    def __call__(
        self, w: dict[str, Tensor], tokens: Tensor, outputs: int, positions: Tensor, masks: Tensor | None = None
    ) -> Tensor:
        """Scores of the answer, ``(models, batch, outputs, output_size)``.

        Args:
            w: the weights, each with a first axis of models.
            tokens: int64 ``(models, batch, seq)``; the last ``outputs`` of them are the empty token.
            outputs: length of the answer.
            positions: int64 ``(layers, models, seq)``: the position of each token, in each layer. For "relative" and
                "alibi" the distance of each rank, from 0 on; see :func:`relative_table`.
            masks: ``(models, dropout_sites, batch * seq, width)``, what dropout multiplies; None for no dropout.
        """
        models, batch, seq = tokens.shape
        masks_left: Iterator[Tensor] = iter(()) if masks is None else iter(masks.unbind(1))

        def dropout(x: Tensor) -> Tensor:
            return x if masks is None else x * next(masks_left)

        one_hot = F.one_hot(tokens, self.input_size + 1).to(w["embedding"].dtype)
        x = linear(one_hot.flatten(1, 2), w["embedding"] * self.width**0.5)  # (models, batch * seq, width)
        if self.positions in ("sinusoidal", "learned"):
            added = self.added_positions(w, positions[0]).unsqueeze(1)
            x = dropout((x.view(models, batch, seq, -1) + added).flatten(1, 2))
        for i in range(self.layers):
            mixed = self.attend(w, i, x.view(models, batch, seq, -1), positions[i])
            x = _norm(x + dropout(linear(mixed, w[f"{i}.out"])), w[f"{i}.gain1"], w[f"{i}.shift1"])
            up = linear(x, w[f"{i}.up"], w[f"{i}.up_bias"]).relu()
            branch = dropout(linear(up, w[f"{i}.down"], w[f"{i}.down_bias"]))
            x = _norm(x + branch, w[f"{i}.gain2"], w[f"{i}.shift2"])
        answer = x.view(models, batch, seq, -1)[:, :, seq - outputs :].flatten(1, 2)
        return linear(answer, w["readout"], w["readout_bias"]).view(models, batch, outputs, -1)

    def added_positions(self, w: dict[str, Tensor], positions: Tensor) -> Tensor:
        """What is added to the embeddings, ``(models, seq, width)``."""
        if self.positions == "sinusoidal":
            return sinusoidal_encoding(positions, self.width, dtype=w["embedding"].dtype)
        rows = positions.unsqueeze(-1).expand(-1, -1, self.width)
        return w["positions"].gather(1, rows)

    def attend(self, w: dict[str, Tensor], i: int, x: Tensor, positions: Tensor) -> Tensor:
        """Attention of block ``i`` before its output map: x ``(models, batch, seq, width)`` to
        ``(models, batch * seq, width)``."""
        models, batch, seq, _ = x.shape
        qkv = linear(x.flatten(1, 2), w[f"{i}.qkv"]).view(models, batch, seq, 3, self.heads, self.head_dim)
        q, k, v = qkv.permute(3, 0, 1, 4, 2, 5).unbind()  # each (models, batch, heads, seq, head_dim)
        if self.positions == "relative":
            mixed = self.relative_attention(w, i, q, k, v, positions)
        elif self.positions == "alibi":
            mixed = self.alibi_attention(q, k, v, positions)
        else:
            mixed = self.folded_attention(q, k, v, positions)
        return mixed.transpose(2, 3).reshape(models, batch * seq, self.width)

    def folded_attention(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        """All models in one call: the models are its batch, and each model's sequences are heads. So a row of the
        batch has one row of positions. Models with and without log n are two calls."""
        given = positions if self.positions == "rope" else None
        backend = "flash" if q.device.type == "cpu" else "auto"  # dense is what "auto" prefers for short texts
        outputs, start = [], 0
        for scheme, run in groupby(self.schemes()):
            rows = slice(start, start := start + len(list(run)))
            q_rows, k_rows, v_rows = (t[rows].flatten(1, 2) for t in (q, k, v))
            where = None if given is None else given[rows]
            outputs.append(
                attention(q_rows, k_rows, v_rows, scheme, q_positions=where, k_positions=where, backend=backend)
            )
        return torch.cat(outputs).view_as(v)

    def alibi_attention(self, q: Tensor, k: Tensor, v: Tensor, distances: Tensor) -> Tensor:
        """ALiBi to both sides is symmetric, so left and right would look the same. The published code adds half a
        position to what lies before the query; so does the bias here."""
        table = relative_table(distances).to(q)
        away = table.abs() - 0.5 * (table > 0)  # (models, 2 seq - 1)
        away = diagonals_to_columns(away.unsqueeze(1).expand(-1, q.shape[3], -1))
        bias = -alibi_slopes(self.heads, device=q.device).to(q)[:, None, None] * away.unsqueeze(1)
        outputs = [  # model by model: their distances differ
            attention(q[m], k[m], v[m], scheme, bias=bias[m]) for m, scheme in enumerate(self.schemes())
        ]
        return torch.stack(outputs)

    def relative_attention(
        self, w: dict[str, Tensor], i: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor
    ) -> Tensor:
        """Transformer-XL's attention, score ⟨q_i + u, k_j⟩ + ⟨q_i + v, W e(δ_{i-j})⟩: a query meets the keys and,
        apart from them, the encodings of their distances. Dense."""
        models, _, heads, seq, dim = q.shape
        table = sinusoidal_encoding(relative_table(positions), self.width, dtype=q.dtype)
        distances = linear(table, w[f"{i}.relative"]).view(models, 1, -1, heads, dim).transpose(2, 3)
        known = [1.0 if scale is None else float(scale(torch.tensor(seq))) for scale in self.scales]
        scales = (torch.tensor(known, dtype=torch.float64).to(q) / dim**0.5).view(-1, 1, 1, 1, 1)
        by_content, by_distance = ((q + w[f"{i}.{name}"].view(models, 1, heads, 1, dim)) * scales for name in "uv")
        # Tests are long and need no gradient: one model's scores at a time fit where those of all would not.
        step = models if torch.is_grad_enabled() else 1
        outputs = []
        for start in range(0, models, step):
            m = slice(start, start + step)
            apart = by_distance[m] @ distances[m].transpose(-1, -2)  # (models, batch, heads, seq, 2 seq - 1)
            scores = by_content[m] @ k[m].transpose(-1, -2) + diagonals_to_columns(apart)
            outputs.append(scores.softmax(dim=-1) @ v[m])
        return torch.cat(outputs)


def relative_table(distances: Tensor) -> Tensor:
    """Both signs of the distances, ``(models, 2 seq - 1)``, from the farthest key before to the farthest after.

    As in the published code a pair's distance depends on how many tokens lie between: for :math:`i - j = n` it is
    the n-th of the given ones, for :math:`-n` the same with a minus. Plain ones are 0, 1, 2, …; random ones are 0 and a
    sorted draw. (For Transformer-XL the published code reads random ones beyond the end of its table, where JAX gives
    the last row: the token itself and all tokens on one side share one encoding. Here each has its own.)

    >>> relative_table(torch.tensor([[0, 1, 2], [0, 3, 8]]))
    tensor([[ 2,  1,  0, -1, -2],
            [ 8,  3,  0, -3, -8]])
    """
    return torch.cat((distances.flip(1), -distances[:, 1:]), dim=1)


def diagonals_to_columns(x: Tensor) -> Tensor:
    """Entry (i, j) of the result is ``x[..., i, seq - 1 - (i - j)]``: from an axis of distances to an axis of keys.

    A view of the flattened rows, shifted by one more per row, does it without an index.

    >>> diagonals_to_columns(torch.tensor([[1, 0, -1], [1, 0, -1]]))
    tensor([[ 0, -1],
            [ 1,  0]])
    """
    seq = x.shape[-2]
    flat = F.pad(x, (0, 1)).flatten(-2)  # rows of 2 seq
    return flat[..., seq - 1 : 2 * seq * seq - 1].unflatten(-1, (seq, 2 * seq - 1))[..., :seq]


def _norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """Layer norm over the channels, with each model's own gain and shift ``(models, width)``."""
    return torch.addcmul(shift.unsqueeze(1), F.layer_norm(x, x.shape[-1:]), gain.unsqueeze(1))
