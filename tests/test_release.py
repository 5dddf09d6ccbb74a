"""What ``python -m tools.release`` writes. What is in the package's files: tests/test_wheel.py."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import rope_lessons as rl
from tools.project import ROOT
from tools.release import main


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A toy of a checkout, with a book of one page and files of an earlier release."""
    html = tmp_path / "_build" / "html"
    html.mkdir(parents=True)
    (html / "index.html").write_text("a book", "utf8")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "rope_lessons-0.0.1.tar.gz").write_text("old", "utf8")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "toy"\nversion = "7"\n', "utf8")
    (tmp_path / "toy.py").write_text("", "utf8")
    return tmp_path


def test_release(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([f"v{rl.__version__}"], checkout)
    book = f"rope-lessons-book-{rl.__version__}.zip"
    written = [book, "toy-7.tar.gz", "toy-7-py3-none-any.whl"]
    assert capsys.readouterr().out.splitlines() == [f"wrote dist/{name}" for name in written]
    assert {path.name for path in (checkout / "dist").iterdir()} == set(written)
    assert not (checkout / "toy.egg-info").exists()
    with zipfile.ZipFile(checkout / "dist" / book) as archive:
        assert archive.read("index.html") == b"a book"


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
    assert '"dist/rope-lessons-book-*"' in workflow
