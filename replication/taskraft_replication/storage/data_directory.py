"""Lock the data directory for this process."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from taskraft_replication.errors import DirectoryLocked, DirectoryUnwritable
from taskraft_replication.storage.filesystem import sync_directory


class DataDirectory:
    """A directory that exists, is writable, and is locked by this process until ``release``.

    The kernel releases the lock when the process ends, for whatever reason.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = self._claim(path)

    @staticmethod
    def _claim(path: Path) -> int:
        try:
            _make(path)
            descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise DirectoryUnwritable(
                f"data directory {path} cannot be written: {os.strerror(error.errno or 0)}"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if error.errno in {errno.EAGAIN, errno.EACCES}:
                raise DirectoryLocked(
                    f"cannot lock data directory {path}: process {holder} holds the lock, and one "
                    f"process per directory is allowed; stop that process or set "
                    f"TASKRAFT_DATA_DIR to another directory"
                ) from error
            raise DirectoryUnwritable(
                f"data directory {path} cannot be written: {os.strerror(error.errno or 0)}"
            ) from error
        return descriptor

    def release(self) -> None:
        """Release the lock."""
        os.close(self._lock)


def _make(path: Path) -> None:
    """Create a directory with its parents, durably, if it does not exist.

    Otherwise a power loss could remove the name of the directory, with all durable files in it.
    """
    if path.is_dir():
        return
    _make(path.parent)
    path.mkdir(mode=0o750, exist_ok=True)
    sync_directory(path.parent)
