"""Write the repository's address from ``_config.yml`` into the files that cannot read it: ``python -m tools.address``.

The notebooks get it when they are generated (``make address`` does both).
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tools.project import ROOT, address

FILES = (
    "README.md", "CITATION.cff", "pyproject.toml", "CHANGELOG.md",
    "book/index.md", "book/quickstart.md", "book/cheat_sheet.md", "book/bug_museum.md",
)  # fmt: skip


def written_address(root: Path) -> str:
    """The address that the last run wrote: ``pyproject.toml`` remembers it."""
    match = re.search(r'^Repository = "(.+)"$', (root / "pyproject.toml").read_text("utf8"), re.MULTILINE)
    if match is None:
        raise ValueError("pyproject.toml has no line Repository = …")
    return match[1]


def rewrite(root: Path = ROOT) -> None:
    (old_owner, old_name), (owner, name) = (url.split("/")[-2:] for url in (written_address(root), address(root)))
    for file in FILES:
        text = (root / file).read_text("utf8")
        text = text.replace(f"{old_owner}.github.io/{old_name}", f"{owner}.github.io/{name}")
        text = text.replace(f"{old_owner}/{old_name}", f"{owner}/{name}")
        (root / file).write_text(text, "utf8")


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tools.address", description=__doc__).parse_args()
    rewrite()
    print(f"the address is {address()} everywhere")
