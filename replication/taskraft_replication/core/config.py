"""Configure one member of a Raft group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from taskraft_replication.core.types import LogIndex, MemberId

UNLIMITED: Final = 1 << 62
"""A limit that is never reached; for tests, not for production."""

MESSAGE_BYTES_MAX: Final = 1 << 20
"""Maximum payload of one append message: large enough to keep a link busy, small enough to resend.
"""

INFLIGHT_MESSAGES_MAX: Final = 256
"""Maximum appends in flight to one follower; more than a second of work at one fsync per append."""

INFLIGHT_BYTES_MAX: Final = 16 << 20
"""Maximum payload in flight to one follower; bounds the leader's memory for a slow follower."""

COMMITTED_BYTES_MAX: Final = 4 << 20
"""Maximum payload that the apply worker has received and not applied; bounds pauses of the driver.
"""

UNCOMMITTED_BYTES_MAX: Final = 64 << 20
"""Maximum payload that is proposed but not committed. At this limit, the leader drops further
proposals."""

ENTRY_BYTES_MAX: Final = 64 << 20
"""Maximum data of one entry. The log and the peers cannot read larger entries, so the leader does
not append them: a larger entry would be acknowledged, but no member could read the entry again."""

READS_PENDING_MAX: Final = 4096
"""Maximum read requests that wait for confirmation by a quorum; one request may serve many readers.
"""


class ReadOnly(Enum):
    """Method by which a leader confirms its leadership before it answers a read."""

    SAFE = "safe"
    """Confirm with a round of heartbeats to a quorum (ReadIndex); independent of clocks."""
    LEASE_BASED = "lease_based"
    """Rely on the leader lease of ``check_quorum``; stale reads are possible if clocks drift."""


@dataclass(slots=True, frozen=True)
class RaftConfig:
    """The settings of one member; equal on all members except for ``member_id`` and ``applied``.

    Times are in ticks, whose length the driver chooses. Byte limits count payloads only. A single
    entry that is larger than a byte limit is still sent; only ``entry_bytes_max`` refuses an entry.
    """

    member_id: MemberId
    election_ticks: int = 10
    """Minimum time without a message from the leader before a follower campaigns; the maximum is
    twice as long."""
    heartbeat_ticks: int = 1
    pre_vote: bool = True
    """Ask whether an election could be won before disturbing the group with a new term."""
    check_quorum: bool = True
    """Step down after an election timeout without a quorum; ignore vote requests while a leader is
    known."""
    votes_show_activity: bool = False
    """Count the voters of a new leader as active until the first quorum check. Otherwise, if a
    round trip takes longer than an election timeout, the leader steps down before the first replies
    of the voters arrive."""
    async_storage_writes: bool = True
    message_bytes_max: int = MESSAGE_BYTES_MAX
    inflight_messages_max: int = INFLIGHT_MESSAGES_MAX
    inflight_bytes_max: int = INFLIGHT_BYTES_MAX
    committed_bytes_max: int = COMMITTED_BYTES_MAX
    uncommitted_bytes_max: int = UNCOMMITTED_BYTES_MAX
    entry_bytes_max: int = ENTRY_BYTES_MAX
    reads_pending_max: int = READS_PENDING_MAX
    step_down_on_removal: bool = True
    read_only: ReadOnly = ReadOnly.SAFE
    disable_conf_change_validation: bool = False
    """Allow a second uncommitted membership change in the log. Unsafe; for tests only."""
    forward_proposals: bool = False
    """Let followers forward proposals to the leader. Off by default, because a forwarded proposal
    can be appended twice."""
    applied: LogIndex = LogIndex(0)
    """Index of the last entry that the state machine had applied before the start."""

    def __post_init__(self) -> None:
        """Check each setting, and the combinations of settings that depend on each other."""
        assert self.member_id > 0, "member ids are positive"
        assert self.heartbeat_ticks >= 1, "a heartbeat takes at least one tick"
        assert self.election_ticks > self.heartbeat_ticks, "election timeout too short"
        assert self.message_bytes_max >= 1
        assert self.inflight_messages_max >= 1
        assert self.inflight_bytes_max >= self.message_bytes_max, "window below one message"
        assert self.committed_bytes_max >= 1
        assert self.uncommitted_bytes_max >= 1
        assert 1 <= self.entry_bytes_max <= ENTRY_BYTES_MAX, "the log reads no larger entries"
        assert self.reads_pending_max >= 1
        assert self.applied >= 0
        leases = self.read_only is ReadOnly.LEASE_BASED
        assert self.check_quorum or not leases, "LEASE_BASED reads need check_quorum"
