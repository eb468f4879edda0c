"""Run one member with the real driver and storage; the test plays its peers.

Everything runs synchronously and in order: no threads, no clock. The member records its promises to
its peers, because the member must know these promises after any crash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

import google_crc32c

from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.types import (
    ConfState,
    Entry,
    LogIndex,
    MemberId,
    MemberInfo,
    Message,
    MessageKind,
    Snapshot,
    SnapshotMeta,
    SoftState,
    Term,
)
from taskraft_replication.driver.disk_watch import DiskPolicy
from taskraft_replication.driver.driver import StoragePolicy, build_driver
from taskraft_replication.driver.trimmer import TrimPolicy
from taskraft_replication.effects import StorageWork
from taskraft_replication.machine import SnapshotReader, StateMachine
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.storage.filesystem import FileSystem
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.metadata import Identity
from tests.failpoints.failing_filesystem import FailingFileSystem
from tests.failpoints.failing_machine import FailingMachine
from tests.failpoints.failpoints import Failpoints

T = TypeVar("T")

SELF = MemberId(1)
FOUNDERS = ConfState(
    voters=(MemberId(1), MemberId(2), MemberId(3)),
    roster=roster_of(
        MemberInfo(MemberId(number), f"n{number}", "127.0.0.1:1", "127.0.0.1:2", f"d{number}")
        for number in (1, 2, 3)
    ),
)


class Promises:
    """The votes and acknowledgements that a member has sent, over all its starts."""

    def __init__(self, told: Callable[[str, int, int], None] = lambda *_: None) -> None:
        self._told = told
        self.term = Term(0)
        self.votes: dict[Term, MemberId] = {}
        self.entries: dict[LogIndex, Entry] = {}
        """Entries that the member has acknowledged to a leader, or to itself as leader."""

    def note(self, message: Message, log: dict[LogIndex, Entry]) -> None:
        """Record a message that is sent; ``log`` holds the entries that the leader has sent."""
        if message.kind not in {MessageKind.PRE_VOTE, MessageKind.PRE_VOTE_REPLY}:
            self.term = max(self.term, message.term)
            self._told("term", message.term, 0)
        if message.kind is MessageKind.VOTE_REPLY and not message.reject:
            assert self.votes.setdefault(message.term, message.to) == message.to
            self._told("vote", message.term, message.to)
        if message.kind is MessageKind.APPEND_REPLY and not message.reject:
            self.entries |= {index: log[index] for index in log if index <= message.index}
            if message.index in log:
                self._told("entry", message.index, log[message.index].term)

    def check(self, member: PromisingMember) -> None:
        """Check that a restarted member still knows its promises."""
        hard_state = member.driver.hard_state
        assert hard_state.term >= self.term
        if hard_state.term in self.votes:
            assert hard_state.vote == self.votes[hard_state.term]
        view = member.storage.view
        for index, entry in self.entries.items():
            if index >= view.first_index():
                assert view.entries(index, LogIndex(index + 1), 1) == [entry]
            else:
                assert index <= member.machine.applied_index, "trimmed, but not in the state"


class PromisingMember:
    """The member from one start to the next crash or close.

    Implements ``Effects`` and ``Observer``.
    """

    def __init__(
        self,
        fs: FileSystem,
        machine: StateMachine,
        failpoints: Failpoints,
        promises: Promises,
    ) -> None:
        self.machine = machine
        self.promises = promises
        self.sent: list[Message] = []
        self.leading_terms: list[Term] = []
        self.told_alive: list[tuple[MemberId, Term]] = []
        self.snapshots: list[tuple[Message, SnapshotReader]] = []
        self.log: dict[LogIndex, Entry] = {}
        """Entries that the leaders have sent since the start, after replacements."""
        self.storage_work = StorageWork()
        self._work: deque[tuple[Callable[[], object], Callable[[object], None]]] = deque()
        self._is_pump_due = False
        config = StorageConfig(Identity("t", SELF, 0), FOUNDERS, 99, segment_bytes=2048)
        self.storage = GroupStorage.open(
            FailingFileSystem(fs, failpoints), config, machine.applied_index
        )
        core = RaftConfig(SELF, election_ticks=10, heartbeat_ticks=1)
        self.driver = build_driver(
            core,
            Random(1).randrange,
            self.storage,
            FailingMachine(machine, failpoints),
            self,
            self,
            StoragePolicy(TrimPolicy(flush_bytes=4000, kept_entries=5), DiskPolicy()),
        )

    # Actions of the test

    def hear(self, kind: MessageKind, sender: int, term: int, **fields: object) -> None:
        """Receive a message from a peer."""
        message = Message(kind, SELF, MemberId(sender), Term(term))
        self.driver.receive([replace(message, **fields)])  # type: ignore[arg-type]  # as named
        self.settle()

    def append(self, sender: int, term: int, entries: Sequence[Entry], commit: int) -> None:
        """Receive entries from the leader of ``term``, behind the entries that the leader knows."""
        before = LogIndex(entries[0].index - 1)
        self.log = {index: each for index, each in self.log.items() if index <= before}
        gone = [index for index in self.promises.entries if index > before]
        for index in gone:
            # The new leader replaces uncommitted entries.
            del self.promises.entries[index]
        self.log |= {entry.index: entry for entry in entries}
        self.hear(
            MessageKind.APPEND,
            sender,
            term,
            index=before,
            log_term=self.storage.view.term(before),
            entries=tuple(entries),
            commit=LogIndex(commit),
        )

    def take_snapshot(self, sender: int, term: int, meta: SnapshotMeta, content: bytes) -> None:
        """Receive a snapshot from a leader, in two pieces."""
        incoming = self.driver.inbox.begin("content")
        turn = incoming.attach()
        for at, piece in ((0, content[:7]), (7, content[7:])):
            incoming.write(turn, at, piece, google_crc32c.value(content[: at + len(piece)]))
        incoming.complete(turn)
        message = Message(
            MessageKind.SNAPSHOT,
            SELF,
            MemberId(sender),
            Term(term),
            snapshot=Snapshot(meta, b"content"),
        )
        # An acknowledged snapshot promises its state, and no entry of the log up to its index.
        self.log = {}
        self.driver.receive_snapshot(message, incoming, lambda _: None)
        self.settle()

    def settle(self) -> None:
        """Run all pending work."""
        while self._work or self._is_pump_due:
            if self._is_pump_due:
                self._is_pump_due = False
                self.driver.pump()
            if self._work:
                self.finish_one()
                self._is_pump_due = True

    def finish_one(self) -> None:
        """Finish the oldest item of storage work."""
        work, then = self._work.popleft()
        result = work()
        self.storage_work.finished += 1
        then(result)

    def close(self) -> None:
        """Close the member in an orderly way."""
        self.storage.sync_mark()
        self.storage.close(self.driver.hard_state)

    # Effects

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.promises.note(message, self.log)
        self.sent += messages

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        assert content.index == meta.index
        self.snapshots.append((message, content))

    def set_leading_term(self, term: Term) -> None:
        self.leading_terms.append(term)

    def send_alive(self, leader: MemberId, term: Term) -> None:
        self.told_alive.append((leader, term))

    def store(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self.storage_work.requested += 1
        self._work.append((work, then))  # type: ignore[arg-type]  # the pair agrees on T

    def flush(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self.store(work, then)

    def request_pump(self) -> None:
        self._is_pump_due = True

    # Observer

    def role_changed(self, state: SoftState, term: Term) -> None:
        pass

    def applied(self, index: LogIndex) -> None:
        pass

    def synced(self, entries: int, log_bytes: int) -> None:
        pass

    def disk_stalled(self, *, is_stalled: bool) -> None:
        pass

    def membership_changed(self, conf_state: ConfState) -> None:
        pass
