"""Receive the content of a snapshot into a file; give it to the state machine when it is whole.

A transfer that breaks off is continued where it ended, as long as this process lives and the sender
still has the same snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import google_crc32c

from taskraft_replication.errors import SnapshotBroken
from taskraft_replication.storage.filesystem import File, FileSystem

SNAPSHOT_DIRECTORY: Final = "incoming"
READ_BYTES: Final = 1 << 20


class IncomingSnapshot:
    """A file that grows piece by piece; each piece is checked against the content so far.

    Written by one stream at a time, each with a turn of its own: a stream that has broken without
    anybody noticing yet cannot disturb its successor.
    """

    def __init__(self, file: File, name: str) -> None:
        self.name = name
        self.size = 0
        """How far the content has come."""
        self._crc = 0
        self._file = file
        self._turn = 0
        self._is_sealed = False
        self._writing = threading.Lock()
        self.is_receiving = False
        """Whether a stream writes it."""

    def attach(self) -> int:
        """Begin the turn of a stream; return its number.

        Raises:
            SnapshotBroken: the content is whole already.
        """
        if self._is_sealed:
            raise SnapshotBroken("the snapshot is being installed")
        self._turn += 1
        self.is_receiving = True
        return self._turn

    def detach(self, turn: int) -> None:
        """End a turn before the content was whole."""
        if turn == self._turn and not self._is_sealed:
            self.is_receiving = False

    def write(self, turn: int, offset: int, data: bytes, crc32c: int) -> None:
        """Take the next piece; on any thread.

        Raises:
            SnapshotBroken: it does not follow on the piece before, is damaged, or its stream has
                been replaced.
        """
        with self._writing:
            if turn != self._turn:
                raise SnapshotBroken("another stream goes on with this snapshot")
            if offset != self.size:
                raise SnapshotBroken(f"piece at {offset} does not follow on {self.size}")
            crc = google_crc32c.extend(self._crc, data)
            if crc != crc32c:
                raise SnapshotBroken(f"piece at {offset} fails its checksum")
            if data:
                self._file.write(offset, data)
            self._crc = crc
            self.size += len(data)

    def complete(self, turn: int) -> None:
        """Note that the content is whole: no stream may begin any more."""
        assert turn == self._turn
        self._is_sealed = True

    def seal(self) -> None:
        """Make the content durable; on a worker thread."""
        self._file.sync()
        self._file.close()

    def close(self) -> None:
        """Give up; a stream that has not noticed yet cannot write any more.

        Its piece may be on the way to the disk on another thread: what it writes to must not be
        closed under it, for the descriptor may be another file's in the next moment.
        """
        with self._writing:
            self._turn += 1
            self._file.close()


class SnapshotInbox:
    """The incoming snapshots of a group: at most one is received or installed at a time.

    Nothing here survives a restart: a transfer that this interrupts begins anew.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = f"{directory}/{SNAPSHOT_DIRECTORY}"
        self._current: IncomingSnapshot | None = None
        fs.make_directory(self._directory)
        for name in fs.names(self._directory):
            fs.remove(f"{self._directory}/{name}")

    def begin(self, transfer_id: str) -> IncomingSnapshot:
        """Return where a content goes: what has come of it already, or an empty file.

        Raises:
            SnapshotBroken: another one is being received or installed.
        """
        if not transfer_id.isalnum():
            raise SnapshotBroken("the transfer has no proper name")
        current = self._current
        if current is not None:
            if current.name == transfer_id:
                return current
            if current.is_receiving:
                raise SnapshotBroken("another snapshot is being received")
            # Its sender has gone, or has a newer one.
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
        """Remove what has come of a content that cannot come whole, unless that is done already."""
        if incoming is self._current:
            incoming.close()
            self.discard(incoming.name)

    def remove(self, name: str) -> None:
        """Remove a content from disk; on a worker thread, before ``forget``."""
        self._fs.remove(self._path(name))

    def forget(self, name: str) -> None:
        """Let the next one come: this one was installed, refused or given up."""
        assert self._current is not None
        assert self._current.name == name
        self._current = None

    def discard(self, name: str) -> None:
        """Remove a content and forget it."""
        self.remove(name)
        self.forget(name)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
