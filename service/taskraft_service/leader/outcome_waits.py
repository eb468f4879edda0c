"""Let callers wait for what becomes of tasks, on the leader only.

Nothing of this is replicated: when this node leads no more, everybody who waits is told so, and
asks the next leader. A task that has ended answers at once as long as it is kept; one that ended
and is gone is not known any more, and that is what its caller hears.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from taskraft_service.leader.proposal import LeaderOverloaded, NotProposed
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.task_view import State, TaskOutcome, TaskView
from taskraft_service.queue.state.watch import TaskWatch, WatchNote

WAITED_TASKS_MAX: Final = 1_000_000
"""Tasks that calls of this node wait for, each counted as often as it is waited for."""

TaskKey: TypeAlias = tuple[int, int]
"""Number of a tube, and id of a task in it."""

_FINISHED: Final = (State.DONE, State.ZOMBIE)


@dataclass(slots=True, frozen=True)
class OutcomeQuery:
    """What a caller waits for: the tasks of a tube; one of them or all; also their progress."""

    tube: str
    ids: Sequence[int]
    any_of_them: bool = False
    progress: bool = False


@dataclass(slots=True, eq=False)
class OutcomeWait:
    """One call that waits: what it knows already, and which tasks it still waits for.

    ``open`` has, by place of the task as it is now, the id that the caller asked for.
    """

    wish: OutcomeQuery
    future: asyncio.Future[None]
    known: dict[int, TaskView] = field(default_factory=dict)
    open: dict[TaskKey, int] = field(default_factory=dict)

    def is_over(self) -> bool:
        """Tell whether the caller has what it waits for."""
        return not self.open or (self.wish.any_of_them and bool(self.known))


@dataclass(slots=True, eq=False)
class ExpectedOutcomes:
    """What became meanwhile of tasks that a put makes: their ids are known only when it is done."""

    place: TaskKey
    ended: dict[int, TaskView] = field(default_factory=dict)


class OutcomeWaits:
    """The calls that wait for outcomes.

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
        """Refuse a call that would wait for so many tasks more, before it has an effect.

        Raises:
            Overloaded: too many are waited for already.
        """
        if self._count + tasks > WAITED_TASKS_MAX:
            raise LeaderOverloaded(f"{self._count} tasks are waited for already")

    def begin(self, wish: OutcomeQuery, expectation: ExpectedOutcomes | None = None) -> OutcomeWait:
        """Look at tasks as they are, and wait for those that have not ended; then ``finish``."""
        wait = OutcomeWait(wish, asyncio.get_running_loop().create_future())
        queue = self._queues.queue_of(wish.tube)
        number = queue.tube_number(wish.tube)
        early = expectation.ended if expectation is not None else {}
        views = queue.get_tasks(wish.tube, wish.ids)
        for task_id, found in zip(wish.ids, views, strict=True):
            view = found or early.get(task_id) or queue.failed_task(wish.tube, task_id)
            if view is None:
                continue
            ended = _as_ended(view)
            if ended is not None:
                wait.known[task_id] = ended
            elif number is not None:
                self._attach(wait, (number, task_id), task_id)
        return wait

    async def finish(self, wait: OutcomeWait, patience: float) -> list[TaskView | None]:
        """Return each task as it ended or as it is, None where it is not known.

        A task that has not ended when ``patience`` (seconds) is over has the outcome TIMEOUT; one
        that has not ended when another was enough has none.

        Raises:
            NotProposed: this node leads no more.
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
            for place in wait.open:
                self._detach(wait, place)
        return self._answer(wait, TaskOutcome.NONE if in_time else TaskOutcome.TIMEOUT)

    @contextmanager
    def expecting(self, tube: str) -> Iterator[ExpectedOutcomes | None]:
        """Remember what becomes of tasks that are put into a tube meanwhile, for a ``begin``."""
        place = self._queues.queue_of(tube).next_place(tube)
        if place is None:
            yield None
            return
        expectation = ExpectedOutcomes(place)
        self._expectations[expectation] = None
        self._watch(place).add_floor(*place)
        try:
            yield expectation
        finally:
            self._watch(place).discard_floor(*place)
            del self._expectations[expectation]

    def redirect_all(self) -> None:
        """Send everybody who waits to the next leader."""
        for waits in list(self._waits.values()):
            for wait in waits:
                if not wait.future.done():
                    wait.future.set_exception(NotProposed("leadership was lost"))

    # ------------------------------------------------------------------------------ waits

    def _watch(self, place: TaskKey) -> TaskWatch:
        """Return who notes what becomes of the tasks of a tube."""
        return self._queues.queue_of_number(place[0]).watch

    def _attach(self, wait: OutcomeWait, place: TaskKey, task_id: int) -> None:
        if place in wait.open:
            return
        wait.open[place] = task_id
        self._waits.setdefault(place, {})[wait] = None
        self._count += 1
        self._watch(place).add(*place)

    def _detach(self, wait: OutcomeWait, place: TaskKey) -> None:
        self._count -= 1
        waits = self._waits[place]
        del waits[wait]
        if not waits:
            del self._waits[place]
            self._watch(place).discard(*place)

    def _answer(self, wait: OutcomeWait, late: TaskOutcome) -> list[TaskView | None]:
        """Return the tasks in order of the wish; the open ones as they are now."""
        now: dict[int, TaskView] = {}
        for (number, current_id), task_id in wait.open.items():
            queue = self._queues.queue_of_number(number)
            tube = queue.tube_name(number)
            view = queue.get_tasks(tube, [current_id])[0] if tube is not None else None
            if view is not None:
                now[task_id] = replace(view, extras=replace(view.extras, outcome=late))
        now |= wait.known
        return [now.get(task_id) for task_id in wait.wish.ids]

    # ------------------------------------------------------------------------------ the queue

    def applied(self, _now_ms: int) -> None:
        """Tell callers what happened; called after each slice of applied entries."""
        for queue in self._queues.all:
            for note in queue.watch.fetch():
                self._note(note)

    def _note(self, note: WatchNote) -> None:
        place = (note.tube, note.task.id)
        for expectation in self._expectations:
            if note.outcome is not TaskOutcome.NONE and note.tube == expectation.place[0]:
                expectation.ended[note.task.id] = note.task
        for wait in list(self._waits.get(place, ())):
            self._tell(wait, place, note)

    def _tell(self, wait: OutcomeWait, place: TaskKey, note: WatchNote) -> None:
        if note.moved_to is None and note.outcome is TaskOutcome.NONE and not wait.wish.progress:
            return
        task_id = wait.open.pop(place)
        self._detach(wait, place)
        if note.moved_to is None:
            wait.known[task_id] = note.task
        else:
            self._follow(wait, task_id, *note.moved_to)
        if wait.is_over() and not wait.future.done():
            wait.future.set_result(None)

    def _follow(self, wait: OutcomeWait, task_id: int, tube: str, moved_id: int) -> None:
        """Wait for the task that a task has become."""
        queue = self._queues.queue_of(tube)
        number = queue.tube_number(tube)
        (view,) = queue.get_tasks(tube, [moved_id])
        ended = _as_ended(view) if view is not None else None
        if ended is not None:
            wait.known[task_id] = ended
        elif view is not None and number is not None:
            self._attach(wait, (number, moved_id), task_id)


def _as_ended(view: TaskView) -> TaskView | None:
    """Return a task with its outcome if it has ended or is buried, or None."""
    if view.state is State.BURIED:
        return replace(view, extras=replace(view.extras, outcome=TaskOutcome.BURIED_OUT))
    if view.state in _FINISHED or view.extras.outcome is not TaskOutcome.NONE:
        return view
    return None
