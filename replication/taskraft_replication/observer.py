"""Define the notifications and counters of a member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from taskraft_replication.core.types import ConfState, LogIndex, SoftState, Term


class Observer(Protocol):
    """Receives notifications of one member.

    The methods are called during the driver's work, so they must return quickly, and must call no
    method of the node except ``propose``.
    """

    def role_changed(self, state: SoftState, term: Term) -> None:
        """Handle a change of this member's role or of the known leader."""

    def applied(self, index: LogIndex) -> None:
        """Called after the state machine has applied all entries up to ``index``."""

    def synced(self, entries: int, log_bytes: int) -> None:
        """Called after a batch of the log has become durable here; the next entry can be built."""

    def disk_stalled(self, *, is_stalled: bool) -> None:
        """Handle a disk without an answer for ``DiskPolicy.stall_ticks``, or its recovery."""

    def membership_changed(self, conf_state: ConfState) -> None:
        """Handle a change of the membership."""


@dataclass(slots=True)
class RaftCounters:
    """Counters of a member since its start; the driver writes them, metrics read them."""

    entries: int = 0
    """Entries stored."""
    log_bytes: int = 0
    """Bytes written to the log."""
    batches: int = 0
    """Storage batches with at least one entry; each batch costs one fsync."""
    applied: int = 0
    """Entries applied."""
    sent: int = 0
    """Messages passed to the transport."""
    received: int = 0
    """Messages received from the transport."""
    disk_stalls: int = 0
    """Number of disk stalls."""
    disk_handovers: int = 0
    """Number of leaderships that this member gave up because of its disk."""
    sync_us: int = 0
    """Microseconds that the storage worker spent on batches."""
