"""Take a snapshot from a leader: seal it, build its state, and only then tell the core."""

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
"""Learns that a snapshot was taken, or why it cannot be."""


class SnapshotReceiver:
    """The way of a received snapshot to the core.

    To build a state takes long. Meanwhile this member votes, stores and applies as always, from its
    old state; what is left to do when the core has accepted the snapshot is short.
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
        """Take the announcement of a snapshot whose content is whole; then ``done``."""
        assert message.snapshot is not None
        index = message.snapshot.meta.index
        if index <= self._core.commit_index:
            # An older one: it came late, or entries came after all.
            incoming.close()
            self._inbox.discard(incoming.name)
            done(None)
            return
        build = partial(self._build, incoming, index)
        self._effects.flush(build, partial(self._offer, message, incoming.name, done, pump))

    def _build(self, incoming: IncomingSnapshot, index: LogIndex) -> StagedState | SnapshotUnusable:
        """Make a state of the content, beside the one in use.

        What cannot be used is no reason to end: nothing rests on it yet. A broken disk is.
        """
        try:
            incoming.seal()
            return self._machine.stage_snapshot(index, self._inbox.chunks(incoming.name))
        except SnapshotBroken as error:
            return SnapshotUnusable(str(error))
        except OSError as error:
            if not is_out_of_room(error):
                raise
            return SnapshotUnusable(f"there is no room for it: {error}")

    def _offer(
        self,
        message: Message,
        name: str,
        done: Done,
        pump: Callable[[], None],
        built: StagedState | SnapshotUnusable,
    ) -> None:
        """Tell the core; if it has no use for the snapshot, everything of it is removed."""
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
