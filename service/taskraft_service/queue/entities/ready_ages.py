"""Find the age of the oldest ready task of a tube, in whatever order tasks are taken.

An exponential histogram (Datar, Gionis, Indyk, Motwani: "Maintaining Stream Statistics over Sliding
Windows", SIAM J. Comput. 2002): ready tasks are counted in slots of time, short for young tasks and
long for old tasks. A backlog of any size and age therefore needs a bounded number of slots. A task
behind more urgent tasks keeps its slot, so the age of the oldest task is visible.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from struct import Struct
from typing import Final

PRECISION: Final = 16
"""A slot spans at most 1/16 of the age of its tasks: the reported age is at most 1/16 too high."""

FRESH_SLOTS_MAX: Final = 256
"""Number of new slots after which slots are joined; joining scans all slots."""

_head = Struct(">HH")


class ReadyAgeHistogram:
    """The ready tasks of one tube, counted by the instant at which they became ready.

    ``_since`` has the starts of the slots, ascending; a slot ends where the next one starts.
    ``_tasks`` has the number of tasks of each slot; no slot is empty.
    """

    __slots__ = ("_fresh", "_since", "_tasks")

    def __init__(self) -> None:
        """Start without tasks."""
        self._since: list[int] = []
        self._tasks: list[int] = []
        self._fresh = 0

    @property
    def oldest_ms(self) -> int:
        """Return the instant since which the oldest task is ready; 0: no task is ready."""
        return self._since[0] if self._since else 0

    def add(self, now_ms: int, tasks: int = 1) -> None:
        """Count tasks that became ready now."""
        if not tasks:
            return
        since = self._since
        if since and since[-1] == now_ms:
            self._tasks[-1] += tasks
            return
        assert not since or since[-1] < now_ms, "the queue's clock went back"
        since.append(now_ms)
        self._tasks.append(tasks)
        self._fresh += 1
        if self._fresh == FRESH_SLOTS_MAX:
            self._join(now_ms)

    def remove(self, since_ms: int, tasks: int = 1) -> None:
        """Remove tasks that became ready at ``since_ms`` and are no longer ready."""
        place = bisect_right(self._since, since_ms) - 1
        assert place >= 0, f"no task has been ready since {since_ms}"
        self._tasks[place] -= tasks
        if self._tasks[place] <= 0:
            assert self._tasks[place] == 0, f"more tasks left than were ready since {since_ms}"
            del self._since[place], self._tasks[place]

    def remove_all(self, since_ms: Sequence[int]) -> None:
        """Remove tasks that are no longer ready; ``since_ms`` has one instant for each task."""
        first = since_ms[0]
        if since_ms.count(first) == len(since_ms):  # usual case: one put
            self.remove(first, len(since_ms))
            return
        for since, tasks in Counter(since_ms).items():
            self.remove(since, tasks)

    def _join(self, now_ms: int) -> None:
        """Join the slots of tasks that are old enough for the lower precision.

        The precision only falls with age, so joined slots stay joined.
        """
        since, tasks = self._since, self._tasks
        ends = [*since[1:], now_ms]
        joined_since, joined_tasks = since[:1], tasks[:1]
        for begin, end, count in zip(since[1:], ends[1:], tasks[1:], strict=True):
            if (end - joined_since[-1]) * PRECISION <= now_ms - end:
                joined_tasks[-1] += count
            else:
                joined_since.append(begin)
                joined_tasks.append(count)
        self._since, self._tasks = joined_since, joined_tasks
        self._fresh = 0

    def record(self) -> bytes:
        """Return the slots as bytes for the record of the tube."""
        slots = len(self._since)
        return _head.pack(slots, self._fresh) + Struct(f">{2 * slots}Q").pack(
            *self._since, *self._tasks
        )

    @classmethod
    def read(cls, record: bytes, start: int) -> tuple[ReadyAgeHistogram, int]:
        """Return the slots in the record of a tube, and the position after them."""
        ages = cls()
        slots, ages._fresh = _head.unpack_from(record, start)
        numbers = Struct(f">{2 * slots}Q")
        start += _head.size
        both = numbers.unpack_from(record, start)
        ages._since, ages._tasks = list(both[:slots]), list(both[slots:])
        return ages, start + numbers.size
