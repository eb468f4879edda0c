"""Break a rule inside the core, and expect its assertion to fail.

Each test replaces one part of the core by a wrong part. docs/raft.md lists the rules.
"""

import pytest

from taskraft_replication.core import election, follower, sender
from taskraft_replication.core.errors import CommittedEntriesMissing
from taskraft_replication.core.leader import become_leader
from taskraft_replication.core.tracker import ProgressTracker
from taskraft_replication.core.types import ConfState, Message, MessageKind
from tests.replication.core.cluster import Cluster, with_log

K = MessageKind


def test_rule_3_a_follower_commits_only_checked_entries(monkeypatch):
    cluster = Cluster(3)
    with_log(cluster, 3, 1, 1, 1)
    monkeypatch.setattr(follower, "min", lambda commit, _: commit, raising=False)
    with pytest.raises(AssertionError, match="not checked"):
        cluster[3].step(Message(K.APPEND, 3, 1, 2, 1, 1, (), 3))


def test_rule_3_a_heartbeat_commits_only_entries_known_to_match(monkeypatch):
    cluster = Cluster(3)
    cluster.elect(1, among=[1, 2])
    monkeypatch.setattr(sender, "min", max, raising=False)
    with pytest.raises(AssertionError, match="a heartbeat does not check"):
        cluster.tick(1)


@pytest.mark.parametrize(
    "votes", [{}, {1: True}, {1: True, 2: False, 3: False}, {4: True, 5: True, 6: True}]
)
def test_rule_5_a_leader_needs_the_votes_of_a_quorum(votes):
    cluster = Cluster(3)
    cluster[1].campaign()
    member = cluster[1]._member
    member.tracker.votes = votes
    with pytest.raises(AssertionError, match="not elected"):
        become_leader(member)


def test_rule_5_a_joint_configuration_elects_with_both_halves():
    cluster = Cluster(5)
    cluster[1].campaign()
    member = cluster[1]._member
    member.adopt(ConfState((1, 2, 3), voters_outgoing=(1, 4, 5)))
    member.tracker.votes = {1: True, 2: True, 3: True}
    with pytest.raises(AssertionError, match="not elected"):
        become_leader(member)


def test_rule_10_a_member_outside_the_configuration_does_not_lead():
    cluster = Cluster(3)
    cluster[1].campaign()
    member = cluster[1]._member
    member.adopt(ConfState((2, 3)))
    member.tracker.votes = {2: True, 3: True}
    with pytest.raises(AssertionError, match="must be a voter"):
        become_leader(member)


@pytest.mark.parametrize(
    "configuration",
    [
        ConfState((1, 2, 3)),
        ConfState((1, 2), learners=(3,)),
        ConfState((1,), voters_outgoing=(1, 2, 3)),
        ConfState((2, 3)),
    ],
)
def test_rules_5_and_10_commits_need_a_quorum_of_each_half(monkeypatch, configuration):
    """The wrong cases: one majority of two, a learner, and a leader outside the members."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    member = cluster[1]._member
    member.adopt(configuration)
    monkeypatch.setattr(ProgressTracker, "commit_index", lambda _: member.log.last_index)
    with pytest.raises(AssertionError, match="a majority of each half"):
        cluster.settle(among=[1, 2])


def test_rule_8_a_learner_answers_vote_requests(monkeypatch):
    cluster = Cluster(3, learners=[3])
    monkeypatch.setattr(election, "on_vote_request", lambda *_: None)
    with pytest.raises(AssertionError, match="by a learner too"):
        cluster[3].step(Message(K.VOTE, 3, 1, 1))


@pytest.mark.parametrize(
    "configuration",
    [
        ConfState((2, 1)),
        ConfState((1, 1)),
        ConfState((1,), learners=(3, 2)),
        ConfState((1,), voters_outgoing=(3, 2)),
        ConfState((1,), voters_outgoing=(2, 3), learners_next=(3, 2)),
    ],
)
def test_rule_12_a_configuration_does_not_depend_on_the_order_of_a_set(configuration):
    with pytest.raises(AssertionError, match="in a fixed order"):
        Cluster(3)[1]._member.adopt(configuration)


@pytest.mark.shows_fault(
    "directory",
    "an older copy of the directory is restored while other members have continued",
    "stops with status 70 when the leader names a committed entry that the copy lacks. This is not"
    " detected in every case, and acknowledged data is lost: **never do it**, replace the member",
)
def test_a_member_whose_log_lost_acknowledged_entries_stops_with_a_clear_message():
    """An older data directory was restored; the heartbeat of the leader reveals the loss."""
    cluster = Cluster(3)
    with_log(cluster, 3, 1, 1)
    with pytest.raises(CommittedEntriesMissing, match=r"entry 3 .* ends at entry 2.*older copy"):
        cluster[3].step(Message(K.HEARTBEAT, 3, 1, 2, commit=3))
