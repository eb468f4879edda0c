"""Ways to put a task: with the Python client, with a subscription, or with a plain stub."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final, Protocol

import grpc.aio

from taskraft import AsyncClient
from taskraft.v1 import task_pb2, task_service_pb2, task_service_pb2_grpc
from tools.local_cluster import LocalCluster
from tools.local_node import Node

if TYPE_CHECKING:
    from taskraft.v1.task_service_pb2_grpc import TaskServiceAsyncStub

TUBE: Final = "failover"
PUT_TIMEOUT_SECONDS: Final = 10.0


class Way(Protocol):
    """A way to put a task."""

    async def put(self, payload: bytes) -> None:
        """Put a task.

        Raises:
            TaskraftError, AioRpcError: the put failed.
        """


class ClientWay:
    """Puts with the client of the Python library."""

    def __init__(self, client: AsyncClient) -> None:
        self._tube = client.tube(TUBE)

    async def put(self, payload: bytes) -> None:
        """Put a task."""
        await self._tube.put(payload, timeout=PUT_TIMEOUT_SECONDS)


class StreamWay:
    """Puts with the client, and waits until a subscription has received the task."""

    def __init__(self, client: AsyncClient) -> None:
        self._tube = client.tube(TUBE)
        self._subscription = client.subscribe(TUBE, credit=1_000)
        self._awaited: dict[bytes, asyncio.Event] = {}

    async def receive(self) -> None:
        """Receive and acknowledge tasks until cancelled."""
        async with self._subscription as tasks:
            async for batch in tasks.batches():
                for task in batch:
                    if task.payload in self._awaited:
                        self._awaited[task.payload].set()
                await tasks.ack(batch)

    async def put(self, payload: bytes) -> None:
        """Put a task and wait until it was received."""
        received = self._awaited[payload] = asyncio.Event()
        try:
            await self._tube.put(payload, timeout=PUT_TIMEOUT_SECONDS)
            async with asyncio.timeout(PUT_TIMEOUT_SECONDS):
                await received.wait()
        finally:
            del self._awaited[payload]


class FollowerWay:
    """Puts with a gRPC stub, through a node that was a follower when the round began."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._channels = {
            node.address: grpc.aio.insecure_channel(node.address) for node in cluster.nodes
        }
        self._stub: TaskServiceAsyncStub | None = None

    def choose_follower(self, leader: Node) -> None:
        """Use the last follower, because ``cut-follower`` cuts off the first follower."""
        followers = [node for node in self._cluster.nodes if node is not leader]
        self._stub = task_service_pb2_grpc.TaskServiceStub(self._channels[followers[-1].address])

    async def put(self, payload: bytes) -> None:
        """Put a task, without retries."""
        assert self._stub is not None, "the round has begun"
        request = task_service_pb2.PutTasksRequest(
            request_id=uuid.uuid4().hex, tube=TUBE, tasks=[task_pb2.TaskSpec(payload=payload)]
        )
        await self._stub.PutTasks(request, timeout=PUT_TIMEOUT_SECONDS)
