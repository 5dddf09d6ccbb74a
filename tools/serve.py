"""Serve the built book on localhost and open it: ``python -m tools.serve [port]``."""

from __future__ import annotations

import argparse
import functools
import http.server
import sys
import webbrowser

from tools.project import ROOT


def serve(port: int) -> None:
    folder = ROOT / "_build" / "html"
    if not (folder / "index.html").exists():
        sys.exit(f"python -m tools.serve: there is no book in {folder}: make book builds it")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    try:
        server = http.server.ThreadingHTTPServer(("localhost", port), handler)
    except OSError as error:
        sys.exit(f"python -m tools.serve: port {port} cannot be used: {error.strerror}")
    with server:
        address = f"http://localhost:{server.server_port}"
        print(f"The book is on {address} (stop with Ctrl+C)")
        webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.serve", description=__doc__)
    parser.add_argument("port", nargs="?", type=int, default=8000)
    options = parser.parse_args()
    if not 0 <= options.port < 2**16:
        parser.error(f"argument port: must be an int from 0 to 65535, got {options.port}")
    serve(options.port)
