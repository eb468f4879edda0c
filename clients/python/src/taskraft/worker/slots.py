"""The slots of a pool: each is held by a handler, and becomes free before its tasks are settled."""

from __future__ import annotations

import asyncio
from typing import Final

from taskraft import AsyncSubscription
from taskraft._clock import monotonic
from taskraft._handler_slots import HandlerSlot
from taskraft._permits import Permits
from taskraft.worker.prefetch import Prefetch
from taskraft.worker.slot_shares import SlotShare, SlotShares
from taskraft.worker.thread_pool import ThreadCall

UNANSWERED_PER_SLOT: Final = 2
UNANSWERED_MIN: Final = 64


class PoolSlots:
    """The slots of one kind of handlers, and the threads that outlive their attempts.

    Args:
        slots: maximum number of handlers at once.
        urgent: number of these slots that only urgent tasks use.
    """

    def __init__(self, slots: int, urgent: int = 0) -> None:
        self.slots: Final = slots
        """Maximum number of handlers at once."""
        self.urgent: Final = urgent
        """Number of slots that only urgent tasks use."""
        self.common: Final = slots - urgent
        """Number of the other slots, which all tasks use."""
        self.unanswered_max: Final = max(UNANSWERED_PER_SLOT * slots, UNANSWERED_MIN)
        """Maximum number of attempts whose handlers have ended and that are not settled yet."""
        self.settlements: Final = Permits(self.unanswered_max)
        """Held by each such attempt."""
        self.prefetch: Final = Prefetch(self.common)
        """Number of tasks to receive before one of the common slots is free."""
        self.common_shares: Final = SlotShares(self.common, self.prefetch)
        """Divides the common slots."""
        self.urgent_shares: Final = SlotShares(urgent, self.prefetch)
        """Divides the urgent slots."""
        self.used = 0
        """Number of running handlers, including handlers that wait for other tasks."""
        self.stuck = 0
        """Number of threads that still run although their attempt has ended."""
        self.half_is_stuck: Final = asyncio.Event()
        """Set when half of the slots are used by such threads."""

    def thread_is_stuck(
        self, subscription: AsyncSubscription, withheld: int, thread: ThreadCall
    ) -> None:
        """Count a thread that outlives its attempt, and ask for fewer tasks until it ends."""
        self.stuck += 1
        if self.stuck * 2 >= self.slots:
            self.half_is_stuck.set()
        subscription.withhold(withheld)

        def ended() -> None:
            self.stuck -= 1
            subscription.withhold(-withheld, is_due=True)

        thread.on_done.append(ended)


class AttemptSlot:
    """The slot of one attempt, which is free again when its handler has ended.

    The settlement follows outside of the slot. A thread that outlives its attempt keeps the slot
    until it ends.
    """

    __slots__ = ("_is_free", "_is_handled", "_share", "_slots", "_taken", "_tasks", "handler")

    def __init__(self, slots: PoolSlots, share: SlotShare, slot: HandlerSlot) -> None:
        self._slots = slots
        self._share = share
        self._tasks = share.size
        self.handler: Final = slot
        """Lent to others while the handler waits for other tasks."""
        self._is_handled = False
        self._taken = monotonic()
        self._is_free = False
        slots.used += 1
        share.holds(1, self._tasks)
        slot.on_change = self._changed

    def begins(self, tasks: int) -> None:
        """Note that the handler begins, with this number of tasks."""
        self._taken = monotonic()
        self._share.holds(0, tasks - self._tasks)
        self._tasks = tasks

    async def handled(self, thread: ThreadCall | None) -> None:
        """Free the slot as soon as the pool may send one more settlement.

        Args:
            thread: thread of the handler; None if the handler ran elsewhere.
        """
        await self._slots.settlements.acquire()
        self._is_handled = True
        self._free_after(thread)

    def end(self, thread: ThreadCall | None) -> None:
        """Note that the attempt is settled, or has ended without a settlement."""
        if self._is_handled:
            self._slots.settlements.release()
        self._free_after(thread)

    def _free_after(self, thread: ThreadCall | None) -> None:
        if thread is None or thread.is_done:
            self._free()
        else:
            thread.on_done.append(self._free)

    def _free(self) -> None:
        if self._is_free:
            return
        self._is_free = True
        self._slots.used -= 1
        self.handler.close()
        self._slots.prefetch.ended(monotonic() - self._taken)

    def _changed(self, held: int) -> None:
        self._share.holds(held, held * self._tasks)
