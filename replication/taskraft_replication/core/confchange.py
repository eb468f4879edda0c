"""Describe membership changes and encode them as data of log entries.

The same change always encodes to the same bytes. The change that leaves a joint configuration
encodes to no bytes, so no size limit can delay it.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final

from taskraft_replication.core.errors import ConfChangeMalformed
from taskraft_replication.core.types import Entry, EntryKind, MemberId, value

_HEADER: Final = Struct(">BH")  # transition, number of changes
_CHANGE: Final = Struct(">BQ")  # kind, member


class MemberChangeKind(Enum):
    """The change of one member."""

    ADD_VOTER = 0
    """Make the member a voter, also if it is a learner or not a member yet."""
    REMOVE = 1
    UPDATE = 2
    """Change the data about the member, which is in ``context``; no vote changes."""
    ADD_LEARNER = 3
    """Make the member a learner, also if it is a voter or not a member yet."""


class ConfChangeTransition(Enum):
    """The way from one configuration to the next."""

    AUTO = 0
    """Change one member directly, and several members through a joint configuration that is left
    automatically."""
    JOINT_IMPLICIT = 1
    """Use a joint configuration that is left automatically."""
    JOINT_EXPLICIT = 2
    """Use a joint configuration that lasts until an empty change is proposed."""


@value
class MemberChange:
    """One step of a membership change."""

    kind: MemberChangeKind
    member: MemberId


@value
class ConfChange:
    """A membership change; an empty change leaves a joint configuration."""

    changes: tuple[MemberChange, ...] = ()
    transition: ConfChangeTransition = ConfChangeTransition.AUTO
    context: bytes = b""

    @property
    def leaves_joint(self) -> bool:
        """Return whether this is the change that leaves a joint configuration."""
        return not self.changes and self.transition is ConfChangeTransition.AUTO

    @property
    def enters_joint(self) -> bool:
        """Return whether this change enters a joint configuration.

        A change of several members always enters a joint configuration. Whether a direct change is
        possible would depend on the current configuration.
        """
        return self.transition is not ConfChangeTransition.AUTO or len(self.changes) > 1

    @property
    def auto_leave(self) -> bool:
        """Return whether the joint configuration is left without another request."""
        return self.transition is not ConfChangeTransition.JOINT_EXPLICIT


LEAVE_JOINT: Final = ConfChange()
"""Leaves a joint configuration."""


def encode(change: ConfChange) -> bytes:
    """Return the bytes of ``change``; empty for ``LEAVE_JOINT``."""
    if change == LEAVE_JOINT:
        return b""
    parts = [_HEADER.pack(change.transition.value, len(change.changes))]
    parts += [_CHANGE.pack(each.kind.value, each.member) for each in change.changes]
    return b"".join([*parts, change.context])


def decode(data: bytes) -> ConfChange:
    """Return the change that ``encode`` wrote.

    Raises:
        ConfChangeMalformed: the bytes are not an encoded change.
    """
    if not data:
        return LEAVE_JOINT
    if len(data) < _HEADER.size:
        raise ConfChangeMalformed(f"{len(data)} bytes are shorter than the header")
    transition, count = _HEADER.unpack_from(data)
    end = _HEADER.size + count * _CHANGE.size
    if len(data) < end:
        raise ConfChangeMalformed(f"{len(data)} bytes do not hold {count} changes")
    try:
        changes = tuple(
            MemberChange(MemberChangeKind(kind), MemberId(member))
            for kind, member in _CHANGE.iter_unpack(data[_HEADER.size : end])
        )
        return ConfChange(changes, ConfChangeTransition(transition), data[end:])
    except ValueError as unknown:
        raise ConfChangeMalformed(str(unknown)) from unknown


def of_entry(entry: Entry) -> ConfChange | None:
    """Return the membership change that ``entry`` carries, or None for a normal entry.

    Raises:
        ConfChangeMalformed: the entry is a membership change, but its data cannot be decoded.
    """
    if entry.kind is EntryKind.NORMAL:
        return None
    return decode(entry.data)
