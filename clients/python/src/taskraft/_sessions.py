"""Keep sessions alive from a thread of its own, whatever the user's code does.

A blocked event loop or a long computation must not lose leases, so the heartbeats leave from a
native thread over gRPC's synchronous API, every third of the shortest time that a session has left
to live.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import grpc

from taskraft._calls import new_request_id
from taskraft._nodes import CHANNEL_OPTIONS
from taskraft._route import LEADER_KEY, Route
from taskraft.v1 import session_service_pb2, session_service_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from taskraft._calls import Caller

log = logging.getLogger("taskraft")

BEATS_PER_TTR: Final = 3
"""So many heartbeats may be sent in a session's time to run; all but one may be lost."""
RETRY_SECONDS: Final = 0.5
"""Pause after all nodes have failed to answer."""
IDLE_SECONDS: Final = 15.0
"""Taken for the time to run while there is no session."""
SESSIONS_MAX: Final = 1_000
"""What one KeepSessions may name."""


class _Beat(Protocol):
    """A heartbeat on its way: a call of gRPC's synchronous API that can be cancelled."""

    def result(self) -> session_service_pb2.KeepSessionsResponse: ...
    def cancel(self) -> bool: ...
    def initial_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...
    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


@dataclass(slots=True, frozen=True)
class _Kept:
    ttr_seconds: float
    lost: Callable[[], None]


class KeepAlive:
    """Send heartbeats for the sessions of one client; the thread starts with the first."""

    def __init__(
        self, addresses: Sequence[str], credentials: grpc.ChannelCredentials | None
    ) -> None:
        self._route = Route(addresses)
        self._credentials = credentials
        self._changed = threading.Condition()
        self._sessions: dict[str, _Kept] = {}
        self._due = float("inf")
        self._call: _Beat | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, session_id: str, ttr_ms: int, lost: Callable[[], None]) -> None:
        """Keep a session from now on.

        Args:
            session_id: The session.
            ttr_ms: How long it lives without a heartbeat.
            lost: Called in the thread of the heartbeats when the server does not know it any more.
        """
        assert len(self._sessions) < SESSIONS_MAX
        with self._changed:
            self._sessions[session_id] = _Kept(ttr_ms / 1_000, lost)
            self._due = min(self._due, time.monotonic() + self._interval())
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="taskraft-heartbeats", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def remove(self, session_id: str) -> None:
        """Keep a session no longer."""
        with self._changed:
            self._sessions.pop(session_id, None)

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            if self._call is not None:
                self._call.cancel()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        channels: dict[str, grpc.Channel] = {}
        try:
            while self._wait_until_due():
                is_answered = self._beat(channels)
                with self._changed:
                    interval = self._interval()
                    pause = interval if is_answered else min(RETRY_SECONDS, interval)
                    self._due = time.monotonic() + pause
        finally:
            for channel in channels.values():
                channel.close()

    def _interval(self) -> float:
        kept = self._sessions.values()
        return min((each.ttr_seconds for each in kept), default=IDLE_SECONDS) / BEATS_PER_TTR

    def _wait_until_due(self) -> bool:
        """Return True when the next heartbeat is due, False when there is none any more."""
        with self._changed:
            while not self._is_closed:
                pause = self._due - time.monotonic()
                if pause <= 0:
                    return True
                self._changed.wait(pause)
            return False

    def _beat(self, channels: dict[str, grpc.Channel]) -> bool:
        """Send one heartbeat to the leader, or to any node; return whether one answered."""
        with self._changed:
            kept = dict(self._sessions)
        if not kept:
            return True
        request = session_service_pb2.KeepSessionsRequest(
            session_ids=list(kept), request_id=new_request_id()
        )
        allowed = min(each.ttr_seconds for each in kept.values()) / (2 * BEATS_PER_TTR)
        for _ in range(len(self._route.addresses) + 1):
            address = self._route.next_address()
            call = self._start_call(self._channel(channels, address), request, allowed)
            if call is None:
                return False
            try:
                response = call.result()
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                log.debug("heartbeat at %s failed: %s", address, error)
                self._route.failed(address, is_unreachable=True)
                continue
            leader = dict(call.initial_metadata() or ()) | dict(call.trailing_metadata() or ())
            self._route.heard_of_leader(str(leader.get(LEADER_KEY) or ""))
            self._tell_lost(list(kept), [each.item for each in response.errors], kept)
            return True
        return False

    def _start_call(
        self,
        channel: grpc.Channel,
        request: session_service_pb2.KeepSessionsRequest,
        allowed_seconds: float,
    ) -> _Beat | None:
        """Start a heartbeat that `close` can cancel; None when it is closed already."""
        stub = session_service_pb2_grpc.SessionServiceStub(channel)
        with self._changed:
            if self._is_closed:
                return None
            self._call = stub.KeepSessions.future(request, timeout=allowed_seconds)
            return self._call

    def _tell_lost(
        self, session_ids: Sequence[str], items: Sequence[int], kept: dict[str, _Kept]
    ) -> None:
        for item in items:
            session_id = session_ids[item]
            log.warning("session %s... is lost: its tasks are handed out again", session_id[:8])
            self.remove(session_id)
            kept[session_id].lost()

    def _channel(self, channels: dict[str, grpc.Channel], address: str) -> grpc.Channel:
        channel = channels.get(address)
        if channel is None:
            channel = channels[address] = (
                grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
                if self._credentials is None
                else grpc.secure_channel(address, self._credentials, options=CHANNEL_OPTIONS)
            )
        return channel


class TakeSession:
    """The session that holds what `take` takes: opened with the first, and anew when lost."""

    def __init__(self, caller: Caller, keep_alive: KeepAlive, *, name: str, ttr_ms: int) -> None:
        self._caller = caller
        self._keep_alive = keep_alive
        self._name = name
        self._ttr_ms = ttr_ms
        self._session_id = ""
        self._opening = asyncio.Lock()

    async def session_id(self, deadline: float) -> str:
        """Return the session, opened if there is none."""
        if self._session_id:
            return self._session_id
        async with self._opening:
            if not self._session_id:
                await self._open(deadline)
        return self._session_id

    async def _open(self, deadline: float) -> None:
        request = session_service_pb2.OpenSessionRequest(
            request_id=new_request_id(), name=self._name, ttr_ms=self._ttr_ms
        )
        response = await self._caller.call(
            lambda node: node.sessions.OpenSession, request, deadline=deadline
        )
        session_id = self._session_id = response.session.session_id
        loop = asyncio.get_running_loop()

        def lost() -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile, and nobody asks any more
                loop.call_soon_threadsafe(self.lost, session_id)

        self._keep_alive.add(session_id, response.session.ttr_ms or self._ttr_ms, lost)

    def lost(self, session_id: str) -> None:
        """Note that a session is over, so that the next take opens another."""
        if self._session_id == session_id:
            self._keep_alive.remove(session_id)
            self._session_id = ""

    async def close(self, deadline: float) -> None:
        """Close the session: what it still holds is handed out again, uncounted."""
        session_id, self._session_id = self._session_id, ""
        if not session_id:
            return
        self._keep_alive.remove(session_id)
        await close_session(self._caller, session_id, deadline)


async def close_session(caller: Caller, session_id: str, deadline: float) -> None:
    """Close a session; the attempts of the leases that it still holds do not count."""
    request = session_service_pb2.CloseSessionRequest(
        request_id=new_request_id(), session_id=session_id, uncounted=True
    )
    await caller.call(lambda node: node.sessions.CloseSession, request, deadline=deadline)
