"""Provide a store in memory for tests: a dictionary with sorted keys."""

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
        """Start with some pairs."""
        self.pairs = dict(pairs or {})
        self._keys: list[bytes] | None = None

    def get(self, key: bytes) -> bytes | None:
        """Return a value, or None."""
        return self.pairs.get(key)

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the value of each key, or None."""
        return [self.pairs.get(key) for key in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs in order; a write during the scan is a bug of the caller."""
        if self._keys is None:
            self._keys = sorted(self.pairs)
        keys = self._keys
        for place in range(bisect_left(keys, start), bisect_left(keys, stop)):
            assert keys is self._keys, "written while scanned"
            yield keys[place], self.pairs[keys[place]]

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs of ``scan`` in reverse order."""
        yield from reversed(list(self.scan(start, stop)))

    def write(self, writes: Iterable[Write]) -> None:
        """Apply writes in order."""
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
        """Return an independent copy, as a crash leaves it or a snapshot takes it."""
        return MemoryStore(self.pairs)
