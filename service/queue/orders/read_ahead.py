"""Read tasks that will soon be taken, many with one look at the store.

A task that waits is in the store when its tube holds more than memory should; reading it alone
when its turn comes costs more than everything else about a take. So a take that meets one reads
those behind it as well, and after each batch of writes the tubes in use read on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.queue.keys import TASK_TIMERS, task_id_of, task_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from service.queue.ledger import Ledger
    from service.queue.orders.ordered_index import Entry
    from service.queue.tasks.task import Task
    from service.queue.tubes.tube import Tube


def soon_needed(ledger: Ledger, tube: Tube, entry: Entry) -> Task:
    """Return the ready task of a withdrawn entry; it and those behind it are in memory then."""
    task = tube.tasks.get(entry[-1])
    if task is None:
        coming = [entry]
        if ledger.resident_bytes <= ledger.limits.resident_bytes_max:
            coming += tube.ready.coming(ledger.limits.read_tasks_max)
        _bring(ledger, tube, (entry[-1] for entry in coming))
        task = tube.tasks.get(entry[-1])
    assert task is not None, f"tube {tube.number} has no task {entry[-1]}"
    return task


def read_ahead(ledger: Ledger) -> None:
    """Read on in the tubes that were in use before the last batch of writes."""
    limits = ledger.limits
    tubes, ledger.used_tubes = ledger.used_tubes, []
    for tube in tubes:
        if ledger.resident_bytes > limits.resident_bytes_max:
            return
        if len(tube.tasks) < sum(tube.counters.states):
            coming = tube.ready.coming(limits.ahead_tasks_max)
            _bring(ledger, tube, (entry[-1] for entry in coming))


def due_tasks(ledger: Ledger, count: int) -> None:
    """Read the tasks of up to so many deadlines that are due."""
    ids: dict[int, list[int]] = {}
    for _, kind, tube_number, number in ledger.timers.coming_until((ledger.now_ms + 1,), count):
        if kind in TASK_TIMERS:
            ids.setdefault(tube_number, []).append(number)
    for tube_number, numbers in ids.items():
        tube = ledger.tubes_by_number.get(tube_number)
        if tube is not None:
            _bring(ledger, tube, numbers)


def _bring(ledger: Ledger, tube: Tube, ids: Iterable[int]) -> None:
    """Bring tasks that exist into memory, and keep them there."""
    tasks = tube.tasks
    missing = sorted({task_id for task_id in ids if task_id not in tasks})
    resident_bytes = 0
    for task_id, record in _records(ledger, tube, missing):
        task = tasks[task_id] = ledger.read(tube, task_id, record)
        if task.body is not None:
            resident_bytes += len(task.body)
    ledger.resident_bytes += resident_bytes


def _records(ledger: Ledger, tube: Tube, ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the records of some ids in order; neighbours are scanned, which costs half."""
    if not ids:
        return
    number = tube.number
    first, last = ids[0], ids[-1]
    if last - first < 2 * len(ids):
        wanted = set(ids)
        for key, record in ledger.store.scan(task_key(number, first), task_key(number, last + 1)):
            task_id = task_id_of(key)
            if task_id in wanted:
                yield task_id, record
        return
    found = ledger.store.get_many([task_key(number, task_id) for task_id in ids])
    for task_id, content in zip(ids, found, strict=True):
        assert content is not None, f"tube {number} has no task {task_id}"
        yield task_id, content
