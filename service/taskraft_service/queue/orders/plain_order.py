"""Order the ready tasks of a tube without sub-queues: by lane, rank and id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import ClassVar

from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.orders.typed_orders import TypedOrders
from taskraft_service.queue.store.ordered_index import NOTHING, OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Write


class PlainOrder:
    """Every ready task may be taken: by lane, rank and id."""

    counts_leases: ClassVar[bool] = False
    """It does not matter how many tasks are taken."""
    __slots__ = ("_index", "types")

    def __init__(self, index: OrderedIndex, types: TypedOrders) -> None:
        """Order what ``index`` and, by type, ``types`` hold."""
        self._index = index
        self.types = types

    @property
    def counts_claims(self) -> bool:
        """Tell whether what is withdrawn may be among the tasks of a type as well."""
        return self.types.has_any

    def add(self, task: QueueTask) -> None:
        """Take in a task that is ready."""
        self._index.add(task.order)
        self.types.add(task.type, task.order)

    def add_all(self, tasks: Sequence[QueueTask]) -> None:
        """Take in tasks that are ready."""
        self._index.add_all([task.order for task in tasks])
        for task in tasks:
            if task.type:
                self.types.add(task.type, task.order)

    def discard(self, task: QueueTask) -> None:
        """Let go of a task that is not ready any more."""
        self._index.discard(task.order)
        self.types.discard(task.type, task.order)

    def least(self) -> OrderKey | None:
        """Return the place of the task that is to be taken next, or None."""
        return self._index.least()

    def pop_many(self, count: int) -> Sequence[OrderKey]:
        """Withdraw up to so many places that are to be taken next; none: there is none."""
        return self._index.pop_many(count)

    def restore(self, entry: OrderKey) -> None:
        """Offer a withdrawn place again."""
        self._index.put_back(entry)

    def may_give(self, subqueue: str) -> bool:
        """Tell that nothing bars anything."""
        return True

    def claim(self, task: QueueTask, now_ms: int) -> None:
        """Take a task out of all orders; what is taken bars nothing."""
        self.discard(task)

    def claim_withdrawn(self, tasks: Sequence[QueueTask], now_ms: int) -> None:
        """Take tasks out of the orders of their types; what is taken bars nothing."""
        for task in tasks:
            self.types.discard(task.type, task.order)

    def free(self, tasks: Sequence[QueueTask]) -> None:
        """Do nothing: what is taken bars nothing."""

    def offered(self, ready: int) -> int:
        """Return how many tasks could be taken now: all that are ready."""
        return ready

    @property
    def offers(self) -> int:
        """Return 0: not needed here."""
        return 0

    @property
    def time(self) -> int:
        """Return 0: not needed here."""
        return 0

    def restore_state(self, offers: int, time: int) -> None:
        """Do nothing: the places say everything."""

    def reopen(self, task: QueueTask) -> None:
        """Do nothing: what is taken bars nothing."""

    def readmit(self, now_ms: int, most: int) -> int:
        """Do nothing: there are no sub-queues."""
        return 0

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Do nothing: there are no sub-queues."""

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the places of all ready tasks above one, in order."""
        return self._index.ordered(after)

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return the places of about so many tasks that will be taken next, by type or not."""
        entries = self._index.coming(count)
        return [*entries, *self.types.coming(count)] if self.types.has_any else entries

    def is_head(self, task: QueueTask) -> bool:
        """Tell whether a task's place is in memory."""
        return self._index.is_head(task.order) or self.types.is_head(task.type, task.order)

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Return the places that left memory; they are written with their tasks."""
        left = self._index.flushed()
        return chain(left, self.types.collect(ready)) if self.types.has_any else left
