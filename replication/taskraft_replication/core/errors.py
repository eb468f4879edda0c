"""Define the errors of the Raft core; a message from a peer never causes one."""

from __future__ import annotations

from enum import Enum

from taskraft_replication.core.types import LogIndex


class Compacted(Exception):
    """The requested index is below the first stored entry; send a snapshot instead."""


class EntryUnavailable(Exception):
    """The requested index is above the last stored entry."""


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
    """The storage is still writing the requested snapshot; retry after the next heartbeat."""


class DropReason(Enum):
    """Reason for which a proposal was not appended."""

    NO_LEADER = "no_leader"
    """No leader is known; wait for an election."""
    NOT_LEADER = "not_leader"
    """Another member leads, and this member does not forward proposals; propose to the leader."""
    NOT_A_MEMBER = "not_a_member"
    """This leader was removed from the group; the next leader will be elected without it."""
    TRANSFERRING = "transferring"
    """A leadership transfer is in progress; propose to the next leader."""
    TOO_MANY_UNCOMMITTED = "too_many_uncommitted"
    """``RaftConfig.uncommitted_bytes_max`` bytes are proposed and not committed; retry later."""
    ENTRY_TOO_LARGE = "entry_too_large"
    """The entry has more than ``RaftConfig.entry_bytes_max`` bytes; split the proposal."""


class ProposalDropped(Exception):
    """The proposal was not appended and never will be; propose again, on the leader."""

    def __init__(self, reason: DropReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class ConfChangeFault(Enum):
    """Reason for which a membership change cannot be made."""

    ALREADY_JOINT = "the configuration is already joint"
    NOT_JOINT = "the configuration is not joint, so it cannot be left"
    SIMPLE_WHILE_JOINT = "a simple change cannot be made in a joint configuration"
    NO_VOTERS_BEFORE = "a configuration without voters cannot become joint"
    NO_VOTERS_AFTER = "the change would remove the last voter"
    SEVERAL_VOTERS = "a simple change may add or remove at most one voter"
    UNAPPLIED_CHANGE = "an earlier change may not be applied yet"
    TOO_MANY_UNFLUSHED = "too many earlier changes are not flushed to disk yet"


class ConfChangeInvalid(Exception):
    """The membership change does not fit the current configuration.

    ``RaftCore.propose_conf_change`` returns the fault. If ``apply_conf_change`` raises the error,
    the members disagree about the configuration, and the process must stop.
    """

    def __init__(self, fault: ConfChangeFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class ConfChangeMalformed(ValueError):
    """The bytes are not an encoded membership change, so another program wrote the log."""
