"""End forwarded calls at the leader, and wait for their outcomes.

A cancelled call has no answer. If a follower cancelled a take that waits on the leader, the take
might have leased tasks whose answer the follower no longer receives, and nobody would settle the
leases. So the follower gives each such call a key, asks the leader to end the calls with the keys,
and then receives their answers: the leased tasks, or a refusal without effect.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias

import grpc
import grpc.aio

from taskraft_replication.background import Background
from taskraft_service.access.caller import Caller
from taskraft_service.api.rpc.calls_at_leader import CancellableCall, EndsAtLeader
from taskraft_service.api.rpc.forwarding_metadata import forwarding_metadata
from taskraft_service.api.rpc.list_maxima import ENDED_CALLS_MAX
from taskraft_service.api.rpc.live_calls import LiveCalls
from taskraft_service.api.rpc.methods import parse_request
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.stubs.forwarding.v1 import forwarding_pb2 as pb

END_CALLS_PATH: Final = "/taskraft.forwarding.v1.ForwardingService/EndCalls"
CALL_KEY: Final = "x-taskraft-call-key"
"""Metadata key of the key of a forwarded call that the leader can end."""
CANCELLED_AT_ONCE: Final = 100
"""Maximum number of calls that are cancelled in one iteration of the event loop."""
CONFIRMATION_SECONDS: Final = 0.8
"""Time in which a call must be answered after the leader was asked to end the call. The time is
shorter than the time that a failed node gives to its running calls."""


_Target: TypeAlias = tuple[grpc.aio.Channel, str]
"""The channel to a leader, and the name of a caller."""


@dataclass(slots=True, frozen=True)
class _CancelledCall:
    """A call at a leader that its client has cancelled."""

    ends: EndsAtLeader
    call: CancellableCall
    answer: asyncio.Future[bytes]


def end_calls(raw: bytes, live: LiveCalls, caller: Caller) -> bytes:
    """Serve EndCalls on the leader, and return the answer.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    keys = parse_request(pb.EndCallsRequest, raw).keys
    violations = Violations()
    violations.check_count("keys", keys, ENDED_CALLS_MAX)
    violations.raise_if_any()
    for key in keys:
        live.end_forwarded(key, caller.name)
    return pb.EndCallsResponse().SerializeToString()


class CallEnds:
    """Asks leaders to end calls that this node has forwarded.

    Calls that clients cancel in one iteration of the event loop share a request: thousands of
    waiting clients may disconnect at once.
    """

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(16)
        self._numbers = count(1)
        self._requests = Background()
        self._cancelled: dict[_Target, list[_CancelledCall]] = {}
        """The calls for the next requests."""

    def new_key(self) -> str:
        """Return a key for one forwarded call, which other callers cannot guess."""
        return f"{self._prefix}-{next(self._numbers)}"

    def end(self, calls: Iterable[EndsAtLeader]) -> None:
        """Ask leaders to end calls; the answers of the calls arrive as usual, if at all."""
        keys: dict[_Target, list[str]] = {}
        callers: dict[str, Caller] = {}
        for call in calls:
            callers[call.caller.name] = call.caller
            keys.setdefault((call.channel, call.caller.name), []).append(call.key)
        for (channel, name), own in keys.items():
            for first in range(0, len(own), ENDED_CALLS_MAX):
                some = own[first : first + ENDED_CALLS_MAX]
                self._requests.start(_end(channel, callers[name], some))

    def end_one(
        self, ends: EndsAtLeader, call: CancellableCall, answer: asyncio.Future[bytes]
    ) -> None:
        """Ask the leader to end one call, and cancel the call if its answer does not arrive."""
        if not self._cancelled:
            asyncio.get_running_loop().call_soon(self._end_cancelled)
        target = (ends.channel, ends.caller.name)
        self._cancelled.setdefault(target, []).append(_CancelledCall(ends, call, answer))

    def _end_cancelled(self) -> None:
        cancelled, self._cancelled = self._cancelled, {}
        for own in cancelled.values():
            for first in range(0, len(own), CANCELLED_AT_ONCE):
                self._requests.start(_end_some(own[first : first + CANCELLED_AT_ONCE]))

    async def finish(self) -> None:
        """Wait for the outcomes of the calls that leaders were asked to end."""
        self._end_cancelled()
        await self._requests.ended()


async def _end_some(calls: Sequence[_CancelledCall]) -> None:
    """End calls of one caller at one leader."""
    loop = asyncio.get_running_loop()
    until = loop.time() + CONFIRMATION_SECONDS
    ends = calls[0].ends
    await _end(ends.channel, ends.caller, [one.ends.key for one in calls])
    answers = [one.answer for one in calls]
    await asyncio.wait(answers, timeout=max(until - loop.time(), 0.0))
    for one in calls:
        one.call.cancel()


async def _end(channel: grpc.aio.Channel, caller: Caller, keys: Collection[str]) -> None:
    start: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(END_CALLS_PATH)
    request = pb.EndCallsRequest(keys=keys).SerializeToString()
    # A leader that cannot be asked, or whose channel was replaced and closed, does not answer the
    # calls either.
    with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
        await start(request, timeout=CONFIRMATION_SECONDS, metadata=forwarding_metadata(caller, ()))
