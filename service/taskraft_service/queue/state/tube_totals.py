"""Sum the counters of all tubes as they change, so that reading the sums takes constant time."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace

from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_counters import TubeCounters
from taskraft_service.queue.state.tube_statistics import TubeStatistics, statistics_of


class TubeTotals:
    """The counters of all tubes together, and the age of the oldest READY task.

    Each node has its own totals; they are not replicated, because they follow from the tubes.

    For the age, a heap has one entry per tube with READY tasks: since when the oldest task of the
    tube had been ready when the tube was last looked at. The oldest task of a tube can only become
    younger, so an entry is never too late. The first entry that is still right is the answer; the
    entries before it are corrected, once for each change.
    """

    __slots__ = ("_heap", "_tubes", "counters", "noted")

    def __init__(self, tubes: Mapping[int, QueueTube]) -> None:
        """Start with counts of 0; ``tubes`` has the tubes by number."""
        self._tubes = tubes
        self.counters = TubeCounters()
        self._heap: list[tuple[int, int]] = []
        """Instant since when the oldest task has been ready, and number of the tube."""
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
        """Restart the counts of the present leadership."""
        for tube in self._tubes.values():
            tube.counters.begin()
        self.counters.begin()

    def note_ready(self, tube: QueueTube) -> None:
        """Note that a tube may have READY tasks."""
        if tube.number not in self.noted and (since_ms := tube.ages.oldest_ms):
            self.noted.add(tube.number)
            heappush(self._heap, (since_ms, tube.number))

    def statistics(self) -> TubeStatistics:
        """Return the statistics of all tubes together."""
        return statistics_of("", self.counters, self._oldest_ms())

    def _oldest_ms(self) -> int:
        """Return since when the oldest READY task has been ready; 0 if there is none."""
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
