"""Open the storage of a member as its configuration says; make what is drawn once and for all."""

from __future__ import annotations

import asyncio
import secrets

from taskraft_replication.core.types import ConfState, LogIndex
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.storage.failing_filesystem import with_failpoints
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.metadata import Identity


async def open_storage(config: NodeConfig, applied: LogIndex) -> GroupStorage:
    """Open what a member has stored, or begin its first life, in a thread.

    A cancellation comes after the thread's end: nobody else may claim the directory before.

    Raises:
        DirectoryRefused, LogDamaged, StateLost: see ``GroupStorage.open``.
    """
    work = asyncio.ensure_future(asyncio.to_thread(_open, config, applied))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait((work,))
        raise


def _open(config: NodeConfig, applied: LogIndex) -> GroupStorage:
    founders = ConfState()
    if not config.is_joining:
        founders = ConfState(
            voters=tuple(sorted(config.members)), roster=roster_of(config.members.values())
        )
    return GroupStorage.open(
        with_failpoints(DiskFileSystem(config.data_directory), config.failpoints),
        StorageConfig(
            identity=Identity(config.cluster_id, config.member_id, config.group_id),
            founders=founders,
            salt=secrets.randbits(32),
            directory_id=secrets.token_hex(8),
            segment_bytes=config.segment_bytes,
        ),
        applied,
    )
