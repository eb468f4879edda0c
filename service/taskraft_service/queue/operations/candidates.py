"""Offer the ready tasks of one or several tubes to a take, the most urgent first.

A view offers all ready tasks of a tube, the tasks of some types, or the sufficiently urgent tasks.
Reading from a view removes nothing; a task is removed from all orders of its tube when it is taken
or ends. Views can therefore be stacked, and tasks that a take skips keep their position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace, merge
from typing import Final

from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.ready_tasks import Offers, OffersOfTypes
from taskraft_service.queue.entities.task_state import READY, TaskOutcome
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.ordered_index import NOTHING, OrderKey
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import leave_order

LANE_END: Final[OrderKey] = (0, (1 << 63) - 1, (1 << 64) - 2)
"""Entry after all entries of lane 0 (normal) and before all entries of lanes from 1 (back)."""


class OfTypes:
    """The ready tasks of some types.

    ``least`` costs the logarithm of the number of types, each other operation the number of types.

    ``_heap`` has an entry of each order that is not empty, with the position of the order. The
    entry is the least of its order, or less if the least was removed. ``least`` replaces removed
    entries, and inserts the entries that were added.

    Args:
        asked: the orders of the types.
    """

    __slots__ = ("_added", "_added_count", "_heap", "_orders", "_places")

    def __init__(self, asked: OffersOfTypes) -> None:
        self._orders = asked.orders
        self._added = asked.added
        self._added_count = len(asked.added)
        """Number of the added entries that ``_heap`` has."""
        self._places = {order: place for place, order in enumerate(asked.orders)}
        leasts = [(order.least(), place) for order, place in self._places.items()]
        self._heap = [(least, place) for least, place in leasts if least is not None]
        heapify(self._heap)

    def least(self) -> OrderKey | None:
        """Return the entry of the next task to take, or None."""
        heap = self._heap
        while self._added_count < len(self._added):
            order, added = self._added[self._added_count]
            self._added_count += 1
            if order in self._places:
                heappush(heap, (added, self._places[order]))
        while heap:
            entry, place = heap[0]
            least = self._orders[place].least()
            if least == entry:
                return entry
            if least is None:
                heappop(heap)
            else:
                heapreplace(heap, (least, place))
        return None

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries after ``after``, in order.

        The entries must not change during the iteration.
        """
        return merge(*(order.ordered(after) for order in self._orders))

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return the entries of about ``count`` tasks that will be taken next."""
        share = max(count // max(len(self._orders), 1), 1)
        return [entry for order in self._orders for entry in order.coming(share)]


class ScanBudget:
    """Scan budget of one take: how many unsuitable tasks the take may still skip.

    The budget is bounded because the take runs while its log entry is applied. Each tube gets an
    equal share, so a tube with many unsuitable tasks does not shorten the scan of the others.
    """

    __slots__ = ("_left", "_share", "cut_short")

    def __init__(self, passed_max: int, tubes: int) -> None:
        """Divide ``passed_max`` among ``tubes`` tubes; each tube gets at least one task."""
        self._share = max(passed_max // max(tubes, 1), 1)
        self._left: dict[int, int] = {}
        self.cut_short = False
        """True if the budget of a tube is used up, so that its scan ended early."""

    def try_skip(self, tube: int) -> bool:
        """Return whether the take may skip another task of a tube, and count that task."""
        left = self._left.get(tube, self._share)
        if left == 0:
            self.cut_short = True
            return False
        self._left[tube] = left - 1
        return True


class Urgent:
    """The sufficiently urgent tasks of another view, for the duration of one take.

    If the entries are sorted by lane and rank, the first entry of lane 0 that is not urgent enough
    ends that lane, and the rest of the lane is skipped at once. Entries of the front and back lanes
    are skipped one by one. If a driver or the rotation of sub-queues defines the order, all entries
    are skipped one by one.

    Args:
        offers: the view to filter.
        suits: returns whether the task of an entry is urgent enough.
        goes_by_rank: True if entries are sorted by lane and rank, and ``suits`` depends on rank.
        has_back: True if there may be entries in the back lane.
        may_pass: called before an entry is skipped; the view ends if it returns False.
    """

    __slots__ = ("_goes_by_rank", "_has_back", "_may_pass", "_offers", "_passed", "_suits")

    def __init__(
        self,
        offers: Offers,
        suits: Callable[[OrderKey], bool],
        *,
        goes_by_rank: bool,
        has_back: bool,
        may_pass: Callable[[], bool],
    ) -> None:
        self._offers = offers
        self._suits = suits
        self._goes_by_rank = goes_by_rank
        self._has_back = has_back
        self._may_pass = may_pass
        self._passed: OrderKey = NOTHING
        """Last entry known to be skipped.

        Entries that are added during the take are ordered after the claimed entries, and therefore
        after this entry.
        """

    def least(self) -> OrderKey | None:
        """Return the entry of the next task to take, or None."""
        if self._passed == NOTHING:
            least = self._offers.least()
            if least is None or self._suits(least):
                return least
            if not self._may_pass():
                return None
            self._passed = self._end_of_lane(least)
        return next(self.ordered(self._passed), None)

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries after ``after``, in order.

        The entries must not change during the iteration.
        """
        if after == LANE_END and not self._has_back:
            return
        entries = self._offers.ordered(after)
        while (entry := next(entries, None)) is not None:
            if self._suits(entry):
                yield entry
                continue
            if not self._may_pass():
                return
            self._passed = max(self._passed, self._end_of_lane(entry))
            if self._passed == LANE_END:
                yield from self.ordered(LANE_END)
                return

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return about ``count`` next entries of the other view; some may not be urgent enough."""
        return self._offers.coming(count)

    def _end_of_lane(self, entry: OrderKey) -> OrderKey:
        """Return the last entry that can be skipped together with ``entry``."""
        return LANE_END if self._goes_by_rank and entry[0] == 0 else entry


class Candidates:
    """The ready tasks of several tubes in the order in which a take leases them.

    ``_heads`` is a heap of the first task of each tube, ordered by lane, rank, age and the order of
    the tubes in the request; the last number is the position of the tube. A single tube needs no
    heap.
    """

    __slots__ = ("_heads", "_looked_at", "_offers", "_state", "_tubes")

    def __init__(
        self, state: QueueState, tubes: Sequence[QueueTube], offers: Sequence[Offers]
    ) -> None:
        """Look up the first task of each tube."""
        self._state = state
        self._tubes = tubes
        self._offers = offers
        self._looked_at: dict[int, QueueTask] = {}
        """The last task that was looked up and not claimed, by the position of its tube."""
        if len(tubes) == 1:
            self._heads: list[tuple[int, ...]] = [(0,)]
        else:
            places = range(len(tubes))
            self._heads = [head for place in places if (head := self._head(place))]
            heapify(self._heads)

    def first(self) -> QueueTask | None:
        """Return the most urgent task; the caller claims the task before it calls ``proceed``.

        A task whose time to live is over ends here, because its timer may fire later.
        """
        state = self._state
        while self._heads:
            place = self._heads[0][-1]
            tube, offers = self._tubes[place], self._offers[place]
            entry = offers.least()
            if entry is None:
                break
            task = ready_task(state, tube, offers, entry)
            if task.expire_at_ms > state.now_ms:
                self._looked_at[place] = task
                return task
            expire(state, task)
            self._compete()
        return None

    def proceed(self) -> None:
        """Insert the next task of the tube whose first task was claimed."""
        del self._looked_at[self._heads[0][-1]]
        self._compete()

    def end(self) -> None:
        """Evict the tasks that were looked up but not claimed, unless they must stay in memory.

        Nothing else evicts such tasks, so the caller must call this method at the end of the take.
        """
        for task in self._looked_at.values():
            if task.state is READY and not task.dirty and not task.tube.ready.is_head(task):
                self._state.evict(task)

    def _compete(self) -> None:
        if len(self._tubes) == 1:
            return
        head = self._head(self._heads[0][-1])
        if head is None:
            heappop(self._heads)
        else:
            heapreplace(self._heads, head)

    def _head(self, place: int) -> tuple[int, ...] | None:
        """Return the sort key of the first task of a tube, or None if there is none."""
        tube, offers = self._tubes[place], self._offers[place]
        entry = offers.least()
        if entry is None:
            return None
        task = self._looked_at[place] = self._state.bring(tube, entry[-1])
        return (*task.order[:2], task.created_ms, place)


def ready_task(state: QueueState, tube: QueueTube, offers: Offers, entry: OrderKey) -> QueueTask:
    """Return the task of an entry of a tube's ready order."""
    task = tube.tasks.get(entry[-1]) or state.soon_needed(tube, offers, [entry])
    assert task.state is READY
    return task


def expire(state: QueueState, task: QueueTask) -> None:
    """End a ready task whose time to live is over."""
    leave_order(task)
    end(state, task, Operation.TTL_END, TaskOutcome.EXPIRED)


STRIDE: Final = 1_000_000
"""Stride of a tube with weight 1, by which each taken task advances the pass; also the maximum
weight."""
LAG_MAX: Final = 2 * STRIDE
"""Maximum lag of a tube's pass, so that a tube does not accumulate a share while it is empty."""


class WeightedCandidates(Candidates):
    """The ready tasks of several tubes, in proportion to the weights of the tubes.

    Stride scheduling (C. A. Waldspurger, W. E. Weihl: "Stride scheduling: deterministic
    proportional-share resource management", 1995): each tube has a pass. Each task taken from a
    tube adds the tube's stride to its pass; the stride is inversely proportional to the weight. The
    tube with the smallest pass is next. Within a tube, tasks keep their order.
    """

    __slots__ = ("_passes", "_weights")

    def __init__(
        self,
        state: QueueState,
        tubes: Sequence[QueueTube],
        offers: Sequence[Offers],
        weights: Sequence[int],
    ) -> None:
        """Look up the first tasks; ``weights`` has one weight per tube, each at least 1."""
        self._weights = weights
        furthest = max((tube.share for tube in tubes if tube.ready.least() is not None), default=0)
        self._passes = [max(tube.share, furthest - LAG_MAX) for tube in tubes]
        super().__init__(state, tubes, offers)

    def proceed(self) -> None:
        """Charge the tube whose task was claimed, and insert its next task."""
        place = self._heads[0][-1]
        self._passes[place] += STRIDE // self._weights[place]
        self._tubes[place].share = self._passes[place]
        super().proceed()

    def _head(self, place: int) -> tuple[int, ...] | None:
        """Return the sort key of a tube, or None if it has no ready task."""
        return (self._passes[place], place) if self._offers[place].least() else None
