"""Define the events that a core reports to an observer; the core never reads them back."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from taskraft_replication.core.types import ConfState, LogIndex, Message, RaftRole, Term, value


@value
class RoleTaken:
    """The member has ``role`` at ``term`` from now on."""

    role: RaftRole
    term: Term


@value
class Reconfigured:
    """The member uses this configuration from now on."""

    configuration: ConfState


@value
class SnapshotRestored:
    """The member's log was replaced by this snapshot."""

    index: LogIndex
    term: Term


class MessageDropReason(Enum):
    """Reason for which a message was dropped without effect."""

    UNKNOWN_PEER = "unknown_peer"
    """A reply from a sender outside the configuration."""
    NOT_FROM_PEER = "not_from_peer"
    """A kind that only the member itself may produce."""
    WITHOUT_TERM = "without_term"
    """A message without a term, of a kind that must carry one."""
    NOT_FOUND_IN_SNAPSHOT = "not_found_in_snapshot"
    """A snapshot whose configuration does not contain this member."""
    PROPOSAL_DROPPED = "proposal_dropped"
    """A forwarded proposal that this member cannot append either."""
    TRANSFER_DROPPED = "transfer_dropped"
    """A request for a leadership transfer at a member that knows no leader."""
    READ_DROPPED = "read_dropped"
    """A read request that cannot be answered here, or that exceeds the limit of pending reads."""


@value
class MessageDropped:
    """``message`` was dropped."""

    message: Message
    reason: MessageDropReason


Fact: TypeAlias = RoleTaken | Reconfigured | SnapshotRestored | MessageDropped
Tracer: TypeAlias = Callable[[Fact], None]
"""Receives each event synchronously; it must not call the core."""


def no_trace(_fact: Fact) -> None:
    """Ignore the event."""
