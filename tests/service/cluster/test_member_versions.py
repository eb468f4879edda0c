"""The versions that the members speak, from their beacons."""

import pytest

from taskraft_replication.errors import MessageMalformed
from taskraft_service.clock.member_clocks import BEACON_AGE_MS_MAX
from taskraft_service.cluster.member_versions import MemberVersions
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.stubs.log.v1 import beacon_pb2
from taskraft_service.versions import VersionRange

OWN, OTHER = VersionRange(1, 2), VersionRange(1, 3)


class Clock:
    now_ms = 1_000_000

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def versions(clock):
    return MemberVersions(1, clock, OWN)


def beacon_of(spoken):
    return MemberVersions(2, Clock(), spoken).make()


def test_a_member_is_known_after_its_beacon(versions):
    assert versions.of(1) == OWN
    assert versions.of(2) is None
    versions.received(2, beacon_of(OTHER))
    assert versions.of(2) == OTHER
    versions.received(2, beacon_of(OWN))
    assert versions.of(2) == OWN, "a member can return to the previous release"


def test_a_member_that_is_silent_for_too_long_is_unknown(versions, clock):
    versions.received(2, beacon_of(OTHER))
    clock.now_ms += BEACON_AGE_MS_MAX
    assert versions.of(2) == OTHER
    clock.now_ms += 1
    assert versions.of(2) is None
    assert versions.of(1) == OWN, "the own versions are always known"


def test_the_versions_of_all_members_are_named(versions):
    versions.received(2, beacon_of(OTHER))
    members = [PeerAddress(number, f"n{number}", "h:1", "h:2") for number in (1, 2, 3)]
    assert versions.of_all(members) == {"n1": OWN, "n2": OTHER, "n3": None}


@pytest.mark.parametrize(
    "beacon",
    [
        b"\xff",
        beacon_pb2.ClockBeacon().SerializeToString(),
        beacon_of(VersionRange(2, 1)),
        beacon_of(VersionRange(0, 1)),
    ],
    ids=["no beacon", "no range", "an empty range", "version 0"],
)
def test_other_bytes_are_refused_and_change_nothing(versions, beacon):
    versions.received(2, beacon_of(OTHER))
    with pytest.raises(MessageMalformed):
        versions.received(2, beacon)
    assert versions.of(2) == OTHER
