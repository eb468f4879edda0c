"""Check what a call needs: its tubes and its session exist, and disk space is free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from taskraft.v1 import error_pb2
from taskraft_service.access.caller import Caller
from taskraft_service.access.leases import owns_session
from taskraft_service.api.rpc.status import CallRefused, tube_not_found
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.languages.patterns import is_pattern
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.storage.disk_monitor import DiskMonitor


class ExistenceCheck:
    """Checks the locally applied state, and checks again behind a read barrier before it refuses.

    Args:
        reader: reads the queue.
        creates_tubes: returns whether puts create missing tubes; then no tube is refused.
    """

    def __init__(self, reader: QueueReader, *, creates_tubes: Callable[[], bool]) -> None:
        self._reader = reader
        self._creates_tubes = creates_tubes

    async def check_tubes(self, sources: Sequence[str]) -> None:
        """Check that each source is a pattern or names an existing tube.

        Raises:
            CallRefused: TUBE_NOT_FOUND.
        """
        if self._creates_tubes():
            return
        for source in sources:
            if is_pattern(source):
                continue
            if self._reader.applied.tube(source) is None:
                await self._reader.barrier()
                if self._reader.applied.tube(source) is None:
                    raise tube_not_found(source)

    async def check_session(self, session_id: str, caller: Caller) -> None:
        """Check that the session exists and belongs to the caller; an empty id passes.

        Raises:
            CallRefused: SESSION_NOT_FOUND.
        """
        if session_id and not owns_session(self._reader.applied, session_id, caller):
            await self._reader.barrier()
            if not owns_session(self._reader.applied, session_id, caller):
                raise CallRefused(
                    error_pb2.Error.SESSION_NOT_FOUND, "the session does not exist", {}
                )


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
