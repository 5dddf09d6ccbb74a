"""What the package promises: the names of the front door and those that the chapters' modules define."""

from __future__ import annotations

import inspect
from typing import Any

import rope_lessons as rl


def defined(module: Any) -> dict[str, Any]:
    """The functions and classes of a module, but for its checks, which serve its neighbours."""
    return {
        name: thing
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", None) == module.__name__ and not name.startswith(("_", "check_"))
    }


MODULES = {name: thing for name in rl.__all__ if inspect.ismodule(thing := getattr(rl, name))}
CHAPTERS = [module for module in MODULES.values() if module not in (rl.nn, rl.schemes, rl.hf)]
FLAT = {name: getattr(rl, name) for name in rl.__all__ if name not in MODULES}
PUBLIC: dict[str, Any] = {
    **FLAT,
    **{name: thing for module in CHAPTERS for name, thing in defined(module).items()},
    "SCHEMES": rl.schemes.SCHEMES,
    "nn": rl.nn,
}
