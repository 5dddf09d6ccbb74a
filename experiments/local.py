"""Chapter 07: train byte models that must answer a question about a far token, and test what local attention loses.

    python -m experiments local
    python -m experiments local --train window 0        # only train one model

Takes about 40 minutes on one CPU core: 70 s for each of 15 trainings, and the tests.

Writes local.json, and local_byte_lm.safetensors (RoPE, seed 0). In it are, too, two hybrids of the scoreboard that lose
a part at test: seed 0, whose weights the scoreboard keeps, on the scoreboard's texts.
"""

from __future__ import annotations

import argparse
import inspect
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments import command
from experiments.result import Result
from experiments.scoreboard_jobs import kept_model
from experiments.trained import Models, evaluation_windows, measure, surroundings, training_text
from rope_lessons import attention
from rope_lessons.lab.table.passkey import last_digit, passkey_windows
from rope_lessons.local import alibi_slopes
from rope_lessons.methods import METHODS, Method
from rope_lessons.models import byte_lm, recall
from rope_lessons.schemes import LogN, Plan, Scheme, scheme
from rope_lessons.scoreboard import live
from rope_lessons.scoreboard.recipe import RUNGS
from rope_lessons.stored import write_whole
from rope_lessons.streaming import streaming_attention

SEEDS = (0, 1, 2)
CONFIG = byte_lm.Config(steps=800)
DIM, WINDOW, LENGTH = CONFIG.head_dim, 32, 512
DISTANCES, SHORT_DISTANCES = (8, 24, 40, 56, 96, 192, 384), (8, 24, 40, 56)
ROWS: dict[str, Method] = {
    "rope": METHODS["rope"](layers=2, dim=DIM),
    "window": METHODS["window"](layers=2, dim=DIM, visible_window=WINDOW),
    "alibi": METHODS["alibi"](layers=2, dim=DIM),
    "hwfa": METHODS["hwfa"](layers=2, dim=DIM, visible_window=WINDOW, train_length=CONFIG.length),
}
# "window" in METHODS is a window at test after RoPE in training; here the window is there in training too.
TRAIN: dict[str, Plan] = {name: row.train for name, row in ROWS.items()} | {"window": ROWS["window"].test}
SWAPS = {"start": recall.START, "newline": ord("\n"), "e": ord("e"), "its own": None}  # None: the text's own byte
FITTED = ("sink", "sink and value", "gain", "temperature")  # what a number for each head can be
FIT_STEPS = 120  # of these: four texts of 256 bytes each
HYBRIDS = ("hwfa-w16", "hwfa2-w16-logn")  # its trainings that lose a part at test
WITHOUT_START = "rope without start"  # the same training as "rope", but no start byte: has it a sink?


def path_of(models: Models, name: str, seed: int) -> Path:
    """The file of a model of this chapter, which is trained if it was not."""
    config, plan = models.config(CONFIG), TRAIN.get(name, TRAIN["rope"])
    start = name != WITHOUT_START
    code = inspect.getsource(recall.RecallText)
    recipe = (asdict(config), plan, seed, not start, *surroundings(), code)
    text = recall.RecallText(training_text(), seed, start=start)  # it reads windows from this, as from a tensor
    build = partial(byte_lm.build, config, seed, plan)
    return models.path(recipe, build, config, seed, f"{name}, seed {seed}", kind="local-", text=text)


def trained_model(models: Models, name: str, seed: int) -> byte_lm.ByteLM:
    """A model of this chapter after its training, weights rounded as a shipped file holds them."""
    return byte_lm.load(path_of(models, name, seed), models.config(CONFIG), TRAIN.get(name, TRAIN["rope"]))


def recalled(model: byte_lm.ByteLM, windows: Tensor, plan: Plan, length: int, distances: tuple[int, ...]) -> dict:
    """Share of questions answered, by distance; every second piece of the test text."""
    found = {d: recall.answered(model, windows[::2], d, length, plan) for d in distances}
    return {str(distance): round(right.double().mean().item(), 4) for distance, right in found.items()}


def long_rows(models: Models, windows: Tensor, seed: int) -> list[dict]:
    """Loss and recall at 8 times the training length, and recall within it: models trained with a method, and the RoPE
    model with other schemes at test only."""
    capped: dict[str, Any] = {"dim": DIM, "window": WINDOW}
    at_test = {
        "LM-Infinite, 1": scheme("rerope", **capped, visible_window=WINDOW, sinks=1),
        "ReRoPE": scheme("rerope", **capped),  # the same cap on distances, and everything visible
        "ReRoPE, log n": scheme("rerope", **capped, scale=LogN(CONFIG.length, clip=True)),
    }
    tests = [(name, "as the method says", method.test) for name, method in ROWS.items()]
    tests += [("rope", name, (row,) * 2) for name, row in at_test.items()]
    rows = []
    for name, test, plan in tests:
        model = trained_model(models, name, seed)
        reader: Any = recall.started(model)
        rows.append(
            {
                "seed": seed,
                "method": name,
                "test": test,
                "short": measure(reader, windows, CONFIG.length, plan),
                "long": measure(reader, windows, LENGTH, plan),
                "recall": recalled(model, windows, plan, LENGTH, DISTANCES),
                "recall_short": recalled(model, windows, plan, CONFIG.length, SHORT_DISTANCES),
            }
        )
    return rows


def masks() -> dict[str, tuple[Plan, dict]]:
    """What a RoPE model can be given at test: a window alone, and ways to keep one or four sinks."""
    found: dict[str, tuple[Plan, dict]] = {"window": ((scheme("window", dim=DIM, visible_window=WINDOW),) * 2, {})}
    for sinks in (1, 4):
        true = scheme("lambda", dim=DIM, visible_window=WINDOW, sinks=sinks)
        capped = scheme("rerope", dim=DIM, window=WINDOW, visible_window=WINDOW, sinks=sinks)
        found[f"true distance, {sinks}"] = ((true,) * 2, {})
        found[f"StreamingLLM, {sinks}"] = ((true,) * 2, {"attend": streaming_attention})
        found[f"LM-Infinite, {sinks}"] = ((capped,) * 2, {})
    return found


def sink_rows(models: Models, windows: Tensor, seed: int) -> list[dict]:
    """Which models look at the first token, and what a window without it costs. Three trainings with RoPE."""
    rows = []
    for kind in ("rope", WITHOUT_START, "chapter 03"):
        model = models.byte_model(seed) if kind == "chapter 03" else trained_model(models, kind, seed)
        tokens, reader = windows[:, : CONFIG.length], model
        if kind == "rope":
            tokens, reader = recall.with_start(tokens), recall.started(model)  # type: ignore[assignment]
        late = slice(CONFIG.length // 2, None)
        first = [layer[:, :, late, 0].mean(dim=(0, 2)) for layer in recall.attention_weights(model, tokens)]
        losses = {str(length): measure(reader, windows, length)["loss"] for length in (CONFIG.length, LENGTH)}
        for name, (plan, options) in masks().items():
            losses[name] = measure(reader, windows, LENGTH, plan, **options)["loss"]
        mass = [[round(value, 4) for value in layer.tolist()] for layer in first]
        rows.append({"seed": seed, "model": kind, "first_token": mass, "loss": losses})
    return rows


def kept_rows(models: Models, windows: Tensor, seed: int) -> list[dict]:
    """The share of a sink that a window loses: the weight of the start byte, kept and moved up, from the second half of
    512 bytes. With one sink LM-Infinite shows it where StreamingLLM does."""
    model, (plan, _) = trained_model(models, "rope", seed), masks()["LM-Infinite, 1"]
    texts = recall.with_start(windows[:, :LENGTH]).split(8)
    with torch.no_grad():
        found = [torch.stack(recall.attention_weights(model, some, plan))[..., LENGTH // 2 :, 0] for some in texts]
    first = torch.cat(found, dim=1).mean(dim=(1, 3))  # (layers, heads)
    return [{"seed": seed, "first_token": [[round(value, 4) for value in layer] for layer in first.tolist()]}]


def attention_rows(models: Models, windows: Tensor, seed: int, shown: int = 24) -> list[dict]:
    """The head that looks at the first byte most, with a start byte and without: its weights in the first text."""
    rows = []
    for kind in ("rope", WITHOUT_START):
        tokens = windows[:, : CONFIG.length]
        weights = torch.stack(
            recall.attention_weights(
                trained_model(models, kind, seed), recall.with_start(tokens) if kind == "rope" else tokens
            )
        )
        first = weights[:, :, :, CONFIG.length // 2 :, 0].mean(dim=(1, 3))  # (layers, heads)
        layer, head = divmod(int(first.argmax()), first.shape[1])
        picture = weights[layer, 0, head, :shown, :shown].tolist()
        rows.append(
            {
                "seed": seed,
                "model": kind,
                "layer": layer,
                "head": head,
                "first": round(float(first[layer, head]), 4),
                "weights": [[round(weight, 3) for weight in row[: i + 1]] for i, row in enumerate(picture)],
            }
        )
    return rows


def alibi_rows(models: Models, windows: Tensor, seed: int) -> list[dict]:
    """What ALiBi lacks on a long text: its sink, which grows dearer with the distance, and a shorter view."""

    def sink_capped(q: Tensor, k: Tensor, v: Tensor, row: Scheme) -> Tensor:
        index = torch.arange(k.shape[2])
        back = torch.zeros(q.shape[1], len(index), len(index))  # what the first token pays too much
        back[:, :, 0] = alibi_slopes(q.shape[1]).unsqueeze(-1) * (index - WINDOW).clamp(min=0)
        return attention(q, k, v, row, bias=back)

    everything, window = scheme("alibi"), scheme("alibi", visible_window=WINDOW)
    tests: dict[str, tuple[int, Scheme, Callable[..., Tensor]]] = {
        "64": (CONFIG.length, everything, attention),
        "512": (LENGTH, everything, attention),
        "sink capped": (LENGTH, everything, sink_capped),
        "window": (LENGTH, window, attention),
        "window, sink capped": (LENGTH, replace(window, sinks=1), sink_capped),
    }
    reader: Any = recall.started(trained_model(models, "alibi", seed))
    losses = {}
    for name, (length, row, attend) in tests.items():
        losses[name] = measure(reader, windows, length, (row,) * 2, attend=attend)["loss"]
    return [{"seed": seed, "loss": losses}]


def written(tokens: Tensor, place: int, byte: int | None) -> Tensor:
    """Tokens with a byte in one place; for None as they are."""
    if byte is None:
        return tokens
    return torch.cat((tokens[:, :place], torch.full_like(tokens[:, :1], byte), tokens[:, place + 1 :]), dim=1)


def swapped_rows(models: Models, windows: Tensor, seed: int) -> list[dict]:
    """Symbol or place? What is written in the sink's place, with the first byte kept and moved up: the weight that the
    byte draws from the second half of 64, in the head that gives it most, and the loss at 512."""
    model, (kept, options) = trained_model(models, "rope", seed), masks()["StreamingLLM, 1"]

    def read(tokens: Tensor, plan: Plan, attend: Callable[..., Tensor], place: int, byte: int | None) -> Tensor:
        return model(written(tokens, place, byte), plan, attend)

    rows = []
    for name, place in (("start", 0), ("newline", 0), ("e", 0), ("its own", 0), ("start", 20)):
        reader: Any = partial(read, place=place, byte=SWAPS[name])
        short = written(windows[:, : CONFIG.length], place, SWAPS[name])
        looks = torch.stack(recall.attention_weights(model, short))[..., CONFIG.length // 2 :, place]
        weight = round(float(looks.mean(dim=(1, 3)).max()), 4)  # of (layers, heads)
        loss = measure(reader, windows, LENGTH, kept, **options)["loss"]
        rows.append({"seed": seed, "byte": name, "place": place, "weight": weight, "loss": loss})
    return rows


def first_values(model: byte_lm.ByteLM) -> list[Tensor]:
    """The start byte's value in each layer, ``(1, heads, 1, head_dim)``: the same in every text, as it sees itself."""
    values = []

    def attend(q: Tensor, k: Tensor, v: Tensor, row: Scheme) -> Tensor:
        values.append(v)
        return attention(q, k, v, row)

    with torch.no_grad():
        model(torch.full((1, 1), recall.START), None, attend)
    return values


def attend_with(what: str, numbers: Tensor, values: Sequence[Tensor]) -> Callable[..., Tensor]:
    """Attention with one of ``FITTED``: a number for each layer and head. Layers in turn."""
    layers = cycle(range(len(numbers)))

    def attend(q: Tensor, k: Tensor, v: Tensor, row: Scheme) -> Tensor:
        n = next(layers)
        number = numbers[n].unsqueeze(-1)  # (heads, 1): the same for every query
        if what == "temperature":
            return attention(number.exp().unsqueeze(-1) * q, k, v, row)
        out, lse = attention(q, k, v, row, return_lse=True)
        if what == "gain":
            return number.exp().unsqueeze(-1) * out
        left = torch.sigmoid(lse - number).unsqueeze(-1)
        return left * out if what == "sink" else left * out + (1 - left) * values[n]

    return attend


def learned_rows(models: Models, windows: Tensor, seed: int) -> list[dict]:
    """Is a number enough of a sink? A window that loses the start byte, and for each head a number that is fitted on
    training text while all weights stay: a learned sink with no value, and with the value of the start byte. The
    controls are as many numbers that are no sink: a gain of each head's output, and a factor of its scores."""
    model = trained_model(models, "rope", seed)
    model.requires_grad_(False)
    reader: Any = recall.started(model)
    plan = (scheme("window", dim=DIM, visible_window=WINDOW),) * 2
    values = first_values(model)
    rows = []
    for what in FITTED:
        numbers = torch.zeros(CONFIG.layers, CONFIG.heads, requires_grad=True)  # gains and temperatures of 1
        steps = models.steps or FIT_STEPS
        optimizer = torch.optim.Adam([numbers], lr=0.3)
        down = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.02, steps)
        for some in islice(byte_lm.batches(training_text(), replace(CONFIG, length=256, batch=4), seed), steps):
            scores = reader(some[:, :-1], plan, attend_with(what, numbers, values))
            loss = F.cross_entropy(scores.transpose(1, 2), some[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            down.step()
        attend = attend_with(what, numbers.detach(), values)
        found = [[round(number, 2) for number in layer] for layer in numbers.tolist()]
        loss_long = measure(reader, windows, LENGTH, plan, attend=attend)["loss"]
        rows.append({"seed": seed, "fitted": what, "numbers": found, "loss": loss_long})
    return rows


def hybrid_rows(texts: int) -> list[dict]:
    """Percent right of the scoreboard's hybrids, seed 0: as they are, without log n at test, and without the switch to
    ReRoPE where there is one; and what each head of the full layer gives a number's last digit, asked for it.

    Args:
        texts: how many of the scoreboard's 64, at most. The weights are of the first eight.
    """
    recipe, read, rows = RUNGS["small"], live.windows()[:texts], []
    for training in HYBRIDS:
        method = recipe.rows[training].method
        model = kept_model(training)
        tests = {"as the method says": method.test, "no log n": tuple(row.replace(scale=None) for row in method.test)}
        if method.test != method.train:
            tests["no switch"] = method.train
        for test, plan in tests.items():
            asked = [("natural", CONFIG.length), *((metric, LENGTH) for metric in live.METRICS)]
            right = {f"{metric}, {n}": round(live.percent(model, plan, read, n, metric), 2) for metric, n in asked}
            found = {str(n): on_the_digit(model, plan, read[:8, : n + 1]) for n in (CONFIG.length, LENGTH)}
            rows.append({"seed": 0, "training": training, "test": test, "right": right, "on_the_digit": found})
    return rows


def on_the_digit(model: torch.nn.Module, plan: Plan, texts: Tensor) -> list[float]:
    """Percent of the weight, by the heads of the layer that sees everything, on the last digit in a text's middle."""
    tokens = passkey_windows(texts, 0.5)
    place = last_digit(tokens)
    (full,) = (n for n, row in enumerate(plan) if row.visible_window is None)
    weights, _ = live.attended(model, plan, tokens[:, :-1])
    found = weights[full, torch.arange(len(place)), :, -1, place].mean(dim=0)
    return [round(100 * weight, 1) for weight in found.tolist()]


TABLES: dict[str, Callable[[Models, Tensor, int], list[dict]]] = {
    "sinks": sink_rows,
    "kept": kept_rows,
    "swapped": swapped_rows,
    "learned": learned_rows,
    "rows": long_rows,
    "alibi": alibi_rows,
}  # of every seed


def measure_all(seeds: Sequence[int], models: Models, windows: Tensor, out: Path, fresh: bool) -> None:
    settings = {
        "config": asdict(models.config(CONFIG)),
        "window": WINDOW,
        "length": LENGTH,
        "questions": len(windows[::2]),
    }
    names = ("sinks", "attention", "kept", "swapped", "learned", "rows", "alibi", "hybrids")
    empty: dict[str, list] = {name: [] for name in names}
    result = Result(out / "local.json", "local", settings, empty, fresh)
    for seed in seeds:
        if seed == 0 and result.lacks("attention", seed=0):
            result.add(attention=attention_rows(models, windows, 0))
        if seed == 0 and result.lacks("hybrids", seed=0):
            result.add(hybrids=hybrid_rows(len(windows)))
        for table, rows_of in TABLES.items():
            if result.lacks(table, seed=seed):
                result.add(**{table: rows_of(models, windows, seed)})
                if (seed, table) == (0, "rows"):
                    shipped = partial(shutil.copyfile, path_of(models, "rope", 0))
                    write_whole(out / "local_byte_lm.safetensors", shipped)
    result.close()


def one_model(parser: argparse.ArgumentParser, method: str, seed: str) -> tuple[str, int]:
    """What is given to --train."""
    if method not in (*TRAIN, WITHOUT_START):
        parser.error(f"argument --train: {method!r} is none of {', '.join((*TRAIN, WITHOUT_START))}")
    try:
        return method, command.number(seed)
    except argparse.ArgumentTypeError as error:
        return parser.error(f"argument --train: SEED {error}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.trained_parser("experiments local", __doc__, SEEDS)
    parser.add_argument("--train", nargs=2, metavar=("METHOD", "SEED"), help="only train one model")
    options = command.parse(parser, arguments)
    command.check_alone(parser, options, "train", ("models", "steps"))
    models, windows = Models(options.models, options.steps), evaluation_windows(options.windows)
    if options.train:
        name, seed = one_model(parser, *options.train)
        return command.run(parser.prog, lambda: path_of(models, name, seed))
    return command.run(parser.prog, lambda: measure_all(options.seeds, models, windows, options.out, options.fresh))


if __name__ == "__main__":
    sys.exit(main())
