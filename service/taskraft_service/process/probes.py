"""Answer probes and metric scrapes over plain HTTP: /livez, /readyz, /startupz, /metrics.

Kubernetes probes cannot speak TLS to gRPC, so they have a port of their own. The server closes each
connection after one request, which suits probes and scrapers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

REQUEST_SECONDS: Final = 5.0
"""Maximum time for a client to send its request."""
HEADER_LINES_MAX: Final = 100
_REASONS: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Not Ready"}

Answer: TypeAlias = tuple[int, str, bytes]
"""Status, media type, body."""


def probe_answer(text: str, *, ok: bool) -> Answer:
    """Return the response of a probe: status 200 or 503 with a text."""
    return (200 if ok else 503, "text/plain; charset=utf-8", f"{text}\n".encode())


class ProbeServer:
    """A minimal HTTP server.

    Args:
        pages: handler of each path.
    """

    def __init__(self, pages: Mapping[str, Callable[[], Answer]]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Start listening; return the port.

        Raises:
            OSError: the port cannot be opened.
        """
        self._server = await asyncio.start_server(self._serve, host, port)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = (await reader.readline()).decode("latin-1").split()
                for _ in range(HEADER_LINES_MAX):
                    if (await reader.readline()).strip() == b"":
                        break
                writer.write(self._answer(request))
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            # A broken or slow client affects only itself.
            pass
        finally:
            writer.close()

    def _answer(self, request: list[str]) -> bytes:
        method, path = (request[0], request[1]) if len(request) >= 2 else ("", "")
        page = self._pages.get(path.partition("?")[0])
        if method not in ("GET", "HEAD"):
            status, kind, content = 405, "text/plain", b""
        elif page is None:
            status, kind, content = 404, "text/plain", b""
        else:
            status, kind, content = page()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else content)
