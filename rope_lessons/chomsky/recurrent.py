"""The recurrent models of the benchmark, several side by side: RNN, LSTM, Stack-RNN and Tape-RNN.

They read the input and then one empty token for each token of the answer, which is read off there. Stack and tape are
differentiable: every action is done, and the results are averaged with the probabilities of the actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lessons._checks import check_choice
from rope_lessons.chomsky.weights import Weight, linear, matrix, zeros

CELLS = ("rnn", "lstm", "stack_rnn", "tape_rnn")
STACK_ACTIONS = 3  # push, pop, keep
TAPE_ACTIONS = 5  # write, then stay, move left or right by one, or by the length of the input
TAPE_HIDDEN = 64  # of the two layers that decide what the tape is written


@dataclass(frozen=True)
class Recurrent:
    """A group of recurrent models of one shape. Holds no weights.

    Args:
        input_size: number of input tokens; the token of that number is the empty one.
        output_size: number of output tokens.
        cell: one of ``CELLS``.
        width: hidden size.
        cell_width: channels of a cell of the stack or tape.
        tape_cells: length of the tape, which is closed to a ring; at least that of the text.
    """

    input_size: int
    output_size: int
    cell: str
    width: int = 256
    cell_width: int = 8
    tape_cells: int = 256

    dropout_sites = 0

    def __post_init__(self) -> None:
        check_choice("cell", self.cell, CELLS)

    def spec(self) -> dict[str, Weight]:
        """Every weight of one model."""
        h, c, gates = self.width, self.cell_width, 4 if self.cell == "lstm" else 1
        read = c if self.cell in ("stack_rnn", "tape_rnn") else 0
        inputs = self.input_size + 1 + read
        if self.cell == "lstm":  # one map of input and state together: both start for that many inputs
            std = (inputs + h) ** -0.5
            spec = {"in": Weight((inputs, gates * h), std), "state": Weight((h, gates * h), std)}
        else:
            std = inputs**-0.5
            spec = {"in": Weight((self.input_size + 1, h), std), "state": matrix(h, h)}
        spec["bias"] = zeros(gates * h)
        if read:
            spec["read"] = Weight((c, h), std)
        if self.cell == "stack_rnn":
            spec |= {"action": matrix(h, STACK_ACTIONS), "action_bias": zeros(STACK_ACTIONS)}
            spec |= {"push": matrix(h, c), "push_bias": zeros(c)}
        if self.cell == "tape_rnn":
            spec |= {"action": matrix(h, TAPE_ACTIONS), "action_bias": zeros(TAPE_ACTIONS)}
            sizes = (h, TAPE_HIDDEN, TAPE_HIDDEN, c)
            for i, (before, after) in enumerate(pairwise(sizes)):
                spec |= {f"write{i}": matrix(before, after), f"write{i}_bias": zeros(after)}
        return spec | {"readout": matrix(h, self.output_size), "readout_bias": zeros(self.output_size)}

    def __call__(
        self,
        w: dict[str, Tensor],
        tokens: Tensor,
        outputs: int,
        positions: Tensor | None = None,
        masks: Tensor | None = None,
    ) -> Tensor:
        """Scores of the answer, ``(models, batch, outputs, output_size)``; arguments as for the encoder, and
        ``positions`` and ``masks`` are not used."""
        models, batch, seq = tokens.shape
        one_hot = F.one_hot(tokens, self.input_size + 1).to(w["in"].dtype).flatten(1, 2)
        projected = linear(one_hot, w["in"], w["bias"]).view(models, batch, seq, -1)
        states = {"rnn": self.rnn, "lstm": self.lstm, "stack_rnn": self.stack_rnn, "tape_rnn": self.tape_rnn}
        start = projected.new_zeros(models, batch, self.width)
        steps = states[self.cell](w, projected.unbind(2), start, seq - outputs)
        answer = torch.stack([h for t, h in enumerate(steps) if t >= seq - outputs], dim=2)
        answer = answer.relu().flatten(1, 2)  # as published, also after the RNN's own ReLU
        return linear(answer, w["readout"], w["readout_bias"]).view(models, batch, outputs, -1)

    # Each of these yields the state (models, batch, width) after every token; x is the projected token.

    def rnn(self, w: dict[str, Tensor], xs: tuple[Tensor, ...], h: Tensor, length: int) -> Iterator[Tensor]:
        for x in xs:
            h = torch.baddbmm(x, h, w["state"]).relu()
            yield h

    def lstm(self, w: dict[str, Tensor], xs: tuple[Tensor, ...], h: Tensor, length: int) -> Iterator[Tensor]:
        memory = torch.zeros_like(h)
        for x in xs:
            enter, new, forget, leave = torch.baddbmm(x, h, w["state"]).chunk(4, dim=-1)
            # Forget gates start open: one is added, as published.
            memory = (forget + 1).sigmoid() * memory + enter.sigmoid() * new.tanh()
            h = leave.sigmoid() * memory.tanh()
            yield h

    def stack_rnn(self, w: dict[str, Tensor], xs: tuple[Tensor, ...], h: Tensor, length: int) -> Iterator[Tensor]:
        stack = h.new_zeros(*h.shape[:2], len(xs) + 1, self.cell_width)  # deep enough for a push at every token
        for x in xs:
            h = torch.baddbmm(torch.baddbmm(x, h, w["state"]), stack[:, :, 0], w["read"]).relu()
            actions = linear(h, w["action"], w["action_bias"]).softmax(dim=-1)
            stack = updated_stack(stack, actions, linear(h, w["push"], w["push_bias"]))
            yield h

    def tape_rnn(self, w: dict[str, Tensor], xs: tuple[Tensor, ...], h: Tensor, length: int) -> Iterator[Tensor]:
        cells = max(self.tape_cells, len(xs))
        tape = h.new_zeros(*h.shape[:2], cells, self.cell_width)
        for x in xs:
            h = torch.baddbmm(torch.baddbmm(x, h, w["state"]), tape[:, :, 0], w["read"]).relu()
            actions = linear(h, w["action"], w["action_bias"]).softmax(dim=-1)
            written = linear(h, w["write0"], w["write0_bias"]).relu()
            written = linear(written, w["write1"], w["write1_bias"]).relu()
            written = linear(written, w["write2"], w["write2_bias"])
            tape = updated_tape(tape, actions, written, length)
            yield h


def updated_stack(stack: Tensor, actions: Tensor, value: Tensor) -> Tensor:
    """Push, pop and keep, averaged with their probabilities.

    Args:
        stack: ``(..., depth, channels)``, the top first. What is pushed beyond the depth is lost.
        actions: ``(..., 3)``: probabilities of push, pop, keep.
        value: ``(..., channels)``: what push pushes.

    Returns:
        tensor like ``stack``.

    >>> stack = torch.tensor([[1.0], [2.0], [0.0]])
    >>> updated_stack(stack, torch.tensor([1.0, 0.0, 0.0]), torch.tensor([7.0])).squeeze(-1)  # push
    tensor([7., 1., 2.])
    >>> updated_stack(stack, torch.tensor([0.0, 1.0, 0.0]), torch.tensor([7.0])).squeeze(-1)  # pop
    tensor([2., 0., 0.])
    """
    push, pop, keep = actions[..., None, None].unbind(-3)
    pushed = torch.cat((value.unsqueeze(-2), stack[..., :-1, :]), dim=-2)
    popped = F.pad(stack[..., 1:, :], (0, 0, 0, 1))
    return push * pushed + pop * popped + keep * stack


def updated_tape(tape: Tensor, actions: Tensor, value: Tensor, length: int) -> Tensor:
    """Write at the head, then move: five moves, averaged with their probabilities. The head stays at cell 0, and the
    tape, which is a ring, moves under it.

    Args:
        tape: ``(..., cells, channels)``.
        actions: ``(..., 5)``: probabilities of stay, one cell left, one right, ``length`` left, ``length`` right, where
            left brings cell 1 under the head.
        value: ``(..., channels)``: what is written.
        length: of the input.

    Returns:
        tensor like ``tape``.

    >>> tape = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    >>> move = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    >>> updated_tape(tape, move, torch.tensor([7.0]), 2).squeeze(-1)
    tensor([2., 3., 4., 7.])
    """
    written = torch.cat((value.unsqueeze(-2), tape[..., 1:, :]), dim=-2)
    shares = actions[..., None, None].unbind(-3)
    moves = (0, -1, 1, -length, length)
    return torch.stack([s * written.roll(m, dims=-2) for s, m in zip(shares, moves, strict=True)]).sum(dim=0)
