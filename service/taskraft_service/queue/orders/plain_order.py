"""Order the ready tasks of a tube without sub-queues: by lane, rank and id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import ClassVar

from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.orders.typed_orders import TypedOrders
from taskraft_service.queue.store.ordered_index import NOTHING, OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Write


class PlainOrder:
    """Order of all ready tasks by lane, rank and id; a taken task blocks no other task."""

    counts_leases: ClassVar[bool] = False
    """The order does not depend on the number of taken tasks."""
    __slots__ = ("_index", "types")

    def __init__(self, index: OrderedIndex, types: TypedOrders) -> None:
        """Use the entries in ``index`` and, by type, in ``types``."""
        self._index = index
        self.types = types

    @property
    def counts_claims(self) -> bool:
        """Return whether withdrawn tasks may also be in the order of a type."""
        return self.types.has_any

    def add(self, task: QueueTask) -> None:
        """Add a ready task."""
        self._index.add(task.order)
        self.types.add(task.type, task.order)

    def add_all(self, tasks: Sequence[QueueTask]) -> None:
        """Add ready tasks."""
        self._index.add_all([task.order for task in tasks])
        for task in tasks:
            if task.type:
                self.types.add(task.type, task.order)

    def discard(self, task: QueueTask) -> None:
        """Remove a task that is no longer ready."""
        self._index.discard(task.order)
        self.types.discard(task.type, task.order)

    def least(self) -> OrderKey | None:
        """Return the entry of the next task to take, or None."""
        return self._index.least()

    def pop_many(self, count: int) -> Sequence[OrderKey]:
        """Remove and return up to ``count`` entries to take next; empty if no task is ready."""
        return self._index.pop_many(count)

    def restore(self, entry: OrderKey) -> None:
        """Put a withdrawn entry back."""
        self._index.put_back(entry)

    def may_give(self, subqueue: str) -> bool:
        """Return True: there are no sub-queues to block."""
        return True

    def claim(self, task: QueueTask, now_ms: int) -> None:
        """Remove a task that is being taken from all orders."""
        self.discard(task)

    def claim_withdrawn(self, tasks: Sequence[QueueTask], now_ms: int) -> None:
        """Remove withdrawn tasks from the orders of their types."""
        for task in tasks:
            self.types.discard(task.type, task.order)

    def free(self, tasks: Sequence[QueueTask]) -> None:
        """Do nothing: taken tasks block no others."""

    def offered(self, ready: int) -> int:
        """Return how many tasks can be taken now: all ready ones."""
        return ready

    @property
    def offers(self) -> int:
        """Return 0: used by sub-queues only."""
        return 0

    @property
    def time(self) -> int:
        """Return 0: used by sub-queues only."""
        return 0

    def restore_state(self, offers: int, time: int) -> None:
        """Do nothing: the stored entries are the whole state."""

    def reopen(self, task: QueueTask) -> None:
        """Do nothing: taken tasks block no others."""

    def readmit(self, now_ms: int, most: int) -> int:
        """Do nothing: there are no sub-queues."""
        return 0

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Do nothing: there are no sub-queues."""

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries of all ready tasks after the given entry, in order."""
        return self._index.ordered(after)

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return about ``count`` entries that will be taken next, by type or without."""
        entries = self._index.coming(count)
        return [*entries, *self.types.coming(count)] if self.types.has_any else entries

    def is_head(self, task: QueueTask) -> bool:
        """Return whether a task's entry is in memory."""
        return self._index.is_head(task.order) or self.types.is_head(task.type, task.order)

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Return the entries that left memory; they are written with their tasks."""
        left = self._index.flushed()
        return chain(left, self.types.collect(ready)) if self.types.has_any else left
