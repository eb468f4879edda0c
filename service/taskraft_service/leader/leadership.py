"""Follow who leads, and carry this node through the phases of a leadership.

Raft says who leads; this module turns that into the phases of ``leader.node_phases``: a new
leader commits its Startup command before it serves, a deposed one ends what only a leader can do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from taskraft_replication.background import run_beside
from taskraft_replication.core.types import NO_MEMBER, MemberId, RaftRole, SoftState, Term
from taskraft_service.cluster.cluster_members import MemberAddresses
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.leader.node_phases import NodePhase, PhaseEvent, PhaseMachine
from taskraft_service.leader.proposal import NotProposed, OutcomeUnknown

log: Final = structlog.get_logger(__name__)


class LeadershipCallbacks(Protocol):
    """What a leadership begins and ends with."""

    async def begin(self, term: Term) -> None:
        """Commit and apply the Startup command, and make what only a leader has.

        Raises:
            NotProposed: leadership was lost before.
            OutcomeUnknown: leadership was lost meanwhile.
        """

    async def before_transfer(self) -> None:
        """Tell the log, before another node leads, what nobody else knows; soon."""

    def end(self) -> None:
        """Drop what waits to be proposed, and stop the deadlines."""


class LeadershipTracker:
    """Who leads, as far as this node knows.

    Args:
        phases: the phases of this node.
        member_id: this node.
        members: tells where a member is.
        lead: what a leadership begins and ends with.
    """

    def __init__(
        self,
        phases: PhaseMachine,
        member_id: MemberId,
        members: MemberAddresses,
        lead: LeadershipCallbacks,
    ) -> None:
        self._phases = phases
        self._member_id = member_id
        self._members = members
        self._lead = lead
        self._leader = NO_MEMBER
        self._term = Term(0)
        self._change = asyncio.get_running_loop().create_future()
        self._startup: asyncio.Task[None] | None = None
        self._lost_at = asyncio.get_running_loop().time()
        self.changes = 0
        """How often a leader was found since the process started."""
        self.is_caught_up = False
        """Everything is applied that was committed when the present leader was first heard of: what
        is applied from now on is news."""

    @property
    def serves(self) -> bool:
        """Tell whether this node takes mutations itself."""
        return self._phases.serves

    @property
    def leader(self) -> PeerAddress | None:
        """Who leads; None while nobody is known to."""
        return self._members.get(self._leader)

    @property
    def leader_id(self) -> MemberId:
        """The leader's number; ``NO_MEMBER`` while nobody is known to lead."""
        return self._leader

    @property
    def leader_and_term(self) -> tuple[MemberId, Term]:
        """Who leads in which term: equal as long as the same leader was known all the time."""
        return self._leader, self._term

    @property
    def is_leader(self) -> bool:
        """Tell whether this node is the leader, serving already or not."""
        return self._leader == self._member_id

    @property
    def address(self) -> str:
        """Where clients reach the leader; empty while nobody is known to lead."""
        leader = self.leader
        return leader.client_address if leader else ""

    def silence_ms(self) -> int:
        """Return for how long no leader has been known; 0 while one is."""
        if self._leader != NO_MEMBER:
            return 0
        return int((asyncio.get_running_loop().time() - self._lost_at) * 1000)

    # ------------------------------------------------------------------------- from the driver

    def role_changed(self, soft: SoftState, term: Term) -> None:
        """Take note of what Raft says; called on the event loop."""
        if soft.leader not in (self._leader, NO_MEMBER):
            self.changes += 1
        leads = soft.role is RaftRole.LEADER
        # Elected again in a later term without a step between: the phases begin anew.
        ended = self._leading and not (leads and term == self._term)
        if soft.leader == NO_MEMBER and self._leader != NO_MEMBER:
            self._lost_at = asyncio.get_running_loop().time()
        if (soft.leader, term) != self.leader_and_term:
            self.is_caught_up = False
        self._leader, self._term = soft.leader, term
        if ended:
            self._depose()
        if leads and not self._leading:
            self._elect()
        self.notify()

    @property
    def _leading(self) -> bool:
        return self._phases.phase in (NodePhase.STARTUP, NodePhase.RUNNING, NodePhase.ENDING)

    def _is_in(self, phase: NodePhase) -> bool:
        return self._phases.phase is phase

    def caught_up(self) -> None:
        """Take note that what was committed when the leader was first heard of is applied."""
        self.is_caught_up = True
        if self._phases.phase is NodePhase.INIT:
            self._phases.apply(PhaseEvent.CAUGHT_UP)
            self.notify()

    def _elect(self) -> None:
        log.info("elected", term=self._term)
        self._phases.apply(PhaseEvent.ELECTED)
        self._startup = run_beside(self._start(self._term))

    async def _start(self, term: Term) -> None:
        try:
            await self._lead.begin(term)
        except (NotProposed, OutcomeUnknown) as error:
            # Raft tells the rest: it deposes this node, which is the reason for this error.
            log.info("leadership ended before it began", term=term, reason=str(error))
            return
        if self._term == term and self._phases.phase is NodePhase.STARTUP:
            self._phases.apply(PhaseEvent.STARTED)
            log.info("leads", term=term)
            self.notify()

    def _depose(self) -> None:
        log.info("deposed", leader=self._leader, term=self._term)
        if self._startup is not None:
            self._startup.cancel()
            self._startup = None
        self._phases.apply(PhaseEvent.DEPOSED)
        self._lead.end()
        self._phases.apply(PhaseEvent.SETTLED)

    # ------------------------------------------------------------------------- hand-over

    async def transfer(self, transfer: Callable[[], Awaitable[object]]) -> None:
        """Stop serving while ``transfer`` hands leadership over; serve again if it did not.

        Raises:
            Exception: what ``transfer`` raised; this node leads on then, unless it was deposed.
        """
        if not self._is_in(NodePhase.RUNNING):
            await transfer()
            return
        term = self._term
        self._phases.apply(PhaseEvent.HAND_OVER)
        self.notify()
        try:
            await self._lead.before_transfer()
            await transfer()
        except BaseException:
            if self._is_in(NodePhase.ENDING) and self._term == term and self.is_leader:
                self._phases.apply(PhaseEvent.KEPT)
                self.notify()
            raise
        # Raft knows already; the news reaches this module a turn of the loop later.
        while self._is_in(NodePhase.ENDING) and self._term == term and self.is_leader:
            await self.wait_for_change()

    # ------------------------------------------------------------------------- who waits

    def notify(self) -> None:
        """Wake everybody who waits for a change."""
        self._change.set_result(None)
        self._change = asyncio.get_running_loop().create_future()

    async def wait_for_change(self) -> None:
        """Wait for the next change: of who leads, or of the members."""
        await asyncio.wait((self._change,))

    async def changed(self, until: float) -> bool:
        """Wait for the next change; tell whether it came before ``until`` (a time of the loop)."""
        left = until - asyncio.get_running_loop().time()
        if left <= 0:
            return False
        done, _ = await asyncio.wait((self._change,), timeout=left)
        return bool(done)

    async def wait_until_settled(self, until: float) -> bool:
        """Wait until this node serves or another one leads; False: the time was over first."""
        while not (self._phases.serves or (self.leader is not None and not self.is_leader)):
            if not await self.changed(until):
                return False
        return True
