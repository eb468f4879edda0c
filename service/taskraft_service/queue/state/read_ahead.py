"""Read tasks that takes will need soon, many with one read of the store.

If a tube has more waiting tasks than memory should hold, the others are only in the store. Reading
one of these tasks alone costs more than the rest of a take. A take that needs one therefore reads
the following tasks as well, and each batch of writes is followed by reading ahead in tubes in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final

from taskraft_service.queue.entities.ready_tasks import Offers
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.keys import TASK_TIMERS, task_id_of, task_key
from taskraft_service.queue.store.ordered_index import OrderKey

SCANNED_MIN: Final = 8
"""Minimum number of neighbouring ids that one scan reads; a scan is costly to open."""
NEIGHBOUR_MAX: Final = 2
"""Maximum distance of two neighbouring ids; a scan reads the records between them for nothing."""


def soon_needed(
    state: QueueState, tube: QueueTube, offers: Offers, withdrawn: Sequence[OrderKey]
) -> QueueTask:
    """Return the READY task of the first of some withdrawn entries.

    Brings this task into memory, and, if there is memory left, the tasks of the other entries and
    of the next entries of ``offers``.
    """
    first = withdrawn[0][-1]
    task = tube.tasks.get(first)
    if task is None:
        if state.resident_bytes <= state.limits.resident_bytes_max:
            coming = offers.coming(state.limits.read_tasks_max)
            _bring(state, tube, [entry[-1] for entry in (*withdrawn, *coming)])
        else:
            _bring(state, tube, [first])
        task = tube.tasks.get(first)
    assert task is not None, f"tube {tube.number} has no task {first}"
    return task


def read_ahead(state: QueueState) -> None:
    """Read ahead in the tubes that changed before the last batch of writes."""
    limits = state.limits
    tubes, state.tubes.used = state.tubes.used, []
    for tube in tubes:
        if state.resident_bytes > limits.resident_bytes_max:
            return
        is_there = tube.number in state.tubes.by_number  # not truncated or dropped meanwhile
        if is_there and len(tube.tasks) < sum(tube.counters.states):
            coming = tube.ready.coming(limits.ahead_tasks_max)
            _bring(state, tube, [entry[-1] for entry in coming])


def read_due(state: QueueState, count: int) -> None:
    """Read the tasks of the deadlines that are due, and of the next ones, at most ``tasks_max``."""
    due = list(islice(state.timers.in_memory_until((state.now_ms + 1,)), count))
    if not any(_is_stored(state, timer) for timer in due):
        return
    limits = state.limits
    if state.resident_bytes <= limits.resident_bytes_max:
        due += state.timers.coming(limits.read_tasks_max)
    ids: dict[int, list[int]] = {}
    for _, kind, tube_number, number in due:
        if kind in TASK_TIMERS:
            ids.setdefault(tube_number, []).append(number)
    for tube_number, numbers in ids.items():
        tube = state.tubes.by_number.get(tube_number)
        if tube is not None:
            _bring(state, tube, numbers)


def _is_stored(state: QueueState, timer: OrderKey) -> bool:
    """Return whether the task of a deadline is not in memory."""
    _, kind, tube_number, number = timer
    tube = state.tubes.by_number.get(tube_number) if kind in TASK_TIMERS else None
    return tube is not None and number not in tube.tasks


def _bring(state: QueueState, tube: QueueTube, ids: Iterable[int]) -> None:
    """Bring tasks that exist into memory."""
    tasks, read = tube.tasks, state.read
    # Sorting is cheap: the ids are mostly ascending already.
    missing = sorted(set(ids).difference(tasks))
    resident_bytes = 0
    for task_id, record in _records(state, tube, missing):
        task = tasks[task_id] = read(tube, task_id, record)
        if task.body is not None:
            resident_bytes += len(task.body)
    state.resident_bytes += resident_bytes


def _records(state: QueueState, tube: QueueTube, ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the records of ascending ids; neighbours are scanned, which costs half."""
    number, store = tube.number, state.store
    alone: list[int] = []
    for run in _runs(ids):
        if len(run) < SCANNED_MIN:
            alone += run
            continue
        pairs = store.scan(task_key(number, run[0]), task_key(number, run[-1] + 1))
        if _is_dense(run):  # the scan yields exactly the wanted records, in this order
            yield from zip(run, (record for _, record in pairs), strict=True)
            continue
        wanted = set(run)
        for key, record in pairs:
            task_id = task_id_of(key)
            if task_id in wanted:
                yield task_id, record
    if alone:
        found = store.get_many([task_key(number, task_id) for task_id in alone])
        for task_id, content in zip(alone, found, strict=True):
            assert content is not None, f"tube {number} has no task {task_id}"
            yield task_id, content


def _runs(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Cut ascending ids into runs of neighbours."""
    first = 0
    if not ids or _is_dense(ids):
        yield ids
        return
    for place, (before, after) in enumerate(pairwise(ids), 1):
        if after - before > NEIGHBOUR_MAX:
            yield ids[first:place]
            first = place
    yield ids[first:]


def _is_dense(ids: Sequence[int]) -> bool:
    """Return whether ascending ids have no gap."""
    return ids[-1] - ids[0] == len(ids) - 1
