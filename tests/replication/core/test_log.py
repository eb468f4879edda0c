"""The log combines durable and unstable entries; committed entries are never replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_replication.core.config import UNLIMITED
from taskraft_replication.core.errors import CommittedEntriesMissing, Compacted
from taskraft_replication.core.log import RaftLog, within
from taskraft_replication.core.memory_log import MemoryLog
from taskraft_replication.core.types import ConfState, Entry, Snapshot, SnapshotMeta
from taskraft_replication.core.unstable import Unstable


def entries(*terms, first=1, data=b""):
    return [Entry(term, first + place, data) for place, term in enumerate(terms)]


def snapshot(index, term):
    return Snapshot(SnapshotMeta(index, term, ConfState((1,))), b"")


def log(stored=(), unstable=()):
    disk = MemoryLog(ConfState((1,)))
    disk.store(None, entries(*stored), None)
    result = RaftLog(disk, UNLIMITED, applies_unstable=False)
    if unstable:
        result.append(entries(*unstable, first=len(stored) + 1))
    return result, disk


def terms_of(raft_log):
    return [raft_log.term(index) for index in range(1, raft_log.last_index + 1)]


@pytest.mark.parametrize(
    ("previous", "sent", "result", "matched"),
    [
        ((3, 2), (), (1, 1, 2, 3), 3),
        ((3, 2), (3,), (1, 1, 2, 3), 4),
        ((3, 2), (3, 3), (1, 1, 2, 3, 3), 5),
        ((4, 3), (4,), (1, 1, 2, 3, 4), 5),
        ((1, 1), (1,), (1, 1, 2, 3), 2),
        ((1, 1), (1, 4), (1, 1, 4), 3),
        ((0, 0), (1, 1, 2, 3), (1, 1, 2, 3), 4),
        ((4, 2), (4,), (1, 1, 2, 3), None),
        ((7, 3), (4,), (1, 1, 2, 3), None),
    ],
)
@pytest.mark.parametrize("synced", range(5))
def test_an_append_replaces_only_from_the_first_conflict_on(
    previous, sent, result, matched, synced
):
    """Raft paper, figure 2: a conflicting entry is removed, with all entries after it."""
    own = (1, 1, 2, 3)
    raft_log, _ = log(own[:synced], own[synced:])
    index, term = previous
    assert raft_log.append_after(index, term, entries(*sent, first=index + 1)) == matched
    assert terms_of(raft_log) == list(result)
    assert raft_log.last_index == len(result)
    assert raft_log.last_term == result[-1]


def test_a_committed_entry_is_never_replaced():
    raft_log, _ = log((1, 1, 2))
    raft_log.commit_to(2)
    with pytest.raises(AssertionError, match="committed"):
        raft_log.append_after(1, 1, entries(5, first=2))
    assert raft_log.append_after(2, 1, entries(5, first=3)) == 3


def test_the_commit_index_does_not_go_back():
    raft_log, _ = log((1, 1, 2))
    assert raft_log.commit_to(2)
    assert not raft_log.commit_to(1)
    assert not raft_log.commit_to(2), "the commit index is unchanged"
    assert raft_log.commit_index == 2
    with pytest.raises(CommittedEntriesMissing, match="entry 4 is committed"):
        raft_log.commit_to(4)


@pytest.mark.parametrize(
    ("term", "index", "up_to_date"),
    [(2, 3, True), (2, 2, False), (2, 9, True), (3, 1, True), (1, 9, False)],
)
def test_the_higher_term_wins_then_the_longer_log(term, index, up_to_date):
    """Raft paper, 5.4.1."""
    raft_log, _ = log((1, 1, 2))
    assert raft_log.is_up_to_date(term, index) is up_to_date


@pytest.mark.parametrize(
    ("index", "term", "found"),
    [(6, 9, (6, 5)), (6, 4, (5, 4)), (6, 3, (3, 2)), (2, 2, (2, 1)), (6, 0, (0, 0))],
)
def test_a_hint_skips_terms_that_cannot_match(index, term, found):
    raft_log, _ = log((1, 1, 2, 4, 4, 5))
    assert raft_log.last_not_above(index, term) == found


def test_entries_are_read_from_disk_and_memory_within_the_limit():
    disk = MemoryLog(ConfState((1,)))
    disk.store(None, entries(1, 1, data=b"xxx"), None)
    raft_log = RaftLog(disk, UNLIMITED, applies_unstable=False)
    raft_log.append(entries(1, 1, first=3, data=b"xxx"))
    for limit, count in ((1, 1), (3, 1), (5, 1), (6, 2), (8, 2), (9, 3), (12, 4)):
        assert [e.index for e in raft_log.entries(1, 5, limit)] == list(range(1, count + 1))


@pytest.mark.parametrize("limit", range(1, 20))
def test_a_large_entry_ends_the_read_and_is_not_skipped(limit):
    """A smaller entry after the large entry, in memory, would still fit."""
    disk = MemoryLog(ConfState((1,)))
    sizes = {1: 3, 2: 9, 3: 1, 4: 1}
    whole = [Entry(1, index, bytes(size)) for index, size in sizes.items()]
    disk.store(None, whole[:2], None)
    raft_log = RaftLog(disk, UNLIMITED, applies_unstable=False)
    raft_log.append(whole[2:])
    for lo in (1, 2, 3):
        for hi in range(lo + 1, 6):
            found = raft_log.entries(lo, hi, limit)
            assert list(found) == list(within(whole[lo - 1 : hi - 1], limit))


def test_the_term_of_each_entry_is_correct_after_the_log_was_cut():
    """After the cut, the last term may be the same as before but begin at a later index."""
    raft_log, _ = log((1,), (2, 2, 2))
    raft_log.append(entries(1, 2, first=2))
    assert terms_of(raft_log) == [1, 1, 2]


def test_compacted_entries_are_gone_but_the_term_before_the_first_is_known():
    raft_log, disk = log((1, 2, 3, 4))
    disk.compact(2)
    assert raft_log.term(1) is None
    assert raft_log.term(2) == 2
    assert raft_log.term(5) is None
    with pytest.raises(Compacted):
        raft_log.entries(2, 4, UNLIMITED)


def test_terms_of_the_newest_entries_are_not_read_from_storage(monkeypatch):
    """Each append and each commit reads some of these terms."""
    raft_log, disk = log((1,), (2, 2, 2))
    disk.store(None, entries(2, 2, 2, first=2), None)
    raft_log.unstable.entries_synced(4, 2)
    raft_log.commit_to(4)
    raft_log.applied_to(2, 0)
    monkeypatch.setattr(disk, "term", None)
    assert [raft_log.term(index) for index in (2, 3, 4)] == [2, 2, 2]
    raft_log.applied_to(4, 0)
    assert raft_log.term(4) == 2
    assert raft_log.term(5) is None


def test_only_durable_entries_are_applied():
    raft_log, disk = log((1,), (1, 1))
    raft_log.commit_to(3)
    assert [entry.index for entry in raft_log.take_committed()] == [1]
    disk.store(None, raft_log.unstable.take_entries(), None)
    assert not raft_log.has_committed
    raft_log.unstable.entries_synced(3, 1)
    raft_log.applied_to(1, 0)
    assert [entry.index for entry in raft_log.take_committed()] == [2, 3]


def test_applying_pauses_at_its_limit_until_some_entries_are_applied():
    disk = MemoryLog(ConfState((1,)))
    disk.store(None, entries(1, 1, 1, 1, data=b"xxx"), None)
    raft_log = RaftLog(disk, 7, applies_unstable=False)
    raft_log.commit_to(4)
    assert [entry.index for entry in raft_log.take_committed()] == [1, 2]
    assert not raft_log.has_committed
    raft_log.applied_to(2, 6)
    assert [entry.index for entry in raft_log.take_committed()] == [3, 4]


def test_entries_that_are_being_applied_count_towards_the_limit():
    disk = MemoryLog(ConfState((1,)))
    disk.store(None, entries(*[1] * 7, data=b"xxx"), None)
    raft_log = RaftLog(disk, 7, applies_unstable=False)

    def taken():
        assert raft_log.has_committed
        batch = [entry.index for entry in raft_log.take_committed()]
        return batch, raft_log.has_committed

    raft_log.commit_to(2)
    assert taken() == ([1, 2], False), "no further entry is committed"
    raft_log.commit_to(4)
    assert taken() == ([3], False), "one entry is always allowed"
    raft_log.applied_to(1, 2)
    assert not raft_log.has_committed, "7 bytes are being applied"
    raft_log.applied_to(2, 4)
    assert taken() == ([4], False)
    raft_log.commit_to(6)
    assert raft_log.has_committed
    raft_log.applied_to(4, 6)
    assert taken() == ([5, 6], False)
    raft_log.commit_to(7)
    assert taken() == ([7], False)


def test_a_batch_of_exactly_the_limit_pauses_applying():
    disk = MemoryLog(ConfState((1,)))
    disk.store(None, entries(1, 1, 1, data=b"xxx"), None)
    raft_log = RaftLog(disk, 6, applies_unstable=False)
    raft_log.commit_to(2)
    assert len(raft_log.take_committed()) == 2
    raft_log.commit_to(3)
    assert not raft_log.has_committed
    raft_log.applied_to(1, 3)
    assert len(raft_log.take_committed()) == 1


def test_nothing_is_applied_while_a_snapshot_is_being_installed():
    raft_log, _ = log((1,))
    raft_log.restore(snapshot(5, 2))
    raft_log.append(entries(2, first=6))
    raft_log.commit_to(6)
    assert not raft_log.has_committed
    assert raft_log.take_committed() == ()
    assert raft_log.first_index() == 6
    assert raft_log.term(5) == 2
    assert raft_log.term(4) is None
    with pytest.raises(Compacted):
        raft_log.entries(1, 2, UNLIMITED)
    with pytest.raises(Compacted):
        raft_log.entries(5, 7, UNLIMITED)
    assert raft_log.entries(6, 7, UNLIMITED) == entries(2, first=6)


def test_entries_above_a_snapshot_are_not_reported_before_it():
    tail = Unstable(1)
    tail.restore(snapshot(5, 2))
    tail.append(entries(2, first=6))
    with pytest.raises(AssertionError, match="is written first"):
        tail.entries_synced(6, 2)


def test_a_snapshot_never_moves_the_log_back():
    raft_log, _ = log((1, 1, 1))
    raft_log.commit_to(2)
    with pytest.raises(AssertionError, match="above the commit index"):
        raft_log.restore(snapshot(2, 1))


def test_the_report_of_replaced_entries_is_ignored():
    tail = Unstable(1)
    tail.append(entries(1, 1))
    tail.take_entries()
    tail.append(entries(2, first=2))
    tail.entries_synced(2, 1)
    assert len(tail.entries) == 2, "the entry of term 1 is synced, the one of term 2 is not"
    tail.entries_synced(1, 1)
    assert [entry.term for entry in tail.entries] == [2]
    tail.entries_synced(7, 1)
    assert len(tail.entries) == 1


def test_replaced_entries_go_to_the_append_worker_again():
    tail = Unstable(1)
    tail.append(entries(1, 1, 1))
    assert len(tail.take_entries()) == 3
    assert tail.take_entries() == ()
    tail.append(entries(2, first=2))
    assert [(entry.term, entry.index) for entry in tail.take_entries()] == [(2, 2)]
    tail.append(entries(3, 3, first=1))
    assert [(entry.term, entry.index) for entry in tail.take_entries()] == [(3, 1), (3, 2)]


def test_an_append_with_a_gap_is_refused():
    tail = Unstable(5)
    with pytest.raises(AssertionError, match="holes"):
        tail.append(entries(1, first=6))


def test_a_snapshot_is_dropped_from_memory_when_it_is_durable():
    tail = Unstable(1)
    tail.restore(snapshot(5, 1))
    assert tail.take_snapshot() is not None
    assert tail.take_snapshot() is None
    tail.restore(snapshot(9, 1))
    tail.snapshot_synced(5)
    assert tail.take_snapshot() is not None
    tail.snapshot_synced(9)
    assert tail.snapshot is None


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(0, 40))
def test_a_prefix_is_the_longest_within_the_limit_but_never_empty(sizes, limit):
    items = [Entry(1, place, b"x" * size) for place, size in enumerate(sizes)]
    prefix = within(items, limit)
    assert list(prefix) == items[: len(prefix)]
    assert len(prefix) == 1 or sum(len(entry.data) for entry in prefix) <= limit
    assert len(prefix) == len(items) or sum(sizes[: len(prefix) + 1]) > limit


def test_stored_entries_count_as_committed_only_until_they_are_replaced():
    """The stored log still has the entries 2 and 3 of term 1, which were never committed."""
    raft_log, _ = log((1, 1, 1))
    assert raft_log.append_after(1, 1, entries(2, 2, first=2)) == 3
    raft_log.commit_to(3)
    assert raft_log.stored_commit_index == 1
    raft_log.unstable.entries_synced(2, 2)
    assert raft_log.stored_commit_index == 2
    raft_log.unstable.entries_synced(3, 2)
    assert raft_log.stored_commit_index == 3


def test_no_stored_entry_counts_as_committed_while_a_snapshot_replaces_the_log():
    raft_log, _ = log((1, 1, 1))
    raft_log.restore(snapshot(5, 2))
    assert raft_log.stored_commit_index == 0
    raft_log.unstable.snapshot_synced(5)
    assert raft_log.stored_commit_index == 5
