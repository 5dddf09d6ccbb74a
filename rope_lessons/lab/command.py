"""What the command lines of this package and of the experiments share."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from rope_lessons._extras import extra
from rope_lessons.stored import Refusal

EXPECTED = (Refusal, ValueError, TypeError, ImportError, OSError)  # the message says all; an OSError names the file


def run(name: str, command: Callable[[], object]) -> int:
    """Do a command, with one line instead of a traceback for what can go wrong.

    Args:
        name: of the command, for the message.
        command: does it.

    Returns:
        the exit status, 0 if it was done, 130 if it was interrupted, otherwise 1.

    >>> run("python -m example", lambda: print("done"))
    done
    0
    """
    try:
        command()
        return 0
    except EXPECTED as error:
        told = str(error)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        told = f"this takes too much memory: {error}"
    except KeyboardInterrupt:
        print(f"{name}: interrupted. The same command goes on from what is kept", file=sys.stderr)
        return 130
    print(f"{name}: {told}", file=sys.stderr)
    return 1


def _is_out_of_memory(error: BaseException) -> bool:
    """PyTorch has an error of its own for a GPU only."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def check_extra() -> None:
    """Find out before hours of work that a package is missing: for progress, for checkpoints, or for locks.

    Raises:
        ImportError: one of them is missing.
    """
    with extra("lab", "this command"):
        import filelock  # noqa: F401
        import safetensors  # noqa: F401
        import tqdm  # noqa: F401
