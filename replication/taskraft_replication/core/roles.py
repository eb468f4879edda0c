"""Change the role of a member. The table is the protocol's state diagram."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from taskraft_replication.core.member import Member
from taskraft_replication.core.trace import RoleTaken
from taskraft_replication.core.types import NO_MEMBER, RaftRole, Term

ROLE_CHANGES: Final[Mapping[tuple[RaftRole, RaftRole], str]] = {
    (RaftRole.FOLLOWER, RaftRole.PRE_CANDIDATE): "no sign of a leader; asks whether it could win",
    (RaftRole.FOLLOWER, RaftRole.CANDIDATE): "asked to take over, or pre-vote is off",
    (RaftRole.FOLLOWER, RaftRole.FOLLOWER): "a higher term",
    (RaftRole.PRE_CANDIDATE, RaftRole.PRE_CANDIDATE): "no answer in time",
    (RaftRole.PRE_CANDIDATE, RaftRole.CANDIDATE): "a quorum would vote for it; begins a term",
    (RaftRole.PRE_CANDIDATE, RaftRole.FOLLOWER): "a leader, a higher term, or refused by a quorum",
    (RaftRole.CANDIDATE, RaftRole.PRE_CANDIDATE): "a split vote; asks again",
    (RaftRole.CANDIDATE, RaftRole.CANDIDATE): "a split vote, and pre-vote is off",
    (RaftRole.CANDIDATE, RaftRole.LEADER): "elected by a quorum, its own vote synced",
    (RaftRole.CANDIDATE, RaftRole.FOLLOWER): "a leader, a higher term, or refused by a quorum",
    (RaftRole.LEADER, RaftRole.FOLLOWER): "a higher term, no quorum heard of, or removed",
}
"""Which role may follow which, and why it does."""


def become_follower(member: Member, term: Term) -> None:
    """Follow nobody yet, at ``term``. The vote stays unless the term is new."""
    member.reset(term)
    take_role(member, RaftRole.FOLLOWER)


def become_pre_candidate(member: Member) -> None:
    """Ask for votes that bind nobody: neither term nor vote change, here or there."""
    member.tracker.votes.clear()
    member.leader = NO_MEMBER
    take_role(member, RaftRole.PRE_CANDIDATE)


def become_candidate(member: Member) -> None:
    """Begin a term and vote for oneself."""
    member.reset(Term(member.term + 1))
    member.vote = member.config.member_id
    take_role(member, RaftRole.CANDIDATE)


def take_role(member: Member, role: RaftRole) -> None:
    """Change to ``role`` and say so."""
    assert (member.role, role) in ROLE_CHANGES, f"{member.role} does not become {role}"
    member.role = role
    member.tell(RoleTaken(role, member.term))
