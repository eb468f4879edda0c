"""Replace state and log by a snapshot, so that a crash at any point leaves one or the other."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from replication.core.types import HardState, Message, Snapshot, SnapshotMeta
from replication.effects import Effects
from replication.log_writer import LogWriter
from replication.machine import StateMachine
from replication.storage.group_storage import GroupStorage
from replication.storage.snapshot_inbox import SnapshotInbox


class InstallListener(Protocol):
    """Learns that a snapshot was installed."""

    def installed(self, meta: SnapshotMeta) -> None:
        """Go on from the snapshot."""


class Installer:
    """The steps of an installation.

    1. Note on disk that it begins, and which snapshot it is.
    2. The state machine replaces its state, atomically.
    3. Throw the log away, store the membership, remove the note.

    After a crash the state machine's applied index tells whether step 2 happened.
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
        self.current: str | None = None
        """Name of the content that is being installed."""

    def begin(self, message: Message) -> None:
        """Install the snapshot at the head of the writer's queue; nothing may be left to apply."""
        snapshot = message.snapshot
        assert snapshot is not None
        assert snapshot.meta.index > self._machine.applied_index, "a snapshot never goes back"
        self.current = snapshot.data.decode()
        hard_state = self._writer.begin_snapshot()
        self._effects.store(
            partial(self._note, hard_state, snapshot),
            partial(self._replace_state, message, snapshot),
        )

    def _note(self, hard_state: HardState | None, snapshot: Snapshot) -> None:
        self._storage.store(hard_state, (), snapshot.meta.index)
        self._storage.begin_installation(snapshot.meta)

    def _replace_state(self, message: Message, snapshot: Snapshot, _: None) -> None:
        assert self.current is not None
        meta = snapshot.meta
        self._machine.install_snapshot(meta.index, self._inbox.chunks(self.current))
        assert self._machine.applied_index == meta.index
        self._effects.store(
            partial(self._storage.finish_installation, meta),
            partial(self._finish, message, snapshot),
        )

    def _finish(self, message: Message, snapshot: Snapshot, _: None) -> None:
        assert self.current is not None
        self._storage.publish_installation(snapshot.meta)
        self._inbox.discard(self.current)
        self.current = None
        self._writer.end_snapshot(message)
        self._listener.installed(snapshot.meta)
        self._effects.request_pump()
