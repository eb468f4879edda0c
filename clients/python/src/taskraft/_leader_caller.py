"""Send a call to the leader, and retry it until it is answered or its deadline has passed.

Each retry sends the same message with the same request_id, so the server does not execute a call
twice. Only failures with a retryable reason are retried (see `taskraft.catalogue`), and calls that
a node has not answered in time.
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
"""Maximum time for a node to answer a call that does not wait, in seconds; then the next node is
tried."""
WAIT_MARGIN_SECONDS: Final = 1.0
"""Additional time for a call that waits on the server, beyond its wait."""
REPORTED_FAILURES_MAX: Final = 5
"""Maximum number of different failures that one error message lists."""
BACKOFF_SECONDS: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 0.5
"""Maximum pause between attempts, in seconds. An election takes less time; a longer pause would
only delay the failover."""

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
    """Return a new request_id with 128 random bits; safe after a fork."""
    return os.urandom(16).hex()


class LeaderCaller:
    """Calls methods on the node that leads."""

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
        """Return the response to `request`.

        Args:
            method: picks the method from the stubs of a node.
            request: sent unchanged with every attempt.
            deadline: time to give up, by `time.monotonic`.
            wait_seconds: time that the request asks the server to wait before it answers.

        Raises:
            TaskraftError: the last failure, if it is not retryable or the deadline has passed.
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
                self._nodes.selector.report_answer(node.address)
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
        """Update the node selector after a failed attempt, and return the error."""
        error = from_rpc_error(raised, node.address)
        if isinstance(error, errors.RetryableError | errors.DeadlinePassed):
            is_unreachable = isinstance(error, errors.Unavailable | errors.DeadlinePassed)
            if not is_unreachable:
                self._nodes.selector.report_answer(node.address)
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
    """Return the error to raise when the deadline has passed, from all failures by message.

    A failure that leaves the outcome open has priority, then an error that a node sent, then a
    failed connection. The messages of the other failures are appended.
    """
    if not failures:
        return errors.DeadlinePassed("the deadline passed before the call was sent")
    ranked = sorted(failures.values(), key=_rank)
    chosen = ranked[0]
    others = [error.message for error in ranked[1:REPORTED_FAILURES_MAX]]
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
            return 4  # connection refused, possibly at only one of the host's addresses
        case errors.Unavailable():
            return 3
        case _:
            return 2


def pause_seconds(error: errors.TaskraftError, attempts: int, nodes: int) -> float | None:
    """Return the pause before the next attempt, or None if the call must not be retried.

    The pause is the server's retry delay if it sent one. If a node could not be reached, the next
    node is tried without a pause until all nodes were tried. After that the pause doubles, with
    jitter, so that clients do not reconnect to a restarted cluster at the same time.
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
