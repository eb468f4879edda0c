"""Assign each change of a task to the step that caused it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from taskraft.v1 import feed_service_pb2
from tests.oracle.names import Names
from tests.oracle.observer import Observer, Seen
from tests.oracle.trace import Outcome


class StepEvents:
    """The events of a run, matched to its steps by log position.

    Because of the positions, the feed need not be read after each step, which would delay a timed
    trace.
    """

    def __init__(self, observer: Observer, names: Names) -> None:
        self._observer = observer
        self._names = names
        self._marks: list[int] = []
        """By step, the last log position that belongs to it."""
        self._events: list[tuple[int, tuple[str, str | None, str | None]]] = []
        self._read_to = 0
        self.pending = False
        """True while no node can be asked for events."""

    def step_ended(self, revision: int) -> None:
        """Record that a step has ended, with the log position in its answer."""
        self._marks.append(max(*self._marks[-1:], self._read_to, revision))

    def read(self) -> list[Seen]:
        """Read new events; they belong to the current step or to earlier ones."""
        if self.pending:
            return []
        events = self._observer.events()
        for event in events:
            name = self._names.task(event.tube, event.task_id)
            if name is None and event.kind == feed_service_pb2.ChangeEvent.PUT:
                # The put waited for capacity, and its answer has not been read yet.
                name = self._names.new_task(event.tube, event.task_id)
            self._events += [
                (event.revision, (kind, name, state)) for kind, state in event.oracle_events()
            ]
            self._read_to = event.revision
        return events

    def read_for_last(self) -> list[Seen]:
        """Read new events; they belong to the last completed step or to earlier ones."""
        events = self.read()
        if self._marks:
            self._marks[-1] = max(self._marks[-1], self._read_to)
        return events

    def with_events(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Return the outcomes of all steps, each with its events."""
        by_step: list[list[tuple[str, str | None, str | None]]] = [[] for _ in outcomes]
        for revision, event in self._events:
            place = bisect_left(self._marks, revision)
            by_step[min(place, len(by_step) - 1)].append(event)
        return [
            Outcome(outcome.result, outcome.error, tuple(events))
            for outcome, events in zip(outcomes, by_step, strict=True)
        ]
