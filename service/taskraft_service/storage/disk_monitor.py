"""Watch how much is free on the disk, so that puts are refused before it is full.

A full volume cannot even be opened again by RocksDB; takes and settles go on, they make room.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

CHECK_MS: Final = 10
"""How long an answer of the file system holds: a fast disk takes some tens of MiB in that time."""


class DiskMonitor:
    """The free space of the volume that holds the data.

    Args:
        path: a directory on the volume.
        low_bytes: below this the disk counts as low.
        monotonic_ms: reads a clock.
    """

    def __init__(self, path: Path, low_bytes: int, monotonic_ms: Callable[[], int]) -> None:
        self._path = path
        self.low_bytes = low_bytes
        self._monotonic_ms = monotonic_ms
        self._checked_ms = monotonic_ms() - CHECK_MS
        self._free_bytes = 0

    @property
    def free_bytes(self) -> int:
        """How much is free, a moment ago."""
        now_ms = self._monotonic_ms()
        if now_ms - self._checked_ms >= CHECK_MS:
            volume = os.statvfs(self._path)
            self._free_bytes = volume.f_bavail * volume.f_frsize
            self._checked_ms = now_ms
        return self._free_bytes

    @property
    def is_low(self) -> bool:
        """Tell whether puts have to be refused."""
        if self._monotonic_ms() - self._checked_ms < CHECK_MS:
            return self._free_bytes < self.low_bytes
        return self.free_bytes < self.low_bytes
