"""Calls that wait for the outcome of tasks, on the leader only.

The waits are not replicated: when this node loses leadership, the waiting calls are forwarded to
the new leader. For a task that has already ended, the call is answered at once while the task's
record is kept. Without a record, the task is reported as unknown.

An applied entry changes what is known of each task once. The calls that wait for the task are told
afterwards, at most ``TOLD_AT_ONCE`` of them in one turn of the event loop, in order. A tube that is
dropped or truncated can have very many tasks, so its tasks are noted in slices too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from taskraft_service.leader.command_submitter import NotProposed
from taskraft_service.leader.expected_outcomes import ExpectedOutcomes, ExpectingPut
from taskraft_service.leader.waited_tasks import (
    AwaitedTask,
    OutcomeQuery,
    OutcomeWait,
    TaskKey,
    WaitedContent,
    WaitedTasks,
)
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.sliced_calls import SlicedCalls
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.watch import TaskWatch, WatchNote, with_outcome
from taskraft_service.turns import next_turn

TOLD_AT_ONCE: Final = 1_000
"""Maximum number of waiting calls that are told, about one task each, in one turn of the event
loop."""

ABANDONED_AT_ONCE: Final = 2
"""Maximum number of waits, each for up to 1 000 tasks, that a turn of the event loop ends after
their calls were cancelled or redirected."""
OPEN_AT_ONCE: Final = 20
"""Number of open tasks up to which such a wait ends at once."""
VIEWED_AT_ONCE: Final = 200
"""Number of open tasks after which a wait that ends looks at the others in its next turn; 200 take
about 2 ms."""
EMPTIED_AT_ONCE: Final = 200
"""Maximum number of tasks of dropped and truncated tubes that are noted in one turn of the event
loop; each may be read from the store."""
_FINISHED: Final = (State.DONE, State.ZOMBIE)


class OutcomeWaits:
    """All calls of this node that wait for outcomes.

    Args:
        queues: the queues of this node.
    """

    def __init__(self, queues: QueueLocator) -> None:
        self._queues = queues
        self._awaited: dict[TaskKey, list[AwaitedTask]] = {}
        self._calls: dict[OutcomeWait, None] = {}
        self._expected = ExpectedOutcomes(queues)
        self._untold: SlicedCalls[OutcomeWait] = SlicedCalls(TOLD_AT_ONCE)
        self._emptied: SlicedCalls[int] = SlicedCalls(EMPTIED_AT_ONCE)
        self._abandoned: SlicedCalls[OutcomeWait] = SlicedCalls(ABANDONED_AT_ONCE)
        self.tasks: Final = WaitedTasks()
        """The number of tasks for which calls wait."""
        self.content: Final = WaitedContent()
        """The content of the outcomes that waiting calls keep, in bytes."""

    def __len__(self) -> int:
        return len(self.tasks)

    # ------------------------------------------------------------------------------ callers

    def begin(self, query: OutcomeQuery, put: ExpectingPut | None = None) -> OutcomeWait:
        """Look up the tasks, and register a wait for the open tasks; then call ``finish``.

        Args:
            query: the tasks.
            put: the put that has created the tasks; None: they are older.
        """
        future = asyncio.get_running_loop().create_future()
        wait = OutcomeWait(query, future, self.content)
        queue = self._queues.queue_of(query.tube)
        number = queue.tube_number(query.tube)
        early = put.ended if put is not None else {}
        views = queue.get_tasks(query.tube, query.ids, large=False)
        for task_id, found in zip(query.ids, views, strict=True):
            view = found or early.get(task_id) or queue.failed_task(query.tube, task_id)
            if view is None:
                created_in = None if put is None else put.number
                if created_in is not None and self._is_in_cleanup(created_in, task_id):
                    self._attach(wait, (created_in, task_id), task_id)
                continue
            ended = _as_ended(view)
            if ended is not None:
                wait.learn(task_id, ended)
            elif number is not None:
                self._attach(wait, (number, task_id), task_id)
        self.tasks.add(len(wait.open), query.principal)
        return wait

    async def finish(self, wait: OutcomeWait, patience: float) -> list[TaskView | None]:
        """Wait, and return each task with its outcome; None for an unknown task.

        Outcomes beyond ``CONTENT_BYTES_MAX`` of content, or beyond the maximum of all waits, have
        no content; the size of their contents is in ``wait.dropped_bytes``. From now on, the caller
        counts the contents.

        A task that has not ended after ``patience`` seconds has the outcome TIMEOUT. A task that
        has not ended when another task ended the wait has no outcome.

        Raises:
            NotProposed: this node lost leadership.
        """
        in_time = True
        self._calls[wait] = None
        try:
            if not wait.is_over():
                done, _ = await asyncio.wait((wait.future,), timeout=patience)
                in_time = bool(done)
                if done:
                    wait.future.result()
            if len(wait.query.ids) > 1:
                await next_turn()  # one event, or one instant, can end the waits of many calls
            late = TaskOutcome.NONE if in_time else TaskOutcome.TIMEOUT
            now = await self._open_tasks(wait, late)
        except BaseException:
            if len(wait.open) > OPEN_AT_ONCE:
                self._abandoned.add(self._detach, (wait,))
            else:
                self._detach(wait)
            raise
        finally:
            del self._calls[wait]
            wait.future.cancel()
            wait.stop_counting()
        self._detach(wait)
        now |= wait.known
        return [now.get(task_id) for task_id in wait.query.ids]

    @contextmanager
    def expecting(self, tube: str, tasks: int = 0, principal: str = "") -> Iterator[ExpectingPut]:
        """Keep outcomes of tasks that are put into a tube within the context, for ``begin``.

        Args:
            tube: name of the tube.
            tasks: the number of tasks for which the call will wait; counted within the context.
            principal: the principal of the caller.
        """
        put = ExpectingPut(self._expected, tube)
        with self.tasks.reserved(tasks, principal):
            try:
                yield put
            finally:
                put.end_attempt()

    def redirect_all(self) -> None:
        """Fail every waiting call with NotProposed, so that it is forwarded to the new leader.

        A call whose tasks have all ended is told the outcomes first.
        """
        self._untold.add(_redirect, list(self._calls))

    # ------------------------------------------------------------------------------ waits

    def _watch(self, key: TaskKey) -> TaskWatch:
        """Return the object that records the outcomes of a tube's tasks."""
        return self._queues.queue_of_number(key[0]).watch

    def _is_in_cleanup(self, number: int, task_id: int) -> bool:
        """Return whether a task of a dropped or truncated tube will be removed by a later entry."""
        queue = self._queues.queue_of_number(number)
        return queue.task_in_cleanup(number, task_id) is not None

    def _attach(self, wait: OutcomeWait, key: TaskKey, task_id: int) -> None:
        progress = wait.query.progress
        known = self._awaited.get(key, ())
        awaited = next((one for one in known if one.progress == progress), None)
        if awaited is None:
            awaited = AwaitedTask(key, progress)
            self._register(awaited)
        awaited.waits[wait] = None
        wait.open.setdefault(awaited, task_id)

    def _detach(self, wait: OutcomeWait) -> None:
        """End a wait for its open tasks; tell the wait the outcomes that are known by now."""
        for awaited in list(wait.open):
            if awaited.is_over:
                self._tell(awaited, wait)
                continue
            del awaited.waits[wait]
            if not awaited.waits:
                self._unregister(awaited)
        self.tasks.add(-len(wait.open), wait.query.principal)

    def _register(self, awaited: AwaitedTask) -> None:
        self._awaited.setdefault(awaited.key, []).append(awaited)
        self._watch(awaited.key).add(*awaited.key)

    def _unregister(self, awaited: AwaitedTask) -> None:
        key = awaited.key
        self._awaited[key].remove(awaited)
        if not self._awaited[key]:
            del self._awaited[key]
            self._watch(key).discard(*key)

    async def _open_tasks(self, wait: OutcomeWait, late: TaskOutcome) -> dict[int, TaskView]:
        """Return the open tasks in their current state with the outcome ``late``, in turns.

        A task that ends meanwhile is known to the wait afterwards.
        """
        now: dict[int, TaskView] = {}
        for count, (awaited, task_id) in enumerate(list(wait.open.items()), 1):
            number, current_id = awaited.key
            queue = self._queues.queue_of_number(number)
            tube = queue.tube_name(number)
            (view,) = queue.get_tasks(tube, [current_id], large=False) if tube else (None,)
            if view is not None:
                now[task_id] = with_outcome(view, late)
            if count % VIEWED_AT_ONCE == 0:
                await next_turn()
        return now

    # ------------------------------------------------------------------------------ the queue

    def applied(self, _now_ms: int) -> None:
        """Note new outcomes for the waiting calls; called after each slice of applied entries."""
        for queue in self._queues.all:
            for note in queue.watch.fetch():
                self._note(note)
            for number in queue.watch.fetch_emptied():
                tell = partial(self._note_emptied, queue, number)
                self._emptied.add(tell, queue.watch.unwatch_each(number))

    def _note_emptied(self, queue: Queue, number: int, task_id: int) -> None:
        """Note that a task loses its tube; an entry that has removed the task has told so."""
        view = queue.task_in_cleanup(number, task_id)
        if view is not None:
            deleted = TaskOutcome.DELETED
            self._note(WatchNote(number, with_outcome(view, deleted), deleted))

    def _note(self, note: WatchNote) -> None:
        is_progress = note.moved_to is None and note.outcome is TaskOutcome.NONE
        self._expected.add(note)
        for awaited in list(self._awaited.get((note.tube, note.task.id), ())):
            if is_progress and not awaited.progress:
                continue
            self._unregister(awaited)
            if note.moved_to is None:
                self._end(awaited, note.task)
            else:
                self._follow(awaited, *note.moved_to)

    def _follow(self, awaited: AwaitedTask, tube: str, moved_id: int) -> None:
        """Continue the waits with the task that replaced a moved task."""
        queue = self._queues.queue_of(tube)
        number = queue.tube_number(tube)
        (view,) = queue.get_tasks(tube, [moved_id], large=False)
        ended = _as_ended(view) if view is not None else None
        if ended is None and view is not None and number is not None:
            awaited.key = (number, moved_id)
            self._register(awaited)
        else:
            self._end(awaited, ended)

    def _end(self, awaited: AwaitedTask, outcome: TaskView | None) -> None:
        """Set the outcome of a task that has ended or is unknown; the calls are told later."""
        awaited.is_over, awaited.outcome = True, outcome
        self._untold.add(partial(self._tell, awaited), awaited.waits)

    def _tell(self, awaited: AwaitedTask, wait: OutcomeWait) -> None:
        """Tell a call that a task has ended, unless the call is over or was told already."""
        task_id = wait.open.pop(awaited, None)
        if task_id is None:
            return
        self.tasks.add(-1, wait.query.principal)
        if awaited.outcome is not None:
            wait.learn(task_id, awaited.outcome)
        if wait.is_over() and not wait.future.done():
            wait.future.set_result(None)


def _redirect(wait: OutcomeWait) -> None:
    if not wait.future.done():
        wait.future.set_exception(NotProposed("this node lost leadership"))


def _as_ended(view: TaskView) -> TaskView | None:
    """Return the task with its outcome if it has ended or is buried, otherwise None."""
    if view.state is State.BURIED:
        return replace(view, extras=replace(view.extras, outcome=TaskOutcome.BURIED_OUT))
    if view.state in _FINISHED or view.extras.outcome is not TaskOutcome.NONE:
        return view
    return None
