"""A small web site on loopback, so that the example needs no other host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGES = 6
"""Pages of each host; each page links to the next ones, and to the other hosts."""


@contextmanager
def served(hosts: int = 2) -> Iterator[list[str]]:
    """Serve a site for each host, and yield the addresses of the first pages."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Site) for _ in range(hosts)]
    addresses = [f"http://127.0.0.1:{server.server_port}/" for server in servers]
    for server in servers:
        server.RequestHandlerClass.others = addresses  # type: ignore[attr-defined]  # an attribute of _Site
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield addresses
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


class _Site(BaseHTTPRequestHandler):
    others: list[str]

    def do_GET(self) -> None:
        """Answer with robots.txt, or with a page of links."""
        if self.path == "/robots.txt":
            self._answer("text/plain", "User-agent: *\nDisallow: /private\n")
            return
        number = self.path.strip("/")
        links = [f"/{after}" for after in range(int(number or 0) + 1, PAGES)]
        anchors = "".join(f"<a href='{link}'>more</a>" for link in [*links, *self.others])
        self._answer("text/html", f"<title>page {number or 0}</title>{anchors}")

    def _answer(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing: the crawler prints the pages."""
