"""Receive the content of a snapshot into a file; give it to the state machine when it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import google_crc32c

from replication.errors import SnapshotBroken
from replication.storage.filesystem import File, FileSystem

SNAPSHOT_DIRECTORY: Final = "incoming"
READ_BYTES: Final = 1 << 20


class IncomingSnapshot:
    """A file that grows piece by piece; each piece is checked against the content so far."""

    def __init__(self, file: File, name: str) -> None:
        self.name = name
        self.size = 0
        self._crc = 0
        self._file = file

    def write(self, offset: int, data: bytes, crc32c: int) -> None:
        """Take the next piece.

        Raises:
            SnapshotBroken: it does not follow on the piece before, or is damaged.
        """
        if offset != self.size:
            raise SnapshotBroken(f"piece at {offset} does not follow on {self.size}")
        self._crc = google_crc32c.extend(self._crc, data)
        if self._crc != crc32c:
            raise SnapshotBroken(f"piece at {offset} fails its checksum")
        if data:
            self._file.write(offset, data)
        self.size += len(data)

    def seal(self) -> None:
        """Make the content durable; called on the storage worker."""
        self._file.sync()
        self._file.close()

    def close(self) -> None:
        """Give up."""
        self._file.close()


class SnapshotInbox:
    """The incoming snapshots of a group: at most one is received or installed at a time.

    Nothing here survives a restart: a transfer that was interrupted begins anew.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = f"{directory}/{SNAPSHOT_DIRECTORY}"
        self._current: str | None = None
        fs.make_directory(self._directory)
        for name in fs.names(self._directory):
            fs.remove(f"{self._directory}/{name}")

    def begin(self, transfer_id: str) -> IncomingSnapshot:
        """Prepare for a content.

        Raises:
            SnapshotBroken: another one is being received or installed.
        """
        if self._current is not None:
            raise SnapshotBroken("another snapshot is being received")
        if not transfer_id.isalnum():
            raise SnapshotBroken("the transfer has no proper name")
        self._current = transfer_id
        name = f"{self._directory}/{transfer_id}"
        return IncomingSnapshot(self._fs.create(name), transfer_id)

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a sealed snapshot."""
        file = self._fs.open(f"{self._directory}/{name}")
        try:
            offset = 0
            while data := file.read(offset, READ_BYTES):
                yield data
                offset += len(data)
        finally:
            file.close()

    def discard(self, name: str) -> None:
        """Remove a snapshot that was installed, refused or given up."""
        if self._current == name:
            self._fs.remove(f"{self._directory}/{name}")
            self._current = None
