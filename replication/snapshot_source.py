"""Give followers the state when the log no longer reaches back to where they are."""

from __future__ import annotations

from replication.core.types import LogIndex, MemberId, Message, Snapshot, SnapshotMeta
from replication.effects import Effects
from replication.machine import StateMachine
from replication.storage.group_storage import GroupStorage


class SnapshotSource:
    """The outgoing snapshots of a member.

    Nothing is prepared: the state machine can freeze its state at any time, so a snapshot is taken
    in the moment in which one is needed and is as new as can be.
    """

    def __init__(self, machine: StateMachine, storage: GroupStorage, effects: Effects) -> None:
        self._machine = machine
        self._storage = storage
        self._effects = effects
        self._sending: dict[MemberId, LogIndex] = {}

    def current(self) -> Snapshot:
        """Return what a snapshot taken now would stand for; the core's ``LogReader.snapshot``."""
        return Snapshot(self._meta(self._machine.applied_index))

    def send(self, message: Message) -> None:
        """Take a snapshot and send it in place of the core's message, which only announces it.

        It may be newer than the core thinks; the follower's next reply tells.
        """
        assert message.snapshot is not None
        content = self._machine.open_snapshot()
        assert content.index >= message.snapshot.meta.index
        self._sending[message.to] = content.index
        self._effects.send_snapshot(message, self._meta(content.index), content)

    def ended(self, member: MemberId) -> None:
        """Note that the transfer to ``member`` ended."""
        self._sending.pop(member, None)

    def needed_from(self) -> LogIndex | None:
        """Return the index behind which receivers of snapshots will need the log."""
        return min(self._sending.values(), default=None)

    def _meta(self, index: LogIndex) -> SnapshotMeta:
        return SnapshotMeta(
            index, self._storage.view.term(index), self._storage.membership_at(index)
        )
