"""Wrap a file system with a failpoint before and after each operation that changes the disk."""

from __future__ import annotations

from typing import Final

from taskraft_replication.storage.checked_file import TEMPORARY_SUFFIX
from taskraft_replication.storage.filesystem import File, FileSystem
from taskraft_replication.storage.segment import SUFFIX
from taskraft_replication.storage.snapshot_inbox import SNAPSHOT_DIRECTORY
from tests.failpoints.failpoints import STEPS, Failpoints

_SUBJECTS: Final = {"current": "pointer", "directory": "directory_id"}
"""Names in ``STEPS`` of files whose own name differs."""


def subject_of(name: str) -> str:
    """Return the name of a file in ``STEPS``."""
    directory, _, leaf = name.rpartition("/")
    if directory.rpartition("/")[2] == SNAPSHOT_DIRECTORY:
        return "incoming"
    kind = leaf.removesuffix(TEMPORARY_SUFFIX)
    if kind.endswith(SUFFIX):
        return "append" if kind == leaf else "segment"
    subject = _SUBJECTS.get(kind, kind)
    assert subject in STEPS, f"{name} has no steps in STEPS"
    return subject


class FailingFile:
    """A ``File`` with failpoints."""

    def __init__(self, file: File, subject: str, failpoints: Failpoints) -> None:
        self._file = file
        self.subject = subject
        """Name of the file in ``STEPS``; it changes when a temporary file gets its final name."""
        self._failpoints = failpoints

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer at the end."""
        return self._file.read(offset, size)

    def write(self, offset: int, data: bytes) -> None:
        """Write all of ``data`` at ``offset``."""
        with self._failpoints.around(self.subject, "write"):
            self._file.write(offset, data)

    def write_through(self, offset: int, data: bytes) -> None:
        """Write all of ``data`` at ``offset`` and make ``data`` durable, in two steps."""
        self.write(offset, data)
        self.sync()

    def sync(self) -> None:
        """Make all content durable."""
        with self._failpoints.around(self.subject, "sync"):
            self._file.sync()

    def truncate(self, size: int) -> None:
        """Truncate the file to ``size`` bytes."""
        with self._failpoints.around(self.subject, "truncate"):
            self._file.truncate(size)

    def allocate(self, size: int) -> None:
        """Allocate blocks up to ``size``; unwritten bytes read as zeros."""
        with self._failpoints.around(self.subject, "allocate"):
            self._file.allocate(size)

    def close(self) -> None:
        """Close the file, without a sync."""
        self._file.close()


class FailingFileSystem:
    """A ``FileSystem`` with failpoints."""

    def __init__(self, fs: FileSystem, failpoints: Failpoints) -> None:
        self._fs = fs
        self._failpoints = failpoints
        self._changed: dict[str, str] = {}
        """Last change in each directory; the next sync of the directory counts as a step of this
        change."""
        self._prepared: dict[str, FailingFile] = {}
        """Files that were created under a temporary name."""

    def exists(self, name: str) -> bool:
        """Return whether a file or directory of this name exists."""
        return self._fs.exists(name)

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory, relative to the directory."""
        return self._fs.names(directory)

    def make_directory(self, directory: str) -> None:
        """Create a directory with its parents if it does not exist; durable at once."""
        if not self._fs.exists(directory):
            with self._failpoints.around("directory", "make"):
                self._fs.make_directory(directory)

    def create(self, name: str) -> File:
        """Create an empty file; an existing file of that name is replaced."""
        subject = self._touch(name, subject_of(name))
        with self._failpoints.around(subject, "create"):
            file = FailingFile(self._fs.create(name), subject, self._failpoints)
        if name.endswith(TEMPORARY_SUFFIX):
            self._prepared[name] = file
        return file

    def open(self, name: str) -> File:
        """Open an existing file for reading and writing."""
        return FailingFile(self._fs.open(name), subject_of(name), self._failpoints)

    def read(self, name: str) -> bytes:
        """Return a whole file."""
        return self._fs.read(name)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing ``new``."""
        with self._failpoints.around(self._touch(old, subject_of(old)), "rename"):
            self._fs.rename(old, new)
        prepared = self._prepared.pop(old, None)
        if prepared is not None:
            prepared.subject = subject_of(new)

    def remove(self, name: str) -> None:
        """Remove a file."""
        subject = subject_of(name)
        subject = "trim" if subject in {"append", "segment"} else subject
        with self._failpoints.around(self._touch(name, subject), "remove"):
            self._fs.remove(name)

    def sync_directory(self, directory: str) -> None:
        """Make the names in a directory durable."""
        with self._failpoints.around(self._changed[directory], "sync_directory"):
            self._fs.sync_directory(directory)

    def _touch(self, name: str, subject: str) -> str:
        self._changed[name.rpartition("/")[0]] = subject
        return subject
