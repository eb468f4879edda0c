"""Give each change of a task to the step that brought it about."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from taskraft.v1 import feed_service_pb2
from tests.oracle.names import Names
from tests.oracle.observer import Observer, Seen
from tests.oracle.trace import Outcome


class Happenings:
    """The events of a run. Steps and events are matched by their places in the log.

    So the feed need not be read after each step, which would cost a timed trace its beat.
    """

    def __init__(self, observer: Observer, names: Names) -> None:
        self._observer = observer
        self._names = names
        self._marks: list[int] = []
        """By step: the position in the log up to which it is responsible for what happened."""
        self._told: list[tuple[int, tuple[str, str | None, str | None]]] = []
        self._read_to = 0
        self.pending = False
        """Set while nobody can be asked for events."""

    def step_ended(self, revision: int) -> None:
        """Take note that a step has ended, and up to which position its answer tells."""
        self._marks.append(max(*self._marks[-1:], self._read_to, revision))

    def read(self) -> list[Seen]:
        """Read the events so far; they belong to the step that is being done or to earlier ones."""
        if self.pending:
            return []
        events = self._observer.events()
        for event in events:
            name = self._names.task(event.tube, event.task_id)
            if name is None and event.kind == feed_service_pb2.ChangeEvent.PUT:
                # A put that waited for room, and whose answer has not been read yet.
                name = self._names.new_task(event.tube, event.task_id)
            self._told += [(event.revision, (told, name, state)) for told, state in event.told()]
            self._read_to = event.revision
        return events

    def read_for_last(self) -> list[Seen]:
        """Read the events so far; they belong to the last step that ended or to earlier ones."""
        events = self.read()
        if self._marks:
            self._marks[-1] = max(self._marks[-1], self._read_to)
        return events

    def with_events(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Return the outcomes of all steps with the events that each is responsible for."""
        by_step: list[list[tuple[str, str | None, str | None]]] = [[] for _ in outcomes]
        for revision, event in self._told:
            place = bisect_left(self._marks, revision)
            by_step[min(place, len(by_step) - 1)].append(event)
        return [
            Outcome(outcome.result, outcome.error, tuple(events))
            for outcome, events in zip(outcomes, by_step, strict=True)
        ]
