"""What ``python -m tools.release`` writes. What is in the package's files: tests/test_wheel.py."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

import rope_lessons as rl
from tools.cheat_sheet import print_sheet
from tools.project import ROOT
from tools.release import CHECKSUMS, main


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A toy of a checkout, with a book of one page and files of an earlier release."""
    html = tmp_path / "_build" / "html"
    html.mkdir(parents=True)
    (html / "index.html").write_text("a book", "utf8")
    (html / "book").mkdir()
    (html / "book" / "cheat_sheet.html").write_text("<p>a sheet</p>", "utf8")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "rope_lessons-0.0.1.tar.gz").write_text("old", "utf8")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "toy"\nversion = "7"\n', "utf8")
    (tmp_path / "toy.py").write_text("", "utf8")
    return tmp_path


@pytest.mark.skipif(os.environ.get("ROPE_LESSONS_NO_BROWSER") == "1", reason="ROPE_LESSONS_NO_BROWSER=1")
@pytest.mark.browser
def test_release(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([f"v{rl.__version__}"], checkout)
    book = f"rope-lessons-book-{rl.__version__}.zip"
    sheet = f"rope-lessons-cheat-sheet-{rl.__version__}.pdf"
    written = [book, sheet, "toy-7.tar.gz", "toy-7-py3-none-any.whl", CHECKSUMS]
    assert capsys.readouterr().out.splitlines() == [f"wrote dist/{name}" for name in written]
    assert {path.name for path in (checkout / "dist").iterdir()} == set(written)
    assert not (checkout / "toy.egg-info").exists()
    with zipfile.ZipFile(checkout / "dist" / book) as archive:
        assert archive.read("index.html") == b"a book"
    assert (checkout / "dist" / sheet).read_bytes().startswith(b"%PDF")
    sums = dict(reversed(line.split("  ")) for line in (checkout / "dist" / CHECKSUMS).read_text("utf8").splitlines())
    assert set(sums) == set(written) - {CHECKSUMS}
    for name, digest in sums.items():
        assert hashlib.sha256((checkout / "dist" / name).read_bytes()).hexdigest() == digest


def test_no_sheet_without_its_page(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no cheat sheet in .*: make book builds it"):
        print_sheet(tmp_path, tmp_path / "x.pdf")


def test_no_release_without_a_book(checkout: Path) -> None:
    (checkout / "_build" / "html" / "index.html").unlink()
    with pytest.raises(SystemExit, match=r"there is no book in .*html: make book builds it"):
        main([], checkout)


def test_the_package_has_a_name_with_its_version(release: tuple[Path, Path]) -> None:
    """The release workflow finds the files by these names."""
    assert [path.name for path in release] == [
        f"rope_lessons-{rl.__version__}.tar.gz",
        f"rope_lessons-{rl.__version__}-py3-none-any.whl",
    ]
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf8")
    assert '"dist/rope_lessons-*"' in workflow
    for name in ("rope-lessons-book-*", "rope-lessons-cheat-sheet-*", CHECKSUMS):
        assert f"dist/{name}\n" in workflow
