"""Order the ready tasks of a tube by type, so that a take of one type does not scan other types.

Each type has an order of its own in addition to the order of all tasks. A task without a type is in
none of them and costs nothing. Each order is an index whose head is in memory and whose rest is in
the store. Memory keeps the index of a type only if takes asked for that type; the index of any
other type is dropped with the next batch of writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskraft_service.queue.codecs.task_codec import read_type
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import place_scan, task_key, typed_prefix
from taskraft_service.queue.store.ordered_index import OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store


class TypedOrders:
    """The orders of a tube by type.

    Does not write to the store: the code that adds an entry writes its key under ``typed_prefix``.
    """

    __slots__ = (
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
        self._asked: set[str] = set()
        """Types that a take requested since their index was opened."""
        self.has_any = False
        """True if the tube ever had a ready task with a type; stored in the tube's record."""

    def add(self, task_type: str, entry: OrderKey) -> None:
        """Add an entry to the order of a type; does nothing without a type."""
        if task_type:
            self.has_any = True
            self._order(task_type).add(entry)

    def discard(self, task_type: str, entry: OrderKey) -> None:
        """Remove an entry from the order of a type; do nothing if it is missing."""
        if task_type and self.has_any:
            self._order(task_type).discard(entry)

    def ask(self, types: Sequence[str]) -> list[OrderedIndex]:
        """Return the indexes of some types; valid until the order of another type is changed."""
        if not self.has_any:
            return []
        wanted = dict.fromkeys(types)
        wanted.pop("", None)  # tasks without a type are in no index
        for name in wanted:
            order = self._order(name)
            del self._orders[name]
            self._orders[name] = order
        self._asked.update(wanted)
        return [self._orders[name] for name in wanted]

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
