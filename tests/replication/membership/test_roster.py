"""Who the members are, and which changes were made: computed, stored, sent."""

from __future__ import annotations

from replication.core import membership
from replication.core.confchange import MemberChangeKind
from replication.core.types import ChangeMade, ConfState, LogIndex, MemberId, MemberInfo, Roster
from replication.membership.codec import decode_roster, encode_roster
from replication.membership.roster import (
    CHANGES_KEPT_MAX,
    change_of,
    made_before,
    removal_of,
    with_configured,
    with_roster,
)
from replication.storage.filesystem import DiskFileSystem
from replication.storage.metadata import Metadata

ADD_LEARNER = MemberChangeKind.ADD_LEARNER


def test_the_last_changes_asked_for_are_remembered_by_their_requests():
    conf_state = ConfState((MemberId(1),))
    for number in range(2, CHANGES_KEPT_MAX + 4):
        member = MemberInfo(MemberId(number), f"m{number}")
        change = change_of(ADD_LEARNER, member, f"add {number}")
        conf_state = with_roster(membership.change(conf_state, change), change, conf_state.roster)
    change = removal_of(MemberId(9), "remove 9")
    conf_state = with_roster(membership.change(conf_state, change), change, conf_state.roster)
    roster = conf_state.roster
    assert len(roster.changes_made) == CHANGES_KEPT_MAX
    assert made_before(roster, "remove 9") == 9
    assert made_before(roster, "add 9") == 9
    assert made_before(roster, "add 2") is None, "it is long ago"
    assert made_before(roster, "add 99") is None
    # Nobody repeats what had no name.
    change = change_of(ADD_LEARNER, MemberInfo(MemberId(77)))
    after = with_roster(membership.change(conf_state, change), change, roster)
    assert after.roster.changes_made == roster.changes_made


def test_what_is_remembered_of_changes_is_stored_and_sent(tmp_path):
    roster = Roster((MemberInfo(MemberId(1), "m1"),), MemberId(4), (ChangeMade("r", MemberId(4)),))
    assert decode_roster(encode_roster(roster)) == roster
    files = DiskFileSystem(tmp_path)
    files.make_directory("raft-0")
    metadata = Metadata(files, "raft-0")
    history = [(LogIndex(7), ConfState((MemberId(1),), roster=roster))]
    metadata.save_memberships(history)
    assert Metadata(files, "raft-0").memberships() == history
    assert with_configured(roster, {}) == roster
