"""The newest entries, kept in memory within bounds."""

from __future__ import annotations

from replication.core.types import LogIndex
from replication.storage.recent import RecentEntries
from tests.replication.driver.stand_ins import entry


def test_recent_entries_are_bounded_by_number_and_by_size():
    recent = RecentEntries(bytes_max=1000, entries_max=10)
    for index in range(1, 100):
        recent.append(entry(index, data=b"x" * 10))
        assert recent.first is not None
        assert index - recent.first < 10
    first = recent.first
    recent.drop_before(LogIndex(first - 2))
    assert recent.first == first, "what is gone already takes nothing with it"
    recent.append(entry(100, data=b"x" * 5000))
    assert recent.first == 100
    recent.cut_after(LogIndex(50))
    assert recent.first is None
    recent.drop_before(LogIndex(50))
    assert recent.first is None
