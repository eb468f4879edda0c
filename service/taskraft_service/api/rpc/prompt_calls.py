"""Serve calls that only wait for the outcome of one command, without a task for each call.

A server that has received the request begins such a call at once, and ends the call when the
outcome arrives. All other calls run as coroutines, also calls that cannot be begun: a coroutine
repeats the checks, tells the client what is wrong, and writes the audit record. So a prompt call
has one way to fail, the coroutine of ``rest``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from taskraft_service.access.authenticator import OPEN_AUTHENTICATOR, Authenticator
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.answer_bytes import name_principal
from taskraft_service.api.rpc.call_load import CallCounts, CallLoad
from taskraft_service.api.rpc.delivery import delivering
from taskraft_service.api.rpc.list_maxima import SHORT_REQUEST_BYTES
from taskraft_service.api.rpc.live_calls import LiveCall, revoked_in_progress
from taskraft_service.api.rpc.method_table import Refusal, UnaryHandle
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ProposedCall
from taskraft_service.api.rpc.server_context import ServerContext
from taskraft_service.leader.command_submitter import CommandOutcome, NotProposed
from taskraft_service.leader.leadership import LeadershipTracker

LEADER_KEY: Final = "x-taskraft-leader"
"""Metadata key of the address of the leader."""


class PromptCall:
    """One call that waits for the outcome of its command; ``PromptMethod.begin`` creates it."""

    __slots__ = ("_began", "_context", "_live", "_method", "_proposed", "_raw")

    def __init__(
        self,
        method: PromptMethod,
        raw: bytes,
        context: ServerContext,
        proposed: ProposedCall,
        live: LiveCall | None,
    ) -> None:
        self._method = method
        self._raw = raw
        self._context = context
        self._proposed = proposed
        self._live = live
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
            Exception: the call failed, or this node has ended the call because its credentials or
                permissions were withdrawn; ``rest`` serves what is left of the call.
            CancelledError: the client has ended the call.
        """
        method, load, proposed, live = self._method, self._method.load, self._proposed, self._live
        method.durations.add(monotonic() - self._began)
        load.calls -= 1
        load.held_bytes -= len(self._raw)
        if load.idle is not None:
            load.notify_if_idle()
        if live is not None:
            load.live.remove(live)
            if live.ended_by is not None and proposed.outcome.cancelled():
                raise revoked_in_progress()
        answer = proposed.answer(proposed.outcome.result())
        counts, ok = method.counts, method.ok
        counts[ok] = counts.get(ok, 0) + 1
        self._context.set_trailing_metadata(((LEADER_KEY, method.leadership.address),))
        return answer

    def deliver(self, answer: bytes) -> Coroutine[Any, Any, bytes | None]:
        """Return a coroutine that sends an answer above ``COUNTED_ANSWER_BYTES``.

        The bytes of the answer count for the principal until the transport has taken the answer.
        """
        principal = "" if self._live is None else self._live.caller.name

        async def known(answer: bytes, _context: ServerContext) -> bytes:
            name_principal(principal)
            return answer

        return delivering(known, self._method.load.answers)(answer, self._context)

    def rest(self, error: Exception) -> Coroutine[Any, Any, bytes | None]:
        """Return a coroutine that serves the call after the command has failed."""
        method = self._method
        if isinstance(error, NotProposed):
            # Leadership was lost before anything was written; the new leader executes.
            return method.handle(self._raw, self._context)
        return method.refused(self._context, error)


@dataclass(slots=True, frozen=True)
class NodeCalls:
    """What all methods of a node share."""

    leadership: LeadershipTracker
    """Tells whether this node leads."""
    load: CallLoad
    """Counts and bounds the calls in progress."""
    counts: CallCounts
    """Counts the finished calls."""


class PromptMethod:
    """Begins calls of one method.

    Args:
        path: full name of the method.
        method: the method.
        handle: serves the calls that are not begun here.
        refuse: ends a call with the status of an error.
        authenticator: authenticates the callers.
        calls: the calls of the node.
    """

    __slots__ = (
        *("_authenticate", "_begin", "_path", "_refuse", "_request"),
        *("counts", "durations", "handle", "leadership", "load", "ok"),
    )

    def __init__(
        self,
        path: str,
        method: AnyUnaryMethod,
        handle: UnaryHandle,
        refuse: Refusal,
        authenticator: Authenticator,
        calls: NodeCalls,
    ) -> None:
        self._path = path
        self._begin = method.begin
        self._request = method.kind
        is_open = authenticator is OPEN_AUTHENTICATOR
        self._authenticate = None if is_open else authenticator.authenticate
        self._refuse = refuse
        self.handle = handle
        self.leadership = calls.leadership
        self.load = calls.load
        self.counts = calls.counts.by_outcome
        self.durations = calls.counts.durations(path)
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
        live: LiveCall | None = None
        try:
            caller = ANONYMOUS if self._authenticate is None else self._authenticate(context)
            if caller.is_restricted:
                live = load.live.add(
                    LiveCall(caller, context.peer(), self._request, is_stream=False, first=raw)
                )
            proposed = self._begin(raw, deadline, caller, now)
        except Exception:  # noqa: BLE001 - nothing was proposed; ``handle`` raises and answers it
            proposed = None
        if proposed is None:
            if live is not None:
                load.live.remove(live)
            return None
        if live is not None:
            live.work = proposed.outcome
        load.calls += 1
        load.held_bytes += size
        return PromptCall(self, raw, context, proposed, live)

    async def refused(self, context: ServerContext, error: Exception) -> None:
        """End a call with the status of an error."""
        await self._refuse(self._path, context, error)
