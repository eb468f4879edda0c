"""Refuse new content while free disk space is low; takes and settlements continue."""

from __future__ import annotations

from collections.abc import Iterable

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.storage.disk_monitor import DiskMonitor


class DiskSpaceGuard:
    """Checks before a call stores new content that enough disk space is free.

    Args:
        disk: measures the free disk space.
        queues: tells which tubes are temporary; these need no disk space.
    """

    def __init__(self, disk: DiskMonitor, queues: QueueLocator) -> None:
        self._disk = disk
        self._queues = queues

    def check_tubes(self, tubes: Iterable[str]) -> None:
        """Check the disk space for new content of ``tubes``.

        Raises:
            CallRefused: DISK_LOW.
        """
        if self._disk.is_low and any(self._queues.is_logged(tube) for tube in tubes):
            raise self._low()

    def check(self) -> None:
        """Check the disk space for new content that belongs to no tube.

        Raises:
            CallRefused: DISK_LOW.
        """
        if self._disk.is_low:
            raise self._low()

    def _low(self) -> CallRefused:
        return CallRefused(
            error_pb2.Error.DISK_LOW,
            "new content is refused because free disk space is low; takes and settlements work",
            {"free_bytes": str(self._disk.free_bytes), "low": str(self._disk.low_bytes)},
        )
