"""Compare the outcomes of tube drivers between the members, through their beacons.

The leader asks the members about one entry at a time. It asks about an entry at which a member
waits. If no member waits, it asks about the last entry at which a driver failed on any member. Each
member answers with a checksum of the drivers that failed at this entry. The leader sends the
outcome of a majority of the voters to all members.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from taskraft_replication.beacons import Beacons
from taskraft_replication.core.types import LogIndex, MemberId
from taskraft_replication.errors import MessageMalformed
from taskraft_service.machine.failed_drivers import FailedDrivers
from taskraft_service.stubs.log.v1 import beacon_pb2

_NO_BALLOT: Final = beacon_pb2.DriverBallot()


class VoterGroup(Protocol):
    """The Raft group, as the comparison uses it."""

    @property
    def lead_term(self) -> int:
        """Return the term in which this member leads; 0 if it does not lead."""

    def has_quorum(self, members: Collection[MemberId]) -> bool:
        """Return whether members include a majority of the voters.

        During a joint change, the members must include a majority of the old and of the new voters.
        """


class AppliedState(Protocol):
    """The state machine, as the comparison uses it."""

    @property
    def failed_drivers(self) -> FailedDrivers:
        """Return the failures of drivers at applied entries."""

    @property
    def applied_index(self) -> LogIndex:
        """Return the last applied entry."""


class DriverAgreement:
    """The outcomes of drivers on the other members, from beacons; satisfies ``Beacons``.

    Args:
        member_id: this member.
        group: the Raft group.
        machine: the state machine.
    """

    def __init__(self, member_id: MemberId, group: VoterGroup, machine: AppliedState) -> None:
        self._member_id = member_id
        self._group = group
        self._machine = machine
        self._ballots: dict[MemberId, beacon_pb2.DriverBallot] = {}
        """On the leader: the last ballot of each member that knows of a failure."""
        self._asked = 0
        self._answers: dict[MemberId, int] = {}
        """On the leader: the outcome of each member at the entry ``_asked``."""
        self._decided: int | None = None
        machine.failed_drivers.ask_members = self._review

    def make(self) -> bytes:
        """Return this member's report of failed drivers, as part of a beacon; see ``Beacons``.

        The part is empty while no driver has failed on any member. Protobuf merges concatenated
        messages, so the part is appended to the beacon of the clocks.
        """
        failed = self._machine.failed_drivers
        is_leader = bool(self._group.lead_term)
        if is_leader:
            self._choose_question()
        held, last = failed.held_index, failed.last_failure_index
        if not (held or last or self._asked):
            return b""
        ballot = beacon_pb2.DriverBallot(
            held_index=held,
            last_index=last,
            asked_index=self._asked,
            outcome=self._own_outcome(),
            decided=self._decided if is_leader else None,
        )
        return beacon_pb2.ClockBeacon(drivers=ballot).SerializeToString()

    def received(self, sender: MemberId, beacon: bytes) -> None:
        """Process the report of another member; see ``Beacons``.

        Raises:
            MessageMalformed: the bytes are not a valid beacon.
            DriverDiffers: the drivers of this member and of a majority differ.
        """
        try:
            message = beacon_pb2.ClockBeacon.FromString(beacon)
        except DecodeError as error:
            raise MessageMalformed("the received bytes are not a beacon") from error
        ballot = message.drivers if message.HasField("drivers") else _NO_BALLOT
        if self._group.lead_term:
            self._count(sender, ballot)
            return
        self._ballots.clear()
        self._answers.clear()
        self._asked, self._decided = ballot.asked_index, None
        if ballot.HasField("decided"):
            self._decide(ballot.asked_index, ballot.decided)

    def _count(self, sender: MemberId, ballot: beacon_pb2.DriverBallot) -> None:
        """Process the report of a member, as leader."""
        if ballot.held_index or ballot.last_index:
            self._ballots[sender] = ballot
        else:
            self._ballots.pop(sender, None)
        if self._asked and ballot.asked_index == self._asked and ballot.HasField("outcome"):
            self._answers[sender] = ballot.outcome
            self._review()

    def _review(self) -> None:
        """As leader, count the reported outcomes, and adopt the outcome of a majority."""
        if not self._group.lead_term:
            return
        self._choose_question()
        own = self._own_outcome()
        if not self._asked or own is None:
            return
        answers = {**self._answers, self._member_id: own}
        for outcome in set(answers.values()):
            agreeing = [member for member, each in answers.items() if each == outcome]
            if self._group.has_quorum(agreeing):
                self._decided = outcome
                self._decide(self._asked, outcome)
                return

    def _choose_question(self) -> None:
        """Choose the first entry at which a member waits, or the last at which a driver failed.

        If several members wait at different entries, the next entry is decided after the member of
        the previous entry has continued or stopped.
        """
        failed = self._machine.failed_drivers
        own = beacon_pb2.DriverBallot(
            held_index=failed.held_index, last_index=failed.last_failure_index
        )
        ballots = [own, *self._ballots.values()]
        held = [ballot.held_index for ballot in ballots if ballot.held_index]
        index = min(held) if held else max(ballot.last_index for ballot in ballots)
        if index != self._asked:
            self._asked, self._decided = index, None
            self._answers.clear()

    def _own_outcome(self) -> int | None:
        """Return the outcome of this member at the entry in question; None: unknown."""
        machine = self._machine
        return machine.failed_drivers.outcome_at(self._asked, machine.applied_index)

    def _decide(self, index: int, outcome: int) -> None:
        self._machine.failed_drivers.decide(index, outcome, self._machine.applied_index)


class JoinedBeacons:
    """Joins several beacons of a node into one beacon; satisfies ``Beacons``."""

    def __init__(self, *parts: Beacons) -> None:
        self._parts = parts

    def make(self) -> bytes:
        """Return the beacon to send, at most ``BEACON_BYTES_MAX`` bytes; empty: no beacon."""
        return b"".join([part.make() for part in self._parts])

    def received(self, sender: MemberId, beacon: bytes) -> None:
        """Process a beacon of another member; ``beacon`` is empty if that member makes none."""
        for part in self._parts:
            part.received(sender, beacon)
