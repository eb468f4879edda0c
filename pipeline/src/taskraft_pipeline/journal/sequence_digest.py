"""Prove that files have exactly the events of some ranges, in memory that does not grow with them.

The digest of a set of sequence numbers is their number and the sum of their hashes modulo 2^64. It
does not depend on the order, and digests of disjoint sets add up. A missing or repeated number
changes the digest; two errors cancel each other with a probability of about 2^-64.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from taskraft_pipeline.journal.manifest import Manifest

STEP: Final = 1_000_000
"""Number of sequence numbers that are hashed at once."""
_MASK: Final = (1 << 64) - 1


class SequenceDigest:
    """The digest of the events of some partitions."""

    def __init__(self) -> None:
        self._events: Counter[int] = Counter()
        self._sums: dict[int, int] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SequenceDigest):
            return NotImplemented
        return not self.differing(other)

    __hash__ = None  # type: ignore[assignment] # mutable

    def differing(self, other: SequenceDigest) -> list[int]:
        """Return the partitions whose events differ."""
        partitions = sorted({*self._events, *other._events})
        return [one for one in partitions if self._of(one) != other._of(one)]

    def _of(self, partition: int) -> tuple[int, int]:
        return self._events[partition], self._sums.get(partition, 0)

    def add(self, partition: int, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """Add some sequence numbers of a partition."""
        self._events[partition] += len(numbers)
        total = self._sums.get(partition, 0) + int(_mixed(numbers).sum(dtype=np.uint64))
        self._sums[partition] = total & _MASK

    def add_batches(self, manifests: Iterable[Manifest]) -> None:
        """Add all events that some batches name."""
        for manifest in manifests:
            for partition, held in manifest.held.items():
                for first in range(held.first_seq, held.last_seq + 1, STEP):
                    last = min(first + STEP - 1, held.last_seq)
                    self.add(partition, np.arange(first, last + 1, dtype=np.int64))

    def add_file(self, path: Path) -> None:
        """Add the events of a Parquet file."""
        with pq.ParquetFile(path) as file:
            columns = ["feed_partition", "seq"]
            for batch in file.iter_batches(STEP, columns=columns, use_threads=False):
                partitions = batch["feed_partition"].to_numpy()
                numbers = batch["seq"].to_numpy()
                for partition in np.unique(partitions):
                    self.add(int(partition), numbers[partitions == partition])


def _mixed(
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return a hash of each number (the finaliser of SplitMix64)."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
