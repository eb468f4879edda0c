"""Exchange the cluster versions that the members speak, in beacons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from google.protobuf.message import DecodeError

from taskraft_replication.core.types import MemberId
from taskraft_replication.errors import MessageMalformed
from taskraft_service.clock.member_clocks import BEACON_AGE_MS_MAX
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.stubs.log.v1 import beacon_pb2
from taskraft_service.versions import OWN_RANGE, VersionRange


class MemberVersions:
    """The versions of the other members, from their last beacons; satisfies ``Beacons``.

    The leader receives beacons of all members, a follower only those of the leader.

    Args:
        member_id: this member.
        monotonic_ms: reads a clock that never goes back.
        own: the versions that this node speaks.
    """

    def __init__(
        self, member_id: MemberId, monotonic_ms: Callable[[], int], own: VersionRange = OWN_RANGE
    ) -> None:
        self._member_id = member_id
        self._monotonic_ms = monotonic_ms
        self._own: Final = own
        spoken = beacon_pb2.VersionRange(lowest=own.lowest, highest=own.highest)
        self._beacon = beacon_pb2.ClockBeacon(cluster_versions=spoken).SerializeToString()
        self._heard: dict[MemberId, tuple[int, VersionRange]] = {}

    def make(self) -> bytes:
        """Return the part of a beacon with the versions of this node; see ``Beacons``."""
        return self._beacon

    def received(self, sender: MemberId, beacon: bytes) -> None:
        """Record the versions of another member; see ``Beacons``.

        Raises:
            MessageMalformed: the bytes are not a valid beacon.
        """
        try:
            spoken = beacon_pb2.ClockBeacon.FromString(beacon).cluster_versions
        except DecodeError as error:
            raise MessageMalformed("the received bytes are not a beacon") from error
        if not 0 < spoken.lowest <= spoken.highest:
            raise MessageMalformed("a beacon has no range of cluster versions")
        self._heard[sender] = (self._monotonic_ms(), VersionRange(spoken.lowest, spoken.highest))

    def of(self, member: int) -> VersionRange | None:
        """Return the versions that a member speaks; None: it has not answered for 10 s."""
        if member == self._member_id:
            return self._own
        heard_ms, spoken = self._heard.get(MemberId(member), (0, None))
        is_old = self._monotonic_ms() - heard_ms > BEACON_AGE_MS_MAX
        return None if is_old else spoken

    def of_all(self, members: Iterable[PeerAddress]) -> dict[str, VersionRange | None]:
        """Return the versions of members by name; None: the member has not answered for 10 s."""
        return {member.name: self.of(member.member_id) for member in members}
