"""What a user's type checker and editor know of ``rl.scheme``: its names, and the options that go with them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

from rope_lessons import Scheme, schemes
from rope_lessons.kinds import KINDS
from tools.project import ROOT

PROGRAM = """
import rope_lessons as rl

right = rl.scheme("rope", dim=64)
rl.scheme("yarn", dim=64, base=5e5, factor=8, train_length=4096, beta_fast=16)
rl.scheme("longrope", dim=4, short_factor=[1, 1], long_factor=(1, 2), train_length=64, rotary_scale=1.1)
rl.scheme("rerope", dim=64, window=512, scale=rl.LogN(512), layout="interleaved", causal=False)
rl.scheme("alibi", scale=rl.LogN(512))
for name in ("pi", "ntk-aware"):
    rl.scheme(name, dim=64, factor=8)
reveal_type(right)
"""
WRONG = (
    'rl.scheme("invleeky", dim=64)',
    'rl.scheme("rope", head_dim=64)',
    'rl.scheme("rope")',
    'rl.scheme("nope", dim=64)',
    'rl.scheme("pi", dim=64, factor="8")',
)


def test_a_users_program(tmp_path: Path) -> None:
    """``mypy --strict`` refuses the wrong lines and no other. Imports of other packages are not followed: to check all
    of PyTorch takes a minute."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + "\n".join(WRONG), "utf8")
    package = [str(ROOT / "rope_lessons" / name) for name in ("__init__.py", "schemes.py")]
    options = ["--strict", "--follow-imports=skip", "--config-file=", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *options, *package, str(program)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert 'note: Revealed type is "rope_lessons.schemes.Scheme"' in said
    refused = re.findall(rf"{program.name}:(\d+): error:", said)
    lines = (PROGRAM + "\n".join(WRONG)).splitlines()
    assert {lines[int(number) - 1] for number in refused} == set(WRONG)


def test_names_are_those_of_the_table() -> None:
    turning = [name for name, row in schemes.NAMED.items() if row.kind is not None]
    assert list(get_args(schemes.TurningName)) == turning
    assert list(get_args(schemes.StillName)) == [name for name in schemes.SCHEMES if name not in turning]


def test_options_are_those_of_the_table() -> None:
    """With the types that they have where they are defined."""
    knobs = {name: kind for name, kind in get_type_hints(Scheme).items() if name != "frequencies"}
    assert get_type_hints(schemes._Knobs) == knobs
    wanted = knobs | {
        name: kind
        for row in KINDS.values()
        for name, kind in get_type_hints(row.function).items()
        if name in row.defaults and name not in ("dim", "base")
    }
    assert get_type_hints(schemes._Options) == wanted
    options = {option for name in schemes.SCHEMES for option in schemes.options_of(name)}
    assert wanted.keys() - knobs.keys() == options - knobs.keys() - {"dim", "base"}


def test_all_but_the_tests_themselves_is_checked() -> None:
    """``make lint`` checks the types of the package, of what measures and builds, and of what tests share."""
    settings = (ROOT / "pyproject.toml").read_text("utf8").partition("[tool.mypy]\nfiles = [")[2].partition("\n]")[0]
    checked = {file for name in re.findall('"(.*?)"', settings) for file in [ROOT / name, *(ROOT / name).rglob("*.py")]}
    folders = ("rope_lessons", "experiments", "tools", "tests")
    found = {file for name in folders for file in (ROOT / name).rglob("*.py")}
    assert {file for file in found - checked if not file.name.startswith("test_")} == {ROOT / "tests" / "__init__.py"}
