"""The oracle of the fuzz is the equation, pair by pair; its gradients are those of finite differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.equation import attention_by_equation
from tests.fuzz.calls import expected
from tests.fuzz.case import Case, Inputs, build
from tests.fuzz.cases import cases

SMALL = cases(tokens=st.integers(1, 5), dims=st.integers(1, 6), most=(2, 2, 2))


@settings(max_examples=60)
@given(SMALL)
def test_it_is_the_equation(case: Case) -> None:
    # The equation takes neither NaN in the padding nor a bias of minus infinity for every key of a query.
    case = replace(case, padding=None, bias=case.bias and replace(case.bias, hidden=0.0))
    inputs = build(case)
    answer = expected(case, inputs)
    options = {"frequencies": None, **inputs.options}
    options.pop("length", None)
    if case.frequencies is None and case.scheme.frequencies is not None:
        options["frequencies"] = case.scheme.frequencies(case.length or case.k_len)
    given_positions = [options[name] for name in ("q_positions", "k_positions") if name in options]
    if given_positions:  # one of them stands for both
        options["q_positions"], options["k_positions"] = given_positions[0], given_positions[-1]
    if options.get("bias") is not None:
        options["bias"] = options["bias"].double()
    q, k, v = (x.double() for x in inputs[:3])
    output, lse = attention_by_equation(q, k, v, case.scheme, **options)
    atol = 1e-12 + 100 * answer.angle
    size = 1 + answer.lse.abs().nan_to_num(posinf=0.0).amax() if answer.lse.numel() else 1.0
    torch.testing.assert_close(answer.output, output, atol=float(atol * size), rtol=0)
    torch.testing.assert_close(answer.lse, lse, atol=float(atol * size), rtol=0)


@settings(max_examples=25)
@given(SMALL, st.integers(0, 2**16))
def test_its_gradients_are_slopes(case: Case, seed: int) -> None:
    """Along a random direction, against a difference of two answers a step apart."""
    near = case.positions and replace(case.positions, start=0)
    case = replace(case, size=min(case.size, 1.0), dtype="float64", positions=near)
    inputs = build(case)
    answer = expected(case, inputs)
    generator, step = torch.Generator().manual_seed(seed), 1e-6
    for name in case.requires:
        x = inputs.tensor(name)
        way = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        ends = [_loss(case, inputs, name, x.double() + sign * step * way) for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step)
        wanted = (answer.grads[name] * way).sum()
        reach = float((answer.bounds[name] * way.abs()).sum())
        assert abs(float(slope - wanted)) <= 1e-5 * reach + 1e-8


def _loss(case: Case, inputs: Inputs, name: str, x: torch.Tensor) -> torch.Tensor:
    change: dict[str, Any] = {name: x} if name in inputs._fields else {"options": {**inputs.options, name: x}}
    moved = inputs._replace(**change)
    answer = expected(replace(case, requires=()), moved)
    loss = torch.zeros((), dtype=torch.float64)
    if case.through != "lse":
        loss = loss + (answer.output * inputs.grad.double()).sum()
    if case.through != "output":
        loss = loss + (answer.lse.masked_fill(answer.lse == -torch.inf, 0.0) * inputs.grad_lse.double()).sum()
    return loss
