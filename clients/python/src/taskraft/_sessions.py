"""Open sessions, and keep them alive with heartbeats."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft._clock import monotonic
from taskraft._heartbeats import HEARTBEATS_PER_TTR, NEVER, RETRY_SECONDS
from taskraft._leader_caller import ATTEMPT_SECONDS_MAX, new_request_id
from taskraft._network import GRPC, Network
from taskraft.v1 import session_service_pb2, session_service_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import grpc

    from taskraft._abandoned_calls import AbandonedCalls
    from taskraft._leader_caller import LeaderCaller

log = logging.getLogger("taskraft")

SESSIONS_MAX: Final = 1_000
"""Maximum number of sessions per KeepSessions request."""


@dataclass(slots=True, frozen=True)
class _KeptSession:
    ttr_seconds: float
    lost: Callable[[], object]


class SessionKeepAlive:
    """Sends heartbeats for the sessions of one client, every third of the shortest session TTR."""

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: grpc.ChannelCredentials | None,
        network: Network = GRPC,
    ) -> None:
        self._heartbeats = network.heartbeats(
            "taskraft-heartbeats",
            self,
            lambda channel: session_service_pb2_grpc.SessionServiceStub(channel).KeepSessions,
            addresses,
            credentials,
        )
        self._changing = threading.Lock()
        self._sessions: dict[str, _KeptSession] = {}
        self._due = NEVER

    def add(self, session_id: str, ttr_ms: int, lost: Callable[[], object]) -> None:
        """Start sending heartbeats for a session.

        Args:
            session_id: id of the session.
            ttr_ms: lifetime of the session after its last heartbeat, in ms.
            lost: called on the heartbeat thread when the server does not know the session.
        """
        assert len(self._sessions) < SESSIONS_MAX
        with self._changing:
            self._sessions[session_id] = _KeptSession(ttr_ms / 1_000, lost)
            self._due = min(self._due, monotonic() + self._ttr_seconds() / HEARTBEATS_PER_TTR)
        self._heartbeats.wake()

    def remove(self, session_id: str) -> None:
        """Stop sending heartbeats for a session."""
        with self._changing:
            self._sessions.pop(session_id, None)

    def stop(self) -> None:
        """Stop sending heartbeats, from any thread and without a wait."""
        self._heartbeats.stop()

    def close(self) -> None:
        """Stop sending heartbeats."""
        self._heartbeats.close()

    def _ttr_seconds(self) -> float:
        return min((each.ttr_seconds for each in self._sessions.values()), default=NEVER)

    # ------------------------------------------------------------ HeartbeatSource

    def due(self) -> float:
        """Return the time of the next heartbeat by `time.monotonic`; NEVER if none is due."""
        return self._due

    def request(self) -> session_service_pb2.KeepSessionsRequest | None:
        """Return one heartbeat for all sessions."""
        with self._changing:
            if not self._sessions:
                self._due = NEVER
                return None
            return session_service_pb2.KeepSessionsRequest(
                session_ids=list(self._sessions), request_id=new_request_id()
            )

    def allowed_seconds(self) -> float:
        """Return half of the pause between two heartbeats, at most `ATTEMPT_SECONDS_MAX`."""
        with self._changing:
            return min(self._ttr_seconds() / (2 * HEARTBEATS_PER_TTR), ATTEMPT_SECONDS_MAX)

    def answered(
        self,
        request: session_service_pb2.KeepSessionsRequest,
        response: session_service_pb2.KeepSessionsResponse,
    ) -> None:
        """Schedule the next heartbeat, and report lost sessions."""
        self._wait(NEVER)
        for error in response.errors:
            session_id = request.session_ids[error.item]
            log.warning(
                "session %s... has ended; its tasks can be taken by other consumers", session_id[:8]
            )
            with self._changing:
                kept = self._sessions.pop(session_id, None)
            if kept is not None:
                kept.lost()

    def unanswered(self, request: session_service_pb2.KeepSessionsRequest) -> None:
        """Schedule a retry."""
        self._wait(RETRY_SECONDS)

    def _wait(self, seconds_max: float) -> None:
        with self._changing:
            pause = min(self._ttr_seconds() / HEARTBEATS_PER_TTR, seconds_max)
            self._due = monotonic() + pause


class TakeSession:
    """The session that holds tasks of `take`; opened on first use, and again after a loss."""

    def __init__(  # noqa: PLR0913 - one argument for each option
        self,
        caller: LeaderCaller,
        abandoned_calls: AbandonedCalls,
        keep_alive: SessionKeepAlive,
        *,
        name: str,
        labels: Mapping[str, str],
        ttr_ms: int,
        call_soon: Callable[[Callable[[], None]], object],
        lost: Callable[[str], None],
    ) -> None:
        """Store the parts with which the session is opened and kept.

        Args:
            caller: sends the calls.
            abandoned_calls: opens the session also if the take is cancelled.
            keep_alive: sends the heartbeats.
            name: name of the session, shown to people.
            labels: labels of the session, shown to people.
            ttr_ms: lifetime of the session after its last heartbeat, in ms.
            call_soon: runs a function on the client's event loop.
            lost: called on the event loop with the id of a lost session.
        """
        self._caller = caller
        self._abandoned_calls = abandoned_calls
        self._keep_alive = keep_alive
        self._call_soon = call_soon
        self._lost = lost
        self._name = name
        self._labels = labels
        self._ttr_ms = ttr_ms
        self._session_id = ""
        self._opening = asyncio.Lock()

    async def session_id(self, deadline: float) -> str:
        """Return the id of the session; open one if there is none."""
        if not self._session_id:
            await self._abandoned_calls.finish(self._open_once(deadline))
        return self._session_id

    async def _open_once(self, deadline: float) -> None:
        async with self._opening:
            if not self._session_id:
                await self._open(deadline)

    async def _open(self, deadline: float) -> None:
        request = session_service_pb2.OpenSessionRequest(
            request_id=new_request_id(),
            name=self._name,
            ttr_ms=self._ttr_ms,
            labels=self._labels,
        )
        response = await self._caller.call(
            lambda node: node.sessions.OpenSession, request, deadline=deadline
        )
        session_id = self._session_id = response.session.session_id
        self._keep_alive.add(
            session_id,
            response.session.ttr_ms or self._ttr_ms,
            lambda: self._call_soon(lambda: self.lost(session_id)),
        )

    def lost(self, session_id: str) -> None:
        """Record that a session has ended, so that the next take opens a new session."""
        if self._session_id == session_id:
            self._keep_alive.remove(session_id)
            self._session_id = ""
            self._lost(session_id)

    async def close(self, deadline: float) -> None:
        """Close the session; its tasks are released, and their attempts do not count."""
        session_id, self._session_id = self._session_id, ""
        if not session_id:
            return
        self._keep_alive.remove(session_id)
        await close_session(self._caller, session_id, deadline)


async def close_session(caller: LeaderCaller, session_id: str, deadline: float) -> None:
    """Close a session; its tasks are released, and their attempts do not count."""
    request = session_service_pb2.CloseSessionRequest(
        request_id=new_request_id(), session_id=session_id, uncounted=True
    )
    await caller.call(lambda node: node.sessions.CloseSession, request, deadline=deadline)
