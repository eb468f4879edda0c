"""Offer the first ready task of each sub-queue that is not blocked.

The offered tasks are in one ordered index. A take pops the least entry, however many tasks wait in
blocked sub-queues (tarantool/queue calls this a ready buffer). A sub-queue is blocked only by its
taken tasks and by its rate limit, not by buried or delayed tasks. The offered task of a sub-queue
therefore depends only on the order of its tasks, the number of its taken tasks, and its rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from struct import Struct
from typing import Final

from taskraft_service.queue.entities.rates import SubqueueRates
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.orders.plain_order import TypedOrders
from taskraft_service.queue.orders.subqueue_memory import Subqueue
from taskraft_service.queue.store.keys import (
    READY_ORDER,
    order_scan,
    ready_key,
    subqueue_prefix,
    typed_prefix,
    waiting_key,
)
from taskraft_service.queue.store.ordered_index import NOTHING, OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store, Write

_turn: Final = Struct(">Q")

STRIDE: Final = 1 << 20
"""Virtual time between two turns of a sub-queue of weight 1; larger weights have no further
effect."""


class Fairness:
    """Stride scheduling of the sub-queues of one tube by weight, on a virtual clock.

    Source: Waldspurger and Weihl, 1995. A sub-queue that begins to offer a task gets a turn one
    stride after the clock; a stride is a constant divided by the weight (default 1). The sub-queue
    with the least turn is served, and the clock advances to this turn. While two sub-queues have
    ready tasks all the time, they are served in proportion to their weights. A sub-queue without
    ready tasks has no turn and keeps no credit. The clock and the turns of the offered tasks are
    the whole state.
    """

    __slots__ = ("time", "weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
        """Start at virtual time 0."""
        self.weights = weights
        self.time = 0

    def turn(self, subqueue: str) -> int:
        """Return the turn of a sub-queue that starts to offer a task now."""
        return self.time + max(STRIDE // max(self.weights.get(subqueue, 1), 1), 1)

    def serve(self, turn: int) -> None:
        """Advance the clock to a turn that is served."""
        self.time = max(self.time, turn)


class SubqueueOffers:
    """The offered tasks of the sub-queues of a tube, at most one for each.

    An entry is (lane, rank, id) of the task, or (turn, rank, id) with weights. The same entries are
    in the orders by type.
    """

    __slots__ = (
        "_concurrency",
        "_fairness",
        "_index",
        "_number",
        "_rates",
        "_store",
        "count",
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
        """Open the offers of a tube, empty or (``stored``) with the entries in the store."""
        weights = dict(options.subqueue_weights)
        self._number = number
        self._store = store
        self._rates = rates
        self._concurrency = options.subqueue_concurrency
        self._fairness = Fairness(weights) if weights else None
        self._index = OrderedIndex(
            order_scan(store, READY_ORDER, number), limits.head_entries_max, stored=stored
        )
        self.count = 0
        """Number of sub-queues that offer a task, in memory or not."""
        self.types = types

    @property
    def time(self) -> int:
        """Return the virtual time of the turns; 0 without weights."""
        return self._fairness.time if self._fairness is not None else 0

    def restore_state(self, count: int, time: int) -> None:
        """Restore count and virtual time from the tube's record."""
        self.count = count
        if self._fairness is not None:
            self._fairness.time = time

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Change concurrency, weights and rates.

        Weights may be introduced or removed only while no task is offered. The caller must renew
        all sub-queues that may be blocked.
        """
        weights = dict(options.subqueue_weights)
        if bool(weights) != (self._fairness is not None):
            assert self.count == 0
            self._fairness = Fairness(weights) if weights else None
        elif self._fairness is not None:
            self._fairness.weights = weights
        self._concurrency = options.subqueue_concurrency
        self._rates.configure(options, now_ms)

    # ------------------------------------------------------------------------------ offers

    def least(self) -> OrderKey | None:
        """Return the next entry to take, or None."""
        return self._index.least()

    def pop_many(self, count: int) -> Sequence[OrderKey]:
        """Remove and return up to ``count`` entries; one if a sub-queue may give several at once.

        In that case the next entry depends on whether the first entry is claimed.
        """
        return self._index.pop_many(min(count, 1) if self._concurrency > 1 else count)

    def restore(self, entry: OrderKey) -> None:
        """Put a withdrawn entry back."""
        self._index.put_back(entry)

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries after ``after``, in order."""
        return self._index.ordered(after)

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return about ``count`` entries that will be taken next."""
        return self._index.coming(count)

    # ------------------------------------------------------------------- what one sub-queue offers

    def has_room(self, taken: int) -> bool:
        """Return whether a sub-queue with ``taken`` taken tasks may give another task."""
        return taken < self._concurrency

    def find(self, subqueue: Subqueue, order: OrderedIndex) -> None:
        """Set the offered task of a sub-queue whose order was loaded from the store."""
        least = order.least() if self._is_free(subqueue) else None
        if least is not None and self._fairness is not None:
            turn = _stored_turn(self._store, self._number, subqueue.name, least)
            subqueue.offered = (turn, *least[1:])
        else:
            subqueue.offered = least
        if least is not None and self.types.has_any:
            subqueue.offered_type = self.types.type_of(least[-1])

    def renew(self, subqueue: Subqueue, order: OrderedIndex) -> None:
        """Update the offered task of a touched sub-queue from its first task and its leases."""
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
            self._index.discard(before)
            self._forget(subqueue, before)
        if wanted is not None:
            self._index.add(wanted)
            self.count += 1
            subqueue.offered = wanted
            if self.types.has_any:
                subqueue.offered_type = self.types.type_of(wanted[-1])
                self.types.add(subqueue.offered_type, wanted)

    def withdraw(self, offered: OrderKey) -> None:
        """Remove the entry of a task that is about to be claimed, as ``pop_many`` does."""
        self._index.discard(offered)

    def claim(self, subqueue: Subqueue, order: OrderedIndex, now_ms: int) -> OrderKey:
        """Record that the withdrawn task of a sub-queue is taken; return the task's entry.

        The next offered task of the sub-queue gets a new turn.
        """
        offered = subqueue.offered
        assert offered is not None
        self.give(subqueue, now_ms)
        self._forget(subqueue, offered)
        if self._fairness is not None:
            self._fairness.serve(offered[0])
        first = order.pop_least()
        assert first is not None
        if subqueue.taken < self._concurrency:
            self.renew(subqueue, order)
        return first

    def give(self, subqueue: Subqueue, now_ms: int) -> None:
        """Count a task that is taken from a sub-queue, whether the task was offered or not."""
        subqueue.taken += 1
        if self._rates.per_second:
            self._rates.use(subqueue.name, now_ms)

    def _is_free(self, subqueue: Subqueue) -> bool:
        """Return whether neither leases nor the rate block a sub-queue."""
        return subqueue.taken < self._concurrency and (
            not self._rates.per_second or self._rates.allows(subqueue.name)
        )

    def _forget(self, subqueue: Subqueue, offered: OrderKey) -> None:
        """Record that the task of a sub-queue is no longer offered."""
        self.count -= 1
        subqueue.offered = None
        if subqueue.offered_type:
            self.types.discard(subqueue.offered_type, offered)
            subqueue.offered_type = ""

    # ----------------------------------------------------------------------------------- the store

    def write(self, subqueue: Subqueue, writes: list[Write]) -> None:
        """Append the changes of a sub-queue's offered task; the sub-queue must be warm.

        The offered task has one key in the order of its tube and one in the order of its type. With
        weights, the turn of the sub-queue is stored with the task's entry in the sub-queue.
        """
        written, offered = subqueue.written, subqueue.offered
        written_type, offered_type = subqueue.written_type, subqueue.offered_type
        if written != offered or written_type != offered_type:
            if written is not None:
                _write(self._number, written, written_type, None, writes)
            if offered is not None:
                _write(self._number, offered, offered_type, b"", writes)
        if offered is not None and self._fairness is not None:
            assert subqueue.order is not None
            least = subqueue.order.least()
            assert least is not None
            place = waiting_key(subqueue_prefix(self._number, subqueue.name), least)
            writes.append((place, _turn.pack(offered[0])))

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Drop entries that the store has, and append the state of the rates.

        Returns the entries that left memory. ``ready`` is the number of READY tasks of the tube.
        """
        left = self._index.flushed()
        self._rates.collect(writes)
        return chain(left, self.types.collect(ready)) if self.types.has_any else left


def _stored_turn(store: Store, number: int, name: str, place: OrderKey) -> int:
    """Return the stored turn of the task that a sub-queue offers; only with weights."""
    turn = store.get(waiting_key(subqueue_prefix(number, name), place))
    assert turn, f"sub-queue {name!r} offers a task without a turn"
    return int(_turn.unpack(turn)[0])


def _write(
    number: int, offer: OrderKey, task_type: str, content: bytes | None, writes: list[Write]
) -> None:
    """Append an offered entry, also by type, to ``writes``; ``content`` None deletes it."""
    writes.append((ready_key(number, offer), content))
    if task_type:
        writes.append((waiting_key(typed_prefix(number, task_type), offer), content))
