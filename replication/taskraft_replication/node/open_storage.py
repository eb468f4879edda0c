"""Open the storage of a member according to its configuration."""

from __future__ import annotations

import asyncio
import secrets

from taskraft_replication.core.types import ConfState, LogIndex
from taskraft_replication.errors import DirectoryUnwritable
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.storage.failing_filesystem import with_failpoints
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.metadata import Identity


async def open_storage(config: NodeConfig, applied: LogIndex) -> GroupStorage:
    """Open the stored data of a member, or create it on the first start, in a worker thread.

    A cancellation takes effect only when the thread has ended, so that no other process can lock
    the directory before.

    Raises:
        DirectoryUnwritable: the operating system refused to read or write the directory.
        DirectoryRefused, LogDamaged, StateLost: see ``GroupStorage.open``.
    """
    work = asyncio.ensure_future(asyncio.to_thread(_open, config, applied))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait((work,))
        raise
    except OSError as error:
        raise DirectoryUnwritable(
            f"cannot use data directory {config.data_directory}: {error.strerror}; "
            f"check the path, its permissions and the free disk space"
        ) from error


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
