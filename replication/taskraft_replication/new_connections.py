"""Limit the connections whose callers have not shown a purpose yet, in number and in time."""

from __future__ import annotations

import asyncio
from typing import Final


class NewConnections:
    """Connections of unknown callers.

    A new connection that does not show its purpose in time is closed. If there are too many, the
    oldest one of the address with the most new connections is closed: neither idle connections nor
    one address keep other callers out.

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
        """Count a connection as new from now on."""
        if len(self) >= self._count_max:
            crowd = max(self._by_address.values(), key=len)
            self._close(next(iter(crowd)))
        name = transport.get_extra_info("peername")
        address = name[0] if name else ""
        timer = asyncio.get_running_loop().call_later(self._seconds_max, self._close, transport)
        self._by_address.setdefault(address, {})[transport] = timer
        self._addresses[transport] = address

    def remove(self, transport: asyncio.Transport) -> None:
        """Stop to count a connection, which has shown its purpose or has ended."""
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
