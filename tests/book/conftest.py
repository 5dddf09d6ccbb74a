"""The built book, a server for it on localhost, and one headless Chromium."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, sync_playwright

from tools.project import ROOT


@pytest.fixture(scope="session")
def html(testrun_uid: str) -> Path:
    """The HTML, built from the tree as it is."""
    built = ROOT / "_build" / "built_for_tests"
    built.parent.mkdir(exist_ok=True)
    with FileLock(ROOT / "_build" / "test.lock"):  # several workers, one build
        if not built.exists() or built.read_text("utf8") != testrun_uid:
            done = subprocess.run([sys.executable, "-m", "tools.build"], cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, f"the book does not build:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
            built.write_text(testrun_uid, "utf8")
    return ROOT / "_build" / "html"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="session")
def server(html: Path) -> Iterator[str]:
    handler = functools.partial(QuietHandler, directory=str(html))
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://localhost:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if os.environ.get("ROPE_LESSONS_NO_BROWSER") == "1":
        pytest.skip("ROPE_LESSONS_NO_BROWSER=1: the pages are not opened in a browser")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not program:
        pytest.fail(
            "no chromium on this machine: install Debian's package `chromium`, or set CHROMIUM to a Chromium, "
            "or set ROPE_LESSONS_NO_BROWSER=1 to leave the pages untested"
        )
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()
