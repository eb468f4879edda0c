"""Find the leader, and keep an open gRPC channel to each node that led.

A channel that cannot connect is replaced. A gRPC channel resolves the name of its node again at
most every 30 s by default. After a failed resolution it pauses for up to 120 s. A node that
restarts with a new address behind the same name could not be reached for that long. A new channel
resolves the name at once.
"""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
import grpc.aio

from taskraft.v1 import error_pb2
from taskraft_replication.core.types import NO_MEMBER, MemberId
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.api.rpc.calls_at_leader import ThisNodeLeads
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.limits import MESSAGE_BYTES_MAX
from taskraft_service.turns import next_turn

LEADER_WAIT_SECONDS_MIN: Final = 0.1
"""Minimum time that a call may wait for a leader, however long no leader has been known."""
RECONNECT_MS: Final = 100
"""Pause between two attempts to connect to one node."""
_CLOSE_GRACE_SECONDS: Final = 60.0
"""Maximum time that calls may continue on a channel that was replaced."""
_RECONNECT_MAX_MS: Final = 1_000
_CONNECT_MS: Final = 2_000
"""Maximum time of one connection attempt; a TLS handshake takes several round trips."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS),
    # Despite its name, this option limits how long one attempt may take, including TLS.
    ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", _RECONNECT_MAX_MS),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # otherwise gRPC waits for up to 60 s
    # Without this option, all nodes in one process share one subchannel pool.
    ("grpc.use_local_subchannel_pool", 1),
)


class LeaderChannels:
    """One channel per node address, created when the node leads.

    Args:
        security: TLS between nodes. With it, the channels lead to the peer ports.
    """

    def __init__(self, security: PeerSecurity | None) -> None:
        self._security = security
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def ready_channel(self, leader: PeerAddress) -> grpc.aio.Channel | None:
        """Return the channel to a node if it is connected, else None, and connect it."""
        address = self._address(leader)
        channel = self._channels.get(address)
        if channel is not None and channel.get_state() is grpc.ChannelConnectivity.READY:
            return channel
        if address not in self._opening:
            opening = asyncio.get_running_loop().create_task(self._open(leader, address))
            self._opening[address] = opening
            opening.add_done_callback(lambda _: self._opening.pop(address, None))
        return None

    async def opened(self, leader: PeerAddress) -> None:
        """Wait until the attempt to connect to a node has succeeded or failed."""
        opening = self._opening.get(self._address(leader))
        if opening is not None:
            await asyncio.wait((opening,))

    def _address(self, leader: PeerAddress) -> str:
        return leader.client_address if self._security is None else leader.peer_address

    async def _open(self, leader: PeerAddress, address: str) -> None:
        """Connect once, on a new channel; after a failure, pause."""
        self._discard(address)
        channel = self._channels[address] = self._create(leader, address)
        while True:
            state = channel.get_state(try_to_connect=True)
            if state is grpc.ChannelConnectivity.READY:
                return
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                break
            await channel.wait_for_state_change(state)
        await asyncio.sleep(RECONNECT_MS / 1000)

    def _discard(self, address: str) -> None:
        """Close a channel that has lost its connection; it may know an old address of the node."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            self._close_later(channel)

    def _create(self, leader: PeerAddress, address: str) -> grpc.aio.Channel:
        if self._security is None:
            return grpc.aio.insecure_channel(address, options=_OPTIONS)
        return self._security.channel(address, leader.name, _OPTIONS)

    def _close_later(self, channel: grpc.aio.Channel) -> None:
        """Close a channel after its calls have finished."""
        closing = asyncio.get_running_loop().create_task(channel.close(_CLOSE_GRACE_SECONDS))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def renew(self) -> None:
        """Open new channels with the current credentials; calls on the old channels may finish."""
        self._stop_opening()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            self._close_later(channel)

    def _stop_opening(self) -> list[asyncio.Task[None]]:
        opening, self._opening = [*self._opening.values()], {}
        for task in opening:
            task.cancel()
        return opening

    async def close(self) -> None:
        """Close all channels."""
        tasks = [*self._stop_opening(), *self._closing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()


class LeaderRoute:
    """Finds the leader, and waits until this node is connected to the leader.

    Args:
        leadership: tracks the leader.
        election_ms: the longest election timeout. A call waits until no leader has been known for
            two of these timeouts, but for at least ``LEADER_WAIT_SECONDS_MIN``.
        security: TLS between nodes. With it, channels lead to the leader's peer port.
    """

    def __init__(
        self, leadership: LeadershipTracker, election_ms: int, security: PeerSecurity | None
    ) -> None:
        self._leadership = leadership
        self._leader_wait_seconds = 2 * election_ms / 1000
        self._channels = LeaderChannels(security)
        self.renew = self._channels.renew
        self.close = self._channels.close

    async def wait_until_serving(self, deadline: float | None) -> bool:
        """Return whether this node leads; waits until its leadership has started to serve."""
        limit = self._limit(deadline)
        return self._leadership.is_leader and await self._leadership.wait_until_settled(limit)

    def _limit(self, deadline: float | None) -> float:
        """Return the event loop time until which a call may wait for a leader.

        The time that this node had no leader before the call is part of the wait. A node that is
        disconnected from the other nodes finds no leader, and its clients should soon try another
        node.
        """
        wait = self._leader_wait_seconds - self._leadership.silence_ms() / 1000
        limit = asyncio.get_running_loop().time() + max(wait, LEADER_WAIT_SECONDS_MIN)
        return limit if deadline is None else min(limit, deadline)

    async def next_leader(self, lost: MemberId) -> str:
        """Return the client address of the leader that follows a lost one.

        The address is empty if no other leader is known within two election timeouts.
        """
        limit = self._limit(None)
        while self._leadership.leader_id in (lost, NO_MEMBER):
            if not await self._leadership.wait_for_change_until(limit):
                return ""
        return self._leadership.address

    async def channel(self, deadline: float | None) -> tuple[grpc.aio.Channel, MemberId]:
        """Return an open channel to the leader, and the leader.

        The calls that waited for the same leader continue in turns.

        Args:
            deadline: the deadline of the call, as a time of the event loop.

        Raises:
            ThisNodeLeads: this node leads and serves.
            CallRefused: NO_LEADER, no leader was found and reached within two election timeouts.
        """
        limit = self._limit(deadline)
        while not self._leadership.serves:
            found = self._open_channel()
            if found is not None:
                return found
            if not await self._is_reached(limit):
                text = "the cluster has no reachable leader; retry"
                raise CallRefused(error_pb2.Error.NO_LEADER, text)
            await next_turn()  # all calls that waited would continue in this turn
        raise ThisNodeLeads

    def _open_channel(self) -> tuple[grpc.aio.Channel, MemberId] | None:
        """Return the open channel to another node that leads, and the node, or None."""
        leader = self._leadership.leader
        if leader is None or self._leadership.is_leader:
            return None
        channel = self._channels.ready_channel(leader)
        return None if channel is None else (channel, self._leadership.leader_id)

    async def _is_reached(self, limit: float) -> bool:
        """Wait for the leader and the connection, or a change; return False after ``limit``."""
        if not await self._leadership.wait_until_settled(limit):
            return False
        leader = self._leadership.leader
        if self._leadership.serves or leader is None:
            return True
        is_connected = await self._connect(leader, limit) is not None
        return is_connected or asyncio.get_running_loop().time() < limit

    async def _connect(self, leader: PeerAddress, limit: float) -> grpc.aio.Channel | None:
        """Wait for a connected channel to the leader; return None if leadership changes first.

        Calls are sent on open channels only. A call that could not be sent had no effect, but a
        call that fails on an open channel may have had an effect.
        """
        channel = self._channels.ready_channel(leader)
        if channel is not None:
            return channel
        change = asyncio.ensure_future(self._leadership.wait_for_change_until(limit))
        try:
            while channel is None and not change.done():
                opening = asyncio.ensure_future(self._channels.opened(leader))
                try:
                    await asyncio.wait((opening, change), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    opening.cancel()
                channel = self._channels.ready_channel(leader)
            return channel
        finally:
            change.cancel()
