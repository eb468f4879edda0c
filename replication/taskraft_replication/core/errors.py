"""Name everything the Raft core raises; none of it is raised for what a peer sends."""

from __future__ import annotations

from enum import Enum

from taskraft_replication.core.types import LogIndex


class Compacted(Exception):
    """The index asked for lies below the first entry that is still stored: send a snapshot."""


class EntryUnavailable(Exception):
    """The index asked for lies above the last entry that is stored."""


class CommittedEntriesMissing(Exception):
    """The leader knows that this member stored entries which its log no longer has: stop.

    etcd panics here. The usual cause is an older copy of the data directory.
    """

    def __init__(self, commit_index: LogIndex, last_index: LogIndex) -> None:
        super().__init__(
            f"entry {commit_index} is committed and was stored by this member, but its log ends at"
            f" entry {last_index}; the data directory was replaced by an older copy, or lost data;"
            f" remove this member and let it join again with an empty directory"
        )


class SnapshotTemporarilyUnavailable(Exception):
    """The storage is still writing the snapshot asked for; ask again after the next heartbeat."""


class DropReason(Enum):
    """Why a proposal did not enter the log."""

    NO_LEADER = "no_leader"
    """No leader is known: wait for an election."""
    NOT_LEADER = "not_leader"
    """Another member leads and this one does not forward: propose there."""
    NOT_A_MEMBER = "not_a_member"
    """This leader has been removed from the group; the next one will be elected without it."""
    TRANSFERRING = "transferring"
    """Leadership is being handed over: propose to the next leader."""
    TOO_MANY_UNCOMMITTED = "too_many_uncommitted"
    """``Config.uncommitted_bytes_max`` are proposed and not committed yet: wait."""


class ProposalDropped(Exception):
    """The proposal is not in the log and never will be: propose again, perhaps elsewhere."""

    def __init__(self, reason: DropReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class ConfChangeFault(Enum):
    """Why a membership change cannot be made."""

    ALREADY_JOINT = "the configuration is joint already"
    NOT_JOINT = "the configuration is not joint, so there is nothing to leave"
    SIMPLE_WHILE_JOINT = "a simple change cannot be made in a joint configuration"
    NO_VOTERS_BEFORE = "a configuration without voters cannot become joint"
    NO_VOTERS_AFTER = "the change would remove the last voter"
    SEVERAL_VOTERS = "a simple change may add or remove at most one voter"
    UNAPPLIED_CHANGE = "an earlier change may not be applied yet"


class ConfChangeInvalid(Exception):
    """The membership change does not fit the configuration.

    ``RaftCore.propose_conf_change`` reports it as a result. Raised out of ``apply_conf_change`` it
    means that members disagree about the configuration: stop.
    """

    def __init__(self, fault: ConfChangeFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class ConfChangeMalformed(ValueError):
    """The bytes are not a membership change: stop, the log was written by something else."""
