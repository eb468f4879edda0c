"""State what the driver decides and somebody else performs: the node, or the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from taskraft_replication.core.types import Message, SnapshotMeta
from taskraft_replication.machine import SnapshotReader

T = TypeVar("T")


class Effects(Protocol):
    """Everything that the driver does to the world."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages to peers; may lose them."""

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        """Stream a snapshot to a peer; then call ``Driver.snapshot_sent``."""

    def store(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run ``work`` on the storage worker, in order; then ``then`` with its result.

        If ``work`` fails, ``then`` is never called: the node stops.
        """

    def flush(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run ``work``, which may take long, beside everything else; then ``then``."""

    def request_pump(self) -> None:
        """Have ``Driver.pump`` called soon; several requests may be answered by one call."""
