"""Carry a whole state as one sequence of bytes: the files of a frozen database.

Format: the magic, the number of files, and for each of them its name and size; then their contents
in that order. Numbers are varints. The transport adds checksums of its own, and RocksDB has one in
each block.

The files travel as they are. To copy them costs no work per task, neither here, where it would
compete with the work of a leader, nor there.
"""

from __future__ import annotations

import os
import re
import shutil
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from taskraft_replication.core.types import LogIndex
from taskraft_replication.errors import SnapshotBroken
from taskraft_replication.storage.filesystem import sync_directory
from taskraft_service import wire

MAGIC: Final = b"taskraft state 2\n"
NAME_BYTES_MAX: Final = 64
FILES_MAX: Final = 100_000
"""Far more than a database of some terabytes has."""

_NAME: Final = re.compile(
    r"\d+\.sst|\d+\.log|CURRENT|MANIFEST-\d+|OPTIONS-\d+|rocksdict-config\.json"
)
"""The files that make a database. Nothing else is sent, and nothing else is taken from a peer."""


class SnapshotDamaged(SnapshotBroken):
    """The content is not a snapshot, or ends too early; nothing of it may be used."""


class RocksSnapshot:
    """A frozen state at ``index``; satisfies ``taskraft_replication.machine.SnapshotReader``.

    Args:
        index: the last entry whose effects it holds.
        place: the frozen database, which belongs to this object.
    """

    def __init__(self, index: LogIndex, place: Path) -> None:
        self.index = index
        self._place = place
        names = sorted(path.name for path in place.iterdir() if _NAME.fullmatch(path.name))
        sizes = [(place / name).stat().st_size for name in names]
        head = bytearray(MAGIC + wire.varint(len(names)))
        for name, size in zip(names, sizes, strict=True):
            head += wire.varint(len(name)) + name.encode() + wire.varint(size)
        self._head = bytes(head)
        self._names = names
        self._starts = [len(head)]
        """Where in the content each file begins, and where the last one ends."""
        for size in sizes:
            self._starts.append(self._starts[-1] + size)

    def read(self, offset: int, size: int) -> bytes:
        """See ``SnapshotReader``."""
        parts = [self._head[offset : offset + size]]
        missing = min(offset + size, self._starts[-1]) - offset - len(parts[0])
        offset += len(parts[0])
        while missing > 0:
            at = bisect_right(self._starts, offset) - 1
            part = self._read_file(at, offset - self._starts[at], missing)
            parts.append(part)
            offset += len(part)
            missing -= len(part)
        return b"".join(parts)

    def _read_file(self, at: int, offset: int, size: int) -> bytes:
        path = self._place / self._names[at]
        size = min(size, self._starts[at + 1] - self._starts[at] - offset)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            part = os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)
        if not part:
            raise SnapshotBroken(f"{path} has become shorter")
        return part

    def close(self) -> None:
        """Remove the frozen files."""
        shutil.rmtree(self._place)


class _Stream:
    """Chunks as one sequence of bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes in pieces.

        Raises:
            SnapshotDamaged: there are not so many.
        """
        while size:
            if not self._rest:
                self._rest = next(self._chunks, b"")
            if not self._rest:
                raise SnapshotDamaged("the snapshot is cut off")
            piece, self._rest = self._rest[:size], self._rest[size:]
            size -= len(piece)
            yield piece

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        return b"".join(self.pieces(size))

    def number(self, most: int) -> int:
        """Return the varint that comes next, which is not above ``most``."""
        found = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        if found > most:
            raise SnapshotDamaged(f"{found} where at most {most} may be")
        return found

    def end(self) -> None:
        """Make sure that nothing follows."""
        if self._rest or next(self._chunks, b""):
            raise SnapshotDamaged("something follows on the snapshot")


def build(place: Path, chunks: Iterable[bytes]) -> None:
    """Make the directory of a database from a snapshot, durably.

    Raises:
        SnapshotDamaged: the snapshot is; the directory is of no use then.
    """
    stream = _Stream(chunks)
    if stream.take(len(MAGIC)) != MAGIC:
        raise SnapshotDamaged("not a snapshot of this version of taskraft")
    files: dict[str, int] = {}
    count = stream.number(FILES_MAX)
    for _ in range(count):
        name = stream.take(stream.number(NAME_BYTES_MAX)).decode(errors="replace")
        if not _NAME.fullmatch(name):
            raise SnapshotDamaged(f"{name!r} is no file of a database")
        files[name] = stream.number(1 << 62)
    if len(files) != count:
        raise SnapshotDamaged("a file comes twice")
    place.mkdir()
    for name, size in files.items():
        with (place / name).open("wb") as file:
            for piece in stream.pieces(size):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    stream.end()
    sync_directory(place)
