"""Let puts wait for room in tubes with a capacity: first come, first served, on the leader only.

A put that waits is tried when its turn comes and the tube has room for all of it; the queue takes
it as a whole or refuses it as a whole, so a try without success changes nothing. Nothing of this is
replicated: when this node leads no more, those who wait go to the next leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from taskraft_service.leader.proposal import LeaderOverloaded, NotProposed
from taskraft_service.machine.queue_locator import QueueLocator

WAITING_PUTS_MAX: Final = 10_000
"""Puts of this node that wait for room."""


@dataclass(slots=True, eq=False)
class WaitingPut:
    """The place of a put in the line of its tube."""

    tasks: int
    payload_bytes: int
    turn: asyncio.Future[None] | None = None
    """Set while it waits to be told to try."""

    async def wait(self, until: float) -> bool:
        """Wait for a turn; tell whether it came before ``until``, a time of the loop.

        Raises:
            NotProposed: this node leads no more.
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
    """The puts that wait for room, in line per tube.

    Args:
        queues: the queues of this node.
    """

    def __init__(self, queues: QueueLocator) -> None:
        self._queues = queues
        self._lines: dict[str, dict[WaitingPut, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has_waiting(self, tube: str) -> bool:
        """Tell whether others wait for room in a tube."""
        return tube in self._lines

    @contextmanager
    def enqueue(self, tube: str, tasks: int, payload_bytes: int) -> Iterator[WaitingPut]:
        """Take a place at the end of a tube's line.

        Raises:
            Overloaded: too many puts wait already.
        """
        if self._count >= WAITING_PUTS_MAX:
            raise LeaderOverloaded(f"{self._count} puts wait for room already")
        place = WaitingPut(tasks, payload_bytes)
        self._lines.setdefault(tube, {})[place] = None
        self._count += 1
        try:
            yield place
        finally:
            self._count -= 1
            line = self._lines[tube]
            del line[place]
            if line:
                self._wake_first(tube, line)
            else:
                del self._lines[tube]

    def applied(self, _now_ms: int) -> None:
        """Call up those for whom there is room; called after each slice of applied entries."""
        for tube, line in self._lines.items():
            self._wake_first(tube, line)

    def _wake_first(self, tube: str, line: dict[WaitingPut, None]) -> None:
        """Let the first ones try, as many as there is room for together."""
        queue = self._queues.queue_of(tube)
        tasks = payload_bytes = 0
        for place in line:
            tasks += place.tasks
            payload_bytes += place.payload_bytes
            if not queue.has_room(tube, tasks, payload_bytes):
                return
            if place.turn is not None and not place.turn.done():
                place.turn.set_result(None)

    def redirect_all(self) -> None:
        """Send everybody who waits to the next leader."""
        for line in self._lines.values():
            for place in line:
                if place.turn is not None and not place.turn.done():
                    place.turn.set_exception(NotProposed("leadership was lost"))
