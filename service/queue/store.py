"""State what the queue needs of an ordered store, and buffer writes before it.

The log is the truth and the store its materialisation: the queue changes objects in memory, and the
final value of each changed key goes to the store in one batch, together with the applied index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Store(Protocol):
    """An ordered map of byte strings, read only. RocksDB in the product, a sorted dictionary in tests."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs with ``start <= key < stop`` in order of the keys; consumed lazily."""
