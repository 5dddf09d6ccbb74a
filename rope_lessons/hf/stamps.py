"""Which plan has turned the keys of a cache.

transformers keeps keys as a model has turned them, and nothing in a cache says how. So once a model was extended, each
cache that it fills is stamped with its plan, and one with the keys of another plan is refused. That holds after
:func:`~rope_lessons.hf.restore` too: a cache may outlive the plan. A cache without a stamp is from before the first
plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rope_lessons.hf.request import given
from rope_lessons.schemes import Plan

STAMP = "rope_lessons_plan"  # attribute of a cache


@dataclass
class Stamps:
    """What a model stamps its caches with. Its methods are hooks of the model's calls.

    Args:
        own: the stamp of the model as it was loaded.
        now: that of the plan that it has.
    """

    own: str
    now: str

    def before(self, base: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Refuse the keys of another plan; stamp an empty cache."""
        cache = given(base, arguments, options).get("past_key_values")
        if cache is None:
            return
        # The length is asked for once for each cache: a static one on a GPU has to be waited for.
        if getattr(cache, STAMP, self.own) != self.now and (held := int(cache.get_seq_length())):
            raise ValueError(
                f"past_key_values must be a cache that was made under the model's present plan, got one with {held} "
                "tokens of another: begin a new one (rl.hf.extend, restore or the end of rl.hf.using has changed the "
                "plan since)"
            )
        setattr(cache, STAMP, self.now)

    def after(self, base: Any, arguments: tuple[Any, ...], output: Any) -> None:
        """Stamp a cache that the model has made itself."""
        for part in output.values() if isinstance(output, dict) else output:
            if hasattr(part, "get_seq_length"):
                setattr(part, STAMP, self.now)


def stamp(base: Any, own: Plan, through: str, plan: Plan) -> None:
    """From here on a model has this plan. Its hooks come first: others may change a cache.

    Args:
        base: the ``base_model`` of a model of transformers.
        own: its plan as it was loaded.
        through: how the plan gets into it, which decides what a cache keeps.
        plan: the plan.
    """
    if not hasattr(base, "rope_lessons_stamps"):
        base.rope_lessons_stamps = stamps = Stamps(_text("config", own), "")
        base.register_forward_pre_hook(stamps.before, with_kwargs=True)
        base.register_forward_hook(stamps.after)
    base.rope_lessons_stamps.now = _text(through, plan)


def _text(through: str, plan: Plan) -> str:
    return f"{through}: {plan!r}"  # a scheme prints itself whole
