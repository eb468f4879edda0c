"""State the contract between the Raft driver and the replicated state machine.

``replication`` knows nothing of tasks: a state machine is whatever satisfies this protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from replication.core.types import Entry, LogIndex


class SnapshotReader(Protocol):
    """A frozen view of the state at ``index``, read in chunks while the machine goes on."""

    index: LogIndex
    """The last entry whose effects the snapshot holds."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in pieces of at most 1 MiB; the same pieces each time it is called."""

    def close(self) -> None:
        """Release what the view pins."""


class StateMachine(Protocol):
    """What the driver needs of the replicated state.

    All methods but ``flush_durably`` are called from the event loop, never concurrently.
    """

    @property
    def applied_index(self) -> LogIndex:
        """The last entry applied; after a start, what the state on disk stands for."""

    @property
    def durable_index(self) -> LogIndex:
        """The last entry whose effects survive a power loss without the log below it."""

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply committed entries in order; return one result per entry.

        Empty and membership entries are passed too (their data is empty or opaque), so that
        ``applied_index`` has no holes. An exception is a bug: the driver stops the node.
        """

    def flush_durably(self) -> LogIndex:
        """Bring the state to disk; return the new ``durable_index``.

        Called on a worker thread, while ``apply`` may run on the loop's thread.
        """

    def open_snapshot(self) -> SnapshotReader:
        """Freeze the state as it is now."""

    def install_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> None:
        """Replace the whole state by a snapshot of ``index``, atomically: all or nothing."""
