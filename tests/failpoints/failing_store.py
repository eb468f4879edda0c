"""Wrap a database with a failpoint before and after each write and each flush."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from taskraft_service.queue.store.store import Write
from taskraft_service.storage.rocks import TABLES_OPEN_MAX, RocksStore
from tests.failpoints.failpoints import Failpoints


class FailingStore(RocksStore):
    """A ``RocksStore`` with failpoints."""

    def __init__(
        self,
        failpoints: Failpoints,
        path: Path,
        block_cache_bytes: int,
        write_buffer_bytes: int,
        tables_max: int = TABLES_OPEN_MAX,
    ) -> None:
        super().__init__(path, block_cache_bytes, write_buffer_bytes, tables_max)
        self._failpoints = failpoints

    def write(self, writes: Iterable[Write]) -> None:
        """Apply writes in order; after a crash either all or none of them exist."""
        with self._failpoints.around("state", "write"):
            super().write(writes)

    def flush(self) -> None:
        """Make all writes so far durable."""
        with self._failpoints.around("state", "sync"):
            super().flush()
