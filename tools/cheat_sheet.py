"""Print the cheat sheet: ``python -m tools.cheat_sheet OUT.pdf``, after ``make book``.

The page's own print style lays it out, two sheets of A4; Chromium prints it.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

import rope_lessons as rl
from tools.project import ROOT, pages_address

PAGE = Path("book") / "cheat_sheet.html"
FOOT = (
    '<div style="font:7pt sans-serif;width:100%;margin:0 10mm;display:flex;justify-content:space-between">'
    f"<span>RoPE Lessons {rl.__version__} · {pages_address()}</span>"
    '<span><span class="pageNumber"></span> of <span class="totalPages"></span></span></div>'
)


def print_sheet(html: Path, out: Path) -> None:
    """Write the PDF.

    Args:
        html: the folder of the built book.
        out: the file.
    """
    from playwright.sync_api import sync_playwright

    page = html.resolve() / PAGE
    if not page.exists():
        raise SystemExit(f"there is no cheat sheet in {html}: make book builds it")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not program:
        raise SystemExit("no chromium on this machine: install it, or set CHROMIUM to one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page(color_scheme="light")
        tab.goto(page.as_uri(), wait_until="load")
        tab.evaluate("async () => { if (window.MathJax && MathJax.startup) await MathJax.startup.promise; }")
        tab.pdf(
            path=str(out), prefer_css_page_size=True, print_background=True, display_header_footer=True,
            header_template="<span></span>", footer_template=FOOT,
        )  # fmt: skip
        browser.close()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.cheat_sheet", description=__doc__)
    parser.add_argument("out", type=Path, help="the PDF")
    parser.add_argument("--book", type=Path, default=ROOT / "_build" / "html", help="the folder of the built book")
    chosen = parser.parse_args(arguments)
    print_sheet(chosen.book, chosen.out)
    print(f"wrote {chosen.out}")


if __name__ == "__main__":
    main()
