"""Track the configuration, the progress of all followers, and the votes of an election."""

from __future__ import annotations

from collections.abc import Iterator

from taskraft_replication.core import membership
from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.inflights import Inflights
from taskraft_replication.core.progress import Progress
from taskraft_replication.core.quorum import VoteResult, joint_vote
from taskraft_replication.core.types import ConfState, LogIndex, MemberId


class ProgressTracker:
    """Configuration, replication progress and votes, as one member knows them.

    ``progress`` has one record per member of the configuration, ordered by member id. On a follower
    the records have no meaning.
    """

    __slots__ = ("_config", "configuration", "others", "progress", "voters", "votes")

    def __init__(self, config: RaftConfig) -> None:
        self._config = config
        self.configuration = ConfState()
        self.voters: tuple[MemberId, ...] = ()
        """Voters of either half of the configuration."""
        self.others: tuple[tuple[MemberId, Progress], ...] = ()
        """Progress of all members except this one."""
        self.progress: dict[MemberId, Progress] = {}
        self.votes: dict[MemberId, bool] = {}

    def adopt(self, configuration: ConfState, last_index: LogIndex) -> None:
        """Switch to ``configuration``; keep the progress of the members that stay.

        Probing of a new member starts at the last entry. A new member counts as recently active.
        Otherwise the next quorum check could fail before the member had time to answer.
        """
        assert membership.is_ordered(configuration), "members must be in a fixed order"
        self.configuration = configuration
        self.voters = membership.voters(configuration)
        kept = self.progress
        self.progress = {
            member: kept.get(member)
            or self._fresh(LogIndex(0), LogIndex(max(last_index, 1)), recent_active=True)
            for member in membership.members(configuration)
        }
        self._update_others()

    def reset(self, last_index: LogIndex) -> None:
        """Clear progress and votes at the start of a term or after a change of role."""
        self.votes.clear()
        own = self._config.member_id
        following = LogIndex(last_index + 1)
        self.progress = {
            member: self._fresh(
                last_index if member == own else LogIndex(0), following, recent_active=False
            )
            for member in self.progress
        }
        self._update_others()

    def commit_index(self) -> LogIndex:
        """Return the largest index that a majority has stored, or both majorities if joint."""
        # Inlined from ``quorum.joint_index``: the commit path runs this for each acknowledgement.
        configuration = self.configuration
        index = self._majority_match(configuration.voters)
        if configuration.voters_outgoing:
            return min(index, self._majority_match(configuration.voters_outgoing))
        return index

    def have_stored(self, index: LogIndex) -> bool:
        """Return whether a majority of each half of the configuration has stored ``index``."""
        configuration, progress = self.configuration, self.progress
        for half in (configuration.voters, configuration.voters_outgoing):
            if 2 * sum([progress[voter].match >= index for voter in half]) <= len(half) > 0:
                return False
        return True

    def has_active_quorum(self) -> bool:
        """Return whether a quorum was active since the last check."""
        active = {voter: self.progress[voter].recent_active for voter in self.voters}
        return joint_vote(self.configuration, active) is VoteResult.WON

    def record_vote(self, voter: MemberId, *, granted: bool) -> VoteResult:
        """Count the first vote of ``voter``; return the state of the election."""
        assert voter in self.progress, "only members have a vote"
        self.votes.setdefault(voter, granted)
        return joint_vote(self.configuration, self.votes)

    def _majority_match(self, voters: tuple[MemberId, ...]) -> LogIndex:
        assert voters, "a group without voters has no leader"
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

    def _update_others(self) -> None:
        own = self._config.member_id
        self.others = tuple(item for item in self.progress.items() if item[0] != own)

    def __iter__(self) -> Iterator[MemberId]:
        """Iterate over the members in the order of their ids."""
        return iter(self.progress)
