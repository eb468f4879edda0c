"""Adapt the Raft group and the applied state to the interface of the clocks."""

from __future__ import annotations

from collections.abc import Callable, Collection

from taskraft_replication.core.quorum import VoteResult, joint_vote
from taskraft_replication.core.types import ConfState, MemberId, Term
from taskraft_service.queue.queue import Queue


class RaftGroup:
    """Satisfies ``clock.group_clock.Group``.

    Args:
        membership: returns the membership that is applied here.
        lead_term: returns the term in which this node leads; 0 if it does not lead.
        queue: returns the queue; installing a snapshot replaces it.
    """

    def __init__(
        self,
        membership: Callable[[], ConfState],
        lead_term: Callable[[], Term],
        queue: Callable[[], Queue],
    ) -> None:
        self._membership = membership
        self._lead_term = lead_term
        self._queue = queue

    @property
    def lead_term(self) -> int:
        """Return the term in which this member leads; 0 if it does not lead."""
        return self._lead_term()

    @property
    def voters(self) -> Collection[MemberId]:
        """Return the voters; in a joint configuration, the voters of both halves."""
        membership = self._membership()
        return {*membership.voters, *membership.voters_outgoing}

    @property
    def wall_offset_ms(self) -> int:
        """Return the wall offset in the applied state."""
        return self._queue().wall_offset_ms

    @property
    def applied_ms(self) -> int:
        """Return the greatest timestamp in the applied state."""
        return self._queue().now_ms

    @property
    def clock_epoch(self) -> int:
        """Return the epoch of the cluster time in the applied state; 0: unknown."""
        return self._queue().clock_epoch

    @property
    def clock_term(self) -> int:
        """Return the term of the last leader whose Startup is applied; 0: unknown."""
        return self._queue().clock_term

    def has_quorum(self, members: Collection[MemberId]) -> bool:
        """Return whether members include a majority of the voters."""
        present = dict.fromkeys(members, True)
        return joint_vote(self._membership(), present) is VoteResult.WON
