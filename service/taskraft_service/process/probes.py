"""Answer probes and metric scrapes over plain HTTP: /livez, /readyz, /startupz, /metrics.

Kubernetes probes do not support TLS with gRPC, so there is a separate HTTP port. The server closes
each connection after one request, which suits probes and scrapers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from taskraft_replication.new_connections import (
    ACCEPTS_PER_TURN,
    NewConnections,
    lengthen_backlog,
)

REQUEST_SECONDS: Final = 5.0
"""Maximum time for a client to send its request and to read the answer."""
LINE_BYTES_MAX: Final = 4 << 10
REQUEST_BYTES_MAX: Final = 16 << 10
"""Maximum size of a request with all headers."""
CONNECTIONS_MAX: Final = 64
"""Maximum number of connections. A further connection closes the oldest connection of the address
with the most connections."""
_REASONS: Final = {
    200: "OK",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Not Ready",
}


@dataclass(slots=True, frozen=True)
class HttpRequest:
    """The parts of a request that the pages need; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    peer: str = ""
    """Address of the client."""


Answer: TypeAlias = tuple[int, str, bytes]
"""HTTP status, media type and body of an answer."""
Page: TypeAlias = Callable[[HttpRequest], Awaitable[Answer]]
"""Handler of a path."""


def probe_answer(text: str, *, ok: bool) -> Answer:
    """Return the response of a probe: status 200 or 503 with a text."""
    return plain_answer(200 if ok else 503, text)


def plain_answer(status: int, text: str) -> Answer:
    """Return a plain-text response with one line."""
    return (status, "text/plain; charset=utf-8", f"{text}\n".encode())


class ProbeServer:
    """A minimal HTTP server.

    Args:
        pages: handler of each path.
    """

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self.pages = pages
        """Handler of each path; may be replaced while the server listens."""
        self.port = 0
        """Port on which the server listens; 0 before ``start``."""
        self._server: asyncio.Server | None = None
        self.connections = NewConnections(CONNECTIONS_MAX, 2 * REQUEST_SECONDS)

    async def start(self, host: str, port: int) -> int:
        """Start listening; return the port.

        Raises:
            OSError: the port cannot be opened.
        """
        self._server = await asyncio.start_server(
            self._serve, host, port, limit=LINE_BYTES_MAX, backlog=ACCEPTS_PER_TURN
        )
        lengthen_backlog(self._server)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def show(self, pages: Mapping[str, Page]) -> None:
        """Answer with other pages from now on."""
        self.pages = pages

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        address = f"{peer[0]}:{peer[1]}" if peer else ""
        transport = cast("asyncio.Transport", writer.transport)
        self.connections.add(transport)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                writer.write(await self._answer(await _read_request(reader, address)))
                await writer.drain()
        except (TimeoutError, OSError, _RequestMalformed):
            # A client that is broken or too slow does not receive the rest of its response.
            transport.abort()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self.connections.remove(transport)

    async def _answer(self, request: HttpRequest) -> bytes:
        page = self.pages.get(request.path)
        if request.method not in {"GET", "HEAD"}:
            status, kind, content = 405, "text/plain", b""
        elif page is None:
            status, kind, content = 404, "text/plain", b""
        else:
            status, kind, content = await page(request)
        challenge = "WWW-Authenticate: Bearer\r\n" if status == 401 else ""
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n{challenge}"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if request.method == "HEAD" else content)


class _RequestMalformed(Exception):
    """The received bytes are not a valid request; the connection is closed."""


async def _read_request(reader: asyncio.StreamReader, peer: str) -> HttpRequest:
    """Read a request without its body.

    Raises:
        _RequestMalformed: a line or the whole request is too long.
    """
    headers: dict[str, str] = {}
    try:
        line = await reader.readline()
        words = line.decode("latin-1").split()
        size = len(line)
        while header := (line := await reader.readline()).decode("latin-1").strip():
            size += len(line)
            if size > REQUEST_BYTES_MAX:
                raise _RequestMalformed
            name, _, text = header.partition(":")
            headers[name.strip().lower()] = text.strip()
    except ValueError as error:
        raise _RequestMalformed from error
    method, path = words[:2] if len(words) >= 2 else ("", "")
    return HttpRequest(method, path.partition("?")[0], headers, peer)
