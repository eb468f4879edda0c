"""Hold the tubes by name and number, the tubes to write, and the totals of all tubes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_counters import TubeCounters
from taskraft_service.queue.entities.tube_driver import TubeDriver, driver_of
from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.state.tube_statistics import TubeStatistics, statistics_of
from taskraft_service.queue.store.keys import tube_key
from taskraft_service.queue.store.store import Write


class TubeRegistry(dict[str, "QueueTube"]):
    """The tubes by name, without truncated and dropped ones: a dictionary only its methods change.

    ``used`` has the tubes that changed before the last batch of writes; ``number`` is the number of
    the newest tube. ``temporary`` has the names of the temporary tubes.
    """

    __slots__ = (
        "_dirty",
        "_ended",
        "by_number",
        "drivers",
        "number",
        "temporary",
        "totals",
        "used",
    )

    def __init__(self, drivers: Mapping[str, TubeDriver], number: int) -> None:
        """Start empty; the first tube gets the number after ``number``."""
        super().__init__()
        self.by_number: dict[int, QueueTube] = {}
        self.number = number
        self.drivers = drivers
        self.totals = TubeTotals(self.by_number)
        self.temporary: dict[str, None] = {}
        self._dirty: list[QueueTube] = []
        self.used: list[QueueTube] = []
        self._ended: list[QueueTube] = []

    def find(self, name: str) -> QueueTube | Refusal:
        """Return a tube, or a refusal."""
        tube = self.get(name)
        if tube is None:
            return Refusal(Reason.TUBE_NOT_FOUND, f"no tube is called {name!r}", {"tube": name})
        return tube

    def admit(self, tube: QueueTube) -> None:
        """Add a tube by name and number, and give a CUSTOM tube its driver.

        Raises:
            TubeDriverMissing: the driver is not installed on this node.
        """
        if tube.kind is TubeKind.CUSTOM:
            tube.custom = driver_of(self.drivers, tube.name, tube.driver, tube.driver_version)
        self[tube.name] = tube
        self.by_number[tube.number] = tube
        if tube.is_temporary:
            self.temporary[tube.name] = None

    def add(self, tube: QueueTube) -> None:
        """Add a new tube."""
        self.admit(tube)
        self.totals.add(tube)
        self.touch(tube)

    def remove(self, tube: QueueTube) -> None:
        """Remove a tube that is truncated or dropped."""
        del self[tube.name]
        del self.by_number[tube.number]
        self.totals.remove(tube)
        self.temporary.pop(tube.name, None)
        self._ended.append(tube)

    def touch(self, tube: QueueTube) -> None:
        """Note that a tube differs from its record."""
        if not tube.dirty:
            tube.dirty = True
            self._dirty.append(tube)

    def collect_ended(self, writes: list[Write]) -> None:
        """Append the deletion of the records of removed tubes to ``writes``."""
        for tube in self._ended:
            writes.append((tube_key(tube.number), None))
            if tube.written:
                writes.append((tube.written, None))
        self._ended.clear()

    def fetch_changed(self) -> Sequence[QueueTube]:
        """Return the tubes that differ from their records; the caller writes them now."""
        for tube in self._dirty:
            tube.dirty = False
        self.used = [tube for tube in self._dirty if tube.number in self.by_number]
        self._dirty.clear()
        return self.used


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
