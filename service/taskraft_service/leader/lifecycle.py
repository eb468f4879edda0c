"""Begin and end leaderships, and tell those who wait."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from taskraft.v1 import error_pb2
from taskraft_replication.core.types import MemberId, Term
from taskraft_replication.stubs.log.v1 import log_pb2
from taskraft_service.command_codecs.sessions import STARTUP
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.leader.housekeeping import Housekeeping
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.leader.proposer import Proposer
from taskraft_service.leader.temporary.temporary_tubes import TemporaryTubes
from taskraft_service.machine.state_machine import QueueMachine


@dataclass(slots=True, frozen=True)
class LeaderSettings:
    """What a leader brings from its configuration into the log."""

    member_id: MemberId
    failover_grace_ms: int
    feed_partitions: int


class LeaderOnlyWaits(Protocol):
    """Where calls wait for something that only a leader learns of."""

    def redirect_all(self) -> None:
        """Send everybody who waits to the next leader."""


class ClientStreams(Protocol):
    """The subscriptions of this node's clients."""

    def depart(self, reason: error_pb2.Error.Reason.ValueType, why: str, leader: str) -> None:
        """Tell all clients to go elsewhere."""


class LeaderLifecycle:
    """Begins and ends leaderships; satisfies ``leadership.LeadershipCallbacks``."""

    def __init__(
        self,
        settings: LeaderSettings,
        proposer: Proposer,
        temporary: TemporaryTubes,
        machine: QueueMachine,
        waits: Sequence[LeaderOnlyWaits],
        streams: ClientStreams,
        housekeeping: Housekeeping,
    ) -> None:
        self._settings = settings
        self._proposer = proposer
        self._temporary = temporary
        self._machine = machine
        self._waits = waits
        self._streams = streams
        self._housekeeping = housekeeping

    async def begin(self, term: Term) -> None:
        """Commit and apply the Startup command; the first one of a cluster founds the feed."""
        feed_id = self._machine.queue.feed.feed_id or str(uuid.uuid4())
        startup = log_pb2.Startup(
            member_id=self._settings.member_id,
            feed_id=feed_id,
            feed_partitions=self._settings.feed_partitions,
            failover_grace_ms=self._settings.failover_grace_ms,
        )
        await self._proposer.start(encode_leader_command(STARTUP, startup))
        self._temporary.begin(term)

    async def before_transfer(self) -> None:
        """Tell the log of the calls that only this node has counted."""
        await self._housekeeping.before_transfer()

    def end(self) -> None:
        """Drop what waits to be proposed and what is temporary, and stop the deadlines."""
        self._proposer.stop()
        self._temporary.end()

    def redirect_waiting_calls(self, leadership: LeadershipTracker) -> None:
        """Let the calls that wait go to the next leader, and close the streams."""
        for wait in self._waits:
            wait.redirect_all()
        address = "" if leadership.is_leader else leadership.address
        reason = error_pb2.Error.NOT_LEADER if address else error_pb2.Error.NO_LEADER
        self._streams.depart(reason, "this node leads no more", address)

    def phase_changed(self, phase: NodePhase, leadership: LeadershipTracker) -> None:
        """React to a change of phase."""
        if phase is NodePhase.ENDING:
            self.redirect_waiting_calls(leadership)
