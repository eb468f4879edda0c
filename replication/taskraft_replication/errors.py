"""Name everything that can go wrong outside the Raft core; one tree, one clear line each."""

from __future__ import annotations

from taskraft_replication.core.errors import ConfChangeFault
from taskraft_replication.core.types import LogIndex, MemberId


class ReplicationError(Exception):
    """Root of this package's errors; ``str()`` of each is one line for an operator."""


class DirectoryRefused(ReplicationError):
    """The data directory cannot be used by this process as it is configured."""


class DirectoryUnwritable(DirectoryRefused):
    """The data directory cannot be created or written: correct its path or its permissions."""


class DirectoryLocked(DirectoryRefused):
    """A living process holds the data directory: stop that process first."""


class DirectoryForeign(DirectoryRefused):
    """The data belongs to another cluster, member or group: correct the configuration."""


class MemberRemoved(DirectoryRefused):
    """The others have removed this member: its data is of no use to the group any more.

    To come back it joins as a new member, with an empty data directory.
    """


class DirectoryUnknown(DirectoryRefused):
    """The others know this member with another data directory: it forgot what it had promised.

    Remove the member, then let it join anew with an empty data directory.
    """


class FormatUnknown(DirectoryRefused):
    """The data was written in a format that this version does not read."""


class LogDamaged(ReplicationError):
    """Synced data is missing or unreadable: this member forgot promises and must not take part.

    Wipe the directory and let the member join anew; never cut the log by hand.
    """


class StorageFailed(ReplicationError):
    """An append or a sync failed: nothing is known about the disk, the process must end."""


class StateLost(ReplicationError):
    """The state machine is behind the start of the log: its state was lost or replaced."""


class Stopped(ReplicationError):
    """The node is stopped or stopping; nothing was proposed, or its outcome is unknown."""


class NotRaftLeader(ReplicationError):
    """This member does not lead; ``leader`` says who does, ``NO_MEMBER`` if nobody is known to."""

    def __init__(self, leader: MemberId) -> None:
        super().__init__(f"not the leader; leader: {leader or 'unknown'}")
        self.leader = leader


class ProposalLost(ReplicationError):
    """A proposal was overwritten or its outcome is unknown; retry with the same request id."""

    def __init__(self, index: LogIndex, reason: str) -> None:
        super().__init__(f"outcome of the proposal at index {index} is unknown: {reason}")
        self.index = index


class SnapshotBroken(ReplicationError):
    """A received snapshot is incomplete or fails its checksum; it was dropped."""


class SnapshotUnusable(SnapshotBroken):
    """A snapshot came as it was sent, and no state can be made of it here; it was dropped.

    There is no room for it, or the sender's own files are damaged: the same content once more would
    not help.
    """


class PeerRefused(ReplicationError):
    """A peer is of another cluster, protocol or life, and is not listened to."""


class GroupAbsent(PeerRefused):
    """The process addressed has no member of the group, or is still starting it."""


class MessageMalformed(ReplicationError):
    """A peer sent something that is not a message; its stream is ended."""


class ReadUnconfirmed(ReplicationError):
    """No leader with a quorum confirmed a linearizable read in time; read again, or read stale."""


class ChangeRefused(ReplicationError):
    """A membership change cannot be made now; ``fault`` says why. Nothing was changed."""

    def __init__(self, fault: ConfChangeFault) -> None:
        super().__init__(f"the membership was not changed: {fault.value}")
        self.fault = fault


class TransferFailed(ReplicationError):
    """Leadership could not be handed over in time; this member may still lead."""


class NodeBroken(ReplicationError):
    """An exception where none may be, for example while applying: a bug; the process must end."""


def reason_of(error: Exception) -> ReplicationError:
    """Return why a node must end that met ``error`` where none may be."""
    if isinstance(error, ReplicationError):
        return error
    if isinstance(error, OSError):
        reason: ReplicationError = StorageFailed(f"the storage failed: {error}")
    else:
        reason = NodeBroken(f"{type(error).__name__}: {error}")
    reason.__cause__ = error
    return reason
