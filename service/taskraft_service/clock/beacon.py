"""Encode the clocks of a node as the beacon that is sent with its heartbeats."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from taskraft_replication.errors import MessageMalformed
from taskraft_replication.stubs.log.v1 import beacon_pb2
from taskraft_service.queue.values import value


@value
class ClockBeacon:
    """Clocks of one node at one moment; fields as in taskraft.log.v1.ClockBeacon."""

    lead_term: int
    cluster_ms: int | None
    wall_ms: int
    agreed_offset_ms: int | None = None

    def encode(self) -> bytes:
        """Return the bytes of the beacon."""
        return beacon_pb2.ClockBeacon(
            lead_term=self.lead_term,
            cluster_ms=self.cluster_ms,
            wall_ms=self.wall_ms,
            agreed_offset_ms=self.agreed_offset_ms,
        ).SerializeToString()


def decode_beacon(raw: bytes) -> ClockBeacon:
    """Return the clocks in a beacon.

    Raises:
        MessageMalformed: no node can have sent these bytes.
    """
    try:
        message = beacon_pb2.ClockBeacon.FromString(raw)
    except DecodeError as error:
        raise MessageMalformed("the received bytes are not a beacon of clocks") from error
    if min(message.lead_term, message.cluster_ms) < 0 or message.wall_ms <= 0:
        raise MessageMalformed("a clock in a beacon is missing or negative")
    has = message.HasField
    return ClockBeacon(
        message.lead_term,
        message.cluster_ms if has("cluster_ms") else None,
        message.wall_ms,
        message.agreed_offset_ms if has("agreed_offset_ms") else None,
    )
