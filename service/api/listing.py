"""List the tasks of a tube page by page, a bounded part of the event loop's time at once.

A token holds the id where the page before ended and the last id that there was at the first page: a
walk through all pages meets each task that was there at its beginning and still is, once, and ends
however fast tasks are put. It holds a mark of the list too, since with another filter or order the
next page would belong to neither.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from service.api.paging import key_of, malformed_token, token_after
from service.api.reading import Reading
from service.filter_text import read_filter
from service.limits import LIST_BYTES_MAX, LIST_SCAN_MAX, LIST_SLICE_MAX, TASKS_PAGE_SIZE_DEFAULT
from service.queue.commands import TaskView, TubeView
from service.queue.tasks.listing import Listing, Window
from taskraft.v1 import task_service_pb2 as pb

DESCENDING: Final = "id desc"
ORDERS: Final = ("", "id", DESCENDING)
"""What ``order_by`` may say."""
_MARK_BYTES: Final = 6


@dataclass(slots=True)
class Page:
    """A page of tasks, the token of the next one, and the position in the log that it shows."""

    tasks: list[TaskView]
    next_token: str
    revision: int


async def page_of_tasks(reading: Reading, tube: TubeView, request: pb.ListTasksRequest) -> Page:
    """Return the page that a checked request asks for.

    It may hold fewer tasks than asked for, even none, and yet not be the last: looking at so many
    tasks that the filter does not let through ends it too.

    Raises:
        Refused: the token was not made for this list.
    """
    mark = _mark(tube, request)
    queue = reading.applied
    if request.page_token:
        window = _window(request.page_token, mark)
    else:
        window = Window(0, reading.contents.of(tube.name).last_id(tube.name))
    descending = request.order_by == DESCENDING
    size = request.page_size or TASKS_PAGE_SIZE_DEFAULT
    chosen = read_filter(request.filter)
    tasks: list[TaskView] = []
    bytes_left = LIST_BYTES_MAX
    for _ in range(LIST_SCAN_MAX // LIST_SLICE_MAX):
        queue = reading.applied
        listing = Listing(chosen, descending, size - len(tasks), bytes_left, LIST_SLICE_MAX)
        found = reading.contents.of(tube.name).scan_tasks(tube.name, listing, window)
        tasks += found.tasks
        bytes_left -= sum(len(task.body) for task in found.tasks)
        window = found.rest
        if window.is_empty or len(tasks) >= size or bytes_left <= 0:
            break
        await asyncio.sleep(0)
    token = "" if window.is_empty else token_after(f"{window.after_id}:{window.last_id}:{mark}")
    return Page(tasks, token, queue.applied_index)


def _mark(tube: TubeView, request: pb.ListTasksRequest) -> str:
    """Return what tells one list from another; a tube of the same name made anew is another."""
    parts = (tube.name, str(tube.created_ms), request.filter, request.order_by)
    digest = blake2b(digest_size=_MARK_BYTES)
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _window(token: str, mark: str) -> Window:
    """Return where a page begins and the list ends."""
    parts = key_of(token).split(":")
    if len(parts) != 3 or parts[2] != mark:
        raise malformed_token()
    numbers = [int(part) for part in parts[:2] if part.isascii() and part.isdigit()]
    if len(numbers) != 2 or max(numbers) >= 1 << 63:
        raise malformed_token()
    return Window(*numbers)
