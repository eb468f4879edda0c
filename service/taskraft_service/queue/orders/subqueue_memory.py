"""Keep the sub-queues of a tube that are in use in memory, and forget the others.

A sub-queue is known while it has taken tasks; its order is in memory, it is warm, while it was
among the last in use. Of a cold one the store says everything but how many of its tasks are taken,
so that one that was forgotten can be met again at any time.
"""

from __future__ import annotations

from collections.abc import Iterable

from taskraft_service.queue.limits import Limits
from taskraft_service.queue.orders.subqueue import Subqueue
from taskraft_service.queue.orders.subqueue_offers import SubqueueOffers
from taskraft_service.queue.store.keys import place_scan, subqueue_prefix
from taskraft_service.queue.store.ordered_index import OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store, Write


class SubqueueMemory:
    """The sub-queues of one tube that memory knows."""

    __slots__ = (
        "_has_cold",
        "_known",
        "_limits",
        "_number",
        "_offers",
        "_store",
        "_touched",
        "_warm",
    )

    def __init__(
        self, number: int, store: Store, limits: Limits, offers: SubqueueOffers, *, stored: bool
    ) -> None:
        """Know nothing; ``stored``: the store may have ready tasks of a tube's number.

        ``offers`` tells what a sub-queue offers that comes out of the store.
        """
        self._number = number
        self._store = store
        self._limits = limits
        self._offers = offers
        self._known: dict[str, Subqueue] = {}
        self._warm: dict[str, Subqueue] = {}
        """Those with an order in memory, the one not used for longest first."""
        self._touched: list[Subqueue] = []
        """Those that may differ from what the store says."""
        self._has_cold = stored
        """Whether one that is not known may have ready tasks."""

    def get(self, name: str) -> Subqueue | None:
        """Return a sub-queue if it is known; it may be cold."""
        return self._known.get(name)

    def taken(self) -> set[str]:
        """Return the names of those with taken tasks."""
        return {name for name, subqueue in self._known.items() if subqueue.taken}

    def reopen(self, name: str) -> None:
        """Count a task that was taken when the store was written."""
        subqueue = self._known.get(name)
        if subqueue is None:
            subqueue = self._known[name] = Subqueue(name)
        subqueue.taken += 1

    def touch(self, name: str) -> tuple[Subqueue, OrderedIndex]:
        """Return a sub-queue that is about to change, with its order; it is warm then."""
        subqueue = self._known.get(name)
        is_new = subqueue is None
        if subqueue is None:
            subqueue = self._known[name] = Subqueue(name)
        order = subqueue.order
        if order is None:
            # A known one without its order is as the store says, whatever else is cold.
            order = self._open(subqueue, stored=self._has_cold or not is_new)
        if not subqueue.touched:
            subqueue.touched = True
            subqueue.written, subqueue.written_type = subqueue.offered, subqueue.offered_type
            self._touched.append(subqueue)
        return subqueue, order

    def coming(self, count: int, room: int) -> list[OrderKey]:
        """Return about ``room`` of the next places of warm sub-queues, those used last first.

        None gives more than its share of ``count``.
        """
        share = max(count // max(len(self._warm), 1), 1)
        places: list[OrderKey] = []
        for subqueue in reversed(self._warm.values()):
            if len(places) >= room:
                break
            assert subqueue.order is not None
            places += subqueue.order.coming(share)
        return places

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Append the offers that changed to ``writes``, and forget what is not in use.

        Returns the places that left memory. ``ready`` is the number of ready tasks of the tube.
        """
        if ready == 0:
            self._has_cold = False
        left: list[OrderKey] = []
        entries_max = self._entries_max()
        for subqueue in self._touched:
            subqueue.touched = False
            order = subqueue.order
            assert order is not None
            self._offers.write(subqueue, writes)
            # Before the order trusts the store: that has the writes only after this.
            is_unused = subqueue.taken == 0 and order.least() is None
            left += order.flushed()
            self._warm.pop(subqueue.name, None)
            if is_unused:
                del self._known[subqueue.name]
            else:
                self._warm[subqueue.name] = subqueue
                order.head_max = entries_max
        self._touched.clear()
        while len(self._warm) > self._limits.subqueues_max:
            left += self._cool(self._warm.pop(next(iter(self._warm))))
        return left

    def _open(self, subqueue: Subqueue, *, stored: bool) -> OrderedIndex:
        """Bring the order of a sub-queue into memory, and find out what the sub-queue offers."""
        scan = place_scan(self._store, subqueue_prefix(self._number, subqueue.name))
        order = subqueue.order = OrderedIndex(scan, self._entries_max(), stored=stored)
        if stored:
            self._offers.find(subqueue, order)
        return order

    def _cool(self, subqueue: Subqueue) -> list[OrderKey]:
        """Let go of the order of a sub-queue that the store knows; return what was in memory."""
        assert not subqueue.touched
        assert subqueue.order is not None
        left = list(subqueue.order.members())
        subqueue.order = subqueue.offered = None
        subqueue.offered_type = ""
        if subqueue.taken == 0:
            del self._known[subqueue.name]
        self._has_cold = True
        return left

    def _entries_max(self) -> int:
        """Return how many entries of one sub-queue may be in memory: the more, the fewer are."""
        limits = self._limits
        return max(limits.subqueue_entries_max, limits.head_entries_max // (len(self._warm) + 1))
