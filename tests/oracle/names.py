"""Map the ids of a service to the names of tasks and sessions in traces."""

from __future__ import annotations

from typing import Final

NEVER_GIVEN: Final = 2**62
"""An id that no service reaches."""


class Names:
    """``t1``, ``t2`` in order of the puts over all tubes; ``S1``, ``S2`` in order of appearance."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, int], str] = {}
        self._ids: dict[str, int] = {}
        self._sessions: dict[str, str] = {}

    def new_task(self, tube: str, task_id: int) -> str:
        """Name a new task; a task that has a name keeps it."""
        known = self._tasks.get((tube, task_id))
        if known is not None:
            return known
        name = f"t{len(self._ids) + 1}"
        self._tasks[tube, task_id] = name
        self._ids[name] = task_id
        return name

    def task(self, tube: str, task_id: int) -> str | None:
        """Return the name of a task, or None."""
        return self._tasks.get((tube, task_id))

    def id_of(self, name: str) -> int:
        """Return the id of a named task, or an unused id if the task was never put here."""
        return self._ids.get(name, NEVER_GIVEN)

    def forget_tube(self, tube: str) -> None:
        """Forget the tasks of a dropped tube; a new tube of the name numbers its tasks from 0."""
        for (owner, task_id), name in list(self._tasks.items()):
            if owner == tube:
                del self._tasks[owner, task_id]
                self._ids[name] = NEVER_GIVEN

    def session(self, session_id: str) -> str:
        """Return the name of a session; a new session gets the next name."""
        return self._sessions.setdefault(session_id, f"S{len(self._sessions) + 1}")

    def session_id(self, name: str) -> str:
        """Return the id of a named session."""
        return next(one for one, known in self._sessions.items() if known == name)

    def session_by_prefix(self, prefix: str) -> tuple[str, str] | None:
        """Return id and name of the session with an id prefix; other clients see the prefix."""
        for session_id, name in self._sessions.items():
            if prefix and session_id.startswith(prefix):
                return session_id, name
        return None
