"""Define the order in which the ready tasks of a tube are taken, as tubes and operations use it.

Package ``orders`` has the two implementations: ``PlainOrder``, in which every ready task may be
taken, and ``SubqueueOrder`` for tubes with sub-queues. Both offer entries, least first; the last
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
    """Entries, the least to be taken first; the last number of each is a task's id."""

    def least(self) -> OrderKey | None:
        """Return the entry of the task that is to be taken next, or None."""

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries above one, in order.

        They must not change meanwhile.
        """

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return entries of about so many tasks that will be taken next."""


class OffersByType(Protocol):
    """The entries that a tube offers, by the types of their tasks."""

    has_any: bool
    """Whether the tube has ever had a ready task with a type; kept in the tube's record."""

    def ask(self, types: Sequence[str]) -> list[OrderedIndex]:
        """Return the orders of some types, valid until the next change of another entry."""


class ReadyOrder(Offers, Protocol):
    """The order of a tube's ready tasks."""

    counts_leases: ClassVar[bool]
    """Whether ``free`` must be called; if not, hot paths leave it out."""

    @property
    def types(self) -> OffersByType:
        """Return the same by the types of the tasks."""

    @property
    def counts_claims(self) -> bool:
        """Tell whether ``claim`` must be called for what is withdrawn; if not, that may be left."""

    def add(self, task: QueueTask) -> None:
        """Take in a task that is ready."""

    def add_all(self, tasks: Sequence[QueueTask]) -> None:
        """Take in tasks that are ready."""

    def discard(self, task: QueueTask) -> None:
        """Let go of a task that is not ready any more; harmless for another."""

    def pop_many(self, count: int) -> Sequence[OrderKey]:
        """Withdraw up to so many entries that are to be taken next; none: there is none.

        Each is to be claimed, restored or discarded.
        """

    def restore(self, entry: OrderKey) -> None:
        """Offer a withdrawn entry again."""

    def may_give(self, subqueue: str) -> bool:
        """Tell whether one more task of a sub-queue may be taken, whatever is ready."""

    def claim(self, task: QueueTask, now_ms: int) -> None:
        """Take a task out of what is offered, if it is still there, and note that it is taken."""

    def claim_withdrawn(self, tasks: Sequence[QueueTask], now_ms: int) -> None:
        """Take note that tasks are taken whose entries one ``pop_many`` has withdrawn."""

    def free(self, tasks: Sequence[QueueTask]) -> None:
        """Take note that tasks are not taken any more."""

    def offered(self, ready: int) -> int:
        """Return about how many tasks could be taken now, where ``ready`` are ready."""

    @property
    def offers(self) -> int:
        """Return what a tube's record keeps as the number of offers."""

    @property
    def time(self) -> int:
        """Return what a tube's record keeps as the virtual time of sub-queues with weights."""

    def restore_state(self, offers: int, time: int) -> None:
        """Take over what a tube's record has kept."""

    def reopen(self, task: QueueTask) -> None:
        """Count a task that was taken when the store was written."""

    def readmit(self, now_ms: int, most: int) -> int:
        """Let up to so many sub-queues go on whose rates bar them no longer; return how many."""

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Take over other options of sub-queues."""

    def is_head(self, task: QueueTask) -> bool:
        """Tell whether a ready task is among those that memory knows: it will soon be taken."""

    def collect(self, writes: list[Write], ready: int) -> Iterable[OrderKey]:
        """Append what the store does not know to ``writes``; return the entries that left memory.

        ``ready`` is the number of ready tasks. Places of tasks are not part of it.
        """
