"""Answer like tarantool/queue 1.5.0, in the simplest possible way: the model of random traces.

The model covers the behaviour in the recorded traces (tests/oracle/test_model.py replays them). The
model scans lists instead of keeping indexes, and its clock moves only with the sleeps of a trace.
The model leaves out restarts, changes of role, session ttr, puts that wait for capacity, and the
peculiarities in docs/divergence.md. Tasks and sessions have the names of the traces ("t3", "S2").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.oracle.model_tubes import (
    FOREVER_SECONDS,
    KINDS,
    MILLISECONDS,
    SUBQUEUE_KINDS,
    TIMED_KINDS,
    Refusal,
    Task,
    Tube,
    exact,
    later,
    milliseconds,
    seconds_of,
    text_of,
)
from tests.oracle.trace import Json, Outcome


@dataclass(slots=True)
class Blocked:
    """A blocked take; its outcome is None while it waits."""

    by: str
    tube: str
    outcome: Json = None


class Model:
    """All tubes, connections and sessions, and the time since the start in milliseconds."""

    def __init__(self) -> None:
        self.now = 0
        self.tubes: dict[str, Tube] = {}
        self.connections: dict[str, str] = {}
        """Session of each connection."""
        self.blocked: dict[str, Blocked] = {}
        self.tasks: dict[str, tuple[str, Task]] = {}
        """Every task that ever existed, with its tube."""
        self._sessions = 0
        self._events: list[tuple[str, str | None, str | None]] = []
        self._woken: list[str] = []

    def play(
        self, by: str, operation: str, arguments: Mapping[str, Json], handle: str | None = None
    ) -> Outcome:
        """Execute a step; return its outcome with the events that it caused."""
        self._events = []
        do: Callable[..., Json] = getattr(self, f"_{operation}")
        given = {key: value for key, value in arguments.items() if key != "max_wait"}
        try:
            asked = do(by, **given) if handle is None else self._start(by, handle, **given)
            outcome = Outcome(asked)
        except Refusal as refusal:
            outcome = Outcome(error=str(refusal))
        self._let_woken_run()
        return Outcome(outcome.result, outcome.error, tuple(self._events))

    def is_busy(self, connection: str) -> bool:
        """Return whether a connection has a blocked call."""
        return any(one.by == connection and one.outcome is None for one in self.blocked.values())

    def is_stale(self, name: str) -> bool:
        """Return whether a later task has the id of this task."""
        tube, task = self.tasks[name]
        if tube not in self.tubes:
            return True
        return any(
            other.number == task.number and where == tube and other is not task
            for other_name, (where, other) in self.tasks.items()
            if int(other_name[1:]) > int(name[1:])
        )

    # ------------------------------------------------------------------------------ tubes

    def _create_tube(
        self, _by: str, tube: str, type: str, options: Mapping[str, Json] | None = None
    ) -> Json:
        options = options or {}
        if options.get("if_not_exists") and tube in self.tubes:
            return {"type": self.tubes[tube].kind}
        if type not in KINDS:
            raise Refusal("UNKNOWN_TUBE_TYPE")
        if tube in self.tubes:
            raise Refusal("TUBE_EXISTS")
        self.tubes[tube] = Tube(type, options)
        return {"type": type}

    def _drop(self, _by: str, tube: str) -> Json:
        found = self._tube(tube)
        if found.waiting:
            raise Refusal("TUBE_HAS_WAITERS")
        if any(task.state == "TAKEN" for task in found.tasks.values()):
            raise Refusal("TUBE_HAS_TAKEN_TASKS")
        del self.tubes[tube]
        return True

    def _truncate(self, _by: str, tube: str) -> Json:
        self._tube(tube).tasks.clear()

    def _tubes(self, _by: str) -> Json:
        return sorted(self.tubes)

    def _tube_exists(self, _by: str, tube: str) -> Json:
        return tube in self.tubes

    def _tube(self, name: str) -> Tube:
        if name not in self.tubes:
            raise Refusal("TUBE_NOT_FOUND")
        return self.tubes[name]

    # ------------------------------------------------------------------------------ tasks

    def _put(
        self, _by: str, tube: str, data: Json, options: Mapping[str, Json] | None = None
    ) -> Json:
        found, wished = self._tube(tube), options or {}
        timed = found.kind in TIMED_KINDS
        priority = wished.get("pri", found.options.get("pri", 0)) if timed else 0
        if not isinstance(priority, int) or priority < 0:
            raise Refusal("INVALID_ARGUMENT")
        capacity = found.options.get("capacity", 0) if found.kind == "limfifottl" else 0
        if capacity and len(found.tasks) >= capacity:
            return None
        tube_ttl = found.options.get("ttl", FOREVER_SECONDS)
        ttl_ms = milliseconds(wished.get("ttl", tube_ttl)) if timed else None
        tube_ttr = found.options.get("ttr", tube_ttl)
        ttr_ms = milliseconds(wished.get("ttr", tube_ttr)) if timed else None
        task = Task(
            f"t{len(self.tasks) + 1}", max(found.tasks, default=-1) + 1, data,
            text_of(wished.get("utube", "nil")), priority, self.now, ttl_ms, ttr_ms,
        )  # fmt: skip
        self.tasks[task.name] = tube, task
        found.tasks[task.number] = task
        self._wait(found, task, wished, "put")
        return task.answer()

    def _wait(self, tube: Tube, task: Task, options: Mapping[str, Json], event: str) -> None:
        """Make a task READY, or DELAYED if ``options`` have a delay, which is added to its TTL."""
        delay = options.get("delay", 0) if tube.kind in TIMED_KINDS else 0
        task.owner = None
        if delay > 0:
            delay_ms = round(delay * MILLISECONDS)
            task.state, task.due_at = "DELAYED", self.now + delay_ms
            task.ttl_ms = later(delay_ms, task.ttl_ms)
        else:
            task.state, task.due_at = "READY", task.ends_at
        self._tell(tube, task, event)

    def _take(self, by: str, tube: str, timeout: float = 0) -> Json:
        assert timeout == 0, "a waiting call has a handle"
        return self._take_first(by, self._tube(tube))

    def _take_first(self, by: str, tube: Tube) -> Json:
        task = tube.first("READY")
        if task is None:
            return None
        task.state, task.owner = "TAKEN", self.connections[by]
        lease_end = later(self.now, task.ttr_ms)
        ends = [lease_end] if tube.kind == "utubettl" else [lease_end, task.ends_at]
        task.due_at = min((end for end in ends if end is not None), default=None)
        self._tell(tube, task, "take")
        return task.answer()

    def _ack(self, by: str, tube: str, **which: Json) -> Json:
        found, task = self._owned(by, tube, which)
        self._end(found, task, "ack")
        return task.answer("DONE")

    def _release(
        self, by: str, tube: str, options: Mapping[str, Json] | None = None, **which: Json
    ) -> Json:
        found, task = self._owned(by, tube, which)
        self._wait(found, task, options or {}, "release")
        if task.state == "DELAYED":
            self._tell_neighbour(found, task)
        return task.answer()

    def _touch(self, by: str, tube: str, increment: float | None = None, **which: Json) -> Json:
        found = self._tube(tube)
        if increment is None or increment <= 0:
            return None
        _, task = self._owned(by, tube, which)
        if found.kind not in TIMED_KINDS:
            raise Refusal("UNSUPPORTED")
        more_ms = round(increment * MILLISECONDS)
        task.due_at = later(more_ms, task.due_at)
        task.ttl_ms = later(more_ms, task.ttl_ms)
        task.ttr_ms = later(more_ms, task.ttr_ms)
        self._tell(found, task, "touch")
        return task.answer()

    def _peek(self, _by: str, tube: str, **which: Json) -> Json:
        return self._present(tube, which)[1].answer()

    def _bury(self, _by: str, tube: str, **which: Json) -> Json:
        found, task = self._present(tube, which)
        if task.state != "BURIED":
            task.state, task.owner, task.due_at = "BURIED", None, task.ends_at
            self._tell(found, task, "bury")
            self._tell_neighbour(found, task)
        return task.answer()

    def _kick(self, _by: str, tube: str, count: int = 1) -> Json:
        found = self._tube(tube)
        for kicked in range(count):
            task = found.first("BURIED")
            if task is None:
                return kicked
            task.state = "READY"
            self._tell(found, task, "kick")
        return count

    def _delete(self, _by: str, tube: str, **which: Json) -> Json:
        found, task = self._present(tube, which)
        self._end(found, task, "delete")
        return task.answer("DONE")

    def _release_all(self, _by: str, tube: str) -> Json:
        self._release_where(self._tube(tube), lambda task: True)

    def _release_where(self, tube: Tube, wanted: Callable[[Task], bool]) -> None:
        for task in sorted(tube.tasks.values(), key=lambda task: task.number):
            if task.state == "TAKEN" and wanted(task):
                self._wait(tube, task, {}, "release")

    def _present(self, tube: str, which: Mapping[str, Json]) -> tuple[Tube, Task]:
        found, task = self._tube(tube), self._find(tube, which)
        if task is None:
            raise Refusal("NOT_FOUND")
        return found, task

    def _owned(self, by: str, tube: str, which: Mapping[str, Json]) -> tuple[Tube, Task]:
        found, task = self._tube(tube), self._find(tube, which)
        if task is None or task.owner != self.connections[by]:
            raise Refusal("NOT_TAKEN_BY_YOU")
        return found, task

    def _find(self, tube: str, which: Mapping[str, Json]) -> Task | None:
        if "id" in which:
            if type(which["id"]) is not int or which["id"] < 0:
                raise Refusal("INVALID_ARGUMENT")
            return self.tubes[tube].tasks.get(which["id"])
        task = self.tasks[which["task"]][1]
        return task if self.tubes[tube].tasks.get(task.number) is task else None

    def _end(self, tube: Tube, task: Task, call: str) -> None:
        """Remove a task.

        The event is always a deletion, for every operation.
        """
        was_taken = task.state == "TAKEN"
        del tube.tasks[task.number]
        task.owner = None
        tube.calls[call] += 1
        tube.done += 1
        self._events.append(("delete", task.name, "DONE"))
        if was_taken or tube.kind == "utube":
            self._tell_neighbour(tube, task)

    # ------------------------------------------------------------------------------ time

    def _clock(self, _by: str, **_beat: float) -> None:
        self.now = 0

    def _sleep(self, _by: str, until: float | None = None, seconds: float = 0) -> None:
        """Advance the time, and fire all deadlines on the way."""
        end = self.now + exact(seconds) if until is None else exact(until)
        while due := self._next_due(end):
            tube, task = due
            assert task.due_at is not None
            self.now = max(self.now, task.due_at)
            self._fire(tube, task)
            self._let_woken_run()
        self.now = end

    def _next_due(self, end: int) -> tuple[Tube, Task] | None:
        due = [
            (task.due_at, task.number, tube, task)
            for tube in self.tubes.values()
            for task in tube.tasks.values()
            if task.due_at is not None and task.due_at <= end
        ]
        return min(due, key=lambda one: one[:2])[2:] if due else None

    def _fire(self, tube: Tube, task: Task) -> None:
        if task.state == "DELAYED":
            self._wait(tube, task, {}, "delay")
            return
        if task.state == "TAKEN":
            self._wait(tube, task, {}, "ttr")
            if task.ends_at is None or task.ends_at > self.now:
                return
        self._end(tube, task, "delete")
        tube.calls["ttl"] += 1
        self._events.append(("ttl", task.name, "DONE"))

    # ------------------------------------------------------------------------------ waiting

    def _start(self, by: str, handle: str, tube: str, timeout: float) -> Json:
        """Start a take that waits until it gets a task or its connection ends."""
        assert timeout > 0
        self.blocked[handle] = Blocked(by, tube)
        self._try(handle)
        return {"pending": True}

    def _await(self, _by: str, handle: str) -> Json:
        outcome = self.blocked[handle].outcome
        if outcome is None:
            return {"done": False}
        del self.blocked[handle]
        return {"done": True, **outcome}

    def _try(self, handle: str) -> None:
        call = self.blocked[handle]
        tube = self.tubes[call.tube]
        task = self._take_first(call.by, tube)
        if task is not None:
            call.outcome = {"result": task}
        else:
            tube.waiting.append(handle)
            tube.waiting.sort(key=_began)

    def _let_woken_run(self) -> None:
        while self._woken:
            self._try(self._woken.pop(0))

    # ------------------------------------------------------------------------------ sessions

    def _connect(self, by: str) -> Json:
        self._sessions += 1
        self.connections[by] = f"S{self._sessions}"
        return {"session_id": self.connections[by]}

    def _disconnect(self, by: str) -> None:
        for handle, call in self.blocked.items():
            if call.by == by and call.outcome is None:
                call.outcome = {"error": {"class": "CONNECTION_CLOSED"}}
                self.tubes[call.tube].waiting.remove(handle)
        self._leave(self.connections.pop(by))

    def _identify(self, by: str, session_id: str | None = None) -> Json:
        if session_id == "MALFORMED":
            raise Refusal("INVALID_SESSION_ID")
        if session_id is not None and session_id not in self.connections.values():
            raise Refusal("UNKNOWN_SESSION")
        left = self.connections[by]
        if session_id is not None and session_id != left:
            self.connections[by] = session_id
            self._leave(left)
        return {"session_id": self.connections[by]}

    def _leave(self, session: str) -> None:
        """Release the tasks of a session when its last connection has closed."""
        if session not in self.connections.values():
            for tube in self.tubes.values():
                self._release_where(tube, lambda task: task.owner == session)

    # ------------------------------------------------------------------------------ observation

    def _statistics(self, _by: str, tube: str | None = None) -> Json:
        if tube is not None:
            return self._tube(tube).statistics()
        return {name: found.statistics() for name, found in sorted(self.tubes.items())}

    def _snapshot(self, _by: str, tubes: list[str]) -> Json:
        counts = Counter(self.connections.values())
        return {
            "tubes": {name: self._shown(self.tubes[name]) for name in tubes},
            "sessions": [
                {"session_id": name, "active": True, "connections": counts[name]}
                for name in sorted(counts, key=lambda name: int(name[1:]))
            ],
        }

    def _shown(self, tube: Tube) -> Json:
        tasks = []
        for number in sorted(tube.tasks):
            task = tube.tasks[number]
            shown: dict[str, Any] = task.answer()
            if tube.kind in TIMED_KINDS:
                shown |= {"pri": task.priority, "ttl": seconds_of(task.ttl_ms)}
                shown |= {"ttr": seconds_of(task.ttr_ms)}
            if tube.kind in SUBQUEUE_KINDS:
                shown["utube"] = task.subqueue
            if task.owner is not None:
                shown["owner"] = task.owner
            tasks.append(shown)
        return {"type": tube.kind, "tasks": tasks, "statistics": tube.statistics()}

    # ------------------------------------------------------------------------------ events

    def _tell(self, tube: Tube, task: Task, event: str) -> None:
        """Record an event; if the task is READY afterwards, wake a waiting take."""
        tube.calls[event] += 1
        self._events.append((event, task.name, task.state))
        if task.state == "READY":
            self._wake(tube)

    def _tell_neighbour(self, tube: Tube, task: Task) -> None:
        """Wake a waiting take if the sub-queue of ``task`` has another READY task."""
        if tube.kind in SUBQUEUE_KINDS and any(
            other.state == "READY" and other.subqueue == task.subqueue
            for other in tube.tasks.values()
        ):
            self._wake(tube)

    def _wake(self, tube: Tube) -> None:
        if tube.waiting:
            self._woken.append(tube.waiting.pop(0))


def _began(handle: str) -> int:
    """Return the number of a blocked call in the order of the starts."""
    return int(handle[1:])
