"""Prepare the data directory into which a snapshot is restored, and undo a restore that fails."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from taskraft_replication.errors import ReplicationError
from taskraft_replication.storage.data_directory import LOCK, DataDirectory
from taskraft_replication.storage.filesystem import DiskFileSystem, FileSystem, sync_directory
from taskraft_service.cluster.interrupted_restore import (
    MARKS,
    begin_restore,
    end_restore,
    is_restoring,
)

_LEFT_ALONE: Final = frozenset({"lost+found", LOCK})
"""Names of files that an empty data directory may contain."""


class RestoreRefused(Exception):
    """The snapshot cannot be restored here; the text says why, in one line."""


@contextmanager
def restored_directory(
    directory: Path, open_files: Callable[[Path], FileSystem] = DiskFileSystem
) -> Iterator[FileSystem]:
    """Lock and mark an empty data directory while its files are written; yield its files.

    A directory with the files of an interrupted restore counts as empty; they are removed first.
    After an exception, the directory is as before, or without these files.

    Raises:
        RestoreRefused: the directory is in use or not empty; nothing was changed.
    """
    existed = directory.exists()
    _check_usable(directory)
    try:
        lock = DataDirectory(directory)
    except ReplicationError as error:
        raise RestoreRefused(str(error)) from error
    try:
        _check_usable(directory)  # another restore may have ended before the lock was free
        was_marked = is_restoring(directory)
        files = open_files(directory)
        try:
            begin_restore(files)
            _remove_content(directory)
            yield files
            end_restore(files)
        except BaseException:
            _undo(directory, keeps_mark=was_marked, whole=not existed)
            raise
    finally:
        lock.release()


def _check_usable(directory: Path) -> None:
    """Check that a data directory is empty, or has only files of an interrupted restore.

    Raises:
        RestoreRefused: it has other files.
    """
    if not directory.exists() or is_restoring(directory):
        return
    if any(one.name not in _LEFT_ALONE for one in directory.iterdir()):
        raise RestoreRefused(f"{directory} is not empty; restore into an empty data directory")


def _remove_content(directory: Path) -> None:
    """Remove the files that an unsuccessful restore has written, durably, except the mark."""
    for place in directory.iterdir():
        if place.name in _LEFT_ALONE or place.name in MARKS:
            continue
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
    sync_directory(directory)


def _undo(directory: Path, *, keeps_mark: bool, whole: bool) -> None:
    """Undo a restore that has failed; the mark goes last, because the undoing may be interrupted.

    Args:
        directory: the data directory.
        keeps_mark: an earlier restore was interrupted there, so no node may start in it.
        whole: the restore has created the directory.
    """
    _remove_content(directory)
    if keeps_mark:
        return
    end_restore(DiskFileSystem(directory))
    (directory / LOCK).unlink()
    if whole:
        directory.rmdir()
