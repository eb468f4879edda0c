"""Offer the first ready task of each sub-queue that may give another one.

What is offered is one ordered index: a take pops its least entry, whatever number of tasks wait
behind busy sub-queues (tarantool/queue calls this a ready buffer). Only its taken tasks bar a
sub-queue, or the rate of its takes; buried and delayed ones do not. So what a sub-queue offers
follows from the places of its tasks, from how many of them are taken and from its rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from taskraft_service.queue.entities.subqueue_rates import SubqueueRates
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.orders.subqueue import Subqueue, stored_turn, write_offer
from taskraft_service.queue.orders.typed_orders import TypedOrders
from taskraft_service.queue.store.keys import READY_ORDER, order_scan
from taskraft_service.queue.store.ordered_index import NOTHING, OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store, Write

STRIDE: Final = 1 << 20
"""Virtual time between two turns of a sub-queue of weight 1; the greatest useful weight."""


class Fairness:
    """Stride scheduling of the sub-queues of one tube by weight, on a virtual clock.

    Waldspurger and Weihl, 1995. A sub-queue that begins to offer a task gets a turn one stride
    after the clock; a stride is a constant divided by the weight (default 1). The least turn is
    served, and the clock advances to it. While two sub-queues have ready tasks all the time, they
    are served in proportion to their weights. A sub-queue without ready tasks has no turn and keeps
    no credit. The clock and the turns of the offered tasks are the whole state.
    """

    __slots__ = ("time", "weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
        """Begin at virtual time 0."""
        self.weights = weights
        self.time = 0

    def turn(self, subqueue: str) -> int:
        """Return the turn of a sub-queue that begins to offer a task now."""
        return self.time + max(STRIDE // max(self.weights.get(subqueue, 1), 1), 1)

    def serve(self, turn: int) -> None:
        """Move the clock on to a turn that is served."""
        self.time = max(self.time, turn)


class SubqueueOffers:
    """What the sub-queues of a tube offer, at most one task each.

    An entry is the place of the task (lane, rank, id), or, where sub-queues have weights, its turn,
    rank and id. By type there is the same.
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
        """Begin with nothing, or (``stored``) with what the store has of a tube's number."""
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
        """How many sub-queues offer a task, also those that memory does not know."""
        self.types = types

    @property
    def time(self) -> int:
        """Return the virtual time of the turns; 0 where there are none."""
        return self._fairness.time if self._fairness is not None else 0

    def restore_state(self, count: int, time: int) -> None:
        """Take over what the tube's record says besides the places."""
        self.count = count
        if self._fairness is not None:
            self._fairness.time = time

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Change concurrency, weights and rates; weights begin or cease to exist only while empty.

        Whatever may be barred is to be renewed after that.
        """
        weights = dict(options.subqueue_weights)
        if bool(weights) != (self._fairness is not None):
            assert self.count == 0
            self._fairness = Fairness(weights) if weights else None
        elif self._fairness is not None:
            self._fairness.weights = weights
        self._concurrency = options.subqueue_concurrency
        self._rates.configure(options, now_ms)

    # ------------------------------------------------------------------------------ what is offered

    def least(self) -> OrderKey | None:
        """Return the entry that is to be taken next, or None."""
        return self._index.least()

    def pop_many(self, count: int) -> Sequence[OrderKey]:
        """Withdraw up to so many entries, but one where a sub-queue may give several at once.

        Then what comes next depends on whether the first is claimed.
        """
        return self._index.pop_many(min(count, 1) if self._concurrency > 1 else count)

    def restore(self, entry: OrderKey) -> None:
        """Offer a withdrawn entry again."""
        self._index.put_back(entry)

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield what is offered above an entry, in order."""
        return self._index.ordered(after)

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return about so many entries that will be taken next."""
        return self._index.coming(count)

    # ------------------------------------------------------------------- what one sub-queue offers

    def has_room(self, taken: int) -> bool:
        """Tell whether a sub-queue of which so many tasks are taken may have one more taken."""
        return taken < self._concurrency

    def find(self, subqueue: Subqueue, order: OrderedIndex) -> None:
        """Find out what a sub-queue offers whose order comes out of the store."""
        least = order.least() if self._is_free(subqueue) else None
        if least is not None and self._fairness is not None:
            turn = stored_turn(self._store, self._number, subqueue.name, least)
            subqueue.offered = (turn, *least[1:])
        else:
            subqueue.offered = least
        if least is not None and self.types.has_any:
            subqueue.offered_type = self.types.type_of(least[-1])

    def renew(self, subqueue: Subqueue, order: OrderedIndex) -> None:
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
        """Take an entry out whose task is about to be claimed, as ``pop_many`` does."""
        self._index.discard(offered)

    def claim(self, subqueue: Subqueue, order: OrderedIndex, now_ms: int) -> OrderKey:
        """Note that the withdrawn task of a sub-queue is taken; return its place.

        What the sub-queue offers next gets a new turn.
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
        """Count a task that a sub-queue gives, offered or not."""
        subqueue.taken += 1
        if self._rates.per_second:
            self._rates.use(subqueue.name, now_ms)

    def _is_free(self, subqueue: Subqueue) -> bool:
        """Tell whether neither its leases nor its rate bar a sub-queue."""
        return subqueue.taken < self._concurrency and (
            not self._rates.per_second or self._rates.allows(subqueue.name)
        )

    def _forget(self, subqueue: Subqueue, offered: OrderKey) -> None:
        """Take note that what a sub-queue offered is not among the offers any more."""
        self.count -= 1
        subqueue.offered = None
        if subqueue.offered_type:
            self.types.discard(subqueue.offered_type, offered)
            subqueue.offered_type = ""

    # ----------------------------------------------------------------------------------- the store

    def write(self, subqueue: Subqueue, writes: list[Write]) -> None:
        """Append what changed of the offer of a sub-queue; its order is in memory."""
        write_offer(self._number, subqueue, writes, has_turns=self._fairness is not None)

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Take note that the store has every change, and append what is left of the rates.

        Returns the entries that left memory. ``ready`` is the number of ready tasks of the tube.
        """
        left = self._index.flushed()
        self._rates.collect(writes)
        return chain(left, self.types.collect(ready)) if self.types.has_any else left
