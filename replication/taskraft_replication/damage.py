"""Describe damage of stored data, and define the interface to which damage is reported."""

from __future__ import annotations

import errno
from enum import StrEnum
from typing import Final, Protocol

from taskraft_replication.core.types import value

_LOST: Final = frozenset({errno.EIO, errno.ENOENT, errno.EBADMSG, errno.EUCLEAN})


def is_damage(error: OSError) -> bool:
    """Return whether an error of a read shows that stored bytes are lost.

    Other errors, such as too few descriptors, say nothing about the stored bytes.
    """
    return error.errno in _LOST


class DamagedPart(StrEnum):
    """Part of a data directory; the part decides how the damage can be repaired."""

    LOG = "log"
    """Entries of the Raft log that were acknowledged."""
    METADATA = "metadata"
    """Small files of Raft: term and vote, identity, memberships."""
    STATE = "state"
    """The database of the queue. The log or a snapshot of another member can replace it."""


@value
class Damage:
    """One finding: stored bytes that fail their checksum or cannot be read."""

    part: DamagedPart
    file: str
    """Path below the data directory."""
    offset: int
    """Offset of the damaged block or record in bytes; 0 if the whole file is meant."""
    expected: str
    """Expected checksum or content, for a person."""
    actual: str
    """Checksum or content that was found, for a person."""

    def __str__(self) -> str:
        """Return one line for the process log."""
        return (
            f"{self.file} is damaged at byte {self.offset} ({self.part}):"
            f" expected {self.expected}, found {self.actual}"
        )


class DamageListener(Protocol):
    """Receives damage; called on the event loop, once for each damaged file."""

    def damage_found(self, damage: Damage) -> None:
        """Repair the damage, or report it."""
