"""Is it right on this device? Kernels, random calls against the oracle, caches, and a step of every model."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import rope_lessons as rl
from experiments.gpu import draws
from experiments.gpu.step import Found, Row, Setting, absent, could_not
from experiments.gpu.timing import forget_compiled
from rope_lessons.chomsky.grid import CONFIGURATIONS, Job
from rope_lessons.chomsky.training import Protocol, Training
from rope_lessons.lab import sizes, training
from rope_lessons.lab.rows import trainings
from rope_lessons.schemes import SCHEMES
from tests import on_device
from tests.fuzz import calls, oracle
from tests.fuzz.case import build
from tests.fuzz.tally import Tally, compare

MOST_SAID = 20  # wrong answers that are told in full
LONGEST = 480.0  # seconds of pytest


def said(error: BaseException) -> str:
    """An error in a few lines."""
    return "".join(traceback.format_exception(error)[-2:])[-1000:]


def kernel_checks(setting: Setting) -> Found:
    """The checks of ``tests/on_device.py``: what has never run without a card."""
    found, reasons = Found(), {}
    for name, check in list(on_device.CHECKS.items())[:: setting.by_scale(1, 1, 4)]:
        setting.check_time()
        torch.manual_seed(0)
        try:
            why = check(setting.device)
        except Exception as error:
            found.wrong.append(f"{name}: {said(error)}")
            why = "wrong"
        if why not in (None, "wrong"):
            reasons[name] = str(why)
        found.tables.setdefault("checks", []).append({"what": name, "came_of_it": why or "right"})
    found.tables["could_not"] = could_not(reasons)
    return found


def random_calls(
    setting: Setting, dtype: str, backends: tuple[str, ...], plain: bool = False, seconds: float = 80.0
) -> Found:
    """Forward and backward beside the equation in float64: every scheme in turn, for so many seconds."""
    most = setting.by_scale(*((60, 8, 2) if plain else (3000, 60, len(SCHEMES))))
    until = min(setting.end, time.time() + seconds)
    lengths = setting.by_scale(draws.LENGTHS, draws.LENGTHS, draws.LENGTHS[:5])
    tally, found, tried = Tally(), Found(), 0
    for number in range(most):
        if time.time() > until:
            break
        if "flex" in backends:
            forget_compiled()
        one = draws.case(number, dtype, lengths, plain)
        for fault in calls.faults(one, backends, tally, setting.device):
            if len(found.wrong) < MOST_SAID:
                found.wrong.append(f"{fault}\n{one!r}")
        tried += 1
    found.about = {"calls": tried, "of": most, "seeds": [0, tried - 1], "backends": list(backends)}
    found.tables |= counted(tally)
    return found


def counted(tally: Tally) -> dict[str, list[Row]]:
    """What was compared, and the largest error as a share of what is allowed."""
    counts = [
        {"called": called, "dtype": dtype, "what": what, "count": number}
        for (called, dtype, what), number in sorted(tally.counts.items())
    ]
    nearest = [
        {"called": called, "dtype": dtype, "error_by_allowed": share}
        for (called, dtype), share in sorted(tally.nearest.items())
    ]
    return {"counts": counts, "nearest": nearest}


def caches(setting: Setting) -> Found:
    """A prompt, single tokens and chunks with a cache, beside the oracle on all tokens so far."""
    found, tally = Found(), Tally()
    splits = setting.by_scale([(40, 1, 1, 7, 1), (1, 1, 64, 3)], [(40, 1, 1, 7, 1)], [(5, 1, 2)])
    for number, name in enumerate(SCHEMES):
        for dtype in setting.by_scale(("float32", "bfloat16", "float16"), ("float32", "bfloat16"), ("float32",)):
            for chunks in splits:
                setting.check_time()
                try:
                    check_cache(number, dtype, chunks, setting.device, tally)
                except Exception as error:
                    found.wrong.append(f"{name}, {dtype}, chunks {chunks}: {said(error)}")
    found.tables |= counted(tally)
    return found


def check_cache(number: int, dtype: str, chunks: tuple[int, ...], device: torch.device, tally: Tally) -> None:
    """Raise ``Wrong`` where a cache gives other numbers than the equation."""
    one = draws.case(number, dtype, (sum(chunks),), plain=True)
    one = replace(one, q_len=sum(chunks), before=0, scheme=replace(one.scheme, causal=True), requires=())
    cpu, own = build(one), build(one, device)
    cache, begin = rl.KVCache(one.scheme), 0
    for tokens in chunks:
        end = begin + tokens
        q, k, v = (x[:, :, begin:end] for x in (own.q, own.k, own.v))
        output = rl.attention(q, k, v, one.scheme, cache=cache)
        spec = one.scheme.frequencies
        frequencies = None if spec is None else spec(end)
        answer = oracle.attention(
            cpu.q[:, :, begin:end], cpu.k[:, :, :end], cpu.v[:, :, :end], one.scheme, frequencies=frequencies
        )
        how: dict[str, Any] = {"work": own.q.dtype, "angle": answer.angle}
        if device.type == "cuda" and own.q.dtype == torch.float32:
            how["eps"] = calls.PRODUCTS["flash"]
        compare(tally, "cache", "output", output, answer.output, answer.bounds["output"], **how)
        tally.add("cache", dtype, "answers")
        begin = end


# --- a step of every model -------------------------------------------------------------------------------------------


def lab_models(setting: Setting) -> Found:
    """The loss and the gradients' norm of one step of every training, here and on the CPU."""
    found = Found()
    corpus: Any = SimpleNamespace(train=np.random.default_rng(0).integers(0, 256, 20_000, np.uint8))
    small = setting.by_scale(("gau-0.3m", "transformer-0.3m"), ("gau-0.3m", "transformer-0.3m"), ("gau-0.3m",))
    for size in small:
        base = training.Recipe(size, train_length=64, batch=4, shift_keys=True)
        for scheme in list(trainings(base.rows.values()))[:: setting.by_scale(1, 3, 5)]:
            setting.check_time()
            recipe = replace(base, scheme=scheme)
            check_step(found, f"{size}, {scheme}", partial(lab_step, recipe, corpus), setting.device)
    for size in setting.by_scale(("gau-25m", "transformer-25m", "gau-87m", "transformer-87m"), (), ()):
        setting.check_time()
        recipe = replace(training.CONFIGS[size], batch=4)
        loss = lab_step(recipe, corpus, setting.device)
        found.tables["steps"].append({"what": f"{size}, {recipe.dtype}", "here": loss, "on_the_cpu": None})
        if not np.isfinite(loss):
            found.wrong.append(f"{size}: the loss is {loss}")
    return found


def lab_step(recipe: training.Recipe, corpus: Any, device: torch.device) -> float:
    """The loss of the second step: after one update."""
    model = sizes.build(recipe.config, recipe.seed, recipe.row.method.train, device)
    optimizer = training.OPTIMIZERS[recipe.optimizer](model, recipe)
    run = training.Run(recipe, corpus, training.Team(device), training.Objective(model, recipe.row), optimizer)
    return [float(run.step(number)) for number in range(2)][-1]


PROTOCOL = Protocol(
    longest=12, batch=8, steps=2, max_position=64, test_lengths=(16,), samples=8, test_batch=8, dropout_at_test=False
)


def chomsky_models(setting: Setting) -> Found:
    """The same for every model of the Chomsky benchmark."""
    found = Found()
    for configuration in CONFIGURATIONS[:: setting.by_scale(1, 3, 6)]:
        setting.check_time()
        job = Job("reverse_string", *configuration, seed=0, learning_rate=1e-3)
        check_step(found, job.name, partial(chomsky_step, job), setting.device)
    return found


def chomsky_step(job: Job, device: torch.device) -> float:
    run = Training([job], PROTOCOL, device)
    loss = [float(run.advance()) for _ in range(2)][-1]
    run.evaluate()
    return loss


def check_step(found: Found, what: str, step: Callable[[torch.device], float], device: torch.device) -> None:
    """The same step here and on the CPU. PyTorch multiplies float32 as float32, so the losses agree to 1 in 1000."""
    try:
        here, there = step(device), step(torch.device("cpu"))
    except Exception as error:
        found.wrong.append(f"{what}: {said(error)}")
        return
    found.tables.setdefault("steps", []).append({"what": what, "here": here, "on_the_cpu": there})
    if not abs(here - there) <= 1e-3 * abs(there):
        found.wrong.append(f"{what}: the loss is {here} here, and {there} on the CPU")


# --- with pytest -----------------------------------------------------------------------------------------------------


def tests(setting: Setting) -> Found:
    """The tests that take a device, by pytest, on the card alone."""
    root = Path(__file__).parents[2]
    files = setting.by_scale(with_device(root), with_device(root), ["tests/test_sinusoidal.py"])
    chosen = setting.device.type
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-k", chosen, "-p", "no:cacheprovider", f"--junitxml={report}"]
        many = [] if absent(["xdist"]) else ["-n", setting.by_scale("8", "1", "0")]
        line = [sys.executable, "-m", "pytest", "-q", *options, *many, *files]
        try:
            limit = max(1.0, min(LONGEST, setting.left - 5))
            done = subprocess.run(line, cwd=root, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired as error:
            return Found(wrong=[f"not done in time: {str(error.stdout)[-1000:]}"])
        if not report.exists():
            return Found(wrong=[done.stdout[-3000:] + done.stderr[-1000:]])
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    found = Found(about={"tests": len(cases), "files": files})
    for one in cases:
        for kind in ("failure", "error"):
            for problem in one.iter(kind):
                found.wrong.append(f"{one.get('classname')}.{one.get('name')}: {(problem.text or '')[-600:]}")
    found.tables["tests"] = [
        {"test": f"{one.get('classname')}.{one.get('name')}", "seconds": float(one.get("time", 0))} for one in cases
    ]
    return found


def with_device(root: Path) -> list[str]:
    """The test files that have a test for each device."""
    paths = sorted((root / "tests").rglob("test_*.py"))
    return [str(path.relative_to(root)) for path in paths if "device: torch.device" in path.read_text("utf8")]
