"""Retry a stream of responses until it has made no progress for the time limit of a call.

A transfer may last much longer than one call. The limit therefore counts from the last progress.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, TypeVar, cast

import grpc.aio

from taskraft import errors
from taskraft._clock import monotonic
from taskraft._final_error import REPORTED_FAILURES_MAX, final_error
from taskraft._leader_caller import pause_seconds

if TYPE_CHECKING:
    from typing import Any

Response = TypeVar("Response")


class StreamRetries:
    """The failed attempts of one stream since its last progress.

    Args:
        seconds_max: maximum time without progress, in seconds; `math.inf`: no limit.
    """

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self.progressed()

    def progressed(self) -> None:
        """Forget the failures, and let the time limit begin now."""
        self._attempts = 0
        self._failures: dict[str, errors.TaskraftError] = {}
        self._began = monotonic()

    async def read(
        self, call: grpc.aio.UnaryStreamCall[Any, Response], address: str, *, is_limited: bool
    ) -> Response | None:
        """Return the next response; None: the stream has ended.

        Args:
            call: the current attempt.
            address: address of the node.
            is_limited: False: the time of this read does not count.

        Raises:
            TaskraftError: no response arrived within the time limit.
            grpc.aio.AioRpcError: the attempt failed.
        """
        began = monotonic()
        deadline = self._deadline if is_limited else math.inf
        try:
            async with asyncio.timeout_at(None if math.isinf(deadline) else deadline):
                response = await call.read()
        except TimeoutError:
            self._failed(errors.DeadlinePassed(f"{address} did not answer in time"))
            raise self._final_error() from None
        finally:
            if not is_limited:
                self._began += monotonic() - began
        return None if response is grpc.aio.EOF else cast("Response", response)

    async def pause(self, error: errors.TaskraftError, nodes: int) -> None:
        """Wait before the next attempt.

        Args:
            error: the error of the last attempt.
            nodes: number of nodes to try without a pause.

        Raises:
            TaskraftError: the error is not retryable, or the time limit would pass.
        """
        self._failed(error)
        seconds = pause_seconds(error, self._attempts, nodes)
        if seconds is None:
            raise error
        if monotonic() + seconds >= self._deadline:
            raise self._final_error()
        await asyncio.sleep(seconds)

    def _failed(self, error: errors.TaskraftError) -> None:
        """Record a failure; only the last ones are kept, because the retries may have no limit."""
        self._attempts += 1
        self._failures.pop(error.message, None)
        self._failures[error.message] = error
        if len(self._failures) > REPORTED_FAILURES_MAX:
            del self._failures[next(iter(self._failures))]

    def _final_error(self) -> errors.TaskraftError:
        seconds = monotonic() - self._began
        return final_error(self._failures, self._attempts, seconds, is_change=False)

    @property
    def _deadline(self) -> float:
        return self._began + self._seconds_max
