"""Carry one call to the leader and repeat it until it is answered or its time is over.

A repetition is the same message, request_id included, so that the server answers a call that
already had its effect instead of doing it again. Only failures that say "not done, or not known"
are repeated (`taskraft.catalogue`); a node that does not answer in time counts as one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import grpc

from taskraft import catalogue, errors
from taskraft._error_translation import from_rpc_error, metadata_of
from taskraft._node_selector import LEADER_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from taskraft._node_pool import NodePool, NodeStubs

log = logging.getLogger("taskraft")

ATTEMPT_SECONDS_MAX: Final = 5.0
"""A node that has not answered for so long is left for another; nobody waits here on purpose."""
WAIT_MARGIN_SECONDS: Final = 1.0
"""What a call that waits in the server may take beyond its wait."""
TOLD_FAILURES_MAX: Final = 5
"""An error tells of no more different failures."""
BACKOFF_SECONDS: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 0.5
"""An election takes less; a longer pause would only make the fail-over longer."""

Request = TypeVar("Request")
Response = TypeVar("Response")


class AsyncUnaryMethod(Protocol[Request, Response]):
    """A unary method of a stub of grpc.aio."""

    def __call__(
        self, request: Request, /, *, timeout: float | None = None
    ) -> grpc.aio.UnaryUnaryCall[Request, Response]:
        """Start the call."""
        ...


def new_request_id() -> str:
    """Return a fresh request_id: 128 random bits, safe after a fork."""
    return os.urandom(16).hex()


class LeaderCaller:
    """Call methods on whichever node leads."""

    def __init__(self, nodes: NodePool) -> None:
        self._nodes = nodes

    async def call(
        self,
        method: Callable[[NodeStubs], AsyncUnaryMethod[Request, Response]],
        request: Request,
        *,
        deadline: float,
        wait_seconds: float = 0.0,
    ) -> Response:
        """Return the answer to `request`.

        Args:
            method: Picks the method from a node's services.
            request: Sent unchanged with every attempt.
            deadline: When to give up, by `time.monotonic`.
            wait_seconds: How long the server is asked to wait before it answers.

        Raises:
            TaskraftError: The last failure, when it is final or the time is over.
        """
        attempts = 0
        failures: dict[str, errors.TaskraftError] = {}
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise _outcome(failures)
            node = self._nodes.next_node()
            allowed = min(
                remaining,
                wait_seconds + (WAIT_MARGIN_SECONDS if wait_seconds else ATTEMPT_SECONDS_MAX),
            )
            error = None
            call = method(node)(request, timeout=allowed)
            try:
                response = await call
            except grpc.aio.AioRpcError as raised:
                error = self._failure(node, raised)
            else:
                self._note_leader_hint(await call.initial_metadata())
                self._note_leader_hint(await call.trailing_metadata())
                return response
            attempts += 1
            failures[error.message] = error
            pause = pause_seconds(error, attempts, len(self._nodes.selector.addresses))
            if pause is None:
                raise error
            if time.monotonic() + pause >= deadline:
                raise _outcome(failures)
            log.debug("attempt %d at %s failed: %s", attempts, node.address, error)
            await asyncio.sleep(pause)

    def _failure(self, node: NodeStubs, raised: grpc.aio.AioRpcError) -> errors.TaskraftError:
        """Learn from a failed attempt who leads, and return what is wrong."""
        error = from_rpc_error(raised, node.address)
        if isinstance(error, errors.RetryableError | errors.DeadlinePassed):
            is_unreachable = isinstance(error, errors.Unavailable | errors.DeadlinePassed)
            self._nodes.selector.report_failure(node.address, is_unreachable=is_unreachable)
        leader = metadata_of(raised).get(LEADER_KEY) or error.metadata.get("leader", "")
        if isinstance(leader, str) and leader != node.address:
            self._nodes.selector.set_leader_hint(leader)
        return error

    def _note_leader_hint(self, metadata: grpc.aio.Metadata | None) -> None:
        leader = metadata.get(LEADER_KEY) if metadata else None
        if isinstance(leader, str):
            self._nodes.selector.set_leader_hint(leader)


def _outcome(failures: Mapping[str, errors.TaskraftError]) -> errors.TaskraftError:
    """Return what to tell when the time is over, from the failures by what they say.

    What leaves the outcome open comes first, then what a node has said itself, then why there was
    no connection. The others are told beside it.
    """
    if not failures:
        return errors.DeadlinePassed("the time for the call was over before it was sent")
    ranked = sorted(failures.values(), key=_rank)
    chosen = ranked[0]
    others = [error.message for error in ranked[1:TOLD_FAILURES_MAX]]
    if others:
        chosen.args = (f"{chosen.message}; {'; '.join(others)}",)
    return chosen


def _rank(error: errors.TaskraftError) -> int:
    match error:
        case errors.CommitUnknown() | errors.DeadlinePassed():
            return 0
        case errors.Unavailable(is_sent=True):
            return 1
        case errors.Unavailable(advice=errors.Unavailable.advice):
            return 4  # nothing listens, which may be so of one address of a host only
        case errors.Unavailable():
            return 3
        case _:
            return 2


def pause_seconds(error: errors.TaskraftError, attempts: int, nodes: int) -> float | None:
    """Return how long to wait before the next attempt, or None when there should be none.

    As the server says where it says so. NodePool that could not be reached are passed over at once
    until each has been tried; then the pauses double, with jitter, so that the clients of a cluster
    that comes back do not all come at the same moment.
    """
    is_silent = isinstance(error, errors.DeadlinePassed)
    if not is_silent and not catalogue.is_retried(error):
        return None
    if error.retry_ms is not None:
        return error.retry_ms / 1_000 * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
    if error.metadata.get("leader"):
        return 0.0 if attempts == 1 else BACKOFF_SECONDS
    if attempts < nodes and isinstance(error, errors.Unavailable | errors.DeadlinePassed):
        return 0.0
    longest: float = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2 ** min(attempts, 8))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
