"""A data directory serves only its own node, and counts only starts that peers may accept."""

import pytest

from taskraft_replication.core.types import ConfState, LogIndex, MemberId, MemberInfo
from taskraft_replication.errors import (
    DirectoryForeign,
    DirectoryOutdated,
    DirectoryUnknown,
    MemberInUse,
)
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.storage.checked_file import read_checked, write_checked
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.group_storage import GroupStorage
from tests.replication.log_on_disk import Log, config


def contents(directory):
    """Return the content of each file below a directory."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def without_name(path):
    """Write an identity as an earlier build did."""
    fs, name = DiskFileSystem(path), "raft-0/identity"
    content = read_checked(fs, name)
    del content["name"]
    write_checked(fs, name, content)


def test_data_of_another_node_is_refused_and_stays_as_it_is(tmp_path):
    Log(tmp_path, name="n1")
    before = contents(tmp_path)
    with pytest.raises(DirectoryForeign, match="belongs to node 'n1', not to 'n2'"):
        GroupStorage.open(DiskFileSystem(tmp_path), config(name="n2"), LogIndex(1))
    assert contents(tmp_path) == before
    GroupStorage.open(DiskFileSystem(tmp_path), config(name="N1"), LogIndex(1))


def test_an_identity_without_a_name_gets_the_name_that_the_membership_tells(tmp_path):
    roster = roster_of([MemberInfo(MemberId(1), "n1"), MemberInfo(MemberId(2), "n2")])
    founders = ConfState(voters=(MemberId(1), MemberId(2)), roster=roster)
    Log(tmp_path, name="n1", founders=founders)
    without_name(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(DirectoryForeign, match="belongs to node 'n1', not to 'n2'"):
        GroupStorage.open(DiskFileSystem(tmp_path), config(name="n2"), LogIndex(1))
    assert contents(tmp_path) == before
    GroupStorage.open(DiskFileSystem(tmp_path), config(name="n1"), LogIndex(1))
    assert read_checked(DiskFileSystem(tmp_path), "raft-0/identity")["name"] == "n1"


def test_an_identity_without_a_name_is_refused_if_no_membership_tells_the_name(tmp_path):
    Log(tmp_path)
    without_name(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(DirectoryForeign, match="belongs to node '', not to 'n1'"):
        GroupStorage.open(DiskFileSystem(tmp_path), config(name="n1"), LogIndex(1))
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("refusal", "next_incarnation"),
    [
        (DirectoryOutdated("an older copy"), 2),
        (MemberInUse("a second process", was_accepted=False), 2),
        (MemberInUse("a process that came back", was_accepted=True), 3),
        (DirectoryUnknown("another directory"), 3),
    ],
)
def test_a_refused_start_counts_only_if_the_member_may_come_back(
    tmp_path, refusal, next_incarnation
):
    log = Log(tmp_path)
    log.open()
    assert log.storage.incarnation == 2
    log.storage.end_refused(refusal)
    log.open()
    assert log.storage.incarnation == next_incarnation
