"""Serve the built book on localhost and open it: ``python -m tools.serve [port]``."""

from __future__ import annotations

import functools
import http.server
import sys
import webbrowser

from tools.project import ROOT


def serve(port: int) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(ROOT / "_build" / "html"))
    with http.server.ThreadingHTTPServer(("localhost", port), handler) as server:
        address = f"http://localhost:{server.server_port}"
        print(f"The book is on {address} (stop with Ctrl+C)")
        webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    serve(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
