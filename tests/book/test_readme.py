"""The README's picture is the book's: same size, and its alt text stands in the README. (Its examples are doctests.)"""

from __future__ import annotations

import struct

from tools import picture
from tools.project import ROOT


def size(png: bytes) -> tuple[int, int]:
    return struct.unpack(">II", png[16:24])


def test_picture() -> None:
    figure = picture.picture()
    assert f"![{figure.alt}]({picture.PATH.relative_to(ROOT)})" in (ROOT / "README.md").read_text("utf8")
    assert size(figure.png()) == size(picture.PATH.read_bytes())


def test_commands_are_those_of_the_makefile() -> None:
    """The raw commands in the README are what the Makefile runs."""
    readme, makefile = ((ROOT / name).read_text("utf8") for name in ("README.md", "Makefile"))
    commands = [
        line.split("python -m pytest")[1] for line in readme.splitlines() if line.startswith("python -m pytest")
    ]
    targets = [line.split("$(PYTEST)")[1] for line in makefile.splitlines() if "$(PYTEST)" in line]
    assert len(commands) == 3
    assert commands == targets
