"""Evaluate acknowledgements and votes against a majority, or both majorities if joint.

The functions are pure. Their arguments are a configuration and the members' acknowledgements or
votes, keyed by member, so that each member counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

from taskraft_replication.core.types import ConfState, LogIndex, MemberId

EVERYTHING: Final = LogIndex((1 << 64) - 1)
"""Index that an empty set of voters counts as having acknowledged: the neutral element of
``min``."""


class VoteResult(Enum):
    """The state of an election."""

    PENDING = "pending"
    LOST = "lost"
    WON = "won"


def majority_index(voters: Collection[MemberId], acked: Mapping[MemberId, LogIndex]) -> LogIndex:
    """Return the largest index that a majority of ``voters`` has acknowledged.

    A voter without an acknowledgement counts as 0. The leader must also check that the entry at
    this index is of its own term; otherwise the entry is not committed (Raft paper, figure 8).
    """
    size = len(voters)
    if not size:
        return EVERYTHING
    get = acked.get
    ranked = sorted([get(voter, 0) for voter in voters])
    return LogIndex(ranked[(size - 1) // 2])


def joint_index(configuration: ConfState, acked: Mapping[MemberId, LogIndex]) -> LogIndex:
    """Return the largest index that the majority, or both majorities, have acknowledged."""
    index = majority_index(configuration.voters, acked)
    if configuration.voters_outgoing:
        return min(index, majority_index(configuration.voters_outgoing, acked))
    return index


def majority_vote(voters: Collection[MemberId], votes: Mapping[MemberId, bool]) -> VoteResult:
    """Return the state of the election among ``voters``; without voters it is won."""
    if not voters:
        return VoteResult.WON
    quorum = len(voters) // 2 + 1
    granted = sum(votes.get(voter) is True for voter in voters)
    refused = sum(votes.get(voter) is False for voter in voters)
    if granted >= quorum:
        return VoteResult.WON
    if len(voters) - refused < quorum:
        return VoteResult.LOST
    return VoteResult.PENDING


def joint_vote(configuration: ConfState, votes: Mapping[MemberId, bool]) -> VoteResult:
    """Return the state of the election: won if both halves are won, lost if one half is lost."""
    incoming = majority_vote(configuration.voters, votes)
    outgoing = majority_vote(configuration.voters_outgoing, votes)
    if incoming is outgoing:
        return incoming
    if VoteResult.LOST in (incoming, outgoing):
        return VoteResult.LOST
    return VoteResult.PENDING
