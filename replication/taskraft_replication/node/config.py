"""Configure a member of a group, as an operator sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.types import MemberId, MemberInfo
from taskraft_replication.driver.trimmer import FLUSH_BYTES, KEPT_BYTES, KEPT_ENTRIES, TrimPolicy
from taskraft_replication.storage.failpoints import NO_FAILPOINTS, Failpoints
from taskraft_replication.storage.segment import SEGMENT_BYTES

TICK_MS = 50
HEARTBEAT_TICKS = 3
ELECTION_TICKS = 7
"""A follower campaigns after 350 to 700 ms of silence, three heartbeats or more.

The sync of a slow disk (200 ms were seen) delays no heartbeat, and even a pause of the whole
process of that length costs no election. Yet a killed leader is replaced in about 450 ms in the
median.
"""


@dataclass(slots=True, frozen=True)
class NodeConfig:
    """The settings of a node; times in milliseconds, sizes in bytes."""

    cluster_id: str
    member_id: MemberId
    data_directory: Path
    members: Mapping[MemberId, MemberInfo]
    """Who the members are, this one included. On the first start these found the group; later
    starts take only peer addresses from here, in place of those that the group knows."""
    group_id: int = 0
    is_joining: bool = False
    """This member joins a group that exists: it does not found one, but waits for a snapshot. Of
    ``members`` only itself must be named."""
    tick_ms: int = TICK_MS
    heartbeat_ticks: int = HEARTBEAT_TICKS
    election_ticks: int = ELECTION_TICKS
    segment_bytes: int = SEGMENT_BYTES
    flush_bytes: int = FLUSH_BYTES
    kept_entries: int = KEPT_ENTRIES
    kept_bytes: int = KEPT_BYTES
    failpoints: Failpoints = NO_FAILPOINTS
    """What goes wrong on purpose."""
    core: RaftConfig = field(init=False)
    """The same for the core."""

    def __post_init__(self) -> None:
        """Check what can be checked without touching anything."""
        assert self.cluster_id, "a cluster has a name"
        assert self.group_id >= 0
        assert self.tick_ms >= 1
        assert self.segment_bytes >= 1 << 12
        assert self.member_id in self.members, "the member itself is among the members"
        core = RaftConfig(
            member_id=self.member_id,
            election_ticks=self.election_ticks,
            heartbeat_ticks=self.heartbeat_ticks,
        )
        object.__setattr__(self, "core", core)

    @property
    def trim_policy(self) -> TrimPolicy:
        """When the log is trimmed."""
        return TrimPolicy(self.flush_bytes, self.kept_entries, self.kept_bytes)
