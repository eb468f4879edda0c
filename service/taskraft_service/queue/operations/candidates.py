"""Merge the ready tasks of several tubes, the most urgent first."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.ready_tasks import Offers
from taskraft_service.queue.entities.task_state import READY, TaskOutcome
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.read_ahead import soon_needed
from taskraft_service.queue.store.ordered_index import OrderKey
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import leave_order


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
        """Return the most urgent task; claim it before ``proceed``.

        A task whose time to live is over ends instead, because its timer may fire later.
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
        """Release tasks that were looked up but not claimed, if only this look-up keeps them.

        Call this when ``offers`` asks for it; nothing else releases such tasks.
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
    task = tube.tasks.get(entry[-1]) or soon_needed(state, tube, offers, [entry])
    assert task.state is READY
    return task


def expire(state: QueueState, task: QueueTask) -> None:
    """End a ready task whose time to live is over."""
    leave_order(task)
    end(state, task, Operation.TTL_END, TaskOutcome.EXPIRED)


STRIDE: Final = 1_000_000
"""Stride of weight 1; also the maximum weight."""
LAG_MAX: Final = 2 * STRIDE
"""Maximum lag of a tube behind the others: a tube does not accumulate a share while it is empty."""


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
