"""Keep an ordered set whose least entries are in memory and whose rest is in the store.

This is what lets memory follow the work in hand instead of the backlog. The index itself writes
nothing: its owner writes the key of every entry that lives long enough to be collected, and says
``flushed`` when the store has caught up. Between two flushes the index remembers what the store
does not know yet, so that reading on from the store is right at any moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush, merge
from itertools import islice
from operator import lt
from typing import Final, TypeAlias

OrderKey: TypeAlias = tuple[int, ...]
"""Compared element by element; entries of one index have one length."""

NOTHING: Final[OrderKey] = ()
"""Less than every entry."""

STALE_MIN: Final = 64
"""So many stale entries are not worth a compaction."""


class OrderedIndex:
    """An ordered set of entries, read from the store as far as it is needed.

    Entries up to ``bound`` are in memory: those that came in order in ``run``, others in ``heap``.
    Both may hold stale entries; ``members`` tells which are real. ``bound`` None: all entries are
    in memory. Entries above it are in the store, unless ``added`` or ``removed`` say that it is
    behind.
    """

    __slots__ = ("_added", "_bound", "_heap", "_members", "_removed", "_run", "_scan", "head_max")

    def __init__(
        self, scan: Callable[[OrderKey], Iterator[OrderKey]], head_max: int, *, stored: bool
    ) -> None:
        """Start empty, or (``stored``) with what ``scan`` yields: the stored entries above one."""
        self._scan = scan
        self.head_max = head_max
        self._bound: OrderKey | None = NOTHING if stored else None
        self._run: deque[OrderKey] = deque()
        self._heap: list[OrderKey] = []
        self._members: set[OrderKey] = set()
        self._added: set[OrderKey] = set()
        self._removed: list[OrderKey] = []

    def add(self, entry: OrderKey) -> None:
        """Add an entry; harmless where it is there already."""
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
        """Add entries; those that come in order, behind the others, cost next to nothing."""
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
        """Remove an entry; harmless where it is not there."""
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
        """Remove and return up to so many of the least entries; none: there is none left."""
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
        """Add an entry that was popped; if nothing was removed since, as if it had not been."""
        if self._removed and self._removed[-1] == entry:
            self._removed.pop()
        self.add(entry)

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return about so many of the least entries, read from the store where need be.

        As a rule in order; of what came out of order some may be missing.
        """
        count = min(count, self.head_max // 2)
        if self._bound is not None and len(self._members) < count:
            self._refill()
        members = self._members
        if len(self._run) == len(members) and not self._heap:  # nothing is stale
            return list(islice(self._run, count))
        entries = [entry for entry in islice(self._run, count) if entry in members]
        return entries or [entry for entry in islice(self._heap, count) if entry in members]

    def members(self) -> Iterable[OrderKey]:
        """Return the entries that are in memory, in no order."""
        return self._members

    def is_head(self, entry: OrderKey) -> bool:
        """Tell whether an entry with this key is, or would be, in memory."""
        return self._bound is None or entry <= self._bound

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries above one in order.

        The index must not change meanwhile.
        """
        yield from sorted(entry for entry in self._members if entry > after)
        if self._bound is not None:
            yield from self._tail(max(after, self._bound))

    def in_memory_until(self, last: OrderKey) -> Iterator[OrderKey]:
        """Yield the entries in memory up to one, in no order, some perhaps twice."""
        members = self._members
        for entry in self._run:
            if entry > last:
                break
            if entry in members:
                yield entry
        # No entry of a heap is less than its parent: below one that is too great is nothing.
        heap, places = self._heap, [0]
        while places:
            place = places.pop()
            if place < len(heap) and heap[place] <= last:
                if heap[place] in members:
                    yield heap[place]
                places += (2 * place + 1, 2 * place + 2)

    def flushed(self) -> Iterable[OrderKey]:
        """Take note that the store has every change; return the entries that left memory by it."""
        left, self._added = self._added, set()
        self._removed.clear()
        return left

    def _tail(self, above: OrderKey) -> Iterator[OrderKey]:
        """Yield the entries above one that is not below the bound, in order."""
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
        """Read the next half head behind what is in memory."""
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
        """Let go of the greater half of the head."""
        entries = sorted(self._members)
        keep = entries[: len(entries) // 2]
        self._added.update(entries[len(keep) :])
        self._bound = keep[-1]
        self._run.clear()
        self._run.extend(keep)
        self._heap.clear()
        self._members = set(keep)
