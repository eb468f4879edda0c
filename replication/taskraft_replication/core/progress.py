"""Track what a leader knows of one follower's log."""

from __future__ import annotations

from enum import Enum
from typing import Final

from taskraft_replication.core.inflights import Inflights
from taskraft_replication.core.types import LogIndex


class ProgressState(Enum):
    """How the leader sends entries to a follower."""

    PROBE = "probe"
    """Where the logs meet is a guess: one message with entries, then wait for the answer."""
    REPLICATE = "replicate"
    """The logs meet at ``match``: send ahead, as far as the in-flight window allows."""
    SNAPSHOT = "snapshot"
    """The follower needs entries that are gone: send nothing until it has the snapshot."""


_PROBE: Final = ProgressState.PROBE
_REPLICATE: Final = ProgressState.REPLICATE
_SNAPSHOT: Final = ProgressState.SNAPSHOT


class Progress:
    """The leader's view of one member.

    Invariants: ``match < next``; ``match`` never goes back within one leadership; everything up to
    ``match`` is stored there as it is stored here.
    """

    __slots__ = (
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
        """Last entry known to be the same here and there, and synced there."""
        self.next = next_index
        """First entry to send."""
        self.state = _PROBE
        self.pending_snapshot = LogIndex(0)
        """Index of the snapshot on its way, 0 if none is."""
        self.recent_active = recent_active
        """Whether anything was heard since the last check of the quorum."""
        self.was_active = False
        """Whether anything was heard between the last two checks of the quorum."""
        self.paused_by_flow = False
        """No append until the follower answers one, or a heartbeat."""
        self.inflights = inflights
        self.sent_commit = LogIndex(0)
        """The commit index that the last message carried."""

    @property
    def paused(self) -> bool:
        """Tell whether nothing may be appended now."""
        return self.paused_by_flow or self.state is _SNAPSHOT

    def become_probe(self) -> None:
        """Start over from what is certain: ``match``, or the snapshot that was sent."""
        next_index = LogIndex(self.match + 1)
        if self.state is _SNAPSHOT:
            next_index = max(next_index, LogIndex(self.pending_snapshot + 1))
        self._enter(_PROBE)
        self._rewind(next_index)

    def become_replicate(self) -> None:
        """Send ahead from ``match``."""
        self._enter(_REPLICATE)
        self._rewind(LogIndex(self.match + 1))

    def become_snapshot(self, index: LogIndex) -> None:
        """Wait for the snapshot of ``index``."""
        assert index > self.match, "entries would do"
        self._enter(_SNAPSHOT)
        self.pending_snapshot = index
        self.next = LogIndex(index + 1)
        self.sent_commit = index

    def sent(self, count: int, payload_bytes: int, commit: LogIndex) -> None:
        """Record that one message with ``count`` entries, perhaps none, and ``commit`` left."""
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
        """Tell whether a message with ``commit`` would tell the follower anything new.

        It would not if everything sent so far was already declared committed.
        """
        return self.sent_commit < commit and self.sent_commit < self.next - 1

    def acknowledge(self, index: LogIndex) -> bool:
        """Take in that the follower has stored everything up to ``index``; tell whether it is news.

        Acknowledgements may arrive late, twice, or in another order.
        """
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, LogIndex(index + 1))
        self.paused_by_flow = False
        return True

    def reject(self, rejected: LogIndex, hint: LogIndex) -> bool:
        """Take in that the follower lacks the entry ``rejected``; tell whether it is news.

        ``hint`` is the best guess of where the logs meet; probing goes on there.
        """
        if self.state is _REPLICATE:
            if rejected <= self.match:
                return False  # acknowledged since: the rejection is an old one
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
