"""Take the tasks of each sub-queue strictly in order, and only so many of it at once.

Every ready task has a place in its sub-queue; the first of each sub-queue that may give another
task is offered (``subqueue_offers.py``). Memory follows the work in hand: which sub-queues it
knows, and of which it holds places (``subqueue_memory.py``), changes no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import ClassVar, Final

from taskraft_service.queue.entities.subqueue_rates import SubqueueRates
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.orders.subqueue_memory import SubqueueMemory
from taskraft_service.queue.orders.subqueue_offers import SubqueueOffers
from taskraft_service.queue.orders.typed_orders import TypedOrders
from taskraft_service.queue.store.ordered_index import NOTHING, OrderKey
from taskraft_service.queue.store.store import Store, Write

BY_SUBQUEUE: Final = attrgetter("subqueue")


class SubqueueOrder:
    """The order of a tube's ready tasks, sub-queue by sub-queue.

    By type there is the same, of what is offered only: a task of a type waits until it is the first
    of its sub-queue.
    """

    counts_leases: ClassVar[bool] = True
    """Taken tasks bar their sub-queues."""
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
        """Begin with nothing, or (``stored``) with what the store has of a tube's number.

        ``options`` say how many tasks of a sub-queue are taken at once; where they have no weights,
        the first tasks of sub-queues compete by their places. ``rates``: what bars them besides.
        """
        self._rates = rates
        self._offers = SubqueueOffers(number, store, limits, types, rates, options, stored=stored)
        self._memory = SubqueueMemory(number, store, limits, self._offers, stored=stored)
        self.types = types

    @property
    def counts_claims(self) -> bool:
        """Tell that what is withdrawn must be claimed."""
        return True

    @property
    def offers(self) -> int:
        """Return how many sub-queues offer a task."""
        return self._offers.count

    @property
    def time(self) -> int:
        """Return the virtual time of the turns; 0 where there are none."""
        return self._offers.time

    def restore_state(self, offers: int, time: int) -> None:
        """Take over what the tube's record says besides the places."""
        self._offers.restore_state(offers, time)

    # ------------------------------------------------------------------------------------- changes

    def add(self, task: QueueTask) -> None:
        """Take in a task that is ready."""
        if task.type:
            self.types.has_any = True
        subqueue, order = self._memory.touch(task.subqueue)
        order.add(task.order)
        self._offers.renew(subqueue, order)

    def add_all(self, tasks: Sequence[QueueTask]) -> None:
        """Take in tasks that are ready."""
        if not self.types.has_any:
            self.types.has_any = any(task.type for task in tasks)
        for name, run in groupby(tasks, BY_SUBQUEUE):
            subqueue, order = self._memory.touch(name)
            order.add_all([task.order for task in run])
            self._offers.renew(subqueue, order)

    def discard(self, task: QueueTask) -> None:
        """Let go of a task that is not ready any more; the next of its sub-queue is offered."""
        subqueue, order = self._memory.touch(task.subqueue)
        order.discard(task.order)
        self._offers.renew(subqueue, order)

    def claim(self, task: QueueTask, now_ms: int) -> None:
        """Take note that a task is taken."""
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
        """Take note that tasks are taken whose entries are not among the offers any more."""
        touch, claim = self._memory.touch, self._offers.claim
        for task in tasks:
            subqueue, order = touch(task.subqueue)
            claimed = claim(subqueue, order, now_ms)
            assert claimed == task.order

    def free(self, tasks: Sequence[QueueTask]) -> None:
        """Take note that tasks are not taken any more."""
        touch, renew = self._memory.touch, self._offers.renew
        for task in tasks:
            subqueue, order = touch(task.subqueue)
            subqueue.taken -= 1
            assert subqueue.taken >= 0, f"sub-queue {subqueue.name!r} gave back more than it gave"
            renew(subqueue, order)

    def reopen(self, task: QueueTask) -> None:
        """Count a task that was taken when the store was written."""
        self._memory.reopen(task.subqueue)

    def may_give(self, subqueue: str) -> bool:
        """Tell whether one more task of a sub-queue may be taken, whatever is ready."""
        known = self._memory.get(subqueue)
        return self._offers.has_room(0 if known is None else known.taken)

    def readmit(self, now_ms: int, most: int) -> int:
        """Let up to so many sub-queues go on whose rates bar them no longer; return how many."""
        names = self._rates.due(now_ms, most)
        for name in names:
            subqueue, order = self._memory.touch(name)
            self._rates.readmit(name, now_ms)
            self._offers.renew(subqueue, order)
        return len(names)

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Change concurrency, weights and rates; weights begin or cease to exist only while empty.

        Takes time in proportion to the number of sub-queues that have taken tasks, or that have
        given some lately.
        """
        barred = self._memory.taken().union(self._rates.barred())
        # They are touched while what they offer can still be found out by the old options.
        touched = [self._memory.touch(name) for name in sorted(barred)]
        self._offers.configure(options, now_ms)
        for subqueue, order in touched:
            self._offers.renew(subqueue, order)

    # ------------------------------------------------------------------------------------- offers

    def least(self) -> OrderKey | None:
        """Return the entry that is to be taken next, or None."""
        return self._offers.least()

    def pop_many(self, count: int) -> Sequence[OrderKey]:
        """Withdraw up to so many entries that are to be taken next; none: there is none."""
        return self._offers.pop_many(count)

    def restore(self, entry: OrderKey) -> None:
        """Offer a withdrawn entry again."""
        self._offers.restore(entry)

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield what is offered above an entry, in order."""
        return self._offers.ordered(after)

    def offered(self, ready: int) -> int:
        """Return how many sub-queues offer a task: so many tasks could be taken at least."""
        offers = self._offers.count
        assert offers <= ready
        return offers

    # ------------------------------------------------------------------------------------- memory

    def is_head(self, task: QueueTask) -> bool:
        """Tell whether a ready task's place is in memory."""
        known = self._memory.get(task.subqueue)
        if known is None or known.order is None:
            return False
        return known.order.is_head(task.order)

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return entries of about so many tasks that will be taken next.

        Those are what is offered, and in sub-queues in use what comes behind it, of each as much.
        """
        offered = self._offers.coming(count)
        return [*offered, *self._memory.coming(count, count - len(offered))]

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Append the offers that changed to ``writes``, and forget what is not in use.

        Returns what left memory: of what was offered, also of sub-queues that it does not know.
        """
        left = self._offers.collect(writes, ready)
        return chain(left, self._memory.collect(writes, ready))
