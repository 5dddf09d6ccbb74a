"""Steps that end in every way, for the tests of the queue: a process of its own must be able to import them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from experiments.gpu.step import Found, OutOfTime, Setting


def good(setting: Setting, log: Path, name: str) -> Found:
    """Writes down that it was done, and by which process."""
    with log.open("a") as file:
        file.write(f"{name} {os.getpid()}\n")
    return Found({"rows": [{"name": name, "seconds": [1.0, 2.0]}]}, {"seeds": [0]}, {"more.bin": b"\0\1"})


def raises(setting: Setting) -> Found:
    raise RuntimeError("an illegal memory access was encountered")


def wrong(setting: Setting) -> Found:
    return Found({"rows": [{"name": "wrong"}]}, wrong=["1 is not 2"])


def dies(setting: Setting) -> Found:
    os._exit(7)


def stops(setting: Setting) -> Found:
    raise OutOfTime


def hangs(setting: Setting) -> Found:
    time.sleep(600)
    return Found()


def large(setting: Setting) -> Found:
    return Found(files={"large.bin": os.urandom(2**12)})


def meets(setting: Setting, own: Path, other: Path) -> Found:
    """Waits until the other one has begun too."""
    own.touch()
    until = time.monotonic() + 50
    while not other.exists():
        if time.monotonic() > until:
            return Found(wrong=["it was alone"])
        time.sleep(0.05)
    return Found()
