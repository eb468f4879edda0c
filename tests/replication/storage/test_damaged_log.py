"""A damaged log is completed with the entries of other members, and is then the log it was."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

from taskraft_replication.core.types import HardState, LogIndex, MemberId, Term
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.damaged_log import DamagedLog
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.log_copy import LogCopy
from taskraft_replication.storage.log_parts import (
    LogRange,
    TermRun,
    are_in,
    equal_up_to,
    readable_in,
    runs_of,
    without,
)
from taskraft_replication.storage.mark import Mark
from taskraft_replication.storage.record import record_bytes
from tests.replication.log_on_disk import SEGMENT_BYTES, Log, entry

LAST = 400


@pytest.fixture
def log(tmp_path) -> Log:
    """A log of several segments and three terms, each entry in a batch of its own."""
    log = Log(tmp_path)
    log.append_each(2, 100, term=1)
    log.append_each(101, 200, term=2)
    log.append_each(201, LAST, term=4)
    assert len(log.segments) > 3
    return log


def damaged(log: Log) -> DamagedLog:
    return DamagedLog(DiskFileSystem(log.path), log.storage.metadata)


def flip(log: Log, index: int) -> None:
    """Flip a bit in the data of an entry."""
    for path, segment in zip(log.segments, log.storage._log.segments, strict=True):
        if segment.first_index <= index <= segment.last_index:
            content = bytearray(path.read_bytes())
            content[segment.offsets[index - segment.first_index] + 60] ^= 0x10
            path.write_bytes(content)


def complete(log: Log, found: DamagedLog, applied: int = 1) -> None:
    """Copy the log; take what is missing from an undamaged one."""
    start = found.start_behind(LogIndex(applied))
    copy = LogCopy(
        DiskFileSystem(log.path), log.storage.metadata, start, found.commit, SEGMENT_BYTES
    )
    gaps = found.gaps(start)
    at = LogIndex(start.index + 1)
    while at <= found.last:
        gap = next((gap for gap in gaps if gap.first == at), None)
        if gap is not None:
            copy.add([original(index) for index in range(gap.first, gap.last + 1)])
            at = LogIndex(gap.last + 1)
            continue
        entries = found.entries(at, LogIndex(found.last + 1), 1000)
        copy.add(entries)
        at = LogIndex(entries[-1].index + 1)
    copy.finish()


def original(index: int):
    return entry(index, 1 if index <= 100 else 2 if index <= 200 else 4)


@pytest.mark.parametrize("bad", [(2,), (100, 101), (150, 152, 260), (LAST - 1,)])
def test_damaged_entries_are_gaps_and_the_rest_is_readable(log, bad):
    for index in bad:
        flip(log, index)
    with pytest.raises(LogDamaged):
        log.open()
    found = damaged(log)
    gaps = [index for gap in found.gaps(found.start) for index in range(gap.first, gap.last + 1)]
    assert gaps == [*bad]
    readable = [
        index for run in found.knowledge().readable for index in range(run.first, run.last + 1)
    ]
    assert readable == [index for index in range(2, LAST + 1) if index not in bad]
    assert all(one.term <= two.term for one, two in pairwise(found.knowledge().readable))


@pytest.mark.parametrize("bad", [(2,), (100, 101), (150, 152, 260), (LAST - 1,)])
def test_a_completed_log_is_the_log_before_the_damage(log, bad):
    vote = log.storage.metadata.hard_state()
    for index in bad:
        flip(log, index)
    complete(log, damaged(log))
    log.open()
    assert log.read() == [original(index) for index in range(2, LAST + 1)]
    assert log.storage.metadata.hard_state() == vote
    log.append(entry(LAST + 1, 4))
    log.open()
    assert log.storage.view.last_index() == LAST + 1


def test_a_missing_segment_is_a_gap(log):
    gone = log.storage._log.segments[2]
    log.segments[2].unlink()
    found = damaged(log)
    assert found.gaps(found.start) == [LogRange(gone.first_index, gone.last_index)]
    complete(log, found)
    log.open()
    assert log.read() == [original(index) for index in range(2, LAST + 1)]


def test_a_damaged_header_hides_no_entry(log):
    log.damage(3, segment=1)
    found = damaged(log)
    assert found.gaps(found.start) == []
    assert found.last == LAST


def test_a_damaged_last_entry_is_a_gap_whose_term_the_mark_has(log):
    flip(log, LAST)
    found = damaged(log)
    assert found.gaps(found.start) == [span(LAST, LAST)]
    assert found.knowledge().known == (run(LAST, LAST, 4),)
    assert found.end_first == LAST
    found.check_end(record_bytes(len(original(LAST).data)))
    complete(log, found)
    log.open()
    assert log.read() == [original(index) for index in range(2, LAST + 1)]


def test_damaged_bytes_behind_the_entry_of_the_mark_may_have_been_durable_entries(log):
    """A power loss has moved the mark back, and the last two entries are damaged."""
    mark = log.path / "raft-0" / "mark"
    kept = mark.read_bytes()
    log.append(entry(LAST + 1, 4))
    for index in (LAST, LAST + 1):
        flip(log, index)
    mark.write_bytes(kept)
    found = damaged(log)
    assert found.last == LAST
    with pytest.raises(LogDamaged, match="entries after 400 may have been durable"):
        found.check_end(record_bytes(len(original(LAST).data)))


@pytest.mark.parametrize("what", ["segment", "cut"])
def test_a_log_without_its_end_cannot_be_completed(log, what):
    """The number of lost entries is unknown: after a power loss, the mark may lag."""
    if what == "segment":
        log.segments[-1].unlink()
    else:
        path = log.segments[-1]
        path.write_bytes(path.read_bytes()[: log.end() - 8])
    with pytest.raises(LogDamaged, match="the last entries are missing or unreadable"):
        damaged(log)


def test_a_damaged_end_that_the_mark_does_not_name_cannot_be_completed(log):
    log.remember_mark()
    log.append(entry(LAST + 1, 4))
    log.append(entry(LAST + 2, 4))
    flip(log, LAST + 1)
    flip(log, LAST + 2)
    mark = log.path / "raft-0" / "mark"
    kept = mark.read_bytes()
    log.forget_mark()
    assert damaged(log).last == LAST, "a torn tail"
    mark.write_bytes(kept)
    assert damaged(log).last == LAST + 2


def test_a_torn_tail_is_no_damage(log):
    """The last batch was not synced: a part of it arrived on the disk, and nobody relies on it."""
    mark = log.path / "raft-0" / "mark"
    before = mark.read_bytes()
    log.append(*(entry(index, 4) for index in range(LAST + 1, LAST + 4)))
    mark.write_bytes(before)
    flip(log, 150)
    flip(log, LAST + 2)
    found = damaged(log)
    assert found.last == LAST + 1
    assert found.gaps(found.start) == [LogRange(LogIndex(150), LogIndex(150))]


class UnreadableFile(DiskFileSystem):
    """A disk that cannot read one file."""

    name = ""

    def read(self, name: str) -> bytes:
        if name.endswith(self.name):
            raise OSError(errno.EIO, "bad sector")
        return super().read(name)


def test_an_unreadable_newest_segment_may_have_had_further_entries(log):
    """A power loss has moved the mark back to the last entry of the segment before."""
    mark = log.path / "raft-0" / "mark"
    before, newest = log.storage._log.segments[-2:]
    last, end = before.last_index, before.end
    kept = log.storage._log._mark
    (record,) = log.storage._log._records(last, LogIndex(last + 1), 0)
    kept.write(Mark(0, last, record.entry.term, record.crc))
    kept.sync()
    assert mark.exists()
    flip(log, last)
    disk = UnreadableFile(log.path)
    disk.name = newest.name
    with pytest.raises(LogDamaged, match="the last entries are missing or unreadable"):
        DamagedLog(disk, log.storage.metadata).check_end(end)


def test_a_missing_mark_cannot_be_completed(log):
    (log.path / "raft-0" / "mark").unlink()
    with pytest.raises(LogDamaged, match="mark is missing"):
        damaged(log)


def test_entries_below_a_durable_state_are_not_needed(log):
    flip(log, 50)
    flip(log, 120)
    flip(log, 250)
    found = damaged(log)
    start = found.start_behind(LogIndex(121))
    assert (start.index, start.term) == (121, 2)
    assert found.gaps(start) == [LogRange(LogIndex(250), LogIndex(250))]
    complete(log, found, applied=121)
    log.open(applied=121)
    assert log.read() == [original(index) for index in range(122, LAST + 1)]


def test_a_state_at_the_damaged_entry_does_not_replace_the_entry(log):
    """The term of the damaged entry is unknown, so the log cannot begin after it."""
    flip(log, 120)
    found = damaged(log)
    assert found.start_behind(LogIndex(120)) == found.start


def test_a_crash_before_the_switch_leaves_the_damaged_log(log):
    flip(log, 150)
    found = damaged(log)
    before = found.gaps(found.start)
    copy = LogCopy(
        DiskFileSystem(log.path), log.storage.metadata, found.start, found.commit, SEGMENT_BYTES
    )
    copy.add([original(index) for index in range(2, 150)])
    with pytest.raises(LogDamaged, match=r"entries 150 to \d+ before this segment are missing"):
        log.open()
    again = damaged(log)
    assert again.gaps(again.start) == before
    complete(log, again)
    log.open()
    assert log.read() == [original(index) for index in range(2, LAST + 1)]


def test_an_unfinished_copy_is_deleted_by_a_start_that_reads_the_whole_log(log):
    """The damage was one of memory, so the next start finds the log undamaged."""
    before = log.segments
    found = damaged(log)
    copy = LogCopy(
        DiskFileSystem(log.path), log.storage.metadata, found.start, found.commit, SEGMENT_BYTES
    )
    copy.add([original(index) for index in range(2, 150)])
    log.open()
    assert log.read() == [original(index) for index in range(2, LAST + 1)]
    assert log.segments == before


def test_a_discarded_copy_leaves_no_file(log):
    before = log.segments
    found = damaged(log)
    copy = LogCopy(
        DiskFileSystem(log.path), log.storage.metadata, found.start, found.commit, SEGMENT_BYTES
    )
    copy.add([original(index) for index in range(2, 150)])
    assert len(log.segments) > len(before)
    copy.discard()
    assert log.segments == before


def run(first: int, last: int, term: int) -> TermRun:
    return TermRun(LogIndex(first), LogIndex(last), Term(term))


def span(first: int, last: int) -> LogRange:
    return LogRange(LogIndex(first), LogIndex(last))


def test_runs_of_entries():
    entries = [(2, 1), (3, 1), (4, 2), (6, 2), (7, 2)]
    pairs = [(LogIndex(index), Term(term)) for index, term in entries]
    assert [*runs_of(pairs)] == [run(2, 3, 1), run(4, 4, 2), run(6, 7, 2)]
    assert [*runs_of([])] == []


@pytest.mark.parametrize(
    ("other", "last"),
    [
        ([run(2, 20, 1)], 10),
        ([run(2, 20, 2)], 0),
        ([run(15, 40, 3)], 30),
        ([run(2, 4, 1), run(6, 10, 1), run(11, 12, 2)], 10),
        ([run(11, 14, 2)], 0),
        ([], 0),
    ],
)
def test_logs_are_equal_up_to_a_common_entry(other, last):
    own = [run(2, 4, 1), run(6, 10, 1), run(20, 30, 3)]
    assert equal_up_to(own, other) == last
    assert equal_up_to(other, own) == last


def test_entries_of_a_described_log():
    runs = [run(2, 4, 1), run(5, 7, 2), run(9, 30, 2)]
    assert are_in([entry(3), entry(4), entry(5, 2)], runs)
    assert not are_in([entry(3), entry(4), entry(5, 3)], runs), "another term"
    assert not are_in([entry(7, 2), entry(8, 2), entry(9, 2)], runs), "not described"
    assert are_in([], runs)


def test_what_a_peer_has_of_a_gap():
    runs = [run(2, 4, 1), run(5, 7, 2), run(9, 30, 2)]
    assert readable_in(span(3, 12), runs) == [span(3, 7), span(9, 12)]
    assert readable_in(span(8, 8), runs) == []
    assert without([span(3, 12)], [span(3, 7), span(9, 12)]) == [span(8, 8)]
    assert without([span(3, 4), span(8, 9)], [span(4, 8)]) == [span(3, 3), span(9, 9)]


def test_the_runs_of_a_stored_log(log):
    assert log.storage.view.runs() == (run(2, 100, 1), run(101, 200, 2), run(201, LAST, 4))
    log.storage.metadata.save_hard_state(HardState(Term(4), MemberId(1), LogIndex(250)))
    start = log.storage.trim_start(LogIndex(150))
    assert start is not None
    log.storage.trim(start)
    log.storage.view.publish_start(start)
    assert log.storage.view.runs()[0] == run(start.index + 1, 200, 2)
