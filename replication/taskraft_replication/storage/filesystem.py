"""Define the file system interface of the storage, so that tests can simulate a disk.

Names are relative to the data directory and use ``/``. Nothing is durable before a sync: file
content before ``sync`` of the file; new, renamed or removed names before ``sync_directory``.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final, Protocol

from taskraft_replication.storage.descriptors import RESERVE

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_SUCH_CALL: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})


def is_out_of_room(error: OSError) -> bool:
    """Return whether the error means that the disk is full."""
    return error.errno in _NO_ROOM


class File(Protocol):
    """An open file; every call may raise ``OSError``."""

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer at the end."""

    def write(self, offset: int, data: bytes) -> None:
        """Write all of ``data`` at ``offset``."""

    def write_through(self, offset: int, data: bytes) -> None:
        """Write all of ``data`` at ``offset`` and make ``data`` durable."""

    def sync(self) -> None:
        """Make all content durable."""

    def truncate(self, size: int) -> None:
        """Truncate the file to ``size`` bytes."""

    def allocate(self, size: int) -> None:
        """Allocate blocks up to ``size``; unwritten bytes read as zeros."""

    def close(self) -> None:
        """Close the file, without a sync."""


class FileSystem(Protocol):
    """A directory tree; every call may raise ``OSError``."""

    def exists(self, name: str) -> bool:
        """Return whether a file or directory of this name exists."""

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory, relative to the directory."""

    def make_directory(self, directory: str) -> None:
        """Create a directory with its parents if it does not exist; durable at once."""

    def create(self, name: str) -> File:
        """Create an empty file; an existing file of that name is replaced."""

    def open(self, name: str) -> File:
        """Open an existing file for reading and writing."""

    def read(self, name: str) -> bytes:
        """Return a whole file."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing ``new``."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def sync_directory(self, directory: str) -> None:
        """Make the names in a directory durable."""


class DiskFile:
    """A ``File`` of the operating system; its errors name the file, for operators."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: Path, flags: int) -> None:
        self._path = path
        self._descriptor = RESERVE.open(path, flags)

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer at the end."""
        try:
            return os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise self._named(error) from error

    def write(self, offset: int, data: bytes) -> None:
        """Write all of ``data`` at ``offset``.

        A short write can happen, usually on a nearly full disk; the rest is then written.
        """
        try:
            written = os.pwrite(self._descriptor, data, offset)
            while written < len(data):
                written += os.pwrite(self._descriptor, memoryview(data)[written:], offset + written)
        except OSError as error:
            raise self._named(error) from error

    def write_through(self, offset: int, data: bytes) -> None:
        """Write all of ``data`` at ``offset`` and make ``data`` durable.

        One system call does both where the system can. A thread needs the interpreter lock after
        each system call, and waits for a busy event loop to release the lock.
        """
        try:
            written = os.pwritev(self._descriptor, [data], offset, os.RWF_DSYNC)
        except OSError as error:
            if error.errno not in _NO_SUCH_CALL:
                raise self._named(error) from error
            written = 0
        if written < len(data):
            self.write(offset + written, data[written:])
            self.sync()

    def sync(self) -> None:
        """Make all content durable.

        ``fdatasync`` also writes the file size, which is needed for reading.
        """
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._named(error) from error

    def truncate(self, size: int) -> None:
        """Truncate the file to ``size`` bytes."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise self._named(error) from error

    def allocate(self, size: int) -> None:
        """Allocate blocks up to ``size``; unwritten bytes read as zeros."""
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            raise self._named(error) from error

    def close(self) -> None:
        """Close the file, without a sync."""
        os.close(self._descriptor)

    def _named(self, error: OSError) -> OSError:
        """Return ``error`` with the file's name, which calls on descriptors do not include."""
        return OSError(error.errno, error.strerror, str(self._path))


class DiskFileSystem:
    """A ``FileSystem`` below one directory of the operating system."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def exists(self, name: str) -> bool:
        """Return whether a file or directory of this name exists."""
        return (self._root / name).exists()

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory, relative to the directory."""
        return sorted(path.name for path in (self._root / directory).iterdir())

    def make_directory(self, directory: str) -> None:
        """Create a directory with its parents if it does not exist; durable at once."""
        path = self._root / directory
        if path.is_dir():
            return
        path.mkdir(mode=0o750, parents=True)
        parent = path.parent
        while parent != self._root.parent:
            sync_directory(parent)
            parent = parent.parent

    def create(self, name: str) -> File:
        """Create an empty file; an existing file of that name is replaced."""
        return DiskFile(self._root / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def open(self, name: str) -> File:
        """Open an existing file for reading and writing."""
        return DiskFile(self._root / name, os.O_RDWR)

    def read(self, name: str) -> bytes:
        """Return a whole file."""
        with os.fdopen(RESERVE.open(self._root / name, os.O_RDONLY), "rb") as file:
            return file.read()

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing ``new``."""
        (self._root / old).rename(self._root / new)

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self._root / name).unlink()

    def sync_directory(self, directory: str) -> None:
        """Make the names in a directory durable."""
        sync_directory(self._root / directory)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = RESERVE.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)
