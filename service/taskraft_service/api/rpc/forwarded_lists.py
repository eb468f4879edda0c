"""Serve the calls that a follower forwards in one message, on the leader.

The calls begin one after another, without a task for each call, so that their commands share an
entry of the log. A call that cannot be begun this way had no effect, and the follower sends the
call alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn

import grpc

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.list_maxima import FORWARDED_CALLS_MAX, SHORT_REQUEST_BYTES
from taskraft_service.api.rpc.methods import parse_request
from taskraft_service.api.rpc.prompt_calls import PromptCall, PromptMethod
from taskraft_service.api.rpc.server_context import CallEnded, MetadataPairs, ServerContext
from taskraft_service.api.rpc.status import PUSHBACK_KEY, STATUS_KEY, CallRefused
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.leader.command_submitter import NotProposed
from taskraft_service.stubs.forwarding.v1 import forwarding_pb2 as pb
from taskraft_service.turns import next_turn

FORWARDED_MESSAGE_BYTES_MAX: Final = FORWARDED_CALLS_MAX * (SHORT_REQUEST_BYTES + 256)
"""Maximum size of a message: all calls have the largest request and a long name."""
BEGUN_AT_ONCE: Final = 16
"""Number of calls after which the event loop runs other work before further calls begin; a call
takes about 0.1 ms."""


class _ListedCall:
    """The ``ServerContext`` of one call of a message, for calls that end with a status.

    Args:
        message: the call that carries the message.
        deadline: time of the event loop; None: the client set none.
    """

    __slots__ = ("_deadline", "_message", "outcome")

    def __init__(self, message: ServerContext, deadline: float | None) -> None:
        self._message = message
        self._deadline = deadline
        self.outcome = pb.ForwardedOutcome()

    def invocation_metadata(self) -> MetadataPairs:
        """Return the metadata of the message; the calls have none of their own."""
        return tuple(self._message.invocation_metadata() or ())

    def auth_context(self) -> Mapping[str, Any]:
        """Return the properties of the TLS peer."""
        return self._message.auth_context()

    def peer(self) -> str:
        """Return the address of the node that sent the message."""
        return self._message.peer()

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None if the client set none."""
        if self._deadline is None:
            return None
        return max(self._deadline - asyncio.get_running_loop().time(), 0.0)

    async def read(self) -> None:
        """Return None: the request is all that the client sends."""

    async def write(self, raw: bytes, /) -> None:
        """Set the answer of the call."""
        self.outcome.answer = raw

    async def send_initial_metadata(self, metadata: MetadataPairs, /) -> None:
        """Drop the metadata: the follower sends its own."""

    def set_trailing_metadata(self, metadata: MetadataPairs, /) -> None:
        """Drop the metadata: the follower sends its own."""

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: MetadataPairs = (), /
    ) -> NoReturn:
        """End the call with a status other than OK.

        Raises:
            CallEnded: always.
        """
        status = pb.ForwardedStatus(code=code.value[0], message=details)
        for key, value in trailing_metadata:
            if key == STATUS_KEY and isinstance(value, bytes):
                status.details = value
            elif key == PUSHBACK_KEY and isinstance(value, str):
                status.pushback = value
        self.outcome.status.CopyFrom(status)
        raise CallEnded(details)


class _Message:
    """The calls of one message, and their outcomes."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._unknown = 1
        """Number of outcomes that are not known, and 1 until all calls have begun."""
        self._all_known = self._loop.create_future()
        self._begun: list[PromptCall] = []
        self._failed: list[tuple[PromptCall, Exception]] = []

    def begin(self, call: pb.ForwardedCall, method: PromptMethod | None) -> pb.ForwardedOutcome:
        """Begin a call; return its outcome, which is complete once ``outcomes_known`` returns."""
        now = self._loop.time()
        deadline = now + call.remaining_ms / 1000 if call.HasField("remaining_ms") else None
        listed = _ListedCall(self._context, deadline)
        prompt = None
        if method is not None and (deadline is None or deadline > now):
            prompt = method.begin(call.request, deadline, now, listed)
        if prompt is None:
            listed.outcome.not_begun.SetInParent()
        else:
            self._unknown += 1
            self._begun.append(prompt)
            prompt.when_known(partial(self._known, listed, prompt))
        return listed.outcome

    def _known(
        self, listed: _ListedCall, prompt: PromptCall, _outcome: asyncio.Future[Any]
    ) -> None:
        try:
            listed.outcome.answer = prompt.answer()
        except asyncio.CancelledError:
            pass  # the follower has ended the message
        except NotProposed:
            listed.outcome.not_begun.SetInParent()
        except Exception as error:  # noqa: BLE001 - every error gets a status
            self._failed.append((prompt, error))
        self._count_known()

    def _count_known(self) -> None:
        self._unknown -= 1
        if not self._unknown and not self._all_known.done():
            self._all_known.set_result(None)

    async def outcomes_known(self) -> None:
        """Wait until all calls have their outcomes."""
        self._count_known()
        await self._all_known
        for prompt, error in self._failed:
            with suppress(CallEnded):
                await prompt.rest(error)

    def cancel(self) -> None:
        """Cancel the calls without an outcome."""
        for prompt in self._begun:
            prompt.outcome.cancel()


async def forward_calls(
    raw: bytes, context: ServerContext, methods: Mapping[str, PromptMethod]
) -> bytes:
    """Serve ForwardCalls, and return the answer once all outcomes are known.

    Args:
        raw: the request.
        context: the call that carries the message.
        methods: the methods that can begin calls, by path.

    Raises:
        CallRefused: INVALID_FIELD or PAYLOAD_TOO_LARGE.
    """
    if len(raw) > FORWARDED_MESSAGE_BYTES_MAX:
        raise CallRefused(
            error_pb2.Error.PAYLOAD_TOO_LARGE,
            f"the message has {len(raw)} bytes, more than {FORWARDED_MESSAGE_BYTES_MAX}; send "
            "fewer calls in one message",
            {"size": str(len(raw)), "limit": str(FORWARDED_MESSAGE_BYTES_MAX)},
        )
    calls = parse_request(pb.ForwardCallsRequest, raw).calls
    violations = Violations()
    violations.check_count("calls", calls, FORWARDED_CALLS_MAX)
    violations.raise_if_any()
    message = _Message(context)
    outcomes = []
    try:
        for place, call in enumerate(calls, 1):
            if place % BEGUN_AT_ONCE == 0:
                await next_turn()
            outcomes.append(message.begin(call, methods.get(call.method)))
        await message.outcomes_known()
    except BaseException:
        message.cancel()
        raise
    return pb.ForwardCallsResponse(outcomes=outcomes).SerializeToString()
