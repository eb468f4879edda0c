"""Delay TCP connections in both directions, like a distant network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType


class FarPort:
    """Forwards connections to a local port with a delay.

    Args:
        delay_seconds: delay of each byte, in each direction.
    """

    def __init__(self, delay_seconds: float) -> None:
        self.target = 0
        self.port = 0
        self.arrivals = 0
        """Number of accepted connections."""
        self.delay_seconds = delay_seconds
        self.damage: Callable[[bytes], bytes] = bytes
        """Maps the bytes that the client sends to the bytes that arrive."""
        self._transports: list[asyncio.Transport] = []

    async def __aenter__(self) -> FarPort:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Near(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all connections and stop listening."""
        self._server.close()
        for transport in self._transports:
            transport.abort()
        await asyncio.sleep(0)

    def late(self, do: Callable[..., object], *arguments: object) -> None:
        """Call a function after the delay."""
        asyncio.get_running_loop().call_later(self.delay_seconds, do, *arguments)

    def opened(self, transport: asyncio.Transport) -> None:
        """Register a connection, so that it is closed with the port."""
        self._transports.append(transport)


class _End(asyncio.Protocol):
    """One end of a forwarded connection; ``other`` is the opposite end, None before it connects."""

    def __init__(self, far: FarPort) -> None:
        self.far = far
        self.other: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.far.opened(transport)

    def data_received(self, data: bytes) -> None:
        self.far.late(self._pass_on, data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.far.late(self._close)

    def _pass_on(self, data: bytes) -> None:
        if self.other is not None and not self.other.is_closing():
            self.other.write(data)

    def _close(self) -> None:
        if self.other is not None:
            self.other.close()


class _Near(_End):
    """The end that accepts the client's connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.far.arrivals += 1
        self.transport.pause_reading()
        self._reaching = asyncio.ensure_future(self._reach())

    def data_received(self, data: bytes) -> None:
        super().data_received(self.far.damage(data))

    async def _reach(self) -> None:
        loop = asyncio.get_running_loop()
        there, end = await loop.create_connection(
            lambda: _End(self.far), "127.0.0.1", self.far.target
        )
        self.other, end.other = there, self.transport
        if self.transport.is_closing():
            there.abort()
        else:
            self.transport.resume_reading()
