"""After any power loss, no mark older than the durable one is used."""

from __future__ import annotations

from random import Random

import pytest

from taskraft_replication.core.types import LogIndex, Term
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.mark import Mark, MarkFile
from tests.sim.disk import SimDisk

SLOT_BYTES = 40
SLOTS = (0, 4096)


def mark(index: int, generation: int = 0) -> Mark:
    return Mark(generation, LogIndex(index), Term(1), 7 * index)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


def found(disk: SimDisk) -> Mark:
    return MarkFile.open(disk, "mark").current


def spoil(disk: SimDisk, place: int, offset: int = 0) -> None:
    """Flip a bit of a slot."""
    file = disk.open("mark")
    (byte,) = file.read(place + offset, 1)
    file.write(place + offset, bytes([byte ^ 8]))


def slot_of(disk: SimDisk, index: int) -> int:
    """Return the slot that holds a mark."""
    file = disk.open("mark")
    places = [at for at in SLOTS if file.read(at + 16, 8) == index.to_bytes(8, "little")]
    assert len(places) == 1
    return places[0]


def test_the_last_mark_is_used_even_if_its_index_is_lower(disk):
    file = MarkFile.create(disk, "mark", mark(1))
    for index in (5, 9, 3):
        file.write(mark(index))
        assert found(disk) == mark(index)


@pytest.mark.shows_fault(
    "log and vote",
    "flipped bit in one slot of the mark",
    "uses the other slot: the mark then lags by one batch",
)
@pytest.mark.parametrize("offset", range(SLOT_BYTES))
def test_a_flipped_bit_anywhere_in_a_slot_invalidates_it(disk, offset):
    """A torn mark must never be used: its index may be higher or lower than the synced index."""
    file = MarkFile.create(disk, "mark", mark(1))
    file.write(mark(5))
    spoil(disk, slot_of(disk, 5), offset)
    assert found(disk) == mark(1)
    spoil(disk, slot_of(disk, 1), offset)
    with pytest.raises(LogDamaged, match="mark is unreadable"):
        found(disk)


def test_a_mark_older_than_the_synced_one_is_never_used(disk):
    """After a truncation of the log, an older mark would cover entries that are gone."""
    file = MarkFile.create(disk, "mark", mark(1))
    for index in (60, 20):
        file.write(mark(index))
        file.sync()
    for index in range(21, 25):
        file.write(mark(index))
    spoil(disk, slot_of(disk, 24))
    assert found(disk) == mark(20)


def test_the_slot_of_the_last_synced_mark_is_not_overwritten(disk):
    file = MarkFile.create(disk, "mark", mark(1))
    for index in range(2, 6):
        file.write(mark(index))
        file.sync()
        file.sync()
        assert {slot_of(disk, index - 1), slot_of(disk, index)} == set(SLOTS)


@pytest.mark.parametrize("seed", range(8))
def test_a_mark_whose_sync_failed_is_made_durable_when_it_is_read(seed):
    """The page cache shows the mark, and the process that opens the log relies on the mark."""
    disk = SimDisk(Random(seed))
    file = MarkFile.create(disk, "mark", mark(60))
    file.write(mark(20))
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="failed to sync"):
        file.sync()
    disk.recover()
    assert found(disk) == mark(20)
    disk.lose_power()
    assert found(disk) == mark(20)


@pytest.mark.parametrize("seed", range(8))
def test_a_new_mark_and_its_file_are_durable(seed):
    disk = SimDisk(Random(seed))
    MarkFile.create(disk, "mark", mark(1))
    disk.lose_power()
    assert found(disk) == mark(1)


@pytest.mark.parametrize("size", [0, 30, SLOT_BYTES - 1])
def test_a_file_that_is_too_short_is_damage(disk, size):
    MarkFile.create(disk, "mark", mark(1))
    disk.open("mark").truncate(size)
    with pytest.raises(LogDamaged, match="mark is unreadable"):
        found(disk)


def test_a_slot_of_zeros_is_invalid(disk):
    """Zeros have a valid checksum, too."""
    MarkFile.create(disk, "mark", mark(1))
    assert found(disk) == mark(1)
    disk.open("mark").write(0, bytes(SLOT_BYTES))
    with pytest.raises(LogDamaged, match="mark is unreadable"):
        found(disk)
