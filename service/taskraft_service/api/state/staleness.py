"""Bound the staleness of local reads without synchronised clocks.

A ReadIndex confirmation proves that the local state contains every write that was acknowledged
before the confirmation was requested. A bounded-staleness read is served locally while the latest
confirmation is younger than the caller's bound, measured on this node's monotonic clock. The time
of the last leader contact is not used: it does not show how far this node has applied the log, and
a partitioned leader cannot tell whether a newer leader exists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from taskraft.v1 import error_pb2
from taskraft_replication.errors import ReadUnconfirmed
from taskraft_service.api.rpc.status import CallRefused


class StalenessGuard:
    """Checks how stale the applied state is.

    Args:
        confirm: returns once everything acknowledged before the call is applied here (ReadIndex).
        silence_ms: returns for how many ms no leader has been known.
        monotonic_ms: a monotonic clock, in ms.
    """

    def __init__(
        self,
        confirm: Callable[[], Awaitable[object]],
        silence_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._confirm = confirm
        self._silence_ms = silence_ms
        self._monotonic_ms = monotonic_ms
        self._confirmed_ms: int | None = None
        """When the latest confirmation was requested."""

    async def barrier(self) -> None:
        """Wait until everything that was acknowledged before the call is applied here.

        Raises:
            ReadUnconfirmed: no quorum confirmed the read.
        """
        requested_ms = self._monotonic_ms()
        await self._confirm()
        self._confirmed_ms = max(requested_ms, self._confirmed_ms or requested_ms)

    async def check_staleness(self, staleness_ms_max: int) -> None:
        """Check that the applied state is at most ``staleness_ms_max`` stale; confirm if needed.

        Raises:
            CallRefused: NODE_BEHIND, the bound cannot be confirmed.
        """
        confirmed_ms = self._confirmed_ms
        if confirmed_ms is not None and self._monotonic_ms() - confirmed_ms <= staleness_ms_max:
            return
        silence_ms = self._silence_ms()
        if silence_ms <= staleness_ms_max:
            try:
                await self.barrier()
            except ReadUnconfirmed:
                silence_ms = self._silence_ms()
            else:
                return
        raise CallRefused(
            error_pb2.Error.NODE_BEHIND,
            f"cannot serve a read at most {staleness_ms_max} ms stale: no leader has confirmed "
            f"this node's state (no leader known for {silence_ms} ms); retry, ask another node, "
            f"or allow a larger staleness",
            {"silence_ms": str(silence_ms)},
        )
