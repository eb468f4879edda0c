"""Open the queue's state and build the Raft settings of a node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from taskraft_replication.core.types import MemberId
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.peers.contract import ProgramVersions
from taskraft_service.clock.cluster_clock import monotonic_ms
from taskraft_service.cluster.cluster_members import info_of
from taskraft_service.cluster.member_identity import MemberIdentity
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.drivers import installed_drivers
from taskraft_service.machine.collect_policy import CollectPolicy
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.process.descriptors import current_shares
from taskraft_service.queue.limits import Limits
from taskraft_service.storage.directory import STATE_DIRECTORY, StateDirectory
from taskraft_service.storage.node_storage import NODE_STORAGE, NodeStorage
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.storage.stored_format import check_format
from taskraft_service.versions import HIGHEST, LOWEST


def open_machine(
    config: ServerConfig, identity: MemberIdentity, storage: NodeStorage = NODE_STORAGE
) -> QueueMachine:
    """Open the queue's state.

    Raises:
        StateForeign: the state belongs to another cluster or member, or another release wrote it;
            nothing was changed.
        StateDamaged, StateMissing: the state cannot be read.
        DriverUnusable, DriverMissing: an installed driver is invalid, or a driver is not installed.
        OSError: the directory cannot be used.
    """
    path = config.data_dir / STATE_DIRECTORY
    member_id = identity.member.member_id
    directory = StateDirectory(path, config.cluster_id, member_id, storage.open_files, check_format)

    def open_store(database: Path) -> RocksStore:
        tables_max = current_shares().tables
        return storage.open_store(
            database, config.block_cache_bytes, config.write_buffer_bytes, tables_max
        )

    pace = CollectPolicy(config.collect_entries, config.collect_ms)
    return QueueMachine(directory, open_store, Limits(), pace, monotonic_ms, installed_drivers())


def raft_config(
    config: ServerConfig,
    identity: MemberIdentity,
    version_in_force: Callable[[], int] = lambda: 0,
    storage: NodeStorage = NODE_STORAGE,
) -> NodeConfig:
    """Return the settings of the Raft member.

    ``version_in_force`` returns the cluster version, by which peers are checked; 0: unchecked.
    """
    members = identity.founders or (identity.member,)
    return NodeConfig(
        cluster_id=config.cluster_id,
        member_id=MemberId(identity.member.member_id),
        data_directory=config.data_dir,
        members={MemberId(member.member_id): info_of(member) for member in members},
        is_joining=identity.is_joining,
        tick_ms=config.tick_ms,
        heartbeat_ticks=max(1, round(config.heartbeat_ms / config.tick_ms)),
        election_ticks=max(2, round(config.election_timeout_ms / config.tick_ms)),
        segment_bytes=config.log_segment_bytes,
        flush_bytes=config.log_flush_bytes,
        flush_entries=config.log_flush_entries,
        kept_entries=config.log_kept_entries,
        kept_bytes=config.log_kept_bytes,
        disk_stall_ticks=max(2, round(config.disk_stall_ms / config.tick_ms)),
        disk_hang_ticks=max(3, round(config.disk_hang_ms / config.tick_ms)),
        program=ProgramVersions(LOWEST, HIGHEST, version_in_force),
        open_files=storage.open_files,
    )
