"""Chapter 15: what released models do, put into a model that was not trained for it, and the controls.

    python -m experiments put_in

Takes about a minute on one CPU core. Nothing is trained.

Writes put_in.json: for each recipe its four layers, and what the scoreboard's model (plain RoPE, 64 bytes, the seed
that is shipped) has right with them, in percent, on all test documents.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments import command
from experiments.result import Result
from rope_lessons.schemes import LogN, Plan, scheme
from rope_lessons.scoreboard import live

DIM, HOME, FACTOR = 32, 64, 8.0  # channels of a head, bytes of the training, and how many times as long the texts are
ASKED = (("natural", HOME), ("natural", 512), ("far copies", 512), ("needle", HOME), ("needle", 512))


def recipes() -> dict[str, Plan]:
    """Four layers for each. The second and third are those that look far in this model (chapter 12)."""
    rope, bare = scheme("rope", dim=DIM), scheme("nope")
    near = scheme("window", dim=DIM, visible_window=HOME)
    llama = scheme("llama3", dim=DIM, factor=FACTOR, train_length=HOME)
    yarn = scheme("yarn", dim=DIM, factor=FACTOR, train_length=HOME)
    outer, calm = yarn.replace(visible_window=HOME), yarn.replace(rotary_scale=1.0)
    loud = rope.replace(rotary_scale=yarn.rotary_scale)
    late = scheme("yarn", dim=DIM, factor=FACTOR, train_length=HOME, beta_fast=4.0)
    bent = scheme("rerope", dim=DIM, window=32)
    log = LogN(HOME, clip=True)
    return {
        "Llama 3.1: its rule in all layers": (llama,) * 4,
        "Qwen3: YaRN in all layers": (yarn,) * 4,
        "Devstral 2: YaRN, beta_fast 4, in all": (late,) * 4,
        "Mistral v0.1: windows in all layers": (near,) * 4,
        "Olmo 3.1: windows, YaRN in 2 layers": (near, yarn, yarn, near),
        "the same, beta_fast 4, in 2 layers": (near, late, late, near),
        "Command A: windows, no positions in 2": (near, bare, bare, near),
        "no maker yet: windows, ReRoPE in 2": (near, bent, bent, near),
        "the same, log n†": (near, *[bent.replace(scale=log)] * 2, near),
        "control: windows, RoPE in 2": (near, rope, rope, near),
        "control: Olmo 3.1 without YaRN's scale": (near, calm, calm, near),
        "control: windows, RoPE and the scale in 2": (near, loud, loud, near),
        "control: YaRN in 2, log n†": (near, *[yarn.replace(scale=log)] * 2, near),
        "control: YaRN in 2, RoPE elsewhere": (rope, yarn, yarn, rope),
        "control: ReRoPE in 2, RoPE elsewhere": (rope, bent, bent, rope),
        "Command A: windows, no positions in 1": (near, near, near, bare),
        "control: ReRoPE in all layers": (bent,) * 4,
        "control: ReRoPE in all layers, log n†": (bent.replace(scale=log),) * 4,
        "control: YaRN in all, windows in the rest": (outer, yarn, yarn, outer),
        "control: Devstral 2 without its scale": (late.replace(rotary_scale=1.0),) * 4,
        "control: nothing changed": (rope,) * 4,
    }


def measure(out: Path, fresh: bool) -> None:
    model, texts = live.load(), live.windows()
    settings = {"home": HOME, "documents": len(texts), "needles": len(live.Settings().depths) * len(texts)}
    result = Result(out / "put_in.json", "put_in", settings, {"rows": []}, fresh)
    for name, plan in recipes().items():
        if result.lacks("rows", recipe=name):
            layers = [repr(layer) for layer in plan]
            result.add(
                rows=[
                    {"recipe": name, "layers": layers, "metric": metric, "length": length,
                     "right": round(live.percent(model, plan, texts, length, metric), 2)}
                    for metric, length in ASKED
                ]
            )  # fmt: skip
    result.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("experiments put_in", __doc__)
    command.add_places(parser, models=False)
    command.add_fresh(parser)
    options = command.parse(parser, arguments)
    return command.run(parser.prog, lambda: measure(options.out, options.fresh))


if __name__ == "__main__":
    sys.exit(main())
