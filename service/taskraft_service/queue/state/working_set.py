"""Hold the tasks that are in memory, and read other tasks from the store.

Memory holds taken tasks, tasks that were not written yet, and the next READY tasks; other tasks are
in the store only. Callers get a task in the same way in both cases.

Reading one stored task alone costs more than the rest of a take. A take that needs a stored task
therefore reads the following tasks as well, and tasks of the tubes in use are prefetched after each
batch of writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from operator import attrgetter
from typing import Final

from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.task_codec import read_task
from taskraft_service.queue.entities.task_state import GONE
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.store.keys import body_key, task_id_of, task_key
from taskraft_service.queue.store.store import Store

SCANNED_MIN: Final = 8
"""Minimum number of neighbouring ids that one scan reads, because opening a scan is slow."""
NEIGHBOUR_MAX: Final = 2
"""Maximum distance of two neighbouring ids, because a scan also reads all records between the
ids."""

SMALL_PAYLOAD_BYTES_MAX: Final = 16 * 1024
"""Maximum payload of a task whose content the answers of waiting calls have. Such a call names many
tasks, and keeps those that have ended until its answer."""

_tube_of: Final = attrgetter("tube")


def by_tube(tasks: Sequence[QueueTask]) -> Iterable[tuple[QueueTube, Sequence[QueueTask]]]:
    """Split tasks into runs of the same tube."""
    first = tasks[0].tube
    for task in tasks:  # a loop is twice as fast as ``all`` with a generator
        if task.tube is not first:
            return [(tube, list(run)) for tube, run in groupby(tasks, _tube_of)]
    return ((first, tasks),)


class WorkingSet:
    """The tasks in memory, and the tasks that differ from the store."""

    def __init__(self, store: Store, sessions: Mapping[int, QueueSession]) -> None:
        """Start empty; ``store`` has the tasks, ``sessions`` the sessions by number."""
        self.store = store
        self._sessions = sessions
        self.dirty_tasks: list[QueueTask] = []
        """Tasks that differ from their stored records."""
        self.collected_tasks: list[QueueTask] = []
        """Tasks whose changes are collected, and that stay in memory until the store has them. No
        entry is applied meanwhile."""
        self.fresh_tasks = 0
        """Number of these tasks that were put and not taken since the last batch of writes; a few
        may have ended.
        """
        self.resident_bytes = 0
        """Bytes of task content in memory."""
        self.retired: deque[QueueTube] = deque()
        """Truncated and dropped tubes that may have tasks in memory; not part of the replicated
        state."""

    def find(self, tube: QueueTube, task_id: int) -> QueueTask | None:
        """Return a task or None; reads the store if the task is not in memory."""
        task = tube.tasks.get(task_id)
        if task is not None:
            return None if task.state is GONE else task
        if not 0 < task_id < tube.next_id:
            return None
        record = self.store.get(task_key(tube.number, task_id))
        if record is None:
            return None
        return self.read(tube, task_id, record)

    def bring(self, tube: QueueTube, task_id: int) -> QueueTask:
        """Return an existing task, and keep it in memory because it will be needed soon."""
        task = tube.tasks.get(task_id)
        if task is None:
            task = self.find(tube, task_id)
            assert task is not None, f"tube {tube.number} has no task {task_id}"
            tube.tasks[task_id] = task
            self.resident_bytes += len(task.body or b"")
        return task

    def bring_all(self, tube: QueueTube, ids: Iterable[int]) -> None:
        """Load existing tasks into memory, with as few reads of the store as possible."""
        tasks, read = tube.tasks, self.read
        # Sorting is cheap, because the ids are mostly in order already.
        missing = sorted(set(ids).difference(tasks))
        resident_bytes = 0
        for task_id, record in _records(self.store, tube, missing):
            task = tasks[task_id] = read(tube, task_id, record)
            if task.body is not None:
                resident_bytes += len(task.body)
        self.resident_bytes += resident_bytes

    def read(self, tube: QueueTube, task_id: int, record: bytes) -> QueueTask:
        """Decode the task of a record, without keeping the task in memory."""
        task, session_number = read_task(tube, task_id, record)
        if session_number:
            task.session = self._sessions.get(session_number)
        return task

    def body(self, task: QueueTask) -> bytes:
        """Return the content of a task; reads the store if the content is not in memory."""
        if task.body is not None:
            return task.body
        body = self.store.get(body_key(task.tube.number, task.id))
        assert body is not None, f"task {task.id} of tube {task.tube.number} has no content"
        return body

    def small_body(self, task: QueueTask) -> bytes:
        """Return the content of a task, or nothing if the payload is large."""
        return self.body(task) if task.payload_bytes <= SMALL_PAYLOAD_BYTES_MAX else b""

    def tasks(self, tube: QueueTube, after_id: int = 0) -> Iterator[QueueTask]:
        """Yield the tasks of a tube in order of their ids.

        The tube must not change during the iteration.
        """
        changed = deque(task_id for task_id in self._changed(tube) if task_id > after_id)
        first, stop = task_key(tube.number, after_id + 1), task_key(tube.number + 1, 0)
        for key, record in self.store.scan(first, stop):
            task_id = task_id_of(key)
            while changed and changed[0] < task_id:
                yield from self._living(tube, changed.popleft())
            if changed and changed[0] == task_id:
                changed.popleft()
            yield from self._living(tube, task_id, record)
        for task_id in changed:
            yield from self._living(tube, task_id)

    def tasks_back(self, tube: QueueTube, last_id: int) -> Iterator[QueueTask]:
        """Yield the tasks of a tube up to an id, in descending order of ids.

        The tube must not change during the iteration.
        """
        changed = [task_id for task_id in self._changed(tube) if task_id <= last_id]
        first, stop = task_key(tube.number, 0), task_key(tube.number, last_id + 1)
        for key, record in self.store.scan_back(first, stop):
            task_id = task_id_of(key)
            while changed and changed[-1] > task_id:
                yield from self._living(tube, changed.pop())
            if changed and changed[-1] == task_id:
                changed.pop()
            yield from self._living(tube, task_id, record)
        for task_id in reversed(changed):
            yield from self._living(tube, task_id)

    def _changed(self, tube: QueueTube) -> Sequence[int]:
        """Return the ids of the tasks of a tube that differ from their stored records, in order."""
        changed = chain(self.collected_tasks, self.dirty_tasks)
        return sorted(task.id for task in changed if task.tube is tube)

    def _living(
        self, tube: QueueTube, task_id: int, record: bytes | None = None
    ) -> Iterator[QueueTask]:
        """Yield a task unless it is gone; ``record``: its stored record."""
        task = tube.tasks.get(task_id)
        if task is not None:
            if task.state is not GONE:
                yield task
        elif record is not None:
            yield self.read(tube, task_id, record)

    def evict(self, task: QueueTask) -> None:
        """Remove a task from memory; the store must have its current state."""
        assert not task.dirty
        del task.tube.tasks[task.id]
        if task.body is not None:
            self.resident_bytes -= len(task.body)

    def evict_retired(self, tasks_max: int) -> None:
        """Evict up to ``tasks_max`` tasks of truncated and dropped tubes.

        A task that differs from its stored record stays until the next batch of writes.
        """
        for _ in range(tasks_max):
            if not self.retired:
                return
            tube = self.retired[0]
            if not tube.tasks:
                self.retired.popleft()
                continue
            task_id, task = tube.tasks.popitem()
            if task.dirty:
                tube.tasks[task_id] = task
                self.retired.rotate(-1)
            elif task.body is not None:
                self.resident_bytes -= len(task.body)

    def touch_task(self, task: QueueTask) -> None:
        """Record that a task differs from its stored record."""
        if not task.dirty:
            task.dirty = True
            self.dirty_tasks.append(task)
            tube = task.tube
            if task.id not in tube.tasks:
                tube.tasks[task.id] = task
                self.resident_bytes += len(task.body or b"")


def _records(store: Store, tube: QueueTube, ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the records of ascending ids; scan neighbouring ids, which takes half the time."""
    number = tube.number
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
    """Split ascending ids into runs of neighbouring ids."""
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
