"""Offer the ready tasks of some tubes one by one, the most urgent first."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from service.queue.commands import Outcome
from service.queue.life_cycle import READY, EventKind
from service.queue.orders.read_ahead import soon_needed
from service.queue.tasks.endings import end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.queue.ledger import Ledger
    from service.queue.orders.ordered_index import Entry
    from service.queue.tasks.task import Task
    from service.queue.tubes.tube import Tube


class Candidates:
    """The tasks that some tubes offer, in the order in which they are to be taken.

    ``_heads`` is a heap of the tubes' first tasks: by lane, rank, age, then order of the request;
    the last number is the tube's place among them. One tube alone needs no comparison.
    """

    __slots__ = ("_heads", "_ledger", "_tubes")

    def __init__(self, ledger: Ledger, tubes: Sequence[Tube]) -> None:
        """Look at what the tubes offer."""
        self._ledger = ledger
        self._tubes = tubes
        if len(tubes) == 1:
            self._heads: list[tuple[int, ...]] = [(0,)]
        else:
            places = range(len(tubes))
            self._heads = [head for place in places if (head := self._head(place))]
            heapify(self._heads)

    def withdraw(self) -> tuple[Task, Entry] | None:
        """Withdraw the most urgent task with its entry; ``proceed`` after it is claimed or not.

        A task whose time to live is over is ended instead: its deadline may have to wait its turn.
        """
        ledger = self._ledger
        while self._heads:
            tube = self._tubes[self._heads[0][-1]]
            entry = tube.ready.pop_least()
            if entry is None:
                break
            task = ready_task(ledger, tube, entry)
            if task.expire_at_ms > ledger.now_ms:
                return task, entry
            expire(ledger, task)
            self.proceed(is_claimed=False)
        return None

    def proceed(self, *, is_claimed: bool) -> None:
        """Let the tube whose task was withdrawn last compete with its next one."""
        del is_claimed  # it makes no difference to an order by urgency
        if len(self._tubes) == 1:
            return
        head = self._head(self._heads[0][-1])
        if head is None:
            heappop(self._heads)
        else:
            heapreplace(self._heads, head)

    def _head(self, place: int) -> tuple[int, ...] | None:
        """Return how urgent the first task of a tube is, or None where there is none."""
        tube = self._tubes[place]
        entry = tube.ready.least()
        if entry is None:
            return None
        task = self._ledger.bring(tube, entry[-1])
        return (*task.order[:2], task.created_ms, place)


def ready_task(ledger: Ledger, tube: Tube, entry: Entry) -> Task:
    """Return the task that a tube offers under an entry."""
    task = tube.tasks.get(entry[-1]) or soon_needed(ledger, tube, [entry])
    assert task.state is READY
    return task


def expire(ledger: Ledger, task: Task) -> None:
    """End a ready task whose time to live is over."""
    ledger.leave_order(task)
    end(ledger, task, EventKind.TTL_EXPIRED, Outcome.EXPIRED)


def matches(task: Task, types: Sequence[str], priority_bound: int | None) -> bool:
    """Tell whether a filter lets a task through."""
    if types and task.type not in types:
        return False
    if priority_bound is None:
        return True
    tube = task.tube
    return tube.rank(task.priority) <= tube.rank(priority_bound)
