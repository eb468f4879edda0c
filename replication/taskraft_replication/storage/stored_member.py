"""Look at a data directory before its member is opened: whose is it, and is it a new one?"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from taskraft_replication.errors import DirectoryUnwritable
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.metadata import Identity, Metadata


@dataclass(slots=True, frozen=True)
class StoredMember:
    """What a data directory says of the member of one group."""

    directory_id: str
    """Identity of the directory, by which the others know the member."""
    identity: Identity | None
    """Whose data it is; None before the first start was completed."""
    has_joined: bool
    """The member joined a group that existed, and is no founder."""


def stored_member(data_directory: Path, group_id: int) -> StoredMember:
    """Return what a claimed directory says; give it an identity if it has none.

    The identity is there before the group is asked for a number, so that a node that was stopped in
    between asks as the same one.

    Raises:
        DirectoryUnwritable: it cannot be used.
        LogDamaged: its files are unreadable.
    """
    metadata = Metadata(DiskFileSystem(data_directory), f"raft-{group_id}")
    try:
        directory_id = metadata.directory_id(secrets.token_hex(8))
        if not metadata.is_initialized():
            return StoredMember(directory_id, None, has_joined=False)
        return StoredMember(directory_id, metadata.identity(), metadata.has_joined())
    except OSError as error:
        raise DirectoryUnwritable(
            f"data directory {data_directory} cannot be used: {error.strerror}"
        ) from error
