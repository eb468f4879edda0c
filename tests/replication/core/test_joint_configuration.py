"""A joint configuration needs both majorities, and is left automatically."""

import pytest

from taskraft_replication.core.confchange import LEAVE_JOINT, ConfChange, ConfChangeTransition
from taskraft_replication.core.errors import ConfChangeFault
from taskraft_replication.core.types import ConfState, EntryKind, RaftRole
from tests.raft_traces.writing import parse_changes
from tests.replication.core.cluster import Cluster, in_joint


def change(text, transition=ConfChangeTransition.AUTO):
    return ConfChange(parse_changes(text.split()), transition)


def test_a_joint_configuration_is_left_automatically():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.add_empty(4)
    cluster.add_empty(5)
    cluster[1].propose_conf_change(change("v4 v5 r2"))
    cluster.settle()
    for member in (1, 3, 4, 5):
        assert cluster[member].status().configuration == ConfState((1, 3, 4, 5))


def test_an_explicit_joint_configuration_stays_until_it_is_left():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose_conf_change(change("r2", ConfChangeTransition.JOINT_EXPLICIT))
    cluster.settle()
    assert cluster[1].status().configuration == ConfState((1, 3), (), (1, 2, 3))
    assert cluster[1].propose_conf_change(change("v4")) is ConfChangeFault.ALREADY_JOINT
    cluster.settle()
    assert cluster[1].propose_conf_change(LEAVE_JOINT) is None
    cluster.settle()
    assert cluster[1].status().configuration == ConfState((1, 3))


@pytest.mark.parametrize(
    ("reached", "committed"), [((2, 3), False), ((4, 5), False), ((2, 4), True), ((3, 5), True)]
)
def test_a_joint_configuration_commits_with_both_majorities(reached, committed):
    cluster = in_joint()
    cluster.elect(1)
    before = cluster[1].commit_index
    cluster[1].propose(b"x")
    cluster.settle(among=[1, *reached])
    assert (cluster[1].commit_index > before) is committed


@pytest.mark.parametrize(("voting", "elected"), [((2, 3), False), ((4, 5), False), ((2, 4), True)])
def test_a_joint_configuration_elects_with_both_majorities(voting, elected):
    cluster = in_joint()
    cluster[1].campaign()
    cluster.settle(among=[1, *voting])
    assert (cluster[1].role is RaftRole.LEADER) is elected


def test_a_voter_of_the_outgoing_half_alone_may_lead():
    cluster = in_joint()
    cluster.elect(2)
    cluster.tick(2)
    cluster.settle()
    assert cluster[4].leader == 2


def test_a_member_restarted_in_a_joint_configuration_still_leaves_it():
    cluster = Cluster(3)
    for peer in cluster.peers.values():
        peer.disk.configuration = ConfState((1, 2), (), (1, 2, 3), (3,), auto_leave=True)
    for member in (1, 2, 3):
        cluster.crash(member)
    cluster.elect(1)
    assert cluster[1].status().configuration == ConfState((1, 2), (3,))


def test_leaving_a_joint_configuration_is_proposed_once():
    """Other entries are applied while the proposal is in flight."""
    cluster = Cluster(3, committed_bytes_max=1)
    cluster.elect(1)
    cluster[1].propose_conf_change(change("l3", ConfChangeTransition.JOINT_IMPLICIT))
    for _ in range(3):
        cluster[1].propose(b"x")
    cluster.settle()
    applied = [(each.kind, each.data) for each in cluster.peers[1].disk.applied]
    assert applied[2:] == [*[(EntryKind.NORMAL, b"x")] * 3, (EntryKind.CONF_CHANGE_V2, b"")]
    assert cluster[1].status().configuration == ConfState((1, 2), (3,))
