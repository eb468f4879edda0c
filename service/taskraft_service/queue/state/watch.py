"""Record events of tasks and sessions for which calls on the leader wait.

The leader registers the tasks and sessions, and fetches the recorded events after each slice of
entries. Nothing here is replicated. While no call waits, each batch of tasks costs one lookup in an
empty dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.values import value


@value
class WatchNote:
    """A task ended, was buried, reported progress (outcome NONE), or was moved.

    ``tube`` is the number of the task's tube before the event. ``moved_to`` is the tube and id
    after a move.
    """

    tube: int
    task: TaskView
    outcome: TaskOutcome
    moved_to: tuple[str, int] | None = None


class _Watched:
    """Watched tasks of one tube: single ids and, during puts, all ids at or above a floor."""

    __slots__ = ("floors", "ids")

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.floors: list[int] = []
        """In ascending order, because the ids of a tube only grow."""

    def wants(self, task_id: int) -> bool:
        return task_id in self.ids or (bool(self.floors) and task_id >= self.floors[0])


class TaskWatch:
    """The watched tasks, by tube number.

    Args:
        body: returns the content of a task that its notes have.
    """

    __slots__ = ("_body", "_sessions", "emptied", "ended", "told", "tubes")

    def __init__(self, body: Callable[[QueueTask], bytes]) -> None:
        """Start without watched tasks."""
        self._body = body
        self.told: list[tuple[QueueTask, bytes, TaskOutcome, tuple[str, int] | None]] = []
        self.tubes: dict[int, _Watched] = {}
        self.emptied: list[int] = []
        self._sessions: set[str] = set()
        self.ended: list[tuple[str, bool]] = []

    # --------------------------------------------------------------------------- registration

    def add(self, tube: int, task_id: int) -> None:
        """Watch a task; does nothing if the task is watched already."""
        self.tubes.setdefault(tube, _Watched()).ids.add(task_id)

    def discard(self, tube: int, task_id: int) -> None:
        """Stop watching a task."""
        watched = self.tubes.get(tube)
        if watched is not None:
            watched.ids.discard(task_id)
            self._forget_idle(tube, watched)

    def add_floor(self, tube: int, first_id: int) -> None:
        """Watch all tasks with an id at or above a floor, for a put without known task ids."""
        self.tubes.setdefault(tube, _Watched()).floors.append(first_id)

    def discard_floor(self, tube: int, first_id: int) -> None:
        """Remove the floor that one call of ``add_floor`` added."""
        watched = self.tubes.get(tube)
        if watched is not None and first_id in watched.floors:
            watched.floors.remove(first_id)
            self._forget_idle(tube, watched)

    def _forget_idle(self, tube: int, watched: _Watched) -> None:
        if not watched.ids and not watched.floors:
            del self.tubes[tube]

    def add_session(self, session_id: str) -> None:
        """Watch for the end of a session; does nothing if the session is watched already."""
        self._sessions.add(session_id)

    # -------------------------------------------------------------------------------- notes

    def tell(self, task: QueueTask, outcome: TaskOutcome) -> None:
        """Record that a task has ended, was buried, or reported progress (outcome NONE)."""
        watched = self.tubes.get(task.tube.number)
        if watched is not None and watched.wants(task.id):
            self.told.append((task, self._body(task), outcome, None))

    def tell_moved(self, task: QueueTask, tube: str, task_id: int) -> None:
        """Record that a task was moved to another tube."""
        watched = self.tubes.get(task.tube.number)
        if watched is not None and watched.wants(task.id):
            self.told.append((task, self._body(task), TaskOutcome.NONE, (tube, task_id)))

    def tell_emptied(self, tube: int) -> None:
        """Record that a tube loses all its tasks; the tasks are removed in steps."""
        if tube in self.tubes:
            self.emptied.append(tube)

    def tell_session(self, session_id: str, *, uncounted: bool) -> None:
        """Record that a session ends; ``uncounted``: the attempts of its leases do not count."""
        if session_id in self._sessions:
            self._sessions.discard(session_id)
            self.ended.append((session_id, uncounted))

    def fetch_sessions(self) -> list[tuple[str, bool]]:
        """Return the sessions that ended since the last call, each with ``uncounted``."""
        ended, self.ended = self.ended, []
        return ended

    def fetch_emptied(self) -> list[int]:
        """Return the numbers of the watched tubes that lost all tasks since the last call."""
        emptied, self.emptied = self.emptied, []
        return emptied

    def unwatch_each(self, tube: int) -> Iterator[int]:
        """Yield the watched ids of a tube, in no order; each is not watched any more."""
        while (watched := self.tubes.get(tube)) is not None and watched.ids:
            task_id = watched.ids.pop()
            self._forget_idle(tube, watched)
            yield task_id

    def fetch(self) -> list[WatchNote]:
        """Return the events since the last call, in order, with the current state of the tasks."""
        if not self.told:
            return []
        told, self.told = self.told, []
        return [
            WatchNote(task.tube.number, with_outcome(task.view(body), outcome), outcome, moved_to)
            for task, body, outcome, moved_to in told
        ]


def with_outcome(view: TaskView, outcome: TaskOutcome) -> TaskView:
    """Return a task with an outcome; NONE changes nothing."""
    if outcome is TaskOutcome.NONE:
        return view
    return replace(view, extras=replace(view.extras, outcome=outcome))
