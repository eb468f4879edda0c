"""Order the ready tasks of a tube with sub-queues, each with its own order and limits.

Every ready task has an entry in its sub-queue. The first task of each sub-queue that is not blocked
is offered (``subqueue_offers.py``). Which sub-queues are in memory (``subqueue_memory.py``) does
not affect the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import ClassVar, Final

from taskraft_service.queue.entities.rates import SubqueueRates
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.orders.plain_order import TypedOrders
from taskraft_service.queue.orders.subqueue_memory import SubqueueMemory
from taskraft_service.queue.orders.subqueue_offers import SubqueueOffers
from taskraft_service.queue.store.ordered_index import NOTHING, OrderKey
from taskraft_service.queue.store.store import Store, Write

BY_SUBQUEUE: Final = attrgetter("subqueue")


class SubqueueOrder:
    """The order of a tube's ready tasks, by sub-queue.

    The orders by type contain only offered tasks: a typed task can be taken only when it is the
    first of its sub-queue.
    """

    counts_leases: ClassVar[bool] = True
    """True: taken tasks can block their sub-queues."""
    __slots__ = ("_memory", "_offers", "_rates", "types")

    def __init__(
        self,
        number: int,
        store: Store,
        limits: Limits,
        types: TypedOrders,
        rates: SubqueueRates,
        options: TubeOptions,
        *,
        stored: bool,
    ) -> None:
        """Open the order of a tube, empty or (``stored``) with the entries in the store.

        ``options`` limit the taken tasks of a sub-queue and can set weights. Without weights, the
        first tasks of the sub-queues compete by lane, rank and id. ``rates`` limits the takes per
        second.
        """
        self._rates = rates
        self._offers = SubqueueOffers(number, store, limits, types, rates, options, stored=stored)
        self._memory = SubqueueMemory(number, store, limits, self._offers, stored=stored)
        self.types = types

    @property
    def counts_claims(self) -> bool:
        """Return True, because each taken task counts towards the limits of its sub-queue."""
        return True

    @property
    def offers(self) -> int:
        """Return the number of sub-queues that offer a task."""
        return self._offers.count

    @property
    def time(self) -> int:
        """Return the virtual time of the turns; 0 without weights."""
        return self._offers.time

    def restore_state(self, offers: int, time: int) -> None:
        """Restore count and virtual time from the tube's record."""
        self._offers.restore_state(offers, time)

    # ------------------------------------------------------------------------------------- changes

    def add(self, task: QueueTask) -> None:
        """Add a ready task."""
        if task.type:
            self.types.has_any = True
        subqueue, order = self._memory.touch(task.subqueue)
        order.add(task.order)
        self._offers.renew(subqueue, order)

    def add_all(self, tasks: Sequence[QueueTask]) -> None:
        """Add ready tasks."""
        if not self.types.has_any:
            self.types.has_any = any(task.type for task in tasks)
        for name, run in groupby(tasks, BY_SUBQUEUE):
            subqueue, order = self._memory.touch(name)
            order.add_all([task.order for task in run])
            self._offers.renew(subqueue, order)

    def discard(self, task: QueueTask) -> None:
        """Remove a task that is no longer ready, and offer the next task of its sub-queue."""
        subqueue, order = self._memory.touch(task.subqueue)
        order.discard(task.order)
        self._offers.renew(subqueue, order)

    def claim(self, task: QueueTask, now_ms: int) -> None:
        """Record that a task is taken."""
        subqueue, order = self._memory.touch(task.subqueue)
        offered = subqueue.offered
        if offered is not None and offered[-1] == task.id:
            self._offers.withdraw(offered)
            self.claim_withdrawn((task,), now_ms)
            return
        self._offers.give(subqueue, now_ms)
        order.discard(task.order)
        self._offers.renew(subqueue, order)

    def claim_withdrawn(self, tasks: Sequence[QueueTask], now_ms: int) -> None:
        """Record that tasks with withdrawn entries are taken."""
        touch, claim = self._memory.touch, self._offers.claim
        for task in tasks:
            subqueue, order = touch(task.subqueue)
            claimed = claim(subqueue, order, now_ms)
            assert claimed == task.order

    def free(self, tasks: Sequence[QueueTask]) -> None:
        """Record that tasks are no longer taken."""
        touch, renew = self._memory.touch, self._offers.renew
        for task in tasks:
            subqueue, order = touch(task.subqueue)
            subqueue.taken -= 1
            assert subqueue.taken >= 0, f"sub-queue {subqueue.name!r} gave back more than it gave"
            renew(subqueue, order)

    def reopen(self, task: QueueTask) -> None:
        """Count a task that was TAKEN when the store was written."""
        self._memory.reopen(task.subqueue)

    def may_give(self, subqueue: str) -> bool:
        """Return whether the concurrency limit allows another take from a sub-queue."""
        known = self._memory.get(subqueue)
        return self._offers.has_room(0 if known is None else known.taken)

    def readmit(self, now_ms: int, most: int) -> int:
        """Unblock up to ``most`` sub-queues whose rate allows takes again; return the number."""
        names = self._rates.due(now_ms, most)
        for name in names:
            subqueue, order = self._memory.touch(name)
            self._rates.readmit(name, now_ms)
            self._offers.renew(subqueue, order)
        return len(names)

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Change concurrency, weights and rates.

        Weights may be introduced or removed only while no task is offered. The call takes time in
        proportion to the number of sub-queues with taken tasks or recent takes.
        """
        barred = self._memory.taken().union(self._rates.barred())
        # Touch the sub-queues before the change, because the stored offers depend on the old
        # options.
        touched = [self._memory.touch(name) for name in sorted(barred)]
        self._offers.configure(options, now_ms)
        for subqueue, order in touched:
            self._offers.renew(subqueue, order)

    # ------------------------------------------------------------------------------------- offers

    def least(self) -> OrderKey | None:
        """Return the next entry to take, or None."""
        return self._offers.least()

    def pop_many(self, count: int) -> Sequence[OrderKey]:
        """Remove and return up to ``count`` entries to take next; empty if none is offered."""
        return self._offers.pop_many(count)

    def restore(self, entry: OrderKey) -> None:
        """Put a withdrawn entry back."""
        self._offers.restore(entry)

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the offered entries after ``after``, in order."""
        return self._offers.ordered(after)

    def offered(self, ready: int) -> int:
        """Return the number of offered tasks, a lower bound of the tasks that can be taken."""
        offers = self._offers.count
        assert offers <= ready
        return offers

    # ------------------------------------------------------------------------------------- memory

    def is_head(self, task: QueueTask) -> bool:
        """Return whether a ready task's entry is in memory."""
        known = self._memory.get(task.subqueue)
        if known is None or known.order is None:
            return False
        return known.order.is_head(task.order)

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return the entries of about ``count`` tasks that will be taken next.

        These are the offered tasks, and an equal number of later tasks of each warm sub-queue.
        """
        offered = self._offers.coming(count)
        return [*offered, *self._memory.coming(count, count - len(offered))]

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Append the changed offers to ``writes``, and drop the sub-queues that are not in use.

        Returns the entries that left memory, also offered entries of sub-queues that are not known.
        """
        left = self._offers.collect(writes, ready)
        return chain(left, self._memory.collect(writes, ready))
