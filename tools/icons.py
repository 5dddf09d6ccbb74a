"""The icons of the theme that the pages use, without the two thousand others: 1.4 MB less on a first visit."""

from __future__ import annotations

import re
from pathlib import Path

# ``name:[width,height,[other names],"code","path"]``; an icon in two tones has a list of paths.
ICON = r'(?:"[\w-]+"|[\w$]+):\[\d+,\d+,\[[^\]]*\],"[0-9a-f]*",(?:"[^"]*"|\[[^\]]*\])\]'
ICONS = re.compile(rf"\{{{ICON}(?:,{ICON})*\}}")
NAMES = re.compile(r'^"?([\w$-]+)"?:\[\d+,\d+,\[([^\]]*)\]')


def used(folder: Path, script: Path) -> set[str]:
    """The names of icons in pages and scripts, but for the script with all of them."""
    files = [*folder.rglob("*.html"), *(path for path in folder.rglob("*.js") if path != script)]
    return {name for path in files for name in re.findall(r"\bfa-([a-z0-9-]+)", path.read_text("utf8"))}


def keep(program: str, names: set[str]) -> str:
    """The program with these icons only.

    >>> keep('a={bell:[1,2,[],"f0","M0"],"x-y":[1,2,["z"],"f1","M1"],old:[1,2,[],"f2",["M2","M3"]]}', {"z", "bell"})
    'a={bell:[1,2,[],"f0","M0"],"x-y":[1,2,["z"],"f1","M1"]}'
    """

    def filtered(found: re.Match[str]) -> str:
        return "{" + ",".join(icon for icon in re.findall(ICON, found[0]) if _names(icon) & names) + "}"

    return ICONS.sub(filtered, program)


def _names(icon: str) -> set[str]:
    found = NAMES.match(icon)
    assert found
    return {found[1], *re.findall(r'"([^"]+)"', found[2])}


def shrink(folder: Path) -> None:
    """In the built book."""
    script = folder / "_static" / "scripts" / "fontawesome.js"
    script.write_text(keep(script.read_text("utf8"), used(folder, script)), "utf8")
