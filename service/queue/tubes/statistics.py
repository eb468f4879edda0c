"""Count the tasks of a tube by state, by operation and by transition."""

from __future__ import annotations

from enum import IntEnum, unique
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final

from service.queue.commands import State
from service.queue.life_cycle import FINISHED, GONE, STATES, EventKind
from service.queue.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

STATE_COUNT: Final = len(STATES)
KIND_COUNT: Final = max(EventKind) + 1


@unique
class Call(IntEnum):
    """What is counted besides kinds of events: ways in which they come about, and what has none.

    URGENT: puts to the front; REQUEUE: releases to the back; DONE: acknowledged tasks that are
    kept; DIG: kicks of chosen tasks. TAKE_TIMEOUT: takes that found nothing in time; PEEK and META:
    tasks that were looked at, with and without their payloads: the leader tells of these three.
    """

    URGENT = 0
    REQUEUE = 1
    DONE = 2
    DIG = 3
    TAKE_TIMEOUT = 4
    PEEK = 5
    META = 6


CALL_COUNT: Final = len(Call)


_IS_END: Final = tuple(
    from_state not in FINISHED and (to_state is GONE or to_state in FINISHED)
    for from_state in STATES
    for to_state in STATES
)
"""By transition: whether a task that makes it has ended, if it has not gone to another tube."""


_PARTS: Final = (
    ("states", STATE_COUNT),
    ("calls", KIND_COUNT),
    ("noted", CALL_COUNT),
    ("expired", STATE_COUNT),
    ("transitions", STATE_COUNT * STATE_COUNT),
    ("departures", STATE_COUNT),
    ("arrivals", STATE_COUNT),
)
"""The lists of counters in the order in which they are written, with their lengths."""
_ENDS: Final = tuple(accumulate(length for _, length in _PARTS))
_record = Struct(f">{_ENDS[-1] + 2}Q")


class Counters:
    """Counters of one tube: lists of numbers, so that a batch costs a few additions.

    ``states`` by state; ``calls`` by kind of event; ``noted`` by ``Call``; ``expired``: ends of the
    time to live by state; ``transitions`` by ``from_state * 8 + to_state``; ``departures`` and
    ``arrivals``: those of them, by the state left or entered, where nothing was another tube;
    ``finished``: tasks that ended, once each time that they do. ``before``: the calls when the
    leadership began; each node's own, not part of the state.
    """

    RECORD_BYTES: ClassVar[int] = _record.size
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
    )

    def __init__(self) -> None:
        """Count from zero."""
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

    def all_calls(self) -> Calls:
        """Return the calls since the tube was created."""
        return Calls(tuple(self.calls), tuple(self.noted), tuple(self.expired), self.finished)

    def begin(self) -> None:
        """Count the calls of a new leadership from here."""
        self.before = self.all_calls()

    def note(self, call: Call, tasks: int = 1) -> None:
        """Count what no kind of event tells."""
        self.noted[call] += tasks

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
        """Return the counters as they are written with the tube."""
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
    def read(cls, record: bytes, start: int) -> Counters:
        """Return the counters out of a tube's record."""
        numbers = list(_record.unpack_from(record, start))
        counters = cls()
        for (name, length), end in zip(_PARTS, _ENDS, strict=True):
            setattr(counters, name, numbers[end - length : end])
        counters.payload_bytes, counters.finished = numbers[-2:]
        counters.begin()
        return counters

    @classmethod
    def sum_of(cls, tubes: Sequence[Counters]) -> Counters:
        """Return the sums over tubes, column by column: there may be very many tubes."""
        total = cls()
        if tubes:
            for name, _ in _PARTS:
                setattr(total, name, list(_sums([getattr(one, name) for one in tubes])))
            total.payload_bytes = sum(one.payload_bytes for one in tubes)
            total.finished = sum(one.finished for one in tubes)
            before = [one.before for one in tubes]
            total.before = Calls(
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
class Calls:
    """Counts of operations: ``by_kind`` of event, ``noted`` by ``Call``, ``expired`` by state.

    ``finished``: tasks that ended, kept or not: acknowledged, failed for good, deleted or expired;
    not those that went with their tube's content.
    """

    by_kind: tuple[int, ...]
    noted: tuple[int, ...]
    expired: tuple[int, ...]
    finished: int

    def plus(self, other: Calls, sign: int = 1) -> Calls:
        """Return the sum with other counts, or (``sign`` -1) the difference."""

        def joined(mine: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(one + sign * two for one, two in zip(mine, others, strict=True))

        return Calls(
            joined(self.by_kind, other.by_kind),
            joined(self.noted, other.noted),
            joined(self.expired, other.expired),
            self.finished + sign * other.finished,
        )


@value
class Transition:
    """How often tasks went from one state to another.

    GONE stands for nothing, or, where it is ``crossing``, for another tube.
    """

    from_state: State
    to_state: State
    count: int
    crossing: bool = False


@value
class TubeStatistics:
    """Counts of one tube, or of all (``tube`` empty).

    ``calls`` since the tube was created, ``fresh`` since the present leader began.
    ``oldest_ready_ms``: since when the oldest ready task has been ready, see ``Ages``; 0: none is.
    """

    tube: str
    states: Mapping[State, int]
    calls: Calls
    fresh: Calls
    transitions: tuple[Transition, ...]
    payload_bytes: int
    oldest_ready_ms: int

    @property
    def total(self) -> int:
        """Return the number of tasks in all states."""
        return sum(self.states.values())

    def plus(self, other: TubeStatistics) -> TubeStatistics:
        """Return the counts of both together."""
        moves: dict[tuple[State, State, bool], int] = {}
        for one in (*self.transitions, *other.transitions):
            move = (one.from_state, one.to_state, one.crossing)
            moves[move] = moves.get(move, 0) + one.count
        oldest = [at for at in (self.oldest_ready_ms, other.oldest_ready_ms) if at]
        return TubeStatistics(
            "",
            {state: count + other.states[state] for state, count in self.states.items()},
            self.calls.plus(other.calls),
            self.fresh.plus(other.fresh),
            tuple(Transition(was, is_, count, over) for (was, is_, over), count in moves.items()),
            self.payload_bytes + other.payload_bytes,
            min(oldest, default=0),
        )


def statistics_of(tube: str, counters: Counters, oldest_ready_ms: int) -> TubeStatistics:
    """Return counters as they are shown."""
    calls = counters.all_calls()
    return TubeStatistics(
        tube,
        {state: counters.states[state] for state in STATES if state is not GONE},
        calls,
        calls.plus(counters.before, -1),
        tuple(_transitions(counters)),
        counters.payload_bytes,
        oldest_ready_ms,
    )


def _transitions(counters: Counters) -> Iterator[Transition]:
    """Yield what tasks did, those that crossed tubes apart from those that came and went."""
    departures, arrivals = counters.departures, counters.arrivals
    for place, count in enumerate(counters.transitions):
        from_state, to_state = STATES[place // STATE_COUNT], STATES[place % STATE_COUNT]
        crossed = 0
        if to_state is GONE:
            crossed = departures[from_state]
        elif from_state is GONE:
            crossed = arrivals[to_state]
        if count > crossed:
            yield Transition(from_state, to_state, count - crossed)
        if crossed:
            yield Transition(from_state, to_state, crossed, crossing=True)


def total_statistics(
    all_counters: Sequence[Counters], oldest_ready: Iterable[int]
) -> TubeStatistics:
    """Return the sum over tubes."""
    oldest_ready_ms = min((at for at in oldest_ready if at), default=0)
    return statistics_of("", Counters.sum_of(all_counters), oldest_ready_ms)
