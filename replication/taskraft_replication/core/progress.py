"""Track the replication progress of one follower."""

from __future__ import annotations

from enum import Enum
from typing import Final

from taskraft_replication.core.inflights import Inflights
from taskraft_replication.core.types import LogIndex


class ProgressState(Enum):
    """Mode in which the leader sends entries to a follower."""

    PROBE = "probe"
    """The match index is unknown: send one append with entries, then wait for the answer."""
    REPLICATE = "replicate"
    """The logs match at ``match``: pipeline appends up to the in-flight window."""
    SNAPSHOT = "snapshot"
    """The follower needs compacted entries: send no appends until it has the snapshot."""


_PROBE: Final = ProgressState.PROBE
_REPLICATE: Final = ProgressState.REPLICATE
_SNAPSHOT: Final = ProgressState.SNAPSHOT


class Progress:
    """The leader's view of one member.

    Invariants: ``match < next``; ``match`` never decreases during one leadership; the member has
    the same entries as the leader up to ``match``.
    """

    __slots__ = (
        "answers",
        "inflights",
        "match",
        "next",
        "paused_by_flow",
        "pending_snapshot",
        "recent_active",
        "sent_commit",
        "state",
        "was_active",
    )

    def __init__(
        self,
        *,
        match: LogIndex,
        next_index: LogIndex,
        inflights: Inflights,
        recent_active: bool,
    ) -> None:
        assert match < next_index
        self.match = match
        """Last entry that is known to be equal on both members and durable on the follower."""
        self.next = next_index
        """Next entry to send."""
        self.state = _PROBE
        self.pending_snapshot = LogIndex(0)
        """Index of the snapshot that is being sent, or 0."""
        self.answers = 0
        """Number of messages that arrived in this leadership."""
        self.recent_active = recent_active
        """Whether a message arrived since the last quorum check."""
        self.was_active = False
        """Whether a message arrived between the last two quorum checks."""
        self.paused_by_flow = False
        """Send no append until the follower answers an append or a heartbeat."""
        self.inflights = inflights
        self.sent_commit = LogIndex(0)
        """Commit index carried by the last message."""

    @property
    def paused(self) -> bool:
        """Return whether no append may be sent now."""
        return self.paused_by_flow or self.state is _SNAPSHOT

    def become_probe(self) -> None:
        """Restart probing after the last certain entry: ``match`` or the snapshot sent."""
        next_index = LogIndex(self.match + 1)
        if self.state is _SNAPSHOT:
            next_index = max(next_index, LogIndex(self.pending_snapshot + 1))
        self._enter(_PROBE)
        self._rewind(next_index)

    def become_replicate(self) -> None:
        """Pipeline appends after ``match``."""
        self._enter(_REPLICATE)
        self._rewind(LogIndex(self.match + 1))

    def become_snapshot(self, index: LogIndex) -> None:
        """Wait for the snapshot of ``index``."""
        assert index > self.match, "the follower needs no snapshot"
        self._enter(_SNAPSHOT)
        self.pending_snapshot = index
        self.next = LogIndex(index + 1)
        self.sent_commit = index

    def sent(self, count: int, payload_bytes: int, commit: LogIndex) -> None:
        """Record that one append with ``count`` entries (0 allowed) and ``commit`` was sent."""
        self.sent_commit = commit
        if self.state is _REPLICATE:
            if count:
                last = LogIndex(self.next + count - 1)
                self.next = LogIndex(last + 1)
                self.inflights.add(last, payload_bytes)
            self.paused_by_flow = self.inflights.full
        else:
            assert self.state is _PROBE
            if count:
                self.paused_by_flow = True

    def can_bump_commit(self, commit: LogIndex) -> bool:
        """Return whether a message with ``commit`` would advance the follower's commit index.

        The result is False if the follower already knows that all sent entries are committed.
        """
        return self.sent_commit < commit and self.sent_commit < self.next - 1

    def acknowledge(self, index: LogIndex) -> bool:
        """Record that the follower stored entries up to ``index``; return whether that is progress.

        Acknowledgements may arrive late, twice or out of order.
        """
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, LogIndex(index + 1))
        self.paused_by_flow = False
        return True

    def reject(self, rejected: LogIndex, hint: LogIndex) -> bool:
        """Record that the follower lacks the entry ``rejected``; return False if outdated.

        ``hint`` is the follower's best guess of the last index at which the logs match; probing
        continues there.
        """
        if self.state is _REPLICATE:
            if rejected <= self.match:
                return False  # the entry was acknowledged since, so the rejection is outdated
            self._rewind(LogIndex(self.match + 1))
            return True
        if rejected != self.next - 1:
            return False  # not the answer to the last probe
        self._rewind(max(min(rejected, LogIndex(hint + 1)), LogIndex(self.match + 1)))
        self.paused_by_flow = False
        return True

    def _enter(self, state: ProgressState) -> None:
        self.paused_by_flow = False
        self.pending_snapshot = LogIndex(0)
        self.state = state
        self.inflights.clear()

    def _rewind(self, next_index: LogIndex) -> None:
        assert next_index > self.match
        self.next = next_index
        self.sent_commit = min(self.sent_commit, LogIndex(next_index - 1))
