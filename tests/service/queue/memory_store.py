"""A store in memory for tests: a dictionary with its keys in order."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from taskraft_service.queue.store.store import RangeDeletion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from taskraft_service.queue.store.store import Write


class MemoryStore:
    """An ordered map of bytes."""

    def __init__(self, pairs: dict[bytes, bytes] | None = None) -> None:
        """Begin with some pairs."""
        self.pairs = dict(pairs or {})
        self._keys: list[bytes] | None = None

    def get(self, key: bytes) -> bytes | None:
        """Return a value, or None."""
        return self.pairs.get(key)

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return values, each or None."""
        return [self.pairs.get(key) for key in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs in order; a scan that outlives a write is a mistake of the caller."""
        if self._keys is None:
            self._keys = sorted(self.pairs)
        keys = self._keys
        for place in range(bisect_left(keys, start), bisect_left(keys, stop)):
            assert keys is self._keys, "written while scanned"
            yield keys[place], self.pairs[keys[place]]

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs of ``scan``, the last one first."""
        yield from reversed(list(self.scan(start, stop)))

    def write(self, writes: Iterable[Write]) -> None:
        """Do writes in order."""
        self._keys = None
        for write in writes:
            if isinstance(write, RangeDeletion):
                for key in [key for key in self.pairs if write.start <= key < write.stop]:
                    del self.pairs[key]
            elif write[1] is None:
                self.pairs.pop(write[0], None)
            else:
                self.pairs[write[0]] = write[1]

    def copy(self) -> MemoryStore:
        """Return a copy that goes its own way: what a crash leaves, or a snapshot takes."""
        return MemoryStore(self.pairs)
