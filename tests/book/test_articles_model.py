"""One test for each equation and theorem of the page on the articles' model, its figures and its stored results."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rope_lessons as rl
from rope_lessons.exercises import articles_model as exercises
from rope_lessons.figures import lab as lab_figures
from rope_lessons.lab import sizes
from rope_lessons.lab.deep_norm import deep_norm, first_step
from rope_lessons.lab.gau import GatedAttentionUnit, GAUConfig
from rope_lessons.lab.tiger import Tiger
from rope_lessons.lab.training import Recipe
from rope_lessons.models.initial import TRUNCATED_STD
from rope_lessons.stored import results

ROOT = Path(__file__).parents[2]
CHAPTER = (ROOT / "book" / "articles_model.md").read_text("utf8")
PARTS = results("lab_parts")


# --- the unit ------------------------------------------------------------------------------------------------------


def unit_of(width: int, key_dim: int, expansion: int = 2) -> GatedAttentionUnit:
    unit = GatedAttentionUnit(GAUConfig(width=width, layers=2, key_dim=key_dim, expansion=expansion)).double()
    unit.initialise(1.0, torch.Generator().manual_seed(0))
    return unit


def test_eq_articles_model_gau():
    """Number by number, with attention written out: every token, every key, every channel."""
    unit = unit_of(width=6, key_dim=4, expansion=3)
    with torch.no_grad():
        for scale in (unit.query_scale, unit.key_scale):
            scale.copy_(torch.rand(4, dtype=torch.float64) + 0.5)
    x = torch.randn(5, 6, dtype=torch.float64)
    row = rl.scheme("rope", dim=4)
    found = unit(x[None], lambda q, k, v: rl.attention(q, k, v, row))[0]
    w = unit.project.weight.T
    raw = x @ w
    parts = raw / (1 + (-raw).exp())  # swish
    u, v, z = parts[:, :18], parts[:, 18:36], parts[:, 36:]
    omega = rl.rope_frequencies(4)
    for i in range(5):
        weights = []
        for j in range(i + 1):
            q, k = z[i] * unit.query_scale, z[j] * unit.key_scale
            told = torch.tensor([i - j])
            weights.append(torch.exp(rl.apply_rotary(q[None], told, omega, layout="half")[0] @ k / 2))
        mixed = sum(a * v[j] for j, a in enumerate(weights)) / sum(weights)
        assert torch.allclose(found[i], (u[i] * mixed) @ unit.out.weight.T, atol=1e-12)


def test_limits_of_the_unit():
    """With attention that stays where it is, a gated network; with a gate of ones, attention."""
    unit = unit_of(width=6, key_dim=4)
    x = torch.randn(1, 5, 6, dtype=torch.float64)
    u, v, _ = F.silu(unit.project(x)).split(unit.parts, dim=-1)
    assert torch.allclose(unit(x, lambda q, k, v: v), (u * v) @ unit.out.weight.T)


def test_eq_articles_model_count():
    for width, expansion, key_dim in ((768, 2, 128), (100, 2, 64), (6, 3, 4)):
        config = GAUConfig(width=width, layers=1, key_dim=key_dim, expansion=expansion)
        with torch.device("meta"):
            found = sum(weight.numel() for weight in GatedAttentionUnit(config).parameters())
        d_v = expansion * width
        assert found == 3 * width * d_v + width * key_dim + 2 * key_dim
        assert found == exercises._gau_parameters(width, expansion, key_dim)
    assert 3 * 768 * 1536 + 768 * 128 + 256 == 3_637_504
    assert pytest.approx(1.028, abs=5e-4) == 2 * 3_637_504 / (12 * 768**2)
    assert sizes.parameters("gau-96m") == 24 * 3_637_504 + 12_000 * 768 == 96_516_096


def test_products_and_matrices_of_a_pair():
    gau, plain = sizes.SIZES["gau-87m"], sizes.SIZES["transformer-87m"]
    assert isinstance(gau, GAUConfig)
    assert not isinstance(plain, GAUConfig)
    assert plain.layers * plain.heads / gau.layers == 6
    ours = gau.layers * (gau.key_dim + gau.hidden)
    assert 2 < ours / (plain.layers * plain.heads * 2 * plain.head_dim) < 2.5


def test_thm_articles_model_homogeneous():
    """Powers of relu keep their weights under any scale. A softmax does not; its entropy falls."""
    x = torch.randn(50, dtype=torch.float64)
    for p, scale in itertools.product((1, 2, 3), (0.1, 1.7, 40.0)):
        weights = [(s * x).relu() ** p / ((s * x).relu() ** p).sum() for s in (1.0, scale)]
        assert torch.allclose(*weights, atol=1e-14)
        assert torch.allclose((scale * x).relu() ** p / 50, scale**p * x.relu() ** p / 50)
    entropies = [rl.entropy.attention_entropy((s * x).softmax(0)).item() for s in (0.5, 1, 2, 4)]
    assert entropies == sorted(entropies, reverse=True)
    below = (-x.abs()).relu() ** 2
    assert (below / below.sum()).isnan().all()  # what the theorem leaves out


# --- the start -----------------------------------------------------------------------------------------------------


def test_eq_articles_model_first_order():
    """For a small rate the fall of a loss is the sum, for three kinds of steps."""
    weights = torch.randn(4, 8, 8, dtype=torch.float64)
    x, direction = torch.randn(2, 16, 8, dtype=torch.float64)

    def loss(weights: Tensor) -> Tensor:
        y = x
        for matrix in weights:
            y = F.rms_norm(y + torch.tanh(y @ matrix), (8,))
        return (y * direction).sum()

    leaf = weights.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    for step in (gradient, gradient.sign(), gradient.sign() * weights.square().mean().sqrt()):
        fall = loss(weights) - loss(weights - 1e-6 * step)
        assert fall.item() / 1e-6 == pytest.approx((gradient * step).sum().item(), rel=1e-3)


def test_thm_articles_model_deep_norm():
    """The conditions solved by the package; and gradients of a branch that go as gain^(r - 1) / alpha."""
    for order, branches in itertools.product((2, 3), (1, 16, 24, 128)):
        for optimizer, fall in (
            ("sgd", lambda gain, g: g * g),
            ("adam", lambda gain, g: g),
            ("lamb", lambda gain, g: gain * g),
        ):
            alpha, gain = deep_norm(branches, optimizer, order)
            assert branches * fall(gain, gain ** (order - 1) / alpha) == pytest.approx(1)
            assert exercises._deep_start(branches, optimizer, order) == pytest.approx((alpha, gain))
    x, direction = torch.randn(2, 64, 8, dtype=torch.float64)
    for order in (2, 3):
        drawn = torch.randn(order, 8, 8, dtype=torch.float64) / 8**0.5

        def gradient(gain: float, alpha: float, drawn: Tensor = drawn) -> float:
            leaf = (gain * drawn).requires_grad_()
            inner = x
            for matrix in leaf:
                inner = inner @ matrix
            out = F.rms_norm(alpha * x + inner, (8,), eps=0.0)
            return torch.autograd.grad((out * direction).sum(), leaf)[0].norm().item()

        base = gradient(0.1, 5.0)
        for gain, alpha in ((0.05, 5.0), (0.1, 20.0), (0.02, 40.0)):
            wanted = (gain / 0.1) ** (order - 1) * 5.0 / alpha
            assert gradient(gain, alpha) / base == pytest.approx(wanted, rel=0.02)


def test_numbers_by_hand_of_the_start():
    assert 16 * 0.25 * 0.25 == 1
    assert 16 * 0.25 * 1 == 4
    assert deep_norm(24, "lamb", order=3) == pytest.approx((1.0, 0.347), abs=5e-4)


def test_first_steps_of_the_table():
    """The remarks under the table: growth beyond the depth when started plainly, within a factor of two with Deep
    Norm."""
    for optimizer in ("sgd", "adam", "lamb"):
        plain, steady = (
            [first_step(depth, optimizer, start, order=3).loss for depth in (2, 8, 32, 128)]
            for start in ("none", optimizer)
        )
        assert 4 < plain[1] / plain[0] < 6
        assert plain[2] / plain[1] > 8
        assert plain[3] / plain[2] > 100
        assert steady == sorted(steady, reverse=True)
        assert steady[0] < 2 * steady[-1]
        assert optimizer != "sgd" or plain[3] / plain[0] > 1e6


def test_eq_articles_model_truncated():
    """By integration of the density."""
    x = torch.linspace(-2, 2, 400_001, dtype=torch.float64)
    density = (-x.square() / 2).exp()
    variance = torch.trapezoid(x.square() * density, x) / torch.trapezoid(density, x)
    formula = 1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2))
    assert variance.item() == pytest.approx(formula, abs=1e-9)
    assert pytest.approx(formula) == TRUNCATED_STD**2
    assert [round(number, 4) for number in (formula, formula**0.5, formula**-0.5)] == [0.7737, 0.8796, 1.1368]


# --- Tiger ---------------------------------------------------------------------------------------------------------


def test_eq_articles_model_tiger():
    """The package against the two lines, for the three kinds of parameters; and the numbers by hand."""
    for kind in ("matrix", "rows", "vector"):
        theta = torch.randn(3, 5, dtype=torch.float64)
        parameter = nn.Parameter(theta.clone())
        optimizer = Tiger([{"params": [parameter], "kind": kind}], lr=0.01)
        momentum = torch.zeros_like(theta)
        for _ in range(6):
            gradient = torch.randn_like(theta)
            momentum = 0.965 * momentum + 0.035 * gradient
            eta = {
                "matrix": 0.01 * theta.square().mean().sqrt(),
                "rows": 0.01 * theta.square().mean(dim=1, keepdim=True).sqrt(),
                "vector": 0.005,
            }[kind]
            theta = theta - eta * (momentum.sign() + (0.0 if kind == "vector" else 0.01) * theta)
            parameter.grad = gradient
            optimizer.step()
        assert torch.allclose(parameter, theta, atol=1e-14)
    weight = nn.Parameter(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    weight.grad = torch.tensor([[0.001, -7.0]], dtype=torch.float64)
    Tiger([weight], lr=0.01, weight_decay=0.0).step()
    assert weight.tolist()[0] == pytest.approx([3 - 0.03536, 4 + 0.03536], abs=1e-5)


@pytest.mark.parametrize("rates", [(0.9, 0.9), (0.0, 0.0)])
def test_relatives_of_tiger(rates: tuple[float, float]):
    """Lion written out, with equal rates; with rates of 0 and no decay that is SignSGD. Vectors have a fixed rate."""
    first, second = rates
    decay = 0.0
    theta = torch.randn(7, dtype=torch.float64)
    parameter = nn.Parameter(theta.clone())
    optimizer = Tiger([parameter], lr=0.02, beta=second, weight_decay=decay)
    momentum = torch.zeros_like(theta)
    for _ in range(10):
        gradient = torch.randn_like(theta)
        step = (first * momentum + (1 - first) * gradient).sign()
        theta = theta - 0.01 * (step + decay * theta)
        momentum = second * momentum + (1 - second) * gradient
        if rates == (0.0, 0.0):
            assert torch.equal(step, gradient.sign())
        parameter.grad = gradient
        optimizer.step()
    assert torch.allclose(parameter, theta, atol=1e-14)


def reach(steps: int, rate: float) -> float:
    recipe = Recipe("gau-0.3m", steps=steps, learning_rate=rate)
    return math.prod(1 + recipe.rate(step) for step in range(steps)) - 1


def test_thm_articles_model_reach():
    """Any gradients keep the bound, and gradients of one sign reach it."""
    rates = [0.01 * (1 + step % 3) for step in range(60)]
    bound = math.prod(1 + rate for rate in rates) - 1
    assert bound <= math.expm1(sum(rates))
    for kind, same in itertools.product(("matrix", "rows"), (False, True)):
        begin = torch.full((4, 6), 0.3, dtype=torch.float64) if same else torch.randn(4, 6, dtype=torch.float64)
        parameter = nn.Parameter(begin.clone())
        optimizer = Tiger([{"params": [parameter], "kind": kind}], weight_decay=0.0)
        for rate in rates:
            optimizer.param_groups[0]["lr"] = rate
            parameter.grad = -torch.ones_like(begin) if same else torch.randn_like(begin)
            optimizer.step()
        went = ((parameter - begin).square().mean() / begin.square().mean()).sqrt().item()
        assert went <= bound * (1 + 1e-12)
        if same:
            assert went == pytest.approx(bound)
    assert 0.2 < reach(250, 1.5e-3) < 0.25


def unmoved(dtype: torch.dtype, rate: float, std: float = 0.0125) -> float:
    theta = (std * torch.randn(100_000, generator=torch.Generator().manual_seed(0))).to(dtype)
    return ((theta - torch.tensor(rate * std, dtype=dtype)) == theta).double().mean().item()


def test_sixteen_bits():
    """Gaps between neighbours, the shares of the table, and that no step underflows."""
    for dtype, bits in ((torch.float16, 10), (torch.bfloat16, 7)):
        one = torch.tensor(1.0, dtype=dtype)
        two = torch.tensor(2.0, dtype=dtype)
        assert one + 2.0**-bits > one
        assert two - one * 2.0**-bits * 0.5 == two
        assert torch.finfo(dtype).eps == 2.0**-bits
    assert 1 < 1e-3 / 2**-10 < 1e-3 / 2**-11 < 2.1  # gaps of float16
    assert 1e-3 / 2**-7 < 1e-3 / 2**-8 < 0.26  # and of bfloat16
    assert unmoved(torch.float16, 1.76e-3) < 0.005
    assert unmoved(torch.bfloat16, 1.76e-3) > 0.5
    assert unmoved(torch.float16, 1.76e-4) > 0.5
    assert unmoved(torch.float32, 1.76e-5) == 0
    assert torch.tensor(1.76e-5 * 0.0125, dtype=torch.float16) > 0
    assert pytest.approx(6e-8, rel=0.01) == 2.0**-24
    assert pytest.approx(4.8e-6, rel=0.01) == 2.0**-24 / 0.0125


def test_thm_articles_model_runaway():
    """The step towards the fixed point for any row and rate; the curve for equal entries; and the exercise."""
    signs = torch.tensor([[1.0, -1.0, -1.0, 1.0]], dtype=torch.float64)
    row = nn.Parameter(torch.randn(1, 4, dtype=torch.float64))
    optimizer = Tiger([{"params": [row], "kind": "rows"}], lr=0.02, weight_decay=0.05)
    row.grad = signs.clone()
    for _ in range(2000):
        before, size = row.detach().clone(), row.square().mean().sqrt().item()
        optimizer.step()
        row.grad.zero_()
        assert torch.allclose(row + signs / 0.05, (1 - 0.02 * size * 0.05) * (before + signs / 0.05), atol=1e-12)
    assert torch.allclose(row, -signs / 0.05, rtol=1e-6)
    for steps in (1000, 5000, 8987, 15_000):
        curve = 1 / (0.01 + (1 / 0.0125 - 0.01) * math.exp(-0.001 * steps))
        assert exercises._runaway(0.0125, 1e-3, 0.01, steps) == pytest.approx(curve, rel=0.006)
    assert round(math.log(1 / (0.01 * 0.0125) - 1) / 0.001) == 8987
    assert "= 8987$ steps" in CHAPTER


def test_the_momentum_never_becomes_zero():
    momentum = torch.tensor(1.0)
    for _ in range(5000):
        momentum = 0.965 * momentum
    assert momentum.item() == 14 * 2.0**-149
    assert 0.965 * momentum == momentum


# --- what was measured ---------------------------------------------------------------------------------------------


def run_of(model: str, optimizer: str, seed: int = 1, rate: float | None = None) -> dict[str, Any]:
    found = [
        run
        for run in PARTS["runs"]
        if (run["model"], run["optimizer"], run["seed"]) == (f"{model}-0.3m", optimizer, seed)
        and rate in (None, run["learning_rate"])
    ]
    assert len(found) == 1
    return found[0]


def test_stored_parts():
    assert (PARTS["steps"], PARTS["batch"], PARTS["length"]) == (250, 16, 64)
    assert all(run["seconds"] < 30 for run in PARTS["runs"])  # less than half a minute
    assert PARTS["parameters"] == {name: sizes.parameters(name) for name in ("gau-0.3m", "transformer-0.3m")}


@pytest.mark.parametrize("model", ["gau", "transformer"])
def test_the_best_rate_of_seed_0_is_that_of_seed_1(model: str):
    for optimizer in ("adamw", "tiger"):
        tried = [run for run in PARTS["runs"] if (run["model"], run["optimizer"], run["seed"])
                 == (f"{model}-0.3m", optimizer, 0)]  # fmt: skip
        best = min(tried, key=lambda run: run["test_loss"])
        assert run_of(model, optimizer)["learning_rate"] == best["learning_rate"]


def test_tiger_stays_within_its_reach():
    """The mean over the matrices, hence below the bound; the decay adds next to nothing."""
    for run in PARTS["runs"]:
        if run["optimizer"] == "tiger":
            assert run["moved"] < 1.02 * reach(PARTS["steps"], run["learning_rate"])


def test_what_the_parts_do():
    """The numbers of the text."""
    loss = {
        (m, o, seed): min(
            r["test_loss"] for r in PARTS["runs"] if (r["model"], r["optimizer"], r["seed"]) == (m, o, seed)
        )
        for m in PARTS["parameters"]
        for o in ("adamw", "tiger")
        for seed in (0, 1)
    }
    gau, plain = PARTS["parameters"]
    shown = [f"{loss[m, o, 1]:.2f}" for m in (gau, plain) for o in ("adamw", "tiger")]
    assert "has {} nats with AdamW and {} with Tiger; the Transformer has {} and {}.".format(*shown) in CHAPTER
    apart = [loss[gau, "adamw", seed] - loss[plain, "adamw", seed] for seed in (0, 1)]
    assert f"is {apart[0]:.2f} worse in seed 0 and {-apart[1]:.2f} better in seed 1" in CHAPTER
    assert all(abs(loss[m, "adamw", 0] - loss[m, "adamw", 1]) >= -apart[1] for m in (gau, plain))
    slow = run_of("gau", "tiger", 0, 1.5e-3)
    assert f"go {slow['moved']:.2f} of their size, where the theorem allows {reach(250, 1.5e-3):.2f}" in CHAPTER
    assert f"stays at {slow['test_loss']:.2f} nats" in CHAPTER
    behind = [f"{loss[m, 'tiger', 1] - loss[m, 'adamw', 1]:.2f}" for m in (gau, plain)]
    assert "still {} to {} nats behind AdamW".format(*behind) in CHAPTER
    assert all(run_of(m, "tiger")["learning_rate"] == 1.5e-2 for m in ("gau", "transformer"))
    assert all(run_of(m, "tiger")["moved"] > 0.9 * run_of(m, "adamw")["moved"] for m in ("gau", "transformer"))


def test_rows_that_never_come():
    grown = {}
    for model, optimizer in itertools.product(("gau", "transformer"), ("adamw", "tiger")):
        rows = run_of(model, optimizer)["rows"]
        assert rows["unseen"] > rows["seen"]
        assert rows["bytes"] == run_of("gau", "adamw")["rows"]["bytes"]
        grown[model, optimizer] = rows["unseen"] / rows["seen"]
    assert min(grown[m, "tiger"] for m in ("gau", "transformer")) > max(
        grown[m, "adamw"] for m in ("gau", "transformer")
    )
    assert f"has {PARTS['bytes_there']} of the 256 bytes. But 250 steps read little of it" in CHAPTER
    assert f"only {rows['bytes']} bytes occur. The other {256 - rows['bytes']} never come" in CHAPTER
    untied, tied, adamw = PARTS["rare"]
    assert (untied["optimizer"], untied["tied"], tied["tied"], adamw["optimizer"]) == ("tiger", False, True, "adamw")
    assert untied["rare"][-1] > 9.99
    assert f"the used rows stay below 1.3, and the rare one is at {tied['rare'][-1]:.2f}" in CHAPTER
    assert tied["others"] < 1.3
    assert adamw["rare"][-1] < 1.2


# --- figures and labels --------------------------------------------------------------------------------------------


def test_alt_texts_say_the_numbers():
    assert "768 by 3200" in lab_figures.lab_gau_block().alt
    figure = lab_figures.lab_first_step((2, 8), {"SGD": ([2.0, 8.0], [1.0, 0.5])})
    assert "SGD, plain start: 1, 4; SGD, Deep Norm: 1, 0.5" in figure.alt
    assert "50 after 3" in lab_figures.lab_runaway({"Tiger": [1.0, 10.0, 50.0]}, decay=0.01).alt


def test_labels_of_this_half_have_tests():
    labels = re.findall(r":label: ((?:eq|thm|lem|cor|def)-[\w-]+)", CHAPTER)
    assert len(labels) >= 9


def test_library_tiger_has_no_relative_step():
    from pytorch_optimizer import Tiger as Theirs

    for size in (1.0, 100.0):
        theta = torch.nn.Parameter(torch.full((4, 4), size))
        theta.grad = torch.ones(4, 4)
        Theirs([theta], lr=1e-3, weight_decay=0.0).step()
        assert (size - theta).max().item() == pytest.approx(1e-3, rel=0.01)


def test_library_gau_has_no_softmax():
    from flash_pytorch import GAU

    unit = GAU(dim=16, query_key_dim=8, causal=True, rel_pos_bias=False)
    assert type(unit.attn_fn).__name__ == "ReLUSquared"
    assert type(GAU(dim=16, laplace_attn_fn=True).attn_fn).__name__ == "LaplacianAttnFn"
    assert "softmax" not in inspect.getsource(GAU)
    assert type(unit.rel_pos_bias).__name__ == "T5RelativePositionBias"


def test_library_torch_has_none_of_the_three():
    names = {name.lower() for module in (torch.nn, torch.optim) for name in dir(module)}
    assert not [name for name in names if "gau" in name and "gaussian" not in name]
    assert not names & {"gatedattention", "deepnorm", "tiger", "lion"}
    assert {"adamw", "rmsnorm"} <= names
