"""The log is trimmed after enough writes, and needed entries are kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from taskraft_replication.core.types import HardState, LogIndex, MemberId, Term
from taskraft_replication.driver.trimmer import FLUSH_MEMBERSHIPS, Trimmer, TrimPolicy
from taskraft_replication.observer import RaftCounters
from taskraft_replication.storage.metadata import LogStart
from tests.replication.log_on_disk import SEGMENT_BYTES, Log, entry


class Group:
    """State machine, storage and effects of a group whose log ends at 100; work is done at once."""

    def __init__(
        self,
        *,
        durable: int = 90,
        floor: int | None = None,
        kept: int = 5,
        too_long_at: int = 0,
        unflushed_at: int = 0,
        flush_entries: int = 1_000,
    ) -> None:
        self.durable = self.durable_index = LogIndex(durable)
        self.too_long_at = LogIndex(too_long_at)
        self.unflushed_at = LogIndex(unflushed_at)
        self.flushes = 0
        self.memberships = range(1)
        self.start = LogStart(0, LogIndex(1), Term(1))
        self.done: list[str] = []
        self.counters = RaftCounters()
        self.view = SimpleNamespace(
            last_index=lambda: LogIndex(100),
            publish_start=lambda start: self.done.append(f"hidden before {start.index}"),
        )
        policy = TrimPolicy(
            flush_bytes=1000, kept_entries=kept, kept_bytes=7000, flush_entries=flush_entries
        )
        self.trimmer = Trimmer(self, self, self, policy, lambda: floor, self.counters)

    def written(self, log_bytes: int, entries: int = 0) -> None:
        self.counters.log_bytes += log_bytes
        self.counters.entries += entries
        is_due = self.counters.entries >= self.trimmer.flush_at_entries
        if is_due or self.counters.log_bytes >= self.trimmer.flush_at:
            self.trimmer.flush()

    def beyond(self, bytes_max: int) -> LogIndex:
        return {1000: self.unflushed_at, 7000: self.too_long_at}[bytes_max]

    def flush_durably(self) -> LogIndex:
        self.flushes += 1
        return self.durable

    def flush(self, work, then) -> None:
        then(work())

    def store(self, work, then) -> None:
        then(work())

    def trim_start(self, index: LogIndex) -> LogStart | None:
        return LogStart(0, index, Term(1)) if index > self.start.index else None

    def trim(self, start: LogStart) -> None:
        self.start = start
        self.done.append(f"deleted before {start.index}")


def test_the_state_is_flushed_after_enough_log_was_written():
    group = Group()
    group.written(999)
    assert group.flushes == 0
    group.written(1)
    assert group.flushes == 1
    group.written(999)
    assert group.flushes == 1


def test_the_state_is_flushed_after_enough_entries():
    group = Group(durable=100, flush_entries=50)
    group.written(1, 49)
    assert group.flushes == 0
    group.written(1, 1)
    assert group.flushes == 1
    group.written(1, 49)
    assert group.flushes == 1
    group.written(1, 1)
    assert group.flushes == 2


def test_entries_that_an_earlier_start_left_unflushed_count():
    group = Group(durable=70, flush_entries=50)
    group.written(1, 19)
    assert group.flushes == 0
    group.written(1, 1)
    assert group.flushes == 1


@pytest.mark.parametrize(("unflushed_at", "flushes"), [(90, 0), (91, 1)])
def test_log_that_an_earlier_start_left_unflushed_counts(unflushed_at, flushes):
    group = Group(durable=90, unflushed_at=unflushed_at)
    group.written(1)
    assert group.flushes == flushes


def test_a_state_that_is_far_behind_is_not_flushed_at_each_write():
    """The state machine still applies entries; each flush leaves 60 entries to be flushed."""
    group = Group(durable=40, flush_entries=40)
    group.written(1, 0)
    assert group.flushes == 1
    group.written(1, 9)
    assert group.flushes == 1
    group.written(1, 1)
    assert group.flushes == 2


def test_many_stored_memberships_cause_a_flush():
    group = Group()
    group.memberships = range(FLUSH_MEMBERSHIPS - 1)
    group.trimmer.membership_changed()
    assert group.flushes == 0
    group.memberships = range(FLUSH_MEMBERSHIPS)
    group.trimmer.membership_changed()
    assert group.flushes == 1


def test_trimmed_entries_are_hidden_before_they_are_deleted():
    group = Group()
    group.written(1000)
    assert group.done == ["hidden before 89", "deleted before 89"]


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({}, 89),
        ({"kept": 30}, 70),
        ({"floor": 40}, 40),
        ({"floor": 95}, 89),
        ({"durable": 60}, 59),
        ({"kept": 30, "too_long_at": 80}, 80),
        ({"too_long_at": 99}, 89),
    ],
)
def test_entries_that_are_not_durable_or_kept_or_being_sent_are_not_trimmed(settings, start):
    group = Group(**settings)
    group.written(1000)
    assert group.start.index == start


def test_trimming_continues_after_a_flush_that_trimmed_nothing():
    group = Group(durable=1)
    group.written(1000)
    assert not group.done
    for durable in (50, 60):
        group.durable = LogIndex(durable)
        group.written(1000)
        assert group.start.index == durable - 1
    assert group.flushes == 3


def test_only_one_flush_runs_at_a_time():
    group = Group()
    waiting = []
    group.flush = lambda work, then: waiting.append((work, then))
    group.written(1000)
    group.written(1000)
    assert len(waiting) == 1
    work, then = waiting.pop()
    then(work())
    group.written(0)
    assert len(waiting) == 1, "bytes written during the flush count"


class QueuedStorage(Log):
    """A log on a disk, whose storage work waits until the test finishes it."""

    def __init__(self, path: Path, durable: int) -> None:
        super().__init__(path)
        self.durable_index = LogIndex(durable)
        self.queue: list[tuple[Callable[[], object], Callable[[object], None]]] = []
        self.counters = RaftCounters()

    def trimmer(self) -> Trimmer:
        policy = TrimPolicy(flush_bytes=1, kept_entries=0, kept_bytes=1 << 40)
        return Trimmer(self, self.storage, self, policy, lambda: None, self.counters)

    def flush_durably(self) -> LogIndex:
        return self.durable_index

    def flush(self, work, then) -> None:
        then(work())

    def store(self, work, then) -> None:
        self.queue.append((work, then))

    def finish(self) -> None:
        for work, then in self.queue:
            then(work())


def test_a_trim_behind_a_truncation_deletes_no_new_entry(tmp_path):
    """A new leader's entries replace the newest segment while the trim waits in the queue.

    The last entry of the segment before is applied. The new entries are appended to that segment.
    """
    log = QueuedStorage(tmp_path, durable=0)
    log.append_each(2, 300)
    log.append(entry(301, data=bytes(SEGMENT_BYTES)))
    boundary = log.storage.view._log.segments[-2].last_index
    assert boundary == 300, "the large entry begins a segment, although the one before has room"
    log.durable_index = boundary
    replacement = [entry(boundary + number, 2) for number in (1, 2)]
    hard_state = HardState(Term(2), MemberId(2), boundary)
    log.storage.view.publish(replacement)
    log.store(partial(log.storage.store, hard_state, replacement, boundary), lambda _: None)
    log.trimmer().flush()
    log.finish()
    assert log.read()[-2:] == replacement
    log.open(applied=boundary)
    assert log.read()[-2:] == replacement, "a restart finds the entries"


def test_all_segments_but_the_last_can_be_trimmed_and_none_twice(tmp_path):
    log = Log(tmp_path)
    log.append_each(2, 300)
    *_, last = log.storage.view._log.segments
    start = log.storage.trim_start(LogIndex(10**6))
    assert start.index == last.first_index - 1
    log.storage.view.publish_start(start)
    log.storage.trim(start)
    assert log.storage.trim_start(LogIndex(10**6)) is None
