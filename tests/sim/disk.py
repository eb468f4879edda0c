"""Simulate a disk in memory that loses unsynced data in a power loss; implements ``FileSystem``.

A sync of the file makes its content durable, a sync of the directory its names. A power loss keeps
a random part of the rest: any subset of sectors of each file's writes, and any prefix of a
directory's changes. A crash of the process alone keeps everything, because the page cache survives
it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

SECTOR_BYTES = 512
SEGMENTS = ".log"
"""Part of the names of log segments."""


class Crashed(Exception):
    """The process ended in the middle of a disk operation."""


class ReadFailed(OSError):
    """The simulated disk cannot read a sector."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, "the simulated disk failed to read")


class Inode:
    """The content of a file: the durable content, and the content that programs read."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.current = bytearray()
        self.writes: list[tuple[int, bytes]] = []
        self.sizes: list[int] = []
        """Sizes set by truncation or growth since the last sync."""
        self.unwritten: list[tuple[int, int]] = []
        """Begin and end of writes that a failed sync has marked as clean: no later sync writes
        them."""

    def write(self, offset: int, data: bytes) -> None:
        if len(self.current) < offset + len(data):
            self.resize(offset + len(data))
        self.current[offset : offset + len(data)] = data
        self.writes.append((offset, data))

    def resize(self, size: int) -> None:
        _resize(self.current, size)
        self.sizes.append(size)

    def sync(self) -> None:
        before, self.durable = self.durable, bytearray(self.current)
        if self.unwritten:
            _resize(before, len(self.current))
            for begin, end in self.unwritten:
                self.durable[begin:end] = before[begin:end]
            for offset, data in self.writes:
                end = offset + len(data)
                self.durable[offset:end] = self.current[offset:end]
        self.writes.clear()
        self.sizes.clear()

    def fail_sync(self) -> None:
        """Model Linux after a failed fsync: pages count as clean, but are not on the disk."""
        self.unwritten += [(offset, offset + len(data)) for offset, data in self.writes]
        self.writes.clear()
        self.sizes.clear()

    def copy(self) -> Inode:
        """Return a copy with the same content and the same synced part."""
        other = Inode()
        other.durable, other.current = bytearray(self.durable), bytearray(self.current)
        other.writes, other.sizes = list(self.writes), list(self.sizes)
        other.unwritten = list(self.unwritten)
        return other

    def lose_power(self, rng: Random) -> None:
        """Keep the synced content and a random part of the rest."""
        kept = self.durable
        luck = rng.choice((0.0, 0.5, 0.9, 1.0))
        for size in self.sizes[: rng.randrange(len(self.sizes) + 1)]:
            _resize(kept, size)
        for offset, data in self.writes:
            for begin, end in _sectors(offset, len(data)):
                if rng.random() < luck and end <= len(kept):
                    kept[begin:end] = data[begin - offset : end - offset]
        self.current = bytearray(kept)
        self.writes.clear()
        self.sizes.clear()
        self.unwritten.clear()


@dataclass(slots=True, frozen=True)
class Change:
    """A name added to or removed from a directory; ``old`` is the previous name after a rename."""

    name: str
    inode: Inode
    old: str = ""
    is_removal: bool = False

    def make(self, names: dict[str, Inode]) -> None:
        """Apply the change to ``names``."""
        names.pop(self.old, None)
        if self.is_removal:
            names.pop(self.name, None)
        else:
            names[self.name] = self.inode


class SimFile:
    """A ``File`` on a ``SimDisk``."""

    def __init__(self, disk: SimDisk, name: str, inode: Inode) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode

    def read(self, offset: int, size: int) -> bytes:
        self._disk.read_sector()
        return bytes(self._inode.current[offset : offset + size])

    def write(self, offset: int, data: bytes) -> None:
        self._disk.operate()
        self._disk.need_room(self._name)
        self._inode.write(offset, data)

    def write_through(self, offset: int, data: bytes) -> None:
        self.write(offset, data)
        self.sync()

    def sync(self) -> None:
        self._disk.operate()
        if self._disk.failing_syncs:
            self._disk.failing_syncs -= 1
            self._inode.fail_sync()
            raise OSError(errno.EIO, "the simulated disk failed to sync")
        self._inode.sync()

    def truncate(self, size: int) -> None:
        self._disk.operate()
        self._inode.resize(size)

    def allocate(self, size: int) -> None:
        self._disk.operate()
        self._disk.need_room(self._name)
        if len(self._inode.current) < size:
            self._inode.resize(size)

    def close(self) -> None:
        pass


class SimDisk:
    """The disk of one member."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._changes: dict[str, list[Change]] = {}
        self._directories: set[str] = {""}
        self.operations = 0
        self.crash_at: int | None = None
        """Number of the operation at which the process ends; None: no crash."""
        self.failing_syncs = 0
        """Number of the next syncs that fail; later syncs succeed but write nothing (fsyncgate)."""
        self.lies = False
        """Whether syncs report success and keep nothing: a power loss then loses all files."""
        self.failing_reads = 0
        """Number of the next reads of the member that fail."""
        self._is_member_reading = False
        self.full_part: str | None = None
        """Files whose name contains this text get no disk space; None: there is free space."""
        self._watch: Callable[[], object] | None = None

    def copy(self, rng: Random) -> SimDisk:
        """Return an independent copy of the disk."""
        other = SimDisk(rng)
        copies = {
            inode: inode.copy()
            for inode in dict.fromkeys(
                [
                    *self._names.values(),
                    *self._durable_names.values(),
                    *(each.inode for changes in self._changes.values() for each in changes),
                ]
            )
        }
        other._names = {name: copies[inode] for name, inode in self._names.items()}
        other._durable_names = {name: copies[each] for name, each in self._durable_names.items()}
        other._changes = {
            directory: [replace(each, inode=copies[each.inode]) for each in changes]
            for directory, changes in self._changes.items()
        }
        other._directories = set(self._directories)
        return other

    def watch(self, then: Callable[[], object] | None) -> None:
        """Call ``then`` before each operation that changes the disk; None removes the callback."""
        self._watch = then

    def need_room(self, name: str) -> None:
        """Fail with "disk full"; a part of the write may have taken effect."""
        if self.full_part is not None and self.full_part in name:
            raise OSError(errno.ENOSPC, "the simulated disk is full")

    @contextmanager
    def read_by_member(self, failed: Callable[[OSError], None]) -> Iterator[None]:
        """Let planned reads fail inside the context; ``failed`` is called with the error.

        Reads of the simulation itself never fail.
        """
        error: OSError | None = None
        self._is_member_reading = True
        try:
            yield
        except ReadFailed as raised:
            error = raised
        finally:
            self._is_member_reading = False
        if error is not None:
            failed(error)

    def read_sector(self) -> None:
        """Raise ``ReadFailed`` if this read of the member is planned to fail."""
        if self._is_member_reading and self.failing_reads:
            self.failing_reads -= 1
            raise ReadFailed

    def operate(self) -> None:
        """Count an operation that changes the disk; the process may end here."""
        self.operations += 1
        if self.crash_at is not None and self.operations >= self.crash_at:
            raise Crashed
        if self._watch is not None:
            self._watch()

    def lose_power(self) -> None:
        """Keep only durable data, and a random part of the rest; a disk that lies keeps nothing."""
        if self.lies:
            self._names, self._durable_names, self._changes = {}, {}, {}
            return
        for inode in dict.fromkeys([*self._names.values(), *self._durable_names.values()]):
            inode.lose_power(self._rng)
        for changes in self._changes.values():
            for change in changes[: self._rng.randrange(len(changes) + 1)]:
                change.make(self._durable_names)
        self._changes.clear()
        self._names = dict(self._durable_names)

    def recover(self) -> None:
        """Let a new process use the disk after a crash."""
        self.crash_at = None
        self.failing_syncs = 0
        self.failing_reads = 0
        self.full_part = None

    def flip_bit(self, suffix: str) -> str | None:
        """Flip a bit of the written part of a file whose name ends in ``suffix``."""
        names = sorted(
            name
            for name, inode in self._names.items()
            if name.endswith(suffix) and any(inode.current)
        )
        if not names:
            return None
        inode = self._names[self._rng.choice(names)]
        written = len(inode.current.rstrip(b"\0"))
        place = self._rng.randrange(written)
        bit = 1 << self._rng.randrange(8)
        inode.current[place] ^= bit
        if place < len(inode.durable):
            inode.durable[place] ^= bit
        return f"byte {place} of {written}"

    def lose_file(self, suffix: str) -> None:
        """Lose a file whose name ends in ``suffix``, if there is one."""
        names = sorted(name for name in self._names if name.endswith(suffix))
        if names:
            lost = self._rng.choice(names)
            self._names.pop(lost)
            self._durable_names.pop(lost, None)

    def wipe(self, suffix: str, after: int) -> None:
        """Lose the content behind offset ``after`` of the files whose names end in ``suffix``."""
        for name, inode in self._names.items():
            if name.endswith(suffix):
                inode.current[after:] = bytes(len(inode.current) - after)

    # FileSystem

    def exists(self, name: str) -> bool:
        return name in self._names or name in self._directories

    def names(self, directory: str) -> list[str]:
        prefix = f"{directory}/"
        rest = (name[len(prefix) :] for name in self._names if name.startswith(prefix))
        return sorted(name for name in rest if "/" not in name)

    def make_directory(self, directory: str) -> None:
        self._directories.add(directory)

    def create(self, name: str) -> SimFile:
        self.operate()
        inode = Inode()
        self._change(Change(name, inode))
        return SimFile(self, name, inode)

    def open(self, name: str) -> SimFile:
        if name not in self._names:
            raise FileNotFoundError(name)
        return SimFile(self, name, self._names[name])

    def read(self, name: str) -> bytes:
        self.read_sector()
        if name not in self._names:
            raise FileNotFoundError(name)
        return bytes(self._names[name].current)

    def rename(self, old: str, new: str) -> None:
        self.operate()
        self._change(Change(new, self._names[old], old=old))

    def remove(self, name: str) -> None:
        self.operate()
        if name not in self._names:
            raise FileNotFoundError(name)
        self._change(Change(name, self._names[name], is_removal=True))

    def sync_directory(self, directory: str) -> None:
        self.operate()
        for change in self._changes.pop(directory, []):
            change.make(self._durable_names)

    def _change(self, change: Change) -> None:
        change.make(self._names)
        self._changes.setdefault(change.name.rpartition("/")[0], []).append(change)


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _sectors(offset: int, size: int) -> list[tuple[int, int]]:
    """Return the sectors of a write; a disk writes each sector as a whole."""
    first = offset // SECTOR_BYTES * SECTOR_BYTES
    return [
        (max(begin, offset), min(begin + SECTOR_BYTES, offset + size))
        for begin in range(first, offset + size, SECTOR_BYTES)
    ]
