"""List the tasks of a tube in parts of bounded size, by task id, in take order or in kick order.

Task ids grow and are never reused, so a list by ids is stable: it skips deleted tasks and leaves
out tasks that were put after the list began. A list in take order also leaves out new tasks, and
tasks that return to a position that the list has already passed.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from taskraft_service.queue.entities.filter import Filter, matcher
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.ordered_index import OrderKey
from taskraft_service.queue.values import value


class Window(NamedTuple):
    """The ids that a list by ids has not scanned yet: above ``after_id``, up to ``last_id``."""

    after_id: int
    last_id: int

    @property
    def is_empty(self) -> bool:
        """Return whether no id is left to scan."""
        return self.after_id >= self.last_id


class Passed(NamedTuple):
    """The last position that a list in take order or in kick order has scanned.

    Tasks with ids above ``last_id`` are not listed. ``is_empty``: no position is left to scan.
    """

    place: OrderKey
    last_id: int
    is_empty: bool = False


Rest: TypeAlias = Window | Passed
"""The part of a list that has not been scanned yet."""

NOTHING_LEFT: Final = Window(0, 0)


@value
class Listing:
    """Request for a list: which tasks to list, and the maximum size of one part.

    Args:
        chosen: selects the tasks; None selects all tasks.
        now_ms: the current time, for filters on the age of a task.
        descending: list the greatest id first.
        tasks_max: maximum of tasks in one part.
        bytes_max: the part ends with the task at which the content of the part reaches this size.
        scan_max: maximum of scanned tasks for one part, including tasks that do not match.
        kicking: a list by position has the buried tasks in kick order, instead of the ready tasks.
    """

    chosen: Filter | None
    now_ms: int
    descending: bool
    tasks_max: int
    bytes_max: int
    scan_max: int
    kicking: bool = False


class Listed(NamedTuple):
    """One part of a list, and the rest of the list."""

    tasks: list[TaskView]
    rest: Rest


class Counted(NamedTuple):
    """One part of a count, and the ids that were not examined yet."""

    matches: int
    """Number of tasks that match."""
    examined: int
    rest: Window


def count(
    state: QueueState,
    tube: QueueTube,
    chosen: Filter | None,
    now_ms: int,
    scan_max: int,
    window: Window,
) -> Counted:
    """Count the matching tasks among the next tasks of a window, at most ``scan_max``."""
    is_match = matcher(chosen, now_ms, state.wall_offset_ms)
    matches = examined = 0
    after_id, last_id = window
    for task in state.tasks(tube, after_id):
        if task.id > last_id:
            break
        if examined == scan_max:
            return Counted(matches, examined, Window(after_id, last_id))
        matches += is_match(task)
        examined += 1
        after_id = task.id
    return Counted(matches, examined, NOTHING_LEFT)


def scan(state: QueueState, tube: QueueTube, listing: Listing, rest: Rest) -> Listed:
    """Return the next part of a list of tasks, and the rest of the list."""
    if isinstance(rest, Passed):
        return _scan_places(state, tube, listing, rest)
    return _scan_window(state, tube, listing, rest)


def _scan_places(state: QueueState, tube: QueueTube, listing: Listing, passed: Passed) -> Listed:
    """Return the next tasks after a position, in take or kick order, and the rest of the list."""
    place, last_id, _ = passed
    bytes_left = listing.bytes_max
    is_match = matcher(listing.chosen, listing.now_ms, state.wall_offset_ms)
    tasks: list[TaskView] = []
    entries = tube.buried.ordered(place) if listing.kicking else tube.ready.ordered(place)
    for looked_at, entry in enumerate(entries):
        is_full = len(tasks) >= listing.tasks_max or (bytes_left <= 0 and tasks)
        if is_full or looked_at >= listing.scan_max:
            return Listed(tasks, Passed(place, last_id))
        task = state.find(tube, entry[-1])
        assert task is not None, f"tube {tube.number} has no task {entry[-1]}"
        if task.id <= last_id and is_match(task):
            view = task.view(state.body(task))
            tasks.append(view)
            bytes_left -= view.content_bytes
        place = entry
    return Listed(tasks, Passed(place, last_id, is_empty=True))


def _scan_window(state: QueueState, tube: QueueTube, listing: Listing, window: Window) -> Listed:
    """Return the next tasks of a window, in the order of the list, and the rest of the list."""
    after_id, last_id = window
    descending, bytes_left = listing.descending, listing.bytes_max
    is_match = matcher(listing.chosen, listing.now_ms, state.wall_offset_ms)
    tasks: list[TaskView] = []
    walk = state.tasks_back(tube, last_id) if descending else state.tasks(tube, after_id)
    for looked_at, task in enumerate(walk):
        if not after_id < task.id <= last_id:
            break
        is_full = len(tasks) >= listing.tasks_max or (bytes_left <= 0 and tasks)
        if is_full or looked_at >= listing.scan_max:
            return Listed(tasks, window)
        if is_match(task):
            view = task.view(state.body(task))
            tasks.append(view)
            bytes_left -= view.content_bytes
        window = Window(after_id, task.id - 1) if descending else Window(task.id, last_id)
    return Listed(tasks, NOTHING_LEFT)
