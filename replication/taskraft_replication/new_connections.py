"""Limit the number and the duration of connections that are not authenticated or used yet."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

ACCEPTS_PER_TURN: Final = 4
"""Maximum number of connections that a port accepts in one turn of the event loop: the ``backlog``
of asyncio. A port closes connections beyond its share some turns after it has accepted them, and
until then they hold descriptors. With asyncio's default of 100, a burst used all descriptors up."""
BACKLOG: Final = 128
"""Maximum number of connections that the kernel keeps until a port accepts them."""


class NewConnections:
    """New connections: no valid ticket, request or call has arrived on them yet.

    A connection that stays new for too long is closed. If there are too many new connections, the
    oldest connection of the address with the most new connections is closed. Idle connections and a
    single address therefore cannot block other callers.

    Args:
        count_max: maximum number of new connections.
        seconds_max: maximum time for which a connection is new.
    """

    def __init__(self, count_max: int, seconds_max: float) -> None:
        self._count_max: Final = count_max
        self._seconds_max: Final = seconds_max
        self._by_address: dict[str, dict[asyncio.Transport, asyncio.TimerHandle]] = {}
        self._addresses: dict[asyncio.Transport, str] = {}

    def __len__(self) -> int:
        """Return the number of new connections."""
        return len(self._addresses)

    def add(self, transport: asyncio.Transport) -> None:
        """Add a new connection; close another new connection if there are too many."""
        if len(self) >= self._count_max:
            crowd = max(self._by_address.values(), key=len)
            self._close(next(iter(crowd)))
        name = transport.get_extra_info("peername")
        address = name[0] if name else ""
        timer = asyncio.get_running_loop().call_later(self._seconds_max, self._close, transport)
        self._by_address.setdefault(address, {})[transport] = timer
        self._addresses[transport] = address

    def remove(self, transport: asyncio.Transport) -> None:
        """Remove a connection that is in use or has ended; no effect if it was removed before."""
        address = self._addresses.pop(transport, None)
        if address is None:
            return
        group = self._by_address[address]
        group.pop(transport).cancel()
        if not group:
            del self._by_address[address]

    def _close(self, transport: asyncio.Transport) -> None:
        self.remove(transport)
        transport.abort()


def lengthen_backlog(server: asyncio.Server) -> None:
    """Let the kernel keep ``BACKLOG`` connections for a server that accepts few in one turn.

    asyncio would use one number as this limit and as the number of connections accepted per turn.
    """
    for listener in server.sockets:
        with socket.socket(fileno=os.dup(listener.fileno())) as same:
            same.listen(BACKLOG)
