"""Simulate a node that founds or joins a cluster, with the product's bootstrap and handshake.

A node is one start of a process. Its identity, bootstrap, handshake, driver and storage are the
real code. The simulation replaces gRPC, the clocks and the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from taskraft_replication.beacons import Beacons, NoBeacons
from taskraft_replication.core.types import (
    ConfState,
    LogIndex,
    MemberId,
    Message,
    Roster,
    Snapshot,
    SnapshotMeta,
    SoftState,
    Term,
)
from taskraft_replication.driver.driver import build_driver
from taskraft_replication.driver.preferred_followers import PreferredFollowers
from taskraft_replication.effects import StorageWork
from taskraft_replication.errors import PeerRefused, SnapshotBroken
from taskraft_replication.machine import SnapshotReader
from taskraft_replication.membership.roster import was_removed, with_configured
from taskraft_replication.node.bootstrap import ClusterBootstrap
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.node.leader_loss import LeaderLossCampaign
from taskraft_replication.node.node_effects import OwnLog, PeerReceiver
from taskraft_replication.node.open_storage import storage_config
from taskraft_replication.peers.contract import Membership
from taskraft_replication.peers.handshake import (
    PeerExpelled,
    answer_to,
    check_directory,
    check_version,
    expulsion_error,
    hello_to,
)
from taskraft_replication.peers.incarnations import PeerIncarnations
from taskraft_replication.storage.group_storage import GroupStorage
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_service.cluster.cluster_members import info_of
from taskraft_service.cluster.member_identity import MemberIdentity
from taskraft_service.config.addresses import PeerAddress
from tests.replication.counting_machine import CountingMachine
from tests.sim.disk import SimDisk
from tests.sim.pieces import Piece, pieces_of
from tests.sim.schedule import Event

if TYPE_CHECKING:
    from tests.sim.founding_world import FoundingWorld

T = TypeVar("T")

TICK_US = 50_000
CONNECT_US = (20_000, 150_000)
"""Range of the pause between two attempts to connect to the members without a connection."""
SYNC_US = (100, 5000)
SEGMENT_BYTES = 64 << 10
"""Size of a segment of the log. The simulated disk copies a file at each sync."""


@dataclass(slots=True, frozen=True)
class Settings:
    """The settings of a node, as ``known_identity`` uses them."""

    cluster_id: str
    member: PeerAddress
    members: Sequence[PeerAddress]
    is_joiner: bool = False
    has_host_name: bool = False
    data_dir: Path = Path("sim")


@dataclass(slots=True)
class Host:
    """The parts of a node that outlive its processes: settings, disk and state."""

    settings: Settings
    disk: SimDisk
    machine: CountingMachine

    @property
    def name(self) -> str:
        return self.settings.member.name

    @property
    def address(self) -> str:
        return self.settings.member.peer_address


class FoundingNode:
    """A member from the opening of its storage to the end of its process.

    Implements ``Effects`` and ``Observer``, and is the host of a ``PeerReceiver``.
    """

    def __init__(self, world: FoundingWorld, host: Host, identity: MemberIdentity) -> None:
        self.world = world
        self.host = host
        self.is_alive = True
        self.is_running = False
        """Whether the member takes part, as ``Node.is_running``."""
        self.beacons: Beacons = NoBeacons()
        self.storage_work = StorageWork()
        self.directory_id = identity.directory_id
        self._rng = world.rng
        self._events: set[Event] = set()
        self._work: deque[tuple[Callable[[], object], Callable[[object], None]]] = deque()
        self._is_pump_due = False
        self._tickets: dict[bytes, pb.Hello] = {}
        """The connections of peers to this member."""
        self._connections: dict[MemberId, bytes] = {}
        """The connections of this member to its peers."""
        self._learned: dict[MemberId, str] = {}
        """Addresses of members that have called and are not in the roster."""
        self._incarnations = PeerIncarnations()
        members = identity.founders or (identity.member,)
        self.config = NodeConfig(
            cluster_id=host.settings.cluster_id,
            member_id=MemberId(identity.member.member_id),
            data_directory=host.settings.data_dir,
            members={MemberId(each.member_id): info_of(each) for each in members},
            is_joining=identity.is_joining,
            segment_bytes=SEGMENT_BYTES,
        )
        salt, fresh = self._rng.randrange(1 << 32), f"{self._rng.randrange(1 << 64):016x}"
        self.storage = GroupStorage.open(
            host.disk, storage_config(self.config, salt, fresh), host.machine.applied_index
        )
        self.driver = build_driver(
            self.config.core,
            self._rng.randrange,
            self.storage,
            host.machine,
            self,
            self,
            self.config.storage_policy,
        )
        self._preferred = PreferredFollowers(self.id, lambda _: None)
        self.bootstrap = ClusterBootstrap(
            self.config, self.storage, self.driver, self, self._begin, lambda: not self.is_alive
        )
        self._receiver = PeerReceiver(
            self.driver,
            self._preferred,
            self.bootstrap,
            LeaderLossCampaign(self.driver, 50, self._rng.random, lambda: self.is_running),
            OwnLog(self.storage.view, lambda: self.driver.core.commit_index, self),
            self,
        )
        self._own = Membership(
            self.config.cluster_id,
            0,
            self.id,
            self.storage.incarnation,
            self.storage.directory_id,
            identity.member.peer_address,
            self.bootstrap.founders,
        )
        self._at_start = self.driver.membership.roster
        self.membership_changed(self.driver.membership)

    def start(self) -> None:
        """Connect to the peers, as ``Node.start`` does."""
        self.bootstrap.begin()
        self.later(self._rng.randrange(CONNECT_US[1]), "connect", self._connect)

    def _begin(self) -> None:
        if not self.is_alive:
            return
        self.is_running = True
        self.world.rules.began(self)
        if self.driver.is_only_voter:
            self.driver.campaign()
        self.request_pump()
        self.later(self._rng.randrange(TICK_US), "tick", self._tick)

    def end(self) -> None:
        """End the process."""
        self.is_alive = self.is_running = False
        for event in self._events:
            event.cancel()

    @property
    def id(self) -> MemberId:
        return self.config.member_id

    def later(self, delay_us: int, name: str, run: Callable[[], None]) -> None:
        """Schedule a call for this process; it is dropped if the process ends before."""

        def happen() -> None:
            self._events.discard(event)
            self.world.act(self, run)

        event = self.world.schedule.after(delay_us, f"{self.host.name} {name}", happen)
        self._events.add(event)

    def _tick(self) -> None:
        self.later(TICK_US, "tick", self._tick)
        self.driver.tick()

    # Connections

    @property
    def _addresses(self) -> dict[MemberId, str]:
        known = {each.member: each.peer_address for each in self.roster.members}
        later = {each: at for each, at in self._learned.items() if each > self.roster.last_member}
        return {each: at for each, at in (later | known).items() if each != self.id and at}

    def _connect(self) -> None:
        self.later(self._rng.randint(*CONNECT_US), "connect", self._connect)
        for member, address in self._addresses.items():
            if member not in self._connections:
                self.world.send(self, address, hello_to(member, self._own))

    def receive_hello(self, hello: pb.Hello, caller: FoundingNode) -> None:
        """Answer or refuse the introduction of a peer, as the transport does."""
        try:
            self._incarnations.check_hello(hello, self._own, self.roster)
        except PeerExpelled as error:
            kind, text = error.expulsion.value, str(error)
            self.world.reply(self, caller, lambda: caller.expelled(kind, text))
            return
        except PeerRefused:
            self.world.count("hello refused")
            return
        if hello.peer_address:
            self._learned[MemberId(hello.sender)] = hello.peer_address
        ticket = b"%d" % self._rng.randrange(1 << 63)
        self._tickets[ticket] = hello
        answer = answer_to(hello, self._own, ticket)
        member = MemberId(hello.receiver)
        self.world.reply(self, caller, lambda: caller.receive_answer(member, answer))

    def expelled(self, kind: str, text: str) -> None:
        """Stop for ever, because a peer refuses this member."""
        error = expulsion_error(kind, text)
        assert error is not None
        self.world.expelled(self, error)

    def receive_answer(self, member: MemberId, answer: pb.ExchangeResponse) -> None:
        """Check the answer of a peer, as ``GrpcPeers.answered`` does."""
        try:
            check_version(member, answer)
            check_directory(member, answer.directory_id, self.roster)
        except PeerRefused:
            self.world.count("answer refused")
            return
        self.world.count("answer accepted")
        self._connections[member] = answer.connection_ticket
        self._receiver.handshake_done(member, answer.directory_id)

    def receive_frame(self, ticket: bytes, message: Message, caller: FoundingNode) -> None:
        """Take a message from a connection, unless a later start of the peer has replaced it."""
        hello = self._tickets.get(ticket)
        if hello is None or not self._incarnations.is_current(hello):
            to = self.id
            self.world.reply(self, caller, lambda: caller.disconnected(to))
            return
        self._receiver.receive([message])

    def disconnected(self, member: MemberId) -> None:
        """Handle the end of a connection to a peer."""
        if self._connections.pop(member, None) is not None:
            self._receiver.unreachable(member)

    # Effects

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.world.rules.sent(self, message)
            ticket = self._connections.get(message.to)
            address = self._addresses.get(message.to)
            if ticket is None or address is None:
                self._receiver.unreachable(message.to)
            else:
                self.world.send(self, address, (ticket, message))

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        announcement = replace(message, snapshot=Snapshot(meta))
        address = self._addresses.get(message.to)
        pieces = pieces_of(content)

        def done(ok: bool) -> None:
            self.world.act(self, lambda: self._receiver.snapshot_sent(message.to, ok=ok))

        def arrive() -> None:
            node = self.world.node_at(address)
            if node is None or not node.is_running or node.id != message.to:
                done(False)
            else:
                self.world.act(node, lambda: node.receive_snapshot(announcement, pieces, done))

        self.world.schedule.after(self._rng.randrange(50_000), "snapshot", arrive)

    def receive_snapshot(
        self, message: Message, pieces: list[Piece], done: Callable[[bool], None]
    ) -> None:
        """Receive a whole snapshot."""
        assert message.snapshot is not None
        try:
            incoming = self.driver.inbox.begin(f"t{self.world.schedule.now_us}")
            turn = incoming.attach()
        except SnapshotBroken:
            done(False)
            return
        for offset, data, crc in pieces:
            incoming.write(turn, offset, data, crc)
        incoming.complete(turn)
        reference = Snapshot(message.snapshot.meta, incoming.name.encode())
        self.driver.receive_snapshot(
            replace(message, snapshot=reference), incoming, lambda error: done(error is None)
        )

    def store(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self._work.append((work, then))  # type: ignore[arg-type]  # the pair agrees on T
        self.storage_work.requested += 1
        if len(self._work) == 1:
            self.later(self._rng.randint(*SYNC_US), "store", self._store_one)

    def _store_one(self) -> None:
        work, then = self._work[0]
        result = work()
        self._work.popleft()
        self.storage_work.finished += 1
        if self._work:
            self.later(self._rng.randint(*SYNC_US), "store", self._store_one)
        then(result)
        self.request_pump()

    def flush(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self.later(self._rng.randrange(20_000), "flush", lambda: then(work()))

    def request_pump(self) -> None:
        if not self._is_pump_due:
            self._is_pump_due = True
            self.later(0, "pump", self.pump)

    def pump(self) -> None:
        self._is_pump_due = False
        if self.is_running:
            self.driver.pump()

    def fail(self, error: Exception) -> None:
        raise error

    def set_leading_term(self, term: Term) -> None:
        pass

    def send_alive(self, leader: MemberId, term: Term) -> None:
        pass

    # Observer

    def role_changed(self, state: SoftState, term: Term) -> None:
        self.world.rules.role_changed(self, state, term)

    def applied(self, index: LogIndex) -> None:
        self.world.rules.applied(self, index)

    def synced(self, entries: int, log_bytes: int) -> None:
        pass

    def disk_stalled(self, *, is_stalled: bool) -> None:
        pass

    def membership_changed(self, conf_state: ConfState) -> None:
        self.roster: Roster = with_configured(
            conf_state.roster, self.config.members, self._at_start
        )
        self._preferred.membership_changed(conf_state)
        if was_removed(conf_state.roster, self.id):
            self.later(100_000, "removed", lambda: self.expelled("removed", "removed"))
