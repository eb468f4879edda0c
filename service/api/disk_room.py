"""Refuse what fills the disk while little of it is free; what makes room goes on."""

from __future__ import annotations

from collections.abc import Iterable

from service.api.status import Refused
from service.machine.contents import Contents
from service.storage.disk_watch import DiskWatch
from taskraft.v1 import error_pb2


def check_disk(disk: DiskWatch, contents: Contents, tubes: Iterable[str]) -> None:
    """Make sure that there is room for puts into ``tubes``.

    Tubes that are in memory only need none.

    Raises:
        Refused: DISK_LOW.
    """
    if disk.is_low and any(contents.is_logged(tube) for tube in tubes):
        raise Refused(
            error_pb2.Error.DISK_LOW,
            "the disk is nearly full: puts are refused, takes and settles still work",
            {"free_bytes": str(disk.free_bytes), "low": str(disk.low_bytes)},
        )
