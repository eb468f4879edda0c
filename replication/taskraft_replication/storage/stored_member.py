"""Read the identity in a data directory before its member is opened."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from taskraft_replication.errors import DirectoryUnwritable, LogDamaged
from taskraft_replication.storage.filesystem import DiskFileSystem, FileSystem
from taskraft_replication.storage.metadata import Identity, Metadata


@dataclass(slots=True, frozen=True)
class StoredMember:
    """Identity of the member in a data directory."""

    directory_id: str
    """Identity of the directory, by which the other members recognize this member."""
    identity: Identity | None
    """Cluster, group and member of the data; None before the first start was completed."""
    has_joined: bool
    """True: the member joined an existing group; False: it is a founder."""


def stored_member(data_directory: Path, group_id: int) -> StoredMember:
    """Return the identity in a locked directory; create the directory id if it is missing.

    The directory id exists before the member asks the group for a member id. A node that is stopped
    in between therefore asks again with the same directory id.

    Raises:
        DirectoryUnwritable: the directory cannot be used.
        LogDamaged: its files are unreadable.
    """
    try:
        return member_in(DiskFileSystem(data_directory), group_id, secrets.token_hex(8))
    except OSError as error:
        raise DirectoryUnwritable(
            f"cannot use data directory {data_directory}: {error.strerror}"
        ) from error


def member_in(fs: FileSystem, group_id: int, fresh: str) -> StoredMember:
    """Return the identity in a directory; ``fresh`` is the id of a directory without an id.

    Raises:
        LogDamaged: the files are unreadable.
    """
    metadata = Metadata(fs, f"raft-{group_id}")
    directory_id = metadata.directory_id(fresh)
    if not metadata.is_initialized():
        if metadata.has_lived():
            raise LogDamaged(f"{metadata.directory} holds a log, but its identity is missing")
        return StoredMember(directory_id, None, has_joined=False)
    return StoredMember(directory_id, metadata.identity(), metadata.has_joined())
