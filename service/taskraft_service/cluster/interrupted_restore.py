"""Mark a data directory while a snapshot is restored into it, so that a part is never served.

A restore writes the state before the identity of the member. Without the mark, a node would take a
directory whose restore was killed for that of a new founder, and serve an empty cluster.

A marked directory has only files of the restore, because a restore begins in an empty directory and
a node refuses to start in a marked one. The restore can therefore be run again there: it removes
these files first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from taskraft_replication.storage.checked_file import TEMPORARY_SUFFIX, write_checked
from taskraft_replication.storage.filesystem import FileSystem

MARK: Final = "restoring"
MARKS: Final = (MARK, MARK + TEMPORARY_SUFFIX)
"""Names of the mark; the second one is left if the restore ends while it writes the mark."""
INTERRUPTED: Final = (
    "the files of an interrupted restore, which are incomplete; run `taskraft snapshot restore`"
    " again, with this directory or with an empty one"
)


def begin_restore(files: FileSystem) -> None:
    """Write the mark into a data directory durably, before the first file of a restore."""
    write_checked(files, MARK, {})


def end_restore(files: FileSystem) -> None:
    """Remove the mark durably, after all other changes of the directory are durable."""
    for name in MARKS:
        if files.exists(name):
            files.remove(name)
            files.sync_directory("")


def is_restoring(directory: Path) -> bool:
    """Return whether a restore into the directory runs or was interrupted."""
    return any((directory / name).exists() for name in MARKS)
