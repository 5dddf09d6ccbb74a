"""The scoreboard's model in a cell of a lesson: the stored weights, the texts, and what a plan scores. Chapter 05."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rope_lessons._checks import check_choice, check_count
from rope_lessons.engine import attention
from rope_lessons.lab import sizes
from rope_lessons.lab.rows import TableRow
from rope_lessons.lab.table.passkey import DIGITS, passkey_windows
from rope_lessons.lab.table.scoring import cut, score
from rope_lessons.methods import Method
from rope_lessons.models.byte_lm import fill
from rope_lessons.schemes import Plan, Scheme
from rope_lessons.scoreboard.metrics import far_copies
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.scoreboard.scoring import Settings
from rope_lessons.stored import DATA, results

TRAININGS = ("rope",)  # whose first seed is shipped
METRICS = ("natural", "far copies", "needle")


def load(training: str = "rope", device: torch.device | str | None = None) -> nn.Module:
    """The first seed of a training, ready to be tested with other plans.

    Args:
        training: its name.
        device: where it computes.

    Raises:
        ValueError: a training that is not shipped.

    Chapter 05.
    """
    check_choice("training", training, TRAININGS)
    recipe = RUNGS["small"]
    model = sizes.build(recipe.config, recipe.seed, recipe.row.method.train, torch.device("cpu"))
    fill(model, DATA / f"scoreboard_{training}.safetensors")
    return model.to(device)


def windows(which: str = "test") -> Tensor:
    """The held-out texts of the scoreboard, int64 ``(documents, 513)``.

    Args:
        which: ``"test"``, or ``"validation"`` for what choices are made on.

    Raises:
        ValueError: another ``which``.
    """
    stored = results("scoreboard_texts")
    check_choice("which", which, tuple(stored["which"]))
    lines = stored["windows"].where(which=which)["text"]
    return torch.tensor([list(line.encode("latin-1")) for line in lines])


@torch.no_grad()
def attended(model: nn.Module, plan: Scheme | Plan, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """What every query of a model gives to every key.

    Args:
        model: of :func:`load`.
        plan: a scheme for all layers, or one for each.
        tokens: ``(batch, seq)``.

    Returns:
        The weights ``(layers, batch, heads, seq, seq)``, and of each row the logarithm of the sum of its exponentials
        ``(layers, batch, heads, seq)``, both on the CPU. A score is the logarithm of its weight, plus that.

    Chapter 06.
    """
    found = []

    def attend(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme, **options: Any) -> Tensor:
        units = torch.eye(k.shape[2]).to(v).expand(*k.shape[:3], -1)  # values that are unit vectors: out come weights
        found.append(attention(q, k, units, scheme, return_lse=True, **options))
        return attention(q, k, v, scheme, **options)

    model(tokens.to(next(model.parameters()).device), _of_all_layers(plan), attend=attend)
    weights, log_sums = (torch.stack(each).cpu() for each in zip(*found, strict=True))
    return weights, log_sums


def percent(
    model: nn.Module,
    plan: Scheme | Plan,
    texts: Tensor,
    length: int,
    metric: str = "natural",
    *,
    attend: Callable[..., Tensor] | None = None,
) -> float:
    """What a model has right with a plan that it was not trained with, in percent.

    Args:
        model: of :func:`load`.
        plan: a scheme for all layers, or one for each.
        texts: of :func:`windows`, or some of them.
        length: that the model reads at once; it divides 512.
        metric: ``"natural"`` for all bytes, ``"far copies"`` or ``"needle"``.
        attend: an attention of one's own, ``(q, k, v, scheme)``; that of the package by default.

    Raises:
        ValueError: another metric.

    Chapter 05.
    """
    check_choice("metric", metric, METRICS)
    if metric == "needle":
        found = digits(model, plan, texts, length, attend=attend)
        return 100 * found.all(dim=2).double().mean().item()
    texts = texts.to(next(model.parameters()).device)
    hits = _hits(model, plan, cut(texts, length), attend).reshape(len(texts), -1)
    if metric == "far copies":
        hits = hits[far_copies(texts, RUNGS["small"].train_length)[0].to(hits.device)]
    return 100 * hits.mean().item()


def digits(
    model: nn.Module,
    plan: Scheme | Plan,
    texts: Tensor,
    length: int,
    depths: Sequence[float] | None = None,
    *,
    attend: Callable[..., Tensor] | None = None,
) -> Tensor:
    """Which of a needle's five digits a model has right, bool ``(depths, documents, 5)``.

    Args:
        model: of :func:`load`.
        plan: a scheme for all layers, or one for each.
        texts: of :func:`windows`, or some of them.
        length: that the model reads at once.
        depths: where the needle is hidden, 0 for the begin of the text and 1 for right before the question; those of
            the scoreboard by default.
        attend: an attention of one's own, ``(q, k, v, scheme)``; that of the package by default.

    Raises:
        ValueError: a length without room for needle and question.

    Chapter 08.
    """
    texts = texts.to(next(model.parameters()).device)
    asked = [passkey_windows(texts[:, : length + 1], d) for d in (Settings().depths if depths is None else depths)]
    return torch.stack([_hits(model, plan, tokens, attend)[:, -DIGITS:].bool() for tokens in asked])


def by_place(model: nn.Module, plan: Scheme | Plan, texts: Tensor, parts: int = 16) -> Tensor:
    """What a model has right in each part of a text that it reads at once, in percent.

    Byte m meets no distance above m, so the part where a plan fails says which distances it cannot read.

    Args:
        model: of :func:`load`.
        plan: a scheme for all layers, or one for each.
        texts: of :func:`windows`, or some of them.
        parts: of equal length; it divides 512.

    Returns:
        float64 ``(documents, parts)``.

    Raises:
        ValueError: a number of parts that does not divide the length.

    Chapter 03.
    """
    check_count("parts", parts, least=1)
    if (texts.shape[1] - 1) % parts:
        raise ValueError(f"parts must divide the length of the texts, {texts.shape[1] - 1}, got {parts}")
    hits = _hits(model, plan, texts.to(next(model.parameters()).device))
    return 100 * hits.unflatten(1, (parts, -1)).mean(dim=2)


def _hits(model: nn.Module, plan: Scheme | Plan, tokens: Tensor, attend: Callable[..., Tensor] | None = None) -> Tensor:
    schemes = _of_all_layers(plan)
    return score(model, TableRow("live", Method("live", schemes, schemes, attend=attend)), tokens)[0]


def _of_all_layers(plan: Scheme | Plan) -> Plan:
    return (plan,) * RUNGS["small"].config.layers if isinstance(plan, Scheme) else tuple(plan)
