"""Give followers the state when the log no longer reaches back to where they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from taskraft_replication.core.types import LogIndex, MemberId, Message, Snapshot, SnapshotMeta
from taskraft_replication.effects import Effects
from taskraft_replication.machine import SnapshotReader, StateMachine
from taskraft_replication.storage.group_storage import GroupStorage


@dataclass(slots=True)
class OutgoingSnapshot:
    """A snapshot that is being sent, to one follower or to several."""

    content: SnapshotReader
    meta: SnapshotMeta
    receivers: set[MemberId] = field(default_factory=set)
    served: set[MemberId] = field(default_factory=set)
    """Everybody to whom it was ever sent."""


class SnapshotSource:
    """The outgoing snapshots of a member.

    None is prepared: the state machine can freeze its state at any time, so a snapshot is taken
    when one is needed. Whoever needs one while another is being sent gets the same; but who asks
    again gets a newer one: it may have refused the first because that does not name it as a member.
    The log behind a snapshot stays until all have it.
    """

    def __init__(self, machine: StateMachine, storage: GroupStorage, effects: Effects) -> None:
        self._machine = machine
        self._storage = storage
        self._effects = effects
        self._outgoing: list[OutgoingSnapshot] = []
        """The newest last; each has receivers, and each receiver is in one of them."""
        self._waiting: list[Message] = []
        """Announcements for which a snapshot is being opened."""

    def current(self) -> Snapshot:
        """Return what a snapshot sent now would stand for; the core's ``LogReader.snapshot``."""
        if self._outgoing:
            return Snapshot(self._outgoing[-1].meta)
        if self._waiting and (announced := self._waiting[0].snapshot) is not None:
            return announced
        return Snapshot(self._meta(self._machine.snapshot_index))

    def send(self, message: Message) -> None:
        """Send a snapshot in place of the core's message, which only announces it.

        It may be newer than the core thinks; the follower's next reply tells.
        """
        assert message.snapshot is not None
        to = message.to
        if any(to in each.receivers for each in self._outgoing):
            # This member led before, and what it began to send then is still on its way. How that
            # ends will be told to the core as the end of this one.
            return
        if not self._waiting and self._outgoing and to not in self._outgoing[-1].served:
            self._send(message, self._outgoing[-1])
            return
        if any(to == each.to for each in self._waiting):
            return
        self._waiting.append(message)
        self._storage.membership_floor = self.needed_from()
        if len(self._waiting) == 1:
            self._effects.flush(self._machine.open_snapshot, self._opened)

    def _opened(self, content: SnapshotReader) -> None:
        if content.index + 1 < self._storage.view.first_index():
            # This member has been behind itself meanwhile, and has got another state. Nobody knows
            # the log and the members at the end of the old one any more.
            self._effects.flush(content.close, _released)
            self._effects.flush(self._machine.open_snapshot, self._opened)
            return
        outgoing = OutgoingSnapshot(content, self._meta(content.index))
        waiting, self._waiting = self._waiting, []
        self._outgoing.append(outgoing)
        self._storage.membership_floor = None
        for message in waiting:
            self._send(message, outgoing)

    def _send(self, message: Message, outgoing: OutgoingSnapshot) -> None:
        assert message.snapshot is not None
        assert outgoing.meta.index >= message.snapshot.meta.index
        outgoing.receivers.add(message.to)
        outgoing.served.add(message.to)
        self._effects.send_snapshot(message, outgoing.meta, outgoing.content)

    def ended(self, member: MemberId) -> None:
        """Note that the transfer to ``member`` ended; the last one releases the snapshot."""
        for outgoing in self._outgoing:
            outgoing.receivers.discard(member)
        released = [each for each in self._outgoing if not each.receivers]
        self._outgoing = [each for each in self._outgoing if each.receivers]
        for outgoing in released:
            self._effects.flush(outgoing.content.close, _released)

    def needed_from(self) -> LogIndex | None:
        """Return the index behind which receivers of snapshots will need the log."""
        announced = [each.snapshot.meta.index for each in self._waiting if each.snapshot]
        sending = [each.meta.index for each in self._outgoing]
        return min([*announced, *sending], default=None)

    def _meta(self, index: LogIndex) -> SnapshotMeta:
        return SnapshotMeta(
            index, self._storage.view.term(index), self._storage.membership_at(index)
        )


def _released(_: None) -> None:
    """Follow the release of a snapshot with nothing."""
