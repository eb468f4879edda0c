"""End the process at every disk operation, with and without a power loss, and check recovery.

Every step of the storage is a failpoint this way: write, sync, rename, sync of a directory,
truncate, remove. All data acknowledged before must still exist, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from taskraft_replication.core.types import (
    ConfState,
    Entry,
    HardState,
    LogIndex,
    MemberId,
    SnapshotMeta,
    Term,
)
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.metadata import Identity
from tests.sim.disk import Crashed, SimDisk

ALONE = ConfState(voters=(MemberId(1),))


class Promises:
    """The storage of a group, with the data that it must keep through any crash."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.applied = LogIndex(1)
        self.entries: dict[int, Entry] = {}
        self.hard_state = HardState(Term(1), MemberId(0), LogIndex(1))
        self.first = 2

    def open(self) -> GroupStorage:
        founders = ConfState(voters=(MemberId(1), MemberId(2)))
        config = StorageConfig(Identity("t", MemberId(1), 0), founders, 99, segment_bytes=2048)
        self.storage = GroupStorage.open(self.disk, config, self.applied)
        return self.storage

    def store(self, term: int, first: int, count: int) -> None:
        entries = [
            Entry(Term(term), LogIndex(index), b"%d of %d " % (index, term) * 8)
            for index in range(first, first + count)
        ]
        hard_state = HardState(Term(term), MemberId(term), LogIndex(1))
        changed = hard_state if hard_state.term != self.hard_state.term else None
        if first <= self.storage.view.last_index():
            # Replaced entries need not be kept any more.
            self.entries = {index: each for index, each in self.entries.items() if index < first}
        self.storage.store(changed, entries, LogIndex(1))
        self.storage.view.publish(entries)
        self.hard_state = changed or self.hard_state
        self.entries |= {entry.index: entry for entry in entries}

    def trim(self, index: int) -> None:
        self.applied = LogIndex(index)
        start = self.storage.trim_start(LogIndex(index))
        assert start is not None
        self.entries = {at: each for at, each in self.entries.items() if at > start.index}
        self.storage.view.publish_start(start)
        self.storage.trim(start)

    def last_of_segment(self, place: int) -> LogIndex:
        return self.storage._log.segments[place].last_index

    def install(self, index: int) -> None:
        meta = SnapshotMeta(LogIndex(index), Term(3), ALONE)
        self.storage.begin_installation(meta)
        self.applied = meta.index
        self.entries = {}
        self.storage.finish_installation(meta)
        self.storage.publish_installation(meta)

    def check(self) -> LogIndex:
        """Open the files, compare them with the promises, and return the end of the log."""
        self.disk.recover()
        view = self.open().view
        hard_state, _ = view.initial_state()
        assert hard_state.term >= self.hard_state.term
        if hard_state.term == self.hard_state.term:
            assert hard_state.vote == self.hard_state.vote
        self.hard_state = hard_state
        for index, entry in self.entries.items():
            assert view.entries(LogIndex(index), LogIndex(index + 1), 1) == [entry]
        assert view.first_index() - 1 <= self.applied <= view.last_index()
        return view.last_index()


def append(promises: Promises) -> None:
    for batch in range(12):
        promises.store(1, 2 + 3 * batch, 3)


def elect(promises: Promises) -> None:
    for term in range(2, 5):
        promises.store(term, 2 * term - 2, 6 if term == 2 else 2)


def replace(promises: Promises) -> None:
    append(promises)
    promises.store(2, 30, 2)
    promises.store(3, 10, 4)
    promises.store(3, 14, 4)


def replace_segments(promises: Promises) -> None:
    """Replace several segments by more entries than the remaining segment has space for."""
    append(promises)
    promises.store(2, 5, 30)
    promises.store(2, 35, 2)


def trim(promises: Promises) -> None:
    append(promises)
    promises.trim(25)
    promises.store(2, 38, 2)


def install(promises: Promises) -> None:
    append(promises)
    promises.store(3, 38, 1)
    promises.install(300)
    promises.store(3, 301, 2)
    promises.store(4, 303, 2)


def install_in_the_middle(promises: Promises) -> None:
    """Install a snapshot in the middle of the old log, whose later entries differ."""
    append(promises)
    promises.store(3, 38, 1)
    promises.install(promises.last_of_segment(1))
    promises.store(4, promises.storage.view.last_index() + 1, 2)


def go_on(promises: Promises) -> None:
    """Append to the log in the current term only, which syncs no directory."""
    promises.store(promises.hard_state.term, promises.storage.view.last_index() + 1, 2)


def rest(_: Promises) -> None:
    """Do nothing, so that only a recovery changes the files."""


Work = Callable[[Promises], None]


def crash(work: Work, seed: int, crash_at: int, *, power: bool) -> Promises:
    """Run ``work`` up to the operation ``crash_at``, and return the disk."""
    disk = SimDisk(Random(seed))
    promises = Promises(disk)
    promises.open()
    disk.crash_at = disk.operations + crash_at
    with pytest.raises(Crashed):
        work(promises)
    if power:
        disk.lose_power()
    return promises


def operations_of(work: Work) -> int:
    """Return the number of operations of ``work``; a power loss after it changes nothing."""
    disk = SimDisk(Random(0))
    promises = Promises(disk)
    promises.open()
    before = disk.operations
    work(promises)
    operations = disk.operations - before
    disk.lose_power()
    promises.check()
    return operations


WORKS = (append, elect, replace, replace_segments, trim, install, install_in_the_middle)


@pytest.mark.shows_fault(
    "process",
    "killed at any moment, or a power loss",
    "restarts with all acknowledged data; a tail that was not fsynced may be lost, "
    "but nothing in it was acknowledged",
)
@pytest.mark.parametrize("then", [rest, go_on])
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("work", WORKS)
def test_a_crash_at_any_operation_keeps_every_promise(work, power, then):
    """A power loss after the recovery keeps the promises too, even with new promises in between."""
    operations = operations_of(work)
    assert operations > 20
    for crash_at in range(1, operations + 1):
        for seed in range(2):
            promises = crash(work, seed, crash_at, power=power)
            promises.check()
            then(promises)
            promises.disk.lose_power()
            promises.check()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("work", WORKS)
def test_a_power_loss_during_a_recovery_keeps_every_promise(work, power):
    interrupted = 0
    for crash_at in range(1, operations_of(work) + 1):
        promises = crash(work, crash_at, crash_at, power=power)
        disk = promises.disk
        disk.recover()
        disk.crash_at = disk.operations + Random(crash_at).randrange(1, 16)
        try:
            promises.open()
        except Crashed:
            interrupted += 1
        disk.lose_power()
        promises.check()
    assert interrupted


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_a_crash_while_a_group_is_created_allows_another_attempt(power):
    for crash_at in range(1, 60):
        disk = SimDisk(Random(crash_at))
        disk.crash_at = crash_at
        promises = Promises(disk)
        try:
            promises.open()
        except Crashed:
            if power:
                disk.lose_power()
        promises.check()
        append(promises)
        assert promises.check() == 37


def test_a_failed_sync_is_not_trusted_after_a_restart():
    """The page cache shows the entry after the restart; a power loss must not remove the entry."""
    disk = SimDisk(Random(1))
    promises = Promises(disk)
    promises.open()
    append(promises)
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="failed to sync"):
        promises.store(1, 38, 1)
    disk.recover()
    last = promises.open().view.last_index()
    disk.lose_power()
    assert promises.open().view.last_index() == last
    promises.check()


def test_the_log_does_not_repeat_a_failed_sync():
    """The next sync would succeed without writing, and the entry would be acknowledged wrongly."""
    disk = SimDisk(Random(1))
    promises = Promises(disk)
    promises.open()
    append(promises)
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="failed to sync"):
        promises.store(1, 38, 1)
    assert disk.failing_syncs == 0
    disk.lose_power()
    promises.check()
