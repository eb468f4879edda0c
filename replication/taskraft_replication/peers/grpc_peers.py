"""Manage the links to the other members of one group."""

from __future__ import annotations

import asyncio
import logging
from asyncio import sleep as pause
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import grpc
from grpc import aio

from taskraft_replication.background import Background
from taskraft_replication.core.config import ENTRY_BYTES_MAX
from taskraft_replication.core.types import MemberId, Message, Roster, SnapshotMeta, Term
from taskraft_replication.errors import (
    DirectoryRefused,
    MemberInUse,
    SnapshotBroken,
)
from taskraft_replication.machine import SnapshotReader
from taskraft_replication.membership.roster import find, was_removed
from taskraft_replication.peers.contract import Membership, PreferredSet, Receiver
from taskraft_replication.peers.frame_connection import FrameSender, connect
from taskraft_replication.peers.handshake import check_directory, check_version
from taskraft_replication.peers.link import PeerLink
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.peers.send_queue import FRAME_BYTES_MAX
from taskraft_replication.peers.snapshot_stream import SnapshotTransfer, header_of
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb

NO_USE_PAUSE_SECONDS: Final = 2.0
"""Pause before this member sends another snapshot to a peer that could not use the last snapshot,
in seconds. The pause is long because each snapshot needs a flush and the transfer of the whole
state."""

KEEPALIVE_MS: Final = 2000
"""Time without an answer after which a connection is closed, in ms, because a partitioned network
sends no reset."""

CONNECT_MS: Final = 2000
"""Maximum time to connect, in ms; enough for several round trips on a busy machine."""

FRAME_BYTES_LIMIT: Final = ENTRY_BYTES_MAX + FRAME_BYTES_MAX + (1 << 20)
"""Maximum length of a frame."""

CONNECTION_OPTIONS: Final = (
    ("grpc.max_receive_message_length", FRAME_BYTES_LIMIT),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),  # otherwise gRPC waits for up to 60 s
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.so_reuseport", 0),
)
CHANNEL_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    # The link controls the pauses between attempts.
    ("grpc.initial_reconnect_backoff_ms", 20),
    # Despite its name, this option is the timeout of one connection attempt, including TLS.
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)

_log = logging.getLogger(__name__)


def channel_to(address: str, node: str, security: PeerSecurity | None) -> aio.Channel:
    """Return a channel to the peer port of a node; the caller closes it."""
    if security is None:
        return aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return security.channel(address, node, CHANNEL_OPTIONS)


class GrpcPeers:
    """Links to the other members of one group; implements ``Peers``."""

    def __init__(
        self,
        membership: Membership,
        receiver: Receiver,
        security: PeerSecurity | None,
    ) -> None:
        self.membership = membership
        self.receiver = receiver
        self._security = security
        self.roster = Roster()
        self._chosen: PreferredSet = None
        self._leading_term = Term(0)
        self._links: dict[MemberId, PeerLink] = {}
        self._addresses: dict[MemberId, str] = {}
        self._nodes: dict[MemberId, str] = {}
        """Certificate names of members that connected before the roster named them."""
        self._inbound: dict[MemberId, asyncio.Task[object]] = {}
        """Tasks that serve the streams from the peers."""
        self.is_accepted = False
        """Whether a peer has accepted this process."""
        self._background = Background()

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages to their receivers; never blocks, and may lose messages.

        A message to a member without an address is dropped.
        """
        links = self._links
        for message in messages:
            link = links.get(message.to)
            if link is not None:
                link.put(message)
        for link in links.values():
            link.flush_soon()

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        """Stream a snapshot to a member; report the end with ``snapshot_sent``."""
        self._background.start(self._send_snapshot(message, meta, content))

    async def _send_snapshot(
        self, message: Message, meta: SnapshotMeta, content: SnapshotReader
    ) -> None:
        ok = False
        link = self._links.get(message.to)
        try:
            if link is not None:
                _log.info("sending the snapshot of entry %d to member %d", meta.index, message.to)
                header = header_of(message, meta, self.membership)
                await SnapshotTransfer(lambda: link.channel, header, content).run()
                _log.info("member %d has received the snapshot of entry %d", message.to, meta.index)
                ok = True
        except (
            aio.AioRpcError,
            aio.UsageError,
            asyncio.InvalidStateError,
            SnapshotBroken,
            OSError,  # reading the snapshot failed, or the peer accepted no data for too long
        ) as error:
            _log.warning("snapshot to member %d failed: %s", message.to, error)
            if _has_no_use(error):
                await pause(NO_USE_PAUSE_SECONDS)
        self.receiver.snapshot_sent(message.to, ok=ok)

    def set_preferred(self, chosen: PreferredSet) -> None:
        """Send entries at once to these followers; the others may get them later."""
        self._chosen = chosen
        for member, link in self._links.items():
            link.batcher.may_delay = chosen is not None and member not in chosen

    def set_leading_term(self, term: Term) -> None:
        """Set the term in which this member leads."""
        self._leading_term = term
        for link in self._links.values():
            link.set_leading_term(term)

    def send_alive(self, leader: MemberId, term: Term) -> None:
        """Send an activity report to the leader of ``term``; the message may be lost."""
        link = self._links.get(leader)
        if link is not None:
            link.send_alive(term)

    def set_roster(self, roster: Roster) -> None:
        """Update members and addresses; links to removed members are closed.

        Links to members that are not in the roster yet are kept, because the roster may be
        outdated.
        """
        self.roster = roster
        for member in [*self._inbound]:
            if was_removed(roster, member):
                # Otherwise a removed member that sends nothing would not learn of its removal.
                self._inbound.pop(member).cancel()
        wanted = {
            member: address
            for member, address in self._addresses.items()
            if member > roster.last_member
        }
        wanted |= {
            info.member: info.peer_address
            for info in roster.members
            if info.member != self.membership.member_id and info.peer_address
        }
        for member in [*self._links]:
            if self._addresses.get(member) != wanted.get(member):
                self._background.start(self._links.pop(member).close())
        self._addresses = wanted
        for member in wanted.keys() - self._links.keys():
            self._open_link(member)

    def renew(self) -> None:
        """Reopen all links with the current credentials; messages in flight are lost."""
        for member in [*self._links]:
            self._background.start(self._links.pop(member).close())
            self._open_link(member)

    def _open_link(self, member: MemberId) -> None:
        address, security = self._addresses[member], self._security
        known = find(self.roster, member)
        node = self._nodes.get(member, "") if known is None else known.name

        def open_connection(ticket: bytes, on_change: Callable[[], None]) -> Awaitable[FrameSender]:
            tls = None if security is None else security.frame_tls(node)
            return connect(address, ticket, tls, on_change)

        open_channel = partial(channel_to, address, node, security)
        link = PeerLink(member, open_channel, open_connection, self.membership, self)
        self._links[member] = link
        link.set_leading_term(self._leading_term)
        link.batcher.may_delay = self._chosen is not None and member not in self._chosen

    def hello_received(self, hello: pb.Hello, node: str) -> None:
        """Reconnect to a member that has contacted this one; learn its address if it is new.

        ``node`` is the name in its certificate, empty without one.
        """
        member = MemberId(hello.sender)
        link = self._links.get(member)
        if link is not None:
            link.reset_backoff()
        elif hello.peer_address:
            # The leader was elected while this member was away, or this member is new.
            self._addresses[member] = hello.peer_address
            self._nodes[member] = node
            self._open_link(member)

    def serve(self, member: MemberId, task: asyncio.Task[object] | None) -> None:
        """Record the task that serves the stream of a peer; it replaces an earlier stream.

        The earlier stream may be broken although this member has not noticed. Its unfinished frame
        is dropped.
        """
        assert task is not None
        earlier = self._inbound.get(member)
        if earlier is not None:
            earlier.cancel()
        self._inbound[member] = task

    def is_connected(self, member: MemberId) -> bool:
        """Return whether a task serves a stream of the member."""
        return member in self._inbound

    def is_replaced(self, member: MemberId, task: asyncio.Task[object] | None) -> bool:
        """Return whether another task serves the member now."""
        return self._inbound.get(member, task) is not task

    def ended(self, member: MemberId, task: asyncio.Task[object] | None) -> None:
        """Report the end of a stream, unless another task has replaced it."""
        if self._inbound.get(member) is task:
            del self._inbound[member]
            self.receiver.stream_ended(member)

    def answered(self, member: MemberId, answer: pb.ExchangeResponse) -> None:
        """Check the identity of the peer that answered at the member's address."""
        check_version(member, answer)
        check_directory(member, answer.directory_id, self.roster)
        self.is_accepted = True
        self.receiver.handshake_done(member, answer.directory_id)

    def make_beacon(self) -> bytes:
        """Return the beacon for a frame with a heartbeat; see ``Beacons``."""
        return self.receiver.make_beacon()

    def unreachable(self, member: MemberId) -> None:
        """Handle the loss of messages to ``member``."""
        self.receiver.unreachable(member)

    def refused(self, error: DirectoryRefused) -> None:
        """Stop this member, because a peer refuses it permanently."""
        if isinstance(error, MemberInUse):
            error = MemberInUse(str(error), was_accepted=self.is_accepted)
        self.receiver.refused(error)

    async def close(self) -> None:
        """Close all streams of the group."""
        self._background.cancel()
        closing = [link.close() for link in self._links.values()]
        self._links.clear()
        await asyncio.gather(*closing, self._background.ended(), return_exceptions=True)


def _has_no_use(error: Exception) -> bool:
    """Return whether the receiver cannot use the snapshot, so that a retry is useless."""
    if not isinstance(error, aio.AioRpcError):
        return False
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
