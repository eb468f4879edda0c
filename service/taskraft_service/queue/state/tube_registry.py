"""Create tubes, hold them by name and number, and clean up after dropped tubes.

The kind of a tube determines its order of ready tasks. A truncated or dropped tube is tracked until
its keys are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from taskraft_service.queue.entities.ready_tasks import ReadyOrder
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_driver import TubeDriver, driver_of
from taskraft_service.queue.entities.tube_options import (
    TtlScope,
    TubeKind,
    TubeOptions,
    TubeView,
)
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.orders.plain_order import PlainOrder, TypedOrders
from taskraft_service.queue.orders.subqueue_order import SubqueueOrder
from taskraft_service.queue.state.tube_statistics import TubeTotals
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number, Size, Text
from taskraft_service.queue.store.keys import (
    INSIDE_TUBES,
    READY_ORDER,
    order_scan,
    tube_key,
    tube_range,
)
from taskraft_service.queue.store.ordered_index import OrderedIndex
from taskraft_service.queue.store.store import RangeDeletion, Store, Write
from taskraft_service.queue.values import value


def new_tube(number: int, view: TubeView, store: Store, limits: Limits) -> QueueTube:
    """Return an empty tube that the store does not know."""
    tube = QueueTube(number, view, store, limits)
    tube.ready = ready_order(tube, store, limits, stored=False)
    return tube


def emptied_tube(tube: QueueTube, number: int, store: Store, limits: Limits) -> QueueTube:
    """Return a tube without its tasks, under a new number; task ids are not used again."""
    emptied = new_tube(number, tube.view(), store, limits)
    emptied.next_id = tube.next_id
    if tube.bucket is not None and emptied.bucket is not None:
        emptied.bucket.level, emptied.bucket.at_ms = tube.bucket.level, tube.bucket.at_ms
    emptied.subqueue_rates.take_over(tube.subqueue_rates)
    emptied.share = tube.share
    emptied.counters = tube.counters.emptied()
    return emptied


def ready_order(
    tube: QueueTube, store: Store, limits: Limits, *, stored: bool
) -> ReadyOrder[QueueTask]:
    """Return the order that a tube of this kind has; ``stored``: the store has ready tasks."""
    number = tube.number
    types = TypedOrders(number, store, limits, tube.tasks, stored=stored)
    if tube.has_subqueues:
        return SubqueueOrder(
            number, store, limits, types, tube.subqueue_rates, tube.options, stored=stored
        )
    scan = order_scan(store, READY_ORDER, number)
    return PlainOrder(OrderedIndex(scan, limits.head_entries_max, stored=stored), types)


class TubeRegistry(dict[str, "QueueTube"]):
    """The existing tubes by name: a dictionary that only its own methods change.

    ``used`` has the tubes that changed before the last batch of writes; ``number`` is the number of
    the newest tube. ``temporary`` has the names of the temporary tubes.
    """

    __slots__ = (
        "_dirty",
        "_ended",
        "_names",
        "by_number",
        "drivers",
        "number",
        "temporary",
        "totals",
        "used",
    )

    def __init__(self, drivers: Mapping[str, TubeDriver], number: int) -> None:
        """Start empty; the first tube gets the number after ``number``."""
        super().__init__()
        self.by_number: dict[int, QueueTube] = {}
        self.number = number
        self.drivers = drivers
        self.totals = TubeTotals(self.by_number)
        self.temporary: dict[str, None] = {}
        self._names: Sequence[str] | None = None
        """The names in order; None: a tube was added or removed since they were last read."""
        self._dirty: list[QueueTube] = []
        self.used: list[QueueTube] = []
        self._ended: list[QueueTube] = []

    def names(self) -> Sequence[str]:
        """Return the names of all tubes in order."""
        if self._names is None:
            self._names = tuple(sorted(self))
        return self._names

    def find(self, name: str) -> QueueTube | Refusal:
        """Return a tube, or a refusal."""
        tube = self.get(name)
        if tube is None:
            return Refusal(Reason.TUBE_NOT_FOUND, f"no tube is called {name!r}", {"tube": name})
        return tube

    def admit(self, tube: QueueTube) -> None:
        """Add a tube by name and number, and give a CUSTOM tube its driver.

        Raises:
            TubeDriverMissing: the driver is not installed on this node.
        """
        if tube.kind is TubeKind.CUSTOM:
            tube.custom = driver_of(self.drivers, tube.name, tube.driver, tube.driver_version)
        self[tube.name] = tube
        self._names = None
        self.by_number[tube.number] = tube
        if tube.is_temporary:
            self.temporary[tube.name] = None

    def add(self, tube: QueueTube) -> None:
        """Add a new tube."""
        self.admit(tube)
        self.totals.add(tube)
        self.touch(tube)

    def remove(self, tube: QueueTube) -> None:
        """Remove a tube that is truncated or dropped."""
        del self[tube.name]
        self._names = None
        del self.by_number[tube.number]
        self.totals.remove(tube)
        self.temporary.pop(tube.name, None)
        self._ended.append(tube)

    def touch(self, tube: QueueTube) -> None:
        """Mark a tube as changed, so that its record is written."""
        if not tube.dirty:
            tube.dirty = True
            self._dirty.append(tube)

    def collect_ended(self, writes: list[Write]) -> None:
        """Append the deletion of the records of removed tubes to ``writes``."""
        for tube in self._ended:
            writes.append((tube_key(tube.number), None))
            if tube.written:
                writes.append((tube.written, None))
        self._ended.clear()

    def fetch_changed(self, index: int) -> Sequence[QueueTube]:
        """Return the tubes that differ from their records; the caller writes them now.

        Args:
            index: the last applied entry.
        """
        for tube in self._dirty:
            tube.dirty = False
            tube.written_at = index
        self.used = [tube for tube in self._dirty if tube.number in self.by_number]
        self._dirty.clear()
        return self.used


@value
class TubeInCleanup:
    """A truncated or dropped tube, with the next task id to remove.

    The scope of the TTL determines which timers of the tasks are in the store.
    """

    number: int
    next_id: int
    ttl_scope: TtlScope
    name: str


TUBE_IN_CLEANUP: Final = FieldTable(
    TubeInCleanup,
    Number("number", "I"),
    Number("next_id", "Q"),
    Number("ttl_scope", "B", TtlScope),
    Size("H", "name"),
    Text("name"),
)


class TubeCleanup(dict[int, tuple[QueueTube, int]]):
    """Truncated and dropped tubes by number, each with the next task id to remove.

    A dictionary that only its own methods change; the oldest tube comes first. When every task of a
    tube has had its event, the next batch of writes deletes the keys of the tube as ranges.
    """

    __slots__ = ("_cleared",)

    def __init__(self) -> None:
        """Start without removed tubes."""
        super().__init__()
        self._cleared: list[int] = []

    def add(self, tube: QueueTube) -> None:
        """Add a truncated or dropped tube.

        An empty tube needs no steps, but the store may still have keys of the tube.
        """
        if sum(tube.counters.states):
            self[tube.number] = (tube, 1)
        else:
            self._cleared.append(tube.number)

    def go_on(self, number: int, next_id: int) -> None:
        """Record that the tasks of a tube with ids below ``next_id`` are removed."""
        self[number] = (self[number][0], next_id)

    def finish(self, number: int) -> None:
        """Record that all tasks of a tube are removed."""
        del self[number]
        self._cleared.append(number)

    def collect(self, writes: list[Write]) -> None:
        """Append the deletion of all keys of finished tubes to ``writes``."""
        for number in self._cleared:
            writes.extend(RangeDeletion(*tube_range(prefix, number)) for prefix in INSIDE_TUBES)
        self._cleared.clear()

    def in_cleanup(self) -> Sequence[TubeInCleanup]:
        """Return the tubes in cleanup, for the meta record."""
        return [
            TubeInCleanup(tube.number, next_id, tube.options.ttl_scope, tube.name)
            for tube, next_id in self.values()
        ]

    def restore(self, tubes: Iterable[TubeInCleanup], store: Store, limits: Limits) -> None:
        """Add the truncated and dropped tubes from the meta record."""
        for one in tubes:
            options = TubeOptions(ttl_scope=one.ttl_scope)
            view = TubeView(one.name, TubeKind.FIFO, options, 0)
            self[one.number] = (new_tube(one.number, view, store, limits), one.next_id)
