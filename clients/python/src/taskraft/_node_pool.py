"""Create and keep the channels to the nodes, on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import grpc
import grpc.aio

from taskraft._clock import monotonic
from taskraft.v1 import (
    cluster_service_pb2_grpc,
    feed_service_pb2_grpc,
    group_service_pb2_grpc,
    schedule_service_pb2_grpc,
    session_service_pb2_grpc,
    task_service_pb2_grpc,
    tube_service_pb2_grpc,
)

if TYPE_CHECKING:
    from taskraft._node_selector import NodeSelector
    from taskraft.v1.cluster_service_pb2_grpc import ClusterServiceAsyncStub
    from taskraft.v1.feed_service_pb2_grpc import FeedServiceAsyncStub
    from taskraft.v1.group_service_pb2_grpc import GroupServiceAsyncStub
    from taskraft.v1.schedule_service_pb2_grpc import ScheduleServiceAsyncStub
    from taskraft.v1.session_service_pb2_grpc import SessionServiceAsyncStub
    from taskraft.v1.task_service_pb2_grpc import TaskServiceAsyncStub
    from taskraft.v1.tube_service_pb2_grpc import TubeServiceAsyncStub

RECEIVE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of a received message. Credit and bytes_max limit lists of tasks; this value only
rejects invalid lengths."""
NODES_MAX: Final = 32
"""Maximum number of channels; leader hints to further addresses are ignored."""
PING_MS: Final = 500
"""Idle time after which the client pings a connection with calls or streams, and maximum wait for
the reply, in ms. The client therefore detects a hung node after about 1 s, by which time the other
nodes have elected a leader. gRPC's own threads answer pings, so a busy node or client answers in
time."""
CHANNEL_OPTIONS: Final = (
    ("grpc.enable_retries", 0),  # the client retries itself, on another node
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.keepalive_time_ms", PING_MS),
    ("grpc.keepalive_timeout_ms", PING_MS),
    ("grpc.http2.ping_timeout_ms", PING_MS),  # otherwise gRPC waits for up to 60 s
    ("grpc.http2.max_pings_without_data", 0),  # no maximum: a stream may be idle for hours
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # also the connect timeout
    ("grpc.max_reconnect_backoff_ms", 1_000),  # reconnect to a restarted node within 1 s
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
)
CHANNEL_SECONDS_MIN: Final = 1.0
"""Minimum age of a channel without a connection before it is replaced, in seconds. gRPC pauses for
up to 120 s after a failed resolution of a name; a new channel resolves the name at once. A node
that was away and returns with another address is reachable again after this time."""
LONG_CALLS_PER_CHANNEL: Final = 60
"""Maximum number of waits and streams on one channel; further ones get another channel, with a
connection of its own. A server permits 128 concurrent calls on a connection. The others wait or are
refused, so without this limit, many waits would keep the short calls waiting."""
CLOSE_SECONDS: Final = 5.0
"""Maximum time for calls on a replaced channel to fail on their own, in seconds."""


OpenChannel: TypeAlias = Callable[[str, grpc.ChannelCredentials | None, int], grpc.aio.Channel]
"""Returns a channel to the node at an address."""


@dataclass(slots=True, frozen=True)
class NodeStubs:
    """The stubs of all services of one node."""

    address: str
    opened_at: float
    """Time at which the channel was created, by `time.monotonic`."""
    channel: grpc.aio.Channel
    tasks: TaskServiceAsyncStub
    tubes: TubeServiceAsyncStub
    groups: GroupServiceAsyncStub
    schedules: ScheduleServiceAsyncStub
    sessions: SessionServiceAsyncStub
    cluster: ClusterServiceAsyncStub
    feed: FeedServiceAsyncStub


def is_disconnected(
    state: grpc.ChannelConnectivity, opened_seconds: float, unused_seconds: float
) -> bool:
    """Return whether to replace a channel: it has no connection and carries no call.

    Args:
        state: the state of the channel.
        opened_seconds: time since the channel was created.
        unused_seconds: time since the channel was last chosen for a call. A call that has just
            begun leaves a channel IDLE for a moment.
    """
    match state:
        case grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            return opened_seconds >= CHANNEL_SECONDS_MIN
        case grpc.ChannelConnectivity.IDLE:
            return unused_seconds >= CHANNEL_SECONDS_MIN
        case _:
            return False


def open_channel(
    address: str,
    credentials: grpc.ChannelCredentials | None,
    number: int,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> grpc.aio.Channel:
    """Return a channel to the node at an address.

    Channels with different numbers have connections of their own, because gRPC lets channels with
    equal options share a connection.
    """
    options = (*CHANNEL_OPTIONS, ("taskraft.channel", number)) if number else CHANNEL_OPTIONS
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options, interceptors=interceptors)
    return grpc.aio.secure_channel(address, credentials, options=options, interceptors=interceptors)


class NodePool:
    """Returns the stubs of the node that the selector picks."""

    def __init__(
        self,
        route: NodeSelector,
        credentials: grpc.ChannelCredentials | None,
        open_channel: OpenChannel = open_channel,
    ) -> None:
        self.selector: Final = route
        self._credentials = credentials
        self._open_channel = open_channel
        self._nodes: dict[tuple[str, int], NodeStubs] = {}
        """The open channels, by address and number."""
        self._used_at: dict[tuple[str, int], float] = {}
        """Time at which each channel was last chosen, by `time.monotonic`."""
        self._long_calls: list[int] = []
        """Long calls in progress, by the number of their channel."""
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def long_call(self) -> Iterator[int]:
        """Reserve a channel for a wait or a stream; yield the number of the channel."""
        counts = self._long_calls
        number = next(
            (number for number, count in enumerate(counts) if count < LONG_CALLS_PER_CHANNEL),
            len(counts),
        )
        if number == len(counts):
            counts.append(0)
        counts[number] += 1
        try:
            yield number
        finally:
            counts[number] -= 1

    def next_node(self, number: int = 0) -> NodeStubs:
        """Return the stubs of the node to call next, on the channel with a number."""
        return self.at(self.selector.next_address(), number)

    def at(self, address: str, number: int = 0) -> NodeStubs:
        """Return the stubs of the node at an address, on the channel with a number."""
        key = (address, number)
        node = self._nodes.get(key)
        now = monotonic()
        if node is not None and is_disconnected(
            node.channel.get_state(), now - node.opened_at, now - self._used_at[key]
        ):
            self._close_later(node.channel)
            del self._nodes[key]
            node = None
        if node is None:
            if self._is_full and address not in self.selector.addresses:
                self.selector.report_failure(address)
                return self.next_node(number)
            node = self._nodes[key] = self._connect(address, number)
        self._used_at[key] = now
        return node

    @property
    def _is_full(self) -> bool:
        """Whether there are channels to `NODES_MAX` nodes."""
        return len({address for address, _ in self._nodes}) >= NODES_MAX

    def _connect(self, address: str, number: int) -> NodeStubs:
        channel = self._open_channel(address, self._credentials, number)
        return NodeStubs(
            address,
            monotonic(),
            channel,
            task_service_pb2_grpc.TaskServiceStub(channel),
            tube_service_pb2_grpc.TubeServiceStub(channel),
            group_service_pb2_grpc.GroupServiceStub(channel),
            schedule_service_pb2_grpc.ScheduleServiceStub(channel),
            session_service_pb2_grpc.SessionServiceStub(channel),
            cluster_service_pb2_grpc.ClusterServiceStub(channel),
            feed_service_pb2_grpc.FeedServiceStub(channel),
        )

    def _close_later(self, channel: grpc.aio.Channel) -> None:
        """Close a channel after its calls have ended."""
        closing = asyncio.get_running_loop().create_task(channel.close(CLOSE_SECONDS))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all channels; this cancels calls in flight."""
        for closing in self._closing:
            closing.cancel()
        nodes, self._nodes = list(self._nodes.values()), {}
        await asyncio.gather(*(node.channel.close() for node in nodes))
