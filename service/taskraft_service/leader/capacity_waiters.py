"""Queue puts that wait for tube capacity, in FIFO order per tube, on the leader only.

The leader retries a waiting put once the tube has capacity for this put and for all puts ahead of
it. The queue accepts or refuses the put as a whole, so a refused retry changes nothing. The wait
queue is not replicated; when this node loses leadership, the waiting calls are forwarded to the new
leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final

from taskraft_service.leader.command_submitter import LeaderOverloaded, NotProposed
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.sliced_calls import ENDED_AT_ONCE, SlicedCalls
from taskraft_service.machine.sliced_checks import SlicedChecks

WAITING_PUTS_MAX: Final = 10_000
"""Maximum number of waiting puts on this node."""
CHECKED_AT_ONCE: Final = 500
"""Number of puts after which a check of the wait queues continues in the next turn of the event
loop."""
FIRST_PUTS_MAX: Final = 100
"""Maximum number of first puts of a tube that are woken together; the next is woken when one of
them leaves the wait queue."""


@dataclass(slots=True, eq=False)
class WaitingPut:
    """A put that waits for capacity in its tube."""

    tasks: int
    payload_bytes: int
    turn: asyncio.Future[None] | None = None
    """Future that is done when the put should be retried; None while the call does not wait."""

    async def wait(self, until: float) -> bool:
        """Wait for a retry; return False if ``until`` (event loop time) passes first.

        Raises:
            NotProposed: this node lost leadership.
        """
        loop = asyncio.get_running_loop()
        self.turn = loop.create_future()
        try:
            done, _ = await asyncio.wait((self.turn,), timeout=max(until - loop.time(), 0.0))
            if done:
                self.turn.result()
            return bool(done)
        finally:
            self.turn = None


class CapacityWaiters:
    """The puts that wait for capacity, in FIFO order per tube.

    Args:
        queues: the queues of this node.
    """

    def __init__(self, queues: QueueLocator) -> None:
        self._queues = queues
        self._queued: dict[str, dict[WaitingPut, None]] = {}
        self._checks = SlicedChecks(self._queued, self._wake_tube, CHECKED_AT_ONCE)
        self._redirected: SlicedCalls[WaitingPut] = SlicedCalls(ENDED_AT_ONCE)
        self.count = 0
        """Number of waiting puts."""

    def has_waiting(self, tube: str) -> bool:
        """Return whether puts wait for capacity in a tube."""
        return tube in self._queued

    @contextmanager
    def enqueue(self, tube: str, tasks: int, payload_bytes: int) -> Iterator[WaitingPut]:
        """Add a put at the end of its tube's wait queue; the context removes it.

        Raises:
            LeaderOverloaded: too many puts wait already.
        """
        if self.count >= WAITING_PUTS_MAX:
            raise LeaderOverloaded(f"{self.count} puts already wait for capacity; retry later")
        put = WaitingPut(tasks, payload_bytes)
        self._queued.setdefault(tube, {})[put] = None
        self.count += 1
        try:
            yield put
        finally:
            self.count -= 1
            queued = self._queued[tube]
            del queued[put]
            if queued:
                self._wake_first(tube, queued)
            else:
                del self._queued[tube]

    def applied(self, _now_ms: int) -> None:
        """Wake puts that now fit, later; called after each slice of applied entries."""
        self._checks.changed()

    def _wake_tube(self, tube: str) -> int:
        """Wake the first puts of a tube; return the number of checked puts, at least 1."""
        queued = self._queued.get(tube)
        return self._wake_first(tube, queued) if queued else 1

    def _wake_first(self, tube: str, queued: dict[WaitingPut, None]) -> int:
        """Wake as many of the first puts of a tube as fit together into its free capacity.

        Returns:
            The number of puts that were checked, at most ``FIRST_PUTS_MAX``.
        """
        queue = self._queues.queue_of(tube)
        tasks = payload_bytes = checked = 0
        for put in islice(queued, FIRST_PUTS_MAX):
            checked += 1
            tasks += put.tasks
            payload_bytes += put.payload_bytes
            if not queue.has_room(tube, tasks, payload_bytes):
                break
            if put.turn is not None and not put.turn.done():
                put.turn.set_result(None)
        return checked

    def redirect_all(self) -> None:
        """Fail every waiting put with NotProposed, so that it is forwarded to the new leader."""
        puts = [put for queued in self._queued.values() for put in queued]
        self._redirected.add(_redirect, puts)


def _redirect(put: WaitingPut) -> None:
    if put.turn is not None and not put.turn.done():
        put.turn.set_exception(NotProposed("this node lost leadership"))
