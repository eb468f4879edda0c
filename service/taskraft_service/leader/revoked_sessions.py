"""End the sessions of principals that may not take any more, and release the leases they have lost.

A session belongs to the principal that opened it. The leader compares the owners of all sessions
with its access file, and proposes the ends of sessions and the releases of leases like any other
command. Attempts of released tasks do not count, because nobody may settle the tasks any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import structlog

from taskraft.v1 import session_service_pb2, task_service_pb2
from taskraft_service.command_codecs.sessions import CLOSE_SESSION
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.command_submitter import (
    CommandSubmitter,
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.machine.queue_locator import QueueLocator

RETRY_SECONDS: Final = 0.5
"""Pause after a command that was not applied."""
TOKENS_AT_ONCE: Final = 1_000
"""Maximum number of leases that are looked up, or released, at once."""
ANY_TUBE: Final = ""

log: Final = structlog.get_logger(__name__)


class RevokedSessions:
    """Ends sessions and leases of principals without the permission, while this node leads.

    Args:
        queues: the queues of this node.
        submitter: executes the commands.
        may_take: returns whether a principal may take from a tube, or from any tube for
            ``ANY_TUBE``.
    """

    def __init__(
        self,
        queues: QueueLocator,
        submitter: CommandSubmitter,
        may_take: Callable[[str, str], bool],
    ) -> None:
        self._queues = queues
        self._submitter = submitter
        self._may_take = may_take
        self._serves = False
        self._changed: dict[str, None] = {}
        """Principals whose sessions must be checked."""
        self._wake = asyncio.Event()

    def phase_changed(self, phase: NodePhase) -> None:
        """Check the sessions of all principals when this node starts to serve."""
        self._serves = phase is NodePhase.RUNNING
        if self._serves:
            self.principals_changed(self._queues.session_owners())

    def principals_changed(self, names: Iterable[str]) -> None:
        """Check the sessions of principals that are gone, or whose credentials or grants differ."""
        if self._serves:
            self._changed.update(dict.fromkeys(name for name in names if name))
            self._wake.set()

    async def run(self) -> None:
        """Propose the commands for the noted principals, until cancelled."""
        while True:
            self._wake.clear()
            while self._serves and self._changed:
                owner = next(iter(self._changed))
                del self._changed[owner]
                if not await self._check(owner):
                    self._changed[owner] = None
                    await asyncio.sleep(RETRY_SECONDS)
            self._changed.clear()
            await self._wake.wait()

    async def _check(self, owner: str) -> bool:
        """Check the sessions of a principal; return False if a command was not applied."""
        sessions = self._queues.session_ids_of(owner)
        if not self._may_take(owner, ANY_TUBE):
            if sessions:
                log.info("sessions end: their principal may not take", principal=owner)
            for session_id in sessions:
                request = session_service_pb2.CloseSessionRequest(
                    session_id=session_id, uncounted=True
                )
                if not await self._propose(encode_leader_command(CLOSE_SESSION, request)):
                    return False
            return True
        for session_id in sessions:
            tokens = self._queues.lease_tokens(session_id)
            for start in range(0, len(tokens), TOKENS_AT_ONCE):
                lost = self._queues.strange_leases(
                    tokens[start : start + TOKENS_AT_ONCE],
                    partial(self._may_take, owner),
                    lambda _owner: True,
                )
                if lost and not await self._propose(_release(sorted(lost))):
                    return False
                await asyncio.sleep(0)
            # A principal can have very many sessions without leases.
            await asyncio.sleep(0)
        return True

    async def _propose(self, encoded: EncodedCommand) -> bool:
        """Propose a command; return False if it may have had no effect.

        The queue refuses a session or lease that has ended meanwhile; nothing is left to do then.
        """
        try:
            await self._submitter.submit(encoded)
        except (NotProposed, LeaderOverloaded, OutcomeUnknown, CommandTooLarge) as error:
            log.info("end of a revoked session postponed", reason=str(error))
            return False
        return True


def _release(tokens: Sequence[int]) -> EncodedCommand:
    request = task_service_pb2.SettleTasksRequest()
    request.settlements.add(tokens=tokens).release.uncounted = True
    return encode_leader_command(SETTLE, request)
