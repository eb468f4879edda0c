"""List the tasks of a tube by their ids or as they would be taken, a bounded part at a time.

Ids grow and are never used again, so a list that goes by them does not shift: what is put meanwhile
stands behind its end, what goes leaves a gap. A list in the order of takes goes by places: what is
put or comes back to a place that was passed is left out, and so is what is put at all.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from taskraft_service.queue.entities.filter import Filter
from taskraft_service.queue.entities.matching import matcher
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.ordered_index import OrderKey
from taskraft_service.queue.values import value


class Window(NamedTuple):
    """The ids above one and up to another: what of a list has not been looked at."""

    after_id: int
    last_id: int

    @property
    def is_empty(self) -> bool:
        """Tell whether no id is left."""
        return self.after_id >= self.last_id


class Passed(NamedTuple):
    """The place up to which a list in the order of takes has been looked at.

    ``last_id``: tasks with greater ids came later. ``is_empty`` tells that no place is left.
    """

    place: OrderKey
    last_id: int
    is_empty: bool = False


Rest: TypeAlias = Window | Passed
"""What is left of a list."""

NOTHING_LEFT: Final = Window(0, 0)


@value
class Listing:
    """What to list, and how much of it at once.

    Args:
        chosen: lets the tasks through; None: all.
        now_ms: the time up to which ages are counted.
        descending: the greatest id first.
        tasks_max: return at most so many.
        bytes_max: return no more once there is so much content.
        scan_max: look at most at so many, whether they are let through or not.
    """

    chosen: Filter | None
    now_ms: int
    descending: bool
    tasks_max: int
    bytes_max: int
    scan_max: int


class Listed(NamedTuple):
    """A part of a list, and what is left of it."""

    tasks: list[TaskView]
    rest: Rest


def scan(state: QueueState, tube: QueueTube, listing: Listing, rest: Rest) -> Listed:
    """Return some of the tasks of what is left of a list, and what is left then."""
    if isinstance(rest, Passed):
        return _scan_places(state, tube, listing, rest)
    return _scan_window(state, tube, listing, rest)


def _scan_places(state: QueueState, tube: QueueTube, listing: Listing, passed: Passed) -> Listed:
    """Return some of the tasks behind a place, in the order in which they would be taken."""
    place, last_id, _ = passed
    bytes_left = listing.bytes_max
    is_match = matcher(listing.chosen, listing.now_ms)
    tasks: list[TaskView] = []
    for looked_at, entry in enumerate(tube.ready.ordered(place)):
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
    """Return some of the tasks in a window, in the order of the list, and what is left."""
    after_id, last_id = window
    descending, bytes_left = listing.descending, listing.bytes_max
    is_match = matcher(listing.chosen, listing.now_ms)
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
