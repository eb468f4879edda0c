"""Count the tasks of a tube by state, by operation and by transition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum, unique
from itertools import accumulate
from struct import Struct
from typing import Final

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.task_state import FINISHED, GONE, STATES, State
from taskraft_service.queue.values import value

STATE_COUNT: Final = len(STATES)
KIND_COUNT: Final = max(EventKind) + 1


@unique
class CountedOperation(IntEnum):
    """Operations that are counted in addition to the kinds of events.

    URGENT: puts to the front. REQUEUE: releases to the back. DONE: acknowledged tasks that are
    kept. DIG: kicks of selected tasks. TAKE_TIMEOUT: takes that found nothing in time. PEEK and
    META: tasks that were read with and without payload. The leader reports these three. FAIL:
    failed attempts.
    """

    URGENT = 0
    REQUEUE = 1
    DONE = 2
    DIG = 3
    TAKE_TIMEOUT = 4
    PEEK = 5
    META = 6
    FAIL = 7


CALL_COUNT: Final = len(CountedOperation)


_IS_END: Final = tuple(
    from_state not in FINISHED and (to_state is GONE or to_state in FINISHED)
    for from_state in STATES
    for to_state in STATES
)
"""For each transition, whether it ends a task that did not move to another tube."""


_PARTS: Final = (
    ("states", STATE_COUNT),
    ("calls", KIND_COUNT),
    ("noted", CALL_COUNT),
    ("expired", STATE_COUNT),
    ("transitions", STATE_COUNT * STATE_COUNT),
    ("departures", STATE_COUNT),
    ("arrivals", STATE_COUNT),
)
"""The lists of counters in their order in the record, with their lengths."""
_ENDS: Final = tuple(accumulate(length for _, length in _PARTS))
_record = Struct(f">{_ENDS[-1] + 2}Q")


class TubeCounters:
    """Counters of one tube, as lists of numbers, so that counting a batch takes a few additions.

    Attributes:
        states: tasks by state.
        calls: tasks by kind of event.
        noted: operations by ``CountedOperation``.
        expired: tasks whose time to live ended, by the state that they were in.
        transitions: tasks by ``from_state * 8 + to_state``.
        departures: tasks that left for another tube, by the state that they left.
        arrivals: tasks that came from another tube, by the state that they entered.
        finished: ends of tasks; a task that is restarted can end again.
        before: the value of ``calls`` when this node's view of the leadership began; not
            replicated.
        whole: the counters of all tubes, which are updated with the same changes.
    """

    __slots__ = (
        "arrivals",
        "before",
        "calls",
        "departures",
        "expired",
        "finished",
        "noted",
        "payload_bytes",
        "states",
        "transitions",
        "whole",
    )

    def __init__(self) -> None:
        """Set all counters to zero."""
        self.states = [0] * STATE_COUNT
        self.calls = [0] * KIND_COUNT
        self.noted = [0] * CALL_COUNT
        self.expired = [0] * STATE_COUNT
        self.transitions = [0] * (STATE_COUNT * STATE_COUNT)
        self.departures = [0] * STATE_COUNT
        self.arrivals = [0] * STATE_COUNT
        self.payload_bytes = 0
        self.finished = 0
        self.before = self.all_calls()
        self.whole: TubeCounters | None = None

    def all_calls(self) -> OperationCounts:
        """Return the calls since the creation of the tube."""
        return OperationCounts(
            tuple(self.calls), tuple(self.noted), tuple(self.expired), self.finished
        )

    def begin(self) -> None:
        """Start counting the calls of a new leadership."""
        self.before = self.all_calls()

    def join(self, whole: TubeCounters) -> None:
        """Add the counters to ``whole``, and update ``whole`` with each further change."""
        assert self.whole is None
        self.whole = whole
        whole.add(self)

    def leave(self) -> None:
        """Subtract the counters from ``whole``, and stop updating it."""
        assert self.whole is not None
        self.whole.add(self, -1)
        self.whole = None

    def add(self, other: TubeCounters, sign: int = 1) -> None:
        """Add other counters, or subtract them (``sign`` -1)."""
        for name, _ in _PARTS:
            pairs = zip(getattr(self, name), getattr(other, name), strict=True)
            setattr(self, name, [one + sign * two for one, two in pairs])
        self.payload_bytes += sign * other.payload_bytes
        self.finished += sign * other.finished
        self.before = self.before.plus(other.before, sign)

    def note(self, call: CountedOperation, tasks: int = 1) -> None:
        """Count operations that are not kinds of events."""
        self.noted[call] += tasks
        if self.whole is not None:
            self.whole.note(call, tasks)

    def expire(self, state: State) -> None:
        """Count a task whose time to live ended in a state."""
        self.expired[state] += 1
        if self.whole is not None:
            self.whole.expire(state)

    def depart(self, state: State) -> None:
        """Count a task that left for another tube; ``count`` counts its transition."""
        self.departures[state] += 1
        if self.whole is not None:
            self.whole.depart(state)

    def arrive(self, state: State) -> None:
        """Count a task that arrived from another tube; ``count`` counts its transition."""
        self.arrivals[state] += 1
        if self.whole is not None:
            self.whole.arrive(state)

    def resize(self, payload_bytes: int) -> None:
        """Add bytes of content; negative if content was removed."""
        self.payload_bytes += payload_bytes
        if self.whole is not None:
            self.whole.resize(payload_bytes)

    def count(
        self,
        kind: EventKind,
        from_state: State,
        to_state: State,
        tasks: int,
        payload_bytes: int = 0,
    ) -> None:
        """Count tasks that changed state, and add ``payload_bytes`` (negative: removed)."""
        place = from_state * STATE_COUNT + to_state
        is_end = _IS_END[place] and kind is not EventKind.MOVE
        counters: TubeCounters | None = self
        while counters is not None:
            states = counters.states
            states[from_state] -= tasks
            states[to_state] += tasks
            states[GONE] = 0
            counters.calls[kind] += tasks
            counters.transitions[place] += tasks
            counters.payload_bytes += payload_bytes
            if is_end:
                counters.finished += tasks
            counters = counters.whole

    def emptied(self) -> TubeCounters:
        """Return the counters after the removal of all tasks."""
        counters = TubeCounters()
        for name, _ in _PARTS:
            if name != "states":
                setattr(counters, name, list(getattr(self, name)))
        counters.calls[EventKind.TRUNCATE] += sum(self.states)
        counters.finished = self.finished
        counters.before = self.before
        for state in STATES:
            counters.transitions[state * STATE_COUNT + GONE] += self.states[state]
        return counters

    def record(self) -> bytes:
        """Return the counters as bytes for the record of the tube."""
        return _record.pack(
            *self.states,
            *self.calls,
            *self.noted,
            *self.expired,
            *self.transitions,
            *self.departures,
            *self.arrivals,
            self.payload_bytes,
            self.finished,
        )

    @classmethod
    def read(cls, record: bytes, start: int) -> tuple[TubeCounters, int]:
        """Decode the counters in the record of a tube; return the counters and the end position."""
        numbers = list(_record.unpack_from(record, start))
        counters = cls()
        for (name, length), end in zip(_PARTS, _ENDS, strict=True):
            setattr(counters, name, numbers[end - length : end])
        counters.payload_bytes, counters.finished = numbers[-2:]
        counters.begin()
        return counters, start + _record.size

    @classmethod
    def sum_of(cls, tubes: Sequence[TubeCounters]) -> TubeCounters:
        """Return the sums over many tubes, column by column."""
        total = cls()
        if tubes:
            for name, _ in _PARTS:
                setattr(total, name, list(_sums([getattr(one, name) for one in tubes])))
            total.payload_bytes = sum(one.payload_bytes for one in tubes)
            total.finished = sum(one.finished for one in tubes)
            before = [one.before for one in tubes]
            total.before = OperationCounts(
                tuple(_sums([one.by_kind for one in before])),
                tuple(_sums([one.noted for one in before])),
                tuple(_sums([one.expired for one in before])),
                sum(one.finished for one in before),
            )
        return total


def _sums(rows: Sequence[Sequence[int]]) -> Iterator[int]:
    """Return the sum of each column."""
    return map(sum, zip(*rows, strict=True))


@value
class OperationCounts:
    """Counts of operations.

    Attributes:
        by_kind: tasks by kind of event.
        noted: operations by ``CountedOperation``.
        expired: tasks whose time to live ended, by state.
        finished: tasks that were acknowledged, failed for good, deleted or expired, kept or not.
            Tasks that a truncation or a drop of their tube removed are not counted.
    """

    by_kind: tuple[int, ...]
    noted: tuple[int, ...]
    expired: tuple[int, ...]
    finished: int

    def plus(self, other: OperationCounts, sign: int = 1) -> OperationCounts:
        """Return the sum with other counts, or (``sign`` -1) the difference."""

        def joined(mine: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(one + sign * two for one, two in zip(mine, others, strict=True))

        return OperationCounts(
            joined(self.by_kind, other.by_kind),
            joined(self.noted, other.noted),
            joined(self.expired, other.expired),
            self.finished + sign * other.finished,
        )
