"""A term has at most one leader, elected by a quorum of members with no longer logs."""

import pytest

from taskraft_replication.core.confchange import ConfChange, encode
from taskraft_replication.core.roles import ROLE_CHANGES, take_role
from taskraft_replication.core.trace import MessageDropped, MessageDropReason, RoleTaken
from taskraft_replication.core.types import (
    Entry,
    EntryKind,
    HardState,
    Message,
    MessageKind,
    RaftRole,
)
from tests.raft_traces.writing import parse_changes
from tests.replication.core.cluster import (
    Cluster,
    storing_a_snapshot,
    storing_the_second_entry,
    to,
    with_log,
)

K = MessageKind


def vote(sender, receiver, term, last=(0, 0), kind=K.VOTE, context=b""):
    return Message(kind, receiver, sender, term, last[0], last[1], context=context)


def answers(cluster, member):
    """Return the messages of ``member`` after its disk work is done."""
    cluster.flush(member)
    return [(m.kind, m.to, m.term, m.reject) for m in cluster.drop(lambda m: m.sender == member)]


def test_a_follower_campaigns_after_one_to_two_timeouts_of_silence():
    """Raft paper, 5.2: timeouts are random, so that split votes are rare."""
    for drawn in (0, 4, 9):
        cluster = Cluster(3, draw=lambda n, drawn=drawn: drawn)
        cluster.tick(1, 10 + drawn - 1)
        assert cluster[1].role is RaftRole.FOLLOWER
        cluster.tick(1)
        assert cluster[1].role is RaftRole.CANDIDATE
        assert cluster[1].term == 1


def test_a_message_of_the_leader_restarts_the_timeout():
    cluster = Cluster(3, draw=lambda n: 0)
    cluster.elect(1)
    cluster.tick(2, 9)
    cluster.tick(1)
    cluster.settle()
    cluster.tick(2, 9)
    assert cluster[2].role is RaftRole.FOLLOWER


def test_a_granted_vote_restarts_the_timeout():
    cluster = Cluster(3, draw=lambda n: 0)
    cluster.tick(3, 9)
    cluster[3].step(vote(1, 3, 1))
    cluster.tick(3, 9)
    assert cluster[3].role is RaftRole.FOLLOWER
    cluster[3].forget_leader()
    cluster[3].step(vote(1, 3, 1))
    cluster.tick(3, 9)
    assert cluster[3].role is RaftRole.FOLLOWER


def test_a_refused_vote_does_not_restart_the_timeout():
    cluster = Cluster(3, draw=lambda n: 0)
    cluster.peers[3].disk.store(HardState(1), [Entry(1, 1)], None)
    cluster.crash(3)
    cluster.tick(3, 9)
    cluster[3].step(vote(1, 3, 1))
    cluster.tick(3)
    assert cluster[3].role is RaftRole.CANDIDATE


def test_a_member_votes_once_per_term():
    cluster = Cluster(3)
    cluster[3].step(vote(1, 3, 1))
    assert answers(cluster, 3) == [(K.VOTE_REPLY, 1, 1, False)]
    cluster[3].step(vote(2, 3, 1))
    assert answers(cluster, 3) == [(K.VOTE_REPLY, 2, 1, True)]
    cluster[3].step(vote(1, 3, 1))
    assert answers(cluster, 3) == [(K.VOTE_REPLY, 1, 1, False)]
    cluster[3].step(vote(2, 3, 2))
    assert answers(cluster, 3) == [(K.VOTE_REPLY, 2, 2, False)]


def test_a_follower_of_a_leader_refuses_votes_even_if_it_has_not_voted():
    """A vote would be safe, but useless: the leader of the term already has a quorum."""
    cluster = Cluster(3)
    cluster[3].step(Message(K.HEARTBEAT, 3, 1, 1))
    answers(cluster, 3)
    cluster[3].step(vote(2, 3, 1))
    assert answers(cluster, 3) == [(K.VOTE_REPLY, 2, 1, True)]
    cluster[3].forget_leader()
    cluster[3].step(vote(2, 3, 1))
    assert answers(cluster, 3) == [(K.VOTE_REPLY, 2, 1, False)]


def test_a_vote_survives_a_crash():
    cluster = Cluster(3)
    cluster[3].step(vote(1, 3, 1))
    cluster.flush(3)
    cluster.crash(3)
    cluster[3].step(vote(2, 3, 1))
    assert answers(cluster, 3)[-1] == (K.VOTE_REPLY, 2, 1, True)


def test_a_vote_survives_becoming_a_follower_in_the_same_term():
    """A candidate that finds a leader of its term has voted for itself only."""
    cluster = Cluster(3)
    cluster[3].campaign()
    cluster[3].step(Message(K.HEARTBEAT, 3, 1, cluster[3].term))
    assert cluster[3].role is RaftRole.FOLLOWER
    cluster[3].forget_leader()
    cluster[3].step(vote(2, 3, cluster[3].term))
    assert answers(cluster, 3)[-1] == (K.VOTE_REPLY, 2, 1, True)


def test_a_vote_is_sent_only_when_it_is_durable():
    cluster = Cluster(3)
    peer = cluster.peers[3]
    peer.core.step(vote(1, 3, 1))
    assert peer.take_ready() == []
    assert peer.disk.initial_state()[0] == HardState()
    assert [m.kind for m in peer.sync()] == [K.VOTE_REPLY]
    assert peer.disk.initial_state()[0] == HardState(1, 1, 0)


def test_a_candidate_counts_each_voter_once():
    cluster = Cluster(5)
    cluster[1].campaign()
    cluster.flush(1)
    for _ in range(3):
        cluster[1].step(Message(K.VOTE_REPLY, 1, 2, 1))
    assert cluster[1].role is RaftRole.CANDIDATE
    cluster[1].step(Message(K.VOTE_REPLY, 1, 3, 1))
    assert cluster[1].role is RaftRole.LEADER


def test_the_first_answer_of_a_voter_counts():
    cluster = Cluster(3)
    cluster[1].campaign()
    cluster.flush(1)
    cluster[1].step(Message(K.VOTE_REPLY, 1, 2, 1, reject=True))
    cluster[1].step(Message(K.VOTE_REPLY, 1, 2, 1))
    assert cluster[1].role is RaftRole.CANDIDATE


def test_votes_of_an_earlier_term_do_not_count():
    cluster = Cluster(3)
    cluster[1].campaign()
    cluster[1].campaign()
    cluster.flush(1)
    cluster[1].step(Message(K.VOTE_REPLY, 1, 2, 1))
    assert cluster[1].role is RaftRole.CANDIDATE


def test_a_candidate_refused_by_a_quorum_becomes_a_follower():
    cluster = Cluster(3)
    cluster[1].campaign()
    cluster.flush(1)
    for voter in (2, 3):
        cluster[1].step(Message(K.VOTE_REPLY, 1, voter, 1, reject=True))
    assert (cluster[1].role, cluster[1].term) == (RaftRole.FOLLOWER, 1)


def test_a_candidate_does_not_lead_before_its_own_vote_is_durable():
    """The candidate could crash, forget the term, and be elected in the same term again."""
    cluster = Cluster(3)
    peer = cluster.peers[1]
    peer.core.campaign()
    peer.take_ready()
    for voter in (2, 3):
        peer.core.step(Message(K.VOTE_REPLY, 1, voter, 1))
    assert peer.core.role is RaftRole.CANDIDATE
    peer.sync()
    assert peer.core.role is RaftRole.LEADER


@pytest.mark.parametrize(
    ("last", "granted"),
    [((1, 9), False), ((2, 2), False), ((2, 3), True), ((2, 4), True), ((3, 1), True)],
)
@pytest.mark.parametrize("kind", [K.VOTE, K.PRE_VOTE])
def test_a_vote_goes_only_to_a_candidate_whose_log_is_up_to_date(last, granted, kind):
    """Raft paper, 5.4.1. The voter's log ends with term 2 at index 3."""
    cluster = Cluster(3)
    log = [Entry(1, 1), Entry(2, 2), Entry(2, 3)]
    cluster.peers[3].disk.store(HardState(2), log, None)
    cluster.crash(3)
    cluster[3].step(vote(1, 3, 5, last, kind))
    reply = answers(cluster, 3)[-1]
    assert reply[3] is not granted


def test_pre_votes_of_an_earlier_campaign_do_not_count_again():
    """The member that granted the pre-vote may have a leader by now."""
    cluster = Cluster(5, pre_vote=True)
    for consenting in (2, 3):
        cluster[1].campaign()
        cluster.flush(1)
        cluster.deliver(to(consenting))
        cluster.drop()
        cluster.flush(consenting)
        cluster.deliver(to(1))
        assert cluster[1].role is RaftRole.PRE_CANDIDATE


def test_a_pre_vote_for_the_current_term_is_refused_by_a_member_that_has_voted():
    cluster = Cluster(3, pre_vote=True)
    cluster[3].step(vote(2, 3, 2))
    answers(cluster, 3)
    for candidate, refused in ((1, True), (2, False)):
        cluster[3].step(vote(candidate, 3, 2, kind=K.PRE_VOTE))
        assert answers(cluster, 3) == [(K.PRE_VOTE_REPLY, candidate, 2, refused)]
    cluster[3].step(vote(1, 3, 3, kind=K.PRE_VOTE))
    assert answers(cluster, 3) == [(K.PRE_VOTE_REPLY, 1, 3, False)]


def test_a_pre_candidate_of_an_earlier_term_learns_the_current_term():
    """The pre-candidate may have the longer log; without an answer no member could be elected."""
    cluster = Cluster(3, pre_vote=True)
    with_log(cluster, 2, 1, 5)
    cluster[2].step(vote(1, 2, 3, last=(3, 9), kind=K.PRE_VOTE))
    assert answers(cluster, 2) == [(K.PRE_VOTE_REPLY, 1, 5, True)]
    assert cluster[2].role is RaftRole.FOLLOWER


def test_a_pre_candidate_adopts_the_higher_term_of_a_refusal():
    cluster = Cluster(3, pre_vote=True)
    cluster[1].campaign()
    cluster[1].step(Message(K.PRE_VOTE_REPLY, 1, 2, 5, reject=True))
    assert (cluster[1].role, cluster[1].term) == (RaftRole.FOLLOWER, 5)


def test_each_term_has_a_new_random_timeout():
    """Raft paper, 5.2: with equal timeouts, the same members would split each vote."""
    drawn = iter([0, 7, 2, 5])
    cluster = Cluster(1, draw=lambda _: next(drawn))
    member = cluster.peers[1].core._member
    timeouts = [member.election_timeout_ticks]
    for term in (1, 2, 3):
        cluster[1].step(Message(K.HEARTBEAT, 1, 2, term))
        timeouts.append(member.election_timeout_ticks)
    assert timeouts == [10, 17, 12, 15]


def test_a_pre_vote_changes_no_state():
    """Raft thesis, 9.6: a pre-vote changes neither term nor vote nor timeout of the voter."""
    cluster = Cluster(3, pre_vote=True, draw=lambda n: 0)
    cluster.tick(3, 9)
    before = cluster[3].status()
    cluster[3].step(vote(1, 3, 5, kind=K.PRE_VOTE))
    assert answers(cluster, 3) == [(K.PRE_VOTE_REPLY, 1, 5, False)]
    assert cluster[3].status() == before
    cluster[3].step(vote(2, 3, 5, kind=K.PRE_VOTE))
    assert answers(cluster, 3) == [(K.PRE_VOTE_REPLY, 2, 5, False)], (
        "a granted pre-vote does not bind the voter"
    )
    cluster.tick(3)
    assert cluster[3].role is RaftRole.PRE_CANDIDATE


def test_a_pre_candidate_keeps_its_term_until_a_quorum_grants_the_pre_vote():
    cluster = Cluster(3, pre_vote=True)
    cluster[1].campaign()
    assert (cluster[1].role, cluster[1].term) == (RaftRole.PRE_CANDIDATE, 0)
    cluster.flush(1)
    cluster[1].step(Message(K.PRE_VOTE_REPLY, 1, 2, 1))
    assert (cluster[1].role, cluster[1].term) == (RaftRole.CANDIDATE, 1)


@pytest.mark.parametrize("kind", [K.VOTE, K.PRE_VOTE])
def test_a_follower_of_a_live_leader_ignores_candidates(kind):
    """Raft thesis, 4.2.3."""
    cluster = Cluster(3, check_quorum=True, draw=lambda n: n - 1)
    cluster.elect(1)
    cluster[3].step(vote(2, 3, 9, (9, 9), kind))
    assert answers(cluster, 3) == []
    assert cluster[3].term == 1
    cluster.tick(3, 10)
    cluster[3].step(vote(2, 3, 9, (9, 9), kind))
    assert answers(cluster, 3) == [
        (K.VOTE_REPLY if kind is K.VOTE else K.PRE_VOTE_REPLY, 2, 9, False)
    ]


def test_a_learner_answers_vote_requests_but_does_not_campaign():
    """etcd-io/etcd#10998: the learner may be a voter already and not know of its promotion."""
    cluster = Cluster(3, learners=[3])
    cluster[3].step(vote(1, 3, 1))
    assert answers(cluster, 3) == [(K.VOTE_REPLY, 1, 1, False)]
    cluster.tick(3, 100)
    cluster[3].campaign()
    cluster[3].step(Message(K.TIMEOUT_NOW, 3, 1, 1))
    assert cluster[3].role is RaftRole.FOLLOWER


def test_a_transfer_to_a_learner_is_dropped_even_if_it_is_promoted_later():
    peer = Cluster(3, learners=[3]).peers[3]
    peer.core.step(Message(K.TIMEOUT_NOW, 3, 1, 1))
    promoting = encode(ConfChange(parse_changes(["v3"])))
    entry = Entry(1, 1, promoting, EntryKind.CONF_CHANGE_V2)
    peer.core.step(Message(K.APPEND, 3, 1, 1, 0, 0, (entry,), 1))
    peer.take_ready()
    while peer.append_work:
        peer.sync()
    peer.take_ready()
    peer.apply()
    assert peer.core.status().configuration.voters == (1, 2, 3)
    assert peer.core.role is RaftRole.FOLLOWER


def test_forgetting_the_leader_does_not_restart_the_timeout():
    cluster = Cluster(3, draw=lambda n: 0)
    cluster[3].step(Message(K.HEARTBEAT, 3, 1, 1))
    cluster.tick(3, 9)
    cluster[3].forget_leader()
    cluster.tick(3)
    assert cluster[3].role is RaftRole.CANDIDATE


def test_the_vote_of_a_learner_does_not_count():
    cluster = Cluster(4, learners=[4])
    cluster[1].campaign()
    cluster.flush(1)
    cluster[1].step(Message(K.VOTE_REPLY, 1, 4, 1))
    assert cluster[1].role is RaftRole.CANDIDATE


def test_a_member_with_a_committed_unapplied_change_does_not_campaign():
    """etcd-io/etcd#7625, raft#469: such a member would count votes by an outdated configuration."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose_conf_change(ConfChange(parse_changes(["r3"])))
    cluster.settle(among=[1, 3])
    peer = storing_the_second_entry(cluster)
    peer.core.campaign()
    assert peer.core.role is RaftRole.FOLLOWER
    peer.take_ready()
    while peer.apply_work:
        peer.apply()
    peer.core.campaign()
    assert peer.core.role is RaftRole.CANDIDATE


def test_an_unapplied_change_behind_many_other_entries_is_found():
    cluster = Cluster(3, committed_bytes_max=10)
    cluster.elect(1)
    for _ in range(3):
        cluster[1].propose(b"ten bytes.")
    cluster[1].propose_conf_change(ConfChange(parse_changes(["r3"])))
    cluster.settle(among=[1, 3])
    log = cluster.peers[1].disk.entries(2, 6, 1 << 20)
    cluster[2].step(Message(K.APPEND, 2, 1, 1, 1, 1, tuple(log), 5))
    assert cluster[2].commit_index == 5
    cluster[2].campaign()
    assert cluster[2].role is RaftRole.FOLLOWER


def test_an_election_does_not_read_the_unapplied_entries(monkeypatch):
    """A member that starts may have a hundred thousand of them, and campaigns repeatedly."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"data")
    cluster.settle(among=[1, 3])
    peer = storing_the_second_entry(cluster)
    reads = []
    monkeypatch.setattr(peer.disk, "entries", lambda *range_: reads.append(range_))
    peer.core.campaign()
    assert peer.core.role is RaftRole.CANDIDATE
    assert not reads


def test_a_member_that_is_storing_a_snapshot_does_not_campaign():
    cluster = storing_a_snapshot()
    cluster[3].campaign()
    assert cluster[3].role is RaftRole.FOLLOWER
    cluster.flush(3)
    cluster[3].campaign()
    assert cluster[3].role is RaftRole.CANDIDATE


def test_a_timeout_that_expires_while_a_snapshot_is_stored_counts():
    cluster = storing_a_snapshot()
    for _ in range(cluster[3]._member.election_timeout_ticks):
        cluster[3].tick()
    assert cluster[3].role is RaftRole.FOLLOWER
    cluster.flush(3)
    cluster[3].tick()
    assert cluster[3].role is RaftRole.CANDIDATE


def test_a_second_leader_in_a_term_stops_the_member():
    cluster = Cluster(3)
    cluster.elect(1)
    with pytest.raises(AssertionError, match="two leaders"):
        cluster[1].step(Message(K.HEARTBEAT, 1, 2, 1))
    with pytest.raises(AssertionError, match="two leaders"):
        cluster[3].step(Message(K.HEARTBEAT, 3, 2, 1))


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_candidate_without_answers_waits_for_a_timeout_before_it_repeats(pre_vote):
    cluster = Cluster(3, pre_vote=pre_vote, draw=lambda _: 0)
    asked = []
    for _ in range(30):
        cluster.tick(1)
        cluster.flush(1)
        asked.append(len(cluster.drop()))
    assert asked == 3 * [*9 * [0], 2]


def test_a_leader_does_not_probe_its_own_log():
    cluster = Cluster(3)
    cluster[1].campaign()
    cluster.flush(1)
    cluster.deliver()
    cluster.flush(2, 3)
    cluster.deliver(to(1))
    assert cluster[1].role is RaftRole.LEADER
    progress = cluster[1].status().progress
    assert [progress[member].state.name for member in (1, 2, 3)] == ["REPLICATE", "PROBE", "PROBE"]


def test_a_forgotten_leader_may_be_replaced_at_once():
    cluster = Cluster(3, check_quorum=True, pre_vote=True)
    cluster.elect(1)
    cluster[3].forget_leader()
    cluster.elect(2, among=[2, 3])
    assert cluster[3].leader == 2


def test_roles_change_only_as_in_the_table():
    for old in RaftRole:
        for new in RaftRole:
            if (old, new) not in ROLE_CHANGES:
                member = Cluster(1).peers[1].core._member
                member.role = old
                with pytest.raises(AssertionError):
                    take_role(member, new)


def test_random_runs_use_every_row_of_the_table():
    """Every transition of the state diagram occurs."""
    seen = set()
    for pre_vote in (False, True):
        cluster = Cluster(3, pre_vote=pre_vote, check_quorum=True, draw=lambda n: 0)
        for member in (1, 2, 3):
            cluster.tick(member, 10)
            cluster.tick(member, 10)
        cluster.settle()
        cluster[2].transfer_leader(2)
        cluster.settle()
        cluster.elect(1)
        cluster.tick(1, 20)
        cluster[3].campaign()
        cluster[3].step(Message(K.HEARTBEAT, 3, 1, cluster[3].term))
        cluster[1].transfer_leader(3)
        cluster[1].step(Message(K.TIMEOUT_NOW, 1, 3, cluster[1].term))
        cluster[1].campaign()
        for peer in cluster.peers.values():
            roles = [fact.role for fact in peer.facts if isinstance(fact, RoleTaken)]
            seen |= set(zip([RaftRole.FOLLOWER, *roles], roles, strict=False))
    assert seen == set(ROLE_CHANGES)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(K.HUP, 1, 2), MessageDropReason.NOT_FROM_PEER),
        (Message(K.STORAGE_APPLY_REPLY, 1, 2), MessageDropReason.NOT_FROM_PEER),
        (Message(K.STORAGE_APPEND_REPLY, 1, 0), MessageDropReason.NOT_FROM_PEER),
        (Message(K.APPEND, 1, 0, 1), MessageDropReason.NOT_FROM_PEER),
        (Message(K.APPEND, 1, -1, 1), MessageDropReason.NOT_FROM_PEER),
        (Message(K.APPEND, 1, 2, 0), MessageDropReason.WITHOUT_TERM),
        (Message(K.APPEND_REPLY, 1, 9, 1), MessageDropReason.UNKNOWN_PEER),
        (
            Message(K.PROPOSE, 1, 2, entries=(Entry(0, 0, b"x"),)),
            MessageDropReason.PROPOSAL_DROPPED,
        ),
        (Message(K.READ_INDEX, 1, 2), MessageDropReason.READ_DROPPED),
    ],
)
def test_an_invalid_message_is_dropped_with_a_reason(message, reason):
    cluster = Cluster(3)
    before = cluster[1].status()
    cluster[1].step(message)
    assert cluster.peers[1].facts[-1] == MessageDropped(message, reason)
    assert cluster[1].status() == before
