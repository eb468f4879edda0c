"""Track the leader and the term, and move this node through the phases of a leadership.

Raft reports the leader. This module turns the reports into the phases of ``leader.node_phases``: a
new leader commits its Startup command before it serves, and a deposed leader stops the leader-only
work.
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
from taskraft_service.leader.command_submitter import NotProposed, OutcomeUnknown
from taskraft_service.leader.node_phases import NodePhase, PhaseEvent, PhaseMachine

log: Final = structlog.get_logger(__name__)


class LeadershipCallbacks(Protocol):
    """Callbacks for the start and the end of a leadership of this node."""

    async def begin(self, term: Term) -> None:
        """Commit and apply the Startup command, then start the leader-only work.

        Raises:
            NotProposed: leadership was lost before the command reached the log.
            OutcomeUnknown: leadership was lost before the command was applied.
        """

    async def before_transfer(self) -> None:
        """Write the data that only this leader has to the log, before a leadership transfer."""

    def end(self) -> None:
        """Drop pending commands and stop the leader-only work."""


class LeadershipTracker:
    """The leader and the term that this node knows.

    Args:
        phases: phase machine of this node.
        member_id: member id of this node.
        members: addresses of the members.
        callbacks: callbacks for the start and the end of a leadership of this node.
    """

    def __init__(
        self,
        phases: PhaseMachine,
        member_id: MemberId,
        members: MemberAddresses,
        callbacks: LeadershipCallbacks,
    ) -> None:
        self._phases = phases
        self._member_id = member_id
        self._members = members
        self._callbacks = callbacks
        self._leader = NO_MEMBER
        self._term = Term(0)
        self.address = ""
        """Client address of the leader; empty while no leader is known."""
        self._change = asyncio.get_running_loop().create_future()
        self._startup: asyncio.Task[None] | None = None
        self._lost_at = asyncio.get_running_loop().time()
        self.changes = 0
        """Number of changes of leader that this node has seen since the process started."""
        self.is_caught_up = False
        """Whether this node has applied all entries that were committed when it first heard of the
        current leader. Later entries are new and not replayed."""

    @property
    def serves(self) -> bool:
        """Return whether this node executes mutations itself."""
        return self._phases.serves

    @property
    def leader(self) -> PeerAddress | None:
        """The leader; None while no leader is known."""
        return self._members.get(self._leader)

    @property
    def leader_id(self) -> MemberId:
        """Member id of the leader; ``NO_MEMBER`` while no leader is known."""
        return self._leader

    @property
    def leader_and_term(self) -> tuple[MemberId, Term]:
        """Leader and term; an equal value later means that the leadership has not changed."""
        return self._leader, self._term

    @property
    def lead_term(self) -> Term:
        """Term in which this node leads; 0 if it does not lead."""
        return self._term if self.is_leader else Term(0)

    @property
    def phase(self) -> NodePhase:
        """Return the phase of the node."""
        return self._phases.phase

    @property
    def is_leader(self) -> bool:
        """Return whether this node leads, even if it does not serve yet."""
        return self._leader == self._member_id

    def silence_ms(self) -> int:
        """Return the time in ms for which no leader has been known; 0 while a leader is known."""
        if self._leader != NO_MEMBER:
            return 0
        return int((asyncio.get_running_loop().time() - self._lost_at) * 1000)

    # ------------------------------------------------------------------------- from the driver

    def role_changed(self, soft: SoftState, term: Term) -> None:
        """Handle a change of role, leader or term that Raft reports; called on the event loop."""
        if soft.leader not in (self._leader, NO_MEMBER):
            self.changes += 1
        leads = soft.role is RaftRole.LEADER
        # This node was elected again in a later term without a step in between: end the old
        # leadership first.
        ended = self._leading and not (leads and term == self._term)
        if soft.leader == NO_MEMBER and self._leader != NO_MEMBER:
            self._lost_at = asyncio.get_running_loop().time()
        if (soft.leader, term) != self.leader_and_term:
            self.is_caught_up = False
        self._leader, self._term = soft.leader, term
        self._update_address()  # the streams that end below tell their clients the address
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
        """Record that this node applied all entries committed when it first heard of the leader."""
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
            await self._callbacks.begin(term)
        except (NotProposed, OutcomeUnknown) as error:
            # Raft reports the lost leadership separately; that report changes the phase.
            log.info("leadership lost before startup", term=term, reason=str(error))
            return
        if self._term == term and self._phases.phase is NodePhase.STARTUP:
            self._phases.apply(PhaseEvent.STARTED)
            log.info("leads", term=term)
            self.notify()

    def _depose(self) -> None:
        log.info("lost leadership", leader=self._leader, term=self._term)
        if self._startup is not None:
            self._startup.cancel()
            self._startup = None
        self._phases.apply(PhaseEvent.DEPOSED)
        self._callbacks.end()
        self._phases.apply(PhaseEvent.SETTLED)

    # ------------------------------------------------------------------------- transfer

    async def transfer(self, transfer: Callable[[], Awaitable[object]]) -> None:
        """Stop serving while ``transfer`` moves leadership away; serve again if it fails.

        Raises:
            Exception: the error of ``transfer``. This node then serves again, unless it was
                deposed.
        """
        if not self._is_in(NodePhase.RUNNING):
            await transfer()
            return
        term = self._term
        self._phases.apply(PhaseEvent.HAND_OVER)
        self.notify()
        try:
            await self._callbacks.before_transfer()
            await transfer()
        except BaseException:
            if self._is_in(NodePhase.ENDING) and self._term == term and self.is_leader:
                self._phases.apply(PhaseEvent.KEPT)
                self.notify()
            raise
        # Raft has already changed its role, but its report reaches this object in a later iteration
        # of the event loop.
        while self._is_in(NodePhase.ENDING) and self._term == term and self.is_leader:
            await self.wait_for_change()

    # ------------------------------------------------------------------------- waiting

    def notify(self) -> None:
        """Wake all coroutines that wait for a change of leader or of the members."""
        self._update_address()
        self._change.set_result(None)
        self._change = asyncio.get_running_loop().create_future()

    def _update_address(self) -> None:
        leader = self.leader
        self.address = leader.client_address if leader else ""

    async def wait_for_change(self) -> None:
        """Wait for the next change of leader, phase or members."""
        await asyncio.wait((self._change,))

    async def wait_for_change_until(self, until: float) -> bool:
        """Wait for the next change; return False if ``until`` (event loop time) passes first."""
        left = until - asyncio.get_running_loop().time()
        if left <= 0:
            return False
        done, _ = await asyncio.wait((self._change,), timeout=left)
        return bool(done)

    async def wait_until_settled(self, until: float) -> bool:
        """Wait until this node serves or another node leads; return False after a timeout.

        ``until`` is an event loop time.
        """
        while not (self._phases.serves or (self.leader is not None and not self.is_leader)):
            if not await self.wait_for_change_until(until):
                return False
        return True
