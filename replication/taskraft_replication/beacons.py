"""Define the interface for data that members attach to heartbeats."""

from __future__ import annotations

from typing import Final, Protocol

from taskraft_replication.core.types import MemberId

BEACON_BYTES_MAX: Final = 256


class Beacons(Protocol):
    """Makes and receives beacons: bytes that are sent with heartbeats and heartbeat replies.

    A beacon may be lost. Beacons of one member arrive in order. Replication does not read the
    content. Both methods run on the event loop for each heartbeat, so they must return quickly.
    """

    def make(self) -> bytes:
        """Return the beacon to send, at most ``BEACON_BYTES_MAX`` bytes; empty: no beacon."""

    def received(self, sender: MemberId, beacon: bytes) -> None:
        """Process a beacon of another member; ``beacon`` is empty if that member makes none.

        Raises:
            MessageMalformed: the bytes are not a valid beacon.
        """


class NoBeacons:
    """Satisfies ``Beacons`` without any data to exchange."""

    def make(self) -> bytes:
        """Return no beacon."""
        return b""

    def received(self, sender: MemberId, beacon: bytes) -> None:
        """Ignore a beacon."""
