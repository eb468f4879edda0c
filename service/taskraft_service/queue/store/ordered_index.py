"""Implement an ordered set with its lowest entries in memory and the others in the store.

Memory use therefore does not grow with the backlog. The index itself does not write. Its owner
writes the keys of the entries in batches, and calls ``flushed`` when the store has every change.
Between two flushes the index remembers the changes that are not in the store yet, so that reads
from the store can be corrected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush, merge
from itertools import islice
from operator import lt
from typing import Final, TypeAlias

OrderKey: TypeAlias = tuple[int, ...]
"""Entry of an index, compared element by element; the entries of one index have equal lengths."""

NOTHING: Final[OrderKey] = ()
"""Less than every entry."""

STALE_MIN: Final = 64
"""Minimum number of stale entries before a compaction."""


class OrderedIndex:
    """An ordered set of entries that loads entries from the store when they are needed.

    Entries up to ``_bound`` (the head) are in memory: ``_run`` has the entries that were added in
    order, ``_heap`` the other entries. Both can contain stale entries; ``_members`` has exactly the
    valid entries. ``_bound`` None: all entries are in memory. Entries above ``_bound`` are in the
    store; ``_added`` and ``_removed`` hold the changes since the last flush.
    """

    __slots__ = ("_added", "_bound", "_heap", "_members", "_removed", "_run", "_scan", "head_max")

    def __init__(
        self, scan: Callable[[OrderKey], Iterator[OrderKey]], head_max: int, *, stored: bool
    ) -> None:
        """Create an empty index, or (``stored``) an index of the entries that ``scan`` yields."""
        self._scan = scan
        self.head_max = head_max
        self._bound: OrderKey | None = NOTHING if stored else None
        self._run: deque[OrderKey] = deque()
        self._heap: list[OrderKey] = []
        self._members: set[OrderKey] = set()
        self._added: set[OrderKey] = set()
        self._removed: list[OrderKey] = []

    def add(self, entry: OrderKey) -> None:
        """Add an entry; no effect if the set already contains the entry."""
        bound = self._bound
        if bound is not None and entry > bound:
            self._added.add(entry)
            return
        members = self._members
        members.add(entry)
        run = self._run
        if run and entry < run[-1]:
            heappush(self._heap, entry)
        else:
            run.append(entry)
        if len(members) > self.head_max:
            self._spill()

    def add_all(self, entries: Sequence[OrderKey]) -> None:
        """Add entries; fast for sorted entries above all existing entries."""
        if not entries:
            return
        run, bound = self._run, self._bound
        if len(entries) > 1 and not all(map(lt, entries, islice(entries, 1, None))):
            for entry in entries:
                self.add(entry)
        elif bound is not None and entries[0] > bound:
            self._added.update(entries)
        elif bound is not None or (run and entries[0] < run[-1]):
            for entry in entries:
                self.add(entry)
        else:
            run.extend(entries)
            self._members.update(entries)
            if len(self._members) > self.head_max:
                self._spill()

    def discard(self, entry: OrderKey) -> None:
        """Remove an entry; no effect if the entry is not in the set."""
        self._removed.append(entry)
        if not self.is_head(entry):
            self._added.discard(entry)
            return
        members = self._members
        members.discard(entry)
        if len(self._run) + len(self._heap) > 2 * len(members) + STALE_MIN:
            self._run = deque(sorted(members))
            self._heap.clear()

    def least(self) -> OrderKey | None:
        """Return the least entry, or None."""
        run, heap, members = self._run, self._heap, self._members
        while True:
            if run and (not heap or run[0] <= heap[0]):
                if run[0] in members:
                    return run[0]
                run.popleft()
            elif heap:
                if heap[0] in members:
                    return heap[0]
                heappop(heap)
            elif self._bound is None:
                return None
            else:
                self._refill()

    def pop_least(self) -> OrderKey | None:
        """Remove and return the least entry, or None."""
        run, heap, members = self._run, self._heap, self._members
        while True:
            if run and (not heap or run[0] <= heap[0]):
                entry = run.popleft()
            elif heap:
                entry = heappop(heap)
            elif self._bound is None:
                return None
            else:
                self._refill()
                continue
            if entry in members:
                members.remove(entry)
                self._removed.append(entry)
                return entry

    def pop_many(self, count: int) -> list[OrderKey]:
        """Remove and return up to ``count`` of the lowest entries; empty if the set is empty."""
        if not self._members and self._bound is not None:
            self._refill()
        run, heap, members = self._run, self._heap, self._members
        popped: list[OrderKey] = []
        while run and len(popped) < count and (not heap or run[0] <= heap[0]):
            entry = run.popleft()
            if entry in members:
                members.remove(entry)
                popped.append(entry)
        self._removed += popped
        if popped or count <= 0:
            return popped
        least = self.pop_least()
        return [] if least is None else [least]

    def put_back(self, entry: OrderKey) -> None:
        """Add an entry that was popped; cancel its removal if this is the latest removal."""
        if self._removed and self._removed[-1] == entry:
            self._removed.pop()
        self.add(entry)

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return about ``count`` of the lowest entries; load entries from the store if needed.

        The result is an estimate: entries that were added out of order may be missing or unsorted.
        """
        count = min(count, self.head_max // 2)
        if self._bound is not None and len(self._members) < count:
            self._refill()
        members = self._members
        if len(self._run) == len(members) and not self._heap:  # no entry is stale
            return list(islice(self._run, count))
        entries = [entry for entry in islice(self._run, count) if entry in members]
        return entries or [entry for entry in islice(self._heap, count) if entry in members]

    def members(self) -> Iterable[OrderKey]:
        """Return the entries that are in memory, unordered."""
        return self._members

    def is_head(self, entry: OrderKey) -> bool:
        """Return whether an entry belongs to the head, the part of the index that is in memory."""
        return self._bound is None or entry <= self._bound

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries above ``after`` in order.

        The index must not change during the iteration.
        """
        yield from sorted(entry for entry in self._members if entry > after)
        if self._bound is not None:
            yield from self._tail(max(after, self._bound))

    def in_memory_until(self, last: OrderKey) -> Iterator[OrderKey]:
        """Yield the entries in memory up to ``last``, unordered and with possible duplicates."""
        members = self._members
        for entry in self._run:
            if entry > last:
                break
            if entry in members:
                yield entry
        # A heap entry is at least its parent, so skip the children of an entry above `last`.
        heap, places = self._heap, [0]
        while places:
            place = places.pop()
            if place < len(heap) and heap[place] <= last:
                if heap[place] in members:
                    yield heap[place]
                places += (2 * place + 1, 2 * place + 2)

    def flushed(self) -> Iterable[OrderKey]:
        """Record that the store has every change; return the added entries that left memory."""
        left, self._added = self._added, set()
        self._removed.clear()
        return left

    def _tail(self, above: OrderKey) -> Iterator[OrderKey]:
        """Yield the entries above ``above`` in order; ``above`` must not be below the bound."""
        if not self._added and not self._removed:
            yield from self._scan(above)
            return
        removed = set(self._removed)
        stored = (entry for entry in self._scan(above) if entry not in removed)
        added = sorted(entry for entry in self._added if entry > above)
        last = None
        for entry in merge(added, stored):
            if entry != last:
                yield entry
            last = entry

    def _refill(self) -> None:
        """Load the next ``head_max // 2`` entries above the bound."""
        assert self._bound is not None
        tail = self._tail(self._bound)
        room = max(self.head_max // 2, 1)
        entries = list(islice(tail, room))
        more = len(entries) == room and next(tail, None) is not None
        self._bound = entries[-1] if more else None
        self._run.extend(entries)
        self._members.update(entries)
        if more:
            self._added.difference_update(entries)
        else:
            self._added.clear()

    def _spill(self) -> None:
        """Drop the greater half of the head from memory."""
        entries = sorted(self._members)
        keep = entries[: len(entries) // 2]
        self._added.update(entries[len(keep) :])
        self._bound = keep[-1]
        self._run.clear()
        self._run.extend(keep)
        self._heap.clear()
        self._members = set(keep)
