"""Chapter 03: train the byte model, and test it with other frequencies at 8 times its training length.

    python -m experiments radix

Takes about 15 minutes: five seeds, of which each is trained for 90 s on one CPU core.

Writes radix.json, radix_byte_lm.safetensors (the model of seed 0) and with --text only radix_eval_text.json, the test
text, cut from the library of the running Python. The training text is that library, so another version of Python gives
slightly different numbers; the test text is the stored one.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments import command
from experiments.result import Result
from experiments.trained import about, digest, evaluation_windows, measure, training_text, with_steps
from rope_lessons.models import byte_lm
from rope_lessons.rotary import rotate
from rope_lessons.schemes import Scheme, scheme
from rope_lessons.stored import write_results, write_whole

SEEDS = (0, 1, 2, 3, 4)
FACTOR, LENGTH = 8, 512
SWEEP = (2, 4, 16, 32, 64, 128, 512)  # factors of NTK-aware beside FACTOR
REHEARSAL_STEPS = 8
WINDOWS, PER_FILE = 104, 6
LICENCE = (
    "Excerpts from the Python standard library, Copyright (c) 2001 Python Software Foundation; All Rights Reserved. "
    "Licensed under the PSF License Agreement, https://docs.python.org/3/license.html. "
    "Unchanged but for being cut into pieces."
)


def cut_evaluation_text() -> dict:
    """Pieces of 513 bytes from the held-out files; none shares a line of 40 characters with the training text."""
    seen = b"".join(content for name, content in byte_lm.stdlib_files() if not byte_lm.is_held_out(name))
    pieces = []
    for name, content in byte_lm.stdlib_files():
        if byte_lm.is_held_out(name) and len(content) >= 4 * (LENGTH + 1) and content.isascii():
            starts = range(0, len(content) - LENGTH, max(LENGTH + 1, len(content) // PER_FILE))
            pieces += [(name, content[start : start + LENGTH + 1]) for start in starts]
    fresh = [(name, piece) for name, piece in pieces if not shares_line(piece, seen)]
    kept = [fresh[i * len(fresh) // WINDOWS] for i in range(WINDOWS)]
    return {
        "licence": LICENCE,
        "python": platform.python_version(),
        "files": [name for name, _ in kept],
        "windows": [piece.decode("ascii") for _, piece in kept],
    }


def shares_line(piece: bytes, seen: bytes) -> bool:
    return any(len(line.strip()) >= 40 and line.strip() in seen for line in piece.split(b"\n")[1:-1])


def attend_stale(q: Tensor, k: Tensor, v: Tensor, scheme: Scheme) -> Tensor:
    """The cache holds *turned* keys: token i, query and key alike, was turned by the frequencies of length i + 1."""
    if scheme.frequencies is None:
        raise ValueError("scheme must have frequencies, got None")
    own = torch.stack([scheme.frequencies(i + 1, q.device) for i in range(q.shape[2])])  # (seq, dim/2)
    angles = torch.arange(q.shape[2], device=q.device).unsqueeze(-1) * own
    cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
    q, k = (rotate(x, cos, sin, layout=scheme.layout) for x in (q, k))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def rows_of(model: byte_lm.ByteLM, windows: Tensor, config: byte_lm.Config, seed: int) -> list[dict]:
    """Every method at the training length and at 8 times that; other factors; two ways to decode."""
    rows = []
    for name, plan in byte_lm.plans(config, FACTOR).items():
        for length in (config.length, LENGTH):
            rows.append({"seed": seed, "method": name, "length": length, **measure(model, windows, length, plan)})
    for factor in SWEEP:
        plan = (scheme("ntk-aware", dim=config.head_dim, factor=factor),) * config.layers
        found = measure(model, windows, LENGTH, plan)
        rows.append({"seed": seed, "method": f"ntk-aware-{factor}", "length": LENGTH, **found})
    growing = byte_lm.plans(config, FACTOR)["dynamic-ntk"]
    for name, attend in (("cache-turned", attend_stale), ("cache-raw", byte_lm.attend_raw)):
        found = measure(model, windows, LENGTH, growing, attend=attend)
        rows.append({"seed": seed, "method": name, "length": LENGTH, **found})
    return rows


def trained_and_tested(
    seed: int, config: byte_lm.Config, windows: Tensor, shipped: Path
) -> dict[str, list[dict[str, Any]]]:
    """A training, whose model is kept for seed 0, and what the model does."""
    model, begin = byte_lm.build(config, seed), time.perf_counter()
    losses = byte_lm.train(model, training_text(), config, seed)
    seconds = time.perf_counter() - begin
    byte_lm.round_weights(model)  # what is tested is what the file holds
    if seed == 0:
        shipped.parent.mkdir(parents=True, exist_ok=True)
        write_whole(shipped, lambda unfinished: byte_lm.save(model, unfinished))
    training = {
        "seed": seed,
        "seconds": round(seconds, 1),
        "first_losses": [round(x, 5) for x in losses[:REHEARSAL_STEPS]],
        "last_50_steps": round(sum(losses[-50:]) / len(losses[-50:]), 4),
    }
    return {"training": [training], "rows": rows_of(model, windows, config, seed)}


def measure_all(seeds: Sequence[int], config: byte_lm.Config, windows: Tensor, out: Path, fresh: bool) -> None:
    text = training_text()
    settings = {
        "parameters": sum(weight.numel() for weight in byte_lm.build(config, 0).parameters()),
        "config": asdict(config),
        "factor": FACTOR,
        "chosen": "learning rate out of 0.001, 0.003, 0.006 on seed 0, by its loss at length 64 on held-out files",
        "training_text": {"bytes": len(text), "sha256": digest(text)},
        "test_text": about(windows),
        "rehearsal": rehearsal(config, windows),
    }
    result = Result(out / "radix.json", "radix", settings, {"training": [], "rows": []}, fresh)
    for seed in seeds:
        if result.lacks("rows", seed=seed):
            result.add(**trained_and_tested(seed, config, windows, out / "radix_byte_lm.safetensors"))
    result.close()


def rehearsal(config: byte_lm.Config, windows: Tensor) -> list[float]:
    """The first losses when the model trains on the stored test text instead: the same on every Python version."""
    text = windows.flatten().to(torch.uint8)
    return [round(x, 5) for x in byte_lm.train(byte_lm.build(config, 0), text, config, 0, steps=REHEARSAL_STEPS)]


def cut_text(out: Path) -> None:
    path = out / "radix_eval_text.json"
    out.mkdir(parents=True, exist_ok=True)
    write_results(path, cut_evaluation_text())
    print(f"written: {path}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("experiments radix", __doc__)
    parser.add_argument("--text", action="store_true", help="only cut the test text")
    command.add_seeds(parser, SEEDS)
    command.add_places(parser, models=False)
    command.add_fresh(parser)
    command.add_try(parser, "steps", "windows")
    options = command.parse(parser, arguments)
    command.check_alone(parser, options, "text", ("out", "store"))
    if options.text:
        return command.run(parser.prog, lambda: cut_text(options.out))
    config, windows = with_steps(byte_lm.Config(), options.steps), evaluation_windows(options.windows)
    return command.run(parser.prog, lambda: measure_all(options.seeds, config, windows, options.out, options.fresh))


if __name__ == "__main__":
    sys.exit(main())
