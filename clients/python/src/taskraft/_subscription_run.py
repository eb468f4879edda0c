"""The running stream of one subscription, from its first use to its end.

The run does not refer to the subscription. The end of the last reference to the subscription
therefore ends a run that was not closed.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from typing import TYPE_CHECKING

from taskraft import _fork, errors
from taskraft._clock import monotonic
from taskraft._request_batcher import CLOSE_SECONDS_MAX
from taskraft._sessions import close_session

if TYPE_CHECKING:
    from taskraft._connection import Connection
    from taskraft._subscription_buffer import SubscriptionBuffer

log = logging.getLogger("taskraft")


class SubscriptionRun:
    """Runs the stream of one subscription, and ends it together with its session.

    Args:
        connection: connection to the cluster.
        buffer: receives the tasks.
        is_own_session: whether the end of the run ends the session.
    """

    def __init__(
        self, connection: Connection, buffer: SubscriptionBuffer, *, is_own_session: bool
    ) -> None:
        self._connection = connection
        self._buffer = buffer
        self._is_own_session = is_own_session
        self._runner: asyncio.Task[None] | None = None
        self.is_closed = False
        """True from the begin of `close`."""

    def start(self) -> None:
        """Open the stream, unless it is open.

        Raises:
            ClientClosed: the subscription or the client is closed.
        """
        if self.is_closed:
            raise errors.ClientClosed("the subscription is closed")
        if self._runner is None:
            self._connection.register(self)
            self._runner = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._buffer.stream.run()
        except Exception as error:
            self._buffer.failed(errors.InternalError(f"the client has a bug: {error!r}"))
            raise

    async def close(self) -> None:
        """Release unsettled tasks, and end the stream; continues if the caller is cancelled."""
        if not self.is_closed:
            self.is_closed = True
            await self._connection.abandoned_calls.finish(self._close())

    async def _close(self) -> None:
        await self._buffer.close()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        self._buffer.stream.end()
        self._connection.unregister(self)
        session_id = self._buffer.stream.session_id
        if session_id:
            self._connection.keep_alive.remove(session_id)
            if self._is_own_session and self._buffer.error is None:
                await self._close_session(session_id)

    async def _close_session(self, session_id: str) -> None:
        deadline = monotonic() + CLOSE_SECONDS_MAX
        try:
            await close_session(self._connection.caller, session_id, deadline)
        except errors.TaskraftError as error:
            log.warning("could not close the session, it expires after its TTR: %s", error)

    def dropped(self) -> None:
        """Warn, and end the run, if its subscription was dropped without `close`."""
        connection = self._connection
        if self._runner is None or self.is_closed or connection.is_dead or _fork.is_forked():
            return
        connection.call_soon(lambda: connection.abandoned_calls.go_on(self.close()))
        warnings.warn(
            "unclosed taskraft subscription; use the subscription as a context manager, or call "
            "close",
            ResourceWarning,
            stacklevel=2,
        )
