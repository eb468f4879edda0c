"""A lost member is replaced only while nothing acknowledged can be lost, one member at a time."""

from dataclasses import replace

import pytest

from taskraft_replication.core import membership
from taskraft_replication.core.confchange import MemberChange, MemberChangeKind
from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.types import (
    ConfState,
    LogIndex,
    MemberId,
    MemberInfo,
    RaftRole,
    Roster,
    Term,
)
from taskraft_replication.membership.roster import find, roster_of, was_removed, with_roster
from taskraft_replication.node.replacement import (
    LAG_ENTRIES_MAX,
    Addition,
    ReplacementFault,
    addition_of,
    completion_of,
    pending_replacement,
)
from taskraft_replication.node.status import NodeStatus, PeerStatus

ME, OTHER, LOST, NEW = (MemberId(number) for number in (1, 2, 3, 4))
ADD_LEARNER, ADD_VOTER = MemberChangeKind.ADD_LEARNER, MemberChangeKind.ADD_VOTER
REMOVE = MemberChangeKind.REMOVE
WANTED = MemberInfo(MemberId(0), "n3", "peer", "client", "new-directory")
ACTIVE = (0, True)
SILENT = (0, False)


def peer(lag=0, is_active=True, state=ProgressState.REPLICATE):
    return PeerStatus(LogIndex(1), LogIndex(2), lag, state, is_active, is_learner=False)


def status(voters, answering, learners=(), infos=(), **changed):
    """Return the status of leader 1; the members of ``answering`` answer."""
    named = {info.member: info for info in infos}
    members = [
        named.get(member) or MemberInfo(member, f"n{member}", "p", "c", f"directory-{member}")
        for member in map(MemberId, (*voters, *learners))
    ]
    configuration = ConfState(
        voters=tuple(map(MemberId, voters)),
        learners=tuple(map(MemberId, learners)),
        roster=roster_of(members),
    )
    configuration = replace(configuration, **changed)
    peers = {info.member: peer(is_active=info.member in answering) for info in members}
    return NodeStatus(
        ME, 0, RaftRole.LEADER, Term(1), ME, *(LogIndex(500),) * 6, configuration, peers
    )


def with_peer(seen, member, found):
    return replace(seen, peers={**seen.peers, MemberId(member): found})


def replacing(answering=(1, 2, 4)):
    """Return the status after the learner 4 was added for the voter 3."""
    new = replace(WANTED, member=NEW, replaces=LOST)
    return status((1, 2, 3), answering, learners=(4,), infos=(new,))


def fault(decided):
    return getattr(decided, "fault", None)


def after(seen, change):
    """Return the configuration after a change, through the joint one."""
    before = seen.conf_state
    entered = membership.change(before, change)
    entered = with_roster(entered, change, before.roster)
    if entered.voters_outgoing:
        left = membership.leave_joint(entered)
        return with_roster(left, replace(change, changes=(), context=b""), entered.roster)
    return entered


def test_the_first_change_adds_a_learner_that_names_the_lost_voter():
    seen = status((1, 2, 3), (1, 2))
    added = addition_of(seen, WANTED, LOST)
    assert added.member == NEW
    assert added.change.changes == (MemberChange(ADD_LEARNER, NEW),)
    then = after(seen, added.change)
    assert then.voters == (ME, OTHER, LOST)
    assert then.learners == (NEW,)
    assert find(then.roster, NEW) == replace(WANTED, member=NEW, replaces=LOST)
    assert pending_replacement(then.roster).member == NEW


def test_the_second_change_promotes_the_learner_and_removes_the_voter_together():
    seen = replacing()
    change = completion_of(seen, pending_replacement(seen.conf_state.roster))
    assert set(change.changes) == {MemberChange(ADD_VOTER, NEW), MemberChange(REMOVE, LOST)}
    joint = membership.change(seen.conf_state, change)
    assert joint.voters == (ME, OTHER, NEW)
    assert joint.voters_outgoing == (ME, OTHER, LOST)
    assert joint.auto_leave
    then = after(seen, change)
    assert then.voters == (ME, OTHER, NEW)
    assert was_removed(then.roster, LOST)
    assert pending_replacement(then.roster) is None


def test_a_node_whose_identity_is_lost_too_is_found_by_its_name():
    assert addition_of(status((1, 2, 3), (1, 2)), WANTED, MemberId(0)).member == NEW


def test_a_repeated_request_gets_the_same_member():
    assert addition_of(replacing(), WANTED, LOST) == Addition(NEW, None)
    promoted = status((1, 2, 4), (1, 2), infos=(replace(WANTED, member=NEW),))
    assert addition_of(promoted, WANTED, LOST) == Addition(NEW, None)


@pytest.mark.parametrize("replaced", [9, 2], ids=["unknown", "of another name"])
def test_an_id_that_is_not_a_member_of_this_name_is_refused(replaced):
    decided = addition_of(status((1, 2, 3), (1, 2)), WANTED, MemberId(replaced))
    assert fault(decided) is ReplacementFault.NOT_A_MEMBER


def test_a_removed_member_is_not_replaced():
    seen = status((1, 2), (1, 2), roster=None)
    roster = Roster(roster_of([MemberInfo(ME, "n1"), MemberInfo(OTHER, "n2")]).members, LOST)
    seen = replace(seen, conf_state=replace(seen.conf_state, roster=roster))
    for replaced in (LOST, MemberId(0)):
        assert fault(addition_of(seen, WANTED, replaced)) is ReplacementFault.NOT_A_MEMBER


def test_a_member_that_still_answers_is_not_replaced():
    decided = addition_of(status((1, 2, 3), (1, 2, 3)), WANTED, LOST)
    assert fault(decided) is ReplacementFault.STILL_ACTIVE
    seen = replacing((1, 2, 3, 4))
    decided = completion_of(seen, pending_replacement(seen.conf_state.roster))
    assert fault(decided) is ReplacementFault.STILL_ACTIVE


def test_the_leader_is_not_replaced():
    wanted = replace(WANTED, name="n1")
    decided = addition_of(status((1, 2, 3), (2, 3)), wanted, ME)
    assert fault(decided) is ReplacementFault.STILL_ACTIVE


def test_a_second_member_waits_for_the_first():
    new = replace(WANTED, member=MemberId(6), replaces=LOST)
    seen = status((1, 2, 3, 4, 5), (1, 2, 5, 6), learners=(6,), infos=(new,))
    decided = addition_of(seen, replace(WANTED, name="n4"), NEW)
    assert fault(decided) is ReplacementFault.OTHER_REPLACEMENT
    assert '"n3"' in decided.text


def test_a_joint_change_comes_first():
    seen = status((1, 2, 3), (1, 2), voters_outgoing=(ME, OTHER))
    assert fault(addition_of(seen, WANTED, LOST)) is ReplacementFault.CHANGE_UNDER_WAY


@pytest.mark.parametrize(
    ("voters", "answering", "is_replaced"),
    [
        ((1, 2, 3), (1, 2), True),
        ((1, 2, 3), (1,), False),
        ((1, 3), (1,), False),
        ((1, 2, 3, 4), (1, 2, 4), True),
        ((1, 2, 3, 4), (1, 2), False),
        ((1, 2, 3, 4, 5), (1, 2, 4), True),
        ((1, 2, 3, 4, 5), (1, 2), False),
    ],
)
def test_a_majority_of_the_voters_without_the_lost_one_must_answer(voters, answering, is_replaced):
    decided = addition_of(status(voters, answering), WANTED, LOST)
    assert fault(decided) is (None if is_replaced else ReplacementFault.OTHERS_NOT_WHOLE)
    if not is_replaced:
        assert "recover --force-new" in decided.text


@pytest.mark.parametrize(
    ("found", "is_whole"),
    [
        (peer(LAG_ENTRIES_MAX), True),
        (peer(LAG_ENTRIES_MAX + 1), False),
        (peer(0, True, ProgressState.PROBE), False),
        (peer(0, True, ProgressState.SNAPSHOT), False),
    ],
)
def test_the_others_and_the_new_member_must_have_caught_up(found, is_whole):
    others = addition_of(with_peer(status((1, 2, 3), (1, 2)), 2, found), WANTED, LOST)
    assert fault(others) is (None if is_whole else ReplacementFault.OTHERS_NOT_WHOLE)
    seen = with_peer(replacing(), 4, found)
    decided = completion_of(seen, pending_replacement(seen.conf_state.roster))
    assert fault(decided) is (None if is_whole else ReplacementFault.NEW_MEMBER_BEHIND)


def test_a_new_member_that_does_not_answer_is_not_promoted():
    seen = replacing((1, 2))
    decided = completion_of(seen, pending_replacement(seen.conf_state.roster))
    assert fault(decided) is ReplacementFault.NEW_MEMBER_BEHIND
    assert "does not answer" in decided.text


def test_a_replaced_node_that_loses_its_data_again_gets_another_member():
    seen = replacing((1, 2))
    again = replace(WANTED, directory_id="third-directory")
    added = addition_of(seen, again, NEW)
    assert added.member == 5
    then = after(seen, added.change)
    assert (then.voters, then.learners) == ((ME, OTHER, LOST), (added.member,))
    assert pending_replacement(then.roster).replaces == LOST


def test_a_lost_learner_is_replaced_by_a_learner_without_a_vote():
    seen = status((1, 2), (1, 2), learners=(3,))
    added = addition_of(seen, WANTED, LOST)
    then = after(seen, added.change)
    assert (then.voters, then.learners) == ((ME, OTHER), (added.member,))
    assert pending_replacement(then.roster) is None


def test_a_learner_whose_voter_was_removed_is_not_promoted_by_itself():
    new = replace(WANTED, member=NEW, replaces=LOST)
    seen = status((1, 2), (1, 2, 4), learners=(4,), infos=(new,))
    assert fault(completion_of(seen, new)) is ReplacementFault.NOT_A_MEMBER
