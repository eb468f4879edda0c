"""The session of one client, with its heartbeats in the history."""

from __future__ import annotations

import time
from typing import Any

from taskraft.v1 import session_service_pb2 as sessions
from taskraft.v1 import session_service_pb2_grpc
from tests.drill.caller import Answer
from tests.drill.history import Invocation
from tests.drill.workload import Floor, Worker, close_item

SessionStub = session_service_pb2_grpc.SessionServiceStub

SESSION_SECONDS = 6.0
FRESH_SECONDS = SESSION_SECONDS / 2
"""Time after a heartbeat during which a session is used, so that the session lives on during the
use."""
HEARTBEAT_SECONDS = 0.7


class Session:
    """The session of one consumer, kept alive by heartbeats of its own client."""

    def __init__(self, floor: Floor, name: str) -> None:
        self._worker = Worker(floor, f"{name}-heart")
        self._floor = floor
        self.id = ""
        self._confirmed = 0.0

    @property
    def is_fresh(self) -> bool:
        """Return whether the session lives for at least half of its time to run."""
        return bool(self.id) and time.monotonic() - self._confirmed < FRESH_SECONDS

    async def run(self) -> None:
        """Open the session, and send heartbeats until the drill is over."""
        while not self._floor.over.is_set():
            await (self._keep() if self.id else self._open())
            await self._floor.pause(HEARTBEAT_SECONDS if self.is_fresh else 0.05)

    async def close(self) -> None:
        """Close the session."""
        if not self.id:
            return
        message = sessions.CloseSessionRequest(session_id=self.id)
        one = self._invoke("session_close", session=self.id)
        answer = await self._worker.caller.call(SessionStub, "CloseSession", message)
        one.ok() if answer.is_ok else self._give_up(one, answer)

    async def _open(self) -> None:
        message = sessions.OpenSessionRequest(
            request_id=self._worker.request_id(), ttr_ms=int(SESSION_SECONDS * 1_000)
        )
        began = time.monotonic()
        one = self._invoke("session_open")
        answer = await self._worker.caller.call(SessionStub, "OpenSession", message)
        if not answer.is_ok:
            self._give_up(one, answer)
            return
        self.id, self._confirmed = answer.response.session.session_id, began
        one.ok(session=self.id)

    async def _keep(self) -> None:
        message = sessions.KeepSessionsRequest(session_ids=[self.id])
        began = time.monotonic()
        one = self._invoke("heartbeat", session=self.id)
        answer = await self._worker.caller.call(SessionStub, "KeepSessions", message, 1.0)
        if not answer.is_ok:
            self._give_up(one, answer)
        elif close_item(one, answer.response.errors, 0):
            self._confirmed = began
        else:
            self.id = ""

    def _invoke(self, f: str, **value: Any) -> Invocation:
        return self._floor.recorder.invoke(self._worker.process, f, **value)

    def _give_up(self, one: Invocation, answer: Answer) -> None:
        if answer.outcome == "fail":
            one.fail(answer.error)
        else:
            one.info(answer.error)
            self._worker.renew()
