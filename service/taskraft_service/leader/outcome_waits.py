"""Calls that wait for the outcome of tasks, on the leader only.

The waits are not replicated: when this node loses leadership, the waiting calls are forwarded to
the new leader. For a task that has already ended, the call is answered at once while the task's
record is kept. Without a record, the task is reported as unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from taskraft_service.leader.command_submitter import LeaderOverloaded, NotProposed
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.state.watch import TaskWatch, WatchNote

WAITED_TASKS_MAX: Final = 1_000_000
"""Maximum number of awaited tasks on this node; a task counts once per waiting call."""

TaskKey: TypeAlias = tuple[int, int]
"""Tube number and task id."""

_FINISHED: Final = (State.DONE, State.ZOMBIE)


@dataclass(slots=True, frozen=True)
class OutcomeQuery:
    """The tasks of a tube that a caller waits for.

    Args:
        tube: name of the tube.
        ids: task ids.
        any_of_them: the first outcome ends the wait, instead of the last.
        progress: a progress report of a task ends the wait for that task too.
    """

    tube: str
    ids: Sequence[int]
    any_of_them: bool = False
    progress: bool = False


@dataclass(slots=True, eq=False)
class OutcomeWait:
    """One waiting call: the known outcomes, and the tasks for which it still waits.

    ``open`` maps the current key of each task to the id that the caller asked for; a move to
    another tube changes the key.
    """

    query: OutcomeQuery
    future: asyncio.Future[None]
    known: dict[int, TaskView] = field(default_factory=dict)
    open: dict[TaskKey, int] = field(default_factory=dict)

    def is_over(self) -> bool:
        """Return whether the wait has its result."""
        return not self.open or (self.query.any_of_them and bool(self.known))


@dataclass(slots=True, eq=False)
class ExpectedOutcomes:
    """Outcomes of tasks that end while the put that creates them is in flight.

    The ids of these tasks are known only when the put is applied.
    """

    key: TaskKey
    ended: dict[int, TaskView] = field(default_factory=dict)


class OutcomeWaits:
    """All calls of this node that wait for outcomes.

    Args:
        queues: the queues of this node.
    """

    def __init__(self, queues: QueueLocator) -> None:
        self._queues = queues
        self._waits: dict[TaskKey, dict[OutcomeWait, None]] = {}
        self._expectations: dict[ExpectedOutcomes, None] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    # ------------------------------------------------------------------------------ callers

    def check_limit(self, tasks: int) -> None:
        """Check that calls may wait for ``tasks`` more tasks, before the call has any effect.

        Raises:
            LeaderOverloaded: calls already wait for too many tasks.
        """
        if self._count + tasks > WAITED_TASKS_MAX:
            raise LeaderOverloaded(f"calls already wait for {self._count} tasks; retry later")

    def begin(
        self, query: OutcomeQuery, expectation: ExpectedOutcomes | None = None
    ) -> OutcomeWait:
        """Look up the tasks, and register a wait for the open tasks; then call ``finish``."""
        wait = OutcomeWait(query, asyncio.get_running_loop().create_future())
        queue = self._queues.queue_of(query.tube)
        number = queue.tube_number(query.tube)
        early = expectation.ended if expectation is not None else {}
        views = queue.get_tasks(query.tube, query.ids)
        for task_id, found in zip(query.ids, views, strict=True):
            view = found or early.get(task_id) or queue.failed_task(query.tube, task_id)
            if view is None:
                continue
            ended = _as_ended(view)
            if ended is not None:
                wait.known[task_id] = ended
            elif number is not None:
                self._attach(wait, (number, task_id), task_id)
        return wait

    async def finish(self, wait: OutcomeWait, patience: float) -> list[TaskView | None]:
        """Wait, and return each task with its outcome; None for an unknown task.

        A task that has not ended after ``patience`` seconds has the outcome TIMEOUT. A task that
        has not ended when another task ended the wait has no outcome.

        Raises:
            NotProposed: this node lost leadership.
        """
        in_time = True
        try:
            if not wait.is_over():
                done, _ = await asyncio.wait((wait.future,), timeout=patience)
                in_time = bool(done)
                if done:
                    wait.future.result()
        finally:
            wait.future.cancel()
            for key in wait.open:
                self._detach(wait, key)
        return self._answer(wait, TaskOutcome.NONE if in_time else TaskOutcome.TIMEOUT)

    @contextmanager
    def expecting(self, tube: str) -> Iterator[ExpectedOutcomes | None]:
        """Record outcomes of tasks that are put into a tube within the context, for ``begin``."""
        key = self._queues.queue_of(tube).next_place(tube)
        if key is None:
            yield None
            return
        expectation = ExpectedOutcomes(key)
        self._expectations[expectation] = None
        self._watch(key).add_floor(*key)
        try:
            yield expectation
        finally:
            self._watch(key).discard_floor(*key)
            del self._expectations[expectation]

    def redirect_all(self) -> None:
        """Fail every waiting call with NotProposed, so that it is forwarded to the new leader."""
        for waits in list(self._waits.values()):
            for wait in waits:
                if not wait.future.done():
                    wait.future.set_exception(NotProposed("this node lost leadership"))

    # ------------------------------------------------------------------------------ waits

    def _watch(self, key: TaskKey) -> TaskWatch:
        """Return the object that records the outcomes of a tube's tasks."""
        return self._queues.queue_of_number(key[0]).watch

    def _attach(self, wait: OutcomeWait, key: TaskKey, task_id: int) -> None:
        if key in wait.open:
            return
        wait.open[key] = task_id
        self._waits.setdefault(key, {})[wait] = None
        self._count += 1
        self._watch(key).add(*key)

    def _detach(self, wait: OutcomeWait, key: TaskKey) -> None:
        self._count -= 1
        waits = self._waits[key]
        del waits[wait]
        if not waits:
            del self._waits[key]
            self._watch(key).discard(*key)

    def _answer(self, wait: OutcomeWait, late: TaskOutcome) -> list[TaskView | None]:
        """Return the tasks in the order of the query; open tasks in their current state."""
        now: dict[int, TaskView] = {}
        for (number, current_id), task_id in wait.open.items():
            queue = self._queues.queue_of_number(number)
            tube = queue.tube_name(number)
            view = queue.get_tasks(tube, [current_id])[0] if tube is not None else None
            if view is not None:
                now[task_id] = replace(view, extras=replace(view.extras, outcome=late))
        now |= wait.known
        return [now.get(task_id) for task_id in wait.query.ids]

    # ------------------------------------------------------------------------------ the queue

    def applied(self, _now_ms: int) -> None:
        """Pass new outcomes to the waiting calls; called after each slice of applied entries."""
        for queue in self._queues.all:
            for note in queue.watch.fetch():
                self._note(note)

    def _note(self, note: WatchNote) -> None:
        key = (note.tube, note.task.id)
        for expectation in self._expectations:
            if note.outcome is not TaskOutcome.NONE and note.tube == expectation.key[0]:
                expectation.ended[note.task.id] = note.task
        for wait in list(self._waits.get(key, ())):
            self._tell(wait, key, note)

    def _tell(self, wait: OutcomeWait, key: TaskKey, note: WatchNote) -> None:
        if note.moved_to is None and note.outcome is TaskOutcome.NONE and not wait.query.progress:
            return
        task_id = wait.open.pop(key)
        self._detach(wait, key)
        if note.moved_to is None:
            wait.known[task_id] = note.task
        else:
            self._follow(wait, task_id, *note.moved_to)
        if wait.is_over() and not wait.future.done():
            wait.future.set_result(None)

    def _follow(self, wait: OutcomeWait, task_id: int, tube: str, moved_id: int) -> None:
        """Continue the wait with the task that replaced a moved task."""
        queue = self._queues.queue_of(tube)
        number = queue.tube_number(tube)
        (view,) = queue.get_tasks(tube, [moved_id])
        ended = _as_ended(view) if view is not None else None
        if ended is not None:
            wait.known[task_id] = ended
        elif view is not None and number is not None:
            self._attach(wait, (number, moved_id), task_id)


def _as_ended(view: TaskView) -> TaskView | None:
    """Return the task with its outcome if it has ended or is buried, otherwise None."""
    if view.state is State.BURIED:
        return replace(view, extras=replace(view.extras, outcome=TaskOutcome.BURIED_OUT))
    if view.state in _FINISHED or view.extras.outcome is not TaskOutcome.NONE:
        return view
    return None
