"""A beacon is decoded as it was encoded, and invalid ones are refused."""

import pytest

from taskraft_replication.beacons import BEACON_BYTES_MAX
from taskraft_replication.errors import MessageMalformed
from taskraft_service.clock.beacon import ClockBeacon, decode_beacon
from taskraft_service.stubs.log.v1 import beacon_pb2

LONGEST = ClockBeacon((1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1, -(1 << 63))


@pytest.mark.parametrize(
    "beacon", [ClockBeacon(0, None, 1), ClockBeacon(7, 0, 5, 0), ClockBeacon(7, 3, 5, -9), LONGEST]
)
def test_clocks_are_decoded_as_they_were_encoded(beacon):
    assert decode_beacon(beacon.encode()) == beacon
    assert len(beacon.encode()) <= BEACON_BYTES_MAX


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"wall_ms": -1},
        {"wall_ms": 1, "lead_term": -1},
        {"wall_ms": 1, "cluster_ms": -1},
    ],
)
def test_impossible_clocks_are_refused(fields):
    with pytest.raises(MessageMalformed, match="a clock in a beacon is missing or negative"):
        decode_beacon(beacon_pb2.ClockBeacon(**fields).SerializeToString())


def test_other_bytes_are_refused():
    with pytest.raises(MessageMalformed, match="are not a beacon of clocks"):
        decode_beacon(b"\xff")
