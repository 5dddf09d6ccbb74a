r"""Tiger, the optimizer of articles 9 to 15: the sign of the momentum, in steps relative to the size of the weights.

.. math:: \mathbf{m}_t = \beta\,\mathbf{m}_{t-1} + (1 - \beta)\,\mathbf{g}_t, \qquad
          \boldsymbol\theta_t = \boldsymbol\theta_{t-1}
          - \eta_t\,[\operatorname{sign}(\mathbf{m}_t) + \lambda\,\boldsymbol\theta_{t-1}]

Chapter 12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rope_lessons._checks import check_choice, check_count, check_not_negative

KINDS = ("matrix", "rows", "vector")


class Tiger(torch.optim.Optimizer):
    r"""Tiger. The learning rate is relative: how far a weight goes in one step, compared with its size.

    With :math:`\alpha_t` the learning rate, :math:`\eta_t` depends on the kind of the parameter:

    - ``"matrix"``: :math:`\alpha_t` times the root mean square of the whole parameter;
    - ``"rows"``: :math:`\alpha_t` times the root mean square of each row, for embeddings;
    - ``"vector"``: :math:`\alpha_t / 2`, and no weight decay, for biases, norms and scales.

    **Accumulation.** With ``accumulate=k``, call :meth:`step` after each of k small batches. The momentum itself
    gathers the gradients (it shrinks at the first batch and takes a k-th of each gradient), and the weights move at the
    last one: no further memory.

    **NaN.** Where the gradient of a parameter has one, its momentum stays and the parameter shrinks towards its
    ``center`` by the factor ``shrink``. Nothing waits for the device to see it.

    **Precision.** Momentum is float32 or better. A parameter of 16 bits gets a float32 copy that takes the steps: a
    step is a thousandth of the weights, and bfloat16 tells apart numbers that differ by a 128th to a 256th.

    A matrix that is all zeros never moves. A row of an embedding whose gradient was there once and is zero ever after
    goes on in one direction until it meets :math:`1/\lambda`, since the sign of a fading momentum does not fade;
    tied embeddings, as in the lab's models, have no such rows.

    Args:
        params: parameters or groups of them. A group may set ``kind``, ``center`` (0 by default) and every argument
            below but ``accumulate``. Without a kind, parameters of two dimensions or more are matrices, the others
            vectors. :func:`parameter_groups` makes the groups of a model.
        lr: :math:`\alpha_t`; between 0.001 and 0.002 at its largest by the source.
        beta: of the momentum; 0.965 for text, 0.945 for images by the source.
        weight_decay: :math:`\lambda`.
        accumulate: number of small batches to a step. A parameter without a gradient is left as it is.
        shrink: what a NaN multiplies a parameter with.

    Raises:
        TypeError, ValueError: values out of range; an unknown kind; rows of a parameter that has none.

    Source: Su, article 9512 of spaces.ac.cn, and his code (bojone/tiger); the defect of embeddings, article 9736.
    Chapter 12 derives it.

    >>> weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))  # root mean square √12.5
    >>> optimizer = Tiger([weight], lr=0.01, weight_decay=0.0)
    >>> weight.grad = torch.tensor([[0.001, -7.0]])
    >>> optimizer.step()
    >>> weight.data
    tensor([[2.9646, 4.0354]])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        beta: float = 0.965,
        weight_decay: float = 0.01,
        accumulate: int = 1,
        shrink: float = 0.99,
    ):
        check_count("accumulate", accumulate, least=1)
        super().__init__(
            params,
            {
                "lr": lr, "beta": beta, "weight_decay": weight_decay, "shrink": shrink,
                "kind": None, "center": 0.0, "accumulate": accumulate, "micro_step": 0,
            },
        )  # fmt: skip

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in PyTorch, and the values are checked."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        check_not_negative("lr", group["lr"])
        check_not_negative("weight_decay", group["weight_decay"])
        for name in ("beta", "shrink"):
            check_not_negative(name, group[name])
            if group[name] > 1:
                raise ValueError(f"{name} must be at most 1, got {group[name]}")
        if group["kind"] is not None:
            check_choice("kind", group["kind"], KINDS)
        for parameter in group["params"]:
            if group["kind"] == "rows" and parameter.ndim < 2:
                raise ValueError(f"kind must be 'vector' for a parameter of shape {tuple(parameter.shape)}, got 'rows'")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take in the gradients; at the last of ``accumulate`` calls, move the weights.

        Args:
            closure: computes the loss again, as in PyTorch.

        Returns:
            what the closure gives.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
            group["micro_step"] = (group["micro_step"] + 1) % group["accumulate"]
        return loss

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, batches = self.state[parameter], group["accumulate"]
        if not state:
            state.update(_fresh_state(parameter))
        theta, momentum = state.get("copy", parameter), state["momentum"]
        gradient = parameter.grad.to(momentum.dtype)  # type: ignore[union-attr]
        broken = gradient.isnan().any()  # a tensor: nobody waits for it
        beta = group["beta"] if group["micro_step"] == 0 else 1.0
        taken = beta * momentum + (1 - group["beta"]) / batches * gradient
        momentum.copy_(torch.where(broken, momentum, taken))
        moved = _moved(theta, momentum, group) if group["micro_step"] == batches - 1 else theta
        shrunk = (theta - group["center"]) * group["shrink"] + group["center"]
        theta.copy_(torch.where(broken, shrunk, moved))
        if theta is not parameter:
            parameter.copy_(theta)  # the one rounding

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in PyTorch, but the state keeps its dtype (PyTorch would round it to that of the parameters)."""
        super().load_state_dict(state_dict)
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            saved = state_dict["state"].get(number, {})
            self.state[parameter].update({name: value.to(parameter.device, copy=True) for name, value in saved.items()})


def _fresh_state(parameter: Tensor) -> dict[str, Tensor]:
    exact = parameter.dtype if parameter.dtype == torch.float64 else torch.float32
    state = {"momentum": torch.zeros_like(parameter, dtype=exact)}
    if parameter.dtype != exact:
        state["copy"] = parameter.detach().to(exact)
    return state


def _moved(theta: Tensor, momentum: Tensor, group: dict[str, Any]) -> Tensor:
    """The weights after a step."""
    kind = group["kind"] or ("matrix" if theta.ndim >= 2 else "vector")
    if kind == "vector":
        return theta - 0.5 * group["lr"] * momentum.sign()
    size = theta.square().mean(dim=-1, keepdim=True) if kind == "rows" else theta.square().mean()
    return theta - group["lr"] * size.sqrt() * (momentum.sign() + group["weight_decay"] * theta)


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """The parameters of a model in groups for :class:`Tiger`: matrices, rows of embeddings, vectors that start at 0
    and vectors that start at 1.

    A vector whose name ends in ``weight`` or ``scale`` multiplies something and starts at 1; any other starts at 0.

    Args:
        model: any module.

    Returns:
        groups, empty ones left out.

    Chapter 12.

    >>> model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    >>> [(group["kind"], group["center"], len(group["params"])) for group in parameter_groups(model)]
    [('matrix', 0.0, 1), ('rows', 0.0, 1), ('vector', 0.0, 2), ('vector', 1.0, 1)]
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    found: dict[tuple[str, float], list[Tensor]] = {
        ("matrix", 0.0): [], ("rows", 0.0): [], ("vector", 0.0): [], ("vector", 1.0): []
    }  # fmt: skip
    for name, parameter in model.named_parameters():
        kind = "rows" if id(parameter) in embeddings else "matrix" if parameter.ndim >= 2 else "vector"
        multiplies = kind == "vector" and name.endswith(("weight", "scale"))
        found[kind, float(multiplies)].append(parameter)
    return [{"params": params, "kind": kind, "center": center} for (kind, center), params in found.items() if params]
