"""Name the facts that a core tells an observer; the core itself never looks at them again."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from taskraft_replication.core.types import ConfState, LogIndex, Message, RaftRole, Term, value


@value
class RoleTaken:
    """The member plays ``role`` at ``term`` from now on."""

    role: RaftRole
    term: Term


@value
class Reconfigured:
    """The member acts by this configuration from now on."""

    configuration: ConfState


@value
class SnapshotRestored:
    """The member's log starts over with this snapshot."""

    index: LogIndex
    term: Term


class MessageDropReason(Enum):
    """Why a message had no effect."""

    UNKNOWN_PEER = "unknown_peer"
    """An answer from somebody who is not in the configuration."""
    NOT_FROM_PEER = "not_from_peer"
    """A kind that only the member itself may produce."""
    WITHOUT_TERM = "without_term"
    """A kind that must carry its sender's term, but does not."""
    NOT_FOUND_IN_SNAPSHOT = "not_found_in_snapshot"
    """A snapshot whose configuration does not hold this member."""
    PROPOSAL_DROPPED = "proposal_dropped"
    """A proposal sent on by a follower that this member cannot take either."""
    READ_DROPPED = "read_dropped"
    """A read request that cannot be answered here, or one too many."""


@value
class MessageDropped:
    """``message`` was dropped."""

    message: Message
    reason: MessageDropReason


Fact: TypeAlias = RoleTaken | Reconfigured | SnapshotRestored | MessageDropped
Tracer: TypeAlias = Callable[[Fact], None]
"""Receives each fact at once; must not call back into the core."""


def no_trace(_fact: Fact) -> None:
    """Observe nothing."""
