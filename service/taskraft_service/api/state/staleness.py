"""Know how old what this node shows may be, without a clock that two nodes would share.

A confirmed read shows everything that was acknowledged before it was asked for. So for as long as
it is younger than a caller allows, the state here needs no other proof. It rests on nothing but the
time that passes on this node: not on when a leader was heard of, which says neither how far this
node has applied, nor, on a leader that was cut off, whether there is another one by now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from taskraft.v1 import error_pb2
from taskraft_replication.errors import ReadUnconfirmed
from taskraft_service.api.rpc.status import CallRefused


class StalenessGuard:
    """Proves how fresh the applied state is.

    Args:
        confirm: returns once everything acknowledged before the call is applied here.
        silence_ms: how long no leader has been known; then nothing can be confirmed.
        monotonic_ms: a time that never goes back.
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
        self._proven_ms: int | None = None
        """When the youngest confirmed read was asked for."""

    async def barrier(self) -> None:
        """Wait until the state shows everything that was acknowledged before the call.

        Raises:
            ReadUnconfirmed: no majority confirms that it does.
        """
        asked_ms = self._monotonic_ms()
        await self._confirm()
        self._proven_ms = max(asked_ms, self._proven_ms or asked_ms)

    async def within(self, staleness_ms_max: int) -> None:
        """Make sure that the state shows everything acknowledged so long before the call.

        Raises:
            Refused: NODE_BEHIND: nobody can tell.
        """
        proven_ms = self._proven_ms
        if proven_ms is not None and self._monotonic_ms() - proven_ms <= staleness_ms_max:
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
            f"this node cannot tell that its state is at most {staleness_ms_max} ms old; "
            f"it has known no leader for {silence_ms} ms",
            {"silence_ms": str(silence_ms)},
        )
