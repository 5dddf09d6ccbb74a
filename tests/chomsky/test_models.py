"""The models of the benchmark: against PyTorch's own encoder layer, against slow and literal machines, and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rope_lessons as rl
from rope_lessons.chomsky.encoder import POSITIONS, Encoder, relative_table
from rope_lessons.chomsky.recurrent import CELLS, Recurrent, updated_stack, updated_tape
from rope_lessons.chomsky.weights import initial, size, unpack
from rope_lessons.random_positions import random_positions

SMALL = Encoder(3, 2, "none", width=16, layers=2, heads=4, feed_forward=24, max_position=64)
SEQ = 7


def weights_of(model: Encoder | Recurrent, seeds: tuple[int, ...] = (0,), noise: float = 0.1) -> dict[str, Tensor]:
    """Fresh weights in float64. The noise turns gains, shifts and biases into something that matters."""
    spec = model.spec()
    flat = initial(spec, seeds).double()
    generator = torch.Generator().manual_seed(9)
    return unpack(flat + noise * torch.randn(flat.shape[1], dtype=torch.float64, generator=generator), spec)


def tokens_of(models: int = 1, batch: int = 2, seq: int = SEQ) -> Tensor:
    return torch.randint(4, (models, batch, seq), generator=torch.Generator().manual_seed(3))


def counting(layers: int, models: int = 1, seq: int = SEQ) -> Tensor:
    return torch.arange(seq).expand(layers, models, seq)


# --- the encoder ----------------------------------------------------------------------------------------------------


def peer_layer(w: dict[str, Tensor], i: int, heads: int) -> nn.TransformerEncoderLayer:
    """PyTorch's own post-norm layer with the weights of block i. Its attention has biases: they are zero here."""
    width, hidden = w[f"{i}.up"].shape[1:]
    layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0, batch_first=True, dtype=torch.float64)
    own = {
        "self_attn.in_proj_weight": w[f"{i}.qkv"][0].T, "self_attn.in_proj_bias": torch.zeros(3 * width),
        "self_attn.out_proj.weight": w[f"{i}.out"][0].T, "self_attn.out_proj.bias": torch.zeros(width),
        "linear1.weight": w[f"{i}.up"][0].T, "linear1.bias": w[f"{i}.up_bias"][0],
        "linear2.weight": w[f"{i}.down"][0].T, "linear2.bias": w[f"{i}.down_bias"][0],
        "norm1.weight": w[f"{i}.gain1"][0], "norm1.bias": w[f"{i}.shift1"][0],
        "norm2.weight": w[f"{i}.gain2"][0], "norm2.bias": w[f"{i}.shift2"][0],
    }  # fmt: skip
    layer.load_state_dict(own)
    return layer.train()  # its fast path for inference is another code; dropout is 0 either way


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned"])
def test_encoder_is_pytorchs(positions):
    model = replace(SMALL, positions=positions)
    w, tokens = weights_of(model), tokens_of()
    x = w["embedding"][0][tokens[0]] * math.sqrt(16)
    if positions == "sinusoidal":
        x = x + rl.sinusoidal_encoding(torch.arange(SEQ), 16, dtype=torch.float64)
    if positions == "learned":
        x = x + w["positions"][0][:SEQ]
    for i in range(2):
        x = peer_layer(w, i, heads=4)(x)
    wanted = x[:, -3:] @ w["readout"][0] + w["readout_bias"][0]
    found = model(w, tokens, 3, counting(2))
    torch.testing.assert_close(found[0], wanted, rtol=0, atol=1e-12)


def dense_encoder(model: Encoder, w: dict[str, Tensor], tokens: Tensor, scores) -> Tensor:
    """One model, written out: ``scores(i, q, k)`` are what the softmax gets, for q and k ``(batch, seq, heads, d)``."""
    one = {name: weight[0] for name, weight in w.items()}
    x = F.one_hot(tokens, 4).double() @ one["embedding"] * math.sqrt(model.width)
    for i in range(model.layers):
        q, k, v = (x @ part for part in one[f"{i}.qkv"].chunk(3, dim=1))
        q, k, v = (part.unflatten(-1, (model.heads, model.head_dim)) for part in (q, k, v))
        mixed = torch.einsum("bhij,bjhd->bihd", scores(i, q, k).softmax(-1), v).flatten(2)
        x = F.layer_norm(x + mixed @ one[f"{i}.out"], (model.width,), one[f"{i}.gain1"], one[f"{i}.shift1"])
        hidden = (x @ one[f"{i}.up"] + one[f"{i}.up_bias"]).relu()
        branch = hidden @ one[f"{i}.down"] + one[f"{i}.down_bias"]
        x = F.layer_norm(x + branch, (model.width,), one[f"{i}.gain2"], one[f"{i}.shift2"])
    return x @ one["readout"] + one["readout_bias"]


@pytest.mark.parametrize("scale", [None, rl.LogN(40, floor=2)])
def test_rope_by_its_equation(scale):
    """Every pair of tokens on its own: the query turned by the difference of two positions that were drawn."""
    model, places = replace(SMALL, positions="rope", scales=(scale,)), torch.tensor([3, 4, 9, 20, 21, 50, 63])
    w, tokens = weights_of(model), tokens_of()
    s = 1.0 if scale is None else math.log(SEQ) / math.log(40)

    def scores(i: int, q: Tensor, k: Tensor) -> Tensor:
        found = torch.zeros(2, 4, SEQ, SEQ, dtype=torch.float64)
        for a in range(SEQ):
            for b in range(SEQ):
                angle = float(places[a] - places[b]) * rl.rope_frequencies(4)
                x0, x1 = q[:, a].chunk(2, dim=-1)
                turned = torch.cat((x0 * angle.cos() - x1 * angle.sin(), x0 * angle.sin() + x1 * angle.cos()), -1)
                found[:, :, a, b] = s * (turned * k[:, b]).sum(-1) / 2
        return found

    found = model(w, tokens, SEQ, places.expand(2, 1, SEQ))
    torch.testing.assert_close(found[0], dense_encoder(model, w, tokens[0], scores), rtol=0, atol=1e-12)


def test_alibi_by_its_equation():
    """Minus slope times the distance of the rank to both sides, and half a position more for what lies before."""
    model, distances = replace(SMALL, positions="alibi"), torch.tensor([0, 2, 3, 7, 8, 9, 30])
    w, tokens, slopes = weights_of(model), tokens_of(), rl.alibi_slopes(4)

    def scores(i: int, q: Tensor, k: Tensor) -> Tensor:
        found = torch.einsum("bihd,bjhd->bhij", q, k) / 2
        for h, a, b in ((h, a, b) for h in range(4) for a in range(SEQ) for b in range(SEQ)):
            found[:, h, a, b] += slopes[h] * (0.5 * (b < a) - int(distances[abs(a - b)]))
        return found

    found = model(w, tokens, SEQ, distances.expand(2, 1, SEQ))
    torch.testing.assert_close(found[0], dense_encoder(model, w, tokens[0], scores), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [None, rl.LogN(40, floor=2)])
def test_relative_by_its_equation(scale):
    model, distances = replace(SMALL, positions="relative", scales=(scale,)), torch.tensor([0, 1, 2, 8, 9, 15, 40])
    w, tokens = weights_of(model), tokens_of()
    s = 1.0 if scale is None else math.log(SEQ) / math.log(40)

    def scores(i: int, q: Tensor, k: Tensor) -> Tensor:
        found = torch.zeros(2, 4, SEQ, SEQ, dtype=torch.float64)
        u, v = w[f"{i}.u"][0], w[f"{i}.v"][0]
        for a in range(SEQ):
            for b in range(SEQ):
                distance = distances[abs(a - b)] * (1 if a >= b else -1)
                code = rl.sinusoidal_encoding(distance, 16, dtype=torch.float64) @ w[f"{i}.relative"][0]
                by_content, by_distance = (q[:, a] + u) * k[:, b], (q[:, a] + v) * code.view(4, 4)
                found[:, :, a, b] = s * (by_content + by_distance).sum(-1) / 2
        return found

    found = model(w, tokens, SEQ, distances.expand(2, 1, SEQ))
    torch.testing.assert_close(found[0], dense_encoder(model, w, tokens[0], scores), rtol=0, atol=1e-12)


def test_relative_table():
    table = relative_table(torch.tensor([[0, 3, 5]]))
    assert table.tolist() == [[5, 3, 0, -3, -5]]


@pytest.mark.parametrize("positions", POSITIONS)
def test_who_sees_order(positions):
    """The mirrored text gives the mirrored answer only where left and right are the same: without positions."""
    model = replace(SMALL, positions=positions)
    w, tokens = weights_of(model), tokens_of()
    found = model(w, tokens, SEQ, counting(2))
    mirrored = model(w, tokens.flip(2), SEQ, counting(2)).flip(2)
    assert torch.allclose(found, mirrored, atol=1e-9) == (positions == "none")


@pytest.mark.parametrize("positions", POSITIONS)
def test_side_by_side_equals_alone(positions):
    """Three models with their own weights, positions and scales; outputs and gradients."""
    scales = (None, rl.LogN(20, floor=2), None)
    together = replace(SMALL, positions=positions, scales=scales)
    spec, tokens = together.spec(), tokens_of(models=3)
    flat = initial(spec, (0, 1, 2)).double().requires_grad_()
    places = torch.stack([random_positions(SEQ, 64, batch=2) for _ in range(3)], dim=1)
    found = together(unpack(flat, spec), tokens, 2, places)
    (gradient,) = torch.autograd.grad(found.square().sum(), flat)
    for m, scale in enumerate(scales):
        alone, row = replace(together, scales=(scale,)), flat[m : m + 1].detach().requires_grad_()
        one = alone(unpack(row, spec), tokens[m : m + 1], 2, places[:, m : m + 1])
        torch.testing.assert_close(found[m : m + 1], one, rtol=0, atol=1e-12)
        (own,) = torch.autograd.grad(one.square().sum(), row)
        torch.testing.assert_close(gradient[m : m + 1], own, rtol=0, atol=1e-10)


def test_dropout_multiplies_the_branches():
    """Masks of ones change nothing; masks of zeros leave nothing but the norms and what is added to them."""
    model = replace(SMALL, positions="sinusoidal")
    w, tokens = weights_of(model), tokens_of()
    assert model.dropout_sites == 5
    plain = model(w, tokens, 3, counting(2))
    ones = torch.ones(1, 5, 2 * SEQ, 16, dtype=torch.float64)
    torch.testing.assert_close(model(w, tokens, 3, counting(2), ones), plain)
    silent = model(w, tokens, 3, counting(2), 0 * ones)
    assert (silent - silent[:, :1, :1]).abs().max() < 1e-9  # every token is the same
    for site in range(5):
        masks = ones.clone()
        masks[:, site] = 0
        assert (model(w, tokens, 3, counting(2), masks) - plain).abs().max() > 1e-3


def test_published_sizes():
    """Counted by hand for an alphabet of 2: the embedding, five blocks, the readout."""
    block = 64 * 192 + 64 * 64 + 4 * 64 + 64 * 256 + 256 + 256 * 64 + 64
    assert size(Encoder(2, 2, "rope").spec()) == 3 * 64 + 5 * block + 64 * 2 + 2 == 248_962
    assert size(Recurrent(2, 2, "rnn").spec()) == 3 * 256 + 256 * 256 + 256 + 256 * 2 + 2
    assert size(Recurrent(2, 2, "lstm").spec()) == 4 * (3 * 256 + 256 * 256 + 256) + 256 * 2 + 2


def test_initial_weights():
    spec = Encoder(2, 2, "rope").spec()
    w = unpack(initial(spec, (0, 1)), spec)
    # Cut off at two standard deviations, 0.88 of the variance's root is left.
    assert w["0.qkv"].std().item() == pytest.approx(0.88 / 8, rel=0.02)
    assert w["0.qkv"].abs().max().item() <= 2 / 8
    assert w["0.down"].std().item() == pytest.approx(0.88 / 16, rel=0.02)
    assert (w["0.gain1"] == 1).all()
    assert (w["0.up_bias"] == 0).all()
    assert not torch.equal(w["0.qkv"][0], w["0.qkv"][1])
    assert torch.equal(initial(spec, (1,))[0], initial(spec, (0, 1))[1])


# --- the recurrent models -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_shapes_and_company(cell):
    model = Recurrent(3, 2, cell, width=12, cell_width=4, tape_cells=9)
    spec, tokens = model.spec(), tokens_of(models=2)
    flat = initial(spec, (0, 1)).double()
    found = model(unpack(flat, spec), tokens, 3)
    assert found.shape == (2, 2, 3, 2)
    alone = model(unpack(flat[1:], spec), tokens[1:], 3)
    torch.testing.assert_close(found[1:], alone, rtol=0, atol=1e-12)


def test_lstm_is_pytorchs():
    model = Recurrent(3, 2, "lstm", width=12)
    w, tokens = weights_of(model), tokens_of()
    peer = nn.LSTM(4, 12, batch_first=True, dtype=torch.float64)

    def gates(weight: Tensor) -> Tensor:  # ours are input, new, forget, output; PyTorch's input, forget, new, output
        enter, new, forget, leave = weight.chunk(4, dim=-1)
        return torch.cat((enter, forget, new, leave), dim=-1)

    bias = w["bias"][0].clone()
    bias[24:36] += 1.0  # the forget gate
    own = {"weight_ih_l0": gates(w["in"][0]).T, "weight_hh_l0": gates(w["state"][0]).T}
    peer.load_state_dict(own | {"bias_ih_l0": gates(bias), "bias_hh_l0": torch.zeros(48)})
    states = peer(F.one_hot(tokens[0], 4).double())[0]
    wanted = states[:, -3:].relu() @ w["readout"][0] + w["readout_bias"][0]
    torch.testing.assert_close(model(w, tokens, 3)[0], wanted, rtol=0, atol=1e-12)


def test_rnn_is_pytorchs():
    model = Recurrent(3, 2, "rnn", width=12)
    w, tokens = weights_of(model), tokens_of()
    peer = nn.RNN(4, 12, nonlinearity="relu", batch_first=True, dtype=torch.float64)
    own = {"weight_ih_l0": w["in"][0].T, "weight_hh_l0": w["state"][0].T, "bias_ih_l0": w["bias"][0]}
    peer.load_state_dict(own | {"bias_hh_l0": torch.zeros(12)})
    states = peer(F.one_hot(tokens[0], 4).double())[0]
    wanted = states[:, -3:] @ w["readout"][0] + w["readout_bias"][0]
    torch.testing.assert_close(model(w, tokens, 3)[0], wanted, rtol=0, atol=1e-12)


def one_hot(action: int, actions: int) -> Tensor:
    return F.one_hot(torch.tensor(action), actions).double()


def test_stack_is_a_stack():
    """Certain actions on the differentiable stack do what a Python list does."""
    generator = torch.Generator().manual_seed(0)
    stack, plain = torch.zeros(12, 1, dtype=torch.float64), []
    for step in range(1, 40):
        action = int(torch.randint(3, (), generator=generator))
        if action == 0 and len(plain) < 12:
            plain.append(float(step))
        elif action == 1 and plain:
            plain.pop()
        elif action == 0:
            continue
        stack = updated_stack(stack, one_hot(action, 3), torch.tensor([float(step)]))
        assert stack.squeeze(-1).tolist() == plain[::-1] + [0.0] * (12 - len(plain))


def test_tape_is_a_tape():
    """Certain actions do what a Python list with a head does: write, then move."""
    generator, cells, length = torch.Generator().manual_seed(0), 11, 4
    tape, plain, head = torch.zeros(cells, 1, dtype=torch.float64), [0.0] * cells, 0
    for step in range(1, 40):
        action = int(torch.randint(5, (), generator=generator))
        plain[head] = float(step)
        head = (head + (0, 1, -1, length, -length)[action]) % cells
        tape = updated_tape(tape, one_hot(action, 5), torch.tensor([float(step)]), length)
        assert tape.squeeze(-1).tolist() == plain[head:] + plain[:head]


@pytest.mark.parametrize("cell", ["stack_rnn", "tape_rnn"])
def test_memory_machines_step_by_step(cell):
    """The whole model against one sequence, one step and one average of actions at a time."""
    model = Recurrent(3, 2, cell, width=6, cell_width=2, tape_cells=9)
    w, tokens = weights_of(model, noise=0.5), tokens_of(batch=1)
    w1 = {name: weight[0] for name, weight in w.items()}
    cells, length = (SEQ + 1, 9)[cell == "tape_rnn"], SEQ - 3
    memory, h, answers = [torch.zeros(2, dtype=torch.float64)] * cells, torch.zeros(6, dtype=torch.float64), []
    for token in tokens[0, 0].tolist():
        h = (w1["in"][token] + w1["bias"] + h @ w1["state"] + memory[0] @ w1["read"]).relu()
        shares = (h @ w1["action"] + w1["action_bias"]).softmax(-1)
        nothing = torch.zeros(2, dtype=torch.float64)
        if cell == "stack_rnn":
            value = h @ w1["push"] + w1["push_bias"]
            results = ([value, *memory[:-1]], [*memory[1:], nothing], memory)
        else:
            value = h
            for i in range(3):
                value = value @ w1[f"write{i}"] + w1[f"write{i}_bias"]
                value = value.relu() if i < 2 else value
            new = [value, *memory[1:]]
            results = tuple(new[m:] + new[:m] for m in (0, 1, -1, length, -length))
        memory = [sum(s * r[c] for s, r in zip(shares, results, strict=True)) for c in range(cells)]
        answers.append(h @ w1["readout"] + w1["readout_bias"])
    found = model(w, tokens, 3)
    torch.testing.assert_close(found[0, 0], torch.stack(answers[-3:]), rtol=0, atol=1e-12)


def test_tape_grows_with_the_text():
    """A text longer than the tape gets a longer tape: a jump over the input never lands where it started."""
    model = Recurrent(3, 2, "tape_rnn", width=6, cell_width=2, tape_cells=3)
    assert model(weights_of(model), tokens_of(), 2).isfinite().all()


# --- errors ---------------------------------------------------------------------------------------------------------


def test_errors():
    with pytest.raises(ValueError, match="positions must be one of 'none', 'sinusoidal'"):
        Encoder(2, 2, "rotary")
    with pytest.raises(ValueError, match="cell must be one of 'rnn', 'lstm'"):
        Recurrent(2, 2, "gru")
