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
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import grpc

from taskraft import _answering_node, catalogue, errors
from taskraft._arguments import text, wrong_value
from taskraft._clock import monotonic
from taskraft._error_translation import from_rpc_error, metadata_of
from taskraft._final_error import final_error
from taskraft._node_selector import LEADER_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft._node_pool import NodePool, NodeStubs

log = logging.getLogger("taskraft")

ATTEMPT_SECONDS_MAX: Final = 5.0
"""Maximum time for a node to answer a call that does not wait, in seconds; then the next node is
tried."""
WAIT_MARGIN_SECONDS: Final = 1.0
"""Time that a call may take in addition to its wait on the server."""
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


def chosen_request_id(request_id: str | None) -> str:
    """Return the request_id that the caller chose, or a new one for None.

    Raises:
        TypeError: the request_id is not a string.
        ValueError: the request_id is empty, so a repeated call would have a second effect.
    """
    if request_id is None:
        return new_request_id()
    if not text("request_id", request_id):
        raise wrong_value("request_id", "a string of 1 to 64 bytes", request_id)
    return request_id


class LeaderCaller:
    """Calls methods on the node that leads.

    Args:
        nodes: the nodes of the cluster.
        client_id: set in each request that has this field.
    """

    def __init__(self, nodes: NodePool, client_id: str = "") -> None:
        self._nodes = nodes
        self._client_id = client_id

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
            request: gets the client_id; then sent unchanged with every attempt.
            deadline: time to give up, by `time.monotonic`.
            wait_seconds: time that the request asks the server to wait before it answers.

        Raises:
            TaskraftError: a failure that is not retryable, or after the deadline the final error.
        """
        if self._client_id and hasattr(request, "client_id"):
            request.client_id = self._client_id
        with self._nodes.long_call() if wait_seconds else nullcontext(0) as channel:
            return await self._repeat(method, request, deadline, wait_seconds, channel)

    async def _repeat(
        self,
        method: Callable[[NodeStubs], AsyncUnaryMethod[Request, Response]],
        request: Request,
        deadline: float,
        wait_seconds: float,
        channel: int,
    ) -> Response:
        """Call nodes until one answers; `channel` is the number of the channels to use."""
        attempts = 0
        started = monotonic()
        failures: dict[str, errors.TaskraftError] = {}
        is_change = hasattr(request, "request_id")
        while True:
            remaining = deadline - monotonic()
            if remaining <= 0:
                raise final_error(failures, attempts, monotonic() - started, is_change=is_change)
            node = self._nodes.next_node(channel)
            allowed = min(
                remaining,
                wait_seconds + (WAIT_MARGIN_SECONDS if wait_seconds else ATTEMPT_SECONDS_MAX),
            )
            error = None
            _answering_node.note(node.address)
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
            if monotonic() + pause >= deadline:
                raise final_error(failures, attempts, monotonic() - started, is_change=is_change)
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
