"""Delete from the store what it knows of tasks that are gone.

Consumers work through a tube in about the order in which it was filled, so what goes between two
batches of writes are neighbours: a range takes the place of two keys for each task, of the work
that they make in the store, and of the markers that later walks would have to pass.
"""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from service.queue.keys import OUTSIDE_TUBES, body_key, task_key, timer_key
from service.queue.life_cycle import READY
from service.queue.store import RangeDeletion
from service.queue.tasks.task import Stored, place_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from service.queue.store import Write
    from service.queue.tasks.task import Task
    from service.queue.tubes.tube import Tube

NEIGHBOURS_MIN: Final = 32
"""So many neighbours at least are deleted as a range: each range is something for reads to heed."""
_ID: Final = attrgetter("id")


def delete_tasks(gone: Iterable[Task], writes: list[Write]) -> None:
    """Delete all keys of tasks that are gone and that the store knows."""
    by_tube: dict[Tube, list[Task]] = {}
    for task in gone:
        by_tube.setdefault(task.tube, []).append(task)
    for tasks in by_tube.values():
        tasks.sort(key=_ID)
        first = 0
        for place, (before, after) in enumerate(pairwise(tasks), 1):
            if after.id - before.id > 1:
                _delete_neighbours(tasks[first:place], writes)
                first = place
        _delete_neighbours(tasks[first:], writes)


def delete_outside(task: Task, writes: list[Write]) -> None:
    """Delete the keys of a task that do not go with its tube."""
    writes.extend((key, None) for key in _places(task) if key[:1] in OUTSIDE_TUBES)


def _delete_neighbours(tasks: Sequence[Task], writes: list[Write]) -> None:
    """Delete all keys of tasks of one tube whose ids follow each other."""
    first, last = tasks[0], tasks[-1]
    number = first.tube.number
    is_range = len(tasks) >= NEIGHBOURS_MIN
    if is_range:
        writes.append(RangeDeletion(task_key(number, first.id), task_key(number, last.id + 1)))
    else:
        writes.extend((task_key(number, task.id), None) for task in tasks)
    if is_range and _stand_in_line(tasks):
        assert first.written is not None
        lane, rank, task_id = first.written[1]
        behind = (lane, rank, task_id + len(tasks))
        begin, end = (place_key(first, READY, order, 0) for order in (first.written[1], behind))
        writes.append(RangeDeletion(begin, end))
    else:
        for task in tasks:
            writes.extend((key, None) for key in _places(task))
    for task in tasks:
        assert task.written is not None
        if task.written[-1] is not Stored.NOTHING:
            writes.append((body_key(number, task.id), None))


def _stand_in_line(tasks: Sequence[Task]) -> bool:
    """Tell whether neighbours have places in one line, and no timers: nobody else is between."""
    assert tasks[0].written is not None
    lane, rank, _ = tasks[0].written[1]
    subqueue = tasks[0].subqueue
    for task in tasks:
        assert task.written is not None
        state, order, _, timer, _ = task.written
        in_line = order[0] == lane and order[1] == rank and task.subqueue == subqueue
        if not in_line or state is not READY or timer is not None:
            return False
    return True


def _places(task: Task) -> Iterable[bytes]:
    """Yield the keys of a task's place, or lease, and of its timer, as the store knows them."""
    assert task.written is not None
    state, order, token, timer, _ = task.written
    place = place_key(task, state, order, token)
    if place:
        yield place
    if timer is not None:
        yield timer_key(timer)
