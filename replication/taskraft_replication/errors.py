"""Define the errors of this package, except those of the Raft core."""

from __future__ import annotations

from taskraft_replication.core.errors import ConfChangeFault
from taskraft_replication.core.types import LogIndex, MemberId


class ReplicationError(Exception):
    """Base class of this package's errors; ``str()`` gives one line for an operator."""


class DirectoryRefused(ReplicationError):
    """This process cannot use the data directory with its current configuration."""


class DirectoryUnwritable(DirectoryRefused):
    """The data directory cannot be created or written; correct its path or its permissions."""


class DirectoryLocked(DirectoryRefused):
    """Another running process has locked the data directory; stop that process first."""


class DirectoryForeign(DirectoryRefused):
    """The data belongs to another cluster, group, member or node; correct the configuration."""


class MemberRemoved(DirectoryRefused):
    """This member was removed from the group, so the group no longer uses its data.

    To return, the node must join as a new member with an empty data directory.
    """


class DirectoryUnknown(DirectoryRefused):
    """The other members know this member with another data directory, so data was lost.

    Remove the member, then let it join as a new member with an empty data directory.
    """


class DirectoryOutdated(DirectoryRefused):
    """A peer has accepted another start of this member, of the same or a later incarnation.

    The data directory is an older copy, or another process has used a copy of it since. The
    directory may lack entries and votes that the member has acknowledged. Use the newest copy, or
    replace the member.
    """


class MemberInUse(DirectoryRefused):
    """Another process of this member, with a copy of the data directory, is connected to a peer.

    ``was_accepted`` tells whether a peer has accepted this process.
    """

    def __init__(self, text: str, *, was_accepted: bool = False) -> None:
        super().__init__(text)
        self.was_accepted = was_accepted


class FormatUnknown(DirectoryRefused):
    """The data was written in a format that this version does not read."""


class VersionTooOld(DirectoryRefused):
    """The release of this member does not speak the cluster version; the text names the version."""


class LogDamaged(ReplicationError):
    """Durable data is missing or unreadable; acknowledged entries or votes may be lost.

    Delete the directory and let the node join as a new member; never truncate the log by hand.
    """


class LogUnreadable(LogDamaged):
    """Bytes of the log or of a small file, read from the disk itself, fail their checksum.

    A later read proves nothing, because it may read right bytes from the page cache.
    """


class EntryTooLarge(ReplicationError):
    """An entry exceeds the size that the log can read; the process must end.

    A leader of this version never appends such an entry.
    """

    def __init__(self, index: LogIndex, size: int, most: int) -> None:
        super().__init__(
            f"entry {index} has {size} bytes, and the log reads entries of at most {most} bytes; "
            f"it was not written; run the same release on all nodes"
        )


class StorageFailed(ReplicationError):
    """A write or an fsync failed; the process must end, because the disk's state is unknown."""


class StateLost(ReplicationError):
    """The state machine is behind the start of the log, so its state was lost or replaced."""


class Stopped(ReplicationError):
    """The node is stopping or has stopped; nothing was proposed, or the outcome is unknown."""


class NotRaftLeader(ReplicationError):
    """This member is not the leader; ``leader`` is the known leader or ``NO_MEMBER``."""

    def __init__(self, leader: MemberId) -> None:
        super().__init__(f"not the leader; leader: {leader or 'unknown'}")
        self.leader = leader


class ProposalLost(ReplicationError):
    """A proposal was overwritten, or its outcome is unknown; retry with the same request id."""

    def __init__(self, index: LogIndex, reason: str) -> None:
        super().__init__(f"outcome of the proposal at index {index} is unknown: {reason}")
        self.index = index


class SnapshotBroken(ReplicationError):
    """A received snapshot is incomplete or fails its checksum; it was deleted."""


class SnapshotBusy(SnapshotBroken):
    """This member cannot receive the snapshot now; a later transfer can succeed.

    The member receives or installs another snapshot, or is stopping.
    """


class SnapshotUnusable(SnapshotBroken):
    """A complete snapshot cannot be used on this member; it was deleted.

    The disk is full, or the sender's files are damaged. Sending the same content again would not
    help.
    """


class SnapshotUnavailable(SnapshotBroken):
    """This member cannot offer its state now, because a part of the stored state is damaged."""


class PeerRefused(ReplicationError):
    """A peer is refused, for example because of its cluster or its protocol version."""


class ReceiverAbsent(PeerRefused):
    """The node of the peer has another member now."""


class GroupAbsent(PeerRefused):
    """The process at this address has no member of the group, or is still starting it."""


class MessageMalformed(ReplicationError):
    """A peer sent bytes that are not a valid message; its stream is closed."""


class ReadUnconfirmed(ReplicationError):
    """No leader with a quorum confirmed a linearizable read in time; retry or read stale data."""


class ChangeRefused(ReplicationError):
    """A membership change cannot be made now; ``fault`` says why.

    The membership is unchanged.
    """

    def __init__(self, fault: ConfChangeFault) -> None:
        super().__init__(f"the membership was not changed: {fault.value}")
        self.fault = fault


class TransferFailed(ReplicationError):
    """Leadership was not transferred in time; this member may still lead."""


class NodeBroken(ReplicationError):
    """An unexpected exception, for example in ``apply``; a bug, and the process must end."""


def reason_of(error: Exception) -> ReplicationError:
    """Return the error to report when an unexpected ``error`` stops the node."""
    if isinstance(error, ReplicationError):
        return error
    if isinstance(error, FileNotFoundError):
        reason: ReplicationError = LogDamaged(f"{error.filename} is missing")
    elif isinstance(error, OSError):
        reason = StorageFailed(f"the storage failed: {error}")
    else:
        reason = NodeBroken(f"{type(error).__name__}: {error}")
    reason.__cause__ = error
    return reason
