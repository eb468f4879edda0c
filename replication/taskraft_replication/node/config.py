"""Define the settings of a member that an operator can choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.types import MemberId, MemberInfo
from taskraft_replication.driver.disk_watch import HANG_TICKS, STALL_TICKS, DiskPolicy
from taskraft_replication.driver.driver import StoragePolicy
from taskraft_replication.driver.trimmer import (
    FLUSH_BYTES,
    FLUSH_ENTRIES,
    KEPT_BYTES,
    KEPT_ENTRIES,
    TrimPolicy,
)
from taskraft_replication.peers.contract import NO_PROGRAM, ProgramVersions
from taskraft_replication.storage.filesystem import DiskFileSystem, FileSystem
from taskraft_replication.storage.segment import SEGMENT_BYTES

TICK_MS = 50
HEARTBEAT_TICKS = 3
ELECTION_TICKS = 7
"""Election timeout: a follower campaigns after 350 to 700 ms without a message from the leader,
which is at least two heartbeat intervals.

Slow fsyncs do not delay heartbeats, and a pause of the whole process of 200 ms causes no election.
A killed leader is replaced within about 450 ms (median).
"""


@dataclass(slots=True, frozen=True)
class NodeConfig:
    """The settings of a node; times in milliseconds, sizes in bytes."""

    cluster_id: str
    member_id: MemberId
    data_directory: Path
    members: Mapping[MemberId, MemberInfo]
    """All members, this one included. On the first start they found the group. Later starts use
    only the peer addresses, which override the addresses in the roster until a member announces
    other ones."""
    group_id: int = 0
    is_joining: bool = False
    """True: this member joins an existing group and waits for a snapshot instead of founding a
    group. ``members`` then needs to contain only this member."""
    tick_ms: int = TICK_MS
    heartbeat_ticks: int = HEARTBEAT_TICKS
    election_ticks: int = ELECTION_TICKS
    segment_bytes: int = SEGMENT_BYTES
    flush_bytes: int = FLUSH_BYTES
    flush_entries: int = FLUSH_ENTRIES
    kept_entries: int = KEPT_ENTRIES
    kept_bytes: int = KEPT_BYTES
    disk_stall_ticks: int = STALL_TICKS
    disk_hang_ticks: int = HANG_TICKS
    program: ProgramVersions = NO_PROGRAM
    """Versions of the program above Raft; peers of another version are refused."""
    open_files: Callable[[Path], FileSystem] = DiskFileSystem
    """Opens the files below the data directory."""
    core: RaftConfig = field(init=False)
    """The derived settings of the Raft core."""

    def __post_init__(self) -> None:
        """Check the values and derive the settings of the core."""
        assert self.cluster_id, "cluster_id must not be empty"
        assert self.group_id >= 0
        assert self.tick_ms >= 1
        assert self.segment_bytes >= 1 << 12
        assert self.member_id in self.members, "members must contain member_id"
        core = RaftConfig(
            member_id=self.member_id,
            election_ticks=self.election_ticks,
            heartbeat_ticks=self.heartbeat_ticks,
            votes_show_activity=True,
        )
        object.__setattr__(self, "core", core)

    @property
    def storage_policy(self) -> StoragePolicy:
        """Limits for trimming the log, and limits on the delay of the disk."""
        return StoragePolicy(
            TrimPolicy(self.flush_bytes, self.kept_entries, self.kept_bytes, self.flush_entries),
            DiskPolicy(self.disk_stall_ticks, self.disk_hang_ticks),
        )
