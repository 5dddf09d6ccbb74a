"""The address of the public repository stands in one place, ``_config.yml``; everything else is derived from it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import yaml

from tools import address, project
from tools.project import ROOT

# Owner and name of anything that is called like this project.
OURS = re.compile(
    r"(?:github\.com/|githubusercontent\.com/|research\.google\.com/github/)([\w-]+/[\w.-]*rope[-_]lessons[\w-]*)", re.I
)
PAGES = re.compile(r"([\w-]+)\.github\.io/([\w-]*rope[-_]lessons[\w-]*)", re.I)


def texts() -> dict[str, str]:
    found = {}
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if path.is_file() and not any(p in (".git", ".venv", "_build", "__pycache__", "build") or p.endswith((
            "_cache", ".egg-info")) for p in parts):  # fmt: skip
            try:
                found["/".join(parts)] = path.read_text("utf8")
            except UnicodeDecodeError:
                continue
    return found


def test_no_other_address() -> None:
    slug = "/".join(project.address().split("/")[-2:])
    wrong = {
        (name, match[0])
        for name, text in texts().items()
        for match in [*OURS.finditer(text), *PAGES.finditer(text)]
        if "/".join(match.groups()) != slug and not name.startswith("tests/book/test_address")
    }
    assert not wrong


def test_address_stands_only_where_the_command_writes_it() -> None:
    written = {"_config.yml", *address.FILES}
    elsewhere = {
        name for name, text in texts().items() if (OURS.search(text) or PAGES.search(text)) and name not in written
        and not name.startswith(("book/notebooks/", "tests/book/test_address"))
    }  # fmt: skip
    assert not elsewhere


def test_one_command_moves_everything(tmp_path: Path) -> None:
    """Another address in ``_config.yml``, then the command: no trace of the old one is left."""
    for name in ["_config.yml", *address.FILES]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    old = project.address()
    config = (tmp_path / "_config.yml").read_text("utf8").replace(old, "https://github.com/someone/else")
    (tmp_path / "_config.yml").write_text(config, "utf8")
    address.rewrite(tmp_path)
    for name in address.FILES:
        text = (tmp_path / name).read_text("utf8")
        assert not OURS.search(text), name
        assert not PAGES.search(text), name
    assert "https://github.com/someone/else" in (tmp_path / "README.md").read_text("utf8")
    assert "https://someone.github.io/else" in (tmp_path / "README.md").read_text("utf8")
    citation = yaml.safe_load((tmp_path / "CITATION.cff").read_text("utf8"))
    assert citation["repository-code"] == "https://github.com/someone/else"
