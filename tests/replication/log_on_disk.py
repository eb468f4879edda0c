"""Open the storage of a group in a directory, with helpers for tests."""

from __future__ import annotations

from pathlib import Path

from taskraft_replication.core.types import ConfState, Entry, HardState, LogIndex, MemberId, Term
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.metadata import Identity

FOUNDERS = ConfState(voters=(MemberId(1), MemberId(2), MemberId(3)))
SEGMENT_BYTES = 1 << 13
SALT = 4711


def config(
    cluster_id: str = "test", member_id: int = 1, name: str = "", **settings
) -> StorageConfig:
    return StorageConfig(
        Identity(cluster_id, MemberId(member_id), 0, name),
        **{"founders": FOUNDERS, "salt": SALT, "segment_bytes": SEGMENT_BYTES, **settings},
    )


def entry(index: int, term: int = 1, data: bytes = b"") -> Entry:
    return Entry(Term(term), LogIndex(index), data or b"entry %d of %d" % (index, term))


class Log:
    """The storage of a group, with helpers for tests."""

    def __init__(self, path: Path, applied: int = 1, **settings) -> None:
        self.path = path
        self.term = 1
        self.open(applied, **settings)

    def open(self, applied: int = 1, **settings) -> GroupStorage:
        """Open the existing files, as after a kill: nothing was closed before."""
        self.storage = GroupStorage.open(
            DiskFileSystem(self.path), config(**settings), LogIndex(applied)
        )
        return self.storage

    def append(self, *entries: Entry, commit: int = 1) -> None:
        term = entries[-1].term
        hard_state = None if term == self.term else HardState(term, MemberId(1), LogIndex(1))
        self.term = term
        self.storage.store(hard_state, entries, LogIndex(commit))
        self.storage.view.publish(entries)

    def append_each(self, first: int, last: int, term: int = 1) -> None:
        """Append each entry in a batch of its own."""
        for index in range(first, last + 1):
            self.append(entry(index, term))

    def read(self) -> list[Entry]:
        view = self.storage.view
        found: list[Entry] = []
        while view.first_index() + len(found) <= view.last_index():
            found += view.entries(
                LogIndex(view.first_index() + len(found)), LogIndex(view.last_index() + 1), 500
            )
        return found

    @property
    def segments(self) -> list[Path]:
        return sorted((self.path / "raft-0" / "log").glob("*.log"))

    def end(self) -> int:
        """Return the end of the last record of the last segment."""
        return self.storage._log.segments[-1].end

    def forget_mark(self) -> None:
        """Reset the mark to its first value, as if no later mark had been written."""
        mark = self.path / "raft-0" / "mark"
        mark.write_bytes(self.first_mark)

    def remember_mark(self) -> None:
        self.first_mark = (self.path / "raft-0" / "mark").read_bytes()

    def renewed_by_open(self) -> set[Path]:
        """Open the existing files; return the segments that recovery has rewritten."""
        before = {path: path.stat().st_ino for path in self.segments}
        self.open()
        return {path for path in self.segments if path.stat().st_ino != before.get(path)}

    def damage(self, offset: int, segment: int = -1) -> None:
        """Flip one bit."""
        path = self.segments[segment]
        content = bytearray(path.read_bytes())
        content[offset] ^= 0x10
        path.write_bytes(content)
