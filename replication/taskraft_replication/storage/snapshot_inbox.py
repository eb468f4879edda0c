"""Store the content of an incoming snapshot in a file until the state machine reads it.

A broken transfer is continued at its offset, as long as this process runs and the sender has the
same snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import google_crc32c

from taskraft_replication.errors import SnapshotBroken, SnapshotBusy
from taskraft_replication.storage.filesystem import File, FileSystem

SNAPSHOT_DIRECTORY: Final = "incoming"
READ_BYTES: Final = 1 << 20


class IncomingSnapshot:
    """A file that grows piece by piece; each piece is checked against the checksum so far.

    One stream at a time writes the file, and is identified by its turn number. An older stream,
    whose end was not noticed yet, therefore cannot interfere.
    """

    def __init__(self, file: File, name: str) -> None:
        self.name = name
        self.size = 0
        """Number of bytes received so far."""
        self._crc = 0
        self._file = file
        self._turn = 0
        self._is_sealed = False
        self._writing = threading.Lock()
        self.is_receiving = False
        """Whether a stream is writing the file."""

    def attach(self) -> int:
        """Start the turn of a stream; return its number.

        Raises:
            SnapshotBusy: the content is already complete.
        """
        if self._is_sealed:
            raise SnapshotBusy("the snapshot is being installed")
        self._turn += 1
        self.is_receiving = True
        return self._turn

    def detach(self, turn: int) -> None:
        """Release the snapshot from a stream that stopped before the content was complete."""
        if turn == self._turn and not self._is_sealed:
            self.is_receiving = False

    def write(self, turn: int, offset: int, data: bytes, crc32c: int) -> None:
        """Write the next piece; on any thread.

        Raises:
            SnapshotBroken: the piece does not follow the previous one, or is damaged.
            SnapshotBusy: another stream has replaced the stream of the piece.
        """
        with self._writing:
            if turn != self._turn:
                raise SnapshotBusy("another stream continues this snapshot")
            if offset != self.size:
                raise SnapshotBroken(f"piece at byte {offset} does not follow byte {self.size}")
            crc = google_crc32c.extend(self._crc, data)
            if crc != crc32c:
                raise SnapshotBroken(f"piece at byte {offset} fails its checksum")
            if data:
                self._file.write(offset, data)
            self._crc = crc
            self.size += len(data)

    def complete(self, turn: int) -> None:
        """Record that the content is complete, so that no further stream can start."""
        assert turn == self._turn
        self._is_sealed = True

    def seal(self) -> None:
        """Make the content durable; on a worker thread."""
        self._file.sync()
        self._file.close()

    def close(self) -> None:
        """Close the file; a stream that still writes fails from now on.

        Waits for a piece that another thread is writing, because the file descriptor must not be
        closed and reused during the write.
        """
        with self._writing:
            self._turn += 1
            self._file.close()


class SnapshotInbox:
    """The incoming snapshots of a group: at most one is received or installed at a time.

    The content does not survive a restart; the transfer then restarts.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = f"{directory}/{SNAPSHOT_DIRECTORY}"
        self._current: IncomingSnapshot | None = None
        fs.make_directory(self._directory)
        for name in fs.names(self._directory):
            fs.remove(f"{self._directory}/{name}")

    def begin(self, transfer_id: str) -> IncomingSnapshot:
        """Return the file of a content, empty or with the bytes that were received before.

        Raises:
            SnapshotBroken: the transfer id is invalid.
            SnapshotBusy: another snapshot is being received or installed.
        """
        if not transfer_id.isalnum():
            raise SnapshotBroken(
                f"invalid transfer id {transfer_id!r}: letters and digits are allowed"
            )
        current = self._current
        if current is not None:
            if current.name == transfer_id:
                return current
            if current.is_receiving:
                raise SnapshotBusy("another snapshot is being received")
            # The previous sender has stopped, or now sends a newer snapshot.
            current.close()
            self.discard(current.name)
        self._current = IncomingSnapshot(self._fs.create(self._path(transfer_id)), transfer_id)
        return self._current

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a sealed snapshot."""
        file = self._fs.open(self._path(name))
        try:
            offset = 0
            while data := file.read(offset, READ_BYTES):
                yield data
                offset += len(data)
        finally:
            file.close()

    def give_up(self, incoming: IncomingSnapshot) -> None:
        """Delete a content that cannot be completed, unless it was deleted already."""
        if incoming is self._current:
            incoming.close()
            self.discard(incoming.name)

    def remove(self, name: str) -> None:
        """Delete a content from disk; on a worker thread, before ``forget``."""
        self._fs.remove(self._path(name))

    def forget(self, name: str) -> None:
        """Allow the next snapshot, because this snapshot was installed, refused or given up."""
        assert self._current is not None
        assert self._current.name == name
        self._current = None

    def discard(self, name: str) -> None:
        """Delete a content and allow the next snapshot."""
        self.remove(name)
        self.forget(name)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
