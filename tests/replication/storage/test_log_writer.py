"""Work shares a write or waits for it, and replies are released after the write."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from taskraft_replication.core.types import (
    APPEND_WORKER,
    ConfState,
    Entry,
    HardState,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    Snapshot,
    SnapshotMeta,
    Term,
)
from taskraft_replication.storage.log_writer import LogWriter, _overwrite
from tests.replication.driver.stand_ins import entry

STORED = HardState(Term(3), MemberId(2), LogIndex(4))


class Disk:
    """A storage, its worker and its listener; records stored work and released replies."""

    def __init__(self) -> None:
        self.stored: list[tuple[HardState | None, list[int], int]] = []
        self.published: list[int] = []
        self.released: list[object] = []
        self.batches: list[tuple[int, int]] = []
        self.view = SimpleNamespace(initial_state=lambda: (STORED, ConfState()), publish=self._show)
        self._work: deque = deque()
        self.writer = LogWriter(self, SimpleNamespace(store=self._queue), self)

    def _queue(self, work, then) -> None:
        self._work.append((work, then))

    def _show(self, entries) -> None:
        self.published += [entry.index for entry in entries]

    def store(self, hard_state, entries, commit) -> int:
        self.stored.append((hard_state, [entry.index for entry in entries], commit))
        return 100 * len(entries)

    def written(self, replies) -> None:
        self.released += [(reply.to, [*self.published]) for reply in replies]

    def synced(self, entries, log_bytes) -> None:
        self.batches.append((entries, log_bytes))

    def sync(self) -> None:
        """Finish one item of work."""
        work, then = self._work.popleft()
        then(work())

    @property
    def is_busy(self) -> bool:
        return bool(self._work)


def write(first=0, last=-1, *, hard_state=None, reply_to=(), snapshot=None) -> Message:
    return Message(
        MessageKind.STORAGE_APPEND,
        APPEND_WORKER,
        entries=tuple(Entry(Term(3), LogIndex(index)) for index in range(first, last + 1)),
        hard_state=hard_state,
        snapshot=snapshot,
        replies=tuple(Message(MessageKind.APPEND_REPLY, MemberId(to)) for to in reply_to),
    )


def committed(index: int) -> HardState:
    return HardState(STORED.term, STORED.vote, LogIndex(index))


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_work_that_arrives_during_a_write_shares_the_next_write(disk):
    disk.writer.put(write(5, 6))
    disk.writer.advance()
    for index in (7, 8, 9):
        disk.writer.put(write(index, index, reply_to=[index]))
        disk.writer.advance()
    disk.sync()
    disk.writer.advance()
    disk.sync()
    assert [entries for _, entries, _ in disk.stored] == [[5, 6], [7, 8, 9]]
    assert [to for to, _ in disk.released] == [7, 8, 9]
    assert disk.batches == [(2, 200), (3, 300)]
    assert disk.writer.is_idle


def test_replies_are_released_when_the_entries_are_durable_and_readable(disk):
    disk.writer.put(write(5, 6, reply_to=[1]))
    disk.writer.advance()
    assert not disk.released
    assert not disk.writer.is_idle
    disk.sync()
    assert disk.released == [(1, [5, 6])]


def test_a_commit_index_alone_is_not_synced_and_is_stored_with_the_next_entries(disk):
    disk.writer.put(write(hard_state=committed(8), reply_to=[1]))
    disk.writer.advance()
    assert not disk.is_busy
    assert disk.released == [(1, [])]
    assert disk.writer.commit == 8
    disk.writer.put(write(9, 9))
    disk.writer.advance()
    disk.sync()
    assert disk.stored == [(None, [9], 8)]


def test_the_commit_index_found_at_the_start_is_stored_until_a_newer_one(disk):
    disk.writer.put(write(5, 5))
    disk.writer.advance()
    disk.sync()
    assert disk.stored == [(None, [5], STORED.commit)]


@pytest.mark.parametrize(
    "changed", [HardState(Term(4), MemberId(2), 4), HardState(Term(3), MemberId(1), 4)]
)
def test_a_new_term_or_vote_is_synced_once(disk, changed):
    for _ in range(2):
        disk.writer.put(write(hard_state=changed, reply_to=[1]))
        disk.writer.advance()
    assert disk.writer.durable_term == 3
    assert not disk.released
    disk.sync()
    assert disk.writer.durable_term == changed.term
    disk.writer.advance()
    assert not disk.is_busy
    assert len(disk.released) == 2
    assert disk.stored == [(changed, [], 4)]


def test_the_last_of_several_hard_states_in_one_sync_is_stored(disk):
    """A hard state with a vote may follow a hard state that only begins the term."""
    disk.writer.put(write(5, 5))
    disk.writer.advance()
    begun, voted = HardState(Term(4), commit=4), HardState(Term(4), MemberId(1), 5)
    for hard_state in (begun, voted, None):
        disk.writer.put(write(hard_state=hard_state, reply_to=[1]))
    disk.sync()
    disk.writer.advance()
    assert not disk.released
    disk.sync()
    assert disk.stored[1:] == [(voted, [], 5)]
    assert len(disk.released) == 3


def test_replies_without_entries_wait_for_earlier_writes(disk):
    disk.writer.put(write(5, 5))
    disk.writer.advance()
    disk.writer.advance([Message(MessageKind.VOTE, MemberId(2))])
    assert not disk.released
    disk.sync()
    disk.writer.advance()
    assert [to for to, _ in disk.released] == [2]


def snapshot_of(index: int) -> Snapshot:
    return Snapshot(SnapshotMeta(LogIndex(index), Term(5), ConfState()), b"name")


def test_nothing_is_written_while_a_snapshot_is_being_installed(disk):
    disk.writer.put(write(5, 5))
    disk.writer.advance()
    installing = write(
        snapshot=snapshot_of(100), hard_state=HardState(Term(5), commit=100), reply_to=[1]
    )
    disk.writer.put(installing)
    disk.writer.put(write(101, 101, reply_to=[2]))
    disk.writer.advance()
    assert disk.writer.next_snapshot is None, "the earlier batch comes first"
    assert disk.writer.holds_snapshot("name")
    assert not disk.writer.holds_snapshot("another")
    disk.sync()
    disk.writer.advance()
    assert disk.writer.next_snapshot is installing
    assert disk.writer.begin_snapshot() == HardState(Term(5), commit=100)
    disk.writer.advance()
    assert not disk.is_busy
    assert not disk.writer.is_idle
    assert disk.writer.next_snapshot is None
    assert disk.writer.durable_term == 3
    disk.writer.end_snapshot(installing)
    assert disk.writer.durable_term == 5
    assert [to for to, _ in disk.released] == [1]
    disk.writer.advance()
    disk.sync()
    assert disk.stored[-1] == (None, [101], 100)


def test_a_snapshot_in_a_stored_term_needs_no_hard_state(disk):
    disk.writer.put(write(snapshot=snapshot_of(100), hard_state=committed(100)))
    assert disk.writer.begin_snapshot() is None
    assert disk.writer.commit == 100


def test_later_writes_replace_earlier_ones_in_a_batch():
    entries = [entry(5), entry(6), entry(7)]
    _overwrite(entries, [entry(6, 2), entry(7, 2), entry(8, 2)])
    assert [each.term for each in entries] == [1, 2, 2, 2]
    _overwrite(entries, [entry(9, 2)])
    assert [each.index for each in entries] == [5, 6, 7, 8, 9]
    _overwrite(entries, [entry(3, 3)])
    assert entries == [entry(3, 3)]
