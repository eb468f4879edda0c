"""Refuse what fills the disk while little of it is free; what makes room goes on."""

from __future__ import annotations

from collections.abc import Iterable

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.storage.disk_monitor import DiskMonitor


class DiskSpaceGuard:
    """Tells whether the disk has room for what a call brings.

    Args:
        disk: knows how much is free.
        queues: knows which tubes are in memory only, and need none.
    """

    def __init__(self, disk: DiskMonitor, queues: QueueLocator) -> None:
        self._disk = disk
        self._queues = queues

    def check_tubes(self, tubes: Iterable[str]) -> None:
        """Make sure that there is room for new content of ``tubes``.

        Raises:
            Refused: DISK_LOW.
        """
        if self._disk.is_low and any(self._queues.is_logged(tube) for tube in tubes):
            raise self._low()

    def check(self) -> None:
        """Make sure that there is room for something that the cluster keeps.

        Raises:
            Refused: DISK_LOW.
        """
        if self._disk.is_low:
            raise self._low()

    def _low(self) -> CallRefused:
        return CallRefused(
            error_pb2.Error.DISK_LOW,
            "the disk is nearly full: new content is refused, takes and settles still work",
            {"free_bytes": str(self._disk.free_bytes), "low": str(self._disk.low_bytes)},
        )
