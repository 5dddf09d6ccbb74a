"""Write the files of a release into ``dist``: ``python -m tools.release [TAG]``, after ``make book``.

The source archive, the wheel that is built from it, the book to be read offline, the cheat sheet as a PDF, and the
checksums of all of them. With a tag, its version must be that of the package.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import rope_lessons as rl
from tools.cheat_sheet import print_sheet
from tools.project import ROOT

CHECKSUMS = "SHA256SUMS"


def build_package(sources: Path, out: Path) -> tuple[Path, Path]:
    """The source archive, and the wheel that is built from the archive alone.

    Args:
        sources: a checkout.
        out: a folder, empty.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy, unpacked = Path(folder) / "copy", Path(folder) / "unpacked"
        copy_checkout(sources, copy)
        _setuptools("build_sdist", copy, out)
        (archive,) = out.glob("*.tar.gz")
        shutil.unpack_archive(archive, unpacked, filter="data")
        _setuptools("build_wheel", next(unpacked.iterdir()), out)
    (wheel,) = out.glob("*.whl")
    return archive, wheel


def copy_checkout(sources: Path, out: Path, without: Sequence[str] = ()) -> None:
    """To build in: that leaves files behind, and what earlier builds have left would be taken for sources."""
    left = (".*", "_build", "build", "dist", "*.egg-info", "__pycache__", *without)
    shutil.copytree(sources, out, ignore=shutil.ignore_patterns(*left))


def _setuptools(what: str, sources: Path, out: Path) -> None:
    program = f"import sys; from setuptools import build_meta; build_meta.{what}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(out)], cwd=sources, check=True, stdout=subprocess.DEVNULL)


def pack_book(html: Path, out: Path) -> Path:
    """The built pages as an archive; they load nothing from the network."""
    if not (html / "index.html").exists():
        raise SystemExit(f"there is no book in {html}: make book builds it")
    name = f"rope-lessons-book-{rl.__version__}"
    return Path(shutil.make_archive(str(out / name), "zip", html))


def write_checksums(dist: Path) -> Path:
    """A line for each file, as ``sha256sum --check`` reads them."""
    files = sorted(path for path in dist.iterdir() if path.name != CHECKSUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (dist / CHECKSUMS).write_text("".join(lines), "utf8")
    return dist / CHECKSUMS


def main(arguments: list[str] | None = None, root: Path = ROOT) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument(
        "tag", nargs="?", default=f"v{rl.__version__}", help="that the release has, for example %(default)s"
    )
    tag = parser.parse_args(arguments).tag
    if tag != f"v{rl.__version__}":
        parser.error(f"argument tag: must be v{rl.__version__}, as rope_lessons.__version__ says, got {tag!r}")
    dist = root / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    html, sheet = root / "_build" / "html", dist / f"rope-lessons-cheat-sheet-{rl.__version__}.pdf"
    book = pack_book(html, dist)
    print_sheet(html, sheet)
    for path in (book, sheet, *build_package(root, dist), write_checksums(dist)):
        print(f"wrote {path.relative_to(root)}")


if __name__ == "__main__":
    main()
