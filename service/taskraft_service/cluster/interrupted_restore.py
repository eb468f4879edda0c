"""Mark a data directory while a snapshot is restored into it, so that a part is never served.

A restore writes the state before the identity of the member. Without the mark, a node would take a
directory whose restore was killed for that of a new founder, and serve an empty cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from taskraft_replication.storage.checked_file import write_checked
from taskraft_replication.storage.filesystem import DiskFileSystem

MARK: Final = "restoring"
INTERRUPTED: Final = (
    "the files of an interrupted restore, which are incomplete; remove all files of the directory,"
    " and restore the snapshot again"
)


def begin_restore(directory: Path) -> None:
    """Write the mark durably, before the first file of a restore."""
    write_checked(DiskFileSystem(directory), MARK, {})


def end_restore(directory: Path) -> None:
    """Remove the mark durably, after the last file of a restore is durable."""
    files = DiskFileSystem(directory)
    files.remove(MARK)
    files.sync_directory("")


def is_restoring(directory: Path) -> bool:
    """Return whether a restore into the directory runs or was interrupted."""
    return (directory / MARK).exists()
