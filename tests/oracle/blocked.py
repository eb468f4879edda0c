"""Keep the calls that run beside the steps of a trace: takes and puts that wait."""

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
"""How long a call may take until the service knows that it waits."""
ROOM_SECONDS: Final = 0.06
"""A put that waits for room shows nowhere; it is given this time to begin to wait."""

Event = feed_service_pb2.ChangeEvent


@dataclass(slots=True, frozen=True)
class Call:
    """A call that may block: how it is made and how its answer is read."""

    method: Any
    request: Any
    answer: Callable[[Any], Json]


@dataclass(slots=True, eq=False)
class Blocked:
    """A call that was made, and what became of it."""

    step: Step
    session_id: str
    call: Call
    future: Any
    outcome: Outcome | None = None

    @property
    def tube(self) -> str:
        """The tube that it waits on."""
        return str(self.step.arguments["tube"])

    @property
    def is_take(self) -> bool:
        """Tell whether it waits for a task; otherwise it waits for room."""
        return self.step.operation == "take"

    def collect(self) -> None:
        """Read the answer; waits for it."""
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
        """Tell whether an event may be what the call waited for."""
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
        """Tell whether no call is without answer."""
        return all(one.outcome is not None for one in self._calls.values())

    def start(self, step: Step, by: Connection, call: Call) -> None:
        """Make a call and wait until the service knows that it waits, or has answered."""
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
        """Return how many of our takes wait on a tube."""
        return sum(
            one.is_take and one.tube == tube and not one.future.done()
            for one in self._calls.values()
        )

    def await_end(self, handle: str, seconds: float) -> Json:
        """Wait for a call; return what became of it so far."""
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
        """Collect the calls that have ended; those that events tell of end now."""
        for blocked in self._calls.values():
            if blocked.outcome is None and any(blocked.concerns(event) for event in events):
                until(blocked.future.done, BLOCKS_SECONDS)
            if blocked.future.done():
                blocked.collect()

    def hang_up(self, session: str) -> None:
        """End the calls of a connection that is about to close.

        Else the service may answer that their session is gone before they are cancelled.
        """
        for blocked in self._calls.values():
            if blocked.step.session == session:
                blocked.future.cancel()

    def closed(self, session: str) -> None:
        """Wait until the service has let go of the calls of a connection that was closed."""
        for blocked in self._calls.values():
            if blocked.step.session == session:
                blocked.collect()
                until(lambda tube=blocked.tube: self._none_more(tube), BLOCKS_SECONDS)

    def clear(self) -> None:
        """Forget the calls: who was to answer them is gone."""
        self._calls.clear()
