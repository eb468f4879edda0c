"""Compare the states of the members at the same entry, through their beacons.

The leader names an entry that it has not applied yet, or its last entry if nothing is proposed.
Each member takes a view of its state after this entry and computes digests of the view in the
background. The members send their digests to the leader, and the leader sends the digest of a
majority of the voters to all members. A member that differs from the majority fails, and its
process rebuilds the state. If no majority agrees, no member fails, because nothing shows which
state is right. The cluster version decides the version of the digests, so members of different
releases compute the same digests.

A comparison begins once in a period, and soon after a member has started or received a state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol

import structlog
from google.protobuf.message import DecodeError

from taskraft_replication.core.types import LogIndex, MemberId
from taskraft_replication.errors import MessageMalformed
from taskraft_service.queue.persistence.record_digest import DIGESTS, PARTS
from taskraft_service.stubs.log.v1 import beacon_pb2

log: Final = structlog.get_logger(__name__)

FIRST_MS_MAX: Final = 60_000
"""Maximum time between the start of a leadership and its first comparison, and minimum time between
two comparisons.
"""
ANSWER_MS_MAX: Final = 600_000
"""Time after which the leader asks again, about another entry, if no majority has answered."""
BEACONS_AHEAD: Final = 4
"""Number of intervals between beacons after which a busy leader applies the named entry."""

_NO_BALLOT: Final = beacon_pb2.StateBallot()


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of one state; digests of different versions are not compared."""

    version: int
    """Version of the digests; 0: there are no digests."""
    parts: tuple[int, ...]
    """Digests of the parts of the state, see ``record_digest``."""

    @property
    def whole(self) -> int:
        """One digest of 64 bits of all parts."""
        packed = b"".join(part.to_bytes(4, "big") for part in self.parts)
        return int.from_bytes(blake2b(packed, digest_size=8).digest(), "big")

    def __bool__(self) -> bool:
        """Return whether there are digests."""
        return bool(self.parts)


_NONE: Final = Digests(0, ())


class StateDiffers(Exception):
    """The state of this member differs from the state of a majority of the voters.

    The node must not answer from this state. The log is not affected, so the state can be rebuilt.
    """

    def __init__(self, index: int, member: int, parts: Sequence[int]) -> None:
        super().__init__(
            f"the state of member {member} after entry {index} differs from the state of a majority"
            f" of the voters, in {places_of(parts)}"
        )


def places_of(parts: Sequence[int]) -> str:
    """Return a description of the records in the given parts, for error texts."""
    if not parts:
        return "unknown parts"
    places = ["sessions, schedules or groups"] if 0 in parts else []
    tubes = ", ".join(str(part - 1) for part in parts if part)
    if tubes:
        places.append(f"tasks of tubes whose number modulo {PARTS - 1} is {tubes}")
    return " and ".join(places)


class ComparedGroup(Protocol):
    """The Raft group, as the comparison uses it."""

    @property
    def lead_term(self) -> int:
        """Return the term in which this member leads; 0 if it does not lead."""

    @property
    def voters(self) -> Collection[MemberId]:
        """Return the voters."""

    def has_quorum(self, members: Collection[MemberId]) -> bool:
        """Return whether members include a majority of the voters.

        During a joint change, the members must include a majority of the old and of the new voters.
        """


class StateComparison:
    """The digests of this member and, on the leader, of the others; satisfies ``Beacons``.

    Args:
        member_id: this member.
        group: the Raft group.
        applied_index: returns the last applied entry.
        begin: starts to compute the digests after an entry; the result goes to ``computed``.
        period_ms: time between two comparisons.
        monotonic_ms: reads a clock that never goes back.
        fail: stops this node.
    """

    def __init__(
        self,
        member_id: MemberId,
        group: ComparedGroup,
        applied_index: Callable[[], LogIndex],
        begin: Callable[[LogIndex], None],
        period_ms: int,
        monotonic_ms: Callable[[], int],
        fail: Callable[[Exception], None],
    ) -> None:
        self._member_id = member_id
        self._group = group
        self._applied_index = applied_index
        self._begin = begin
        self._period_ms = period_ms
        self._monotonic_ms = monotonic_ms
        self._fail = fail
        self.agreed: Callable[[], None] = lambda: None
        """Called when the state of this node is that of a majority."""
        self._led_term = 0
        self._due_ms = 0
        self._earliest_ms = 0
        """Time before which the leader begins no comparison, whoever asks for one."""
        self._wants_comparison = True
        """Whether no comparison has begun since this member has started or received its state."""
        self._applied_before = applied_index()
        self._asked = 0
        self._index = 0
        self._own = _NONE
        self._answers: dict[MemberId, Digests] = {}
        self._decided: tuple[int, int] | None = None
        """Version and digest of a majority of the voters."""
        self._right = _NONE
        """Digests of the state that the majority has; empty: this member does not know them."""
        self.compared = 0
        """Comparisons since the start in which this node, as leader, found a majority."""
        self.differences = 0
        """Comparisons since the start in which this node, as leader, found members that differ."""
        self._is_told = False
        """Whether a beacon of this member contained its digests."""

    def make(self) -> bytes:
        """Return the part of a beacon with the digests; see ``Beacons``."""
        is_leader = bool(self._group.lead_term)
        if is_leader:
            self._choose()
        wants_comparison = self._wants_comparison and not is_leader
        if not self._asked and not wants_comparison:
            return b""
        self._is_told = bool(self._own)
        ballot = beacon_pb2.StateBallot(
            asked_index=self._asked if is_leader else 0,
            index=self._index,
            parts=self._own.parts,
            version=self._own.version,
            wants_comparison=wants_comparison,
        )
        if is_leader and self._decided is not None:
            version, ballot.decided = self._decided
            if version != ballot.version:
                del ballot.parts[:]
            ballot.version = version
        return beacon_pb2.ClockBeacon(state=ballot).SerializeToString()

    def received(self, sender: MemberId, beacon: bytes) -> None:
        """Process the digests of another member; see ``Beacons``.

        Raises:
            MessageMalformed: the bytes are not a valid beacon.
        """
        try:
            message = beacon_pb2.ClockBeacon.FromString(beacon)
        except DecodeError as error:
            raise MessageMalformed("the received bytes are not a beacon") from error
        ballot = message.state if message.HasField("state") else _NO_BALLOT
        is_known = ballot.version in DIGESTS and len(ballot.parts) == PARTS
        digests = Digests(ballot.version, tuple(ballot.parts)) if is_known else _NONE
        if self._group.lead_term:
            if ballot.wants_comparison:
                self._due_ms = min(self._due_ms, self._earliest_ms)
            # A member that has restarted answers again, perhaps with another state than before.
            is_new = bool(digests) and self._answers.get(sender) != digests
            if is_new and ballot.index == self._asked:
                self._answers[sender] = digests
                self._review()
            return
        self._led_term = 0
        if ballot.asked_index and ballot.asked_index != self._asked:
            self._ask(ballot.asked_index)
        if not ballot.asked_index or ballot.asked_index != self._asked:
            return
        self._right = digests if ballot.index == self._asked else _NONE
        if ballot.HasField("decided"):
            self._decided = (ballot.version, ballot.decided)
            if self._is_told:  # otherwise the leader could not log the name of this member
                self._check_own()

    def state_received(self) -> None:
        """Note that this member uses a state which another member has sent."""
        self._wants_comparison = True

    def computed(self, index: LogIndex, version: int, parts: Sequence[int]) -> None:
        """Receive the digests of this member's state after an entry."""
        if index != self._asked:
            return
        self._index, self._own = index, Digests(version, tuple(parts))
        if self._group.lead_term:
            self._answers[self._member_id] = self._own
            self._review()

    def _ask(self, index: int) -> None:
        """Begin a comparison at an entry."""
        if index >= self._applied_index():
            self._wants_comparison = False
        self._asked, self._decided = index, None
        self._index, self._own, self._right = 0, _NONE, _NONE
        self._is_told = False
        self._answers.clear()
        self._begin(LogIndex(index))

    def _choose(self) -> None:
        """As leader, begin a comparison if one is due."""
        now_ms, term = self._monotonic_ms(), self._group.lead_term
        applied = self._applied_index()
        ahead = applied - self._applied_before
        self._applied_before = applied
        if term != self._led_term:
            self._led_term = term
            self._asked = 0
            self._due_ms = self._earliest_ms = now_ms + min(FIRST_MS_MAX, self._period_ms)
        if now_ms < self._due_ms or len(self._group.voters) < 2:
            return
        self._due_ms = now_ms + min(ANSWER_MS_MAX, self._period_ms)
        self._earliest_ms = now_ms + min(FIRST_MS_MAX, self._period_ms)
        self._ask(applied + BEACONS_AHEAD * ahead)

    def _review(self) -> None:
        """As leader, check whether a majority has the same digest; log the members that differ."""
        by_digest: dict[Digests, list[MemberId]] = {}
        for member, digests in self._answers.items():
            by_digest.setdefault(digests, []).append(member)
        for digests, members in by_digest.items():
            if self._group.has_quorum(members):
                self._found(digests, members)
                return
        is_one_version = len({digests.version for digests in by_digest}) == 1
        is_complete = set(self._group.voters) <= set(self._answers)
        if len(by_digest) > 1 and is_one_version and is_complete:
            self.differences += 1
            log.critical(
                "states differ, and no majority agrees; no node stops",
                revision=self._asked,
                members=sorted(by_digest.values()),
            )

    def _found(self, right: Digests, agreeing: Sequence[MemberId]) -> None:
        """Store the digests of a majority for the next beacon, and log the members that differ."""
        if self._decided is None:
            self._decided = (right.version, right.whole)
            self._due_ms = self._monotonic_ms() + self._period_ms
            self.compared += 1
        self._right = right
        differing = sorted(
            member
            for member, digests in self._answers.items()
            if member not in agreeing and digests.version == right.version
        )
        if differing:
            self.differences += 1
            log.critical("states differ", revision=self._asked, members=differing)
        self._check_own()

    def _check_own(self) -> None:
        """Stop this node if its digest differs from the digest of the majority."""
        if self._index != self._asked or self._decided is None:
            return
        version, whole = self._decided
        if self._own.version != version:
            return
        if self._own.whole == whole:
            self.agreed()
            return
        right = self._right
        is_known = bool(right) and right.whole == whole
        pairs = enumerate(zip(self._own.parts, right.parts, strict=True)) if is_known else ()
        wrong = [part for part, (own, other) in pairs if own != other]
        self._fail(StateDiffers(self._asked, self._member_id, wrong))
