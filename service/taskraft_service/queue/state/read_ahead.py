"""Read tasks that will soon be taken, many with one look at the store.

A task that waits is in the store when its tube holds more than memory should; reading it alone
when its turn comes costs more than everything else about a take. So a take that meets one reads
those behind it as well, and after each batch of writes the tubes in use read on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final

from taskraft_service.queue.entities.ready_order import Offers
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.keys import TASK_TIMERS, task_id_of, task_key
from taskraft_service.queue.store.ordered_index import OrderKey

SCANNED_MIN: Final = 8
"""So many neighbours at least are read by a scan, which is dear to begin and cheap to go on."""
NEIGHBOUR_MAX: Final = 2
"""So far apart two ids may be to count as neighbours: what is between is read for nothing."""


def soon_needed(
    ledger: QueueState, tube: QueueTube, offers: Offers, withdrawn: Sequence[OrderKey]
) -> QueueTask:
    """Return the ready task of the first of some entries, which may be withdrawn from ``offers``.

    It is in memory then, and if there is room, the others and those behind them as well.
    """
    first = withdrawn[0][-1]
    task = tube.tasks.get(first)
    if task is None:
        if ledger.resident_bytes <= ledger.limits.resident_bytes_max:
            coming = offers.coming(ledger.limits.read_tasks_max)
            _bring(ledger, tube, [entry[-1] for entry in (*withdrawn, *coming)])
        else:
            _bring(ledger, tube, [first])
        task = tube.tasks.get(first)
    assert task is not None, f"tube {tube.number} has no task {first}"
    return task


def read_ahead(ledger: QueueState) -> None:
    """Read on in the tubes that were in use before the last batch of writes."""
    limits = ledger.limits
    tubes, ledger.tubes.used = ledger.tubes.used, []
    for tube in tubes:
        if ledger.resident_bytes > limits.resident_bytes_max:
            return
        is_there = tube.number in ledger.tubes.by_number  # not truncated or dropped meanwhile
        if is_there and len(tube.tasks) < sum(tube.counters.states):
            coming = tube.ready.coming(limits.ahead_tasks_max)
            _bring(ledger, tube, [entry[-1] for entry in coming])


def read_due(ledger: QueueState, count: int) -> None:
    """Read the tasks of up to so many deadlines that are due; and if need be, of some to come."""
    due = list(islice(ledger.timers.in_memory_until((ledger.now_ms + 1,)), count))
    if not any(_is_stored(ledger, timer) for timer in due):
        return
    limits = ledger.limits
    if ledger.resident_bytes <= limits.resident_bytes_max:
        due += ledger.timers.coming(limits.read_tasks_max)
    ids: dict[int, list[int]] = {}
    for _, kind, tube_number, number in due:
        if kind in TASK_TIMERS:
            ids.setdefault(tube_number, []).append(number)
    for tube_number, numbers in ids.items():
        tube = ledger.tubes.by_number.get(tube_number)
        if tube is not None:
            _bring(ledger, tube, numbers)


def _is_stored(ledger: QueueState, timer: OrderKey) -> bool:
    """Tell whether the task of a deadline must be read when that fires."""
    _, kind, tube_number, number = timer
    tube = ledger.tubes.by_number.get(tube_number) if kind in TASK_TIMERS else None
    return tube is not None and number not in tube.tasks


def _bring(ledger: QueueState, tube: QueueTube, ids: Iterable[int]) -> None:
    """Bring tasks that exist into memory, and keep them there."""
    tasks, read = tube.tasks, ledger.read
    # Places ascend within a sub-queue, and so does what is kept in order: sorting costs little.
    missing = sorted(set(ids).difference(tasks))
    resident_bytes = 0
    for task_id, record in _records(ledger, tube, missing):
        task = tasks[task_id] = read(tube, task_id, record)
        if task.body is not None:
            resident_bytes += len(task.body)
    ledger.resident_bytes += resident_bytes


def _records(
    ledger: QueueState, tube: QueueTube, ids: Sequence[int]
) -> Iterator[tuple[int, bytes]]:
    """Yield the records of some ids, which ascend; neighbours are scanned, which costs half."""
    number, store = tube.number, ledger.store
    alone: list[int] = []
    for run in _runs(ids):
        if len(run) < SCANNED_MIN:
            alone += run
            continue
        pairs = store.scan(task_key(number, run[0]), task_key(number, run[-1] + 1))
        if _is_dense(run):  # so whatever is found is wanted, in this order
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
    """Cut ascending ids where more than one is missing between two."""
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
    """Tell whether no id is missing between the first and the last of some that ascend."""
    return ids[-1] - ids[0] == len(ids) - 1
