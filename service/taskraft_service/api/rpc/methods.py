"""Say what a method of the contract is: its request, who answers it, and how.

Handlers get raw bytes from gRPC and give raw bytes back, so that a follower passes a request on
without parsing it, the log keeps it as it came, and a malformed one gets our own error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeAlias, TypeVar

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from taskraft.v1 import error_pb2
from taskraft_service.access.caller import Caller
from taskraft_service.api.rpc.context import ServicerContext
from taskraft_service.api.rpc.status import CallRefused

M = TypeVar("M", bound=Message)


class ExecutionSite(Enum):
    """Who answers a method."""

    LEADER = "leader"
    """The leader: a mutation, or a read that needs it."""
    FRESH = "fresh"
    """The leader, unless the request's consistency says LOCAL."""
    HERE = "here"
    """Any node."""


@dataclass(slots=True)
class UnaryCall(Generic[M]):
    """One call in hand; its instants are times of the event loop.

    ``deadline`` None: the caller set none. ``begun``: when it came to the first node that it met.
    """

    request: M
    raw: bytes
    deadline: float | None
    caller: Caller
    begun: float


@dataclass(slots=True, frozen=True)
class UnaryMethod(Generic[M]):
    """One method: its request, who answers it, and how."""

    name: str
    request: type[M]
    route: ExecutionSite
    answer: Callable[[UnaryCall[M]], Awaitable[Message | bytes]]
    local: Callable[[M], bool] = lambda _request: False
    """With FRESH: tells whether a request may be answered from this node's own state."""
    reads: bool = False
    """With LEADER: changes nothing, so that a second try has no effect."""

    async def serve(
        self, raw: bytes, deadline: float | None, caller: Caller, begun: float
    ) -> bytes:
        """Parse the request, see to the caller's rights, answer it, and write the answer.

        Raises:
            Refused: the call is answered with an error.
            NotAllowed: the caller may not make it.
        """
        request = parse_request(self.request, raw)
        managed = caller.check(request)
        answer = await self.answer(UnaryCall(request, raw, deadline, caller, begun))
        if managed:
            caller.managed(request, managed)
        return answer if isinstance(answer, bytes) else answer.SerializeToString()

    def is_local(self, raw: bytes) -> bool:
        """Tell whether any node may answer this request."""
        return self.route is ExecutionSite.HERE or (
            self.route is ExecutionSite.FRESH and self.local(parse_request(self.request, raw))
        )

    def is_repeatable(self, raw: bytes) -> bool:
        """Tell whether a second try has no second effect."""
        request = parse_request(self.request, raw)
        return (
            self.reads
            or self.route is not ExecutionSite.LEADER
            or bool(getattr(request, "request_id", ""))
        )


class AnyUnaryMethod(Protocol):
    """A method whatever its request is."""

    @property
    def name(self) -> str:
        """The name of the method, without its service."""

    async def serve(
        self, raw: bytes, deadline: float | None, caller: Caller, begun: float
    ) -> bytes:
        """See ``UnaryMethod``."""

    def is_local(self, raw: bytes) -> bool:
        """See ``UnaryMethod``."""

    def is_repeatable(self, raw: bytes) -> bool:
        """See ``UnaryMethod``."""


StreamHandler: TypeAlias = Callable[[ServicerContext, Caller], Awaitable[None]]
"""Reads raw requests from the context and writes raw answers to it."""
ServerStreamHandler: TypeAlias = Callable[[bytes, ServicerContext, Caller], Awaitable[None]]
"""Gets one raw request and writes raw answers to the context."""


@dataclass(slots=True, frozen=True)
class ServiceMethods:
    """The methods of one service, all of them."""

    service: ServiceDescriptor
    unary: Sequence[AnyUnaryMethod]
    streams: Mapping[str, StreamHandler]
    readings: Mapping[str, ServerStreamHandler]


def parse_request(message: type[M], raw: bytes) -> M:
    """Return the request.

    Raises:
        Refused: INVALID_FIELD, with our own text instead of the parser's.
    """
    try:
        return message.FromString(raw)
    except DecodeError as error:
        name = message.DESCRIPTOR.full_name
        raise CallRefused(
            error_pb2.Error.INVALID_FIELD,
            f"the request is not a {name}",
            {"message": name},
        ) from error
