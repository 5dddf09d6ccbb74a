"""A model with a plan, saved and loaded: the plan stands in ``config.json``, and nothing loads it without the plan.

In the file the model's rope type is ``"rope_lessons"``, which transformers does not know: it refuses the model instead
of reading it with other positions. Below ``rope_lessons`` stand the plan and the model's own rope parameters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rope_lessons._checks import shown
from rope_lessons._extras import extra
from rope_lessons.schemes import FrequencySpec, LogN, Plan, Scheme
from rope_lessons.stored import write_whole

KEY = "rope_lessons"  # in config.json, and the rope type there
ROPE = "rope_parameters"


def as_dict(scheme: Scheme) -> dict[str, Any]:
    """A scheme in JSON's types: what is not the default.

    >>> as_dict(Scheme(FrequencySpec("rope", dim=8), window=4, slope=0.0))
    {'frequencies': {'kind': 'rope', 'dim': 8, 'base': 10000.0}, 'window': 4, 'slope': 0.0}
    """
    said = {f.name: getattr(scheme, f.name) for f in fields(scheme) if getattr(scheme, f.name) != f.default}
    if scheme.frequencies is not None:
        said["frequencies"] = {"kind": scheme.frequencies.kind, **dict(scheme.frequencies.options)}
    if scheme.scale is not None:
        said["scale"] = asdict(scheme.scale)
    return said


def from_dict(said: Mapping[str, Any]) -> Scheme:
    """The inverse of :func:`as_dict`.

    Raises:
        TypeError, ValueError: something that is no scheme.
    """
    if not isinstance(said, Mapping):
        raise TypeError(f"a layer of a plan must be a dictionary, got {shown(said)}")
    knobs = dict(said)
    if knobs.get("frequencies") is not None:
        knobs["frequencies"] = FrequencySpec(**knobs["frequencies"])
    if knobs.get("scale") is not None:
        knobs["scale"] = LogN(**knobs["scale"])
    return Scheme(**knobs)


def save(model: Any, plan: Plan, save_directory: Any, *arguments: Any, **options: Any) -> None:
    """``model.save_pretrained`` of a model with a plan."""
    type(model).save_pretrained(model, save_directory, *arguments, **options)
    path = Path(save_directory) / "config.json"
    config = json.loads(path.read_text("utf8"))
    own = config.get(ROPE)
    config[KEY] = {"plan": [as_dict(layer) for layer in plan], ROPE: own}
    by_type = isinstance(own, dict) and all(isinstance(rope, dict) for rope in own.values())  # of layers
    config[ROPE] = {name: {"rope_type": KEY} for name in own} if by_type else {"rope_type": KEY}
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    write_whole(path, lambda whole: Path(whole).write_text(text, "utf8"))


def read(folder: Any) -> tuple[Any, Plan]:
    """The config that a model was made with, and the plan beside it."""
    with extra("hf", "a model of Hugging Face"):
        from transformers import CONFIG_MAPPING
    path = Path(folder) / "config.json"
    config = json.loads(path.read_text("utf8"))
    if not isinstance(config.get(KEY), dict) or not {"plan", ROPE} <= config[KEY].keys():
        raise ValueError(
            f"{path} must have a plan under {KEY!r}, which is written where a plan needs attention of this package; "
            "got none: AutoModelForCausalLM.from_pretrained loads this model"
        )
    said = config.pop(KEY)
    config[ROPE] = said[ROPE]
    plan = tuple(from_dict(layer) for layer in said["plan"])
    return CONFIG_MAPPING[config.pop("model_type")].from_dict(config), plan
