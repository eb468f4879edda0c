"""Wake readers of the change feed when their next event is applied on this node.

The waits of a partition are in the order of their events. Applied entries therefore cost nothing
for readers without news. Readers with news are woken in slices.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import gt, sub
from typing import Final

from taskraft_service.queue.feed.change_feed import ChangeFeed

WOKEN_AT_ONCE: Final = 100
"""Maximum number of waits that are checked and woken in one turn of the event loop."""
ANY: Final = -1
"""Stands for all partitions together."""


@dataclass(slots=True, eq=False)
class _Wait:
    """One wait for an event.

    ``partition`` may be ``ANY``. ``positions`` has the next sequence number of the partition, or of
    each partition.
    """

    partition: int
    positions: Sequence[int]
    number: int
    future: asyncio.Future[None] = field(init=False)
    events: int = field(init=False)
    """The event can exist only if the partition has more events than this number."""

    def is_over(self, highs: Sequence[int]) -> bool:
        """Return whether the event exists, given the next sequence number of each partition."""
        if self.partition != ANY:
            return highs[self.partition] > self.positions[0]
        return len(highs) != len(self.positions) or any(map(gt, highs, self.positions))

    def update_events(self, highs: Sequence[int]) -> None:
        """Set ``events`` while the event does not exist."""
        if self.partition != ANY:
            self.events = self.positions[0]
            return
        self.events = sum(highs) + min(map(sub, self.positions, highs), default=0)


class FeedWaits:
    """All waits for events of this node.

    Args:
        feed: returns the change feed that this node has applied.
    """

    def __init__(self, feed: Callable[[], ChangeFeed]) -> None:
        self._feed = feed
        self._waits: dict[int, _Wait] = {}
        self._numbers = count()
        self.waiting: dict[int, list[tuple[int, int]]] = {}
        """``events`` and ``number`` of the waits of each partition and of ``ANY``, in order."""
        self._is_scheduled = False
        self.ended = False
        """Whether the node is stopping, so that no reader may wait."""

    def end(self) -> None:
        """Wake all readers, and refuse further waits."""
        self.ended = True
        self.applied(0)

    def applied(self, _now_ms: int) -> None:
        """Wake the readers with news, later; called after each slice of applied entries."""
        if self.waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._wake_some)

    async def wait_for_any(self, positions: Sequence[int], patience: float) -> bool:
        """Wait at most ``patience`` seconds for an event in any partition.

        Args:
            positions: the sequence number of the awaited event in each partition.
            patience: maximum wait in seconds.

        Returns:
            Whether there is such an event, or the feed has another number of partitions.
        """
        return await self._wait(ANY, positions, patience)

    async def wait_for(self, partition: int, seq: int, patience: float) -> bool:
        """Wait at most ``patience`` seconds for an event; return whether the event exists."""
        return await self._wait(partition, (seq,), patience)

    async def _wait(self, partition: int, positions: Sequence[int], patience: float) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        wait = _Wait(partition, positions, next(self._numbers))
        while not wait.is_over(highs := self._highs()):
            left = until - loop.time()
            if left <= 0 or self.ended:
                return False
            wait.future = loop.create_future()
            self._waits[wait.number] = wait
            self._add(wait, highs)
            try:
                await asyncio.wait((wait.future,), timeout=left)
            finally:
                self._remove(wait)
        return True

    def _highs(self) -> list[int]:
        """Return the sequence number that the next event of each partition gets."""
        return [partition.high_seq for partition in self._feed().partitions]

    def _add(self, wait: _Wait, highs: Sequence[int]) -> None:
        wait.update_events(highs)
        insort(self.waiting.setdefault(wait.partition, []), (wait.events, wait.number))

    def _remove(self, wait: _Wait) -> None:
        del self._waits[wait.number]
        waiting = self.waiting.get(wait.partition, [])
        key = (wait.events, wait.number)
        place = bisect_left(waiting, key)
        if waiting[place : place + 1] == [key]:
            del waiting[place]
            if not waiting:
                del self.waiting[wait.partition]

    def _wake_some(self) -> None:
        """Wake readers of each partition, and the other readers in later turns."""
        self._is_scheduled = False
        highs, left = self._highs(), WOKEN_AT_ONCE
        for partition in list(self.waiting):
            left -= self._wake(partition, highs, left)
            if not left:
                self.applied(0)
                return

    def _wake(self, partition: int, highs: Sequence[int], most: int) -> int:
        """Wake at most ``most`` readers of a partition; return the number of checked waits."""
        waiting = self.waiting.pop(partition)
        events = sum(highs) if partition == ANY else highs[partition]
        due = len(waiting) if self.ended else bisect_left(waiting, (events,))
        checked = waiting[: min(due, most)]
        del waiting[: len(checked)]
        if waiting:
            self.waiting[partition] = waiting  # Now the last one, so that all have their turn.
        for _, number in checked:
            wait = self._waits[number]
            if self.ended or wait.is_over(highs):
                if not wait.future.done():
                    wait.future.set_result(None)
            else:
                self._add(wait, highs)
        return len(checked)
