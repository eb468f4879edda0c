"""Choose the tasks of a take: the most urgent first, from one tube or from several.

What is chosen is out of its order and counts as taken there; leasing it is the next step.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from service.queue.commands import Outcome
from service.queue.endings import end
from service.queue.life_cycle import READY, EventKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.queue.commands import Take
    from service.queue.ledger import Ledger
    from service.queue.ordered_index import Entry
    from service.queue.task import Task
    from service.queue.tube import Tube


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
            self.proceed()
        return None

    def proceed(self) -> None:
        """Let the tube whose task was withdrawn last compete with its next one."""
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
    task = tube.tasks.get(entry[-1]) or ledger.find(tube, entry[-1])
    assert task is not None, f"tube {tube.number} has no task {entry[-1]}"
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
    return priority_bound is None or task.order[1] <= task.tube.rank(priority_bound)


def choose(
    ledger: Ledger,
    command: Take,
    tubes: Sequence[Tube],
    room: int,
    bytes_max: int,
    has_some: bool = False,  # noqa: FBT001, FBT002 - see throttling.Choice
) -> list[Task]:
    """Choose up to ``room`` tasks of together ``bytes_max``.

    The first may have more bytes, unless ``has_some`` says that it is not the first of its take.
    """
    if command.types or command.priority_bound is not None:
        return _filtered(ledger, command, tubes, room, bytes_max, has_some=has_some)
    if len(tubes) == 1 and not tubes[0].ready.counts_leases:
        return _first_of_one(ledger, tubes[0], room, bytes_max, has_some=has_some)
    return _first(ledger, tubes, room, bytes_max, has_some=has_some)


def _first(
    ledger: Ledger, tubes: Sequence[Tube], room: int, bytes_max: int, *, has_some: bool
) -> list[Task]:
    """Choose the most urgent tasks of some tubes."""
    tasks: list[Task] = []
    candidates = Candidates(ledger, tubes)
    while len(tasks) < room and (found := candidates.withdraw()) is not None:
        task, entry = found
        bytes_max -= task.payload_bytes
        if bytes_max < 0 and (tasks or has_some):
            task.tube.ready.restore(entry)
            break
        task.tube.ready.claim(task)
        candidates.proceed()
        tasks.append(task)
    return tasks


def _first_of_one(
    ledger: Ledger, tube: Tube, room: int, bytes_max: int, *, has_some: bool
) -> list[Task]:
    """Do the same for one tube in plain order: the hot path of consumers."""
    now_ms = ledger.now_ms
    pop = tube.ready.pop_least
    tasks: list[Task] = []
    while len(tasks) < room:
        entry = pop()
        if entry is None:
            break
        task = ready_task(ledger, tube, entry)
        if task.expire_at_ms <= now_ms:
            expire(ledger, task)
            continue
        bytes_max -= task.payload_bytes
        if bytes_max < 0 and (tasks or has_some):
            tube.ready.restore(entry)
            break
        tasks.append(task)
    return tasks


def _filtered(
    ledger: Ledger,
    command: Take,
    tubes: Sequence[Tube],
    room: int,
    bytes_max: int,
    *,
    has_some: bool,
) -> list[Task]:
    """Choose the most urgent tasks that a filter lets through.

    The others are put aside meanwhile; at most ``filter_scan_max`` are looked at. In a sub-queue a
    task that the filter holds back holds back those behind it.
    """
    types, bound, bytes_left = command.types, command.priority_bound, bytes_max
    tasks: list[Task] = []
    aside: list[tuple[Task, Entry]] = []
    candidates = Candidates(ledger, tubes)
    while len(tasks) < room and len(aside) < ledger.limits.filter_scan_max:
        found = candidates.withdraw()
        if found is None:
            break
        task, _ = found
        if not matches(task, types, bound):
            aside.append(found)
        elif task.payload_bytes > bytes_left and (tasks or has_some):
            aside.append(found)
            break
        else:
            bytes_left -= task.payload_bytes
            task.tube.ready.claim(task)
            tasks.append(task)
        candidates.proceed()
    for task, entry in reversed(aside):
        task.tube.ready.restore(entry)
        ledger.touch_tube(task.tube)  # so that its order is flushed
    return tasks
