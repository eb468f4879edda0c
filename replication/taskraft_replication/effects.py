"""Define the effects that the driver requests, for the node or the simulator to perform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from taskraft_replication.core.types import Message, SnapshotMeta
from taskraft_replication.machine import SnapshotReader

T = TypeVar("T")


class Effects(Protocol):
    """All side effects of the driver."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages to peers; messages may be lost."""

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
