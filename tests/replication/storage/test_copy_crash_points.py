"""End the process at every disk operation while a damaged log is completed and the member starts.

Before the switch, the damaged log is there as it was. After the switch, the log is complete. In
both cases, another attempt ends with the whole log.
"""

from __future__ import annotations

from random import Random

import pytest

from taskraft_replication.core.types import (
    ConfState,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    MemberId,
    Term,
)
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.damaged_log import DamagedLog
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.log_copy import LogCopy
from taskraft_replication.storage.metadata import Identity, Metadata
from tests.sim.disk import Crashed, SimDisk

LAST, BAD = 40, (11, 12, 30)
SEGMENT_BYTES = 1200
VOTE = HardState(Term(3), MemberId(2), LogIndex(1))
FOUNDERS = ConfState(voters=(MemberId(1), MemberId(2)))
CONFIG = StorageConfig(Identity("t", MemberId(1), 0), FOUNDERS, 99, segment_bytes=SEGMENT_BYTES)
OPERATIONS_MAX = 300


def original(index: int) -> Entry:
    kind = EntryKind.CONF_CHANGE if index == BAD[0] else EntryKind.NORMAL
    return Entry(Term(1 + index // 20), LogIndex(index), b"entry %d " % index * 12, kind)


def damaged_disk(seed: int) -> SimDisk:
    """Return the disk of a member with trimmed entries, three terms and damaged entries."""
    disk = SimDisk(Random(seed))
    storage = GroupStorage.open(disk, CONFIG, LogIndex(1))
    for index in range(2, LAST + 1):
        entries = [original(index)]
        storage.store(VOTE if index == 2 else None, entries, LogIndex(index - 1))
        storage.view.publish(entries)
    start = storage.trim_start(LogIndex(9))
    assert start is not None
    storage.trim(start)
    storage.sync_mark()
    for segment in storage._log.segments:
        inode = disk._names[f"raft-0/log/{segment.name}"]
        for index in BAD:
            if segment.first_index <= index <= segment.last_index:
                place = segment.offsets[index - segment.first_index] + 60
                for content in (inode.current, inode.durable):
                    content[place] ^= 1
    return disk


def complete(disk: SimDisk) -> None:
    """Complete the log if it is damaged, and start the member."""
    try:
        GroupStorage.open(disk, CONFIG, LogIndex(9))
    except LogDamaged:
        metadata = Metadata(disk, "raft-0")
        log = DamagedLog(disk, metadata)
        assert [each.first for each in log.gaps(log.start)] == [BAD[0], BAD[2]]
        copy = LogCopy(disk, metadata, log.start, log.commit, SEGMENT_BYTES)
        copy.add([original(index) for index in range(log.start.index + 1, LAST + 1)])
        copy.finish()
        GroupStorage.open(disk, CONFIG, LogIndex(9))


def check(disk: SimDisk) -> LogIndex:
    """Check the log, the vote, and that no file is left; return the last entry of the log."""
    storage = GroupStorage.open(disk, CONFIG, LogIndex(9))
    view = storage.view
    last = view.last_index()
    assert view.first_index() - 1 == storage._log.start.index
    for index in map(LogIndex, range(view.first_index(), LAST + 1)):
        assert view.entries(index, LogIndex(index + 1), 1) == [original(index)]
    hard_state = Metadata(disk, "raft-0").hard_state()
    assert (hard_state.term, hard_state.vote) == (VOTE.term, VOTE.vote)
    assert view.has_change(LogIndex(BAD[0]), LogIndex(BAD[0] + 1))
    assert disk.names("raft-0/log") == sorted(each.name for each in storage._log.segments)
    storage.store(None, [original(LAST + 1)], LogIndex(LAST))
    return last


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_log_is_completed_through_a_crash_at_any_operation(loses_power):
    base = damaged_disk(1)
    for step in range(1, OPERATIONS_MAX):
        disk = base.copy(Random(step))
        disk.crash_at = disk.operations + step
        try:
            complete(disk)
        except Crashed:
            if loses_power:
                disk.lose_power()
            disk.recover()
            complete(disk)
            assert check(disk) == LAST
            continue
        assert step > 30, "the completion takes more operations"
        disk.recover()
        assert check(disk) == LAST
        return
    raise AssertionError("the completion takes too many operations")


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_log_is_completed_through_repeated_crashes(loses_power):
    for seed in range(40):
        rng = Random(seed)
        disk = damaged_disk(seed)
        for _ in range(4):
            disk.crash_at = disk.operations + rng.randrange(1, 40)
            try:
                complete(disk)
            except Crashed:
                if loses_power:
                    disk.lose_power()
            disk.recover()
        complete(disk)
        assert check(disk) == LAST
