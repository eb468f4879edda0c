"""Outcomes of tasks that end while the puts that create the tasks are in flight.

The ids of the tasks of a put are known only when the put is applied, so the outcomes of all later
tasks of its tube are kept until then. A put that waits for capacity is not in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from taskraft_service.limits import CONTENT_BYTES_MAX
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.state.watch import TaskWatch, WatchNote

OUTCOMES_MIN: Final = 1_000
"""Minimum of ``EarlyOutcomes.ended_max``."""
_NO_OUTCOMES: Final[Mapping[int, TaskView]] = MappingProxyType({})


@dataclass(slots=True)
class EarlyContent:
    """Size of the contents of all outcomes in ``EarlyOutcomes``, of all tubes."""

    kept_bytes: int = 0


@dataclass(slots=True, eq=False)
class EarlyOutcomes:
    """Outcomes of tasks of one tube that end while the puts that create them are in flight.

    ``floors`` has, for each put in flight, the minimum of the ids of its tasks, in ascending order.
    The outcomes of all tubes have at most ``CONTENT_BYTES_MAX`` of content in total; later ones are
    kept without their content.
    """

    content: EarlyContent
    floors: list[int] = field(default_factory=list)
    ended: dict[int, TaskView] = field(default_factory=dict)
    ended_max: int = OUTCOMES_MIN
    """Number of outcomes above which those that no put in flight expects are removed."""
    _removed_below: int = 0
    """Id below which all outcomes were removed."""

    def add(self, view: TaskView) -> None:
        """Add the outcome of a task, if a put in flight may expect the task."""
        if view.id < self.floors[0]:
            return
        content_bytes = view.content_bytes
        is_too_large = self.content.kept_bytes + content_bytes > CONTENT_BYTES_MAX
        if is_too_large or len(self.ended) >= self.ended_max:
            self._remove_unexpected()
            is_too_large = self.content.kept_bytes + content_bytes > CONTENT_BYTES_MAX
        known = self.ended.pop(view.id, None)
        if known is not None:
            self.content.kept_bytes -= known.content_bytes
        if is_too_large:
            view = view.without_content()
        self.ended[view.id] = view
        self.content.kept_bytes += view.content_bytes

    def stop_counting(self) -> None:
        """Count the contents of the outcomes no longer; no put in flight expects them."""
        self.content.kept_bytes -= sum([view.content_bytes for view in self.ended.values()])

    def _remove_unexpected(self) -> None:
        """Remove the outcomes that no put in flight expects, once for each minimum of the ids."""
        first = self.floors[0]
        if first > self._removed_below:
            self._removed_below = first
            for task_id in [task_id for task_id in self.ended if task_id < first]:
                self.content.kept_bytes -= self.ended.pop(task_id).content_bytes
        self.ended_max = max(2 * len(self.ended), OUTCOMES_MIN)


class ExpectedOutcomes:
    """The outcomes that puts in flight may expect, of all tubes.

    Args:
        queues: the queues of this node.
    """

    def __init__(self, queues: QueueLocator) -> None:
        self._queues = queues
        self._of_tubes: dict[int, EarlyOutcomes] = {}
        """The outcomes by number of the tube."""
        self._content = EarlyContent()

    def add(self, note: WatchNote) -> None:
        """Add the outcome of a task, if a put in flight may expect the task."""
        early = self._of_tubes.get(note.tube)
        if early is not None and note.outcome is not TaskOutcome.NONE:
            early.add(note.task)

    def next_place(self, tube: str) -> tuple[int, int] | None:
        """Return the number of a tube and the id of its next task; None: there is no tube."""
        return self._queues.queue_of(tube).next_place(tube)

    def begin(self, number: int, first: int) -> EarlyOutcomes:
        """Keep the outcomes of a tube's tasks whose ids are at least ``first``."""
        early = self._of_tubes.get(number)
        if early is None:
            early = self._of_tubes[number] = EarlyOutcomes(self._content)
        early.floors.append(first)
        self._watch(number).add_floor(number, first)
        return early

    def end(self, number: int, first: int) -> None:
        """Take back a ``begin`` with the same arguments."""
        self._watch(number).discard_floor(number, first)
        early = self._of_tubes[number]
        early.floors.remove(first)
        if not early.floors:
            del self._of_tubes[number]
            early.stop_counting()

    def _watch(self, number: int) -> TaskWatch:
        return self._queues.queue_of_number(number).watch


class ExpectingPut:
    """A put that waits for the outcomes of its tasks, before its ids are known.

    Args:
        expected: the outcomes that puts in flight may expect.
        tube: name of the tube.
    """

    __slots__ = ("_early", "_expected", "_first", "_tube", "number")

    def __init__(self, expected: ExpectedOutcomes, tube: str) -> None:
        self._expected = expected
        self._tube = tube
        self._early: EarlyOutcomes | None = None
        self._first = 0
        self.number: int | None = None
        """The number of the tube; None: the put is not in flight, or creates its tube."""

    @property
    def ended(self) -> Mapping[int, TaskView]:
        """Return the outcomes that are known, by id."""
        return _NO_OUTCOMES if self._early is None else self._early.ended

    def begin_attempt(self) -> None:
        """Keep the outcomes of the tube's next tasks from now on."""
        self.end_attempt()
        place = self._expected.next_place(self._tube)
        if place is not None:
            self.number, self._first = place
            self._early = self._expected.begin(*place)

    def end_attempt(self) -> None:
        """Keep no outcomes: the queue has refused the attempt, or its ids are known."""
        if self.number is not None:
            self._expected.end(self.number, self._first)
            self.number = self._early = None
