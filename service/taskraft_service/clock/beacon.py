"""Encode the clock readings of a node as a beacon, which is sent with each heartbeat."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from taskraft_replication.errors import MessageMalformed
from taskraft_service.queue.values import value
from taskraft_service.stubs.log.v1 import beacon_pb2


@value
class ClockBeacon:
    """Clock readings of one node at one instant; fields as in taskraft.log.v1.ClockBeacon."""

    lead_term: int
    cluster_ms: int | None
    wall_ms: int
    agreed_offset_ms: int | None = None
    clock_epoch: int = 0
    clock_term: int = 0

    def encode(self) -> bytes:
        """Return the bytes of the beacon."""
        return beacon_pb2.ClockBeacon(
            lead_term=self.lead_term,
            cluster_ms=self.cluster_ms,
            wall_ms=self.wall_ms,
            agreed_offset_ms=self.agreed_offset_ms,
            clock_epoch=self.clock_epoch,
            clock_term=self.clock_term,
        ).SerializeToString()


def decode_beacon(raw: bytes) -> ClockBeacon:
    """Return the clock readings in a beacon.

    Raises:
        MessageMalformed: the bytes are not a valid beacon.
    """
    try:
        message = beacon_pb2.ClockBeacon.FromString(raw)
    except DecodeError as error:
        raise MessageMalformed("the received bytes are not a beacon of clocks") from error
    counts = (message.lead_term, message.cluster_ms, message.clock_epoch, message.clock_term)
    if min(counts) < 0 or message.wall_ms <= 0:
        raise MessageMalformed("a clock in a beacon is missing or negative")
    has = message.HasField
    return ClockBeacon(
        message.lead_term,
        message.cluster_ms if has("cluster_ms") else None,
        message.wall_ms,
        message.agreed_offset_ms if has("agreed_offset_ms") else None,
        message.clock_epoch,
        message.clock_term,
    )
