"""Track forwarded calls and their attempts, and give up calls whose answer is no longer useful.

A leader that hangs, or that the network cut off, sends no answer and closes no connection. Without
this tracking, a forwarded call would wait for as long as the old leader hangs. A stopping node
gives up the calls that the client can repeat through another node, because a call may wait for a
minute. A call that the leader can end (see ``call_ends``) gets more time for its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import grpc

from taskraft.v1 import error_pb2
from taskraft_replication.background import run_beside
from taskraft_replication.core.types import MemberId
from taskraft_service.access.caller import Caller
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.status import CODES, CallRefused, refused_for
from taskraft_service.leader.leadership import LeadershipTracker

ANSWER_GRACE_SECONDS: Final = 0.2
"""Time for the leader to answer calls that this node is about to give up. A healthy node answers
its calls within a few milliseconds of losing the leadership."""


class LeaderLost(Exception):
    """The node lost leadership or became unreachable before it answered the call.

    Attributes:
        leader: the member that received the call.
    """

    def __init__(self, leader: MemberId) -> None:
        super().__init__(f"member {leader} was lost while it led")
        self.leader = leader


class NodeStops(Exception):
    """This node is stopping and gave up a call that the client can repeat through another node."""


class ThisNodeLeads(Exception):
    """This node became the leader while a call waited to be forwarded; execute the call here."""


class CancellableCall(Protocol):
    """A gRPC call with a cancel method."""

    def cancel(self) -> bool:
        """Cancel the call; a coroutine that awaits its answer gets CancelledError."""


class UnaryCallAtLeader(CancellableCall, Protocol):
    """A forwarded unary call, which is awaited for its answer."""

    def __await__(self) -> Generator[Any, None, bytes]:
        """Return the answer."""


@dataclass(slots=True, frozen=True)
class EndsAtLeader:
    """How the leader can be asked to end a forwarded call."""

    channel: grpc.aio.Channel
    caller: Caller
    key: str


@dataclass(slots=True)
class _CallInFlight:
    """A forwarded call without an answer; ``given_up`` is the error once it is given up."""

    leader: MemberId
    may_give_up: Callable[[], bool]
    ends: EndsAtLeader | None
    given_up: Exception | None = None


class CallsAtLeader:
    """The forwarded calls in flight.

    Args:
        leadership: tracks the leader.
    """

    def __init__(self, leadership: LeadershipTracker) -> None:
        self._leadership = leadership
        self._calls: dict[CancellableCall, _CallInFlight] = {}
        self._watch: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stop tracking the forwarded calls."""
        if self._watch is not None:
            self._watch.cancel()

    @contextmanager
    def tracked(
        self,
        call: CancellableCall,
        leader: MemberId,
        may_give_up: Callable[[], bool],
        ends: EndsAtLeader | None = None,
    ) -> Iterator[None]:
        """Track a call while its answer is awaited.

        Args:
            call: the call.
            leader: the member that received the call.
            may_give_up: returns whether the client can repeat the call through another node.
            ends: how the leader can be asked to end the call; None: it cannot.

        Raises:
            LeaderLost: the member no longer leads, and the call is still unanswered.
            NodeStops: this node stops, and the call is still unanswered.
        """
        if self._watch is None:
            self._watch = run_beside(self._follow_leadership())
        in_flight = self._calls[call] = _CallInFlight(leader, may_give_up, ends)
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None, "only tasks wait for answers"
            if in_flight.given_up is None or task.cancelling():
                raise
            raise in_flight.given_up from None
        finally:
            del self._calls[call]

    def stop_waiting(self, *, unconfirmed: bool = False) -> None:
        """Give up all calls that can be repeated through another node.

        Args:
            unconfirmed: also give up calls that the leader has been asked to end.
        """
        for call, in_flight in self._calls.items():
            if (in_flight.ends is None or unconfirmed) and in_flight.may_give_up():
                _give_up(call, in_flight, NodeStops())

    def ended_at_leader(self) -> Sequence[EndsAtLeader]:
        """Return the calls that leaders can be asked to end."""
        return [one.ends for one in self._calls.values() if one.ends is not None]

    async def _follow_leadership(self) -> None:
        loop = asyncio.get_running_loop()
        leader = self._leadership.leader_id
        while True:
            await self._leadership.wait_for_change()
            if self._leadership.leader_id != leader:
                leader = self._leadership.leader_id
                loop.call_later(ANSWER_GRACE_SECONDS, self._leave_old_leaders)

    def _leave_old_leaders(self) -> None:
        """Give up the calls at members that no longer lead."""
        for call, in_flight in self._calls.items():
            if in_flight.leader != self._leadership.leader_id:
                _give_up(call, in_flight, LeaderLost(in_flight.leader))


def _give_up(call: CancellableCall, in_flight: _CallInFlight, error: Exception) -> None:
    if in_flight.given_up is None:
        in_flight.given_up = error
        call.cancel()


_REFUSED_BEFORE_THE_LOG: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
"""Codes of refusals that depend on the node and not on the state, such as NO_LEADER, DRAINING and
OVERLOADED, or on the access file, which may have changed. Such a refusal does not show whether an
earlier attempt of the same call had an effect. Every other refusal shows that earlier attempts had
no effect: only calls with a request_id are repeated, and the leader looks for the answer of the
first attempt before it refuses a call because of the state."""


@dataclass(slots=True)
class CallAttempts:
    """The attempts of one call.

    A node forwards a call again if the leader was lost before it answered. The lost attempt may
    have had an effect. If the next attempt is refused, for example because no leader is known, the
    client must not conclude from the refusal that the call had no effect.

    Attributes:
        changes_state: whether an attempt may have an effect.
        is_lost: whether an attempt reached a leader and got no answer.
        undelivered: called with an answer that arrives although the caller has cancelled the call;
            None: such an answer has no effect to undo.
        may_share: whether the leader may begin the call without a task, so that the call may share
            a message with other calls.
    """

    changes_state: bool = True
    is_lost: bool = False
    undelivered: Callable[[bytes], None] | None = None
    may_share: bool = False

    async def answer_of(
        self, call: UnaryCallAtLeader, end: Callable[[asyncio.Future[bytes]], None] | None
    ) -> bytes:
        """Return the answer of an attempt.

        Args:
            call: the attempt.
            end: ends the attempt if the caller has cancelled the call; called with the future
                answer, which then becomes done. None: nothing has to be undone.
        """
        if self.undelivered is None or end is None:
            return await call
        # A cancellation that reaches ``await call`` would drop an answer that has just arrived.
        answer = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(partial(_undeliver, self.undelivered))
            if not answer.done():
                end(answer)
            raise

    def outcome(self, error: Exception) -> Exception:
        """Return the error of the call, given the error of its last attempt.

        The error is COMMIT_UNKNOWN if an earlier attempt may have had an effect and the last
        attempt was refused before the log.
        """
        if not (self.changes_state and self.is_lost):
            return error
        if isinstance(error, LeaderAnsweredError):
            code = error.code
        else:
            refused = refused_for(error)
            if refused is None:
                return error
            code = CODES[refused.reason]
        return commit_unknown() if code in _REFUSED_BEFORE_THE_LOG else error


def _undeliver(undelivered: Callable[[bytes], None], answer: asyncio.Future[bytes]) -> None:
    if not answer.cancelled() and answer.exception() is None:
        undelivered(answer.result())


def commit_unknown() -> CallRefused:
    """Return the refusal of a call that may have had an effect at a leader that was lost."""
    return CallRefused(
        error_pb2.Error.COMMIT_UNKNOWN,
        "the leader was lost during the call; the call may have had an effect",
    )
