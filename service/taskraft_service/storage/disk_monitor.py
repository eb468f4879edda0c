"""Measure the free disk space, so that puts are refused before the volume is full.

On a full volume, RocksDB cannot reopen its files. Takes and settlements continue, because they free
space.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

CHECK_MS: Final = 10
"""Time for which a measurement is reused; a fast disk writes some tens of MiB in this time."""


class DiskMonitor:
    """Free space of the volume that holds the data directory.

    Args:
        path: a directory on the volume.
        low_bytes: free space below which ``is_low`` is true.
        monotonic_ms: reads a clock that never goes back.
    """

    def __init__(self, path: Path, low_bytes: int, monotonic_ms: Callable[[], int]) -> None:
        self._path = path
        self.low_bytes = low_bytes
        self._monotonic_ms = monotonic_ms
        self._checked_ms = monotonic_ms() - CHECK_MS
        self._free_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Free space in bytes, at most ``CHECK_MS`` old."""
        now_ms = self._monotonic_ms()
        if now_ms - self._checked_ms >= CHECK_MS:
            self._measure(now_ms)
        return self._free_bytes

    @property
    def is_low(self) -> bool:
        """Return whether puts must be refused."""
        # `free_bytes` is not called here: this method runs for each put, and the call costs time.
        now_ms = self._monotonic_ms()
        if now_ms - self._checked_ms >= CHECK_MS:
            self._measure(now_ms)
        return self._free_bytes < self.low_bytes

    def _measure(self, now_ms: int) -> None:
        volume = os.statvfs(self._path)
        self._free_bytes = volume.f_bavail * volume.f_frsize
        self._checked_ms = now_ms
