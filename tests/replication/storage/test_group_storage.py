"""The log on disk: truncation, refusals, and recovery."""

from random import Random

import pytest

from taskraft_replication.core.errors import Compacted, EntryUnavailable
from taskraft_replication.core.types import (
    ConfState,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    MemberId,
    SnapshotMeta,
    Term,
)
from taskraft_replication.errors import DirectoryForeign, FormatUnknown, LogDamaged, StateLost
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.group_storage import GroupStorage
from taskraft_replication.storage.record import HEADER_BYTES, encode_batch, record_bytes
from taskraft_replication.storage.segment import RECORDS_OFFSET
from tests.replication.log_on_disk import FOUNDERS, SALT, SEGMENT_BYTES, Log, config, entry
from tests.sim.disk import SimDisk

SMALL_FILES = ("hard_state", "log_start", "membership", "identity", "incarnation", "directory")


@pytest.fixture
def log(tmp_path) -> Log:
    made = Log(tmp_path)
    made.remember_mark()
    return made


def test_a_new_group_starts_with_its_bootstrap_entry(log):
    assert log.storage.view.first_index() == 2
    assert log.storage.view.last_index() == 1
    assert log.storage.view.term(1) == 1
    assert log.storage.view.initial_state() == (HardState(1, 0, 1), FOUNDERS)


def test_all_stored_data_is_found_after_a_restart(log):
    log.append(entry(2), Entry(1, 3, b"", EntryKind.CONF_CHANGE_V2), entry(4, 2, b"x" * 1000))
    before = log.read()
    log.open()
    assert log.read() == before
    assert log.storage.view.term(4) == 2


def test_a_log_in_several_segments_is_read_as_one(log):
    log.append_each(2, 300)
    assert len(log.segments) > 2
    log.open()
    assert [each.index for each in log.read()] == list(range(2, 301))


def test_a_batch_larger_than_a_segment_gets_its_own_segment(log):
    log.append(entry(2))
    log.append(entry(3, data=b"y" * 3 * SEGMENT_BYTES))
    log.append(entry(4))
    assert len(log.segments) == 3
    log.open()
    assert [each.index for each in log.read()] == [2, 3, 4]


def test_old_entries_are_read_from_the_files(tmp_path):
    log = Log(tmp_path)
    log.open(recent_entries_max=10)
    log.append_each(2, 100)
    assert log.storage.view._recent.first > 80
    assert [each.index for each in log.read()] == list(range(2, 101))


@pytest.mark.parametrize("kept", [RECORDS_OFFSET, RECORDS_OFFSET + 40, RECORDS_OFFSET + 90])
def test_a_file_that_became_shorter_is_reported_as_damage_when_read(tmp_path, kept):
    log = Log(tmp_path)
    log.open(recent_entries_max=2)
    log.append_each(2, 10)
    log.segments[0].write_bytes(log.segments[0].read_bytes()[:kept])
    with pytest.raises(LogDamaged, match=r"log: entry \d is unreadable"):
        log.storage.view.entries(LogIndex(2), LogIndex(4), 10_000)


def test_a_read_stops_at_its_limit_but_returns_at_least_one_entry(tmp_path):
    log = Log(tmp_path)
    log.append(entry(2, data=b"z" * 900), entry(3, data=b"z" * 50), entry(4, data=b"z" * 50))
    for recent in (1, 1000):
        view = log.open(recent_entries_max=recent).view
        assert [each.index for each in view.entries(2, 5, 100)] == [2]
        assert [each.index for each in view.entries(3, 5, 60)] == [3]
        assert [each.index for each in view.entries(2, 5, 10_000)] == [2, 3, 4]


def test_a_conflicting_suffix_is_replaced(log):
    log.append_each(2, 200)
    log.append(entry(50, 2), entry(51, 2))
    assert log.storage.view.last_index() == 51
    log.open()
    assert [each.term for each in log.read()] == [1] * 48 + [2, 2]
    log.append(entry(52, 3))
    log.open()
    assert log.read()[-1] == entry(52, 3)


def test_the_whole_log_can_be_replaced(log):
    log.append_each(2, 10)
    log.append(entry(2, 2))
    log.open()
    assert log.read() == [entry(2, 2)]


def test_a_replaced_suffix_is_not_taken_for_damage(log):
    log.append_each(2, 20)
    log.append(entry(10, 2))
    log.damage(log.end() - 9)
    log.forget_mark()
    log.open()
    assert log.storage.view.last_index() == 9


@pytest.mark.shows_fault(
    "log and vote",
    "torn tail of the log",
    "truncates the tail, see [recovery](#what-recovery-truncates)",
)
def test_a_torn_tail_behind_the_mark_is_truncated(log):
    log.append_each(2, 10)
    whole = log.end()
    log.forget_mark()
    log.segments[-1].write_bytes(log.segments[-1].read_bytes()[: whole - 5] + bytes(500))
    log.open()
    assert log.storage.view.last_index() == 9
    log.append(entry(10, 2))
    log.open()
    assert log.read()[-1] == entry(10, 2)


@pytest.mark.parametrize("cut", range(1, record_bytes(len(b"entry 10 of 1"))))
def test_a_record_torn_at_any_byte_is_truncated(log, cut):
    log.append_each(2, 10)
    log.forget_mark()
    end = log.end()
    path = log.segments[-1]
    path.write_bytes(path.read_bytes()[: end - cut] + bytes(cut))
    log.open()
    # The end of the record is padding, which may be lost.
    assert log.storage.view.last_index() == (10 if cut <= 3 else 9)


def test_a_flipped_bit_before_the_mark_is_damage(log):
    log.append_each(2, 10)
    log.damage(log.end() - 10)
    with pytest.raises(LogDamaged):
        log.open()


def test_a_flipped_bit_in_any_byte_of_a_synced_record_is_damage(log):
    """A later batch proves that the record was synced, even if the mark was lost."""
    log.append_each(2, 6)
    size = record_bytes(len(b"entry 2 of 1"))
    padding = -len(b"entry 2 of 1") % 8
    log.forget_mark()
    mark = log.first_mark
    for offset in range(RECORDS_OFFSET + size, RECORDS_OFFSET + 2 * size - padding):
        log.damage(offset)
        with pytest.raises(LogDamaged):
            log.open()
        log.damage(offset)
        (log.path / "raft-0" / "mark").write_bytes(mark)
    log.open()
    assert log.storage.view.last_index() == 6


def test_an_unproven_batch_is_truncated_at_the_first_damage(log):
    log.append_each(2, 4)
    log.append(entry(5), entry(6), entry(7))
    log.forget_mark()
    log.damage(log.end() - 2 * record_bytes(13) - 8)
    log.open()
    assert log.storage.view.last_index() < 7
    assert log.storage.view.last_index() >= 4


def test_a_log_that_ends_before_the_mark_is_damage(log):
    log.append_each(2, 10)
    path = log.segments[-1]
    path.write_bytes(path.read_bytes()[: RECORDS_OFFSET + 100])
    with pytest.raises(LogDamaged, match="ends at entry 2, but was durable up to 10"):
        log.open()


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_segment_is_damage(log, which):
    log.append_each(2, 300)
    log.segments[which].unlink()
    with pytest.raises(LogDamaged):
        log.open()


@pytest.mark.parametrize("name", ["mark", *SMALL_FILES])
def test_a_missing_file_is_damage(log, name):
    log.append(entry(2))
    (log.path / "raft-0" / name).unlink()
    with pytest.raises(LogDamaged):
        log.open()


@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_flipped_bit_in_a_small_file_is_damage(log, name):
    path = log.path / "raft-0" / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogDamaged, match=f"{name} fails its checksum"):
        log.open()


def test_another_format_is_refused(log):
    path = log.path / "raft-0" / "hard_state"
    path.write_bytes(path.read_bytes().replace(b"hard_state 3 ", b"hard_state 4 "))
    with pytest.raises(FormatUnknown, match="has format 4"):
        log.open()


def test_a_record_of_another_log_is_refused(log):
    """A client cannot send data that looks like a record of this log: the salt is secret."""
    log.append_each(2, 5)
    foreign = encode_batch([entry(6)], salt=1, crc_before=0, synced=LogIndex(6), commit=LogIndex(1))
    log.append(entry(6, data=foreign.data))
    log.damage(log.end() - record_bytes(len(foreign.data)) + HEADER_BYTES - 8)
    log.forget_mark()
    log.open()
    assert log.storage.view.last_index() == 5


def test_data_of_another_cluster_is_refused(log):
    with pytest.raises(DirectoryForeign, match="belongs to cluster_id 'test', not to 'other'"):
        GroupStorage.open(DiskFileSystem(log.path), config("other"), LogIndex(1))
    with pytest.raises(DirectoryForeign, match="member_id"):
        GroupStorage.open(DiskFileSystem(log.path), config(member_id=2), LogIndex(1))


def test_term_and_vote_survive_a_restart(log):
    log.storage.store(HardState(7, 2, 1), (), LogIndex(1))
    log.open()
    assert log.storage.view.initial_state()[0] == HardState(7, 2, 1)


def test_entries_with_a_later_term_than_the_hard_state_are_damage(log):
    log.storage.store(None, (entry(2, 5),), LogIndex(1))
    with pytest.raises(LogDamaged, match="term"):
        log.open()
    log.storage.metadata.save_hard_state(HardState(5, 0, 1))
    log.open()


def test_the_commit_index_is_stored_with_the_records(log):
    log.append_each(2, 9)
    log.append(entry(10), commit=9)
    log.open()
    assert log.storage.view.initial_state()[0].commit == 9


def test_trimming_deletes_whole_segments_and_keeps_the_term_before(log):
    log.append_each(2, 300)
    start = log.storage.trim_start(LogIndex(200))
    assert 100 < start.index <= 200
    log.storage.view.publish_start(start)
    log.storage.trim(start)
    for _ in range(2):
        view = log.storage.view
        assert view.first_index() == start.index + 1
        assert view.term(start.index) == 1
        with pytest.raises(Compacted):
            view.term(LogIndex(start.index - 1))
        with pytest.raises(Compacted):
            view.entries(start.index, LogIndex(300), 1000)
        with pytest.raises(EntryUnavailable):
            view.entries(LogIndex(300), LogIndex(302), 1000)
        log.open(applied=250)


def test_an_interrupted_trim_is_completed(log):
    log.append_each(2, 300)
    segments = {path: path.read_bytes() for path in log.segments}
    start = log.storage.trim_start(LogIndex(200))
    log.storage.trim(start)
    for path, content in segments.items():
        path.write_bytes(content)
    log.open(applied=250)
    assert log.storage.view.first_index() == start.index + 1
    assert len(log.segments) < len(segments)


def test_a_state_before_the_log_is_refused(log):
    log.append_each(2, 300)
    log.storage.trim(log.storage.trim_start(LogIndex(200)))
    with pytest.raises(StateLost):
        log.open(applied=10)


def test_a_state_behind_the_log_is_damage(log):
    log.append_each(2, 10)
    with pytest.raises(LogDamaged, match="ends at entry 10, but the state is at entry 11"):
        log.open(applied=11)


META = SnapshotMeta(LogIndex(500), Term(4), ConfState(voters=(MemberId(1), MemberId(2))))


def test_a_lost_vote_is_damage_although_no_entry_shows_it(tmp_path):
    """A joining member has no entry when it first votes, and no other file that contains a term.

    PySyncObj takes a missing file for an empty one, and votes again.
    """
    log = Log(tmp_path, 0, founders=ConfState())
    log.storage.store(HardState(3, 2, 0), (), LogIndex(0))
    log.open(0, founders=ConfState())
    assert log.storage.view.initial_state()[0] == HardState(3, 2, 0)
    (tmp_path / "raft-0" / "hard_state").unlink()
    with pytest.raises(LogDamaged, match="hard_state is missing"):
        log.open(0, founders=ConfState())


def test_a_trim_of_the_old_log_does_not_affect_a_new_log(log):
    """The installation of a snapshot may be queued before the trim."""
    log.append_each(2, 300)
    start = log.storage.trim_start(LogIndex(200))
    assert start is not None
    log.storage.store(HardState(4, 0, 1), (), LogIndex(1))
    log.storage.begin_installation(META)
    log.storage.finish_installation(META)
    log.storage.publish_installation(META)
    log.append(entry(501, 4))
    log.storage.trim(start)
    log.open(applied=500)
    assert log.storage.view.first_index() == 501
    assert log.read() == [entry(501, 4)]


def test_a_snapshot_replaces_the_log(log):
    log.append_each(2, 100)
    log.storage.store(HardState(4, 0, 1), (), LogIndex(1))
    log.storage.begin_installation(META)
    log.storage.finish_installation(META)
    log.storage.publish_installation(META)
    log.append(entry(501, 4))
    assert len(log.segments) == 1
    assert (log.storage.beyond(log.end() - 1), log.storage.beyond(log.end())) == (501, 500)
    assert log.storage.trim_start(LogIndex(501)) is None, "no entry of the old log is left"
    log.open(applied=500)
    assert log.read() == [entry(501, 4)]
    assert log.storage.view.term(500) == 4
    assert log.storage.view.initial_state()[1] == META.conf_state


@pytest.mark.parametrize("installed", [True, False])
def test_an_interrupted_installation_is_completed_or_undone(log, installed):
    log.append_each(2, 100)
    log.storage.store(HardState(4, 0, 1), (), LogIndex(1))
    log.storage.begin_installation(META)
    log.open(applied=500 if installed else 50)
    assert log.storage.view.last_index() == (500 if installed else 100)
    assert log.storage.view.initial_state()[1] == (META.conf_state if installed else FOUNDERS)
    assert log.storage.metadata.installing() is None


def test_the_membership_matches_the_applied_index(log):
    log.append_each(2, 100)
    smaller = ConfState(voters=(MemberId(1), MemberId(2)))
    log.storage.save_memberships(log.storage.memberships.add(LogIndex(60), smaller, LogIndex(1)))
    assert log.open(applied=59).view.initial_state()[1] == FOUNDERS
    assert log.open(applied=60).view.initial_state()[1] == smaller


def test_founders_that_were_met_are_stored_until_the_group_starts(log):
    assert log.storage.founder_directories == {}
    log.storage.save_memberships(log.storage.memberships.all(), {MemberId(2): "d2"})
    assert log.open().founder_directories == {2: "d2"}
    assert log.storage.view.initial_state()[1] == FOUNDERS
    log.storage.save_memberships(log.storage.memberships.begin_with(FOUNDERS.roster))
    assert log.open().founder_directories == {}


def test_each_start_has_a_new_incarnation(log):
    assert [log.open().incarnation for _ in range(3)] == [2, 3, 4]


def test_records_that_are_not_proven_synced_are_rewritten(log):
    """After a failed fsync the page cache may show data that is not on disk (ATC 2020)."""
    log.append_each(2, 300)
    proven = log.segments[:-1]
    log.storage.close(HardState(1, 0, 1))
    assert log.renewed_by_open() == set(log.segments) - set(proven), (
        "the newest membership is always kept"
    )
    log.forget_mark()
    assert log.renewed_by_open() == set(log.segments)
    assert log.storage.view.last_index() == 300


def test_the_last_batch_proves_that_the_one_before_was_synced(log):
    log.append_each(2, 6)
    log.damage(log.end() - record_bytes(13) - 9)
    log.forget_mark()
    with pytest.raises(LogDamaged, match=r"entry 5 .* entry 6 states that it was fsynced"):
        log.open()


def test_a_record_at_the_position_of_another_is_damage(log):
    """Each record is valid by itself; only the chain of checksums shows the exchange."""
    log.append_each(2, 8)
    path = log.segments[-1]
    content = bytearray(path.read_bytes())
    size = record_bytes(12)
    begin = RECORDS_OFFSET + 2 * size
    other = encode_batch(
        [entry(4, data=b"entry 4 of 9")],
        salt=SALT,
        crc_before=int.from_bytes(content[begin + 8 : begin + 12], "little"),
        synced=LogIndex(3),
        commit=LogIndex(1),
    )
    content[begin : begin + size] = other.data
    path.write_bytes(content)
    log.forget_mark()
    with pytest.raises(LogDamaged):
        log.open()


def test_truncated_records_are_wiped(log):
    log.append_each(2, 10)
    path = log.segments[-1]
    content = bytearray(path.read_bytes())
    content[log.end() + 8 : log.end() + 40] = b"torn" * 8
    path.write_bytes(content)
    log.open()
    assert log.storage.view.last_index() == 10
    assert not path.read_bytes()[log.end() :].strip(b"\0")


@pytest.mark.parametrize("seed", range(8))
def test_a_recovered_tail_counts_as_synced(seed):
    """The mark covers the recovered tail: a later loss of the tail is damage, not a torn tail."""
    disk = SimDisk(Random(seed))
    storage = GroupStorage.open(disk, config(), LogIndex(1))
    storage.store(None, [entry(2), entry(3)], LogIndex(1))
    GroupStorage.open(disk, config(), LogIndex(1))
    disk.lose_power()
    disk.wipe(".log", after=RECORDS_OFFSET + record_bytes(12))
    with pytest.raises(LogDamaged):
        GroupStorage.open(disk, config(), LogIndex(1))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "sync",
    [GroupStorage.sync_mark, lambda storage: storage.close(HardState(Term(1)))],
    ids=["idle", "end"],
)
def test_the_mark_is_synced_in_idle_moments_and_at_the_end(sync, seed):
    """A loss of the log up to the synced mark is damage, even if no later record shows it."""
    disk = SimDisk(Random(seed))
    storage = GroupStorage.open(disk, config(), LogIndex(1))
    storage.store(None, [entry(2), entry(3)], LogIndex(1))
    sync(storage)
    disk.lose_power()
    disk.wipe(".log", after=RECORDS_OFFSET + record_bytes(12))
    with pytest.raises(LogDamaged, match="durable up to 3"):
        GroupStorage.open(disk, config(), LogIndex(1))
