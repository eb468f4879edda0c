"""A removed member does not start again with its old data."""

import pytest

from taskraft_replication.core.types import ConfState, LogIndex, MemberId, MemberInfo, Roster
from taskraft_replication.errors import MemberRemoved
from tests.replication.log_on_disk import Log, entry


def test_a_member_that_crashed_while_it_applied_its_removal_starts(tmp_path):
    """Another member may need its vote to learn that the removal is committed."""
    log = Log(tmp_path)
    log.append(entry(2), commit=2)
    infos = (MemberInfo(MemberId(2)), MemberInfo(MemberId(3)))
    others = ConfState((MemberId(2), MemberId(3)), roster=Roster(infos, MemberId(3)))
    log.storage.save_memberships(log.storage.memberships.add(LogIndex(2), others, LogIndex(1)))
    for applied in (1, 2):
        log.open(applied=applied)
        assert log.storage.memberships.at(LogIndex(2)).voters == others.voters


def test_a_member_that_was_told_of_its_removal_does_not_start(tmp_path):
    log = Log(tmp_path)
    log.storage.metadata.save_removed()
    with pytest.raises(MemberRemoved, match="member 1 was removed"):
        log.open()
