"""Do now and then what a leader owes the log: keep the feed in bounds, tell of calls."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from taskraft_replication.stubs.log.v1 import log_pb2
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.command_codecs.sessions import NOTE_CALLS, TRIM_FEED
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.proposal import (
    CommandSubmitter,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.unlogged_calls import UnloggedCalls
from taskraft_service.machine.state_machine import QueueMachine

log: Final = structlog.get_logger(__name__)

ROUND_MS: Final = 10_000
"""How often that is done."""
PARTING_MS: Final = 500
"""How long a hand-over may wait until the log knows of the last calls."""


class Housekeeping:
    """Proposes what no client asks for and no deadline brings about."""

    def __init__(
        self,
        submitter: CommandSubmitter,
        machine: QueueMachine,
        unlogged_calls: UnloggedCalls,
        in_force: EffectiveSettings,
    ) -> None:
        self._submitter = submitter
        self._machine = machine
        self._unlogged_calls = unlogged_calls
        self._in_force = in_force
        self._telling = asyncio.Lock()

    async def run_periodically(self, leadership: LeadershipTracker) -> None:
        """Do it while this node leads, for as long as the process runs."""
        while True:
            await asyncio.sleep(ROUND_MS / 1000)
            if leadership.serves:
                await self.trim_feed()
                await self.log_calls()

    async def trim_feed(self) -> None:
        """Remove events that are too old or too many."""
        queue = self._machine.queue
        low_seq = queue.feed.retention_due(
            queue.now_ms,
            self._in_force.feed_retention_ms,
            self._in_force.feed_bytes_max,
            queue.held_back(),
        )
        if low_seq:
            message = log_pb2.TrimFeed(low_seq=dict(low_seq))
            await self._propose(encode_leader_command(TRIM_FEED, message))

    async def log_calls(self) -> bool:
        """Let the log know of calls that change nothing; tell whether it heard of any."""
        async with self._telling:
            message = self._unlogged_calls.fetch()
            if message is None:
                return False
            # Rather a count too little than one twice: what may have been told is not told again.
            known = True
            try:
                known = await self._propose(encode_leader_command(NOTE_CALLS, message))
            finally:
                self._unlogged_calls.told(known=known)
            return known

    async def before_transfer(self) -> None:
        """Tell all calls before another node leads, for at most ``PARTING_MS``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PARTING_MS / 1000):
                while await self.log_calls():
                    pass

    async def _propose(self, encoded: EncodedCommand) -> bool:
        """Propose a command; tell whether it may have been done.

        What is lost with a leadership, the next one does again or misses.
        """
        try:
            await self._submitter.submit(encoded)
        except (NotProposed, LeaderOverloaded) as error:
            log.info("housekeeping waits for the next round", reason=str(error))
            return False
        except OutcomeUnknown as error:
            log.info("housekeeping does not know what became of it", reason=str(error))
        return True
