"""A state machine whose whole state is a digest of what was applied, and where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from replication.core.types import Entry, LogIndex


class FrozenDigest:
    """A snapshot of a ``DigestMachine``, in several pieces."""

    def __init__(self, index: LogIndex, digest: bytes) -> None:
        self.index = index
        self._content = digest

    def read(self, offset: int, size: int) -> bytes:
        return self._content[offset : offset + size]

    def close(self) -> None:
        pass


class DigestMachine:
    """Equal digests at equal indexes mean equal histories.

    Effects are durable only after ``flush_durably``, as with a RocksDB without its log.
    """

    def __init__(self, durable: tuple[LogIndex, bytes] = (LogIndex(0), bytes(16))) -> None:
        self.applied_index, self.digest = durable
        self.durable = durable

    @property
    def durable_index(self) -> LogIndex:
        return self.durable[0]

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        results: list[object] = []
        for entry in entries:
            assert entry.index == self.applied_index + 1
            self.applied_index = entry.index
            change = blake2b(self.digest, digest_size=16)
            change.update(b"%d %d " % (entry.index, entry.term))
            change.update(entry.data)
            self.digest = change.digest()
            results.append(self.digest)
        return results

    def flush_durably(self) -> LogIndex:
        self.durable = (self.applied_index, self.digest)
        return self.applied_index

    def open_snapshot(self) -> FrozenDigest:
        return FrozenDigest(self.applied_index, self.digest)

    @property
    def snapshot_index(self) -> LogIndex:
        return self.applied_index

    def stage_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> StagedDigest:
        return StagedDigest(self, index, b"".join(chunks))

    def adopted(self) -> None:
        """Notice that a snapshot took the place of the state."""


class StagedDigest:
    """A snapshot beside the state of a ``DigestMachine``."""

    def __init__(self, machine: DigestMachine, index: LogIndex, digest: bytes) -> None:
        assert len(digest) == 16
        self._machine = machine
        self._state = (index, digest)

    def switch(self) -> None:
        self._machine.durable = self._state

    def adopt(self) -> None:
        self._machine.applied_index, self._machine.digest = self._state
        self._machine.adopted()

    def discard(self) -> None:
        pass
