"""Define the interface of the order of ready tasks, and measure the age of the oldest ready task.

Package ``orders`` has two implementations of ``ReadyOrder``: ``PlainOrder``, in which every ready
task can be taken, and ``SubqueueOrder`` for tubes with sub-queues. Both return entries in ascending
order; the last number of an entry is the id of the task.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import ClassVar, Final, NamedTuple, Protocol, TypeVar

from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.store.ordered_index import NOTHING, OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Write

TaskT_contra = TypeVar("TaskT_contra", contravariant=True)
"""Type of a task; a type parameter avoids a circular import, because tasks refer to their order."""


class Offers(Protocol):
    """Entries of tasks in take order; the last number of an entry is the task id."""

    def least(self) -> OrderKey | None:
        """Return the entry of the next task, or None."""

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries after ``after``; they must not change during the iteration."""

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return the entries of about ``count`` tasks that will be taken next."""


class OffersOfTypes(NamedTuple):
    """The orders of the types that a take asked for."""

    orders: Sequence[OrderedIndex]
    added: Sequence[tuple[OrderedIndex, OrderKey]]
    """The entries that were added since, each with the order of its type, which may be another
    type; grows until a take asks again."""


class OffersByType(Protocol):
    """The entries that a tube offers, in a separate order for each task type."""

    has_any: bool
    """Whether the tube ever had a ready task with a type; part of the tube's record."""

    def ask(self, types: Sequence[str]) -> OffersOfTypes:
        """Return the orders of the given types, which are valid until the next ``collect``."""


class ReadyOrder(Offers, Protocol[TaskT_contra]):
    """The order of a tube's ready tasks."""

    counts_leases: ClassVar[bool]
    """Whether ``free`` must be called when leases end; if False, hot paths skip the call."""

    @property
    def types(self) -> OffersByType:
        """Return the orders of the tasks by type."""

    @property
    def counts_claims(self) -> bool:
        """Whether ``claim`` must be called for withdrawn entries."""

    def add(self, task: TaskT_contra) -> None:
        """Add a ready task."""

    def add_all(self, tasks: Sequence[TaskT_contra]) -> None:
        """Add ready tasks."""

    def discard(self, task: TaskT_contra) -> None:
        """Remove a task that is no longer ready; no effect for other tasks."""

    def pop_many(self, count: int) -> Sequence[OrderKey]:
        """Withdraw up to ``count`` entries to take next; empty if no task can be taken.

        The caller claims, restores or discards each entry.
        """

    def restore(self, entry: OrderKey) -> None:
        """Offer a withdrawn entry again."""

    def may_give(self, subqueue: str) -> bool:
        """Return whether the limits of a sub-queue allow one more lease."""

    def claim(self, task: TaskT_contra, now_ms: int) -> None:
        """Remove a task from the order, if present, and count its lease."""

    def claim_withdrawn(self, tasks: Sequence[TaskT_contra], now_ms: int) -> None:
        """Count the leases of tasks whose entries one ``pop_many`` has withdrawn."""

    def free(self, tasks: Sequence[TaskT_contra]) -> None:
        """Subtract leases that have ended."""

    def offered(self, ready: int) -> int:
        """Return the approximate number of the ``ready`` ready tasks that can be taken now."""

    @property
    def offers(self) -> int:
        """Return the number of offers for the record of the tube."""

    @property
    def time(self) -> int:
        """Return the virtual time of weighted sub-queues for the record of the tube."""

    def restore_state(self, offers: int, time: int) -> None:
        """Restore ``offers`` and ``time`` from the record of the tube."""

    def reopen(self, task: TaskT_contra) -> None:
        """Count the lease of a task that the stored state shows as TAKEN."""

    def readmit(self, now_ms: int, most: int) -> int:
        """Unblock up to ``most`` sub-queues whose rate allows takes again; return the number."""

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Set other options of the sub-queues."""

    def is_head(self, task: TaskT_contra) -> bool:
        """Return whether a ready task stays in memory, because it will be taken soon."""

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Append changes to ``writes``; return the entries that left memory.

        ``ready`` is the number of ready tasks. The order keys of tasks are not included.
        """


PRECISION: Final = 16
"""A slot spans at most 1/16 of the age of its tasks, so the reported age is at most 1/16 too
high."""

FRESH_SLOTS_MAX: Final = 256
"""Number of new slots after which slots are joined. The number is high, because joining scans all
slots."""

_head = Struct(">HH")


class ReadyAgeHistogram:
    """The ready tasks of one tube, counted by the instant at which they became ready.

    Finds the age of the oldest ready task, in whatever order tasks are taken. The data structure is
    an exponential histogram (Datar, Gionis, Indyk, Motwani: "Maintaining Stream Statistics over
    Sliding Windows", SIAM J. Comput. 2002). Ready tasks are counted in time slots; slots of young
    tasks are short, and slots of old tasks are long. A backlog of any size and age therefore needs
    a bounded number of slots. A task that waits behind more urgent tasks stays in its slot, so its
    age counts.

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

        The precision only decreases with age, so joined slots stay joined.
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
        """Decode the slots in the record of a tube; return the slots and the end position."""
        ages = cls()
        slots, ages._fresh = _head.unpack_from(record, start)
        numbers = Struct(f">{2 * slots}Q")
        start += _head.size
        both = numbers.unpack_from(record, start)
        ages._since, ages._tasks = list(both[:slots]), list(both[slots:])
        return ages, start + numbers.size
