"""Start the cluster clock of a new leader, correct the wall offset, and log clock errors.

A leader with a wrong wall clock transfers the leadership to a voter with a correct wall clock.
Cluster time does not depend on any wall clock, so the leader can serve until the transfer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from taskraft_replication.core.types import LogIndex, MemberId, Term
from taskraft_replication.errors import ReadUnconfirmed, ReplicationError, Stopped
from taskraft_replication.node.status import NodeStatus
from taskraft_service.clock.agreement import WALL_TOLERANCE_MS
from taskraft_service.clock.group_clock import LEAST, GroupClock
from taskraft_service.clock.wall_correction import WallCorrection
from taskraft_service.command_codecs.sessions import SET_WALL_OFFSET
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.leader.command_submitter import (
    CommandSubmitter,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.stubs.log.v1 import log_pb2

log: Final = structlog.get_logger(__name__)

CHECK_MS: Final = 1_000
"""Interval between two comparisons of the wall clocks."""
ALL_VOTERS_MS_MAX: Final = 2_000
"""Maximum wait of a new leader for further voters while the wall clocks of a majority disagree.

After a start of all nodes, every running voter sends a beacon within this time.
"""
REPORT_AFTER_MS: Final = 1_000
"""Time after which a new leader logs that it waits."""
RETRY_MS: Final = 100
TRANSFER_AFTER_MS: Final = 6_000
"""Time from the check that finds the own wall clock wrong to the transfer of the leadership. With
the comparisons before that check, a leader transfers within 10 s of the error."""
TRANSFER_RETRY_MS: Final = 5_000
"""Minimum time between two attempts to transfer the leadership."""


WRONG: Final = "the wall clock of this node differs from the clocks of a majority; set the clock"
DISAGREE: Final = "no majority of the voters has wall clocks that agree; set the clocks"
AGAINST: Final = "the wall clocks of a majority differ from the wall time of the cluster"
RIGHT: Final = "the wall clock of this node agrees with those of a majority"
ALONE: Final = "the only voter cannot compare its wall clock with another; keep the clock right"
STEPPED: Final = "corrects the wall time of the cluster by a step"


class Member(Protocol):
    """The Raft member, as the clock keeper uses it."""

    def status(self) -> NodeStatus:
        """Return a copy of the member's state."""

    async def read_index(self) -> LogIndex:
        """Wait until all entries that were committed before the call are applied.

        Raises:
            ReadUnconfirmed: no quorum answered in time.
            Stopped: the node is stopping.
        """

    async def transfer_leadership(self, to: MemberId | None = None) -> None:
        """Transfer the leadership."""


class ClockKeeper:
    """Starts the clock of a leader, and checks the wall clocks on every node.

    Args:
        clock: the clocks of this node and of the other members.
        member: the Raft member.
        submitter: proposes commands.
        leadership: leader and term.
        wall_offset_ms: reads the wall offset in the applied state.
        monotonic_ms: reads a clock that never goes back.
    """

    def __init__(
        self,
        clock: GroupClock,
        member: Member,
        submitter: CommandSubmitter,
        wall_offset_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._member = member
        self._submitter = submitter
        self._wall_offset_ms = wall_offset_ms
        self._monotonic_ms = monotonic_ms
        self._beacon = asyncio.Event()
        clock.on_beacon = self._beacon.set
        self.awaited_voters: frozenset[MemberId] = frozenset()
        """Voters whose clocks this new leader waits for; empty if it does not wait."""
        self._correction = WallCorrection(monotonic_ms())
        self._correction_term = Term(0)
        self._told = RIGHT
        self._is_alone_told = False
        self._transfer_at_ms: int | None = None
        """When to transfer the leadership; None: the wall clock is right, or this node follows."""

    @property
    def problem(self) -> str:
        """Description of a clock problem, for probes; empty: none."""
        if self.awaited_voters:
            members = ", ".join(str(member) for member in sorted(self.awaited_voters))
            return f"waits for the clocks of members {members}"
        deviation_ms = self._clock.wall_deviation_ms
        if self._clock.deviates and deviation_ms is not None:
            where = "ahead of" if deviation_ms > 0 else "behind"
            return f"the wall clock is {abs(deviation_ms)} ms {where} those of a majority"
        return ""

    def wall_deviations(self) -> Mapping[MemberId, int]:
        """Return each known voter's wall clock minus the wall clock of a majority, in ms."""
        return self._clock.wall_deviations()

    # ------------------------------------------------------------------------- a new leader

    @property
    def epoch(self) -> int:
        """The epoch of the cluster time; see ``ClusterClock``."""
        return self._clock.cluster.epoch

    async def start_clock(self) -> None:
        """Wait until this new leader knows the cluster time.

        The call returns once the log is applied if this process has received the cluster time of
        the previous leader. Otherwise it waits without limit for a majority of the voters, because
        only a majority can determine a safe cluster time.

        Raises:
            NotProposed: the node is stopping.
        """
        await self._apply_log()
        began_ms = self._monotonic_ms()
        is_told = False
        try:
            while not self._clock.try_start(
                waits_for_all=(waited_ms := self._monotonic_ms() - began_ms) < ALL_VOTERS_MS_MAX
            ):
                self.awaited_voters = frozenset(self._clock.unheard_voters())
                if waited_ms >= REPORT_AFTER_MS and not is_told:
                    is_told = True
                    log.warning(
                        "the leader does not serve yet: it waits for the clocks of other voters",
                        voters=sorted(self.awaited_voters),
                    )
                await self._next_beacon()
        finally:
            self.awaited_voters = frozenset()
        if self._clock.is_alone and not self._is_alone_told:
            self._is_alone_told = True
            log.info(ALONE)

    async def _apply_log(self) -> None:
        """Wait until the log is applied, and with it the last timestamp, offset and epoch."""
        while True:
            try:
                await self._member.read_index()
            except ReadUnconfirmed:
                await asyncio.sleep(RETRY_MS / 1_000)
            except Stopped as error:
                raise NotProposed(str(error)) from error
            else:
                return

    async def _next_beacon(self) -> None:
        """Wait for the next beacon, or for ``RETRY_MS``."""
        self._beacon.clear()
        try:
            async with asyncio.timeout(RETRY_MS / 1_000):
                await self._beacon.wait()
        except TimeoutError:
            pass

    # ------------------------------------------------------------------------- wall clocks

    async def run_periodically(self, leadership: LeadershipTracker) -> None:
        """Compare the wall clocks every second, until the task is cancelled."""
        while True:
            await asyncio.sleep(CHECK_MS / 1_000)
            await self.check(leadership)

    async def check(self, leadership: LeadershipTracker) -> None:
        """Compare the wall clocks; correct the wall offset or transfer leadership if needed."""
        self._clock.compare()
        self._tell(serves=leadership.serves)
        if not leadership.serves:
            self._transfer_at_ms = None
            return
        await self._correct(leadership.leader_and_term[1])
        if not self._clock.deviates:
            self._transfer_at_ms = None
            return
        now_ms = self._monotonic_ms()
        if self._transfer_at_ms is None:
            self._transfer_at_ms = now_ms + TRANSFER_AFTER_MS
        if now_ms >= self._transfer_at_ms and (successor := self.successor()) is not None:
            self._transfer_at_ms = now_ms + TRANSFER_RETRY_MS
            await self._transfer(leadership, successor)

    def _tell(self, *, serves: bool) -> None:
        """Log the state of the wall clocks when it changes."""
        state = self._state_of_wall_clocks(serves=serves)
        if state == self._told:
            return
        self._told = state
        clock = self._clock
        tell = {WRONG: log.error, RIGHT: log.info}.get(state, log.warning)
        tell(state, ahead_ms=clock.wall_deviation_ms, offsets_ms=clock.wall_offsets())

    def _state_of_wall_clocks(self, *, serves: bool) -> str:
        agreed_ms = self._clock.agreed_offset_ms
        if self._clock.deviates:
            return WRONG
        if agreed_ms is None:
            # A follower cannot judge: it gets no beacons of other followers.
            return DISAGREE if serves else self._told
        is_against = abs(agreed_ms - self._wall_offset_ms()) > WALL_TOLERANCE_MS
        return AGAINST if is_against else RIGHT

    async def _correct(self, term: Term) -> None:
        """Propose the next correction of the wall offset, if one is due."""
        if term != self._correction_term:
            at_once = self._clock.started_by == LEAST
            self._correction = WallCorrection(self._monotonic_ms(), at_once=at_once)
            self._correction_term = term
        in_force_ms = self._wall_offset_ms()
        offset_ms = self._correction.next_offset(
            in_force_ms, self._clock.agreed_offset_ms, self._monotonic_ms()
        )
        if offset_ms is None:
            return
        if abs(offset_ms - in_force_ms) > WALL_TOLERANCE_MS:
            log.warning(STEPPED, step_ms=offset_ms - in_force_ms)
        message = log_pb2.SetWallOffset(wall_offset_ms=offset_ms)
        try:
            await self._submitter.submit(encode_leader_command(SET_WALL_OFFSET, message))
        except (NotProposed, LeaderOverloaded, OutcomeUnknown) as error:
            log.info("correction of the wall offset postponed", reason=str(error))

    def wrong_clock_of(self, member: MemberId) -> int | None:
        """Return the deviation of a member's wall clock in ms, if a transfer to it must be refused.

        None: the clock is right or unknown, or no other voter with a right clock can lead.
        """
        lead_ms = self._clock.wall_deviations().get(member)
        if lead_ms is None or abs(lead_ms) <= WALL_TOLERANCE_MS:
            return None
        own = self._member.status().member_id
        can_lead = own in self._clock.right_members() or self.successor() is not None
        return lead_ms if can_lead else None

    def successor(self) -> MemberId | None:
        """Return the active voter with a correct wall clock and the longest log, or None."""
        status = self._member.status()
        right = self._clock.right_members() - {status.member_id}
        candidates = [
            (peer.match, member)
            for member, peer in status.peers.items()
            if member in right and peer.is_active and not peer.is_learner
        ]
        return max(candidates)[1] if candidates else None

    async def _transfer(self, leadership: LeadershipTracker, successor: MemberId) -> None:
        log.warning(
            "the leader transfers its leadership, because its wall clock is wrong", to=successor
        )
        try:
            await leadership.transfer(lambda: self._member.transfer_leadership(successor))
        except ReplicationError as error:
            log.warning("leadership not transferred", reason=str(error))
