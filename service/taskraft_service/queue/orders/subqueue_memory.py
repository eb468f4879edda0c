"""Keep the recently used sub-queues of a tube in memory, and drop the others.

A sub-queue is known while it has taken tasks or an order in memory. A sub-queue is warm while its
order is in memory, and cold otherwise. The store has the whole state of a cold sub-queue except for
the number of its taken tasks, so the order can be loaded again at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import place_scan, subqueue_prefix
from taskraft_service.queue.store.ordered_index import OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store, Write


class Subqueue:
    """State of one sub-queue.

    ``order`` holds the entries of its ready tasks. None: they are only in the store, and
    ``offered`` is unknown. ``offered`` is the entry of the offered task, or None. ``written`` is
    the offered entry in the store; it is valid only while ``touched``. ``offered_type`` and
    ``written_type`` are the types of the tasks of the two entries.
    """

    __slots__ = (
        "name",
        "offered",
        "offered_type",
        "order",
        "taken",
        "touched",
        "written",
        "written_type",
    )

    def __init__(self, name: str) -> None:
        """Make a sub-queue without taken tasks."""
        self.name = name
        self.taken = 0
        self.order: OrderedIndex | None = None
        self.offered: OrderKey | None = None
        self.offered_type = ""
        self.written: OrderKey | None = None
        self.written_type = ""
        self.touched = False


class OfferSource(Protocol):
    """Interface to the offered tasks of one tube's sub-queues; see ``SubqueueOffers``."""

    def find(self, subqueue: Subqueue, order: OrderedIndex) -> None:
        """Set the offered task of a sub-queue whose order was opened from the store."""

    def write(self, subqueue: Subqueue, writes: list[Write]) -> None:
        """Append the changes of the offered task of a sub-queue to ``writes``."""


class SubqueueMemory:
    """The sub-queues of one tube that are in memory."""

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
        self, number: int, store: Store, limits: Limits, offers: OfferSource, *, stored: bool
    ) -> None:
        """Start without sub-queues; ``stored``: the store may already have ready tasks.

        ``offers`` finds the offered task of a sub-queue that is loaded from the store.
        """
        self._number = number
        self._store = store
        self._limits = limits
        self._offers = offers
        self._known: dict[str, Subqueue] = {}
        self._warm: dict[str, Subqueue] = {}
        """The sub-queues with an order in memory, the least recently used first."""
        self._touched: list[Subqueue] = []
        """The sub-queues that may differ from the store."""
        self._has_cold = stored
        """True if a sub-queue that is not known may have ready tasks."""

    def get(self, name: str) -> Subqueue | None:
        """Return a known sub-queue, warm or cold, or None."""
        return self._known.get(name)

    def taken(self) -> set[str]:
        """Return the names of the sub-queues with taken tasks."""
        return {name for name, subqueue in self._known.items() if subqueue.taken}

    def reopen(self, name: str) -> None:
        """Count a task that is taken according to the store."""
        subqueue = self._known.get(name)
        if subqueue is None:
            subqueue = self._known[name] = Subqueue(name)
        subqueue.taken += 1

    def touch(self, name: str) -> tuple[Subqueue, OrderedIndex]:
        """Make a sub-queue warm because it is about to change; return it with its order."""
        subqueue = self._known.get(name)
        is_new = subqueue is None
        if subqueue is None:
            subqueue = self._known[name] = Subqueue(name)
        order = subqueue.order
        if order is None:
            # A known sub-queue without an order is cold, so its tasks are in the store.
            order = self._open(subqueue, stored=self._has_cold or not is_new)
        if not subqueue.touched:
            subqueue.touched = True
            subqueue.written, subqueue.written_type = subqueue.offered, subqueue.offered_type
            self._touched.append(subqueue)
        return subqueue, order

    def coming(self, count: int, room: int) -> list[OrderKey]:
        """Return about ``room`` next entries of warm sub-queues, the most recently used first.

        Each warm sub-queue gives at most an equal share of ``count``, and at least one entry.
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
        """Append the changed offers to ``writes``, and drop the sub-queues that are not in use.

        Returns the entries that left memory. ``ready`` is the number of ready tasks of the tube.
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
            # Check before ``flushed``, because after ``flushed`` the order reads the store, which
            # lacks these writes.
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
        """Load the order of a sub-queue into memory, and find its offered task."""
        scan = place_scan(self._store, subqueue_prefix(self._number, subqueue.name))
        order = subqueue.order = OrderedIndex(scan, self._entries_max(), stored=stored)
        if stored:
            self._offers.find(subqueue, order)
        return order

    def _cool(self, subqueue: Subqueue) -> list[OrderKey]:
        """Drop the order of a sub-queue that is in the store; return the entries dropped."""
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
        """Return the maximum number of entries of one sub-queue; shrinks with more sub-queues."""
        limits = self._limits
        return max(limits.subqueue_entries_max, limits.head_entries_max // (len(self._warm) + 1))
