"""Keep what a member knows of its group: the configuration, everybody's progress, the votes."""

from __future__ import annotations

from collections.abc import Iterator

from taskraft_replication.core import membership
from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.inflights import Inflights
from taskraft_replication.core.progress import Progress
from taskraft_replication.core.quorum import VoteResult, joint_vote
from taskraft_replication.core.types import ConfState, LogIndex, MemberId


class ProgressTracker:
    """The group as one member sees it.

    ``progress`` has one record for each member of the configuration, in the order of their ids;
    on a follower the records have no meaning.
    """

    __slots__ = ("_config", "configuration", "others", "progress", "voters", "votes")

    def __init__(self, config: RaftConfig) -> None:
        self._config = config
        self.configuration = ConfState()
        self.voters: tuple[MemberId, ...] = ()
        """Who votes in at least one half."""
        self.others: tuple[tuple[MemberId, Progress], ...] = ()
        """Everybody but this member."""
        self.progress: dict[MemberId, Progress] = {}
        self.votes: dict[MemberId, bool] = {}

    def adopt(self, configuration: ConfState, last_index: LogIndex) -> None:
        """Switch to ``configuration``; keep the progress of members who stay.

        Probing of a new member starts with the last entry. It counts as heard of, or else the next
        check of the quorum could fail before it had a chance to answer.
        """
        assert membership.is_ordered(configuration), "it must not depend on the order of a set"
        self.configuration = configuration
        self.voters = membership.voters(configuration)
        kept = self.progress
        self.progress = {
            member: kept.get(member)
            or self._fresh(LogIndex(0), LogIndex(max(last_index, 1)), recent_active=True)
            for member in membership.members(configuration)
        }
        self._settle()

    def reset(self, last_index: LogIndex) -> None:
        """Forget progress and votes: a term has begun, or a role has changed."""
        self.votes.clear()
        own = self._config.member_id
        following = LogIndex(last_index + 1)
        self.progress = {
            member: self._fresh(
                last_index if member == own else LogIndex(0), following, recent_active=False
            )
            for member in self.progress
        }
        self._settle()

    def commit_index(self) -> LogIndex:
        """Return the largest index stored by the majority, or by both majorities."""
        # quorum.joint_index without the mapping: the commit path comes here for each answer.
        configuration = self.configuration
        index = self._majority_match(configuration.voters)
        if configuration.voters_outgoing:
            return min(index, self._majority_match(configuration.voters_outgoing))
        return index

    def have_stored(self, index: LogIndex) -> bool:
        """Count who has stored the entry at ``index``: more than half of each half?"""
        configuration, progress = self.configuration, self.progress
        for half in (configuration.voters, configuration.voters_outgoing):
            if 2 * sum([progress[voter].match >= index for voter in half]) <= len(half) > 0:
                return False
        return True

    def has_active_quorum(self) -> bool:
        """Tell whether a quorum was heard of since the last check."""
        active = {voter: self.progress[voter].recent_active for voter in self.voters}
        return joint_vote(self.configuration, active) is VoteResult.WON

    def record_vote(self, voter: MemberId, *, granted: bool) -> VoteResult:
        """Count the first answer of ``voter``; return how the election stands."""
        assert voter in self.progress, "strangers have no vote"
        self.votes.setdefault(voter, granted)
        return joint_vote(self.configuration, self.votes)

    def _majority_match(self, voters: tuple[MemberId, ...]) -> LogIndex:
        assert voters, "nobody leads a group without voters"
        progress = self.progress
        ranked = sorted([progress[voter].match for voter in voters])
        return ranked[(len(ranked) - 1) // 2]

    def _fresh(self, match: LogIndex, next_index: LogIndex, *, recent_active: bool) -> Progress:
        inflights = Inflights(self._config.inflight_messages_max, self._config.inflight_bytes_max)
        return Progress(
            match=match,
            next_index=next_index,
            inflights=inflights,
            recent_active=recent_active,
        )

    def _settle(self) -> None:
        own = self._config.member_id
        self.others = tuple(item for item in self.progress.items() if item[0] != own)

    def __iter__(self) -> Iterator[MemberId]:
        """Iterate over the members in the order of their ids."""
        return iter(self.progress)
