"""What is joined in one batch of writes."""

from __future__ import annotations

from replication.storage.log_writer import _overwrite
from tests.replication.driver.stand_ins import entry


def test_later_writes_replace_earlier_ones_in_a_batch():
    entries = [entry(5), entry(6), entry(7)]
    _overwrite(entries, [entry(6, 2), entry(7, 2), entry(8, 2)])
    assert [each.term for each in entries] == [1, 2, 2, 2]
    _overwrite(entries, [entry(9, 2)])
    assert [each.index for each in entries] == [5, 6, 7, 8, 9]
    _overwrite(entries, [entry(3, 3)])
    assert entries == [entry(3, 3)]
    _overwrite(entries, ())
    assert entries == [entry(3, 3)]
