"""Play a trace: execute its steps in order and record the answers."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Final

from taskraft.v1 import task_service_pb2 as pb
from tests.oracle.blocked_calls import BlockedCalls, Call
from tests.oracle.clusters import READ_ONLY_CALL_SECONDS, Host, pause, until
from tests.oracle.connection import CALL_SECONDS, Connection
from tests.oracle.names import Names
from tests.oracle.observer import FRESH, LOCAL, Observer
from tests.oracle.operations import Operations
from tests.oracle.refusals import INTERNAL, MALFORMED_SESSION, TUBE_FULL, Refused
from tests.oracle.settings import configure
from tests.oracle.step_events import StepEvents
from tests.oracle.trace import Json, Outcome, Step, Trace

CONTROL: Final = "ctl"
QUIET_SECONDS: Final = 0.02
"""Woken consumers count as finished after two periods of this length without an event."""
READING_SECONDS: Final = 0.06
UNKNOWN_SESSION_ID: Final = "00112233-4455-4677-8899-aabbccddeeff"
TASK_OPERATIONS: Final = ("ack", "release", "touch", "peek", "bury", "delete")


class TooSlow(Exception):
    """The run missed a time of a timed trace, so its result is not valid."""


class Player:
    """Plays one trace on an empty host."""

    def __init__(self, trace: Trace, host: Host) -> None:
        self._trace = trace
        self._host = host
        self._names = Names()
        self._operations = Operations()
        self._control = Connection(host.address)
        self._connections: dict[str, Connection] = {}
        self._observer = Observer(self._control.stubs, self._names)
        self._happenings = StepEvents(self._observer, self._names)
        self._blocked = BlockedCalls(self._observer)
        self._clock: tuple[float, Mapping[str, float]] | None = None

    def play(self) -> list[Outcome]:
        """Return the outcome of each step, with its events.

        Raises:
            TooSlow: the run missed a time of its clock.
        """
        outcomes = []
        try:
            configure(self._control.stubs, self._trace.config)
            self._observer.skip_events()
            for step in self._trace.steps:
                outcomes.append(self._play(step))
                self._happenings.step_ended(self._revision())
                self._keep_beat(step)
                self._settle(step)
            self._happenings.read_for_last()
            return self._happenings.with_events(outcomes)
        finally:
            for connection in self._connections.values():
                connection.close()
            self._control.close()

    def _revision(self) -> int:
        every = [self._control, *self._connections.values()]
        return max(one.stubs.revision for one in every)

    def _settle(self, step: Step) -> None:
        """Let woken consumers run now, so that their events belong to this step."""
        if step.operation == "sleep":
            return
        if self._blocked.all_collected:
            if self._trace.timed and self._clock is None:
                self._happenings.read_for_last()
            return
        quiet = 0
        while quiet < 2:
            events = self._happenings.read_for_last()
            self._blocked.woken(events)
            quiet = 0 if events else quiet + 1
            if quiet < 2:
                pause(QUIET_SECONDS)

    # ------------------------------------------------------------------------------ one step

    def _play(self, step: Step) -> Outcome:
        try:
            if step.handle is not None:
                self._blocked.start(step, self._by(step), self._call(step))
                return Outcome({"pending": True})
            return Outcome(self._do(step))
        except Refused as refusal:
            if refusal.reason == TUBE_FULL:
                return Outcome(None)
            return Outcome(error=str(refusal) if refusal.error == INTERNAL else refusal.error)

    def _do(self, step: Step) -> Json:
        own = getattr(self, f"_do_{step.operation}", None)
        if own is not None:
            return own(step)
        by, arguments = self._by(step), self._arguments(step)
        if step.operation in ("put", "take"):
            call = self._call(step)
            return call.answer(by.stubs.call(call.method, call.request))
        result = getattr(self._operations, step.operation)(by, arguments)
        if step.operation in TASK_OPERATIONS:
            return self._named(arguments["tube"], result)
        return result

    def _call(self, step: Step) -> Call:
        """Return a call that may block."""
        by, arguments, operations = self._by(step), self._arguments(step), self._operations
        tube = arguments["tube"]
        if step.operation == "put":

            def put(answer: pb.PutTasksResponse) -> Json:
                result = operations.put_answer(arguments, answer)
                if result is not None:
                    self._names.new_task(tube, result["id"])
                return self._named(tube, result)

            return Call(by.stubs.tasks.PutTasks, operations.put_request(arguments), put)
        session_id = by.session_id

        def take(answer: pb.TakeTasksResponse) -> Json:
            return self._named(tube, operations.take_answer(session_id, arguments, answer))

        return Call(by.stubs.tasks.TakeTasks, operations.take_request(by, arguments), take)

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
        self._happenings.read_for_last()
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
        self._happenings.read()
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
        self._blocked.hang_up(step.session)
        connection.close()
        self._blocked.closed(step.session)
        self._await_idle(session_id)
        self._happenings.read()

    def _await_idle(self, session_id: str | None) -> None:
        """Wait until the service has noticed that a session lost its last connection."""
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
        self._happenings.read()
        return {"session_id": self._names.session(by.session_id)}

    def _do_cfg(self, step: Step) -> Json:
        settings = configure(self._control.stubs, step.arguments)
        wishes_replicaset = settings.get("in_replicaset", False)
        # The oracle silently ignores this switch while a temporary tube exists.
        self._operations.in_replicaset = wishes_replicaset and not self._operations.temporary

    # ------------------------------------------------------------------------------ the run itself

    def _do_clock(self, step: Step) -> Json:
        self._clock = (monotonic(), step.arguments)

    def _do_sleep(self, step: Step) -> Json:
        if self._clock is None:
            pause(step.arguments["seconds"])
            self._happenings.read()
            return
        # Read events shortly before the beat, so that all of the beat is left for its burst of
        # steps.
        end = self._clock[0] + step.arguments["until"]
        pause(max(0.0, end - monotonic() - READING_SECONDS))
        self._happenings.read()
        left = end - monotonic()
        if left < 0:
            raise TooSlow(f"{step}: {-left:.2f} s late")
        pause(left)

    def _keep_beat(self, step: Step) -> None:
        if self._clock is not None and step.operation != "sleep":
            began, clock = self._clock
            phase = (monotonic() - began) % clock["beat"]
            if phase > clock["slack"]:
                raise TooSlow(f"{step}: {phase:.2f} s after its beat")

    def _do_restart(self, step: Step) -> Json:
        config = step.arguments.get("config") or {}
        self._happenings.read_for_last()
        # Only data that the oracle stores in its replica-set mode survives its restart.
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
        self._happenings.read_for_last()
        if step.arguments["read_only"]:
            self._happenings.pending = True
            self._host.make_read_only()
            self._observer.consistency = LOCAL
        else:
            self._host.make_writable()
            self._happenings.pending = False
            self._observer.consistency = FRESH
            for connection in self._connections.values():
                connection.lose_session()
            self._happenings.read()
        return self._host.state()

    def _do_await(self, step: Step) -> Json:
        arguments = step.arguments
        return self._blocked.await_end(arguments["handle"], arguments.get("max_wait", 0.0))
