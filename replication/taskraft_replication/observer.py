"""Define the notifications and counters of a member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from taskraft_replication.core.types import ConfState, LogIndex, SoftState, Term


class Observer(Protocol):
    """Receives notifications of one member.

    The calls come during the driver's work: return quickly, and call no method of the node except
    ``propose``.
    """

    def role_changed(self, state: SoftState, term: Term) -> None:
        """The role of this member or the known leader has changed."""

    def applied(self, index: LogIndex) -> None:
        """The state machine has applied all entries up to ``index``."""

    def synced(self, entries: int, log_bytes: int) -> None:
        """A batch of the log is durable on this member, so the next entry can be built."""

    def disk_stalled(self, *, is_stalled: bool) -> None:
        """The disk has not answered for the bound of ``DiskPolicy``, or has answered again."""

    def membership_changed(self, conf_state: ConfState) -> None:
        """The membership has changed."""


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
    """How often the disk stalled."""
    disk_handovers: int = 0
    """How often this member gave up its leadership because of its disk."""
    sync_us: int = 0
    """Microseconds that the storage worker spent on batches."""
