"""Forward calls to the leader as raw bytes.

Forwarding lets a plain gRPC stub behind a plain load balancer call any node. Each call is forwarded
on its own. ``Forwarder.forward`` sees the raw requests and answers of one method, so a batch of
many clients' calls into one message would be built there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio

from taskraft.v1 import error_pb2
from taskraft_replication.core.types import NO_MEMBER, MemberId
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.access.caller import ANONYMOUS, Caller, Unauthenticated
from taskraft_service.api.rpc.calls_at_leader import (
    ANSWER_GRACE_SECONDS,
    CallsAtLeader,
    LeaderLost,
    NodeStops,
)
from taskraft_service.api.rpc.forwarding_metadata import (
    WAITED_KEY,
    TraceContext,
    forwarding_metadata,
    trace_context,
)
from taskraft_service.api.rpc.methods import MessageStream
from taskraft_service.api.rpc.status import (
    PUSHBACK_KEY,
    STATUS_KEY,
    CallRefused,
    reason_in,
    reason_name,
)
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.limits import MESSAGE_BYTES_MAX

_CLOSE_GRACE_SECONDS: Final = 60.0
"""Maximum time that calls may continue on a channel with replaced credentials."""
_RECONNECT_MS: Final = 100
_RECONNECT_MAX_MS: Final = 1_000
_CONNECT_MS: Final = 2_000
"""Maximum time of one connection attempt; a TLS handshake takes several round trips."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS),
    # Despite its name, this option limits how long one attempt may take, including TLS.
    ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", _RECONNECT_MAX_MS),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # else gRPC waits for 60 s
    # Without this option, all nodes in one process share one subchannel pool.
    ("grpc.use_local_subchannel_pool", 1),
)

_NOT_PROPOSED: Final = frozenset(
    reason_name(reason)
    for reason in (
        error_pb2.Error.NOT_LEADER,
        error_pb2.Error.NO_LEADER,
        error_pb2.Error.DRAINING,
    )
)
"""Reasons that prove that the node did not propose the call, so another node may be tried."""
_COMMIT_UNKNOWN: Final = reason_name(error_pb2.Error.COMMIT_UNKNOWN)


class ThisNodeLeads(Exception):
    """This node became the leader while a call waited to be forwarded; execute the call here."""


class LeaderAnsweredError(Exception):
    """The leader answered a forwarded call with an error, which this node relays to the client.

    Attributes:
        code: the gRPC status code.
        message: the text of the status.
        metadata: the trailing metadata with the details of the status.
    """

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(error.details() or "")
        self.code = error.code()
        self.message = error.details() or ""
        self.metadata = tuple(
            (key, value)
            for key, value in error.trailing_metadata() or ()
            if key in (STATUS_KEY, PUSHBACK_KEY)
        )

    @property
    def may_retry(self) -> bool:
        """Return whether the same call may succeed later."""
        is_unavailable = self.code is grpc.StatusCode.UNAVAILABLE
        return is_unavailable or any(key == PUSHBACK_KEY for key, _ in self.metadata)


@dataclass(slots=True, frozen=True)
class CallOrigin:
    """Where a forwarded call comes from."""

    caller: Caller = ANONYMOUS
    """The caller, as authenticated by this node."""
    trace: TraceContext = ()
    arrived_at: float | None = None
    """When the call arrived, as a time of the event loop; None: now."""
    outlives_stop: bool = False
    """Whether a stopping node continues the call: the node itself owes the call."""


UNKNOWN_ORIGIN: Final = CallOrigin()


class Forwarder:
    """Forwards calls to the leader, over one channel per node that stays open.

    Args:
        leadership: tracks the leader.
        election_ms: the longest election timeout; a call waits for a leader twice as long.
        security: TLS between nodes. With it, calls go to the leader's peer port.
    """

    def __init__(
        self, leadership: LeadershipTracker, election_ms: int, security: PeerSecurity | None = None
    ) -> None:
        self.leadership = leadership
        self._security = security
        self._closing: set[asyncio.Task[None]] = set()
        self._leader_wait_seconds = 2 * election_ms / 1000
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._at_leader = CallsAtLeader(leadership)
        self._streams_at_leader = CallsAtLeader(leadership)
        self._is_stopping = False
        self.calls = 0
        """Unary calls forwarded since the process started."""

    def stop_waiting(self) -> None:
        """Give up what the client can repeat through another node: this node stops.

        Streams end at once. Calls have ``ANSWER_GRACE_SECONDS`` for their answer, so that no answer
        is lost that is on its way.
        """
        self._is_stopping = True
        self._streams_at_leader.stop_waiting()
        asyncio.get_running_loop().call_later(ANSWER_GRACE_SECONDS, self._at_leader.stop_waiting)

    async def close(self) -> None:
        """Close all channels."""
        self._at_leader.close()
        self._streams_at_leader.close()
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()

    def renew(self) -> None:
        """Open new channels with the current credentials; calls on the old channels may finish."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            closing = asyncio.get_running_loop().create_task(channel.close(_CLOSE_GRACE_SECONDS))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _channel(self, leader: PeerAddress) -> grpc.aio.Channel:
        security = self._security
        address = leader.client_address if security is None else leader.peer_address
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = (
                grpc.aio.insecure_channel(address, options=_OPTIONS)
                if security is None
                else security.channel(address, leader.name, _OPTIONS)
            )
        return channel

    async def wait_until_serving(self, deadline: float | None) -> bool:
        """Return whether this node leads; waits until its leadership has started to serve."""
        limit = self._limit(deadline)
        return self.leadership.is_leader and await self.leadership.wait_until_settled(limit)

    def _limit(self, deadline: float | None) -> float:
        """Return until when a call may wait for a leader, as a time of the event loop."""
        limit = asyncio.get_running_loop().time() + self._leader_wait_seconds
        return limit if deadline is None else min(limit, deadline)

    async def next_leader(self, lost: MemberId) -> str:
        """Return the client address of the leader that follows a lost one.

        The address is empty if no other leader is known within two election timeouts.
        """
        limit = self._limit(None)
        while self.leadership.leader_id in (lost, NO_MEMBER):
            if not await self.leadership.wait_for_change_until(limit):
                return ""
        return self.leadership.address

    async def leader_channel(self, deadline: float | None) -> tuple[grpc.aio.Channel, MemberId]:
        """Return an open channel to the leader, and the leader.

        Args:
            deadline: the deadline of the call, as a time of the event loop.

        Raises:
            ThisNodeLeads: this node leads and serves.
            CallRefused: NO_LEADER, no leader was found and reached within two election timeouts.
        """
        limit = self._limit(deadline)
        while await self.leadership.wait_until_settled(limit):
            if self.leadership.is_leader:
                raise ThisNodeLeads
            leader, leader_id = self.leadership.leader, self.leadership.leader_id
            assert leader is not None, "another node leads once leadership has settled"
            channel = self._channel(leader)
            if await self._connect(channel, limit):
                return channel, leader_id
        raise CallRefused(error_pb2.Error.NO_LEADER, "the cluster has no reachable leader; retry")

    async def _connect(self, channel: grpc.aio.Channel, limit: float) -> bool:
        """Wait until a channel is open or leadership changes; return whether the channel is open.

        Calls are sent on open channels only. A call that could not be sent had no effect, but a
        call that fails on an open channel may have had one.
        """
        if channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return True
        opening = asyncio.ensure_future(channel.channel_ready())
        change = asyncio.ensure_future(self.leadership.wait_for_change_until(limit))
        try:
            await asyncio.wait((opening, change), return_when=asyncio.FIRST_COMPLETED)
            return opening.done()
        finally:
            opening.cancel()
            change.cancel()

    async def forward(
        self,
        method: str,
        raw: bytes,
        deadline: float | None,
        *,
        is_idempotent: Callable[[], bool],
        is_wait: bool = False,
        origin: CallOrigin = UNKNOWN_ORIGIN,
    ) -> bytes:
        """Forward a unary call to the leader and return its answer.

        Args:
            method: the full name, such as "/taskraft.v1.TaskService/PutTasks".
            raw: the request.
            deadline: the deadline of the call, as a time of the event loop.
            is_idempotent: returns whether a retry has no second effect: a read, or a call with a
                request_id. Called only when the leader is lost, or this node stops, during the
                call.
            is_wait: the call changes nothing while it waits for its answer.
            origin: where the call comes from.

        Raises:
            ThisNodeLeads: this node became the leader.
            CallRefused: NO_LEADER, or COMMIT_UNKNOWN if the leader was lost during the call;
                DRAINING, this node stops.
            LeaderAnsweredError: the leader answered with an error.
        """
        self.calls += 1

        def may_give_up() -> bool:
            return not origin.outlives_stop and (is_wait or is_idempotent())

        loop = asyncio.get_running_loop()
        arrived_at = loop.time() if origin.arrived_at is None else origin.arrived_at
        while True:
            if self._is_stopping and not origin.outlives_stop:
                raise _draining()
            channel, leader = await self.leader_channel(deadline)
            start: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            left = None if deadline is None else deadline - loop.time()
            waited = (WAITED_KEY, str(int((loop.time() - arrived_at) * 1000)))
            metadata = (*forwarding_metadata(origin.caller, origin.trace), waited)
            call = start(raw, timeout=left, metadata=metadata)
            try:
                with self._at_leader.tracked(call, leader, may_give_up):
                    return await call
            except NodeStops as error:
                raise _draining() from error
            except LeaderLost as error:
                if not is_idempotent():
                    raise _commit_unknown() from error
            except grpc.aio.AioRpcError as error:
                if not await self._may_retry(error, is_idempotent):
                    raise LeaderAnsweredError(error) from error

    async def _may_retry(
        self, error: grpc.aio.AioRpcError, is_idempotent: Callable[[], bool]
    ) -> bool:
        """Return whether to retry a failed call; False means that the leader's error stands.

        Raises:
            CallRefused: COMMIT_UNKNOWN, the call may have had an effect and is not idempotent.
        """
        reason = reason_in(error.trailing_metadata())
        if reason in _NOT_PROPOSED:
            # The node that this node believes to lead does not; wait for newer information.
            pause = asyncio.get_running_loop().time() + _RECONNECT_MS / 1000
            await self.leadership.wait_for_change_until(pause)
            return True
        if reason == _COMMIT_UNKNOWN and is_idempotent():
            # The leader lost its leadership before it could tell the outcome.
            return True
        if reason or error.code() is not grpc.StatusCode.UNAVAILABLE:
            return False
        if is_idempotent():
            return True
        raise _commit_unknown() from error

    async def relay(self, method: str, first: bytes, stream: MessageStream, caller: Caller) -> None:
        """Open the same stream on the leader and copy the messages in both directions.

        Args:
            method: the full name of the method.
            first: the client's first message, which was already read.
            stream: the client's stream.
            caller: the client; its credentials are checked again with each message.

        Raises:
            ThisNodeLeads: this node became the leader before the stream was opened.
            CallRefused: NO_LEADER.
            Unauthenticated: the caller's credentials were withdrawn.
            LeaderAnsweredError: the leader ended the stream with an error.
            LeaderLost: another node leads, or the leader became unreachable.
            NodeStops: this node stops.
        """
        withdrawn: list[Unauthenticated] = []

        async def requests() -> AsyncIterator[bytes]:
            yield first
            while (raw := await stream.read()) is not None:
                try:
                    caller.revalidate()
                except Unauthenticated as error:
                    withdrawn.append(error)
                    return
                yield raw

        if self._is_stopping:
            raise NodeStops
        metadata = forwarding_metadata(caller, trace_context(stream.metadata))
        channel, leader = await self.leader_channel(stream.deadline)
        open_stream: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            method
        )
        upstream = open_stream(requests(), metadata=metadata)
        try:
            with self._streams_at_leader.tracked(upstream, leader, lambda: True):
                async for raw in upstream:
                    await stream.write(raw)
            if withdrawn:
                raise withdrawn[0]
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE and not reason_in(
                error.trailing_metadata()
            ):
                raise LeaderLost(leader) from error
            raise LeaderAnsweredError(error) from error
        finally:
            upstream.cancel()


def _draining() -> CallRefused:
    """Return the refusal of a call on a node that stops."""
    return CallRefused(error_pb2.Error.DRAINING, "this node is stopping")


def _commit_unknown() -> CallRefused:
    """Return the refusal of a call that may have had an effect at a leader that was lost."""
    return CallRefused(
        error_pb2.Error.COMMIT_UNKNOWN,
        "the leader was lost during the call; the call may have had an effect",
    )
