"""Receive a snapshot: make it durable, build its state, and pass it to the Raft core."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.types import LogIndex, Message
from taskraft_replication.effects import Effects
from taskraft_replication.errors import SnapshotBroken, SnapshotUnusable
from taskraft_replication.machine import StagedState, StateMachine
from taskraft_replication.snapshots.installer import SnapshotInstaller
from taskraft_replication.storage.filesystem import is_out_of_room
from taskraft_replication.storage.log_writer import LogWriter
from taskraft_replication.storage.snapshot_inbox import IncomingSnapshot, SnapshotInbox

Done = Callable[[SnapshotUnusable | None], None]
"""Called when a snapshot was accepted, or with the reason why it cannot be used."""


class SnapshotReceiver:
    """Passes received snapshots to the core.

    Building a state takes long. During this time, the member votes, stores and applies entries with
    its old state. After the core has accepted the snapshot, little work is left.
    """

    def __init__(
        self,
        core: RaftCore,
        machine: StateMachine,
        inbox: SnapshotInbox,
        writer: LogWriter,
        installer: SnapshotInstaller,
        effects: Effects,
    ) -> None:
        self._core = core
        self._machine = machine
        self._inbox = inbox
        self._writer = writer
        self._installer = installer
        self._effects = effects

    def received(
        self,
        message: Message,
        incoming: IncomingSnapshot,
        done: Done,
        pump: Callable[[], None],
    ) -> None:
        """Process a snapshot whose content has arrived completely; then call ``done``."""
        assert message.snapshot is not None
        index = message.snapshot.meta.index
        if index <= self._core.commit_index:
            # The snapshot is outdated: it arrived late, or entries arrived in the meantime.
            incoming.close()
            self._inbox.discard(incoming.name)
            done(None)
            return
        build = partial(self._build, incoming, index)
        self._effects.flush(build, partial(self._offer, message, incoming.name, done, pump))

    def _build(self, incoming: IncomingSnapshot, index: LogIndex) -> StagedState | SnapshotUnusable:
        """Build a state from the content, beside the state in use.

        Unusable content does not stop the node, because nothing depends on the content yet. A
        broken disk stops the node.
        """
        try:
            incoming.seal()
            return self._machine.stage_snapshot(index, self._inbox.chunks(incoming.name))
        except SnapshotBroken as error:
            return SnapshotUnusable(str(error))
        except OSError as error:
            if not is_out_of_room(error):
                raise
            return SnapshotUnusable(f"the disk is full: {error}")

    def _offer(
        self,
        message: Message,
        name: str,
        done: Done,
        pump: Callable[[], None],
        built: StagedState | SnapshotUnusable,
    ) -> None:
        """Pass the snapshot to the core; delete it if the core ignores it."""
        if isinstance(built, SnapshotUnusable):
            inbox = self._inbox
            self._effects.flush(partial(inbox.remove, name), lambda _: inbox.forget(name))
            done(built)
            return
        self._installer.stage(name, built)
        self._core.step(message)
        pump()
        if not self._writer.holds_snapshot(name) and self._installer.current != name:
            self._installer.unstage(name)
        done(None)
