"""An in-memory store, for temporary tubes and for tests of tube drivers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from sortedcontainers import SortedDict

from taskraft_service.queue.store.store import RangeDeletion, Write

PAIR_BYTES: Final = 192
"""Overhead of a pair in bytes: two objects, a list entry and a table entry."""


class MemoryView:
    """A copy of the pairs of a store; satisfies ``machine.open_database.FixedState``."""

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._pairs = pairs

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs whose keys begin with a prefix, in order."""
        return (pair for pair in self._pairs if pair[0].startswith(prefix))


class MemoryStore:
    """Ordered map of bytes; satisfies ``taskraft_service.queue.store.store.Store``."""

    def __init__(self) -> None:
        """Start without pairs."""
        self._pairs: SortedDict[bytes, bytes] = SortedDict()
        self._content_bytes = 0
        self._prepared: list[Write] = []

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the pairs, in bytes."""
        return self._content_bytes + PAIR_BYTES * len(self._pairs)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        value: bytes | None = self._pairs.get(key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the value of each key, or None."""
        return [self._pairs.get(key) for key in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs with ``start <= key < stop`` in order of the keys."""
        for key in self._pairs.irange(start, stop, inclusive=(True, False)):
            yield key, self._pairs[key]

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the same pairs in reverse order."""
        for key in self._pairs.irange(start, stop, inclusive=(True, False), reverse=True):
            yield key, self._pairs[key]

    def prepare(self, writes: Iterable[Write]) -> None:
        """Keep writes for the next ``write``, which applies them before its own."""
        self._prepared += writes

    def write(self, writes: Iterable[Write]) -> None:
        """Apply the prepared and the given writes to the store, in order."""
        prepared, self._prepared = self._prepared, []
        for write in chain(prepared, writes):
            if isinstance(write, RangeDeletion):
                keys = self._pairs.irange(write.start, write.stop, inclusive=(True, False))
                for key in list(keys):
                    self._remove(key)
                continue
            key, value = write
            if value is None:
                self._remove(key)
            else:
                self._set(key, value)

    def view(self) -> MemoryView:
        """Return a copy of the pairs."""
        return MemoryView(list(self._pairs.items()))

    def tables(self) -> Mapping[str, int]:
        """Return no files, because the pairs are in memory only."""
        return {}

    def _set(self, key: bytes, value: bytes) -> None:
        before = self._pairs.get(key)
        self._content_bytes += len(value) + (len(key) if before is None else -len(before))
        self._pairs[key] = value

    def _remove(self, key: bytes) -> None:
        value = self._pairs.pop(key, None)
        if value is not None:
            self._content_bytes -= len(key) + len(value)
