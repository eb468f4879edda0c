"""Wrap a state machine with a failpoint before and after each step that changes durable data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from taskraft_replication.core.types import Entry, LogIndex
from taskraft_replication.machine import SnapshotReader, StagedState, StateMachine
from tests.failpoints.failpoints import Failpoints


class FailingStagedState:
    """A ``StagedState`` with failpoints."""

    def __init__(self, staged: StagedState, failpoints: Failpoints) -> None:
        self._staged = staged
        self._failpoints = failpoints

    def switch(self) -> None:
        """Select this state for restarts, durably and atomically; runs on a worker thread."""
        with self._failpoints.around("state", "switch"):
            self._staged.switch()

    def adopt(self) -> None:
        """Use this state instead of the old state."""
        with self._failpoints.around("state", "adopt"):
            self._staged.adopt()

    def discard(self) -> None:
        """Remove the unused state: after ``adopt`` the old state, otherwise this state."""
        with self._failpoints.around("state", "discard"):
            self._staged.discard()


class FailingMachine:
    """A ``StateMachine`` with failpoints."""

    def __init__(self, machine: StateMachine, failpoints: Failpoints) -> None:
        self._machine = machine
        self._failpoints = failpoints

    @property
    def applied_index(self) -> LogIndex:
        """Index of the last applied entry; after a start, of the last entry in the stored state."""
        return self._machine.applied_index

    @property
    def durable_index(self) -> LogIndex:
        """Last entry whose effects survive a power loss without the log."""
        return self._machine.durable_index

    @property
    def snapshot_index(self) -> LogIndex:
        """Index of the last entry that a snapshot opened now is guaranteed to contain."""
        return self._machine.snapshot_index

    @property
    def is_writing(self) -> bool:
        """Whether applied changes are being written in steps; no entry is applied meanwhile."""
        return self._machine.is_writing

    def write_some(self) -> None:
        """Do the next step of the write, in some milliseconds."""
        self._machine.write_some()

    def waits_for_disk(self, entry: Entry) -> bool:
        """Return whether applying ``entry`` would block the event loop until the disk answers."""
        return self._machine.waits_for_disk(entry)

    def waits_for_members(self) -> bool:
        """Return whether the machine applies nothing until it has a message from other members."""
        return self._machine.waits_for_members()

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply committed entries in order; return one result per entry."""
        with self._failpoints.around("state", "apply"):
            return self._machine.apply(entries)

    def write_applied(self) -> None:
        """Write what is applied, so that a snapshot opened now contains all applied entries."""
        self._machine.write_applied()

    def flush_durably(self) -> LogIndex:
        """Write the state to disk; return the new ``durable_index``."""
        with self._failpoints.around("state", "flush"):
            return self._machine.flush_durably()

    def open_snapshot(self) -> SnapshotReader:
        """Return an immutable view of the state."""
        with self._failpoints.around("state", "freeze"):
            return self._machine.open_snapshot()

    def stage_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> FailingStagedState:
        """Build the state of a snapshot at ``index`` beside the state in use."""
        with self._failpoints.around("state", "stage"):
            staged = self._machine.stage_snapshot(index, chunks)
        return FailingStagedState(staged, self._failpoints)
