"""Delete from the store what it knows of tasks that are gone.

Consumers work through a tube in about the order in which it was filled, so what goes between two
batches of writes are neighbours: a range takes the place of two keys for each task, of the work
that they make in the store, and of the markers that later walks would have to pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final

from taskraft_service.queue.codecs.task_codec import NOTHING
from taskraft_service.queue.entities.life_cycle import READY
from taskraft_service.queue.entities.task import QueueTask, place_key, typed_key
from taskraft_service.queue.entities.task_view import State
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.store.keys import OUTSIDE_TUBES, body_key, task_key, timer_key
from taskraft_service.queue.store.store import RangeDeletion, Write

NEIGHBOURS_MIN: Final = 32
"""So many neighbours at least are deleted as a range: each range is something for reads to heed."""
_ID: Final = attrgetter("id")


def delete_tasks(gone: Iterable[QueueTask], writes: list[Write]) -> None:
    """Delete all keys of tasks that are gone and that the store knows."""
    by_tube: dict[QueueTube, list[QueueTask]] = {}
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


def delete_outside(task: QueueTask, writes: list[Write]) -> None:
    """Delete the keys of a task that do not go with its tube."""
    assert task.written is not None
    where, timer, _ = task.written
    place = place_key(task.tube, where)
    if place[:1] in OUTSIDE_TUBES:
        writes.append((place, None))
    if timer is not None:
        writes.append((timer_key(timer), None))


def _delete_neighbours(tasks: Sequence[QueueTask], writes: list[Write]) -> None:
    """Delete all keys of tasks of one tube whose ids follow each other."""
    number, first_id = tasks[0].tube.number, tasks[0].id
    if len(tasks) >= NEIGHBOURS_MIN:
        end = task_key(number, first_id + len(tasks))
        writes.append(RangeDeletion(task_key(number, first_id), end))
    else:
        writes.extend((task_key(number, task.id), None) for task in tasks)
    first = 0
    line: tuple[State, int, int, str, str] | None = None
    for place, task in enumerate(tasks):
        assert task.written is not None
        (state, (lane, rank, _), _, subqueue, task_type), timer, content = task.written
        if timer is not None:
            writes.append((timer_key(timer), None))
        if content is not NOTHING:
            writes.append((body_key(number, task.id), None))
        before, line = line, (state, lane, rank, subqueue, task_type)
        if line != before and place > first:
            _delete_line(tasks[first:place], writes)
            first = place
    _delete_line(tasks[first:], writes)


def _delete_line(tasks: Sequence[QueueTask], writes: list[Write]) -> None:
    """Delete the places of neighbours that had the same state, lane, rank, sub-queue and type.

    Between two places that follow each other is nobody else.
    """
    tube, first = tasks[0].tube, tasks[0].written
    assert first is not None
    where = first[0]
    state, (lane, rank, task_id), token, subqueue, task_type = where
    ends_at = (state, (lane, rank, task_id + len(tasks)), token, subqueue, task_type)
    for key_of in (place_key, typed_key) if task_type else (place_key,):
        if state is READY and len(tasks) >= NEIGHBOURS_MIN:
            begin, end = key_of(tube, where), key_of(tube, ends_at)
            if begin:
                writes.append(RangeDeletion(begin, end))
            continue
        for task in tasks:
            assert task.written is not None
            key = key_of(tube, task.written[0])
            if key:
                writes.append((key, None))
