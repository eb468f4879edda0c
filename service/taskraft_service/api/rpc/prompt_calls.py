"""Serve calls that only wait for the outcome of one command, without a task for each call.

A server that has received the request begins such a call at once, and ends the call when the
outcome arrives. All other calls run as coroutines, also calls that cannot be begun: a coroutine
repeats the checks and tells the client what is wrong. So a prompt call has one way to fail, the
coroutine of ``rest``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final

from taskraft_service.api.rpc.call_load import CallCounts, CallLoad
from taskraft_service.api.rpc.list_maxima import SHORT_REQUEST_BYTES
from taskraft_service.api.rpc.method_table import Refusal, UnaryHandle
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ProposedCall
from taskraft_service.api.rpc.server_context import ServerContext
from taskraft_service.leader.command_submitter import CommandOutcome, NotProposed
from taskraft_service.leader.leadership import LeadershipTracker

LEADER_KEY: Final = "x-taskraft-leader"
"""Metadata key of the address of the leader."""


class PromptCall:
    """One call that waits for the outcome of its command; ``PromptMethod.begin`` creates it."""

    __slots__ = ("_began", "_context", "_method", "_proposed", "_raw")

    def __init__(
        self, method: PromptMethod, raw: bytes, context: ServerContext, proposed: ProposedCall
    ) -> None:
        self._method = method
        self._raw = raw
        self._context = context
        self._proposed = proposed
        self._began = monotonic()

    @property
    def outcome(self) -> asyncio.Future[Any]:
        """The outcome of the command; to cancel the future is to cancel the call."""
        return self._proposed.outcome

    def when_known(self, then: Callable[[asyncio.Future[Any]], None]) -> None:
        """Call ``then`` when the outcome is known.

        If the command is in the log, the call is in the turn in which its entry is applied.
        """
        outcome = self._proposed.outcome
        if isinstance(outcome, CommandOutcome) and not outcome.done():
            outcome.then = then
        else:
            outcome.add_done_callback(then)

    def answer(self) -> bytes:
        """Return the answer of the call, once the outcome is there.

        Raises:
            Exception: the call failed; ``rest`` serves what is left of the call.
            CancelledError: the call was cancelled.
        """
        method, load, proposed = self._method, self._method.load, self._proposed
        method.durations.add(monotonic() - self._began)
        load.calls -= 1
        load.held_bytes -= len(self._raw)
        if load.idle is not None:
            load.notify_if_idle()
        answer = proposed.answer(proposed.outcome.result())
        counts, ok = method.counts, method.ok
        counts[ok] = counts.get(ok, 0) + 1
        self._context.set_trailing_metadata(((LEADER_KEY, method.leadership.address),))
        return answer

    def rest(self, error: Exception) -> Coroutine[Any, Any, bytes | None]:
        """Return a coroutine that serves the call after the command has failed."""
        method = self._method
        if isinstance(error, NotProposed):
            # Leadership was lost before anything was written; the new leader executes.
            return method.handle(self._raw, self._context)
        return method.refused(self._context, error)


class PromptMethod:
    """Begins calls of one method, for callers that need no authentication.

    Args:
        path: full name of the method.
        method: the method.
        handle: serves the calls that are not begun here.
        refuse: ends a call with the status of an error.
        leadership: tells whether this node leads.
        load: counts and bounds the calls in progress.
        counts: counts the finished calls.
    """

    __slots__ = (
        "_begin", "_path", "_refuse", "counts", "durations", "handle", "leadership", "load", "ok"
    )  # fmt: skip

    def __init__(
        self,
        path: str,
        method: AnyUnaryMethod,
        handle: UnaryHandle,
        refuse: Refusal,
        leadership: LeadershipTracker,
        load: CallLoad,
        counts: CallCounts,
    ) -> None:
        self._path = path
        self._begin = method.begin
        self._refuse = refuse
        self.handle = handle
        self.leadership = leadership
        self.load = load
        self.counts = counts.by_outcome
        self.durations = counts.durations(path)
        self.ok = (path, "OK")

    def begin(
        self, raw: bytes, deadline: float | None, now: float, context: ServerContext
    ) -> PromptCall | None:
        """Propose the command of a call; return None if ``handle`` has to serve the call.

        Args:
            raw: the request.
            deadline: time of the event loop at which the call ends; None: the client set none.
            now: time of the event loop.
            context: the call.
        """
        load, size = self.load, len(raw)
        if (
            size > SHORT_REQUEST_BYTES
            or load.is_draining
            or load.calls >= load.calls_max
            or load.held_bytes + size > load.bytes_max
            or not self.leadership.serves
        ):
            return None
        try:
            proposed = self._begin(raw, deadline, now)
        except Exception:  # noqa: BLE001 - nothing was proposed; ``handle`` raises and answers it
            return None
        if proposed is None:
            return None
        load.calls += 1
        load.held_bytes += size
        return PromptCall(self, raw, context, proposed)

    async def refused(self, context: ServerContext, error: Exception) -> None:
        """End a call with the status of an error."""
        await self._refuse(self._path, context, error)
