"""Proposals are resolved by index and term, or end with an unknown outcome."""

from __future__ import annotations

from taskraft_replication.core.types import LogIndex, RaftRole
from taskraft_replication.driver.proposals import PendingProposals
from taskraft_replication.errors import NotRaftLeader, ProposalLost
from tests.replication.driver.stand_ins import Leader, Waiting, entry


def test_a_proposal_is_resolved_by_index_and_term():
    proposals, own, other = PendingProposals(), Waiting(), Waiting()
    leader = Leader()
    proposals.propose(leader, b"own", own)
    proposals.propose(leader, b"other", other)
    proposals.applied([entry(11, term=1)], ["done"])
    proposals.applied([entry(12, term=2)], ["of another leader"])
    assert own.result == "done"
    assert isinstance(other.error, ProposalLost)


def test_an_entry_of_a_later_term_at_the_same_index_fails_the_earlier_proposal():
    proposals, earlier, later = PendingProposals(), Waiting(), Waiting()
    proposals.propose(Leader(term=1), b"earlier", earlier)
    proposals.propose(Leader(term=3), b"later", later)
    assert isinstance(earlier.error, ProposalLost)
    proposals.applied([entry(11, term=3)], ["done"])
    assert later.result == "done"


def test_a_committed_proposal_is_still_resolved_after_leadership_is_lost():
    proposals, leader = PendingProposals(), Leader()
    waiting = [Waiting() for _ in range(4)]
    for each in waiting:
        proposals.propose(leader, b"", each)
    proposals.lose_after(LogIndex(12), "leadership was lost")
    assert [each.error is None for each in waiting] == [True, True, False, False]


def test_a_follower_refuses_a_proposal_at_once():
    proposals, waiting, core = PendingProposals(), Waiting(), Leader()
    core.role = RaftRole.FOLLOWER
    proposals.propose(core, b"", waiting)
    assert isinstance(waiting.error, NotRaftLeader)
    assert not proposals._waiting


def test_a_cancelled_proposal_gets_no_result():
    proposals, waiting = PendingProposals(), Waiting()
    proposals.propose(Leader(), b"", waiting)
    waiting.set_result("cancelled")
    proposals.applied([entry(11)], ["done"])
    assert waiting.result == "cancelled"


def test_entries_without_a_waiting_proposal_are_skipped():
    proposals, waiting = PendingProposals(), Waiting()
    proposals.propose(Leader(), b"", waiting)
    proposals.applied([entry(10)], ["of somebody else"])
    proposals.applied([entry(11)], ["own"])
    proposals.applied([entry(11)], ["again"])
    assert waiting.result == "own"
    assert not proposals._waiting
