"""Change the role of a member.

The table is the state diagram of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from taskraft_replication.core.member import Member
from taskraft_replication.core.trace import RoleTaken
from taskraft_replication.core.types import NO_MEMBER, RaftRole, Term

ROLE_CHANGES: Final[Mapping[tuple[RaftRole, RaftRole], str]] = {
    (RaftRole.FOLLOWER, RaftRole.PRE_CANDIDATE): "election timeout; asks whether it could win",
    (RaftRole.FOLLOWER, RaftRole.CANDIDATE): "leadership transfer, or pre-vote is off",
    (RaftRole.FOLLOWER, RaftRole.FOLLOWER): "a higher term",
    (RaftRole.PRE_CANDIDATE, RaftRole.PRE_CANDIDATE): "no answer in time",
    (RaftRole.PRE_CANDIDATE, RaftRole.CANDIDATE): "a quorum would vote for it; starts a term",
    (RaftRole.PRE_CANDIDATE, RaftRole.FOLLOWER): "a leader, a higher term, or refused by a quorum",
    (RaftRole.CANDIDATE, RaftRole.PRE_CANDIDATE): "a split vote; asks again",
    (RaftRole.CANDIDATE, RaftRole.CANDIDATE): "a split vote, and pre-vote is off",
    (RaftRole.CANDIDATE, RaftRole.LEADER): "elected by a quorum, and its own vote is durable",
    (RaftRole.CANDIDATE, RaftRole.FOLLOWER): "a leader, a higher term, or refused by a quorum",
    (
        RaftRole.LEADER,
        RaftRole.FOLLOWER,
    ): "a higher term, no active quorum, a stalled disk, or removed",
}
"""The allowed changes of role, with their causes."""


def become_follower(member: Member, term: Term) -> None:
    """Become a follower at ``term``; the leader is unknown, and a new term clears the vote."""
    member.reset(term)
    take_role(member, RaftRole.FOLLOWER)


def become_pre_candidate(member: Member) -> None:
    """Start a pre-vote, which changes neither the term nor a vote on any member."""
    member.tracker.votes.clear()
    member.leader = NO_MEMBER
    take_role(member, RaftRole.PRE_CANDIDATE)


def become_candidate(member: Member) -> None:
    """Start a new term and vote for this member."""
    member.reset(Term(member.term + 1))
    member.vote = member.config.member_id
    take_role(member, RaftRole.CANDIDATE)


def take_role(member: Member, role: RaftRole) -> None:
    """Change to ``role`` and report it to the trace."""
    assert (member.role, role) in ROLE_CHANGES, f"{member.role} does not become {role}"
    member.role = role
    member.tell(RoleTaken(role, member.term))
