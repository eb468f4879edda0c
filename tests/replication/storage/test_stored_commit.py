"""The stored commit index covers only durable entries."""

import pytest

from taskraft_replication.core.types import (
    ConfState,
    Entry,
    HardState,
    LogIndex,
    MemberId,
    SnapshotMeta,
    Term,
)
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.metadata import Identity

FOUNDERS = ConfState(voters=(MemberId(1), MemberId(2)))


def open_in(path):
    config = StorageConfig(Identity("test", MemberId(1), 0), FOUNDERS, 7, segment_bytes=4096)
    return GroupStorage.open(DiskFileSystem(path), config, LogIndex(1))


def entries(first, last, term):
    return [Entry(Term(term), LogIndex(index), b"x") for index in range(first, last + 1)]


@pytest.fixture
def storage(tmp_path):
    """A storage with uncommitted entries of the first term."""
    one = open_in(tmp_path)
    one.store(None, entries(2, 8, 1), LogIndex(1))
    return one


def found_in(path):
    return open_in(path).view.initial_state()[0]


def test_a_commit_index_is_not_stored_before_its_entries(storage, tmp_path, monkeypatch):
    """A crash between both writes must not commit old entries that the new entries replace."""

    def crash(entries, commit):
        raise OSError("crash")

    monkeypatch.setattr(storage._log, "append", crash)
    with pytest.raises(OSError, match="crash"):
        storage.store(HardState(Term(2), MemberId(2), LogIndex(8)), entries(5, 8, 2), LogIndex(8))
    found = found_in(tmp_path)
    assert (found.term, found.commit) == (2, 4)


def test_a_snapshot_stores_its_commit_index_with_the_switch_and_not_before(storage, tmp_path):
    meta = SnapshotMeta(LogIndex(300), Term(3), FOUNDERS)
    storage.begin_installation(meta, HardState(Term(3), MemberId(0), LogIndex(300)))
    found = found_in(tmp_path)
    assert (found.term, found.commit) == (3, 1)


def test_a_commit_index_of_unstored_entries_is_not_saved_at_the_end(storage, tmp_path):
    storage.close(HardState(Term(2), MemberId(2), LogIndex(8)))
    assert found_in(tmp_path).commit == 1


def test_a_stored_membership_was_committed(storage, tmp_path):
    """A member that the change removed need not return to confirm the change."""
    alone = ConfState(voters=(MemberId(1),))
    storage.save_memberships(storage.memberships.add(LogIndex(5), alone, LogIndex(1)))
    assert found_in(tmp_path).commit == 5


def test_replayed_changes_after_a_start_keep_later_memberships(storage, tmp_path):
    """A crash during the replay must keep the last change committed, even without other members."""
    both = ConfState(voters=(MemberId(1), MemberId(2)))
    alone = ConfState(voters=(MemberId(1),))
    storage.save_memberships(storage.memberships.add(LogIndex(4), both, LogIndex(1)))
    storage.save_memberships(storage.memberships.add(LogIndex(5), alone, LogIndex(1)))
    storage.save_memberships(storage.memberships.add(LogIndex(4), both, LogIndex(1)))
    assert storage.memberships.at(LogIndex(4)) == both
    assert storage.memberships.at(LogIndex(5)) == alone
    assert found_in(tmp_path).commit == 5
