"""Questions about sessions: what they hold, and what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from taskraft_console.data.questions import LIST_SECONDS, TASK_SECONDS, Questions
from taskraft_console.data.shared_reads import Reading

if TYPE_CHECKING:
    from taskraft import Task
    from taskraft.v1.session_service_pb2 import Session
    from taskraft.v1.tube_service_pb2 import WaitingConsumer


class SessionReads(Questions):
    """Asks a cluster about sessions."""

    async def sessions(self) -> Reading[Sequence[Session]]:
        """Return the sessions that the console may see."""
        return await self.reads.read(
            "sessions", LIST_SECONDS, lambda: self.client.list_sessions(timeout=self._timeout)
        )

    async def session(self, session_id: str) -> Reading[Session]:
        """Return one session.

        Raises:
            SessionNotFound: there is no such session, or the visitor may not see it.
        """
        return await self.reads.read(
            ("session", session_id),
            TASK_SECONDS,
            lambda: self.client.session(session_id, timeout=self._timeout),
        )

    async def session_consumers(self, session_id: str) -> Reading[Sequence[WaitingConsumer]]:
        """Return what the calls and streams of a session wait for.

        Raises:
            SessionNotFound: there is no such session, or the visitor may not see it.
        """
        return await self.reads.read(
            ("session consumers", session_id),
            TASK_SECONDS,
            lambda: self.client.consumers(session=session_id, timeout=self._timeout),
        )

    async def leases(self, session_id: str) -> Reading[Sequence[Task]]:
        """Return the tasks that a session holds, in the order of their takes.

        Raises:
            SessionNotFound: there is no such session, or the visitor may not see its tasks.
        """
        return await self.reads.read(
            ("leases", session_id),
            TASK_SECONDS,
            lambda: self.client.list_leases(session_id, timeout=self._timeout),
        )
