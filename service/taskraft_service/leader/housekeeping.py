"""Do the periodic work of the leader: trim the feed, log counts of read calls, limit its term."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from taskraft_replication.errors import NotRaftLeader, Stopped
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.command_codecs.sessions import NOTE_CALLS, TRIM_FEED
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.command_submitter import (
    CommandSubmitter,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.temporary.temporary_tubes import TemporaryTubes
from taskraft_service.leader.unlogged_calls import UnloggedCalls
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.stubs.log.v1 import log_pb2

log: Final = structlog.get_logger(__name__)

INTERVAL_MS: Final = 10_000
"""Interval of the periodic commands."""
TRANSFER_DELAY_MS_MAX: Final = 500
"""Maximum time by which a leadership transfer is delayed to write the last call counts to the
log."""


class Housekeeping:
    """Proposes commands that neither a client nor a deadline triggers.

    Args:
        submitter: executes the commands.
        machine: the state machine.
        unlogged_calls: counts of calls that the log does not have yet.
        in_force: the settings of the cluster.
        temporary: the temporary tubes.
        end_leadership: ends the leadership of this node; a later term follows.
    """

    def __init__(
        self,
        submitter: CommandSubmitter,
        machine: QueueMachine,
        unlogged_calls: UnloggedCalls,
        in_force: EffectiveSettings,
        temporary: TemporaryTubes,
        end_leadership: Callable[[], Awaitable[None]],
    ) -> None:
        self._submitter = submitter
        self._machine = machine
        self._unlogged_calls = unlogged_calls
        self._in_force = in_force
        self._temporary = temporary
        self._end_leadership = end_leadership
        self._telling = asyncio.Lock()

    async def run_periodically(self, leadership: LeadershipTracker) -> None:
        """Do the periodic work while this node leads, until the task is cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_MS / 1000)
            if leadership.serves:
                await self.trim_feed()
                await self.log_calls()
                await self.renew_term(leadership)

    async def renew_term(self, leadership: LeadershipTracker) -> None:
        """End the leadership if the temporary tubes have nearly used up the numbers of the term."""
        if not self._temporary.is_nearly_used_up():
            return
        log.warning("leadership ends: ids or lease tokens of temporary tasks are nearly used up")
        try:
            await leadership.transfer(self._end_leadership)
        except (NotRaftLeader, Stopped) as error:
            log.info("leadership has ended already", reason=str(error))

    async def trim_feed(self) -> None:
        """Delete events of the change feed beyond the maximum age or size."""
        queue = self._machine.queue
        low_seq = queue.feed.retention_due(
            queue.now_ms + queue.wall_offset_ms,
            self._in_force.feed_retention_ms,
            self._in_force.feed_bytes_max,
            queue.held_back(),
        )
        if low_seq:
            message = log_pb2.TrimFeed(low_seq=dict(low_seq))
            await self._propose(encode_leader_command(TRIM_FEED, message))

    async def log_calls(self) -> bool:
        """Write the counts of read calls to the log; return whether any were written."""
        async with self._telling:
            message = self._unlogged_calls.fetch()
            if message is None:
                return False
            # After an unknown outcome the counts are dropped, because a lost count is better than a
            # double count.
            known = True
            try:
                known = await self._propose(encode_leader_command(NOTE_CALLS, message))
            finally:
                self._unlogged_calls.fetch_done(known=known)
            return known

    async def before_transfer(self) -> None:
        """Write all call counts to the log within ``TRANSFER_DELAY_MS_MAX``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TRANSFER_DELAY_MS_MAX / 1000):
                while await self.log_calls():
                    pass

    async def _propose(self, encoded: EncodedCommand) -> bool:
        """Propose a command; return False if it certainly had no effect.

        A command that is lost with the leadership is not retried; the next leader proposes its own
        commands.
        """
        try:
            await self._submitter.submit(encoded)
        except (NotProposed, LeaderOverloaded) as error:
            log.info("periodic command postponed", reason=str(error))
            return False
        except OutcomeUnknown as error:
            log.info("outcome of a periodic command is unknown", reason=str(error))
        return True
