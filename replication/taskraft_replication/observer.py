"""Tell others what happens in a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from taskraft_replication.core.types import ConfState, LogIndex, SoftState, Term


class Observer(Protocol):
    """Whoever wants to know.

    The calls come in the middle of the driver's work: be quick, and call nothing of the node but
    ``propose``.
    """

    def role_changed(self, state: SoftState, term: Term) -> None:
        """Learn that the role or the known leader is another."""

    def applied(self, index: LogIndex) -> None:
        """Learn that the state machine stands at ``index``."""

    def synced(self, entries: int, log_bytes: int) -> None:
        """Learn that a batch is durable here: the time to build the next entry."""

    def membership_changed(self, conf_state: ConfState) -> None:
        """Learn who belongs to the group from now on."""


@dataclass(slots=True)
class RaftCounters:
    """What a member has done since its start; read by metrics, written by the driver."""

    entries: int = 0
    """Entries stored."""
    log_bytes: int = 0
    """Bytes written to the log."""
    batches: int = 0
    """Batches of storage work that held entries; each cost one sync."""
    applied: int = 0
    """Entries applied."""
    sent: int = 0
    """Messages given to the transport."""
    received: int = 0
    """Messages taken from it."""
    sync_us: int = 0
    """Microseconds spent on batches, waiting for the storage worker included."""
