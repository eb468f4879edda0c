"""Count the tasks of a tube by state, by operation and by transition."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final

from service.queue.commands import State
from service.queue.life_cycle import FINISHED, GONE, STATES, EventKind
from service.queue.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STATE_COUNT: Final = len(STATES)
KIND_COUNT: Final = max(EventKind) + 1

_record = Struct(f">{STATE_COUNT + KIND_COUNT + STATE_COUNT * STATE_COUNT + 2}Q")

_IS_END: Final = tuple(
    from_state not in FINISHED and (to_state is GONE or to_state in FINISHED)
    for from_state in STATES
    for to_state in STATES
)
"""By transition: whether a task that makes it has ended, if it has not gone to another tube."""


class Counters:
    """Counters of one tube: lists of numbers, so that a batch costs a few additions.

    ``states`` by state; ``calls`` by kind of event; ``transitions`` by ``from_state * 8 +
    to_state``; ``finished``: tasks that ended, once each time that they do. ``before``: the calls,
    and what had finished, when the leadership began; each node's own, not part of the state.
    """

    RECORD_BYTES: ClassVar[int] = _record.size
    __slots__ = ("before", "calls", "finished", "payload_bytes", "states", "transitions")

    def __init__(self) -> None:
        """Count from zero."""
        self.states = [0] * STATE_COUNT
        self.calls = [0] * KIND_COUNT
        self.transitions = [0] * (STATE_COUNT * STATE_COUNT)
        self.payload_bytes = 0
        self.finished = 0
        self.before = [0] * (KIND_COUNT + 1)

    def begin(self) -> None:
        """Count the calls of a new leadership from here."""
        self.before = [*self.calls, self.finished]

    def count(
        self,
        kind: EventKind,
        from_state: State,
        to_state: State,
        tasks: int,
        payload_bytes: int = 0,
    ) -> None:
        """Count tasks that changed state; ``payload_bytes`` came or, negative, went."""
        self.states[from_state] -= tasks
        self.states[to_state] += tasks
        self.states[GONE] = 0
        self.calls[kind] += tasks
        place = from_state * STATE_COUNT + to_state
        self.transitions[place] += tasks
        self.payload_bytes += payload_bytes
        if _IS_END[place] and kind is not EventKind.MOVE:
            self.finished += tasks

    def emptied(self) -> Counters:
        """Return the counters after the removal of all tasks."""
        counters = Counters()
        counters.calls = list(self.calls)
        counters.calls[EventKind.TRUNCATE] += sum(self.states)
        counters.transitions = list(self.transitions)
        counters.finished = self.finished
        counters.before = self.before
        for state in STATES:
            counters.transitions[state * STATE_COUNT + GONE] += self.states[state]
        return counters

    def record(self) -> bytes:
        """Return the counters as they are written with the tube."""
        return _record.pack(
            *self.states, *self.calls, *self.transitions, self.payload_bytes, self.finished
        )

    @classmethod
    def read(cls, record: bytes, start: int) -> Counters:
        """Return the counters out of a tube's record."""
        numbers = list(_record.unpack_from(record, start))
        counters = cls()
        counters.states = numbers[:STATE_COUNT]
        counters.calls = numbers[STATE_COUNT : STATE_COUNT + KIND_COUNT]
        counters.transitions = numbers[STATE_COUNT + KIND_COUNT : -2]
        counters.payload_bytes, counters.finished = numbers[-2:]
        counters.begin()
        return counters

    def add(self, other: Counters) -> None:
        """Add the counts of another tube."""
        self.states = [a + b for a, b in zip(self.states, other.states, strict=True)]
        self.calls = [a + b for a, b in zip(self.calls, other.calls, strict=True)]
        self.transitions = [a + b for a, b in zip(self.transitions, other.transitions, strict=True)]
        self.payload_bytes += other.payload_bytes
        self.finished += other.finished
        self.before = [a + b for a, b in zip(self.before, other.before, strict=True)]


@value
class Transition:
    """How often tasks went from one state to another; GONE stands for nothing."""

    from_state: State
    to_state: State
    count: int


@value
class TubeStatistics:
    """Counts of one tube, or of all (``tube`` empty).

    ``finished``: tasks that ended, kept or not: acknowledged, failed for good, deleted or expired;
    not those that went with their tube's content. ``oldest_ready_ms``: when the task that is next
    to be taken became ready, 0 where none is. ``fresh_calls`` and ``fresh_finished`` are those of
    the present leadership.
    """

    tube: str
    states: Mapping[State, int]
    calls: Mapping[EventKind, int]
    transitions: tuple[Transition, ...]
    finished: int
    payload_bytes: int
    oldest_ready_ms: int
    fresh_calls: Mapping[EventKind, int]
    fresh_finished: int

    @property
    def total(self) -> int:
        """Return the number of tasks in all states."""
        return sum(self.states.values())


def statistics_of(tube: str, counters: Counters, oldest_ready_ms: int) -> TubeStatistics:
    """Return counters as they are shown."""
    calls = counters.calls
    return TubeStatistics(
        tube,
        {state: counters.states[state] for state in STATES if state is not GONE},
        {kind: calls[kind] for kind in EventKind},
        tuple(
            Transition(STATES[place // STATE_COUNT], STATES[place % STATE_COUNT], count)
            for place, count in enumerate(counters.transitions)
            if count
        ),
        counters.finished,
        counters.payload_bytes,
        oldest_ready_ms,
        {kind: calls[kind] - counters.before[kind] for kind in EventKind},
        counters.finished - counters.before[-1],
    )


def total_statistics(
    all_counters: Iterable[Counters], oldest_ready: Iterable[int]
) -> TubeStatistics:
    """Return the sum over tubes."""
    total = Counters()
    for counters in all_counters:
        total.add(counters)
    return statistics_of("", total, min((at for at in oldest_ready if at), default=0))
