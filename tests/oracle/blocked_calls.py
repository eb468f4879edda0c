"""Run the calls of a trace that may block, takes and puts, beside its later steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from taskraft.v1 import feed_service_pb2
from tests.oracle.clusters import until
from tests.oracle.connection import CALL_SECONDS, Connection
from tests.oracle.observer import Observer, Seen
from tests.oracle.refusals import TUBE_FULL, Refused, refused_call
from tests.oracle.trace import Json, Outcome, Step

BLOCKS_SECONDS: Final = 2.0
"""Maximum time until the service reports that a call waits."""
ROOM_SECONDS: Final = 0.06
"""Time for a put to begin to wait for capacity; the service does not report such waits."""

Event = feed_service_pb2.ChangeEvent


@dataclass(slots=True, frozen=True)
class Call:
    """A call that may block: its request, and a function that reads its answer."""

    method: Any
    request: Any
    answer: Callable[[Any], Json]


@dataclass(slots=True, eq=False)
class Blocked:
    """A started call; its outcome is None until the call ends."""

    step: Step
    session_id: str
    call: Call
    future: Any
    outcome: Outcome | None = None

    @property
    def tube(self) -> str:
        """The tube that the call waits on."""
        return str(self.step.arguments["tube"])

    @property
    def is_take(self) -> bool:
        """Whether the call waits for a task; otherwise it waits for capacity."""
        return self.step.operation == "take"

    def collect(self) -> None:
        """Wait for the answer, and store the outcome."""
        if self.outcome is None:
            self.outcome = self._read()

    def _read(self) -> Outcome:
        try:
            return Outcome(self.call.answer(self.future.result(CALL_SECONDS)))
        except grpc.FutureCancelledError:
            return Outcome(error="CONNECTION_CLOSED")
        except grpc.RpcError as error:
            refusal = refused_call(error)
        except Refused as error:
            refusal = error
        return Outcome(None) if refusal.reason == TUBE_FULL else Outcome(error=refusal.error)

    def concerns(self, event: Seen) -> bool:
        """Return whether an event can end the call."""
        if event.tube != self.tube:
            return False
        if self.is_take:
            return event.kind == Event.TAKE and self.session_id.startswith(event.session)
        return event.kind == Event.PUT


class BlockedCalls:
    """The blocked calls of one run, by handle."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._calls: dict[str, Blocked] = {}

    @property
    def all_collected(self) -> bool:
        """Whether every call has an outcome."""
        return all(one.outcome is not None for one in self._calls.values())

    def start(self, step: Step, by: Connection, call: Call) -> None:
        """Start a call, and wait until the service reports that the call waits or has ended."""
        assert step.handle is not None
        future = call.method.future(call.request)
        blocked = Blocked(step, by.known_session_id or "", call, future)
        self._calls[step.handle] = blocked
        if blocked.is_take:
            until(lambda: future.done() or self._all_known(blocked.tube), BLOCKS_SECONDS)
        else:
            until(future.done, ROOM_SECONDS)

    def _all_known(self, tube: str) -> bool:
        return self._observer.waiting(tube) >= self._waiting(tube)

    def _none_more(self, tube: str) -> bool:
        return self._observer.waiting(tube) <= self._waiting(tube)

    def _waiting(self, tube: str) -> int:
        """Return the number of this run's takes that wait on a tube."""
        return sum(
            one.is_take and one.tube == tube and not one.future.done()
            for one in self._calls.values()
        )

    def await_end(self, handle: str, seconds: float) -> Json:
        """Wait for a call up to a time limit; return its state."""
        blocked = self._calls[handle]
        if not until(blocked.future.done, seconds):
            return {"done": False}
        blocked.collect()
        del self._calls[handle]
        assert blocked.outcome is not None
        if blocked.outcome.error is not None:
            return {"done": True, "error": {"class": blocked.outcome.error}}
        return {"done": True, "result": blocked.outcome.result}

    def woken(self, events: Sequence[Seen]) -> None:
        """Collect the outcomes of calls that have ended or that the given events end."""
        for blocked in self._calls.values():
            if blocked.outcome is None and any(blocked.concerns(event) for event in events):
                until(blocked.future.done, BLOCKS_SECONDS)
            if blocked.future.done():
                blocked.collect()

    def hang_up(self, session: str) -> None:
        """Cancel the calls of a connection that is about to close.

        Otherwise the service may first answer these calls with the end of their session.
        """
        for blocked in self._calls.values():
            if blocked.step.session == session:
                blocked.future.cancel()

    def closed(self, session: str) -> None:
        """Wait until the service has dropped the calls of a closed connection."""
        for blocked in self._calls.values():
            if blocked.step.session == session:
                blocked.collect()
                until(lambda tube=blocked.tube: self._none_more(tube), BLOCKS_SECONDS)

    def clear(self) -> None:
        """Drop all calls, because the process that would answer them is gone."""
        self._calls.clear()
