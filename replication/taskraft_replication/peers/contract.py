"""State what the driver and the transport need of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from taskraft_replication.core.types import MemberId, Message, Roster, SnapshotMeta
from taskraft_replication.errors import DirectoryRefused
from taskraft_replication.machine import SnapshotReader

PreferredSet: TypeAlias = frozenset[MemberId] | None
"""Who gets entries at once; None: everybody."""


@dataclass(slots=True, frozen=True)
class Membership:
    """Who this member is when it talks to others."""

    cluster_id: str
    group_id: int
    member_id: MemberId
    incarnation: int
    """Number of this member's starts; peers stop listening to an earlier life."""
    directory_id: str = ""
    """Identity of its data directory; peers refuse a member that comes with another one."""
    peer_address: str = ""
    """Where it listens, for peers that have not heard of it yet."""


class SnapshotSink(Protocol):
    """Where the content of an incoming snapshot goes; one stream's part of it."""

    @property
    def size(self) -> int:
        """How much of the content is there already."""

    async def write(self, offset: int, data: bytes, crc32c: int) -> None:
        """Take the next piece.

        Raises:
            SnapshotBroken: it does not follow on the piece before, or is damaged.
        """

    async def finish(self) -> int:
        """Make the content durable and hand it over; return its length."""

    def abandon(self) -> None:
        """End before the content is whole; another stream may go on with it."""


class Receiver(Protocol):
    """A member, as the transport sees it. All calls come on the event loop."""

    def receive(self, messages: Sequence[Message]) -> None:
        """Take messages from one peer, in the order in which it sent them."""

    def unreachable(self, member: MemberId) -> None:
        """Learn that messages to ``member`` were lost."""

    def stream_ended(self, member: MemberId) -> None:
        """Learn that the stream from ``member`` has ended: its process may have died."""

    def handshake_done(self, member: MemberId, directory_id: str) -> None:
        """Learn which data directory ``member`` has; it has seen ours and had no objection."""

    def refused(self, error: DirectoryRefused) -> None:
        """Learn that a peer will never listen to this member again: the member must end."""

    def snapshot_sent(self, member: MemberId, *, ok: bool) -> None:
        """Learn how the transfer of a snapshot to ``member`` ended."""

    def begin_snapshot(self, message: Message, transfer_id: str) -> SnapshotSink:
        """Prepare for the content of the snapshot that ``message`` announces, or for its rest.

        Raises:
            SnapshotBroken: another one is being received or installed.
        """


class Peers(Protocol):
    """The other members of one group, as the driver sees them."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages to the members that they name; never blocks, may lose them."""

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        """Stream a snapshot to a member; reports by ``snapshot_sent``."""

    def set_preferred(self, chosen: PreferredSet) -> None:
        """Learn who gets entries at once; the others may get them a little later."""

    def set_roster(self, roster: Roster) -> None:
        """Learn who the members are and where; links to those that are gone are closed."""

    async def close(self) -> None:
        """Leave the group: end all streams."""


class Transport(Protocol):
    """Carries the messages of all groups of a process."""

    def join(self, membership: Membership, roster: Roster, receiver: Receiver) -> Peers:
        """Begin to exchange messages with the other members of a group."""
