"""Order the ready tasks of a tube without sub-queues by lane, rank and id.

Each type has an order of its own in addition to the order of all tasks, so that a take of one type
does not scan the tasks of other types. A task without a type is only in the order of all tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import ClassVar

from taskraft_service.queue.entities.ready_tasks import OffersOfTypes
from taskraft_service.queue.entities.task_codec import read_type
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import place_scan, task_key, typed_prefix
from taskraft_service.queue.store.ordered_index import NOTHING, OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store, Write


class TypedOrders:
    """The orders of a tube by type.

    Each order is an index whose head is in memory and whose rest is in the store. Memory keeps the
    index of a type only if takes asked for that type; the index of any other type is dropped with
    the next batch of writes.

    Does not write to the store: the code that adds an entry writes its key under ``typed_prefix``.
    """

    __slots__ = (
        "_added",
        "_asked",
        "_limits",
        "_number",
        "_orders",
        "_store",
        "_stored",
        "_tasks",
        "has_any",
    )

    def __init__(
        self,
        number: int,
        store: Store,
        limits: Limits,
        tasks: Mapping[int, QueueTask],
        *,
        stored: bool,
    ) -> None:
        """Open the orders of a tube, empty or (``stored``) with the entries in the store.

        ``tasks`` are the tasks of the tube that are in memory.
        """
        self._number = number
        self._store = store
        self._limits = limits
        self._tasks = tasks
        self._stored = stored
        self._orders: dict[str, OrderedIndex] = {}
        """Indexes by type, the least recently requested first."""
        self._added: list[tuple[OrderedIndex, OrderKey]] | None = None
        """Entries that were added since the last ``ask``; None: no take asked since ``collect``."""
        self._asked: set[str] = set()
        """Types that a take requested since their index was opened."""
        self.has_any = False
        """True if the tube ever had a ready task with a type; stored in the tube's record."""

    def add(self, task_type: str, entry: OrderKey) -> None:
        """Add an entry to the order of a type; does nothing without a type."""
        if task_type:
            self.has_any = True
            order = self._order(task_type)
            order.add(entry)
            if self._added is not None:
                self._added.append((order, entry))

    def discard(self, task_type: str, entry: OrderKey) -> None:
        """Remove an entry from the order of a type; do nothing if it is missing."""
        if task_type and self.has_any:
            self._order(task_type).discard(entry)

    def ask(self, types: Sequence[str]) -> OffersOfTypes:
        """Return the indexes of the given types, and keep the indexes in memory.

        The indexes are valid until the next ``collect``.
        """
        if not self.has_any:
            return OffersOfTypes((), ())
        wanted = dict.fromkeys(types)
        wanted.pop("", None)  # tasks without a type are in no index
        for name in wanted:
            order = self._order(name)
            del self._orders[name]
            self._orders[name] = order
        self._asked.update(wanted)
        self._added = []
        return OffersOfTypes([self._orders[name] for name in wanted], self._added)

    def type_of(self, task_id: int) -> str:
        """Return the type of a task, from memory or from the store."""
        task = self._tasks.get(task_id)
        if task is not None:
            return task.type
        record = self._store.get(task_key(self._number, task_id))
        assert record is not None, f"tube {self._number} has no task {task_id}"
        return read_type(record)

    def is_head(self, task_type: str, entry: OrderKey) -> bool:
        """Return whether an entry of a requested type is in memory."""
        return task_type in self._asked and self._orders[task_type].is_head(entry)

    def coming(self, count: int) -> list[OrderKey]:
        """Return about ``count`` entries that takes by type will reach next."""
        share = max(count // max(len(self._asked), 1), 1)
        entries: list[OrderKey] = []
        for name in reversed(self._orders):
            if len(entries) >= count:
                break
            if name in self._asked:
                entries += self._orders[name].coming(share)
        return entries

    def collect(self, ready: int) -> list[OrderKey]:
        """Drop unneeded indexes, once the store has all changes; return the dropped entries.

        ``ready`` is the number of READY tasks of the tube.
        """
        self._stored = ready > 0
        self._added = None
        left: list[OrderKey] = []
        surplus = len(self._asked) - self._limits.types_max
        for name, order in list(self._orders.items()):
            left += order.flushed()
            if name in self._asked and surplus <= 0:
                order.head_max = self._entries_max()
                continue
            if name in self._asked:
                self._asked.discard(name)
                surplus -= 1
            left += order.members()
            del self._orders[name]
        return left

    def _order(self, name: str) -> OrderedIndex:
        order = self._orders.get(name)
        if order is None:
            scan = place_scan(self._store, typed_prefix(self._number, name))
            order = OrderedIndex(scan, self._entries_max(), stored=self._stored)
            self._orders[name] = order
        return order

    def _entries_max(self) -> int:
        """Return the maximum number of entries of one type in memory; shrinks with more types."""
        limits = self._limits
        return max(limits.type_entries_max, limits.head_entries_max // (len(self._asked) + 1))


class PlainOrder:
    """Order of all ready tasks by lane, rank and id; a taken task blocks no other task."""

    counts_leases: ClassVar[bool] = False
    """False: the order does not depend on the number of taken tasks."""
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
        """Return True, because there are no sub-queues that could be blocked."""
        return True

    def claim(self, task: QueueTask, now_ms: int) -> None:
        """Remove a task that is being taken from all orders."""
        self.discard(task)

    def claim_withdrawn(self, tasks: Sequence[QueueTask], now_ms: int) -> None:
        """Remove withdrawn tasks from the orders of their types."""
        for task in tasks:
            self.types.discard(task.type, task.order)

    def free(self, tasks: Sequence[QueueTask]) -> None:
        """Do nothing, because taken tasks block no other tasks."""

    def offered(self, ready: int) -> int:
        """Return the number of tasks that can be taken now: all ready tasks."""
        return ready

    @property
    def offers(self) -> int:
        """Return 0; only orders with sub-queues use this value."""
        return 0

    @property
    def time(self) -> int:
        """Return 0; only orders with sub-queues use this value."""
        return 0

    def restore_state(self, offers: int, time: int) -> None:
        """Do nothing, because the stored entries are the whole state."""

    def reopen(self, task: QueueTask) -> None:
        """Do nothing, because taken tasks block no other tasks."""

    def readmit(self, now_ms: int, most: int) -> int:
        """Do nothing, because there are no sub-queues."""
        return 0

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Do nothing, because there are no sub-queues."""

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries of all ready tasks after the given entry, in order."""
        return self._index.ordered(after)

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return about ``count`` entries that takes, with or without a type, will reach next."""
        entries = self._index.coming(count)
        return [*entries, *self.types.coming(count)] if self.types.has_any else entries

    def is_head(self, task: QueueTask) -> bool:
        """Return whether a task's entry is in memory."""
        return self._index.is_head(task.order) or self.types.is_head(task.type, task.order)

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Return the entries that left memory; they are written with their tasks."""
        left = self._index.flushed()
        return chain(left, self.types.collect(ready)) if self.types.has_any else left
