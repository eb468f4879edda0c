"""Start and stop the leader-only work when this node gains or loses leadership."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from taskraft.v1 import error_pb2
from taskraft_replication.core.types import MemberId, Term
from taskraft_service.command_codecs.sessions import STARTUP
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.leader.clock_keeper import ClockKeeper
from taskraft_service.leader.housekeeping import Housekeeping
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.leader.proposer import Proposer
from taskraft_service.leader.temporary.temporary_tubes import TemporaryTubes
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.stubs.log.v1 import log_pb2


@dataclass(slots=True, frozen=True)
class LeaderSettings:
    """Settings that a new leader writes to the log in its Startup command."""

    member_id: MemberId
    failover_grace_ms: int
    feed_partitions: int


class LeaderOnlyWaits(Protocol):
    """Calls that wait for an event that only a leader observes."""

    def redirect_all(self) -> None:
        """Fail every waiting call with NotProposed, so that it is forwarded to the new leader.

        The calls fail in slices, which begin in the next turn of the event loop.
        """


class ClientStreams(Protocol):
    """The subscriptions that clients opened on this node."""

    def send_go_away(self, reason: error_pb2.Error.Reason.ValueType, why: str, leader: str) -> None:
        """End all streams with GoAway, which has a reason and the address of the new leader.

        The streams end in slices, which begin in the next turn of the event loop.
        """


class LeaderLifecycle:
    """Starts and stops the leader-only work; satisfies ``leadership.LeadershipCallbacks``."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is one part of the leader-only work
        self,
        settings: LeaderSettings,
        proposer: Proposer,
        temporary: TemporaryTubes,
        machine: QueueMachine,
        waits: Sequence[LeaderOnlyWaits],
        streams: ClientStreams,
        housekeeping: Housekeeping,
        clock_keeper: ClockKeeper,
    ) -> None:
        self._settings = settings
        self._proposer = proposer
        self._temporary = temporary
        self._machine = machine
        self._waits = waits
        self._streams = streams
        self._housekeeping = housekeeping
        self._clock_keeper = clock_keeper
        self.is_stopping = False
        """Whether this node is stopping; its streams then end with DRAINING."""

    async def begin(self, term: Term) -> None:
        """Start the cluster clock, apply the Startup command, and start the temporary tubes.

        The Startup command of the first leader creates the change feed.
        """
        await self._clock_keeper.start_clock()
        feed_id = self._machine.queue.feed.feed_id or str(uuid.uuid4())
        startup = log_pb2.Startup(
            member_id=self._settings.member_id,
            feed_id=feed_id,
            feed_partitions=self._settings.feed_partitions,
            failover_grace_ms=self._settings.failover_grace_ms,
            clock_epoch=self._clock_keeper.epoch,
            clock_term=term,
        )
        await self._proposer.start(encode_leader_command(STARTUP, startup))
        self._temporary.begin(term)

    async def before_transfer(self) -> None:
        """Write the call counts that only this node has to the log."""
        await self._housekeeping.before_transfer()

    def end(self) -> None:
        """Drop pending commands, stop the deadline timer and drop the temporary tubes."""
        self._proposer.stop()
        self._temporary.end()

    def redirect_waiting_calls(self, leadership: LeadershipTracker) -> None:
        """Redirect waiting calls to the new leader, and end the streams."""
        for wait in self._waits:
            wait.redirect_all()
        address = "" if leadership.is_leader else leadership.address
        if self.is_stopping:
            reason, why = error_pb2.Error.DRAINING, "this node is stopping"
        else:
            reason = error_pb2.Error.NOT_LEADER if address else error_pb2.Error.NO_LEADER
            why = "this node is no longer the leader"
        self._streams.send_go_away(reason, why, address)

    def phase_changed(self, phase: NodePhase, leadership: LeadershipTracker) -> None:
        """Redirect waiting calls when this node stops leading."""
        if phase is NodePhase.ENDING:
            self.redirect_waiting_calls(leadership)
