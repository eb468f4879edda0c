"""The context of a call on the native edge."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from ssl import DER_cert_to_PEM_cert
from typing import Any, Final, NoReturn

import grpc

from taskraft_service.api.rpc.server_context import CallEnded, MetadataPairs

READ_STEP_MESSAGES: Final = 8
"""The edge is told of read messages in steps of this number; the edge stops at twice as many."""
READ_STEP_BYTES: Final = 32 * 1024
"""The edge is told of read bytes in steps of this size; the edge stops at twice as many."""
UNSENT_BYTES_MAX: Final = 64 * 1024
"""Maximum size of the unsent messages of a call after which ``write`` returns at once. The edge
tells of sent bytes in steps of half the size."""
CERTIFICATES_CACHED: Final = 1_024
"""Number of client certificates whose names are kept."""

Command = tuple[Any, ...]
"""The kind of a command, the number of its call, and its arguments."""


class EdgeCommand(IntEnum):
    """Kinds of commands of a handler to the edge; the numbers are those of the crate."""

    INITIAL = 0
    MESSAGE = 1
    READ = 2
    DEMAND = 3
    FINISH = 4
    FLUSH = 5
    KNOWN = 6


_FINISH: Final = int(EdgeCommand.FINISH)
_NUMBERS: Final[Mapping[grpc.StatusCode, int]] = {code: code.value[0] for code in grpc.StatusCode}


class NativeCall:
    """The server's side of one call; a ``ServerContext``.

    Args:
        number: number of the call on its edge.
        metadata: metadata that the client sent.
        deadline: time of the event loop; None: the client set none.
        peer: address of the client.
        certificate: certificate of the client in DER, or None.
        command: sends a command to the edge.
        flushes: whether ``write`` waits until the message was handed to the connection.
    """

    __slots__ = (
        "_certificate",
        "_command",
        "_deadline",
        "_demanded",
        "_flushes",
        "_has_large",
        "_is_half_closed",
        "_metadata",
        "_number",
        "_peer",
        "_read_bytes",
        "_read_messages",
        "_reader",
        "_received",
        "_unsent_bytes",
        "_writers",
        "has_ended",
        "trailing",
        "work",
    )

    def __init__(
        self,
        number: int,
        metadata: MetadataPairs,
        deadline: float | None,
        peer: str,
        certificate: bytes | None,
        command: Callable[[Command], None],
        *,
        flushes: bool = False,
    ) -> None:
        self._number = number
        self._metadata = metadata
        self._deadline = deadline
        self._peer = peer
        self._certificate = certificate
        self._command = command
        self._flushes = flushes
        self._received: deque[bytes] | None = None
        """Messages that the handler has not read; most handlers get their only request directly."""
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] | None = None
        self._is_half_closed = False
        self._has_large = False
        self._read_messages = self._read_bytes = self._unsent_bytes = 0
        self.trailing: MetadataPairs = ()
        self.has_ended = False
        """Whether the call has its status, or the client has ended the call."""
        self.work: asyncio.Future[Any] | None = None
        """The task of the handler, or the outcome for which a prompt call waits."""

    # ------------------------------------------------------------------------------ ServerContext

    def invocation_metadata(self) -> MetadataPairs:
        """Return the metadata that the client sent."""
        return self._metadata

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None if the client set none."""
        if self._deadline is None:
            return None
        return max(self._deadline - asyncio.get_running_loop().time(), 0.0)

    def peer(self) -> str:
        """Return the address of the client."""
        return self._peer

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the certificate of the client and its names; empty without a certificate."""
        return {} if self._certificate is None else _names(self._certificate)

    def next_message_bytes(self) -> int:
        """Return the size of the next message; -1 if no message waits for ``read``."""
        return len(self._received[0]) if self._received else -1

    async def read(self) -> bytes | None:
        """Return the client's next message; None once the client has closed its side."""
        while not self._received:
            if self.has_ended:
                raise asyncio.CancelledError
            if self._is_half_closed:
                return None
            if self._has_large:
                self._has_large = False
                self._command((EdgeCommand.DEMAND, self._number))
            assert self._reader is None, "one task reads a call"
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._received.popleft()
        self._read_messages += 1
        self._read_bytes += len(message)
        if self._read_messages >= READ_STEP_MESSAGES or self._read_bytes >= READ_STEP_BYTES:
            self._command((EdgeCommand.READ, self._number, self._read_messages, self._read_bytes))
            self._read_messages = self._read_bytes = 0
        return message

    async def write(self, raw: bytes, /) -> None:
        """Send a message; returns when flow control accepts the next one."""
        if self.has_ended:
            raise asyncio.CancelledError
        self._unsent_bytes += len(raw)
        self._command((EdgeCommand.MESSAGE, self._number, raw))
        del raw  # the edge copies the message in this turn of the event loop
        if self._flushes:
            self._command((EdgeCommand.FLUSH, self._number))
        while self._unsent_bytes > (0 if self._flushes else UNSENT_BYTES_MAX):
            accepted = asyncio.get_running_loop().create_future()
            self._writers = self._writers or deque()
            self._writers.append(accepted)
            await accepted
            if self.has_ended:
                raise asyncio.CancelledError

    async def send_initial_metadata(self, metadata: MetadataPairs, /) -> None:
        """Send the metadata that precede the messages."""
        self._command((EdgeCommand.INITIAL, self._number, metadata))

    def set_trailing_metadata(self, metadata: MetadataPairs, /) -> None:
        """Set the metadata that are sent with the status OK."""
        self.trailing = metadata

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: MetadataPairs = (),
        /,
    ) -> NoReturn:
        """End the call with a status other than OK.

        Raises:
            CallEnded: always.
        """
        self.finish(code, details, trailing_metadata, None)
        raise CallEnded(details)

    # ------------------------------------------------------------------------------ for the server

    def finish(
        self, code: grpc.StatusCode, details: str, metadata: MetadataPairs, answer: bytes | None
    ) -> None:
        """Send the status, after a last message if there is one."""
        if not self.has_ended:
            self.end()
            self._command((_FINISH, self._number, _NUMBERS[code], details, metadata, answer))

    def message_came(self, message: bytes) -> None:
        """Hand a message to the handler."""
        if self._received is None:
            self._received = deque()
        self._received.append(message)
        self._wake_reader()

    def large_came(self) -> None:
        """Note that the next message is large and arrives on demand."""
        self._has_large = True
        self._wake_reader()

    def half_closed(self) -> None:
        """Note that the client sends no further message."""
        self._is_half_closed = True
        self._wake_reader()

    def bytes_sent(self, count: int) -> None:
        """Note that flow control accepted some bytes."""
        self._unsent_bytes -= count
        self._wake_writers()

    def end(self) -> None:
        """Note that the call has ended: ``read`` and ``write`` raise CancelledError from now on."""
        self.has_ended = True
        self._wake_reader()
        self._wake_writers()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_writers(self) -> None:
        while self._writers:
            writer = self._writers.popleft()
            if not writer.done():
                writer.set_result(None)


@lru_cache(CERTIFICATES_CACHED)
def _names(certificate: bytes) -> Mapping[str, Sequence[bytes]]:
    """Return the names in a certificate, and the certificate in PEM, under the keys of gRPC."""
    # A node without certificates starts faster without the library, whose import takes 50 ms.
    from taskraft_replication.tls.certificates import (  # noqa: PLC0415 - for a fast start
        alternative_names,
        common_names,
    )

    return {
        "x509_common_name": [name.encode() for name in common_names(certificate)],
        "x509_subject_alternative_name": [name.encode() for name in alternative_names(certificate)],
        "x509_pem_cert": [DER_cert_to_PEM_cert(certificate).encode()],
    }
