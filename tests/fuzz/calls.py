"""A case, called with every backend, compared with the oracle forward and backward."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

import rope_lessons as rl
from tests.fuzz import oracle
from tests.fuzz.case import CPU, Case, Inputs, build
from tests.fuzz.tally import Tally, Wrong, compare

DENSE = ("reference", "flash", "auto")
# What a product of float32 numbers is rounded to on CUDA, where that is not float32: FlexAttention's kernels take TF32,
# with 10 bits, and the memory-efficient kernel makes a float32 of three of them.
PRODUCTS = {"flex": 2.0**-10, "flash": 2.0**-20}
DECLINED = "backend must be 'auto' or another one for this call, got "


def check(case: Case, backends: tuple[str, ...] = DENSE) -> None:
    """Raise ``Wrong`` where a backend's answer is not the equation's."""
    for fault in faults(case, backends, Tally()):
        raise fault


def faults(case: Case, backends: tuple[str, ...], tally: Tally, device: torch.device = CPU) -> list[Wrong]:
    """What is wrong on a device, one for each backend at most: what one does must not hide what another does."""
    answer, inputs = expected(case, build(case)), build(case, device)
    found = []
    for backend in backends:
        try:
            _check_backend(case, inputs, answer, backend, tally)
        except Wrong as fault:
            found.append(fault)
    return found


def expected(case: Case, inputs: Inputs) -> oracle.Answer:
    """What the equation says."""
    options = {name: value for name, value in inputs.options.items() if name != "length"}
    if case.frequencies is None and case.scheme.frequencies is not None:
        options["frequencies"] = case.scheme.frequencies(case.length or case.k_len)
    return oracle.attention(
        inputs.q, inputs.k, inputs.v, case.scheme, grads=case.requires, **options,
        grad=None if case.through == "lse" else inputs.grad,
        grad_lse=None if case.through == "output" else inputs.grad_lse,
    )  # fmt: skip


def _check_backend(case: Case, inputs: Inputs, answer: oracle.Answer, backend: str, tally: Tally) -> None:
    on_cpu = inputs.q.device.type == "cpu"
    requires = () if backend == "flex" and on_cpu else case.requires  # FlexAttention has no backward on a CPU
    given = {"q": inputs.q, "k": inputs.k, "v": inputs.v, **inputs.options}
    given = {name: x.detach() if isinstance(x, Tensor) else x for name, x in given.items()}
    before = {name: x.clone() for name, x in given.items() if isinstance(x, Tensor)}
    for name in requires:
        given[name].requires_grad_()
    options = {name: given[name] for name in inputs.options}
    called = chosen = backend
    try:
        if backend == "auto":
            why = rl.explain_backend(given["q"], given["k"], given["v"], case.scheme, **options)
            chosen = why.partition(":")[0]
            called = f"auto ({chosen})"
        output, lse = _call(case, given, options, backend)
        _check_dtypes(called, inputs, output, lse)
        gradients = _gradients(case, inputs, given, requires, output, lse)
    except Wrong:
        raise
    except Exception as error:
        if backend in ("flash", "flex") and is_decline(error, backend):
            tally.add(called, case.dtype, "declined")
            return
        raise unclear(called, error) from error
    # The reference works in float32 or float64 and rounds the result, and so does every backend where frequencies are
    # learned; otherwise the others round turned queries and keys, and what a kernel gives, to the dtype of the inputs.
    wide = torch.promote_types(inputs.q.dtype, torch.float32)
    in_wide = chosen == "reference" or "frequencies" in requires
    how: dict[str, Any] = {"work": wide if in_wide else inputs.q.dtype, "angle": answer.angle}
    if not on_cpu and inputs.q.dtype == torch.float32:
        how["eps"] = PRODUCTS.get(chosen)
    compare(tally, called, "output", output, answer.output, answer.bounds["output"], **how)
    if lse is not None:
        compare(tally, called, "log-sum-exp", lse, answer.lse, answer.bounds["lse"], **how)
    tally.add(called, case.dtype, "calls")
    for name, gradient in gradients.items():
        compare(tally, called, f"gradient of {name}", gradient, answer.grads[name], answer.bounds[name], **how)
        tally.add(called, case.dtype, "gradients")
    for name, x in before.items():
        if not torch.equal(given[name].detach().nan_to_num(nan=7.0), x.nan_to_num(nan=7.0)):
            raise Wrong(f"{called}, {name}", "the call changed its own input")


def _call(case: Case, given: dict[str, Any], options: dict[str, Any], backend: str) -> tuple[Tensor, Tensor | None]:
    arguments = given["q"], given["k"], given["v"], case.scheme
    if case.through == "output" and case.seed % 2:  # as most callers do
        return rl.attention(*arguments, backend=backend, **options), None
    return rl.attention(*arguments, backend=backend, return_lse=True, **options)


def _check_dtypes(called: str, inputs: Inputs, output: Tensor, lse: Tensor | None) -> None:
    wide = torch.promote_types(inputs.q.dtype, torch.float32)
    for what, x, dtype in (("output", output, inputs.v.dtype), ("log-sum-exp", lse, wide)):
        if x is not None and x.dtype != dtype:
            raise Wrong(f"{called}, {what}: dtype", f"got {x.dtype}, wanted {dtype}")


def _gradients(
    case: Case, inputs: Inputs, given: dict[str, Any], requires: tuple[str, ...], output: Tensor, lse: Tensor | None
) -> dict[str, Tensor]:
    if not requires:
        return {}
    through = [(output, inputs.grad)] if case.through != "lse" else []
    if case.through != "output":
        assert lse is not None
        through.append((lse, inputs.grad_lse))
    through = [(x, g) for x, g in through if x.requires_grad]
    if not through:
        return {}
    outputs, grads = zip(*through, strict=True)
    found = torch.autograd.grad(outputs, [given[name] for name in requires], grads, allow_unused=True)
    for name, g in zip(requires, found, strict=True):
        if g is not None and g.dtype != given[name].dtype:
            raise Wrong(f"gradient of {name}: dtype", f"got {g.dtype}, wanted {given[name].dtype}")
    # None says 0: of the values through the log-sum-exp, of frequencies that turn nothing.
    return {name: torch.zeros_like(given[name]) if g is None else g for name, g in zip(requires, found, strict=True)}


def is_decline(error: Exception, backend: str) -> bool:
    """Whether a backend says in the documented way that it does not take a call."""
    return isinstance(error, ValueError) and str(error).startswith(f"{DECLINED}{backend!r}: ")


def unclear(called: str, error: Exception) -> Wrong:
    """An error that no call should end in."""
    kind = type(error).__name__
    text = re.sub(r"\d+", "#", " ".join(str(error).split()))[:80]
    return Wrong(f"{called}, {kind}: {text}", str(error))
