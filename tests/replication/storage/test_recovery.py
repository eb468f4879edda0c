"""A start accepts exactly the entries that were durable, in one chain of checksums."""

from __future__ import annotations

import shutil

import pytest

from taskraft_replication.core.types import HardState, LogIndex, MemberId
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.record import encode_batch, record_bytes
from taskraft_replication.storage.segment import RECORDS_OFFSET
from tests.replication.log_on_disk import SALT, Log, entry


def replace_last(log: Log, index: int, term: int, data: bytes) -> None:
    """Replace the last record by another valid record with the same place in the chain."""
    path = log.segments[-1]
    content = bytearray(path.read_bytes())
    begin = log.end() - record_bytes(len(data))
    before = int.from_bytes(content[begin + 8 : begin + 12], "little")
    other = encode_batch(
        [entry(index, term, data)],
        salt=SALT,
        crc_before=before,
        synced=LogIndex(index - 1),
        commit=LogIndex(1),
    )
    content[begin : log.end()] = other.data
    path.write_bytes(content)


@pytest.mark.parametrize(("term", "data"), [(1, b"the other"), (2, b"the entry")])
def test_a_different_entry_instead_of_the_last_synced_one_is_damage(tmp_path, term, data):
    """No record follows, so the chain alone cannot show the difference.

    The mark names the entry.
    """
    log = Log(tmp_path)
    log.append_each(2, 4)
    log.append(entry(5, data=b"the entry"))
    log.storage.metadata.save_hard_state(HardState(2, MemberId(1), LogIndex(1)))
    replace_last(log, 5, term, data)
    with pytest.raises(LogDamaged, match="entry 5 differs from the entry that was fsynced"):
        log.open()


def test_an_entry_behind_the_mark_may_differ(tmp_path):
    log = Log(tmp_path)
    log.remember_mark()
    log.append(entry(2, data=b"the entry"))
    replace_last(log, 2, 1, b"the other")
    log.forget_mark()
    log.open()
    assert log.read() == [entry(2, data=b"the other")]


def test_a_segment_of_another_history_is_damage(tmp_path):
    """Each segment is valid and the indexes continue; only the chain of checksums is broken."""
    ours, theirs = Log(tmp_path / "ours"), Log(tmp_path / "theirs")
    ours.remember_mark()
    for log, word in ((ours, b"ours  "), (theirs, b"theirs")):
        for index in range(2, 60):
            log.append(entry(index, data=word * 60))
    assert len(ours.segments) > 2
    assert ours.segments[1].name == theirs.segments[1].name
    shutil.copy(theirs.segments[1], ours.segments[1])
    ours.forget_mark()
    with pytest.raises(LogDamaged, match="does not continue the segment before it"):
        ours.open()


def test_a_log_of_one_segment_needs_no_earlier_segment(tmp_path):
    log = Log(tmp_path)
    log.append_each(2, 4)
    assert len(log.segments) == 1
    log.open()
    assert log.storage.view.last_index() == 4
    assert log.segments[0].read_bytes()[RECORDS_OFFSET:].strip(b"\0")


def test_the_newest_entries_are_in_memory_after_a_start(tmp_path):
    """Followers and the state machine read these entries at once."""
    log = Log(tmp_path)
    log.append_each(2, 300)
    view = log.open(recent_entries_max=100).view
    for path in log.segments:
        path.unlink()
    assert view.entries(LogIndex(290), LogIndex(301), 1 << 20)[-1] == entry(300)


@pytest.mark.parametrize("kept", [0, 10, 40])
def test_a_segment_without_a_complete_header_is_damage(tmp_path, kept):
    """A segment is renamed to its final name only after its header is synced."""
    log = Log(tmp_path)
    log.append_each(2, 4)
    path = log.segments[-1]
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(LogDamaged, match="has no readable header"):
        log.open()
