"""Provide a receiver that records all calls, for tests of the transport."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from taskraft_replication.core.types import (
    NO_MEMBER,
    ConfState,
    LogIndex,
    MemberId,
    MemberInfo,
    Message,
    MessageKind,
    SnapshotMeta,
    Term,
)
from taskraft_replication.errors import (
    DirectoryRefused,
    MessageMalformed,
    SnapshotBroken,
    SnapshotUnusable,
)
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.peers.contract import Membership
from taskraft_replication.peers.grpc_peers import GrpcPeers
from taskraft_replication.peers.handshake import PROTOCOL_VERSION
from taskraft_replication.peers.transport import GrpcTransport
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.snapshot_inbox import SnapshotInbox
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from tests.replication.held_log import HeldLog

META = SnapshotMeta(LogIndex(9), Term(2), ConfState(voters=(MemberId(1), MemberId(2))))


def beat(number: int = 1, sender: int = 1, to: int = 2) -> Message:
    """Return a heartbeat; ``number`` distinguishes the heartbeat from others."""
    return Message(
        MessageKind.HEARTBEAT, MemberId(to), MemberId(sender), Term(1), commit=LogIndex(number)
    )


def hello(**other: str | int) -> pb.Hello:
    """Return the introduction of member 1 to member 2, with other values for some fields."""
    fields = {
        "protocol_version": PROTOCOL_VERSION,
        "cluster_id": "test",
        "sender": 1,
        "receiver": 2,
        "incarnation": 1,
        **other,
    }
    return pb.Hello(**fields)


class Sink:
    """Collects a snapshot in a real inbox."""

    def __init__(self, inbox: SnapshotInbox, transfer_id: str, receiver: Member) -> None:
        self.incoming = inbox.begin(transfer_id)
        self.turn = self.incoming.attach()
        self.inbox = inbox
        self.receiver = receiver
        receiver.begun.append(self.incoming.size)

    @property
    def size(self) -> int:
        return self.incoming.size

    async def write(self, offset: int, data: bytes, crc32c: int) -> None:
        if self.receiver.breaks_at is not None and offset >= self.receiver.breaks_at:
            self.receiver.breaks_at = None
            raise SnapshotBroken("the connection is cut")
        self.incoming.write(self.turn, offset, data, crc32c)

    async def finish(self) -> int:
        self.incoming.complete(self.turn)
        self.incoming.seal()
        if self.receiver.has_no_room:
            self.inbox.discard(self.incoming.name)
            raise SnapshotUnusable("there is no room for it")
        self.receiver.snapshot = b"".join(self.inbox.chunks(self.incoming.name))
        self.inbox.discard(self.incoming.name)
        self.receiver.changed.set()
        return self.incoming.size

    def abandon(self) -> None:
        self.incoming.detach(self.turn)
        self.receiver.abandoned += 1


class Member:
    """A receiver that records all calls; tests wait for events, never for a time."""

    def __init__(self, path, member: int, cluster_id: str = "test", incarnation: int = 1) -> None:
        self.membership = Membership(cluster_id, 0, MemberId(member), incarnation)
        self.transport = GrpcTransport()
        self.leader = NO_MEMBER
        self.log = HeldLog()
        self.received: list[Message] = []
        self.beacon = b""
        """The beacon that this member sends with each heartbeat."""
        self.beacons: list[tuple[MemberId, bytes, int]] = []
        """The received beacons, each with the number of messages that arrived before it."""
        self.bad_beacon: bytes | None = None
        self.lost: list[int] = []
        self.signs: list[tuple[str, MemberId, Term]] = []
        self.sent: list[bool] = []
        self.gone: list[MemberId] = []
        self.acquaintances: dict[MemberId, str] = {}
        self.refusals: list[DirectoryRefused] = []
        self.snapshot = b""
        self.abandoned = 0
        self.has_refused_snapshot = False
        self.begun: list[int] = []
        """Offset at which each snapshot stream began."""
        self.breaks_at: int | None = None
        self.has_no_room = False
        self.changed = asyncio.Event()
        self.inbox = SnapshotInbox(DiskFileSystem(path), f"m{member}")
        self.port = 0
        self.peers: GrpcPeers

    async def start(self, port: int = 0) -> None:
        self.port = await self.transport.start(f"127.0.0.1:{port}")

    def join(self, *others: Member) -> None:
        roster = roster_of(
            MemberInfo(other.membership.member_id, peer_address=f"127.0.0.1:{other.port}")
            for other in (self, *others)
        )
        self.peers = self.transport.join(self.membership, roster, self)

    async def stop(self) -> None:
        await self.peers.close()
        await self.transport.stop()

    def receive(self, messages: Sequence[Message]) -> None:
        self.received += messages
        self.changed.set()

    def make_beacon(self) -> bytes:
        return self.beacon

    def receive_beacon(self, member: MemberId, beacon: bytes) -> None:
        if beacon == self.bad_beacon:
            raise MessageMalformed("a bad beacon")
        self.beacons.append((member, beacon, len(self.received)))

    def leader_alive(self, member: MemberId, term: Term) -> None:
        self.signs.append(("leader", member, term))
        self.changed.set()

    def follower_alive(self, member: MemberId, term: Term) -> None:
        self.signs.append(("follower", member, term))
        self.changed.set()

    def unreachable(self, member: MemberId) -> None:
        self.lost.append(member)
        self.changed.set()

    def stream_ended(self, member: MemberId) -> None:
        self.gone.append(member)
        self.changed.set()

    def handshake_done(self, member: MemberId, directory_id: str) -> None:
        self.acquaintances[member] = directory_id
        self.changed.set()

    def refused(self, error: DirectoryRefused) -> None:
        self.refusals.append(error)
        self.changed.set()

    def snapshot_sent(self, member: MemberId, *, ok: bool) -> None:
        self.sent.append(ok)
        self.changed.set()

    async def open_state(self, member: MemberId):
        raise SnapshotBroken(f"member {member} gets no state here")

    def begin_snapshot(self, message: Message, transfer_id: str) -> Sink:
        assert message.snapshot is not None
        assert message.snapshot.meta == META
        try:
            return Sink(self.inbox, transfer_id, self)
        except SnapshotBroken:
            self.has_refused_snapshot = True
            self.changed.set()
            raise

    async def until(self, condition) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.changed.clear()
                await self.changed.wait()
