"""Tiger against its definition, written out number by number in Python floats."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from rope_lessons.lab import sizes
from rope_lessons.lab.tiger import Tiger, parameter_groups


def literal(
    theta: list[list[float]], gradients: list[list[list[float]]], kind: str, *, lr: float, beta: float, decay: float,
    batches: int = 1, shrink: float = 0.99, center: float = 0.0,
) -> list[list[float]]:  # fmt: skip
    """The definition: rows of numbers, one gradient after the other."""
    momentum = [[0.0] * len(row) for row in theta]
    for t, gradient in enumerate(gradients, start=1):
        if any(math.isnan(g) for row in gradient for g in row):
            theta = [[(x - center) * shrink + center for x in row] for row in theta]
            continue
        first, last = (t - 1) % batches == 0, t % batches == 0
        momentum = [
            [(beta if first else 1) * m + (1 - beta) * g / batches for m, g in zip(*rows, strict=True)]
            for rows in zip(momentum, gradient, strict=True)
        ]
        if last:
            everything = math.sqrt(sum(x * x for row in theta for x in row) / sum(len(row) for row in theta))
            moved = []
            for row, m_row in zip(theta, momentum, strict=True):
                of_row = math.sqrt(sum(x * x for x in row) / len(row))
                eta = lr * {"matrix": everything, "rows": of_row, "vector": 0.5}[kind]
                signs = [math.copysign(1, m) if m else 0.0 for m in m_row]
                wd = 0.0 if kind == "vector" else decay
                moved.append([x - eta * (s + wd * x) for x, s in zip(row, signs, strict=True)])
            theta = moved
    return theta


def run(theta: Tensor, gradients: Tensor, **options: float) -> Tensor:
    parameter = nn.Parameter(theta.clone())
    group = {"params": [parameter], "kind": options.pop("kind"), "center": options.pop("center", 0.0)}
    optimizer = Tiger([group], **options)
    for gradient in gradients:
        parameter.grad = gradient.to(parameter)
        optimizer.step()
    return parameter.data


def case(rows: int = 3, columns: int = 4, steps: int = 8) -> tuple[Tensor, Tensor]:
    theta = torch.randn(rows, columns, dtype=torch.float64)
    return theta, torch.randn(steps, rows, columns, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["matrix", "rows", "vector"])
@pytest.mark.parametrize("batches", [1, 4])
def test_definition(kind: str, batches: int) -> None:
    theta, gradients = case()
    found = run(theta, gradients, kind=kind, lr=0.1, beta=0.9, weight_decay=0.3, accumulate=batches)
    wanted = literal(theta.tolist(), gradients.tolist(), kind, lr=0.1, beta=0.9, decay=0.3, batches=batches)
    assert torch.allclose(found, torch.tensor(wanted, dtype=torch.float64), atol=1e-13)
    assert not torch.equal(found, theta)


@pytest.mark.parametrize("center", [0.0, 1.0])
@pytest.mark.parametrize("batches", [1, 2])
def test_nan(center: float, batches: int) -> None:
    """A NaN keeps the momentum, shrinks the parameter towards its center, and is forgotten."""
    theta, gradients = case()
    gradients[3, 1, 2] = torch.nan
    options = {"lr": 0.1, "beta": 0.9, "shrink": 0.7, "center": center}
    found = run(theta, gradients, kind="vector", accumulate=batches, **options)
    wanted = literal(theta.tolist(), gradients.tolist(), "vector", decay=0.0, batches=batches, **options)
    assert torch.allclose(found, torch.tensor(wanted, dtype=torch.float64), atol=1e-13)


def test_infinity_is_no_nan() -> None:
    theta, gradients = case(steps=1)
    gradients[0, 0, 0] = torch.inf
    found = run(theta, gradients, kind="vector", lr=0.2)
    assert torch.allclose(found, theta - 0.1 * gradients[0].sign())


def test_accumulation_is_one_step_with_the_mean_gradient() -> None:
    theta, gradients = case(steps=12)
    parts = run(theta, gradients, kind="matrix", lr=0.05, accumulate=4)
    whole = run(theta, gradients.view(3, 4, 3, 4).mean(dim=1), kind="matrix", lr=0.05)
    assert torch.allclose(parts, whole, atol=1e-13)


def test_weights_rest_until_the_last_small_batch() -> None:
    theta, gradients = case(steps=3)
    assert torch.equal(run(theta, gradients, kind="matrix", lr=0.05, accumulate=4), theta)


def test_steps_do_not_depend_on_the_scale_of_the_loss_and_follow_that_of_the_weights() -> None:
    theta, gradients = case()
    plain = run(theta, gradients, kind="matrix", lr=0.01, weight_decay=0.0)
    assert torch.equal(run(theta, 1024 * gradients, kind="matrix", lr=0.01, weight_decay=0.0), plain)
    larger = run(8 * theta, gradients, kind="matrix", lr=0.01, weight_decay=0.0)
    assert torch.allclose(larger, 8 * plain)


def test_state_of_16_bit_parameters() -> None:
    """They follow the float32 run, rounded once. Steps taken in bfloat16 itself would be lost: a step of 0.001 of the
    weights is below half the distance to the next number."""
    theta, gradients = case(16, 16, steps=20)
    gradients = gradients.to(torch.bfloat16).double()
    exact = run(theta.to(torch.bfloat16).float(), gradients, kind="matrix", lr=1e-3)
    rounded = run(theta.to(torch.bfloat16), gradients, kind="matrix", lr=1e-3)
    assert rounded.dtype == torch.bfloat16
    assert torch.equal(rounded, exact.to(torch.bfloat16))
    large = theta.abs() > 1
    careless = theta.to(torch.bfloat16)
    for _ in range(20):
        careless = careless + (1e-3 * theta.square().mean().sqrt()).to(torch.bfloat16)
    assert torch.equal(careless[large & (theta > 0)], theta.to(torch.bfloat16)[large & (theta > 0)])


def test_state_dict_round_trip() -> None:
    """In the middle of an accumulation, with 16-bit parameters: the rest of the run is the same, bit by bit."""
    theta, gradients = case(steps=14)
    for dtype in (torch.float32, torch.bfloat16):
        runs = []
        for stop in (False, True):
            parameters = [nn.Parameter(theta.to(dtype)), nn.Parameter(theta[0].to(dtype))]
            groups = [{"params": parameters[:1], "kind": "rows"}, {"params": parameters[1:]}]
            optimizer = Tiger(groups, lr=1e-2, accumulate=4)
            for number, gradient in enumerate(gradients):
                if stop and number == 6:
                    saved = copy.deepcopy(optimizer.state_dict())
                    optimizer = Tiger([{"params": parameters[:1]}, {"params": parameters[1:]}], lr=1.0)
                    optimizer.load_state_dict(saved)
                    assert optimizer.param_groups[0]["micro_step"] == 2
                    assert all(
                        value.dtype == torch.float32 for state in optimizer.state.values() for value in state.values()
                    )
                    assert optimizer.state[parameters[0]]["momentum"] is not saved["state"][0]["momentum"]
                parameters[0].grad, parameters[1].grad = gradient.to(dtype), gradient[0].to(dtype)
                optimizer.step()
            runs.append(parameters)
        assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_a_rare_row_runs_away_to_one_over_the_decay() -> None:
    """Article 9736: one gradient, and then none. The sign of the momentum stays, and the row goes to 1/λ = 10 here."""
    theta = torch.full((1, 4), 0.1, dtype=torch.float64)
    gradients = torch.zeros(300, 1, 4, dtype=torch.float64)
    gradients[0] = -1.0
    found = run(theta, gradients, kind="rows", lr=0.05, weight_decay=0.1)
    assert torch.allclose(found, torch.full_like(found, 10.0), rtol=0.01)


def test_a_matrix_of_zeros_never_moves() -> None:
    _, gradients = case()
    assert run(torch.zeros(3, 4, dtype=torch.float64), gradients, kind="matrix", lr=0.1).abs().max() == 0


def test_groups_of_a_model() -> None:
    from dataclasses import replace

    for name in ("gau-0.3m", "transformer-0.3m"):
        model = sizes.build(replace(sizes.SIZES[name], shift_keys=True), seed=0)
        groups = parameter_groups(model)
        assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
        found = {(group["kind"], group["center"]): group["params"] for group in groups}
        assert found["rows", 0.0][0] is model.embedding.weight
        assert all(parameter.ndim == 2 for parameter in found["matrix", 0.0])
        assert all(torch.equal(parameter, torch.ones_like(parameter)) for parameter in found["vector", 1.0])
        assert all((parameter == 1).all() for parameter in found["vector", 0.0])  # the shares of shifted keys
        optimizer = Tiger(groups, lr=1e-2)
        model(torch.arange(8).view(1, 8)).square().mean().backward()
        before = [parameter.clone() for parameter in model.parameters()]
        optimizer.step()
        assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_kinds_by_default() -> None:
    theta, gradients = case(steps=2)
    for shape, kind in (((3, 4), "matrix"), ((12,), "vector")):
        parameter = nn.Parameter(theta.clone().view(shape))
        optimizer = Tiger([parameter], lr=0.1)
        for gradient in gradients:
            parameter.grad = gradient.view(shape)
            optimizer.step()
        assert torch.allclose(parameter.view(3, 4), run(theta, gradients, kind=kind, lr=0.1))


def test_closure_and_missing_gradients() -> None:
    first, second = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    optimizer = Tiger([first, second], lr=0.1)

    def closure() -> Tensor:
        loss = first.sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 4
    assert first[0, 0] < 1 == second[0, 0]
    assert second not in optimizer.state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr must be a finite number of at least 0"),
        ({"beta": 1.5}, "beta must be at most 1"),
        ({"shrink": 2.0}, "shrink must be at most 1"),
        ({"accumulate": 0}, "accumulate must be an int of at least 1"),
        ({"kind": "row"}, "kind must be one of"),
        ({"kind": "rows"}, "kind must be 'vector'"),
    ],
)
def test_errors(options: dict, message: str) -> None:
    kind = {"kind": options.pop("kind")} if "kind" in options else {}
    with pytest.raises(ValueError, match=message):
        Tiger([{"params": [nn.Parameter(torch.ones(3))], **kind}], **options)
