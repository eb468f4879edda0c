"""Call the nodes that serve the feed, one at a time, and switch nodes after a failure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self, TypeVar

import grpc

from taskraft.credentials import channel_credentials
from taskraft.v1 import feed_service_pb2_grpc, task_service_pb2_grpc, tube_service_pb2_grpc
from taskraft_pipeline.errors import FeedMismatch, FeedRefused, FeedUnreachable, error_info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft_pipeline.options import Options

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Stub = feed_service_pb2_grpc.FeedServiceStub
TaskStub = task_service_pb2_grpc.TaskServiceStub
TubeStub = tube_service_pb2_grpc.TubeServiceStub

MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum message size: a chunk has at most 4 MiB of columns plus overhead."""
KEEPALIVE_MS: Final = 20_000
BACKOFF_MS: Final = 100
"""Pause in ms after all nodes have failed once; it doubles after each further round."""
BACKOFF_MS_MAX: Final = 5_000
BACKOFF_ROUNDS_MAX: Final = 10
"""Number of doublings after which the pause has reached its maximum in any case."""
REPORT_SECONDS: Final = 5.0
"""Time between two log messages about nodes that do not answer, in seconds."""

CODES_WORTH_RETRYING: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
"""Codes of calls whose node died or is overloaded; HTTP/2 failures cause the last two."""
REASONS_WORTH_RETRYING: Final = frozenset(
    {"NODE_BEHIND", "NO_LEADER", "NOT_LEADER", "DRAINING", "OVERLOADED", "RATE_LIMITED"}
)
"""Reasons for which another node or a later retry helps, with any code."""


def is_worth_retrying(error: grpc.RpcError) -> bool:
    """Return whether another node, or a later retry, may succeed."""
    reason, _ = error_info(error)
    return reason in REASONS_WORTH_RETRYING or (not reason and error.code() in CODES_WORTH_RETRYING)


class FeedClient:
    """Holds one channel to the current node; a context manager closes it.

    Attributes:
        endpoints: addresses of the nodes, in the order in which they are tried.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        options: Options,
        pause: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoints = tuple(endpoints)
        self._options = options
        self._place = 0
        self._pause = pause
        self._clock = clock
        self._failures = 0
        self._failing_since = 0.0
        self._reported_at = 0.0
        self._channel: grpc.Channel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel; the next call opens a new channel."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    @property
    def endpoint(self) -> str:
        """Address of the current node: after an answer, the node that answered."""
        return self.endpoints[self._place]

    @property
    def timeout_seconds(self) -> float:
        """Time limit of one call, in seconds."""
        return self._options.read_timeout_ms / 1_000

    def stub(self) -> Stub:
        """Return the stub of the feed on the current node."""
        return Stub(self.channel())

    def channel(self) -> grpc.Channel:
        """Return the channel to the current node."""
        if self._channel is None:
            address = self.endpoint
            options = [
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                ("grpc.min_reconnect_backoff_ms", self._options.connect_timeout_ms),
                # The next channel must not inherit the back-off of this one after a failure.
                ("grpc.use_local_subchannel_pool", 1),
            ]
            # Read from the environment of the driver and of each executor; Spark logs options.
            credentials = channel_credentials()
            self._channel = (
                grpc.insecure_channel(address, options=options)
                if credentials is None
                else grpc.secure_channel(address, credentials, options=options)
            )
        return self._channel

    def reset_failures(self) -> None:
        """Reset the number of consecutive failures after progress."""
        self._failures = 0

    def handle_failure(self, error: grpc.RpcError) -> None:
        """Switch to the next node, after a pause if all nodes have failed.

        Raises:
            FeedMismatch: the node serves another feed.
            FeedRefused: a retry does not help.
            FeedUnreachable: all nodes have failed for the maximum time without an answer.
        """
        endpoint = self.endpoint
        reason, _ = error_info(error)
        told = f"{endpoint}: {reason or error.code().name}: {error.details()}"
        self.close()
        if reason == "FEED_MISMATCH":
            raise FeedMismatch(f"FEED_MISMATCH: {told}") from error
        if not is_worth_retrying(error):
            raise FeedRefused(told) from error
        now = self._clock()
        if not self._failures:
            self._failing_since = self._reported_at = now
        self._failures += 1
        self._place = (self._place + 1) % len(self.endpoints)
        rounds, position = divmod(self._failures, len(self.endpoints))
        if position:
            return
        silent_s = now - self._failing_since
        if silent_s * 1_000 >= self._options.outage_max_ms:
            raise FeedUnreachable(
                f"no node answered for {silent_s:.0f} s ({self._failures} attempts); last error:"
                f" {told}"
            ) from error
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            log.warning(
                "waiting for the nodes, no answer for %.0f s; last error: %s", silent_s, told
            )
        self._pause(min(BACKOFF_MS << min(rounds - 1, BACKOFF_ROUNDS_MAX), BACKOFF_MS_MAX) / 1_000)

    def call(self, request: Callable[[Stub, float], Answer]) -> Answer:
        """Return the answer to a unary request, which gets the stub and the time limit in seconds.

        Raises:
            FeedMismatch, FeedRefused, FeedUnreachable: see `handle_failure`.
        """
        return self.send(lambda channel, seconds: request(Stub(channel), seconds))

    def send(self, request: Callable[[grpc.Channel, float], Answer]) -> Answer:
        """Return the answer to a unary request of any service, like `call`."""
        while True:
            try:
                answer = request(self.channel(), self.timeout_seconds)
            except grpc.RpcError as error:
                self.handle_failure(error)
            else:
                self.reset_failures()
                return answer
