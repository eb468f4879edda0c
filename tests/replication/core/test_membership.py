"""Simple changes keep overlapping majorities; other changes use a joint configuration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_replication.core import membership
from taskraft_replication.core.confchange import (
    LEAVE_JOINT,
    ConfChange,
    ConfChangeTransition,
    MemberChange,
    MemberChangeKind,
)
from taskraft_replication.core.errors import ConfChangeFault, ConfChangeInvalid
from taskraft_replication.core.types import ConfState
from tests.raft_traces.writing import parse_changes, write_configuration


def changes(text):
    return parse_changes(text.split())


def after(configuration, text, transition=ConfChangeTransition.AUTO):
    return membership.change(configuration, ConfChange(changes(text), transition))


ONE = ConfState((1,))
THREE = ConfState((1, 2, 3))
JOINT = ConfState((2, 3, 4), voters_outgoing=(1, 2, 3))


@pytest.mark.parametrize(
    ("configuration", "text", "expected"),
    [
        (ONE, "v2", "voters=(1 2)"),
        (ONE, "l2", "voters=(1) learners=(2)"),
        (ConfState((1,), (2,)), "v2", "voters=(1 2)"),
        (THREE, "l3", "voters=(1 2) learners=(3)"),
        (THREE, "r3", "voters=(1 2)"),
        (THREE, "r9", "voters=(1 2 3)"),
        (THREE, "u2", "voters=(1 2 3)"),
        (THREE, "v0", "voters=(1 2 3)"),
        (THREE, "r1 v4", "voters=(2 3 4)&&(1 2 3) autoleave"),
        (THREE, "l1 v4", "voters=(2 3 4)&&(1 2 3) learners_next=(1) autoleave"),
        (THREE, "l4 l5", "voters=(1 2 3)&&(1 2 3) learners=(4 5) autoleave"),
    ],
)
def test_a_change_leads_to_the_expected_configuration(configuration, text, expected):
    assert write_configuration(after(configuration, text)) == expected


def test_an_explicit_joint_configuration_is_not_left_automatically():
    assert not after(THREE, "v4", ConfChangeTransition.JOINT_EXPLICIT).auto_leave
    assert after(THREE, "v4", ConfChangeTransition.JOINT_IMPLICIT).auto_leave


def test_leaving_turns_demoted_voters_into_learners():
    joint = after(THREE, "l1 v4", ConfChangeTransition.JOINT_EXPLICIT)
    assert write_configuration(membership.change(joint, LEAVE_JOINT)) == (
        "voters=(2 3 4) learners=(1)"
    )


@pytest.mark.parametrize(
    ("configuration", "change", "fault"),
    [
        (ONE, ConfChange(changes("r1")), ConfChangeFault.NO_VOTERS_AFTER),
        (ONE, ConfChange(changes("l1")), ConfChangeFault.NO_VOTERS_AFTER),
        (THREE, ConfChange(changes("r1 r2 r3")), ConfChangeFault.NO_VOTERS_AFTER),
        (THREE, LEAVE_JOINT, ConfChangeFault.NOT_JOINT),
        (JOINT, ConfChange(changes("v5")), ConfChangeFault.SIMPLE_WHILE_JOINT),
        (JOINT, ConfChange(changes("v5 v6")), ConfChangeFault.ALREADY_JOINT),
        (
            ConfState(),
            ConfChange(changes("v1"), ConfChangeTransition.JOINT_EXPLICIT),
            ConfChangeFault.NO_VOTERS_BEFORE,
        ),
    ],
)
def test_an_invalid_change_is_refused(configuration, change, fault):
    with pytest.raises(ConfChangeInvalid) as raised:
        membership.change(configuration, change)
    assert raised.value.fault is fault


def test_a_simple_change_moves_one_voter_at_most():
    with pytest.raises(ConfChangeInvalid) as raised:
        membership.simple(THREE, changes("v4 v5"))
    assert raised.value.fault is ConfChangeFault.SEVERAL_VOTERS


CHANGES = st.lists(
    st.builds(MemberChange, st.sampled_from(MemberChangeKind), st.integers(0, 6)), max_size=4
).map(tuple)


@given(st.lists(st.builds(ConfChange, CHANGES, st.sampled_from(ConfChangeTransition)), max_size=8))
def test_consecutive_configurations_have_overlapping_majorities(wanted):
    configuration = THREE
    for change in wanted:
        try:
            following = membership.change(configuration, change)
        except ConfChangeInvalid:
            continue
        assert membership.restored(following) == following
        assert overlap(configuration, following)
        configuration = following


def overlap(before, after):
    """Return whether each quorum of the first voters meets each quorum of the second voters."""
    ids = sorted({*membership.voters(before), *membership.voters(after)})
    for bits in range(1 << len(ids)):
        chosen = {member for place, member in enumerate(ids) if bits >> place & 1}
        if is_quorum(before, chosen) and is_quorum(after, set(ids) - chosen):
            return False
    return True


def is_quorum(configuration, chosen):
    halves = [half for half in (configuration.voters, configuration.voters_outgoing) if half]
    return all(len(chosen & set(half)) * 2 > len(half) for half in halves)


def test_a_restored_configuration_is_sorted():
    assert membership.restored(ConfState((3, 1, 2))) == ConfState((1, 2, 3))


@pytest.mark.parametrize(
    "broken",
    [
        ConfState((1, 2), learners=(2,)),
        ConfState((1,), learners=(2,), voters_outgoing=(2,)),
        ConfState((1,), learners_next=(2,)),
        ConfState((1, 2), voters_outgoing=(2,), learners_next=(2,)),
        ConfState((1,), auto_leave=True),
        ConfState((0,)),
    ],
)
def test_a_contradictory_configuration_stops_the_member(broken):
    with pytest.raises(AssertionError):
        membership.restored(broken)


def test_members_are_all_that_receive_the_log():
    configuration = ConfState((2, 3), (5,), (1, 2), ())
    assert membership.members(configuration) == (1, 2, 3, 5)
    assert membership.voters(configuration) == (1, 2, 3)
