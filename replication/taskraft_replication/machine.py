"""State the contract between the Raft driver and the replicated state machine.

``replication`` knows nothing of tasks: a state machine is whatever satisfies this protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from taskraft_replication.core.types import Entry, LogIndex


class SnapshotReader(Protocol):
    """A frozen view of the state at ``index``: a sequence of bytes that never changes."""

    index: LogIndex
    """The last entry whose effects the snapshot holds."""

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``, fewer only at the end; on any worker thread."""

    def close(self) -> None:
        """Release what the view pins; on a worker thread."""


class StagedState(Protocol):
    """A state that was built from a snapshot beside the one in use, which still serves."""

    def switch(self) -> None:
        """Make it, durably and atomically, the state that a restart finds; on a worker thread."""

    def adopt(self) -> None:
        """Use it from now on, in place of the old state; short, for it is on the event loop."""

    def discard(self) -> None:
        """Remove what is not in use: the old state after ``adopt``, else this one; on a thread."""


class StateMachine(Protocol):
    """What the driver needs of the replicated state.

    Called from the event loop and never concurrently, but for the methods that say otherwise.
    """

    @property
    def applied_index(self) -> LogIndex:
        """The last entry applied; after a start, what the state on disk stands for."""

    @property
    def durable_index(self) -> LogIndex:
        """The last entry whose effects survive a power loss without the log below it."""

    @property
    def snapshot_index(self) -> LogIndex:
        """The last entry that a snapshot opened now is sure to hold. It may hold more.

        Not below ``durable_index``, nor below the last membership entry applied: whoever that adds
        can begin only with a snapshot that names it.
        """

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
        """Freeze the state.

        Called on a worker thread, while ``apply`` may run on the loop's thread.
        """

    def stage_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> StagedState:
        """Build the state of a snapshot of ``index`` beside the one in use.

        Called on a worker thread, while ``apply`` may run on the loop's thread. At most one state
        is staged at a time. After an exception nothing of the new state is left.

        Raises:
            SnapshotBroken: no state can be made of it; the state in use is as before.
            OSError: the disk is full or broken.
        """
