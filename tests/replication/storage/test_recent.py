"""The newest entries are kept in memory within limits."""

from __future__ import annotations

from taskraft_replication.core.types import LogIndex
from taskraft_replication.storage.recent import RecentEntries
from tests.replication.driver.stand_ins import entry


def test_recent_entries_are_limited_by_number_and_by_size():
    recent = RecentEntries(bytes_max=1000, entries_max=10)
    for index in range(1, 100):
        recent.append(entry(index, data=b"x" * 10))
        assert recent.first is not None
        assert index - recent.first < 10
    first = recent.first
    recent.drop_before(LogIndex(first - 2))
    assert recent.first == first, "dropping removed entries changes nothing"
    recent.append(entry(100, data=b"x" * 5000))
    assert recent.first == 100
    recent.cut_after(LogIndex(50))
    assert recent.first is None
    recent.drop_before(LogIndex(50))
    assert recent.first is None


def test_the_older_half_is_dropped_at_a_limit():
    by_number = RecentEntries(bytes_max=1000, entries_max=10)
    for index in range(1, 12):
        by_number.append(entry(index, data=b"x"))
    assert by_number.first == 7
    by_size = RecentEntries(bytes_max=100, entries_max=1000)
    for index in range(1, 12):
        by_size.append(entry(index, data=b"x" * 10))
    assert by_size.first == 7


def test_the_size_counts_only_the_kept_entries():
    """A wrong size would make the limit apply to ever fewer or ever more entries."""
    recent = RecentEntries(bytes_max=100, entries_max=1000)
    for index in range(1, 11):
        recent.append(entry(index, data=b"x" * 10))
    recent.cut_after(LogIndex(4))
    recent.drop_before(LogIndex(3))
    for index in range(5, 13):
        recent.append(entry(index, data=b"x" * 10))
    assert recent.first == 3
    recent.append(entry(13, data=b"x"))
    assert recent.first == 9


def test_a_read_returns_entries_within_its_limit_and_at_least_one():
    recent = RecentEntries()
    for index in range(1, 6):
        recent.append(entry(index, data=b"x" * 10))
    for bytes_max, last in ((0, 2), (10, 2), (19, 2), (20, 3), (29, 3), (30, 4), (99, 4)):
        found = recent.read(LogIndex(2), LogIndex(5), bytes_max)
        assert [each.index for each in found] == list(range(2, last + 1))
