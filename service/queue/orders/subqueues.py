"""Take the tasks of each sub-queue strictly in order, and only so many of it at once.

Every ready task has a place in its sub-queue. The first of each sub-queue that may give another
task is offered, and what is offered is one ordered index: a take pops its least entry, whatever
number of tasks wait behind busy sub-queues (tarantool/queue calls this a ready buffer). Only a
taken task bars its sub-queue, or the rate of its takes; buried and delayed ones do not.

Memory follows the work in hand. A sub-queue is known while it has taken tasks, and its order is in
memory while it is in use; what a sub-queue offers follows from the places in the store and from the
number of its taken tasks and from its rate, so that a forgotten one can be met again at any time.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final

from service.queue.keys import (
    READY_ORDER,
    order_scan,
    place_scan,
    subqueue_prefix,
)
from service.queue.orders.fairness import Fairness
from service.queue.orders.ordered_index import NOTHING, OrderedIndex
from service.queue.orders.subqueue import Subqueue, stored_turn, write_offer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from service.queue.commands import TubeOptions
    from service.queue.limits import Limits
    from service.queue.orders.ordered_index import Entry
    from service.queue.orders.subqueue_rates import SubqueueRates
    from service.queue.orders.typed_orders import TypedOrders
    from service.queue.store import Store, Write
    from service.queue.tasks.task import Task

BY_SUBQUEUE: Final = attrgetter("subqueue")


class SubqueueOrder:
    """The order of a tube's ready tasks, sub-queue by sub-queue.

    An entry among the offers is the place of the task (lane, rank, id), or, where sub-queues have
    weights, its turn, rank and id. By type there is the same, of what is offered only: a task of a
    type waits until it is the first of its sub-queue.
    """

    counts_leases: ClassVar[bool] = True
    """Taken tasks bar their sub-queues."""
    __slots__ = (
        "_concurrency",
        "_fairness",
        "_has_cold",
        "_limits",
        "_number",
        "_offers",
        "_rates",
        "_store",
        "_subqueues",
        "_touched",
        "_warm",
        "offers",
        "types",
    )

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
        weights = dict(options.subqueue_weights)
        self._number = number
        self._store = store
        self._limits = limits
        self._rates = rates
        self._concurrency = options.subqueue_concurrency
        self._fairness = Fairness(weights) if weights else None
        self._offers = OrderedIndex(
            order_scan(store, READY_ORDER, number), limits.head_entries_max, stored=stored
        )
        self.offers = 0
        self.types = types
        self._subqueues: dict[str, Subqueue] = {}
        self._warm: dict[str, Subqueue] = {}
        """Those with an order in memory, the one not used for longest first."""
        self._touched: list[Subqueue] = []
        self._has_cold = stored

    @property
    def counts_claims(self) -> bool:
        """Tell that what is withdrawn must be claimed."""
        return True

    @property
    def time(self) -> int:
        """Return the virtual time of the turns; 0 where there are none."""
        return self._fairness.time if self._fairness is not None else 0

    def restore_state(self, offers: int, time: int) -> None:
        """Take over what the tube's record says besides the places."""
        self.offers = offers
        if self._fairness is not None:
            self._fairness.time = time

    # ------------------------------------------------------------------------------------- changes

    def add(self, task: Task) -> None:
        """Take in a task that is ready."""
        if task.type:
            self.types.has_any = True
        subqueue, order = self._touch(task.subqueue)
        order.add(task.order)
        self._offer(subqueue, order)

    def add_all(self, tasks: Sequence[Task]) -> None:
        """Take in tasks that are ready."""
        if not self.types.has_any:
            self.types.has_any = any(task.type for task in tasks)
        for name, run in groupby(tasks, BY_SUBQUEUE):
            subqueue, order = self._touch(name)
            order.add_all([task.order for task in run])
            self._offer(subqueue, order)

    def discard(self, task: Task) -> None:
        """Let go of a task that is not ready any more; the next of its sub-queue is offered."""
        subqueue, order = self._touch(task.subqueue)
        order.discard(task.order)
        self._offer(subqueue, order)

    def claim(self, task: Task, now_ms: int) -> None:
        """Take note that a task is taken."""
        subqueue, order = self._touch(task.subqueue)
        offered = subqueue.offered
        if offered is not None and offered[-1] == task.id:
            self._offers.discard(offered)
            self.claim_withdrawn((task,), now_ms)
            return
        self._give(subqueue, now_ms)
        order.discard(task.order)
        if subqueue.taken < self._concurrency or offered is not None:
            self._offer(subqueue, order)

    def claim_withdrawn(self, tasks: Sequence[Task], now_ms: int) -> None:
        """Take note that tasks are taken whose entries are not among the offers any more."""
        for task in tasks:
            subqueue, order = self._touch(task.subqueue)
            offered = subqueue.offered
            assert offered is not None
            assert offered[-1] == task.id
            self._give(subqueue, now_ms)
            # What the sub-queue offers next gets a new turn.
            self._forget_offer(subqueue, offered)
            if self._fairness is not None:
                self._fairness.serve(offered[0])
            first = order.pop_least()
            assert first == task.order
            if subqueue.taken < self._concurrency:
                self._offer(subqueue, order)

    def _give(self, subqueue: Subqueue, now_ms: int) -> None:
        """Count a task that a sub-queue gives."""
        subqueue.taken += 1
        if self._rates.per_second:
            self._rates.use(subqueue.name, now_ms)

    def free(self, tasks: Sequence[Task]) -> None:
        """Take note that tasks are not taken any more."""
        for task in tasks:
            subqueue, order = self._touch(task.subqueue)
            subqueue.taken -= 1
            assert subqueue.taken >= 0, f"sub-queue {subqueue.name!r} gave back more than it gave"
            self._offer(subqueue, order)

    def reopen(self, task: Task) -> None:
        """Count a task that was taken when the store was written."""
        subqueue = self._subqueues.get(task.subqueue)
        if subqueue is None:
            subqueue = self._subqueues[task.subqueue] = Subqueue(task.subqueue)
        subqueue.taken += 1

    def may_give(self, subqueue: str) -> bool:
        """Tell whether one more task of a sub-queue may be taken, whatever is ready."""
        known = self._subqueues.get(subqueue)
        return known is None or known.taken < self._concurrency

    def readmit(self, now_ms: int, most: int) -> int:
        """Let up to so many sub-queues go on whose rates bar them no longer; return how many."""
        names = self._rates.due(now_ms, most)
        for name in names:
            subqueue, order = self._touch(name)
            self._rates.readmit(name, now_ms)
            self._offer(subqueue, order)
        return len(names)

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Change concurrency, weights and rates; weights begin or cease to exist only while empty.

        Takes time in proportion to the number of sub-queues that have taken tasks, or that have
        given some lately.
        """
        weights = dict(options.subqueue_weights)
        if bool(weights) != (self._fairness is not None):
            assert self.offers == 0
            self._fairness = Fairness(weights) if weights else None
        elif self._fairness is not None:
            self._fairness.weights = weights
        barred = {name for name, subqueue in self._subqueues.items() if subqueue.taken}
        barred.update(self._rates.barred())
        opened = [self._touch(name) for name in sorted(barred)]
        self._concurrency = options.subqueue_concurrency
        self._rates.configure(options, now_ms)
        for subqueue, order in opened:
            self._offer(subqueue, order)

    # ------------------------------------------------------------------------------------- offers

    def least(self) -> Entry | None:
        """Return the entry that is to be taken next, or None."""
        return self._offers.least()

    def pop_many(self, count: int) -> Sequence[Entry]:
        """Withdraw up to so many entries, but one where a sub-queue may give several at once.

        Then what comes next depends on whether the first is claimed.
        """
        return self._offers.pop_many(min(count, 1) if self._concurrency > 1 else count)

    def restore(self, entry: Entry) -> None:
        """Offer a withdrawn entry again."""
        self._offers.put_back(entry)

    def ordered(self, after: Entry = NOTHING) -> Iterator[Entry]:
        """Yield what is offered above an entry, in order."""
        return self._offers.ordered(after)

    def offered(self, ready: int) -> int:
        """Return how many sub-queues offer a task: so many tasks could be taken at least."""
        assert self.offers <= ready
        return self.offers

    def _is_free(self, subqueue: Subqueue) -> bool:
        """Tell whether neither its leases nor its rate bar a sub-queue."""
        return subqueue.taken < self._concurrency and (
            not self._rates.per_second or self._rates.allows(subqueue.name)
        )

    def _offer(self, subqueue: Subqueue, order: OrderedIndex) -> None:
        """Bring what a touched sub-queue offers in line with its first task and its leases."""
        before = subqueue.offered
        least = order.least() if self._is_free(subqueue) else None
        if least is None or self._fairness is None:
            wanted = least
        else:
            turn = self._fairness.turn(subqueue.name) if before is None else before[0]
            wanted = (turn, *least[1:])
        if wanted == before:
            return
        if before is not None:
            self._withdraw(subqueue, before)
        if wanted is not None:
            self._offers.add(wanted)
            self.offers += 1
            subqueue.offered = wanted
            if self.types.has_any:
                subqueue.offered_type = self.types.type_of(wanted[-1])
                self.types.add(subqueue.offered_type, wanted)

    def _withdraw(self, subqueue: Subqueue, offered: Entry) -> None:
        """Take what a sub-queue offers out of the offers, if it is still there."""
        self._offers.discard(offered)
        self._forget_offer(subqueue, offered)

    def _forget_offer(self, subqueue: Subqueue, offered: Entry) -> None:
        """Take note that what a sub-queue offered is not among the offers any more."""
        self.offers -= 1
        subqueue.offered = None
        if subqueue.offered_type:
            self.types.discard(subqueue.offered_type, offered)
            subqueue.offered_type = ""

    # ------------------------------------------------------------------------------------- memory

    def is_head(self, task: Task) -> bool:
        """Tell whether a ready task's place is in memory."""
        subqueue = self._subqueues.get(task.subqueue)
        if subqueue is None or subqueue.order is None:
            return False
        return subqueue.order.is_head(task.order)

    def coming(self, count: int) -> Sequence[Entry]:
        """Return entries of about so many tasks that will be taken next.

        Those are what is offered, and in sub-queues in use what comes behind it, of each as much.
        """
        entries = list(self._offers.coming(count))
        share = max(count // max(len(self._warm), 1), 1)
        for subqueue in reversed(self._warm.values()):
            if len(entries) >= count:
                break
            assert subqueue.order is not None
            entries += subqueue.order.coming(share)
        return entries

    def _touch(self, name: str) -> tuple[Subqueue, OrderedIndex]:
        """Return a sub-queue that is about to change, with its order."""
        subqueue = self._subqueues.get(name)
        is_new = subqueue is None
        if subqueue is None:
            subqueue = self._subqueues[name] = Subqueue(name)
        order = subqueue.order
        if order is None:
            # A known one without its order is as the store says, whatever else is cold.
            order = self._open(subqueue, stored=self._has_cold or not is_new)
        if not subqueue.touched:
            subqueue.touched = True
            subqueue.written, subqueue.written_type = subqueue.offered, subqueue.offered_type
            self._touched.append(subqueue)
        return subqueue, order

    def _open(self, subqueue: Subqueue, *, stored: bool) -> OrderedIndex:
        """Bring the order of a sub-queue into memory, and find out what the sub-queue offers."""
        prefix = subqueue_prefix(self._number, subqueue.name)
        scan = place_scan(self._store, prefix)
        order = OrderedIndex(scan, self._entries_max(), stored=stored)
        subqueue.order = order
        least = order.least() if stored and self._is_free(subqueue) else None
        if least is not None and self._fairness is not None:
            turn = stored_turn(self._store, self._number, subqueue.name, least)
            subqueue.offered = (turn, *least[1:])
        else:
            subqueue.offered = least
        if least is not None and self.types.has_any:
            subqueue.offered_type = self.types.type_of(least[-1])
        return order

    def _entries_max(self) -> int:
        """Return how many entries of one sub-queue may be in memory: the more, the fewer are."""
        limits = self._limits
        return max(limits.subqueue_entries_max, limits.head_entries_max // (len(self._warm) + 1))

    def collect(self, writes: list[Write], ready: int) -> Iterable[Entry]:
        """Append the offers that changed to ``writes``, and forget what is not in use."""
        self._offers.flushed()
        self._rates.collect(writes)
        if self.types.has_any:
            self.types.collect(ready)
        if ready == 0:
            self._has_cold = False
        left: list[Entry] = []
        entries_max = self._entries_max()
        for subqueue in self._touched:
            subqueue.touched = False
            order = subqueue.order
            assert order is not None
            write_offer(self._number, subqueue, writes, has_turns=self._fairness is not None)
            left += order.flushed()
            self._warm.pop(subqueue.name, None)
            if subqueue.taken == 0 and order.least() is None:
                del self._subqueues[subqueue.name]
            else:
                self._warm[subqueue.name] = subqueue
                order.head_max = entries_max
        self._touched.clear()
        while len(self._warm) > self._limits.subqueues_max:
            left += self._cool(self._warm.pop(next(iter(self._warm))))
        return left

    def _cool(self, subqueue: Subqueue) -> list[Entry]:
        """Let go of the order of a sub-queue that the store knows; return what was in memory."""
        assert not subqueue.touched
        assert subqueue.order is not None
        left = list(subqueue.order.members())
        subqueue.order = subqueue.offered = None
        subqueue.offered_type = ""
        if subqueue.taken == 0:
            del self._subqueues[subqueue.name]
        self._has_cold = True
        return left
