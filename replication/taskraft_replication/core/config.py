"""Configure one member of a Raft group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from taskraft_replication.core.types import LogIndex, MemberId

UNLIMITED: Final = 1 << 62
"""A limit that is never reached; for tests, not for production."""

MESSAGE_BYTES_MAX: Final = 1 << 20
"""Payload of one append message: large enough to keep a link busy, small enough to be resent."""

INFLIGHT_MESSAGES_MAX: Final = 256
"""Appends on their way to one follower; more than a second of work if each is a disk sync."""

INFLIGHT_BYTES_MAX: Final = 16 << 20
"""Payload on its way to one follower; bounds the memory that a slow follower costs the leader."""

COMMITTED_BYTES_MAX: Final = 4 << 20
"""Payload handed to the apply worker and not yet applied; bounds the driver's pauses."""

UNCOMMITTED_BYTES_MAX: Final = 64 << 20
"""Payload proposed and not yet committed; beyond it a leader without a quorum refuses proposals."""

READS_PENDING_MAX: Final = 4096
"""Read requests that wait for a quorum's confirmation; each may stand for many readers."""


class ReadOnly(Enum):
    """How a leader makes sure that it still leads before it answers a read."""

    SAFE = "safe"
    """It asks a quorum (ReadIndex). Depends on no clock."""
    LEASE_BASED = "lease_based"
    """It trusts the lease that check-quorum gives it: wrong if clocks drift."""


@dataclass(slots=True, frozen=True)
class RaftConfig:
    """The settings of one member; equal on all members except for ``member_id`` and ``applied``.

    Times are in ticks, whose length the driver chooses. Limits by bytes count payloads only, and
    never hold back a single entry that is larger than the limit.
    """

    member_id: MemberId
    election_ticks: int = 10
    """Silence of the leader after which a follower campaigns: this many ticks to twice as many."""
    heartbeat_ticks: int = 1
    pre_vote: bool = True
    """Ask whether an election could be won before disturbing the group with a new term."""
    check_quorum: bool = True
    """Step down when no quorum was heard of for an election timeout; ignore votes in that time."""
    async_storage_writes: bool = True
    message_bytes_max: int = MESSAGE_BYTES_MAX
    inflight_messages_max: int = INFLIGHT_MESSAGES_MAX
    inflight_bytes_max: int = INFLIGHT_BYTES_MAX
    committed_bytes_max: int = COMMITTED_BYTES_MAX
    uncommitted_bytes_max: int = UNCOMMITTED_BYTES_MAX
    reads_pending_max: int = READS_PENDING_MAX
    step_down_on_removal: bool = True
    read_only: ReadOnly = ReadOnly.SAFE
    disable_conf_change_validation: bool = False
    """Let a second membership change into the log; only for tests, it costs safety."""
    forward_proposals: bool = False
    """Followers send proposals on to the leader; off, since a proposal sent on may arrive twice."""
    applied: LogIndex = LogIndex(0)
    """Last entry whose effects the state machine holds at the start; not applied again."""

    def __post_init__(self) -> None:
        """Check each setting, and those that depend on each other."""
        assert self.member_id > 0, "member ids are positive"
        assert self.heartbeat_ticks >= 1, "a heartbeat takes at least one tick"
        assert self.election_ticks > self.heartbeat_ticks, "the election timeout spans heartbeats"
        assert self.message_bytes_max >= 1
        assert self.inflight_messages_max >= 1
        assert self.inflight_bytes_max >= self.message_bytes_max, "one message must fit the window"
        assert self.committed_bytes_max >= 1
        assert self.uncommitted_bytes_max >= 1
        assert self.reads_pending_max >= 1
        assert self.applied >= 0
        leases = self.read_only is ReadOnly.LEASE_BASED
        assert self.check_quorum or not leases, "leases rest on check_quorum"
