"""Release leases of disconnected consumers, with retries until the commands are applied.

A consumer that disconnects can leave leases of tasks that were never delivered, and a session that
counts as attached to a stream. An attached session does not expire, so without a command in the log
the tasks of the session could stay leased forever. The leader never refuses these commands for
overload. The commands can still fail, because another node leads or because a leadership transfer
is in progress.

Leases of a TakeTasks call are released on the current leader, even after a change of leader. Leases
of a stream belong to its session. The leases of a stream are released only by the leader that
served the stream. A later leader has detached all sessions, and a client that resumes its session
receives the tasks again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import structlog

from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.background import run_beside
from taskraft_replication.core.types import MemberId, Term
from taskraft_service.access.caller import Caller
from taskraft_service.api.rpc.calls_at_leader import ThisNodeLeads
from taskraft_service.api.rpc.forwarding import Forwarder
from taskraft_service.api.rpc.forwarding_metadata import CallOrigin
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.command_codecs.sessions import ATTACH_SESSION
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    CommandSubmitter,
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
    SubmitFailure,
)
from taskraft_service.limits import PUT_TASKS_MAX
from taskraft_service.stubs.log.v1 import log_pb2

log: Final = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 0.2
"""Delay before a failed command is retried; a change of leader ends the delay."""
SETTLE_METHOD: Final = "/taskraft.v1.TaskService/SettleTasks"

Leadership: TypeAlias = tuple[MemberId, Term]


@dataclass(slots=True, eq=False)
class _Owed:
    """A command that is retried until it is applied."""

    encoded: EncodedCommand
    caller: Caller | None
    """The caller of TakeTasks. None: the command belongs to a stream."""
    leadership: Leadership
    """Leader and term when the command was submitted; after a change of leader, a command of a
    stream is dropped."""


class LeaseReturns:
    """Releases leases and detaches sessions of disconnected consumers.

    Args:
        submitter: executes the commands while this node leads.
        forwarder: passes the commands on to another leader.
    """

    def __init__(self, submitter: CommandSubmitter, forwarder: Forwarder) -> None:
        self._submitter = submitter
        self._forwarder = forwarder
        self._leadership = forwarder.leadership
        self._failed: deque[_Owed] = deque()
        """Commands that failed and will be retried."""
        self._open = 0
        """Number of submitted commands without a result."""
        self._worker: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._settled.set()

    @property
    def leadership(self) -> Leadership:
        """The current leader and term; each stream keeps the value from its start."""
        return self._leadership.leader_and_term

    def release(self, tokens: Sequence[int], caller: Caller) -> None:
        """Release leases of tasks that a call did not deliver; the attempts do not count."""
        for encoded in _releases(tokens):
            self._try(_Owed(encoded, caller, self.leadership))

    def release_of_stream(self, leadership: Leadership, tokens: Sequence[int]) -> None:
        """Release leases of tasks that a stream did not deliver; the attempts do not count."""
        for encoded in _releases(tokens):
            self._try(_Owed(encoded, None, leadership))

    def detach(self, leadership: Leadership, session_id: str) -> None:
        """Detach a session from its last stream, so that the session can expire."""
        self._try(_Owed(attachment(session_id, attached=False), None, leadership))

    async def finish(self, seconds: float) -> None:
        """Wait until all commands are applied, for at most ``seconds``, then stop retrying."""
        try:
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        except TimeoutError:
            log.warning(
                "leases not released; each ends after its time to run", count=len(self._failed)
            )
        if self._worker is not None:
            self._worker.cancel()

    # ------------------------------------------------------------------------------ on this node

    def _try(self, owed: _Owed) -> None:
        if owed.caller is None and owed.leadership != self.leadership:
            return
        try:
            future = self._submitter.submit(owed.encoded)
        except (NotProposed, LeaderOverloaded, CommandTooLarge):
            self._later(owed)
            return
        self._open += 1
        self._settled.clear()
        future.add_done_callback(partial(self._tried, owed))

    def _tried(self, owed: _Owed, future: asyncio.Future[AppliedCommand]) -> None:
        self._open -= 1
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or isinstance(error, SubmitFailure):
            self._later(owed)
        elif error is not None:
            raise error
        self._note()

    def _later(self, owed: _Owed) -> None:
        self._failed.append(owed)
        self._settled.clear()
        if self._worker is None or self._worker.done():
            self._worker = run_beside(self._work())

    def _note(self) -> None:
        if not self._open and not self._failed:
            self._settled.set()

    # ------------------------------------------------------------------------------ again

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        may_forward = not self._leadership.is_leader
        while self._failed:
            if not may_forward:
                await self._leadership.wait_for_change_until(loop.time() + RETRY_SECONDS)
            may_forward = False
            again, self._failed = self._failed, deque()
            for owed in again:
                if self._leadership.serves:
                    self._try(owed)
                elif owed.caller is not None and not self._leadership.is_leader:
                    await self._forward(owed, owed.caller)
                elif owed.caller is not None or owed.leadership == self.leadership:
                    self._failed.append(owed)  # a leadership transfer is in progress
            self._note()

    async def _forward(self, owed: _Owed, caller: Caller) -> None:
        """Release leases on another leader; a repeated release has no effect."""
        try:
            await self._forwarder.forward(
                SETTLE_METHOD,
                owed.encoded.raw,
                None,
                is_idempotent=lambda: True,
                origin=CallOrigin(caller, outlives_stop=True),
            )
        except (CallRefused, ThisNodeLeads):
            self._failed.append(owed)
        except LeaderAnsweredError as error:
            if error.may_retry:
                self._failed.append(owed)
            else:
                log.warning(
                    "leases not released; each ends after its time to run", reason=error.message
                )


def attachment(session_id: str, *, attached: bool) -> EncodedCommand:
    """Return the command that attaches a session to a stream, or detaches it."""
    message = log_pb2.AttachSession(session_id=session_id, attached=attached)
    return encode_leader_command(ATTACH_SESSION, message, is_owed=not attached)


def _releases(tokens: Sequence[int]) -> list[EncodedCommand]:
    releases = []
    for start in range(0, len(tokens), PUT_TASKS_MAX):
        request = pb.SettleTasksRequest()
        settlement = request.settlements.add(tokens=tokens[start : start + PUT_TASKS_MAX])
        settlement.release.uncounted = True
        releases.append(encode_leader_command(SETTLE, request, is_owed=True))
    return releases
