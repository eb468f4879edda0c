"""Admit frame connections by single-use tickets.

The response of a gRPC call between members carries a ticket. The caller then opens the frame
connection of the call with the ticket, so the connection needs no other authentication.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from taskraft_replication.peers.pieces import FrameListener, HalfReceived, PieceReader

TICKET_BYTES: Final = 16


class ConnectionTicket:
    """Single-use credential that lets a peer open one frame connection.

    Args:
        node: the node that may use the ticket; empty without certificates.
        reader: reads the frames of the connection.
    """

    def __init__(self, node: str, reader: PieceReader) -> None:
        self.node: Final = node
        self.token: Final = secrets.token_bytes(TICKET_BYTES)
        self._reader = reader
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Future that is done when the connection is lost; fails with the exception of the
        listener, or with ``FrameInvalid``."""
        self._transport: asyncio.Transport | None = None

    def redeem(self, transport: asyncio.Transport) -> None:
        """Attach the connection, so that ``close`` also closes it."""
        self._transport = transport

    def feed(self, data: bytes) -> None:
        """Process received bytes; close the connection if they are invalid."""
        assert self._transport is not None, "redeem() comes before feed()"
        if self._transport.is_closing():
            return
        try:
            self._reader.feed(data)
        except Exception as error:  # noqa: BLE001 - the issuer of the ticket handles it
            self.lose(error)
            self._transport.abort()

    def lose(self, error: Exception | None = None) -> None:
        """Record that the connection is lost or unusable."""
        if self.end.done():
            return
        if error is None:
            self.end.set_result(None)
        else:
            self.end.set_exception(error)

    def close(self) -> None:
        """Close the connection."""
        self.end.cancel()
        self._reader.close()
        if self._transport is not None:
            self._transport.abort()


class ConnectionTickets:
    """The issued tickets that were not redeemed yet.

    Args:
        frame_bytes_max: maximum length of a frame.
        half_received_bytes_max: maximum total length of all unfinished frames.
    """

    def __init__(self, frame_bytes_max: int, half_received_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self.half_received = HalfReceived(half_received_bytes_max)
        self._open: dict[bytes, ConnectionTicket] = {}

    @contextmanager
    def issue(self, listener: FrameListener, node: str = "") -> Iterator[ConnectionTicket]:
        """Issue a ticket to a node; the exit of the context ends the ticket and its connection.

        An exception of ``listener`` closes the connection.
        """
        reader = PieceReader(listener, self._frame_bytes_max, self.half_received)
        ticket = ConnectionTicket(node, reader)
        self._open[ticket.token] = ticket
        try:
            yield ticket
        finally:
            self._open.pop(ticket.token, None)
            ticket.close()

    def redeem(self, token: bytes, node: str) -> ConnectionTicket | None:
        """Return the ticket of a token and mark it as used; None if it is not valid."""
        ticket = self._open.get(token)
        if ticket is None or ticket.node.lower() != node.lower():
            return None
        return self._open.pop(token)
