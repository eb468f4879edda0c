"""Read the tasks of a store that no longer changes, such as the copy of a database.

No queue is opened on the store: the records are decoded one by one, so the memory does not depend
on the number of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from taskraft_service.queue.entities.task_codec import read_task
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence.state_records import stored_format
from taskraft_service.queue.state.tube_codec import read_tube, summarize
from taskraft_service.queue.store.keys import (
    TASK,
    TUBE,
    body_key,
    prefix_stop,
    task_id_of,
    task_key,
    tube_range,
)
from taskraft_service.queue.store.store import Store
from taskraft_service.queue.values import value

STEP_TUBES: Final = 50
"""Number of tubes that are read in one step."""
IDS_END: Final = 1 << 63
"""Number above all task ids."""


@value
class StoredTube:
    """A tube that has tasks: their smallest and greatest id, and their number."""

    name: str
    first_id: int
    last_id: int
    tasks: int


class StoredPart(NamedTuple):
    """Some tasks in the order of their ids; all tasks up to ``through_id`` have been read."""

    tasks: list[TaskView]
    through_id: int
    is_last: bool


class StoredTasks:
    """The tasks of a store; may be used on any thread if the store allows it.

    Args:
        store: holds written records, and does not change.
        limits: limits of the queue that wrote the records.
    """

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._format = stored_format(store)
        self._records: dict[str, bytes] = {}
        """The record of each tube with tasks, by name."""
        self.tubes: list[StoredTube] = []
        """The tubes with tasks in the order of their names, once ``find_tubes`` has ended."""

    def find_tubes(self) -> Iterator[None]:
        """Read all tubes, in steps of a few milliseconds; the caller lets other work run.

        Only tubes with tasks are searched: a search takes almost a millisecond in a large store.
        The tubes themselves are not kept, because the garbage collector would visit all their
        objects, for a quarter of a second with 10 000 tubes.
        """
        for place, (_, record) in enumerate(self._store.scan(TUBE, prefix_stop(TUBE))):
            if place % STEP_TUBES == 0:
                yield
            number, name, tasks = summarize(record, self._format)
            if not tasks:
                continue
            self._records[name] = record
            span = tube_range(TASK, number)
            first = next(self._store.scan(*span), None)
            last = next(self._store.scan_back(*span), None)
            assert first is not None, f"tube {number} counts {tasks} tasks and has none"
            assert last is not None, f"tube {number} counts {tasks} tasks and has none"
            ids = task_id_of(first[0]), task_id_of(last[0])
            self.tubes.append(StoredTube(name, *ids, tasks))
        self.tubes.sort(key=attrgetter("name"))

    def read(
        self, name: str, after_id: int, last_id: int, tasks_max: int, bytes_max: int
    ) -> StoredPart:
        """Return the next tasks of a tube with ids above ``after_id``, up to ``last_id``.

        The part ends with ``tasks_max`` tasks, or with the task at which the content of the part
        reaches ``bytes_max``. The part is empty and the last part if there is no such tube.
        """
        tasks: list[TaskView] = []
        of_tube = self._records.get(name)
        if of_tube is None:
            return StoredPart(tasks, last_id, is_last=True)
        tube = read_tube(of_tube, self._store, self._limits, self._format)
        number, content_bytes = tube.number, 0
        stop = task_key(number, last_id + 1)
        for key, record in self._store.scan(task_key(number, after_id + 1), stop):
            task, _ = read_task(tube, task_id_of(key), record)
            view = task.view(self._body(number, task.id) if task.body is None else task.body)
            tasks.append(view)
            content_bytes += view.content_bytes
            if len(tasks) >= tasks_max or content_bytes >= bytes_max:
                return StoredPart(tasks, view.id, is_last=view.id >= last_id)
        return StoredPart(tasks, last_id, is_last=True)

    def _body(self, number: int, task_id: int) -> bytes:
        """Return a body that is stored apart from its record."""
        body = self._store.get(body_key(number, task_id))
        assert body is not None, f"task {task_id} of tube {number} has no body"
        return body
