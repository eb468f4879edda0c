"""Transfer a whole state as one sequence of bytes: the files of a frozen database.

Format 2: a line with the number of the format, number of files, name and size of each file, then
the contents of the files in that order. Numbers are varints. Every format begins with the line. The
transport adds its own checksums, and RocksDB has one in each block.

The files are sent unchanged, so neither side has work per task. On the sender, such work would slow
down the leader.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from taskraft_replication.core.types import LogIndex
from taskraft_replication.damage import Damage, DamagedPart
from taskraft_replication.errors import FormatUnknown, SnapshotBroken, SnapshotUnavailable
from taskraft_replication.storage.filesystem import sync_directory
from taskraft_service import wire
from taskraft_service.queue.persistence.record_digest import DIGESTS
from taskraft_service.storage.frozen_check import find_damage
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.storage.scrubber import Pause
from taskraft_service.storage.state_scrub import scrub_table
from taskraft_service.versions import Formats, SnapshotVersion, known_formats

MAGIC: Final = b"taskraft state "
"""Start of every snapshot; the number of the format and a line feed follow."""
FORMAT_DIGITS_MAX: Final = 5
NAME_BYTES_MAX: Final = 64
CHECK_CPU_SHARE: Final = 0.25
"""Maximum share of one core for the check of the tables that are sent."""
CACHE_BYTES: Final = 1 << 20
"""Memory for the blocks that are read for the digests."""
FILES_MAX: Final = 100_000
"""Maximum number of files; a database of several terabytes has far fewer."""

_NAME: Final = re.compile(
    r"\d+\.sst|\d+\.log|CURRENT|MANIFEST-\d+|OPTIONS-\d+|rocksdict-config\.json"
)
"""Files of a database. No other file is sent or accepted from a peer."""


class SnapshotDamaged(SnapshotBroken):
    """The content is not a snapshot or is cut off; none of it may be used."""


class SnapshotForeign(FormatUnknown):
    """The snapshot has a format that this release does not read; nothing was changed."""

    def __init__(self, found: int) -> None:
        super().__init__(
            f"the snapshot has format {found}, and this release reads "
            f"{known_formats(SnapshotVersion)}; use the release that wrote it, "
            f"see docs/upgrading.md"
        )


class SnapshotUnsupported(Exception):
    """The state is not in files, so it cannot be frozen; the text says where the state is."""


class RocksSnapshot:
    """Frozen state at ``index``; satisfies ``taskraft_replication.machine.SnapshotReader``.

    Each table is checked before its first byte is read, so that no damage is sent.

    Args:
        index: index of the last entry whose effects it contains.
        place: directory of the frozen database, owned by this object.
        formats: the format to write, and the version of the digests.
        report: receives damage, with the name of a file in ``place``.
    """

    def __init__(
        self,
        index: LogIndex,
        place: Path,
        formats: Formats,
        report: Callable[[Damage], object] = lambda _: None,
    ) -> None:
        self.index = index
        self._place = place
        self._report = report
        self.digest_version: Final = formats.digest
        self._checking = threading.Lock()
        self._digesting = threading.Lock()
        self._digested: tuple[RocksStore, Iterator[int]] | None = None
        """The opened state, and the steps that compute its digests; None: not begun."""
        self._closed = threading.Event()
        self._checked: set[int] = set()
        """Positions of the files that were checked."""
        names = sorted(path.name for path in place.iterdir() if _NAME.fullmatch(path.name))
        sizes = [(place / name).stat().st_size for name in names]
        head = bytearray(MAGIC + b"%d\n" % formats.snapshot + wire.varint(len(names)))
        for name, size in zip(names, sizes, strict=True):
            head += wire.varint(len(name)) + name.encode() + wire.varint(size)
        self._head = bytes(head)
        self._names = names
        self._starts = [len(head)]
        """Offset of each file in the content, then the end of the last file."""
        for size in sizes:
            self._starts.append(self._starts[-1] + size)

    @property
    def content_bytes(self) -> int:
        """Return the length of the content in bytes."""
        return self._starts[-1]

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``, fewer only at the end; on any worker thread.

        Raises:
            SnapshotBroken: the state has more files than ``build`` accepts, or a file is truncated.
            SnapshotUnavailable: a table is damaged.
        """
        if len(self._names) > FILES_MAX:
            raise SnapshotBroken(
                f"the state has {len(self._names)} files, and members accept {FILES_MAX}; raise "
                f"write_buffer_bytes, and restart this node to compact its files"
            )
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
        if at not in self._checked:
            self._check(at, path)
        size = min(size, self._starts[at + 1] - self._starts[at] - offset)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            part = os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)
        if not part:
            raise SnapshotBroken(f"{path} is shorter than when the snapshot was opened")
        return part

    def _check(self, at: int, path: Path) -> None:
        """Read all blocks of a table; RocksDB checks other files when the state is opened."""
        with self._checking:
            if at in self._checked:
                return
            if path.suffix == ".sst":
                pause = Pause(self._closed.wait, CHECK_CPU_SHARE)
                for step in scrub_table(path, self._starts[at + 1] - self._starts[at]):
                    if isinstance(step, int):
                        pause.after(step)
                    elif step is not None:  # None: an old table, which the receiver checks
                        damage = Damage(DamagedPart.STATE, path.name, *step)
                        self._report(damage)
                        raise SnapshotUnavailable(str(damage))
            self._checked.add(at)

    def digest_more(self, steps: int) -> Sequence[int] | None:
        """Continue to compute the digests of the records; on a worker thread.

        Args:
            steps: maximum number of steps, of about half a millisecond each.

        Returns:
            The digests; None: steps are missing.

        Raises:
            SnapshotUnavailable: the snapshot was closed meanwhile.
            StateDamaged: a block is damaged.
        """
        with self._digesting:
            if self._closed.is_set():
                raise SnapshotUnavailable("the snapshot was closed")
            if self._digested is None:
                store = RocksStore(self._place, CACHE_BYTES, CACHE_BYTES, read_only=True)
                self._digested = store, DIGESTS[self.digest_version](store.view().scan)
            store, more = self._digested
            try:
                for _ in range(steps):
                    next(more)
            except StopIteration as stop:
                store.close()
                found: Sequence[int] = stop.value
                return found
            return None

    def close(self) -> None:
        """Delete the frozen files, after the steps of ``digest_more`` that run now."""
        self._closed.set()
        with self._digesting:
            if self._digested is not None:
                self._digested[0].close()
            shutil.rmtree(self._place)


class _Stream:
    """Chunks read as one sequence of bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes in pieces.

        Raises:
            SnapshotDamaged: the stream ends too early.
        """
        while size:
            if not self._rest:
                self._rest = next(self._chunks, b"")
            if not self._rest:
                raise SnapshotDamaged("the snapshot ends too early")
            piece, self._rest = self._rest[:size], self._rest[size:]
            size -= len(piece)
            yield piece

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        return b"".join(self.pieces(size))

    def number(self, most: int) -> int:
        """Return the next varint, which must not exceed ``most``."""
        found = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        if found > most:
            raise SnapshotDamaged(
                f"the snapshot contains the number {found}; the maximum is {most}"
            )
        return found

    def end(self) -> None:
        """Check that no bytes follow the content."""
        if self._rest or next(self._chunks, b""):
            raise SnapshotDamaged("the snapshot has data after its end")


def _check_format(stream: _Stream) -> None:
    """Read the first line, which names the format.

    Raises:
        SnapshotForeign: this release does not read the format.
        SnapshotDamaged: the line is not that of a snapshot.
    """
    if stream.take(len(MAGIC)) != MAGIC:
        raise SnapshotDamaged("the content is not a snapshot of taskraft")
    digits = b""
    while (byte := stream.take(1)) != b"\n":
        digits += byte
        if not byte.isdigit() or len(digits) > FORMAT_DIGITS_MAX:
            raise SnapshotDamaged("the first line of the snapshot is damaged")
    if not digits or digits.startswith(b"0"):
        raise SnapshotDamaged("the first line of the snapshot is damaged")
    if int(digits) not in set(SnapshotVersion):
        raise SnapshotForeign(int(digits))


def build(place: Path, chunks: Iterable[bytes]) -> None:
    """Create a database directory from a snapshot, durably, and read all of its blocks.

    Raises:
        SnapshotForeign: this release does not read the format; there is no directory.
        SnapshotDamaged: the snapshot is corrupt, or a block fails its checksum; the directory may
            then be incomplete.
    """
    stream = _Stream(chunks)
    _check_format(stream)
    files: dict[str, int] = {}
    count = stream.number(FILES_MAX)
    for _ in range(count):
        name = stream.take(stream.number(NAME_BYTES_MAX)).decode(errors="replace")
        if not _NAME.fullmatch(name):
            raise SnapshotDamaged(f"{name!r} is not a file of a database")
        files[name] = stream.number(1 << 62)
    if len(files) != count:
        raise SnapshotDamaged("the snapshot contains a file twice")
    place.mkdir()
    for name, size in files.items():
        with (place / name).open("wb") as file:
            for piece in stream.pieces(size):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    stream.end()
    sync_directory(place)
    damage = find_damage(place)
    if damage is not None:
        raise SnapshotDamaged(f"the snapshot contains a damaged file: {damage}")
