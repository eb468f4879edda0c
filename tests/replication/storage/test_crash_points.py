"""End the process at every single disk operation, with and without a power loss, and look.

Every step of the storage is a failpoint this way: writing, syncing, renaming, syncing a directory,
truncating, removing. What had been acknowledged before must be there afterwards, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from replication.core.types import (
    ConfState,
    Entry,
    HardState,
    LogIndex,
    MemberId,
    SnapshotMeta,
    Term,
)
from replication.storage.group_storage import GroupStorage, StorageConfig
from replication.storage.metadata import Identity
from tests.sim.disk import Crashed, SimDisk

META = SnapshotMeta(LogIndex(300), Term(3), ConfState(voters=(MemberId(1),)))


class Promises:
    """A group's storage and what it has promised."""

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
            # What is about to be replaced is no promise any more.
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

    def install(self) -> None:
        self.storage.begin_installation(META)
        self.applied = META.index
        self.entries = {}
        self.storage.finish_installation(META)
        self.storage.publish_installation(META)
        self.hard_state = HardState(Term(3), self.hard_state.vote, LogIndex(1))

    def check(self) -> LogIndex:
        """Open what is left, compare it with what was promised, and return where its log ends."""
        self.disk.recover()
        view = self.open().view
        hard_state, _ = view.initial_state()
        assert hard_state.term >= self.hard_state.term
        if hard_state.term == self.hard_state.term:
            assert hard_state.vote == self.hard_state.vote
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


def trim(promises: Promises) -> None:
    append(promises)
    promises.trim(25)
    promises.store(2, 38, 2)


def install(promises: Promises) -> None:
    append(promises)
    promises.store(3, 38, 1)
    promises.install()
    promises.store(3, 301, 2)
    promises.store(4, 303, 2)


def run(
    work: Callable[[Promises], None], seed: int, crash_at: int | None, *, power: bool
) -> int | None:
    """Run ``work`` up to the operation ``crash_at``; return None if it ended before."""
    disk = SimDisk(Random(seed))
    promises = Promises(disk)
    promises.open()
    disk.crash_at = None if crash_at is None else disk.operations + crash_at
    before = disk.operations
    try:
        work(promises)
    except Crashed:
        if power:
            disk.lose_power()
        promises.check()
        # A second crash, right after the recovery, must find the same.
        disk.lose_power()
        promises.check()
        return None
    return disk.operations - before


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("work", [append, elect, replace, trim, install])
def test_a_crash_at_any_operation_keeps_every_promise(work, power):
    operations = run(work, 0, None, power=power)
    assert operations is not None
    assert operations > 20
    for crash_at in range(1, operations + 1):
        for seed in range(4 if power else 1):
            run(work, seed, crash_at, power=power)


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_a_crash_while_a_group_is_founded_leaves_nothing_that_hinders(power):
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
        promises.check()


def test_a_failed_sync_is_not_trusted_after_a_restart():
    """The page cache shows the entry after the restart; a power loss must not undo it then."""
    disk = SimDisk(Random(1))
    promises = Promises(disk)
    promises.open()
    append(promises)
    disk.sync_fails = True
    with pytest.raises(OSError, match="failed to sync"):
        promises.store(1, 38, 1)
    disk.recover()
    last = promises.open().view.last_index()
    disk.lose_power()
    assert promises.open().view.last_index() == last
    promises.check()
