"""Present the counters of tubes as values, and keep the totals of all tubes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from taskraft_service.queue.entities.task_state import GONE, STATES, State
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_counters import STATE_COUNT, OperationCounts, TubeCounters
from taskraft_service.queue.values import value


@value
class TransitionCount:
    """Number of tasks that went from one state to another.

    GONE stands for a task that does not exist, or (``crossing``) for another tube.
    """

    from_state: State
    to_state: State
    count: int
    crossing: bool = False


@value
class TubeStatistics:
    """Counts of one tube, or of all tubes together (``tube`` is empty).

    ``calls`` counts since the tube was created, ``fresh`` since the start of the current
    leadership. ``oldest_ready_ms`` is the instant since which the oldest READY task has been ready
    (see ``ReadyAgeHistogram``); 0 if there is none.
    """

    tube: str
    states: Mapping[State, int]
    calls: OperationCounts
    fresh: OperationCounts
    transitions: tuple[TransitionCount, ...]
    payload_bytes: int
    oldest_ready_ms: int

    @property
    def total(self) -> int:
        """Return the number of tasks in all states."""
        return sum(self.states.values())

    def plus(self, other: TubeStatistics) -> TubeStatistics:
        """Return the sums of two statistics."""
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
            tuple(
                TransitionCount(was, is_, count, over) for (was, is_, over), count in moves.items()
            ),
            self.payload_bytes + other.payload_bytes,
            min(oldest, default=0),
        )


def statistics_of(tube: str, counters: TubeCounters, oldest_ready_ms: int) -> TubeStatistics:
    """Return the statistics of a tube's counters."""
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


def _transitions(counters: TubeCounters) -> Iterator[TransitionCount]:
    """Yield the transitions; moves between tubes are counted apart from puts and ends."""
    departures, arrivals = counters.departures, counters.arrivals
    for place, count in enumerate(counters.transitions):
        from_state, to_state = STATES[place // STATE_COUNT], STATES[place % STATE_COUNT]
        crossed = 0
        if to_state is GONE:
            crossed = departures[from_state]
        elif from_state is GONE:
            crossed = arrivals[to_state]
        if count > crossed:
            yield TransitionCount(from_state, to_state, count - crossed)
        if crossed:
            yield TransitionCount(from_state, to_state, crossed, crossing=True)


def total_statistics(tubes: Sequence[QueueTube]) -> TubeStatistics:
    """Return the sums over some tubes, in time proportional to their number."""
    oldest_ready = (tube.ages.oldest_ms for tube in tubes)
    oldest_ready_ms = min((at for at in oldest_ready if at), default=0)
    return statistics_of(
        "", TubeCounters.sum_of([tube.counters for tube in tubes]), oldest_ready_ms
    )


class TubeTotals:
    """The counters of all tubes together, and the age of the oldest READY task.

    The totals are not replicated, because each node computes them from its tubes.

    For the age, a heap has one entry per tube with READY tasks: the time since which the oldest
    task of the tube was READY at the last check. This time never decreases, so an entry is never
    later than the current value. A query corrects outdated entries at the top of the heap, until
    the top entry is correct.
    """

    __slots__ = ("_heap", "_tubes", "counters", "noted")

    def __init__(self, tubes: Mapping[int, QueueTube]) -> None:
        """Start with counts of 0; ``tubes`` has the tubes by number."""
        self._tubes = tubes
        self.counters = TubeCounters()
        self._heap: list[tuple[int, int]] = []
        """Instant since which the oldest task has been ready, and number of the tube."""
        self.noted: set[int] = set()

    def restore(self) -> None:
        """Count all tubes after the store was opened."""
        self.counters = TubeCounters.sum_of([tube.counters for tube in self._tubes.values()])
        for tube in self._tubes.values():
            tube.counters.whole = self.counters
            self.note_ready(tube)

    def add(self, tube: QueueTube) -> None:
        """Add the counters of a new tube."""
        tube.counters.join(self.counters)
        self.note_ready(tube)

    def remove(self, tube: QueueTube) -> None:
        """Subtract the counters of a removed tube; takes time linear in the number of tubes."""
        tube.counters.leave()
        if tube.number in self.noted:
            self.noted.remove(tube.number)
            self._heap = [entry for entry in self._heap if entry[1] != tube.number]
            heapify(self._heap)

    def begin(self) -> None:
        """Restart the counts of the current leadership."""
        for tube in self._tubes.values():
            tube.counters.begin()
        self.counters.begin()

    def note_ready(self, tube: QueueTube) -> None:
        """Record that a tube may have READY tasks."""
        if tube.number not in self.noted and (since_ms := tube.ages.oldest_ms):
            self.noted.add(tube.number)
            heappush(self._heap, (since_ms, tube.number))

    def statistics(self) -> TubeStatistics:
        """Return the statistics of all tubes together."""
        return statistics_of("", self.counters, self._oldest_ms())

    def _oldest_ms(self) -> int:
        """Return when the oldest READY task became ready; 0 if there is none."""
        heap = self._heap
        while heap:
            noted_ms, number = heap[0]
            since_ms = self._tubes[number].ages.oldest_ms
            if since_ms == noted_ms:
                return since_ms
            if since_ms:
                heapreplace(heap, (since_ms, number))
            else:
                heappop(heap)
                self.noted.remove(number)
        return 0
