"""Define the interface of the ordered store that the queue reads, and the writes for that store.

The queue changes objects in memory. The final value of each changed key is written to the store in
one batch, together with the applied index; after a crash the log is replayed from that index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

from taskraft_service.queue.values import value


class Store(Protocol):
    """A readable ordered map from bytes to bytes.

    The service uses RocksDB; tests use a sorted dictionary.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the values of ``keys`` in the same order; None for each missing key."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs with ``start <= key < stop`` in order of the keys, lazily."""

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the same pairs as ``scan`` in reverse order."""


@value
class RangeDeletion:
    """Delete all keys with ``start <= key < stop``."""

    start: bytes
    stop: bytes


Write: TypeAlias = tuple[bytes, bytes | None] | RangeDeletion
"""A key with its new value (None: delete the key), or a range deletion; applied in order."""
