"""Play a trace: do its steps one after the other and note what they answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import grpc

from taskraft.v1 import feed_service_pb2
from tests.oracle.clusters import READ_ONLY_CALL_SECONDS, Host, pause, until
from tests.oracle.connection import CALL_SECONDS, Connection
from tests.oracle.names import Names
from tests.oracle.observer import FRESH, LOCAL, Observer, Seen
from tests.oracle.operations import Operations
from tests.oracle.refusals import MALFORMED_SESSION, TUBE_FULL, Refused, refused_call
from tests.oracle.settings import configure
from tests.oracle.trace import Json, Outcome, Step, Trace

CONTROL: Final = "ctl"
BLOCKS_SECONDS: Final = 2.0
"""How long a call may take until the service knows that it waits."""
QUIET_SECONDS: Final = 0.02
"""Woken consumers have run when nothing happens for so long, twice."""
ROOM_SECONDS: Final = 0.06
"""A put that waits for room shows nowhere; it is given this time to begin to wait."""
UNKNOWN_SESSION_ID: Final = "00112233-4455-4677-8899-aabbccddeeff"
TASK_OPERATIONS: Final = ("ack", "release", "touch", "peek", "bury", "delete")


class TooSlow(Exception):
    """The run cannot keep the beat of a timed trace; it means nothing."""


@dataclass(slots=True, eq=False)
class Blocked:
    """A call that runs beside the steps, and what became of it."""

    session: str
    session_id: str
    step: Step
    future: Any
    answer: Callable[[Any], Json]
    outcome: Outcome | None = None


class Player:
    """Plays one trace on a host that holds nothing yet."""

    def __init__(self, trace: Trace, host: Host) -> None:
        self._trace = trace
        self._host = host
        self._names = Names()
        self._operations = Operations()
        self._connections: dict[str, Connection] = {}
        self._blocked: dict[str, Blocked] = {}
        self._outcomes: list[Outcome] = []
        self._marks: list[int] = []
        """By step: the position in the log up to which it is responsible for what happened."""
        self._seen: list[tuple[int, tuple[str, str | None, str | None]]] = []
        self._drained = 0
        """Position in the log of the last event that was read."""
        self._clock: tuple[float, Mapping[str, float]] | None = None
        self._control = Connection(host.address)
        self._observer = Observer(self._control.stubs, self._names)

    def play(self) -> list[Outcome]:
        """Return what each step answered, with its events.

        Raises:
            TooSlow: a beat of its clock was missed.
        """
        try:
            configure(self._control.stubs, self._trace.config)
            self._observer.skip_events()
            for step in self._trace.steps:
                self._outcomes.append(self._play(step))
                self._marks.append(self._revision())
                self._keep_beat(step)
                self._settle(step)
            self._drain_for_last()
            return self._with_events()
        finally:
            for connection in self._connections.values():
                connection.close()
            self._control.close()

    # ------------------------------------------------------------------------------ one step

    def _play(self, step: Step) -> Outcome:
        try:
            if step.handle is not None:
                self._start(step)
                return Outcome({"pending": True})
            return Outcome(self._do(step))
        except Refused as refusal:
            if refusal.reason == TUBE_FULL:
                return Outcome(None)
            return Outcome(error=refusal.error if refusal.error != "INTERNAL" else str(refusal))

    def _do(self, step: Step) -> Json:
        own = getattr(self, f"_do_{step.operation}", None)
        if own is not None:
            return own(step)
        by, arguments = self._by(step), self._arguments(step)
        if step.operation in ("put", "take"):
            request, method, answer = self._call(step)
            return answer(by.stubs.call(method, request))
        result = getattr(self._operations, step.operation)(by, arguments)
        if step.operation in TASK_OPERATIONS:
            return self._named(arguments["tube"], result)
        return result

    def _call(self, step: Step) -> tuple[Any, Any, Callable[[Any], Json]]:
        """Return request, method and reader of the answer for a call that may block."""
        by, arguments, operations = self._by(step), self._arguments(step), self._operations
        tube = arguments["tube"]
        if step.operation == "put":

            def put(answer: Any) -> Json:
                result = operations.put_answer(arguments, answer)
                if result is not None:
                    self._names.new_task(tube, result["id"])
                return self._named(tube, result)

            return operations.put_request(arguments), by.stubs.tasks.PutTasks, put
        session_id = by.session_id

        def take(answer: Any) -> Json:
            return self._named(tube, operations.take_answer(session_id, arguments, answer))

        return operations.take_request(by, arguments), by.stubs.tasks.TakeTasks, take

    def _by(self, step: Step) -> Connection:
        if step.session == CONTROL:
            return self._control
        connection = self._connections.get(step.session)
        if connection is None:
            connection = self._connections[step.session] = Connection(self._host.address)
        connection.stubs.seconds = (
            READ_ONLY_CALL_SECONDS if self._host.is_read_only else CALL_SECONDS
        )
        return connection

    def _arguments(self, step: Step) -> Mapping[str, Json]:
        if step.operation in TASK_OPERATIONS and "task" in step.arguments:
            return {**step.arguments, "id": self._names.id_of(step.arguments["task"])}
        return step.arguments

    def _named(self, tube: str, result: Json) -> Json:
        if result is None:
            return None
        return {"task": self._names.task(tube, result["id"]), **result}

    def _do_drop(self, step: Step) -> Json:
        self._drain_for_last()
        dropped = self._operations.drop(self._by(step), step.arguments)
        self._names.forget_tube(step.arguments["tube"])
        return dropped

    # ------------------------------------------------------------------------------ observation

    def _do_statistics(self, step: Step) -> Json:
        return self._observer.statistics(step.arguments.get("tube"))

    def _do_tubes(self, _step: Step) -> Json:
        return self._observer.tubes()

    def _do_tube_exists(self, step: Step) -> Json:
        return step.arguments["tube"] in self._observer.tubes()

    def _do_snapshot(self, step: Step) -> Json:
        self._drain()
        counts: dict[str, int] = {}
        for connection in self._connections.values():
            if connection.known_session_id is not None:
                known = connection.known_session_id
                counts[known] = counts.get(known, 0) + 1
        return self._observer.snapshot(step.arguments.get("tubes", ()), counts)

    def _do_state(self, _step: Step) -> Json:
        return self._host.state()

    # ------------------------------------------------------------------------------ sessions

    def _do_connect(self, step: Step) -> Json:
        return {"session_id": self._names.session(self._by(step).session_id)}

    def _do_disconnect(self, step: Step) -> Json:
        connection = self._connections.pop(step.session)
        session_id = connection.known_session_id
        connection.close()
        for blocked in self._blocked.values():
            if blocked.session == step.session:
                self._collect(blocked, wait=True)
                tube = blocked.step.arguments["tube"]
                until(lambda tube=tube: self._observer.waiting(tube) <= self._waiting(tube))
        self._await_idle(session_id)
        self._drain()

    def _await_idle(self, session_id: str | None) -> None:
        """Wait until the service has seen that a session has lost its last connection."""
        if session_id is None or any(
            one.known_session_id == session_id for one in self._connections.values()
        ):
            return
        assert until(lambda: self._observer.is_idle(session_id)), "the session stays attached"

    def _do_identify(self, step: Step) -> Json:
        by, wished = self._by(step), step.arguments.get("session_id")
        if wished == "MALFORMED":
            raise Refused(MALFORMED_SESSION)
        session_id = None
        if wished is not None:
            is_unknown = wished == "UNKNOWN"
            session_id = UNKNOWN_SESSION_ID if is_unknown else self._names.session_id(wished)
        left = self._operations.identify(by, session_id)
        self._await_idle(left)
        self._drain()
        return {"session_id": self._names.session(by.session_id)}

    def _do_cfg(self, step: Step) -> Json:
        settings = configure(self._control.stubs, step.arguments)
        wishes_replicaset = settings.get("in_replicaset", False)
        # The oracle does not enter this mode while there is a temporary tube, and says nothing.
        self._operations.in_replicaset = wishes_replicaset and not self._operations.temporary

    # ------------------------------------------------------------------------------ the run itself

    def _do_clock(self, step: Step) -> Json:
        self._clock = (monotonic(), step.arguments)

    def _do_sleep(self, step: Step) -> Json:
        if "until" in step.arguments:
            assert self._clock is not None, "no clock runs"
            left = self._clock[0] + step.arguments["until"] - monotonic()
            if left < 0:
                raise TooSlow(f"{step}: {-left:.2f} s late")
            pause(left)
        else:
            pause(step.arguments["seconds"])
        if self._clock is None:
            self._drain()

    def _keep_beat(self, step: Step) -> None:
        if self._clock is not None and step.operation != "sleep":
            began, clock = self._clock
            phase = (monotonic() - began) % clock["beat"]
            if phase > clock["slack"]:
                raise TooSlow(f"{step}: {phase:.2f} s after its beat")

    def _do_restart(self, step: Step) -> Json:
        config = step.arguments.get("config") or {}
        self._drain_for_last()
        # What outlives a restart of the oracle is what its replica-set mode has stored.
        keeps = bool(config.get("in_replicaset"))
        configure(self._control.stubs, config if keeps else {"ttr": 0})
        self._observer.forget_counts()
        self._host.crash(step.arguments.get("down", 0.0))
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._blocked.clear()
        configure(self._control.stubs, config or {"ttr": 0})
        self._operations.in_replicaset = keeps
        self._observer.skip_events()

    def _do_set_mode(self, step: Step) -> Json:
        self._drain_for_last()
        if step.arguments["read_only"]:
            self._host.make_read_only()
            self._observer.consistency = LOCAL
        else:
            self._host.make_writable()
            self._observer.consistency = FRESH
            for connection in self._connections.values():
                connection.lose_session()
            self._drain()
        return self._host.state()

    # ------------------------------------------------------------------------------ blocked calls

    def _start(self, step: Step) -> None:
        request, method, answer = self._call(step)
        by, tube = self._by(step), step.arguments["tube"]
        future = method.future(request)
        session_id = by.known_session_id or ""
        blocked = Blocked(step.session, session_id, step, future, answer)
        assert step.handle is not None
        self._blocked[step.handle] = blocked
        if step.operation == "take":
            until(
                lambda: future.done() or self._observer.waiting(tube) >= self._waiting(tube),
                BLOCKS_SECONDS,
            )
        else:
            until(future.done, ROOM_SECONDS)

    def _waiting(self, tube: str) -> int:
        """Return how many of our takes wait on a tube."""
        return sum(
            not one.future.done()
            for one in self._blocked.values()
            if one.step.operation == "take" and one.step.arguments["tube"] == tube
        )

    def _do_await(self, step: Step) -> Json:
        blocked = self._blocked[step.arguments["handle"]]
        until(blocked.future.done, step.arguments.get("max_wait", 0.0))
        if not blocked.future.done():
            return {"done": False}
        self._collect(blocked)
        outcome = blocked.outcome
        del self._blocked[step.arguments["handle"]]
        assert outcome is not None
        if outcome.error is not None:
            return {"done": True, "error": {"class": outcome.error}}
        return {"done": True, "result": outcome.result}

    @staticmethod
    def _collect(blocked: Blocked, *, wait: bool = False) -> None:
        """Read the answer of a call that has ended."""
        if blocked.outcome is not None or not (wait or blocked.future.done()):
            return
        try:
            blocked.outcome = Outcome(blocked.answer(blocked.future.result(CALL_SECONDS)))
        except grpc.FutureCancelledError:
            blocked.outcome = Outcome(error="CONNECTION_CLOSED")
        except grpc.RpcError as error:
            refusal = refused_call(error)
            is_full = refusal.reason == TUBE_FULL
            blocked.outcome = Outcome(None) if is_full else Outcome(error=refusal.error)
        except Refused as refusal:
            blocked.outcome = Outcome(error=refusal.error)

    def _settle(self, step: Step) -> None:
        """Let woken consumers run before the next step, so that their events belong to this one."""
        if step.operation == "sleep" or all(one.outcome for one in self._blocked.values()):
            if self._trace.timed and self._clock is None:
                self._drain_for_last()
            return
        quiet = 0
        while quiet < 2:
            events = self._drain_for_last()
            for blocked in self._blocked.values():
                if _concerns(blocked, events):
                    until(blocked.future.done, BLOCKS_SECONDS)
                self._collect(blocked)
            quiet = 0 if events else quiet + 1
            if quiet < 2:
                pause(QUIET_SECONDS)

    # ------------------------------------------------------------------------------ events

    def _revision(self) -> int:
        every = [self._control, *self._connections.values()]
        return max(*self._marks[-1:], self._drained, *(one.stubs.revision for one in every))

    def _drain_for_last(self) -> list[Seen]:
        """Read the events so far; they belong to the last step or to earlier ones."""
        events = self._drain()
        if self._marks:
            self._marks[-1] = max(self._marks[-1], self._drained)
        return events

    def _drain(self) -> list[Seen]:
        """Read the events so far; they belong to the step that is being done or to earlier ones."""
        if self._host.is_read_only:
            return []
        events = self._observer.events()
        for event in events:
            name = self._names.task(event.tube, event.task_id)
            if name is None and event.kind == feed_service_pb2.ChangeEvent.PUT:
                name = self._names.new_task(event.tube, event.task_id)
            for told, state in event.told():
                self._seen.append((event.revision, (told, name, state)))
            self._drained = event.revision
        return events

    def _with_events(self) -> list[Outcome]:
        """Give each event to the first step that is responsible for its place in the log."""
        by_step: list[list[tuple[str, str | None, str | None]]] = [[] for _ in self._outcomes]
        for revision, event in self._seen:
            place = bisect_left(self._marks, revision)
            by_step[min(place, len(by_step) - 1)].append(event)
        return [
            Outcome(outcome.result, outcome.error, tuple(events))
            for outcome, events in zip(self._outcomes, by_step, strict=True)
        ]


def _concerns(blocked: Blocked, events: list[Seen]) -> bool:
    """Tell whether one of the events may have ended a blocked call."""
    kinds = feed_service_pb2.ChangeEvent
    for event in events:
        if event.tube == blocked.step.arguments["tube"]:
            if blocked.step.operation == "put" and event.kind == kinds.PUT:
                return True
            if event.kind == kinds.TAKE and blocked.session_id.startswith(event.session):
                return True
    return False
