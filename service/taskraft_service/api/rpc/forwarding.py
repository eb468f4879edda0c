"""Pass calls on to the leader, as the bytes in which they came.

A plain stub behind a plain load balancer works because of this. Each call is passed on for itself;
joining the calls of many clients into one message would go into ``Forwarder.unary``, which sees raw
requests of one method and returns raw answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import error_pb2
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.api.rpc.forwarding_metadata import (
    WAITED_KEY,
    TraceContext,
    forwarding_metadata,
)
from taskraft_service.api.rpc.status import (
    DOMAIN,
    RETRY_DELAY_MS,
    STATUS_KEY,
    CallRefused,
    reason_name,
)
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.limits import MESSAGE_BYTES_MAX

_CLOSING_SECONDS: Final = 60.0
"""How long calls may go on over a channel whose credentials were renewed."""
_RECONNECT_MS: Final = 100
_RECONNECT_MAX_MS: Final = 1_000
_CONNECT_MS: Final = 2_000
"""How long it may take to connect: several times there and back, on a busy machine."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS),
    # Not a pause, whatever its name: how long an attempt may take, with TLS and all.
    ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", _RECONNECT_MAX_MS),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # All nodes of a test or dev cluster have the same subchannel pool otherwise.
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
"""Reasons with which a node says that it has not begun: the call may go to another."""


class ThisNodeLeads(Exception):
    """This node has become the leader while the call waited: it answers itself."""


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Return the reason that a node of ours gave; empty if the error is not from one."""
    for detail in _details_of(error):
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            return str(info.reason)
    return ""


def _details_of(error: grpc.aio.AioRpcError) -> Iterator[any_pb2.Any]:
    """Yield the details of the status with which a call has failed."""
    for key, packed in error.trailing_metadata() or ():
        if key == STATUS_KEY and isinstance(packed, bytes):
            yield from status_pb2.Status.FromString(packed).details


class Forwarder:
    """Channels to the other nodes, each kept once it is open.

    Args:
        leadership: who leads.
        election_ms: the longest election timeout; calls wait twice as long for a leader.
        security: certificates of the nodes: with them, calls go to the leader's port for peers.
    """

    def __init__(
        self, leadership: LeadershipTracker, election_ms: int, security: PeerSecurity | None = None
    ) -> None:
        self.leadership = leadership
        self._security = security
        self._closing: set[asyncio.Task[None]] = set()
        self._patience = 2 * election_ms / 1000
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.calls = 0
        """Calls passed on since the process started."""

    async def close(self) -> None:
        """Close all channels."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()

    def renew(self) -> None:
        """Use new channels, with the credentials in force; calls on the old ones may end there."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            closing = asyncio.get_running_loop().create_task(channel.close(_CLOSING_SECONDS))
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

    async def serves_soon(self, deadline: float | None) -> bool:
        """Tell whether this node leads, once it has begun to serve."""
        limit = self._limit(deadline)
        return self.leadership.is_leader and await self.leadership.wait_until_settled(limit)

    def _limit(self, deadline: float | None) -> float:
        """Return until when a call may wait for a leader."""
        limit = asyncio.get_running_loop().time() + self._patience
        return limit if deadline is None else min(limit, deadline)

    async def leader_channel(self, deadline: float | None) -> grpc.aio.Channel:
        """Return an open channel to the leader.

        Args:
            deadline: of the call, as a time of the loop.

        Raises:
            ServeHere: this node leads and serves by now.
            Refused: NO_LEADER: none was found and reached within two election timeouts.
        """
        limit = self._limit(deadline)
        while await self.leadership.wait_until_settled(limit):
            if self.leadership.is_leader:
                raise ThisNodeLeads
            leader = self.leadership.leader
            assert leader is not None, "settled, and not led from here"
            channel = self._channel(leader)
            if await self._reach(channel, limit):
                return channel
        raise CallRefused(
            error_pb2.Error.NO_LEADER, "there is no leader at present", retry_ms=RETRY_DELAY_MS
        )

    async def _reach(self, channel: grpc.aio.Channel, limit: float) -> bool:
        """Wait until a channel is open, or leadership changes; tell whether it is open.

        Calls are given to open channels only: a call that fails then may have had an effect, one
        that could not be sent surely has none.
        """
        if channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return True
        opening = asyncio.ensure_future(channel.channel_ready())
        change = asyncio.ensure_future(self.leadership.changed(limit))
        try:
            await asyncio.wait((opening, change), return_when=asyncio.FIRST_COMPLETED)
            return opening.done()
        finally:
            opening.cancel()
            change.cancel()

    async def unary(
        self,
        method: str,
        raw: bytes,
        deadline: float | None,
        *,
        repeatable: bool,
        principal: str = "",
        trace: TraceContext = (),
        begun: float | None = None,
    ) -> bytes:
        """Pass a call on to the leader and return its answer.

        Args:
            method: full name, "/taskraft.v1.TaskService/PutTasks".
            raw: the request.
            deadline: of the call, as a time of the loop.
            repeatable: a second try has no second effect (a read, or a request_id was given).
            principal: who made the call; empty where nobody is told apart.
            trace: the caller's trace context, from ``trace_of``.
            begun: when the call came, as a time of the loop; None: now.

        Raises:
            ServeHere: this node has become the leader.
            Refused: NO_LEADER; COMMIT_UNKNOWN if the leader was lost during the call.
            AioRpcError: the leader's own error.
        """
        self.calls += 1
        loop = asyncio.get_running_loop()
        begun = loop.time() if begun is None else begun
        while True:
            channel = await self.leader_channel(deadline)
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            left = None if deadline is None else deadline - loop.time()
            waited = (WAITED_KEY, str(int((loop.time() - begun) * 1000)))
            metadata = (*forwarding_metadata(principal, trace), waited)
            try:
                answer = await call(raw, timeout=left, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                if not await self._may_repeat(error, repeatable=repeatable):
                    raise
            else:
                return answer

    async def _may_repeat(self, error: grpc.aio.AioRpcError, *, repeatable: bool) -> bool:
        """Tell whether a failed call may be tried again; refuse where nothing is known of it."""
        reason = reason_of(error)
        if reason in _NOT_PROPOSED:
            # The node that we believe to lead knows better; ask again when we have heard more.
            pause = asyncio.get_running_loop().time() + _RECONNECT_MS / 1000
            await self.leadership.changed(pause)
            return True
        if reason or error.code() is not grpc.StatusCode.UNAVAILABLE:
            return False
        if repeatable:
            return True
        raise CallRefused(
            error_pb2.Error.COMMIT_UNKNOWN, "the leader was lost during the call"
        ) from error

    async def stream(
        self,
        method: str,
        requests: AsyncIterator[bytes],
        deadline: float | None,
        principal: str = "",
        trace: TraceContext = (),
    ) -> grpc.aio.StreamStreamCall[bytes, bytes]:
        """Open the same stream on the leader.

        Raises:
            ServeHere: this node has become the leader.
            Refused: NO_LEADER.
        """
        channel = await self.leader_channel(deadline)
        call: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(method)
        return call(requests, metadata=forwarding_metadata(principal, trace))
