"""Drive several cores by hand: their disks, the messages between them, crashes.

Nothing happens without a call. A disk keeps the finished work of its append worker; a crash loses
the rest. After each action the invariants of the protocol are checked.
"""

from __future__ import annotations

from ast import literal_eval
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from taskraft_replication.core.confchange import of_entry
from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.memory_log import MemoryLog
from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.trace import Fact
from taskraft_replication.core.types import (
    APPEND_WORKER,
    APPLY_WORKER,
    ConfState,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    ReadState,
    Snapshot,
    SnapshotMeta,
    Term,
)

Filter = Callable[[Message], bool]


def everything(_message: Message) -> bool:
    return True


class Disk(MemoryLog):
    """The part of a member that survives a crash: the log, and the applied state."""

    def __init__(self, configuration: ConfState) -> None:
        super().__init__(configuration)
        self.configuration = configuration
        self.applied: list[Entry] = []

    def initial_state(self):
        hard_state, _ = super().initial_state()
        return hard_state, self.configuration

    @property
    def applied_index(self) -> LogIndex:
        return self.applied[-1].index if self.applied else LogIndex(0)

    def snapshot(self) -> Snapshot:
        last = self.applied[-1]
        items = [(entry.term, entry.index, entry.data, entry.kind.name) for entry in self.applied]
        return Snapshot(
            SnapshotMeta(last.index, last.term, self.configuration), repr(items).encode()
        )

    def install(self, snapshot: Snapshot) -> None:
        super().install(snapshot)
        self.configuration = snapshot.meta.conf_state
        # The state machine is the list of all applied payloads.
        self.applied = [
            Entry(term, index, data, EntryKind[kind])
            for term, index, data, kind in literal_eval(snapshot.data.decode())
        ]


class Peer:
    """One member with its disk and its two workers."""

    def __init__(self, config: RaftConfig, disk: Disk, draw: Callable[[int], int]) -> None:
        self.disk = disk
        self.draw = draw
        self.facts: list[Fact] = []
        self.config = replace(config, applied=disk.applied_index)
        self.core = RaftCore(self.config, disk, draw, self.facts.append)
        self.append_work: deque[Message] = deque()
        self.apply_work: deque[Message] = deque()
        self.reads: list[ReadState] = []

    def take_ready(self) -> list[Message]:
        """Hand the work of a Ready to the workers; return messages that may be sent now."""
        leaving = []
        while self.core.has_ready():
            ready = self.core.ready()
            self.reads += ready.read_states
            for message in ready.messages:
                if message.to == APPEND_WORKER:
                    self.append_work.append(message)
                elif message.to == APPLY_WORKER:
                    self.apply_work.append(message)
                else:
                    leaving.append(message)
        return leaving

    def sync(self) -> list[Message]:
        """Let the append worker do one item of work; return messages that may be sent now."""
        work = self.append_work.popleft()
        self.disk.store(work.hard_state, work.entries, work.snapshot)
        return self._released(work)

    def apply(self) -> list[Message]:
        """Let the apply worker do one item of work."""
        work = self.apply_work.popleft()
        for entry in work.entries:
            if entry.index <= self.disk.applied_index:
                continue  # A snapshot was installed before this entry was applied.
            assert entry.index == self.disk.applied_index + 1
            change = of_entry(entry)
            if change is not None:
                self.disk.configuration = self.core.apply_conf_change(change)
            self.disk.applied.append(entry)
        return self._released(work)

    def _released(self, work: Message) -> list[Message]:
        own = [reply for reply in work.replies if reply.to == self.config.member_id]
        for reply in own:
            self.core.step(reply)
        return [reply for reply in work.replies if reply.to != self.config.member_id]

    def log(self) -> list[tuple[Term, LogIndex, bytes]]:
        """Return the whole log, durable and unstable entries."""
        log = self.core._member.log
        first, end = log.first_index(), LogIndex(log.last_index + 1)
        entries = log.entries(first, end, 1 << 62) if first < end else ()
        return [(entry.term, entry.index, entry.data) for entry in entries]


class Cluster:
    """Members 1 to ``count``; all vote except those in ``learners``."""

    def __init__(
        self, count: int, *, learners: Sequence[int] = (), draw=lambda n: n - 1, **settings
    ) -> None:
        ids = [MemberId(number) for number in range(1, count + 1)]
        voters = tuple(member for member in ids if member not in learners)
        self.configuration = ConfState(voters, tuple(MemberId(each) for each in learners))
        self.settings = {"pre_vote": False, "check_quorum": False, **settings}
        self.draw = draw
        self.peers: dict[MemberId, Peer] = {}
        self.network: list[Message] = []
        self.leaders: dict[Term, MemberId] = {}
        self.committed: dict[LogIndex, tuple[Term, bytes]] = {}
        for member in ids:
            self.start(member, Disk(self.configuration))

    def __getitem__(self, member: int) -> RaftCore:
        return self.peers[MemberId(member)].core

    def start(self, member: int, disk: Disk) -> None:
        config = RaftConfig(MemberId(member), **self.settings)
        self.peers[MemberId(member)] = Peer(config, disk, self.draw)

    def add_empty(self, member: int) -> None:
        """Start a member without any state, not even a configuration.

        The log does not contain the first configuration, so the member needs a snapshot.
        """
        for peer in self.peers.values():
            peer.disk.compact(peer.disk.applied_index)
        self.start(member, Disk(ConfState()))

    def crash(self, member: int) -> None:
        """Restart ``member`` from its disk; messages to its previous incarnation are lost."""
        self.start(member, self.peers[MemberId(member)].disk)
        self.network = [message for message in self.network if message.to != member]

    # Steps

    def flush(self, *members: int) -> None:
        """Let ``members``, or all, store and apply their work; messages stay in the network."""
        for member in members or tuple(self.peers):
            peer = self.peers[MemberId(member)]
            self.network += peer.take_ready()
            while peer.append_work or peer.apply_work:
                if peer.append_work:
                    self.network += peer.sync()
                if peer.apply_work:
                    self.network += peer.apply()
                self.network += peer.take_ready()
            self.check(peer)

    def deliver(self, wanted: Filter = everything) -> int:
        """Deliver the messages in flight that are ``wanted``; return their number."""
        chosen = [message for message in self.network if wanted(message)]
        self.network = [message for message in self.network if not wanted(message)]
        for message in chosen:
            if message.to in self.peers:
                self[message.to].step(message)
                self.check(self.peers[message.to])
        return len(chosen)

    def drop(self, wanted: Filter = everything) -> list[Message]:
        """Remove the messages in flight that are ``wanted``; return them for a later delivery."""
        lost = [message for message in self.network if wanted(message)]
        self.network = [message for message in self.network if not wanted(message)]
        return lost

    def settle(self, *, among: Iterable[int] = ()) -> None:
        """Work until nothing is left to do; drop messages of members outside ``among``."""
        inside = set(among) or set(self.peers)
        while True:
            self.flush(*inside)
            self.drop(lambda m: not {m.to, m.sender} <= inside)
            if not self.deliver():
                return

    def elect(self, member: int, *, among: Iterable[int] = ()) -> None:
        """Make ``member`` the leader."""
        self[member].campaign()
        self.settle(among=among)
        assert self[member].role is RaftRole.LEADER

    def tick(self, member: int, ticks: int = 1) -> None:
        for _ in range(ticks):
            self[member].tick()

    def report_lost_snapshots(self) -> None:
        """Report to the leaders that no snapshot transfer is running, as the driver must."""
        for peer in self.peers.values():
            for member, progress in peer.core.status().progress.items():
                if progress.pending_snapshot:
                    peer.core.report_snapshot(member, ok=False)

    # Checks

    def check(self, peer: Peer) -> None:
        """Check the invariants that hold in every state of every run."""
        core, disk = peer.core, peer.disk
        own_id = peer.config.member_id
        status = core.status()
        assert status.applied <= status.hard_state.commit <= status.last
        if core.role is RaftRole.LEADER:
            assert self.leaders.setdefault(core.term, own_id) == own_id, "two leaders in a term"
            for progress in status.progress.values():
                assert progress.match < progress.next
        for entry in disk.applied[-8:]:
            known = self.committed.setdefault(entry.index, (entry.term, entry.data))
            assert known == (entry.term, entry.data), "two members applied different entries"
        hard_state, _ = disk.initial_state()
        assert hard_state.term <= core.term

    def logs(self) -> list[list[tuple[Term, LogIndex, bytes]]]:
        return [peer.log() for peer in self.peers.values()]

    def applied(self, member: int) -> list[bytes]:
        """Return the payloads that ``member`` has applied, without empty entries and changes."""
        entries = self.peers[MemberId(member)].disk.applied
        return [entry.data for entry in entries if entry.data and of_entry(entry) is None]


def to(*members: int) -> Filter:
    return lambda message: message.to in members


def between(sender: int, receiver: int) -> Filter:
    return lambda message: message.sender == sender and message.to == receiver


def of_kind(*kinds: MessageKind) -> Filter:
    return lambda message: message.kind in kinds


def with_log(cluster, member, *terms, commit=0):
    """Restart ``member`` with a log of entries of the given terms."""
    log = [Entry(term, index, b"old") for index, term in enumerate(terms, start=1)]
    cluster.peers[member].disk.store(HardState(max(terms), 0, commit), log, None)
    cluster.crash(member)


def in_joint(**settings):
    """Start five members in a joint configuration: incoming 1, 4, 5; outgoing 1, 2, 3."""
    cluster = Cluster(5, **settings)
    for member, peer in cluster.peers.items():
        peer.disk.configuration = ConfState((1, 4, 5), voters_outgoing=(1, 2, 3))
        cluster.crash(member)
    return cluster


def storing_the_second_entry(cluster: Cluster) -> Peer:
    """Return member 2 with a committed and durable entry that it has not applied."""
    peer = cluster.peers[2]
    log = cluster.peers[1].disk.entries(2, 3, 1 << 20)
    peer.core.step(Message(MessageKind.APPEND, 2, 1, 1, 1, 1, tuple(log), 2))
    peer.take_ready()
    while peer.append_work:
        peer.sync()
    assert (peer.core.applied_index, peer.core.commit_index) == (1, 2)
    return peer


def storing_a_snapshot():
    """Start three members; 3 has received a snapshot from leader 1 that is not on disk yet."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle(among=[1, 2])
    snapshot = cluster.peers[1].disk.snapshot()
    cluster[3].step(Message(MessageKind.SNAPSHOT, 3, 1, 1, snapshot=snapshot))
    return cluster
