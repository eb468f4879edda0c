"""Find the tasks that a selector names, and do something to each of them.

What a filter may cost in one entry is bounded by the tasks it looks at, not by those it finds: the
answer says behind which id to go on. Tasks are looked at in order of their ids, whether they are in
memory or not, so the bound falls on the same task on all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias, assert_never

from taskraft_service.queue.entities.count_result import CountResult
from taskraft_service.queue.entities.matching import Predicate, matcher
from taskraft_service.queue.entities.refusal import ItemRefusal, Refusal
from taskraft_service.queue.entities.refusals import no_task, no_task_of_key
from taskraft_service.queue.entities.selector import ByFilter, ByIds, ByKeys, Selector
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.task_view import State
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.state.queue_state import QueueState

Change: TypeAlias = "Callable[[QueueTask], bool | Refusal]"
"""Does something to a task; tells whether that changed anything, or why it may not be."""


class Found(NamedTuple):
    """What a part of a scan brought.

    ``tasks`` are in order of their ids; ``continue_after_id`` is the last id that was looked at, 0
    where no task is above it.
    """

    tasks: Sequence[QueueTask]
    continue_after_id: int


def scan(
    ledger: QueueState, tube: QueueTube, is_wanted: Predicate, selector: ByFilter, scan_max: int
) -> Found:
    """Return the tasks above an id that a predicate lets through, by looking at some tasks."""
    tasks: list[QueueTask] = []
    after_id = max(selector.after_id, 0)
    for looked_at, task in enumerate(ledger.tasks(tube, after_id)):
        if looked_at == scan_max or len(tasks) == selector.tasks_max:
            return Found(tasks, after_id)
        after_id = task.id
        if is_wanted(task):
            tasks.append(task)
    return Found(tasks, 0)


def change_each(
    ledger: QueueState,
    tube: QueueTube,
    selector: Selector,
    states: Collection[State],
    change: Change,
) -> CountResult:
    """Do something to each of the tasks that a selector names.

    ``change`` answers for tasks of any state; a filter finds only those in ``states``. Each task is
    looked up when its turn comes: what is done to one may end another.
    """
    continue_after_id = 0
    if isinstance(selector, ByFilter):
        is_match = matcher(selector.filter, ledger.now_ms)
        found = scan(
            ledger,
            tube,
            lambda task: task.state in states and is_match(task),
            selector,
            ledger.limits.selector_scan_max,
        )
        continue_after_id = found.continue_after_id
        selector = ByIds([task.id for task in found.tasks])
    count = 0
    refused: list[ItemRefusal] = []
    for item, task in enumerate(named(ledger, tube, selector)):
        changed = task if isinstance(task, Refusal) else change(task)
        if isinstance(changed, Refusal):
            refused.append(ItemRefusal(item, changed))
        else:
            count += changed
    return CountResult(count, refused, continue_after_id)


def named(
    ledger: QueueState, tube: QueueTube, selector: ByIds | ByKeys
) -> Iterator[QueueTask | Refusal]:
    """Yield the task of each item, or that there is none, as it is when it is asked for."""
    match selector:
        case ByIds(ids):
            for task_id in ids:
                yield ledger.find(tube, task_id) or no_task(task_id)
        case ByKeys(keys):
            for key in keys:
                task_id = ledger.unique_keys.find(tube.number, key)
                yield ledger.find(tube, task_id) or no_task_of_key(key)
        case _:
            assert_never(selector)
