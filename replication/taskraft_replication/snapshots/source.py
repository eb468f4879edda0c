"""Send snapshots to followers that need entries which were trimmed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from taskraft_replication.core.errors import Compacted
from taskraft_replication.core.types import LogIndex, MemberId, Message, Snapshot, SnapshotMeta
from taskraft_replication.effects import Effects
from taskraft_replication.errors import LogDamaged, SnapshotUnavailable
from taskraft_replication.machine import SnapshotReader, StateMachine
from taskraft_replication.storage.group_storage import GroupStorage


@dataclass(slots=True)
class OutgoingSnapshot:
    """A snapshot that is being sent to one or more followers."""

    content: SnapshotReader
    meta: SnapshotMeta
    receivers: set[MemberId] = field(default_factory=set)
    served: set[MemberId] = field(default_factory=set)
    """All followers to which this snapshot was ever sent."""


class SnapshotSource:
    """The outgoing snapshots of a member.

    No snapshot is prepared in advance, because the state machine can open a view of its state at
    any time. Followers that need a snapshot at the same time get the same snapshot. A follower that
    asks again gets a newer snapshot, because the first snapshot may not contain the follower as a
    member. The log after a snapshot is kept until all receivers have the snapshot.
    """

    def __init__(
        self,
        machine: StateMachine,
        storage: GroupStorage,
        effects: Effects,
        refused: Callable[[MemberId], None],
    ) -> None:
        """``refused`` is called with each follower that gets no snapshot."""
        self._machine = machine
        self._storage = storage
        self._effects = effects
        self._refused = refused
        self._outgoing: list[OutgoingSnapshot] = []
        """Snapshots that are being sent, newest last; each receiver belongs to exactly one
        snapshot."""
        self._waiting: list[Message] = []
        """Messages of the core for which a snapshot is being opened."""

    def current(self) -> Snapshot:
        """Return the metadata of a snapshot sent now; used as the core's ``LogReader.snapshot``."""
        if self._outgoing:
            return Snapshot(self._outgoing[-1].meta)
        if self._waiting and (announced := self._waiting[0].snapshot) is not None:
            return announced
        return Snapshot(self._meta(self._machine.snapshot_index))

    def send(self, message: Message) -> None:
        """Send a snapshot that a message of the core announces.

        The snapshot may be newer than the announced snapshot; the follower's reply contains the
        actual index.
        """
        assert message.snapshot is not None
        to = message.to
        if any(to in each.receivers for each in self._outgoing):
            # An earlier transfer to this follower, from a previous leadership, is still running.
            # Its end is reported to the core as the end of this transfer.
            return
        if not self._waiting and self._outgoing and to not in self._outgoing[-1].served:
            self._send(message, self._outgoing[-1])
            return
        if any(to == each.to for each in self._waiting):
            return
        self._waiting.append(message)
        self._storage.memberships.floor = self.needed_from()
        if len(self._waiting) == 1:
            self._effects.flush(self._open, self._opened)

    def open_apart(self, then: Callable[[OutgoingSnapshot | SnapshotUnavailable], None]) -> None:
        """Open a snapshot for a member that has lost its state; the Raft core is not involved.

        The snapshot contains all applied entries. The log of the member may begin after the last
        written entry of each peer, and without a quorum no further entry would cause a write.

        ``then`` gets an error if the state is damaged, or if the log or the membership at the
        snapshot's index no longer exists.
        """

        def opened(content: SnapshotReader | SnapshotUnavailable) -> None:
            if isinstance(content, SnapshotUnavailable):
                then(content)
                return
            try:
                then(OutgoingSnapshot(content, self._meta(content.index)))
            except (Compacted, LogDamaged):
                self._effects.flush(content.close, _released)
                then(SnapshotUnavailable("the state changed while it was opened; retry"))

        self._machine.write_applied()
        self._effects.flush(self._open, opened)

    def _open(self) -> SnapshotReader | SnapshotUnavailable:
        """Open a snapshot; on a worker thread."""
        try:
            return self._machine.open_snapshot()
        except SnapshotUnavailable as error:
            return error

    def _opened(self, content: SnapshotReader | SnapshotUnavailable) -> None:
        if isinstance(content, SnapshotUnavailable):
            waiting, self._waiting = self._waiting, []
            self._storage.memberships.floor = None
            for message in waiting:
                self._refused(message.to)
            return
        if content.index + 1 < self._storage.view.first_index():
            # This member fell behind and installed a snapshot while its own snapshot was being
            # opened. The log term and the membership at the old snapshot's index are gone, so
            # discard the old snapshot and open a new one.
            self._effects.flush(content.close, _released)
            self._effects.flush(self._open, self._opened)
            return
        outgoing = OutgoingSnapshot(content, self._meta(content.index))
        waiting, self._waiting = self._waiting, []
        self._outgoing.append(outgoing)
        self._storage.memberships.floor = None
        for message in waiting:
            self._send(message, outgoing)

    def _send(self, message: Message, outgoing: OutgoingSnapshot) -> None:
        assert message.snapshot is not None
        assert outgoing.meta.index >= message.snapshot.meta.index
        outgoing.receivers.add(message.to)
        outgoing.served.add(message.to)
        self._effects.send_snapshot(message, outgoing.meta, outgoing.content)

    def ended(self, member: MemberId) -> None:
        """Record the end of the transfer to ``member``; the last transfer releases the snapshot."""
        for outgoing in self._outgoing:
            outgoing.receivers.discard(member)
        released = [each for each in self._outgoing if not each.receivers]
        self._outgoing = [each for each in self._outgoing if each.receivers]
        for outgoing in released:
            self._effects.flush(outgoing.content.close, _released)

    def needed_from(self) -> LogIndex | None:
        """Return the lowest index of the outgoing snapshots, after which the log is needed."""
        announced = [each.snapshot.meta.index for each in self._waiting if each.snapshot]
        sending = [each.meta.index for each in self._outgoing]
        return min([*announced, *sending], default=None)

    def _meta(self, index: LogIndex) -> SnapshotMeta:
        return SnapshotMeta(
            index, self._storage.view.term(index), self._storage.memberships.at(index)
        )


def _released(_: None) -> None:
    """Do nothing after a snapshot was released."""
