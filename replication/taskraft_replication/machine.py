"""Define the interface between the Raft driver and the replicated state machine.

``taskraft_replication`` knows nothing of tasks: any class with this interface is a state machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from taskraft_replication.core.types import Entry, LogIndex


class SnapshotReader(Protocol):
    """An immutable view of the state at ``index``, as a sequence of bytes."""

    index: LogIndex
    """Last entry whose effects the snapshot contains."""

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``, fewer only at the end; on any worker thread.

        Raises:
            SnapshotUnavailable: the stored state is damaged there.
        """

    def close(self) -> None:
        """Release the resources of the view.

        Runs on a worker thread.
        """


class StagedState(Protocol):
    """A state that was built from a snapshot, beside the state in use, which still serves reads."""

    def switch(self) -> None:
        """Select this state for restarts, durably and atomically; runs on a worker thread."""

    def adopt(self) -> None:
        """Use this state instead of the old state.

        Runs on the event loop, so it must be short.
        """

    def discard(self) -> None:
        """Remove the unused state: after ``adopt`` the old state, otherwise this state."""


class StateMachine(Protocol):
    """The replicated state, as the driver uses it.

    All methods run on the event loop and never concurrently, unless stated otherwise.
    """

    @property
    def applied_index(self) -> LogIndex:
        """Index of the last applied entry; after a start, of the last entry in the stored state."""

    @property
    def durable_index(self) -> LogIndex:
        """Last entry whose effects survive a power loss without the log."""

    @property
    def snapshot_index(self) -> LogIndex:
        """Index of the last entry that a snapshot opened now is guaranteed to contain.

        The snapshot may contain later entries.

        The index is at least ``durable_index``, and at least the last applied membership entry,
        because a new member needs a snapshot that contains the member.
        """

    @property
    def is_writing(self) -> bool:
        """Whether applied changes are being written in steps; no entry is applied meanwhile."""

    def write_some(self) -> None:
        """Do the next step of the write, in some milliseconds; requires ``is_writing``."""

    def waits_for_disk(self, entry: Entry) -> bool:
        """Return whether applying ``entry`` now would block the event loop until the disk answers.

        The driver then applies nothing and asks again at each tick.
        """

    def waits_for_members(self) -> bool:
        """Return whether the machine applies nothing until it has a message from other members.

        The driver asks at each tick after ``apply`` has returned fewer results than entries.
        """

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply committed entries in order; return one result per entry.

        The results may end early if the machine must hear from other members first, or if it has
        done enough work for one run of the event loop. The driver then passes the other entries
        again when ``waits_for_members`` is false. Only a normal entry can be the first entry
        without a result.

        Empty and membership entries are passed too, with empty or opaque data, so that
        ``applied_index`` has no gaps. An exception is a bug, and the driver stops the node.
        """

    def write_applied(self) -> None:
        """Write what is applied, so that a snapshot opened now contains all applied entries.

        Does nothing if the write would block, or while a failed driver is not confirmed.
        """

    def flush_durably(self) -> LogIndex:
        """Write the state to disk; return the new ``durable_index``.

        Runs on a worker thread, while ``apply`` may run on the event loop.
        """

    def open_snapshot(self) -> SnapshotReader:
        """Return an immutable view of the state.

        Runs on a worker thread, while ``apply`` may run on the event loop.

        Raises:
            SnapshotUnavailable: the stored state is damaged, so that nobody may copy it.
        """

    def stage_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> StagedState:
        """Build the state of a snapshot at ``index`` beside the state in use.

        Runs on a worker thread, while ``apply`` may run on the event loop. At most one state is
        staged at a time. After an exception, nothing of the new state is left.

        Raises:
            SnapshotBroken: the content is not a valid state; the state in use is unchanged.
            OSError: the disk is full or broken.
        """
