"""Do now and then what a leader owes the log: keep the feed in bounds, tell of calls."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from service import forms
from service.cluster.settings import SettingsInForce
from service.entries.codec import Recorded, record_own
from service.leader.call_notes import CallNotes
from service.leader.phases import Leadership
from service.leader.proposal import NotProposed, OutcomeUnknown, Overloaded, Submitter
from service.machine.state_machine import QueueMachine
from taskraft.log.v1 import log_pb2

log: Final = structlog.get_logger(__name__)

ROUND_MS: Final = 10_000
"""How often that is done."""


class Housekeeping:
    """Proposes what no client asks for and no deadline brings about."""

    def __init__(
        self,
        submitter: Submitter,
        machine: QueueMachine,
        notes: CallNotes,
        in_force: SettingsInForce,
    ) -> None:
        self._submitter = submitter
        self._machine = machine
        self._notes = notes
        self._in_force = in_force

    async def keep(self, leadership: Leadership) -> None:
        """Do it while this node leads, for as long as the process runs."""
        while True:
            await asyncio.sleep(ROUND_MS / 1000)
            if leadership.serves:
                await self.trim_feed()
                await self.tell_calls()

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
            await self._propose(record_own(forms.TRIM_FEED, message))

    async def tell_calls(self) -> None:
        """Let the log know of the calls that change nothing."""
        message = self._notes.fetch()
        if message is not None:
            await self._propose(record_own(forms.NOTE_CALLS, message))

    async def _propose(self, recorded: Recorded) -> None:
        """Propose a command; what is lost with a leadership, the next one does again or misses."""
        try:
            await self._submitter.submit(recorded)
        except (NotProposed, OutcomeUnknown, Overloaded) as error:
            log.info("housekeeping waits for the next round", reason=str(error))
