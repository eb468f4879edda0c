"""The roster of a group is computed, stored and sent, with the changes made."""

from __future__ import annotations

from dataclasses import fields

import pytest

from taskraft_replication.core import membership
from taskraft_replication.core.confchange import ConfChange, MemberChange, MemberChangeKind
from taskraft_replication.core.errors import ConfChangeMalformed
from taskraft_replication.core.types import (
    ChangeMade,
    ConfState,
    LogIndex,
    MemberId,
    MemberInfo,
    Roster,
)
from taskraft_replication.errors import MessageMalformed
from taskraft_replication.membership.codec import (
    decode_conf_state,
    decode_roster,
    encode_conf_state,
    encode_roster,
)
from taskraft_replication.membership.roster import (
    CHANGES_KEPT_MAX,
    REMOVED_NAMES_MAX,
    change_of,
    made_before,
    may_add_itself,
    members_without_directory,
    removal_of,
    roster_of,
    was_node_removed,
    was_removed,
    with_configured,
    with_roster,
)
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.metadata import Metadata
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb

ADD_LEARNER = MemberChangeKind.ADD_LEARNER


def test_the_last_changes_are_remembered_by_their_request_ids():
    conf_state = ConfState((MemberId(1),))
    for number in range(2, CHANGES_KEPT_MAX + 4):
        member = MemberInfo(MemberId(number), f"m{number}")
        change = change_of(ADD_LEARNER, member, f"add {number}")
        conf_state = with_roster(membership.change(conf_state, change), change, conf_state.roster)
    change = removal_of([MemberId(9)], "remove 9")
    conf_state = with_roster(membership.change(conf_state, change), change, conf_state.roster)
    roster = conf_state.roster
    assert len(roster.changes_made) == CHANGES_KEPT_MAX
    assert made_before(roster, "remove 9") == 9
    assert made_before(roster, "add 9") == 9
    assert made_before(roster, "add 2") is None, "the change is too old to be remembered"
    assert made_before(roster, "add 99") is None
    # A request without an id is never repeated.
    change = change_of(ADD_LEARNER, MemberInfo(MemberId(77)))
    after = with_roster(membership.change(conf_state, change), change, roster)
    assert after.roster.changes_made == roster.changes_made


def test_every_field_of_a_roster_is_stored_and_sent(tmp_path):
    member = MemberInfo(MemberId(1), "m1", "peer:1", "client:1", "ab", MemberId(2), True)
    roster = Roster((member,), MemberId(4), (ChangeMade("r", MemberId(4)),), ("gone",))
    for value in (member, roster):
        defaults = type(value)(member.member) if value is member else Roster()
        same = [
            each.name
            for each in fields(value)
            if getattr(value, each.name) == getattr(defaults, each.name)
        ]
        assert same == (["member"] if value is member else []), "a field without a value of its own"
    assert decode_roster(encode_roster(roster)) == roster
    files = DiskFileSystem(tmp_path)
    files.make_directory("raft-0")
    metadata = Metadata(files, "raft-0")
    history = [(LogIndex(7), ConfState((MemberId(1),), roster=roster))]
    metadata.save_memberships(history)
    assert Metadata(files, "raft-0").memberships() == history
    assert with_configured(roster, {}, roster) == roster


def info(number: int, name: str = "", address: str = "", directory_id: str = "d") -> MemberInfo:
    return MemberInfo(MemberId(number), name or f"m{number}", address, "client:1", directory_id)


def test_a_roster_is_sorted_by_member_id_and_knows_the_highest_id():
    roster = roster_of([info(3), info(1), info(2)])
    assert [each.member for each in roster.members] == [1, 2, 3]
    assert roster.last_member == 3
    assert roster_of([]) == Roster((), MemberId(0))


def test_a_member_with_an_assigned_id_that_is_not_in_the_roster_was_removed():
    roster = Roster((info(1), info(3)), MemberId(4))
    assert [was_removed(roster, MemberId(number)) for number in range(6)] == [
        *(False, False, True),  # ids 0 to 2: no member, a member, a removed member
        *(False, True, False),  # ids 3 to 5: a member, the last removed member, no member yet
    ]


def test_members_whose_directory_was_never_seen_are_listed():
    roster = roster_of([info(1), info(2, directory_id=""), info(3, directory_id="")])
    assert members_without_directory(roster) == (2, 3)


def test_an_address_is_configured_for_a_member_by_id_and_name():
    roster = roster_of([info(1, "a", "old:1"), info(2, "b", "old:2"), info(3, "c", "old:3")])
    configured = {
        MemberId(1): info(1, "a", "new:1"),
        MemberId(2): info(2, "another", "new:2"),
    }
    after = with_configured(roster, configured, roster)
    assert [each.peer_address for each in after.members] == ["new:1", "old:2", "old:3"]
    assert [each.name for each in after.members] == ["a", "b", "c"]
    assert after.last_member == roster.last_member


def test_an_address_announced_since_the_start_is_newer_than_the_configured_one():
    at_start = roster_of([info(1, "a", "old:1"), info(2, "b", "old:2")])
    now = roster_of([info(1, "a", "announced:1"), info(2, "b", "old:2")])
    configured = {MemberId(1): info(1, "a", "set:1"), MemberId(2): info(2, "b", "set:2")}
    after = with_configured(now, configured, at_start)
    assert [each.peer_address for each in after.members] == ["announced:1", "set:2"]


def test_a_member_stays_in_the_roster_while_either_half_contains_it():
    before = roster_of([info(1), info(2), info(3)])
    removal = removal_of([MemberId(3)])
    joint = ConfState((MemberId(1), MemberId(2)), voters_outgoing=(MemberId(1), MemberId(3)))
    halfway = with_roster(joint, removal, before).roster
    assert [each.member for each in halfway.members] == [1, 2, 3]
    after = with_roster(ConfState((MemberId(1), MemberId(2))), removal, halfway).roster
    assert [each.member for each in after.members] == [1, 2]
    assert after.last_member == 3, "an id is never assigned twice"


def test_a_later_change_replaces_the_record_of_a_member():
    before = roster_of([info(1), info(2, address="old:2")])
    change = change_of(ADD_LEARNER, info(2, address="new:2"))
    after = with_roster(ConfState((MemberId(1),), (MemberId(2),)), change, before).roster
    assert [each.peer_address for each in after.members] == ["", "new:2"]


def test_a_membership_is_decoded_as_it_was_encoded():
    sent = ConfState(
        (MemberId(1), MemberId(2)),
        (MemberId(3),),
        (MemberId(2), MemberId(4)),
        (MemberId(4),),
        auto_leave=True,
        roster=roster_of([info(1), info(2), info(3), info(4)]),
    )
    assert decode_conf_state(encode_conf_state(sent)) == sent


def step(conf_state, change):
    return with_roster(membership.change(conf_state, change), change, conf_state.roster)


def test_a_removed_node_may_not_add_itself_until_it_is_added_again():
    first = with_roster(ConfState((MemberId(1),)), change_of(ADD_LEARNER, info(1, "n1")), Roster())
    added = step(first, change_of(ADD_LEARNER, info(2, "N2")))
    assert may_add_itself(added.roster, "n2")
    removed = step(added, removal_of([MemberId(2)]))
    assert removed.roster.removed_names == ("N2",)
    assert was_node_removed(removed.roster, "n2")
    assert not may_add_itself(removed.roster, "n2")
    again = step(removed, change_of(ADD_LEARNER, info(3, "n2")))
    assert again.roster.removed_names == ()
    assert may_add_itself(again.roster, "n2")


def test_a_replaced_member_is_no_removed_node():
    first = with_roster(ConfState((MemberId(1),)), change_of(ADD_LEARNER, info(1, "n1")), Roster())
    both = step(first, change_of(ADD_LEARNER, info(2, "n1")))
    assert step(both, removal_of([MemberId(2)])).roster.removed_names == ()


def test_no_node_adds_itself_once_names_may_be_forgotten():
    names = tuple(f"n{number}" for number in range(REMOVED_NAMES_MAX))
    assert may_add_itself(Roster(removed_names=names[1:]), "other")
    assert not may_add_itself(Roster(removed_names=names), "other")


@pytest.mark.parametrize("field", ["voters", "learners", "voters_outgoing", "learners_next"])
def test_no_member_has_the_id_0(field):
    with pytest.raises(MessageMalformed, match="not positive"):
        decode_conf_state(pb.ConfState(**{field: [1, 0]}))
    assert decode_conf_state(pb.ConfState(**{field: [1]})) != ConfState()


def test_a_context_that_is_not_a_roster_is_malformed():
    named_zero = pb.Roster(members=[pb.MemberInfo(member=0)]).SerializeToString()
    for context in (b"\xff", named_zero):
        change = ConfChange((MemberChange(ADD_LEARNER, MemberId(2)),), context=context)
        with pytest.raises(ConfChangeMalformed, match="the context is not a roster"):
            with_roster(ConfState((MemberId(1),)), change, Roster())
