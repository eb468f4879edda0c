"""Put a failpoint before and after each batch that goes to RocksDB."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from taskraft_replication.storage.failpoints import Failpoints
from taskraft_service.queue.store import Write
from taskraft_service.storage.rocks import RocksStore


class FailingStore(RocksStore):
    """A ``RocksStore`` with failpoints."""

    def __init__(
        self,
        path: Path,
        block_cache_bytes: int,
        write_buffer_bytes: int,
        failpoints: Failpoints,
    ) -> None:
        super().__init__(path, block_cache_bytes, write_buffer_bytes)
        self._failpoints = failpoints

    def write(self, writes: Iterable[Write]) -> None:
        """See ``RocksStore``."""
        with self._failpoints.around("state", "write"):
            super().write(writes)
