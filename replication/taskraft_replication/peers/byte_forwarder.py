"""Forward bytes between two connections, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

UNSENT_BYTES_MAX: Final = 256 << 10
"""Unsent bytes of one end above which the other end is not read."""
LINGER_SECONDS: Final = 10.0
"""Maximum time for sending the remaining bytes to one end after the other end was closed."""


class ByteForwarder(asyncio.Protocol):
    """One end of a forwarded connection: writes received bytes to the other end.

    Args:
        other: the other end.
        on_end: called when this end is closed.
    """

    def __init__(self, other: asyncio.Transport, on_end: Callable[[], None]) -> None:
        self._other = other
        self._on_end = on_end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit the bytes that wait to be sent on the new connection."""
        # The transports of other event loops are no subclasses of asyncio.Transport.
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=UNSENT_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        """Forward received bytes to the other end."""
        self._other.write(data)

    def pause_writing(self) -> None:
        """Stop reading the other end while this end is full."""
        if not self._other.is_closing():
            self._other.pause_reading()

    def resume_writing(self) -> None:
        """Read the other end again."""
        if not self._other.is_closing():
            self._other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end after its buffered bytes are sent."""
        del exc
        self._on_end()
        if not self._other.is_closing():
            self._other.close()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._other.abort)
