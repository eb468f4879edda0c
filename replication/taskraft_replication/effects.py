"""Define the effects and the futures that the node or the simulator provides to the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from taskraft_replication.core.types import MemberId, Message, SnapshotMeta, Term
from taskraft_replication.machine import SnapshotReader

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(slots=True)
class StorageWork:
    """Counts of the items of storage work since the start of a member."""

    requested: int = 0
    finished: int = 0
    """Number of finished items; the storage worker increments it directly after each item."""


class Effects(Protocol):
    """All side effects of the driver."""

    @property
    def storage_work(self) -> StorageWork:
        """Counts of the items given to ``store``."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages to peers; messages may be lost."""

    def set_leading_term(self, term: Term) -> None:
        """Set the term in which this member leads, for all later frames; 0: it does not lead."""

    def send_alive(self, leader: MemberId, term: Term) -> None:
        """Send an activity report to the leader of ``term``; the message may be lost."""

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        """Stream a snapshot to a peer; then call ``RaftDriver.snapshot_sent``."""

    def store(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run ``work`` on the storage worker, in order; then call ``then`` with its result.

        If ``work`` fails, ``then`` is never called and the node stops.
        """

    def flush(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run ``work``, which may take long, in the background; then call ``then``."""

    def request_pump(self) -> None:
        """Call ``RaftDriver.pump`` soon; one call may serve several requests."""


class ResultFuture(Protocol[T_contra]):
    """The result of a request: an ``asyncio.Future``, or the simulator's own class."""

    def done(self) -> bool:
        """Return whether the result is set, or the request was cancelled."""

    def set_result(self, result: T_contra, /) -> None:
        """Set the result."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Set the failure."""
