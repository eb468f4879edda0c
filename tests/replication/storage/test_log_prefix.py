"""The whole part of a damaged log, with which a member continues alone."""

from __future__ import annotations

import pytest

from taskraft_replication.core.types import LogIndex
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.log_prefix import LogPrefix
from tests.replication.log_on_disk import SEGMENT_BYTES, Log, entry
from tests.replication.storage.test_damaged_log import flip, span

LAST = 60


@pytest.fixture
def log(tmp_path) -> Log:
    """A log of two terms that is committed up to its last entry but one."""
    log = Log(tmp_path)
    for index in range(2, LAST + 1):
        log.append(entry(index, 1 if index <= 30 else 2), commit=index - 1)
    return log


def prefix(log: Log, applied: int) -> LogPrefix:
    return LogPrefix(DiskFileSystem(log.path), 0, LogIndex(applied))


def test_entries_that_follow_the_whole_part_do_not_count_as_committed(log):
    """The member gives up committed entries; other entries get their indexes."""
    flip(log, 40)
    kept = prefix(log, 1)
    assert kept.lost == span(40, LAST)
    kept.keep(SEGMENT_BYTES)
    log.open()
    log.append(*(entry(index, 3) for index in range(40, 50)), commit=40)
    hard_state, _ = log.open().view.initial_state()
    assert hard_state.commit == 40


@pytest.mark.parametrize("bad", [(30,), (5, 29, 30)])
def test_damage_that_ends_at_the_state_gives_up_no_entry(log, bad):
    for index in bad:
        flip(log, index)
    kept = prefix(log, 30)
    assert kept.lost is None
    kept.keep(SEGMENT_BYTES)
    log.open(applied=30)
    assert log.read() == [entry(index, 2) for index in range(31, LAST + 1)]


def test_damage_around_the_state_gives_up_all_later_entries(log):
    for index in (29, 30, 31, 32):
        flip(log, index)
    kept = prefix(log, 30)
    assert kept.lost == span(31, LAST)
    kept.keep(SEGMENT_BYTES)
    log.open(applied=30)
    assert log.read() == []
