"""Define selectors of tasks, find the tasks of a selector, and apply a change to each of them.

The cost of a filter per entry is bounded by the number of scanned tasks, not of matching tasks, and
a filter with many comparisons scans fewer tasks. The result has the id after which to continue.
Tasks are scanned in order of their ids, whether they are in memory or not, so the bound is reached
at the same task on all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, assert_never

from taskraft_service.queue.entities.filter import Filter, Predicate, matcher, scanned_tasks
from taskraft_service.queue.entities.refusal import (
    CountResult,
    ItemRefusal,
    Reason,
    Refusal,
    no_task,
    no_task_of_key,
)
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.values import value


@value
class ByIds:
    """The tasks with these ids."""

    ids: Sequence[int]


@value
class ByKeys:
    """The tasks that have these unique keys, or had them last."""

    keys: Sequence[tuple[str, ...]]


@value
class ByFilter:
    """The tasks that match a filter, in order of their ids.

    Args:
        filter: None matches all tasks.
        tasks_max: maximum number of tasks.
        after_id: only tasks with larger ids; continues an earlier scan.
    """

    filter: Filter | None
    tasks_max: int
    after_id: int = 0


Selector: TypeAlias = ByIds | ByKeys | ByFilter


def at_most(selector: Selector | None) -> int:
    """Return the maximum number of tasks that a selector selects; 0 for None."""
    if selector is None:
        return 0
    if isinstance(selector, ByFilter):
        return selector.tasks_max
    return len(selector.ids if isinstance(selector, ByIds) else selector.keys)


SCAN_ITEMS: Final = 1_000
"""Number of items that stand for the scan of a filter, however few tasks the filter selects."""


CONTENT_ITEMS: Final = 16
"""Number of items that stand for one task whose content is changed or moved, because the content
can be large."""


class Selects(Protocol):
    """A command with a selector."""

    @property
    def selector(self) -> Selector | None:
        """The selector; None: the command selects its tasks in another way."""


def selected_items(command: Selects) -> int:
    """Return how many tasks a command with a selector looks at or changes, at most."""
    selector = command.selector
    return max(at_most(selector), SCAN_ITEMS if isinstance(selector, ByFilter) else 1)


Change: TypeAlias = "Callable[[QueueTask], bool | Refusal]"
"""Changes a task; returns whether anything changed, or a refusal."""


class Found(NamedTuple):
    """Result of one bounded scan.

    ``tasks`` are in order of their ids. ``continue_after_id`` is the last scanned id; 0 if no task
    has a larger id.
    """

    tasks: Sequence[QueueTask]
    continue_after_id: int


def scan(
    state: QueueState, tube: QueueTube, is_wanted: Predicate, selector: ByFilter, scan_max: int
) -> Found:
    """Return the matching tasks among the next ``scan_max`` tasks after ``selector.after_id``."""
    tasks: list[QueueTask] = []
    after_id = max(selector.after_id, 0)
    for looked_at, task in enumerate(state.tasks(tube, after_id)):
        if looked_at == scan_max or len(tasks) == selector.tasks_max:
            return Found(tasks, after_id)
        after_id = task.id
        if is_wanted(task):
            tasks.append(task)
    return Found(tasks, 0)


def change_each(
    state: QueueState,
    tube: QueueTube,
    selector: Selector,
    states: Collection[State],
    change: Change,
) -> CountResult:
    """Apply a change to each task of a selector.

    ``change`` handles tasks of any state; a filter selects only tasks in ``states``. Each task is
    looked up when its turn comes, because an earlier change may have ended it. If the command has
    changed as much content as it may, a filter continues with the next command.
    """
    continue_after_id = 0
    found_ids: Sequence[int] = ()
    if isinstance(selector, ByFilter):
        is_match = matcher(selector.filter, state.now_ms, state.wall_offset_ms)
        found = scan(
            state,
            tube,
            lambda task: task.state in states and is_match(task),
            selector,
            scanned_tasks(state.limits.selector_scan_max, selector.filter),
        )
        continue_after_id = found.continue_after_id
        found_ids = [task.id for task in found.tasks]
        selector = ByIds(found_ids)
    count = 0
    refused: list[ItemRefusal] = []
    for item, task in enumerate(named(state, tube, selector)):
        changed = task if isinstance(task, Refusal) else change(task)
        if isinstance(changed, Refusal):
            if found_ids and changed.reason is Reason.TOO_MANY_STEPS:
                continue_after_id = found_ids[item - 1]
                break
            refused.append(ItemRefusal(item, changed))
        else:
            count += changed
    return CountResult(count, refused, continue_after_id)


def named(
    state: QueueState, tube: QueueTube, selector: ByIds | ByKeys
) -> Iterator[QueueTask | Refusal]:
    """Yield the current task of each item, or a refusal if the task does not exist."""
    match selector:
        case ByIds(ids):
            for task_id in ids:
                yield state.find(tube, task_id) or no_task(task_id)
        case ByKeys(keys):
            for key in keys:
                task_id = state.unique_keys.find(tube.number, key)
                yield state.find(tube, task_id) or no_task_of_key(key)
        case _:
            assert_never(selector)
