"""State what the queue needs of an ordered store, and what it asks it to write.

The log is the truth and the store its materialisation: the queue changes objects in memory, and the
final value of each changed key goes to the store in one batch, together with the applied index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

from taskraft_service.queue.values import value


class Store(Protocol):
    """An ordered map of bytes, read only.

    RocksDB in the product, a sorted dictionary in tests.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""

    def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the values of keys, each or None."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs with ``start <= key < stop`` in order of the keys; consumed lazily."""

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the same pairs as ``scan``, the last one first."""


@value
class RangeDeletion:
    """Asks to delete all keys with ``start <= key < stop``."""

    start: bytes
    stop: bytes


Write: TypeAlias = tuple[bytes, bytes | None] | RangeDeletion
"""A key with its new value (None: delete it), or a range of keys to delete; applied in order."""
