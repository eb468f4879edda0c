"""Replace state and log by a snapshot; after a crash, both are old or both are new."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from taskraft_replication.core.types import HardState, Message, SnapshotMeta
from taskraft_replication.effects import Effects
from taskraft_replication.machine import StagedState, StateMachine
from taskraft_replication.storage.group_storage import GroupStorage
from taskraft_replication.storage.log_writer import LogWriter
from taskraft_replication.storage.snapshot_inbox import SnapshotInbox


class InstallListener(Protocol):
    """Is notified of an installed snapshot."""

    def installed(self, meta: SnapshotMeta) -> None:
        """Continue from the snapshot."""


class SnapshotInstaller:
    """Installs snapshots whose new state was already built beside the old state.

    1. Record on disk that the installation of this snapshot starts.
    2. Switch to the new state on disk, atomically.
    3. Reset the log, store the membership, delete the record.
    4. Use the new state in memory; delete the old state and the received content.

    After a crash, the state machine's applied index shows whether step 2 was done. The old state
    serves reads until step 4.
    """

    def __init__(
        self,
        machine: StateMachine,
        storage: GroupStorage,
        inbox: SnapshotInbox,
        writer: LogWriter,
        effects: Effects,
        listener: InstallListener,
    ) -> None:
        self._machine = machine
        self._storage = storage
        self._inbox = inbox
        self._writer = writer
        self._effects = effects
        self._listener = listener
        self._staged: dict[str, StagedState] = {}
        self.current: str | None = None
        """Name of the content that is being installed, or None."""

    def stage(self, name: str, staged: StagedState) -> None:
        """Keep a built state until its installation."""
        assert not self._staged, "one snapshot at a time"
        self._staged[name] = staged

    def unstage(self, name: str) -> None:
        """Delete a state that will not be installed, and its content."""
        staged = self._staged.pop(name)
        self._remove(name, staged)

    def begin(self, message: Message) -> None:
        """Install the snapshot at the head of the writer's queue, once all entries are applied."""
        snapshot = message.snapshot
        assert snapshot is not None
        assert snapshot.meta.index > self._machine.applied_index, (
            "a snapshot must be above the applied index"
        )
        self.current = snapshot.data.decode()
        staged = self._staged.pop(self.current)
        hard_state = self._writer.begin_snapshot()
        self._effects.store(
            partial(self._replace, hard_state, snapshot.meta, staged),
            partial(self._adopt, message, snapshot.meta, staged),
        )

    def _replace(
        self, hard_state: HardState | None, meta: SnapshotMeta, staged: StagedState
    ) -> None:
        self._storage.begin_installation(meta, hard_state)
        staged.switch()
        self._storage.finish_installation(meta)

    def _adopt(self, message: Message, meta: SnapshotMeta, staged: StagedState, _: None) -> None:
        assert self.current is not None
        staged.adopt()
        assert self._machine.applied_index == meta.index
        self._storage.publish_installation(meta)
        self._writer.end_snapshot(message)
        self._listener.installed(meta)
        self._remove(self.current, staged)
        self.current = None
        self._effects.request_pump()

    def _remove(self, name: str, staged: StagedState) -> None:
        """Delete an unused state and its content, so that the next snapshot can be received."""

        def work() -> None:
            staged.discard()
            self._inbox.remove(name)

        self._effects.flush(work, lambda _: self._inbox.forget(name))
