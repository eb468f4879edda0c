"""Define the part of a gRPC call that the service uses, so that any gRPC server can offer it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NoReturn, Protocol, TypeAlias

import grpc

from taskraft_service.access.authenticator import CallContext

MetadataPairs: TypeAlias = Sequence[tuple[str, str | bytes]]


class CallEnded(Exception):
    """The call has its status; the exception ends the coroutine that serves the call."""


class ServerContext(CallContext, Protocol):
    """The server's side of one call: messages, metadata, deadline and status.

    The call contexts of grpc.aio and of the memory node have these methods.
    """

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None if the client set none."""

    def read(self) -> Awaitable[object]:
        """Return the client's next message as bytes; another object after the last message."""

    def write(self, raw: bytes, /) -> Awaitable[None]:
        """Send a message; returns when flow control accepts the next one."""

    def send_initial_metadata(self, metadata: MetadataPairs, /) -> Awaitable[None]:
        """Send the metadata that precede the messages."""

    def set_trailing_metadata(self, metadata: MetadataPairs, /) -> None:
        """Set the metadata that are sent with the status OK."""

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: MetadataPairs = (),
        /,
    ) -> NoReturn:
        """End the call with a status other than OK.

        Raises:
            CallEnded: always, so that the handler ends; grpc.aio raises ``grpc.aio.AbortError``.
        """
