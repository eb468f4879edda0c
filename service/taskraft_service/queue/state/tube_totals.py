"""Keep what all tubes count together, so that reading it does not ask each of them."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace

from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_counters import TubeCounters
from taskraft_service.queue.state.tube_statistics import TubeStatistics, statistics_of


class TubeTotals:
    """The counters of all tubes within reach, and the age of their oldest ready task.

    Each node's own, not part of the state: they follow from those of the tubes, which count along
    here (once per batch, as they do themselves).

    For the age a heap has one entry for each tube that has had ready tasks since it was last looked
    at: since when its oldest was ready then. What is oldest in a tube only becomes younger, so an
    entry is never too late; the first one that is still right is the answer, and those before it
    are put right, once for each change.
    """

    __slots__ = ("_heap", "_tubes", "counters", "noted")

    def __init__(self, tubes: Mapping[int, QueueTube]) -> None:
        """Begin with none of ``tubes``, which has those within reach by their numbers."""
        self._tubes = tubes
        self.counters = TubeCounters()
        self._heap: list[tuple[int, int]] = []
        """When the oldest task became ready, and the number of the tube."""
        self.noted: set[int] = set()

    def restore(self) -> None:
        """Count all tubes from the beginning, at the opening of a store."""
        self.counters = TubeCounters.sum_of([tube.counters for tube in self._tubes.values()])
        for tube in self._tubes.values():
            tube.counters.whole = self.counters
            self.note_ready(tube)

    def add(self, tube: QueueTube) -> None:
        """Count a tube that has come within reach."""
        tube.counters.join(self.counters)
        self.note_ready(tube)

    def remove(self, tube: QueueTube) -> None:
        """Forget a tube that is out of reach; takes time in proportion to the number of tubes."""
        tube.counters.leave()
        if tube.number in self.noted:
            self.noted.remove(tube.number)
            self._heap = [entry for entry in self._heap if entry[1] != tube.number]
            heapify(self._heap)

    def begin(self) -> None:
        """Count the calls of a new leadership from here."""
        for tube in self._tubes.values():
            tube.counters.begin()
        self.counters.begin()

    def note_ready(self, tube: QueueTube) -> None:
        """Take note that a tube may have ready tasks."""
        if tube.number not in self.noted and (since_ms := tube.ages.oldest_ms):
            self.noted.add(tube.number)
            heappush(self._heap, (since_ms, tube.number))

    def statistics(self) -> TubeStatistics:
        """Return what all tubes have counted, whatever their number."""
        return statistics_of("", self.counters, self._oldest_ms())

    def _oldest_ms(self) -> int:
        """Return since when the oldest task has been ready; 0: there is none."""
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
