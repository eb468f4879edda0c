"""Forward calls to the leader as raw bytes.

Forwarding lets a plain gRPC stub behind a plain load balancer call any node. Small puts and
settlements of one turn of the event loop share a message (``shared_calls``) if their caller is
anonymous and neither TLS between nodes nor a trace context is used. Other calls are sent alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, TypeAlias

import grpc
import grpc.aio

from taskraft.v1 import error_pb2
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.access.caller import Caller
from taskraft_service.api.rpc.answer_bytes import reserve_answer
from taskraft_service.api.rpc.call_ends import CALL_KEY, CONFIRMATION_SECONDS, CallEnds
from taskraft_service.api.rpc.calls_at_leader import (
    ANSWER_GRACE_SECONDS,
    CallAttempts,
    CallsAtLeader,
    EndsAtLeader,
    LeaderLost,
    NodeStops,
    commit_unknown,
)
from taskraft_service.api.rpc.forwarding_metadata import (
    UNKNOWN_ORIGIN,
    WAITED_KEY,
    CallOrigin,
    answer_bytes,
    forwarding_metadata,
    trace_context,
)
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.leader_channels import RECONNECT_MS, LeaderRoute
from taskraft_service.api.rpc.methods import MessageStream
from taskraft_service.api.rpc.shared_calls import NotBegun, SharedCalls
from taskraft_service.api.rpc.status import (
    CallRefused,
    reason_in,
    reason_name,
)
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.turns import next_turn

_SentCall: TypeAlias = (
    "grpc.aio.UnaryUnaryCall[bytes, bytes] | grpc.aio.UnaryStreamCall[bytes, bytes]"
)
_Call: TypeAlias = "_SentCall | asyncio.Future[bytes]"
_Start: TypeAlias = Callable[..., "_SentCall"]
_NOT_PROPOSED: Final = frozenset(
    reason_name(reason)
    for reason in (
        error_pb2.Error.NOT_LEADER,
        error_pb2.Error.NO_LEADER,
        error_pb2.Error.DRAINING,
    )
)
"""Reasons that prove that the node did not propose the call, so another node may be tried."""
_LEADER_GONE: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
"""Codes of a call that the leader ended without an answer. A gRPC server that stops ends the calls
which arrive during its shutdown with CANCELLED. A call that this node cancels itself raises
``asyncio.CancelledError`` instead."""
_COMMIT_UNKNOWN: Final = reason_name(error_pb2.Error.COMMIT_UNKNOWN)


def _starter(channel: grpc.aio.Channel, method: str, attempts: CallAttempts) -> _Start:
    """Return the function that starts a forwarded call.

    The answer of a call that changes nothing is received as a stream, so that a large answer can
    wait for room.
    """
    return channel.unary_unary(method) if attempts.changes_state else channel.unary_stream(method)


class Forwarder:
    """Forwards calls to the leader, over one channel per node that stays open.

    Args:
        leadership: tracks the leader.
        election_ms: see ``LeaderRoute``.
        security: TLS between nodes. With it, calls go to the leader's peer port.
        has_added_itself: returns whether no operator has admitted this node.
    """

    def __init__(
        self,
        leadership: LeadershipTracker,
        election_ms: int,
        security: PeerSecurity | None = None,
        has_added_itself: Callable[[], bool] = lambda: False,
    ) -> None:
        self.leadership = leadership
        self._has_added_itself = has_added_itself
        self.route = LeaderRoute(leadership, election_ms, security)
        self._at_leader = CallsAtLeader(leadership)
        self._streams_at_leader = CallsAtLeader(leadership)
        self._ends = CallEnds()
        self.shared = SharedCalls()
        self._has_peer_port = security is not None
        self._is_stopping = False
        self.calls = 0
        """Unary calls forwarded since the process started."""

    def may_forward(self, caller: Caller, *, needs_proof: bool) -> bool:
        """Return whether the leader accepts a call of ``caller`` from this node.

        Args:
            caller: the caller.
            needs_proof: the leader must authenticate the caller itself.
        """
        if not caller.is_restricted or caller.token:
            return True
        return not (caller.is_node or needs_proof or self._has_added_itself())

    def stop_waiting(self) -> None:
        """Give up calls and streams that the client can repeat through another node.

        Streams end at once. Calls wait ``ANSWER_GRACE_SECONDS`` longer, so that answers in transit
        still arrive, and calls that the leader can end wait ``CONFIRMATION_SECONDS``.
        """
        self._is_stopping = True
        self._streams_at_leader.stop_waiting()
        self._ends.end(self._at_leader.ended_at_leader())
        loop, at_leader = asyncio.get_running_loop(), self._at_leader
        loop.call_later(ANSWER_GRACE_SECONDS, at_leader.stop_waiting)
        loop.call_later(CONFIRMATION_SECONDS, partial(at_leader.stop_waiting, unconfirmed=True))

    async def finish_ends(self) -> None:
        """Wait for the outcomes of the calls that leaders were asked to end."""
        await self._ends.finish()

    async def close(self) -> None:
        """Close all channels."""
        self._at_leader.close()
        self._streams_at_leader.close()
        await self.shared.close()
        await self.route.close()

    async def forward(
        self,
        method: str,
        raw: bytes,
        deadline: float | None,
        *,
        is_idempotent: Callable[[], bool],
        is_wait: bool = False,
        origin: CallOrigin = UNKNOWN_ORIGIN,
        attempts: CallAttempts | None = None,
    ) -> bytes:
        """Forward a unary call to the leader and return its answer.

        Args:
            method: the full name, such as "/taskraft.v1.TaskService/PutTasks".
            raw: the request.
            deadline: the deadline of the call, as a time of the event loop.
            is_idempotent: returns whether a retry has no second effect: a read, or a call with a
                request_id. The function is called only if the leader is lost or this node stops
                during the call.
            is_wait: the call changes nothing while it waits for its answer.
            origin: where the call comes from.
            attempts: records each attempt that reached a leader and got no answer. An error then
                does not prove that the call had no effect. A large answer of a call that changes
                nothing is received only once there is room for its bytes.

        Raises:
            ThisNodeLeads: this node became the leader.
            CallRefused: NO_LEADER, or COMMIT_UNKNOWN if the leader was lost during the call;
                DRAINING, this node stops; OVERLOADED, there is no room for the answer.
            LeaderAnsweredError: the leader answered with an error.
        """
        self.calls += 1

        def may_give_up() -> bool:
            return not origin.outlives_stop and (is_wait or is_idempotent())

        attempts = CallAttempts() if attempts is None else attempts
        loop = asyncio.get_running_loop()
        origin = origin.arrived(loop.time())
        while True:
            channel, leader = await self.route.channel(deadline)
            # Checked after the wait for a leader: ``stop_waiting`` gives up only earlier calls.
            if self._is_stopping and not origin.outlives_stop:
                raise _draining()
            call, ends = self._start(channel, method, raw, deadline, origin, attempts)
            try:
                with self._at_leader.tracked(call, leader, may_give_up, ends):
                    return await self._answer_of(call, attempts, ends)
            except NotBegun:
                attempts.may_share = False
                continue
            except NodeStops as error:
                attempts.is_lost = True
                raise _draining() from error
            except LeaderLost as error:
                if not is_idempotent():
                    raise commit_unknown() from error
                attempts.is_lost = True
            except grpc.aio.AioRpcError as error:
                if not await self._may_retry(error, is_idempotent, attempts):
                    raise LeaderAnsweredError(error) from error
            await next_turn()  # all calls of a lost leader would continue in this turn

    def _start(
        self,
        channel: grpc.aio.Channel,
        method: str,
        raw: bytes,
        deadline: float | None,
        origin: CallOrigin,
        attempts: CallAttempts,
    ) -> tuple[_Call, EndsAtLeader | None]:
        """Send a call to the leader; return the call, and how the leader can be asked to end it."""
        # A call in a message with others has no metadata of its own.
        is_plain = not (self._has_peer_port or origin.caller.name or origin.trace)
        if attempts.may_share and is_plain and self.shared.may_share(channel, raw):
            return self.shared.start(channel, method, raw, deadline), None
        now = asyncio.get_running_loop().time()
        assert origin.arrived_at is not None
        waited = (WAITED_KEY, str(int((now - origin.arrived_at) * 1000)))
        metadata = (*forwarding_metadata(origin.caller, origin.trace), waited)
        ends: EndsAtLeader | None = None
        if attempts.undelivered is not None:
            ends = EndsAtLeader(channel, origin.caller, self._ends.new_key())
            metadata = (*metadata, (CALL_KEY, ends.key))
        left = None if deadline is None else deadline - now
        start = _starter(channel, method, attempts)
        return start(raw, timeout=left, metadata=metadata), ends

    async def _answer_of(
        self,
        call: _Call,
        attempts: CallAttempts,
        ends: EndsAtLeader | None,
    ) -> bytes:
        """Return the answer of an attempt; ``ends`` is how the leader can be asked to end it."""
        if isinstance(call, grpc.aio.UnaryStreamCall):
            return await _received(call)
        end = None if ends is None else partial(self._ends.end_one, ends, call)
        return await attempts.answer_of(call, end)

    async def _may_retry(
        self,
        error: grpc.aio.AioRpcError,
        is_idempotent: Callable[[], bool],
        attempts: CallAttempts,
    ) -> bool:
        """Return whether to retry a failed call; False: return the leader's error to the client.

        Raises:
            CallRefused: COMMIT_UNKNOWN, the call may have had an effect and is not idempotent.
        """
        reason = reason_in(error.trailing_metadata())
        if reason in _NOT_PROPOSED:
            # The called node does not lead; wait for newer information about the leader.
            pause = asyncio.get_running_loop().time() + RECONNECT_MS / 1000
            await self.leadership.wait_for_change_until(pause)
            return True
        if reason not in ("", _COMMIT_UNKNOWN):
            return False
        if not reason and error.code() not in _LEADER_GONE:
            return False
        # The leader lost its leadership, or was lost itself, before the outcome was known.
        if is_idempotent():
            attempts.is_lost = True
            return True
        if reason:
            return False
        raise commit_unknown() from error

    async def relay(self, method: str, first: bytes, stream: MessageStream, caller: Caller) -> None:
        """Open the same stream on the leader and copy the messages in both directions.

        Args:
            method: the full name of the method.
            first: the client's first message, which was already read.
            stream: the client's stream.
            caller: the client.

        Raises:
            ThisNodeLeads: this node became the leader before the stream was opened.
            CallRefused: NO_LEADER.
            LeaderAnsweredError: the leader ended the stream with an error.
            LeaderLost: another node leads, or the leader became unreachable.
            NodeStops: this node stops.
        """

        async def requests() -> AsyncIterator[bytes]:
            yield first
            while (raw := await stream.read()) is not None:
                yield raw

        if self._is_stopping:
            raise NodeStops
        metadata = forwarding_metadata(caller, trace_context(stream.metadata))
        channel, leader = await self.route.channel(stream.deadline)
        open_stream: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            method
        )
        upstream = open_stream(requests(), metadata=metadata)
        try:
            with self._streams_at_leader.tracked(upstream, leader, lambda: True):
                async for raw in upstream:
                    await stream.write(raw)
        except grpc.aio.AioRpcError as error:
            if error.code() in _LEADER_GONE and not reason_in(error.trailing_metadata()):
                raise LeaderLost(leader) from error
            raise LeaderAnsweredError(error) from error
        finally:
            upstream.cancel()


async def _received(call: grpc.aio.UnaryStreamCall[bytes, bytes]) -> bytes:
    """Return the answer of a forwarded read; receive a large answer once its bytes have room.

    Until then, flow control keeps the answer at the leader, where its bytes count too.

    Raises:
        CallRefused: OVERLOADED, there was no room.
        grpc.aio.AioRpcError: the leader answered with an error.
    """
    try:
        announced = dict(await call.initial_metadata())
        await reserve_answer(answer_bytes(announced))
        answer = await call.read()
        if isinstance(answer, bytes):
            await call.read()  # raises the error with which a call ends after its answer
            return answer
    except BaseException:
        call.cancel()
        raise
    raise CallRefused(error_pb2.Error.INTERNAL_ERROR, "the leader sent no answer")


def _draining() -> CallRefused:
    """Return the refusal of a call on a node that stops."""
    return CallRefused(error_pb2.Error.DRAINING, "this node is stopping")
