"""Lock the data directory for this process, and keep other users out of the directory."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import stat
from pathlib import Path
from typing import Final

from taskraft_replication.errors import DirectoryLocked, DirectoryUnwritable
from taskraft_replication.storage.filesystem import sync_directory

PRIVATE_UMASK: Final = 0o077
"""Mode mask of a process that writes a data directory: its files are for the owner alone."""

LOCK: Final = "lock"
"""Name of the file that the process locks."""
_OF_A_NODE: Final = re.compile(r"lock|lost\+found|(state|raft-\d+|replacement|restoring)(\..*)?")
"""Names of the direct entries of a data directory; file systems add ``lost+found``."""

_log = logging.getLogger(__name__)


class DataDirectory:
    """A directory that exists, is writable, and is locked by this process until ``release``.

    Other users have no access to the files of a node in the directory: an existing directory with a
    wider mode, and its direct entries, are narrowed to the owner.

    Raises:
        DirectoryUnwritable: the directory cannot be written, or other users can write it and the
            mode cannot be changed.
        DirectoryLocked: another process holds the lock.

    The kernel releases the lock when the process ends, for whatever reason.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = self._claim(path)

    @staticmethod
    def _claim(path: Path) -> int:
        try:
            _make(path)
            _narrow(path)
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
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
    path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent)


def _narrow(path: Path) -> None:
    """Remove the access of group and others from the files of a node in a directory.

    The directory itself is narrowed too, unless it belongs to another user, such as the root of a
    Kubernetes volume, or has entries that are not from a node, such as /tmp.

    Raises:
        DirectoryUnwritable: see ``DataDirectory``.
    """
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    entries = list(path.iterdir())
    own = [entry for entry in entries if _OF_A_NODE.fullmatch(entry.name)]
    if found.st_uid == os.geteuid() and len(own) == len(entries):
        _narrow_one(path, found)
    elif mode & stat.S_IWOTH or (
        mode & stat.S_IWGRP and found.st_gid not in {os.getegid(), *os.getgroups()}
    ):
        raise DirectoryUnwritable(
            f"other users can write data directory {path} (mode {mode:04o}); set TASKRAFT_DATA_DIR "
            f"to a directory for this node alone, or run: chown {os.geteuid()} {path} && chmod 700 "
            f"{path}"
        )
    for entry in own:
        if not entry.is_symlink() and (inner := entry.stat()).st_uid == os.geteuid():
            _narrow_one(entry, inner)


def _narrow_one(path: Path, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & PRIVATE_UMASK:
        path.chmod(mode & ~PRIVATE_UMASK)
        _log.warning("group and others lose their access to %s (mode was %04o)", path, mode)
