"""Open the storage of a member according to its configuration."""

from __future__ import annotations

import asyncio
import secrets

from taskraft_replication.core.types import ConfState, LogIndex
from taskraft_replication.errors import DirectoryUnwritable
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.metadata import Identity
from taskraft_replication.storage.state_rebuild import StateRebuild


async def open_storage(config: NodeConfig, applied: LogIndex) -> GroupStorage:
    """Open the stored data of a member, or create it on the first start, in a worker thread.

    A cancellation takes effect only after the thread has ended, because the thread holds the lock
    of the directory.

    Raises:
        DirectoryUnwritable: the operating system refused to read or write the directory.
        DirectoryRefused, LogDamaged, StateLost: see ``GroupStorage.open``.
    """
    work = asyncio.ensure_future(asyncio.to_thread(storage_of, config, applied))
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


async def open_rebuild(config: NodeConfig) -> StateRebuild:
    """Open the storage of a member whose state is lost, in a worker thread.

    Raises:
        DirectoryRefused, LogDamaged: see ``GroupStorage.open``.
    """
    fs = config.open_files(config.data_directory)
    # The directory exists and keeps its salt and its id.
    return await asyncio.to_thread(StateRebuild, fs, storage_config(config, 0, ""))


def storage_of(config: NodeConfig, applied: LogIndex) -> GroupStorage:
    """Open the stored data of a member, or create it on the first start; blocks.

    Raises:
        DirectoryRefused, LogDamaged, StateLost: see ``GroupStorage.open``.
        OSError: the operating system refused to read or write the directory.
    """
    return GroupStorage.open(
        config.open_files(config.data_directory),
        storage_config(config, secrets.randbits(32), secrets.token_hex(8)),
        applied,
    )


def storage_config(config: NodeConfig, salt: int, directory_id: str) -> StorageConfig:
    """Return the settings of a member's storage.

    ``salt`` and ``directory_id`` are random; a directory that has these values keeps its own.
    """
    founders = ConfState()
    if not config.is_joining:
        founders = ConfState(
            voters=tuple(sorted(config.members)), roster=roster_of(config.members.values())
        )
    return StorageConfig(
        identity=Identity(
            config.cluster_id,
            config.member_id,
            config.group_id,
            config.members[config.member_id].name,
        ),
        founders=founders,
        salt=salt,
        directory_id=directory_id,
        segment_bytes=config.segment_bytes,
    )
