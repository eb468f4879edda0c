"""The order of the ready tasks of a tube, as tubes and operations use it.

Package ``orders`` has two implementations: ``PlainOrder``, in which every ready task can be taken,
and ``SubqueueOrder`` for tubes with sub-queues. Both offer entries in ascending order; the last
number of an entry is the id of the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Protocol

from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.store.ordered_index import NOTHING, OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Write


class Offers(Protocol):
    """Entries of tasks, the next one to take first; the last number of an entry is the task id."""

    def least(self) -> OrderKey | None:
        """Return the entry of the next task, or None."""

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries after ``after``; they must not change during the iteration."""

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return the entries of approximately the next tasks."""


class OffersByType(Protocol):
    """The entries that a tube offers, by the types of the tasks."""

    has_any: bool
    """Whether the tube ever had a ready task with a type; part of the tube's record."""

    def ask(self, types: Sequence[str]) -> list[OrderedIndex]:
        """Return the orders of some types, valid until another entry changes."""


class ReadyOrder(Offers, Protocol):
    """The order of a tube's ready tasks."""

    counts_leases: ClassVar[bool]
    """Whether ``free`` must be called; hot paths skip the call otherwise."""

    @property
    def types(self) -> OffersByType:
        """Return the entries by the types of the tasks."""

    @property
    def counts_claims(self) -> bool:
        """Whether ``claim`` must be called for withdrawn entries."""

    def add(self, task: QueueTask) -> None:
        """Add a ready task."""

    def add_all(self, tasks: Sequence[QueueTask]) -> None:
        """Add ready tasks."""

    def discard(self, task: QueueTask) -> None:
        """Remove a task that is no longer ready; harmless for other tasks."""

    def pop_many(self, count: int) -> Sequence[OrderKey]:
        """Withdraw up to ``count`` entries to take next; empty if no task can be taken.

        The caller claims, restores or discards each entry.
        """

    def restore(self, entry: OrderKey) -> None:
        """Offer a withdrawn entry again."""

    def may_give(self, subqueue: str) -> bool:
        """Return whether the limits of a sub-queue allow one more lease."""

    def claim(self, task: QueueTask, now_ms: int) -> None:
        """Remove a task from the order, if it is there, and count its lease."""

    def claim_withdrawn(self, tasks: Sequence[QueueTask], now_ms: int) -> None:
        """Count the leases of tasks whose entries one ``pop_many`` has withdrawn."""

    def free(self, tasks: Sequence[QueueTask]) -> None:
        """Subtract leases that have ended."""

    def offered(self, ready: int) -> int:
        """Return approximately how many tasks can be taken now, of ``ready`` ready tasks."""

    @property
    def offers(self) -> int:
        """Return the number of offers for the record of the tube."""

    @property
    def time(self) -> int:
        """Return the virtual time of weighted sub-queues for the record of the tube."""

    def restore_state(self, offers: int, time: int) -> None:
        """Restore the values from the record of the tube."""

    def reopen(self, task: QueueTask) -> None:
        """Count a task that was TAKEN when the store was written."""

    def readmit(self, now_ms: int, most: int) -> int:
        """Unblock up to ``most`` sub-queues whose rate allows takes again; return the number."""

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Set other options of the sub-queues."""

    def is_head(self, task: QueueTask) -> bool:
        """Return whether a ready task is held in memory and will be taken soon."""

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Append changes to ``writes``; return the entries that left memory.

        ``ready`` is the number of ready tasks. The order keys of tasks are not part of it.
        """
