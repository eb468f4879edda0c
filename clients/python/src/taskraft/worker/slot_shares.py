"""Divide the free slots of a pool among the subscriptions whose handlers share the slots.

The server takes a task for a worker as long as a subscription has credit. So the subscriptions
together have credit only for free slots:

- A subscription *asks* for slots until it has had credit for 50 ms and no task has arrived. The
  free slots are divided among the subscriptions that ask. The one whose last handler began first is
  the next.
- The other subscriptions have credit for all free slots, because nobody knows which of them gets
  the next task. Two of them may receive a task for the same slot. The later task is handed back
  uncounted, and its subscription asks for slots from then on.
- A subscription without a slot is paused, if the server has credit left from before.

A prefetch comes in addition; see `taskraft.worker.prefetch`.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from taskraft import AsyncSubscription
from taskraft._async_taken_task import AsyncTakenTask
from taskraft._clock import monotonic
from taskraft._handler_slots import HandlerSlot, HandlerSlots
from taskraft.worker.prefetch import WAIT_SECONDS_MAX, Prefetch

ASK_SECONDS: Final = 0.05
"""Time for which slots are kept free for a subscription that asks, in seconds: some round trips."""


class SlotShares:
    """The free slots of a pool, and the subscriptions among which they are divided.

    Args:
        count: number of slots.
        prefetch: prefetch of the pool.
    """

    def __init__(self, count: int, prefetch: Prefetch) -> None:
        self.count: Final = count
        """Number of slots."""
        self.slots: Final = HandlerSlots(count)
        """The slots."""
        self.prefetch: Final = prefetch
        """Prefetch of the pool."""
        self.waiting = 0
        """Number of subscriptions with a task that waits for a slot."""
        self._held = 0
        self._shares: list[SlotShare] = []
        self._is_dividing = False
        self._asking: asyncio.TimerHandle | None = None

    @property
    def free(self) -> int:
        """Number of slots for which no task has arrived."""
        return max(self.count - self._held - self.waiting, 0)

    def add(self, share: SlotShare) -> None:
        """Add a subscription."""
        self._shares.append(share)
        self._divide()

    def begins(self, share: SlotShare) -> None:
        """Note that a subscription has used its turn, because it has got a slot."""
        if len(self._shares) > 1:
            self._shares.remove(share)
            self._shares.append(share)

    def changed(self, held: int = 0) -> None:
        """Note that `held` more slots are held, and divide the free slots soon."""
        self._held += held
        if not self._is_dividing:
            self._is_dividing = True
            asyncio.get_running_loop().call_soon(self._divide)

    def _divide(self) -> None:
        self._is_dividing = False
        if self.waiting and self._held < self.count:
            return  # a waiting task is about to take the slot, and divides the others then
        free = self.free
        asking = [share for share in self._shares if share.is_asking and share.has_room]
        for share in self._shares:
            if share not in asking:
                share.adjust(free)
        for place, share in enumerate(asking):
            share.adjust(free // len(asking) + (place < free % len(asking)))
        if asking and free and len(self._shares) > 1 and self._asking is None:
            for share in asking:
                share.has_arrived = False
            loop = asyncio.get_running_loop()
            self._asking = loop.call_later(ASK_SECONDS, self._asked)

    def _asked(self) -> None:
        """Keep no more slots free for subscriptions that had credit and have received nothing."""
        self._asking = None
        for share in self._shares:
            if share.slots and not share.has_arrived:
                share.is_asking = False
        self.changed()


class SlotShare:
    """The slots of one subscription: those of its handlers, and the free ones that it may fill.

    Args:
        shares: the slots of the pool.
        subscription: receives the tasks.
        slots_max: maximum number of handlers at once.
        size: number of tasks for one slot.
        free_max: maximum number of free slots to fill at once.
        ahead_max: maximum prefetch, in tasks. The handlers, the free slots and the prefetch
            together do not exceed the credit of the subscription.
    """

    def __init__(
        self,
        shares: SlotShares,
        subscription: AsyncSubscription,
        *,
        slots_max: int,
        size: int,
        free_max: int,
        ahead_max: int,
    ) -> None:
        self.subscription: Final = subscription
        """Receives the tasks."""
        self.size: Final = size
        """Number of tasks for one slot."""
        self.is_asking = True
        """Whether the subscription would fill a free slot, as far as it is known."""
        self.has_arrived = False
        """Whether a task has arrived since the subscription was asked last."""
        self.slots = 0
        """Number of free slots for which the subscription has credit."""
        self._shares = shares
        self._slots_max = slots_max
        self._free_max = free_max
        self._ahead_max = ahead_max
        self._held = 0
        self._held_tasks = 0
        self._given = subscription.credit
        self._is_over = False
        self._may_wait_until = -math.inf
        shares.add(self)

    @property
    def has_room(self) -> bool:
        """Whether one more handler may run, if a slot is free."""
        return self._held < self._slots_max

    @property
    def _ahead(self) -> int:
        most = self.subscription.credit - self._held_tasks - self.slots * self.size
        return max(min(self._shares.prefetch.tasks * self.size, self._ahead_max, most), 0)

    @property
    def _may_wait(self) -> bool:
        """Whether a task may wait for a slot, because it can belong to the last prefetch."""
        has_credit = self._held_tasks < self.subscription.credit
        return has_credit and monotonic() < self._may_wait_until

    def adjust(self, free: int) -> None:
        """Give the server credit for `free` slots and for the prefetch, as far as allowed."""
        self.slots = max(min(free, self._slots_max - self._held, self._free_max), 0)
        ahead = self._ahead
        wanted = self._held_tasks + self.slots * self.size + ahead
        if wanted != self._given:
            is_due = self.slots > 0 and not ahead
            self.subscription.withhold(self._given - wanted, is_due=is_due)
            self._given = wanted
        if ahead:
            self._may_wait_until = monotonic() + WAIT_SECONDS_MAX
        if self.slots or self._may_wait:
            self._is_over = False
            self.subscription.pause(is_paused=False)
        elif self._is_over or self.subscription.open_credit:
            self.subscription.pause(is_paused=True)

    def holds(self, slots: int, tasks: int) -> None:
        """Note that handlers hold more slots, for more tasks; negative: fewer."""
        self._held += slots
        self._held_tasks += tasks
        self._shares.changed(slots)

    async def take(self, first: AsyncTakenTask) -> HandlerSlot | None:
        """Return a slot for the first task that has arrived; None: the task was handed back.

        A task waits for a slot only if the pool has a prefetch, for at most `WAIT_SECONDS_MAX`.
        """
        self.is_asking = self.has_arrived = True
        may_begin = self._shares.free > 0 and self.has_room
        if not (may_begin or self._may_wait):
            self._hand_back()
            return None
        slots = self._shares.slots
        slot = await (slots.take() if slots.has_free else self._slot_in_time(first))
        if slot is None:
            self._shares.prefetch.stop()
            self._may_wait_until = -math.inf
            self._hand_back()
            return None
        self._shares.begins(self)
        return slot

    async def _slot_in_time(self, first: AsyncTakenTask) -> HandlerSlot | None:
        self._shares.waiting += 1
        try:
            async with asyncio.timeout(first.lease.started + WAIT_SECONDS_MAX - monotonic()):
                return await self._shares.slots.take()
        except TimeoutError:
            return None
        finally:
            self._shares.waiting -= 1

    def _hand_back(self) -> None:
        self._is_over = True
        self.subscription.hand_back()
        self._shares.changed()
