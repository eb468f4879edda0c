"""List the tasks of a tube by their ids, a bounded part at a time.

Ids grow and are never used again, so a list that goes by them does not shift: what is put meanwhile
stands behind its end, what goes leaves a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from service.queue.tasks.matching import matcher
from service.queue.values import value

if TYPE_CHECKING:
    from service.queue.commands import Filter, TaskView
    from service.queue.ledger import Ledger
    from service.queue.tubes.tube import Tube


class Window(NamedTuple):
    """The ids above one and up to another: what of a list has not been looked at."""

    after_id: int
    last_id: int

    @property
    def is_empty(self) -> bool:
        """Tell whether no id is left."""
        return self.after_id >= self.last_id


NOTHING_LEFT: Final = Window(0, 0)


@value
class Listing:
    """What to list, and how much of it at once.

    Args:
        chosen: lets the tasks through; None: all.
        descending: the greatest id first.
        tasks_max: return at most so many.
        bytes_max: return no more once there is so much content.
        scan_max: look at most at so many, whether they are let through or not.
    """

    chosen: Filter | None
    descending: bool
    tasks_max: int
    bytes_max: int
    scan_max: int


class Listed(NamedTuple):
    """A part of a list, and what is left of it."""

    tasks: list[TaskView]
    rest: Window


def scan_window(ledger: Ledger, tube: Tube, listing: Listing, window: Window) -> Listed:
    """Return some of the tasks in a window, in the order of the list, and what is left."""
    after_id, last_id = window
    descending, bytes_left = listing.descending, listing.bytes_max
    is_match = matcher(listing.chosen, ledger.now_ms)
    tasks: list[TaskView] = []
    walk = ledger.tasks_back(tube, last_id) if descending else ledger.tasks(tube, after_id)
    for looked_at, task in enumerate(walk):
        if not after_id < task.id <= last_id:
            break
        is_full = len(tasks) >= listing.tasks_max or (bytes_left <= 0 and tasks)
        if is_full or looked_at >= listing.scan_max:
            return Listed(tasks, window)
        if is_match(task):
            view = task.view(ledger.body(task))
            tasks.append(view)
            bytes_left -= len(view.body)
        window = Window(after_id, task.id - 1) if descending else Window(task.id, last_id)
    return Listed(tasks, NOTHING_LEFT)
