"""Count the calls of this node, and limit the memory that calls and streams hold.

One budget counts each byte once: the requests in progress, here or forwarded, the answers that the
transport has not taken yet, and the responses that streams have not sent yet. A call above the
budget is refused with OVERLOADED before anything is proposed. Answers have a part of the budget,
for which calls wait (see ``answer_bytes``). The bytes are freed when the call ends, or when the
answer or the response is sent.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.answer_bytes import ANSWERS_SHARE, AnswerRoom
from taskraft_service.api.rpc.live_calls import LiveCalls, share_of
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.distribution import Distribution
from taskraft_service.limits import MESSAGE_BYTES_MAX

SMALL_REQUEST_BYTES: Final = 16 * 1024
"""Maximum size of requests that are accepted although the budget is used up. Acknowledgements and
releases are small, and they free memory. ``calls_max`` bounds their number."""
CALL_SECONDS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
)
"""Bounds of the durations of calls. Calls that wait for tasks or outcomes take up to 60 s."""
RESPONSES_SHARE: Final = 2
"""Unsent responses may use the budget divided by this number, so that slow consumers cannot block
the producers."""


@dataclass(slots=True)
class CallCounts:
    """Finished calls since the process started, by method and outcome; the metrics read them."""

    by_outcome: dict[tuple[str, str], int]
    seconds: dict[str, Distribution] = field(default_factory=dict)
    """Durations of unary calls by method, whatever their outcome."""

    def durations(self, method: str) -> Distribution:
        """Return the distribution of the durations of a method."""
        return self.seconds.setdefault(method, Distribution(CALL_SECONDS))

    def count(self, method: str, outcome: str) -> None:
        """Count one call; ``outcome`` is "OK" or a reason."""
        key = (method, outcome)
        self.by_outcome[key] = self.by_outcome.get(key, 0) + 1


class CallLoad:
    """The calls and streams in progress, and the bytes that they hold.

    Args:
        calls_max: maximum number of concurrent calls.
        streams_max: maximum number of concurrent streams.
        bytes_max: maximum number of bytes; at least one message fits.
        live: the calls and streams of authenticated callers.
    """

    __slots__ = (
        "answers",
        "bytes_max",
        "calls",
        "calls_max",
        "held_bytes",
        "idle",
        "is_draining",
        "live",
        "streams",
        "streams_max",
    )

    def __init__(self, calls_max: int, streams_max: int, bytes_max: int, live: LiveCalls) -> None:
        assert bytes_max >= MESSAGE_BYTES_MAX
        self.calls_max = calls_max
        self.streams_max = streams_max
        self.bytes_max = bytes_max
        self.live: Final = live
        self.calls = 0
        self.streams = 0
        self.held_bytes = 0
        answers_max = bytes_max // ANSWERS_SHARE
        self.answers: Final = AnswerRoom(self, answers_max, share_of(answers_max, answers_max))
        self.is_draining = False
        """Whether the node stops: it serves no further call."""
        self.idle: asyncio.Event | None = None
        """The event for which ``wait_idle`` waits: no call is in progress; None: nothing waits."""

    def notify_if_idle(self) -> None:
        """Wake ``wait_idle`` if no call is in progress; called after each call and stream.

        Without an event in ``idle`` there is nothing to wake, and a call need not call this method.
        """
        if self.idle is not None and not (self.calls or self.streams):
            self.idle.set()

    async def wait_idle(self, timeout_seconds: float) -> bool:
        """Wait until no call is in progress; return False after a timeout.

        Calls of other services, such as health watches, may never end and do not count.
        """
        if not (self.calls or self.streams):
            return True
        self.idle = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.idle.wait()
        except TimeoutError:
            return False
        finally:
            self.idle = None
        return True

    @property
    def may_buffer_responses(self) -> bool:
        """Return whether a stream with unsent responses may buffer further responses."""
        return self.held_bytes < self.bytes_max // RESPONSES_SHARE

    def check_call(self, request_bytes: int) -> None:
        """Check the limits after a call was counted.

        Raises:
            CallRefused: OVERLOADED, the number of calls or the total size of their requests is too
                high.
        """
        if self.calls > self.calls_max:
            raise _overloaded("calls", "calls_max", self.calls_max)
        if self.held_bytes > self.bytes_max and request_bytes > SMALL_REQUEST_BYTES:
            raise _overloaded("bytes of calls", "call_bytes_max", self.bytes_max)

    def check_stream(self) -> None:
        """Check the limit after a stream was counted.

        Raises:
            CallRefused: OVERLOADED, there are too many streams.
        """
        if self.streams > self.streams_max:
            raise _overloaded("streams", "streams_max", self.streams_max)


def _overloaded(what: str, limit: str, most: int) -> CallRefused:
    return CallRefused(
        error_pb2.Error.OVERLOADED,
        f"this node has more than {most} {what} in progress; retry later or on another node",
        {"limit": limit, "value": str(most)},
    )
