"""Create and keep one channel per node address, on first use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

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
"""Time without a received byte after which a connection with calls or streams is tested with a
ping, and time for the answer. A node that hangs is noticed after about 1 s, when the other nodes
have elected a leader. gRPC's own threads answer pings, so a busy node or client answers in time."""
CHANNEL_OPTIONS: Final = (
    ("grpc.enable_retries", 0),  # the client retries itself, on another node
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.keepalive_time_ms", PING_MS),
    ("grpc.keepalive_timeout_ms", PING_MS),
    ("grpc.http2.ping_timeout_ms", PING_MS),  # else gRPC waits for 60 s
    ("grpc.http2.max_pings_without_data", 0),  # no maximum: a stream may be idle for hours
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # also the connect timeout
    ("grpc.max_reconnect_backoff_ms", 1_000),  # reconnect to a restarted node within 1 s
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
)


@dataclass(slots=True, frozen=True)
class NodeStubs:
    """The stubs of all services of one node."""

    address: str
    channel: grpc.aio.Channel
    tasks: TaskServiceAsyncStub
    tubes: TubeServiceAsyncStub
    groups: GroupServiceAsyncStub
    schedules: ScheduleServiceAsyncStub
    sessions: SessionServiceAsyncStub
    cluster: ClusterServiceAsyncStub
    feed: FeedServiceAsyncStub


class NodePool:
    """Returns the stubs of the node that the selector picks."""

    def __init__(self, route: NodeSelector, credentials: grpc.ChannelCredentials | None) -> None:
        self.selector: Final = route
        self._credentials = credentials
        self._nodes: dict[str, NodeStubs] = {}

    def next_node(self) -> NodeStubs:
        """Return the stubs of the node to call next."""
        return self.at(self.selector.next_address())

    def at(self, address: str) -> NodeStubs:
        """Return the stubs of the node at an address."""
        node = self._nodes.get(address)
        if node is None:
            if len(self._nodes) >= NODES_MAX and address not in self.selector.addresses:
                self.selector.report_failure(address)
                return self.next_node()
            node = self._nodes[address] = self._connect(address)
        return node

    def _connect(self, address: str) -> NodeStubs:
        options = CHANNEL_OPTIONS
        channel = (
            grpc.aio.insecure_channel(address, options=options)
            if self._credentials is None
            else grpc.aio.secure_channel(address, self._credentials, options=options)
        )
        return NodeStubs(
            address,
            channel,
            task_service_pb2_grpc.TaskServiceStub(channel),
            tube_service_pb2_grpc.TubeServiceStub(channel),
            group_service_pb2_grpc.GroupServiceStub(channel),
            schedule_service_pb2_grpc.ScheduleServiceStub(channel),
            session_service_pb2_grpc.SessionServiceStub(channel),
            cluster_service_pb2_grpc.ClusterServiceStub(channel),
            feed_service_pb2_grpc.FeedServiceStub(channel),
        )

    async def close(self) -> None:
        """Close all channels; this cancels calls in flight."""
        nodes, self._nodes = list(self._nodes.values()), {}
        await asyncio.gather(*(node.channel.close() for node in nodes))
