"""Limit the memory that the calls and streams of this node hold.

One budget counts each byte once: the requests in progress, here or forwarded, and the responses
that streams have not sent yet. A call above the budget is refused with OVERLOADED before anything
is proposed. The bytes are freed when the call ends or the response is sent.
"""

from __future__ import annotations

from typing import Final

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.limits import MESSAGE_BYTES_MAX

SMALL_REQUEST_BYTES: Final = 16 * 1024
"""Size up to which requests are accepted above the budget. Acknowledgements and releases are small,
and they free memory. ``calls_max`` bounds their number."""
RESPONSES_SHARE: Final = 2
"""Unsent responses may use the budget divided by this number, so that consumers that do not read
cannot stop the producers."""


class CallLoad:
    """The calls and streams in progress, and the bytes that they hold.

    Args:
        calls_max: maximum number of concurrent calls.
        streams_max: maximum number of concurrent streams.
        bytes_max: maximum number of bytes; at least one message fits.
    """

    __slots__ = ("bytes_max", "calls", "calls_max", "held_bytes", "streams", "streams_max")

    def __init__(self, calls_max: int, streams_max: int, bytes_max: int) -> None:
        assert bytes_max >= MESSAGE_BYTES_MAX
        self.calls_max = calls_max
        self.streams_max = streams_max
        self.bytes_max = bytes_max
        self.calls = 0
        self.streams = 0
        self.held_bytes = 0

    @property
    def may_buffer_responses(self) -> bool:
        """Return whether a stream that already has unsent responses may get more."""
        return self.held_bytes < self.bytes_max // RESPONSES_SHARE

    def check_call(self, request_bytes: int) -> None:
        """Check the bounds after a call was counted.

        Raises:
            CallRefused: OVERLOADED, there are too many calls, or their requests are too large.
        """
        if self.calls > self.calls_max:
            raise _overloaded("calls", "calls_max", self.calls_max)
        if self.held_bytes > self.bytes_max and request_bytes > SMALL_REQUEST_BYTES:
            raise _overloaded("bytes of calls", "call_bytes_max", self.bytes_max)

    def check_stream(self) -> None:
        """Check the bound after a stream was counted.

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
