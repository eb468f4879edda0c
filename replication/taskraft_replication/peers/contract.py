"""Define the interfaces between the driver and the transport."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol, TypeAlias

from taskraft_replication.core.types import MemberId, Message, Roster, SnapshotMeta, Term
from taskraft_replication.errors import DirectoryRefused
from taskraft_replication.machine import SnapshotReader
from taskraft_replication.storage.log_parts import ReadableLog

PreferredSet: TypeAlias = frozenset[MemberId] | None
"""Followers that get entries at once; None stands for all followers."""


@cache
def process_id() -> int:
    """Return the random number of this process, which is drawn at the first call.

    A member that starts again in the process, after a repair, keeps the number: a stream of its
    earlier start may look open to a peer for a while. An import draws no number, because forks
    of a process that has done its imports are different processes.
    """
    return secrets.randbits(63)


@dataclass(slots=True, frozen=True)
class ProgramVersions:
    """Versions of the program above this protocol that a member speaks.

    ``in_force`` returns the version that its group uses. All 0: the program has no versions.
    """

    lowest: int = 0
    highest: int = 0
    in_force: Callable[[], int] = lambda: 0


NO_PROGRAM: Final = ProgramVersions()


@dataclass(slots=True, frozen=True)
class Membership:
    """Identity of this member in messages to its peers."""

    cluster_id: str
    group_id: int
    member_id: MemberId
    incarnation: int
    """Number of starts of this member; peers reject messages of an earlier incarnation."""
    directory_id: str = ""
    """Identity of the data directory; peers refuse a member with another directory than before."""
    peer_address: str = ""
    """Address of this member, for peers that do not know it yet."""
    founders: tuple[MemberId, ...] = ()
    """Founders of a new group, all of which this member awaits; empty: the group exists."""
    program: ProgramVersions = NO_PROGRAM
    """Versions of the program; a member whose program is older than its group is refused."""
    start_id: int = 0
    """``process_id`` of the process, by which peers tell two processes of one member apart."""


class SnapshotSink(Protocol):
    """Destination of an incoming snapshot's content, for one stream."""

    @property
    def size(self) -> int:
        """Number of bytes received so far, by this stream and earlier streams."""

    async def write(self, offset: int, data: bytes, crc32c: int) -> None:
        """Write the next piece.

        Raises:
            SnapshotBroken: the piece does not follow the previous one, or is damaged.
        """

    async def finish(self) -> int:
        """Make the content durable and pass it to the driver; return its length in bytes."""

    def abandon(self) -> None:
        """Stop before the content is complete; another stream may continue the transfer."""


class Receiver(Protocol):
    """A member, as the transport uses it.

    All methods are called on the event loop.
    """

    @property
    def leader(self) -> MemberId:
        """Member that leads as far as this member knows, or ``NO_MEMBER``."""

    @property
    def log(self) -> ReadableLog:
        """The log, for a member whose log is damaged."""

    def receive(self, messages: Sequence[Message]) -> None:
        """Process messages from one peer, in the order in which it sent them."""

    def make_beacon(self) -> bytes:
        """Return the beacon for a frame with a heartbeat; see ``Beacons``."""

    def receive_beacon(self, member: MemberId, beacon: bytes) -> None:
        """Process the beacon of a frame, before its messages; see ``Beacons``.

        Raises:
            MessageMalformed: the bytes are not a valid beacon.
        """

    def leader_alive(self, member: MemberId, term: Term) -> None:
        """Handle the arrival of a part of a frame from ``member``, which leads in ``term``."""

    def follower_alive(self, member: MemberId, term: Term) -> None:
        """Handle an activity report of ``member``, which follows this leader of ``term``."""

    def unreachable(self, member: MemberId) -> None:
        """Handle the loss of messages to ``member``."""

    def stream_ended(self, member: MemberId) -> None:
        """Handle the end of the stream from ``member``, whose process may have crashed."""

    def handshake_done(self, member: MemberId, directory_id: str) -> None:
        """Handle a successful handshake with ``member``; ``directory_id`` is its data directory."""

    def refused(self, error: DirectoryRefused) -> None:
        """Stop this member, because a peer refuses it permanently."""

    def snapshot_sent(self, member: MemberId, *, ok: bool) -> None:
        """Handle the end of the transfer of a snapshot to ``member``."""

    async def open_state(self, member: MemberId) -> tuple[SnapshotMeta, SnapshotReader]:
        """Open the applied state for ``member``, which has lost its own state.

        Raises:
            SnapshotBroken: this member cannot open its state now.
        """

    def begin_snapshot(self, message: Message, transfer_id: str) -> SnapshotSink:
        """Prepare to receive the content of the snapshot in ``message``, or the rest of it.

        Raises:
            SnapshotBroken: the transfer id is invalid.
            SnapshotBusy: another snapshot is being received or installed, or the node is stopping.
        """


class Peers(Protocol):
    """The other members of one group, as the driver uses them."""

    @property
    def is_accepted(self) -> bool:
        """Whether a peer has accepted this process."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages to their receivers; never blocks, and may lose messages."""

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        """Stream a snapshot to a member; report the end with ``snapshot_sent``."""

    def set_preferred(self, chosen: PreferredSet) -> None:
        """Send entries at once to these followers; the others may get them later."""

    def set_leading_term(self, term: Term) -> None:
        """Set the term in which this member leads.

        With 0, this member no longer leads, and queued appends are dropped.
        """

    def send_alive(self, leader: MemberId, term: Term) -> None:
        """Send an activity report to the leader of ``term``; the message may be lost."""

    def set_roster(self, roster: Roster) -> None:
        """Update members and addresses; links to removed members are closed."""

    async def close(self) -> None:
        """Close all streams of the group."""


class Transport(Protocol):
    """Carries the messages of all groups of a process."""

    def join(self, membership: Membership, roster: Roster, receiver: Receiver) -> Peers:
        """Start to exchange messages with the other members of a group."""
