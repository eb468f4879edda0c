"""Create tubes with the order of ready tasks that their kind has."""

from __future__ import annotations

from taskraft_service.queue.entities.ready_tasks import ReadyOrder
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_options import TubeView
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.orders.plain_order import PlainOrder
from taskraft_service.queue.orders.subqueue_order import SubqueueOrder
from taskraft_service.queue.orders.typed_orders import TypedOrders
from taskraft_service.queue.store.keys import READY_ORDER, order_scan
from taskraft_service.queue.store.ordered_index import OrderedIndex
from taskraft_service.queue.store.store import Store


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
