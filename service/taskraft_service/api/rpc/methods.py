"""Describe the methods of a gRPC service without naming the gRPC library.

Handlers see calls and streams of raw bytes; ``endpoint`` connects them to grpc.aio. Requests stay
raw bytes at the edge for three reasons: a follower forwards a request without parsing it, the log
stores a request as received, and a malformed request gets an error of this service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from taskraft.v1 import error_pb2
from taskraft_service import wire
from taskraft_service.access.audit import log_denied
from taskraft_service.access.caller import ANONYMOUS, Caller
from taskraft_service.access.permission_rules import MANAGING, OF_OPERATORS, managed_names
from taskraft_service.access.permissions import ANY_TUBE, Verb
from taskraft_service.api.rpc.list_maxima import SHORT_REQUEST_BYTES, check_lists
from taskraft_service.api.rpc.request_steps import RequestSteps
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.limits import DEADLINE_MARGIN_MS, WAIT_MAX_MS

_REQUEST_ID: Final = "request_id"

M = TypeVar("M", bound=Message)


class ExecutionSite(Enum):
    """Nodes that may execute a method."""

    LEADER = "leader"
    """Only the leader: mutations, and reads of state that only the leader has."""
    BY_CONSISTENCY = "by consistency"
    """Any node if the request accepts local state, otherwise the leader."""
    ANY_NODE = "any node"


@dataclass(slots=True)
class UnaryCall(Generic[M]):
    """One unary call.

    ``deadline`` and ``arrived_at`` are times of the event loop. ``deadline`` is None if the caller
    set none. ``arrived_at`` is when the first node received the call, before any forwarding.
    """

    request: M
    raw: bytes
    deadline: float | None
    caller: Caller
    arrived_at: float
    index: int = 0
    """Log index at which the call has taken effect, if the answer does not contain it."""
    managed: Sequence[str] = ()
    """Names for which the caller needs the permission to manage. A handler sets the names if they
    depend on the state."""
    _steps: RequestSteps | None = None

    @property
    def steps(self) -> RequestSteps:
        """The steps of the request, which are bounded; most requests count none."""
        if self._steps is None:
            self._steps = RequestSteps()
        return self._steps

    def wait_seconds(self, wait_ms: int | None) -> float:
        """Return the seconds for which the call may still wait; 0 if the time is over.

        The time that the call has already waited counts, and the wait ends shortly before the
        deadline of the call.

        Args:
            wait_ms: the wait that the caller asks for; None means until the deadline.
        """
        wait_ms = WAIT_MAX_MS if wait_ms is None else min(wait_ms, WAIT_MAX_MS)
        until = self.arrived_at + wait_ms / 1000
        if self.deadline is not None:
            until = min(until, self.deadline - DEADLINE_MARGIN_MS / 1000)
        return max(until - asyncio.get_running_loop().time(), 0.0)


@dataclass(slots=True)
class ProposedCall:
    """A call that only waits for the outcome of one command."""

    outcome: asyncio.Future[Any]
    answer: Callable[[Any], bytes]
    """Returns the answer of the call, given the outcome; raises ``CallRefused``."""


@dataclass(slots=True, frozen=True)
class UnaryMethod(Generic[M]):
    """One unary method: its name, request type, execution site and handler."""

    name: str
    request: type[M]
    site: ExecutionSite
    handler: Callable[[UnaryCall[M]], Awaitable[Message | bytes]]
    accepts_local_state: Callable[[M], bool] = lambda _request: False
    """For BY_CONSISTENCY: return whether the state of any node is enough for a request."""
    propose: Callable[[UnaryCall[M]], ProposedCall | None] | None = None
    """For LEADER: proposes the command of a call that only waits for the outcome; returns None for
    calls that ``handler`` serves."""
    is_read: bool = False
    """For LEADER: whether the method changes nothing, so that a retry has no effect."""
    is_wait: bool = False
    """The method changes nothing while it waits. If the call is cancelled, tasks that were already
    taken are released."""
    undelivered: Callable[[M, bytes, Caller], None] | None = None
    """Undoes what an answer gave to a caller that could not get the answer any more. The node that
    the caller called runs the function, also if the leader executed the call."""

    @property
    def kind(self) -> type[Message]:
        """The type of the request."""
        return self.request

    async def execute(
        self, raw: bytes, deadline: float | None, caller: Caller, arrived_at: float
    ) -> bytes:
        """Parse and authorize the request, call the handler, and encode the answer.

        Raises:
            CallRefused: the call is answered with an error.
            PermissionDenied: the caller lacks a permission.
        """
        # Keep no reference to the request, so that the handler can release its memory.
        call = UnaryCall(parse_request(self.request, raw), raw, deadline, caller, arrived_at)
        if caller is not ANONYMOUS:
            call.managed = caller.authorize(call.request)
        elif self.request in MANAGING:
            call.managed = managed_names(call.request)
        if self.propose is not None and (proposed := self.propose(call)) is not None:
            # The command holds the content too, and waiting calls hold most of the memory of a busy
            # leader.
            call.request = self.request()
            return proposed.answer(await proposed.outcome)
        try:
            answer = await self.handler(call)
        except CallRefused as refusal:
            if refusal.reason == error_pb2.Error.NOT_ALLOWED:
                name = refusal.metadata.get("name", ANY_TUBE)
                log_denied(caller, call.request, Verb.MANAGE.value, name)
            raise
        if call.managed:
            index = call.index or getattr(answer, "revision", 0)
            caller.log_managed(call.request, call.managed, index)
        return answer if isinstance(answer, bytes) else answer.SerializeToString()

    def begin(
        self, raw: bytes, deadline: float | None, caller: Caller, arrived_at: float
    ) -> ProposedCall | None:
        """Propose the command of a call that only waits for the outcome.

        Returns None for calls that ``execute`` serves or refuses. A call without a permission is
        one of them, so that the audit log has one record of the call.

        Raises:
            Exception: nothing was proposed, and ``execute`` raises the same.
        """
        if self.propose is None:
            return None
        request = parse_request(self.request, raw)
        if caller is not ANONYMOUS and not caller.permits(request):
            return None
        return self.propose(UnaryCall(request, raw, deadline, caller, arrived_at))

    @property
    def changes_state(self) -> bool:
        """Whether a call may have an effect."""
        return self.site is ExecutionSite.LEADER and not self.is_read

    @property
    def is_for_operators(self) -> bool:
        """Whether a call changes the members or the settings."""
        return self.request in OF_OPERATORS

    @property
    def can_begin(self) -> bool:
        """Whether ``begin`` may propose commands."""
        return self.propose is not None

    @property
    def can_undo(self) -> bool:
        """Whether an answer that could not be sent has an effect that must be undone."""
        return self.undelivered is not None

    def undo(self, raw: bytes, answer: bytes, caller: Caller) -> None:
        """Undo the effect of an answer that could not be sent.

        A call with a request_id keeps its effect, because a retry gets the same answer.
        """
        if self.undelivered is not None and not self.is_idempotent(raw):
            self.undelivered(parse_request(self.request, raw), answer, caller)

    def runs_on_any_node(self, raw: bytes) -> bool:
        """Return whether any node may execute this request."""
        return self.site is ExecutionSite.ANY_NODE or (
            self.site is ExecutionSite.BY_CONSISTENCY
            and self.accepts_local_state(parse_request(self.request, raw))
        )

    def is_idempotent(self, raw: bytes) -> bool:
        """Return whether a retry of this request has no second effect.

        Only ``request_id`` is parsed, because a follower checks requests that it forwards without
        decoding them.

        Raises:
            CallRefused: INVALID_FIELD, the request is malformed.
        """
        if not self.changes_state:
            return True
        field = self.request.DESCRIPTOR.fields_by_name.get(_REQUEST_ID)
        if field is None:
            return False
        try:
            return bool(wire.last_content(raw, field.number))
        except wire.WireMalformed:
            # The parser decides, because it also accepts groups, which no request of the contract
            # contains.
            return bool(getattr(parse_request(self.request, raw), _REQUEST_ID))


class AnyUnaryMethod(Protocol):
    """A unary method of any request type; see ``UnaryMethod``."""

    @property
    def name(self) -> str:
        """The name of the method, without its service."""

    @property
    def kind(self) -> type[Message]:
        """The type of the request."""

    @property
    def is_wait(self) -> bool:
        """Whether the method changes nothing while a call waits."""

    @property
    def changes_state(self) -> bool:
        """Whether a call may have an effect."""

    @property
    def is_for_operators(self) -> bool:
        """Whether a call changes the members or the settings."""

    @property
    def can_undo(self) -> bool:
        """Whether an answer that could not be sent has an effect that must be undone."""

    def undo(self, raw: bytes, answer: bytes, caller: Caller) -> None:
        """Undo the effect of an answer that could not be sent."""

    async def execute(
        self, raw: bytes, deadline: float | None, caller: Caller, arrived_at: float
    ) -> bytes:
        """Parse and authorize the request, call the handler, and encode the answer."""

    def begin(
        self, raw: bytes, deadline: float | None, caller: Caller, arrived_at: float
    ) -> ProposedCall | None:
        """Propose the command of a call that only waits for the outcome."""

    @property
    def can_begin(self) -> bool:
        """Whether ``begin`` may propose commands."""

    def runs_on_any_node(self, raw: bytes) -> bool:
        """Return whether any node may execute this request."""

    def is_idempotent(self, raw: bytes) -> bool:
        """Return whether a retry of this request has no second effect."""


class MessageStream(Protocol):
    """The server's side of one streaming call: raw messages in and out."""

    @property
    def metadata(self) -> Mapping[str, str | bytes]:
        """The metadata that the client sent with the call."""

    @property
    def deadline(self) -> float | None:
        """The deadline of the call, as a time of the event loop; None if the client set none."""

    @property
    def has_arrived(self) -> bool:
        """Return whether ``read`` returns the next message without waiting.

        A server that cannot tell says False.
        """

    async def read(self) -> bytes | None:
        """Return the client's next message; None once the client has closed its side.

        Raises:
            CallRefused: PAYLOAD_TOO_LARGE, the message is too large.
        """

    def write(self, raw: bytes, /) -> Awaitable[None]:
        """Send a message; returns when flow control accepts the next one."""


StreamHandler: TypeAlias = Callable[[MessageStream, Caller], Awaitable[None]]
"""Handles a bidirectional call: reads raw requests from the stream and writes raw answers."""
ServerStreamHandler: TypeAlias = Callable[[bytes, MessageStream, Caller], Awaitable[None]]
"""Handles a server-streaming call: gets one raw request and writes raw answers."""


@dataclass(slots=True, frozen=True)
class ServiceMethods:
    """All methods of one service."""

    service: ServiceDescriptor
    unary: Sequence[AnyUnaryMethod]
    bidirectional: Mapping[str, StreamHandler]
    server_streaming: Mapping[str, ServerStreamHandler]


def parse_request(message: type[M], raw: bytes) -> M:
    """Return the parsed request, whose lists may be walked.

    Raises:
        CallRefused: INVALID_FIELD, with the text of this service instead of the parser's, or
            because a list is too long.
    """
    try:
        request = message.FromString(raw)
    except DecodeError as error:
        name = message.DESCRIPTOR.full_name
        raise CallRefused(
            error_pb2.Error.INVALID_FIELD,
            f"the request is not a valid {name}",
            {"message": name},
        ) from error
    if len(raw) > SHORT_REQUEST_BYTES:
        check_lists(request, raw)
    return request
